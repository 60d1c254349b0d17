"""The text of a log file: one JSON object per line, as other programs read and write it too.

A change of several lines is there as a whole or not at all. Every line of it but the last begins
with a tab, which means nothing to a reader of JSON and tells after a crash that more was to come.
"""

import os
import threading
from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import msgspec

from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import CorruptRecord
from openclaw_a2a.ports import LogAppend, LogHead, LogLine, StoredLog
from openclaw_a2a.store.json_file.record_files import sync_folder, write_all
from openclaw_a2a.store.locks import WriterLock

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


def encode_change(change: LogAppend) -> bytes:
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


def _checked(line: LogLine, change: LogAppend) -> bytes:
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


log = get_logger(__name__)

_TAIL = 4096
"""So much of a file's end tells whether its log is closed."""


class LogFolders:
    """Where the logs of each kind are. `objectives` is the directory of one kind."""

    def __init__(self, beside: Path, objectives: Path | None) -> None:
        self._beside = beside
        self._folders = {} if objectives is None else {"objective": LogFolder(objectives)}

    def of_kind(self, kind: str) -> "LogFolder":
        """The directory of this kind of log."""
        if kind not in self._folders:
            self._folders[kind] = LogFolder(self._beside / f"{quote(kind, safe='')}s")
        return self._folders[kind]

    def close(self) -> None:
        """Let other processes write in the directories."""
        for folder in self._folders.values():
            folder.close()


class _Mark(NamedTuple):
    """What tells whether a file was written: its length, and when that was last done."""

    length: int
    changed_at: int

    @classmethod
    def of(cls, descriptor: int) -> "_Mark":
        stat = os.fstat(descriptor)
        return cls(stat.st_size, stat.st_mtime_ns)


class _Place(NamedTuple):
    """Where the next change of a log goes, while its file is as it was."""

    mark: "_Mark"
    sequence: int
    is_closed: bool
    size: int
    """How much of the file is whole."""
    ends_line: bool


class LogFolder:
    """A directory of log files that one process writes; made with the first of them.

    Used by several threads. What has returned survives a power cut, and nobody sees a change
    before it does.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = WriterLock(path)
        self._is_held = False
        self._turn = threading.Lock()
        self._places: dict[str, _Place] = {}
        self._listed: tuple[int, list[str]] = (-1, [])

    def append(self, change: LogAppend) -> bool:
        """Add lines to a log; False when it is not where the change begins.

        Raises: CorruptRecord, StoreLocked, OSError.
        """
        if not change.bodies:
            return False
        content = encode_change(change)
        with self._turn:
            self._hold()
            flags = os.O_RDWR | (os.O_CREAT if change.after == 0 else 0)
            try:
                with self._opened(change.log_id, flags) as descriptor:
                    return self._extend(descriptor, change, content)
            except FileNotFoundError:
                return False

    def drop(self, log_id: str) -> bool:
        """Forget a log; False when there was none. Raises: StoreLocked, OSError."""
        with self._turn:
            name = file_name(log_id)
            if not self._path.is_dir() or len(name) > LONGEST_NAME:
                return False
            self._hold()
            self._places.pop(log_id, None)
            file = self._path / name
            is_there = file.exists()
            file.unlink(missing_ok=True)
            self._names_changed()
            return is_there

    def read(self, log_id: str) -> StoredLog | None:
        """One log. Raises: OSError."""
        text = self._text(log_id)
        return None if text is None else _stored(log_id, text)

    def page_open(self, after: str, limit: int) -> list[StoredLog]:
        """Logs that are not closed, in order of their ids. Raises: OSError."""
        found: list[StoredLog] = []
        for log_id in self._ids_after(after):
            if len(found) >= limit:
                break
            text = self._text(log_id, only_open=True)
            if text is not None and not text.is_closed:
                found.append(_stored(log_id, text))
        return found

    def page(self, after: str, limit: int) -> list[LogHead]:
        """All logs, in order of their ids. Raises: OSError."""
        found: list[LogHead] = []
        for log_id in self._ids_after(after):
            if len(found) >= limit:
                break
            if (head := self._head(log_id)) is not None:
                found.append(head)
        return found

    def close(self) -> None:
        """Let another process write here."""
        if self._is_held:
            self._is_held = False
            self._lock.release()

    def _hold(self) -> None:
        """Be the process that writes here, from the first write on."""
        if not self._is_held:
            if not self._path.is_dir():
                self._path.mkdir(mode=0o700, parents=True)
                sync_folder(self._path.parent)
            if not self._lock.try_acquire():
                raise self._lock.refusal()
            self._is_held = True
        elif not self._lock.keep():
            raise OSError(f"another process took the lock {self._lock.path}")

    def _extend(self, descriptor: int, change: LogAppend, content: bytes) -> bool:
        place = self._place(descriptor, change.log_id)
        if place.sequence != change.after:
            return False
        self._places.pop(change.log_id, None)
        if not place.ends_line:
            content = b"\n" + content
        try:
            # What a crash left behind goes first: it was never confirmed.
            os.ftruncate(descriptor, place.size)
            os.lseek(descriptor, place.size, os.SEEK_SET)
            write_all(descriptor, content)
            os.fsync(descriptor)
            if place.mark.length == 0:
                self._names_changed()
        except OSError:
            with suppress(OSError):
                os.ftruncate(descriptor, place.size)
            raise
        mark, is_closed = _Mark.of(descriptor), parse_log(content, "").is_closed
        self._places[change.log_id] = _Place(mark, change.last, is_closed, mark.length, True)
        return True

    def _place(self, descriptor: int, log_id: str) -> _Place:
        """Where the log is. Another program may have written since we looked."""
        mark = _Mark.of(descriptor)
        known = self._places.get(log_id)
        if known is not None and known.mark == mark:
            return known
        text = parse_log(_read_all(descriptor), file_name(log_id))
        place = _Place(mark, text.sequence, text.is_closed, text.size, text.ends_line)
        self._places[log_id] = place
        return place

    def _text(self, log_id: str, *, only_open: bool = False) -> LogText | None:
        """What the log holds; None when there is nothing, or it is seen at once to be closed."""
        name = file_name(log_id)
        try:
            with self._turn, self._opened(log_id, os.O_RDONLY) as descriptor:
                if only_open and ends_closed(_read_tail(descriptor)):
                    return None
                content = _read_all(descriptor)
        except FileNotFoundError:
            return None
        except PermissionError as error:
            log.warning("log-not-readable", folder=str(self._path), file=name, reason=str(error))
            return None
        text = parse_log(content, name)
        if not text.lines and text.broken:
            # There is no log to tell it with.
            log.warning("log-broken", folder=str(self._path), reason=" ".join(text.broken))
        return text if text.lines else None

    def _head(self, log_id: str) -> LogHead | None:
        try:
            with self._turn, self._opened(log_id, os.O_RDONLY) as descriptor:
                place = self._place(descriptor, log_id)
        except (FileNotFoundError, PermissionError):
            return None
        if place.sequence == 0:
            return None
        updated_at = datetime.fromtimestamp(place.mark.changed_at / 1e9, UTC)
        return LogHead(log_id, place.sequence, place.is_closed, updated_at)

    @contextmanager
    def _opened(self, log_id: str, flags: int) -> Generator[int]:
        name = file_name(log_id)
        if len(name) > LONGEST_NAME:
            raise FileNotFoundError(name)
        descriptor = os.open(self._path / name, flags | os.O_CLOEXEC, 0o600)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _ids_after(self, after: str) -> Iterator[str]:
        with self._turn:
            ids = self._ids()
        return iter(ids[bisect_right(ids, after) :])

    def _ids(self) -> list[str]:
        """Every log that has a file, in order; looked up when the directory has changed."""
        try:
            changed_at = self._path.stat().st_mtime_ns
            if self._listed[0] != changed_at:
                self._listed = changed_at, self._look_up()
        except FileNotFoundError:
            return []
        return self._listed[1]

    def _look_up(self) -> list[str]:
        ids: list[str] = []
        for file in os.scandir(self._path):
            if not (file.name.startswith(PREFIX) and file.name.endswith(SUFFIX)):
                continue
            if file.is_file() and (log_id := log_id_of(file.name)) is not None:
                ids.append(log_id)
            else:
                log.warning("log-name-unknown", folder=str(self._path), file=file.name)
        return sorted(ids)

    def _names_changed(self) -> None:
        self._listed = (-1, [])
        sync_folder(self._path)


def _stored(log_id: str, text: LogText) -> StoredLog:
    return StoredLog(log_id, text.lines, text.is_closed, text.broken)


def _read_all(descriptor: int) -> bytes:
    with open(descriptor, "rb", closefd=False) as file:
        return file.read()


def _read_tail(descriptor: int) -> bytes:
    length = os.fstat(descriptor).st_size
    return os.pread(descriptor, _TAIL, max(0, length - _TAIL))
