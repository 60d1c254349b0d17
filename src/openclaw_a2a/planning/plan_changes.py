"""What callers change about plans and their tasks: from state and params to operations."""

import re
from collections.abc import Sequence

from openclaw_a2a.model.errors import DependencyNotValid, PlanLimitExceeded
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.planning.draft import Change, Draft, Occasion
from openclaw_a2a.planning.graph import check_no_circle
from openclaw_a2a.planning.journal import (
    ObjectiveUpdated,
    PlanCreated,
    PlanUpdated,
    TaskCreated,
    TaskLinked,
    TaskUpdated,
)
from openclaw_a2a.planning.objects import (
    DONE,
    FAILED,
    MESSAGE_KEY,
    OVER,
    PLAN_CHANGES,
    PLAN_PREFIX,
    TASK_CHANGES,
    TASK_PREFIX,
    ObjectiveStatus,
    Plan,
    PlanId,
    PlanStatus,
    PlanTask,
    PlanTaskId,
    PlanTaskStatus,
)
from openclaw_a2a.planning.params import AddTasks, CreatePlan, TaskEdit, TaskEntry, UpdatePlan
from openclaw_a2a.planning.rollup import settle
from openclaw_a2a.planning.state import ObjectiveState, not_found
from openclaw_a2a.planning.statuses import check_as_read, check_goes_on, check_step, not_allowed

_ENTRY = re.compile(r"task-([0-9]{1,9})")
_HELD = frozenset({PlanStatus.BLOCKED, PlanStatus.FAILED})
_BEGINS = frozenset({PlanStatus.PENDING, PlanStatus.WORKING})


def create_plan(
    state: ObjectiveState,
    params: CreatePlan,
    occasion: Occasion,
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
    draft = Draft.of(state, occasion.now)
    is_free = all(state.plans[needed_id].status in DONE for needed_id in needed)
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
    check_no_circle(draft.state)
    settle(draft)
    return draft.done()


def add_tasks(state: ObjectiveState, params: AddTasks, occasion: Occasion) -> Change:
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
    check_as_read(item, plan.updated_at, params.if_updated_at)
    check_goes_on(state, item, change)
    if plan.status in DONE:
        raise not_allowed(
            item, change, f"a {plan.status.value} plan takes no tasks; make a new one"
        )
    draft = Draft.of(state, occasion.now)
    _append(draft, plan.id, params.tasks, occasion)
    check_no_circle(draft.state)
    settle(draft)
    return draft.done()


def update_plan(state: ObjectiveState, params: UpdatePlan, occasion: Occasion) -> Change:
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
    check_as_read(("plan", plan.id), plan.updated_at, params.if_updated_at)
    draft = Draft.of(state, occasion.now)
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
    return draft.done()


def _check_takes_plans(state: ObjectiveState, occasion: Occasion) -> None:
    status = state.objective.status
    if status in OVER:
        change = (status.value, ObjectiveStatus.PLANNING.value)
        raise not_allowed(("objective", state.id), change, "it is over; make a new objective")
    most = occasion.limits.max_plans_per_objective
    if len(state.plans) >= most:
        raise PlanLimitExceeded(
            f"The objective {state.id} has {len(state.plans)} plans; the most are {most}. "
            "Add tasks to one of them, or make another objective.",
            details={"limit": "maxPlansPerObjective", "most": most},
        )


def _append(
    draft: Draft, plan_id: PlanId, entries: Sequence[TaskEntry], occasion: Occasion
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
            TaskCreated(
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


def _edit_tasks(draft: Draft, plan: Plan, edits: Sequence[TaskEdit]) -> None:
    ids = [edit.id for edit in edits]
    for task_id in ids:
        if task_id not in draft.state.steps[plan.id]:
            raise not_found("task", task_id, within=f" in plan {plan.id}")
    for edit in edits:
        _edit_task(draft, edit, ids)
    if any(edit.dependencies is not None for edit in edits):
        check_no_circle(draft.state)


def _edit_task(draft: Draft, edit: TaskEdit, entries: Sequence[PlanTaskId]) -> None:
    task = draft.state.tasks[edit.id]
    is_new_link = edit.a2a_task_id is not None and edit.a2a_task_id != task.a2a_task_id
    status = edit.status or (PlanTaskStatus.SUBMITTED if is_new_link else task.status)
    _check_task_step(draft.state, task, status)
    needed = edit.dependencies
    draft.record(
        TaskUpdated(
            edit.id,
            name=edit.name,
            description=edit.description,
            status=edit.status,
            dependencies=None if needed is None else _resolve(draft.state, needed, entries),
            metadata=None if edit.metadata is None else _kept(task, edit.metadata),
        )
    )
    if edit.a2a_task_id is not None and is_new_link:
        draft.record(TaskLinked(edit.id, edit.a2a_task_id, status=status))


def _kept(task: PlanTask, metadata: JsonObject) -> JsonObject:
    """The new metadata; which message made the step is not the caller's to say."""
    own = {name: value for name, value in metadata.items() if name != MESSAGE_KEY}
    made_for: Json = task.metadata.get(MESSAGE_KEY)
    return own if made_for is None else {**own, MESSAGE_KEY: made_for}


def _check_task_step(state: ObjectiveState, task: PlanTask, new: PlanTaskStatus) -> None:
    if new is not task.status:
        item = ("task", task.id)
        check_goes_on(state, item, (task.status.value, new.value))
        check_step(TASK_CHANGES, item, task.status, new)


def _check_plan_step(state: ObjectiveState, plan: Plan, new: PlanStatus) -> None:
    item = ("plan", plan.id)
    check_goes_on(state, item, (plan.status.value, new.value))
    check_step(PLAN_CHANGES, item, plan.status, new)
    waits_for = state.unfinished_dependencies(plan)
    if new in _BEGINS and waits_for:
        why = f"it waits for {', '.join(waits_for)}"
        raise not_allowed(item, (plan.status.value, new.value), why)


def _try_again(draft: Draft, plan: Plan, decided: set[PlanTaskId]) -> None:
    for task in draft.state.tasks_of(plan.id):
        if task.status in FAILED and task.id not in decided:
            draft.record(TaskUpdated(task.id, status=PlanTaskStatus.PENDING))
