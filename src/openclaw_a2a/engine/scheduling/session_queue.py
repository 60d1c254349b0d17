"""One run at a time per session, in arrival order; free run slots go to callers in fair turns.

A run slot is what `limits.runs` counts. A run holds one while its agent works. It holds none while
it waits for other agents: a coordinator (a debate, a remote agent) never takes one, and a run whose
agent waits for a call gives its own back until the answer is there. So whatever such a run waits
for can always start.

A run whose agent only other replicas have (`is_elsewhere`) keeps its position and never gets its
turn here: it leaves when one of those takes it.
"""

import asyncio
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager

import msgspec

from openclaw_a2a.model.errors import Overloaded
from openclaw_a2a.model.ids import LOCAL_PEER, AgentId, PeerName, SessionKey

_MOST_REMEMBERED = 1024
"""Peers of which it is known when they were served."""


class QueueLimits(msgspec.Struct, frozen=True):
    """How many runs may be active and waiting: in all, per session, per peer and per agent.

    The shares of a peer do not hold for `local`: it is the only caller of its gateway.
    """

    runs: int = 64
    queue: int = 1000
    session_queue: int = 100
    peer_runs: int = 16
    peer_queue: int = 250
    agent_runs: int = 64


class QueueSlot(msgspec.Struct, eq=False):
    """One run's position in the queue of its session.

    `waits` is how many answers of other agents it waits for. The run makes `turn` when it starts to
    wait; the run that leaves and makes room sets it.
    """

    queues: "SessionQueues"
    session_key: SessionKey
    peer: PeerName
    agent_id: AgentId
    is_coordinator: bool
    is_elsewhere: bool = False
    has_turn: bool = False
    holds_run_slot: bool = False
    ready_number: int = 0
    waits: int = 0
    turn: "asyncio.Future[None] | None" = None

    async def wait_turn(self) -> None:
        """Return when this run is first in its session and has a run slot."""
        if not self.has_turn:
            self.turn = asyncio.get_running_loop().create_future()
            await self.turn

    def grant(self) -> None:
        """Let the run start."""
        self.has_turn = True
        # The run may not wait yet (its message is being stored), or not any more (canceled).
        if self.turn is not None and not self.turn.done():
            self.turn.set_result(None)

    @contextmanager
    def released(self) -> Generator[None]:
        """The run waits for another agent within the block, and holds no run slot meanwhile.

        Afterwards it has its slot again at once, even if that is one more than the limit: its agent
        works already, and to stop it there would only make the others wait longer.
        """
        self.waits += 1
        if self.waits == 1:
            self.queues.release_run_slot(self)
        try:
            yield
        finally:
            self.waits -= 1
            if self.waits == 0:
                self.queues.retake_run_slot(self)


class _Waiting:
    """How many runs of a kind wait, in all and by peer."""

    __slots__ = ("by_peer", "total")

    def __init__(self) -> None:
        self.total = 0
        self.by_peer: dict[PeerName, int] = {}

    def add(self, peer: PeerName) -> None:
        self.total += 1
        self.by_peer[peer] = self.by_peer.get(peer, 0) + 1

    def remove(self, peer: PeerName) -> None:
        self.total -= 1
        self.by_peer[peer] -= 1
        if not self.by_peer[peer]:
            del self.by_peer[peer]


class SessionQueues:
    """The queues of all sessions, shared by all engines of a gateway.

    A slot is in the queue of its session until it leaves. The first of each queue either has its
    turn or is in `_ready`: it waits only for a run slot of the gateway, its peer or its agent.
    """

    def __init__(self, limits: QueueLimits) -> None:
        self._limits = limits
        self._queues: dict[SessionKey, list[QueueSlot]] = {}
        # By peer and agent: either may be at its limit while others go on.
        self._ready: dict[tuple[PeerName, AgentId], deque[QueueSlot]] = {}
        # A peer or an agent without runs is in none of these: names come and go.
        self._running_by_peer: dict[PeerName, int] = {}
        self._running_by_agent: dict[AgentId, int] = {}
        self._served: dict[PeerName, int] = {}
        """When a peer last got a run slot, as a number that rises, the last served at the end; not
        there: not lately. Kept when it has no runs: else a peer that sends one run after another
        would be new each time, and pass the peers that wait."""
        self._number = 0
        self._waiting = _Waiting()
        # Counted apart: those that coordinators wait for find the queue as free as without them,
        # and an agent that no replica has for days keeps nothing else out of it.
        self._coordinating = _Waiting()
        self._elsewhere = _Waiting()
        self.running = 0
        """Run slots that are held."""

    @property
    def waiting(self) -> int:
        """Runs that wait for their turn, here or at another replica."""
        return self._waiting.total + self._elsewhere.total

    def join(
        self,
        session_key: SessionKey,
        peer: PeerName,
        agent_id: AgentId,
        *,
        is_coordinator: bool = False,
        is_elsewhere: bool = False,
        is_accepted: bool = False,
    ) -> QueueSlot:
        """Take a position. It has its turn at once when nothing is before it.

        Work that was accepted before (`is_accepted`, after a crash) is never turned away.

        Raises: Overloaded.
        """
        # Synchronous from here on: the order of calls is the order of the queue.
        queue = self._queues.get(session_key)
        can_start = (
            queue is None
            and not is_coordinator
            and not is_elsewhere
            and self._has_run_slot(peer, agent_id)
        )
        # The limits are for waiting: a run that can start at once is never turned away.
        if not can_start and not is_accepted:
            waiting = self._counted_with(is_coordinator, is_elsewhere)
            self._check_limits(peer, len(queue or ()), waiting)
        slot = QueueSlot(self, session_key, peer, agent_id, is_coordinator, is_elsewhere)
        if can_start:
            self._queues[session_key] = [slot]
            self._take_run_slot(slot)
            slot.has_turn = True
            return slot
        self._counted_with(is_coordinator, is_elsewhere).add(peer)
        # An empty queue is deleted, so an existing one means that another run is in front.
        if queue is not None:
            queue.append(slot)
        else:
            self._queues[session_key] = [slot]
            self._make_ready(slot)
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
        if slot.holds_run_slot:
            self._give_back(slot)
        elif slot.is_coordinator or not slot.has_turn:
            self._stop_waiting(slot)
            if was_first and not (slot.is_coordinator or slot.is_elsewhere):
                self._remove_ready(slot)
        if not queue:
            del self._queues[slot.session_key]
        elif was_first:
            # Behind the sessions that are ready already: a busy session does not get ahead of them.
            self._make_ready(queue[0])
        if self._ready:
            self._start_ready()

    def release_run_slot(self, slot: QueueSlot) -> None:
        """A run waits for another agent: others may use its run slot."""
        if slot.holds_run_slot:
            self._give_back(slot)
            if self._ready:
                self._start_ready()
        elif not slot.has_turn and slot in self._ready.get((slot.peer, slot.agent_id), ()):
            # It was taken over, and its agent waits already: it needs no slot to continue.
            self._remove_ready(slot)
            self._make_ready(slot)

    def retake_run_slot(self, slot: QueueSlot) -> None:
        """The run goes on, if it has not left meanwhile."""
        queue = self._queues.get(slot.session_key)
        is_at_work = bool(queue) and queue[0] is slot and slot.has_turn
        if is_at_work and not (slot.is_coordinator or slot.holds_run_slot):
            self._take_run_slot(slot)

    # ---------------------------------------------------------------- run slots

    def _has_run_slot(self, peer: PeerName, agent_id: AgentId) -> bool:
        limits = self._limits
        return (
            self.running < limits.runs
            and (peer == LOCAL_PEER or self._running_by_peer.get(peer, 0) < limits.peer_runs)
            and self._running_by_agent.get(agent_id, 0) < limits.agent_runs
        )

    def _take_run_slot(self, slot: QueueSlot) -> None:
        peer, agent_id = slot.peer, slot.agent_id
        self.running += 1
        self._running_by_peer[peer] = self._running_by_peer.get(peer, 0) + 1
        self._running_by_agent[agent_id] = self._running_by_agent.get(agent_id, 0) + 1
        self._number += 1
        self._served.pop(peer, None)
        self._served[peer] = self._number
        if len(self._served) > _MOST_REMEMBERED:
            del self._served[next(iter(self._served))]
        slot.holds_run_slot = True

    def _give_back(self, slot: QueueSlot) -> None:
        peer, agent_id = slot.peer, slot.agent_id
        slot.holds_run_slot = False
        self.running -= 1
        self._running_by_agent[agent_id] -= 1
        if not self._running_by_agent[agent_id]:
            del self._running_by_agent[agent_id]
        self._running_by_peer[peer] -= 1
        if not self._running_by_peer[peer]:
            del self._running_by_peer[peer]

    def _counted_with(self, is_coordinator: bool, is_elsewhere: bool) -> _Waiting:
        if is_elsewhere:
            return self._elsewhere
        return self._coordinating if is_coordinator else self._waiting

    def _stop_waiting(self, slot: QueueSlot) -> None:
        self._counted_with(slot.is_coordinator, slot.is_elsewhere).remove(slot.peer)

    # ---------------------------------------------------------------- ready slots

    def _make_ready(self, slot: QueueSlot) -> None:
        """The slot is the first of its session."""
        if slot.is_elsewhere:
            return
        if slot.is_coordinator:
            slot.grant()
            return
        if slot.waits:
            self._stop_waiting(slot)
            slot.grant()
            return
        self._number += 1
        slot.ready_number = self._number
        self._ready.setdefault((slot.peer, slot.agent_id), deque()).append(slot)

    def _remove_ready(self, slot: QueueSlot) -> None:
        key = (slot.peer, slot.agent_id)
        ready = self._ready[key]
        ready.remove(slot)
        if not ready:
            del self._ready[key]

    def _start_ready(self) -> None:
        """Give the free run slots to ready slots, in fair turns."""
        while self.running < self._limits.runs and (slot := self._next_ready()) is not None:
            self._remove_ready(slot)
            self._stop_waiting(slot)
            self._take_run_slot(slot)
            slot.grant()

    def _next_ready(self) -> QueueSlot | None:
        """Which slot comes next; None when every peer or agent with ready slots is at its limit.

        The peer that holds the fewest run slots is first; of several, the one that was served
        longest ago; of one peer, whatever was ready first. So a peer with many runs that end and
        begin anew never keeps out one with none, however many of its runs wait.
        """
        best, best_rank = None, None
        for (peer, agent_id), ready in self._ready.items():
            if self._has_run_slot(peer, agent_id):
                rank = (
                    self._running_by_peer.get(peer, 0),
                    self._served.get(peer, 0),
                    ready[0].ready_number,
                )
                if best_rank is None or rank < best_rank:
                    best, best_rank = ready[0], rank
        return best

    def _check_limits(self, peer: PeerName, in_session: int, waiting: _Waiting) -> None:
        limits = self._limits
        # The caller's own limits first: past one of them, others are not in its way.
        # Greater, not equal: the first of the queue runs and does not wait.
        if in_session > limits.session_queue:
            raise Overloaded(
                f"{limits.session_queue} messages wait in this context already; let some end first",
                setting="limits.sessionQueue",
            )
        if peer != LOCAL_PEER and waiting.by_peer.get(peer, 0) >= limits.peer_queue:
            raise Overloaded(
                f"{peer} has {limits.peer_queue} runs waiting already; let some end first",
                setting="limits.perPeerQueue",
            )
        if waiting.total >= limits.queue:
            raise Overloaded(
                f"{waiting.total} runs are waiting already; try again shortly",
                setting="limits.queue",
            )
