"""What a connection may cost: limits and deadlines beside and around the requests on it.

Uvicorn parses requests and runs the application. This module decides who may connect, how long and
how large the head of a request may be, and how long a client may leave a response unread. A
connection is in one phase, and each phase ends:

| phase | waits for | at most | then |
|---|---|---|---|
| HEAD | the head of a request, the first one from the start | `server.headerSeconds` | 408 |
| REQUEST | the application, which limits the time of a body | - | |
| REQUEST, answered | the next request | `server.idleSeconds` | closed |
| CLOSING | the client, to take what was written | `server.sendSeconds` | aborted |

One timer looks at all connections, beside uvicorn's for those that are idle. In every phase a
client that takes nothing of what was written for `server.sendSeconds` is cut off.
"""

import asyncio
import math
import os
import socket
import struct
import sys
from contextlib import suppress
from enum import Enum, auto
from operator import attrgetter
from typing import Any

import httptools
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.protocols.utils import get_remote_addr
from uvicorn.server import ServerState

from openclaw_a2a.http.asgi import JSON, NO_STORE, EventBursts, error_body, error_headers
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import (
    GatewayError,
    HeadersTooLarge,
    HeadersTooSlow,
    InvalidRequest,
    TooManyConnections,
)
from openclaw_a2a.model.ids import Json
from openclaw_a2a.model.url_policy import client_network
from openclaw_a2a.protocol.errors import http_status
from openclaw_a2a.settings import Limits, ServerSettings

log = get_logger(__name__)

REMOTE_ADDRESS_CONNECTIONS = 256
"""Connections of one address when the settings do not say; this machine has no such limit then."""

_SWEEP_S = 1.0
_LINGER_S = 2.0
"""How long a refused client may read the answer: what it sends meanwhile is dropped. A connection
that is closed with bytes unread is reset, and the client would not see the answer.
"""
_MOST_REFUSED = 128  # connections past the limit that are answered at the same time
_EVICTED_SHARE = 64
_EXPIRED_AT_ONCE = 100
_EXPIRED_PAUSE_S = 0.005  # so that requests are served between thousands that expire together
_SPARE_FILES = 2048 + 64
"""Kept free: for clients that come at once, as many as uvicorn lets wait to be accepted, and for
the store, agents and requests of our own. Past the limit of the system all that wait are dropped.
"""
_PROGRESS_BYTES = 64 * 1024

_RESET = struct.pack("ii", 1, 0)
_SLICE = 64 * 1024
_SMALL = 4096
_HEAD_END = b"\r\n\r\n"
_FRAMING_FACTOR = 9
"""A chunk of one byte comes in six; beyond nine bytes for each of the body it is no body."""

_HOP_HEADERS = (b"connection", b"upgrade", b"http2-settings")


class ConnectionPhase(Enum):
    """What a connection waits for."""

    HEAD = auto()
    REQUEST = auto()
    CLOSING = auto()


class ConnectionTable:
    """The connections of one server: who may connect, and what has taken too long."""

    def __init__(self, limits: Limits, server: ServerSettings) -> None:
        self.limits = limits
        self.server = server
        self._open: set[ServerProtocol] = set()
        self._refused: set[ServerProtocol] = set()
        self._per_network: dict[str, int] = {}
        # Insertion order is the order in which they stopped to read.
        self._blocked: dict[ServerProtocol, float] = {}
        self._unsent = 0  # at most: of a connection what it was when it stopped to read
        self._timer: asyncio.TimerHandle | None = None
        shortest = min(server.header_seconds, server.idle_seconds, server.send_seconds)
        self._sweep_s = max(0.05, min(_SWEEP_S, shortest / 4))
        self._bursts = EventBursts()

    def admit(self, connection: "ServerProtocol", transport: asyncio.Transport) -> None:
        """Count a new connection, and make room for it. Raises: TooManyConnections."""
        network, is_local = client_network(connection.client[0] if connection.client else "")
        limit = self.limits.per_address_connections
        if limit is None and not is_local:
            limit = REMOTE_ADDRESS_CONNECTIONS
        if limit is not None and self._per_network.get(network, 0) >= limit:
            raise TooManyConnections(
                f"{limit} connections from your address are open (limits.perAddressConnections);"
                " close some, or try again later"
            )
        reason = self._shortage(transport)
        if reason and not self._evict(reason):
            raise TooManyConnections(f"{reason}; try again later")
        connection.network = network
        self._per_network[network] = self._per_network.get(network, 0) + 1
        self._open.add(connection)
        self._start_timer(connection.loop)

    def may_answer(self, connection: "ServerProtocol") -> bool:
        """True when a refused connection may stay for a moment, to be told why."""
        if len(self._refused) >= _MOST_REFUSED:
            return False
        self._refused.add(connection)
        self._start_timer(connection.loop)
        return True

    def remove(self, connection: "ServerProtocol") -> None:
        """A connection is closed, or as good as that."""
        if connection in self._blocked:
            self.unblock(connection)
        self._refused.discard(connection)
        if connection not in self._open:
            return
        self._open.discard(connection)
        left = self._per_network.pop(connection.network) - 1
        if left:
            self._per_network[connection.network] = left

    def block(self, connection: "ServerProtocol") -> None:
        """A client reads slower than is written to it."""
        size = connection.transport.get_write_buffer_size()
        self._blocked[connection] = connection.loop.time() + self.server.send_seconds
        connection.unsent = size
        self._unsent += size
        if size > self.limits.connection_unsent_bytes:
            self._cut(connection, "limits.connectionUnsentBytes")
        elif self._unsent > self.limits.unsent_bytes:
            self._cut_longest_blocked()

    def unblock(self, connection: "ServerProtocol") -> None:
        """A client has taken what was written to it, or is gone."""
        if self._blocked.pop(connection, None) is not None:
            self._unsent -= connection.unsent

    def report(self, event: str, *, reason: str, **fields: Json) -> None:
        """Log the first of many equal events, and later how many there were."""
        self._bursts.report(log.warning, event, {"reason": reason}, **fields)

    def _shortage(self, transport: asyncio.Transport) -> str:
        """Why there is no room for another connection; empty when there is."""
        if len(self._open) >= self.limits.connections:
            return f"{self.limits.connections} connections are open (limits.connections)"
        return _file_shortage(transport.get_extra_info("socket").fileno())

    def _evict(self, reason: str, share: int = _EVICTED_SHARE) -> bool:
        """Close some connections without a request, the longest waiting; False without any."""
        waiting = [one for one in self._open if one.phase is ConnectionPhase.HEAD or one.is_idle]
        # Those without a whole request first: the others have no deadline here. Several at once:
        # every search looks at all.
        waiting.sort(key=attrgetter("deadline"))
        for connection in waiting[: max(1, len(waiting) // share)]:
            self.report("http.connections_evicted", reason=reason)
            connection.abort()
        return bool(waiting)

    def _cut_longest_blocked(self) -> None:
        self._unsent = 0
        for connection in self._blocked:
            connection.unsent = connection.transport.get_write_buffer_size()
            self._unsent += connection.unsent
        for connection in list(self._blocked):
            if self._unsent <= self.limits.unsent_bytes:
                return
            self._cut(connection, "limits.unsentBytes")

    def _cut(self, connection: "ServerProtocol", setting: str) -> None:
        client = connection.client[0] if connection.client else None
        self.report(
            "http.client_not_reading",
            reason=f"past {setting}",
            client=client,
            bytes=connection.unsent,
        )
        self.unblock(connection)
        # Later: the transport may be in the middle of a write.
        connection.loop.call_soon(connection.abort)

    def _start_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is None:
            self._timer = loop.call_later(self._sweep_s, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, now = None, loop.time()
        self._expire([one for one in (*self._open, *self._refused) if one.deadline <= now], loop)
        for connection in [one for one, deadline in self._blocked.items() if deadline <= now]:
            self._check_progress(connection, now)
        answering = (one for one in self._open if one.phase is ConnectionPhase.REQUEST)
        for connection in [one for one in answering if one.transport.is_closing()]:
            connection.close(now)
        # Not only when a client comes: without a free file none is accepted any more.
        reason = _file_shortage(_lowest_free_file())
        if reason and not self._evict(reason, share=4):
            self.report("http.connection_refused", reason=reason)
        if self._open or self._refused:
            self._start_timer(loop)

    def _expire(self, connections: list["ServerProtocol"], loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for connection in connections[:_EXPIRED_AT_ONCE]:
            # Of those that were put off, some have sent the rest of their request.
            if connection.deadline <= now:
                connection.expire(now)
        if len(connections) > _EXPIRED_AT_ONCE:
            rest = connections[_EXPIRED_AT_ONCE:]
            loop.call_later(_EXPIRED_PAUSE_S, self._expire, rest, loop)

    def _check_progress(self, connection: "ServerProtocol", now: float) -> None:
        size = connection.transport.get_write_buffer_size()
        if size > connection.unsent - _PROGRESS_BYTES:
            self._cut(connection, "server.sendSeconds")
            return
        # Moved to the end: the order is that of the deadlines.
        self.unblock(connection)
        self._blocked[connection] = now + self.server.send_seconds
        connection.unsent = size
        self._unsent += size


class ServerProtocol(HttpToolsProtocol):
    """Uvicorn's protocol within limits: one connection of a `ConnectionTable`."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        table: ConnectionTable,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.table = table
        self.phase = ConnectionPhase.HEAD
        self.deadline = math.inf
        self.network = ""
        self.unsent = 0
        self._unsent_at_close = 0
        self._most_head = table.limits.header_bytes
        self._head_left = self._most_head
        self._framing = 0
        # Received and not parsed: with every parsed request uvicorn keeps a queue entry.
        self._unparsed = bytearray()
        self._running: RequestResponseCycle | None = None
        self._refusal: GatewayError | None = None

    # ------------------------------------------------------------------ the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - as in uvicorn
        """Called by the event loop: a client has connected."""
        self.transport = transport
        self.client = get_remote_addr(transport)
        try:
            self.table.admit(self, transport)
        except TooManyConnections as error:
            if self.table.may_answer(self):
                self._refuse(error)
            else:
                self._report(error)
                transport.abort()
            return
        super().connection_made(transport)
        self._wait(ConnectionPhase.HEAD, self.table.server.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop: the connection is closed."""
        self.table.remove(self)
        self.phase, self.deadline = ConnectionPhase.CLOSING, math.inf
        # Uvicorn tells the newest request only, which may wait behind the one that runs.
        for cycle in (self._running, *(cycle for cycle, _ in self.pipeline)):
            if cycle is not None:
                _disconnect(cycle)
        self.pipeline.clear()
        self._unparsed.clear()
        self._unset_keepalive_if_required()  # after a reset uvicorn leaves it
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Called by the transport: its buffer is full."""
        super().pause_writing()
        self.table.block(self)

    def resume_writing(self) -> None:
        """Called by the transport: its buffer has room again."""
        super().resume_writing()
        self.table.unblock(self)

    def expire(self, now: float) -> None:
        """The deadline of the phase has passed."""
        if self.phase is ConnectionPhase.CLOSING:
            unsent = self.transport.get_write_buffer_size()
            if 0 < unsent <= self._unsent_at_close - _PROGRESS_BYTES:
                self.close(now)
            else:
                self.abort()
        elif self._is_in_head:
            seconds = self.table.server.header_seconds
            self._refuse(
                HeadersTooSlow(
                    f"the head of the request did not arrive within {seconds:g} seconds"
                    " (server.headerSeconds); send it again"
                )
            )
        else:
            self.close(now)

    def timeout_keep_alive_handler(self) -> None:
        """Called by uvicorn: there was no request for `server.idleSeconds`."""
        self.close(self.loop.time())

    @property
    def is_idle(self) -> bool:
        """True when it waits for the next request after a response."""
        return self.timeout_keep_alive_task is not None

    def abort(self) -> None:
        """Close the connection at once, and leave nothing of it with the system either."""
        self.table.remove(self)
        # Otherwise the system keeps what it has not sent, megabytes, and goes on trying.
        with suppress(OSError):
            connection = self.transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()

    def close(self, now: float) -> None:
        """Close it when everything was sent; a client that does not read is not waited for."""
        self.transport.close()
        self._unsent_at_close = self.transport.get_write_buffer_size()
        self.phase, self.deadline = ConnectionPhase.CLOSING, now + self.table.server.send_seconds

    def _wait(self, phase: ConnectionPhase, seconds: float) -> None:
        self.phase, self.deadline = phase, self.loop.time() + seconds

    @property
    def _is_in_head(self) -> bool:
        """True when a part of a request's head was received."""
        # Before the first request there is neither scope nor cycle.
        is_begun = self.scope and not (self.cycle and self.cycle.scope is self.scope)
        return bool(is_begun) or self._head_left < self._most_head

    # ------------------------------------------------------------------ what is received

    def data_received(self, data: bytes) -> None:
        """Called by the event loop. Nearly always one small request, which is parsed at once."""
        self._unset_keepalive_if_required()
        if (
            self._unparsed
            or self.pipeline
            or len(data) > _SMALL
            or len(data) >= self._head_left
            or data.count(_HEAD_END) > 1
        ):
            self._unparsed += data
            data = self._next_part()
        while data and self._refusal is None:
            cycle = self.cycle
            is_body = bool(cycle and cycle.more_body and not cycle.response_complete)
            size = len(cycle.body) if is_body else 0
            try:
                self.parser.feed_data(data)
            except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
                self._parser_stopped(error, data)
            else:
                if self.cycle is not cycle:
                    self._head_left, self._framing = self._most_head, 0
                    self.phase, self.deadline = ConnectionPhase.REQUEST, math.inf
                elif is_body:
                    # What is neither body nor in proportion to it: extensions, trailers.
                    self._framing += len(data) - _FRAMING_FACTOR * (len(cycle.body) - size)
                    if self._framing > self._most_head:
                        self._refuse(_too_large("what is around the body", self._most_head))
                else:
                    self._count_head(len(data))
            data = self._next_part() if self._unparsed else b""

    def _next_part(self) -> bytes:
        """What to parse next: one request at most, and of a head no more than is allowed.

        Nothing while a request waits for its turn: for each one that is parsed uvicorn keeps a
        queue entry, which is much larger than a small request.
        """
        running = self._running
        if self._refusal is not None:
            self._unparsed.clear()
        elif self.pipeline and running is not None:
            self.flow.pause_reading()
            running.on_response = self._continue
            return b""
        cycle = self.cycle
        if cycle and cycle.more_body and not cycle.response_complete:
            size = _SLICE
        else:
            end = self._unparsed.find(_HEAD_END, 0, self._head_left)
            size = self._head_left if end < 0 else end + len(_HEAD_END)
        part = bytes(self._unparsed[:size])
        del self._unparsed[:size]
        return part

    def _count_head(self, size: int) -> None:
        """More of a head has arrived, and not yet its end."""
        self._head_left -= size
        if self._head_left <= 0:
            self._refuse(_too_large("the head of the request", self._most_head))
        elif self.phase is ConnectionPhase.REQUEST and self.cycle.response_complete:
            self._wait(ConnectionPhase.HEAD, self.table.server.header_seconds)

    def _parser_stopped(self, error: Exception, part: bytes) -> None:
        if not isinstance(error, httptools.HttpParserUpgrade):
            self._refuse(InvalidRequest("this is not a valid HTTP/1.1 request"))
        elif self.scope["method"] == "CONNECT":
            self._refuse(InvalidRequest("this server is no proxy: it has no CONNECT"))
        elif self._get_upgrade() == b"websocket":
            self._refuse(InvalidRequest("this server has no WebSocket endpoints; use plain HTTP"))
        else:
            # RFC 9110, 7.8: a server may ignore an upgrade. The parser cannot: it would take the
            # body for another protocol. So it gets the request again, without the offer.
            rest = part[int(error.args[0]) :]
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            self._unparsed[:0] = self._head_without_upgrade() + rest
            self._head_left = self._most_head

    def _head_without_upgrade(self) -> bytes:
        connection = b", ".join(value for name, value in self.headers if name == b"connection")
        tokens = [token.strip() for token in connection.split(b",")]
        kept = [token for token in tokens if token.lower() in (b"close", b"keep-alive")]
        headers = [one for one in self.headers if one[0] not in _HOP_HEADERS]
        if kept:
            headers.append((b"connection", b", ".join(kept)))
        method, version = self.scope["method"], self.scope["http_version"]
        start = b"%b %b HTTP/%b\r\n" % (method.encode(), self.url, version.encode())
        return start + b"".join(b"%b: %b\r\n" % one for one in headers) + b"\r\n"

    def _should_upgrade(self) -> bool:
        """Called by uvicorn for a request with an upgrade: `_parser_stopped` deals with them."""
        return True

    # ------------------------------------------------------------------ requests

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Called by uvicorn when it is a request's turn."""
        headers, most = list(cycle.scope["headers"]), self.table.limits.headers
        if len(headers) > most:
            self.pipeline.clear()
            self._refuse(
                HeadersTooLarge(f"the request has more than {most} headers (limits.headers)")
            )
            return
        # A copy: trailers are added to the list that the parser fills, and they are no headers.
        cycle.scope["headers"] = headers
        if self._unparsed or self._refusal is not None:
            cycle.on_response = self._continue
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _continue(self) -> None:
        """A response is complete, and more was received than it was for."""
        self.on_response_complete()
        if self._refusal is not None:
            self._refuse(self._refusal)
        elif self._unparsed:
            self.data_received(b"")

    # ------------------------------------------------------------------ refusals

    def _refuse(self, error: GatewayError) -> None:
        """Answer with an error and close, as soon as the responses before it are complete."""
        if self._refusal is None:
            self._refusal = error
            self._unparsed.clear()
            self._report(error)
        running = self._running
        if running is not None and running.response_complete:
            running = None
        is_own_body = running is self.cycle and running is not None and running.more_body
        if running is not None and not is_own_body:
            running.on_response = self._continue
            return
        if self.pipeline or self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        if running is not None:
            # The application waits for a body that is not going to come.
            _disconnect(running)
        if running is None or not running.response_started:
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
        return STATUS_LINE[http_status(error, for_rpc=False)] + lines + b"\r\n" + body


def _file_shortage(number: int) -> str:
    """What is wrong when a new file has this number; empty when nothing is.

    A system gives the lowest free number: at a high one nearly all below it are taken.
    """
    if sys.platform == "win32":
        return ""
    import resource

    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY or number < most - min(_SPARE_FILES, most // 4):
        return ""
    return f"the process may have only {most} open files"


def _lowest_free_file() -> int:
    try:
        number = os.open(os.devnull, os.O_RDONLY)
    except OSError:
        return sys.maxsize
    os.close(number)
    return number


def _disconnect(cycle: RequestResponseCycle) -> None:
    """Let the application see that the client is gone."""
    if not cycle.response_complete:
        cycle.disconnected = True
        cycle.waiting_for_100_continue = False
    cycle.message_event.set()


def _too_large(what: str, most: int) -> HeadersTooLarge:
    return HeadersTooLarge(
        f"{what} is larger than {most} bytes (limits.headerBytes)", details={"limit": most}
    )
