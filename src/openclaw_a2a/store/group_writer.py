"""One thread that writes for everybody: all writes waiting at a moment share one transaction."""

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from openclaw_a2a.model.errors import GatewayError
from openclaw_a2a.store.errors import store_closed

Transaction = TypeVar("Transaction")
Order = TypeVar("Order")
Result = TypeVar("Result")

MAX_GROUP = 512
"""With so many writes a transaction is full: bounds how long the first of them waits."""

_PATIENCE = 4
"""For so many turns of the event loop writes are collected, as long as each turn brings some."""


class Write(Generic[Transaction]):
    """A write that waits: what to do, with what, and who wants to know."""

    __slots__ = ("future", "order", "perform")

    def __init__(
        self,
        perform: Callable[[Transaction, Any], Any],
        order: Any,
        future: "asyncio.Future[Any]",
    ) -> None:
        self.perform = perform
        self.order = order
        self.future = future


Outcome = tuple["asyncio.Future[Any]", object, GatewayError | None]
"""Who wants to know, the result, or why there is none."""


class GroupWriter(Generic[Transaction]):
    """Takes writes in the order of the calls and hands them to `write_group` in its own thread.

    `write_group` returns one outcome per write, when all of them are durable. The outcomes of a
    group reach the event loop in one call, and so do writes reach the thread: they go over once a
    turn of the event loop brings no more of them. That makes larger groups and fewer wake-ups,
    and a message and what is said to it at once share a transaction.
    """

    def __init__(
        self, name: str, write_group: Callable[[Sequence[Write[Transaction]]], list[Outcome]]
    ) -> None:
        self._name = name
        self._write_group = write_group
        self._queue: queue.SimpleQueue[list[Write[Transaction]] | None] = queue.SimpleQueue()
        self._collected: list[Write[Transaction]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to write, for the running event loop."""
        self._loop = loop = asyncio.get_running_loop()
        self._thread = threading.Thread(
            target=self._run, args=(loop,), name="store-writer", daemon=True
        )
        self._thread.start()

    async def stop(self) -> None:
        """Finish the writes that were taken; later ones are refused."""
        thread, self._loop, self._thread = self._thread, None, None
        if thread is not None:
            self._hand_over()
            self._queue.put(None)
            await asyncio.to_thread(thread.join)

    def put(
        self, perform: Callable[[Transaction, Order], Result], order: Order
    ) -> "asyncio.Future[Result]":
        """Take a write; the future has its result when it is durable."""
        if self._loop is None:
            return failed(store_closed(self._name))
        future: asyncio.Future[Result] = self._loop.create_future()
        if not self._collected:
            self._loop.call_soon(self._watch, self._loop, 0, _PATIENCE)
        self._collected.append(Write(perform, order, future))
        return future

    def _watch(self, loop: asyncio.AbstractEventLoop, known: int, turns: int) -> None:
        """Hand over what was collected once a turn of the loop brought nothing more."""
        count = len(self._collected)
        if count > known and turns:
            loop.call_soon(self._watch, loop, count, turns - 1)
        else:
            self._hand_over()

    def _hand_over(self) -> None:
        collected, self._collected = self._collected, []
        if collected:
            self._queue.put(collected)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        is_running = True
        while is_running:
            group: list[Write[Transaction]] = []
            is_running = self._gather(group)
            outcomes = self._write_group(group) if group else []
            try:
                loop.call_soon_threadsafe(_settle, outcomes)
            except RuntimeError:
                return  # the event loop is gone, and with it everybody who waits

    def _gather(self, group: list[Write[Transaction]]) -> bool:
        """Fill the group with what waits; False when there is nothing more to come."""
        writes = self._queue.get()
        try:
            while writes is not None:
                group += writes
                if len(group) >= MAX_GROUP:
                    return True
                writes = self._queue.get_nowait()
        except queue.Empty:
            return True
        return False


def failed(error: GatewayError) -> "asyncio.Future[Any]":
    """A write that was never taken."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future


def _settle(outcomes: list[Outcome]) -> None:
    for future, result, error in outcomes:
        if future.done():
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
