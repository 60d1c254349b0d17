"""The gateway is stopped and started again in the middle of calls: one outcome all the same."""

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
    answers,
    call_gateway_in,
    main_session,
)

from openclaw_a2a.app.gateway import SystemClock
from openclaw_a2a.model.errors import StoreUnavailable
from openclaw_a2a.ports import Record, Recovery, Store

A = main_session("a")
DELIVERED = "deliveredAt"


class LaterClock(SystemClock):
    """The machine's clock, some time ahead."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self.ahead


@pytest.fixture(params=["sqlite", "json-file"])
async def town(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncIterator[CallGateway]:
    """A village whose gateway is open, over each store that outlives it."""
    monkeypatch.chdir(tmp_path)
    async with call_gateway_in(tmp_path, request.param) as one:
        for member in one.agents.values():
            member.recovery = Recovery.REATTACH  # nobody is asked before a call is accepted
        await one.open()
        yield one


def store_of(village: CallGateway) -> Store:
    assert village.gateway is not None
    [engine] = village.gateway.engines.values()
    return engine.store


async def records_of(village: CallGateway) -> list[Json]:
    return [json.loads(one.body) for one in await store_of(village).records.list_records("call")]


async def other_call_arrives(village: CallGateway, count: int) -> None:
    """Whatever was to be brought to the session before has been brought when this is."""
    village.agents["d"].answer = answers("after all")
    await village.call("a", "d")
    await village.host.wait_messages(A, count)


# -------------------------------------------------------------------- deadlines


@pytest.mark.requirement("calls.state.overdue")
async def test_a_deadline_that_passed_meanwhile_is_told_at_the_start(town: CallGateway) -> None:
    town.agents["b"].answer = HeldAnswer()
    call = await town.call("a", "b", timeoutSeconds=30)
    await town.close()
    clock = LaterClock()
    clock.ahead = timedelta(seconds=31)
    await town.open(clock=clock)
    [told] = await town.host.wait_messages(A)
    assert (told["kind"], told["correlationId"]) == ("skill_timeout", call["correlationId"])


@pytest.mark.requirement("calls.state.re-armed", "calls.times.others")
async def test_a_deadline_that_lies_ahead_is_kept_to(town: CallGateway) -> None:
    town.agents["b"].answer = HeldAnswer()
    call = await town.call("a", "b", timeout=700)
    await town.reopen()
    await town.reopen()
    [told] = await town.host.wait_messages(A)
    assert told["kind"] == "skill_timeout"
    times = (await town.poll("a", call))["times"]
    wanted, was = (datetime.fromisoformat(times[one]) for one in ("deadline", "timedOut"))
    assert timedelta() <= was - wanted


async def test_an_answer_that_was_there_in_time_wins_however_late_the_gateway_comes_back(
    town: CallGateway,
) -> None:
    town.host.is_unavailable = True
    await town.call("a", "b", timeoutSeconds=30)
    await town.host.wait_until(lambda: bool(town.host.attempts))
    await town.close()
    town.host.is_unavailable = False
    clock = LaterClock()
    clock.ahead = timedelta(minutes=5)
    await town.open(clock=clock)
    [told] = await town.host.wait_messages(A)
    assert (told["kind"], told["output"]) == ("skill_response", "done")


@pytest.mark.requirement("promise.calls.late", "calls.routing.late")
async def test_an_answer_after_the_timeout_and_a_restart_is_told_to_nobody_but_who_asks(
    town: CallGateway,
) -> None:
    held = HeldAnswer()
    town.agents["b"].answer = held
    call = await town.call("a", "b", timeout=50)
    await town.host.wait_messages(A)
    await town.reopen()
    held.go.set()
    late = await town.poll("a", call, lambda polled: polled["status"] != "timeout")
    assert (late["output"], late["late"]) == ("at last", True)
    await other_call_arrives(town, 2)
    assert len(town.host.attempts) == 2


# -------------------------------------------------------------------- answers


@pytest.mark.requirement("calls.state.durable", "promise.calls.restart")
async def test_a_call_goes_on_after_a_restart(town: CallGateway) -> None:
    held = HeldAnswer()
    town.agents["b"].answer = held
    call = await town.call("a", "b")
    await town.reopen()
    assert (await town.poll("a", call))["status"] == "working"
    held.go.set()
    [told] = await town.host.wait_messages(A)
    assert told["output"] == "at last"
    assert {one["correlationId"] for one in town.agents["b"].invocations} == {call["correlationId"]}


async def test_a_callee_that_must_not_be_asked_again_makes_an_error(town: CallGateway) -> None:
    held = HeldAnswer()
    town.agents["b"].answer = held
    town.agents["b"].recovery = Recovery.FAIL
    await town.call("a", "b")
    await held.asked.wait()
    await town.reopen()
    [told] = await town.host.wait_messages(A)
    assert (told["kind"], told["status"]) == ("skill_response", "error")
    assert "cannot be repeated" in told["error"]
    assert len(town.agents["b"].invocations) == 1


@pytest.mark.requirement("promise.calls.restart", "calls.routing.once")
async def test_what_was_brought_is_not_brought_again(town: CallGateway) -> None:
    await town.call("a", "b")
    await town.host.wait_messages(A)
    for count in (2, 3):
        await town.reopen()
        await other_call_arrives(town, count)
        assert len(town.host.attempts) == count


async def test_what_the_host_took_without_a_word_is_brought_again_and_changes_nothing(
    town: CallGateway,
) -> None:
    town.host.loses_replies = True
    await town.call("a", "b")
    await town.host.wait_until(lambda: bool(town.host.attempts))
    await town.close()
    town.host.loses_replies = False
    count = len(town.host.attempts)
    await town.open()
    await town.host.wait_until(lambda: len(town.host.attempts) > count)
    await other_call_arrives(town, 2)
    assert len(town.host.accepted) == 2
    assert not town.host.attempts[count].is_first_attempt


async def test_what_the_host_took_and_the_store_did_not_note_is_brought_again_and_changes_nothing(
    town: CallGateway,
) -> None:
    store = store_of(town)
    write = store.records.update_record

    async def fail_when_brought(record: Record) -> bool:
        if json.loads(record.body)[DELIVERED] is not None:
            raise StoreUnavailable("the disk is full")
        return await write(record)

    store.records.update_record = fail_when_brought  # pyright: ignore[reportAttributeAccessIssue] - a fault
    await town.call("a", "b")
    await town.host.wait_messages(A)
    await town.host.wait_until(lambda: len(town.host.attempts) >= 2)
    await town.reopen()
    count = len(town.host.attempts)
    await town.host.wait_until(lambda: len(town.host.attempts) > count)
    await other_call_arrives(town, 2)
    assert [note.is_first_attempt for note in town.host.attempts[:2]] == [True, False]
    assert {note.text for note in town.host.attempts[:2]} == {town.host.accepted[0].text}


async def test_what_the_host_lost_is_brought_again_also_by_the_next_life(town: CallGateway) -> None:
    town.host.processed.clear()
    await town.call("a", "b")
    await town.host.wait_messages(A)
    town.host.accepted.clear()  # the host was restarted, and forgot what waited for a busy session
    town.host.is_unavailable = True
    town.host.processed.set()
    await town.host.wait_until(lambda: len(town.host.attempts) >= 2)
    await town.close()
    town.host.is_unavailable = False
    await town.open()
    assert len(await town.host.wait_messages(A)) == 1


async def test_what_was_found_lost_right_before_a_stop_is_brought_by_the_next_life(
    town: CallGateway,
) -> None:
    town.host.processed.clear()
    await town.call("a", "b")
    await town.host.wait_messages(A)
    town.host.accepted.clear()
    town.host.processed.set()
    with anyio.fail_after(10):
        while [one[DELIVERED] for one in await records_of(town)] != [None]:
            await checkpoint()
    await town.reopen()
    assert len(await town.host.wait_messages(A)) == 1


@pytest.mark.requirement("calls.times.others")
async def test_a_session_that_went_away_meanwhile_discards_the_answer(town: CallGateway) -> None:
    town.host.is_unavailable = True
    call = await town.call("a", "b")
    await town.host.wait_until(lambda: bool(town.host.attempts))
    await town.close()
    town.host.is_unavailable = False
    town.host.gone.add(A)
    count = len(town.host.attempts)
    await town.open()
    await town.host.wait_until(lambda: len(town.host.attempts) > count)
    polled = await town.poll("a", call, lambda polled: "discarded" in polled["times"])
    assert polled["output"] == "done"
    await town.reopen()
    assert (await town.poll("a", call))["output"] == "done"
    assert town.host.accepted == []


async def test_what_was_asked_for_before_the_restart_is_not_brought_after_it(
    town: CallGateway,
) -> None:
    town.host.is_unavailable = True
    call = await town.call("a", "b")
    await town.host.wait_until(lambda: bool(town.host.attempts))
    await town.poll("a", call, lambda polled: "seen" in polled["times"])
    await town.close()
    town.host.is_unavailable = False
    await town.open()
    await other_call_arrives(town, 1)
    assert [note.id for note in town.host.accepted] != [call["correlationId"]]


# -------------------------------------------------------------------- who waits, and who has none


@pytest.mark.parametrize("is_answered", [True, False])
async def test_who_waited_for_a_gateway_that_stopped_is_told_in_its_session(
    town: CallGateway, is_answered: bool
) -> None:
    held = HeldAnswer()
    town.agents["b"].answer = held
    async with town.waiting_call("a", "b", wait=True) as exchange:
        await held.asked.wait()
        if is_answered:
            held.go.set()
        await town.close()
        chunk = await exchange.next_chunk()
    answer = json.loads(chunk or b"{}")
    held.go.set()
    await town.open()
    if answer.get("status") != "completed":
        assert answer.get("status") == "pending" or "error" in answer
        [told] = await town.host.wait_messages(A)
        assert told["output"] == "at last"
    await other_call_arrives(town, 1 + len(town.host.accepted))
    assert len(town.host.attempts) == len(town.host.accepted)


async def test_without_a_timeout_nothing_is_brought_after_a_restart_either(
    town: CallGateway,
) -> None:
    held = HeldAnswer()
    town.agents["b"].answer = held
    call = await town.call("a", "b", timeoutSeconds=0)
    await town.reopen()
    held.go.set()
    polled = await town.poll("a", call, lambda polled: polled["status"] != "working")
    assert polled["output"] == "at last"
    await town.reopen()
    await other_call_arrives(town, 1)
    assert len(town.host.attempts) == 1
    assert (await town.poll("a", call))["output"] == "at last"


@pytest.mark.requirement("calls.inbox.durable")
async def test_an_inbox_survives_a_restart(town: CallGateway) -> None:
    held = HeldAnswer()
    town.agents["b"].answer = held
    arguments: Json = {"agent": "b", "skill": "work", "input": {}}
    call = await town.call_tool(town.program_client("script"), "agent_call", arguments)
    await town.reopen()
    held.go.set()
    asked = {"correlationId": call["correlationId"]}
    polled: Json = {"status": "working"}
    with anyio.fail_after(10):
        while polled["status"] == "working":
            polled = await town.call_tool(town.program_client("script"), "agent_poll", asked)
    await town.reopen()
    again = await town.call_tool(town.program_client("script"), "agent_poll", asked)
    assert again["output"] == polled["output"] == "at last"


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

    def __init__(self, village: CallGateway, held_skill: str) -> None:
        self.held = HeldAnswer('{"output": "at last", "confidence": 0.7}')
        self._held_skill = held_skill
        self.answered: list[str] = []
        self.village = village
        for name in "bcd":
            village.agents[name].answer = self._answer()

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
        return [one for name in "bcd" for one in self.village.agents[name].invocations]


@pytest.mark.requirement("calls.debate.restart", "calls.debate.later")
@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("skill", ["propose", "critique", "refine", "resolve"])
async def test_a_debate_goes_on_where_it_was(town: CallGateway, skill: str, waits: bool) -> None:
    debaters = Debaters(town, skill)
    asking = asyncio.ensure_future(
        town.call_tool(town.client("a"), "debate_call", {**DEBATE, "wait": waits})
    )
    await debaters.held.asked.wait()
    if not waits:
        assert (await asking)["status"] == "pending"
    await town.reopen()
    await asyncio.wait({asking}, timeout=10)
    assert asking.done()
    assert asking.exception() is not None or asking.result()["status"] == "pending"
    debaters.held.go.set()
    [told] = await town.host.wait_messages(A)
    assert told["output"]["status"] in ("resolved", "unresolved")
    assert sorted(debaters.answered) == sorted(STEPS)
    asked = {(one["correlationId"], one["skill"]) for one in debaters.asked}
    assert sorted(skill for _, skill in asked) == sorted(STEPS)
    assert len(town.host.attempts) == 1
