"""Agents that call each other in one gateway, and the host their sessions live in.

The host is outside: it lives on when the gateway is closed and opened again, as OpenClaw does.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
from tests.conformance.asgi_client import TIMEOUT_S, AsgiClient, Request
from tests.conformance.conftest import make_gateway

from openclaw_a2a.app import Gateway
from openclaw_a2a.auth.tokens import TokenKind, TokenStore
from openclaw_a2a.engine.audit_file import AUDIT_FILE
from openclaw_a2a.engine.engine import SystemClock
from openclaw_a2a.model.agent_event import AgentEvent, Reply
from openclaw_a2a.model.errors import AgentFailed, AgentUnavailable
from openclaw_a2a.model.ids import SessionKey
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.ports import (
    Clock,
    DeliveryFailed,
    MessageAccepted,
    Recovery,
    SessionGone,
    SessionMessage,
    SessionPresence,
    Store,
)

Json = Any
Answer = Callable[[Json], Awaitable[str]]


def main_session(name: str) -> str:
    """The main session of an agent, from which it calls by default."""
    return f"agent:{name}:main"


class LaterClock(SystemClock):
    """The machine's clock, some time ahead."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self.ahead


class SessionHost:
    """A host of sessions. It accepts every message once, by its id."""

    def __init__(self, name: str = "host") -> None:
        self.name = name
        self.accepted: list[SessionMessage] = []
        self.attempts: list[SessionMessage] = []
        """Every attempt to deliver a message, also failed and repeated ones."""
        self.gone: set[str] = set()
        self.active: set[str] = set()
        self.is_unavailable = False
        self.refuses_messages = False
        self.loses_replies = False
        """True: messages are accepted, and the connection breaks before the reply."""
        self.slow = ""
        """For sessions with this prefix the host replies only when `go` is set."""
        self.go = asyncio.Event()
        self.processed = asyncio.Event()
        """Set while sessions process messages at once."""
        self.processed.set()
        self._news = asyncio.Event()

    def messages(self, session_key: str) -> list[Json]:
        """The messages in a session, in order."""
        return [
            json.loads(message.text)
            for message in self.accepted
            if message.session_key == session_key
        ]

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition, which is checked at every attempt."""
        with anyio.fail_after(TIMEOUT_S):
            while not condition():
                self._news.clear()
                await self._news.wait()

    async def wait_messages(self, session_key: str, count: int = 1) -> list[Json]:
        """The messages in a session, once there are this many."""
        await self.wait_until(lambda: len(self.messages(session_key)) >= count)
        return self.messages(session_key)

    def locate(self, session_key: SessionKey) -> SessionPresence:
        """Every session that is not gone is here."""
        if self.is_unavailable:
            raise AgentUnavailable("the host is down")
        if session_key in self.gone:
            return SessionPresence.ABSENT
        is_active = session_key in self.active
        return SessionPresence.ACTIVE if is_active else SessionPresence.IDLE

    async def accept(
        self, message: SessionMessage
    ) -> MessageAccepted | SessionGone | DeliveryFailed:
        self.attempts.append(message)
        self._news.set()
        if self.is_unavailable or self.refuses_messages:
            return DeliveryFailed("the host is away")
        if message.session_key in self.gone:
            return SessionGone("the session was deleted")
        if all(known.id != message.id for known in self.accepted):
            self.accepted.append(message)
        if self.slow and message.session_key.startswith(self.slow):
            await self.go.wait()
        return DeliveryFailed("the connection broke") if self.loses_replies else MessageAccepted()


class ScriptedAgent:
    """An agent whose answers the test decides, and whose sessions are in the host."""

    def __init__(self, host: SessionHost, name: str, recovery: Recovery = Recovery.REPEAT) -> None:
        self.recovery = recovery
        self.invocations: list[Json] = []
        """The invocations that it received."""
        self.turns: list[Turn] = []
        self.answer: Answer = _done
        self._host = host
        self._name = name

    async def run(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
        invocation = json.loads(turn.body)
        self.turns.append(turn)
        self.invocations.append(invocation)
        text = await self.answer(invocation)
        if text:
            yield Reply.of_text(text)

    async def close(self) -> None:
        """Nothing to release."""

    def owns_session(self, session_key: SessionKey) -> bool:
        return session_key.startswith(f"agent:{self._name}:")

    def host_session_key(self, session_key: SessionKey) -> SessionKey | None:
        return session_key

    @property
    def host(self) -> str:
        return self._host.name

    async def locate_session(self, session_key: SessionKey) -> SessionPresence:
        return self._host.locate(session_key)

    async def deliver(
        self, message: SessionMessage
    ) -> MessageAccepted | SessionGone | DeliveryFailed:
        return await self._host.accept(message)

    async def wait_processed(self, message: SessionMessage) -> bool:
        await self._host.processed.wait()
        return any(known.id == message.id for known in self._host.accepted)


async def _done(_invocation: Json) -> str:
    return '{"output": "done", "confidence": 0.9}'


def answers(text: str) -> Answer:
    """Answer everything with this text."""

    async def answer(_invocation: Json) -> str:
        return text

    return answer


def fails_with(reason: str) -> Answer:
    """Fail every invocation."""

    async def answer(_invocation: Json) -> str:
        raise AgentFailed(reason)

    return answer


class HeldAnswer:
    """An answer that is given when the test sets `go`."""

    def __init__(self, text: str = '{"output": "at last"}') -> None:
        self.asked = asyncio.Event()
        self.go = asyncio.Event()
        self.text = text

    async def __call__(self, _invocation: Json) -> str:
        self.asked.set()
        await self.go.wait()
        return self.text


class CallGateway:
    """One gateway at a time over one folder, with agents a, b, c and d that may call each other."""

    def __init__(self, folder: Path, kind: str = "sqlite") -> None:
        self.host = SessionHost()
        self.folder = folder
        self.kind = kind
        self.agents = {name: ScriptedAgent(self.host, name) for name in "abcd"}
        self.running: Gateway | None = None
        self._tokens: dict[tuple[str, TokenKind], str] = {}
        self._running = AsyncExitStack()

    async def open(
        self,
        settings: Mapping[str, Json] | None = None,
        clock: Clock | None = None,
        store: Store | None = None,
    ) -> None:
        """Start the gateway."""
        self.running = make_gateway(
            self.agents,
            data=self.folder,
            settings={
                "store.kind": self.kind,
                "limits.cancelSeconds": 1,
                # Tests ask again and again, as fast as the machine is.
                "limits.perPeerRate": 0,
                "limits.perPeerRequests": 0,
                "channels.a2a.accounts.default": {"defaultAgentId": "a"},
                "tools.agentToAgent.enabled": True,
                "tools.agentToAgent.allow": ["*"],
                **(settings or {}),
            },
            clock=clock,
            store=store,
        )
        await self._running.enter_async_context(self.running)

    async def close(self) -> None:
        """Stop the gateway; what is unfinished stays in the store."""
        await self._running.aclose()

    async def reopen(self, settings: Mapping[str, Json] | None = None) -> None:
        """Stop the gateway and start it again."""
        await self.close()
        await self.open(settings)

    def token(self, name: str, kind: TokenKind) -> str:
        if (name, kind) not in self._tokens:
            tokens = TokenStore(self.folder)
            self._tokens[name, kind] = tokens.create(name, kind)
        return self._tokens[name, kind]

    def client(self, caller: str, session: str | None = None) -> AsgiClient:
        """A client with which an agent calls tools in one of its sessions."""
        headers = {
            "authorization": f"Bearer {self.token('host', TokenKind.HOST)}",
            "x-openclaw-agent-id": caller,
            "x-openclaw-session-key": session or main_session(caller),
        }
        return self._client(headers)

    def program_client(self, name: str) -> AsgiClient:
        """A client of a program, which has no session."""
        return self._client({"authorization": f"Bearer {self.token(name, TokenKind.TOOL)}"})

    def _client(self, headers: dict[str, str]) -> AsgiClient:
        assert self.running is not None
        return AsgiClient(self.running.asgi, headers)

    async def call_tool(self, client: AsgiClient, tool: str, arguments: Json) -> Json:
        """Call a tool; its result."""
        answer = await client.request(tool_request(tool, arguments))
        assert answer.status == 200, answer.body
        return answer.json

    async def call(self, caller: str, agent: str, skill: str = "work", **more: Json) -> Json:
        """An agent calls another one from its main session."""
        arguments = {"agent": agent, "skill": skill, "input": {}, **more}
        return await self.call_tool(self.client(caller), "agent_call", arguments)

    async def poll(
        self, caller: str, call: Json, until: Callable[[Json], bool] = lambda _: True
    ) -> Json:
        """An agent polls its call until the condition holds."""
        arguments = {"correlationId": call["correlationId"]}
        with anyio.fail_after(TIMEOUT_S):
            while True:
                polled = await self.call_tool(self.client(caller), "agent_poll", arguments)
                if until(polled):
                    return polled

    async def read_audit(self) -> list[Json]:
        """The entries of the audit log that are about calls, once its text holds no secret."""
        assert self.running is not None
        await self.running.audit.flush()
        text = (self.folder / AUDIT_FILE).read_text("utf-8")
        assert "s3cret" not in text
        lines = [json.loads(line) for line in text.splitlines()]
        return [one for one in lines if one["event"].startswith("call")]

    async def describe(self, call: Json) -> Json:
        """What the operator sees of a call."""
        path = f"/operator/calls/{call['correlationId']}"
        return (await self.operator_client().get(path)).json

    def operator_client(self) -> AsgiClient:
        """The operator's client."""
        token = (self.folder / "operator.token").read_text("ascii").strip()
        return self._client({"authorization": f"Bearer {token}"})

    @asynccontextmanager
    async def waiting_call(self, caller: str, agent: str, **more: Json) -> AsyncGenerator[Json]:
        """A call whose caller disconnects at the end of the block."""
        asked = tool_request("agent_call", {"agent": agent, "skill": "work", "input": {}, **more})
        async with self.client(caller).open(asked) as exchange:
            yield exchange


def tool_request(tool: str, arguments: Json) -> Request:
    """The request that calls a tool."""
    body = json.dumps(arguments).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    return Request("POST", f"/tools/{tool}", headers, (body,))


@asynccontextmanager
async def call_gateway_in(folder: Path, kind: str = "sqlite") -> AsyncGenerator[CallGateway]:
    """A gateway that is stopped at the end."""
    gateway = CallGateway(folder, kind)
    try:
        yield gateway
    finally:
        await gateway.close()
