"""Server-sent events: frames from the journal, comments while nothing happens, an end in order."""

import asyncio
import contextlib
from collections.abc import Callable

from openclaw_a2a.inbound.http import Exchange, Receive
from openclaw_a2a.model.errors import Overloaded
from openclaw_a2a.runtime.feed import Follower
from openclaw_a2a.wire import sse

SSE_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_KEEP_ALIVE = sse.comment("keep-alive")

Encode = Callable[[int, bytes], bytes]
"""From a sequence and a stored stream body to one frame of the wire."""


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
        self, exchange: Exchange, first: bytes | None, *, follower: Follower | None, encode: Encode
    ) -> None:
        """Answer with a stream: the first frame, then what the follower brings."""
        await exchange.send(
            {"type": "http.response.start", "status": 200, "headers": list(SSE_HEADERS)}
        )
        if first is not None or follower is None:
            await _push(exchange, first or b"")
        if follower is not None:
            await self._follow(exchange, follower, encode)
        await exchange.send({"type": "http.response.body", "body": b""})

    async def _follow(self, exchange: Exchange, follower: Follower, encode: Encode) -> None:
        self._followers.add(follower)
        watch = asyncio.get_running_loop().create_task(_watch(exchange.receive, follower))
        try:
            while not follower.is_over:
                entries = await follower.take(self._heartbeat_s)
                if entries:
                    frames = [encode(entry.sequence, entry.body) for entry in entries]
                    await _push(exchange, b"".join(frames))
                elif not follower.is_over:
                    await _push(exchange, _KEEP_ALIVE)
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
