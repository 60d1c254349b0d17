"""A planning agent reads the questions and results of its steps, and answers them, with tools."""

import asyncio
import json
from typing import Any

import anyio
import pytest
from tests.conformance.asgi_client import TIMEOUT_S
from tests.planning.gateway_harness import PlanningHarness, asks
from tests.planning.test_restart import operator

from openclaw_a2a.auth.tokens import TokenKind, TokenStore

Json = Any
ON = {"opt.tools": True}


async def work(turn: Any) -> Any:
    """Asks, fails or does what the name of the step says."""
    if turn.resume is not None or "This is a step of" not in turn.body:
        return f"noted: {turn.body}"
    if turn.body.startswith("ask"):
        return asks("Window or aisle?")
    if turn.body.startswith("fail"):
        raise RuntimeError("no luck today")
    return "three venues: A, B, C"


async def use(
    harness: PlanningHarness, tool: str, /, *, caller: str = "planner", **arguments: Json
) -> Json:
    tokens = TokenStore(harness.folder)
    token = tokens.create(caller, TokenKind.TOOL)
    client = harness.client.with_headers(authorization=f"Bearer {token}")
    content = json.dumps(arguments).encode()
    return (await client.post(f"/tools/{tool}", content, content_length=str(len(content)))).json


async def started(harness: PlanningHarness, *names: str) -> str:
    """A running objective of the planner, with these steps side by side."""
    harness.workers["main"].work = work
    await harness.reopen(ON)
    made = await use(harness, "objective_create", name="Trip")
    objective_id = made["objective"]["id"]
    steps = [{"name": name} for name in names]
    await use(harness, "plan_create", objectiveId=objective_id, name="Plan", tasks=steps)
    await use(harness, "objective_update", id=objective_id, action="run")
    return objective_id


async def until_read(harness: PlanningHarness, objective_id: str, step: str, member: str) -> Json:
    with anyio.fail_after(TIMEOUT_S):
        while True:
            found = await use(harness, "step_read", objectiveId=objective_id, step=step)
            if member in found:
                return found
            await asyncio.sleep(0.005)  # it is asked again until then


@pytest.mark.requirement("opt.tool.five")
async def test_agent_reads_the_question_of_a_step_and_answers_it(harness: PlanningHarness) -> None:
    objective_id = await started(harness, "ask about seats", "List venues")
    asked = await until_read(harness, objective_id, "ask about seats", "question")
    assert asked["question"] == "Window or aisle?"
    assert asked["step"]["status"] == "input-required"
    answered = await use(harness, "step_answer", objectiveId=objective_id, text="Aisle, please")
    assert (answered["status"], answered["step"]["id"]) == ("ok", asked["step"]["id"])
    done = await until_read(harness, objective_id, asked["step"]["id"], "result")
    assert done["result"] == "noted: Aisle, please"
    again = await use(harness, "step_answer", objectiveId=objective_id, text="Window")
    assert (again["status"], again["code"]) == ("error", "invalid-params")
    assert [turn.body for turn in harness.workers["main"].turns].count("Window") == 0


async def test_result_and_reason_are_read_by_name_or_beginning(harness: PlanningHarness) -> None:
    objective_id = await started(harness, "List venues", "fail at once")
    for step in ("List venues", "list", "LIST VEN"):
        found = await until_read(harness, objective_id, step, "result")
        assert found["result"] == "three venues: A, B, C"
    for step in (found["step"]["id"], found["step"]["id"][:-1], found["step"]["a2aTaskId"]):
        assert (await until_read(harness, objective_id, step, "result"))["step"] == found["step"]
    failed = await until_read(harness, objective_id, "fail", "reason")
    assert "no luck today" in failed["reason"]
    assert "result" not in failed


async def test_ambiguous_and_unknown_steps_are_explained(harness: PlanningHarness) -> None:
    objective_id = await started(harness, "ask first", "ask second")
    await until_read(harness, objective_id, "ask first", "question")
    await until_read(harness, objective_id, "ask second", "question")
    several = await use(harness, "step_read", objectiveId=objective_id, step="ask")
    assert several["code"] == "invalid-params"
    assert "ask first" in several["error"]
    which = await use(harness, "step_answer", objectiveId=objective_id, text="x")
    assert which["code"] == "invalid-params"
    assert "ask second" in which["error"]
    unknown = await use(harness, "step_read", objectiveId=objective_id, step="nobody")
    assert unknown["code"] == "plan-item-not-found"
    empty = await use(harness, "step_answer", objectiveId=objective_id, text="  ", step="ask f")
    assert empty["code"] == "invalid-params"
    assert (await use(harness, "step_answer", objectiveId=objective_id, text="x", step="ask f"))[
        "status"
    ] == "ok"


async def test_steps_of_another_owner_are_not_found(harness: PlanningHarness) -> None:
    objective_id = await started(harness, "ask about seats")
    await until_read(harness, objective_id, "ask", "question")
    for tool, more in (("step_read", {"step": "ask"}), ("step_answer", {"text": "x"})):
        found = await use(harness, tool, caller="stranger", objectiveId=objective_id, **more)
        assert (found["status"], found["code"]) == ("error", "plan-item-not-found")


async def test_steps_are_no_methods_of_the_protocol(harness: PlanningHarness) -> None:
    for method in ("steps/get", "steps/answer"):
        error = await harness.fail(method, objectiveId="obj-1", step="x", text="y")
        assert error["code"] == -32601


async def test_long_result_is_cut_and_says_so(harness: PlanningHarness) -> None:
    objective_id = await started(harness, "ask a lot")
    await until_read(harness, objective_id, "ask", "question")
    await use(harness, "step_answer", objectiveId=objective_id, text="y" * 30_000)
    found = await until_read(harness, objective_id, "ask", "result")
    assert (len(found["result"]), found["truncated"]) == (20_000, True)


async def test_an_imported_step_does_not_show_the_task_of_another_caller(
    harness: PlanningHarness,
) -> None:
    objective_id = await started(harness, "List venues")
    step = (await until_read(harness, objective_id, "List", "result"))["step"]
    local = await harness.objective()
    plan = await harness.plan(local, [{"name": "ask for the secret of local"}])
    await harness.call("objectives/run", id=local)
    await harness.until(local, lambda one: one["status"] == "blocked")
    [asking] = (await harness.call("plans/get", id=plan["id"]))["plan"]["tasks"]
    answer = {"role": "ROLE_USER", "parts": [{"text": "the secret of local"}]}
    theirs = asking["a2aTaskId"]
    await harness.call("SendMessage", message={"messageId": "m-1", "taskId": theirs, **answer})
    exported = (await operator(harness, f"GET /{objective_id}/export")).body
    deleted = await operator(harness, f"POST /{objective_id}/delete")
    assert deleted.status == 200, deleted.body
    linked = exported.replace(step["a2aTaskId"].encode(), theirs.encode())
    assert (await operator(harness, "POST /import", linked)).status == 200
    found = await use(harness, "step_read", objectiveId=objective_id, step="List")
    assert found["step"]["a2aTaskId"] == theirs
    assert "secret" not in json.dumps(found)
