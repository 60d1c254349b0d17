"""Every method of the contract: its request, its result, and the operations it writes."""

import json

import pytest
from inline_snapshot import snapshot
from tests.planning.checked_objective import CheckedObjective

from openclaw_a2a.model.errors import StatusChangeNotAllowed


@pytest.mark.requirement("opt.object.objective", "opt.method.create")
def test_an_objective_is_created_submitted_and_without_plans() -> None:
    checked = CheckedObjective()
    created = checked.call("objectives/create", name="Party", metadata={"guests": 20})
    assert created == snapshot(
        {
            "objective": {
                "id": "obj-n1",
                "name": "Party",
                "status": "submitted",
                "metadata": {"guests": 20},
                "createdAt": "2026-01-05T10:00:00.000Z",
                "updatedAt": "2026-01-05T10:00:00.000Z",
                "plans": [],
            }
        }
    )
    assert [json.loads(line) for line in checked.log] == snapshot(
        [
            {
                "v": 1,
                "seq": 1,
                "ts": "2026-01-05T10:00:00.000Z",
                "op": "objective.create",
                "data": {"id": "obj-n1", "name": "Party", "metadata": {"guests": 20}},
            }
        ]
    )


def test_a_description_is_shown_when_there_is_one() -> None:
    created = CheckedObjective().call(
        "objectives/create", name="Party", description="In the garden"
    )
    assert created["objective"]["description"] == "In the garden"


@pytest.mark.requirement(
    "opt.object.plan", "opt.object.task", "opt.method.plan-create", "opt.method.entries"
)
def test_a_plan_is_created_as_in_the_contract_s_example(checked: CheckedObjective) -> None:
    plan = checked.call(
        "plans/create",
        objectiveId="obj-n1",
        name="Venue",
        tasks=[{"name": "List venues"}, {"name": "Book one", "dependencies": ["task-0"]}],
    )
    assert plan == snapshot(
        {
            "plan": {
                "id": "plan-n2",
                "objectiveId": "obj-n1",
                "name": "Venue",
                "status": "pending",
                "dependencies": [],
                "metadata": {},
                "createdAt": "2026-01-05T10:00:00.001Z",
                "updatedAt": "2026-01-05T10:00:00.001Z",
                "tasks": [
                    {
                        "id": "task-n3",
                        "planId": "plan-n2",
                        "objectiveId": "obj-n1",
                        "name": "List venues",
                        "taskIndex": 0,
                        "dependencies": [],
                        "status": "pending",
                        "metadata": {},
                    },
                    {
                        "id": "task-n4",
                        "planId": "plan-n2",
                        "objectiveId": "obj-n1",
                        "name": "Book one",
                        "taskIndex": 1,
                        "dependencies": ["task-n3"],
                        "status": "pending",
                        "metadata": {},
                    },
                ],
            }
        }
    )
    assert [operation.data.op for operation in checked.last] == [
        "plan.create",
        "task.create",
        "task.create",
        "objective.update",
    ]


@pytest.mark.requirement("opt.method.plan-begins")
def test_a_submitted_objective_with_a_plan_is_planning(checked: CheckedObjective) -> None:
    checked.call("plans/create", objectiveId="obj-n1", name="Venue")
    assert checked.statuses == {"Party": "planning", "Venue": "pending"}


@pytest.mark.requirement("opt.method.plan-waits")
def test_a_plan_whose_dependencies_are_not_done_is_blocked(checked: CheckedObjective) -> None:
    first = checked.call("plans/create", objectiveId="obj-n1", name="Flight")["plan"]
    hotel = checked.call(
        "plans/create", objectiveId="obj-n1", name="Hotel", dependencies=[first["id"]] * 2
    )["plan"]
    assert (hotel["status"], hotel["dependencies"]) == ("blocked", [first["id"]])


@pytest.mark.requirement("opt.method.plan-waits")
def test_a_plan_whose_dependencies_are_done_is_pending(checked: CheckedObjective) -> None:
    first = checked.call("plans/create", objectiveId="obj-n1", name="Flight")["plan"]
    checked.call("plans/update", id=first["id"], status="skipped")
    hotel = checked.call(
        "plans/create", objectiveId="obj-n1", name="Hotel", dependencies=[first["id"]]
    )["plan"]
    assert hotel["status"] == "pending"


@pytest.mark.requirement("opt.method.get")
@pytest.mark.parametrize(
    ("flags", "has_plans", "has_tasks"),
    [
        ({}, True, True),
        ({"includeTasks": False}, True, False),
        ({"includePlans": False}, False, False),
        ({"includePlans": False, "includeTasks": True}, False, False),
    ],
)
def test_an_objective_is_shown_as_deep_as_is_asked(
    checked: CheckedObjective, flags: dict[str, bool], has_plans: bool, has_tasks: bool
) -> None:
    checked.call("plans/create", objectiveId="obj-n1", name="Venue", tasks=[{"name": "List"}])
    shown = checked.call("objectives/get", id="obj-n1", **flags)["objective"]
    assert ("plans" in shown) == has_plans
    assert ("tasks" in shown.get("plans", [{}])[0]) == has_tasks


@pytest.mark.requirement("opt.method.plan-get")
def test_a_plan_is_shown_without_its_tasks_when_that_is_asked(checked: CheckedObjective) -> None:
    checked.call("plans/create", objectiveId="obj-n1", name="Venue", tasks=[{"name": "List"}])
    assert len(checked.call("plans/get", id="plan-n2")["plan"]["tasks"]) == 1
    assert "tasks" not in checked.call("plans/get", id="plan-n2", includeTasks=False)["plan"]


@pytest.mark.requirement("opt.method.update")
def test_an_objective_is_updated_member_by_member(checked: CheckedObjective) -> None:
    before = checked.objective
    checked.tick()
    checked.call("objectives/update", id="obj-n1", name="Gala", metadata={"a": 1})
    after = checked.call("objectives/update", id="obj-n1", description="x")["objective"]
    assert (after["name"], after["description"], after["metadata"]) == ("Gala", "x", {"a": 1})
    assert (after["id"], after["createdAt"]) == (before["id"], before["createdAt"])
    assert after["status"] == "submitted"


def test_metadata_of_an_update_takes_the_place_of_the_old(checked: CheckedObjective) -> None:
    checked.call("objectives/update", id="obj-n1", metadata={"a": 1})
    after = checked.call("objectives/update", id="obj-n1", metadata={"b": 2})["objective"]
    assert after["metadata"] == {"b": 2}


@pytest.mark.requirement("opt.method.younger")
def test_an_update_advances_updated_at_even_when_the_clock_stands_and_nothing_changes(
    checked: CheckedObjective,
) -> None:
    seen = [checked.objective["updatedAt"]]
    for _ in range(3):
        seen.append(checked.call("objectives/update", id="obj-n1")["objective"]["updatedAt"])
    assert seen == [f"2026-01-05T10:00:00.00{ms}Z" for ms in range(4)]


@pytest.mark.requirement("opt.method.younger")
def test_an_update_advances_updated_at_even_when_the_clock_goes_back(
    checked: CheckedObjective,
) -> None:
    checked.tick(-3_600_000)
    after = checked.call("objectives/update", id="obj-n1")["objective"]
    assert after["updatedAt"] == "2026-01-05T10:00:00.001Z"


@pytest.mark.requirement("opt.method.replan", "opt.method.replan-way")
def test_replan_blocks_what_works_and_leaves_what_waits_its_turn(checked: CheckedObjective) -> None:
    checked.call("plans/create", objectiveId="obj-n1", name="Venue", tasks=[{"name": "List"}])
    checked.call("plans/create", objectiveId="obj-n1", name="Food", tasks=[{"name": "Cook"}])
    checked.start("List")
    assert checked.statuses["Party"] == "working"
    checked.call("objectives/replan", id="obj-n1")
    assert checked.statuses == {
        "Party": "planning",
        "Venue": "blocked",
        "List": "submitted",
        "Food": "pending",
        "Cook": "pending",
    }
    statuses = [o.data.status.value for o in checked.last if o.data.op == "objective.update"]
    assert statuses == ["blocked", "planning"]


@pytest.mark.requirement("opt.method.replan")
@pytest.mark.parametrize("status", ["submitted", "planning", "blocked", "failed"])
def test_replan_leads_to_planning_from_every_status_that_is_not_the_end(
    checked: CheckedObjective, status: str
) -> None:
    ways = {
        "submitted": [],
        "planning": ["planning"],
        "blocked": ["planning", "blocked"],
        "failed": ["planning", "failed"],
    }
    for step in ways[status]:
        checked.call("objectives/update", id="obj-n1", status=step)
    assert checked.call("objectives/replan", id="obj-n1")["objective"]["status"] == "planning"


@pytest.mark.requirement("opt.method.replan-over")
@pytest.mark.parametrize("status", ["completed", "canceled"])
def test_replan_of_a_closed_objective_is_rejected(checked: CheckedObjective, status: str) -> None:
    checked.call("objectives/update", id="obj-n1", status="working")
    checked.call("objectives/update", id="obj-n1", status=status)
    with pytest.raises(StatusChangeNotAllowed, match=f"{status} and cannot become planning"):
        checked.call("objectives/replan", id="obj-n1")


@pytest.mark.requirement("opt.method.plan-update")
def test_a_plan_is_updated_member_by_member(checked: CheckedObjective) -> None:
    checked.call("plans/create", objectiveId="obj-n1", name="Venue", tasks=[{"name": "List"}])
    plan = checked.call(
        "plans/update", id="plan-n2", name="Place", description="x", metadata={"agent": "b"}
    )["plan"]
    assert (plan["name"], plan["description"]) == ("Place", "x")
    assert (plan["metadata"], plan["status"]) == ({"agent": "b"}, "pending")


@pytest.mark.requirement("opt.method.task-update")
def test_listed_tasks_change_and_others_stay(checked: CheckedObjective) -> None:
    tasks = [{"name": "A"}, {"name": "B", "metadata": {"agent": "x"}}, {"name": "C"}]
    checked.call("plans/create", objectiveId="obj-n1", name="Venue", tasks=tasks)
    untouched = checked.task("B")
    checked.call(
        "plans/update",
        id="plan-n2",
        tasks=[
            {"id": checked.task("C")["id"], "dependencies": [untouched["id"], "task-1"]},
            {"id": checked.task("A")["id"], "name": "A2", "a2aTaskId": "t-1", "metadata": {"k": 1}},
        ],
    )
    assert checked.task("B") == untouched
    assert checked.task("C")["dependencies"] == [untouched["id"], checked.task("A2")["id"]]
    assert checked.task("A2")["status"] == "submitted"
    assert checked.task("A2")["a2aTaskId"] == "t-1"
    assert checked.task("A2")["metadata"] == {"k": 1}
    assert checked.statuses["Venue"] == "working"


@pytest.mark.requirement("opt.method.add-tasks", "opt.method.entries")
def test_added_tasks_come_last_and_indexes_continue(checked: CheckedObjective) -> None:
    checked.call("plans/create", objectiveId="obj-n1", name="Venue", tasks=[{"name": "A"}])
    plan = checked.call(
        "plans/addTasks",
        id="plan-n2",
        tasks=[{"name": "B", "dependencies": ["task-1"]}, {"name": "C"}],
    )["plan"]
    assert [(task["name"], task["taskIndex"]) for task in plan["tasks"]] == [
        ("A", 0),
        ("B", 1),
        ("C", 2),
    ]
    assert checked.task("B")["dependencies"] == [checked.task("C")["id"]]


def test_a_task_may_depend_on_one_of_another_plan_of_its_objective(
    checked: CheckedObjective,
) -> None:
    checked.call("plans/create", objectiveId="obj-n1", name="One", tasks=[{"name": "A"}])
    needed = checked.task("A")["id"]
    checked.call(
        "plans/create",
        objectiveId="obj-n1",
        name="Two",
        tasks=[{"name": "B", "dependencies": [needed, needed]}],
    )
    assert checked.task("B")["dependencies"] == [needed]


def test_an_objective_that_rests_can_be_deleted(checked: CheckedObjective) -> None:
    assert checked.call("objectives/delete", id="obj-n1") == {"deleted": True}


@pytest.mark.requirement("opt.method.delete-running")
def test_an_objective_with_running_tasks_is_deleted_only_with_cancel(
    checked: CheckedObjective,
) -> None:
    checked.call(
        "plans/create", objectiveId="obj-n1", name="P", tasks=[{"name": "A"}, {"name": "B"}]
    )
    checked.start("A")
    with pytest.raises(StatusChangeNotAllowed, match="delete it with `cancel`") as caught:
        checked.call("objectives/delete", id="obj-n1")
    assert caught.value.details["running"] == ["a2a-A"]
    assert checked.call("objectives/delete", id="obj-n1", cancel=True) == {"deleted": True}


@pytest.mark.requirement("opt.storage.archive")
def test_a_completed_objective_is_archived_also_when_a_caller_completes_it(
    checked: CheckedObjective,
) -> None:
    checked.call("objectives/update", id="obj-n1", status="working")
    checked.call("objectives/update", id="obj-n1", status="completed")
    assert checked.last[-1].data.op == "archive"
    assert checked.state.is_archived
    checked.call("objectives/update", id="obj-n1", name="Done", status="completed")
    assert [operation.data.op for operation in checked.last] == ["objective.update"]
