"""Searches the texts of tasks in a thread of its own, with SQLite's own comparison.

There is no text index: it would make every send slower for a rare action of the operator. A scan of
the stored snapshots in C takes about 2 µs per task, and does not block the event loop. One scan
covers the newest 200,000 tasks; the next one continues with the tasks before them.
"""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import anyio.to_thread
import msgspec

from openclaw_a2a.model.errors import StoreUnavailable
from openclaw_a2a.ports import RecentHead, TaskMatches, TaskSearch
from openclaw_a2a.store.columns import CODE_OF, HEAD_COLUMNS, decode_head
from openclaw_a2a.store.rules import UNREADABLE
from openclaw_a2a.store.sqlite.transaction import from_microseconds

_WINDOW = 200_000
_LAST = 2**62
_SELECT = f"""
SELECT {HEAD_COLUMNS}, t.resume
FROM task t LEFT JOIN snapshot s ON s.task = t.number
WHERE t.number < :before AND t.number >= :since
  AND (:principal IS NULL OR principal = :principal) AND (:account IS NULL OR account = :account)
  AND (:states = '' OR instr(:states, ',' || state || ','))
  AND (:agent = '' OR instr(CAST(binding AS TEXT), :agent))
  AND (:text = '%%' OR id LIKE :text ESCAPE '\\' OR context LIKE :text ESCAPE '\\'
    OR principal LIKE :text ESCAPE '\\' OR CAST(binding AS TEXT) LIKE :text ESCAPE '\\'
    OR CAST(s.body AS TEXT) LIKE :json ESCAPE '\\')
ORDER BY t.number DESC LIMIT :limit"""
_NEWEST = "SELECT max(number) FROM task WHERE number < ?"
_OLDEST = "SELECT created_at FROM task WHERE number >= ? ORDER BY number LIMIT 1"


async def search_tasks(path: Path, search: TaskSearch) -> TaskMatches:
    """The tasks that hold a text, last created first, of a database file.

    Raises: StoreUnavailable.
    """
    try:
        return await anyio.to_thread.run_sync(_search, path, search, abandon_on_cancel=True)
    except sqlite3.Error as error:
        raise StoreUnavailable(f"the store {path} cannot be searched: {error}") from error


def _search(path: Path, search: TaskSearch) -> TaskMatches:
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
        newest = database.execute(_NEWEST, (search.before or _LAST,)).fetchone()[0]
        if newest is None:
            return TaskMatches(())
        since = max(0, newest + 1 - _WINDOW)
        codes = [str(CODE_OF[state]) for state in search.states]
        values = {
            "before": newest + 1,
            "since": since,
            "principal": search.principal,
            "account": search.account,
            "states": f",{','.join(codes)}," if codes else "",
            "agent": search.agent,
            "text": _pattern(search.text),
            # Escaped as in a JSON string.
            "json": _pattern(msgspec.json.encode(search.text).decode()[1:-1]),
            "limit": search.limit,
        }
        rows = database.execute(_SELECT, values).fetchall()
        found: list[tuple[int, RecentHead]] = []
        for row in rows:
            with suppress(*UNREADABLE):  # `list_tasks` reports what is damaged
                found.append((row[0], RecentHead(decode_head(row, from_microseconds), row[10])))
        if len(rows) == search.limit:
            since = rows[-1][0]
        # The first task has the number 1.
        if since <= 1:
            return TaskMatches(tuple(found))
        oldest = database.execute(_OLDEST, (since,)).fetchone()
        return TaskMatches(tuple(found), since, oldest and from_microseconds(oldest[0]))


def _pattern(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"
