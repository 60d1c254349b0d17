"""How far an objective is, what it waits for, and what can be begun."""

from collections.abc import Mapping
from typing import cast

import msgspec

from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.engine.transcript.task_text import status_text
from openclaw_a2a.model.ids import JsonObject, TaskId
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.planning.model import (
    PLAN_OPEN,
    TASK_ACTIVE,
    TASK_FAILED,
    TASK_WAITING,
    ObjectiveStatus,
    PlanId,
    PlanStatus,
    PlanTask,
    PlanTaskId,
    PlanTaskStatus,
    Timestamp,
)
from openclaw_a2a.planning.operations import Operation, encode_line
from openclaw_a2a.planning.state import ObjectiveState
from openclaw_a2a.planning.step_message import ExecutionPolicy, pending_retries
from openclaw_a2a.ports import TaskStore

_MAY_BEGIN = frozenset(ObjectiveStatus) - {
    ObjectiveStatus.COMPLETED,
    ObjectiveStatus.CANCELED,
    ObjectiveStatus.FAILED,
}


class StepProgress(JsonStruct, frozen=True):
    """A plan task that is under way, and since when it has its status."""

    task_id: PlanTaskId
    plan_id: PlanId
    name: str
    status: PlanTaskStatus
    since: Timestamp
    a2a_task_id: TaskId | None = None


class Progress(JsonStruct, frozen=True):
    """How many tasks of plans that are not skipped are completed; what runs, what waits longest."""

    done: int
    total: int
    percent: int
    current: tuple[StepProgress, ...]
    oldest_waiting: StepProgress | None = None


def progress(state: ObjectiveState) -> Progress:
    """How far the objective is."""
    counted = [
        task
        for task in state.tasks.values()
        if state.plans[task.plan_id].status is not PlanStatus.SKIPPED
    ]
    done = sum(task.status is PlanTaskStatus.COMPLETED for task in counted)
    waiting = [_step(state, task) for task in counted if task.status in TASK_WAITING]
    return Progress(
        done=done,
        total=len(counted),
        percent=_percent(state, done, len(counted)),
        current=tuple(_step(state, task) for task in counted if task.status in TASK_ACTIVE),
        oldest_waiting=min(waiting, key=lambda step: step.since, default=None),
    )


def ready_tasks(state: ObjectiveState) -> list[PlanTask]:
    """The plan tasks that may begin now, in the order of plans and indexes.

    A plan that waits for an answer lets its other tasks begin; one that waits for other plans, or
    that somebody blocked, does not. Nothing begins in an objective that is over or held.
    """
    if state.is_held or state.objective.status not in _MAY_BEGIN:
        return []
    return [
        task
        for plan in state.plans.values()
        if plan.status in PLAN_OPEN
        and plan.id not in state.held
        and not state.unfinished_dependencies(plan)
        for task in state.tasks_of(plan.id)
        if state.is_ready(task)
    ]


def _step(state: ObjectiveState, task: PlanTask) -> StepProgress:
    return StepProgress(
        task_id=task.id,
        plan_id=task.plan_id,
        name=task.name,
        status=task.status,
        since=state.status_since[task.id],
        a2a_task_id=task.a2a_task_id,
    )


def _percent(state: ObjectiveState, done: int, total: int) -> int:
    """Whole percents; one hundred means all."""
    if not total:
        return 100 if state.objective.status is ObjectiveStatus.COMPLETED else 0
    return 100 * done // total


_TOLD = frozenset(status.value for status in TASK_WAITING | TASK_FAILED)
_MOST_WORDS = 1000


async def add_step_statements(
    store: TaskStore, shown: JsonObject, tried: Mapping[str, TaskId]
) -> JsonObject:
    """The objective, where steps that wait or failed have `said`: the question, or the reason.

    `tried` are the tasks that failed to do steps that are to be tried again.
    """
    for plan in cast("list[JsonObject]", shown.get("plans") or []):
        for task in cast("list[JsonObject]", plan.get("tasks") or []):
            told: str | None = task.get("a2aTaskId") if task["status"] in _TOLD else None
            task_id = tried.get(task["id"]) or told
            if task_id and (words := await _words(store, TaskId(task_id))):
                task["said"] = words
    return shown


async def _words(store: TaskStore, task_id: TaskId) -> str:
    stored = await store.read_task(None, task_id)
    return (
        ""
        if stored is None
        else status_text(TaskProjection.from_stored(stored).task())[:_MOST_WORDS]
    )


class ObjectiveView:
    """Shows objectives: their own members, and what can be said of them beyond these."""

    def __init__(self, rules: ExecutionPolicy) -> None:
        self._rules = rules

    def objective(
        self, state: ObjectiveState, *, with_plans: bool = True, with_tasks: bool = True
    ) -> JsonObject:
        """An objective with its progress, and whether it and its plans are run."""
        shown = to_json(state.show(with_plans=with_plans, with_tasks=with_tasks))
        shown["progress"] = self._progress(state)
        for item in (shown, *shown.get("plans", ())):
            _tell_run(item, state)
        return shown

    def objective_with_owner(self, state: ObjectiveState, *, with_plans: bool = True) -> JsonObject:
        """An objective, and to whom it belongs."""
        shown, owner = self.objective(state, with_plans=with_plans), state.owner
        if owner is not None:
            shown |= {"principal": owner.principal, "account": owner.account}
        return shown

    def plan(
        self, state: ObjectiveState, plan_id: PlanId, *, with_tasks: bool = True
    ) -> JsonObject:
        """A plan, and whether it is run."""
        shown = to_json(state.show_plan(plan_id, with_tasks=with_tasks))
        _tell_run(shown, state)
        return shown

    def change(self, operation: Operation, state: ObjectiveState) -> JsonObject:
        """Something that happened to an objective, and how it is then."""
        line = cast("JsonObject", msgspec.json.decode(encode_line(operation)))
        line["data"].pop("owner", None)
        status = state.objective.status.value
        return {"change": line, "status": status, "progress": self._progress(state)}

    def _progress(self, state: ObjectiveState) -> JsonObject:
        shown = to_json(progress(state))
        if retrying := pending_retries(state, self._rules):
            shown["retrying"] = [to_json(one) for one in retrying]
        return shown


def to_json(value: msgspec.Struct) -> JsonObject:
    """A struct as JSON has it."""
    return msgspec.to_builtins(value)


def _tell_run(shown: JsonObject, state: ObjectiveState) -> None:
    if shown["id"] in state.execution:
        shown["execution"] = state.execution[shown["id"]]
