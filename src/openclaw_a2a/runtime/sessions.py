"""Which tasks a session had lately: where its agent's later words belong."""

from openclaw_a2a.model.ids import SessionKey, TaskId

_MOST_SESSIONS = 10_000
_MOST_TASKS = 32


class Sessions:
    """The newest tasks of the sessions that were used last."""

    def __init__(self) -> None:
        self._tasks: dict[SessionKey, tuple[TaskId, ...]] = {}

    def note(self, session_key: SessionKey, task_id: TaskId) -> None:
        """The session has begun to work on this task now."""
        known = self._tasks.pop(session_key, ())
        others = tuple(one for one in known if one != task_id)
        self._tasks[session_key] = (task_id, *others)[:_MOST_TASKS]
        self._trim()

    def learn(self, session_key: SessionKey, task_id: TaskId) -> None:
        """The session had this task before; what it has begun since is newer."""
        if task_id not in self.tasks_of(session_key):
            begun = self._tasks.pop(session_key, ())
            self._tasks[session_key] = (*begun, task_id)[:_MOST_TASKS]
            self._trim()

    def tasks_of(self, session_key: SessionKey) -> tuple[TaskId, ...]:
        """The tasks of a session, the newest first; empty when it is not known."""
        return self._tasks.get(session_key, ())

    def _trim(self) -> None:
        if len(self._tasks) > _MOST_SESSIONS:
            del self._tasks[next(iter(self._tasks))]
