"""A store that moves from SQLite to PostgreSQL has everything it had, or nothing."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.store_samples import (
    ALICE,
    BOB,
    Draft,
    direct,
    make_delivery,
    make_lines,
    make_record,
    put_finished,
    time_at,
)
from tests.postgres_server import PostgresServer
from tests.store.postgres.conftest import make_store

from openclaw_a2a.model.errors import StoreLocked, StoreUnavailable
from openclaw_a2a.model.ids import MessageId, OwnerId, RunId, TaskId
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.ports import LogAppend, Store, TaskQuery
from openclaw_a2a.store.contents import LARGE_BYTES
from openclaw_a2a.store.postgres.address import Address
from openclaw_a2a.store.postgres.transfer import move_sqlite
from openclaw_a2a.store.sqlite.store import SqliteStore

NAMES = ("done", "large", "paused", "working", "of-bob")


async def fill(store: Store) -> None:
    """Something of everything."""
    await put_finished(store, "done", at=1)
    await put_finished(store, "of-bob", at=2, scope=BOB)
    large = Draft("large")
    await store.tasks.submit(large.submission())
    await store.tasks.commit(large.whole(large.chunk("ä" * LARGE_BYTES)))
    await store.tasks.commit(large.ended(at=3))
    paused = Draft("paused")
    await store.tasks.submit(paused.submission())
    await store.tasks.commit(paused.paused(b"\0token", at=4))
    working = Draft("working", context="c-2")
    await store.tasks.submit(working.submission())
    await store.tasks.start_run(working.run.id, fence=1, attempt=2)
    await store.tasks.commit(working.status(TaskState.WORKING, at=5))
    await store.tasks.submit(direct("answered"))
    await store.tasks.finish_run(RunId("run-answered"), fence=1, answer=b"{}")
    await store.deliveries.put_delivery(make_delivery("done"), within=9)
    for name in ("b", "a"):
        await store.records.put_record(make_record(name))
    for log_id, closes in (("obj-1", False), ("obj-2", True), ("nul\0", False)):
        lines = make_lines(0, 3, closes=closes)
        await store.logs.append_log(LogAppend("objective", log_id, lines, after=0, closes=closes))


async def everything(store: Store) -> list[Any]:
    found: list[Any] = []
    for name in NAMES:
        found.append(await store.tasks.read_task(None, TaskId(name)))
        found.append(await store.tasks.read_events(None, TaskId(name), after=0, limit=99))
        found.append(await store.tasks.read_resume_token(TaskId(name)))
        found.append(await store.tasks.find_duplicate(ALICE, MessageId(f"m-{name}")))
        found.append(await store.deliveries.list_task_deliveries(None, TaskId(name)))
    for scope in (ALICE, BOB):
        page = await store.tasks.list_tasks(TaskQuery(scope, 50))
        found += [page, await store.tasks.list_tasks(TaskQuery(scope, 50, state=TaskState.WORKING))]
    found.append(await store.tasks.list_recent_tasks(50))
    found.append(await store.tasks.find_duplicate(ALICE, MessageId("m-answered")))
    found.append(await store.records.list_records("handle"))
    found.append(await store.logs.list_log_heads("objective", after="", limit=9))
    found.append(await store.logs.list_open_logs("objective", after="", limit=9))
    return found


@pytest.fixture
async def source(tmp_path: Path) -> AsyncIterator[Path]:
    path = tmp_path / "state.db"
    store = SqliteStore(path)
    await store.open()
    await fill(store)
    await store.close()
    yield path


async def move(path: Path, server: PostgresServer, schema: str) -> dict[str, int]:
    return await move_sqlite(path, Address(server.url(), schema=schema), lambda _name, _count: None)


async def test_a_moved_store_has_everything_and_goes_on(
    source: Path, postgres: PostgresServer, schema: str
) -> None:
    before = SqliteStore(source)
    await before.open()
    expected = await everything(before)
    await before.close()
    counts = await move(source, postgres, schema)
    assert counts["task"] == len(NAMES)
    assert all(counts.values())
    store = make_store(postgres, schema)
    await store.open()
    assert await everything(store) == expected
    # New tasks, runs, records and logs come after those that were moved.
    await put_finished(store, "later", at=9)
    newest, *_ = await store.tasks.list_recent_tasks(1)
    assert newest.head.id == "later"
    await store.records.put_record(make_record("b"))
    assert [one.id for one in await store.records.list_records("handle")] == ["a", "b"]
    lines = make_lines(0, 1)
    assert await store.logs.append_log(LogAppend("objective", "obj-3", lines, after=0))
    await store.tasks.submit(direct("queued"))
    claimed = await store.tasks.claim_runs(OwnerId("b"), lease_until=time_at(9), expired_at=None)
    assert [(run.task_id, run.attempt) for run in claimed] == [("working", 2), ("queued", 1)]
    await store.close()


async def test_a_store_that_is_not_empty_is_not_moved_into(
    source: Path, postgres: PostgresServer, schema: str
) -> None:
    await move(source, postgres, schema)
    with pytest.raises(StoreUnavailable, match="not empty"):
        await move(source, postgres, schema)


async def test_a_move_that_fails_leaves_nothing_and_can_be_done_again(
    source: Path, postgres: PostgresServer, schema: str
) -> None:
    with sqlite3.connect(source) as connection:
        connection.execute("UPDATE record SET id = 'a' || char(0) WHERE id = 'a'")
    connection.close()
    with pytest.raises(StoreUnavailable):
        await move(source, postgres, schema)
    with sqlite3.connect(source) as connection:
        connection.execute("UPDATE record SET id = 'a' WHERE id LIKE 'a%'")
    connection.close()
    assert (await move(source, postgres, schema))["record"] == 2


async def test_what_a_receiver_answered_does_not_keep_a_store_from_being_moved(
    source: Path, postgres: PostgresServer, schema: str
) -> None:
    with sqlite3.connect(source) as connection:
        connection.execute("UPDATE delivery SET reason = 'HTTP 500: ' || char(0)")
    connection.close()
    await move(source, postgres, schema)
    store = make_store(postgres, schema)
    await store.open()
    [delivery] = await store.deliveries.list_task_deliveries(None, TaskId("done"))
    assert delivery.reason == "HTTP 500: \ufffd"
    await store.close()


async def test_a_store_that_a_gateway_uses_is_not_moved(
    source: Path, postgres: PostgresServer, schema: str
) -> None:
    store = SqliteStore(source)
    await store.open()
    with pytest.raises(StoreLocked):
        await move(source, postgres, schema)
    await store.close()


async def test_a_missing_file_is_named(
    tmp_path: Path, postgres: PostgresServer, schema: str
) -> None:
    with pytest.raises(StoreUnavailable, match=r"no SQLite store at .*/none\.db"):
        await move(tmp_path / "none.db", postgres, schema)
