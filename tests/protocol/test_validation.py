"""JSON from peers: what is refused, and that nothing else is."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw_a2a.model.errors import ParseFailed
from openclaw_a2a.protocol.validation import check_json, parse_json

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
            check_json(text.encode())
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
        check_json(body)


@pytest.mark.parametrize(
    ("body", "member"),
    [
        (b'{"a":1,"a":1}', "a"),
        (b'{"x":[{"deep":{"n":1, "n" : 2}}]}', "n"),
        (b'{"a":1,"\\u0061":2}', "a"),
        (b'{"a":"\\u003a","a":"b"}', "a"),
        (b'{"a":"\\u003A:","b":1,"b":1}', "b"),
        (b"{" + b",".join(b'"k%d":1' % n for n in range(50_000)) + b',"k7":2}', "k7"),
    ],
)
def test_a_duplicate_member_is_refused_by_name(body: bytes, member: str):
    with pytest.raises(ParseFailed, match=f"'{member}' more than once"):
        check_json(body)


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
