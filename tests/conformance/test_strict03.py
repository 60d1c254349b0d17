"""What 0.3 answers by the contract of the channel, and with `strict03` by the protocol itself."""

import pytest
from tests.conformance.conftest import Start
from tests.conformance.protocol_clients import Json, RpcFailed, V03Client, V1Client, v03_message
from tests.conformance.scripted_agent import ScriptedAgent
from tests.conformance.stream_outline import events, outline

from openclaw_a2a.model.agent_event import AgentEvent, InputRequired, Reply
from openclaw_a2a.model.turn import Turn

pytestmark = pytest.mark.requirement("wire.v03.strict")

STRICT = {"agentStyle": "task-generating", "strict03": True}
USUAL = {"agentStyle": "task-generating"}
PNG = {"kind": "file", "file": {"bytes": "aGk=", "mimeType": "image/png"}}


def _agent() -> ScriptedAgent:
    return ScriptedAgent(Reply.of_text("hi"))


async def _code(v03: V03Client, params: Json) -> int | None:
    try:
        await v03.call("message/send", params)
    except RpcFailed as failed:
        return failed.code
    return None


@pytest.mark.parametrize(("account", "code"), [(USUAL, None), (STRICT, -32002)])
async def test_cancel_of_an_ended_task(start: Start, account: Json, code: int | None) -> None:
    v03 = V03Client(await start(_agent(), account=account))
    task = await v03.send()
    if code is None:
        assert await v03.cancel(task["id"]) == task
    else:
        assert (await v03.error("tasks/cancel", {"id": task["id"]})).code == code


@pytest.mark.parametrize(("account", "code"), [(USUAL, -32602), (STRICT, -32005)])
async def test_a_file_of_a_type_that_is_not_accepted(
    start: Start, account: Json, code: int
) -> None:
    http = await start(_agent(), account=account)
    v03, params = V03Client(http), v03_message(parts=[PNG])
    assert await _code(v03, params) == code
    (frame,) = await v03.events("message/stream", params)
    assert frame.json["error"]["code"] == code


@pytest.mark.parametrize(("account", "code"), [(USUAL, None), (STRICT, -32602)])
@pytest.mark.parametrize(
    "parts", [[], [{"text": "hi"}], [{"kind": "text", "text": "a"}, PNG["file"]]]
)
async def test_empty_parts_and_parts_without_a_kind(
    start: Start, account: Json, code: int | None, parts: Json
) -> None:
    v03 = V03Client(await start(_agent(), account=account))
    is_unreadable = bool(parts) and "bytes" in parts[-1]
    assert await _code(v03, v03_message(parts=parts)) == (-32602 if is_unreadable else code)


async def test_the_error_names_the_parts_without_a_kind(start: Start) -> None:
    v03 = V03Client(await start(_agent(), account=STRICT))
    params = v03_message(parts=[{"kind": "text", "text": "a"}, {"text": "b"}])
    failed = await v03.error("message/send", params)
    assert [one["path"] for one in failed.error["data"]["problems"]] == ["message.parts[1].kind"]


@pytest.mark.parametrize(("account", "is_final"), [(USUAL, False), (STRICT, True)])
async def test_the_last_event_of_a_stream_that_pauses(
    start: Start, account: Json, is_final: bool
) -> None:
    v03 = V03Client(await start(ScriptedAgent(InputRequired("Which?")), account=account))
    frames = await v03.events("message/stream", v03_message())
    assert outline(frames)[-1] == "status input-required"
    finals = [event["final"] for event in events(frames) if event["kind"] == "status-update"]
    assert finals == [False] * (len(finals) - 1) + [is_final]


@pytest.mark.parametrize("last", ["input-required", "completed"])
async def test_a_pause_that_was_answered_is_not_final_in_a_resumed_stream(
    start: Start, last: str
) -> None:
    def script(turn: Turn) -> list[AgentEvent]:
        ends = last == "completed" and turn.raw_body == "blue"
        return [Reply.of_text("blue")] if ends else [InputRequired("Which?")]

    v03 = V03Client(await start(ScriptedAgent(script=script), account=STRICT))
    task = await v03.send()
    assert task["status"]["state"] == "input-required"
    await v03.send("blue", taskId=task["id"])
    frames = await v03.events("tasks/resubscribe", {"id": task["id"]}, last_event_id="0")
    statuses = [event for event in events(frames) if event["kind"] == "status-update"]
    assert [one["status"]["state"] for one in statuses].count("input-required") >= 1
    assert statuses[-1]["status"]["state"] == last
    assert [one["final"] for one in statuses] == [False] * (len(statuses) - 1) + [True]


async def test_1_0_is_the_same_in_a_strict_account(start: Start) -> None:
    v1 = V1Client(await start(_agent(), account=STRICT))
    task = (await v1.send())["task"]
    assert (await v1.error("CancelTask", {"id": task["id"]})).code == -32002
