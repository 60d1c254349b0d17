"""What the engine needs from a store."""

from collections.abc import Awaitable, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from openclaw_a2a.model.delivery import Delivery, DeliveryId, DeliveryState
from openclaw_a2a.model.ids import ContextId, MessageId, OwnerId, RunId, TaskId
from openclaw_a2a.model.records import Entry, RunRecord, StoredTask, TaskHead
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.model.turn import Scope


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


class Duplicate(msgspec.Struct, frozen=True, gc=False):
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
    """What may be forgotten. `limit` is how many ended tasks are looked at for that."""

    ended_before: datetime
    keep_ended: int
    messages_before: datetime
    limit: int = 500
    records_before: datetime | None = None
    """Records whose time was over by then go as well."""
    undelivered_before: datetime | None = None
    """Tasks that ended before go even though something of them is still to be brought."""
    after: TaskKey | None = None
    """Only tasks that come after it, when the oldest come first, are looked at."""


class PurgeResult(msgspec.Struct, frozen=True, gc=False):
    """How many tasks went, and after which one others may yet go (None: none may)."""

    count: int
    next_after: TaskKey | None = None


class KeptRecord(msgspec.Struct, frozen=True, gc=False):
    """Something small that a part of the gateway keeps for a while, under a name of its kind.

    `version` counts the changes of a record that several may want to change at once.
    """

    kind: str
    id: str
    body: bytes
    expires_at: datetime
    version: int = 0


class LogLine(msgspec.Struct, frozen=True, gc=False):
    """One line of a log, without its end, and its number."""

    sequence: int
    body: bytes


class StoredLog(msgspec.Struct, frozen=True, gc=False):
    """A log with all its lines, by rising numbers; there is at least one.

    `broken` says, in sentences for people, what of it could not be read and was left out.
    """

    id: str
    lines: tuple[LogLine, ...]
    is_closed: bool
    problems: tuple[str, ...] = ()

    @property
    def sequence(self) -> int:
        """The number of its last line: what the next change comes after."""
        return self.lines[-1].sequence


class LogHead(msgspec.Struct, frozen=True, gc=False):
    """What is known of a log without its lines; `updated_at` by the clock of the store."""

    id: str
    sequence: int
    is_closed: bool
    updated_at: datetime


class DeliveryPage(msgspec.Struct, frozen=True, gc=False):
    """Some deliveries, and after which id the next page begins (None: this is the last)."""

    deliveries: tuple[Delivery, ...]
    next_after: DeliveryId | None = None


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

    def submit(self, submission: Submission) -> Awaitable[Accepted | Duplicate]:
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
    ) -> Duplicate | None:
        """What became of a message, when it was ever taken.

        Raises: MessageIdConflict (it had another body).
        """
        ...

    def delete_task(self, scope: Scope, task_id: TaskId) -> Awaitable[bool]:
        """Forget an ended task and its deliveries; False when it is not there or not ended."""
        ...

    async def forget(self, retention: Retention) -> PurgeResult:
        """Delete ended tasks, the oldest first, and old messages and records.

        Tasks with deliveries that `read_unfinished` would show are left alone, so none may go
        of those that are looked at, and others after them.
        """
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

    def append_log(
        self,
        kind: str,
        log_id: str,
        bodies: Sequence[bytes],
        *,
        after: int,
        closes: bool = False,
        opens: bool = False,
    ) -> Awaitable[bool]:
        """Add lines to the end of a log, all or none; the first has the number `after` + 1.

        False, and nothing changes, when the last number of the log is not `after` (0: it must not
        exist), or when there are no lines. `closes` leaves it out of `read_open_logs` until a
        change `opens` it. The last line of a closed log has the op `archive`: a store of files
        knows it by nothing else. Raises: CorruptRecord (not a line that such a store can keep:
        JSON objects, whose `seq` is their number when they have one).
        """
        ...

    async def read_log(self, kind: str, log_id: str) -> StoredLog | None:
        """One log, open or closed."""
        ...

    async def read_open_logs(self, kind: str, *, after: str, limit: int) -> list[StoredLog]:
        """Logs that are not closed, in order of their ids, from the one after `after` on.

        Fewer than `limit` only at the end.
        """
        ...

    async def list_logs(self, kind: str, *, after: str, limit: int) -> list[LogHead]:
        """All logs, in order of their ids, from the one after `after` on."""
        ...

    def drop_log(self, kind: str, log_id: str) -> Awaitable[bool]:
        """Forget a log; False when there was none."""
        ...
