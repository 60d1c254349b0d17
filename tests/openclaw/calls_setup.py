"""Agents of an OpenClaw that call each other through our gateway, with the plugin."""

import json
import urllib.request
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio.to_thread
from tests.conftest import GatewayProcess
from tests.openclaw.bare_client import BareClient
from tests.openclaw.conftest import TOKEN_NAME, settings_for
from tests.openclaw.openclaw_process import FakeModel, OpenClaw, merged
from tests.openclaw.plugin_setup import wait_until
from tests.openclaw.recording_proxy import RecordingProxy

from openclaw_a2a.auth.admin_token import read_admin_token
from openclaw_a2a.auth.tokens import TokenKind, TokenStore
from openclaw_a2a.tools.openclaw_plugin import PLUGIN_FOLDER, PLUGIN_ID, PLUGIN_TOOLS

Json = Any
OTHERS = ("critic", "judge")
"""Agents beside `main` and `helper`."""

PATIENCE_MS = 300_000
"""How long calls have that say nothing about it: here OpenClaw may be started meanwhile."""

_Result = TypeVar("_Result")


class CallsSetup:
    """OpenClaw's agents main, helper, critic and judge, which may all call each other.

    They use the tools of `our_gateway`, which reaches OpenClaw by `tap`. Its targets are `far`,
    the agent helper behind another gateway, and `near`, the same agent behind `our_gateway`.
    """

    def __init__(self, folder: Path, model: FakeModel) -> None:
        self.model = model
        self.our_gateway = GatewayProcess(folder / "ours", {}, {})
        self._data = folder / "ours" / "data"
        self.openclaw = OpenClaw(folder / "openclaw", model, self._openclaw_config(folder))
        self._token = folder / "openclaw-token"
        self._token.write_text(self.openclaw.token, "ascii")
        self.tap = RecordingProxy(self.openclaw.ws_url)
        self.far = GatewayProcess(
            folder / "far", settings_for(self.openclaw), {TOKEN_NAME: self.openclaw.token}
        )
        self.set_up()

    def _openclaw_config(self, folder: Path) -> Json:
        place = folder / "plugin-token"
        token = TokenStore(self._data).create("openclaw", TokenKind.HOST)
        place.write_text(token, "ascii")
        table = str(folder / "tools.json")
        options = {"url": self.our_gateway.url, "tokenFile": str(place), "tableFile": table}
        workspaces = {name: {"workspace": str(folder / f"workspace-{name}")} for name in OTHERS}
        return {
            "agents": {"entries": workspaces},
            "tools": {"alsoAllow": list(PLUGIN_TOOLS)},
            "plugins": {
                "load": {"paths": [str(PLUGIN_FOLDER)]},
                "entries": {PLUGIN_ID: {"enabled": True, "config": options}},
            },
        }

    def set_up(self, **more: Json) -> None:
        """What `ours` finds in its settings at its next start."""
        link = {"url": self.tap.url, "token": f"file:{self._token}", "road": "websocket"}
        others = {name: {"adapter": "openclaw-gateway", "agentId": name, **link} for name in OTHERS}
        targets = [
            {"alias": "far", "baseUrl": f"{self.far.url}/agents/helper"},
            {"alias": "near", "baseUrl": f"{self.our_gateway.url}/agents/helper"},
        ]
        settings: Json = {
            "data": str(self._data),
            "agents": others,
            "tools": {"agentToAgent": {"enabled": True, "allow": ["*"]}},
            "responseRouting": {"defaultTimeoutMs": PATIENCE_MS},
            "outbound": {"enabled": True, "targets": targets},
        }
        settings = settings_for(self.openclaw, agent=link, settings=merged(settings, more))
        self.our_gateway.config.write_text(json.dumps(settings), "utf-8")

    def restart_ours(self, **more: Json) -> None:
        """Start `ours` again, with more settings."""
        self.our_gateway.stop()
        self.set_up(**more)
        self.our_gateway.start()

    def shown(self, call: Json) -> Json:
        """A call as the operator sees it."""
        address = f"{self.our_gateway.url}/operator/calls/{call['correlationId']}"
        headers = {"authorization": f"Bearer {read_admin_token(self._data)}"}
        asked = urllib.request.Request(address, headers=headers)
        with urllib.request.urlopen(asked, timeout=240) as answer:
            return json.load(answer)

    async def until(self, call: Json, moment: str) -> Json:
        """The call as the operator sees it, once it came to this state."""
        await run_in_thread(lambda: wait_until(lambda: moment in self.shown(call)["times"]))
        return self.shown(call)

    def notes(self, call: Json, kind: str = "skill_response") -> list[Json]:
        """The requests to models that begin a turn with what came of a call."""
        return self.model.requests(outcome_text(call, kind))

    async def note(self, call: Json, kind: str = "skill_response") -> Json:
        """The message with what came of a call, when its caller's model has got it."""
        found = await run_in_thread(
            lambda: self.model.wait_for(outcome_text(call, kind), within_s=240)
        )
        return json.loads(found[0]["last_user"])


def outcome_text(call: Json, kind: str = "skill_response") -> str:
    """How a message begins that tells what came of a call."""
    return f'{{"kind":"{kind}","correlationId":"{call["correlationId"]}"'


@contextmanager
def calls_between_agents(folder: Path, model: FakeModel) -> Generator[CallsSetup]:
    """All of it, running."""
    bed = CallsSetup(folder, model)
    try:
        bed.openclaw.spawn()
        bed.our_gateway.start()
        bed.far.start()
        bed.openclaw.wait_until_ready()
        bed.openclaw.warm_up()
        yield bed
    finally:
        bed.our_gateway.stop()
        bed.far.stop()
        bed.openclaw.stop()
        bed.tap.close()


async def run_in_thread(work: Callable[[], _Result]) -> _Result:
    """Wait for something without holding up the connection."""
    return await anyio.to_thread.run_sync(work)


def call_prompt(agent: str, do: str = "", **more: Json) -> str:
    """What makes a model call another agent, which does as it is told."""
    asked = {"agent": agent, "skill": "work", "input": {"do": do} if do else {}, **more}
    return f"tool:agent_call {json.dumps(asked)}"


def answer_prompt(output: Json, confidence: float = 0.8) -> str:
    """What makes a called agent answer with this."""
    return "parrot:" + json.dumps({"output": output, "confidence": confidence})


async def turn(client: BareClient, key: str, text: str) -> Json:
    """The tool's result that the model got in this turn, which it repeats as its answer."""
    ended = await client.agent(key.split(":")[1], key, text)
    assert ended["status"] == "ok", ended
    answered = ended["result"]["payloads"][-1]["text"]
    assert answered.startswith("The tool said: {"), answered
    return json.loads(answered.removeprefix("The tool said: "))


async def entries(client: BareClient, key: str, words: str) -> list[Json]:
    """What a session was told that begins with these words, as its transcript has it."""
    history = await client.call("chat.history", {"sessionKey": key, "limit": 100})
    run_turn = [one for one in history["messages"] if one["role"] == "user"]
    return [one for one in run_turn if str(one["content"]).startswith(words)]


def debate_prompt(topic: str, **more: Json) -> str:
    """What makes a model have three others debate; all of them do as the topic says."""
    asked = {
        "topic": topic,
        "proposer": {"agent": "helper", "skill": "propose"},
        "critics": [{"agent": "critic"}],
        "resolver": {"agent": "judge", "skill": "resolve"},
        "input": {"do": answer_prompt("first", 0.6)},
        **more,
    }
    return f"tool:debate_call {json.dumps(asked)}"
