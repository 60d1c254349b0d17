"""The operator lists calls between agents and looks at each of them."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.calls.call_gateway import CallGateway, HeldAnswer, answers, call_gateway_in
from tests.conformance.asgi_client import AsgiClient, Response

from openclaw_a2a.auth.admin_token import AdminAuthenticator
from openclaw_a2a.auth.request_origin import OwnAddresses
from openclaw_a2a.http.asgi import AsgiRequest
from openclaw_a2a.http.request_limits import RequestBodies
from openclaw_a2a.server.admin.endpoint import AdminEndpoint
from openclaw_a2a.server.admin.routes import CallsAdmin

Json = Any
TOKEN = "the-operator's-own-token-of-forty-letters"


@pytest.fixture
async def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CallGateway]:
    """A gateway with agents a, b, c and d that call each other."""
    monkeypatch.chdir(tmp_path)
    async with call_gateway_in(tmp_path, "memory") as one:
        await one.open()
        yield one


async def get(gateway: CallGateway, path: str) -> Response:
    return await gateway.operator_client().get(path)


async def listed(gateway: CallGateway, query: str = "") -> list[str]:
    response = await get(gateway, f"/operator/calls{query}")
    assert response.status == 200
    return [one["correlationId"] for one in response.json["calls"]]


async def test_the_newest_calls_come_first_and_without_their_answers(gateway: CallGateway) -> None:
    calls = [await gateway.call("a", "b", wait=True) for _ in range(25)]
    newest = [one["correlationId"] for one in reversed(calls)]
    assert await listed(gateway) == newest[:20]
    response = await get(gateway, "/operator/calls?limit=1")
    [shown] = response.json["calls"]
    assert response.json["totalSize"] == 25
    assert (shown["correlationId"], shown["agent"]) == (newest[0], "b")
    assert (shown["status"], shown["confidence"]) == ("completed", 0.9)
    assert not {"output", "assumptions", "caveats", "parts"} & shown.keys()


async def test_calls_are_filtered_by_status_and_by_either_agent(gateway: CallGateway) -> None:
    gateway.agents["b"].answer = HeldAnswer()
    requests = [("a", "b"), ("a", "c"), ("c", "b"), ("a", "d")]
    made = [await gateway.call(*one, wait=one[1] != "b") for one in requests]
    ids = [one["correlationId"] for one in made]
    assert await listed(gateway, "?status=pending") == [ids[2], ids[0]]
    assert await listed(gateway, "?agent=c") == [ids[2], ids[1]]
    assert await listed(gateway, "?agent=c&status=pending") == [ids[2]]
    assert await listed(gateway, "?agent=nobody") == []


async def test_one_call_is_shown_whole(gateway: CallGateway) -> None:
    gateway.agents["b"].answer = answers('{"output": {"long": "%s"}}' % ("x" * 10_000))
    made = await gateway.call("a", "b", wait=True)
    shown = await gateway.describe(made)
    assert shown["output"] == {"long": "x" * 10_000}


async def test_a_debate_is_shown_with_its_steps(gateway: CallGateway) -> None:
    debate: Json = {
        "topic": "tides",
        "proposer": {"agent": "b", "skill": "propose"},
        "critics": [{"agent": "c"}],
        "resolver": {"agent": "d", "skill": "resolve"},
        "input": {},
    }
    made = await gateway.call_tool(gateway.client("a"), "debate_call", debate)
    shown = await gateway.describe(made)
    assert {one["agent"] for one in shown["parts"]} == {"b", "c", "d"}
    assert await listed(gateway) == [made["correlationId"]]


@pytest.mark.parametrize("wanted", ["call-2", "call", "%00", "x" * 5000])
async def test_a_call_that_does_not_exist_is_not_found(gateway: CallGateway, wanted: str) -> None:
    response = await get(gateway, f"/operator/calls/{wanted}")
    assert (response.status, response.json["error"]["code"]) == (404, "call-not-found")
    assert len(response.body) < 500


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=-1", "limit=x", "limit=", "limit=٣", "status=happy"]
)
async def test_an_invalid_query_is_refused_with_the_valid_values(
    gateway: CallGateway, query: str
) -> None:
    response = await get(gateway, f"/operator/calls?{query}")
    assert (response.status, response.json["error"]["code"]) == (400, "invalid-params")
    assert "must be" in response.json["error"]["message"]


@pytest.mark.parametrize("path", ["/operator/calls", "/operator/calls/call-1"])
async def test_while_calls_are_off_the_setting_is_named(path: str) -> None:
    authenticator = AdminAuthenticator(TOKEN, own=OwnAddresses("127.0.0.1"))
    endpoint = AdminEndpoint(authenticator, bodies=RequestBodies(5))
    CallsAdmin(None).add_to(endpoint)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await endpoint.serve(AsgiRequest(scope, receive, send))

    response = await AsgiClient(app).get(path, authorization=f"Bearer {TOKEN}")
    assert response.json["error"]["code"] == "unsupported-operation"
    assert "tools.agentToAgent.enabled" in response.json["error"]["message"]
