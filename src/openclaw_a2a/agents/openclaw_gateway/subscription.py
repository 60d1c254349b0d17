"""Subscriptions to a gateway connection: one bounded queue each, so a slow reader delays no other.

A queue holds, in order of arrival:

EventReceived      an event of a wanted name
ResponseReceived   a response to a request that was posted for this subscription
EventsDropped      the queue was full: earlier events are lost, read the history instead
ConnectionLost     the connection is gone; runs may continue inside OpenClaw
Reconnected        there is a new connection
"""

from collections import deque
from typing import Final

import anyio
import msgspec
from msgspec import Raw

from openclaw_a2a.agents.openclaw_gateway.protocol import NO_ORIGIN, Frame, Origin

_MAX_ITEMS: Final = 4096
_MAX_BYTES: Final = 16 * 1024 * 1024


class EventReceived(msgspec.Struct, frozen=True, gc=False):
    """An event, its payload not decoded yet. `origin` is set in subscriptions to one session."""

    event: str
    payload: Raw
    origin: Origin = NO_ORIGIN


class ResponseReceived(msgspec.Struct, frozen=True, gc=False):
    """A response to a posted request."""

    request_id: str
    frame: Frame


class EventsDropped(msgspec.Struct, frozen=True):
    """Events were lost, because the queue was full."""


class ConnectionLost(msgspec.Struct, frozen=True):
    """The connection is gone."""


class Reconnected(msgspec.Struct, frozen=True):
    """There is a new connection; `is_restarted` when the gateway is another process now."""

    is_restarted: bool


SubscriptionItem = EventReceived | ResponseReceived | EventsDropped | ConnectionLost | Reconnected


class EventSubscription:
    """One reader's queue, filled by the connection loop with the events of these names."""

    def __init__(self, events: frozenset[str]) -> None:
        self.events = events
        self.requests: set[str] = set()
        """Ids of posted requests whose responses belong in this queue."""
        self._queue: deque[SubscriptionItem] = deque()
        self._bytes = 0
        self._arrived = anyio.Event()

    async def next(self, timeout_s: float | None = None) -> SubscriptionItem | None:
        """The next item; None after `timeout_s` seconds without one."""
        while not self._queue:
            # A fresh event per wait: put() may have set the old one for an item already taken.
            self._arrived = anyio.Event()
            with anyio.move_on_after(timeout_s) as scope:
                await self._arrived.wait()
            if scope.cancelled_caught:
                return None
        item = self._queue.popleft()
        if isinstance(item, EventReceived):
            self._bytes -= len(memoryview(item.payload))
        return item

    def drop_events(self) -> None:
        """Drop the queued events; responses and connection changes stay."""
        dropped = EventReceived | EventsDropped
        self._queue = deque(one for one in self._queue if not isinstance(one, dropped))
        self._bytes = 0

    def put(self, item: SubscriptionItem) -> None:
        """Add an item; never blocks, because the connection loop calls it for every frame.

        A full queue drops its events and tells the reader with `EventsDropped`.
        """
        if isinstance(item, EventReceived):
            self._bytes += len(memoryview(item.payload))
            if len(self._queue) >= _MAX_ITEMS or self._bytes > _MAX_BYTES:
                self.drop_events()
                # In front of the responses: what they refer to may be among the lost events.
                self._queue.appendleft(EventsDropped())
                self._arrived.set()
                return
        self._queue.append(item)
        self._arrived.set()
