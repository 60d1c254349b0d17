"""Objectives: what the admin endpoint sends, and how a terminal shows it."""

import math
from collections.abc import Iterator, Sequence, Set
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
)
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.message import JsonStruct

COMPLETED = "completed"
BLOCKED = "blocked"
PENDING = "pending"
OVER = frozenset({COMPLETED, "failed", "canceled"})
"""Nothing more happens to such an objective by itself."""

ACTIVE = frozenset({"submitted", "working"})
_WAITING = frozenset({PENDING, BLOCKED})
_DONE = frozenset({COMPLETED, "skipped"})
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
    """A step that works or waits, and since when; or one that failed and is tried again."""

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
    status: str = PENDING
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
        return self.status == COMPLETED

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


def step_notes(objective: ObjectiveRow, plan: PlanRow, task: StepRow, now: datetime) -> str:
    """The agent of a step, since when it works, and what it waits for."""
    notes = [objective.agent_of(plan, task)]
    if task.status in _WANTS:
        notes.append(f"waits for {_WANTS[task.status]}")
    elif task.status == PENDING:
        for retry in objective.progress.retrying:
            if retry.task_id == task.id:
                times = "once" if retry.attempts == 1 else f"{retry.attempts} times"
                notes.append(f"failed {times}, again {_in(retry.next_at, now)}")
        missing = _missing(task.dependencies, plan.tasks, {COMPLETED})
        if missing and plan.status != "skipped":
            notes.append(f"after {', '.join(missing)}")
    elif task.status != COMPLETED:
        notes.append(task.status)
    timed = [*objective.progress.current, objective.progress.oldest_waiting]
    since = next((one.since for one in timed if one and one.task_id == task.id), None)
    if since is not None:
        notes.append(format_age(since, now))
    if task.a2a_task_id and task.status != PENDING:
        notes.append(f"task {task.a2a_task_id[:8]}")
    return " · ".join(filter(None, (*notes, one_line(task.said))))


def describe_waiting(objective: ObjectiveRow, now: datetime) -> str:
    """The one thing that an objective waits for most; nothing when it goes on by itself."""
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
"""What stands before work that is under way, where nothing moves."""

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
    progress = objective.progress
    yield styled_text(f"objective  {objective.id}  {one_line(objective.name)}".rstrip(), "bold")
    if objective.principal:
        yield styled_text(f"owner      {objective.principal} at {objective.account}")
    status = f"{objective.status}, paused" if objective.is_paused else objective.status
    line = f"status     {status} · changed {format_age(objective.updated_at, now)} ago"
    yield styled_text(line, OBJECTIVE_TABLE.colours.get(objective.status, ""))
    done = bar(progress.done, progress.total, _LONG_BAR)
    count = f"{progress.done} of {progress.total} steps" if progress.total else "no steps"
    yield styled_text(f"progress   {done} {progress.percent} % · {count}")
    if works := describe_working(objective, now):
        yield styled_text(f"works on   {works}")
    if waits := describe_waiting(objective, now):
        yield styled_text(f"waits for  {waits}", "yellow")
    if objective.is_over and objective.reason:
        yield styled_text(f"reason     {one_line(objective.reason)}", "red")


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

    def draw(row: PlanRow | StepRow, text: str) -> Text:
        sign, colour = _SIGNS_AND_COLOURS.get(row.status, ("○", ""))
        return styled_text(f"{moving if row.status in ACTIVE else sign} {text}".rstrip(), colour)

    tree = Tree("", hide_root=True)
    for plan in objective.plans:
        done = sum(task.status == COMPLETED for task in plan.tasks)
        progress = f"{bar(done, len(plan.tasks))} {done}/{len(plan.tasks)}"
        missing = _missing(plan.dependencies, objective.plans, _DONE)
        waits = f" · after {', '.join(missing)}" if missing and plan.status in _WAITING else ""
        note = " · paused" if plan.execution == _PAUSED else waits
        name = pad(shorten(plan.name), width) + (_short_id(plan) if with_ids else "")
        branch = tree.add(draw(plan, f"{name}  {progress}  {plan.status}{note}"))
        for task in plan.tasks:
            if not is_folded or task.status in ACTIVE or task.status in _WANTS:
                notes = step_notes(objective, plan, task, now)
                name = pad(shorten(task.name), width - _GUIDE)
                name += _short_id(task) if with_ids else ""
                branch.add(draw(task, f"{name}  {notes}"))
    return tree


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
        agent = objective.agent_of(plan, task) if task.status != PENDING else ""
        status = " · ".join(filter(None, (task.status, agent, one_line(task.said))))
        statuses.append((task.id, f"{shorten(plan.name)} / {shorten(task.name)}", status))
    statuses += [(plan.id, shorten(plan.name), plan.status) for plan in objective.plans]
    own = "paused" if objective.is_paused else objective.status
    statuses.append((objective.id, shorten(objective.name), own))
    for item_id, name, status in statuses:
        yield item_id, status, f"{objective.id}  {name} · {status}"
