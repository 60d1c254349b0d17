"""Server-sent events: frames from the journal, comments while nothing happens, an end in order."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Protocol

import msgspec
import structlog

from openclaw_a2a.inbound.http import Exchange, Receive
from openclaw_a2a.model.errors import GatewayError, Overloaded
from openclaw_a2a.runtime.feed import Follower
from openclaw_a2a.wire import sse

log = structlog.get_logger(__name__)

SSE_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_KEEP_ALIVE = sse.comment("keep-alive")


class Stream(msgspec.Struct, frozen=True):
    """What a stream shows first (a stored stream body), and what it follows afterwards."""

    first: bytes | None
    sequence: int
    follower: Follower | None
    fault: GatewayError | None = None


class Spelling(Protocol):
    """How a wire writes the frames of a stream."""

    def frame(self, sequence: int, body: bytes) -> bytes:
        """A stored stream body as one event."""
        ...

    def fault(self, error: GatewayError) -> bytes:
        """The error that ends a stream."""
        ...

    def streams_early(self, error: GatewayError) -> bool:
        """True when even an error before the first event is told as an event."""
        ...


class Streams:
    """The open streams: how many there may be, and how they are told to close."""

    def __init__(self, limit: int, heartbeat_s: float) -> None:
        self._limit = limit
        self._heartbeat_s = heartbeat_s
        self._followers: set[Follower] = set()

    def __len__(self) -> int:
        return len(self._followers)

    def check_room(self) -> None:
        """Raises: Overloaded."""
        if len(self._followers) >= self._limit:
            raise Overloaded(f"{self._limit} streams are open already; poll the task instead")

    def close_all(self) -> None:
        """The gateway stops: every stream ends now."""
        for follower in list(self._followers):
            follower.stop()

    async def serve(
        self, exchange: Exchange, opening: Coroutine[Any, Any, Stream], spelling: Spelling
    ) -> None:
        """Answer with a stream: its first frame, then what its follower brings.

        While the first event is awaited the reader gets comments, so that nobody on the way takes
        the connection for dead. Raises what `opening` raises when nothing was sent before and the
        wire wants it plain.
        """
        task = asyncio.get_running_loop().create_task(opening)
        is_begun = False
        while not (await asyncio.wait({task}, timeout=self._heartbeat_s))[0]:
            if not is_begun:
                await _begin(exchange)
            is_begun = True
            await _push(exchange, _KEEP_ALIVE)
        try:
            stream = task.result()
        except GatewayError as error:
            if not is_begun and not spelling.streams_early(error):
                raise
            stream = Stream(None, 0, None, fault=error)
        if not is_begun:
            await _begin(exchange)
        await self._send(exchange, stream, spelling)

    async def _send(self, exchange: Exchange, stream: Stream, spelling: Spelling) -> None:
        if stream.fault is not None:
            await _push(exchange, spelling.fault(stream.fault))
        if stream.first is not None:
            await _push(exchange, spelling.frame(stream.sequence, stream.first))
        if stream.follower is not None:
            await self._follow(exchange, stream.follower, spelling)
        await exchange.send({"type": "http.response.body", "body": b""})

    async def _follow(self, exchange: Exchange, follower: Follower, spelling: Spelling) -> None:
        self._followers.add(follower)
        watch = asyncio.get_running_loop().create_task(_watch(exchange.receive, follower))
        try:
            while not follower.is_over:
                entries = await follower.take(self._heartbeat_s)
                if entries:
                    frames = [spelling.frame(entry.sequence, entry.body) for entry in entries]
                    await _push(exchange, b"".join(frames))
                elif not follower.is_over:
                    await _push(exchange, _KEEP_ALIVE)
        except GatewayError as error:
            log.warning("stream-broken", code=error.code, reason=error.message)
            await _push(exchange, spelling.fault(error))
        finally:
            self._followers.discard(follower)
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch


async def _watch(receive: Receive, follower: Follower) -> None:
    """A reader that goes away ends its stream, and nothing else."""
    while (await receive())["type"] != "http.disconnect":
        pass
    follower.stop()


async def _begin(exchange: Exchange) -> None:
    await exchange.begin(200, list(SSE_HEADERS))


async def _push(exchange: Exchange, chunk: bytes) -> None:
    await exchange.send({"type": "http.response.body", "body": chunk, "more_body": True})
