"""Requests over kept connections, against servers that send whatever a test wants."""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx2
import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st
from tests.ports import free_port
from tests.remote.certificates import make_certificate

from openclaw_a2a.net.http1_transport import Http1Transport

LIMIT_S = 240.0
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter


class RawServer:
    """Answers the n-th request of each connection with the n-th of `answers`; then it closes."""

    def __init__(self, *answers: bytes | list[bytes]) -> None:
        self.answers = answers
        self.requests: list[list[bytes]] = []
        """The requests of each connection."""
        self.asked = asyncio.Event()
        self.left = asyncio.Event()

    async def serve(self, reader: Reader, writer: Writer) -> None:
        seen: list[bytes] = []
        self.requests.append(seen)
        try:
            for answer in self.answers:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                seen.append(head + await reader.readexactly(int(length or 0)))
                self.asked.set()
                for piece in [answer] if isinstance(answer, bytes) else answer:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.left.set()


@asynccontextmanager
async def serving(
    handle: Callable[[Reader, Writer], Awaitable[None]],
    *,
    most: int = 10,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[tuple[Http1Transport, str]]:
    """A server of this kind, a transport, and the address."""
    running: set[asyncio.Task[None] | None] = set()

    async def serve(reader: Reader, writer: Writer) -> None:
        running.add(asyncio.current_task())
        try:
            await handle(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    transport = Http1Transport(ssl.create_default_context(), max_connections=most)
    try:
        async with asyncio.timeout(LIMIT_S):
            yield transport, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        await transport.aclose()
        server.close()
        if running:
            await asyncio.wait([one for one in running if one is not None], timeout=LIMIT_S)


async def read(transport: Http1Transport, url: str, **more: object) -> tuple[int, bytes]:
    timeouts = {"pool": LIMIT_S, "connect": LIMIT_S, **more}
    request = httpx2.Request("POST", url, content=b"asked", extensions={"timeout": timeouts})
    response = await transport.handle_async_request(request)
    try:
        return response.status_code, await response.aread()
    finally:
        await response.aclose()


async def test_a_connection_is_used_for_one_request_after_the_other() -> None:
    server = RawServer(OK, OK, OK)
    async with serving(server.serve) as (transport, url):
        for _ in range(3):
            assert await read(transport, url) == (200, b"hi")
    [requests] = server.requests
    assert len(requests) == 3
    assert requests[0].startswith(b"POST / HTTP/1.1\r\nHost: 127.0.0.1:")
    assert requests[0].endswith(b"\r\n\r\nasked")


async def test_requests_at_the_same_time_have_a_connection_each() -> None:
    server = RawServer(OK)
    async with serving(server.serve) as (transport, url):
        answers = await asyncio.gather(*(read(transport, url) for _ in range(5)))
    assert answers == [(200, b"hi")] * 5
    assert len(server.requests) == 5


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        OK + b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        OK,  # the server closes after it
    ],
)
async def test_a_connection_that_ends_is_not_used_again(answer: bytes) -> None:
    server = RawServer(answer)
    async with serving(server.serve) as (transport, url):
        for _ in range(4):
            assert await read(transport, url) == (200, b"hi")
    assert [len(one) for one in server.requests] == [1, 1, 1, 1]


ANSWERS = [
    (OK, b"hi"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nh\r\n1\r\ni\r\n0\r\n\r\n", b"hi"),
    (b"HTTP/1.1 200\r\ntransfer-encoding: chunked\r\n\r\n2;x=1\r\nhi\r\n0\r\nt: 1\r\n\r\n", b"hi"),
    (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", b"until the end"),
    (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    (b"HTTP/1.1 100 Continue\r\nx: 1\r\n\r\nHTTP/1.1 103 Hints\r\n\r\n" + OK, b"hi"),
]


@given(st.sampled_from(ANSWERS), st.lists(st.integers(1, 20)))
def test_an_answer_may_come_in_any_pieces(answer: tuple[bytes, bytes], sizes: list[int]) -> None:
    sent, body = answer
    pieces: list[bytes] = []
    for size in sizes:
        pieces, sent = [*pieces, sent[:size]], sent[size:]

    async def ask() -> tuple[int, bytes]:
        async with serving(RawServer([*pieces, sent]).serve) as (transport, url):
            return await read(transport, url)

    status, heard = asyncio.run(ask())
    assert status in (200, 204)
    assert heard == body


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi!",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: %b\r\n" % (b"y" * 1000) * 200,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000,
    ],
)
async def test_an_answer_that_is_none_is_an_error(answer: bytes) -> None:
    async with serving(RawServer(answer).serve) as (transport, url):
        with pytest.raises((httpx2.RemoteProtocolError, httpx2.ReadError)):
            await read(transport, url)
        with pytest.raises((httpx2.RemoteProtocolError, httpx2.ReadError)):
            await read(transport, url)  # the next one has its own connection


@pytest.mark.parametrize("piece", [b"x: %b\r\n" % (b"y" * 10_000), b"y" * 10_000])
async def test_trailers_without_end_are_cut_off(piece: bytes) -> None:
    pieces = [CHUNKED + b"0\r\nx: ", *[piece] * 100, b"\r\n\r\n"]
    async with serving(RawServer(pieces).serve) as (transport, url):
        with pytest.raises(httpx2.RemoteProtocolError, match="trailers"):
            await read(transport, url)


@pytest.mark.parametrize("value", ["a\r\nx-other: 1", "a\nb", "a\rb", "a\0b", "\x7f"])
async def test_a_header_that_would_be_two_is_not_sent(value: str) -> None:
    server = RawServer(OK)
    async with serving(server.serve) as (transport, url):
        for headers in ({"x-a": value}, {f"x-{value}": "a"}, {"x a": "a"}):
            request = httpx2.Request("GET", url, headers=headers)
            with pytest.raises(httpx2.LocalProtocolError):
                await transport.handle_async_request(request)
    assert server.requests == []


async def test_a_server_that_is_not_there_is_a_failure_to_connect() -> None:
    gone = f"http://127.0.0.1:{free_port()}/"
    transport = Http1Transport(ssl.create_default_context(), max_connections=1)
    for url in (gone, "http://nobody.invalid/", gone.replace("127.0.0.1", "[::1]")):
        with pytest.raises(httpx2.ConnectError) as caught:
            await read(transport, url)
        # It is shown to people, on pages and by commands.
        assert not re.search(r"Errno|[\[\]()']", str(caught.value))
        expected = "refused|not known|no address|temporary failure in name resolution"
        assert re.search(expected, str(caught.value).lower())
    with pytest.raises(httpx2.UnsupportedProtocol):
        await read(transport, "ftp://127.0.0.1/")


async def test_a_name_with_several_addresses_is_reached_by_the_one_that_answers() -> None:
    server = RawServer(OK)
    async with serving(server.serve) as (transport, url):
        # Most machines have ::1 for it, too, where nobody listens.
        assert await read(transport, url.replace("127.0.0.1", "localhost")) == (200, b"hi")


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_certificate_must_be_trusted_and_name_the_host(
    tmp_path: Path, make_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    file = make_certificate(tmp_path, "localhost")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file)
    server = RawServer(OK, OK)

    async def ask() -> None:
        async with serving(server.serve, tls=context) as (stranger, url):
            trusting = Http1Transport(ssl.create_default_context(cafile=file), max_connections=1)
            named = url.replace("http://127.0.0.1", "https://localhost")
            for _ in range(2):
                assert await read(trusting, named) == (200, b"hi")
            for transport, address in (
                (stranger, named),
                (trusting, named.replace("localhost", "127.0.0.1")),
                (trusting, url),  # it is no HTTP that the server speaks
            ):
                with pytest.raises(httpx2.TransportError) as caught:
                    await read(transport, address)
                if address.startswith("https:"):
                    assert isinstance(caught.value, httpx2.ConnectError)
                    assert isinstance(caught.value.__cause__, ssl.SSLCertVerificationError)
            await trusting.aclose()

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(ask())
    assert [len(one) for one in server.requests if one] == [2]


async def test_past_the_limit_a_request_waits_for_a_connection_and_gives_up_in_time() -> None:
    asked = asyncio.Event()

    async def stay_silent(reader: Reader, writer: Writer) -> None:
        asked.set()
        await reader.read()

    async with serving(stay_silent, most=1) as (transport, url):
        first = asyncio.ensure_future(read(transport, url))
        await asked.wait()
        with pytest.raises(httpx2.PoolTimeout):
            await read(transport, url, pool=0.2)
        first.cancel()
        await asyncio.wait({first})
        with pytest.raises(httpx2.ReadTimeout):  # there is room again
            await read(transport, url, read=0.01)


async def test_requests_that_wait_for_a_connection_get_it_one_after_the_other() -> None:
    server = RawServer(OK, OK, OK)
    async with serving(server.serve, most=2) as (transport, url):
        answers = await asyncio.gather(*(read(transport, url) for _ in range(20)))
    assert answers == [(200, b"hi")] * 20


async def test_a_kept_connection_makes_room_for_one_to_another_address() -> None:
    one, other = RawServer(OK, OK), RawServer(OK, OK)
    async with serving(one.serve, most=1) as (transport, url), serving(other.serve) as (_, second):
        for address in (url, second, url):
            assert await read(transport, address) == (200, b"hi")
    assert len(one.requests) == 2


async def test_who_stops_waiting_or_reading_ends_the_connection() -> None:
    endless = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n"
    server = RawServer([endless], OK)
    async with serving(server.serve) as (transport, url):
        response = await transport.handle_async_request(httpx2.Request("GET", url))
        assert await anext(aiter(response.aiter_raw())) == b"hi"
        await response.aclose()
        await server.left.wait()
        server.answers = ([], OK)
        for event in (server.asked, server.left):
            event.clear()
        waiting = asyncio.ensure_future(read(transport, url))
        await server.asked.wait()
        waiting.cancel()
        await server.left.wait()
    assert [len(one) for one in server.requests] == [1, 1]


async def test_a_body_is_received_no_faster_than_it_is_read() -> None:
    size, piece = 64 * 1024 * 1024, b"x" * 65_536
    sent = 0

    async def send(reader: Reader, writer: Writer) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        while sent < size:
            writer.write(piece)
            sent += len(piece)
            await writer.drain()

    async with serving(send) as (transport, url):
        response = await transport.handle_async_request(httpx2.Request("GET", url))
        for _ in range(2000):
            await asyncio.sleep(0)
        assert sent < size // 2
        assert sum([len(chunk) async for chunk in response.aiter_raw()]) == size
        await response.aclose()


async def test_an_answer_that_was_cut_off_on_this_side_is_not_complete() -> None:
    async def answer(reader: Reader, writer: Writer) -> None:
        await reader.readuntil(b"asked")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhi")  # framed by the end of the connection
        await reader.read()

    async with serving(answer) as (transport, url):
        request = httpx2.Request("POST", url, content=b"asked")
        response = await transport.handle_async_request(request)
        body = aiter(response.stream)
        assert await anext(body) == b"hi"
        await transport.aclose()
        with pytest.raises(httpx2.ReadError):
            await anext(body)
        await response.aclose()


async def test_requests_that_wait_use_the_connection_that_becomes_free() -> None:
    server = RawServer(*[OK] * 20)
    async with serving(server.serve, most=1) as (transport, url):
        answers = await asyncio.gather(*[read(transport, url) for _ in range(10)])
    assert answers == [(200, b"hi")] * 10
    assert len(server.requests) == 1
