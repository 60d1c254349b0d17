"""The HTTP fallback with a server that is broken, foreign or hostile."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agents.openclaw_gateway.conftest import make_turn_for

from openclaw_a2a.agents.openclaw_gateway.handshake import GatewayAddress
from openclaw_a2a.agents.openclaw_gateway.http_fallback import list_agents_over_http, run_over_http
from openclaw_a2a.model.agent_event import AgentEvent, TextDelta
from openclaw_a2a.model.errors import AgentError, AgentFailed, AgentUnavailable

QUESTION = make_turn_for("hi")
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
DONE = b"data: [DONE]\n\n"


@asynccontextmanager
async def answering(answer: bytes) -> AsyncGenerator[GatewayAddress]:
    """The address of a server that answers every request with these bytes and closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield GatewayAddress(f"ws://127.0.0.1:{port}", "t")


async def ask(answer: bytes) -> list[AgentEvent]:
    async with answering(answer) as address:
        with anyio.fail_after(240):
            events = run_over_http(address, QUESTION, agent_id="main", timeout_s=10)
            return [event async for event in events]


def text_data(events: list[AgentEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def chunk(text: str) -> bytes:
    return b'data: {"choices":[{"delta":{"content":"' + text.encode() + b'"}}]}\n\n'


async def test_frames_that_are_no_event_are_skipped() -> None:
    noise = b': comment\nevent: x\ndata: {"choices":[{"delta":{}}]}\ndata: nonsense\ndata: [1]\n\n'
    assert text_data(await ask(STREAM + noise + chunk("a") + noise + chunk("b") + DONE)) == "ab"


async def test_nothing_after_the_end_counts() -> None:
    assert text_data(await ask(STREAM + chunk("a") + DONE + chunk("b"))) == "a"


async def test_an_answer_that_breaks_off_is_an_error() -> None:
    with pytest.raises(AgentUnavailable, match="before the answer was complete"):
        await ask(STREAM + chunk("a") + b'data: {"cho')


async def test_an_error_in_the_middle_fails_the_run() -> None:
    error = b'data: {"error":{"message":"out of tokens","type":"x"}}\n\n'
    with pytest.raises(AgentFailed, match="out of tokens"):
        await ask(STREAM + chunk("a") + error + DONE)


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        ("404 Not Found", b"no", AgentUnavailable, "chatCompletions.enabled"),
        ("401 Unauthorized", b"", AgentUnavailable, "token"),
        ("500 Oops", b"<html>\nbroken</html>", AgentFailed, "500: <html> broken</html>"),
        ("400 Bad", b'{"error":{"message":"no user message"}}', AgentFailed, "no user message"),
        ("302 Found", b"", AgentFailed, "no reason given"),
        ("503 Busy", b'{"error":"x"}', AgentFailed, "503"),
    ],
)
async def test_http_errors_are_reported_with_the_fix(
    status: str, body: bytes, kind: type[AgentError], words: str
) -> None:
    head = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    with pytest.raises(kind) as caught:
        await ask(head.encode() + body)
    assert words in caught.value.message


async def test_a_server_that_does_not_speak_http_is_reported() -> None:
    with pytest.raises(AgentUnavailable, match="openclaw gateway run"):
        await ask(b"SSH-2.0-OpenSSH\r\n")


async def test_a_list_of_models_may_be_anything() -> None:
    for body in (b"", b"[]", b'{"data":5}', b"\xff", b"<html>"):
        head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        async with answering(head.encode() + body) as address:
            assert await list_agents_over_http(address) == ()


@settings(max_examples=30, deadline=None)
@given(body=st.lists(st.one_of(st.binary(max_size=40), st.just(chunk("a")), st.just(DONE))))
async def test_any_stream_ends_in_an_answer_or_an_agent_error(body: list[bytes]) -> None:
    try:
        events = await ask(STREAM + b"".join(body))
    except AgentError as error:
        assert error.message
    else:
        assert set(text_data(events)) <= {"a"}
