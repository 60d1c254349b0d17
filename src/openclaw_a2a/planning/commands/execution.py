"""Commands that run and pause objectives and plans."""

from openclaw_a2a.planning.change_builder import (
    Change,
    ChangeBuilder,
    CommandContext,
    Step,
    chain_changes,
)
from openclaw_a2a.planning.commands.objective import update_objective
from openclaw_a2a.planning.commands.plan import update_plan
from openclaw_a2a.planning.model import (
    PAUSED,
    RUNNING,
    ObjectiveStatus,
    Plan,
    PlanId,
    PlanStatus,
)
from openclaw_a2a.planning.operations import ObjectiveUpdated, PlanUpdated
from openclaw_a2a.planning.params import UpdateObjective, UpdatePlan
from openclaw_a2a.planning.state import ObjectiveState
from openclaw_a2a.planning.transitions import (
    OBJECTIVE_CLOSED,
    PLAN_DONE,
    PLAN_OPEN,
    transition_error,
)

EXECUTION_ACTIONS = {"run": RUNNING, "pause": PAUSED, "resume": RUNNING}
"""The methods, and the execution mode that each sets."""


def set_objective_execution(state: ObjectiveState, mode: str, context: CommandContext) -> Change:
    """Run or pause an objective.

    Running releases a held status, and retries what failed. Raises: StatusChangeNotAllowed (it is
    completed or canceled).
    """
    status = state.objective.status
    if status in OBJECTIVE_CLOSED:
        raise transition_error(
            ("objective", state.id), (status.value, mode), "it is over; create a new objective"
        )
    steps: list[Step] = []
    if mode == RUNNING:
        steps = _release_steps(state, context)
    steps.append(lambda now: _set_mode(now, ObjectiveUpdated(state.id, run=mode), context))
    return chain_changes(state, steps)


def _release_steps(state: ObjectiveState, context: CommandContext) -> list[Step]:
    """The changes after which the objective can continue. Raises: StatusChangeNotAllowed."""
    status, plans = state.objective.status, state.plans.values()
    stopped = [one.id for one in plans if _is_stopped(state, one)]
    if plans and not stopped and not any(one.status in PLAN_OPEN for one in plans):
        raise transition_error(
            ("objective", state.id), (status.value, RUNNING), "all its plans are over; add one"
        )
    steps: list[Step] = []
    if status is ObjectiveStatus.FAILED:
        steps.append(_set_status(context, ObjectiveStatus.PLANNING))
    steps += [_retry_plan(context, plan_id) for plan_id in stopped]
    if state.is_held or status is ObjectiveStatus.FAILED:
        steps.append(_set_status(context, ObjectiveStatus.WORKING))
    return steps


def _is_stopped(state: ObjectiveState, plan: Plan) -> bool:
    """True when a plan failed, or a caller blocked it and it waits for no other plan."""
    is_held = plan.status is PlanStatus.BLOCKED and plan.id in state.held
    return plan.status is PlanStatus.FAILED or (is_held and not state.unfinished_dependencies(plan))


def set_plan_execution(
    state: ObjectiveState, plan_id: PlanId, mode: str, context: CommandContext
) -> Change:
    """Run or pause a plan. Raises: PlanItemNotFound, StatusChangeNotAllowed (it is over)."""
    plan = state.plan(plan_id)
    if plan.status in PLAN_DONE or state.objective.status in OBJECTIVE_CLOSED:
        raise transition_error(("plan", plan_id), (plan.status.value, mode), "it is over")
    steps: list[Step] = []
    if mode == RUNNING and _is_stopped(state, plan):
        steps.append(_retry_plan(context, plan_id))
    steps.append(lambda now: _set_mode(now, PlanUpdated(plan_id, run=mode), context))
    return chain_changes(state, steps)


def _set_status(context: CommandContext, status: ObjectiveStatus) -> Step:
    return lambda now: update_objective(now, UpdateObjective(now.id, status=status), context)


def _retry_plan(context: CommandContext, plan_id: PlanId) -> Step:
    wanted = UpdatePlan(plan_id, status=PlanStatus.PENDING)
    return lambda now: update_plan(now, wanted, context)


def _set_mode(
    state: ObjectiveState, data: ObjectiveUpdated | PlanUpdated, context: CommandContext
) -> Change:
    builder = ChangeBuilder.for_state(state, context.now)
    builder.record(data)
    return builder.build()
