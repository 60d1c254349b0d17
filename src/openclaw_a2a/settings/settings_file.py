"""Edits the settings file: adds and removes entries, and keeps comments and formatting."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pyjson5

from openclaw_a2a.model.errors import SettingsInvalid
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import as_list, as_object, is_list, is_object, object_at
from openclaw_a2a.settings.files import write_private_file
from openclaw_a2a.settings.sources import user_file

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
    return TextSpan(start, _value_end(text, start))


def list_members(text: str, span: TextSpan) -> list[TextSpan]:
    """The members of the object, or the items of the list, at this position.

    Raises: ValueError.
    """
    if text[span.start] not in _CLOSING:
        raise ValueError("neither an object nor a list stands there")
    return list(_list_members(text, span.start))


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
        # The object stands on one line: it is opened, at the depth of that line.
        line = text.rfind("\n", 0, span.start) + 1
        outer = text[line : len(text) - len(text[line:].lstrip(" \t"))]
        at, added = len(text[:close].rstrip(" \t")), f"\n{_indented(lines, outer + '  ')},\n{outer}"
        text = text[:at] + text[close:]
    else:
        at, added = close, f" {lines}" if known else lines
    before = text[:at]
    last = known[-1].end if known else None
    if last is not None and not text.startswith(",", _skip_whitespace(text, last)):
        before = f"{text[:last]},{text[last:at]}"
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


def _list_members(text: str, start: int) -> Iterator[TextSpan]:
    here = _skip_whitespace(text, start + 1)
    while text[here : here + 1] != _CLOSING[text[start]]:
        key = ""
        if text[start] == "{":
            key, here = _key(text, here)
        end = _value_end(text, here)
        yield TextSpan(here, end, key)
        here = _skip_whitespace(text, end)
        if text[here : here + 1] == ",":
            here = _skip_whitespace(text, here + 1)
        elif text[here : here + 1] != _CLOSING[text[start]]:
            raise ValueError(f"a comma is missing at {here}")


def _key(text: str, start: int) -> tuple[str, int]:
    """A key, and the start of its value."""
    end = _value_end(text, start)
    name = text[start:end]
    colon = _skip_whitespace(text, end)
    if text[colon : colon + 1] != ":":
        raise ValueError(f"a colon is missing at {colon}")
    is_quoted = name[:1] in {'"', "'"}
    return pyjson5.decode(name) if is_quoted else name, _skip_whitespace(text, colon + 1)


def _value_end(text: str, start: int) -> int:
    """The end of the value that starts here."""
    if text[start : start + 1] in _CLOSING:
        last = start
        for one in _list_members(text, start):
            last = one.end
        here = _skip_whitespace(text, max(last, start + 1))
        return _skip_whitespace(text, here + 1) + 1 if text[here] == "," else here + 1
    found = _STRING.match(text, start) or _WORD.match(text, start)
    if found is None:
        raise ValueError(f"a value is missing at {start}")
    return found.end()


def _skip_whitespace(text: str, start: int) -> int:
    """The next position that is neither whitespace nor comment."""
    found = _WHITESPACE.match(text, start)
    return found.end() if found else start


class FileChange(msgspec.Struct, frozen=True):
    """A planned change of a file; `text` is empty when the file needs no change.

    `is_possible` is false when the file is such that a person has to add the lines.
    """

    path: Path
    text: str
    is_possible: bool = True
    whole: str = ""

    def write(self) -> None:
        """Replace the file atomically. Raises: SettingsInvalid."""
        target = Path(os.path.realpath(self.path))
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
            write_private_file(target, self.whole.encode(), durable=True, mode=mode)
        except OSError as error:
            reason = error.strerror or str(error)
            raise SettingsInvalid(
                f"{self.path} cannot be written: {reason}; change it by hand"
            ) from None


def plan_openclaw_section(path: Path | None, openclaw_config: Path) -> FileChange:
    """Plan the `openclaw` section that adds OpenClaw's agents; nothing is written.

    Without a path it is the file in the user's config folder.
    """
    place = path or user_file()
    lines = (
        "  // OpenClaw's agents; the token is read from its own config.\n"
        "  openclaw: {\n"
        f"    configPath: {_format_json5(str(openclaw_config))},\n"
        '    expose: "all", // or the ids of some: ["main"]\n'
        "  },\n"
    )
    text = read_text(place)
    if text is None:
        return FileChange(place, lines, is_possible=not place.exists(), whole=f"{{\n{lines}}}\n")
    values = parse_json5(text)
    if is_object(values) and "openclaw" in values:
        return FileChange(place, "")
    section = {"configPath": str(openclaw_config), "expose": "all"}
    wanted = {**values, "openclaw": section} if is_object(values) else None

    def change() -> str:
        first = root_span(text).start + 1
        return f"{text[:first]}\n{lines}{text[first:].removeprefix(chr(10))}"

    return _checked(place, lines, wanted, change)


def read_text(path: Path) -> str | None:
    """The text of a file with its line endings; None when it cannot be read."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except (OSError, ValueError):
        return None


def parse_json5(text: str) -> Json:
    """The value of a JSON5 text; None when it is not JSON5."""
    try:
        return pyjson5.decode(text)
    except pyjson5.Json5Exception:
        return None


def plan_target_addition(path: Path | None, target: JsonObject) -> FileChange:
    """Plan to add the target to the settings file; nothing is written.

    Without a path it is the file in the user's config folder. `text` has the lines for a person.
    """
    place = path or user_file()
    entry = _format_json5(target)
    section = _section(entry)
    text = read_text(place)
    if text is None:
        whole = f"{{\n{_indented(section, '  ')},\n}}\n"
        return FileChange(place, section, is_possible=not place.exists(), whole=whole)
    values = parse_json5(text)
    wanted = _with_targets(values, [*_targets_of(values), target])
    return _checked(place, section, wanted, lambda: _with_target(text, entry))


def plan_target_removal(path: Path, alias: str) -> FileChange | None:
    """Plan to remove a target; None when the file has no such target."""
    text = read_text(path)
    values = parse_json5(text or "")
    targets = _targets_of(values)
    aliases = [as_object(one).get("alias") for one in targets]
    found = [n for n, one in enumerate(aliases) if isinstance(one, str) and one.strip() == alias]
    if text is None or len(found) != 1:
        return None
    index = found[0]

    def change() -> str:
        outbound = find_member(text, root_span(text), "outbound")
        place = find_member(text, outbound, "targets") if outbound else None
        return remove_value(text, list_members(text, place)[index]) if place else ""

    wanted = _with_targets(values, [*targets[:index], *targets[index + 1 :]])
    return _checked(path, _format_json5(targets[index]), wanted, change)


def _checked(
    path: Path, lines: str, wanted: JsonObject | None, change: Callable[[], str]
) -> FileChange:
    """The change, possible if its text has the wanted content; otherwise the file stays."""
    try:
        whole = change()
    except (ValueError, IndexError, RecursionError):  # positions that cannot be determined
        whole = ""
    is_right = wanted is not None and parse_json5(whole) == wanted
    return FileChange(path, lines, is_possible=is_right, whole=whole)


def _with_target(text: str, entry: str) -> str:
    root = root_span(text)
    outbound = find_member(text, root, "outbound")
    if outbound is None:
        return insert_member(text, root, _section(entry))
    targets = find_member(text, outbound, "targets")
    if targets is None:
        return insert_member(text, outbound, f"targets: [\n  {entry},\n]")
    return insert_member(text, targets, entry)


def _targets_of(values: Json) -> list[Json]:
    return as_list(object_at(as_object(values), "outbound").get("targets"))


def _with_targets(values: Json, targets: list[Json]) -> JsonObject | None:
    section = values.get("outbound", {}) if is_object(values) else None
    if not is_object(section) or not isinstance(section.get("targets", []), list):
        return None
    return {**values, "outbound": {**section, "targets": targets}}


def _section(entry: str) -> str:
    return f"outbound: {{\n  targets: [\n    {entry},\n  ],\n}}"


def _format_json5(value: Json) -> str:
    """The value as JSON5 on one line."""
    if is_object(value):
        shown = [f"{_name(key)}: {_format_json5(one)}" for key, one in value.items()]
        return f"{{ {', '.join(shown)} }}" if shown else "{}"
    if is_list(value):
        return f"[{', '.join(_format_json5(one) for one in value)}]"
    return msgspec.json.encode(value).decode()


def _name(key: str) -> str:
    return key if key.isascii() and key.isidentifier() else msgspec.json.encode(key).decode()
