"""The logs of a SQLite store: their writes and the questions about them."""

import sqlite3
from datetime import UTC, datetime
from typing import Any

from openclaw_a2a.ports import LogAppend, LogHead, LogLine, StoredLog
from openclaw_a2a.store.sqlite.records import Name
from openclaw_a2a.store.sqlite.row_codec import from_microseconds, to_microseconds
from openclaw_a2a.store.sqlite.transaction import SqliteBatch

_BEGIN = """
INSERT INTO log (kind, id, sequence, is_closed, updated_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (kind, id) DO NOTHING RETURNING number"""
_EXTEND = "UPDATE log SET sequence = ?, is_closed = ?, updated_at = ? WHERE number = ?"
_FIND = "SELECT number, id, is_closed FROM log WHERE kind = ? AND id = ?"
_FIND_AT = f"{_FIND} AND sequence = ?"
_ADD_LINE = "INSERT INTO log_line (log, sequence, body) VALUES (?, ?, ?)"
_DROP = "DELETE FROM log WHERE kind = ? AND id = ? RETURNING number"
_DROP_LINES = "DELETE FROM log_line WHERE log = ?"

_LINES = "SELECT sequence, body FROM log_line WHERE log = ? ORDER BY sequence"
OPEN_PAGE = """
SELECT number, id, is_closed FROM log INDEXED BY log_at_work
WHERE kind = ? AND is_closed = 0 AND id > ? ORDER BY id LIMIT ?"""
PAGE = """
SELECT id, sequence, is_closed, updated_at FROM log
WHERE kind = ? AND id > ? ORDER BY id LIMIT ?"""


def append(batch: SqliteBatch, change: LogAppend) -> bool:
    """Add lines to a log; False when it is not where the change begins."""
    if not change.bodies:
        return False
    number = _begin(batch, change) if change.after == 0 else _extend(batch, change)
    if number is None:
        return False
    rows = [(number, line.sequence, line.body) for line in change.lines()]
    batch.connection.executemany(_ADD_LINE, rows)
    return True


def drop(batch: SqliteBatch, name: Name) -> bool:
    """Forget a log; False when there was none."""
    row = batch.connection.execute(_DROP, name).fetchone()
    if row is None:
        return False
    batch.connection.execute(_DROP_LINES, row)
    return True


class LogReader:
    """The questions about logs, over one read-only connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def one(self, kind: str, log_id: str) -> StoredLog | None:
        """One log."""
        logs = self._stored(_FIND, (kind, log_id))
        return logs[0] if logs else None

    def page_open(self, kind: str, after: str, limit: int) -> list[StoredLog]:
        """Logs that are not closed, in order of their ids."""
        return self._stored(OPEN_PAGE, (kind, after, limit))

    def page(self, kind: str, after: str, limit: int) -> list[LogHead]:
        """All logs, in order of their ids."""
        rows = self._connection.execute(PAGE, (kind, after, limit))
        return [LogHead(row[0], row[1], bool(row[2]), from_microseconds(row[3])) for row in rows]

    def _stored(self, query: str, values: tuple[object, ...]) -> list[StoredLog]:
        """The logs a query finds, with their lines of the same moment."""
        self._connection.execute("BEGIN")
        try:
            found = self._connection.execute(query, values).fetchall()
            return [StoredLog(row[1], self._lines(row[0]), bool(row[2])) for row in found]
        finally:
            self._connection.execute("COMMIT")

    def _lines(self, number: int) -> tuple[LogLine, ...]:
        rows: list[tuple[Any, ...]] = self._connection.execute(_LINES, (number,)).fetchall()
        return tuple([LogLine(sequence, body) for sequence, body in rows])


def _begin(batch: SqliteBatch, change: LogAppend) -> int | None:
    """The number of the new log; None when it is not new."""
    row = (change.kind, change.log_id, change.last, change.closes, _now())
    inserted = batch.connection.execute(_BEGIN, row).fetchone()
    return None if inserted is None else inserted[0]


def _extend(batch: SqliteBatch, change: LogAppend) -> int | None:
    """The number of the log, when the change comes after its last line."""
    key = (change.kind, change.log_id, change.after)
    found = batch.connection.execute(_FIND_AT, key).fetchone()
    if found is None:
        return None
    is_closed = change.leaves_closed(bool(found[2]))
    batch.connection.execute(_EXTEND, (change.last, is_closed, _now(), found[0]))
    return found[0]


def _now() -> int:
    return to_microseconds(datetime.now(UTC))
