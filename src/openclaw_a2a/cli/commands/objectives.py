"""`objectives`: list, show, watch, run and answer objectives; export and import them."""

import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cyclopts import App, Parameter

from openclaw_a2a.cli.admin_client import (
    DEFAULT_GATEWAY,
    MAX_LISTED,
    AdminClient,
    Feature,
    GatewayOptions,
    check_prefix,
    connect_feature,
    fetch,
    list_query,
    print_list,
    resolve_prefix,
)
from openclaw_a2a.cli.connection import decode_response
from openclaw_a2a.cli.errors import DONE, FAILED, INTERRUPTED, usage_error
from openclaw_a2a.cli.flags import JsonFlag
from openclaw_a2a.cli.follow import LiveView
from openclaw_a2a.cli.render.objectives import (
    COMPLETED,
    OBJECTIVE_COLOURS,
    OBJECTIVE_HEADING,
    ObjectiveList,
    ObjectiveRow,
    list_statuses,
    objective_page,
    objective_row,
    objective_table,
)
from openclaw_a2a.cli.render.terminal import (
    console_for,
    is_narrow,
    one_line,
    print_data,
    print_json,
    print_message,
    print_page,
    styled_text,
)
from openclaw_a2a.model.ids import Json

OBJECTIVES_HINT = "See the objectives there are: openclaw-a2a objectives list"
_TURN_ON = "Set opt.enabled to true, then start the gateway again."
_PREFIX = "obj-"
_POLL_S = 0.2
_NEWEST = {"limit": "20"}
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


_OBJECTIVES = Feature(
    noun="objectives",
    disabled_code="objectives-off",
    enable_hint=_TURN_ON,
    not_found_code="plan-item-not-found",
    list_hint=OBJECTIVES_HINT,
)


def find_objective(admin: AdminClient, prefix: str) -> str:
    """The id of the objective with this id or prefix, with or without `obj-`.

    Raises: InvalidRequest, AgentFailed.
    """
    check_prefix(prefix, _OBJECTIVES, "an objective")
    listed, _ = fetch(admin, ObjectiveList, "objectives", query=list_query(MAX_LISTED))
    is_cut = bool(prefix) and not _PREFIX.startswith(prefix[: len(_PREFIX)])
    wanted = f"{_PREFIX}{prefix}" if is_cut else prefix
    return resolve_prefix(
        wanted, [one.id for one in listed.objectives], noun="objective", see=OBJECTIVES_HINT
    )


app = App(
    name="objectives",
    help="List, show, watch, run, answer, export and import objectives. Ids may be cut to their "
    "unique beginning, with or without obj-.",
)

Objective = Annotated[str, Parameter(help="The objective's id, or its beginning.")]
Status = Literal["submitted", "planning", "working", "blocked", "completed", "failed", "canceled"]


@Parameter(name="*")
@dataclass(frozen=True)
class ObjectiveFilters:
    """Which objectives to list."""

    status: Annotated[Status | None, Parameter(help="Only objectives with this status.")] = None
    limit: Annotated[int, Parameter(help="How many at most.")] = 20

    def query(self) -> dict[str, str]:
        """The filters as the gateway takes them. Raises: InvalidRequest."""
        return list_query(self.limit, status=self.status)


ALL_OBJECTIVES = ObjectiveFilters()


@app.command(name="list")
def list_(
    *,
    filters: ObjectiveFilters = ALL_OBJECTIVES,
    own: GatewayOptions = DEFAULT_GATEWAY,
    as_json: JsonFlag = False,
) -> int:
    """List objectives, the newest first."""
    with connect_feature(own, _OBJECTIVES) as admin:
        found, body = fetch(admin, ObjectiveList, "objectives", query=filters.query())
    if as_json:
        print_json(msgspec.json.decode(body))
    elif found.objectives:
        now = datetime.now(UTC)
        rows = [objective_row(one, now, is_short=is_narrow()) for one in found.objectives]
        print_list(rows, OBJECTIVE_HEADING, styles=OBJECTIVE_COLOURS, total=found.total_size)
    else:
        print_message(
            f"No objectives with status {filters.status}." if filters.status else "No objectives."
        )
    return DONE


@app.command(name="show")
def show_(
    objective: Objective, /, *, own: GatewayOptions = DEFAULT_GATEWAY, as_json: JsonFlag = False
) -> int:
    """Show an objective: plans and steps as a tree, progress, and what it waits for."""
    with connect_feature(own, _OBJECTIVES) as admin:
        shown, body = fetch(admin, ObjectiveRow, "objectives", find_objective(admin, objective))
    if as_json:
        print_json(msgspec.json.decode(body))
    else:
        print_page(objective_page(shown, datetime.now(UTC)))
        if shown.asks:
            print_message(_answer_with(own, shown.id), "dim")
    return DONE


@app.command
def watch(
    objective: str | None = None,
    /,
    *,
    own: GatewayOptions = DEFAULT_GATEWAY,
    as_json: JsonFlag = False,
) -> int:
    """Follow an objective until it is over, or all objectives until Ctrl-C.

    With --json one line per change.

    Parameters
    ----------
    objective
        The objective's id, or its beginning; left out: the newest objectives.
    """
    with connect_feature(own, _OBJECTIVES) as admin:
        if objective is None:
            return _watch_all(admin, as_json=as_json)
        return _watch(admin, find_objective(admin, objective), own, as_json=as_json)


@app.command
def run(
    objective: Objective,
    /,
    *,
    follow: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Watch it until it is over.")
    ] = False,
    own: GatewayOptions = DEFAULT_GATEWAY,
    as_json: JsonFlag = False,
) -> int:
    """Execute the steps of an objective."""
    if not follow:
        return _act(objective, "run", own, as_json=as_json)
    with connect_feature(own, _OBJECTIVES) as admin:
        objective_id = find_objective(admin, objective)
        admin.post("objectives", objective_id, "run", body={})
        return _watch(admin, objective_id, own, as_json=as_json)


@app.command
def answer(
    objective: Objective,
    text: str,
    /,
    *,
    step: Annotated[str | None, Parameter(help="Which step, where several wait.")] = None,
    own: GatewayOptions = DEFAULT_GATEWAY,
    as_json: JsonFlag = False,
) -> int:
    """Answer a step of an objective that waits for an answer.

    Parameters
    ----------
    text
        The answer.
    """
    with connect_feature(own, _OBJECTIVES) as admin:
        objective_id = find_objective(admin, objective)
        body = {"text": text} if step is None else {"text": text, "step": step}
        sent = admin.post("objectives", objective_id, "answer", body=body)
    _show_done(sent, as_json=as_json)
    if not as_json:
        print_message(f"Watch it: {own.command(f'objectives watch {objective_id}')}", "dim")
    return DONE


@app.command
def pause(
    objective: Objective, /, *, own: GatewayOptions = DEFAULT_GATEWAY, as_json: JsonFlag = False
) -> int:
    """Start no more steps of an objective; those in progress continue."""
    return _act(objective, "pause", own, as_json=as_json)


@app.command
def resume(
    objective: Objective, /, *, own: GatewayOptions = DEFAULT_GATEWAY, as_json: JsonFlag = False
) -> int:
    """Continue a paused objective."""
    return _act(objective, "resume", own, as_json=as_json)


@app.command
def cancel(
    objective: Objective, /, *, own: GatewayOptions = DEFAULT_GATEWAY, as_json: JsonFlag = False
) -> int:
    """Cancel an objective; steps in progress are stopped."""
    return _act(objective, "cancel", own, as_json=as_json)


@app.command
def export(
    objective: Objective,
    file: Path | None = None,
    /,
    *,
    own: GatewayOptions = DEFAULT_GATEWAY,
    as_json: JsonFlag = False,
) -> int:
    """Write the log of an objective as JSON lines, to be imported elsewhere.

    Parameters
    ----------
    file
        A new file; left out: standard output.
    """
    with connect_feature(own, _OBJECTIVES) as admin:
        objective_id = find_objective(admin, objective)
        content = admin.get("objectives", objective_id, "export")
    if file is None or str(file) == "-":
        print_data(content.decode(errors="replace"), end="")
        return DONE
    _write(file, content)
    count = content.count(b"\n")
    if as_json:
        print_json({"id": objective_id, "file": str(file), "lines": count})
    else:
        print_data(f"{objective_id}  {count} lines in {file}")
    return DONE


@app.command(name="import")
def import_(
    file: Path, /, *, own: GatewayOptions = DEFAULT_GATEWAY, as_json: JsonFlag = False
) -> int:
    """Import an objective that was exported; it keeps its id.

    Parameters
    ----------
    file
        The file; - is standard input.
    """
    content = _read(file)
    with connect_feature(own, _OBJECTIVES) as admin:
        answer = admin.post("objectives", "import", body=content)
    _show_done(answer, as_json=as_json)
    return DONE


def _act(prefix: str, action: str, own: GatewayOptions, *, as_json: bool) -> int:
    with connect_feature(own, _OBJECTIVES) as admin:
        objective_id = find_objective(admin, prefix)
        answer = admin.post("objectives", objective_id, action, body={})
    shown = _show_done(answer, as_json=as_json)
    if action in {"run", "resume"} and not (as_json or shown.is_over):
        print_message(f"Watch it: {own.command(f'objectives watch {objective_id}')}", "dim")
    return DONE


def _watch(admin: AdminClient, objective_id: str, own: GatewayOptions, *, as_json: bool) -> int:
    """Follow an objective until it is over; the exit code."""
    try:
        with LiveView(as_json=as_json) as view:
            for moving in cycle(_SPINNER):
                found, body = view.fetch(
                    lambda: fetch(admin, ObjectiveRow, "objectives", objective_id)
                )
                room = console_for(sys.stdout).height - 3
                page = objective_page(found, datetime.now(UTC), moving=moving, room=room)
                hint = (
                    [styled_text(f"\n{_answer_with(own, objective_id)}", "dim")]
                    if found.asks
                    else []
                )
                view.show(
                    [*page, *hint],
                    documents=[(objective_id, msgspec.json.decode(body))],
                    changes=_changes(found),
                )
                if found.is_over:
                    return DONE if found.status == COMPLETED else FAILED
                time.sleep(_POLL_S)
    except KeyboardInterrupt:
        print_message("Interrupted. The objective goes on.")
    return INTERRUPTED


def _watch_all(admin: AdminClient, *, as_json: bool) -> int:
    """Follow the newest objectives until Ctrl-C; the exit code."""
    try:
        with LiveView(as_json=as_json) as view:
            while True:
                found, body = view.fetch(
                    lambda: fetch(admin, ObjectiveList, "objectives", query=_NEWEST)
                )
                oldest_first = found.objectives[::-1]
                sent: list[Json] = msgspec.json.decode(body)["objectives"][::-1]
                view.show(
                    [objective_table(found.objectives, datetime.now(UTC), is_short=is_narrow())],
                    documents=[(one["id"], one) for one in sent],
                    changes=[change for one in oldest_first for change in _changes(one)],
                )
                time.sleep(_POLL_S)
    except KeyboardInterrupt:
        return DONE


def _changes(objective: ObjectiveRow) -> list[tuple[str, Json, str]]:
    return [
        (item_id, status, f"{objective.id}  {name} · {status}")
        for item_id, name, status in list_statuses(objective)
    ]


def _answer_with(own: GatewayOptions, objective_id: str) -> str:
    return f"Answer it: {own.command(f'objectives answer {objective_id} TEXT')}"


def _show_done(answer: bytes, *, as_json: bool) -> ObjectiveRow:
    shown = decode_response(answer, ObjectiveRow)
    if as_json:
        print_json(msgspec.json.decode(answer))
    else:
        paused = ", paused" if shown.is_paused else ""
        print_data(f"{shown.id}  {shown.status}{paused}  {one_line(shown.name)}")
    return shown


def _read(file: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise usage_error(f"{file} cannot be read: {error.strerror}") from None


def _write(file: Path, content: bytes) -> None:
    """Make a new file: an existing one is never overwritten."""
    try:
        with file.open("xb") as opened:
            opened.write(content)
    except FileExistsError:
        raise usage_error(f"{file} is there already; name another file") from None
    except OSError as error:
        raise usage_error(f"{file} cannot be written: {error.strerror}") from None
