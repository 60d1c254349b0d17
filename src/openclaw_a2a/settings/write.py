"""Adds to the settings file and leaves everything a person wrote as it is."""

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
    """Lines to be added to a file; `text` is empty when the file has them already.

    `is_possible` is false when the file is such that a person has to add the lines.
    """

    path: Path
    text: str
    is_possible: bool = True
    whole: str = ""

    def write(self) -> None:
        """Put the lines into the file, in one step. Raises: SettingsInvalid."""
        target = Path(os.path.realpath(self.path))
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
            handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
            with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
                stream.write(self.whole)
                stream.flush()
                os.fsync(stream.fileno())
            Path(name).chmod(mode)
            Path(name).replace(target)
        except OSError as error:
            reason = error.strerror or str(error)
            raise SettingsInvalid(
                f"{self.path} cannot be written: {reason}; change it by hand"
            ) from None


def plan_addition(path: Path | None, openclaw_config: Path) -> Addition:
    """What the settings file needs so that OpenClaw's agents are offered; nothing is changed.

    Without a path it is the file in the user's config folder.
    """
    place = path or user_file()
    lines = _section(openclaw_config)
    text = text_of(place)
    if text is None:
        return Addition(place, lines, is_possible=not place.exists(), whole=f"{{\n{lines}}}\n")
    values = parsed(text)
    if is_object(values) and "openclaw" in values:
        return Addition(place, "")
    root = _BEFORE_ROOT.match(text)
    whole = "" if root is None else f"{text[: root.end()]}\n{lines}{_rest(text[root.end() :])}"
    # What comes out must say what it said before, and the section: else hands off.
    after = parsed(whole)
    same = is_object(values) and is_object(after) and {**values, **_only(after)} == after
    return Addition(place, lines, is_possible=same and "openclaw" in after, whole=whole)


def _only(values: dict[str, Json]) -> dict[str, Json]:
    return {"openclaw": values["openclaw"]} if "openclaw" in values else {}


def user_file() -> Path:
    """The settings file in the user's config folder, whether it is there or not."""
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


def text_of(path: Path) -> str | None:
    """The text of a file as it is, line ends too; None when it cannot be read."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except (OSError, ValueError):
        return None


def parsed(text: str) -> Json:
    """The value of a JSON5 text; None when it is none."""
    try:
        return pyjson5.decode(text)
    except pyjson5.Json5Exception:
        return None
