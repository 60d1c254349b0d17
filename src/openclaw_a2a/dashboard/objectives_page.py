"""Read models of objectives: board and tree, one with its plans and steps; and what is done to one.

An edit carries the version of the content that its form was made with. If that is another by now,
the form comes back with both versions.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from openclaw_a2a.dashboard.plan_graph import StepGraph, list_steps, make_graph, number_steps
from openclaw_a2a.dashboard.requests import (
    ActionRequest,
    ActionResult,
    PageRequest,
    invalid_member,
    read_choice,
    read_form_text,
)
from openclaw_a2a.model.errors import InvalidParams, Problem
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.model.validation import as_object, is_object
from openclaw_a2a.planning.admin_service import AdminService, enabled
from openclaw_a2a.planning.editing import EditableItem, ItemContent
from openclaw_a2a.planning.model import PlanTaskId

_LISTED = 50
_PER_COLUMN = 20
_ACTIONS = ("run", "pause", "resume", "replan", "cancel")
_DONE = {
    "run": "It runs.",
    "pause": "It pauses.",
    "resume": "It goes on.",
    "replan": "It is planned again.",
    "cancel": "It was canceled.",
    "retry": "It is tried again.",
    "answer": "The answer was sent.",
}
"""Notices shown after each action."""
_VIEWS = ("board", "tree")
_CLOSED = ("completed", "canceled")
_WAITING = ("input-required", "auth-required")

_OBJECTIVE_COLUMNS: Mapping[str, Sequence[str]] = {
    "Planned": ("submitted", "planning"),
    "Working": ("working",),
    "Blocked": ("blocked",),
    "Completed": ("completed",),
    "Failed or canceled": ("failed", "canceled"),
}
"""The columns of the board of objectives, with the statuses in each."""

_STEP_COLUMNS: Mapping[str, Sequence[str]] = {
    "To do": ("pending",),
    "Working": ("submitted", "working"),
    "Waiting on you": _WAITING,
    "Completed": ("completed",),
    "Failed or left out": ("failed", "rejected", "canceled", "skipped"),
}
"""The columns of the board of steps."""


class ObjectiveColumn(JsonStruct, frozen=True, omit_defaults=False):
    """A column of the board: its newest objectives, and how many there are."""

    label: str
    objectives: tuple[JsonObject, ...]
    total_size: int


class ObjectivesPage(JsonStruct, frozen=True, omit_defaults=False):
    """The newest objectives: by status for the board, with plans and steps for the tree.

    `is_enabled`: the gateway keeps objectives.
    """

    is_enabled: bool
    view: str
    objectives: tuple[JsonObject, ...]
    total_size: int
    columns: tuple[ObjectiveColumn, ...] = ()


class StepCard(JsonStruct, frozen=True, omit_defaults=False):
    """A step on a board. `said` is its question, or why it failed."""

    id: str
    number: str
    name: str
    plan: str
    status: str
    task: str
    agent: str
    said: str


class StepColumn(JsonStruct, frozen=True, omit_defaults=False):
    """A column of the board of an objective."""

    label: str
    steps: tuple[StepCard, ...]


class WaitingStep(JsonStruct, frozen=True, omit_defaults=False):
    """A step that waits for an answer, and what its agent asked."""

    id: str
    name: str
    plan: str
    question: str
    task: str
    status: str


class ObjectiveDetails(JsonStruct, frozen=True, omit_defaults=False):
    """One objective with its plans and steps, and what can be done to it now.

    `graph` shows which step waits for which; None when none does, or there are too many.
    `numbers` are the numbers of the steps, as the graph and the board show them.
    """

    objective: JsonObject
    view: str
    actions: tuple[str, ...]
    waiting: tuple[WaitingStep, ...]
    columns: tuple[StepColumn, ...]
    graph: StepGraph | None
    numbers: dict[str, str]


class FormContent(JsonStruct, frozen=True, omit_defaults=False):
    """What a form can change. `after` are the numbers of the steps that a step waits for."""

    name: str
    description: str
    agent: str
    after: str


class EditPage(JsonStruct, frozen=True, omit_defaults=False):
    """The form for an objective, a plan or a step, and the version that it was made with.

    `yours` is what was not saved because `content` had been changed meanwhile. `steps`
    are the other steps by their numbers; empty where their order cannot be changed.
    """

    objective: str
    objective_name: str
    item: str
    kind: str
    content: FormContent
    version: str
    steps: dict[str, str]
    is_closed: bool
    yours: FormContent | None = None

    @property
    def form(self) -> FormContent:
        """What the form is filled with."""
        return self.yours or self.content


class Objectives:
    """Reads and changes objectives. `service` is None while planning is off."""

    def __init__(self, service: AdminService | None) -> None:
        self._service = service

    async def list(self, request: PageRequest) -> JsonStruct:
        """The page of all objectives. Raises: InvalidParams."""
        service, view = self._service, read_choice(request.query, "view", _VIEWS, "board")
        if service is None:
            return ObjectivesPage(is_enabled=False, view=view, objectives=(), total_size=0)
        if view == "tree":
            found, total = await service.list(_LISTED, with_plans=True)
            return ObjectivesPage(True, view, tuple(found), total)
        columns = tuple(
            [await _read_column(service, *column) for column in _OBJECTIVE_COLUMNS.items()]
        )
        shown = [one for column in columns for one in column.objectives]
        total = sum(column.total_size for column in columns)
        return ObjectivesPage(True, view, tuple(shown), total, columns)

    async def show(self, request: PageRequest) -> JsonStruct:
        """The page of one. Raises: InvalidParams, PlanItemNotFound, UnsupportedOperation."""
        view = read_choice(request.query, "view", _VIEWS, "tree")
        found = await enabled(self._service).get(request.segments[0])
        plans = _plans_of(found)
        numbers = number_steps(plans)
        return ObjectiveDetails(
            objective=found,
            view=view,
            actions=_allowed_actions(found),
            waiting=tuple(_list_waiting(plans)),
            columns=_make_board(plans, numbers),
            graph=make_graph(plans),
            numbers=numbers,
        )

    async def act(self, request: ActionRequest) -> ActionResult:
        """Run, pause, resume, replan or cancel; retry an item; answer a step.

        Raises: InvalidParams, PlanItemNotFound, StatusChangeNotAllowed, UnsupportedOperation.
        """
        service, [objective_id, action] = enabled(self._service), request.segments
        if action == "retry":
            work = service.retry(objective_id, request.form.get("item", ""))
        elif action == "answer":
            step = request.form.get("step") or None
            work = service.answer(objective_id, read_form_text(request), step)
        elif action in _ACTIONS:
            work = service.act(objective_id, action)
        else:
            raise invalid_member("action", f"must be one of {', '.join(_ACTIONS)}, retry, answer")
        with request.audited("objective-changed", action=f"dashboard/{action}"):
            await work
        location = f"/dashboard/objectives/{objective_id}"
        return ActionResult(_DONE[action], location, objective_id)

    # ---------------------------------------------------------------- editing

    async def read_form(self, request: PageRequest) -> JsonStruct:
        """The form for an item. Raises: PlanItemNotFound, UnsupportedOperation."""
        return await self._make_form(*request.segments)

    async def edit(self, request: ActionRequest) -> ActionResult:
        """Save a form.

        Raises: InvalidParams, PlanItemNotFound, ChangedMeanwhile, StatusChangeNotAllowed,
        DependencyNotValid, UnsupportedOperation.
        """
        service, [objective_id, item_id], form = (
            enabled(self._service),
            request.segments,
            request.form,
        )
        item = await service.find_editable(objective_id, item_id)
        after = item.content.after
        if item.can_reorder and "after" in form:
            numbers = number_steps(_plans_of(await service.get(objective_id)))
            after = _parse_after(form["after"], {value: key for key, value in numbers.items()})
        # Browsers send text areas with CRLF.
        description = form.get("description", item.content.description).replace("\r\n", "\n")
        wanted = ItemContent(
            form.get("name", item.content.name).strip(),
            description.strip(),
            form.get("agent", item.content.agent).strip(),
            after,
        )
        work = service.edit(objective_id, item_id, wanted, form.get("version", ""))
        with request.audited("objective-changed", action=f"dashboard/edit {item.kind}"):
            await work
        location = f"/dashboard/objectives/{objective_id}"
        return ActionResult(f"The {item.kind} was changed.", location, item_id)

    async def read_conflict(self, request: ActionRequest) -> JsonStruct:
        """The form again, with what is there now and what was not saved."""
        [objective_id, item_id], form = request.segments, request.form
        page = await self._make_form(objective_id, item_id)
        there = page.content
        yours = FormContent(
            form.get("name", there.name),
            form.get("description", there.description).replace("\r\n", "\n"),
            form.get("agent", there.agent),
            form.get("after", there.after),
        )
        return msgspec.structs.replace(page, yours=yours)

    async def _make_form(self, objective_id: str, item_id: str) -> EditPage:
        service = enabled(self._service)
        item = await service.find_editable(objective_id, item_id)
        found = await service.get(objective_id)
        plans = _plans_of(found)
        numbers = number_steps(plans)
        names = {str(step["id"]): str(step["name"]) for plan in plans for step in list_steps(plan)}
        others = {numbers[one]: names[one] for one in numbers if one != item_id}
        return EditPage(
            objective=objective_id,
            objective_name=str(found["name"]),
            item=item_id,
            kind=item.kind,
            content=_fill_form(item, numbers),
            version=item.content.version,
            steps=others if item.can_reorder else {},
            is_closed=found["status"] in _CLOSED,
        )


def _allowed_actions(objective: JsonObject) -> tuple[str, ...]:
    if objective.get("status") in _CLOSED:
        return ()
    if objective.get("status") == "failed":
        return ("run",)  # again: what failed is retried
    execution = objective.get("execution")
    first = {"running": ("pause",), "paused": ("resume",)}.get(str(execution), ("run",))
    return (*first, "cancel")


def _list_waiting(plans: Iterable[JsonObject]) -> Iterator[WaitingStep]:
    for plan in plans:
        for step in list_steps(plan):
            if step["status"] in _WAITING and step.get("a2aTaskId"):
                yield WaitingStep(
                    id=step["id"],
                    name=step["name"],
                    plan=plan["name"],
                    question=step.get("said") or "",
                    task=step["a2aTaskId"],
                    status=step["status"],
                )


async def _read_column(
    service: AdminService, label: str, statuses: Sequence[str]
) -> ObjectiveColumn:
    shown: list[JsonObject] = []
    total = 0
    for status in statuses:
        found, size = await service.list(_PER_COLUMN, status)
        shown += found
        total += size
    shown.sort(key=lambda one: str(one["updatedAt"]), reverse=True)
    return ObjectiveColumn(label, tuple(shown[:_PER_COLUMN]), total)


def _plans_of(objective: JsonObject) -> list[JsonObject]:
    return [plan for plan in objective.get("plans") or () if is_object(plan)]


def _make_board(plans: Sequence[JsonObject], numbers: Mapping[str, str]) -> tuple[StepColumn, ...]:
    cards = [
        _make_card(plan, step, numbers[str(step["id"])])
        for plan in plans
        for step in list_steps(plan)
    ]
    return tuple(
        [
            StepColumn(label, tuple([card for card in cards if card.status in statuses]))
            for label, statuses in _STEP_COLUMNS.items()
        ]
    )


def _make_card(plan: JsonObject, step: JsonObject, number: str) -> StepCard:
    status = str(step["status"])
    if plan["status"] == "skipped" and status == "pending":
        status = "skipped"
    return StepCard(
        id=str(step["id"]),
        number=number,
        name=str(step["name"]),
        plan=str(plan["name"]),
        status=status,
        task=str(step.get("a2aTaskId") or ""),
        agent=str(as_object(step.get("metadata")).get("agent") or ""),
        said=str(step.get("said") or ""),
    )


def _fill_form(item: EditableItem, numbers: Mapping[str, str]) -> FormContent:
    content = item.content
    after = ", ".join(numbers[one] for one in content.after if one in numbers)
    return FormContent(content.name, content.description, content.agent, after)


def _parse_after(text: str, steps: Mapping[str, str]) -> tuple[PlanTaskId, ...]:
    """The steps with these numbers. Raises: InvalidParams."""
    found: list[PlanTaskId] = []
    for number in text.replace(",", " ").split():
        if number not in steps:
            known = ", ".join(steps)
            problem = Problem("after", f"there is no step {number[:20]}; the steps are {known}")
            raise InvalidParams(f"after: {problem.message}", problems=(problem,))
        found.append(PlanTaskId(steps[number]))
    return tuple(dict.fromkeys(found))
