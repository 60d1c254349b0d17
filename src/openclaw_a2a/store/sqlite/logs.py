"""The logs of a SQLite store."""

from collections.abc import Awaitable
from datetime import UTC, datetime

from openclaw_a2a.ports import LogAppend, LogHead, LogLine, StoredLog
from openclaw_a2a.store.sqlite.database import Row, SqliteDatabase
from openclaw_a2a.store.sqlite.records import RecordKey
from openclaw_a2a.store.sqlite.row_codec import from_microseconds, to_microseconds
from openclaw_a2a.store.sqlite.transaction import WriteTransaction

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


class SqliteLogStore:
    """The log store over a database."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self._write = database.writer.write

    def append_log(self, change: LogAppend) -> Awaitable[bool]:
        """Append lines to a log; False if it is not at `change.after`."""
        return self._write(_append, change)

    async def read_log(self, kind: str, log_id: str) -> StoredLog | None:
        """One log, open or closed."""
        logs = self._read(_SELECT, (kind, log_id))
        return logs[0] if logs else None

    async def list_open_logs(self, kind: str, *, after: str, limit: int) -> list[StoredLog]:
        """Logs that are not closed, by id."""
        return self._read(SELECT_OPEN_PAGE, (kind, after, limit))

    async def list_log_heads(self, kind: str, *, after: str, limit: int) -> list[LogHead]:
        """All logs, by id."""
        rows = self._database.fetch_all(SELECT_PAGE, (kind, after, limit))
        return [LogHead(row[0], row[1], bool(row[2]), from_microseconds(row[3])) for row in rows]

    def delete_log(self, kind: str, log_id: str) -> Awaitable[bool]:
        """Delete a log; False if there was none."""
        return self._write(_delete, RecordKey(kind, log_id))

    def _read(self, query: str, values: tuple[object, ...]) -> list[StoredLog]:
        with self._database.snapshot():
            return [self._stored(row) for row in self._database.fetch_all(query, values)]

    def _stored(self, row: Row) -> StoredLog:
        lines = self._database.fetch_all(_SELECT_LINES, (row[0],))
        return StoredLog(row[1], tuple([LogLine(*line) for line in lines]), bool(row[2]))


def _append(transaction: WriteTransaction, change: LogAppend) -> bool:
    if not change.bodies:
        return False
    number = _create(transaction, change) if change.after == 0 else _extend(transaction, change)
    if number is None:
        return False
    rows = [(number, line.sequence, line.body) for line in change.lines()]
    transaction.connection.executemany(_ADD_LINE, rows)
    return True


def _create(transaction: WriteTransaction, change: LogAppend) -> int | None:
    """The number of the new log; None if it exists."""
    row = (change.kind, change.log_id, change.last, change.closes, _now())
    created = transaction.connection.execute(_CREATE, row).fetchone()
    return None if created is None else created[0]


def _extend(transaction: WriteTransaction, change: LogAppend) -> int | None:
    """The number of the log; None if it is not at `change.after`."""
    key = (change.kind, change.log_id, change.after)
    found = transaction.connection.execute(_SELECT_AT, key).fetchone()
    if found is None:
        return None
    is_closed = change.leaves_closed(bool(found[2]))
    transaction.connection.execute(_EXTEND, (change.last, is_closed, _now(), found[0]))
    return found[0]


def _delete(transaction: WriteTransaction, key: RecordKey) -> bool:
    row = transaction.connection.execute(_DELETE, key).fetchone()
    if row is None:
        return False
    transaction.connection.execute(_DELETE_LINES, row)
    return True


def _now() -> int:
    return to_microseconds(datetime.now(UTC))
