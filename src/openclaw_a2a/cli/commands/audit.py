"""`audit`: who changed what in a gateway, and whether its log is as it was written."""

import re
import time
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated

from cyclopts import App, Parameter

from openclaw_a2a.auth.admin_token import ADMIN_TOKEN_FILE
from openclaw_a2a.cli.errors import DONE, FAILED, next_step, usage_error
from openclaw_a2a.cli.options import DEFAULT_FOLDER, FolderOptions, switch
from openclaw_a2a.cli.render.terminal import (
    ItemTable,
    one_cell,
    print_data,
    print_json,
    print_message,
)
from openclaw_a2a.engine.audit_reader import (
    AuditFilter,
    follow_lines,
    read_lines,
    verify_chain,
)
from openclaw_a2a.model.errors import NotAllowed
from openclaw_a2a.model.ids import JsonObject

app = App(name="audit", help="Show who changed what, and check that the log was not edited.")

_EMPTY = "Nothing that fits is in the audit log."
_FOLLOW_S = 0.5
_AGO = re.compile(r"([0-9]{1,6})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def _text(line: JsonObject, *keys: str) -> str:
    found = (line.get(key) for key in keys)
    return next((str(one) for one in found if one), "-")


def _what(line: JsonObject) -> str:
    action, count = line.get("action") or line.get("skill"), line.get("count")
    event = _text(line, "event")
    named = f"{event} ({action})" if action else event
    return f"{named} x{count}" if count else named


def _outcome(line: JsonObject) -> str:
    parts = [line.get("outcome") or "ok", line.get("policy"), line.get("reason")]
    return ": ".join(str(one) for one in parts if one)


_TABLE = ItemTable[JsonObject](
    {
        "TIME": lambda line, _: _text(line, "time")[:19].replace("T", " "),
        "WHO": lambda line, _: _text(line, "who", "token", "requester"),
        "WHAT": lambda line, _: _what(line),
        "THING": lambda line, _: _text(line, "target"),
        "TASK": lambda line, _: _text(line, "task"),
        "FROM": lambda line, _: _text(line, "from"),
        "OUTCOME": lambda line, _: _outcome(line),
    },
    optional=("FROM", "TASK"),
)


_TIME_HELP = "a time (2026-11-16, 2026-11-16T15:00, UTC unless it says otherwise) or 30m, 2h, 7d"


@app.default
def show(
    *,
    who: Annotated[str | None, Parameter(help="Only of this peer, token, agent or `operator`.")] = (
        None
    ),
    what: Annotated[
        str | None, Parameter(help="Only events with this beginning, as task or token-revoked.")
    ] = None,
    task: Annotated[str | None, Parameter(help="Only of this task, or of its beginning.")] = None,
    since: Annotated[str | None, Parameter(help=f"Only from then on: {_TIME_HELP} ago.")] = None,
    until: Annotated[str | None, Parameter(help=f"Only before that: {_TIME_HELP} ago.")] = None,
    limit: Annotated[
        int, Parameter(name=["--limit", "-n"], help="How many at most, the newest; 0: all.")
    ] = 50,
    follow: Annotated[bool, switch("Go on with what follows, until Ctrl-C.")] = False,
    options: FolderOptions = DEFAULT_FOLDER,
) -> int:
    """Show the audit log, the newest entries last. A gateway need not run.

    With --json each entry is a line of its own, as it is stored.
    """
    if limit < 0:
        raise usage_error("--limit must be 0 or more", "See: openclaw-a2a audit --help")
    now = datetime.now(UTC)
    chosen = AuditFilter(
        who, what, task, _time("--since", since, now), _time("--until", until, now)
    )
    folder = options.folder()
    try:
        position = follow_lines(folder) if follow else None
        stored = filter(chosen.accepts, read_lines(folder))
        shown = list(deque(stored, maxlen=limit) if limit else stored)
        _print(shown, as_json=options.as_json, is_first=not follow)
        if position is not None:
            _follow(position, chosen, as_json=options.as_json)
    except PermissionError as error:
        raise _not_readable(error) from None
    return DONE


@app.command
def verify(*, options: FolderOptions = DEFAULT_FOLDER) -> int:
    """Check the chain of hashes: finds lines that were changed, removed or moved.

    A log that was lost and begun again is found, too; where, is printed.

    A user who can write the files can also write a whole new chain. Keep the hash that is printed
    somewhere else: as long as that line is in the log, nothing before it was changed.
    """
    try:
        folder = options.folder()
        report = verify_chain(folder, is_used=(folder / ADMIN_TOKEN_FILE).exists())
    except PermissionError as error:
        raise _not_readable(error) from None
    if options.as_json:
        print_json(report)
    else:
        for one in report.problems:
            print_data(f"{one.file}:{one.line}  {one.problem}")
        if report.problems:
            print_message(f"The audit log is not as it was written: {len(report.problems)} faults.")
        else:
            print_data(f"{report.lines} lines, all as they were written.")
        if report.hash:
            print_data(f"last line: sha256 {report.hash}")
    return FAILED if report.problems else DONE


def _print(lines: list[JsonObject], *, as_json: bool, is_first: bool) -> None:
    if as_json:
        for line in lines:
            print_json(line, pretty=False)
    elif lines or is_first:
        _TABLE.print(lines, empty=_EMPTY)


def _follow(lines: Iterator[JsonObject | None], chosen: AuditFilter, *, as_json: bool) -> None:
    for line in lines:
        if line is None:
            time.sleep(_FOLLOW_S)
        elif chosen.accepts(line):
            if as_json:
                print_json(line, pretty=False)
            else:
                columns = (_text(line, "time")[:19], _text(line, "who", "token"), _what(line))
                texts = [*columns, _text(line, "target"), _outcome(line)]
                # A peer chose some of these: none may look like a line or a column of its own.
                print_data("  ".join(one_cell(text) for text in texts))


def _time(flag: str, text: str | None, now: datetime) -> datetime | None:
    if text is None:
        return None
    ago = _AGO.fullmatch(text.strip())
    try:
        if ago is not None:
            return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        at = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError):
        raise usage_error(f"{flag} must be {_TIME_HELP}, not {text!r}", "") from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _not_readable(error: OSError) -> NotAllowed:
    message = f"{error.filename} cannot be read: {error.strerror}"
    step = "Run this as the user that runs the gateway, or name its folder with --data."
    return NotAllowed(message, details=next_step("audit-file", step))
