"""One reader of a task's committed events, from a cursor to the next end or pause.

A reader holds a cursor, not a queue: it reads the shared window of the `EventFeed`, and what has
left the window it reads from the store. So a slow reader costs the task and the others nothing.
"""

import asyncio

from openclaw_a2a.engine.tasks.journal import PAGE_SIZE, EventFeed
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.records import Entry
from openclaw_a2a.model.task import PAUSED, TERMINAL
from openclaw_a2a.ports import TaskStore

_RESTING = TERMINAL | PAUSED


class Subscription:
    """Reads events after `cursor`. `feed` is None when the task is not active in this process."""

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
        """True when no more events will come: the task ended or paused, or no run works on it."""

    def stop(self) -> None:
        """The reader is gone: end a `next_events` that waits."""
        self._is_stopped = self.is_over = True
        if self._waiter is not None:
            _wake(self._waiter)

    async def next_events(self, wait_s: float) -> list[Entry]:
        """The next events; empty when none came in time or the subscription is over."""
        entries = await self._read()
        if not entries and not self.is_over and self._feed is not None:
            await self._wait(self._feed, wait_s)
            entries = [] if self._is_stopped else await self._read()
        return entries

    async def _read(self) -> list[Entry]:
        feed = self._feed
        # Asked before reading: a feed that closes after the read has events this read has not seen.
        was_closed = feed is None or feed.is_closed
        entries = feed.since(self.cursor) if feed is not None else None
        if entries is None or (was_closed and not entries):
            entries = await self._store.read_events(
                self._task_id, after=self.cursor, limit=PAGE_SIZE
            )
        if entries:
            self.cursor = entries[-1].sequence
        is_last = feed is None or self.cursor >= feed.sequence
        rests = bool(entries) and entries[-1].state in _RESTING
        ends_here = rests and is_last and len(entries) < PAGE_SIZE
        self.is_over = self.is_over or ends_here or (was_closed and not entries)
        return entries

    async def _wait(self, feed: EventFeed, wait_s: float) -> None:
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        feed.add_waiter(waiter)
        timer = loop.call_later(wait_s, _wake, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            feed.remove_waiter(waiter)
            self._waiter = None


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
