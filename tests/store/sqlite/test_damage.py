"""A damaged row of a SQLite store is reported and left out; its neighbours are read and purged."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.contracts.store_samples import (
    ALICE,
    Draft,
    direct,
    make_delivery,
    make_lines,
    make_record,
    purge_all,
    put_finished,
    time_at,
)

from openclaw_a2a.model.delivery import DeliveryId, DeliveryState
from openclaw_a2a.model.errors import CorruptRecord
from openclaw_a2a.model.ids import OwnerId, TaskId
from openclaw_a2a.ports import LogAppend, Retention, TaskQuery
from openclaw_a2a.store.sqlite.store import SqliteStore

NO_TEXT = "CAST(x'ff' AS TEXT)"
NO_TIME = "9000000000000000000"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "state.db")
    await store.open()
    yield store
    await store.close()


async def damage(store: SqliteStore, statement: str) -> None:
    """As a process before this one left it: caches of the store know nothing of it."""
    await store.close()
    with closing(sqlite3.connect(store.path)) as connection:
        assert connection.execute(statement).rowcount == 1
        connection.commit()
    await store.open()


@pytest.mark.parametrize("change", ["state = 9", f"next_at = {NO_TIME}", f"reason = {NO_TEXT}"])
async def test_a_damaged_delivery_does_not_hide_the_others(store: SqliteStore, change: str) -> None:
    await store.tasks.submit(Draft().submission())
    for name in ("one", "two"):
        await store.deliveries.put_delivery(make_delivery(name=name), within=9)
    first, second = [
        row.id for row in await store.deliveries.list_task_deliveries(None, TaskId("t-1"))
    ]
    await damage(store, f"UPDATE delivery SET {change} WHERE id = '{first}'")

    listed = await store.deliveries.list_task_deliveries(None, TaskId("t-1"))
    assert second in [row.id for row in listed]
    page = await store.deliveries.list_unfinished_deliveries(after=DeliveryId(""), limit=10)
    assert second in [row.id for row in page.deliveries]
    idle = await store.deliveries.list_deliveries(
        DeliveryState.IDLE, after=DeliveryId(""), limit=10
    )
    assert second in [row.id for row in idle]


@pytest.mark.parametrize("change", [f"expires_at = {NO_TIME}", f"id = {NO_TEXT}"])
async def test_a_damaged_record_does_not_hide_the_others(store: SqliteStore, change: str) -> None:
    for name in ("one", "two"):
        await store.records.put_record(make_record(name))
    await damage(store, f"UPDATE record SET {change} WHERE id = 'one'")
    assert "two" in [record.id for record in await store.records.list_records("handle")]
    assert await store.records.read_record("handle", "one") is None


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM log_line WHERE log = (SELECT number FROM log WHERE id = 'one')",
        f"UPDATE log SET updated_at = {NO_TIME} WHERE id = 'one'",
        f"UPDATE log SET id = {NO_TEXT} WHERE id = 'one'",
    ],
)
async def test_a_damaged_log_does_not_hide_the_others(store: SqliteStore, statement: str) -> None:
    for name in ("one", "two"):
        await store.logs.append_log(LogAppend("objective", name, make_lines(0, 1), after=0))
    await damage(store, statement)
    open_logs = await store.logs.list_open_logs("objective", after="", limit=10)
    assert "two" in [log.id for log in open_logs]
    heads = await store.logs.list_log_heads("objective", after="", limit=10)
    assert "two" in [head.id for head in heads]


@pytest.mark.parametrize(
    "change",
    [f"status_at = {NO_TIME}", "state = 77", "binding = x'00'", f"principal = {NO_TEXT}"],
)
async def test_a_purge_survives_a_damaged_task(store: SqliteStore, change: str) -> None:
    for number in range(3):
        await put_finished(store, f"t-{number}", at=number)
    await damage(store, f"UPDATE task SET {change} WHERE id = 't-1'")
    everything = Retention(
        ended_before=time_at(60), keep_ended=0, messages_before=time_at(60), limit=2
    )
    await purge_all(store, everything)
    assert (await store.tasks.list_tasks(TaskQuery(ALICE, 10))).tasks == ()
    assert await store.tasks.read_task(ALICE, TaskId("t-0")) is None
    assert await store.tasks.read_task(ALICE, TaskId("t-2")) is None


async def test_a_page_that_holds_only_damaged_tasks_is_not_the_last(store: SqliteStore) -> None:
    for number in range(4):
        await put_finished(store, f"t-{number}", at=number)
    for number in (2, 3):
        await damage(
            store,
            "UPDATE snapshot SET body = x'00' WHERE task = "
            f"(SELECT number FROM task WHERE id = 't-{number}')",
        )
    page = await store.tasks.list_tasks(TaskQuery(ALICE, 1))
    assert [task.head.id for task in page.tasks] == ["t-1"]
    assert page.has_more
    for number in (2, 3):
        with pytest.raises(CorruptRecord):
            await store.tasks.read_task(ALICE, TaskId(f"t-{number}"))


async def test_a_missing_event_is_damage_and_not_a_shorter_task(store: SqliteStore) -> None:
    draft = Draft()
    await store.tasks.submit(draft.submission())
    for text in "abc":
        await store.tasks.commit(draft.chunk(text))
    await damage(store, "DELETE FROM event WHERE sequence = 2")
    with pytest.raises(CorruptRecord):
        await store.tasks.read_task(ALICE, TaskId("t-1"))
    before = await store.tasks.read_events(None, TaskId("t-1"), after=0, limit=10)
    assert [entry.sequence for entry in before] == [1]
    with pytest.raises(CorruptRecord):
        await store.tasks.read_events(None, TaskId("t-1"), after=1, limit=10)


RUN_CHANGES = ["input = x'7b'", f"owner = {NO_TEXT}"]


@pytest.mark.parametrize("change", RUN_CHANGES)
async def test_a_damaged_run_does_not_keep_the_others_from_being_claimed(
    store: SqliteStore, change: str
) -> None:
    for name in ("one", "two"):
        await store.tasks.submit(direct(name))
    await damage(store, f"UPDATE run SET {change} WHERE ticket = 1")
    claimed = await store.tasks.claim_runs(OwnerId("new"))
    assert claimed[-1].message.message_id == direct("two").run.message.message_id


async def test_a_damaged_message_key_does_not_keep_the_store_from_opening(
    store: SqliteStore,
) -> None:
    for name in ("one", "two"):
        await store.tasks.submit(direct(name))
    await damage(store, f"UPDATE message SET message_id = {NO_TEXT} WHERE number = 1")
    run = direct("two").run
    assert await store.tasks.find_duplicate(ALICE, run.message.message_id) is not None
