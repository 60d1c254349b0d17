"""Turns for tests that use OpenClaw without the engine."""

from datetime import UTC, datetime

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


def turn_of(text: str, *, parts: tuple[Part, ...] = (), context: str = "context") -> Turn:
    """A turn of the agent `main` for a local caller."""
    session = SessionKey(f"agent:main:a2a:local:{context}")
    agent, account, peer = AgentId("main"), AccountId("default"), Peer(context, "context-id")
    return Turn(
        run_id=RunId(f"run-{context}"),
        task_id=TaskId(f"task-{context}"),
        context_id=ContextId(context),
        message=Message(MessageId("message-1"), Role.USER, parts or (Part.of_text(text),)),
        binding=Binding(agent, account, session, session, peer, _NOW, _NOW),
        principal=PeerName("local"),
        body=text,
    )
