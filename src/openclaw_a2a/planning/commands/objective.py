"""Commands on objectives: from state and params to a change."""

from openclaw_a2a.model.errors import StatusChangeNotAllowed
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.planning.change_builder import Change, ChangeBuilder, CommandContext
from openclaw_a2a.planning.model import (
    OBJECTIVE_PREFIX,
    ObjectiveId,
    ObjectiveStatus,
    PlanStatus,
)
from openclaw_a2a.planning.operations import ObjectiveCreated, ObjectiveUpdated, PlanUpdated
from openclaw_a2a.planning.params import CreateObjective, DeleteObjective, UpdateObjective
from openclaw_a2a.planning.rollup import cancel_open, roll_up, running_tasks
from openclaw_a2a.planning.state import ObjectiveState
from openclaw_a2a.planning.transitions import (
    OBJECTIVE_CLOSED,
    OBJECTIVE_TRANSITIONS,
    check_not_modified,
    check_transition,
    transition_error,
)

_NOT_HELD = frozenset(
    {ObjectiveStatus.WORKING, ObjectiveStatus.COMPLETED, ObjectiveStatus.CANCELED}
)


def create_objective(
    params: CreateObjective,
    context: CommandContext,
    *,
    objective_id: ObjectiveId | None = None,
    owner: Scope | None = None,
) -> Change:
    """objectives/create; with `objective_id`, which must be free, instead of a fresh id."""
    created = ObjectiveCreated(
        id=objective_id or ObjectiveId(OBJECTIVE_PREFIX + context.new_id()),
        name=params.name,
        description=params.description,
        metadata=params.metadata or {},
        owner=owner,
    )
    return ChangeBuilder.for_new_objective(created, context.now).build()


def update_objective(
    state: ObjectiveState, params: UpdateObjective, context: CommandContext
) -> Change:
    """objectives/update.

    A status that a caller sets is held: nothing starts in an objective that was set back or
    blocked, whatever its plans do. `working` releases it, and the plans that were blocked with it.

    Raises:
        ChangedMeanwhile: the objective was changed since the caller read it.
        StatusChangeNotAllowed: the transition is not in the table.
    """
    check_not_modified(("objective", state.id), state.objective.updated_at, params.if_updated_at)
    builder = ChangeBuilder.for_state(state, context.now)
    status = None if params.status is state.objective.status else params.status
    if status is not None:
        check_transition(
            OBJECTIVE_TRANSITIONS, ("objective", state.id), state.objective.status, status
        )
    builder.record(
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
        cancel_open(builder)
    if status is ObjectiveStatus.WORKING and state.is_held:
        _release_plans(builder)
    roll_up(builder)
    return builder.build()


def replan(state: ObjectiveState, context: CommandContext) -> Change:
    """objectives/replan: block the plans that are under way, and start nothing until it is resumed.

    Raises:
        StatusChangeNotAllowed: the objective is completed or canceled.
    """
    status, planning = state.objective.status, ObjectiveStatus.PLANNING
    if status in OBJECTIVE_CLOSED:
        why = "it is over; create a new objective"
        raise transition_error(("objective", state.id), (status.value, planning.value), why)
    builder = ChangeBuilder.for_state(state, context.now)
    for plan in list(builder.state.plans.values()):
        is_blocked = plan.status is PlanStatus.BLOCKED
        is_waiting = is_blocked and not state.unfinished_dependencies(plan)
        if plan.status is PlanStatus.WORKING or is_waiting:
            builder.record(PlanUpdated(plan.id, status=PlanStatus.BLOCKED, held=True))
    if status is ObjectiveStatus.WORKING:
        builder.record(ObjectiveUpdated(state.id, status=ObjectiveStatus.BLOCKED))
    builder.record(ObjectiveUpdated(state.id, status=planning, held=True))
    return builder.build()


def check_delete(state: ObjectiveState, params: DeleteObjective) -> None:
    """Check that an objective may be deleted.

    Raises:
        StatusChangeNotAllowed: tasks of it are running, and `cancel` is not set.
    """
    running = running_tasks(state)
    if running and not params.cancel:
        raise _still_running(state, running)


def _release_plans(builder: ChangeBuilder) -> None:
    """Let the statuses of held blocked plans follow their tasks again."""
    state = builder.state
    for plan in list(state.plans.values()):
        if plan.id in state.held and plan.status is PlanStatus.BLOCKED:
            builder.record(PlanUpdated(plan.id, status=PlanStatus.BLOCKED))


def _still_running(state: ObjectiveState, running: tuple[TaskId, ...]) -> StatusChangeNotAllowed:
    status = state.objective.status.value
    count = f"{len(running)} of its tasks are" if len(running) > 1 else "a task of it is"
    why = f"{count} running; wait, or delete with cancel: true"
    error = transition_error(("objective", state.id), (status, "deleted"), why)
    error.details["running"] = list(running)
    return error
