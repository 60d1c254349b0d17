"""The log files of a json-file store: one file per log, one directory per kind of log."""

import os
import threading
from bisect import bisect_right
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import structlog

from openclaw_a2a.ports import LogHead, StoredLog
from openclaw_a2a.store.log_rows import LogChange
from openclaw_a2a.store.log_text import (
    LONGEST_NAME,
    PREFIX,
    SUFFIX,
    LogText,
    encode_change,
    ends_closed,
    file_name,
    log_id_of,
    parse_log,
)
from openclaw_a2a.store.records_folder import sync_folder, write_all
from openclaw_a2a.store.writer_lock import WriterLock

log = structlog.get_logger(__name__)

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

    def append(self, change: LogChange) -> bool:
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

    def _extend(self, descriptor: int, change: LogChange, content: bytes) -> bool:
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
