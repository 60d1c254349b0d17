"""Messages with objective metadata: what they create, join and answer."""

from typing import Any

import pytest
from tests.planning.gateway_harness import PlanningHarness, asks, first_line

Json = Any
NOT_FOUND, NOT_ALLOWED, BAD_DEPENDENCY, BAD_PARAMS = -32050, -32051, -32053, -32602


def message(text: str = "hello", **metadata: Json) -> Json:
    """A message whose metadata has these keys of the extension."""
    keys = {f"opt/v1/{name}": value for name, value in metadata.items()}
    return {"role": "ROLE_USER", "parts": [{"text": text}], "metadata": keys}


async def send(harness: PlanningHarness, text: str = "hello", **metadata: Json) -> Json:
    """The task that such a message starts."""
    return (await harness.call("SendMessage", message=message(text, **metadata)))["task"]


async def names(harness: PlanningHarness) -> list[str]:
    """What all objectives are called, the newest first."""
    listed = await harness.call("objectives/list", pageSize=100)
    return [one["name"] for one in listed["objectives"]]


# -------------------------------------------------------------------- the objective of a message


@pytest.mark.requirement("opt.message.known-objective", "opt.storage.session")
async def test_a_message_runs_inside_the_objective_it_names_and_changes_nothing_of_it(
    harness: PlanningHarness,
) -> None:
    objective_id = await harness.objective("Party")
    before = await harness.get(objective_id)
    given = {"id": objective_id, "name": "Gala", "status": "working", "metadata": {"a": 1}}
    task = await send(harness, objective=given)
    assert task["contextId"] == objective_id
    assert task["metadata"] == {"opt/v1/objectiveId": objective_id}
    [turn] = harness.workers["main"].turns
    assert turn.session_key == f"agent:main:a2a:obj:{objective_id}"
    assert await harness.get(objective_id) == before
    assert await names(harness) == ["Party"]


@pytest.mark.requirement("opt.message.new-objective", "opt.message.own-id", "opt.key.context")
async def test_an_objective_that_is_not_there_is_made_with_the_id_it_was_given(
    harness: PlanningHarness,
) -> None:
    given = {"id": "obj-tea-4-2", "name": "Tea", "description": "at five", "metadata": {"a": 1}}
    task = await send(harness, objective=given)
    assert task["contextId"] == "obj-tea-4-2"
    made = await harness.get("obj-tea-4-2")
    assert {key: made[key] for key in given} == given
    assert (made["status"], made["plans"]) == ("submitted", [])


@pytest.mark.requirement("opt.message.new-objective", "opt.message.own-id")
@pytest.mark.parametrize(
    "wanted",
    [
        *(None, "", 7, "obj-", "party", "plan-1", "obj-A", "obj-a_b", "obj-a--b", "obj-../x"),
        "obj-" + "x" * 61,
    ],
)
async def test_an_objective_without_an_id_that_can_be_kept_gets_one(
    harness: PlanningHarness, wanted: Json
) -> None:
    task = await send(harness, objective={"id": wanted, "name": "Tea"})
    assert task["contextId"].startswith("obj-")
    assert task["contextId"] != wanted
    assert (await harness.get(task["contextId"]))["name"] == "Tea"
    assert await names(harness) == ["Tea"]


@pytest.mark.requirement("opt.message.prefer", "opt.key.hints")
async def test_a_message_that_prefers_an_objective_gets_one_with_the_suggested_name(
    harness: PlanningHarness,
) -> None:
    task = await send(harness, "a party", preferObjective=True, suggestedName="Garden party")
    made = await harness.get(task["contextId"])
    assert (made["name"], made["status"]) == ("Garden party", "submitted")


TEXTS = [
    "short",
    "x" * 81,
    "Organise a garden party for twenty guests, with cake, music, lanterns and games. Soon",
    "four words of eight letters each, and then a blank at the very end of eighty... so",
]


@pytest.mark.requirement("opt.message.prefer")
@pytest.mark.parametrize("suggested", [None, "", "  ", 7])
@pytest.mark.parametrize("text", TEXTS)
async def test_without_a_suggestion_the_name_is_the_first_eighty_characters(
    harness: PlanningHarness, text: str, suggested: Json
) -> None:
    task = await send(harness, text, preferObjective=True, suggestedName=suggested)
    assert (await harness.get(task["contextId"]))["name"] == text[:80]


@pytest.mark.requirement("opt.message.prefer", "opt.key.hints")
async def test_an_objective_that_is_named_after_a_text_of_many_lines_is_one_line(
    harness: PlanningHarness,
) -> None:
    task = await send(harness, "\n a party\nfor\ttwenty", preferObjective=True)
    assert (await harness.get(task["contextId"]))["name"] == "a party for twenty"


@pytest.mark.requirement("opt.key.hints")
@pytest.mark.parametrize("hint", [False, None, "true", 1, {}, []])
async def test_a_hint_that_is_not_true_makes_nothing(harness: PlanningHarness, hint: Json) -> None:
    wanted = message(preferObjective=hint, suggestedName="Party")
    answer = await harness.call("SendMessage", message=wanted)
    assert "message" in answer
    assert await names(harness) == []


# -------------------------------------------------------------------- the plan of a message


@pytest.mark.requirement(
    "opt.message.plan", "opt.message.linked", "opt.key.task", "opt.key.no-dependencies"
)
@pytest.mark.parametrize("plan", [{"name": "Venue"}, {"id": "plan-7", "name": "Venue"}])
async def test_a_message_in_a_new_plan_is_a_step_that_is_linked(
    harness: PlanningHarness, plan: Json
) -> None:
    task = await send(harness, "book it", objective={"name": "Party"}, plan=plan)
    ended = await harness.ends(task["contextId"])
    [made] = ended["plans"]
    [step] = made["tasks"]
    assert (made["name"], made["id"]) == ("Venue", plan.get("id", made["id"]))
    assert task["metadata"] == {
        "opt/v1/objectiveId": ended["id"],
        "opt/v1/planId": made["id"],
        "opt/v1/taskIndex": 0,
    }
    assert (step["name"], step["a2aTaskId"], step["status"]) == ("book it", task["id"], "completed")


@pytest.mark.requirement("opt.message.plan", "opt.key.task")
async def test_a_message_in_a_plan_that_is_there_is_its_next_step(
    harness: PlanningHarness,
) -> None:
    objective_id = await harness.objective()
    plan = await harness.plan(objective_id, [{"name": "first"}])
    given = {"id": plan["id"], "name": "other", "status": "completed"}
    task = await send(harness, "second", objective={"id": objective_id}, plan=given)
    assert task["metadata"]["opt/v1/taskIndex"] == 1
    [after] = (await harness.get(objective_id))["plans"]
    assert (after["id"], after["name"]) == (plan["id"], plan["name"])
    assert [one["name"] for one in after["tasks"]] == ["first", "second"]


@pytest.mark.requirement("opt.message.plan", "opt.message.own-id")
@pytest.mark.parametrize("wanted", ["plan-A", "obj-1", "plan-", "venue", 7])
async def test_a_plan_without_an_id_that_can_be_kept_gets_one(
    harness: PlanningHarness, wanted: Json
) -> None:
    task = await send(harness, objective={"name": "x"}, plan={"id": wanted, "name": "Venue"})
    [plan] = (await harness.get(task["contextId"]))["plans"]
    assert plan["id"].startswith("plan-")
    assert plan["id"] != wanted


@pytest.mark.requirement("opt.message.plan")
async def test_the_plan_of_another_objective_is_not_taken_from_it(
    harness: PlanningHarness,
) -> None:
    plan = await harness.plan(await harness.objective("mine"), [{"name": "a"}])
    task = await send(harness, objective={"name": "new"}, plan={"id": plan["id"], "name": "Q"})
    [own] = (await harness.get(task["contextId"]))["plans"]
    assert (own["id"] != plan["id"], own["name"]) == (True, "Q")
    kept = (await harness.call("plans/get", id=plan["id"]))["plan"]
    assert kept == plan


@pytest.mark.requirement("opt.message.plan-alone")
async def test_a_plan_that_is_there_is_enough_to_name_its_objective(
    harness: PlanningHarness,
) -> None:
    objective_id = await harness.objective()
    plan = await harness.plan(objective_id, [{"name": "first"}])
    task = await send(harness, "second", plan={"id": plan["id"]})
    assert task["contextId"] == objective_id
    assert task["metadata"]["opt/v1/planId"] == plan["id"]
    assert len(await names(harness)) == 1


@pytest.mark.requirement("opt.message.plan-alone")
async def test_a_new_plan_may_name_its_objective_itself(harness: PlanningHarness) -> None:
    objective_id = await harness.objective()
    given = {"name": "Venue", "objectiveId": objective_id}
    task = await send(harness, plan=given)
    assert task["contextId"] == objective_id
    assert [one["name"] for one in (await harness.get(objective_id))["plans"]] == ["Venue"]


@pytest.mark.requirement("opt.message.plan-alone")
@pytest.mark.parametrize("plan", [{"name": "x"}, {"id": "plan-1"}, {"objectiveId": "obj-nobody"}])
async def test_a_plan_without_an_objective_is_rejected(
    harness: PlanningHarness, plan: Json
) -> None:
    error = await harness.fail("SendMessage", message=message(plan=plan))
    assert error["code"] in (BAD_PARAMS, NOT_FOUND)
    assert harness.workers["main"].turns == []


@pytest.mark.requirement("opt.message.partial-plan")
async def test_a_new_plan_waits_for_the_plans_that_the_message_names(
    harness: PlanningHarness,
) -> None:
    objective_id = await harness.objective()
    first = await harness.plan(objective_id, [{"name": "a"}])
    given = {"name": "Hotel", "dependencies": [first["id"]], "tasks": [{"name": "book"}]}
    await send(harness, "look", objective={"id": objective_id}, plan=given)
    hotel = (await harness.get(objective_id))["plans"][1]
    assert (hotel["dependencies"], hotel["status"]) == ([first["id"]], "blocked")
    assert [one["name"] for one in hotel["tasks"]] == ["book", "look"]


# -------------------------------------------------------------------- what is wrong with one


WRONG: list[tuple[Json, int]] = [
    ({"objective": "obj-1"}, BAD_PARAMS),
    ({"objective": []}, BAD_PARAMS),
    ({"objective": {"name": "x", "metadata": 7}}, BAD_PARAMS),
    ({"objective": {"name": "x" * 1001}}, BAD_PARAMS),
    ({"objective": {"name": "x"}, "plan": "plan-1"}, BAD_PARAMS),
    ({"objective": {"name": "x"}, "plan": {"name": "p", "description": 7}}, BAD_PARAMS),
    ({"objective": {"name": "x"}, "plan": {"name": "p", "tasks": [{}]}}, BAD_PARAMS),
    ({"objective": {"name": "x"}, "plan": {"dependencies": ["plan-0"]}}, BAD_DEPENDENCY),
    ({"preferObjective": True, "plan": 7}, BAD_PARAMS),
    ({"preferObjective": True, "taskId": "task-nobody"}, BAD_PARAMS),
    ({"objective": {"name": "x"}, "taskId": "task-nobody"}, BAD_PARAMS),
    ({"taskId": "task-nobody"}, BAD_PARAMS),
]


@pytest.mark.requirement("opt.message.refused-whole")
@pytest.mark.parametrize(("metadata", "code"), WRONG)
async def test_a_rejected_message_creates_nothing(
    harness: PlanningHarness, metadata: Json, code: int
) -> None:
    error = await harness.fail("SendMessage", message=message(**metadata))
    assert error["code"] == code
    assert await names(harness) == []
    assert harness.workers["main"].turns == []
    assert (await harness.call("ListTasks"))["totalSize"] == 0


# -------------------------------------------------------------------- answers


async def waiting(harness: PlanningHarness, **metadata: Json) -> Json:
    """A task of an objective that waits for an answer."""

    async def work(turn: Any) -> Any:
        return asks("where?") if first_line(turn) == "book" else f"booked {turn.body}"

    harness.workers["main"].work = work
    task = await send(harness, "book", **metadata)
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    return task


def answer_in(context_id: str, text: str, task_id: str) -> Json:
    return {**message(text, taskId=task_id), "contextId": context_id}


@pytest.mark.requirement("opt.message.answer", "opt.key.answer")
@pytest.mark.parametrize("by", ["a2aTaskId", "id"])
async def test_a_step_that_waits_is_answered_by_either_of_its_ids(
    harness: PlanningHarness, by: str
) -> None:
    task = await waiting(harness, objective={"name": "Trip"}, plan={"name": "Hotel"})
    shown = await harness.ends(task["contextId"], "blocked")
    step = shown["plans"][0]["tasks"][0]
    assert step["status"] == "input-required"
    answer = answer_in(shown["id"], "by the sea", step[by])
    done = (await harness.call("SendMessage", message=answer))["task"]
    assert (done["id"], done["status"]["state"]) == (task["id"], "TASK_STATE_COMPLETED")
    await harness.ends(shown["id"])
    assert harness.workers["main"].asked == ["book", "by the sea"]


@pytest.mark.requirement("opt.message.answer", "opt.key.answer")
async def test_a_task_about_an_objective_that_waits_is_answered_by_its_id(
    harness: PlanningHarness,
) -> None:
    task = await waiting(harness, objective={"name": "Trip"})
    answer = answer_in(task["contextId"], "by the sea", task["id"])
    done = (await harness.call("SendMessage", message=answer))["task"]
    assert (done["id"], done["status"]["state"]) == (task["id"], "TASK_STATE_COMPLETED")
    assert harness.workers["main"].asked == ["book", "by the sea"]


@pytest.mark.requirement("opt.message.answer")
async def test_a_task_of_another_objective_is_not_answered_here(harness: PlanningHarness) -> None:
    task = await waiting(harness, objective={"name": "Trip"})
    other = await harness.objective("other")
    error = await harness.fail("SendMessage", message=answer_in(other, "yes", task["id"]))
    assert (error["code"], task["id"] in error["message"]) == (NOT_FOUND, True)
    assert harness.workers["main"].asked == ["book"]


@pytest.mark.requirement("opt.message.answer")
async def test_an_answer_to_a_step_that_has_not_started_is_rejected(
    harness: PlanningHarness,
) -> None:
    objective_id = await harness.objective()
    plan = await harness.plan(objective_id, [{"name": "later"}])
    step = plan["tasks"][0]["id"]
    error = await harness.fail("SendMessage", message=answer_in(objective_id, "yes", step))
    assert error["code"] == BAD_PARAMS
    assert "has not started" in error["message"]
    assert harness.workers["main"].turns == []


@pytest.mark.requirement("opt.message.again")
async def test_a_message_again_finds_its_objective_its_plan_and_its_task(
    harness: PlanningHarness,
) -> None:
    given = {"name": "Hotel", "tasks": [{"name": "compare"}]}
    wanted = {**message("book", preferObjective=True, plan=given), "messageId": "m-1"}
    first = (await harness.call("SendMessage", message=wanted))["task"]
    done = await harness.until(
        first["contextId"], lambda one: one["plans"][0]["tasks"][1]["status"] == "completed"
    )
    await harness.reopen()
    again = (await harness.call("SendMessage", message=wanted))["task"]
    assert again["id"] == first["id"]
    assert await harness.get(first["contextId"]) == done
    assert len(await names(harness)) == 1
    assert harness.workers["main"].asked == ["book"]


@pytest.mark.requirement("opt.message.refused-whole")
async def test_a_message_to_an_ended_plan_is_rejected_and_the_plan_unchanged(
    harness: PlanningHarness,
) -> None:
    task = await send(harness, objective={"name": "x"}, plan={"id": "plan-1"})
    ended = await harness.ends(task["contextId"])
    for given in ({"id": "plan-1"}, {"id": "plan-2"}):
        wanted = message(objective={"id": ended["id"]}, plan=given)
        assert (await harness.fail("SendMessage", message=wanted))["code"] == NOT_ALLOWED
    assert (await harness.call("plans/get", id="plan-1"))["plan"] == ended["plans"][0]
    assert (await harness.fail("plans/get", id="plan-2"))["code"] == NOT_FOUND
    assert await harness.get(ended["id"]) == ended


@pytest.mark.requirement("opt.message.known-objective", "opt.key.context")
async def test_the_context_of_a_message_is_that_of_its_objective_whatever_it_says(
    harness: PlanningHarness,
) -> None:
    objective_id = await harness.objective()
    wanted = {**message(objective={"id": objective_id}), "contextId": "somewhere else"}
    task = (await harness.call("SendMessage", message=wanted))["task"]
    assert task["contextId"] == objective_id
    inside = {**message(), "contextId": objective_id, "metadata": {}}
    task = (await harness.call("SendMessage", message=inside))["task"]
    assert task["metadata"] == {"opt/v1/objectiveId": objective_id}
