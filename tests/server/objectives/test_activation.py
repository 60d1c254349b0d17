"""The extension is available to requests that activate it, and only to them."""

import pytest
from tests.conformance.asgi_client import AsgiClient, AsgiMessage, Receive, Request, Send
from tests.conformance.protocol_clients import encode_call, v1_message
from tests.server.objectives.conftest import Build, ObjectivesServer, ask, post

from openclaw_a2a.model.errors import PlanItemNotFound
from openclaw_a2a.planning.steps import EXTENSION_URI

ALIAS = "https://a2a-protocol.org/extensions/objective-plan-task/v1"
GET = ("objectives/get", {"id": "obj-1"})


@pytest.mark.requirement("opt.activation.names", "opt.activation.header", "opt.activation.echo")
@pytest.mark.parametrize("name", ["A2A-Extensions", "a2a-extensions", "X-A2A-Extensions"])
@pytest.mark.parametrize(
    ("said", "echoed"),
    [
        (EXTENSION_URI, EXTENSION_URI),
        (ALIAS, ALIAS),
        (f"  {EXTENSION_URI}  ", EXTENSION_URI),
        (f",, {EXTENSION_URI} ,", EXTENSION_URI),
        (f"urn:other, {ALIAS},{EXTENSION_URI}, urn:more", f"{ALIAS}, {EXTENSION_URI}"),
        (f"{EXTENSION_URI},{EXTENSION_URI}", EXTENSION_URI),
    ],
)
async def test_header_activates_and_the_answer_says_so_in_the_same_header(
    server: ObjectivesServer, name: str, said: str, echoed: str
) -> None:
    headers = {"content-type": "application/json", name: said}
    asked = Request("POST", "/a2a/jsonrpc", headers, (encode_call(*GET),))
    answer = await server.client.request(asked)
    assert answer.json["result"] == server.planning.result
    echoes = {key: value for key, value in answer.headers.items() if key.endswith("extensions")}
    assert echoes == {name.lower(): echoed}


@pytest.mark.requirement("opt.activation.header")
async def test_header_in_several_lines_counts_with_all_of_them(server: ObjectivesServer) -> None:
    async def twice(scope: AsgiMessage, receive: Receive, send: Send) -> None:
        scope["headers"] += [
            (b"a2a-extensions", EXTENSION_URI.encode()),
            (b"a2a-extensions", b"urn:other"),
        ]
        await server.client.app(scope, receive, send)

    answer = await post(AsgiClient(twice), *GET)
    assert answer.headers["a2a-extensions"] == EXTENSION_URI
    assert "result" in answer.json


@pytest.mark.requirement("opt.activation.off-methods")
@pytest.mark.parametrize(
    "said",
    [None, "", ",", "urn:other", EXTENSION_URI + "x", EXTENSION_URI[:-1], EXTENSION_URI.upper()],
)
async def test_without_activation_the_methods_do_not_exist(
    server: ObjectivesServer, said: str | None
) -> None:
    client = server.client if said is None else server.client.with_headers(a2a_extensions=said)
    for method in (*sorted(server.planning.METHODS), "objectives/subscribe"):
        answer = await post(client, method, {"id": "obj-1"})
        assert (answer.status, answer.json["error"]["code"]) == (200, -32601)
        assert "a2a-extensions" not in answer.headers
    assert (await ask(client, "GET /objectives")).status == 404
    assert (await ask(client, "GET /objectives/obj-1:subscribe")).status == 404
    assert (await ask(client, "POST /plans/plan-1:run")).status == 404
    assert server.planning.asked == []


@pytest.mark.requirement("opt.activation.setting")
async def test_where_activation_is_not_required_the_methods_work_without(build: Build) -> None:
    server = await build(requires_activation=False)
    assert (await post(server.client, *GET)).json["result"] == server.planning.result
    assert (await ask(server.client, "GET /objectives/obj-1")).status == 200
    await post(server.client, "SendMessage", v1_message(metadata={"opt/v1/preferObjective": True}))
    assert server.planning.taken == []


async def test_where_nothing_is_planned_the_header_is_not_answered(build: Build) -> None:
    server = await build(is_planning=False, requires_activation=False)
    answer = await post(server.activated, *GET)
    assert answer.json["error"]["code"] == -32601
    assert "a2a-extensions" not in answer.headers
    assert (await ask(server.activated, "GET /objectives/obj-1")).status == 404


@pytest.mark.parametrize("method", ["objectives/get", "plans/create", "objectives/subscribe"])
async def test_where_objectives_are_switched_off_the_errors_say_so(
    build: Build, method: str
) -> None:
    server = await build(is_planning=False)
    for client in (server.client, server.activated):
        error = (await post(client, method, {"id": "obj-1"})).json["error"]
        assert error["code"] == -32601
        assert "switched off" in error["message"]
        rest = await ask(client, "GET /objectives/obj-1")
        assert rest.status == 404
        assert "switched off" in rest.json["error"]["message"]


@pytest.mark.requirement("opt.activation.echo")
async def test_errors_and_streams_and_plain_calls_say_what_is_activated(
    server: ObjectivesServer,
) -> None:
    server.planning.error = PlanItemNotFound("there is no objective obj-1")
    client = server.activated
    answers = [
        await post(client, *GET),
        await post(client, "nothing/such", {}),
        await client.post("/a2a/jsonrpc", b"{"),
        await ask(client, "GET /objectives/obj-1"),
        await ask(client, "GET /tasks/nobody"),
        await post(client, "ListTasks", {}),
    ]
    assert [answer.headers["a2a-extensions"] for answer in answers] == [EXTENSION_URI] * len(
        answers
    )
    body = encode_call("SendStreamingMessage", v1_message())
    server.planning.error = None
    streamed = await client.post("/a2a/jsonrpc", body)
    assert streamed.media_type == "text/event-stream"
    assert streamed.headers["a2a-extensions"] == EXTENSION_URI
