"""Logs of every kind in plain dictionaries: the meaning that every kind of store shares."""

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import NamedTuple

from openclaw_a2a.ports import LogHead, LogLine, StoredLog


class LogChange(NamedTuple):
    """Lines for the end of a log."""

    kind: str
    log_id: str
    bodies: Sequence[bytes]
    after: int
    closes: bool
    opens: bool

    @property
    def last(self) -> int:
        """The number that the log has afterwards."""
        return self.after + len(self.bodies)

    def lines(self) -> list[LogLine]:
        """The new lines with their numbers."""
        return [LogLine(number, body) for number, body in enumerate(self.bodies, self.after + 1)]

    def leaves_closed(self, was_closed: bool) -> bool:
        """True when the log is closed afterwards."""
        return self.closes or (was_closed and not self.opens)


class _LogRow:
    __slots__ = ("id", "is_closed", "lines", "updated_at")

    def __init__(self, log_id: str) -> None:
        self.id = log_id
        self.lines: list[LogLine] = []
        self.is_closed = False
        self.updated_at = datetime.now(UTC)

    @property
    def sequence(self) -> int:
        return self.lines[-1].sequence if self.lines else 0

    def take(self, change: LogChange) -> None:
        self.lines += change.lines()
        self.is_closed = change.leaves_closed(self.is_closed)
        self.updated_at = datetime.now(UTC)

    def stored(self) -> StoredLog:
        return StoredLog(self.id, tuple(self.lines), self.is_closed)

    def head(self) -> LogHead:
        return LogHead(self.id, self.sequence, self.is_closed, self.updated_at)


class LogRows:
    """Logs by kind and id."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], _LogRow] = {}
        self._ids: dict[str, list[str]] = {}

    def append(self, change: LogChange) -> bool:
        """Add lines to a log; False when it is not where the change begins."""
        key = change.kind, change.log_id
        row = self._rows.get(key)
        if not change.bodies or change.after != (0 if row is None else row.sequence):
            return False
        if row is None:
            row = self._rows[key] = _LogRow(change.log_id)
            insort(self._ids.setdefault(change.kind, []), change.log_id)
        row.take(change)
        return True

    def get(self, kind: str, log_id: str) -> StoredLog | None:
        """One log."""
        row = self._rows.get((kind, log_id))
        return None if row is None else row.stored()

    def page_open(self, kind: str, after: str, limit: int) -> list[StoredLog]:
        """Logs that are not closed, in order of their ids."""
        rows = (row for row in self._after(kind, after) if not row.is_closed)
        return [row.stored() for row in islice(rows, limit)]

    def page(self, kind: str, after: str, limit: int) -> list[LogHead]:
        """All logs, in order of their ids."""
        return [row.head() for row in islice(self._after(kind, after), limit)]

    def drop(self, kind: str, log_id: str) -> bool:
        """Forget a log; False when there was none."""
        is_there = self._rows.pop((kind, log_id), None) is not None
        if is_there:
            self._ids[kind].remove(log_id)
        return is_there

    def _after(self, kind: str, after: str) -> Iterator[_LogRow]:
        ids = self._ids.get(kind, [])
        return (self._rows[kind, log_id] for log_id in ids[bisect_right(ids, after) :])
