"""A stream has its place from the request to its end, and a reader that leaves gives it back."""

import anyio
import pytest
from tests.conformance.asgi_client import AsgiClient, Request
from tests.conformance.conftest import Serve
from tests.conformance.protocol_clients import Json, V1Client, encode_call, v1_message
from tests.conformance.scripted_agent import ScriptedAgent

from openclaw_a2a.model.agent_event import Reply

RPC, REST = "/a2a/jsonrpc", "/a2a/rest/message:stream"
HEADERS = {"content-type": "application/json", "a2a-version": "1.0"}


def _asked(path: str, params: Json) -> Request:
    body = encode_call("SendStreamingMessage", params) if path == RPC else _plain(params)
    return Request("POST", path, HEADERS, (body,))


def _plain(params: Json) -> bytes:
    return encode_call("", params).partition(b'"params":')[2][:-1]


@pytest.mark.requirement("promise.bounds.streams")
@pytest.mark.parametrize("path", [RPC, REST])
async def test_burst_of_streams_without_an_event_keeps_to_the_limit(
    serve: Serve, path: str
) -> None:
    agent = ScriptedAgent()
    async with serve(agent, settings={"limits.streams": 3}) as gateway:
        door, statuses = AsgiClient(gateway.asgi), list[int]()

        async def stream() -> None:
            statuses.append((await door.request(_asked(path, v1_message()))).status)

        async with anyio.create_task_group() as burst:
            for _ in range(8):
                burst.start_soon(stream)
            runs = [await agent.next_run() for _ in range(3)]
            await anyio.wait_all_tasks_blocked()
            assert statuses == [429] * 5
            assert len(gateway.streams) == 3
            for run in runs:
                await run.finish(Reply.of_text("done"))
        assert statuses[5:] == [200] * 3
        assert len(gateway.streams) == 0
        assert not agent.has_waiting_run


@pytest.mark.requirement("promise.bounds.streams")
async def test_repeats_of_a_message_take_a_place_each(serve: Serve) -> None:
    agent, params = ScriptedAgent(), v1_message()
    async with serve(agent, settings={"limits.streams": 2}) as gateway:
        door = AsgiClient(gateway.asgi)
        async with door.open(_asked(RPC, params)), door.open(_asked(RPC, params)):
            run = await agent.next_run()
            await anyio.wait_all_tasks_blocked()
            assert (await door.request(_asked(RPC, params))).status == 429
            await run.finish(Reply.of_text("done"))
        assert len(gateway.streams) == 0


@pytest.mark.requirement("door.disconnect")
@pytest.mark.parametrize("path", [RPC, REST])
async def test_reader_that_leaves_before_the_first_event_ends_its_stream_only(
    serve: Serve, path: str
) -> None:
    agent, params = ScriptedAgent(), v1_message()
    async with serve(agent) as gateway:
        door = AsgiClient(gateway.asgi)
        async with door.open(_asked(path, params)) as exchange:
            run = await agent.next_run()
            exchange.disconnect()
            await exchange.wait_ended()
        assert len(gateway.streams) == 0
        assert not run.has_stopped
        await run.finish(Reply.of_text("done"))
        again = await V1Client(door).call("SendMessage", params)
        assert again["message"]["parts"] == [{"text": "done"}]


@pytest.mark.requirement("door.disconnect")
async def test_reader_that_leaves_at_once_has_sent_its_message(serve: Serve) -> None:
    agent = ScriptedAgent()
    async with serve(agent) as gateway:
        async with AsgiClient(gateway.asgi).open(_asked(RPC, v1_message())) as exchange:
            exchange.disconnect()
        await (await agent.next_run()).finish(Reply.of_text("done"))
