"""The tasks of a SQLite store: reads, lists, and the rarer writes: claims, renewals, deletions.

The rarer writes work on the tables, so they flush what the transaction has collected first.
"""

import hashlib
import secrets
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from openclaw_a2a.engine.scheduling.fair_queue import Pacer
from openclaw_a2a.model.errors import CorruptRecord
from openclaw_a2a.model.ids import MessageId, TaskId
from openclaw_a2a.model.records import (
    Entry,
    RunRecord,
    StoredTask,
    TaskHead,
    TaskOutline,
    check_event_body,
    check_task_body,
)
from openclaw_a2a.model.task import is_active, is_terminal
from openclaw_a2a.model.turn import Binding, Scope
from openclaw_a2a.ports import (
    ALL_TASKS,
    Duplicate,
    MeasuredTask,
    PurgeResult,
    RecentHead,
    Retention,
    StatusQuery,
    TaskFilter,
    TaskPage,
    TaskQuery,
)
from openclaw_a2a.store.columns import CODE_OF, STATE_OF, TERMINAL_CODES
from openclaw_a2a.store.commands import ClaimRuns, RenewLeases, TaskWrites
from openclaw_a2a.store.rules import (
    UNREADABLE,
    check_same_body,
    choose_purgeable,
    damaged_task,
    report_damage,
)
from openclaw_a2a.store.sqlite.contents import MARK, restore
from openclaw_a2a.store.sqlite.database import DatabasePart, Row, bind_scope
from openclaw_a2a.store.sqlite.records import purge_records
from openclaw_a2a.store.sqlite.transaction import (
    WriteTransaction,
    decode_run,
    from_microseconds,
    to_microseconds,
)

_binding_decoder = msgspec.json.Decoder(Binding)

_PURGE_BATCH = 100
"""How many tasks or messages one write of a purge examines at most."""

_COUNT_STEP = 2000
"""How many tasks are counted at once: a caller may have hundreds of thousands."""

_READ_BYTES = 256 * 1024
"""About how much of a large task is read at once."""

_CONTENT_MARK = b"content-%b-" % secrets.token_hex(16).encode()
"""Of this process: a peer does not know it, so no text of a peer is taken for a mark."""
_KEY_SIZE = 2 * hashlib.sha256().digest_size  # the key of a content is its hash in hex

_Restore = Callable[[int, bytes], bytes]
"""The body of a row with what it refers to, from the number of its task and the row."""

_TASK = """
SELECT t.number, t.id, t.principal, t.account, t.context, t.state, t.status_at, t.created_at,
  t.sequence, t.binding, s.sequence, s.body
FROM task t LEFT JOIN snapshot s ON s.task = t.number"""
_SELECT_TASK = f"{_TASK} WHERE t.id = ?"
_SELECT_SNAPSHOT = f"""{_SELECT_TASK} AND t.principal = ? AND t.account = ?
  AND s.sequence = t.sequence AND length(s.body) BETWEEN 1 AND ?"""
# The length of a column is in the header of its row: nothing else of it is read.
_MEASURE_TASK = """
SELECT t.number, t.id, t.principal, t.account, t.context, t.state, t.status_at, t.created_at,
  t.sequence, t.binding, coalesce(length(s.body), 0)
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
_SELECT_RECENT = """
SELECT number, id, principal, account, context, state, status_at, created_at, sequence, binding,
  resume
FROM task
WHERE (:principal IS NULL OR principal = :principal) AND (:account IS NULL OR account = :account)
  AND (:state IS NULL OR state = :state)
ORDER BY number DESC LIMIT :limit"""
# The tally names the callers that have such tasks, so that no scan of all tasks is needed.
SELECT_RECENT_IN_STATE = """
SELECT t.number, t.id, t.principal, t.account, t.context, t.state, t.status_at, t.created_at,
  t.sequence, t.binding, t.resume
FROM tally y CROSS JOIN task t INDEXED BY task_by_status
  ON t.principal = y.principal AND t.account = y.account AND t.state = y.state
WHERE y.state = :state AND y.count > 0
  AND (:principal IS NULL OR y.principal = :principal)
  AND (:account IS NULL OR y.account = :account)
ORDER BY t.number DESC LIMIT :limit"""
_COUNT_TASKS = """
SELECT coalesce(sum(count), 0) FROM tally
WHERE (:principal IS NULL OR principal = :principal) AND (:account IS NULL OR account = :account)
  AND (:state IS NULL OR state = :state)"""
# Of every caller and state, the newest status before a key: a page holds tasks of the newest of
# these groups. Each is one step in the index, so many tasks cost what few do.
_SELECT_NEWEST = """
SELECT principal, account, state, (
  SELECT status_at FROM task t INDEXED BY task_by_status
  WHERE t.principal = y.principal AND t.account = y.account AND t.state = y.state
    AND (t.status_at, t.id) < (:before, :before_id)
  ORDER BY t.status_at DESC, t.id DESC LIMIT 1
) AS newest
FROM tally y
WHERE count > 0 AND newest IS NOT NULL
  AND (:principal IS NULL OR principal = :principal) AND (:account IS NULL OR account = :account)
ORDER BY newest DESC"""
_SELECT_LATEST = """
SELECT number, id, principal, account, context, state, status_at, created_at, sequence, binding,
  resume
FROM task INDEXED BY task_by_status
WHERE principal = :principal AND account = :account AND state = :state
  AND (status_at, id) < (:before, :before_id) AND status_at >= :since
ORDER BY status_at DESC, id DESC LIMIT :limit"""
_SELECT_RESUME = "SELECT resume FROM task WHERE id = ?"
# The tally names the callers that have active tasks, so that no scan of all tasks is needed.
_SELECT_ORPHANS = """
SELECT t.id FROM tally y
JOIN task t ON t.principal = y.principal AND t.account = y.account AND t.state = y.state
WHERE y.state IN (1, 2) AND y.count > 0 AND t.id NOT IN (SELECT task FROM run)"""
_SELECT_DUPLICATE = """
SELECT run, task, answer, body_hash FROM message
WHERE principal = ? AND account = ? AND message_id = ?"""

_CLAIM_RUNS = """
UPDATE run SET owner = ?, lease_until = ?, fence = fence + 1
WHERE owner <> ? AND lease_until < ?
RETURNING ticket, id, task, context, principal, account, session_key, message_id, owner, fence,
  lease_until, is_started, attempt, input, resume"""
_SELECT_RUN_CONTENT = """
SELECT body FROM content WHERE task = (SELECT number FROM task WHERE id = ?) AND hash = ?"""
_DELETE_RUN = "DELETE FROM run WHERE ticket = ?"
_RENEW = "UPDATE run SET lease_until = ? WHERE owner = ?"
_SELECT_OWN_TASK = """
SELECT status_at, id, number, principal, account, state FROM task
WHERE id = ? AND principal = ? AND account = ?"""
_SELECT_FINISHED = """
SELECT principal, account, state, count FROM tally WHERE state IN (3, 4, 5, 7) AND count > 0"""
SELECT_OLDEST = """
SELECT status_at, id, number, principal, account, state FROM task INDEXED BY task_by_status
WHERE principal = ? AND account = ? AND state = ? AND (status_at, id) > (?, ?) AND status_at < ?
ORDER BY status_at, id LIMIT ?"""
# The deliveries that `list_unfinished_deliveries` has of a finished task.
SELECT_HOLDING = """
SELECT 1 FROM delivery d INDEXED BY delivery_by_task
WHERE d.task = ? AND d.state <> 2
  AND (d.state = 1 OR d.cursor < (SELECT t.sequence FROM task t WHERE t.number = ?))
LIMIT 1"""
_DELETE_TASK = "DELETE FROM task WHERE number = ?"
_DELETE_SNAPSHOT = "DELETE FROM snapshot WHERE task = ?"
_DELETE_EVENTS = "DELETE FROM event WHERE task = ?"
_DELETE_CONTENTS = "DELETE FROM content WHERE task = ?"
_DELETE_DELIVERIES = "DELETE FROM delivery WHERE task = ?"
_DELETE_MESSAGES = """
DELETE FROM message WHERE number IN (
  SELECT number FROM message WHERE created_at < ? ORDER BY created_at LIMIT ?)"""


# Keys are found in an index before any row is read. Every statement names its index, so that a
# page costs the same whatever SQLite estimates about the size of the table.
_SCOPE = "principal = :principal AND account = :account"
_RANGE = "status_at >= :since AND (status_at, id) < (:before, :before_id)"
_BY_STATUS = f"FROM task INDEXED BY task_by_status WHERE {_SCOPE} AND state = {{}}"
_BY_CONTEXT = f"""
FROM task INDEXED BY task_by_context
WHERE {_SCOPE} AND context = :context AND state NOT IN (1, 2) AND state = {{}}"""
_STATE = _BY_STATUS.format(":state")
_TALLY = """
SELECT coalesce(sum(count), 0) FROM tally WHERE principal = :principal AND account = :account"""
_TALLY_STATE = f"{_TALLY} AND state = :state"


class ListStatements(NamedTuple):
    """The statements of a list.

    `page` merges ordered ranges. `total` is right below `_COUNT_STEP`; beyond, each of `steps` has
    the keys of one range, as many at a time.
    """

    page: str
    total: str
    steps: tuple[str, ...] = ()


def _statements(*arms: str) -> ListStatements:
    keys = " UNION ALL ".join(f"SELECT number, status_at, id {arm} AND {_RANGE}" for arm in arms)
    page = (
        f"{_TASK} JOIN ({keys} ORDER BY status_at DESC, id DESC LIMIT :limit) k "
        "ON k.number = t.number ORDER BY t.status_at DESC, t.id DESC"
    )
    limit = f"LIMIT {_COUNT_STEP}"
    counts = [
        f"(SELECT count(*) FROM (SELECT 1 {arm} AND status_at >= :since {limit}))"  # noqa: S608 - all of it is ours
        for arm in arms
    ]
    steps = [
        f"SELECT status_at, id {arm} AND (status_at, id) > (:counted, :counted_id)"
        f" ORDER BY status_at, id {limit}"
        for arm in arms
    ]
    return ListStatements(page, "SELECT " + " + ".join(counts), tuple(steps))


_LIST_ALL = _statements(*map(_BY_STATUS.format, STATE_OF))
_LIST_STATE = _statements(_STATE)
# `task_by_context` has no active tasks: they change too often to be worth their index entries.
_LIST_CONTEXT = _statements(
    *(_BY_CONTEXT.format(code) for code in STATE_OF if code not in (1, 2)),
    *(f"{_BY_STATUS.format(code)} AND context = :context" for code in (1, 2)),
)
_LIST_CONTEXT_STATE = _statements(_BY_CONTEXT.format(":state"))
_LIST_CONTEXT_ACTIVE = _statements(f"{_STATE} AND context = :context")

_FIRST, _LAST = -(2**63), 2**63 - 1


class SqliteTaskStore(DatabasePart, TaskWrites):
    """The task store over a database."""

    def delete_task(self, scope: Scope, task_id: TaskId) -> Awaitable[bool]:
        return self._write(partial(delete_task, scope=scope, task_id=task_id))

    async def purge(self, retention: Retention) -> PurgeResult:
        # In batches, so that a long backlog does not hold up other writes.
        count, after = 0, retention.after
        for start in range(0, retention.limit, _PURGE_BATCH):
            limit = min(_PURGE_BATCH, retention.limit - start)
            batch = msgspec.structs.replace(retention, limit=limit, after=after)
            purged = await self._write(partial(purge_tasks, retention=batch))
            count, after = count + purged.count, purged.next_after
            if after is None:
                break
        batch = msgspec.structs.replace(retention, limit=_PURGE_BATCH)
        messages = await self._purge_all(partial(purge_messages, retention=batch))
        records = await self._purge_all(partial(purge_records, retention=batch))
        return PurgeResult(count, after, messages, records)

    async def _purge_all(self, purge_batch: Callable[[WriteTransaction], int]) -> int:
        total = 0
        while (deleted := await self._write(purge_batch)) == _PURGE_BATCH:
            total += deleted
        return total + deleted

    async def list_orphaned_tasks(self) -> list[TaskId]:
        return [row[0] for row in self._database.fetch_all(_SELECT_ORPHANS)]

    async def read_task(self, scope: Scope | None, task_id: TaskId) -> StoredTask | None:
        row = self._find_row(scope, task_id)
        return None if row is None else await self._read_stored(row, self._restore)

    async def read_snapshot(
        self, scope: Scope, task_id: TaskId, *, most_bytes: int
    ) -> bytes | None:
        values = (task_id, scope.principal, scope.account, most_bytes)
        row = self._database.fetch_one(_SELECT_SNAPSHOT, values)
        body = None if row is None else row[11]
        # Of one with large strings only references are here; `read_task` puts them together, and
        # says what is wrong with a body of another type.
        if row is None or not isinstance(body, bytes) or body[0] == MARK:
            return None
        self._head(row)  # a task of which anything is damaged is not shown
        try:
            check_task_body(task_id, body)
        except UNREADABLE as error:
            raise self._damaged(task_id, error) from error
        return body

    async def read_outline(self, scope: Scope | None, task_id: TaskId) -> TaskOutline | None:
        row = self._find_row(scope, task_id)
        if row is None:
            return None
        stored = await self._read_stored(row, _mark_contents)
        return None if stored is None else TaskOutline(stored, _CONTENT_MARK, _KEY_SIZE)

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
        snapshot, pages = self._read_content(row, restore)
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
        return StoredTask(self._head(row), snapshot, tuple(entries))

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

    async def list_recent_tasks(
        self, limit: int, chosen: TaskFilter = ALL_TASKS
    ) -> list[RecentHead]:
        values = {**_bind_filter(chosen), "limit": limit}
        # Tasks that have not ended are few. Ended ones are many, and the newest are found at once.
        is_few = chosen.state is not None and not is_terminal(chosen.state)
        statement = SELECT_RECENT_IN_STATE if is_few else _SELECT_RECENT
        rows = self._database.fetch_all(statement, values)
        found: list[RecentHead] = []
        for row in rows:
            try:  # not `suppress`: it would be a third of the work
                found.append(RecentHead(self._head(row), row[10]))
            except CorruptRecord:
                continue
        return found

    async def count_tasks(self, chosen: TaskFilter = ALL_TASKS) -> int:
        return self._database.fetch_all(_COUNT_TASKS, _bind_filter(chosen))[0][0]

    async def list_by_status(self, query: StatusQuery) -> list[RecentHead]:
        before, before_id = _LAST, ""
        if query.after is not None:
            before, before_id = to_microseconds(query.after.status_at), query.after.id
        key = {"before": before, "before_id": before_id}
        codes = {CODE_OF[state] for state in query.states}
        rows: list[Row] = []
        with self._database.snapshot():
            chosen = {"principal": query.principal, "account": query.account, **key}
            groups = [
                group
                for group in self._database.fetch_all(_SELECT_NEWEST, chosen)
                if not codes or group[2] in codes
            ]
            for principal, account, state, newest in groups:
                since = _FIRST
                if len(rows) >= query.limit:
                    # What is older than all of a full page is not read. Of equal times, the ids
                    # decide, so groups with the same time are.
                    rows = sorted(rows, key=_status_key, reverse=True)[: query.limit]
                    since = rows[-1][6]
                    if newest < since:
                        break
                values = {"principal": principal, "account": account, "state": state, **key}
                values |= {"since": since, "limit": query.limit}
                rows += self._database.fetch_all(_SELECT_LATEST, values)
        rows = sorted(rows, key=_status_key, reverse=True)[: query.limit]
        found: list[RecentHead] = []
        for row in rows:
            with suppress(CorruptRecord):
                found.append(RecentHead(self._head(row), row[10]))
        return found

    async def list_tasks(self, query: TaskQuery) -> TaskPage:
        statements = choose_statements(query)
        values = bind(query)
        page = self._read_page(query, statements, values)
        if query.counts and page.total >= _COUNT_STEP and statements.steps:
            # Not of the same moment as the page any more: others have their turns in between.
            total = await self._count_in_steps(statements.steps, values)
            page = msgspec.structs.replace(page, total=total)
        return page

    async def _count_in_steps(self, steps: Iterable[str], values: dict[str, object]) -> int:
        total, pacer = 0, Pacer()
        for step in steps:
            # Before the first of them: no task has an empty id.
            counted = {**values, "counted": values["since"], "counted_id": ""}
            while rows := self._database.fetch_all(step, counted):
                total += len(rows)
                counted["counted"], counted["counted_id"] = rows[-1]
                await pacer.pause()
        return total

    def _read_page(
        self, query: TaskQuery, statements: ListStatements, values: dict[str, object]
    ) -> TaskPage:
        tasks: list[StoredTask] = []
        large: set[TaskId] = set()
        size = 0
        # One snapshot: the page and its total are of the same moment.
        with self._database.snapshot():
            all_tasks = 0
            if query.counts:
                all_tasks = self._database.fetch_all(statements.total, values)[0][0]
            while True:
                rows = self._database.fetch_all(statements.page, values)
                for row in rows:
                    is_full = query.max_bytes is not None and size > query.max_bytes
                    if is_full or len(tasks) == query.limit:
                        return TaskPage(tuple(tasks), True, all_tasks, frozenset(large))
                    with suppress(CorruptRecord):
                        stored = self._stored(row, query.large_bytes)
                        if stored is None:
                            stored = StoredTask(self._head(row), b"")
                            large.add(stored.head.id)
                        tasks.append(stored)
                        size += len(tasks[-1].snapshot)
                        size += sum([len(entry.body) for entry in tasks[-1].entries])
                # Damaged tasks are left out, and the page is filled up with those that follow: a
                # page without tasks is the last one.
                if len(rows) <= query.limit:
                    return TaskPage(tuple(tasks), False, all_tasks, frozenset(large))
                values["before"], values["before_id"] = rows[-1][6], rows[-1][1]

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

    def _stored(self, row: Row, most_bytes: int | None) -> StoredTask | None:
        """The task; None if it may be larger. Raises CorruptRecord if any of it is damaged."""
        if most_bytes is None:
            snapshot, pages = self._read_content(row, self._restore)
            return StoredTask(self._head(row), snapshot, tuple(chain.from_iterable(pages)))
        try:
            snapshot, pages = self._read_content(row, _refuse_contents)
            size, entries = len(snapshot), list[Entry]()
            for page in pages:
                entries += page
                size += sum([len(entry.body) for entry in page])
                if size > most_bytes:
                    return None
        except _HasContents:
            return None
        return StoredTask(self._head(row), snapshot, tuple(entries)) if size <= most_bytes else None

    def _read_content(self, row: Row, restore: _Restore) -> tuple[bytes, Iterator[list[Entry]]]:
        """The snapshot of a task, and the events after it as they are read, not many at once.

        Raises, also while they are read: CorruptRecord if any of it is damaged.
        """
        head = self._head(row)
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
            return decode_head(row)
        except UNREADABLE as error:
            raise self._damaged(row[1], error) from error

    def _damaged(self, task_id: TaskId, error: BaseException) -> CorruptRecord:
        return damaged_task(str(self._database.path), task_id, error)


_status_key = itemgetter(6, 1)
"""The status and the id of a row of the table of tasks."""


class _HasContents(Exception):
    """A task has strings that are large enough to be stored by themselves."""


def _refuse_contents(_task: int, _body: bytes) -> bytes:
    raise _HasContents


def _mark_contents(_task: int, body: bytes) -> bytes:
    return restore(body, lambda digest: _CONTENT_MARK + digest.hex().encode())


def _next_count(count: int, size: int, total: int) -> int:
    """How many events to read next, after `count`: their size is known only from those before."""
    return max(1, min(4 * count, _READ_BYTES * total // (size + 1)))


def choose_statements(query: TaskQuery) -> ListStatements:
    """The statements of a query; `bind` has their values."""
    if query.context_id is not None:
        if query.state is None:
            return _LIST_CONTEXT
        return _LIST_CONTEXT_ACTIVE if is_active(query.state) else _LIST_CONTEXT_STATE
    found = _LIST_ALL if query.state is None else _LIST_STATE
    if query.status_since is None:
        return ListStatements(found.page, _TALLY if query.state is None else _TALLY_STATE)
    return found


def bind(query: TaskQuery) -> dict[str, object]:
    """The named values of the statements of a query."""
    return {
        "principal": query.scope.principal,
        "account": query.scope.account,
        "context": query.context_id,
        "state": CODE_OF[query.state],
        "since": _FIRST if query.status_since is None else to_microseconds(query.status_since),
        "before": _LAST if query.after is None else to_microseconds(query.after.status_at),
        "before_id": "" if query.after is None else query.after.id,
        # One more than the page: it tells whether another page follows.
        "limit": query.limit + 1,
    }


def _bind_filter(chosen: TaskFilter) -> dict[str, object]:
    return {
        "principal": chosen.principal,
        "account": chosen.account,
        "state": CODE_OF[chosen.state],
    }


def decode_head(row: Row) -> TaskHead:
    """The head in a row of the table of tasks."""
    _, task_id, principal, account, context_id, state, status_at, created_at, *rest = row
    return TaskHead(
        task_id,
        Scope(principal, account),
        context_id,
        STATE_OF[state],
        from_microseconds(status_at),
        from_microseconds(created_at),
        rest[0],
        None if rest[1] is None else _binding_decoder.decode(rest[1]),
    )


def claim_runs(transaction: WriteTransaction, command: ClaimRuns) -> list[RunRecord]:
    """In order of arrival, each with the next fence."""
    transaction.flush()
    owner, lease_until = command.owner, to_microseconds(command.lease_until)
    before = _LAST if command.expired_at is None else to_microseconds(command.expired_at)
    rows = transaction.connection.execute(
        _CLAIM_RUNS, (owner, lease_until, owner, before)
    ).fetchall()
    claimed: list[RunRecord] = []
    # RETURNING has no order. The first column is the ticket.
    for row in sorted(rows, key=itemgetter(0)):
        try:
            run = decode_run(row, partial(_find_run_content, transaction, row[2]))
        except UNREADABLE as error:
            # What was to be done cannot be read any more. Without its run the task is an orphan,
            # which recovery fails; left alone it would stay `working` for ever.
            report_damage("sqlite", "run", row[1], f"{type(error).__name__}: {error}; removed")
            transaction.connection.execute(_DELETE_RUN, (row[0],))
            transaction.cache.runs.pop(row[1], None)
            continue
        # From now on the former owner's writes are refused, those of this group included.
        transaction.cache.runs[run.id].fence = run.fence
        claimed.append(run)
    return claimed


def _find_run_content(
    transaction: WriteTransaction, task_id: TaskId, digest: bytes
) -> bytes | None:
    found = transaction.connection.execute(_SELECT_RUN_CONTENT, (task_id, digest)).fetchone()
    return None if found is None else found[0]


def renew_leases(transaction: WriteTransaction, command: RenewLeases) -> None:
    """Extend the lease of every run of an owner."""
    transaction.flush()
    # After the flush: a run that was submitted in this group has its row by now and is renewed too.
    transaction.connection.execute(_RENEW, (to_microseconds(command.lease_until), command.owner))


def delete_task(transaction: WriteTransaction, scope: Scope, task_id: TaskId) -> bool:
    """Delete a finished task; False if it is missing or unfinished."""
    transaction.flush()
    key = (task_id, scope.principal, scope.account)
    row = transaction.connection.execute(_SELECT_OWN_TASK, key).fetchone()
    if row is None or row[5] not in TERMINAL_CODES:
        return False
    _delete(transaction, [row])
    return True


def purge_tasks(transaction: WriteTransaction, retention: Retention) -> PurgeResult:
    """Delete finished tasks that are too old or too many and have nothing left to deliver."""
    transaction.flush()
    execute = transaction.connection.execute
    key, limit = retention.after, retention.limit
    after = (_FIRST, "") if key is None else (to_microseconds(key.status_at), key.id)
    # One range of the index per caller and state, merged: the oldest of all without a scan.
    groups = execute(_SELECT_FINISHED).fetchall()
    finished = sum(group[3] for group in groups)
    is_surplus = finished > retention.keep_ended
    # With a surplus every finished task may be due, however young.
    before = _LAST if is_surplus else to_microseconds(retention.ended_before)
    found: list[tuple[Any, ...]] = []
    for group in groups:
        found += execute(SELECT_OLDEST, (*group[:3], *after, before, limit))
    purged, next_after = choose_purgeable(
        [(_clamp_time(row[0]), *row[1:]) for row in sorted(found)[:limit]],
        retention,
        finished=finished,
        is_held=lambda row: execute(SELECT_HOLDING, row[1:3]).fetchone() is not None,
    )
    _delete(transaction, purged)
    return PurgeResult(len(purged), next_after)


def _clamp_time(count: int) -> datetime:
    """The time of a column value; of a damaged one the nearest there is."""
    try:
        return from_microseconds(count)
    except OverflowError:
        return (datetime.min if count < 0 else datetime.max).replace(tzinfo=UTC)


def purge_messages(transaction: WriteTransaction, retention: Retention) -> int:
    """Delete old idempotency records, at most `limit`; how many were deleted."""
    transaction.flush()
    values = (to_microseconds(retention.messages_before), retention.limit)
    return transaction.connection.execute(_DELETE_MESSAGES, values).rowcount


def _delete(transaction: WriteTransaction, rows: list[tuple[Any, ...]]) -> None:
    # Not the idempotency record: a message that is repeated after its task was deleted must not run
    # again. It has an age limit of its own, see `purge_messages`.
    for statement in (_DELETE_TASK, _DELETE_SNAPSHOT, _DELETE_EVENTS, _DELETE_CONTENTS):
        transaction.connection.executemany(statement, [(row[2],) for row in rows])
    transaction.connection.executemany(_DELETE_DELIVERIES, [(row[1],) for row in rows])
    for _, task_id, _, principal, account, state in rows:
        transaction.cache.tasks.pop(task_id, None)
        transaction.tally[principal, account, state] -= 1
