"""Terminal output: data on standard output, messages on standard error.

rich draws, so wide characters align. Without a terminal the output is plain text of any width:
nothing is wrapped, cut, coloured or redrawn.
"""

import json
import os
import re
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TextIO, TypeVar

import msgspec

from openclaw_a2a.model.ids import Json
from openclaw_a2a.settings import read_command_environment

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.status import Status
    from rich.table import Table
    from rich.text import Text

_Item = TypeVar("_Item")
Change = tuple[str, Json, str]
"""The id of something, its state, and the line to print when the state is new."""

_PROGRAM = "openclaw-a2a"
_UNLIMITED = 10_000
_WIDE_TERMINAL = 120
_LABEL_CELLS = 40
# Without a cursor and without wrapping: a character that is wider than we think must not scroll.
_ENTER_SCREEN = "\x1b[?1049h\x1b[?25l\x1b[?7l"
_LEAVE_SCREEN = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_CLEAR_SCREEN = "\x1b[2J"
_CLEAR_LINE = "\x1b[0m\x1b[K"
_GAP = 2  # cells between columns
_MIN_LAST = 24  # cells of a list's last column, the most important one
_MIN_CELLS = 6
# Controls of the terminal, and those of the direction of text, which can make one text look like
# another.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# Emoji styles and skin tones: terminals do not agree on how wide they make a character.
_UNEVEN = re.compile("[\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]")


def spell_program(text: str) -> str:
    """The text with our command as a shell finds it, such as in the environment of a checkout."""
    from openclaw_a2a.cli.overview import COMMANDS

    script = sys.argv[0]
    is_path = Path(script).name == _PROGRAM and os.sep in script
    if _PROGRAM not in text or not is_path or shutil.which(_PROGRAM) is not None:
        return text
    command = rf"(?<![\w./-]){_PROGRAM}(?= (?:{'|'.join(COMMANDS)})\b)"
    return re.sub(command, lambda _: shlex.quote(script), text)


def print_message(text: str, style: str = "") -> None:
    """Print a message for people, on standard error."""
    text = spell_program(text)
    if sys.stderr.isatty():
        console = console_for(sys.stderr)
        wrapped = "\n".join(wrap_line(line, console.width) for line in text.split("\n"))
        console.print(styled_text(wrapped, style), soft_wrap=True)
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
    print_data(text)


def print_result(document: Json, line: str, *, as_json: bool) -> None:
    """Print what a command did: the document as JSON, or one line for people."""
    if as_json:
        print_json(document)
    else:
        print_data(line)


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns; on a terminal the last one wraps, or stands below the others."""
    from rich.cells import cell_len

    width = terminal_width()
    others = [[*map(cell_len, column)] for column in zip(*(row[:-1] for row in rows), strict=True)]
    if width is None or sum(max(column) + _GAP for column in others) + _MIN_LAST <= width:
        print_page([build_table(rows, is_last_wrapped=True)])
        return
    for *first, last in rows:
        print_data("  ".join(one_line(cell) for cell in first))
        print_page([build_table([("", one_line(last))], is_last_wrapped=True)])


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
    widths: Sequence[int] | None = None,
    is_last_wrapped: bool = False,
) -> "Table":
    """A table without borders. `widths` are the cells of each column; what is wider is cut.

    `styles` maps the text of a cell to its style.
    """
    from rich.table import Table

    table = Table(box=None, show_header=False, padding=(0, _GAP, 0, 0), pad_edge=False)
    for place, _ in enumerate(rows[0], 1):
        is_wrapped = is_last_wrapped and place == len(rows[0])
        table.add_column(
            no_wrap=not is_wrapped,
            overflow="fold" if is_wrapped else "ellipsis",
            width=None if widths is None else widths[place - 1],
        )
    for number, row in enumerate(rows):
        cells = [styled_text(one_cell(text), (styles or {}).get(text, "")) for text in row]
        table.add_row(*cells, style=row_styles[number] if row_styles else "")
    return table


@dataclass(frozen=True)
class ItemTable(Generic[_Item]):
    """How items of one kind are listed: a function for each column, a colour for each status.

    Ids stand in the first column and have `short_id` characters on a narrow terminal. The last
    column is the most important: a terminal makes room for it by leaving out `optional` columns one
    after the other, then by cutting columns to their `min_cells`. `details` gives lines that
    are printed below an item; then nothing is cut to the terminal's width.
    """

    columns: Mapping[str, Callable[[_Item, datetime], str]]
    colours: Mapping[str, str] = field(default_factory=dict[str, str])
    short_id: int | None = None
    optional: Sequence[str] = ()
    min_cells: Mapping[str, int] = field(default_factory=dict[str, int])
    details: Callable[[_Item], Iterable[str]] | None = None

    def rows(self, items: Iterable[_Item], now: datetime, *, is_short: bool) -> list[list[str]]:
        """The heading, and a row for each item."""
        rows = [[column(item, now) for column in self.columns.values()] for item in items]
        if is_short:
            rows = [[first[: self.short_id], *others] for first, *others in rows]
        return [list(self.columns), *rows]

    def build(
        self,
        items: Sequence[_Item],
        now: datetime,
        *,
        width: int | None,
        row_styles: Sequence[str] = (),
    ) -> "Table":
        """The table of the items, in at most `width` cells; None: as wide as it gets."""
        is_short = width is not None and width < _WIDE_TERMINAL
        rows, widths = self.rows(items, now, is_short=is_short), None
        if width is not None:
            rows, widths = self._fit(rows, width)
        return build_table(rows, styles=self.colours, row_styles=row_styles, widths=widths)

    def _fit(self, rows: list[list[str]], width: int) -> tuple[list[list[str]], list[int]]:
        """The columns that there is room for, and how wide each is."""
        from rich.cells import cell_len

        names = [*self.columns]
        full = [
            max(cell_len(one_cell(text)) for text in column) for column in zip(*rows, strict=True)
        ]
        wanted = dict(zip(names, full, strict=True))
        least = {names[-1]: _MIN_LAST, **self.min_cells}
        least = {name: min(cells, least.get(name, cells)) for name, cells in wanted.items()}
        kept = [*names]
        for name in self.optional:
            if sum(least[one] + _GAP for one in kept) - _GAP > width:
                kept.remove(name)
        cells = {name: wanted[name] for name in kept}
        # First to a useful width, then to the minimum.
        for floor in (least, dict.fromkeys(kept, _MIN_CELLS)):
            while (sum(cells.values()) + _GAP * (len(kept) - 1)) > width:
                widest = max(kept, key=lambda one: cells[one] - floor[one])
                if cells[widest] <= floor[widest]:
                    break
                cells[widest] -= 1
        places = [names.index(name) for name in kept]
        return [[row[place] for place in places] for row in rows], [cells[one] for one in kept]

    def print(self, items: Sequence[_Item], *, empty: str, total: int = 0) -> None:
        """Print the items and how many more there are, or the message `empty`."""
        if not items:
            print_message(empty)
            return
        now = datetime.now(UTC)
        if self.details is None:
            print_page([self.build(items, now, width=terminal_width())])
        else:
            heading, *lines = plain_lines(self.build(items, now, width=None))
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


def one_cell(text: str) -> str:
    """The text on one line, as wide in every terminal."""
    return even_width(one_line(text))


def even_width(text: str) -> str:
    """The text without characters whose width differs between terminals; blanks stay."""
    return _UNEVEN.sub("", strip_control_characters(text)).replace("\t", " ").replace("\n", " ")


def wrap_line(line: str, width: int) -> str:
    """Break a line at its blanks. A command is broken so that it can be copied and still runs."""
    from rich.cells import cell_len

    lines, is_command = [""], False
    for gap, word in re.findall(r"( *)([^ ]+)", line):
        is_command = (is_command and len(gap) == 1) or word == "openclaw-a2a"
        mark = " \\" if is_command and word != "openclaw-a2a" else ""
        if not lines[-1] or cell_len(f"{lines[-1]}{gap}{word}") <= width - len(" \\"):
            lines[-1] += f"{gap}{word}"
        else:
            lines[-1] += mark
            lines.append(f"  {word}" if mark else word)
    return "\n".join(lines)


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


def terminal_width() -> int | None:
    """The width of the terminal; None without one, where lines may have any length."""
    return console_for(sys.stdout).width if sys.stdout.isatty() else None


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


def _exit_on_signal(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


class LiveView:
    """Redraws the current state until it is closed.

    On a terminal each page replaces the one before, on the alternate screen, so that nothing
    scrolls; the last page is printed in the end, unless `leaves_page` is false. Elsewhere only what
    is new is printed.
    """

    def __init__(self, *, as_json: bool, leaves_page: bool = True) -> None:
        self._as_json = as_json
        self._leaves_page = leaves_page
        self._page: Sequence[RenderableType] = ()
        self._drawn: list[str] | None = None  # the lines on the screen; None: not drawn
        self._size = (0, 0)
        self._known: dict[str, Json] = {}

    def close(self) -> None:
        """Release the screen, and print the last page; the next page is drawn completely."""
        if self._drawn is None:
            return
        self._drawn = None
        sys.stdout.write(_LEAVE_SCREEN)
        sys.stdout.flush()
        if self._leaves_page:
            print_page(self._page)

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
        elif sys.stdout.isatty() and not console_for(sys.stdout).is_dumb_terminal:
            self._draw(page)
        else:
            for item_id, state, line in changes:
                if self._is_new(item_id, state):
                    print_data(line)

    def _draw(self, page: Sequence["RenderableType"]) -> None:
        """Draw the lines that have changed; those that do not fit are left out at the end."""
        console = console_for(sys.stdout)
        width, height = console.size
        with console.capture() as captured:
            for one in page:
                console.print(one)
        lines = captured.get().rstrip("\n").split("\n")
        if len(lines) > height:
            left_out = f"… {len(lines) - height + 1} more lines"
            lines = [*lines[: height - 1], left_out]
        lines += [""] * (height - len(lines))
        if self._drawn is None:
            # Ends the command like Ctrl-C, through `close`, which restores the screen.
            # Commands with their own handler do that themselves.
            if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                signal.signal(signal.SIGTERM, _exit_on_signal)
            sys.stdout.write(_ENTER_SCREEN)
        if self._drawn is None or self._size != (width, height):
            sys.stdout.write(_CLEAR_SCREEN)
            self._drawn = [""] * height
        for number, line in enumerate(lines):
            if line != self._drawn[number]:
                # At its place, because a line break could scroll. Cleared first: afterwards the
                # cursor may stand on the last character of the line.
                sys.stdout.write(f"\x1b[{number + 1};1H{_CLEAR_LINE}{line}")
        sys.stdout.flush()
        self._page, self._drawn, self._size = page, lines, (width, height)

    def _is_new(self, item_id: str, state: Json) -> bool:
        is_new = self._known.get(item_id) != state
        self._known[item_id] = state
        return is_new
