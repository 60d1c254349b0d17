"""Shows what checks found: marks in one column, words in another, the next step below them."""

import shutil
import sys
import textwrap
from collections.abc import Iterable

from openclaw_a2a.app.finding import Finding, Verdict
from openclaw_a2a.cli.output import clean, styled

_MARKS = {
    Verdict.OK: ("✓", "+", "green"),
    Verdict.NOTE: ("!", "!", "yellow"),
    Verdict.BROKEN: ("✗", "x", "red"),
    Verdict.SKIPPED: ("·", "-", "dim"),
}
_NARROWEST = 40


def show_findings(findings: Iterable[Finding]) -> None:
    """Every finding under its group, as wide as the terminal and no wider."""
    rows = list(findings)
    width = max(len(row.check) for row in rows)
    group = None
    for row in rows:
        if row.group != group:
            print(("" if group is None else "\n") + row.group)
            group = row.group
        _show(row, width)


def summary(findings: Iterable[Finding]) -> str:
    """How many problems and notes there are, in one line."""
    verdicts = [finding.verdict for finding in findings]
    broken, notes = verdicts.count(Verdict.BROKEN), verdicts.count(Verdict.NOTE)
    if not broken and not notes:
        return "Everything is in order."
    words = [_count(broken, "problem"), _count(notes, "note")]
    return f"{', '.join(word for word in words if word)}."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number > 1 else ''}" if number else ""


def _show(row: Finding, width: int) -> None:
    pretty, plain, style = _MARKS[row.verdict]
    mark = styled(pretty if _can_print(pretty) else plain, style, sys.stdout)
    first, *more = _wrapped(clean(row.detail), 6 + width)
    indent = " " * (6 + width)
    print(f"  {mark} {row.check:<{width}}  {first}")
    for line in more:
        print(indent + line)
    parts = clean(row.fix).splitlines()
    # Several lines are there to be copied, and stay whole.
    for line in parts if len(parts) > 1 else _wrapped(row.fix, 6 + width) if parts else ():
        print(indent + styled(clean(line), "dim", sys.stdout))


def _wrapped(text: str, used: int) -> list[str]:
    """The text in lines that fit a terminal; in one line elsewhere."""
    if not sys.stdout.isatty():
        return [text]
    room = max(_NARROWEST, shutil.get_terminal_size().columns - used)
    lines = textwrap.wrap(
        text, room, break_on_hyphens=False, break_long_words=False, drop_whitespace=True
    )
    return lines or [""]


def _can_print(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
