"""Queues that let a few holders in at a time, in the order of arrival."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TypeVar, cast
from weakref import WeakValueDictionary


class Slot:
    """One holder's slot in a queue."""

    def __init__(self) -> None:
        self.admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class SlotQueue:
    """Admits `width` holders at a time."""

    def __init__(self, width: int = 1) -> None:
        self._width = width
        self._running: list[Slot] = []
        self._waiting: deque[Slot] = deque()

    @property
    def has_others(self) -> bool:
        """True when there is more than one holder."""
        return len(self._running) > 1

    @asynccontextmanager
    async def slot(self, *, at_front: bool = False) -> AsyncGenerator[Slot]:
        """Wait for a free slot (`at_front`: before all others) and hold it meanwhile."""
        slot = Slot()
        if at_front:
            self._waiting.appendleft(slot)
        else:
            self._waiting.append(slot)
        self._admit()
        try:
            await slot.admitted
            yield slot
        finally:
            held = self._running if slot in self._running else self._waiting
            held.remove(slot)
            self._admit()

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self._width:
            slot = self._waiting.popleft()
            self._running.append(slot)
            if not slot.admitted.done():  # it is when the waiting holder was cancelled
                slot.admitted.set_result(None)


_Queue = TypeVar("_Queue", bound=SlotQueue)

# Weak: a queue exists as long as a slot of it is held or waited for.
_queues: WeakValueDictionary[tuple[int, str], SlotQueue] = WeakValueDictionary()


def queue_for(name: str, new_queue: _Queue) -> _Queue:
    """The queue of this name in this event loop; `new_queue` when there is none in use."""
    key = (id(asyncio.get_running_loop()), name)
    return cast("_Queue", _queues.setdefault(key, new_queue))  # a name has one kind of queue
