"""JSON-RPC in 0.3: envelopes, objects and errors of the inbound contract."""

import pytest
from tests.conformance.conftest import Start
from tests.conformance.protocol_clients import Json, V03Client, V1Client, v03_message
from tests.conformance.scripted_agent import ScriptedAgent
from tests.conformance.stream_outline import outline, text_of

from openclaw_a2a.model.agent_event import InputRequired, Reply
from openclaw_a2a.model.message import Part

RPC = "/a2a/jsonrpc"
TASKS = {"agentStyle": "task-generating"}


def _agent() -> ScriptedAgent:
    return ScriptedAgent(Reply.of_text("hello"))


@pytest.mark.requirement("wire.v03.methods", "wire.v03.kinds")
async def test_task_methods_of_0_3_work_on_the_json_rpc_path(start: Start) -> None:
    agent = ScriptedAgent()
    v03 = V03Client(await start(agent, account=TASKS))
    async with v03.stream("message/stream", v03_message()) as sent:
        first = (await sent.take(1))[0].json["result"]
        assert first["kind"] == "task"
        await agent.next_run()
        assert (await v03.get(first["id"]))["kind"] == "task"
        async with v03.stream("tasks/resubscribe", {"id": first["id"]}) as followed:
            assert outline(await followed.take(1))[0].startswith("task ")
            assert (await v03.cancel(first["id"]))["status"]["state"] == "canceled"
            assert outline(await followed.rest())[-1] == "status canceled"
        assert outline(await sent.rest())[-1] == "status canceled"


@pytest.mark.requirement("inbound.rpc.answers", "wire.v03.models", "wire.v03.states")
async def test_answer_is_http_200_json_that_the_official_models_accept(start: Start) -> None:
    v03 = V03Client(await start(_agent(), account=TASKS))
    task = await v03.send("hi")
    assert task["status"]["state"] == "completed"
    assert task["history"][0]["role"] == "user"
    assert task["history"][-1]["role"] == "agent"
    assert {part["kind"] for one in task["artifacts"] for part in one["parts"]} == {"text"}


@pytest.mark.requirement("wire.v03.final", "wire.v03.booleans", "runtime.transcript.one-final")
async def test_stream_events_have_kind_and_explicit_booleans(start: Start) -> None:
    v03 = V03Client(await start(_agent(), account=TASKS))
    frames = await v03.events("message/stream", v03_message())
    results = [frame.json["result"] for frame in frames]
    statuses = [one for one in results if one["kind"] == "status-update"]
    artifacts = [one for one in results if one["kind"] == "artifact-update"]
    assert results[0]["kind"] == "task"
    assert [one["final"] for one in statuses] == [False] * (len(statuses) - 1) + [True]
    assert results[-1]["final"] is True
    assert artifacts
    assert all(isinstance(one["append"], bool) for one in artifacts)
    assert all(isinstance(one["lastChunk"], bool) for one in artifacts)


@pytest.mark.requirement("wire.v03.blocking", "inbound.send.non-blocking")
async def test_blocking_false_answers_with_the_submitted_task(start: Start) -> None:
    agent = ScriptedAgent()
    v03 = V03Client(await start(agent))
    task = await v03.start()
    assert (task["kind"], task["status"]["state"]) == ("task", "submitted")
    await (await agent.next_run()).finish(Reply.of_text("done"))


@pytest.mark.requirement("wire.v03.blocking")
@pytest.mark.parametrize("configuration", [None, {}, {"blocking": True}])
async def test_blocking_true_or_absent_waits_for_the_answer(
    start: Start, configuration: Json
) -> None:
    v03 = V03Client(await start(_agent()))
    params = v03_message()
    if configuration is not None:
        params["configuration"] = configuration
    assert (await v03.call("message/send", params))["kind"] == "message"


@pytest.mark.requirement("wire.v03.parts")
async def test_parts_of_every_kind_reach_the_agent_and_return(start: Start) -> None:
    image = {"mimeType": "image/png", "name": "a.png"}
    parts: list[Json] = [
        {"kind": "text", "text": "look"},
        {"kind": "file", "file": {"bytes": "iVBORw0KGgpoZWxsbw==", **image}},
        {"kind": "file", "file": {"uri": "https://files.example/a.png", **image}},
        {"kind": "data", "data": {"n": 1}},
    ]
    agent = ScriptedAgent(script=lambda turn: [Reply(turn.message.parts)])
    modes = ["text/plain", "application/json", "image/png"]
    account = {"defaultInputModes": modes, "defaultOutputModes": modes}
    v03 = V03Client(await start(agent, account=account))
    assert (await v03.send(parts=parts))["parts"] == parts
    assert agent.turns[0].message.parts[1].content == b"\x89PNG\r\n\x1a\nhello"


@pytest.mark.requirement("wire.v03.data-wrapped")
async def test_data_that_is_no_object_is_wrapped_for_0_3(start: Start) -> None:
    agent = ScriptedAgent(Reply((Part.of_data([1, 2]),)))
    v03 = V03Client(await start(agent))
    (part,) = (await v03.send())["parts"]
    assert part["kind"] == "data"
    assert isinstance(part["data"], dict)
    assert [1, 2] in part["data"].values()


@pytest.mark.requirement("inbound.rpc.part-without-kind")
async def test_parts_without_kind_are_understood_by_their_content(start: Start) -> None:
    agent = _agent()
    v03 = V03Client(await start(agent))
    await v03.send(parts=[{"text": "hi"}, {"data": {"a": 1}}])
    assert agent.turns[0].message.parts == (Part.of_text("hi"), Part.of_data({"a": 1}))


@pytest.mark.requirement("inbound.rpc.part-without-kind")
async def test_part_without_kind_and_with_two_contents_is_refused(start: Start) -> None:
    v03 = V03Client(await start(_agent()))
    failed = await v03.error("message/send", v03_message(parts=[{"text": "a", "data": {}}]))
    assert failed.code == -32602


@pytest.mark.requirement("wire.v03.parts")
@pytest.mark.parametrize(
    "part",
    [
        {"kind": "data", "data": [1]},
        {"kind": "data", "data": "text"},
        {"kind": "text", "text": 7},
        {"kind": "text", "data": {}},
        {"kind": "file", "file": {}},
        {"kind": "file", "file": {"bytes": "not base64!", "mimeType": "image/png"}},
        {"kind": "song", "text": "la"},
        {},
    ],
)
async def test_a_part_that_0_3_does_not_have_is_refused_with_its_path(
    start: Start, part: Json
) -> None:
    agent = _agent()
    v03 = V03Client(await start(agent, account={"defaultInputModes": ["image/png", "text/plain"]}))
    good = {"kind": "text", "text": "fine"}
    failed = await v03.error("message/send", v03_message(parts=[good, part]))
    assert failed.code == -32602
    assert "message.parts[1]" in failed.message
    assert agent.turns == []


@pytest.mark.requirement("inbound.rpc.push-not-offered")
@pytest.mark.parametrize("verb", ["set", "get", "list", "delete"])
async def test_push_methods_of_0_3_do_not_exist(start: Start, verb: str) -> None:
    v03 = V03Client(await start(_agent(), account={"pushNotifications": False}))
    method = f"tasks/pushNotificationConfig/{verb}"
    failed = await v03.error(method, {"id": "t"})
    assert failed.code == -32601
    assert method in failed.message


@pytest.mark.requirement("wire.v03.push-wish")
async def test_a_push_config_inside_a_send_is_refused_while_push_is_off(start: Start) -> None:
    agent = _agent()
    v03 = V03Client(await start(agent, account={"pushNotifications": False}))
    hook = {"pushNotificationConfig": {"url": "https://hook.example/"}}
    assert (await v03.error("message/send", v03_message(configuration=hook))).code == -32003
    assert agent.turns == []


@pytest.mark.requirement("inbound.rpc.extended-card")
async def test_extended_card_of_0_3_is_unsupported(start: Start) -> None:
    v03 = V03Client(await start(_agent()))
    failed = await v03.error("agent/getAuthenticatedExtendedCard", {})
    assert failed.code == -32004


@pytest.mark.requirement("inbound.rpc.message-id")
@pytest.mark.parametrize("message_id", [None, "", "  ", 7])
async def test_message_without_usable_id_is_refused_by_name(start: Start, message_id: Json) -> None:
    v03 = V03Client(await start(_agent()))
    failed = await v03.error("message/send", v03_message(messageId=message_id))
    assert failed.code == -32602
    assert "message.messageId" in failed.message


@pytest.mark.requirement("inbound.rpc.file-part")
@pytest.mark.parametrize(
    "file",
    [
        {"bytes": "aGVsbG8=", "mimeType": "image/png"},
        {"uri": "https://files.example/a.png", "mimeType": "image/png"},
        {"bytes": "aGVsbG8="},
    ],
)
async def test_a_file_type_that_is_not_accepted_is_refused_before_the_run(
    start: Start, file: Json
) -> None:
    agent = _agent()
    http = await start(agent, account=TASKS)
    parts = [{"kind": "text", "text": "see"}, {"kind": "file", "file": file}]
    failed = await V03Client(http).error("message/send", v03_message(parts=parts))
    assert failed.code == -32602
    assert "message.parts[1]" in failed.message
    assert "file" in failed.message
    assert agent.turns == []
    assert (await V1Client(http).list())["totalSize"] == 0


@pytest.mark.requirement("inbound.rpc.unknown-task", "wire.v03.error-shape")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/cancel"])
async def test_the_error_names_the_unknown_task(start: Start, method: str) -> None:
    v03 = V03Client(await start(_agent()))
    failed = await v03.error(method, {"id": "no-such-task"})
    assert failed.code == -32001
    assert "no-such-task" in failed.message


@pytest.mark.requirement("inbound.rpc.unknown-task")
async def test_message_to_an_unknown_task_is_refused(start: Start) -> None:
    agent = _agent()
    v03 = V03Client(await start(agent))
    failed = await v03.error("message/send", v03_message(taskId="no-such-task"))
    assert failed.code == -32001
    assert "no-such-task" in failed.message
    assert agent.turns == []


@pytest.mark.requirement("inbound.rpc.context-mismatch")
async def test_another_context_than_the_tasks_is_refused_and_both_are_named(start: Start) -> None:
    agent = ScriptedAgent(InputRequired("What colour?"))
    v03 = V03Client(await start(agent))
    task = await v03.send(contextId="mine")
    failed = await v03.error("message/send", v03_message(taskId=task["id"], contextId="other"))
    assert failed.code == -32600
    assert "mine" in failed.message
    assert "other" in failed.message
    assert len(agent.turns) == 1


@pytest.mark.requirement("inbound.rpc.terminal")
async def test_message_to_an_ended_task_is_refused_naming_the_state(start: Start) -> None:
    agent = _agent()
    v03 = V03Client(await start(agent, account=TASKS))
    task = await v03.send()
    failed = await v03.error("message/send", v03_message(taskId=task["id"]))
    assert failed.code == -32600
    assert "completed" in failed.message
    assert len(agent.turns) == 1


@pytest.mark.requirement("inbound.stream.error-event")
@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("tasks/resubscribe", {"id": "no-such-task"}, -32001),
        ("message/stream", v03_message(taskId="no-such-task"), -32001),
        ("message/stream", {"message": {}}, -32602),
    ],
)
async def test_error_before_the_first_event_is_an_error_event(
    start: Start, method: str, params: Json, code: int
) -> None:
    v03 = V03Client(await start(_agent()))
    async with v03.stream(method, params) as frames:
        assert frames.active.status == 200
        assert frames.active.headers["content-type"].startswith("text/event-stream")
        (frame,) = await frames.rest()
    assert frame.event == "error"
    assert frame.json["error"]["code"] == code
    assert frame.json["id"] == 1


@pytest.mark.requirement("inbound.stream.frames", "wire.sse.one-line", "wire.sse.headers")
async def test_stream_is_sse_with_one_response_per_event(start: Start) -> None:
    v03 = V03Client(await start(_agent(), account=TASKS))
    async with v03.stream("message/stream", v03_message("two\nlines")) as frames:
        headers = frames.active.headers
        assert headers["content-type"].startswith("text/event-stream")
        assert "no-store" in headers["cache-control"] or "no-cache" in headers["cache-control"]
        assert headers["x-accel-buffering"] == "no"
        for frame in await frames.rest():
            assert frame.json["jsonrpc"] == "2.0"
            assert frame.json["id"] == 1
            assert frame.event is None


@pytest.mark.requirement("inbound.send.hybrid", "runtime.direct.one-message")
async def test_direct_answer_is_one_agent_message_without_task(start: Start) -> None:
    v03 = V03Client(await start(_agent()))
    response = await v03.send("hi", contextId="mine")
    assert (response["kind"], response["role"], response["contextId"]) == (
        "message",
        "agent",
        "mine",
    )
    assert "taskId" not in response
    assert text_of(response) == "hello"
