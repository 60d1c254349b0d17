"""Listening to a gateway: each listener has its own bounded queue, so that none holds up another.

Happened          an event that the listener asked for
Answered          an answer to a request that was posted for this listener
Missed            the listener was too slow: events before this are lost, it must look again
Lost              the connection is gone; what was under way at the gateway may go on there
Back              the connection is there again
"""

from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import anyio
import msgspec
from msgspec import Raw

from openclaw_a2a.agents.openclaw_gateway.connect import Hello
from openclaw_a2a.agents.openclaw_gateway.protocol import NO_ORIGIN, Frame, Origin
from openclaw_a2a.model.message import JsonStruct

_MOST_EVENTS: Final = 4096
_MOST_BYTES: Final = 16 * 1024 * 1024


class EventReceived(msgspec.Struct, frozen=True, gc=False):
    """An event, with its payload still to be read."""

    event: str
    payload: Raw
    origin: Origin = NO_ORIGIN
    """Read for those who listen to one session only."""


class ResponseReceived(msgspec.Struct, frozen=True, gc=False):
    """An answer to a posted request."""

    request_id: str
    frame: Frame


class EventsDropped(JsonStruct, frozen=True):
    """Events are lost, because they were not taken in time."""


class ConnectionLost(JsonStruct, frozen=True):
    """The connection is gone."""

    reason: str


class Reconnected(msgspec.Struct, frozen=True):
    """The connection is there again; `is_restarted` when the gateway is another process now."""

    hello: Hello
    is_restarted: bool


SubscriptionItem = EventReceived | ResponseReceived | EventsDropped | ConnectionLost | Reconnected


class EventFilter(msgspec.Struct, frozen=True):
    """Which events a listener wants: by name, and only those of a session when one is given."""

    events: frozenset[str]
    session_key: str | None = None


class EventSubscription:
    """One listener's queue. Use it as a context manager: leaving ends the listening."""

    def __init__(self, wanted: EventFilter, leave: Callable[["EventSubscription"], None]) -> None:
        self.wanted = wanted
        self.requests: set[str] = set()
        """The ids of posted requests whose answers come here."""
        self._leave = leave
        self._queue: deque[SubscriptionItem] = deque()
        self._bytes = 0
        self._arrived = anyio.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave(self)

    async def next(self, within_s: float | None = None) -> SubscriptionItem | None:
        """What comes next; None when nothing came in time (with no time given: wait)."""
        while not self._queue:
            self._arrived = anyio.Event()
            with anyio.move_on_after(within_s) as scope:
                await self._arrived.wait()
            if scope.cancelled_caught:
                return None
        heard = self._queue.popleft()
        if isinstance(heard, EventReceived):
            self._bytes -= len(memoryview(heard.payload))
        return heard

    def drop_events(self) -> None:
        """Drop the events that wait; answers and news of the connection stay."""
        self._queue = deque(
            one for one in self._queue if not isinstance(one, EventReceived | EventsDropped)
        )
        self._bytes = 0

    def put(self, heard: SubscriptionItem) -> None:
        """Add to the queue; when it is full, its events make way for one `EventsDropped`."""
        if isinstance(heard, EventReceived):
            self._bytes += len(memoryview(heard.payload))
            if len(self._queue) >= _MOST_EVENTS or self._bytes > _MOST_BYTES:
                self._overflow()
                return
        self._queue.append(heard)
        self._arrived.set()

    def _overflow(self) -> None:
        self.drop_events()
        self._queue.appendleft(EventsDropped())
        self._arrived.set()
