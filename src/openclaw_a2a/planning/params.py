"""The params of the methods, read from JSON: everything that is wrong with them is told at once."""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, TypeVar, cast, get_args, get_type_hints

import msgspec
from msgspec import Meta

from openclaw_a2a.model.errors import InvalidParams, MethodNotFound, Problem
from openclaw_a2a.model.ids import Json, JsonObject, TaskId
from openclaw_a2a.planning.model import (
    MESSAGE_KEY,
    ObjectiveId,
    ObjectiveStatus,
    PlanId,
    PlanStatus,
    PlanTaskId,
    PlanTaskStatus,
)

_MOST_PROBLEMS = 100
_LONGEST_ID = 256

# The words beside each type are what callers read when they send something else.
_ID = Meta(min_length=1, max_length=_LONGEST_ID, description="must be an id, as a string")
_OBJECT = Meta(description="must be an object")
_MOMENT = Meta(tz=True, description="must be an updatedAt as it was read, with its time zone")
_FLAG = Meta(description="must be true or false")
_ITEMS = Meta(description="must be a list of tasks")

_Name = Annotated[
    str,
    Meta(
        pattern=r"^[\s\S]{0,999}?\S",
        max_length=1000,
        description="must be a string of 1 to 1000 characters, not only blanks",
    ),
]
_Text = Annotated[str, Meta(description="must be a string")]
_Metadata = Annotated[JsonObject, _OBJECT]
_Flag = Annotated[bool, _FLAG]
_ReadAt = Annotated[datetime, _MOMENT]
"""Only when it was not updated since; `updatedAt` is later after each change."""
_PlanIds = Annotated[
    tuple[Annotated[PlanId, _ID], ...], Meta(description="must be a list of ids of plans")
]
_TaskIds = Annotated[
    tuple[Annotated[PlanTaskId, _ID], ...],
    Meta(description="must be a list of ids of tasks, or of task-<i> for entries of this request"),
]


def _one_of(statuses: type[ObjectiveStatus | PlanStatus | PlanTaskStatus]) -> Meta:
    return Meta(description=f"must be one of {', '.join(one.value for one in statuses)}")


_ObjectiveStatus = Annotated[ObjectiveStatus, _one_of(ObjectiveStatus)]
_PlanStatus = Annotated[PlanStatus, _one_of(PlanStatus)]
_TaskStatus = Annotated[PlanTaskStatus, _one_of(PlanTaskStatus)]


class Params(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Root of all params: camelCase, unknown members refused, null as if left out."""


class TaskEntry(Params, frozen=True):
    """A task that a plan is to have."""

    name: _Name
    description: _Text | None = None
    dependencies: _TaskIds | None = None
    metadata: _Metadata | None = None


class TaskEdit(Params, frozen=True):
    """What is to change about a task of a plan."""

    id: Annotated[PlanTaskId, _ID]
    name: _Name | None = None
    description: _Text | None = None
    status: _TaskStatus | None = None
    dependencies: _TaskIds | None = None
    a2a_task_id: Annotated[TaskId, _ID] | None = None
    metadata: _Metadata | None = None


class CreateObjective(Params, frozen=True):
    """objectives/create."""

    name: _Name
    description: _Text | None = None
    metadata: _Metadata | None = None


class GetObjective(Params, frozen=True):
    """objectives/get."""

    id: Annotated[ObjectiveId, _ID]
    include_plans: _Flag = True
    include_tasks: _Flag = True


class ListObjectives(Params, frozen=True):
    """objectives/list."""

    status: _ObjectiveStatus | None = None
    page_size: Annotated[int, Meta(ge=1, le=100, description="must be an integer, 1 to 100")] = 10
    page_token: _Text | None = None


class UpdateObjective(Params, frozen=True):
    """objectives/update."""

    id: Annotated[ObjectiveId, _ID]
    name: _Name | None = None
    description: _Text | None = None
    status: _ObjectiveStatus | None = None
    metadata: _Metadata | None = None
    if_updated_at: _ReadAt | None = None


class Replan(Params, frozen=True):
    """objectives/replan."""

    id: Annotated[ObjectiveId, _ID]


class DeleteObjective(Params, frozen=True):
    """objectives/delete."""

    id: Annotated[ObjectiveId, _ID]
    cancel: _Flag = False


class CreatePlan(Params, frozen=True):
    """plans/create."""

    objective_id: Annotated[ObjectiveId, _ID]
    name: _Name
    description: _Text | None = None
    tasks: Annotated[tuple[TaskEntry, ...], _ITEMS] | None = None
    dependencies: _PlanIds | None = None
    metadata: _Metadata | None = None


class GetPlan(Params, frozen=True):
    """plans/get."""

    id: Annotated[PlanId, _ID]
    include_tasks: _Flag = True


class UpdatePlan(Params, frozen=True):
    """plans/update."""

    id: Annotated[PlanId, _ID]
    name: _Name | None = None
    description: _Text | None = None
    status: _PlanStatus | None = None
    tasks: Annotated[tuple[TaskEdit, ...], _ITEMS] | None = None
    metadata: _Metadata | None = None
    if_updated_at: _ReadAt | None = None


class AddTasks(Params, frozen=True):
    """plans/addTasks."""

    id: Annotated[PlanId, _ID]
    tasks: Annotated[
        tuple[TaskEntry, ...], Meta(min_length=1, description="must be a list of at least one task")
    ]
    if_updated_at: _ReadAt | None = None


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
}
"""The methods and the params they take."""

_ITEM_TYPES: dict[type[Params], type[Params]] = {
    CreatePlan: TaskEntry,
    AddTasks: TaskEntry,
    UpdatePlan: TaskEdit,
}
_P = TypeVar("_P", bound=Params)


def parse_params(method: str, value: Json) -> Params:
    """The params of a method of this extension, from any JSON value; null is no params.

    Raises:
        MethodNotFound: there is no such method.
        InvalidParams: with every problem; the message names the parameters and the method.
    """
    if method not in METHODS:
        raise MethodNotFound(
            f"There is no method {method[:100]}.", details={"method": method[:100]}
        )
    return parse_as(METHODS[method], value, method=method)


def parse_as(kind: type[_P], value: Json, *, method: str) -> _P:
    """The params as the type that is known already.

    Raises:
        InvalidParams: as `read_params`.
    """
    tree = _without_nulls(_plain(value, method))
    problems = list(_problems(kind, tree, ""))
    if problems:
        raise _refusal(method, problems)
    return msgspec.convert(tree, kind)


def _plain(value: Json, method: str) -> Json:
    """The value as it would come back from a journal, so that both are one and the same."""
    try:
        return msgspec.json.decode(msgspec.json.encode({} if value is None else value))
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        problem = Problem("params", f"must be plain JSON ({error})")
        raise _refusal(method, [problem]) from None


def _without_nulls(tree: Json) -> Json:
    """Members that are null are as good as left out; what is inside metadata is the caller's."""
    if not isinstance(tree, dict):
        return tree
    members = {name: one for name, one in cast(JsonObject, tree).items() if one is not None}
    if isinstance(tasks := members.get("tasks"), list):
        members["tasks"] = [_without_nulls(task) for task in cast(list[Json], tasks)]
    return members


def _problems(kind: type[Params], tree: Json, path: str) -> Iterator[Problem]:
    if not isinstance(tree, dict):
        yield Problem(path.rstrip(".") or "params", "must be an object", "type")
        return
    members = cast(JsonObject, tree)
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for name in members.keys() - fields.keys():
        known = ", ".join(fields)
        yield Problem(path + name[:100], f"is not known; there are {known}", "unknown")
    for name, field in fields.items():
        if name not in members:
            if field.required:
                yield Problem(path + name, "is required", "required")
        elif name == "tasks" and kind in _ITEM_TYPES:
            yield from _task_problems(kind, members[name], path + name)
        elif not _fits(members[name], field.type):
            yield Problem(path + name, _words(kind, field.name), "type")


def _task_problems(kind: type[Params], tree: Json, path: str) -> Iterator[Problem]:
    if not isinstance(tree, list) or not (tree or kind is not AddTasks):
        yield Problem(path, _words(kind, "tasks"), "type")
        return
    seen: set[Json] = set()
    for index, item in enumerate(cast(list[Json], tree)):
        here = f"{path}[{index}]."
        yield from _problems(_ITEM_TYPES[kind], item, here)
        if kind is UpdatePlan and isinstance(item, dict):
            yield from _edit_problems(cast(JsonObject, item), seen, here)
        elif isinstance(item, dict):
            yield from _entry_problems(cast(JsonObject, item), here)


def _entry_problems(entry: JsonObject, path: str) -> Iterator[Problem]:
    """What the types of an entry do not say."""
    metadata: Json = entry.get("metadata")
    if isinstance(metadata, dict) and MESSAGE_KEY in metadata:
        why = "is written by the gateway alone, when a message makes the step"
        yield Problem(f"{path}metadata[{MESSAGE_KEY!r}]", why, "reserved")


def _edit_problems(edit: JsonObject, seen: set[Json], path: str) -> Iterator[Problem]:
    """What the types of an edit do not say."""
    task_id = edit.get("id")
    if isinstance(task_id, str):
        if task_id in seen:
            yield Problem(f"{path}id", "is listed twice", "unique")
        seen.add(task_id)
    if edit.get("status") == PlanTaskStatus.PENDING.value and "a2aTaskId" in edit:
        yield Problem(f"{path}status", "must not be pending together with a2aTaskId", "status")


def _fits(value: Json, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError):
        return False
    return True


def _words(kind: type[Params], name: str) -> str:
    """The words beside the type of a member."""
    hint = get_type_hints(kind, include_extras=True)[name]
    for one in (hint, *get_args(hint)):
        for meta in getattr(one, "__metadata__", ()):
            if isinstance(meta, Meta) and meta.description:
                return meta.description
    return "is not valid"


def _refusal(method: str, problems: list[Problem]) -> InvalidParams:
    found = sorted(problems, key=lambda problem: (problem.path, problem.message))
    listed = found[:_MOST_PROBLEMS]
    first = "; ".join(f"{problem.path} {problem.message}" for problem in listed[:5])
    more = f"; and {len(found) - 5} more" if len(found) > 5 else ""
    return InvalidParams(
        f"The parameters of {method} are not valid: {first}{more}.", problems=tuple(listed)
    )
