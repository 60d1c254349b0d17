"""Every error of the contract: its code, the object it names, and that nothing changed."""

import json

import pytest
from tests.planning.checked_objective import OBJECTIVES, PLANS, CheckedObjective

from openclaw_a2a.model.errors import (
    DependencyNotValid,
    GatewayError,
    PlanItemNotFound,
    PlanLimitExceeded,
    StatusChangeNotAllowed,
)
from openclaw_a2a.planning.model import PlanLimits
from openclaw_a2a.protocol.errors import rest_error, rpc_error
from openclaw_a2a.protocol.versions import ProtocolVersion


def error_json(error: GatewayError) -> dict:
    return json.loads(rpc_error(error, ProtocolVersion.V03))


def refused(
    checked: CheckedObjective, kind: type[GatewayError], method: str, **params: object
) -> GatewayError:
    before = checked.objective
    with pytest.raises(kind) as caught:
        checked.call(method, **params)
    assert checked.objective == before
    return caught.value


def with_plan(checked: CheckedObjective, *names: str, **members: object) -> str:
    tasks = [{"name": name} for name in names]
    made = checked.call("plans/create", objectiveId="obj-n1", name="P", tasks=tasks, **members)
    return made["plan"]["id"]


@pytest.mark.requirement("opt.error.legacy")
@pytest.mark.parametrize(
    ("kind", "code", "legacy", "status"),
    [
        (PlanItemNotFound, -32050, -32000, 404),
        (StatusChangeNotAllowed, -32051, -32001, 409),
        (PlanLimitExceeded, -32052, None, 413),
        (DependencyNotValid, -32053, None, 400),
    ],
)
def test_each_error_has_the_code_of_the_contract_and_of_its_older_draft(
    kind: type[GatewayError], code: int, legacy: int | None, status: int
) -> None:
    error = kind("What happened.", details={"id": "x"})
    for wire in ProtocolVersion:
        assert json.loads(rpc_error(error, wire))["code"] == code
    assert error_json(error)["data"].get("legacyCode") == legacy
    metadata = json.loads(rpc_error(error, ProtocolVersion.V1))["data"][0]["metadata"]
    assert metadata.get("legacyCode") == (None if legacy is None else str(legacy))
    assert rest_error(error)[0] == status


@pytest.mark.requirement("opt.error.not-found")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("plans/get", {}),
        ("plans/update", {"name": "x"}),
        ("plans/addTasks", {"tasks": [{"name": "x"}]}),
    ],
)
def test_an_unknown_plan_is_named(checked: CheckedObjective, method: str, params: dict) -> None:
    error = refused(checked, PlanItemNotFound, method, id="plan-zzz", **params)
    assert "plan plan-zzz" in error.message
    assert error_json(error)["data"] == {"legacyCode": -32000, "kind": "plan", "id": "plan-zzz"}


@pytest.mark.requirement("opt.method.task-update-whole")
def test_a_task_of_another_plan_is_not_found_in_this_one(checked: CheckedObjective) -> None:
    first, second = with_plan(checked, "A"), with_plan(checked, "B")
    other = checked.task("B")["id"]
    edits = [{"id": checked.task("A")["id"], "name": "A2"}, {"id": other, "name": "B2"}]
    error = refused(checked, PlanItemNotFound, "plans/update", id=first, tasks=edits)
    assert error.details == {"kind": "task", "id": other}
    assert first != second


OBJECTIVE_WAYS = {
    "submitted": [],
    "planning": ["planning"],
    "working": ["working"],
    "blocked": ["working", "blocked"],
    "completed": ["working", "completed"],
    "failed": ["working", "failed"],
    "canceled": ["canceled"],
}


@pytest.mark.requirement(
    "opt.object.objective-changes",
    "opt.object.same-status",
    "opt.error.status",
    "opt.method.update",
)
@pytest.mark.parametrize("new", OBJECTIVES)
@pytest.mark.parametrize("old", OBJECTIVES)
def test_an_objective_changes_along_its_table_only(
    checked: CheckedObjective, old: str, new: str
) -> None:
    for step in OBJECTIVE_WAYS[old]:
        checked.call("objectives/update", id="obj-n1", status=step)
    if old == new or new in OBJECTIVES[old].split():
        updated = checked.call("objectives/update", id="obj-n1", status=new)
        assert updated["objective"]["status"] == new
        return
    error = refused(checked, StatusChangeNotAllowed, "objectives/update", id="obj-n1", status=new)
    assert old in error.message
    assert new in error.message
    data = error_json(error)["data"]
    assert (data["legacyCode"], data["from"], data["to"]) == (-32001, old, new)


PLAN_WAYS = {
    "pending": [],
    "working": ["working"],
    "blocked": ["blocked"],
    "completed": ["working", "completed"],
    "failed": ["working", "failed"],
    "skipped": ["skipped"],
}


@pytest.mark.requirement(
    "opt.object.plan-changes",
    "opt.object.same-status",
    "opt.error.status",
    "opt.method.plan-update",
)
@pytest.mark.parametrize("new", PLANS)
@pytest.mark.parametrize("old", PLANS)
def test_a_plan_changes_along_its_table_only(checked: CheckedObjective, old: str, new: str) -> None:
    with_plan(checked)  # keeps the objective open
    plan_id = with_plan(checked)
    for step in PLAN_WAYS[old]:
        checked.call("plans/update", id=plan_id, status=step)
    if old == new or new in PLANS[old].split():
        assert checked.call("plans/update", id=plan_id, status=new)["plan"]["status"] == new
        return
    error = refused(checked, StatusChangeNotAllowed, "plans/update", id=plan_id, status=new)
    assert f"is {old} and cannot become {new}" in error.message


@pytest.mark.requirement("opt.rollup.plan-waits")
@pytest.mark.parametrize("status", ["working", "pending"])
def test_a_plan_that_waits_for_another_cannot_start(checked: CheckedObjective, status: str) -> None:
    first = with_plan(checked)
    second = with_plan(checked, dependencies=[first])
    error = refused(checked, StatusChangeNotAllowed, "plans/update", id=second, status=status)
    assert first in error.message


@pytest.mark.parametrize(
    ("old", "new", "is_allowed"),
    [
        ("pending", "completed", True),
        ("working", "failed", True),
        ("working", "pending", False),
        ("completed", "working", False),
        ("completed", "pending", False),
        ("failed", "completed", False),
        ("failed", "pending", True),
    ],
)
def test_a_plan_task_leaves_a_final_status_only_for_a_retry(
    checked: CheckedObjective, old: str, new: str, is_allowed: bool
) -> None:
    plan_id = with_plan(checked, "A", "B")
    task_id = checked.task("A")["id"]
    checked.call("plans/update", id=plan_id, tasks=[{"id": task_id, "status": old}])
    edits = [{"id": task_id, "status": new}]
    if is_allowed:
        checked.call("plans/update", id=plan_id, tasks=edits)
        assert checked.task("A")["status"] == new
    else:
        refused(checked, StatusChangeNotAllowed, "plans/update", id=plan_id, tasks=edits)


def test_a_task_that_is_pending_again_has_no_a2a_task_any_more(checked: CheckedObjective) -> None:
    plan_id = with_plan(checked, "A", "B")
    checked.start("A")
    checked.report("A", "failed")
    checked.call(
        "plans/update", id=plan_id, tasks=[{"id": checked.task("A")["id"], "status": "pending"}]
    )
    assert "a2aTaskId" not in checked.task("A")
    assert checked.statuses["P"] == "pending"


@pytest.mark.parametrize("status", ["completed", "canceled"])
def test_nothing_is_added_to_a_closed_objective(checked: CheckedObjective, status: str) -> None:
    plan_id = with_plan(checked, "A")
    checked.call("objectives/update", id="obj-n1", status="working")
    checked.call("objectives/update", id="obj-n1", status=status)
    edits = [{"id": checked.task("A")["id"], "a2aTaskId": "t"}]
    refused(checked, StatusChangeNotAllowed, "plans/create", objectiveId="obj-n1", name="Q")
    refused(checked, StatusChangeNotAllowed, "plans/addTasks", id=plan_id, tasks=[{"name": "B"}])
    refused(checked, StatusChangeNotAllowed, "plans/update", id=plan_id, tasks=edits)
    with pytest.raises(StatusChangeNotAllowed):
        checked.start("A")
    if status == "completed":
        refused(checked, StatusChangeNotAllowed, "plans/update", id=plan_id, status="working")


@pytest.mark.parametrize("status", ["completed", "skipped"])
def test_a_plan_that_is_done_takes_no_tasks(checked: CheckedObjective, status: str) -> None:
    with_plan(checked)
    plan_id = with_plan(checked)
    if status == "completed":
        checked.call("plans/update", id=plan_id, status="working")
    checked.call("plans/update", id=plan_id, status=status)
    refused(checked, StatusChangeNotAllowed, "plans/addTasks", id=plan_id, tasks=[{"name": "B"}])


@pytest.mark.requirement("opt.error.limit")
def test_the_eleventh_plan_is_rejected(checked: CheckedObjective) -> None:
    for _ in range(10):
        with_plan(checked)
    error = refused(checked, PlanLimitExceeded, "plans/create", objectiveId="obj-n1", name="Q")
    setting = "opt.maxPlansPerObjective"
    assert error.details == {"limit": "maxPlansPerObjective", "most": 10, "setting": setting}


@pytest.mark.requirement("opt.error.limit")
def test_the_fifty_first_task_is_rejected(checked: CheckedObjective) -> None:
    entries = [{"name": f"T{number}"} for number in range(51)]
    refused(
        checked, PlanLimitExceeded, "plans/create", objectiveId="obj-n1", name="Q", tasks=entries
    )
    made = checked.call("plans/create", objectiveId="obj-n1", name="Q", tasks=entries[:50])
    error = refused(
        checked, PlanLimitExceeded, "plans/addTasks", id=made["plan"]["id"], tasks=entries[:1]
    )
    setting = "opt.maxTasksPerPlan"
    assert error.details == {"limit": "maxTasksPerPlan", "most": 50, "setting": setting}


def test_limits_can_be_set() -> None:
    checked = CheckedObjective(PlanLimits(max_plans_per_objective=1, max_tasks_per_plan=1))
    checked.call("objectives/create", name="Party")
    with_plan(checked, "A")
    refused(checked, PlanLimitExceeded, "plans/create", objectiveId="obj-n1", name="Q")


@pytest.mark.requirement("opt.error.dependency")
@pytest.mark.parametrize("needed", ["plan-zzz", "obj-n1", "task-0"])
def test_an_unknown_plan_cannot_be_depended_on(checked: CheckedObjective, needed: str) -> None:
    error = refused(
        checked,
        DependencyNotValid,
        "plans/create",
        objectiveId="obj-n1",
        name="Q",
        dependencies=[needed],
    )
    assert error.details == {"kind": "plan", "dependency": needed}


@pytest.mark.requirement("opt.error.dependency", "opt.method.entries-range")
@pytest.mark.parametrize(
    "needed", ["task-2", "task-99999999999999999999", "task-of-another-objective", "plan-n2", " "]
)
def test_an_unknown_task_cannot_be_depended_on(checked: CheckedObjective, needed: str) -> None:
    plan_id = with_plan(checked, "A")
    entries = [{"name": "B"}, {"name": "C", "dependencies": [needed]}]
    error = refused(checked, DependencyNotValid, "plans/addTasks", id=plan_id, tasks=entries)
    assert needed in error.message


@pytest.mark.requirement("opt.error.dependency", "opt.bad.circles")
@pytest.mark.parametrize(
    "dependencies",
    [
        [["task-0"]],
        [["task-1"], ["task-0"]],
        [["task-1"], ["task-2"], ["task-0"]],
        [[], ["task-2"], ["task-1"]],
    ],
)
def test_tasks_cannot_depend_on_each_other_in_a_cycle(
    checked: CheckedObjective, dependencies: list[list[str]]
) -> None:
    entries = [
        {"name": f"T{number}", "dependencies": needed} for number, needed in enumerate(dependencies)
    ]
    error = refused(
        checked, DependencyNotValid, "plans/create", objectiveId="obj-n1", name="Q", tasks=entries
    )
    assert "circle" in error.message
    assert error.details["circle"][0] == error.details["circle"][-1]


def test_an_edit_cannot_close_a_cycle(checked: CheckedObjective) -> None:
    plan_id = with_plan(checked, "A", "B")
    a, b = checked.task("A")["id"], checked.task("B")["id"]
    checked.call("plans/update", id=plan_id, tasks=[{"id": b, "dependencies": [a]}])
    edits = [{"id": a, "dependencies": [b], "name": "A2"}]
    refused(checked, DependencyNotValid, "plans/update", id=plan_id, tasks=edits)


def test_an_edit_may_turn_dependencies_round(checked: CheckedObjective) -> None:
    plan_id = with_plan(checked, "A", "B")
    a, b = checked.task("A")["id"], checked.task("B")["id"]
    checked.call("plans/update", id=plan_id, tasks=[{"id": b, "dependencies": [a]}])
    edits = [{"id": a, "dependencies": [b]}, {"id": b, "dependencies": []}]
    checked.call("plans/update", id=plan_id, tasks=edits)
    assert checked.task("A")["dependencies"] == [b]


@pytest.mark.requirement("opt.bad.circles")
def test_a_cycle_through_plans_and_tasks_together_is_rejected(checked: CheckedObjective) -> None:
    first = with_plan(checked, "A")
    with_plan(checked, "B", dependencies=[first])
    entries = [{"name": "C", "dependencies": [checked.task("B")["id"]]}]
    refused(checked, DependencyNotValid, "plans/addTasks", id=first, tasks=entries)


def test_plans_whose_tasks_depend_on_each_other_are_valid_without_a_cycle(
    checked: CheckedObjective,
) -> None:
    first, second = with_plan(checked, "A1", "A2"), with_plan(checked, "B1", "B2")
    a1, b1 = checked.task("A1")["id"], checked.task("B1")["id"]
    edits = [{"id": checked.task("B2")["id"], "dependencies": [a1]}]
    checked.call("plans/update", id=second, tasks=edits)
    edits = [{"id": checked.task("A2")["id"], "dependencies": [b1]}]
    checked.call("plans/update", id=first, tasks=edits)


def test_fifty_tasks_in_a_row_are_not_a_cycle(checked: CheckedObjective) -> None:
    entries = [
        {"name": f"T{number}", "dependencies": [f"task-{number + 1}"] if number < 49 else []}
        for number in range(50)
    ]
    checked.call("plans/create", objectiveId="obj-n1", name="Q", tasks=entries)
