"""Lanes: one run at a time per session, in order, within the limits, whoever leaves when."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from openclaw_a2a.engine.scheduling.session_queue import QueueLimits, QueueSlot, SessionQueues
from openclaw_a2a.model.errors import Overloaded
from openclaw_a2a.model.ids import LOCAL_PEER, AgentId, PeerName, SessionKey

ALICE, BOB = PeerName("alice"), PeerName("bob")
PEERS = [ALICE, BOB, PeerName("carol")]
MAIN, OTHER = AgentId("main"), AgentId("other")


def key(name: str) -> SessionKey:
    return SessionKey(name)


def turns(places: Sequence[QueueSlot]) -> list[bool]:
    return [place.has_turn for place in places]


def test_first_of_a_session_has_its_turn_at_once_and_the_others_follow_in_order() -> None:
    queues = SessionQueues(QueueLimits())
    places = [queues.join(key("s"), ALICE, MAIN) for _ in range(3)]
    assert turns(places) == [True, False, False]
    queues.leave(places[0])
    assert turns(places) == [True, True, False]
    queues.leave(places[1])
    assert turns(places) == [True, True, True]


def test_sessions_do_not_wait_for_each_other() -> None:
    queues = SessionQueues(QueueLimits())
    assert turns([queues.join(key(name), ALICE, MAIN) for name in "abc"]) == [True] * 3


def test_slot_that_leaves_while_waiting_is_skipped() -> None:
    queues = SessionQueues(QueueLimits())
    first, second, third = (queues.join(key("s"), ALICE, MAIN) for _ in range(3))
    queues.leave(second)
    queues.leave(first)
    assert (second.has_turn, third.has_turn) == (False, True)
    assert (queues.running, queues.waiting) == (1, 0)


def test_leaving_twice_changes_nothing() -> None:
    queues = SessionQueues(QueueLimits())
    first, second = (queues.join(key("s"), ALICE, MAIN) for _ in range(2))
    queues.leave(first)
    queues.leave(first)
    assert (queues.running, queues.waiting, second.has_turn) == (1, 0, True)


def test_peer_at_its_own_limit_does_not_block_other_peers() -> None:
    queues = SessionQueues(QueueLimits(runs=2, peer_runs=1))
    mine = [queues.join(key(name), ALICE, MAIN) for name in "ab"]
    theirs = queues.join(key("c"), BOB, MAIN)
    assert turns([*mine, theirs]) == [True, False, True]
    queues.leave(theirs)
    assert turns(mine) == [True, False]
    queues.leave(mine[0])
    assert mine[1].has_turn


def test_queue_has_a_limit() -> None:
    queues = SessionQueues(QueueLimits(runs=1, queue=2))
    for name in "abc":
        queues.join(key(name), ALICE, MAIN)
    with pytest.raises(Overloaded) as refusal:
        queues.join(key("d"), ALICE, MAIN)
    assert refusal.value.retry_after_s > 0
    assert queues.waiting == 2


def test_session_has_a_limit() -> None:
    queues = SessionQueues(QueueLimits(session_queue=1))
    queues.join(key("s"), ALICE, MAIN)
    queues.join(key("s"), ALICE, MAIN)
    with pytest.raises(Overloaded):
        queues.join(key("s"), ALICE, MAIN)
    queues.join(key("other"), ALICE, MAIN)


def test_peer_has_a_limit_of_its_own() -> None:
    queues = SessionQueues(QueueLimits(runs=1, peer_queue=1))
    queues.join(key("a"), ALICE, MAIN)
    queues.join(key("b"), ALICE, MAIN)
    with pytest.raises(Overloaded):
        queues.join(key("c"), ALICE, MAIN)
    queues.join(key("d"), BOB, MAIN)


def test_work_that_was_accepted_before_is_never_rejected() -> None:
    queues = SessionQueues(QueueLimits(runs=1, queue=1, session_queue=1, peer_queue=1))
    places = [queues.join(key("s"), ALICE, MAIN, is_accepted=True) for _ in range(10)]
    assert turns(places) == [True] + [False] * 9


async def test_waiting_for_a_turn_ends_when_it_comes() -> None:
    queues = SessionQueues(QueueLimits())
    first, second = (queues.join(key("s"), ALICE, MAIN) for _ in range(2))
    await first.wait_turn()
    waiting = asyncio.ensure_future(second.wait_turn())
    await asyncio.sleep(0)
    assert not waiting.done()
    queues.leave(first)
    await waiting


async def test_cancelled_waiter_can_still_leave() -> None:
    queues = SessionQueues(QueueLimits())
    first, second, third = (queues.join(key("s"), ALICE, MAIN) for _ in range(3))
    waiting = asyncio.ensure_future(second.wait_turn())
    await asyncio.sleep(0)
    waiting.cancel()
    queues.leave(first)
    queues.leave(second)
    assert third.has_turn


def test_a_caller_that_holds_nothing_gets_the_next_run_slot() -> None:
    queues = SessionQueues(QueueLimits(runs=1))
    running = queues.join(key("first"), ALICE, MAIN)
    hers = [queues.join(key(f"a{number}"), ALICE, MAIN) for number in range(5)]
    his = [queues.join(key(f"b{number}"), BOB, MAIN) for number in range(2)]
    order: list[QueueSlot] = []
    while running is not None:
        queues.leave(running)
        running = next((one for one in [*hers, *his] if one.has_turn and one not in order), None)
        order += [running] if running else []
    assert order == [his[0], hers[0], his[1], *hers[1:]]


def test_an_agent_at_its_limit_does_not_keep_out_runs_of_other_agents() -> None:
    queues = SessionQueues(QueueLimits(runs=2, agent_runs=1))
    busy = queues.join(key("a"), ALICE, MAIN)
    waiting = queues.join(key("b"), ALICE, MAIN)
    other = queues.join(key("c"), ALICE, OTHER)
    assert turns([busy, waiting, other]) == [True, False, True]
    queues.leave(busy)
    assert waiting.has_turn


def test_local_may_use_every_run_slot_and_the_whole_queue() -> None:
    queues = SessionQueues(QueueLimits(runs=3, queue=3, peer_runs=1, peer_queue=1))
    slots = [queues.join(key(name), LOCAL_PEER, MAIN) for name in "abcdef"]
    assert turns(slots) == [True] * 3 + [False] * 3
    with pytest.raises(Overloaded, match=r"limits\.queue"):
        queues.join(key("g"), LOCAL_PEER, MAIN)


def test_a_run_that_waits_for_another_agent_lends_its_run_slot() -> None:
    queues = SessionQueues(QueueLimits(runs=1))
    caller = queues.join(key("caller"), ALICE, MAIN)
    callee = queues.join(key("callee"), ALICE, OTHER)
    behind = queues.join(key("caller"), ALICE, MAIN)
    with caller.released():
        assert turns([callee, behind]) == [True, False]
    third = queues.join(key("third"), BOB, MAIN)
    assert queues.running == 2
    queues.leave(callee)
    assert not third.has_turn
    queues.leave(caller)
    assert third.has_turn


def test_a_coordinator_takes_no_run_slot_and_no_place_in_the_queue_of_others() -> None:
    queues = SessionQueues(QueueLimits(runs=1, queue=1))
    debate = queues.join(key("debate"), ALICE, OTHER, is_coordinator=True)
    steps = [queues.join(key(name), ALICE, MAIN) for name in "ab"]
    assert turns([debate, *steps]) == [True, True, False]
    with pytest.raises(Overloaded, match=r"limits\.queue"):
        queues.join(key("another"), ALICE, OTHER, is_coordinator=True)


def test_a_queued_run_whose_agent_waits_holds_one_run_slot_when_the_answer_is_there() -> None:
    """A run that was taken over waits for its turn while its agent waits for an answer."""
    queues = SessionQueues(QueueLimits(runs=1))
    first = queues.join(key("first"), ALICE, MAIN)
    taken = queues.join(key("taken"), ALICE, MAIN, is_accepted=True)
    third = queues.join(key("third"), BOB, MAIN)
    with taken.released():
        queues.leave(first)
        # It continues, but the slot is for those that work: perhaps it waits for one of them.
        assert turns([taken, third]) == [True, True]
        assert queues.running == 1
    assert queues.running == 2
    queues.leave(third)
    queues.leave(taken)
    assert queues.running == 0


def test_runs_that_wait_for_another_replica_leave_the_queue_to_the_others() -> None:
    queues = SessionQueues(QueueLimits(runs=1, queue=2, peer_queue=2))
    absent = [queues.join(key(f"absent-{one}"), BOB, OTHER, is_elsewhere=True) for one in range(2)]
    with pytest.raises(Overloaded, match=r"limits\.perPeerQueue"):
        queues.join(key("absent-2"), BOB, OTHER, is_elsewhere=True)
    here = [queues.join(key(f"here-{one}"), BOB, MAIN) for one in range(3)]
    assert turns([*absent, *here]) == [False, False, True, False, False]
    assert queues.waiting == 4
    for slot in [*absent, *here]:
        queues.leave(slot)
    assert queues.waiting == queues.running == 0


@given(
    queued=st.lists(st.sampled_from(PEERS), max_size=40),
    runs=st.integers(1, 4),
    peer_runs=st.integers(1, 4),
    data=st.data(),
)
def test_no_caller_starves_and_each_is_served_in_its_order(
    queued: list[PeerName], runs: int, peer_runs: int, data: st.DataObject
) -> None:
    """Each free run slot goes to one that holds the fewest; no caller waits a second round."""
    queues = SessionQueues(QueueLimits(runs=runs, peer_runs=peer_runs))
    slots = [queues.join(key(str(number)), peer, MAIN) for number, peer in enumerate(queued)]
    served, running = [one for one in slots if one.has_turn], [one for one in slots if one.has_turn]
    passed_over: Counter[PeerName] = Counter()
    while running:
        running.remove(ended := data.draw(st.sampled_from(running)))
        waiting = {one.peer for one in slots if not one.has_turn}
        queues.leave(ended)
        for started in [one for one in slots if one.has_turn and one not in served]:
            held = Counter(one.peer for one in running)
            could = [peer for peer in waiting if held[peer] < peer_runs]
            assert held[started.peer] == min(held[peer] for peer in could)
            for peer in could:
                passed_over[peer] += peer != started.peer
            passed_over[started.peer] = 0
            # Of those that hold as few, each other one can come before it once, and no more often.
            assert all(passed_over[one] < len(PEERS) for one in could if not held[one])
            served.append(started)
            running.append(started)
    assert len(served) == len(slots)
    for peer in PEERS:
        assert [one for one in served if one.peer == peer] == [
            one for one in slots if one.peer == peer
        ]


def test_callers_that_send_one_message_after_another_do_not_keep_out_one_with_several() -> None:
    queues, numbers = SessionQueues(QueueLimits(runs=1)), itertools.count()

    def join(peer: PeerName) -> QueueSlot:
        return queues.join(key(str(next(numbers))), peer, MAIN)

    one_by_one, patient = PEERS[:2], PEERS[2]
    slots = [join(peer) for peer in (*one_by_one, patient, patient, patient)]
    served: list[PeerName] = []
    for _ in range(9):
        [running] = [one for one in slots if one.has_turn]
        served.append(running.peer)
        slots.remove(running)
        queues.leave(running)
        if running.peer in one_by_one:
            slots.append(join(running.peer))
    assert served.count(patient) == 3
    assert min(served.count(peer) for peer in one_by_one) >= 2


class LaneMachine(RuleBasedStateMachine):
    """Lanes against a plain list of who came when."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = QueueLimits()
        self.queues = SessionQueues(self.limits)
        self.places: list[QueueSlot] = []
        self.lent: dict[QueueSlot, ExitStack] = {}
        self.has_lent = False

    @initialize(
        runs=st.integers(1, 3),
        queue=st.integers(1, 6),
        session_queue=st.integers(1, 3),
        peer_runs=st.integers(1, 3),
        peer_queue=st.integers(1, 4),
        agent_runs=st.integers(1, 3),
    )
    def open(self, **limits: int) -> None:
        self.limits = QueueLimits(**limits)
        self.queues = SessionQueues(self.limits)

    @rule(
        session=st.sampled_from("abcd"),
        peer=st.sampled_from(PEERS),
        agent=st.sampled_from([MAIN, OTHER]),
        is_coordinator=st.booleans(),
    )
    def join(self, session: str, peer: PeerName, agent: AgentId, is_coordinator: bool) -> None:
        is_refused = self.is_full(key(session), peer, agent, is_coordinator=is_coordinator)
        before = turns(self.places)
        try:
            joined = self.queues.join(key(session), peer, agent, is_coordinator=is_coordinator)
            self.places.append(joined)
        except Overloaded:
            assert is_refused
            assert turns(self.places) == before
        else:
            assert not is_refused

    @rule(session=st.sampled_from("abcd"), peer=st.sampled_from(PEERS))
    def join_again(self, session: str, peer: PeerName) -> None:
        self.places.append(self.queues.join(key(session), peer, MAIN, is_accepted=True))

    @precondition(lambda self: self.places)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        place = data.draw(st.sampled_from(self.places))
        self.places.remove(place)
        self.check_grants(partial(self.queues.leave, place))
        if (lent := self.lent.pop(place, None)) is not None:
            lent.close()  # its call is answered when nobody waits for the answer any more

    @precondition(lambda self: any(one.has_turn for one in self.places))
    @rule(data=st.data())
    def wait_for_agent(self, data: st.DataObject) -> None:
        place = data.draw(st.sampled_from([one for one in self.places if one.has_turn]))
        if place not in self.lent:
            waiting, self.has_lent = ExitStack(), True
            self.lent[place] = waiting
            self.check_grants(lambda: waiting.enter_context(place.released()))

    @precondition(lambda self: self.lent)
    @rule(data=st.data())
    def get_answer(self, data: st.DataObject) -> None:
        place = data.draw(st.sampled_from(list(self.lent)))
        self.lent.pop(place).close()
        assert place.holds_run_slot is not place.is_coordinator

    def check_grants(self, change: Callable[[], object]) -> None:
        """Of what starts, the first has a peer that held as few run slots as any that could."""
        ready = [one for one in self.heads() if not (one.has_turn or one.is_coordinator)]
        change()
        started = [one for one in ready if one.has_turn]
        if len(started) != 1:
            return
        held = Counter(one.peer for one in self.holders() if one is not started[0])
        agents = Counter(one.agent_id for one in self.holders() if one is not started[0])
        could = [
            one
            for one in ready
            if one in self.places
            and held[one.peer] < self.limits.peer_runs
            and agents[one.agent_id] < self.limits.agent_runs
        ]
        assert held[started[0].peer] == min(held[one.peer] for one in could)

    def is_full(
        self, session: SessionKey, peer: PeerName, agent: AgentId, *, is_coordinator: bool
    ) -> bool:
        """What the limits say about one more."""
        limits, lane = self.limits, [one for one in self.places if one.session_key == session]
        waiting = [
            one
            for one in self.places
            if one.is_coordinator == is_coordinator and (is_coordinator or not one.has_turn)
        ]
        if not lane and not is_coordinator and self.has_run_slot(peer, agent):
            return False
        return (
            len(waiting) >= limits.queue
            or len(lane) > limits.session_queue
            or sum(one.peer == peer for one in waiting) >= limits.peer_queue
        )

    def holders(self) -> list[QueueSlot]:
        return [
            one
            for one in self.places
            if one.has_turn and not one.is_coordinator and one not in self.lent
        ]

    def has_run_slot(self, peer: PeerName, agent: AgentId) -> bool:
        limits, holders = self.limits, self.holders()
        return (
            len(holders) < limits.runs
            and sum(one.peer == peer for one in holders) < limits.peer_runs
            and sum(one.agent_id == agent for one in holders) < limits.agent_runs
        )

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
        holders = self.holders()
        assert [one for one in self.places if one.holds_run_slot] == holders
        assert self.queues.running == len(holders)
        waiting = [one for one in self.places if not (one.has_turn or one.is_coordinator)]
        assert self.queues.waiting == len(waiting)
        # Past a limit only by runs that have got their answers and go on.
        if not self.has_lent:
            assert len(holders) <= self.limits.runs
            held = Counter(place.peer for place in holders)
            assert all(count <= self.limits.peer_runs for count in held.values())

    @invariant()
    def nobody_waits_without_need(self) -> None:
        for place in self.heads():
            assert place.has_turn or not self.has_run_slot(place.peer, place.agent_id)


TestLanes = LaneMachine.TestCase
TestLanes.settings = settings(settings.default, stateful_step_count=40)
