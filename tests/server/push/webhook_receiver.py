"""A webhook on loopback that records requests and responds as the test says."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from tests.ports import free_port

TIMEOUT_S = 240.0
Json = Any
Found = TypeVar("Found")


@dataclass(frozen=True)
class Post:
    """One request that came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Json:
        return msgspec.json.decode(self.body)


@dataclass
class WebhookReceiver:
    """Answers 200 unless told otherwise. `None` as an answer is silence until the end."""

    responses: list[bytes | None] = field(default_factory=list[bytes | None])
    posts: list[Post] = field(default_factory=list[Post])
    always: bytes | None = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)
    _server: asyncio.Server | None = None
    _over: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0

    async def open(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port or free_port())
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._over.set()
            self._server.close()
            await self._server.wait_closed()

    def url(self, path: str = "/hook") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def wait_posts(self, count: int) -> list[Post]:
        """The first posts, when there are so many."""
        async with asyncio.timeout(TIMEOUT_S), self._news:
            await self._news.wait_for(lambda: len(self.posts) >= count)
        return self.posts[:count]

    async def wait_for_post(self, mark: bytes) -> list[Post]:
        """Every post up to the first whose body has this in it."""
        async with asyncio.timeout(TIMEOUT_S), self._news:
            await self._news.wait_for(lambda: any(mark in post.body for post in self.posts))
        index = next(i for i, post in enumerate(self.posts) if mark in post.body)
        return self.posts[: index + 1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            post = await _read(reader)
            response = self.responses.pop(0) if self.responses else self.always
            async with self._news:
                self.posts.append(post)
                self._news.notify_all()
            if response is None:
                await self._over.wait()
            else:
                writer.write(response)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Post:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Post(method, path, headers, body)


def status(code: int, **headers: str) -> bytes:
    """An answer with this status."""
    extra = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {code} Whatever\r\nContent-Length: 0\r\n{extra}\r\n".encode()


async def eventually(is_so: Callable[[], bool]) -> None:
    """Wait for what nobody tells about."""

    async def look() -> bool | None:
        return is_so() or None

    await eventually_found(look)


async def eventually_found(look: Callable[[], Awaitable[Found | None]]) -> Found:
    """What nobody tells about, when it is there."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            found = await look()
            if found is not None:
                return found
            await asyncio.sleep(0.005)  # it is the state of another, who tells nobody
