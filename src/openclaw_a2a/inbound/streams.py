"""Server-sent events: frames from the journal, comments while nothing happens, an end in order."""

import asyncio
import contextlib
from typing import Protocol

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


class Spelling(Protocol):
    """How a wire writes the frames of a stream."""

    def frame(self, sequence: int, body: bytes) -> bytes:
        """A stored stream body as one event."""
        ...

    def fault(self, error: GatewayError) -> bytes:
        """The error that ends a stream."""
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

    async def run(
        self,
        exchange: Exchange,
        first: bytes | None,
        *,
        follower: Follower | None,
        spelling: Spelling,
    ) -> None:
        """Answer with a stream: the first frame, then what the follower brings."""
        await exchange.send(
            {"type": "http.response.start", "status": 200, "headers": list(SSE_HEADERS)}
        )
        if first is not None or follower is None:
            await _push(exchange, first or b"")
        if follower is not None:
            await self._follow(exchange, follower, spelling)
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


async def _push(exchange: Exchange, chunk: bytes) -> None:
    await exchange.send({"type": "http.response.body", "body": chunk, "more_body": True})
