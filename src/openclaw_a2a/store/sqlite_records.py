"""The records of a SQLite store: their writes and the question about them."""

import sqlite3
from typing import NamedTuple

from openclaw_a2a.ports import KeptRecord, Retention
from openclaw_a2a.store.columns import from_microseconds, to_microseconds
from openclaw_a2a.store.sqlite_batch import SqliteBatch

_PUT = "INSERT OR REPLACE INTO record (kind, id, body, expires_at) VALUES (?, ?, ?, ?)"
_DROP = "DELETE FROM record WHERE kind = ? AND id = ?"
_FORGET = """
DELETE FROM record WHERE number IN (SELECT number FROM record WHERE expires_at < ? LIMIT ?)"""
_SELECT = "SELECT kind, id, body, expires_at FROM record WHERE kind = ? ORDER BY number"


class Name(NamedTuple):
    """What a record is found by."""

    kind: str
    id: str


def put(batch: SqliteBatch, record: KeptRecord) -> None:
    """Keep a record, in the place of one of its kind with its id."""
    row = (record.kind, record.id, record.body, to_microseconds(record.expires_at))
    batch.connection.execute(_PUT, row)


def drop(batch: SqliteBatch, name: Name) -> bool:
    """Forget a record; False when there was none."""
    return batch.connection.execute(_DROP, name).rowcount > 0


def forget(batch: SqliteBatch, retention: Retention) -> int:
    """Delete records whose time is over, at most `limit`; how many went."""
    if retention.records_before is None:
        return 0
    moment = to_microseconds(retention.records_before)
    return batch.connection.execute(_FORGET, (moment, retention.limit)).rowcount


def of_kind(connection: sqlite3.Connection, kind: str) -> list[KeptRecord]:
    """All records of a kind, the one put last at the end."""
    rows = connection.execute(_SELECT, (kind,))
    return [KeptRecord(row[0], row[1], row[2], from_microseconds(row[3])) for row in rows]
