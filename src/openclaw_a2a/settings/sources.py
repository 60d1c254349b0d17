"""The sources of settings: file, environment and flags, merged, with the origin of every value."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
import platformdirs
import pyjson5

from openclaw_a2a.model.errors import Problem, SettingsInvalid
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import (
    ProblemCollector,
    is_object,
    is_struct,
    join_path,
    unknown_key_message,
)
from openclaw_a2a.settings.file_schema import FileKeys, member_kind, names_of
from openclaw_a2a.settings.files import FileError, expand_path, read_json5_object

PREFIX = "OPENCLAW_A2A_"
UNKNOWN_VARIABLE = "unknown-variable"
"""The keyword of warnings about variables with our prefix that are not settings."""

_FOR_COMMANDS = frozenset({"URL", "TOKEN", "CONFIG"})


class CommandEnvironment(msgspec.Struct, frozen=True):
    """What commands read from the environment: a gateway's URL, a token, and no colour."""

    url: str | None = None
    token: str | None = None
    no_colour: bool = False


def read_command_environment(environ: Mapping[str, str] | None = None) -> CommandEnvironment:
    """OPENCLAW_A2A_URL, OPENCLAW_A2A_TOKEN and NO_COLOR, when they are not blank."""
    environment = os.environ if environ is None else environ
    url, token = (environment.get(PREFIX + name, "").strip() or None for name in ("URL", "TOKEN"))
    return CommandEnvironment(url, token, bool(environment.get("NO_COLOR")))


def read_environment(
    environ: Mapping[str, str], *, values: JsonObject, collector: ProblemCollector
) -> Iterator[tuple[str, JsonObject]]:
    """Each setting in the environment, by its variable's name without the prefix.

    A double underscore goes one level down; keys are found whatever their case, with or without
    single underscores. `values` are those known so far: their own spelling of an id wins.
    """
    for variable in sorted(name for name in environ if name.startswith(PREFIX)):
        name = variable.removeprefix(PREFIX)
        if name in _FOR_COMMANDS:
            continue
        segments = name.split("__")
        if len(segments) == 1 and _spelling(segments[0], names_of(FileKeys)) is None:
            collector.warning(variable, f"{_unknown(variable)} (ignored)", UNKNOWN_VARIABLE)
            continue
        yield name, _nest(segments, environ[variable], values=values)


def _unknown(variable: str) -> str:
    """The message for a variable that is not a setting, with the nearest one that is."""
    name = variable.removeprefix(PREFIX)
    nested = [
        f"{PREFIX}{section.upper()}__{_upper(key)}"
        for section in names_of(FileKeys)
        if is_struct(kind := member_kind(FileKeys, section))
        for key in names_of(kind)
        if _bare(key) == _bare(name)
    ]
    if nested:
        return f"is not a setting; did you mean {' or '.join(nested)}?"
    known = [PREFIX + key.upper() for key in names_of(FileKeys) if key[0] != "$"]
    return unknown_key_message(variable, known)


def _upper(key: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).upper()


def _nest(segments: list[str], text: str, *, values: JsonObject) -> JsonObject:
    root: JsonObject = {}
    here, known = root, values
    kind: Json = FileKeys
    for index, segment in enumerate(segments):
        key = _key(segment, kind, known)
        kind = member_kind(kind, key)
        if index == len(segments) - 1:
            here[key] = _value(text, kind)
        else:
            inner: JsonObject = {}
            here[key] = inner
            here = inner
            below = known.get(key)
            known = below if is_object(below) else {}
    return root


def _key(segment: str, kind: Json, known: JsonObject) -> str:
    """The key of a segment: a known one, else the segment in camel case."""
    names = names_of(kind) if is_struct(kind) else ()
    spelling = _spelling(segment, (*names, *known))
    if spelling is not None:
        return spelling
    if getattr(kind, "__origin__", None) is dict:
        return segment.lower()
    first, *others = [word for word in segment.lower().split("_") if word] or [segment.lower()]
    return first + "".join(word.capitalize() for word in others)


def _spelling(segment: str, names: tuple[str, ...]) -> str | None:
    return next((name for name in names if _bare(name) == _bare(segment)), None)


def _bare(name: str) -> str:
    return name.replace("_", "").replace("-", "").casefold()


def _value(text: str, kind: Json) -> Json:
    """The text decoded as JSON5, unless it is not JSON5 or the setting is a string."""
    try:
        value = pyjson5.decode(text)
    except pyjson5.Json5DecoderException:
        return text
    wants_text = getattr(kind, "__origin__", kind) is str
    return text if wants_text and not isinstance(value, str) else value


def process_environment(given: Mapping[str, str] | None) -> Mapping[str, str]:
    """The given environment, else that of this process."""
    return os.environ if given is None else given


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
