"""Requests to programs: one at a time in each conversation, and all of them can be cancelled."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from openclaw_a2a.agents.adapter import CancelledByAdapter
from openclaw_a2a.agents.process import Child
from openclaw_a2a.model.ids import Json
from openclaw_a2a.runtime.ids import new_id

GRACE_S = 2.0
"""Time between SIGTERM and SIGKILL."""

_NO_CONTEXT = "default"
_MOST_REMEMBERED = 1000


class ProgramRequest:
    """One request: its conversation, its program, and whether it was cancelled."""

    def __init__(self, task_id: str, context_key: str, name: str) -> None:
        self.task_id = task_id
        self.context_key = context_key
        self.name = name
        """By this name the program is found when this process is gone."""
        self.is_cancelled = False
        self.is_second_try = False
        self.may_retry = False
        """True while the program goes on with a session that may turn out to be stale."""
        self.child: Child | None = None

    def check(self) -> None:
        """Raises: CancelledByAdapter."""
        if self.is_cancelled:
            raise CancelledByAdapter(f"task {self.task_id} was cancelled")

    async def end(self) -> None:
        """End the program and everything it started; nothing of it runs afterwards."""
        if self.child is not None:
            await self.child.kill_tree(grace_s=GRACE_S)


class ProgramRequests:
    """The requests that wait or run, and those that were cancelled before they came."""

    def __init__(self) -> None:
        self._requests: dict[str, ProgramRequest] = {}
        self._cancelled: dict[str, None] = {}
        self._lanes: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def turn(self, context_id: str | None, context: Json) -> AsyncGenerator[ProgramRequest]:
        """The request, when it is its turn. Raises: CancelledByAdapter."""
        task_id = _task_id(context) or new_id()
        turn: Json = getattr(context, "turn", None)
        name = str(turn.run_id) if turn is not None else task_id
        request = ProgramRequest(task_id, _context_key(context_id, context), name)
        request.is_cancelled = task_id in self._cancelled
        self._cancelled.pop(task_id, None)
        self._requests[task_id] = request
        try:
            async with self._lane(request.context_key):
                request.check()
                yield request
        finally:
            self._requests.pop(task_id, None)

    async def cancel(self, context_id: str | None, context: Json) -> None:
        """Cancel one request; without a context, all of the conversation."""
        task_id = _task_id(context)
        if task_id is None:
            key = _context_key(context_id, context)
            mine = [one for one in self._requests.values() if one.context_key == key]
            await self._end(mine)
        elif task_id in self._requests:
            await self._end([self._requests[task_id]])
        else:
            self._cancelled[task_id] = None
            while len(self._cancelled) > _MOST_REMEMBERED:
                del self._cancelled[next(iter(self._cancelled))]

    async def cancel_all(self) -> None:
        """Cancel every request."""
        await self._end(list(self._requests.values()))

    async def _end(self, requests: list[ProgramRequest]) -> None:
        for request in requests:
            request.is_cancelled = True
        await asyncio.gather(*[request.end() for request in requests])

    @asynccontextmanager
    async def _lane(self, context_key: str) -> AsyncGenerator[None]:
        """One at a time; a lane is forgotten when nobody is in it."""
        lock, users = self._lanes.get(context_key, (asyncio.Lock(), 0))
        self._lanes[context_key] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._lanes[context_key]
            self._lanes[context_key] = (lock, users - 1)
            if users == 1:
                del self._lanes[context_key]


def _task_id(context: Json) -> str | None:
    return getattr(context, "task_id", None) or None


def _context_key(context_id: str | None, context: Json) -> str:
    """The caller's own conversation where that is known, else the context."""
    own = getattr(context, "session_key", None) or context_id
    return str(own or getattr(context, "context_id", None) or _NO_CONTEXT)
