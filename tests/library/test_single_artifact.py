"""The single-artifact transcript handles every agent event."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.event_lines import check_closed_once, published_by

from openclaw_a2a.engine.transcript.assistant_message import OutputModes
from openclaw_a2a.engine.transcript.single_artifact import FAILED, NO_TEXT, SingleArtifactTranscript
from openclaw_a2a.engine.transcript.transcript import (
    NO_ARTIFACTS,
    NO_REPLY,
    STOPPED,
    ArtifactCounters,
    EventContext,
    Transcript,
)
from openclaw_a2a.model.agent_event import (
    Block,
    Failed,
    InputRequired,
    MessageEnd,
    Note,
    PartDelta,
    Reply,
    Report,
    Started,
    Stopped,
    TextDelta,
    TextPreview,
    ToolPhase,
    ToolProgress,
    ToolReply,
)
from openclaw_a2a.model.ids import ContextId, TaskId
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.task import ArtifactUpdate, TaskState

PICTURE = Part.of_url("https://example.com/a.png", media_type="image/png")


def begin(kind=SingleArtifactTranscript, modes=("*/*",), *, is_task=True, counters=NO_ARTIFACTS):
    stamp = EventContext(
        TaskId("t"), ContextId("c"), lambda: datetime(2026, 1, 1, tzinfo=UTC), lambda: "i"
    )
    return kind(stamp, modes=OutputModes(modes), is_task=is_task, counters=counters)


def play(*events, **options):
    """All that is shown of a run that ends after these events."""
    transcript = begin(**options)
    shown = [event for one in events for event in transcript.apply(one)]
    if transcript.failure is not None:
        return shown + transcript.fail(transcript.failure)
    return shown if transcript.is_paused else shown + transcript.complete()


def pieces(shown):
    return [
        part.text if part.text is not None else "*"
        for event in shown
        if isinstance(event, ArtifactUpdate)
        for part in event.artifact.parts
    ]


def words(shown):
    status = shown[-1].status
    return status.state, status.message.parts[0].text


@pytest.mark.parametrize(
    ("events", "texts"),
    [
        ([TextPreview("He"), TextPreview("Hello"), TextPreview("Hello")], ["He", "llo"]),
        ([TextDelta("He"), Reply.of_text("Hello")], ["He", "llo"]),
        ([TextDelta("He"), Reply.of_text("Other")], ["He"]),
        ([TextDelta("He"), Reply((Part.of_text("He"), PICTURE))], ["He", "*"]),
        ([TextDelta("a"), MessageEnd(), TextDelta("b")], ["a", "\n\nb"]),
        ([Reply.of_text("a"), Reply.of_text("b")], ["a", "b"]),
        ([Block("a"), Block("b")], ["a"]),
        ([TextDelta("a"), Block("a")], ["a"]),
        ([ToolReply((PICTURE, Part.of_text("seen")))], ["*", "seen"]),
        ([PartDelta(Part(text="a", metadata={"k": 1})), PartDelta(PICTURE)], ["a", "*"]),
        ([ToolProgress(ToolPhase.START, "search", "1"), TextDelta("a")], ["a"]),
    ],
)
def test_every_content_event_goes_into_the_one_artifact(events, texts):
    shown = play(*events)
    assert pieces(shown) == texts
    assert shown[-1].status.state is TaskState.COMPLETED
    assert len({one.artifact.artifact_id for one in shown[:-1]}) == 1


def test_final_status_has_the_text_of_all_messages():
    assert words(play(Reply.of_text("a"), Reply.of_text("b"))) == (TaskState.COMPLETED, "a\n\nb")
    assert words(play(PartDelta(PICTURE)))[1] == NO_TEXT
    assert words(play(Started()))[1] == NO_REPLY


def test_note_is_a_status_and_report_is_metadata_of_the_last_one():
    shown = play(Note("thinking"), Report({"usage": 7}), TextDelta("a"))
    assert (shown[0].status.state, shown[0].status.message.text) == (TaskState.WORKING, "thinking")
    assert shown[-1].metadata == {"usage": 7}


def test_question_and_approval_pause_the_task():
    asked = play(TextDelta("a"), InputRequired("which?", {"k": 1}))
    assert pieces(asked) == ["a"]
    assert words(asked) == (TaskState.INPUT_REQUIRED, "which?")
    pending = {"status": "approval-pending"}
    waiting = play(ToolProgress(ToolPhase.RESULT, "exec", "1", pending))
    assert waiting[-1].status.state is TaskState.INPUT_REQUIRED


def test_failure_has_the_prefix():
    assert words(play(TextDelta("a"), Failed("no"))) == (TaskState.FAILED, f"{FAILED}no")


def test_run_is_never_a_direct_answer():
    transcript = begin(is_task=False)
    assert transcript.apply(Started()) == []
    assert transcript.is_promoted
    assert transcript.answer() is None


def test_next_run_on_a_task_has_an_artifact_of_its_own():
    (update, _) = play(TextDelta("a"), counters=ArtifactCounters(outputs=2))
    assert update.artifact.artifact_id == "assistant-output-0003"
    assert update.artifact.name == "response"


def test_content_in_no_accepted_mode_differs_from_no_content():
    transcript = begin(modes=("image/png",))
    assert transcript.apply(TextDelta("a")) == []
    assert transcript.is_unrepresentable
    assert not begin().is_unrepresentable


@pytest.mark.parametrize("kind", [Transcript, SingleArtifactTranscript])
def test_stopped_work_ends_as_canceled(kind):
    transcript = begin(kind, is_task=False)
    transcript.apply(Stopped())
    assert transcript.is_promoted and transcript.is_over and not transcript.is_paused
    assert words(transcript.complete()) == (TaskState.CANCELED, STOPPED)


def test_part_is_a_message_of_its_own_in_the_default_transcript():
    shown = play(TextDelta("a"), PartDelta(PICTURE), TextDelta("b"), kind=Transcript)
    by_id = {}
    for update in shown[:-1]:
        by_id.setdefault(update.artifact.artifact_id, []).extend(update.artifact.parts)
    assert [[part.text or "*" for part in parts] for parts in by_id.values()] == [
        ["a"],
        ["*"],
        ["b"],
    ]


# ---------------------------------------------------------------- after an interrupted attempt


def test_an_attempt_that_repeats_an_interrupted_one_appends_what_is_missing():
    interrupted = begin()
    before = interrupted.apply(TextDelta("Hello ")) + interrupted.apply(TextDelta("w"))
    assert pieces(before) == ["Hello "]
    script = begin()
    script.published = published_by(before)
    after = script.apply(TextDelta("Hello world")) + script.complete()
    assert [(one.append, pieces([one])) for one in after[:-1]] == [(True, ["world"])]
    assert words(after) == (TaskState.COMPLETED, "Hello world")


def test_an_attempt_that_says_nothing_new_repeats_no_content():
    before = play(TextDelta("Hello"), PartDelta(PICTURE))[:-1]
    script = begin()
    script.published = published_by(before)
    after = script.apply(TextDelta("Hello")) + script.apply(PartDelta(PICTURE)) + script.complete()
    assert [words([one]) for one in after] == [(TaskState.COMPLETED, "Hello")]


texts = st.text(st.sampled_from("ab"), min_size=1, max_size=4).map(TextDelta)
files = st.sampled_from("xy").map(
    lambda name: PartDelta(Part.of_url(f"https://example.com/{name}"))
)
runs = st.lists(texts | files, min_size=1, max_size=5)


def artifact_content(updates):
    """The content of the artifact after these events: its text, and its other parts."""
    parts = []
    for update in updates:
        parts = [*(parts if update.append else ()), *update.artifact.parts]
    return (
        "".join(part.text or "" for part in parts),
        [part.url for part in parts if part.text is None],
    )


@given(runs, st.none() | runs, st.integers(0, 8))
def test_a_second_attempt_replaces_the_artifact_only_where_it_differs(first, other, killed):
    """`other` None: the second attempt does the same as the first."""
    before = [one for one in play(*first)[:killed] if isinstance(one, ArtifactUpdate)]
    second = first if other is None else other
    script = begin()
    script.published = published_by(before)
    after = [event for step in second for event in script.apply(step)] + script.complete()
    updates = [one for one in after if isinstance(one, ArtifactUpdate)]
    wanted = artifact_content(play(*second)[:-1])
    assert artifact_content([*before, *updates]) == wanted
    if other is None and before:
        assert all(one.append for one in updates)
        check_closed_once([*before, *updates])
