"""The tasks of a PostgreSQL store: reads, lists, and the writes that work on whole tables."""

import hashlib
import secrets
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec

from openclaw_a2a.engine.scheduling.fair_queue import Pacer
from openclaw_a2a.model.errors import CorruptRecord
from openclaw_a2a.model.ids import MessageId, OwnerId, TaskId
from openclaw_a2a.model.records import (
    Entry,
    RunRecord,
    StoredTask,
    TaskHead,
    TaskOutline,
    check_event_body,
    check_task_body,
)
from openclaw_a2a.model.task import is_terminal
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
    TaskKey,
    TaskPage,
    TaskQuery,
)
from openclaw_a2a.store.columns import (
    CLAIMED_COLUMNS,
    CODE_OF,
    STATE_OF,
    TERMINAL_CODES,
    decode_claimed_run,
)
from openclaw_a2a.store.commands import ClaimRuns, RenewLeases, TaskWrites
from openclaw_a2a.store.contents import MARK, restore
from openclaw_a2a.store.postgres.address import DatabaseRow, Session
from openclaw_a2a.store.postgres.database import PostgresDatabase, PostgresPart, scope_values
from openclaw_a2a.store.rules import (
    UNREADABLE,
    check_same_body,
    choose_purgeable,
    damaged_task,
    report_damage,
)

_binding_decoder = msgspec.json.Decoder(Binding)

_PURGE_BATCH = 100
"""How many tasks or messages one write of a purge examines at most."""
_READ_BYTES = 256 * 1024
"""About how much of a large task is read at once."""
_READ_EVENTS = 1000
"""How many events are read at once."""
_FEW_TASKS = 1000
"""So many tasks are sorted; the newest of more are found by going back through all."""

_CONTENT_MARK = b"content-%b-" % secrets.token_hex(16).encode()
"""Of this process: a peer does not know it, so no text of a peer is taken for a mark."""
_KEY_SIZE = 2 * hashlib.sha256().digest_size  # the key of a content is its hash in hex

_HEAD = """t.number, t.id, t.principal, t.account, t.context, t.state, t.status_at, t.created_at,
  t.sequence, t.binding"""
_TASK = f"""
SELECT {_HEAD}, s.sequence, s.body FROM task t LEFT JOIN snapshot s ON s.task = t.number"""
_READ_TASK = f"""{_TASK}
WHERE t.id = $1 AND ($2::text IS NULL OR (t.principal = $2 AND t.account = $3))"""
_READ_SNAPSHOT = f"""{_TASK}
WHERE t.id = $1 AND t.principal = $2 AND t.account = $3
  AND s.sequence = t.sequence AND octet_length(s.body) BETWEEN 1 AND $4"""
_MEASURE_TASK = f"""
SELECT {_HEAD}, coalesce(octet_length(s.body), 0)
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
    SELECT * FROM event WHERE task = $2 AND sequence > $3 AND sequence <= $4
    ORDER BY sequence LIMIT $5""")
READ_EVENTS = _EVENTS.format("""
    SELECT v.* FROM task t JOIN event v ON v.task = t.number
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
_READ_DUPLICATE = """
SELECT run, task, answer, body_hash FROM message
WHERE principal = $1 AND account = $2 AND message_id = $3"""

_CHOSEN = "($1::text IS NULL OR principal = $1) AND ($2::text IS NULL OR account = $2)"
# The callers that have such tasks; the tally names them, so that no scan of all tasks is needed.
_GROUPS = f"""
SELECT principal, account, state FROM tally
WHERE {_CHOSEN} AND ($3::smallint[] IS NULL OR state = ANY ($3))
GROUP BY principal, account, state HAVING sum(count) > 0"""
_COUNT_TASKS = f"""
SELECT coalesce(sum(count), 0)::bigint FROM tally
WHERE {_CHOSEN} AND ($3::smallint[] IS NULL OR state = ANY ($3))"""
LIST_RECENT = f"""
SELECT {_HEAD}, t.resume FROM task t
WHERE {_CHOSEN} AND ($3::smallint[] IS NULL OR state = ANY ($3))
ORDER BY t.number DESC LIMIT $4"""
# OFFSET 0 keeps the planner from going through all tasks in the order of the result instead.
LIST_RECENT_OF_FEW = f"""
SELECT {_HEAD}, t.resume FROM ({_GROUPS}) y CROSS JOIN LATERAL (
  SELECT * FROM task t
  WHERE t.principal = y.principal AND t.account = y.account AND t.state = y.state OFFSET 0
) t
ORDER BY t.number DESC LIMIT $4"""
_OF_GROUP = """
WHERE t.principal = y.principal AND t.account = y.account AND t.state = y.state
  AND (t.status_at, t.id) < (coalesce($4::timestamptz, 'infinity'), $5::text COLLATE "C")
ORDER BY t.status_at DESC, t.id DESC"""
# A page of n tasks has tasks of the n groups whose newest is newest, and of no others.
LIST_BY_STATUS = f"""
SELECT k.* FROM (
  SELECT y.principal, y.account, y.state FROM ({_GROUPS}) y
  CROSS JOIN LATERAL (SELECT t.status_at, t.id FROM task t {_OF_GROUP} LIMIT 1) newest
  ORDER BY newest.status_at DESC, newest.id DESC LIMIT $6
) y
CROSS JOIN LATERAL (SELECT {_HEAD}, t.resume FROM task t {_OF_GROUP} LIMIT $6) k
ORDER BY k.status_at DESC, k.id DESC LIMIT $6"""

# A list merges one range of an index per state.
_RANGE = """AND t.status_at >= coalesce($4::timestamptz, '-infinity')
  AND (t.status_at, t.id) < (coalesce($5::timestamptz, 'infinity'), $6::text COLLATE "C")"""
_BY_STATUS = "t.principal = $1 AND t.account = $2 AND t.state = x.state"
# `task_by_context` has no active tasks: they change too often to be worth their index entries.
_BY_CONTEXT = """t.principal = $1 AND t.account = $2 AND t.context = $8 AND t.state = x.state
  AND t.state NOT IN (1, 2)"""
_ACTIVE_OF_CONTEXT = f"{_BY_STATUS} AND t.context = $8 AND x.state IN (1, 2)"


def _page(*conditions: str) -> str:
    arms = " UNION ALL ".join(
        f"(SELECT t.number, t.status_at, t.id FROM task t WHERE {one} {_RANGE} "
        "ORDER BY t.status_at DESC, t.id DESC LIMIT $7)"
        for one in conditions
    )
    large = "CASE WHEN octet_length(s.body) <= coalesce($9::bigint, 9223372036854775807) "
    context = "" if len(conditions) > 1 else " AND ($8::text IS NULL OR true)"
    return f"""
SELECT {_HEAD}, s.sequence, {large} THEN s.body END, s.task IS NOT NULL FROM (
  SELECT k.number FROM unnest($3::smallint[]) AS x(state) CROSS JOIN LATERAL ({arms}) k
  ORDER BY k.status_at DESC, k.id DESC LIMIT $7
) p
JOIN task t ON t.number = p.number LEFT JOIN snapshot s ON s.task = t.number
WHERE true{context}
ORDER BY t.status_at DESC, t.id DESC"""


LIST_PAGE = _page(_BY_STATUS)
LIST_CONTEXT_PAGE = _page(_BY_CONTEXT, _ACTIVE_OF_CONTEXT)
_SINCE = "AND t.status_at >= coalesce($4::timestamptz, '-infinity')"
COUNT_STATUS = f"""
SELECT count(*) FROM unnest($3::smallint[]) AS x(state) JOIN task t ON {_BY_STATUS} {_SINCE}"""
COUNT_CONTEXT = f"""
SELECT (SELECT count(*) FROM unnest($3::smallint[]) AS x(state)
    JOIN task t ON {_BY_CONTEXT} {_SINCE})
  + (SELECT count(*) FROM unnest($3::smallint[]) AS x(state)
    JOIN task t ON {_ACTIVE_OF_CONTEXT} {_SINCE})""".replace("$8", "$5")

_LIST_ORPHANS = """
SELECT t.id FROM (
  SELECT principal, account, state FROM tally WHERE state IN (1, 2)
  GROUP BY principal, account, state HAVING sum(count) > 0
) y
JOIN task t ON t.principal = y.principal AND t.account = y.account AND t.state = y.state
WHERE NOT EXISTS (SELECT FROM run r WHERE r.task = t.id)
ORDER BY t.number"""

# Times of leases come by the gateway's clock and are kept by the database's: as distances from now.
_CLAIM_RUNS = f"""
UPDATE run SET owner = $1, lease_until = now() + $2::interval, fence = fence + 1
WHERE owner <> $1 AND ($3::interval IS NULL OR lease_until < now() + $3)
RETURNING {CLAIMED_COLUMNS}"""
_RENEW_LEASES = "UPDATE run SET lease_until = now() + $1::interval WHERE owner = $2"
_READ_RUN_CONTENTS = """
SELECT c.hash, c.body FROM task t JOIN content c ON c.task = t.number
WHERE t.id = $1 AND c.hash = ANY ($2)"""
_READ_OWN_TASK = """
SELECT status_at, id, number, principal, account, state, sequence FROM task
WHERE id = $1 AND principal = $2 AND account = $3 FOR UPDATE"""
_COUNT_FINISHED = "SELECT coalesce(sum(count), 0) FROM tally WHERE state IN (3, 4, 5, 7)"
LIST_OLDEST = """
SELECT k.* FROM (
  SELECT principal, account, state FROM tally WHERE state IN (3, 4, 5, 7)
  GROUP BY principal, account, state HAVING sum(count) > 0
) y
CROSS JOIN LATERAL (
  SELECT t.status_at, t.id, t.number, t.principal, t.account, t.state, t.sequence FROM task t
  WHERE t.principal = y.principal AND t.account = y.account AND t.state = y.state
    AND (t.status_at, t.id) > (coalesce($1::timestamptz, '-infinity'), $2::text COLLATE "C")
    AND t.status_at < coalesce($3::timestamptz, 'infinity')
  ORDER BY t.status_at, t.id LIMIT $4
) k
ORDER BY k.status_at, k.id LIMIT $4"""
# The deliveries that `list_unfinished_deliveries` has of finished tasks.
LIST_HOLDING = """
SELECT DISTINCT d.task FROM unnest($1::text[], $2::bigint[]) AS x(task, sequence)
JOIN delivery d ON d.task = x.task
WHERE d.state <> 2 AND (d.state = 1 OR d.cursor < x.sequence)"""
_DELETE = (
    "DELETE FROM task WHERE number = ANY ($1::bigint[])",
    "DELETE FROM snapshot WHERE task = ANY ($1::bigint[])",
    "DELETE FROM event WHERE task = ANY ($1::bigint[])",
    "DELETE FROM content WHERE task = ANY ($1::bigint[])",
)
_DELETE_DELIVERIES = "DELETE FROM delivery WHERE task = ANY ($1::text[])"
_UNCOUNT = """
INSERT INTO tally AS y (principal, account, state, shard, count)
SELECT x.principal, x.account, x.state, 0, -count(*)
FROM unnest($1::text[], $2::text[], $3::smallint[]) AS x(principal, account, state)
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
ON CONFLICT (principal, account, state, shard) DO UPDATE SET count = y.count + excluded.count"""
_PURGE_MESSAGES = """
DELETE FROM message m USING (
  SELECT principal, account, message_id FROM message WHERE created_at < $1
  ORDER BY created_at LIMIT $2 FOR UPDATE) x
WHERE m.principal = x.principal AND m.account = x.account AND m.message_id = x.message_id"""
_PURGE_RECORDS = """
DELETE FROM record r USING (
  SELECT kind, id FROM record WHERE expires_at < $1 ORDER BY expires_at LIMIT $2 FOR UPDATE) x
WHERE r.kind = x.kind AND r.id = x.id"""

_LAST = 2**63 - 1
_ALL_CODES = sorted(STATE_OF)

_Restore = Callable[[int, bytes], Awaitable[bytes]]
"""The body of a row with what it refers to, from the number of its task and the row."""


class _HasContents(Exception):
    """A task has strings that are large enough to be stored by themselves."""


class PostgresTaskStore(PostgresPart, TaskWrites):
    """The task store over a database."""

    def __init__(self, database: PostgresDatabase) -> None:
        super().__init__(database)
        self._now = database.now

    # ---------------------------------------------------------------- writes on whole tables

    async def claim_runs(
        self, owner: OwnerId, *, lease_until: Any, expired_at: Any
    ) -> list[RunRecord]:
        command = ClaimRuns(owner, lease_until, expired_at)
        return await self._write(partial(self._claim, command))

    async def _claim(self, command: ClaimRuns, connection: Session) -> list[RunRecord]:
        now = self._now()
        expired = None if command.expired_at is None else command.expired_at - now
        values = (command.owner, command.lease_until - now, expired)
        claimed: list[RunRecord] = []
        # RETURNING has no order. The first column is the ticket.
        for row in sorted(await connection.fetch(_CLAIM_RUNS, *values), key=lambda row: row[0]):
            try:
                claimed.append(await _read_run(connection, row, command))
            except UNREADABLE as error:
                # What was to be done cannot be read any more. Without its run the task is an
                # orphan, which recovery fails; left alone it would stay `working` for ever.
                reason = f"{type(error).__name__}: {error}; removed"
                report_damage(self._database.name, "run", row[1], reason)
                await connection.execute("DELETE FROM run WHERE id = $1", row[1])
        return claimed

    def renew_leases(self, owner: OwnerId, *, lease_until: Any) -> Awaitable[None]:
        return self._write(partial(self._renew, RenewLeases(owner, lease_until)))

    async def _renew(self, command: RenewLeases, connection: Session) -> None:
        lease: timedelta = command.lease_until - self._now()
        await connection.execute(_RENEW_LEASES, lease, command.owner)

    def delete_task(self, scope: Scope, task_id: TaskId) -> Awaitable[bool]:
        async def work(connection: Session) -> bool:
            key = (task_id, scope.principal, scope.account)
            row = await connection.fetchrow(_READ_OWN_TASK, *key)
            if row is None or row[5] not in TERMINAL_CODES:
                return False
            await _delete(connection, [row])
            return True

        return self._write(work)

    async def purge(self, retention: Retention) -> PurgeResult:
        # In batches, so that a long backlog does not hold up other writes.
        count, after = 0, retention.after
        for start in range(0, retention.limit, _PURGE_BATCH):
            limit = min(_PURGE_BATCH, retention.limit - start)
            batch = msgspec.structs.replace(retention, limit=limit, after=after)
            purged = await self._write(partial(_purge_tasks, batch))
            count, after = count + purged.count, purged.next_after
            if after is None:
                break
        messages = await self._purge_all(_PURGE_MESSAGES, retention.messages_before)
        records = 0
        if retention.records_before is not None:
            records = await self._purge_all(_PURGE_RECORDS, retention.records_before)
        return PurgeResult(count, after, messages, records)

    async def _purge_all(self, statement: str, before: object) -> int:
        async def work(connection: Session) -> int:
            done: str = await connection.execute(statement, before, _PURGE_BATCH)
            return int(done.rpartition(" ")[2])

        total = 0
        while (deleted := await self._write(work)) == _PURGE_BATCH:
            total += deleted
        return total + deleted

    # ---------------------------------------------------------------- one task

    async def list_orphaned_tasks(self) -> list[TaskId]:
        return [row[0] for row in await self._database.fetch(_LIST_ORPHANS)]

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
        return None if stored is None else TaskOutline(stored, _CONTENT_MARK, _KEY_SIZE)

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
            values = (_READ_BYTES, number, after, head.sequence, _READ_EVENTS)
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
        digests = _references(body)
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
                count = min(limit - len(entries), _READ_EVENTS)
                room = min(most - size, _READ_BYTES)
                values = (room, task_id, *scope_values(scope), after, count)
                rows = await self._database.fetch(READ_EVENTS, *values)
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
        key = (scope.principal, scope.account, message_id)
        row = await self._database.fetch_one(_READ_DUPLICATE, *key)
        if row is None:
            return None
        check_same_body(row[3], body_hash, message_id)
        return Duplicate(row[0], row[1], row[2])

    # ---------------------------------------------------------------- lists

    async def list_recent_tasks(
        self, limit: int, chosen: TaskFilter = ALL_TASKS
    ) -> list[RecentHead]:
        # Tasks that have not ended are few. Ended ones are many, and the newest are found at once.
        is_few = chosen.state is not None and not is_terminal(chosen.state)
        if not is_few and chosen != ALL_TASKS:
            is_few = await self.count_tasks(chosen) <= _FEW_TASKS
        statement = LIST_RECENT_OF_FEW if is_few else LIST_RECENT
        rows = await self._database.fetch(statement, *_bind_filter(chosen), limit)
        return self._recent(rows)

    async def count_tasks(self, chosen: TaskFilter = ALL_TASKS) -> int:
        rows = await self._database.fetch(_COUNT_TASKS, *_bind_filter(chosen))
        return rows[0][0]

    async def list_by_status(self, query: StatusQuery) -> list[RecentHead]:
        codes = [CODE_OF[state] for state in query.states] or None
        key = (None, "") if query.after is None else (query.after.status_at, query.after.id)
        values = (query.principal, query.account, codes, *key, query.limit)
        return self._recent(await self._database.fetch(LIST_BY_STATUS, *values))

    def _recent(self, rows: Iterable[DatabaseRow]) -> list[RecentHead]:
        return self._decode_rows("task", lambda row: RecentHead(self._head(row), row[10]), rows)

    async def list_tasks(self, query: TaskQuery) -> TaskPage:
        total = await self._count(query) if query.counts else 0
        tasks: list[StoredTask] = []
        large: set[TaskId] = set()
        size, key = 0, query.after
        while True:
            after = (None, "") if key is None else (key.status_at, key.id)
            # One more than the page: it tells whether another page follows.
            values = (*_bind_query(query), *after, query.limit + 1)
            page = LIST_PAGE if query.context_id is None else LIST_CONTEXT_PAGE
            rows = await self._database.fetch(page, *values, query.context_id, query.large_bytes)
            for row in rows:
                is_full = query.max_bytes is not None and size > query.max_bytes
                if is_full or len(tasks) == query.limit:
                    return TaskPage(tuple(tasks), True, total, frozenset(large))
                stored = await self._listed(row, query.large_bytes, large)
                if stored is not None:
                    tasks.append(stored)
                    size += len(stored.snapshot) + sum([len(one.body) for one in stored.entries])
            # Damaged tasks are left out, and the page is filled up with those that follow: a page
            # without tasks is the last one.
            if len(rows) <= query.limit:
                return TaskPage(tuple(tasks), False, total, frozenset(large))
            key = TaskKey(rows[-1][6], rows[-1][1])

    async def _listed(
        self, row: DatabaseRow, large_bytes: int | None, large: set[TaskId]
    ) -> StoredTask | None:
        """A task of a page; without its content if that is large. None if it is damaged or gone."""
        try:
            if large_bytes is None:
                return await self._read_stored(row, self._restore)
            is_large = row[11] is None and row[12]
            # Those behind their snapshot by many events: their size would have to be read.
            is_large = is_large or row[8] - row[10] > _READ_EVENTS
            if not is_large:
                stored = await self._read_stored(row, _refuse_contents)
                sizes = 0 if stored is None else sum([len(one.body) for one in stored.entries])
                if stored is None or len(stored.snapshot) + sizes <= large_bytes:
                    return stored
        except _HasContents:
            pass
        except CorruptRecord:
            return None
        head = self._head(row)
        large.add(head.id)
        return StoredTask(head, b"")

    async def _count(self, query: TaskQuery) -> int:
        values = _bind_query(query)
        if query.context_id is not None:
            rows = await self._database.fetch(COUNT_CONTEXT, *values, query.context_id)
        elif query.status_since is not None:
            rows = await self._database.fetch(COUNT_STATUS, *values)
        else:
            rows = await self._database.fetch(_COUNT_TASKS, *values[:3])
        return rows[0][0]

    def _head(self, row: DatabaseRow) -> TaskHead:
        try:
            return _head(row)
        except UNREADABLE as error:
            raise self._damaged(row[1], error) from error

    def _damaged(self, task_id: TaskId, error: BaseException) -> CorruptRecord:
        if isinstance(error, CorruptRecord) and error.details.get("taskId"):
            return error
        return damaged_task(self._database.name, task_id, error)


def _head(row: DatabaseRow) -> TaskHead:
    return TaskHead(
        row[1],
        Scope(row[2], row[3]),
        row[4],
        STATE_OF[row[5]],
        row[6],
        row[7],
        row[8],
        None if row[9] is None else _binding_decoder.decode(row[9]),
    )


def _bind_query(query: TaskQuery) -> tuple[Any, ...]:
    codes = _ALL_CODES if query.state is None else [CODE_OF[query.state]]
    return query.scope.principal, query.scope.account, codes, query.status_since


def _bind_filter(chosen: TaskFilter) -> tuple[Any, ...]:
    codes = None if chosen.state is None else [CODE_OF[chosen.state]]
    return chosen.principal, chosen.account, codes


def _references(body: bytes) -> list[bytes]:
    """The hashes that a row refers to."""
    digests: list[bytes] = []

    def note(digest: bytes) -> bytes:
        digests.append(digest)
        return b""

    restore(body, note)
    return digests


async def _refuse_contents(_task: int, _body: bytes) -> bytes:
    raise _HasContents


async def _mark_contents(_task: int, body: bytes) -> bytes:
    return restore(body, lambda digest: _CONTENT_MARK + digest.hex().encode())


async def _read_run(connection: Session, row: DatabaseRow, command: ClaimRuns) -> RunRecord:
    """The run of a row. Raises: what `UNREADABLE` lists."""
    run_input = row[-1]
    if run_input[0] == MARK:
        rows = await connection.fetch(_READ_RUN_CONTENTS, row[2], _references(run_input))
        run_input = restore(run_input, {found[0]: found[1] for found in rows}.get)
    return decode_claimed_run(row, run_input, command.owner, command.lease_until)


async def _purge_tasks(retention: Retention, connection: Session) -> PurgeResult:
    """Delete finished tasks that are too old or too many and have nothing left to deliver."""
    finished = int(await connection.fetchval(_COUNT_FINISHED))
    key = retention.after
    after = (None, "") if key is None else (key.status_at, key.id)
    # With a surplus every finished task may be due, however young.
    before = None if finished > retention.keep_ended else retention.ended_before
    examined = [
        tuple(row) for row in await connection.fetch(LIST_OLDEST, *after, before, retention.limit)
    ]
    names, sequences = [row[1] for row in examined], [row[6] for row in examined]
    held = {row[0] for row in await connection.fetch(LIST_HOLDING, names, sequences)}
    purged, next_after = choose_purgeable(
        examined, retention, finished=finished, is_held=lambda row: row[1] in held
    )
    await _delete(connection, purged)
    return PurgeResult(len(purged), next_after)


async def _delete(connection: Session, rows: list[Any]) -> None:
    # Not the idempotency record: a message that is repeated after its task was deleted must not run
    # again. It has an age limit of its own.
    if not rows:
        return
    numbers = [row[2] for row in rows]
    for statement in _DELETE:
        await connection.execute(statement, numbers)
    await connection.execute(_DELETE_DELIVERIES, [row[1] for row in rows])
    columns = [[row[3] for row in rows], [row[4] for row in rows], [row[5] for row in rows]]
    await connection.execute(_UNCOUNT, *columns)
