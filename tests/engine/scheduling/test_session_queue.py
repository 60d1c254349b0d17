"""Lanes: one run at a time per session, in order, within the limits, whoever leaves when."""

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from openclaw_a2a.engine.scheduling.session_queue import QueueLimits, QueueSlot, SessionQueues
from openclaw_a2a.model.errors import Overloaded
from openclaw_a2a.model.ids import PeerName, SessionKey

ALICE, BOB = PeerName("alice"), PeerName("bob")


def key(name: str) -> SessionKey:
    return SessionKey(name)


def turns(places: Sequence[QueueSlot]) -> list[bool]:
    return [place.has_turn for place in places]


def test_first_of_a_session_has_its_turn_at_once_and_the_others_follow_in_order() -> None:
    queues = SessionQueues(QueueLimits())
    places = [queues.join(key("s"), ALICE) for _ in range(3)]
    assert turns(places) == [True, False, False]
    places[0].leave()
    assert turns(places) == [True, True, False]
    places[1].leave()
    assert turns(places) == [True, True, True]


def test_sessions_do_not_wait_for_each_other() -> None:
    queues = SessionQueues(QueueLimits())
    assert turns([queues.join(key(name), ALICE) for name in "abc"]) == [True] * 3


def test_slot_that_leaves_while_waiting_is_skipped() -> None:
    queues = SessionQueues(QueueLimits())
    first, second, third = (queues.join(key("s"), ALICE) for _ in range(3))
    second.leave()
    first.leave()
    assert (second.has_turn, third.has_turn) == (False, True)
    assert (queues.running, queues.waiting) == (1, 0)


def test_leaving_twice_changes_nothing() -> None:
    queues = SessionQueues(QueueLimits())
    first, second = (queues.join(key("s"), ALICE) for _ in range(2))
    first.leave()
    first.leave()
    assert (queues.running, queues.waiting, second.has_turn) == (1, 0, True)


def test_peer_at_its_own_limit_does_not_block_other_peers() -> None:
    queues = SessionQueues(QueueLimits(runs=2, peer_runs=1))
    mine = [queues.join(key(name), ALICE) for name in "ab"]
    theirs = queues.join(key("c"), BOB)
    assert turns([*mine, theirs]) == [True, False, True]
    theirs.leave()
    assert turns(mine) == [True, False]
    mine[0].leave()
    assert mine[1].has_turn


def test_queue_has_a_limit() -> None:
    queues = SessionQueues(QueueLimits(runs=1, queue=2))
    for name in "abc":
        queues.join(key(name), ALICE)
    with pytest.raises(Overloaded) as refusal:
        queues.join(key("d"), ALICE)
    assert refusal.value.retry_after_s > 0
    assert queues.waiting == 2


def test_session_has_a_limit() -> None:
    queues = SessionQueues(QueueLimits(session_queue=1))
    queues.join(key("s"), ALICE)
    queues.join(key("s"), ALICE)
    with pytest.raises(Overloaded):
        queues.join(key("s"), ALICE)
    queues.join(key("other"), ALICE)


def test_peer_has_a_limit_of_its_own() -> None:
    queues = SessionQueues(QueueLimits(runs=1, peer_queue=1))
    queues.join(key("a"), ALICE)
    queues.join(key("b"), ALICE)
    with pytest.raises(Overloaded):
        queues.join(key("c"), ALICE)
    queues.join(key("d"), BOB)


def test_work_that_was_accepted_before_is_never_rejected() -> None:
    queues = SessionQueues(QueueLimits(runs=1, queue=1, session_queue=1, peer_queue=1))
    places = [queues.join(key("s"), ALICE, is_accepted=True) for _ in range(10)]
    assert turns(places) == [True] + [False] * 9


async def test_waiting_for_a_turn_ends_when_it_comes() -> None:
    queues = SessionQueues(QueueLimits())
    first, second = (queues.join(key("s"), ALICE) for _ in range(2))
    await first.wait_turn()
    waiting = asyncio.ensure_future(second.wait_turn())
    await asyncio.sleep(0)
    assert not waiting.done()
    first.leave()
    await waiting


async def test_cancelled_waiter_can_still_leave() -> None:
    queues = SessionQueues(QueueLimits())
    first, second, third = (queues.join(key("s"), ALICE) for _ in range(3))
    waiting = asyncio.ensure_future(second.wait_turn())
    await asyncio.sleep(0)
    waiting.cancel()
    first.leave()
    second.leave()
    assert third.has_turn


class LaneMachine(RuleBasedStateMachine):
    """Lanes against a plain list of who came when."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = QueueLimits()
        self.queues = SessionQueues(self.limits)
        self.places: list[QueueSlot] = []

    @initialize(
        runs=st.integers(1, 3),
        queue=st.integers(1, 6),
        session_queue=st.integers(1, 3),
        peer_runs=st.integers(1, 3),
        peer_queue=st.integers(1, 4),
    )
    def open(self, **limits: int) -> None:
        self.limits = QueueLimits(**limits)
        self.queues = SessionQueues(self.limits)

    @rule(session=st.sampled_from("abc"), peer=st.sampled_from([ALICE, BOB]))
    def join(self, session: str, peer: PeerName) -> None:
        is_refused = self.is_full(key(session), peer)
        before = turns(self.places)
        try:
            self.places.append(self.queues.join(key(session), peer))
        except Overloaded:
            assert is_refused
            assert turns(self.places) == before
        else:
            assert not is_refused

    @rule(session=st.sampled_from("abc"), peer=st.sampled_from([ALICE, BOB]))
    def join_again(self, session: str, peer: PeerName) -> None:
        self.places.append(self.queues.join(key(session), peer, is_accepted=True))

    @precondition(lambda self: self.places)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        place = data.draw(st.sampled_from(self.places))
        ready = self.first_ready_but(place) if place.has_turn else None
        self.places.remove(place)
        place.leave()
        if ready is not None:
            assert ready.has_turn

    def is_full(self, session: SessionKey, peer: PeerName) -> bool:
        """What the limits say about one more."""
        limits, waiting = self.limits, [one for one in self.places if not one.has_turn]
        lane = [one for one in self.places if one.session_key == session]
        running = [one for one in self.places if one.has_turn]
        has_slot = len(running) < limits.runs and self.running_of(peer) < limits.peer_runs
        if not lane and has_slot:
            return False
        return (
            len(waiting) >= limits.queue
            or len(lane) > limits.session_queue
            or sum(one.peer == peer for one in waiting) >= limits.peer_queue
        )

    def running_of(self, peer: PeerName) -> int:
        return sum(one.has_turn and one.peer == peer for one in self.places)

    def first_ready_but(self, leaving: QueueSlot) -> QueueSlot | None:
        """Who must have a turn when this one leaves: the next of its own session, alone there."""
        lane = [one for one in self.places if one.session_key == leaving.session_key]
        others_wait = any(not one.has_turn for one in self.heads() if one is not leaving)
        behind = lane[1] if len(lane) > 1 else None
        if behind is None or others_wait:
            return None
        limit = self.limits.peer_runs
        running = self.running_of(behind.peer) - (behind.peer == leaving.peer)
        return behind if running < limit else None

    def heads(self) -> list[QueueSlot]:
        queues: dict[SessionKey, QueueSlot] = {}
        for place in self.places:
            queues.setdefault(place.session_key, place)
        return list(queues.values())

    @invariant()
    def one_run_per_session_and_it_is_the_first(self) -> None:
        running = [place for place in self.places if place.has_turn]
        assert all(place in self.heads() for place in running)
        assert len({place.session_key for place in running}) == len(running)

    @invariant()
    def counts_are_right_and_within_limits(self) -> None:
        running = Counter(place.peer for place in self.places if place.has_turn)
        assert self.queues.running == running.total() <= self.limits.runs
        assert self.queues.waiting == len(self.places) - running.total()
        assert all(count <= self.limits.peer_runs for count in running.values())

    @invariant()
    def nobody_waits_without_need(self) -> None:
        if self.queues.running < self.limits.runs:
            for place in self.heads():
                assert place.has_turn or self.running_of(place.peer) == self.limits.peer_runs


TestLanes = LaneMachine.TestCase
TestLanes.settings = settings(settings.default, stateful_step_count=40)
