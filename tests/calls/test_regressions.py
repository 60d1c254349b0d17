"""Defects that users of calls found."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from tests.calls.call_gateway import (
    CallGateway,
    HeldAnswer,
    Json,
    ScriptedAgent,
    SessionHost,
    answers,
    call_gateway_in,
    main_session,
)
from tests.conformance.asgi_client import AsgiClient, Request

from openclaw_a2a.auth.tokens import TokenKind
from openclaw_a2a.model.agent_event import AgentEvent, InputRequired, Note, Reply
from openclaw_a2a.model.errors import TaskNotCancelable
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.model.turn import Binding, Turn
from openclaw_a2a.ports import Recovery

A = main_session("a")
DEBATE = {
    "topic": "tides",
    "proposer": {"agent": "b", "skill": "propose"},
    "critics": [{"agent": "c"}],
    "resolver": {"agent": "d", "skill": "resolve"},
    "input": {"secret": "s3cret"},
    "rounds": 1,
}


@pytest.fixture
async def closed_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[CallGateway]:
    """A gateway that the test opens."""
    monkeypatch.chdir(tmp_path)
    async with call_gateway_in(tmp_path) as one:
        yield one


# -------------------------------------------------------------------- the audit log


@pytest.mark.requirement("calls.audit.written", "calls.audit.no-input")
async def test_every_step_of_a_debate_is_in_the_audit_log(gateway: CallGateway) -> None:
    for name in "bcd":
        gateway.agents[name].answer = answers('{"output": "well", "confidence": 0.6}')
    await gateway.call_tool(gateway.client("a"), "debate_call", DEBATE)
    found = [(one["event"], one["requester"], one["skill"]) for one in await gateway.read_audit()]
    steps = ("debate", "propose", "critique", "refine", "resolve")
    assert found == [("call", "a", skill) for skill in steps]


async def test_the_audit_log_tells_why_a_call_was_refused(gateway: CallGateway) -> None:
    await gateway.call("a", "a")
    await gateway.call("a", "nobody")
    refused = await gateway.read_audit()
    assert [one["event"] for one in refused] == ["call-refused", "call-refused"]
    assert "self-call" in refused[0]["reason"]
    assert "there is no agent nobody" in refused[1]["reason"]


@pytest.mark.requirement("calls.audit.no-input")
async def test_the_audit_log_tells_that_an_input_did_not_fit_without_telling_the_input(
    closed_gateway: CallGateway,
) -> None:
    skill = {"name": "work", "input": {"secret": {"type": "integer"}}}
    await closed_gateway.open({"agents.b.skills": [skill]})
    refused = await closed_gateway.call("a", "b", input={"secret": "s3cret"})
    assert "s3cret" in refused["error"]
    [line] = await closed_gateway.read_audit()
    assert line["reason"] == "the input does not fit work"


@pytest.mark.requirement("calls.audit.written", "calls.audit.no-input")
@pytest.mark.parametrize(
    ("request_", "target", "skill"),
    [
        ({"agent": "B", "skill": "work", "input": "s3cret"}, "b", "work"),
        ({"agent": "s3cret!", "skill": "work", "input": {}}, "", "work"),
        ({"agent": "b", "skill": "s3cret!", "input": {}}, "b", ""),
        (["s3cret"], "", ""),
    ],
)
async def test_the_audit_log_names_the_target_of_an_invalid_call(
    gateway: CallGateway, request_: Json, target: str, skill: str
) -> None:
    await gateway.call_tool(gateway.client("a"), "agent_call", request_)
    [line] = await gateway.read_audit()
    named = (line["event"], line.get("target", ""), line.get("skill", ""))
    assert named == ("call-invalid", target, skill)


# -------------------------------------------------------------------- who calls


async def test_an_agent_without_a_session_has_a_clean_name_too(gateway: CallGateway) -> None:
    token = gateway.token("host", TokenKind.HOST)
    headers = {"authorization": f"Bearer {token}", "x-openclaw-agent-id": "Lab: A/7"}
    assert gateway.running is not None
    caller = AsgiClient(gateway.running.asgi, headers)
    arguments: Json = {"agent": "b", "skill": "work", "input": {}, "wait": True}
    answer = await gateway.call_tool(caller, "agent_call", arguments)
    assert answer["status"] == "completed"
    assert gateway.agents["b"].invocations[0]["returnTo"] == "agent:lab-a-7:inbox"


# -------------------------------------------------------------------- restarts


async def test_a_callee_that_must_not_be_asked_again_is_to_be_called_again(
    closed_gateway: CallGateway,
) -> None:
    held = HeldAnswer()
    closed_gateway.agents["b"].answer, closed_gateway.agents["b"].recovery = held, Recovery.FAIL
    await closed_gateway.open()
    await closed_gateway.call("a", "b")
    await held.asked.wait()
    await closed_gateway.reopen()
    [outcome] = await closed_gateway.host.wait_messages(A)
    assert "call it again" in outcome["error"]
    assert "message" not in outcome["error"]


# -------------------------------------------------------------------- callees that ask back


class Asking(ScriptedAgent):
    """An agent that asks back whatever it is asked, and waits until its pause is ended."""

    def __init__(self, host: SessionHost, name: str, *, is_stubborn: bool = False) -> None:
        super().__init__(host, name)
        self.ended: list[Json] = []
        self._is_stubborn = is_stubborn

    async def run(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
        self.invocations.append(json.loads(turn.body))
        await self.answer(self.invocations[-1])
        yield InputRequired("Which sea?", {"question": 7})

    async def cancel_pause(self, binding: Binding, resume: Json) -> None:
        del binding
        self.ended.append(resume)
        if self._is_stubborn:
            raise TaskNotCancelable("the question cannot be taken back")


async def state_of(gateway: CallGateway, call: Json) -> TaskState:
    assert gateway.running is not None
    [engine] = gateway.running.engines.values()
    stored = await engine.store.tasks.read_task(None, call["taskId"])
    assert stored is not None
    return stored.head.state


@pytest.mark.parametrize("is_stubborn", [False, True])
async def test_the_error_of_a_callee_that_asks_back_is_its_question(
    closed_gateway: CallGateway, is_stubborn: bool
) -> None:
    b = closed_gateway.agents["b"] = Asking(closed_gateway.host, "b", is_stubborn=is_stubborn)
    await closed_gateway.open()
    call = await closed_gateway.call("a", "b")
    [outcome] = await closed_gateway.host.wait_messages(A)
    assert (outcome["kind"], outcome["status"]) == ("skill_response", "error")
    assert outcome["error"] == (
        "the callee asks: Which sea? A call cannot answer; call again with more input"
    )
    assert b.ended == [{"question": 7}]
    assert await state_of(closed_gateway, call) is TaskState.FAILED
    assert (await closed_gateway.poll("a", call))["error"] == outcome["error"]


async def test_a_caller_that_waits_for_a_callee_that_asks_back_gets_the_question(
    closed_gateway: CallGateway,
) -> None:
    closed_gateway.agents["b"] = Asking(closed_gateway.host, "b")
    await closed_gateway.open()
    waited = await closed_gateway.call("a", "b", wait=True)
    assert waited["status"] == "error"
    assert "Which sea?" in waited["error"]


async def test_a_question_without_a_deadline_ends_too(closed_gateway: CallGateway) -> None:
    closed_gateway.agents["b"] = Asking(closed_gateway.host, "b")
    await closed_gateway.open()
    call = await closed_gateway.call("a", "b", timeoutSeconds=0)
    polled = await closed_gateway.poll("a", call, lambda polled: polled["status"] != "working")
    assert "Which sea?" in polled["error"]


async def test_a_question_after_the_timeout_ends_too(closed_gateway: CallGateway) -> None:
    b = closed_gateway.agents["b"] = Asking(closed_gateway.host, "b")
    held = b.answer = HeldAnswer()
    await closed_gateway.open()
    call = await closed_gateway.call("a", "b", timeout=50)
    [outcome] = await closed_gateway.host.wait_messages(A)
    assert outcome["kind"] == "skill_timeout"
    held.go.set()
    late = await closed_gateway.poll("a", call, lambda polled: polled["status"] != "timeout")
    assert (late["status"], late["late"]) == ("error", True)
    assert await state_of(closed_gateway, call) is TaskState.FAILED
    assert len(closed_gateway.host.attempts) == 1


async def test_a_question_that_a_crash_left_ends_at_the_next_start(
    closed_gateway: CallGateway,
) -> None:
    b = closed_gateway.agents["b"] = Asking(closed_gateway.host, "b")
    b.answer = held = HeldAnswer()
    await closed_gateway.open()
    assert closed_gateway.running is not None
    [engine] = closed_gateway.running.engines.values()
    call = await closed_gateway.call("a", "b")
    await held.asked.wait()
    engine.supervisor.spawn = _forget  # pyright: ignore[reportAttributeAccessIssue] - as if killed right then
    held.go.set()
    with anyio.fail_after(240):
        while await state_of(closed_gateway, call) is not TaskState.INPUT_REQUIRED:
            await checkpoint()
    await closed_gateway.reopen()
    [outcome] = await closed_gateway.host.wait_messages(A)
    assert "Which sea?" in outcome["error"]
    assert b.ended == [{"question": 7}]


def _forget(_name: str, job: Coroutine[Any, Any, None]) -> None:
    job.close()


async def test_a_debater_that_asks_back_has_failed_with_its_question(
    closed_gateway: CallGateway,
) -> None:
    closed_gateway.agents["c"] = Asking(closed_gateway.host, "c")
    await closed_gateway.open()
    result = await closed_gateway.call_tool(closed_gateway.client("a"), "debate_call", DEBATE)
    assert "Which sea?" in json.dumps(result)


async def test_a_callee_that_waits_for_the_operator_stays_pending(
    closed_gateway: CallGateway,
) -> None:
    decided = asyncio.Event()

    class Approving(ScriptedAgent):
        async def run(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
            yield Note("Waits for the operator to allow: rm -r /tmp/x")
            self.invocations.append(json.loads(turn.body))
            await decided.wait()
            yield Reply.of_text("removed")

    b = closed_gateway.agents["b"] = Approving(closed_gateway.host, "b")
    await closed_gateway.open()
    call = await closed_gateway.call("a", "b")
    await closed_gateway.poll("a", call, lambda _: bool(b.invocations))
    assert (await closed_gateway.poll("a", call))["status"] == "working"
    decided.set()
    [outcome] = await closed_gateway.host.wait_messages(A)
    assert outcome["output"] == "removed"


# -------------------------------------------------------------------- what people see


async def test_an_answer_that_is_not_taken_is_shown_with_its_reason(gateway: CallGateway) -> None:
    gateway.host.is_unavailable = True
    call = await gateway.call("a", "b")
    operator = (gateway.folder / "operator.token").read_text("ascii").strip()
    assert gateway.running is not None
    operator_client = AsgiClient(gateway.running.asgi, {"authorization": f"Bearer {operator}"})
    page = Request("GET", f"/operator/calls/{call['correlationId']}")
    shown: Json = {}
    with anyio.fail_after(240):
        while "delivery" not in shown:
            shown = (await operator_client.request(page)).json
    assert shown["delivery"]["attempts"] >= 1
    assert shown["delivery"]["reason"] == "the host is away"
    assert shown["delivery"]["nextAt"].endswith("Z")
    [delivery] = (await operator_client.request(Request("GET", "/operator/deliveries"))).json[
        "deliveries"
    ]
    assert delivery["to"] == f"{A} (call {call['correlationId'][:8]})"
    gateway.host.is_unavailable = False
    await gateway.host.wait_messages(A)
    with anyio.fail_after(240):
        while "delivery" in shown:
            shown = (await operator_client.request(page)).json


# -------------------------------------------------------------------- what a review found


async def test_routing_that_is_off_still_lets_callers_wait(gateway: CallGateway) -> None:
    await gateway.reopen({"responseRouting.enabled": False})
    waited = await gateway.call("a", "b", wait=True)
    assert (waited["status"], waited["output"]) == ("completed", "done")
    calls = [{"agent": "b", "skill": "work", "input": {}}]
    batch = await gateway.call_tool(gateway.client("a"), "agent_call_batch", {"calls": calls})
    assert batch["completedCount"] == 1
    silent = await gateway.call("a", "b", timeout=50)
    assert silent["status"] == "working"
    assert gateway.host.attempts == []


async def test_a_debate_with_numbers_that_are_none_tells_its_own_result(
    gateway: CallGateway,
) -> None:
    gateway.agents["b"].answer = answers('{"output": {"x": 1e999}, "confidence": 0.5}')
    request = {
        "topic": "tides",
        "proposer": {"agent": "b", "skill": "plan"},
        "critics": [{"agent": "c"}],
        "resolver": {"agent": "d", "skill": "decide"},
        "input": {},
    }
    result = await gateway.call_tool(gateway.client("a"), "debate_call", request)
    assert result["status"] == "resolved"
    assert "rounds" in result


async def test_a_discarded_call_is_not_delivered_by_asking_for_it(gateway: CallGateway) -> None:
    gateway.host.gone.add("agent:a:main")
    call = await gateway.call("a", "b")
    # Who asks before the host was tried takes the answer, and nothing is left to discard.
    await gateway.host.wait_until(lambda: bool(gateway.host.attempts))
    await gateway.poll("a", call, lambda polled: "discarded" in polled["times"])
    times = (await gateway.poll("a", call))["times"]
    assert "delivered" not in times


@pytest.mark.parametrize("name", ["x" * 64, "-x-"])
async def test_the_session_of_a_call_has_the_callees_own_id(
    closed_gateway: CallGateway, name: str
) -> None:
    closed_gateway.agents[name] = ScriptedAgent(closed_gateway.host, name)
    await closed_gateway.open()
    call = await closed_gateway.call("a", name, wait=True)
    assert (
        closed_gateway.agents[name].turns[0].session_key
        == f"agent:{name}:call:{call['correlationId']}"
    )


async def test_a_declared_time_above_the_most_is_reported_as_cut(
    closed_gateway: CallGateway,
) -> None:
    await closed_gateway.open({"agents.b.skills": [{"name": "work", "timeoutSeconds": 900}]})
    assert (await closed_gateway.call("a", "b"))["timeoutMs"] == 300_000


@pytest.mark.parametrize("wait", [True, False])
async def test_a_debates_time_above_the_most_is_reported_as_cut(
    gateway: CallGateway, wait: bool
) -> None:
    asked = {**DEBATE, "timeoutSeconds": 900, "wait": wait}
    result = await gateway.call_tool(gateway.client("a"), "debate_call", asked)
    assert result["timeoutMs"] == 300_000


async def test_a_debate_does_not_use_the_slots_of_its_steps(closed_gateway: CallGateway) -> None:
    await closed_gateway.open({"limits.perPeerRuns": 1})
    result = await closed_gateway.call_tool(
        closed_gateway.client("a"), "debate_call", {**DEBATE, "timeout": 30_000}
    )
    assert result["status"] == "resolved"


async def test_a_critic_beyond_the_limits_counts_as_failed(closed_gateway: CallGateway) -> None:
    await closed_gateway.open({"limits.perPeerRuns": 1, "limits.perPeerQueue": 1})
    closed_gateway.agents["b"].answer = answers('{"output": "well", "confidence": 0.6}')
    for name in "cd":
        closed_gateway.agents[name].answer = HeldAnswer()
    critics = [{"agent": name} for name in "cdc"]
    asked = {**DEBATE, "critics": critics, "timeout": 5000}
    result = await closed_gateway.call_tool(closed_gateway.client("a"), "debate_call", asked)
    flaws = [flaw for one in result["rounds"][0]["critiques"] for flaw in one["flaws"]]
    assert len(flaws) == 3
    assert "runs waiting" in flaws[-1]
