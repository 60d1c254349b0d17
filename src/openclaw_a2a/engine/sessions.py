"""State of an engine per session: holds, recoveries under way, recent tasks."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager

from openclaw_a2a.model.ids import SessionKey, TaskId

# Both bound memory only: a late reply to a session that was dropped finds no task and is ignored.
# Sessions of recent tasks come back when the event stream of their agent is opened again.
_MAX_SESSIONS = 10_000
_MAX_TASKS_PER_SESSION = 32


class SessionHold:
    """The right of this replica to decide about the next run of a session, until `release`."""

    __slots__ = ("_release",)

    def __init__(self, release: Callable[[], None]) -> None:
        self._release: Callable[[], None] | None = release

    def release(self) -> None:
        """Give it back; a second time does nothing."""
        release, self._release = self._release, None
        if release is not None:
            release()


class SessionRecoveries:
    """Sessions with runs under recovery.

    Messages are accepted meanwhile, for example on a replica that takes over work. A new message in
    such a session waits until the recovered runs are queued, so that it cannot overtake them.
    """

    def __init__(self) -> None:
        self._active: list[_Recovery] = []

    @contextmanager
    def begin(self) -> "Generator[Callable[[Iterable[SessionKey]], None]]":
        """Track one recovery. Call the yielded function with the sessions of the claimed runs.

        Until then every session counts as affected.
        """
        recovery = _Recovery()
        self._active.append(recovery)
        try:
            yield recovery.set_sessions
        finally:
            self._active.remove(recovery)
            recovery.claimed.set()
            recovery.finished.set()

    def may_include(self, session_key: SessionKey) -> bool:
        """True when runs of the session may be among those that are recovered now."""
        return any(not one.claimed.is_set() or session_key in one.sessions for one in self._active)

    async def wait(self, session_key: SessionKey) -> None:
        """Wait until the runs of the session that are being recovered are queued."""
        for one in tuple(self._active):
            await one.claimed.wait()
            if session_key in one.sessions:
                await one.finished.wait()


class _Recovery:
    def __init__(self) -> None:
        self.sessions: frozenset[SessionKey] = frozenset()
        self.claimed, self.finished = asyncio.Event(), asyncio.Event()

    def set_sessions(self, sessions: Iterable[SessionKey]) -> None:
        self.sessions = frozenset(sessions)
        self.claimed.set()


class SessionTasks:
    """The newest tasks of recently used sessions: a background reply goes to one of them."""

    def __init__(self) -> None:
        # The first key of a plain dict takes time in proportion to the keys deleted before it.
        self._tasks: OrderedDict[SessionKey, tuple[TaskId, ...]] = OrderedDict()

    def add_newest(self, session_key: SessionKey, task_id: TaskId) -> None:
        """The session starts to work on this task now."""
        known = self._tasks.pop(session_key, ())
        if task_id in known:
            known = tuple([one for one in known if one != task_id])
        self._tasks[session_key] = (task_id, *known[: _MAX_TASKS_PER_SESSION - 1])
        if len(self._tasks) > _MAX_SESSIONS:
            # Popped and inserted again: the first of the mapping is the least recent.
            self._tasks.popitem(last=False)

    def add_oldest(self, session_key: SessionKey, task_id: TaskId) -> None:
        """The session had this task before all that are known."""
        known = self._tasks.get(session_key, ())
        if not known:
            self.add_newest(session_key, task_id)
        elif task_id not in known:
            del self._tasks[session_key]
            self._tasks[session_key] = (*known, task_id)[:_MAX_TASKS_PER_SESSION]

    def find(self, session_key: SessionKey) -> tuple[TaskId, ...]:
        """The tasks of a session, the newest first; empty when it is not known."""
        return self._tasks.get(session_key, ())
