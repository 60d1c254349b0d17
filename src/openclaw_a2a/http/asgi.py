"""An HTTP request with its bounded body, and its response.

Two classes implement it: `http/exchange.py` for our own server, `AsgiRequest` for any other.
"""

import asyncio
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, cast
from urllib.parse import parse_qsl

import msgspec

from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.http.request_limits import LARGE_BODY_BYTES, EventBursts, RequestBodies
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import (
    AgentUnavailable,
    BodyTooLarge,
    ContentCodingNotSupported,
    GatewayError,
    GatewayFault,
    InsufficientScope,
    InvalidRequest,
    MediaTypeNotSupported,
    MethodNotAllowed,
    Overloaded,
    QuotaExceeded,
    Unauthenticated,
)
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.model.url_policy import client_network
from openclaw_a2a.protocol.errors import http_status, public_message

log = get_logger(__name__)

SLICE_BYTES = 64 * 1024
"""How much of a body is sent at once: the next slice waits until the client has read it."""
SMALL_BODY_BYTES = 2 * SLICE_BYTES
"""A body up to this size is not cut into slices."""

_SLICES_PER_CHECK = 16
_MOST_DIGITS = 18

DRAIN_BYTES = 16 * 1024 * 1024
DRAIN_TIMEOUT_S = 2.0
"""How much of a refused body is received after the response, and for how long."""
_EXPECT_TIMEOUT_S = 0.1
"""How long to wait for its first bytes if the client expects a 100 (Continue) and got none."""
_LOGGED_CHARS = 300  # of what a request says
HELD_BYTES = 32 * 1024
"""How much of a body, or of a stream, is held for the dashboard: the beginning."""


class ClientDisconnected(Exception):
    """The client has disconnected: the response has no receiver."""


AsgiMessage = MutableMapping[str, Any]
AsgiScope = AsgiMessage
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
Header = tuple[bytes, bytes]

JSON = b"application/json"
A2A_JSON = b"application/a2a+json"
NO_STORE: Header = (b"cache-control", b"no-store")
_REALM = 'realm="openclaw-a2a"'
_CLOSE: Header = (b"connection", b"close")


class HeadFacts:
    """What was derived from the head of a request alone.

    The requests of a connection that have the same head share it, so routing and the parts of
    authentication that depend on nothing else are done for the first of them.
    """

    __slots__ = ("admitted", "handler", "is_json", "origin_accepted_by", "token_digest")

    def __init__(self) -> None:
        self.handler: Handler | None = None
        """What the router found for it."""
        self.is_json = False
        """True when its body is known to be declared as JSON."""
        self.token_digest: bytes | None = None
        self.origin_accepted_by: object = None
        self.admitted: tuple[object, object, Scope] | None = None
        """An account, the caller that may use it, and that caller's scope there."""


class HeldExchange(msgspec.Struct, gc=False):
    """What is held of one request and its response.

    The code that reads or sends a body sets `received` or `sent` to its beginning: a slice of a
    body that is no larger than `HELD_BYTES` is the body itself. `frames` are the chunks of a
    stream; `ended_at` is on the monotonic clock, None while the response is being sent.
    """

    received: bytes = b""
    received_size: int = 0
    headers: Sequence[Header] = ()
    sent: bytes = b""
    sent_size: int = 0
    frames: list[bytes] | None = None
    ended_at: float | None = None

    def add_frames(self, chunks: Sequence[bytes]) -> None:
        """Chunks of a stream are sent."""
        frames = self.frames
        if frames is None:
            frames = self.frames = []
        for chunk in chunks:
            if self.sent_size < HELD_BYTES:
                frames.append(chunk[: HELD_BYTES - self.sent_size])
            self.sent_size += len(chunk)

    def mentions(self, text: bytes) -> bool:
        """True when the text is in a body or a frame."""
        if text in self.received or text in self.sent:
            return True
        return self.frames is not None and text in b"".join(self.frames)


class HttpRequest(ABC):
    """One request and the way to respond to it."""

    __slots__ = ()  # those of our own server have no dictionary

    facts: HeadFacts
    """What was derived from the head alone; requests with the same head may share it."""

    method: str
    path: str
    headers: dict[bytes, bytes]
    """If a header is repeated, the last value counts; read lists with `header_items`."""
    client_address: str
    """The address of the client, also behind trusted proxies; empty: not known."""
    started_at: float
    response_headers: list[Header]
    """Added to whatever response is sent."""

    has_started = False
    """True when status and headers were sent."""
    status = 0
    """The status that was sent."""
    error_code = ""
    """The code of the error response."""
    caller: str | None = None
    """The name of the caller, once it is known."""
    caller_agents: frozenset[str] | None = None
    """The agents that the caller's credentials are limited to; None: all."""
    is_body_asked = False
    """True when the application asked for the body: the server has sent a 100 (Continue)."""
    is_body_read = False
    is_stream = False
    """True when the body of the response is a stream of events that lasts."""
    bursts: EventBursts | None = None
    """Counts refusals that clients can cause without limit; None: each is logged."""
    held_by: RequestBodies | None = None
    """Counts the bytes of a large body until it is decoded."""
    is_silent = False
    """True when the response has no body, whatever its headers say."""
    on_refused: Callable[[GatewayError], None] | None = None
    """Called once, when the response is an error; None: nothing to call."""
    unsent = 0
    """How many unsent bytes are in memory for its client alone."""
    wire: HeldExchange | None = None
    """Holds its bytes for the dashboard; None: they are not held."""
    rest: "Callable[[], Awaitable[None]] | None" = None
    """Runs after the handler has returned. Streams are written there: they may last for hours, and
    nothing of the handler stays in memory meanwhile.
    """

    @property
    @abstractmethod
    def query_string(self) -> bytes:
        """What follows the path."""

    @property
    @abstractmethod
    def header_lines(self) -> Sequence[Header]:
        """The headers as they came, with names in lower case."""

    @property
    @abstractmethod
    def client_host(self) -> str | None:
        """The address of the client; None when the server does not know it."""

    @property
    @abstractmethod
    def server_port(self) -> int | None:
        """The port at which the request came in; None when the server does not know it."""

    @property
    @abstractmethod
    def http_version(self) -> str:
        """The version of HTTP, such as 1.1."""

    @property
    @abstractmethod
    def scheme(self) -> str:
        """`http` or `https`."""

    @property
    @abstractmethod
    def scope(self) -> AsgiScope:
        """The request as ASGI describes it, for code of others."""

    @abstractmethod
    async def receive(self) -> AsgiMessage:
        """The next part of the body, or that the client is gone, as in ASGI."""

    @abstractmethod
    async def send(self, message: AsgiMessage) -> None:
        """Send a part of the response, as in ASGI; waits for a client that does not read."""

    def send_now(self, body: bytes) -> bool:
        """Send a part of a body if that needs no waiting; False: `send` it."""
        del body
        return False

    def take_body(self, limit: int) -> bytes | None:
        """The whole body if it has arrived and is small; None: use `read_body`."""
        del limit
        return None

    def header(self, name: bytes) -> str | None:
        """A header's value, by its lower-case name."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    def header_items(self, name: bytes) -> list[str]:
        """The items of a comma-separated header, which may come in several lines."""
        if name not in self.headers:
            return []
        lines = [value.decode("latin-1") for key, value in self.header_lines if key == name]
        return [item.strip() for item in ",".join(lines).split(",") if item.strip()]

    def has_repeated(self, *names: bytes) -> bool:
        """True when one of these headers comes in several lines."""
        if len(self.header_lines) == len(self.headers):
            return False
        found = [key for key, _ in self.header_lines if key in names]
        return len(found) != len(set(found))

    def query(self) -> dict[str, str]:
        """The query parameters; the last of each name counts."""
        raw = self.query_string
        return dict(parse_qsl(raw.decode("latin-1"), keep_blank_values=True)) if raw else {}

    def protocol_version(self) -> str | None:
        """The A2A version that the caller requests, in a header or in the query."""
        version = self.header(b"a2a-version")
        if not version and self.query_string:
            version = self.query().get("A2A-Version")
        return version

    def require_json(self) -> None:
        """Refuse a body that is not declared as JSON. Raises: MediaTypeNotSupported."""
        content_type = self.headers.get(b"content-type", b"")
        media_type = content_type.partition(b";")[0].strip().lower()
        if media_type not in (JSON, A2A_JSON):
            given = media_type.decode("latin-1")[:80] or "nothing"
            raise MediaTypeNotSupported(
                f"the content type is {given}; send the body as application/json"
            )
        self.facts.is_json = True

    def has_body(self) -> bool:
        """True when the headers announce a body."""
        # RFC 9112, 6.3: a request with neither of the two has no body.
        is_sized = self.headers.get(b"content-length", b"0") != b"0"
        return is_sized or b"transfer-encoding" in self.headers

    async def read_body(self, limit: int, bodies: RequestBodies, *, setting: str = "") -> bytes:
        """The request body. Past the limit, which `setting` sets, the rest is not read.

        A large body counts until `release_body`, or the end of the request.

        Raises: ContentCodingNotSupported, BodyTooLarge, BodyTooSlow, Overloaded, InvalidRequest
        (the connection was closed before).
        """
        body = self.take_body(limit)  # nearly every body arrives together with its head
        if body is not None:
            return body
        # Also refused before the first byte: a compressed body grows when it is read.
        if b"content-encoding" in self.headers and any(
            coding.lower() != "identity" for coding in self.header_items(b"content-encoding")
        ):
            raise ContentCodingNotSupported(
                "bodies are read as they are: send this one without Content-Encoding"
            )
        # Refused before the first byte: a body announced as too large is not received at all.
        declared = self.headers.get(b"content-length", b"").lstrip(b"0")
        if declared.isdigit() and (len(declared) > _MOST_DIGITS or int(declared) > limit):
            raise _body_too_large(limit, setting)
        operation = bodies.deadline.start()
        self.is_body_asked = True
        try:
            message = await self.receive()
            body = cast("bytes", message.get("body", b""))
            if message.get("more_body", False):
                body = await self._read_rest(body, limit, bodies, setting)
            elif len(body) >= LARGE_BODY_BYTES:
                bodies.hold(self, len(body))
        finally:
            bodies.deadline.stop(operation)
        self.is_body_read = True
        if len(body) > limit:
            raise _body_too_large(limit, setting)
        if (wire := self.wire) is not None:
            wire.received, wire.received_size = body[:HELD_BYTES], len(body)
        return body

    async def _read_rest(
        self, first: bytes, limit: int, bodies: RequestBodies, setting: str
    ) -> bytes:
        chunks, size, has_more = [first], len(first), True
        try:
            while has_more:
                if size > limit:
                    raise _body_too_large(limit, setting)
                message = await self.receive()
                if message["type"] == "http.disconnect":
                    raise InvalidRequest("the connection was closed before the body was complete")
                chunks.append(message.get("body", b""))
                size += len(chunks[-1])
                if size >= LARGE_BODY_BYTES:
                    bodies.hold(self, size)
                has_more = message.get("more_body", False)
            return b"".join(chunks)
        except BaseException:
            # Now: the error keeps this frame, and the chunks, until the response is sent.
            chunks.clear()
            self.release_body()
            raise

    def release_body(self) -> None:
        """The body is decoded, or not used: its bytes do not count any more."""
        if self.held_by is not None:
            self.held_by.release(self)

    async def wait_disconnected(self) -> None:
        """Wait until the client is gone. The body must have been read."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    def watch_disconnect(self, supervisor: Supervisor) -> "asyncio.Future[None]":
        """Done when the client is gone; cancel it when that does not matter any more."""
        return supervisor.start("disconnect", self.wait_disconnected())

    async def is_disconnected(self, *, wait_s: float = 0) -> bool:
        """True when the client leaves within `wait_s`. The body must have been read."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self.wait_disconnected()
                return True
        return False

    async def send_slices(
        self, chunks: Iterable[bytes | memoryview], *, is_watched: bool = False
    ) -> None:
        """Send a part of a body without holding it all in the buffer of the connection.

        `is_watched`: something else waits for the client to disconnect.

        Raises: ClientDisconnected (found out now and then, unless it is watched).
        """
        count = 0
        for chunk in chunks:
            view = memoryview(chunk)
            for start in range(0, len(chunk), SLICE_BYTES):
                part = bytes(chunk if len(chunk) <= SLICE_BYTES else view[start:][:SLICE_BYTES])
                await self.send({"type": "http.response.body", "body": part, "more_body": True})
                count += 1
                # A server drops what is sent to a client that is gone; nothing would slow us down.
                if is_watched or count % _SLICES_PER_CHECK:
                    continue
                if await self.is_disconnected():
                    raise ClientDisconnected("the client left during its response")

    async def respond_chunks(self, chunks: Sequence[bytes], *, media_type: bytes = JSON) -> None:
        """Send a large response whose request has been read; its chunks may be shared."""
        if self.is_silent:
            await self.respond(200, b"")
            return
        length = b"%d" % sum(map(len, chunks))
        headers = [(b"content-type", media_type), (b"content-length", length)]
        if (wire := self.wire) is not None:
            wire.headers, wire.sent, wire.sent_size = headers, chunks[0][:HELD_BYTES], int(length)
            wire.ended_at = time.monotonic()
        await self.start_response(200, headers)
        await self.send_slices(chunks)
        await self.send({"type": "http.response.body", "body": b""})

    async def respond(
        self,
        status: int,
        body: bytes,
        *,
        media_type: bytes = JSON,
        headers: Iterable[Header] = (),
    ) -> None:
        """Send a whole response."""
        if self.is_silent:
            await self.start_response(204 if status == 200 else status, list(headers))
            await self.send({"type": "http.response.body", "body": b""})
            return
        own = [(b"content-type", media_type), (b"content-length", b"%d" % len(body)), *headers]
        if (wire := self.wire) is not None:
            wire.headers, wire.sent, wire.sent_size = own, body[:HELD_BYTES], len(body)
            wire.ended_at = time.monotonic()
        if not self.is_body_read and self.has_body():
            # The response first: a client that reads while it sends has it at once.
            await self.start_response(status, own)
            await self.send({"type": "http.response.body", "body": body, "more_body": True})
            await self._drain_body()
            await self.send({"type": "http.response.body", "body": b""})
        elif len(body) > SMALL_BODY_BYTES:
            await self.start_response(status, own)
            self.unsent = len(body)
            await self.send_slices((body,))
            await self.send({"type": "http.response.body", "body": b""})
        else:
            await self.start_response(status, own)
            await self.send({"type": "http.response.body", "body": body})

    async def _drain_body(self) -> None:
        """Receive and drop what the client still sends, bounded in time and in size.

        A connection that is closed with bytes unread is reset, and a client that sends its whole
        body before it reads would see that instead of the response.
        """
        size = 0
        # RFC 9110, 10.1.1: such a client sends nothing after a final response, unless it stopped
        # waiting for a 100 (Continue).
        expects = (self.header(b"expect") or "").lower() == "100-continue"
        is_waiting = expects and not self.is_body_asked
        end = asyncio.get_running_loop().time() + DRAIN_TIMEOUT_S
        with suppress(TimeoutError):
            first_s = _EXPECT_TIMEOUT_S if is_waiting else DRAIN_TIMEOUT_S
            async with asyncio.timeout(first_s) as limit:
                while size < DRAIN_BYTES:
                    message = await self.receive()
                    limit.reschedule(end)
                    size += len(message.get("body", b""))
                    if not message.get("more_body", False):
                        return

    async def start_response(self, status: int, headers: list[Header]) -> None:
        """Send status and headers; a body has to follow.

        When the body of the request was not read, the connection is closed afterwards: the next
        request would begin somewhere in what was left unread.
        """
        # Before the send: if that is cancelled half-way no second response may follow.
        self.has_started = True
        self.status = status
        if self.response_headers:
            headers = [*headers, *self.response_headers]
        if not self.is_body_read and self.has_body():
            headers = [*headers, _CLOSE]
        await self.send({"type": "http.response.start", "status": status, "headers": headers})

    def log_refusal(self, error: GatewayError, **fields: Json) -> None:
        """Log that the request is answered with an error; a fault of our own is a warning.

        For unknown callers, once a minute for each address and code; for exceeded limits, once a
        minute for each caller.
        """
        self.error_code = error.code
        if self.bursts is not None:
            self.bursts.refusals.count(error.code, self.caller)
        on_refused, self.on_refused = self.on_refused, None
        if on_refused is not None:
            on_refused(error)
        is_fault = isinstance(error, GatewayFault)
        event, write = (
            ("request.failed", log.warning) if is_fault else ("request.refused", log.info)
        )
        fields = {"reason": error.message[:_LOGGED_CHARS], **self.log_fields(), **fields}
        kind: JsonObject = {"code": error.code}
        if self.caller is None:
            kind["client"], _ = client_network(self.client_address)
        elif isinstance(error, Overloaded):
            kind["caller"] = self.caller
        if len(kind) > 1 and self.bursts is not None:
            self.bursts.report(write, event, kind, **fields)
        else:
            write(event, **(kind | fields))

    def log_fields(self) -> JsonObject:
        """The caller, the request and its duration, for the log."""
        return {
            "caller": self.caller,
            "client": self.client_address or None,
            "method": self.method,
            "path": self.path[:_LOGGED_CHARS],
            "milliseconds": round((time.monotonic() - self.started_at) * 1000),
        }

    async def respond_error(self, error: GatewayError, *, show_faults: bool = False) -> None:
        """Send `{"error": {code, message, details}}`, for endpoints that are not A2A.

        Faults of the gateway are described to its operator only (`show_faults`).
        """
        self.log_refusal(error)
        status, body = http_status(error, for_rpc=False), error_body(error, show_faults=show_faults)
        await self.respond(status, body, headers=[NO_STORE, *error_headers(error)])


class AsgiRequest(HttpRequest):
    """A request of an ASGI server."""

    def __init__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        self.facts = HeadFacts()
        self._scope = scope
        self._receive = receive
        self._send = send
        self.headers = dict(scope["headers"])
        self.method, self.path = scope["method"], scope["path"]
        self.client_address = self.client_host or ""
        self.response_headers = []
        self.started_at = time.monotonic()

    @property
    def query_string(self) -> bytes:
        """What follows the path."""
        return self._scope.get("query_string", b"")

    @property
    def header_lines(self) -> Sequence[Header]:
        """The headers as they came."""
        return self._scope["headers"]

    @property
    def client_host(self) -> str | None:
        """The address of the client."""
        client = self._scope.get("client")
        return client[0] if client else None

    @property
    def server_port(self) -> int | None:
        """The port at which the request came in."""
        server = self._scope.get("server")
        return server[1] if server else None

    @property
    def http_version(self) -> str:
        """The version of HTTP."""
        return self._scope.get("http_version", "1.1")

    @property
    def scheme(self) -> str:
        """`http` or `https`."""
        return self._scope.get("scheme", "http")

    @property
    def scope(self) -> AsgiScope:
        """The request as ASGI describes it."""
        return self._scope

    async def receive(self) -> AsgiMessage:
        """The next part of the body, or that the client is gone."""
        return await self._receive()

    async def send(self, message: AsgiMessage) -> None:
        """Send a part of the response."""
        await self._send(message)


Handler = Callable[[HttpRequest], Awaitable[None]]
"""Responds to one request."""


def error_body(error: GatewayError, *, show_faults: bool) -> bytes:
    """The JSON of an error, for endpoints that are not A2A."""
    is_hidden = isinstance(error, GatewayFault) and not show_faults
    members: JsonObject = {
        "code": error.code,
        "message": public_message(error) if is_hidden else error.message,
    }
    if error.details and not is_hidden:
        members["details"] = error.details
    return msgspec.json.encode({"error": members})


def error_headers(error: GatewayError) -> list[Header]:
    """The headers that go with an error response."""
    if isinstance(error, Unauthenticated):
        # RFC 9110, 15.5.2: a 401 must say how to authenticate. RFC 6750, 3.1: it has no error code
        # when there were no credentials.
        reasons = {"Bearer": ', error="invalid_token"'} if error.has_credentials else {}
        said = [f"{scheme} {_REALM}{reasons.get(scheme, '')}" for scheme in error.schemes]
        return [(b"www-authenticate", one.encode("ascii")) for one in said]
    if isinstance(error, InsufficientScope):
        # RFC 6750, 3.1: the credentials are valid, and others are needed.
        challenge = f'Bearer {_REALM}, error="insufficient_scope", scope="{error.scope}"'
        return [(b"www-authenticate", challenge.encode("ascii"))]
    if isinstance(error, MethodNotAllowed):
        # RFC 9110, 15.5.6: a 405 must say which methods there are.
        return [(b"allow", ", ".join(error.allowed).encode("ascii"))]
    if isinstance(error, ContentCodingNotSupported):
        # RFC 9110, 15.5.16: which codings there are.
        return [(b"accept-encoding", b"identity")]
    if isinstance(error, AgentUnavailable) and error.retry_after_s is None:
        return []
    if isinstance(error, Overloaded | QuotaExceeded | AgentUnavailable):
        # Whole seconds, rounded up, and never 0: with 0 all clients would retry at once.
        return [(b"retry-after", b"%d" % max(1, math.ceil(error.retry_after_s or 1)))]
    return []


def _body_too_large(limit: int, setting: str) -> BodyTooLarge:
    details: JsonObject = {"limit": limit}
    if not setting:
        return BodyTooLarge(f"the request body is larger than {limit} bytes", details=details)
    return BodyTooLarge(
        f"the request body is larger than {limit} bytes; the operator of this gateway can raise"
        f" {setting}",
        details={**details, "setting": setting},
    )
