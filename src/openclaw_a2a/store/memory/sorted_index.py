"""Tasks in the order of their status, so that a page costs the same at any size."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice

from openclaw_a2a.model.ids import ContextId, TaskId
from openclaw_a2a.model.records import TaskHead
from openclaw_a2a.model.states import is_terminal
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import Retention, TaskKey, TaskQuery

Key = tuple[datetime, TaskId]
"""When the status was set, and the task."""

_Place = tuple[ContextId, TaskState]
_Group = tuple[Scope, TaskState | ContextId | None]


class TaskOrder:
    """Which tasks a caller has, newest status first: all, by state, by context; and the ended."""

    def __init__(self) -> None:
        self._groups: dict[_Group, _OrderedKeys] = {}
        self._ended = _OrderedKeys()
        self._places: dict[TaskId, _Place] = {}

    def add(self, head: TaskHead) -> None:
        """Put a task at its place."""
        key: Key = (head.status_at, head.id)
        self._places[head.id] = (head.context_id, head.state)
        for group in _groups_of(head):
            self._groups.setdefault(group, _OrderedKeys()).add(key)
        if is_terminal(head.state):
            self._ended.add(key)

    def remove(self, head: TaskHead) -> None:
        """Take a task out, as it was put in."""
        key: Key = (head.status_at, head.id)
        del self._places[head.id]
        for group in _groups_of(head):
            keys = self._groups[group]
            keys.remove(key)
            if not keys:
                del self._groups[group]
        if is_terminal(head.state):
            self._ended.remove(key)

    def page(self, query: TaskQuery) -> list[TaskId]:
        """The tasks of the page and, when more follow, one of them."""
        after = None if query.after is None else (query.after.status_at, query.after.id)
        return list(islice(self._matching(query, after), query.limit + 1))

    def total(self, query: TaskQuery) -> int:
        """How many tasks the query has on all its pages."""
        keys = self._keys(query)
        if query.context_id is not None and query.state is not None:
            return sum(1 for _ in self._matching(query, None))
        return len(keys) - (keys.count_before(query.status_since) if query.status_since else 0)

    def forgettable(
        self, retention: Retention, is_held: Callable[[TaskId], bool]
    ) -> tuple[list[TaskId], TaskKey | None]:
        """The ended tasks that are too old or too many and that nothing holds; where to go on."""
        after, overdue = retention.after, retention.undelivered_before
        looked_at = self._ended.oldest(
            retention.limit, None if after is None else (after.status_at, after.id)
        )
        surplus = len(self._ended) - retention.keep_ended
        gone: list[TaskId] = []
        for moment, task_id in looked_at:
            if len(gone) >= surplus and moment >= retention.ended_before:
                return gone, None
            if (overdue is not None and moment < overdue) or not is_held(task_id):
                gone.append(task_id)
        return gone, TaskKey(*looked_at[-1]) if len(looked_at) == retention.limit else None

    def _matching(self, query: TaskQuery, after: Key | None) -> Iterator[TaskId]:
        for task_id in self._keys(query).newest_first(after, query.status_since):
            if query.state is None or self._places[task_id][1] is query.state:
                yield task_id

    def _keys(self, query: TaskQuery) -> "_OrderedKeys":
        group = query.state if query.context_id is None else query.context_id
        return self._groups.get((query.scope, group)) or _OrderedKeys()


class OrderedNames:
    """Names by a moment that never changes, for dropping the oldest."""

    __slots__ = ("_moments",)

    def __init__(self) -> None:
        self._moments: list[tuple[datetime, tuple[str, ...]]] = []

    def add(self, moment: datetime, name: tuple[str, ...]) -> None:
        """Remember when the named thing came."""
        insort(self._moments, (moment, name))

    def take_before(self, moment: datetime) -> list[tuple[str, ...]]:
        """Forget everything older than the moment and say what it was."""
        end = bisect_left(self._moments, (moment, ()))
        taken = [name for _, name in self._moments[:end]]
        del self._moments[:end]
        return taken


class _OrderedKeys:
    """A sorted list of keys, oldest first: new statuses land at the end, where adding is cheap."""

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        self._keys: list[Key] = []

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: Key) -> None:
        insort(self._keys, key)

    def remove(self, key: Key) -> None:
        del self._keys[bisect_left(self._keys, key)]

    def oldest(self, count: int, after: Key | None) -> list[Key]:
        start = 0 if after is None else bisect_right(self._keys, after)
        return self._keys[start : start + count]

    def count_before(self, moment: datetime) -> int:
        return bisect_left(self._keys, (moment, TaskId("")))

    def newest_first(self, before: Key | None, since: datetime | None) -> Iterator[TaskId]:
        end = len(self._keys) if before is None else bisect_left(self._keys, before)
        start = 0 if since is None else self.count_before(since)
        return (self._keys[index][1] for index in range(end - 1, start - 1, -1))


def _groups_of(head: TaskHead) -> tuple[_Group, ...]:
    return (head.scope, None), (head.scope, head.state), (head.scope, head.context_id)
