"""What every kind of store promises about a record that comes with a message."""

import asyncio

import msgspec
import pytest
from tests.contracts.store_samples import (
    ALICE,
    Draft,
    Shelf,
    direct,
    make_record,
    moment,
    next_version,
    put_ended,
)

from openclaw_a2a.model.delivery import Delivery, delivery_id
from openclaw_a2a.model.errors import AlreadyExists, MessageIdConflict
from openclaw_a2a.model.ids import OwnerId, RunId, TaskId
from openclaw_a2a.ports import Accepted, Duplicate, Record, Retention, Store, Submission


def with_record(submission: Submission, name: str = "call-1") -> Submission:
    return msgspec.structs.replace(submission, record=make_record(name, kind="call"))


def make_delivery(task: str) -> Delivery:
    return Delivery(
        id=delivery_id("call", TaskId(task), "one"),
        kind="call",
        task_id=TaskId(task),
        body=b"body",
        cursor=0,
        next_at=moment(),
        created_at=moment(),
        updated_at=moment(),
    )


async def kept(store: Store) -> list[Record]:
    return await store.records.list_records("call")


async def running(store: Store) -> set[RunId]:
    runs = await store.tasks.claim_runs(OwnerId("next"), lease_until=moment(99), expired_at=None)
    return {run.id for run in runs}


async def test_a_record_is_there_with_its_message(shelf: Shelf) -> None:
    whole = msgspec.structs.replace(
        with_record(Draft("t-1").submission(), "one"), delivery=make_delivery("t-1")
    )
    later = with_record(direct("t-2"), "two")
    assert isinstance(await shelf.store.tasks.submit(whole), Accepted)
    assert isinstance(await shelf.store.tasks.submit(later), Accepted)
    assert await kept(shelf.store) == [whole.record, later.record]
    store = await shelf.reopen()
    assert await kept(store) == [whole.record, later.record]
    assert await store.deliveries.list_task_deliveries(TaskId("t-1")) == [make_delivery("t-1")]
    assert await running(store) == {"run-t-1", "run-t-2"}


async def test_a_record_of_a_message_is_changed_like_any_other(shelf: Shelf) -> None:
    submission = with_record(Draft().submission())
    assert submission.record is not None
    newer = next_version(submission.record)
    taken = asyncio.gather(
        shelf.store.tasks.submit(submission),
        shelf.store.records.update_record(submission.record),
        shelf.store.records.update_record(newer),
        shelf.store.records.update_record(newer),
    )
    assert (await taken)[1:] == [False, True, False]
    store = await shelf.reopen()
    assert await kept(store) == [newer]


async def test_the_version_of_a_messages_record_is_kept_as_given(shelf: Shelf) -> None:
    record = msgspec.structs.replace(make_record(kind="call"), version=4)
    await shelf.store.tasks.submit(msgspec.structs.replace(direct("t-1"), record=record))
    store = await shelf.reopen()
    assert await store.records.update_record(next_version(record))


async def test_a_message_whose_record_is_there_already_is_refused_as_a_whole(shelf: Shelf) -> None:
    store = shelf.store
    there = msgspec.structs.replace(make_record("call-1", kind="call"), body=b"there", version=3)
    await store.records.put_record(there)
    refused = msgspec.structs.replace(
        with_record(Draft("t-1").submission()), delivery=make_delivery("t-1")
    )
    for submission in (refused, with_record(direct("t-2"))):
        with pytest.raises(AlreadyExists, match=r"call record 'call-1' is stored already"):
            await store.tasks.submit(submission)
    for _ in range(2):
        assert await kept(store) == [there]
        assert await store.tasks.read_task(ALICE, TaskId("t-1")) is None
        assert await store.deliveries.list_task_deliveries(TaskId("t-1")) == []
        assert await store.tasks.find_duplicate(ALICE, refused.run.message.message_id) is None
        assert await running(store) == set()
        store = await shelf.reopen()
    await store.records.delete_record("call", "call-1")
    assert isinstance(await store.tasks.submit(refused), Accepted)
    assert await kept(store) == [refused.record]


async def test_of_many_messages_with_the_same_record_exactly_one_is_taken(shelf: Shelf) -> None:
    drafts = [Draft(f"t-{number}") for number in range(20)]
    outcomes = await asyncio.gather(
        *[shelf.store.tasks.submit(with_record(draft.submission())) for draft in drafts],
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [Accepted, *[AlreadyExists] * 19]
    store = await shelf.reopen()
    assert await running(store) == {drafts[0].run.id}


async def test_a_record_of_another_kind_is_no_hindrance(store: Store) -> None:
    await store.records.put_record(make_record("call-1", kind="note"))
    assert isinstance(await store.tasks.submit(with_record(direct("t-1"))), Accepted)


async def test_a_message_that_is_known_leaves_records_alone(shelf: Shelf) -> None:
    store, submission = shelf.store, with_record(Draft().submission())
    assert submission.record is not None
    await store.tasks.submit(submission)
    newer = next_version(submission.record)
    await store.records.update_record(newer)
    known = Duplicate(submission.run.id, submission.run.task_id, None)
    assert await store.tasks.submit(submission) == known
    assert await store.tasks.submit(with_record(Draft().submission(), "call-2")) == known
    assert await kept(store) == [newer]
    await store.records.delete_record("call", "call-1")
    store = await shelf.reopen()
    assert await store.tasks.submit(submission) == known
    assert await kept(store) == []


async def test_repetitions_of_a_message_at_the_same_moment_keep_one_record(store: Store) -> None:
    submission = with_record(Draft().submission())
    outcomes = await asyncio.gather(*[store.tasks.submit(submission) for _ in range(5)])
    assert [type(outcome) for outcome in outcomes] == [Accepted, *[Duplicate] * 4]
    assert await kept(store) == [submission.record]


async def test_a_message_that_is_refused_leaves_no_record(shelf: Shelf) -> None:
    store, draft = shelf.store, Draft()
    await store.tasks.submit(draft.submission())
    conflicting = msgspec.structs.replace(draft.submission(), body_hash=b"another")
    with pytest.raises(MessageIdConflict):
        await store.tasks.submit(with_record(conflicting))
    moved_on = msgspec.structs.replace(direct("t-2"), commit=Draft("t-1").created())
    with pytest.raises(AlreadyExists, match="stored already"):
        await store.tasks.submit(with_record(moved_on))
    assert await kept(store) == []
    assert await kept(await shelf.reopen()) == []


async def test_a_record_outlives_its_task_until_its_own_time_is_over(shelf: Shelf) -> None:
    store = shelf.store
    await put_ended(store, "t-1", at=1)
    again = msgspec.structs.replace(direct("t-2"), record=make_record(kind="call", until=60))
    await store.tasks.submit(again)
    over = Retention(moment(50), 0, moment(50), records_before=moment(60))
    await store.tasks.purge(over)
    assert await kept(store) == [again.record]
    await store.tasks.purge(msgspec.structs.replace(over, records_before=moment(61)))
    assert await kept(await shelf.reopen()) == []
