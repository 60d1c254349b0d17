"""A gateway process with peers and agents whose runs last as long as the test wants."""

import contextlib
import hashlib
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
from tests.cli.conftest import COMMAND, served
from tests.ports import free_port

from openclaw_a2a.auth.tokens import TokenKind, TokenStore

Json = Any
DEADLINE_S = 240.0
POLL_S = 0.2
"""Peers that poll without a pause reach their limit of requests on a busy machine."""
RPC = "/a2a/jsonrpc"
EXTENSION = "https://github.com/zeroasterisk/a2a-opt/v1"

AGENTS = '''
"""The agents of the gateway under test."""

import asyncio
import json
from pathlib import Path

import httpx2

from openclaw_a2a import InputRequired, Turn

FOLDER = Path(__file__).parent
CALL = {
    "tool": "agent_call",
    "input": {"agent": "worker", "skill": "work", "input": {}, "wait": True},
}


async def work(text: str):
    """Answers at once; `hold ...` never, `ask ...` with a question, `long ...` at length."""
    with (FOLDER / "started").open("a") as log:
        log.write(text + "\\n")
    if text.startswith("hold") or '"hold"' in text:
        await asyncio.Event().wait()
    if text.startswith("ask"):
        return InputRequired("And?")
    if text.startswith("long"):
        return "x" * 100_000
    return text


async def answer(text: str):
    """Answers calls."""
    return json.dumps({"output": "done", "confidence": 0.99})


async def coordinate(text: str, turn: Turn):
    """Calls the tool that its message describes, as OpenClaw's plugin does, and waits for it.

    A step of an objective is any other text: then it calls another agent.
    """
    asked = json.loads(text) if text.startswith("{") else CALL
    where = json.loads((FOLDER / "tools.json").read_text())
    headers = {
        "authorization": f"Bearer {where['token']}",
        "x-openclaw-agent-id": "boss",
        "x-openclaw-session-key": turn.session_key,
    }
    async with httpx2.AsyncClient(headers=headers, timeout=240) as http:
        answer = await http.post(f"{where['address']}/tools/{asked['tool']}", json=asked["input"])
    return answer.text
'''


def digest(token: str) -> str:
    return "sha256:" + hashlib.sha256(token.encode()).hexdigest()


class Peer:
    """One caller of the gateway; without a name, the caller of a gateway without peers."""

    _numbers = itertools.count()

    def __init__(self, address: str, name: str | None = None) -> None:
        headers = {"a2a-version": "1.0", "a2a-extensions": EXTENSION}
        if name is not None:
            headers["authorization"] = f"Bearer token-of-{name}"
        self.http = httpx2.Client(base_url=address, headers=headers, timeout=DEADLINE_S)
        self.last_message = ""

    def _next_id(self) -> str:
        self.last_message = f"m-{next(self._numbers)}"
        return self.last_message

    def rpc(self, method: str, params: Json) -> httpx2.Response:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self.http.post(RPC, json=body)

    def send(self, text: str, *, waits: bool = False, **message: Json) -> httpx2.Response:
        """Send a message; whether it waits for the answer or only for the task."""
        said = {
            "messageId": self._next_id(),
            "role": "ROLE_USER",
            "parts": [{"text": text}],
            **message,
        }
        configuration = {"returnImmediately": not waits}
        return self.rpc("SendMessage", {"message": said, "configuration": configuration})

    def start(self, text: str, **message: Json) -> Json:
        """The task of a message that is accepted."""
        answer = self.send(text, **message)
        assert answer.status_code == 200, answer.text
        return answer.json()["result"]["task"]

    def wait(self, text: str, **message: Json) -> str:
        """What the agent answers."""
        task = self.send(text, waits=True, **message).json()["result"]["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED", task
        return "".join(part["text"] for one in task["artifacts"] for part in one["parts"])

    def wait_state(self, task: Json, state: str) -> None:
        """Wait until a task has this state."""
        deadline = time.monotonic() + DEADLINE_S
        while (found := self.rpc("GetTask", {"id": task["id"]}).json()["result"]["status"])[
            "state"
        ] != f"TASK_STATE_{state}":
            assert time.monotonic() < deadline, found
            time.sleep(POLL_S)

    @contextlib.contextmanager
    def stream(self, text: str) -> Iterator[httpx2.Response]:
        """An open stream of a task that does not end, or its refusal."""
        said = {"messageId": self._next_id(), "role": "ROLE_USER"}
        params = {"message": {**said, "parts": [{"text": text}]}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": params}
        with self.http.stream("POST", RPC, json=body) as answer:
            lines = answer.iter_lines()  # kept: when it is gone, the stream is closed
            if answer.status_code == 200:
                next(lines)
            else:
                answer.read()
            yield answer


class LimitedGateway:
    """A running gateway."""

    def __init__(self, address: str, home: Path) -> None:
        self.address = address
        self.port = int(address.rpartition(":")[2])
        self.home = home
        self.clients = contextlib.ExitStack()

    def peer(self, name: str | None = None) -> Peer:
        peer = Peer(self.address, name)
        self.clients.enter_context(peer.http)
        return peer

    def call_tool(self, agent: str, tool: str, arguments: Json) -> httpx2.Response:
        """Call a tool as an agent of this gateway does, in its main session."""
        where = json.loads((self.home / "tools.json").read_text(encoding="utf-8"))
        headers = {
            "authorization": f"Bearer {where['token']}",
            "x-openclaw-agent-id": agent,
            "x-openclaw-session-key": f"agent:{agent}:main",
        }
        address = f"{self.address}/tools/{tool}"
        return httpx2.post(address, json=arguments, headers=headers, timeout=DEADLINE_S)

    def started(self) -> list[str]:
        """The messages that `main` was asked, in order."""
        log = self.home / "started"
        return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


@contextlib.contextmanager
def limited_gateway(home: Path, *peers: str, **sections: Json) -> Iterator[LimitedGateway]:
    """A gateway with these peers (none: everyone is `local`) and these sections of settings.

    PORT in the settings stands for the port of the gateway.
    """
    port = free_port()
    tokens = {name: {"tokens": [digest(f"token-of-{name}")]} for name in peers}
    default = {"defaultAgentId": "main", "agentStyle": "task-generating", "maxBodyBytes": 300_000}
    settings = {
        "agents": {
            "main": {"adapter": "callable", "function": "limited_agents:work"},
            "boss": {"adapter": "callable", "function": "limited_agents:coordinate"},
            **{
                name: {"adapter": "callable", "function": "limited_agents:answer"}
                for name in ("worker", "critic")
            },
        },
        "channels": {
            "a2a": {
                "accounts": {
                    "default": default,
                    "boss": {"defaultAgentId": "boss", "agentStyle": "task-generating"},
                },
                "security": {"peers": tokens},
            }
        },
        "server": {"stopSeconds": 0},
        "tools": {"agentToAgent": {"enabled": True, "allow": ["*"]}},
        **sections,
    }
    (home / "limited_agents.py").write_text(AGENTS, encoding="utf-8")
    token = TokenStore(home).create("host", TokenKind.HOST)
    where = {"address": f"http://127.0.0.1:{port}", "token": token}
    (home / "tools.json").write_text(json.dumps(where), encoding="utf-8")
    config = home / "gateway.json5"
    config.write_text(json.dumps(settings).replace("PORT", str(port)), encoding="utf-8")
    arguments = ("--config", str(config), "--port", str(port), "--data", str(home))
    with served([*COMMAND, "up", *arguments], home, port) as address:
        gateway = LimitedGateway(address, home)
        with gateway.clients:
            yield gateway
