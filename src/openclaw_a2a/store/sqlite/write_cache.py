"""The writer's cache of live rows, so that most checks of a write need no query.

One process has the database to itself, so nothing changes a row behind the cache. A failed
transaction leaves it wrong; it is thrown away then and loaded again.
"""

import sqlite3
from typing import Self

from openclaw_a2a.model.ids import OwnerId, RunId, TaskId
from openclaw_a2a.model.records import RunRecord, TaskHead
from openclaw_a2a.model.turn import Binding
from openclaw_a2a.ports import MessageKey, message_key
from openclaw_a2a.store.sqlite.row_codec import encode_binding

MAX_TASKS = 10_000
"""How many unfinished tasks are cached; beyond that the cache starts anew."""

_SELECT_RUNS = """
SELECT id, ticket, fence, owner, is_started, attempt, principal, account, message_id FROM run"""
_SELECT_TASK = "SELECT number, sequence, state, binding, resume FROM task WHERE id = ?"
_SELECT_LAST_TASK = "SELECT coalesce(max(number), 0) FROM task"


class CachedRun:
    """A run that has a row, or gets one with this transaction."""

    __slots__ = ("attempt", "fence", "is_started", "message", "owner", "ticket")

    def __init__(self, ticket: int, fence: int, owner: OwnerId, message: MessageKey) -> None:
        self.ticket = ticket
        self.fence = fence
        self.owner = owner
        self.message = message
        self.is_started = False
        self.attempt = 1


class CachedTask:
    """A task that has a row, or gets one with this transaction.

    `head` is the newest one committed through the cache (None: only the row has it), `counted`
    the state under which the task is counted in the tally (None: not yet).
    """

    __slots__ = ("_binding", "_binding_column", "counted", "head", "number", "resume", "sequence")

    def __init__(self, number: int) -> None:
        self.number = number
        self.sequence = -1
        self.counted: int | None = None
        self.head: TaskHead | None = None
        self.resume: bytes | None = None
        self._binding: Binding | None = None
        self._binding_column: bytes | None = None

    @classmethod
    def load(cls, connection: sqlite3.Connection, task_id: TaskId) -> Self | None:
        """Load a task from the database."""
        row = connection.execute(_SELECT_TASK, (task_id,)).fetchone()
        if row is None:
            return None
        task = cls(row[0])
        _, task.sequence, task.counted, task._binding_column, task.resume = row
        return task

    def binding_column(self, binding: Binding | None) -> bytes | None:
        """The column value of a binding, encoded again only if it is another object."""
        if binding is not self._binding:
            self._binding, self._binding_column = binding, encode_binding(binding)
        return self._binding_column if binding is not None else None


class WriteCache:
    """All live runs, and the unfinished tasks that were changed last."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._tasks: dict[TaskId, CachedTask] = {}
        self.runs: dict[RunId, CachedRun] = {}
        self._last_task: int = connection.execute(_SELECT_LAST_TASK).fetchone()[0]
        for row in connection.execute(_SELECT_RUNS):
            run = CachedRun(row[1], row[2], row[3], (row[6], row[7], row[8]))
            run.is_started, run.attempt = bool(row[4]), row[5]
            self.runs[row[0]] = run
        self._last_ticket = max((run.ticket for run in self.runs.values()), default=0)

    def add_run(self, record: RunRecord) -> CachedRun:
        """Add a new run, with the next ticket."""
        self._last_ticket += 1
        run = CachedRun(self._last_ticket, record.fence, record.owner, message_key(record))
        run.is_started, run.attempt = record.is_started, record.attempt
        self.runs[record.id] = run
        return run

    def find_task(self, task_id: TaskId) -> CachedTask | None:
        """The task, if it is stored."""
        task = self._tasks.get(task_id)
        if task is None:
            task = CachedTask.load(self._connection, task_id)
            if task is not None:
                self._tasks[task_id] = task
        return task

    def add_task(self, task_id: TaskId) -> CachedTask:
        """Add a new task, with the next number."""
        self._last_task += 1
        task = self._tasks[task_id] = CachedTask(self._last_task)
        return task

    def drop_task(self, task_id: TaskId) -> None:
        """Remove a task from the cache."""
        self._tasks.pop(task_id, None)

    def trim(self) -> None:
        """Bound the memory. Only after a flush: everything cached must be in the database."""
        if len(self._tasks) > MAX_TASKS:
            self._tasks.clear()
