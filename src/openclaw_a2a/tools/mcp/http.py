"""The MCP endpoint `/mcp`; the MCP library is loaded when the first client connects."""

import asyncio
from collections.abc import MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from openclaw_a2a.auth.tool_tokens import ToolAuthenticator
from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.model.errors import Draining
from openclaw_a2a.tools.http import ToolRequest
from openclaw_a2a.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from openclaw_a2a.tools.mcp.server import McpSessions

MCP_PATH = "/mcp"
_STOP_TIMEOUT_S = 5.0
Message = MutableMapping[str, Any]


class SessionLimits(msgspec.Struct, frozen=True):
    """How many sessions may be open, in all and of one caller, and for how long without use."""

    total: int
    per_caller: int
    idle_s: float


class McpEndpoint:
    """Serves MCP sessions over streamable HTTP."""

    def __init__(
        self,
        registry: ToolRegistry,
        authenticator: ToolAuthenticator,
        *,
        limits: SessionLimits,
        max_body_bytes: int,
        supervisor: Supervisor,
    ) -> None:
        self._registry = registry
        self._authenticator = authenticator
        self._limits = limits
        self._max_body_bytes = max_body_bytes
        self._supervisor = supervisor
        self._sessions: asyncio.Future[McpSessions] | None = None
        self._is_closed = False

    async def serve(self, request: ToolRequest) -> None:
        """Respond to one request. Raises: Draining, Overloaded (too many sessions)."""
        http = request.http
        # Shielded: the sessions must open although the first client disconnects.
        sessions = await asyncio.shield(self._open())
        # The body was read for authentication, so the library gets it from here.
        unread: list[Message] = [{"type": "http.request", "body": request.body, "more_body": False}]

        async def receive() -> Message:
            return unread.pop() if unread else await http.receive()

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message["headers"])
                media_type = dict(headers).get(b"content-type", b"")
                await http.start_response(message["status"], headers)
                http.is_stream = media_type.startswith(b"text/event-stream")
            else:
                await http.send(message)

        await sessions.serve(http.scope, receive, send, caller=request.caller)

    async def close(self) -> None:
        """End every session, and accept no new ones."""
        self._is_closed = True
        await self._supervisor.stop(_STOP_TIMEOUT_S)

    def _open(self) -> "asyncio.Future[McpSessions]":
        if self._is_closed:
            raise Draining("the gateway is stopping; try again when it is back")
        # No await between check and set: the first requests share one start.
        if self._sessions is None:
            self._sessions = asyncio.get_running_loop().create_future()
            self._supervisor.run_loop("mcp-sessions", self._run(self._sessions))
        return self._sessions

    async def _run(self, sessions: "asyncio.Future[McpSessions]") -> None:
        """Hold the sessions open in a task of their own, which outlives the first request."""
        try:
            await asyncio.to_thread(import_module, "openclaw_a2a.tools.mcp.server")
            from openclaw_a2a.tools.mcp.server import open_sessions

            async with open_sessions(
                self._registry,
                admit=self._authenticator.admit,
                limits=self._limits,
                max_body_bytes=self._max_body_bytes,
            ) as opened:
                sessions.set_result(opened)
                await asyncio.Event().wait()  # until `close` cancels it
        except Exception as error:  # reported to every request that waits for the sessions
            if not sessions.done():
                sessions.set_exception(error)
            raise
        finally:
            sessions.cancel()
