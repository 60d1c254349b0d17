"""Tables that fit the terminal, and lines that are broken between words."""

import shlex
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from openclaw_a2a.cli.overview import COMMANDS, overview
from openclaw_a2a.cli.render.terminal import (
    ItemTable,
    one_cell,
    strip_control_characters,
    wrap_line,
)

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
Row = dict[str, str]
TABLE = ItemTable[Row](
    {
        name: (lambda row, _, name=name: row[name])
        for name in ("ID", "STATUS", "OWNER", "NAME", "NOTE")
    },
    short_id=8,
    optional=("OWNER",),
    min_cells={"NAME": 12, "NOTE": 20},
)
WORDS = st.text(max_size=60)
ROWS = st.lists(st.fixed_dictionaries(dict.fromkeys(TABLE.columns, WORDS)), min_size=1, max_size=4)


def drawn(rows: list[Row], width: int) -> list[str]:
    console = Console(width=width, color_system=None, force_terminal=True, legacy_windows=False)
    with console.capture() as captured:
        console.print(TABLE.build(rows, NOW, width=width))
    return captured.get().rstrip("\n").split("\n")


@given(ROWS, st.integers(40, 200))
def test_table_fits_the_terminal_with_one_line_per_item(rows: list[Row], width: int) -> None:
    lines = drawn(rows, width)
    assert len(lines) == len(rows) + 1
    assert all(cell_len(line) <= width for line in lines)


@given(ROWS, st.integers(60, 200))
def test_last_column_keeps_its_room(rows: list[Row], width: int) -> None:
    rows = [{**row, "ID": row["ID"][:8], "STATUS": row["STATUS"][:9]} for row in rows]
    heading, *_ = drawn(rows, width)
    needed = min(20, max(cell_len(one_cell(row["NOTE"])) for row in rows))
    assert cell_len(heading[: heading.index("NOTE")]) + needed <= width


def test_optional_columns_go_before_others_are_cut() -> None:
    row = {
        "ID": "12345678",
        "STATUS": "working",
        "OWNER": "o" * 20,
        "NAME": "Trip",
        "NOTE": "n" * 30,
    }
    assert drawn([row], 100)[0].split() == ["ID", "STATUS", "OWNER", "NAME", "NOTE"]
    heading, line = drawn([row], 60)
    assert heading.split() == ["ID", "STATUS", "NAME", "NOTE"]
    assert line.split() == ["12345678", "working", "Trip", "n" * 30]


def test_characters_of_unequal_width_in_terminals_are_made_equal() -> None:
    assert one_cell("✈\ufe0f 👍\U0001f3fd\nb\t c") == "✈ 👍 b c"


@given(st.text())
def test_no_control_reaches_a_terminal(text: str) -> None:
    left = strip_control_characters(text)
    assert not any(one < " " and one not in "\n\t" for one in left)
    assert not set(left) & {chr(one) for one in (*range(0x7F, 0xA0), *range(0x202A, 0x202F))}
    assert not set(left) & {"\u061c", "\u200e", "\u200f", *map(chr, range(0x2066, 0x206A))}


@given(st.lists(st.text("abc", min_size=1, max_size=12), min_size=1), st.integers(20, 80))
def test_lines_are_broken_between_words(words: list[str], width: int) -> None:
    line = " ".join(words)
    wrapped = wrap_line(line, width)
    assert wrapped.split() == words
    assert all(len(one) <= width for one in wrapped.split("\n"))


@given(st.lists(st.text("ab-/", min_size=1, max_size=12), min_size=1), st.integers(30, 80))
def test_broken_command_is_the_same_command_for_a_shell(words: list[str], width: int) -> None:
    command = " ".join(["openclaw-a2a", *words])
    wrapped = wrap_line(f"Look at what it says there: {command}", width)
    copied = wrapped[wrapped.index("openclaw-a2a") :]
    # A shell drops a backslash at the end of a line together with the end.
    assert shlex.split(copied.replace("\\\n", "")) == ["openclaw-a2a", *words]
    assert all(len(one) <= width for one in wrapped.split("\n"))


def test_help_page_is_broken_between_words_on_a_narrow_terminal() -> None:
    page = overview(60)
    assert all(len(line) <= 60 for line in page.splitlines())
    assert page.split() == overview().split()
    assert all(f"\n  {name} " in page for name in COMMANDS)
    assert overview(200) == overview()
