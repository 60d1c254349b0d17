"""HTTP endpoints of the tools: `/tools`, `/tools/<name>`, `/results/<reference>` and `/mcp`.

A tool's result has status 200 whether the tool succeeded or not. Every other status is about the
request, with the body `{"error": {code, message}}`. The MCP library is loaded when the first client
connects.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from openclaw_a2a.auth.peers import await_identity
from openclaw_a2a.auth.tool_tokens import ToolAuthenticator, ToolCaller
from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.http.asgi import NO_STORE, AsgiMessage, Handler, HttpRequest, error_body
from openclaw_a2a.http.caller_checks import CallerChecks
from openclaw_a2a.http.rate_limit import RequestAdmission
from openclaw_a2a.http.request_limits import LARGE_BODY_BYTES, RequestBodies, write_deadline
from openclaw_a2a.http.sse_stream import (
    SseStreams,
    SseWriter,
    encode_comment,
    encode_frame,
)
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import (
    Draining,
    GatewayError,
    InvalidParams,
    MethodNotAllowed,
    ParseFailed,
    Problem,
    RouteNotFound,
    Unauthenticated,
)
from openclaw_a2a.model.ids import Json, JsonObject, PeerName
from openclaw_a2a.model.session_keys import OWN_CALLERS
from openclaw_a2a.protocol.validation import check_value_count
from openclaw_a2a.tools.registry import (
    Heartbeat,
    Tool,
    ToolRegistry,
    ignore_update,
    run_with_progress,
)

if TYPE_CHECKING:
    from openclaw_a2a.tools.mcp_server import McpSessions

log = get_logger(__name__)

T = TypeVar("T")

TOOLS_PATH = "/tools"
RESULTS_PATH = "/results/"
MCP_PATH = "/mcp"
_NO_TOOLS = "none; see outbound.enabled and tools.agentToAgent.enabled in the settings"
_MAX_UPDATE_BYTES = 1024 * 1024
_STOP_TIMEOUT_S = 5.0
_MAX_EXCERPT_BYTES = 1024 * 1024
_DEFAULT_EXCERPT_BYTES = 65_536
_ABORTED = (
    "the gateway is stopping and broke off this call; the remote agent may still be at work: "
    "when the gateway is back, ask with action=status before you send again"
)
_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream"),
    NO_STORE,
    (b"x-accel-buffering", b"no"),
]


class ToolRequest(msgspec.Struct, frozen=True):
    """A request of an authenticated caller."""

    http: HttpRequest
    caller: ToolCaller
    body: bytes
    is_streamed: bool = False
    """True when the client accepts updates as server-sent events."""


ToolHandler = Callable[[ToolRequest], Awaitable[None]]


class ToolGuard(msgspec.Struct, frozen=True):
    """Authenticates and rate-limits callers before the body of a request is read.

    `admission` and `streams` are those of the A2A endpoints: a caller has one share of both.
    """

    authenticator: ToolAuthenticator
    bodies: RequestBodies
    max_body_bytes: int
    max_values: int
    checks: CallerChecks
    admission: RequestAdmission
    streams: SseStreams

    def protect(self, handle: ToolHandler) -> Handler:
        """A handler for authenticated callers."""

        async def handle_http(request: HttpRequest) -> None:
            try:
                caller = await await_identity(self.authenticator.identify, request)
                caller = msgspec.structs.replace(caller, address=request.client_address)
                request.caller = caller.name
                # After authentication: unknown clients cannot use up the share of a caller.
                if caller.name not in OWN_CALLERS:
                    await self.admission.admit(PeerName(caller.name))
                body = b""
                if request.has_body():
                    body = await request.read_body(
                        self.max_body_bytes, self.bodies, setting="tools.bodyBytes"
                    )
                    request.release_body()  # from here on `tools.perTokenCalls` limits them
                    if len(body) >= LARGE_BODY_BYTES:  # many small values take long to validate
                        check_value_count(body, self.max_values)
                if b"text/event-stream" in request.headers.get(b"accept", b"").lower():
                    # From the beginning: a tool that was called cannot be refused its stream.
                    with self.streams.slot(request.caller):
                        streamed = ToolRequest(request, caller, body, is_streamed=True)
                        await self._handle_stream(handle, streamed)
                else:
                    await handle(ToolRequest(request, caller, body))
            except GatewayError as error:
                if request.has_started:
                    raise
                await request.respond_error(error)

        return handle_http

    async def _handle_stream(self, handle: ToolHandler, request: ToolRequest) -> None:
        """Respond; the stream ends when the credentials of its caller are no longer valid."""
        http, task = request.http, asyncio.current_task()
        refusals: list[GatewayError] = []

        def check(http: HttpRequest) -> None:
            if not http.is_stream:
                return
            known = request.caller
            found = self.authenticator.identify(http)
            if msgspec.structs.replace(found, address=known.address) != known:
                raise Unauthenticated("these credentials are those of somebody else by now")

        def end(error: GatewayError) -> None:
            refusals.append(error)
            if task is not None:
                task.cancel()

        checked = self.checks.add(http, check, end)
        try:
            await handle(request)
        except asyncio.CancelledError:
            # Another cancellation may have come on top of ours; then that one wins.
            if not refusals or task is None or task.uncancel():
                raise
            http.log_refusal(refusals[0])
            frame = encode_frame(error_body(refusals[0], show_faults=False), event=b"error")
            await http.send({"type": "http.response.body", "body": frame})
        finally:
            self.checks.remove(checked)


ReadStoredResult = Callable[[str, str, int, int], tuple[bytes, int] | None]
"""Some bytes of a stored result and its size, by reference, owner, start and count; None when the
owner has no such result. Results are stored that were too large to be returned whole."""


class ToolEndpoints:
    """Lists and runs tools."""

    def __init__(
        self,
        registry: ToolRegistry,
        authenticator: ToolAuthenticator,
        *,
        read_result: ReadStoredResult,
        heartbeat_s: float,
        supervisor: Supervisor,
    ) -> None:
        self._registry = registry
        self._authenticator = authenticator
        self._read_stored = read_result
        self._heartbeat_s = heartbeat_s
        self._supervisor = supervisor
        self._write_deadline = write_deadline(supervisor=supervisor)

    async def list_tools(self, request: ToolRequest) -> None:
        """List the tools."""
        await request.http.respond(200, self._registry.encode(), headers=[NO_STORE])

    async def call(self, request: ToolRequest) -> None:
        """Run the tool that the path names, with the body as its arguments.

        The tool is cancelled when the client disconnects, and when the server stops.
        Raises: CallerError, Draining.
        """
        http = request.http
        name = http.path.removeprefix(f"{TOOLS_PATH}/")
        tool = self._registry.find(name)
        if tool is None:
            known = ", ".join(self._registry.names) or _NO_TOOLS
            raise RouteNotFound(f"there is no tool {name[:80]!r}; there are: {known}")
        if http.method != "POST":
            text = f"a tool has no {http.method}; call it with POST"
            raise MethodNotAllowed(text, allowed=["POST"])
        http.require_json()
        try:
            arguments: Json = msgspec.json.decode(request.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            reason = "the body is no JSON; send the tool's arguments as an object"
            raise ParseFailed(reason) from None
        with self._authenticator.admit(request.caller):
            watching = http.watch_disconnect(self._supervisor)
            try:
                if request.is_streamed:
                    work = self._stream(request, tool, arguments, watching)
                    await _run_until(watching, work)
                    return
                work = tool.run(arguments, request.caller, ignore_update)
                result = await _run_until(watching, work)
                # Checked, because a server drops what is written to a client that is gone.
                is_lost = await _is_disconnected(watching)
            except asyncio.CancelledError:  # the server stops and waits no longer
                if request.is_streamed:
                    raise
                raise Draining(_ABORTED) from None
            finally:
                watching.cancel()
        if result is None:
            return
        if is_lost:
            tool.on_lost(result)
            return
        await http.respond(200, msgspec.json.encode(result), headers=[NO_STORE])
        tool.on_written(result)

    async def read_result(self, request: ToolRequest) -> None:
        """Send some bytes of a stored result to its owner. Raises: CallerError."""
        http, owner = request.http, request.caller.name
        if http.method != "GET":
            raise MethodNotAllowed(f"a result has no {http.method}; use GET", allowed=["GET"])
        reference = http.path.removeprefix(RESULTS_PATH)
        start = _parse_count(http, "from", 0)
        count = min(_parse_count(http, "bytes", _DEFAULT_EXCERPT_BYTES), _MAX_EXCERPT_BYTES)
        found = await asyncio.to_thread(self._read_stored, reference, owner, start, count)
        if found is None:
            raise RouteNotFound(
                f"you have no result {reference[:80]!r} here, or it was deleted since; "
                "call the tool again"
            )
        content, total = found
        headers = [NO_STORE, (b"x-total-bytes", b"%d" % total)]
        headers.append((b"x-content-type-options", b"nosniff"))
        await http.respond(200, content, media_type=b"application/octet-stream", headers=headers)

    async def _stream(
        self,
        request: ToolRequest,
        tool: Tool,
        arguments: Json,
        disconnected: "asyncio.Future[None]",
    ) -> None:
        writer = SseWriter(request.http, self._write_deadline)
        await request.http.start_response(200, _STREAM_HEADERS)
        request.http.is_stream = True

        async def show(update: JsonObject) -> None:
            body = msgspec.json.encode(update)
            if len(body) <= _MAX_UPDATE_BYTES:  # the result has all of it
                await writer.write(encode_frame(body, event=b"update"))

        heartbeat = Heartbeat(self._heartbeat_s, lambda: writer.write(encode_comment()))
        result = await run_with_progress(tool, arguments, request.caller, show, heartbeat=heartbeat)
        if disconnected.done():
            tool.on_lost(result)
            return
        await writer.write(encode_frame(msgspec.json.encode(result), event=b"result"))
        await writer.close()
        tool.on_written(result)


async def _run_until(
    disconnected: "asyncio.Future[None]", work: Coroutine[Any, Any, T]
) -> T | None:
    """The result of the work; None when it was cancelled because the client disconnected.

    It has ended in any case when this returns or raises.
    """
    task, is_over = asyncio.current_task(), False

    def cancel(_disconnected: "asyncio.Future[None]") -> None:
        # Called a turn after the disconnect, when the work may be over.
        if task is not None and not is_over:
            task.cancel()

    disconnected.add_done_callback(cancel)
    try:
        return await work
    except asyncio.CancelledError:
        # Another cancellation may have come on top of ours; then that one wins.
        if not disconnected.done() or task is None or task.uncancel():
            raise
        return None
    finally:
        is_over = True
        disconnected.remove_done_callback(cancel)


async def _is_disconnected(watching: "asyncio.Future[None]") -> bool:
    if isinstance(watching, asyncio.Task):
        # Another server than ours: a disconnect that it knows of reaches the task two turns later.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    return watching.done()


def _parse_count(http: HttpRequest, name: str, default: int) -> int:
    text = http.query().get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        reason = "must be a whole number that is not negative"
        raise InvalidParams(f"{name}: {reason}", problems=(Problem(name, reason),))
    return int(text)


# -------------------------------------------------------------------- MCP


class SessionLimits(msgspec.Struct, frozen=True):
    """How many sessions may be open, in all and of one caller, for how long without use."""

    total: int
    per_caller: int
    idle_s: float
    body_bytes: int


class McpEndpoint:
    """Serves MCP sessions over streamable HTTP."""

    def __init__(
        self,
        registry: ToolRegistry,
        authenticator: ToolAuthenticator,
        *,
        limits: SessionLimits,
        supervisor: Supervisor,
    ) -> None:
        self._registry = registry
        self._authenticator = authenticator
        self._limits = limits
        self._supervisor = supervisor
        self._sessions: asyncio.Future[McpSessions] | None = None
        self._is_closed = False

    async def serve(self, request: ToolRequest) -> None:
        """Respond to one request. Raises: Draining, Overloaded (too many sessions)."""
        http = request.http
        # Shielded: the sessions must open although the first client disconnects.
        sessions = await asyncio.shield(self._open())
        # The body was read for authentication, so the library gets it from here.
        unread: list[AsgiMessage] = [
            {"type": "http.request", "body": request.body, "more_body": False}
        ]

        async def receive() -> AsgiMessage:
            return unread.pop() if unread else await http.receive()

        async def send(message: AsgiMessage) -> None:
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
            await asyncio.to_thread(import_module, "openclaw_a2a.tools.mcp_server")
            from openclaw_a2a.tools.mcp_server import open_sessions

            async with open_sessions(
                self._registry, admit=self._authenticator.admit, limits=self._limits
            ) as opened:
                sessions.set_result(opened)
                await asyncio.Event().wait()  # until `close` cancels it
        except Exception as error:  # reported to every request that waits for the sessions
            if not sessions.done():
                sessions.set_exception(error)
            raise
        finally:
            sessions.cancel()
