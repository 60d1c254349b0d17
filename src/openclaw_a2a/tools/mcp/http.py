"""The tools over MCP at `/mcp`; the official library is loaded when the first client comes."""

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING

from openclaw_a2a.auth.tool_tokens import ToolAuthenticator
from openclaw_a2a.model.errors import Draining
from openclaw_a2a.tools.http import Exchange, Message, ToolRequest
from openclaw_a2a.tools.progress_stream import cancel_and_wait
from openclaw_a2a.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from openclaw_a2a.tools.mcp.server import McpSessions

PATH = "/mcp"


class McpEndpoint:
    """Answers at `/mcp`."""

    def __init__(
        self,
        table: ToolRegistry,
        doorkeeper: ToolAuthenticator,
        *,
        most_sessions: int,
        body_bytes: int,
    ) -> None:
        self._table = table
        self._doorkeeper = doorkeeper
        self._most_sessions = most_sessions
        self._body_bytes = body_bytes
        self._serving: asyncio.Task[None] | None = None
        self._sessions: asyncio.Future[McpSessions] | None = None
        self._is_closed = False

    async def serve(self, exchange: Exchange, visit: ToolRequest) -> None:
        """Answer one request, whose body was read. Raises: Draining."""
        sessions = await asyncio.shield(self._open())
        rest: list[Message] = [{"type": "http.request", "body": visit.body, "more_body": False}]

        async def receive() -> Message:
            return rest.pop() if rest else await visit.receive()

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                await exchange.start_response(message["status"], list(message["headers"]))
            else:
                await visit.send(message)

        await sessions.serve(exchange.scope, receive, send, caller=visit.caller)

    async def close(self) -> None:
        """End every session; nobody is served any more."""
        self._is_closed = True
        if self._serving is not None:
            await cancel_and_wait(self._serving)

    def _open(self) -> "asyncio.Future[McpSessions]":
        if self._is_closed:
            raise Draining("the gateway is stopping; try again when it is back")
        if self._sessions is None:
            self._sessions = asyncio.get_running_loop().create_future()
            self._serving = asyncio.create_task(self._serve(self._sessions))
        return self._sessions

    async def _serve(self, sessions: "asyncio.Future[McpSessions]") -> None:
        """Keep the sessions in a task of their own: they outlive the request that came first."""
        try:
            await asyncio.to_thread(import_module, "openclaw_a2a.tools.mcp.server")
            from openclaw_a2a.tools.mcp.server import open_sessions

            async with open_sessions(
                self._table,
                admit=self._doorkeeper.admit,
                most=self._most_sessions,
                body_bytes=self._body_bytes,
            ) as opened:
                sessions.set_result(opened)
                await asyncio.Event().wait()  # until `close` cancels it
        except Exception as error:  # whoever waits for the sessions is told
            if sessions.done():
                raise
            sessions.set_exception(error)
        finally:
            sessions.cancel()
