"""A store that moves into PostgreSQL has everything it had, or nothing."""

import os
import shutil
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio.to_thread
import asyncpg
import msgspec
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
)
from tests.postgres_server import PostgresServer
from tests.store.postgres.conftest import make_store

from openclaw_a2a.model.errors import StoreLocked, StoreUnavailable
from openclaw_a2a.model.ids import MessageId, OwnerId, RunId, TaskId
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.ports import LogAppend, Store, TaskQuery
from openclaw_a2a.store.contents import LARGE_BYTES
from openclaw_a2a.store.json_file.log_files import log_file_name
from openclaw_a2a.store.json_file.record_files import LOG_NAME, record_file_name
from openclaw_a2a.store.json_file.store import JsonFileStore
from openclaw_a2a.store.locks import LOCK_NAME
from openclaw_a2a.store.postgres import json_file_source
from openclaw_a2a.store.postgres.address import Address
from openclaw_a2a.store.postgres.json_file_source import JsonFileSource
from openclaw_a2a.store.postgres.transfer import move_json_files, move_sqlite
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


async def make_source(store: Store) -> None:
    await store.open()
    await fill(store)
    await store.close()


@pytest.fixture
async def source(tmp_path: Path) -> Path:
    """A SQLite store with something of everything."""
    await make_source(SqliteStore(tmp_path / "state.db"))
    return tmp_path / "state.db"


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """The same in a json-file store."""
    await make_source(JsonFileStore(tmp_path / "tasks"))
    return tmp_path / "tasks"


@pytest.fixture(params=["state.db", "tasks"])
async def any_source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Either of them."""
    path = tmp_path / request.param
    await make_source(open_source(path))
    return path


def open_source(path: Path) -> Store:
    return SqliteStore(path) if path.suffix == ".db" else JsonFileStore(path)


def report_nothing(_name: str, _count: int) -> None:
    """For a move whose progress does not matter."""


async def move(path: Path, server: PostgresServer, schema: str) -> dict[str, int]:
    address = Address(server.url(), schema=schema)
    if path.suffix == ".db":
        return await move_sqlite(path, address, report_nothing)
    problems: list[str] = []
    source = JsonFileSource(path, path.with_name("objectives"), problems.append)
    counts = await move_json_files(source, address, report_nothing)
    assert problems == []
    return counts


async def test_a_moved_store_has_everything_and_goes_on(
    any_source: Path, postgres: PostgresServer, schema: str
) -> None:
    before = open_source(any_source)
    await before.open()
    expected = await everything(before)
    await before.close()
    counts = await move(any_source, postgres, schema)
    assert counts["task"] == len(NAMES)
    assert all(counts.values())
    store = make_store(postgres, schema)
    await store.open()
    assert await everything(store) == expected
    await check_goes_on(store)
    await store.close()


async def check_goes_on(store: Store) -> None:
    """New tasks, runs, records and logs come after those that were moved."""
    await put_finished(store, "later", at=9)
    newest, *_ = await store.tasks.list_recent_tasks(1)
    assert newest.head.id == "later"
    await store.records.put_record(make_record("b"))
    assert [one.id for one in await store.records.list_records("handle")] == ["a", "b"]
    lines = make_lines(0, 1)
    assert await store.logs.append_log(LogAppend("objective", "obj-3", lines, after=0))
    await store.tasks.submit(direct("queued"))
    claimed = await store.tasks.claim_runs(OwnerId("b"))
    assert [(run.task_id, run.attempt) for run in claimed] == [("working", 2), ("queued", 1)]


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


_CHANGE = """
CREATE FUNCTION {schema}.change_body() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN NEW.body := 'changed'; RETURN NEW; END $$;
CREATE TRIGGER change_body BEFORE INSERT ON {schema}.record
  FOR EACH ROW WHEN (NEW.id = 'a') EXECUTE FUNCTION {schema}.change_body()"""
_CHANGE_NOT = "DROP FUNCTION {schema}.change_body() CASCADE"


async def test_a_row_that_comes_out_different_is_noticed_and_nothing_is_moved(
    any_source: Path, postgres: PostgresServer, schema: str
) -> None:
    store = make_store(postgres, schema)
    await store.open()  # makes the tables
    await store.close()
    connection = await asyncpg.connect(postgres.url())
    await connection.execute(_CHANGE.format(schema=schema))
    with pytest.raises(StoreUnavailable, match=r"record has 2 rows .* contents differ"):
        await move(any_source, postgres, schema)
    await connection.execute(_CHANGE_NOT.format(schema=schema))
    await connection.close()
    assert (await move(any_source, postgres, schema))["record"] == 2


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


# -------------------------------------------------------------------- json-file


def files_of(folder: Path) -> dict[str, bytes]:
    found = [one for one in folder.parent.rglob("*") if one.is_file()]
    return {str(one.relative_to(folder.parent)): one.read_bytes() for one in found}


async def test_what_only_the_log_has_is_moved_and_the_files_stay_as_they_are(
    tmp_path: Path, folder: Path, postgres: PostgresServer, schema: str
) -> None:
    """A gateway that was killed leaves changes in the log that its record files lack."""
    store = JsonFileStore(folder)
    await store.open()
    records = {name: body for name, body in files_of(folder).items() if name.endswith(".json")}
    draft = Draft("late", context="c-9")
    await store.tasks.submit(draft.submission(at=7))
    await store.tasks.commit(draft.whole(draft.chunk("ö" * LARGE_BYTES)))
    assert await store.tasks.delete_task(ALICE, TaskId("done"))
    expected = await everything(store)
    late = await store.tasks.read_task(None, TaskId("late"))
    killed = tmp_path / "killed"
    for name in ("tasks", "objectives"):
        shutil.copytree(tmp_path / name, killed / name, ignore=lambda *_: {LOCK_NAME})
    await store.close()
    (killed / "tasks" / record_file_name(TaskId("late"))).unlink()
    for name, body in records.items():
        (killed / name).write_bytes(body)
    left = files_of(killed / "tasks")
    await move(killed / "tasks", postgres, schema)
    assert files_of(killed / "tasks") == left
    moved = make_store(postgres, schema)
    await moved.open()
    assert await everything(moved) == expected
    assert await moved.tasks.read_task(None, TaskId("late")) == late
    await moved.close()


async def test_a_record_that_cannot_be_read_is_named_and_nothing_is_moved(
    folder: Path, postgres: PostgresServer, schema: str
) -> None:
    file = folder / record_file_name(TaskId("done"))
    content = file.read_bytes()
    file.write_bytes(content[:-20])
    with pytest.raises(StoreUnavailable, match=rf"{file.name} in .* cannot be read"):
        await move(folder, postgres, schema)
    file.write_bytes(content)
    log = folder / LOG_NAME
    lines = log.read_bytes()
    log.write_bytes(b"nonsense\n" + lines)
    with pytest.raises(StoreUnavailable, match="line 1 of"):
        await move(folder, postgres, schema)
    log.write_bytes(lines + b'{"torn')  # never acknowledged
    assert (await move(folder, postgres, schema))["task"] == len(NAMES)


async def test_events_of_another_program_that_cannot_be_read_leave_no_gap(
    folder: Path, postgres: PostgresServer, schema: str
) -> None:
    """Other programs write short forms of events, which the gateway leaves out."""
    file = folder / record_file_name(TaskId("done"))
    record = msgspec.json.decode(file.read_bytes())
    record["journal"][0]["event"] = {"kind": "status-update", "state": "working"}
    file.write_bytes(msgspec.json.encode(record))
    store = JsonFileStore(folder)
    await store.open()
    await store.deliveries.put_delivery(make_delivery("done", "two", cursor=2), within=9)
    readable = await store.tasks.read_events(None, TaskId("done"), after=0, limit=9)
    assert [one.sequence for one in readable] == [2, 3]
    await store.close()
    await move(folder, postgres, schema)
    moved = make_store(postgres, schema)
    await moved.open()
    events = await moved.tasks.read_events(None, TaskId("done"), after=0, limit=9)
    assert [(one.sequence, one.body) for one in events] == [
        (number, one.body) for number, one in enumerate(readable, start=1)
    ]
    cursors = {
        one.cursor for one in await moved.deliveries.list_task_deliveries(None, TaskId("done"))
    }
    assert cursors == {0, 1}
    await moved.close()


async def test_lines_of_an_objective_that_the_gateway_does_not_read_are_named(
    folder: Path, postgres: PostgresServer, schema: str
) -> None:
    objectives = folder.with_name("objectives")
    file = objectives / log_file_name("obj-1")
    file.write_bytes(b"nonsense\n" + file.read_bytes())
    (objectives / log_file_name("obj-9")).write_bytes(b"nonsense\n")
    problems: list[str] = []
    source = JsonFileSource(folder, objectives, problems.append)
    counts = await move_json_files(source, Address(postgres.url(), schema=schema), report_nothing)
    assert (counts["log"], counts["log_line"]) == (3, 9)
    assert [one.split()[:4] for one in problems] == [
        ["line", "1", "of", file.name],
        [log_file_name("obj-9"), "has", "no", "line"],
    ]


async def test_many_tasks_are_moved_in_pages(
    tmp_path: Path, postgres: PostgresServer, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_file_source, "_PAGE_TASKS", 3)
    store = JsonFileStore(tmp_path / "tasks")
    await store.open()
    for number in range(10):
        await put_finished(store, f"t-{number}", at=10 - number)
    expected = await store.tasks.list_recent_tasks(50)
    await store.close()
    assert (await move(tmp_path / "tasks", postgres, schema))["event"] == 30
    moved = make_store(postgres, schema)
    await moved.open()
    assert await moved.tasks.list_recent_tasks(50) == expected
    await moved.close()


# -------------------------------------------------------------------- interrupted, in use

_MOVE = """
import asyncio, sys, time
from pathlib import Path
from openclaw_a2a.store.postgres.address import Address
from openclaw_a2a.store.postgres.json_file_source import JsonFileSource
from openclaw_a2a.store.postgres.transfer import move_json_files, move_sqlite

def report(name, count):
    print(name, count, flush=True)
    time.sleep(600)  # the test kills this process here, with everything copied

path, address = Path(sys.argv[1]), Address(sys.argv[2], schema=sys.argv[3])
if path.is_dir():
    source = JsonFileSource(path, path.with_name("objectives"), print)
    asyncio.run(move_json_files(source, address, report))
else:
    asyncio.run(move_sqlite(path, address, report))
"""


def start_move(path: Path, server: PostgresServer, schema: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _MOVE, str(path), server.url(), schema]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
async def test_a_move_that_is_killed_leaves_nothing_and_is_done_again(
    any_source: Path, postgres: PostgresServer, schema: str
) -> None:
    moving = start_move(any_source, postgres, schema)
    try:
        assert moving.stdout is not None
        assert await anyio.to_thread.run_sync(moving.stdout.readline) == f"task {len(NAMES)}\n"
        with pytest.raises(StoreLocked):  # the source is in use, by the move itself
            await move(any_source, postgres, f"{schema}_other")
    finally:
        moving.kill()
        moving.communicate()
    assert (await move(any_source, postgres, schema))["task"] == len(NAMES)


@pytest.mark.parametrize("held", ["tasks", "objectives"])
async def test_a_folder_that_another_process_writes_is_not_moved(
    folder: Path, postgres: PostgresServer, schema: str, held: str
) -> None:
    lock = folder.with_name(held) / LOCK_NAME
    since = datetime.now(UTC).isoformat()
    lock.write_text(f'{{"pid": {os.getppid()}, "createdAt": "{since}"}}', encoding="utf-8")
    with pytest.raises(StoreLocked, match=str(os.getppid())):
        await move(folder, postgres, schema)
    lock.unlink()
    assert (await move(folder, postgres, schema))["task"] == len(NAMES)


async def test_a_missing_folder_is_named(
    tmp_path: Path, postgres: PostgresServer, schema: str
) -> None:
    with pytest.raises(StoreUnavailable, match=r"no json-file store at .*/none"):
        await move(tmp_path / "none", postgres, schema)
