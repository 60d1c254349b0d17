"""Derives statuses upwards: plan tasks from A2A tasks, plans from tasks, objectives from plans.

Statuses are computed from the current state, never from the last event. So the roll-up can run at
any time, running it twice changes nothing, and after a crash it ends where it would have ended.
Statuses that a caller chose (`held`) are left alone.
"""

from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.planning import operations as ops
from openclaw_a2a.planning.model import (
    ObjectiveStatus,
    Plan,
    PlanStatus,
    PlanTaskId,
    PlanTaskStatus,
)
from openclaw_a2a.planning.state import Change, ChangeBuilder, CommandContext, ObjectiveState
from openclaw_a2a.planning.transitions import (
    OBJECTIVE_CLOSED,
    PLAN_DONE,
    PLAN_OPEN,
    TASK_ACTIVE,
    TASK_FAILED,
    TASK_TRANSITIONS,
    TASK_WAITING,
    check_objective_open,
    check_transition,
    objective_path,
    plan_path,
    status_for_task_state,
)


def report_task(
    state: ObjectiveState,
    a2a_task_id: TaskId,
    task_state: TaskState,
    *,
    context: CommandContext,
    will_retry: bool = False,
) -> Change:
    """Apply the state of an A2A task to the plan tasks that it works on.

    `will_retry`: a plan task that failed becomes pending again at once, and its plan does not fail.
    Tasks that are not linked here, and reports older than what is known, change nothing.
    """
    builder = ChangeBuilder.for_state(state, context.now)
    status = status_for_task_state(task_state)
    will_retry = will_retry and state.objective.status not in OBJECTIVE_CLOSED
    if status is not None:
        for task in state.linked_to(a2a_task_id):
            is_new = status is not task.status and status in TASK_TRANSITIONS[task.status]
            # Only another A2A task takes a plan task out of a failed status; this report is late.
            if is_new and task.status not in TASK_FAILED:
                builder.record(ops.PlanTaskUpdated(task.id, status=status))
                if will_retry and status in TASK_FAILED:
                    builder.record(ops.PlanTaskUpdated(task.id, status=PlanTaskStatus.PENDING))
    roll_up(builder)
    return builder.build()


def link_task(
    state: ObjectiveState, task_id: PlanTaskId, a2a_task_id: TaskId, *, context: CommandContext
) -> Change:
    """Link an A2A task to the plan task that it works on from now on.

    Raises:
        PlanItemNotFound: there is no such plan task.
        StatusChangeNotAllowed: it is completed, or the objective is closed.
    """
    task = state.task(task_id)
    check_objective_open(state.objective, ("task", task_id), (task.status.value, "submitted"))
    builder = ChangeBuilder.for_state(state, context.now)
    if task.a2a_task_id != a2a_task_id:
        check_transition(TASK_TRANSITIONS, ("task", task_id), task.status, PlanTaskStatus.SUBMITTED)
        builder.record(ops.PlanTaskLinked(task_id, a2a_task_id))
    roll_up(builder)
    return builder.build()


def roll_up(builder: ChangeBuilder) -> None:
    """Derive the statuses of plans and objective from the tasks; idempotent."""
    if builder.state.objective.status is not ObjectiveStatus.CANCELED:
        # A plan that gets done unblocks the plans that depend on it, and those the next ones.
        for _ in range(len(builder.state.plans) + 1):
            plans = list(builder.state.plans.values())
            changed = [_roll_up_plan(builder, plan) for plan in plans]
            if not any(changed):
                break
    _roll_up_objective(builder)


def cancel_open(builder: ChangeBuilder) -> None:
    """End the pending tasks and open plans of an objective that was canceled.

    Running tasks follow when their A2A tasks have ended. Idempotent: called again, it completes
    what a crash interrupted.
    """
    for task in list(builder.state.tasks.values()):
        if task.status is PlanTaskStatus.PENDING:
            builder.record(ops.PlanTaskUpdated(task.id, status=PlanTaskStatus.CANCELED))
    for plan in list(builder.state.plans.values()):
        if plan.status in PLAN_OPEN:
            is_working = plan.status is PlanStatus.WORKING
            ended = PlanStatus.FAILED if is_working else PlanStatus.SKIPPED
            builder.record(ops.PlanUpdated(plan.id, status=ended))


def running_tasks(state: ObjectiveState) -> tuple[TaskId, ...]:
    """The A2A tasks of the objective that have not ended."""
    return tuple(
        task.a2a_task_id
        for task in state.tasks.values()
        if task.a2a_task_id is not None and task.status in TASK_ACTIVE | TASK_WAITING
    )


def _roll_up_plan(builder: ChangeBuilder, plan: Plan) -> bool:
    target = _plan_target(builder.state, plan)
    if target is plan.status:
        return False
    may_work = not builder.state.unfinished_dependencies(plan)
    path = plan_path(plan.status, target, may_work=may_work)
    for status in path:
        builder.record(ops.PlanUpdated(plan.id, status=status))
    return bool(path)


def _plan_target(state: ObjectiveState, plan: Plan) -> PlanStatus:
    """The status that a plan should have."""
    if plan.status in PLAN_DONE or plan.id in state.held:
        return plan.status
    statuses = {state.tasks[task_id].status for task_id in state.task_ids[plan.id]}
    if statuses & TASK_FAILED:
        return PlanStatus.FAILED
    if state.unfinished_dependencies(plan):
        return PlanStatus.FAILED if plan.status is PlanStatus.FAILED else PlanStatus.BLOCKED
    if not statuses:
        return PlanStatus.PENDING if plan.status is PlanStatus.BLOCKED else plan.status
    if statuses == {PlanTaskStatus.COMPLETED}:
        return PlanStatus.COMPLETED
    if statuses & TASK_ACTIVE:
        return PlanStatus.WORKING
    if statuses & TASK_WAITING or not state.has_ready_task(plan.id):
        return PlanStatus.BLOCKED  # by a question, or by tasks of other plans
    if plan.status in (PlanStatus.BLOCKED, PlanStatus.FAILED):
        has_started = PlanTaskStatus.COMPLETED in statuses
        return PlanStatus.WORKING if has_started else PlanStatus.PENDING
    return plan.status


def _roll_up_objective(builder: ChangeBuilder) -> None:
    objective = builder.state.objective
    target = _objective_target(builder.state)
    if target is not objective.status:
        for status in objective_path(objective.status, target):
            builder.record(ops.ObjectiveUpdated(objective.id, status=status))
    is_completed = builder.state.objective.status is ObjectiveStatus.COMPLETED
    if is_completed and not builder.state.is_archived:
        builder.record(ops.ObjectiveArchived(objective.id))


def _objective_target(state: ObjectiveState) -> ObjectiveStatus:
    status = state.objective.status
    plans = {plan.status for plan in state.plans.values()} - {PlanStatus.SKIPPED}
    stays = (ObjectiveStatus.BLOCKED, ObjectiveStatus.FAILED)
    if status in OBJECTIVE_CLOSED or not plans or (state.is_held and status in stays):
        return status
    if PlanStatus.WORKING in plans:
        return ObjectiveStatus.WORKING
    if state.is_held:
        return status
    return _status_from_plans(status, plans)


def _status_from_plans(status: ObjectiveStatus, plans: set[PlanStatus]) -> ObjectiveStatus:
    """The status of an objective none of whose plans is working; skipped ones do not count."""
    if plans == {PlanStatus.COMPLETED}:
        return ObjectiveStatus.COMPLETED
    if PlanStatus.PENDING in plans:
        # A plan can start, so the objective is neither blocked nor failed.
        if status is ObjectiveStatus.BLOCKED:
            return ObjectiveStatus.WORKING
        return ObjectiveStatus.PLANNING if status is ObjectiveStatus.FAILED else status
    if PlanStatus.BLOCKED in plans:
        return ObjectiveStatus.BLOCKED
    return ObjectiveStatus.FAILED
