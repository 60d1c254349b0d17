"""HTTP+JSON in 1.0."""

import json

import pytest
from a2a import types as v1_types
from google.protobuf import json_format
from tests.conformance.asgi_client import AsgiClient, Request
from tests.conformance.conftest import Start
from tests.conformance.protocol_clients import FrameReader, Json, v1_message
from tests.conformance.scripted_agent import ScriptedAgent
from tests.conformance.stream_outline import describe, text_of

from openclaw_a2a.model.agent_event import InputRequired, Reply

REST = "/a2a/rest"
TASKS = {"agentStyle": "task-generating"}


def _agent() -> ScriptedAgent:
    return ScriptedAgent(Reply.of_text("hello"))


async def _post(http: AsgiClient, path: str, body: Json, **headers: str) -> Json:
    response = await http.post(f"{REST}{path}", json.dumps(body).encode(), **headers)
    assert (response.status, response.media_type) == (200, "application/a2a+json"), response
    return response.json


async def _events(http: AsgiClient, request: Request) -> list[str]:
    async with http.open(request) as active:
        await active.wait_started()
        assert active.status == 200
        assert active.headers["content-type"].startswith("text/event-stream")
        frames = await FrameReader(active, _check_event).rest()
    return [describe(frame.json) for frame in frames]


def _check_event(body: Json) -> None:
    json_format.ParseDict(body, v1_types.StreamResponse())


def _stream(body: Json, path: str = "/message:stream") -> Request:
    headers = {"content-type": "application/json"}
    return Request("POST", f"{REST}{path}", headers, (json.dumps(body).encode(),))


@pytest.mark.requirement("wire.rest.send", "wire.rest.media-type")
async def test_send_accepts_bare_params_and_returns_a_task_or_message(start: Start) -> None:
    direct = await _post(await start(_agent()), "/message:send", v1_message())
    json_format.ParseDict(direct, v1_types.SendMessageResponse())
    assert text_of(direct["message"]) == "hello"


@pytest.mark.requirement("wire.rest.send", "wire.rest.get")
async def test_task_that_was_sent_can_be_fetched(start: Start) -> None:
    http = await start(_agent(), account=TASKS)
    task = (await _post(http, "/message:send", v1_message()))["task"]
    response = await http.get(f"{REST}/tasks/{task['id']}")
    assert (response.status, response.media_type) == (200, "application/a2a+json")
    json_format.ParseDict(response.json, v1_types.Task())
    assert response.json == task
    short = await http.get(f"{REST}/tasks/{task['id']}?historyLength=0")
    assert "history" not in short.json
    one = await http.get(f"{REST}/tasks/{task['id']}?historyLength=1")
    assert one.json["history"] == task["history"][-1:]


@pytest.mark.requirement("wire.rest.media-type")
@pytest.mark.parametrize(
    "media_type",
    ["application/json", "application/a2a+json", "application/json; charset=utf-8"],
)
async def test_both_json_media_types_are_accepted(start: Start, media_type: str) -> None:
    http = await start(_agent())
    assert await _post(http, "/message:send", v1_message(), content_type=media_type)


@pytest.mark.requirement("wire.rest.stream")
async def test_stream_sends_bare_events(start: Start) -> None:
    http = await start(_agent(), account=TASKS)
    assert await _events(http, _stream(v1_message())) == [
        "task submitted",
        "status submitted",
        "status working",
        "artifact assistant-output-0001.",
        "status completed",
    ]


@pytest.mark.requirement("wire.rest.stream", "wire.stream.message-only")
async def test_stream_of_a_direct_answer_is_one_message(start: Start) -> None:
    http = await start(_agent())
    assert await _events(http, _stream(v1_message())) == ["message"]


@pytest.mark.requirement("wire.rest.list")
async def test_list_accepts_camel_case_query_parameters(start: Start) -> None:
    http = await start(_agent(), account=TASKS)
    for context in ("one", "two", "two"):
        await _post(http, "/message:send", v1_message(contextId=context))
    response = await http.get(
        f"{REST}/tasks?contextId=two&pageSize=1&status=TASK_STATE_COMPLETED"
        "&includeArtifacts=true&historyLength=0&statusTimestampAfter=2020-01-01T00:00:00Z"
    )
    page = response.json
    json_format.ParseDict(page, v1_types.ListTasksResponse())
    assert (page["totalSize"], page["pageSize"], len(page["tasks"])) == (2, 1, 1)
    assert "artifacts" in page["tasks"][0]
    assert "history" not in page["tasks"][0]
    rest = await http.get(f"{REST}/tasks?contextId=two&pageToken={page['nextPageToken']}")
    assert len(rest.json["tasks"]) == 1
    assert rest.json["nextPageToken"] == ""


@pytest.mark.requirement("wire.rest.list", "wire.list.page-size")
@pytest.mark.parametrize(
    "query",
    [
        "pageSize=0",
        "pageSize=101",
        "pageSize=x",
        "status=DONE",
        "includeArtifacts=7",
        "historyLength=-1",
    ],
)
async def test_bad_query_parameters_are_refused_by_name(start: Start, query: str) -> None:
    http = await start(_agent())
    response = await http.get(f"{REST}/tasks?{query}")
    assert response.status == 400
    assert query.partition("=")[0] in str(response.json["error"]["details"])


@pytest.mark.requirement("wire.rest.cancel")
async def test_cancel_gives_the_canceled_task(start: Start) -> None:
    http = await start(ScriptedAgent(InputRequired("Which one?")))
    task = (await _post(http, "/message:send", v1_message()))["task"]
    canceled = await _post(http, f"/tasks/{task['id']}:cancel", {})
    json_format.ParseDict(canceled, v1_types.Task())
    assert canceled["status"]["state"] == "TASK_STATE_CANCELED"


@pytest.mark.requirement("wire.rest.cancel")
async def test_cancel_needs_no_body(start: Start) -> None:
    http = await start(ScriptedAgent(InputRequired("Which one?")))
    task = (await _post(http, "/message:send", v1_message()))["task"]
    response = await http.request(Request("POST", f"{REST}/tasks/{task['id']}:cancel"))
    assert response.status == 200


@pytest.mark.requirement("wire.rest.subscribe")
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_subscribe_works_by_get_and_by_post(start: Start, method: str) -> None:
    agent = ScriptedAgent()
    http = await start(agent)
    params = v1_message(configuration={"returnImmediately": True})
    task = (await _post(http, "/message:send", params))["task"]
    run = await agent.next_run()
    async with http.open(Request(method, f"{REST}/tasks/{task['id']}:subscribe")) as active:
        frames = FrameReader(active, _check_event)
        (first,) = await frames.take(1)
        await run.finish(Reply.of_text("done"))
        rest = await frames.rest()
    assert "task" in first.json
    assert describe(rest[-1].json) == "status completed"


@pytest.mark.requirement("promise.resume.missing-only", "wire.rest.subscribe")
async def test_a_client_that_reconnects_by_get_gets_the_missed_events(start: Start) -> None:
    http = await start(_agent(), account=TASKS)
    task = (await _post(http, "/message:send", v1_message()))["task"]
    path = f"{REST}/tasks/{task['id']}:subscribe"
    lines = await _events(http, Request("GET", path, {"last-event-id": "2"}))
    assert lines == ["artifact assistant-output-0001.", "status completed"]


@pytest.mark.requirement("wire.rest.delete")
async def test_ended_task_can_be_deleted_and_an_open_one_cannot(start: Start) -> None:
    agent = ScriptedAgent(
        script=lambda turn: [InputRequired("?") if turn.body == "ask" else Reply.of_text("hi")]
    )
    http = await start(agent, account=TASKS)
    ended = (await _post(http, "/message:send", v1_message()))["task"]["id"]
    paused = (await _post(http, "/message:send", v1_message("ask")))["task"]["id"]
    assert (await http.request(Request("DELETE", f"{REST}/tasks/{ended}"))).status == 200
    assert (await http.get(f"{REST}/tasks/{ended}")).status == 404
    assert (await http.request(Request("DELETE", f"{REST}/tasks/{ended}"))).status == 404
    assert (await http.request(Request("DELETE", f"{REST}/tasks/{paused}"))).status == 400
    assert (await http.get(f"{REST}/tasks/{paused}")).status == 200
    assert (await http.get(f"{REST}/tasks")).json["totalSize"] == 1


@pytest.mark.requirement("wire.rest.tenant")
@pytest.mark.parametrize("path", ["/acme/message:send", "/acme/tasks", "/acme/tasks/t"])
async def test_tenant_that_no_card_names_is_refused(start: Start, path: str) -> None:
    agent = _agent()
    http = await start(agent)
    method = "POST" if path.endswith("send") else "GET"
    body = json.dumps(v1_message()).encode() if method == "POST" else b""
    headers = {"content-type": "application/json"}
    response = await http.request(Request(method, f"{REST}{path}", headers, (body,)))
    assert response.status == 400
    assert "acme" in response.json["error"]["message"]
    assert agent.turns == []


@pytest.mark.requirement("wire.rest.errors", "wire.error.codes")
async def test_errors_are_statuses_with_error_info(start: Start) -> None:
    http = await start(_agent(), account=TASKS)
    missing = await http.get(f"{REST}/tasks/no-such-task")
    assert missing.status == 404
    error = missing.json["error"]
    assert (error["code"], error["status"]) == (404, "NOT_FOUND")
    assert "no-such-task" in error["message"]
    info = error["details"][0]
    assert info["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"
    assert (info["reason"], info["domain"]) == ("TASK_NOT_FOUND", "a2a-protocol.org")
    task = (await _post(http, "/message:send", v1_message()))["task"]
    cancel = await http.post(f"{REST}/tasks/{task['id']}:cancel", b"{}")
    assert (cancel.status, cancel.json["error"]["details"][0]["reason"]) == (
        400,
        "TASK_NOT_CANCELABLE",
    )
    subscribe = await http.get(f"{REST}/tasks/{task['id']}:subscribe")
    assert (subscribe.status, subscribe.json["error"]["details"][0]["reason"]) == (
        400,
        "UNSUPPORTED_OPERATION",
    )


@pytest.mark.requirement("wire.rest.errors", "wire.error.violations")
async def test_validation_error_lists_the_violations(start: Start) -> None:
    http = await start(_agent())
    response = await http.post(f"{REST}/message:send", b'{"message":{"role":"ROLE_USER"}}')
    assert response.status == 400
    assert response.json["error"]["status"] == "INVALID_ARGUMENT"
    details = response.json["error"]["details"]
    (bad,) = [one for one in details if one["@type"].endswith("google.rpc.BadRequest")]
    fields = {one["field"] for one in bad["fieldViolations"]}
    assert fields == {"message.messageId", "message.parts"}


@pytest.mark.requirement("wire.rest.errors")
async def test_body_that_is_not_json_is_a_400(start: Start) -> None:
    http = await start(_agent())
    response = await http.post(f"{REST}/message:send", b"{nothing")
    assert response.status == 400
    assert response.json["error"]["message"]


@pytest.mark.requirement("wire.rest.push-not-offered")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/tasks/t/pushNotificationConfigs"),
        ("GET", "/tasks/t/pushNotificationConfigs"),
        ("GET", "/tasks/t/pushNotificationConfigs/c"),
        ("DELETE", "/tasks/t/pushNotificationConfigs/c"),
    ],
)
async def test_push_paths_say_that_push_is_not_offered(
    start: Start, method: str, path: str
) -> None:
    http = await start(_agent(), account={"pushNotifications": False})
    body = b'{"url":"https://hook.example/"}' if method == "POST" else b""
    headers = {"content-type": "application/json"}
    response = await http.request(Request(method, f"{REST}{path}", headers, (body,)))
    assert response.status == 400
    reason = response.json["error"]["details"][0]["reason"]
    assert reason == "PUSH_NOTIFICATION_NOT_SUPPORTED"


@pytest.mark.requirement("wire.rest.extended-card")
async def test_extended_card_is_unsupported(start: Start) -> None:
    response = await (await start(_agent())).get(f"{REST}/extendedAgentCard")
    assert response.status == 400
    assert response.json["error"]["details"][0]["reason"] == "UNSUPPORTED_OPERATION"


@pytest.mark.requirement("wire.rest.unknown-method")
@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/message:send", "POST"),
        ("POST", "/tasks", "GET"),
        ("PUT", "/tasks/t", "DELETE, GET"),
        ("GET", "/tasks/t:cancel", "POST"),
        ("DELETE", "/tasks/t:subscribe", "GET, POST"),
        ("PATCH", "/tasks/t/pushNotificationConfigs", "GET, POST"),
    ],
)
async def test_other_methods_of_a_path_are_405(
    start: Start, method: str, path: str, allowed: str
) -> None:
    response = await (await start(_agent())).request(Request(method, f"{REST}{path}"))
    assert (response.status, response.headers["allow"]) == (405, allowed)
    info = response.json["error"]["details"][0]
    assert (info["reason"], info["metadata"]["code"]) == ("METHOD_NOT_FOUND", "method-not-allowed")


@pytest.mark.requirement("wire.rest.unknown-path")
@pytest.mark.parametrize("path", ["", "/", "/nothing", "/tasks/t:sing", "/message:sing"])
async def test_unknown_path_is_404(start: Start, path: str) -> None:
    response = await (await start(_agent())).get(f"{REST}{path}")
    assert response.status == 404
    assert response.json["error"]["message"]
