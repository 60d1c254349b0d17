"""The proxies of the cluster fail in the ways that the tests rely on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from tests.ports import free_port
from tests.replicas.proxies import Link, Proxy, round_robin

DEADLINE_S = 240.0


@asynccontextmanager
async def named_server(name: bytes) -> AsyncIterator[int]:
    """A server that says its name before each line that it sends back; its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(name + b":" + line)
        except OSError:
            pass  # reset by the proxy
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


class Line:
    """A connection through a proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, proxy: Proxy) -> "Line":
        return cls(*await asyncio.open_connection("127.0.0.1", proxy.port))

    def send(self, text: bytes) -> None:
        self._writer.write(text + b"\n")

    async def receive(self) -> bytes:
        """The next answer; empty when the connection has ended."""
        async with asyncio.timeout(DEADLINE_S):
            return (await self._reader.readline()).strip()

    async def is_cut(self) -> bool:
        """Whether the connection ends without an answer."""
        try:
            return await self.receive() == b""
        except OSError:
            return True
        finally:
            self.close()

    def close(self) -> None:
        self._writer.close()


async def ask(proxy: Proxy, text: bytes = b"hello") -> bytes:
    line = await Line.open(proxy)
    try:
        line.send(text)
        return await line.receive()
    finally:
        line.close()


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as one:
        yield one


async def open_proxy(stack: AsyncExitStack, *ports: int) -> Proxy:
    proxy = Proxy(round_robin(ports))
    await proxy.open()
    stack.push_async_callback(proxy.close)
    return proxy


async def test_each_connection_goes_to_the_next_server(stack: AsyncExitStack) -> None:
    ports = [await stack.enter_async_context(named_server(name)) for name in (b"a", b"b", b"c")]
    proxy = await open_proxy(stack, *ports)
    answers = [await ask(proxy) for _ in range(6)]
    assert answers == [b"a:hello", b"b:hello", b"c:hello"] * 2


async def test_a_dead_server_is_skipped(stack: AsyncExitStack) -> None:
    port = await stack.enter_async_context(named_server(b"a"))
    proxy = await open_proxy(stack, free_port(), port)
    assert [await ask(proxy) for _ in range(3)] == [b"a:hello"] * 3


async def test_a_refused_link_resets_old_and_new_connections(stack: AsyncExitStack) -> None:
    port = await stack.enter_async_context(named_server(b"a"))
    proxy = await open_proxy(stack, port)
    line = await Line.open(proxy)
    line.send(b"hello")
    assert await line.receive() == b"a:hello"
    proxy.set_link(Link.REFUSED)
    assert await line.is_cut()
    assert await (await Line.open(proxy)).is_cut()
    proxy.set_link(Link.UP)
    assert await ask(proxy) == b"a:hello"


async def test_a_dropped_link_delivers_later_what_was_sent_meanwhile(
    stack: AsyncExitStack,
) -> None:
    port = await stack.enter_async_context(named_server(b"a"))
    proxy = await open_proxy(stack, port)
    line = await Line.open(proxy)
    line.send(b"before")
    assert await line.receive() == b"a:before"
    proxy.set_link(Link.DROPPED)
    line.send(b"meanwhile")
    other = asyncio.ensure_future(ask(proxy, b"new"))
    waiting = asyncio.ensure_future(line.receive())
    done, _ = await asyncio.wait({waiting, other}, timeout=0.2)
    assert not done
    proxy.set_link(Link.UP)
    assert await waiting == b"a:meanwhile"
    assert await other == b"a:new"
    line.close()
