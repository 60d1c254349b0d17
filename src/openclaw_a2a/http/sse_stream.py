"""Server-sent event streams: events of a source, heartbeats while it is idle, limits on streams.

A stream is written by the task of its request; `watch_disconnect` says when its client is gone. The
task never waits without a limit: for events at most a heartbeat, for a client that does not read
at most the write deadline. So a slot is always given back.

`last_event_id` only reads the position from which a client resumes; `server/operations` continues
there, with the events of `engine/tasks/queries.subscribe`.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Protocol

import msgspec

from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.http.asgi import NO_STORE, SLICE_BYTES, Header, HttpRequest
from openclaw_a2a.http.caller_checks import CallerChecks, CheckCaller, CheckedCaller
from openclaw_a2a.http.request_limits import (
    WRITE_TIMEOUT_S,
    ClientTooSlow,
    Deadline,
    write_deadline,
)
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import (
    GatewayError,
    GatewayFault,
    InvalidParams,
    IssuerUnavailable,
    Overloaded,
    Problem,
)
from openclaw_a2a.model.session_keys import OWN_CALLERS

log = get_logger(__name__)

SSE_HEADERS: list[Header] = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    NO_STORE,
    # Without it nginx buffers events and forwards them in blocks.
    (b"x-accel-buffering", b"no"),
]


def encode_frame(data: bytes, *, sequence: int | None = None, event: bytes | None = None) -> bytes:
    """One event. The data must be one line, as our JSON always is."""
    name = b"event: %b\n" % event if event is not None else b""
    if sequence is None:
        return b"%bdata: %b\n\n" % (name, data)
    return b"id: %d\n%bdata: %b\n\n" % (sequence, name, data)


def encode_comment(text: str = "") -> bytes:
    """A line that clients ignore; it keeps an idle connection open."""
    return b": " + " ".join(text.splitlines()).encode() + b"\n\n"


_WRITE_BYTES = 16 * SLICE_BYTES

KEEP_ALIVE = encode_comment("keep-alive")


class StreamEvent(Protocol):
    """One event: its sequence number and its stored body."""

    @property
    def sequence(self) -> int:
        """Its number; a client that reconnects continues after it."""
        ...

    @property
    def body(self) -> bytes:
        """The stored body, which a `FrameEncoder` puts into a frame."""
        ...


class _First(NamedTuple):
    sequence: int
    body: bytes


class EventSource(Protocol):
    """Where a stream gets its events from."""

    @property
    def is_over(self) -> bool:
        """True when there will be no more events."""
        ...

    def stop(self) -> None:
        """End the source; a pending `next_events` returns at once."""
        ...

    async def next_events(self, wait_s: float) -> Sequence[StreamEvent]:
        """The next events; none when none came in time or the source is over."""
        ...


class EncodedBody(Protocol):
    """A large body that is encoded for its stream already, in chunks that streams share."""

    @property
    def chunks(self) -> Sequence[bytes]:
        """The body, to be sent between the two parts of `FrameEncoder.around_frame`."""
        ...


class EventStream(msgspec.Struct):
    """What a stream sends: a stored body first (None once it is sent), then events of a source.

    `error` is sent as the only event: the response has started already, or the binding sends such
    an error as a frame (`FrameEncoder.streams_early_error`).
    """

    first: bytes | EncodedBody | None
    sequence: int
    source: EventSource | None
    error: GatewayError | None = None


PendingStream = Coroutine[Any, Any, EventStream]
"""Waits for the first event, which may take long. Cancelling it loses nothing: the message is
accepted, and its run goes on.
"""

OpenStream = Callable[[], Coroutine[Any, Any, EventStream | PendingStream]]
"""Accepts the request. It is not cancelled when the client disconnects."""


class FrameEncoder(Protocol):
    """How a binding writes the frames of a stream."""

    def frames(self, events: Sequence[StreamEvent], last: int | None) -> bytes:
        """Events as frames, one after the other; the stream ends with the number `last`."""
        ...

    def encode_body(self, body: bytes, *, is_last: bool) -> bytes:
        """The encoded body without the rest of its frame, so that streams can share it."""
        ...

    def around_frame(self, sequence: int) -> tuple[bytes, bytes]:
        """What a frame has before and after a body that is encoded already."""
        ...

    def error_frame(self, error: GatewayError) -> bytes:
        """The frame that ends a stream with an error."""
        ...

    def streams_early_error(self, error: GatewayError) -> bool:
        """True when even an error before the first event is sent as a frame."""
        ...


class StoredFrames:
    """Frames that hold a body as it is stored, without an envelope.

    An error before the first event is a plain response.
    """

    __slots__ = ()

    def frames(self, events: Sequence[StreamEvent], last: int | None) -> bytes:
        """Events as frames."""
        return b"".join([encode_frame(one.body, sequence=one.sequence) for one in events])

    def encode_body(self, body: bytes, *, is_last: bool) -> bytes:
        """The body as it is stored."""
        return body

    def around_frame(self, sequence: int) -> tuple[bytes, bytes]:
        """What a frame has before and after its body."""
        return b"id: %d\ndata: " % sequence, b"\n\n"

    def streams_early_error(self, error: GatewayError) -> bool:
        """False: such an error is a plain response."""
        return False


def last_event_id(request: HttpRequest) -> int | None:
    """The event after which a reconnecting client wants to continue. Raises: InvalidParams."""
    text = (request.header(b"last-event-id") or "").strip()
    if not text:
        return None
    # At most 18 digits: such a number always fits the 64-bit integers of the stores.
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        problem = Problem("Last-Event-ID", "must be the number of the last event you saw")
        raise InvalidParams(f"Last-Event-ID {problem.message}", problems=(problem,))
    return int(text)


class SseWriter:
    """Writes the chunks of one stream. Every write has a deadline."""

    __slots__ = ("_deadline", "request")

    def __init__(self, request: HttpRequest, deadline: Deadline) -> None:
        self.request = request
        self._deadline = deadline

    async def start(self) -> None:
        """Send status and headers, unless they were sent."""
        if not self.request.has_started:
            await self.request.start_response(200, SSE_HEADERS)

    async def write(self, *chunks: bytes) -> None:
        """Send chunks, in slices. Raises: ClientTooSlow."""
        await self.start()
        if self.request.wire is not None:
            self.request.wire.add_frames(chunks)
        if len(chunks) == 1 and len(chunks[0]) <= SLICE_BYTES:
            message = {"type": "http.response.body", "body": chunks[0], "more_body": True}
            await self._send(message)
            return
        for chunk in chunks:
            for start in range(0, len(chunk), _WRITE_BYTES):
                # One deadline for each part: a slow client may take long for all of them.
                operation = self._deadline.start()
                try:
                    part = memoryview(chunk)[start : start + _WRITE_BYTES]
                    await self.request.send_slices((part,), is_watched=True)
                finally:
                    self._deadline.stop(operation)

    def hold(self, size: int) -> None:
        """Report how many bytes are in memory for this client alone, until it reads."""
        self.request.unsent = size

    async def close(self) -> None:
        """End the response. Raises: ClientTooSlow."""
        if self.request.wire is not None:
            self.request.wire.ended_at = time.monotonic()
        await self._send({"type": "http.response.body", "body": b""})

    async def _send(self, message: dict[str, Any]) -> None:
        # The server's `send` blocks while its buffer for this client is full.
        operation = self._deadline.start()
        try:
            # After a disconnect it may do nothing: only `receive` reports that the client is gone.
            await self.request.send(message)
        finally:
            self._deadline.stop(operation)


class SseStreams:
    """The open streams of a gateway: at most `limit`, and at most `per_caller` of one caller.

    `per_caller` does not apply to `local` (the user of this machine) and to the operator.
    """

    def __init__(
        self,
        limit: int,
        heartbeat_s: float,
        *,
        per_caller: int | None = None,
        supervisor: Supervisor | None = None,
        write_timeout_s: float = WRITE_TIMEOUT_S,
    ) -> None:
        self._limit = limit
        self._per_caller = per_caller or limit
        self.heartbeat_s = heartbeat_s
        self.supervisor = supervisor or Supervisor("sse")
        self.deadline = write_deadline(write_timeout_s, self.supervisor)
        self.checks = CallerChecks(heartbeat_s, self.supervisor)
        self.sources: set[EventSource] = set()
        self.is_closed = False
        self._count = 0
        self._by_caller: dict[str | None, int] = {}

    def __len__(self) -> int:
        return self._count

    def by_caller(self) -> dict[str | None, int]:
        """How many streams each caller has open; None: streams without a caller."""
        return dict(self._by_caller)

    def close_all(self) -> None:
        """End every stream now: the gateway stops."""
        self.is_closed = True
        for source in list(self.sources):
            source.stop()

    async def serve(
        self,
        request: HttpRequest,
        open_stream: OpenStream,
        encoder: FrameEncoder,
        *,
        check: CheckCaller = lambda _: None,
    ) -> None:
        """Respond with a stream. It holds a slot from here until it has ended.

        Raises: as `open`.
        """
        write = await self.open(request, open_stream, encoder, check=check)
        if write is not None:
            await write()

    async def open(
        self,
        request: HttpRequest,
        open_stream: OpenStream,
        encoder: FrameEncoder,
        *,
        check: CheckCaller = lambda _: None,
    ) -> Callable[[], Coroutine[Any, Any, None]] | None:
        """Open a stream, which holds a slot from now on; returns the function that writes it.

        Call that function at once. None when the client has left. While the first event is
        awaited, comments keep proxies from closing the connection. `check` verifies the caller
        again at each heartbeat.

        Raises: Overloaded, and what `open_stream` raises while a plain response is possible.
        """
        # Before anything is awaited: the limit holds for any number of concurrent requests.
        self.acquire_slot(request.caller)
        response = StreamResponse(self, request, encoder, check)
        try:
            if await response.open(open_stream):
                return response.write
        except BaseException:
            await response.close()
            raise
        await response.close()
        return None

    @contextmanager
    def slot(self, caller: str | None) -> Generator[None]:
        """Count a stream while it lasts, also one that is written elsewhere. Raises: Overloaded."""
        self.acquire_slot(caller)
        try:
            yield
        finally:
            self.release_slot(caller)

    def acquire_slot(self, caller: str | None) -> None:
        """Count a stream from now on. Raises: Overloaded."""
        held = self._by_caller.get(caller, 0)
        if held >= self._per_caller and caller not in OWN_CALLERS:
            raise Overloaded(
                f"{caller} has {held} streams open already; close one, or ask without a stream",
                setting="limits.perPeerStreams",
            )
        if self._count >= self._limit:
            raise Overloaded(
                f"{self._limit} streams are open already; ask without a stream",
                setting="limits.streams",
            )
        self._count += 1
        self._by_caller[caller] = held + 1

    def release_slot(self, caller: str | None) -> None:
        """A stream has ended."""
        self._count -= 1
        self._by_caller[caller] -= 1
        if not self._by_caller[caller]:
            del self._by_caller[caller]


class StreamResponse:
    """One stream, from its request to its end: `open`, `write`, `close`."""

    __slots__ = (
        "_caller",
        "_check",
        "_checked",
        "_disconnected",
        "_encoder",
        "_refusal",
        "_source",
        "_stream",
        "_streams",
        "_writer",
    )

    def __init__(
        self, streams: SseStreams, request: HttpRequest, encoder: FrameEncoder, check: CheckCaller
    ) -> None:
        self._streams = streams
        self._encoder = encoder
        self._check = check
        self._caller = request.caller
        self._writer = SseWriter(request, streams.deadline)
        # Cancelled in any case: a task that waits for the client would outlive the request.
        self._disconnected = request.watch_disconnect(streams.supervisor)
        self._stream: EventStream | None = None
        self._source: EventSource | None = None
        self._checked: CheckedCaller | None = None
        self._refusal: GatewayError | None = None

    # ------------------------------------------------------------------ the beginning

    async def open(self, open_stream: OpenStream) -> bool:
        """Wait for the first event; False when the client left before, or does not read.

        Raises: what `open_stream` raises while a plain response is possible.
        """
        request = self._writer.request
        try:
            opened = await open_stream()
            is_open = isinstance(opened, EventStream)
            self._stream = opened if is_open else await self._wait_first(opened)
        except ClientTooSlow as slow:
            self._log_too_slow(slow)
        except GatewayError as error:
            if not (request.has_started or self._encoder.streams_early_error(error)):
                raise
            request.log_refusal(error)
            self._stream = EventStream(None, 0, None, error=error)
        return self._stream is not None

    async def _wait_first(self, pending: PendingStream) -> EventStream | None:
        """The stream when its first event is there; None when the client left before."""
        writer, disconnected = self._writer, self._disconnected
        # A task of its own, so that heartbeats can be written meanwhile. Cancelling it loses
        # nothing: the message was accepted, and its run goes on without a reader.
        first = self._streams.supervisor.start("sse-first-event", pending)
        try:
            while not first.done():
                await asyncio.wait(
                    {first, disconnected},
                    timeout=self._streams.heartbeat_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                # Checked before `first`: there is no client to write to.
                if disconnected.done():
                    return None
                if not first.done():
                    with suppress(IssuerUnavailable):
                        self._check(writer.request)
                    await writer.write(KEEP_ALIVE)
            return first.result()
        finally:
            await _cancel(first)

    # ------------------------------------------------------------------ what is written

    async def write(self) -> None:
        """Write the stream to its end."""
        request, heartbeat_s = self._writer.request, self._streams.heartbeat_s
        try:
            source = await self._write_first()
            # One coroutine on purpose: each further one would cost memory in every idle stream,
            # and a call for every event.
            while source is not None and not source.is_over:
                events = await source.next_events(heartbeat_s)
                if events:
                    last = events[-1].sequence if source.is_over else None
                    chunk = self._encode_small(events, last)
                    # The usual case: small events, and a client that reads.
                    if not (chunk and request.send_now(chunk)):
                        await self._write_events(deque(events), last)
                    elif request.wire is not None:
                        request.wire.add_frames((chunk,))
                    del chunk
                elif not source.is_over:
                    await self._writer.write(KEEP_ALIVE)
                del events  # not kept while the next are awaited
            await self._write_end()
        except ClientTooSlow as slow:
            # Nothing more can be written to this client, not even an error frame. The response
            # stays incomplete; the server closes the connection.
            self._log_too_slow(slow)
        except Exception as error:  # the response has started: it must end with an error frame
            await self._write_failure(error)
        finally:
            await self.close()

    async def _write_first(self) -> EventSource | None:
        """Write the first body; returns the source of the events that follow."""
        stream, self._stream = self._stream, None
        if stream is None:  # `open` returned False
            return None
        writer, encoder, source = self._writer, self._encoder, stream.source
        await writer.start()
        if stream.error is not None:
            await writer.write(encoder.error_frame(stream.error))
        first = stream.first
        if isinstance(first, bytes):
            last = stream.sequence if source is None or source.is_over else None
            await self._write_events(deque([_First(stream.sequence, first)]), last)
        elif first is not None:
            before, after = encoder.around_frame(stream.sequence)
            await writer.write(before, *first.chunks, after)
        if source is not None:
            self._follow(source)
        return source

    def _follow(self, source: EventSource) -> None:
        streams, request = self._streams, self._writer.request
        self._source = source
        # Wakes a source that waits for its next event, so that the slot is free at once.
        self._disconnected.add_done_callback(self._stop)
        self._checked = streams.checks.add(request, self._check, self._refuse)
        streams.sources.add(source)
        # `close_all` may have run while the first event was awaited: it did not see this source.
        if streams.is_closed:
            source.stop()

    def _stop(self, _: object = None) -> None:
        if self._source is not None:
            self._source.stop()

    def _refuse(self, error: GatewayError) -> None:
        """End the stream with this error: the credentials do not allow it any more."""
        self._refusal = error
        self._stop()

    def _encode_small(self, events: Sequence[StreamEvent], last: int | None) -> bytes:
        """Events as one chunk; none when they are large."""
        # One write for all of them: fewer packets.
        if sum([len(event.body) for event in events]) >= SLICE_BYTES:
            return b""
        return self._encoder.frames(events, last)

    async def _write_events(self, events: deque[StreamEvent], last: int | None) -> None:
        """Write events, and take them out; the stream ends with the one of the number `last`."""
        # A client may stop reading for long. So events that were written are released at once, and
        # a large event is sent from the one copy that all streams of the task share.
        writer, encoder = self._writer, self._encoder
        held = sum([len(event.body) for event in events])
        while events:
            writer.hold(held)
            if len(events[0].body) >= SLICE_BYTES:
                event = events.popleft()
                before, after = encoder.around_frame(event.sequence)
                body = encoder.encode_body(event.body, is_last=event.sequence == last)
                await writer.write(before, body, after)
                held -= len(event.body)
                continue
            few: list[StreamEvent] = []
            size = 0
            while events and size < SLICE_BYTES and len(events[0].body) < SLICE_BYTES:
                few.append(events.popleft())
                size += len(few[-1].body)
            chunk = encoder.frames(few, last)
            few.clear()
            held -= size
            await writer.write(chunk)
        writer.hold(0)

    async def _write_end(self) -> None:
        if self._refusal is not None:
            self._writer.request.log_refusal(self._refusal)
            await self._writer.write(self._encoder.error_frame(self._refusal))
        await self._writer.close()

    async def _write_failure(self, error: Exception) -> None:
        if isinstance(error, GatewayError):
            log.warning("sse.source_failed", code=error.code, reason=error.message)
        else:
            log.error("sse.source_failed", exc_info=error)
            error = GatewayFault("internal error")
        try:
            await self._writer.write(self._encoder.error_frame(error))
            await self._writer.close()
        except ClientTooSlow as slow:
            self._log_too_slow(slow)

    def _log_too_slow(self, slow: ClientTooSlow) -> None:
        log.warning("sse.client_too_slow", path=self._writer.request.path, reason=str(slow))

    # ------------------------------------------------------------------ the end

    async def close(self) -> None:
        """Release everything, however the stream ended."""
        streams = self._streams
        streams.release_slot(self._caller)
        if self._checked is not None:
            streams.checks.remove(self._checked)
        if self._source is not None:
            streams.sources.discard(self._source)
        await _cancel(self._disconnected)


async def _cancel(task: "asyncio.Future[Any]") -> None:
    """Cancel a task or a future, and wait until it has ended."""
    task.cancel()
    # `wait`, not `await task`: its CancelledError could not be distinguished from one of our own.
    if not task.done():
        await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not log it
