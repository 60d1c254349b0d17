"""The directory of a json-file store: record files that are never half written, and a log."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.store.json_record import file_name

LOG_NAME = ".gateway.jsonl"
_TEMPORARY = ".writing"


class RecordsFolder:
    """File operations. What has returned survives a power cut, except `put` before `sync`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._log: int | None = None
        self.log_size = 0

    def record_files(self) -> Iterator[Path]:
        """Every record file, by name."""
        return (file for file in sorted(self.path.glob("*.json")) if file.name[0] != ".")

    def read(self, file: Path) -> tuple[bytes, datetime]:
        """The content of a file and when it was last changed."""
        return file.read_bytes(), datetime.fromtimestamp(file.stat().st_mtime, UTC)

    def file_of(self, task_id: TaskId) -> Path:
        """Where the record of a task is."""
        return self.path / file_name(task_id)

    def put(self, file: Path, content: bytes) -> None:
        """Replace a file as a whole."""
        temporary = self.path / _TEMPORARY
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            write_all(descriptor, content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(file)

    def sync(self) -> None:
        """Make new and removed names durable."""
        sync_folder(self.path)

    def read_log(self) -> bytes:
        """The log as the last process left it."""
        file = self.path / LOG_NAME
        return file.read_bytes() if file.exists() else b""

    def rewrite_log(self, content: bytes) -> None:
        """Begin a new log with this content."""
        self.close_log()
        self.put(self.path / LOG_NAME, content)
        self.sync()
        self.log_size = len(content)

    def append_to_log(self, content: bytes) -> None:
        """Add to the log; when that fails nothing of it stays."""
        if self._log is None:
            self._log = os.open(self.path / LOG_NAME, os.O_WRONLY | os.O_CREAT, 0o600)
        # What a failed attempt left behind goes first: it was never acknowledged.
        os.ftruncate(self._log, self.log_size)
        os.lseek(self._log, self.log_size, os.SEEK_SET)
        write_all(self._log, content)
        os.fsync(self._log)
        self.log_size += len(content)

    def close_log(self) -> None:
        """Let go of the log."""
        if self._log is not None:
            os.close(self._log)
            self._log = None


def sync_folder(path: Path) -> None:
    """Make new and removed names of a directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, content: bytes) -> None:
    """Write the content where the file stands."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
