"""A stream holds a slot from the request to its end; a disconnect gives it back."""

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
async def test_a_burst_of_pending_streams_keeps_to_the_limit(serve: Serve, path: str) -> None:
    agent = ScriptedAgent()
    async with serve(agent, settings={"limits.streams": 3}) as gateway:
        http, statuses = AsgiClient(gateway.asgi), list[int]()

        async def stream() -> None:
            statuses.append((await http.request(_asked(path, v1_message()))).status)

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
async def test_each_repeated_streaming_send_takes_a_slot(serve: Serve) -> None:
    agent, params = ScriptedAgent(), v1_message()
    async with serve(agent, settings={"limits.streams": 2}) as gateway:
        http = AsgiClient(gateway.asgi)
        async with http.open(_asked(RPC, params)), http.open(_asked(RPC, params)):
            run = await agent.next_run()
            await anyio.wait_all_tasks_blocked()
            assert (await http.request(_asked(RPC, params))).status == 429
            await run.finish(Reply.of_text("done"))
        assert len(gateway.streams) == 0


@pytest.mark.requirement("door.disconnect")
@pytest.mark.parametrize("path", [RPC, REST])
async def test_a_disconnect_before_the_first_event_ends_only_the_stream(
    serve: Serve, path: str
) -> None:
    agent, params = ScriptedAgent(), v1_message()
    async with serve(agent) as gateway:
        http = AsgiClient(gateway.asgi)
        async with http.open(_asked(path, params)) as active:
            run = await agent.next_run()
            active.disconnect()
            await active.wait_ended()
        assert len(gateway.streams) == 0
        assert not run.has_stopped
        await run.finish(Reply.of_text("done"))
        again = await V1Client(http).call("SendMessage", params)
        assert again["message"]["parts"] == [{"text": "done"}]


@pytest.mark.requirement("door.disconnect")
async def test_a_message_is_accepted_even_if_the_client_disconnects_at_once(serve: Serve) -> None:
    agent = ScriptedAgent()
    async with serve(agent) as gateway:
        async with AsgiClient(gateway.asgi).open(_asked(RPC, v1_message())) as active:
            active.disconnect()
        await (await agent.next_run()).finish(Reply.of_text("done"))
