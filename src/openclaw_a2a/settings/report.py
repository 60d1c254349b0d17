"""Collects everything wrong with the settings, so that all of it is said at once."""

import difflib
from collections.abc import Iterable
from enum import Enum
from typing import TypeGuard, TypeVar

import msgspec

from openclaw_a2a.model.errors import Problem
from openclaw_a2a.model.ids import Json, JsonObject

_Struct = TypeVar("_Struct", bound=msgspec.Struct)

_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "a boolean"),
    ((int, float), "a number"),
    (str, "a string"),
    ((list, tuple), "a list"),
    (dict, "an object"),
)


class Report:
    """The problems and warnings found so far."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []

    def problem(self, path: str, message: str, keyword: str | None = None) -> None:
        """Note something that keeps the gateway from starting."""
        self.problems.append(Problem(path, message, keyword))

    def warning(self, path: str, message: str, keyword: str | None = None) -> None:
        """Note something that was put right or is not in force."""
        self.warnings.append(Problem(path, message, keyword))

    def unknown_keys(self, path: str, values: JsonObject, known: Iterable[str]) -> None:
        """Note each key that is not known, with the nearest name that is."""
        names = list(known)
        for key in values:
            if key not in names:
                self.problem(join(path, key), unknown_key(key, names), "unknown-key")

    def as_object(self, path: str, value: Json) -> JsonObject:
        """The value when it is an object; anything else is a problem and reads as empty."""
        if is_object(value):
            return value
        self.problem(path, f"must be an object, not {kind_of(value)}", "type")
        return {}


def is_object(value: Json) -> TypeGuard[JsonObject]:
    """True for a JSON object."""
    return isinstance(value, dict)


def is_list(value: Json) -> TypeGuard[list[Json]]:
    """True for a JSON list."""
    return isinstance(value, list)


def join(path: str, key: str) -> str:
    """The path of a member."""
    return f"{path}.{key}" if path else key


def unknown_key(key: str, known: list[str]) -> str:
    """The sentence for a key we do not know."""
    return f"is not a setting; {nearest(key, known)}"


def nearest(key: str, known: list[str]) -> str:
    """Which name was meant, or which there are."""
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]}?"
    return f"known here: {', '.join(sorted(known))}" if known else "there are none here"


def kind_of(value: Json) -> str:
    """The JSON kind of a value in words; never the value, which may be a secret."""
    return next((words for kind, words in _KINDS if isinstance(value, kind)), "null")


def read_section(kind: type[_Struct], path: str, *, value: Json, report: Report) -> _Struct:
    """The struct with every member that is right; each one that is not is a problem."""
    values = report.as_object(path, value)
    fields = msgspec.structs.fields(kind)
    report.unknown_keys(path, values, (field.encode_name for field in fields))
    members: dict[str, Json] = {}
    for field in fields:
        if field.encode_name in values:
            try:
                members[field.name] = msgspec.convert(values[field.encode_name], field.type)
            except msgspec.ValidationError:
                sentence = wrong_value(field.type, values[field.encode_name])
                report.problem(join(path, field.encode_name), sentence, "type")
    return kind(**members)


def wrong_value(wanted: Json, value: Json) -> str:
    """The sentence for a value that is not what the setting takes."""
    schema = msgspec.json.schema(wanted)
    if "$ref" in schema:
        schema = next(iter(schema["$defs"].values()))
    if "enum" in schema:
        return one_of(schema["enum"])
    if "anyOf" in schema:
        return f"must be {' or '.join(_choice(one) for one in schema['anyOf'])}"
    expected = _EXPECTED.get(schema.get("type", ""), "something else") + _bounds(schema)
    return f"must be {expected}, not {_given(value)}"


def _choice(schema: JsonObject) -> str:
    """What one of several kinds of value looks like."""
    if "enum" in schema:
        return ", ".join(f'"{value}"' for value in schema["enum"])
    return "a list of strings" if schema.get("type") == "array" else "something else"


def one_of(values: Iterable[str]) -> str:
    """The sentence that lists the values a setting can have."""
    return f"must be one of {', '.join(values)}"


def values_of(kind: type[Enum]) -> list[str]:
    """The values of an enumeration, as the file spells them."""
    return [str(member.value) for member in kind]


_EXPECTED = {
    "integer": "a whole number",
    "number": "a number",
    "string": "a string",
    "boolean": "true or false",
    "object": "an object",
}


def _bounds(schema: JsonObject) -> str:
    if "minLength" in schema:
        return " that is not empty"
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    if low is None:
        return ""
    if "exclusiveMinimum" in schema:
        return f" above {low:g} and at most {schema['maximum']:.10g}"
    return f" from {low:g} to {schema['maximum']:.10g}"


def _given(value: Json) -> str:
    if value == "":
        return "an empty string"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value:.10g}" if is_number and abs(value) < 1e300 else kind_of(value)
