"""`mcp`: offer the tools over MCP on standard input and output."""

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from cyclopts import Parameter

from openclaw_a2a.auth.admin_token import read_admin_token
from openclaw_a2a.auth.tokens import TOOL_TOKEN_PREFIX
from openclaw_a2a.auth.tool_tokens import OPERATOR_CALLER
from openclaw_a2a.cli.errors import DONE, usage_error
from openclaw_a2a.cli.options import GatewayOptions, data_override, parse_address
from openclaw_a2a.cli.render.terminal import print_message
from openclaw_a2a.model.errors import AgentUnavailable
from openclaw_a2a.settings import (
    Settings,
    is_loopback,
    load_settings,
    locate_gateway,
    read_command_environment,
)

if TYPE_CHECKING:
    from openclaw_a2a.tools.registry import ToolRegistry

_CREATE_HINT = "Make one where it runs: openclaw-a2a token create --tool NAME"
DEFAULT_GATEWAY = GatewayOptions()
_TURN_ON = (
    "Set outbound.enabled or tools.agentToAgent.enabled to true in the settings, "
    "then check: openclaw-a2a config check"
)


def mcp(
    *,
    own: GatewayOptions = DEFAULT_GATEWAY,
    token: Annotated[
        str | None,
        Parameter(help="A tool token; left out: OPENCLAW_A2A_TOKEN, or the operator's own."),
    ] = None,
) -> int:
    """Serve the tools over MCP on standard input and output.

    The calls are made by the gateway when it runs, so that the work can be followed later, also
    after a restart; otherwise by this command itself, with the same settings.
    """
    settings = load_settings(own.config, overrides=data_override(own.data)).settings

    from openclaw_a2a.app.logging import configure_logs

    configure_logs(settings.log)
    asyncio.run(_serve(settings, own, token))
    return DONE


async def _serve(settings: Settings, own: GatewayOptions, token: str | None) -> None:
    async with AsyncExitStack() as parts:
        table = await _through_gateway(parts, settings, own, token=token)
        if table is None:
            from openclaw_a2a.app.wiring.tools import open_tool_set
            from openclaw_a2a.engine.engine import SystemClock
            from openclaw_a2a.engine.supervisor import Supervisor
            from openclaw_a2a.remote.config import read_outbound

            config = read_outbound(settings.outbound).config
            opening = open_tool_set(settings, config, clock=SystemClock(), supervisor=Supervisor())
            table = (await parts.enter_async_context(opening)).registry
            print_message(
                "No gateway answers: the calls are made here, and handles end with this process."
            )
        if not len(table):
            raise usage_error("there are no tools to offer", _TURN_ON, code="no-tools")
        from openclaw_a2a.tools.mcp_server import serve_stdio

        await serve_stdio(table, OPERATOR_CALLER)


async def _through_gateway(
    parts: AsyncExitStack, settings: Settings, own: GatewayOptions, *, token: str | None
) -> "ToolRegistry | None":
    """The tools of the gateway; None when none runs and no certain one was asked for."""
    from openclaw_a2a.tools.gateway_client import open_gateway_tools

    named = own.url or read_command_environment().url
    address = parse_address(named or locate_gateway(settings.server, settings.data).address)
    shown = token or _token(settings, address)
    if shown is None and named:
        raise usage_error(f"{address} wants a tool token", _CREATE_HINT)
    if shown is None:
        return None
    try:
        return await parts.enter_async_context(open_gateway_tools(address, shown))
    except AgentUnavailable:
        if own.url:
            raise
        return None


def _token(settings: Settings, address: str) -> str | None:
    """A tool token of the environment, else the operator's, which never leaves this machine."""
    given = read_command_environment().token
    if given and given.startswith(TOOL_TOKEN_PREFIX):
        return given
    if not is_loopback(urlsplit(address).hostname or ""):
        return None
    with suppress(OSError, ValueError):
        return read_admin_token(settings.data)
    return None
