"""Bounded concurrency that is fair between receivers: a busy one does not block the others.

`Pacer` is for long work on the event loop itself, so that it does not block everything else.
"""

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator, Hashable, Iterator
from contextlib import asynccontextmanager
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakValueDictionary

Item = TypeVar("Item", bound=Hashable)


class FairQueue(Generic[Item]):
    """Items wait by receiver; receivers take turns, and each holds a limited number of slots."""

    def __init__(self, *, slots: int, slots_each: int) -> None:
        self._slots = slots
        self._slots_each = slots_each
        self._waiting_by_receiver: OrderedDict[str, deque[Item]] = OrderedDict()
        self.waiting: set[Item] = set()
        self._held: Counter[str] = Counter()
        self._held_count = 0

    def add(self, item: Item, receiver: str) -> None:
        """Let an item wait; one that waits already keeps its position."""
        if item not in self.waiting:
            self.waiting.add(item)
            self._waiting_by_receiver.setdefault(receiver, deque()).append(item)

    def remove(self, item: Item, receiver: str) -> None:
        """Take an item out that waits no more."""
        waiting = self._waiting_by_receiver[receiver]
        waiting.remove(item)  # a search, but what has waited longest stands first
        self.waiting.discard(item)
        if not waiting:
            del self._waiting_by_receiver[receiver]

    def acquire(self) -> tuple[Item, str] | None:
        """Take a slot for the next item; None when no slot is free or nothing may use it."""
        if self._held_count >= self._slots:
            return None
        # In the order in which receivers were last served; one at its limit is passed over.
        for receiver, waiting in self._waiting_by_receiver.items():
            if self._held[receiver] < self._slots_each:
                item = waiting.popleft()
                self.waiting.discard(item)
                self._held_count += 1
                self._held[receiver] += 1
                self._waiting_by_receiver.move_to_end(receiver)
                if not waiting:
                    del self._waiting_by_receiver[receiver]
                return item, receiver
        return None

    def take_free(self, receiver: str) -> bool:
        """Take a slot without waiting; False when there is none, or others wait for theirs."""
        if self.waiting or self._held_count >= self._slots:
            return False
        held = self._held.get(receiver, 0)
        if held >= self._slots_each:
            return False
        self._held_count += 1
        self._held[receiver] = held + 1
        return True

    def release(self, receiver: str) -> None:
        """Give a slot back."""
        self._held_count -= 1
        self._held[receiver] -= 1
        if not self._held[receiver]:
            del self._held[receiver]


class Slot(NamedTuple, Generic[Item]):
    """A slot that an item holds until it is released."""

    item: Item
    receiver: str
    queue: FairQueue[Item]


class FairSlots(Generic[Item]):
    """A number of slots of which retries hold half at most.

    A receiver that failed before is likely to be slow or to fail again; the other half of the
    slots stays free for first tries.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        # A quarter for each receiver: it takes four that hang at once to block all the others.
        each = max(1, slots // 4)
        self._first_tries: FairQueue[Item] = FairQueue(slots=slots, slots_each=each)
        self._retries: FairQueue[Item] = FairQueue(slots=max(1, slots // 2), slots_each=each)
        self._held = 0
        self.has_waiting = False
        """True when an item may be waiting; false only when none is."""

    def enqueue(self, item: Item, receiver: str, *, is_retry: bool) -> None:
        """Let an item wait for a slot."""
        (self._retries if is_retry else self._first_tries).add(item, receiver)
        self.has_waiting = True

    def take_free(self, receiver: str, *, is_retry: bool) -> FairQueue[Item] | None:
        """Take a slot without waiting: the queue to release it to; None when none is free."""
        queue = self._retries if is_retry else self._first_tries
        if self.has_waiting or self._held >= self._slots or not queue.take_free(receiver):
            return None
        self._held += 1
        return queue

    def acquire(self) -> Iterator[Slot[Item]]:
        """Slots for the items that may go now, retries first; each must be released."""
        # Retries cannot starve first tries: their queue has half of the slots.
        for queue in (self._retries, self._first_tries):
            while queue.waiting and self._held < self._slots:
                acquired = queue.acquire()
                if acquired is None:
                    break
                self._held += 1
                yield Slot(*acquired, queue)
        self.has_waiting = bool(self._retries.waiting or self._first_tries.waiting)

    def release(self, slot: Slot[Item]) -> None:
        """Give a slot back."""
        self.release_to(slot.queue, slot.receiver)

    def release_to(self, queue: FairQueue[Item], receiver: str) -> None:
        """Give a slot back that a receiver took from this queue."""
        queue.release(receiver)
        self._held -= 1


_Queue = FairQueue[Any]


class FairSemaphore:
    """The same fairness for coroutines that need a slot for a part of their work."""

    def __init__(self, slots: int) -> None:
        self._slots: FairSlots[asyncio.Future[_Queue]] = FairSlots(slots)

    def slot(self, receiver: str, *, is_retry: bool) -> "_HeldSlot":
        """Hold a slot within an `async with` block. `is_retry`: an earlier try failed."""
        return _HeldSlot(self, receiver, is_retry)

    async def acquire(self, receiver: str, *, is_retry: bool) -> _Queue:
        """Wait for a slot; the queue to release it to."""
        queue = self._slots.take_free(receiver, is_retry=is_retry)
        if queue is not None:
            return queue
        ticket: asyncio.Future[_Queue] = asyncio.get_running_loop().create_future()
        self._slots.enqueue(ticket, receiver, is_retry=is_retry)
        # Those that wait may be at limits of their own: then this one may go at once.
        self._grant()
        try:
            # A granted ticket suspends nobody. Another is woken by `_grant`, which runs in
            # whichever coroutine enters or leaves next.
            return await ticket
        except BaseException:
            if ticket.done() and not ticket.cancelled():
                # It was granted a slot before its coroutine could resume.
                self.release(ticket.result(), receiver)
            else:
                ticket.cancel()  # `_grant` passes it over
            raise

    def release(self, queue: _Queue, receiver: str) -> None:
        """Give a slot back."""
        self._slots.release_to(queue, receiver)
        if self._slots.has_waiting:
            self._grant()

    def _grant(self) -> None:
        for slot in self._slots.acquire():
            # Tickets are not removed when they are cancelled: that would be a search in the queue.
            if slot.item.done():  # its coroutine was cancelled while it waited
                self._slots.release(slot)
            else:
                slot.item.set_result(slot.queue)


class _HeldSlot:
    """A slot of a semaphore, from the beginning of a block to its end."""

    __slots__ = ("_is_retry", "_queue", "_receiver", "_semaphore")

    def __init__(self, semaphore: FairSemaphore, receiver: str, is_retry: bool) -> None:
        self._semaphore, self._receiver, self._is_retry = semaphore, receiver, is_retry
        self._queue: _Queue | None = None

    async def __aenter__(self) -> None:
        self._queue = await self._semaphore.acquire(self._receiver, is_retry=self._is_retry)

    async def __aexit__(self, *_error: object) -> None:
        if self._queue is not None:
            self._semaphore.release(self._queue, self._receiver)


_SLICE_S = 0.001
_REST_FACTOR = 3
_MOST_CALLERS = 1000


class Pacer:
    """Cuts long work on the event loop into slices, and leaves most of the time to other work."""

    __slots__ = ("_resumed_at",)

    def __init__(self) -> None:
        self._resumed_at = time.perf_counter()

    async def pause(self) -> bool:
        """Call between small steps: sleeps when they have added up to a slice; True when it did.

        Not `sleep(0)`: others would get one step of the loop for each slice, and a request takes
        many of them.
        """
        worked = time.perf_counter() - self._resumed_at
        if worked >= _SLICE_S:
            await asyncio.sleep(worked * _REST_FACTOR)
            self._resumed_at = time.perf_counter()
            return True
        return False


class CallerPacer:
    """Paces work of callers that cannot be cut into slices: each has a share of the event loop."""

    def __init__(self) -> None:
        self._free_at: dict[str, float] = {}
        # Weak: a lock is there as long as a turn is taken or waited for.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncGenerator[bool]:
        """Have one piece of the caller's work done at a time, each when it may begin, in order.

        True when it had to wait.
        """
        lock = self._turns.get(caller)
        if lock is None:
            lock = self._turns[caller] = asyncio.Lock()
        began, is_taken = time.perf_counter(), lock.locked()
        async with lock:
            has_waited = is_taken or self._free_at.get(caller, 0.0) > began
            await self.wait(caller)
            yield has_waited

    async def wait(self, caller: str) -> None:
        """Wait until the caller may have the next piece of work done, which must begin at once."""
        # Looked at again after the sleep: of several that wait, the first one has begun by then.
        while (left := self._free_at.get(caller, 0.0) - time.perf_counter()) > 0:  # noqa: ASYNC110 - it waits for the time
            await asyncio.sleep(left)

    def note(self, caller: str, seconds: float) -> None:
        """The work for a caller took so long."""
        now = time.perf_counter()
        if len(self._free_at) > _MOST_CALLERS:
            self._free_at = {one: at for one, at in self._free_at.items() if at > now}
        self._free_at[caller] = now + seconds * _REST_FACTOR
