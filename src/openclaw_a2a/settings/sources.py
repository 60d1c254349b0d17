"""The sources of settings: file, environment and flags, merged, with the origin of every value."""

import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

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
    json_kind,
    object_at,
    read_section,
    unknown_key_message,
)
from openclaw_a2a.settings.file_schema import FileKeys, member_kind, names_of
from openclaw_a2a.settings.files import FileError, expand_path, read_json5_object

_Struct = TypeVar("_Struct", bound=msgspec.Struct)

PREFIX = "OPENCLAW_A2A_"
UNKNOWN_VARIABLE = "unknown-variable"
"""The keyword of warnings about variables with our prefix that are not settings."""

FILE_NAME = "openclaw-a2a.json5"
HIDDEN_FILE = "hidden-file"
"""Keyword of the warning about a settings file that is not read."""

_MAX_BYTES = 4 * 1024 * 1024
# Variables of commands, and CACHE of the development script: no settings and no mistakes.
_FOR_COMMANDS = frozenset({"URL", "TOKEN", "CONFIG", "CACHE"})


ReportHiddenFile = Callable[[Path, Path], None]
"""Gets the settings file that is used, and the one that is not read because of it."""


@dataclass
class _HiddenFileReporter:
    report: ReportHiddenFile
    is_done: bool = False


_hidden_file_reporter: ContextVar[_HiddenFileReporter | None] = ContextVar(
    "hidden_file_reporter", default=None
)


@contextmanager
def report_hidden_file(report: ReportHiddenFile) -> Generator[None]:
    """Within the block, report a hidden settings file once, however the settings are read.

    What `check_settings` finds is not reported: its result has the warning.
    """
    before = _hidden_file_reporter.set(_HiddenFileReporter(report))
    try:
        yield
    finally:
        _hidden_file_reporter.reset(before)


class CommandEnvironment(msgspec.Struct, frozen=True):
    """What commands read from the environment: a gateway's URL, a token, and no colour."""

    url: str | None = None
    token: str | None = None
    no_colour: bool = False


def process_environment(given: Mapping[str, str] | None) -> Mapping[str, str]:
    """The given environment, else that of this process."""
    return os.environ if given is None else given


def read_command_environment() -> CommandEnvironment:
    """OPENCLAW_A2A_URL, OPENCLAW_A2A_TOKEN and NO_COLOR, when they are not blank."""
    environment = process_environment(None)
    url, token = (environment.get(PREFIX + name, "").strip() or None for name in ("URL", "TOKEN"))
    return CommandEnvironment(url, token, bool(environment.get("NO_COLOR")))


def _read_environment(reader: "SettingsReader") -> Iterator[tuple[str, JsonObject]]:
    """Each setting in the environment, by its variable's name without the prefix.

    A double underscore goes one level down. Keys match regardless of case, with or without single
    underscores. If the values known so far have an id, its spelling there is used.
    """
    for variable in sorted(name for name in reader.environ if name.startswith(PREFIX)):
        name = variable.removeprefix(PREFIX)
        if name in _FOR_COMMANDS:
            continue
        segments = name.split("__")
        if len(segments) == 1 and _spelling(segments[0], names_of(FileKeys)) is None:
            reader.warning(variable, f"{_unknown(variable)} (ignored)", UNKNOWN_VARIABLE)
            continue
        yield name, _nest_variable(segments, reader.environ[variable], values=reader.values)


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


def _nest_variable(segments: list[str], text: str, *, values: JsonObject) -> JsonObject:
    keys: list[str] = []
    kind: Json = FileKeys
    for segment in segments:
        keys.append(_key(segment, kind, object_at(values, *keys)))
        kind = member_kind(kind, keys[-1])
    return _nest(keys, _value(text, kind))


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


class SettingsReader(ProblemCollector):
    """All sources, merged (flags over environment over file), and the problems found in them.

    `origins` has the source of each value by its dotted path. Relative paths start at `folder`:
    that of the file, or the working directory. A settings file that is not read, because the
    working folder has one too, is a warning; with `reports_hidden_file` it is reported at once.
    """

    def __init__(
        self,
        path: Path | None,
        environ: Mapping[str, str] | None,
        overrides: Mapping[str, Json],
        *,
        reports_hidden_file: bool = True,
    ) -> None:
        super().__init__()
        self.environ = process_environment(environ)
        self.values: JsonObject = {}
        self.origins: dict[str, str] = {}
        self.path = self._find_file(path, reports_hidden=reports_hidden_file)
        self.folder = self.path.parent if self.path else Path.cwd()
        if self.path is not None:
            try:
                read = read_json5_object(self.path, max_bytes=_MAX_BYTES)
                self._merge(read, f"file {self.path.name}")
            except FileError as error:
                self.problem(str(self.path), str(error), error.keyword)
        for name, nested in _read_environment(self):
            self._merge(nested, f"environment {PREFIX}{name}")
        for dotted, value in overrides.items():
            self._merge(_nest(dotted.split("."), value), "flag")

    def _find_file(self, path: Path | None, *, reports_hidden: bool) -> Path | None:
        """The file to read; a second file that is ignored because of it is a warning."""
        named = _configured_path(path, self.environ)
        if named is not None:
            return named
        usual = [one for one in (Path.cwd() / FILE_NAME, user_file()) if one.is_file()]
        if len(usual) < 2 or usual[0].samefile(usual[1]):
            return next(iter(usual), None)
        found, hidden = usual
        message = (
            f"is not read, because {found} is used here; name it with --config, or move the "
            "settings into one file"
        )
        self.warning(str(hidden), message, HIDDEN_FILE)
        reporter = _hidden_file_reporter.get()
        if reporter is not None and not reporter.is_done:
            reporter.is_done = True
            if reports_hidden:
                reporter.report(found, hidden)
        return found

    def _merge(self, above: JsonObject, source: str) -> None:
        _merge_over(self.values, above, origins=self.origins, origin=lambda _: source)

    def add_defaults(self, below: JsonObject, source: str) -> None:
        """Add what no other source has; what is given already keeps its value and its origin."""
        merged: JsonObject = {}
        origins: dict[str, str] = {}
        _merge_over(merged, below, origins=origins, origin=lambda _: source)
        _merge_over(merged, self.values, origins=origins, origin=self.origins.__getitem__)
        self.values, self.origins = merged, origins

    def read_object(self, path: str) -> JsonObject:
        """The object at a dotted path; empty when it is absent, or (with a problem) no object."""
        *parents, last = path.split(".")
        parent = object_at(self.values, *parents)  # a value that is no object is reported elsewhere
        return self.as_object(path, parent[last]) if last in parent else {}

    def read_section(self, kind: type[_Struct], path: str) -> _Struct:
        """The section at a dotted path; members that are wrong have their defaults."""
        *parents, last = path.split(".")
        value = object_at(self.values, *parents).get(last, {})
        return read_section(kind, path, value=value, collector=self)

    def check_keys(self, path: str, kind: type[msgspec.Struct]) -> None:
        """Note each unknown key of the object at a dotted path."""
        self.unknown_keys(path, self.read_object(path), names_of(kind))

    def read_path(self, key: str, value: Json) -> Path | None:
        """The absolute path; None, with a problem, when the value is none."""
        if not isinstance(value, str):
            self.problem(key, f"must be a string, not {json_kind(value)}", "type")
            return None
        try:
            return expand_path(value.strip(), self.folder)
        except ValueError as error:
            self.problem(key, f"cannot be used: {error}", "path")
            return None

    def invalid(self) -> SettingsInvalid:
        """The error for the problems found so far."""
        return settings_invalid(self.problems, origins=self.origins, path=self.path)


def _configured_path(path: Path | None, environ: Mapping[str, str]) -> Path | None:
    named = environ.get(f"{PREFIX}CONFIG", "").strip()
    chosen = str(path) if path else named
    if not chosen:
        return None
    try:
        return expand_path(chosen, Path.cwd())
    except ValueError:
        # Reading it fails too, with an error that names the path.
        return Path(chosen)


def user_file() -> Path:
    """The settings file in the user's config folder; it may not exist."""
    return platformdirs.user_config_path("openclaw-a2a", appauthor=False) / FILE_NAME


def _nest(keys: list[str], value: Json) -> JsonObject:
    """The value under the keys, outermost first."""
    for key in reversed(keys):
        value = {key: value}
    return value


def _merge_over(
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
            # The value there is replaced as a whole.
            for known in [one for one in origins if f"{one}.".startswith(f"{place}.")]:
                del origins[known]
            below[key] = {} if is_object(value) else value
        if is_object(value) and value:
            _merge_over(below[key], value, origins=origins, origin=origin, path=place)
        else:
            origins[place] = origin(place)
