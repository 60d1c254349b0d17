"""Queues that admit a few holders at a time, and work that cancellation must not interrupt."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TypeVar, cast
from weakref import WeakValueDictionary

import anyio
import anyio.lowlevel

HeldSlot = asyncio.Future[None]
"""One holder's slot in a queue: done when the holder is admitted."""


class SlotQueue:
    """Admits `width` holders at a time."""

    def __init__(self, width: int = 1) -> None:
        self._width = width
        self._running: list[HeldSlot] = []
        self._waiting: deque[HeldSlot] = deque()

    @property
    def has_others(self) -> bool:
        """True when there is more than one holder."""
        return len(self._running) > 1

    @asynccontextmanager
    async def slot(self, *, at_front: bool = False) -> AsyncGenerator[HeldSlot]:
        """Wait for a free slot (`at_front`: before all others) and hold it meanwhile."""
        slot: HeldSlot = asyncio.get_running_loop().create_future()
        if at_front:
            self._waiting.appendleft(slot)
        else:
            self._waiting.append(slot)
        self._admit()
        try:
            await slot
            yield slot
        finally:
            # A holder that was cancelled may have been admitted just before: then it holds a slot.
            held = self._running if slot in self._running else self._waiting
            held.remove(slot)
            self._admit()

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self._width:
            slot = self._waiting.popleft()
            self._running.append(slot)
            if not slot.done():  # done already when the waiting holder was cancelled
                slot.set_result(None)


_Queue = TypeVar("_Queue", bound=SlotQueue)
_Result = TypeVar("_Result")

# Weak: a queue exists as long as a slot of it is held or waited for.
_queues: WeakValueDictionary[tuple[int, str], SlotQueue] = WeakValueDictionary()


def queue_for(name: str, new_queue: _Queue) -> _Queue:
    """The queue of this name in this event loop; `new_queue` when there is none in use."""
    # Per event loop: the futures of a queue belong to the loop that made them.
    key = (id(asyncio.get_running_loop()), name)
    return cast("_Queue", _queues.setdefault(key, new_queue))  # a name has one kind of queue


async def await_shielded(work: asyncio.Task[_Result]) -> _Result:
    """The result of a task, which runs to its end even when the caller is cancelled.

    A cancellation that arrives meanwhile is raised afterwards, unless the work itself failed.
    """
    cancellation: asyncio.CancelledError | None = None
    # The scope holds off cancel scopes of anyio; the loop holds off a bare `Task.cancel()`.
    with anyio.CancelScope(shield=True):
        while not work.done():
            try:
                # `wait` does not cancel what it waits for, unlike `await work`.
                await asyncio.wait((work,))
            except asyncio.CancelledError as error:
                cancellation = error
    # The failure of the work takes precedence over a cancellation: the caller must see it.
    result = work.result()
    if cancellation is not None:
        raise cancellation
    # An anyio scope that was cancelled behind the shield takes effect here, after the work.
    await anyio.lowlevel.checkpoint_if_cancelled()
    return result
