"""Megabytes of wrong parameters: a short answer, and the gateway stays responsive."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from tests.conftest import GatewayProcess, StartGateway
from tests.hostile.raw_client import RawClient, call, cost_of, message, rpc_body

pytestmark = pytest.mark.slow

WAIT_S = 240.0
MOST_LISTED = 51
"""Fifty problems, and the sentence that there may be more."""


def wrong_list(item: str, size: int = 1_000_000) -> str:
    """A list of so many bytes with the same wrong item in it."""
    return "[" + ",".join([item] * (size // (len(item) + 1))) + "]"


def send_body(method: str, **members: str) -> bytes:
    """A send with these members of the message, as JSON."""
    role = "ROLE_USER" if method == "SendMessage" else "user"
    given = {"messageId": '"m-1"', "role": f'"{role}"', "parts": '[{"text":"x"}]', **members}
    message = ",".join(f'"{name}":{value}' for name, value in given.items())
    envelope = '{"jsonrpc":"2.0","id":1,"method":"%s","params":{"message":{%s}}}'
    return (envelope % (method, message)).encode()


async def post(client: httpx.AsyncClient, body: bytes) -> Any:
    headers = {"content-type": "application/json"}
    response = await client.post("/a2a/jsonrpc", content=body, headers=headers)
    assert response.status_code in (200, 413)
    return response.json()


@pytest.mark.parametrize("method", ["SendMessage", "message/send"])
async def test_a_megabyte_of_wrong_parts_is_refused_by_its_count(
    gateway: GatewayProcess, method: str
) -> None:
    items = ["1", "{}", '{"text":1}', '{"raw":"!"}', '{"text":"a","url":"b"}', '{"text":"fine"}']
    async with httpx.AsyncClient(base_url=gateway.url, timeout=WAIT_S) as client:
        for item in items:
            answer = await post(client, send_body(method, parts=wrong_list(item)))
            assert answer["error"]["code"] == -32602
            # The values of all lists are counted first, where they are very many.
            message = answer["error"]["message"]
            assert "limits.parts" in message or "limits.bodyValues" in message
            assert len(json.dumps(answer)) < 2_000


@pytest.mark.parametrize("method", ["SendMessage", "message/send"])
async def test_wrong_items_of_any_list_are_listed_up_to_fifty(
    gateway: GatewayProcess, method: str
) -> None:
    lists = {
        "parts": wrong_list("1", 1_000),
        "extensions": wrong_list("1", 1_000),
        "referenceTaskIds": wrong_list("1", 1_000),
    }
    async with httpx.AsyncClient(base_url=gateway.url, timeout=WAIT_S) as client:
        for name, value in lists.items():
            answer = await post(client, send_body(method, **{name: value}))
            assert answer["error"]["code"] == -32602
            assert len(_problems(answer)) == MOST_LISTED


MOST_COST = 200
"""Of normal requests: they take 2 to 60 times as much. A list of all problems took 9,000 times."""
SIZES = [1_000_000, 130_000, 60_000]
"""Too many values, not quite too many, and so few that they are not counted."""


@pytest.mark.requirement("promise.bounds.hostile")
@pytest.mark.parametrize("name", ["parts", "extensions", "referenceTaskIds", "metadata"])
async def test_wrong_parameters_cost_not_much_more_than_a_normal_request(
    start_gateway: StartGateway, name: str
) -> None:
    gateway = start_gateway()  # with an agent that costs nothing itself
    items = ["1", "{}", '{"text":1}', '{"raw":"!"}', '{"text":"a","url":"b"}', '{"text":"fine"}']
    await call(gateway.port, "SendMessage", message("first"))
    normal = await cost_of(gateway.pid, lambda: call(gateway.port, "SendMessage", message("hello")))
    for size in SIZES:
        for item in items:
            body = rpc_body(send_body("SendMessage", **{name: wrong_list(item, size)}))
            cost = await cost_of(gateway.pid, lambda body=body: exchange(gateway.port, body), 3)
            assert cost < MOST_COST * normal, (size, item, cost / normal)


@pytest.mark.requirement("promise.bounds.hostile")
@pytest.mark.parametrize("twice", ["", ',"0":2', ',"x":"\\u003a"'])
async def test_many_members_cost_not_much_more_than_a_normal_request(
    start_gateway: StartGateway, twice: str
) -> None:
    gateway = start_gateway()
    await call(gateway.port, "SendMessage", message("first"))
    normal = await cost_of(gateway.pid, lambda: call(gateway.port, "SendMessage", message("hello")))
    members = ",".join(f'"{number}":1' for number in range(24_000))
    body = rpc_body(send_body("SendMessage", metadata=f"{{{members}{twice}}}", parts="[1]"))
    cost = await cost_of(gateway.pid, lambda: exchange(gateway.port, body), 3)
    assert cost < MOST_COST * normal, cost / normal


@pytest.mark.parametrize("path", ["/tools/agent_call", "/mcp"])
async def test_the_values_of_a_request_to_tools_are_counted_before_it_is_decoded(
    standing_gateway: GatewayProcess, operator_token: str, path: str
) -> None:
    """Four megabytes of wrong items took a tool more than a second of the event loop."""
    headers = {
        "authorization": f"Bearer {operator_token}",
        "accept": "application/json, text/event-stream" if path == "/mcp" else "application/json",
        "content-type": "application/json",
    }
    body = b'{"agent":"main","skill":"s","input":%b}' % wrong_list("{}", 4_000_000).encode()
    async with httpx.AsyncClient(base_url=standing_gateway.url, timeout=WAIT_S) as client:
        refused = await client.post(path, content=body, headers=headers)
    assert refused.status_code == 413, refused.text
    assert "limits.bodyValues" in refused.json()["error"]["message"]


async def exchange(port: int, request: bytes) -> None:
    """A request that is refused."""
    async with RawClient(port) as client:
        await client.send(request.replace(b"\r\n", b"\r\nconnection: close\r\n", 1))
        await client.response()
        assert b'"error"' in client.heard, client.heard[:500]


MOST_ROUNDS = 10


async def test_health_is_answered_while_wrong_parameters_arrive(gateway: GatewayProcess) -> None:
    bodies = [
        send_body("SendMessage", **{name: wrong_list(item)})
        for name in ("parts", "extensions", "referenceTaskIds")
        for item in ("1", "{}", '{"text":1}')
    ]
    async with httpx.AsyncClient(base_url=gateway.url, timeout=WAIT_S) as client:
        # Whoever asks meanwhile is answered in between, and not once when all of them are done.
        # How often depends on the machine: the best of some rounds counts.
        answered = 0
        for _ in range(MOST_ROUNDS):
            attack = asyncio.gather(*(post(client, body) for body in bodies * 4))
            count = 0
            while not attack.done():
                count += (await client.get("/healthz")).status_code == 200
            refused = await attack
            assert all(len(json.dumps(answer)) < 20_000 for answer in refused)
            answered = max(answered, count)
            if answered >= 3:
                break
    assert answered >= 3


def _problems(answer: Any) -> list[Any]:
    """The problems of an error, in either version's form."""
    data = answer["error"]["data"]
    if isinstance(data, dict):
        return data["problems"]
    return next(one["fieldViolations"] for one in data if "fieldViolations" in one)
