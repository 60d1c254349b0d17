"""Queues runs for OpenClaw's state directory, in the order of arrival.

OpenClaw 2026.9 lets one `--local` run at a time into a state directory and refuses others; 2026.3
lets all in. Which of the two is installed is read from its files, or else learned from the first
run that starts while another one runs.
"""

import shutil
from pathlib import Path

import msgspec

from openclaw_a2a.agents.slot_queue import Slot, SlotQueue

EXCLUSIVE = 1
PARALLEL = 64
UNKNOWN = 2
"""A second run may try to start while the first one runs."""

_LAST_PARALLEL = (2026, 3, 2)
_MAX_FOLDERS = 4
_MAX_PACKAGE_BYTES = 1024 * 1024


class StateDirectoryQueue(SlotQueue):
    """The runs of this process on one state directory."""

    def note_refusal(self) -> None:
        """OpenClaw refused a run because of another: from now on one at a time."""
        self._width = EXCLUSIVE

    def note_success(self, slot: Slot) -> None:
        """A run succeeded; if an earlier one still runs, OpenClaw allows them in parallel."""
        if self._width == UNKNOWN and self._running[0] is not slot:
            self._width = PARALLEL
            self._admit()


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
