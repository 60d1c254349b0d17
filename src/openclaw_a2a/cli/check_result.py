"""What a check found, and how findings are printed: checks are data, each with what to do."""

import sys
from collections import Counter
from collections.abc import Iterable
from enum import Enum

import msgspec
from rich.table import Table
from rich.text import Text

from openclaw_a2a.cli.render.terminal import (
    print_data,
    print_page,
    strip_control_characters,
    styled_text,
)
from openclaw_a2a.model.message import JsonStruct


class CheckStatus(Enum):
    """How a check ended."""

    OK = "ok"
    NOTE = "note"
    BROKEN = "broken"
    SKIPPED = "skipped"


class CheckResult(JsonStruct, frozen=True, omit_defaults=False):
    """What one check found; `fix` is the next step when there is one."""

    group: str
    name: str = msgspec.field(name="check")
    status: CheckStatus = msgspec.field(name="verdict")
    detail: str
    fix: str = ""


class Check(msgspec.Struct, frozen=True):
    """Makes the results of one check."""

    group: str
    name: str

    def ok(self, detail: str) -> CheckResult:
        """All is well."""
        return CheckResult(self.group, self.name, CheckStatus.OK, detail)

    def note(self, detail: str, fix: str = "") -> CheckResult:
        """Something to know; nothing is broken."""
        return CheckResult(self.group, self.name, CheckStatus.NOTE, detail, fix)

    def broken(self, detail: str, fix: str = "") -> CheckResult:
        """The gateway does not work so."""
        return CheckResult(self.group, self.name, CheckStatus.BROKEN, detail, fix)

    def skipped(self, why: str) -> CheckResult:
        """It was not checked."""
        return CheckResult(self.group, self.name, CheckStatus.SKIPPED, f"not checked: {why}")


def split_advice(sentence: str) -> tuple[str, str]:
    """What is the case, and what to do about it, from a sentence that says both."""
    detail, _, fix = sentence.rstrip(".").rpartition("; ")
    return (detail, fix) if detail else (fix, "")


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
        pretty, plain, style = _MARKS[row.status]
        text = styled_text(row.detail)
        for line in strip_control_characters(row.fix).splitlines():
            text.append(f"\n{line}", "dim")
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
        table.add_column(width=4 + width, no_wrap=True)
        table.add_column(overflow="fold")
        mark = (pretty if _can_print(pretty) else plain, style)
        table.add_row(Text.assemble("  ", mark, f" {row.name}"), text)
        print_page([table])


def summarize_checks(results: Iterable[CheckResult]) -> str:
    """How many problems and notes there are, in one line."""
    counts = Counter(one.status for one in results)
    nouns = {"problem": counts[CheckStatus.BROKEN], "note": counts[CheckStatus.NOTE]}
    words = [f"{n} {noun}{'s' if n > 1 else ''}" for noun, n in nouns.items() if n]
    return f"{', '.join(words)}." if words else "Everything is in order."


def _can_print(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
