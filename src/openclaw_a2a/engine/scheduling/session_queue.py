"""Lanes: one run at a time per session, in arrival order; other sessions side by side."""

import asyncio
from collections import defaultdict, deque

import msgspec

from openclaw_a2a.model.errors import Overloaded
from openclaw_a2a.model.ids import PeerName, SessionKey


class QueueLimits(msgspec.Struct, frozen=True):
    """How much may run and wait."""

    runs: int = 64
    queue: int = 1000
    session_queue: int = 100
    peer_runs: int = 64
    peer_queue: int = 500


class QueueSlot:
    """One run's place in its lane."""

    __slots__ = ("_lanes", "has_turn", "peer", "session_key", "turn")

    def __init__(self, lanes: "SessionQueues", session_key: SessionKey, peer: PeerName) -> None:
        self._lanes = lanes
        self.session_key = session_key
        self.peer = peer
        self.has_turn = False
        self.turn: asyncio.Future[None] | None = None

    async def wait_turn(self) -> None:
        """Return when this run is first in its lane and a slot is free."""
        if not self.has_turn:
            self.turn = asyncio.get_running_loop().create_future()
            await self.turn

    def leave(self) -> None:
        """Give the place up, whether it had its turn or not."""
        self._lanes.leave(self)

    def grant(self) -> None:
        """It is this run's turn."""
        self.has_turn = True
        if self.turn is not None and not self.turn.done():
            self.turn.set_result(None)


class SessionQueues:
    """Who runs and who waits. Shared by everything that asks agents."""

    def __init__(self, limits: QueueLimits) -> None:
        self._limits = limits
        self._lanes: dict[SessionKey, list[QueueSlot]] = {}
        self._ready: deque[QueueSlot] = deque()
        self._waiting_by_peer: defaultdict[PeerName, int] = defaultdict(int)
        self._running_by_peer: defaultdict[PeerName, int] = defaultdict(int)
        self.running = 0
        self.waiting = 0

    def join(self, session_key: SessionKey, peer: PeerName) -> QueueSlot:
        """Take a place. It has its turn at once when nobody is before it.

        Raises: Overloaded.
        """
        lane = self._lanes.get(session_key)
        if lane is not None or not self._has_slot(peer):
            self._check_room(peer, len(lane or ()))
        return self.join_again(session_key, peer)

    def join_again(self, session_key: SessionKey, peer: PeerName) -> QueueSlot:
        """Take a place for work that was accepted before: it is never turned away."""
        lane = self._lanes.get(session_key)
        is_free = lane is None and self._has_slot(peer)
        place = QueueSlot(self, session_key, peer)
        if lane is None:
            self._lanes[session_key] = [place]
        else:
            lane.append(place)
        if is_free:
            self._start(place)
        else:
            self._count(place, 1)
            if lane is None:
                self._ready.append(place)
        return place

    def leave(self, place: QueueSlot) -> None:
        """Give a place up and let the next one in."""
        lane = self._lanes.get(place.session_key)
        if lane is None or place not in lane:
            return
        was_first = lane[0] is place
        lane.remove(place)
        if place.has_turn:
            self.running -= 1
            self._running_by_peer[place.peer] -= 1
        else:
            self._count(place, -1)
            if was_first:
                self._ready.remove(place)
        if not lane:
            del self._lanes[place.session_key]
        elif was_first:
            self._ready.append(lane[0])
        self._fill()

    def _has_slot(self, peer: PeerName) -> bool:
        limits = self._limits
        return self.running < limits.runs and self._running_by_peer[peer] < limits.peer_runs

    def _fill(self) -> None:
        """Start those that are ready, in order; a peer at its own limit holds nobody else up."""
        if self.running >= self._limits.runs:
            return
        for place in list(self._ready):
            if self._has_slot(place.peer):
                self._ready.remove(place)
                self._count(place, -1)
                self._start(place)

    def _start(self, place: QueueSlot) -> None:
        self.running += 1
        self._running_by_peer[place.peer] += 1
        place.grant()

    def _count(self, place: QueueSlot, step: int) -> None:
        self.waiting += step
        self._waiting_by_peer[place.peer] += step

    def _check_room(self, peer: PeerName, in_lane: int) -> None:
        limits = self._limits
        if self.waiting >= limits.queue:
            raise Overloaded(f"{self.waiting} runs are waiting already; try again shortly")
        if in_lane > limits.session_queue:
            raise Overloaded(f"{in_lane} messages wait in this context already; let some end first")
        if self._waiting_by_peer[peer] >= limits.peer_queue:
            raise Overloaded(f"{peer} has {limits.peer_queue} runs waiting; let some end first")
