"""The sources of settings: file, environment and flags, merged, with the origin of every value."""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
import platformdirs

from openclaw_a2a.model.errors import Problem, SettingsInvalid
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import ProblemCollector, is_object, join_path
from openclaw_a2a.settings.json5_file import FileError, read_json5_object
from openclaw_a2a.settings.loading.environment import PREFIX, read_environment
from openclaw_a2a.settings.paths import expand_path


def settings_invalid(
    problems: Iterable[Problem], *, origins: Mapping[str, str], path: Path | None
) -> SettingsInvalid:
    """The error that lists the distinct problems, each with its file and line, variable or flag."""
    text = _text(path)
    located = tuple(
        Problem(one.path, one.message + _origin_note(one.path, origins, path, text), one.keyword)
        for one in dict.fromkeys(problems)
    )
    lines = "\n".join(f"{one.path}: {one.message}" for one in located)
    return SettingsInvalid(lines, problems=located)


def display_path(path: Path) -> str:
    """The path, relative to the working directory when it is below."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _origin_note(setting: str, origins: Mapping[str, str], path: Path | None, text: str) -> str:
    keys = re.sub(r"\[\d+\]", "", setting)
    origin = origins.get(keys, "")
    if origin.startswith(("environment", "flag")):
        return f" (from {origin})"
    known = keys
    while known and not _is_in_file(known, origins):
        known = known.rpartition(".")[0]
    if path is None or not known:
        return ""
    # What is missing has no line of its own.
    line = _line(keys.rpartition(".")[2], text) if known == keys else ""
    return f" (in {display_path(path)}{line})"


def _is_in_file(setting: str, origins: Mapping[str, str]) -> bool:
    """True when the file has this setting or a member of it."""
    return any(
        origin.startswith("file") and (key == setting or key.startswith(f"{setting}."))
        for key, origin in origins.items()
    )


def _line(key: str, text: str) -> str:
    """The line of the key, when it occurs only once in the file."""
    found = list(re.finditer(rf"""(?<![\w$.-])["']?{re.escape(key)}["']?\s*:""", text))
    return f", line {text.count(chr(10), 0, found[0].start()) + 1}" if len(found) == 1 else ""


def _text(path: Path | None) -> str:
    if path is not None:
        with suppress(OSError, ValueError):
            return path.read_text(encoding="utf-8-sig")
    return ""


FILE_NAME = "openclaw-a2a.json5"
_MAX_BYTES = 4 * 1024 * 1024


class Layers(msgspec.Struct, frozen=True):
    """The merged values, and the source of each."""

    values: JsonObject
    origins: dict[str, str]
    path: Path | None

    @property
    def folder(self) -> Path:
        """The base of relative paths: the file's folder, or the working directory."""
        return self.path.parent if self.path else Path.cwd()


def read_layers(
    path: Path | None,
    *,
    overrides: Mapping[str, Json],
    environ: Mapping[str, str],
    collector: ProblemCollector,
) -> Layers:
    """All sources, merged: flags over environment over file."""
    found = _configured_path(path, environ) or find_file()
    values: JsonObject = {}
    origins: dict[str, str] = {}
    if found is not None:
        _merge_over(
            values, read_file(found, collector), origins=origins, origin=f"file {found.name}"
        )
    for name, nested in read_environment(environ, values=values, collector=collector):
        _merge_over(values, nested, origins=origins, origin=f"environment {PREFIX}{name}")
    for dotted, value in overrides.items():
        nested = nest(dotted.split("."), value)
        _merge_over(values, nested, origins=origins, origin="flag")
    return Layers(values, origins, found)


def _configured_path(path: Path | None, environ: Mapping[str, str]) -> Path | None:
    named = environ.get(f"{PREFIX}CONFIG", "").strip()
    chosen = str(path) if path else named
    if not chosen:
        return None
    try:
        return expand_path(chosen, Path.cwd())
    except ValueError:
        # Reading it fails too, and that says which path it was.
        return Path(chosen)


def find_file() -> Path | None:
    """The settings file of the working directory, else the user's."""
    for folder in (Path.cwd(), platformdirs.user_config_path("openclaw-a2a", appauthor=False)):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
    return None


def read_file(path: Path, collector: ProblemCollector) -> JsonObject:
    """The object in the file; empty, with a problem, when it cannot be read."""
    try:
        return read_json5_object(path, max_bytes=_MAX_BYTES)
    except FileError as error:
        collector.problem(str(path), str(error), error.keyword)
        return {}


def nest(keys: list[str], value: Json) -> JsonObject:
    """The value under the keys, outermost first."""
    for key in reversed(keys):
        value = {key: value}
    return value


def _merge_over(
    below: JsonObject, above: JsonObject, *, origins: dict[str, str], origin: str, path: str = ""
) -> None:
    for key, value in above.items():
        place = join_path(path, key)
        if not (is_object(value) and is_object(below.get(key))):
            _remove_origins(origins, place)
            below[key] = {} if is_object(value) else value
        if is_object(value) and value:
            _merge_over(below[key], value, origins=origins, origin=origin, path=place)
        else:
            origins[place] = origin


def _remove_origins(origins: dict[str, str], place: str) -> None:
    for known in [one for one in origins if one == place or one.startswith(place + ".")]:
        del origins[known]
