"""The params of the planning methods, validated; an error lists every problem at once."""

from collections.abc import Iterator
from datetime import datetime
from functools import cache
from itertools import chain
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from openclaw_a2a.model.errors import MethodNotFound, Problem
from openclaw_a2a.model.ids import Json, JsonObject, TaskId
from openclaw_a2a.model.validation import (
    SchemaValidator,
    as_list,
    as_object,
    invalid_params,
    is_list,
    is_object,
)
from openclaw_a2a.planning.model import (
    MESSAGE_KEY,
    PAUSED,
    RUNNING,
    ObjectiveId,
    ObjectiveStatus,
    PlanId,
    PlanStatus,
    PlanTaskId,
    PlanTaskStatus,
)

_ID = Meta(min_length=1, max_length=256)
_NOT_BLANK = r"^[\s\S]{0,999}?\S"

_Name = Annotated[str, Meta(pattern=_NOT_BLANK, max_length=1000)]
_ReadAt = Annotated[datetime, Meta(tz=True)]
"""The `updatedAt` that the caller has read: the change is made only if it is still the same."""
_PlanIds = tuple[Annotated[PlanId, _ID], ...]
_TaskIds = tuple[Annotated[PlanTaskId, _ID], ...]
"""Ids of tasks, or `task-<i>` for entry i of the same request."""


class Params(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Base of all params: camelCase names, unknown members rejected, null read as left out."""


class TaskEntry(Params, frozen=True):
    """A task to add to a plan."""

    name: _Name
    description: str | None = None
    dependencies: _TaskIds | None = None
    metadata: JsonObject | None = None


class TaskEdit(Params, frozen=True):
    """A change of a task of a plan."""

    id: Annotated[PlanTaskId, _ID]
    name: _Name | None = None
    description: str | None = None
    status: PlanTaskStatus | None = None
    dependencies: _TaskIds | None = None
    a2a_task_id: Annotated[TaskId, _ID] | None = None
    metadata: JsonObject | None = None


class CreateObjective(Params, frozen=True):
    """objectives/create."""

    name: _Name
    description: str | None = None
    metadata: JsonObject | None = None


class GetObjective(Params, frozen=True):
    """objectives/get."""

    id: Annotated[ObjectiveId, _ID]
    include_plans: bool = True
    include_tasks: bool = True


class ListObjectives(Params, frozen=True):
    """objectives/list."""

    status: ObjectiveStatus | None = None
    page_size: Annotated[int, Meta(ge=1, le=100)] = 10
    page_token: str | None = None


class UpdateObjective(Params, frozen=True):
    """objectives/update."""

    id: Annotated[ObjectiveId, _ID]
    name: _Name | None = None
    description: str | None = None
    status: ObjectiveStatus | None = None
    metadata: JsonObject | None = None
    if_updated_at: _ReadAt | None = None


class Replan(Params, frozen=True):
    """objectives/replan."""

    id: Annotated[ObjectiveId, _ID]


class DeleteObjective(Params, frozen=True):
    """objectives/delete."""

    id: Annotated[ObjectiveId, _ID]
    cancel: bool = False


class CreatePlan(Params, frozen=True):
    """plans/create."""

    objective_id: Annotated[ObjectiveId, _ID]
    name: _Name
    description: str | None = None
    tasks: tuple[TaskEntry, ...] | None = None
    dependencies: _PlanIds | None = None
    metadata: JsonObject | None = None


class GetPlan(Params, frozen=True):
    """plans/get."""

    id: Annotated[PlanId, _ID]
    include_tasks: bool = True


class UpdatePlan(Params, frozen=True):
    """plans/update."""

    id: Annotated[PlanId, _ID]
    name: _Name | None = None
    description: str | None = None
    status: PlanStatus | None = None
    tasks: tuple[TaskEdit, ...] | None = None
    metadata: JsonObject | None = None
    if_updated_at: _ReadAt | None = None


class AddTasks(Params, frozen=True):
    """plans/addTasks."""

    id: Annotated[PlanId, _ID]
    tasks: Annotated[tuple[TaskEntry, ...], Meta(min_length=1)]
    if_updated_at: _ReadAt | None = None


class GetStep(Params, frozen=True):
    """steps/get: a step by its id, its name, or the beginning of either."""

    objective_id: Annotated[ObjectiveId, _ID]
    step: Annotated[str, Meta(min_length=1, max_length=1000)]


class AnswerStep(Params, frozen=True):
    """steps/answer; `step` may be left out where only one waits."""

    objective_id: Annotated[ObjectiveId, _ID]
    text: Annotated[str, Meta(pattern=_NOT_BLANK)]
    step: Annotated[str, Meta(min_length=1, max_length=1000)] | None = None


EXECUTION_MODES = {"run": RUNNING, "pause": PAUSED, "resume": RUNNING}
"""The methods for execution, and the mode that each sets."""

METHODS: dict[str, type[Params]] = {
    "objectives/create": CreateObjective,
    "objectives/get": GetObjective,
    "objectives/list": ListObjectives,
    "objectives/update": UpdateObjective,
    "objectives/replan": Replan,
    "objectives/delete": DeleteObjective,
    "plans/create": CreatePlan,
    "plans/get": GetPlan,
    "plans/update": UpdatePlan,
    "plans/addTasks": AddTasks,
    "steps/get": GetStep,
    "steps/answer": AnswerStep,
    **{f"objectives/{action}": Replan for action in EXECUTION_MODES},
    **{f"plans/{action}": GetPlan for action in EXECUTION_MODES},
}
"""The methods and their params."""

_P = TypeVar("_P", bound=Params)


def parse_params(method: str, value: Json) -> Params:
    """The params of a method, from any JSON value; null is read as no params.

    Raises: MethodNotFound (there is no such method), InvalidParams (with every problem; the message
    names the parameters and the method).
    """
    if method not in METHODS:
        raise MethodNotFound(
            f"There is no method {method[:100]}.", details={"method": method[:100]}
        )
    return parse_as(METHODS[method], value, method=method)


def parse_as(kind: type[_P], value: Json, *, method: str) -> _P:
    """The params as a known type.

    Raises: InvalidParams (as `parse_params`).
    """
    subject = f"The parameters of {method}"
    try:
        # As they will come back from the log, so that both are the same.
        text = msgspec.json.encode({} if value is None else value)
        tree = _without_nulls(msgspec.json.decode(text))
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        problem = Problem("params", f"must be plain JSON ({error})")
        raise invalid_params([problem], subject=subject) from None
    # Problems are looked for as the error takes them, so no more than it lists.
    found = _task_problems(tree)
    try:
        params = msgspec.convert(tree, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        invalid = invalid_params(chain(found, _validator(kind).problems(tree)), subject=subject)
        reason = Problem("params", str(error))
        raise (invalid if invalid.problems else invalid_params([reason], subject=subject)) from None
    invalid = invalid_params(found, subject=subject)
    if invalid.problems:
        raise invalid
    return params


@cache
def _validator(kind: type[Params]) -> SchemaValidator:
    return SchemaValidator(kind, pattern_messages={_NOT_BLANK: "must not be only blanks"})


def _without_nulls(tree: Json) -> Json:
    """Drop members that are null, except inside metadata, which is the caller's."""
    if not is_object(tree):
        return tree
    members = {name: one for name, one in tree.items() if one is not None}
    if is_list(tasks := members.get("tasks")):
        members["tasks"] = [_without_nulls(task) for task in tasks]
    return members


def _task_problems(tree: Json) -> Iterator[Problem]:
    """Problems of tasks to add or change that their types do not express."""
    seen: set[str] = set()
    for index, task in enumerate(as_list(as_object(tree).get("tasks"))):
        members = as_object(task)
        task_id, metadata = members.get("id"), members.get("metadata")
        if isinstance(task_id, str):
            if task_id in seen:
                yield Problem(f"tasks[{index}].id", "is listed twice", "unique")
            seen.add(task_id)
        elif is_object(metadata) and MESSAGE_KEY in metadata:
            path = f"tasks[{index}].metadata[{MESSAGE_KEY!r}]"
            yield Problem(path, "is written by the gateway only, for the step of a message")
        if members.get("status") == PlanTaskStatus.PENDING.value and "a2aTaskId" in members:
            path = f"tasks[{index}].status"
            yield Problem(path, "must not be pending together with a2aTaskId", "status")
