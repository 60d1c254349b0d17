"""The logs of a SQLite store."""

import sqlite3
from collections.abc import Awaitable
from datetime import UTC, datetime

from openclaw_a2a.ports import LogAppend, LogHead, LogLine, StoredLog
from openclaw_a2a.store.rules import report_damage
from openclaw_a2a.store.sqlite.database import DatabasePart
from openclaw_a2a.store.sqlite.transaction import from_microseconds, to_microseconds

_CREATE = """
INSERT INTO log (kind, id, sequence, is_closed, updated_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (kind, id) DO NOTHING RETURNING number"""
_EXTEND = "UPDATE log SET sequence = ?, is_closed = ?, updated_at = ? WHERE number = ?"
_SELECT = "SELECT number, id, is_closed FROM log WHERE kind = ? AND id = ?"
_SELECT_AT = f"{_SELECT} AND sequence = ?"
_ADD_LINE = "INSERT INTO log_line (log, sequence, body) VALUES (?, ?, ?)"
_DELETE = "DELETE FROM log WHERE kind = ? AND id = ? RETURNING number"
_DELETE_LINES = "DELETE FROM log_line WHERE log = ?"

_SELECT_LINES = "SELECT sequence, body FROM log_line WHERE log = ? ORDER BY sequence"
SELECT_OPEN_PAGE = """
SELECT number, id, is_closed FROM log INDEXED BY log_at_work
WHERE kind = ? AND is_closed = 0 AND id > ? ORDER BY id LIMIT ?"""
SELECT_PAGE = """
SELECT id, sequence, is_closed, updated_at FROM log
WHERE kind = ? AND id > ? ORDER BY id LIMIT ?"""


class SqliteLogStore(DatabasePart):
    """The log store over a database."""

    def append_log(self, change: LogAppend) -> Awaitable[bool]:
        return self._write(lambda transaction: _append(transaction.connection, change))

    async def read_log(self, kind: str, log_id: str) -> StoredLog | None:
        logs = self._read(_SELECT, (kind, log_id))
        return logs[0] if logs else None

    async def list_open_logs(self, kind: str, *, after: str, limit: int) -> list[StoredLog]:
        return self._read(SELECT_OPEN_PAGE, (kind, after, limit))

    async def list_log_heads(self, kind: str, *, after: str, limit: int) -> list[LogHead]:
        rows = self._database.fetch_all(SELECT_PAGE, (kind, after, limit))
        return self._decode_rows(
            f"{kind} log",
            lambda row: LogHead(row[0], row[1], bool(row[2]), from_microseconds(row[3])),
            rows,
        )

    def delete_log(self, kind: str, log_id: str) -> Awaitable[bool]:
        return self._write(lambda transaction: _delete(transaction.connection, kind, log_id))

    def _read(self, query: str, values: tuple[object, ...]) -> list[StoredLog]:
        fetch, logs = self._database.fetch_all, list[StoredLog]()
        # One snapshot: a log is never returned without the lines of its last append.
        with self._database.snapshot():
            for number, log_id, is_closed in fetch(query, values):
                lines = tuple([LogLine(*line) for line in fetch(_SELECT_LINES, (number,))])
                if lines:
                    logs.append(StoredLog(log_id, lines, bool(is_closed)))
                else:
                    report_damage(str(self._database.path), "log", log_id, "it has no lines")
        return logs


def _append(connection: sqlite3.Connection, change: LogAppend) -> bool:
    """False if the log is not at `change.after`, or there are no lines."""
    if not change.bodies:
        return False
    # Optimistic locking by sequence: of two writers that read the same log, the second finds no row
    # at `after` (or a row where it expected none) and gets False.
    now = to_microseconds(datetime.now(UTC))
    if change.after == 0:
        row = (change.kind, change.log_id, change.last, change.closes, now)
        found = connection.execute(_CREATE, row).fetchone()
    else:
        key = (change.kind, change.log_id, change.after)
        found = connection.execute(_SELECT_AT, key).fetchone()
        if found is not None:
            is_closed = change.leaves_closed(bool(found[2]))
            connection.execute(_EXTEND, (change.last, is_closed, now, found[0]))
    if found is None:
        return False
    rows = [(found[0], line.sequence, line.body) for line in change.lines()]
    connection.executemany(_ADD_LINE, rows)
    return True


def _delete(connection: sqlite3.Connection, kind: str, log_id: str) -> bool:
    row = connection.execute(_DELETE, (kind, log_id)).fetchone()
    if row is None:
        return False
    connection.execute(_DELETE_LINES, row)
    return True
