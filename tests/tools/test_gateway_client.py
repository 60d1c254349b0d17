"""The tools of another gateway, which may be down at times."""

import asyncio

import pytest
from tests.tools.tool_gateway import free_socket, serve_app

from openclaw_a2a.auth.tool_tokens import OPERATOR_CALLER
from openclaw_a2a.model.errors import AgentFailed, AgentUnavailable
from openclaw_a2a.tools.gateway_client import open_gateway_tools
from openclaw_a2a.tools.registry import BuildUpdate, ignore_update

HELLO = {"action": "send", "parts": [{"kind": "text", "text": "hello"}], "follow_updates": True}


async def test_a_call_fails_while_the_gateway_is_away_and_succeeds_when_it_is_back(serve) -> None:
    async with serve() as served:
        token, url = served.tokens.create("ann"), served.url
        forwarding = open_gateway_tools(url, token)
        tool = (await forwarding.__aenter__()).find("remote_agent")
    try:
        away = await tool.run(HELLO, OPERATOR_CALLER, ignore_update)
        assert (away["ok"], away["action"]) == (False, "send")
        assert away["error"]["code"] == "gateway-unreachable"
        async with serve(port=int(url.rpartition(":")[2])):
            updates: list[BuildUpdate] = []
            back = await tool.run(HELLO, OPERATOR_CALLER, updates.append)
            assert back["ok"]
            assert [build()["raw"] for build in updates] == back["raw"]["events"]
    finally:
        await forwarding.__aexit__(None, None, None)


async def test_a_token_that_is_not_accepted_is_reported_with_the_reason(served) -> None:
    with pytest.raises(AgentFailed, match="token create --tool"):
        async with open_gateway_tools(served.url, "wrong"):
            pass
    with pytest.raises(AgentUnavailable):
        async with open_gateway_tools("http://127.0.0.1:1", "wrong"):
            pass


LIST = b'{"tools":[{"name":"t","label":"T","description":"","inputSchema":{}}]}'


@pytest.mark.parametrize("listed", [b"", b"<html>", b"[]", b'{"tools":[{}]}', b'{"tools":1}'])
async def test_an_address_without_a_gateway_is_reported(listed: bytes) -> None:
    async def other(scope, receive, send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": listed})

    listener, url = free_socket()
    async with serve_app(other, listener):
        with pytest.raises(AgentFailed, match="no openclaw-a2a gateway"):
            async with open_gateway_tools(url, "x"):
                pass
    listener.close()


@pytest.mark.parametrize(
    "stream",
    [
        b"",
        b"data: 1\n\n",
        b"event: result\ndata: [1]\n\n",
        b"event: result\ndata: {\n\n",
        b"event: update\ndata: no\n\n",
        b"event: result\ndata: {}",
        b"\xff\n\n",
    ],
)
async def test_a_stream_without_a_result_is_a_failure_that_says_so(stream: bytes) -> None:
    async def broken(scope, receive, send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        body = LIST if scope["method"] == "GET" else stream
        await send({"type": "http.response.body", "body": body})

    listener, url = free_socket()
    async with serve_app(broken, listener), open_gateway_tools(url, "x") as table:
        async with asyncio.timeout(240):
            answer = await table.find("t").run([], OPERATOR_CALLER, ignore_update)
    listener.close()
    assert (answer["ok"], answer["operation"], answer["action"]) == (False, "t", "unknown")
    assert answer["error"]["code"] == "connection-lost"
