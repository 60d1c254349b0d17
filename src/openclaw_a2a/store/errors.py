"""The sentences with which every kind of store refuses a write."""

from openclaw_a2a.model.errors import LeaseLost, MessageIdConflict, StoreUnavailable
from openclaw_a2a.model.ids import MessageId, RunId, TaskId


def message_id_conflict(message_id: MessageId) -> MessageIdConflict:
    """Another body was taken under this message id."""
    return MessageIdConflict(
        f"message id {message_id!r} was used before with another body; "
        "send the same body again, or use a new message id",
        details={"messageId": message_id},
    )


def task_moved_on(task_id: TaskId, *, found: int, expected: int) -> LeaseLost:
    """The task is not where the writer thought it was."""
    if found < 0:
        return LeaseLost(f"task {task_id!r} is not stored; it was deleted, or never created")
    if expected < 0:
        return LeaseLost(f"task {task_id!r} is stored already; read it and go on from there")
    return LeaseLost(
        f"task {task_id!r} is at sequence {found}, not {expected}: "
        "somebody else changed it; read it again"
    )


def run_lost(run_id: RunId, *, found: int | None, fence: int) -> LeaseLost:
    """The run ended, or somebody else claimed it."""
    if found is None:
        return LeaseLost(f"run {run_id!r} is not stored any more: it ended; stop writing for it")
    return LeaseLost(
        f"run {run_id!r} has fence {found}, not {fence}: another owner claimed it; "
        "stop writing for it"
    )


def record_kept(kind: str, record_id: str) -> LeaseLost:
    """The record that was to come with a message is there already."""
    return LeaseLost(
        f"the {kind} record {record_id!r} is kept already and its message was not taken; "
        "read the record, or send the message with a record of another id"
    )


def store_closed(name: str) -> StoreUnavailable:
    """The write came after the store was closed, or before it was opened."""
    return StoreUnavailable(f"the store {name} is not open; the gateway is starting or stopping")
