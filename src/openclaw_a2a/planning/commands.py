"""Commands on objectives, plans and their tasks: each checks its params and records a change.

A command that raises leaves its `Change` half-made; the caller drops it.
"""

import re
from collections.abc import Iterator, Sequence

from openclaw_a2a.model.errors import DependencyNotValid, PlanLimitExceeded, StatusChangeNotAllowed
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.planning import operations as ops
from openclaw_a2a.planning import params as requests
from openclaw_a2a.planning.model import (
    MESSAGE_KEY,
    OBJECTIVE_CLOSED,
    OBJECTIVE_PREFIX,
    OBJECTIVE_TRANSITIONS,
    PAUSED,
    PLAN_DONE,
    PLAN_OPEN,
    PLAN_PREFIX,
    PLAN_TRANSITIONS,
    RUNNING,
    TASK_FAILED,
    TASK_PREFIX,
    TASK_TRANSITIONS,
    Item,
    ObjectiveId,
    ObjectiveStatus,
    Plan,
    PlanId,
    PlanStatus,
    PlanTask,
    PlanTaskId,
    PlanTaskStatus,
    check_not_modified,
    check_objective_open,
    check_transition,
    to_timestamp,
    transition_error,
)
from openclaw_a2a.planning.rollup import cancel_open, roll_up, running_tasks
from openclaw_a2a.planning.state import (
    Change,
    CommandContext,
    ObjectiveState,
    initial_state,
    not_found,
)

_NOT_FAILED = "only what failed is tried again"
_ENTRY = re.compile(r"task-([0-9]{1,9})")
_HELD = frozenset({PlanStatus.BLOCKED, PlanStatus.FAILED})
_STARTS = frozenset({PlanStatus.PENDING, PlanStatus.WORKING})
_NOT_HELD = frozenset(
    {ObjectiveStatus.WORKING, ObjectiveStatus.COMPLETED, ObjectiveStatus.CANCELED}
)


def create_objective(
    params: requests.CreateObjective,
    context: CommandContext,
    *,
    objective_id: ObjectiveId | None = None,
    owner: Scope | None = None,
) -> Change:
    """objectives/create; with `objective_id`, which must be free, instead of a fresh id."""
    created = ops.ObjectiveCreated(
        id=objective_id or ObjectiveId(OBJECTIVE_PREFIX + context.new_id()),
        name=params.name,
        description=params.description,
        metadata=params.metadata or {},
        owner=owner,
    )
    operation = ops.Operation(1, to_timestamp(context.now), created)
    return Change(initial_state(created, operation), context, [operation])


def update_objective(change: Change, params: requests.UpdateObjective) -> None:
    """objectives/update.

    A status that a caller sets is held: nothing starts in an objective that was set back or
    blocked, whatever its plans do. `working` releases it, and the plans that were blocked with it.

    Raises: ChangedMeanwhile (the objective was changed since the caller read it),
    StatusChangeNotAllowed (the transition is not in the table, or it would be completed while
    tasks of it are running).
    """
    state, old, item = change.state, change.state.objective, ("objective", change.state.id)
    check_not_modified(item, old.updated_at, params.if_updated_at)
    status = None if params.status is old.status else params.status
    if status is not None:
        check_transition(OBJECTIVE_TRANSITIONS, item, old.status, status)
    if status is ObjectiveStatus.COMPLETED:
        hint = "wait until they have ended, or cancel it"
        _check_idle(item, (old.status.value, status.value), running_tasks(state), hint)
    # Read before the operation below is recorded, which releases the hold.
    releases_plans = status is ObjectiveStatus.WORKING and state.is_held
    change.record(
        ops.ObjectiveUpdated(
            state.id,
            name=params.name,
            description=params.description,
            metadata=params.metadata,
            status=status,
            held=status is not None and status not in _NOT_HELD,
        )
    )
    if params.status is ObjectiveStatus.CANCELED:
        cancel_open(change)
    for plan in list(state.plans.values()) if releases_plans else ():
        if plan.id in state.held and plan.status is PlanStatus.BLOCKED:
            # Its status follows its tasks again.
            change.record(ops.PlanUpdated(plan.id, status=PlanStatus.BLOCKED))
    roll_up(change)


def replan(change: Change) -> None:
    """objectives/replan: block the plans that are under way, and start nothing until it is resumed.

    Raises: StatusChangeNotAllowed (the objective is completed or canceled).
    """
    state, status, planning = change.state, change.state.objective.status, ObjectiveStatus.PLANNING
    _check_not_closed(state, planning.value)
    for plan in list(state.plans.values()):
        is_blocked = plan.status is PlanStatus.BLOCKED
        is_waiting = is_blocked and not state.unfinished_dependencies(plan)
        if plan.status is PlanStatus.WORKING or is_waiting:
            change.record(ops.PlanUpdated(plan.id, status=PlanStatus.BLOCKED, held=True))
    # The table has no transition from working to planning, so it goes through blocked.
    if status is ObjectiveStatus.WORKING:
        change.record(ops.ObjectiveUpdated(state.id, status=ObjectiveStatus.BLOCKED))
    change.record(ops.ObjectiveUpdated(state.id, status=planning, held=True))


def _check_not_closed(state: ObjectiveState, new: str) -> None:
    status = state.objective.status
    if status in OBJECTIVE_CLOSED:
        why = "it is over; create a new objective"
        raise transition_error(("objective", state.id), (status.value, new), why)


def check_delete(state: ObjectiveState, params: requests.DeleteObjective) -> None:
    """Check that an objective may be deleted.

    Raises: StatusChangeNotAllowed (tasks of it are running, and `cancel` is not set).
    """
    if not params.cancel:
        change = (state.objective.status.value, "deleted")
        hint = "wait, or delete it with `cancel`"
        _check_idle(("objective", state.id), change, running_tasks(state), hint)


def _check_idle(item: Item, change: tuple[str, str], running: Sequence[TaskId], hint: str) -> None:
    if running:
        count = f"{len(running)} of its tasks are" if len(running) > 1 else "a task of it is"
        error = transition_error(item, change, f"{count} running; {hint}")
        error.details["running"] = list(running)
        raise error


# -------------------------------------------------------------------- dependencies


def check_acyclic(state: ObjectiveState) -> None:
    """Check that every plan and task can be completed.

    A task waits for the tasks it depends on and for the plans its plan depends on; a plan waits
    for its tasks and for the plans it depends on. So a cycle may lead through both.

    Raises: DependencyNotValid (there is a cycle; the message names it).
    """
    checked: set[str] = set()
    path: dict[str, Iterator[str]] = {}
    for start in (*state.plans, *state.tasks):
        # Depth-first, without recursion: hundreds of tasks may depend on each other.
        if start not in checked:
            path[start] = _dependencies(state, start)
        while path:
            node, remaining = next(reversed(path.items()))
            following = next((one for one in remaining if one not in checked), None)
            if following is None:
                checked.add(node)
                del path[node]
            elif following in path:
                nodes = list(path)
                raise _cycle([*nodes[nodes.index(following) :], following])
            else:
                path[following] = _dependencies(state, following)


def _dependencies(state: ObjectiveState, node: str) -> Iterator[str]:
    if node in state.plans:
        yield from state.task_ids[PlanId(node)]
        yield from state.plans[PlanId(node)].dependencies
    elif node in state.tasks:
        task = state.tasks[PlanTaskId(node)]
        yield from task.dependencies
        yield from state.plans[task.plan_id].dependencies


def _cycle(nodes: list[str]) -> DependencyNotValid:
    shown = " -> ".join(nodes if len(nodes) <= 8 else [*nodes[:4], "...", *nodes[-3:]])
    return DependencyNotValid(
        f"The dependencies lead in a circle: {shown}. Leave one of them out.",
        details={"circle": nodes},
    )


# -------------------------------------------------------------------- plans


def create_plan(
    change: Change, params: requests.CreatePlan, *, plan_id: PlanId | None = None
) -> PlanId:
    """plans/create; with `plan_id`, which must be free, instead of a fresh id.

    Raises:
        StatusChangeNotAllowed: the objective is completed or canceled.
        PlanLimitExceeded: too many plans or tasks.
        DependencyNotValid: a dependency is unknown, or there is a cycle.
    """
    state, most = change.state, change.context.limits.max_plans_per_objective
    status = state.objective.status
    _check_not_closed(state, ObjectiveStatus.PLANNING.value)
    if len(state.plans) >= most:
        raise PlanLimitExceeded(
            f"The objective {state.id} has {len(state.plans)} plans; the most are {most}. "
            "Add tasks to one of them, or create another objective (opt.maxPlansPerObjective).",
            details={
                "limit": "maxPlansPerObjective",
                "most": most,
                "setting": "opt.maxPlansPerObjective",
            },
        )
    needed = tuple(dict.fromkeys(params.dependencies or ()))
    for needed_id in needed:
        if needed_id not in state.plans:
            raise _unknown_dependency("plan", needed_id, state)
    is_free = all(state.plans[needed_id].status in PLAN_DONE for needed_id in needed)
    created = ops.PlanCreated(
        id=plan_id or PlanId(PLAN_PREFIX + change.context.new_id()),
        objective_id=state.id,
        name=params.name,
        description=params.description,
        status=PlanStatus.PENDING if is_free else PlanStatus.BLOCKED,
        dependencies=needed,
        metadata=params.metadata or {},
    )
    change.record(created)
    _append_tasks(change, created.id, params.tasks or ())
    if status in (ObjectiveStatus.SUBMITTED, ObjectiveStatus.FAILED):
        change.record(ops.ObjectiveUpdated(state.id, status=ObjectiveStatus.PLANNING))
    # On the changed state: if this raises, the caller drops the change with everything in it.
    check_acyclic(state)
    roll_up(change)
    return created.id


def add_tasks(
    change: Change, params: requests.AddTasks, *, task_id: PlanTaskId | None = None
) -> None:
    """plans/addTasks; with `task_id`, which must be free, instead of a fresh id for one task.

    Raises:
        PlanItemNotFound: there is no such plan.
        ChangedMeanwhile: the plan was changed since the caller read it.
        StatusChangeNotAllowed: the plan or its objective has ended.
        PlanLimitExceeded: too many tasks.
        DependencyNotValid: a dependency is unknown, or there is a cycle.
    """
    plan = change.state.plan(params.id)
    item, transition = ("plan", plan.id), (plan.status.value, PlanStatus.WORKING.value)
    check_not_modified(item, plan.updated_at, params.if_updated_at)
    check_objective_open(change.state.objective, item, transition)
    if plan.status in PLAN_DONE:
        why = f"a {plan.status.value} plan takes no tasks; create a new one"
        raise transition_error(item, transition, why)
    _append_tasks(change, plan.id, params.tasks, task_id=task_id)
    check_acyclic(change.state)
    roll_up(change)


def update_plan(change: Change, params: requests.UpdatePlan) -> None:
    """plans/update.

    A plan that is set to blocked or failed is held there until it is set to something else. A
    failed plan that is set to pending or working retries its failed tasks.

    Raises:
        PlanItemNotFound: there is no such plan, or it has no such task.
        ChangedMeanwhile: the plan was changed since the caller read it.
        StatusChangeNotAllowed: not in the table, the plan waits, the objective is closed, or it
            or a task of it would be completed while A2A tasks work on it.
        DependencyNotValid: a dependency is unknown, or there is a cycle.
    """
    state, plan, item = change.state, change.state.plan(params.id), ("plan", params.id)
    check_not_modified(item, plan.updated_at, params.if_updated_at)
    edits = params.tasks or ()
    ids = [edit.id for edit in edits]
    for task_id in ids:
        if task_id not in state.task_ids[plan.id]:
            raise not_found("task", task_id, within=f" in plan {plan.id}")
    for edit in edits:
        _edit_task(change, edit, ids)
    if any(edit.dependencies is not None for edit in edits):
        check_acyclic(state)
    status = None if params.status is plan.status else params.status
    if status is not None:
        _check_plan_transition(state, plan, status)
    if status is PlanStatus.COMPLETED:
        hint = "wait until they have ended, or cancel them"
        running = running_tasks(state, plan.id)
        _check_idle(item, (plan.status.value, status.value), running, hint)
    if plan.status is PlanStatus.FAILED and status in _STARTS:
        explicit = {edit.id for edit in edits if edit.status is not None}
        for task in state.tasks_of(plan.id):
            if task.status in TASK_FAILED and task.id not in explicit:
                change.record(
                    ops.PlanTaskUpdated(task.id, status=PlanTaskStatus.PENDING, at_once=True)
                )
    change.record(
        ops.PlanUpdated(
            plan.id,
            name=params.name,
            description=params.description,
            metadata=params.metadata,
            status=status,
            held=status in _HELD,
        )
    )
    roll_up(change)


def _append_tasks(
    change: Change,
    plan_id: PlanId,
    entries: Sequence[requests.TaskEntry],
    *,
    task_id: PlanTaskId | None = None,
) -> None:
    """Add tasks to a plan; their indexes continue those of the plan."""
    state, context = change.state, change.context
    existing, most = state.tasks_of(plan_id), context.limits.max_tasks_per_plan
    if len(existing) + len(entries) > most:
        raise PlanLimitExceeded(
            f"The plan {plan_id} would have {len(existing) + len(entries)} tasks; the most are "
            f"{most}. Create another plan for the rest (opt.maxTasksPerPlan).",
            details={"limit": "maxTasksPerPlan", "most": most, "setting": "opt.maxTasksPerPlan"},
        )
    ids = [task_id or PlanTaskId(TASK_PREFIX + context.new_id()) for _ in entries]
    first = existing[-1].task_index + 1 if existing else 0
    for index, entry in enumerate(entries):
        change.record(
            ops.PlanTaskCreated(
                id=ids[index],
                plan_id=plan_id,
                objective_id=state.id,
                name=entry.name,
                description=entry.description,
                task_index=first + index,
                dependencies=_resolve(state, entry.dependencies or (), ids),
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


def _edit_task(change: Change, edit: requests.TaskEdit, entries: Sequence[PlanTaskId]) -> None:
    state, task, item = change.state, change.state.tasks[edit.id], ("task", edit.id)
    is_new_link = edit.a2a_task_id is not None and edit.a2a_task_id != task.a2a_task_id
    status = edit.status or (PlanTaskStatus.SUBMITTED if is_new_link else task.status)
    if status is not task.status:
        check_objective_open(state.objective, item, (task.status.value, status.value))
        check_transition(TASK_TRANSITIONS, item, task.status, status)
    if status is PlanTaskStatus.COMPLETED:
        for running in running_tasks(state):
            if running == task.a2a_task_id:
                raise still_running(task, running)
    needed, metadata = edit.dependencies, edit.metadata
    if metadata is not None:
        # The member that only the gateway writes stays as it was.
        metadata = {name: value for name, value in metadata.items() if name != MESSAGE_KEY}
        if (message_id := task.metadata.get(MESSAGE_KEY)) is not None:
            metadata[MESSAGE_KEY] = message_id
    change.record(
        ops.PlanTaskUpdated(
            edit.id,
            name=edit.name,
            description=edit.description,
            status=edit.status,
            dependencies=None if needed is None else _resolve(state, needed, entries),
            metadata=metadata,
            at_once=True if edit.status is PlanTaskStatus.PENDING else None,
        )
    )
    if edit.a2a_task_id is not None and is_new_link:
        change.record(ops.PlanTaskLinked(edit.id, edit.a2a_task_id, status=status))


def still_running(task: PlanTask, a2a_task_id: TaskId) -> StatusChangeNotAllowed:
    """The error for a task that would be completed while an A2A task works on it."""
    change = (task.status.value, PlanTaskStatus.COMPLETED.value)
    why = f"its task {a2a_task_id} is running; wait until it has ended, or cancel it"
    return transition_error(("task", task.id), change, why)


def _check_plan_transition(state: ObjectiveState, plan: Plan, new: PlanStatus) -> None:
    item = ("plan", plan.id)
    check_objective_open(state.objective, item, (plan.status.value, new.value))
    check_transition(PLAN_TRANSITIONS, item, plan.status, new)
    waits_for = state.unfinished_dependencies(plan)
    if new in _STARTS and waits_for:
        why = f"it waits for {', '.join(waits_for)}"
        raise transition_error(item, (plan.status.value, new.value), why)


# -------------------------------------------------------------------- execution


def set_objective_execution(change: Change, mode: str) -> None:
    """Run or pause an objective.

    Running releases a held status, and retries what failed. Raises: StatusChangeNotAllowed (it is
    completed or canceled, or all its plans are over).
    """
    state, status = change.state, change.state.objective.status
    _check_not_closed(state, mode)
    if mode == RUNNING:
        plans = state.plans.values()
        stopped = [one.id for one in plans if _is_stopped(state, one)]
        if plans and not stopped and not any(one.status in PLAN_OPEN for one in plans):
            why = "all its plans are over; add one"
            raise transition_error(("objective", state.id), (status.value, RUNNING), why)
        updates = [requests.UpdatePlan(one, status=PlanStatus.PENDING) for one in stopped]
        _restart_plans(change, updates)
    change.record(ops.ObjectiveUpdated(state.id, run=mode))
    # An imported log may never have been rolled up: its caller must see what is stuck.
    roll_up(change)


def retry_plan(change: Change, plan_id: PlanId) -> None:
    """Retry the failed tasks of a plan, and run the objective.

    Raises: PlanItemNotFound, StatusChangeNotAllowed (it has not failed, or the objective is over).
    """
    state, plan = change.state, change.state.plan(plan_id)
    if not _is_stopped(state, plan):
        raise transition_error(("plan", plan_id), (plan.status.value, "pending"), _NOT_FAILED)
    _execute_again(change, requests.UpdatePlan(plan_id, status=PlanStatus.PENDING))


def retry_step(change: Change, task_id: PlanTaskId) -> None:
    """Retry one failed task, and run the objective.

    Raises: PlanItemNotFound, StatusChangeNotAllowed (it has not failed, other tasks of its plan
    failed too, or the objective is over).
    """
    state, task = change.state, change.state.task(task_id)
    plan, why = state.plan(task.plan_id), ""
    others = [one for one in state.tasks_of(plan.id) if one.status in TASK_FAILED and one != task]
    if task.status not in TASK_FAILED:
        why = _NOT_FAILED
    elif others:  # which would fail the plan again at once
        count = "another task" if len(others) == 1 else f"{len(others)} other tasks"
        why = f"{count} of its plan failed too; try the plan {plan.id} again"
    if why:
        raise transition_error(("task", task_id), (task.status.value, "pending"), why)
    edit = requests.TaskEdit(task_id, status=PlanTaskStatus.PENDING)
    status = PlanStatus.PENDING if _is_stopped(state, plan) else None
    _execute_again(change, requests.UpdatePlan(plan.id, status=status, tasks=(edit,)))


def _restart_plans(change: Change, updates: Sequence[requests.UpdatePlan]) -> None:
    """Update plans that are to run again, in an objective that may have failed or be held."""
    state, has_failed = change.state, change.state.objective.status is ObjectiveStatus.FAILED
    # Read before the plans are set back, because their roll-up may release the objective.
    must_release = state.is_held or has_failed
    if has_failed:
        _set_status(change, ObjectiveStatus.PLANNING)
    for update in updates:
        update_plan(change, update)
    if must_release:
        _set_status(change, ObjectiveStatus.WORKING)


def _execute_again(change: Change, update: requests.UpdatePlan) -> None:
    """Update a plan, and execute it with its objective, also one that was paused."""
    state = change.state
    _restart_plans(change, [update])
    if state.execution.get(update.id) == PAUSED:
        change.record(ops.PlanUpdated(update.id, run=RUNNING))
    change.record(ops.ObjectiveUpdated(state.id, run=RUNNING))


def set_plan_execution(change: Change, plan_id: PlanId, mode: str) -> None:
    """Run or pause a plan. Raises: PlanItemNotFound, StatusChangeNotAllowed (it is over)."""
    state, plan = change.state, change.state.plan(plan_id)
    if plan.status in PLAN_DONE or state.objective.status in OBJECTIVE_CLOSED:
        raise transition_error(("plan", plan_id), (plan.status.value, mode), "it is over")
    if mode == RUNNING and _is_stopped(state, plan):
        update_plan(change, requests.UpdatePlan(plan_id, status=PlanStatus.PENDING))
    change.record(ops.PlanUpdated(plan_id, run=mode))


def _set_status(change: Change, status: ObjectiveStatus) -> None:
    update_objective(change, requests.UpdateObjective(change.state.id, status=status))


def _is_stopped(state: ObjectiveState, plan: Plan) -> bool:
    """True when a plan failed, or a caller blocked it and it waits for no other plan."""
    is_held = plan.status is PlanStatus.BLOCKED and plan.id in state.held
    return plan.status is PlanStatus.FAILED or (is_held and not state.unfinished_dependencies(plan))
