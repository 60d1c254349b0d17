"""Whatever a webhook answers, a notification was delivered or has failed, with a reason."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.server.push.sender import WebhookOptions, WebhookSender

STATUS_LINES = [b"HTTP/1.1 200 OK", b"HTTP/1.1 204 None", b"HTTP/1.1 302 Found", b"HTTP/1.1 410 ?"]
STATUS_LINES += [b"HTTP/1.1 429 Slow", b"HTTP/1.1 503 Down", b"HTTP/1.1 100 Go", b"HTTP/1.1 099 x"]
STATUS_LINES += [b"HTTP/1.1 999 x", b"HTTP/1.0 200", b"HTTP/2 200", b"HTTP/1.1 101 Switch", b"ICY"]
HEADERS = [b"Content-Length: 3", b"Content-Length: -1", b"Content-Length: 9999999999999999999999"]
HEADERS += [b"Transfer-Encoding: chunked", b"Content-Encoding: gzip", b"Location: http://[", b": x"]
HEADERS += [b"Retry-After: 5", b"Retry-After: " + b"9" * 400, b"Retry-After: \xff", b"X: a\rb", b""]
HEADERS += [b"Retry-After: Thu, 01 Jan 0001 00:00:00 +2359", b"Connection: upgrade", b"X" * 200]
DATES = st.builds(
    "Retry-After: {}, {} {} {} {}:{}:{} {}".format,
    *[st.sampled_from(["Mon", "x", ""]), st.integers(-1, 99), st.sampled_from(["Jan", "Xyz", ""])],
    *[st.integers(-1, 99999)] * 4,
    st.sampled_from(["GMT", "+2400", "-9999", "+99999999999", ""]),
).map(str.encode)
ANSWERS = st.binary(max_size=80) | st.builds(
    lambda status, headers, body: b"\r\n".join([status, *headers, b"", body]),
    st.sampled_from(STATUS_LINES),
    st.lists(st.sampled_from(HEADERS) | DATES | st.binary(max_size=20), max_size=4),
    st.binary(max_size=40) | st.just(b"3\r\nabc\r\n0\r\n\r\n"),
)


@asynccontextmanager
async def webhook(answer: bytes) -> AsyncGenerator[str]:
    """The address of a webhook that answers with these bytes, whatever it is sent."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    finally:
        server.close()


@pytest.mark.requirement("promise.push.retry-after")
@given(ANSWERS)
async def test_any_answer_of_a_webhook_is_a_delivery_or_a_failure(answer: bytes) -> None:
    async def resolve(_host: str, _port: int) -> list[str]:
        raise AssertionError("an address needs no lookup")

    options = WebhookOptions(timeout_s=30.0, allow_private=True, agent_name="test")
    sender = WebhookSender(options, resolve=resolve, now=lambda: datetime.now(UTC))
    async with webhook(answer) as url:
        try:
            failure = await sender.post(url, b"{}", {"Content-Type": "application/json"})
        finally:
            await sender.close()
    if failure is None:
        assert b" 20" in answer
    else:
        assert failure.reason
        assert failure.retry_after_s is None or failure.retry_after_s >= 0
