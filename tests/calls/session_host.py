"""The host of a caller's session, in the process of the test: no kill of a gateway reaches it."""

import asyncio
import json
import random
import time
from collections import Counter
from typing import Any

Json = Any
DEADLINE_S = 240.0


class SessionHost:
    """Holds the caller's session: what arrived in it, as messages and as the results of tools.

    It takes whatever calls itself fresh, and looks into the session's history otherwise.
    """

    def __init__(self) -> None:
        self.history: list[Json] = []
        self.times: list[float] = []
        """When each message of the history arrived, by the monotonic clock."""
        self.texts: dict[str, set[str]] = {}
        self._news = asyncio.Event()
        self._chance = random.Random("host")
        self._server: asyncio.Server | None = None

    async def open(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    def put(self, message: Json) -> None:
        self.history.append(message)
        self.times.append(time.monotonic())
        self._news.set()

    async def until_told(self, call_ids: set[str]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not self.counts.keys() >= call_ids:
                self._news.clear()
                await self._news.wait()

    @property
    def counts(self) -> Counter[str]:
        return Counter(message["correlationId"] for message in self.history)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await reader.readline()
            is_deaf = self._chance.random() < 0.05
            if line.endswith(b"\n"):
                self._take(json.loads(line))
                if not is_deaf:
                    writer.write(b"taken\n")
                    await writer.drain()
        except OSError:
            pass  # the gateway was killed meanwhile
        finally:
            writer.close()

    def _take(self, note: Json) -> None:
        self.texts.setdefault(note["id"], set()).add(note["text"])
        if note["isFresh"] or note["id"] not in self.counts:
            self.put(json.loads(note["text"]))
