"""What every kind of store promises about records that parts of the gateway keep."""

import asyncio

import msgspec

from openclaw_a2a.ports import KeptRecord, Retention, Store

from .store_samples import Shelf, moment


def make_record(name: str = "one", *, kind: str = "handle", until: float = 60) -> KeptRecord:
    return KeptRecord(kind, name, b"\x00body of " + name.encode(), moment(until))


async def ids_of(store: Store, kind: str = "handle") -> list[str]:
    return [record.id for record in await store.read_records(kind)]


async def test_records_are_found_by_their_kind(store: Store) -> None:
    one, two = make_record(), make_record("two", kind="note")
    await store.put_record(one)
    await store.put_record(two)
    assert await store.read_records("handle") == [one]
    assert await store.read_records("note") == [two]
    assert await store.read_records("none") == []


async def test_the_record_put_last_is_at_the_end_also_after_a_restart(shelf: Shelf) -> None:
    store = shelf.store
    for name in ("one", "two", "three", "one"):
        await store.put_record(make_record(name))
    assert await ids_of(store) == ["two", "three", "one"]
    store = await shelf.reopen()
    assert await ids_of(store) == ["two", "three", "one"]
    await store.put_record(make_record("two"))
    store = await shelf.reopen()
    assert await ids_of(store) == ["three", "one", "two"]


async def test_a_record_takes_the_place_of_one_with_its_name(store: Store) -> None:
    await store.put_record(make_record())
    newer = msgspec.structs.replace(make_record(until=90), body=b"newer")
    await store.put_record(newer)
    assert await store.read_records("handle") == [newer]


async def test_a_dropped_record_is_gone_for_good(shelf: Shelf) -> None:
    await shelf.store.put_record(make_record())
    await shelf.store.put_record(make_record(kind="note"))
    assert await shelf.store.drop_record("handle", "one")
    assert not await shelf.store.drop_record("handle", "one")
    store = await shelf.reopen()
    assert await ids_of(store) == []
    assert await ids_of(store, "note") == ["one"]


async def test_writes_take_effect_in_the_order_of_the_calls(store: Store) -> None:
    record = make_record()
    writes = [
        store.put_record(record),
        store.drop_record("handle", "one"),
        store.put_record(make_record("two")),
        store.put_record(record),
    ]
    await asyncio.gather(*writes)
    assert await ids_of(store) == ["two", "one"]


async def test_records_past_their_time_are_forgotten_with_old_tasks(shelf: Shelf) -> None:
    for index in range(250):
        await shelf.store.put_record(make_record(str(index), until=index))
    whole = Retention(ended_before=moment(-9), keep_ended=9, messages_before=moment(-9))
    await shelf.store.forget(whole)
    assert len(await shelf.store.read_records("handle")) == 250
    await shelf.store.forget(msgspec.structs.replace(whole, records_before=moment(248)))
    store = await shelf.reopen()
    assert await ids_of(store) == ["248", "249"]
