"""Server-sent events: the frames of the streams that the gateway serves."""


def frame(data: bytes, *, sequence: int | None = None, event: bytes | None = None) -> bytes:
    """One event. The data must be one line, as our JSON always is."""
    name = b"event: %b\n" % event if event is not None else b""
    if sequence is None:
        return b"%bdata: %b\n\n" % (name, data)
    return b"id: %d\n%bdata: %b\n\n" % (sequence, name, data)


def comment(text: str = "") -> bytes:
    """A line that readers ignore; it keeps an idle connection open."""
    return b": " + " ".join(text.splitlines()).encode() + b"\n\n"
