"""Running and pausing: what an objective or a plan is told, and what that takes back."""

from collections.abc import Callable

from openclaw_a2a.planning.changes import update_objective
from openclaw_a2a.planning.draft import Change, Draft, Occasion, joined
from openclaw_a2a.planning.journal import ObjectiveUpdated, PlanUpdated
from openclaw_a2a.planning.objects import (
    OPEN,
    OVER,
    PAUSED,
    RUNNING,
    ObjectiveStatus,
    Plan,
    PlanId,
    PlanStatus,
)
from openclaw_a2a.planning.params import UpdateObjective, UpdatePlan
from openclaw_a2a.planning.plan_changes import update_plan
from openclaw_a2a.planning.state import ObjectiveState
from openclaw_a2a.planning.statuses import not_allowed

MODES = {"run": RUNNING, "pause": PAUSED, "resume": RUNNING}
"""What can be said, and what is noted then."""
Step = Callable[[ObjectiveState], Change]


def set_objective(state: ObjectiveState, mode: str, occasion: Occasion) -> Change:
    """Run or pause an objective.

    One that somebody had stopped goes on; one that failed tries again what failed. Raises:
    StatusChangeNotAllowed (it is over).
    """
    status = state.objective.status
    if status in OVER:
        raise not_allowed(
            ("objective", state.id), (status.value, mode), "it is over; make a new objective"
        )
    steps: list[Step] = []
    if mode == RUNNING:
        steps = _going_on(state, occasion)
    steps.append(lambda now: _noted(now, ObjectiveUpdated(state.id, run=mode), occasion))
    return joined(state, steps)


def _going_on(state: ObjectiveState, occasion: Occasion) -> list[Step]:
    """What must be taken back so that the objective goes on. Raises: StatusChangeNotAllowed."""
    status, plans = state.objective.status, state.plans.values()
    stopped = [one.id for one in plans if _is_stopped(state, one)]
    if plans and not stopped and not any(one.status in OPEN for one in plans):
        raise not_allowed(
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


def set_plan(state: ObjectiveState, plan_id: PlanId, mode: str, occasion: Occasion) -> Change:
    """Run or pause a plan. Raises: PlanItemNotFound, StatusChangeNotAllowed (it is over)."""
    plan = state.plan(plan_id)
    if plan.status in (PlanStatus.COMPLETED, PlanStatus.SKIPPED) or state.objective.status in OVER:
        raise not_allowed(("plan", plan_id), (plan.status.value, mode), "it is over")
    steps: list[Step] = []
    if mode == RUNNING and _is_stopped(state, plan):
        steps.append(_try_again(occasion, plan_id))
    steps.append(lambda now: _noted(now, PlanUpdated(plan_id, run=mode), occasion))
    return joined(state, steps)


def _update(occasion: Occasion, status: ObjectiveStatus) -> Step:
    return lambda now: update_objective(now, UpdateObjective(now.id, status=status), occasion)


def _try_again(occasion: Occasion, plan_id: PlanId) -> Step:
    wanted = UpdatePlan(plan_id, status=PlanStatus.PENDING)
    return lambda now: update_plan(now, wanted, occasion)


def _noted(state: ObjectiveState, fact: ObjectiveUpdated | PlanUpdated, now: Occasion) -> Change:
    draft = Draft.of(state, now.now)
    draft.record(fact)
    return draft.done()
