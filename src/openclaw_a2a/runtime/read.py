"""Looking at tasks: one, a page of them, or everything that happens to one from a cursor on."""

import msgspec

from openclaw_a2a.model.errors import InvalidParams, Problem, TaskNotFound
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.stored import StoredTask, TaskHead, encode_record
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import TaskPage, TaskQuery
from openclaw_a2a.runtime.engine import Engine
from openclaw_a2a.runtime.feed import Follower
from openclaw_a2a.runtime.view import TaskView


class Following(msgspec.Struct, frozen=True):
    """A follower, and the task as it stands when the follower begins without a cursor."""

    head: TaskHead
    follower: Follower
    snapshot: bytes | None


async def get_task(engine: Engine, scope: Scope, task_id: TaskId) -> StoredTask:
    """The task as it is committed now. Raises: TaskNotFound."""
    stored = await engine.store.read_task(scope, task_id)
    if stored is None:
        raise TaskNotFound(f"there is no task {task_id}")
    return stored


def task_bytes(stored: StoredTask) -> bytes:
    """The whole task in its stored spelling; as stored when nothing came after the snapshot."""
    if not stored.entries:
        return stored.snapshot
    return encode_record(TaskView.of_stored(stored).task())


async def list_tasks(engine: Engine, query: TaskQuery) -> TaskPage:
    """A page of the caller's tasks, newest status first."""
    return await engine.store.list_tasks(query)


async def follow(engine: Engine, scope: Scope, task_id: TaskId, *, cursor: int | None) -> Following:
    """Follow a task: from a cursor what was missed and what comes; without one, a snapshot first.

    Raises: TaskNotFound, InvalidParams (a cursor the task never had).
    """
    stored = await get_task(engine, scope, task_id)
    if cursor is not None and not 0 <= cursor <= stored.head.sequence:
        text = f"is {cursor}; task {task_id} has events 0 to {stored.head.sequence}"
        problem = Problem("Last-Event-ID", text)
        raise InvalidParams(f"Last-Event-ID {text}", problems=(problem,))
    snapshot = task_bytes(stored) if cursor is None else None
    start = stored.head.sequence if cursor is None else cursor
    return Following(stored.head, follow_from(engine, task_id, start), snapshot)


def follow_from(engine: Engine, task_id: TaskId, cursor: int) -> Follower:
    """A follower of a task that is known to be the caller's."""
    live = engine.live.get(task_id)
    feed = live.journal.feed if live is not None else None
    return Follower(engine.store, task_id, cursor=cursor, feed=feed)
