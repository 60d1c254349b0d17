"""Streams of server-sent events: slots, and clients that do not read."""

import asyncio
from collections.abc import Sequence

import anyio
import pytest
from tests.captured_logs import capture_logs
from tests.conformance.asgi_client import AsgiClient, AsgiMessage, Receive, Request, Send

from openclaw_a2a.http.asgi import AsgiRequest, HttpRequest
from openclaw_a2a.http.sse_stream import EventStream, SseStreams, StoredFrames
from openclaw_a2a.model.errors import GatewayError, Unauthenticated


class Event:
    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        self.body = b"{}"


class EndlessSource:
    """An event every time, until it is stopped."""

    def __init__(self) -> None:
        self.is_over = False
        self.sequence = 0

    def stop(self) -> None:
        self.is_over = True

    async def next_events(self, wait_s: float) -> Sequence[Event]:
        await asyncio.sleep(0)
        self.sequence += 1
        return [Event(self.sequence)]


class PlainFrames(StoredFrames):
    def error_frame(self, error: GatewayError) -> bytes:
        return b"event: error\n\n"


def _application(streams: SseStreams, source: EndlessSource) -> AsgiClient:
    async def open_stream() -> EventStream:
        return EventStream(None, 0, source)

    async def application(scope: AsgiMessage, receive: Receive, send: Send) -> None:
        request = AsgiRequest(scope, receive, send)
        await request.receive()
        await streams.serve(request, open_stream, PlainFrames())

    return AsgiClient(application)


@pytest.mark.requirement("promise.bounds.streams")
async def test_a_client_that_stops_reading_loses_its_slot() -> None:
    """An SSE write had no deadline: such a client held its slot for good."""
    streams, source = SseStreams(1, heartbeat_s=60.0, write_timeout_s=0.05), EndlessSource()
    client = _application(streams, source)
    with capture_logs() as logs:
        async with client.open(Request("GET", "/stream"), is_slow=True) as response:
            assert await response.next_chunk() is not None
            assert len(streams) == 1
            await response.wait_ended()
            assert len(streams) == 0
    assert [entry["event"] for entry in logs] == ["sse.client_too_slow"]


async def test_a_client_that_reads_slowly_keeps_its_stream() -> None:
    streams, source = SseStreams(1, heartbeat_s=60.0, write_timeout_s=5.0), EndlessSource()
    async with _application(streams, source).open(Request("GET", "/s"), is_slow=True) as response:
        for expected in range(1, 6):
            await anyio.wait_all_tasks_blocked()
            chunk = await response.next_chunk()
            assert chunk is not None
            assert chunk.startswith(b"id: %d\n" % expected)
    assert len(streams) == 0
    assert source.is_over


async def test_a_stream_that_is_never_idle_ends_when_its_caller_is_refused() -> None:
    streams, source, checked = SseStreams(1, heartbeat_s=0.01), EndlessSource(), 0

    def check(_: HttpRequest) -> None:
        nonlocal checked
        checked += 1
        if checked == 3:
            raise Unauthenticated("the token was revoked")

    async def open_stream() -> EventStream:
        return EventStream(None, 0, source)

    async def application(scope: AsgiMessage, receive: Receive, send: Send) -> None:
        request = AsgiRequest(scope, receive, send)
        await request.receive()
        await streams.serve(request, open_stream, PlainFrames(), check=check)

    with anyio.fail_after(240):
        response = await AsgiClient(application).request(Request("GET", "/stream"))
    assert response.body.endswith(b"event: error\n\n")
    assert (len(streams), checked) == (0, 3)


async def test_a_check_of_a_caller_that_breaks_is_repeated() -> None:
    streams, source, checked = SseStreams(1, heartbeat_s=0.01), EndlessSource(), 0

    def check(_: HttpRequest) -> None:
        nonlocal checked
        checked += 1
        raise RuntimeError("broken") if checked == 1 else Unauthenticated("the token was revoked")

    async def open_stream() -> EventStream:
        return EventStream(None, 0, source)

    async def application(scope: AsgiMessage, receive: Receive, send: Send) -> None:
        request = AsgiRequest(scope, receive, send)
        await request.receive()
        await streams.serve(request, open_stream, PlainFrames(), check=check)

    with capture_logs() as logs, anyio.fail_after(240):
        response = await AsgiClient(application).request(Request("GET", "/stream"))
    assert response.body.endswith(b"event: error\n\n")
    assert (len(streams), checked) == (0, 2)
    assert "supervisor.timer_failed" in [entry["event"] for entry in logs]
