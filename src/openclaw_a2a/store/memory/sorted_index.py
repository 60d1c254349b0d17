"""Sorted indexes over tasks and messages, so that a page costs the same at any size."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice

from openclaw_a2a.model.ids import ContextId, TaskId
from openclaw_a2a.model.records import TaskHead
from openclaw_a2a.model.task import TaskState, is_terminal
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import Retention, TaskKey, TaskQuery

StatusKey = tuple[datetime, TaskId]
"""When the status was set, and the task."""

_Group = tuple[Scope, TaskState | ContextId | None]


class TaskIndex:
    """The tasks of a caller by newest status: all, by state, by context; and the finished ones."""

    def __init__(self) -> None:
        self._groups: dict[_Group, _SortedKeys] = {}
        self._finished = _SortedKeys()
        self._states: dict[TaskId, TaskState] = {}

    def add(self, head: TaskHead) -> None:
        """Insert a task."""
        key: StatusKey = (head.status_at, head.id)
        self._states[head.id] = head.state
        for group in _groups_of(head):
            self._groups.setdefault(group, _SortedKeys()).add(key)
        if is_terminal(head.state):
            self._finished.add(key)

    def remove(self, head: TaskHead) -> None:
        """Remove a task, with the head it was added with."""
        key: StatusKey = (head.status_at, head.id)
        del self._states[head.id]
        for group in _groups_of(head):
            keys = self._groups[group]
            keys.remove(key)
            if not keys:
                del self._groups[group]
        if is_terminal(head.state):
            self._finished.remove(key)

    def page(self, query: TaskQuery) -> list[TaskId]:
        """The tasks of the page, and one more if more follow."""
        after = None if query.after is None else (query.after.status_at, query.after.id)
        return list(islice(self._matching(query, after), query.limit + 1))

    def total(self, query: TaskQuery) -> int:
        """The number of tasks on all pages of the query."""
        keys = self._keys(query)
        if query.context_id is not None and query.state is not None:
            return sum(1 for _ in self._matching(query, None))
        return len(keys) - (keys.count_before(query.status_since) if query.status_since else 0)

    def purgeable(
        self, retention: Retention, is_held: Callable[[TaskId], bool]
    ) -> tuple[list[TaskId], TaskKey | None]:
        """Finished tasks that are too old or too many and not held; the key to continue after."""
        after, overdue = retention.after, retention.undelivered_before
        examined = self._finished.oldest(
            retention.limit, None if after is None else (after.status_at, after.id)
        )
        surplus = len(self._finished) - retention.keep_ended
        purged: list[TaskId] = []
        for ended_at, task_id in examined:
            if len(purged) >= surplus and ended_at >= retention.ended_before:
                return purged, None
            if (overdue is not None and ended_at < overdue) or not is_held(task_id):
                purged.append(task_id)
        return purged, TaskKey(*examined[-1]) if len(examined) == retention.limit else None

    def _matching(self, query: TaskQuery, after: StatusKey | None) -> Iterator[TaskId]:
        for task_id in self._keys(query).newest_first(after, query.status_since):
            if query.state is None or self._states[task_id] is query.state:
                yield task_id

    def _keys(self, query: TaskQuery) -> "_SortedKeys":
        group = query.state if query.context_id is None else query.context_id
        return self._groups.get((query.scope, group)) or _SortedKeys()


class TimeIndex:
    """Keys by a time that never changes, for removing the oldest."""

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        self._keys: list[tuple[datetime, tuple[str, ...]]] = []

    def add(self, time: datetime, key: tuple[str, ...]) -> None:
        """Insert a key."""
        insort(self._keys, (time, key))

    def pop_before(self, time: datetime) -> list[tuple[str, ...]]:
        """Remove and return every key that is older."""
        end = bisect_left(self._keys, (time, ()))
        popped = [key for _, key in self._keys[:end]]
        del self._keys[:end]
        return popped


class _SortedKeys:
    """Keys, oldest first: new statuses land at the end, where inserting is cheap."""

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        self._keys: list[StatusKey] = []

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: StatusKey) -> None:
        insort(self._keys, key)

    def remove(self, key: StatusKey) -> None:
        del self._keys[bisect_left(self._keys, key)]

    def oldest(self, count: int, after: StatusKey | None) -> list[StatusKey]:
        start = 0 if after is None else bisect_right(self._keys, after)
        return self._keys[start : start + count]

    def count_before(self, time: datetime) -> int:
        return bisect_left(self._keys, (time, TaskId("")))

    def newest_first(self, before: StatusKey | None, since: datetime | None) -> Iterator[TaskId]:
        end = len(self._keys) if before is None else bisect_left(self._keys, before)
        start = 0 if since is None else self.count_before(since)
        return (self._keys[index][1] for index in range(end - 1, start - 1, -1))


def _groups_of(head: TaskHead) -> tuple[_Group, ...]:
    return (head.scope, None), (head.scope, head.state), (head.scope, head.context_id)
