"""The records of a SQLite store."""

from openclaw_a2a.ports import Record, Retention
from openclaw_a2a.store.commands import DeleteRecord, PutRecord, RecordWrites, UpdateRecord
from openclaw_a2a.store.sqlite.database import DatabasePart
from openclaw_a2a.store.sqlite.transaction import (
    WriteTransaction,
    decode_record,
    encode_record,
    to_microseconds,
)

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


class SqliteRecordStore(DatabasePart, RecordWrites):
    """The record store over a database."""

    async def read_record(self, kind: str, record_id: str) -> Record | None:
        found = self._read(kind, _SELECT_ONE, (kind, record_id))
        return found[0] if found else None

    async def list_records(self, kind: str) -> list[Record]:
        return self._read(kind, _SELECT_KIND, (kind,))

    def _read(self, kind: str, query: str, values: tuple[object, ...]) -> list[Record]:
        rows = self._database.fetch_all(query, values)
        return self._decode_rows(f"{kind} record", decode_record, rows)


def put_record(transaction: WriteTransaction, command: PutRecord) -> None:
    """`INSERT OR REPLACE` gives the record a new number: it goes last in the list."""
    transaction.connection.execute(_PUT, encode_record(command.record))


def update_record(transaction: WriteTransaction, command: UpdateRecord) -> bool:
    """The number stays, and with it the place in the list."""
    record = command.record
    if record.version == 0:
        return transaction.add_record(record)
    values = (record.body, to_microseconds(record.expires_at), record.version)
    expected = (record.kind, record.id, record.version - 1)
    return transaction.connection.execute(_UPDATE, values + expected).rowcount > 0


def delete_record(transaction: WriteTransaction, command: DeleteRecord) -> bool:
    """False if there was none."""
    key = (command.kind, command.record_id)
    return transaction.connection.execute(_DELETE, key).rowcount > 0


def purge_records(transaction: WriteTransaction, retention: Retention) -> int:
    """Delete expired records, at most `limit`; how many were deleted."""
    # No flush: records are written at once and never collected.
    if retention.records_before is None:
        return 0
    values = (to_microseconds(retention.records_before), retention.limit)
    return transaction.connection.execute(_PURGE, values).rowcount
