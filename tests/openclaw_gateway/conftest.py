"""What the tests of the link and the turn share: a scripted gateway, agents of it, and turns."""

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest
from tests.openclaw_gateway.scripted import TOKEN, ScriptedGateway, scripted_gateway

from openclaw_a2a.agents.openclaw_gateway import OpenClawGatewayAgent, OpenClawGatewayOptions
from openclaw_a2a.agents.openclaw_gateway.errand import Patience
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
from openclaw_a2a.model.reply import AgentEvent
from openclaw_a2a.model.turn import Binding, Peer, Turn

Json = Any
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ENVIRON = {"TOKEN": TOKEN}


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


@pytest.fixture
async def gateway() -> AsyncIterator[ScriptedGateway]:
    """The gateway; when the test is over, nobody may be connected any more."""
    async with scripted_gateway() as running:
        yield running
        await running.wait_empty()


MakeAgent = Callable[..., OpenClawGatewayAgent]


@pytest.fixture
async def make_agent(gateway: ScriptedGateway) -> AsyncIterator[MakeAgent]:
    made: list[OpenClawGatewayAgent] = []

    def make(**options: Json) -> OpenClawGatewayAgent:
        patience = options.pop("patience", None)
        given = {"url": gateway.url, "token": "env:TOKEN", "agent_id": "main", **options}
        chosen = OpenClawGatewayOptions(**given)
        agent = OpenClawGatewayAgent(chosen, environ=ENVIRON, patience=patience)
        made.append(agent)
        return agent

    yield make
    for agent in made:
        await agent.close()


@pytest.fixture
def agent(make_agent: MakeAgent) -> OpenClawGatewayAgent:
    return make_agent(road="websocket", connect_seconds=5)


@pytest.fixture
def impatient() -> Patience:
    return Patience(
        connection_s=0.5,
        recovery_s=0.3,
        quiet_s=0.2,
        wait_s=0.2,
        glance_s=0.05,
        stop_s=0.5,
        settle_s=0.1,
    )


def turn_of(text: str = "hi", *, run: str = "r1", context: str = "c-1", **more: Json) -> Turn:
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


async def told(agent: OpenClawGatewayAgent, turn: Turn) -> list[AgentEvent]:
    """All that the agent tells in a turn."""
    with anyio.fail_after(30):
        return [event async for event in agent.run(turn)]
