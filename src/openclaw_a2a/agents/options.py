"""The options of an agent, checked: every problem is found at once, with its path."""

from typing import TypeVar

import jsonschema_rs
import msgspec

from openclaw_a2a.model.errors import Problem, SettingsInvalid
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.settings.report import join, unknown_key

_Options = TypeVar("_Options", bound=msgspec.Struct)


def read_options(kind: type[_Options], options: JsonObject, *, path: str) -> _Options:
    """The options as a struct. Raises: SettingsInvalid; paths of problems start with `path`."""
    try:
        return msgspec.convert(options, kind)
    except msgspec.ValidationError as error:
        problems = _problems(kind, options, path) or (Problem(path, str(error)),)
    raise wrong_options(problems)


def wrong_options(problems: tuple[Problem, ...]) -> SettingsInvalid:
    """The error that lists every problem of an agent's options."""
    sentences = "; ".join(f"{problem.path}: {problem.message}" for problem in problems)
    return SettingsInvalid(f"The agent's options are wrong. {sentences}", problems=problems)


def _problems(kind: type[msgspec.Struct], options: JsonObject, path: str) -> tuple[Problem, ...]:
    fields = msgspec.structs.fields(kind)
    known = [field.encode_name for field in fields]
    unknown = [
        Problem(join(path, key), unknown_key(key, known), "unknown-key")
        for key in options
        if key not in known
    ]
    missing = [
        Problem(join(path, field.encode_name), "is missing; set it", "required")
        for field in fields
        if field.required and field.encode_name not in options
    ]
    return (*unknown, *missing, *_wrong_values(kind, options, path))


def _wrong_values(kind: type[msgspec.Struct], options: JsonObject, path: str) -> list[Problem]:
    # The value is never quoted: it may be a secret.
    validator = jsonschema_rs.validator_for(msgspec.json.schema(kind), mask="the value")
    return [
        Problem(_place(path, error.instance_path), _sentence(error), error.kind.name)
        for error in validator.iter_errors(options)
        if error.instance_path
    ]


def _sentence(error: jsonschema_rs.ValidationError) -> str:
    if error.kind.name == "type" and getattr(error.kind, "types", None) == ["array"]:
        return 'must be a list of strings, for example ["rev"]'
    return error.message


def _place(path: str, steps: list[Json]) -> str:
    for step in steps:
        path = f"{path}[{step}]" if isinstance(step, int) else join(path, step)
    return path
