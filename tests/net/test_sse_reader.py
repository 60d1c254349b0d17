"""Server-sent events are read from chunks that may be cut anywhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.http.sse_stream import encode_frame
from openclaw_a2a.model.errors import ParseFailed
from openclaw_a2a.net.sse_reader import SseEvent, SseReader

lines = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=10)


@given(
    st.lists(st.tuples(lines, st.integers(0, 9)), max_size=5),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.data(),
)
def test_events_are_read_however_the_stream_is_cut(sent, line_end, data):
    stream = b"".join(
        encode_frame(text.encode(), sequence=number).replace(b"\n", line_end.encode())
        for text, number in sent
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    reader = SseReader()
    events = [event for piece in pieces for event in reader.feed(piece)]
    assert events == [SseEvent(text, str(number)) for text, number in sent]
    assert reader.last_event_id == (str(sent[-1][1]) if sent else None)


def test_fields_are_read_as_the_standard_says():
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


def test_an_event_over_the_limit_is_refused():
    reader = SseReader(max_event_bytes=100)
    reader.feed(b"data: " + b"x" * 50 + b"\n")
    with pytest.raises(ParseFailed, match="more than 100 bytes"):
        reader.feed(b"data: " + b"x" * 50)


def test_the_limit_is_per_event():
    reader = SseReader(max_event_bytes=100)
    for _ in range(100):
        assert reader.feed(b": ping ping ping\n") == []
        assert len(reader.feed(b"data: x\n\n")) == 1
    assert all(reader.feed(": é ping\n".encode()) == [] for _ in range(100))


def test_a_stream_that_is_not_utf_8_is_refused():
    with pytest.raises(ParseFailed, match="UTF-8"):
        SseReader().feed(b"data: \xff\n\n")
