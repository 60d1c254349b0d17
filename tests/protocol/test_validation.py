"""JSON from peers: what is refused, and that nothing else is."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.model.errors import ContentTooLarge, ParseFailed
from openclaw_a2a.protocol.validation import check_depth, check_value_count, parse_json

keys = st.sampled_from(["a", "b", ":", "a:b", '"', "\\", "é", "\n"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | keys,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=10,
)


def written(value, draw) -> str:
    """The value as JSON, with whitespace, escapes and, now and then, a member twice."""
    gap = draw(st.sampled_from(["", " ", "\n"]))
    if isinstance(value, dict):
        pairs = list(value.items())
        if pairs and draw(st.integers(0, 4)) == 0:
            pairs.append(draw(st.sampled_from(pairs)))
        members = [f"{name(key, draw)}{gap}:{gap}{written(item, draw)}" for key, item in pairs]
        return "{" + gap + ("," + gap).join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(written(item, draw) for item in value) + gap + "]"
    return name(value, draw) if isinstance(value, str) else json.dumps(value)


def name(text: str, draw) -> str:
    if text and draw(st.booleans()) and all(ord(letter) < 0x10000 for letter in text):
        return (
            '"'
            + "".join(f"\\u{ord(letter):04{draw(st.sampled_from('xX'))}}" for letter in text)
            + '"'
        )
    return json.dumps(text, ensure_ascii=draw(st.booleans()))


def has_twice(text: str) -> bool:
    found = []
    json.loads(text, object_pairs_hook=lambda pairs: found.append(len(dict(pairs)) < len(pairs)))
    return any(found)


@given(st.data())
def test_exactly_the_bodies_with_duplicate_members_are_refused(data):
    text = written(data.draw(values), data.draw)
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    if has_twice(text):
        with pytest.raises(ParseFailed, match="more than once"):
            parse_json(text.encode())
    else:
        assert parse_json(text.encode()) == json.loads(text)


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_json_or_refused(body: bytes):
    try:
        value = parse_json(body)
    except ParseFailed:
        return
    assert value == json.loads(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{} {}",
        b"{}x",
        b"\xef\xbb\xbf{}",
        b"NaN",
        b'{"a":NaN}',
        b"[Infinity]",
        b"1e999",
        b'{"a":-1e999}',
        b"1" * 400,
        b'{"a":' + b"9" * 5000 + b"}",
        b'"\xff"',
        b'{"a":"\xed\xa0\x80"}',
        b'"\\ud800"',
        b'"\\udc00 "',
        b'"a\nb"',
        b"{'a':1}",
        b'{"a":1,}',
        b"[" * 101 + b"]" * 101,
        b'{"a":' * 101 + b"1" + b"}" * 101,
        b"[" * 500_000 + b"]" * 500_000,
        b"[" * 500_000,
        b'["\\"]"' + b",[" * 100 + b"]" * 101,
        b"// no\n{}",
    ],
)
def test_invalid_json_is_refused(body: bytes):
    with pytest.raises(ParseFailed):
        parse_json(body)


@pytest.mark.parametrize(
    ("body", "member"),
    [
        (b'{"a":1,"a":1}', "a"),
        (b'{"x":[{"deep":{"n":1, "n" : 2}}]}', "n"),
        (b'{"a":1,"\\u0061":2}', "a"),
        (b'{"a":"\\u003a","a":"b"}', "a"),
        (b'{"a":"\\u003A:","b":1,"b":1}', "b"),
    ],
)
def test_a_duplicate_member_is_refused_by_name(body: bytes, member: str):
    with pytest.raises(ParseFailed, match=f"'{member}' more than once"):
        parse_json(body)


def test_a_duplicate_member_of_a_large_body_is_refused():
    members = b",".join(b'"k%d":":"' % n for n in range(50_000))
    parse_json(b"{" + members + b"}")
    with pytest.raises(ParseFailed, match="more than once"):
        parse_json(b"{" + members + b',"k7":2}')


@pytest.mark.parametrize("before", [b"", b"-", b"[1.5,", b'["1e-",'])
def test_an_integer_that_is_no_double_is_refused(before: bytes):
    after = b"]" if before.startswith(b"[") else b""
    for digits, is_double in ((b"1" + b"0" * 308, True), (b"9" * 309, False), (b"9" * 400, False)):
        body = before + digits + after
        if is_double:
            parse_json(body)
        else:
            with pytest.raises(ParseFailed, match="integer"):
                parse_json(body)


@pytest.mark.parametrize(
    "body", [b'"' + b"9" * 400 + b'"', b"0." + b"9" * 400, b"1e-" + b"0" * 400 + b"1"]
)
def test_long_digits_that_are_no_integer_are_fine(body: bytes):
    parse_json(body)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100 + b"]" * 100,
        b'[{"a":"[[[["},' * 1 + b"[]," * 5000 + b"1]",
        b'{"text":"' + b"[{" * 1000 + b'"}',
        b'{"text":"\\"' + b"[{" * 1000 + b'\\\\"}',
        b'{"text":"' + b"7" * 1000 + b'"}',
        b"[" + b"1" * 300 + b"]",
        b"[1" + b"0" * 308 + b"]",
        b'{"a":{"a":{"a":1}},"b":[{"a":1},{"a":1}]}',
        b'{"a":"\\u003a \\u003b","b":":"}',
        b' { "a" : 1 } ',
        b'{"a":1e-999}',
    ],
)
def test_unusual_json_is_accepted(body: bytes):
    assert parse_json(body) == json.loads(body)


TEXTS = st.text(alphabet='",{}[]\\\\a\n', max_size=8)
VALUES = st.recursive(
    TEXTS | st.integers(0, 9) | st.none(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=30,
)


@given(VALUES, st.sampled_from([(",", ":"), (", ", " : ")]), st.integers(65_520, 65_550))
def test_values_are_counted_outside_of_strings(value, separators, padding) -> None:
    text = json.dumps([" " * padding, value], separators=separators).encode()
    outside = re.sub(rb'"(?:[^"\\]|\\.)*"', b"", text)
    # Every value but the first of its list or object has a comma before it.
    count = sum(outside.count(mark) for mark in (b",", b"{", b"["))
    check_value_count(text, count + 1)
    with pytest.raises(ContentTooLarge):
        check_value_count(text, count)


@given(VALUES, st.integers(65_520, 65_550))
def test_brackets_in_strings_are_no_nesting(value, padding) -> None:
    # Deep enough for its brackets to be counted, and the text of it again as one string.
    deep = json.loads("[" * 98 + "]" * 98)
    text = json.dumps([" " * padding, json.dumps([value] * 40), deep]).encode()
    check_depth(text)
    with pytest.raises(ParseFailed):
        check_depth(b"[[" + text + b"]]")
