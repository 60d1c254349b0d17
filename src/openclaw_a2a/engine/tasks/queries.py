"""Reads tasks: one, a page of them, or the events of one from a cursor on."""

import msgspec

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.engine.tasks.subscription import Subscription
from openclaw_a2a.model.errors import InvalidParams, Problem, TaskNotFound
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.records import StoredTask, TaskHead, encode_json
from openclaw_a2a.model.turn import Scope


class TaskSubscription(msgspec.Struct, frozen=True):
    """A subscription; without a cursor, with the task as it is when the subscription starts."""

    head: TaskHead
    subscription: Subscription
    snapshot: bytes | None


async def get_task(engine: Engine, scope: Scope, task_id: TaskId) -> StoredTask:
    """The task as it is committed now. Raises: TaskNotFound."""
    stored = await engine.store.tasks.read_task(scope, task_id)
    if stored is None:
        raise TaskNotFound(f"there is no task {task_id}")
    return stored


def task_json(stored: StoredTask) -> bytes:
    """The whole task in its stored form; the snapshot itself when no event came after it."""
    if not stored.entries:
        return stored.snapshot
    return encode_json(TaskProjection.from_stored(stored).task())


async def subscribe(
    engine: Engine, scope: Scope, task_id: TaskId, *, cursor: int | None
) -> TaskSubscription:
    """Subscribe to a task: from a cursor on, or with a snapshot first.

    Raises: TaskNotFound, InvalidParams (a cursor the task never had).
    """
    stored = await get_task(engine, scope, task_id)
    sequence = stored.head.sequence
    if cursor is not None and not 0 <= cursor <= sequence:
        text = f"is {cursor}; task {task_id} has events 0 to {sequence}"
        problem = Problem("Last-Event-ID", text)
        raise InvalidParams(f"Last-Event-ID {text}", problems=(problem,))
    snapshot = task_json(stored) if cursor is None else None
    start = sequence if cursor is None else cursor
    return TaskSubscription(stored.head, subscribe_from(engine, task_id, start), snapshot)


def subscribe_from(engine: Engine, task_id: TaskId, cursor: int) -> Subscription:
    """A subscription to a task that the caller is known to own."""
    active = engine.active_tasks.get(task_id)
    feed = active.journal.feed if active is not None else None
    return Subscription(engine.store.tasks, task_id, cursor=cursor, feed=feed)
