"""Queues runs for OpenClaw's state directory, in the order of arrival.

OpenClaw 2026.9 lets one `--local` run at a time into a state directory and refuses others; 2026.3
lets all in. Which of the two is installed is read from its files, or else learned from the first
run that starts while another one runs.
"""

import asyncio
import shutil
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from weakref import WeakValueDictionary

import msgspec

EXCLUSIVE = 1
PARALLEL = 64
UNKNOWN = 2
"""A second run may try to start while the first one runs."""

_LAST_PARALLEL = (2026, 3, 2)
_MAX_FOLDERS = 4
_MAX_PACKAGE_BYTES = 1024 * 1024


class DirectorySlot:
    """One run's slot in a queue."""

    def __init__(self) -> None:
        self.admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class StateDirectoryQueue:
    """The runs of this process on one state directory."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._running: list[DirectorySlot] = []
        self._waiting: deque[DirectorySlot] = deque()

    @property
    def has_others(self) -> bool:
        """True when more than one run is under way."""
        return len(self._running) > 1

    @asynccontextmanager
    async def slot(self, *, at_front: bool = False) -> AsyncGenerator[DirectorySlot]:
        """Wait for a free slot (`at_front`: before all others) and hold it meanwhile."""
        slot = DirectorySlot()
        if at_front:
            self._waiting.appendleft(slot)
        else:
            self._waiting.append(slot)
        self._admit()
        try:
            await slot.admitted
            yield slot
        finally:
            held = self._running if slot in self._running else self._waiting
            held.remove(slot)
            self._admit()

    def note_refusal(self) -> None:
        """OpenClaw refused a run because of another: from now on one at a time."""
        self._width = EXCLUSIVE

    def note_success(self, slot: DirectorySlot) -> None:
        """A run succeeded; if an earlier one still runs, OpenClaw allows them in parallel."""
        if self._width == UNKNOWN and self._running[0] is not slot:
            self._width = PARALLEL
            self._admit()

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self._width:
            slot = self._waiting.popleft()
            self._running.append(slot)
            if not slot.admitted.done():  # it is when the waiting run was cancelled
                slot.admitted.set_result(None)


_queues: WeakValueDictionary[tuple[int, str], StateDirectoryQueue] = WeakValueDictionary()


def queue_for(name: str, *, width: int) -> StateDirectoryQueue:
    """The queue of this name in this event loop, made (with this width) when it is not in use."""
    key = (id(asyncio.get_running_loop()), name)
    queue = _queues.get(key)
    if queue is None:
        queue = _queues[key] = StateDirectoryQueue(width)
    return queue


class _Package(msgspec.Struct):
    name: str = ""
    version: str = ""


def installed_width(program: str, search_path: str | None) -> int:
    """How many runs the installed OpenClaw lets into one state directory."""
    version = installed_version(program, search_path)
    if version is None:
        return UNKNOWN
    return EXCLUSIVE if version > _LAST_PARALLEL else PARALLEL


def installed_version(program: str, search_path: str | None) -> tuple[int, ...] | None:
    """The version in the package file next to the program; None: unknown. Runs nothing."""
    found = shutil.which(program, path=search_path)
    if found is None:
        return None
    try:
        folders = Path(found).resolve().parents[:_MAX_FOLDERS]
        packages = (_read_package(folder / "package.json") for folder in folders)
        versions = [one.version for one in packages if one is not None and one.name == "openclaw"]
    except OSError:
        return None
    return _parse_version(versions[0]) if versions else None


def _read_package(path: Path) -> _Package | None:
    if not path.is_file() or path.stat().st_size > _MAX_PACKAGE_BYTES:
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Package)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _parse_version(version: str) -> tuple[int, ...] | None:
    numbers = version.partition("-")[0].split(".")
    return tuple(map(int, numbers)) if all(one.isdecimal() for one in numbers) else None
