"""Locks that keep a store to one process: on the file of a database, and on a directory."""

import atexit
import errno
import os
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import anyio
import anyio.to_thread
import msgspec

from openclaw_a2a.model.backoff import Backoff
from openclaw_a2a.model.errors import StoreLocked, StoreUnavailable
from openclaw_a2a.model.file_lock import CAN_LOCK_FILES, try_lock_file

LOCK_NAME = ".writer.lock"
# The format that other programs share lets a lock be taken over after 30 minutes, so a living
# holder renews it well before that.
STALE_AFTER_S = 30 * 60.0
REFRESH_AFTER_S = 10 * 60.0
_EMPTY_S = 60.0
"""How old an empty lock file must be to count as abandoned: its holder was killed before it wrote
what it is, or has not come to that yet."""
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC  # EXCL follows no link either
_RETRY = Backoff(first_s=0.05, max_s=1.0)

# The file names a process, not a store: two stores of one process on one directory share the lock.
_held: Counter[Path] = Counter()
"""How many times this process holds each lock."""


class FileLock:
    """An exclusive lock on a file; the operating system releases it when the process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, path: Path) -> Self:
        """Lock a file.

        Raises:
            StoreLocked: another process holds the lock.
            StoreUnavailable: the lock file cannot be created, or there are no file locks here.
        """
        if not CAN_LOCK_FILES:
            raise StoreUnavailable(
                "SQLite stores need file locks of Linux or macOS; use store.kind memory here"
            )
        lock_path = path.with_name(path.name + ".lock")
        try:
            # Not through a link: it is emptied and written, whatever it is.
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(lock_path, flags, 0o600)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise StoreUnavailable(
                    f"the lock file {lock_path} is a symbolic link, which is not followed; remove "
                    "it if you did not make it, and see who may write in its folder"
                ) from error
            raise StoreUnavailable(
                f"the lock file {lock_path} cannot be opened: {error.strerror}; "
                "check that the directory exists and may be written"
            ) from error
        if not try_lock_file(descriptor):
            holder = os.read(descriptor, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise StoreLocked(
                f"process {holder} uses {path}; stop it, or give this gateway another store path "
                "or data folder (OPENCLAW_A2A_DATA)",
                details={"pid": holder, "path": str(path)},
            )
        # The pid is for the error message of the next process. The lock itself belongs to the
        # descriptor: a crash releases it, and a stale pid in the file keeps no process out.
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode("ascii"))
        return cls(descriptor)

    def release(self) -> None:
        """Release the lock. The file stays: removing it would let two processes hold a lock."""
        # Emptied while the lock is ours: after the close another process may have written its pid.
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


class LockHolder(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The content of the lock file: the process, since when, and when it was started.

    `starttime` tells a process from a later one with the same pid; not every system has it.
    """

    pid: int
    created_at: datetime
    starttime: int | None = None


_decoder = msgspec.json.Decoder(LockHolder)


class WriterLock:
    """The lock file of a directory, whose format other programs share.

    Counted: one process may acquire it several times.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory.resolve() / LOCK_NAME

    async def acquire(self, wait_s: float) -> None:
        """Acquire the lock; that of a dead process is taken over.

        Raises:
            StoreLocked: a living process held it all the time.
        """
        deadline = time.monotonic() + wait_s
        attempt = 1
        while not await anyio.to_thread.run_sync(self.try_acquire):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise self.locked_error()
            await anyio.sleep(min(_RETRY.delay_s(attempt), left_s))
            attempt += 1

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free, ours, or abandoned."""
        if _held[self.path] > 0 or self._create() or (self._reclaim() and self._create()):
            _held[self.path] += 1
            return True
        return False

    def release(self) -> None:
        """Release the lock; the last release removes the file."""
        _held[self.path] -= 1
        if _held[self.path] <= 0:
            del _held[self.path]
            _remove_own(self.path)

    def keep(self) -> bool:
        """Renew the lock before it looks stale; False if another process took it."""
        # Read for every group of writes: a process that was suspended for longer than the lock
        # lives can learn only from the file that another one took it over.
        holder = _read(self.path)
        if holder is None or holder.pid != os.getpid():
            return False
        if time.time() - holder.created_at.timestamp() > REFRESH_AFTER_S:
            # Replaced, not rewritten: a process that looks at it never finds half a file.
            self._write_own().replace(self.path)
        return True

    def _create(self) -> bool:
        # A link to a complete file: a process that is killed in between must not leave an empty
        # lock, which names no holder that could be found dead. The link decides between processes.
        own = self._write_own()
        try:
            os.link(own, self.path)
        except FileExistsError:
            return False
        except OSError:  # a file system without links
            return _create_file(self.path)
        finally:
            own.unlink(missing_ok=True)
        return True

    def _write_own(self) -> Path:
        """Write a file beside the lock, with the content that our lock has."""
        # Of a thread: two stores of this process may come at once.
        own = self.path.with_name(f"{LOCK_NAME}.{os.getpid()}-{threading.get_ident()}")
        own.unlink(missing_ok=True)  # of a process before us with this pid, or a link
        _create_file(own)
        return own

    def _reclaim(self) -> bool:
        """Move an abandoned lock away; True if there is no lock now."""
        try:
            seen = self.path.read_bytes()
            if not _is_abandoned(self.path, seen):
                return False
            # Renamed, not removed: two processes may have seen the same dead holder, and the
            # second would remove the new lock of the first.
            aside = self.path.with_name(f"{LOCK_NAME}.stale-{os.getpid()}")
            self.path.rename(aside)
        except FileNotFoundError:
            return True
        if aside.read_bytes() != seen:
            # Another process reclaimed it first and this is its new lock: put it back.
            with suppress(FileExistsError):
                os.link(aside, self.path)
        aside.unlink()
        return True

    def locked_error(self) -> StoreLocked:
        """The error that names the holder of the lock."""
        holder = _read(self.path)
        pid = "unknown" if holder is None else str(holder.pid)
        return StoreLocked(
            f"process {pid} writes in {self.path.parent} (lock file {self.path}); "
            "stop it, or give this gateway another store path or data folder (OPENCLAW_A2A_DATA)",
            details={"pid": pid, "path": str(self.path)},
        )


def _create_file(path: Path) -> bool:
    try:
        descriptor = os.open(path, _CREATE, 0o600)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "wb") as file:
        file.write(_own_content())
    return True


def _own_content() -> bytes:
    pid = os.getpid()
    return msgspec.json.encode(LockHolder(pid, datetime.now(UTC), _starttime(pid)))


def _read(path: Path) -> LockHolder | None:
    try:
        return _decoder.decode(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def _is_abandoned(path: Path, content: bytes) -> bool:
    try:
        holder = _decoder.decode(content)
    except (ValueError, RecursionError):
        # One that is not empty may be that of another program, in a later format.
        limit_s = STALE_AFTER_S if content else _EMPTY_S
        return time.time() - path.stat().st_mtime > limit_s
    if time.time() - holder.created_at.timestamp() > STALE_AFTER_S:
        return True
    # Our own pid without a start time is that of a former process: ours would be in `_held`.
    if holder.starttime is None:
        return holder.pid == os.getpid() or not _is_alive(holder.pid)
    return not _is_alive(holder.pid) or _starttime(holder.pid) != holder.starttime


def _is_alive(pid: int) -> bool:
    """False for a process that ended, or is a zombie."""
    if (stat := _stat(pid)) is not None:
        return stat[0] not in ("Z", "X")
    # On Linux a process without a stat file is gone. Elsewhere signal 0 asks the kernel; 0 and
    # negative ids would address process groups.
    if sys.platform == "linux" or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)  # of another user, and alive
    return True


def _starttime(pid: int) -> int | None:
    """When the process was started, in clock ticks since boot."""
    stat = _stat(pid)
    return None if stat is None else int(stat[19])


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/<pid>/stat after the name; None elsewhere and for no process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name before them is in parentheses and may contain parentheses.
    return text.rpartition(")")[2].split()


def _remove_own(path: Path) -> None:
    # After a takeover the file is the lock of another process, and stays.
    holder = _read(path)
    if holder is not None and holder.pid == os.getpid():
        path.unlink(missing_ok=True)


@atexit.register
def _remove_all() -> None:
    # A process that ends without closing its stores leaves no lock behind; a killed one does,
    # and its lock is reclaimed.
    for path in list(_held):
        _remove_own(path)
