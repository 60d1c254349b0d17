"""One task of a PostgreSQL store: its head, snapshot, events, and large strings."""

import hashlib
from collections.abc import Awaitable, Callable, Iterable

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
from openclaw_a2a.store.contents import (
    MARK,
    list_references,
    make_outline,
    mark_contents,
    restore,
)
from openclaw_a2a.store.postgres.address import DatabaseRow
from openclaw_a2a.store.postgres.database import PostgresDatabase, PostgresPart, scope_values
from openclaw_a2a.store.postgres.message_lookup import MessageLookup
from openclaw_a2a.store.rules import UNREADABLE, check_same_body, damaged_task

_READ_BYTES = 256 * 1024
"""About how much of a large task is read at once."""
EVENTS_AT_ONCE = 1000
"""How many events are read at once."""

_TASK = f"""
SELECT {HEAD_COLUMNS}, s.sequence, s.body FROM task t LEFT JOIN snapshot s ON s.task = t.number"""
_READ_TASK = f"""{_TASK}
WHERE t.id = $1 AND ($2::text IS NULL OR (t.principal = $2 AND t.account = $3))"""
_READ_SNAPSHOT = f"""{_TASK}
WHERE t.id = $1 AND t.principal = $2 AND t.account = $3
  AND s.sequence = t.sequence AND octet_length(s.body) BETWEEN 1 AND $4"""
_MEASURE_TASK = f"""
SELECT {HEAD_COLUMNS}, coalesce(octet_length(s.body), 0)
  + (SELECT coalesce(sum(octet_length(e.body)), 0) FROM event e
     WHERE e.task = t.number AND e.sequence > s.sequence)
  + (SELECT coalesce(sum(octet_length(c.body)), 0) FROM content c WHERE c.task = t.number)
FROM task t LEFT JOIN snapshot s ON s.task = t.number
WHERE t.id = $1 AND ($2::text IS NULL OR (t.principal = $2 AND t.account = $3))"""
# As many as fit: the sizes are known without reading what is stored out of line.
_EVENTS = """
SELECT sequence, body, state, task FROM (
  SELECT e.sequence, e.body, e.state, e.task,
    sum(octet_length(e.body)) OVER (ORDER BY e.sequence) - octet_length(e.body) AS before
  FROM ({}) e
) e WHERE before <= $1::bigint ORDER BY sequence"""
_READ_ENTRIES = _EVENTS.format("""
    SELECT task, sequence, state, body FROM event
    WHERE task = $2 AND sequence > $3 AND sequence <= $4
    ORDER BY sequence LIMIT $5""")
_READ_EVENTS = _EVENTS.format("""
    SELECT v.task, v.sequence, v.state, v.body FROM task t JOIN event v ON v.task = t.number
    WHERE t.id = $2 AND ($3::text IS NULL OR (t.principal = $3 AND t.account = $4))
      AND v.sequence > $5
    ORDER BY v.sequence LIMIT $6""")
_READ_CONTENTS = "SELECT hash, body FROM content WHERE task = $1 AND hash = ANY ($2)"
_FIND_CONTENT = """
SELECT c.task, octet_length(c.body) FROM task t JOIN content c ON c.task = t.number
WHERE t.id = $1 AND c.hash = $2"""
_READ_SLICE = "SELECT substring(body FROM $3 FOR $4) FROM content WHERE task = $1 AND hash = $2"
_HAS_TASK = "SELECT true FROM task WHERE number = $1"
_READ_RESUME = "SELECT resume FROM task WHERE id = $1"

_LAST = 2**63 - 1

_Restore = Callable[[int, bytes], Awaitable[bytes]]
"""The body of a row with what it refers to, from the number of its task and the row."""


class PostgresTaskReader(PostgresPart):
    """Reads of one task, and of an idempotency record."""

    def __init__(self, database: PostgresDatabase) -> None:
        super().__init__(database)
        self._message_lookup = MessageLookup(database.fetch)

    async def read_task(self, scope: Scope | None, task_id: TaskId) -> StoredTask | None:
        row = await self._find_row(scope, task_id)
        return None if row is None else await self._read_stored(row, self._restore)

    async def read_snapshot(
        self, scope: Scope, task_id: TaskId, *, most_bytes: int
    ) -> bytes | None:
        values = (task_id, scope.principal, scope.account, most_bytes)
        row = await self._database.fetch_one(_READ_SNAPSHOT, *values)
        # Of one with large strings only references are here; `read_task` puts them together.
        if row is None or row[11][0] == MARK:
            return None
        self._head(row)  # a task of which anything is damaged is not shown
        try:
            check_task_body(task_id, row[11])
        except UNREADABLE as error:
            raise self._damaged(task_id, error) from error
        return row[11]

    async def read_outline(self, scope: Scope | None, task_id: TaskId) -> TaskOutline | None:
        row = await self._find_row(scope, task_id)
        if row is None:
            return None
        stored = await self._read_stored(row, _mark_contents)
        return None if stored is None else make_outline(stored)

    async def read_contents(
        self, scope: Scope | None, task_id: TaskId, keys: Iterable[bytes]
    ) -> dict[bytes, tuple[bytes, ...]] | None:
        if await self._find_row(scope, task_id) is None:
            return None
        contents: dict[bytes, tuple[bytes, ...]] = {}
        for key in keys:
            slices = await self._read_slices(task_id, bytes.fromhex(key.decode("ascii")))
            if slices is None:
                return None
            contents[key] = slices
        return contents

    async def _find_row(self, scope: Scope | None, task_id: TaskId) -> DatabaseRow | None:
        return await self._database.fetch_one(_READ_TASK, task_id, *scope_values(scope))

    async def _read_stored(self, row: DatabaseRow, restore_body: _Restore) -> StoredTask | None:
        """The task; None if it was deleted meanwhile. Raises: CorruptRecord."""
        head, snapshot = self._head(row), row[11]
        try:
            snapshot = await self._check_snapshot(head, row[0], snapshot, restore_body)
            entries = await self._read_entries(row[0], head, row[10], restore_body)
        except UNREADABLE as error:
            # Events are kept as long as their task: one that is missing may be a task that was
            # deleted between two reads.
            if await self._database.fetch_one(_HAS_TASK, row[0]) is None:
                return None
            raise self._damaged(head.id, error) from error
        return StoredTask(head, snapshot, tuple(entries))

    async def _check_snapshot(
        self, head: TaskHead, number: int, snapshot: bytes | None, restore_body: _Restore
    ) -> bytes:
        if not snapshot:
            raise ValueError("it has no snapshot")
        if snapshot[0] == MARK:
            snapshot = await restore_body(number, snapshot)
        check_task_body(head.id, snapshot)
        return snapshot

    async def _read_entries(
        self, number: int, head: TaskHead, after: int, restore_body: _Restore
    ) -> list[Entry]:
        """The events that complete a snapshot, read in pages."""
        entries: list[Entry] = []
        pacer = Pacer()
        while after < head.sequence:
            values = (_READ_BYTES, number, after, head.sequence, EVENTS_AT_ONCE)
            rows = await self._database.fetch(_READ_ENTRIES, *values)
            if not rows:
                raise ValueError(f"it lacks the events after {after}")
            for row in rows:
                after += 1
                entries.append(await self._entry(head.id, row, after, restore_body))
            await pacer.pause()
        return entries

    async def _entry(
        self, task_id: TaskId, row: DatabaseRow, expected: int, restore_body: _Restore
    ) -> Entry:
        if row[0] != expected:
            raise ValueError(f"event {expected} is missing")
        body = await restore_body(row[3], row[1]) if row[1][0] == MARK else row[1]
        check_event_body(task_id, body)
        return Entry(row[0], body, None if row[2] is None else STATE_OF[row[2]])

    async def _restore(self, number: int, body: bytes) -> bytes:
        digests = list_references(body)
        rows = await self._database.fetch(_READ_CONTENTS, number, digests)
        return restore(body, {row[0]: row[1] for row in rows}.get)

    async def _read_slices(self, task_id: TaskId, digest: bytes) -> tuple[bytes, ...] | None:
        """A content in slices; None when its task was deleted meanwhile."""
        slices: list[bytes] = []
        hashed = hashlib.sha256()
        found = await self._database.fetch_one(_FIND_CONTENT, task_id, digest)
        if found is not None:
            for start in range(0, found[1], _READ_BYTES):
                values = (found[0], digest, start + 1, _READ_BYTES)
                row = await self._database.fetch_one(_READ_SLICE, *values)
                if row is not None:
                    slices.append(row[0])
                    hashed.update(row[0])
        if hashed.digest() == digest:
            return tuple(slices)
        if await self._find_row(None, task_id) is None:
            return None
        error = ValueError(f"its content {digest.hex()[:16]} is missing or changed")
        raise self._damaged(task_id, error) from error

    async def measure_task(self, scope: Scope | None, task_id: TaskId) -> MeasuredTask | None:
        row = await self._database.fetch_one(_MEASURE_TASK, task_id, *scope_values(scope))
        return None if row is None else MeasuredTask(self._head(row), int(row[10]))

    async def read_resume_token(self, task_id: TaskId) -> bytes | None:
        row = await self._database.fetch_one(_READ_RESUME, task_id)
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
        entries: list[Entry] = []
        size, after = 0, max(after, 0)
        most = _LAST if max_bytes is None else max_bytes
        try:
            while len(entries) < limit and size <= most:
                count = min(limit - len(entries), EVENTS_AT_ONCE)
                room = min(most - size, _READ_BYTES)
                values = (room, task_id, *scope_values(scope), after, count)
                rows = await self._database.fetch(_READ_EVENTS, *values)
                for row in rows:
                    after += 1
                    entries.append(await self._entry(task_id, row, after, self._restore))
                    size += len(entries[-1].body)
                    if size > most:
                        break
                if not rows:
                    break
        except UNREADABLE as error:
            # A reader gets what comes before the damage, and the error with its next read.
            if not entries:
                raise self._damaged(task_id, error) from error
        return entries

    async def find_duplicate(
        self, scope: Scope, message_id: MessageId, *, body_hash: bytes | None = None
    ) -> Duplicate | None:
        row = await self._message_lookup.find((scope.principal, scope.account, message_id))
        if row is None:
            return None
        check_same_body(row[6], body_hash, message_id)
        return Duplicate(row[3], row[4], row[5])

    def _head(self, row: DatabaseRow) -> TaskHead:
        try:
            return decode_head(row, lambda time: time)
        except UNREADABLE as error:
            raise self._damaged(row[1], error) from error

    def _damaged(self, task_id: TaskId, error: BaseException) -> CorruptRecord:
        if isinstance(error, CorruptRecord) and error.details.get("taskId"):
            return error
        return damaged_task(self._database.name, task_id, error)


async def _mark_contents(_task: int, body: bytes) -> bytes:
    return mark_contents(body)
