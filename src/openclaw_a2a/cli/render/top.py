"""Draws the screen of `top`: rows of a dashboard page, one task, call or objective, the frame.

Everything here is a function of the JSON that the dashboard sends and of the size of the screen.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import NamedTuple
from urllib.parse import quote

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from openclaw_a2a.cli.render.terminal import (
    even_width,
    format_age,
    format_duration,
    one_cell,
    pad,
    styled_text,
    truncate,
)
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import as_list, as_object

VIEWS = ("now", "tasks", "calls", "objectives")
STATE_TABS = ("all", "waiting", "working", "completed", "failed", "canceled")
"""The tabs of the page of tasks."""

_LOOKS: Mapping[str, tuple[str, str]] = {
    "submitted": ("◌", "bright_black"),
    "pending": ("◌", "bright_black"),
    "planning": ("◐", "blue"),
    "working": ("◐", "blue"),
    "input-required": ("?", "yellow"),
    "auth-required": ("!", "yellow"),
    "approval": ("!", "yellow"),
    "blocked": ("?", "yellow"),
    "paused": ("?", "yellow"),
    "completed": ("✓", "green"),
    "failed": ("✗", "red"),
    "rejected": ("✗", "red"),
    "error": ("✗", "red"),
    "timeout": ("✗", "red"),
    "canceled": ("-", "magenta"),
    "skipped": ("-", "magenta"),
    "discarded": ("-", "magenta"),
}
"""The sign and the colour of each state; the sign alone is enough without colours."""
_MILESTONES: Mapping[str, str] = {
    "accepted": "acceptedAt",
    "answered": "settledAt",
    "delivered": "deliveredAt",
    "seen": "seenAt",
}
"""What a call reaches one after the other, and the member that says when."""
_NARROW = 72
_STATE_CELLS = 16
_AGE_CELLS = 8
_MAX_LINES = 2000


class TopRow(NamedTuple):
    """A line of a list. `page` is the address of its item; empty: a heading.

    `action` is the address to which its answer goes (for `step` of an objective), `question` what
    is asked; `cancel` is where it is canceled.
    """

    key: str
    text: str
    state: str = ""
    at: str = ""
    who: str = ""
    deadline: str = ""
    depth: int = 0
    page: str = ""
    action: str = ""
    question: str = ""
    cancel: str = ""
    step: str = ""

    @property
    def is_heading(self) -> bool:
        """True for a heading."""
        return not self.key

    @property
    def is_approval(self) -> bool:
        """True when it is allowed or denied, not answered with a text."""
        return self.state == "approval"


# -------------------------------------------------------------------- rows of a page


def list_rows(view: str, page: JsonObject) -> list[TopRow]:
    """The lines of a page."""
    if view == "now":
        return [*_list_now(page)]
    if view == "tasks":
        return [_task_row(one) for one in as_list(page.get("tasks"))]
    if view == "calls":
        return [_call_row(one) for one in as_list(page.get("calls"))]
    return [*_list_objectives(page)]


def _list_now(page: JsonObject) -> Iterator[TopRow]:
    approvals, waiting = as_list(page.get("approvals")), as_list(page.get("waiting"))
    counts = as_object(page.get("counts"))
    yield TopRow("", f"Waiting on you  {len(approvals) + len(waiting)}")
    yield from map(_approval_row, approvals)
    yield from map(_task_row, waiting)
    yield TopRow("", f"Working  {counts.get('working', 0)}")
    yield from map(_task_row, as_list(page.get("working")))
    yield TopRow("", "Recently ended")
    yield from map(_task_row, as_list(page.get("recent")))


def _approval_row(one: JsonObject) -> TopRow:
    task = str(one.get("taskId") or "")
    page = _address("tasks", task) if task else ""
    return TopRow(
        f"approval {one['id']}",
        one.get("command") or "",
        "approval",
        one.get("askedAt") or "",
        one.get("agent") or "",
        page=page,
        action=_address("approvals", one["id"]),
        question=f"{one.get('agent')} wants to run: {one.get('command')}",
        cancel=f"{page}/cancel" if page else "",
    )


def _task_row(one: JsonObject) -> TopRow:
    page, state = _address("tasks", one["id"]), one["state"]
    is_asking = state == "input-required"
    is_open = state in ("submitted", "working", "input-required", "auth-required")
    note = one.get("note") or ""
    return TopRow(
        one["id"],
        f"{one.get('title') or '(no text)'}{f'  {note}' if note else ''}",
        state,
        one["statusAt"],
        f"{one['caller']} → {one.get('agent') or one['account']}",
        page=page,
        action=f"{page}/answer" if is_asking else "",
        question=note,
        cancel=f"{page}/cancel" if is_open else "",
    )


def _call_row(one: JsonObject) -> TopRow:
    said = one.get("step") or one["skill"]
    is_open = one["status"] == "pending"
    reached, at = [(label, one[name]) for label, name in _MILESTONES.items() if one.get(name)][-1]
    return TopRow(
        one["id"],
        f"{said}  {one.get('reason') or reached}",
        "working" if is_open else one["status"],
        at,
        f"{one['caller']} → {one['callee']}",
        deadline=(one.get("deadline") or "") if is_open else "",
        depth=one.get("depth") or 0,
        page=_address("calls", one["id"]),
        cancel=f"{_address('tasks', one['task'])}/cancel" if is_open and one["task"] else "",
    )


def _list_objectives(page: JsonObject) -> Iterator[TopRow]:
    for one in as_list(page.get("objectives")):
        progress, address = as_object(one.get("progress")), _address("objectives", one["id"])
        is_over = one["status"] in ("completed", "canceled", "failed")
        done = f"{progress.get('done', 0)}/{progress.get('total', 0)}"
        reason = f"  {one['reason']}" if one.get("reason") else ""
        yield TopRow(
            one["id"],
            f"{done}  {one['name']}{reason}",
            one["status"],
            one["updatedAt"],
            one.get("principal") or "",
            page=address,
            cancel="" if is_over else f"{address}/cancel",
        )


def find_row(page: JsonObject) -> TopRow:
    """The row of the one thing that a page is about, with what can be done to it now."""
    if "conversation" in page:
        row, approval = _task_row(page["task"]), as_object(page.get("approval"))
        return _approval_row(approval) if approval else row
    if "call" in page:
        return _call_row(page["call"])
    [row] = _list_objectives({"objectives": [page["objective"]]})
    for one in as_list(page.get("waiting")):
        asked = f"{one['name']}: {one['question']}"
        return row._replace(action=f"{row.page}/answer", question=asked, step=one["id"])
    return row


def view_address(view: str) -> str:
    """The address of the page of a view."""
    return "/dashboard" if view == "now" else f"/dashboard/{view}"


def _address(*segments: str) -> str:
    return "/".join(["/dashboard", *(quote(one, safe="") for one in segments)])


def describe_page(view: str, page: JsonObject, *, tab: str) -> str:
    """The figures of a page, on one line."""
    if view == "now":
        health = as_object(page.get("health"))
        store = "store ok" if not health.get("store") else f"store: {health['store']}"
        figures = [
            f"{health.get('agentsAvailable', 0)}/{health.get('agents', 0)} agents",
            store,
            f"{health.get('runs', 0)} runs",
            f"{health.get('streams', 0)} streams",
            f"{health.get('deliveriesWaiting', 0)} deliveries retry",
            f"{health.get('deliveriesDead', 0)} given up",
        ]
        return " · ".join(figures)
    if view == "tasks":
        counts = as_object(page.get("counts"))
        return "  ".join(
            f"[{name} {counts.get(name, 0)}]" if name == tab else f"{name} {counts.get(name, 0)}"
            for name in STATE_TABS
        )
    if view == "calls":
        counts = as_object(page.get("counts"))
        return " · ".join(f"{count} {name}" for name, count in counts.items() if count)
    columns = as_list(page.get("columns"))
    return " · ".join(f"{one['totalSize']} {str(one['label']).lower()}" for one in columns)


def say_empty(view: str, page: JsonObject, *, is_filtered: bool) -> str:
    """Why there are no rows, and what to do about it."""
    if is_filtered:
        return "Nothing matches. Esc removes the filter."
    if page.get("isEnabled") is False:
        setting = "tools.agentToAgent.enabled" if view == "calls" else "opt.enabled"
        return f"This is off at the gateway; the setting is {setting}."
    return {
        "now": "",
        "tasks": 'No tasks. Send the first one: openclaw-a2a send "hello"',
        "calls": "No agent has called another yet.",
        "objectives": 'No objectives. Make one: openclaw-a2a objectives create "..."',
    }[view]


# -------------------------------------------------------------------- one thing, in full


def describe_item(item: JsonObject, now: datetime) -> list[tuple[str, str]]:
    """A task, a call or an objective as lines, each with a style; a line may be long."""
    if "conversation" in item:
        lines = _describe_task(item, now)
    elif "call" in item:
        lines = _describe_call(item, now)
    else:
        lines = _describe_objective(item)
    return [*islice(lines, _MAX_LINES)]


def _describe_task(item: JsonObject, now: datetime) -> Iterator[tuple[str, str]]:
    task, headline = as_object(item["task"]), as_object(item["headline"])
    yield f"{task.get('title') or '(no text)'}", "bold"
    yield f"{headline['text']}", _LOOKS.get(task["state"], ("", ""))[1]
    yield (
        f"{task['state']} since {_age(task['statusAt'], now)} · "
        f"{task['caller']} → {task.get('agent') or task['account']} · {task['id']}",
        "bright_black",
    )
    for call in as_list(item.get("calls")):
        where = "called by" if call["direction"] == "in" else "calls"
        other = call["caller"] if call["direction"] == "in" else call["callee"]
        yield f"{where} {other} for {call['skill']}: {call['status']}", ""
    yield "", ""
    for said in as_list(item.get("conversation")):
        name = f" {said['name']}" if said.get("name") else ""
        yield f"{said['kind']}{name}", "bold"
        for part in as_list(said.get("parts")):
            text = part.get("text") or f"({part.get('name') or part['kind']})"
            yield from _list_lines(text)
        yield "", ""


def _describe_call(item: JsonObject, now: datetime) -> Iterator[tuple[str, str]]:
    call, debate = as_object(item["call"]), as_object(item.get("debate"))
    yield debate.get("topic") or f"{call['caller']} → {call['callee']}  {call['skill']}", "bold"
    reached = [
        f"{label} {_age(call[name], now)} ago"
        for label, name in _MILESTONES.items()
        if call.get(name)
    ]
    yield f"{call['status']} · {' · '.join(reached)}", _LOOKS.get(call["status"], ("", ""))[1]
    if call["status"] == "pending" and call.get("deadline"):
        yield f"{_left(call['deadline'], now)} left", "yellow"
    yield f"call {call['id']} · task {call['task']}", "bright_black"
    yield "", ""
    if not debate:
        yield "asked", "bold"
        yield from _list_lines(item.get("asked") or "")
        yield "answered", "bold"
        yield from _list_lines(
            item.get("error") or item.get("text") or item.get("data") or "nothing yet"
        )
        return
    yield from _describe_debate(debate)


def _describe_debate(debate: JsonObject) -> Iterator[tuple[str, str]]:
    verdict = as_object(debate.get("verdict"))
    if verdict:
        colour = {"resolved": "green", "unresolved": "yellow"}.get(verdict["status"], "red")
        yield f"Verdict: {verdict['status']} · {verdict['confidence']:.0%} sure", f"bold {colour}"
        yield from _list_lines(
            verdict.get("text") or verdict.get("data") or verdict.get("error") or ""
        )
        yield "", ""
    for round_ in as_list(debate.get("rounds")):
        for said in as_list(round_["contributions"]):
            sure = "" if said.get("confidence") is None else f" · {said['confidence']:.0%} sure"
            waits = " · thinks" if said["status"] == "pending" else ""
            number = f"round {round_['number']} · " if said["role"] == "critique" else ""
            yield f"{said['agent']} · {number}{said['role']}{sure}{waits}", "bold"
            texts = [said.get("text"), said.get("data"), said.get("error")]
            texts += [f"- {flaw}" for flaw in as_list(said.get("flaws"))]
            texts += [f"instead: {other}" for other in as_list(said.get("alternatives"))]
            yield from _list_lines("\n".join(str(one) for one in texts if one))


def _describe_objective(item: JsonObject) -> Iterator[tuple[str, str]]:
    one = as_object(item["objective"])
    progress, numbers = as_object(one.get("progress")), as_object(item.get("numbers"))
    yield str(one["name"]), "bold"
    yield (
        f"{one['status']} · {progress.get('done', 0)} of {progress.get('total', 0)} steps",
        _LOOKS.get(one["status"], ("", ""))[1],
    )
    for text in (one.get("reason"), one.get("description")):
        yield from _list_lines(text or "", indent="")
    yield str(one["id"]), "bright_black"
    for plan in as_list(one.get("plans")):
        yield "", ""
        yield f"{plan['name']}  ({plan['status']})", "bold"
        for step in as_list(plan.get("tasks")):
            sign, colour = _LOOKS.get(step["status"], ("·", ""))
            number = numbers.get(step["id"], "")
            yield f"  {sign} {number} {step['name']}  {step['status']}", colour
            yield from _list_lines(step.get("said") or "", indent=" " * 6)


def _list_lines(text: Json, indent: str = "  ") -> Iterator[tuple[str, str]]:
    return ((f"{indent}{line}", "") for line in str(text).splitlines())


# -------------------------------------------------------------------- lines of the screen


def draw_row(row: TopRow, width: int, now: datetime, *, is_chosen: bool) -> Text:
    """A row in exactly so many cells."""
    if row.is_heading:
        return styled_text(truncate(even_width(row.text), width), "bold")
    sign, colour = _LOOKS.get(row.state, ("·", ""))
    when = f"in {_left(row.deadline, now)}" if row.deadline else _age(row.at, now)
    is_narrow = width < _NARROW
    who_cells = 0 if is_narrow else min(28, max(16, width // 4))
    state = f"{sign} " if is_narrow else f"{sign} {row.state.replace('-', ' ')}"
    indent = "  " * row.depth
    text = f"{indent}{row.who}  {row.text}" if is_narrow and row.who else f"{row.text}"
    cells = [
        (state, 2 if is_narrow else _STATE_CELLS, colour),
        (when, _AGE_CELLS, "bright_black"),
        *([(f"{indent}{row.who}", who_cells, "")] if who_cells else []),
    ]
    line = Text()
    for said, size, style in cells:
        line.append_text(styled_text(_fit(said, size), style))
        line.append(" ")
    line.append_text(styled_text(_fit(text, max(0, width - cell_len(line.plain)))))
    if is_chosen:
        line.stylize("reverse")
    return line


def draw_frame(
    body: Sequence[Text], *, size: tuple[int, int], top: Sequence[Text], bottom: Sequence[Text]
) -> list[Text]:
    """The screen: the header, the part of the body that fits, the footer."""
    _, height = size
    room = max(0, height - len(top) - len(bottom))
    middle = list(body[:room])
    middle += [Text("")] * (room - len(middle))
    return [*top, *middle, *bottom][:height]


def draw_line(text: str, width: int, style: str = "") -> Text:
    """A text on one line of the screen."""
    return styled_text(truncate(even_width(text), width), style)


def draw_hint(text: str, width: int) -> Text:
    """The key hints, with less space between them on a narrow screen."""
    return draw_line(text if cell_len(text) <= width else one_cell(text), width, "bright_black")


def draw_tabs(view: str, state: str, width: int) -> Text:
    """The views, the chosen one marked, and the state of the connection on the right."""
    line = Text()
    for number, name in enumerate(VIEWS, 1):
        line.append(f" {number} {name} ", "reverse" if name == view else "")
    room = width - cell_len(line.plain) - 1
    if room > 4:
        shown = truncate(one_cell(state), room)
        line.append(" " * (room - cell_len(shown) + 1))
        line.append(shown, "red" if state.startswith("no ") else "bright_black")
    line.truncate(width)
    return line


def wrap_lines(lines: Iterable[tuple[str, str]], width: int) -> list[Text]:
    """Lines with styles, broken where they are longer than the screen is wide."""
    shown: list[Text] = []
    for line, style in lines:
        rest = even_width(line).rstrip()
        indent = rest[: len(rest) - len(rest.lstrip())][: width // 2]
        if not rest:
            shown.append(Text(""))
        while rest:
            piece, rest = _split(rest, width)
            shown.append(styled_text(piece, style))
            rest = f"{indent}{rest}" if rest else ""
    return shown


def _split(text: str, width: int) -> tuple[str, str]:
    """The part of a text that fits, and the rest: broken at a blank where there is one."""
    if cell_len(text) <= width:
        return text, ""
    cut = len(set_cell_size(text, width).rstrip())
    piece = text[: max(1, cut)]
    blank = piece.rfind(" ")
    if blank > len(piece) // 2:
        piece = piece[:blank]
    return piece, text[len(piece) :].lstrip(" ")


def _fit(text: str, cells: int) -> str:
    return pad(truncate(even_width(text), cells), cells) if cells > 0 else ""


def _age(moment: Json, now: datetime) -> str:
    if not isinstance(moment, str) or not moment:
        return ""
    return format_age(datetime.fromisoformat(moment), now)


def _left(deadline: str, now: datetime) -> str:
    return format_duration((datetime.fromisoformat(deadline) - now).total_seconds())
