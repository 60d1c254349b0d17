"""Objectives, plans and their changes as JSON for callers, with progress and execution mode."""

from collections.abc import Mapping
from typing import cast

import msgspec
from msgspec import to_builtins

from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.engine.transcript.task_text import last_agent_text, status_text
from openclaw_a2a.model.ids import JsonObject, TaskId
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.planning.model import (
    OBJECTIVE_CLOSED,
    PLAN_DONE,
    PLAN_OPEN,
    TASK_ACTIVE,
    TASK_FAILED,
    TASK_WAITING,
    ObjectiveStatus,
    Plan,
    PlanId,
    PlanStatus,
    PlanTask,
    PlanTaskId,
    PlanTaskStatus,
    Timestamp,
)
from openclaw_a2a.planning.operations import Operation, encode_operation
from openclaw_a2a.planning.planner import REASON_KEY
from openclaw_a2a.planning.state import ObjectiveState
from openclaw_a2a.planning.steps import ExecutionPolicy, pending_retries
from openclaw_a2a.ports import TaskStore

_WITH_TEXT = frozenset(status.value for status in TASK_WAITING | TASK_FAILED)
_MAX_TEXT = 1000
_MAX_NAME = 60
_MAX_RESULT = 20_000


class StepProgress(JsonStruct, frozen=True):
    """A plan task that is active or waits, and since when it has its status."""

    task_id: PlanTaskId
    plan_id: PlanId
    name: str
    status: PlanTaskStatus
    since: Timestamp
    a2a_task_id: TaskId | None = None


class Progress(JsonStruct, frozen=True):
    """Counts over the tasks of all plans that are not skipped.

    A canceled objective skips its open plans; there they count, and show its progress.
    """

    done: int
    total: int
    percent: int
    current: tuple[StepProgress, ...]
    oldest_waiting: StepProgress | None = None


def progress(state: ObjectiveState) -> Progress:
    """The progress of an objective."""
    is_canceled = state.objective.status is ObjectiveStatus.CANCELED
    counted = [
        task
        for task in state.tasks.values()
        if is_canceled or state.plans[task.plan_id].status is not PlanStatus.SKIPPED
    ]
    done, total = sum(one.status is PlanTaskStatus.COMPLETED for one in counted), len(counted)
    # Rounded down: 100 percent means all.
    percent = 100 * done // (total or 1)
    if not total and state.objective.status is ObjectiveStatus.COMPLETED:
        percent = 100
    waiting = [_step(state, task) for task in counted if task.status in TASK_WAITING]
    return Progress(
        done=done,
        total=total,
        percent=percent,
        current=tuple(_step(state, task) for task in counted if task.status in TASK_ACTIVE),
        oldest_waiting=min(waiting, key=lambda step: step.since, default=None),
    )


def _step(state: ObjectiveState, task: PlanTask) -> StepProgress:
    since = state.status_since[task.id]
    return StepProgress(task.id, task.plan_id, task.name, task.status, since, task.a2a_task_id)


def status_reason(state: ObjectiveState) -> str | None:
    """Why an objective failed or is stuck, and what a person can do about it."""
    objective, plans = state.objective, state.plans.values()
    status, given = objective.status, objective.metadata.get(REASON_KEY)
    is_blocked = status is ObjectiveStatus.BLOCKED
    if status in OBJECTIVE_CLOSED:
        active = [one.name for one in state.tasks.values() if one.status in TASK_ACTIVE]
        return f"{_names('The step', active)} has not stopped yet." if active else None
    if status is ObjectiveStatus.FAILED:
        return _failure_reason(state)
    if is_blocked and isinstance(given, str):
        return given
    waiting = [task.name for task in state.tasks.values() if task.status in TASK_WAITING]
    if is_blocked and waiting:
        return f"{_names('The step', waiting)} waits for an answer; answer it."
    if is_blocked and state.is_held:
        return "It was set to blocked; run it, or set it to working."
    held = [one.name for one in plans if one.id in state.held and one.status is PlanStatus.BLOCKED]
    if is_blocked and held:
        return f"{_names('The plan', held)} was set to blocked; run it."
    is_stuck = is_blocked or state.is_running(state.id)
    empty = [one.name for one in plans if one.status in PLAN_OPEN and not state.task_ids[one.id]]
    if is_stuck and empty and not any(one.status is PlanStatus.WORKING for one in plans):
        return f"{_names('The plan', empty)} has no steps; add steps to it, or skip it."
    return None


def _failure_reason(state: ObjectiveState) -> str:
    failed = [plan for plan in state.plans.values() if plan.status is PlanStatus.FAILED]
    lost_ids = state.lost_plans()
    lost = [plan for plan in state.plans.values() if plan.id in lost_ids]
    stuck = [reason for plan in lost if (reason := _stuck_reason(state, plan)) is not None]
    if not failed and not state.is_held:
        return stuck[0] if stuck else "All its plans are skipped; add another plan."
    if not failed:
        return "It was set to failed; run it again, or add another plan."
    steps = [task.name for task in state.tasks_of(failed[0].id) if task.status in TASK_FAILED]
    at = f" at {_names('the step', steps)}" if steps else ""
    others = f", as did {len(failed) - 1} other plans" if len(failed) > 1 else ""
    waiting = [plan.name for plan in lost if _stuck_reason(state, plan) is None]
    waits = f" {_names('The plan', waiting)} waits for it." if waiting else ""
    return " ".join(
        (
            f"The plan {_short_name(failed[0].name)} failed{at}{others}.{waits}",
            "Run the objective again to retry what failed, or add another plan.",
            *stuck[:1],
        )
    )


def _stuck_reason(state: ObjectiveState, plan: Plan) -> str | None:
    """Why a plan cannot start even when everything that failed is retried."""
    name = _short_name(plan.name)
    waits, skip = f"The plan {name} waits for", f"skip the plan {name}"
    # A log of another program may name what does not exist.
    for needed_plan in plan.dependencies:
        if needed_plan not in state.plans:
            return f"{waits} the plan {_short_name(needed_plan)}, which does not exist; {skip}."
    for task in state.tasks_of(plan.id):
        change = f"Change the dependencies of its step {_short_name(task.name)}, or {skip}."
        for needed_id in task.dependencies:
            needed = state.tasks.get(needed_id)
            if needed is None:
                return f"{waits} the step {_short_name(needed_id)}, which does not exist. {change}"
            other = state.plans[needed.plan_id]
            if needed.status is not PlanTaskStatus.COMPLETED and other.status in PLAN_DONE:
                step = f"the step {_short_name(needed.name)} of the plan {_short_name(other.name)}"
                return f"{waits} {step}, which is {other.status.value}. {change}"
    return None


def _names(kind: str, names: list[str]) -> str:
    others = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    return f"{kind} {_short_name(names[0])}{others}"


def _short_name(name: str) -> str:
    return repr(name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…")


class ObjectiveView(msgspec.Struct, frozen=True):
    """Renders objectives: their members, plus `progress`, `execution` and `reason`."""

    policy: ExecutionPolicy

    def objective(
        self, state: ObjectiveState, *, with_plans: bool = True, with_tasks: bool = True
    ) -> JsonObject:
        """An objective for its owner."""
        objective = state.to_objective(with_plans=with_plans, with_tasks=with_tasks)
        shown: JsonObject = to_builtins(objective)
        shown["progress"] = self._progress(state)
        if (reason := status_reason(state)) is not None:
            shown["reason"] = reason
        for item in (shown, *shown.get("plans", ())):
            _add_execution(item, state)
        return shown

    def objective_with_owner(self, state: ObjectiveState, *, with_plans: bool = True) -> JsonObject:
        """An objective for the operator, with `principal` and `account` of its owner."""
        shown, owner = self.objective(state, with_plans=with_plans), state.owner
        return {**shown, "principal": owner.principal, "account": owner.account}

    def plan(
        self, state: ObjectiveState, plan_id: PlanId, *, with_tasks: bool = True
    ) -> JsonObject:
        """A plan for its owner."""
        shown: JsonObject = to_builtins(state.plan_with_tasks(plan_id, with_tasks=with_tasks))
        _add_execution(shown, state)
        return shown

    def change(self, operation: Operation, state: ObjectiveState) -> JsonObject:
        """An operation for subscribers, with status and progress of the newest state."""
        line = cast("JsonObject", msgspec.json.decode(encode_operation(operation)))
        # It names the principal of the caller, which is no member of an objective.
        line["data"].pop("owner", None)
        status = state.objective.status.value
        shown: JsonObject = {"change": line, "status": status, "progress": self._progress(state)}
        reason = status_reason(state)
        return shown if reason is None else {**shown, "reason": reason}

    def _progress(self, state: ObjectiveState) -> JsonObject:
        shown: JsonObject = to_builtins(progress(state))
        if retrying := pending_retries(state, self.policy):
            shown["retrying"] = [to_builtins(one) for one in retrying]
        return shown


async def add_step_texts(
    tasks: TaskStore, shown: JsonObject, failed_attempts: Mapping[str, TaskId]
) -> JsonObject:
    """Add `said` to steps that wait or failed: the question, or the reason.

    `failed_attempts` are the A2A tasks of steps that are pending again, to be retried.
    """
    for plan in cast("list[JsonObject]", shown.get("plans") or []):
        for step in cast("list[JsonObject]", plan.get("tasks") or []):
            linked: str | None = step.get("a2aTaskId") if step["status"] in _WITH_TEXT else None
            task_id = failed_attempts.get(step["id"]) or linked
            stored = None if not task_id else await tasks.read_task(None, TaskId(task_id))
            if stored is not None:
                text = status_text(TaskProjection.from_stored(stored).task())
                step |= {"said": text[:_MAX_TEXT]} if text else {}
    return shown


async def read_step(
    tasks: TaskStore, scope: Scope, step: PlanTask, failed_attempt: TaskId | None = None
) -> JsonObject:
    """A step with what its agent said: `question`, `result`, or `reason` of a failure.

    `failed_attempt` is the last A2A task of a step that is pending again, to be retried.
    """
    shown: JsonObject = {"step": to_builtins(step)}
    task_id = failed_attempt or step.a2a_task_id
    stored = None if task_id is None else await tasks.read_task(scope, task_id)
    if stored is None:
        return shown
    task = TaskProjection.from_stored(stored).task()
    if step.status in TASK_WAITING:
        member, text = "question", status_text(task)
    elif failed_attempt is not None or step.status in TASK_FAILED:
        member, text = "reason", status_text(task)
    else:
        member, text = "result", last_agent_text(task)
    if text:
        shown[member] = text[:_MAX_RESULT]
        if len(text) > _MAX_RESULT:
            shown["truncated"] = True
    parts = [part for artifact in task.artifacts for part in artifact.parts]
    files = [part for part in parts if part.raw is not None or part.url is not None]
    if files:
        shown["files"] = [
            {"name": one.filename or "", "mediaType": one.media_type or "", "url": one.url or ""}
            for one in files
        ]
    return shown


def _add_execution(shown: JsonObject, state: ObjectiveState) -> None:
    if shown["id"] in state.execution:
        shown["execution"] = state.execution[shown["id"]]
