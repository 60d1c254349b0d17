"""A lock file that is held as long as the process lives: one gateway per database."""

import atexit
import os
import sys
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import anyio
import anyio.to_thread
import msgspec

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


NAME = ".writer.lock"
STALE_AFTER_S = 30 * 60.0
REFRESH_AFTER_S = 10 * 60.0
_STEP_S, _MAX_PAUSE_S = 0.05, 1.0

_held: Counter[Path] = Counter()
"""How often this process holds each lock."""


class LockHolder(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What the lock file says: who writes, since when, and when that process was started.

    `starttime` tells a process from a later one with the same number; not every system has it.
    """

    pid: int
    created_at: datetime
    starttime: int | None = None


_decoder = msgspec.json.Decoder(LockHolder)


class WriterLock:
    """The right to write in a directory. Counted: this process may take it several times."""

    def __init__(self, directory: Path) -> None:
        self.path = directory.resolve() / NAME
        self._written_at = 0.0

    async def acquire(self, wait_s: float) -> None:
        """Take the lock; a dead holder's lock is taken over.

        Raises:
            StoreLocked: a living process holds it, and went on holding it while we waited.
        """
        deadline = time.monotonic() + wait_s
        pause = _STEP_S
        while not await anyio.to_thread.run_sync(self.try_acquire):
            if time.monotonic() >= deadline:
                raise self.refusal()
            await anyio.sleep(min(pause, max(0.0, deadline - time.monotonic())))
            pause = min(pause + _STEP_S, _MAX_PAUSE_S)

    def try_acquire(self) -> bool:
        """Take the lock when it is free, ours, or left behind."""
        if _held[self.path] > 0 or self._create() or (self._reclaim() and self._create()):
            _held[self.path] += 1
            return True
        return False

    def release(self) -> None:
        """Give the lock back; the last one to do so removes the file."""
        _held[self.path] -= 1
        if _held[self.path] <= 0:
            del _held[self.path]
            _remove_own(self.path)

    def keep(self) -> bool:
        """Stay its holder: renew the file before it looks stale. False when somebody took it."""
        holder = _read(self.path)
        if holder is None or holder.pid != os.getpid():
            return False
        if time.time() - holder.created_at.timestamp() > REFRESH_AFTER_S:
            fresh = self.path.with_name(f"{NAME}.{os.getpid()}")
            fresh.write_bytes(_own_content())
            fresh.replace(self.path)
        return True

    def _create(self) -> bool:
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return False
        with os.fdopen(descriptor, "wb") as file:
            file.write(_own_content())
        return True

    def _reclaim(self) -> bool:
        """Move a lock that was left behind out of the way; True when there is none now."""
        try:
            seen = self.path.read_bytes()
            if not _is_left_behind(self.path, seen):
                return False
            aside = self.path.with_name(f"{NAME}.stale-{os.getpid()}")
            self.path.rename(aside)
        except FileNotFoundError:
            return True
        if aside.read_bytes() != seen:
            # Another process was faster and this is its new lock: it goes back where it was.
            with suppress(FileExistsError):
                os.link(aside, self.path)
        aside.unlink()
        return True

    def refusal(self) -> StoreLocked:
        """Who holds the lock, for those who wanted it."""
        holder = _read(self.path)
        pid = "unknown" if holder is None else str(holder.pid)
        return StoreLocked(
            f"process {pid} writes in {self.path.parent} (lock file {self.path}); "
            "stop it, or give this gateway another store path or data folder (OPENCLAW_A2A_DATA)",
            details={"pid": pid, "path": str(self.path)},
        )


def _own_content() -> bytes:
    pid = os.getpid()
    return msgspec.json.encode(LockHolder(pid, datetime.now(UTC), _starttime(pid)))


def _read(path: Path) -> LockHolder | None:
    try:
        return _decoder.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return None


def _is_left_behind(path: Path, content: bytes) -> bool:
    try:
        holder = _decoder.decode(content)
    except msgspec.DecodeError:
        return time.time() - path.stat().st_mtime > STALE_AFTER_S
    if time.time() - holder.created_at.timestamp() > STALE_AFTER_S:
        return True
    if holder.starttime is None:
        return holder.pid == os.getpid() or not _is_alive(holder.pid)
    return not _is_alive(holder.pid) or _starttime(holder.pid) != holder.starttime


def _is_alive(pid: int) -> bool:
    """False for a process that is gone, or waits as a zombie to be collected."""
    if (stat := _stat(pid)) is not None:
        return stat[0] not in ("Z", "X")
    if sys.platform == "linux" or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _starttime(pid: int) -> int | None:
    """When the process was started, in ticks since the machine was."""
    stat = _stat(pid)
    return None if stat is None else int(stat[19])


def _stat(pid: int) -> list[str] | None:
    """What Linux says of a process, from its state on; None elsewhere and for no process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name before it is in brackets and may hold anything, brackets too.
    return text.rpartition(")")[2].split()


def _remove_own(path: Path) -> None:
    holder = _read(path)
    if holder is not None and holder.pid == os.getpid():
        path.unlink(missing_ok=True)


@atexit.register
def _remove_all() -> None:
    for path in list(_held):
        _remove_own(path)
