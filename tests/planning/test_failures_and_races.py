"""Invalid input, failures and races of executed objectives, through the endpoint of callers."""

import asyncio
import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.conformance.asgi_client import TIMEOUT_S, AsgiClient
from tests.conformance.conftest import peers, token_of
from tests.planning.gateway_harness import (
    PlanningHarness,
    asks,
    first_line,
    planning_harness_in,
)
from tests.planning.test_lifecycle_examples import watching

Json = Any
NOT_FOUND, NOT_ALLOWED, TOO_MANY, BAD_DEPENDENCY = -32050, -32051, -32052, -32053
CONFLICT = -32054


class Gate:
    """Work that begins, and goes on when the test says so."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go = asyncio.Event()

    async def work(self, turn: Any) -> str:
        self.begun.set()
        await self.go.wait()
        return f"did {first_line(turn)}"


def gated(harness: PlanningHarness) -> Gate:
    """A gate before everything that the main agent does."""
    gate = Gate()
    harness.workers["main"].work = gate.work
    return gate


def task_of(objective: Json, name: str) -> Json:
    tasks = [task for plan in objective["plans"] for task in plan["tasks"]]
    return next(task for task in tasks if task["name"] == name)


async def is_working(harness: PlanningHarness, objective_id: str, name: str) -> Json:
    return await harness.until(objective_id, lambda one: task_of(one, name)["status"] == "working")


async def states_in(harness: PlanningHarness, objective_id: str) -> list[str]:
    listed = await harness.call("ListTasks", contextId=objective_id)
    return [task["status"]["state"] for task in listed["tasks"]]


def message(text: str, **more: Json) -> Json:
    return {"role": "ROLE_USER", "parts": [{"text": text}], **more}


# -------------------------------------------------------------------- things that are not there


@pytest.mark.requirement("opt.bad.unknown", "opt.error.not-found")
@pytest.mark.parametrize(
    "method",
    [
        *("objectives/get", "objectives/update", "objectives/replan", "objectives/delete"),
        *("objectives/run", "objectives/pause", "objectives/resume", "objectives/subscribe"),
        *("plans/get", "plans/update", "plans/run", "plans/pause", "plans/resume"),
    ],
)
@pytest.mark.parametrize("wanted", ["obj-nobody", "plan-nobody", "../x", "\x00", "ö" * 200])
async def test_ids_of_nothing_are_not_found(
    harness: PlanningHarness, method: str, wanted: str
) -> None:
    error = await harness.fail(method, id=wanted)
    assert error["code"] == NOT_FOUND
    assert method.partition("s/")[0] in error["message"]


async def test_an_answer_without_the_context_of_its_objective_says_that_it_is_missing(
    harness: PlanningHarness,
) -> None:
    objective_id = await harness.objective()
    step = (await harness.plan(objective_id, [{"name": "a"}]))["tasks"][0]["id"]
    answer = message("yes", messageId="m", metadata={"opt/v1/taskId": step})
    error = await harness.fail("SendMessage", message=answer)
    assert error["code"] == -32602
    assert error["message"].startswith("message.contextId is missing")
    lost = await harness.fail("SendMessage", message={**answer, "contextId": "obj-nobody"})
    assert lost["code"] == NOT_FOUND
    assert "There is no objective obj-nobody." in lost["message"]


@pytest.mark.requirement("opt.bad.unknown")
async def test_plans_and_tasks_for_nothing_are_not_found(harness: PlanningHarness) -> None:
    lost = await harness.fail("plans/create", objectiveId="obj-nobody", name="x")
    more = await harness.fail("plans/addTasks", id="plan-nobody", tasks=[{"name": "x"}])
    assert (lost["code"], more["code"]) == (NOT_FOUND, NOT_FOUND)
    objective_id = await harness.objective()
    plan = await harness.plan(objective_id, [{"name": "a"}])
    edit = {"id": "task-nobody", "name": "b"}
    error = await harness.fail("plans/update", id=plan["id"], tasks=[edit])
    assert (error["code"], error["data"]["legacyCode"]) == (NOT_FOUND, -32000)
    unknown = message("yes", contextId=objective_id, metadata={"opt/v1/taskId": "task-nobody"})
    answer = await harness.fail("SendMessage", message={**unknown, "messageId": "m"})
    assert answer["code"] == NOT_FOUND


@pytest.mark.requirement("opt.error.limit")
async def test_limits_hold_for_plans_tasks_and_messages(harness: PlanningHarness) -> None:
    objective_id = await harness.objective()
    plans = [await harness.plan(objective_id, []) for _ in range(10)]
    eleventh = await harness.fail("plans/create", objectiveId=objective_id, name="x")
    full = [{"name": str(number)} for number in range(50)]
    plan_id = plans[0]["id"]
    await harness.call("plans/addTasks", id=plan_id, tasks=full)
    one_more = await harness.fail("plans/addTasks", id=plan_id, tasks=[{"name": "x"}])
    other = await harness.objective()
    at_once = await harness.fail(
        "plans/create", objectiveId=other, name="x", tasks=[*full, {"name": "x"}]
    )
    into = {"opt/v1/objective": {"id": objective_id}}
    by_message = [
        await harness.fail(
            "SendMessage",
            message=message("x", messageId=f"m{place}", metadata={**into, "opt/v1/plan": plan}),
        )
        for place, plan in enumerate([{"name": "new"}, {"id": plan_id}])
    ]
    for error in (eleventh, one_more, at_once, *by_message):
        assert error["code"] == TOO_MANY
    assert harness.workers["main"].turns == []


@pytest.mark.requirement("opt.bad.circles", "opt.bad.elsewhere", "opt.error.dependency")
async def test_cycles_and_dependencies_of_others_are_rejected_and_nothing_changes(
    harness: PlanningHarness,
) -> None:
    mine, other = await harness.objective("mine"), await harness.objective("other")
    theirs = await harness.plan(other, [{"name": "far"}])
    first = await harness.plan(mine, [{"name": "a"}])
    second = await harness.plan(
        mine, [{"name": "b", "dependencies": [first["tasks"][0]["id"]]}], dependencies=[first["id"]]
    )
    before = await harness.get(mine)
    circle = [{"id": first["tasks"][0]["id"], "dependencies": [second["tasks"][0]["id"]]}]
    errors = [
        await harness.fail("plans/update", id=first["id"], tasks=circle),
        await harness.fail(
            "plans/create",
            objectiveId=mine,
            name="x",
            tasks=[
                {"name": "x", "dependencies": ["task-1"]},
                {"name": "y", "dependencies": ["task-0"]},
            ],
        ),
        await harness.fail(
            "plans/addTasks",
            id=first["id"],
            tasks=[{"name": "x", "dependencies": [theirs["tasks"][0]["id"]]}],
        ),
        await harness.fail("plans/create", objectiveId=mine, name="x", dependencies=[theirs["id"]]),
    ]
    assert [error["code"] for error in errors] == [BAD_DEPENDENCY] * 4
    assert await harness.get(mine) == before


@pytest.mark.requirement(
    "opt.plain.clients", "opt.activation.off-methods", "opt.activation.off-messages"
)
async def test_clients_without_the_extension_see_plain_tasks_and_no_methods(
    harness: PlanningHarness,
) -> None:
    assert harness.gateway is not None
    plain = AsgiClient(harness.gateway.asgi)
    body = b'{"jsonrpc":"2.0","id":1,"method":"objectives/list","params":{}}'
    assert (await plain.post("/a2a/jsonrpc", body)).json["error"]["code"] == -32601
    sent = b"""{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{
      "messageId":"m1","role":"ROLE_USER","parts":[{"text":"hello"}],
      "metadata":{"opt/v1/objective":{"id":"obj-plain","name":"x"}}}}}"""
    answer = (await plain.post("/a2a/jsonrpc", sent)).json["result"]["message"]
    assert answer["contextId"] != "obj-plain"
    assert "metadata" not in answer
    assert (await harness.call("objectives/list"))["totalSize"] == 0


# -------------------------------------------------------------------- two at once


@pytest.mark.requirement("opt.bad.two-at-once", "opt.error.status")
@pytest.mark.parametrize("first", ["completed", "canceled"])
async def test_of_two_concurrent_final_statuses_one_wins_and_the_other_is_rejected(
    harness: PlanningHarness, first: str
) -> None:
    second = {"completed": "canceled", "canceled": "completed"}[first]
    objective_id = await harness.objective()
    await harness.call("objectives/update", id=objective_id, status="working")
    answers = await asyncio.gather(
        *[
            harness.ask("objectives/update", {"id": objective_id, "status": status})
            for status in (first, second)
        ]
    )
    [won] = [one["result"]["objective"]["status"] for one in answers if "result" in one]
    [lost] = [one["error"] for one in answers if "error" in one]
    assert (lost["code"], lost["data"]["legacyCode"]) == (NOT_ALLOWED, -32001)
    assert won in lost["message"]
    assert (await harness.get(objective_id))["status"] == won
    await harness.reopen()
    assert (await harness.get(objective_id))["status"] == won


@pytest.mark.requirement("opt.bad.two-at-once")
@pytest.mark.parametrize("kind", ["objectives", "plans"])
async def test_of_concurrent_updates_with_if_updated_at_one_wins_and_the_others_are_rejected(
    harness: PlanningHarness, kind: str
) -> None:
    objective_id = await harness.objective()
    plan = await harness.plan(objective_id, [])
    read = await harness.get(objective_id) if kind == "objectives" else plan
    asked = {"id": read["id"], "ifUpdatedAt": read["updatedAt"]}
    answers = await asyncio.gather(
        *[
            harness.ask(f"{kind}/update", {**asked, "name": f"name {number}"})
            for number in range(10)
        ]
    )
    [won] = [one["result"] for one in answers if "result" in one]
    lost = [one["error"] for one in answers if "error" in one]
    now = won["objective" if kind == "objectives" else "plan"]
    assert [error["code"] for error in lost] == [CONFLICT] * 9
    for error in lost:
        assert (error["data"]["id"], error["data"]["updatedAt"]) == (read["id"], now["updatedAt"])
        assert now["updatedAt"] in error["message"]
    again = {**asked, "ifUpdatedAt": now["updatedAt"], "name": "read again"}
    assert "result" in await harness.ask(f"{kind}/update", again)
    await harness.reopen()
    shown = await harness.get(objective_id)
    assert (shown if kind == "objectives" else shown["plans"][0])["name"] == "read again"


async def test_links_are_made_in_a_plan_as_it_was_read(harness: PlanningHarness) -> None:
    plan = await harness.plan(await harness.objective(), [{"name": "a"}, {"name": "b"}])
    links: list[Json] = []
    for task in plan["tasks"]:
        sent = await harness.call(
            "SendMessage",
            message=message("do", messageId=task["id"]),
            configuration={"returnImmediately": True},
        )
        links.append({"id": task["id"], "a2aTaskId": sent["task"]["id"]})
    asked = {"id": plan["id"], "tasks": links, "ifUpdatedAt": plan["updatedAt"]}
    answers = [await harness.ask("plans/update", asked) for _ in range(2)]
    linked = [task["a2aTaskId"] for task in answers[0]["result"]["plan"]["tasks"]]
    assert linked == [link["a2aTaskId"] for link in links]
    assert answers[1]["error"]["code"] == CONFLICT


async def test_steps_are_added_to_a_plan_as_it_was_read(harness: PlanningHarness) -> None:
    plan = await harness.plan(await harness.objective(), [{"name": "first"}])
    asked = {"id": plan["id"], "ifUpdatedAt": plan["updatedAt"], "tasks": [{"name": "second"}]}
    answers = [await harness.ask("plans/addTasks", asked) for _ in range(2)]
    assert len(answers[0]["result"]["plan"]["tasks"]) == 2
    assert answers[1]["error"]["code"] == CONFLICT


async def test_if_updated_at_may_be_in_another_time_zone(harness: PlanningHarness) -> None:
    objective_id = await harness.objective()
    read = (await harness.get(objective_id))["updatedAt"]
    written = read.replace("Z", "+00:00")
    await harness.call("objectives/update", id=objective_id, name="x", ifUpdatedAt=written)


@pytest.mark.parametrize(
    "wrong", ["", "yesterday", 5, "2026-01-05T10:00:00", True, ["x"], "9" * 99]
)
async def test_an_invalid_timestamp_is_rejected(harness: PlanningHarness, wrong: Json) -> None:
    objective_id = await harness.objective()
    error = await harness.fail("objectives/update", id=objective_id, name="x", ifUpdatedAt=wrong)
    assert error["code"] == -32602
    assert "ifUpdatedAt must be" in error["message"]


async def test_many_concurrent_changes_are_each_stored_or_rejected(
    harness: PlanningHarness,
) -> None:
    objective_id = await harness.objective()
    plan = await harness.plan(objective_id, [])
    asked = [
        harness.ask("plans/addTasks", {"id": plan["id"], "tasks": [{"name": f"t{number}"}]})
        for number in range(60)
    ]
    answers = await asyncio.gather(*asked)
    refused = [one["error"]["code"] for one in answers if "error" in one]
    assert refused == [TOO_MANY] * 10
    shown = (await harness.get(objective_id))["plans"][0]["tasks"]
    assert [task["taskIndex"] for task in shown] == list(range(50))
    assert len({task["name"] for task in shown}) == 50


@pytest.mark.requirement("opt.message.plan")
async def test_messages_at_once_for_one_new_objective_and_plan_meet_in_it(
    harness: PlanningHarness,
) -> None:
    place = {"opt/v1/objective": {"id": "obj-9"}, "opt/v1/plan": {"id": "plan-9"}}
    answers = await asyncio.gather(
        *[
            harness.ask("SendMessage", {"message": message(name, messageId=name, metadata=place)})
            for name in ("a", "b", "c")
        ]
    )
    assert ["error" in one for one in answers] == [False] * 3, answers
    assert {one["result"]["task"]["contextId"] for one in answers} == {"obj-9"}
    ended = await harness.ends("obj-9")
    assert [plan["id"] for plan in ended["plans"]] == ["plan-9"]
    assert {task["name"] for task in ended["plans"][0]["tasks"]} == {"a", "b", "c"}
    await harness.reopen()
    assert await harness.get("obj-9") == ended


@pytest.mark.requirement("opt.message.linked")
async def test_a_message_into_a_plan_that_is_run_is_answered_once(
    harness: PlanningHarness,
) -> None:
    gate = gated(harness)
    objective_id = await harness.objective()
    plan = await harness.plan(objective_id, [{"name": "long"}])
    await harness.call("objectives/run", id=objective_id)
    await is_working(harness, objective_id, "long")
    into = {"opt/v1/objective": {"id": objective_id}, "opt/v1/plan": {"id": plan["id"]}}
    text = "one more thing, " * 10
    sent = await harness.call(
        "SendMessage",
        message=message(text, messageId="m", metadata=into),
        configuration={"returnImmediately": True},
    )
    gate.go.set()
    ended = await harness.ends(objective_id)
    assert [turn.body for turn in harness.workers["main"].turns[1:]] == [text]
    assert ended["plans"][0]["tasks"][1]["a2aTaskId"] == sent["task"]["id"]


@pytest.mark.parametrize("kind", ["memory", "sqlite", "json-file"])
async def test_of_concurrent_answers_to_a_step_one_is_taken_and_the_others_are_refused(
    tmp_path: Path, kind: str
) -> None:
    async with planning_harness_in(tmp_path, kind) as harness:
        await harness.open()
        gate = Gate()

        async def work(turn: Any) -> Any:
            if "This is a step of" in turn.body:
                return asks("which one?")
            return await gate.work(turn)

        harness.workers["main"].work = work
        objective_id = await harness.objective()
        await harness.plan(objective_id, [{"name": "choose"}])
        await harness.call("objectives/run", id=objective_id)
        waiting = await harness.until(objective_id, lambda one: "oldestWaiting" in one["progress"])
        step = waiting["progress"]["oldestWaiting"]
        place = {"contextId": objective_id, "metadata": {"opt/v1/taskId": step["taskId"]}}
        named = [place, {"taskId": step["a2aTaskId"]}]
        answers = [message(f"a {one}", messageId=f"m{one}", **named[one % 2]) for one in range(6)]
        wait = {"returnImmediately": True}
        results = await asyncio.gather(
            *(
                harness.ask("SendMessage", {"message": one, "configuration": wait})
                for one in answers
            )
        )
        refused = [one["error"] for one in results if "error" in one]
        assert [one["code"] for one in refused] == [-32004] * 5
        gate.go.set()
        await harness.ends(objective_id)
        assert len(harness.workers["main"].turns) == 2


async def test_a_step_that_works_takes_no_answer(harness: PlanningHarness) -> None:
    gate = gated(harness)
    objective_id = await harness.objective()
    await harness.plan(objective_id, [{"name": "long"}])
    await harness.call("objectives/run", id=objective_id)
    step = task_of(await is_working(harness, objective_id, "long"), "long")
    early = message("yes", contextId=objective_id, metadata={"opt/v1/taskId": step["id"]})
    error = await harness.fail("SendMessage", message=early)
    assert error["code"] == -32004
    assert "waits for no answer" in error["message"]
    gate.go.set()
    await harness.ends(objective_id)
    assert harness.workers["main"].asked == ["long"]


# -------------------------------------------------------------------- agents


async def test_an_unknown_agent_fails_its_step_and_delays_no_other(
    harness: PlanningHarness,
) -> None:
    objective_id = await harness.objective()
    await harness.plan(objective_id, [{"name": "lost", "metadata": {"agent": "nobody"}}])
    await harness.plan(objective_id, [{"name": "fine"}])
    await harness.call("objectives/run", id=objective_id)
    ended = await harness.ends(objective_id, "failed")
    assert harness.workers["main"].asked == ["fine"]
    lost = await harness.call("GetTask", id=task_of(ended, "lost")["a2aTaskId"])
    assert "nobody" in lost["status"]["message"]["parts"][0]["text"]


@pytest.mark.requirement("opt.bad.fails-always")
async def test_an_agent_that_fails_each_time_is_asked_so_often_and_no_more(
    harness: PlanningHarness,
) -> None:
    again = asyncio.Event()

    async def work(turn: Any) -> str:
        if harness.workers["main"].asked.count("a") == 2:
            again.set()
        if first_line(turn) == "b":  # a plan that has failed tries nothing again
            await again.wait()
        raise RuntimeError("never")

    harness.workers["main"].work = work
    await harness.reopen({"opt.retries": 1})
    objective_id = await harness.objective()
    first = await harness.plan(
        objective_id, [{"name": "a"}, {"name": "b", "metadata": {"retries": 0}}]
    )
    await harness.plan(objective_id, [{"name": "c"}], dependencies=[first["id"]])
    await harness.call("objectives/run", id=objective_id)
    ended = await harness.until(
        objective_id,
        lambda one: all(task["status"] == "failed" for task in one["plans"][0]["tasks"]),
    )
    asked = harness.workers["main"].asked
    assert [asked.count(name) for name in "abc"] == [2, 1, 0]
    assert (ended["plans"][0]["status"], ended["status"]) == ("failed", "failed")

    harness.workers["main"].work = harness.workers["main"].done
    await harness.call("plans/update", id=first["id"], status="pending")
    done = await harness.ends(objective_id)
    assert {task["status"] for plan in done["plans"] for task in plan["tasks"]} == {"completed"}


async def test_an_objective_that_waits_for_a_failed_plan_ends_failed_with_the_reason(
    harness: PlanningHarness,
) -> None:
    is_broken = True

    async def work(turn: Any) -> str:
        if is_broken and first_line(turn) == "dig":
            raise RuntimeError("no spade")
        return "done"

    harness.workers["main"].work = work
    objective_id = await harness.objective()
    first = await harness.plan(objective_id, [{"name": "dig"}], name="Ground")
    await harness.plan(objective_id, [{"name": "build"}], name="House", dependencies=[first["id"]])
    await harness.call("objectives/run", id=objective_id)
    failed = await harness.ends(objective_id, "failed")
    assert failed["reason"].startswith("The plan 'Ground' failed at the step 'dig'.")
    assert "The plan 'House' waits for it." in failed["reason"]
    is_broken = False
    await harness.call("objectives/run", id=objective_id)
    ended = await harness.ends(objective_id)
    assert "reason" not in ended


async def test_an_objective_that_waits_for_a_skipped_step_says_which_and_what_to_do(
    harness: PlanningHarness,
) -> None:
    objective_id = await harness.objective()
    first = await harness.plan(objective_id, [{"name": "dig"}], name="Ground")
    build = {"name": "build", "dependencies": [first["tasks"][0]["id"]]}
    second = await harness.plan(objective_id, [build], name="House")
    await harness.plan(objective_id, [{"name": "move"}], name="Home", dependencies=[second["id"]])
    await harness.call("plans/update", id=first["id"], status="skipped")
    failed = await harness.ends(objective_id, "failed")
    assert failed["reason"] == (
        "The plan 'House' waits for the step 'dig' of the plan 'Ground', which is skipped. "
        "Change the dependencies of its step 'build', or skip the plan 'House'."
    )
    await harness.call("objectives/run", id=objective_id)
    assert (await harness.ends(objective_id, "failed"))["reason"] == failed["reason"]
    edit = {"id": second["tasks"][0]["id"], "dependencies": []}
    await harness.call("plans/update", id=second["id"], tasks=[edit])
    ended = await harness.ends(objective_id)
    assert harness.workers["main"].asked == ["build", "move"]
    assert "reason" not in ended


async def test_an_objective_all_of_whose_plans_are_skipped_asks_for_another(
    harness: PlanningHarness,
) -> None:
    objective_id = await harness.objective()
    first = await harness.plan(objective_id, [{"name": "dig"}], name="Ground")
    build = {"name": "build", "dependencies": [first["tasks"][0]["id"]]}
    second = await harness.plan(objective_id, [build], name="House")
    for plan in (first, second):
        await harness.call("plans/update", id=plan["id"], status="skipped")
    failed = await harness.get(objective_id)
    assert (failed["status"], failed["reason"]) == (
        "failed",
        "All its plans are skipped; add another plan.",
    )


async def test_what_waits_for_a_skipped_step_is_not_said_to_wait_for_a_failed_plan(
    harness: PlanningHarness,
) -> None:
    async def work(_turn: Any) -> str:
        raise RuntimeError("no spade")

    harness.workers["main"].work = work
    objective_id = await harness.objective()
    first = await harness.plan(objective_id, [{"name": "dig"}], name="Ground")
    build = {"name": "build", "dependencies": [first["tasks"][0]["id"]]}
    await harness.plan(objective_id, [build], name="House")
    await harness.plan(objective_id, [{"name": "plant"}], name="Garden")
    await harness.call("plans/update", id=first["id"], status="skipped")
    await harness.call("objectives/run", id=objective_id)
    failed = await harness.ends(objective_id, "failed")
    assert failed["reason"] == (
        "The plan 'Garden' failed at the step 'plant'. "
        "Run the objective again to retry what failed, or add another plan. "
        "The plan 'House' waits for the step 'dig' of the plan 'Ground', which is skipped. "
        "Change the dependencies of its step 'build', or skip the plan 'House'."
    )


async def test_an_objective_says_that_a_plan_has_no_steps(harness: PlanningHarness) -> None:
    objective_id = await harness.objective()
    await harness.plan(objective_id, [{"name": "dig"}])
    empty = await harness.plan(objective_id, [], name="Later")
    await harness.call("objectives/run", id=objective_id)
    stuck = await harness.ends(objective_id, "blocked")
    assert stuck["reason"] == "The plan 'Later' has no steps; add steps to it, or skip it."
    await harness.call("plans/addTasks", id=empty["id"], tasks=[{"name": "more"}])
    ended = await harness.ends(objective_id)
    assert ended["progress"]["done"] == 2


async def test_steps_of_a_failed_plan_announce_no_retry(harness: PlanningHarness) -> None:
    async def work(turn: Any) -> str:
        raise RuntimeError("no")

    harness.workers["main"].work = work
    objective_id = await harness.objective()
    retried = {"name": "a", "metadata": {"retries": 5, "backoffSeconds": 3600}}
    await harness.plan(objective_id, [retried, {"name": "b"}])
    await harness.call("objectives/run", id=objective_id)
    failed = await harness.ends(objective_id, "failed")
    assert "retrying" not in failed["progress"]


async def test_a_failed_message_step_in_a_plan_that_is_not_run_is_not_retried(
    harness: PlanningHarness,
) -> None:
    async def work(_turn: Any) -> str:
        raise RuntimeError("never")

    harness.workers["main"].work = work
    await harness.reopen({"opt.retries": 2})
    place = {"opt/v1/objective": {"id": "obj-1"}, "opt/v1/plan": {"name": "p"}}
    await harness.call("SendMessage", message=message("try", messageId="m", metadata=place))
    ended = await harness.ends("obj-1", "failed")
    assert task_of(ended, "try")["status"] == "failed"
    assert len(harness.workers["main"].turns) == 1


async def test_a_step_whose_question_is_cancelled_fails_its_plan(harness: PlanningHarness) -> None:
    async def work(_turn: Any) -> Any:
        return asks("really?")

    harness.workers["main"].work = work
    objective_id = await harness.objective()
    await harness.plan(objective_id, [{"name": "a"}])
    await harness.call("objectives/run", id=objective_id)
    waiting = await harness.ends(objective_id, "blocked")
    await harness.call("CancelTask", id=task_of(waiting, "a")["a2aTaskId"])
    ended = await harness.ends(objective_id, "failed")
    assert task_of(ended, "a")["status"] == "canceled"


# -------------------------------------------------------------------- running, twice and after


async def test_running_an_objective_twice_executes_each_step_once(harness: PlanningHarness) -> None:
    objective_id = await harness.objective()
    plan = await harness.plan(objective_id, [{"name": str(number)} for number in range(6)])
    asked = [harness.call("objectives/run", id=objective_id) for _ in range(5)]
    asked.append(harness.call("plans/run", id=plan["id"]))
    await asyncio.gather(*asked)
    await harness.ends(objective_id)
    assert sorted(harness.workers["main"].asked) == [str(number) for number in range(6)]


@pytest.mark.parametrize("status", ["completed", "canceled"])
async def test_a_closed_objective_is_not_run(harness: PlanningHarness, status: str) -> None:
    objective_id = await harness.objective()
    plan = await harness.plan(objective_id, [{"name": "a"}])
    await harness.call("objectives/update", id=objective_id, status="working")
    await harness.call("objectives/update", id=objective_id, status=status)
    before = await harness.get(objective_id)
    for method, wanted in (("objectives/run", objective_id), ("plans/run", plan["id"])):
        error = await harness.fail(method, id=wanted)
        assert error["code"] == NOT_ALLOWED
        assert "over" in error["message"]
    assert await harness.get(objective_id) == before
    await harness.reopen()
    assert await harness.get(objective_id) == before
    assert harness.workers["main"].turns == []


@pytest.mark.requirement("opt.bad.walls", "opt.message.own-id")
async def test_objects_of_other_callers_are_not_found(harness: PlanningHarness) -> None:
    await harness.reopen(peers("alice", "bob"))

    async def ask(name: str, method: str, params: Json) -> Json:
        client = harness.client.with_headers(authorization=f"Bearer {token_of(name)}")
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return (await client.post("/a2a/jsonrpc", json.dumps(body).encode())).json

    made = await ask("alice", "objectives/create", {"name": "hers"})
    hers = made["result"]["objective"]["id"]
    plan = {"objectiveId": hers, "name": "p", "tasks": [{"name": "a"}]}
    plan_id = (await ask("alice", "plans/create", plan))["result"]["plan"]["id"]
    for method in ("get", "update", "replan", "delete", "run", "pause", "resume", "subscribe"):
        assert (await ask("bob", f"objectives/{method}", {"id": hers}))["error"][
            "code"
        ] == NOT_FOUND
    for method in ("get", "update", "run", "pause", "resume"):
        assert (await ask("bob", f"plans/{method}", {"id": plan_id}))["error"]["code"] == NOT_FOUND
    assert (await ask("bob", "objectives/list", {}))["result"]["totalSize"] == 0
    into = {"opt/v1/objective": {"id": hers}, "opt/v1/plan": {"id": plan_id}}
    sent = await ask("bob", "SendMessage", {"message": message("x", messageId="m", metadata=into)})
    assert sent["result"]["task"]["contextId"] != hers
    kept = await ask("alice", "plans/get", {"id": plan_id})
    assert kept["result"]["plan"]["objectiveId"] == hers
    assert len(kept["result"]["plan"]["tasks"]) == 1
    assert (await ask("alice", "plans/run", {"id": plan_id}))["result"]["plan"]["id"] == plan_id


# -------------------------------------------------------------------- deleting


@pytest.mark.requirement("opt.method.delete-running", "opt.method.delete", "opt.run.cancel")
async def test_an_objective_with_running_steps_is_deleted_only_with_cancel(
    harness: PlanningHarness,
) -> None:
    gated(harness)
    objective_id = await harness.objective()
    plan = await harness.plan(
        objective_id, [{"name": "long"}, {"name": "b", "dependencies": ["task-0"]}]
    )
    await harness.call("objectives/run", id=objective_id)
    shown = await is_working(harness, objective_id, "long")
    task_id = task_of(shown, "long")["a2aTaskId"]
    error = await harness.fail("objectives/delete", id=objective_id)
    assert (error["code"], task_id in str(error["data"])) == (NOT_ALLOWED, True)
    done = await harness.call("objectives/delete", id=objective_id, cancel=True)
    assert done == {"deleted": True}
    task = await harness.call("GetTask", id=task_id)
    assert task["status"]["state"] == "TASK_STATE_CANCELED"
    for method, wanted in (("objectives/get", objective_id), ("plans/get", plan["id"])):
        assert (await harness.fail(method, id=wanted))["code"] == NOT_FOUND
    assert (await harness.fail("objectives/delete", id=objective_id))["code"] == NOT_FOUND
    assert harness.workers["main"].asked == ["long"]
    await harness.reopen()
    assert (await harness.call("objectives/list"))["totalSize"] == 0


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 13, 21, 34, 55])
async def test_cancel_answers_when_every_step_has_stopped(
    harness: PlanningHarness, turns: int
) -> None:
    active = 0

    async def work(_turn: Any) -> str:
        nonlocal active
        active += 1
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # it takes a moment to stop
            active -= 1
        return "never"

    harness.workers["main"].work = work
    objective_id = await harness.objective()
    await harness.plan(objective_id, [{"name": f"step {one}"} for one in range(6)])
    await harness.call("objectives/run", id=objective_id)
    for _ in range(turns):
        await asyncio.sleep(0)  # any moment in the start of the steps
    canceled = await harness.call("objectives/update", id=objective_id, status="canceled")
    assert active == 0
    statuses = {one["status"] for one in canceled["objective"]["plans"][0]["tasks"]}
    assert statuses == {"canceled"}
    assert "TASK_STATE_WORKING" not in await states_in(harness, objective_id)
    assert canceled["objective"] == await harness.get(objective_id)
    assert (canceled["objective"]["progress"]["total"]) == 6


async def test_a_step_that_does_not_stop_is_named_by_the_canceled_objective(
    harness: PlanningHarness,
) -> None:
    may_stop = asyncio.Event()

    async def work(_turn: Any) -> str:
        while not may_stop.is_set():
            try:
                await may_stop.wait()
            except asyncio.CancelledError:
                continue
        return "done"

    harness.workers["main"].work = work
    objective_id = await harness.objective()
    await harness.plan(objective_id, [{"name": "stubborn"}])
    await harness.call("objectives/run", id=objective_id)
    await is_working(harness, objective_id, "stubborn")
    answer = await harness.call("objectives/update", id=objective_id, status="canceled")
    may_stop.set()
    assert task_of(answer["objective"], "stubborn")["status"] == "working"
    assert answer["objective"]["reason"] == "The step 'stubborn' has not stopped yet."
    ended = await harness.until(
        objective_id, lambda one: task_of(one, "stubborn")["status"] != "working"
    )
    assert "reason" not in ended


async def test_a_plan_that_is_skipped_leaves_no_question_open(harness: PlanningHarness) -> None:
    async def work(turn: Any) -> Any:
        return asks("which one?") if first_line(turn) == "choose" else "done"

    harness.workers["main"].work = work
    objective_id = await harness.objective()
    plan = await harness.plan(objective_id, [{"name": "choose"}])
    await harness.plan(objective_id, [{"name": "other"}])
    await harness.call("objectives/run", id=objective_id)
    await harness.ends(objective_id, "blocked")
    skipped = (await harness.call("plans/update", id=plan["id"], status="skipped"))["plan"]
    assert (skipped["status"], skipped["tasks"][0]["status"]) == ("skipped", "canceled")
    assert "TASK_STATE_INPUT_REQUIRED" not in await states_in(harness, objective_id)
    assert (await harness.get(objective_id))["status"] == "completed"


@pytest.mark.parametrize("kind", ["objectives", "plans"])
async def test_nothing_is_completed_by_hand_while_its_steps_run(
    harness: PlanningHarness, kind: str
) -> None:
    gate = gated(harness)
    objective_id = await harness.objective()
    plan = await harness.plan(objective_id, [{"name": "long"}])
    await harness.call("objectives/run", id=objective_id)
    await is_working(harness, objective_id, "long")
    item_id = objective_id if kind == "objectives" else plan["id"]
    error = await harness.fail(f"{kind}/update", id=item_id, status="completed")
    assert error["code"] == NOT_ALLOWED
    assert "a task of it is running" in error["message"]
    gate.go.set()
    await harness.ends(objective_id)


@pytest.mark.parametrize("state", ["working", "input-required"])
async def test_a_step_is_not_completed_by_hand_while_its_task_runs(
    harness: PlanningHarness, state: str
) -> None:
    gated(harness)

    async def ask(_turn: Any) -> Any:
        return asks("which one?")

    if state == "input-required":
        harness.workers["main"].work = ask
    objective_id = await harness.objective()
    plan = await harness.plan(objective_id, [{"name": "long"}])
    await harness.call("objectives/run", id=objective_id)
    shown = await harness.until(objective_id, lambda one: task_of(one, "long")["status"] == state)
    step = task_of(shown, "long")
    edit = {"id": step["id"], "status": "completed"}
    for more in ({}, {"status": "completed"}):
        error = await harness.fail("plans/update", id=plan["id"], tasks=[edit], **more)
        assert error["code"] == NOT_ALLOWED
        assert f"its task {step['a2aTaskId']} is running" in error["message"]
    assert await harness.get(objective_id) == shown
    await harness.call("CancelTask", id=step["a2aTaskId"])
    await harness.ends(objective_id, "failed")


@pytest.mark.parametrize("state", ["working", "input-required"])
@pytest.mark.parametrize("status", ["failed", "canceled"])
async def test_a_step_that_is_ended_by_hand_leaves_no_task_running(
    harness: PlanningHarness, state: str, status: str
) -> None:
    is_stopped = asyncio.Event()

    async def work(_turn: Any) -> Any:
        if state == "input-required":
            return asks("which one?")
        try:
            await asyncio.Event().wait()
        finally:
            is_stopped.set()

    harness.workers["main"].work = work
    objective_id = await harness.objective()
    plan = await harness.plan(objective_id, [{"name": "long", "metadata": {"retries": 3}}])
    await harness.call("objectives/run", id=objective_id)
    shown = await harness.until(objective_id, lambda one: task_of(one, "long")["status"] == state)
    step = task_of(shown, "long")
    edit = {"id": step["id"], "status": status}
    answer = await harness.call("plans/update", id=plan["id"], tasks=[edit])
    assert answer["plan"]["tasks"][0]["status"] == status
    assert is_stopped.is_set() or state == "input-required"
    stopped = await harness.call("GetTask", id=step["a2aTaskId"])
    assert stopped["status"]["state"] == "TASK_STATE_CANCELED"
    ended = await harness.ends(objective_id, "failed")
    assert task_of(ended, "long")["status"] == status


async def test_a_running_task_is_not_linked_as_completed(harness: PlanningHarness) -> None:
    gate = gated(harness)
    configuration = {"returnImmediately": True}
    asked = message("go", messageId="m-1")
    sent = await harness.call("SendMessage", message=asked, configuration=configuration)
    objective_id = await harness.objective()
    plan = await harness.plan(objective_id, [{"name": "by hand"}])
    link = {"id": plan["tasks"][0]["id"], "a2aTaskId": sent["task"]["id"], "status": "completed"}
    error = await harness.fail("plans/update", id=plan["id"], tasks=[link])
    assert error["code"] == NOT_ALLOWED
    assert f"its task {sent['task']['id']} is running" in error["message"]
    assert (await harness.get(objective_id))["plans"][0] == plan
    gate.go.set()
    await harness.until_task(
        sent["task"]["id"], lambda one: one["status"]["state"] == "TASK_STATE_COMPLETED"
    )
    await harness.call("plans/update", id=plan["id"], tasks=[link])
    await harness.ends(objective_id)


@pytest.mark.parametrize("retries", [0, 3])
async def test_deleting_starts_no_step_while_it_cancels_running_ones(
    harness: PlanningHarness, retries: int
) -> None:
    gated(harness)
    await harness.reopen({"opt.parallel": 1, "opt.retries": retries, "opt.backoffSeconds": 0})
    objective_id = await harness.objective()
    for name in ("a", "b", "c"):
        await harness.plan(objective_id, [{"name": name}])
    await harness.call("objectives/run", id=objective_id)
    await is_working(harness, objective_id, "a")
    await harness.call("objectives/delete", id=objective_id, cancel=True)
    listed = await harness.call("ListTasks", contextId=objective_id)
    assert {task["status"]["state"] for task in listed["tasks"]} == {"TASK_STATE_CANCELED"}
    assert harness.workers["main"].asked == ["a"]


async def test_an_objective_can_be_deleted_while_it_is_followed(harness: PlanningHarness) -> None:
    objective_id = await harness.objective()
    async with watching(harness, objective_id) as watcher:
        await watcher.next()
        await harness.call("objectives/delete", id=objective_id)
        assert await watcher.ended()


# -------------------------------------------------------------------- planners


async def test_running_an_objective_again_asks_the_planner_again(
    harness: PlanningHarness,
) -> None:
    await harness.reopen({"opt.planner": "helper"})
    answers = ["no", "no", "no", '{"plans": [{"name": "p", "tasks": [{"name": "step"}]}]}']

    async def plan(_turn: Any) -> str:
        return answers[len(harness.workers["helper"].turns) - 1]

    harness.workers["helper"].work = plan
    objective_id = await harness.objective(metadata={"own": 1})
    await harness.call("objectives/run", id=objective_id)
    blocked = await harness.ends(objective_id, "blocked")
    assert len(harness.workers["helper"].turns) == 2
    assert "JSON" in blocked["metadata"]["opt/v1/blockedReason"]
    await harness.reopen({"opt.planner": "helper"})
    assert (await harness.get(objective_id)) == blocked
    await harness.call("objectives/run", id=objective_id)
    ended = await harness.ends(objective_id)
    assert len(harness.workers["helper"].turns) == 4
    assert ended["metadata"] == {"own": 1}
    assert harness.workers["main"].asked == ["step"]


@pytest.mark.parametrize("how", ["cancel", "delete"])
async def test_a_planner_is_stopped_with_its_objective(harness: PlanningHarness, how: str) -> None:
    await harness.reopen({"opt.planner": "main"})
    gate = gated(harness)
    objective_id = await harness.objective()
    await harness.call("objectives/run", id=objective_id)
    await gate.begun.wait()
    if how == "cancel":
        await harness.call("objectives/update", id=objective_id, status="canceled")
    else:
        await harness.call("objectives/delete", id=objective_id, cancel=True)
    with anyio.fail_after(TIMEOUT_S):
        while True:
            if await states_in(harness, objective_id) == ["TASK_STATE_CANCELED"]:
                break
            await asyncio.sleep(0.005)  # what had just begun is stopped a moment later
    await harness.reopen({"opt.planner": "main"})
    assert len(harness.workers["main"].turns) == 1


@pytest.mark.requirement("opt.planner.bad-answer")
async def test_a_planner_that_fails_each_time_leaves_the_objective_blocked_with_its_reason(
    harness: PlanningHarness,
) -> None:
    await harness.reopen({"opt.planner": "helper"})

    async def work(_turn: Any) -> str:
        raise RuntimeError("the model is away")

    harness.workers["helper"].work = work
    objective_id = await harness.objective()
    await harness.call("objectives/update", id=objective_id, status="working")
    await harness.call("objectives/run", id=objective_id)
    blocked = await harness.ends(objective_id, "blocked")
    assert "model is away" in blocked["metadata"]["opt/v1/blockedReason"]
    assert len(harness.workers["helper"].turns) == 2
