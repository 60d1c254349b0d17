"""`approvals` and `deliveries`: what waits for the operator, and the decisions about it."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec
from cyclopts import App, Parameter

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
    print_table,
)
from openclaw_a2a.model.delivery import DeliveryState
from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import Json
from openclaw_a2a.server.admin.approvals import ApprovalList, WaitingApproval
from openclaw_a2a.server.admin.deliveries import DeliveryList, DeliveryView

approvals = App(
    name="approvals",
    help="List, allow and deny commands that agents want to run. Ids may be cut to their "
    "unique beginning.",
)
deliveries = App(
    name="deliveries",
    help="List failed deliveries and retry them. That is push notifications and "
    "answers of calls. Ids may be cut to their unique beginning.",
)

_SHORT_ID = 8
_SEE_APPROVALS = "See what waits: openclaw-a2a approvals list"
_SEE_DELIVERIES = "See what is in trouble: openclaw-a2a deliveries list"
ApprovalPrefix = Annotated[str, Parameter(help="The approval's id, or its beginning.")]
DeliveryPrefix = Annotated[str, Parameter(help="The delivery's id, or its beginning.")]


@approvals.command(name="list")
def list_approvals(*, own: GatewayOptions = DEFAULT_GATEWAY, as_json: JsonFlag = False) -> int:
    """List the commands that wait for a decision, the oldest first."""
    with connect_admin(own) as admin:
        found = decode_response(admin.get("approvals"), ApprovalList)
    if as_json:
        print_json(found)
        return DONE
    if found.approvals:
        _show_approvals(found.approvals)
    else:
        print_message("Nothing waits for a decision.")
    for trouble in found.troubles:
        print_message(f"agent {trouble.agent} could not be asked: {trouble.reason}", "yellow")
    return DONE


@approvals.command
def allow(
    approval: ApprovalPrefix, /, *, own: GatewayOptions = DEFAULT_GATEWAY, as_json: JsonFlag = False
) -> int:
    """Let the command run, this once."""
    return _decide(approval, own, is_allowed=True, as_json=as_json)


@approvals.command
def deny(
    approval: ApprovalPrefix, /, *, own: GatewayOptions = DEFAULT_GATEWAY, as_json: JsonFlag = False
) -> int:
    """Refuse the command; the agent is told."""
    return _decide(approval, own, is_allowed=False, as_json=as_json)


@deliveries.command(name="list")
def list_deliveries(*, own: GatewayOptions = DEFAULT_GATEWAY, as_json: JsonFlag = False) -> int:
    """List deliveries that wait for another try, and those that were given up."""
    with connect_admin(own) as admin:
        found = decode_response(admin.get("deliveries"), DeliveryList)
    if as_json:
        print_json(found)
        return DONE
    if found.deliveries:
        _show_deliveries(found.deliveries)
    else:
        print_message("Every delivery has arrived.")
    if found.is_cut:
        print_message("There are more of them.", "yellow")
    return DONE


@deliveries.command
def redeliver(
    delivery: DeliveryPrefix, /, *, own: GatewayOptions = DEFAULT_GATEWAY, as_json: JsonFlag = False
) -> int:
    """Try a delivery again now; it goes on where it stood."""
    with connect_admin(own) as admin:
        listed = decode_response(admin.get("deliveries"), DeliveryList).deliveries
        ids = [one.id for one in listed]
        delivery_id = resolve_prefix(delivery, ids, noun="delivery", see=_SEE_DELIVERIES)
        path = ("deliveries", delivery_id, "redeliver")
        answer = _post(admin, *path, body={}, noun="delivery", see=_SEE_DELIVERIES)
    shown = decode_response(answer, DeliveryView)
    if as_json:
        print_json(msgspec.json.decode(answer))
    elif shown.state is DeliveryState.IDLE:
        print_data(f"{delivery_id}  has arrived already")
    else:
        print_data(f"{delivery_id}  is tried again, to {shown.to}")
    return DONE


def _decide(prefix: str, own: GatewayOptions, *, is_allowed: bool, as_json: bool) -> int:
    with connect_admin(own) as admin:
        ids = [one.id for one in decode_response(admin.get("approvals"), ApprovalList).approvals]
        approval_id = resolve_prefix(prefix, ids, noun="approval", see=_SEE_APPROVALS)
        body, path = {"allow": is_allowed}, ("approvals", approval_id)
        answer = _post(admin, *path, body=body, noun="approval", see=_SEE_APPROVALS)
    if as_json:
        print_json(msgspec.json.decode(answer))
    else:
        print_data(f"{approval_id}  {'allowed' if is_allowed else 'denied'}")
    return DONE


def _post(admin: AdminClient, *path: str, body: Json, noun: str, see: str) -> bytes:
    try:
        return admin.post(*path, body=body)
    except AgentFailed as error:
        if code_of(error).startswith(f"{noun}-"):
            error.details.setdefault("nextStep", see)
        raise


def _show_approvals(waiting: tuple[WaitingApproval, ...]) -> None:
    """One line for each, and below it the whole command: nobody should allow what they see cut."""
    now = datetime.now(UTC)
    rows = [("ID", "AGENT", "TASK", "EXPIRES IN", "FOLDER")]
    for one in waiting:
        task = (one.task_id or "-")[:_SHORT_ID]
        rows.append((one.id, one.agent, task, _left(one.expires_at - now), one.cwd or "-"))
    rows = [tuple(_plain(cell) for cell in row) for row in rows]
    heading, *lines = plain_lines(build_table(rows))
    print_data(heading)
    for line, one in zip(lines, waiting, strict=True):
        print_data(line)
        for number, text in enumerate(one.command.split("\n")):
            print_data(f"  {'$' if number == 0 else '>'} {_plain(text)}")
        if one.warning:
            print_data(f"  ! {_plain(one.warning)}")


def _plain(text: str) -> str:
    """The text with everything shown that a terminal would do or hide."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def _left(time: timedelta) -> str:
    minutes, seconds = divmod(int(time.total_seconds()), 60)
    if time < timedelta(seconds=1):
        return "over"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


def _show_deliveries(failed: tuple[DeliveryView, ...]) -> None:
    now = datetime.now(UTC)
    rows = [("ID", "STATE", "TO", "TASK", "TRIES", "NEXT TRY", "REASON")]
    for one in failed:
        tries, task = str(one.attempts), one.task_id[:_SHORT_ID]
        next_try = "-" if one.next_at is None else _until(one.next_at - now)
        rows.append((one.id, one.state.value, one.to, task, tries, next_try, one.reason or "-"))
    print_table(rows, styles={"dead": "red", "waiting": "yellow"})


def _until(time: timedelta) -> str:
    minutes, seconds = divmod(int(time.total_seconds()), 60)
    if time < timedelta(seconds=1):
        return "now"
    return f"in {minutes} min" if minutes else f"in {seconds} s"
