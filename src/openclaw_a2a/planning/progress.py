"""How far an objective is, what it waits for, and what can be begun."""

from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.message import Record
from openclaw_a2a.planning.moments import Moment
from openclaw_a2a.planning.objects import (
    ACTIVE,
    OPEN,
    WAITING,
    ObjectiveStatus,
    PlanId,
    PlanStatus,
    PlanTask,
    PlanTaskId,
    PlanTaskStatus,
)
from openclaw_a2a.planning.state import ObjectiveState

_MAY_BEGIN = frozenset(ObjectiveStatus) - {
    ObjectiveStatus.COMPLETED,
    ObjectiveStatus.CANCELED,
    ObjectiveStatus.FAILED,
}


class Step(Record, frozen=True):
    """A plan task that is under way, and since when it has its status."""

    task_id: PlanTaskId
    plan_id: PlanId
    name: str
    status: PlanTaskStatus
    since: Moment
    a2a_task_id: TaskId | None = None


class Progress(Record, frozen=True):
    """How many tasks of plans that are not skipped are completed; what runs, what waits longest."""

    done: int
    total: int
    percent: int
    current: tuple[Step, ...]
    oldest_waiting: Step | None = None


def progress(state: ObjectiveState) -> Progress:
    """How far the objective is."""
    counted = [
        task
        for task in state.tasks.values()
        if state.plans[task.plan_id].status is not PlanStatus.SKIPPED
    ]
    done = sum(task.status is PlanTaskStatus.COMPLETED for task in counted)
    waiting = [_step(state, task) for task in counted if task.status in WAITING]
    return Progress(
        done=done,
        total=len(counted),
        percent=_percent(state, done, len(counted)),
        current=tuple(_step(state, task) for task in counted if task.status in ACTIVE),
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
        if plan.status in OPEN
        and plan.id not in state.held
        and not state.unfinished_dependencies(plan)
        for task in state.tasks_of(plan.id)
        if state.is_ready(task)
    ]


def _step(state: ObjectiveState, task: PlanTask) -> Step:
    return Step(
        task_id=task.id,
        plan_id=task.plan_id,
        name=task.name,
        status=task.status,
        since=state.since[task.id],
        a2a_task_id=task.a2a_task_id,
    )


def _percent(state: ObjectiveState, done: int, total: int) -> int:
    """Whole percents; one hundred means all."""
    if not total:
        return 100 if state.objective.status is ObjectiveStatus.COMPLETED else 0
    return 100 * done // total
