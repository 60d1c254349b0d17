"""The roll-up: section 6 of the contract, rule by rule."""

from itertools import pairwise

import pytest
from tests.planning.checked_objective import OBJECTIVES, PLANS, CheckedObjective, as_json

from openclaw_a2a.model.errors import PlanItemNotFound, StatusChangeNotAllowed
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.planning import rollup
from openclaw_a2a.planning.model import (
    ObjectiveStatus,
    PlanStatus,
    PlanTaskId,
    objective_path,
    plan_path,
)
from openclaw_a2a.planning.operations import ObjectiveUpdated
from openclaw_a2a.planning.state import Change
from openclaw_a2a.planning.steps import ready_tasks
from openclaw_a2a.planning.views import progress


def plan(
    checked: CheckedObjective, name: str, *tasks: str | tuple[str, list[str]], needs: str = ""
) -> str:
    """Make a plan; a task with dependencies names them by their names."""
    entries = []
    for task in tasks:
        task_name, needed = (task, []) if isinstance(task, str) else task
        names = [one if isinstance(one, str) else one[0] for one in tasks]
        wanted = [
            f"task-{names.index(one)}" if one in names else checked.task(one)["id"]
            for one in needed
        ]
        entries.append({"name": task_name, "dependencies": wanted})
    dependencies = [checked.plan(one)["id"] for one in needs.split()]
    made = checked.call(
        "plans/create", objectiveId="obj-n1", name=name, tasks=entries, dependencies=dependencies
    )
    return made["plan"]["id"]


def ready(checked: CheckedObjective) -> list[str]:
    return [task.name for task in ready_tasks(checked.state)]


def written(checked: CheckedObjective, op: str) -> list[str]:
    """The statuses that the last change wrote down for operations of one name."""
    return [o.data.status.value for o in checked.last if o.data.op == op and o.data.status]


# ------------------------------------------------------------------ tasks and their plan


@pytest.mark.requirement("opt.rollup.mirror", "opt.rollup.plan-works", "opt.rollup.objective-works")
@pytest.mark.parametrize("state", ["submitted", "working"])
def test_a_plan_works_when_a_task_of_it_does_and_so_does_its_objective(
    checked: CheckedObjective, state: str
) -> None:
    plan(checked, "P", "A", "B")
    checked.start("A")
    checked.report("A", state)
    assert checked.statuses == {"Party": "working", "P": "working", "A": state, "B": "pending"}
    assert checked.task("A")["a2aTaskId"] == "a2a-A"


@pytest.mark.requirement("opt.rollup.plan-blocked", "opt.rollup.plan-resumes")
@pytest.mark.parametrize("state", ["input-required", "auth-required"])
def test_a_plan_is_blocked_while_a_task_waits_and_none_works(
    checked: CheckedObjective, state: str
) -> None:
    plan(checked, "P", "A", "B")
    checked.start("A")
    checked.start("B")
    checked.report("A", state)
    assert checked.statuses["P"] == "working"
    checked.report("B", "completed")
    assert (checked.statuses["P"], checked.statuses["Party"]) == ("blocked", "blocked")
    checked.report("A", "working")
    assert (checked.statuses["P"], checked.statuses["Party"]) == ("working", "working")


def test_a_plan_continues_even_when_the_resumption_of_its_task_was_not_reported(
    checked: CheckedObjective,
) -> None:
    plan(checked, "P", "A", "B")
    checked.start("A")
    checked.report("A", "input-required")
    checked.report("A", "completed")
    assert (checked.statuses["P"], ready(checked)) == ("working", ["B"])


@pytest.mark.requirement("opt.rollup.plan-completed", "opt.storage.archive")
def test_a_plan_is_completed_with_its_last_task_and_so_is_the_objective(
    checked: CheckedObjective,
) -> None:
    plan(checked, "P", "A", "B")
    checked.finish("A")
    assert checked.statuses["P"] == "working"
    checked.finish("B")
    assert (checked.statuses["P"], checked.statuses["Party"]) == ("completed", "completed")
    assert [operation.data.op for operation in checked.last] == [
        "task.update",
        "plan.update",
        "objective.update",
        "archive",
    ]


@pytest.mark.requirement("opt.rollup.way")
def test_a_step_that_the_tables_forbid_leads_through_working(checked: CheckedObjective) -> None:
    plan_id = plan(checked, "P", "A")
    edit = {"id": checked.task("A")["id"], "status": "completed"}
    checked.call("plans/update", id=plan_id, tasks=[edit])
    assert written(checked, "plan.update") == ["working", "completed"]
    assert written(checked, "objective.update") == ["working", "completed"]


@pytest.mark.requirement("opt.rollup.plan-failed", "opt.rollup.mirror")
@pytest.mark.parametrize("end", ["failed", "rejected", "canceled"])
def test_a_plan_fails_with_a_task_that_is_not_retried(checked: CheckedObjective, end: str) -> None:
    plan(checked, "P", "A", "B")
    checked.start("A")
    checked.report("A", end)
    assert checked.statuses == {"Party": "failed", "P": "failed", "A": end, "B": "pending"}
    assert ready(checked) == []


@pytest.mark.requirement("opt.rollup.retry")
def test_a_task_that_will_be_retried_is_pending_and_its_plan_continues(
    checked: CheckedObjective,
) -> None:
    plan(checked, "P", "A", "B")
    checked.start("A", "first")
    checked.report("A", "failed", will_retry=True)
    assert checked.statuses == {"Party": "working", "P": "working", "A": "pending", "B": "pending"}
    assert written(checked, "task.update") == ["failed", "pending"]
    assert "a2aTaskId" not in checked.task("A")
    assert "A" in ready(checked)
    checked.start("A", "second")
    assert checked.state.attempts[PlanTaskId(checked.task("A")["id"])] == 2


def test_the_task_of_an_earlier_try_has_nothing_to_say_any_more(checked: CheckedObjective) -> None:
    plan(checked, "P", "A")
    checked.start("A", "first")
    checked.report("A", "failed", will_retry=True)
    checked.start("A", "second")
    before = checked.state
    change = checked.new_change()
    rollup.report_task(change, TaskId("first"), TaskState.COMPLETED)
    assert (change.operations, change.state) == ([], before)


@pytest.mark.parametrize("end", ["completed", "failed", "canceled", "rejected"])
def test_a_late_report_does_not_bring_a_task_back_from_its_end(
    checked: CheckedObjective, end: str
) -> None:
    plan(checked, "P", "A", "B")
    checked.start("A")
    checked.report("A", end)
    checked.report("A", "working")
    assert checked.last == []
    assert checked.statuses["A"] == end


@pytest.mark.parametrize("state", ["working", "input-required", "completed", "failed"])
def test_the_same_report_twice_is_one(checked: CheckedObjective, state: str) -> None:
    plan(checked, "P", "A", "B")
    checked.start("A")
    checked.report("A", state)
    checked.report("A", state)
    assert checked.last == []


def test_a_state_that_is_none_changes_nothing(checked: CheckedObjective) -> None:
    plan(checked, "P", "A")
    checked.start("A")
    checked.run(rollup.report_task, TaskId("a2a-A"), TaskState.UNSPECIFIED)
    assert checked.last == []


def test_linking_the_same_task_again_changes_nothing(checked: CheckedObjective) -> None:
    plan(checked, "P", "A")
    checked.start("A")
    checked.start("A")
    assert checked.last == []


def test_only_a_known_task_that_is_not_completed_is_linked(checked: CheckedObjective) -> None:
    plan(checked, "P", "A", "B")
    checked.finish("A")
    with pytest.raises(StatusChangeNotAllowed):
        checked.start("A", "other")
    with pytest.raises(PlanItemNotFound):
        checked.run(rollup.link_task, PlanTaskId("task-zzz"), TaskId("t"))


def test_a_plan_without_tasks_does_not_complete_by_itself(checked: CheckedObjective) -> None:
    plan(checked, "P")
    checked.call("objectives/update", id="obj-n1", status="working")
    assert checked.statuses == {"Party": "working", "P": "pending"}


# ------------------------------------------------------------------ plans and their objective


@pytest.mark.requirement("opt.rollup.plan-free")
def test_a_plan_that_waits_becomes_pending_when_the_others_are_done(
    checked: CheckedObjective,
) -> None:
    plan(checked, "Flight", "Fly")
    plan(checked, "Visa", "Ask")
    plan(checked, "Hotel", "Book", needs="Flight Visa")
    checked.finish("Fly")
    assert (checked.statuses["Hotel"], ready(checked)) == ("blocked", ["Ask"])
    checked.call("plans/update", id=checked.plan("Visa")["id"], status="skipped")
    assert (checked.statuses["Hotel"], ready(checked)) == ("pending", ["Book"])


@pytest.mark.requirement("opt.rollup.plan-waits")
def test_a_waiting_plan_stays_blocked_though_its_task_was_started(
    checked: CheckedObjective,
) -> None:
    plan(checked, "Flight", "Fly")
    plan(checked, "Hotel", "Book", needs="Flight")
    checked.finish("Book")
    assert (checked.statuses["Hotel"], checked.statuses["Book"]) == ("blocked", "completed")
    checked.finish("Fly")
    assert checked.statuses["Hotel"] == "completed"
    assert written(checked, "plan.update") == ["completed", "working", "completed"]
    assert checked.statuses["Party"] == "completed"


def test_plans_in_a_row_are_set_free_one_after_the_other(checked: CheckedObjective) -> None:
    for number in range(1, 5):
        plan(checked, f"P{number}", f"T{number}", needs=f"P{number - 1}" if number > 1 else "")
    order = []
    while todo := ready(checked):
        order += todo
        checked.finish(*todo)
    assert order == ["T1", "T2", "T3", "T4"]
    assert checked.statuses["Party"] == "completed"


@pytest.mark.requirement("opt.rollup.objective-completed")
def test_an_objective_is_completed_when_all_plans_that_are_not_skipped_are(
    checked: CheckedObjective,
) -> None:
    plan(checked, "P", "A")
    skipped = plan(checked, "Q", "B")
    checked.finish("A")
    assert checked.statuses["Party"] == "working"
    checked.call("plans/update", id=skipped, status="skipped")
    assert checked.statuses["Party"] == "completed"


@pytest.mark.requirement("opt.rollup.objective-blocked")
def test_an_objective_is_blocked_when_every_open_plan_is(checked: CheckedObjective) -> None:
    plan(checked, "P", "A")
    plan(checked, "Q", "B", needs="P")
    checked.start("A")
    checked.report("A", "input-required")
    assert (checked.statuses["P"], checked.statuses["Q"]) == ("blocked", "blocked")
    assert checked.statuses["Party"] == "blocked"


def test_an_objective_continues_when_one_of_its_plans_can(checked: CheckedObjective) -> None:
    plan(checked, "P", "A")
    checked.start("A")
    checked.report("A", "input-required")
    assert checked.statuses["Party"] == "blocked"
    plan(checked, "Q", "B")
    assert checked.statuses["Party"] == "working"


@pytest.mark.requirement("opt.rollup.objective-failed")
def test_an_objective_fails_with_a_failed_plan_when_nothing_is_open(
    checked: CheckedObjective,
) -> None:
    plan(checked, "P", "A")
    plan(checked, "Q", "B")
    checked.start("A")
    checked.report("A", "failed")
    assert (checked.statuses["P"], checked.statuses["Party"]) == ("failed", "working")
    checked.finish("B")
    assert checked.statuses["Party"] == "failed"


def test_an_objective_fails_when_all_that_is_open_waits_for_a_failed_plan(
    checked: CheckedObjective,
) -> None:
    first = plan(checked, "P", "A")
    plan(checked, "Q", "B", needs="P")
    plan(checked, "R", "C", needs="Q")
    checked.start("A")
    checked.report("A", "failed")
    assert [checked.statuses[one] for one in ("P", "Q", "R")] == ["failed", "blocked", "blocked"]
    assert checked.statuses["Party"] == "failed"
    checked.call("plans/update", id=first, status="pending")
    assert checked.statuses["Party"] == "planning"
    for step in ("A", "B", "C"):
        checked.finish(step)
    assert checked.statuses["Party"] == "completed"


def test_an_objective_fails_when_the_open_tasks_wait_for_a_failed_one_of_another_plan(
    checked: CheckedObjective,
) -> None:
    plan(checked, "P", "A")
    needed = checked.task("A")["id"]
    tasks = [{"name": "B", "dependencies": [needed]}, {"name": "C", "dependencies": ["task-0"]}]
    checked.call("plans/create", objectiveId="obj-n1", name="Q", tasks=tasks)
    checked.start("A")
    checked.report("A", "failed")
    assert (checked.statuses["Q"], checked.statuses["Party"]) == ("blocked", "failed")


def test_an_objective_with_a_failed_plan_is_blocked_while_a_question_can_be_answered(
    checked: CheckedObjective,
) -> None:
    plan(checked, "P", "A")
    plan(checked, "Q", "B", needs="P")
    plan(checked, "R", "C")
    checked.start("A")
    checked.start("C")
    checked.report("C", "input-required")
    checked.report("A", "failed")
    assert checked.statuses["Party"] == "blocked"
    checked.report("C", "completed")
    assert checked.statuses["Party"] == "failed"


def test_an_objective_is_blocked_when_only_a_plan_without_tasks_is_left(
    checked: CheckedObjective,
) -> None:
    plan(checked, "P", "A")
    empty = plan(checked, "Q")
    checked.finish("A")
    assert (checked.statuses["Q"], checked.statuses["Party"]) == ("pending", "blocked")
    checked.call("plans/addTasks", id=empty, tasks=[{"name": "B"}])
    assert checked.statuses["Party"] == "working"
    checked.finish("B")
    assert checked.statuses["Party"] == "completed"


def test_an_objective_is_completed_when_the_plan_without_tasks_is_skipped(
    checked: CheckedObjective,
) -> None:
    plan(checked, "P", "A")
    empty = plan(checked, "Q")
    checked.finish("A")
    checked.call("plans/update", id=empty, status="skipped")
    assert checked.statuses["Party"] == "completed"


def test_a_plan_without_tasks_does_not_hide_that_another_one_failed(
    checked: CheckedObjective,
) -> None:
    plan(checked, "P", "A")
    plan(checked, "Q")
    checked.start("A")
    checked.report("A", "failed")
    assert checked.statuses["Party"] == "failed"


def test_a_failed_plan_that_is_restarted_retries_its_failed_tasks(
    checked: CheckedObjective,
) -> None:
    plan_id = plan(checked, "P", "A", "B", "C")
    checked.finish("A")
    checked.start("B")
    checked.report("B", "failed")
    assert checked.statuses["Party"] == "failed"
    checked.call("plans/update", id=plan_id, status="working")
    assert checked.statuses == {
        "Party": "working",
        "P": "working",
        "A": "completed",
        "B": "pending",
        "C": "pending",
    }
    checked.finish("B", "C")
    assert checked.statuses["Party"] == "completed"


def test_a_new_plan_brings_a_failed_objective_back_to_planning(checked: CheckedObjective) -> None:
    plan(checked, "P", "A")
    checked.start("A")
    checked.report("A", "failed")
    plan(checked, "Q", "B")
    assert checked.statuses["Party"] == "planning"
    assert ready(checked) == ["B"]


# ------------------------------------------------------------------ cancel


@pytest.mark.requirement("opt.rollup.cancel-plans")
def test_canceling_an_objective_ends_everything_below_it(checked: CheckedObjective) -> None:
    plan(checked, "Done", "A")
    plan(checked, "Working", "B", "C")
    plan(checked, "Waiting", "D")
    plan(checked, "Pending", "E")
    plan(checked, "Blocked", "F", needs="Pending")
    checked.finish("A")
    checked.start("B")
    checked.start("D")
    checked.report("D", "input-required")
    checked.call("objectives/update", id="obj-n1", status="canceled", name="Rain")
    assert checked.statuses == {
        "Rain": "canceled",
        "Done": "completed",
        "A": "completed",
        "Working": "failed",
        "B": "submitted",
        "C": "canceled",
        "Waiting": "skipped",
        "D": "input-required",
        "Pending": "skipped",
        "E": "canceled",
        "Blocked": "skipped",
        "F": "canceled",
    }
    assert checked.running == ["a2a-B", "a2a-D"]
    assert checked.last[0].data.op == "objective.update"
    checked.report("B", "canceled")
    assert (checked.statuses["B"], checked.statuses["Working"]) == ("canceled", "failed")
    assert (checked.statuses["Rain"], ready(checked)) == ("canceled", [])


def test_canceling_again_completes_a_cancellation_that_a_crash_interrupted(
    checked: CheckedObjective,
) -> None:
    plan(checked, "P", "A", "B")
    checked.start("A")
    canceled = ObjectiveUpdated(checked.state.id, status=ObjectiveStatus.CANCELED)
    checked.run(Change.record, canceled)
    assert checked.statuses == {
        "Party": "canceled",
        "P": "working",
        "A": "submitted",
        "B": "pending",
    }
    checked.report("A", "working")
    assert checked.statuses["P"] == "working"
    checked.call("objectives/update", id="obj-n1", status="canceled")
    assert checked.statuses == {"Party": "canceled", "P": "failed", "A": "working", "B": "canceled"}
    assert checked.running == ["a2a-A"]


def test_nothing_is_retried_in_a_canceled_objective(checked: CheckedObjective) -> None:
    plan(checked, "P", "A")
    checked.start("A")
    checked.call("objectives/update", id="obj-n1", status="canceled")
    checked.report("A", "failed", will_retry=True)
    assert checked.statuses["A"] == "failed"


# ------------------------------------------------------------------ what a caller chose


def test_a_replanned_objective_is_held_until_it_is_resumed(checked: CheckedObjective) -> None:
    plan(checked, "P", "A", "B")
    plan(checked, "Q", "C")
    checked.start("A")
    checked.call("objectives/replan", id="obj-n1")
    checked.report("A", "completed")
    assert (checked.statuses["Party"], checked.statuses["P"]) == ("planning", "blocked")
    assert ready(checked) == []
    checked.call("objectives/update", id="obj-n1", status="working")
    assert (checked.statuses["Party"], checked.statuses["P"]) == ("working", "working")
    assert ready(checked) == ["B", "C"]


def test_a_replanned_objective_is_not_completed_by_its_running_tasks(
    checked: CheckedObjective,
) -> None:
    plan(checked, "P", "A")
    checked.start("A")
    checked.call("objectives/replan", id="obj-n1")
    checked.report("A", "completed")
    assert checked.statuses == {"Party": "planning", "P": "blocked", "A": "completed"}
    checked.call("objectives/update", id="obj-n1", status="working")
    assert checked.statuses["Party"] == "completed"


def test_work_in_a_new_plan_takes_a_replanned_objective_on(checked: CheckedObjective) -> None:
    plan(checked, "P", "A", "B")
    checked.start("A")
    checked.call("objectives/replan", id="obj-n1")
    plan(checked, "Q", "C")
    checked.start("C")
    assert (checked.statuses["Party"], checked.statuses["P"]) == ("working", "blocked")
    checked.report("C", "completed")
    assert checked.statuses["Party"] == "blocked"
    checked.call("plans/update", id=checked.plan("P")["id"], status="skipped")
    assert (checked.statuses["Party"], checked.running) == ("blocked", ["a2a-A"])
    checked.report("A", "canceled", will_retry=True)
    assert (checked.statuses["Party"], checked.statuses["A"]) == ("completed", "canceled")


def test_a_plan_that_was_blocked_by_hand_stays_blocked(checked: CheckedObjective) -> None:
    plan_id = plan(checked, "P", "A", "B")
    plan(checked, "Q", "C")
    checked.start("A")
    checked.call("plans/update", id=plan_id, status="blocked")
    checked.report("A", "working")
    checked.report("A", "completed")
    assert (checked.statuses["P"], ready(checked)) == ("blocked", ["C"])
    checked.call("plans/update", id=plan_id, status="pending")
    assert ready(checked) == ["B", "C"]


def test_setting_the_same_status_again_does_not_hold_it(checked: CheckedObjective) -> None:
    plan(checked, "P", "A")
    second = plan(checked, "Q", "B", needs="P")
    checked.call("plans/update", id=second, status="blocked")
    checked.finish("A")
    assert checked.statuses["Q"] == "pending"


def test_an_objective_that_was_blocked_by_hand_stays_blocked_though_a_plan_works(
    checked: CheckedObjective,
) -> None:
    plan(checked, "P", "A", "B")
    checked.start("A")
    checked.call("objectives/update", id="obj-n1", status="blocked")
    checked.report("A", "completed")
    assert (checked.statuses["Party"], ready(checked)) == ("blocked", [])
    checked.call("objectives/update", id="obj-n1", status="working")
    assert (checked.statuses["Party"], ready(checked)) == ("working", ["B"])


# ------------------------------------------------------------------ ways along the tables


@pytest.mark.parametrize("new", ObjectiveStatus)
@pytest.mark.parametrize("old", ObjectiveStatus)
def test_an_objective_takes_the_shortest_path_of_the_table(
    old: ObjectiveStatus, new: ObjectiveStatus
) -> None:
    steps = [old.value, *(one.value for one in objective_path(old, new))]
    assert all(after in OBJECTIVES[before].split() for before, after in pairwise(steps))
    if len(steps) > 1:
        assert steps[-1] == new.value
        assert set(steps[1:-1]) <= {"working", "planning"}
    elif old is not new:
        # From an end there is no way; to begin anew is for callers to say.
        assert old in (ObjectiveStatus.COMPLETED, ObjectiveStatus.CANCELED) or new in (
            ObjectiveStatus.SUBMITTED,
            ObjectiveStatus.PLANNING,
        )


@pytest.mark.parametrize("may_work", [True, False])
@pytest.mark.parametrize("new", PlanStatus)
@pytest.mark.parametrize("old", PlanStatus)
def test_a_plan_takes_the_shortest_path_of_the_table(
    old: PlanStatus, new: PlanStatus, may_work: bool
) -> None:
    steps = [old.value, *(one.value for one in plan_path(old, new, may_work=may_work))]
    assert all(after in PLANS[before].split() for before, after in pairwise(steps))
    assert may_work or "working" not in steps[1:-1]


def test_an_objective_that_failed_before_can_still_be_completed() -> None:
    way = objective_path(ObjectiveStatus.FAILED, ObjectiveStatus.COMPLETED)
    assert [one.value for one in way] == ["planning", "working", "completed"]


# ------------------------------------------------------------------ ready, and how far


@pytest.mark.requirement("opt.rollup.ready")
def test_a_task_is_ready_when_what_it_depends_on_is_completed(checked: CheckedObjective) -> None:
    plan(checked, "P", "A", ("B", ["A"]), ("C", ["A"]), ("D", ["B", "C"]))
    assert ready(checked) == ["A"]
    checked.finish("A")
    assert ready(checked) == ["B", "C"]
    checked.finish("B")
    assert ready(checked) == ["C"]
    checked.finish("C")
    assert ready(checked) == ["D"]


@pytest.mark.requirement("opt.run.question")
def test_a_task_that_waits_for_an_answer_stops_only_what_depends_on_it(
    checked: CheckedObjective,
) -> None:
    plan(checked, "P", "A", ("B", ["A"]), "C")
    plan(checked, "Q", ("D", ["A"]), "E")
    checked.start("A")
    checked.report("A", "input-required")
    assert checked.statuses["P"] == "blocked"
    assert ready(checked) == ["C", "E"]


@pytest.mark.requirement("opt.progress.counts")
def test_progress_counts_tasks_of_plans_that_are_not_skipped(checked: CheckedObjective) -> None:
    assert as_json(progress(checked.state)) == {"done": 0, "total": 0, "percent": 0, "current": []}
    plan(checked, "P", "A", "B", "C")
    skipped = plan(checked, "Q", "D")
    checked.finish("A")
    assert progress(checked.state).percent == 25
    checked.call("plans/update", id=skipped, status="skipped")
    found = progress(checked.state)
    assert (found.done, found.total, found.percent) == (1, 3, 33)


@pytest.mark.requirement("opt.progress.current")
def test_progress_says_what_runs_and_what_waits_longest(checked: CheckedObjective) -> None:
    plan(checked, "P", "A", "B", "C")
    for name in ("A", "B", "C"):
        checked.start(name)
        checked.report(name, "working")
    checked.tick()
    checked.report("B", "auth-required")
    checked.tick()
    checked.report("A", "input-required")
    shown = as_json(progress(checked.state))
    assert shown["oldestWaiting"] == {
        "taskId": checked.task("B")["id"],
        "planId": checked.plan("P")["id"],
        "name": "B",
        "status": "auth-required",
        "since": "2026-01-05T10:00:01.000Z",
        "a2aTaskId": "a2a-B",
    }
    assert [step["name"] for step in shown["current"]] == ["C"]


def test_an_objective_that_was_reached_without_tasks_is_at_one_hundred(
    checked: CheckedObjective,
) -> None:
    checked.call("objectives/update", id="obj-n1", status="working")
    checked.call("objectives/update", id="obj-n1", status="completed")
    assert progress(checked.state).percent == 100
