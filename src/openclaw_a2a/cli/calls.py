"""`calls`: list, show and watch calls between agents."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec
from cyclopts import App, Parameter

from openclaw_a2a.cli.call_draw import (
    COLOURS,
    HEADING,
    answer_lines,
    debate_lines,
    head_lines,
    table_row,
    time_lines,
)
from openclaw_a2a.cli.call_shown import ShownCall
from openclaw_a2a.cli.call_watch import watch_all, watch_one
from openclaw_a2a.cli.calls_door import connect_calls, find_call, list_calls, show_call
from openclaw_a2a.cli.failure import DONE
from openclaw_a2a.cli.feature import list_query, show_list
from openclaw_a2a.cli.flags import JsonFlag
from openclaw_a2a.cli.operator import OWN_GATEWAY, OwnGateway
from openclaw_a2a.cli.output import is_narrow, say, show_json, show_lines

app = App(
    name="calls",
    help="List, show and watch calls between agents. Ids may be cut to their unique beginning.",
)

Status = Literal["pending", "completed", "error", "timeout", "discarded"]


@Parameter(name="*")
@dataclass(frozen=True)
class Filters:
    """Which calls to list."""

    status: Annotated[Status | None, Parameter(help="Only calls with this status.")] = None
    agent: Annotated[str | None, Parameter(help="Only calls from or to this agent.")] = None
    limit: Annotated[int, Parameter(help="How many at most.")] = 20

    def query(self) -> dict[str, str]:
        """The filters as the gateway takes them. Raises: InvalidRequest."""
        return list_query(self.limit, status=self.status, agent=self.agent)


ALL_CALLS = Filters()


@app.command(name="list")
def list_(
    *, filters: Filters = ALL_CALLS, own: OwnGateway = OWN_GATEWAY, as_json: JsonFlag = False
) -> int:
    """List calls, the newest first."""
    with connect_calls(own) as operator:
        found, body = list_calls(operator, filters.query())
    if as_json:
        show_json(msgspec.json.decode(body))
    elif found.calls:
        now = datetime.now(UTC)
        rows = [table_row(call, now, is_short=is_narrow()) for call in found.calls]
        show_list(rows, HEADING, style=COLOURS, total=found.total_size)
    else:
        say(_nothing(filters))
    return DONE


@app.command(name="show")
def show_(call: str, /, *, own: OwnGateway = OWN_GATEWAY, as_json: JsonFlag = False) -> int:
    """Show a call: who called whom, when it came to which state, and the answer.

    Parameters
    ----------
    call
        The call's id, or its beginning.
    """
    with connect_calls(own) as operator:
        shown, body = show_call(operator, find_call(operator, call))
    if as_json:
        show_json(msgspec.json.decode(body))
    else:
        _show(shown)
    return DONE


@app.command
def watch(
    call: str | None = None, /, *, own: OwnGateway = OWN_GATEWAY, as_json: JsonFlag = False
) -> int:
    """Follow a call until its outcome was brought, or all calls until Ctrl-C.

    A debate is drawn with its rounds, and how sure everybody is. With --json one line per change.

    Parameters
    ----------
    call
        The call's id, or its beginning; left out: the newest calls.
    """
    with connect_calls(own) as operator:
        if call is None:
            return watch_all(operator, as_json=as_json)
        return watch_one(operator, find_call(operator, call), as_json=as_json)


def _show(call: ShownCall) -> None:
    now = datetime.now(UTC)
    show_lines([*head_lines(call, now), *time_lines(call)])
    if call.is_debate:
        show_lines([("", None), *debate_lines(call, now)])
    show_lines([*answer_lines(call)])


def _nothing(filters: Filters) -> str:
    status = f" with status {filters.status}" if filters.status else ""
    agent = f" from or to {filters.agent}" if filters.agent else ""
    if status or agent:
        return f"No calls{status}{agent}."
    return "No calls. Make one: openclaw-a2a call AGENT ping --wait"
