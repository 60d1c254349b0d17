"""Server-sent events: frames from the journal, comments while nothing happens, an end in order."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

import msgspec

from openclaw_a2a.http.asgi import HttpRequest, Receive
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import GatewayError, InvalidParams, Overloaded, Problem
from openclaw_a2a.protocol import sse

log = get_logger(__name__)

SSE_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_KEEP_ALIVE = sse.comment("keep-alive")


class StreamEvent(Protocol):
    """One event of a stream: its number, and its stored body."""

    @property
    def sequence(self) -> int:
        """Its number; a reader who comes back goes on after it."""
        ...

    @property
    def body(self) -> bytes:
        """What it says."""
        ...


class EventSource(Protocol):
    """Where a stream gets its events from."""

    @property
    def is_over(self) -> bool:
        """True when nothing more is to come."""
        ...

    def stop(self) -> None:
        """The reader is gone: whoever waits in `take` gets an answer at once."""
        ...

    async def next_events(self, wait_s: float) -> Sequence[StreamEvent]:
        """The next events; empty when none came in time or nothing more is to come."""
        ...


class EventStream(msgspec.Struct, frozen=True):
    """What a stream shows first (a stored stream body), and what it follows afterwards."""

    first: bytes | None
    sequence: int
    follower: EventSource | None
    fault: GatewayError | None = None


PendingStream = Coroutine[Any, Any, EventStream]
"""A stream whose first event may take its time; nothing is lost when nobody waits for it."""

OpenStream = Callable[[], Coroutine[Any, Any, EventStream | PendingStream]]
"""Takes the request in, whether or not its reader stays; then there is something to show."""


class FrameEncoder(Protocol):
    """How a wire writes the frames of a stream."""

    def frame(self, sequence: int, body: bytes) -> bytes:
        """A stored stream body as one event."""
        ...

    def error_frame(self, error: GatewayError) -> bytes:
        """The error that ends a stream."""
        ...

    def streams_early_error(self, error: GatewayError) -> bool:
        """True when even an error before the first event is told as an event."""
        ...


def last_event_id(exchange: HttpRequest) -> int | None:
    """Where a returning reader wants to go on. Raises: InvalidParams."""
    said = exchange.header(b"last-event-id")
    if said is None or not said.strip():
        return None
    text = said.strip()
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        problem = Problem("Last-Event-ID", "must be the number of the last event you saw")
        raise InvalidParams(f"Last-Event-ID {problem.message}", problems=(problem,))
    return int(text)


class SseStreams:
    """The open streams: how many there may be, and how they are told to close."""

    def __init__(self, limit: int, heartbeat_s: float) -> None:
        self._limit = limit
        self._heartbeat_s = heartbeat_s
        self._count = 0
        self._followers: set[EventSource] = set()
        self._is_closed = False

    def __len__(self) -> int:
        return self._count

    def close_all(self) -> None:
        """The gateway stops: every stream ends now."""
        self._is_closed = True
        for follower in list(self._followers):
            follower.stop()

    async def serve(
        self, exchange: HttpRequest, opening: OpenStream, spelling: FrameEncoder
    ) -> None:
        """Answer with a stream: its first frame, then what its follower brings.

        While the first event is awaited the reader gets comments, so that nobody on the way takes
        the connection for dead. A stream counts from here to its end.

        Raises: Overloaded, and what `opening` raises when nothing was sent before and the wire
        wants it plain.
        """
        if self._count >= self._limit:
            raise Overloaded(f"{self._limit} streams are open already; poll the task instead")
        self._count += 1
        reader = _Reader(exchange, spelling)
        try:
            await self._serve(reader, opening)
        finally:
            self._count -= 1
            await _end(reader.leaving)

    async def _serve(self, reader: "_Reader", opening: OpenStream) -> None:
        try:
            stream = await opening()
            if not isinstance(stream, EventStream):
                stream = await self._wait_first(reader, stream)
        except GatewayError as error:
            if not reader.wants_event(error):
                raise
            stream = EventStream(None, 0, None, fault=error)
        if stream is not None:
            await self._send(reader, stream)

    async def _wait_first(self, reader: "_Reader", coming: PendingStream) -> EventStream | None:
        """The stream when it has something to show; None when its reader has left before."""
        task = asyncio.get_running_loop().create_task(coming)
        try:
            while not task.done():
                await asyncio.wait(
                    {task, reader.leaving},
                    timeout=self._heartbeat_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if reader.leaving.done():
                    return None
                if not task.done():
                    await reader.push(_KEEP_ALIVE)
            return task.result()
        finally:
            await _end(task)

    async def _send(self, reader: "_Reader", stream: EventStream) -> None:
        await reader.begin()
        if stream.fault is not None:
            await reader.push(reader.spelling.error_frame(stream.fault))
        if stream.first is not None:
            await reader.push(reader.spelling.frame(stream.sequence, stream.first))
        if stream.follower is not None:
            await self._follow(reader, stream.follower)
        await reader.close()

    async def _follow(self, reader: "_Reader", follower: EventSource) -> None:
        self._followers.add(follower)
        reader.leaving.add_done_callback(lambda _: follower.stop())
        if self._is_closed:
            follower.stop()
        try:
            while not follower.is_over:
                entries = await follower.next_events(self._heartbeat_s)
                if entries:
                    frame = reader.spelling.frame
                    await reader.push(b"".join([frame(one.sequence, one.body) for one in entries]))
                elif not follower.is_over:
                    await reader.push(_KEEP_ALIVE)
        except GatewayError as error:
            log.warning("stream-broken", code=error.code, reason=error.message)
            await reader.push(reader.spelling.error_frame(error))
        finally:
            self._followers.discard(follower)


class _Reader:
    """Who reads a stream. One that goes away ends its stream, and nothing else."""

    def __init__(self, exchange: HttpRequest, spelling: FrameEncoder) -> None:
        self._exchange = exchange
        self.spelling = spelling
        self.leaving = asyncio.get_running_loop().create_task(_watch(exchange.receive))
        """Done when the reader is gone."""

    def wants_event(self, error: GatewayError) -> bool:
        """False when the error can and should be a plain answer."""
        return self._exchange.has_started or self.spelling.streams_early_error(error)

    async def push(self, chunk: bytes) -> None:
        """Send a piece."""
        await self.begin()
        await self._exchange.send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def close(self) -> None:
        """The stream is complete."""
        await self._exchange.send({"type": "http.response.body", "body": b""})

    async def begin(self) -> None:
        """Open the stream, unless it is open."""
        if not self._exchange.has_started:
            await self._exchange.start_response(200, list(SSE_HEADERS))


async def _watch(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _end(task: asyncio.Task[Any]) -> None:
    """Nobody waits for the task any more."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()
