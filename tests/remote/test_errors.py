"""Every error code with the details that callers rely on."""

import pytest
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
    status_update,
    stream,
    task,
)
from tests.remote.tool_harness import one_target, open_tool, target

from openclaw_a2a.model.ids import JsonObject

TEXT = [{"kind": "text", "text": "hi"}]
CARD = "/.well-known/agent-card.json"
ANYWHERE = {"allowTargetUrlOverride": True, "allowPrivateTargets": True}
NO_MODES: JsonObject = {
    "requested_input_modes": ["text/plain"],
    "advertised_input_modes": ["text/plain"],
    "unsupported_input_modes": [],
    "requested_output_modes": [],
    "advertised_output_modes": ["text/plain"],
    "unsupported_output_modes": [],
    "unknown_file_attachments": [],
}


# -------------------------------------------------------------------- 3.6 handles that disagree


@pytest.mark.requirement("remote.resolve.task", "remote.resolve.target", "remote.resolve.context")
async def test_a_handle_that_disagrees_with_the_request_is_a_validation_error() -> None:
    async with scripted(result(task("WORKING"))) as peer, scripted() as other:
        config = one_target(peer.url)
        config["targets"].append(target(other.url, "other"))
        async with open_tool(config) as harness:
            started = await harness.send("hi")
            handle = started["summary"]["continuation"]["task"]["task_handle"]

            error = await harness.fail("status", task_handle=handle, task_id="t-2")
            assert error["code"] == "VALIDATION_ERROR"
            assert "t-1" in error["message"] and "t-2" in error["message"]
            assert error["details"] == {
                "task_handle": handle,
                "handle_task_id": "t-1",
                "explicit_task_id": "t-2",
            }

            error = await harness.fail("status", task_handle=handle, target_alias="other")
            transports = ["JSONRPC", "HTTP+JSON"]
            assert error["code"] == "VALIDATION_ERROR"
            assert error["details"] == {
                "task_handle": handle,
                "handle_target": {
                    "baseUrl": peer.url,
                    "cardPath": CARD,
                    "preferredTransports": transports,
                    "alias": "peer",
                },
                "explicit_target": {
                    "baseUrl": other.url,
                    "cardPath": CARD,
                    "preferredTransports": transports,
                    "alias": "other",
                },
            }

            error = await harness.fail_send(task_handle=handle, context_id="c-2")
            assert error["code"] == "VALIDATION_ERROR"
            details = error["details"]
            assert details["task_handle"] == handle
            assert details["handle_context_id"] == "c-1"
            assert details["explicit_context_id"] == "c-2"
            assert len(peer.calls) == 1, "nothing was asked of the peer"


@pytest.mark.requirement("remote.continuation.agrees")
async def test_a_continuation_that_disagrees_with_its_live_handle_is_refused() -> None:
    async with (
        scripted(result(task("WORKING"))) as peer,
        open_tool(one_target(peer.url)) as harness,
    ):
        started = await harness.send("hi")
        kept = started["summary"]["continuation"]
        for wrong in (
            {**kept, "task": {**kept["task"], "task_id": "t-2"}},
            {**kept, "conversation": {"context_id": "c-2"}},
            {**kept, "target": {**kept["target"], "card_path": "/other"}},
        ):
            error = await harness.fail("status", continuation=wrong)
            assert error["code"] == "VALIDATION_ERROR"
            assert error["details"]["task_handle"] == kept["task"]["task_handle"]


# -------------------------------------------------------------------- 3.6 targets


@pytest.mark.requirement("remote.resolve.ambiguous")
async def test_an_address_that_two_targets_share_is_ambiguous() -> None:
    config = {
        "targets": [
            target("http://127.0.0.1:9/", "one"),
            target("HTTP://127.0.0.1:9", "two"),
        ]
    }
    async with open_tool(config) as harness:
        error = await harness.fail_send(target_url="http://127.0.0.1:9")
        assert error["code"] == "TARGET_RESOLUTION_ERROR"
        assert error["details"]["reason"] == "ambiguous_normalized_url_matches"
        assert error["details"]["normalizedBaseUrl"] == "http://127.0.0.1:9/"
        assert error["details"]["aliases"] == ["one", "two"]
        assert error["details"]["suggested_action"] == "list_targets"
        assert error["details"]["hint"]


@pytest.mark.requirement(
    "remote.continuation.configured", "remote.continuation.allowed", "remote.resolve.disallowed"
)
async def test_a_continuation_may_not_name_any_address() -> None:
    async with scripted(result(message())) as peer:
        continuation = {
            "target": {
                "target_url": peer.url.rstrip("/"),
                "card_path": CARD,
                "preferred_transports": ["JSONRPC"],
            },
            "conversation": {"context_id": "c-1"},
        }
        async with open_tool({"targets": []}) as harness:
            error = await harness.fail_send(continuation=continuation)
            assert error["code"] == "TARGET_RESOLUTION_ERROR"
            hint = error["details"].pop("hint")
            assert hint
            assert error["details"] == {
                "reason": "raw_url_disallowed_by_policy",
                "suggested_action": "list_targets",
                "inputBaseUrl": peer.url.rstrip("/"),
                "normalizedBaseUrl": peer.url,
                "allowTargetUrlOverride": False,
                "configuredAliases": [],
            }
        for policy in ({"continuationTargets": "trusted"}, {"allowTargetUrlOverride": True}):
            async with open_tool({"policy": {**policy, "allowPrivateTargets": True}}) as harness:
                assert (await harness.send("hi", continuation=continuation))["ok"]
        async with open_tool(one_target(peer.url)) as harness:
            assert (await harness.send("hi", continuation=continuation))["ok"]


async def test_a_live_handle_allows_its_target_in_continuations() -> None:
    async with scripted(result(task("WORKING"))) as peer:
        async with open_tool({"policy": ANYWHERE}) as harness:
            first = await harness.send("hi", target_url=peer.url)
            kept = first["summary"]["continuation"]
            assert "target_alias" not in kept["target"]
        async with open_tool({}) as harness:
            error = await harness.fail("status", continuation=kept)
            assert error["details"]["reason"] == "raw_url_disallowed_by_policy"


@pytest.mark.requirement("remote.resolve.unknown-url")
async def test_an_invalid_address_is_unknown_raw_url() -> None:
    async with open_tool({"policy": {"allowTargetUrlOverride": True}}) as harness:
        error = await harness.fail_send(target_url="http://user:secret@127.0.0.1/")
        assert error["code"] == "TARGET_RESOLUTION_ERROR"
        assert error["details"]["reason"] == "unknown_raw_url"
        assert error["details"]["inputBaseUrl"]
        assert error["details"]["normalizedBaseUrl"]


@pytest.mark.requirement("remote.extension.not-set", "remote.diagnose.every")
async def test_a_variable_that_is_not_set_fails_the_call_and_is_never_sent() -> None:
    async with scripted(result(message())) as peer:
        config = one_target(peer.url, auth={"type": "bearer", "token": "${PEER_TOKEN}"})
        async with open_tool(config) as harness:
            error = await harness.fail_send()
            assert error["code"] == "TARGET_RESOLUTION_ERROR"
            assert error["details"]["variable"] == "PEER_TOKEN"
            assert error["details"]["capability_diagnostics"]["advertised_input_modes"] == []
            assert peer.requests == []


# -------------------------------------------------------------------- 5 task_requirement, streams


@pytest.mark.requirement("remote.required.message", "remote.diagnose.every")
async def test_a_message_fails_a_send_that_requires_a_task() -> None:
    answer = result(message(contextId="c-9"))
    async with scripted(answer) as peer, open_tool(one_target(peer.url)) as harness:
        for follow in (False, True):
            error = await harness.fail_send(
                task_requirement="required", follow_updates=follow, message_id="m-1"
            )
            assert error["code"] == "TASK_REQUIRED_BUT_MESSAGE_RETURNED"
            assert error["details"] == {
                "response_kind": "message",
                "message_id": "m-9",
                "context_id": "c-9",
                "capability_diagnostics": NO_MODES,
            }
            assert harness.updates == []
            sent = peer.calls[-1].json["params"]
            assert sent["configuration"] == {"returnImmediately": True}


@pytest.mark.requirement("remote.required.ended")
async def test_a_required_task_that_has_ended_is_not_subscribed_to() -> None:
    answer = result(task("COMPLETED", text="done"))
    async with scripted(answer) as peer, open_tool(one_target(peer.url)) as harness:
        outcome = await harness.send("hi", task_requirement="required", follow_updates=True)
        assert outcome["ok"]
        assert len(outcome["raw"]["events"]) == len(harness.updates) == 1
        assert [one.json["method"] for one in peer.calls] == ["SendMessage"]


@pytest.mark.requirement("remote.required.once", "remote.required.first")
async def test_the_first_task_of_a_subscription_is_dropped_when_it_equals_the_created_one() -> None:
    answer = by_method(
        SendMessage=result(task("WORKING")),
        SubscribeToTask=stream(task("WORKING"), artifact_update("tea"), status_update("COMPLETED")),
    )
    async with scripted(answer) as peer, open_tool(one_target(peer.url)) as harness:
        outcome = await harness.send("hi", task_requirement="required", follow_updates=True)
        kinds = [event["kind"] for event in outcome["raw"]["events"]]
        assert kinds == ["task", "artifact-update", "status-update"]
        assert [update["raw"]["kind"] for update in harness.updates] == kinds


@pytest.mark.requirement("remote.required.once")
async def test_the_first_task_of_a_subscription_is_kept_when_it_differs() -> None:
    answer = by_method(
        SendMessage=result(task("SUBMITTED")),
        SubscribeToTask=stream(task("WORKING"), status_update("COMPLETED")),
    )
    async with scripted(answer) as peer, open_tool(one_target(peer.url)) as harness:
        outcome = await harness.send("hi", task_requirement="required", follow_updates=True)
        assert [event["kind"] for event in outcome["raw"]["events"]] == [
            "task",
            "task",
            "status-update",
        ]


@pytest.mark.requirement("remote.required.not-lost")
@pytest.mark.parametrize(
    "subscription",
    [
        rpc_error(-32603, "no"),
        stream(),
        stream(task("WORKING")),
        hang_up,
        rpc_error(-32004, "never"),
    ],
    ids=["refused", "empty", "nothing new", "hangs up", "unsupported"],
)
async def test_a_created_task_is_in_the_failure_when_it_cannot_be_followed(
    subscription: object,
) -> None:
    answer = by_method(
        SendMessage=result(task("WORKING")),
        SubscribeToTask=subscription,  # type: ignore[arg-type] # one of the answers above
        GetTask=result(task("WORKING")["task"]),
    )
    async with scripted(answer) as peer, open_tool(one_target(peer.url)) as harness:
        error = await harness.fail_send(task_requirement="required", follow_updates=True)
        assert error["code"] == "A2A_SDK_ERROR"
        details = error["details"]
        assert (details["task_id"], details["context_id"]) == ("t-1", "c-1")
        assert details["suggested_action"] == "status"
        assert details["partial_event_count"] == 1
        assert details["latest_event_summary"]["continuation"]["task"]["task_id"] == "t-1"
        assert details["capability_diagnostics"] == NO_MODES
        assert (await harness.execute("status", task_handle=details["task_handle"]))["ok"]


async def test_a_created_task_that_ended_before_it_could_be_followed_is_a_success() -> None:
    answer = by_method(
        SendMessage=result(task("WORKING")),
        SubscribeToTask=rpc_error(-32602, "the task is over"),
        GetTask=result(task("COMPLETED", text="tea")["task"]),
    )
    async with scripted(answer) as peer, open_tool(one_target(peer.url)) as harness:
        outcome = await harness.send("hi", task_requirement="required", follow_updates=True)
        assert outcome["ok"], outcome
        assert outcome["summary"]["message_text"] == "tea"
        assert [event["kind"] for event in outcome["raw"]["events"]] == ["task", "task"]


@pytest.mark.requirement("remote.watch.no-stream", "remote.go-on.no-stream")
async def test_a_peer_without_streaming_is_not_subscribed_to() -> None:
    async with scripted(result(task("INPUT_REQUIRED"))) as peer:
        peer.card = card_of(peer.url, capabilities={"streaming": False})
        async with open_tool(one_target(peer.url)) as harness:
            started = await harness.send("hi", follow_updates=True)
            assert started["ok"], started
            assert started["raw"]["finalEvent"] == started["raw"]["events"][0]
            assert len(harness.updates) == 1
            known = started["summary"]["continuation"]["task"]
            assert known["can_watch"] is False
            error = await harness.fail("watch", task_handle=known["task_handle"])
            assert error["code"] == "A2A_SDK_ERROR"
            assert "action=status" in error["message"]
            assert error["details"] == {
                "task_id": "t-1",
                "target_url": peer.url,
                "target_alias": "peer",
                "streaming_supported": False,
                "suggested_action": "status",
            }
            assert [one.json["method"] for one in peer.calls] == ["SendMessage"]


@pytest.mark.requirement("remote.watch.unsupported")
async def test_an_unsupported_subscribe_is_a_watch_failure() -> None:
    answer = by_method(
        SubscribeToTask=rpc_error(-32004, "no streams here"),
        GetTask=result(task("WORKING")["task"]),
    )
    async with scripted(answer) as peer, open_tool(one_target(peer.url)) as harness:
        error = await harness.fail("watch", task_id="t-1")
        assert "action=status" in error["message"]
        assert error["details"]["suggested_action"] == "status"
        assert error["details"]["streaming_supported"] is True


_REASONS = {-32004: "UNSUPPORTED_OPERATION", -32602: "INVALID_PARAMS"}


def _ended_task_peer(version: str, binding: str, code: int) -> Answer:
    """Refuse every subscription with this error, and answer a request for the task with its end."""
    ended: JsonObject = task("COMPLETED", text="tea")["task"]
    reason, words = _REASONS[code], "the task is over"
    if binding == "JSONRPC":
        subscribe, get = "SubscribeToTask", "GetTask"
        if version == "0.3":
            subscribe, get = "tasks/resubscribe", "tasks/get"
            artifact = {"artifactId": "a", "parts": [{"kind": "text", "text": "tea"}]}
            status = {"state": "completed"}
            ended = {**ended, "kind": "task", "status": status, "artifacts": [artifact]}
        return by_method(**{subscribe: rpc_error(code, words), get: result(ended)})
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason}
    error = {"error": {"code": 400, "message": words, "details": [info]}}
    if version == "0.3":
        error = {"type": f"{reason.title().replace('_', '')}Error", "message": words}

    async def answer(received: PeerRequest, writer: PeerWriter) -> None:
        is_refused = received.path.endswith("/tasks/t-1:subscribe")
        assert is_refused or (received.method, received.path[-10:]) == ("GET", "/tasks/t-1")
        chosen = respond(error, status="400 Bad Request") if is_refused else respond(ended)
        await chosen(received, writer)

    return answer


@pytest.mark.parametrize("code", _REASONS)
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_a_watched_task_that_has_ended_is_one_event(
    version: str, binding: str, code: int
) -> None:
    async with scripted(_ended_task_peer(version, binding, code)) as peer:
        peer.card = card_of(peer.url, version=version, binding=binding)
        async with open_tool(one_target(peer.url)) as harness:
            outcome = await harness.execute("watch", task_id="t-1")
    assert len(peer.calls) == 2
    assert outcome["ok"], outcome
    assert outcome["summary"]["message_text"] == "tea"
    assert [event["kind"] for event in outcome["raw"]["events"]] == ["task"]
    assert [update["raw"]["status"]["state"] for update in harness.updates] == ["completed"]


@pytest.mark.requirement("remote.watch.empty")
async def test_a_watch_without_events_is_an_error() -> None:
    async with scripted(stream()) as peer, open_tool(one_target(peer.url)) as harness:
        error = await harness.fail("watch", task_id="t-1")
        assert error["code"] == "A2A_SDK_ERROR"
        assert "ended without events" in error["message"]


# -------------------------------------------------------------------- 6 handles


@pytest.mark.requirement(
    "remote.handle.unknown",
    "remote.handle.expired",
    "remote.handle.once",
    "remote.continuation.stale",
)
async def test_unknown_and_expired_handles_say_how_to_continue() -> None:
    async with scripted(result(task("WORKING"))) as peer:
        config = {**one_target(peer.url), "taskHandles": {"ttlMs": 1000}}
        async with open_tool(config) as harness:
            error = await harness.fail("status", task_handle="rah_nobody")
            assert error["code"] == "UNKNOWN_TASK_HANDLE"
            assert error["details"]["retryHint"]
            assert {**error["details"], "retryHint": ""} == {
                "taskHandle": "rah_nobody",
                "retryHint": "",
                "restartInvalidatesHandles": True,
                "suggested_action": "send",
            }
            started = await harness.send("hi")
            kept = started["summary"]["continuation"]
            handle = kept["task"]["task_handle"]
            harness.advance(1)
            error = await harness.fail("status", task_handle=handle)
            assert error["code"] == "EXPIRED_TASK_HANDLE"
            details = error["details"]
            assert details["taskHandle"] == handle
            assert details["restartInvalidatesHandles"] is True
            assert details["expiresAt"] == round(harness.time.timestamp() * 1000)
            assert (details["task_id"], details["context_id"]) == ("t-1", "c-1")
            assert details["continuation"] == {
                "target": kept["target"],
                "task": {"task_id": "t-1"},
                "conversation": {"context_id": "c-1"},
            }
            assert details["suggested_actions"] == ["status", "send"]
            assert details["retryHint"] and details["hint"]
            assert (await harness.fail("status", task_handle=handle))[
                "code"
            ] == "UNKNOWN_TASK_HANDLE"

            peer.answer = result(task("WORKING")["task"])
            again = await harness.execute("status", continuation=details["continuation"])
            assert again["ok"], again
            fresh = again["summary"]["continuation"]["task"]["task_handle"]
            assert fresh.startswith("rah_") and fresh != handle
            by_stale = await harness.execute("status", continuation=kept)
            assert by_stale["summary"]["continuation"]["task"]["task_handle"] != handle


# -------------------------------------------------------------------- 7 errors of peers


@pytest.mark.requirement("remote.error.peer", "remote.error.rpc-data")
@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ("why", "why"),
        (7, 7),
        ([1, 2, 3], {"type": "array", "length": 3}),
        ({"a": 1, "b": 2}, {"type": "object", "keys": ["a", "b"]}),
        (
            {f"k{n:02}": n for n in range(30)},
            {"type": "object", "keys": [f"k{n:02}" for n in range(20)]},
        ),
    ],
    ids=["text", "number", "array", "object", "large object"],
)
@pytest.mark.parametrize(
    ("code", "name"),
    [(-32001, "TaskNotFoundError"), (-32000, "JsonRpcError"), (4711, "JsonRpcError")],
)
async def test_error_data_of_a_peer_is_outlined(
    code: int, name: str, data: object, shown: object
) -> None:
    async with scripted(rpc_error(code, "sorry", data)) as peer:
        for version in ("1.0", "0.3"):
            peer.card = card_of(peer.url, version=version)
            async with open_tool(one_target(peer.url)) as harness:
                error = await harness.fail("status", task_id="t-1")
                assert error["code"] == "A2A_SDK_ERROR"
                assert "sorry" in error["message"]
                details = error["details"]
                assert (details["errorName"], details["rpcCode"]) == (name, code)
                assert details["rpcData"] == shown


@pytest.mark.requirement("remote.error.peer")
async def test_an_error_over_rest_has_its_code_and_status() -> None:
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "TASK_NOT_FOUND",
        "domain": "a2a-protocol.org",
        "metadata": {"taskId": "t-1"},
    }
    body = {"error": {"code": 404, "message": "no such task", "details": [info]}}
    async with scripted(respond(body, status="404 Not Found")) as peer:
        peer.card = card_of(peer.url, binding="HTTP+JSON")
        async with open_tool(one_target(peer.url)) as harness:
            error = await harness.fail("status", task_id="t-1")
            assert error["message"] == "no such task"
            details = error["details"]
            assert (details["rpcCode"], details["httpStatus"]) == (-32001, 404)
            assert details["cause"]["name"] == "HTTPStatusError"


@pytest.mark.requirement(
    "remote.diagnose.inputs",
    "remote.diagnose.unknown",
    "remote.diagnose.offered",
    "remote.diagnose.clean",
)
async def test_a_failed_send_has_capability_diagnostics() -> None:
    async with scripted(rpc_error(-32005, "not this")) as peer:
        skill = {"id": "s", "name": "S", "inputModes": ["Image/PNG"], "outputModes": ["text/csv"]}
        peer.card = card_of(peer.url, skills=[skill])
        async with open_tool(one_target(peer.url)) as harness:
            parts = [
                {"kind": "text", "text": "look"},
                {"kind": "file", "uri": "https://x.example/a.PNG?size=1"},
                {"kind": "file", "bytes": "aGk=", "name": "notes.md"},
                {"kind": "file", "bytes": "aGk="},
                {"kind": "data", "data": {"a": 1}},
            ]
            error = await harness.fail(
                "send", parts=parts, accepted_output_modes=["text/csv", " Audio/WAV "]
            )
            assert error["details"]["rpcCode"] == -32005
            assert error["details"]["capability_diagnostics"] == {
                "requested_input_modes": [
                    "text/plain",
                    "image/png",
                    "text/markdown",
                    "unknown",
                    "application/json",
                ],
                "advertised_input_modes": ["text/plain", "image/png"],
                "unsupported_input_modes": ["text/markdown", "application/json"],
                "requested_output_modes": ["text/csv", "audio/wav"],
                "advertised_output_modes": ["text/plain", "text/csv"],
                "unsupported_output_modes": ["audio/wav"],
                "unknown_file_attachments": [3],
            }


@pytest.mark.requirement("remote.diagnose.sends-only")
async def test_other_actions_than_send_have_no_diagnostics() -> None:
    async with (
        scripted(rpc_error(-32603, "no")) as peer,
        open_tool(one_target(peer.url)) as harness,
    ):
        for action in ("status", "cancel", "watch"):
            error = await harness.fail(action, task_id="t-1")
            assert "capability_diagnostics" not in error["details"]


@pytest.mark.requirement(
    "remote.envelope.failure", "remote.validate.action", "remote.register.never-raises"
)
@pytest.mark.parametrize("request_", [None, 7, "send", [], {}, {"action": 7}, {"action": "fly"}])
async def test_a_request_that_is_not_an_object_is_a_validation_error(request_: object) -> None:
    async with open_tool({}) as harness:
        envelope = await harness.tool.execute(request_)
        assert envelope["ok"] is False
        assert envelope["operation"] == "remote_agent"
        assert envelope["action"] == ("fly" if request_ == {"action": "fly"} else "unknown")
        assert envelope["error"]["code"] == "VALIDATION_ERROR"
        assert envelope["error"]["details"]["source"] == "ajv"
        assert envelope["error"]["details"]["tool"] == "remote_agent"
