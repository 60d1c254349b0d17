"""Terminal output: data on standard output, messages on standard error.

rich draws, so wide characters align. Without a terminal the output is plain text of any width:
nothing is wrapped, cut, coloured or redrawn.
"""

import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Generic, TextIO, TypeVar

import msgspec

from openclaw_a2a.model.ids import Json
from openclaw_a2a.settings import read_command_environment

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.status import Status
    from rich.table import Table
    from rich.text import Text

_Item = TypeVar("_Item")
Change = tuple[str, Json, str]
"""The id of something, its state, and the line to print when the state is new."""

_UNLIMITED = 10_000
_WIDE_TERMINAL = 120
_LABEL_CELLS = 40
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def print_message(text: str, style: str = "") -> None:
    """Print a message for people, on standard error."""
    if sys.stderr.isatty():
        console_for(sys.stderr).print(styled_text(text, style), soft_wrap=True)
    else:
        print(strip_control_characters(text), file=sys.stderr, flush=True)


def print_data(text: str = "", *, end: str = "\n") -> None:
    """Print text on standard output at once; a terminal gets no control characters."""
    shown = strip_control_characters(text) if sys.stdout.isatty() else text
    print(shown, end=end, flush=True)


def print_json(value: Json, *, pretty: bool = True) -> None:
    """Print a value as JSON, indented for people or on one line for programs."""
    try:
        body = msgspec.json.encode(value)
        text = (msgspec.json.format(body, indent=2) if pretty else body).decode()
    except UnicodeEncodeError:  # the path of a file whose name is not UTF-8
        text = json.dumps(msgspec.to_builtins(value), indent=2 if pretty else None)
    print(text, flush=True)


def print_result(document: Json, line: str, *, as_json: bool) -> None:
    """Print what a command did: the document as JSON, or one line for people."""
    if as_json:
        print_json(document)
    else:
        print_data(line)


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns."""
    print_page([build_table(rows)])


def print_page(page: Iterable["RenderableType"]) -> None:
    """Print tables, trees and texts below each other on standard output."""
    console = console_for(sys.stdout)
    for one in page:
        if sys.stdout.isatty():
            console.print(one)
        else:
            for line in plain_lines(one):
                print(line)
    sys.stdout.flush()


def build_table(
    rows: Sequence[Sequence[str]],
    *,
    styles: Mapping[str, str] | None = None,
    row_styles: Sequence[str] = (),
) -> "Table":
    """A table without borders. On a terminal, columns that do not fit are cut.

    `styles` maps the text of a cell to its style.
    """
    from rich.table import Table

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    for _ in rows[0]:
        table.add_column(no_wrap=True, overflow="ellipsis")
    for number, row in enumerate(rows):
        cells = [styled_text(one_line(cell), (styles or {}).get(cell, "")) for cell in row]
        table.add_row(*cells, style=row_styles[number] if row_styles else "")
    return table


@dataclass(frozen=True)
class ItemTable(Generic[_Item]):
    """How items of one kind are listed: a function for each column, a colour for each status.

    Ids stand in the first column and have `short_id` characters on a narrow terminal. `details`
    gives lines that are printed below an item; then nothing is cut to the terminal's width.
    """

    columns: Mapping[str, Callable[[_Item, datetime], str]]
    colours: Mapping[str, str] = field(default_factory=dict[str, str])
    short_id: int | None = None
    details: Callable[[_Item], Iterable[str]] | None = None

    def rows(self, items: Iterable[_Item], now: datetime, *, is_short: bool) -> list[list[str]]:
        """The heading, and a row for each item."""
        rows = [[column(item, now) for column in self.columns.values()] for item in items]
        if is_short:
            rows = [[first[: self.short_id], *others] for first, *others in rows]
        return [list(self.columns), *rows]

    def print(self, items: Sequence[_Item], *, empty: str, total: int = 0) -> None:
        """Print the items and how many more there are, or the message `empty`."""
        if not items:
            print_message(empty)
            return
        table = build_table(
            self.rows(items, datetime.now(UTC), is_short=is_narrow()), styles=self.colours
        )
        if self.details is None:
            print_page([table])
        else:
            heading, *lines = plain_lines(table)
            print_data(heading)
            for line, item in zip(lines, items, strict=True):
                print_data("\n".join((line, *self.details(item))))
        if total > len(items):
            print_message(f"{len(items)} of {total}; more with --limit", "dim")


def describe_empty(plural: str, filters: Mapping[str, str | None], empty: str) -> str:
    """Why a list is empty: because of the filters (by the words for each), else as `empty` says."""
    chosen = "".join(f" {words} {value}" for words, value in filters.items() if value)
    return f"No {plural}{chosen}." if chosen else empty


def styled_text(text: str, style: str = "") -> "Text":
    """Text for a page. Control characters are removed: rich passes escape sequences on."""
    from rich.text import Text

    return Text(strip_control_characters(text), style)


def plain_lines(*page: "RenderableType") -> list[str]:
    """What a page looks like without a terminal: lines without styles or trailing blanks."""
    console = console_for(None)
    with console.capture() as captured:
        for one in page:
            console.print(one)
    return [line.rstrip() for line in captured.get().splitlines()]


def console_for(stream: TextIO | None) -> "Console":
    """A console that interprets no markup; None renders plain text of any width."""
    from rich.console import Console

    is_terminal = stream is not None and stream.isatty()
    return Console(
        file=stream,
        force_terminal=is_terminal,
        color_system="auto" if is_terminal and not read_command_environment().no_colour else None,
        width=None if is_terminal else _UNLIMITED,
        markup=False,
        emoji=False,
        highlight=False,
    )


def strip_control_characters(text: str) -> str:
    """The text without escape sequences and other controls; line breaks and tabs stay."""
    return _CONTROLS.sub("", text)


def one_line(text: str) -> str:
    """The text on one line."""
    return " ".join(text.split())


def indent(text: str) -> str:
    """The text with every line two blanks to the right."""
    return "\n".join(f"  {line}" for line in text.splitlines())


def truncate(text: str, cells: int) -> str:
    """The text, with an ellipsis where it is wider than so many cells of a terminal."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= cells:
        return text
    return f"{set_cell_size(text, max(0, cells - 1)).rstrip()}…"


def pad(text: str, cells: int) -> str:
    """The text, filled with blanks to so many cells of a terminal."""
    from rich.cells import cell_len

    return text + " " * max(0, cells - cell_len(text))


def is_narrow() -> bool:
    """True on a terminal that is too narrow for whole ids in tables."""
    return sys.stdout.isatty() and console_for(sys.stdout).width < _WIDE_TERMINAL


def format_age(moment: datetime | None, now: datetime) -> str:
    """How long ago something was."""
    return "-" if moment is None else format_duration((now - moment).total_seconds())


def format_duration(seconds: float) -> str:
    """A duration in its largest unit."""
    whole = max(0, int(seconds))
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if whole >= size:
            return f"{whole // size} {unit}"
    return f"{whole} s"


class WaitIndicator:
    """A spinner on standard error while a command waits; nothing without a terminal."""

    def __init__(self, label: str = "", state: str = "") -> None:
        self.label = label
        self.state = state
        self._since = time.monotonic()
        self._status: Status | None = None

    def wait(self, seconds: float, state: str) -> None:
        """Sleep, and show what is waited for."""
        self.state = state
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.show()
            time.sleep(min(0.5, left))

    def show(self) -> None:
        """Start the spinner, or update its text."""
        if not sys.stderr.isatty():
            return
        seconds = int(time.monotonic() - self._since)
        words = (truncate(self.label, _LABEL_CELLS), self.state, f"{seconds} s")
        text = styled_text(" · ".join(filter(None, words)), "dim")
        if self._status is None:
            self._status = console_for(sys.stderr).status(text)
            self._status.start()
        else:
            self._status.update(text)

    def clear(self) -> None:
        """Remove the spinner, so that something can be printed."""
        if self._status is not None:
            self._status.stop()
        self._status = None


class LiveView:
    """Shows the current state again and again, until it is closed.

    On a terminal each page replaces the one before; elsewhere only what is new is printed.
    """

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._live: Live | None = None
        self._known: dict[str, Json] = {}

    def close(self) -> None:
        """Leave the page on the terminal; the next one is drawn below."""
        if self._live is not None:
            self._live.stop()
        self._live = None

    def show(
        self,
        page: Sequence["RenderableType"],
        *,
        documents: Iterable[tuple[str, Json]] = (),
        changes: Iterable[Change] = (),
    ) -> None:
        """Show the page on a terminal; elsewhere the documents (JSON) or lines that are new."""
        if self._as_json:
            for item_id, document in documents:
                if self._is_new(item_id, document):
                    print_json(document, pretty=False)
        elif sys.stdout.isatty():
            self._draw(page)
        else:
            for item_id, state, line in changes:
                if self._is_new(item_id, state):
                    print_data(line)

    def _draw(self, page: Sequence["RenderableType"]) -> None:
        """Replace the page; lines that do not fit the terminal are left out at the end."""
        from rich.console import Group
        from rich.live import Live

        if self._live is None:
            self._live = Live(
                console=console_for(sys.stdout), auto_refresh=False, vertical_overflow="ellipsis"
            )
            self._live.start()
        self._live.update(Group(*page), refresh=True)

    def _is_new(self, item_id: str, state: Json) -> bool:
        is_new = self._known.get(item_id) != state
        self._known[item_id] = state
        return is_new
