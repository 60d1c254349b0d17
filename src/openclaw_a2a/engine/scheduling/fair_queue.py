"""Places that receivers share fairly: one with much to get does not hold up the others."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator, Hashable, Iterator
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class FairQueue(Generic[Item]):
    """What waits for a place: receivers take turns, each has at most some places."""

    def __init__(self, *, places: int, places_each: int) -> None:
        self._places = places
        self._places_each = places_each
        self._lanes: OrderedDict[str, deque[Item]] = OrderedDict()
        self._waiting: set[Item] = set()
        self._taken: Counter[str] = Counter()
        self._count = 0

    def __contains__(self, item: Item) -> bool:
        return item in self._waiting

    def add(self, item: Item, lane: str) -> None:
        """Let something wait, once."""
        if item not in self._waiting:
            self._waiting.add(item)
            self._lanes.setdefault(lane, deque()).append(item)

    def acquire(self) -> tuple[Item, str] | None:
        """The next one that may go; its place is given back with `leave`."""
        if self._count >= self._places:
            return None
        for lane in self._lanes:
            if self._taken[lane] < self._places_each:
                return self._take_from(lane), lane
        return None

    def release(self, lane: str) -> None:
        """A place is free again."""
        self._count -= 1
        self._taken[lane] -= 1
        if not self._taken[lane]:
            del self._taken[lane]

    def _take_from(self, lane: str) -> Item:
        waiting = self._lanes[lane]
        item = waiting.popleft()
        self._waiting.discard(item)
        self._count += 1
        self._taken[lane] += 1
        self._lanes.move_to_end(lane)
        if not waiting:
            del self._lanes[lane]
        return item


class FairSlots(Generic[Item]):
    """So many places, of which those who failed before take half at most.

    Who failed before may fail again and take its time: the other half is for the others.
    """

    def __init__(self, places: int) -> None:
        self._places = places
        each = max(1, places // 4)
        self.fresh: FairQueue[Item] = FairQueue(places=places, places_each=each)
        self.again: FairQueue[Item] = FairQueue(places=max(1, places // 2), places_each=each)
        self._under_way = 0

    def take(self) -> Iterator[tuple[FairQueue[Item], Item, str]]:
        """Who may go now, those who wait for another try first; each gives its place back."""
        for queue in (self.again, self.fresh):
            while self._under_way < self._places:
                taken = queue.acquire()
                if taken is None:
                    break
                self._under_way += 1
                yield queue, *taken

    def leave(self, queue: FairQueue[Item], lane: str) -> None:
        """A place is free again."""
        queue.release(lane)
        self._under_way -= 1


class FairSemaphore:
    """Places for those who are under way already and need one for a part of it."""

    def __init__(self, places: int) -> None:
        self._places: FairSlots[asyncio.Future[None]] = FairSlots(places)

    @asynccontextmanager
    async def slot(self, lane: str, *, is_again: bool) -> AsyncGenerator[None]:
        """Have a place within the block. `is_again`: an earlier try failed."""
        queue = self._places.again if is_again else self._places.fresh
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.add(ticket, lane)
        self._let_in()
        try:
            await ticket
            yield
        finally:
            if not ticket.cancelled():  # who goes before it was let in is passed over
                self._places.leave(queue, lane)
                self._let_in()

    def _let_in(self) -> None:
        for queue, ticket, lane in self._places.take():
            if ticket.done():
                self._places.leave(queue, lane)
            else:
                ticket.set_result(None)
