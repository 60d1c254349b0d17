"""What follows by itself: section 6 of the contract, rule by rule."""

from itertools import pairwise

import pytest
from tests.planning.checked_objective import OBJECTIVES, PLANS, CheckedObjective, as_json

from openclaw_a2a.model.errors import PlanItemNotFound, StatusChangeNotAllowed
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.planning import rollup
from openclaw_a2a.planning.change_builder import ChangeBuilder
from openclaw_a2a.planning.model import ObjectiveStatus, PlanStatus, PlanTaskId
from openclaw_a2a.planning.operations import ObjectiveUpdated
from openclaw_a2a.planning.transitions import objective_path, plan_path
from openclaw_a2a.planning.views import progress, ready_tasks


def plan(
    desk: CheckedObjective, name: str, *tasks: str | tuple[str, list[str]], needs: str = ""
) -> str:
    """Make a plan; a task with dependencies names them by their names."""
    entries = []
    for task in tasks:
        task_name, needed = (task, []) if isinstance(task, str) else task
        names = [one if isinstance(one, str) else one[0] for one in tasks]
        wanted = [
            f"task-{names.index(one)}" if one in names else desk.task(one)["id"] for one in needed
        ]
        entries.append({"name": task_name, "dependencies": wanted})
    dependencies = [desk.plan(one)["id"] for one in needs.split()]
    made = desk.call(
        "plans/create", objectiveId="obj-n1", name=name, tasks=entries, dependencies=dependencies
    )
    return made["plan"]["id"]


def ready(desk: CheckedObjective) -> list[str]:
    return [task.name for task in ready_tasks(desk.state)]


def written(desk: CheckedObjective, op: str) -> list[str]:
    """The statuses that the last change wrote down for operations of one name."""
    return [o.data.status.value for o in desk.last if o.data.op == op and o.data.status]


# ------------------------------------------------------------------ tasks and their plan


@pytest.mark.requirement("opt.rollup.mirror", "opt.rollup.plan-works", "opt.rollup.objective-works")
@pytest.mark.parametrize("state", ["submitted", "working"])
def test_a_plan_works_when_a_task_of_it_does_and_so_does_its_objective(
    desk: CheckedObjective, state: str
) -> None:
    plan(desk, "P", "A", "B")
    desk.start("A")
    desk.report("A", state)
    assert desk.statuses == {"Party": "working", "P": "working", "A": state, "B": "pending"}
    assert desk.task("A")["a2aTaskId"] == "a2a-A"


@pytest.mark.requirement("opt.rollup.plan-blocked", "opt.rollup.plan-resumes")
@pytest.mark.parametrize("state", ["input-required", "auth-required"])
def test_a_plan_is_blocked_while_a_task_waits_and_none_works(
    desk: CheckedObjective, state: str
) -> None:
    plan(desk, "P", "A", "B")
    desk.start("A")
    desk.start("B")
    desk.report("A", state)
    assert desk.statuses["P"] == "working"
    desk.report("B", "completed")
    assert (desk.statuses["P"], desk.statuses["Party"]) == ("blocked", "blocked")
    desk.report("A", "working")
    assert (desk.statuses["P"], desk.statuses["Party"]) == ("working", "working")


def test_a_plan_goes_on_even_when_nobody_saw_its_task_resume(desk: CheckedObjective) -> None:
    plan(desk, "P", "A", "B")
    desk.start("A")
    desk.report("A", "input-required")
    desk.report("A", "completed")
    assert (desk.statuses["P"], ready(desk)) == ("working", ["B"])


@pytest.mark.requirement("opt.rollup.plan-completed", "opt.storage.archive")
def test_a_plan_is_completed_with_its_last_task_and_so_is_the_objective(
    desk: CheckedObjective,
) -> None:
    plan(desk, "P", "A", "B")
    desk.finish("A")
    assert desk.statuses["P"] == "working"
    desk.finish("B")
    assert (desk.statuses["P"], desk.statuses["Party"]) == ("completed", "completed")
    assert [operation.data.op for operation in desk.last] == [
        "task.update",
        "plan.update",
        "objective.update",
        "archive",
    ]


@pytest.mark.requirement("opt.rollup.way")
def test_a_step_that_the_tables_forbid_leads_through_working(desk: CheckedObjective) -> None:
    plan_id = plan(desk, "P", "A")
    edit = {"id": desk.task("A")["id"], "status": "completed"}
    desk.call("plans/update", id=plan_id, tasks=[edit])
    assert written(desk, "plan.update") == ["working", "completed"]
    assert written(desk, "objective.update") == ["working", "completed"]


@pytest.mark.requirement("opt.rollup.plan-failed", "opt.rollup.mirror")
@pytest.mark.parametrize("end", ["failed", "rejected", "canceled"])
def test_a_plan_fails_with_a_task_that_is_not_tried_again(desk: CheckedObjective, end: str) -> None:
    plan(desk, "P", "A", "B")
    desk.start("A")
    desk.report("A", end)
    assert desk.statuses == {"Party": "failed", "P": "failed", "A": end, "B": "pending"}
    assert ready(desk) == []


@pytest.mark.requirement("opt.rollup.retry")
def test_a_task_that_will_be_tried_again_is_pending_and_its_plan_goes_on(
    desk: CheckedObjective,
) -> None:
    plan(desk, "P", "A", "B")
    desk.start("A", "first")
    desk.report("A", "failed", will_retry=True)
    assert desk.statuses == {"Party": "working", "P": "working", "A": "pending", "B": "pending"}
    assert written(desk, "task.update") == ["failed", "pending"]
    assert "a2aTaskId" not in desk.task("A")
    assert "A" in ready(desk)
    desk.start("A", "second")
    assert desk.state.attempts[PlanTaskId(desk.task("A")["id"])] == 2


def test_the_task_of_an_earlier_try_has_nothing_to_say_any_more(desk: CheckedObjective) -> None:
    plan(desk, "P", "A")
    desk.start("A", "first")
    desk.report("A", "failed", will_retry=True)
    desk.start("A", "second")
    before = desk.state
    change = rollup.report_task(
        before, TaskId("first"), TaskState.COMPLETED, occasion=desk.occasion()
    )
    assert (change.operations, change.state) == ((), before)


@pytest.mark.parametrize("end", ["completed", "failed", "canceled", "rejected"])
def test_a_late_report_does_not_bring_a_task_back_from_its_end(
    desk: CheckedObjective, end: str
) -> None:
    plan(desk, "P", "A", "B")
    desk.start("A")
    desk.report("A", end)
    desk.report("A", "working")
    assert desk.last == []
    assert desk.statuses["A"] == end


@pytest.mark.parametrize("state", ["working", "input-required", "completed", "failed"])
def test_the_same_report_twice_is_one(desk: CheckedObjective, state: str) -> None:
    plan(desk, "P", "A", "B")
    desk.start("A")
    desk.report("A", state)
    desk.report("A", state)
    assert desk.last == []


def test_a_state_that_is_none_changes_nothing(desk: CheckedObjective) -> None:
    plan(desk, "P", "A")
    desk.start("A")
    desk.apply_change(
        rollup.report_task(
            desk.state, TaskId("a2a-A"), TaskState.UNSPECIFIED, occasion=desk.occasion()
        )
    )
    assert desk.last == []


def test_linking_the_same_task_again_changes_nothing(desk: CheckedObjective) -> None:
    plan(desk, "P", "A")
    desk.start("A")
    desk.start("A")
    assert desk.last == []


def test_only_a_known_task_that_is_not_completed_is_linked(desk: CheckedObjective) -> None:
    plan(desk, "P", "A", "B")
    desk.finish("A")
    with pytest.raises(StatusChangeNotAllowed):
        desk.start("A", "other")
    with pytest.raises(PlanItemNotFound):
        rollup.link_task(desk.state, PlanTaskId("task-zzz"), TaskId("t"), occasion=desk.occasion())


def test_a_plan_without_tasks_does_not_complete_by_itself(desk: CheckedObjective) -> None:
    plan(desk, "P")
    desk.call("objectives/update", id="obj-n1", status="working")
    assert desk.statuses == {"Party": "working", "P": "pending"}


# ------------------------------------------------------------------ plans and their objective


@pytest.mark.requirement("opt.rollup.plan-free")
def test_a_plan_that_waits_becomes_pending_when_the_others_are_done(desk: CheckedObjective) -> None:
    plan(desk, "Flight", "Fly")
    plan(desk, "Visa", "Ask")
    plan(desk, "Hotel", "Book", needs="Flight Visa")
    desk.finish("Fly")
    assert (desk.statuses["Hotel"], ready(desk)) == ("blocked", ["Ask"])
    desk.call("plans/update", id=desk.plan("Visa")["id"], status="skipped")
    assert (desk.statuses["Hotel"], ready(desk)) == ("pending", ["Book"])


@pytest.mark.requirement("opt.rollup.plan-waits")
def test_a_plan_that_waits_stays_blocked_though_its_task_was_begun(desk: CheckedObjective) -> None:
    plan(desk, "Flight", "Fly")
    plan(desk, "Hotel", "Book", needs="Flight")
    desk.finish("Book")
    assert (desk.statuses["Hotel"], desk.statuses["Book"]) == ("blocked", "completed")
    desk.finish("Fly")
    assert desk.statuses["Hotel"] == "completed"
    assert written(desk, "plan.update") == ["completed", "working", "completed"]
    assert desk.statuses["Party"] == "completed"


def test_plans_in_a_row_are_set_free_one_after_the_other(desk: CheckedObjective) -> None:
    for number in range(1, 5):
        plan(desk, f"P{number}", f"T{number}", needs=f"P{number - 1}" if number > 1 else "")
    order = []
    while todo := ready(desk):
        order += todo
        desk.finish(*todo)
    assert order == ["T1", "T2", "T3", "T4"]
    assert desk.statuses["Party"] == "completed"


@pytest.mark.requirement("opt.rollup.objective-completed")
def test_an_objective_is_completed_when_all_plans_that_are_not_skipped_are(
    desk: CheckedObjective,
) -> None:
    plan(desk, "P", "A")
    skipped = plan(desk, "Q", "B")
    desk.finish("A")
    assert desk.statuses["Party"] == "working"
    desk.call("plans/update", id=skipped, status="skipped")
    assert desk.statuses["Party"] == "completed"


@pytest.mark.requirement("opt.rollup.objective-blocked")
def test_an_objective_is_blocked_when_every_open_plan_is(desk: CheckedObjective) -> None:
    plan(desk, "P", "A")
    plan(desk, "Q", "B", needs="P")
    desk.start("A")
    desk.report("A", "input-required")
    assert (desk.statuses["P"], desk.statuses["Q"]) == ("blocked", "blocked")
    assert desk.statuses["Party"] == "blocked"


def test_an_objective_goes_on_when_a_plan_of_it_can(desk: CheckedObjective) -> None:
    plan(desk, "P", "A")
    desk.start("A")
    desk.report("A", "input-required")
    assert desk.statuses["Party"] == "blocked"
    plan(desk, "Q", "B")
    assert desk.statuses["Party"] == "working"


@pytest.mark.requirement("opt.rollup.objective-failed")
def test_an_objective_fails_with_a_failed_plan_when_nothing_is_open(desk: CheckedObjective) -> None:
    plan(desk, "P", "A")
    plan(desk, "Q", "B")
    desk.start("A")
    desk.report("A", "failed")
    assert (desk.statuses["P"], desk.statuses["Party"]) == ("failed", "working")
    desk.finish("B")
    assert desk.statuses["Party"] == "failed"


def test_a_failed_plan_that_begins_again_tries_its_failed_tasks_again(
    desk: CheckedObjective,
) -> None:
    plan_id = plan(desk, "P", "A", "B", "C")
    desk.finish("A")
    desk.start("B")
    desk.report("B", "failed")
    assert desk.statuses["Party"] == "failed"
    desk.call("plans/update", id=plan_id, status="working")
    assert desk.statuses == {
        "Party": "working",
        "P": "working",
        "A": "completed",
        "B": "pending",
        "C": "pending",
    }
    desk.finish("B", "C")
    assert desk.statuses["Party"] == "completed"


def test_a_new_plan_brings_a_failed_objective_back_to_planning(desk: CheckedObjective) -> None:
    plan(desk, "P", "A")
    desk.start("A")
    desk.report("A", "failed")
    plan(desk, "Q", "B")
    assert desk.statuses["Party"] == "planning"
    assert ready(desk) == ["B"]


# ------------------------------------------------------------------ cancel


@pytest.mark.requirement("opt.rollup.cancel-plans")
def test_canceling_an_objective_ends_everything_below_it(desk: CheckedObjective) -> None:
    plan(desk, "Done", "A")
    plan(desk, "Working", "B", "C")
    plan(desk, "Waiting", "D")
    plan(desk, "Pending", "E")
    plan(desk, "Blocked", "F", needs="Pending")
    desk.finish("A")
    desk.start("B")
    desk.start("D")
    desk.report("D", "input-required")
    desk.call("objectives/update", id="obj-n1", status="canceled", name="Rain")
    assert desk.statuses == {
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
    assert desk.running == ["a2a-B", "a2a-D"]
    assert desk.last[0].data.op == "objective.update"
    desk.report("B", "canceled")
    assert (desk.statuses["B"], desk.statuses["Working"]) == ("canceled", "failed")
    assert (desk.statuses["Rain"], ready(desk)) == ("canceled", [])


def test_canceling_again_finishes_what_a_crash_left_undone(desk: CheckedObjective) -> None:
    plan(desk, "P", "A", "B")
    desk.start("A")
    draft = ChangeBuilder.for_state(desk.state, desk.now)
    draft.record(ObjectiveUpdated(desk.state.id, status=ObjectiveStatus.CANCELED))
    desk.apply_change(draft.build())
    assert desk.statuses == {"Party": "canceled", "P": "working", "A": "submitted", "B": "pending"}
    desk.report("A", "working")
    assert desk.statuses["P"] == "working"
    desk.call("objectives/update", id="obj-n1", status="canceled")
    assert desk.statuses == {"Party": "canceled", "P": "failed", "A": "working", "B": "canceled"}
    assert desk.running == ["a2a-A"]


def test_nothing_is_tried_again_in_a_canceled_objective(desk: CheckedObjective) -> None:
    plan(desk, "P", "A")
    desk.start("A")
    desk.call("objectives/update", id="obj-n1", status="canceled")
    desk.report("A", "failed", will_retry=True)
    assert desk.statuses["A"] == "failed"


# ------------------------------------------------------------------ what somebody chose


def test_a_replanned_objective_rests_until_somebody_goes_on(desk: CheckedObjective) -> None:
    plan(desk, "P", "A", "B")
    plan(desk, "Q", "C")
    desk.start("A")
    desk.call("objectives/replan", id="obj-n1")
    desk.report("A", "completed")
    assert (desk.statuses["Party"], desk.statuses["P"]) == ("planning", "blocked")
    assert ready(desk) == []
    desk.call("objectives/update", id="obj-n1", status="working")
    assert (desk.statuses["Party"], desk.statuses["P"]) == ("working", "working")
    assert ready(desk) == ["B", "C"]


def test_a_replanned_objective_does_not_complete_behind_the_back_of_the_planner(
    desk: CheckedObjective,
) -> None:
    plan(desk, "P", "A")
    desk.start("A")
    desk.call("objectives/replan", id="obj-n1")
    desk.report("A", "completed")
    assert desk.statuses == {"Party": "planning", "P": "blocked", "A": "completed"}
    desk.call("objectives/update", id="obj-n1", status="working")
    assert desk.statuses["Party"] == "completed"


def test_work_in_a_new_plan_takes_a_replanned_objective_on(desk: CheckedObjective) -> None:
    plan(desk, "P", "A", "B")
    desk.start("A")
    desk.call("objectives/replan", id="obj-n1")
    plan(desk, "Q", "C")
    desk.start("C")
    assert (desk.statuses["Party"], desk.statuses["P"]) == ("working", "blocked")
    desk.report("C", "completed")
    assert desk.statuses["Party"] == "blocked"
    desk.call("plans/update", id=desk.plan("P")["id"], status="skipped")
    assert desk.statuses["Party"] == "completed"


def test_a_plan_that_was_blocked_by_hand_stays_blocked(desk: CheckedObjective) -> None:
    plan_id = plan(desk, "P", "A", "B")
    plan(desk, "Q", "C")
    desk.start("A")
    desk.call("plans/update", id=plan_id, status="blocked")
    desk.report("A", "working")
    desk.report("A", "completed")
    assert (desk.statuses["P"], ready(desk)) == ("blocked", ["C"])
    desk.call("plans/update", id=plan_id, status="pending")
    assert ready(desk) == ["B", "C"]


def test_saying_again_what_is_so_anyway_holds_nothing(desk: CheckedObjective) -> None:
    plan(desk, "P", "A")
    second = plan(desk, "Q", "B", needs="P")
    desk.call("plans/update", id=second, status="blocked")
    desk.finish("A")
    assert desk.statuses["Q"] == "pending"


def test_an_objective_that_was_blocked_by_hand_stays_blocked_though_a_plan_works(
    desk: CheckedObjective,
) -> None:
    plan(desk, "P", "A", "B")
    desk.start("A")
    desk.call("objectives/update", id="obj-n1", status="blocked")
    desk.report("A", "completed")
    assert (desk.statuses["Party"], ready(desk)) == ("blocked", [])
    desk.call("objectives/update", id="obj-n1", status="working")
    assert (desk.statuses["Party"], ready(desk)) == ("working", ["B"])


# ------------------------------------------------------------------ ways along the tables


@pytest.mark.parametrize("new", ObjectiveStatus)
@pytest.mark.parametrize("old", ObjectiveStatus)
def test_an_objective_finds_its_way_where_there_is_one(
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
def test_a_plan_finds_its_way_where_there_is_one(
    old: PlanStatus, new: PlanStatus, may_work: bool
) -> None:
    steps = [old.value, *(one.value for one in plan_path(old, new, may_work=may_work))]
    assert all(after in PLANS[before].split() for before, after in pairwise(steps))
    assert may_work or "working" not in steps[1:-1]


def test_an_objective_that_failed_on_the_way_to_its_end_still_gets_there() -> None:
    way = objective_path(ObjectiveStatus.FAILED, ObjectiveStatus.COMPLETED)
    assert [one.value for one in way] == ["planning", "working", "completed"]


# ------------------------------------------------------------------ ready, and how far


@pytest.mark.requirement("opt.rollup.ready")
def test_a_task_is_ready_when_what_it_depends_on_is_completed(desk: CheckedObjective) -> None:
    plan(desk, "P", "A", ("B", ["A"]), ("C", ["A"]), ("D", ["B", "C"]))
    assert ready(desk) == ["A"]
    desk.finish("A")
    assert ready(desk) == ["B", "C"]
    desk.finish("B")
    assert ready(desk) == ["C"]
    desk.finish("C")
    assert ready(desk) == ["D"]


@pytest.mark.requirement("opt.run.question")
def test_a_task_that_waits_for_an_answer_stops_only_what_depends_on_it(
    desk: CheckedObjective,
) -> None:
    plan(desk, "P", "A", ("B", ["A"]), "C")
    plan(desk, "Q", ("D", ["A"]), "E")
    desk.start("A")
    desk.report("A", "input-required")
    assert desk.statuses["P"] == "blocked"
    assert ready(desk) == ["C", "E"]


@pytest.mark.requirement("opt.progress.counts")
def test_progress_counts_tasks_of_plans_that_are_not_skipped(desk: CheckedObjective) -> None:
    assert as_json(progress(desk.state)) == {"done": 0, "total": 0, "percent": 0, "current": []}
    plan(desk, "P", "A", "B", "C")
    skipped = plan(desk, "Q", "D")
    desk.finish("A")
    assert progress(desk.state).percent == 25
    desk.call("plans/update", id=skipped, status="skipped")
    found = progress(desk.state)
    assert (found.done, found.total, found.percent) == (1, 3, 33)


@pytest.mark.requirement("opt.progress.current")
def test_progress_says_what_runs_and_what_waits_longest(desk: CheckedObjective) -> None:
    plan(desk, "P", "A", "B", "C")
    for name in ("A", "B", "C"):
        desk.start(name)
        desk.report(name, "working")
    desk.tick()
    desk.report("B", "auth-required")
    desk.tick()
    desk.report("A", "input-required")
    shown = as_json(progress(desk.state))
    assert shown["oldestWaiting"] == {
        "taskId": desk.task("B")["id"],
        "planId": desk.plan("P")["id"],
        "name": "B",
        "status": "auth-required",
        "since": "2026-01-05T10:00:01.000Z",
        "a2aTaskId": "a2a-B",
    }
    assert [step["name"] for step in shown["current"]] == ["C"]


def test_an_objective_that_was_reached_without_tasks_is_at_one_hundred(
    desk: CheckedObjective,
) -> None:
    desk.call("objectives/update", id="obj-n1", status="working")
    desk.call("objectives/update", id="obj-n1", status="completed")
    assert progress(desk.state).percent == 100
