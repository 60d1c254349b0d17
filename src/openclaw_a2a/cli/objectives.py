"""`objectives`: list, show and watch objectives, have them carried out, and move them."""

import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cyclopts import App, Parameter

from openclaw_a2a.cli.failure import DONE
from openclaw_a2a.cli.feature import list_query, misused, show_list
from openclaw_a2a.cli.flags import JsonFlag
from openclaw_a2a.cli.objectives_door import (
    connect_objectives,
    find_objective,
    list_objectives,
    show_objective,
)
from openclaw_a2a.cli.objectives_draw import COLOURS, HEADING, table_row, whole_lines
from openclaw_a2a.cli.objectives_shown import ShownObjective, one_line
from openclaw_a2a.cli.objectives_watch import watch_all, watch_one
from openclaw_a2a.cli.operator import OWN_GATEWAY, Operator, OwnGateway
from openclaw_a2a.cli.output import is_narrow, say, show, show_json, show_lines
from openclaw_a2a.cli.target import decode

app = App(
    name="objectives",
    help="List, show, watch, run and answer objectives, and move them. Ids may be cut to their "
    "unique beginning, with or without obj-.",
)

Objective = Annotated[str, Parameter(help="The objective's id, or its beginning.")]
Status = Literal["submitted", "planning", "working", "blocked", "completed", "failed", "canceled"]


@Parameter(name="*")
@dataclass(frozen=True)
class Filters:
    """Which objectives to list."""

    status: Annotated[Status | None, Parameter(help="Only objectives with this status.")] = None
    limit: Annotated[int, Parameter(help="How many at most.")] = 20

    def query(self) -> dict[str, str]:
        """The filters as the gateway takes them. Raises: InvalidRequest."""
        return list_query(self.limit, status=self.status)


ALL_OBJECTIVES = Filters()


@app.command(name="list")
def list_(
    *, filters: Filters = ALL_OBJECTIVES, own: OwnGateway = OWN_GATEWAY, as_json: JsonFlag = False
) -> int:
    """List objectives, the newest first."""
    with connect_objectives(own) as operator:
        found, body = list_objectives(operator, filters.query())
    if as_json:
        show_json(msgspec.json.decode(body))
    elif found.objectives:
        now = datetime.now(UTC)
        rows = [table_row(one, now, is_short=is_narrow()) for one in found.objectives]
        show_list(rows, HEADING, style=COLOURS, total=found.total_size)
    else:
        say(f"No objectives with status {filters.status}." if filters.status else "No objectives.")
    return DONE


@app.command(name="show")
def show_(
    objective: Objective, /, *, own: OwnGateway = OWN_GATEWAY, as_json: JsonFlag = False
) -> int:
    """Show an objective: its plans and steps as a tree, how far it is and what it waits for."""
    with connect_objectives(own) as operator:
        shown, body = show_objective(operator, find_objective(operator, objective))
    if as_json:
        show_json(msgspec.json.decode(body))
    else:
        show_lines(whole_lines(shown, datetime.now(UTC)))
        if shown.asks:
            say(_answer_with(own, shown.id), "dim")
    return DONE


@app.command
def watch(
    objective: str | None = None, /, *, own: OwnGateway = OWN_GATEWAY, as_json: JsonFlag = False
) -> int:
    """Follow an objective until it is over, or all objectives until Ctrl-C.

    With --json one line per change.

    Parameters
    ----------
    objective
        The objective's id, or its beginning; left out: the newest objectives.
    """
    with connect_objectives(own) as operator:
        if objective is None:
            return watch_all(operator, as_json=as_json)
        return _watch(operator, find_objective(operator, objective), own, as_json=as_json)


@app.command
def run(
    objective: Objective,
    /,
    *,
    follow: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Watch it until it is over.")
    ] = False,
    own: OwnGateway = OWN_GATEWAY,
    as_json: JsonFlag = False,
) -> int:
    """Have the steps of an objective carried out."""
    if not follow:
        return _act(objective, "run", own, as_json=as_json)
    with connect_objectives(own) as operator:
        objective_id = find_objective(operator, objective)
        operator.post("objectives", objective_id, "run", body={})
        return _watch(operator, objective_id, own, as_json=as_json)


@app.command
def answer(
    objective: Objective,
    text: str,
    /,
    *,
    step: Annotated[str | None, Parameter(help="Which step, where several wait.")] = None,
    own: OwnGateway = OWN_GATEWAY,
    as_json: JsonFlag = False,
) -> int:
    """Answer a step of an objective that waits for an answer.

    Parameters
    ----------
    text
        What it is to be told.
    """
    with connect_objectives(own) as operator:
        objective_id = find_objective(operator, objective)
        body = {"text": text} if step is None else {"text": text, "step": step}
        told = operator.post("objectives", objective_id, "answer", body=body)
    _show_done(told, as_json=as_json)
    if not as_json:
        say(f"Watch it: {own.command(f'objectives watch {objective_id}')}", "dim")
    return DONE


@app.command
def pause(
    objective: Objective, /, *, own: OwnGateway = OWN_GATEWAY, as_json: JsonFlag = False
) -> int:
    """Let no more steps of an objective begin; those under way go on."""
    return _act(objective, "pause", own, as_json=as_json)


@app.command
def resume(
    objective: Objective, /, *, own: OwnGateway = OWN_GATEWAY, as_json: JsonFlag = False
) -> int:
    """Go on with an objective that was paused."""
    return _act(objective, "resume", own, as_json=as_json)


@app.command
def cancel(
    objective: Objective, /, *, own: OwnGateway = OWN_GATEWAY, as_json: JsonFlag = False
) -> int:
    """Give an objective up; steps under way are stopped."""
    return _act(objective, "cancel", own, as_json=as_json)


@app.command
def export(
    objective: Objective,
    file: Path | None = None,
    /,
    *,
    own: OwnGateway = OWN_GATEWAY,
    as_json: JsonFlag = False,
) -> int:
    """Write everything that happened to an objective as JSON lines, to be imported elsewhere.

    Parameters
    ----------
    file
        A new file; left out: standard output.
    """
    with connect_objectives(own) as operator:
        objective_id = find_objective(operator, objective)
        content = operator.get("objectives", objective_id, "export")
    if file is None or str(file) == "-":
        show(content.decode(errors="replace"), end="")
        return DONE
    _write(file, content)
    count = content.count(b"\n")
    if as_json:
        show_json({"id": objective_id, "file": str(file), "lines": count})
    else:
        show(f"{objective_id}  {count} lines in {file}")
    return DONE


@app.command(name="import")
def import_(file: Path, /, *, own: OwnGateway = OWN_GATEWAY, as_json: JsonFlag = False) -> int:
    """Take an objective from a file that was exported; it keeps its id.

    Parameters
    ----------
    file
        The file; - is standard input.
    """
    content = _read(file)
    with connect_objectives(own) as operator:
        answer = operator.give("objectives", "import", content=content)
    _show_done(answer, as_json=as_json)
    return DONE


def _act(prefix: str, action: str, own: OwnGateway, *, as_json: bool) -> int:
    with connect_objectives(own) as operator:
        objective_id = find_objective(operator, prefix)
        answer = operator.post("objectives", objective_id, action, body={})
    shown = _show_done(answer, as_json=as_json)
    if action in {"run", "resume"} and not (as_json or shown.is_over):
        say(f"Watch it: {own.command(f'objectives watch {objective_id}')}", "dim")
    return DONE


def _watch(operator: Operator, objective_id: str, own: OwnGateway, *, as_json: bool) -> int:
    return watch_one(
        operator, objective_id, answer=_answer_with(own, objective_id), as_json=as_json
    )


def _answer_with(own: OwnGateway, objective_id: str) -> str:
    return f"Answer it: {own.command(f'objectives answer {objective_id} TEXT')}"


def _show_done(answer: bytes, *, as_json: bool) -> ShownObjective:
    shown = decode(answer, ShownObjective)
    if as_json:
        show_json(msgspec.json.decode(answer))
    else:
        paused = ", paused" if shown.is_paused else ""
        show(f"{shown.id}  {shown.status}{paused}  {one_line(shown.name)}")
    return shown


def _read(file: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise misused(f"{file} cannot be read: {error.strerror}") from None


def _write(file: Path, content: bytes) -> None:
    """Make a new file: what is there already may be somebody's."""
    try:
        with file.open("xb") as opened:
            opened.write(content)
    except FileExistsError:
        raise misused(f"{file} is there already; name another file") from None
    except OSError as error:
        raise misused(f"{file} cannot be written: {error.strerror}") from None
