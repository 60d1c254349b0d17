"""JSON-RPC in 1.0: methods, objects and errors."""

import re

import pytest
from tests.conformance.conftest import Start
from tests.conformance.protocol_clients import Json, V1Client, fresh_id, v1_message
from tests.conformance.scripted_agent import ScriptedAgent
from tests.conformance.stream_outline import outline, text_of

from openclaw_a2a.model.agent_event import Reply
from openclaw_a2a.model.message import Part

RPC = "/a2a/jsonrpc"
TASKS = {"agentStyle": "task-generating"}
PUSH_METHODS = {
    "CreateTaskPushNotificationConfig": {"taskId": "t", "url": "https://hook.example/"},
    "GetTaskPushNotificationConfig": {"taskId": "t", "id": "c"},
    "ListTaskPushNotificationConfigs": {"taskId": "t"},
    "DeleteTaskPushNotificationConfig": {"taskId": "t", "id": "c"},
}


def _agent() -> ScriptedAgent:
    return ScriptedAgent(Reply.of_text("hello"))


@pytest.mark.requirement("wire.v1.methods", "wire.v1.get-task-bare", "wire.v1.send-wrapped")
async def test_task_methods_of_1_0_work_on_the_json_rpc_path(start: Start) -> None:
    agent = ScriptedAgent()
    v1 = V1Client(await start(agent, account=TASKS))
    async with v1.stream("SendStreamingMessage", v1_message("one")) as sent:
        first = (await sent.take(1))[0].json["result"]["task"]
        run = await agent.next_run()
        got = await v1.get(first["id"])
        assert got["id"] == first["id"]
        async with v1.stream("SubscribeToTask", {"id": first["id"]}) as followed:
            assert outline(await followed.take(1))[0].startswith("task ")
            canceled = await v1.cancel(first["id"])
            assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
            assert outline(await followed.rest())[-1] == "status canceled"
        assert outline(await sent.rest())[-1] == "status canceled"
    assert run.has_stopped
    page = await v1.list()
    assert [task["id"] for task in page["tasks"]] == [first["id"]]


@pytest.mark.requirement("wire.v1.send-wrapped", "wire.v1.states", "wire.v1.proto-json")
async def test_direct_answer_is_wrapped_as_message_with_enum_names(start: Start) -> None:
    v1 = V1Client(await start(_agent()))
    result = await v1.send("hi")
    assert list(result) == ["message"]
    assert result["message"]["role"] == "ROLE_AGENT"
    assert "kind" not in result["message"]


@pytest.mark.requirement("wire.v1.send-wrapped", "wire.v1.states", "wire.v1.timestamps")
async def test_task_answer_is_wrapped_as_task_with_utc_timestamps(start: Start) -> None:
    v1 = V1Client(await start(_agent(), account=TASKS))
    result = await v1.send("hi")
    assert list(result) == ["task"]
    task = result["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", task["status"]["timestamp"])
    assert task["history"][0]["role"] == "ROLE_USER"
    assert "kind" not in task


@pytest.mark.requirement("wire.v1.member-selects", "wire.v1.no-final", "wire.v1.proto-json")
async def test_stream_events_are_distinguished_by_their_member_only(start: Start) -> None:
    v1 = V1Client(await start(_agent(), account=TASKS))
    frames = await v1.events("SendStreamingMessage", v1_message())
    members = [list(frame.json["result"]) for frame in frames]
    assert members[0] == ["task"]
    assert {name for names in members[1:] for name in names} == {"statusUpdate", "artifactUpdate"}
    assert all(len(names) == 1 for names in members)
    assert '"final"' not in str([frame.json for frame in frames]).replace("'", '"')


@pytest.mark.requirement("wire.v1.return-immediately", "inbound.send.non-blocking")
async def test_return_immediately_answers_with_the_submitted_task(start: Start) -> None:
    agent = ScriptedAgent()
    v1 = V1Client(await start(agent))
    task = await v1.start("hi")
    assert task["status"]["state"] == "TASK_STATE_SUBMITTED"
    run = await agent.next_run()
    async with v1.stream("SubscribeToTask", {"id": task["id"]}) as frames:
        await frames.take(1)
        await run.finish(Reply.of_text("done"))
        assert outline(await frames.rest())[-1] == "status completed"


@pytest.mark.requirement("wire.v1.parts")
async def test_parts_of_every_kind_reach_the_agent_and_return(start: Start) -> None:
    parts: list[Json] = [
        {"text": "look"},
        {"raw": "iVBORw0KGgpoZWxsbw==", "mediaType": "image/png", "filename": "a.png"},
        {"url": "https://files.example/b.png", "mediaType": "image/png", "filename": "b.png"},
        {"data": {"n": 1}},
        {"data": [1, "two", None]},
    ]
    agent = ScriptedAgent(script=lambda turn: [Reply(turn.message.parts)])
    modes = ["text/plain", "application/json", "image/*"]
    account = {"defaultInputModes": modes, "defaultOutputModes": modes}
    v1 = V1Client(await start(agent, account=account))
    response = (await v1.send(parts=parts))["message"]
    assert response["parts"] == parts
    assert agent.turns[0].message.parts[1].content == b"\x89PNG\r\n\x1a\nhello"


@pytest.mark.requirement("wire.v1.parts")
async def test_metadata_of_a_part_reaches_the_agent(start: Start) -> None:
    agent = _agent()
    v1 = V1Client(await start(agent))
    await v1.send(parts=[{"text": "hi", "metadata": {"mood": "good"}}])
    assert agent.turns[0].message.parts == (Part(text="hi", metadata={"mood": "good"}),)


@pytest.mark.requirement("wire.v1.one-content", "wire.error.violations")
@pytest.mark.parametrize("part", [{}, {"text": "a", "data": 1}, {"mediaType": "text/plain"}])
async def test_part_with_none_or_several_contents_is_refused(start: Start, part: Json) -> None:
    agent = _agent()
    v1 = V1Client(await start(agent))
    failed = await v1.error("SendMessage", v1_message(parts=[{"text": "fine"}, part]))
    assert failed.code == -32602
    assert "message.parts[1]" in str(failed.error["data"])
    assert agent.turns == []


@pytest.mark.requirement("wire.v1.parts-required")
async def test_message_without_parts_is_refused(start: Start) -> None:
    v1 = V1Client(await start(_agent()))
    failed = await v1.error("SendMessage", v1_message(parts=[]))
    assert failed.code == -32602
    assert "message.parts" in failed.message


@pytest.mark.requirement("wire.v1.unknown-members")
async def test_unknown_members_are_ignored_everywhere(start: Start) -> None:
    v1 = V1Client(await start(_agent()))
    params = v1_message(parts=[{"text": "hi", "flavour": 1}], mood="good")
    params |= {"weather": {"sun": True}, "configuration": {"speed": 9}}
    assert text_of((await v1.call("SendMessage", params))["message"]) == "hello"


@pytest.mark.requirement("wire.v1.wrong-types", "wire.error.violations")
async def test_wrong_types_are_refused_with_every_problem(start: Start) -> None:
    v1 = V1Client(await start(_agent()))
    params = {
        "message": {"messageId": 7, "role": "ROLE_USER", "parts": [{"text": ["no"]}]},
        "configuration": {"historyLength": "three", "returnImmediately": "yes"},
    }
    failed = await v1.error("SendMessage", params)
    assert failed.code == -32602
    violations = _violations(failed.error)
    assert {one["field"] for one in violations} == {
        "message.messageId",
        "message.parts[0].text",
        "configuration.historyLength",
        "configuration.returnImmediately",
    }
    assert all(one["description"] for one in violations)


def _violations(error: Json) -> list[Json]:
    (bad,) = [one for one in error["data"] if one["@type"].endswith("google.rpc.BadRequest")]
    return bad["fieldViolations"]


@pytest.mark.requirement("wire.error.error-info", "wire.error.codes", "inbound.rpc.unknown-task")
@pytest.mark.parametrize("method", ["GetTask", "CancelTask", "SubscribeToTask"])
async def test_the_error_for_an_unknown_task_names_it_and_has_error_info(
    start: Start, method: str
) -> None:
    v1 = V1Client(await start(_agent()))
    failed = await v1.error(method, {"id": "no-such-task"})
    assert failed.code == -32001
    assert "no-such-task" in failed.message
    info = failed.error["data"][0]
    assert info["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"
    assert (info["reason"], info["domain"]) == ("TASK_NOT_FOUND", "a2a-protocol.org")


@pytest.mark.requirement("inbound.rpc.unknown-task")
async def test_message_to_an_unknown_task_is_refused(start: Start) -> None:
    agent = _agent()
    v1 = V1Client(await start(agent))
    failed = await v1.error("SendMessage", v1_message(taskId="no-such-task"))
    assert failed.code == -32001
    assert "no-such-task" in failed.message
    assert agent.turns == []


@pytest.mark.requirement("wire.v1.push-not-offered", "wire.error.error-info")
@pytest.mark.parametrize("method", list(PUSH_METHODS))
async def test_push_methods_say_that_push_is_not_offered(start: Start, method: str) -> None:
    v1 = V1Client(await start(_agent(), account={"pushNotifications": False}))
    failed = await v1.error(method, PUSH_METHODS[method])
    assert failed.code == -32003
    assert failed.error["data"][0]["reason"] == "PUSH_NOTIFICATION_NOT_SUPPORTED"


@pytest.mark.requirement("wire.v1.extended-card")
async def test_extended_card_is_unsupported(start: Start) -> None:
    v1 = V1Client(await start(_agent()))
    failed = await v1.error("GetExtendedAgentCard", {})
    assert failed.code == -32004
    assert failed.error["data"][0]["reason"] == "UNSUPPORTED_OPERATION"


@pytest.mark.requirement(
    "wire.v1.cancel-terminal", "wire.v1.subscribe-terminal", "wire.v1.send-terminal"
)
async def test_a_finished_task_refuses_messages_cancel_and_subscribe(start: Start) -> None:
    agent = _agent()
    v1 = V1Client(await start(agent, account=TASKS))
    task = (await v1.send())["task"]
    cancel = await v1.error("CancelTask", {"id": task["id"]})
    assert (cancel.code, cancel.error["data"][0]["reason"]) == (-32002, "TASK_NOT_CANCELABLE")
    subscribe = await v1.error("SubscribeToTask", {"id": task["id"]})
    assert (subscribe.code, subscribe.error["data"][0]["reason"]) == (
        -32004,
        "UNSUPPORTED_OPERATION",
    )
    message = await v1.error("SendMessage", v1_message(taskId=task["id"]))
    assert message.code == -32004
    assert len(agent.turns) == 1


@pytest.mark.requirement("wire.v1.context-mismatch")
async def test_context_that_is_not_the_tasks_is_refused(start: Start) -> None:
    agent = ScriptedAgent()
    v1 = V1Client(await start(agent))
    task = await v1.start(contextId="mine")
    failed = await v1.error("SendMessage", v1_message(taskId=task["id"], contextId="other"))
    assert failed.code == -32602
    assert "mine" in failed.message
    assert "other" in failed.message
    await (await agent.next_run()).finish(Reply.of_text("done"))


@pytest.mark.requirement("wire.v1.file-part")
async def test_a_file_type_that_is_not_accepted_is_refused(start: Start) -> None:
    agent = _agent()
    v1 = V1Client(await start(agent))
    parts = [{"text": "see"}, {"raw": "aGVsbG8=", "mediaType": "image/png"}]
    failed = await v1.error("SendMessage", v1_message(parts=parts))
    assert failed.code == -32005
    assert failed.error["data"][0]["reason"] == "CONTENT_TYPE_NOT_SUPPORTED"
    assert "message.parts[1]" in failed.message
    assert agent.turns == []
    assert (await v1.list())["totalSize"] == 0


@pytest.mark.requirement("wire.v1.error-before-stream")
@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("SubscribeToTask", {"id": "no-such-task"}, -32001),
        ("SendStreamingMessage", v1_message(taskId="no-such-task"), -32001),
        ("SendStreamingMessage", {"message": {}}, -32602),
    ],
)
async def test_error_before_the_first_event_is_a_plain_answer(
    start: Start, method: str, params: Json, code: int
) -> None:
    v1 = V1Client(await start(_agent()))
    response = await v1.post(method, params)
    assert (response.status, response.media_type) == (200, "application/json")
    assert response.json["error"]["code"] == code


@pytest.mark.requirement("wire.v1.extensions")
async def test_unknown_requested_extensions_are_ignored(start: Start) -> None:
    http = await start(_agent())
    v1 = V1Client(http.with_headers(a2a_extensions="https://ext.example/one, https://x.example"))
    assert "message" in await v1.send()


@pytest.mark.requirement("wire.v1.tenant")
async def test_tenant_that_no_card_names_is_refused(start: Start) -> None:
    agent = _agent()
    v1 = V1Client(await start(agent))
    failed = await v1.error("SendMessage", {**v1_message(), "tenant": "acme"})
    assert (failed.code, "acme" in failed.message) == (-32602, True)
    assert (await v1.error("GetTask", {"id": "t", "tenant": "acme"})).code == -32602
    assert (await v1.error("ListTasks", {"tenant": "acme"})).code == -32602
    assert agent.turns == []


@pytest.mark.requirement("wire.v1.push-not-offered")
async def test_a_push_config_inside_a_send_is_refused_before_the_run(start: Start) -> None:
    agent = _agent()
    v1 = V1Client(await start(agent, account={"pushNotifications": False}))
    hook = {"taskPushNotificationConfig": {"url": "https://hook.example/"}}
    assert (await v1.error("SendMessage", v1_message(configuration=hook))).code == -32003
    assert agent.turns == []


@pytest.mark.requirement("inbound.rpc.message-id", "wire.v1.wrong-types")
async def test_message_without_id_is_refused_by_name(start: Start) -> None:
    v1 = V1Client(await start(_agent()))
    params = v1_message()
    del params["message"]["messageId"]
    failed = await v1.error("SendMessage", params)
    assert failed.code == -32602
    assert "message.messageId" in failed.message


@pytest.mark.requirement("inbound.rpc.no-inner-metadata", "store.task.journal-internal")
async def test_answers_show_nothing_of_our_insides(start: Start) -> None:
    v1 = V1Client(await start(_agent(), account=TASKS))
    task = (await v1.send())["task"]
    shown = [await v1.get(task["id"]), await v1.list(includeArtifacts=True)]
    for secret in ("openclaw", "journal", "binding", "sessionKey", "currentSequence"):
        assert secret not in str(shown)


@pytest.mark.requirement("wire.history.negative")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("GetTask", {"id": fresh_id(), "historyLength": -1}),
        ("ListTasks", {"historyLength": -1}),
        ("SendMessage", v1_message(configuration={"historyLength": -1})),
    ],
)
async def test_negative_history_length_is_refused(start: Start, method: str, params: Json) -> None:
    v1 = V1Client(await start(_agent()))
    failed = await v1.error(method, params)
    assert failed.code == -32602
    assert "historyLength" in failed.message
