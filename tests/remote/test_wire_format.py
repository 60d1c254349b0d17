"""What goes on the wire, in both generations and over both transports."""

import json

import pytest
from tests.remote.scripted_peer import Heard, card_of, message, result, say, scripted, task
from tests.remote.tool_harness import desk_with, one_target

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


async def sent(version: str = "1.0", binding: str = "JSONRPC", **request: Json) -> Heard:
    """What the peer heard of a send."""
    async with scripted() as peer:
        if binding == "HTTP+JSON":
            peer.answer = say(message() if version == "1.0" else {"task": {"id": "t-1"}})
        else:
            peer.answer = result(message() if version == "1.0" else OLD_TASK)
        peer.card = card_of(peer.url, version=version, binding=binding)
        async with desk_with(one_target(peer.url)) as desk:
            told = await desk.ask("send", **request)
            assert told["ok"], told
        return peer.calls[0]


@pytest.mark.requirement("remote.wire.message", "remote.parts.file-source")
async def test_a_whole_message_in_1_0() -> None:
    heard = await sent(**EVERYTHING)
    assert heard.json["method"] == "SendMessage"
    assert heard.headers["a2a-version"] == "1.0"
    assert heard.json["params"] == {
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
async def test_a_whole_message_in_0_3() -> None:
    heard = await sent("0.3", **EVERYTHING)
    assert heard.json["method"] == "message/send"
    assert heard.headers["a2a-version"] == "0.3"
    assert heard.json["params"] == {
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
async def test_over_rest_the_message_goes_to_its_path(version: str) -> None:
    heard = await sent(version, "HTTP+JSON", parts=PARTS, message_id="m-1")
    path = "/rpc/message:send" if version == "1.0" else "/rpc/v1/message:send"
    assert (heard.method, heard.path) == ("POST", path)
    assert heard.headers["a2a-version"] == version


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
async def test_who_waits_and_who_does_not(request_: JsonObject, immediately: bool) -> None:
    async with scripted(result(task())) as peer, desk_with(one_target(peer.url)) as desk:
        assert (await desk.send("hi", **request_))["ok"]
        configuration = peer.calls[0].json["params"]["configuration"]
        assert configuration.get("returnImmediately", False) is immediately
        peer.card = card_of(peer.url, version="0.3")
        peer.answer = result(OLD_TASK)
        async with desk_with(one_target(peer.url)) as other:
            assert (await other.send("hi", **request_))["ok"]
            assert peer.calls[1].json["params"]["configuration"]["blocking"] is not immediately


@pytest.mark.requirement("remote.wire.modes")
async def test_output_modes_are_the_calls_else_the_policys_and_left_out_when_empty() -> None:
    policy = {"acceptedOutputModes": ["text/csv"]}
    async with (
        scripted(result(message())) as peer,
        desk_with(one_target(peer.url, policy=policy)) as desk,
    ):
        await desk.send("hi")
        await desk.send("hi", accepted_output_modes=["image/png"])
        await desk.send("hi", accepted_output_modes=[])
        sent_modes = [
            one.json["params"]["configuration"].get("acceptedOutputModes") for one in peer.calls
        ]
        assert sent_modes == [["text/csv"], ["image/png"], None]


@pytest.mark.requirement("remote.wire.fresh-id")
async def test_every_send_has_a_message_id_of_its_own_unless_it_is_given() -> None:
    async with scripted(result(task("WORKING"))) as peer, desk_with(one_target(peer.url)) as desk:
        first = await desk.send("hi")
        again = await desk.send("more", continuation=first["summary"]["continuation"])
        await desk.send("given", message_id="mine")
        ids = [one.json["params"]["message"]["messageId"] for one in peer.calls]
        assert len(set(ids)) == 3 and ids[2] == "mine" and len(ids[0]) == 36
        resumed = peer.calls[1].json["params"]["message"]
        assert (resumed["taskId"], resumed["contextId"]) == ("t-1", "c-1")
        assert again["ok"]


@pytest.mark.requirement("remote.wire.parameters", "remote.extension.environment")
async def test_service_parameters_go_with_every_request_and_the_card() -> None:
    async with scripted(result(message())) as peer:
        config = one_target(peer.url)
        config["defaults"]["serviceParameters"] = {
            "X-One": "1",
            "X-Two": "two",
            "X-Env": "a-${NAME}",
        }
        async with desk_with(config, environment={"NAME": "value"}) as desk:
            assert (await desk.send("hi", service_parameters={"x-two": "2"}))["ok"]
        assert len(peer.heard) == 2
        for heard in peer.heard:
            assert heard.headers["x-one"] == "1"
            assert heard.headers["x-two"] == "2"
            assert heard.headers["x-env"] == "a-value"


@pytest.mark.parametrize(
    ("name", "value"),
    [("X-A", "one\r\nX-B: two"), ("X-A", "é"), ("X A", "1"), ("", "1"), ("Host", "elsewhere")],
)
async def test_a_parameter_that_is_no_header_is_not_sent(name: str, value: str) -> None:
    async with scripted(result(message())) as peer, desk_with(one_target(peer.url)) as desk:
        error = await desk.fail_send(service_parameters={name: value})
        assert error["code"] == "A2A_SDK_ERROR"
        assert error["details"]["errorName"] == "InvalidServiceParameter"
        assert error["details"]["hint"]
        assert peer.heard == []


async def test_a_caller_gets_at_no_value_of_the_environment() -> None:
    async with scripted(result(message())) as peer:
        config = one_target(peer.url)
        config["defaults"]["serviceParameters"] = {"x-ours": "${OURS}"}
        environment = {"OURS": "ours-is-used", "SECRET": "never-to-be-sent"}
        async with desk_with(config, environment=environment) as desk:
            for name in ("SECRET", "NOT_SET"):
                error = await desk.fail_send(service_parameters={"x-leak": f"a ${{{name}}}"})
                assert error["details"]["errorName"] == "InvalidServiceParameter"
                assert "outbound.defaults.serviceParameters" in error["details"]["hint"]
            assert peer.heard == []
            assert (await desk.send("hi", service_parameters={"x-price": "$5 {a}"}))["ok"]
        assert peer.calls[0].headers["x-ours"] == "ours-is-used"
        assert peer.calls[0].headers["x-price"] == "$5 {a}"


@pytest.mark.parametrize(
    ("action", "request_"),
    [
        ("send", {"parts": [{"kind": "file", "bytes": "!!! no base64"}]}),
        ("send", {"parts": [{"kind": "text", "text": "hi"}], "history_length": 10**12}),
        ("status", {"task_id": "t-1", "history_length": 10**12}),
    ],
)
async def test_what_cannot_be_sent_is_blamed_on_the_request_and_not_on_the_peer(
    action: str, request_: JsonObject
) -> None:
    async with scripted(result(message())) as peer, desk_with(one_target(peer.url)) as desk:
        error = await desk.fail(action, **request_)
        assert error["code"] == "A2A_SDK_ERROR"
        assert error["details"]["errorName"] == "InvalidRequest"
        assert "base64" in error["details"]["hint"]
        assert peer.calls == []


@pytest.mark.requirement("remote.extension.environment", "remote.extension.auth")
async def test_the_environment_is_read_when_the_call_is_made() -> None:
    environment = {"TOKEN": "first-token", "WHERE": "http://127.0.0.1:1"}
    async with scripted(result(message())) as peer:
        config = one_target("${WHERE}/", auth={"type": "apiKey", "token": "${TOKEN}"})
        async with desk_with(config, environment=environment) as desk:
            environment["WHERE"] = peer.url.rstrip("/")
            assert (await desk.send("hi"))["summary"]["target_url"] == peer.url
            environment["TOKEN"] = "second-token"
            assert (await desk.send("hi"))["ok"]
            assert [one.headers["x-api-key"] for one in peer.calls] == [
                "first-token",
                "second-token",
            ]


@pytest.mark.requirement("remote.extension.auth")
async def test_each_target_gets_its_own_credentials_and_no_others() -> None:
    async with scripted(result(message())) as one, scripted(result(message())) as two:
        config = one_target(one.url, auth={"type": "bearer", "token": "token-of-one"})
        config["targets"].append({"alias": "two", "baseUrl": two.url})
        async with desk_with(config) as desk:
            given = {"Authorization": "Bearer forged", "X-More": "1"}
            await desk.send("hi", service_parameters=given)
            await desk.send("hi", target_alias="two")
            await desk.ask("list_targets")
        for heard in one.heard:
            assert heard.headers["authorization"] == "Bearer token-of-one"
        for heard in two.heard:
            assert "authorization" not in heard.headers
            assert "token-of-one" not in json.dumps(heard.headers)


@pytest.mark.parametrize("task_id", ["a/b", "../../x", "..", "a?b=c", "a#b", "a b", "ü%2F"])
async def test_a_task_id_stays_one_segment_of_the_address(task_id: str) -> None:
    async with scripted(say(task()["task"])) as peer:
        peer.card = card_of(peer.url, binding="HTTP+JSON")
        async with desk_with(one_target(peer.url)) as desk:
            await desk.ask("status", task_id=task_id)
            await desk.ask("cancel", task_id=task_id)
        get, cancel = peer.calls
        assert get.path.startswith("/rpc/tasks/") and get.path.count("/") == 3
        assert cancel.path.startswith("/rpc/tasks/") and cancel.path.endswith(":cancel")
        assert "?" not in get.path


async def test_a_tenant_on_the_card_is_named_in_requests() -> None:
    async with scripted(result(message())) as peer:
        peer.card = card_of(peer.url)
        peer.card["supportedInterfaces"][0]["tenant"] = "acme"
        async with desk_with(one_target(peer.url)) as desk:
            assert (await desk.send("hi"))["ok"]
        assert peer.calls[0].json["params"]["tenant"] == "acme"
