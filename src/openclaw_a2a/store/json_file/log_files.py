"""The log files of a json-file store: one file per log, one directory per kind of log.

A log file holds one JSON object per line, as other programs read and write it too. A change of
several lines is there as a whole or not at all: every line of it but the last begins with a tab,
which a JSON reader ignores, and which shows after a crash that more was to come.
"""

import os
import threading
from bisect import bisect_right
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import CorruptRecord
from openclaw_a2a.ports import LogAppend, LogHead, LogLine, StoredLog
from openclaw_a2a.store.json_file.record_files import append_synced, sync_folder
from openclaw_a2a.store.locks import WriterLock

log = get_logger(__name__)

_PREFIX, _SUFFIX = "a2a_", ".jsonl"
LOG_FILES = f"{_PREFIX}*{_SUFFIX}"
"""The pattern of their names."""
_MAX_NAME = 255
"""The longest file name, in bytes."""
_CONTINUED = b"\t"
# Beyond this, JSON readers of other programs do not represent every integer exactly.
_MAX_SEQUENCE = 2**53
_CLOSING_OP = "archive"
_TAIL = 4096
"""So many bytes at the end of a file show whether its log is closed."""


class LogText(msgspec.Struct, frozen=True):
    """The content of a log file. Bytes beyond `size` belong to an unfinished change."""

    lines: tuple[LogLine, ...]
    is_closed: bool
    problems: tuple[str, ...]
    size: int
    ends_line: bool

    @property
    def sequence(self) -> int:
        """The sequence of the last line, 0 if there is none."""
        return self.lines[-1].sequence if self.lines else 0


class _LineFields(msgspec.Struct, frozen=True, gc=False):
    """The members of a line that matter here."""

    seq: Any = None
    op: Any = None


_decoder = msgspec.json.Decoder(_LineFields)


def log_file_name(log_id: str) -> str:
    """The name of a log's file.

    A `-` becomes `_`; anything but ASCII letters, digits and `-.~` is percent-encoded. No two ids
    share a name.
    """
    quoted = quote(log_id, safe="", errors="surrogatepass")
    return f"{_PREFIX}{quoted.replace('_', '%5F').replace('-', '_')}{_SUFFIX}"


def log_id_of(name: str) -> str | None:
    """The log id of a file name; None if it is not the name of a log file."""
    stem = name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
    try:
        log_id = unquote(stem.replace("_", "-"), errors="surrogatepass")
    except UnicodeDecodeError:
        return None
    return log_id if log_file_name(log_id) == name else None


def encode_change(change: LogAppend) -> bytes:
    """The bytes to append to the file. Raises: CorruptRecord (a line could not be read back)."""
    if len(log_file_name(change.log_id)) > _MAX_NAME:
        raise CorruptRecord(
            f"the {change.kind} id {change.log_id[:40]!r}.. is too long for the name of a file; "
            "use a shorter one, or a store of another kind"
        )
    bodies: list[bytes] = []
    for line in change.lines():
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
        bodies.append(body + b"\n")
    return _CONTINUED.join([b"", *bodies[:-1]]) + bodies[-1]


def parse_log(content: bytes, name: str) -> LogText:
    """The content of a log file; what cannot be read is reported in `problems` and skipped."""
    pieces = content.split(b"\n")
    count = _count_complete(pieces)
    unfinished = b"\n".join(pieces[count:])
    lines: list[LogLine] = []
    problems: list[str] = []
    position, is_closed, is_counting = 0, False, False
    for number, piece in enumerate(pieces[:count], start=1):
        if not (body := piece.strip()):
            continue
        position += 1
        try:
            fields = _decode(body)
        except (ValueError, RecursionError) as error:
            problems.append(
                f"line {number} of {name} cannot be read and is skipped: {error}; "
                "repair the line, or remove it"
            )
            continue
        last = lines[-1].sequence if lines else 0
        if type(fields.seq) is int and last < fields.seq <= _MAX_SEQUENCE:
            position = fields.seq
        elif type(fields.seq) is int and not is_counting:
            is_counting = True
            problems.append(
                f"line {number} of {name} has the number {fields.seq} after {last}; "
                "where numbers do not rise, the lines are counted"
            )
        is_closed = fields.op == _CLOSING_OP
        lines.append(LogLine(position, body))
    if unfinished:
        problems.append(
            f"{name} ends, from line {count + 1} on, in a change that was not written to its end; "
            "it was never acknowledged and is skipped"
        )
    size = len(content) - len(unfinished)
    ends_line = size == 0 or content[size - 1 : size] == b"\n"
    return LogText(tuple(lines), is_closed, tuple(problems), size, ends_line)


def ends_closed(tail: bytes) -> bool:
    """True if the last bytes of a file show that its log is closed."""
    rest, end, after = tail.rpartition(b"\n")
    _, before, body = rest.rpartition(b"\n")
    if not end or not before or after or body.startswith(_CONTINUED):
        return False
    fields = _try_decode(body)
    return fields is not None and fields.op == _CLOSING_OP


def _count_complete(pieces: Sequence[bytes]) -> int:
    """How many of the lines do not belong to an unfinished change at the end."""
    # A whole object without a line end counts, because other programs may leave it out. Of our own
    # changes it can only be the last line: a change that is complete but was not acknowledged.
    last = pieces[-1]
    if not last.startswith(_CONTINUED) and _try_decode(last) is not None:
        return len(pieces)
    count = len(pieces) - 1
    while count and pieces[count - 1].startswith(_CONTINUED):
        count -= 1
    return count


def _decode(body: bytes) -> _LineFields:
    """The fields of a line. Raises: ValueError, RecursionError."""
    body.decode()  # the decoder skips other members without looking at their bytes
    return _decoder.decode(body)


def _try_decode(body: bytes) -> _LineFields | None:
    try:
        return _decode(body)
    except (ValueError, RecursionError):
        return None


_FileVersion = tuple[int, int]
"""Size and modification time in nanoseconds: differ if the file was written since."""


class LogFolder:
    """A directory of log files that one process writes; created with the first log.

    The writer thread appends while worker threads read: the mutex keeps a reader from seeing a
    change before it is synced. What has returned survives a power cut.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = WriterLock(path)
        self._is_held = False
        self._mutex = threading.Lock()
        # Where the next change of a log goes, as long as its file has this version; of the text
        # only the last line is kept.
        self._ends: dict[str, tuple[_FileVersion, LogText]] = {}
        self._listing: tuple[int, list[str]] = (-1, [])

    def append(self, change: LogAppend) -> bool:
        """Append lines to a log; False if it is not at `change.after`.

        Raises: CorruptRecord, StoreLocked, OSError.
        """
        if not change.bodies:
            return False
        content = encode_change(change)
        with self._mutex:  # held across the sync: no reader sees lines that a crash takes back
            self._ensure_locked()
            flags = os.O_RDWR | (os.O_CREAT if change.after == 0 else 0)
            try:
                with self._opened(change.log_id, flags) as descriptor:
                    return self._extend(descriptor, change, content)
            except FileNotFoundError:
                return False

    def delete(self, log_id: str) -> bool:
        """Delete a log; False if there was none. Raises: StoreLocked, OSError."""
        with self._mutex:
            name = log_file_name(log_id)
            if not self.path.is_dir() or len(name) > _MAX_NAME:
                return False
            self._ensure_locked()
            self._ends.pop(log_id, None)
            file = self.path / name
            was_stored = file.exists()
            file.unlink(missing_ok=True)
            self._sync_names()
            return was_stored

    def read(self, log_id: str, *, only_open: bool = False) -> StoredLog | None:
        """One log; None if it is missing, or closed and only open ones are wanted.

        Raises: OSError.
        """
        name = log_file_name(log_id)
        try:
            with self._mutex, self._opened(log_id, os.O_RDONLY) as descriptor:
                if only_open:
                    start = max(0, os.fstat(descriptor).st_size - _TAIL)
                    if ends_closed(os.pread(descriptor, _TAIL, start)):
                        return None
                content = _read_all(descriptor)
        except FileNotFoundError:
            return None
        except PermissionError as error:
            log.warning("store.log_unreadable", folder=str(self.path), file=name, reason=str(error))
            return None
        text = parse_log(content, name)
        if not text.lines and text.problems:
            # Without a line there is no StoredLog to report it in.
            log.warning("store.log_damaged", folder=str(self.path), reason=" ".join(text.problems))
        if not text.lines or (only_open and text.is_closed):
            return None
        return StoredLog(log_id, text.lines, text.is_closed, text.problems)

    def page_open(self, after: str, limit: int) -> list[StoredLog]:
        """Logs that are not closed, by id. Raises: OSError."""
        logs = map(partial(self.read, only_open=True), self._ids_after(after))
        return list(islice(filter(None, logs), limit))

    def page(self, after: str, limit: int) -> list[LogHead]:
        """All logs, by id. Raises: OSError."""
        return list(islice(filter(None, map(self._head, self._ids_after(after))), limit))

    def close(self) -> None:
        """Release the lock of the directory."""
        if self._is_held:
            self._is_held = False
            self._lock.release()

    def _ensure_locked(self) -> None:
        """Take the lock with the first write, and keep it."""
        # With the first write and not at start: a directory that is only read needs no lock.
        if not self._is_held:
            if not self.path.is_dir():
                self.path.mkdir(mode=0o700, parents=True)
                sync_folder(self.path.parent)
            if not self._lock.try_acquire():
                raise self._lock.locked_error()
            self._is_held = True
        elif not self._lock.keep():
            raise OSError(f"another process took the lock {self._lock.path}")

    def _extend(self, descriptor: int, change: LogAppend, content: bytes) -> bool:
        version, end = self._end(descriptor, change.log_id)
        if end.sequence != change.after:
            return False
        # Forgotten until the write is durable: after a failure the file is read again.
        self._ends.pop(change.log_id, None)
        if not end.ends_line:
            content = b"\n" + content
        try:
            # The content before the name: a crash in between leaves no log, never half of one.
            append_synced(descriptor, end.size, content)
            # A new file: its name is not durable before the directory is synced.
            if version[0] == 0:
                self._sync_names()
        except OSError:
            # Or readers would see it; if this fails too, the next append cuts it off.
            with suppress(OSError):
                os.ftruncate(descriptor, end.size)
            raise
        version = _version_of(descriptor)
        last = LogLine(change.last, b"")
        end = LogText((last,), ends_closed(b"\n" + content), (), version[0], ends_line=True)
        self._ends[change.log_id] = version, end
        return True

    def _end(self, descriptor: int, log_id: str) -> tuple[_FileVersion, LogText]:
        """The end of the log; read again if another program wrote the file."""
        version = _version_of(descriptor)
        known = self._ends.get(log_id)
        if known is None or known[0] != version:
            text = parse_log(_read_all(descriptor), log_file_name(log_id))
            end = msgspec.structs.replace(text, lines=text.lines[-1:], problems=())
            known = self._ends[log_id] = version, end
        return known

    def _head(self, log_id: str) -> LogHead | None:
        try:
            with self._mutex, self._opened(log_id, os.O_RDONLY) as descriptor:
                version, end = self._end(descriptor, log_id)
        except (FileNotFoundError, PermissionError):
            return None
        if end.sequence == 0:
            return None
        updated_at = datetime.fromtimestamp(version[1] / 1e9, UTC)
        return LogHead(log_id, end.sequence, end.is_closed, updated_at)

    @contextmanager
    def _opened(self, log_id: str, flags: int) -> Generator[int]:
        name = log_file_name(log_id)
        if len(name) > _MAX_NAME:
            raise FileNotFoundError(name)
        descriptor = os.open(self.path / name, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _ids_after(self, after: str) -> list[str]:
        """Every log that has a file, in order; scanned again when the directory changed."""
        with self._mutex:
            try:
                changed_at = self.path.stat().st_mtime_ns
                if self._listing[0] != changed_at:
                    self._listing = changed_at, self._scan()
            except FileNotFoundError:
                return []
            ids = self._listing[1]
        return ids[bisect_right(ids, after) :]

    def _scan(self) -> list[str]:
        ids: list[str] = []
        for file in os.scandir(self.path):
            if not (file.name.startswith(_PREFIX) and file.name.endswith(_SUFFIX)):
                continue
            if file.is_file() and (log_id := log_id_of(file.name)) is not None:
                ids.append(log_id)
            else:
                log.warning("store.log_name_unknown", folder=str(self.path), file=file.name)
        return sorted(ids)

    def _sync_names(self) -> None:
        # Scanned again whatever the time of the directory says: two changes can share one tick.
        self._listing = (-1, [])
        sync_folder(self.path)


def _version_of(descriptor: int) -> _FileVersion:
    stat = os.fstat(descriptor)
    return stat.st_size, stat.st_mtime_ns


def _read_all(descriptor: int) -> bytes:
    with open(descriptor, "rb", closefd=False) as file:
        return file.read()
