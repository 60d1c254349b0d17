"""Any input gets a clear error: never a 500, never a hang."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance.asgi_client import AsgiClient, Request, Response
from tests.conformance.conftest import Start, make_gateway
from tests.conformance.protocol_clients import (
    Json,
    V03Client,
    V1Client,
    encode_call,
    v03_message,
    v1_message,
)
from tests.conformance.scripted_agent import ScriptedAgent
from tests.conformance.stream_outline import published_text

from openclaw_a2a.model.agent_event import Reply, TextDelta

RPC = "/a2a/jsonrpc"
REST = "/a2a/rest"
METHODS = [
    "SendMessage",
    "SendStreamingMessage",
    "GetTask",
    "ListTasks",
    "CancelTask",
    "SubscribeToTask",
    "CreateTaskPushNotificationConfig",
    "GetExtendedAgentCard",
    "message/send",
    "message/stream",
    "tasks/get",
    "tasks/cancel",
    "tasks/resubscribe",
    "tasks/pushNotificationConfig/set",
]


def _agent() -> ScriptedAgent:
    return ScriptedAgent(Reply.of_text("hello"))


def _with_raw_text(raw: bytes) -> bytes:
    """A send whose text is exactly these bytes of JSON."""
    return encode_call("SendMessage", v1_message("MARK")).replace(b'"MARK"', raw)


def _is_clear_refusal(response: Response) -> bool:
    error = response.json["error"]
    return 200 <= response.status < 500 and error["code"] != -32603 and bool(error["message"])


@pytest.mark.requirement("promise.bounds.hostile")
@pytest.mark.parametrize(
    "raw",
    [
        b'"\xff"',
        b'"\xc3\x28"',
        b'"\xed\xa0\x80"',
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"1e999",
        b"1" * 5_000,
        b'"unfinished',
        b'"tab\there"',
        b'"nul\x00"',
        b'"a","text":"b"',
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    ],
)
async def test_malformed_or_malicious_json_is_refused(start: Start, raw: bytes) -> None:
    agent = _agent()
    http = await start(agent)
    assert _is_clear_refusal(await http.post(RPC, _with_raw_text(raw)))
    assert _is_clear_refusal(await http.post(f"{REST}/message:send", _with_raw_text(raw)))
    assert agent.turns == []


@pytest.mark.requirement("promise.bounds.depth")
@pytest.mark.parametrize("depth", [200, 5_000, 100_000])
async def test_deep_nesting_in_data_and_metadata_is_refused(start: Start, depth: int) -> None:
    agent = _agent()
    http = await start(agent)
    deep = b'{"d":' * depth + b"1" + b"}" * depth
    for place in ('"data":"MARK"', '"text":"x","metadata":{"m":"MARK"}'):
        body = encode_call("SendMessage", v1_message("MARK"))
        body = body.replace(b'"text":"MARK"', place.encode()).replace(b'"MARK"', deep)
        assert _is_clear_refusal(await http.post(RPC, body))
    assert agent.turns == []


@pytest.mark.requirement("promise.bounds.parts")
@pytest.mark.parametrize("method", ["SendMessage", "message/send"])
async def test_ten_thousand_parts_are_refused(start: Start, method: str) -> None:
    agent = _agent()
    http = await start(agent)
    new = method == "SendMessage"
    parts = [{"text": "x"} if new else {"kind": "text", "text": "x"}] * 10_000
    params = v1_message(parts=parts) if new else v03_message(parts=parts)
    response = await http.post(RPC, encode_call(method, params))
    assert response.json["error"]["code"] == -32602
    assert agent.turns == []


@pytest.mark.requirement("promise.bounds.hostile")
@pytest.mark.parametrize(
    "members",
    [
        {"messageId": "x" * 100_000},
        {"messageId": "a\u0000b"},
        {"contextId": "x" * 100_000},
        {"contextId": "line\nbreak"},
        {"taskId": "../../etc/passwd"},
        {"taskId": "x" * 100_000},
        {"referenceTaskIds": ["x" * 100_000]},
        {"role": "ROLE_AGENT"},
        {"role": "ROLE_KING"},
        {"metadata": [1]},
        {"extensions": "x"},
    ],
)
async def test_malicious_members_are_refused(start: Start, members: Json) -> None:
    agent = _agent()
    http = await start(agent)
    response = await http.post(RPC, encode_call("SendMessage", v1_message(**members)))
    assert _is_clear_refusal(response)
    assert agent.turns == []


@pytest.mark.requirement("promise.bounds.hostile")
@pytest.mark.parametrize("escape", ["\\ud800", "\\udfff x", "\\ud83d"])
async def test_lone_surrogates_never_break_a_response(start: Start, escape: str) -> None:
    agent = ScriptedAgent(script=lambda turn: [Reply.of_text(turn.body)])
    http = await start(agent, account={"agentStyle": "task-generating"})
    for method in ("SendMessage", "SendStreamingMessage"):
        body = encode_call(method, v1_message("MARK")).replace(b"MARK", escape.encode())
        response = await http.post(RPC, body)
        assert response.status == 200
        response.body.decode("utf-8")
    page = await V1Client(http).list(includeArtifacts=True)
    json.dumps(page).encode()


@pytest.mark.requirement("wire.sse.one-line", "promise.bounds.hostile")
@pytest.mark.parametrize("text", ["a\nb", "a\r\nb\rc", "a\u2028b\u2029c\u0085d", "\n\n", "data: x"])
async def test_line_breaks_in_text_stay_inside_their_frame(start: Start, text: str) -> None:
    agent = ScriptedAgent(TextDelta(text), TextDelta("end"))
    v03 = V03Client(await start(agent, account={"agentStyle": "task-generating"}))
    frames = await v03.events("message/stream", v03_message())
    assert published_text(frames, "assistant-output-0001") == text + "end"


@pytest.mark.requirement("wire.error.content-type")
@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "json"],
)
async def test_content_type_is_checked_before_the_body_is_parsed(
    start: Start, content_type: str
) -> None:
    agent = _agent()
    http = await start(agent)
    for path in (RPC, f"{REST}/message:send"):
        for body in (b"{not json", encode_call("SendMessage", v1_message())):
            response = await http.post(path, body, content_type=content_type)
            assert response.status == 415
            assert response.json["error"]["message"]
    assert agent.turns == []


@pytest.mark.requirement("wire.error.content-type")
async def test_absent_content_type_is_refused(start: Start) -> None:
    http = await start(_agent())
    body = encode_call("SendMessage", v1_message())
    assert (await http.request(Request("POST", RPC, {}, (body,)))).status == 415


@pytest.mark.requirement("promise.bounds.body")
@pytest.mark.parametrize("length", ["0" * 5_000 + "2", "9" * 5_000, "+2", "\u00b2"])
async def test_any_length_that_another_server_passes_on_is_answered(
    start: Start, length: str
) -> None:
    http = await start(_agent())
    for path in (RPC, f"{REST}/message:send"):
        response = await http.post(path, b"{}", content_length=length)
        assert 200 <= response.status < 500
        assert response.json["error"]["code"] != -32603


@pytest.mark.requirement("promise.bounds.hostile")
async def test_a_disconnect_in_the_middle_of_the_body_starts_nothing(start: Start) -> None:
    agent = _agent()
    http = await start(agent)
    body = encode_call("SendMessage", v1_message())
    request = Request("POST", RPC, {"content-type": "application/json"}, (body[:20], body[20:]))
    async with http.open(request, breaks_off=True):
        pass
    assert agent.turns == []


@pytest.mark.requirement("promise.bounds.hostile")
@pytest.mark.parametrize(
    "path",
    [
        f"{REST}/tasks/%00",
        f"{REST}/tasks/..%2f..%2fetc",
        f"{REST}/tasks/{'x' * 5_000}",
        f"{REST}/tasks?pageSize=9999999999999999999999",
        f"{REST}/tasks?status=%ff%fe",
        f"{REST}/tasks?pageToken={'A' * 9_000}",
        f"{REST}/tasks/a/b/c/d",
        "/../../etc/passwd",
        "/" + "x" * 9_000,
        "//",
        "/%0d%0aset-cookie:x",
    ],
)
async def test_malicious_paths_are_refused(start: Start, path: str) -> None:
    response = await (await start(_agent())).get(path)
    assert 400 <= response.status < 500
    assert response.json["error"]["message"]


@pytest.mark.requirement("promise.bounds.hostile")
@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
async def test_other_http_methods_are_refused(start: Start, method: str) -> None:
    http = await start(_agent())
    for path in (RPC, "/.well-known/agent-card.json", f"{REST}/message:send"):
        response = await http.request(Request(method, path))
        assert 400 <= response.status < 500


@pytest.fixture(scope="module")
def shared_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A gateway for the whole module, asked from ordinary (not async) tests."""
    data: Path = tmp_path_factory.mktemp("steady")
    agent = ScriptedAgent(script=lambda turn: [Reply(turn.message.parts)])
    with start_blocking_portal() as portal:

        async def make() -> Any:
            return make_gateway(agent, data=data)

        gateway = portal.call(make)
        with portal.wrap_async_context_manager(gateway):
            http = AsgiClient(gateway.asgi)

            def post(path: str, body: bytes) -> Response:
                return portal.call(http.post, path, body)

            yield post


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner),
    max_leaves=15,
)
_names = st.sampled_from(
    [
        "id",
        "message",
        "messageId",
        "role",
        "parts",
        "text",
        "data",
        "kind",
        "file",
        "contextId",
        "taskId",
        "configuration",
        "historyLength",
        "pageSize",
        "pageToken",
        "metadata",
        "status",
    ]
)
_near_params = st.recursive(
    _json | st.sampled_from(["user", "ROLE_USER", "text", "m-1"]),
    lambda inner: st.dictionaries(_names, inner, max_size=6) | st.lists(inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.requirement("promise.bounds.hostile")
@given(body=st.binary(max_size=300))
def test_arbitrary_bytes_never_cause_a_500(shared_gateway: Any, body: bytes) -> None:
    for path in (RPC, f"{REST}/message:send"):
        response = shared_gateway(path, body)
        assert response.status < 500
        assert response.json["error"]["code"] != -32603


@pytest.mark.requirement("promise.bounds.hostile")
@given(method=st.sampled_from(METHODS), params=_near_params, call_id=_json)
def test_arbitrary_params_never_cause_a_500(
    shared_gateway: Any, method: str, params: Json, call_id: Json
) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": call_id, "method": method, "params": params})
    response = shared_gateway(RPC, body.encode("utf-8", "surrogatepass"))
    assert response.status < 500
    assert "-32603" not in response.body.decode("utf-8")


@pytest.mark.requirement("promise.bounds.hostile", "wire.v1.parts")
@given(text=st.text(min_size=1).filter(str.strip), data=_json)
def test_arbitrary_text_and_data_round_trip(shared_gateway: Any, text: str, data: Json) -> None:
    params = v1_message(parts=[{"text": text}, {"data": data}])
    body = json.dumps(json.loads(encode_call("SendMessage", params)))
    response = shared_gateway(RPC, body.encode())
    assert response.json["result"]["message"]["parts"] == [{"text": text}, {"data": data}]
