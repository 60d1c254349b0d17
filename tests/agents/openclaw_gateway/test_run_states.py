"""The state machine of a followed run: table, invariant, and the states of whole runs."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import product

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agents.openclaw_gateway.conftest import ENVIRON, Json
from tests.agents.openclaw_gateway.scripted_gateway import (
    GatewayRequest,
    ScriptedGateway,
    assistant_entry,
    run_event,
    text_block,
    user_entry,
)

from openclaw_a2a.agents.openclaw_gateway.connection import (
    EventSubscription,
    GatewayConnection,
    acquire_connection,
    release_connection,
)
from openclaw_a2a.agents.openclaw_gateway.handshake import GatewaySite
from openclaw_a2a.agents.openclaw_gateway.protocol import RUN_EVENTS
from openclaw_a2a.agents.openclaw_gateway.run_follower import (
    ACTIVE,
    NO_STATUS,
    TRANSITIONS,
    RunFollower,
    RunSignal,
    RunState,
    next_state,
)
from openclaw_a2a.agents.openclaw_gateway.runs import RunRequest, SessionRef, Timeouts
from openclaw_a2a.model.agent_event import AgentEvent, InputRequired, Reply
from openclaw_a2a.model.errors import AgentFailed, AgentUnavailable
from openclaw_a2a.model.ids import TaskId

KEY = "agent:main:a2a:local:c-1"
RUN = "a2a-r1"
PARAMS: Json = {"sessionKey": KEY, "idempotencyKey": RUN, "message": "hi"}
TERMINAL = frozenset(RunState) - ACTIVE - {RunState.NEW}
FAST = Timeouts(reconnect_s=0.3, recovery_s=0.3, silence_s=30, run_poll_s=30, lookup_poll_s=0.05)


# -------------------------------------------------------------------- the table


@pytest.mark.parametrize(("state", "signal"), list(product(RunState, RunSignal)))
def test_only_transitions_in_the_table_are_possible(state: RunState, signal: RunSignal) -> None:
    expected = TRANSITIONS.get(state, {}).get(signal)
    if expected is None:
        with pytest.raises(RuntimeError, match=f"{state.name} cannot take {signal.name}"):
            next_state(state, signal)
    else:
        assert next_state(state, signal) is expected


def test_terminal_states_have_no_exit_and_active_states_can_reach_all_of_them() -> None:
    assert not TERMINAL & TRANSITIONS.keys()
    for state in ACTIVE:
        assert set(TRANSITIONS[state].values()) >= TERMINAL


def test_only_a_lookup_or_a_new_message_leaves_the_detached_state_for_an_active_one() -> None:
    back = {
        signal
        for signal, state in TRANSITIONS[RunState.DETACHED].items()
        if state in ACTIVE - {RunState.DETACHED}
    }
    assert back == {
        RunSignal.SENT,
        RunSignal.FOUND_LIVE,
        RunSignal.FOUND_HIDDEN,
        RunSignal.ADOPTED,
    }


# -------------------------------------------------------------------- the invariant


def assert_invariant(follower: RunFollower) -> None:
    assert follower._run_request is None or follower._wait_request is None
    assert (follower._reconnect_deadline is not None) is (follower.state is RunState.DETACHED)
    if follower.state not in {RunState.DETACHED, RunState.RECOVERING}:
        assert follower._recovery_deadline is None
    if not follower.is_active:
        assert follower._run_request is None
        assert follower._wait_request is None
    assert follower.is_active is (follower.state in ACTIVE)
    assert follower.is_over is (follower.state in TERMINAL)


def unconnected_follower() -> RunFollower:
    connection = GatewayConnection(GatewaySite("ws://127.0.0.1:1"))
    return make_follower(connection, EventSubscription(RUN_EVENTS))


def make_follower(
    connection: GatewayConnection,
    subscription: EventSubscription,
    timeouts: Timeouts = FAST,
    params: Json = PARAMS,
) -> RunFollower:
    request = RunRequest(TaskId("task-1"), RUN, SessionRef("main", KEY, "/w"), params=params)
    return RunFollower(connection, subscription, request, timeouts)


@given(choices=st.lists(st.integers(min_value=0, max_value=30), max_size=25))
def test_every_walk_through_the_table_keeps_the_invariant(choices: list[int]) -> None:
    async def walk() -> None:
        follower = unconnected_follower()
        assert_invariant(follower)
        for choice in choices:
            signals = list(TRANSITIONS.get(follower.state, {}))
            if not signals:
                break
            # What a request in progress leaves behind must not outlive its state.
            if follower.is_active and follower._wait_request is None:
                follower._run_request = "7"
            follower.apply(signals[choice % len(signals)])
            assert_invariant(follower)

    anyio.run(walk)


# -------------------------------------------------------------------- real courses


@asynccontextmanager
async def following(
    gateway: ScriptedGateway, timeouts: Timeouts = FAST, params: Json = PARAMS
) -> AsyncGenerator[RunFollower]:
    site = GatewaySite(gateway.url, "env:TOKEN")
    connection = acquire_connection(site, environ=ENVIRON)
    await connection.wait_connected(240)
    with connection.subscribe(RUN_EVENTS, KEY) as subscription:
        yield make_follower(connection, subscription, timeouts, params)
    await release_connection(connection)


async def step_until(follower: RunFollower, *states: RunState) -> list[AgentEvent]:
    """Drive the run until it is in one of the states; the invariant holds after every step."""
    events: list[AgentEvent] = []
    with anyio.fail_after(240):
        while follower.state not in states:
            events += await follower.next()
            assert_invariant(follower)
    return events


def history(*messages: Json, active: list[str] | None = None) -> Json:
    state = {"hasActiveRun": bool(active), "activeRunIds": active or []}
    return {"messages": list(messages), "sessionInfo": state}


async def test_a_run_that_ends_on_its_connection(gateway: ScriptedGateway) -> None:
    @gateway.on("agent")
    async def answer(request: GatewayRequest) -> None:
        await request.answer({"status": "accepted"})
        await request.end("done")

    async with following(gateway) as follower:
        assert follower.state is RunState.NEW
        await follower.begin()
        assert follower.state is RunState.RUNNING
        await step_until(follower, RunState.COMPLETED)


async def test_a_lost_connection_detaches_until_the_lookup(gateway: ScriptedGateway) -> None:
    gateway.answers["agent"] = {"status": "accepted"}
    gateway.answers["chat.history"] = history(user_entry(RUN), active=[RUN])
    async with following(gateway, msgspec.structs.replace(FAST, reconnect_s=20)) as follower:
        await follower.begin()
        await gateway.wait_for("agent")
        gateway.drop()
        await step_until(follower, RunState.DETACHED)
        await step_until(follower, RunState.RUNNING)
        done = assistant_entry(RUN, text_block("done"))
        gateway.answers["chat.history"] = history(user_entry(RUN), done)
        await gateway.wait_for("agent.wait", 2)
        gateway.drop()
        await step_until(follower, RunState.COMPLETED)
    assert len(gateway.methods("agent")) == 1


async def test_a_run_is_abandoned_when_the_gateway_stays_unreachable(
    gateway: ScriptedGateway,
) -> None:
    gateway.answers["agent"] = {"status": "accepted"}
    async with following(gateway) as follower:
        await follower.begin()
        await gateway.wait_for("agent")
        gateway.hello = {**gateway.hello, "protocol": 3}  # every reconnect is refused
        gateway.drop()
        with pytest.raises(AgentUnavailable):
            await step_until(follower, *TERMINAL)
        assert follower.state is RunState.ABANDONED
        assert_invariant(follower)


async def test_a_connected_gateway_that_fails_every_lookup_is_not_said_to_have_lost_the_run(
    gateway: ScriptedGateway,
) -> None:
    async def refuse(request: GatewayRequest) -> None:
        await request.refuse({"code": "UNAVAILABLE", "message": "too busy", "retryable": True})

    gateway.script["chat.history"] = refuse
    async with following(gateway) as follower:
        await follower.join()
        with pytest.raises(AgentUnavailable) as raised:
            await step_until(follower, *TERMINAL)
        assert follower.state is RunState.ABANDONED
        assert raised.value.message == NO_STATUS


async def test_a_hidden_run_is_awaited_and_then_fails(gateway: ScriptedGateway) -> None:
    gateway.answers["chat.history"] = history(user_entry(RUN))
    async with following(gateway) as follower:
        await follower.join()
        assert follower.state is RunState.RECOVERING
        assert_invariant(follower)
        await step_until(follower, RunState.FAILED)


async def test_an_event_proves_that_a_hidden_run_lives(gateway: ScriptedGateway) -> None:
    gateway.answers["chat.history"] = history(user_entry(RUN))
    async with following(gateway, msgspec.structs.replace(FAST, recovery_s=20)) as follower:
        await follower.join()
        await gateway.emit("agent", run_event(RUN, KEY, "assistant", {"delta": "x"}))
        await step_until(follower, RunState.RUNNING)


async def test_a_hidden_run_that_is_found_live_waits_without_further_lookups(
    gateway: ScriptedGateway,
) -> None:
    """Its recovery deadline ended every later wait at once: lookups in a busy loop."""
    gateway.answers["chat.history"] = history(user_entry(RUN))

    @gateway.on("agent.wait")
    async def answer_lookups_only(request: GatewayRequest) -> None:
        if request.params["timeoutMs"] <= FAST.lookup_poll_s * 1000:
            await request.answer({"status": "timeout"})

    timeouts = msgspec.structs.replace(FAST, recovery_s=5)
    async with following(gateway, timeouts) as follower:
        await follower.join()
        gateway.answers["chat.history"] = history(user_entry(RUN), active=[RUN])
        await step_until(follower, RunState.RUNNING)
        lookups = len(gateway.methods("chat.history"))
        with anyio.move_on_after(2 * timeouts.recovery_s):
            while True:
                assert await follower.next() == ()
        assert len(gateway.methods("chat.history")) == lookups


async def test_a_resumed_run_is_adopted(gateway: ScriptedGateway) -> None:
    gateway.answers["chat.history"] = history(user_entry(RUN), active=["recovery-1"])
    async with following(gateway) as follower:
        await follower.join()
        assert (follower.state, follower.run_id) == (RunState.RUNNING, "recovery-1")
        assert_invariant(follower)


async def test_a_run_that_waits_for_its_caller_is_paused(gateway: ScriptedGateway) -> None:
    question = {"questionId": "q", "question": "Which?"}
    request = {"id": "ask-1", "questions": [question], "runId": RUN, "status": "pending"}
    gateway.answers["chat.history"] = history(user_entry(RUN), active=[RUN])
    gateway.answers["question.list"] = {"questions": [request]}
    async with following(gateway) as follower:
        events = await follower.join()
        assert isinstance(events[-1], InputRequired)
        assert follower.state is RunState.PAUSED
        assert_invariant(follower)


async def test_a_run_without_a_message_that_openclaw_forgot_is_unknown(
    gateway: ScriptedGateway,
) -> None:
    async with following(gateway, params=None) as follower:
        await follower.join()
        assert follower.state is RunState.UNKNOWN
        assert_invariant(follower)


async def test_a_message_that_cannot_be_sent_fails_its_run(gateway: ScriptedGateway) -> None:
    params = {**PARAMS, "message": "x" * 200_000}
    async with following(gateway, params=params) as follower:
        with pytest.raises(AgentFailed):
            await follower.begin()
        assert follower.state is RunState.FAILED
        assert_invariant(follower)


async def test_an_aborted_run_is_stopped_once_its_end_is_confirmed(
    gateway: ScriptedGateway,
) -> None:
    gateway.answers["agent"] = {"status": "accepted"}

    @gateway.on("chat.abort")
    async def abort(request: GatewayRequest) -> None:
        await request.answer({"ok": True, "aborted": True})
        data = {"phase": "end", "executionSettled": True}
        await request.event("agent", run_event(RUN, KEY, "lifecycle", data))

    async with following(gateway) as follower:
        await follower.begin()
        await follower.stop()
        assert follower.state is RunState.STOPPED
        assert_invariant(follower)


async def test_missed_events_are_emitted_although_the_next_request_fails(
    gateway: ScriptedGateway,
) -> None:
    """The events were counted as emitted and thrown away with the failed lookup."""
    first = assistant_entry(RUN, text_block("First"))
    gateway.answers["chat.history"] = history(user_entry(RUN), first, active=[RUN])

    @gateway.on("question.list")
    async def break_off(request: GatewayRequest) -> None:
        if len(gateway.methods("question.list")) == 1:
            gateway.answers["chat.history"] = history(user_entry(RUN), first)
            gateway.drop()
        else:
            await request.answer({"questions": []})

    async with following(gateway, msgspec.structs.replace(FAST, reconnect_s=20)) as follower:
        events = [*await follower.join()]
        assert follower.state is RunState.DETACHED
        events += await step_until(follower, *TERMINAL)
    replies = [event for event in events if isinstance(event, Reply)]
    assert replies == [Reply.of_text("First")]
