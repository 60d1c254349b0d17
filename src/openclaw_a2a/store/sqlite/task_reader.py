"""One task of a SQLite store: its head, snapshot, events, and large strings."""

import hashlib
from collections.abc import Callable, Iterable, Iterator

from openclaw_a2a.engine.scheduling.fair_queue import Pacer
from openclaw_a2a.model.errors import CorruptRecord
from openclaw_a2a.model.ids import MessageId, TaskId
from openclaw_a2a.model.records import (
    Entry,
    StoredTask,
    TaskHead,
    TaskOutline,
    check_event_body,
    check_task_body,
)
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import Duplicate, MeasuredTask
from openclaw_a2a.store.columns import HEAD_COLUMNS, STATE_OF, decode_head
from openclaw_a2a.store.contents import MARK, make_outline, mark_contents, restore
from openclaw_a2a.store.rules import UNREADABLE, check_same_body, damaged_task
from openclaw_a2a.store.sqlite.database import DatabasePart, Row, bind_scope
from openclaw_a2a.store.sqlite.transaction import from_microseconds

_READ_BYTES = 256 * 1024
"""About how much of a large task is read at once."""

_Restore = Callable[[int, bytes], bytes]
"""The body of a row with what it refers to, from the number of its task and the row."""

SELECT_TASKS = f"""
SELECT {HEAD_COLUMNS}, s.sequence, s.body
FROM task t LEFT JOIN snapshot s ON s.task = t.number"""
_SELECT_TASK = f"{SELECT_TASKS} WHERE t.id = ?"
_SELECT_SNAPSHOT = f"""{_SELECT_TASK} AND t.principal = ? AND t.account = ?
  AND s.sequence = t.sequence AND length(s.body) BETWEEN 1 AND ?"""
# The length of a column is in the header of its row: nothing else of it is read.
_MEASURE_TASK = f"""
SELECT {HEAD_COLUMNS}, coalesce(length(s.body), 0)
  + (SELECT coalesce(sum(length(e.body)), 0) FROM event e
     WHERE e.task = t.number AND e.sequence > s.sequence)
  + (SELECT coalesce(sum(length(c.body)), 0) FROM content c WHERE c.task = t.number)
FROM task t LEFT JOIN snapshot s ON s.task = t.number
WHERE t.id = :task
  AND (:principal IS NULL OR (t.principal = :principal AND t.account = :account))"""
_SELECT_ENTRIES = """
SELECT sequence, body, state, task FROM event
WHERE task = ? AND sequence > ? AND sequence <= ? ORDER BY sequence LIMIT ?"""
_FIND_CONTENT = """
SELECT number FROM content
WHERE task = (SELECT number FROM task WHERE id = ?) AND hash = ?"""
_HAS_TASK = "SELECT 1 FROM task WHERE number = ?"
_SELECT_EVENTS = """
SELECT sequence, body, state, task FROM event
WHERE task = (
  SELECT number FROM task
  WHERE id = :task AND (:principal IS NULL OR (principal = :principal AND account = :account))
) AND sequence > :after ORDER BY sequence LIMIT :limit"""
_SELECT_CONTENT = "SELECT body FROM content WHERE task = ? AND hash = ?"
_SELECT_RESUME = "SELECT resume FROM task WHERE id = ?"
_SELECT_DUPLICATE = """
SELECT run, task, answer, body_hash FROM message
WHERE principal = ? AND account = ? AND message_id = ?"""


class SqliteTaskReader(DatabasePart):
    """Reads of one task, and of an idempotency record."""

    async def read_task(self, scope: Scope | None, task_id: TaskId) -> StoredTask | None:
        row = self._find_row(scope, task_id)
        return None if row is None else await self._read_stored(row, self._restore)

    async def read_snapshot(
        self, scope: Scope, task_id: TaskId, *, most_bytes: int
    ) -> bytes | None:
        if (ended := self._database.ended_tasks.find(scope, task_id)) is not None:
            return ended if len(ended) <= most_bytes else None
        values = (task_id, scope.principal, scope.account, most_bytes)
        row = self._database.fetch_one(_SELECT_SNAPSHOT, values)
        body = None if row is None else row[11]
        # Of one with large strings only references are here; `read_task` puts them together, and
        # says what is wrong with a body of another type.
        if row is None or not isinstance(body, bytes) or body[0] == MARK:
            return None
        try:
            decode_head(row, from_microseconds)  # a task of which anything is damaged is not shown
            check_task_body(task_id, body)
        except UNREADABLE as error:
            raise self._damaged(task_id, error) from error
        return body

    async def read_outline(self, scope: Scope | None, task_id: TaskId) -> TaskOutline | None:
        row = self._find_row(scope, task_id)
        if row is None:
            return None
        stored = await self._read_stored(row, lambda _, body: mark_contents(body))
        return None if stored is None else make_outline(stored)

    async def read_contents(
        self, scope: Scope | None, task_id: TaskId, keys: Iterable[bytes]
    ) -> dict[bytes, tuple[bytes, ...]] | None:
        if self._find_row(scope, task_id) is None:
            return None
        contents: dict[bytes, tuple[bytes, ...]] = {}
        for key in keys:
            slices = await self._read_slices(task_id, bytes.fromhex(key.decode("ascii")))
            if slices is None:
                return None
            contents[key] = slices
        return contents

    def _find_row(self, scope: Scope | None, task_id: TaskId) -> Row | None:
        row = self._database.fetch_one(_SELECT_TASK, (task_id,))
        is_own = scope is None or (row and row[2] == scope.principal and row[3] == scope.account)
        return row if is_own else None

    async def _read_stored(self, row: Row, restore: _Restore) -> StoredTask | None:
        entries: list[Entry] = []
        pacer = Pacer()
        head = self._head(row)
        snapshot, pages = self._read_content(row, head, restore)
        try:
            for page in pages:
                entries += page
                await pacer.pause()
        except CorruptRecord:
            # Events are kept as long as their task: one that is missing may be a task that was
            # deleted during a pause.
            if self._database.fetch_one(_HAS_TASK, (row[0],)) is None:
                return None
            raise
        return StoredTask(head, snapshot, tuple(entries))

    async def _read_slices(self, task_id: TaskId, digest: bytes) -> tuple[bytes, ...] | None:
        """A content in slices; None when its task was deleted meanwhile."""
        slices: list[bytes] = []
        pacer, hashed = Pacer(), hashlib.sha256()
        row = self._database.fetch_one(_FIND_CONTENT, (task_id, digest))
        if row is not None:
            with self._database.reading_blob("content", row[0]) as read:
                while part := read(_READ_BYTES):
                    slices.append(part)
                    hashed.update(part)
                    await pacer.pause()
        if hashed.digest() == digest:
            return tuple(slices)
        if self._find_row(None, task_id) is None:
            return None
        error = ValueError(f"its content {digest.hex()[:16]} is missing or changed")
        raise self._damaged(task_id, error) from error

    async def measure_task(self, scope: Scope | None, task_id: TaskId) -> MeasuredTask | None:
        values = {"task": task_id, **bind_scope(scope)}
        row = self._database.fetch_one(_MEASURE_TASK, values)
        return None if row is None else MeasuredTask(self._head(row), row[10])

    async def read_resume_token(self, task_id: TaskId) -> bytes | None:
        row = self._database.fetch_one(_SELECT_RESUME, (task_id,))
        return None if row is None else row[0]

    async def read_events(
        self,
        scope: Scope | None,
        task_id: TaskId,
        *,
        after: int,
        limit: int,
        max_bytes: int | None = None,
    ) -> list[Entry]:
        values = {"task": task_id, "after": after, **bind_scope(scope)}
        entries: list[Entry] = []
        size, count = 0, limit if max_bytes is None else 1
        try:
            while True:
                rows = self._database.fetch_all(_SELECT_EVENTS, {**values, "limit": count})
                for row in rows:
                    number = max(after, 0) + len(entries) + 1
                    entries.append(self._entry(task_id, row, number, self._restore))
                    size += len(entries[-1].body)
                    if max_bytes is not None and size > max_bytes:
                        return entries
                if len(rows) < count or len(entries) == limit:
                    return entries
                values["after"] = entries[-1].sequence
                count = min(_next_count(count, size, len(entries)), limit - len(entries))
        except UNREADABLE as error:
            # A reader gets what comes before the damage, and the error with its next read.
            if not entries:
                raise self._damaged(task_id, error) from error
        return entries

    async def find_duplicate(
        self, scope: Scope, message_id: MessageId, *, body_hash: bytes | None = None
    ) -> Duplicate | None:
        key = (scope.principal, scope.account, message_id)
        database = self._database
        if database.is_open and not database.known_messages.may_contain(key):
            return None
        row = database.fetch_one(_SELECT_DUPLICATE, key)
        if row is None:
            return None
        check_same_body(row[3], body_hash, message_id)
        return Duplicate(*row[:3])

    def _read_content(
        self, row: Row, head: TaskHead, restore: _Restore
    ) -> tuple[bytes, Iterator[list[Entry]]]:
        """The snapshot of a task, and the events after it as they are read, not many at once.

        Raises, also while they are read: CorruptRecord if any of it is damaged.
        """
        snapshot = row[11]
        try:
            if snapshot is None:
                raise ValueError("it has no snapshot")
            if snapshot[0] == MARK:
                snapshot = restore(row[0], snapshot)
            check_task_body(head.id, snapshot)
        except UNREADABLE as error:
            raise self._damaged(head.id, error) from error
        # A snapshot is rewritten only now and then; the events after it complete it.
        return snapshot, self._entry_pages(row[0], head, row[10], restore)

    def _entry_pages(
        self, number: int, head: TaskHead, after: int, restore: _Restore
    ) -> Iterator[list[Entry]]:
        size, total, count, first = 0, 0, 1, after
        while after < head.sequence:
            try:
                values = (number, after, head.sequence, count)
                numbered = enumerate(self._database.fetch_all(_SELECT_ENTRIES, values), after + 1)
                page = [self._entry(head.id, row, expected, restore) for expected, row in numbered]
                if not page:
                    raise ValueError(f"it lacks the events after {after}")
            except UNREADABLE as error:
                raise self._damaged(head.id, error) from error
            yield page
            after, total = page[-1].sequence, page[-1].sequence - first
            size += sum([len(entry.body) for entry in page])
            count = _next_count(count, size, total)

    def _entry(self, task_id: TaskId, row: Row, expected: int, restore: _Restore) -> Entry:
        if row[0] != expected:
            raise ValueError(f"event {expected} is missing")
        body = restore(row[3], row[1]) if row[1][0] == MARK else row[1]
        check_event_body(task_id, body)
        return Entry(row[0], body, None if row[2] is None else STATE_OF[row[2]])

    def _restore(self, task: int, body: bytes) -> bytes:
        def find(digest: bytes) -> bytes | None:
            found = self._database.fetch_one(_SELECT_CONTENT, (task, digest))
            return None if found is None else found[0]

        return restore(body, find)

    def _head(self, row: Row) -> TaskHead:
        try:
            return decode_head(row, from_microseconds)
        except UNREADABLE as error:
            raise self._damaged(row[1], error) from error

    def _damaged(self, task_id: TaskId, error: BaseException) -> CorruptRecord:
        return damaged_task(str(self._database.path), task_id, error)


def _next_count(count: int, size: int, total: int) -> int:
    """How many events to read next, after `count`: their size is known only from those before."""
    return max(1, min(4 * count, _READ_BYTES * total // (size + 1)))
