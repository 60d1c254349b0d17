"""Validation that reports every problem at once, each with its path.

`ProblemCollector` gathers the problems of a reader. `read_section`, `read_struct` and `read_list`
read structs and keep the valid members beside the problems, as settings need it. `SchemaValidator`
finds the problems of a value that must be valid as a whole, and `invalid_params` makes the error
that lists them, as requests need it.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import cache
from itertools import islice
from types import NoneType
from typing import Any, TypeGuard, TypeVar, get_args, get_origin

import msgspec

from openclaw_a2a.model.errors import ContentTooLarge, InvalidParams, Problem
from openclaw_a2a.model.ids import Json, JsonObject

_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "a boolean"),
    ((int, float), "a number"),
    (str, "a string"),
    ((list, tuple), "a list"),
    (dict, "an object"),
)

MAX_PROBLEMS = 50
"""The maximum number of reported problems; after that the search stops."""

NOT_LISTED = "there may be more problems, which are not listed; solve these first"

_SMALL_VALUE = 500
"""How many members and items a value may have for all of its schema errors to be made."""

_TYPE_NAMES = {
    "string": "a string",
    "boolean": "a boolean",
    "integer": "an integer",
    "number": "a number",
    "array": "an array",
    "object": "an object",
}
_Struct = TypeVar("_Struct", bound=msgspec.Struct)
_EXPECTED = {
    "integer": "a whole number",
    "number": "a number",
    "string": "a string",
    "boolean": "true or false",
    "object": "an object",
}


class ProblemCollector:
    """The problems and warnings found so far, at most `MAX_PROBLEMS` of each."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []

    def problem(self, path: str, message: str, keyword: str | None = None) -> None:
        """Note a problem."""
        _note(self.problems, Problem(path, message, keyword))

    def warning(self, path: str, message: str, keyword: str | None = None) -> None:
        """Note something that was corrected or has no effect."""
        _note(self.warnings, Problem(path, message, keyword))

    def unknown_keys(self, path: str, values: JsonObject, known: Iterable[str]) -> None:
        """Note each key that is not known, with the nearest name that is."""
        names = list(known)
        for key in values:
            # To find the nearest name is slow: not for a key that is not listed anyway.
            if key not in names and len(self.problems) <= MAX_PROBLEMS:
                self.problem(join_path(path, key), unknown_key_message(key, names), "unknown-key")

    def as_object(self, path: str, value: Json) -> JsonObject:
        """The value when it is an object; anything else is a problem and reads as empty."""
        if is_object(value):
            return value
        self.problem(path, f"must be an object, not {json_kind(value)}", "type")
        return {}


def _note(found: list[Problem], problem: Problem) -> None:
    """Add a problem; instead of the first one past the most, the sentence that there are more."""
    if len(found) < MAX_PROBLEMS:
        found.append(problem)
    elif len(found) == MAX_PROBLEMS and problem not in found:
        found.append(Problem("", NOT_LISTED))


def is_object(value: Json) -> TypeGuard[JsonObject]:
    """True for a JSON object."""
    return isinstance(value, dict)


def is_list(value: Json) -> TypeGuard[list[Json]]:
    """True for a JSON list."""
    return isinstance(value, list)


def as_object(value: Json) -> JsonObject:
    """The value when it is an object, else an empty one."""
    return value if is_object(value) else {}


def as_list(value: Json) -> list[Json]:
    """The value when it is a list, else an empty one."""
    return value if is_list(value) else []


def object_at(values: JsonObject, *keys: str) -> JsonObject:
    """The object below the keys, outermost first; empty when there is none."""
    for key in keys:
        values = as_object(values.get(key))
    return values


def drop_none(members: JsonObject) -> JsonObject:
    """The members that have a value."""
    return {key: value for key, value in members.items() if value is not None}


def join_path(path: str, key: str) -> str:
    """The path of a member."""
    return f"{path}.{key}" if path else key


def camel_case(name: str) -> str:
    """A name of Python as JSON spells it: `page_size` is `pageSize`."""
    first, *others = name.split("_")
    return first + "".join(word.title() for word in others)


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
    """The error that lists the problems and names the first ones in its message.

    It takes no more of them than it lists, so `problems` may be a generator.
    """
    # Distinct, and in the order in which they were found.
    found = list(dict.fromkeys(islice(problems, MAX_PROBLEMS + 1)))
    listed = sorted(found[:MAX_PROBLEMS], key=lambda problem: (problem.path, problem.message))
    first = "; ".join(f"{problem.path[:200]} {problem.message}" for problem in listed[:5])
    more = f"; and {len(found) - 5} more" if len(found) > 5 else ""
    if len(found) > MAX_PROBLEMS:
        listed.append(Problem("params", NOT_LISTED))
        more = f"; and at least {len(found) - 5} more"
    return InvalidParams(f"{subject} are not valid: {first}{more}.", problems=tuple(listed))


def check_count(path: str, count: int, most: int, *, setting: str) -> None:
    """Refuse a list that is too long, before anything is done with its items.

    Raises: ContentTooLarge, which names the setting that is the limit.
    """
    if count > most:
        raise too_large(path, f"has {count} items; the most are {most}", "maxItems", setting)


def too_large(path: str, text: str, keyword: str, setting: str) -> ContentTooLarge:
    """What is larger than a setting allows."""
    text = f"{text} ({setting})"
    return ContentTooLarge(
        f"{path} {text}", problems=(Problem(path, text, keyword),), setting=setting
    )


def schema_errors(validator: Any, value: Json) -> list[Any]:
    """The errors of a JSON Schema validator: all of a small value, the first one of a large one.

    The validator makes the errors of all members and items before it returns the first, at some
    20 microseconds each. A megabyte of wrong items would take it many seconds.
    """
    if _is_small(value):
        return list(islice(validator.iter_errors(value), MAX_PROBLEMS))
    import jsonschema_rs

    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        return [error]
    return []


def _is_small(value: Json) -> bool:
    """True when a value has few members and items, on all levels together."""
    count, inner = 0, [value]
    while inner:
        one: Json = inner.pop()
        items: list[Json] = list(one.values()) if is_object(one) else one if is_list(one) else []
        if items:
            count += len(items)
            if count > _SMALL_VALUE:
                return False
            inner.extend(items)
    return True


class SchemaValidator:
    """Finds the problems of a JSON value against a msgspec type, one after the other.

    Meant for values that msgspec refused: it stops at the first problem. This goes through structs,
    lists and dicts itself, so that it costs no more than the problems that are taken from it, and
    leaves what is in them to a JSON Schema validator, which knows every constraint.
    `pattern_messages` are the messages for the patterns of the type.
    """

    def __init__(self, value_type: Any, *, pattern_messages: Mapping[str, str] = {}) -> None:
        self._type = value_type
        self._pattern_messages = pattern_messages
        self._validators: dict[Any, Any] = {}

    def problems(self, value: Json) -> Iterator[Problem]:
        """The problems, as they are found. The path of the value itself is `params`."""
        return self._find(self._type, "", value, "params")

    def _find(self, kind: Any, path: str, value: Json, root: str) -> Iterator[Problem]:
        wanted = plain_type(kind)
        if is_struct(wanted) and is_object(value):
            yield from self._find_members(wanted, path, value)
        elif get_origin(wanted) is tuple and is_list(value):
            yield from self._find_items(kind, path, value, get_args(wanted)[0])
        elif get_origin(wanted) is dict and is_object(value):
            item = get_args(wanted)[1]
            for key, one in value.items():
                if not _converts(item, one):
                    yield from self._find(item, join_path(path, key[:100]), one, root)
        else:
            for error in schema_errors(self._validator(kind), value):
                yield from self._problems_of(error, path, root)

    def _find_members(
        self, kind: type[msgspec.Struct], path: str, value: JsonObject
    ) -> Iterator[Problem]:
        fields = {field.encode_name: field for field in fields_of(kind)}
        for name, field in fields.items():
            if name in value:
                place = join_path(path, name)
                yield from self._find(field.type, place, value[name], place)
            elif field.required:
                yield Problem(join_path(path, name), "is required", "required")
        if kind.__struct_config__.forbid_unknown_fields:
            known = ", ".join(fields)
            for name in value:
                if name not in fields:
                    place = join_path(path, name[:100])
                    yield Problem(place, f"is not known; there are {known}", "unknown")

    def _find_items(self, kind: Any, path: str, value: list[Json], item: Any) -> Iterator[Problem]:
        for bounds in _length_bounds(kind):
            if bounds.max_length is not None and len(value) > bounds.max_length:
                text = f"has {len(value)} items; the most are {bounds.max_length}"
                yield Problem(path, text, "maxItems")
                return  # counted first: then the items need no check
            if len(value) < (bounds.min_length or 0):
                yield Problem(path, "must not be empty", "minItems")
        for index, one in enumerate(value):
            if not _converts(item, one):
                place = f"{path}[{index}]"
                yield from self._find(item, place, one, place)

    def _validator(self, kind: Any) -> Any:
        validator = self._validators.get(kind)
        if validator is None:
            # Imported with the first invalid value: valid ones never need it.
            import jsonschema_rs

            schema = msgspec.json.schema(kind)
            validator = jsonschema_rs.validator_for(schema, validate_formats=True)
            self._validators[kind] = validator
        return validator

    def _problems_of(self, error: Any, path: str, root: str) -> Iterator[Problem]:
        kind = error.kind
        if kind.name == "anyOf":
            # An optional member fails both its type and null; only the first is reported.
            for inner in kind.context[0]:
                yield from self._problems_of(inner, path, root)
            return
        steps = path_of(error.instance_path)
        place = f"{path}{'' if steps.startswith('[') or not path or not steps else '.'}{steps}"
        yield Problem(place or root, self._message(error), kind.name)

    def _message(self, error: Any) -> str:
        kind = error.kind
        match kind.name:
            case "type":
                names: list[str] = list(kind.types)
                expected = " or ".join(_TYPE_NAMES.get(name, name) for name in names)
                given = "an array" if is_list(error.instance) else json_kind(error.instance)
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


def _converts(kind: Any, value: Json) -> bool:
    """True for a value of the type: a fast check, because most items are valid."""
    try:
        msgspec.convert(value, kind)
    except (ValueError, RecursionError):
        return False
    return True


def _length_bounds(kind: Any) -> Iterator[msgspec.Meta]:
    """The bounds of a type, also inside of `| None`."""
    for one in (kind, *get_args(kind)):
        for meta in getattr(one, "__metadata__", ()):
            if isinstance(meta, msgspec.Meta):
                yield meta


# -------------------------------------------------------------------- structs with problems
#
# `msgspec.convert` stops at the first problem and returns nothing. Settings need all problems, and
# the valid members nevertheless, so that the checks that follow find the other problems too.


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
    needed = [field.name for field in fields_of(kind) if field.required]
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


@cache
def fields_of(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """The fields of a struct. To work them out takes long, and their types do not change."""
    return msgspec.structs.fields(kind)


def is_struct(kind: Json) -> TypeGuard[type[msgspec.Struct]]:
    """True for a msgspec struct type."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _members(
    kind: type[msgspec.Struct], path: str, *, value: Json, collector: ProblemCollector
) -> JsonObject:
    """The valid members, by their Python names."""
    values = collector.as_object(path, value)
    fields = fields_of(kind)
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
    wanted = plain_type(kind)
    if is_struct(wanted) and not _is_null(kind, value):
        found = read_struct(wanted, path, value=value, collector=collector)
        return msgspec.UNSET if found is None else found
    is_struct_dict = get_origin(wanted) is dict and is_struct(get_args(wanted)[1])
    if is_struct_dict and not _is_null(kind, value):
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


def plain_type(kind: Json) -> Json:
    """The type without its annotations and without `| None`."""
    if hasattr(kind, "__metadata__"):
        return plain_type(kind.__origin__)
    options = [one for one in get_args(kind) if one is not NoneType]
    is_optional = len(options) < len(get_args(kind))
    return plain_type(options[0]) if is_optional and len(options) == 1 else kind


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
        given = "" if is_list(value) else f", not {_describe_value(value)}"
        return f"must be {_list_of(schema.get('items', {}))}{given}"
    expected = _EXPECTED.get(schema.get("type", ""), "something else") + _bounds(schema)
    return f"must be {expected}, not {_describe_value(value)}"


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


def _describe_value(value: Json) -> str:
    if value == "":
        return "an empty string"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value:.10g}" if is_number and abs(value) < 1e300 else json_kind(value)
