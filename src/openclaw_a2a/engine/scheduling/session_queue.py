"""One run at a time per session, in arrival order; different sessions run in parallel."""

import asyncio
from collections import defaultdict, deque

import msgspec

from openclaw_a2a.model.errors import Overloaded
from openclaw_a2a.model.ids import PeerName, SessionKey


class QueueLimits(msgspec.Struct, frozen=True):
    """How many runs may be active and waiting: in all, per session and per peer."""

    runs: int = 64
    queue: int = 1000
    session_queue: int = 100
    peer_runs: int = 64
    peer_queue: int = 500


class QueueSlot:
    """One run's position in the queue of its session."""

    __slots__ = ("_queues", "_turn", "has_turn", "peer", "session_key")

    def __init__(self, queues: "SessionQueues", session_key: SessionKey, peer: PeerName) -> None:
        self._queues = queues
        self.session_key = session_key
        self.peer = peer
        self.has_turn = False
        # Made by the run when it starts to wait; set in the run that leaves and makes room.
        self._turn: asyncio.Future[None] | None = None

    async def wait_turn(self) -> None:
        """Return when this run is first in its session and a run slot is free."""
        if not self.has_turn:
            self._turn = asyncio.get_running_loop().create_future()
            await self._turn

    def grant(self) -> None:
        """Let the run start."""
        self.has_turn = True
        # The run may not wait yet (its message is being stored), or not any more (canceled).
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

    def leave(self) -> None:
        """Give the position up, whether it had its turn or not."""
        self._queues.leave(self)


class SessionQueues:
    """The queues of all sessions, shared by all engines of a gateway.

    A slot is in the queue of its session until it leaves. The first of each queue either runs or
    is in `_ready`: it waits only for a run slot of the gateway or of its peer.
    """

    def __init__(self, limits: QueueLimits) -> None:
        self._limits = limits
        self._queues: dict[SessionKey, list[QueueSlot]] = {}
        self._ready: deque[QueueSlot] = deque()
        self._waiting_by_peer: defaultdict[PeerName, int] = defaultdict(int)
        self._running_by_peer: defaultdict[PeerName, int] = defaultdict(int)
        self.running = 0
        self.waiting = 0

    def join(
        self, session_key: SessionKey, peer: PeerName, *, is_accepted: bool = False
    ) -> QueueSlot:
        """Take a position. It has its turn at once when nothing is before it.

        Work that was accepted before (`is_accepted`, after a crash) is never turned away.

        Raises: Overloaded.
        """
        # Synchronous from here on: the order of calls is the order of the queue.
        queue = self._queues.get(session_key)
        may_run = self._has_run_slot(peer)
        # The limits are for waiting: a run that can start at once is never turned away.
        if not is_accepted and (queue is not None or not may_run):
            self._check_limits(peer, len(queue or ()))
        # An empty queue is deleted, so an existing one means that another run is in front.
        slot = QueueSlot(self, session_key, peer)
        if queue is not None:
            queue.append(slot)
            self._count_waiting(peer, 1)
            return slot
        self._queues[session_key] = [slot]
        if may_run:
            self.running += 1
            self._running_by_peer[peer] += 1
            slot.has_turn = True
        else:
            self._count_waiting(peer, 1)
            self._ready.append(slot)
        return slot

    def leave(self, slot: QueueSlot) -> None:
        """Give a position up and start whatever can run now."""
        queue = self._queues.get(slot.session_key)
        if queue is None or slot not in queue:
            return
        # A run may leave before its turn (it was canceled): then it is anywhere in the queue, and
        # only the first one is also in `_ready`.
        was_first = queue[0] is slot
        queue.remove(slot)
        if slot.has_turn:
            self.running -= 1
            self._running_by_peer[slot.peer] -= 1
        else:
            self._count_waiting(slot.peer, -1)
            if was_first:
                self._ready.remove(slot)
        if not queue:
            del self._queues[slot.session_key]
        elif was_first:
            # Behind the sessions that are ready already: a busy session does not get ahead of them.
            self._ready.append(queue[0])
        if self._ready:
            self._start_ready()

    def _has_run_slot(self, peer: PeerName) -> bool:
        limits = self._limits
        return self.running < limits.runs and self._running_by_peer[peer] < limits.peer_runs

    def _start_ready(self) -> None:
        """Start ready slots in order; a peer at its own limit does not block the others."""
        # Not only the first: one whose peer is at its limit is passed over and keeps its place.
        for slot in list(self._ready):
            if self.running >= self._limits.runs:
                return
            if self._has_run_slot(slot.peer):
                self._ready.remove(slot)
                self._count_waiting(slot.peer, -1)
                self.running += 1
                self._running_by_peer[slot.peer] += 1
                slot.grant()

    def _count_waiting(self, peer: PeerName, step: int) -> None:
        self.waiting += step
        self._waiting_by_peer[peer] += step

    def _check_limits(self, peer: PeerName, in_session: int) -> None:
        limits = self._limits
        if self.waiting >= limits.queue:
            raise Overloaded(f"{self.waiting} runs are waiting already; try again shortly")
        # Greater, not equal: the first of the queue runs and does not wait.
        if in_session > limits.session_queue:
            raise Overloaded(
                f"{in_session} messages wait in this context already; let some end first"
            )
        if self._waiting_by_peer[peer] >= limits.peer_queue:
            raise Overloaded(f"{peer} has {limits.peer_queue} runs waiting; let some end first")
