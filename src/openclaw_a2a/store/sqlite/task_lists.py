"""The lists of a SQLite store: pages of tasks by key, and counts from the tally.

Every page is found in an index, so that many tasks cost what few do.
"""

from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

import msgspec

from openclaw_a2a.engine.scheduling.fair_queue import Pacer
from openclaw_a2a.model.errors import CorruptRecord
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.records import Entry, StoredTask, TaskHead
from openclaw_a2a.model.task import is_active, is_terminal
from openclaw_a2a.ports import ALL_TASKS, RecentHead, StatusQuery, TaskFilter, TaskPage, TaskQuery
from openclaw_a2a.store.columns import CODE_OF, HEAD_COLUMNS, STATE_OF
from openclaw_a2a.store.sqlite.database import Row
from openclaw_a2a.store.sqlite.task_reader import SELECT_TASKS, SqliteTaskReader
from openclaw_a2a.store.sqlite.transaction import to_microseconds

_COUNT_STEP = 2000
"""How many tasks are counted at once: a caller may have hundreds of thousands."""
_CHOSEN = """(:principal IS NULL OR principal = :principal)
  AND (:account IS NULL OR account = :account)"""
_SELECT_RECENT = f"""
SELECT {HEAD_COLUMNS}, t.resume FROM task t
WHERE {_CHOSEN} AND (:state IS NULL OR state = :state)
ORDER BY number DESC LIMIT :limit"""
# The tally names the callers that have such tasks, so that no scan of all tasks is needed.
SELECT_RECENT_IN_STATE = f"""
SELECT {HEAD_COLUMNS}, t.resume
FROM tally y CROSS JOIN task t INDEXED BY task_by_status
  ON t.principal = y.principal AND t.account = y.account AND t.state = y.state
WHERE y.state = :state AND y.count > 0
  AND (:principal IS NULL OR y.principal = :principal)
  AND (:account IS NULL OR y.account = :account)
ORDER BY t.number DESC LIMIT :limit"""
_COUNT_TASKS = f"""
SELECT coalesce(sum(count), 0) FROM tally
WHERE {_CHOSEN} AND (:state IS NULL OR state = :state)"""
# Of every caller and state, the newest status before a key: a page holds tasks of the newest of
# these groups. Each is one step in the index, so many tasks cost what few do.
_SELECT_NEWEST = f"""
SELECT principal, account, state, (
  SELECT status_at FROM task t INDEXED BY task_by_status
  WHERE t.principal = y.principal AND t.account = y.account AND t.state = y.state
    AND (t.status_at, t.id) < (:before, :before_id)
  ORDER BY t.status_at DESC, t.id DESC LIMIT 1
) AS newest
FROM tally y
WHERE count > 0 AND newest IS NOT NULL AND {_CHOSEN}
ORDER BY newest DESC"""
_SELECT_LATEST = f"""
SELECT {HEAD_COLUMNS}, t.resume FROM task t INDEXED BY task_by_status
WHERE principal = :principal AND account = :account AND state = :state
  AND (status_at, id) < (:before, :before_id) AND status_at >= :since
ORDER BY status_at DESC, id DESC LIMIT :limit"""
# The tally names the callers that have active tasks, so that no scan of all tasks is needed.
_SELECT_ORPHANS = """
SELECT t.id FROM tally y
JOIN task t ON t.principal = y.principal AND t.account = y.account AND t.state = y.state
WHERE y.state IN (1, 2) AND y.count > 0 AND t.id NOT IN (SELECT task FROM run)"""


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
        f"{SELECT_TASKS} JOIN ({keys} ORDER BY status_at DESC, id DESC LIMIT :limit) k "
        "ON k.number = t.number ORDER BY t.status_at DESC, t.id DESC"
    )
    limit = f"LIMIT {_COUNT_STEP}"
    counts = [
        f"(SELECT count(*) FROM (SELECT 1 {arm} AND status_at >= :since {limit}))" for arm in arms
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

FIRST_TIME, LAST_TIME = -(2**63), 2**63 - 1
"""Before and after the column value of every time."""


class SqliteTaskLists(SqliteTaskReader):
    """Pages of tasks, and how many there are."""

    async def list_orphaned_tasks(self) -> list[TaskId]:
        return [row[0] for row in self._database.fetch_all(_SELECT_ORPHANS)]

    async def list_recent_tasks(
        self, limit: int, chosen: TaskFilter = ALL_TASKS
    ) -> list[RecentHead]:
        values = {**_bind_filter(chosen), "limit": limit}
        # Tasks that have not ended are few. Ended ones are many, and the newest are found at once.
        is_few = chosen.state is not None and not is_terminal(chosen.state)
        statement = SELECT_RECENT_IN_STATE if is_few else _SELECT_RECENT
        return self._recent(self._database.fetch_all(statement, values))

    def _recent(self, rows: Iterable[Row]) -> list[RecentHead]:
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
        before, before_id = LAST_TIME, ""
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
                since = FIRST_TIME
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
        return self._recent(sorted(rows, key=_status_key, reverse=True)[: query.limit])

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
                        head = self._head(row)
                        stored = self._stored(row, head, query.large_bytes)
                        if stored is None:
                            stored = StoredTask(head, b"")
                            large.add(head.id)
                        tasks.append(stored)
                        size += len(tasks[-1].snapshot)
                        size += sum([len(entry.body) for entry in tasks[-1].entries])
                # Damaged tasks are left out, and the page is filled up with those that follow: a
                # page without tasks is the last one.
                if len(rows) <= query.limit:
                    return TaskPage(tuple(tasks), False, all_tasks, frozenset(large))
                values["before"], values["before_id"] = rows[-1][6], rows[-1][1]

    def _stored(self, row: Row, head: TaskHead, most_bytes: int | None) -> StoredTask | None:
        """The task; None if it may be larger. Raises CorruptRecord if any of it is damaged."""
        if most_bytes is None:
            snapshot, pages = self._read_content(row, head, self._restore)
            return StoredTask(head, snapshot, tuple(chain.from_iterable(pages)))
        try:
            snapshot, pages = self._read_content(row, head, _refuse_contents)
            size, entries = len(snapshot), list[Entry]()
            for page in pages:
                entries += page
                size += sum([len(entry.body) for entry in page])
                if size > most_bytes:
                    return None
        except _HasContents:
            return None
        return StoredTask(head, snapshot, tuple(entries)) if size <= most_bytes else None


class _HasContents(Exception):
    """A task has strings that are large enough to be stored by themselves."""


def _refuse_contents(_task: int, _body: bytes) -> bytes:
    raise _HasContents


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
        "since": FIRST_TIME if query.status_since is None else to_microseconds(query.status_since),
        "before": LAST_TIME if query.after is None else to_microseconds(query.after.status_at),
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


_status_key = itemgetter(6, 1)
"""The status and the id of a row of the table of tasks."""
