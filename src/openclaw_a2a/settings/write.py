"""Adds one key to the settings file and leaves everything a person wrote as it is."""

import os
import re
import tempfile
from pathlib import Path

import msgspec
import platformdirs
import pyjson5

from openclaw_a2a.model.errors import SettingsInvalid
from openclaw_a2a.model.ids import Json
from openclaw_a2a.settings.report import is_object
from openclaw_a2a.settings.sources import FILE_NAME

_BEFORE_ROOT = re.compile(r"(?:\s|//[^\n]*(?:\n|$)|/\*.*?\*/)*\{", re.DOTALL)


class Addition(msgspec.Struct, frozen=True):
    """A section to be added to a file; `text` is empty when the file has it already.

    `is_possible` is false when the file is such that a person has to add the lines.
    """

    path: Path
    text: str
    is_possible: bool = True
    whole: str = ""

    def write(self) -> None:
        """Put the section into the file, in one step. Raises: SettingsInvalid."""
        target = Path(os.path.realpath(self.path))
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
            handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(self.whole)
                stream.flush()
                os.fsync(stream.fileno())
            Path(name).chmod(mode)
            Path(name).replace(target)
        except OSError as error:
            reason = error.strerror or str(error)
            raise SettingsInvalid(
                f"{self.path} cannot be written: {reason}; add the section openclaw by hand"
            ) from None


def plan_addition(path: Path | None, openclaw_config: Path) -> Addition:
    """What the settings file needs so that OpenClaw's agents are offered; nothing is changed.

    Without a path it is the file in the user's config folder.
    """
    place = path or _user_file()
    lines = _section(openclaw_config)
    text = _text(place)
    if text is None:
        return Addition(place, lines, is_possible=not place.exists(), whole=f"{{\n{lines}}}\n")
    values = _parsed(text)
    if is_object(values) and "openclaw" in values:
        return Addition(place, "")
    root = _BEFORE_ROOT.match(text)
    whole = "" if root is None else f"{text[: root.end()]}\n{lines}{_rest(text[root.end() :])}"
    # What comes out must say what it said before, and the section: else hands off.
    after = _parsed(whole)
    same = is_object(values) and is_object(after) and {**values, **_only(after)} == after
    return Addition(place, lines, is_possible=same and "openclaw" in after, whole=whole)


def _only(values: dict[str, Json]) -> dict[str, Json]:
    return {"openclaw": values["openclaw"]} if "openclaw" in values else {}


def _user_file() -> Path:
    return platformdirs.user_config_path("openclaw-a2a", appauthor=False) / FILE_NAME


def _section(config: Path) -> str:
    place = msgspec.json.encode(str(config)).decode()
    return (
        "  // OpenClaw's agents; the token is read from its own config.\n"
        "  openclaw: {\n"
        f"    configPath: {place},\n"
        '    expose: "all", // or the ids of some: ["main"]\n'
        "  },\n"
    )


def _rest(text: str) -> str:
    """What follows the section, on a line of its own."""
    return text[1:] if text.startswith("\n") else text


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError):
        return None


def _parsed(text: str) -> Json:
    try:
        return pyjson5.decode(text)
    except pyjson5.Json5Exception:
        return None
