"""`deliveries`: list what did not arrive where it should, and have it tried again."""

from datetime import UTC, datetime

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
from openclaw_a2a.cli.render.terminal import print_data, print_json, print_message, print_table
from openclaw_a2a.model.delivery import DeliveryState
from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.server.admin.deliveries import DeliveryList, DeliveryView

app = App(
    name="deliveries",
    help="List failed deliveries and retry them. That is push notifications and "
    "answers of calls. Ids may be cut to their unique beginning.",
)

_SHORT_ID = 8
_SEE = "See what is in trouble: openclaw-a2a deliveries list"


@app.command(name="list")
def list_(*, own: GatewayOptions = DEFAULT_GATEWAY, as_json: JsonFlag = False) -> int:
    """List deliveries that wait for another try, and those that were given up."""
    with connect_admin(own) as operator:
        found = _in_trouble(operator)
    if as_json:
        print_json(found)
    elif found.deliveries:
        _show(found.deliveries)
    else:
        print_message("Every delivery has arrived.")
    if found.is_cut and not as_json:
        print_message("There are more of them.", "yellow")
    return DONE


@app.command
def redeliver(
    delivery: str, /, *, own: GatewayOptions = DEFAULT_GATEWAY, as_json: JsonFlag = False
) -> int:
    """Try a delivery again now; it goes on where it stood.

    Parameters
    ----------
    delivery
        The delivery's id, or its beginning.
    """
    with connect_admin(own) as operator:
        ids = [one.id for one in _in_trouble(operator).deliveries]
        delivery_id = resolve_prefix(delivery, ids, noun="delivery", see=_SEE)
        try:
            answer = operator.post("deliveries", delivery_id, "redeliver", body={})
        except AgentFailed as error:
            if code_of(error) == "delivery-not-found":
                error.details.setdefault("nextStep", _SEE)
            raise
    shown = decode_response(answer, DeliveryView)
    if as_json:
        print_json(msgspec.json.decode(answer))
    elif shown.state is DeliveryState.IDLE:
        print_data(f"{delivery_id}  has arrived already")
    else:
        print_data(f"{delivery_id}  is tried again, to {shown.to}")
    return DONE


def _in_trouble(operator: AdminClient) -> DeliveryList:
    return decode_response(operator.get("deliveries"), DeliveryList)


def _show(deliveries: tuple[DeliveryView, ...]) -> None:
    now = datetime.now(UTC)
    rows = [("ID", "STATE", "TO", "TASK", "TRIES", "NEXT TRY", "REASON")]
    for one in deliveries:
        tries, task = str(one.attempts), one.task_id[:_SHORT_ID]
        next_try = "-" if one.next_at is None else _until(one.next_at, now)
        rows.append((one.id, one.state.value, one.to, task, tries, next_try, one.reason or "-"))
    print_table(rows, styles={"dead": "red", "waiting": "yellow"})


def _until(moment: datetime, now: datetime) -> str:
    seconds = int((moment - now).total_seconds())
    if seconds <= 0:
        return "now"
    minutes, rest = divmod(seconds, 60)
    return f"in {minutes} min" if minutes else f"in {rest} s"
