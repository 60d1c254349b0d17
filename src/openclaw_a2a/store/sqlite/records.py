"""The records of a SQLite store: their writes and the questions about them."""

import sqlite3
from typing import NamedTuple

from openclaw_a2a.ports import Record, Retention
from openclaw_a2a.store.sqlite.row_codec import decode_kept, encode_kept, to_microseconds
from openclaw_a2a.store.sqlite.transaction import SqliteBatch

_PUT = "INSERT OR REPLACE INTO record (kind, id, body, expires_at, version) VALUES (?, ?, ?, ?, ?)"
_CHANGE = """
UPDATE record SET body = ?, expires_at = ?, version = ?
WHERE kind = ? AND id = ? AND version = ?"""
_DROP = "DELETE FROM record WHERE kind = ? AND id = ?"
_FORGET = """
DELETE FROM record WHERE number IN (SELECT number FROM record WHERE expires_at < ? LIMIT ?)"""
_SELECT = "SELECT kind, id, body, expires_at, version FROM record WHERE kind = ?"
_SELECT_ONE = f"{_SELECT} AND id = ?"
_SELECT_KIND = f"{_SELECT} ORDER BY number"


class Name(NamedTuple):
    """What a record is found by."""

    kind: str
    id: str


def put(batch: SqliteBatch, record: Record) -> None:
    """Keep a record, in the place of one of its kind with its id."""
    batch.connection.execute(_PUT, encode_kept(record))


def change(batch: SqliteBatch, record: Record) -> bool:
    """Keep the next version of a record at its place; False when it is not the next one."""
    if record.version == 0:
        return batch.add_record(record)
    values = (record.body, to_microseconds(record.expires_at), record.version)
    expected = (record.kind, record.id, record.version - 1)
    return batch.connection.execute(_CHANGE, values + expected).rowcount > 0


def drop(batch: SqliteBatch, name: Name) -> bool:
    """Forget a record; False when there was none."""
    return batch.connection.execute(_DROP, name).rowcount > 0


def forget(batch: SqliteBatch, retention: Retention) -> int:
    """Delete records whose time is over, at most `limit`; how many went."""
    if retention.records_before is None:
        return 0
    moment = to_microseconds(retention.records_before)
    return batch.connection.execute(_FORGET, (moment, retention.limit)).rowcount


def of_kind(connection: sqlite3.Connection, kind: str) -> list[Record]:
    """All records of a kind, the one put last at the end."""
    return [decode_kept(row) for row in connection.execute(_SELECT_KIND, (kind,))]


def one(connection: sqlite3.Connection, kind: str, record_id: str) -> Record | None:
    """One record."""
    row = connection.execute(_SELECT_ONE, (kind, record_id)).fetchone()
    return None if row is None else decode_kept(row)
