"""Looking at tasks: one, a page of them, or everything that happens to one from a cursor on."""

import msgspec

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.engine.tasks.subscription import Subscription
from openclaw_a2a.model.errors import InvalidParams, Problem, TaskNotFound
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.records import StoredTask, TaskHead, encode_json
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import TaskPage, TaskQuery


class TaskSubscription(msgspec.Struct, frozen=True):
    """A follower, and the task as it stands when the follower begins without a cursor."""

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
    """The whole task in its stored spelling; as stored when nothing came after the snapshot."""
    if not stored.entries:
        return stored.snapshot
    return encode_json(TaskProjection.from_stored(stored).task())


async def list_tasks(engine: Engine, query: TaskQuery) -> TaskPage:
    """A page of the caller's tasks, newest status first."""
    return await engine.store.tasks.list_tasks(query)


async def subscribe(
    engine: Engine, scope: Scope, task_id: TaskId, *, cursor: int | None
) -> TaskSubscription:
    """Follow a task: from a cursor what was missed and what comes; without one, a snapshot first.

    Raises: TaskNotFound, InvalidParams (a cursor the task never had).
    """
    stored = await get_task(engine, scope, task_id)
    if cursor is not None and not 0 <= cursor <= stored.head.sequence:
        text = f"is {cursor}; task {task_id} has events 0 to {stored.head.sequence}"
        problem = Problem("Last-Event-ID", text)
        raise InvalidParams(f"Last-Event-ID {text}", problems=(problem,))
    snapshot = task_json(stored) if cursor is None else None
    start = stored.head.sequence if cursor is None else cursor
    return TaskSubscription(stored.head, subscribe_from(engine, task_id, start), snapshot)


def subscribe_from(engine: Engine, task_id: TaskId, cursor: int) -> Subscription:
    """A follower of a task that is known to be the caller's."""
    live = engine.active_tasks.get(task_id)
    feed = live.journal.feed if live is not None else None
    return Subscription(engine.store.tasks, task_id, cursor=cursor, feed=feed)
