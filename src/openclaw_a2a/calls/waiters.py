"""Callers blocked on `wait: true`, and how long the writing of their results may take.

An outcome belongs to a waiting caller once the tool's result was written to its connection. Until
then the call stays undelivered, so that a caller that disconnects, or a gateway that dies, loses
nothing: the outcome is sent to the caller instead.
"""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime, timedelta

from openclaw_a2a.model.call import Call, CallId, CallStatus

_WRITE_TIMEOUT = timedelta(seconds=30)
"""A result that is not written this long after its tool returned never will be."""


class WaitingCaller:
    """One tool invocation that blocks until its calls are settled."""

    def __init__(self, *, accepts_timeouts: bool) -> None:
        self.accepts_timeouts = accepts_timeouts
        """True when the tool's result reports timeouts too; otherwise these are sent later."""
        self.offered: set[CallId] = set()
        """Calls whose outcome is part of the result, which is not written yet."""
        self.write_deadline: datetime | None = None
        """When the result must have been written; None while the tool runs."""


class Waiters:
    """All waiting callers."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._waiting: dict[CallId, tuple[WaitingCaller, asyncio.Future[Call | None]]] = {}
        self._is_closed = False

    @contextmanager
    def open(self, *, accepts_timeouts: bool = False) -> Generator[WaitingCaller]:
        """A waiting caller for one tool invocation.

        When the block ends with an exception no result is written.
        """
        waiter = WaitingCaller(accepts_timeouts=accepts_timeouts)
        try:
            yield waiter
        except BaseException:
            waiter.write_deadline = self._now()
            raise
        waiter.write_deadline = self._now() + _WRITE_TIMEOUT

    async def wait(self, waiter: WaitingCaller, call_id: CallId) -> Call | None:
        """Wait until the call is settled; None when the gateway stops before."""
        if self._is_closed:
            return None
        settled: asyncio.Future[Call | None] = asyncio.get_running_loop().create_future()
        self._waiting[call_id] = waiter, settled
        try:
            return await settled
        finally:
            self._waiting.pop(call_id, None)

    def find(self, call_id: CallId, status: CallStatus) -> WaitingCaller | None:
        """The waiting caller whose result will report this outcome."""
        waiter, settled = self._waiting.get(call_id, (None, None))
        if waiter is None or settled is None or settled.done():
            return None
        return waiter if waiter.accepts_timeouts or status is not CallStatus.TIMEOUT else None

    def resolve(self, call: Call) -> None:
        """Wake the caller that waits for a call which is settled now."""
        _, settled = self._waiting.get(call.id, (None, None))
        if settled is not None and not settled.done():
            settled.set_result(call)

    def written_by(self, waiter: WaitingCaller) -> datetime:
        """When the waiter's result is written at the latest, or lost."""
        return waiter.write_deadline or self._now() + _WRITE_TIMEOUT

    def close(self) -> None:
        """Release everybody: the gateway stops, and what comes later is sent after its restart."""
        self._is_closed = True
        for _, settled in list(self._waiting.values()):
            if not settled.done():
                settled.set_result(None)
