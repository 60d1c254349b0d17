"""Searches the texts of tasks, a slice at a time, without extensions.

There is no text index: it would need an extension, and make every send slower for a rare action of
the operator. A search compares the stored snapshots of the newest 200,000 tasks; the next one
continues with the tasks before them. Each slice is a short query of its own: in between, the
connection is free for other reads, also where there is only one.
"""

import asyncio

import msgspec

from openclaw_a2a.ports import RecentHead, TaskMatches, TaskSearch
from openclaw_a2a.store.columns import CODE_OF, HEAD_COLUMNS
from openclaw_a2a.store.postgres.task_reader import PostgresTaskReader

_WINDOW = 200_000
_LAST = 2**62
_SLICE_S = 0.05
"""About how long one query takes."""
_FIRST_SLICE, _LARGEST_SLICE = 500, 20_000

# Bytes are compared in the form of `encode`, which has one for every byte: a body that is damaged
# ends no search. Only ASCII letters match their other case, as in SQLite. The range stands twice,
# so that no plan reads snapshots that are outside of it.
_SEARCH = f"""
SELECT {HEAD_COLUMNS}, t.resume FROM task t
LEFT JOIN snapshot s ON s.task = t.number AND s.task >= $1 AND s.task < $2
WHERE t.number >= $1 AND t.number < $2
  AND ($3::text IS NULL OR t.principal = $3) AND ($4::text IS NULL OR t.account = $4)
  AND ($5::smallint[] IS NULL OR t.state = ANY ($5))
  AND ($6::bytea IS NULL OR position($6 IN t.binding) > 0)
  AND ($7::text IS NULL OR strpos(lower(t.id), $7) > 0 OR strpos(lower(t.context), $7) > 0
    OR strpos(lower(t.principal), $7) > 0
    OR strpos(lower(encode(t.binding, 'escape') COLLATE "C"), $8) > 0
    OR (substr(s.body, 1, 1) <> '\\x00'
      AND strpos(lower(encode(s.body, 'escape') COLLATE "C"), $9) > 0))
ORDER BY t.number DESC LIMIT $10"""
_NEWEST = "SELECT max(number) FROM task WHERE number < $1"
_OLDEST = "SELECT created_at FROM task WHERE number >= $1 ORDER BY number LIMIT 1"


class PostgresTaskSearch(PostgresTaskReader):
    """The search for texts."""

    async def search_tasks(self, search: TaskSearch) -> TaskMatches:
        """The tasks that hold a text, last created first. Raises: StoreUnavailable."""
        newest = await self._newest(search.before or _LAST)
        if newest is None:
            return TaskMatches(())
        found: list[tuple[int, RecentHead]] = []
        count, before, since = 0, newest + 1, max(0, newest + 1 - _WINDOW)
        values, size = _bind(search), _FIRST_SLICE
        clock = asyncio.get_running_loop().time
        while before > since and count < search.limit:
            start, began_at = max(since, before - size), clock()
            limit = search.limit - count
            rows = await self._database.fetch(_SEARCH, start, before, *values, limit)
            found += self._decode_rows(
                "task", lambda row: (row[0], RecentHead(self._head(row), row[10])), rows
            )
            count += len(rows)
            before = rows[-1][0] if len(rows) == limit else start
            took_s = clock() - began_at
            size = min(2 * size, _LARGEST_SLICE) if took_s < _SLICE_S else max(1, size // 2)
        if await self._newest(before) is None:
            return TaskMatches(tuple(found))
        oldest = await self._database.fetch_one(_OLDEST, before)
        return TaskMatches(tuple(found), before, None if oldest is None else oldest[0])

    async def _newest(self, before: int) -> int | None:
        row = await self._database.fetch_one(_NEWEST, before)
        return None if row is None else row[0]


def _bind(search: TaskSearch) -> tuple[object, ...]:
    texts: tuple[str | None, ...] = (None, None, None)
    if search.text:
        # In a snapshot as it stands within a JSON string.
        in_json = msgspec.json.encode(search.text)[1:-1]
        lower = search.text.encode().lower()
        texts = lower.decode(), _escape(lower), _escape(in_json.lower())
    return (
        search.principal,
        search.account,
        [CODE_OF[state] for state in search.states] or None,
        search.agent.encode() or None,
        *texts,
    )


def _escape(text: bytes) -> str:
    """What `encode` makes of a text."""
    return "".join([_ESCAPES.get(byte) or chr(byte) for byte in text])


_ESCAPES = {
    **{byte: f"\\{byte:03o}" for byte in (0, *range(128, 256))},
    ord("\\"): "\\\\",
}
