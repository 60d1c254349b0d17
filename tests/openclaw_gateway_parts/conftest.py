"""What the tests of the gateway's parts share: turns made of any parts."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

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

_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def turn_of(*parts: Part, text: str = "look") -> Turn:
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
    return turn_of
