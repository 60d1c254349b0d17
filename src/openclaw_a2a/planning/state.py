"""One objective with its plans and tasks: the sum of its operations."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from openclaw_a2a.model.errors import CorruptRecord, PlanItemNotFound
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.planning import operations
from openclaw_a2a.planning.model import (
    PAUSED,
    PLAN_DONE,
    RUNNING,
    Objective,
    ObjectiveId,
    Plan,
    PlanId,
    PlanTask,
    PlanTaskId,
    PlanTaskStatus,
    Timestamp,
)
from openclaw_a2a.planning.operations import Operation, decode_line


class ObjectiveState(msgspec.Struct, frozen=True):
    """An objective as its operations left it; changed only by `apply` and by drafts.

    `steps` are the tasks of each plan in the order they came, `since` says when a task got its
    status, `attempts` how many A2A tasks it has had, `held` which plans (and the objective
    itself) keep a status that somebody chose, whatever their tasks do.
    """

    objective: Objective
    plans: dict[PlanId, Plan]
    tasks: dict[PlanTaskId, PlanTask]
    task_ids: dict[PlanId, tuple[PlanTaskId, ...]]
    status_since: dict[PlanTaskId, Timestamp]
    attempts: dict[PlanTaskId, int]
    held: frozenset[str]
    seq: int
    at: Timestamp
    is_archived: bool = False
    owner: Scope | None = None
    execution: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """Whether the objective and plans are run, by their ids."""

    @property
    def id(self) -> ObjectiveId:
        """The objective's id."""
        return self.objective.id

    @property
    def is_held(self) -> bool:
        """True when the objective's status was chosen, and nothing is to go on by itself."""
        return self.objective.id in self.held

    def plan(self, plan_id: PlanId) -> Plan:
        """The plan with this id. Raises: PlanItemNotFound."""
        if plan_id not in self.plans:
            raise not_found("plan", plan_id)
        return self.plans[plan_id]

    def task(self, task_id: PlanTaskId) -> PlanTask:
        """The plan task with this id. Raises: PlanItemNotFound."""
        if task_id not in self.tasks:
            raise not_found("task", task_id)
        return self.tasks[task_id]

    def tasks_of(self, plan_id: PlanId) -> list[PlanTask]:
        """The tasks of a plan, by their index."""
        steps = [self.tasks[task_id] for task_id in self.task_ids[plan_id]]
        return sorted(steps, key=lambda task: task.task_index)

    def linked_to(self, a2a_task_id: TaskId) -> list[PlanTask]:
        """The plan tasks that the A2A task does."""
        return [task for task in self.tasks.values() if task.a2a_task_id == a2a_task_id]

    def unfinished_dependencies(self, plan: Plan) -> list[PlanId]:
        """The plans that must be completed or skipped before this one can begin."""
        return [
            plan_id
            for plan_id in plan.dependencies
            if plan_id not in self.plans or self.plans[plan_id].status not in PLAN_DONE
        ]

    def is_ready(self, task: PlanTask) -> bool:
        """True when the task is pending and everything it depends on is completed."""
        return task.status is PlanTaskStatus.PENDING and all(
            needed in self.tasks and self.tasks[needed].status is PlanTaskStatus.COMPLETED
            for needed in task.dependencies
        )

    def is_running(self, item_id: str) -> bool:
        """True when a plan, or the objective itself, is being run."""
        whole, own = self.execution.get(self.id), self.execution.get(item_id)
        return (own or whole) == RUNNING and whole != PAUSED

    def show_plan(self, plan_id: PlanId, *, with_tasks: bool = True) -> Plan:
        """The plan as callers see it. Raises: PlanItemNotFound."""
        plan = self.plan(plan_id)
        return replace(plan, tasks=tuple(self.tasks_of(plan_id))) if with_tasks else plan

    def show(self, *, with_plans: bool = True, with_tasks: bool = True) -> Objective:
        """The objective as callers see it."""
        if not with_plans:
            return self.objective
        plans = tuple(self.show_plan(plan_id, with_tasks=with_tasks) for plan_id in self.plans)
        return replace(self.objective, plans=plans)

    def copy(self) -> "ObjectiveState":
        """A copy that shares no dict with this one."""
        return replace(
            self,
            plans=dict(self.plans),
            tasks=dict(self.tasks),
            steps=dict(self.task_ids),
            since=dict(self.status_since),
            attempts=dict(self.attempts),
            runs=dict(self.execution),
        )


def not_found(kind: str, item_id: str, *, within: str = "") -> PlanItemNotFound:
    """The error for an objective, plan or task that is not there, or not in the right place."""
    shown = item_id[:100]
    return PlanItemNotFound(
        f"There is no {kind} {shown}{within}. "
        "See which there are with objectives/list and objectives/get.",
        details={"kind": kind, "id": shown},
    )


def apply(
    state: ObjectiveState | None, operation: Operation
) -> tuple[ObjectiveState | None, str | None]:
    """The state after the operation, and what was odd about it.

    Never fails: an operation that does not fit leaves the objective as it was. There is no state
    before the operation that creates the objective.
    """
    return apply_in_place(None if state is None else state.copy(), operation)


def apply_in_place(
    state: ObjectiveState | None, operation: Operation
) -> tuple[ObjectiveState | None, str | None]:
    """As `apply`, for a state that nobody else holds: its dicts are changed in place."""
    fact = operation.data
    if state is None:
        if isinstance(fact, operations.ObjectiveCreated):
            return initial_state(fact, operation), None
        return None, f"{fact.op} comes before the objective was created; it is left out"
    oddity = _order(state, operation)
    changed = _TAKERS[type(fact)](state, fact, operation.at)
    if isinstance(changed, str):
        oddity, changed = f"{fact.op}: {changed}; it is left out", state
    seq, at = max(state.seq, operation.seq), max(state.at, operation.at)
    return replace(changed, seq=seq, at=at), oddity


def initial_state(fact: operations.ObjectiveCreated, operation: Operation) -> ObjectiveState:
    """The state after the operation that creates the objective."""
    objective = Objective(
        id=fact.id,
        name=fact.name,
        description=fact.description,
        status=fact.status,
        metadata=fact.metadata,
        created_at=operation.at,
        updated_at=operation.at,
    )
    nobody: frozenset[str] = frozenset()
    return ObjectiveState(
        objective,
        {},
        {},
        {},
        {},
        {},
        nobody,
        seq=operation.seq,
        at=operation.at,
        owner=fact.owner,
    )


def _order(state: ObjectiveState, operation: Operation) -> str | None:
    if operation.seq == state.seq + 1:
        return None
    return f"{operation.data.op} has number {operation.seq} after {state.seq}"


def _touch(state: ObjectiveState, at: Timestamp, plan_id: PlanId | None = None) -> ObjectiveState:
    """What is above a change is younger for it, too."""
    if plan_id is not None:
        plan = state.plans[plan_id]
        state.plans[plan_id] = replace(plan, updated_at=max(plan.updated_at, at))
    objective = state.objective
    return replace(state, objective=replace(objective, updated_at=max(objective.updated_at, at)))


def _given(fact: operations.AnyOperationData, *names: str) -> dict[str, Any]:
    """The members that the fact has something to say about."""
    values = {name: getattr(fact, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def _hold(held: frozenset[str], item_id: str, is_held: bool) -> frozenset[str]:
    return held | {item_id} if is_held else held - {item_id}


def _create_objective(
    state: ObjectiveState, fact: operations.ObjectiveCreated, _: Timestamp
) -> ObjectiveState | str:
    return f"objective {fact.id[:80]} cannot be created in the journal of {state.id[:80]}"


def _update_objective(
    state: ObjectiveState, fact: operations.ObjectiveUpdated, at: Timestamp
) -> ObjectiveState | str:
    if fact.id != state.id:
        return f"there is no objective {fact.id[:80]} in this journal"
    changes = _given(fact, "name", "description", "status", "metadata")
    state = replace(state, objective=replace(state.objective, **changes))
    if fact.status is not None:
        state = replace(state, held=_hold(state.held, fact.id, fact.held))
    if fact.run is not None:
        state.execution[fact.id] = fact.run
    return _touch(state, at)


def _create_plan(
    state: ObjectiveState, fact: operations.PlanCreated, at: Timestamp
) -> ObjectiveState | str:
    if fact.id in state.plans:
        return f"there is a plan {fact.id[:80]} already"
    state.plans[fact.id] = Plan(
        id=fact.id,
        objective_id=state.id,
        name=fact.name,
        description=fact.description,
        status=fact.status,
        dependencies=fact.dependencies,
        metadata=fact.metadata,
        created_at=at,
        updated_at=at,
    )
    state.task_ids[fact.id] = ()
    return _touch(state, at)


def _update_plan(
    state: ObjectiveState, fact: operations.PlanUpdated, at: Timestamp
) -> ObjectiveState | str:
    if fact.id not in state.plans:
        return f"there is no plan {fact.id[:80]}"
    changes = _given(fact, "name", "description", "status", "metadata")
    state.plans[fact.id] = replace(state.plans[fact.id], **changes)
    if fact.status is not None:
        state = replace(state, held=_hold(state.held, fact.id, fact.held))
    if fact.run is not None:
        state.execution[fact.id] = fact.run
    return _touch(state, at, fact.id)


def _create_task(
    state: ObjectiveState, fact: operations.PlanTaskCreated, at: Timestamp
) -> ObjectiveState | str:
    if fact.plan_id not in state.plans:
        return f"there is no plan {fact.plan_id[:80]}"
    if fact.id in state.tasks:
        return f"there is a task {fact.id[:80]} already"
    steps = state.task_ids[fact.plan_id]
    state.tasks[fact.id] = PlanTask(
        id=fact.id,
        plan_id=fact.plan_id,
        objective_id=state.id,
        name=fact.name,
        description=fact.description,
        task_index=len(steps) if fact.task_index is None else fact.task_index,
        dependencies=fact.dependencies,
        status=fact.status,
        a2a_task_id=fact.a2a_task_id,
        metadata=fact.metadata,
    )
    state.task_ids[fact.plan_id] = (*steps, fact.id)
    state.status_since[fact.id] = at
    return _touch(state, at, fact.plan_id)


def _update_task(
    state: ObjectiveState, fact: operations.PlanTaskUpdated, at: Timestamp
) -> ObjectiveState | str:
    if fact.id not in state.tasks:
        return f"there is no task {fact.id[:80]}"
    old = state.tasks[fact.id]
    new = replace(old, **_given(fact, "name", "description", "status", "dependencies", "metadata"))
    if fact.status is PlanTaskStatus.PENDING:
        new = replace(new, a2a_task_id=None)
    if new.status is not old.status:
        state.status_since[fact.id] = at
    state.tasks[fact.id] = new
    return _touch(state, at, new.plan_id)


def _link_task(
    state: ObjectiveState, fact: operations.PlanTaskLinked, at: Timestamp
) -> ObjectiveState | str:
    if fact.id not in state.tasks:
        return f"there is no task {fact.id[:80]}"
    task = state.tasks[fact.id]
    state.tasks[fact.id] = replace(task, a2a_task_id=fact.a2a_task_id, status=fact.status)
    state.status_since[fact.id] = at
    state.attempts[fact.id] = state.attempts.get(fact.id, 0) + 1
    return _touch(state, at, task.plan_id)


def _archive(
    state: ObjectiveState, fact: operations.ObjectiveArchived, at: Timestamp
) -> ObjectiveState | str:
    if fact.id not in (None, state.id):
        return f"there is no objective {str(fact.id)[:80]} in this journal"
    return _touch(replace(state, is_archived=True), at)


def _skip(
    _: ObjectiveState, fact: operations.UnknownOperation, __: Timestamp
) -> ObjectiveState | str:
    return f"an operation {fact.op[:80]!r} is not known here"


_TAKERS: dict[type, Callable[[ObjectiveState, Any, Timestamp], ObjectiveState | str]] = {
    operations.ObjectiveCreated: _create_objective,
    operations.ObjectiveUpdated: _update_objective,
    operations.PlanCreated: _create_plan,
    operations.PlanUpdated: _update_plan,
    operations.PlanTaskCreated: _create_task,
    operations.PlanTaskUpdated: _update_task,
    operations.PlanTaskLinked: _link_task,
    operations.ObjectiveArchived: _archive,
    operations.UnknownOperation: _skip,
}


class ReplayWarning(msgspec.Struct, frozen=True):
    """Something odd in a journal. `is_last`: a last line that was probably cut off by a crash."""

    line: int
    message: str
    is_last: bool = False


class ReplayResult(msgspec.Struct, frozen=True):
    """What the lines gave; there is no state when none of them creates an objective."""

    state: ObjectiveState | None
    warnings: tuple[ReplayWarning, ...] = ()


def replay(lines: Iterable[bytes]) -> ReplayResult:
    """The objective after all lines; those that cannot be read or do not fit are left out."""
    state: ObjectiveState | None = None
    warnings: list[ReplayWarning] = []
    number = last = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        last = number
        try:
            operation = decode_line(line)
        except CorruptRecord as error:
            warnings.append(ReplayWarning(number, error.message, is_last=True))
            continue
        state, oddity = apply_in_place(state, operation)
        if oddity is not None:
            warnings.append(ReplayWarning(number, oddity))
    return ReplayResult(state, tuple(_only_last(warning, last) for warning in warnings))


def _only_last(warning: ReplayWarning, last: int) -> ReplayWarning:
    if warning.is_last and warning.line != last:
        return ReplayWarning(warning.line, warning.message)
    return warning
