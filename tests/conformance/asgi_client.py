"""An ASGI client without sockets: whole responses, live streams, disconnects."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import msgspec

AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
AsgiApp = Callable[[AsgiMessage, Receive, Send], Awaitable[None]]

TIMEOUT_S = 240.0
"""How long any single wait may take before the test fails."""


@dataclass(frozen=True)
class Request:
    """A request: the body comes in the given chunks."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    chunks: Sequence[bytes] = (b"",)
    client: str | None = "127.0.0.1"

    @property
    def scope(self) -> AsgiMessage:
        """The ASGI scope of the request."""
        path, _, query = self.path.partition("?")
        headers = {"host": "127.0.0.1:9900", **{k.lower(): v for k, v in self.headers.items()}}
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": self.method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(k.encode("latin-1"), v.encode("latin-1")) for k, v in headers.items()],
            "client": None if self.client is None else (self.client, 40000),
            "server": ("127.0.0.1", 9900),
            "state": {},
        }


@dataclass(frozen=True)
class Response:
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return msgspec.json.decode(self.body)

    @property
    def media_type(self) -> str:
        """The content type without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip()


class ActiveRequest:
    """One request under way: what the server sent so far, and what it still wants to read."""

    def __init__(self, request: Request, *, is_slow: bool) -> None:
        self._asked = request
        self._to_read: list[bytes] = list(request.chunks)
        self._started = anyio.Event()
        self._gone = anyio.Event()
        self._ended = anyio.Event()
        self._over = anyio.Event()  # either of the two, as one event that `receive` waits for
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue(1 if is_slow else 0)
        self._is_broken = False
        self._is_complete = False
        self.violations: list[str] = []
        """What the application did against the rules of ASGI."""
        self.chunks_read = 0
        self.chunks_before_answer = 0
        self.status = 0
        self.headers: dict[str, str] = {}

    async def run(self, app: AsgiApp) -> None:
        """Let the application work on the request until it is done."""
        try:
            await app(self._asked.scope, self._receive, self._send)
        finally:
            self._ended.set()
            self._over.set()
            self._started.set()
            await self._deliver(None)

    async def wait_started(self) -> None:
        """Wait for status and headers."""
        with anyio.fail_after(TIMEOUT_S):
            await self._started.wait()

    async def wait_ended(self) -> None:
        """Wait until the application is done with the request."""
        with anyio.fail_after(TIMEOUT_S):
            await self._ended.wait()

    async def next_chunk(self) -> bytes | None:
        """The next piece of the body; None at the end."""
        with anyio.fail_after(TIMEOUT_S):
            return await self._chunks.get()

    def disconnect(self) -> None:
        """Go away, as a client does whose connection broke."""
        self._gone.set()
        self._over.set()

    def break_off(self) -> None:
        """Never send the last chunk of the body."""
        self._to_read.pop()
        self._is_broken = True

    async def _receive(self) -> AsgiMessage:
        if self._to_read:
            chunk = self._to_read.pop(0)
            self.chunks_read += 1
            more = bool(self._to_read) or self._is_broken
            return {"type": "http.request", "body": chunk, "more_body": more}
        await self._over.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: AsgiMessage) -> None:
        if message["type"] == "http.response.start":
            self._note(self._started.is_set(), "the answer was started twice")
            self.status = message["status"]
            self.chunks_before_answer = self.chunks_read
            self.headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in message["headers"]}
            self._started.set()
            return
        self._note(not self._started.is_set(), "a body came before its start")
        self._note(self._is_complete, "more body came after the end")
        self._is_complete = not message.get("more_body", False)
        if self._gone.is_set():
            return
        body = message.get("body", b"")
        if body:
            await self._deliver(body)

    def _note(self, is_wrong: bool, violation: str) -> None:
        if is_wrong:
            self.violations.append(violation)

    async def _deliver(self, body: bytes | None) -> None:
        """Hand a piece over (None: the end); a reader that is gone takes nothing."""
        if not self._chunks.full():
            self._chunks.put_nowait(body)
            return
        async with anyio.create_task_group() as both:
            both.start_soon(_wait_then_cancel, self._gone, both.cancel_scope)
            await self._chunks.put(body)
            both.cancel_scope.cancel()


async def _wait_then_cancel(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


class AsgiClient:
    """A client of an application, with the headers that it always sends."""

    def __init__(self, app: AsgiApp, headers: Mapping[str, str] | None = None) -> None:
        self.app = app
        self._headers = dict(headers or {})

    def with_headers(self, **headers: str) -> "AsgiClient":
        """A client of the same application that always sends these headers too."""
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        return AsgiClient(self.app, {**self._headers, **more})

    @asynccontextmanager
    async def open(
        self, request: Request, *, is_slow: bool = False, breaks_off: bool = False
    ) -> AsyncGenerator[ActiveRequest]:
        """A request under way; leaving the block disconnects.

        A slow client reads nothing by itself; one that breaks off leaves before its last chunk.
        """
        headers = {**self._headers, **request.headers}
        active = ActiveRequest(replace(request, headers=headers), is_slow=is_slow)
        if breaks_off:
            active.break_off()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(active.run, self.app)
            try:
                yield active
            finally:
                active.disconnect()
                with anyio.CancelScope(shield=True):
                    await active.wait_ended()
            assert active.violations == []

    async def request(self, request: Request) -> Response:
        """The whole answer to a request."""
        async with self.open(request) as active:
            body = b""
            while (chunk := await active.next_chunk()) is not None:
                body += chunk
            return Response(active.status, active.headers, body)

    async def get(self, path: str, **headers: str) -> Response:
        """The whole answer to a GET."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.request(Request("GET", path, named))

    async def post(self, path: str, body: bytes, **headers: str) -> Response:
        """The whole answer to a POST of JSON, unless a content type is given."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = Request("POST", path, {"content-type": "application/json", **named}, (body,))
        return await self.request(request)
