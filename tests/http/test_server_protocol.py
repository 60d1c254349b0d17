"""Requests in any packets: what the application gets, and what h11 reads from the same bytes."""

import asyncio
import re
from typing import Any

import h11
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn import Config
from uvicorn.server import ServerState

from openclaw_a2a.http.connection_table import ConnectionTable
from openclaw_a2a.http.server_protocol import ServerProtocol
from openclaw_a2a.settings import Limits, ServerSettings

Json = Any
TIMEOUT_S = 240.0


class MemoryTransport(asyncio.Transport):
    """A connection without a socket: keeps what is written."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.written = b""
        self.is_closed = self.is_paused = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self if name == "socket" else super().get_extra_info(name, default)

    def fileno(self) -> int:
        return 3

    def setsockopt(self, *_: Any) -> None:
        """As a socket has it."""

    def write(self, data: Any) -> None:
        self.written += data

    def write_eof(self) -> None:
        self.is_closed = True

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


class Server:
    """One connection to an application that answers each request with its number."""

    def __init__(self) -> None:
        self.requests: list[tuple[Json, bytes]] = []
        config = Config(self.answer, interface="asgi3", lifespan="off", log_config=None, ws="none")
        config.load()
        self.state = ServerState()
        table = ConnectionTable(Limits(), ServerSettings())
        loop = asyncio.get_running_loop()
        self.protocol = ServerProtocol(config, self.state, {}, loop, table=table)
        self.transport = MemoryTransport()
        self.protocol.connection_made(self.transport)

    async def answer(self, scope: Json, receive: Any, send: Any) -> None:
        body, has_more = b"", True
        while has_more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message["body"]
            has_more = message["more_body"]
        self.requests.append((scope, body))
        text = b"%d" % len(self.requests)
        headers = [(b"content-length", b"%d" % len(text))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": text})

    async def feed(self, data: bytes, cuts: list[int]) -> None:
        """Receive the data in packets that end at the cuts."""
        ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
        for start, end in zip([0, *ends], ends, strict=False):
            if start < end and not self.transport.is_closed:
                self.protocol.data_received(data[start:end])
                await asyncio.sleep(0)
        async with asyncio.timeout(TIMEOUT_S):
            for _ in range(10 * len(data) + 10):
                await asyncio.sleep(0)
                if not self.state.tasks:
                    break
        self.protocol.connection_lost(None)
        async with asyncio.timeout(TIMEOUT_S):
            await asyncio.gather(*self.state.tasks)


bodies = st.binary(max_size=40) | st.sampled_from([b"\r\n\r\n", b"0\r\n\r\n", b"\r\n0\r\n\r\n"])
names = st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,8}", fullmatch=True).filter(
    lambda name: name.lower() not in ("host", "expect", "upgrade", "connection", "origin", "te")
)
values = st.from_regex(r"[!-~]([ -~]{0,10}[!-~])?", fullmatch=True)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A valid request, with a body in one of the ways that there are."""
    method = draw(st.sampled_from(["POST", "PUT", "GET"]))
    target = draw(st.sampled_from(["/", "/a%20b?c=d", "/x/y?", "/?%"]))
    extra = draw(st.dictionaries(names, values, max_size=3))
    lines = [f"{method} {target} HTTP/1.1", "Host: gateway.example:1"]
    lines += [f"{name}: {value}" for name, value in extra.items()]
    parts = draw(st.lists(bodies, max_size=4))
    if draw(st.booleans()):
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in parts if one)
        trailer = draw(st.sampled_from([b"", b"x: y\r\n"]))
        body = chunks + b"0\r\n" + trailer + b"\r\n"
        lines.append("Transfer-Encoding: chunked")
    else:
        body = b"".join(parts)
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def read_by_h11(data: bytes) -> list[tuple[bytes, bytes, list[tuple[bytes, bytes]], bytes]]:
    """The requests that another parser finds in the data."""
    connection = h11.Connection(h11.SERVER)
    found: list[tuple[bytes, bytes, list[tuple[bytes, bytes]], bytes]] = []
    connection.receive_data(data)
    while isinstance(event := connection.next_event(), h11.Request):
        request, body = event, b""
        while isinstance(event := connection.next_event(), h11.Data):
            body += bytes(event.data)
        assert isinstance(event, h11.EndOfMessage)
        found.append((request.method, request.target, list(request.headers), body))
        connection.send(h11.Response(status_code=204, headers=[]))
        connection.send(h11.EndOfMessage())
        connection.start_next_cycle()
    return found


@settings(max_examples=150, deadline=None)
@given(st.lists(requests(), min_size=1, max_size=4), st.lists(st.integers(0, 600), max_size=8))
async def test_requests_in_any_packets_are_those_that_another_parser_reads(
    sent: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(sent)
    server = Server()
    await server.feed(data, cuts)
    expected = read_by_h11(data)
    assert len(expected) == len(sent)
    seen = [
        (scope["method"].encode(), scope["raw_path"], scope["headers"], body)
        for scope, body in server.requests
    ]
    assert seen == [
        (method, target.partition(b"?")[0], headers, body)
        for method, target, headers, body in expected
    ]
    assert server.transport.written.count(b"HTTP/1.1 200 OK\r\n") == len(sent)


lengths = st.sampled_from(
    ["content-length: ", "Content-Length: ", "content-length:", "CONTENT-LENGTH:  "]
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(lengths, st.booleans(), bodies), min_size=2, max_size=6))
async def test_heads_that_differ_in_the_length_only_are_those_that_another_parser_reads(
    sent: list[tuple[str, bool, bytes]],
) -> None:
    data = b""
    for length, is_last_line, body in sent:
        lines = [f"{length}{len(body):0{1 + is_last_line}}", "X-1: content-length: 5"]
        named = "\r\n".join(["POST /1 HTTP/1.1", "Host: a.example", *lines])
        data += named.encode() + b"\r\n\r\n" + body
    server = Server()
    await server.feed(data, [])
    seen = [(scope["path"].encode(), scope["headers"], body) for scope, body in server.requests]
    assert seen == [(target, headers, body) for _, target, headers, body in read_by_h11(data)]


async def test_a_length_that_is_no_number_is_refused_also_after_the_same_head_with_one() -> None:
    for wrong in (b"+1", b"1 ", b"1, 1", b"1\r\nContent-Length: 1", b"-1", b"0x1", b"", b"\xb2"):
        server = Server()
        data = b"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: %b\r\nA: b\r\n\r\nx"
        await server.feed(data % b"1" + data % wrong, [])
        statuses = re.findall(rb"HTTP/1\.1 (\d{3}) ", server.transport.written)
        assert statuses == ([b"200", b"200"] if wrong == b"1 " else [b"200", b"400"]), wrong


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=300)
    | st.tuples(requests(), st.integers(0, 300), st.binary(max_size=5)).map(
        lambda one: one[0][: one[1]] + one[2] + one[0][one[1] :]
    ),
    st.lists(st.integers(0, 300), max_size=5),
)
async def test_any_bytes_are_answered_refused_or_awaited(data: bytes, cuts: list[int]) -> None:
    server = Server()
    await server.feed(data, cuts)
    statuses = re.findall(rb"HTTP/1\.1 (\d{3}) ", server.transport.written)
    # Nothing follows a refusal: where the next request begins is not known.
    assert set(statuses[:-1]) <= {b"200"}
    assert set(statuses[-1:]) <= {b"200", b"400", b"431"}


async def test_a_response_with_a_known_length_is_one_write() -> None:
    server, writes = Server(), list[bytes]()
    server.transport.write = writes.append  # type: ignore[method-assign]
    await server.feed(b"GET / HTTP/1.1\r\nhost: gateway.example\r\n\r\n", [])
    assert len(writes) == 1
    assert writes[0].endswith(b"content-length: 1\r\n\r\n1")
