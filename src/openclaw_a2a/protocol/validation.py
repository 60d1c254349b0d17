"""Typed decoding that is fast when the input is right and lists every problem when it is not."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, Generic, TypeVar, cast

import msgspec

from openclaw_a2a.model.errors import InvalidParams, Problem
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.protocol.strict_json import parse_json

T = TypeVar("T")

Rules = Callable[[JsonObject], Iterable[Problem]]
"""What a type cannot say about some input; it must cope with members of any type."""

MAX_PROBLEMS = 100
"""How many problems are listed one by one; the rest is counted."""

MAX_ID_LENGTH = 256
"""How long ids of peers may be."""

# Looking no further than an id may reach keeps the patterns cheap on hostile input.
ID_PATTERN = rf"^(?![\s\S]{{0,{MAX_ID_LENGTH}}}[\x00-\x1f\x7f-\x9f])"
"""No control characters anywhere."""

FILLED_ID_PATTERN = ID_PATTERN + rf"(?=[\s\S]{{0,{MAX_ID_LENGTH}}}\S)"
"""No control characters, and something that is not blank."""

MAX_HEADER_LENGTH = 4096
"""How long a value may be that is sent back to its peer as a header."""

HEADER_PATTERN = rf"^(?! |[\s\S]{{0,{MAX_HEADER_LENGTH}}}([^\x20-\x7e]| \Z))"
"""Printable ASCII only, with no blank at either end."""

SCHEME_PATTERN = r"^(?![\s\S]{0,64}[^!#$%&'*+.^_`|~0-9A-Za-z-])"
"""The name of an authentication scheme."""

_KINDS: dict[type, str] = {
    str: "a string",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    list: "an array",
    dict: "an object",
    type(None): "null",
}
_TYPES: dict[str, str] = {
    "string": "a string",
    "boolean": "a boolean",
    "integer": "an integer",
    "number": "a number",
    "array": "an array",
    "object": "an object",
}
_PATTERNS = {
    ID_PATTERN: "must have no control characters",
    HEADER_PATTERN: "must have printable ASCII characters only, and no blank at either end",
    SCHEME_PATTERN: "must be the name of an HTTP authentication scheme, such as Bearer",
    FILLED_ID_PATTERN: "must not be blank and must have no control characters",
}
_SENTENCES: dict[str, Callable[[Any], str]] = {
    "enum": lambda kind: f"must be {' or '.join(str(option) for option in kind.options)}",
    "minimum": lambda kind: f"must be at least {kind.limit}",
    "maximum": lambda kind: f"must be at most {kind.limit}, which is the maximum",
    "minLength": lambda _: "must not be empty",
    "maxLength": lambda kind: f"must have at most {kind.limit} characters",
    "minItems": lambda _: "must not be empty",
    "pattern": lambda kind: _PATTERNS.get(kind.pattern, "is not valid"),
    "format": lambda _: "must be a time with its zone, such as 2026-01-31T12:00:00Z",
}


def path_of(steps: Iterable[str | int]) -> str:
    """The place of a member as people write it: `message.parts[0].text`."""
    path = ""
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return path.removeprefix(".") or "params"


def invalid_params(problems: Iterable[Problem]) -> InvalidParams:
    """The error that lists the problems, and names the first ones in its sentence."""
    found = sorted(set(problems), key=lambda problem: (problem.path, problem.message))
    listed = found[:MAX_PROBLEMS]
    if len(found) > MAX_PROBLEMS:
        rest = f"{len(found) - MAX_PROBLEMS} more problems were found and are not listed"
        listed.append(Problem("params", rest))
    first = "; ".join(f"{problem.path[:200]} {problem.message}" for problem in listed[:5])
    more = f"; and {len(found) - 5} more" if len(found) > 5 else ""
    return InvalidParams(f"The parameters are not valid: {first}{more}.", problems=tuple(listed))


class ParamsDecoder(Generic[T]):
    """A type that params must have, and the rules beyond it."""

    def __init__(self, params_type: type[T], rules: Rules | None = None) -> None:
        self._type = params_type
        self._rules: Rules = rules or _no_rules
        self._decoder = msgspec.json.Decoder(params_type)

    def decode(self, params: bytes) -> T:
        """The params as the type; the rules are not looked at.

        Raises:
            InvalidParams: they are of another type.
            ParseFailed: they are not JSON.
        """
        try:
            return self._decoder.decode(params)
        except (ValueError, RecursionError) as failure:
            reason = str(failure)
        raise self.refusal(params, reason)

    def refusal(self, params: bytes, reason: str = "something is not valid") -> InvalidParams:
        """Everything that is wrong with the params; `reason` is used when nothing is found.

        Raises:
            ParseFailed: they are not JSON.
        """
        tree = parse_json(params)
        return invalid_params(self.problems(tree) or [_problem_of(reason)])

    def problems(self, tree: Json) -> list[Problem]:
        """What is wrong with a JSON value."""
        found = [
            problem
            for error in self._validator.iter_errors(tree)
            for problem in _problems_of(error)
        ]
        if isinstance(tree, dict):
            found.extend(self._rules(cast(JsonObject, tree)))
        return found

    @cached_property
    def _validator(self) -> Any:
        # Loaded on the first wrong input: right input never needs it.
        import jsonschema_rs

        schema = msgspec.json.schema(self._type)
        return jsonschema_rs.validator_for(schema, validate_formats=True)


def _no_rules(_: JsonObject) -> Iterable[Problem]:
    return ()


def _problems_of(error: Any) -> Iterator[Problem]:
    """An optional member fails both its type and null; only the first is worth telling."""
    kind = error.kind
    if kind.name == "anyOf":
        for inner in kind.context[0]:
            yield from _problems_of(inner)
        return
    path = list(error.instance_path)
    if kind.name == "required":
        yield Problem(path_of([*path, kind.property]), "is required", "required")
    elif kind.name == "type":
        names = cast(list[str], kind.types)
        wanted = " or ".join(_TYPES.get(name, name) for name in names)
        given = _KINDS.get(type(cast(object, error.instance)), "something else")
        yield Problem(path_of(path), f"must be {wanted}, not {given}", "type")
    else:
        sentence = _SENTENCES.get(kind.name)
        message = sentence(kind) if sentence else "is not valid"
        yield Problem(path_of(path), message, kind.name)


def _problem_of(reason: str) -> Problem:
    """What msgspec says, such as "Expected `int` - at `$.pageSize`", as a problem."""
    sentence, _, place = reason.partition(" - at `$")
    path = re.sub(r"^\.", "", place.rstrip("`"))
    return Problem(path or "params", f"is not valid: {sentence}")
