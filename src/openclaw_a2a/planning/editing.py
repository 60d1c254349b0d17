"""Edits of objectives, plans and steps in forms, with optimistic locking by content.

The version is a digest of the editable content: a status that changes while a form is open is no
conflict; a changed text, agent or dependency is one.
"""

import hashlib

import msgspec

from openclaw_a2a.model.errors import ChangedMeanwhile, StatusChangeNotAllowed
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.planning.commands import update_objective, update_plan
from openclaw_a2a.planning.model import (
    KIND_NAMES,
    OBJECTIVE_CLOSED,
    Objective,
    Plan,
    PlanId,
    PlanTask,
    PlanTaskId,
    PlanTaskStatus,
)
from openclaw_a2a.planning.params import UpdateObjective, UpdatePlan, parse_as
from openclaw_a2a.planning.state import Change, ObjectiveState, not_found

_AGENT_KEY = "agent"


class ItemContent(JsonStruct, frozen=True, omit_defaults=False):
    """The editable content. `after` are the steps that a step waits for.

    A started step keeps its dependencies: they have no effect any more.
    """

    name: str
    description: str = ""
    agent: str = ""
    after: tuple[PlanTaskId, ...] = ()

    @property
    def version(self) -> str:
        """The same for the same content."""
        return hashlib.blake2b(msgspec.json.encode(self), digest_size=8).hexdigest()


class EditableItem(msgspec.Struct, frozen=True):
    """An objective, a plan or a step, and its content. `kind` is its name for people."""

    id: str
    kind: str
    content: ItemContent
    can_reorder: bool = False
    """True for a step that has not started: what it waits for can be changed."""


def find_editable(state: ObjectiveState, item_id: str) -> EditableItem:
    """The item with this id. Raises: PlanItemNotFound."""
    item = _find_item(state, item_id)
    named = item.metadata.get(_AGENT_KEY)
    content = ItemContent(
        item.name,
        item.description or "",
        named if isinstance(named, str) else "",
        item.dependencies if isinstance(item, PlanTask) else (),
    )
    if isinstance(item, PlanTask):
        is_pending = item.status is PlanTaskStatus.PENDING
        return EditableItem(item.id, KIND_NAMES["task"], content, can_reorder=is_pending)
    return EditableItem(item.id, "plan" if isinstance(item, Plan) else "objective", content)


def edit_item(change: Change, item_id: str, wanted: ItemContent, version: str) -> None:
    """Change an item whose content still is what `version` stands for.

    Raises:
        PlanItemNotFound: there is no such item.
        ChangedMeanwhile: its content has changed; the details have the new content.
        StatusChangeNotAllowed: the objective is completed or canceled.
        InvalidParams: a name is blank or too long.
        DependencyNotValid: a dependency is unknown, or there is a cycle.
    """
    state = change.state
    found = find_editable(state, item_id)
    if state.objective.status in OBJECTIVE_CLOSED:
        status = state.objective.status.value
        raise StatusChangeNotAllowed(
            f"The objective {state.id} is {status}; what has ended is not edited. Create another.",
            details={"kind": "objective", "id": state.id, "from": status, "to": "edited"},
        )
    if found.content.version != version:
        raise ChangedMeanwhile(
            f"The {found.kind} {item_id} was changed by somebody else since you opened it. "
            "Compare both versions, and choose.",
            details={
                "kind": found.kind,
                "id": item_id,
                "version": found.content.version,
                "content": msgspec.to_builtins(found.content),
            },
        )
    if wanted != found.content:
        _apply(change, found, wanted)


def _apply(change: Change, found: EditableItem, wanted: ItemContent) -> None:
    item = _find_item(change.state, found.id)
    members: JsonObject = {"id": item.id, "name": wanted.name, "description": wanted.description}
    if wanted.agent != found.content.agent:
        metadata = {name: value for name, value in item.metadata.items() if name != _AGENT_KEY}
        members["metadata"] = metadata | ({_AGENT_KEY: wanted.agent} if wanted.agent else {})
    if isinstance(item, Objective):
        update_objective(change, parse_as(UpdateObjective, members, method="objectives/update"))
    elif isinstance(item, Plan):
        update_plan(change, parse_as(UpdatePlan, members, method="plans/update"))
    else:
        if found.can_reorder and wanted.after != found.content.after:
            members["dependencies"] = list(wanted.after)
        given: JsonObject = {"id": item.plan_id, "tasks": [members]}
        update_plan(change, parse_as(UpdatePlan, given, method="plans/update"))


def _find_item(state: ObjectiveState, item_id: str) -> Objective | Plan | PlanTask:
    if item_id == state.id:
        return state.objective
    item = state.plans.get(PlanId(item_id)) or state.tasks.get(PlanTaskId(item_id))
    if item is None:
        raise not_found("plan or step", item_id, within=f" in objective {state.id}")
    return item
