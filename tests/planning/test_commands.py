"""Every row of the method table: what is asked, what comes back, what is written."""

import json

import pytest
from inline_snapshot import snapshot
from tests.planning.checked_objective import CheckedObjective

from openclaw_a2a.model.errors import StatusChangeNotAllowed


@pytest.mark.requirement("opt.object.objective", "opt.method.create")
def test_an_objective_is_created_submitted_and_without_plans() -> None:
    desk = CheckedObjective()
    created = desk.call("objectives/create", name="Party", metadata={"guests": 20})
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
    assert [json.loads(line) for line in desk.journal] == snapshot(
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
def test_a_plan_is_created_as_in_the_contract_s_example(desk: CheckedObjective) -> None:
    plan = desk.call(
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
    assert [operation.data.op for operation in desk.last] == [
        "plan.create",
        "task.create",
        "task.create",
        "objective.update",
    ]


@pytest.mark.requirement("opt.method.plan-begins")
def test_a_submitted_objective_with_a_plan_is_planning(desk: CheckedObjective) -> None:
    desk.call("plans/create", objectiveId="obj-n1", name="Venue")
    assert desk.statuses == {"Party": "planning", "Venue": "pending"}


@pytest.mark.requirement("opt.method.plan-waits")
def test_a_plan_whose_dependencies_are_not_done_is_blocked(desk: CheckedObjective) -> None:
    first = desk.call("plans/create", objectiveId="obj-n1", name="Flight")["plan"]
    hotel = desk.call(
        "plans/create", objectiveId="obj-n1", name="Hotel", dependencies=[first["id"]] * 2
    )["plan"]
    assert (hotel["status"], hotel["dependencies"]) == ("blocked", [first["id"]])


@pytest.mark.requirement("opt.method.plan-waits")
def test_a_plan_whose_dependencies_are_done_is_pending(desk: CheckedObjective) -> None:
    first = desk.call("plans/create", objectiveId="obj-n1", name="Flight")["plan"]
    desk.call("plans/update", id=first["id"], status="skipped")
    hotel = desk.call(
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
    desk: CheckedObjective, flags: dict[str, bool], has_plans: bool, has_tasks: bool
) -> None:
    desk.call("plans/create", objectiveId="obj-n1", name="Venue", tasks=[{"name": "List"}])
    shown = desk.call("objectives/get", id="obj-n1", **flags)["objective"]
    assert ("plans" in shown) == has_plans
    assert ("tasks" in shown.get("plans", [{}])[0]) == has_tasks


@pytest.mark.requirement("opt.method.plan-get")
def test_a_plan_is_shown_without_its_tasks_when_that_is_asked(desk: CheckedObjective) -> None:
    desk.call("plans/create", objectiveId="obj-n1", name="Venue", tasks=[{"name": "List"}])
    assert len(desk.call("plans/get", id="plan-n2")["plan"]["tasks"]) == 1
    assert "tasks" not in desk.call("plans/get", id="plan-n2", includeTasks=False)["plan"]


@pytest.mark.requirement("opt.method.update")
def test_an_objective_is_updated_member_by_member(desk: CheckedObjective) -> None:
    before = desk.objective
    desk.tick()
    desk.call("objectives/update", id="obj-n1", name="Gala", metadata={"a": 1})
    after = desk.call("objectives/update", id="obj-n1", description="x")["objective"]
    assert (after["name"], after["description"], after["metadata"]) == ("Gala", "x", {"a": 1})
    assert (after["id"], after["createdAt"]) == (before["id"], before["createdAt"])
    assert after["status"] == "submitted"


def test_metadata_of_an_update_takes_the_place_of_the_old(desk: CheckedObjective) -> None:
    desk.call("objectives/update", id="obj-n1", metadata={"a": 1})
    after = desk.call("objectives/update", id="obj-n1", metadata={"b": 2})["objective"]
    assert after["metadata"] == {"b": 2}


@pytest.mark.requirement("opt.method.younger")
def test_an_update_makes_younger_even_when_the_clock_stands_and_nothing_changes(
    desk: CheckedObjective,
) -> None:
    seen = [desk.objective["updatedAt"]]
    for _ in range(3):
        seen.append(desk.call("objectives/update", id="obj-n1")["objective"]["updatedAt"])
    assert seen == [f"2026-01-05T10:00:00.00{ms}Z" for ms in range(4)]


@pytest.mark.requirement("opt.method.younger")
def test_an_update_makes_younger_even_when_the_clock_goes_back(desk: CheckedObjective) -> None:
    desk.tick(-3_600_000)
    after = desk.call("objectives/update", id="obj-n1")["objective"]
    assert after["updatedAt"] == "2026-01-05T10:00:00.001Z"


@pytest.mark.requirement("opt.method.replan", "opt.method.replan-way")
def test_replan_blocks_what_works_and_leaves_what_waits_its_turn(desk: CheckedObjective) -> None:
    desk.call("plans/create", objectiveId="obj-n1", name="Venue", tasks=[{"name": "List"}])
    desk.call("plans/create", objectiveId="obj-n1", name="Food", tasks=[{"name": "Cook"}])
    desk.start("List")
    assert desk.statuses["Party"] == "working"
    desk.call("objectives/replan", id="obj-n1")
    assert desk.statuses == {
        "Party": "planning",
        "Venue": "blocked",
        "List": "submitted",
        "Food": "pending",
        "Cook": "pending",
    }
    statuses = [o.data.status.value for o in desk.last if o.data.op == "objective.update"]
    assert statuses == ["blocked", "planning"]


@pytest.mark.requirement("opt.method.replan")
@pytest.mark.parametrize("status", ["submitted", "planning", "blocked", "failed"])
def test_replan_leads_to_planning_from_every_status_that_is_not_the_end(
    desk: CheckedObjective, status: str
) -> None:
    ways = {
        "submitted": [],
        "planning": ["planning"],
        "blocked": ["planning", "blocked"],
        "failed": ["planning", "failed"],
    }
    for step in ways[status]:
        desk.call("objectives/update", id="obj-n1", status=step)
    assert desk.call("objectives/replan", id="obj-n1")["objective"]["status"] == "planning"


@pytest.mark.requirement("opt.method.replan-over")
@pytest.mark.parametrize("status", ["completed", "canceled"])
def test_replan_from_the_end_is_refused(desk: CheckedObjective, status: str) -> None:
    desk.call("objectives/update", id="obj-n1", status="working")
    desk.call("objectives/update", id="obj-n1", status=status)
    with pytest.raises(StatusChangeNotAllowed, match=f"{status} and cannot become planning"):
        desk.call("objectives/replan", id="obj-n1")


@pytest.mark.requirement("opt.method.plan-update")
def test_a_plan_is_updated_member_by_member(desk: CheckedObjective) -> None:
    desk.call("plans/create", objectiveId="obj-n1", name="Venue", tasks=[{"name": "List"}])
    plan = desk.call(
        "plans/update", id="plan-n2", name="Place", description="x", metadata={"agent": "b"}
    )["plan"]
    assert (plan["name"], plan["description"]) == ("Place", "x")
    assert (plan["metadata"], plan["status"]) == ({"agent": "b"}, "pending")


@pytest.mark.requirement("opt.method.task-update")
def test_listed_tasks_change_and_others_stay(desk: CheckedObjective) -> None:
    tasks = [{"name": "A"}, {"name": "B", "metadata": {"agent": "x"}}, {"name": "C"}]
    desk.call("plans/create", objectiveId="obj-n1", name="Venue", tasks=tasks)
    untouched = desk.task("B")
    desk.call(
        "plans/update",
        id="plan-n2",
        tasks=[
            {"id": desk.task("C")["id"], "dependencies": [untouched["id"], "task-1"]},
            {"id": desk.task("A")["id"], "name": "A2", "a2aTaskId": "t-1", "metadata": {"k": 1}},
        ],
    )
    assert desk.task("B") == untouched
    assert desk.task("C")["dependencies"] == [untouched["id"], desk.task("A2")["id"]]
    assert desk.task("A2")["status"] == "submitted"
    assert desk.task("A2")["a2aTaskId"] == "t-1"
    assert desk.task("A2")["metadata"] == {"k": 1}
    assert desk.statuses["Venue"] == "working"


@pytest.mark.requirement("opt.method.add-tasks", "opt.method.entries")
def test_added_tasks_come_last_and_indexes_continue(desk: CheckedObjective) -> None:
    desk.call("plans/create", objectiveId="obj-n1", name="Venue", tasks=[{"name": "A"}])
    plan = desk.call(
        "plans/addTasks",
        id="plan-n2",
        tasks=[{"name": "B", "dependencies": ["task-1"]}, {"name": "C"}],
    )["plan"]
    assert [(task["name"], task["taskIndex"]) for task in plan["tasks"]] == [
        ("A", 0),
        ("B", 1),
        ("C", 2),
    ]
    assert desk.task("B")["dependencies"] == [desk.task("C")["id"]]


def test_a_task_may_depend_on_one_of_another_plan_of_its_objective(desk: CheckedObjective) -> None:
    desk.call("plans/create", objectiveId="obj-n1", name="One", tasks=[{"name": "A"}])
    needed = desk.task("A")["id"]
    desk.call(
        "plans/create",
        objectiveId="obj-n1",
        name="Two",
        tasks=[{"name": "B", "dependencies": [needed, needed]}],
    )
    assert desk.task("B")["dependencies"] == [needed]


def test_an_objective_that_rests_can_be_deleted(desk: CheckedObjective) -> None:
    assert desk.call("objectives/delete", id="obj-n1") == {"deleted": True}


@pytest.mark.requirement("opt.method.delete-running")
def test_tasks_that_run_are_in_the_way_of_deletion_unless_they_are_to_be_canceled(
    desk: CheckedObjective,
) -> None:
    desk.call("plans/create", objectiveId="obj-n1", name="P", tasks=[{"name": "A"}, {"name": "B"}])
    desk.start("A")
    with pytest.raises(StatusChangeNotAllowed, match="cancel: true") as caught:
        desk.call("objectives/delete", id="obj-n1")
    assert caught.value.details["running"] == ["a2a-A"]
    assert desk.call("objectives/delete", id="obj-n1", cancel=True) == {"deleted": True}


@pytest.mark.requirement("opt.storage.archive")
def test_a_completed_objective_is_archived_whoever_completes_it(desk: CheckedObjective) -> None:
    desk.call("objectives/update", id="obj-n1", status="working")
    desk.call("objectives/update", id="obj-n1", status="completed")
    assert desk.last[-1].data.op == "archive"
    assert desk.state.is_archived
    desk.call("objectives/update", id="obj-n1", name="Done", status="completed")
    assert [operation.data.op for operation in desk.last] == ["objective.update"]
