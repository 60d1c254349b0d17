"""What every kind of store promises about records that parts of the gateway keep."""

import asyncio

import msgspec
from tests.contracts.store_samples import StoreHarness, make_record, next_version, time_at

from openclaw_a2a.ports import Retention, Store


async def ids_of(store: Store, kind: str = "handle") -> list[str]:
    return [record.id for record in await store.records.list_records(kind)]


async def test_records_are_found_by_their_kind(store: Store) -> None:
    one, two = make_record(), make_record("two", kind="note")
    await store.records.put_record(one)
    await store.records.put_record(two)
    assert await store.records.list_records("handle") == [one]
    assert await store.records.list_records("note") == [two]
    assert await store.records.list_records("none") == []


async def test_the_record_put_last_is_at_the_end_also_after_a_restart(
    harness: StoreHarness,
) -> None:
    store = harness.store
    for name in ("one", "two", "three", "one"):
        await store.records.put_record(make_record(name))
    assert await ids_of(store) == ["two", "three", "one"]
    store = await harness.reopen()
    assert await ids_of(store) == ["two", "three", "one"]
    await store.records.put_record(make_record("two"))
    store = await harness.reopen()
    assert await ids_of(store) == ["three", "one", "two"]


async def test_a_record_replaces_one_with_the_same_kind_and_id(store: Store) -> None:
    await store.records.put_record(make_record())
    newer = msgspec.structs.replace(make_record(until=90), body=b"newer")
    await store.records.put_record(newer)
    assert await store.records.list_records("handle") == [newer]


async def test_a_deleted_record_stays_deleted(harness: StoreHarness) -> None:
    await harness.store.records.put_record(make_record())
    await harness.store.records.put_record(make_record(kind="note"))
    assert await harness.store.records.delete_record("handle", "one")
    assert not await harness.store.records.delete_record("handle", "one")
    store = await harness.reopen()
    assert await ids_of(store) == []
    assert await ids_of(store, "note") == ["one"]


async def test_writes_take_effect_in_the_order_of_the_calls(store: Store) -> None:
    record = make_record()
    writes = [
        store.records.put_record(record),
        store.records.delete_record("handle", "one"),
        store.records.put_record(make_record("two")),
        store.records.put_record(record),
    ]
    await asyncio.gather(*writes)
    assert await ids_of(store) == ["two", "one"]


async def test_expired_records_are_purged_with_old_tasks(harness: StoreHarness) -> None:
    for index in range(250):
        await harness.store.records.put_record(make_record(str(index), until=index))
    whole = Retention(ended_before=time_at(-9), keep_ended=9, messages_before=time_at(-9))
    await harness.store.tasks.purge(whole)
    assert len(await harness.store.records.list_records("handle")) == 250
    await harness.store.tasks.purge(msgspec.structs.replace(whole, records_before=time_at(248)))
    store = await harness.reopen()
    assert await ids_of(store) == ["248", "249"]


async def test_one_record_is_read_by_its_kind_and_id(store: Store) -> None:
    one, other = make_record(), make_record(kind="note")
    await store.records.put_record(one)
    await store.records.put_record(other)
    assert await store.records.read_record("handle", "one") == one
    assert await store.records.read_record("note", "one") == other
    assert await store.records.read_record("handle", "two") is None
    await store.records.delete_record("handle", "one")
    assert await store.records.read_record("handle", "one") is None


async def test_versions_follow_one_another_also_after_a_restart(harness: StoreHarness) -> None:
    store, record = harness.store, make_record()
    for _ in range(3):
        assert await store.records.update_record(record)
        assert await store.records.read_record("handle", "one") == record
        store = await harness.reopen()
        assert await store.records.read_record("handle", "one") == record
        record = next_version(record, body=f"version {record.version + 1}".encode())
    assert await store.records.list_records("handle") == [
        await store.records.read_record("handle", "one")
    ]


async def test_only_the_next_version_is_stored(harness: StoreHarness) -> None:
    store, first = harness.store, make_record()
    second = next_version(first)
    third = next_version(second)
    assert not await store.records.update_record(second), "there is nothing to change"
    assert await store.records.update_record(first)
    assert not await store.records.update_record(msgspec.structs.replace(first, body=b"x")), (
        "not new"
    )
    assert not await store.records.update_record(third), "one is missing between"
    assert await store.records.update_record(second)
    assert not await store.records.update_record(msgspec.structs.replace(second, body=b"x")), (
        "too late"
    )
    assert await store.records.list_records("handle") == [second]
    store = await harness.reopen()
    assert await store.records.list_records("handle") == [second]


async def test_of_many_concurrent_updates_exactly_one_succeeds(harness: StoreHarness) -> None:
    store, record = harness.store, make_record()
    for _ in range(5):
        updates = [msgspec.structs.replace(record, body=str(n).encode()) for n in range(20)]
        done = await asyncio.gather(*[store.records.update_record(update) for update in updates])
        assert sum(done) == 1
        assert await store.records.read_record("handle", "one") == updates[done.index(True)]
        record = next_version(record)
    store = await harness.reopen()
    assert len(await store.records.list_records("handle")) == 1


async def test_an_updated_record_keeps_its_position(harness: StoreHarness) -> None:
    for name in ("one", "two", "three"):
        await harness.store.records.update_record(make_record(name))
    assert await harness.store.records.update_record(next_version(make_record("one")))
    assert await ids_of(harness.store) == ["one", "two", "three"]
    store = await harness.reopen()
    assert await ids_of(store) == ["one", "two", "three"]


async def test_put_replaces_any_version_of_a_record(harness: StoreHarness) -> None:
    store, record = harness.store, make_record()
    await store.records.put_record(msgspec.structs.replace(record, version=7))
    assert not await store.records.update_record(next_version(record))
    assert await store.records.update_record(msgspec.structs.replace(record, version=8))
    await store.records.put_record(record)
    store = await harness.reopen()
    assert await store.records.read_record("handle", "one") == record
    assert await store.records.update_record(next_version(record))


async def test_a_deleted_or_purged_record_can_be_created_again(store: Store) -> None:
    record = make_record()
    await store.records.update_record(record)
    await store.records.update_record(next_version(record))
    await store.records.delete_record("handle", "one")
    assert not await store.records.update_record(next_version(record))
    assert await store.records.update_record(record)
    over = Retention(time_at(-9), 9, time_at(-9), records_before=time_at(61))
    await store.tasks.purge(over)
    assert await store.records.update_record(record)
    assert await store.records.list_records("handle") == [record]


async def test_changes_take_effect_in_the_order_of_the_calls(store: Store) -> None:
    record = make_record()
    second = next_version(record)
    writes = [
        store.records.update_record(record),
        store.records.update_record(second),
        store.records.delete_record("handle", "one"),
        store.records.update_record(next_version(second)),
        store.records.put_record(second),
        store.records.update_record(next_version(second)),
    ]
    assert await asyncio.gather(*writes) == [True, True, True, False, None, True]
    assert await store.records.list_records("handle") == [next_version(second)]


async def test_a_later_expiry_applies_from_the_update_on(store: Store) -> None:
    record = make_record(until=10)
    await store.records.update_record(record)
    longer = msgspec.structs.replace(next_version(record), expires_at=time_at(90))
    await store.records.update_record(longer)
    await store.tasks.purge(Retention(time_at(-9), 9, time_at(-9), records_before=time_at(50)))
    assert await store.records.list_records("handle") == [longer]
