"""Direct answer or task: what promotes a run, and in which order events are sent."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.conformance.conftest import Start
from tests.conformance.manual_clock import ManualClock
from tests.conformance.protocol_clients import V03Client, V1Client, v03_message, v1_message
from tests.conformance.scripted_agent import ScriptedAgent, Step
from tests.conformance.stream_outline import events, outline, split, status_text, text_of

from openclaw_a2a.model.agent_event import (
    AgentEvent,
    Block,
    Failed,
    InputRequired,
    MessageEnd,
    Note,
    Reply,
    Started,
    TextDelta,
    TextPreview,
    ToolPhase,
    ToolProgress,
    ToolReply,
)
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.turn import Turn

TASKS = {"agentStyle": "task-generating"}
HELLO = Reply.of_text("hello")

DIRECT: dict[str, list[Step]] = {
    "one reply": [HELLO],
    "started then reply": [Started(), HELLO],
    "streamed text": [TextDelta("hel"), TextDelta("lo")],
    "previews": [TextPreview("hel"), TextPreview("hello")],
    "blocks": [Block("hello")],
    "streamed and final": [TextDelta("hel"), HELLO],
    "ended stream": [TextDelta("hello"), MessageEnd()],
    "blank second message": [HELLO, TextDelta("")],
}
PROMOTED: dict[str, list[Step]] = {
    "tool reply": [ToolReply((Part.of_text("found"),)), HELLO],
    "tool start": [ToolProgress(ToolPhase.START, "lookup", "c1"), HELLO],
    "tool update": [ToolProgress(ToolPhase.UPDATE, "lookup", "c1"), HELLO],
    "tool result": [ToolProgress(ToolPhase.RESULT, "lookup", "c1"), HELLO],
    "second message": [HELLO, Reply.of_text("again")],
    "second streamed message": [TextDelta("one"), MessageEnd(), TextDelta("two")],
    "agent error": [TextDelta("hel"), Failed("out of luck")],
    "raised error": [TextDelta("hel"), RuntimeError("out of luck")],
    "pause": [InputRequired("Which one?")],
    "nothing said": [Started()],
    "empty reply": [Reply(())],
    "blank text only": [TextDelta("")],
}


@pytest.mark.requirement("runtime.promotion.not-by-text", "inbound.send.hybrid")
@pytest.mark.parametrize("steps", DIRECT.values(), ids=DIRECT.keys())
async def test_one_assistant_message_stays_direct(start: Start, steps: list[Step]) -> None:
    v1 = V1Client(await start(ScriptedAgent(*steps)))
    assert text_of((await v1.send())["message"]) == "hello"


@pytest.mark.requirement("runtime.direct.one-message", "runtime.direct.no-trace")
async def test_direct_run_is_one_message_and_leaves_no_task(start: Start) -> None:
    agent = ScriptedAgent(HELLO)
    v1 = V1Client(await start(agent))
    message = (await v1.send(contextId="mine"))["message"]
    assert message["contextId"] == "mine"
    assert "taskId" not in message
    assert message["role"] == "ROLE_AGENT"
    assert (await v1.list())["totalSize"] == 0
    assert (await v1.error("GetTask", {"id": agent.turns[0].task_id})).code == -32001


@pytest.mark.requirement(
    "runtime.promotion.tool-reply",
    "runtime.promotion.tool-event",
    "runtime.promotion.second-assistant-message",
    "runtime.promotion.agent-error",
    "runtime.promotion.raised-error",
    "runtime.promotion.pause",
    "runtime.promotion.no-content",
)
@pytest.mark.parametrize("steps", PROMOTED.values(), ids=PROMOTED.keys())
async def test_anything_more_than_one_message_makes_a_task(start: Start, steps: list[Step]) -> None:
    v1 = V1Client(await start(ScriptedAgent(*steps)))
    task = (await v1.send())["task"]
    assert (await v1.get(task["id"])) == task


@pytest.mark.requirement(
    "runtime.promotion.streams-too", "runtime.promotion.once", "runtime.promotion.order"
)
@pytest.mark.parametrize("steps", PROMOTED.values(), ids=PROMOTED.keys())
async def test_promotion_shows_task_submitted_working_and_then_the_rest(
    start: Start, steps: list[Step]
) -> None:
    v1 = V1Client(await start(ScriptedAgent(*steps)))
    lines = outline(await v1.events("SendStreamingMessage", v1_message("hi")))
    assert lines[:3] == ["task submitted", "status submitted", "status working"]
    assert lines.count("status working") == 1
    assert sum(line.startswith("task ") for line in lines) == 1


@pytest.mark.requirement("runtime.promotion.order")
async def test_what_was_staged_follows_the_promotion(start: Start) -> None:
    steps: list[Step] = [TextDelta("let me see"), ToolProgress(ToolPhase.START, "lookup", "c1")]
    v03 = V03Client(await start(ScriptedAgent(*steps)))
    frames = await v03.events("message/stream", v03_message("hi", messageId="m-hi"))
    task = events(frames)[0]
    assert [one["messageId"] for one in task["history"]] == ["m-hi"]
    assert outline(frames)[3:5] == ["artifact assistant-output-0001", "artifact tool-progress-c1"]
    assert text_of(events(frames)[3]["artifact"]) == "let me see"


@pytest.mark.requirement("runtime.promotion.streams-too", "inbound.stream.direct")
@pytest.mark.parametrize("steps", DIRECT.values(), ids=DIRECT.keys())
async def test_stream_of_a_direct_run_is_one_message(start: Start, steps: list[Step]) -> None:
    v1 = V1Client(await start(ScriptedAgent(*steps)))
    frames = await v1.events("SendStreamingMessage", v1_message())
    assert outline(frames) == ["message"]
    assert text_of(events(frames)[0]) == "hello"


@pytest.mark.requirement("runtime.promotion.task-generating", "inbound.account.agent-style")
async def test_task_generating_account_makes_a_task_of_a_plain_answer(start: Start) -> None:
    v1 = V1Client(await start(ScriptedAgent(HELLO), account=TASKS))
    task = (await v1.send())["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert status_text(task) == "hello"


@pytest.mark.requirement("runtime.promotion.non-blocking")
async def test_non_blocking_send_makes_a_task_of_a_plain_answer(start: Start) -> None:
    agent = ScriptedAgent()
    v1 = V1Client(await start(agent))
    task = await v1.start()
    run = await agent.next_run()
    async with v1.stream("SubscribeToTask", {"id": task["id"]}) as frames:
        await frames.take(1)
        await run.finish(HELLO)
        assert outline(await frames.rest())[-1] == "status completed"


@pytest.mark.requirement("runtime.promotion.non-blocking", "runtime.promotion.streams-too")
async def test_non_blocking_stream_is_a_task_from_the_start(start: Start) -> None:
    v03 = V03Client(await start(ScriptedAgent(HELLO)))
    params = v03_message(configuration={"blocking": False})
    assert outline(await v03.events("message/stream", params))[0] == "task submitted"


@pytest.mark.requirement("runtime.promotion.continues-task", "runtime.promotion.continuation")
async def test_continuation_is_a_task_and_shows_what_was_before(start: Start) -> None:
    def script(turn: object) -> list[Step]:
        return [HELLO] if len(agent.turns) > 1 else [TextDelta("well"), InputRequired("Which?")]

    agent = ScriptedAgent(script=script)
    v1 = V1Client(await start(agent))
    task = (await v1.send(messageId="m-one"))["task"]
    params = v1_message("this", taskId=task["id"], messageId="m-two")
    frames = await v1.events("SendStreamingMessage", params)
    first = split(frames[0].json["result"])[1]
    assert first["id"] == task["id"]
    assert first["status"]["state"] == "TASK_STATE_SUBMITTED"
    users = [one["messageId"] for one in first["history"] if one["role"] == "ROLE_USER"]
    assert users == ["m-one", "m-two"]
    assert [one["artifactId"] for one in first["artifacts"]] == ["assistant-output-0001"]
    assert outline(frames) == [
        "task submitted",
        "status submitted",
        "status working",
        "artifact assistant-output-0002.",
        "status completed",
    ]


class BackwardsClock(ManualClock):
    """A clock that is set back a little whenever somebody looks at it."""

    def now(self) -> datetime:
        self._ahead -= timedelta(seconds=1)
        return datetime.now(UTC) + self._ahead


@pytest.mark.requirement("promise.order.timestamps")
@pytest.mark.parametrize("style", ["hybrid", "task-generating"])
@pytest.mark.parametrize("clock", [ManualClock(), BackwardsClock()])
async def test_timestamps_of_a_task_never_decrease(
    start: Start, style: str, clock: ManualClock
) -> None:
    def script(turn: Turn) -> list[AgentEvent]:
        if turn.raw_body == "answer":
            return [Note("on it"), Reply.of_text("done")]
        return [TextDelta("a"), Note("thinking"), Note("still"), InputRequired("Which?")]

    agent = ScriptedAgent(script=script)
    v1 = V1Client(await start(agent, account={"agentStyle": style}, clock=clock))
    frames = await v1.events("SendStreamingMessage", v1_message())
    task_id = events(frames)[0]["id"]
    frames += await v1.events("SendStreamingMessage", v1_message("answer", taskId=task_id))
    statuses = [event["status"] for event in events(frames) if "status" in event]
    stamps = [status["timestamp"] for status in statuses]
    assert stamps == sorted(stamps)
    assert (await v1.get(task_id))["status"] == statuses[-1]
