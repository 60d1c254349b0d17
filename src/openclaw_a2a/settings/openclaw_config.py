"""Reads OpenClaw's config file as OpenClaw does: JSON5, `$include`, `.env` and `${VARIABLES}`."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import is_list, is_object, object_at
from openclaw_a2a.settings.files import read_json5_object

_MAX_BYTES = 2 * 1024 * 1024
_MAX_FILES = 64
_MAX_INCLUDE_DEPTH = 10
_MAX_NESTING = 100
_MAX_NAME = 4096
_VARIABLE = re.compile(r"(\$?)\$\{([A-Z_][A-Z0-9_]*)\}")
_DOTENV_LINE = re.compile(r"^\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*?)\s*$")
_UNSET = frozenset({"", "undefined", "null"})


class OpenClawConfig(msgspec.Struct, frozen=True):
    """OpenClaw's config with its includes and variables; `warnings` say what is wrong with it.

    Texts are as written; `fill` substitutes variables.
    """

    path: Path
    values: JsonObject
    variables: dict[str, str]
    warnings: tuple[str, ...] = ()
    is_readable: bool = True

    def section(self, *keys: str) -> JsonObject:
        """The object below the keys; empty when there is none."""
        return object_at(self.values, *keys)

    def fill(self, value: Json) -> str | None:
        """The text with its variables substituted; None when it is no text or one is not set."""
        if not isinstance(value, str):
            return None
        # A second dollar sign escapes: $${NAME} is the text ${NAME}.
        named = [one[2] for one in _VARIABLE.finditer(value) if not one[1]]
        if not all(self.variables.get(name) for name in named):
            return None
        text = _VARIABLE.sub(lambda one: one[0][1:] if one[1] else self.variables[one[2]], value)
        return text.strip() or None


def config_path(environ: Mapping[str, str]) -> Path | None:
    """Where OpenClaw looks for its config; None when no home is known."""
    given = _expanded(environ.get("OPENCLAW_CONFIG_PATH", ""), environ)
    if given is not None:
        return given
    folder = state_folder(environ)
    return None if folder is None else folder / "openclaw.json"


def state_folder(environ: Mapping[str, str]) -> Path | None:
    """OpenClaw's state directory: the one given, the profile's, else `~/.openclaw`."""
    given = _expanded(environ.get("OPENCLAW_STATE_DIR", ""), environ)
    home = _home(environ)
    if given is not None or home is None:
        return given
    profile = environ.get("OPENCLAW_PROFILE", "").strip()
    is_named = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", profile)
    if is_named and profile.lower() != "default":
        return home / f".openclaw-{profile}"
    return home / ".openclaw"


def read_config(path: Path, environ: Mapping[str, str]) -> OpenClawConfig:
    """The config at this path. What is wrong with it becomes a warning, never an error."""
    reader = _Reader(path, environ)
    values = reader.read(path, depth=0)
    folder = state_folder(environ) or path.parent
    configured = object_at(values, "env", "vars").items()
    variables = {
        **{name: text for name, text in configured if isinstance(text, str) and text},
        **_dotenv(folder / ".env"),
        **{name: text for name, text in environ.items() if text},
    }
    return OpenClawConfig(path, values, variables, tuple(reader.warnings), reader.is_readable)


def _home(environ: Mapping[str, str]) -> Path | None:
    own = environ.get("HOME", "").strip() or environ.get("USERPROFILE", "").strip()
    given = environ.get("OPENCLAW_HOME", "").strip()
    if given in _UNSET:
        return Path(own) if own else None
    if given == "~" or given.startswith(("~/", "~\\")):
        return Path(own) / given[2:] if own else None
    return Path(given)


def _expanded(text: str, environ: Mapping[str, str]) -> Path | None:
    text = text.strip()
    if not text or "\0" in text:
        return None
    home = _home(environ)
    if home is not None and (text == "~" or text.startswith(("~/", "~\\"))):
        return home / text[2:]
    return Path(text).absolute()


class _Reader:
    """Reads one config and what it includes."""

    def __init__(self, path: Path, environ: Mapping[str, str]) -> None:
        self.warnings: list[str] = []
        self.is_readable = True
        self._main = path
        self._read: list[Path] = []
        roots = environ.get("OPENCLAW_INCLUDE_ROOTS", "").split(os.pathsep)
        expanded = (_expanded(root, environ) for root in roots)
        self._roots = [_real(root) for root in (path.parent, *expanded) if root is not None]

    def read(self, path: Path, *, depth: int) -> JsonObject:
        """The object in a file, with what it includes."""
        try:
            value = read_json5_object(path, max_bytes=_MAX_BYTES)
        except ValueError as error:
            self.warnings.append(f"{path} {error}")
            self.is_readable = self.is_readable and path != self._main
            return {}
        included = self._include(value, path, depth)
        return included if is_object(included) else {}

    def _include(self, value: Json, path: Path, depth: int) -> Json:
        """The value with every `$include` in it replaced by what it names."""
        if is_list(value):
            return [self._include(item, path, depth) for item in value]
        if not is_object(value):
            return value
        own: JsonObject = {
            key: self._include(member, path, depth)
            for key, member in value.items()
            if key != "$include"
        }
        if "$include" not in value:
            return own
        merged: JsonObject = {}
        names = value["$include"]
        for name in names if is_list(names) else [names]:
            if isinstance(name, str) and name and "\0" not in name and len(name) < _MAX_NAME:
                merged = _merge(merged, self._included(name, path, depth))
        return _merge(merged, own)

    def _included(self, name: str, path: Path, depth: int) -> JsonObject:
        place = _real(path.parent / name)
        if depth >= _MAX_INCLUDE_DEPTH or len(self._read) >= _MAX_FILES:
            reason = f"includes too many files; {name} is left out"
        elif not any(place.is_relative_to(root) for root in self._roots):
            reason = f"includes {name}, which is outside of the config's folder"
        elif place == _real(self._main):
            reason = f"includes {name}, which includes it"
        else:
            self._read.append(place)
            return self.read(place, depth=depth + 1)
        self.warnings.append(f"{path} {reason}")
        return {}


def _merge(below: JsonObject, above: JsonObject) -> JsonObject:
    merged = dict(below)
    for key, value in above.items():
        known = merged.get(key)
        merged[key] = _merge(known, value) if is_object(known) and is_object(value) else value
    return merged


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _dotenv(path: Path) -> dict[str, str]:
    """The variables of OpenClaw's own `.env`; a file that cannot be read has none."""
    try:
        with path.open("rb") as stream:
            text = stream.read(_MAX_BYTES).decode("utf-8-sig", "replace")
    except (OSError, ValueError):
        return {}
    variables: dict[str, str] = {}
    for found in filter(None, map(_DOTENV_LINE.match, text.splitlines())):
        name, value = found[1], found[2]
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'`":
            variables[name] = value[1:-1]
        elif value:
            variables[name] = re.sub(r"\s+#.*$", "", value)
    return variables
