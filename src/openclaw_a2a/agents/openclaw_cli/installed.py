"""Which OpenClaw is installed, as far as its files tell; no program is run for it."""

import shutil
from pathlib import Path

import msgspec

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
