"""What every kind of store promises about a record that comes with a message."""

import asyncio

import msgspec
import pytest
from tests.contracts.store_samples import (
    ALICE,
    Draft,
    StoreHarness,
    direct,
    make_record,
    next_version,
    put_finished,
    time_at,
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
        next_at=time_at(),
        created_at=time_at(),
        updated_at=time_at(),
    )


async def list_calls(store: Store) -> list[Record]:
    return await store.records.list_records("call")


async def running(store: Store) -> set[RunId]:
    runs = await store.tasks.claim_runs(OwnerId("next"))
    return {run.id for run in runs}


async def test_a_record_is_stored_with_its_submission(harness: StoreHarness) -> None:
    whole = msgspec.structs.replace(
        with_record(Draft("t-1").submission(), "one"), delivery=make_delivery("t-1")
    )
    later = with_record(direct("t-2"), "two")
    assert isinstance(await harness.store.tasks.submit(whole), Accepted)
    assert isinstance(await harness.store.tasks.submit(later), Accepted)
    assert await list_calls(harness.store) == [whole.record, later.record]
    store = await harness.reopen()
    assert await list_calls(store) == [whole.record, later.record]
    assert await store.deliveries.list_task_deliveries(None, TaskId("t-1")) == [
        make_delivery("t-1")
    ]
    assert await running(store) == {"run-t-1", "run-t-2"}


async def test_a_record_of_a_submission_is_updated_like_any_other(harness: StoreHarness) -> None:
    submission = with_record(Draft().submission())
    assert submission.record is not None
    newer = next_version(submission.record)
    taken = asyncio.gather(
        harness.store.tasks.submit(submission),
        harness.store.records.update_record(submission.record),
        harness.store.records.update_record(newer),
        harness.store.records.update_record(newer),
    )
    assert (await taken)[1:] == [False, True, False]
    store = await harness.reopen()
    assert await list_calls(store) == [newer]


async def test_the_version_of_a_submitted_record_is_stored_as_given(harness: StoreHarness) -> None:
    record = msgspec.structs.replace(make_record(kind="call"), version=4)
    await harness.store.tasks.submit(msgspec.structs.replace(direct("t-1"), record=record))
    store = await harness.reopen()
    assert await store.records.update_record(next_version(record))


async def test_a_submission_whose_record_exists_is_refused_as_a_whole(
    harness: StoreHarness,
) -> None:
    store = harness.store
    there = msgspec.structs.replace(make_record("call-1", kind="call"), body=b"there", version=3)
    await store.records.put_record(there)
    refused = msgspec.structs.replace(
        with_record(Draft("t-1").submission()), delivery=make_delivery("t-1")
    )
    for submission in (refused, with_record(direct("t-2"))):
        with pytest.raises(AlreadyExists, match=r"call record 'call-1' is stored already"):
            await store.tasks.submit(submission)
    for _ in range(2):
        assert await list_calls(store) == [there]
        assert await store.tasks.read_task(ALICE, TaskId("t-1")) is None
        assert await store.deliveries.list_task_deliveries(None, TaskId("t-1")) == []
        assert await store.tasks.find_duplicate(ALICE, refused.run.message.message_id) is None
        assert await running(store) == set()
        store = await harness.reopen()
    await store.records.delete_record("call", "call-1")
    assert isinstance(await store.tasks.submit(refused), Accepted)
    assert await list_calls(store) == [refused.record]


async def test_of_many_submissions_with_one_record_exactly_one_is_accepted(
    harness: StoreHarness,
) -> None:
    drafts = [Draft(f"t-{number}") for number in range(20)]
    outcomes = await asyncio.gather(
        *[harness.store.tasks.submit(with_record(draft.submission())) for draft in drafts],
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [Accepted, *[AlreadyExists] * 19]
    store = await harness.reopen()
    assert await running(store) == {drafts[0].run.id}


async def test_a_record_of_another_kind_is_no_conflict(store: Store) -> None:
    await store.records.put_record(make_record("call-1", kind="note"))
    assert isinstance(await store.tasks.submit(with_record(direct("t-1"))), Accepted)


async def test_a_duplicate_submission_changes_no_record(harness: StoreHarness) -> None:
    store, submission = harness.store, with_record(Draft().submission())
    assert submission.record is not None
    await store.tasks.submit(submission)
    newer = next_version(submission.record)
    await store.records.update_record(newer)
    known = Duplicate(submission.run.id, submission.run.task_id, None)
    assert await store.tasks.submit(submission) == known
    assert await store.tasks.submit(with_record(Draft().submission(), "call-2")) == known
    assert await list_calls(store) == [newer]
    await store.records.delete_record("call", "call-1")
    store = await harness.reopen()
    assert await store.tasks.submit(submission) == known
    assert await list_calls(store) == []


async def test_concurrent_duplicates_store_one_record(store: Store) -> None:
    submission = with_record(Draft().submission())
    outcomes = await asyncio.gather(*[store.tasks.submit(submission) for _ in range(5)])
    assert [type(outcome) for outcome in outcomes] == [Accepted, *[Duplicate] * 4]
    assert await list_calls(store) == [submission.record]


async def test_a_refused_submission_leaves_no_record(harness: StoreHarness) -> None:
    store, draft = harness.store, Draft()
    await store.tasks.submit(draft.submission())
    conflicting = msgspec.structs.replace(draft.submission(), body_hash=b"another")
    with pytest.raises(MessageIdConflict):
        await store.tasks.submit(with_record(conflicting))
    moved_on = msgspec.structs.replace(direct("t-2"), commit=Draft("t-1").created())
    with pytest.raises(AlreadyExists, match="stored already"):
        await store.tasks.submit(with_record(moved_on))
    assert await list_calls(store) == []
    assert await list_calls(await harness.reopen()) == []


async def test_a_record_outlives_its_task_until_it_expires(harness: StoreHarness) -> None:
    store = harness.store
    await put_finished(store, "t-1", at=1)
    again = msgspec.structs.replace(direct("t-2"), record=make_record(kind="call", until=60))
    await store.tasks.submit(again)
    over = Retention(time_at(50), 0, time_at(50), records_before=time_at(60))
    await store.tasks.purge(over)
    assert await list_calls(store) == [again.record]
    await store.tasks.purge(msgspec.structs.replace(over, records_before=time_at(61)))
    assert await list_calls(await harness.reopen()) == []
