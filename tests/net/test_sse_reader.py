"""Server-sent events are read from chunks that may be cut anywhere."""

from itertools import pairwise

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


_LINES = [b"", b"", b"data: x", b"data", b"id: 1", b"event: e", b": c", "\ufeffdata: é".encode()]
_RARE = [b"id: \0", b"?", b"data: \xff", b"y" * 99]
_STREAMS = st.lists(st.sampled_from([*_LINES * 8, *_RARE]), max_size=14)
_ENDINGS = st.lists(st.sampled_from([b"\n", b"\r", b"\r\n"]), min_size=14, max_size=14)


def read_stream(chunks: list[bytes]) -> list[SseEvent] | None:
    """The events of a stream; None when it is refused."""
    reader = SseReader(max_event_bytes=60)
    try:
        return [event for chunk in chunks for event in reader.feed(chunk)]
    except ParseFailed:
        return None


@given(_STREAMS, _ENDINGS, st.lists(st.integers(0, 90), max_size=20))
def test_any_bytes_are_the_same_events_however_they_are_cut_or_are_refused(
    lines: list[bytes], endings: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(line + end for line, end in zip(lines, endings, strict=False))
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    chunks = [stream[a:b] for a, b in pairwise(places)]
    whole = read_stream([stream])
    assert read_stream(chunks) == whole
    assert read_stream([stream[place : place + 1] for place in range(len(stream))]) == whole


def test_a_line_end_in_two_chunks_takes_no_empty_line_with_it():
    reader = SseReader()
    assert [reader.feed(chunk) for chunk in (b"data: x\r", b"\n", b"\n")] == [
        [],
        [],
        [SseEvent("x")],
    ]
