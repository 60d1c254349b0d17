"""Field types of both protocol versions, strict JSON, and decoding with every problem.

Parsing is stricter than the standard where leniency would hide attacks. Decoding is fast when the
parameters are valid, and reports every problem when they are not.
"""

import base64
import binascii
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Annotated, Generic, TypeVar, cast

import msgspec
from msgspec import Meta

from openclaw_a2a.model.errors import InvalidParams, ParseFailed, Problem
from openclaw_a2a.model.ids import ContextId, Json, JsonObject, MessageId, TaskId
from openclaw_a2a.model.validation import SchemaValidator, invalid_params, is_object

MAX_ID_LENGTH = 256
"""How long ids from peers may be."""

MAX_HEADER_LENGTH = 4096
"""How long a value may be that is sent back to its peer as a header."""

# The patterns look no further than the longest value: that keeps them cheap on hostile input.
_NO_CONTROLS = rf"^(?![\s\S]{{0,{MAX_ID_LENGTH}}}[\x00-\x1f\x7f-\x9f])"
_FILLED = _NO_CONTROLS + rf"(?=[\s\S]{{0,{MAX_ID_LENGTH}}}\S)"
_HEADER_VALUE = rf"^(?! |[\s\S]{{0,{MAX_HEADER_LENGTH}}}([^\x20-\x7e]| \Z))"
_SCHEME = r"^(?![\s\S]{0,64}[^!#$%&'*+.^_`|~0-9A-Za-z-])"

PATTERN_MESSAGES = {
    _NO_CONTROLS: "must have no control characters",
    _FILLED: "must not be blank and must have no control characters",
    _HEADER_VALUE: "must have printable ASCII characters only, and no blank at either end",
    _SCHEME: "must be the name of an HTTP authentication scheme, such as Bearer",
}
"""What a value is told that does not match one of the patterns."""

_filled = Meta(min_length=1, max_length=MAX_ID_LENGTH, pattern=_FILLED)
_clean = Meta(max_length=MAX_ID_LENGTH, pattern=_NO_CONTROLS)

RequiredMessageId = Annotated[MessageId, _filled]
RequiredTaskId = Annotated[TaskId, _filled]
RequiredId = Annotated[str, _filled]
PossibleMessageId = Annotated[MessageId, _clean]
OptionalMessageId = PossibleMessageId | None
OptionalTaskId = Annotated[TaskId, _clean] | None
OptionalContextId = Annotated[ContextId, _clean] | None
OptionalId = Annotated[str, _clean] | None
TaskIds = tuple[Annotated[TaskId, _filled], ...] | None
WebAddress = Annotated[str, Meta(min_length=1, max_length=2048)]
InlineWebAddress = Annotated[str, Meta(max_length=2048)]
"""Inside a send: a push configuration without a URL is ignored."""
HeaderText = Annotated[str, Meta(max_length=MAX_HEADER_LENGTH, pattern=_HEADER_VALUE)]
SchemeName = Annotated[str, Meta(min_length=1, max_length=64, pattern=_SCHEME)]
Strings = tuple[str, ...] | None
HistoryLength = Annotated[int, Meta(ge=0, le=2**31 - 1)] | None

NOT_BASE64 = "must be base64"

_to_standard = str.maketrans("-_", "+/")


def standard_base64(text: str) -> str | None:
    """The same content as standard base64 with padding; None when the text is not base64.

    Both alphabets are accepted, with and without padding, as ProtoJSON requires of readers.
    """
    unpadded = text.translate(_to_standard).rstrip("=")
    try:
        content = base64.b64decode(unpadded + "=" * (-len(unpadded) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
    return base64.b64encode(content).decode("ascii")


def sent_parts(params: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """The parts of a message to be sent, each with its path; parameters may have any shape."""
    match params:
        case {"message": {"parts": [*parts]}}:
            for index, part in enumerate(parts):
                if isinstance(part, dict):
                    yield f"message.parts[{index}]", cast("JsonObject", part)
        case _:
            pass


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
        json.loads(body, object_pairs_hook=_unique_members, parse_int=_double_sized)
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
        if self._rules is not None and is_object(tree):
            found.extend(self._rules(tree))
        return found


def _problem_from_msgspec(reason: str) -> Problem:
    """An error text such as "Expected `int` - at `$.pageSize`" as a problem."""
    sentence, _, place = reason.partition(" - at `$")
    path = re.sub(r"^\.", "", place.rstrip("`"))
    return Problem(path or "params", f"is not valid: {sentence}")
