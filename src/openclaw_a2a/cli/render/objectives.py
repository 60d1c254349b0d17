"""Objectives: what the admin endpoint sends, and how a terminal shows it."""

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import datetime

import msgspec
from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text
from rich.tree import Tree

from openclaw_a2a.cli.render.terminal import (
    Change,
    ItemTable,
    format_age,
    format_duration,
    one_cell,
    one_line,
    pad,
    styled_text,
    terminal_width,
    truncate,
    wrap_line,
)
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.message import JsonStruct

_COMPLETED = "completed"
BLOCKED = "blocked"
_PENDING = "pending"
OVER = frozenset({_COMPLETED, "failed", "canceled"})
"""Nothing more happens to such an objective by itself."""

_ACTIVE = frozenset({"submitted", "working"})
_WAITING = frozenset({_PENDING, BLOCKED})
_DONE = frozenset({_COMPLETED, "skipped"})
_ASKS = "input-required"
_WANTS = {_ASKS: "an answer", "auth-required": "a sign-in"}
_PAUSED = "paused"
_RUNNING = "running"
_PLANNING = "planning"
_MAX_NAME = 40
_MIN_NAME = 16
_SHORT_ID = 8
_NOT_BEGUN = frozenset({"submitted", "planning"})


class StepProgressRow(JsonStruct, frozen=True):
    """A step that works or waits, and since when; or a failed step that is retried."""

    task_id: str = ""
    name: str = ""
    status: str = ""
    since: datetime | None = None
    attempts: int = 0
    next_at: datetime | None = None


class ProgressRow(JsonStruct, frozen=True):
    """How far an objective is."""

    done: int = 0
    total: int = 0
    percent: int = 0
    current: tuple[StepProgressRow, ...] = ()
    oldest_waiting: StepProgressRow | None = None
    retrying: tuple[StepProgressRow, ...] = ()


class _Row(JsonStruct, frozen=True):
    """What steps, plans and objectives have; `execution` is the run state, such as paused."""

    id: str
    name: str = ""
    status: str = _PENDING
    dependencies: tuple[str, ...] = ()
    metadata: JsonObject = msgspec.field(default_factory=dict[str, object])
    execution: str = ""


class StepRow(_Row, frozen=True):
    """A step of a plan; `said` is what it asks, or why it failed."""

    a2a_task_id: str = ""
    said: str = ""


class PlanRow(_Row, frozen=True):
    """A plan with its steps."""

    tasks: tuple[StepRow, ...] = ()


class ObjectiveRow(_Row, frozen=True):
    """An objective and its owner."""

    status: str = "submitted"
    plans: tuple[PlanRow, ...] = ()
    updated_at: datetime | None = None
    progress: ProgressRow = ProgressRow()
    principal: str = ""
    account: str = ""
    reason: str = ""

    @property
    def is_over(self) -> bool:
        """True when nothing more is to be expected."""
        return self.status in OVER

    @property
    def is_success(self) -> bool:
        """True when it is completed."""
        return self.status == _COMPLETED

    @property
    def is_paused(self) -> bool:
        """True when no step starts until it is resumed."""
        return self.execution == _PAUSED and not self.is_over

    @property
    def is_running(self) -> bool:
        """True when its steps are executed, also those that are added later."""
        return self.execution == _RUNNING and not self.is_over

    @property
    def asks(self) -> bool:
        """True when a step of it waits for an answer."""
        return any(task.status == _ASKS for _, task in self.steps())

    def steps(self) -> Iterator[tuple[PlanRow, StepRow]]:
        """Every step with its plan."""
        for plan in self.plans:
            for task in plan.tasks:
                yield plan, task

    def agent_of(self, plan: PlanRow, task: StepRow) -> str:
        """The agent of a step, if one is named."""
        for metadata in (task.metadata, plan.metadata, self.metadata):
            named = metadata.get("agent")
            if isinstance(named, str) and named.strip():
                return named.strip()
        return ""


def shorten(name: str) -> str:
    """A name on one line, cut where it is too long."""
    width = terminal_width()
    cells = _MAX_NAME if width is None else min(_MAX_NAME, max(_MIN_NAME, width // 3))
    return truncate(one_cell(name), cells)


def step_notes(
    objective: ObjectiveRow, plan: PlanRow, task: StepRow, now: datetime, *, cells: int | None
) -> str:
    """The agent of a step, since when it works, and what it waits for, in so many cells.

    What it waits for has priority when there is little room.
    """
    timed = [*objective.progress.current, objective.progress.oldest_waiting]
    since = next((one.since for one in timed if one and one.task_id == task.id), None)
    has_task = task.a2a_task_id and task.status != _PENDING
    notes = {
        "agent": objective.agent_of(plan, task),
        "waits": " · ".join(_waits_for(objective, plan, task, now)),
        "since": "" if since is None else format_age(since, now),
        "task": f"task {task.a2a_task_id[:8]}" if has_task else "",
        "said": one_cell(task.said),
    }
    for dropped in ("task", "agent", "since"):
        if cells is None or cell_len(_join_notes(notes)) <= cells:
            break
        notes[dropped] = ""
    text = _join_notes(notes)
    return text if cells is None else truncate(text, cells)


def _join_notes(notes: Mapping[str, str]) -> str:
    return " · ".join(filter(None, notes.values()))


def _waits_for(
    objective: ObjectiveRow, plan: PlanRow, task: StepRow, now: datetime
) -> Iterator[str]:
    """What a step waits for; else its status, unless it is completed."""
    if task.status in _WANTS:
        yield f"waits for {_WANTS[task.status]}"
    elif task.status == _PENDING:
        for retry in objective.progress.retrying:
            if retry.task_id == task.id:
                times = "once" if retry.attempts == 1 else f"{retry.attempts} times"
                yield f"failed {times}, again {_in(retry.next_at, now)}"
        missing = _missing(task.dependencies, plan.tasks, {_COMPLETED})
        if missing and plan.status != "skipped":
            yield f"after {', '.join(missing)}"
    elif task.status != _COMPLETED:
        yield task.status


def describe_waiting(objective: ObjectiveRow, now: datetime) -> str:
    """The most important thing that an objective waits for; empty when it proceeds by itself."""
    progress = objective.progress
    waiting = progress.oldest_waiting
    if objective.is_paused:
        return "somebody to resume it"
    if waiting is not None:
        wanted = _WANTS.get(waiting.status, "somebody")
        said = [task.said for _, task in objective.steps() if task.id == waiting.task_id]
        question = f": {one_line(said[0])}" if said and said[0] else ""
        age = format_age(waiting.since, now)
        return f"{wanted} to {shorten(waiting.name)}, for {age}{question}"
    if progress.retrying and not (progress.current or objective.is_over):
        retry = progress.retrying[0]
        return f"another try of {shorten(retry.name)}, {_in(retry.next_at, now)}"
    is_planned = objective.execution == _PLANNING
    if objective.status in _NOT_BEGUN and (is_planned or not objective.execution):
        return "somebody to run it" if progress.total else "the planner" if is_planned else "a plan"
    if objective.reason and not objective.is_over:
        return one_line(objective.reason)
    return ""


def describe_working(objective: ObjectiveRow, now: datetime) -> str:
    """The steps in progress, with agent and duration."""
    agents = {task.id: objective.agent_of(plan, task) for plan, task in objective.steps()}
    lines: list[str] = []
    for step in objective.progress.current:
        agent = agents.get(step.task_id)
        who = f" ({agent})" if agent else ""
        lines.append(f"{shorten(step.name)}{who}, for {format_age(step.since, now)}")
    return "; ".join(lines)


def _in(moment: datetime | None, now: datetime) -> str:
    wait_s = 0 if moment is None else math.ceil((moment - now).total_seconds())
    return f"in {format_duration(wait_s)}" if wait_s > 0 else "now"


def _missing(dependencies: Sequence[str], items: Sequence[_Row], done: Set[str]) -> list[str]:
    """The names of the dependencies that are not done."""
    known = {one.id: one for one in items}
    return [
        shorten(known[one].name) if one in known else one
        for one in dependencies
        if one not in known or known[one].status not in done
    ]


STILL = "●"
"""The static sign for work in progress."""

_SIGNS_AND_COLOURS = {
    "completed": ("✓", "green"),
    "failed": ("✗", "red"),
    "rejected": ("✗", "red"),
    "blocked": ("‖", "yellow"),
    "input-required": ("?", "yellow"),
    "auth-required": ("?", "yellow"),
    "pending": ("○", "dim"),
    "skipped": ("∅", "dim"),
    "canceled": ("∅", "dim"),
}
_BAR = 10
_LONG_BAR = 24
_GUIDE = 4  # cells that the tree indents each level by
_SIGN = 2  # cells of the sign before a plan or step
_GAP = 2  # cells between columns
_LABEL = 11  # cells of the first column of the head


def bar(done: int, total: int, width: int = _BAR) -> str:
    """How much of something is done, as a bar; full only when all is."""
    filled = width * done // total if total else 0
    return "█" * filled + "░" * (width - filled)


def _note(objective: ObjectiveRow, now: datetime) -> str:
    waits = describe_waiting(objective, now)
    return f"waits for {waits}" if waits else describe_working(objective, now)


OBJECTIVE_TABLE = ItemTable[ObjectiveRow](
    {
        "OBJECTIVE": lambda one, _: one.id,
        "STATUS": lambda one, _: "paused" if one.is_paused else one.status,
        "PROGRESS": lambda one, _: bar(one.progress.done, one.progress.total),
        "DONE": lambda one, _: (
            f"{one.progress.done}/{one.progress.total}" if one.progress.total else "-"
        ),
        "CHANGED": lambda one, now: format_age(one.updated_at, now),
        "OWNER": lambda one, _: one.principal or "-",
        "NAME": lambda one, _: shorten(one.name),
        "NOTE": _note,
    },
    colours={status: colour for status, (_, colour) in _SIGNS_AND_COLOURS.items()},
    short_id=12,
    optional=("OWNER", "PROGRESS", "CHANGED", "DONE"),
    min_cells={"NAME": 16, "NOTE": 30},
)


def objective_head(objective: ObjectiveRow, now: datetime) -> Iterator[Text]:
    """Name, owner, status, progress, current work, and what it waits for."""
    progress, width = objective.progress, terminal_width()

    def line(label: str, text: str, style: str = "") -> Text:
        text = f"{label:<{_LABEL}}{text}".rstrip()
        return styled_text(text if width is None else truncate(text, width), style)

    def paragraph(label: str, text: str, style: str = "") -> Text:
        # Never cut, on several lines if necessary: the reader must know it.
        wrapped = text if width is None else wrap_line(text, width - _LABEL)
        return styled_text(label.ljust(_LABEL) + wrapped.replace("\n", "\n" + " " * _LABEL), style)

    yield line("objective", f"{objective.id}  {one_cell(objective.name)}", "bold")
    if objective.principal:
        yield line("owner", f"{objective.principal} at {objective.account}")
    status = f"{objective.status}, paused" if objective.is_paused else objective.status
    changed = f"changed {format_age(objective.updated_at, now)} ago"
    colour = OBJECTIVE_TABLE.colours.get(objective.status, "")
    yield line("status", f"{status} · {changed}", colour)
    done = bar(progress.done, progress.total, _LONG_BAR)
    count = f"{progress.done} of {progress.total} steps" if progress.total else "no steps"
    yield line("progress", f"{done} {progress.percent} % · {count}")
    if works := describe_working(objective, now):
        yield paragraph("works on", works)
    if waits := describe_waiting(objective, now):
        yield paragraph("waits for", waits, "yellow")
    if objective.is_over and objective.reason:
        yield paragraph("reason", one_line(objective.reason), "red")


def objective_tree(
    objective: ObjectiveRow,
    now: datetime,
    *,
    moving: str = STILL,
    is_folded: bool = False,
    with_ids: bool = False,
) -> Tree:
    """The plans and their steps; `moving` marks what is in progress.

    A folded tree has only the steps that are in progress or wait.
    """
    steps = [cell_len(shorten(task.name)) + _GUIDE for _, task in objective.steps()]
    plans = [cell_len(shorten(plan.name)) for plan in objective.plans]
    width = max([*steps, *plans], default=0)
    screen = terminal_width()
    notes_at = _SIGN + width + (_SHORT_ID + _GAP if with_ids else 0) + _GAP
    cells = None if screen is None else screen - notes_at

    def draw(row: PlanRow | StepRow, name: str, notes: str) -> Text:
        sign, colour = _SIGNS_AND_COLOURS.get(row.status, ("○", ""))
        mark = moving if row.status in _ACTIVE else sign
        name += _short_id(row) if with_ids else ""
        return styled_text(f"{mark} {name}  {notes}".rstrip(), colour)

    tree = Tree("", hide_root=True)
    for plan, plan_notes in _plan_notes(objective, cells):
        branch = tree.add(draw(plan, pad(shorten(plan.name), width), plan_notes))
        for task in plan.tasks:
            if not is_folded or task.status in _ACTIVE or task.status in _WANTS:
                notes = step_notes(objective, plan, task, now, cells=cells)
                branch.add(draw(task, pad(shorten(task.name), width - _GUIDE), notes))
    return tree


def _plan_notes(objective: ObjectiveRow, cells: int | None) -> list[tuple[PlanRow, str]]:
    """How far each plan is, and what it waits for, in so many cells; without bars if need be."""
    bars: list[str] = []
    notes: list[str] = []
    for plan in objective.plans:
        done, total = sum(task.status == _COMPLETED for task in plan.tasks), len(plan.tasks)
        missing = _missing(plan.dependencies, objective.plans, _DONE)
        waits = f" · after {', '.join(missing)}" if missing and plan.status in _WAITING else ""
        note = " · paused" if plan.execution == _PAUSED else waits
        notes.append(f"{done}/{total}  {plan.status}{note}")
        bars.append(f"{bar(done, total)} ")
    if cells is None or _BAR + 1 + max(map(cell_len, notes), default=0) <= cells:
        notes = [drawn + note for drawn, note in zip(bars, notes, strict=True)]
    else:
        notes = [truncate(note, cells) for note in notes]
    return list(zip(objective.plans, notes, strict=True))


def objective_page(
    objective: ObjectiveRow,
    now: datetime,
    *,
    moving: str = STILL,
    max_lines: int | None = None,
    with_ids: bool = False,
) -> list[RenderableType]:
    """One objective; its tree is folded where it would have more than `max_lines` lines."""
    head: list[RenderableType] = [*objective_head(objective, now)]
    if not objective.plans:
        return head
    height = len(head) + 1 + len(objective.plans) + sum(1 for _ in objective.steps())
    is_folded = max_lines is not None and height > max_lines
    tree = objective_tree(objective, now, moving=moving, is_folded=is_folded, with_ids=with_ids)
    return [*head, Text(), tree]


def _short_id(row: PlanRow | StepRow) -> str:
    """The beginning of an id, by which a plan or step can be named."""
    bare = row.id.removeprefix("plan-").removeprefix("task-")
    return f"  {pad(bare[:_SHORT_ID], _SHORT_ID)}"


def objective_changes(objective: ObjectiveRow, _: datetime) -> Iterator[Change]:
    """A line for each status in it, from the steps up to itself."""
    statuses: list[tuple[str, str, str]] = []
    for plan, task in objective.steps():
        agent = objective.agent_of(plan, task) if task.status != _PENDING else ""
        status = " · ".join(filter(None, (task.status, agent, one_line(task.said))))
        statuses.append((task.id, f"{shorten(plan.name)} / {shorten(task.name)}", status))
    statuses += [(plan.id, shorten(plan.name), plan.status) for plan in objective.plans]
    own = "paused" if objective.is_paused else objective.status
    statuses.append((objective.id, shorten(objective.name), own))
    for item_id, name, status in statuses:
        yield item_id, status, f"{objective.id}  {name} · {status}"
