"""The deliveries, records and logs of a PostgreSQL store; `batch.py` has their writes."""

from collections.abc import Awaitable

import msgspec

from openclaw_a2a.model.delivery import Delivery, DeliveryId, DeliveryState
from openclaw_a2a.model.ids import OwnerId, TaskId
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import DeliveryPage, LogAppend, LogHead, LogLine, Record, StoredLog
from openclaw_a2a.store.columns import (
    DELIVERY_CODE_OF,
    DELIVERY_COLUMNS,
    DELIVERY_STATE_OF,
    IS_UNFINISHED,
)
from openclaw_a2a.store.commands import DeliveryWrites, RecordWrites
from openclaw_a2a.store.postgres.address import DatabaseRow, Session
from openclaw_a2a.store.postgres.batch import AppendLog, DeleteLog
from openclaw_a2a.store.postgres.database import PostgresPart, scope_values
from openclaw_a2a.store.postgres.stored_text import shown_id, stored_id
from openclaw_a2a.store.rules import report_damage

_SELECT_DELIVERY = f"SELECT {DELIVERY_COLUMNS} FROM delivery d"
_IN_SCOPE = """($2::text IS NULL OR EXISTS (
  SELECT FROM task t WHERE t.id = d.task AND t.principal = $2 AND t.account = $3))"""
_IF_OWNED = "($4::text IS NULL OR d.owner = $4)"
_READ_DELIVERY = f"{_SELECT_DELIVERY} WHERE d.id = $1 AND {_IN_SCOPE} AND {_IF_OWNED}"
_READ_OF_TASK = f"""
{_SELECT_DELIVERY} WHERE d.task = $1 AND {_IN_SCOPE} AND {_IF_OWNED} ORDER BY d.created_at, d.id"""
_READ_IN_STATE = f"""
{_SELECT_DELIVERY} WHERE d.state = $1 AND d.state <> 0 AND d.id > $2 ORDER BY d.id LIMIT $3"""
_READ_IDLE = f"{_SELECT_DELIVERY} WHERE d.state = $1 AND d.id > $2 ORDER BY d.id LIMIT $3"
# Most are finished: the window bounds how many of those one query passes over.
_READ_UNFINISHED = f"""
SELECT {DELIVERY_COLUMNS}, d.is_edge,
  {IS_UNFINISHED} AND ($3::text IS NULL OR d.owner = $3) AS is_unfinished
FROM (
  SELECT {DELIVERY_COLUMNS}, d.owner, row_number() OVER (ORDER BY d.id) = $2 AS is_edge
  FROM (
    SELECT {DELIVERY_COLUMNS}, d.owner FROM delivery d WHERE d.id > $1 ORDER BY d.id LIMIT $2
  ) d
) d
LEFT JOIN task t ON t.id = d.task
WHERE d.is_edge OR $3::text IS NULL OR d.owner = $3
ORDER BY d.id"""
_REPLACE_BODY = "UPDATE delivery SET body = $3 WHERE id = $1 AND body = $2"


class PostgresDeliveryStore(PostgresPart, DeliveryWrites):
    """The delivery store over a database."""

    @property
    def _owner(self) -> OwnerId | None:
        """Whose deliveries this gateway sends; None: all, it is alone."""
        replicas = self._database.replicas
        return None if replicas is None else replicas.id

    async def read_delivery(
        self, scope: Scope | None, delivery_id: DeliveryId, *, only_own: bool = False
    ) -> Delivery | None:
        values = (delivery_id, *scope_values(scope), self._owner if only_own else None)
        rows = await self._database.fetch(_READ_DELIVERY, *values)
        # A damaged one looks deleted: its receiver is not known.
        found = self._decode(rows)
        return found[0] if found else None

    async def list_task_deliveries(
        self, scope: Scope | None, task_id: TaskId, *, only_own: bool = False
    ) -> list[Delivery]:
        values = (task_id, *scope_values(scope), self._owner if only_own else None)
        return self._decode(await self._database.fetch(_READ_OF_TASK, *values))

    async def list_unfinished_deliveries(self, *, after: DeliveryId, limit: int) -> DeliveryPage:
        rows = await self._database.fetch(_READ_UNFINISHED, after, limit, self._owner)
        found = self._decode([row for row in rows if row[12]])
        return DeliveryPage(tuple(found), rows[-1][0] if rows and rows[-1][11] else None)

    async def list_deliveries(
        self, state: DeliveryState, *, after: DeliveryId, limit: int
    ) -> list[Delivery]:
        statement = _READ_IDLE if state is DeliveryState.IDLE else _READ_IN_STATE
        code = DELIVERY_CODE_OF[state]
        return self._decode(await self._database.fetch(statement, code, after, limit))

    def replace_body(
        self, delivery_id: DeliveryId, *, known: bytes, body: bytes
    ) -> Awaitable[bool]:
        async def work(connection: Session) -> bool:
            return await connection.execute(_REPLACE_BODY, delivery_id, known, body) == "UPDATE 1"

        return self._write(work)

    def _decode(self, rows: list[DatabaseRow]) -> list[Delivery]:
        return self._decode_rows("delivery", _decode_delivery, rows)


def _decode_delivery(row: DatabaseRow) -> Delivery:
    fields = list(row[:11])
    fields[8] = DELIVERY_STATE_OF[row[8]]
    return Delivery(*fields)


_SELECT_RECORD = "SELECT kind, id, body, expires_at, version FROM record WHERE kind = $1"
_READ_RECORD = f"{_SELECT_RECORD} AND id = $2"
_LIST_RECORDS = f"{_SELECT_RECORD} ORDER BY number"


class PostgresRecordStore(PostgresPart, RecordWrites):
    """The record store over a database."""

    async def read_record(self, kind: str, record_id: str) -> Record | None:
        row = await self._database.fetch_one(_READ_RECORD, kind, record_id)
        return None if row is None else Record(*row)

    async def list_records(self, kind: str) -> list[Record]:
        return [Record(*row) for row in await self._database.fetch(_LIST_RECORDS, kind)]


# One statement: a log is never returned without the lines of its last append.
_LINES = """
  (SELECT array_agg(s.sequence ORDER BY s.sequence) FROM log_line s WHERE s.log = l.number),
  (SELECT array_agg(s.body ORDER BY s.sequence) FROM log_line s WHERE s.log = l.number)"""
_READ_LOG = f"SELECT l.id, l.is_closed, {_LINES} FROM log l WHERE l.kind = $1 AND l.id = $2"
_LIST_OPEN_LOGS = f"""
SELECT l.id, l.is_closed, {_LINES} FROM log l
WHERE l.kind = $1 AND NOT l.is_closed AND l.id > $2 ORDER BY l.id LIMIT $3"""
_LIST_LOGS = """
SELECT id, sequence, is_closed, updated_at FROM log
WHERE kind = $1 AND id > $2 ORDER BY id LIMIT $3"""


class PostgresLogStore(PostgresPart):
    """The log store over a database."""

    def append_log(self, change: LogAppend) -> Awaitable[bool]:
        stored = stored_id(change.log_id)
        if stored != change.log_id:
            change = msgspec.structs.replace(change, log_id=stored)
        return self._write(AppendLog(change))

    async def read_log(self, kind: str, log_id: str) -> StoredLog | None:
        logs = self._decode(await self._database.fetch(_READ_LOG, kind, stored_id(log_id)))
        return logs[0] if logs else None

    async def list_open_logs(self, kind: str, *, after: str, limit: int) -> list[StoredLog]:
        values = (kind, stored_id(after), limit)
        return self._decode(await self._database.fetch(_LIST_OPEN_LOGS, *values))

    async def list_log_heads(self, kind: str, *, after: str, limit: int) -> list[LogHead]:
        rows = await self._database.fetch(_LIST_LOGS, kind, stored_id(after), limit)
        return [LogHead(shown_id(row[0]), row[1], row[2], row[3]) for row in rows]

    def delete_log(self, kind: str, log_id: str) -> Awaitable[bool]:
        return self._write(DeleteLog(kind, stored_id(log_id)))

    def _decode(self, rows: list[DatabaseRow]) -> list[StoredLog]:
        logs: list[StoredLog] = []
        for log_id, is_closed, sequences, bodies in rows:
            if sequences:
                lines = tuple([LogLine(*line) for line in zip(sequences, bodies, strict=True)])
                logs.append(StoredLog(shown_id(log_id), lines, is_closed))
            else:
                report_damage(self._database.name, "log", log_id, "it has no lines")
        return logs
