"""The questions a SQLite store answers, over one read-only connection."""

import sqlite3
from typing import Any

import msgspec

from openclaw_a2a.model.errors import CorruptRecord
from openclaw_a2a.model.ids import MessageId, TaskId
from openclaw_a2a.model.stored import Entry, StoredTask, TaskHead
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import Known, TaskPage, TaskQuery
from openclaw_a2a.store import refusals
from openclaw_a2a.store.columns import (
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
_SELECT_RESUME = "SELECT resume FROM task WHERE id = ?"
_SELECT_KNOWN = """
SELECT run, task, answer, body_hash FROM message
WHERE principal = ? AND account = ? AND message_id = ?"""

_IN_SCOPE = "principal = :principal AND account = :account"
_IN_RANGE = "status_at >= :since AND (status_at, id) < (:before, :before_id)"
_NEWEST_FIRST = "ORDER BY status_at DESC, id DESC LIMIT :limit"
_KEYS = "SELECT number, status_at, id FROM task"


def _page(keys: str) -> str:
    """The tasks with these keys; the keys are found in an index before any row is touched."""
    return f"{_TASK} JOIN ({keys}) k ON k.number = t.number ORDER BY t.status_at DESC, t.id DESC"


_KEYS_OF_STATE = f"{_KEYS} WHERE {_IN_SCOPE} AND state = {{}} AND {_IN_RANGE}"
_LIST_ALL = _page(
    " UNION ALL ".join(_KEYS_OF_STATE.format(code) for code in STATE_OF) + f" {_NEWEST_FIRST}"
)
_LIST_STATE = _page(f"{_KEYS_OF_STATE.format(':state')} {_NEWEST_FIRST}")
_LIST_CONTEXT = _page(
    f"{_KEYS} WHERE {_IN_SCOPE} AND context = :context AND {_IN_RANGE} {_NEWEST_FIRST}"
)
_LIST_CONTEXT_STATE = _page(
    f"{_KEYS} WHERE {_IN_SCOPE} AND context = :context AND +state = :state AND {_IN_RANGE} "
    f"{_NEWEST_FIRST}"
)
_TALLY = """
SELECT coalesce(sum(count), 0) FROM tally WHERE principal = :principal AND account = :account"""
_TALLY_STATE = f"{_TALLY} AND state = :state"
_COUNT = """
SELECT count(*) FROM task
WHERE principal = :principal AND account = :account AND status_at >= :since"""
_COUNT_STATE = f"{_COUNT} AND state = :state"
_COUNT_ALL = "SELECT " + " + ".join(f"({_COUNT} AND state = {code})" for code in STATE_OF)
_COUNT_CONTEXT = f"{_COUNT} AND context = :context"
_COUNT_CONTEXT_STATE = f"{_COUNT_CONTEXT} AND +state = :state"

_FIRST, _LAST = -(2**63), 2**63 - 1


class SqliteReader:
    """Committed state, as it is at the moment of the question."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def read_task(self, scope: Scope | None, task_id: TaskId) -> StoredTask | None:
        """One task, when it is in scope."""
        row = self._connection.execute(_SELECT_TASK, (task_id,)).fetchone()
        if row is None:
            return None
        if scope is not None and (row[2] != scope.principal or row[3] != scope.account):
            return None
        return self._stored(row)

    def read_resume(self, task_id: TaskId) -> bytes | None:
        """The token its agent left when the task paused."""
        row = self._connection.execute(_SELECT_RESUME, (task_id,)).fetchone()
        return None if row is None else row[0]

    def read_events(self, task_id: TaskId, after: int, limit: int) -> list[Entry]:
        """Committed events with a higher sequence, in order."""
        rows = self._connection.execute(_SELECT_EVENTS, (task_id, after, limit))
        return [_entry(row) for row in rows]

    def read_known(
        self, scope: Scope, message_id: MessageId, *, body_hash: bytes | None = None
    ) -> Known | None:
        """What became of a message. Raises: MessageIdConflict."""
        key = (scope.principal, scope.account, message_id)
        row = self._connection.execute(_SELECT_KNOWN, key).fetchone()
        if row is not None and body_hash not in (None, row[3]):
            raise refusals.message_id_conflict(message_id)
        return None if row is None else Known(row[0], row[1], row[2])

    def list_tasks(self, query: TaskQuery) -> TaskPage:
        """Tasks by newest status. The page and its total are of the same moment."""
        page, total = _statements(query)
        values = _values(query)
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


def _statements(query: TaskQuery) -> tuple[str, str]:
    """The statement for the page and the one for the total."""
    if query.context_id is not None:
        if query.state is not None:
            return _LIST_CONTEXT_STATE, _COUNT_CONTEXT_STATE
        return _LIST_CONTEXT, _COUNT_CONTEXT
    if query.state is not None:
        return _LIST_STATE, _TALLY_STATE if query.status_since is None else _COUNT_STATE
    return _LIST_ALL, _TALLY if query.status_since is None else _COUNT_ALL


def _values(query: TaskQuery) -> dict[str, object]:
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
