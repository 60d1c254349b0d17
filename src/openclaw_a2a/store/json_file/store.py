"""The store of record files: one JSON file per task, as other programs read and write them."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import anyio.to_thread
import msgspec

from openclaw_a2a.model.delivery import Delivery, DeliveryId, DeliveryState
from openclaw_a2a.model.errors import CorruptRecord, GatewayError, StoreUnavailable
from openclaw_a2a.model.ids import MessageId, OwnerId, RunId, TaskId
from openclaw_a2a.model.records import Entry, RunRecord, StoredTask, decode_task
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
from openclaw_a2a.store.group_writer import GroupWriter, failed
from openclaw_a2a.store.json_file.log_files import LogFolder, LogFolders
from openclaw_a2a.store.json_file.record_files import RecordsFolder
from openclaw_a2a.store.json_file.wal import (
    AnswerLine,
    AnyLine,
    ChangeRecordLine,
    ClaimLine,
    CommitLine,
    DeliveryLine,
    DropLine,
    DropRecordLine,
    ForgetLine,
    ProgressLine,
    RecordLine,
    RenewLine,
    StartLine,
    SubmitLine,
    standing_lines,
)
from openclaw_a2a.store.json_file.writer import Change, JsonFiles, Loaded, load_folder
from openclaw_a2a.store.locks import WriterLock
from openclaw_a2a.store.memory.state import Ledger

LOCK_WAIT_S = 10.0
"""How long to wait for another process to let go of the directory."""
LOG_LIMIT = 16 * 1024 * 1024
"""How many bytes the log may have before it is written anew."""

Result = TypeVar("Result")


class JsonFileStore:
    """Everything in memory, and in a directory that one process writes.

    Two ledgers: a write is checked against `_ahead`, which has everything that was taken, and
    reads are answered from `_shown`, which has what is durable.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        logs_directory: str | Path | None = None,
        lock_wait_s: float = LOCK_WAIT_S,
        log_limit: int = LOG_LIMIT,
    ) -> None:
        self._path = Path(directory).expanduser()
        self._logs_path = None if logs_directory is None else Path(logs_directory).expanduser()
        self._lock_wait_s = lock_wait_s
        self._log_limit = log_limit
        self._open: _OpenFolder | None = None
        self._ahead = Ledger()
        self._shown = Ledger()
        self._broken: dict[TaskId, str] = {}
        self._epoch = 0

    @property
    def tasks(self) -> Self:
        """The task store."""
        return self

    deliveries = records = logs = tasks

    @property
    def is_durable(self) -> bool:
        """What was committed survives the process and the machine."""
        return True

    async def open(self) -> None:
        """Take the directory's lock and load every record. Raises: StoreLocked, StoreUnavailable.

        A record that cannot be read is reported and left alone; the others are served.
        """
        logs = LogFolders(self._path.parent, self._logs_path)
        opened = _OpenFolder(self._path, self._log_limit, logs)
        try:
            await anyio.to_thread.run_sync(opened.make)
            await opened.lock.acquire(self._lock_wait_s)
        except OSError as error:
            raise StoreUnavailable(
                f"the store {self._path} cannot be opened: {error.strerror}; "
                "check that it is a directory that may be written"
            ) from error
        try:
            loaded = await anyio.to_thread.run_sync(opened.load)
        except BaseException:
            opened.lock.release()
            raise
        self._broken, self._shown, self._ahead = loaded.broken, loaded.ledger, loaded.ledger.copy()
        opened.writer.start()
        self._open = opened

    async def close(self) -> None:
        """Finish the writes that were taken and let go of the directory."""
        opened, self._open = self._open, None
        if opened is not None:
            await opened.writer.stop()
            await anyio.to_thread.run_sync(opened.close, standing_lines(self._shown))

    async def check(self) -> None:
        """Raises StoreUnavailable when writes cannot succeed."""
        opened = self._opened()
        if opened.files.failure is not None:
            await self._written(None, None)
        if opened.files.failure is not None:
            raise StoreUnavailable(
                f"the store {self._path} cannot be written: {opened.files.failure}; "
                "check the disk (space, permissions)"
            )

    def submit(self, submission: Submission) -> "asyncio.Future[Accepted | Duplicate]":
        """Take a message in, once. Raises: MessageIdConflict, Conflict."""
        task = self._ahead.tasks.get(submission.run.task_id)
        clears_resume = task is not None and task.resume is not None
        line = SubmitLine(submission, clears_resume)
        return self._put(line, change=submission.commit)

    def commit(self, change: Commit) -> "asyncio.Future[None]":
        """Change a task. Raises: Conflict."""
        return self._put(CommitLine(change), change=change)

    def start_run(self, run_id: RunId, *, fence: int, attempt: int) -> Awaitable[None]:
        """Note that the agent is about to be asked. Raises: LeaseLost."""
        return self._put(StartLine(run_id, fence, attempt))

    def finish_run(self, run_id: RunId, *, fence: int, answer: bytes) -> Awaitable[None]:
        """End a run that made no task. Raises: LeaseLost."""
        return self._put(AnswerLine(run_id, fence, answer))

    async def claim_runs(
        self, owner: OwnerId, *, lease_until: datetime, expired_at: datetime | None
    ) -> list[RunRecord]:
        """Take over runs of other owners, in order of arrival."""
        return await self._put(ClaimLine(owner, lease_until, expired_at))

    async def list_orphaned_tasks(self) -> list[TaskId]:
        """Active tasks that have no run."""
        return self._shown.list_orphaned_tasks()

    def renew_leases(self, owner: OwnerId, *, lease_until: datetime) -> Awaitable[None]:
        """Keep all runs of this owner."""
        return self._put(RenewLine(owner, lease_until))

    async def read_task(self, scope: Scope | None, task_id: TaskId) -> StoredTask | None:
        """One task, when it is in scope. Raises: CorruptRecord."""
        self._refuse_broken(task_id)
        return self._shown.read_task(scope, task_id)

    async def list_recent_tasks(self, limit: int) -> list[RecentHead]:
        """The newest tasks of all callers, the one made last first."""
        return self._shown.list_recent_tasks(limit)

    async def read_resume_token(self, task_id: TaskId) -> bytes | None:
        """The token its agent left when the task paused."""
        task = self._shown.tasks.get(task_id)
        return None if task is None else task.resume

    async def read_events(self, task_id: TaskId, *, after: int, limit: int) -> list[Entry]:
        """Committed events with a higher sequence, in order. Raises: CorruptRecord."""
        self._refuse_broken(task_id)
        task = self._shown.tasks.get(task_id)
        return [] if task is None else task.after(after, limit)

    async def list_tasks(self, query: TaskQuery) -> TaskPage:
        """Tasks by newest status; those whose record is broken are left out."""
        return self._shown.list_tasks(query)

    async def find_duplicate(
        self, scope: Scope, message_id: MessageId, *, body_hash: bytes | None = None
    ) -> Duplicate | None:
        """What became of a message, when it was ever taken."""
        return self._shown.find_duplicate(scope, message_id, body_hash=body_hash)

    def delete_task(self, scope: Scope, task_id: TaskId) -> Awaitable[bool]:
        """Forget an ended task; False when it is not there or not ended."""
        is_deletable = self._ahead.is_deletable(scope, task_id)
        line = ForgetLine((task_id,)) if is_deletable else None
        if line is not None:
            line.apply(self._ahead)
        return self._written(line, is_deletable)

    async def purge(self, retention: Retention) -> PurgeResult:
        """Delete ended tasks, old messages and records."""
        gone, next_after = self._ahead.forgettable(retention)
        line = ForgetLine(tuple(gone), retention.messages_before, retention.records_before)
        await self._put(line)
        return PurgeResult(len(gone), next_after)

    def put_delivery(self, delivery: Delivery, *, within: int) -> Awaitable[bool]:
        """Keep a delivery; False when its task has too many. Raises: TaskNotFound."""
        return self._put(DeliveryLine(delivery, within))

    def update_delivery(self, delivery: Delivery) -> Awaitable[bool]:
        """Keep how far a delivery is; False when it is gone, or has another body now."""
        return self._put(ProgressLine(delivery))

    def delete_delivery(self, delivery_id: DeliveryId) -> Awaitable[bool]:
        """Forget a delivery; False when there was none."""
        return self._put(DropLine(delivery_id))

    async def read_delivery(self, delivery_id: DeliveryId) -> Delivery | None:
        """One delivery."""
        return self._shown.deliveries.get(delivery_id)

    async def list_task_deliveries(self, task_id: TaskId) -> list[Delivery]:
        """The deliveries of a task, oldest first."""
        return self._shown.deliveries.of_task(task_id)

    async def list_unfinished_deliveries(self, *, after: DeliveryId, limit: int) -> DeliveryPage:
        """Deliveries that have, or may yet get, something to bring."""
        return self._shown.list_unfinished_deliveries(after, limit)

    async def list_deliveries(
        self, state: DeliveryState, *, after: DeliveryId, limit: int
    ) -> list[Delivery]:
        """Deliveries in a state, in order of their ids."""
        return self._shown.deliveries.in_state(state, after=after, limit=limit)

    def put_record(self, record: Record) -> Awaitable[None]:
        """Keep a record, in the place of one of its kind with its id."""
        return self._put(RecordLine(record))

    def update_record(self, record: Record) -> Awaitable[bool]:
        """Keep the next version of a record; False when it is not the next one."""
        return self._put(ChangeRecordLine(record))

    async def read_record(self, kind: str, record_id: str) -> Record | None:
        """One record."""
        return self._shown.records.get(kind, record_id)

    def delete_record(self, kind: str, record_id: str) -> Awaitable[bool]:
        """Forget a record; False when there was none."""
        return self._put(DropRecordLine(kind, record_id))

    async def list_records(self, kind: str) -> list[Record]:
        """All records of a kind, the one put last at the end."""
        return self._shown.records.of_kind(kind)

    def append_log(self, change: LogAppend) -> Awaitable[bool]:
        """Add lines to a log; False when it is not at `after`. Raises: CorruptRecord."""
        return self._log_write(change.kind, lambda folder: folder.append(change))

    async def read_log(self, kind: str, log_id: str) -> StoredLog | None:
        """One log, open or closed."""
        return await self._log_read(kind, lambda folder: folder.read(log_id))

    async def list_open_logs(self, kind: str, *, after: str, limit: int) -> list[StoredLog]:
        """Logs that are not closed, in order of their ids."""
        return await self._log_read(kind, lambda folder: folder.page_open(after, limit))

    async def list_log_heads(self, kind: str, *, after: str, limit: int) -> list[LogHead]:
        """All logs, in order of their ids."""
        return await self._log_read(kind, lambda folder: folder.page(after, limit))

    def delete_log(self, kind: str, log_id: str) -> Awaitable[bool]:
        """Forget a log; False when there was none."""
        return self._log_write(kind, lambda folder: folder.drop(log_id))

    def _log_write(self, kind: str, write: Callable[[LogFolder], bool]) -> "asyncio.Future[bool]":
        """Logs have files of their own: the writer decides and writes, nothing is remembered."""
        if self._open is None:
            return failed(errors.store_closed(str(self._path)))
        folder = self._open.logs.of_kind(kind)
        return self._open.writer.put(_elsewhere, partial(write, folder))

    async def _log_read(self, kind: str, read: Callable[[LogFolder], Result]) -> Result:
        folder = self._opened().logs.of_kind(kind)
        try:
            return await anyio.to_thread.run_sync(read, folder)
        except OSError as error:
            raise StoreUnavailable(
                f"the logs of the store {self._path} cannot be read: {error}; "
                "check the disk (permissions)"
            ) from error

    def _put(self, line: AnyLine, *, change: Commit | None = None) -> "asyncio.Future[Any]":
        """Take a write: decided now, on top of all before it, and told when it is durable."""
        try:
            if change is not None:
                self._refuse_broken(change.head.id)
                _refuse_unreadable(change)
            result = line.apply(self._ahead)
        except GatewayError as refusal:
            return self._written(None, refusal)
        is_nothing_new = isinstance(result, Duplicate) or result is False or result == []
        return self._written(None if is_nothing_new else line, result)

    def _written(self, line: AnyLine | None, result: object) -> "asyncio.Future[Any]":
        """The result (or the refusal), when the line and everything before it is durable."""
        if self._open is None:
            return failed(errors.store_closed(str(self._path)))
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        change = Change(self._epoch, line)
        written = self._open.writer.put(_on_disk, change)
        written.add_done_callback(lambda done: self._show(change, done, (future, result)))
        return future

    def _show(
        self,
        change: Change,
        written: "asyncio.Future[None]",
        told: "tuple[asyncio.Future[Any], object]",
    ) -> None:
        future, result = told
        error = written.exception()
        if error is not None:
            self._step_back(change.epoch)
        elif change.line is not None:
            change.line.apply(self._shown)
            self._compact_when_due()
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        elif isinstance(result, GatewayError):
            future.set_exception(result)
        else:
            future.set_result(result)

    def _step_back(self, epoch: int) -> None:
        """What was taken since the last durable write did not happen."""
        if epoch == self._epoch:
            self._epoch += 1
            self._ahead = self._shown.copy()

    def _compact_when_due(self) -> None:
        if self._open is not None and self._open.is_log_long:
            self._open.compact(Change(self._epoch, standing=standing_lines(self._ahead)))

    def _refuse_broken(self, task_id: TaskId) -> None:
        if task_id in self._broken:
            raise CorruptRecord(
                f"the record of task {task_id!r} cannot be read: {self._broken[task_id]}; "
                "repair or remove the file and start the gateway again"
            )

    def _opened(self) -> "_OpenFolder":
        if self._open is None:
            raise errors.store_closed(str(self._path))
        return self._open


class _OpenFolder:
    """The locked directory, and what works on it."""

    def __init__(self, path: Path, log_limit: int, logs: LogFolders) -> None:
        self.folder = RecordsFolder(path)
        self.logs = logs
        self.lock = WriterLock(path)
        self.files = JsonFiles(self.folder, self.lock)
        self.writer: GroupWriter[JsonFiles] = GroupWriter(str(path), self.files.write_group)
        self._log_limit = log_limit
        self._is_compacting = False

    def make(self) -> None:
        """Make the directory when there is none; ours alone to read."""
        self.folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def load(self) -> Loaded:
        """Everything in the directory."""
        return load_folder(self.folder, self.files)

    @property
    def is_log_long(self) -> bool:
        """True when the log should be written anew."""
        return not self._is_compacting and self.folder.log_size > self._log_limit

    def compact(self, change: Change) -> None:
        """Have the log written anew; the next time is when it has doubled."""
        self._is_compacting = True
        self._log_limit = max(self._log_limit, 2 * len(change.standing or b""))
        written = self.writer.put(_on_disk, change)
        written.add_done_callback(lambda _: self._compacted())

    def _compacted(self) -> None:
        self._is_compacting = False

    def close(self, standing: bytes) -> None:
        """Leave a short log behind and let the next process in."""
        self.files.compact(standing)
        self.folder.close_log()
        self.logs.close()
        self.lock.release()


def _on_disk(files: JsonFiles, change: Change) -> None:
    """Changes are written as a group; there is nothing to do for one of them."""


def _elsewhere(files: JsonFiles, write: Callable[[], Result]) -> Result:
    """A write that has files of its own."""
    return write()


def _refuse_unreadable(change: Commit) -> None:
    """Record files hold content, not bytes, so it must be readable."""
    try:
        for entry in change.entries:
            _ = entry.event
        if change.snapshot is not None:
            decode_task(change.snapshot)
    except msgspec.DecodeError as error:
        raise CorruptRecord(
            f"a change of task {change.head.id!r} holds no task or event: {error}"
        ) from error
