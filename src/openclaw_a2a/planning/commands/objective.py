"""What callers change about an objective: from state and params to operations, all or nothing."""

from openclaw_a2a.model.errors import StatusChangeNotAllowed
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.planning.change_builder import Change, ChangeBuilder, CommandContext
from openclaw_a2a.planning.model import (
    OBJECTIVE_CLOSED,
    OBJECTIVE_PREFIX,
    OBJECTIVE_TRANSITIONS,
    ObjectiveId,
    ObjectiveStatus,
    PlanStatus,
)
from openclaw_a2a.planning.operations import ObjectiveCreated, ObjectiveUpdated, PlanUpdated
from openclaw_a2a.planning.params import CreateObjective, DeleteObjective, UpdateObjective
from openclaw_a2a.planning.rollup import cancel_open, running_tasks, settle
from openclaw_a2a.planning.state import ObjectiveState
from openclaw_a2a.planning.transitions import check_not_modified, check_transition, transition_error

_NOT_HELD = frozenset(
    {ObjectiveStatus.WORKING, ObjectiveStatus.COMPLETED, ObjectiveStatus.CANCELED}
)


def create_objective(
    params: CreateObjective,
    occasion: CommandContext,
    *,
    objective_id: ObjectiveId | None = None,
    owner: Scope | None = None,
) -> Change:
    """objectives/create, with an id of the caller's choice where it has one that is free."""
    fact = ObjectiveCreated(
        id=objective_id or ObjectiveId(OBJECTIVE_PREFIX + occasion.new_id()),
        name=params.name,
        description=params.description,
        metadata=params.metadata or {},
        owner=owner,
    )
    return ChangeBuilder.for_new_objective(fact, occasion.now).build()


def update_objective(
    state: ObjectiveState, params: UpdateObjective, occasion: CommandContext
) -> Change:
    """objectives/update.

    A status that is asked for is kept until somebody goes on: nothing begins in an objective that
    was set back or blocked, whatever its plans do. With `working` it goes on, and so do the plans
    that were blocked when it was stopped.

    Raises:
        ChangedMeanwhile: the objective is not as the caller has read it.
        StatusChangeNotAllowed: the table does not have the step.
    """
    check_not_modified(("objective", state.id), state.objective.updated_at, params.if_updated_at)
    draft = ChangeBuilder.for_state(state, occasion.now)
    status = None if params.status is state.objective.status else params.status
    if status is not None:
        check_transition(
            OBJECTIVE_TRANSITIONS, ("objective", state.id), state.objective.status, status
        )
    draft.record(
        ObjectiveUpdated(
            state.id,
            name=params.name,
            description=params.description,
            metadata=params.metadata,
            status=status,
            held=status is not None and status not in _NOT_HELD,
        )
    )
    if params.status is ObjectiveStatus.CANCELED:
        cancel_open(draft)
    if status is ObjectiveStatus.WORKING and state.is_held:
        _let_go_on(draft)
    settle(draft)
    return draft.build()


def replan(state: ObjectiveState, occasion: CommandContext) -> Change:
    """objectives/replan: what was under way is blocked, and nothing begins until somebody goes on.

    Raises:
        StatusChangeNotAllowed: the objective is completed or canceled.
    """
    status, planning = state.objective.status, ObjectiveStatus.PLANNING
    if status in OBJECTIVE_CLOSED:
        why = "it is over; make a new objective"
        raise transition_error(("objective", state.id), (status.value, planning.value), why)
    draft = ChangeBuilder.for_state(state, occasion.now)
    for plan in list(draft.state.plans.values()):
        is_blocked = plan.status is PlanStatus.BLOCKED
        is_waiting = is_blocked and not state.unfinished_dependencies(plan)
        if plan.status is PlanStatus.WORKING or is_waiting:
            draft.record(PlanUpdated(plan.id, status=PlanStatus.BLOCKED, held=True))
    if status is ObjectiveStatus.WORKING:
        draft.record(ObjectiveUpdated(state.id, status=ObjectiveStatus.BLOCKED))
    draft.record(ObjectiveUpdated(state.id, status=planning, held=True))
    return draft.build()


def check_delete(state: ObjectiveState, params: DeleteObjective) -> None:
    """Make sure that an objective may be deleted.

    Raises:
        StatusChangeNotAllowed: some are running, and they are not to be canceled.
    """
    running = running_tasks(state)
    if running and not params.cancel:
        raise _still_running(state, running)


def _let_go_on(draft: ChangeBuilder) -> None:
    """Plans that were blocked by hand go where their tasks are."""
    state = draft.state
    for plan in list(state.plans.values()):
        if plan.id in state.held and plan.status is PlanStatus.BLOCKED:
            draft.record(PlanUpdated(plan.id, status=PlanStatus.BLOCKED))


def _still_running(state: ObjectiveState, running: tuple[TaskId, ...]) -> StatusChangeNotAllowed:
    status = state.objective.status.value
    count = f"{len(running)} of its tasks are" if len(running) > 1 else "a task of it is"
    why = f"{count} running; wait, or delete with cancel: true"
    error = transition_error(("objective", state.id), (status, "deleted"), why)
    error.details["running"] = list(running)
    return error
