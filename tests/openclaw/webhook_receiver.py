"""A webhook receiver on loopback."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

Json = Any

TIMEOUT_S = 240.0


@dataclass(frozen=True)
class ReceivedRequest:
    """One request that arrived."""

    headers: dict[str, str]
    json: Json


class WebhookReceiver:
    """Takes every request with 200 and keeps it."""

    def __init__(self) -> None:
        self.url = ""
        self.run_turn: list[ReceivedRequest] = []
        self._news = asyncio.Event()

    async def wait_for(self, is_wanted: Callable[[ReceivedRequest], bool]) -> ReceivedRequest:
        """The first request, also an earlier one, that is wanted."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                for one in self.run_turn:
                    if is_wanted(one):
                        return one
                self._news.clear()
                await self._news.wait()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lines = [line.partition(":") for line in head.split("\r\n")[1:] if line]
        headers = {name.lower(): value.strip() for name, _, value in lines}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.run_turn.append(ReceivedRequest(headers, json.loads(body)))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()
        self._news.set()


@asynccontextmanager
async def run_webhook_receiver() -> AsyncGenerator[WebhookReceiver]:
    """A receiver that listens for the length of a block."""
    receiver = WebhookReceiver()
    server = await asyncio.start_server(receiver.take, "127.0.0.1", 0)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    async with server:
        yield receiver
