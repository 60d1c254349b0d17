"""Reads msgspec structs from JSON values; each wrong member is a problem with its own path.

`msgspec.convert` stops at the first problem and returns nothing. Settings need all problems at once
and the valid members nevertheless, so that the checks that follow find the other problems too.
"""

from types import NoneType
from typing import TypeGuard, TypeVar, get_args, get_origin

import msgspec

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import (
    ProblemCollector,
    is_list,
    is_object,
    join_path,
    json_kind,
    one_of,
)

_Struct = TypeVar("_Struct", bound=msgspec.Struct)
_EXPECTED = {
    "integer": "a whole number",
    "number": "a number",
    "string": "a string",
    "boolean": "true or false",
    "object": "an object",
}


def read_section(
    kind: type[_Struct], path: str, *, value: Json, collector: ProblemCollector
) -> _Struct:
    """The struct; all of its members have defaults, which replace wrong ones."""
    return kind(**_members(kind, path, value=value, collector=collector))


def read_struct(
    kind: type[_Struct], path: str, *, value: Json, collector: ProblemCollector
) -> _Struct | None:
    """The struct; None, with a problem, when a required member is missing or wrong."""
    members = _members(kind, path, value=value, collector=collector)
    needed = [field.name for field in msgspec.structs.fields(kind) if field.required]
    return kind(**members) if all(name in members for name in needed) else None


def read_list(
    kind: type[_Struct], path: str, *, value: Json, collector: ProblemCollector
) -> list[tuple[str, _Struct]]:
    """The valid structs of a list, each with its path."""
    if not is_list(value):
        collector.problem(path, f"must be a list, not {json_kind(value)}", "type")
        return []
    places = [(f"{path}[{index}]", one) for index, one in enumerate(value)]
    found = [
        (place, read_struct(kind, place, value=one, collector=collector)) for place, one in places
    ]
    return [(place, one) for place, one in found if one is not None]


def is_struct(kind: Json) -> TypeGuard[type[msgspec.Struct]]:
    """True for a msgspec struct type."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _members(
    kind: type[msgspec.Struct], path: str, *, value: Json, collector: ProblemCollector
) -> JsonObject:
    """The valid members, by their Python names."""
    values = collector.as_object(path, value)
    fields = msgspec.structs.fields(kind)
    collector.unknown_keys(path, values, (field.encode_name for field in fields))
    members: JsonObject = {}
    for field in fields:
        place = join_path(path, field.encode_name)
        if field.encode_name in values:
            given = values[field.encode_name]
            members[field.name] = _read(field.type, place, value=given, collector=collector)
        elif field.required and is_object(value):
            collector.problem(place, "is missing; set it", "required")
    return {name: member for name, member in members.items() if member is not msgspec.UNSET}


def _read(kind: Json, path: str, *, value: Json, collector: ProblemCollector) -> Json:
    """The converted value; UNSET, with a problem, when it does not fit."""
    wanted = _plain_type(kind)
    if is_struct(wanted) and not _is_null(kind, value):
        found = read_struct(wanted, path, value=value, collector=collector)
        return msgspec.UNSET if found is None else found
    if _is_struct_dict(wanted) and not _is_null(kind, value):
        member, given = get_args(wanted)[1], collector.as_object(path, value)
        found = {
            key: _read(member, join_path(path, key), value=given[key], collector=collector)
            for key in given
        }
        return {key: one for key, one in found.items() if one is not msgspec.UNSET}
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        collector.problem(path, _expected_message(kind, value), "type")
        return msgspec.UNSET


def _plain_type(kind: Json) -> Json:
    """The type without its annotations and without `| None`."""
    if hasattr(kind, "__metadata__"):
        return _plain_type(kind.__origin__)
    options = [one for one in get_args(kind) if one is not NoneType]
    is_optional = len(options) < len(get_args(kind))
    return _plain_type(options[0]) if is_optional and len(options) == 1 else kind


def _is_struct_dict(kind: Json) -> bool:
    """True for a dict of structs."""
    return get_origin(kind) is dict and is_struct(get_args(kind)[1])


def _is_null(kind: Json, value: Json) -> bool:
    return value is None and NoneType in get_args(kind)


def _expected_message(wanted: Json, value: Json) -> str:
    """The message for a value of the wrong type or out of range."""
    schema = _without_null(msgspec.json.schema(wanted))
    if "$ref" in schema:
        schema = next(iter(schema["$defs"].values()))
    if "enum" in schema:
        return one_of(schema["enum"])
    if "anyOf" in schema:
        return f"must be {' or '.join(_choice(one) for one in schema['anyOf'])}"
    if schema.get("type") == "array":
        given = "" if is_list(value) else f", not {_given(value)}"
        return f"must be {_list_of(schema.get('items', {}))}{given}"
    expected = _EXPECTED.get(schema.get("type", ""), "something else") + _bounds(schema)
    return f"must be {expected}, not {_given(value)}"


def _without_null(schema: JsonObject) -> JsonObject:
    """The schema without `null`."""
    given = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    return given[0] if len(given) == 1 else schema


def _choice(schema: JsonObject) -> str:
    """The description of one alternative of a union."""
    if "enum" in schema:
        return ", ".join(f'"{value}"' for value in schema["enum"])
    return _list_of(schema["items"]) if schema.get("type") == "array" else "something else"


def _list_of(item: JsonObject) -> str:
    if "enum" in item:
        return f"a list of {' and '.join(item['enum'])}"
    return "a list of strings" if item.get("type") == "string" else "a list"


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
    return f"{value:.10g}" if is_number and abs(value) < 1e300 else json_kind(value)
