"""The task store: tasks, their events, runs and idempotency records."""

import asyncio
from collections.abc import Awaitable, Iterable
from datetime import datetime
from typing import Protocol, runtime_checkable

import msgspec

from openclaw_a2a.model.delivery import Delivery
from openclaw_a2a.model.ids import AccountId, ContextId, MessageId, OwnerId, PeerName, RunId, TaskId
from openclaw_a2a.model.records import Entry, RunRecord, StoredTask, TaskHead, TaskOutline
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports.record_store import Record


class Commit(msgspec.Struct, frozen=True, gc=False):
    """One atomic change of one task.

    `after` is the sequence the task must have now (-1: it must not exist); with `run_id` the run
    must exist with that `fence`. Otherwise the write is refused and changes nothing.

    The field names of this struct and of `Submission` are stored by the json-file store.
    """

    head: TaskHead
    after: int
    entries: tuple[Entry, ...] = ()
    snapshot: bytes | None = None
    run_id: RunId | None = None
    fence: int = 0
    ends_run: bool = False
    resume: bytes | None = None
    """With `ends_run`: the agent's token for the turn that answers a pause."""


class Submission(msgspec.Struct, frozen=True, gc=False):
    """An incoming message: its idempotency record, its run and (for a task) its first change."""

    run: RunRecord
    body_hash: bytes
    created_at: datetime
    commit: Commit | None = None
    delivery: Delivery | None = None
    """A subscriber of the task; stored even when the task comes later, or never."""
    record: Record | None = None
    """A record to store in the same transaction, with the version it has.

    It must be new: if its kind and id are taken, the submission is refused and nothing changes.
    A duplicate submission leaves records alone.
    """
    is_deduplicated: bool = True
    """False: no idempotency record is looked for or stored; the message is new in any case."""
    delivery_owner: OwnerId | None = None
    """The replica that sends the delivery, if that is another one."""


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """The message is stored with its run. Tickets number the runs in order of arrival."""

    ticket: int


MessageKey = tuple[str, str, str]
"""Principal, account and message id: the key of an idempotency record."""


class Duplicate(msgspec.Struct, frozen=True, gc=False):
    """The same message was accepted before. `answer` is set when its run ended without a task."""

    run_id: RunId
    task_id: TaskId
    answer: bytes | None


class TaskKey(msgspec.Struct, frozen=True, gc=False):
    """A position in the list of tasks: newest status first, then by id."""

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
    max_bytes: int | None = None
    """A page may end with the task with which it is larger than that."""
    large_bytes: int | None = None
    """A task that may be larger than that comes without its content, for `read_outline`."""
    counts: bool = True
    """False when the total of all pages is not needed: counting many tasks takes long."""


class TaskPage(msgspec.Struct, frozen=True, gc=False):
    """One page of tasks, whether more follow, and the total of all pages, if it was wanted."""

    tasks: tuple[StoredTask, ...]
    has_more: bool
    total: int
    large: frozenset[TaskId] = frozenset()
    """The tasks that have no snapshot and no entries here, because they are large."""


class TaskFilter(msgspec.Struct, frozen=True, gc=False):
    """Which tasks of all callers: those of a caller, of an account, or in a state."""

    principal: PeerName | None = None
    account: AccountId | None = None
    state: TaskState | None = None


ALL_TASKS = TaskFilter()


class StatusQuery(msgspec.Struct, frozen=True, gc=False):
    """Which tasks of all callers to list by their newest status; no states: in any state."""

    limit: int
    states: frozenset[TaskState] = frozenset()
    principal: PeerName | None = None
    account: AccountId | None = None
    after: TaskKey | None = None
    """The last task of the page before."""


class RecentHead(msgspec.Struct, frozen=True, gc=False):
    """A task without its content, and the resume token its agent left when it paused."""

    head: TaskHead
    resume: bytes | None = None


class TaskSearch(msgspec.Struct, frozen=True, gc=False):
    """A search over the tasks of all callers: by text and by agent.

    `before` is where the previous search ended.
    """

    text: str
    limit: int
    agent: str = ""
    states: frozenset[TaskState] = frozenset()
    principal: PeerName | None = None
    account: AccountId | None = None
    before: int | None = None


class TaskMatches(msgspec.Struct, frozen=True, gc=False):
    """Tasks that may match, last created first, each with its place.

    The text is in their stored form; it may be invisible to a reader. `next_before` is where the
    next search continues, and `looked_back_to` the time of that position; None: everything was
    searched.
    """

    found: tuple[tuple[int, RecentHead], ...]
    next_before: int | None = None
    looked_back_to: datetime | None = None


class MeasuredTask(msgspec.Struct, frozen=True, gc=False):
    """A task without its content, and about how many bytes its content has."""

    head: TaskHead
    size: int


class Retention(msgspec.Struct, frozen=True, gc=False):
    """What `purge` may delete. `limit` bounds how many finished tasks one call examines."""

    ended_before: datetime
    keep_ended: int
    messages_before: datetime
    limit: int = 500
    records_before: datetime | None = None
    """Records that expired before this time are deleted as well."""
    undelivered_before: datetime | None = None
    """Tasks that ended before this time are deleted even with unfinished deliveries."""
    after: TaskKey | None = None
    """Examine only tasks after this key, oldest first."""


class PurgeResult(msgspec.Struct, frozen=True, gc=False):
    """How many tasks were deleted, and the key to continue after (None: nothing is left).

    `messages` and `records` count idempotency records and records.
    """

    count: int
    next_after: TaskKey | None = None
    messages: int = 0
    records: int = 0


class TaskStore(Protocol):
    """Tasks, their events, runs and idempotency records.

    Writes take effect in call order and are durable when their awaitable returns.
    """

    def submit(self, submission: Submission) -> "asyncio.Future[Accepted | Duplicate]":
        """Store an incoming message once.

        Raises: MessageIdConflict (another body under this id), Conflict (the task changed),
        AlreadyExists (the task or its record is stored already).
        """
        ...

    def commit(self, change: Commit) -> "asyncio.Future[None]":
        """Change a task.

        Raises: Conflict (it is not at `after`), LeaseLost (the run is not ours any more).
        """
        ...

    def start_run(self, run_id: RunId, *, fence: int, attempt: int) -> Awaitable[None]:
        """Record that the agent is about to be called. Raises: LeaseLost."""
        ...

    def finish_run(self, run_id: RunId, *, fence: int, answer: bytes) -> Awaitable[None]:
        """End a run that made no task; the answer goes into the idempotency record.

        Raises: LeaseLost.
        """
        ...

    async def claim_runs(self, owner: OwnerId) -> list[RunRecord]:
        """Take over the runs of owners that are gone, by arrival, each with the next fence.

        In a store that one process has for itself every other owner is gone; in a shared one those
        whose lease is over.
        """
        ...

    async def list_orphaned_tasks(self) -> list[TaskId]:
        """Active tasks that have no run."""
        ...

    async def read_task(self, scope: Scope | None, task_id: TaskId) -> StoredTask | None:
        """One task, if it is in scope (None: any scope)."""
        ...

    async def read_snapshot(
        self, scope: Scope, task_id: TaskId, *, most_bytes: int
    ) -> bytes | None:
        """The task as JSON, if its snapshot is complete and no larger.

        None says nothing more: the task may be larger, have newer events, or not be in scope.
        """
        ...

    async def read_outline(self, scope: Scope | None, task_id: TaskId) -> TaskOutline | None:
        """As `read_task`, for a task that may be large: in small steps, which give way to others.

        A store that keeps large strings by themselves leaves them out, for `read_contents`.
        """
        ...

    async def read_contents(
        self, scope: Scope | None, task_id: TaskId, keys: Iterable[bytes]
    ) -> dict[bytes, tuple[bytes, ...]] | None:
        """Large strings of an outline, in slices, by their keys; None as `read_task`."""
        ...

    async def measure_task(self, scope: Scope | None, task_id: TaskId) -> MeasuredTask | None:
        """The task without its content, and about how large that is; None as `read_task`."""
        ...

    async def read_resume_token(self, task_id: TaskId) -> bytes | None:
        """The token the agent left when the task paused."""
        ...

    async def read_events(
        self,
        scope: Scope | None,
        task_id: TaskId,
        *,
        after: int,
        limit: int,
        max_bytes: int | None = None,
    ) -> list[Entry]:
        """Committed events with a higher sequence, in order; none if the task is not in scope.

        With `max_bytes` the last one is the first with which they are larger than that.
        """
        ...

    async def list_recent_tasks(
        self, limit: int, chosen: TaskFilter = ALL_TASKS
    ) -> list[RecentHead]:
        """The newest tasks of all callers, last created first."""
        ...

    async def count_tasks(self, chosen: TaskFilter = ALL_TASKS) -> int:
        """How many tasks all callers have."""
        ...

    async def list_by_status(self, query: StatusQuery) -> list[RecentHead]:
        """Tasks of all callers, the newest status first.

        The cost depends on the number of callers, not on the number of tasks.
        """
        ...

    async def list_tasks(self, query: TaskQuery) -> TaskPage:
        """Tasks by newest status."""
        ...

    async def find_duplicate(
        self, scope: Scope, message_id: MessageId, *, body_hash: bytes | None = None
    ) -> Duplicate | None:
        """The outcome of an earlier submission of this message, if there was one.

        Raises: MessageIdConflict (the earlier one had another body).
        """
        ...

    def delete_task(self, scope: Scope, task_id: TaskId) -> Awaitable[bool]:
        """Delete a finished task and its deliveries; False if it is missing or unfinished."""
        ...

    async def purge(self, retention: Retention) -> PurgeResult:
        """Delete finished tasks, oldest first, and old idempotency records and records.

        Tasks with unfinished deliveries are skipped, so a call may delete nothing and still have
        more to examine.
        """
        ...


@runtime_checkable
class SupportsTaskSearch(Protocol):
    """A store that can search texts without blocking the event loop."""

    async def search_tasks(self, search: TaskSearch) -> TaskMatches:
        """Tasks whose stored form holds the text, in any of their ids, messages or artifacts."""
        ...
