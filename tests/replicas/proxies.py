"""TCP proxies of the tests: one in front of the replicas, one between each and its database."""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import Enum


class Link(Enum):
    """What a proxy does with connections."""

    UP = "up"
    REFUSED = "refused"
    """They are reset, new ones at once."""
    DROPPED = "dropped"
    """Nothing passes, and neither side is told; what was sent arrives when the link is up again."""


class Proxy:
    """Forwards every connection to the first port of `route` that takes it."""

    def __init__(self, route: Callable[[], Iterable[int]]) -> None:
        self._route = route
        self._link = Link.UP
        self._passes = asyncio.Event()
        self._passes.set()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.set_link(Link.REFUSED)

    def set_link(self, link: Link) -> None:
        self._link = link
        if link is Link.REFUSED:
            for writer in self._writers:
                writer.transport.abort()
        if link is Link.DROPPED:
            self._passes.clear()
        else:
            self._passes.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await self._passes.wait()
            if self._link is Link.REFUSED:
                writer.transport.abort()
                return
            self._writers.add(writer)
            try:
                await self._forward(reader, writer)
            finally:
                self._writers.discard(writer)
                writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await self._connect()
        self._writers.add(far_writer)
        try:
            ways = [self._pump(reader, far_writer), self._pump(far_reader, writer)]
            await asyncio.gather(*ways)
        finally:
            self._writers.discard(far_writer)
            far_writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        for port in self._route():
            with suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", port)
        raise ConnectionRefusedError("nothing behind the proxy takes connections")

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                await self._passes.wait()
                writer.write(data)
                await writer.drain()
        # One side is gone, so the other one ends as well: no peer here uses half of a connection.
        await self._passes.wait()
        writer.close()


def round_robin(ports: Sequence[int]) -> Callable[[], Iterable[int]]:
    """Each connection goes to the next port; a dead one is skipped."""
    turns = itertools.count()

    def route() -> Iterable[int]:
        first = next(turns) % len(ports)
        return [*ports[first:], *ports[:first]]

    return route
