"""The committed events of a task on their way to those who follow it.

A follower holds a cursor, not a queue: it reads the shared window of recent events, and what has
left the window it reads from the store. So a slow follower costs nobody anything.
"""

import asyncio

from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.records import Entry
from openclaw_a2a.model.states import PAUSED, TERMINAL
from openclaw_a2a.ports import TaskStore

_ENDS = TERMINAL | PAUSED
PAGE_SIZE = 256
"""How many events are kept in the window at least, and read from the store at once."""


class EventFeed:
    """The recent committed events of one live task, and who waits for the next."""

    __slots__ = ("_waiters", "_window", "is_closed", "sequence")

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        """The last committed sequence."""
        self.is_closed = False
        self._window: list[Entry] = []
        self._waiters: set[asyncio.Future[None]] = set()

    def publish(self, entries: tuple[Entry, ...]) -> None:
        """Committed events become visible."""
        if entries:
            self._window += entries
            if len(self._window) > 2 * PAGE_SIZE:
                del self._window[:-PAGE_SIZE]
            self.sequence = entries[-1].sequence
            self._wake()

    def close(self) -> None:
        """No more events will come through this feed."""
        self.is_closed = True
        self._wake()

    def since(self, cursor: int) -> list[Entry] | None:
        """The events after the cursor; None when some of them have left the window."""
        if cursor >= self.sequence:
            return []
        if not self._window or self._window[0].sequence > cursor + 1:
            return None
        return self._window[cursor - self.sequence :]

    def add_waiter(self, waiter: asyncio.Future[None]) -> None:
        """Wake this future at the next change."""
        self._waiters.add(waiter)

    def drop_waiter(self, waiter: asyncio.Future[None]) -> None:
        """Forget this future."""
        self._waiters.discard(waiter)

    def _wake(self) -> None:
        if self._waiters:
            waiters, self._waiters = self._waiters, set()
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)


class Subscription:
    """One reader of a task's events, from a cursor to the next end or pause."""

    __slots__ = ("_feed", "_is_stopped", "_store", "_task_id", "_waiter", "cursor", "is_over")

    def __init__(
        self, store: TaskStore, task_id: TaskId, *, cursor: int, feed: EventFeed | None
    ) -> None:
        self._store = store
        self._task_id = task_id
        self._feed = feed
        self._waiter: asyncio.Future[None] | None = None
        self._is_stopped = False
        self.cursor = cursor
        self.is_over = False
        """True when nothing more is to come: the task ended or paused, or nobody works on it."""

    def stop(self) -> None:
        """The reader is gone: whoever waits in `take` gets an answer at once."""
        self._is_stopped = self.is_over = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def next_events(self, wait_s: float) -> list[Entry]:
        """The next events; empty when none came in time or the follower is over."""
        entries = await self._read()
        if not entries and not self.is_over and self._feed is not None:
            await self._wait(self._feed, wait_s)
            entries = [] if self._is_stopped else await self._read()
        return entries

    async def _read(self) -> list[Entry]:
        feed = self._feed
        was_closed = feed is None or feed.is_closed
        entries = feed.since(self.cursor) if feed is not None else None
        if entries is None or (was_closed and not entries):
            entries = await self._store.read_events(
                self._task_id, after=self.cursor, limit=PAGE_SIZE
            )
        if entries:
            self.cursor = entries[-1].sequence
        is_last = feed is None or self.cursor >= feed.sequence
        ends_here = (
            bool(entries) and entries[-1].state in _ENDS and is_last and len(entries) < PAGE_SIZE
        )
        self.is_over = self.is_over or ends_here or (was_closed and not entries)
        return entries

    async def _wait(self, feed: EventFeed, wait_s: float) -> None:
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        feed.add_waiter(waiter)
        timer = loop.call_later(wait_s, _settle, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            feed.drop_waiter(waiter)
            self._waiter = None


def _settle(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
