"""Draws objectives as lines of text: a table of many, a tree of one."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from openclaw_a2a.cli.call_shown import age
from openclaw_a2a.cli.live import Line
from openclaw_a2a.cli.objectives_shown import (
    ACTIVE,
    ShownObjective,
    ShownPlan,
    ShownTask,
    one_line,
    plan_note,
    short,
    task_note,
    waiting_words,
    working_words,
)

COLOURS = {
    "completed": "green",
    "failed": "red",
    "rejected": "red",
    "blocked": "yellow",
    "input-required": "yellow",
    "auth-required": "yellow",
    "pending": "dim",
    "skipped": "dim",
    "canceled": "dim",
}
HEADING = ("OBJECTIVE", "STATUS", "PROGRESS", "DONE", "CHANGED", "OWNER", "NAME", "NOTE")
STILL = "●"
"""What stands before work that is under way, where nothing moves."""

_SIGNS = {
    "completed": "✓",
    "failed": "✗",
    "rejected": "✗",
    "blocked": "‖",
    "input-required": "?",
    "auth-required": "?",
    "skipped": "∅",
    "canceled": "∅",
}
_SHORT_ID = 12
_BAR = 10
_LONG_BAR = 24


def bar(done: int, total: int, width: int = _BAR) -> str:
    """How much of something is done, as a bar; full only when all is."""
    filled = width * done // total if total else 0
    return "█" * filled + "░" * (width - filled)


def table_row(objective: ShownObjective, now: datetime, *, is_short: bool) -> tuple[str, ...]:
    """An objective as a row of a table."""
    progress = objective.progress
    return (
        objective.id[:_SHORT_ID] if is_short else objective.id,
        "paused" if objective.is_paused else objective.status,
        bar(progress.done, progress.total),
        f"{progress.done}/{progress.total}",
        age(objective.updated_at, now),
        objective.principal or "-",
        short(objective.name),
        _note(objective, now),
    )


def table_lines(
    objectives: Sequence[ShownObjective], now: datetime, *, is_short: bool
) -> list[Line]:
    """Objectives as a table whose lines have the colour of their status."""
    rows = [HEADING, *(table_row(one, now, is_short=is_short) for one in objectives)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    colours = [None, *(COLOURS.get(one.status) for one in objectives)]
    return list(zip(lines, colours, strict=True))


def head_lines(objective: ShownObjective, now: datetime) -> Iterator[Line]:
    """What it is, how far it is, who is at work, and what is waited for."""
    progress = objective.progress
    yield f"objective  {objective.id}  {one_line(objective.name)}".rstrip(), "bold"
    if objective.principal:
        yield f"owner      {objective.principal} at {objective.account}", None
    status = f"{objective.status}, paused" if objective.is_paused else objective.status
    told = f"status     {status} · changed {age(objective.updated_at, now)} ago"
    yield told, COLOURS.get(objective.status)
    done = bar(progress.done, progress.total, _LONG_BAR)
    count = f"{progress.done} of {progress.total} steps"
    yield f"progress   {done} {progress.percent} % · {count}", None
    if works := working_words(objective, now):
        yield f"works on   {works}", None
    if waits := waiting_words(objective, now):
        yield f"waits for  {waits}", "yellow"


def tree_lines(
    objective: ShownObjective, now: datetime, *, moving: str = STILL, is_folded: bool = False
) -> Iterator[Line]:
    """The plans and their steps as a tree; `moving` stands before what is under way.

    A folded one has only the steps that are under way or wait.
    """
    plans = objective.plans
    widths = [len(short(task.name)) for _, task in objective.steps()]
    plan_widths = [len(short(plan.name)) for plan in plans]
    width = max([*(one + 3 for one in widths), *plan_widths], default=0)
    for place, plan in enumerate(plans, 1):
        branch, below = ("└─ ", "   ") if place == len(plans) else ("├─ ", "│  ")
        yield _plan_line(branch, objective, plan, (width, moving))
        tasks = [task for task in plan.tasks if task.is_live or not is_folded]
        for number, task in enumerate(tasks, 1):
            twig = "└─ " if number == len(tasks) else "├─ "
            notes = " · ".join(task_note(objective, plan, task, now))
            words = f"{below}{twig}{_sign(task.status, moving)} {short(task.name):<{width - 3}}"
            yield f"{words}  {notes}".rstrip(), COLOURS.get(task.status)


def whole_lines(
    objective: ShownObjective, now: datetime, *, moving: str = STILL, room: int | None = None
) -> list[Line]:
    """Everything worth seeing of one objective; its tree is folded where there is no room."""
    head, tree = list(head_lines(objective, now)), list(tree_lines(objective, now, moving=moving))
    if room is not None and len(head) + 1 + len(tree) > room:
        tree = list(tree_lines(objective, now, moving=moving, is_folded=True))
    return [*head, *([("", None), *tree] if tree else [])]


def facts(objective: ShownObjective) -> Iterator[tuple[str, str, str]]:
    """The id, the name and the status of everything in it, from the steps up to itself."""
    for plan, task in objective.steps():
        yield task.id, f"{short(plan.name)} / {short(task.name)}", _said(objective, plan, task)
    for plan in objective.plans:
        yield plan.id, short(plan.name), plan.status
    yield objective.id, short(objective.name), "paused" if objective.is_paused else objective.status


def _plan_line(
    branch: str, objective: ShownObjective, plan: ShownPlan, look: tuple[int, str]
) -> Line:
    width, moving = look
    words = f"{branch}{_sign(plan.status, moving)} {short(plan.name):<{width}}"
    done = f"{bar(plan.done, len(plan.tasks))} {plan.done}/{len(plan.tasks)}"
    notes = " · ".join(filter(None, (plan.status, plan_note(objective, plan))))
    return f"{words}  {done}  {notes}", COLOURS.get(plan.status)


def _sign(status: str, moving: str) -> str:
    return moving if status in ACTIVE else _SIGNS.get(status, "○")


def _said(objective: ShownObjective, plan: ShownPlan, task: ShownTask) -> str:
    agent = objective.agent_of(plan, task)
    who = agent if task.status != "pending" else ""
    return " · ".join(filter(None, (task.status, who, one_line(task.said))))


def _note(objective: ShownObjective, now: datetime) -> str:
    waits = waiting_words(objective, now)
    return f"waits for {waits}" if waits else working_words(objective, now)
