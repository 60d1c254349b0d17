"""The tools over MCP at /mcp, with the official client."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

HELLO = {"action": "send", "parts": [{"kind": "text", "text": "hello"}]}
FOLLOW = {**HELLO, "follow_updates": True}
NEVER = {"action": "send", "target_alias": "silent", "parts": HELLO["parts"]}
DEADLINE_S = 240.0
ERAS = ["legacy", "auto"]
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
BOTH = {"accept": "application/json, text/event-stream"}


@asynccontextmanager
async def connected(served, *, mode: str, http: httpx2.AsyncClient | None = None) -> AsyncIterator:
    transport = streamable_http_client(f"{served.url}/mcp", http_client=http or served.client())
    async with asyncio.timeout(DEADLINE_S), Client(transport, mode=mode) as client:
        yield client


@pytest.mark.requirement("remote.tool.mcp")
@pytest.mark.parametrize("mode", ERAS)
async def test_the_official_client_lists_and_calls_the_tools(served, mode) -> None:
    async with connected(served, mode=mode) as client:
        (tool,) = (await client.list_tools()).tools
        assert (tool.name, tool.title) == ("remote_agent", "Remote Agent")
        assert "Targets: me, silent" in tool.description
        result = await client.call_tool("remote_agent", HELLO)
    assert result.is_error is False
    assert "hello" in result.structured_content["summary"]["message_text"]
    assert '"ok":true' in result.content[0].text


@pytest.mark.requirement("remote.tool.mcp")
@pytest.mark.parametrize("mode", ERAS)
async def test_updates_are_reported_as_progress(served, mode) -> None:
    heard: list[tuple[float, str]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message or ""))

    async with connected(served, mode=mode) as client:
        result = await client.call_tool("remote_agent", FOLLOW, progress_callback=hear)
        events = result.structured_content["raw"]["events"]
    assert [number for number, _ in heard] == list(range(1, len(events) + 1))
    assert "completed" in heard[-1][1]
    assert "hello" in heard[-1][1]


@pytest.mark.requirement("remote.tool.mcp", "remote.wire.abort")
@pytest.mark.parametrize("mode", ERAS)
async def test_a_call_that_the_client_cancels_ends_at_the_remote_agent(served, mode) -> None:
    async with connected(served, mode=mode) as client:
        calling = asyncio.ensure_future(client.call_tool("remote_agent", NEVER))
        await served.silent.asked.wait()
        calling.cancel()
        await served.silent.left.wait()
        result = await client.call_tool("remote_agent", HELLO)
        assert result.is_error is False


@pytest.mark.requirement("remote.durable.resume")
async def test_a_question_is_answered_after_our_gateway_was_restarted(serve, asker) -> None:
    outbound = {"targets": [{"alias": "asker", "baseUrl": asker, "default": True}]}
    durable = {"outbound": outbound, "store": {"kind": "sqlite"}}
    ask = {"action": "send", "parts": [{"kind": "text", "text": "deploy"}]}
    async with serve(**durable) as served, connected(served, mode="auto") as client:
        asked = (await client.call_tool("remote_agent", ask)).structured_content
    continuation = asked["summary"]["continuation"]
    assert continuation["task"]["status"] == "input-required"
    reply = {
        "action": "send",
        "parts": [{"kind": "text", "text": "yes"}],
        "task_handle": continuation["task"]["task_handle"],
    }
    async with serve(**durable) as served, connected(served, mode="auto") as client:
        answered = (await client.call_tool("remote_agent", reply)).structured_content
    assert answered["summary"]["message_text"] == "deploy: yes"
    assert answered["summary"]["continuation"]["task"]["status"] == "completed"


async def test_failures_are_results_that_say_so(served) -> None:
    async with connected(served, mode="legacy") as client:
        refused = await client.call_tool("remote_agent", {"action": "send"})
        assert refused.is_error
        assert refused.structured_content["error"]["code"] == "VALIDATION_ERROR"
        unknown = await client.call_tool("other", {})
        assert unknown.is_error
        assert unknown.structured_content["error"]["code"] == "unknown-tool"


async def test_a_caller_has_so_many_calls_at_once_and_no_more(serve) -> None:
    async with (
        serve(tools={"perTokenCalls": 1}) as served,
        connected(served, mode="legacy") as client,
    ):
        calling = asyncio.ensure_future(client.call_tool("remote_agent", NEVER))
        await served.silent.asked.wait()
        refused = await client.call_tool("remote_agent", HELLO)
        assert refused.structured_content["error"]["code"] == "overloaded"
        calling.cancel()
        await served.silent.left.wait()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"authorization": "Bearer wrong"}, 401),
        ({"host": "evil.example"}, 403),
        ({"origin": "http://evil.example"}, 403),
    ],
)
async def test_authentication_comes_before_the_protocol(served, headers, status) -> None:
    answer = await served.client().post("/mcp", json=OPENING, headers={**BOTH, **headers})
    assert answer.status_code == status
    assert "mcp-session-id" not in answer.headers


async def test_a_session_belongs_to_the_caller_that_opened_it(served) -> None:
    ann, bob = served.client("ann"), served.client("bob")
    opened = await ann.post("/mcp", json=OPENING, headers=BOTH)
    assert opened.status_code == 200
    session = {**BOTH, "mcp-session-id": opened.headers["mcp-session-id"]}
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    assert (await bob.post("/mcp", json=ping, headers=session)).status_code == 404
    assert (await ann.post("/mcp", json=ping, headers=session)).status_code == 200
    served.tokens.revoke("ann")
    assert (await ann.post("/mcp", json=ping, headers=session)).status_code == 401


async def test_a_body_over_the_limit_is_refused(served) -> None:
    answer = await served.client().post("/mcp", content=b"x" * 1_100_000, headers=BOTH)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body-too-large")


async def test_a_request_that_is_not_mcp_is_refused_by_the_protocol(served) -> None:
    client = served.client()
    for body in (b"", b"{", b"[]", b"null", b"[" * 5000, b'{"jsonrpc":"2.0"}'):
        headers = {**BOTH, "content-type": "application/json"}
        answer = await client.post("/mcp", content=body, headers=headers)
        assert 400 <= answer.status_code < 500
