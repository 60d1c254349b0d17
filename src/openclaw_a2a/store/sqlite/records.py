"""The records of a SQLite store."""

from collections.abc import Awaitable
from typing import NamedTuple

from openclaw_a2a.ports import Record, Retention
from openclaw_a2a.store.sqlite.database import SqliteDatabase
from openclaw_a2a.store.sqlite.row_codec import decode_record, encode_record, to_microseconds
from openclaw_a2a.store.sqlite.transaction import WriteTransaction

_PUT = "INSERT OR REPLACE INTO record (kind, id, body, expires_at, version) VALUES (?, ?, ?, ?, ?)"
_UPDATE = """
UPDATE record SET body = ?, expires_at = ?, version = ?
WHERE kind = ? AND id = ? AND version = ?"""
_DELETE = "DELETE FROM record WHERE kind = ? AND id = ?"
_PURGE = """
DELETE FROM record WHERE number IN (SELECT number FROM record WHERE expires_at < ? LIMIT ?)"""
_SELECT = "SELECT kind, id, body, expires_at, version FROM record WHERE kind = ?"
_SELECT_ONE = f"{_SELECT} AND id = ?"
_SELECT_KIND = f"{_SELECT} ORDER BY number"


class RecordKey(NamedTuple):
    """The key of a record or a log."""

    kind: str
    id: str


class SqliteRecordStore:
    """The record store over a database."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self._write = database.writer.write

    def put_record(self, record: Record) -> Awaitable[None]:
        """Store a record, replacing one with the same kind and id."""
        return self._write(_put, record)

    def update_record(self, record: Record) -> Awaitable[bool]:
        """Store the next version of a record; False if it is not the next one."""
        return self._write(_update, record)

    def delete_record(self, kind: str, record_id: str) -> Awaitable[bool]:
        """Delete a record; False if there was none."""
        return self._write(_delete, RecordKey(kind, record_id))

    async def read_record(self, kind: str, record_id: str) -> Record | None:
        """One record."""
        row = self._database.fetch_one(_SELECT_ONE, (kind, record_id))
        return None if row is None else decode_record(row)

    async def list_records(self, kind: str) -> list[Record]:
        """All records of a kind, in the order in which they were put."""
        return [decode_record(row) for row in self._database.fetch_all(_SELECT_KIND, (kind,))]


def purge_records(transaction: WriteTransaction, retention: Retention) -> int:
    """Delete expired records, at most `limit`; how many were deleted."""
    if retention.records_before is None:
        return 0
    values = (to_microseconds(retention.records_before), retention.limit)
    return transaction.connection.execute(_PURGE, values).rowcount


def _put(transaction: WriteTransaction, record: Record) -> None:
    transaction.connection.execute(_PUT, encode_record(record))


def _update(transaction: WriteTransaction, record: Record) -> bool:
    if record.version == 0:
        return transaction.add_record(record)
    values = (record.body, to_microseconds(record.expires_at), record.version)
    expected = (record.kind, record.id, record.version - 1)
    return transaction.connection.execute(_UPDATE, values + expected).rowcount > 0


def _delete(transaction: WriteTransaction, key: RecordKey) -> bool:
    return transaction.connection.execute(_DELETE, key).rowcount > 0
