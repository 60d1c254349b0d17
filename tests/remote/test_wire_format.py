"""The requests that are sent, in both protocol versions and over both transports."""

import json

import pytest
from tests.remote.scripted_peer import (
    PeerRequest,
    card_of,
    message,
    respond,
    result,
    scripted,
    task,
)
from tests.remote.tool_harness import one_target, open_tool

from openclaw_a2a.model.ids import Json, JsonObject

PARTS = [
    {"kind": "text", "text": "look", "metadata": {"n": 1}},
    {"kind": "file", "uri": "https://x.example/a.png", "bytes": "aGk=", "mime_type": "image/png"},
    {"kind": "file", "bytes": "aGk=", "name": "a.txt"},
    {"kind": "data", "data": {"deep": [1, {"x": None}]}},
]
EVERYTHING: JsonObject = {
    "parts": PARTS,
    "message_id": "m-1",
    "context_id": "c-1",
    "task_id": "t-1",
    "reference_task_ids": ["t-0"],
    "accepted_output_modes": ["text/plain"],
    "history_length": 3,
    "metadata": {"why": "test"},
    "push_notification_config": {
        "url": "https://hook.example/x",
        "id": "p-1",
        "token": "tok",
        "authentication": {"schemes": ["Bearer"], "credentials": "cred"},
    },
}
OLD_TASK = {"kind": "task", "id": "t-1", "contextId": "c-1", "status": {"state": "working"}}


async def sent(version: str = "1.0", binding: str = "JSONRPC", **request: Json) -> PeerRequest:
    """What the peer received of a send."""
    async with scripted() as peer:
        if binding == "HTTP+JSON":
            peer.answer = respond(message() if version == "1.0" else {"task": {"id": "t-1"}})
        else:
            peer.answer = result(message() if version == "1.0" else OLD_TASK)
        peer.card = card_of(peer.url, version=version, binding=binding)
        async with open_tool(one_target(peer.url)) as harness:
            envelope = await harness.execute("send", **request)
            assert envelope["ok"], envelope
        return peer.calls[0]


@pytest.mark.requirement("remote.wire.message", "remote.parts.file-source")
async def test_a_message_with_all_fields_in_1_0() -> None:
    received = await sent(**EVERYTHING)
    assert received.json["method"] == "SendMessage"
    assert received.headers["a2a-version"] == "1.0"
    assert received.json["params"] == {
        "message": {
            "messageId": "m-1",
            "contextId": "c-1",
            "taskId": "t-1",
            "role": "ROLE_USER",
            "parts": [
                {"text": "look", "metadata": {"n": 1}},
                {"url": "https://x.example/a.png", "mediaType": "image/png"},
                {"raw": "aGk=", "filename": "a.txt"},
                {"data": {"deep": [1, {"x": None}]}},
            ],
            "referenceTaskIds": ["t-0"],
        },
        "configuration": {
            "acceptedOutputModes": ["text/plain"],
            "historyLength": 3,
            "taskPushNotificationConfig": {
                "id": "p-1",
                "url": "https://hook.example/x",
                "token": "tok",
                "authentication": {"scheme": "Bearer", "credentials": "cred"},
            },
        },
        "metadata": {"why": "test"},
    }


@pytest.mark.requirement("remote.wire.message", "remote.extension.versions")
async def test_a_message_with_all_fields_in_0_3() -> None:
    received = await sent("0.3", **EVERYTHING)
    assert received.json["method"] == "message/send"
    assert received.headers["a2a-version"] == "0.3"
    assert received.json["params"] == {
        "message": {
            "kind": "message",
            "messageId": "m-1",
            "contextId": "c-1",
            "taskId": "t-1",
            "role": "user",
            "parts": [
                {"kind": "text", "text": "look", "metadata": {"n": 1}},
                {
                    "kind": "file",
                    "file": {"uri": "https://x.example/a.png", "mimeType": "image/png"},
                },
                {"kind": "file", "file": {"bytes": "aGk=", "name": "a.txt"}},
                {"kind": "data", "data": {"deep": [1, {"x": None}]}},
            ],
            "referenceTaskIds": ["t-0"],
        },
        "configuration": {
            "acceptedOutputModes": ["text/plain"],
            "blocking": True,
            "historyLength": 3,
            "pushNotificationConfig": {
                "id": "p-1",
                "url": "https://hook.example/x",
                "token": "tok",
                "authentication": {"schemes": ["Bearer"], "credentials": "cred"},
            },
        },
        "metadata": {"why": "test"},
    }


@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_over_rest_the_message_is_posted_to_its_path(version: str) -> None:
    received = await sent(version, "HTTP+JSON", parts=PARTS, message_id="m-1")
    path = "/rpc/message:send" if version == "1.0" else "/rpc/v1/message:send"
    assert (received.method, received.path) == ("POST", path)
    assert received.headers["a2a-version"] == version


@pytest.mark.requirement("remote.wire.not-blocking")
@pytest.mark.parametrize(
    ("request_", "immediately"),
    [
        ({}, False),
        ({"blocking": True}, False),
        ({"blocking": False}, True),
        ({"blocking": True, "task_requirement": "required"}, True),
    ],
)
async def test_blocking_follows_the_request(request_: JsonObject, immediately: bool) -> None:
    async with scripted(result(task())) as peer, open_tool(one_target(peer.url)) as harness:
        assert (await harness.send("hi", **request_))["ok"]
        configuration = peer.calls[0].json["params"]["configuration"]
        assert configuration.get("returnImmediately", False) is immediately
        peer.card = card_of(peer.url, version="0.3")
        peer.answer = result(OLD_TASK)
        async with open_tool(one_target(peer.url)) as other:
            assert (await other.send("hi", **request_))["ok"]
            assert peer.calls[1].json["params"]["configuration"]["blocking"] is not immediately


@pytest.mark.requirement("remote.wire.modes")
async def test_output_modes_come_from_the_call_or_the_policy_and_are_omitted_when_empty() -> None:
    policy = {"acceptedOutputModes": ["text/csv"]}
    async with (
        scripted(result(message())) as peer,
        open_tool(one_target(peer.url, policy=policy)) as harness,
    ):
        await harness.send("hi")
        await harness.send("hi", accepted_output_modes=["image/png"])
        await harness.send("hi", accepted_output_modes=[])
        sent_modes = [
            one.json["params"]["configuration"].get("acceptedOutputModes") for one in peer.calls
        ]
        assert sent_modes == [["text/csv"], ["image/png"], None]


@pytest.mark.requirement("remote.wire.fresh-id")
async def test_every_send_has_a_message_id_of_its_own_unless_it_is_given() -> None:
    async with (
        scripted(result(task("WORKING"))) as peer,
        open_tool(one_target(peer.url)) as harness,
    ):
        first = await harness.send("hi")
        again = await harness.send("more", continuation=first["summary"]["continuation"])
        await harness.send("given", message_id="mine")
        ids = [one.json["params"]["message"]["messageId"] for one in peer.calls]
        assert len(set(ids)) == 3 and ids[2] == "mine" and len(ids[0]) == 36
        resumed = peer.calls[1].json["params"]["message"]
        assert (resumed["taskId"], resumed["contextId"]) == ("t-1", "c-1")
        assert again["ok"]


@pytest.mark.requirement("remote.wire.parameters", "remote.extension.environment")
async def test_service_parameters_are_sent_with_every_request_and_the_card() -> None:
    async with scripted(result(message())) as peer:
        config = one_target(peer.url)
        config["defaults"]["serviceParameters"] = {
            "X-One": "1",
            "X-Two": "two",
            "X-Env": "a-${NAME}",
        }
        async with open_tool(config, environment={"NAME": "value"}) as harness:
            assert (await harness.send("hi", service_parameters={"x-two": "2"}))["ok"]
        assert len(peer.requests) == 2
        for received in peer.requests:
            assert received.headers["x-one"] == "1"
            assert received.headers["x-two"] == "2"
            assert received.headers["x-env"] == "a-value"


@pytest.mark.parametrize(
    ("name", "value"),
    [("X-A", "one\r\nX-B: two"), ("X-A", "é"), ("X A", "1"), ("", "1"), ("Host", "elsewhere")],
)
async def test_a_parameter_that_is_not_a_valid_header_is_refused(name: str, value: str) -> None:
    async with scripted(result(message())) as peer, open_tool(one_target(peer.url)) as harness:
        error = await harness.fail_send(service_parameters={name: value})
        assert error["code"] == "A2A_SDK_ERROR"
        assert error["details"]["errorName"] == "InvalidServiceParameter"
        assert error["details"]["hint"]
        assert peer.requests == []


async def test_a_caller_cannot_send_environment_variables() -> None:
    async with scripted(result(message())) as peer:
        config = one_target(peer.url)
        config["defaults"]["serviceParameters"] = {"x-ours": "${OURS}"}
        environment = {"OURS": "ours-is-used", "SECRET": "never-to-be-sent"}
        async with open_tool(config, environment=environment) as harness:
            for name in ("SECRET", "NOT_SET"):
                error = await harness.fail_send(service_parameters={"x-leak": f"a ${{{name}}}"})
                assert error["details"]["errorName"] == "InvalidServiceParameter"
                assert "outbound.defaults.serviceParameters" in error["details"]["hint"]
            assert peer.requests == []
            assert (await harness.send("hi", service_parameters={"x-price": "$5 {a}"}))["ok"]
        assert peer.calls[0].headers["x-ours"] == "ours-is-used"
        assert peer.calls[0].headers["x-price"] == "$5 {a}"


@pytest.mark.parametrize(
    ("action", "request_", "path", "keyword", "params"),
    [
        (
            "send",
            {"parts": [{"kind": "file", "bytes": bad}]},
            "/parts/0/bytes",
            "format",
            {"format": "base64"},
        )
        for bad in ("!!! no base64", "abcde", "a=bc", "\u00e4\u00f6")
    ]
    + [
        (
            action,
            {**more, "history_length": 2**31},
            "/history_length",
            "maximum",
            {"comparison": "<=", "limit": 2**31 - 1},
        )
        for action, more in (
            ("send", {"parts": [{"kind": "text", "text": "hi"}]}),
            ("status", {"task_id": "t-1"}),
        )
    ],
)
async def test_a_request_that_the_protocol_cannot_express_is_a_validation_error(
    action: str, request_: JsonObject, path: str, keyword: str, params: JsonObject
) -> None:
    async with scripted(result(message())) as peer, open_tool(one_target(peer.url)) as harness:
        error = await harness.fail(action, **request_)
        assert error["code"] == "VALIDATION_ERROR"
        [problem] = error["details"]["errors"]
        assert (problem["instancePath"], problem["keyword"]) == (path, keyword)
        assert problem["params"] == params
        assert peer.requests == []


@pytest.mark.parametrize("content", ["aGk", "aGk=", " aG\nk=", "-_-_", ""])
async def test_base64_is_sent_in_its_common_form(content: str) -> None:
    received = await sent(parts=[{"kind": "file", "bytes": content}])
    [part] = received.json["params"]["message"]["parts"]
    assert part["raw"] == {"-_-_": "+/+/", "": ""}.get(content, "aGk=")


@pytest.mark.requirement("remote.extension.environment", "remote.extension.auth")
async def test_the_environment_is_read_when_the_call_is_made() -> None:
    environment = {"TOKEN": "first-token", "WHERE": "http://127.0.0.1:1"}
    async with scripted(result(message())) as peer:
        config = one_target("${WHERE}/", auth={"type": "apiKey", "token": "${TOKEN}"})
        async with open_tool(config, environment=environment) as harness:
            environment["WHERE"] = peer.url.rstrip("/")
            assert (await harness.send("hi"))["summary"]["target_url"] == peer.url
            environment["TOKEN"] = "second-token"
            assert (await harness.send("hi"))["ok"]
            assert [one.headers["x-api-key"] for one in peer.calls] == [
                "first-token",
                "second-token",
            ]


@pytest.mark.requirement("remote.extension.auth")
async def test_each_target_gets_only_its_own_credentials() -> None:
    async with scripted(result(message())) as one, scripted(result(message())) as two:
        config = one_target(one.url, auth={"type": "bearer", "token": "token-of-one"})
        config["targets"].append({"alias": "two", "baseUrl": two.url})
        async with open_tool(config) as harness:
            given = {"Authorization": "Bearer forged", "X-More": "1"}
            await harness.send("hi", service_parameters=given)
            await harness.send("hi", target_alias="two")
            await harness.execute("list_targets")
        for received in one.requests:
            assert received.headers["authorization"] == "Bearer token-of-one"
        for received in two.requests:
            assert "authorization" not in received.headers
            assert "token-of-one" not in json.dumps(received.headers)


@pytest.mark.parametrize("task_id", ["a/b", "../../x", "..", "a?b=c", "a#b", "a b", "ü%2F"])
async def test_a_task_id_stays_one_path_segment(task_id: str) -> None:
    async with scripted(respond(task()["task"])) as peer:
        peer.card = card_of(peer.url, binding="HTTP+JSON")
        async with open_tool(one_target(peer.url)) as harness:
            await harness.execute("status", task_id=task_id)
            await harness.execute("cancel", task_id=task_id)
        get, cancel = peer.calls
        assert get.path.startswith("/rpc/tasks/") and get.path.count("/") == 3
        assert cancel.path.startswith("/rpc/tasks/") and cancel.path.endswith(":cancel")
        assert "?" not in get.path


async def test_the_tenant_of_the_card_is_sent() -> None:
    async with scripted(result(message())) as peer:
        peer.card = card_of(peer.url)
        peer.card["supportedInterfaces"][0]["tenant"] = "acme"
        async with open_tool(one_target(peer.url)) as harness:
            assert (await harness.send("hi"))["ok"]
        assert peer.calls[0].json["params"]["tenant"] == "acme"
