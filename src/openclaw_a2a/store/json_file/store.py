"""The json-file store: one JSON file per task, as other programs read and write them.

Everything is in memory too, twice: `_accepted` has every write that was accepted, and later writes
are checked against it; `_durable` has every write that is on disk, and reads see only that. When
the disk fails, `_accepted` is rebuilt from `_durable` and a new epoch begins.

Both are changed in the event loop only. The writer thread gets what it needs of a task with the
command, and never looks at them.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import anyio.to_thread

from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import CorruptRecord, GatewayError, StoreUnavailable
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.records import decode_task
from openclaw_a2a.model.task import is_active
from openclaw_a2a.ports import Commit, Duplicate, LogAppend, LogHead, Store, StoredLog
from openclaw_a2a.settings.files import make_private_folder
from openclaw_a2a.store.commands import ChangeTask, Submit
from openclaw_a2a.store.group_writer import GroupWriter, failed
from openclaw_a2a.store.json_file.log_files import LogFolder
from openclaw_a2a.store.json_file.record_files import RecordFolder
from openclaw_a2a.store.json_file.writer import (
    Command,
    DiskChange,
    RecordWriter,
    compact_log,
    load_folder,
)
from openclaw_a2a.store.locks import WriterLock
from openclaw_a2a.store.memory.state import MemoryState, StateCommand
from openclaw_a2a.store.memory.store import StateDeliveryStore, StateRecordStore, StateTaskStore
from openclaw_a2a.store.rules import check_free_space, store_closed

log = get_logger(__name__)

LOCK_WAIT_S = 10.0
"""How long to wait for another process to release the directory."""
LOG_LIMIT = 16 * 1024 * 1024
"""The size in bytes at which the write-ahead log is compacted."""

Result = TypeVar("Result")


class JsonFileStore(Store):
    """Everything in memory, and in a directory that one process writes."""

    is_durable = True

    def __init__(
        self,
        directory: str | Path,
        *,
        logs_directory: str | Path | None = None,
        lock_wait_s: float = LOCK_WAIT_S,
        log_limit: int = LOG_LIMIT,
    ) -> None:
        self._path = path = Path(directory).expanduser()
        self._lock_wait_s = lock_wait_s
        self._log_limit = log_limit
        self._compaction: asyncio.Future[None] | None = None
        self._folder = RecordFolder(path)
        self._lock = WriterLock(path)
        self._files = RecordWriter(self._folder, self._lock)
        # `_files` is looked up for each group: `open` replaces it.
        self.writer: GroupWriter[Command] = GroupWriter(
            str(path), lambda group: self._files.write_group(group), self._on_written
        )
        self._durable = self._accepted = MemoryState()
        self._epoch = 0
        self._open_records: set[TaskId] = set()
        """The tasks whose record is open in the writer thread."""
        self._parts = (
            StateTaskStore(self._durable, self._write),
            StateDeliveryStore(self._durable, self._write),
            StateRecordStore(self._durable, self._write),
        )
        self.tasks, self.deliveries, self.records = self._parts
        logs_path = None if logs_directory is None else Path(logs_directory).expanduser()
        self.logs = self._log_files = JsonLogStore(path.parent, logs_path, self.writer)

    async def open(self) -> None:
        """Lock the directory and load every record. Raises: StoreLocked, StoreUnavailable.

        A record that cannot be read is reported and left alone; the others are served.
        """
        try:
            # One process writes here. Other programs of the owner's may read the folder; the
            # files in it are the owner's alone.
            repaired = await anyio.to_thread.run_sync(make_private_folder, self._path, 0o022)
            if repaired is not None:
                log.warning("store.folder_made_private", reason=repaired)
            await self._lock.acquire(self._lock_wait_s)
        except OSError as error:
            raise StoreUnavailable(
                f"the store {self._path} cannot be opened: {error.strerror or error}; "
                "check that it is a directory that may be written"
            ) from error
        try:
            self._files = RecordWriter(self._folder, self._lock)
            state = await anyio.to_thread.run_sync(load_folder, self._folder, self._files)
        except BaseException:
            self._lock.release()
            raise
        self._durable = state
        self._reset_accepted()
        # The thread last: it must not write before the log of the last process is replayed.
        self.writer.start()

    async def close(self) -> None:
        """Finish the accepted writes, compact the log and release the directory."""
        if self.writer.is_running:
            await self.writer.stop()
            await anyio.to_thread.run_sync(self._close_files, compact_log(self._durable))

    async def check(self) -> None:
        self.writer.check()
        check_free_space(self._path)
        if self._files.failure is not None:
            await self.writer.write(DiskChange(self._epoch))
        if self._files.failure is not None:
            raise StoreUnavailable(
                f"the store {self._path} cannot be written: {self._files.failure}; "
                "check the disk (space, permissions)"
            )

    def _close_files(self, compacted: bytes) -> None:
        self._files.compact(compacted, self._epoch)
        self._folder.close_log()
        self._log_files.close()
        # The lock last: its next owner must find the files complete.
        self._lock.release()

    def _write(self, command: StateCommand) -> "asyncio.Future[Any]":
        """Accept a write: checked now against all earlier ones, reported when it is durable.

        What changes nothing waits too: a refusal may rest on a write that is not durable yet.
        """
        task_id, change = TaskId(""), None
        if isinstance(command, ChangeTask):
            task_id, change = command.change.head.id, command.change
        elif isinstance(command, Submit):
            task_id, change = command.submission.run.task_id, command.submission.commit
        try:
            # Before anything is accepted: a command that is applied to `_accepted` and never queued
            # would stay there until the next failure of the disk.
            self.writer.check()
        except StoreUnavailable as error:
            return failed(error)
        try:
            if change is not None:
                _check_decodable(change)
            # The task as it is now, if the writer thread has closed its record. A copy: the
            # thread reads it while later writes change the row.
            row = None if task_id in self._open_records else self._accepted.tasks.get(task_id)
            row = None if row is None else row.copy()
            result = self._accepted.apply(command)
        except GatewayError as error:
            return self.writer.write(DiskChange(self._epoch, result=error))
        if isinstance(result, Duplicate) or result is False or result == []:
            return self.writer.write(DiskChange(self._epoch, result=result))
        if change is not None:
            # As the writer thread will do it, when it gets there.
            if is_active(change.head.state):
                self._open_records.add(task_id)
            else:
                self._open_records.discard(task_id)
        return self.writer.write(DiskChange(self._epoch, command, result, row))

    def _on_written(self, change: Command, error: GatewayError | None) -> None:
        """Follow the disk, before the caller of the write continues."""
        if not isinstance(change, DiskChange):
            return
        if error is not None and error is not change.result:
            # The disk failed: nothing accepted since the last durable write has happened. The
            # first failure of an epoch says so; the rest of it fails in the writer, unchecked.
            if change.epoch == self._epoch:
                self._epoch += 1
                self._reset_accepted()
        elif change.command is not None:
            # The same commands in the same order as in `_accepted`: it cannot be refused.
            self._durable.apply(change.command)
            self._compact_if_due()

    def _reset_accepted(self) -> None:
        self._accepted = self._durable.copy()
        for part in self._parts:
            part.state, part.accepted = self._durable, self._accepted
        self._open_records.clear()

    def _compact_if_due(self) -> None:
        is_compacting = self._compaction is not None and not self._compaction.done()
        # The size is written by the writer thread; an old value only delays the compaction.
        if is_compacting or self._folder.log_size <= self._log_limit:
            return
        # From `_accepted`: the new log replaces the commands that are queued before it, too.
        compacted = compact_log(self._accepted)
        # Or a log that is large even when compacted would be compacted after every write.
        self._log_limit = max(self._log_limit, 2 * len(compacted))
        self._compaction = self.writer.write(partial(self._files.compact, compacted, self._epoch))


class JsonLogStore:
    """The log store: logs have files of their own, written by the same thread as the records.

    Every kind of log has a directory in `parent`; `objectives` overrides that of one kind.
    """

    def __init__(self, parent: Path, objectives: Path | None, writer: GroupWriter[Command]) -> None:
        self._parent = parent
        self._folders = {} if objectives is None else {"objective": LogFolder(objectives)}
        self._writer = writer

    def append_log(self, change: LogAppend) -> Awaitable[bool]:
        return self._writer.write(partial(self._folder(change.kind).append, change))

    async def read_log(self, kind: str, log_id: str) -> StoredLog | None:
        return await self._read(kind, lambda folder: folder.read(log_id))

    async def list_open_logs(self, kind: str, *, after: str, limit: int) -> list[StoredLog]:
        return await self._read(kind, lambda folder: folder.page_open(after, limit))

    async def list_log_heads(self, kind: str, *, after: str, limit: int) -> list[LogHead]:
        return await self._read(kind, lambda folder: folder.page(after, limit))

    def delete_log(self, kind: str, log_id: str) -> Awaitable[bool]:
        return self._writer.write(partial(self._folder(kind).delete, log_id))

    def close(self) -> None:
        """Release the directories."""
        for folder in self._folders.values():
            folder.close()

    def _folder(self, kind: str) -> LogFolder:
        if kind not in self._folders:
            self._folders[kind] = LogFolder(self._parent / f"{quote(kind, safe='')}s")
        return self._folders[kind]

    async def _read(self, kind: str, read: Callable[[LogFolder], Result]) -> Result:
        if not self._writer.is_running:
            raise store_closed(str(self._parent))
        folder = self._folder(kind)
        try:
            # In a worker thread, beside the writer thread: the folder has a mutex of its own.
            return await anyio.to_thread.run_sync(read, folder)
        except OSError as error:
            raise StoreUnavailable(
                f"the logs of the store {folder.path} cannot be read: {error}; "
                "check the disk (permissions)"
            ) from error


def _check_decodable(change: Commit) -> None:
    """Record files hold content, not stored bytes, so the bytes must be decodable."""
    try:
        for entry in change.entries:
            _ = entry.event
        if change.snapshot is not None:
            decode_task(change.snapshot)
    except CorruptRecord as error:
        raise CorruptRecord(
            f"a change of task {change.head.id!r} holds no task or event: {error.message}"
        ) from error
