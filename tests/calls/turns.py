"""Turns as the gateway's own agents get them."""

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
from openclaw_a2a.model.turn import Binding, Peer, Provenance, Turn

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)


def turn_of(text: str, *, agent: str, provenance: Provenance | None = None) -> Turn:
    """The turn by which an agent is asked this in a call."""
    session = SessionKey(f"agent:{agent}:call:1")
    return Turn(
        run_id=RunId("r"),
        task_id=TaskId("t"),
        context_id=ContextId("c"),
        message=Message(MessageId("m"), Role.USER, (Part.of_text(text),)),
        binding=Binding(
            agent_id=AgentId(agent),
            account_id=AccountId("calls"),
            session_key=session,
            main_session_key=session,
            peer=Peer("main", "call"),
            created_at=NOW,
            updated_at=NOW,
        ),
        principal=PeerName("main"),
        body=text,
        provenance=provenance,
    )
