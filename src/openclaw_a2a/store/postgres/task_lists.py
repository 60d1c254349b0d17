"""The lists of a PostgreSQL store: pages of tasks by key, and counts from the tally.

Every page is found in an index, so that many tasks cost what few do.
"""

from collections.abc import Iterable
from typing import Any

from openclaw_a2a.model.errors import CorruptRecord
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.records import StoredTask
from openclaw_a2a.model.task import is_terminal
from openclaw_a2a.ports import (
    ALL_TASKS,
    RecentHead,
    StatusQuery,
    TaskFilter,
    TaskKey,
    TaskPage,
    TaskQuery,
)
from openclaw_a2a.store.columns import CODE_OF, HEAD_COLUMNS, STATE_OF
from openclaw_a2a.store.postgres.address import DatabaseRow
from openclaw_a2a.store.postgres.task_reader import EVENTS_AT_ONCE, PostgresTaskReader

_CHOSEN = """($1::text IS NULL OR principal = $1) AND ($2::text IS NULL OR account = $2)
  AND ($3::smallint[] IS NULL OR state = ANY ($3))"""
# The callers that have such tasks; the tally names them, so that no scan of all tasks is needed.
_GROUPS = f"""
SELECT principal, account, state FROM tally
WHERE {_CHOSEN}
GROUP BY principal, account, state HAVING sum(count) > 0"""
_COUNT_TASKS = f"""
SELECT coalesce(sum(count), 0)::bigint FROM tally
WHERE {_CHOSEN}"""
_LIST_RECENT = f"""
SELECT {HEAD_COLUMNS}, t.resume FROM task t
WHERE {_CHOSEN}
ORDER BY t.number DESC LIMIT $4"""
# OFFSET 0 keeps the planner from going through all tasks in the order of the result instead.
_LIST_RECENT_OF_FEW = f"""
SELECT {HEAD_COLUMNS}, t.resume FROM ({_GROUPS}) y CROSS JOIN LATERAL (
  SELECT {HEAD_COLUMNS}, t.resume FROM task t
  WHERE t.principal = y.principal AND t.account = y.account AND t.state = y.state OFFSET 0
) t
ORDER BY t.number DESC LIMIT $4"""
_OF_GROUP = """
WHERE t.principal = y.principal AND t.account = y.account AND t.state = y.state
  AND (t.status_at, t.id) < (coalesce($4::timestamptz, 'infinity'), $5::text COLLATE "C")
ORDER BY t.status_at DESC, t.id DESC"""
# A page of n tasks has tasks of the n groups whose newest is newest, and of no others.
_LIST_BY_STATUS = f"""
SELECT k.* FROM (
  SELECT y.principal, y.account, y.state FROM ({_GROUPS}) y
  CROSS JOIN LATERAL (SELECT t.status_at, t.id FROM task t {_OF_GROUP} LIMIT 1) newest
  ORDER BY newest.status_at DESC, newest.id DESC LIMIT $6
) y
CROSS JOIN LATERAL (SELECT {HEAD_COLUMNS}, t.resume FROM task t {_OF_GROUP} LIMIT $6) k
ORDER BY k.status_at DESC, k.id DESC LIMIT $6"""

# A list merges one range of an index per state.
_RANGE = """AND t.status_at >= coalesce($4::timestamptz, '-infinity')
  AND (t.status_at, t.id) < (coalesce($5::timestamptz, 'infinity'), $6::text COLLATE "C")"""
_BY_STATUS = "t.principal = $1 AND t.account = $2 AND t.state = x.state"
# `task_by_context` has no active tasks: they change too often to be worth their index entries.
_BY_CONTEXT = """t.principal = $1 AND t.account = $2 AND t.context = $9 AND t.state = x.state
  AND t.state NOT IN (1, 2)"""
_ACTIVE_OF_CONTEXT = f"{_BY_STATUS} AND t.context = $9 AND x.state IN (1, 2)"


def _page(*conditions: str) -> str:
    arms = " UNION ALL ".join(
        f"(SELECT t.number, t.status_at, t.id FROM task t WHERE {one} {_RANGE} "
        "ORDER BY t.status_at DESC, t.id DESC LIMIT $7)"
        for one in conditions
    )
    large = "CASE WHEN octet_length(s.body) <= coalesce($8::bigint, 9223372036854775807) "
    return f"""
SELECT {HEAD_COLUMNS}, s.sequence, {large} THEN s.body END, s.task IS NOT NULL FROM (
  SELECT k.number FROM unnest($3::smallint[]) AS x(state) CROSS JOIN LATERAL ({arms}) k
  ORDER BY k.status_at DESC, k.id DESC LIMIT $7
) p
JOIN task t ON t.number = p.number LEFT JOIN snapshot s ON s.task = t.number
ORDER BY t.status_at DESC, t.id DESC"""


_LIST_PAGE = _page(_BY_STATUS)
_LIST_CONTEXT_PAGE = _page(_BY_CONTEXT, _ACTIVE_OF_CONTEXT)
_SINCE = "AND t.status_at >= coalesce($4::timestamptz, '-infinity')"
_COUNT_STATUS = f"""
SELECT count(*) FROM unnest($3::smallint[]) AS x(state) JOIN task t ON {_BY_STATUS} {_SINCE}"""
_COUNT_CONTEXT = f"""
SELECT (SELECT count(*) FROM unnest($3::smallint[]) AS x(state)
    JOIN task t ON {_BY_CONTEXT} {_SINCE})
  + (SELECT count(*) FROM unnest($3::smallint[]) AS x(state)
    JOIN task t ON {_ACTIVE_OF_CONTEXT} {_SINCE})""".replace("$9", "$5")

_LIST_ORPHANS = """
SELECT t.id FROM (
  SELECT principal, account, state FROM tally WHERE state IN (1, 2)
  GROUP BY principal, account, state HAVING sum(count) > 0
) y
JOIN task t ON t.principal = y.principal AND t.account = y.account AND t.state = y.state
WHERE NOT EXISTS (SELECT FROM run r WHERE r.task = t.id)
ORDER BY t.number"""
_ALL_CODES = sorted(STATE_OF)


class _HasContents(Exception):
    """A task has strings that are large enough to be stored by themselves."""


class PostgresTaskLists(PostgresTaskReader):
    """Pages of tasks, and how many there are."""

    async def list_orphaned_tasks(self) -> list[TaskId]:
        return [row[0] for row in await self._database.fetch(_LIST_ORPHANS)]

    async def list_recent_tasks(
        self, limit: int, chosen: TaskFilter = ALL_TASKS
    ) -> list[RecentHead]:
        # Few tasks are read and sorted; the newest of many are found by going back through all,
        # which passes over those of others. Tasks that have not ended are few.
        is_few = chosen.state is not None and not is_terminal(chosen.state)
        if not is_few and chosen != ALL_TASKS:
            count, total = await self.count_tasks(chosen), await self.count_tasks()
            is_few = count * count <= limit * total
        statement = _LIST_RECENT_OF_FEW if is_few else _LIST_RECENT
        rows = await self._database.fetch(statement, *_bind_filter(chosen), limit)
        return self._recent(rows)

    async def count_tasks(self, chosen: TaskFilter = ALL_TASKS) -> int:
        rows = await self._database.fetch(_COUNT_TASKS, *_bind_filter(chosen))
        return rows[0][0]

    async def list_by_status(self, query: StatusQuery) -> list[RecentHead]:
        codes = [CODE_OF[state] for state in query.states] or None
        key = (None, "") if query.after is None else (query.after.status_at, query.after.id)
        values = (query.principal, query.account, codes, *key, query.limit)
        return self._recent(await self._database.fetch(_LIST_BY_STATUS, *values))

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
            values = (*_bind_query(query), *after, query.limit + 1, query.large_bytes)
            if query.context_id is None:
                rows = await self._database.fetch(_LIST_PAGE, *values)
            else:
                rows = await self._database.fetch(_LIST_CONTEXT_PAGE, *values, query.context_id)
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
            head = self._head(row)
            is_large = row[11] is None and row[12]
            # Those behind their snapshot by many events: their size would have to be read.
            is_large = is_large or row[8] - (row[10] or 0) > EVENTS_AT_ONCE
            if not is_large:
                stored = await self._read_stored(row, _refuse_contents)
                sizes = 0 if stored is None else sum([len(one.body) for one in stored.entries])
                if stored is None or len(stored.snapshot) + sizes <= large_bytes:
                    return stored
        except CorruptRecord:
            return None
        except _HasContents:
            head = self._head(row)
        large.add(head.id)
        return StoredTask(head, b"")

    async def _count(self, query: TaskQuery) -> int:
        values = _bind_query(query)
        if query.context_id is not None:
            rows = await self._database.fetch(_COUNT_CONTEXT, *values, query.context_id)
        elif query.status_since is not None:
            rows = await self._database.fetch(_COUNT_STATUS, *values)
        else:
            rows = await self._database.fetch(_COUNT_TASKS, *values[:3])
        return rows[0][0]


def _bind_query(query: TaskQuery) -> tuple[Any, ...]:
    codes = _ALL_CODES if query.state is None else [CODE_OF[query.state]]
    return query.scope.principal, query.scope.account, codes, query.status_since


def _bind_filter(chosen: TaskFilter) -> tuple[Any, ...]:
    codes = None if chosen.state is None else [CODE_OF[chosen.state]]
    return chosen.principal, chosen.account, codes


async def _refuse_contents(_task: int, _body: bytes) -> bytes:
    raise _HasContents
