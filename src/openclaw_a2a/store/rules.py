"""The rules that every kind of store shares: checks of writes, what a purge deletes, errors."""

import os
import stat
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import (
    AlreadyExists,
    Conflict,
    CorruptRecord,
    LeaseLost,
    MessageIdConflict,
    StoreUnavailable,
    TaskDeleted,
    TaskNotFound,
)
from openclaw_a2a.model.ids import MessageId, RunId, TaskId
from openclaw_a2a.model.records import RunRecord
from openclaw_a2a.ports import Commit, MessageKey, PurgeResult, Record, Retention, TaskKey
from openclaw_a2a.settings.files import folder_is_open

log = get_logger(__name__)

UNREADABLE = (ValueError, LookupError, OverflowError, TypeError, RecursionError, CorruptRecord)
"""What decoding a damaged row raises."""

MIN_FREE_BYTES = 1024 * 1024
"""With less free space on its disk a store is not ready: the next write may not fit."""

PROBE_BYTES = 64 * 1024
"""How much is written to see whether a store that failed takes writes again: what an ordinary
message needs. Less could fit into space that the files have already."""

PURGE_BATCH = 100
"""How many tasks or messages one write of a purge examines at most."""

ReportUpgrade = Callable[[str, int], None]
"""Called with the path of a store whose schema was upgraded, and the number of steps."""


class Lease(msgspec.Struct, frozen=True):
    """The lease of one of several gateways: how long it counts as alive without renewal."""

    seconds: float
    label: str = ""


class _Fenced(Protocol):
    @property
    def fence(self) -> int: ...


Run = TypeVar("Run", bound=_Fenced)
ExaminedTask = TypeVar("ExaminedTask", bound=tuple[Any, ...])
Row = TypeVar("Row", bound=Sequence[Any])
Decoded = TypeVar("Decoded")


def message_key(run: RunRecord) -> MessageKey:
    """The key of the idempotency record of this run's message."""
    return run.scope.principal, run.scope.account, run.message.message_id


def check_fence(runs: Mapping[RunId, Run], run_id: RunId, fence: int) -> Run:
    """The live run, if the writer still owns it. Raises: LeaseLost."""
    run = runs.get(run_id)
    if run is None:
        raise LeaseLost(f"run {run_id!r} is not stored any more: it ended; stop writing for it")
    # Every claim raises the fence: an owner that lost the run holds a lower one.
    if run.fence != fence:
        raise LeaseLost(
            f"run {run_id!r} has fence {run.fence}, not {fence}: another owner claimed it; "
            "stop writing for it"
        )
    return run


def check_sequence(change: Commit, found: int) -> None:
    """Check that the task is where the writer expects it; `found` is -1 if it is not stored.

    Raises: TaskDeleted, AlreadyExists, Conflict.
    """
    task_id, expected = change.head.id, change.after
    if found == expected:
        return
    if found < 0:
        raise TaskDeleted(f"task {task_id!r} is not stored; it was deleted, or never created")
    if expected < 0:
        raise AlreadyExists(f"task {task_id!r} is stored already; read it and continue from there")
    raise Conflict(
        f"task {task_id!r} is at sequence {found}, not {expected}: another writer changed it; "
        "read it again"
    )


def check_same_body(stored: bytes, given: bytes | None, message_id: MessageId) -> None:
    """Check that a repeated message has the body of the first. Raises: MessageIdConflict."""
    if given is not None and given != stored:
        raise MessageIdConflict(
            f"message id {message_id!r} was used before with another body; "
            "send the same body again, or use a new message id",
            details={"messageId": message_id},
        )


def choose_purgeable(
    examined: Sequence[ExaminedTask],
    retention: Retention,
    *,
    finished: int,
    is_held: Callable[[ExaminedTask], bool],
) -> tuple[list[ExaminedTask], TaskKey | None]:
    """Which of the examined tasks to delete, and the key to continue after.

    `examined` are finished tasks, oldest first (when they ended, id, ..), at most
    `retention.limit`. Deleted are those that ended too long ago, and those beyond `keep_ended` of
    all `finished`; a task with unfinished deliveries is held back until it is overdue.
    """
    surplus = finished - retention.keep_ended
    overdue = retention.undelivered_before
    purged: list[ExaminedTask] = []
    for task in examined:
        ended_at = task[0]
        if len(purged) >= surplus and ended_at >= retention.ended_before:
            return purged, None
        if (overdue is not None and ended_at < overdue) or not is_held(task):
            purged.append(task)
    if len(examined) < retention.limit:
        return purged, None
    return purged, TaskKey(examined[-1][0], examined[-1][1])


async def purge_in_batches(
    retention: Retention,
    *,
    purge_tasks: Callable[[Retention], Awaitable[PurgeResult]],
    purge_messages: Callable[[], Awaitable[int]],
    purge_records: Callable[[], Awaitable[int]],
) -> PurgeResult:
    """Purge with writes of at most PURGE_BATCH rows: a backlog does not hold up other writes."""
    count, after = 0, retention.after
    for start in range(0, retention.limit, PURGE_BATCH):
        limit = min(PURGE_BATCH, retention.limit - start)
        purged = await purge_tasks(msgspec.structs.replace(retention, limit=limit, after=after))
        count, after = count + purged.count, purged.next_after
        if after is None:
            break
    messages, records = await _repeat(purge_messages), await _repeat(purge_records)
    return PurgeResult(count, after, messages, records)


async def _repeat(purge_batch: Callable[[], Awaitable[int]]) -> int:
    total = 0
    while (deleted := await purge_batch()) == PURGE_BATCH:
        total += deleted
    return total + deleted


def no_task(task_id: TaskId) -> TaskNotFound:
    """A delivery for a task that is not stored."""
    return TaskNotFound(f"task not found: there is no task {task_id}")


@lru_cache(maxsize=1024)
def report_damage(store: str, what: str, name: str, reason: str) -> None:
    """Log a damaged row or file; once, however often a client asks for it."""
    log.error("store.record_damaged", store=store, what=what, id=name, reason=reason)


def decode_rows(
    store: str, what: str, decode: Callable[[Row], Decoded], rows: Iterable[Row]
) -> list[Decoded]:
    """What the rows hold; damaged ones are reported, by their first column, and left out."""
    decoded: list[Decoded] = []
    for row in rows:
        try:
            decoded.append(decode(row))
        except UNREADABLE as error:
            report_damage(store, what, str(row[0]), f"{type(error).__name__}: {error}")
    return decoded


def damaged_task(store: str, task_id: TaskId, reason: BaseException | str) -> CorruptRecord:
    """A task that is stored and cannot be read; the log says why, callers need not know."""
    text = str(reason) if isinstance(reason, str) else f"{type(reason).__name__}: {reason}"
    report_damage(store, "task", task_id, text)
    return CorruptRecord(
        f"the stored record of task {task_id} is damaged and cannot be read; other tasks are not "
        "concerned. The operator finds the reason in the log of the gateway (store.record_damaged)",
        details={"taskId": task_id},
    )


def record_exists(record: Record) -> AlreadyExists:
    """The record of a submission is stored already."""
    return AlreadyExists(
        f"the {record.kind} record {record.id!r} is stored already and its message was not "
        "accepted; read the record, or send the message with a record of another id"
    )


def store_closed(name: str) -> StoreUnavailable:
    """The write came after the store was closed, or before it was opened."""
    return StoreUnavailable(f"the store {name} is not open; the gateway is starting or stopping")


def check_folder_rights(folder: Path) -> None:
    """Raises StoreUnavailable when every user may replace the files of a store in this folder.

    Only looked at, not changed: the folder of a database may be any folder of its owner.
    """
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & 0o002 and not mode & stat.S_ISVTX:
        raise StoreUnavailable(folder_is_open(folder, mode))


def make_private_file(path: Path) -> None:
    """Create a file that only its owner can read, or take the rights of others away.

    Raises: OSError.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        status = os.fstat(descriptor)
        mode = stat.S_IMODE(status.st_mode)
        if mode & 0o077 and status.st_uid == os.geteuid():
            os.fchmod(descriptor, 0o600)
            log.warning("store.file_made_private", file=str(path), mode=f"{mode:04o}")
    finally:
        os.close(descriptor)


def check_free_space(folder: Path) -> None:
    """Raises StoreUnavailable when the disk of a store is as good as full."""
    try:
        disk = os.statvfs(folder)
    except OSError as error:
        raise StoreUnavailable(
            f"the store folder {folder} cannot be read: {error.strerror}; check its disk"
        ) from None
    free = disk.f_bavail * disk.f_frsize
    if free < MIN_FREE_BYTES:
        raise StoreUnavailable(
            f"the disk of the store {folder} is full ({free // 1024} KiB free); free some space"
        )


def write_failed(name: str, reason: BaseException | str) -> StoreUnavailable:
    """The disk did not take the write."""
    error = StoreUnavailable(
        f"the store {name} did not take the write: {reason}; "
        "check the disk (space, permissions) and try again"
    )
    if isinstance(reason, BaseException):
        error.__cause__ = reason
    return error
