"""Just enough HTTP over ASGI: headers, a bounded body, plain answers."""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

from openclaw_a2a.http.body_deadline import BodyDeadline
from openclaw_a2a.model.errors import BodyTooLarge, InvalidRequest, MediaTypeNotSupported

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = dict[bytes, bytes]

JSON = b"application/json"
A2A_JSON = b"application/a2a+json"
CLOSE = (b"connection", b"close")


class HttpRequest:
    """One request and the way to answer it."""

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

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.headers: Headers = dict(scope["headers"])
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.response_headers: list[tuple[bytes, bytes]] = []
        """Headers that every answer carries, because of what the request said."""
        self.has_started = False
        """True when status and headers are out."""
        self.is_body_read = False
        """True when nothing of the request is left to be read."""

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
        """The protocol version the caller says it speaks."""
        said = self.header(b"a2a-version")
        if not said and self.scope.get("query_string"):
            said = self.query().get("A2A-Version")
        return said

    def client_host(self) -> str | None:
        """The address of the other side."""
        client: tuple[str, int] | None = self.scope.get("client")
        return client[0] if client else None

    def require_json(self) -> None:
        """Refuse a body that does not call itself JSON. Raises: MediaTypeNotSupported."""
        content_type = self.headers.get(b"content-type", b"")
        if content_type in (JSON, A2A_JSON):
            return
        media_type = content_type.partition(b";")[0].strip().lower()
        if media_type not in (JSON, A2A_JSON):
            said = media_type.decode("latin-1")[:80] or "nothing"
            raise MediaTypeNotSupported(
                f"the content type is {said}; send the body as application/json"
            )

    def has_body(self) -> bool:
        """True when the request says that a body follows its headers."""
        is_sized = self.headers.get(b"content-length", b"0") != b"0"
        return is_sized or b"transfer-encoding" in self.headers

    async def read_body(self, limit: int, patience: BodyDeadline) -> bytes:
        """The request body. Over the limit the rest is not read.

        Raises: BodyTooLarge, BodyTooSlow, InvalidRequest (it was broken off).
        """
        declared = self.headers.get(b"content-length")
        if declared is not None and declared.isdigit() and int(declared) > limit:
            raise too_large(limit)
        reading = patience.begin()
        try:
            return await self._read(limit)
        finally:
            patience.end(reading)

    async def _read(self, limit: int) -> bytes:
        message = await self.receive()
        content: bytes = message.get("body", b"")
        if not message.get("more_body", False):
            self.is_body_read = True
            if len(content) > limit:
                raise too_large(limit)
            return content
        return await self._rest_of_body(content, limit)

    async def _rest_of_body(self, first: bytes, limit: int) -> bytes:
        pieces, size, more = [first], len(first), True
        while more:
            if size > limit:
                raise too_large(limit)
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise InvalidRequest("the connection was closed before the body was complete")
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            more = message.get("more_body", False)
        self.is_body_read = True
        if size > limit:
            raise too_large(limit)
        return b"".join(pieces)

    async def respond(
        self,
        status: int,
        body: bytes,
        *,
        media_type: bytes = JSON,
        headers: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        """Send a whole answer."""
        all_headers = [
            (b"content-type", media_type),
            (b"content-length", b"%d" % len(body)),
            *headers,
        ]
        await self.start_response(status, all_headers)
        await self.send({"type": "http.response.body", "body": body})

    async def start_response(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Send status and headers; a body has to follow.

        When the body of the request was not read the connection is closed afterwards: it has no
        end that we know, and nothing else can be said before it.
        """
        self.has_started = True
        if self.response_headers:
            headers = [*headers, *self.response_headers]
        if not self.is_body_read and self.has_body():
            headers = [*headers, CLOSE]
        await self.send({"type": "http.response.start", "status": status, "headers": headers})


def too_large(limit: int) -> BodyTooLarge:
    """The error for a body over the limit."""
    return BodyTooLarge(f"the request body is larger than {limit} bytes", details={"limit": limit})
