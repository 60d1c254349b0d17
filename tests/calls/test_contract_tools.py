"""What else the contract says: keeping, polls, skills, loops, batches and debates."""

import json
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import anyio
import pytest
from tests.calls.call_gateway import (
    CallGateway,
    HeldAnswer,
    Json,
    ScriptedAgent,
    answers,
    call_gateway_in,
    fails_with,
    main_session,
)
from tests.calls.test_retention import ManualClock
from tests.captured_logs import capture_logs
from tests.conformance.asgi_client import TIMEOUT_S

A = main_session("a")


@pytest.fixture
async def closed_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[CallGateway]:
    """A gateway that the test opens."""
    monkeypatch.chdir(tmp_path)
    async with call_gateway_in(tmp_path) as one:
        yield one


# -------------------------------------------------------------------- how long, and for whom


@pytest.mark.requirement("calls.state.kept", "calls.poll.unknown")
async def test_an_outcome_is_kept_for_the_calls_time_within_a_minute_and_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with call_gateway_in(tmp_path, "memory") as closed_gateway:
        clock = ManualClock()
        await closed_gateway.open({"responseRouting.maxTimeoutMs": 9_000_000}, clock)
        older = await ended_call(closed_gateway, timeoutSeconds=30)
        await pass_time(clock, 30)
        calls = [
            await ended_call(closed_gateway, timeoutSeconds=seconds) for seconds in (30, 300, 7200)
        ]
        await pass_time(clock, 31)
        assert await are_kept(closed_gateway, [older, *calls]) == [False, True, True, True]
        await pass_time(clock, 60)
        assert await are_kept(closed_gateway, calls) == [False, True, True]
        await pass_time(clock, 175)
        assert await are_kept(closed_gateway, calls) == [False, True, True]
        await pass_time(clock, 60)
        assert await are_kept(closed_gateway, calls) == [False, False, True]
        await pass_time(clock, 3230)
        assert await are_kept(closed_gateway, calls) == [False, False, True]
        await pass_time(clock, 60)
        assert await are_kept(closed_gateway, calls) == [False, False, False]


async def pass_time(clock: ManualClock, seconds: float) -> None:
    """Let time pass for everybody, and let them do what it was time for."""
    await anyio.wait_all_tasks_blocked()
    clock.advance(timedelta(seconds=seconds))
    await anyio.wait_all_tasks_blocked()


async def are_kept(gateway: CallGateway, calls: list[Json]) -> list[bool]:
    polled = [await gateway.poll("a", call) for call in calls]
    assert all(one.get("output") == "done" or is_unknown(one) for one in polled)
    return [not is_unknown(one) for one in polled]


async def ended_call(gateway: CallGateway, **more: Json) -> Json:
    """A call whose outcome its caller has seen."""
    call = await gateway.call("a", "b", **more)
    await gateway.poll("a", call, lambda polled: "seen" in polled["times"])
    return call


def is_unknown(polled: Json) -> bool:
    return polled["status"] == "error" and "no such call" in polled["error"]


@pytest.mark.requirement("calls.state.gone", "calls.state.words", "calls.times.others")
async def test_an_outcome_without_a_receiver_is_discarded_and_logged(gateway: CallGateway) -> None:
    gateway.host.gone.add(A)
    with capture_logs() as logs:
        call = await gateway.call("a", "b")
        await gateway.host.wait_until(lambda: bool(gateway.host.attempts))
        shown: Json = {"status": "pending"}
        with anyio.fail_after(TIMEOUT_S):
            while shown["status"] != "discarded":
                shown = await gateway.describe(call)
    assert shown["reason"] == "the session was deleted"
    assert "discarded" in shown["times"]
    [logged] = [one for one in logs if one["event"] == "calls.discarded"]
    assert (logged["call_id"], logged["log_level"]) == (call["correlationId"], "warning")
    assert gateway.host.accepted == []


@pytest.mark.requirement("calls.state.words", "calls.times.shown")
async def test_each_status_of_a_call_is_shown_by_its_word(gateway: CallGateway) -> None:
    held = HeldAnswer()
    gateway.agents["b"].answer = held
    gateway.agents["c"].answer = fails_with("out of paper")
    pending = await gateway.call("a", "b")
    timeout = await gateway.call("a", "b", timeout=50)
    error = await gateway.call("a", "c")
    completed = await gateway.call("a", "d")
    await gateway.host.wait_messages(A, 3)
    words = {"pending": pending, "timeout": timeout, "error": error, "completed": completed}
    for word, call in words.items():
        shown = await gateway.describe(call)
        assert shown["status"] == word
        assert ("answered" in shown["times"]) == (word in ("error", "completed"))
    held.go.set()
    await gateway.host.wait_messages(A, 4)


@pytest.mark.requirement("calls.poll.unknown", "calls.poll.own", "calls.poll.by-task")
async def test_a_call_of_another_caller_is_not_found(
    gateway: CallGateway,
) -> None:
    call = await gateway.call("a", "b")
    unknown = {"correlationId": str(uuid.uuid4())}
    nothing = await gateway.call_tool(gateway.client("c"), "agent_poll", unknown)
    assert nothing["status"] == "error"
    for name in ("correlationId", "taskId"):
        asked = {name: call[name]}
        assert await gateway.call_tool(gateway.client("c"), "agent_poll", asked) == nothing
        assert await gateway.call_tool(gateway.program_client("a"), "agent_poll", asked) == nothing
        other = gateway.client("a", "agent:a:telegram:7")
        found = await gateway.call_tool(other, "agent_poll", asked)
        assert found["correlationId"] == call["correlationId"]


@pytest.mark.requirement("calls.poll.unknown")
@pytest.mark.parametrize("asked", [{}, {"correlationId": 4}, {"taskId": None}, [], "x", None])
async def test_a_poll_that_names_no_call_is_an_error(gateway: CallGateway, asked: Json) -> None:
    result = await gateway.call_tool(gateway.client("a"), "agent_poll", asked)
    assert result["status"] == "error"
    assert "correlationId or the taskId" in result["error"]


# -------------------------------------------------------------------- skills and loops


@pytest.mark.requirement("calls.skills.undeclared")
async def test_an_agent_that_declares_nothing_takes_any_skill(gateway: CallGateway) -> None:
    for skill in ("dance", "Sing-2", "x" * 128):
        assert (await gateway.call("a", "b", skill, wait=True))["status"] == "completed"
    assert [one["skill"] for one in gateway.agents["b"].invocations] == [
        "dance",
        "Sing-2",
        "x" * 128,
    ]


@pytest.mark.requirement("calls.skills.ping", "calls.skills.no-run")
async def test_a_ping_has_five_seconds_and_runs_no_agent(gateway: CallGateway) -> None:
    gateway.agents["b"].answer = fails_with("not to be asked")
    call = await gateway.call("a", "b", "ping")
    [outcome] = await gateway.host.wait_messages(A)
    assert outcome["output"].keys() == {"status", "timestamp"}
    assert outcome["output"]["status"] == "pong"
    assert (await gateway.describe(call))["timeoutMs"] == 5000
    assert gateway.agents["b"].turns == []
    nobody = await gateway.call("a", "nobody", "ping")
    assert (nobody["status"], "correlationId" in nobody) == ("error", False)


@pytest.mark.requirement("calls.loop.ping-pong")
@pytest.mark.parametrize("turns", [0, 2])
async def test_calls_in_answer_to_answers_end_where_the_settings_say(
    closed_gateway: CallGateway, turns: int
) -> None:
    await closed_gateway.open({"tools.agentToAgent.maxPingPongTurns": turns})
    closed_gateway.host.processed.clear()  # the caller's turn is still about the answer
    for count in range(1, turns + 2):
        assert (await closed_gateway.call("a", "b"))["status"] == "pending"
        await closed_gateway.host.wait_messages(A, count)
    refused = await closed_gateway.call("a", "b")
    assert (refused["status"], refused["error"].partition(":")[0]) == ("error", "loop")
    closed_gateway.host.processed.set()


# -------------------------------------------------------------------- many calls


@pytest.mark.requirement("calls.batch.aggregate", "calls.batch.counts", "calls.batch.errors")
async def test_the_aggregate_is_the_mean_of_what_was_completed(gateway: CallGateway) -> None:
    for name, confidence in (("b", 0.9), ("c", 0.4)):
        gateway.agents[name].answer = answers(json.dumps({"output": 1, "confidence": confidence}))
    gateway.agents["d"].answer = fails_with("out of paper")
    calls: Json = [{"agent": one, "skill": "work", "input": {}} for one in ("d", "b", "d", "c")]
    result = await gateway.call_tool(gateway.client("a"), "agent_call_batch", {"calls": calls})
    assert result["aggregateConfidence"] == pytest.approx(0.65)
    counts = (result["completedCount"], result["errorCount"], result["totalCount"])
    assert counts == (2, 2, 4)
    assert "out of paper" in result["results"][2]["error"]
    failed = await gateway.call_tool(gateway.client("a"), "agent_call_batch", {"calls": [calls[0]]})
    assert (failed["aggregateConfidence"], failed["errorCount"]) == (0, 1)


@pytest.mark.requirement("calls.batch.at-once", "calls.batch.bounds")
async def test_five_calls_of_a_batch_are_under_way_at_once(gateway: CallGateway) -> None:
    held = HeldAnswer()
    gateway.agents["b"].answer = held
    call: Json = {"agent": "b", "skill": "work", "input": {}}
    results: list[Json] = []

    async def ask() -> None:
        arguments = {"calls": [call] * 50}
        results.append(await gateway.call_tool(gateway.client("a"), "agent_call_batch", arguments))

    async with anyio.create_task_group() as asking:
        asking.start_soon(ask)
        with anyio.fail_after(TIMEOUT_S):
            while len(gateway.agents["b"].invocations) < 5:
                await anyio.wait_all_tasks_blocked()
        assert len(gateway.agents["b"].invocations) == 5
        held.go.set()
    assert results[0]["completedCount"] == 50


@pytest.mark.requirement("calls.batch.bounds")
@pytest.mark.parametrize("count", [51, -1, 1.5, True])
async def test_a_batch_with_an_odd_concurrency_is_refused(
    gateway: CallGateway, count: Json
) -> None:
    arguments: Json = {"calls": [], "concurrency": count}
    result = await gateway.call_tool(gateway.client("a"), "agent_call_batch", arguments)
    assert result["status"] == "error"
    assert "concurrency" in result["error"]


# -------------------------------------------------------------------- debates

DEBATE: Json = {
    "topic": "tides",
    "proposer": {"agent": "b", "skill": "propose"},
    "critics": [{"agent": "c"}, {"agent": "d"}],
    "resolver": {"agent": "d", "skill": "resolve"},
    "input": {"q": "when?"},
    "rounds": 1,
}


@pytest.mark.requirement("calls.debate.checked-first")
@pytest.mark.parametrize(
    ("agent", "status", "word"),
    [("a", "error", "self-call"), ("x", "forbidden", "agent x may not")],
)
@pytest.mark.parametrize("role", ["proposer", "critics", "resolver"])
async def test_a_debate_with_a_forbidden_participant_calls_no_agent(
    closed_gateway: CallGateway, role: str, agent: str, status: str, word: str
) -> None:
    closed_gateway.agents["x"] = ScriptedAgent(closed_gateway.host, "x")
    await closed_gateway.open({"tools.agentToAgent.allow": ["a", "b", "c", "d"]})
    wrong = {"agent": f"agent:{agent}:main", "skill": "work"}
    others = [*DEBATE["critics"], wrong] if role == "critics" else wrong
    refused = await closed_gateway.call_tool(
        closed_gateway.client("a"), "debate_call", {**DEBATE, role: others}
    )
    assert refused["status"] == status
    assert word in refused["error"]
    assert [one for member in closed_gateway.agents.values() for one in member.turns] == []


@pytest.mark.requirement("calls.debate.own-calls", "calls.debate.later", "calls.debate.critics")
async def test_each_step_of_a_debate_is_a_call_whose_answer_goes_to_the_debate(
    gateway: CallGateway,
) -> None:
    for name in "bcd":
        gateway.agents[name].answer = answers('{"output": "well", "confidence": 0.6}')
    request = {**DEBATE, "wait": False, "timeoutSeconds": 7}
    call = await gateway.call_tool(gateway.client("a"), "debate_call", request)
    assert call["status"] == "pending"
    [outcome] = await gateway.host.wait_messages(A)
    assert (outcome["kind"], outcome["correlationId"]) == ("skill_response", call["correlationId"])
    assert outcome["output"].keys() == {
        *("status", "conclusion", "confidence", "confidenceHistory", "rounds", "assumptions")
    }
    assert outcome["output"]["status"] == "unresolved"
    asked = [one for name in "bcd" for one in gateway.agents[name].invocations]
    assert len({one["correlationId"] for one in asked} | {call["correlationId"]}) == 6
    assert {one["returnTo"] for one in asked} == {f"agent:a:debate:{call['correlationId']}"}
    assert {one["timeout"] for one in asked} == {7000}
    modes = {one["skill"]: one["mode"] for one in asked}
    assert modes == {
        "propose": "execute",
        "refine": "execute",
        "resolve": "execute",
        "critique": "critique",
    }
    parts = (await gateway.describe(call))["parts"]
    assert sorted(one["correlationId"] for one in parts) == sorted(
        one["correlationId"] for one in asked
    )
    assert len(gateway.host.attempts) == 1


@pytest.mark.requirement("calls.debate.failed-critic", "calls.debate.own-calls")
async def test_a_critic_without_an_answer_fails_at_its_own_deadline(gateway: CallGateway) -> None:
    gateway.agents["c"].answer = HeldAnswer()
    gateway.agents["b"].answer = answers('{"output": "well", "confidence": 0.6}')
    result = await gateway.call_tool(gateway.client("a"), "debate_call", {**DEBATE, "timeout": 300})
    critiques = result["rounds"][0]["critiques"]
    assert [(one["agent"], one["confidence"]) for one in critiques] == [("c", 0), ("d", 0.9)]
    assert "300 ms" in critiques[0]["flaws"][0]


@pytest.mark.requirement("calls.debate.all-failed")
async def test_a_debate_whose_critics_all_fail_is_reported_as_an_error_with_its_rounds(
    gateway: CallGateway,
) -> None:
    gateway.agents["b"].answer = answers('{"output": "well", "confidence": 0.6}')
    for name in "cd":
        gateway.agents[name].answer = fails_with("out of paper")
    result = await gateway.call_tool(gateway.client("a"), "debate_call", DEBATE)
    assert result["status"] == "error"
    assert "out of paper" in result["error"]
    assert len(result["rounds"]) == 1
