"""Commands on plans and their tasks: from state and params to a change."""

import re
from collections.abc import Sequence

from openclaw_a2a.model.errors import DependencyNotValid, PlanLimitExceeded
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.planning.change_builder import Change, ChangeBuilder, CommandContext
from openclaw_a2a.planning.dag import check_acyclic
from openclaw_a2a.planning.model import (
    MESSAGE_KEY,
    PLAN_PREFIX,
    TASK_PREFIX,
    ObjectiveStatus,
    Plan,
    PlanId,
    PlanStatus,
    PlanTask,
    PlanTaskId,
    PlanTaskStatus,
)
from openclaw_a2a.planning.operations import (
    ObjectiveUpdated,
    PlanCreated,
    PlanTaskCreated,
    PlanTaskLinked,
    PlanTaskUpdated,
    PlanUpdated,
)
from openclaw_a2a.planning.params import AddTasks, CreatePlan, TaskEdit, TaskEntry, UpdatePlan
from openclaw_a2a.planning.rollup import roll_up
from openclaw_a2a.planning.state import ObjectiveState, not_found
from openclaw_a2a.planning.transitions import (
    OBJECTIVE_CLOSED,
    PLAN_DONE,
    PLAN_TRANSITIONS,
    TASK_FAILED,
    TASK_TRANSITIONS,
    check_not_modified,
    check_objective_open,
    check_transition,
    transition_error,
)

_ENTRY = re.compile(r"task-([0-9]{1,9})")
_HELD = frozenset({PlanStatus.BLOCKED, PlanStatus.FAILED})
_STARTS = frozenset({PlanStatus.PENDING, PlanStatus.WORKING})


def create_plan(
    state: ObjectiveState,
    params: CreatePlan,
    context: CommandContext,
    *,
    plan_id: PlanId | None = None,
) -> Change:
    """plans/create; with `plan_id`, which must be free, instead of a fresh id.

    Raises:
        StatusChangeNotAllowed: the objective is completed or canceled.
        PlanLimitExceeded: too many plans or tasks.
        DependencyNotValid: a dependency is unknown, or there is a cycle.
    """
    _check_accepts_plan(state, context)
    needed = tuple(dict.fromkeys(params.dependencies or ()))
    for needed_id in needed:
        if needed_id not in state.plans:
            raise _unknown_dependency("plan", needed_id, state)
    builder = ChangeBuilder.for_state(state, context.now)
    is_free = all(state.plans[needed_id].status in PLAN_DONE for needed_id in needed)
    created = PlanCreated(
        id=plan_id or PlanId(PLAN_PREFIX + context.new_id()),
        objective_id=state.id,
        name=params.name,
        description=params.description,
        status=PlanStatus.PENDING if is_free else PlanStatus.BLOCKED,
        dependencies=needed,
        metadata=params.metadata or {},
    )
    builder.record(created)
    _append_tasks(builder, created.id, params.tasks or (), context)
    if state.objective.status in (ObjectiveStatus.SUBMITTED, ObjectiveStatus.FAILED):
        builder.record(ObjectiveUpdated(state.id, status=ObjectiveStatus.PLANNING))
    check_acyclic(builder.state)
    roll_up(builder)
    return builder.build()


def add_tasks(state: ObjectiveState, params: AddTasks, context: CommandContext) -> Change:
    """plans/addTasks.

    Raises:
        PlanItemNotFound: there is no such plan.
        ChangedMeanwhile: the plan was changed since the caller read it.
        StatusChangeNotAllowed: the plan or its objective has ended.
        PlanLimitExceeded: too many tasks.
        DependencyNotValid: a dependency is unknown, or there is a cycle.
    """
    plan = state.plan(params.id)
    item, change = ("plan", plan.id), (plan.status.value, PlanStatus.WORKING.value)
    check_not_modified(item, plan.updated_at, params.if_updated_at)
    check_objective_open(state.objective, item, change)
    if plan.status in PLAN_DONE:
        raise transition_error(
            item, change, f"a {plan.status.value} plan takes no tasks; create a new one"
        )
    builder = ChangeBuilder.for_state(state, context.now)
    _append_tasks(builder, plan.id, params.tasks, context)
    check_acyclic(builder.state)
    roll_up(builder)
    return builder.build()


def update_plan(state: ObjectiveState, params: UpdatePlan, context: CommandContext) -> Change:
    """plans/update.

    A plan that is set to blocked or failed is held there until it is set to something else. A
    failed plan that is set to pending or working retries its failed tasks.

    Raises:
        PlanItemNotFound: there is no such plan, or it has no such task.
        ChangedMeanwhile: the plan was changed since the caller read it.
        StatusChangeNotAllowed: the transition is not in the table, the plan waits for others, or
            the objective is closed.
        DependencyNotValid: a dependency is unknown, or there is a cycle.
    """
    plan = state.plan(params.id)
    check_not_modified(("plan", plan.id), plan.updated_at, params.if_updated_at)
    builder = ChangeBuilder.for_state(state, context.now)
    edits = params.tasks or ()
    _edit_tasks(builder, plan, edits)
    status = None if params.status is plan.status else params.status
    if status is not None:
        _check_plan_transition(state, plan, status)
        if plan.status is PlanStatus.FAILED and status in _STARTS:
            _retry_failed_tasks(
                builder, plan, {edit.id for edit in edits if edit.status is not None}
            )
    builder.record(
        PlanUpdated(
            plan.id,
            name=params.name,
            description=params.description,
            metadata=params.metadata,
            status=status,
            held=status in _HELD,
        )
    )
    roll_up(builder)
    return builder.build()


def _check_accepts_plan(state: ObjectiveState, context: CommandContext) -> None:
    status = state.objective.status
    if status in OBJECTIVE_CLOSED:
        change = (status.value, ObjectiveStatus.PLANNING.value)
        raise transition_error(
            ("objective", state.id), change, "it is over; create a new objective"
        )
    most = context.limits.max_plans_per_objective
    if len(state.plans) >= most:
        raise PlanLimitExceeded(
            f"The objective {state.id} has {len(state.plans)} plans; the most are {most}. "
            "Add tasks to one of them, or create another objective.",
            details={"limit": "maxPlansPerObjective", "most": most},
        )


def _append_tasks(
    builder: ChangeBuilder, plan_id: PlanId, entries: Sequence[TaskEntry], context: CommandContext
) -> None:
    """Add tasks to a plan; their indexes continue those of the plan."""
    existing = builder.state.tasks_of(plan_id)
    most = context.limits.max_tasks_per_plan
    if len(existing) + len(entries) > most:
        raise PlanLimitExceeded(
            f"The plan {plan_id} would have {len(existing) + len(entries)} tasks; the most are "
            f"{most}. Create another plan for the rest.",
            details={"limit": "maxTasksPerPlan", "most": most},
        )
    ids = [PlanTaskId(TASK_PREFIX + context.new_id()) for _ in entries]
    first = existing[-1].task_index + 1 if existing else 0
    for place, (task_id, entry) in enumerate(zip(ids, entries, strict=True)):
        builder.record(
            PlanTaskCreated(
                id=task_id,
                plan_id=plan_id,
                objective_id=builder.state.id,
                name=entry.name,
                description=entry.description,
                task_index=first + place,
                dependencies=_resolve(builder.state, entry.dependencies or (), ids),
                metadata=entry.metadata or {},
            )
        )


def _resolve(
    state: ObjectiveState, dependencies: Sequence[PlanTaskId], entries: Sequence[PlanTaskId]
) -> tuple[PlanTaskId, ...]:
    """Real ids for dependencies: `task-<i>` is entry i of the request, anything else an id."""
    found: dict[PlanTaskId, None] = {}
    for needed in dependencies:
        match = _ENTRY.fullmatch(needed)
        if match and int(match[1]) < len(entries):
            found[entries[int(match[1])]] = None
        elif not match and (needed in state.tasks or needed in entries):
            found[needed] = None
        else:
            raise _unknown_dependency("task", needed, state)
    return tuple(found)


def _unknown_dependency(kind: str, needed: str, state: ObjectiveState) -> DependencyNotValid:
    shown = needed[:100]
    if _ENTRY.fullmatch(needed):
        hint = "It means an entry of the same request, counted from 0"
    else:
        hint = f"Name a {kind} of the same objective"
    return DependencyNotValid(
        f"The dependency {shown} is no {kind} of objective {state.id}. {hint}.",
        details={"kind": kind, "dependency": shown},
    )


def _edit_tasks(builder: ChangeBuilder, plan: Plan, edits: Sequence[TaskEdit]) -> None:
    ids = [edit.id for edit in edits]
    for task_id in ids:
        if task_id not in builder.state.task_ids[plan.id]:
            raise not_found("task", task_id, within=f" in plan {plan.id}")
    for edit in edits:
        _edit_task(builder, edit, ids)
    if any(edit.dependencies is not None for edit in edits):
        check_acyclic(builder.state)


def _edit_task(builder: ChangeBuilder, edit: TaskEdit, entries: Sequence[PlanTaskId]) -> None:
    task = builder.state.tasks[edit.id]
    is_new_link = edit.a2a_task_id is not None and edit.a2a_task_id != task.a2a_task_id
    status = edit.status or (PlanTaskStatus.SUBMITTED if is_new_link else task.status)
    _check_task_transition(builder.state, task, status)
    needed = edit.dependencies
    builder.record(
        PlanTaskUpdated(
            edit.id,
            name=edit.name,
            description=edit.description,
            status=edit.status,
            dependencies=None if needed is None else _resolve(builder.state, needed, entries),
            metadata=None if edit.metadata is None else _replace_metadata(task, edit.metadata),
        )
    )
    if edit.a2a_task_id is not None and is_new_link:
        builder.record(PlanTaskLinked(edit.id, edit.a2a_task_id, status=status))


def _replace_metadata(task: PlanTask, metadata: JsonObject) -> JsonObject:
    """The new metadata, with the member that only the gateway writes kept as it was."""
    given = {name: value for name, value in metadata.items() if name != MESSAGE_KEY}
    message_id: Json = task.metadata.get(MESSAGE_KEY)
    return given if message_id is None else {**given, MESSAGE_KEY: message_id}


def _check_task_transition(state: ObjectiveState, task: PlanTask, new: PlanTaskStatus) -> None:
    if new is not task.status:
        item = ("task", task.id)
        check_objective_open(state.objective, item, (task.status.value, new.value))
        check_transition(TASK_TRANSITIONS, item, task.status, new)


def _check_plan_transition(state: ObjectiveState, plan: Plan, new: PlanStatus) -> None:
    item = ("plan", plan.id)
    check_objective_open(state.objective, item, (plan.status.value, new.value))
    check_transition(PLAN_TRANSITIONS, item, plan.status, new)
    waits_for = state.unfinished_dependencies(plan)
    if new in _STARTS and waits_for:
        why = f"it waits for {', '.join(waits_for)}"
        raise transition_error(item, (plan.status.value, new.value), why)


def _retry_failed_tasks(builder: ChangeBuilder, plan: Plan, explicit: set[PlanTaskId]) -> None:
    for task in builder.state.tasks_of(plan.id):
        if task.status in TASK_FAILED and task.id not in explicit:
            builder.record(PlanTaskUpdated(task.id, status=PlanTaskStatus.PENDING))
