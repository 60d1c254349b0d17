"""The plans of the statements that the store sends, over a large store.

The statements are recorded while every read method is called, with their values, and explained as
the store's own connections plan them: prepared, without the values. A larger store, by hand:

  .venv/bin/pytest tests/store/postgres/test_plans.py --rounds 1000000
"""

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import msgspec
from tests.contracts.store_samples import BOB, Draft, time_at
from tests.postgres_server import PostgresServer
from tests.store.postgres.conftest import make_store

from openclaw_a2a import ports
from openclaw_a2a.model.delivery import DeliveryId, DeliveryState
from openclaw_a2a.model.ids import AccountId, ContextId, MessageId, OwnerId, PeerName, TaskId
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import (
    Retention,
    StatusQuery,
    TaskFilter,
    TaskKey,
    TaskQuery,
    TaskSearch,
)
from openclaw_a2a.store.commands import ChangeTask, Submit
from openclaw_a2a.store.contents import LARGE_BYTES, digest_of, replace_large_strings
from openclaw_a2a.store.postgres.batch import Batch
from openclaw_a2a.store.postgres.statement import build_statement
from openclaw_a2a.store.postgres.store import PostgresStore

DEFAULT_SIZE = 30_000
FILL_S = 1800.0
PAGE = 50
CALLERS = 100
MERGED = 100 * 100
"""Rows that one step of a plan may read or sort, however many there are.

A page of n tasks merges pages of the n callers and states that come first; the largest n is 100.
"""
SMALL_TABLES = {"tally", "run", "writer"}
"""Tables that stay small and are read from end to end."""
_SEARCHED = 20_000  # a slice of a search looks at no more tasks

_FILL = (
    # The last caller has few tasks, all of them old. Of 500 tasks one is active, of 700 one paused.
    """
INSERT INTO task (id, principal, account, context, state, status_at, created_at, sequence, binding)
SELECT 't-' || n, 'caller-' || CASE WHEN n <= 40 THEN 100 ELSE n % 100 END, 'default',
  'c-' || n % 1000,
  CASE WHEN n % 500 = 0 THEN 2 WHEN n % 700 = 0 THEN 6 ELSE 3 + n % 3 END,
  timestamptz '2026-01-01' + n * interval '1 second', timestamptz '2026-01-01', 3, NULL
FROM generate_series(1, $1::int) n""",
    # Of every fourth task the snapshot is behind its events.
    """
INSERT INTO snapshot (task, sequence, body)
SELECT number, 3 - (substr(id, 3)::int % 4 = 1)::int, convert_to(replace(
  '{"id":"#","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"}}', '#', id), 'UTF8')
FROM task""",
    """
INSERT INTO event (task, sequence, body)
SELECT number, s, convert_to(replace(
  '{"statusUpdate":{"taskId":"#","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}',
  '#', id), 'UTF8')
FROM task, generate_series(1, 3) s""",
    """
INSERT INTO content (task, hash, body)
SELECT number, '\\x01', 'x' FROM task WHERE number % 9 = 0""",
    """
INSERT INTO message (principal, account, message_id, body_hash, run, task, created_at)
SELECT principal, account, 'm-' || id, '', 'r-' || id, id, status_at FROM task""",
    """
INSERT INTO delivery
  (id, kind, task, body, cursor, next_at, created_at, updated_at, state, attempts)
SELECT 'd-' || id, 'push', id, '', 3, status_at, status_at, status_at, number % 100 / 99, 0
FROM task WHERE number % 10 = 0""",
    """
INSERT INTO record (kind, id, number, body, expires_at, version)
SELECT CASE WHEN number % 1000 = 0 THEN 'handle' ELSE 'call' END, id, number, '', status_at, 0
FROM task WHERE number % 10 = 0""",
    """
INSERT INTO log (kind, id, sequence, is_closed, updated_at)
SELECT 'objective', id, 1, number % 1000 > 10, status_at FROM task WHERE number % 10 = 0""",
    "INSERT INTO log_line (log, sequence, body) SELECT number, 1, '{}' FROM log",
    """
INSERT INTO tally (principal, account, state, shard, count)
SELECT principal, account, state, 0, count(*) FROM task GROUP BY 1, 2, 3""",
    "VACUUM ANALYZE",
)

LARGE_TASK = TaskId("t-9")
LARGE_TEXT = b"x" * LARGE_BYTES
LARGE_BODY = replace_large_strings(
    b'{"id":"t-9","contextId":"c","status":{"state":"TASK_STATE_WORKING"},"metadata":{"a":"%b"}}'
    % LARGE_TEXT,
    lambda _digest, _content: True,
)
_FILL_LARGE = (
    """
INSERT INTO content (task, hash, body) SELECT number, $2, $3 FROM task WHERE id = $1
ON CONFLICT (task, hash) DO NOTHING""",
    """
UPDATE snapshot SET body = $2 WHERE task = (SELECT number FROM task WHERE id = $1)""",
)

CALLER = Scope(PeerName("caller-3"), AccountId("default"))
TASK = TaskId("t-3003")
SINCE = datetime.fromisoformat("2026-01-01T01:00:00Z")
AFTER = TaskKey(datetime.fromisoformat("2026-01-01T06:00:00Z"), TaskId("t-9"))
CONTEXT = ContextId("c-3")
QUERIES = {
    "all": TaskQuery(CALLER, PAGE),
    "after": TaskQuery(CALLER, PAGE, after=AFTER),
    "state": TaskQuery(CALLER, PAGE, state=TaskState.COMPLETED),
    "active": TaskQuery(CALLER, PAGE, state=TaskState.WORKING),
    "context": TaskQuery(CALLER, PAGE, context_id=CONTEXT),
    "context-and-state": TaskQuery(CALLER, PAGE, context_id=CONTEXT, state=TaskState.FAILED),
    "since": TaskQuery(CALLER, PAGE, status_since=SINCE, counts=False),
    "since-counted": TaskQuery(CALLER, PAGE, status_since=SINCE),
    "everything": TaskQuery(
        CALLER,
        PAGE,
        context_id=CONTEXT,
        state=TaskState.COMPLETED,
        status_since=SINCE,
        after=AFTER,
        large_bytes=1000,
        max_bytes=1_000_000,
    ),
}
FILTERS = {
    "all": TaskFilter(),
    "caller": TaskFilter(principal=CALLER.principal),
    "quiet-caller": TaskFilter(principal=PeerName("caller-100")),
    "account": TaskFilter(account=CALLER.account),
    "ended": TaskFilter(principal=CALLER.principal, state=TaskState.COMPLETED),
    "active": TaskFilter(state=TaskState.WORKING),
    "paused": TaskFilter(principal=CALLER.principal, state=TaskState.INPUT_REQUIRED),
}
STATUS = {
    "all": StatusQuery(PAGE),
    "after": StatusQuery(PAGE, after=AFTER),
    "states": StatusQuery(PAGE, frozenset({TaskState.WORKING, TaskState.FAILED})),
    "caller": StatusQuery(PAGE, principal=CALLER.principal, account=CALLER.account),
}

Read = Callable[[PostgresStore], Awaitable[object]]
READS: dict[str, Read] = {
    "read_task": lambda store: store.tasks.read_task(CALLER, TASK),
    "read_task behind": lambda store: store.tasks.read_task(None, TaskId("t-3001")),
    "read_snapshot": lambda store: store.tasks.read_snapshot(CALLER, TASK, most_bytes=10_000),
    "read_outline": lambda store: store.tasks.read_outline(CALLER, TASK),
    "read_task large": lambda store: store.tasks.read_task(None, LARGE_TASK),
    "read_contents": lambda store: store.tasks.read_contents(
        None, LARGE_TASK, [digest_of(LARGE_TEXT).hex().encode()]
    ),
    "measure_task": lambda store: store.tasks.measure_task(CALLER, TASK),
    "read_resume_token": lambda store: store.tasks.read_resume_token(TASK),
    "read_events": lambda store: store.tasks.read_events(CALLER, TASK, after=0, limit=100),
    "read_events any": lambda store: store.tasks.read_events(None, TASK, after=1, limit=2),
    "find_duplicate": lambda store: store.tasks.find_duplicate(CALLER, MessageId(f"m-{TASK}")),
    "list_orphaned_tasks": lambda store: store.tasks.list_orphaned_tasks(),
    **{
        f"list_tasks {name}": lambda store, query=query: store.tasks.list_tasks(query)
        for name, query in QUERIES.items()
    },
    **{
        f"list_recent_tasks {name}": lambda store, chosen=chosen: store.tasks.list_recent_tasks(
            PAGE, chosen
        )
        for name, chosen in FILTERS.items()
    },
    **{
        f"count_tasks {name}": lambda store, chosen=chosen: store.tasks.count_tasks(chosen)
        for name, chosen in FILTERS.items()
    },
    **{
        f"list_by_status {name}": lambda store, query=query: store.tasks.list_by_status(query)
        for name, query in STATUS.items()
    },
    "search_tasks": lambda store: store.search_tasks(TaskSearch("no such text", PAGE)),
    "search_tasks narrowed": lambda store: store.search_tasks(
        TaskSearch("t-", PAGE, states=frozenset({TaskState.WORKING}), principal=CALLER.principal)
    ),
    "read_delivery": lambda store: store.deliveries.read_delivery(CALLER, DeliveryId("d-t-10")),
    "list_task_deliveries": lambda store: store.deliveries.list_task_deliveries(
        CALLER, TaskId("t-3010")
    ),
    "list_unfinished_deliveries": lambda store: store.deliveries.list_unfinished_deliveries(
        after=DeliveryId("d-t-5"), limit=PAGE
    ),
    **{
        f"list_deliveries {state.value}": lambda store, state=state: (
            store.deliveries.list_deliveries(state, after=DeliveryId(""), limit=PAGE)
        )
        for state in DeliveryState
    },
    "read_record": lambda store: store.records.read_record("call", "t-10"),
    "list_records": lambda store: store.records.list_records("handle"),
    "read_log": lambda store: store.logs.read_log("objective", "t-10"),
    "list_open_logs": lambda store: store.logs.list_open_logs("objective", after="", limit=PAGE),
    "list_log_heads": lambda store: store.logs.list_log_heads("objective", after="t-5", limit=PAGE),
}
LATER = datetime.fromisoformat("2026-01-01T02:00:00Z")
# Writes that look for their rows themselves.
WRITES: dict[str, Read] = {
    "purge old": lambda store: store.tasks.purge(
        Retention(LATER, 10**9, LATER, limit=200, records_before=LATER)
    ),
    "purge surplus": lambda store: store.tasks.purge(
        Retention(time_at(-(10**9)), 1000, time_at(-(10**9)), limit=200)
    ),
    "delete_task": lambda store: store.tasks.delete_task(CALLER, TASK),
    "claim_runs": lambda store: store.tasks.claim_runs(OwnerId("other")),
}
MISSING = {"read_resume_token", "read_delivery"}
"""Reads that find nothing."""
# A list without a limit, and the total of a filter for which there is no counter, read what they
# return or count; nothing else.
COUNTED = {
    "list_records",
    "list_tasks context",
    "list_tasks context-and-state",
    "list_tasks since-counted",
}


def literal(value: object) -> str:
    """A value in SQL."""
    if value is None:
        return "NULL"
    if isinstance(value, (list, tuple)):
        return f"ARRAY[{', '.join(map(literal, value))}]"
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'::bytea"
    if isinstance(value, timedelta):
        return f"interval '{value.total_seconds()} seconds'"
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


def steps(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """The plan and everything below it."""
    return [plan, *[step for one in plan.get("Plans", ()) for step in steps(one)]]


def produced(step: dict[str, Any]) -> int:
    """How many rows a step gave, all of its loops together."""
    return round(step["Actual Rows"] * step["Actual Loops"])


def scanned(plan: dict[str, Any]) -> set[str]:
    """The tables that are read from end to end, one row after the other."""
    return {step["Relation Name"] for step in steps(plan) if step["Node Type"] == "Seq Scan"}


def most_read(plan: dict[str, Any]) -> int:
    """The largest number of rows that a step read from a table, also those it left out."""
    removed = ("Rows Removed by Filter", "Rows Removed by Index Recheck")
    return max(
        [
            round(sum(step.get(name, 0) for name in removed) * step["Actual Loops"])
            + produced(step)
            for step in steps(plan)
            if "Relation Name" in step and step["Node Type"] != "ModifyTable"
        ],
        default=0,
    )


def most_sorted(plan: dict[str, Any]) -> int:
    """The largest number of rows that a step sorted."""
    sorts = [step for step in steps(plan) if step["Node Type"] in ("Sort", "Incremental Sort")]
    return max([produced(step["Plans"][0]) for step in sorts], default=0)


@asynccontextmanager
async def connected(server: PostgresServer, schema: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(server.url())
    try:
        await connection.execute(f'SET search_path TO "{schema}"')
        yield connection
    finally:
        await connection.close()


async def fill(connection: Any, size: int) -> None:
    # The schema may have been used before, and the rows are chosen by their numbers.
    await connection.execute("ALTER TABLE task ALTER COLUMN number RESTART")
    await connection.execute("ALTER TABLE log ALTER COLUMN number RESTART")
    await connection.execute(_FILL[0], size, timeout=FILL_S)
    for statement in _FILL[1:-1]:
        await connection.execute(statement, timeout=FILL_S)
    await connection.execute(_FILL_LARGE[0], LARGE_TASK, digest_of(LARGE_TEXT), LARGE_TEXT)
    await connection.execute(_FILL_LARGE[1], LARGE_TASK, LARGE_BODY)
    await connection.execute(_FILL[-1], timeout=FILL_S)


async def explain(connection: Any, statement: str, values: tuple[object, ...]) -> dict[str, Any]:
    """The plan of a statement, made without its values as on the store's own connections."""
    await connection.execute(f"PREPARE sent AS {statement}")
    given = f"({', '.join(map(literal, values))})" if values else ""
    # What it changes is taken back.
    transaction = connection.transaction()
    await transaction.start()
    try:
        text = await connection.fetchval(
            f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE sent{given}", timeout=FILL_S
        )
    finally:
        await transaction.rollback()
        await connection.execute("DEALLOCATE sent")
    return msgspec.json.decode(text)[0]["Plan"]


class Recorder:
    """The statements that a store sends, with their values."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, tuple[object, ...]]] = []

    def __call__(self, query: Any) -> None:
        # The driver asks about types by itself, and transactions begin and end.
        if re.match(r"\s*(SELECT|WITH|UPDATE|DELETE|INSERT)\b", query.query) and (
            "pg_catalog" not in query.query
        ):
            self.sent.append((query.query, tuple(query.args)))

    def take(self) -> list[tuple[str, tuple[object, ...]]]:
        sent, self.sent = self.sent, []
        return sent


async def record_all(store: PostgresStore) -> dict[str, list[tuple[str, tuple[object, ...]]]]:
    """What each method sends, on the connections that read and on the one that writes."""
    recorder = Recorder()
    sent: dict[str, list[tuple[str, tuple[object, ...]]]] = {}
    store.link.connection.add_query_logger(recorder)
    async with store._pool.acquire() as connection:
        connection.add_query_logger(recorder)  # the only one that reads
    for name, call in {**READS, **WRITES}.items():
        assert await call(store) is not None or name in WRITES or name in MISSING, name
        # Of a statement that is sent again and again, such as a slice of a search, the first time.
        sent[name] = list({text: (text, values) for text, values in recorder.take()[::-1]}.values())
        assert sent[name], name
    return sent


async def test_no_read_scans_a_large_table_or_sorts_more_than_its_pages(
    postgres: PostgresServer, schema: str, rounds: int | None
) -> None:
    store = make_store(postgres, schema, connections=2)
    await store.open()
    async with connected(postgres, schema) as connection:
        try:
            await fill(connection, rounds or DEFAULT_SIZE)
            sent = await record_all(store)
        finally:
            await store.close()
        await store.address.prepare(connection)
        await connection.execute("SET statement_timeout TO 0")
        for name, statements in sent.items():
            for statement, values in statements:
                plan = await explain(connection, statement, values)
                shown = (name, statement, msgspec.json.encode(plan).decode())
                assert scanned(plan) <= SMALL_TABLES, shown
                most = _SEARCHED if name.startswith("search") else MERGED
                if name in COUNTED:
                    most = max(most, 2 * (rounds or DEFAULT_SIZE) // CALLERS)
                assert most_read(plan) <= most, shown
                if name not in COUNTED:
                    assert most_sorted(plan) <= MERGED, shown


def test_every_read_of_the_ports_is_looked_at() -> None:
    protocols = (ports.TaskStore, ports.DeliveryStore, ports.RecordStore, ports.LogStore)
    names = {
        name
        for protocol in (*protocols, ports.SupportsTaskSearch)
        for name, _ in inspect.getmembers(protocol, inspect.isfunction)
        if re.match("(read|list|find|count|measure|search)_", name)
    }
    assert {name.partition(" ")[0] for name in READS} == names


async def test_a_batch_finds_its_rows_by_their_keys(
    store: PostgresStore, postgres: PostgresServer, schema: str
) -> None:
    batch = Batch()
    draft = Draft("t-new", scope=BOB)
    known = Draft("t-77")
    known.head = msgspec.structs.replace(known.head, sequence=3)
    batch.add(Submit(draft.submission()))
    batch.add(ChangeTask(known.status(TaskState.WORKING, at=1)))
    statement = build_statement(batch, writer=store.link, number=1)
    async with connected(postgres, schema) as connection:
        await fill(connection, DEFAULT_SIZE)
        await store.address.prepare(connection)
        text = await connection.fetchval(
            f"EXPLAIN (FORMAT JSON) {statement.text}", *statement.values
        )
    assert scanned(msgspec.json.decode(text)[0]["Plan"]) <= SMALL_TABLES
    assert re.search(r"task_id_key|task_pkey", text)
