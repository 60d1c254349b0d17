"""What follows by itself: plan tasks mirror A2A tasks, plans their tasks, objectives their plans.

Everything is worked out from where things stand, never from what just happened: so it may be done
again at any time, and after a crash it ends where it would have ended. What somebody chose
(`held`) is left alone.
"""

from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.planning.change_builder import Change, ChangeBuilder, CommandContext
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
    PlanStatus,
    PlanTaskId,
    PlanTaskStatus,
    is_allowed,
    status_for_task_state,
)
from openclaw_a2a.planning.operations import (
    ObjectiveArchived,
    ObjectiveUpdated,
    PlanTaskLinked,
    PlanTaskUpdated,
    PlanUpdated,
)
from openclaw_a2a.planning.state import ObjectiveState
from openclaw_a2a.planning.transitions import (
    check_objective_open,
    check_transition,
    objective_path,
    plan_path,
)


def report_task(
    state: ObjectiveState,
    a2a_task_id: TaskId,
    now_in: TaskState,
    *,
    occasion: CommandContext,
    will_retry: bool = False,
) -> Change:
    """What follows from an A2A task being in this state now.

    `will_retry`: when that is a bad end, the plan task is pending again at once, and its plan
    does not fail. Reports of tasks that do nothing here, or that are older than what is known,
    change nothing.
    """
    draft = ChangeBuilder.for_state(state, occasion.now)
    status = status_for_task_state(now_in)
    will_retry = will_retry and state.objective.status not in OBJECTIVE_CLOSED
    if status is not None:
        for task in state.linked_to(a2a_task_id):
            is_news = status is not task.status and is_allowed(
                TASK_TRANSITIONS, task.status, status
            )
            # A bad end is left by another A2A task only; what this one says now came late.
            if is_news and task.status not in TASK_FAILED:
                draft.record(PlanTaskUpdated(task.id, status=status))
                if will_retry and status in TASK_FAILED:
                    draft.record(PlanTaskUpdated(task.id, status=PlanTaskStatus.PENDING))
    settle(draft)
    return draft.build()


def link_task(
    state: ObjectiveState, task_id: PlanTaskId, a2a_task_id: TaskId, *, occasion: CommandContext
) -> Change:
    """What follows from an A2A task doing the plan task from now on.

    Raises:
        PlanItemNotFound: there is no such plan task.
        StatusChangeNotAllowed: it is completed, or the objective is over.
    """
    task = state.task(task_id)
    check_objective_open(state, ("task", task_id), (task.status.value, "submitted"))
    draft = ChangeBuilder.for_state(state, occasion.now)
    if task.a2a_task_id != a2a_task_id:
        check_transition(TASK_TRANSITIONS, ("task", task_id), task.status, PlanTaskStatus.SUBMITTED)
        draft.record(PlanTaskLinked(task_id, a2a_task_id))
    settle(draft)
    return draft.build()


def settle(draft: ChangeBuilder) -> None:
    """Bring plans and objective to where their tasks are; a second time changes nothing."""
    if draft.state.objective.status is not ObjectiveStatus.CANCELED:
        # A plan that is done may set others free, and those yet others.
        for _ in range(len(draft.state.plans) + 1):
            if not _settle_plans(draft):
                break
    _settle_objective(draft)


def cancel_open(draft: ChangeBuilder) -> None:
    """End what is open in an objective that was canceled.

    Tasks under way follow when they have really ended. Done again, this does what a crash left
    undone.
    """
    for task in list(draft.state.tasks.values()):
        if task.status is PlanTaskStatus.PENDING:
            draft.record(PlanTaskUpdated(task.id, status=PlanTaskStatus.CANCELED))
    for plan in list(draft.state.plans.values()):
        if plan.status in PLAN_OPEN:
            is_working = plan.status is PlanStatus.WORKING
            ended = PlanStatus.FAILED if is_working else PlanStatus.SKIPPED
            draft.record(PlanUpdated(plan.id, status=ended))


def running_tasks(state: ObjectiveState) -> tuple[TaskId, ...]:
    """The A2A tasks of the objective that have not ended."""
    return tuple(
        task.a2a_task_id
        for task in state.tasks.values()
        if task.a2a_task_id is not None and task.status in TASK_ACTIVE | TASK_WAITING
    )


def _settle_plans(draft: ChangeBuilder) -> bool:
    changed = [_settle_plan(draft, plan) for plan in list(draft.state.plans.values())]
    return any(changed)


def _settle_plan(draft: ChangeBuilder, plan: Plan) -> bool:
    target = _plan_target(draft.state, plan)
    if target is plan.status:
        return False
    may_work = not draft.state.unfinished_dependencies(plan)
    way = plan_path(plan.status, target, may_work=may_work)
    for status in way:
        draft.record(PlanUpdated(plan.id, status=status))
    return bool(way)


def _plan_target(state: ObjectiveState, plan: Plan) -> PlanStatus:
    if plan.status in PLAN_DONE or plan.id in state.held:
        return plan.status
    statuses = [state.tasks[task_id].status for task_id in state.task_ids[plan.id]]
    if any(status in TASK_FAILED for status in statuses):
        return PlanStatus.FAILED
    if state.unfinished_dependencies(plan):
        return PlanStatus.FAILED if plan.status is PlanStatus.FAILED else PlanStatus.BLOCKED
    if not statuses:
        return PlanStatus.PENDING if plan.status is PlanStatus.BLOCKED else plan.status
    if _waits_for_other_plans(state, plan):
        return PlanStatus.BLOCKED
    return _target_of(plan.status, statuses)


def _waits_for_other_plans(state: ObjectiveState, plan: Plan) -> bool:
    """True when there is something to do, and all of it depends on tasks of other plans."""
    tasks = state.tasks_of(plan.id)
    is_at_rest = {task.status for task in tasks} <= {
        PlanTaskStatus.PENDING,
        PlanTaskStatus.COMPLETED,
    }
    has_more = any(task.status is PlanTaskStatus.PENDING for task in tasks)
    return is_at_rest and has_more and not any(state.is_ready(task) for task in tasks)


def _target_of(status: PlanStatus, tasks: list[PlanTaskStatus]) -> PlanStatus:
    """Where a plan with such tasks stands, none of them failed, and nothing else in its way."""
    if all(task is PlanTaskStatus.COMPLETED for task in tasks):
        return PlanStatus.COMPLETED
    if any(task in TASK_ACTIVE for task in tasks):
        return PlanStatus.WORKING
    if any(task in TASK_WAITING for task in tasks):
        return PlanStatus.BLOCKED
    if status in (PlanStatus.BLOCKED, PlanStatus.FAILED):
        has_begun = PlanTaskStatus.COMPLETED in tasks
        return PlanStatus.WORKING if has_begun else PlanStatus.PENDING
    return status


def _settle_objective(draft: ChangeBuilder) -> None:
    objective = draft.state.objective
    target = _objective_target(draft.state)
    if target is not objective.status:
        for status in objective_path(objective.status, target):
            draft.record(ObjectiveUpdated(objective.id, status=status))
    is_reached = draft.state.objective.status is ObjectiveStatus.COMPLETED
    if is_reached and not draft.state.is_archived:
        draft.record(ObjectiveArchived(objective.id))


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
    return _objective_of(status, plans)


def _objective_of(status: ObjectiveStatus, plans: set[PlanStatus]) -> ObjectiveStatus:
    """Where an objective with such plans stands, when none of them is working or skipped."""
    if plans == {PlanStatus.COMPLETED}:
        return ObjectiveStatus.COMPLETED
    if PlanStatus.PENDING in plans:
        # Something can be begun again, so it is neither blocked nor failed any more.
        if status is ObjectiveStatus.BLOCKED:
            return ObjectiveStatus.WORKING
        return ObjectiveStatus.PLANNING if status is ObjectiveStatus.FAILED else status
    if PlanStatus.BLOCKED in plans:
        return ObjectiveStatus.BLOCKED
    return ObjectiveStatus.FAILED
