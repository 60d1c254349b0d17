"""Where values stand in a JSON5 text, so that a file can be changed at one place and no other."""

import re
from collections.abc import Iterator

import msgspec
import pyjson5

_BETWEEN = re.compile(r"(?:\s|\ufeff|//[^\n\r\u2028\u2029]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""", re.DOTALL)
_WORD = re.compile(r"""[^\s,:\[\]{}"'/]+""")
_CLOSING = {"{": "}", "[": "]"}


class TextSpan(msgspec.Struct, frozen=True):
    """A value of a text: from `start` up to `end`; `key` when it is a member of an object."""

    start: int
    end: int
    key: str = ""


def root_span(text: str) -> TextSpan:
    """Where the value of the whole text stands. Raises: ValueError (it is no JSON5)."""
    start = _after_gap(text, 0)
    return TextSpan(start, _end(text, start))


def list_members(text: str, place: TextSpan) -> list[TextSpan]:
    """The members of the object, or the items of the list, that stands there.

    Raises: ValueError.
    """
    if text[place.start] not in _CLOSING:
        raise ValueError("neither an object nor a list stands there")
    return list(_members(text, place.start))


def find_member(text: str, place: TextSpan, key: str) -> TextSpan | None:
    """The member of the object under this key; the last one counts. Raises: ValueError."""
    found = [one for one in list_members(text, place) if one.key == key]
    return found[-1] if found and text[place.start] == "{" else None


def insert_member(text: str, place: TextSpan, lines: str) -> str:
    """The text with one more member at the end of what stands there.

    `lines` is the member as it is written without indentation, without a comma.

    Raises: ValueError.
    """
    known = list_members(text, place)
    close = place.end - 1
    line = text.rfind("\n", 0, close) + 1
    indent = text[line:close]
    has_own_line = not indent.strip() and line > place.start
    if has_own_line:
        at, added = line, f"{_indented(lines, indent + '  ')},\n"
    elif "\n" in lines:
        at, added = close, f"\n{_indented(lines, '  ')},\n"
    else:
        at, added = close, f" {lines}" if known else lines
    before = text[:at]
    if known and not _has_comma(text, known[-1].end):
        before = f"{text[: known[-1].end]},{text[known[-1].end : at]}"
    return before + added + text[at:]


def remove_value(text: str, place: TextSpan) -> str:
    """The text without the value that stands there, its comma, and the line it leaves empty."""
    comma = _after_gap(text, place.end)
    rest = text[place.end :]
    if text[comma : comma + 1] == ",":
        rest = text[place.end : comma] + text[comma + 1 :]
    before = text[: place.start]
    line = before.rfind("\n") + 1
    end = rest.find("\n")
    is_left_empty = not before[line:].strip() and end >= 0 and not rest[:end].strip()
    return before[:line] + rest[end + 1 :] if is_left_empty else before + rest


def _indented(lines: str, indent: str) -> str:
    return "\n".join(f"{indent}{line}" for line in lines.splitlines())


def _members(text: str, start: int) -> Iterator[TextSpan]:
    is_object = text[start] == "{"
    here = _after_gap(text, start + 1)
    while text[here : here + 1] != _CLOSING[text[start]]:
        key = ""
        if is_object:
            key, here = _key(text, here)
        end = _end(text, here)
        yield TextSpan(here, end, key)
        here = _after_gap(text, end)
        if text[here : here + 1] == ",":
            here = _after_gap(text, here + 1)
        elif text[here : here + 1] != _CLOSING[text[start]]:
            raise ValueError(f"a comma is missing at {here}")


def _key(text: str, start: int) -> tuple[str, int]:
    """A key, and where its value begins."""
    end = _end(text, start)
    name = text[start:end]
    colon = _after_gap(text, end)
    if text[colon : colon + 1] != ":":
        raise ValueError(f"a colon is missing at {colon}")
    is_quoted = name[:1] in {'"', "'"}
    return pyjson5.decode(name) if is_quoted else name, _after_gap(text, colon + 1)


def _end(text: str, start: int) -> int:
    """Where the value that begins there ends."""
    if text[start : start + 1] in _CLOSING:
        last = start
        for one in _members(text, start):
            last = one.end
        here = _after_gap(text, max(last, start + 1))
        return _after_gap(text, here + 1) + 1 if text[here] == "," else here + 1
    found = _STRING.match(text, start) or _WORD.match(text, start)
    if found is None:
        raise ValueError(f"a value is missing at {start}")
    return found.end()


def _has_comma(text: str, end: int) -> bool:
    here = _after_gap(text, end)
    return text[here : here + 1] == ","


def _after_gap(text: str, start: int) -> int:
    """The first place that is neither space nor comment."""
    found = _BETWEEN.match(text, start)
    return found.end() if found else start
