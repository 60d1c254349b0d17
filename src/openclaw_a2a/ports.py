"""What the engine needs from outside: a store, agents and a clock."""

from collections.abc import AsyncIterator, Awaitable, Sequence
from datetime import datetime
from enum import Enum
from typing import Protocol, runtime_checkable

import msgspec

from openclaw_a2a.model.approval import Approval
from openclaw_a2a.model.delivery import Delivery, DeliveryId, DeliveryState
from openclaw_a2a.model.ids import (
    AgentId,
    ContextId,
    Json,
    MessageId,
    OwnerId,
    RunId,
    SessionKey,
    TaskId,
)
from openclaw_a2a.model.late import LateEvent, RecentTask
from openclaw_a2a.model.profile import AgentProfile
from openclaw_a2a.model.reply import AgentEvent
from openclaw_a2a.model.stored import Entry, RunRecord, StoredTask, TaskHead
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.model.turn import Binding, Scope, Turn


class Recovery(Enum):
    """What may be done with a run of an agent whose gateway died in the middle of it."""

    FAIL = "fail"
    REPEAT = "repeat"
    REATTACH = "reattach"


class Agent(Protocol):
    """Somebody who can answer a turn."""

    @property
    def recovery(self) -> Recovery:
        """What may be done with an interrupted run."""
        ...

    def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        """Answer the turn.

        The engine stops a run by closing the iterator (or cancelling the await inside it); what
        was started must really have ended when that returns. With `Recovery.REATTACH`,
        `turn.attempt > 1` means: find the run named `turn.run_id` and go on from there.
        """
        ...

    async def close(self) -> None:
        """Release what the agent holds; the gateway stops."""
        ...


@runtime_checkable
class LeavesTraces(Protocol):
    """An agent whose work may go on when the gateway is gone, such as a program."""

    async def end_leftovers(self, run_id: RunId) -> None:
        """End whatever an earlier life of the gateway left running for this run.

        Recovery asks for it before anything else happens to the run. Whoever is cancelled here is
        out of time, and ends what is left at once.
        """
        ...


@runtime_checkable
class KeepsPaused(Protocol):
    """An agent whose work waits somewhere while its task is paused."""

    async def end_pause(self, binding: Binding, resume: Json) -> None:
        """The paused task is cancelled: end what waits, and return when it has ended.

        `resume` is the token of the pause. Raises: TaskNotCancelable (it does not end).
        """
        ...


@runtime_checkable
class OutlivesGateway(Protocol):
    """An agent whose runs can go on while the gateway is away."""

    def let_go(self) -> None:
        """The gateway stops: runs broken off from now on are left to go on, to be found again."""
        ...


@runtime_checkable
class SpeaksLater(Protocol):
    """An agent whose sessions may say something when no run of ours is under way."""

    def later(self, recent: Sequence[RecentTask]) -> AsyncIterator[LateEvent]:
        """What happens outside runs, for as long as the gateway lives.

        `recent` are the tasks to look after from before, newest first: what they missed comes
        first. The same event may come again; whoever takes it tells repetitions by their ids.
        """
        ...


@runtime_checkable
class AsksOperator(Protocol):
    """An agent that wants a person's word before it runs certain commands."""

    async def approvals(self) -> tuple[Approval, ...]:
        """What waits for a decision. Raises: AgentUnavailable."""
        ...

    async def decide(self, approval_id: str, *, allow: bool) -> None:
        """Decide once. Raises: ApprovalNotFound, ApprovalOver, AgentUnavailable."""
        ...


@runtime_checkable
class KnowsItsState(Protocol):
    """An agent that can be unable to answer for a while."""

    def trouble(self) -> str | None:
        """Why it cannot answer now, in one sentence with what to do; None when it can."""
        ...


@runtime_checkable
class DescribesItself(Protocol):
    """An agent that knows its own name, description and skills."""

    def profile(self) -> AgentProfile | None:
        """What it says of itself, as far as that is known now."""
        ...


class SessionNote(msgspec.Struct, frozen=True):
    """A message for somebody's own session, from another agent by way of the gateway.

    `id` is the same in every try. `is_fresh`: no earlier try, of this life or another, can have
    brought it.
    """

    id: str
    session_key: SessionKey
    text: str
    source_tool: str
    source_session: SessionKey
    is_fresh: bool


class NoteTaken(msgspec.Struct, frozen=True):
    """The host has the note and will bring it up in the session."""


class SessionGone(msgspec.Struct, frozen=True):
    """There is no such session any more, and why we think so."""

    reason: str


@runtime_checkable
class SessionSink(Protocol):
    """An agent in a host whose sessions can be spoken to."""

    def holds(self, session_key: SessionKey) -> bool:
        """True when the session is one of this agent's in its host, as its key tells."""
        ...

    def host_session(self, session_key: SessionKey) -> SessionKey | None:
        """How the host calls a session of ours with this agent; None before that is known."""
        ...

    async def hand_over(self, note: SessionNote) -> "NoteTaken | SessionGone | Missed":
        """Put a note into a session, once: a repeated try changes nothing.

        A busy session gets it when its turn ends. It comes back as soon as the host has the note.
        """
        ...

    async def until_seen(self, note: SessionNote) -> bool:
        """Wait until the session's agent has dealt with a note; False when that is not known."""
        ...


class Clock(Protocol):
    """Time, so that tests can have their own."""

    def now(self) -> datetime:
        """The time of day, UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class Commit(msgspec.Struct, frozen=True, gc=False):
    """One indivisible change of one task.

    `after` is the sequence the task must have now (-1: it must not exist); with `run_id` the run
    must exist with that `fence`. Anything else is refused with LeaseLost and changes nothing.
    """

    head: TaskHead
    after: int
    entries: tuple[Entry, ...] = ()
    snapshot: bytes | None = None
    run_id: RunId | None = None
    fence: int = 0
    ends_run: bool = False
    resume: bytes | None = None
    """With `ends_run`: the agent's token for the turn that answers a pause, kept with the task."""


class Submission(msgspec.Struct, frozen=True, gc=False):
    """A message to take in: its idempotency record, its run and (for a task) its first change."""

    run: RunRecord
    body_hash: bytes
    created_at: datetime
    commit: Commit | None = None
    delivery: Delivery | None = None
    """Who is to be told about the task; kept even when the task comes later, or never."""
    record: "KeptRecord | None" = None
    """What else is to be kept, or not, together with the run; its version is kept as given.

    It must be new: when there is one of its kind with its id, the message is refused with
    LeaseLost and nothing changes. A message that was taken before leaves records alone.
    """


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """The message is taken; the run is stored, with its place in the order of arrival."""

    ticket: int


class Known(msgspec.Struct, frozen=True, gc=False):
    """The same message was taken before. `answer` is there when its run ended without a task."""

    run_id: RunId
    task_id: TaskId
    answer: bytes | None


class TaskKey(msgspec.Struct, frozen=True, gc=False):
    """A place in the list of tasks: newest status first, then by id."""

    status_at: datetime
    id: TaskId


class TaskQuery(msgspec.Struct, frozen=True, gc=False):
    """Which tasks to list."""

    scope: Scope
    limit: int
    context_id: ContextId | None = None
    state: TaskState | None = None
    status_since: datetime | None = None
    after: TaskKey | None = None


class TaskPage(msgspec.Struct, frozen=True, gc=False):
    """Some tasks, whether more follow, and how many there are in all."""

    tasks: tuple[StoredTask, ...]
    has_more: bool
    total: int


class RecentHead(msgspec.Struct, frozen=True, gc=False):
    """A task without its content, and the token its agent left when it paused."""

    head: TaskHead
    resume: bytes | None = None


class Retention(msgspec.Struct, frozen=True, gc=False):
    """What may be forgotten."""

    ended_before: datetime
    keep_ended: int
    messages_before: datetime
    limit: int = 500
    records_before: datetime | None = None
    """Records whose time was over by then go as well."""


class KeptRecord(msgspec.Struct, frozen=True, gc=False):
    """Something small that a part of the gateway keeps for a while, under a name of its kind.

    `version` counts the changes of a record that several may want to change at once.
    """

    kind: str
    id: str
    body: bytes
    expires_at: datetime
    version: int = 0


class Brought(msgspec.Struct, frozen=True, gc=False):
    """A delivery went well, as far as there was something to bring.

    `cursor` is how far it is now. `is_sent`: something was handed over, so the cursor must be
    kept. `has_more`: there is something to bring at once. `is_over`: nothing more is expected.
    `again_at`: by then there is something to bring, even if nothing happens to the task.
    """

    cursor: int
    is_sent: bool = True
    has_more: bool = False
    is_over: bool = False
    again_at: datetime | None = None


class Missed(msgspec.Struct, frozen=True, gc=False):
    """A try failed: why, when to come again if the receiver said so, and whether to give up."""

    reason: str
    retry_after_s: float | None = None
    is_final: bool = False


class DeliveryPage(msgspec.Struct, frozen=True, gc=False):
    """Some deliveries, and after which id the next page begins (None: this is the last)."""

    deliveries: tuple[Delivery, ...]
    next_after: DeliveryId | None = None


class Courier(Protocol):
    """Brings deliveries of one kind to their receivers."""

    def lane(self, delivery: Delivery) -> str:
        """Whom it goes to; one receiver never takes all the places."""
        ...

    async def bring(self, delivery: Delivery) -> Brought | Missed | None:
        """Bring the next thing after the cursor. None: its task is not there."""
        ...


class Store(Protocol):
    """Where everything is kept. Only it knows how; it takes no decisions.

    Writes take effect in the order of the calls and are durable when their awaitable returns.
    """

    @property
    def is_durable(self) -> bool:
        """True when what was committed survives the process."""
        ...

    async def open(self) -> None:
        """Make ready. Raises: StoreLocked, SchemaTooNew, StoreUnavailable."""
        ...

    async def close(self) -> None:
        """Finish the writes that were taken and let go."""
        ...

    async def check(self) -> None:
        """Raises StoreUnavailable when writes cannot succeed."""
        ...

    def submit(self, submission: Submission) -> Awaitable[Accepted | Known]:
        """Take a message in, once.

        Raises: MessageIdConflict (another body under this id), LeaseLost (the task moved on, or
        its record is there already).
        """
        ...

    def commit(self, change: Commit) -> Awaitable[None]:
        """Change a task. Raises: LeaseLost."""
        ...

    def start_run(self, run_id: RunId, *, fence: int, attempt: int) -> Awaitable[None]:
        """Note that the agent is about to be asked. Raises: LeaseLost."""
        ...

    def answer_run(self, run_id: RunId, *, fence: int, answer: bytes) -> Awaitable[None]:
        """End a run that made no task; the answer is kept with its message. Raises: LeaseLost."""
        ...

    async def claim_runs(
        self, owner: OwnerId, *, lease_until: datetime, expired_at: datetime | None
    ) -> list[RunRecord]:
        """Take over runs of other owners, in order of arrival, each with a higher fence.

        With `expired_at` only those whose lease ended before; without, all (the store is ours
        alone).
        """
        ...

    async def read_orphans(self) -> list[TaskId]:
        """Active tasks that have no run."""
        ...

    def renew_leases(self, owner: OwnerId, *, lease_until: datetime) -> Awaitable[None]:
        """Keep all runs of this owner."""
        ...

    async def read_task(self, scope: Scope | None, task_id: TaskId) -> StoredTask | None:
        """One task, when it is in scope (None: whoever owns it)."""
        ...

    async def read_recent(self, limit: int) -> list[RecentHead]:
        """The newest tasks of all callers, the one made last first."""
        ...

    async def read_resume(self, task_id: TaskId) -> bytes | None:
        """The token its agent left when the task paused."""
        ...

    async def read_events(self, task_id: TaskId, *, after: int, limit: int) -> list[Entry]:
        """Committed events with a higher sequence, in order."""
        ...

    async def list_tasks(self, query: TaskQuery) -> TaskPage:
        """Tasks by newest status."""
        ...

    async def read_known(
        self, scope: Scope, message_id: MessageId, *, body_hash: bytes | None = None
    ) -> Known | None:
        """What became of a message, when it was ever taken.

        Raises: MessageIdConflict (it had another body).
        """
        ...

    def delete_task(self, scope: Scope, task_id: TaskId) -> Awaitable[bool]:
        """Forget an ended task and its deliveries; False when it is not there or not ended."""
        ...

    async def forget(self, retention: Retention) -> int:
        """Delete ended tasks, old messages and records; how many tasks went (at most `limit`)."""
        ...

    def put_delivery(self, delivery: Delivery, *, within: int) -> Awaitable[bool]:
        """Keep a delivery, in the place of one with its id.

        False when its task has `within` others of its kind. Raises: LeaseLost (there is no task).
        """
        ...

    def save_delivery(self, delivery: Delivery) -> Awaitable[bool]:
        """Keep how far a delivery is; False when it is gone, or another body took its place."""
        ...

    def drop_delivery(self, delivery_id: DeliveryId) -> Awaitable[bool]:
        """Forget a delivery; False when there was none."""
        ...

    async def read_delivery(self, delivery_id: DeliveryId) -> Delivery | None:
        """One delivery."""
        ...

    async def read_deliveries(self, task_id: TaskId) -> list[Delivery]:
        """The deliveries of a task, oldest first."""
        ...

    async def read_unfinished(self, *, after: DeliveryId, limit: int) -> DeliveryPage:
        """Deliveries that have, or may yet get, something to bring, in order of their ids.

        All but the dead ones, and those of ended tasks that are brought to the last event. At
        most `limit` deliveries are looked at, so a page may be empty and not the last.
        """
        ...

    async def list_deliveries(
        self, state: DeliveryState, *, after: DeliveryId, limit: int
    ) -> list[Delivery]:
        """Deliveries in a state, in order of their ids."""
        ...

    def put_record(self, record: KeptRecord) -> Awaitable[None]:
        """Keep a record, in the place of one of its kind with its id, whatever its version."""
        ...

    def change_record(self, record: KeptRecord) -> Awaitable[bool]:
        """Keep the next version of a record, where the last one was in the order of its kind.

        False, and nothing changes, when the kept one is not the version before; version 0 must
        be new.
        """
        ...

    async def read_record(self, kind: str, record_id: str) -> KeptRecord | None:
        """One record."""
        ...

    def drop_record(self, kind: str, record_id: str) -> Awaitable[bool]:
        """Forget a record; False when there was none."""
        ...

    async def read_records(self, kind: str) -> list[KeptRecord]:
        """All records of a kind, the one put last at the end."""
        ...


class Agents(Protocol):
    """The agents of this gateway by id."""

    def find(self, agent_id: AgentId) -> Agent:
        """The agent. Raises: AgentUnavailable."""
        ...
