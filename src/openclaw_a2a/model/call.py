"""The stored record of a call of one agent to another."""

from datetime import datetime, timedelta
from enum import Enum
from typing import NewType

from openclaw_a2a.model.ids import GATEWAY_PREFIX, AgentId, SessionKey, TaskId
from openclaw_a2a.model.message import JsonStruct

CALL_KIND = "call"
"""The kind of the records and deliveries of calls."""

CallId = NewType("CallId", str)


class CallStatus(Enum):
    """The outcome of a call.

    PENDING     no outcome yet
    COMPLETED   the callee answered in time
    ERROR       the callee failed, or ended without an answer
    TIMEOUT     the deadline came first; a later answer can be polled
    DISCARDED   there was an outcome, and its receiver no longer exists
    """

    PENDING = "pending"
    COMPLETED = "completed"
    ERROR = "error"
    TIMEOUT = "timeout"
    DISCARDED = "discarded"


class OutcomeRoute(Enum):
    """How the outcome reaches the caller.

    SESSION     as a message in the session that called
    INBOX       stored until the caller polls it, and posted to the caller's webhook if it has one
    WAITED      as the result of the tool, for a caller that waits
    NONE        not at all: the call has no timeout, or is a step of a debate
    """

    SESSION = "session"
    INBOX = "inbox"
    WAITED = "waited"
    NONE = "none"


class Caller(JsonStruct, frozen=True):
    """The agent or program that calls.

    `name` is that of its tool token. `session_key` comes from the agent's host, never from a model.
    """

    agent_id: AgentId
    name: str
    session_key: SessionKey | None = None
    is_operator: bool = False

    def is_same(self, other: "Caller") -> bool:
        """True for the same caller, in whichever of its sessions."""
        return self.agent_id == other.agent_id and self.name == other.name


class Call(JsonStruct, frozen=True, omit_defaults=False):
    """A call of one agent to another. Its answer is read from the callee's task."""

    id: CallId
    task_id: TaskId
    caller: Caller
    callee: AgentId
    skill: str
    mode: str
    session_key: SessionKey
    """The session in which the callee works on it."""
    return_to: SessionKey
    timeout_ms: int
    """0: there is no deadline, and the outcome is not delivered."""
    accepted_at: datetime
    route: OutcomeRoute
    chain: tuple[AgentId, ...] = ()
    """The agents that led to this call, the caller last."""
    lineage: tuple[AgentId, ...] = ()
    """The agents whose answers led the caller to this call, the oldest first."""
    parent: CallId | None = None
    """The debate that this call is a step of."""
    status: CallStatus = CallStatus.PENDING
    settled_at: datetime | None = None
    delivered_at: datetime | None = None
    seen_at: datetime | None = None
    discarded_at: datetime | None = None
    reason: str | None = None
    version: int = 0
    host: str | None = None
    """The host of the caller's session; None when there is only one, or it is not known."""
    sending_at: datetime | None = None
    """When the last attempt to send the outcome began, if it has not failed.

    Only where several replicas share the store: while one of them sends, no other may hand the
    outcome to a caller that polls.
    """

    @property
    def deadline(self) -> datetime | None:
        """When the call times out."""
        if not self.timeout_ms:
            return None
        return self.accepted_at + timedelta(milliseconds=self.timeout_ms)

    @property
    def callee_name(self) -> str:
        """The callee as users know it: agents inside the gateway lose their prefix."""
        return self.callee.removeprefix(GATEWAY_PREFIX)

    @property
    def is_settled(self) -> bool:
        """True when the outcome is decided."""
        return self.status is not CallStatus.PENDING

    @property
    def is_undelivered(self) -> bool:
        """True when the outcome is decided and has still to be delivered."""
        is_delivered = self.delivered_at is not None or self.discarded_at is not None
        is_settled = self.status is not CallStatus.PENDING
        return is_settled and not is_delivered and self.route is not OutcomeRoute.NONE

    @property
    def is_sending(self) -> bool:
        """True while a replica is sending the outcome."""
        return self.is_undelivered and self.sending_at is not None

    @property
    def is_unprocessed(self) -> bool:
        """True when the caller's host has the outcome and may still lose it."""
        is_delivered = self.route is OutcomeRoute.SESSION and self.delivered_at is not None
        return is_delivered and self.seen_at is None and self.discarded_at is None
