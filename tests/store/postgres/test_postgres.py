"""The PostgreSQL store: its statements, its schema, its plans, and what it says when it cannot."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import asyncpg
import msgspec
import pytest
from tests.contracts.store_samples import (
    ALICE,
    Draft,
    direct,
    make_delivery,
    make_message,
    make_record,
    make_run,
)
from tests.ports import free_port
from tests.postgres_server import PASSWORD, PostgresServer
from tests.store.postgres.conftest import make_store

from openclaw_a2a.model.errors import (
    SchemaTooNew,
    SettingsInvalid,
    StoreUnavailable,
)
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.ports import Accepted, Record, Submission, TaskSearch
from openclaw_a2a.store import create_store, postgres_address
from openclaw_a2a.store.postgres import migrate, search
from openclaw_a2a.store.postgres.address import Address
from openclaw_a2a.store.postgres.batch import MAX_BYTES
from openclaw_a2a.store.postgres.message_lookup import MessageLookup
from openclaw_a2a.store.postgres.store import PostgresStore
from openclaw_a2a.store.sqlite.migrate import Migration, load_migrations

PACKAGE = "openclaw_a2a.store.postgres"


@asynccontextmanager
async def connected(server: PostgresServer, schema: str = "public") -> AsyncIterator[Any]:
    connection = await asyncpg.connect(server.url())
    try:
        await connection.execute(f'SET search_path TO "{schema}"')
        yield connection
    finally:
        await connection.close()


def count_batches(store: PostgresStore) -> list[str]:
    """The statements that the writer sends from now on."""
    sent: list[str] = []
    connection = store.link.connection
    connection.add_query_logger(lambda query: sent.append(query.query))
    return sent


async def test_a_group_of_writes_is_one_statement(store: PostgresStore) -> None:
    await store.tasks.submit(Draft("t-0").submission())  # the driver asks about types once
    sent = count_batches(store)
    drafts = [Draft(f"t-{number}") for number in range(1, 50)]
    writes: list[asyncio.Future[Any]] = []
    for draft in drafts:
        writes.append(store.tasks.submit(draft.submission()))
        writes.append(store.tasks.commit(draft.status(TaskState.WORKING, at=1)))
        writes.append(store.tasks.commit(draft.ended(at=2)))
    await asyncio.gather(*writes)
    assert len(sent) == 1


async def test_a_refused_write_costs_its_group_a_second_look_and_nothing_else(
    store: PostgresStore,
) -> None:
    one, two = Draft("t-1"), Draft("t-2")
    await store.tasks.submit(one.submission())
    sent = count_batches(store)
    outcomes = await asyncio.gather(
        store.tasks.submit(two.submission()),
        store.tasks.commit(msgspec.structs.replace(one.status(TaskState.WORKING), fence=9)),
        store.records.put_record(make_record()),
        return_exceptions=True,
    )
    assert [type(one).__name__ for one in outcomes] == ["Accepted", "LeaseLost", "NoneType"]
    assert 2 < len(sent) < 12
    assert await store.tasks.read_task(ALICE, TaskId("t-2")) is not None


async def test_message_ids_that_are_asked_for_at_once_share_a_query(store: PostgresStore) -> None:
    await store.tasks.submit(direct("t-1"))
    asked: list[tuple[Any, ...]] = []
    fetch = store.fetch

    async def count(statement: str, *values: Any) -> Any:
        asked.append(values)
        return await fetch(statement, *values)

    lookup = MessageLookup(count)
    known = (ALICE.principal, ALICE.account, "m-t-1")
    keys = [(ALICE.principal, ALICE.account, f"new-{number}") for number in range(40)]
    first = asyncio.create_task(lookup.find(known))
    await asyncio.sleep(0)
    found = await asyncio.gather(*(lookup.find(key) for key in [*keys, known]))
    assert found[:-1] == [None] * 40
    assert found[-1] is not None and found[-1][4] == "t-1"
    assert await first is not None
    assert len(asked) == 2


async def test_a_lookup_whose_first_caller_leaves_is_made_for_the_others(
    store: PostgresStore,
) -> None:
    await store.tasks.submit(direct("t-1"))
    lookup = MessageLookup(store.fetch)
    known = (ALICE.principal, ALICE.account, "m-t-1")
    running = [asyncio.create_task(lookup.find(known)) for _ in range(5)]
    await asyncio.sleep(0)
    running[0].cancel()
    rows = await asyncio.gather(*running[1:])
    assert [row is not None and row[4] for row in rows] == ["t-1"] * 4
    strange = (ALICE.principal, ALICE.account, "with\0zero")
    rows = await asyncio.gather(lookup.find(known), lookup.find(strange), lookup.find(known))
    assert [row is not None for row in rows] == [True, False, True]


async def test_a_batch_ends_when_it_holds_enough_bytes(store: PostgresStore) -> None:
    await store.tasks.submit(Draft("t-0").submission())
    sent: list[int] = []
    store.link.connection.add_query_logger(lambda query: sent.append(size_of(query.args)))
    largest = 2_000_000
    texts = [f"{number:02}" + "x" * (largest - 2) for number in range(48)]
    tracemalloc.start()
    try:
        writes = [store.tasks.submit(with_text(f"t-m{text[:2]}", text)) for text in texts[:24]] + [
            store.records.put_record(large_record(text)) for text in texts[24:]
        ]
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        await asyncio.gather(*writes)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(sent) > 48 * largest
    assert max(sent) < MAX_BYTES + 2 * largest
    # Several times (as rows, as parameters, as what is sent), but never the 96 MB that wait.
    assert peak - before < 8 * MAX_BYTES < 48 * largest
    for text in texts[24:]:
        record = await store.records.read_record("handle", text[:2])
        assert record is not None and record.body == text.encode()


def size_of(values: object) -> int:
    """The bytes of parameters, which are texts, bytes and lists of them."""
    if isinstance(values, list | tuple):
        return sum(size_of(one) for one in cast("list[object]", values))
    return len(values) if isinstance(values, str | bytes) else 0


def large_record(text: str) -> Record:
    return msgspec.structs.replace(make_record(text[:2]), body=text.encode())


def with_text(name: str, text: str) -> Submission:
    """A message with a text."""
    run = msgspec.structs.replace(make_run(name), message=make_message(f"m-{name}", text))
    return msgspec.structs.replace(direct(name), run=run)


UNFIT: dict[str, Callable[[PostgresStore], Awaitable[Any]]] = {
    "zero-character": lambda store: store.records.put_record(make_record("with\0zero")),
    "too-long-for-an-index": lambda store: store.records.put_record(
        make_record("".join(map(chr, range(0x4E00, 0x6E00))))
    ),
    "lone-surrogate": lambda store: store.tasks.submit(with_text("t-9", "\ud800")),
    "on-whole-tables": lambda store: store.tasks.delete_task(ALICE, TaskId("with\0zero")),
}


@pytest.mark.parametrize("kind", UNFIT)
async def test_what_postgresql_does_not_take_fails_alone(store: PostgresStore, kind: str) -> None:
    outcomes = await asyncio.gather(
        store.tasks.submit(direct("t-1")),
        UNFIT[kind](store),
        store.tasks.submit(direct("t-2")),
        store.tasks.submit(direct("t-3")),
        return_exceptions=True,
    )
    names = [type(one).__name__ for one in outcomes]
    assert names == ["Accepted", "StoreUnavailable", "Accepted", "Accepted"]
    tickets = [one.ticket for one in outcomes if isinstance(one, Accepted)]
    assert tickets == sorted(tickets)
    await store.check()


async def test_nothing_is_found_under_a_text_that_no_row_can_have(store: PostgresStore) -> None:
    assert await store.tasks.read_task(ALICE, TaskId("with\0zero")) is None
    assert await store.records.read_record("handle", "with\0zero") is None


async def test_what_a_receiver_answered_is_kept_whatever_it_was(store: PostgresStore) -> None:
    await store.tasks.submit(Draft("t-1").submission())
    row = make_delivery("t-1")
    await store.deliveries.put_delivery(row, within=3)
    told = msgspec.structs.replace(row, reason="HTTP 500: \0")
    assert await store.deliveries.update_delivery(told)
    stored = await store.deliveries.read_delivery(None, row.id)
    assert stored is not None and stored.reason == "HTTP 500: \ufffd"


# -------------------------------------------------------------------- schema


async def test_many_that_start_at_once_migrate_once(postgres: PostgresServer) -> None:
    schema = "started_at_once"
    steps: list[Migration] = []

    async def start() -> None:
        async with connected(postgres, schema) as connection:
            await migrate.upgrade(connection, schema, on_step=steps.append)

    await asyncio.gather(*[start() for _ in range(5)])
    assert [step.version for step in steps] == [one.version for one in load_migrations(PACKAGE)]


async def test_a_failed_migration_leaves_the_version_before(postgres: PostgresServer) -> None:
    schema = "half_migrated"
    known = load_migrations(PACKAGE)
    broken = Migration(known[-1].version + 1, "9999_broken", "CREATE TABLE extra (a int); NONSENSE")
    async with connected(postgres, schema) as connection:
        with pytest.raises(asyncpg.PostgresSyntaxError):
            await migrate.upgrade(connection, schema, migrations=[*known, broken])
        assert await migrate.pending_database_migrations(connection) == []
        assert await connection.fetchval("SELECT to_regclass('extra')") is None


async def test_a_newer_schema_is_refused(postgres: PostgresServer, schema: str) -> None:
    store = make_store(postgres, schema)
    await store.open()
    await store.close()
    async with connected(postgres, schema) as connection:
        await connection.execute("INSERT INTO schema_version VALUES (999, '9.9')")
        try:
            with pytest.raises(SchemaTooNew, match=r"schema 999, made by openclaw-a2a 9\.9"):
                await make_store(postgres, schema).open()
            with pytest.raises(SchemaTooNew):
                await migrate.plan_database_upgrade(Address(postgres.url(), schema=schema))
        finally:
            await connection.execute("DELETE FROM schema_version WHERE version = 999")


async def test_a_plan_names_the_steps_and_changes_nothing(postgres: PostgresServer) -> None:
    address = Address(postgres.url(), schema="only_planned")
    steps = await migrate.plan_database_upgrade(address)
    assert [step[:4] for step in steps] == [f"{one.version:04}" for one in load_migrations(PACKAGE)]
    async with connected(postgres) as connection:
        query = "SELECT true FROM pg_namespace WHERE nspname = 'only_planned'"
        assert await connection.fetchval(query) is None


async def test_tables_of_another_program_are_left_alone(postgres: PostgresServer) -> None:
    async with connected(postgres) as connection:
        await connection.execute("CREATE SCHEMA foreign_tables; CREATE TABLE foreign_tables.x ()")
    with pytest.raises(StoreUnavailable, match="tables of another program"):
        await make_store(postgres, "foreign_tables").open()


# -------------------------------------------------------------------- what it says


async def refusal(url: str, password: str = "") -> str:
    store = create_store("postgres", path=None, url=url, password=password)
    with pytest.raises(StoreUnavailable) as refused:
        await store.open()
    return refused.value.message


async def test_every_reason_not_to_connect_has_its_sentence(postgres: PostgresServer) -> None:
    wrong = await refusal(postgres.url(user="gateway"), "wrong password")
    assert "refused the user gateway" in wrong and "store.password" in wrong
    assert "wrong password" not in wrong
    missing = await refusal(postgres.url(database="nothing"))
    assert "there is no database 'nothing'" in missing and "createdb nothing" in missing
    nobody = await refusal(f"postgres://me@127.0.0.1:{free_port()}/x")
    assert "cannot be reached" in nobody and "store.url" in nobody
    plain = await refusal(f"{postgres.url()}?sslmode=require")
    assert "cannot" in plain and "127.0.0.1" in plain


async def test_a_password_is_used_and_never_shown(postgres: PostgresServer) -> None:
    address = Address(postgres.url(user="gateway"), PASSWORD, "of_the_gateway")
    store = PostgresStore(address)
    await store.open()
    await store.check()
    await store.close()
    assert PASSWORD not in repr(address)
    assert address.shown == f"{postgres.url(user='gateway')} (schema of_the_gateway)"
    secret = Address("postgres://me:hidden@db.example/x?sslmode=require")
    assert secret.shown == "postgres://me@db.example/x"


@pytest.mark.parametrize(
    "password", ["hid/den", "hid#den", "hid?den", "h[id", "1@2/hid", "h\u2100id"]
)
def test_an_address_whose_password_cannot_be_told_apart_is_refused_and_not_shown(
    password: str,
) -> None:
    with pytest.raises(SettingsInvalid, match="%2F") as refused:
        postgres_address(f"postgres://me:{password}@db.example/x")
    assert "hid" not in refused.value.message


@pytest.mark.parametrize(
    "place", ["db.example", "db.example:5433", "[::1]:5433", "a:1,b:2", "a,b", ""]
)
def test_addresses_with_ports_and_several_hosts_are_shown(place: str) -> None:
    address = postgres_address(f"postgres://me:hid%2Fden@{place}/x?user=me@place")
    assert address.shown == f"postgres://me@{place}/x"


async def test_what_is_acknowledged_is_durable_whatever_the_server_is_set_to(
    postgres: PostgresServer, schema: str
) -> None:
    url = f"{postgres.url()}?synchronous_commit=off&idle_session_timeout=60000"
    store = PostgresStore(Address(url, schema=schema))
    await store.open()
    connection = store.link.connection
    assert await connection.fetchval("SHOW synchronous_commit") == "on"
    assert await connection.fetchval("SHOW idle_session_timeout") == "0"
    await store.close()


async def test_a_database_that_cannot_hold_every_text_is_refused(postgres: PostgresServer) -> None:
    async with connected(postgres) as connection:
        await connection.execute(
            "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'"
        )
    refused = await refusal(postgres.url(database="latin"))
    assert "LATIN1" in refused and "--encoding=UTF8" in refused


def test_an_address_of_another_kind_is_refused() -> None:
    with pytest.raises(SettingsInvalid, match="postgres://"):
        postgres_address("mysql://me@db.example/x")


async def test_the_connections_are_bounded(postgres: PostgresServer, schema: str) -> None:
    store = make_store(postgres, schema, connections=3)
    await store.open()
    await store.tasks.submit(Draft("t-1").submission())
    reads = [store.tasks.read_task(ALICE, TaskId("t-1")) for _ in range(200)]
    assert all(await asyncio.gather(*reads))
    async with connected(postgres) as connection:
        name = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'openclaw-a2a%'"
        mine = f"{name} AND query NOT LIKE '%pg_stat_activity%' AND pid = ANY ($1)"
        pids = [store.link.connection.get_server_pid()]
        pids += [one._con.get_server_pid() for one in store._pool._holders if one._con is not None]
        assert len(pids) <= 3
        assert await connection.fetchval(mine, pids) == len(pids)
    await store.close()


async def test_a_search_leaves_the_only_connection_to_other_reads(
    postgres: PostgresServer, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_FIRST_SLICE", 1)
    monkeypatch.setattr(search, "_LARGEST_SLICE", 1)
    store = make_store(postgres, schema, connections=2)
    await store.open()
    for number in range(10):
        await store.tasks.submit(Draft(f"t-{number}").submission())
    done: list[str] = []

    async def note(name: str, work: Awaitable[Any]) -> None:
        await work
        done.append(name)

    await asyncio.gather(
        note("search", store.search_tasks(TaskSearch("no such text", 50))),
        *[note("read", store.tasks.read_task(ALICE, TaskId("t-1"))) for _ in range(5)],
    )
    assert done == ["read"] * 5 + ["search"]
    await store.close()


async def test_a_damaged_body_ends_no_search(
    store: PostgresStore, postgres: PostgresServer, schema: str
) -> None:
    for name in ("t-1", "t-2"):
        await store.tasks.submit(Draft(name).submission())
    async with connected(postgres, schema) as connection:
        await connection.execute(
            "UPDATE snapshot SET body = '\\xff00fe' WHERE task = (SELECT min(number) FROM task)"
        )
    found = await store.search_tasks(TaskSearch("SUBMITTED", 50))
    assert [str(one.head.id) for _, one in found.found] == ["t-2"]
