"""Server-sent events: frames as the standard has them, and a reader that takes any pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.model.errors import ParseFailed
from openclaw_a2a.protocol.sse import SseEvent, SseReader, comment, frame


def test_frames():
    assert frame(b"{}") == b"data: {}\n\n"
    assert frame(b"{}", sequence=0) == b"id: 0\ndata: {}\n\n"
    assert frame(b"{}", sequence=7, event=b"error") == b"id: 7\nevent: error\ndata: {}\n\n"
    assert frame(b"{}", event=b"error") == b"event: error\ndata: {}\n\n"


def test_a_comment_is_ignored_by_readers():
    assert comment("still here\nand more") == b": still here and more\n\n"
    assert SseReader().feed(comment("x") + comment()) == []


lines = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=10)


@given(
    st.lists(st.tuples(lines, st.integers(0, 9)), max_size=5),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.data(),
)
def test_events_are_read_whatever_the_pieces_and_line_ends(sent, line_end, data):
    stream = b"".join(
        frame(text.encode(), sequence=number).replace(b"\n", line_end.encode())
        for text, number in sent
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    reader = SseReader()
    events = [event for piece in pieces for event in reader.feed(piece)]
    assert events == [SseEvent(text, str(number)) for text, number in sent]
    assert reader.last_event_id == (str(sent[-1][1]) if sent else None)


def test_the_standard_s_finer_points():
    reader = SseReader()
    stream = (
        b"\xef\xbb\xbf: hello\ndata: a\ndata:b\ndata\n\n"
        b"event: error\nid: 4\ndata: x\nretry: 5\nunknown: y\n\n"
        b"event: nothing\n\nid: a\0b\ndata: z\n\n"
    )
    assert reader.feed(stream) == [
        SseEvent("a\nb\n"),
        SseEvent("x", "4", "error"),
        SseEvent("z", "4"),
    ]


def test_an_endless_event_is_refused():
    reader = SseReader(max_event_bytes=100)
    reader.feed(b"data: " + b"x" * 50 + b"\n")
    with pytest.raises(ParseFailed, match="more than 100 bytes"):
        reader.feed(b"data: " + b"x" * 50)


def test_many_comments_and_events_fit_a_small_bound():
    reader = SseReader(max_event_bytes=100)
    for _ in range(100):
        assert reader.feed(b": ping ping ping\n") == []
        assert len(reader.feed(b"data: x\n\n")) == 1
    assert all(reader.feed(": é ping\n".encode()) == [] for _ in range(100))


def test_a_stream_that_is_no_utf_8_is_refused():
    with pytest.raises(ParseFailed, match="UTF-8"):
        SseReader().feed(b"data: \xff\n\n")
