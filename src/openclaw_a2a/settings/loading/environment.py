"""Reads settings from environment variables; the only place that reads the environment."""

import os
import re
from collections.abc import Iterator, Mapping

import msgspec
import pyjson5

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import (
    ProblemCollector,
    is_object,
    is_struct,
    unknown_key_message,
)
from openclaw_a2a.settings.schema.file_schema import FileKeys, member_kind, names_of

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
