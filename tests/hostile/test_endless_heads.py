"""Heads of requests without end: before any token is shown, they cost next to nothing."""

import asyncio
import json
import socket
from contextlib import suppress

import pytest
from tests.conftest import GatewayProcess, StartGateway
from tests.hostile.raw_client import TIMEOUT_S, RawClient, healthy, resident_bytes

pytestmark = [pytest.mark.slow, pytest.mark.requirement("promise.bounds.headers")]

START = b"POST /a2a/jsonrpc HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
CHUNKED = START + b"transfer-encoding: chunked\r\n\r\n"
ATTACKS = {
    "request line": (b"GET /", b"a" * 16_384),
    "query": (b"GET /?", b"a" * 16_384),
    "header name": (START + b"x", b"a" * 16_384),
    "header value": (START + b"x: ", b"a" * 16_384),
    "headers": (START, b"x-a: b\r\n" * 2_048),
    "tiny headers": (START, b"a:b\r\n" * 2_048),
    "empty lines": (b"\r\n", b"\r\n" * 8_192),
    "trailer value": (CHUNKED + b"0\r\nx: ", b"a" * 16_384),
    "trailers": (CHUNKED + b"2\r\n{}\r\n0\r\n", b"x-a: b\r\n" * 2_048),
    "chunk extension": (CHUNKED + b"1;x=", b"a" * 16_384),
    "second chunk extension": (CHUNKED + b"1\r\n{\r\n1;x=", b"a" * 16_384),
}
MOST_SENT = 8 * 1024 * 1024
"""What is taken until a connection is closed: the limit, and what fits socket buffers."""


@pytest.mark.parametrize("name", ATTACKS)
async def test_a_head_without_end_is_refused_and_the_connection_closed(
    gateway: GatewayProcess, name: str
) -> None:
    start, more = ATTACKS[name]
    before = resident_bytes(gateway.pid)
    async with RawClient(gateway.port) as client:
        await client.send(start)
        sent = await client.send_until_closed(more, most=20 * MOST_SENT)
        assert sent < MOST_SENT
        assert client.status in (400, 431)
        assert client.header(b"connection") == b"close"
        assert client.json["error"]["code"] == "headers-too-large"
    assert resident_bytes(gateway.pid) < before + 64 * 1024 * 1024
    await healthy(gateway.port)


async def test_as_many_headers_and_bytes_as_are_allowed_are_served(gateway: GatewayProcess) -> None:
    lines = [b"GET /healthz HTTP/1.1", b"host: 127.0.0.1", b"connection: close"]
    lines += [b"x-%d: y" % number for number in range(98)]
    async with RawClient(gateway.port) as client:
        await client.send(b"\r\n".join([*lines, b"", b""]))
        assert await client.response() == 200
    long = b"x-long: " + b"y" * 32_000
    async with RawClient(gateway.port) as client:
        await client.send(b"\r\n".join([*lines[:3], long, b"", b""]))
        assert await client.response() == 200


@pytest.mark.parametrize("at_once", [True, False])
async def test_one_header_more_than_allowed_is_refused(
    start_gateway: StartGateway, at_once: bool
) -> None:
    gateway = start_gateway({"limits": {"headers": 5, "headerBytes": 1000}})
    head = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    many = head + b"a: b\r\n" * 5 + b"\r\n"
    long = head + b"a: " + b"b" * 1000 + b"\r\n\r\n"
    for request, setting in ((many, "limits.headers"), (long, "limits.headerBytes")):
        async with RawClient(gateway.port) as client:
            parts = [request] if at_once else [request[at : at + 7] for at in range(0, 1100, 7)]
            with suppress(ConnectionError):
                for part in parts:
                    await client.send(part)
            assert await client.response() == 431
            assert setting in client.json["error"]["message"]
            assert client.json["error"]["details"]["setting"] == setting


async def test_a_head_that_drips_in_is_answered_408_at_its_deadline(
    start_gateway: StartGateway,
) -> None:
    gateway = start_gateway({"server": {"headerSeconds": 0.5}})
    async with RawClient(gateway.port) as client:
        with suppress(ConnectionError):
            async with asyncio.timeout(TIMEOUT_S):  # there are bytes for much longer
                for byte in START * 1000:
                    await client.send(bytes([byte]))
                    if await client.wait_readable(0.05):
                        break
        assert await client.response() == 408
        assert client.json["error"]["code"] == "headers-too-slow"
        assert "server.headerSeconds" in client.json["error"]["message"]
        assert client.json["error"]["details"]["setting"] == "server.headerSeconds"


@pytest.mark.parametrize(
    "framing", [b"content-length: 1000\r\n\r\n", b"transfer-encoding: chunked\r\n\r\n"]
)
async def test_a_body_that_drips_in_is_answered_408_at_its_deadline(
    start_gateway: StartGateway, framing: bytes
) -> None:
    gateway = start_gateway({"server": {"bodySeconds": 0.5}})
    piece = b"1\r\n \r\n" if b"chunked" in framing else b" "
    async with RawClient(gateway.port) as client:
        with suppress(ConnectionError):
            await client.send(START + b"a2a-version: 1.0\r\n" + framing)
            for _ in range(900):
                await client.send(piece)
                if await client.wait_readable(0.05):
                    break
        assert await client.response() == 408
        assert b"body-too-slow" in client.heard
        assert client.heard.count(b"server.bodySeconds") == 2  # in the sentence, and the details


async def test_trailers_do_not_become_headers(gateway: GatewayProcess) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}
    body = json.dumps(call).encode()
    async with RawClient(gateway.port) as client:
        await client.send(
            CHUNKED + b"%x;ext=1\r\n%b\r\n0\r\n" % (len(body), body) + b"a2a-version: 9.9\r\n\r\n"
        )
        assert await client.response(whole=False) == 200


async def test_many_small_chunks_are_a_body_like_any_other(gateway: GatewayProcess) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {"filler": "x" * 40_000}}
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in json.dumps(call).encode())
    async with RawClient(gateway.port) as client:
        await client.send(CHUNKED.replace(b"\r\n\r\n", b"\r\na2a-version: 1.0\r\n\r\n"))
        await client.send(chunks + b"0\r\n\r\n")
        assert await client.response(whole=False) == 200


async def test_requests_that_are_sent_without_waiting_are_answered_in_order(
    gateway: GatewayProcess,
) -> None:
    count = 3_000
    request = b"GET /nowhere/%d HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    before = resident_bytes(gateway.pid)
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    async with asyncio.timeout(240):
        writer.write(b"".join(request % number for number in range(count)))
        heard = b""
        for number in range(count):
            while b"/nowhere/%d " % number not in heard:
                chunk = await reader.read(65_536)
                assert chunk, heard
                heard += chunk
            heard = heard[heard.index(b"/nowhere/%d " % number) :]
    writer.close()
    assert resident_bytes(gateway.pid) < before + 64 * 1024 * 1024


async def test_a_bad_request_behind_a_good_one_does_not_disturb_its_response(
    gateway: GatewayProcess,
) -> None:
    async with RawClient(gateway.port) as client:
        await client.send(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\nNO SUCH THING\r\n\r\n")
        assert await client.response() == 200
        first, _, second = client.heard.partition(b"HTTP/1.1 400 Bad Request\r\n")
        assert b'"status":"ok"' in first
        assert b"invalid-request" in second


UPGRADE = (
    b"GET %b HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@pytest.mark.parametrize("path", [b"/", b"/a2a/jsonrpc", b"/healthz", b"/nowhere"])
async def test_a_websocket_upgrade_is_refused(gateway: GatewayProcess, path: bytes) -> None:
    async with RawClient(gateway.port) as client:
        await client.send(UPGRADE % path)
        assert await client.response() == 400
        assert "WebSocket" in client.json["error"]["message"]
    assert "Traceback" not in gateway.output()


async def test_an_offer_to_upgrade_to_http_2_is_ignored_and_the_body_read(
    gateway: GatewayProcess,
) -> None:
    call = {"jsonrpc": "2.0", "id": 7, "method": "ListTasks", "params": {}}
    body = json.dumps(call).encode()
    head = START + b"a2a-version: 1.0\r\nconnection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\n"
    head += b"http2-settings: AAMAAABkAARAAAAAAAIAAAAA\r\ncontent-length: %d\r\n\r\n" % len(body)
    for parts in ([head + body], [head, body], [head + body + head, body]):
        async with RawClient(gateway.port) as client:
            for part in parts:
                await client.send(part)
                await client.wait_readable(0.2)
            assert await client.response(whole=False) == 200
            while b'"id":7' not in client.heard:
                assert await client.wait_readable(TIMEOUT_S)
                assert not client.reader.at_eof()


async def test_a_refused_client_that_stays_is_cut_off(gateway: GatewayProcess) -> None:
    """It may read the answer; what it sends meanwhile is dropped, for a moment and not for ever."""
    async with RawClient(gateway.port) as client:
        await client.send(b"NO SUCH THING\r\n\r\n")
        assert await client.response() == 400
        with pytest.raises(ConnectionError):
            async with asyncio.timeout(TIMEOUT_S):
                while True:
                    await client.send(b"more")
                    await asyncio.sleep(0.05)  # another process has to cut it off


async def test_a_client_that_leaves_a_connection_half_closed_is_forgotten(
    gateway: GatewayProcess,
) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port)) as connection:
        connection.sendall(START)
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(TIMEOUT_S)
        assert connection.recv(1) == b""
