"""The state machine of outcome delivery, driven by its table."""

from datetime import UTC, datetime

import msgspec
import pytest

from openclaw_a2a.calls.outcome_state import (
    TRANSITIONS,
    OutcomeEvent,
    OutcomeState,
    OutcomeStates,
    WaitingCaller,
    stored_state,
)
from openclaw_a2a.model.call import Call, Caller, CallId, CallStatus, OutcomeRoute
from openclaw_a2a.model.ids import AgentId, SessionKey, TaskId

NOW = datetime(2026, 1, 1, tzinfo=UTC)
S, E = OutcomeState, OutcomeEvent

PENDING = Call(
    id=CallId("1"),
    task_id=TaskId("t"),
    caller=Caller(AgentId("a"), "host", SessionKey("agent:a:main")),
    callee=AgentId("b"),
    skill="work",
    mode="execute",
    session_key=SessionKey("agent:b:call:1"),
    return_to=SessionKey("agent:a:main"),
    timeout_ms=60_000,
    accepted_at=NOW,
    route=OutcomeRoute.SESSION,
)
SETTLED = msgspec.structs.replace(PENDING, status=CallStatus.COMPLETED, settled_at=NOW)
WAITED = msgspec.structs.replace(SETTLED, route=OutcomeRoute.WAITED)
DELIVERED = msgspec.structs.replace(SETTLED, delivered_at=NOW)
SEEN = msgspec.structs.replace(DELIVERED, seen_at=NOW)

STORED = {
    S.PENDING: PENDING,
    S.OFFERED: WAITED,
    S.WRITTEN: WAITED,
    S.CLAIMED: SETTLED,
    S.QUEUED: SETTLED,
    S.SENDING: SETTLED,
    S.ACCEPTED: SETTLED,
    S.PROCESSING: DELIVERED,
    S.DONE: SEEN,
}
"""The stored call under each state."""
ATTEMPTING = (S.SENDING, S.ACCEPTED)


def states_in(state: OutcomeState) -> tuple[OutcomeStates, Call]:
    """A call in this state, reached by the steps that lead there."""
    states, call = OutcomeStates(), STORED[state]
    if state is S.WRITTEN:
        states.settle(call, E.SETTLED_FOR_WAITER, WaitingCaller(accepts_timeouts=False))
        assert states.mark_written(call)
    elif state is S.CLAIMED:
        assert states.start_claim(call)
    elif state in ATTEMPTING:
        assert states.advance(call, E.ATTEMPT_STARTED)
        assert state is S.SENDING or states.advance(call, E.ACCEPTED_BY_HOST)
    return states, call


@pytest.mark.parametrize("state", S)
def test_each_state_is_reached_from_what_is_stored(state: OutcomeState) -> None:
    states, call = states_in(state)
    assert states.state_of(call) is state


@pytest.mark.parametrize("event", E)
@pytest.mark.parametrize("state", S)
def test_an_event_leads_where_the_table_says_and_nowhere_else(
    state: OutcomeState, event: OutcomeEvent
) -> None:
    states, call = states_in(state)
    target = TRANSITIONS.get((state, event))
    assert states.next_state(call, event) is target
    assert states.advance(call, event) is (target is not None)
    if target is None:
        assert states.state_of(call) is state
    else:
        assert states.state_of(STORED[target]) is target


@pytest.mark.parametrize("event", [E.CLAIM_STARTED, E.ATTEMPT_STARTED, E.POLLED, E.WAITER_LOST])
@pytest.mark.parametrize("state", ATTEMPTING)
def test_nothing_interrupts_an_attempt(state: OutcomeState, event: OutcomeEvent) -> None:
    assert (state, event) not in TRANSITIONS


@pytest.mark.parametrize("state", [*set(S) - {S.QUEUED}])
def test_an_attempt_starts_only_for_an_outcome_that_is_queued(state: OutcomeState) -> None:
    assert (state, E.ATTEMPT_STARTED) not in TRANSITIONS


def test_every_state_but_the_last_can_be_left_and_every_state_can_be_reached() -> None:
    assert {state for state, _ in TRANSITIONS} == set(S)
    assert {*TRANSITIONS.values(), S.PENDING} == set(S)


@pytest.mark.parametrize("state", [S.WRITTEN, S.CLAIMED, *ATTEMPTING])
def test_a_restart_goes_back_to_what_is_stored(state: OutcomeState) -> None:
    _, call = states_in(state)
    assert OutcomeStates().state_of(call) is stored_state(call)


@pytest.mark.parametrize("stored", [DELIVERED, SEEN])
@pytest.mark.parametrize("state", ATTEMPTING)
def test_what_another_replica_stored_wins_over_an_attempt_of_ours(
    state: OutcomeState, stored: Call
) -> None:
    states, _ = states_in(state)
    assert states.state_of(stored) is stored_state(stored)


def test_a_claim_that_is_aborted_gives_the_outcome_back_as_it_was() -> None:
    states = OutcomeStates()
    states.settle(WAITED, E.SETTLED_FOR_WAITER, WaitingCaller(accepts_timeouts=False))
    assert states.start_claim(WAITED)
    assert states.mark_written(WAITED)  # the waiting caller gets its result at the same time
    states.abort_claim(WAITED)
    assert states.state_of(WAITED) is S.WRITTEN


def test_a_session_works_on_an_outcome_from_the_attempt_until_it_is_processed() -> None:
    states = OutcomeStates()
    states.settle(SETTLED, E.SETTLED, None)
    assert not states.in_sessions
    for event in (E.ATTEMPT_STARTED, E.ACCEPTED_BY_HOST):
        assert states.advance(SETTLED, event)
        assert states.in_sessions == {SETTLED.caller.session_key: {SETTLED.id}}
    states.enter(DELIVERED, S.PROCESSING)
    assert states.in_sessions == {SETTLED.caller.session_key: {SETTLED.id}}
    states.enter(SEEN, S.DONE)
    assert not states.in_sessions


def test_only_the_first_attempt_of_the_process_that_settled_the_call_is_a_first_one() -> None:
    states = OutcomeStates()
    states.settle(SETTLED, E.SETTLED, None)
    for is_first in (True, False):
        assert states.advance(SETTLED, E.ATTEMPT_STARTED)
        assert states.start_sending(SETTLED) is is_first
        states.end_attempt(SETTLED)
    restarted = OutcomeStates()
    assert restarted.advance(SETTLED, E.ATTEMPT_STARTED)
    assert not restarted.start_sending(SETTLED)


def test_an_attempt_that_fails_gives_the_outcome_back_and_others_wait_for_it_again() -> None:
    for state in ATTEMPTING:
        states, call = states_in(state)
        assert states.may_be_overtaken(call) is (state is S.ACCEPTED)
        states.end_attempt(call)
        assert states.state_of(call) is S.QUEUED
        assert not states.may_be_overtaken(call)


def test_an_outcome_behind_another_is_woken_once() -> None:
    states = OutcomeStates()
    assert not states.end_wait_for_earlier(SETTLED)
    states.mark_waits_for_earlier(SETTLED)
    assert states.state_of(SETTLED) is S.QUEUED
    assert [states.end_wait_for_earlier(SETTLED) for _ in range(2)] == [True, False]
