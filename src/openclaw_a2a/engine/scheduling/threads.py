"""Blocking calls in threads: a bounded number at a time, and fair between those they are for."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any, TypeVar

from openclaw_a2a.engine.scheduling.fair_queue import FairQueue

T = TypeVar("T")
_Answer = asyncio.Future[Any]


class DaemonThreads:
    """Runs calls in threads of its own, at most `slots` at a time and `each` for one receiver.

    A thread cannot be stopped. A caller that stops waiting leaves its thread behind: the thread
    keeps its slot until it ends, and (as a daemon) does not keep the process from ending.
    """

    def __init__(self, slots: int, *, each: int) -> None:
        self._queue: FairQueue[_Answer] = FairQueue(slots=slots, slots_each=each)
        self._calls: dict[_Answer, Callable[[], Any]] = {}

    async def run(self, receiver: str, call: Callable[[], T]) -> T:
        """The result of the call. Raises: what the call raises.

        What would end the event loop, or the process, is a RuntimeError.
        """
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._calls[answer] = call
        self._queue.add(answer, receiver)
        self._start_waiting()
        try:
            return await answer
        finally:
            # Cancelled before it was begun. Not left in the queue: while threads hang, that would
            # grow without end.
            if self._calls.pop(answer, None) is not None:
                self._queue.remove(answer, receiver)

    def _start_waiting(self) -> None:
        while (found := self._queue.acquire()) is not None:
            answer, receiver = found
            call = self._calls.pop(answer)
            if answer.done():  # its caller is cancelled, and has not got to `remove` yet
                self._queue.release(receiver)
                continue
            try:
                Thread(
                    target=self._work, args=(call, answer, receiver), name="call", daemon=True
                ).start()
            except RuntimeError as error:  # the machine allows no more threads
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
        # Here and not in `run`: the slot is free only once the thread has ended.
        self._queue.release(receiver)
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
