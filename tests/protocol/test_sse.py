"""Server-sent events: the frames that the gateway writes."""

from openclaw_a2a.net.sse_reader import SseReader
from openclaw_a2a.protocol.sse import comment, frame


def test_frames():
    assert frame(b"{}") == b"data: {}\n\n"
    assert frame(b"{}", sequence=0) == b"id: 0\ndata: {}\n\n"
    assert frame(b"{}", sequence=7, event=b"error") == b"id: 7\nevent: error\ndata: {}\n\n"
    assert frame(b"{}", event=b"error") == b"event: error\ndata: {}\n\n"


def test_a_comment_is_ignored_by_readers():
    assert comment("still here\nand more") == b": still here and more\n\n"
    assert SseReader().feed(comment("x") + comment()) == []
