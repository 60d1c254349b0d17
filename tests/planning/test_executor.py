"""Executed objectives: steps start in order, once each."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest
from tests.conformance.manual_clock import ManualClock
from tests.planning.gateway_harness import PlanningHarness, asks, first_line

from openclaw_a2a.auth.admin_token import read_admin_token

Json = Any


def steps(*names: str, **more: Json) -> list[Json]:
    """Steps that follow each other."""
    return [
        {"name": name, **({"dependencies": [f"task-{place - 1}"]} if place else {}), **more}
        for place, name in enumerate(names)
    ]


@pytest.mark.requirement("opt.run.begins", "opt.storage.inputs", "opt.progress.counts")
async def test_steps_run_one_after_the_other_and_get_the_results_before(
    harness: PlanningHarness,
) -> None:
    objective_id = await harness.objective("Blog post")
    await harness.plan(objective_id, steps("research", "write", "review"))
    await harness.call("objectives/run", id=objective_id)
    ended = await harness.ends(objective_id)
    main = harness.workers["main"]
    assert main.asked == ["research", "write", "review"]
    assert "did research" in main.turns[1].body
    assert ended["progress"] == {"done": 3, "total": 3, "percent": 100, "current": []}
    assert [task["status"] for task in ended["plans"][0]["tasks"]] == ["completed"] * 3


@pytest.mark.requirement(
    "opt.storage.step-session", "opt.key.task", "opt.key.dependencies", "opt.key.context"
)
async def test_each_step_has_a_session_and_carries_its_keys(harness: PlanningHarness) -> None:
    objective_id = await harness.objective()
    plan = await harness.plan(objective_id, steps("one", "two"))
    await harness.call("plans/run", id=plan["id"])
    ended = await harness.ends(objective_id)
    first, second = ended["plans"][0]["tasks"]
    assert harness.workers["main"].turns[1].session_key == (
        f"agent:main:a2a:obj:{objective_id}:{second['id']}"
    )
    task = await harness.call("GetTask", id=second["a2aTaskId"])
    assert task["contextId"] == objective_id
    assert task["metadata"] == {
        "opt/v1/objectiveId": objective_id,
        "opt/v1/planId": plan["id"],
        "opt/v1/taskIndex": 1,
        "opt/v1/dependencies": [first["id"]],
    }


@pytest.mark.requirement("opt.rollup.parallel", "opt.run.limit")
async def test_steps_that_do_not_depend_on_each_other_run_at_once_up_to_the_limit(
    harness: PlanningHarness,
) -> None:
    await harness.reopen({"opt.parallel": 2})
    running, most, go = set[str](), 0, asyncio.Event()

    async def work(turn: Any) -> str:
        nonlocal most
        running.add(turn.run_id)
        most = max(most, len(running))
        if len(running) == 2:
            go.set()
        await go.wait()
        running.discard(turn.run_id)
        return "done"

    harness.workers["main"].work = work
    objective_id = await harness.objective()
    await harness.plan(objective_id, [{"name": f"step {number}"} for number in range(6)])
    await harness.call("objectives/run", id=objective_id)
    await harness.ends(objective_id)
    assert most == 2


@pytest.mark.requirement("opt.run.agent")
async def test_a_step_is_done_by_the_agent_it_names(harness: PlanningHarness) -> None:
    objective_id = await harness.objective(metadata={"agent": "helper"})
    await harness.plan(
        objective_id, [{"name": "his"}, {"name": "mine", "metadata": {"agent": "main"}}]
    )
    await harness.call("objectives/run", id=objective_id)
    await harness.ends(objective_id)
    assert harness.workers["helper"].asked == ["his"]
    assert harness.workers["main"].asked == ["mine"]


@pytest.mark.requirement("opt.run.retry")
async def test_a_failed_step_is_retried_as_often_as_its_metadata_says(
    harness: PlanningHarness,
) -> None:
    tries = 0

    async def work(turn: Any) -> str:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise RuntimeError("not yet")
        return "at last"

    harness.workers["main"].work = work
    objective_id = await harness.objective()
    await harness.plan(objective_id, [{"name": "stubborn", "metadata": {"retries": 2}}])
    await harness.call("objectives/run", id=objective_id)
    await harness.ends(objective_id)
    assert tries == 3


@pytest.mark.requirement("opt.bad.fails-always")
async def test_a_step_that_fails_each_time_fails_its_plan_and_its_objective(
    harness: PlanningHarness,
) -> None:
    async def work(_turn: Any) -> str:
        raise RuntimeError("never")

    harness.workers["main"].work = work
    objective_id = await harness.objective()
    await harness.plan(objective_id, steps("one", "two", metadata={"retries": 1}))
    await harness.call("objectives/run", id=objective_id)
    ended = await harness.ends(objective_id, "failed")
    assert harness.workers["main"].asked == ["one", "one"]
    assert ended["plans"][0]["status"] == "failed"


@pytest.mark.requirement("opt.run.question", "opt.message.answer")
async def test_a_question_pauses_only_what_depends_on_it_and_is_answered_by_a_message(
    harness: PlanningHarness,
) -> None:
    async def work(turn: Any) -> Any:
        is_new = turn.body.startswith("book")
        return asks("which hotel?") if is_new else f"did {first_line(turn)}"

    harness.workers["person"].work = work
    objective_id = await harness.objective()
    ask = {"name": "book", "metadata": {"agent": "person"}}
    await harness.plan(
        objective_id,
        [ask, {"name": "after", "dependencies": ["task-0"]}, {"name": "other"}],
    )
    await harness.call("objectives/run", id=objective_id)
    waiting = await harness.until(
        objective_id,
        lambda one: "oldestWaiting" in one["progress"] and one["progress"]["done"] == 1,
    )
    assert harness.workers["main"].asked == ["other"]
    waits = waiting["progress"]["oldestWaiting"]
    answer = {
        "messageId": "answer-1",
        "role": "ROLE_USER",
        "parts": [{"text": "the small one"}],
        "contextId": objective_id,
        "metadata": {"opt/v1/taskId": waits["taskId"]},
    }
    await harness.call("SendMessage", message=answer)
    await harness.ends(objective_id)
    assert harness.workers["main"].asked == ["other", "after"]


@pytest.mark.requirement("opt.run.cancel", "opt.rollup.cancel-tasks")
async def test_cancelling_ends_running_steps_and_starts_no_more(harness: PlanningHarness) -> None:
    begun = asyncio.Event()

    async def work(_turn: Any) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    harness.workers["main"].work = work
    objective_id = await harness.objective()
    await harness.plan(objective_id, steps("long", "later"))
    await harness.call("objectives/run", id=objective_id)
    await begun.wait()
    await harness.until(
        objective_id, lambda one: one["plans"][0]["tasks"][0]["status"] == "working"
    )
    await harness.call("objectives/update", id=objective_id, status="canceled")
    ended = await harness.until(
        objective_id,
        lambda one: all(task["status"] == "canceled" for task in one["plans"][0]["tasks"]),
    )
    assert ended["status"] == "canceled"
    task = await harness.call("GetTask", id=ended["plans"][0]["tasks"][0]["a2aTaskId"])
    assert task["status"]["state"] == "TASK_STATE_CANCELED"
    assert harness.workers["main"].asked == ["long"]


@pytest.mark.requirement("opt.run.pause")
async def test_a_paused_objective_starts_nothing_until_it_is_resumed(
    harness: PlanningHarness,
) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def work(turn: Any) -> str:
        begun.set()
        await go.wait()
        return "done"

    harness.workers["main"].work = work
    objective_id = await harness.objective()
    await harness.plan(objective_id, steps("first", "second"))
    await harness.call("objectives/run", id=objective_id)
    await begun.wait()
    paused = await harness.call("objectives/pause", id=objective_id)
    assert paused["objective"]["execution"] == "paused"
    go.set()
    await harness.until(objective_id, lambda one: one["progress"]["done"] == 1)
    assert harness.workers["main"].asked == ["first"]
    await harness.call("objectives/resume", id=objective_id)
    await harness.ends(objective_id)
    assert harness.workers["main"].asked == ["first", "second"]


@pytest.mark.requirement("opt.run.restart")
async def test_execution_continues_after_a_restart(harness: PlanningHarness) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def work(turn: Any) -> str:
        if first_line(turn) == "second":
            begun.set()
            await go.wait()
        return "done"

    harness.workers["main"].work = work
    objective_id = await harness.objective()
    await harness.plan(objective_id, steps("first", "second", "third"))
    await harness.call("objectives/run", id=objective_id)
    await begun.wait()
    await harness.close()
    go.set()
    await harness.open()
    await harness.ends(objective_id)
    asked = harness.workers["main"].asked
    assert asked.count("first") == 1
    assert asked[-1] == "third"


# -------------------------------------------------------------------- plans that are made

PLANS = """Here you are: {"plans": [{"name": "flight", "tasks": [{"name": "search"}]},
{"name": "hotel", "dependencies": [0], "tasks": [{"name": "book"}]}]}"""


@pytest.mark.requirement("opt.planner.plans")
async def test_a_planner_makes_plans_which_are_then_run(harness: PlanningHarness) -> None:
    await harness.reopen({"opt.planner": "helper"})

    async def plan(_turn: Any) -> str:
        return PLANS

    harness.workers["helper"].work = plan
    objective_id = await harness.objective("Trip")
    await harness.call("objectives/run", id=objective_id)
    ended = await harness.ends(objective_id)
    assert [plan["name"] for plan in ended["plans"]] == ["flight", "hotel"]
    assert harness.workers["main"].asked == ["search", "book"]
    assert len(harness.workers["helper"].turns) == 1


@pytest.mark.requirement("opt.planner.bad-answer")
async def test_a_bad_answer_is_asked_for_again_once_and_then_the_objective_is_blocked(
    harness: PlanningHarness,
) -> None:
    await harness.reopen({"opt.planner": "helper"})

    async def plan(_turn: Any) -> str:
        return '{"plans": [{"name": "x", "tasks": [{"title": "y"}]}]}'

    harness.workers["helper"].work = plan
    objective_id = await harness.objective("Trip")
    await harness.call("objectives/run", id=objective_id)
    blocked = await harness.ends(objective_id, "blocked")
    assert len(harness.workers["helper"].turns) == 2
    assert "could not be used" in harness.workers["helper"].turns[1].body
    assert "name" in blocked["metadata"]["opt/v1/blockedReason"]


# -------------------------------------------------------------------- tasks that callers link


@pytest.mark.requirement("opt.rollup.mirror")
async def test_a_task_that_is_linked_to_a_step_is_mirrored(harness: PlanningHarness) -> None:
    objective_id = await harness.objective()
    plan = await harness.plan(objective_id, [{"name": "by hand"}])
    message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "do it"}]}
    waiting = {"returnImmediately": True}
    sent = await harness.call("SendMessage", message=message, configuration=waiting)
    link = {"id": plan["tasks"][0]["id"], "a2aTaskId": sent["task"]["id"]}
    await harness.call("plans/update", id=plan["id"], tasks=[link])
    await harness.ends(objective_id)


async def test_an_unknown_task_cannot_be_linked(harness: PlanningHarness) -> None:
    objective_id = await harness.objective()
    plan = await harness.plan(objective_id, [{"name": "by hand"}])
    link = {"id": plan["tasks"][0]["id"], "a2aTaskId": "somebody-elses"}
    error = await harness.fail("plans/update", id=plan["id"], tasks=[link])
    assert error["code"] == -32050


# -------------------------------------------------------------------- running what has ended


async def test_a_failed_objective_that_is_run_again_tries_what_failed(
    harness: PlanningHarness,
) -> None:
    is_broken = True

    async def work(turn: Any) -> str:
        if is_broken and first_line(turn) == "second":
            raise RuntimeError("broken")
        return "done"

    harness.workers["main"].work = work
    objective_id = await harness.objective()
    await harness.plan(objective_id, steps("first", "second", "third"))
    await harness.call("objectives/run", id=objective_id)
    await harness.ends(objective_id, "failed")
    is_broken = False
    await harness.call("objectives/run", id=objective_id)
    await harness.ends(objective_id)
    assert harness.workers["main"].asked == ["first", "second", "second", "third"]


async def test_closed_objectives_and_plans_are_not_run(harness: PlanningHarness) -> None:
    objective_id = await harness.objective()
    plan = await harness.plan(objective_id, steps("only"))
    await harness.call("objectives/run", id=objective_id)
    await harness.ends(objective_id)
    for method, name in (("objectives/run", objective_id), ("plans/run", plan["id"])):
        assert (await harness.fail(method, id=name))["code"] == -32051


async def test_a_plan_that_a_caller_blocked_continues_when_it_is_run(
    harness: PlanningHarness,
) -> None:
    objective_id = await harness.objective()
    plan = await harness.plan(objective_id, steps("only"))
    await harness.call("plans/update", id=plan["id"], status="blocked")
    run = await harness.call("plans/run", id=plan["id"])
    assert run["plan"]["execution"] == "running"
    await harness.ends(objective_id)


async def test_an_objective_without_open_plans_is_not_run(
    harness: PlanningHarness,
) -> None:
    objective_id = await harness.objective()
    await harness.plan(objective_id, steps("only"))
    await harness.call("objectives/update", id=objective_id, status="canceled")
    await harness.call("objectives/update", id=objective_id, status="submitted")
    error = await harness.fail("objectives/run", id=objective_id)
    assert error["code"] == -32051
    assert "add one" in error["message"]


@pytest.mark.requirement("opt.storage.inputs")
async def test_a_plan_gets_the_results_of_the_plans_before_it(harness: PlanningHarness) -> None:
    objective_id = await harness.objective()
    first = await harness.plan(objective_id, steps("search", "choose"))
    await harness.plan(objective_id, steps("book"), dependencies=[first["id"]])
    await harness.call("objectives/run", id=objective_id)
    await harness.ends(objective_id)
    last = harness.workers["main"].turns[-1].body
    assert "did choose" in last
    assert "did search" not in last


# -------------------------------------------------------------------- what a review found


@pytest.mark.requirement("opt.method.task-update-whole")
async def test_links_are_made_all_or_none(harness: PlanningHarness) -> None:
    objective_id = await harness.objective()
    plan = await harness.plan(objective_id, [{"name": "one"}, {"name": "two"}])
    message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "do it"}]}
    now = {"returnImmediately": True}
    sent = await harness.call("SendMessage", message=message, configuration=now)
    ids = [sent["task"]["id"], "nobody-knows"]
    pairs = zip(plan["tasks"], ids, strict=True)
    links = [{"id": task["id"], "a2aTaskId": task_id} for task, task_id in pairs]
    error = await harness.fail("plans/update", id=plan["id"], tasks=links)
    assert error["code"] == -32050
    found = (await harness.call("plans/get", id=plan["id"]))["plan"]
    assert [task["status"] for task in found["tasks"]] == ["pending", "pending"]
    assert not any("a2aTaskId" in task for task in found["tasks"])


async def test_an_objective_under_a_used_id_gets_plans_of_its_own(
    harness: PlanningHarness,
) -> None:
    await harness.reopen({"opt.planner": "helper"})

    async def plan(turn: Any) -> str:
        name = "Beta" if "Beta" in turn.body else "Alpha"
        return json.dumps({"plans": [{"name": name, "tasks": [{"name": "do"}]}]})

    harness.workers["helper"].work = plan
    for name in ("Alpha", "Beta"):
        hints = {"opt/v1/objective": {"id": "obj-again", "name": name}}
        message = {"messageId": name, "role": "ROLE_USER", "parts": [{"text": name}]}
        await harness.call("SendMessage", message={**message, "metadata": hints})
        await harness.call("objectives/run", id="obj-again")
        ended = await harness.ends("obj-again")
        assert [one["name"] for one in ended["plans"]] == [name]
        await harness.call("objectives/delete", id="obj-again")


async def test_a_message_in_a_plan_that_is_not_run_fails_for_good(
    harness: PlanningHarness,
) -> None:
    await harness.reopen({"opt.retries": 1})
    objective_id = await harness.objective()
    first = await harness.plan(objective_id, steps("fine"))
    other = await harness.plan(objective_id, [])

    async def work(turn: Any) -> str:
        if first_line(turn) == "fine":
            return "done"
        raise RuntimeError("broken")

    harness.workers["main"].work = work
    await harness.call("plans/run", id=first["id"])
    place = {"opt/v1/objective": {"id": objective_id}, "opt/v1/plan": {"id": other["id"]}}
    message = {"messageId": "m-2", "role": "ROLE_USER", "parts": [{"text": "try"}]}
    await harness.call("SendMessage", message={**message, "metadata": place})
    await harness.until(objective_id, lambda one: one["plans"][1]["status"] == "failed")


async def test_an_imported_objective_is_completed(
    harness: PlanningHarness,
) -> None:
    objective_id = await harness.objective()
    await harness.plan(objective_id, steps("one", "two"))
    assert harness.gateway is not None
    path = f"/operator/objectives/{objective_id}/export"
    headers = {"authorization": f"Bearer {read_admin_token(harness.folder)}"}
    before = (await harness.client.get(path, **headers)).body
    await harness.call("objectives/run", id=objective_id)
    await harness.ends(objective_id)
    await harness.call("objectives/delete", id=objective_id)
    length = str(len(before))
    await harness.client.post(
        "/operator/objectives/import", before, content_length=length, **headers
    )
    await harness.call("objectives/run", id=objective_id)
    await harness.ends(objective_id)
    assert harness.workers["main"].asked == ["one", "two"]


async def busy(harness: PlanningHarness) -> asyncio.Event:
    """Fill the gateway with work, until the event is set."""
    go = asyncio.Event()

    async def wait(_turn: Any) -> str:
        await go.wait()
        return "done"

    harness.workers["main"].work = wait
    for number in range(2):
        message = {"messageId": f"b-{number}", "role": "ROLE_USER", "parts": [{"text": "work"}]}
        now = {"returnImmediately": True}
        await harness.call("SendMessage", message=message, configuration=now)
    return go


@pytest.mark.parametrize("is_sent_again", [True, False])
async def test_a_step_whose_message_was_rejected_is_executed_once(
    harness: PlanningHarness, is_sent_again: bool
) -> None:
    await harness.reopen({"limits.runs": 1, "limits.queue": 1})
    objective_id = await harness.objective()
    plan = await harness.plan(objective_id, [])
    await harness.call("objectives/run", id=objective_id)
    go = await busy(harness)
    place = {"opt/v1/objective": {"id": objective_id}, "opt/v1/plan": {"id": plan["id"]}}
    message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "water it"}]}
    wanted = {"message": {**message, "metadata": place}}
    refused = await harness.fail("SendMessage", **wanted)
    assert "try again" in refused["message"]
    found = await harness.get(objective_id)
    assert [task["status"] for task in found["plans"][0]["tasks"]] == ["pending"]
    go.set()
    harness.workers["main"].work = harness.workers["main"].done
    if not is_sent_again:
        harness.clock = ManualClock(timedelta(minutes=2))
    await harness.reopen()
    if is_sent_again:
        await harness.call("SendMessage", **wanted)
    ended = await harness.ends(objective_id)
    assert [task["status"] for task in ended["plans"][0]["tasks"]] == ["completed"]
    assert harness.workers["main"].asked.count("water it") == 1
    if not is_sent_again:
        [task] = ended["plans"][0]["tasks"]
        late = await harness.fail("SendMessage", **wanted)
        assert task["a2aTaskId"] in late["message"]
        assert harness.workers["main"].asked.count("water it") == 1


async def test_callers_cannot_write_the_message_id_of_a_step(harness: PlanningHarness) -> None:
    objective_id = await harness.objective()
    forged = {"name": "x", "metadata": {"opt/v1/messageId": "m"}}
    wanted = {"objectiveId": objective_id, "name": "p", "tasks": [forged]}
    error = await harness.fail("plans/create", **wanted)
    assert error["code"] == -32602
    assert "opt/v1/messageId" in error["message"]
    plan = await harness.plan(objective_id, steps("one"))
    edit = {"id": plan["tasks"][0]["id"], "metadata": {"opt/v1/messageId": "m", "mine": 1}}
    changed = await harness.call("plans/update", id=plan["id"], tasks=[edit])
    assert changed["plan"]["tasks"][0]["metadata"] == {"mine": 1}
    await harness.call("objectives/run", id=objective_id)
    await harness.ends(objective_id)


async def test_the_id_of_a_plan_that_was_rejected_is_free_for_others(
    harness: PlanningHarness,
) -> None:
    await harness.reopen({"opt.maxPlansPerObjective": 1})
    full, other = await harness.objective("full"), await harness.objective("other")
    await harness.plan(full, [])
    message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "do"}]}
    for objective_id in (full, other):
        place = {"opt/v1/objective": {"id": objective_id}, "opt/v1/plan": {"id": "plan-mine"}}
        await harness.ask("SendMessage", {"message": {**message, "metadata": place}})
    assert [one["id"] for one in (await harness.get(other))["plans"]] == ["plan-mine"]


@pytest.mark.requirement("opt.method.list-pages")
async def test_pages_continue_when_the_last_of_the_page_before_was_deleted(
    harness: PlanningHarness,
) -> None:
    for number in range(5):
        await harness.objective(f"goal {number}")
    first = await harness.call("objectives/list", pageSize=2)
    await harness.call("objectives/delete", id=first["objectives"][-1]["id"])
    token = first["nextPageToken"]
    rest = await harness.call("objectives/list", pageSize=9, pageToken=token)
    assert [one["name"] for one in rest["objectives"]] == ["goal 2", "goal 1", "goal 0"]
    for wrong in ("x", "~", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z~", "9~obj-1"):
        error = await harness.fail("objectives/list", pageToken=wrong)
        assert error["code"] == -32602
