"""Running and pausing: what an objective or a plan is told, and what that takes back."""

from collections.abc import Callable

from openclaw_a2a.planning.change_builder import (
    Change,
    ChangeBuilder,
    CommandContext,
    chain_changes,
)
from openclaw_a2a.planning.commands.objective import update_objective
from openclaw_a2a.planning.commands.plan import update_plan
from openclaw_a2a.planning.model import (
    OBJECTIVE_CLOSED,
    PAUSED,
    PLAN_OPEN,
    RUNNING,
    ObjectiveStatus,
    Plan,
    PlanId,
    PlanStatus,
)
from openclaw_a2a.planning.operations import ObjectiveUpdated, PlanUpdated
from openclaw_a2a.planning.params import UpdateObjective, UpdatePlan
from openclaw_a2a.planning.state import ObjectiveState
from openclaw_a2a.planning.transitions import transition_error

EXECUTION_ACTIONS = {"run": RUNNING, "pause": PAUSED, "resume": RUNNING}
"""What can be said, and what is noted then."""
Step = Callable[[ObjectiveState], Change]


def set_objective_execution(state: ObjectiveState, mode: str, occasion: CommandContext) -> Change:
    """Run or pause an objective.

    One that somebody had stopped goes on; one that failed tries again what failed. Raises:
    StatusChangeNotAllowed (it is over).
    """
    status = state.objective.status
    if status in OBJECTIVE_CLOSED:
        raise transition_error(
            ("objective", state.id), (status.value, mode), "it is over; make a new objective"
        )
    steps: list[Step] = []
    if mode == RUNNING:
        steps = _going_on(state, occasion)
    steps.append(lambda now: _noted(now, ObjectiveUpdated(state.id, run=mode), occasion))
    return chain_changes(state, steps)


def _going_on(state: ObjectiveState, occasion: CommandContext) -> list[Step]:
    """What must be taken back so that the objective goes on. Raises: StatusChangeNotAllowed."""
    status, plans = state.objective.status, state.plans.values()
    stopped = [one.id for one in plans if _is_stopped(state, one)]
    if plans and not stopped and not any(one.status in PLAN_OPEN for one in plans):
        raise transition_error(
            ("objective", state.id), (status.value, RUNNING), "all its plans are over; add one"
        )
    steps: list[Step] = []
    if status is ObjectiveStatus.FAILED:
        steps.append(_update(occasion, ObjectiveStatus.PLANNING))
    steps += [_try_again(occasion, plan_id) for plan_id in stopped]
    if state.is_held or status is ObjectiveStatus.FAILED:
        steps.append(_update(occasion, ObjectiveStatus.WORKING))
    return steps


def _is_stopped(state: ObjectiveState, plan: Plan) -> bool:
    """True when a plan failed, or was blocked by somebody and not by others it waits for."""
    is_held = plan.status is PlanStatus.BLOCKED and plan.id in state.held
    return plan.status is PlanStatus.FAILED or (is_held and not state.unfinished_dependencies(plan))


def set_plan_execution(
    state: ObjectiveState, plan_id: PlanId, mode: str, occasion: CommandContext
) -> Change:
    """Run or pause a plan. Raises: PlanItemNotFound, StatusChangeNotAllowed (it is over)."""
    plan = state.plan(plan_id)
    if (
        plan.status in (PlanStatus.COMPLETED, PlanStatus.SKIPPED)
        or state.objective.status in OBJECTIVE_CLOSED
    ):
        raise transition_error(("plan", plan_id), (plan.status.value, mode), "it is over")
    steps: list[Step] = []
    if mode == RUNNING and _is_stopped(state, plan):
        steps.append(_try_again(occasion, plan_id))
    steps.append(lambda now: _noted(now, PlanUpdated(plan_id, run=mode), occasion))
    return chain_changes(state, steps)


def _update(occasion: CommandContext, status: ObjectiveStatus) -> Step:
    return lambda now: update_objective(now, UpdateObjective(now.id, status=status), occasion)


def _try_again(occasion: CommandContext, plan_id: PlanId) -> Step:
    wanted = UpdatePlan(plan_id, status=PlanStatus.PENDING)
    return lambda now: update_plan(now, wanted, occasion)


def _noted(
    state: ObjectiveState, fact: ObjectiveUpdated | PlanUpdated, now: CommandContext
) -> Change:
    draft = ChangeBuilder.for_state(state, now.now)
    draft.record(fact)
    return draft.build()
