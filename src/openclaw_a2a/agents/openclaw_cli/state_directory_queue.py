"""Lanes: whose turn it is to use OpenClaw's state directory, in the order of arrival.

OpenClaw 2026.9 lets one `--local` run at a time into a state directory and turns others away;
2026.3 lets all in. Which of the two it is here is learned from what is installed, or else from
the first run that starts beside another one.
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
"""One run may try whether it can start beside another."""


class DirectorySlot:
    """One run's place in a lane; settled when it is its turn."""

    def __init__(self) -> None:
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()


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
    async def slot(self, *, is_next: bool = False) -> AsyncGenerator[DirectorySlot]:
        """Wait for a free place (`is_next`: before all others) and keep it meanwhile."""
        place = DirectorySlot()
        if is_next:
            self._waiting.appendleft(place)
        else:
            self._waiting.append(place)
        self._admit()
        try:
            await place.turn
            yield place
        finally:
            held = self._running if place in self._running else self._waiting
            held.remove(place)
            self._admit()

    def learn_exclusive(self) -> None:
        """A run was turned away because of another."""
        self._width = EXCLUSIVE

    def learn_parallel(self, place: DirectorySlot) -> None:
        """The run went well; when an earlier one still runs, they do not mind each other."""
        if self._width == UNKNOWN and self._running[0] is not place:
            self._width = PARALLEL
            self._admit()

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self._width:
            place = self._waiting.popleft()
            self._running.append(place)
            if not place.turn.done():
                place.turn.set_result(None)


_lanes: WeakValueDictionary[tuple[int, str], StateDirectoryQueue] = WeakValueDictionary()


def queue_for(directory: str, *, width: int) -> StateDirectoryQueue:
    """The lane of a state directory, made (with this width) when nobody uses it."""
    key = (id(asyncio.get_running_loop()), directory)
    lane = _lanes.get(key)
    if lane is None:
        lane = _lanes[key] = StateDirectoryQueue(width)
    return lane


_LAST_PARALLEL = (2026, 3, 2)
_DEEPEST = 4
_MOST_BYTES = 1024 * 1024


class _Package(msgspec.Struct):
    name: str = ""
    version: str = ""


def is_exclusive(program: str, search_path: str | None) -> bool | None:
    """True when it lets one run at a time into a state directory; None: that cannot be told."""
    version = installed_version(program, search_path)
    return None if version is None else version > _LAST_PARALLEL


def installed_version(program: str, search_path: str | None) -> tuple[int, ...] | None:
    """The version of the package that the program belongs to; None: that cannot be told."""
    found = shutil.which(program, path=search_path)
    if found is None:
        return None
    try:
        folders = Path(found).resolve().parents[:_DEEPEST]
        packages = (_read_package(folder / "package.json") for folder in folders)
        versions = [one.version for one in packages if one is not None and one.name == "openclaw"]
    except OSError:
        return None
    return _numbers(versions[0]) if versions else None


def _read_package(path: Path) -> _Package | None:
    if not path.is_file() or path.stat().st_size > _MOST_BYTES:
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Package)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _numbers(version: str) -> tuple[int, ...] | None:
    pieces = version.partition("-")[0].split(".")
    return tuple(map(int, pieces)) if all(one.isdecimal() for one in pieces) else None
