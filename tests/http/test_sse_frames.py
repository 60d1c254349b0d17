"""Server-sent events: the frames that the gateway writes."""

from openclaw_a2a.http.sse_stream import encode_comment, encode_frame
from openclaw_a2a.net.sse_reader import SseReader


def test_frames():
    assert encode_frame(b"{}") == b"data: {}\n\n"
    assert encode_frame(b"{}", sequence=0) == b"id: 0\ndata: {}\n\n"
    assert encode_frame(b"{}", sequence=7, event=b"error") == b"id: 7\nevent: error\ndata: {}\n\n"
    assert encode_frame(b"{}", event=b"error") == b"event: error\ndata: {}\n\n"


def test_a_comment_is_ignored_by_readers():
    assert encode_comment("still here\nand more") == b": still here and more\n\n"
    assert SseReader().feed(encode_comment("x") + encode_comment()) == []
