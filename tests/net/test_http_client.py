"""The outgoing HTTP client reads a bounded answer and connects only to checked addresses."""

import asyncio
import gzip
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import httpx2
import pytest

from openclaw_a2a.net.http_client import (
    HttpClient,
    ResponseEncoded,
    ResponseTooLarge,
    SyncHttpClient,
)

LIMIT = 1000


class Server:
    """Answers every request with the same bytes, and records the requests."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.requests: list[str] = []
        self.port = 0
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.requests.append(head.decode())
                writer.write(self.answer)
                await writer.drain()
                if b"content-length" not in self.answer:
                    break
        writer.close()


@asynccontextmanager
async def serving(answer: bytes) -> AsyncGenerator[Server]:
    server = Server(answer)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()


def answer(body: bytes, *headers: str) -> bytes:
    lines = ["HTTP/1.1 200 OK", f"content-length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


async def test_an_answer_within_the_limit_is_read() -> None:
    async with serving(answer(b"x" * LIMIT)) as server, HttpClient(max_response_bytes=LIMIT) as one:
        response = await one.get(f"http://127.0.0.1:{server.port}/")
    assert response.content == b"x" * LIMIT
    assert "accept-encoding: identity" in server.requests[0].lower()


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize(
    "sent",
    [
        answer(b"x" * (LIMIT + 1)),
        b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + b"x" * (LIMIT + 1),
    ],
)
async def test_an_answer_over_the_limit_is_an_error(sent: bytes, is_streamed: bool) -> None:
    async with serving(sent) as server, HttpClient(max_response_bytes=LIMIT) as client:
        with pytest.raises(ResponseTooLarge, match=f"larger than {LIMIT} bytes"):
            if is_streamed:
                async with client.stream("GET", f"http://127.0.0.1:{server.port}/") as response:
                    await response.aread()
            else:
                await client.get(f"http://127.0.0.1:{server.port}/")


async def test_a_compressed_answer_is_an_error() -> None:
    body = gzip.compress(b"x" * 100)
    async with serving(answer(body, "content-encoding: gzip")) as server, HttpClient() as client:
        with pytest.raises(ResponseEncoded, match="gzip"):
            await client.get(f"http://127.0.0.1:{server.port}/")


async def test_a_redirect_is_not_followed() -> None:
    sent = b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"
    async with serving(sent) as server, HttpClient() as client:
        response = await client.get(f"http://127.0.0.1:{server.port}/")
    assert response.status_code == 302


async def test_a_name_is_connected_to_at_its_checked_address() -> None:
    async with serving(answer(b"hi")) as server, HttpClient(find_addresses=loopback) as client:
        for _ in range(2):
            response = await client.get(f"http://peer.example:{server.port}/path")
            assert response.content == b"hi"
    assert f"host: peer.example:{server.port}" in server.requests[0].lower()
    assert server.connections == 2, "a kept connection would outlive the check of its address"


async def test_the_next_address_is_tried_when_one_accepts_no_connection() -> None:
    async def find(host: str, port: int) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]

    async with serving(answer(b"hi")) as server, HttpClient(find_addresses=find) as client:
        response = await client.post(f"http://peer.example:{server.port}/", content=b"body")
    assert response.content == b"hi"


async def test_a_host_without_a_reachable_address_is_a_connect_error() -> None:
    async with HttpClient(find_addresses=loopback) as client:
        with pytest.raises(httpx2.ConnectError):
            await client.get("http://peer.example:1/")


async def test_proxies_of_the_environment_are_used_only_on_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(answer(b"by proxy")) as proxy, serving(answer(b"direct")) as server:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        url = f"http://127.0.0.1:{server.port}/"
        async with HttpClient() as direct, HttpClient(use_proxies=True) as proxied:
            assert (await direct.get(url)).content == b"direct"
            assert (await proxied.get(url)).content == b"by proxy"


async def test_commands_have_the_same_limits() -> None:
    def get(url: str) -> None:
        with SyncHttpClient(max_response_bytes=LIMIT) as client:
            client.get(url)

    async with serving(answer(b"x" * (LIMIT + 1))) as server:
        with pytest.raises(ResponseTooLarge):
            await asyncio.to_thread(get, f"http://127.0.0.1:{server.port}/")
    async with serving(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + b"x" * 2000) as server:
        with pytest.raises(ResponseTooLarge):
            await asyncio.to_thread(get, f"http://127.0.0.1:{server.port}/")
