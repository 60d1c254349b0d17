"""Restarts of the gateway during calls: each call still has one outcome."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint
from tests.calls.call_gateway import (
    Answer,
    CallGateway,
    HeldAnswer,
    Json,
    LaterClock,
    answers,
    call_gateway_in,
    main_session,
)

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.engine_state import EngineSignal
from openclaw_a2a.model.errors import StoreUnavailable
from openclaw_a2a.ports import Record, Recovery, Store

A = main_session("a")
DELIVERED = "deliveredAt"


@pytest.fixture(params=["sqlite", "json-file"])
async def closed_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncIterator[CallGateway]:
    """A gateway that the test opens, over each store that outlives it."""
    monkeypatch.chdir(tmp_path)
    async with call_gateway_in(tmp_path, request.param) as one:
        for member in one.agents.values():
            member.recovery = Recovery.REATTACH  # nobody is asked before a call is accepted
        await one.open()
        yield one


def engine_of(gateway: CallGateway) -> Engine:
    assert gateway.running is not None
    [engine] = gateway.running.engines.values()
    return engine


def store_of(gateway: CallGateway) -> Store:
    return engine_of(gateway).store


async def records_of(gateway: CallGateway) -> list[Json]:
    return [json.loads(one.body) for one in await store_of(gateway).records.list_records("call")]


async def other_call_arrives(gateway: CallGateway, count: int) -> None:
    """What was to be sent to the session before has arrived when this has."""
    gateway.agents["d"].answer = answers("after all")
    await gateway.call("a", "d")
    await gateway.host.wait_messages(A, count)


# -------------------------------------------------------------------- deadlines


@pytest.mark.requirement("calls.state.overdue")
async def test_a_deadline_that_passed_meanwhile_is_reported_at_the_start(
    closed_gateway: CallGateway,
) -> None:
    closed_gateway.agents["b"].answer = HeldAnswer()
    call = await closed_gateway.call("a", "b", timeoutSeconds=30)
    await closed_gateway.close()
    clock = LaterClock()
    clock.ahead = timedelta(seconds=31)
    await closed_gateway.open(clock=clock)
    [outcome] = await closed_gateway.host.wait_messages(A)
    assert (outcome["kind"], outcome["correlationId"]) == ("skill_timeout", call["correlationId"])


@pytest.mark.requirement("calls.state.re-armed", "calls.times.others")
async def test_a_deadline_that_lies_ahead_is_kept_to(closed_gateway: CallGateway) -> None:
    closed_gateway.agents["b"].answer = HeldAnswer()
    call = await closed_gateway.call("a", "b", timeout=700)
    await closed_gateway.reopen()
    await closed_gateway.reopen()
    [outcome] = await closed_gateway.host.wait_messages(A)
    assert outcome["kind"] == "skill_timeout"
    times = (await closed_gateway.poll("a", call))["times"]
    wanted, was = (datetime.fromisoformat(times[one]) for one in ("deadline", "timedOut"))
    assert timedelta() <= was - wanted


async def test_an_answer_that_was_there_in_time_wins_however_late_the_gateway_comes_back(
    closed_gateway: CallGateway,
) -> None:
    closed_gateway.host.is_unavailable = True
    await closed_gateway.call("a", "b", timeoutSeconds=30)
    await closed_gateway.host.wait_until(lambda: bool(closed_gateway.host.attempts))
    await closed_gateway.close()
    closed_gateway.host.is_unavailable = False
    clock = LaterClock()
    clock.ahead = timedelta(minutes=5)
    await closed_gateway.open(clock=clock)
    [outcome] = await closed_gateway.host.wait_messages(A)
    assert (outcome["kind"], outcome["output"]) == ("skill_response", "done")


@pytest.mark.requirement("promise.calls.late", "calls.routing.late")
async def test_an_answer_after_the_timeout_and_a_restart_can_only_be_polled(
    closed_gateway: CallGateway,
) -> None:
    held = HeldAnswer()
    closed_gateway.agents["b"].answer = held
    call = await closed_gateway.call("a", "b", timeout=50)
    await closed_gateway.host.wait_messages(A)
    await closed_gateway.reopen()
    held.go.set()
    late = await closed_gateway.poll("a", call, lambda polled: polled["status"] != "timeout")
    assert (late["output"], late["late"]) == ("at last", True)
    await other_call_arrives(closed_gateway, 2)
    assert len(closed_gateway.host.attempts) == 2


# -------------------------------------------------------------------- answers


@pytest.mark.requirement("calls.state.durable", "promise.calls.restart")
async def test_a_call_goes_on_after_a_restart(closed_gateway: CallGateway) -> None:
    held = HeldAnswer()
    closed_gateway.agents["b"].answer = held
    call = await closed_gateway.call("a", "b")
    await closed_gateway.reopen()
    assert (await closed_gateway.poll("a", call))["status"] == "working"
    held.go.set()
    [outcome] = await closed_gateway.host.wait_messages(A)
    assert outcome["output"] == "at last"
    assert {one["correlationId"] for one in closed_gateway.agents["b"].invocations} == {
        call["correlationId"]
    }


async def test_a_callee_that_must_not_be_asked_again_makes_an_error(
    closed_gateway: CallGateway,
) -> None:
    held = HeldAnswer()
    closed_gateway.agents["b"].answer = held
    closed_gateway.agents["b"].recovery = Recovery.FAIL
    await closed_gateway.call("a", "b")
    await held.asked.wait()
    await closed_gateway.reopen()
    [outcome] = await closed_gateway.host.wait_messages(A)
    assert (outcome["kind"], outcome["status"]) == ("skill_response", "error")
    assert "cannot be repeated" in outcome["error"]
    assert len(closed_gateway.agents["b"].invocations) == 1


@pytest.mark.requirement("promise.calls.restart", "calls.routing.once")
async def test_a_delivered_outcome_is_not_delivered_again(closed_gateway: CallGateway) -> None:
    await closed_gateway.call("a", "b")
    await closed_gateway.host.wait_messages(A)
    for count in (2, 3):
        await closed_gateway.reopen()
        await other_call_arrives(closed_gateway, count)
        assert len(closed_gateway.host.attempts) == count


async def test_an_accepted_outcome_without_a_reply_is_sent_again_and_changes_nothing(
    closed_gateway: CallGateway,
) -> None:
    closed_gateway.host.loses_replies = True
    await closed_gateway.call("a", "b")
    await closed_gateway.host.wait_until(lambda: bool(closed_gateway.host.attempts))
    await closed_gateway.close()
    closed_gateway.host.loses_replies = False
    count = len(closed_gateway.host.attempts)
    await closed_gateway.open()
    await closed_gateway.host.wait_until(lambda: len(closed_gateway.host.attempts) > count)
    await other_call_arrives(closed_gateway, 2)
    assert len(closed_gateway.host.accepted) == 2
    assert not closed_gateway.host.attempts[count].is_first_attempt


async def test_an_accepted_outcome_that_was_not_recorded_is_sent_again_and_changes_nothing(
    closed_gateway: CallGateway,
) -> None:
    store = store_of(closed_gateway)
    write = store.records.update_record

    async def fail_when_delivered(record: Record) -> bool:
        if json.loads(record.body)[DELIVERED] is not None:
            raise StoreUnavailable("the disk is full")
        return await write(record)

    store.records.update_record = fail_when_delivered  # pyright: ignore[reportAttributeAccessIssue] - a fault
    await closed_gateway.call("a", "b")
    await closed_gateway.host.wait_messages(A)
    await closed_gateway.host.wait_until(lambda: len(closed_gateway.host.attempts) >= 2)
    await closed_gateway.reopen()
    count = len(closed_gateway.host.attempts)
    await closed_gateway.host.wait_until(lambda: len(closed_gateway.host.attempts) > count)
    await other_call_arrives(closed_gateway, 2)
    assert [message.is_first_attempt for message in closed_gateway.host.attempts[:2]] == [
        True,
        False,
    ]
    assert {message.text for message in closed_gateway.host.attempts[:2]} == {
        closed_gateway.host.accepted[0].text
    }


async def test_an_outcome_that_the_host_lost_is_sent_again_after_a_restart(
    closed_gateway: CallGateway,
) -> None:
    closed_gateway.host.processed.clear()
    await closed_gateway.call("a", "b")
    await closed_gateway.host.wait_messages(A)
    closed_gateway.host.accepted.clear()  # the host restarted, and lost it
    closed_gateway.host.is_unavailable = True
    closed_gateway.host.processed.set()
    await closed_gateway.host.wait_until(lambda: len(closed_gateway.host.attempts) >= 2)
    await closed_gateway.close()
    closed_gateway.host.is_unavailable = False
    await closed_gateway.open()
    assert len(await closed_gateway.host.wait_messages(A)) == 1


async def test_an_outcome_found_lost_right_before_a_stop_is_delivered_after_the_restart(
    closed_gateway: CallGateway,
) -> None:
    closed_gateway.host.processed.clear()
    await closed_gateway.call("a", "b")
    await closed_gateway.host.wait_messages(A)
    closed_gateway.host.accepted.clear()
    closed_gateway.host.processed.set()
    with anyio.fail_after(240):
        while [one[DELIVERED] for one in await records_of(closed_gateway)] != [None]:
            await checkpoint()
    await closed_gateway.reopen()
    assert len(await closed_gateway.host.wait_messages(A)) == 1


@pytest.mark.requirement("calls.times.others")
async def test_a_session_that_went_away_meanwhile_discards_the_answer(
    closed_gateway: CallGateway,
) -> None:
    closed_gateway.host.is_unavailable = True
    call = await closed_gateway.call("a", "b")
    await closed_gateway.host.wait_until(lambda: bool(closed_gateway.host.attempts))
    await closed_gateway.close()
    closed_gateway.host.is_unavailable = False
    closed_gateway.host.gone.add(A)
    count = len(closed_gateway.host.attempts)
    await closed_gateway.open()
    await closed_gateway.host.wait_until(lambda: len(closed_gateway.host.attempts) > count)
    polled = await closed_gateway.poll("a", call, lambda polled: "discarded" in polled["times"])
    assert polled["output"] == "done"
    await closed_gateway.reopen()
    assert (await closed_gateway.poll("a", call))["output"] == "done"
    assert closed_gateway.host.accepted == []


async def test_an_outcome_polled_before_the_restart_is_not_delivered_after_it(
    closed_gateway: CallGateway,
) -> None:
    closed_gateway.host.is_unavailable = True
    call = await closed_gateway.call("a", "b")
    await closed_gateway.host.wait_until(lambda: bool(closed_gateway.host.attempts))
    await closed_gateway.poll("a", call, lambda polled: "seen" in polled["times"])
    await closed_gateway.close()
    closed_gateway.host.is_unavailable = False
    await closed_gateway.open()
    await other_call_arrives(closed_gateway, 1)
    assert [message.id for message in closed_gateway.host.accepted] != [call["correlationId"]]


# -------------------------------------------------------------------- who waits, and who has none


@pytest.mark.parametrize("is_answered", [True, False])
async def test_a_caller_that_waited_when_the_gateway_stopped_gets_a_message(
    closed_gateway: CallGateway, is_answered: bool
) -> None:
    held = HeldAnswer()
    closed_gateway.agents["b"].answer = held
    async with closed_gateway.waiting_call("a", "b", wait=True) as exchange:
        await held.asked.wait()
        if is_answered:
            held.go.set()
        await closed_gateway.close()
        chunk = await exchange.next_chunk()
    answer = json.loads(chunk or b"{}")
    held.go.set()
    await closed_gateway.open()
    if answer.get("status") != "completed":
        assert answer.get("status") == "pending" or "error" in answer
        [outcome] = await closed_gateway.host.wait_messages(A)
        assert outcome["output"] == "at last"
    await other_call_arrives(closed_gateway, 1 + len(closed_gateway.host.accepted))
    assert len(closed_gateway.host.attempts) == len(closed_gateway.host.accepted)


async def test_without_a_timeout_nothing_is_delivered_after_a_restart_either(
    closed_gateway: CallGateway,
) -> None:
    held = HeldAnswer()
    closed_gateway.agents["b"].answer = held
    call = await closed_gateway.call("a", "b", timeoutSeconds=0)
    await closed_gateway.reopen()
    held.go.set()
    polled = await closed_gateway.poll("a", call, lambda polled: polled["status"] != "working")
    assert polled["output"] == "at last"
    await closed_gateway.reopen()
    await other_call_arrives(closed_gateway, 1)
    assert len(closed_gateway.host.attempts) == 1
    assert (await closed_gateway.poll("a", call))["output"] == "at last"


@pytest.mark.requirement("calls.inbox.durable")
async def test_an_inbox_survives_a_restart(closed_gateway: CallGateway) -> None:
    held = HeldAnswer()
    closed_gateway.agents["b"].answer = held
    arguments: Json = {"agent": "b", "skill": "work", "input": {}}
    call = await closed_gateway.call_tool(
        closed_gateway.program_client("script"), "agent_call", arguments
    )
    await closed_gateway.reopen()
    held.go.set()
    asked = {"correlationId": call["correlationId"]}
    polled: Json = {"status": "working"}
    with anyio.fail_after(240):
        while polled["status"] == "working":
            polled = await closed_gateway.call_tool(
                closed_gateway.program_client("script"), "agent_poll", asked
            )
    await closed_gateway.reopen()
    again = await closed_gateway.call_tool(
        closed_gateway.program_client("script"), "agent_poll", asked
    )
    assert again["output"] == polled["output"] == "at last"


async def test_an_outcome_of_which_only_the_delivery_was_stored_is_stored_after_a_restart(
    closed_gateway: CallGateway,
) -> None:
    async def fail(_record: Record) -> bool:
        raise StoreUnavailable("the disk is full")

    store_of(closed_gateway).records.update_record = fail  # pyright: ignore[reportAttributeAccessIssue] - a fault
    arguments: Json = {"agent": "b", "skill": "work", "input": {}}
    script = closed_gateway.program_client("script")
    call = await closed_gateway.call_tool(script, "agent_call", arguments)
    with anyio.fail_after(240):
        while (await closed_gateway.describe(call))["status"] == "pending":
            await checkpoint()
    await closed_gateway.reopen()
    with anyio.fail_after(240):
        while (await records_of(closed_gateway))[0]["status"] == "pending":
            await checkpoint()


# -------------------------------------------------------------------- debates

DEBATE = {
    "topic": "tides",
    "proposer": {"agent": "b", "skill": "propose"},
    "critics": [{"agent": "c"}, {"agent": "d"}],
    "resolver": {"agent": "d", "skill": "resolve"},
    "input": {},
    "rounds": 1,
}
STEPS = ["propose", "critique", "critique", "refine", "resolve"]


class Debaters:
    """Everybody answers at once, but for one skill, which waits for the test."""

    def __init__(self, gateway: CallGateway, held_skill: str) -> None:
        self.held = HeldAnswer('{"output": "at last", "confidence": 0.7}')
        self._held_skill = held_skill
        self.answered: list[str] = []
        self.gateway = gateway
        for name in "bcd":
            gateway.agents[name].answer = self._answer()

    def _answer(self) -> Answer:
        async def answer(invocation: Json) -> str:
            text = '{"output": "sooner", "confidence": 0.6}'
            if invocation["skill"] == self._held_skill:
                text = await self.held(invocation)
            self.answered.append(invocation["skill"])
            return text

        return answer

    @property
    def asked(self) -> list[Json]:
        return [one for name in "bcd" for one in self.gateway.agents[name].invocations]


@pytest.mark.requirement("calls.debate.restart", "calls.debate.later")
@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("skill", ["propose", "critique", "refine", "resolve"])
async def test_a_debate_goes_on_where_it_was(
    closed_gateway: CallGateway, skill: str, waits: bool
) -> None:
    debaters = Debaters(closed_gateway, skill)
    asking = asyncio.ensure_future(
        closed_gateway.call_tool(
            closed_gateway.client("a"), "debate_call", {**DEBATE, "wait": waits}
        )
    )
    await debaters.held.asked.wait()
    if not waits:
        assert (await asking)["status"] == "pending"
    await closed_gateway.reopen()
    await asyncio.wait({asking}, timeout=240)
    assert asking.done()
    assert asking.exception() is not None or asking.result()["status"] == "pending"
    debaters.held.go.set()
    [outcome] = await closed_gateway.host.wait_messages(A)
    assert outcome["output"]["status"] in ("resolved", "unresolved")
    assert sorted(debaters.answered) == sorted(STEPS)
    asked = {(one["correlationId"], one["skill"]) for one in debaters.asked}
    assert sorted(skill for _, skill in asked) == sorted(STEPS)
    assert len(closed_gateway.host.attempts) == 1


async def hold_first_step(gateway: CallGateway) -> Debaters:
    """Start a debate and hold its first step."""
    debaters = Debaters(gateway, "propose")
    asked = {**DEBATE, "wait": False}
    await gateway.call_tool(gateway.client("a"), "debate_call", asked)
    await debaters.held.asked.wait()
    return debaters


async def assert_concluded_once(gateway: CallGateway, debaters: Debaters) -> None:
    [outcome] = await gateway.host.wait_messages(A)
    assert outcome["output"]["status"] in ("resolved", "unresolved")
    assert sorted(one["skill"] for one in debaters.asked) == sorted(STEPS)


@pytest.mark.requirement("calls.debate.restart")
async def test_a_debate_whose_step_ends_while_the_gateway_stops_goes_on_after_the_restart(
    closed_gateway: CallGateway,
) -> None:
    debaters = await hold_first_step(closed_gateway)
    await engine_of(closed_gateway).drain(0)
    debaters.held.go.set()
    with anyio.fail_after(240):
        while "call-not-accepted" not in [
            one["event"] for one in await closed_gateway.read_audit()
        ]:
            await checkpoint()
    await closed_gateway.reopen()
    await assert_concluded_once(closed_gateway, debaters)


@pytest.mark.requirement("calls.debate.restart")
async def test_a_debate_ends_on_a_replica_that_the_operator_drains(
    closed_gateway: CallGateway,
) -> None:
    debaters = await hold_first_step(closed_gateway)
    engine_of(closed_gateway).apply(EngineSignal.DRAIN)
    debaters.held.go.set()
    await assert_concluded_once(closed_gateway, debaters)
