"""Requests that two programs may take apart in two ways, so that one hides in another.

A proxy in front of the gateway decides where a request ends, and so does the gateway. Where the two
could differ, the request is refused and the connection closed: nothing that follows is answered.
"""

import asyncio
import json
import re
from contextlib import suppress

import pytest
from tests.conftest import GatewayProcess
from tests.hostile.raw_client import TIMEOUT_S, RawClient, healthy

from openclaw_a2a.http.asgi import DRAIN_BYTES

pytestmark = [pytest.mark.slow, pytest.mark.requirement("promise.bounds.smuggling")]

HIDDEN = b"GET /hidden HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
"""What must never be answered."""
START = b"POST /a2a/jsonrpc HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"
EMPTY = b"0\r\n\r\n"
"""The end of a chunked body; as bytes of a length it is five."""


def framed(*lines: bytes, body: bytes = EMPTY + HIDDEN) -> bytes:
    """A request with these lines, and what follows its head."""
    return START + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + body


def encoded(coding: bytes) -> bytes:
    """A request whose body has this transfer coding."""
    return framed(b"transfer-encoding: " + coding)


def sized(length: bytes) -> bytes:
    """A request whose body has this length."""
    return framed(b"content-length: " + length, body=b"{}" + HIDDEN)


def chunks(body: bytes) -> bytes:
    """A request with these bytes as its chunks."""
    return framed(CHUNKED.strip(), body=body + EMPTY + HIDDEN)


def line(first: bytes) -> bytes:
    """A request with this first line."""
    return first + b"\r\nhost: 127.0.0.1\r\n\r\n" + HIDDEN


LENGTH = b"content-length: 5"
SHAPES = {
    "length before chunks": framed(LENGTH, CHUNKED.strip()),
    "chunks before length": framed(CHUNKED.strip(), LENGTH),
    "chunks and length 0": framed(CHUNKED.strip(), b"content-length: 0"),
    "equal lengths": framed(LENGTH, LENGTH, body=b"{    " + HIDDEN),
    "different lengths": framed(LENGTH, b"content-length: 2", body=b"{}   " + HIDDEN),
    "listed lengths": sized(b"2, 2"),
    "length with plus": sized(b"+2"),
    "length with minus": sized(b"-2"),
    "hexadecimal length": sized(b"0x2"),
    "length with fraction": sized(b"2.0"),
    "length with exponent": sized(b"2e0"),
    "length with underscore": sized(b"0_2"),
    "length of two words": sized(b"2 2"),
    "length with parameter": sized(b"2;x=1"),
    "empty length": sized(b""),
    "length in quotes": sized(b'"2"'),
    "length in other digits": sized("\u0662".encode()),
    "length past 64 bits": sized(b"18446744073709551618"),
    "length of many digits": sized(b"0" * 5000 + b"2"),
    "space before colon of length": framed(b"content-length : 2", body=b"{}" + HIDDEN),
    "xchunked": encoded(b"xchunked"),
    "chunked first": encoded(b"chunked, identity"),
    "identity first": encoded(b"identity, chunked"),
    "identity": encoded(b"identity"),
    "gzip": encoded(b"gzip"),
    "gzip first": encoded(b"gzip, chunked"),
    "chunked twice": encoded(b"chunked, chunked"),
    "empty coding": encoded(b""),
    "empty item": encoded(b", chunked"),
    "coding in quotes": encoded(b'"chunked"'),
    "coding with parameter": encoded(b"chunked;q=1"),
    "coding after a vertical tab": encoded(b"\x0bchunked"),
    "coding before a vertical tab": encoded(b"chunked\x0b"),
    "coding before a zero": encoded(b"chunked\x00"),
    "coding in two words": encoded(b"chunked chunked"),
    "two lines of chunked": framed(CHUNKED.strip(), CHUNKED.strip()),
    "identity in a line of its own": framed(b"transfer-encoding: identity", CHUNKED.strip()),
    "space before colon": framed(b"transfer-encoding : chunked"),
    "tab before colon": framed(b"transfer-encoding\t: chunked"),
    "folded line": framed(b"transfer-encoding:", b" chunked"),
    "folded into another": framed(b"x: y", b" transfer-encoding: chunked"),
    "folded with tab": framed(b"x: y", b"\ttransfer-encoding: chunked"),
    "space before the first line": START.replace(b"\r\nhost", b"\r\n host") + b"\r\n" + HIDDEN,
    "zero in a name": framed(b"transfer-encoding\x00: chunked"),
    "no name": framed(b": chunked"),
    "no colon": framed(b"transfer-encoding"),
    "return in a value": framed(b"x: y\rtransfer-encoding: chunked"),
    "line feed alone in the head": START + b"x: y\n" + CHUNKED + b"\r\n" + EMPTY + HIDDEN,
    "line feed alone after the head": START + CHUNKED + b"\n" + EMPTY + HIDDEN,
    "line feeds only": framed(CHUNKED.strip()).replace(b"\r\n", b"\n"),
    "return alone after the head": START + CHUNKED + b"\r" + EMPTY + HIDDEN,
    "chunks in HTTP/1.0": framed(CHUNKED.strip()).replace(b"HTTP/1.1", b"HTTP/1.0", 1),
    "chunk of hexadecimal size": chunks(b"0x2\r\n{}\r\n"),
    "chunk of size 0x": chunks(b"0x\r\n\r\n"),
    "chunk size with plus": chunks(b"+2\r\n{}\r\n"),
    "chunk size with minus": chunks(b"-2\r\n{}\r\n"),
    "chunk size after space": chunks(b" 2\r\n{}\r\n"),
    "chunk size before space": chunks(b"2 \r\n{}\r\n"),
    "chunk size with underscore": chunks(b"0_2\r\n{}\r\n"),
    "chunk without size": chunks(b"\r\n{}\r\n"),
    "chunk past 64 bits": chunks(b"10000000000000002\r\n{}\r\n"),
    "chunk size ended by line feed": chunks(b"2\n{}\r\n"),
    "chunk size ended by return": chunks(b"2\r{}\r\n"),
    "chunk ended by line feed": chunks(b"2\r\n{}\n"),
    "chunk ended by return": chunks(b"2\r\n{}\r"),
    "chunk longer than its size": chunks(b"2\r\n{}}\r\n"),
    "chunk extension with line feed": chunks(b"2;x\n{}\r\n"),
    "chunk extension with zero": chunks(b"2;\x00\r\n{}\r\n"),
    "last chunk ended by line feed": framed(CHUNKED.strip(), body=b"0\n\r\n" + HIDDEN),
    "body ended by line feed": framed(CHUNKED.strip(), body=b"0\r\n\n" + HIDDEN),
    "trailer with line feed": framed(CHUNKED.strip(), body=b"0\r\nx: y\n\r\n" + HIDDEN),
    "folded trailer": framed(CHUNKED.strip(), body=b"0\r\nx: y\r\n z\r\n\r\n" + HIDDEN),
    "two versions": line(b"GET / HTTP/1.1 HTTP/1.1"),
    "version 1.2": line(b"GET / HTTP/1.2"),
    "version 2.0": line(b"GET / HTTP/2.0"),
    "version 0.9": line(b"GET / HTTP/0.9"),
    "no version": line(b"GET /"),
    "version in small letters": line(b"GET / http/1.1"),
    "tab in the first line": line(b"GET\t/ HTTP/1.1"),
    "space in the target": line(b"GET /a b HTTP/1.1"),
    "space before the method": line(b" GET / HTTP/1.1"),
    "zero in the target": line(b"GET /\x00 HTTP/1.1"),
    "other scripts in the target": line("GET /\u00e9 HTTP/1.1".encode()),
    "target without slash": line(b"GET hidden HTTP/1.1"),
    "method in small letters": line(b"get / HTTP/1.1"),
    "no method": line(b"/ HTTP/1.1"),
    "line feed after the first line": line(b"GET / HTTP/1.1").replace(b"\r\n", b"\n", 1),
}


@pytest.mark.parametrize("step", [0, 7], ids=["at once", "in pieces"])
@pytest.mark.parametrize("shape", SHAPES)
async def test_a_request_of_unclear_extent_is_refused_and_what_follows_not_answered(
    standing_gateway: GatewayProcess, shape: str, step: int
) -> None:
    data = SHAPES[shape]
    pieces = [data[at : at + step] for at in range(0, len(data), step)] if step else [data]
    async with RawClient(standing_gateway.port) as client:
        with suppress(ConnectionError):
            for piece in pieces:
                await client.send(piece)
        assert await client.response() == 400, client.heard
        assert client.header(b"connection") == b"close"
        assert client.json["error"]["code"] == "invalid-request"
        assert len(re.findall(rb"HTTP/1\.1 [0-9]{3} ", client.heard)) == 1
        assert b"hidden" not in client.heard
    await healthy(standing_gateway.port)


def call(name: str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": name, "method": "ListTasks", "params": {}}).encode()


@pytest.mark.parametrize("coding", [b"chunked", b"Chunked", b"\tchunked "])
async def test_requests_that_follow_each_other_have_an_answer_each(
    standing_gateway: GatewayProcess, coding: bytes
) -> None:
    """Bodies end where their length or their last chunk says, whatever they look like."""
    first, second, third = call(f"GET /hidden HTTP/1.1\r\n\r\n{EMPTY!r}"), call("b"), call("c")
    version = b"a2a-version: 1.0"
    data = b"".join(
        [
            framed(version, b"content-length: 0%d" % len(first), body=first),
            framed(
                version,
                b"transfer-encoding:" + coding,
                body=b"%x;ext=1\r\n%b\r\n0\r\nx: y\r\n\r\n" % (len(second), second),
            ),
            framed(version, b"content-length: %d" % len(third), b"connection: close", body=third),
        ]
    )
    async with RawClient(standing_gateway.port) as client:
        await client.send(data)
        assert await client.response() == 200
        answers = client.heard.split(b"HTTP/1.1 200 OK\r\n")[1:]
        ids = [json.loads(answer.partition(b"\r\n\r\n")[2])["id"] for answer in answers]
        assert ids == [json.loads(one)["id"] for one in (first, second, third)]


@pytest.mark.parametrize("path", [b"/healthz", b"/nowhere", b"/a2a/rest/tasks", b"/operator/tasks"])
async def test_a_body_that_nobody_reads_hides_no_request(
    standing_gateway: GatewayProcess, path: bytes
) -> None:
    bodies = [
        (b"content-length: %d" % len(HIDDEN), HIDDEN),
        (CHUNKED.strip(), b"%x\r\n%b\r\n0\r\n\r\n" % (len(HIDDEN), HIDDEN)),
        (CHUNKED.strip(), b"0x2\r\n{}\r\n" + HIDDEN),
    ]
    for header, body in bodies:
        async with RawClient(standing_gateway.port) as client:
            await client.send(b"GET %b HTTP/1.1\r\nhost: 127.0.0.1\r\n%b\r\n\r\n" % (path, header))
            await client.wait_readable(TIMEOUT_S)
            with suppress(ConnectionError):
                await client.send(body + HIDDEN)
            await client.response()
            assert b"GET /hidden" not in client.heard


async def test_the_rest_of_a_body_that_is_not_received_to_its_end_is_no_request(
    standing_gateway: GatewayProcess,
) -> None:
    """A refused body is received up to a limit; what follows must not be taken for requests."""
    body = HIDDEN * (2 * DRAIN_BYTES // len(HIDDEN))
    async with RawClient(standing_gateway.port) as client:
        hearing = asyncio.ensure_future(client.hear())
        head = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n"
        await client.send(head % len(body))
        with suppress(ConnectionError):
            await client.send(body)
        async with asyncio.timeout(TIMEOUT_S):
            await hearing
        assert client.status == 200
        assert client.heard.count(b"HTTP/1.1 ") == 1, client.heard[:2000]


async def test_trailers_of_a_request_that_waits_for_its_turn_are_no_headers(
    standing_gateway: GatewayProcess,
) -> None:
    """It waits for the first one, and by then its trailers have come."""
    body = call("b")
    second = framed(
        b"a2a-version: 1.0",
        CHUNKED.strip(),
        b"connection: close",
        body=b"%x\r\n%b\r\n0\r\norigin: http://evil.example\r\na2a-version: 9.9\r\n\r\n"
        % (len(body), body),
    )
    first = call("a")
    async with RawClient(standing_gateway.port) as client:
        await client.send(
            framed(b"a2a-version: 1.0", b"content-length: %d" % len(first), body=first) + second
        )
        assert await client.response() == 200
        assert client.heard.count(b"HTTP/1.1 200 OK\r\n") == 2, client.heard
        assert b'"id":"b","result"' in client.heard
