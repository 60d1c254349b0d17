"""Runs the grouped writes of a SQLite store, each group in one transaction."""

import asyncio
import os
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Self, TypeVar

import anyio.to_thread
import msgspec

from openclaw_a2a.model.delivery import Delivery, DeliveryId, DeliveryState
from openclaw_a2a.model.errors import GatewayError, StoreUnavailable
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
from openclaw_a2a.store import errors
from openclaw_a2a.store.group_writer import GroupWriter, Outcome, Write, failed
from openclaw_a2a.store.locks import FileLock
from openclaw_a2a.store.memory.state import message_key
from openclaw_a2a.store.sqlite import deliveries, logs, maintenance, records
from openclaw_a2a.store.sqlite.bloom_filter import SeenMessages
from openclaw_a2a.store.sqlite.migrate import upgrade_with_backup
from openclaw_a2a.store.sqlite.tasks import SqliteReader
from openclaw_a2a.store.sqlite.transaction import Answer, SqliteBatch, Start, Taking
from openclaw_a2a.store.sqlite.write_cache import LiveRows


class SqliteSink:
    """Where groups of writes end. Used by the writer thread alone."""

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self._connection = connection
        self._name = name
        self._live: LiveRows | None = None
        self.failure: str | None = None
        """Why the last group could not be written; None when it could."""
        self.groups = 0
        """How many transactions were committed."""

    def write_group(self, group: Sequence[Write[SqliteBatch]]) -> list[Outcome]:
        """Write the group in one transaction.

        A refusal is one write's own affair. When the database itself fails, the whole group fails;
        the next one is tried again.
        """
        try:
            outcomes = self._transact(group)
        except Exception as error:  # the edge of the writer thread, which must live on
            self._roll_back()
            if _is_database_failure(error):
                self.failure = str(error)
            elif len(group) > 1:
                # One of them cannot be written at all; the others must not suffer for it.
                return [outcome for write in group for outcome in self.write_group([write])]
            return [(write.future, None, self._unavailable(error)) for write in group]
        self.failure = None
        self.groups += 1
        return outcomes

    def _transact(self, group: Sequence[Write[SqliteBatch]]) -> list[Outcome]:
        self._connection.execute("BEGIN IMMEDIATE")
        if self._live is None:
            self._live = LiveRows(self._connection)
        batch = SqliteBatch(self._connection, self._live)
        outcomes = [_perform(batch, write) for write in group]
        batch.flush()
        self._connection.execute("COMMIT")
        return outcomes

    def _roll_back(self) -> None:
        self._live = None
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _unavailable(self, error: Exception) -> StoreUnavailable:
        unavailable = StoreUnavailable(
            f"the store {self._name} did not take the write: {error}; "
            "check the disk (space, permissions) and try again"
        )
        unavailable.__cause__ = error
        return unavailable


def _perform(batch: SqliteBatch, write: Write[SqliteBatch]) -> Outcome:
    try:
        return write.future, write.perform(batch, write.order), None
    except GatewayError as refusal:
        return write.future, None, refusal


def _is_database_failure(error: Exception) -> bool:
    """True for a full disk, a failing device, a damaged file; false for a row that cannot be."""
    return isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError


Order = TypeVar("Order")
Result = TypeVar("Result")

_PORTION = 100
"""How many tasks or messages one write looks at, and forgets at most."""


class SqliteStore:
    """Everything in one database file that one process uses at a time.

    Writes go to one thread, which joins everything waiting into one synced transaction. Reads run
    where they are called: a few rows from the page cache cost less than a hop to a thread.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path).expanduser()
        self._file: _OpenFile | None = None

    @property
    def tasks(self) -> Self:
        """The task store."""
        return self

    deliveries = records = logs = tasks

    @property
    def is_durable(self) -> bool:
        """What was committed survives the process and the machine."""
        return True

    @property
    def groups(self) -> int:
        """How many transactions were committed since the store was opened."""
        return self._opened().sink.groups

    async def open(self) -> None:
        """Make the file when there is none, upgrade its schema, begin to write.

        Raises: StoreLocked, SchemaTooNew, StoreUnavailable.
        """
        file = await anyio.to_thread.run_sync(_OpenFile, self._path)
        file.writer.start()
        self._file = file

    async def close(self) -> None:
        """Finish the writes that were taken and let go of the file."""
        file, self._file = self._file, None
        if file is not None:
            await file.writer.stop()
            await anyio.to_thread.run_sync(file.close)

    async def check(self) -> None:
        """Raises StoreUnavailable when writes cannot succeed."""
        if self._opened().sink.failure is not None:
            await self._put(maintenance.probe, None)

    def submit(self, submission: Submission) -> "asyncio.Future[Accepted | Duplicate]":
        """Take a message in, once. Raises: MessageIdConflict, Conflict."""
        if self._file is None:
            return failed(errors.store_closed(str(self._path)))
        key = message_key(submission.run)
        seen = self._file.seen
        taking = Taking(submission, key, may_be_known=seen.may_hold(key))
        seen.add(key)
        return self._file.writer.put(SqliteBatch.submit, taking)

    def commit(self, change: Commit) -> "asyncio.Future[None]":
        """Change a task. Raises: Conflict."""
        return self._put(SqliteBatch.commit, change)

    def start_run(self, run_id: RunId, *, fence: int, attempt: int) -> Awaitable[None]:
        """Note that the agent is about to be asked. Raises: LeaseLost."""
        return self._put(SqliteBatch.start_run, Start(run_id, fence, attempt))

    def finish_run(self, run_id: RunId, *, fence: int, answer: bytes) -> Awaitable[None]:
        """End a run that made no task. Raises: LeaseLost."""
        return self._put(SqliteBatch.finish_run, Answer(run_id, fence, answer))

    async def claim_runs(
        self, owner: OwnerId, *, lease_until: datetime, expired_at: datetime | None
    ) -> list[RunRecord]:
        """Take over runs of other owners, in order of arrival."""
        claim = maintenance.Claim(owner, lease_until, expired_at)
        return await self._put(maintenance.claim_runs, claim)

    async def list_orphaned_tasks(self) -> list[TaskId]:
        """Active tasks that have no run."""
        return self._read(lambda reader: reader.list_orphaned_tasks())

    def renew_leases(self, owner: OwnerId, *, lease_until: datetime) -> Awaitable[None]:
        """Keep all runs of this owner."""
        return self._put(maintenance.renew_leases, maintenance.Renewal(owner, lease_until))

    async def read_task(self, scope: Scope | None, task_id: TaskId) -> StoredTask | None:
        """One task, when it is in scope (None: whoever owns it)."""
        return self._read(lambda reader: reader.read_task(scope, task_id))

    async def list_recent_tasks(self, limit: int) -> list[RecentHead]:
        """The newest tasks of all callers, the one made last first."""
        return self._read(lambda reader: reader.list_recent_tasks(limit))

    async def read_resume_token(self, task_id: TaskId) -> bytes | None:
        """The token its agent left when the task paused."""
        return self._read(lambda reader: reader.read_resume_token(task_id))

    async def read_events(self, task_id: TaskId, *, after: int, limit: int) -> list[Entry]:
        """Committed events with a higher sequence, in order."""
        return self._read(lambda reader: reader.read_events(task_id, after=after, limit=limit))

    async def list_tasks(self, query: TaskQuery) -> TaskPage:
        """Tasks by newest status."""
        return self._read(lambda reader: reader.list_tasks(query))

    async def find_duplicate(
        self, scope: Scope, message_id: MessageId, *, body_hash: bytes | None = None
    ) -> Duplicate | None:
        """What became of a message, when it was ever taken."""
        if not self._opened().seen.may_hold((scope.principal, scope.account, message_id)):
            return None
        return self._read(
            lambda reader: reader.find_duplicate(scope, message_id, body_hash=body_hash)
        )

    def delete_task(self, scope: Scope, task_id: TaskId) -> Awaitable[bool]:
        """Forget an ended task; False when it is not there or not ended."""
        return self._put(maintenance.delete_task, maintenance.Deletion(scope, task_id))

    async def purge(self, retention: Retention) -> PurgeResult:
        """Delete ended tasks, old messages and records."""
        # In portions, so that a long backlog does not hold up other writes.
        gone = await self._forget_tasks(retention)
        await self._in_portions(maintenance.forget_messages, retention)
        await self._in_portions(records.forget, retention)
        return gone

    def put_delivery(self, delivery: Delivery, *, within: int) -> Awaitable[bool]:
        """Keep a delivery; False when its task has too many. Raises: TaskNotFound."""
        return self._put(deliveries.put, deliveries.Put(delivery, within))

    def update_delivery(self, delivery: Delivery) -> Awaitable[bool]:
        """Keep how far a delivery is; False when it is gone, or has another body now."""
        return self._put(deliveries.save, delivery)

    def delete_delivery(self, delivery_id: DeliveryId) -> Awaitable[bool]:
        """Forget a delivery; False when there was none."""
        return self._put(deliveries.drop, delivery_id)

    async def read_delivery(self, delivery_id: DeliveryId) -> Delivery | None:
        """One delivery."""
        return self._read(lambda reader: reader.deliveries.one(delivery_id))

    async def list_task_deliveries(self, task_id: TaskId) -> list[Delivery]:
        """The deliveries of a task, oldest first."""
        return self._read(lambda reader: reader.deliveries.of_task(task_id))

    async def list_unfinished_deliveries(self, *, after: DeliveryId, limit: int) -> DeliveryPage:
        """Deliveries that have, or may yet get, something to bring."""
        return self._read(lambda reader: reader.deliveries.unfinished(after, limit))

    async def list_deliveries(
        self, state: DeliveryState, *, after: DeliveryId, limit: int
    ) -> list[Delivery]:
        """Deliveries in a state, in order of their ids."""
        return self._read(lambda reader: reader.deliveries.in_state(state, after, limit))

    def put_record(self, record: Record) -> Awaitable[None]:
        """Keep a record, in the place of one of its kind with its id."""
        return self._put(records.put, record)

    def update_record(self, record: Record) -> Awaitable[bool]:
        """Keep the next version of a record; False when it is not the next one."""
        return self._put(records.change, record)

    async def read_record(self, kind: str, record_id: str) -> Record | None:
        """One record."""
        return self._read(lambda reader: reader.read_record(kind, record_id))

    def delete_record(self, kind: str, record_id: str) -> Awaitable[bool]:
        """Forget a record; False when there was none."""
        return self._put(records.drop, records.Name(kind, record_id))

    async def list_records(self, kind: str) -> list[Record]:
        """All records of a kind, the one put last at the end."""
        return self._read(lambda reader: reader.list_records(kind))

    def append_log(self, change: LogAppend) -> Awaitable[bool]:
        """Add lines to a log; False when it is not at `after`."""
        return self._put(logs.append, change)

    async def read_log(self, kind: str, log_id: str) -> StoredLog | None:
        """One log, open or closed."""
        return self._read(lambda reader: reader.logs.one(kind, log_id))

    async def list_open_logs(self, kind: str, *, after: str, limit: int) -> list[StoredLog]:
        """Logs that are not closed, in order of their ids."""
        return self._read(lambda reader: reader.logs.page_open(kind, after, limit))

    async def list_log_heads(self, kind: str, *, after: str, limit: int) -> list[LogHead]:
        """All logs, in order of their ids."""
        return self._read(lambda reader: reader.logs.page(kind, after, limit))

    def delete_log(self, kind: str, log_id: str) -> Awaitable[bool]:
        """Forget a log; False when there was none."""
        return self._put(logs.drop, records.Name(kind, log_id))

    async def _forget_tasks(self, retention: Retention) -> PurgeResult:
        gone = PurgeResult(0, retention.after)
        for start in range(0, retention.limit, _PORTION):
            limit = min(_PORTION, retention.limit - start)
            portion = msgspec.structs.replace(retention, limit=limit, after=gone.next_after)
            went = await self._put(maintenance.forget_tasks, portion)
            gone = PurgeResult(gone.count + went.count, went.next_after)
            if gone.next_after is None:
                break
        return gone

    async def _in_portions(
        self, perform: Callable[[SqliteBatch, Retention], int], retention: Retention
    ) -> None:
        portion = msgspec.structs.replace(retention, limit=_PORTION)
        while await self._put(perform, portion) == _PORTION:
            pass

    def _put(
        self, perform: Callable[[SqliteBatch, Order], Result], order: Order
    ) -> "asyncio.Future[Result]":
        if self._file is None:
            return failed(errors.store_closed(str(self._path)))
        return self._file.writer.put(perform, order)

    def _read(self, ask: Callable[[SqliteReader], Result]) -> Result:
        try:
            return ask(self._opened().reader)
        except sqlite3.Error as error:
            raise StoreUnavailable(
                f"the store {self._path} cannot be read: {error}; check the file and its disk"
            ) from error

    def _opened(self) -> "_OpenFile":
        if self._file is None:
            raise errors.store_closed(str(self._path))
        return self._file


class _OpenFile:
    """The locked database with its two connections, and what works on them."""

    def __init__(self, path: Path) -> None:
        self._connections: list[sqlite3.Connection] = []
        self._lock = _lock(path)
        try:
            writing = self._connect(path)
            upgrade_with_backup(writing, path)
            reading = self._connect(path)
            reading.execute("PRAGMA query_only = ON")
        except BaseException as error:
            self.close()
            if isinstance(error, sqlite3.Error):
                raise _cannot_open(path, str(error)) from error
            raise
        self.reader = SqliteReader(reading)
        self.seen = SeenMessages(self.reader.message_keys())
        self.sink = SqliteSink(writing, str(path))
        self.writer: GroupWriter[SqliteBatch] = GroupWriter(str(path), self.sink.write_group)

    def close(self) -> None:
        """Close reading first, so that the last connection folds the write-ahead log in."""
        while self._connections:
            self._connections.pop().close()
        self._lock.release()

    def _connect(self, path: Path) -> sqlite3.Connection:
        # Opened in one thread, used in another, never in two at once.
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connections.append(connection)
        connection.execute("PRAGMA busy_timeout = 5000")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        # Fewer, larger checkpoints: pages that change all the time are carried over less often.
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        return connection


def _lock(path: Path) -> FileLock:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Ours alone to read, before the database driver makes it for everybody.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise _cannot_open(path, error.strerror or str(error)) from error
    return FileLock.acquire(path)


def _cannot_open(path: Path, reason: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"the store {path} cannot be opened: {reason}; "
        "check that the file is ours and the directory may be written"
    )
