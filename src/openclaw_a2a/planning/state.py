"""The state of one objective with its plans and tasks, and how operations change it.

A `Change` collects the operations of a command, which take effect together or not at all.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
from msgspec.structs import asdict, replace

from openclaw_a2a.model.errors import CorruptRecord, InvalidParams, PlanItemNotFound, Problem
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.planning import operations as ops
from openclaw_a2a.planning.model import (
    KIND_NAMES,
    LOCAL_OWNER,
    PAUSED,
    PLAN_DONE,
    PLAN_OPEN,
    PLAN_PREFIX,
    RUNNING,
    TASK_FAILED,
    TASK_PREFIX,
    Objective,
    ObjectiveId,
    Plan,
    PlanId,
    PlanLimits,
    PlanStatus,
    PlanTask,
    PlanTaskId,
    PlanTaskStatus,
    Timestamp,
    next_timestamp,
    to_timestamp,
)
from openclaw_a2a.planning.operations import Operation, decode_operation

_Key = TypeVar("_Key", bound=str)
_Item = TypeVar("_Item")
_Named = TypeVar("_Named", Plan, PlanTask, Plan | PlanTask)


class ObjectiveState(msgspec.Struct):
    """An objective after all operations of its log.

    Only `apply` modifies it, and only a copy that is not shared yet: a state that was published
    never changes. `task_ids` are the tasks of each plan in order of creation, `status_since` is
    when a task got its status, `attempts` how many A2A tasks it has had. `held` are the plans (and
    the objective itself) whose status a caller chose: the roll-up leaves it alone. `execution` is
    the mode of the objective and of plans, by id. `at_once` are the tasks whose next attempt
    a caller asked for: it waits for no back-off.
    """

    id: ObjectiveId
    objective: Objective
    owner: Scope
    seq: int
    at: Timestamp
    is_archived: bool = False
    plans: dict[PlanId, Plan] = {}
    tasks: dict[PlanTaskId, PlanTask] = {}
    task_ids: dict[PlanId, tuple[PlanTaskId, ...]] = {}
    status_since: dict[PlanTaskId, Timestamp] = {}
    attempts: dict[PlanTaskId, int] = {}
    execution: dict[str, str] = {}
    held: frozenset[str] = frozenset()
    at_once: frozenset[PlanTaskId] = frozenset()

    @property
    def is_held(self) -> bool:
        """True when a caller chose the objective's status, so that nothing starts by itself."""
        return self.id in self.held

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
        tasks = [self.tasks[task_id] for task_id in self.task_ids[plan_id]]
        return sorted(tasks, key=attrgetter("task_index"))

    def linked_to(self, a2a_task_id: TaskId) -> list[PlanTask]:
        """The plan tasks that the A2A task works on."""
        return [task for task in self.tasks.values() if task.a2a_task_id == a2a_task_id]

    def find_a2a_task(self, task_id: str) -> TaskId | None:
        """The A2A task of a step, by the id of the plan task or by its own id."""
        for task in self.tasks.values():
            if task_id in (task.id, task.a2a_task_id):
                return task.a2a_task_id
        return None

    def find_step(self, text: str) -> PlanTask:
        """The step that a person means. Raises: PlanItemNotFound, InvalidParams (several)."""
        return _find_one("task", [*self.tasks.values()], text)

    def find_item(self, text: str) -> Plan | PlanTask:
        """The plan or step that a person means. Raises: PlanItemNotFound, InvalidParams."""
        return _find_one("plan or task", [*self.plans.values(), *self.tasks.values()], text)

    def unfinished_dependencies(self, plan: Plan) -> list[PlanId]:
        """The plans that must be completed or skipped before this one may start."""
        return [
            plan_id
            for plan_id in plan.dependencies
            if plan_id not in self.plans or self.plans[plan_id].status not in PLAN_DONE
        ]

    def unblocked_tasks(self, plan_id: PlanId) -> list[PlanTask]:
        """The pending tasks of a plan whose dependencies are completed, by their index."""
        # A log of another program may name tasks that do not exist; those are never completed.
        completed = {
            one.id for one in self.tasks.values() if one.status is PlanTaskStatus.COMPLETED
        }
        ready = [
            task
            for task in (self.tasks[task_id] for task_id in self.task_ids[plan_id])
            if task.status is PlanTaskStatus.PENDING and completed.issuperset(task.dependencies)
        ]
        return sorted(ready, key=attrgetter("task_index"))

    def lost_plans(self) -> frozenset[PlanId]:
        """The open plans in which nothing can ever start: all their tasks wait for failed ones.

        Plans with a question, a hold or no tasks are not among them: a person can continue those.
        """
        # What can never complete: what failed, then all that depends on it. Items mostly depend on
        # earlier ones, so a round or two are enough; a round that adds nothing is the last.
        dead: set[str] = {one.id for one in self.plans.values() if one.status is PlanStatus.FAILED}
        dead |= {one.id for one in self.tasks.values() if one.status in TASK_FAILED}
        known = self.plans.keys() | self.tasks.keys()

        def waits_in_vain(*needed: str) -> bool:
            # A log of another program may name what does not exist.
            return any(one in dead or one not in known for one in needed)

        size = -1
        while size < len(dead):
            size = len(dead)
            for task in self.tasks.values():
                plan = self.plans[task.plan_id]
                if task.status is PlanTaskStatus.PENDING and (
                    plan.status not in PLAN_OPEN
                    or waits_in_vain(*plan.dependencies, *task.dependencies)
                ):
                    dead.add(task.id)
            for plan in self.plans.values():
                needed = (*plan.dependencies, *self.task_ids[plan.id])
                if plan.status in PLAN_OPEN and waits_in_vain(*needed):
                    dead.add(plan.id)

        def is_lost(plan: Plan) -> bool:
            # A plan with a task that can never start continues with its other tasks.
            tasks = [self.tasks[one] for one in self.task_ids[plan.id]]
            is_open = [one.id for one in tasks if one.status is not PlanTaskStatus.COMPLETED]
            return plan.status in PLAN_OPEN and plan.id in dead and dead.issuperset(is_open)

        return frozenset(
            plan.id for plan in self.plans.values() if plan.id not in self.held and is_lost(plan)
        )

    def is_running(self, item_id: str) -> bool:
        """True when a plan, or the objective itself, is executed; a paused objective pauses all."""
        objective_mode = self.execution.get(self.id)
        own_mode = self.execution.get(item_id)
        return (own_mode or objective_mode) == RUNNING and objective_mode != PAUSED

    def plan_with_tasks(self, plan_id: PlanId, *, with_tasks: bool = True) -> Plan:
        """The plan with its tasks filled in. Raises: PlanItemNotFound."""
        plan = self.plan(plan_id)
        return replace(plan, tasks=tuple(self.tasks_of(plan_id))) if with_tasks else plan

    def to_objective(self, *, with_plans: bool = True, with_tasks: bool = True) -> Objective:
        """The objective with its plans filled in."""
        if not with_plans:
            return self.objective
        plans = tuple(
            self.plan_with_tasks(plan_id, with_tasks=with_tasks) for plan_id in self.plans
        )
        return replace(self.objective, plans=plans)

    def copy(self) -> "ObjectiveState":
        """A copy that shares no dict with this one."""
        members = asdict(self).items()
        return replace(self, **{name: {**one} for name, one in members if isinstance(one, dict)})


def match_items(items: Sequence[_Named], text: str) -> list[_Named]:
    """The plans and steps that a text may mean: by id, by name, or by the beginning of either.

    An exact match leaves out the others; ids may be given without `plan-` and `task-`.
    """
    wanted = text.strip().casefold()
    if not wanted:
        return []

    def names(one: _Named) -> Iterator[str]:
        yield one.id.casefold()
        yield one.id.removeprefix(PLAN_PREFIX).removeprefix(TASK_PREFIX).casefold()
        yield one.name.strip().casefold()
        if isinstance(one, PlanTask) and one.a2a_task_id is not None:
            yield one.a2a_task_id.casefold()

    exact = [one for one in items if wanted in names(one)]
    return exact or [one for one in items if any(each.startswith(wanted) for each in names(one))]


def _find_one(kind: str, items: Sequence[_Named], text: str) -> _Named:
    found = match_items(items, text)
    if not found:
        raise not_found(kind, text)
    if len(found) == 1:
        return found[0]
    listed = ", ".join(f"{one.id} ({one.name[:40]})" for one in found[:5])
    reason = f"{len(found)} of them are meant by {text[:80]}; name one by its id: {listed}"
    raise InvalidParams(f"step: {reason}", problems=(Problem("step", reason),))


def not_found(kind: str, item_id: str, *, within: str = "") -> PlanItemNotFound:
    """The error for an objective, plan or task that does not exist, or not in this place."""
    shown = item_id[:100]
    return PlanItemNotFound(
        f"There is no {KIND_NAMES.get(kind, kind)} {shown}{within}. "
        "List the objectives, or read this one, to see which there are.",
        details={"kind": kind, "id": shown},
    )


def apply(
    state: ObjectiveState | None, operation: Operation
) -> tuple[ObjectiveState | None, str | None]:
    """The state after an operation, and a warning when it does not fit.

    `state` is modified: pass a copy unless there is no other reference. Never fails: logs may come
    from other programs, and an operation that does not fit changes nothing but the sequence number.
    The state is None before the operation that creates the objective.
    """
    data, at = operation.data, operation.at
    if state is None:
        if isinstance(data, ops.ObjectiveCreated):
            return initial_state(data, operation), None
        return None, f"{data.op} comes before the objective was created; it is left out"
    warning = None
    if operation.seq != state.seq + 1:
        warning = f"{data.op} has number {operation.seq} after {state.seq}"
    try:
        plan_id = _HANDLERS[type(data)](state, data, at)
    except _Misfit as error:
        warning = f"{data.op}: {error}; it is left out"
    else:
        if plan_id is not None:
            plan = state.plans[plan_id]
            state.plans[plan_id] = replace(plan, updated_at=max(plan.updated_at, at))
        updated_at = max(state.objective.updated_at, at)
        state.objective = replace(state.objective, updated_at=updated_at)
    # Logs of other programs may jump back in number and time; we go on from the highest.
    state.seq, state.at = max(state.seq, operation.seq), max(state.at, at)
    return state, warning


def initial_state(data: ops.ObjectiveCreated, operation: Operation) -> ObjectiveState:
    """The state after the operation that creates the objective."""
    members, at = asdict(data), operation.at
    owner = members.pop("owner") or LOCAL_OWNER
    objective = Objective(**members, created_at=at, updated_at=at)
    return ObjectiveState(data.id, objective, owner, seq=operation.seq, at=at)


class ReplayResult(msgspec.Struct, frozen=True):
    """The outcome of a replay; there is no state when no line creates an objective."""

    state: ObjectiveState | None
    warnings: tuple[str, ...] = ()
    """One for each line that is not readable or does not fit."""


def replay(lines: Iterable[bytes]) -> ReplayResult:
    """The state after all lines of a log; those that are not readable or do not fit are skipped."""
    state: ObjectiveState | None = None
    warnings: list[str] = []
    for line in lines:
        if not line.strip():
            continue
        try:
            state, warning = apply(state, decode_operation(line))
        except CorruptRecord as error:
            warning = error.message
        if warning is not None:
            warnings.append(warning)
    return ReplayResult(state, tuple(warnings))


# ------------------------------------------------------------- one handler per kind of operation
#
# Each modifies the state, and returns the plan whose `updated_at` advances with the objective's.


class _Misfit(Exception):
    """Why an operation does not fit the state; the state is as before."""


def _reject_second_creation(
    state: ObjectiveState, data: ops.ObjectiveCreated, _: Timestamp
) -> None:
    raise _Misfit(f"objective {data.id[:80]} cannot be created in the log of {state.id[:80]}")


def _update_objective(state: ObjectiveState, data: ops.ObjectiveUpdated, _: Timestamp) -> None:
    if data.id != state.id:
        raise _Misfit(f"there is no objective {data.id[:80]} in this log")
    state.objective = replace(state.objective, **_changed_members(data))
    _set_mode(state, data)


def _create_plan(state: ObjectiveState, data: ops.PlanCreated, at: Timestamp) -> None:
    if data.id in state.plans:
        raise _Misfit(f"there is a plan {data.id[:80]} already")
    members: dict[str, Any] = {**asdict(data), "objective_id": state.id}
    state.plans[data.id] = Plan(**members, created_at=at, updated_at=at)
    state.task_ids[data.id] = ()


def _update_plan(state: ObjectiveState, data: ops.PlanUpdated, _: Timestamp) -> PlanId:
    plan = _existing(state.plans, "plan", data.id)
    state.plans[data.id] = replace(plan, **_changed_members(data))
    _set_mode(state, data)
    return data.id


def _create_task(state: ObjectiveState, data: ops.PlanTaskCreated, at: Timestamp) -> PlanId:
    task_ids = _existing(state.task_ids, "plan", data.plan_id)
    if data.id in state.tasks:
        raise _Misfit(f"there is a task {data.id[:80]} already")
    index = len(task_ids) if data.task_index is None else data.task_index
    members: dict[str, Any] = {**asdict(data), "objective_id": state.id, "task_index": index}
    state.tasks[data.id] = PlanTask(**members)
    state.task_ids[data.plan_id] = (*task_ids, data.id)
    state.status_since[data.id] = at
    return data.plan_id


def _update_task(state: ObjectiveState, data: ops.PlanTaskUpdated, at: Timestamp) -> PlanId:
    old = _existing(state.tasks, "task", data.id)
    new = replace(old, **_changed_members(data))
    if data.status is PlanTaskStatus.PENDING:
        # The next attempt is another A2A task; late reports of this one find no step.
        new = replace(new, a2a_task_id=None)
    if new.status is not old.status:
        state.status_since[data.id] = at
        state.at_once = state.at_once | {data.id} if data.at_once else state.at_once - {data.id}
    state.tasks[data.id] = new
    return new.plan_id


def _link_task(state: ObjectiveState, data: ops.PlanTaskLinked, at: Timestamp) -> PlanId:
    task = _existing(state.tasks, "task", data.id)
    state.tasks[data.id] = replace(task, a2a_task_id=data.a2a_task_id, status=data.status)
    state.status_since[data.id] = at
    state.attempts[data.id] = state.attempts.get(data.id, 0) + 1
    state.at_once -= {data.id}
    return task.plan_id


def _archive(state: ObjectiveState, data: ops.ObjectiveArchived, _: Timestamp) -> None:
    if data.id not in (None, state.id):
        raise _Misfit(f"there is no objective {str(data.id)[:80]} in this log")
    state.is_archived = True


def _skip(_: ObjectiveState, data: ops.UnknownOperation, __: Timestamp) -> None:
    raise _Misfit(f"an operation {data.op[:80]!r} is not known here")


_HANDLERS: dict[type, Callable[[ObjectiveState, Any, Timestamp], PlanId | None]] = {
    ops.ObjectiveCreated: _reject_second_creation,
    ops.ObjectiveUpdated: _update_objective,
    ops.PlanCreated: _create_plan,
    ops.PlanUpdated: _update_plan,
    ops.PlanTaskCreated: _create_task,
    ops.PlanTaskUpdated: _update_task,
    ops.PlanTaskLinked: _link_task,
    ops.ObjectiveArchived: _archive,
    ops.UnknownOperation: _skip,
}


def _existing(items: dict[_Key, _Item], kind: str, key: _Key) -> _Item:
    if key not in items:
        raise _Misfit(f"there is no {kind} {key[:80]}")
    return items[key]


def _changed_members(
    data: ops.ObjectiveUpdated | ops.PlanUpdated | ops.PlanTaskUpdated,
) -> dict[str, Any]:
    """The members of the item that the operation changes; those left out stay."""
    members = asdict(data).items()
    return {
        name: value
        for name, value in members
        if value is not None and name not in ("id", "held", "run", "at_once")
    }


def _set_mode(state: ObjectiveState, data: ops.ObjectiveUpdated | ops.PlanUpdated) -> None:
    if data.run is not None:
        state.execution[data.id] = data.run
    # Every status that is set decides about the hold: one without `held` releases the item.
    if data.status is not None:
        state.held = state.held | {data.id} if data.held else state.held - {data.id}


class CommandContext(msgspec.Struct, frozen=True):
    """What a command needs from outside: the time, fresh ids (without prefix), the limits."""

    now: datetime
    new_id: Callable[[], str]
    limits: PlanLimits = PlanLimits()


class Change:
    """Operations to append to the log together, all with the same time; `state` is after them.

    Commands record operations here and see their effect in `state`. The state that the change
    started from is not modified: a command that raises half-way leaves nothing behind.
    """

    def __init__(
        self, state: ObjectiveState, context: CommandContext, operations: Iterable[Operation] = ()
    ) -> None:
        self.state = state.copy()
        self.context = context
        self.operations = list(operations)
        # After all earlier operations, even if the clock was set back: `updatedAt` must advance.
        self._at = next_timestamp(state.at, to_timestamp(context.now))

    def record(self, data: ops.AnyOperationData) -> None:
        """Add an operation."""
        operation = Operation(self.state.seq + 1, self._at, data)
        # Commands check before they record, so there is no misfit to report.
        apply(self.state, operation)
        self.operations.append(operation)
