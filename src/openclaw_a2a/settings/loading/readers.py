"""Reading where a wrong value is an error: every one is told, with its path."""

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
    kind: type[_Struct], path: str, *, value: Json, report: ProblemCollector
) -> _Struct:
    """The struct, all of whose members have defaults; each member that is wrong is a problem."""
    return kind(**_members(kind, path, value=value, report=report))


def read_struct(
    kind: type[_Struct], path: str, *, value: Json, report: ProblemCollector
) -> _Struct | None:
    """The struct; None, after noting why, when a member that it needs is missing or wrong."""
    members = _members(kind, path, value=value, report=report)
    needed = [field.name for field in msgspec.structs.fields(kind) if field.required]
    return kind(**members) if all(name in members for name in needed) else None


def read_list(
    kind: type[_Struct], path: str, *, value: Json, report: ProblemCollector
) -> list[tuple[str, _Struct]]:
    """The structs of a list that can be read, each with its path."""
    if not is_list(value):
        report.problem(path, f"must be a list, not {json_kind(value)}", "type")
        return []
    places = [(f"{path}[{index}]", one) for index, one in enumerate(value)]
    found = [(place, read_struct(kind, place, value=one, report=report)) for place, one in places]
    return [(place, one) for place, one in found if one is not None]


def is_struct(kind: Json) -> TypeGuard[type[msgspec.Struct]]:
    """True for the type of an object whose keys are known."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _members(
    kind: type[msgspec.Struct], path: str, *, value: Json, report: ProblemCollector
) -> JsonObject:
    """The members that are right, by their names in Python."""
    values = report.as_object(path, value)
    fields = msgspec.structs.fields(kind)
    report.unknown_keys(path, values, (field.encode_name for field in fields))
    members: JsonObject = {}
    for field in fields:
        place = join_path(path, field.encode_name)
        if field.encode_name in values:
            given = values[field.encode_name]
            members[field.name] = _read(field.type, place, value=given, report=report)
        elif field.required and is_object(value):
            report.problem(place, "is missing; set it", "required")
    return {name: member for name, member in members.items() if member is not msgspec.UNSET}


def _read(kind: Json, path: str, *, value: Json, report: ProblemCollector) -> Json:
    """The value as its type wants it; UNSET after noting why it is not."""
    wanted = _bare(kind)
    if is_struct(wanted) and not _is_left_out(kind, value):
        found = read_struct(wanted, path, value=value, report=report)
        return msgspec.UNSET if found is None else found
    if _is_table(wanted) and not _is_left_out(kind, value):
        member, given = get_args(wanted)[1], report.as_object(path, value)
        found = {
            key: _read(member, join_path(path, key), value=given[key], report=report)
            for key in given
        }
        return {key: one for key, one in found.items() if one is not msgspec.UNSET}
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        report.problem(path, wrong_value(kind, value), "type")
        return msgspec.UNSET


def _bare(kind: Json) -> Json:
    """The type of what is given, without its description and without "or nothing"."""
    if hasattr(kind, "__metadata__"):
        return _bare(kind.__origin__)
    options = [one for one in get_args(kind) if one is not NoneType]
    may_be_left_out = len(options) < len(get_args(kind))
    return _bare(options[0]) if may_be_left_out and len(options) == 1 else kind


def _is_table(kind: Json) -> bool:
    """True for structs by name."""
    return get_origin(kind) is dict and is_struct(get_args(kind)[1])


def _is_left_out(kind: Json, value: Json) -> bool:
    return value is None and NoneType in get_args(kind)


def wrong_value(wanted: Json, value: Json) -> str:
    """The sentence for a value that is not what the setting takes."""
    schema = _without_nothing(msgspec.json.schema(wanted))
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


def _without_nothing(schema: JsonObject) -> JsonObject:
    """The schema of what is given, where it may also be left out."""
    given = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    return given[0] if len(given) == 1 else schema


def _choice(schema: JsonObject) -> str:
    """What one of several kinds of value looks like."""
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
