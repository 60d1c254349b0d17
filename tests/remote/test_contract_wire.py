"""The contract of the tool about targets and the requests that are sent to them."""

import uuid

import pytest
from tests.remote.scripted_peer import (
    Answer,
    PeerRequest,
    PeerWriter,
    ScriptedPeer,
    card_of,
    message,
    respond,
    result,
    scripted,
    stream,
    task,
)
from tests.remote.tool_harness import one_target, open_tool, target

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.remote.config import parse_config
from openclaw_a2a.remote.result import ErrorCode, RemoteFailure
from openclaw_a2a.remote.targets import TargetDirectory

CARD = "/.well-known/agent-card.json"
OLD_TASK = {"kind": "task", "id": "t-1", "contextId": "c-1", "status": {"state": "working"}}
WORKING = result(task("WORKING")["task"])


def named(url: str, **more: Json) -> JsonObject:
    """The target of a continuation."""
    both = ["JSONRPC", "HTTP+JSON"]
    return {"target_url": url, "card_path": CARD, "preferred_transports": both, **more}


# -------------------------------------------------------------------- 3.4 continuations


@pytest.mark.requirement("remote.continuation.vouched")
async def test_a_live_handle_allows_a_continuation_to_an_unconfigured_target() -> None:
    async with scripted(result(task("WORKING"))) as first, scripted(WORKING) as second:
        environment = {"WHERE": first.url}
        config = one_target("${WHERE}", policy={"allowPrivateTargets": True})
        async with open_tool(config, environment=environment) as harness:
            kept = (await harness.send("hi"))["summary"]["continuation"]
            environment["WHERE"] = second.url
            first.answer = WORKING
            asked = len(first.calls)
            by_id = {**kept, "task": {"task_id": "t-1"}}
            assert (await harness.execute("status", continuation=by_id))["ok"], "the handle is live"
            assert (len(first.calls), second.calls) == (asked + 1, [])
            harness.advance(2 * 86_400)
            error = await harness.fail("status", continuation=by_id)
            assert error["details"]["reason"] == "raw_url_disallowed_by_policy"


@pytest.mark.requirement("remote.continuation.of-handle")
async def test_the_context_of_a_live_handle_is_used_when_the_continuation_has_none() -> None:
    async with (
        scripted(result(task("WORKING"))) as peer,
        open_tool(one_target(peer.url)) as harness,
    ):
        kept = (await harness.send("hi"))["summary"]["continuation"]
        del kept["conversation"]
        assert (await harness.send("more", continuation=kept))["ok"]
        said = peer.calls[-1].json["params"]["message"]
        assert (said["taskId"], said["contextId"]) == ("t-1", "c-1")


@pytest.mark.requirement("remote.continuation.without-handle", "remote.continuation.stale")
@pytest.mark.parametrize("handle", [{}, {"task_handle": "rah_gone"}], ids=["none", "unknown"])
async def test_without_a_live_handle_target_and_ids_are_enough(handle: JsonObject) -> None:
    async with scripted(WORKING) as peer, open_tool(one_target(peer.url)) as harness:
        continuing = {"target": named(peer.url), "task": {"task_id": "t-1", **handle}}
        for action in ("status", "cancel"):
            outcome = await harness.execute(action, continuation=continuing)
            assert outcome["ok"], outcome
            fresh = outcome["summary"]["continuation"]["task"]["task_handle"]
            assert fresh.startswith("rah_") and fresh != handle.get("task_handle")
        peer.answer = result(task("WORKING"))
        both = {**continuing, "conversation": {"context_id": "c-7", "can_send": True}}
        assert (await harness.send("more", continuation=both))["ok"]
        said = peer.calls[-1].json["params"]["message"]
        assert (said["taskId"], said["contextId"]) == ("t-1", "c-7")


@pytest.mark.requirement("remote.continuation.unchanged", "remote.policy.same-url")
@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("a b/", "a%20b/"),
        ("%C3%A4/ö?x=ü&y=1", "%C3%A4/%C3%B6?x=%C3%BC&y=1"),
        ("a;b=1,2/@c:d/~e'(f)*!$+?g=/?", "a;b=1,2/@c:d/~e'(f)*!$+?g=/?"),
    ],
)
async def test_a_non_ascii_address_is_returned_in_a_form_that_can_be_sent_back(
    written: str, shown: str
) -> None:
    async with scripted() as peer:
        peer.answer = _card_at("agent-card.json", card_of(peer.url), result(task("WORKING")))
        async with open_tool(one_target(peer.url + written)) as harness:
            outcome = await harness.send("hi")
            kept = outcome["summary"]["continuation"]
            assert kept["target"]["target_url"] == peer.url + shown
            assert (await harness.send("more", continuation=kept))["ok"]
            assert (await harness.send("more", target_url=peer.url + shown))["ok"]


@pytest.mark.requirement("remote.policy.same-url")
def test_a_non_ascii_host_equals_its_punycode() -> None:
    directory = TargetDirectory(
        parse_config({"targets": [target("https://Bücher.example:443")]}), {}
    )
    [found] = directory.configured_at("https://xn--bcher-kva.example/")
    assert found.base_url == "https://xn--bcher-kva.example/"
    assert directory.configured_at("https://buecher.example/") == []
    assert directory.configured_at("https://b\u200d.example/") == [], "no name at all"


# -------------------------------------------------------------------- 3.5 wire


async def _follow_up(version: str, binding: str, requests: list[tuple[str, JsonObject]]) -> list:
    """What a peer received of requests about a task: method, path and body."""
    async with scripted() as peer:
        peer.card = card_of(peer.url, version=version, binding=binding)
        is_rest = binding != "JSONRPC"
        known = OLD_TASK if version == "0.3" and not is_rest else task("WORKING")["task"]
        async with open_tool(one_target(peer.url)) as harness:
            for action, more in requests:
                peer.answer = respond(known) if is_rest else result(known)
                await harness.execute(action, task_id="t-1", **more)
        return [(one.method, one.path, one.json if one.body else None) for one in peer.calls]


@pytest.mark.requirement("remote.wire.task", "remote.extension.versions")
@pytest.mark.parametrize(
    ("version", "methods"),
    [
        ("1.0", ["GetTask", "GetTask", "CancelTask", "SubscribeToTask"]),
        ("0.3", ["tasks/get", "tasks/get", "tasks/cancel", "tasks/resubscribe"]),
    ],
)
async def test_status_cancel_and_watch_send_only_the_task_id(
    version: str, methods: list[str]
) -> None:
    requests = [("status", {"history_length": 0}), ("status", {}), ("cancel", {}), ("watch", {})]
    received = [body for _, _, body in await _follow_up(version, "JSONRPC", requests)]
    assert [body["method"] for body in received] == methods
    plain = {"id": "t-1"}
    assert [body["params"] for body in received] == [{**plain, "historyLength": 0}] + [plain] * 3


@pytest.mark.requirement("remote.wire.task")
@pytest.mark.parametrize(("version", "root"), [("1.0", "/rpc"), ("0.3", "/rpc/v1")])
async def test_over_rest_the_task_id_is_in_the_path(version: str, root: str) -> None:
    requests = [("status", {"history_length": 2}), ("status", {}), ("cancel", {})]
    received = await _follow_up(version, "HTTP+JSON", requests)
    assert [(method, path) for method, path, _ in received] == [
        ("GET", f"{root}/tasks/t-1?historyLength=2"),
        ("GET", f"{root}/tasks/t-1"),
        ("POST", f"{root}/tasks/t-1:cancel"),
    ]


@pytest.mark.requirement("remote.request.fields", "remote.wire.task")
async def test_a_whole_number_may_be_written_as_a_float() -> None:
    received = await _follow_up("1.0", "JSONRPC", [("status", {"history_length": 3.0})])
    assert [body["params"] for _, _, body in received] == [{"id": "t-1", "historyLength": 3}]


@pytest.mark.requirement("remote.register.never-raises")
@pytest.mark.parametrize(
    "number", [10**400, float("inf"), float("nan")], ids=["huge", "infinite", "no number"]
)
async def test_a_number_out_of_range_is_an_invalid_request(number: float) -> None:
    async with scripted(result(message())) as peer, open_tool(one_target(peer.url)) as harness:
        for request in (
            {"parts": [{"kind": "data", "data": {"deep": [number]}}]},
            {"parts": [{"kind": "text", "text": "hi"}], "metadata": {"n": number}},
        ):
            error = await harness.fail("send", **request)
            assert error["details"]["errorName"] == "InvalidRequest"
            assert "nothing was sent" in error["details"]["hint"]
        assert peer.calls == []


@pytest.mark.requirement("remote.validate.envelope", "remote.register.never-raises")
@pytest.mark.parametrize(
    "request_",
    [{1: 2}, {"action": {1}}, {"action": "status", "\ud800": 1}, {"action": b"send"}],
    ids=["a number as name", "a set", "half a letter", "bytes"],
)
async def test_values_that_json_cannot_hold_are_an_invalid_request(request_: Json) -> None:
    async with open_tool({}) as harness:
        outcome = await harness.tool.execute(request_)
    assert outcome["error"]["code"] == "VALIDATION_ERROR"
    [error] = outcome["error"]["details"]["errors"]
    assert set(error) == {"instancePath", "schemaPath", "keyword", "params", "message"}
    assert "JSON" in error["message"]


@pytest.mark.requirement("remote.wire.parameters")
@pytest.mark.parametrize("action", ["send", "watch", "status", "cancel"])
async def test_service_parameters_are_sent_with_every_action(action: str) -> None:
    answers = {"send": result(message()), "watch": stream(task("COMPLETED"))}
    async with scripted(answers.get(action, WORKING)) as peer:
        config = one_target(peer.url)
        config["defaults"]["serviceParameters"] = {"X-One": "1", "X-Two": "2"}
        about: JsonObject = {"task_id": "t-1"}
        if action == "send":
            about = {"parts": [{"kind": "text", "text": "hi"}]}
        async with open_tool(config) as harness:
            outcome = await harness.execute(action, service_parameters={"X-Two": "mine"}, **about)
            assert outcome["ok"], outcome
            assert len(peer.requests) == 2
            for received in peer.requests:
                assert (received.headers["x-one"], received.headers["x-two"]) == ("1", "mine")


@pytest.mark.requirement("remote.wire.modes", "remote.diagnose.sent-anyway")
async def test_modes_that_the_card_does_not_offer_are_sent() -> None:
    async with scripted(stream(message("seen"))) as peer:
        policy = {"acceptedOutputModes": ["video/mp4"]}
        parts = [{"kind": "file", "bytes": "aGk=", "mime_type": "image/png"}]
        async with open_tool(one_target(peer.url, policy=policy)) as harness:
            outcome = await harness.execute("send", parts=parts, follow_updates=True)
        assert outcome["summary"]["message_text"] == "seen"
        said = peer.calls[0].json["params"]
        assert said["configuration"]["acceptedOutputModes"] == ["video/mp4"]


@pytest.mark.requirement("remote.wire.files")
async def test_a_file_part_is_sent_with_all_its_fields() -> None:
    file = {"kind": "file", "uri": "https://x.example/a", "name": "a.txt", "mime_type": "text/x"}
    parts = [{**file, "metadata": {"n": 1}}, {**file, "bytes": "aGk="}]
    async with scripted(result(OLD_TASK)) as peer:
        peer.card = card_of(peer.url, version="0.3")
        async with open_tool(one_target(peer.url)) as harness:
            assert (await harness.execute("send", parts=parts))["ok"]
        shown = {"uri": "https://x.example/a", "name": "a.txt", "mimeType": "text/x"}
        assert peer.calls[0].json["params"]["message"]["parts"] == [
            {"kind": "file", "file": shown, "metadata": {"n": 1}},
            {"kind": "file", "file": shown},
        ]


@pytest.mark.requirement("remote.request.message-id", "remote.handle.name")
async def test_generated_message_ids_and_handles_are_uuids() -> None:
    async with (
        scripted(result(task("WORKING"))) as peer,
        open_tool(one_target(peer.url)) as harness,
    ):
        outcome = await harness.send("hi")
        message_id = peer.calls[0].json["params"]["message"]["messageId"]
        assert str(uuid.UUID(message_id)) == message_id
        prefix, _, rest = outcome["summary"]["continuation"]["task"]["task_handle"].partition("_")
        assert (prefix, str(uuid.UUID(rest))) == ("rah", rest)


# -------------------------------------------------------------------- 3.6 targets


@pytest.mark.requirement("remote.resolve.alias-first", "remote.resolve.default")
async def test_an_alias_wins_over_an_address_and_both_over_the_default() -> None:
    async with (
        scripted(result(message("one"))) as one,
        scripted(result(message("two"))) as two,
        scripted(result(message("three"))) as three,
    ):
        config = one_target(one.url)
        config["targets"] += [target(two.url, "two"), target(three.url, "three")]
        async with open_tool(config) as harness:

            async def asked(**request: str) -> str:
                return (await harness.send("hi", **request))["summary"]["message_text"]

            assert await asked() == "one"
            assert await asked(target_url=three.url) == "three"
            assert await asked(target_alias="two", target_url=three.url) == "two"


@pytest.mark.requirement("remote.resolve.same-url")
async def test_the_address_of_a_configured_target_resolves_to_that_target() -> None:
    async with scripted(respond(message())) as peer:
        peer.answer = _card_at("/my-card", _rest_beside(peer), respond(message()))
        config = one_target(peer.url, cardPath="/my-card", preferredTransports=["HTTP+JSON"])
        async with open_tool(config) as harness:
            outcome = await harness.send("hi", target_url=peer.url.rstrip("/"))
        assert outcome["summary"]["target_alias"] == "peer"
        assert outcome["summary"]["target_name"] == "Scripted"
        assert [one.path for one in peer.requests] == ["/my-card", "/rest/message:send"]


def _card_at(path: str, card: JsonObject, other: Answer) -> Answer:
    async def answer(received: PeerRequest, writer: PeerWriter) -> None:
        await (respond(card) if path in received.path else other)(received, writer)

    return answer


@pytest.mark.requirement("remote.resolve.unknown-alias", "remote.resolve.disallowed")
def test_target_errors_have_the_details_of_the_contract() -> None:
    config = parse_config({"targets": [target("http://a.example", "a")]})
    directory = TargetDirectory(config, {})
    with pytest.raises(RemoteFailure) as unknown:
        directory.by_alias("b")
    assert unknown.value.code is ErrorCode.TARGET_RESOLUTION
    assert unknown.value.details == {
        "reason": "unknown_alias",
        "suggested_action": "list_targets",
        "alias": "b",
        "availableAliases": ["a"],
    }
    with pytest.raises(RemoteFailure) as closed:
        directory.by_url("HTTP://B.example:80")
    assert closed.value.code is ErrorCode.TARGET_RESOLUTION
    assert closed.value.details.pop("hint")
    assert closed.value.details == {
        "reason": "raw_url_disallowed_by_policy",
        "suggested_action": "list_targets",
        "inputBaseUrl": "HTTP://B.example:80",
        "normalizedBaseUrl": "http://b.example/",
        "allowTargetUrlOverride": False,
        "configuredAliases": ["a"],
    }


# -------------------------------------------------------------------- 4.5 clients, 8 environment


def _rest_beside(peer: ScriptedPeer) -> JsonObject:
    [rpc] = card_of(peer.url)["supportedInterfaces"]
    rest = {**rpc, "protocolBinding": "HTTP+JSON", "url": f"{peer.url}rest"}
    return card_of(peer.url, supportedInterfaces=[rpc, rest])


@pytest.mark.requirement("remote.client.kept")
async def test_transports_in_another_order_are_another_client() -> None:
    async with scripted() as peer:
        peer.card = _rest_beside(peer)
        config = one_target(peer.url)
        reverse = ["HTTP+JSON", "JSONRPC"]
        config["targets"].append(target(peer.url, "rest", preferredTransports=reverse))
        config["targets"].append(target(peer.url, "same"))
        async with open_tool(config) as harness:
            for alias, answer in (("peer", result), ("rest", respond), ("same", result)):
                peer.answer = answer(message())
                for _ in range(2):
                    assert (await harness.send("hi", target_alias=alias))["ok"]
        paths = ["/rpc"] * 2 + ["/rest/message:send"] * 2 + ["/rpc"] * 2
        assert [one.path for one in peer.calls] == paths
        assert peer.card_requests == 2


@pytest.mark.requirement("remote.client.none")
async def test_without_a_common_transport_the_offered_ones_are_named() -> None:
    async with scripted() as peer:
        peer.card = card_of(peer.url, binding="SOAP")
        async with open_tool(one_target(peer.url)) as harness:
            error = await harness.fail_send()
    assert error["code"] == "A2A_SDK_ERROR"
    assert "SOAP" in error["message"]
    assert error["details"]["available"] == ["SOAP"]


@pytest.mark.requirement("remote.extension.not-set")
@pytest.mark.parametrize("where", ["address", "parameter"])
async def test_an_unset_variable_is_never_sent_as_a_literal(where: str) -> None:
    async with scripted(result(message())) as peer:
        config = one_target("${NOT_SET}" if where == "address" else peer.url)
        if where == "parameter":
            config["defaults"]["serviceParameters"] = {"x-key": "a ${NOT_SET}"}
        async with open_tool(config) as harness:
            error = await harness.fail_send()
            listed = await harness.execute("list_targets")
    assert error["code"] == "TARGET_RESOLUTION_ERROR"
    assert error["details"]["suggested_action"] == "list_targets"
    assert error["details"]["reason"]
    assert "NOT_SET" in error["message"]
    [entry] = listed["summary"]["targets"]
    assert entry["last_refresh_error"]["code"] == "TARGET_RESOLUTION_ERROR"
    assert peer.requests == []
