"""The deliveries, records and logs of a SQLite store."""

import sqlite3
from collections.abc import Awaitable
from datetime import UTC, datetime

from openclaw_a2a.model.delivery import Delivery, DeliveryId, DeliveryState
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import (
    DeliveryPage,
    LogAppend,
    LogHead,
    LogLine,
    Record,
    Retention,
    StoredLog,
)
from openclaw_a2a.store.columns import DELIVERY_CODE_OF, DELIVERY_COLUMNS, IS_UNFINISHED
from openclaw_a2a.store.commands import (
    DeleteDelivery,
    DeleteRecord,
    DeliveryWrites,
    PutDelivery,
    PutRecord,
    RecordWrites,
    UpdateDelivery,
    UpdateRecord,
)
from openclaw_a2a.store.rules import no_task, report_damage
from openclaw_a2a.store.sqlite.database import DatabasePart, Row, bind_scope
from openclaw_a2a.store.sqlite.transaction import (
    WriteTransaction,
    decode_delivery,
    decode_record,
    encode_delivery,
    encode_record,
    from_microseconds,
    to_microseconds,
)

_SELECT_DELIVERY = f"SELECT {DELIVERY_COLUMNS} FROM delivery d"
_UPDATE_DELIVERY = """
UPDATE delivery
SET cursor = ?, next_at = ?, created_at = ?, updated_at = ?, state = ?, attempts = ?, reason = ?
WHERE id = ? AND body = ?"""
_DELETE_DELIVERY = "DELETE FROM delivery WHERE id = ?"
_COUNT_OTHERS = "SELECT count(*) FROM delivery WHERE task = ? AND kind = ? AND id <> ?"
_IN_SCOPE = """(:principal IS NULL OR EXISTS (
  SELECT 1 FROM task t
  WHERE t.id = d.task AND t.principal = :principal AND t.account = :account))"""
_SELECT_ONE_DELIVERY = f"{_SELECT_DELIVERY} WHERE d.id = :id AND {_IN_SCOPE}"
_SELECT_OF_TASK = (
    f"{_SELECT_DELIVERY} WHERE d.task = :task AND {_IN_SCOPE} ORDER BY d.created_at, d.id"
)
_SELECT_IN_STATE = f"{_SELECT_DELIVERY} WHERE d.state = ? AND d.id > ? ORDER BY d.id LIMIT ?"
_SELECT_UNFINISHED = f"""
{_SELECT_DELIVERY} LEFT JOIN task t ON t.id = d.task
WHERE d.id > ? AND d.id <= ? AND {IS_UNFINISHED} ORDER BY d.id"""
_SELECT_WINDOW = "SELECT id FROM delivery WHERE id > ? ORDER BY id LIMIT 1 OFFSET ?"
_LAST = DeliveryId("~")
"""Sorts after every id."""


class SqliteDeliveryStore(DatabasePart, DeliveryWrites):
    """The delivery store over a database."""

    async def read_delivery(
        self, scope: Scope | None, delivery_id: DeliveryId, *, only_own: bool = False
    ) -> Delivery | None:
        values = {"id": delivery_id, **bind_scope(scope)}
        # A damaged one looks deleted: its receiver is not known.
        found = self._decode(self._database.fetch_all(_SELECT_ONE_DELIVERY, values))
        return found[0] if found else None

    async def list_task_deliveries(
        self, scope: Scope | None, task_id: TaskId, *, only_own: bool = False
    ) -> list[Delivery]:
        values = {"task": task_id, **bind_scope(scope)}
        return self._decode(self._database.fetch_all(_SELECT_OF_TASK, values))

    async def list_unfinished_deliveries(self, *, after: DeliveryId, limit: int) -> DeliveryPage:
        # Most are finished: the window bounds how many of those one query passes over.
        edge = self._database.fetch_one(_SELECT_WINDOW, (after, limit - 1))
        last = _LAST if edge is None else edge[0]
        rows = self._database.fetch_all(_SELECT_UNFINISHED, (after, last))
        return DeliveryPage(tuple(self._decode(rows)), None if edge is None else last)

    async def list_deliveries(
        self, state: DeliveryState, *, after: DeliveryId, limit: int
    ) -> list[Delivery]:
        values = (DELIVERY_CODE_OF[state], after, limit)
        return self._decode(self._database.fetch_all(_SELECT_IN_STATE, values))

    def _decode(self, rows: list[Row]) -> list[Delivery]:
        return self._decode_rows("delivery", decode_delivery, rows)


def put_delivery(transaction: WriteTransaction, command: PutDelivery) -> bool:
    """False if the task has too many. Raises: TaskNotFound."""
    delivery = command.delivery
    # Through the cache: a task that was created in this group has no row yet.
    if transaction.cache.find_task(delivery.task_id) is None:
        raise no_task(delivery.task_id)
    key = (delivery.task_id, delivery.kind, delivery.id)
    count = transaction.connection.execute(_COUNT_OTHERS, key).fetchone()[0]
    if command.within is not None and count >= command.within:
        return False
    transaction.put_delivery(delivery)
    return True


def update_delivery(transaction: WriteTransaction, command: UpdateDelivery) -> bool:
    """False if it was deleted or its body was replaced."""
    # The body works as a version: an attempt that began before the subscription was replaced must
    # not move the cursor of the new one.
    row = encode_delivery(command.delivery)
    return transaction.connection.execute(_UPDATE_DELIVERY, (*row[4:], row[0], row[3])).rowcount > 0


def delete_delivery(transaction: WriteTransaction, command: DeleteDelivery) -> bool:
    """False if there was none."""
    return transaction.connection.execute(_DELETE_DELIVERY, (command.delivery_id,)).rowcount > 0


_PUT_RECORD = (
    "INSERT OR REPLACE INTO record (kind, id, body, expires_at, version) VALUES (?, ?, ?, ?, ?)"
)
_UPDATE_RECORD = """
UPDATE record SET body = ?, expires_at = ?, version = ?
WHERE kind = ? AND id = ? AND version = ?"""
_DELETE_RECORD = "DELETE FROM record WHERE kind = ? AND id = ?"
_PURGE_RECORDS = """
DELETE FROM record WHERE number IN (SELECT number FROM record WHERE expires_at < ? LIMIT ?)"""
_SELECT_RECORDS = "SELECT kind, id, body, expires_at, version FROM record WHERE kind = ?"
_SELECT_RECORD = f"{_SELECT_RECORDS} AND id = ?"
_SELECT_KIND = f"{_SELECT_RECORDS} ORDER BY number"


class SqliteRecordStore(DatabasePart, RecordWrites):
    """The record store over a database."""

    async def read_record(self, kind: str, record_id: str) -> Record | None:
        found = self._read(kind, _SELECT_RECORD, (kind, record_id))
        return found[0] if found else None

    async def list_records(self, kind: str) -> list[Record]:
        return self._read(kind, _SELECT_KIND, (kind,))

    def _read(self, kind: str, query: str, values: tuple[object, ...]) -> list[Record]:
        rows = self._database.fetch_all(query, values)
        return self._decode_rows(f"{kind} record", decode_record, rows)


def put_record(transaction: WriteTransaction, command: PutRecord) -> None:
    """`INSERT OR REPLACE` gives the record a new number: it goes last in the list."""
    transaction.connection.execute(_PUT_RECORD, encode_record(command.record))


def update_record(transaction: WriteTransaction, command: UpdateRecord) -> bool:
    """The number stays, and with it the place in the list."""
    record = command.record
    if record.version == 0:
        return transaction.add_record(record)
    kind, record_id, *values = encode_record(record)
    expected = (kind, record_id, record.version - 1)
    return transaction.connection.execute(_UPDATE_RECORD, (*values, *expected)).rowcount > 0


def delete_record(transaction: WriteTransaction, command: DeleteRecord) -> bool:
    """False if there was none."""
    key = (command.kind, command.record_id)
    return transaction.connection.execute(_DELETE_RECORD, key).rowcount > 0


def purge_records(transaction: WriteTransaction, retention: Retention) -> int:
    """Delete expired records, at most `limit`; how many were deleted."""
    # No flush: records are written at once and never collected.
    if retention.records_before is None:
        return 0
    values = (to_microseconds(retention.records_before), retention.limit)
    return transaction.connection.execute(_PURGE_RECORDS, values).rowcount


_CREATE_LOG = """
INSERT INTO log (kind, id, sequence, is_closed, updated_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (kind, id) DO NOTHING RETURNING number"""
_EXTEND_LOG = "UPDATE log SET sequence = ?, is_closed = ?, updated_at = ? WHERE number = ?"
_SELECT_LOG = "SELECT number, id, is_closed FROM log WHERE kind = ? AND id = ?"
_SELECT_LOG_AT = f"{_SELECT_LOG} AND sequence = ?"
_ADD_LINE = "INSERT INTO log_line (log, sequence, body) VALUES (?, ?, ?)"
_DELETE_LOG = "DELETE FROM log WHERE kind = ? AND id = ? RETURNING number"
_DELETE_LINES = "DELETE FROM log_line WHERE log = ?"

_SELECT_LINES = "SELECT sequence, body FROM log_line WHERE log = ? ORDER BY sequence"
SELECT_OPEN_LOGS = """
SELECT number, id, is_closed FROM log INDEXED BY log_at_work
WHERE kind = ? AND is_closed = 0 AND id > ? ORDER BY id LIMIT ?"""
SELECT_LOGS = """
SELECT id, sequence, is_closed, updated_at FROM log
WHERE kind = ? AND id > ? ORDER BY id LIMIT ?"""


class SqliteLogStore(DatabasePart):
    """The log store over a database."""

    def append_log(self, change: LogAppend) -> Awaitable[bool]:
        return self._write(lambda transaction: _append_log(transaction.connection, change))

    async def read_log(self, kind: str, log_id: str) -> StoredLog | None:
        logs = self._read(_SELECT_LOG, (kind, log_id))
        return logs[0] if logs else None

    async def list_open_logs(self, kind: str, *, after: str, limit: int) -> list[StoredLog]:
        return self._read(SELECT_OPEN_LOGS, (kind, after, limit))

    async def list_log_heads(self, kind: str, *, after: str, limit: int) -> list[LogHead]:
        rows = self._database.fetch_all(SELECT_LOGS, (kind, after, limit))
        return self._decode_rows(
            f"{kind} log",
            lambda row: LogHead(row[0], row[1], bool(row[2]), from_microseconds(row[3])),
            rows,
        )

    def delete_log(self, kind: str, log_id: str) -> Awaitable[bool]:
        return self._write(lambda transaction: _delete_log(transaction.connection, kind, log_id))

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


def _append_log(connection: sqlite3.Connection, change: LogAppend) -> bool:
    """False if the log is not at `change.after`, or there are no lines."""
    if not change.bodies:
        return False
    # Optimistic locking by sequence: of two writers that read the same log, the second finds no row
    # at `after` (or a row where it expected none) and gets False.
    now = to_microseconds(datetime.now(UTC))
    if change.after == 0:
        row = (change.kind, change.log_id, change.last, change.closes, now)
        found = connection.execute(_CREATE_LOG, row).fetchone()
    else:
        key = (change.kind, change.log_id, change.after)
        found = connection.execute(_SELECT_LOG_AT, key).fetchone()
        if found is not None:
            is_closed = change.leaves_closed(bool(found[2]))
            connection.execute(_EXTEND_LOG, (change.last, is_closed, now, found[0]))
    if found is None:
        return False
    rows = [(found[0], line.sequence, line.body) for line in change.lines()]
    connection.executemany(_ADD_LINE, rows)
    return True


def _delete_log(connection: sqlite3.Connection, kind: str, log_id: str) -> bool:
    row = connection.execute(_DELETE_LOG, (kind, log_id)).fetchone()
    if row is None:
        return False
    connection.execute(_DELETE_LINES, row)
    return True
