"""The questions a SQLite store answers, over one read-only connection."""

import sqlite3
from collections.abc import Iterator
from typing import Any

import msgspec

from openclaw_a2a.model.errors import CorruptRecord
from openclaw_a2a.model.ids import MessageId, TaskId
from openclaw_a2a.model.records import Entry, StoredTask, TaskHead
from openclaw_a2a.model.states import is_active
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import Duplicate, RecentHead, Record, TaskPage, TaskQuery
from openclaw_a2a.store import errors
from openclaw_a2a.store.memory.state import MessageKey
from openclaw_a2a.store.sqlite import records
from openclaw_a2a.store.sqlite.deliveries import DeliveryReader
from openclaw_a2a.store.sqlite.logs import LogReader
from openclaw_a2a.store.sqlite.row_codec import (
    CODE_OF,
    STATE_OF,
    decode_binding,
    from_microseconds,
    to_microseconds,
)

_TASK = """
SELECT t.number, t.id, t.principal, t.account, t.context, t.state, t.status_at, t.created_at,
  t.sequence, t.binding, s.sequence, s.body
FROM task t JOIN snapshot s ON s.task = t.number"""
_SELECT_TASK = f"{_TASK} WHERE t.id = ?"
_SELECT_ENTRIES = """
SELECT sequence, body, state FROM event
WHERE task = ? AND sequence > ? AND sequence <= ? ORDER BY sequence"""
_SELECT_EVENTS = """
SELECT sequence, body, state FROM event
WHERE task = (SELECT number FROM task WHERE id = ?) AND sequence > ? ORDER BY sequence LIMIT ?"""
_SELECT_RECENT = """
SELECT number, id, principal, account, context, state, status_at, created_at, sequence, binding,
  resume
FROM task ORDER BY number DESC LIMIT ?"""
_SELECT_RESUME = "SELECT resume FROM task WHERE id = ?"
_SELECT_ORPHANS = """
SELECT t.id FROM tally y
JOIN task t ON t.principal = y.principal AND t.account = y.account AND t.state = y.state
WHERE y.state IN (1, 2) AND y.count > 0 AND t.id NOT IN (SELECT task FROM run)"""
_SELECT_KEYS = "SELECT principal, account, message_id FROM message"
_SELECT_KNOWN = """
SELECT run, task, answer, body_hash FROM message
WHERE principal = ? AND account = ? AND message_id = ?"""

# Keys are found in an index before any row is touched. Every statement names its index, so that
# a page costs the same whatever SQLite thinks of the table's size.
_SCOPE = "principal = :principal AND account = :account"
_RANGE = "status_at >= :since AND (status_at, id) < (:before, :before_id)"
_BY_STATUS = f"FROM task INDEXED BY task_by_status WHERE {_SCOPE} AND state = {{}}"
_BY_CONTEXT = f"""
FROM task INDEXED BY task_by_context
WHERE {_SCOPE} AND context = :context AND state NOT IN (1, 2)"""
_ACTIVE_CODES = (1, 2)
_STATE = _BY_STATUS.format(":state")
_ACTIVE_CONTEXT_STATE = f"{_STATE} AND context = :context"
_CONTEXT_STATE = f"{_BY_CONTEXT} AND state = :state"
_CONTEXT_ARMS = (
    _BY_CONTEXT,
    *(f"{_BY_STATUS.format(code)} AND context = :context" for code in _ACTIVE_CODES),
)
_ALL_ARMS = tuple(_BY_STATUS.format(code) for code in STATE_OF)


def _page(*arms: str) -> str:
    """The tasks of a page out of one or several ranges, each of them in order."""
    keys = " UNION ALL ".join(f"SELECT number, status_at, id {arm} AND {_RANGE}" for arm in arms)
    return (
        f"{_TASK} JOIN ({keys} ORDER BY status_at DESC, id DESC LIMIT :limit) k "
        "ON k.number = t.number ORDER BY t.status_at DESC, t.id DESC"
    )


def _count(*arms: str) -> str:
    """How many tasks some ranges hold."""
    return "SELECT " + " + ".join(
        f"(SELECT count(*) {arm} AND status_at >= :since)" for arm in arms
    )


_LIST_ALL, _COUNT_ALL = _page(*_ALL_ARMS), _count(*_ALL_ARMS)
_LIST_STATE, _COUNT_STATE = _page(_STATE), _count(_STATE)
_LIST_CONTEXT, _COUNT_CONTEXT = _page(*_CONTEXT_ARMS), _count(*_CONTEXT_ARMS)
_LIST_CONTEXT_STATE, _COUNT_CONTEXT_STATE = _page(_CONTEXT_STATE), _count(_CONTEXT_STATE)
_LIST_ACTIVE_CONTEXT, _COUNT_ACTIVE_CONTEXT = (
    _page(_ACTIVE_CONTEXT_STATE),
    _count(_ACTIVE_CONTEXT_STATE),
)
_TALLY = """
SELECT coalesce(sum(count), 0) FROM tally WHERE principal = :principal AND account = :account"""
_TALLY_STATE = f"{_TALLY} AND state = :state"

_FIRST, _LAST = -(2**63), 2**63 - 1


class SqliteReader:
    """Committed state, as it is at the moment of the question."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.deliveries = DeliveryReader(connection)
        self.logs = LogReader(connection)

    def list_records(self, kind: str) -> list[Record]:
        """All records of a kind, the one put last at the end."""
        return records.of_kind(self._connection, kind)

    def read_record(self, kind: str, record_id: str) -> Record | None:
        """One record."""
        return records.one(self._connection, kind, record_id)

    def message_keys(self) -> Iterator[MessageKey]:
        """What every message is found by."""
        return iter(self._connection.execute(_SELECT_KEYS))

    def read_task(self, scope: Scope | None, task_id: TaskId) -> StoredTask | None:
        """One task, when it is in scope."""
        row = self._connection.execute(_SELECT_TASK, (task_id,)).fetchone()
        if row is None:
            return None
        if scope is not None and (row[2] != scope.principal or row[3] != scope.account):
            return None
        return self._stored(row)

    def list_recent_tasks(self, limit: int) -> list[RecentHead]:
        """The newest tasks of all callers, the one made last first."""
        rows = self._connection.execute(_SELECT_RECENT, (limit,))
        return [RecentHead(_head(row), row[10]) for row in rows]

    def read_resume_token(self, task_id: TaskId) -> bytes | None:
        """The token its agent left when the task paused."""
        row = self._connection.execute(_SELECT_RESUME, (task_id,)).fetchone()
        return None if row is None else row[0]

    def read_events(self, task_id: TaskId, *, after: int, limit: int) -> list[Entry]:
        """Committed events with a higher sequence, in order."""
        rows = self._connection.execute(_SELECT_EVENTS, (task_id, after, limit))
        return [_entry(row) for row in rows]

    def list_orphaned_tasks(self) -> list[TaskId]:
        """Active tasks that have no run."""
        return [row[0] for row in self._connection.execute(_SELECT_ORPHANS)]

    def find_duplicate(
        self, scope: Scope, message_id: MessageId, *, body_hash: bytes | None = None
    ) -> Duplicate | None:
        """What became of a message. Raises: MessageIdConflict."""
        key = (scope.principal, scope.account, message_id)
        row = self._connection.execute(_SELECT_KNOWN, key).fetchone()
        if row is not None and body_hash not in (None, row[3]):
            raise errors.message_id_conflict(message_id)
        return None if row is None else Duplicate(row[0], row[1], row[2])

    def list_tasks(self, query: TaskQuery) -> TaskPage:
        """Tasks by newest status. The page and its total are of the same moment."""
        page, total = choose_statements(query)
        values = bind(query)
        self._connection.execute("BEGIN")
        try:
            rows = self._connection.execute(page, values).fetchall()
            tasks = tuple(self._stored(row) for row in rows[: query.limit])
            count = self._connection.execute(total, values).fetchone()[0]
        finally:
            self._connection.execute("COMMIT")
        return TaskPage(tasks, has_more=len(rows) > query.limit, total=count)

    def _stored(self, row: tuple[Any, ...]) -> StoredTask:
        head = _head(row)
        if row[10] == head.sequence:
            return StoredTask(head, row[11])
        entries = self._connection.execute(_SELECT_ENTRIES, (row[0], row[10], head.sequence))
        return StoredTask(head, row[11], tuple(_entry(entry) for entry in entries))


def choose_statements(query: TaskQuery) -> tuple[str, str]:
    """The statement for the page and the one for the total; `bind` has their values."""
    if query.context_id is not None:
        if query.state is None:
            return _LIST_CONTEXT, _COUNT_CONTEXT
        if is_active(query.state):
            return _LIST_ACTIVE_CONTEXT, _COUNT_ACTIVE_CONTEXT
        return _LIST_CONTEXT_STATE, _COUNT_CONTEXT_STATE
    if query.state is not None:
        return _LIST_STATE, _TALLY_STATE if query.status_since is None else _COUNT_STATE
    return _LIST_ALL, _TALLY if query.status_since is None else _COUNT_ALL


def bind(query: TaskQuery) -> dict[str, object]:
    """The values that the statements of a query name."""
    return {
        "principal": query.scope.principal,
        "account": query.scope.account,
        "context": query.context_id,
        "state": CODE_OF[query.state],
        "since": _FIRST if query.status_since is None else to_microseconds(query.status_since),
        "before": _LAST if query.after is None else to_microseconds(query.after.status_at),
        "before_id": "" if query.after is None else query.after.id,
        "limit": query.limit + 1,
    }


def _head(row: tuple[Any, ...]) -> TaskHead:
    try:
        binding = decode_binding(row[9])
    except msgspec.DecodeError as error:
        raise CorruptRecord(
            f"the stored binding of task {row[1]!r} cannot be read: {error}; delete the task, "
            "or restore the database from a backup"
        ) from error
    return TaskHead(
        id=row[1],
        scope=Scope(row[2], row[3]),
        context_id=row[4],
        state=STATE_OF[row[5]],
        status_at=from_microseconds(row[6]),
        created_at=from_microseconds(row[7]),
        sequence=row[8],
        binding=binding,
    )


def _entry(row: tuple[Any, ...]) -> Entry:
    return Entry(row[0], row[1], None if row[2] is None else STATE_OF[row[2]])
