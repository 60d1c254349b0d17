"""What the contract of calls says and no other test shows: requests, results, routes, keeping."""

import json
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from datetime import datetime, timedelta
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

from openclaw_a2a.calls.outcome import parse_callee_answer
from openclaw_a2a.calls.policy import CallPolicy, check_policy
from openclaw_a2a.engine.engine import SystemClock
from openclaw_a2a.model.agent_event import AgentEvent, Reply
from openclaw_a2a.model.ids import AgentId
from openclaw_a2a.model.turn import Turn

A = main_session("a")
MOST_BYTES = 1_048_576


@pytest.fixture
async def closed_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[CallGateway]:
    """A gateway that the test opens."""
    monkeypatch.chdir(tmp_path)
    async with call_gateway_in(tmp_path) as one:
        yield one


# -------------------------------------------------------------------- requests


@pytest.mark.requirement("calls.input.limit")
async def test_an_input_counts_in_bytes_and_one_more_is_too_many(gateway: CallGateway) -> None:
    empty = len(json.dumps({"x": ""}, separators=(",", ":")))
    room = MOST_BYTES - empty
    exact = {"x": "é" * (room // 2) + "y" * (room % 2)}
    assert (await gateway.call("a", "b", input=exact, wait=True))["status"] == "completed"
    assert gateway.agents["b"].invocations[0]["input"] == exact
    refused = await gateway.call("a", "b", input={"x": exact["x"] + "y"}, wait=True)
    assert refused["status"] == "error"
    assert f"{MOST_BYTES + 1} bytes" in refused["error"]
    assert len(gateway.agents["b"].invocations) == 1


@pytest.mark.requirement("calls.request.timeout-units", "calls.settings.default-time")
@pytest.mark.parametrize(
    ("given", "milliseconds"),
    [({"timeoutSeconds": 2}, 2000), ({"timeout": 2500}, 2500), ({}, 9000)],
)
async def test_the_invocation_has_the_timeout(
    closed_gateway: CallGateway, given: Json, milliseconds: int
) -> None:
    await closed_gateway.open({"responseRouting.defaultTimeoutMs": 9000})
    await closed_gateway.call("a", "b", wait=True, **given)
    assert closed_gateway.agents["b"].invocations[0]["timeout"] == milliseconds


@pytest.mark.requirement("calls.settings.clamped")
async def test_the_most_time_is_that_of_the_settings(closed_gateway: CallGateway) -> None:
    await closed_gateway.open(
        {"responseRouting.maxTimeoutMs": 9000, "responseRouting.defaultTimeoutMs": 1}
    )
    call = await closed_gateway.call("a", "b", timeout=9001, wait=True)
    assert (call["status"], call["timeoutMs"]) == ("completed", 9000)
    assert closed_gateway.agents["b"].invocations[0]["timeout"] == 9000
    assert "timeoutMs" not in await closed_gateway.call("a", "b", timeout=9000)


SKILL = {"name": "find", "input": {"q": {"type": "string", "required": True}}}


@pytest.mark.requirement("calls.request.order", "calls.policy.self-call")
@pytest.mark.parametrize(
    ("settings", "given", "status", "word"),
    [
        (
            {"tools.agentToAgent.allow": []},
            {"agent": "a", "input": 1},
            "error",
            "must be an object",
        ),
        ({"tools.agentToAgent.allow": []}, {"agent": "a"}, "error", "self-call"),
        ({"tools.agentToAgent.allow": ["a"]}, {"skill": "dance"}, "forbidden", "be called"),
        ({}, {"skill": "dance"}, "error", "no skill dance"),
        ({}, {"skill": "find"}, "error", "does not fit"),
        ({}, {"skill": "find", "input": {"q": "tides"}}, "error", "loop"),
    ],
)
async def test_the_first_failed_check_decides_the_error(
    closed_gateway: CallGateway, settings: Mapping[str, Json], given: Json, status: str, word: str
) -> None:
    """The callee `b` is in the chain of the caller `a`, so that in the end only that is wrong."""
    await closed_gateway.open({"agents.b.skills": [SKILL], **settings})
    if not settings:
        given = await asked_within_a_call_of_b(closed_gateway, given)
    else:
        given = await closed_gateway.call("a", **{"agent": "b", "skill": "find", **given})
    assert given["status"] == status
    assert word in given["error"]
    assert "correlationId" not in given


async def asked_within_a_call_of_b(gateway: CallGateway, given: Json) -> Json:
    """What `a` gets that calls `b` back while `b` calls it."""
    refused: list[Json] = []

    async def answer(invocation: Json) -> str:
        session = f"agent:a:call:{invocation['correlationId']}"
        arguments: Json = {"agent": "b", "skill": "find", "input": {}, **given}
        refused.append(
            await gateway.call_tool(gateway.client("a", session), "agent_call", arguments)
        )
        return "done"

    gateway.agents["a"].answer = answer
    await gateway.call("b", "a", wait=True)
    [delivered] = refused
    return delivered


A_ID, B_ID = AgentId("a"), AgentId("b")


@pytest.mark.requirement(
    "calls.policy.self-call",
    "calls.policy.disabled",
    "calls.policy.nobody",
    "calls.policy.caller",
    "calls.policy.target",
    "calls.policy.reach",
)
@pytest.mark.parametrize(
    ("policy", "target", "word"),
    [
        (CallPolicy(), A_ID, "enabled"),
        (CallPolicy(enabled=True), A_ID, "self-call"),
        (CallPolicy(allow=("*",)), B_ID, "enabled"),
        (CallPolicy(enabled=True, allowed_targets={A_ID: ()}), B_ID, "no agent may take part"),
        (
            CallPolicy(enabled=True, allow=("c",), allowed_targets={A_ID: ()}),
            B_ID,
            "agent a may not call",
        ),
        (
            CallPolicy(enabled=True, allow=("a",), allowed_targets={A_ID: ()}),
            B_ID,
            "agent b may not be",
        ),
        (
            CallPolicy(enabled=True, allow=("*",), allowed_targets={A_ID: ()}),
            B_ID,
            "agents.a.tools",
        ),
    ],
)
def test_policy_checks_have_an_order(policy: CallPolicy, target: AgentId, word: str) -> None:
    refusal = check_policy(policy, A_ID, target)
    assert refusal is not None
    assert word in refusal.reason


@pytest.mark.requirement("calls.policy.patterns")
async def test_capitals_do_not_matter_in_lists(closed_gateway: CallGateway) -> None:
    await closed_gateway.open({"tools.agentToAgent.allow": ["A", "*B"]})
    assert (await closed_gateway.call("a", " B ", wait=True))["status"] == "completed"
    assert (await closed_gateway.call("a", "c"))["status"] == "forbidden"


@pytest.mark.requirement("calls.audit.written")
async def test_everything_that_is_refused_is_in_the_audit_log(closed_gateway: CallGateway) -> None:
    await closed_gateway.open({"tools.agentToAgent.allow": ["a", "b"], "agents.b.skills": [SKILL]})
    before = datetime.fromisoformat("2020-01-01T00:00:00Z")
    given: list[Json] = [
        {"agent": "a"},
        {"agent": "c"},
        {"agent": "b", "skill": "dance"},
        {"agent": "b", "skill": "find"},
        {"agent": "b", "skill": "find", "input": {"q": "tides"}, "timeout": -1},
        {"agent": "b", "skill": "find", "input": {"q": "tides"}},
    ]
    calls: Json = [{"skill": "find", "input": {}, **one} for one in given]
    result = await closed_gateway.call_tool(
        closed_gateway.client("a"), "agent_call_batch", {"calls": calls, "concurrency": 1}
    )
    assert result["completedCount"] == 1
    lines = await closed_gateway.read_audit()
    assert [(one["event"], one["requester"], one["target"], one["skill"]) for one in lines] == [
        ("call-refused", "a", "a", "find"),
        ("call-refused", "a", "c", "find"),
        ("call-refused", "a", "b", "dance"),
        ("call-refused", "a", "b", "find"),
        ("call-invalid", "a", "b", "find"),
        ("call", "a", "b", "find"),
    ]
    assert all(datetime.fromisoformat(one["time"]) > before for one in lines)


# -------------------------------------------------------------------- what the callee is asked


@pytest.mark.requirement("calls.invocation.provenance", "calls.request.mode")
async def test_a_turn_carries_where_its_question_comes_from(gateway: CallGateway) -> None:
    call = await gateway.call("a", "b", "judge", mode="critique", wait=True)
    [turn], [asked] = gateway.agents["b"].turns, gateway.agents["b"].invocations
    source = turn.provenance
    assert source is not None
    assert (source.tool, source.session_key, source.chain) == ("agent_call", A, ("a",))
    assert (source.skill, source.mode) == ("judge", "critique")
    assert source.correlation_id == call["correlationId"]
    assert (asked["skill"], asked["mode"]) == ("judge", "critique")


@pytest.mark.requirement("calls.invocation.no-channel", "calls.settings.dual")
@pytest.mark.parametrize("is_dual", [False, True])
async def test_only_with_dual_delivery_a_callee_may_announce_its_answer(
    closed_gateway: CallGateway, is_dual: bool
) -> None:
    await closed_gateway.open({"responseRouting.dualDelivery": is_dual})
    await closed_gateway.call("a", "b", wait=True)
    [turn] = closed_gateway.agents["b"].turns
    assert turn.provenance is not None
    assert turn.provenance.may_announce is is_dual


@pytest.mark.requirement("calls.invocation.correlation-id")
async def test_each_call_has_a_uuid_of_the_gateway(gateway: CallGateway) -> None:
    given = "6a0e0000-0000-4000-8000-000000000000"
    calls = [await gateway.call("a", "b", correlationId=given) for _ in range(3)]
    ids = [call["correlationId"] for call in calls]
    assert [str(uuid.UUID(one)) for one in ids] == ids
    assert len({*ids, given}) == 4


@pytest.mark.requirement("calls.invocation.return-to")
async def test_the_answer_goes_to_the_session_that_called_and_to_no_other_of_the_caller(
    gateway: CallGateway,
) -> None:
    chat = "agent:a:telegram:7"
    arguments: Json = {"agent": "b", "skill": "work", "input": {}, "returnTo": A, "sessionKey": A}
    await gateway.call_tool(gateway.client("a", chat), "agent_call", arguments)
    await gateway.host.wait_messages(chat)
    assert gateway.agents["b"].invocations[0]["returnTo"] == chat
    assert gateway.host.messages(A) == []


# -------------------------------------------------------------------- results and messages


ANSWER = {"output": {"x": 1}, "confidence": 0.9, "assumptions": ["sun"], "caveats": ["once"]}


@pytest.mark.requirement("calls.result.waited", "calls.poll.told", "calls.routing.response")
async def test_waiting_polling_and_messages_have_the_same_answer(
    gateway: CallGateway,
) -> None:
    gateway.agents["b"].answer = answers(json.dumps(ANSWER))
    waited = await gateway.call("a", "b", wait=True)
    assert waited.keys() == {"status", "taskId", "correlationId", *ANSWER}
    call = await gateway.call("a", "b")
    [delivered] = await gateway.host.wait_messages(A)
    polled = await gateway.poll("a", call)
    assert polled.keys() == {"status", "taskId", "correlationId", "times", *ANSWER}
    for one in (waited, delivered, polled):
        assert one["status"] == "completed"
        assert {name: one[name] for name in ANSWER} == ANSWER
    assert (delivered["correlationId"], delivered["taskId"]) == (
        call["correlationId"],
        call["taskId"],
    )


@pytest.mark.requirement("calls.poll.told")
async def test_a_poll_reports_working_and_then_the_error(
    gateway: CallGateway,
) -> None:
    held = HeldAnswer()

    async def answer(invocation: Json) -> str:
        await held(invocation)
        return await fails_with("out of paper")(invocation)

    gateway.agents["b"].answer = answer
    call = await gateway.call("a", "b")
    assert (await gateway.poll("a", call))["status"] == "working"
    held.go.set()
    polled = await gateway.poll("a", call, lambda polled: polled["status"] != "working")
    assert polled["status"] == "error"
    assert "out of paper" in polled["error"]
    assert "output" not in polled


@pytest.mark.requirement("calls.result.no-sessions")
async def test_errors_contain_no_session_keys(gateway: CallGateway) -> None:
    async def answer(invocation: Json) -> str:
        own = f"agent:b:call:{invocation['correlationId']}"
        return await fails_with(f"{own} asked Agent:c:telegram:direct:7. Both broke.")(invocation)

    gateway.agents["b"].answer = answer
    waited = await gateway.call("a", "b", wait=True)
    call = await gateway.call("a", "b")
    [delivered] = await gateway.host.wait_messages(A)
    for one in (waited, delivered, await gateway.poll("a", call)):
        assert one["status"] == "error"
        assert "agent:b asked agent:c. Both broke." in one["error"]


@pytest.mark.requirement("calls.routing.in-time", "calls.routing.timeout")
async def test_a_timeout_is_reported_right_after_the_deadline(gateway: CallGateway) -> None:
    gateway.agents["b"].answer = HeldAnswer()
    call = await gateway.call("a", "b", timeout=300)
    [delivered] = await gateway.host.wait_messages(A)
    assert delivered.keys() == {"kind", "correlationId", "taskId", "status", "message"}
    assert "300 ms" in delivered["message"]
    polled = await gateway.poll("a", call, lambda polled: "delivered" in polled["times"])
    times = polled["times"]
    deadline, accepted, arrived = (
        datetime.fromisoformat(times[one]) for one in ("deadline", "accepted", "delivered")
    )
    assert deadline - accepted == timedelta(milliseconds=300)
    assert timedelta() <= arrived - deadline < timedelta(seconds=60)


@pytest.mark.requirement("calls.routing.prompt")
async def test_an_outcome_is_delivered_although_no_pause_of_the_gateway_ends(
    closed_gateway: CallGateway,
) -> None:
    """It is sent when the callee answers: nobody has to look for it from time to time."""
    await closed_gateway.open(clock=EndlessPauses())
    for count in range(1, 11):
        call = await closed_gateway.call("a", "b")
        await closed_gateway.host.wait_messages(A, count)
        polled = await closed_gateway.poll("a", call, lambda polled: "delivered" in polled["times"])
        times = {name: datetime.fromisoformat(one) for name, one in polled["times"].items()}
        assert times["answered"] <= times["delivered"]


class EndlessPauses(SystemClock):
    """The machine's clock; whoever sleeps by it sleeps for ever."""

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep_forever()


@pytest.mark.requirement("calls.reading.own-run")
async def test_calls_in_one_session_have_each_the_answer_of_its_own_run(
    gateway: CallGateway,
) -> None:
    async def answer(invocation: Json) -> str:
        return json.dumps({"output": invocation["skill"]})

    gateway.agents["b"].answer = answer
    skills = ["one", "two", "three"]
    calls = [await gateway.call("a", "b", skill, session="main") for skill in skills]
    delivered = await gateway.host.wait_messages(A, 3)
    outputs = {one["correlationId"]: one["output"] for one in delivered}
    assert [outputs[call["correlationId"]] for call in calls] == skills


class Talker(ScriptedAgent):
    """An agent that says two things."""

    async def run(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
        self.turns.append(turn)
        yield Reply.of_text('{"output": "a first thought"}')
        yield Reply.of_text('{"output": "the last word"}')


@pytest.mark.requirement("calls.reading.own-run", "calls.routing.once")
async def test_of_a_callee_that_answers_twice_the_last_counts_and_comes_once(
    closed_gateway: CallGateway,
) -> None:
    closed_gateway.agents["b"] = Talker(closed_gateway.host, "b")
    await closed_gateway.open()
    await closed_gateway.call("a", "b")
    await closed_gateway.host.wait_messages(A)
    await closed_gateway.call("a", "c")
    first, second = await closed_gateway.host.wait_messages(A, 2)
    assert (first["output"], second["output"]) == ("the last word", "done")


@pytest.mark.requirement("calls.reading.broken", "calls.reading.first-object")
@pytest.mark.parametrize(
    "text",
    [
        '{"input": {"q": "tides"}, "output": {"answer"',
        '{"output": {"answer": 42}, "confidence": 0.9,}',
        'Here:\n```json\n{"steps": [{"a": 1}], "output": "x\n```',
        '{"output": {"x": 1}, "y": NaN}',
        '{ "said": "}", "then": {"a": 1}',
    ],
)
def test_a_piece_of_broken_json_is_no_answer(text: str) -> None:
    reading = parse_callee_answer(text)
    assert reading is not None
    assert (reading.output, reading.confidence) == (text, 0.3)


@pytest.mark.requirement("calls.reading.first-object")
@pytest.mark.parametrize(
    "text",
    [
        'a brace { and {"output": 7}',
        '{"half": 1,} {"output": 7} {"output": 8}',
        'the set {"a", "}"} and then ```{"output": 7}```',
        '{{"output": 7}}',
    ],
)
def test_after_what_is_no_json_the_first_object_counts(text: str) -> None:
    reading = parse_callee_answer(text)
    assert reading is not None
    assert (reading.output, reading.confidence) == (7, 0.5)
