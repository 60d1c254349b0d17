"""The text of a log file: one JSON object per line, as other programs read and write it too.

A change of several lines is there as a whole or not at all. Every line of it but the last begins
with a tab, which means nothing to a reader of JSON and tells after a crash that more was to come.
"""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from openclaw_a2a.model.errors import CorruptRecord
from openclaw_a2a.ports import LogLine
from openclaw_a2a.store.log_rows import LogChange

PREFIX, SUFFIX = "a2a_", ".jsonl"
LONGEST_NAME = 255
"""How many bytes the name of a file may have."""

_MORE = b"\t"
_HIGHEST = 2**53
_CLOSING = "archive"


class LogText(msgspec.Struct, frozen=True):
    """What a log file holds. Bytes beyond `size` are of a change that was never finished."""

    lines: tuple[LogLine, ...]
    is_closed: bool
    broken: tuple[str, ...]
    size: int
    ends_line: bool

    @property
    def sequence(self) -> int:
        """The number of the last line, 0 when there is none."""
        return self.lines[-1].sequence if self.lines else 0


class _Said(msgspec.Struct, frozen=True, gc=False):
    """What matters here of a line."""

    seq: Any = None
    op: Any = None


_decoder = msgspec.json.Decoder(_Said)


def file_name(log_id: str) -> str:
    """The name of a log's file.

    A `-` becomes `_`. What is neither a letter or digit of ASCII nor one of `-.~` is written as
    `%` and two digits for each of its bytes, so no two ids have one name.
    """
    quoted = quote(log_id, safe="", errors="surrogatepass")
    return f"{PREFIX}{quoted.replace('_', '%5F').replace('-', '_')}{SUFFIX}"


def log_id_of(name: str) -> str | None:
    """The log that a file is named for; None when it is not the name of a log's file."""
    stem = name.removeprefix(PREFIX).removesuffix(SUFFIX)
    try:
        log_id = unquote(stem.replace("_", "-"), errors="surrogatepass")
    except UnicodeDecodeError:
        return None
    return log_id if file_name(log_id) == name else None


def encode_change(change: LogChange) -> bytes:
    """The lines as the file holds them.

    Raises:
        CorruptRecord: one of them could not be read again.
    """
    if len(file_name(change.log_id)) > LONGEST_NAME:
        raise CorruptRecord(
            f"the {change.kind} id {change.log_id[:40]!r}.. is too long for the name of a file; "
            "use a shorter one, or a store of another kind"
        )
    bodies = [_checked(line, change) for line in change.lines()]
    return b"".join(_MORE + body + b"\n" for body in bodies[:-1]) + bodies[-1] + b"\n"


def parse_log(content: bytes, name: str) -> LogText:
    """What the file of this name holds. What cannot be read is told and left out."""
    pieces = content.split(b"\n")
    count = _count_whole(pieces)
    unfinished = b"\n".join(pieces[count:])
    reading = _Reading(name, is_text=_is_text(content))
    for number, piece in enumerate(pieces[:count], start=1):
        if body := piece.strip():
            reading.take(number, body)
    if unfinished:
        reading.broken.append(
            f"{name} ends, from line {count + 1} on, in a change that was not written to its end; "
            "it was never confirmed to anybody and is left out"
        )
    size = len(content) - len(unfinished)
    return LogText(
        tuple(reading.lines),
        reading.is_closed,
        tuple(reading.broken),
        size,
        ends_line=size == 0 or content[size - 1 : size] == b"\n",
    )


def ends_closed(tail: bytes) -> bool:
    """True when the end of a file surely is a line that closes it."""
    rest, end, after = tail.rpartition(b"\n")
    _, before, body = rest.rpartition(b"\n")
    if not end or not before or after:
        return False
    try:
        return not body.startswith(_MORE) and _decode(body).op == _CLOSING
    except (ValueError, RecursionError):
        return False


class _Reading:
    """Goes through the lines of a file and numbers them."""

    def __init__(self, name: str, *, is_text: bool) -> None:
        self.lines: list[LogLine] = []
        self.is_closed = False
        self.broken: list[str] = []
        self._name = name
        self._is_text = is_text
        self._last = 0
        self._place = 0
        self._is_counting = False

    def take(self, number: int, body: bytes) -> None:
        """Read the line that is this far down in the file."""
        self._place += 1
        try:
            said = _decode(body, is_text=self._is_text)
        except (ValueError, RecursionError) as error:
            self.broken.append(
                f"line {number} of {self._name} cannot be read and is left out: {error}; "
                "repair the line, or remove it"
            )
            return
        self._place = self._last = self._number(number, said.seq)
        self.is_closed = said.op == _CLOSING
        self.lines.append(LogLine(self._last, body))

    def _number(self, number: int, seq: object) -> int:
        if type(seq) is not int:
            return self._place
        if self._last < seq <= _HIGHEST:
            return seq
        if not self._is_counting:
            self._is_counting = True
            self.broken.append(
                f"line {number} of {self._name} has the number {seq} after {self._last}; "
                "where numbers do not rise, the lines are counted"
            )
        return self._place


def _count_whole(pieces: Sequence[bytes]) -> int:
    """How many of the pieces between line ends are not of an unfinished change."""
    last = pieces[-1]
    if not last.startswith(_MORE) and _is_readable(last):
        return len(pieces)
    count = len(pieces) - 1
    while count and pieces[count - 1].startswith(_MORE):
        count -= 1
    return count


def _checked(line: LogLine, change: LogChange) -> bytes:
    """The body of a new line, when it can be read again as what it is."""
    body = line.body.strip()
    try:
        if b"\n" in body:
            raise ValueError("it is more than one line")
        seq = _decode(body).seq
        if seq not in (None, line.sequence):
            raise ValueError(f"its seq is {seq}")
    except (ValueError, RecursionError) as error:
        raise CorruptRecord(
            f"line {line.sequence} of {change.kind} {change.log_id!r} cannot be kept: {error}; "
            "write one JSON object per line, with its number as seq"
        ) from error
    return body


def _decode(body: bytes, *, is_text: bool = False) -> _Said:
    """What matters of a line. Raises: ValueError, RecursionError."""
    if not is_text:
        body.decode()
    return _decoder.decode(body)


def _is_readable(body: bytes) -> bool:
    try:
        _decode(body)
    except (ValueError, RecursionError):
        return False
    return True


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
