"""Callers who stay on the line: the calls they wait for, and whether they have heard the answers.

An answer is theirs once it was written out to them. Until then nothing is noted as delivered, so
that whoever hangs up, or loses the gateway, is told in another way.
"""

import asyncio
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from datetime import datetime, timedelta

from openclaw_a2a.model.call import Call, CallId, CallStatus, OutcomeRoute

_TELLING = timedelta(seconds=30)
"""An answer that was not written out so long after its tool had ended never will be."""


class WaitingCaller:
    """One caller for the time of one tool, whose result tells the outcomes of its calls."""

    def __init__(self, *, takes_timeouts: bool) -> None:
        self.takes_timeouts = takes_timeouts
        """True when the result tells timeouts as well; otherwise these come later."""
        self.answered: set[CallId] = set()
        self.told_by: datetime | None = None
        """When the result must have been written out; None while the tool is at work."""


class Waiters:
    """All callers on the line."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._waiting: dict[CallId, tuple[WaitingCaller, asyncio.Future[Call | None]]] = {}
        self._answered: dict[CallId, WaitingCaller] = {}
        """Calls whose outcome was given to somebody who has not been told yet."""
        self._told: set[CallId] = set()
        self._are_cut = False

    @contextmanager
    def open(self, *, takes_timeouts: bool = False) -> Generator[WaitingCaller]:
        """A line for one tool. Whoever leaves it by an exception has heard nothing."""
        line = WaitingCaller(takes_timeouts=takes_timeouts)
        try:
            yield line
        except BaseException:
            line.told_by = self._now()
            raise
        line.told_by = self._now() + _TELLING

    async def wait(self, line: WaitingCaller, call_id: CallId) -> Call | None:
        """The call when it is settled; None when the gateway stops before."""
        if self._are_cut:
            return None
        waiter: asyncio.Future[Call | None] = asyncio.get_running_loop().create_future()
        self._waiting[call_id] = line, waiter
        try:
            return await waiter
        finally:
            self._waiting.pop(call_id, None)

    def wants(self, call_id: CallId, status: CallStatus) -> bool:
        """True when somebody on the line is to hear of this outcome, and nobody else."""
        line, waiter = self._waiting.get(call_id, (None, None))
        if line is None or waiter is None or waiter.done():
            return False
        return line.takes_timeouts or status is not CallStatus.TIMEOUT

    def answer(self, call: Call) -> None:
        """Give a settled call to who waits for it."""
        line, waiter = self._waiting.get(call.id, (None, None))
        if line is None or waiter is None or waiter.done():
            return
        if call.route is OutcomeRoute.WAITED and call.is_undelivered:
            self._answered[call.id] = line
            line.answered.add(call.id)
        waiter.set_result(call)

    def note_told(self, call_ids: Iterable[CallId]) -> list[CallId]:
        """These outcomes were written out; those of them that somebody waited for."""
        told = [one for one in call_ids if one in self._answered]
        self._told.update(told)
        return told

    def is_told(self, call_id: CallId) -> bool:
        """True when the caller has heard the outcome."""
        return call_id in self._told

    def told_by(self, call_id: CallId) -> datetime | None:
        """Until when whoever got the outcome may yet hear it; None when nobody got it."""
        line = self._answered.get(call_id)
        if line is None:
            return None
        return self._now() + _TELLING if line.told_by is None else line.told_by

    def forget(self, call_id: CallId) -> None:
        """Nothing more is to be known of a call."""
        self._told.discard(call_id)
        line = self._answered.pop(call_id, None)
        if line is not None:
            line.answered.discard(call_id)

    def cut(self) -> None:
        """The gateway stops: nobody waits any longer."""
        self._are_cut = True
        for _, waiter in list(self._waiting.values()):
            if not waiter.done():
                waiter.set_result(None)
