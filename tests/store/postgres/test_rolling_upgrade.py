"""Gateways of two versions on one database: the older one goes on after the newer one migrated.

The contract suite (`tests/contracts`) runs over the next schema too; here are the rules that make
it work, and the moment of the migration itself.
"""

import asyncio
import re
from pathlib import Path

import asyncpg
import pytest
from tests.captured_logs import capture_logs
from tests.contracts.store_samples import ALICE, Draft
from tests.postgres_server import PostgresServer
from tests.store.postgres.conftest import make_store
from tests.store.postgres.next_schema import KNOWN, NEXT, apply_next

from openclaw_a2a.model.errors import SchemaTooNew
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.store.postgres import migrate
from openclaw_a2a.store.postgres.address import Address
from openclaw_a2a.store.sqlite.migrate import Migration

SOURCE = Path(migrate.__file__).parent
NEWEST = KNOWN[-1].version
ROLLING_SINCE = 5
"""Gateways of earlier schemas do not look whether they can use a newer one."""

_ADDITIONS = (
    r"CREATE (TABLE|SEQUENCE) \w+",
    # Not UNIQUE: the older version may write what the newer one does not.
    r"CREATE INDEX \w+ ON \w+",
    r"ALTER TABLE (?P<table>\w+) (?P<columns>ADD COLUMN .+)",
)
_COLUMN = re.compile(r"ADD COLUMN \w+ (?!.*\b(UNIQUE|CHECK|REFERENCES|PRIMARY)\b)")


def find_breaking(migration: Migration) -> list[str]:
    """The statements that a gateway of the version before may not survive."""
    text = re.sub(r"--.*", "", migration.sql)
    statements = [" ".join(one.split()) for one in text.split(";") if one.strip()]
    return [one for one in statements if not _only_adds(one)]


def _only_adds(statement: str) -> bool:
    match = next((found for one in _ADDITIONS if (found := re.match(one, statement))), None)
    if match is None:
        return False
    columns = match.groupdict().get("columns")
    if columns is None:
        return True
    return all(
        _COLUMN.match(one) and ("NOT NULL" not in one or "DEFAULT" in one)
        for one in re.split(r", (?=\w+ COLUMN\b|DROP|ALTER|RENAME)", columns)
    )


def test_a_migration_only_adds_or_names_the_versions_that_can_go_on() -> None:
    silent = {
        migration.name: breaking
        for migration in KNOWN
        if migration.version > ROLLING_SINCE
        and "-- compatible-from: " not in migration.sql
        and (breaking := find_breaking(migration))
    }
    assert silent == {}


@pytest.mark.parametrize(
    ("statement", "is_addition"),
    [
        ("CREATE TABLE extra (a int)", True),
        ("CREATE INDEX extra ON task (state)", True),
        ("ALTER TABLE task ADD COLUMN a text, ADD COLUMN b int NOT NULL DEFAULT 0", True),
        ("ALTER TABLE task ADD COLUMN a text NOT NULL", False),
        ("ALTER TABLE task ADD COLUMN a text, ADD COLUMN b text NOT NULL", False),
        ("ALTER TABLE task ADD COLUMN a text, DROP COLUMN resume", False),
        ("ALTER TABLE task ADD COLUMN a text UNIQUE", False),
        ("ALTER TABLE task RENAME COLUMN state TO status", False),
        ("ALTER TABLE task ALTER COLUMN binding SET NOT NULL", False),
        ("ALTER TABLE task ADD CONSTRAINT small CHECK (sequence < 9)", False),
        ("CREATE UNIQUE INDEX extra ON task (context)", False),
        ("DROP INDEX task_by_status", False),
        ("UPDATE task SET state = state + 1", False),
    ],
)
def test_what_takes_something_away_is_not_an_addition(statement: str, is_addition: bool) -> None:
    found = find_breaking(Migration(9, "0009_x", f"-- Some.\n{statement};"))
    assert bool(found) is not is_addition


def test_statements_name_their_columns() -> None:
    """A statement that means "all columns" changes its meaning with the schema."""
    # Of a table; of a subquery that names its columns it is fine.
    unnamed = re.compile(
        r"SELECT (\w+\.)?\*[^()]*? FROM (?!\()|RETURNING (\w+\.)?\*"
        r"|INSERT INTO \S+( AS \w+)?\s+(?!AS|\()"
    )
    found = {
        f"{file.name}: {match.group()}"
        for file in SOURCE.glob("*.py")
        for match in unnamed.finditer(file.read_text(encoding="utf-8"))
    }
    assert found == set()


async def test_an_older_gateway_starts_on_the_next_schema_and_says_so(
    postgres: PostgresServer,
) -> None:
    async with postgres.borrow_schema("postgres_next") as schema:
        await apply_next(postgres.url(), schema)
        store = make_store(postgres, schema)
        with capture_logs() as logged:
            await store.open()
        draft = Draft("t-1")
        await store.tasks.submit(draft.submission())
        assert await store.tasks.read_task(ALICE, draft.task.id) is not None
        await store.close()
        [event] = [one for one in logged if one["event"] == "store.schema_newer"]
        assert (event["schema"], event["known"]) == (NEXT.version, NEWEST)
        assert await migrate.plan_database_upgrade(Address(postgres.url(), schema=schema)) == []


async def test_a_gateway_goes_on_while_a_newer_one_migrates(postgres: PostgresServer) -> None:
    schema = "migrated_meanwhile"
    store = make_store(postgres, schema)
    await store.open()
    is_over = False
    written: list[Draft] = []
    progress = asyncio.Condition()

    async def write() -> None:
        while not is_over:
            draft = Draft(f"t-{len(written)}")
            await store.tasks.submit(draft.submission())
            await store.tasks.commit(draft.status(TaskState.WORKING, at=1))
            assert await store.tasks.read_task(ALICE, draft.task.id) is not None
            await store.tasks.commit(draft.ended(at=2))
            async with progress:
                written.append(draft)
                progress.notify_all()
            # A gateway is not always in the middle of a write: a migration waits for such a moment.
            await asyncio.sleep(0.05)

    async def wait_for_more() -> None:
        reached = len(written)
        async with progress:
            await progress.wait_for(lambda: len(written) > reached + 5)

    async with asyncio.timeout(240), asyncio.TaskGroup() as group:
        group.create_task(write())
        await wait_for_more()
        await apply_next(postgres.url(), schema)
        await wait_for_more()
        is_over = True
    assert await store.tasks.count_tasks() >= len(written)
    await store.close()


async def test_a_migration_gives_way_to_those_who_read(postgres: PostgresServer) -> None:
    """A reader and a migration that want the same two tables in another order."""
    schema = "gives_way"
    both = "-- Both.\nLOCK TABLE event; ALTER TABLE snapshot ADD COLUMN extra text;"
    more = Migration(NEWEST + 1, "9998_both", both)
    reader = await asyncpg.connect(postgres.url())
    migrator = await asyncpg.connect(postgres.url())
    for connection in (reader, migrator):
        await connection.execute(f"SET search_path TO {schema}")
    await migrate.upgrade(migrator, schema)
    async with asyncio.timeout(240):
        async with asyncio.TaskGroup() as group, reader.transaction():
            await reader.execute("SELECT count(*) FROM snapshot")
            group.create_task(migrate.upgrade(migrator, schema, migrations=[*KNOWN, more]))
            # From the moment it waits for the snapshots, and has the events.
            waits = "SELECT count(*) FROM pg_locks WHERE pid = $1 AND NOT granted"
            while not await reader.fetchval(waits, migrator.get_server_pid()):
                pass
            await reader.execute("SELECT count(*) FROM event")
    assert await migrator.fetchval("SELECT count(extra) FROM snapshot") == 0
    await reader.close()
    await migrator.close()


@pytest.mark.parametrize(("compatible_from", "is_taken"), [(NEWEST, True), (NEWEST + 1, False)])
async def test_a_migration_that_takes_something_away_names_who_may_go_on(
    postgres: PostgresServer, compatible_from: int, is_taken: bool
) -> None:
    schema = f"takes_away_{compatible_from}"
    sql = f"-- Takes away.\n-- compatible-from: {compatible_from}\nDROP TABLE next_table;"
    later = "-- Adds again.\nCREATE TABLE other_table (a int);"
    last = NEXT.version + 1
    more = (Migration(last, "9999_away", sql), Migration(last + 1, "10000_later", later))
    store = make_store(postgres, schema)
    await store.open()
    await store.close()
    await apply_next(postgres.url(), schema, *more)
    store = make_store(postgres, schema)
    if is_taken:
        await store.open()
        await store.close()
    else:
        with pytest.raises(SchemaTooNew, match=f"knows schemas up to {NEWEST}"):
            await store.open()
    connection = await asyncpg.connect(postgres.url())
    await connection.execute(f"DROP SCHEMA {schema} CASCADE")
    await connection.close()
