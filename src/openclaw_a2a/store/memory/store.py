"""The memory store, and the parts it shares with the json-file store.

`StateTaskStore` and its siblings read from a `MemoryState` and turn every write into a command for
`write`. The memory store applies the command at once; the json-file store also logs it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from heapq import nlargest
from typing import Any, TypeVar

from openclaw_a2a.model.delivery import Delivery, DeliveryId, DeliveryState
from openclaw_a2a.model.errors import GatewayError
from openclaw_a2a.model.ids import MessageId, OwnerId, RunId, TaskId
from openclaw_a2a.model.records import Entry, RunRecord, StoredTask
from openclaw_a2a.model.task import is_active
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import (
    Accepted,
    Commit,
    DeliveryPage,
    Duplicate,
    LogAppend,
    LogHead,
    PurgeResult,
    RecentHead,
    Record,
    Retention,
    StoredLog,
    Submission,
    TaskPage,
    TaskQuery,
)
from openclaw_a2a.store.errors import message_id_conflict
from openclaw_a2a.store.group_writer import failed
from openclaw_a2a.store.memory import commands
from openclaw_a2a.store.memory.commands import AnyCommand, apply_command
from openclaw_a2a.store.memory.state import MemoryState
from openclaw_a2a.store.memory.tables import LogTable

Result = TypeVar("Result")
WriteCommand = Callable[[AnyCommand], "asyncio.Future[Any]"]


class _StatePart:
    """`state` is what reads see; `accepted` also has the writes that are not durable yet."""

    def __init__(self, state: MemoryState, write: WriteCommand) -> None:
        self.state = state
        self.accepted = state
        self._write = write


class StateTaskStore(_StatePart):
    """The task store over a state."""

    def submit(self, submission: Submission) -> "asyncio.Future[Accepted | Duplicate]":
        """Store an incoming message once."""
        return self._write(commands.Submit(submission))

    def commit(self, change: Commit) -> "asyncio.Future[None]":
        """Change a task."""
        return self._write(commands.ChangeTask(change))

    def start_run(self, run_id: RunId, *, fence: int, attempt: int) -> Awaitable[None]:
        """Record that the agent is about to be called."""
        return self._write(commands.StartRun(run_id, fence, attempt))

    def finish_run(self, run_id: RunId, *, fence: int, answer: bytes) -> Awaitable[None]:
        """End a run that made no task."""
        return self._write(commands.FinishRun(run_id, fence, answer))

    async def claim_runs(
        self, owner: OwnerId, *, lease_until: datetime, expired_at: datetime | None
    ) -> list[RunRecord]:
        """Take over runs of other owners, in order of arrival."""
        return await self._write(commands.ClaimRuns(owner, lease_until, expired_at))

    def renew_leases(self, owner: OwnerId, *, lease_until: datetime) -> Awaitable[None]:
        """Extend the lease of every run of this owner."""
        return self._write(commands.RenewLeases(owner, lease_until))

    async def list_orphaned_tasks(self) -> list[TaskId]:
        """Active tasks that have no run."""
        state = self.state
        with_run = {run.task_id for run in state.runs.values()}
        return [
            task_id
            for task_id, task in state.tasks.items()
            if is_active(task.head.state) and task_id not in with_run
        ]

    async def read_task(self, scope: Scope | None, task_id: TaskId) -> StoredTask | None:
        """One task, if it is in scope (None: any scope). Raises: CorruptRecord."""
        self.state.check_readable(task_id)
        task = self.state.tasks.get(task_id)
        if task is None or (scope is not None and task.head.scope != scope):
            return None
        return task.stored()

    async def read_resume_token(self, task_id: TaskId) -> bytes | None:
        """The token the agent left when the task paused."""
        task = self.state.tasks.get(task_id)
        return None if task is None else task.resume

    async def read_events(self, task_id: TaskId, *, after: int, limit: int) -> list[Entry]:
        """Committed events with a higher sequence, in order. Raises: CorruptRecord."""
        self.state.check_readable(task_id)
        task = self.state.tasks.get(task_id)
        return [] if task is None else task.after(after, limit)

    async def list_recent_tasks(self, limit: int) -> list[RecentHead]:
        """The newest tasks of all callers, last created first."""
        newest = nlargest(
            limit, self.state.tasks.values(), key=lambda task: (task.head.created_at, task.head.id)
        )
        return [RecentHead(task.head, task.resume) for task in newest]

    async def list_tasks(self, query: TaskQuery) -> TaskPage:
        """Tasks by newest status; damaged ones are left out."""
        state = self.state
        ids = state.index.page(query)
        tasks = tuple([state.tasks[task_id].stored() for task_id in ids[: query.limit]])
        return TaskPage(tasks, has_more=len(ids) > query.limit, total=state.index.total(query))

    async def find_duplicate(
        self, scope: Scope, message_id: MessageId, *, body_hash: bytes | None = None
    ) -> Duplicate | None:
        """The outcome of an earlier submission of this message. Raises: MessageIdConflict."""
        row = self.state.messages.get((scope.principal, scope.account, message_id))
        if row is not None and body_hash not in (None, row.body_hash):
            raise message_id_conflict(message_id)
        return None if row is None else row.duplicate

    def delete_task(self, scope: Scope, task_id: TaskId) -> Awaitable[bool]:
        """Delete a finished task; False if it is missing or unfinished."""
        is_deletable = self.accepted.is_deletable(scope, task_id)
        return self._write(commands.Purge((task_id,) if is_deletable else ()))

    async def purge(self, retention: Retention) -> PurgeResult:
        """Delete finished tasks, and old messages and records."""
        tasks, next_after = self.accepted.purgeable_tasks(retention)
        command = commands.Purge(tuple(tasks), retention.messages_before, retention.records_before)
        await self._write(command)
        return PurgeResult(len(tasks), next_after)


class StateDeliveryStore(_StatePart):
    """The delivery store over a state."""

    def put_delivery(self, delivery: Delivery, *, within: int) -> Awaitable[bool]:
        """Store a delivery; False if its task has too many."""
        return self._write(commands.PutDelivery(delivery, within))

    def update_delivery(self, delivery: Delivery) -> Awaitable[bool]:
        """Store the progress of a delivery; False if it was deleted or its body was replaced."""
        return self._write(commands.UpdateDelivery(delivery))

    def delete_delivery(self, delivery_id: DeliveryId) -> Awaitable[bool]:
        """Delete a delivery; False if there was none."""
        return self._write(commands.DeleteDelivery(delivery_id))

    async def read_delivery(self, delivery_id: DeliveryId) -> Delivery | None:
        """One delivery."""
        return self.state.deliveries.get(delivery_id)

    async def list_task_deliveries(self, task_id: TaskId) -> list[Delivery]:
        """The deliveries of a task, oldest first."""
        return self.state.deliveries.of_task(task_id)

    async def list_unfinished_deliveries(self, *, after: DeliveryId, limit: int) -> DeliveryPage:
        """Deliveries that have, or may yet get, something to send."""
        page = self.state.deliveries.page(self.state.is_unfinished, after=after, limit=limit)
        return DeliveryPage(tuple(page), page[-1].id if len(page) == limit else None)

    async def list_deliveries(
        self, state: DeliveryState, *, after: DeliveryId, limit: int
    ) -> list[Delivery]:
        """Deliveries in a state, by id."""
        return self.state.deliveries.in_state(state, after=after, limit=limit)


class StateRecordStore(_StatePart):
    """The record store over a state."""

    def put_record(self, record: Record) -> Awaitable[None]:
        """Store a record, replacing one with the same kind and id."""
        return self._write(commands.PutRecord(record))

    def update_record(self, record: Record) -> Awaitable[bool]:
        """Store the next version of a record; False if it is not the next one."""
        return self._write(commands.UpdateRecord(record))

    def delete_record(self, kind: str, record_id: str) -> Awaitable[bool]:
        """Delete a record; False if there was none."""
        return self._write(commands.DeleteRecord(kind, record_id))

    async def read_record(self, kind: str, record_id: str) -> Record | None:
        """One record."""
        return self.state.records.get(kind, record_id)

    async def list_records(self, kind: str) -> list[Record]:
        """All records of a kind, in the order in which they were put."""
        return self.state.records.of_kind(kind)


class MemoryLogStore:
    """The log store in memory."""

    def __init__(self) -> None:
        self._logs = LogTable()

    def append_log(self, change: LogAppend) -> Awaitable[bool]:
        """Append lines to a log; False if it is not at `change.after`."""
        return _completed(self._logs.append(change))

    async def read_log(self, kind: str, log_id: str) -> StoredLog | None:
        """One log, open or closed."""
        return self._logs.get(kind, log_id)

    async def list_open_logs(self, kind: str, *, after: str, limit: int) -> list[StoredLog]:
        """Logs that are not closed, by id."""
        return self._logs.page_open(kind, after, limit)

    async def list_log_heads(self, kind: str, *, after: str, limit: int) -> list[LogHead]:
        """All logs, by id."""
        return self._logs.page(kind, after, limit)

    def delete_log(self, kind: str, log_id: str) -> Awaitable[bool]:
        """Delete a log; False if there was none."""
        return _completed(self._logs.delete(kind, log_id))


class MemoryStore:
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

    def _write(self, command: AnyCommand) -> "asyncio.Future[Any]":
        try:
            return _completed(apply_command(command, self._state))
        except GatewayError as error:
            return failed(error)


def _completed(result: Result) -> "asyncio.Future[Result]":
    """The write happened at the call, as the contract's order of writes demands."""
    future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    future.set_result(result)
    return future
