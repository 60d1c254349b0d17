"""Any stream of an adapter is one artifact that is closed once, nothing lost or repeated."""

import asyncio
from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from openclaw_a2a import AgentAdapter, CancelledByAdapter, Part
from openclaw_a2a.agents.adapter import standalone_turn
from openclaw_a2a.engine.transcript.assistant_message import OutputModes, replace_lone_surrogates
from openclaw_a2a.engine.transcript.single_artifact import FAILED, SingleArtifactTranscript
from openclaw_a2a.engine.transcript.transcript import NO_ARTIFACTS, EventContext
from openclaw_a2a.model.message import Part as OwnPart
from openclaw_a2a.model.task import ArtifactUpdate, StatusUpdate, TaskState

texts = st.text(st.characters(codec=None), max_size=5)
parts = st.one_of(
    texts.map(Part.of_text),
    st.just(Part.of_url("https://example.com/a.png", media_type="image/png")),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2).map(Part.of_data),
)
errors = st.sampled_from([RuntimeError("broken"), CancelledByAdapter("gone")])


class Telling(AgentAdapter):
    def __init__(self, pieces, end):
        self.pieces, self.end = pieces, end

    async def invoke(self, user_input, context_id=None, **kwargs):
        return self.pieces

    async def stream(self, user_input, context_id=None, **kwargs):
        for piece in self.pieces:
            yield piece
        if self.end is not None:
            raise self.end


async def shown(adapter):
    """The events of a run, as the engine makes them."""
    turn = standalone_turn("hi", "c", None)
    stamp = EventContext(turn.task_id, turn.context_id, lambda: datetime.now(UTC), lambda: "id")
    transcript = SingleArtifactTranscript(
        stamp, modes=OutputModes(("*/*",)), is_task=True, counters=NO_ARTIFACTS
    )
    events = []
    try:
        async for event in adapter.run(turn):
            events += transcript.apply(event)
    except RuntimeError as error:
        return events + transcript.fail(str(error))
    return events + transcript.complete()


def text_of(items):
    """What of the pieces can be read, as the wire has it."""
    texts = [item if isinstance(item, str) else item.text or "" for item in items]
    return "".join(replace_lone_surrogates(text) for text in texts)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(texts, parts), max_size=12), st.none() | errors)
def test_any_stream_is_one_artifact_that_is_closed_once(pieces, end):
    *updates, last = asyncio.run(shown(Telling(pieces, end)))
    assert isinstance(last, StatusUpdate)
    assert all(isinstance(update, ArtifactUpdate) for update in updates)
    kept = [piece for piece in pieces if piece != "" and piece != OwnPart(text="")]
    assert len(updates) == len(kept)
    assert len({update.artifact.artifact_id for update in updates}) <= 1
    assert [update.append for update in updates] == [index > 0 for index in range(len(updates))]
    assert [update.last_chunk for update in updates] == [
        index == len(updates) - 1 for index in range(len(updates))
    ]
    content = [part for update in updates for part in update.artifact.parts]
    assert text_of(content) == text_of(pieces)
    assert [part for part in content if part.text is None] == [
        piece for piece in pieces if not isinstance(piece, str) and piece.text is None
    ]
    words = last.status.message.parts[0].text
    if isinstance(end, RuntimeError):
        assert (last.status.state, words) == (TaskState.FAILED, FAILED + "broken")
    elif end is not None:
        assert last.status.state is TaskState.CANCELED
    else:
        assert last.status.state is TaskState.COMPLETED
        assert words == text_of(pieces) or not text_of(pieces).strip()


@settings(max_examples=100, deadline=None)
@given(st.lists(parts, max_size=6))
def test_any_whole_answer_is_one_closed_artifact(answer):
    class Whole(Telling):
        stream = AgentAdapter.stream

    *updates, last = asyncio.run(shown(Whole(answer, None)))
    assert last.status.state is TaskState.COMPLETED
    kept = [part for part in answer if part.text != ""]
    assert len(updates) == (1 if kept else 0)
    for update in updates:
        assert (update.append, update.last_chunk) == (False, True)
        assert len(update.artifact.parts) == len(kept)
