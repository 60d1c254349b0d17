"""`top`: the dashboard on a terminal, live; without one, what it would show, once."""

import asyncio
import sys
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Annotated, Literal

from cyclopts import Parameter

from openclaw_a2a.cli.admin_client import find_gateway
from openclaw_a2a.cli.errors import DONE, INTERRUPTED, code_of, next_step
from openclaw_a2a.cli.options import DEFAULT_ADMIN, AdminOptions
from openclaw_a2a.cli.render.terminal import console_for, print_data, print_json, print_message
from openclaw_a2a.model.errors import AgentFailed, NotAllowed
from openclaw_a2a.model.ids import JsonObject

_OFF = "Set dashboard.enabled to true in the settings, and start the gateway again."
_MISSING = ("route-not-found", "a2a-route-not-found", "http-404")
_PLAIN_CELLS = 110


def top(
    *,
    view: Annotated[
        Literal["now", "tasks", "calls", "objectives"], Parameter(help="What to show first.")
    ] = "now",
    options: AdminOptions = DEFAULT_ADMIN,
) -> int:
    """Show tasks, calls and objectives live; answer and cancel by key.

    Keys: arrows or j and k move, Enter opens, a answers, c cancels, / filters, 1 to 4 show Now,
    tasks, calls and objectives, ? shows all of them, q quits. Without a terminal, and with --json,
    it prints what is there now and ends.
    """
    try:
        if options.as_json or not _is_interactive():
            document = asyncio.run(_read_once(view, options))
            if options.as_json:
                print_json(document)
            else:
                _print_rows(view, document)
            return DONE
        asyncio.run(_show(view, options))
    except KeyboardInterrupt:
        return INTERRUPTED
    except AgentFailed as error:
        if code_of(error) in _MISSING:
            message = "the dashboard of this gateway is off, and top shows what it shows"
            raise NotAllowed(message, details=next_step("dashboard-off", _OFF)) from None
        raise
    return DONE


def _is_interactive() -> bool:
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or sys.platform == "win32":
        return False
    return not console_for(sys.stdout).is_dumb_terminal


async def _read_once(view: str, options: AdminOptions) -> JsonObject:
    from openclaw_a2a.cli.dashboard_client import DashboardClient
    from openclaw_a2a.cli.render.top import view_address

    async with aclosing(DashboardClient(find_gateway(options))) as client:
        return await client.read(view_address(view))


async def _show(view: str, options: AdminOptions) -> None:
    from openclaw_a2a.cli.dashboard_client import DashboardClient
    from openclaw_a2a.cli.top import Top

    async with aclosing(DashboardClient(find_gateway(options))) as client:
        await Top(client, view).run()


def _print_rows(view: str, document: JsonObject) -> None:
    from openclaw_a2a.cli.render.top import describe_page, draw_row, list_rows, say_empty

    now = datetime.now(UTC)
    print_data(describe_page(view, document, tab="all"))
    rows = list_rows(view, document)
    for row in rows:
        print_data(draw_row(row, _PLAIN_CELLS, now, is_chosen=False).plain.rstrip())
    if not rows:
        print_data(say_empty(view, document, is_filtered=False))
    print_message("This was once; on a terminal it is live, and keys answer and cancel.")
