"""HTTP/1.1 on one connection: requests in, responses out, one after the other and within limits.

`httptools` parses the head of a request; its body is cut out by its length here, so the bytes of
the next request are not touched before the response is complete. A connection is in one phase, and
each phase ends:

| phase | waits for | at most | then |
|---|---|---|---|
| HEAD | the head of a request, the first one from the start | `server.headerSeconds` | 408 |
| REQUEST | the application, which limits the time of a body | - | |
| IDLE | the next request | `server.idleSeconds` | closed |
| CLOSING | the client, to take what was written | `server.sendSeconds` | aborted |

The application gets requests as they are; one that has no method `respond` is called as an ASGI
server calls it. Uvicorn's `Server` accepts connections and stops them; its own protocol has none of
these limits, and two writes for each response.
"""

import asyncio
import math
import socket
import struct
from collections.abc import Callable, Coroutine
from contextlib import suppress
from enum import Enum, auto
from typing import Any, Literal, cast

import httptools
from uvicorn import Config
from uvicorn.server import ServerState

from openclaw_a2a.http.asgi import (
    JSON,
    NO_STORE,
    AsgiMessage,
    HttpRequest,
    Receive,
    Send,
    error_body,
    error_headers,
)
from openclaw_a2a.http.connection_table import PROGRESS_BYTES, ConnectionTable
from openclaw_a2a.http.exchange import STATUS_LINES, Exchange
from openclaw_a2a.http.request_head import NOT_HTTP, RequestHead
from openclaw_a2a.model.errors import (
    GatewayError,
    HeadersTooLarge,
    HeadersTooSlow,
    InvalidRequest,
    TooManyConnections,
)
from openclaw_a2a.protocol.errors import http_status

_LINGER_S = 2.0
"""How long a refused client may read the answer: what it sends meanwhile is dropped. A connection
that is closed with bytes unread is reset, and the client would not see the answer.
"""
_RESET = struct.pack("ii", 1, 0)
_BUFFER_BYTES = 64 * 1024
"""How much of a body, or of the requests that follow, is received before it is wanted."""
_HEAD_END = b"\r\n\r\n"
_FRAMING_FACTOR = 9
"""A chunk of one byte comes in six; beyond nine bytes for each of the body it is no body."""
AsgiApplication = Callable[[AsgiMessage, Receive, Send], Coroutine[Any, Any, None]]
Respond = Callable[[HttpRequest], Coroutine[Any, Any, None]]
# In an own parser behind a head of ours: that of the request may have ended in an upgrade.
_CHUNKED_HEAD = b"POST / HTTP/1.1\r\nhost: chunked\r\ntransfer-encoding: chunked\r\n\r\n"


class ConnectionPhase(Enum):
    """What a connection waits for."""

    HEAD = auto()
    REQUEST = auto()
    IDLE = auto()
    CLOSING = auto()


class _ChunkedBody:
    """A body whose end its parser finds."""

    __slots__ = ("_framing", "_last", "_most_framing", "_parser", "_received", "is_complete")

    def __init__(self, most_framing: int) -> None:
        self._received: list[bytes] = []
        self._last = b""  # bytes: an end may begin in one packet and end in the next
        self._framing = 0
        self._most_framing = most_framing
        self.is_complete = False
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(_CHUNKED_HEAD)

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """The bytes of the body in what was received, and what follows its end.

        Raises: HeadersTooLarge, HttpParserError.
        """
        # A parser does not say where a request ends, and it would begin with the next one. With an
        # empty line each of them ends, so it gets no more than that at a time.
        known, before, position = self._last + data, len(self._last), 0
        while not self.is_complete and position < len(data):
            found = known.find(_HEAD_END, max(0, before + position - len(_HEAD_END) + 1))
            end = len(data) if found < 0 else found + len(_HEAD_END) - before
            self._parser.feed_data(data[position:end])
            position = end
        self._last = known[1 - len(_HEAD_END) :]
        body = b"".join(self._received)
        self._received.clear()
        # What is neither body nor in proportion to it: extensions, trailers.
        self._framing += position - _FRAMING_FACTOR * len(body)
        if self._framing > self._most_framing:
            raise _too_large("what is around the body", self._most_framing)
        return body, data[position:]

    def on_body(self, body: bytes) -> None:
        """Called by the parser."""
        self._received.append(body)

    def on_message_complete(self) -> None:
        """Called by the parser."""
        self.is_complete = True


class ServerProtocol(asyncio.Protocol):
    """One connection of a `ConnectionTable`."""

    __slots__ = (
        "_body_left",
        "_chunked",
        "_connections",
        "_empty",
        "_exchange",
        "_is_reading_paused",
        "_received",
        "_refusal",
        "_request_head",
        "_respond",
        "_searched",
        "_unsent_at_close",
        "client",
        "client_host",
        "deadline",
        "drained",
        "held",
        "loop",
        "network",
        "phase",
        "scheme",
        "server_port",
        "server_state",
        "table",
        "transport",
        "unsent",
    )

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        table: ConnectionTable,
    ) -> None:
        del app_state  # that of the lifespan, which is off
        self.table = table
        self.server_state = server_state
        # Typed for uvicorn's own protocols; all that is called is `shutdown`.
        self._connections = cast("set[ServerProtocol]", server_state.connections)
        self.loop = _loop or asyncio.get_running_loop()
        self._respond = _find_respond(cast("Any", config.loaded_app))
        self.transport: asyncio.Transport
        self.client: tuple[str, int] | None = None
        self.client_host: str | None = None
        self.server_port: int | None = None
        self.scheme: Literal["http", "https"] = "http"
        self.network = ""
        self.phase = ConnectionPhase.HEAD
        self.deadline = math.inf
        self.unsent = self.held = 0
        self.drained: asyncio.Future[None] | None = None
        """Set while the client takes less than is written: done when it has caught up."""
        self._unsent_at_close = 0
        self._received = b""
        """What is not parsed yet: a part of a head, or what follows the request that is served."""
        self._searched = 0
        """So many bytes of it hold no end of a head."""
        self._request_head: RequestHead | None = None
        """The last head: most clients send the same one again, which is not parsed again."""
        self._empty = 0
        """The bytes of empty lines before the head."""
        self._exchange: Exchange | None = None
        self._body_left = 0
        self._chunked: _ChunkedBody | None = None
        self._is_reading_paused = False
        self._refusal: GatewayError | None = None

    # ------------------------------------------------------------------ the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - a socket has this transport
        """Called by the event loop: a client has connected."""
        self.transport = transport
        self.client = _address(transport, "peername")
        self.client_host = self.client[0] if self.client else None
        server = self.server
        self.server_port = server[1] if server else None
        self.scheme = "https" if transport.get_extra_info("sslcontext") else "http"
        try:
            self.table.admit(self, transport)
        except TooManyConnections as error:
            if self.table.keep_refused(self):
                self._refuse(error)
            else:
                self._report(error)
                transport.abort()
            return
        self._connections.add(self)
        self._wait(ConnectionPhase.HEAD, self.table.server.header_seconds)

    @property
    def server(self) -> tuple[str, int] | None:
        """The address to which the client has connected."""
        return _address(self.transport, "sockname")

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop: the connection is closed."""
        del exc
        self.table.remove(self)
        self._connections.discard(self)
        self.phase, self.deadline = ConnectionPhase.CLOSING, math.inf
        self._received = b""
        if self._exchange is not None:
            self._exchange.disconnect()
        self._end_pause()

    def pause_writing(self) -> None:
        """Called by the transport: its buffer is full."""
        if self.drained is None:
            self.drained = self.loop.create_future()
        self.table.block(self)

    def resume_writing(self) -> None:
        """Called by the transport: its buffer has room again."""
        self._end_pause()
        self.table.unblock(self)

    async def wait_drained(self) -> None:
        """Wait until the client has taken what was written, or is gone."""
        if self.drained is not None:
            # Shielded: a cancelled waiter must not cancel the shared future.
            await asyncio.shield(self.drained)

    def _end_pause(self) -> None:
        if self.drained is not None:
            self.drained.set_result(None)
            self.drained = None

    def _pause_reading(self) -> None:
        if not self._is_reading_paused:
            self._is_reading_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """More of the request is wanted."""
        if self._is_reading_paused:
            self._is_reading_paused = False
            self.transport.resume_reading()

    @property
    def is_waiting(self) -> bool:
        """True while it waits for a request of its client."""
        return self.phase is ConnectionPhase.HEAD or self.phase is ConnectionPhase.IDLE

    @property
    def is_answering(self) -> bool:
        """True while a request is served."""
        return self.phase is ConnectionPhase.REQUEST

    def held_bytes(self) -> int:
        """What the application keeps in memory for this client, to be sent next."""
        return 0 if self._exchange is None else self._exchange.unsent

    def expire(self, now: float) -> None:
        """The deadline of the phase has passed."""
        if self.phase is ConnectionPhase.CLOSING:
            unsent = self.transport.get_write_buffer_size()
            if 0 < unsent <= self._unsent_at_close - PROGRESS_BYTES:
                self.close(now)
            else:
                self.abort()
        elif self._received:
            seconds = self.table.server.header_seconds
            self._refuse(
                HeadersTooSlow(
                    f"the head of the request did not arrive within {seconds:g} seconds"
                    " (server.headerSeconds); send it again",
                    details={"seconds": seconds, "setting": "server.headerSeconds"},
                )
            )
        else:
            self.close(now)

    def shutdown(self) -> None:
        """Called by uvicorn when the server stops: the response under way is the last one."""
        if self._exchange is not None:
            self._exchange.is_kept_alive = False
        else:
            self.close(self.loop.time())

    def abort(self) -> None:
        """Close the connection at once, and leave nothing of it with the system either."""
        self.table.remove(self)
        # Otherwise the system keeps what it has not sent, megabytes, and goes on trying.
        # A client may have left since it was to be cut off: then the socket has no number any more.
        with suppress(OSError, ValueError):
            connection = self.transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()

    def close(self, now: float) -> None:
        """Close it when everything was sent; a client that does not read is not waited for."""
        self.transport.close()
        self._unsent_at_close = self.transport.get_write_buffer_size()
        self.phase, self.deadline = ConnectionPhase.CLOSING, now + self.table.server.send_seconds
        if not self._unsent_at_close and self.scheme == "http":
            # Nothing is waited for. Its client may connect again before `connection_lost`.
            self.table.remove(self)

    def _wait(self, phase: ConnectionPhase, seconds: float) -> None:
        self.phase, self.deadline = phase, self.loop.time() + seconds

    # ------------------------------------------------------------------ what is received

    def data_received(self, data: bytes) -> None:
        """Called by the event loop. Nearly always one whole request."""
        if self._refusal is None and self.phase is not ConnectionPhase.CLOSING:
            self._received = self._received + data if self._received else data
            # Nearly always that leaves nothing to read.
            if self._exchange is not None or (self._read_head() and self._received):
                self._read()

    def _read(self) -> None:
        """Read as far as possible: bodies to their request, heads when it is their turn."""
        while self._received and self._refusal is None:
            exchange = self._exchange
            if exchange is None:
                if not self._read_head():
                    return
            elif exchange.has_more:
                self._read_body(exchange)
            else:
                # Not parsed before its turn: a small request is a large object.
                if len(self._received) > _BUFFER_BYTES:
                    self._pause_reading()
                return

    def _read_body(self, exchange: Exchange) -> None:
        received = self._received
        if self._chunked is not None:
            try:
                body, self._received = self._chunked.feed(received)
            except HeadersTooLarge as error:
                self._refuse(error)
                return
            except httptools.HttpParserError:
                self._refuse(InvalidRequest(NOT_HTTP))
                return
            has_more = not self._chunked.is_complete
        else:
            body, self._received = received[: self._body_left], received[self._body_left :]
            self._body_left -= len(body)
            has_more = self._body_left > 0
        if body or not has_more:
            exchange.add_body(body, has_more=has_more)
        if has_more and sum(map(len, exchange.body)) > _BUFFER_BYTES:
            self._pause_reading()

    def _read_head(self) -> bool:
        """Begin the next request; False when its head is not complete, or wrong."""
        received, most = self._received, self.table.limits.header_bytes
        if received[0] < 0x21:  # RFC 9112, 2.2: empty lines before a request are ignored
            self._received = received.lstrip(b"\r\n")
            self._empty += len(received) - len(self._received)
            received = self._received
            if self._empty >= most:
                self._refuse(_too_large("the head of the request", most))
            if self._empty >= most or not received:
                return False
        end = received.find(_HEAD_END, self._searched, most)
        if end < 0:
            self._wait_for_head(received, most)
            return False
        head, self._received = received[: end + len(_HEAD_END)], received[end + len(_HEAD_END) :]
        self._searched = self._empty = 0
        request = self._request_head
        if request is None or request.data != head:
            known = None if request is None else request.with_other_length(head)
            try:
                request = known or RequestHead(head, self.table.limits.headers)
            except (InvalidRequest, HeadersTooLarge) as error:
                self._refuse(error)
                return False
            self._request_head = request
        self._begin_request(request)
        return True

    def _wait_for_head(self, received: bytes, most: int) -> None:
        self._searched = max(0, len(received) - len(_HEAD_END) + 1)
        if len(received) >= most:
            self._refuse(_too_large("the head of the request", most))
        elif not received[:1].isupper() or received.count(b"\n") != received.count(b"\r\n"):
            self._refuse(InvalidRequest(NOT_HTTP))  # it would never have an end
        elif self.phase is ConnectionPhase.IDLE:
            self._wait(ConnectionPhase.HEAD, self.table.server.header_seconds)

    def _begin_request(self, head: RequestHead) -> None:
        exchange = self._exchange = Exchange(self, head)
        self._body_left = size = head.body_size
        if head.is_chunked:
            self._chunked = _ChunkedBody(self.table.limits.header_bytes)
        elif 0 < size <= len(self._received):  # nearly always all of it is there
            body, self._received = self._received[:size], self._received[size:]
            exchange.body, exchange.has_more = [body], False
        self.phase, self.deadline = ConnectionPhase.REQUEST, math.inf
        # Not `create_task` of the loop, which makes up a name for it.
        task = asyncio.Task(self._respond(exchange), loop=self.loop, name="request")
        self.server_state.tasks.add(task)
        task.add_done_callback(exchange.on_application_done)

    # ------------------------------------------------------------------ the end of a request

    def on_response_complete(self, exchange: Exchange) -> None:
        """The last byte of a response was written."""
        self.server_state.total_requests += 1
        if self._exchange is not exchange:
            return
        self._exchange = self._chunked = None
        # Where the next request begins is known only when this one was received to its end.
        if not exchange.is_kept_alive or exchange.has_more or self.transport.is_closing():
            self.close(self.loop.time())
            return
        self.phase = ConnectionPhase.IDLE
        self.deadline = self.loop.time() + self.table.server.idle_seconds
        if self._is_reading_paused:
            self.resume_reading()
        if self._received:
            self._read()

    # ------------------------------------------------------------------ refusals

    def _refuse(self, error: GatewayError) -> None:
        """Answer with an error and close."""
        self._refusal = error
        self._received = b""
        self._report(error)
        exchange = self._exchange
        if self.transport.is_closing():
            return
        self.resume_reading()  # what still comes is dropped, so that the answer can be read
        if exchange is not None:
            # The application waits for a body that is not going to come.
            exchange.disconnect()
        if exchange is None or exchange.is_unanswered:
            self.transport.write(self._response(error))
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self._wait(ConnectionPhase.CLOSING, _LINGER_S)
        else:  # TLS
            self.close(self.loop.time())

    def _report(self, error: GatewayError) -> None:
        is_full = isinstance(error, TooManyConnections)
        event = "http.connection_refused" if is_full else "http.request_malformed"
        client = self.client[0] if self.client else None
        self.table.report(event, reason=error.message, code=error.code, client=client)

    def _response(self, error: GatewayError) -> bytes:
        body = error_body(error, show_faults=False)
        headers = [
            *self.server_state.default_headers,
            (b"content-type", JSON),
            (b"content-length", b"%d" % len(body)),
            NO_STORE,
            *error_headers(error),
            (b"connection", b"close"),
        ]
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        return STATUS_LINES[http_status(error, for_rpc=False)] + lines + b"\r\n" + body


def _find_respond(app: Any) -> Respond:
    """What answers a request of this application."""
    respond: Respond | None = getattr(app, "respond", None)
    if respond is not None:
        return respond
    call = cast("AsgiApplication", app)
    return lambda request: call(request.scope, request.receive, request.send)


def _address(transport: asyncio.Transport, name: str) -> tuple[str, int] | None:
    """An end of the connection; None where it has no address, as a Unix socket."""
    found: Any = transport.get_extra_info(name)
    return (str(found[0]), int(found[1])) if found and not isinstance(found, str | bytes) else None


def _too_large(what: str, most: int) -> HeadersTooLarge:
    return HeadersTooLarge(
        f"{what} is larger than {most} bytes (limits.headerBytes)",
        details={"limit": most, "setting": "limits.headerBytes"},
    )
