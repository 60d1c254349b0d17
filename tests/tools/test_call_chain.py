"""Chains of calls between gateways: metadata and loop guard."""

from typing import Any

import httpx2
import pytest
from tests.tools.tool_gateway import ToolGateway

from openclaw_a2a.auth.tokens import TokenKind
from openclaw_a2a.model.turn import CHAIN_HOSTS_KEY, CHAIN_KEY

Json = Any
HELLO = [{"kind": "text", "text": "hello"}]


def agent_in(served: ToolGateway, session: str) -> httpx2.AsyncClient:
    """An agent that calls tools from a session of its host."""
    client = served.client("openclaw", TokenKind.HOST)
    client.headers["x-openclaw-session-key"] = session
    client.headers["x-openclaw-agent-id"] = session.split(":")[1]
    return client


async def send(client: httpx2.AsyncClient, **more: Json) -> Json:
    request = {"action": "send", "parts": HELLO, **more}
    return (await client.post("/tools/remote_agent", json=request)).json()


async def received(served: ToolGateway, envelope: Json) -> Json:
    """The message as it arrived."""
    task_id = envelope["raw"]["id"]
    body = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": task_id}}
    answer = await served.caller({"a2a-version": "1.0"}).post("/a2a/jsonrpc", json=body)
    return answer.json()["result"]["history"][0]


@pytest.mark.requirement("remote.extension.chain")
async def test_an_agent_cannot_call_itself_by_way_of_the_network(served: ToolGateway) -> None:
    refused = await send(agent_in(served, "agent:main:main"))
    assert refused["ok"] is False
    assert "loop: main is in the chain" in refused["error"]["message"]


@pytest.mark.requirement("remote.extension.chain")
@pytest.mark.requirement("calls.loop.metadata")
async def test_a_message_tells_which_agents_it_came_through(served: ToolGateway) -> None:
    sent = await send(agent_in(served, "agent:other:main"), task_requirement="required")
    metadata = (await received(served, sent))["metadata"]
    assert metadata[CHAIN_KEY] == ["other"]
    assert len(metadata[CHAIN_HOSTS_KEY]) == 1


async def test_a_program_that_calls_is_not_named(served: ToolGateway) -> None:
    sent = await send(served.client(), task_requirement="required")
    assert "metadata" not in await received(served, sent)


async def test_a_caller_cannot_say_which_chain_it_is(served: ToolGateway) -> None:
    forged = {CHAIN_KEY: ["somebody"]}
    sent = await send(
        agent_in(served, "agent:other:main"), task_requirement="required", metadata=forged
    )
    assert (await received(served, sent))["metadata"][CHAIN_KEY] == ["other"]


async def arrive(served: ToolGateway, metadata: Json) -> Json:
    """A message of somebody else's that says where it came from."""
    message = {
        "messageId": "m-1",
        "role": "ROLE_USER",
        "parts": [{"text": "hello"}],
        "metadata": metadata,
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    answer = await served.caller({"a2a-version": "1.0"}).post("/a2a/jsonrpc", json=body)
    return answer.json()


@pytest.mark.requirement("calls.loop.metadata")
@pytest.mark.parametrize(
    ("names", "word"),
    [(["a", "main", "b"], "loop"), (["a", "b", "c", "d", "e", "f"], "depth")],
)
async def test_a_message_that_has_gone_round_is_refused(
    served: ToolGateway, names: list[str], word: str
) -> None:
    refused = await arrive(served, {CHAIN_KEY: names})
    assert refused["error"]["code"] == -32602
    assert word in refused["error"]["message"]


@pytest.mark.parametrize(
    "metadata",
    [
        {CHAIN_KEY: ["a", "b", "c", "d", "e"]},
        {CHAIN_KEY: ["main"], CHAIN_HOSTS_KEY: ["somewhere-else"]},
        {CHAIN_KEY: "main"},
        {CHAIN_KEY: [1, None, {}]},
    ],
)
async def test_a_message_that_has_not_gone_round_is_answered(
    served: ToolGateway, metadata: Json
) -> None:
    assert "result" in await arrive(served, metadata)


@pytest.mark.requirement("calls.remote.called")
async def test_a_remote_target_is_called_like_an_agent_and_learns_no_session(serve: Json) -> None:
    between = {"enabled": True, "allow": ["*"]}
    async with serve(tools={"agentToAgent": between}) as served:
        client = agent_in(served, "agent:other:telegram:12345")
        arguments = {"agent": "target:me", "skill": "work", "input": {}, "wait": True}
        result = (await client.post("/tools/agent_call", json=arguments)).json()
        assert result["status"] == "completed"
        assert result["output"]["kind"] == "skill_invocation"
        assert result["output"]["returnTo"] == "agent:other:remote"


@pytest.mark.requirement("calls.remote.unknown")
async def test_a_target_that_is_not_there_is_said_so(serve: Json) -> None:
    between = {"enabled": True, "allow": ["*"]}
    async with serve(tools={"agentToAgent": between}) as served:
        arguments = {"agent": "target:gone", "skill": "work", "input": {}}
        result = (await served.client().post("/tools/agent_call", json=arguments)).json()
        assert result["status"] == "error"
        assert "no remote target 'gone'" in result["error"]
