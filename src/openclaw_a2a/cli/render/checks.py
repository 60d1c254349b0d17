"""Prints the results of checks: a mark, the name, the detail, and the next step below it."""

import sys
from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from openclaw_a2a.cli.diagnostics.checks import CheckResult, CheckStatus
from openclaw_a2a.cli.render.terminal import (
    print_data,
    print_page,
    strip_control_characters,
    styled_text,
)

_MARKS = {
    CheckStatus.OK: ("✓", "+", "green"),
    CheckStatus.NOTE: ("!", "!", "yellow"),
    CheckStatus.BROKEN: ("✗", "x", "red"),
    CheckStatus.SKIPPED: ("·", "-", "dim"),
}


def print_checks(results: Iterable[CheckResult]) -> None:
    """Print results by group; on a terminal, details wrap within their column."""
    rows = list(results)
    width = max(len(row.name) for row in rows)
    group = None
    for row in rows:
        if row.group != group:
            print_data(("" if group is None else "\n") + row.group)
            group = row.group
        print_page([_line(row, width)])


def summarize_checks(results: Iterable[CheckResult]) -> str:
    """How many problems and notes there are, in one line."""
    statuses = [one.status for one in results]
    broken, notes = statuses.count(CheckStatus.BROKEN), statuses.count(CheckStatus.NOTE)
    if not broken and not notes:
        return "Everything is in order."
    words = [_count(broken, "problem"), _count(notes, "note")]
    return f"{', '.join(word for word in words if word)}."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number > 1 else ''}" if number else ""


def _line(row: CheckResult, width: int) -> Table:
    pretty, plain, style = _MARKS[row.status]
    text = styled_text(row.detail)
    for line in strip_control_characters(row.fix).splitlines():
        text.append(f"\n{line}", "dim")
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(width=4 + width, no_wrap=True)
    table.add_column(overflow="fold")
    mark = Text.assemble("  ", (pretty if _can_print(pretty) else plain, style), f" {row.name}")
    table.add_row(mark, text)
    return table


def _can_print(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
