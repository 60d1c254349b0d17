"""`approvals`: list, allow and deny the commands that agents want to run on this machine."""

from datetime import UTC, datetime, timedelta

import msgspec
from cyclopts import App

from openclaw_a2a.cli.admin_client import (
    DEFAULT_GATEWAY,
    AdminClient,
    GatewayOptions,
    connect_admin,
    resolve_prefix,
)
from openclaw_a2a.cli.connection import decode_response
from openclaw_a2a.cli.errors import DONE, code_of
from openclaw_a2a.cli.flags import JsonFlag
from openclaw_a2a.cli.render.terminal import (
    build_table,
    plain_lines,
    print_data,
    print_json,
    print_message,
)
from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.server.admin.approvals import ApprovalList, WaitingApproval

app = App(
    name="approvals",
    help="List, allow and deny commands that agents want to run. Ids may be cut to their "
    "unique beginning.",
)

_SHORT_ID = 8
_SEE = "See what waits: openclaw-a2a approvals list"


@app.command(name="list")
def list_(*, own: GatewayOptions = DEFAULT_GATEWAY, as_json: JsonFlag = False) -> int:
    """List the commands that wait for a decision, the oldest first."""
    with connect_admin(own) as operator:
        found = _waiting(operator)
    if as_json:
        print_json(found)
    elif found.approvals:
        _show(found.approvals)
    else:
        print_message("Nothing waits for a decision.")
    for trouble in () if as_json else found.troubles:
        print_message(f"agent {trouble.agent} could not be asked: {trouble.reason}", "yellow")
    return DONE


@app.command
def allow(
    approval: str, /, *, own: GatewayOptions = DEFAULT_GATEWAY, as_json: JsonFlag = False
) -> int:
    """Let the command run, this once.

    Parameters
    ----------
    approval
        The approval's id, or its beginning.
    """
    return _decide(approval, own, is_allowed=True, as_json=as_json)


@app.command
def deny(
    approval: str, /, *, own: GatewayOptions = DEFAULT_GATEWAY, as_json: JsonFlag = False
) -> int:
    """Refuse the command; the agent is told.

    Parameters
    ----------
    approval
        The approval's id, or its beginning.
    """
    return _decide(approval, own, is_allowed=False, as_json=as_json)


def _decide(prefix: str, own: GatewayOptions, *, is_allowed: bool, as_json: bool) -> int:
    with connect_admin(own) as operator:
        ids = [one.id for one in _waiting(operator).approvals]
        approval_id = resolve_prefix(prefix, ids, noun="approval", see=_SEE)
        try:
            answer = operator.post("approvals", approval_id, body={"allow": is_allowed})
        except AgentFailed as error:
            if code_of(error).startswith("approval-"):
                error.details.setdefault("nextStep", _SEE)
            raise
    if as_json:
        print_json(msgspec.json.decode(answer))
    else:
        print_data(f"{approval_id}  {'allowed' if is_allowed else 'denied'}")
    return DONE


def _waiting(operator: AdminClient) -> ApprovalList:
    return decode_response(operator.get("approvals"), ApprovalList)


def _show(approvals: tuple[WaitingApproval, ...]) -> None:
    """One line for each, and below it the whole command: nobody should allow what they see cut."""
    now = datetime.now(UTC)
    rows = [("ID", "AGENT", "TASK", "EXPIRES IN", "FOLDER")]
    for one in approvals:
        task = (one.task_id or "-")[:_SHORT_ID]
        rows.append((one.id, one.agent, task, _left(one.expires_at - now), one.cwd or "-"))
    rows = [tuple(_plain(cell) for cell in row) for row in rows]
    heading, *lines = plain_lines(build_table(rows))
    print_data(heading)
    for line, one in zip(lines, approvals, strict=True):
        print_data(line)
        for number, text in enumerate(one.command.split("\n")):
            print_data(f"  {'$' if number == 0 else '>'} {_plain(text)}")
        if one.warning:
            print_data(f"  ! {_plain(one.warning)}")


def _plain(text: str) -> str:
    """The text with everything shown that a terminal would do or hide."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def _left(time: timedelta) -> str:
    """A time as people say it; what is over is over."""
    seconds = int(time.total_seconds())
    if seconds <= 0:
        return "over"
    minutes, rest = divmod(seconds, 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
