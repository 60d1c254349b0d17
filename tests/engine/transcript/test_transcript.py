"""How what an agent tells becomes events: the rules of the transcript, one by one."""

from datetime import UTC, datetime
from itertools import count, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from tests.engine.event_lines import (
    check_closed_once,
    event_lines,
    event_text,
    published_by,
    text_of,
)

from openclaw_a2a.engine.transcript.assistant_message import OutputModes, output_modes
from openclaw_a2a.engine.transcript.transcript import (
    APPROVAL_NEEDED,
    CANCELED,
    NO_REPLY,
    ArtifactCounters,
    EventContext,
    Transcript,
)
from openclaw_a2a.model.agent_event import (
    AgentEvent,
    Block,
    Failed,
    InputRequired,
    MessageEnd,
    Note,
    Reply,
    Report,
    Started,
    TextDelta,
    TextPreview,
    ToolPhase,
    ToolProgress,
    ToolReply,
)
from openclaw_a2a.model.ids import ContextId, Json, TaskId
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.task import (
    ArtifactUpdate,
    Event,
    StatusUpdate,
)

ALL_MODES = ("*/*",)
LOOKUP = ToolProgress(ToolPhase.START, "lookup", "call 1")


def transcript(
    *,
    is_task: bool = True,
    modes: tuple[str, ...] = ALL_MODES,
    counters: ArtifactCounters | None = None,
) -> Transcript:
    ids = count(1)
    now = datetime(2026, 11, 15, 6, tzinfo=UTC)
    stamp = EventContext(TaskId("t"), ContextId("c"), lambda: now, lambda: f"id-{next(ids)}")
    return Transcript(
        stamp, modes=OutputModes(modes), is_task=is_task, counters=counters or ArtifactCounters()
    )


def events_of(script: Transcript, *steps: AgentEvent) -> list[Event]:
    """The events of these steps when every text goes out at once."""
    events: list[Event] = []
    for step in steps:
        events += script.apply(step)
        events += script.flush()
    return events


def played(*steps: AgentEvent, modes: tuple[str, ...] = ALL_MODES) -> list[Event]:
    """All events of a task that completes."""
    script = transcript(modes=modes)
    return [*events_of(script, *steps), *script.complete()]


def artifacts(events: list[Event]) -> list[ArtifactUpdate]:
    return [event for event in events if isinstance(event, ArtifactUpdate)]


def metadata_of(events: list[Event]) -> list[Json]:
    return [event.artifact.metadata for event in artifacts(events)]


# ---------------------------------------------------------------- direct, or a task


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ((Reply.of_text("hi"),), "hi"),
        ((Started(), TextDelta("h"), TextDelta("i")), "hi"),
        ((TextPreview("h"), TextPreview("hi")), "hi"),
        ((Block("one"), Block("two")), "one\n\ntwo"),
        ((TextDelta("hi"), MessageEnd()), "hi"),
        ((TextDelta("draft"), Reply.of_text("hi")), "hi"),
        ((Block("block"), TextDelta("hi")), "hi"),
        ((Reply.of_text("hi"), Report({"tokens": 3})), "hi"),
        ((Reply.of_text("hi"), Reply.of_text("")), "hi"),
        ((Reply.of_text("hi"), TextDelta("  "), MessageEnd()), "hi"),
    ],
)
def test_one_message_with_content_is_a_direct_answer(
    steps: tuple[AgentEvent, ...], text: str
) -> None:
    script = transcript(is_task=False)
    assert events_of(script, *steps) == []
    assert script.answer() == (Part(text=text),)


@pytest.mark.parametrize(
    "steps", [(), (Started(),), (TextDelta(""),), (Reply(()),), (MessageEnd(),)]
)
def test_run_without_content_is_no_direct_answer(steps: tuple[AgentEvent, ...]) -> None:
    script = transcript(is_task=False)
    assert events_of(script, *steps) == []
    assert script.answer() is None
    assert not script.is_unrepresentable
    assert script.promote() == []
    assert event_text(script.complete()[-1]) == NO_REPLY


@pytest.mark.parametrize(
    "step",
    [
        LOOKUP,
        ToolProgress(ToolPhase.UPDATE, "lookup", "1"),
        ToolProgress(ToolPhase.RESULT, "lookup", "1"),
        ToolReply((Part.of_text("found"),)),
        Note("looking"),
        InputRequired("which?"),
        Failed("no"),
    ],
)
def test_what_a_message_cannot_hold_makes_a_task_and_publishes_what_was_staged(
    step: AgentEvent,
) -> None:
    script = transcript(is_task=False)
    events = events_of(script, TextDelta("well, "), TextDelta("then"), step)
    assert script.is_promoted
    assert event_lines(events)[0].startswith("artifact assistant-output-0001")
    assert event_text(events[0]) == "well, then"
    assert script.answer() is None


@pytest.mark.parametrize("second", [TextDelta("two"), Block("two"), Reply.of_text("two")])
def test_second_assistant_message_makes_a_task(second: AgentEvent) -> None:
    script = transcript(is_task=False)
    events = events_of(script, Reply.of_text("one"), second)
    assert event_lines(events)[:2] == [
        "artifact assistant-output-0001.",
        "artifact assistant-output-0002" + ("." if isinstance(second, Reply) else ""),
    ]
    assert [event_text(event) for event in events[:2]] == ["one", "two"]


@pytest.mark.parametrize(
    "step",
    [ToolProgress(ToolPhase.START, "", "1"), ToolProgress(ToolPhase.START, "lookup", "")],
)
def test_tool_event_without_name_or_call_is_ignored(step: AgentEvent) -> None:
    script = transcript(is_task=False)
    assert events_of(script, step) == []
    assert not script.is_promoted


def test_run_is_promoted_once() -> None:
    script = transcript(is_task=False)
    events = events_of(script, TextDelta("a"), Note("one"), Note("two"), TextDelta("b"))
    assert event_lines(events) == [
        "artifact assistant-output-0001",
        "status working",
        "status working",
        "artifact +assistant-output-0001",
    ]


# ---------------------------------------------------------------- growing text


def test_growing_text_is_appended_and_closed_once() -> None:
    events = played(TextDelta("one "), TextDelta("two "), Reply.of_text("one two three"))
    assert event_lines(events) == [
        "artifact assistant-output-0001",
        "artifact +assistant-output-0001",
        "artifact +assistant-output-0001.",
        "status completed",
    ]
    assert [event_text(event) for event in events] == ["one ", "two ", "three", "one two three"]


def test_text_that_does_not_continue_replaces_the_artifact() -> None:
    events = played(TextDelta("one"), Reply.of_text("two"))
    assert event_lines(events)[1] == "artifact assistant-output-0001."
    assert [event_text(event) for event in events] == ["one", "two", "two"]


def test_closing_event_holds_one_empty_text_when_all_text_was_published() -> None:
    closing = artifacts(played(TextDelta("all")))[-1]
    assert (closing.append, closing.last_chunk) == (True, True)
    assert closing.artifact.parts == (Part(text=""),)


def test_text_that_comes_between_two_writes_is_one_event() -> None:
    script = transcript()
    for piece in ("a", "b", "c"):
        assert script.apply(TextDelta(piece)) == []
    assert script.pending_size == 3
    assert [event_text(event) for event in script.flush()] == ["abc"]
    assert script.flush() == []
    assert script.pending_size == 0


def test_pending_text_is_published_with_the_closing_event() -> None:
    script = transcript()
    script.apply(TextDelta("all at once"))
    assert event_lines(script.complete()) == ["artifact assistant-output-0001.", "status completed"]


@pytest.mark.parametrize(
    ("previews", "pieces"),
    [
        (["he", "hell", "hello"], ["he", "ll", "o"]),
        (["he", "llo"], ["he", "llo"]),
        (["he", "he"], ["he"]),
        (["hello", "he"], ["hello", "he"]),
        (["", "he", ""], ["he"]),
    ],
)
def test_preview_that_continues_replaces_the_known_text_else_it_is_added(
    previews: list[str], pieces: list[str]
) -> None:
    events = events_of(transcript(), *[TextPreview(text) for text in previews])
    assert [event_text(event) for event in events] == pieces


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ((Block("b"), TextDelta("s"), Reply.of_text("final")), "final"),
        ((Block("b"), TextDelta("s"), Block("c")), "s"),
        ((TextDelta("s"), Block("b")), "s"),
        ((Block("b"), Block("c")), "b\n\nc"),
        ((TextDelta("s"), Reply(())), "s"),
    ],
)
def test_final_reply_wins_over_streamed_text_over_blocks(
    steps: tuple[AgentEvent, ...], text: str
) -> None:
    events = played(*steps)
    assert event_text(events[-1]) == text
    task_text = ""
    for event in artifacts(events):
        task_text = event_text(event) if not event.append else task_text + event_text(event)
    assert task_text == text
    check_closed_once(events)


def test_streamed_text_replaces_published_blocks() -> None:
    events = played(Block("block"), TextDelta("text"))
    assert event_lines(events)[:2] == ["artifact assistant-output-0001"] * 2


def test_other_parts_of_a_reply_follow_its_text() -> None:
    picture = Part.of_url("https://example.com/a.png", media_type="image/png")
    events = played(TextDelta("see"), Reply((Part.of_text("see this"), picture)))
    assert artifacts(events)[-1].append
    assert artifacts(events)[-1].artifact.parts == (Part(text=" this"), picture)


def test_each_message_is_an_artifact_with_its_number_and_name() -> None:
    events = played(Reply.of_text("one"), TextDelta("two"), MessageEnd(), Block("three"))
    closed = [event for event in artifacts(events) if not event.append]
    assert [(event.artifact.artifact_id, event.artifact.name) for event in closed] == [
        ("assistant-output-0001", "assistant-output-1"),
        ("assistant-output-0002", "assistant-output-2"),
        ("assistant-output-0003", "assistant-output-3"),
    ]
    check_closed_once(events)


def test_artifact_numbers_continue_those_of_the_task() -> None:
    script = transcript(counters=ArtifactCounters(outputs=2, tool_results=5))
    events = events_of(script, Reply.of_text("more"), ToolReply((Part.of_text("found"),)))
    assert event_lines(events) == ["artifact assistant-output-0003.", "artifact tool-result-0006."]


def test_empty_message_gets_no_number() -> None:
    events = played(MessageEnd(), TextDelta(" "), MessageEnd(), Reply(()), Reply.of_text("one"))
    assert event_lines(artifacts(events))[-1] == "artifact assistant-output-0002."
    check_closed_once(events)


def test_artifact_events_are_counted_with_their_source() -> None:
    events = played(TextDelta("a"), LOOKUP, ToolReply((Part.of_text("x"),)), Reply.of_text("ab"))
    assert metadata_of(events) == [
        {"sequence": 1, "source": "assistant-output-1"},
        {
            "source": "tool",
            "phase": "start",
            "toolName": "lookup",
            "toolCallId": "call 1",
            "sequence": 2,
        },
        {"sequence": 3, "source": "tool-result-1"},
        {"sequence": 4, "source": "assistant-output-1"},
    ]


# ---------------------------------------------------------------- tools and notes


def test_tool_progress_is_one_artifact_that_its_result_closes() -> None:
    events = played(
        ToolProgress(ToolPhase.START, "lookup", "call/1", {"q": "x"}),
        ToolProgress(ToolPhase.UPDATE, "lookup", "call/1", [1, 2]),
        ToolProgress(ToolPhase.RESULT, "lookup", "call/1", "done"),
    )
    assert event_lines(events)[:3] == [
        "artifact tool-progress-call_1",
        "artifact tool-progress-call_1",
        "artifact tool-progress-call_1.",
    ]
    assert [event.artifact.name for event in artifacts(events)] == ["lookup progress"] * 3
    assert [event.artifact.parts for event in artifacts(events)] == [
        (Part(text="Started: lookup"), Part(data={"q": "x"})),
        (Part(text="Updated: lookup"), Part(data={"value": [1, 2]})),
        (Part(text="Completed: lookup"), Part(data={"value": "done"})),
    ]


def test_failed_tool_is_reported_and_does_not_fail_the_task() -> None:
    result = ToolProgress(ToolPhase.RESULT, "lookup", "1", {"status": "no"}, is_error=True)
    events = played(result, Reply.of_text("sorry"))
    assert event_text(events[0]) == "Failed: lookup"
    assert event_lines(events)[-1] == "status completed"


def test_payload_that_is_no_json_is_shown_as_text() -> None:
    payload = {"when": datetime(2026, 1, 1, tzinfo=UTC), "what": object, "bytes": b"x", "n": 2**80}
    event = artifacts(played(ToolProgress(ToolPhase.UPDATE, "lookup", "1", payload)))[0]
    assert event.artifact.parts[1].data is not None


def test_tool_reply_in_no_accepted_mode_is_left_out_and_named() -> None:
    step = ToolReply((Part.of_url("https://example.com/a.png", media_type="image/png"),))
    assert event_lines(played(step, Reply.of_text("hi"), modes=("text/plain",))) == [
        "status working",
        "artifact assistant-output-0001.",
        "status completed",
    ]


def test_note_is_a_working_status_after_the_text_before_it() -> None:
    script = transcript()
    script.apply(TextDelta("first"))
    events = script.apply(Note("looking"))
    assert event_lines(events) == ["artifact assistant-output-0001", "status working"]
    assert event_text(events[1]) == "looking"


# ---------------------------------------------------------------- pauses


@pytest.mark.parametrize(
    ("payload", "sentence"),
    [
        ({"status": "approval-pending"}, APPROVAL_NEEDED),
        ({"status": "needs_approval", "requiresApproval": {"prompt": "  May I?  "}}, "May I?"),
        ({"requiresApproval": {"type": "approval_request", "prompt": " "}}, APPROVAL_NEEDED),
        ({"requiresApproval": {"type": "approval_request", "prompt": 7}}, APPROVAL_NEEDED),
        ({"status": "needs_approval", "requiresApproval": "yes"}, APPROVAL_NEEDED),
    ],
)
def test_tool_result_that_asks_for_approval_pauses(payload: Json, sentence: str) -> None:
    script = transcript(is_task=False)
    events = events_of(
        script, TextDelta("let me"), ToolProgress(ToolPhase.RESULT, "pay", "1", payload)
    )
    assert event_lines(events)[-1] == "status input-required"
    assert event_text(events[-1]) == sentence
    assert script.is_paused
    assert events_of(script, TextDelta("more"), Failed("no")) == []
    check_closed_once(events)


@pytest.mark.parametrize(
    "event",
    [
        ToolProgress(ToolPhase.UPDATE, "pay", "1", {"status": "needs_approval"}),
        ToolProgress(ToolPhase.RESULT, "pay", "1", {"status": "needs_approval"}, is_error=True),
        ToolProgress(ToolPhase.RESULT, "pay", "1", {"status": "done"}),
        ToolProgress(ToolPhase.RESULT, "pay", "1", {"status": {"code": 3}}),
        ToolProgress(ToolPhase.RESULT, "pay", "1", {"status": ["needs_approval"]}),
        ToolProgress(ToolPhase.RESULT, "pay", "1", {"requiresApproval": {"type": "other"}}),
        ToolProgress(ToolPhase.RESULT, "pay", "1", "needs_approval"),
    ],
)
def test_no_other_tool_event_pauses(event: ToolProgress) -> None:
    script = transcript()
    events_of(script, event)
    assert not script.is_over


def test_request_for_input_pauses_with_its_prompt_and_keeps_the_token() -> None:
    script = transcript()
    events = events_of(script, TextDelta("hm"), InputRequired("  Which one? ", resume={"at": 2}))
    assert event_lines(events) == [
        "artifact assistant-output-0001",
        "artifact +assistant-output-0001.",
        "status input-required",
    ]
    assert event_text(events[-1]) == "Which one?"
    assert (script.is_paused, script.resume) == (True, {"at": 2})


# ---------------------------------------------------------------- ends


def test_last_status_has_the_last_message_with_content() -> None:
    assert event_text(played(Reply.of_text("one"), Reply.of_text("two"))[-1]) == "two"
    assert event_text(played(Reply.of_text("one"), Reply.of_text(" "))[-1]) == "one"
    assert event_text(played(LOOKUP)[-1]) == NO_REPLY


def test_failure_closes_open_artifacts_and_has_the_reason() -> None:
    script = transcript()
    events = events_of(script, TextDelta("half"), Failed("  no luck ")) + script.fail("no luck")
    assert script.failure == "no luck"
    assert event_lines(events) == [
        "artifact assistant-output-0001",
        "artifact +assistant-output-0001.",
        "status failed",
    ]
    assert event_text(events[-1]) == "no luck"


def test_failure_without_a_reason_gets_a_default_one() -> None:
    script = transcript()
    script.apply(Failed(" "))
    assert script.failure == snapshot("The agent failed without saying why.")


def test_cancel_closes_open_artifacts_and_names_the_canceler() -> None:
    script = transcript()
    events = events_of(script, TextDelta("half")) + script.cancel()
    assert event_lines(events)[-2:] == ["artifact +assistant-output-0001.", "status canceled"]
    assert event_text(events[-1]) == CANCELED


def test_run_with_a_successor_publishes_its_answer_and_stays_working() -> None:
    script = transcript()
    events_of(script, Reply.of_text("one"))
    assert [event_text(event) for event in script.continue_working()] == ["one"]
    script = transcript()
    events_of(script, TextDelta("half"), Failed("no"))
    assert event_lines(script.continue_working()) == [
        "artifact +assistant-output-0001.",
        "status working",
    ]


def test_facts_about_the_run_are_on_its_last_status_only() -> None:
    events = played(Report({"a": 1}), Note("x"), Report({"b": 2}), Reply.of_text("hi"))
    statuses = [event for event in events if isinstance(event, StatusUpdate)]
    assert [status.metadata for status in statuses] == [None, {"a": 1, "b": 2}]


# ---------------------------------------------------------------- output modes


@pytest.mark.parametrize(
    ("modes", "is_taken"),
    [
        (("text/plain",), True),
        ((" TEXT/Plain ",), True),
        (("text/*",), True),
        (("*/*",), True),
        (("text",), True),
        (("application/json",), False),
        (("text/html",), False),
    ],
)
def test_text_is_sent_only_to_callers_that_accept_plain_text(
    modes: tuple[str, ...], is_taken: bool
) -> None:
    for step in (Reply.of_text("hi"), TextDelta("hi"), TextPreview("hi"), Block("hi")):
        script = transcript(is_task=False, modes=modes)
        assert events_of(script, step) == []
        assert (script.answer() is not None) == is_taken
        assert script.is_unrepresentable != is_taken


def test_media_are_sent_when_their_type_is_accepted() -> None:
    picture = Part.of_url("https://example.com/a.png", media_type="image/png; q=1")
    sound = Part.of_url("https://example.com/a.mp3", media_type="audio/mpeg")
    unknown = Part.of_url("https://example.com/a")
    script = transcript(is_task=False, modes=("image/*", "application/octet-stream"))
    events_of(script, Reply((Part.of_text("see"), picture, sound, unknown)))
    assert script.answer() == (picture, unknown)


def test_files_that_a_caller_does_not_accept_are_named_in_a_status() -> None:
    file = Part.of_bytes(b"%PDF", media_type="application/pdf", filename="report.pdf")
    unnamed = Part.of_url("https://example.com/a")
    events = played(Reply((Part.of_text("see"), file, unnamed)), modes=("text/plain",))
    told = [event_text(one) for one in events if isinstance(one, StatusUpdate)]
    [line] = [one for one in told if "left out" in one]
    assert "report.pdf (application/pdf), a file (application/octet-stream) were left out" in line
    assert "defaultOutputModes" in line
    accepted = played(Reply((file,)), modes=("application/*",))
    assert not any("left out" in event_text(one) for one in accepted)


def test_structured_parts_are_sent_to_callers_that_accept_json() -> None:
    reply = Reply((Part.of_data({"a": 1}),))
    script = transcript(is_task=False, modes=("application/json",))
    events_of(script, reply)
    assert script.answer() == (Part(data={"a": 1}),)
    script = transcript(is_task=False, modes=("text/plain",))
    events_of(script, reply)
    assert script.is_unrepresentable


def test_one_message_that_can_be_sent_is_enough() -> None:
    script = transcript(modes=("text/plain",))
    events_of(script, Reply((Part.of_data({}),)), Reply.of_text("hi"))
    assert not script.is_unrepresentable


# ---------------------------------------------------------------- texts no wire can carry


def test_lone_surrogates_are_replaced() -> None:
    events = played(TextDelta("a\ud83d"), TextDelta("\ude00b"), Note("\udc00"))
    text = "".join(event_text(event) for event in events)
    assert text.encode("utf-8")
    assert "\ufffd" in text


def test_surrogate_pair_becomes_one_character() -> None:
    assert event_text(played(TextDelta("\ud83d\ude00"))[0]) == "\U0001f600"


# ---------------------------------------------------------------- after an interrupted attempt


def pieces(text: str, cuts: list[int]) -> list[str]:
    """The text in pieces, cut at these places."""
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[start:end] for start, end in pairwise(places)]


def steps_of(messages: list[str], cuts: list[int], *, is_whole: bool) -> list[AgentEvent]:
    """A run that says these messages, with a tool call after each; streamed, or each at once."""
    steps: list[AgentEvent] = []
    for number, text in enumerate(messages):
        if is_whole:
            steps.append(Reply.of_text(text))
        else:
            steps += [*map(TextDelta, pieces(text, cuts)), MessageEnd()]
        steps += [ToolProgress(phase, "look", f"c{number}") for phase in ToolPhase]
    return steps


words = st.text(st.sampled_from("ab "), min_size=1, max_size=12).filter(str.strip)
cuts = st.lists(st.integers(0, 50), max_size=4)


@given(st.lists(words, min_size=1, max_size=3), cuts, cuts, st.integers(0, 60), st.booleans())
def test_an_attempt_that_repeats_an_interrupted_one_publishes_only_what_is_missing(
    messages: list[str], first: list[int], second: list[int], killed: int, is_whole: bool
) -> None:
    steps = steps_of(messages, first, is_whole=False)
    before = events_of(transcript(), *steps[: killed % (len(steps) + 1)])
    script = transcript()
    script.published = published_by(before)
    after = [*events_of(script, *steps_of(messages, second, is_whole=is_whole)), *script.complete()]
    seen: dict[str, str] = {}
    for event in artifacts(before):
        if event.artifact.artifact_id.startswith("assistant"):
            seen[event.artifact.artifact_id] = seen.get(event.artifact.artifact_id, "") + text_of(
                event.artifact
            )
    for event in artifacts(after):
        artifact_id = event.artifact.artifact_id
        if artifact_id.startswith("assistant"):
            assert event.append is (artifact_id in seen)  # nothing seen is replaced
            seen[artifact_id] = seen.get(artifact_id, "") + text_of(event.artifact)
    assert list(seen.values()) == messages
    check_closed_once([*before, *after])
    phases = [
        (event.artifact.artifact_id, (event.artifact.metadata or {})["phase"])
        for event in artifacts([*before, *after])
        if event.artifact.artifact_id.startswith("tool-progress-")
        and (event.artifact.metadata or {})["phase"] != "update"
    ]
    assert len(phases) == len(set(phases)) == 2 * len(messages)


@given(words, words, cuts, cuts, st.booleans())
def test_a_text_that_differs_from_the_interrupted_attempt_replaces_it(
    old: str, new: str, first: list[int], second: list[int], is_closed: bool
) -> None:
    said = [*map(TextDelta, pieces(old, first)), *([MessageEnd()] if is_closed else [])]
    before = events_of(transcript(), *said)
    script = transcript()
    script.published = published_by(before)
    steps = [*map(TextDelta, pieces(new, second)), MessageEnd()]
    after = [*events_of(script, *steps), *script.complete()]
    shown = ""
    for event in artifacts([*before, *after]):
        shown = (shown if event.append else "") + text_of(event.artifact)
    assert shown == new
    is_replaced = any(not event.append for event in artifacts(after))
    assert is_replaced is (new != old if is_closed else not new.startswith(old))


def test_a_file_that_is_left_out_is_named_in_words_that_any_log_can_hold() -> None:
    part = Part.of_bytes(b"x", media_type="image/\ud83dpng", filename="../a\ud800\nb.png")
    text = output_modes(("text/plain",)).omitted_text([part])
    assert text.startswith("a__b.png (image/")
    assert text.encode("utf-8")
