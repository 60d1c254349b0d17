"""Reads server-sent events from the chunks of a response."""

import msgspec

from openclaw_a2a.model.errors import ParseFailed

MAX_EVENT_BYTES = 16 * 1024 * 1024


class SseEvent(msgspec.Struct, frozen=True):
    """One event. `id` is the last id of the stream, which may come from an earlier event."""

    data: str
    id: str | None = None
    event: str = "message"


class SseReader:
    """Splits a stream into events. Feed it chunks as they arrive, cut anywhere."""

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._limit = max_event_bytes
        self._line = bytearray()
        self._is_first_line = True
        self._ends_with_return = False
        self._size = 0
        self._lines: list[str] = []
        self._event = ""
        self._id: str | None = None

    @property
    def last_event_id(self) -> str | None:
        """Where to resume: the value for `Last-Event-ID`."""
        return self._id

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that end in this chunk.

        Raises:
            ParseFailed: an event is larger than the limit, or no UTF-8.
        """
        if not chunk:
            return []
        ends_with_return = chunk.endswith(b"\r")
        if self._ends_with_return and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._ends_with_return = ends_with_return
        *complete, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        events: list[SseEvent] = []
        for ending in complete:
            self._extend_line(ending)
            line = bytes(self._line)
            self._line.clear()
            if event := self._read_line(self._decode(line)):
                events.append(event)
        self._extend_line(rest)
        return events

    def _extend_line(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            raise ParseFailed(
                f"The stream sent an event of more than {self._limit} bytes. "
                "Raise the limit or ask the sender for smaller events."
            )
        self._line += piece

    def _decode(self, line: bytes) -> str:
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError:
            raise ParseFailed("The stream is not UTF-8. Ask its sender for UTF-8.") from None
        if self._is_first_line:
            self._is_first_line = False
            text = text.removeprefix("\ufeff")
        return text

    def _read_line(self, line: str) -> SseEvent | None:
        if not line:
            return self._end_event()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._lines.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value
        if not name:
            self._size -= len(line.encode())
        return None

    def _end_event(self) -> SseEvent | None:
        lines, name = self._lines, self._event or "message"
        self._lines, self._event, self._size = [], "", 0
        return SseEvent("\n".join(lines), self._id, name) if lines else None
