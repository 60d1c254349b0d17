"""A call of one agent to another: what is kept of it from its acceptance to its delivery."""

from datetime import datetime, timedelta
from enum import Enum
from typing import NewType

from openclaw_a2a.model.ids import AgentId, SessionKey, TaskId
from openclaw_a2a.model.message import JsonStruct

CALL_KIND = "call"
"""The kind of records and deliveries that belong to calls."""

GATEWAY = "gateway:"
"""How the agents begin that the gateway itself is."""

CallId = NewType("CallId", str)


class CallStatus(Enum):
    """What became of a call.

    PENDING     no outcome yet
    COMPLETED   the callee answered in time
    ERROR       the callee failed, or answered nothing
    TIMEOUT     the deadline came first; a later answer is kept for who asks for it
    DISCARDED   there was an outcome, and nobody to bring it to
    """

    PENDING = "pending"
    COMPLETED = "completed"
    ERROR = "error"
    TIMEOUT = "timeout"
    DISCARDED = "discarded"


class OutcomeRoute(Enum):
    """How the outcome reaches the caller.

    SESSION     a message in the session that called
    INBOX       it lies ready until the caller asks for it
    WAITED      the caller waited for it and has it already
    NONE        it is not brought at all: the caller did not want that, or it belongs to a debate
    """

    SESSION = "session"
    INBOX = "inbox"
    WAITED = "waited"
    NONE = "none"


class Caller(JsonStruct, frozen=True):
    """Who calls. `name` is the token's; the session comes from the agent's host, if from anyone."""

    agent_id: AgentId
    name: str
    session_key: SessionKey | None = None
    is_operator: bool = False

    def is_same(self, other: "Caller") -> bool:
        """True when both are one and the same caller, in whichever of its sessions."""
        return self.agent_id == other.agent_id and self.name == other.name


class Call(JsonStruct, frozen=True, omit_defaults=False):
    """A call. Its answer is not here: it is read from the callee's task.

    `chain` are the agents it came through, the caller last. `lineage` are those whose answers
    led the caller to it, one after the other. `timeout_ms` 0 means that there is no deadline and
    nothing is brought.
    """

    id: CallId
    task_id: TaskId
    caller: Caller
    callee: AgentId
    skill: str
    mode: str
    session_key: SessionKey
    """The callee's session in which it is carried out."""
    return_to: SessionKey
    timeout_ms: int
    accepted_at: datetime
    route: OutcomeRoute
    chain: tuple[AgentId, ...] = ()
    lineage: tuple[AgentId, ...] = ()
    parent: CallId | None = None
    status: CallStatus = CallStatus.PENDING
    settled_at: datetime | None = None
    delivered_at: datetime | None = None
    seen_at: datetime | None = None
    discarded_at: datetime | None = None
    reason: str | None = None
    version: int = 0

    @property
    def deadline(self) -> datetime | None:
        """When the caller is told that it took too long."""
        if not self.timeout_ms:
            return None
        return self.accepted_at + timedelta(milliseconds=self.timeout_ms)

    @property
    def callee_name(self) -> str:
        """The callee as people know it: what the gateway does itself has a plain name."""
        return self.callee.removeprefix(GATEWAY)

    @property
    def is_settled(self) -> bool:
        """True when its outcome is decided."""
        return self.status is not CallStatus.PENDING

    @property
    def is_undelivered(self) -> bool:
        """True when its outcome is decided and still to be brought."""
        is_brought = self.delivered_at is not None or self.discarded_at is not None
        return self.is_settled and not is_brought and self.route is not OutcomeRoute.NONE
