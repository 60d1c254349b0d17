"""A lock file that is held as long as the process lives: one gateway per database."""

import os
from pathlib import Path
from typing import Self

from openclaw_a2a.model.errors import StoreLocked, StoreUnavailable


class FileLock:
    """The right to use a file, alone. The operating system takes it back when we die."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, path: Path) -> Self:
        """Take the lock of this file.

        Raises:
            StoreLocked: another process has it.
            StoreUnavailable: the lock file cannot be made here.
        """
        lock_path = path.with_name(path.name + ".lock")
        try:
            descriptor = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreUnavailable(
                f"the lock file {lock_path} cannot be opened: {error.strerror}; "
                "check that the directory exists and may be written"
            ) from error
        try:
            _lock(descriptor)
        except BlockingIOError as error:
            holder = os.read(descriptor, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise StoreLocked(
                f"process {holder} uses {path}; stop it, or give this gateway another store path "
                "or data folder (OPENCLAW_A2A_DATA)",
                details={"pid": holder, "path": str(path)},
            ) from error
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode("ascii"))
        return cls(descriptor)

    def release(self) -> None:
        """Give the lock back. The file stays: removing it would let two processes hold one."""
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


def _lock(descriptor: int) -> None:
    try:
        import fcntl
    except ImportError as error:
        raise StoreUnavailable(
            "SQLite stores need file locks of Linux or macOS; use store.kind memory here"
        ) from error
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
