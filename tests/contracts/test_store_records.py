"""What every kind of store promises about records that parts of the gateway keep."""

import asyncio

import msgspec
from tests.contracts.store_samples import Shelf, make_record, moment, next_version

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


async def test_the_record_put_last_is_at_the_end_also_after_a_restart(shelf: Shelf) -> None:
    store = shelf.store
    for name in ("one", "two", "three", "one"):
        await store.records.put_record(make_record(name))
    assert await ids_of(store) == ["two", "three", "one"]
    store = await shelf.reopen()
    assert await ids_of(store) == ["two", "three", "one"]
    await store.records.put_record(make_record("two"))
    store = await shelf.reopen()
    assert await ids_of(store) == ["three", "one", "two"]


async def test_a_record_takes_the_place_of_one_with_its_name(store: Store) -> None:
    await store.records.put_record(make_record())
    newer = msgspec.structs.replace(make_record(until=90), body=b"newer")
    await store.records.put_record(newer)
    assert await store.records.list_records("handle") == [newer]


async def test_a_dropped_record_is_gone_for_good(shelf: Shelf) -> None:
    await shelf.store.records.put_record(make_record())
    await shelf.store.records.put_record(make_record(kind="note"))
    assert await shelf.store.records.delete_record("handle", "one")
    assert not await shelf.store.records.delete_record("handle", "one")
    store = await shelf.reopen()
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


async def test_records_past_their_time_are_forgotten_with_old_tasks(shelf: Shelf) -> None:
    for index in range(250):
        await shelf.store.records.put_record(make_record(str(index), until=index))
    whole = Retention(ended_before=moment(-9), keep_ended=9, messages_before=moment(-9))
    await shelf.store.tasks.purge(whole)
    assert len(await shelf.store.records.list_records("handle")) == 250
    await shelf.store.tasks.purge(msgspec.structs.replace(whole, records_before=moment(248)))
    store = await shelf.reopen()
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


async def test_versions_follow_one_another_also_after_a_restart(shelf: Shelf) -> None:
    store, record = shelf.store, make_record()
    for _ in range(3):
        assert await store.records.update_record(record)
        assert await store.records.read_record("handle", "one") == record
        store = await shelf.reopen()
        assert await store.records.read_record("handle", "one") == record
        record = next_version(record, body=f"version {record.version + 1}".encode())
    assert await store.records.list_records("handle") == [
        await store.records.read_record("handle", "one")
    ]


async def test_only_the_next_version_is_kept(shelf: Shelf) -> None:
    store, first = shelf.store, make_record()
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
    store = await shelf.reopen()
    assert await store.records.list_records("handle") == [second]


async def test_of_many_who_change_a_record_at_once_exactly_one_does(shelf: Shelf) -> None:
    store, record = shelf.store, make_record()
    for _ in range(5):
        wishes = [msgspec.structs.replace(record, body=str(n).encode()) for n in range(20)]
        done = await asyncio.gather(*[store.records.update_record(wish) for wish in wishes])
        assert sum(done) == 1
        assert await store.records.read_record("handle", "one") == wishes[done.index(True)]
        record = next_version(record)
    store = await shelf.reopen()
    assert len(await store.records.list_records("handle")) == 1


async def test_a_changed_record_stays_where_it_was_in_the_order(shelf: Shelf) -> None:
    for name in ("one", "two", "three"):
        await shelf.store.records.update_record(make_record(name))
    assert await shelf.store.records.update_record(next_version(make_record("one")))
    assert await ids_of(shelf.store) == ["one", "two", "three"]
    store = await shelf.reopen()
    assert await ids_of(store) == ["one", "two", "three"]


async def test_a_record_that_is_put_replaces_whatever_version_is_there(shelf: Shelf) -> None:
    store, record = shelf.store, make_record()
    await store.records.put_record(msgspec.structs.replace(record, version=7))
    assert not await store.records.update_record(next_version(record))
    assert await store.records.update_record(msgspec.structs.replace(record, version=8))
    await store.records.put_record(record)
    store = await shelf.reopen()
    assert await store.records.read_record("handle", "one") == record
    assert await store.records.update_record(next_version(record))


async def test_a_dropped_or_forgotten_record_may_be_new_again(store: Store) -> None:
    record = make_record()
    await store.records.update_record(record)
    await store.records.update_record(next_version(record))
    await store.records.delete_record("handle", "one")
    assert not await store.records.update_record(next_version(record))
    assert await store.records.update_record(record)
    over = Retention(moment(-9), 9, moment(-9), records_before=moment(61))
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


async def test_a_longer_time_counts_from_the_change_on(store: Store) -> None:
    record = make_record(until=10)
    await store.records.update_record(record)
    longer = msgspec.structs.replace(next_version(record), expires_at=moment(90))
    await store.records.update_record(longer)
    await store.tasks.purge(Retention(moment(-9), 9, moment(-9), records_before=moment(50)))
    assert await store.records.list_records("handle") == [longer]
