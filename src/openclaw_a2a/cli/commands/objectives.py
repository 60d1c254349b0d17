"""`objectives`: list, show, watch, run and answer objectives; export and import them."""

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from cyclopts import App, Parameter

from openclaw_a2a.cli.admin_client import DEFAULT_ADMIN, AdminOptions
from openclaw_a2a.cli.errors import DONE, usage_error
from openclaw_a2a.cli.flags import LimitFlag, switch
from openclaw_a2a.cli.render.objectives import (
    OBJECTIVE_TABLE,
    ObjectiveRow,
    objective_changes,
    objective_page,
)
from openclaw_a2a.cli.render.terminal import (
    console_for,
    one_line,
    print_data,
    print_message,
    print_result,
)
from openclaw_a2a.cli.resource import WatchedResource
from openclaw_a2a.cli.selection import decode_response

if TYPE_CHECKING:
    from rich.console import RenderableType

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAMES_PER_S = 5


def _live_page(objective: ObjectiveRow, now: datetime) -> "list[RenderableType]":
    """An objective in motion, folded where the terminal is too low for all of its steps."""
    moving = _SPINNER[int(now.timestamp() * _FRAMES_PER_S) % len(_SPINNER)]
    # Whole in the end: that page stays on the terminal.
    max_lines = None if objective.is_over else console_for(sys.stdout).height - 3
    return objective_page(objective, now, moving=moving, max_lines=max_lines)


def _answer_hint(objective: ObjectiveRow, options: AdminOptions) -> str:
    command = options.command(f"objectives answer {objective.id} TEXT")
    return f"Answer it: {command}" if objective.asks else ""


_OBJECTIVES = WatchedResource[ObjectiveRow](
    path="objectives",
    noun="objective",
    item_type=ObjectiveRow,
    table=OBJECTIVE_TABLE,
    show_page=objective_page,
    live_page=_live_page,
    changes=objective_changes,
    hint=_answer_hint,
    not_found="plan-item-not-found",
    list_hint="See the objectives there are: openclaw-a2a objectives list",
    empty="No objectives.",
    filters={"status": "with status"},
    feature=(
        "objectives",
        "objectives-off",
        "Set opt.enabled to true, then start the gateway again.",
    ),
    strict_id="an objective",
    id_prefix="obj-",
)

app = App(
    name="objectives",
    help="List, show, watch, run, answer, export and import objectives. Ids may be cut to their "
    "unique beginning, with or without obj-.",
)

Objective = Annotated[str, Parameter(help="The objective's id, or its beginning.")]
Status = Literal["submitted", "planning", "working", "blocked", "completed", "failed", "canceled"]


@app.command(name="list")
def list_(
    *,
    status: Annotated[Status | None, Parameter(help="Only objectives with this status.")] = None,
    limit: LimitFlag = 20,
    options: AdminOptions = DEFAULT_ADMIN,
) -> int:
    """List objectives, the newest first."""
    return _OBJECTIVES.list(options, limit=limit, status=status)


@app.command(name="show")
def show_(objective: Objective, /, *, options: AdminOptions = DEFAULT_ADMIN) -> int:
    """Show an objective: plans and steps as a tree, progress, and what it waits for."""
    return _OBJECTIVES.show(options, objective)


@app.command
def watch(
    objective: Annotated[
        str | None,
        Parameter(help="The objective's id, or its beginning; left out: the newest objectives."),
    ] = None,
    /,
    *,
    options: AdminOptions = DEFAULT_ADMIN,
) -> int:
    """Follow an objective until it is over, or all objectives until Ctrl-C.

    With --json one line per change.
    """
    return _OBJECTIVES.watch(options, objective)


@app.command
def run(
    objective: Objective,
    /,
    *,
    follow: Annotated[bool, switch("Watch it until it is over.")] = False,
    options: AdminOptions = DEFAULT_ADMIN,
) -> int:
    """Execute the steps of an objective."""
    if not follow:
        return _act(objective, "run", options)
    with _OBJECTIVES.connect(options) as admin:
        objective_id = _OBJECTIVES.find(admin, objective)
        admin.post("objectives", objective_id, "run", body={})
        return _OBJECTIVES.watch_item(admin, objective_id, options)


@app.command
def answer(
    objective: Objective,
    text: Annotated[str, Parameter(help="The answer.")],
    /,
    *,
    step: Annotated[str | None, Parameter(help="Which step, where several wait.")] = None,
    options: AdminOptions = DEFAULT_ADMIN,
) -> int:
    """Answer a step of an objective that waits for an answer."""
    body = {"text": text} if step is None else {"text": text, "step": step}
    return _act(objective, "answer", options, body)


@app.command
def pause(objective: Objective, /, *, options: AdminOptions = DEFAULT_ADMIN) -> int:
    """Start no more steps of an objective; those in progress continue."""
    return _act(objective, "pause", options)


@app.command
def resume(objective: Objective, /, *, options: AdminOptions = DEFAULT_ADMIN) -> int:
    """Continue a paused objective."""
    return _act(objective, "resume", options)


@app.command
def cancel(objective: Objective, /, *, options: AdminOptions = DEFAULT_ADMIN) -> int:
    """Cancel an objective; steps in progress are stopped."""
    return _act(objective, "cancel", options)


@app.command
def export(
    objective: Objective,
    file: Annotated[Path | None, Parameter(help="A new file; left out: standard output.")] = None,
    /,
    *,
    options: AdminOptions = DEFAULT_ADMIN,
) -> int:
    """Write the log of an objective as JSON lines, to be imported elsewhere."""
    with _OBJECTIVES.connect(options) as admin:
        objective_id = _OBJECTIVES.find(admin, objective)
        content = admin.get("objectives", objective_id, "export")
    if file is None or str(file) == "-":
        print_data(content.decode(errors="replace"), end="")
        return DONE
    try:
        with file.open("xb") as opened:  # a file that exists is never overwritten
            opened.write(content)
    except FileExistsError:
        raise usage_error(f"{file} is there already; name another file") from None
    except OSError as error:
        raise usage_error(f"{file} cannot be written: {error.strerror}") from None
    count = content.count(b"\n")
    document = {"id": objective_id, "file": str(file), "lines": count}
    line = f"{objective_id}  {count} lines in {file}"
    print_result(document, line, as_json=options.as_json)
    return DONE


@app.command(name="import")
def import_(
    file: Annotated[Path, Parameter(help="The file; - is standard input.")],
    /,
    *,
    options: AdminOptions = DEFAULT_ADMIN,
) -> int:
    """Import an objective that was exported; it keeps its id."""
    try:
        content = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise usage_error(f"{file} cannot be read: {error.strerror}") from None
    with _OBJECTIVES.connect(options) as admin:
        answer = admin.post("objectives", "import", body=content)
    _show_result(answer, options)
    return DONE


def _act(
    prefix: str, action: str, options: AdminOptions, body: dict[str, str] | None = None
) -> int:
    objective_id, answer = _OBJECTIVES.post(options, prefix, action, body=body)
    shown = _show_result(answer, options)
    is_going_on = action == "answer" or (action in {"run", "resume"} and not shown.is_over)
    if is_going_on and not options.as_json:
        print_message(f"Watch it: {options.command(f'objectives watch {objective_id}')}", "dim")
    return DONE


def _show_result(answer: bytes, options: AdminOptions) -> ObjectiveRow:
    shown = decode_response(answer, ObjectiveRow)
    paused = ", paused" if shown.is_paused else ""
    line = f"{shown.id}  {shown.status}{paused}  {one_line(shown.name)}"
    print_result(msgspec.json.decode(answer), line, as_json=options.as_json)
    return shown
