"""Fixtures: a scripted gateway, agents connected to it, and turns."""

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest
from tests.agents.openclaw_gateway.scripted_gateway import TOKEN, ScriptedGateway, scripted_gateway

from openclaw_a2a.agents.openclaw_gateway import OpenClawGatewayAgent, OpenClawGatewayOptions
from openclaw_a2a.agents.openclaw_gateway.runs import Timeouts
from openclaw_a2a.model.agent_event import AgentEvent
from openclaw_a2a.model.ids import (
    AccountId,
    AgentId,
    ContextId,
    MessageId,
    PeerName,
    RunId,
    SessionKey,
    TaskId,
)
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.turn import Binding, Peer, Turn

Json = Any
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ENVIRON = {"TOKEN": TOKEN}


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


@pytest.fixture
async def gateway() -> AsyncIterator[ScriptedGateway]:
    """The gateway; after the test every connection must be closed."""
    async with scripted_gateway() as running:
        yield running
        await running.wait_empty()


MakeAgent = Callable[..., OpenClawGatewayAgent]


@pytest.fixture
async def make_agent(gateway: ScriptedGateway) -> AsyncIterator[MakeAgent]:
    made: list[OpenClawGatewayAgent] = []

    def make(**options: Json) -> OpenClawGatewayAgent:
        timeouts = options.pop("timeouts", None)
        given = {"url": gateway.url, "token": "env:TOKEN", "agent_id": "main", **options}
        chosen = OpenClawGatewayOptions(**given)
        agent = OpenClawGatewayAgent(chosen, environ=ENVIRON, timeouts=timeouts)
        made.append(agent)
        return agent

    yield make
    for agent in made:
        await agent.close()


@pytest.fixture
def agent(make_agent: MakeAgent) -> OpenClawGatewayAgent:
    return make_agent(road="websocket", connect_seconds=60)


@pytest.fixture
def short_timeouts() -> Timeouts:
    return Timeouts(
        reconnect_s=60,
        recovery_s=0.3,
        silence_s=0.2,
        run_poll_s=0.2,
        lookup_poll_s=0.05,
        stop_s=0.5,
        abort_retry_s=0.1,
    )


def make_turn_for(text: str = "hi", *, run: str = "r1", context: str = "c-1", **more: Json) -> Turn:
    """A turn; its run at OpenClaw is `a2a-<run>`."""
    session = SessionKey(f"agent:main:a2a:local:{context}")
    binding = Binding(
        AgentId("main"), AccountId("default"), session, session, Peer("p", "context-id"), NOW, NOW
    )
    message_id = MessageId(more.pop("message_id", "message-1"))
    return Turn(
        run_id=RunId(run),
        task_id=TaskId(f"task-{context}"),
        context_id=ContextId(context),
        message=Message(message_id, Role.USER, (Part(text=text),)),
        binding=binding,
        principal=PeerName("local"),
        body=text,
        **more,
    )


async def run_turn(agent: OpenClawGatewayAgent, turn: Turn) -> list[AgentEvent]:
    """All events of a turn."""
    with anyio.fail_after(240):
        return [event async for event in agent.run(turn)]


_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def turn_with_parts(*parts: Part, text: str = "look") -> Turn:
    session = SessionKey("agent:main:a2a:local:c-1")
    agent = AgentId("main")
    peer = Peer("p", "context-id")
    binding = Binding(agent, AccountId("default"), session, session, peer, _NOW, _NOW)
    return Turn(
        run_id=RunId("run-1"),
        task_id=TaskId("task-1"),
        context_id=ContextId("context-1"),
        message=Message(MessageId("message-1"), Role.USER, parts or (Part(text=text),)),
        binding=binding,
        principal=PeerName("local"),
        body=text,
    )


@pytest.fixture(scope="session")
def make_turn() -> Callable[..., Turn]:
    return turn_with_parts
