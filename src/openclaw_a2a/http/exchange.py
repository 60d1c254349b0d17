"""One request on a connection of our own server, and its response."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING

from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.http.asgi import (
    HELD_BYTES,
    JSON,
    SMALL_BODY_BYTES,
    AsgiMessage,
    AsgiScope,
    Header,
    HeldExchange,
    HttpRequest,
)
from openclaw_a2a.http.request_head import RequestHead
from openclaw_a2a.http.request_limits import LARGE_BODY_BYTES, EventBursts, RequestBodies
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import GatewayError

if TYPE_CHECKING:
    from openclaw_a2a.http.server_protocol import ServerProtocol

log = get_logger(__name__)

STATUS_LINES = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode())
    for status in HTTPStatus
}
_DISCONNECT: AsgiMessage = {"type": "http.disconnect"}


_ASGI = {"version": "3.0", "spec_version": "2.3"}


class Exchange(HttpRequest):
    """One request and its response: what the application receives and sends."""

    # Every open stream has one for its whole duration, and a dictionary for so many attributes
    # would take more memory than the rest of the stream.
    __slots__ = (
        "_body_bytes_left",
        "_connection",
        "_head",
        "_is_body_delivered",
        "_is_chunked",
        "_request_head",
        "_scope",
        "_waiters",
        "_watches",
        "body",
        "bursts",
        "caller",
        "caller_agents",
        "client_address",
        "error_code",
        "expects_continue",
        "facts",
        "has_more",
        "has_started",
        "headers",
        "held_by",
        "is_body_asked",
        "is_body_read",
        "is_client_gone",
        "is_complete",
        "is_kept_alive",
        "is_silent",
        "is_started",
        "is_stream",
        "method",
        "on_refused",
        "path",
        "response_headers",
        "rest",
        "started_at",
        "status",
        "unsent",
        "wire",
    )

    def __init__(self, connection: "ServerProtocol", head: RequestHead) -> None:
        self._connection = connection
        self._request_head = head
        self.facts = head.facts
        self.method, self.path, self.headers = head.method, head.path, head.headers
        self.client_address = connection.client_host or ""
        self.response_headers: list[Header] = []
        self.started_at = time.monotonic()
        self.has_started = self.is_silent = self.is_stream = False
        self.is_body_asked = self.is_body_read = self._is_body_delivered = False
        self.status = self.unsent = 0
        self.error_code = ""
        self.caller: str | None = None
        self.caller_agents: frozenset[str] | None = None
        self.bursts: EventBursts | None = None
        self.held_by: RequestBodies | None = None
        self.on_refused: Callable[[GatewayError], None] | None = None
        self.wire: HeldExchange | None = None
        self.rest: Callable[[], Awaitable[None]] | None = None
        self._scope: AsgiScope | None = None
        self.is_client_gone = self.is_started = False
        self.is_complete = False
        """True when the response has been written."""
        self._head = b""
        """Of the response, until it is written with the first bytes of its body."""
        self._is_chunked = False
        self._body_bytes_left = 0
        """Of the response, as announced; -1: the end of the connection is that of the body."""
        self.body: list[bytes] = []
        self.has_more = head.is_chunked or head.body_size > 0
        """True until the body of the request has arrived."""
        self.expects_continue = head.expects_continue
        self.is_kept_alive = head.is_kept_alive
        self._waiters: list[asyncio.Future[None]] = []
        self._watches: list[asyncio.Future[None]] = []
        """Futures that are done when the client is gone, or has the whole response."""

    @property
    def query_string(self) -> bytes:
        """What follows the path."""
        return self._request_head.query

    @property
    def header_lines(self) -> list[Header]:
        """The headers as they came."""
        return self._request_head.lines

    def has_repeated(self, *names: bytes) -> bool:
        """True when one of these headers comes in several lines."""
        return self._request_head.has_repeated and super().has_repeated(*names)

    @property
    def client_host(self) -> str | None:
        """The address of the client."""
        return self._connection.client_host

    @property
    def server_port(self) -> int | None:
        """The port at which the request came in."""
        return self._connection.server_port

    @property
    def http_version(self) -> str:
        """The version of HTTP."""
        return self._request_head.version

    @property
    def scheme(self) -> str:
        """`http` or `https`."""
        return self._connection.scheme

    @property
    def scope(self) -> AsgiScope:
        """The request as ASGI describes it."""
        if self._scope is None:
            head, connection = self._request_head, self._connection
            self._scope = {
                "type": "http",
                "asgi": _ASGI,
                "http_version": head.version,
                "server": connection.server,
                "client": connection.client,
                "scheme": connection.scheme,
                "method": head.method,
                "root_path": "",
                "path": head.path,
                "raw_path": head.raw_path,
                "query_string": head.query,
                "headers": head.lines,
            }
        return self._scope

    # ------------------------------------------------------------------ the request

    def add_body(self, part: bytes, *, has_more: bool) -> None:
        """A part of the body has arrived."""
        self.body.append(part)
        self.has_more = has_more
        if self._waiters:
            self._wake()

    def _wake(self) -> None:
        """Wake `receive`, and at the end also the disconnect watchers."""
        is_over = self.is_client_gone or self.is_complete
        for waiter in (*self._waiters, *(self._watches if is_over else ())):
            if not waiter.done():
                waiter.set_result(None)

    def take_body(self, limit: int) -> bytes | None:
        """The whole body if it has arrived and is small; None: use `read_body`."""
        if self.has_more or self._is_body_delivered or self.is_client_gone:
            return None
        body = self.body[0] if len(self.body) == 1 else b"".join(self.body)
        is_large = len(body) >= LARGE_BODY_BYTES or len(body) > limit
        if is_large or b"content-encoding" in self.headers:
            return None
        self._is_body_delivered = self.is_body_asked = self.is_body_read = True
        self.body.clear()
        if (wire := self.wire) is not None:
            wire.received, wire.received_size = body[:HELD_BYTES], len(body)
        return body

    def disconnect(self) -> None:
        """Tell the application that the client has disconnected, or its connection was given up."""
        if not self.is_complete:
            self.is_client_gone = True
            self.expects_continue = False
        self._wake()

    def watch_disconnect(self, supervisor: Supervisor) -> "asyncio.Future[None]":
        """A future that is done when the client has disconnected or has the whole response.

        Not a task: every open stream has one, and a task needs more memory.
        """
        del supervisor
        connection = self._connection
        watch: asyncio.Future[None] = connection.loop.create_future()
        if self.is_client_gone or self.is_complete:
            watch.set_result(None)
        else:
            self._watches.append(watch)
            connection.resume_reading()
        return watch

    async def receive(self) -> AsgiMessage:
        """Called by the application: the body, and later that the client is gone."""
        connection = self._connection
        if self.expects_continue:
            self.expects_continue = False
            if not connection.transport.is_closing():
                connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while not (self.is_client_gone or self.is_complete):
            if self.body or not (self.has_more or self._is_body_delivered):
                body = self.body[0] if len(self.body) == 1 else b"".join(self.body)
                self.body.clear()
                self._is_body_delivered = not self.has_more
                return {"type": "http.request", "body": body, "more_body": self.has_more}
            connection.resume_reading()
            # One future for each waiter: a cancelled task cancels the future that it awaits.
            waiter = connection.loop.create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                self._waiters.remove(waiter)
        return _DISCONNECT

    # ------------------------------------------------------------------ the response

    @property
    def is_unanswered(self) -> bool:
        """True while nothing of a response was written."""
        return not self.is_started or bool(self._head)

    async def send(self, message: AsgiMessage) -> None:
        """Called by the application; waits while the client does not read."""
        if self._connection.drained is not None and not self.is_client_gone:
            await self._connection.wait_drained()
        if self.is_client_gone:
            return
        if not self.is_started:
            self._write_head(message["status"], message.get("headers", ()))
        elif self.is_complete:
            raise RuntimeError("the response is complete already")
        else:
            self._write_body(message.get("body", b""), is_last=not message.get("more_body", False))

    def send_now(self, body: bytes) -> bool:
        """Send a part of the body; False when that would have to wait, or the client is gone."""
        if self._connection.drained is not None or self.is_client_gone or not self._is_chunked:
            return False
        self._connection.transport.write(b"%x\r\n%b\r\n" % (len(body), body))
        return True

    async def respond(
        self,
        status: int,
        body: bytes,
        *,
        media_type: bytes = JSON,
        headers: Iterable[Header] = (),
    ) -> None:
        """Send a whole response: a small one, as nearly every one is, in one write."""
        if self.is_started:
            raise RuntimeError("the response has begun already")
        has_request = self.is_body_read or not self.has_body()
        may_write = self._connection.drained is None and not self.is_client_gone
        is_small = len(body) <= SMALL_BODY_BYTES and not self.is_silent
        if not (has_request and may_write and is_small):
            await super().respond(status, body, media_type=media_type, headers=headers)
            return
        length = b"%d" % len(body)
        own = [(b"content-type", media_type), (b"content-length", length), *headers]
        if (wire := self.wire) is not None:
            wire.headers, wire.sent, wire.sent_size = own, body[:HELD_BYTES], len(body)
            wire.ended_at = time.monotonic()
        self.has_started, self.status = True, status
        self._write_head(status, own + self.response_headers)
        self._write_body(body, is_last=True)

    def _write_head(self, status: int, headers: "list[Header] | tuple[()]") -> None:
        self.is_started = True
        self.expects_continue = False
        length = None
        lines = [STATUS_LINES[status]]
        for name, value in (*self._connection.server_state.default_headers, *headers):
            if name == b"content-length":
                length = int(value)
            elif name == b"connection" and value == b"close":
                self.is_kept_alive = False
                continue
            lines.append(b"%b: %b\r\n" % (name, value))
        if self.method == "HEAD" or status in (204, 304):
            self._body_bytes_left = 0
        elif length is not None:
            self._body_bytes_left = length
        elif self.http_version == "1.0":
            # No chunks before HTTP/1.1: the end of the connection is that of the body.
            self._body_bytes_left = -1
            self.is_kept_alive = False
        else:
            self._is_chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        if not self.is_kept_alive:
            lines.append(b"connection: close\r\n")
        head = b"".join(lines)
        # A line break within a header would begin another one, or the body.
        if head.count(b"\n") != len(lines) or head.count(b"\r") != len(lines):
            raise RuntimeError("a header of the response holds a line break")
        head += b"\r\n"
        if self._is_chunked or self._body_bytes_left < 0:
            self._connection.transport.write(head)
        else:
            # Together with the body, which is known and follows: every write is a system call and
            # a packet, and costs the kernel more than parsing the whole request costs us.
            self._head = head

    def _write_body(self, body: bytes, *, is_last: bool) -> None:
        if self._is_chunked:
            end = b"0\r\n\r\n" if is_last else b""
            body = b"%x\r\n%b\r\n%b" % (len(body), body, end) if body else end
        elif self.method == "HEAD":
            body = b""
        elif self._body_bytes_left >= 0:
            self._body_bytes_left -= len(body)
            if self._body_bytes_left < 0 or (is_last and self._body_bytes_left):
                raise RuntimeError("the body of the response is not as long as announced")
        if self._head:
            body, self._head = self._head + body, b""
        if body:
            self._connection.transport.write(body)
        if is_last:
            self.is_complete = True
            if self._waiters or self._watches:
                self._wake()
            self._connection.on_response_complete(self)

    def on_application_done(self, task: "asyncio.Task[None]") -> None:
        """The application has returned, or was cancelled."""
        connection = self._connection
        connection.server_state.tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("http.application_failed", path=self.path, exc_info=error)
        if not (self.is_complete or self.is_client_gone):
            # The response stays incomplete; closing the connection shows that to the client.
            connection.close(connection.loop.time())
