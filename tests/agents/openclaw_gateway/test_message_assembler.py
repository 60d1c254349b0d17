"""Each message of a run is emitted once, from live chunks or from the history."""

import json

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from openclaw_a2a.agents.openclaw_gateway.event_translator import FinishedMessage, MessageAssembler
from openclaw_a2a.agents.openclaw_gateway.protocol import TextChunk


def chunk(text: str, delta: str, *, item: str = "u:1", replace: bool = False) -> TextChunk:
    return TextChunk(item, delta, Raw(json.dumps(text).encode()), replace)


@given(st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=8), st.data())
def test_a_message_joined_in_the_middle_and_with_gaps_is_emitted_completely(
    words: list[str], data: st.DataObject
) -> None:
    """The text of the next chunk contains the missed ones."""
    assembler, deltas = MessageAssembler(), []
    for number, word in enumerate(words):
        if data.draw(st.booleans()) and number < len(words) - 1:
            assembler.mark_out_of_sync()
            continue
        delta = assembler.add_chunk(chunk("".join(words[: number + 1]), word))
        deltas.append(delta.text if delta else "")
    assert "".join(deltas) == "".join(words)
    message = assembler.end()
    assert message == FinishedMessage("".join(words), is_streamed=True)


def test_the_next_item_is_another_message() -> None:
    assembler = MessageAssembler()
    assembler.add_chunk(chunk("one", "one"))
    other = chunk("two", "two", item="u:2")
    assert assembler.starts_new_message(other)
    assert assembler.end() == FinishedMessage("one", is_streamed=True)
    assert assembler.add_chunk(other) is not None


def test_a_message_that_starts_over_is_emitted_as_a_whole_at_its_end() -> None:
    assembler = MessageAssembler()
    assembler.add_chunk(chunk("draft", "draft"))
    assert assembler.add_chunk(chunk("", "", replace=True)) is None
    assert assembler.add_chunk(chunk("better", "better")) is None
    assert assembler.end() == FinishedMessage("better", is_streamed=False)


def test_a_message_that_returns_to_the_emitted_text_continues_from_there() -> None:
    assembler = MessageAssembler()
    assembler.add_chunk(chunk("draft", "draft"))
    assembler.add_chunk(chunk("", "", replace=True))
    delta = assembler.add_chunk(chunk("draft two", "draft two", replace=True))
    assert delta is not None
    assert delta.text == " two"


def test_the_final_message_is_not_emitted_again() -> None:
    assembler = MessageAssembler()
    assembler.add_chunk(chunk("all of it", "all of it"))
    assert assembler.finish("all of it\n") == FinishedMessage("all of it", is_streamed=True)
    assert assembler.finish("all of it") is None


def test_a_final_message_that_was_not_streamed_is_emitted() -> None:
    assert MessageAssembler().finish("whole") == FinishedMessage("whole", is_streamed=False)


def test_a_different_final_text_replaces_the_streamed_one() -> None:
    assembler = MessageAssembler()
    assembler.add_chunk(chunk("raw words", "raw words"))
    assert assembler.finish("clean words") == FinishedMessage("clean words", is_streamed=False)


def test_files_are_added_to_a_message_that_was_emitted_before() -> None:
    assembler = MessageAssembler()
    assembler.add_chunk(chunk("look", "look"))
    assembler.end()
    assert assembler.finish("look", ("a.png",)) == FinishedMessage(
        "", is_streamed=False, references=("a.png",)
    )


def test_late_chunks_of_a_message_from_the_history_are_ignored() -> None:
    assembler = MessageAssembler()
    assert assembler.finish("The whole message.") is not None
    assert assembler.add_chunk(chunk("The whole", "The whole")) is None
    assert assembler.add_chunk(chunk("The whole message.", " message.")) is None
    assert not assembler.is_open


def test_a_message_with_the_same_beginning_as_an_earlier_one_is_emitted_completely() -> None:
    assembler = MessageAssembler()
    assembler.finish("The end.")
    assert assembler.add_chunk(chunk("The", "The", item="u:2")) is None
    delta = assembler.add_chunk(chunk("The beginning", " beginning", item="u:2"))
    assert delta is not None
    assert delta.text == "The beginning"
