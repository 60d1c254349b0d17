"""HTTP/1.1 to a server that is called often: kept connections, one write for each request.

A transport for httpx2 in place of its own, which goes through three libraries: that took three
quarters of the time of a call to a remote agent. `httptools` parses responses, as it parses the
requests to this gateway. There are no proxies, redirects, upgrades or HTTP/2 here.
"""

import asyncio
import ipaddress
import re
import select
import socket
import ssl
import sys
from asyncio.staggered import staggered_race
from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, NamedTuple

import httptools
import httpx2

from openclaw_a2a.net.http_client import DEFAULT_PORTS, describe_connect_failure

_KEEP_S = 5.0
"""How long a connection is kept without a request."""
_MAX_HEAD_BYTES = 100 * 1024
_BUFFER_BYTES = 256 * 1024
"""How much of a body is received before it is read."""
_CHUNK_BYTES = 32 * 1024
_FRAMING_FACTOR = 9
"""A chunk of one byte takes six bytes. More than nine bytes per body byte is an attack."""
_NEXT_ADDRESS_S = 0.25
"""How long one address of a host is tried before the next is tried concurrently."""
_HEADERS = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t\x20-\x7e\x80-\xff]*\r\n)+")
_INTERIM = 200
_WITHOUT_BODY = frozenset({204, 304})


class _Origin(NamedTuple):
    scheme: str
    host: str
    port: int


class Http1Transport(httpx2.AsyncBaseTransport):
    """Sends requests over at most `max_connections` connections.

    Requests raise the errors of httpx2, and use its timeouts except the one for writing.
    """

    def __init__(self, tls: ssl.SSLContext, *, max_connections: int) -> None:
        self._tls = tls
        self._max_connections = max_connections
        self._open: set[_Connection] = set()
        self._connecting = 0
        self._idle: dict[_Connection, None] = {}
        """The longest unused first."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        """Requests that wait for a free connection."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request; the response as soon as its head is there."""
        url = request.url
        if url.scheme not in DEFAULT_PORTS:
            raise httpx2.UnsupportedProtocol(f"there is no HTTP over {url.scheme!r}")
        host = url.raw_host.decode("ascii").strip("[]")
        origin = _Origin(url.scheme, host, url.port or DEFAULT_PORTS[url.scheme])
        sent = _encode(request, await request.aread())
        timeouts: dict[str, float | None] = request.extensions.get("timeout", {})
        connection = (
            self._find_idle(origin)
            or await self._wait_for_room(origin, timeouts.get("pool"))
            or await self._connect(origin, timeouts)
        )
        try:
            connection.send(sent, has_no_body=request.method == "HEAD")
            await connection.wait_head(timeouts.get("read"))
        except BaseException:  # also when the caller is cancelled
            self._release(connection, may_keep=False)
            raise
        body = _Body(connection, timeouts.get("read"), self._release)
        return httpx2.Response(
            connection.status,
            headers=connection.headers,
            stream=body,
            extensions={"http_version": b"HTTP/1.1", "reason_phrase": connection.reason},
        )

    async def aclose(self) -> None:
        """Close all connections."""
        self._idle.clear()
        for connection in list(self._open):
            connection.abort()

    # ---------------------------------------------------------------- connections

    def _find_idle(self, origin: _Origin) -> "_Connection | None":
        latest = asyncio.get_running_loop().time() - _KEEP_S
        # The most recently used one first: the others can expire.
        for connection in reversed(list(self._idle)):
            if connection.unused_since < latest:
                self._close_idle(connection)
            elif connection.origin == origin:
                del self._idle[connection]
                if not connection.is_readable:
                    return connection
                connection.abort()  # the server has ended it
        return None

    def _close_idle(self, connection: "_Connection") -> None:
        del self._idle[connection]
        self._open.discard(connection)
        connection.abort()

    async def _connect(self, origin: _Origin, timeouts: dict[str, float | None]) -> "_Connection":
        loop = asyncio.get_running_loop()
        self._connecting += 1
        try:
            async with asyncio.timeout(timeouts.get("connect")):
                sock = await _open_socket(origin.host, origin.port)
                tls = self._tls if origin.scheme == "https" else None
                if tls is not None:
                    tls.set_alpn_protocols(["http/1.1"])
                try:
                    _, connection = await loop.create_connection(
                        partial(_Connection, origin, self._forget),
                        sock=sock,
                        ssl=tls,
                        server_hostname=origin.host if tls else None,
                    )
                except BaseException:
                    sock.close()
                    raise
            self._open.add(connection)
        except TimeoutError as error:
            text = f"{origin.host} took no connection in time"
            raise httpx2.ConnectTimeout(text) from error
        except (OSError, ValueError) as error:
            raise httpx2.ConnectError(describe_connect_failure(error)) from error
        finally:
            self._connecting -= 1
            if len(self._open) + self._connecting < self._max_connections:
                self._wake()
        return connection

    async def _wait_for_room(
        self, origin: _Origin, timeout_s: float | None
    ) -> "_Connection | None":
        """Wait until a connection may be made; or one to the same server that has become free."""
        try:
            async with asyncio.timeout(timeout_s):
                while len(self._open) + self._connecting >= self._max_connections:
                    if (free := self._find_idle(origin)) is not None:
                        return free
                    if self._idle:  # to another address
                        self._close_idle(next(iter(self._idle)))
                        continue
                    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._waiting.append(waiter)
                    try:
                        await waiter
                    except asyncio.CancelledError:
                        if waiter.done() and not waiter.cancelled():
                            self._wake()  # the room that it was given
                        raise
        except TimeoutError as error:
            text = f"all {self._max_connections} connections are in use"
            raise httpx2.PoolTimeout(text) from error
        return None

    def _release(self, connection: "_Connection", *, may_keep: bool = True) -> None:
        """Release the connection of a response that was read, or is read no further."""
        if may_keep and connection.can_be_kept:
            connection.unused_since = asyncio.get_running_loop().time()
            self._idle[connection] = None
        else:
            connection.abort()
            self._open.discard(connection)
        self._wake()

    def _forget(self, connection: "_Connection") -> None:
        """A connection is closed."""
        self._open.discard(connection)
        self._idle.pop(connection, None)
        self._wake()

    def _wake(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return


async def _open_socket(host: str, port: int) -> socket.socket:
    """A socket that is connected to the first of the addresses of a host that accepts."""
    loop = asyncio.get_running_loop()
    try:
        is_v6 = ipaddress.ip_address(host).version == 6
        family = socket.AF_INET6 if is_v6 else socket.AF_INET
        addresses: list[tuple[int, Any]] = [(family, (host, port))]
    except ValueError:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [(one[0], one[4]) for one in found]

    async def connect(family: int, address: Any) -> socket.socket:
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(sock, address)
        except BaseException:
            sock.close()
            raise
        return sock

    if len(addresses) == 1:
        return await connect(*addresses[0])
    attempts = [partial(connect, *one) for one in addresses]
    connected, _, failures = await staggered_race(attempts, _NEXT_ADDRESS_S)
    if connected is None:
        raise next((one for one in failures if one is not None), OSError(f"{host} has no address"))
    return connected


def _encode(request: httpx2.Request, body: bytes) -> bytes:
    """The request as it is sent. Raises: LocalProtocolError."""
    raw = request.headers.raw
    headers = b"".join([b"%b: %b\r\n" % header for header in raw])
    # A value with a line end in it would be a header, or a request, of its own.
    if headers.count(b"\r\n") != len(raw) or not _HEADERS.fullmatch(headers):
        raise httpx2.LocalProtocolError("a header has a name or a value that HTTP does not allow")
    line = b"%b %b HTTP/1.1\r\n" % (request.method.encode("ascii"), request.url.raw_path)
    return b"".join((line, headers, b"\r\n", body))


class _Body(httpx2.AsyncByteStream):
    """The body of a response, as it comes. It has to be closed: then its connection is free."""

    def __init__(
        self,
        connection: "_Connection",
        timeout_s: float | None,
        release: "Callable[[_Connection], None]",
    ) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._release: Callable[[_Connection], None] | None = release

    # No generator: one that is left before its end is closed later, in a task of its own.
    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if (chunk := await self._connection.read(self._timeout_s)) is None:
            raise StopAsyncIteration
        return chunk

    async def aclose(self) -> None:
        if self._release is not None:
            self._release(self._connection)
            self._release = None


class _Connection(asyncio.Protocol):
    """One connection: a request at a time, and its response."""

    def __init__(self, origin: _Origin, on_closed: "Callable[[_Connection], None]") -> None:
        self.origin = origin
        self.unused_since = 0.0
        self.is_closed = False
        self.status = 0
        self.reason = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self._on_closed = on_closed
        self._transport: asyncio.Transport
        self._parser: httptools.HttpResponseParser | None = None
        self._has_no_body = False
        self._has_head = False
        self._ends_with_connection = False
        self._is_complete = True
        self._keeps_alive = True
        self._head_bytes = 0
        self._body_bytes = 0
        self._framing_bytes = 0
        self._chunks: deque[bytes] = deque()
        self._buffered = 0
        self._is_paused = False
        self._failure: httpx2.TransportError | None = None
        self._waiter: asyncio.Future[None] | None = None

    # ---------------------------------------------------------------- what the transport does

    @property
    def can_be_kept(self) -> bool:
        """True when the next request may be sent on it."""
        is_done = self._is_complete and self._failure is None and not self._chunks
        return is_done and self._keeps_alive and not self._transport.is_closing()

    @property
    def is_readable(self) -> bool:
        """True when the server has sent unrequested bytes or closed the connection."""
        if self.is_closed or self._transport.is_closing():
            return True
        number = self._transport.get_extra_info("socket").fileno()
        if sys.platform == "win32":
            return bool(select.select([number], [], [], 0)[0])
        poll = select.poll()  # `select` has no large numbers
        poll.register(number, select.POLLIN)
        return bool(poll.poll(0))

    def send(self, request: bytes, *, has_no_body: bool) -> None:
        """Send a request; its response is read with `wait_head` and `read`."""
        self._parser = httptools.HttpResponseParser(self)
        self._has_no_body = has_no_body
        self._has_head = self._is_complete = self._ends_with_connection = False
        self._head_bytes = self._body_bytes = self._framing_bytes = 0
        self._transport.write(request)

    async def wait_head(self, timeout_s: float | None) -> None:
        """Wait for status and headers."""
        while not self._has_head:
            await self._wait(timeout_s)

    async def read(self, timeout_s: float | None) -> bytes | None:
        """The next bytes of the body; None at its end."""
        while not self._chunks:
            if self._is_complete:
                return None
            await self._wait(timeout_s)
        chunk = self._chunks.popleft()
        self._buffered -= len(chunk)
        if self._is_paused and self._buffered < _BUFFER_BYTES:
            self._is_paused = False
            self._transport.resume_reading()
        return chunk

    def abort(self) -> None:
        """Close it at once; what is not complete stays so."""
        self._fail(httpx2.ReadError("the connection was closed on this side"))

    async def _wait(self, timeout_s: float | None) -> None:
        if self._failure is not None:
            raise self._failure
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            if timeout_s is None:
                await self._waiter
            else:
                async with asyncio.timeout(timeout_s):
                    await self._waiter
        except TimeoutError as error:
            raise httpx2.ReadTimeout("the server did not answer in time") from error
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, failure: httpx2.TransportError) -> None:
        if self._failure is None and not self._is_complete:
            self._failure = failure
            self._wake()
        self._transport.abort()

    # ---------------------------------------------------------------- called by the event loop

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - a socket has this transport
        """A server accepted the connection."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Something of a response came."""
        if self._is_complete or self._parser is None:
            self._transport.abort()  # nobody asked for it
            return
        self._head_bytes += len(data)
        had_head, had_body = self._has_head, self._body_bytes
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(httpx2.RemoteProtocolError("the server switched to another protocol"))
        except httptools.HttpParserError as error:
            self._fail(httpx2.RemoteProtocolError(f"the answer is not HTTP: {error}"))
        if not self._has_head and self._head_bytes > _MAX_HEAD_BYTES:
            self._fail(httpx2.RemoteProtocolError("the head of the answer has no end"))
        if had_head:
            # Bytes that are no body and out of proportion to it: chunk extensions, trailers.
            body = _FRAMING_FACTOR * (self._body_bytes - had_body)
            self._framing_bytes = max(0, self._framing_bytes + len(data) - body)
            if self._framing_bytes > _MAX_HEAD_BYTES:
                self._fail(httpx2.RemoteProtocolError("the answer has trailers without end"))
        if self._buffered >= _BUFFER_BYTES and not self._is_paused and not self.is_closed:
            self._is_paused = True
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self.is_closed = True
        if self._ends_with_connection and exc is None and self._failure is None:
            self._is_complete = True
            self._wake()
        elif self._failure is None and not self._is_complete:
            text = "the server closed the connection before its answer was complete"
            self._failure = (
                httpx2.RemoteProtocolError(text) if exc is None else httpx2.ReadError(str(exc))
            )
            self._wake()
        self._on_closed(self)

    # ---------------------------------------------------------------- called by the parser

    def on_message_begin(self) -> None:
        """A response begins. One after the end of ours was not asked for."""
        if self._is_complete:
            self._keeps_alive = False
        else:
            self.headers, self.reason = [], b""

    def on_status(self, reason: bytes) -> None:
        """The words of the status."""
        self.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer, which is dropped."""
        if not self._has_head:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head of a response is complete."""
        parser = self._parser
        if self._is_complete or parser is None:
            return
        self.status = parser.get_status_code()
        if self.status < _INTERIM:  # another one follows
            return
        names = {name.lower() for name, _ in self.headers}
        is_framed = not names.isdisjoint((b"content-length", b"transfer-encoding"))
        self._ends_with_connection = not is_framed and self.status not in _WITHOUT_BODY
        self._keeps_alive = parser.should_keep_alive()
        self._has_head = True
        if self._has_no_body:
            self._is_complete, self._keeps_alive = True, False
        self._wake()

    def on_body(self, body: bytes) -> None:
        """Some of the body."""
        if self._has_head and not self._is_complete:
            self._body_bytes += len(body)
            # Small pieces: readers with a limit get all bytes up to it.
            for start in range(0, len(body), _CHUNK_BYTES):
                self._chunks.append(body[start : start + _CHUNK_BYTES])
            self._buffered += len(body)
            self._wake()

    def on_message_complete(self) -> None:
        """The end of a response."""
        if self._has_head:
            self._is_complete = True
            self._wake()
