"""`demo`: a gateway with scripted agents that stream, call each other, debate, ask, fail and plan.

For a first look at the dashboard, and for the tests of its pages. Nothing here needs a model.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import httpx2
import msgspec
from cyclopts import Parameter

from openclaw_a2a.app.gateway import Gateway, build_app
from openclaw_a2a.auth.admin_token import read_admin_token
from openclaw_a2a.auth.tokens import TokenKind, TokenStore
from openclaw_a2a.cli.options import format_command
from openclaw_a2a.cli.render.terminal import print_message
from openclaw_a2a.engine.tasks.submit import SubmitRequest, submit
from openclaw_a2a.model.agent_event import (
    AgentEvent,
    Approval,
    Failed,
    InputRequired,
    Note,
    PartDelta,
    Reply,
    Report,
    TextDelta,
    ToolPhase,
    ToolProgress,
)
from openclaw_a2a.model.card import AgentProfile, AgentSkill
from openclaw_a2a.model.errors import ApprovalNotFound, GatewayError
from openclaw_a2a.model.ids import AccountId, AgentId, Json, JsonObject, MessageId, PeerName
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.turn import Scope, Turn
from openclaw_a2a.model.validation import is_object
from openclaw_a2a.ports import Agent, Recovery
from openclaw_a2a.settings import LoadedSettings, Settings, load_settings

_HOST = "demo-host"
"""The name of the host that the agents run in, and of its token."""
_OFFICE = "weather-office"
"""A remote agent: an account of the same gateway, by its address."""
_ROUND_S = 25.0
_READY_S = 30.0

_REPORT = """## What the sources say

The **tides** follow the moon, and a little the sun:

1. The near side is pulled more than the centre.
2. The far side is pulled less, so it bulges as well.

| place | range |
|---|---|
| Bay of Fundy | 16 m |
| Baltic Sea | 0.3 m |

> Newton, *Principia*, book 3

```python
range_m = 16.3 if place == "Fundy" else 0.3
```
"""
_CHART = b"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 240 80" width="240" height="80">
<rect width="240" height="80" fill="#eef3ff"/>
<path d="M0 40 Q 30 5 60 40 T 120 40 T 180 40 T 240 40" fill="none" stroke="#1d5fd1"/>
</svg>"""

_CALL_MS = 3_600_000

_Script = Callable[["DemoAgent", Turn], AsyncIterator[AgentEvent]]


class DemoAgent:
    """An agent that follows a script. `pace` is how long its pauses are, in parts of the usual."""

    recovery = Recovery.REPEAT

    def __init__(
        self, name: str, description: str, skill: str, script: _Script, *, demo: "Demo"
    ) -> None:
        tags = ("demo", skill)
        shown = AgentSkill(skill, skill.capitalize(), description, tags)
        self._profile = AgentProfile(name, description, (shown,))
        self._script = script
        self.demo = demo

    def profile(self) -> AgentProfile:
        """What it says about itself."""
        return self._profile

    def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        """Answer as the script says."""
        return self._script(self, turn)

    async def pause(self, seconds: float) -> None:
        """Take some time."""
        await asyncio.sleep(seconds * self.demo.pace)

    async def close(self) -> None:
        """Nothing is held."""


class ApprovingAgent(DemoAgent):
    """An agent that waits for the operator before it does what it was asked for."""

    def __init__(
        self, name: str, description: str, skill: str, script: _Script, *, demo: "Demo"
    ) -> None:
        super().__init__(name, description, skill, script, demo=demo)
        self._waiting: dict[str, tuple[Approval, asyncio.Future[bool]]] = {}

    async def ask(self, turn: Turn, command: str) -> bool:
        """What the operator decides."""
        now = datetime.now(UTC)
        approval = Approval(
            f"demo-{turn.run_id[:8]}",
            command,
            now,
            now + timedelta(hours=1),
            cwd="/srv/shop",
            task_id=turn.task_id,
            warning="it changes production",
        )
        decision: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting[approval.id] = approval, decision
        try:
            return await decision
        finally:
            del self._waiting[approval.id]

    async def approvals(self) -> tuple[Approval, ...]:
        """What waits."""
        return tuple(approval for approval, _ in self._waiting.values())

    async def decide(self, approval_id: str, *, allow: bool) -> None:
        """Let a run go on."""
        if approval_id not in self._waiting:
            raise ApprovalNotFound(f"there is no approval {approval_id}")
        _, decision = self._waiting[approval_id]
        if not decision.done():
            decision.set_result(allow)


# -------------------------------------------------------------------- the scripts


_PROPOSAL = "Launch on Friday, to all customers at once."
_REFINED = "Launch on Tuesday, to a tenth of the customers first, and watch errors for a day."
_CALLED: Mapping[str, tuple[Json, float]] = {
    "research": ({"answer": "The moon, mostly."}, 0.9),
    "propose": ({"plan": _PROPOSAL}, 0.6),
    "critique": (
        {
            "flaws": ["Nobody is there at the weekend if it breaks.", "There is no way back."],
            "alternatives": ["Begin with a few customers."],
        },
        0.7,
    ),
    "writer/critique": (
        {"flaws": ["Customers do not read mail on Fridays."], "alternatives": ["A Tuesday."]},
        0.6,
    ),
    "refine": ({"plan": _REFINED}, 0.88),
    "judge": ({"decision": f"**{_REFINED}** The costs of waiting are small."}, 0.92),
}
"""What the agents answer to each other: the output by skill, and how sure they are."""


async def _answer_call(agent: DemoAgent, turn: Turn, skill: str) -> AsyncIterator[AgentEvent]:
    await agent.pause(3)
    output, confidence = _CALLED.get(f"{turn.agent_id}/{skill}") or _CALLED[skill]
    answer: JsonObject = {"output": output, "confidence": confidence}
    yield Reply.of_text(msgspec.json.encode(answer).decode())


def _find_skill(turn: Turn) -> str:
    """The skill that another agent called for; empty when a person asks."""
    if turn.provenance is None:
        return ""
    skills = [skill for skill in _CALLED if f'"skill": "{skill}"' in turn.message.text]
    return skills[0] if skills else "research"


async def _research(agent: DemoAgent, turn: Turn) -> AsyncIterator[AgentEvent]:
    if skill := _find_skill(turn):
        async for event in _answer_call(agent, turn, skill):
            yield event
        return
    yield Note("Looking for sources")
    for number, query in enumerate(("tides", "tidal range"), 1):
        call = f"{turn.run_id}-{number}"
        yield ToolProgress(ToolPhase.START, "web_search", call, {"query": query})
        await agent.pause(1)
        found: JsonObject = {"results": 12 * number}
        yield ToolProgress(ToolPhase.RESULT, "web_search", call, found)
    for word in _REPORT.splitlines(keepends=True):
        yield TextDelta(word)
        await agent.pause(0.3)
    yield PartDelta(Part.of_bytes(_CHART, media_type="image/svg+xml", filename="tides.svg"))
    yield Report({"model": "demo-1", "usage": {"input": 1830, "output": 412}, "costUsd": 0.0042})


async def _write(agent: DemoAgent, turn: Turn) -> AsyncIterator[AgentEvent]:
    if skill := _find_skill(turn):
        async for event in _answer_call(agent, turn, skill):
            yield event
        return
    yield Note("Asking the researcher")
    question: JsonObject = {"question": "tides"}
    result = await agent.demo.call_tool(
        turn,
        "agent_call",
        {"agent": "researcher", "skill": "research", "input": question, "wait": True},
    )
    answer = result.get("output") or result.get("error") or result.get("status")
    if is_object(answer):  # `{"answer": "..."}`: what it says, and not how
        answer = " ".join(map(str, answer.values()))
    yield Note(f"The researcher said: {answer}")
    await agent.pause(1)
    for word in ("Dear reader, ", "the moon ", "moves ", "the sea."):
        yield TextDelta(word)
        await agent.pause(0.4)


async def _deploy(agent: DemoAgent, turn: Turn) -> AsyncIterator[AgentEvent]:
    if not isinstance(agent, ApprovingAgent):
        return
    yield Note("Building the release")
    await agent.pause(1)
    command = "kubectl rollout restart deployment/shop --namespace production"
    is_allowed = await agent.ask(turn, command)
    yield Reply.of_text("Deployed." if is_allowed else "Not deployed: the operator said no.")


async def _support(_: DemoAgent, turn: Turn) -> AsyncIterator[AgentEvent]:
    if turn.resume is None:
        yield InputRequired("Which order do you mean: **1041** or **1042**?", {"asked": True})
        return
    yield Reply.of_text(f"Order {turn.body} leaves tomorrow.")


async def _chair(agent: DemoAgent, turn: Turn) -> AsyncIterator[AgentEvent]:
    yield Note("Asking the others what they think")
    debate: JsonObject = {
        "topic": "When do we launch the shop?",
        "proposer": {"agent": "writer", "skill": "propose"},
        "critics": [
            {"agent": "researcher", "perspective": "risk", "weight": 0.7},
            {"agent": "writer", "perspective": "customers"},
        ],
        "resolver": {"agent": "researcher", "skill": "judge"},
        "input": {"question": turn.body},
        "rounds": 2,
        "wait": True,
    }
    result = await agent.demo.call_tool(turn, "debate_call", debate)
    yield Reply.of_text(f"The debate is {result.get('status')}: {result.get('conclusion')}")


async def _echo(_: DemoAgent, turn: Turn) -> AsyncIterator[AgentEvent]:
    yield Reply.of_text(turn.body)


async def _forecast(agent: DemoAgent, turn: Turn) -> AsyncIterator[AgentEvent]:
    await agent.pause(0.5)
    if "tomorrow" in turn.body:
        yield Failed("The weather service answered 503 three times; try again in an hour.")
        return
    yield Reply.of_text("Sunny, 21 °C, a light wind from the west.")


# -------------------------------------------------------------------- what happens


class Demo:
    """The agents of the demo, and the callers that keep them busy."""

    def __init__(self, folder: Path, *, pace: float, rounds: int | None) -> None:
        """`rounds`: how often the callers come; None: until the gateway stops."""
        # A relative path in settings is one below their own folder.
        self._folder = folder.expanduser().absolute()
        self.pace = pace
        self._rounds = rounds
        self._address = ""
        self._host_token = ""
        make = DemoAgent
        self.agents: Mapping[str, Agent] = {
            "researcher": make("Researcher", "Finds things out.", "research", _research, demo=self),
            "writer": make("Writer", "Writes, and asks others.", "write", _write, demo=self),
            "deployer": ApprovingAgent(
                "Deployer", "Deploys when you allow it.", "deploy", _deploy, demo=self
            ),
            "chair": make("Chair", "Has others debate.", "decide", _chair, demo=self),
            "support": make("Support", "Answers customers.", "support", _support, demo=self),
            "echo": make("Echo", "Says what you say.", "echo", _echo, demo=self),
            "weather": make("Weather", "Fails now and then.", "forecast", _forecast, demo=self),
        }

    def load(self, *, host: str, port: int) -> LoadedSettings:
        """The settings of the demo, which nothing on this machine changes."""
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / "demo.json5"
        file.write_text("{}", encoding="utf-8")
        accounts: JsonObject = {
            "default" if name == "researcher" else name: {
                "defaultAgentId": name,
                "agentStyle": "task-generating",
                "defaultOutputModes": ["*/*"],
            }
            for name in self.agents
        }
        overrides: dict[str, Json] = {
            "data": str(self._folder),
            "server.host": host,
            "server.port": port,
            "openclaw.enabled": False,
            **{f"agents.{name}.adapter": "echo" for name in self.agents},
            "channels.a2a.accounts": accounts,
            "tools.agentToAgent": {"enabled": True, "allow": ["*"]},
            # Calls are kept for as long as their timeout: their page is not empty after a minute.
            "responseRouting": {"defaultTimeoutMs": _CALL_MS, "maxTimeoutMs": _CALL_MS},
            "opt.enabled": True,
            # The webhook of the demo is on this machine, and nobody answers there.
            "push": {"allowPrivate": True, "attempts": 2, "backoffSeconds": 0.5},
            "log.level": "warning",
            "log.format": "pretty",  # a demo is for people, also when its output is no terminal
            "server.stopSeconds": 1,
        }
        if port:  # any other is not known yet
            office: JsonObject = {
                "alias": _OFFICE,
                "baseUrl": f"http://{host}:{port}/agents/weather",
                "default": True,
            }
            closed: JsonObject = {"alias": "print-shop", "baseUrl": "http://127.0.0.1:9/"}
            overrides["outbound"] = {"enabled": True, "targets": [office, closed]}
        return load_settings(file, overrides=overrides, environ={})

    def build(self, settings: Settings) -> Gateway:
        """The gateway; the callers come when it answers."""
        self._address = f"http://{settings.server.host}:{settings.server.port}"
        tokens = TokenStore(settings.data)
        self._host_token = tokens.create(_HOST, TokenKind.HOST)
        agents = {AgentId(name): one for name, one in self.agents.items()}
        gateway = build_app(settings, agents=agents)
        gateway.supervisor.spawn("demo", self._play(gateway))
        return gateway

    async def call_tool(self, turn: Turn, tool: str, body: JsonObject) -> JsonObject:
        """Have an agent call a tool, as its host does; the result."""
        headers = {
            "Authorization": f"Bearer {self._host_token}",
            "x-openclaw-agent-id": turn.agent_id,
            "x-openclaw-session-key": turn.session_key,
        }
        async with httpx2.AsyncClient(timeout=120, trust_env=False) as http:
            answer = await http.post(f"{self._address}/tools/{tool}", json=body, headers=headers)
        result: JsonObject = answer.json()
        return result

    async def _play(self, gateway: Gateway) -> None:
        await self._wait_ready()
        number = 0
        while self._rounds is None or number < self._rounds:
            await self._visit(gateway, number)
            number += 1
            await asyncio.sleep(_ROUND_S * max(self.pace, 0.1))

    async def _visit(self, gateway: Gateway, number: int) -> None:
        """One round: everybody asks something."""
        day = "tomorrow" if number % 2 == 0 else "today"
        asked = [
            ("alice", "default", "What makes the tides? Use two sources."),
            ("bob", "writer", "Write a letter about the tides."),
            ("carol", "weather", f"What is the weather {day}?"),
            ("dave", "weather", "What is the weather in Lisbon?"),
        ]
        if number % 3 == 0:
            asked.append(("alice", "chair", "When do we launch the shop?"))
        if number in (0, 4, 8):  # these wait for you; more of them would only fill the page
            asked += [
                ("carol", "deployer", "Deploy the new shop."),
                ("erin", "support", "Where is my order?"),
            ]
        for caller, account, text in asked:
            with suppress(GatewayError):
                await _send(gateway, caller, account, text)
            await asyncio.sleep(0.3 * self.pace)
        if number == 0:
            await self._plan()
            await self._ask_remote()
            await self._ask_with_webhook()

    async def _plan(self) -> None:
        """Objectives with plans, which the gateway works through."""
        facts = [
            {"name": "Collect the facts", "description": "Where are the tides highest, and why?"},
            {"name": "Write the summary", "dependencies": ["task-0"]},
            {"name": "Check the numbers", "dependencies": ["task-0"]},
        ]
        page = [{"name": "Lay the page out", "metadata": {"agent": "echo"}}]
        parcel = [
            {"name": "Ask which order", "metadata": {"agent": "support"}},
            {"name": "Tell the customer", "dependencies": ["task-0"]},
        ]
        forecast = [
            {"name": "What is the weather tomorrow?", "metadata": {"agent": "weather"}},
            {"name": "Pack the boat", "dependencies": ["task-0"]},
        ]
        plans: Mapping[str, tuple[str, Sequence[JsonObject]]] = {
            "A page about tides": (
                "For the school site.",
                (
                    {"name": "Text", "tasks": facts},
                    {"name": "Layout", "dependencies": [0], "tasks": page},
                ),
            ),
            "Send the lost parcel": ("", ({"name": "One call", "tasks": parcel},)),
            "A trip to the islands": ("", ({"name": "Before we leave", "tasks": forecast},)),
        }
        root = f"{self._address}/operator/objectives"
        async with self._open_operator() as http:
            for name, (description, made_of) in plans.items():
                given: JsonObject = {
                    "name": name,
                    "description": description,
                    "metadata": {"agent": "researcher"},
                }
                made = await http.post(root, json=given)
                objective = f"{root}/{made.json()['id']}"
                await http.post(f"{objective}/plans", json={"plans": list(made_of)})
                await http.post(f"{objective}/run", json={})
            await http.post(root, json={"name": "Repaint the office"})

    async def _ask_remote(self) -> None:
        """A question to the remote agent."""
        parts = [{"kind": "text", "text": "What is the weather in Porto?"}]
        body: JsonObject = {"action": "send", "target_alias": _OFFICE, "parts": parts}
        async with self._open_operator() as http:
            await http.post(f"{self._address}/tools/remote_agent", json=body)

    async def _ask_with_webhook(self) -> None:
        """A question of a caller whose webhook does not answer."""
        message: JsonObject = {
            "messageId": "demo-webhook",
            "role": "ROLE_USER",
            "parts": [{"text": "Tell my webhook when you are done."}],
        }
        hook: JsonObject = {"taskPushNotificationConfig": {"url": "http://127.0.0.1:9/done"}}
        body: JsonObject = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "SendMessage",
            "params": {"message": message, "configuration": hook},
        }
        async with httpx2.AsyncClient(timeout=30, trust_env=False) as http:
            await http.post(f"{self._address}/agents/echo/a2a/jsonrpc", json=body)

    def _open_operator(self) -> httpx2.AsyncClient:
        headers = {"Authorization": f"Bearer {read_admin_token(self._folder)}"}
        return httpx2.AsyncClient(timeout=30, trust_env=False, headers=headers)

    async def _wait_ready(self) -> None:
        async with (
            asyncio.timeout(_READY_S),
            httpx2.AsyncClient(trust_env=False, base_url=self._address) as http,
        ):
            while True:
                with suppress(httpx2.TransportError):
                    if (await http.get("/healthz")).status_code == 200:
                        return
                await asyncio.sleep(0.05)


async def _send(gateway: Gateway, caller: str, account: str, text: str) -> None:
    """Submit a message as a caller; the demo needs no tokens for its callers."""
    for engine in gateway.engines.values():
        rules = engine.accounts.get(AccountId(account))
        if rules is not None:
            message = Message(MessageId(engine.new_id()), Role.USER, (Part(text=text),))
            scope = Scope(PeerName(caller), AccountId(account))
            await submit(engine, SubmitRequest(scope, message, is_blocking=False), rules)


# -------------------------------------------------------------------- the command


def demo(
    *,
    host: Annotated[str, Parameter(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Parameter(help="Port to listen on; 0 takes any free one.")] = 9900,
    data: Annotated[
        Path | None,
        Parameter(help="Folder for its data; left out: one that is removed at the end."),
    ] = None,
    pace: Annotated[float, Parameter(help="How long pauses are, in parts of the usual.")] = 1.0,
    rounds: Annotated[
        int | None, Parameter(help="How often callers come; left out: until it is stopped.")
    ] = None,
) -> int:
    """Start a gateway with scripted agents, to see the dashboard alive.

    Callers that are made up keep the agents busy. The agents stream, use tools, call each other,
    debate, ask for an approval and for an answer, fail, and work through plans. No OpenClaw and no
    model is needed, and your own data is not touched. Open the link that is printed.
    """
    from openclaw_a2a.app.lifecycle import serve_gateway

    with tempfile.TemporaryDirectory(prefix="openclaw-a2a-demo-") as made:
        folder = data or Path(made)
        script = Demo(folder, pace=pace, rounds=rounds)
        loaded = script.load(host=host, port=port)
        print_message("This is a demo: its agents follow a script, and its callers are made up.")
        # Its data is not where other commands look.
        print_message(f"In another terminal: {format_command('top', data=folder)}")
        return serve_gateway(loaded, script.build)
