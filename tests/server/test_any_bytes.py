"""Any bytes on a connection to a gateway are answered or dropped: no 500, and no traceback."""

import asyncio
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvicorn
from anyio.from_thread import start_blocking_portal
from hypothesis import example, given
from hypothesis import strategies as st
from tests.conformance.conftest import make_gateway
from tests.conformance.scripted_agent import ScriptedAgent
from tests.http.test_server_protocol import MemoryTransport
from uvicorn.server import ServerState

from openclaw_a2a.app.lifecycle import uvicorn_options
from openclaw_a2a.http.server_protocol import ServerProtocol
from openclaw_a2a.model.agent_event import Reply

TIMEOUT_S = 240.0
STATUS = re.compile(rb"HTTP/1\.1 ([0-9]{3}) [A-Z]")
LOOP_TURNS = 50
"""More than a request takes whose body is there; one that waits for more is left then."""


class Failures(logging.Handler):
    """Everything that any program logged as an error, or with a traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR or record.exc_info:
            self.found.append(record.getMessage())


Talk = Callable[[list[bytes]], MemoryTransport]


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talk]:
    """Send pieces on a new connection; the client leaves when nothing more happens."""
    data: Path = tmp_path_factory.mktemp("gateway")
    agent = ScriptedAgent(script=lambda _: [Reply.of_text("hello")])
    with start_blocking_portal() as portal:
        gateway = make_gateway(agent, data=data)
        with portal.wrap_async_context_manager(gateway):
            config = uvicorn.Config(gateway.asgi, **uvicorn_options(gateway))
            config.load()

            async def converse(pieces: list[bytes]) -> MemoryTransport:
                wire, state = MemoryTransport(), ServerState()
                make: Callable[..., ServerProtocol] = config.http_protocol_class  # pyright: ignore[reportAssignmentType] - a partial of it
                protocol = make(config=config, server_state=state, app_state={})
                protocol.connection_made(wire)
                for piece in pieces:
                    if not wire.is_closing():
                        protocol.data_received(piece)
                    await asyncio.sleep(0)
                for _ in range(LOOP_TURNS):
                    await asyncio.sleep(0)
                wire.close()
                protocol.connection_lost(None)
                if tasks := set(state.tasks):
                    _, waiting = await asyncio.wait(tasks, timeout=TIMEOUT_S)
                    assert not waiting
                return wire

            yield lambda pieces: portal.call(converse, pieces)


def check(talk: Talk, pieces: list[bytes]) -> bytes:
    """What is answered, which is no failure."""
    failures = Failures()
    logging.getLogger().addHandler(failures)
    try:
        wire = talk(pieces)
    finally:
        logging.getLogger().removeHandler(failures)
    assert failures.found == []
    assert not wire.written or STATUS.match(wire.written)
    assert all(status < b"500" for status in STATUS.findall(wire.written)), wire.written
    # Nothing comes after a refusal.
    _, _, rest = wire.written.partition(b'{"error":{"code":"invalid-request"')
    assert not STATUS.search(rest)
    return wire.written


HOST = b"host: 127.0.0.1:9900\r\n"
GET = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"
FRAGMENTS = [
    b"GET /healthz HTTP/1.1\r\n",
    b"GET http://127.0.0.1:9900/healthz HTTP/1.1\r\n",
    b"GET * HTTP/1.1\r\n",
    b"GET //x?y#z HTTP/1.0\r\n",
    b"HEAD /.well-known/agent-card.json HTTP/1.1\r\n",
    b"OPTIONS * HTTP/1.1\r\n",
    b"CONNECT 127.0.0.1:9900 HTTP/1.1\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"POST /a2a/jsonrpc HTTP/1.1\r\n",
    b"DELETE /a2a/rest/tasks/%00 HTTP/1.1\r\n",
    HOST,
    b"host: evil.example\r\n",
    b"origin: null\r\n",
    b"content-type: application/json\r\n",
    b"content-length: 2\r\n",
    b"content-length: 0\r\n",
    b"content-length: " + b"0" * 5000 + b"2\r\n",
    b"transfer-encoding: chunked\r\n",
    b"content-encoding: gzip\r\n",
    b"connection: close\r\n",
    b"connection: keep-alive, upgrade\r\n",
    b"upgrade: h2c\r\n",
    b"upgrade: websocket\r\n",
    b"expect: 100-continue\r\n",
    b"x-forwarded-for: 10.0.0.1, \xff\r\n",
    b"authorization: Bearer \xff\r\n",
    b"a2a-version: 1.0\r\n",
    b"a2a-extensions: ,\r\n",
    b"last-event-id: 1\r\n",
    b" folded\r\n",
    b"\r\n",
    b"\n",
    b"\r",
    b"\x00",
    b"{}",
    b"2\r\n{}\r\n",
    b"0\r\n\r\n",
    b"0\r\nx: y\r\n\r\n",
    b"fffffffffffffffff\r\n",
    GET,
]
_bytes = st.lists(st.sampled_from(FRAGMENTS) | st.binary(max_size=12), max_size=14).map(b"".join)
_heads = st.permutations(FRAGMENTS[10:29]).flatmap(
    lambda lines: st.builds(
        lambda first, count, rest: b"".join([first, HOST, *lines[:count], b"\r\n", rest]),
        st.sampled_from(FRAGMENTS[:10]),
        st.integers(0, 5),
        _bytes,
    )
)
_cuts = st.lists(st.integers(0, 400), max_size=4)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The data in pieces."""
    ends = [*sorted(places), len(data)]
    pieces = [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    return [piece for piece in pieces if piece]


@pytest.mark.requirement("promise.bounds.hostile")
@given(data=st.binary(max_size=400) | _bytes | _heads, places=_cuts)
@example(data=b"GET http:// HTTP/1.1\r\nhost: a\r\n\r\n", places=[])
@example(data=b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", places=[3])
@example(data=b"OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n", places=[])
@example(data=GET + b"\r\n\r\n" + GET, places=[])
@example(data=GET[:-2] + b"content-length: " + b"0" * 5000 + b"2\r\n\r\n{}", places=[])
def test_arbitrary_bytes_are_answered_or_dropped(
    talk: Talk, data: bytes, places: list[int]
) -> None:
    check(talk, cut(data, places))


@pytest.mark.requirement("promise.bounds.hostile")
@given(before=st.integers(0, 3), data=_heads, places=_cuts)
def test_what_follows_does_not_change_the_responses_before_it(
    talk: Talk, before: int, data: bytes, places: list[int]
) -> None:
    written = check(talk, cut(GET * before + data, places))
    assert written.count(b'{"status":"ok"') >= before


@pytest.mark.requirement("promise.bounds.smuggling")
@given(data=_heads.filter(lambda data: b"transfer-encoding" not in data), places=_cuts)
def test_pieces_do_not_change_what_is_refused(talk: Talk, data: bytes, places: list[int]) -> None:
    """A wrong chunk may come before the response or after it; a wrong head never after it."""
    whole, pieces = (check(talk, one) for one in ([data], cut(data, places)))
    assert is_refused(whole) == is_refused(pieces)


def is_refused(written: bytes) -> bool:
    """True when the first response is the refusal of its head."""
    first = written.partition(b"HTTP/1.1 ")[2][:400]
    return b'"invalid-request"' in first and b"connection: close" in first
