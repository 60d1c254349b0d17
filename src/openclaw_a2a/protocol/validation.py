"""Field types of both protocol versions, strict JSON, and decoding with every problem.

Parsing is stricter than the standard where leniency would hide attacks. Decoding is fast when the
parameters are valid, and reports every problem when they are not.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from enum import Enum, EnumType
from itertools import accumulate, chain
from typing import Annotated, Generic, TypeVar, Union, cast, get_args, get_origin

import msgspec
from msgspec import Meta

from openclaw_a2a.model.errors import (
    ContentTooLarge,
    InvalidParams,
    ParseFailed,
    Problem,
)
from openclaw_a2a.model.ids import ContextId, Json, JsonObject, MessageId, TaskId
from openclaw_a2a.model.validation import (
    SchemaValidator,
    check_count,
    fields_of,
    invalid_params,
    is_list,
    is_object,
    is_struct,
    join_path,
    plain_type,
    values_of,
)

MAX_ID_LENGTH = 256
"""How long ids from peers may be."""

MAX_ITEMS = 1000
"""How many ids or names a list of them may have."""

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
"""The messages for values that do not match one of the patterns."""

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
_many = Meta(max_length=MAX_ITEMS)
TaskIds = Annotated[tuple[Annotated[TaskId, _filled], ...], _many] | None
WebAddress = Annotated[str, Meta(min_length=1, max_length=2048)]
InlineWebAddress = Annotated[str, Meta(max_length=2048)]
"""Inside a send: a push configuration without a URL is ignored."""
HeaderText = Annotated[str, Meta(max_length=MAX_HEADER_LENGTH, pattern=_HEADER_VALUE)]
SchemeName = Annotated[str, Meta(min_length=1, max_length=64, pattern=_SCHEME)]
Strings = Annotated[tuple[str, ...], _many] | None
HistoryLength = Annotated[int, Meta(ge=0, le=2**31 - 1)] | None

NOT_BASE64 = "must be base64"


class Params(msgspec.Struct, frozen=True, rename="camel"):
    """Base of all parameters: camelCase, unknown members are ignored."""


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
                if is_object(part):
                    yield f"message.parts[{index}]", part
        case _:
            pass


def check_part_count(parts: Json, most: int | None) -> None:
    """Count the parts of a message before anything is done with each. Raises: InvalidParams."""
    if most is not None and isinstance(parts, list | tuple):
        count = len(cast("Sequence[Json]", parts))
        if count > most:
            check_count("message.parts", count, most, setting="limits.parts")


T = TypeVar("T")

Rules = Callable[[JsonObject], Iterable[Problem]]
"""Rules that a type cannot express; they must cope with members of any type."""

MAX_DEPTH = 100
"""How deep arrays and objects may be nested."""

MAX_DIGITS = 308
"""Integers up to this many digits fit a double, which most readers use."""

# As ProtoJSON spells a number in text; bounded, so that what it stands for is small too.
_NUMBER = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,2})?")
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_digits_alike = bytes.maketrans(b"123456789", b"000000000")
_too_many_digits = b"0" * (MAX_DIGITS + 1)
_long_integer = re.compile(rb"(?<![0-9.eE+])(?<![eE]-)[0-9]{%d,}+(?![.eE])" % (MAX_DIGITS + 1))
# Brackets as signed bytes: one level down, one level up.
_FLAT_LEVELS = 3
_same_brackets = bytes.maketrans(b"{}", b"[]")
_steps = bytes.maketrans(b"[]", b"\x01\xff")
_SLICE_BYTES = 64 * 1024
_not_colons = bytes(byte for byte in range(256) if byte not in b'":')
_not_values = bytes(byte for byte in range(256) if byte not in b'",{[')
_not_brackets = bytes(byte for byte in range(256) if byte not in b'"[]{}')


def parse_json(body: bytes) -> Json:
    """The value in the bytes, which must be JSON as we accept it.

    Raises:
        ParseFailed: not JSON, not UTF-8, nested too deep, a number out of range, or a member
            name twice in one object.
    """
    try:
        value = _decode(body)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as failure:
        raise ParseFailed(f"The body is not JSON: {failure}. Send one UTF-8 JSON value.") from None
    # Nearly every body passes these cheap checks; the exact ones below run only for the others.
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH:
        check_depth(body)
    if len(body) > MAX_DIGITS and _too_many_digits in body.translate(_digits_alike):
        _check_integers(body)
    # Every member has one colon, and of duplicate members the decoded value keeps one. So the
    # value, encoded again, has as many as the body. An escaped one could make up for a missing one.
    encoded = _encode(value)
    if encoded.count(b":") != body.count(b":") or b"\\u003" in body:
        _check_members(body, encoded)
    return value


def _check_integers(body: bytes) -> None:
    for digits in _long_integer.findall(b"".join(_marks_outside_strings(body, b""))):
        try:
            float(int(digits))
        except OverflowError:
            raise ParseFailed(
                f"The body has an integer of {len(digits)} digits. Send it as a string."
            ) from None


def _check_members(body: bytes, encoded: bytes) -> None:
    """Compare the colons outside of strings in a body and in its value, encoded again."""
    colons = [sum(map(len, _marks_outside_strings(text, _not_colons))) for text in (body, encoded)]
    if colons[0] != colons[1]:
        if len(body) <= _SLICE_BYTES:  # small enough to look for its name
            json.loads(body, object_pairs_hook=_unique_members)
        raise ParseFailed("The body has a member more than once in one object. Send it once.")


def check_value_count(body: bytes, limit: int) -> None:
    """Count the values of JSON before it is decoded: many small ones take long.

    Raises:
        ContentTooLarge: there are more than the limit.
    """
    # Every value but the first of its list or object has a comma before it. Those in strings
    # count as well at first: nearly always there are too few of either.
    if body.count(b",") + body.count(b"{") + body.count(b"[") < limit:
        return
    count = 0
    for marks in _marks_outside_strings(body, _not_values):
        count += len(marks)
        if count >= limit:
            raise ContentTooLarge(
                f"the body has more than {limit} values (limits.bodyValues); send fewer, or as a"
                " file",
                setting="limits.bodyValues",
            )


def _marks_outside_strings(body: bytes, others: bytes) -> Iterator[bytes]:
    """The bytes outside of the strings of JSON, without the others, of one slice after another.

    `others` has no quote in it. All of it is done by the methods of `bytes`: a loop or a pattern
    over a body of a megabyte would take ten times as long.
    """
    if b"\\" in body:  # no escaped quote is left, so that quotes come in pairs
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    is_in_string = 0
    for start in range(0, len(body), _SLICE_BYTES):
        marks = body[start : start + _SLICE_BYTES].translate(None, others)
        quotes = marks.count(b'"')
        # Two quotes side by side change nothing about what is in a string: few are left.
        while b'""' in marks:
            marks = marks.replace(b'""', b"")
        yield b"".join(marks.split(b'"')[is_in_string::2])
        is_in_string ^= quotes & 1


def check_depth(body: bytes) -> None:
    """Count the nesting of brackets outside of strings in JSON, in linear time.

    Raises:
        ParseFailed: it is nested too deep.
    """
    marks = b"".join(_marks_outside_strings(body, _not_brackets))
    brackets = marks.translate(_same_brackets)
    # The innermost levels are taken off first: lists of small values have few others. Each time
    # the rest is one level less deep.
    for _ in range(_FLAT_LEVELS):
        brackets = brackets.replace(b"[]", b"")
    if len(brackets) <= 2 * (MAX_DEPTH - _FLAT_LEVELS):
        return
    steps = brackets.translate(_steps)
    if max(accumulate(memoryview(steps).cast("b"))) > MAX_DEPTH - _FLAT_LEVELS:
        raise _too_deep()


def _unique_members(pairs: list[tuple[str, Json]]) -> JsonObject:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen = set[str]()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise ParseFailed(
            f"The body has the member {twice[:100]!r} more than once in one object. Send it once."
        )
    return members


def _too_deep() -> ParseFailed:
    return ParseFailed(f"The body nests deeper than {MAX_DEPTH} levels. Send a flatter value.")


class _MessageParts(msgspec.Struct, frozen=True):
    parts: tuple[msgspec.Raw, ...] = ()


class _PartsOfSend(msgspec.Struct, frozen=True):
    message: _MessageParts = _MessageParts()


_parts_decoder = msgspec.json.Decoder(_PartsOfSend)


def _undecoded_parts(params: bytes) -> Json:
    """The parts of a message to be sent, to be counted; none when the parameters have no list."""
    try:
        return _parts_decoder.decode(params).message.parts
    except (ValueError, RecursionError):
        return ()


class ParamsDecoder(Generic[T]):
    """Decodes parameters of one type.

    With `enums` they may have any spelling of ProtoJSON: members by their proto names, numbers as
    strings, values of enumerations by number (`enums` lists their names by number), null for
    what is absent. The usual spelling is decoded at once; any other one fails there, because the
    decoder's type has no value for a proto name, and is then respelled.
    """

    def __init__(
        self,
        params_type: type[T],
        rules: Rules | None = None,
        *,
        enums: Iterable[tuple[str, ...]] = (),
    ) -> None:
        self._rules = rules
        self._type = params_type
        self._enums = tuple(enums)
        decoded = refuse_proto_names(params_type) if self._enums else params_type
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(decoded)
        self._validator = SchemaValidator(params_type, pattern_messages=PATTERN_MESSAGES)

    def decode(self, params: bytes, *, max_parts: int | None = None) -> T:
        """The parameters as the type; the rules are not checked.

        `max_parts` is the most parts of a message, counted only when its type is not as it should
        be: then before its spelling and its problems are looked at.

        Raises:
            InvalidParams: they are of another type.
            ParseFailed: they are not JSON.
        """
        try:
            return self._decoder.decode(params)
        except (ValueError, RecursionError) as failure:
            reason = str(failure)
        if max_parts is not None:
            check_part_count(_undecoded_parts(params), max_parts)
        tree = parse_json(params)
        if self._enums:
            tree = self._respell(tree, self._type, "")
            try:
                return msgspec.convert(tree, self._type)
            except ValueError as failure:
                reason = str(failure)
        raise self._error(tree, reason)

    def error(self, params: bytes, reason: str = "something is not valid") -> InvalidParams:
        """The error with the problems; `reason` is the problem when none is found.

        Raises:
            ParseFailed: they are not JSON.
        """
        tree = parse_json(params)
        if self._enums:
            tree = self._respell(tree, self._type, "")
        return self._error(tree, reason)

    def _error(self, tree: Json, reason: str) -> InvalidParams:
        # Both look for problems as these are taken, and no more are taken than the error lists.
        found = self._validator.problems(tree)
        if self._rules is not None and is_object(tree):
            found = chain(found, self._rules(tree))
        error = invalid_params(found)
        return error if error.problems else invalid_params([_problem_from_msgspec(reason)])

    def _respell(self, value: Json, kind: Json, path: str) -> Json:
        """The value in the usual spelling; what does not fit its type stays as it is.

        Raises: InvalidParams (a member under both of its names).
        """
        wanted = plain_type(kind)
        if is_struct(wanted) and is_object(value):
            return self._respell_members(value, wanted, path)
        if get_origin(wanted) is tuple and is_list(value):
            item = get_args(wanted)[0]
            if _is_text(item):
                return value  # there is one spelling of a text, however many there are
            return [self._respell(one, item, f"{path}[{index}]") for index, one in enumerate(value)]
        number = _whole_number(value)
        if number is None or wanted is int:
            return value if number is None else number
        for names in self._enums:
            if _is_enum_of(wanted, names) and 0 <= number < len(names):
                return names[number]
        return value

    def _respell_members(
        self, members: JsonObject, kind: type[msgspec.Struct], path: str
    ) -> JsonObject:
        respelled: JsonObject = {}
        for field in fields_of(kind):
            name, place = field.encode_name, join_path(path, field.encode_name)
            spellings = [one for one in dict.fromkeys((name, field.name)) if one in members]
            if len(spellings) > 1:
                both = f"is there twice, as {name} and as {field.name}; send it once"
                raise invalid_params([Problem(place, both, "twice")])
            # A null is an absent member, unless any value is allowed.
            if spellings and (members[spellings[0]] is not None or _takes_any(field.type)):
                respelled[name] = self._respell(members[spellings[0]], field.type, place)
        return respelled


_NOTHING = Annotated[str, Meta(min_length=1, max_length=0)]
"""A type without values."""


def refuse_proto_names(kind: type[T]) -> type[T]:
    """A subtype that decodes as the struct does, and fails where a member has its proto name.

    So a decoder that ignores unknown members notices the other name of a known one at no cost.
    """
    fields: list[tuple[str, Json, Json]] = []
    for field in msgspec.structs.fields(cast(Json, kind)):
        replaced = _replace_structs(field.type)
        if replaced is not field.type:
            default = {} if field.required else {"default": field.default}
            fields.append((field.name, replaced, msgspec.field(**default)))
        if field.encode_name != field.name:
            alias = msgspec.field(name=field.name, default=msgspec.UNSET)
            fields.append((f"{field.name}_by_proto_name", _NOTHING | msgspec.UnsetType, alias))
    if not fields:
        return kind
    subtype = msgspec.defstruct(
        kind.__name__, fields, bases=(cast(Json, kind),), frozen=True, kw_only=True
    )
    return cast("type[T]", subtype)


def _replace_structs(kind: Json) -> Json:
    """The type with the structs in it replaced."""
    if is_struct(kind):
        return refuse_proto_names(kind)
    if hasattr(kind, "__metadata__"):
        replaced = _replace_structs(kind.__origin__)
        return kind if replaced is kind.__origin__ else Annotated[replaced, *kind.__metadata__]
    arguments = get_args(kind)
    replaced = tuple(_replace_structs(one) for one in arguments)
    if all(new is old for new, old in zip(replaced, arguments, strict=True)):
        return kind
    return tuple[replaced] if get_origin(kind) is tuple else Union[replaced]  # noqa: UP007 - its arguments are computed


def _whole_number(value: Json) -> int | None:
    if isinstance(value, str):
        number = Decimal(value) if _NUMBER.fullmatch(value) else None
        return int(number) if number is not None and number == int(number) else None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if is_number and value == int(value) else None


def _is_enum_of(kind: Json, names: tuple[str, ...]) -> bool:
    """True for an enumeration, or literals, with only these names."""
    is_enum = isinstance(kind, EnumType)
    values = values_of(cast("type[Enum]", kind)) if is_enum else list(get_args(kind))
    return bool(values) and set(values).issubset(names)


def _is_text(kind: Json) -> bool:
    plain = plain_type(kind)
    return getattr(plain, "__supertype__", plain) is str


def _takes_any(kind: Json) -> bool:
    return kind is Json or Json in get_args(kind)


def _problem_from_msgspec(reason: str) -> Problem:
    """An error text such as "Expected `int` - at `$.pageSize`" as a problem."""
    sentence, _, place = reason.partition(" - at `$")
    path = re.sub(r"^\.", "", place.rstrip("`"))
    return Problem(path or "params", f"is not valid: {sentence}")
