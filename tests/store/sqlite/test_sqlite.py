"""What is special about the SQLite store: groups, upgrades, one process, its file."""

import asyncio
import os
import sqlite3
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from tests.contracts.store_samples import (
    ALICE,
    Draft,
    direct,
    make_record,
    next_version,
    project_task,
    put_finished,
    time_at,
)

from openclaw_a2a.model.errors import (
    CorruptRecord,
    SchemaTooNew,
    SettingsInvalid,
    StoreLocked,
    StoreUnavailable,
)
from openclaw_a2a.model.ids import ContextId, OwnerId, TaskId
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.ports import Accepted, LogAppend, Record, Retention, TaskKey, TaskQuery
from openclaw_a2a.store import create_store
from openclaw_a2a.store.group_writer import MAX_GROUP
from openclaw_a2a.store.sqlite import migrate, records, task_lists, tasks
from openclaw_a2a.store.sqlite.store import SqliteStore
from openclaw_a2a.store.sqlite.transaction import MAX_TASKS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "down" / "state.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path)
    await store.open()
    yield store
    await store.close()


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def count_commits(path: Path) -> int:
    """The transactions in the write-ahead log: the last page of each has a database size."""
    header, page, frame = 32, rows(path, "PRAGMA page_size")[0][0], 24
    assert isinstance(page, int)
    log = path.with_name(f"{path.name}-wal").read_bytes()
    return sum(
        log[start + 4 : start + 8] != bytes(4) for start in range(header, len(log), frame + page)
    )


def batched(drafts: list[Draft], size: int) -> list[list[Draft]]:
    return [drafts[start : start + size] for start in range(0, len(drafts), size)]


def break_in(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()


async def test_writes_that_wait_together_share_a_transaction(
    store: SqliteStore, path: Path
) -> None:
    drafts = [Draft(f"t-{number}") for number in range(1000)]
    before = count_commits(path)
    await asyncio.gather(*[store.tasks.submit(draft.submission()) for draft in drafts])
    assert count_commits(path) - before <= 2 + 1000 // 100
    assert count_commits(path) - before >= 1000 // MAX_GROUP


async def test_the_file_and_its_folder_are_for_the_owner_only(
    store: SqliteStore, path: Path
) -> None:
    await store.tasks.submit(direct("t-1"))
    files = [file for file in path.parent.iterdir() if file.name != "state.db-shm"]
    assert len(files) >= 3
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_an_invalid_row_fails_its_own_write_only(store: SqliteStore) -> None:
    unwritable = direct("t-3")
    run = msgspec.structs.replace(unwritable.run, session_key="half a character \ud800")
    unwritable = msgspec.structs.replace(unwritable, run=run)
    outcomes = await asyncio.gather(
        store.tasks.submit(direct("t-1")),
        store.tasks.submit(unwritable),
        store.tasks.submit(direct("t-2")),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [Accepted, StoreUnavailable, Accepted]
    await store.check()
    claimed = await store.tasks.claim_runs(OwnerId("b"))
    assert [run.task_id for run in claimed] == ["t-1", "t-2"]


class FailingConnection(sqlite3.Connection):
    """A connection whose disk fails at some statements."""

    failing: frozenset[str] = frozenset()

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        if statement in self.failing:
            raise sqlite3.OperationalError("disk I/O error")
        return super().execute(statement, *values)


async def test_a_rollback_that_fails_too_fails_its_group_only(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of the rollback ended the writer thread, and every later write hung."""
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=FailingConnection))
    store = SqliteStore(path)
    await store.open()
    await store.tasks.submit(direct("t-1"))
    monkeypatch.setattr(FailingConnection, "failing", frozenset({"COMMIT", "ROLLBACK"}))
    with anyio.fail_after(240), pytest.raises(StoreUnavailable, match="disk I/O error"):
        await store.tasks.submit(direct("t-2"))
    with anyio.fail_after(240), pytest.raises(StoreUnavailable):
        await store.check()
    monkeypatch.setattr(FailingConnection, "failing", frozenset())
    with anyio.fail_after(240):
        await store.check()
        assert isinstance(await store.tasks.submit(direct("t-3")), Accepted)
        claimed = await store.tasks.claim_runs(OwnerId("b"))
    assert [run.task_id for run in claimed] == ["t-1", "t-3"]
    await store.close()


async def test_events_of_one_task_in_one_group_become_one_row_of_the_task(
    store: SqliteStore, path: Path
) -> None:
    draft = Draft()
    changes = [draft.submission(), *[draft.chunk(str(number)) for number in range(9)]]
    await asyncio.gather(
        store.tasks.submit(changes[0]), *[store.tasks.commit(change) for change in changes[1:]]
    )
    assert rows(path, "SELECT sequence FROM task") == [(9,)]
    assert rows(path, "SELECT count(*) FROM event") == [(9,)]
    assert rows(path, "SELECT sequence FROM snapshot") == [(0,)]


async def test_counters_match_the_stored_tasks(store: SqliteStore, path: Path) -> None:
    for number in range(5):
        await put_finished(store, f"t-{number}", at=number)
    working = Draft("w")
    await store.tasks.submit(working.submission())
    await store.tasks.commit(working.status(TaskState.WORKING, at=1))
    await store.tasks.delete_task(ALICE, TaskId("t-1"))
    await store.tasks.purge(Retention(time_at(1), 3, time_at(-1)))
    counted = "SELECT state, count FROM tally WHERE count <> 0 ORDER BY state"
    real = "SELECT state, count(*) FROM task GROUP BY state ORDER BY state"
    assert rows(path, counted) == rows(path, real) == [(2, 1), (3, 3)]
    assert rows(path, "SELECT count(*) FROM snapshot") == [(4,)]
    assert rows(path, "SELECT count(DISTINCT task) FROM event") == [(4,)]


async def test_an_unfinished_task_that_was_long_untouched_is_found_again(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    draft = Draft()
    await store.tasks.submit(draft.submission())
    await store.close()
    await store.open()
    await store.tasks.commit(draft.chunk("after a restart"))
    assert project_task(await store.tasks.read_task(ALICE, TaskId("t-1"))) == draft.task
    await store.close()


async def test_more_unfinished_tasks_than_the_cache_holds(store: SqliteStore) -> None:
    drafts = [Draft(f"t-{number}") for number in range(MAX_TASKS + 2)]
    for some in batched(drafts, 2000):
        await asyncio.gather(*[store.tasks.submit(draft.submission()) for draft in some])
    first = drafts[0]
    await store.tasks.commit(first.chunk("still here"))
    assert project_task(await store.tasks.read_task(ALICE, first.head.id)) == first.task
    assert (await store.tasks.list_tasks(TaskQuery(ALICE, 1))).total == MAX_TASKS + 2


async def test_an_unreadable_database_is_reported(store: SqliteStore, path: Path) -> None:
    break_in(path, "DROP TABLE snapshot")
    with pytest.raises(StoreUnavailable, match="cannot be read"):
        await store.tasks.read_task(ALICE, TaskId("t-1"))


async def test_a_store_that_is_not_open_refuses_reads_and_writes(path: Path) -> None:
    store = SqliteStore(path)
    await store.close()
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.check()
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.tasks.read_task(ALICE, TaskId("t-1"))


async def test_a_lock_file_that_cannot_be_opened_is_refused(path: Path) -> None:
    path.with_name("state.db.lock").mkdir(parents=True)
    with pytest.raises(StoreUnavailable, match=r"state\.db\.lock"):
        await SqliteStore(path).open()


@pytest.mark.parametrize(
    ("kind", "where", "problem"),
    [
        ("oracle", "x", "memory, json-file, sqlite and postgres"),
        ("", None, "memory, json-file, sqlite and postgres"),
        ("postgres", "x", "store.url is missing"),
        ("sqlite", None, "store.path is missing"),
        ("json-file", "", "store.path is missing"),
    ],
)
def test_invalid_store_settings_are_refused_with_the_reason(
    kind: str, where: str | None, problem: str
) -> None:
    with pytest.raises(SettingsInvalid, match=problem):
        create_store(kind, path=where)


async def test_a_second_store_on_the_same_file_is_refused(store: SqliteStore, path: Path) -> None:
    with pytest.raises(StoreLocked, match=f"process {os.getpid()} uses") as refusal:
        await SqliteStore(path).open()
    assert str(path) in refusal.value.message
    await store.tasks.submit(direct("t-1"))


HOLD = """
import asyncio, sys
from openclaw_a2a.store.sqlite.store import SqliteStore
asyncio.run(SqliteStore(sys.argv[1]).open())
print("open", flush=True)
sys.stdin.read()
"""


async def test_a_second_process_is_refused_until_the_first_ends(path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(path)]
    async with await anyio.open_process(command) as holder:
        assert holder.stdout is not None
        assert (await holder.stdout.receive()).startswith(b"open")
        with pytest.raises(StoreLocked, match=str(holder.pid)):
            await SqliteStore(path).open()
        holder.kill()
    store = SqliteStore(path)
    await store.open()
    await store.close()


async def test_a_newer_schema_is_refused_with_the_version_that_made_it(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.close()
    break_in(path, "INSERT INTO schema_version (version, made_by) VALUES (999, '7.8.9')")
    with pytest.raises(SchemaTooNew, match=r"schema 999, made by openclaw-a2a 7\.8\.9"):
        await store.open()
    with pytest.raises(SchemaTooNew):
        migrate.plan_upgrade(path)


async def test_a_database_of_another_program_stays_unchanged(path: Path) -> None:
    path.parent.mkdir(parents=True)
    break_in(path, "CREATE TABLE recipes (name TEXT)")
    with pytest.raises(StoreUnavailable, match="another program"):
        await SqliteStore(path).open()
    assert rows(path, "SELECT name FROM sqlite_master") == [("recipes",)]


async def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    diary = b"dear diary, " * 1000
    await anyio.Path(path.parent).mkdir(parents=True)
    await anyio.Path(path).write_bytes(diary)
    with pytest.raises(StoreUnavailable, match=str(path)):
        await SqliteStore(path).open()
    assert await anyio.Path(path).read_bytes() == diary


@pytest.mark.parametrize("read_schema", [migrate.plan_upgrade, migrate.upgrade_file])
def test_no_schema_is_read_from_a_file_that_is_no_database(path: Path, read_schema) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"dear diary, " * 1000)
    with pytest.raises(StoreUnavailable, match=f"{path} cannot be read as a database"):
        read_schema(path)


async def test_a_path_where_nothing_can_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("I am no directory", encoding="utf-8")
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        await SqliteStore(tmp_path / "file" / "state.db").open()


def test_a_plan_names_the_steps_and_changes_nothing(path: Path) -> None:
    path.parent.mkdir(parents=True)
    steps = migrate.plan_upgrade(path)
    assert steps[0].startswith("0001_initial: ")
    assert not path.exists()
    assert migrate.upgrade_file(path) == steps
    assert migrate.plan_upgrade(path) == []
    assert migrate.upgrade_file(path) == []


async def test_a_file_in_use_is_not_upgraded(store: SqliteStore, path: Path) -> None:
    with pytest.raises(StoreLocked):
        migrate.upgrade_file(path)
    await store.check()


async def test_an_upgrade_keeps_a_copy_of_what_was_there(store: SqliteStore, path: Path) -> None:
    await store.tasks.submit(Draft().submission())
    await store.close()
    steps = migrate.load_migrations()
    now = steps[-1].version
    backup = path.with_name(f"state.db.backup-v{now}")
    backup.touch(0o644)  # what a copy that was interrupted, or somebody else, left
    sql = "-- Something new.\nCREATE TABLE later (a INTEGER);\n"
    later = migrate.Migration(now + 1, "later", sql)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate.upgrade(connection, [*steps, later], backup_of=path)
        assert connection.execute("SELECT count(*) FROM later").fetchone() == (0,)
    assert backup.stat().st_mode & 0o077 == 0
    assert rows(backup, "SELECT id FROM task") == [("t-1",)]
    assert rows(backup, "SELECT max(version) FROM schema_version") == [(now,)]


async def test_a_store_of_the_first_version_gets_deliveries(path: Path) -> None:
    await anyio.Path(path.parent).mkdir(parents=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate.upgrade(connection, migrate.load_migrations()[:1])
    store = SqliteStore(path)
    await store.open()
    assert await store.deliveries.list_task_deliveries(None, TaskId("t-1")) == []
    await store.close()
    assert rows(path.with_name("state.db.backup-v1"), "SELECT * FROM task") == []


async def test_a_store_from_before_versions_keeps_its_records(path: Path) -> None:
    await anyio.Path(path.parent).mkdir(parents=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate.upgrade(connection, migrate.load_migrations()[:3])
        for name in ("two", "one"):
            row = ("handle", name, f"body of {name}".encode(), 7_000_000)
            connection.execute(
                "INSERT INTO record (kind, id, body, expires_at) VALUES (?, ?, ?, ?)", row
            )
    store = SqliteStore(path)
    await store.open()
    until = datetime(1970, 1, 1, 0, 0, 7, tzinfo=UTC)
    two, one = (Record("handle", n, f"body of {n}".encode(), until) for n in ("two", "one"))
    assert await store.records.list_records("handle") == [two, one]
    assert await store.records.read_record("handle", "one") == one
    assert not await store.records.update_record(one)
    assert await store.records.update_record(next_version(two))
    await store.close()
    backup = path.with_name("state.db.backup-v3")
    assert rows(backup, "SELECT id FROM record ORDER BY number") == [("two",), ("one",)]


async def test_a_store_from_before_logs_gets_them(path: Path) -> None:
    await anyio.Path(path.parent).mkdir(parents=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate.upgrade(connection, migrate.load_migrations()[:4])
    store = SqliteStore(path)
    await store.open()
    assert await store.logs.list_open_logs("objective", after="", limit=5) == []
    assert await store.logs.append_log(LogAppend("objective", "obj-1", [b"{}"], after=0))
    await store.close()


async def test_a_log_that_cannot_be_written_affects_no_other(store: SqliteStore) -> None:
    names = ["obj-1", "half a character \ud800", "obj-2"]
    outcomes = await asyncio.gather(
        *[
            store.logs.append_log(LogAppend("objective", name, [b"{}"] * 3, after=0))
            for name in names
        ],
        return_exceptions=True,
    )
    assert outcomes[0::2] == [True, True]
    assert isinstance(outcomes[1], StoreUnavailable)
    found = await store.logs.list_open_logs("objective", after="", limit=5)
    assert [(log.id, log.sequence) for log in found] == [("obj-1", 3), ("obj-2", 3)]


async def test_a_deleted_log_leaves_no_lines_in_the_database(
    store: SqliteStore, path: Path
) -> None:
    await store.logs.append_log(LogAppend("objective", "obj-1", [b"{}"] * 3, after=0))
    await store.logs.append_log(LogAppend("objective", "obj-2", [b"{}"], after=0))
    assert await store.logs.delete_log("objective", "obj-1")
    assert rows(path, "SELECT l.id, sequence FROM log l") == [("obj-2", 1)]
    assert rows(path, "SELECT count(*) FROM log_line") == [(1,)]


@pytest.mark.parametrize(
    ("statement", "indexes"),
    [
        (tasks.SELECT_OLDEST, ["task_by_status"]),
        (tasks.SELECT_HOLDING, ["delivery_by_task", "PRIMARY KEY"]),
    ],
)
async def test_finding_tasks_to_purge_scans_no_table(
    store: SqliteStore, path: Path, statement: str, indexes: list[str]
) -> None:
    with closing(sqlite3.connect(path)) as connection:
        values = [None] * statement.count("?")
        plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
    steps = [str(step[3]) for step in plan if "SUBQUERY" not in step[3]]
    assert all(step.startswith("SEARCH ") for step in steps)
    assert [index in step for index, step in zip(indexes, steps, strict=True)] == [
        True for _ in indexes
    ]


@pytest.mark.parametrize("statement", [records.SELECT_OPEN_LOGS, records.SELECT_LOGS])
async def test_a_page_of_logs_reads_no_more_rows_than_it_returns(
    store: SqliteStore, path: Path, statement: str
) -> None:
    with closing(sqlite3.connect(path)) as connection:
        values = ("objective", "obj-1", 10)
        plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
    steps = [str(step[3]) for step in plan]
    assert all(step.startswith("SEARCH log USING ") for step in steps)
    assert all("(kind=? AND id>?)" in step for step in steps)


async def test_a_record_that_cannot_be_written_fails_its_submission(store: SqliteStore) -> None:
    unwritable = msgspec.structs.replace(make_record(), id="half a character \ud800")
    outcomes = await asyncio.gather(
        store.tasks.submit(direct("t-1")),
        store.tasks.submit(msgspec.structs.replace(direct("t-2"), record=unwritable)),
        store.tasks.submit(msgspec.structs.replace(direct("t-3"), record=make_record())),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [Accepted, StoreUnavailable, Accepted]
    claimed = await store.tasks.claim_runs(OwnerId("b"))
    assert [run.task_id for run in claimed] == ["t-1", "t-3"]
    assert await store.records.list_records("handle") == [make_record()]


async def test_a_submission_that_cannot_be_written_leaves_no_record(store: SqliteStore) -> None:
    submission = msgspec.structs.replace(direct("t-1"), record=make_record())
    run = msgspec.structs.replace(submission.run, session_key="half a character \ud800")
    with pytest.raises(StoreUnavailable):
        await store.tasks.submit(msgspec.structs.replace(submission, run=run))
    assert await store.records.list_records("handle") == []


async def test_a_step_that_fails_leaves_the_schema_as_it_was(
    store: SqliteStore, path: Path
) -> None:
    await store.close()
    broken = migrate.Migration(
        999, "0999_broken", "CREATE TABLE later (a INTEGER);\nCREATE NONSENSE;\n"
    )
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        with pytest.raises(sqlite3.Error):
            migrate.upgrade(connection, [*migrate.load_migrations(), broken])
        assert migrate.pending_migrations(connection) == []
        tables = connection.execute("SELECT name FROM sqlite_master WHERE name = 'later'")
        assert tables.fetchall() == []


async def test_a_new_database_has_no_backup(store: SqliteStore, path: Path) -> None:
    assert [file for file in path.parent.iterdir() if "backup" in file.name] == []


async def test_an_unreadable_binding_is_reported_with_its_task(
    store: SqliteStore, path: Path
) -> None:
    await store.tasks.submit(Draft().submission())
    break_in(path, "UPDATE task SET binding = x'00'")
    with pytest.raises(CorruptRecord, match="t-1"):
        await store.tasks.read_task(ALICE, TaskId("t-1"))


QUERY = TaskQuery(ALICE, 10, after=TaskKey(time_at(), TaskId("t-1")), status_since=time_at())


@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"state": TaskState.COMPLETED},
        {"state": TaskState.WORKING, "context_id": ContextId("c-1")},
        {"state": TaskState.FAILED, "context_id": ContextId("c-1")},
        {"context_id": ContextId("c-1")},
    ],
)
async def test_a_list_reads_no_more_rows_than_it_returns(
    store: SqliteStore, path: Path, filters: dict[str, object]
) -> None:
    """A page costs the same at any size: only ranges of an index, and rows by their number."""
    query = msgspec.structs.replace(QUERY, **filters)
    with closing(sqlite3.connect(path)) as connection:
        page, total, steps = task_lists.choose_statements(query)
        for statement in (page, total, *steps):
            values = {**task_lists.bind(query), "counted": 0, "counted_id": ""}
            plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
            found = [str(step[3]) for step in plan]
            scans = {step for step in found if step.startswith("SCAN ")}
            assert scans <= {"SCAN k", "SCAN CONSTANT ROW"} | (
                {step for step in scans if step.startswith("SCAN (subquery")}
            )
            ranges = [step for step in found if "task_by_" in step]
            assert ranges
            assert all("state=?" in step for step in ranges)


async def test_tasks_that_have_not_ended_are_found_without_a_look_at_all_tasks(
    store: SqliteStore, path: Path
) -> None:
    values = {"principal": None, "account": None, "state": 6, "limit": 10}
    with closing(sqlite3.connect(path)) as connection:
        plan = connection.execute(
            f"EXPLAIN QUERY PLAN {task_lists.SELECT_RECENT_IN_STATE}", values
        ).fetchall()
    found = [str(step[3]) for step in plan]
    assert [step for step in found if step.startswith("SCAN ")] == ["SCAN y"]
    assert any("SEARCH t USING INDEX task_by_status" in step for step in found)


@pytest.mark.parametrize("is_since", [False, True])
async def test_others_have_their_turns_while_many_tasks_are_counted(
    store: SqliteStore, path: Path, is_since: bool
) -> None:
    count, turns = 50_000, 0
    await put_finished(store, "t-newest", 10)
    [(context,)] = rows(path, "SELECT context FROM task")
    values = (
        (f"t-{n}", ALICE.principal, ALICE.account, context, 3 + n % 2, n) for n in range(count - 1)
    )
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(
            "INSERT INTO task (id, principal, account, context, state, status_at, created_at,"
            " sequence) VALUES (?, ?, ?, ?, ?, ?, 0, 0)",
            values,
        )
    query = TaskQuery(ALICE, 1, context_id=ContextId(str(context)))
    if is_since:
        query = TaskQuery(ALICE, 1, status_since=datetime(1970, 1, 1, tzinfo=UTC))
    listed = asyncio.ensure_future(store.tasks.list_tasks(query))
    while not listed.done():
        await asyncio.sleep(0)
        turns += 1
    assert (await listed).total == count
    assert turns > 5
    others = await store.tasks.list_tasks(msgspec.structs.replace(query, counts=False))
    assert len(others.tasks) == 1
