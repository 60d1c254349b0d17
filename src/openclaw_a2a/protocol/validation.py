"""Parses JSON from peers strictly, and decodes parameters into types.

Parsing is stricter than the standard where leniency would hide attacks. Decoding is fast when the
parameters are valid, and reports every problem when they are not.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Generic, TypeVar, cast

import msgspec

from openclaw_a2a.model.errors import InvalidParams, ParseFailed, Problem
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import SchemaValidator, invalid_params
from openclaw_a2a.protocol.common_fields import PATTERN_MESSAGES

T = TypeVar("T")

Rules = Callable[[JsonObject], Iterable[Problem]]
"""Rules that a type cannot express; they must cope with members of any type."""

MAX_DEPTH = 100
"""How deep arrays and objects may be nested."""

MAX_DIGITS = 308
"""Integers up to this many digits fit a double, which most readers use."""

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_string = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"')
_digits_alike = bytes.maketrans(b"123456789", b"000000000")
_too_many_digits = b"0" * (MAX_DIGITS + 1)
# Brackets as signed bytes: one level down, one level up.
_steps = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_not_brackets = bytes(byte for byte in range(256) if byte not in b"[]{}")


def check_json(body: bytes) -> None:
    """Check that the bytes are JSON as we accept it.

    Raises:
        ParseFailed: not JSON, not UTF-8, nested too deep, a number out of range, or a member
            name twice in one object.
    """
    parse_json(body)


def parse_json(body: bytes) -> Json:
    """The value in the bytes, after the checks of `check_json`.

    Raises:
        ParseFailed: as `check_json`.
    """
    try:
        value = _decode(body)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as failure:
        raise ParseFailed(f"The body is not JSON: {failure}. Send one UTF-8 JSON value.") from None
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH:
        _check_depth(body)
    if _may_have_duplicates(body, value):
        _check_members_and_numbers(body)
    return value


def _may_have_duplicates(body: bytes, value: Json) -> bool:
    """False proves that no member is duplicated and no integer is too long.

    Every member has one colon, and of duplicate members the decoded value keeps one. So when the
    value, encoded again, has as many colons as the body, there is no duplicate, unless an escaped
    colon makes up for it.
    """
    return (
        _encode(value).count(b":") != body.count(b":")
        or b"\\u003" in body
        or (len(body) > MAX_DIGITS and _too_many_digits in body.translate(_digits_alike))
    )


def _check_depth(body: bytes) -> None:
    """Count the nesting of brackets outside of strings, in linear time."""
    outside = _string.sub(b"", body) if b"\\" in body else b"".join(body.split(b'"')[::2])
    steps = outside.translate(None, _not_brackets).translate(_steps)
    if max(accumulate(memoryview(steps).cast("b"))) > MAX_DEPTH:
        raise _too_deep()


def _check_members_and_numbers(body: bytes) -> None:
    json.loads(body, object_pairs_hook=_unique_members, parse_int=_double_sized)


def _unique_members(pairs: list[tuple[str, Json]]) -> JsonObject:
    members = dict(pairs)
    if len(members) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ParseFailed(
            f"The body has the member {twice[:100]!r} more than once in one object. Send it once."
        )
    return members


def _double_sized(digits: str) -> int:
    try:
        float(number := int(digits))
    except OverflowError:
        raise ParseFailed(
            f"The body has an integer of {len(digits)} digits. Send it as a string."
        ) from None
    return number


def _too_deep() -> ParseFailed:
    return ParseFailed(f"The body nests deeper than {MAX_DEPTH} levels. Send a flatter value.")


class ParamsDecoder(Generic[T]):
    """Decodes parameters of one type."""

    def __init__(self, params_type: type[T], rules: Rules | None = None) -> None:
        self._rules = rules
        self._decoder = msgspec.json.Decoder(params_type)
        self._validator = SchemaValidator(params_type, pattern_messages=PATTERN_MESSAGES)

    def decode(self, params: bytes) -> T:
        """The parameters as the type; the rules are not checked.

        Raises:
            InvalidParams: they are of another type.
            ParseFailed: they are not JSON.
        """
        try:
            return self._decoder.decode(params)
        except (ValueError, RecursionError) as failure:
            reason = str(failure)
        raise self.error(params, reason)

    def error(self, params: bytes, reason: str = "something is not valid") -> InvalidParams:
        """The error with every problem; `reason` is the problem when none is found.

        Raises:
            ParseFailed: they are not JSON.
        """
        tree = parse_json(params)
        return invalid_params(self.problems(tree) or [_problem_from_msgspec(reason)])

    def problems(self, tree: Json) -> list[Problem]:
        """Every problem of a JSON value, of its type and of the rules."""
        found = self._validator.problems(tree)
        if self._rules is not None and isinstance(tree, dict):
            found.extend(self._rules(cast(JsonObject, tree)))
        return found


def _problem_from_msgspec(reason: str) -> Problem:
    """An error text such as "Expected `int` - at `$.pageSize`" as a problem."""
    sentence, _, place = reason.partition(" - at `$")
    path = re.sub(r"^\.", "", place.rstrip("`"))
    return Problem(path or "params", f"is not valid: {sentence}")
