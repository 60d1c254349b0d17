"""The events of a task: text, tools, pauses, errors, output modes."""

import pytest
from tests.conformance.conftest import Start
from tests.conformance.protocol_clients import (
    Frame,
    FrameReader,
    Json,
    V03Client,
    V1Client,
    v03_message,
    v1_message,
)
from tests.conformance.scripted_agent import ScriptedAgent, Step
from tests.conformance.stream_outline import events, outline, published_text, status_text, text_of

from openclaw_a2a.model.agent_event import (
    Block,
    Failed,
    InputRequired,
    MessageEnd,
    PartDelta,
    Reply,
    TextDelta,
    TextPreview,
    ToolPhase,
    ToolProgress,
    ToolReply,
)
from openclaw_a2a.model.message import Part

TASKS = {"agentStyle": "task-generating"}
FIRST = "assistant-output-0001"


async def _stream(start: Start, *steps: Step, **configuration: Json) -> list[Frame]:
    """All events of a task whose agent says these."""
    v03 = V03Client(await start(ScriptedAgent(*steps), account=TASKS))
    params = v03_message(configuration=configuration) if configuration else v03_message()
    return await v03.events("message/stream", params)


def _artifacts(frames: list[Frame]) -> list[Json]:
    return [one for one in events(frames) if one["kind"] == "artifact-update"]


@pytest.mark.requirement("runtime.transcript.one-final", "runtime.transcript.last-state")
@pytest.mark.parametrize(
    ("steps", "state"),
    [
        ([Reply.of_text("hi")], "completed"),
        ([Failed("no")], "failed"),
        ([RuntimeError("no")], "failed"),
    ],
)
async def test_last_status_is_the_only_final_one(
    start: Start, steps: list[Step], state: str
) -> None:
    frames = await _stream(start, *steps)
    statuses = [one for one in events(frames) if one["kind"] == "status-update"]
    assert [one["final"] for one in statuses] == [False] * (len(statuses) - 1) + [True]
    assert outline(frames)[-1] == f"status {state}"


@pytest.mark.requirement("runtime.transcript.last-message")
@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([Reply.of_text("one"), Reply.of_text("two")], "two"),
        ([Reply.of_text("one"), Reply(())], "one"),
        ([TextDelta("stre"), TextDelta("amed")], "streamed"),
    ],
)
async def test_the_last_status_has_the_last_message_with_content(
    start: Start, steps: list[Step], words: str
) -> None:
    frames = await _stream(start, *steps)
    assert status_text(events(frames)[-1]) == words


@pytest.mark.requirement("runtime.transcript.last-message")
async def test_last_status_of_a_silent_run_is_a_fixed_sentence(start: Start) -> None:
    silent = await _stream(start, ToolProgress(ToolPhase.RESULT, "lookup", "c1"))
    other = await _stream(start, ToolProgress(ToolPhase.RESULT, "other", "c2"))
    assert outline(silent)[-1] == "status completed"
    assert status_text(events(silent)[-1])
    assert status_text(events(silent)[-1]) == status_text(events(other)[-1])


@pytest.mark.requirement("runtime.transcript.assistant-artifacts")
async def test_each_assistant_message_is_an_artifact_with_number_and_name(start: Start) -> None:
    frames = await _stream(start, Reply.of_text("one"), Reply.of_text("two"))
    shown = [one["artifact"] for one in _artifacts(frames)]
    assert [(one["artifactId"], one["name"], text_of(one)) for one in shown] == [
        ("assistant-output-0001", "assistant-output-1", "one"),
        ("assistant-output-0002", "assistant-output-2", "two"),
    ]


@pytest.mark.requirement("runtime.transcript.deltas", "runtime.transcript.closing-chunk")
async def test_growing_text_is_sent_as_appended_deltas(start: Start) -> None:
    agent = ScriptedAgent()
    v03 = V03Client(await start(agent, account=TASKS))
    async with v03.stream("message/stream", v03_message()) as frames:
        run = await agent.next_run()
        await frames.take(3)
        shown: list[Frame] = []
        for piece in ("one ", "two ", "three"):
            await run.emit(TextDelta(piece))
            shown += await frames.take(1)
        await run.finish(Reply.of_text("one two three four"))
        shown += await frames.rest()
    assert outline(shown) == [
        f"artifact {FIRST}",
        f"artifact +{FIRST}",
        f"artifact +{FIRST}",
        f"artifact +{FIRST}.",
        "status completed",
    ]
    pieces = [text_of(one["artifact"]) for one in _artifacts(shown)]
    assert pieces == ["one ", "two ", "three", " four"]


@pytest.mark.requirement("runtime.transcript.replaced")
async def test_text_that_does_not_continue_replaces_the_artifact(start: Start) -> None:
    frames = await _stream(start, TextDelta("wrong"), Reply.of_text("right"))
    assert outline(frames)[-2] == f"artifact {FIRST}."
    assert published_text(frames, FIRST) == "right"


@pytest.mark.requirement("runtime.transcript.empty-closing", "runtime.transcript.closing-chunk")
async def test_the_closing_chunk_is_one_empty_text_when_all_text_was_streamed(start: Start) -> None:
    agent = ScriptedAgent()
    v03 = V03Client(await start(agent, account=TASKS))
    async with v03.stream("message/stream", v03_message()) as frames:
        run = await agent.next_run()
        await run.emit(TextDelta("all"))
        await frames.take(4)
        await run.finish()
        rest = await frames.rest()
    assert outline(rest) == [f"artifact +{FIRST}.", "status completed"]
    assert events(rest)[0]["artifact"]["parts"] == [{"kind": "text", "text": ""}]


@pytest.mark.requirement("runtime.transcript.closing-chunk")
@pytest.mark.parametrize(
    "steps",
    [
        [Reply.of_text("one"), Reply.of_text("two")],
        [TextDelta("a"), TextDelta("b"), MessageEnd(), TextDelta("c")],
        [TextDelta("a"), ToolProgress(ToolPhase.START, "t", "c"), TextDelta("b")],
        [TextDelta("a"), Failed("no")],
        [TextDelta("a"), RuntimeError("no")],
        [TextDelta("a"), InputRequired("?")],
        [Block("a"), Block("b")],
    ],
)
async def test_every_assistant_artifact_has_exactly_one_last_chunk(
    start: Start, steps: list[Step]
) -> None:
    frames = await _stream(start, *steps)
    outputs = [
        one
        for one in _artifacts(frames)
        if one["artifact"]["artifactId"].startswith("assistant-output-")
    ]
    for artifact_id in {one["artifact"]["artifactId"] for one in outputs}:
        marks = [
            one["lastChunk"] for one in outputs if one["artifact"]["artifactId"] == artifact_id
        ]
        assert marks == [False] * (len(marks) - 1) + [True]


@pytest.mark.requirement("runtime.transcript.previews")
@pytest.mark.parametrize(
    ("previews", "text"),
    [
        (["he", "hell", "hello"], "hello"),
        (["he", "llo"], "hello"),
        (["he", "hell", "o"], "hello"),
    ],
)
async def test_previews_may_be_cumulative_or_pieces(
    start: Start, previews: list[str], text: str
) -> None:
    frames = await _stream(start, *[TextPreview(one) for one in previews])
    assert published_text(frames, FIRST) == text
    assert status_text(events(frames)[-1]) == text


@pytest.mark.requirement("runtime.transcript.previews")
@pytest.mark.parametrize(
    "steps",
    [
        [TextDelta("a"), TextDelta("b"), TextDelta("c")],
        [TextPreview("a"), TextPreview("ab"), TextPreview("abc")],
        [TextPreview("a"), TextPreview("b"), TextDelta("c")],
        [Block("a"), Block("b"), Block("c")],
        [PartDelta(Part.of_text("a")), PartDelta(Part.of_text("b")), PartDelta(Part.of_text("c"))],
    ],
)
async def test_every_piece_of_text_is_streamed_while_the_agent_works(
    start: Start, steps: list[Step]
) -> None:
    agent = ScriptedAgent()
    v03 = V03Client(await start(agent, account=TASKS))
    async with v03.stream("message/stream", v03_message()) as frames:
        run = await agent.next_run()
        for step, letter in zip(steps, "abc", strict=True):
            await run.emit(step)
            # Nothing more is said until this piece was seen.
            while letter not in (text_of(await _next_artifact(frames))):
                pass
        await run.finish()
        assert outline(await frames.rest())[-1] == "status completed"


async def _next_artifact(frames: FrameReader) -> Json:
    while True:
        [frame] = await frames.take(1)
        if frame.json["result"]["kind"] == "artifact-update":
            return frame.json["result"]["artifact"]


@pytest.mark.requirement("runtime.transcript.terminal-text")
@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([Block("b"), TextDelta("streamed"), Reply.of_text("final")], "final"),
        ([Block("b1"), TextDelta("streamed"), Block("b2")], "streamed"),
        ([Block("b1"), Block("b2")], "b1\n\nb2"),
    ],
)
async def test_final_reply_wins_over_streamed_text_over_blocks(
    start: Start, steps: list[Step], text: str
) -> None:
    frames = await _stream(start, *steps)
    assert status_text(events(frames)[-1]) == text
    assert published_text(frames, FIRST) == text


@pytest.mark.requirement("runtime.transcript.tool-replies", "runtime.transcript.reply-metadata")
async def test_tool_replies_are_numbered_artifacts(start: Start) -> None:
    frames = await _stream(
        start,
        ToolReply((Part.of_text("found one"),)),
        ToolReply((Part.of_text("found two"),)),
        Reply.of_text("done"),
    )
    shown = [one["artifact"] for one in _artifacts(frames)]
    assert [(one["artifactId"], one["name"], one["metadata"]) for one in shown] == [
        ("tool-result-0001", "tool-result-1", {"sequence": 1, "source": "tool-result-1"}),
        ("tool-result-0002", "tool-result-2", {"sequence": 2, "source": "tool-result-2"}),
        (FIRST, "assistant-output-1", {"sequence": 3, "source": "assistant-output-1"}),
    ]


@pytest.mark.requirement("runtime.transcript.tool-progress", "runtime.transcript.tool-call-id")
async def test_tool_progress_is_one_artifact_per_call(start: Start) -> None:
    frames = await _stream(
        start,
        ToolProgress(ToolPhase.START, "look up", "call/1.a", {"q": "x"}),
        ToolProgress(ToolPhase.UPDATE, "look up", "call/1.a", {"n": 1}),
        ToolProgress(ToolPhase.RESULT, "look up", "call/1.a", {"ok": True}),
        Reply.of_text("done"),
    )
    progress = _artifacts(frames)[:3]
    assert {one["artifact"]["artifactId"] for one in progress} == {"tool-progress-call_1_a"}
    assert {one["artifact"]["name"] for one in progress} == {"look up progress"}
    assert [one["lastChunk"] for one in progress] == [False, False, True]
    phases = ["start", "update", "result"]
    verbs = ["started", "updated", "completed"]
    payloads: list[Json] = [{"q": "x"}, {"n": 1}, {"ok": True}]
    for number, one in enumerate(progress):
        text, data = one["artifact"]["parts"]
        assert verbs[number] in text["text"].lower()
        assert "look up" in text["text"]
        assert data == {"kind": "data", "data": payloads[number]}
        assert one["artifact"]["metadata"] == {
            "source": "tool",
            "phase": phases[number],
            "toolName": "look up",
            "toolCallId": "call/1.a",
            "sequence": number + 1,
        }


@pytest.mark.requirement("runtime.transcript.tool-progress")
async def test_a_failed_tool_is_reported_as_failed(start: Start) -> None:
    step = ToolProgress(ToolPhase.RESULT, "lookup", "c1", {"why": "no net"}, is_error=True)
    frames = await _stream(start, step, Reply.of_text("sorry"))
    (progress, _) = _artifacts(frames)
    assert "failed" in progress["artifact"]["parts"][0]["text"].lower()
    assert progress["lastChunk"] is True
    assert outline(frames)[-1] == "status completed"


@pytest.mark.requirement("runtime.transcript.reply-metadata")
async def test_sequence_counts_all_artifact_events_of_the_run(start: Start) -> None:
    frames = await _stream(
        start,
        TextDelta("let me see"),
        ToolProgress(ToolPhase.START, "lookup", "c1"),
        ToolProgress(ToolPhase.RESULT, "lookup", "c1"),
        Reply.of_text("let me see: yes"),
    )
    numbers = [one["artifact"]["metadata"]["sequence"] for one in _artifacts(frames)]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.requirement("runtime.transcript.approval", "runtime.transcript.approval-prompt")
@pytest.mark.parametrize(
    ("payload", "prompt"),
    [
        ({"status": "approval-pending", "requiresApproval": {"prompt": "  May I? "}}, "May I?"),
        ({"status": "needs_approval"}, None),
        ({"requiresApproval": {"type": "approval_request", "prompt": "Sure?"}}, "Sure?"),
        ({"requiresApproval": {"type": "approval_request", "prompt": "  "}}, None),
    ],
)
async def test_a_tool_result_that_needs_approval_pauses_the_task(
    start: Start, payload: Json, prompt: str | None
) -> None:
    steps = [ToolProgress(ToolPhase.RESULT, "pay", "c1", payload), Reply.of_text("too late")]
    frames = await _stream(start, *steps)
    last = events(frames)[-1]
    assert outline(frames)[-1] == "status input-required"
    assert last["final"] is False
    assert status_text(last) == prompt if prompt else status_text(last)
    assert not any("too late" in str(frame.json) for frame in frames)


@pytest.mark.requirement("runtime.transcript.approval")
@pytest.mark.parametrize(
    "step",
    [
        ToolProgress(ToolPhase.RESULT, "pay", "c1", {"status": "needs_approval"}, is_error=True),
        ToolProgress(ToolPhase.UPDATE, "pay", "c1", {"status": "needs_approval"}),
        ToolProgress(ToolPhase.RESULT, "pay", "c1", {"status": "approved"}),
    ],
)
async def test_other_tool_events_do_not_pause(start: Start, step: ToolProgress) -> None:
    frames = await _stream(start, step, Reply.of_text("done"))
    assert outline(frames)[-1] == "status completed"


@pytest.mark.requirement(
    "runtime.transcript.pause-open",
    "runtime.transcript.pause-blocking",
    "runtime.transcript.pause-stream",
)
async def test_a_paused_task_continues_with_the_next_message(start: Start) -> None:
    def script(turn: object) -> list[Step]:
        if len(agent.turns) == 1:
            return [InputRequired("Which one?", resume={"at": 3})]
        return [Reply.of_text("done")]

    agent = ScriptedAgent(script=script)
    v1 = V1Client(await start(agent))
    paused = (await v1.send())["task"]
    assert paused["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert status_text(paused) == "Which one?"
    frames = await v1.events("SendStreamingMessage", v1_message("red", taskId=paused["id"]))
    assert outline(frames)[-1] == "status completed"
    assert agent.turns[1].resume == {"at": 3}
    assert agent.turns[1].body == "red"


@pytest.mark.requirement("runtime.transcript.pause-stream", "inbound.resubscribe.until-pause")
async def test_streams_of_a_send_and_of_0_3_close_after_a_pause(start: Start) -> None:
    agent = ScriptedAgent()
    http = await start(agent, account=TASKS)
    async with V1Client(http).stream("SendStreamingMessage", v1_message()) as frames:
        run = await agent.next_run()
        async with V03Client(http).stream("tasks/resubscribe", {"id": run.turn.task_id}) as tail:
            await tail.take(1)
            await run.finish(InputRequired("Which one?"))
            assert outline(await frames.rest())[-1] == "status input-required"
            assert outline(await tail.rest())[-1] == "status input-required"


@pytest.mark.requirement("runtime.transcript.error-text")
@pytest.mark.parametrize("step", [Failed("out of luck"), RuntimeError("out of luck")])
async def test_error_text_is_the_message_of_the_failed_status(start: Start, step: Step) -> None:
    frames = await _stream(start, TextDelta("hm"), step)
    assert outline(frames)[-1] == "status failed"
    assert status_text(events(frames)[-1]) == "out of luck"
