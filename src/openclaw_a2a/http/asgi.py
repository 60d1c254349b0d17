"""HTTP requests over ASGI: headers, a bounded body, responses, error responses."""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from openclaw_a2a.http.deadline import Deadline
from openclaw_a2a.model.errors import (
    BodyTooLarge,
    GatewayError,
    GatewayFault,
    InvalidRequest,
    MediaTypeNotSupported,
    Overloaded,
    Unauthenticated,
)
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.protocol.errors import FAULT_MESSAGE, http_status

AsgiMessage = MutableMapping[str, Any]
AsgiScope = AsgiMessage
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
Header = tuple[bytes, bytes]

JSON = b"application/json"
A2A_JSON = b"application/a2a+json"
NO_STORE: Header = (b"cache-control", b"no-store")
_CHALLENGE: Header = (b"www-authenticate", b'Bearer realm="openclaw-a2a"')
_CLOSE: Header = (b"connection", b"close")


class HttpRequest:
    """One request and the way to respond to it."""

    __slots__ = (
        "has_started",
        "headers",
        "is_body_read",
        "method",
        "path",
        "receive",
        "response_headers",
        "scope",
        "send",
    )

    def __init__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.response_headers: list[Header] = []
        """Added to whatever response is sent."""
        self.has_started = False
        """True when status and headers were sent."""
        self.is_body_read = False

    def header(self, name: bytes) -> str | None:
        """A header's value, by its lower-case name."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    def header_items(self, name: bytes) -> list[str]:
        """The items of a comma-separated header, which may come in several lines."""
        if name not in self.headers:
            return []
        lines = [value.decode("latin-1") for key, value in self.scope["headers"] if key == name]
        return [item.strip() for item in ",".join(lines).split(",") if item.strip()]

    def query(self) -> dict[str, str]:
        """The query parameters; the last of each name counts."""
        raw: bytes = self.scope.get("query_string", b"")
        return dict(parse_qsl(raw.decode("latin-1"), keep_blank_values=True)) if raw else {}

    def protocol_version(self) -> str | None:
        """The A2A version the caller says it speaks, in a header or in the query."""
        version = self.header(b"a2a-version")
        if not version and self.scope.get("query_string"):
            version = self.query().get("A2A-Version")
        return version

    def client_host(self) -> str | None:
        """The address of the client; None when the server does not know it."""
        client: tuple[str, int] | None = self.scope.get("client")
        return client[0] if client else None

    def require_json(self) -> None:
        """Refuse a body that is not declared as JSON. Raises: MediaTypeNotSupported."""
        content_type = self.headers.get(b"content-type", b"")
        if content_type in (JSON, A2A_JSON):
            return
        media_type = content_type.partition(b";")[0].strip().lower()
        if media_type not in (JSON, A2A_JSON):
            given = media_type.decode("latin-1")[:80] or "nothing"
            raise MediaTypeNotSupported(
                f"the content type is {given}; send the body as application/json"
            )

    def has_body(self) -> bool:
        """True when the headers announce a body."""
        is_sized = self.headers.get(b"content-length", b"0") != b"0"
        return is_sized or b"transfer-encoding" in self.headers

    async def read_body(self, limit: int, deadline: Deadline) -> bytes:
        """The request body. Past the limit the rest is not read.

        Raises: BodyTooLarge, BodyTooSlow, InvalidRequest (the connection was closed before).
        """
        declared = self.headers.get(b"content-length")
        if declared is not None and declared.isdigit() and int(declared) > limit:
            raise _body_too_large(limit)
        operation = deadline.start()
        try:
            message = await self.receive()
            body: bytes = message.get("body", b"")
            if message.get("more_body", False):
                body = await self._read_rest(body, limit)
        finally:
            deadline.stop(operation)
        self.is_body_read = True
        if len(body) > limit:
            raise _body_too_large(limit)
        return body

    async def _read_rest(self, first: bytes, limit: int) -> bytes:
        chunks, size, has_more = [first], len(first), True
        while has_more:
            if size > limit:
                raise _body_too_large(limit)
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise InvalidRequest("the connection was closed before the body was complete")
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            has_more = message.get("more_body", False)
        return b"".join(chunks)

    async def wait_disconnected(self) -> None:
        """Wait until the client is gone. The body must have been read."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def respond(
        self,
        status: int,
        body: bytes,
        *,
        media_type: bytes = JSON,
        headers: Iterable[Header] = (),
    ) -> None:
        """Send a whole response."""
        own = [(b"content-type", media_type), (b"content-length", b"%d" % len(body)), *headers]
        await self.start_response(status, own)
        await self.send({"type": "http.response.body", "body": body})

    async def start_response(self, status: int, headers: list[Header]) -> None:
        """Send status and headers; a body has to follow.

        When the body of the request was not read, the connection is closed afterwards: the next
        request would begin somewhere in what was left unread.
        """
        self.has_started = True
        if self.response_headers:
            headers = [*headers, *self.response_headers]
        if not self.is_body_read and self.has_body():
            headers = [*headers, _CLOSE]
        await self.send({"type": "http.response.start", "status": status, "headers": headers})

    async def respond_error(self, error: GatewayError, *, show_faults: bool = False) -> None:
        """Send `{"error": {code, message, details}}`, for endpoints that are not A2A.

        Faults of the gateway are described to its operator only (`show_faults`).
        """
        is_hidden = isinstance(error, GatewayFault) and not show_faults
        members: JsonObject = {
            "code": error.code,
            "message": FAULT_MESSAGE if is_hidden else error.message,
        }
        if error.details and not is_hidden:
            members["details"] = error.details
        status = http_status(error, for_rpc=False)
        body = msgspec.json.encode({"error": members})
        await self.respond(status, body, headers=[NO_STORE, *error_headers(error)])


Handler = Callable[[HttpRequest], Awaitable[None]]
"""Responds to one request."""


def error_headers(error: GatewayError) -> list[Header]:
    """The headers that go with an error response."""
    if isinstance(error, Unauthenticated):
        return [_CHALLENGE]
    if isinstance(error, Overloaded):
        return [(b"retry-after", b"%d" % max(1, round(error.retry_after_s)))]
    return []


def _body_too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"the request body is larger than {limit} bytes", details={"limit": limit})
