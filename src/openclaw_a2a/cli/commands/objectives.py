"""`objectives`: make, plan, run, watch and answer objectives; delete, export and import them."""

import os
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from cyclopts import App, Parameter

from openclaw_a2a.cli.admin_client import AdminClient
from openclaw_a2a.cli.errors import DONE, next_step, usage_error
from openclaw_a2a.cli.follow import Reconnect
from openclaw_a2a.cli.options import (
    DEFAULT_ADMIN,
    AdminOptions,
    LimitFlag,
    YesFlag,
    confirm,
    decode_response,
    parse_json_object,
    read_file,
    switch,
)
from openclaw_a2a.cli.render.objectives import (
    BLOCKED,
    OBJECTIVE_TABLE,
    ObjectiveRow,
    describe_waiting,
    objective_changes,
    objective_page,
)
from openclaw_a2a.cli.render.terminal import (
    WaitIndicator,
    console_for,
    one_line,
    print_data,
    print_json,
    print_message,
    print_page,
    print_result,
)
from openclaw_a2a.cli.resource import WatchedResource
from openclaw_a2a.model.errors import AgentFailed

if TYPE_CHECKING:
    from rich.console import RenderableType

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAMES_PER_S = 5
_MAX_NAME = 80
_POLL_S = 0.3


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
    show_page=partial(objective_page, with_ids=True),
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
    help="Create, show, plan, run, watch, answer and delete objectives. Ids can be shortened "
    "to a unique prefix, with or without obj-; plans and steps also go by their names.",
)

_Objective = Annotated[str, Parameter(help="The objective's id, or its beginning.")]
_Status = Literal["submitted", "planning", "working", "blocked", "completed", "failed", "canceled"]


@app.command(name="list")
def list_(
    *,
    status: Annotated[_Status | None, Parameter(help="Only objectives with this status.")] = None,
    limit: LimitFlag = 20,
    options: AdminOptions = DEFAULT_ADMIN,
) -> int:
    """List objectives, the newest first."""
    return _OBJECTIVES.list(options, limit=limit, status=status)


@app.command(name="show")
def show_(objective: _Objective, /, *, options: AdminOptions = DEFAULT_ADMIN) -> int:
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
def create(
    name: Annotated[str, Parameter(help="The goal in a few words.")],
    /,
    *,
    description: Annotated[str | None, Parameter(help="The full description.")] = None,
    options: AdminOptions = DEFAULT_ADMIN,
) -> int:
    """Create an objective without plans."""
    with _OBJECTIVES.connect(options) as admin:
        answer = admin.post("objectives", body=_creation(name, description))
    made = _show_result(answer, options)
    if not options.as_json:
        step = options.command(f"objectives plan {made.id} FILE")
        print_message(f"Give it plans: {step}", "dim")
    return DONE


@app.command
def plan(
    objective: Annotated[
        str | None, Parameter(help="The objective's id, or its beginning; or else --goal.")
    ] = None,
    file: Annotated[
        str | None,
        Parameter(help="A JSON file with plans; - is standard input; left out: the planner's."),
    ] = None,
    /,
    *,
    goal: Annotated[
        str | None, Parameter(help="Create an objective for this goal, planned by the planner.")
    ] = None,
    options: AdminOptions = DEFAULT_ADMIN,
) -> int:
    """Add plans to an objective, from a file or made by the planner (opt.planner).

    A file has `{"plans": [{"name", "description", "dependencies", "tasks": [{"name",
    "description", "dependencies", "metadata"}]}]}`. Plans depend on each other by their numbers
    from 0, tasks by task-0, task-1. They are executed after `objectives run`; an objective that is
    running executes them at once.
    """
    if (objective is None) == (goal is None):
        raise usage_error("name an objective, or give --goal TEXT, and not both")
    plans = None if file is None else _read_plans(file)
    with _OBJECTIVES.connect(options) as admin:
        if goal is not None:
            # In one request, which is refused whole where there is no planner.
            creation = {**_creation(goal[:_MAX_NAME], goal), "plan": plans is None}
            objective_id = decode_response(admin.post("objectives", body=creation), ObjectiveRow).id
        else:
            objective_id = _OBJECTIVES.find(admin, objective or "")
        if plans is not None:
            answer = admin.post("objectives", objective_id, "plans", body=plans)
        else:
            if goal is None:
                admin.post("objectives", objective_id, "plans", body={})
            answer = _wait_for_plans(admin, objective_id)
    if options.as_json:
        print_json(msgspec.json.decode(answer))
        return DONE
    planned = decode_response(answer, ObjectiveRow)
    print_page(objective_page(planned, datetime.now(UTC), with_ids=True))
    verb, action = ("Watch", "watch") if planned.is_running else ("Run", "run")
    print_message(f"{verb} it: {options.command(f'objectives {action} {objective_id}')}", "dim")
    return DONE


def _creation(name: str, description: str | None) -> dict[str, str | bool]:
    is_more = description is not None and description != name
    return {"name": name, "description": description} if is_more and description else {"name": name}


def _read_plans(file: str) -> bytes:
    """What a file has. Raises: InvalidRequest."""
    step = 'Write {"plans": [{"name": "...", "tasks": [{"name": "..."}]}]}.'
    content = read_file(file, step)
    parse_json_object(content, what=file, step=step)
    return content


def _wait_for_plans(admin: AdminClient, objective_id: str) -> bytes:
    """Wait for the planner; the objective with its plans. Raises: AgentFailed (it gave up)."""
    waiting, reconnect = WaitIndicator("the planner", "planning"), Reconnect()
    try:
        while True:
            answer = reconnect.call(lambda: admin.get("objectives", objective_id), waiting.clear)
            shown = decode_response(answer, ObjectiveRow)
            if shown.plans:
                return answer
            if shown.is_over or shown.status == BLOCKED:
                reason = describe_waiting(shown, datetime.now(UTC)) or shown.status
                step = (
                    f"Give it plans of your own: openclaw-a2a objectives plan {objective_id} FILE"
                )
                raise AgentFailed(reason, details=next_step("planner-failed", step))
            waiting.wait(_POLL_S, "planning")
    finally:
        waiting.clear()


@app.command
def replan(objective: _Objective, /, *, options: AdminOptions = DEFAULT_ADMIN) -> int:
    """Stop an objective, so that its plans can be changed; `run` continues it."""
    return _act(objective, "replan", options)


@app.command
def retry(
    objective: _Objective,
    item: Annotated[
        str, Parameter(help="The plan or step that failed: its id, its name, or the beginning.")
    ],
    /,
    *,
    options: AdminOptions = DEFAULT_ADMIN,
) -> int:
    """Try one failed plan or step again; `run` tries all of them."""
    return _act(objective, "retry", options, {"item": item})


@app.command
def delete(
    objective: _Objective,
    /,
    *,
    cancel: Annotated[bool, switch("Stop what runs first.")] = False,
    yes: YesFlag = False,
    options: AdminOptions = DEFAULT_ADMIN,
) -> int:
    """Delete an objective with its plans; the tasks of its steps are kept as long as others."""
    with _OBJECTIVES.connect(options) as admin:
        objective_id = _OBJECTIVES.find(admin, objective)
        unasked = f"deleting {objective_id} cannot be undone and nobody can be asked"
        if not yes and not confirm(f"Delete {objective_id} for ever? [y/N] ", unasked):
            print_message("Nothing was deleted.")
            return DONE
        answer = admin.post("objectives", objective_id, "delete", body={"cancel": cancel})
    document = msgspec.json.decode(answer)
    print_result(document, f"{objective_id}  deleted", as_json=options.as_json)
    return DONE


@app.command
def run(
    objective: _Objective,
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
    objective: _Objective,
    text: Annotated[str, Parameter(help="The answer.")],
    /,
    *,
    step: Annotated[
        str | None,
        Parameter(help="Which step, where several wait: its id, its name, or the beginning."),
    ] = None,
    options: AdminOptions = DEFAULT_ADMIN,
) -> int:
    """Answer a step of an objective that waits for an answer."""
    body = {"text": text} if step is None else {"text": text, "step": step}
    return _act(objective, "answer", options, body)


@app.command
def pause(objective: _Objective, /, *, options: AdminOptions = DEFAULT_ADMIN) -> int:
    """Start no more steps of an objective; those in progress continue."""
    return _act(objective, "pause", options)


@app.command
def resume(objective: _Objective, /, *, options: AdminOptions = DEFAULT_ADMIN) -> int:
    """Continue a paused objective."""
    return _act(objective, "resume", options)


@app.command
def cancel(objective: _Objective, /, *, options: AdminOptions = DEFAULT_ADMIN) -> int:
    """Cancel an objective; steps in progress are stopped."""
    return _act(objective, "cancel", options)


@app.command
def export(
    objective: _Objective,
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
        # Only for its owner, like the store; a file that exists is never overwritten.
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as opened:
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
    content = read_file(str(file))
    with _OBJECTIVES.connect(options) as admin:
        answer = admin.post("objectives", "import", body=content)
    _show_result(answer, options)
    return DONE


def _act(
    prefix: str, action: str, options: AdminOptions, body: dict[str, str] | None = None
) -> int:
    objective_id, answer = _OBJECTIVES.post(options, prefix, action, body=body)
    shown = _show_result(answer, options)
    goes_on = {"run", "resume", "retry"}
    is_going_on = action == "answer" or (action in goes_on and not shown.is_over)
    if is_going_on and not options.as_json:
        print_message(f"Watch it: {options.command(f'objectives watch {objective_id}')}", "dim")
    return DONE


def _show_result(answer: bytes, options: AdminOptions) -> ObjectiveRow:
    shown = decode_response(answer, ObjectiveRow)
    paused = ", paused" if shown.is_paused else ""
    line = f"{shown.id}  {shown.status}{paused}  {one_line(shown.name)}"
    print_result(msgspec.json.decode(answer), line, as_json=options.as_json)
    return shown
