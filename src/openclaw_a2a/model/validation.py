"""Validation that reports every problem at once, each with its path.

`ProblemCollector` gathers the problems of a reader, `SchemaValidator` finds those of a JSON value
against a type, `invalid_params` makes the error that lists them.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import cached_property
from typing import Any, TypeGuard, cast

import msgspec

from openclaw_a2a.model.errors import InvalidParams, Problem
from openclaw_a2a.model.ids import Json, JsonObject

_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "a boolean"),
    ((int, float), "a number"),
    (str, "a string"),
    ((list, tuple), "a list"),
    (dict, "an object"),
)

MAX_PROBLEMS = 100
"""How many problems an error lists one by one; the rest is counted."""

_TYPE_NAMES = {
    "string": "a string",
    "boolean": "a boolean",
    "integer": "an integer",
    "number": "a number",
    "array": "an array",
    "object": "an object",
}
_VALUE_NAMES: dict[type, str] = {
    str: "a string",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    list: "an array",
    dict: "an object",
    type(None): "null",
}


class ProblemCollector:
    """The problems and warnings found so far."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []

    def problem(self, path: str, message: str, keyword: str | None = None) -> None:
        """Note a problem."""
        self.problems.append(Problem(path, message, keyword))

    def warning(self, path: str, message: str, keyword: str | None = None) -> None:
        """Note something that was corrected or has no effect."""
        self.warnings.append(Problem(path, message, keyword))

    def unknown_keys(self, path: str, values: JsonObject, known: Iterable[str]) -> None:
        """Note each key that is not known, with the nearest name that is."""
        names = list(known)
        for key in values:
            if key not in names:
                self.problem(join_path(path, key), unknown_key_message(key, names), "unknown-key")

    def as_object(self, path: str, value: Json) -> JsonObject:
        """The value when it is an object; anything else is a problem and reads as empty."""
        if is_object(value):
            return value
        self.problem(path, f"must be an object, not {json_kind(value)}", "type")
        return {}


def is_object(value: Json) -> TypeGuard[JsonObject]:
    """True for a JSON object."""
    return isinstance(value, dict)


def is_list(value: Json) -> TypeGuard[list[Json]]:
    """True for a JSON list."""
    return isinstance(value, list)


def object_at(values: JsonObject, *keys: str) -> JsonObject:
    """The object below the keys, outermost first; empty when there is none."""
    for key in keys:
        value = values.get(key)
        values = value if is_object(value) else {}
    return values


def join_path(path: str, key: str) -> str:
    """The path of a member."""
    return f"{path}.{key}" if path else key


def unknown_key_message(key: str, known: list[str]) -> str:
    """The sentence for a key we do not know."""
    return f"is not a setting; {suggest_name(key, known)}"


def suggest_name(key: str, known: list[str]) -> str:
    """Which name was meant, or which there are."""
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]}?"
    return f"known here: {', '.join(sorted(known))}" if known else "there are none here"


def json_kind(value: Json) -> str:
    """The JSON kind of a value in words; never the value, which may be a secret."""
    return next((words for kind, words in _KINDS if isinstance(value, kind)), "null")


def one_of(values: Iterable[str]) -> str:
    """The sentence that lists the values a setting can have."""
    return f"must be one of {', '.join(values)}"


def values_of(kind: type[Enum]) -> list[str]:
    """The values of an enumeration, as the file spells them."""
    return [str(member.value) for member in kind]


def path_of(steps: Iterable[str | int]) -> str:
    """The path of a member as people write it: `message.parts[0].text`."""
    path = ""
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return path.removeprefix(".")


def invalid_params(
    problems: Iterable[Problem], *, subject: str = "The parameters"
) -> InvalidParams:
    """The error that lists the problems and names the first ones in its message."""
    found = sorted(set(problems), key=lambda problem: (problem.path, problem.message))
    listed = found[:MAX_PROBLEMS]
    if len(found) > MAX_PROBLEMS:
        rest = f"{len(found) - MAX_PROBLEMS} more problems were found and are not listed"
        listed.append(Problem("params", rest))
    first = "; ".join(f"{problem.path[:200]} {problem.message}" for problem in listed[:5])
    more = f"; and {len(found) - 5} more" if len(found) > 5 else ""
    return InvalidParams(f"{subject} are not valid: {first}{more}.", problems=tuple(listed))


class SchemaValidator:
    """Finds every problem of a JSON value against a msgspec type.

    Meant for values that msgspec refused: it stops at the first problem, this lists all of them.
    `pattern_messages` are the messages for the patterns of the type.
    """

    def __init__(self, value_type: Any, *, pattern_messages: Mapping[str, str] = {}) -> None:
        self._type = value_type
        self._pattern_messages = pattern_messages

    def problems(self, value: Json, *, root: str = "params") -> list[Problem]:
        """Every problem; `root` is the path of the value itself."""
        errors = self._validator.iter_errors(value)
        return [problem for error in errors for problem in self._problems_of(error, root)]

    @cached_property
    def _validator(self) -> Any:
        # Imported with the first invalid value: valid ones never need it.
        import jsonschema_rs

        return jsonschema_rs.validator_for(self._schema, validate_formats=True)

    @cached_property
    def _schema(self) -> JsonObject:
        return msgspec.json.schema(self._type)

    def _members(self, schema_path: list[str | int]) -> list[str]:
        """The members that the object type at a place of the schema has."""
        schema: Any = self._schema
        for step in schema_path:
            schema = schema[step]
        return list(schema["properties"])

    def _problems_of(self, error: Any, root: str) -> Iterator[Problem]:
        kind, steps = error.kind, list(error.instance_path)
        if kind.name == "anyOf":
            # An optional member fails both its type and null; only the first is worth telling.
            for inner in kind.context[0]:
                yield from self._problems_of(inner, root)
        elif kind.name == "required":
            yield Problem(path_of([*steps, kind.property]), "is required", "required")
        elif kind.name == "additionalProperties":
            message = f"is not known; there are {', '.join(self._members(error.schema_path[:-1]))}"
            for name in kind.unexpected:
                yield Problem(path_of([*steps, str(name)[:100]]), message, "unknown")
        else:
            yield Problem(path_of(steps) or root, self._message(error), kind.name)

    def _message(self, error: Any) -> str:
        kind = error.kind
        match kind.name:
            case "type":
                names: list[str] = list(kind.types)
                expected = " or ".join(_TYPE_NAMES.get(name, name) for name in names)
                given = _VALUE_NAMES.get(type(cast(object, error.instance)), "something else")
                return f"must be {expected}, not {given}"
            case "enum":
                return f"must be {' or '.join(str(option) for option in kind.options)}"
            case "minimum":
                return f"must be at least {kind.limit}"
            case "maximum":
                return f"must be at most {kind.limit}, which is the maximum"
            case "minLength" | "minItems":
                return "must not be empty"
            case "maxLength":
                return f"must have at most {kind.limit} characters"
            case "pattern":
                return self._pattern_messages.get(kind.pattern, "is not valid")
            case "format":
                return "must be a time with its zone, such as 2026-01-31T12:00:00Z"
            case _:
                return "is not valid"
