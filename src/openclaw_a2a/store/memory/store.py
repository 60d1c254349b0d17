"""The store that forgets everything when the process ends."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Self, TypeVar

from openclaw_a2a.model.delivery import Delivery, DeliveryId, DeliveryState
from openclaw_a2a.model.errors import GatewayError
from openclaw_a2a.model.ids import MessageId, OwnerId, RunId, TaskId
from openclaw_a2a.model.records import Entry, RunRecord, StoredTask
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
from openclaw_a2a.store.memory.state import Ledger
from openclaw_a2a.store.memory.tables import LogRows

Outcome = TypeVar("Outcome")


class MemoryStore:
    """A ledger, and nothing else: writes take effect when they are called."""

    def __init__(self) -> None:
        self._ledger = Ledger()
        self._logs = LogRows()

    @property
    def tasks(self) -> Self:
        """The task store."""
        return self

    deliveries = records = logs = tasks

    @property
    def is_durable(self) -> bool:
        """Nothing survives the process."""
        return False

    async def open(self) -> None:
        """Always ready."""

    async def close(self) -> None:
        """Keep what is there; an opened store goes on where it was."""

    async def check(self) -> None:
        """Writes always succeed."""

    def submit(self, submission: Submission) -> "asyncio.Future[Accepted | Duplicate]":
        """Take a message in, once. Raises: MessageIdConflict, Conflict."""
        return _settled(lambda: self._ledger.submit(submission))

    def commit(self, change: Commit) -> "asyncio.Future[None]":
        """Change a task. Raises: Conflict."""
        return _settled(lambda: self._ledger.commit(change))

    def start_run(self, run_id: RunId, *, fence: int, attempt: int) -> Awaitable[None]:
        """Note that the agent is about to be asked. Raises: LeaseLost."""
        return _settled(lambda: self._ledger.start_run(run_id, fence=fence, attempt=attempt))

    def finish_run(self, run_id: RunId, *, fence: int, answer: bytes) -> Awaitable[None]:
        """End a run that made no task. Raises: LeaseLost."""
        return _settled(lambda: self._ledger.finish_run(run_id, fence=fence, answer=answer))

    async def claim_runs(
        self, owner: OwnerId, *, lease_until: datetime, expired_at: datetime | None
    ) -> list[RunRecord]:
        """Take over runs of other owners, in order of arrival."""
        return self._ledger.claim_runs(owner, lease_until=lease_until, expired_at=expired_at)

    async def list_orphaned_tasks(self) -> list[TaskId]:
        """Active tasks that have no run."""
        return self._ledger.list_orphaned_tasks()

    def renew_leases(self, owner: OwnerId, *, lease_until: datetime) -> Awaitable[None]:
        """Keep all runs of this owner."""
        return _settled(lambda: self._ledger.renew_leases(owner, lease_until))

    async def read_task(self, scope: Scope | None, task_id: TaskId) -> StoredTask | None:
        """One task, when it is in scope (None: whoever owns it)."""
        return self._ledger.read_task(scope, task_id)

    async def list_recent_tasks(self, limit: int) -> list[RecentHead]:
        """The newest tasks of all callers, the one made last first."""
        return self._ledger.list_recent_tasks(limit)

    async def read_resume_token(self, task_id: TaskId) -> bytes | None:
        """The token its agent left when the task paused."""
        task = self._ledger.tasks.get(task_id)
        return None if task is None else task.resume

    async def read_events(self, task_id: TaskId, *, after: int, limit: int) -> list[Entry]:
        """Committed events with a higher sequence, in order."""
        task = self._ledger.tasks.get(task_id)
        return [] if task is None else task.after(after, limit)

    async def list_tasks(self, query: TaskQuery) -> TaskPage:
        """Tasks by newest status."""
        return self._ledger.list_tasks(query)

    async def find_duplicate(
        self, scope: Scope, message_id: MessageId, *, body_hash: bytes | None = None
    ) -> Duplicate | None:
        """What became of a message, when it was ever taken."""
        return self._ledger.find_duplicate(scope, message_id, body_hash=body_hash)

    def delete_task(self, scope: Scope, task_id: TaskId) -> Awaitable[bool]:
        """Forget an ended task; False when it is not there or not ended."""
        return _settled(lambda: self._ledger.delete_task(scope, task_id))

    async def purge(self, retention: Retention) -> PurgeResult:
        """Delete ended tasks, old messages and records."""
        gone, next_after = self._ledger.forgettable(retention)
        self._ledger.forget(gone, retention.messages_before)
        self._ledger.records.forget(retention.records_before)
        return PurgeResult(len(gone), next_after)

    def put_delivery(self, delivery: Delivery, *, within: int) -> Awaitable[bool]:
        """Keep a delivery; False when its task has too many. Raises: TaskNotFound."""
        return _settled(lambda: self._ledger.put_delivery(delivery, within))

    def update_delivery(self, delivery: Delivery) -> Awaitable[bool]:
        """Keep how far a delivery is; False when it is gone, or has another body now."""
        return _settled(lambda: self._ledger.deliveries.save(delivery))

    def delete_delivery(self, delivery_id: DeliveryId) -> Awaitable[bool]:
        """Forget a delivery; False when there was none."""
        return _settled(lambda: self._ledger.deliveries.drop(delivery_id))

    async def read_delivery(self, delivery_id: DeliveryId) -> Delivery | None:
        """One delivery."""
        return self._ledger.deliveries.get(delivery_id)

    async def list_task_deliveries(self, task_id: TaskId) -> list[Delivery]:
        """The deliveries of a task, oldest first."""
        return self._ledger.deliveries.of_task(task_id)

    async def list_unfinished_deliveries(self, *, after: DeliveryId, limit: int) -> DeliveryPage:
        """Deliveries that have, or may yet get, something to bring."""
        return self._ledger.list_unfinished_deliveries(after, limit)

    async def list_deliveries(
        self, state: DeliveryState, *, after: DeliveryId, limit: int
    ) -> list[Delivery]:
        """Deliveries in a state, in order of their ids."""
        return self._ledger.deliveries.in_state(state, after=after, limit=limit)

    def put_record(self, record: Record) -> Awaitable[None]:
        """Keep a record, in the place of one of its kind with its id."""
        return _settled(lambda: self._ledger.records.put(record))

    def update_record(self, record: Record) -> Awaitable[bool]:
        """Keep the next version of a record; False when it is not the next one."""
        return _settled(lambda: self._ledger.records.change(record))

    async def read_record(self, kind: str, record_id: str) -> Record | None:
        """One record."""
        return self._ledger.records.get(kind, record_id)

    def delete_record(self, kind: str, record_id: str) -> Awaitable[bool]:
        """Forget a record; False when there was none."""
        return _settled(lambda: self._ledger.records.drop(kind, record_id))

    async def list_records(self, kind: str) -> list[Record]:
        """All records of a kind, the one put last at the end."""
        return self._ledger.records.of_kind(kind)

    def append_log(self, change: LogAppend) -> Awaitable[bool]:
        """Add lines to a log; False when it is not at `after`."""
        return _settled(lambda: self._logs.append(change))

    async def read_log(self, kind: str, log_id: str) -> StoredLog | None:
        """One log, open or closed."""
        return self._logs.get(kind, log_id)

    async def list_open_logs(self, kind: str, *, after: str, limit: int) -> list[StoredLog]:
        """Logs that are not closed, in order of their ids."""
        return self._logs.page_open(kind, after, limit)

    async def list_log_heads(self, kind: str, *, after: str, limit: int) -> list[LogHead]:
        """All logs, in order of their ids."""
        return self._logs.page(kind, after, limit)

    def delete_log(self, kind: str, log_id: str) -> Awaitable[bool]:
        """Forget a log; False when there was none."""
        return _settled(lambda: self._logs.drop(kind, log_id))


def _settled(write: Callable[[], Outcome]) -> "asyncio.Future[Outcome]":
    future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    try:
        future.set_result(write())
    except GatewayError as refusal:
        future.set_exception(refusal)
    return future
