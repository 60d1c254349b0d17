"""Derives statuses upwards: plan tasks from A2A tasks, plans from tasks, objectives from plans.

Statuses are computed from the current state, never from the last event. So the roll-up can run at
any time, running it twice changes nothing, and after a crash it ends where it would have ended.
Statuses that a caller chose (`held`) are left alone.
"""

from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.planning import operations as ops
from openclaw_a2a.planning.model import (
    OBJECTIVE_CLOSED,
    PLAN_DONE,
    PLAN_OPEN,
    TASK_ACTIVE,
    TASK_FAILED,
    TASK_TRANSITIONS,
    TASK_WAITING,
    ObjectiveStatus,
    Plan,
    PlanId,
    PlanStatus,
    PlanTaskId,
    PlanTaskStatus,
    check_objective_open,
    check_transition,
    objective_path,
    plan_path,
)
from openclaw_a2a.planning.state import Change, ObjectiveState


def report_task(
    change: Change, a2a_task_id: TaskId, task_state: TaskState, *, will_retry: bool = False
) -> None:
    """Apply the state of an A2A task to the plan tasks that it works on.

    `will_retry`: a plan task that failed becomes pending again at once, and its plan does not fail;
    unless the plan is done.
    Tasks that are not linked here, and reports older than what is known, change nothing.
    """
    status = PlanTaskStatus.__members__.get(task_state.name)  # None for `unspecified`
    is_closed = change.state.objective.status in OBJECTIVE_CLOSED
    # After a crash in the middle of an append, the rest of the roll-up is still to be done.
    needs_rollup = not change.operations
    for task in () if status is None else change.state.linked_to(a2a_task_id):
        is_new = status is not task.status and status in TASK_TRANSITIONS[task.status]
        # Only another A2A task takes a plan task out of a failed status; this report is late.
        if is_new and task.status not in TASK_FAILED:
            needs_rollup = True
            change.record(ops.PlanTaskUpdated(task.id, status=status))
            is_done = is_closed or change.state.plans[task.plan_id].status in PLAN_DONE
            if will_retry and not is_done and status in TASK_FAILED:
                change.record(ops.PlanTaskUpdated(task.id, status=PlanTaskStatus.PENDING))
    if needs_rollup:
        roll_up(change)


def link_task(change: Change, task_id: PlanTaskId, a2a_task_id: TaskId) -> None:
    """Link an A2A task to the plan task that it works on from now on.

    Raises: PlanItemNotFound (there is no such plan task), StatusChangeNotAllowed (it is completed,
    or the objective is closed).
    """
    task, item = change.state.task(task_id), ("task", task_id)
    check_objective_open(change.state.objective, item, (task.status.value, "submitted"))
    if task.a2a_task_id != a2a_task_id:
        check_transition(TASK_TRANSITIONS, item, task.status, PlanTaskStatus.SUBMITTED)
        change.record(ops.PlanTaskLinked(task_id, a2a_task_id))
    roll_up(change)


def roll_up(change: Change) -> None:
    """Derive the statuses of plans and objective from the tasks; idempotent."""
    state = change.state
    is_canceled = state.objective.status is ObjectiveStatus.CANCELED
    # A plan that gets done unblocks the plans that depend on it, and those the next ones.
    # A chain of n plans settles in n rounds, one more finds nothing to do: the bound is a guard.
    for _ in range(0 if is_canceled else len(state.plans) + 1):
        recorded = len(change.operations)
        for plan in list(state.plans.values()):
            target = _plan_target(state, plan)
            if target is not plan.status:
                may_work = not state.unfinished_dependencies(plan)
                for status in plan_path(plan.status, target, may_work=may_work):
                    change.record(ops.PlanUpdated(plan.id, status=status))
        if len(change.operations) == recorded:
            break
    old, new = state.objective.status, _objective_target(state)
    if new is not old:
        for status in objective_path(old, new):
            change.record(ops.ObjectiveUpdated(state.id, status=status))
    if state.objective.status is ObjectiveStatus.COMPLETED and not state.is_archived:
        change.record(ops.ObjectiveArchived(state.id))


def cancel_open(change: Change) -> None:
    """End the pending tasks and open plans of an objective that was canceled.

    Tasks that run get their last status when the end of their A2A task is reported. Idempotent:
    called again, it completes what a crash interrupted.
    """
    for task in list(change.state.tasks.values()):
        if task.status is PlanTaskStatus.PENDING:
            change.record(ops.PlanTaskUpdated(task.id, status=PlanTaskStatus.CANCELED))
    for plan in list(change.state.plans.values()):
        if plan.status in PLAN_OPEN:
            is_working = plan.status is PlanStatus.WORKING
            ended = PlanStatus.FAILED if is_working else PlanStatus.SKIPPED
            change.record(ops.PlanUpdated(plan.id, status=ended))


def running_tasks(state: ObjectiveState, plan_id: PlanId | None = None) -> tuple[TaskId, ...]:
    """The A2A tasks of the objective, or of one plan, that have not ended."""
    return _linked_tasks(state, plan_id, TASK_ACTIVE | TASK_WAITING)


def abandoned_tasks(state: ObjectiveState, plan_id: PlanId | None = None) -> tuple[TaskId, ...]:
    """The A2A tasks of failed and canceled steps.

    One may be running still, if a caller chose the status of its step: its result is not used.
    """
    return _linked_tasks(state, plan_id, TASK_FAILED)


def _linked_tasks(
    state: ObjectiveState, plan_id: PlanId | None, statuses: frozenset[PlanTaskStatus]
) -> tuple[TaskId, ...]:
    tasks = [one for one in state.tasks.values() if one.status in statuses]
    own = (one.a2a_task_id for one in tasks if plan_id in (None, one.plan_id))
    return tuple(task_id for task_id in own if task_id is not None)


def _plan_target(state: ObjectiveState, plan: Plan) -> PlanStatus:
    """The status that a plan should have."""
    if plan.status in PLAN_DONE or plan.id in state.held:
        return plan.status
    # The first rule that matches wins: a failed task counts most, then the plans that this one
    # depends on, then its other tasks.
    statuses = {state.tasks[task_id].status for task_id in state.task_ids[plan.id]}
    if statuses & TASK_FAILED:
        return PlanStatus.FAILED
    if plan.dependencies and state.unfinished_dependencies(plan):
        return PlanStatus.FAILED if plan.status is PlanStatus.FAILED else PlanStatus.BLOCKED
    if not statuses:
        return PlanStatus.PENDING if plan.status is PlanStatus.BLOCKED else plan.status
    if statuses == {PlanTaskStatus.COMPLETED}:
        return PlanStatus.COMPLETED
    if statuses & TASK_ACTIVE:
        return PlanStatus.WORKING
    if statuses & TASK_WAITING or not state.unblocked_tasks(plan.id):
        return PlanStatus.BLOCKED  # by a question, or by tasks of other plans
    if plan.status in (PlanStatus.BLOCKED, PlanStatus.FAILED):
        has_started = PlanTaskStatus.COMPLETED in statuses
        return PlanStatus.WORKING if has_started else PlanStatus.PENDING
    return plan.status


def _objective_target(state: ObjectiveState) -> ObjectiveStatus:
    """The status that an objective should have; skipped plans do not count."""
    status, is_held = state.objective.status, state.is_held
    plans = {plan.status for plan in state.plans.values()} - {PlanStatus.SKIPPED}
    stays = (ObjectiveStatus.BLOCKED, ObjectiveStatus.FAILED)
    if status in OBJECTIVE_CLOSED or not plans or (is_held and status in stays):
        return status
    # Before `is_held`: a chosen `submitted` or `planning` gives way as soon as a plan works.
    if PlanStatus.WORKING in plans:
        return ObjectiveStatus.WORKING
    if is_held:
        return status
    if plans == {PlanStatus.COMPLETED}:
        # Not before the tasks of skipped plans have ended: after a crash only the tasks of open
        # objectives are stopped.
        return status if running_tasks(state) else ObjectiveStatus.COMPLETED
    # What waits for a failed plan or task is not open: only a person can set it going again.
    lost = state.lost_plans()
    hopeful = [one for one in state.plans.values() if one.id not in lost]
    pending = [one for one in hopeful if one.status is PlanStatus.PENDING]
    if any(state.task_ids[one.id] for one in pending):
        # A plan can start, so the objective is neither blocked nor failed.
        released = {
            ObjectiveStatus.BLOCKED: ObjectiveStatus.WORKING,
            ObjectiveStatus.FAILED: ObjectiveStatus.PLANNING,
        }
        return released.get(status, status)
    if any(one.status is PlanStatus.BLOCKED for one in hopeful):
        # While plans are being made, one may wait for another that gets its tasks later.
        is_planned = pending and status in (ObjectiveStatus.SUBMITTED, ObjectiveStatus.PLANNING)
        return status if is_planned else ObjectiveStatus.BLOCKED
    if pending:
        return _target_without_tasks(status, plans)
    return ObjectiveStatus.FAILED


def _target_without_tasks(status: ObjectiveStatus, plans: set[PlanStatus]) -> ObjectiveStatus:
    """The status of an objective when everything is over but plans that have no tasks."""
    if status in (ObjectiveStatus.SUBMITTED, ObjectiveStatus.PLANNING):
        return status  # they get their tasks later
    if PlanStatus.FAILED in plans:
        return ObjectiveStatus.FAILED
    return ObjectiveStatus.BLOCKED if PlanStatus.COMPLETED in plans else status
