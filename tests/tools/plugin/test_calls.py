"""The plugin carries calls to the gateway and back, and has an answer on every bad day."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.ports import free_port

Json = Any
ENVELOPE = {"ok": True, "operation": "remote_agent", "action": "send", "summary": {}, "raw": {}}


def frame(event: str, content: Json) -> bytes:
    return f"event: {event}\ndata: {json.dumps(content)}\n\n".encode()


def update(text: str) -> Json:
    return {**ENVELOPE, "phase": "update", "summary": {"message_text": text}}


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    place = tmp_path / "token"
    place.write_text("oca_tool_secret\n", "ascii")
    return str(place)


@pytest.mark.requirement("remote.register.host-result", "remote.tool.session")
@pytest.mark.requirement("calls.doors.plugin")
async def test_a_call_carries_the_token_and_the_callers_session_from_the_host(
    host, scripted, token_file: str
) -> None:
    scripted.pieces = [frame("result", ENVELOPE)]
    await host.register(url=scripted.url, tokenFile=token_file)
    params = {"action": "send", "sessionKey": "forged", "agentId": "forged"}
    result = await host.call(params, sessionKey="agent:main:café", agentId="main")
    assert result["details"] == ENVELOPE
    assert [json.loads(part["text"]) for part in result["content"]] == [ENVELOPE]
    [asked] = scripted.posts()
    assert asked["path"] == "/tools/remote_agent"
    assert asked["body"] == params
    headers = asked["headers"]
    assert headers["authorization"] == "Bearer oca_tool_secret"
    assert headers["x-openclaw-session-key"].encode("latin-1").decode() == "agent:main:café"
    assert headers["x-openclaw-agent-id"] == "main"
    assert "text/event-stream" in headers["accept"]


@pytest.mark.requirement("remote.register.signatures", "remote.register.host-result")
async def test_a_host_may_leave_out_the_id_of_a_call(host, scripted, token_file: str) -> None:
    scripted.pieces = [frame("update", update("so far")), frame("result", ENVELOPE)]
    await host.register(url=scripted.url, tokenFile=token_file)
    call = host.begin({"action": "send"}, nameless=True)
    assert (await host.result_of(call))["details"] == ENVELOPE
    assert scripted.posts()[0]["body"] == {"action": "send"}
    assert [line["update"]["details"] for line in host.lines if "update" in line] == [
        update("so far")
    ]


async def test_without_a_session_none_is_claimed(host, scripted, token_file: str) -> None:
    scripted.pieces = [frame("result", ENVELOPE)]
    await host.register(url=scripted.url, tokenFile=token_file)
    await host.call({"sessionKey": "forged"}, agentId="a\nb")
    assert not {"x-openclaw-session-key", "x-openclaw-agent-id"} & set(
        scripted.posts()[0]["headers"]
    )


async def test_a_token_is_read_anew_for_every_call(host, scripted, tmp_path: Path) -> None:
    scripted.pieces = [frame("result", ENVELOPE)]
    place = tmp_path / "later"
    await host.register(url=f"{scripted.url}/", tokenFile=str(place))
    unread = (await host.call({"action": "send"}))["details"]
    assert unread["error"]["details"]["reason"] == "token_unreadable"
    place.write_text("new", "ascii")
    assert (await host.call({}))["details"]["ok"] is True
    assert scripted.posts()[0]["headers"]["authorization"] == "Bearer new"


async def test_updates_are_handed_on_as_they_come_in_order(host, scripted) -> None:
    told = [update("one"), update("two")]
    scripted.pieces = [b": open\n\n", *(frame("update", one) for one in told)]
    scripted.stays_open = True
    await host.register(url=scripted.url)
    call = host.begin({"action": "send"})
    await host.wait_for(lambda line: line.get("update", {}).get("details") == told[1])
    heard = [line["update"]["details"] for line in host.lines if "update" in line]
    assert heard == told
    host.abort(call)
    aborted = (await host.result_of(call))["details"]
    assert aborted["error"]["details"]["reason"] == "aborted"


async def test_an_abort_ends_the_request(host, scripted) -> None:
    scripted.stays_open = True
    await host.register(url=scripted.url)
    call = host.begin({"action": "watch"})
    assert await asyncio.to_thread(scripted.is_asked.wait, 20)
    host.abort(call)
    assert (await host.result_of(call))["details"]["ok"] is False
    assert await asyncio.to_thread(scripted.is_left.wait, 20)


async def test_a_gateway_that_is_down_is_reported_with_what_to_do(host) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    await host.register(url=url)
    tool = await host.tool()
    assert url in tool["description"]
    answer = (await host.call({"action": "status"}))["details"]
    assert answer["ok"] is False
    assert answer["operation"] == "remote_agent"
    assert answer["action"] == "status"
    assert answer["error"]["code"] == "INTERNAL_ERROR"
    assert answer["error"]["details"]["reason"] == "gateway_unreachable"
    assert "openclaw-a2a up" in answer["error"]["message"]


REFUSED = {"error": {"code": "overloaded", "message": "32 calls under way; wait for one to end"}}


JSON, STREAM = "application/json", "text/event-stream"
BAD_DAYS = [
    (401, JSON, [b'{"error": {"code": "x", "message": "no"}}'], "token_refused"),
    (403, "text/html", [b"<html>"], "token_refused"),
    (429, JSON, [json.dumps(REFUSED).encode()], "refused"),
    (200, "text/html", [b"<html>hello</html>"], "not_a_gateway"),
    (200, JSON, [b"[1, 2]"], "not_a_gateway"),
    (200, JSON, [b"null"], "not_a_gateway"),
    (502, "text/plain", [b""], "not_a_gateway"),
    (200, STREAM, [], "broke_off"),
    (200, STREAM, [frame("update", update("x"))], "broke_off"),
    (200, STREAM, [frame("result", ENVELOPE)[:-1]], "broke_off"),
    (200, STREAM, [b"event: result\ndata: {half\n\n"], "broke_off"),
    (200, STREAM, [frame("result", 5)], "not_a_gateway"),
    (200, STREAM, [b"event: result\ndata: ", *[b"x" * 1_000_000] * 40], "broke_off"),
]


async def test_any_response_becomes_a_result_with_a_hint_for_the_model(host, scripted) -> None:
    await host.register(url=scripted.url)
    told: list[str] = []
    for scripted.status, scripted.kind, scripted.pieces, _ in BAD_DAYS:
        answer = (await host.call({"action": "send"}))["details"]
        assert answer["ok"] is False
        assert answer["error"]["details"]["hint"]
        told.append(answer["error"]["details"]["reason"])
    assert told == [reason for *_, reason in BAD_DAYS]


async def test_arguments_that_are_no_object_are_the_gateways_to_judge(host, scripted) -> None:
    scripted.pieces = [frame("result", ENVELOPE)]
    await host.register(url=scripted.url)
    for params in (None, [], "text", 7):
        assert (await host.call(params))["details"]["ok"] is True
    assert [one["body"] for one in scripted.posts()] == [{}, [], "text", 7]


async def test_an_envelope_that_fails_is_handed_on_as_it_is(host, scripted) -> None:
    failed = {"ok": False, "operation": "remote_agent", "action": "send", "error": {"code": "X"}}
    scripted.pieces = [frame("result", failed)]
    await host.register(url=scripted.url)
    assert (await host.call({"action": "send"}))["details"] == failed


async def test_a_stream_may_be_cut_anywhere(host, scripted) -> None:
    told = [update("one"), update("é\u2028\n\n")]
    frames = [b": beat\n\n", *(frame("update", one) for one in told), frame("result", ENVELOPE)]
    await host.register(url=scripted.url)
    for line_end in (b"\n", b"\r\n"):
        stream = b"".join(frames).replace(b"\n", line_end)
        for size in (1, 2, 3, 7, 64):
            host.lines.clear()
            scripted.pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
            assert (await host.call({"action": "send"}))["details"] == ENVELOPE
            heard = [line["update"]["details"] for line in host.lines if "update" in line]
            assert heard == told


async def test_a_large_result_arrives_whole(host, scripted) -> None:
    large = {**ENVELOPE, "raw": {"text": "x" * 8_000_000}}
    scripted.pieces = [frame("result", large)]
    await host.register(url=scripted.url)
    result = await host.call({"action": "send"})
    assert len(result["details"]["raw"]["text"]) == 8_000_000


ACCEPTED = {"status": "pending", "correlationId": "c", "taskId": "t"}
CALL_RESULTS = [
    ACCEPTED,
    {"status": "error", "error": "loop: a is in the chain of calls already (a -> b -> a)"},
    {"results": [], "aggregateConfidence": 0, "completedCount": 0, "totalCount": 0},
]


def offer(scripted, name: str) -> None:
    [listed] = scripted.table["tools"]
    scripted.table = {"tools": [{**listed, "name": name}]}


async def test_results_of_agent_calls_are_passed_on_unchanged(host, scripted) -> None:
    offer(scripted, "agent_call")
    await host.register(url=scripted.url)
    for result in CALL_RESULTS:
        scripted.pieces = [frame("result", result)]
        assert (await host.call({"agent": "b"}, tool="agent_call"))["details"] == result
    assert {one["path"] for one in scripted.posts()} == {"/tools/agent_call"}


async def test_a_call_between_agents_that_cannot_be_made_is_an_error_of_the_same_kind(
    host, scripted
) -> None:
    offer(scripted, "agent_call")
    await host.register(url=scripted.url)
    for scripted.status, scripted.kind, scripted.pieces, _ in BAD_DAYS:
        answer = (await host.call({"agent": "b"}, tool="agent_call"))["details"]
        assert answer["status"] == "error"
        assert "action" not in answer["error"]
    scripted.status, scripted.kind, scripted.pieces = 404, JSON, [b'{"status": "no such page"}']
    told = (await host.call({"agent": "b"}, tool="agent_call"))["details"]["error"]
    assert "no openclaw-a2a gateway" in told


async def test_a_call_that_broke_off_is_reported_with_how_to_get_the_answer(host, scripted) -> None:
    offer(scripted, "agent_call")
    scripted.pieces = [b": open\n\n"]
    await host.register(url=scripted.url)
    broken = (await host.call({"agent": "b", "wait": True}, tool="agent_call"))["details"]
    assert "broke off" in broken["error"]
    assert "comes into this session" in broken["error"]


@pytest.mark.parametrize("name", ["objective_create", "plan_update", "objective_status"])
async def test_results_of_planning_are_passed_on_and_aborted_calls_are_looked_up(
    host, scripted, name: str
) -> None:
    offer(scripted, name)
    await host.register(url=scripted.url)
    result = {"status": "ok", "objective": {"id": "obj-1"}}
    scripted.pieces = [frame("result", result)]
    assert (await host.call({"name": "Party"}, tool=name))["details"] == result
    scripted.pieces = [b": open\n\n"]
    broken = (await host.call({"name": "Party"}, tool=name))["details"]
    assert broken["status"] == "error"
    assert "look with objective_status" in broken["error"]
