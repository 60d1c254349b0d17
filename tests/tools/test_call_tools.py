"""The tools of calls between agents over HTTP and MCP, for callers without a session."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from tests.tools.tool_gateway import ToolGateway

from openclaw_a2a.auth.tool_tokens import ToolCaller
from openclaw_a2a.calls.session_hosts import SessionHosts
from openclaw_a2a.settings.file_schema import AGENT_ID
from openclaw_a2a.tools.call_tools import CallerResolver

Json = Any
BETWEEN = {"agentToAgent": {"enabled": True, "allow": ["*"]}}
NAMES = ["agent_call", "agent_call_batch", "debate_call", "agent_poll"]
CALL = {"agent": "main", "skill": "work", "input": {"q": "tides"}}
DEADLINE_S = 240.0


@asynccontextmanager
async def connected(served: ToolGateway, http: httpx2.AsyncClient) -> AsyncGenerator[Client]:
    transport = streamable_http_client(f"{served.url}/mcp", http_client=http)
    async with asyncio.timeout(DEADLINE_S), Client(transport, mode="auto") as client:
        yield client


async def use(client: Client, tool: str, arguments: Json) -> Json:
    return (await client.call_tool(tool, arguments)).structured_content


@pytest.mark.requirement("calls.doors.http", "calls.doors.mcp")
async def test_the_four_tools_are_offered_over_http_and_mcp(serve: Any) -> None:
    async with serve(tools=BETWEEN) as served:
        http = served.client()
        listed = (await http.get("/tools")).json()["tools"]
        async with connected(served, http) as client:
            offered = (await client.list_tools()).tools
    assert [one["name"] for one in listed if one["name"] in NAMES] == NAMES
    assert [one.name for one in offered if one.name in NAMES] == NAMES
    [call] = [one for one in listed if one["name"] == "agent_call"]
    assert call["inputSchema"]["required"] == ["agent", "skill", "input"]


@pytest.mark.requirement("calls.doors.mcp", "calls.inbox.polled", "calls.poll.own")
async def test_over_mcp_the_token_is_the_caller_and_the_answer_is_asked_for(serve: Any) -> None:
    async with serve(tools=BETWEEN) as served:
        ann, ben = served.client("ann"), served.client("ben")
        async with connected(served, ann) as client:
            call = await use(client, "agent_call", CALL)
            asked = {"correlationId": call["correlationId"]}
            polled: Json = {"status": "working"}
            while polled["status"] == "working":
                polled = await use(client, "agent_poll", asked)
        async with connected(served, ben) as other:
            refused = await use(other, "agent_poll", asked)
        http = (await ann.post("/tools/agent_poll", json=asked)).json()
    assert call["status"] == "pending"
    assert polled["output"]["returnTo"] == "agent:ann:inbox"
    assert refused["status"] == "error"
    assert http["output"] == polled["output"]


@pytest.mark.requirement("calls.doors.mcp", "calls.result.waited")
async def test_over_mcp_an_answer_can_be_waited_for(serve: Any) -> None:
    async with serve(tools=BETWEEN) as served, connected(served, served.client()) as client:
        waited = await use(client, "agent_call", {**CALL, "wait": True})
        batch = await use(client, "agent_call_batch", {"calls": [CALL, {**CALL, "agent": "ann"}]})
    assert waited["status"] == "completed"
    assert waited["output"]["input"] == {"q": "tides"}
    assert [one["status"] for one in batch["results"]] == ["completed", "error"]


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


@pytest.mark.requirement("calls.input.object")
@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
async def test_an_input_with_numbers_that_are_none_is_refused(serve: Any, number: str) -> None:
    arguments = {"name": "agent_call", "arguments": {**CALL, "wait": True}}
    asked = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": arguments}
    async with serve(tools=BETWEEN) as served:
        http = served.client()
        http.headers["accept"] = "application/json, text/event-stream"
        opened = await http.post("/mcp", json=OPENING)
        http.headers["mcp-session-id"] = opened.headers["mcp-session-id"]
        http.headers["content-type"] = "application/json"
        answer = await http.post("/mcp", content=json.dumps(asked).replace('"tides"', number))
    assert "completed" not in answer.text
    assert "cannot be written as JSON" in answer.text


async def test_no_two_subjects_of_issuers_are_one_calling_agent() -> None:
    resolve = CallerResolver(SessionHosts({}))
    names = ["oidc:a:x y", "oidc:a:x-y", "oidc:a:X-Y", "oidc:a-x:y", "oidc-a-x-y", "operator"]
    names += [f"oidc:a:{'x' * 80}{end}" for end in "12"]
    callers = [await resolve(ToolCaller(name)) for name in names]
    assert len({one.agent_id for one in callers}) == len(names)
    assert all(re.fullmatch(AGENT_ID, one.agent_id) for one in callers)
