"""Turns, and what agents answer to them."""

from collections.abc import Callable
from datetime import UTC, datetime

import anyio
import pytest

from openclaw_a2a.model.agent_event import AgentEvent, TextDelta
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
from openclaw_a2a.ports import Agent

_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def turn_of(text: str = "hello", *, parts: tuple[Part, ...] = (), resume: object = None) -> Turn:
    session = SessionKey("agent:main:a2a:local:c-1")
    return Turn(
        run_id=RunId("run-1"),
        task_id=TaskId("task-1"),
        context_id=ContextId("context-1"),
        message=Message(MessageId("message-1"), Role.USER, parts or (Part(text=text),)),
        binding=Binding(
            AgentId("main"),
            AccountId("default"),
            session,
            session,
            Peer("p", "context-id"),
            _NOW,
            _NOW,
        ),
        principal=PeerName("local"),
        body=text,
        resume=resume,
    )


async def answer_of(agent: Agent, turn: Turn) -> list[AgentEvent]:
    with anyio.fail_after(240):
        return [event async for event in agent.run(turn)]


async def text_of(agent: Agent, turn: Turn) -> str:
    events = await answer_of(agent, turn)
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.fixture
def make_turn() -> Callable[..., Turn]:
    return turn_of


@pytest.fixture
def answer() -> Callable[..., object]:
    return answer_of


@pytest.fixture
def text() -> Callable[..., object]:
    return text_of
