"""Positions of values in a JSON5 text, so that one span of a file can be edited."""

import re
from collections.abc import Iterator

import msgspec
import pyjson5

_WHITESPACE = re.compile(r"(?:\s|\ufeff|//[^\n\r\u2028\u2029]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""", re.DOTALL)
_WORD = re.compile(r"""[^\s,:\[\]{}"'/]+""")
_CLOSING = {"{": "}", "[": "]"}


class TextSpan(msgspec.Struct, frozen=True):
    """A value in a text: from `start` up to `end`; `key` when it is a member of an object."""

    start: int
    end: int
    key: str = ""


def root_span(text: str) -> TextSpan:
    """The position of the root value. Raises: ValueError (it is not JSON5)."""
    start = _skip_whitespace(text, 0)
    return TextSpan(start, _end(text, start))


def list_members(text: str, span: TextSpan) -> list[TextSpan]:
    """The members of the object, or the items of the list, at this position.

    Raises: ValueError.
    """
    if text[span.start] not in _CLOSING:
        raise ValueError("neither an object nor a list stands there")
    return list(_members(text, span.start))


def find_member(text: str, span: TextSpan, key: str) -> TextSpan | None:
    """The member of the object under this key; the last one counts. Raises: ValueError."""
    found = [one for one in list_members(text, span) if one.key == key]
    return found[-1] if found and text[span.start] == "{" else None


def insert_member(text: str, span: TextSpan, lines: str) -> str:
    """The text with one more member at the end of the object or list.

    `lines` is the member without indentation and without a comma.

    Raises: ValueError.
    """
    known = list_members(text, span)
    close = span.end - 1
    line = text.rfind("\n", 0, close) + 1
    indent = text[line:close]
    has_own_line = not indent.strip() and line > span.start
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


def remove_value(text: str, span: TextSpan) -> str:
    """The text without the value, its comma, and the line if it is empty then."""
    comma = _skip_whitespace(text, span.end)
    rest = text[span.end :]
    if text[comma : comma + 1] == ",":
        rest = text[span.end : comma] + text[comma + 1 :]
    before = text[: span.start]
    line = before.rfind("\n") + 1
    end = rest.find("\n")
    is_left_empty = not before[line:].strip() and end >= 0 and not rest[:end].strip()
    return before[:line] + rest[end + 1 :] if is_left_empty else before + rest


def _indented(lines: str, indent: str) -> str:
    return "\n".join(f"{indent}{line}" for line in lines.splitlines())


def _members(text: str, start: int) -> Iterator[TextSpan]:
    is_object = text[start] == "{"
    here = _skip_whitespace(text, start + 1)
    while text[here : here + 1] != _CLOSING[text[start]]:
        key = ""
        if is_object:
            key, here = _key(text, here)
        end = _end(text, here)
        yield TextSpan(here, end, key)
        here = _skip_whitespace(text, end)
        if text[here : here + 1] == ",":
            here = _skip_whitespace(text, here + 1)
        elif text[here : here + 1] != _CLOSING[text[start]]:
            raise ValueError(f"a comma is missing at {here}")


def _key(text: str, start: int) -> tuple[str, int]:
    """A key, and the start of its value."""
    end = _end(text, start)
    name = text[start:end]
    colon = _skip_whitespace(text, end)
    if text[colon : colon + 1] != ":":
        raise ValueError(f"a colon is missing at {colon}")
    is_quoted = name[:1] in {'"', "'"}
    return pyjson5.decode(name) if is_quoted else name, _skip_whitespace(text, colon + 1)


def _end(text: str, start: int) -> int:
    """The end of the value that starts here."""
    if text[start : start + 1] in _CLOSING:
        last = start
        for one in _members(text, start):
            last = one.end
        here = _skip_whitespace(text, max(last, start + 1))
        return _skip_whitespace(text, here + 1) + 1 if text[here] == "," else here + 1
    found = _STRING.match(text, start) or _WORD.match(text, start)
    if found is None:
        raise ValueError(f"a value is missing at {start}")
    return found.end()


def _has_comma(text: str, end: int) -> bool:
    here = _skip_whitespace(text, end)
    return text[here : here + 1] == ","


def _skip_whitespace(text: str, start: int) -> int:
    """The next position that is neither whitespace nor comment."""
    found = _WHITESPACE.match(text, start)
    return found.end() if found else start
