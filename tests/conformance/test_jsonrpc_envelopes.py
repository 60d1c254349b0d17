"""JSON-RPC itself: requests, ids, methods, the type of params."""

import json

import anyio
import anyio.lowlevel
import pytest
from tests.conformance.conftest import Start
from tests.conformance.protocol_clients import Json, V03Client, encode_call, v03_message
from tests.conformance.scripted_agent import ScriptedAgent

from openclaw_a2a.model.agent_event import Reply

RPC = "/a2a/jsonrpc"


def _agent() -> ScriptedAgent:
    return ScriptedAgent(Reply.of_text("hello"))


@pytest.mark.requirement("inbound.rpc.parse-error")
@pytest.mark.parametrize("body", [b"", b"{", b"nothing", b'{"jsonrpc":"2.0",}', b"\xff\xfe"])
async def test_body_that_is_not_json_is_a_parse_error_without_id(start: Start, body: bytes) -> None:
    response = await (await start(_agent())).post(RPC, body)
    assert response.status == 200
    assert (response.json["error"]["code"], response.json["id"]) == (-32700, None)


@pytest.mark.requirement("inbound.rpc.not-a-request")
@pytest.mark.parametrize(
    "request_body",
    [
        {"id": 5, "method": "tasks/get", "params": {}},
        {"jsonrpc": "1.0", "id": 5, "method": "tasks/get"},
        {"jsonrpc": 2.0, "id": 5, "method": "tasks/get"},
        {"jsonrpc": "2.0", "id": 5},
        {"jsonrpc": "2.0", "id": 5, "method": 7},
        {"jsonrpc": "2.0", "id": 5, "method": ""},
    ],
)
async def test_body_that_is_no_request_is_refused(start: Start, request_body: Json) -> None:
    response = await (await start(_agent())).post(RPC, json.dumps(request_body).encode())
    assert (response.json["error"]["code"], response.json["id"]) == (-32600, 5)


@pytest.mark.requirement("inbound.rpc.batch")
async def test_batch_is_refused_and_nothing_of_it_runs(start: Start) -> None:
    agent = _agent()
    call = json.loads(encode_call("message/send", v03_message()))
    response = await (await start(agent)).post(RPC, json.dumps([call, call]).encode())
    assert response.json["error"]["code"] == -32600
    assert response.json["id"] is None
    assert agent.turns == []


@pytest.mark.requirement("inbound.rpc.id-echo")
@pytest.mark.parametrize(
    ("call_id", "echoed"),
    [
        ("abc", "abc"),
        (7, 7),
        (None, None),
        (-3, -3),
        (12345678901234567890, 12345678901234567890),
        ("\u00e9\u4e16", "\u00e9\u4e16"),
        (True, None),
        ([1], None),
        ({"a": 1}, None),
        (1.5, None),
    ],
)
async def test_id_is_echoed_when_it_is_a_proper_one(
    start: Start, call_id: Json, echoed: Json
) -> None:
    request = {"jsonrpc": "1.0", "id": call_id, "method": "tasks/get", "params": {"id": "x"}}
    response = await (await start(_agent())).post(RPC, json.dumps(request).encode())
    assert response.json["error"]["code"] == -32600
    assert response.json["id"] == echoed
    assert type(response.json["id"]) is type(echoed)


@pytest.mark.requirement("inbound.rpc.unknown-method")
@pytest.mark.parametrize("method", ["message/sing", "SingMessage", "tasks/list", "rpc.discover"])
async def test_the_error_names_the_unknown_method(start: Start, method: str) -> None:
    v03 = V03Client(await start(_agent()))
    failed = await v03.error(method, {})
    assert failed.code == -32601
    assert method in failed.message


@pytest.mark.requirement("inbound.rpc.params-shape")
@pytest.mark.parametrize(
    "params",
    [
        None,
        [],
        "text",
        {},
        {"message": None},
        {"message": "hi"},
        {"message": {"messageId": "m", "role": "user"}},
        {"message": {"messageId": "m", "role": "user", "parts": {}}},
        {"message": {"messageId": "m", "role": "user", "parts": "hi"}},
        {"message": {"messageId": "m", "role": "user", "parts": ["hi"]}},
    ],
)
async def test_params_of_the_wrong_shape_are_refused(start: Start, params: Json) -> None:
    agent = _agent()
    v03 = V03Client(await start(agent))
    assert (await v03.error("message/send", params)).code == -32602
    assert agent.turns == []


@pytest.mark.requirement("inbound.rpc.params-shape")
async def test_absent_params_are_refused(start: Start) -> None:
    http = await start(_agent())
    response = await http.post(RPC, b'{"jsonrpc":"2.0","id":1,"method":"message/send"}')
    assert response.json["error"]["code"] == -32602


@pytest.mark.requirement("inbound.rpc.notification")
@pytest.mark.parametrize("method", ["message/send", "message/stream"])
async def test_a_request_without_an_id_is_carried_out_and_gets_no_body(
    start: Start, method: str
) -> None:
    agent = _agent()
    http = await start(agent, account={"agentStyle": "task-generating"})
    call = {"jsonrpc": "2.0", "method": method, "params": v03_message("quietly")}
    response = await http.post(RPC, json.dumps(call).encode())
    assert (response.status, response.body) == (204, b"")
    assert "content-type" not in response.headers
    assert "content-length" not in response.headers
    with anyio.fail_after(240):
        while not agent.turns:
            await anyio.lowlevel.checkpoint()
    assert agent.turns[0].raw_body == "quietly"


@pytest.mark.requirement("inbound.rpc.notification")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tasks/get", {"id": "none"}),
        ("GetTask", {"id": "none"}),
        ("message/send", {}),
        ("tasks/resubscribe", {"id": "none"}),
        ("SubscribeToTask", {"id": "none"}),
        ("nothing/here", {}),
    ],
)
async def test_an_error_of_a_request_without_an_id_gets_no_body(
    start: Start, method: str, params: Json
) -> None:
    call = {"jsonrpc": "2.0", "method": method, "params": params}
    response = await (await start(_agent())).post(RPC, json.dumps(call).encode())
    assert (response.status, response.body) == (204, b"")


@pytest.mark.requirement("inbound.rpc.notification")
async def test_an_id_that_is_null_is_answered(start: Start) -> None:
    response = await (await start(_agent())).post(
        RPC, encode_call("tasks/get", {"id": "none"}, call_id=None)
    )
    assert (response.json["id"], response.json["error"]["code"]) == (None, -32001)
    assert "not found" in response.json["error"]["message"]
