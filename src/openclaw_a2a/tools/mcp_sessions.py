"""The MCP sessions over streamable HTTP, behind our own door."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from openclaw_a2a.tools.http import Message
from openclaw_a2a.tools.mcp_server import Admit, Context, build_server
from openclaw_a2a.tools.table import ToolCaller, ToolTable

_CALLER = "tool_caller"


class McpSessions:
    """The sessions that are open; one belongs to the caller who opened it."""

    def __init__(self, manager: StreamableHTTPSessionManager) -> None:
        self._manager = manager

    async def serve(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
        *,
        caller: ToolCaller,
    ) -> None:
        """Answer one request of a caller who is known and whose names are checked."""
        known = AccessToken(token="", client_id=caller.name, scopes=[], subject=caller.session_key)
        state = {**scope.get("state", {}), _CALLER: caller}
        inner = {**scope, "user": AuthenticatedUser(known), "state": state}
        await self._manager.handle_request(inner, receive, send)


@asynccontextmanager
async def open_sessions(
    table: ToolTable, *, admit: Admit, most: int, body_bytes: int
) -> AsyncGenerator[McpSessions]:
    """Sessions for the tools of the table; all end when the context does."""
    manager = StreamableHTTPSessionManager(
        build_server(table, _caller, admit=admit),
        max_sessions=most,
        max_request_body_size=body_bytes,
    )
    async with manager.run():
        yield McpSessions(manager)


def _caller(context: Context) -> ToolCaller:
    request: Any = context.request
    return request.scope["state"][_CALLER]
