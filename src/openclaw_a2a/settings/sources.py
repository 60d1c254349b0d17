"""The sources of settings: file, environment and flags, merged, with the origin of every value."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
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
    object_at,
    unknown_key_message,
)
from openclaw_a2a.settings.file_schema import FileKeys, member_kind, names_of
from openclaw_a2a.settings.files import FileError, expand_path, read_json5_object

PREFIX = "OPENCLAW_A2A_"
UNKNOWN_VARIABLE = "unknown-variable"
"""The keyword of warnings about variables with our prefix that are not settings."""

FILE_NAME = "openclaw-a2a.json5"
HIDDEN_FILE = "hidden-file"
"""Keyword of the warning about a settings file that is not read."""

_MAX_BYTES = 4 * 1024 * 1024
# Read by commands, and CACHE by the development script: no settings, and no mistakes.
_FOR_COMMANDS = frozenset({"URL", "TOKEN", "CONFIG", "CACHE"})


class CommandEnvironment(msgspec.Struct, frozen=True):
    """What commands read from the environment: a gateway's URL, a token, and no colour."""

    url: str | None = None
    token: str | None = None
    no_colour: bool = False


def process_environment(given: Mapping[str, str] | None) -> Mapping[str, str]:
    """The given environment, else that of this process."""
    return os.environ if given is None else given


def read_command_environment(environ: Mapping[str, str] | None = None) -> CommandEnvironment:
    """OPENCLAW_A2A_URL, OPENCLAW_A2A_TOKEN and NO_COLOR, when they are not blank."""
    environment = process_environment(environ)
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
    name = _comparable_name(variable.removeprefix(PREFIX))
    nested: list[str] = []
    for section in names_of(FileKeys):
        kind = member_kind(FileKeys, section)
        for key in names_of(kind) if is_struct(kind) else ():
            if _comparable_name(key) == name:
                upper = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).upper()
                nested.append(f"{PREFIX}{section.upper()}__{upper}")
    if nested:
        return f"is not a setting; did you mean {' or '.join(nested)}?"
    known = [PREFIX + key.upper() for key in names_of(FileKeys) if key[0] != "$"]
    return unknown_key_message(variable, known)


def _nest(segments: list[str], text: str, *, values: JsonObject) -> JsonObject:
    keys: list[str] = []
    kind: Json = FileKeys
    for segment in segments:
        keys.append(_key(segment, kind, object_at(values, *keys)))
        kind = member_kind(kind, keys[-1])
    return nest(keys, _value(text, kind))


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
    return next(
        (name for name in names if _comparable_name(name) == _comparable_name(segment)), None
    )


def _comparable_name(name: str) -> str:
    return name.replace("_", "").replace("-", "").casefold()


def _value(text: str, kind: Json) -> Json:
    """The text decoded as JSON5, unless it is not JSON5 or the setting is a string."""
    try:
        value = pyjson5.decode(text)
    except pyjson5.Json5DecoderException:
        return text
    wants_text = getattr(kind, "__origin__", kind) is str
    return text if wants_text and not isinstance(value, str) else value


def settings_invalid(
    problems: Iterable[Problem], *, origins: Mapping[str, str], path: Path | None
) -> SettingsInvalid:
    """The error that lists the distinct problems, each with its file and line, variable or flag."""
    text = ""
    if path is not None:
        with suppress(OSError, ValueError):
            text = path.read_text(encoding="utf-8-sig")
    located = tuple(
        Problem(one.path, one.message + _origin_note(one.path, origins, path, text), one.keyword)
        for one in dict.fromkeys(problems)
    )
    lines = "\n".join(f"{one.path}: {one.message}" for one in located)
    return SettingsInvalid(lines, problems=located)


def _origin_note(setting: str, origins: Mapping[str, str], path: Path | None, text: str) -> str:
    keys = re.sub(r"\[\d+\]", "", setting)
    origin = origins.get(keys, "")
    if origin.startswith(("environment", "flag")):
        return f" (from {origin})"
    # The setting itself, or the nearest section around it of which the file has something.
    in_file = [f"{key}." for key, source in origins.items() if source.startswith("file")]
    known = keys
    while known and not any(key.startswith(f"{known}.") for key in in_file):
        known = known.rpartition(".")[0]
    if path is None or not known:
        return ""
    here = Path.cwd()
    note = f" (in {path.relative_to(here) if path.is_relative_to(here) else path}"
    # What is missing has no line of its own; a key that occurs twice may be another setting's.
    key = re.escape(keys.rpartition(".")[2])
    found = list(re.finditer(rf"""(?<![\w$.-])["']?{key}["']?\s*:""", text))
    if known == keys and len(found) == 1:
        note += f", line {text.count(chr(10), 0, found[0].start()) + 1}"
    return f"{note})"


class Layers(msgspec.Struct, frozen=True):
    """The merged values, and the source of each."""

    values: JsonObject
    origins: dict[str, str]
    path: Path | None
    hidden: Path | None = None
    """A settings file that is not read, because the working folder has one too."""

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
    usual = [one for one in (Path.cwd() / FILE_NAME, user_file()) if one.is_file()]
    named = _configured_path(path, environ)
    found = named or next(iter(usual), None)
    hidden = usual[1] if named is None and len(usual) > 1 else None
    if hidden is not None and found is not None and hidden.samefile(found):
        hidden = None
    if hidden is not None:
        message = (
            f"is not read, because {found} is used here; name it with --config, or move the "
            "settings into one file"
        )
        collector.warning(str(hidden), message, HIDDEN_FILE)
    values: JsonObject = {}
    origins: dict[str, str] = {}
    if found is not None:
        try:
            read = read_json5_object(found, max_bytes=_MAX_BYTES)
            merge_over(values, read, origins=origins, origin=lambda _: f"file {found.name}")
        except FileError as error:
            collector.problem(str(found), str(error), error.keyword)
    for name, nested in read_environment(environ, values=values, collector=collector):
        source = f"environment {PREFIX}{name}"
        merge_over(values, nested, origins=origins, origin=lambda _, source=source: source)
    for dotted, value in overrides.items():
        merge_over(values, nest(dotted.split("."), value), origins=origins, origin=lambda _: "flag")
    return Layers(values, origins, found, hidden)


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


def user_file() -> Path:
    """The settings file in the user's config folder; it may not exist."""
    return platformdirs.user_config_path("openclaw-a2a", appauthor=False) / FILE_NAME


def nest(keys: list[str], value: Json) -> JsonObject:
    """The value under the keys, outermost first."""
    for key in reversed(keys):
        value = {key: value}
    return value


def merge_over(
    below: JsonObject,
    above: JsonObject,
    *,
    origins: dict[str, str],
    origin: Callable[[str], str],
    path: str = "",
) -> None:
    """Merge `above` into `below`, member by member; `origin` says where a value of it is from."""
    for key, value in above.items():
        place = join_path(path, key)
        if not (is_object(value) and is_object(below.get(key))):
            # Whatever stood there is replaced as a whole.
            for known in [one for one in origins if f"{one}.".startswith(f"{place}.")]:
                del origins[known]
            below[key] = {} if is_object(value) else value
        if is_object(value) and value:
            merge_over(below[key], value, origins=origins, origin=origin, path=place)
        else:
            origins[place] = origin(place)
