"""An MCP server for the tools, over stdio and streamable HTTP, on the official library."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from importlib.metadata import version
from typing import Any

import mcp_types as types
import msgspec
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, AuthorizationContext
from mcp.server.auth.provider import AccessToken
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from openclaw_a2a.auth.tool_tokens import ToolCaller
from openclaw_a2a.http.asgi import AsgiScope, Receive, Send
from openclaw_a2a.model.errors import Overloaded
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.session_keys import OWN_CALLERS
from openclaw_a2a.tools.http import SessionLimits
from openclaw_a2a.tools.registry import Tool, ToolRegistry, run_with_progress

_PROGRESS_TIMEOUT_S = 30.0
_SESSION_RETRY_S = 30.0
_MAX_TEXT = 500
Context = ServerRequestContext[Any]
Admit = Callable[[ToolCaller], AbstractContextManager[None]]


def build_server(
    registry: ToolRegistry,
    find_caller: Callable[[Context], ToolCaller],
    *,
    admit: Admit | None = None,
) -> Server[Any]:
    """An MCP server that offers the tools of the registry.

    `admit` limits the concurrent calls of a caller. A call that its client cancels is cancelled
    here too.
    """
    admitted: Admit = admit or (lambda _: nullcontext())

    async def list_tools(_context: Context, _params: Json) -> types.ListToolsResult:
        tools = [
            types.Tool(
                name=tool.name,
                title=tool.label,
                description=tool.description,
                input_schema=tool.schema,
            )
            for tool in registry
        ]
        return types.ListToolsResult(tools=tools)

    async def call_tool(
        context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        caller, tool = find_caller(context), registry.find(params.name)
        if tool is None:
            known = ", ".join(registry.names) or "none"
            reason = f"there is no tool {params.name[:80]!r}; there are: {known}"
            result = _failure(params.name, "unknown-tool", reason)
        else:
            try:
                with admitted(caller):
                    result = await _run(tool, params.arguments or {}, context, caller)
                    # The library writes it next, and does not report when it has.
                    tool.on_written(result)
            except Overloaded as error:
                result = _failure(tool.name, error.code, error.message)
        text = msgspec.json.encode(result).decode()
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)],
            structured_content=result,
            is_error=result.get("ok") is False,
        )

    return Server(
        "openclaw-a2a",
        version=version("openclaw-a2a"),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def serve_stdio(registry: ToolRegistry, caller: ToolCaller) -> None:
    """Offer the tools on standard input and output until the client leaves."""
    server = build_server(registry, lambda _: caller)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


async def _run(tool: Tool, arguments: Json, context: Context, caller: ToolCaller) -> JsonObject:
    """Run the tool; its updates are sent as progress."""
    numbers = itertools.count(1)

    async def show(update: JsonObject) -> None:
        # The state of the task and the end of its text so far.
        summary: JsonObject = update.get("summary", {})
        state: str | None = summary.get("continuation", {}).get("task", {}).get("status")
        text: str = summary.get("message_text") or ""
        message = " ".join(filter(None, (state, text[-_MAX_TEXT:]))) or "working"
        async with asyncio.timeout(_PROGRESS_TIMEOUT_S):
            await context.session.report_progress(next(numbers), message=message)

    return await run_with_progress(tool, arguments, caller, show)


def _failure(operation: str, code: str, message: str) -> JsonObject:
    return {"ok": False, "operation": operation, "error": {"code": code, "message": message}}


_CALLER = "tool_caller"


class McpSessions(StreamableHTTPSessionManager):
    """The library's sessions, with a share for each caller, and past a limit our own error.

    Each belongs to the caller that opened it. Overridden is what the library decides under its
    lock, by its own list of the open sessions: a count of ours would have to learn of each of the
    ways in which a session ends.
    """

    def __init__(self, server: Server[Any], limits: SessionLimits) -> None:
        super().__init__(
            server,
            session_idle_timeout=limits.idle_s,
            max_sessions=limits.total,
            max_request_body_size=limits.body_bytes,
        )
        self._limits = limits

    def _admit_session(
        self, requestor: AuthorizationContext | None
    ) -> StreamableHTTPServerTransport | None:
        limits, caller = self._limits, "" if requestor is None else requestor["client_id"]
        held = sum(one["client_id"] == caller for one in self._session_owners.values())
        if held >= limits.per_caller and caller not in OWN_CALLERS:
            raise Overloaded(
                f"{caller} has {held} MCP sessions open already; end one, or wait until one that "
                "is not used has ended",
                retry_after_s=_SESSION_RETRY_S,
                setting="tools.perTokenSessions",
            )
        if len(self._server_instances) >= limits.total:
            raise Overloaded(
                f"{limits.total} MCP sessions are open already; try again later",
                retry_after_s=_SESSION_RETRY_S,
                setting="tools.sessions",
            )
        return super()._admit_session(requestor)

    async def serve(
        self, scope: AsgiScope, receive: Receive, send: Send, *, caller: ToolCaller
    ) -> None:
        """Respond to one request of an authenticated caller. Raises: Overloaded."""
        token = AccessToken(token="", client_id=caller.name, scopes=[], subject=caller.session_key)
        state = {**scope.get("state", {}), _CALLER: caller}
        inner = {**scope, "user": AuthenticatedUser(token), "state": state}
        await self.handle_request(inner, receive, send)


@asynccontextmanager
async def open_sessions(
    registry: ToolRegistry, *, admit: Admit, limits: SessionLimits
) -> AsyncGenerator[McpSessions]:
    """Sessions for the tools of the registry; all end with the context."""

    def find_caller(context: Context) -> ToolCaller:
        request: Any = context.request
        return request.scope["state"][_CALLER]

    server = build_server(registry, find_caller, admit=admit)
    sessions = McpSessions(server, limits)
    async with sessions.run():
        yield sessions
