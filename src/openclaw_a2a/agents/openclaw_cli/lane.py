"""Lanes: whose turn it is to use OpenClaw's state directory, in the order of arrival.

OpenClaw 2026.9 lets one `--local` run at a time into a state directory and turns others away;
2026.3 lets all in. Which of the two it is here is learned from what is installed, or else from
the first run that starts beside another one.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

EXCLUSIVE = 1
PARALLEL = 64
UNKNOWN = 2
"""One run may try whether it can start beside another."""


class Place:
    """One run's place in a lane; settled when it is its turn."""

    def __init__(self) -> None:
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class StateLane:
    """The runs of this process on one state directory."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._running: list[Place] = []
        self._waiting: deque[Place] = deque()

    @property
    def has_others(self) -> bool:
        """True when more than one run is under way."""
        return len(self._running) > 1

    @asynccontextmanager
    async def turn(self, *, is_next: bool = False) -> AsyncGenerator[Place]:
        """Wait for a free place (`is_next`: before all others) and keep it meanwhile."""
        place = Place()
        if is_next:
            self._waiting.appendleft(place)
        else:
            self._waiting.append(place)
        self._admit()
        try:
            await place.turn
            yield place
        finally:
            held = self._running if place in self._running else self._waiting
            held.remove(place)
            self._admit()

    def learn_exclusive(self) -> None:
        """A run was turned away because of another."""
        self._width = EXCLUSIVE

    def learn_parallel(self, place: Place) -> None:
        """The run went well; when an earlier one still runs, they do not mind each other."""
        if self._width == UNKNOWN and self._running[0] is not place:
            self._width = PARALLEL
            self._admit()

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self._width:
            place = self._waiting.popleft()
            self._running.append(place)
            if not place.turn.done():
                place.turn.set_result(None)


_lanes: WeakValueDictionary[tuple[int, str], StateLane] = WeakValueDictionary()


def lane_of(directory: str, *, width: int) -> StateLane:
    """The lane of a state directory, made (with this width) when nobody uses it."""
    key = (id(asyncio.get_running_loop()), directory)
    lane = _lanes.get(key)
    if lane is None:
        lane = _lanes[key] = StateLane(width)
    return lane
