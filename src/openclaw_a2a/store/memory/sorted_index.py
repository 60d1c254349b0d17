"""Sorted indexes over tasks, so that a page costs the same at any size."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from datetime import datetime
from itertools import islice

from openclaw_a2a.model.ids import ContextId, TaskId
from openclaw_a2a.model.records import TaskHead
from openclaw_a2a.model.task import TaskState, is_terminal
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import TaskKey, TaskQuery

StatusKey = tuple[datetime, TaskId]
"""When the status was set, and the task."""

_Group = tuple[Scope, TaskState | ContextId | None]


class TaskIndex:
    """The tasks of a caller by newest status: all, by state, by context; and the finished ones.

    Each is a sorted list, oldest first: new statuses land at the end, where inserting is cheap.
    """

    def __init__(self) -> None:
        self._groups: dict[_Group, list[StatusKey]] = {}
        self._states: dict[TaskId, TaskState] = {}
        self.finished: list[StatusKey] = []

    def add(self, head: TaskHead) -> None:
        """Insert a task."""
        key: StatusKey = (head.status_at, head.id)
        self._states[head.id] = head.state
        for group in _groups_of(head):
            insort(self._groups.setdefault(group, []), key)
        if is_terminal(head.state):
            insort(self.finished, key)

    def remove(self, head: TaskHead) -> None:
        """Remove a task, with the head it was added with."""
        key: StatusKey = (head.status_at, head.id)
        del self._states[head.id]
        for group in _groups_of(head):
            keys = self._groups[group]
            del keys[bisect_left(keys, key)]
            if not keys:
                del self._groups[group]
        if is_terminal(head.state):
            del self.finished[bisect_left(self.finished, key)]

    def page(self, query: TaskQuery) -> list[TaskId]:
        """The tasks of the page, and one more if more follow."""
        return list(islice(self._matching(query, query.after), query.limit + 1))

    def total(self, query: TaskQuery) -> int:
        """The number of tasks on all pages of the query."""
        if query.context_id is not None and query.state is not None:
            return sum(1 for _ in self._matching(query, None))
        keys = self._keys(query)
        return len(keys) - _count_before(keys, query.status_since)

    def oldest_finished(self, after: TaskKey | None, limit: int) -> list[StatusKey]:
        """Finished tasks, oldest first."""
        keys = self.finished
        start = 0 if after is None else bisect_right(keys, (after.status_at, after.id))
        return keys[start : start + limit]

    def _matching(self, query: TaskQuery, after: TaskKey | None) -> Iterator[TaskId]:
        keys = self._keys(query)
        end = len(keys) if after is None else bisect_left(keys, (after.status_at, after.id))
        for index in range(end - 1, _count_before(keys, query.status_since) - 1, -1):
            task_id = keys[index][1]
            if query.state is None or self._states[task_id] is query.state:
                yield task_id

    def _keys(self, query: TaskQuery) -> list[StatusKey]:
        group = query.state if query.context_id is None else query.context_id
        return self._groups.get((query.scope, group), [])


def _count_before(keys: list[StatusKey], time: datetime | None) -> int:
    return 0 if time is None else bisect_left(keys, (time, TaskId("")))


def _groups_of(head: TaskHead) -> tuple[_Group, ...]:
    return (head.scope, None), (head.scope, head.state), (head.scope, head.context_id)
