"""What one caller of tools may have: requests, streams and MCP sessions, also beside A2A."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
import pytest
from tests.tools.tool_gateway import DEADLINE_S, ToolGateway

from openclaw_a2a.auth.admin_token import read_admin_token
from openclaw_a2a.auth.principal import Scope
from openclaw_a2a.auth.tokens import TokenKind

CALL = "/tools/remote_agent"
PARTS = [{"kind": "text", "text": "hello"}]
LIST = {"action": "list_targets"}
NEVER = {"action": "send", "target_alias": "silent", "parts": PARTS}
SSE = {"accept": "text/event-stream"}
BOTH = {"accept": "application/json, text/event-stream"}
OPENING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
PING = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
Json = Any


def check_refused(answer: httpx2.Response, setting: str, limit: str) -> None:
    """It is our own answer, and names the limit, its setting and when to come back."""
    assert answer.status_code == 429, answer.text
    assert int(answer.headers["retry-after"]) >= 1
    error = answer.json()["error"]
    assert error["code"] == "overloaded"
    assert error["details"]["setting"] == setting
    assert f"({setting})" in error["message"]
    assert limit in error["message"]


def operator(served: ToolGateway) -> httpx2.AsyncClient:
    return served.caller({"authorization": f"Bearer {read_admin_token(served.folder)}"})


async def ask(client: httpx2.AsyncClient, path: str) -> httpx2.Response:
    """One request to a tool, or to one over MCP."""
    if path == "/mcp":
        return await client.post(path, json=OPENING, headers=BOTH)
    return await (client.post(path, json=LIST) if path == CALL else client.get(path))


# ------------------------------------------------------------------ requests


@pytest.mark.parametrize("path", ["/tools", CALL, "/results/res_x", "/mcp"])
async def test_requests_of_one_caller_are_counted_wherever_it_asks(serve, path) -> None:
    async with serve(limits={"perPeerRequests": 3}) as served:
        ann, bob = served.client("ann"), served.client("bob")
        for _ in range(3):
            assert (await ann.get("/tools")).status_code == 200
        check_refused(await ask(ann, path), "limits.perPeerRequests", "3 requests a minute")
        assert (await ask(bob, path)).status_code != 429


async def test_requests_to_agents_and_to_tools_are_counted_together(serve) -> None:
    async with serve(limits={"perPeerRequests": 3}) as served:
        scopes = (Scope.A2A, Scope.TOOLS)
        token = served.tokens.create("ann", TokenKind.PEER, scopes=scopes)
        ann = served.caller({"authorization": f"Bearer {token}", "a2a-version": "1.0"})
        body = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}
        for _ in range(3):
            assert (await ann.post("/a2a/jsonrpc", json=body)).status_code == 200
        check_refused(await ann.get("/tools"), "limits.perPeerRequests", "3 requests a minute")


async def test_a_wrong_token_takes_nothing_of_a_callers_requests(serve) -> None:
    async with serve(limits={"perPeerRequests": 1}) as served:
        wrong = served.caller({"authorization": "Bearer wrong"})
        for _ in range(3):
            assert (await wrong.get("/tools")).status_code == 401
        assert (await served.client("ann").get("/tools")).status_code == 200


async def test_the_operator_of_this_machine_has_no_limits_of_one_caller(serve) -> None:
    limits = {"perPeerRequests": 1, "perPeerRate": 1, "perPeerStreams": 1}
    tools = {"perTokenSessions": 1}
    async with serve(limits=limits, tools=tools) as served, AsyncExitStack() as streams:
        client = operator(served)
        for _ in range(3):
            assert (await client.get("/tools")).status_code == 200
            assert (await client.post("/mcp", json=OPENING, headers=BOTH)).status_code == 200
            await streams.enter_async_context(tool_stream(client))


# ------------------------------------------------------------------ streams


@asynccontextmanager
async def tool_stream(client: httpx2.AsyncClient) -> AsyncIterator[None]:
    """A stream of a tool that does not end by itself."""
    async with client.stream("POST", CALL, json=NEVER, headers=SSE) as answer:
        assert answer.status_code == 200
        yield


@asynccontextmanager
async def mcp_stream(client: httpx2.AsyncClient) -> AsyncIterator[None]:
    """The stream of an MCP session on which the server speaks first."""
    session = await open_session(client)
    async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as streams:
        while True:  # the stream of the request that opened the session may be ending still
            asking = client.stream("GET", "/mcp", headers=session)
            answer = await streams.enter_async_context(asking)
            if answer.status_code == 200:
                break
        yield


async def open_session(client: httpx2.AsyncClient) -> dict[str, str]:
    opened = await client.post("/mcp", json=OPENING, headers=BOTH)
    assert opened.status_code == 200, opened.text
    return {**BOTH, "mcp-session-id": opened.headers["mcp-session-id"]}


STREAMS = pytest.mark.parametrize("open_stream", [tool_stream, mcp_stream])


@STREAMS
async def test_streams_of_tools_count_among_those_of_their_caller(serve, open_stream) -> None:
    async with serve(limits={"streams": 8}) as served, AsyncExitStack() as streams:
        ann, bob = served.client("ann"), served.client("bob")
        session = await open_session(ann)
        for _ in range(2):
            await streams.enter_async_context(open_stream(ann))
        refused = await ann.post(CALL, json=LIST, headers=SSE)
        check_refused(refused, "limits.perPeerStreams", "2 streams")
        refused = await ann.get("/mcp", headers=session)
        check_refused(refused, "limits.perPeerStreams", "2 streams")
        assert (await ann.post(CALL, json=LIST)).status_code == 200, "no stream is asked for"
        await streams.enter_async_context(open_stream(bob))


@STREAMS
async def test_streams_of_tools_count_among_all_streams(serve, open_stream) -> None:
    limits = {"streams": 2, "perPeerStreams": 2}
    async with serve(limits=limits) as served, AsyncExitStack() as streams:
        for _ in range(2):
            await streams.enter_async_context(open_stream(operator(served)))
        refused = await served.client("bob").post(CALL, json=LIST, headers=SSE)
        check_refused(refused, "limits.streams", "2 streams")


@STREAMS
async def test_the_slot_of_a_stream_is_free_when_its_client_has_left(serve, open_stream) -> None:
    async with serve(limits={"streams": 8, "perPeerStreams": 1}) as served:
        ann = served.client("ann")
        async with open_stream(ann):
            refused = await ann.post(CALL, json=LIST, headers=SSE)
            check_refused(refused, "limits.perPeerStreams", "1 stream")
        async with asyncio.timeout(DEADLINE_S):
            while (await ann.post(CALL, json=LIST, headers=SSE)).status_code == 429:
                continue  # the server learns of it a moment later
        for _ in range(5):  # whatever the response was, the slot is given back
            assert (await ann.post("/mcp", json=PING, headers=BOTH)).status_code == 400
            assert (await ann.get("/tools", headers=SSE)).status_code == 200


# ------------------------------------------------------------------ sessions


async def test_one_caller_opens_a_quarter_of_the_sessions_and_no_more(serve) -> None:
    async with serve(tools={"sessions": 8}) as served:
        ann, bob = served.client("ann"), served.client("bob")
        for _ in range(2):
            session = await open_session(ann)
        check_refused(await ask(ann, "/mcp"), "tools.perTokenSessions", "2 MCP sessions")
        assert (await ann.post("/mcp", json=PING, headers=session)).status_code == 200
        await open_session(bob)


async def test_sessions_that_are_opened_at_the_same_moment_keep_to_the_limit(serve) -> None:
    async with serve(tools={"sessions": 100, "perTokenSessions": 3}) as served:
        client = served.client()
        answers = await asyncio.gather(*[ask(client, "/mcp") for _ in range(12)])
        assert sorted(one.status_code for one in answers) == [200] * 3 + [429] * 9


async def test_all_callers_together_open_as_many_sessions_as_there_may_be(serve) -> None:
    async with serve(tools={"sessions": 2, "perTokenSessions": 1}) as served:
        for name in ("ann", "bob"):
            await open_session(served.client(name))
        refused = await ask(served.client("eve"), "/mcp")
        check_refused(refused, "tools.sessions", "2 MCP sessions")


async def wait_room(client: httpx2.AsyncClient) -> None:
    """Until a session can be opened."""
    async with asyncio.timeout(DEADLINE_S):
        while (await ask(client, "/mcp")).status_code == 429:
            continue


async def test_a_session_that_was_ended_makes_room_for_another(serve) -> None:
    async with serve(tools={"perTokenSessions": 1}) as served:
        client = served.client()
        session = await open_session(client)
        assert (await ask(client, "/mcp")).status_code == 429
        assert (await client.delete("/mcp", headers=session)).status_code == 200
        await wait_room(client)


async def test_a_session_without_requests_ends_by_itself(serve) -> None:
    tools = {"perTokenSessions": 1, "sessionIdleSeconds": 3}
    async with serve(tools=tools, limits={"perPeerRate": 0, "perPeerRequests": 0}) as served:
        client = served.client()
        session = await open_session(client)
        await wait_room(client)
        assert (await client.post("/mcp", json=PING, headers=session)).status_code == 404


async def test_a_request_that_opens_no_session_takes_no_place(serve) -> None:
    async with serve(tools={"perTokenSessions": 1}) as served:
        client = served.client()
        for _ in range(3):
            assert (await client.post("/mcp", json=PING, headers=BOTH)).status_code == 400
        await open_session(client)
