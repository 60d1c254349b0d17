"""Data on standard output, talk on standard error, colour only where somebody looks."""

import re
import sys
from collections.abc import Iterable
from functools import cache
from typing import TextIO

import msgspec

from openclaw_a2a.model.ids import Json
from openclaw_a2a.settings import read_command_environment

_STYLES = {"dim": "2", "red": "31", "green": "32", "yellow": "33", "bold": "1"}
_ROOMY = 120
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def say(text: str, style: str | None = None) -> None:
    """Talk: one line on standard error."""
    print(styled(clean(text), style, sys.stderr), file=sys.stderr, flush=True)


def show(text: str = "", *, end: str = "\n") -> None:
    """Data: text on standard output, at once; a terminal gets no control characters."""
    print(clean(text) if sys.stdout.isatty() else text, end=end, flush=True)


def show_lines(lines: Iterable[tuple[str, str | None]]) -> None:
    """Data: lines, each in its style."""
    for text, style in lines:
        shown = clean(text) if sys.stdout.isatty() else text
        print(styled(shown, style, sys.stdout), flush=True)


def show_json(value: Json, *, pretty: bool = True) -> None:
    """Data: a value as JSON, on several lines for people or on one for programs."""
    body = msgspec.json.encode(value)
    print((msgspec.json.format(body, indent=2) if pretty else body).decode(), flush=True)


def show_table(rows: list[tuple[str, ...]], *, style: dict[str, str] | None = None) -> None:
    """Data: rows in columns as wide as needed; the last is cut at the edge of a terminal."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)][:-1]
    for row in rows:
        cells = [clean(cell).ljust(width) for cell, width in zip(row, widths, strict=False)]
        last = _cut(clean(row[-1]), sum(widths) + 2 * len(widths))
        words = {cell: (style or {}).get(cell.strip()) for cell in cells}
        print(
            "  ".join([*(styled(cell, words[cell], sys.stdout) for cell in cells), last]).rstrip()
        )


def styled(text: str, style: str | None, stream: TextIO) -> str:
    """The text in a style, where the stream is a terminal that may have colour."""
    if style is None or not stream.isatty() or _wants_no_colour():
        return text
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"


def clean(text: str) -> str:
    """The text without what could make a terminal do things; lines and tabs stay."""
    return _CONTROLS.sub("", text)


def is_narrow() -> bool:
    """True on a terminal that has no room for long ids in tables."""
    return sys.stdout.isatty() and _columns() < _ROOMY


def _columns() -> int:
    import shutil

    return shutil.get_terminal_size().columns


def _cut(text: str, used: int) -> str:
    line = " ".join(text.split())
    if not sys.stdout.isatty():
        return line
    room = max(10, _columns() - used)
    return line if len(line) <= room else f"{line[: room - 1]}…"


@cache
def _wants_no_colour() -> bool:
    return read_command_environment().no_colour
