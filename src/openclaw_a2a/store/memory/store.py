"""The memory store, and the parts it shares with the json-file store.

`StateTaskStore` and its siblings read from a `MemoryState` and turn every write into a command for
`write`. The memory store applies the command at once; the json-file store also logs it.
"""

import asyncio
from bisect import bisect_right, insort
from collections.abc import Awaitable, Iterable, Iterator
from datetime import UTC, datetime
from heapq import nlargest, nsmallest
from itertools import accumulate, islice
from typing import Any, TypeVar

import msgspec

from openclaw_a2a.model.delivery import Delivery, DeliveryId, DeliveryState
from openclaw_a2a.model.errors import GatewayError
from openclaw_a2a.model.ids import MessageId, TaskId
from openclaw_a2a.model.records import Entry, StoredTask, TaskOutline
from openclaw_a2a.model.task import is_active, is_terminal
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import (
    ALL_TASKS,
    DeliveryPage,
    Duplicate,
    LogAppend,
    LogHead,
    LogLine,
    MeasuredTask,
    PurgeResult,
    RecentHead,
    Record,
    Retention,
    StatusQuery,
    Store,
    StoredLog,
    TaskFilter,
    TaskPage,
    TaskQuery,
)
from openclaw_a2a.store import rules
from openclaw_a2a.store.commands import DeliveryWrites, RecordWrites, TaskWrites, WriteCommand
from openclaw_a2a.store.group_writer import failed
from openclaw_a2a.store.memory.state import MemoryState, Purge, StateCommand, TaskRow

Result = TypeVar("Result")


class StatePart:
    """`state` is what reads see; `accepted` also has the writes that are not durable yet."""

    def __init__(self, state: MemoryState, write: WriteCommand) -> None:
        self.state = state
        self.accepted = state
        self._write = write


class StateTaskStore(StatePart, TaskWrites):
    """The task store over a state. Reads of a damaged task raise CorruptRecord."""

    async def list_orphaned_tasks(self) -> list[TaskId]:
        with_run = {run.task_id for run in self.state.runs.values()}
        return [
            task_id
            for task_id, task in self.state.tasks.items()
            if is_active(task.head.state) and task_id not in with_run
        ]

    async def read_task(self, scope: Scope | None, task_id: TaskId) -> StoredTask | None:
        self.state.check_readable(task_id)
        task = self.state.find_task(scope, task_id)
        return None if task is None else task.stored()

    async def read_snapshot(
        self, scope: Scope, task_id: TaskId, *, most_bytes: int
    ) -> bytes | None:
        self.state.check_readable(task_id)
        task = self.state.find_task(scope, task_id)
        if task is None or task.snapshot_sequence < task.head.sequence:
            return None
        return task.snapshot if len(task.snapshot) <= most_bytes else None

    async def read_outline(self, scope: Scope | None, task_id: TaskId) -> TaskOutline | None:
        stored = await self.read_task(scope, task_id)
        return None if stored is None else TaskOutline(stored)

    async def read_contents(
        self, scope: Scope | None, task_id: TaskId, keys: Iterable[bytes]
    ) -> dict[bytes, tuple[bytes, ...]] | None:
        del keys  # the strings are in the tasks
        return None if self.state.find_task(scope, task_id) is None else {}

    async def measure_task(self, scope: Scope | None, task_id: TaskId) -> MeasuredTask | None:
        self.state.check_readable(task_id)
        task = self.state.find_task(scope, task_id)
        return None if task is None else MeasuredTask(task.head, task.size)

    async def read_resume_token(self, task_id: TaskId) -> bytes | None:
        task = self.state.tasks.get(task_id)
        return None if task is None else task.resume

    async def read_events(
        self,
        scope: Scope | None,
        task_id: TaskId,
        *,
        after: int,
        limit: int,
        max_bytes: int | None = None,
    ) -> list[Entry]:
        self.state.check_readable(task_id)
        task = self.state.find_task(scope, task_id)
        entries = [] if task is None else task.after(after, limit)
        if max_bytes is not None:
            sizes = accumulate(len(entry.body) for entry in entries)
            over = next((index for index, size in enumerate(sizes) if size > max_bytes), limit)
            entries = entries[: over + 1]
        return entries

    async def list_recent_tasks(
        self, limit: int, chosen: TaskFilter = ALL_TASKS
    ) -> list[RecentHead]:
        newest = nlargest(
            limit, self._choose(chosen), key=lambda task: (task.head.created_at, task.head.id)
        )
        return [RecentHead(task.head, task.resume) for task in newest]

    async def count_tasks(self, chosen: TaskFilter = ALL_TASKS) -> int:
        return sum(1 for _ in self._choose(chosen))

    def _choose(self, chosen: TaskFilter) -> Iterator[TaskRow]:
        tasks = self.state.tasks
        found = tasks.values()
        if chosen.state is not None and not is_terminal(chosen.state):
            # They are few; a caller's message may wait for this.
            found = [tasks[task_id] for task_id in self.state.index.unfinished]
        for task in found:
            head = task.head
            if (
                chosen.principal in (None, head.scope.principal)
                and chosen.account in (None, head.scope.account)
                and chosen.state in (None, head.state)
            ):
                yield task

    async def list_by_status(self, query: StatusQuery) -> list[RecentHead]:
        tasks = self.state.tasks
        found = [tasks[task_id] for task_id in self.state.index.latest(query)]
        return [RecentHead(task.head, task.resume) for task in found]

    async def list_tasks(self, query: TaskQuery) -> TaskPage:
        """Damaged tasks are left out."""
        ids, total = self.state.index.page(query)
        rows = [self.state.tasks[task_id] for task_id in ids[: query.limit]]
        most = query.large_bytes
        large = {row.head.id for row in rows if most is not None and row.size > most}
        tasks = [
            StoredTask(row.head, b"") if row.head.id in large else row.stored() for row in rows
        ]
        has_more = len(ids) > query.limit
        return TaskPage(tuple(tasks), has_more=has_more, total=total, large=frozenset(large))

    async def find_duplicate(
        self, scope: Scope, message_id: MessageId, *, body_hash: bytes | None = None
    ) -> Duplicate | None:
        row = self.state.messages.get((scope.principal, scope.account, message_id))
        if row is None:
            return None
        rules.check_same_body(row.body_hash, body_hash, message_id)
        return row.duplicate

    # Deletions are decided in `accepted`: a write that was accepted before, and is not durable
    # yet, may have finished the task or added a delivery that holds it.

    def delete_task(self, scope: Scope, task_id: TaskId) -> Awaitable[bool]:
        task = self.accepted.tasks.get(task_id)
        if task is None or task.head.scope != scope or not is_terminal(task.head.state):
            # Written although it changes nothing: the refusal may rest on a write that is not
            # durable yet.
            return self._write(Purge(()))
        return self._write(Purge((task_id,)))

    async def purge(self, retention: Retention) -> PurgeResult:
        state = self.accepted
        purged, next_after = rules.choose_purgeable(
            state.index.oldest_finished(retention.after, retention.limit),
            retention,
            finished=len(state.index.finished),
            is_held=lambda key: any(map(state.is_unfinished, state.task_deliveries(key[1]))),
        )
        tasks = tuple([task_id for _, task_id in purged])
        purge = Purge(tasks, retention.messages_before, retention.records_before)
        messages, records = state.count_expired(purge)
        await self._write(purge)
        return PurgeResult(len(tasks), next_after, messages, records)


class StateDeliveryStore(StatePart, DeliveryWrites):
    """The delivery store over a state."""

    async def read_delivery(
        self, scope: Scope | None, delivery_id: DeliveryId, *, only_own: bool = False
    ) -> Delivery | None:
        delivery = self.state.deliveries.get(delivery_id)
        if delivery is None or scope is None:
            return delivery
        return None if self.state.find_task(scope, delivery.task_id) is None else delivery

    async def list_task_deliveries(
        self, scope: Scope | None, task_id: TaskId, *, only_own: bool = False
    ) -> list[Delivery]:
        if scope is not None and self.state.find_task(scope, task_id) is None:
            return []
        rows = self.state.task_deliveries(task_id)
        return sorted(rows, key=lambda row: (row.created_at, row.id))

    async def list_unfinished_deliveries(self, *, after: DeliveryId, limit: int) -> DeliveryPage:
        is_unfinished = self.state.is_unfinished
        rows = [row for row in self.state.deliveries.values() if row.id > after]
        page = nsmallest(limit, filter(is_unfinished, rows), key=lambda row: row.id)
        return DeliveryPage(tuple(page), page[-1].id if len(page) == limit else None)

    async def list_deliveries(
        self, state: DeliveryState, *, after: DeliveryId, limit: int
    ) -> list[Delivery]:
        rows = self.state.deliveries.values()
        found = (row for row in rows if row.id > after and row.state is state)
        return nsmallest(limit, found, key=lambda row: row.id)


class StateRecordStore(StatePart, RecordWrites):
    """The record store over a state."""

    async def read_record(self, kind: str, record_id: str) -> Record | None:
        return self.state.records.get((kind, record_id))

    async def list_records(self, kind: str) -> list[Record]:
        return [row for row in self.state.records.values() if row.kind == kind]


class _LogRow(msgspec.Struct):
    id: str
    updated_at: datetime
    is_closed: bool = False
    lines: list[LogLine] = []

    def stored(self) -> StoredLog:
        return StoredLog(self.id, tuple(self.lines), self.is_closed)


class MemoryLogStore:
    """The log store in memory."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], _LogRow] = {}
        self._ids: dict[str, list[str]] = {}  # by kind, sorted

    def append_log(self, change: LogAppend) -> Awaitable[bool]:
        row = self._rows.get((change.kind, change.log_id))
        if not change.bodies or change.after != (0 if row is None else row.lines[-1].sequence):
            return _completed(False)
        now = datetime.now(UTC)
        if row is None:
            row = self._rows[change.kind, change.log_id] = _LogRow(change.log_id, now)
            insort(self._ids.setdefault(change.kind, []), change.log_id)
        row.lines += change.lines()
        row.is_closed = change.leaves_closed(row.is_closed)
        row.updated_at = now
        return _completed(True)

    async def read_log(self, kind: str, log_id: str) -> StoredLog | None:
        row = self._rows.get((kind, log_id))
        return None if row is None else row.stored()

    async def list_open_logs(self, kind: str, *, after: str, limit: int) -> list[StoredLog]:
        rows = (row for row in self._rows_after(kind, after) if not row.is_closed)
        return [row.stored() for row in islice(rows, limit)]

    async def list_log_heads(self, kind: str, *, after: str, limit: int) -> list[LogHead]:
        return [
            LogHead(row.id, row.lines[-1].sequence, row.is_closed, row.updated_at)
            for row in islice(self._rows_after(kind, after), limit)
        ]

    def delete_log(self, kind: str, log_id: str) -> Awaitable[bool]:
        was_stored = self._rows.pop((kind, log_id), None) is not None
        if was_stored:
            self._ids[kind].remove(log_id)
        return _completed(was_stored)

    def _rows_after(self, kind: str, after: str) -> Iterator[_LogRow]:
        ids = self._ids.get(kind, [])
        return (self._rows[kind, log_id] for log_id in ids[bisect_right(ids, after) :])


class MemoryStore(Store):
    """A store that ends with the process: every write takes effect when it is called."""

    is_durable = False

    def __init__(self) -> None:
        self._state = state = MemoryState()
        self.tasks = StateTaskStore(state, self._write)
        self.deliveries = StateDeliveryStore(state, self._write)
        self.records = StateRecordStore(state, self._write)
        self.logs = MemoryLogStore()

    async def open(self) -> None:
        """Always ready."""

    async def close(self) -> None:
        """Keep the content: opened again, the store continues where it was."""

    async def check(self) -> None:
        """Writes always succeed."""

    def _write(self, command: StateCommand) -> "asyncio.Future[Any]":
        try:
            return _completed(self._state.apply(command))
        except GatewayError as error:
            return failed(error)


def _completed(result: Result) -> "asyncio.Future[Result]":
    """The write happened at the call, as the contract's order of writes demands."""
    future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    future.set_result(result)
    return future
