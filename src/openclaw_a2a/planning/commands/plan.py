"""What callers change about plans and their tasks: from state and params to operations."""

import re
from collections.abc import Sequence

from openclaw_a2a.model.errors import DependencyNotValid, PlanLimitExceeded
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.planning.change_builder import Change, ChangeBuilder, CommandContext
from openclaw_a2a.planning.dag import check_acyclic
from openclaw_a2a.planning.model import (
    MESSAGE_KEY,
    OBJECTIVE_CLOSED,
    PLAN_DONE,
    PLAN_PREFIX,
    PLAN_TRANSITIONS,
    TASK_FAILED,
    TASK_PREFIX,
    TASK_TRANSITIONS,
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
from openclaw_a2a.planning.rollup import settle
from openclaw_a2a.planning.state import ObjectiveState, not_found
from openclaw_a2a.planning.transitions import (
    check_not_modified,
    check_objective_open,
    check_transition,
    transition_error,
)

_ENTRY = re.compile(r"task-([0-9]{1,9})")
_HELD = frozenset({PlanStatus.BLOCKED, PlanStatus.FAILED})
_BEGINS = frozenset({PlanStatus.PENDING, PlanStatus.WORKING})


def create_plan(
    state: ObjectiveState,
    params: CreatePlan,
    occasion: CommandContext,
    *,
    plan_id: PlanId | None = None,
) -> Change:
    """plans/create, with an id of the caller's choice where it has one that is free.

    Raises:
        StatusChangeNotAllowed: the objective is completed or canceled.
        PlanLimitExceeded: one plan, or one task, too many.
        DependencyNotValid: a dependency is unknown, or there is a circle.
    """
    _check_takes_plans(state, occasion)
    needed = tuple(dict.fromkeys(params.dependencies or ()))
    for needed_id in needed:
        if needed_id not in state.plans:
            raise _unknown("plan", needed_id, state)
    draft = ChangeBuilder.for_state(state, occasion.now)
    is_free = all(state.plans[needed_id].status in PLAN_DONE for needed_id in needed)
    created = PlanCreated(
        id=plan_id or PlanId(PLAN_PREFIX + occasion.new_id()),
        objective_id=state.id,
        name=params.name,
        description=params.description,
        status=PlanStatus.PENDING if is_free else PlanStatus.BLOCKED,
        dependencies=needed,
        metadata=params.metadata or {},
    )
    draft.record(created)
    _append(draft, created.id, params.tasks or (), occasion)
    if state.objective.status in (ObjectiveStatus.SUBMITTED, ObjectiveStatus.FAILED):
        draft.record(ObjectiveUpdated(state.id, status=ObjectiveStatus.PLANNING))
    check_acyclic(draft.state)
    settle(draft)
    return draft.build()


def add_tasks(state: ObjectiveState, params: AddTasks, occasion: CommandContext) -> Change:
    """plans/addTasks.

    Raises:
        PlanItemNotFound: there is no such plan.
        ChangedMeanwhile: the plan is not as the caller has read it.
        StatusChangeNotAllowed: the plan or its objective has ended.
        PlanLimitExceeded: one task too many.
        DependencyNotValid: a dependency is unknown, or there is a circle.
    """
    plan = state.plan(params.id)
    item, change = ("plan", plan.id), (plan.status.value, PlanStatus.WORKING.value)
    check_not_modified(item, plan.updated_at, params.if_updated_at)
    check_objective_open(state, item, change)
    if plan.status in PLAN_DONE:
        raise transition_error(
            item, change, f"a {plan.status.value} plan takes no tasks; make a new one"
        )
    draft = ChangeBuilder.for_state(state, occasion.now)
    _append(draft, plan.id, params.tasks, occasion)
    check_acyclic(draft.state)
    settle(draft)
    return draft.build()


def update_plan(state: ObjectiveState, params: UpdatePlan, occasion: CommandContext) -> Change:
    """plans/update.

    A plan that is set to blocked or failed stays so until it is set to something else. A failed
    plan that begins again tries its failed tasks again.

    Raises:
        PlanItemNotFound: there is no such plan, or it has no such task.
        ChangedMeanwhile: the plan is not as the caller has read it.
        StatusChangeNotAllowed: the table does not have the step, the plan waits for others, or
            the objective is over.
        DependencyNotValid: a dependency is unknown, or there is a circle.
    """
    plan = state.plan(params.id)
    check_not_modified(("plan", plan.id), plan.updated_at, params.if_updated_at)
    draft = ChangeBuilder.for_state(state, occasion.now)
    edits = params.tasks or ()
    _edit_tasks(draft, plan, edits)
    status = None if params.status is plan.status else params.status
    if status is not None:
        _check_plan_step(state, plan, status)
        if plan.status is PlanStatus.FAILED and status in _BEGINS:
            _try_again(draft, plan, {edit.id for edit in edits if edit.status is not None})
    draft.record(
        PlanUpdated(
            plan.id,
            name=params.name,
            description=params.description,
            metadata=params.metadata,
            status=status,
            held=status in _HELD,
        )
    )
    settle(draft)
    return draft.build()


def _check_takes_plans(state: ObjectiveState, occasion: CommandContext) -> None:
    status = state.objective.status
    if status in OBJECTIVE_CLOSED:
        change = (status.value, ObjectiveStatus.PLANNING.value)
        raise transition_error(("objective", state.id), change, "it is over; make a new objective")
    most = occasion.limits.max_plans_per_objective
    if len(state.plans) >= most:
        raise PlanLimitExceeded(
            f"The objective {state.id} has {len(state.plans)} plans; the most are {most}. "
            "Add tasks to one of them, or make another objective.",
            details={"limit": "maxPlansPerObjective", "most": most},
        )


def _append(
    draft: ChangeBuilder, plan_id: PlanId, entries: Sequence[TaskEntry], occasion: CommandContext
) -> None:
    """Add tasks to a plan; their indexes continue."""
    there = draft.state.tasks_of(plan_id)
    most = occasion.limits.max_tasks_per_plan
    if len(there) + len(entries) > most:
        raise PlanLimitExceeded(
            f"The plan {plan_id} would have {len(there) + len(entries)} tasks; the most are "
            f"{most}. Make another plan for the rest.",
            details={"limit": "maxTasksPerPlan", "most": most},
        )
    ids = [PlanTaskId(TASK_PREFIX + occasion.new_id()) for _ in entries]
    first = there[-1].task_index + 1 if there else 0
    for place, (task_id, entry) in enumerate(zip(ids, entries, strict=True)):
        draft.record(
            PlanTaskCreated(
                id=task_id,
                plan_id=plan_id,
                objective_id=draft.state.id,
                name=entry.name,
                description=entry.description,
                task_index=first + place,
                dependencies=_resolve(draft.state, entry.dependencies or (), ids),
                metadata=entry.metadata or {},
            )
        )


def _resolve(
    state: ObjectiveState, dependencies: Sequence[PlanTaskId], entries: Sequence[PlanTaskId]
) -> tuple[PlanTaskId, ...]:
    """The ids that are meant: `task-<i>` is an entry of the request, all else an id."""
    found: dict[PlanTaskId, None] = {}
    for needed in dependencies:
        match = _ENTRY.fullmatch(needed)
        if match and int(match[1]) < len(entries):
            found[entries[int(match[1])]] = None
        elif not match and (needed in state.tasks or needed in entries):
            found[needed] = None
        else:
            raise _unknown("task", needed, state)
    return tuple(found)


def _unknown(kind: str, needed: str, state: ObjectiveState) -> DependencyNotValid:
    shown = needed[:100]
    if _ENTRY.fullmatch(needed):
        hint = "It means an entry of the same request, counted from 0"
    else:
        hint = f"Name a {kind} of the same objective"
    return DependencyNotValid(
        f"The dependency {shown} is no {kind} of objective {state.id}. {hint}.",
        details={"kind": kind, "dependency": shown},
    )


def _edit_tasks(draft: ChangeBuilder, plan: Plan, edits: Sequence[TaskEdit]) -> None:
    ids = [edit.id for edit in edits]
    for task_id in ids:
        if task_id not in draft.state.task_ids[plan.id]:
            raise not_found("task", task_id, within=f" in plan {plan.id}")
    for edit in edits:
        _edit_task(draft, edit, ids)
    if any(edit.dependencies is not None for edit in edits):
        check_acyclic(draft.state)


def _edit_task(draft: ChangeBuilder, edit: TaskEdit, entries: Sequence[PlanTaskId]) -> None:
    task = draft.state.tasks[edit.id]
    is_new_link = edit.a2a_task_id is not None and edit.a2a_task_id != task.a2a_task_id
    status = edit.status or (PlanTaskStatus.SUBMITTED if is_new_link else task.status)
    _check_task_step(draft.state, task, status)
    needed = edit.dependencies
    draft.record(
        PlanTaskUpdated(
            edit.id,
            name=edit.name,
            description=edit.description,
            status=edit.status,
            dependencies=None if needed is None else _resolve(draft.state, needed, entries),
            metadata=None if edit.metadata is None else _kept(task, edit.metadata),
        )
    )
    if edit.a2a_task_id is not None and is_new_link:
        draft.record(PlanTaskLinked(edit.id, edit.a2a_task_id, status=status))


def _kept(task: PlanTask, metadata: JsonObject) -> JsonObject:
    """The new metadata; which message made the step is not the caller's to say."""
    own = {name: value for name, value in metadata.items() if name != MESSAGE_KEY}
    made_for: Json = task.metadata.get(MESSAGE_KEY)
    return own if made_for is None else {**own, MESSAGE_KEY: made_for}


def _check_task_step(state: ObjectiveState, task: PlanTask, new: PlanTaskStatus) -> None:
    if new is not task.status:
        item = ("task", task.id)
        check_objective_open(state, item, (task.status.value, new.value))
        check_transition(TASK_TRANSITIONS, item, task.status, new)


def _check_plan_step(state: ObjectiveState, plan: Plan, new: PlanStatus) -> None:
    item = ("plan", plan.id)
    check_objective_open(state, item, (plan.status.value, new.value))
    check_transition(PLAN_TRANSITIONS, item, plan.status, new)
    waits_for = state.unfinished_dependencies(plan)
    if new in _BEGINS and waits_for:
        why = f"it waits for {', '.join(waits_for)}"
        raise transition_error(item, (plan.status.value, new.value), why)


def _try_again(draft: ChangeBuilder, plan: Plan, decided: set[PlanTaskId]) -> None:
    for task in draft.state.tasks_of(plan.id):
        if task.status in TASK_FAILED and task.id not in decided:
            draft.record(PlanTaskUpdated(task.id, status=PlanTaskStatus.PENDING))
