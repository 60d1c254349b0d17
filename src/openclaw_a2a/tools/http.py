"""The tools over plain HTTP: a list, calls with JSON or a stream as the answer, kept results."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Protocol, TypeVar

import msgspec

from openclaw_a2a.auth.tool_tokens import ToolAuthenticator, ToolCaller
from openclaw_a2a.http.sse_stream import encode_comment, encode_frame
from openclaw_a2a.model.errors import (
    Draining,
    GatewayError,
    GatewayFault,
    InvalidParams,
    Overloaded,
    ParseFailed,
    Problem,
    RouteNotFound,
    Unauthenticated,
)
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.protocol.errors import FAULT_MESSAGE, http_status
from openclaw_a2a.tools.progress_stream import cancel_and_wait, run_with_progress
from openclaw_a2a.tools.registry import Tool, ToolRegistry, ignore_update

_NO_TOOLS = "none; see outbound.enabled and tools.agentToAgent.enabled in the settings"
TOOLS = "/tools"
RESULTS = "/results/"
Message = MutableMapping[str, Any]

_MOST_UPDATE_BYTES = 1024 * 1024
_MOST_RESULT_BYTES = 1024 * 1024
_RESULT_BYTES = 65_536
_SEND_S = 30.0
_BROKEN_OFF = (
    "the gateway is stopping and broke off this call; the remote agent may still be at work: "
    "when the gateway is back, ask with action=status before you send again"
)
_T = TypeVar("_T")
_CHALLENGE = (b"www-authenticate", b'Bearer realm="openclaw-a2a"')
_PRIVATE = (b"cache-control", b"no-store")
_STREAM = [(b"content-type", b"text/event-stream"), _PRIVATE, (b"x-accel-buffering", b"no")]


class Exchange(Protocol):
    """One HTTP request whose caller is known, and the way to answer it."""

    method: str
    path: str
    scope: Message

    def header(self, name: bytes) -> str | None:
        """A header's value, by its lower-case name."""
        ...

    def query(self) -> dict[str, str]:
        """The query parameters."""
        ...

    def require_json(self) -> None:
        """Refuse a body that does not call itself JSON. Raises: MediaTypeNotSupported."""
        ...

    async def start_response(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Send status and headers; a body has to follow."""
        ...

    async def respond(
        self,
        status: int,
        body: bytes,
        *,
        media_type: bytes = b"application/json",
        headers: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        """Send a whole answer."""
        ...


class ToolRequest(msgspec.Struct, frozen=True):
    """What a known caller sent, and the bare lines from and to it."""

    caller: ToolCaller
    body: bytes
    receive: Callable[[], Awaitable[Message]]
    send: Callable[[Message], Awaitable[None]]


class Excerpt(Protocol):
    """Some bytes of a kept result, and how many there are in all."""

    @property
    def content(self) -> bytes:
        """The bytes."""
        ...

    @property
    def total(self) -> int:
        """How many bytes the whole result has."""
        ...


class KeptResults(Protocol):
    """The results that were too large to be told at once."""

    def read(self, reference: str, owner: str, *, start: int, count: int) -> Excerpt | None:
        """Some bytes of a result; None when this owner has none under the reference."""
        ...


class ToolEndpoints:
    """Answers at `/tools`, `/tools/<name>` and `/results/<reference>`.

    What a tool answers is told with status 200, whether it succeeded or not; every other status
    is about the door, and its body is `{"error": {code, message}}`.
    """

    def __init__(
        self,
        table: ToolRegistry,
        doorkeeper: ToolAuthenticator,
        *,
        results: KeptResults | None,
        heartbeat_s: float,
    ) -> None:
        self._table = table
        self._doorkeeper = doorkeeper
        self._results = results
        self._heartbeat_s = heartbeat_s

    async def list_tools(self, exchange: Exchange, _visit: ToolRequest) -> None:
        """Tell which tools there are."""
        listed = [tool.listed() for tool in self._table]
        await _answer(exchange, msgspec.json.encode({"tools": listed}))

    async def call(self, exchange: Exchange, visit: ToolRequest) -> None:
        """Run the tool that the path names, with the body as its arguments.

        The tool is stopped when the caller leaves, and when the server does.
        Raises: CallerError, Draining.
        """
        tool = self._find(exchange)
        exchange.require_json()
        arguments = _decode(visit.body)
        with self._doorkeeper.admit(visit.caller):
            if "text/event-stream" in (exchange.header(b"accept") or "").lower():
                await exchange.start_response(200, _STREAM)
                await _unless_gone(self._stream(visit, tool, arguments), visit)
                return
            try:
                answer = await _unless_gone(tool.run(arguments, visit.caller, ignore_update), visit)
            except asyncio.CancelledError:  # the server waits no longer
                raise Draining(_BROKEN_OFF) from None
        if answer is not None:
            await _answer(exchange, msgspec.json.encode(answer))
            tool.told(answer)

    async def read_result(self, exchange: Exchange, visit: ToolRequest) -> None:
        """Tell some bytes of a kept result to whom it belongs. Raises: CallerError."""
        reference = exchange.path.removeprefix(RESULTS)
        start = _number(exchange, "from", 0)
        count = min(_number(exchange, "bytes", _RESULT_BYTES), _MOST_RESULT_BYTES)
        found = None
        if self._results is not None and exchange.method == "GET":
            found = await asyncio.to_thread(
                self._results.read, reference, visit.caller.name, start=start, count=count
            )
        if found is None:
            raise RouteNotFound(
                f"you have no result {reference[:80]!r} here, or it was forgotten with time; "
                "call the tool again"
            )
        headers = [_PRIVATE, (b"x-total-bytes", b"%d" % found.total)]
        headers.append((b"x-content-type-options", b"nosniff"))
        await exchange.respond(
            200, found.content, media_type=b"application/octet-stream", headers=headers
        )

    def _find(self, exchange: Exchange) -> Tool:
        name = exchange.path.removeprefix(f"{TOOLS}/")
        tool = self._table.find(name)
        if exchange.method != "POST":
            raise RouteNotFound(f"there is no {exchange.method} here; call a tool with POST")
        if tool is None:
            known = ", ".join(self._table.names) or _NO_TOOLS
            raise RouteNotFound(f"there is no tool {name[:80]!r}; there are: {known}")
        return tool

    async def _stream(self, visit: ToolRequest, tool: Tool, arguments: Json) -> None:
        line = _Line(visit)
        beating = asyncio.ensure_future(line.beat(self._heartbeat_s))
        try:
            answer = await run_with_progress(tool, arguments, visit.caller, line.show)
        finally:
            await cancel_and_wait(beating)
        await line.send(encode_frame(msgspec.json.encode(answer), event=b"result"), is_last=True)
        tool.told(answer)


class _Line:
    """The body of a stream of events; one writes at a time, and none waits for ever."""

    def __init__(self, visit: ToolRequest) -> None:
        self._visit = visit
        self._turn = asyncio.Lock()

    async def show(self, update: JsonObject) -> None:
        body = msgspec.json.encode(update)
        if len(body) <= _MOST_UPDATE_BYTES:  # the result has it all
            await self.send(encode_frame(body, event=b"update"))

    async def beat(self, pause_s: float) -> None:
        while True:
            await asyncio.sleep(pause_s)
            await self.send(encode_comment())

    async def send(self, chunk: bytes, *, is_last: bool = False) -> None:
        message: Message = {"type": "http.response.body", "body": chunk, "more_body": not is_last}
        async with asyncio.timeout(_SEND_S), self._turn:
            await self._visit.send(message)


async def respond_error(exchange: Exchange, error: GatewayError) -> None:
    """Answer with an error of the door."""
    headers: list[tuple[bytes, bytes]] = [_PRIVATE]
    if isinstance(error, Unauthenticated):
        headers.append(_CHALLENGE)
    if isinstance(error, Overloaded):
        headers.append((b"retry-after", b"%d" % max(1, round(error.retry_after_s))))
    is_ours = isinstance(error, GatewayFault)
    told: JsonObject = {
        "code": error.code,
        "message": FAULT_MESSAGE if is_ours else error.message,
    }
    if error.details and not is_ours:
        told["details"] = error.details
    body = msgspec.json.encode({"error": told})
    await exchange.respond(http_status(error, for_rpc=False), body, headers=headers)


async def _answer(exchange: Exchange, body: bytes) -> None:
    await exchange.respond(200, body, headers=[_PRIVATE])


async def _unless_gone(work: Awaitable[_T], visit: ToolRequest) -> _T | None:
    """What the work gives; nothing, and the work is stopped, when the caller leaves before."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_until_gone(visit))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        await cancel_and_wait(working, leaving)


async def _until_gone(visit: ToolRequest) -> None:
    while (await visit.receive())["type"] != "http.disconnect":
        pass


def _decode(body: bytes) -> Json:
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise ParseFailed("the body is no JSON; send the tool's arguments as an object") from None


def _number(exchange: Exchange, name: str, default: int) -> int:
    text = exchange.query().get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        reason = "must be a whole number that is not negative"
        raise InvalidParams(f"{name}: {reason}", problems=(Problem(name, reason),))
    return int(text)
