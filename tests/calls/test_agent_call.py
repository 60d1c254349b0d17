"""Agents call each other, and each caller gets one outcome."""

import json

import anyio
import pytest
from tests.calls.call_gateway import (
    CallGateway,
    HeldAnswer,
    answers,
    fails_with,
    main_session,
)

A = main_session("a")


@pytest.mark.requirement("calls.routing.response", "calls.routing.source", "calls.result.accepted")
async def test_the_answer_comes_into_the_session_that_called(gateway: CallGateway) -> None:
    gateway.agents["b"].answer = answers('{"output": {"answer": 42}, "confidence": 0.9}')
    accepted = await gateway.call("a", "b", "research", input={"q": "tides"})
    assert accepted["status"] == "pending"
    [outcome] = await gateway.host.wait_messages(A)
    assert outcome == {
        "kind": "skill_response",
        "correlationId": accepted["correlationId"],
        "taskId": accepted["taskId"],
        "status": "completed",
        "output": {"answer": 42},
        "confidence": 0.9,
        "assumptions": [],
        "caveats": [],
    }
    [message] = gateway.host.accepted
    assert (message.id, message.source_tool) == (accepted["correlationId"], "agent_call")


@pytest.mark.requirement(
    "calls.names.own-session",
    "calls.invocation.text",
    "calls.request.timeout-default",
)
async def test_the_callee_is_asked_in_a_session_of_its_own(gateway: CallGateway) -> None:
    accepted = await gateway.call("a", "b", "research", input={"q": "tides"})
    await gateway.host.wait_messages(A)
    [turn] = gateway.agents["b"].turns
    assert gateway.agents["b"].invocations == [
        {
            "kind": "skill_invocation",
            "skill": "research",
            "mode": "execute",
            "input": {"q": "tides"},
            "correlationId": accepted["correlationId"],
            "returnTo": A,
            "timeout": 60000,
        }
    ]
    assert turn.session_key == f"agent:b:call:{accepted['correlationId']}"
    assert turn.provenance is not None
    assert (turn.provenance.tool, turn.provenance.chain) == ("agent_call", ("a",))


@pytest.mark.requirement("calls.names.main-session")
async def test_the_main_session_of_the_callee_can_be_asked_for(gateway: CallGateway) -> None:
    await gateway.call("a", "b", session="main")
    await gateway.host.wait_messages(A)
    [turn] = gateway.agents["b"].turns
    assert turn.session_key == "agent:b:main"


@pytest.mark.requirement("calls.result.waited")
async def test_a_caller_that_waits_has_the_answer_and_gets_no_message(gateway: CallGateway) -> None:
    answer = await gateway.call("a", "b", wait=True)
    assert (answer["status"], answer["output"]) == ("completed", "done")
    second = await gateway.call("a", "b", timeoutSeconds=20)
    [outcome] = await gateway.host.wait_messages(A)
    assert outcome["correlationId"] == second["correlationId"]


@pytest.mark.requirement("calls.state.hung-up")
async def test_the_answer_of_a_caller_that_disconnected_goes_to_its_session(
    gateway: CallGateway,
) -> None:
    held = HeldAnswer()
    gateway.agents["b"].answer = held
    async with gateway.waiting_call("a", "b", wait=True):
        await held.asked.wait()
    held.go.set()
    [outcome] = await gateway.host.wait_messages(A)
    assert outcome["output"] == "at last"


@pytest.mark.requirement("calls.routing.error", "calls.result.waited-error")
async def test_a_failure_is_reported_as_an_error(gateway: CallGateway) -> None:
    gateway.agents["b"].answer = fails_with("out of paper")
    waited = await gateway.call("a", "b", wait=True)
    assert waited["status"] == "error"
    assert "out of paper" in waited["error"]
    await gateway.call("a", "b")
    [outcome] = await gateway.host.wait_messages(A)
    assert (outcome["kind"], outcome["status"]) == ("skill_response", "error")
    assert "out of paper" in outcome["error"]


@pytest.mark.requirement("calls.reading.empty")
async def test_an_empty_answer_is_an_error(gateway: CallGateway) -> None:
    gateway.agents["b"].answer = answers("")
    waited = await gateway.call("a", "b", wait=True)
    assert waited["status"] == "error"


@pytest.mark.requirement("calls.routing.timeout", "calls.routing.late", "promise.calls.late")
async def test_a_timeout_is_delivered_once_and_a_later_answer_can_only_be_polled(
    gateway: CallGateway,
) -> None:
    held = HeldAnswer()
    gateway.agents["b"].answer = held
    call = await gateway.call("a", "b", timeout=50)
    [outcome] = await gateway.host.wait_messages(A)
    assert (outcome["kind"], outcome["status"]) == ("skill_timeout", "timeout")
    assert "50" in outcome["message"]
    assert (await gateway.poll("a", call))["status"] == "timeout"
    held.go.set()
    late = await gateway.poll("a", call, lambda polled: polled["status"] != "timeout")
    assert (late["status"], late["output"], late["late"]) == ("completed", "at last", True)
    assert len(gateway.host.accepted) == 1


@pytest.mark.requirement("calls.result.waited-long")
async def test_a_caller_that_waited_too_long_gets_a_message_later(gateway: CallGateway) -> None:
    gateway.agents["b"].answer = HeldAnswer()
    waited = await gateway.call("a", "b", wait=True, timeout=50)
    assert waited["status"] == "pending"
    [outcome] = await gateway.host.wait_messages(A)
    assert outcome["kind"] == "skill_timeout"


@pytest.mark.requirement("calls.result.untimed")
async def test_without_a_timeout_nothing_is_delivered(gateway: CallGateway) -> None:
    call = await gateway.call("a", "b", timeoutSeconds=0)
    assert call["status"] == "working"
    other = await gateway.call("a", "b")
    await gateway.host.wait_messages(A)
    assert [message.id for message in gateway.host.accepted] == [other["correlationId"]]
    assert (await gateway.poll("a", call))["output"] == "done"


@pytest.mark.requirement("calls.settings.clamped")
async def test_a_timeout_above_the_maximum_is_cut_and_reported(gateway: CallGateway) -> None:
    call = await gateway.call("a", "b", timeoutSeconds=301)
    assert call["timeoutMs"] == 300_000


@pytest.mark.requirement("calls.host-down.retried")
async def test_a_host_that_is_down_gets_the_outcome_when_it_is_back(gateway: CallGateway) -> None:
    gateway.host.is_unavailable = True
    await gateway.call("a", "b")
    await gateway.host.wait_until(lambda: len(gateway.host.attempts) >= 2)
    gateway.host.is_unavailable = False
    assert len(await gateway.host.wait_messages(A)) == 1


async def test_an_attempt_without_a_reply_is_repeated_and_changes_nothing(
    gateway: CallGateway,
) -> None:
    gateway.host.loses_replies = True
    await gateway.call("a", "b")
    await gateway.host.wait_until(lambda: len(gateway.host.attempts) >= 2)
    gateway.host.loses_replies = False
    count = len(gateway.host.attempts)
    await gateway.host.wait_until(lambda: len(gateway.host.attempts) > count)
    assert len(gateway.host.accepted) == 1
    assert not gateway.host.attempts[-1].is_first_attempt


async def test_a_session_that_is_gone_discards_the_answer(gateway: CallGateway) -> None:
    gateway.host.gone.add(A)
    call = await gateway.call("a", "b")
    await gateway.host.wait_until(lambda: bool(gateway.host.attempts))
    polled = await gateway.poll("a", call, lambda polled: "discarded" in polled["times"])
    assert polled["output"] == "done"
    assert len(gateway.host.attempts) == 1


@pytest.mark.requirement("calls.state.apart")
async def test_calls_that_overlap_come_back_each_to_its_own_session(gateway: CallGateway) -> None:
    first, second = HeldAnswer('{"output": 1}'), HeldAnswer('{"output": 2}')

    async def answer(invocation: dict[str, object]) -> str:
        return await (first if invocation["skill"] == "one" else second)(invocation)

    gateway.agents["b"].answer = answer
    await gateway.call("a", "b", "one")
    await gateway.call("c", "b", "two")
    second.go.set()
    [outcome] = await gateway.host.wait_messages(main_session("c"))
    assert outcome["output"] == 2
    assert gateway.host.messages(A) == []
    first.go.set()
    [outcome] = await gateway.host.wait_messages(A)
    assert outcome["output"] == 1


@pytest.mark.requirement("calls.times.apart")
async def test_a_call_is_described_with_its_timestamps(gateway: CallGateway) -> None:
    call = await gateway.call("a", "b")
    await gateway.host.wait_messages(A)
    polled = await gateway.poll("a", call, lambda polled: "seen" in polled["times"])
    times = polled["times"]
    order = ["accepted", "running", "answered", "delivered", "seen"]
    assert [name for name in order if name in times] == order
    assert sorted(times[name] for name in order) == [times[name] for name in order]


# -------------------------------------------------------------------- callers without a session


@pytest.mark.requirement("calls.inbox.polled", "calls.poll.by-task")
async def test_a_program_finds_its_answer_in_its_inbox(gateway: CallGateway) -> None:
    program = gateway.program_client("script")
    call = await gateway.call_tool(
        program, "agent_call", {"agent": "b", "skill": "work", "input": {}}
    )
    assert call["status"] == "pending"
    with anyio.fail_after(240):
        while True:
            polled = await gateway.call_tool(program, "agent_poll", {"taskId": call["taskId"]})
            if polled["status"] != "working":
                break
    assert polled["output"] == "done"
    assert (
        "seen"
        in (
            await gateway.call_tool(program, "agent_poll", {"correlationId": call["correlationId"]})
        )["times"]
    )


@pytest.mark.requirement("calls.poll.own")
async def test_only_the_caller_may_ask(gateway: CallGateway) -> None:
    call = await gateway.call("a", "b")
    for other in (gateway.client("c"), gateway.program_client("script")):
        arguments = {"correlationId": call["correlationId"]}
        assert (await gateway.call_tool(other, "agent_poll", arguments))["status"] == "error"


# -------------------------------------------------------------------- who may not, and what not


@pytest.mark.requirement(
    "calls.result.invalid",
    "calls.input.object",
    "calls.request.mode",
    "calls.request.timeout-units",
    "calls.request.timeout-negative",
    "calls.policy.self-call",
)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"agent": "a"}, "self-call"),
        ({"agent": "nobody"}, "agents that can be called: b, c, d"),
        ({"agent": "../b"}, "agent"),
        ({"skill": "a b"}, "skill"),
        ({"input": []}, "input must be an object"),
        ({"input": {"x": "y" * 1_048_577}}, "1048576"),
        ({"timeoutSeconds": -1}, "negative"),
        ({"timeoutSeconds": 1, "timeout": 1}, "not both"),
        ({"timeoutSeconds": "soon"}, "number"),
        ({"mode": "think"}, "mode"),
        ({"wait": "yes"}, "wait"),
        ({"session": "agent:c:main"}, "session"),
    ],
)
async def test_a_wrong_call_is_refused_with_the_reason(
    gateway: CallGateway, arguments: dict[str, object], words: str
) -> None:
    result = await gateway.call_tool(
        gateway.client("a"), "agent_call", {"agent": "b", "skill": "work", "input": {}, **arguments}
    )
    assert result["status"] == "error"
    assert words in result["error"]
    assert gateway.agents["b"].invocations == []


@pytest.mark.requirement("calls.request.required")
async def test_all_problems_of_a_request_are_reported_at_once(gateway: CallGateway) -> None:
    result = await gateway.call_tool(gateway.client("a"), "agent_call", {"agent": "/", "mode": 3})
    for word in ("agent", "skill", "input", "mode"):
        assert word in result["error"]


@pytest.mark.requirement("calls.input.limit")
async def test_an_input_of_just_the_most_bytes_passes(gateway: CallGateway) -> None:
    empty = len(json.dumps({"x": ""}, separators=(",", ":")))
    result = await gateway.call("a", "b", input={"x": "y" * (1_048_576 - empty)}, wait=True)
    assert result["status"] == "completed"


@pytest.mark.requirement("calls.invocation.return-to", "calls.invocation.correlation-id")
async def test_a_caller_cannot_name_its_own_session_or_ids(gateway: CallGateway) -> None:
    forged = {"returnTo": main_session("c"), "correlationId": "mine", "chain": ["x"]}
    call = await gateway.call("a", "b", **forged)
    assert call["correlationId"] != "mine"
    [outcome] = await gateway.host.wait_messages(A)
    assert outcome["correlationId"] == call["correlationId"]
    assert gateway.agents["b"].invocations[0]["returnTo"] == A


@pytest.mark.requirement("calls.audit.written", "calls.audit.no-input")
async def test_refusals_and_calls_are_in_the_audit_log_without_their_input(
    gateway: CallGateway,
) -> None:
    await gateway.call("a", "b", input={"secret": "s3cret"}, wait=True)
    await gateway.call("a", "a")
    await gateway.call("a", "b", mode="no")
    lines = await gateway.read_audit()
    assert [one["event"] for one in lines] == ["call", "call-refused", "call-invalid"]
    assert (lines[0]["requester"], lines[0]["target"], lines[0]["skill"]) == ("a", "b", "work")


@pytest.mark.requirement("calls.host-down.lost")
async def test_an_outcome_that_the_host_lost_is_delivered_again(gateway: CallGateway) -> None:
    gateway.host.processed.clear()
    await gateway.call("a", "b")
    await gateway.host.wait_messages(A)
    gateway.host.accepted.clear()  # it was killed before the session's turn came
    gateway.host.processed.set()
    await gateway.host.wait_messages(A)
    assert [message.is_first_attempt for message in gateway.host.attempts] == [True, False]
