"""The contract of the tool about failures: streams, errors, logs, diagnostics."""

import json
from pathlib import Path

import msgspec
import pytest
from tests.captured_logs import capture_logs
from tests.remote.scripted_peer import (
    Answer,
    PeerRequest,
    PeerWriter,
    artifact_update,
    by_method,
    card_of,
    hang_up,
    message,
    respond,
    result,
    rpc_error,
    scripted,
    stay_silent,
    stream,
    task,
)
from tests.remote.tool_harness import one_target, open_tool, target

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.store import create_store

GONE = "http://127.0.0.1:1/"
TYPES = {
    "csv": "text/csv",
    "gif": "image/gif",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "json": "application/json",
    "md": "text/markdown",
    "mp3": "audio/mpeg",
    "mp4": "video/mp4",
    "ogg": "audio/ogg",
    "pdf": "application/pdf",
    "png": "image/png",
    "svg": "image/svg+xml",
    "txt": "text/plain",
    "wav": "audio/wav",
    "webm": "video/webm",
    "webp": "image/webp",
}


# -------------------------------------------------------------------- 5 streams


@pytest.mark.requirement("remote.watch.remembered")
async def test_a_handle_remembers_that_its_peer_does_not_stream(tmp_path: Path) -> None:
    store = create_store("sqlite", path=str(tmp_path / "state.db"))
    await store.open()
    async with scripted(result(task("WORKING"))) as peer:
        peer.card = card_of(peer.url, capabilities={"streaming": False})
        async with open_tool(one_target(peer.url), store=store) as harness:
            handle = (await harness.send("hi"))["summary"]["continuation"]["task"]["task_handle"]
        received = len(peer.requests)
        async with open_tool(one_target(peer.url), store=store) as harness:
            error = await harness.fail("watch", task_handle=handle)
        assert error["details"]["suggested_action"] == "status"
        assert error["details"]["streaming_supported"] is False
        assert len(peer.requests) == received, "not even its card was asked for"
    await store.close()


@pytest.mark.requirement("remote.watch.unsupported")
async def test_an_unsupported_operation_over_rest_has_its_rpc_code() -> None:
    why = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "UNSUPPORTED_OPERATION",
        "domain": "a2a-protocol.org",
    }
    body = {"error": {"code": 400, "message": "no", "details": [why]}}
    async with scripted(respond(body, status="400 Bad Request")) as peer:
        peer.card = card_of(peer.url, binding="HTTP+JSON", capabilities={})
        async with open_tool(one_target(peer.url)) as harness:
            error = await harness.fail("watch", task_id="t-1")
    assert error["code"] == "A2A_SDK_ERROR"
    assert "action=status" in error["message"]
    assert error["details"] == {
        "task_id": "t-1",
        "target_url": peer.url,
        "target_alias": "peer",
        "suggested_action": "status",
    }


@pytest.mark.requirement("remote.stream.broken", "remote.required.not-lost")
async def test_a_broken_watch_reports_the_events_so_far() -> None:
    answer = stream(task("WORKING"), artifact_update("half"), after=b"data: {]\n\n")
    async with scripted(answer) as peer, open_tool(one_target(peer.url)) as harness:
        error = await harness.fail("watch", task_id="t-1")
        assert error["details"]["partial_event_count"] == 2
        assert error["details"]["latest_event_summary"] == harness.updates[-1]["summary"]
        peer.answer = by_method(SendMessage=result(task("SUBMITTED")), SubscribeToTask=answer)
        error = await harness.fail_send(task_requirement="required", follow_updates=True)
        assert error["details"]["partial_event_count"] == 3
        assert error["details"]["latest_event_summary"]["message_text"] == "half"
        assert error["details"]["task_id"] == "t-1"
        known = error["details"]["latest_event_summary"]["continuation"]["task"]
        assert error["details"]["task_handle"] == known["task_handle"]


# -------------------------------------------------------------------- 6 handles


@pytest.mark.requirement("remote.handle.pruned")
@pytest.mark.parametrize("by", ["looking up", "making"])
async def test_an_expired_handle_is_pruned_by_the_next_look_up(by: str) -> None:
    async with scripted(result(task("WORKING"))) as peer:
        config = {**one_target(peer.url), "taskHandles": {"ttlMs": 1000}}
        async with open_tool(config) as harness:
            first = (await harness.send("hi"))["summary"]["continuation"]["task"]["task_handle"]
            harness.advance(1)
            if by == "making":
                assert (await harness.send("hi"))["ok"]
            else:
                await harness.fail("status", task_handle="rah_another")
            error = await harness.fail("status", task_handle=first)
    assert error["code"] == "UNKNOWN_TASK_HANDLE"


@pytest.mark.requirement("remote.handle.life")
async def test_a_failed_status_does_not_extend_a_handle() -> None:
    async with scripted(result(task("WORKING"))) as peer:
        config = {**one_target(peer.url), "taskHandles": {"ttlMs": 1000}}
        async with open_tool(config) as harness:
            handle = (await harness.send("hi"))["summary"]["continuation"]["task"]["task_handle"]
            harness.advance(0.6)
            peer.answer = rpc_error(-32603, "no")
            assert (await harness.fail("status", task_handle=handle))["code"] == "A2A_SDK_ERROR"
            harness.advance(0.6)
            error = await harness.fail("status", task_handle=handle)
    assert error["code"] == "EXPIRED_TASK_HANDLE"


# -------------------------------------------------------------------- 1, 7 errors and logs


@pytest.mark.requirement("remote.error.internal", "remote.register.never-raises")
async def test_an_unexpected_error_is_an_internal_error_without_a_stack() -> None:
    def break_down(_update: JsonObject) -> None:
        raise LookupError("secret opened")

    parts = [{"kind": "text", "text": "hi"}]
    request = {"action": "send", "parts": parts, "follow_updates": True}
    async with (
        scripted(stream(task("WORKING"))) as peer,
        open_tool(one_target(peer.url)) as harness,
    ):
        envelope = await harness.tool.execute(request, break_down)
    assert (envelope["ok"], envelope["action"]) == (False, "send")
    assert envelope["error"]["code"] == "INTERNAL_ERROR"
    assert "secret opened" not in json.dumps(envelope)
    assert "stack" not in envelope["error"]["details"]
    assert envelope["error"]["details"]["capability_diagnostics"]["requested_input_modes"]


@pytest.mark.requirement("remote.error.rpc-data")
@pytest.mark.parametrize("data", ["x" * 5000, "", 0, False, 1.5], ids=lambda one: repr(one)[:9])
async def test_scalar_error_data_is_passed_on_unchanged(data: Json) -> None:
    async with (
        scripted(rpc_error(-32603, "no", data)) as peer,
        open_tool(one_target(peer.url)) as harness,
    ):
        error = await harness.fail("status", task_id="t-1")
    assert error["details"]["rpcData"] == data


HALF = "half \ud800 a letter"


@pytest.mark.requirement("remote.register.never-raises", "remote.error.peer")
@pytest.mark.parametrize(
    ("binding", "answer"),
    [
        ("JSONRPC", rpc_error(-32603, HALF, HALF)),
        ("JSONRPC", rpc_error(-32603, HALF, {HALF: HALF})),
        ("JSONRPC", respond({"error": {"message": HALF}}, status="500 No")),
        ("JSONRPC", result(message(HALF))),
        ("JSONRPC", rpc_error(-32603, "too much", 10**400)),
        ("JSONRPC", rpc_error(-(10**400), "too little", -(10**400))),
        ("HTTP+JSON", respond({"error": {"message": HALF}}, status="500 No")),
        ("HTTP+JSON", respond({"error": {"code": 404, "message": HALF}}, status="404 No")),
    ],
)
async def test_lone_surrogates_and_odd_numbers_do_not_break_an_envelope(
    binding: str, answer: Answer
) -> None:
    async with scripted(answer) as peer:
        peer.card = card_of(peer.url, binding=binding)
        async with open_tool(one_target(peer.url)) as harness:
            for error in (await harness.fail("status", task_id="t-1"), await harness.fail_send()):
                assert error["code"] == "A2A_SDK_ERROR"
                assert msgspec.json.decode(msgspec.json.encode(error)) == error


@pytest.mark.requirement(
    "remote.log.errors", "remote.log.validation", "remote.log.clients", "remote.log.refresh"
)
async def test_failures_are_logged_with_their_event_names() -> None:
    with capture_logs() as logs:
        async with scripted(hang_up) as peer, scripted(card_answer=stay_silent) as silent:
            config = one_target(peer.url)
            config["targets"] += [target(silent.url, "silent"), target(GONE, "gone")]
            config["targets"] += [target("${NOT_SET}", "unset")]
            config["defaults"]["timeoutMs"] = 5000
            async with open_tool(config) as harness:
                await harness.fail("send")
                await harness.fail_send()
                await harness.fail_send(follow_updates=True)
                for action in ("watch", "status", "cancel"):
                    await harness.fail(action, task_id="t-1", timeout_ms=5000)
                await harness.execute("list_targets")
    events = [line["event"].removeprefix("a2a.remote_agent.") for line in logs]
    for name in ("send", "send_stream", "watch", "status", "cancel"):
        assert events.count(f"{name}.error") == 1, name
    assert events.count("validation_error") == 1
    assert "client_pool.cache_miss" in events
    assert "client_pool.resolve_card" in events
    failed = {line["target"] for line in logs if line["event"].endswith("refresh_error")}
    assert failed == {silent.url, GONE, "${NOT_SET}"}


@pytest.mark.requirement("remote.log.clients")
async def test_a_cached_client_is_logged_as_a_cache_hit() -> None:
    with capture_logs() as logs:
        async with scripted(result(message())) as peer, open_tool(one_target(peer.url)) as harness:
            await harness.send("hi")
            await harness.send("hi")
    pool = "a2a.remote_agent.client_pool."
    found = [one["event"].removeprefix(pool) for one in logs if one["event"].startswith(pool)]
    assert found == ["cache_miss", "resolve_card", "cache_hit"]


# -------------------------------------------------------------------- 7.1 diagnostics


@pytest.mark.requirement("remote.diagnose.extensions", "remote.diagnose.inputs")
@pytest.mark.parametrize("where", ["name", "uri"])
async def test_every_listed_file_extension_has_a_media_type(where: str) -> None:
    def file(extension: str) -> JsonObject:
        if where == "name":
            return {"kind": "file", "bytes": "aGk=", "name": f"A.B.{extension.upper()}"}
        return {"kind": "file", "uri": f"https://x.example/a.{extension}?b=c.zip#d.zip"}

    parts = [file(extension) for extension in TYPES]
    async with open_tool(one_target(GONE)) as harness:
        error = await harness.fail("send", parts=parts)
    envelope = error["details"]["capability_diagnostics"]
    assert envelope["requested_input_modes"] == list(dict.fromkeys(TYPES.values()))
    assert envelope["unknown_file_attachments"] == []


@pytest.mark.requirement(
    "remote.diagnose.inputs",
    "remote.diagnose.unknown",
    "remote.diagnose.offered",
    "remote.diagnose.clean",
)
async def test_a_given_media_type_wins_over_the_file_name() -> None:
    parts = [
        {"kind": "file", "uri": "https://x.example/a.png", "name": "b.csv", "mime_type": " A/B "},
        {"kind": "file", "uri": "https://x.example/a.png", "name": "b.csv"},
        {"kind": "file", "uri": "https://x.example/a.png", "name": "b"},
        {"kind": "file", "uri": "https://x.example/a", "name": "b.zip"},
    ]
    async with open_tool(one_target(GONE)) as harness:
        error = await harness.fail("send", parts=parts, accepted_output_modes=["X/y", "x/Y", " "])
    assert error["details"]["capability_diagnostics"] == {
        "requested_input_modes": ["a/b", "text/csv", "image/png", "unknown"],
        "advertised_input_modes": [],
        "unsupported_input_modes": ["a/b", "text/csv", "image/png"],
        "requested_output_modes": ["x/y"],
        "advertised_output_modes": [],
        "unsupported_output_modes": ["x/y"],
        "unknown_file_attachments": [3],
    }


# -------------------------------------------------------------------- 8 secrets


@pytest.mark.requirement("remote.extension.secrets")
async def test_a_token_in_a_card_error_is_redacted_in_logs_and_lists() -> None:
    token = "tok-9e8d7c6b5a4f"
    body = {"error": {"message": f"{token} is not welcome"}}
    config = one_target("${WHERE}", auth={"type": "bearer", "token": token})
    with capture_logs() as logs:
        async with (
            scripted(card_answer=respond(body, status="401 No")) as peer,
            open_tool(config, environment={"WHERE": peer.url}) as harness,
        ):
            listed = await harness.execute("list_targets")
            await harness.fail_send()
    [entry] = listed["summary"]["targets"]
    assert "[hidden] is not welcome" in entry["last_refresh_error"]["message"]
    assert token not in json.dumps([logs, harness.envelopes], default=repr)


@pytest.mark.requirement("remote.extension.secrets")
async def test_a_token_in_a_malformed_answer_is_redacted_while_the_circuit_is_open() -> None:
    token = "tok-9e8d7c6b5a4f"

    async def send_garbage(received: PeerRequest, writer: PeerWriter) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\n{token} is no header\r\n\r\n".encode())
        await writer.drain()

    async with scripted(send_garbage) as peer:
        config = one_target(peer.url, auth={"type": "bearer", "token": token})
        config["targets"].append(target(peer.url, "open", cardPath="/.well-known/agent-card.json"))
        async with open_tool(config) as harness:
            for _ in range(5):
                await harness.fail_send()
            error = await harness.fail_send(target_alias="open")
    assert error["details"]["errorName"] == "CircuitOpen"
    assert token not in json.dumps(harness.envelopes)
