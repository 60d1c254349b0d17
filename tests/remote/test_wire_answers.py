"""Answers as they come over HTTP, byte by byte, from peers of both protocol versions."""

import json
import sys

import pytest
from tests.remote.scripted_peer import (
    Answer,
    PeerRequest,
    PeerWriter,
    card_of,
    respond,
    scripted,
)
from tests.remote.tool_harness import one_target, open_tool

from openclaw_a2a.model.ids import Json, JsonObject

VERSIONS = ["1.0", "0.3"]
BINDINGS = ["JSONRPC", "HTTP+JSON"]
EVENT_STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def old_task(state: str = "working", **more: Json) -> JsonObject:
    return {"kind": "task", "id": "t-1", "contextId": "c-1", "status": {"state": state}, **more}


def new_task(state: str = "WORKING", **more: Json) -> JsonObject:
    status = {"state": f"TASK_STATE_{state}"}
    return {"id": "t-1", "contextId": "c-1", "status": status, **more}


def frames(*lines: str, ending: str = "\n") -> Answer:
    """A stream of exactly these lines; `$ID` stands for the id of the request."""

    async def answer(received: PeerRequest, writer: PeerWriter) -> None:
        asked = received.json if received.body else {}
        text = "".join(line.replace("$ID", str(asked.get("id"))) + ending for line in lines)
        writer.write(EVENT_STREAM + text.encode())
        await writer.drain()

    return answer


def raw(body: str, *, status: str = "200 OK") -> Answer:
    """An answer of exactly this text; `$ID` stands for the id of the request."""

    async def answer(received: PeerRequest, writer: PeerWriter) -> None:
        asked = received.json if received.body else {}
        text = body.replace("$ID", str(asked.get("id")))
        await respond(text, status=status)(received, writer)

    return answer


def rpc(value: Json) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": "$ID", "result": value}, ensure_ascii=False)


# -------------------------------------------------------------------- lines of streams


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("version", VERSIONS)
async def test_only_line_ends_of_the_protocol_end_a_line_of_a_stream(
    version: str, ending: str
) -> None:
    text = "one\u2028two\u2029three\u0085four\x0bfive\x0csix\x1cseven"
    if version == "1.0":
        artifact = {"artifactId": "a", "parts": [{"text": text}]}
        event: JsonObject = {"task": new_task("COMPLETED", artifacts=[artifact])}
    else:
        artifact = {"artifactId": "a", "parts": [{"kind": "text", "text": text}]}
        event = old_task("completed", artifacts=[artifact])
    line = rpc(event)
    for control in "\x0b\x0c\x1c":  # JSON escapes these, and nothing else of the text
        line = line.replace(control, f"\\u{ord(control):04x}")
    async with scripted(frames(f"data: {line}", "", ending=ending)) as peer:
        peer.card = card_of(peer.url, version=version)
        async with open_tool(one_target(peer.url)) as harness:
            outcome = await harness.send("hi", follow_updates=True)
    assert outcome["ok"], outcome
    assert outcome["summary"]["message_text"] == text


# -------------------------------------------------------------------- errors


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_error_event_has_the_code_of_the_peer(version: str) -> None:
    error = {"code": -32603, "message": "out of tea", "data": "why"}
    body = json.dumps({"jsonrpc": "2.0", "id": "$ID", "error": error})
    async with scripted(frames("event: error", f"data: {body}", "")) as peer:
        peer.card = card_of(peer.url, version=version)
        async with open_tool(one_target(peer.url)) as harness:
            failure = await harness.fail_send(follow_updates=True)
    assert failure["message"] == "out of tea"
    assert failure["details"]["rpcCode"] == -32603
    assert failure["details"]["rpcData"] == "why"
    assert "baseUrl" not in failure["details"].get("hint", "")


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("version", VERSIONS)
async def test_an_error_event_of_plain_text_is_the_reason(version: str, binding: str) -> None:
    async with scripted(frames("event: error", "data: out of tea", "")) as peer:
        peer.card = card_of(peer.url, version=version, binding=binding)
        async with open_tool(one_target(peer.url)) as harness:
            failure = await harness.fail_send(follow_updates=True)
    assert failure["code"] == "A2A_SDK_ERROR"
    assert "out of tea" in failure["message"]
    assert "baseUrl" not in failure["details"].get("hint", "")


@pytest.mark.parametrize("status", ["500 Oh No", "400 Bad Request", "503 Later"])
@pytest.mark.parametrize("follow", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_json_rpc_error_keeps_its_code_whatever_the_http_status(
    version: str, follow: bool, status: str
) -> None:
    error = {"code": -32001, "message": "no such task", "data": {"taskId": "t"}}
    body = json.dumps({"jsonrpc": "2.0", "id": "$ID", "error": error})
    async with scripted(raw(body, status=status)) as peer:
        peer.card = card_of(peer.url, version=version)
        async with open_tool(one_target(peer.url)) as harness:
            failure = await harness.fail_send(**({"follow_updates": True} if follow else {}))
    assert failure["message"] == "no such task"
    details = failure["details"]
    assert details["rpcCode"] == -32001
    assert details["errorName"] == "TaskNotFoundError"
    assert details["rpcData"] == {"type": "object", "keys": ["taskId"]}
    assert details["httpStatus"] == int(status[:3])


@pytest.mark.parametrize("follow", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("version", VERSIONS)
async def test_an_answer_to_another_request_is_refused(version: str, follow: bool) -> None:
    value = {"task": new_task()} if version == "1.0" else old_task()
    body = rpc(value).replace("$ID", "somebody else's")
    answer = frames(f"data: {body}", "") if follow else raw(body)
    async with scripted(answer) as peer:
        peer.card = card_of(peer.url, version=version)
        async with open_tool(one_target(peer.url)) as harness:
            failure = await harness.fail_send(**({"follow_updates": True} if follow else {}))
            assert harness.tool.handles.all == ()
    assert failure["code"] == "A2A_SDK_ERROR"
    assert "another request" in failure["message"]


# -------------------------------------------------------------------- what peers leave out


@pytest.mark.parametrize("follow", [False, True], ids=["plain", "streamed"])
async def test_a_task_of_0_3_without_a_context_is_still_a_task(follow: bool) -> None:
    body = rpc({"kind": "task", "id": "t-1", "status": {"state": "working"}})
    answer = frames(f"data: {body}", "") if follow else raw(body)
    async with scripted(answer) as peer:
        peer.card = card_of(peer.url, version="0.3")
        async with open_tool(one_target(peer.url)) as harness:
            outcome = await harness.send("hi", **({"follow_updates": True} if follow else {}))
    assert outcome["ok"], outcome
    task = outcome["summary"]["continuation"]["task"]
    assert (task["task_id"], task["status"]) == ("t-1", "working")
    assert "conversation" not in outcome["summary"]["continuation"]


# -------------------------------------------------------------------- numbers

NUMBERS = (
    '{"whole": 3, "float": 3.0, "half": 0.5, "exact": 9007199254740993, '
    '"huge": 123456789012345678901234567890, "list": [1, 2.0, -7]}'
)


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("version", VERSIONS)
async def test_numbers_pass_unchanged_in_both_directions(version: str, binding: str) -> None:
    is_old_rest = version == "0.3" and binding == "HTTP+JSON"
    part = f'{{"kind": "data", "data": {NUMBERS}, "metadata": {NUMBERS}}}'
    if is_old_rest:
        part = f'{{"data": {{"data": {NUMBERS}}}, "metadata": {NUMBERS}}}'
    shown = (
        '{"kind": "task", "id": "t-1", "contextId": "c-1", "status": {"state": "STATE"}, '
        f'"artifacts": [{{"artifactId": "a", "parts": [{part}]}}], "metadata": {NUMBERS}}}'
    )
    state = "completed" if version == "0.3" and not is_old_rest else "TASK_STATE_COMPLETED"
    body = shown.replace("STATE", state)
    if version == "1.0" or is_old_rest:
        body = f'{{"task": {body}}}'
    if binding == "JSONRPC":
        body = f'{{"jsonrpc": "2.0", "id": "$ID", "result": {body}}}'
    numbers = json.loads(NUMBERS)
    async with scripted(raw(body)) as peer:
        peer.card = card_of(peer.url, version=version, binding=binding)
        async with open_tool(one_target(peer.url)) as harness:
            outcome = await harness.execute(
                "send",
                parts=[{"kind": "data", "data": numbers, "metadata": numbers}],
                metadata=numbers,
            )
    assert outcome["ok"], outcome
    [artifact] = outcome["summary"]["artifacts"]
    seen = [artifact["parts"][0]["data"], artifact["parts"][0]["metadata"]]
    seen.append(outcome["raw"]["metadata"])
    text = peer.calls[0].body.decode()
    sent = json.loads(text)
    sent = sent.get("params", sent)
    message = sent.get("message") or sent["request"]
    [said] = message.get("parts") or message["content"]
    data = said["data"]["data"] if is_old_rest else said["data"]
    for numbers_there in (*seen, data, said["metadata"], sent["metadata"]):
        # Their text tells 3 from 3.0, which are equal.
        assert json.dumps(numbers_there, sort_keys=True) == json.dumps(numbers, sort_keys=True)


@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_stream_that_the_peer_keeps_open_leaves_nothing_to_be_closed_later(
    binding: str,
) -> None:
    event: JsonObject = {"task": new_task("COMPLETED")}
    line = rpc(event) if binding == "JSONRPC" else json.dumps(event)

    async def answer(received: PeerRequest, writer: PeerWriter) -> None:
        await frames(f"data: {line}", "")(received, writer)
        await received.reader.read()  # until the caller leaves

    # What a loop closes when it has the time: a coroutine that nobody awaits if it is closed first.
    left: list[str] = []
    hooks = sys.get_asyncgen_hooks()
    async with scripted(answer) as peer:
        peer.card = card_of(peer.url, binding=binding)
        async with open_tool(one_target(peer.url)) as harness:
            sys.set_asyncgen_hooks(finalizer=lambda one: left.append(one.__qualname__))
            try:
                outcome = await harness.send("hi", follow_updates=True)
            finally:
                sys.set_asyncgen_hooks(*hooks)
    assert outcome["ok"]
    assert left == []
