"""The errors that every kind of store raises."""

from openclaw_a2a.model.errors import (
    AlreadyExists,
    Conflict,
    LeaseLost,
    MessageIdConflict,
    StoreUnavailable,
    TaskDeleted,
    TaskNotFound,
)
from openclaw_a2a.model.ids import MessageId, RunId, TaskId


def message_id_conflict(message_id: MessageId) -> MessageIdConflict:
    """Another body was taken under this message id."""
    return MessageIdConflict(
        f"message id {message_id!r} was used before with another body; "
        "send the same body again, or use a new message id",
        details={"messageId": message_id},
    )


def task_conflict(task_id: TaskId, *, found: int, expected: int) -> Conflict:
    """The task is at another sequence than the writer expects (-1: not stored)."""
    if found < 0:
        return TaskDeleted(f"task {task_id!r} is not stored; it was deleted, or never created")
    if expected < 0:
        return AlreadyExists(f"task {task_id!r} is stored already; read it and continue from there")
    return Conflict(
        f"task {task_id!r} is at sequence {found}, not {expected}: another writer changed it; "
        "read it again"
    )


def no_task(task_id: TaskId) -> TaskNotFound:
    """A delivery for a task that is not stored."""
    return TaskNotFound(f"there is no task {task_id}")


def run_lost(run_id: RunId, *, found: int | None, fence: int) -> LeaseLost:
    """The run ended, or another owner claimed it."""
    if found is None:
        return LeaseLost(f"run {run_id!r} is not stored any more: it ended; stop writing for it")
    return LeaseLost(
        f"run {run_id!r} has fence {found}, not {fence}: another owner claimed it; "
        "stop writing for it"
    )


def record_exists(kind: str, record_id: str) -> AlreadyExists:
    """The record of a submission is stored already."""
    return AlreadyExists(
        f"the {kind} record {record_id!r} is stored already and its message was not accepted; "
        "read the record, or send the message with a record of another id"
    )


def store_closed(name: str) -> StoreUnavailable:
    """The write came after the store was closed, or before it was opened."""
    return StoreUnavailable(f"the store {name} is not open; the gateway is starting or stopping")


def write_failed(name: str, reason: BaseException | str) -> StoreUnavailable:
    """The disk did not take the write."""
    error = StoreUnavailable(
        f"the store {name} did not take the write: {reason}; "
        "check the disk (space, permissions) and try again"
    )
    if isinstance(reason, BaseException):
        error.__cause__ = reason
    return error
