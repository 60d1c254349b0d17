"""Blocking calls in threads: a bounded number at a time, and fair between those they are for."""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any, TypeVar

from openclaw_a2a.engine.scheduling.fair_queue import FairQueue

T = TypeVar("T")
_Answer = asyncio.Future[Any]


class DaemonThreads:
    """Runs calls in threads of its own, at most `slots` at a time and `each` for one receiver.

    A thread cannot be stopped. A caller that stops waiting leaves its thread behind, which (as a
    daemon) does not keep the process from ending. Such a call hangs, and gives its slot to the next
    one, so that calls are served again when what they ask has recovered. Also of those that hang
    there are at most `slots`, and `each` for one receiver: beyond that they keep their slots until
    they end.
    """

    def __init__(self, slots: int, *, each: int) -> None:
        self._slots, self._each = slots, each
        self._queue: FairQueue[_Answer] = FairQueue(slots=slots, slots_each=each)
        self._calls: dict[_Answer, Callable[[], Any]] = {}
        self._begun: set[_Answer] = set()
        """The calls that hold a slot."""
        self._hanging: Counter[str] = Counter()
        """How many calls of each receiver are in threads that hold none."""

    async def run(
        self, receiver: str, call: Callable[[], T], *, begin_within_s: float | None = None
    ) -> T:
        """The result of the call. Raises: what the call raises; TimeoutError (it did not begin).

        What would end the event loop, or the process, is a RuntimeError.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._calls[answer] = call
        self._queue.add(answer, receiver)
        self._start_waiting()
        timer = None
        if begin_within_s is not None and answer in self._calls:
            timer = loop.call_later(begin_within_s, self._give_up, answer)
        try:
            return await answer
        finally:
            if timer is not None:
                timer.cancel()
            # Cancelled before it was begun. Not left in the queue: while threads hang, that would
            # grow without end.
            if self._calls.pop(answer, None) is not None:
                self._queue.remove(answer, receiver)
            elif answer in self._begun:
                self._leave_hanging(answer, receiver)

    def _give_up(self, answer: _Answer) -> None:
        if answer in self._calls and not answer.done():
            answer.set_exception(TimeoutError("no thread became free in time"))

    def _leave_hanging(self, answer: _Answer, receiver: str) -> None:
        """Give the slot of a call back that nobody waits for any more."""
        if self._hanging[receiver] < self._each and self._hanging.total() < self._slots:
            self._begun.discard(answer)
            self._hanging[receiver] += 1
            self._queue.release(receiver)
            self._start_waiting()

    def _start_waiting(self) -> None:
        while (found := self._queue.acquire()) is not None:
            answer, receiver = found
            call = self._calls.pop(answer)
            if answer.done():  # its caller is cancelled, and has not got to `remove` yet
                self._queue.release(receiver)
                continue
            self._begun.add(answer)
            try:
                Thread(
                    target=self._work, args=(call, answer, receiver), name="call", daemon=True
                ).start()
            except RuntimeError as error:  # the machine allows no more threads
                self._begun.discard(answer)
                self._queue.release(receiver)
                answer.set_exception(error)

    def _work(self, call: Callable[[], Any], answer: _Answer, receiver: str) -> None:
        result: Any = None
        failure: BaseException | None = None
        try:
            result = call()
        except BaseException as error:  # it is the caller's, also an exit
            failure = error
        with suppress(RuntimeError):  # the event loop is closed
            answer.get_loop().call_soon_threadsafe(
                self._on_ended, answer, receiver, result, failure
            )

    def _on_ended(
        self, answer: _Answer, receiver: str, result: Any, failure: BaseException | None
    ) -> None:
        # Here and not in `run`: the slot is free once the thread has ended, unless it hung.
        if answer in self._begun:
            self._begun.discard(answer)
            self._queue.release(receiver)
        else:
            self._hanging -= Counter((receiver,))  # which leaves no zeros behind
        if answer.done():
            pass
        elif failure is None:
            answer.set_result(result)
        elif isinstance(failure, Exception) and not isinstance(failure, StopIteration):
            answer.set_exception(failure)
        else:
            error = RuntimeError(f"the call ended by {type(failure).__name__}")
            error.__cause__ = failure
            answer.set_exception(error)
        self._start_waiting()
