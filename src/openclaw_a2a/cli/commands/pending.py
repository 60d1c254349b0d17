"""`approvals` and `deliveries`: what waits for the operator, and the decisions about it."""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from openclaw_a2a.cli.errors import DONE
from openclaw_a2a.cli.options import DEFAULT_ADMIN, AdminOptions, decode_response
from openclaw_a2a.cli.render.terminal import ItemTable, print_result
from openclaw_a2a.cli.resource import Resource
from openclaw_a2a.engine.approvals import WaitingApproval
from openclaw_a2a.engine.outbox.delivery_view import DeliveryView
from openclaw_a2a.engine.tasks.submit_policy import PairedPeer
from openclaw_a2a.model.delivery import DeliveryState

approvals = App(
    name="approvals",
    help="List, allow and deny commands that agents want to run. Ids can be shortened "
    "to a unique prefix.",
)
deliveries = App(
    name="deliveries",
    help="List failed deliveries and retry them. That is push notifications and "
    "answers of calls. Ids can be shortened to a unique prefix.",
)

_SHORT_ID = 8
ApprovalPrefix = Annotated[str, Parameter(help="The approval's id, or its beginning.")]
DeliveryPrefix = Annotated[str, Parameter(help="The delivery's id, or its beginning.")]


def _visible(text: str) -> str:
    """The text with everything shown that a terminal would do or hide."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def _command_lines(approval: WaitingApproval) -> Iterator[str]:
    """The whole command: an operator must not allow what is shown cut."""
    for number, text in enumerate(approval.command.split("\n")):
        yield f"  {'>' if number else '$'} {_visible(text)}"
    if approval.warning:
        yield f"  ! {_visible(approval.warning)}"


def _left(moment: datetime, now: datetime) -> tuple[int, int]:
    """How many minutes and seconds are left until then."""
    return divmod(max(0, int((moment - now).total_seconds())), 60)


def _expires_in(approval: WaitingApproval, now: datetime) -> str:
    if approval.expires_at is None:
        return "-"
    minutes, seconds = _left(approval.expires_at, now)
    if minutes >= 24 * 60:
        return f"{minutes // (24 * 60)} days"
    if minutes:
        return f"{minutes} min {seconds} s"
    return f"{seconds} s" if seconds else "over"


def _next_try(delivery: DeliveryView, now: datetime) -> str:
    if delivery.next_at is None:
        return "-"
    minutes, seconds = _left(delivery.next_at, now)
    if minutes:
        return f"in {minutes} min"
    return f"in {seconds} s" if seconds else "now"


_APPROVALS = Resource[WaitingApproval](
    path="approvals",
    noun="approval",
    item_type=WaitingApproval,
    table=ItemTable(
        {
            "ID": lambda one, _: _visible(one.id),
            "AGENT": lambda one, _: _visible(one.agent),
            "TASK": lambda one, _: _visible((one.task_id or "-")[:_SHORT_ID]),
            "EXPIRES IN": _expires_in,
            "FOLDER": lambda one, _: _visible(one.cwd or "-"),
        },
        details=_command_lines,
    ),
    not_found="approval-",
    list_hint="See what waits: openclaw-a2a approvals list",
    empty="Nothing waits for a decision.",
    footnotes=lambda document: (
        f"agent {one['agent']} could not be asked: {one['reason']}"
        for one in document.get("troubles", ())
    ),
)
_PEERS = Resource[PairedPeer](
    path="peers",
    noun="peer",
    item_type=PairedPeer,
    table=ItemTable(
        {
            "NAME": lambda one, _: _visible(one.id),
            "APPROVED": lambda one, _: f"{one.approved_at:%Y-%m-%d %H:%M}Z",
        }
    ),
    not_found="approval-",
    list_hint="See who is approved: openclaw-a2a approvals peers",
    empty="No peer is approved.",
)
_DELIVERIES = Resource[DeliveryView](
    path="deliveries",
    noun="delivery",
    item_type=DeliveryView,
    table=ItemTable(
        {
            "ID": lambda one, _: one.id,
            "STATE": lambda one, _: one.state.value,
            "TO": lambda one, _: one.to,
            "TASK": lambda one, _: one.task_id[:_SHORT_ID],
            "TRIES": lambda one, _: str(one.attempts),
            "NEXT TRY": _next_try,
            "REASON": lambda one, _: one.reason or "-",
        },
        colours={"dead": "red", "skipped": "red", "waiting": "yellow"},
        optional=("TASK", "TRIES"),
        min_cells={"ID": 12, "TO": 16, "REASON": 24},
    ),
    not_found="delivery-",
    list_hint="See what is in trouble: openclaw-a2a deliveries list",
    empty="Every delivery has arrived.",
    footnotes=lambda document: ["There are more of them."] if document.get("isCut") else [],
)


@approvals.command(name="list")
def list_approvals(*, options: AdminOptions = DEFAULT_ADMIN) -> int:
    """List the commands that wait for a decision, the oldest first."""
    return _APPROVALS.list(options)


@approvals.command
def allow(approval: ApprovalPrefix, /, *, options: AdminOptions = DEFAULT_ADMIN) -> int:
    """Allow the command, once."""
    return _APPROVALS.act(options, approval, body={"allow": True}, done="allowed")


@approvals.command
def deny(approval: ApprovalPrefix, /, *, options: AdminOptions = DEFAULT_ADMIN) -> int:
    """Deny the command; the agent is notified."""
    return _APPROVALS.act(options, approval, body={"allow": False}, done="denied")


@approvals.command(name="peers")
def list_peers(*, options: AdminOptions = DEFAULT_ADMIN) -> int:
    """List the peers whose first message was allowed (with channels.a2a.security.pairing)."""
    return _PEERS.list(options)


@approvals.command(name="revoke")
def revoke_peer(
    peer: Annotated[str, Parameter(help="The peer's name, or its beginning.")],
    /,
    *,
    options: AdminOptions = DEFAULT_ADMIN,
) -> int:
    """Take the approval of a peer back: its next message waits for you again."""
    return _PEERS.act(options, peer, "revoke", done="revoked")


@deliveries.command(name="list")
def list_deliveries(*, options: AdminOptions = DEFAULT_ADMIN) -> int:
    """List deliveries that wait for another try, that had something refused, or were given up."""
    return _DELIVERIES.list(options)


@deliveries.command
def redeliver(delivery: DeliveryPrefix, /, *, options: AdminOptions = DEFAULT_ADMIN) -> int:
    """Retry a delivery now; it continues after the last event delivered."""
    delivery_id, answer = _DELIVERIES.post(options, delivery, "redeliver")
    shown = decode_response(answer, DeliveryView)
    outcome = {
        DeliveryState.IDLE: "has arrived already",
        DeliveryState.SKIPPED: "has nothing left to send; what was refused is not sent again",
    }.get(shown.state, f"is tried again, to {shown.to}")
    document = msgspec.json.decode(answer)
    print_result(document, f"{delivery_id}  {outcome}", as_json=options.as_json)
    return DONE
