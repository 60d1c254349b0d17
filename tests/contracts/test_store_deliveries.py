"""What every kind of store promises about deliveries."""

import asyncio

import msgspec
import pytest
from tests.contracts.store_samples import (
    ALICE,
    Draft,
    StoreHarness,
    direct,
    make_delivery,
    put_finished,
    time_at,
)

from openclaw_a2a.model.delivery import Delivery, DeliveryId, DeliveryState
from openclaw_a2a.model.errors import TaskNotFound
from openclaw_a2a.model.ids import AccountId, PeerName, TaskId
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import Retention, Store

WAITING, DEAD = DeliveryState.WAITING, DeliveryState.DEAD
START = DeliveryId("")


async def put(store: Store, delivery: Delivery, *, within: int = 16) -> bool:
    return await store.deliveries.put_delivery(delivery, within=within)


async def unfinished(store: Store) -> set[DeliveryId]:
    page = await store.deliveries.list_unfinished_deliveries(after=START, limit=100)
    assert page.next_after is None
    return {row.id for row in page.deliveries}


async def test_a_delivery_is_found_by_its_id_and_by_its_task(store: Store) -> None:
    await store.tasks.submit(Draft().submission())
    one, two = make_delivery(), make_delivery(name="two")
    two = msgspec.structs.replace(two, created_at=time_at(1), reason="why", attempts=3)
    assert await put(store, two)
    assert await put(store, one)
    assert await store.deliveries.read_delivery(None, two.id) == two
    assert await store.deliveries.list_task_deliveries(None, TaskId("t-1")) == [one, two]
    assert await store.deliveries.list_task_deliveries(None, TaskId("t-2")) == []
    assert await store.deliveries.read_delivery(None, DeliveryId("none")) is None


async def test_a_gateway_that_is_alone_sends_every_delivery(store: Store) -> None:
    await store.tasks.submit(Draft().submission())
    delivery = make_delivery()
    assert await put(store, delivery)
    assert await store.deliveries.read_delivery(None, delivery.id, only_own=True) == delivery
    found = await store.deliveries.list_task_deliveries(None, TaskId("t-1"), only_own=True)
    assert found == [delivery]


async def test_deliveries_and_events_of_another_caller_are_not_found(store: Store) -> None:
    draft = Draft()
    submission = draft.submission()
    await store.tasks.submit(submission)
    await store.tasks.commit(draft.chunk("secret"))
    delivery, task_id = make_delivery(), TaskId("t-1")
    await put(store, delivery)
    own = submission.run.scope
    others = (Scope(PeerName("mallory"), own.account), Scope(own.principal, AccountId("other")))
    assert await store.deliveries.read_delivery(own, delivery.id) == delivery
    assert await store.deliveries.list_task_deliveries(own, task_id) == [delivery]
    events = await store.tasks.read_events(own, task_id, after=-1, limit=10)
    assert events == await store.tasks.read_events(None, task_id, after=-1, limit=10) != []
    for scope in others:
        assert await store.deliveries.read_delivery(scope, delivery.id) is None
        assert await store.deliveries.list_task_deliveries(scope, task_id) == []
        assert await store.tasks.read_events(scope, task_id, after=-1, limit=10) == []


async def test_a_delivery_replaces_one_with_the_same_id(store: Store) -> None:
    await store.tasks.submit(Draft().submission())
    await put(store, make_delivery())
    newer = msgspec.structs.replace(make_delivery(cursor=-1), body=b"newer")
    assert await put(store, newer)
    assert await store.deliveries.list_task_deliveries(None, TaskId("t-1")) == [newer]


async def test_a_task_has_only_so_many_deliveries_of_a_kind(store: Store) -> None:
    await store.tasks.submit(Draft().submission())
    rows = [make_delivery(name=str(n)) for n in range(5)]
    results = await asyncio.gather(*[store.deliveries.put_delivery(row, within=3) for row in rows])
    assert list(results) == [True, True, True, False, False]
    assert await put(store, rows[0], within=3), "one that is there may be put again"
    other = msgspec.structs.replace(rows[4], kind="call")
    assert await put(store, other, within=3), "other kinds do not count"


async def test_a_delivery_needs_a_task(store: Store) -> None:
    with pytest.raises(TaskNotFound):
        await put(store, make_delivery())


async def test_the_delivery_of_a_submission_is_stored_with_it(harness: StoreHarness) -> None:
    submission = msgspec.structs.replace(Draft().submission(), delivery=make_delivery())
    later = msgspec.structs.replace(direct("t-2"), delivery=make_delivery("t-2"))
    await harness.store.tasks.submit(submission)
    await harness.store.tasks.submit(later)
    assert await harness.store.deliveries.list_task_deliveries(None, TaskId("t-1")) == [
        make_delivery()
    ]
    store = await harness.reopen()
    assert await store.deliveries.list_task_deliveries(None, TaskId("t-1")) == [make_delivery()]
    assert await store.deliveries.list_task_deliveries(None, TaskId("t-2")) == [
        make_delivery("t-2")
    ]


async def test_a_refused_or_duplicate_submission_leaves_no_delivery(store: Store) -> None:
    await store.tasks.submit(direct("t-1"))
    again = msgspec.structs.replace(direct("t-1"), delivery=make_delivery())
    await store.tasks.submit(again)
    assert await store.deliveries.list_task_deliveries(None, TaskId("t-1")) == []


async def test_progress_is_stored_unless_the_delivery_was_deleted_or_replaced(store: Store) -> None:
    await store.tasks.submit(Draft().submission())
    row = make_delivery()
    await put(store, row)
    further = msgspec.structs.replace(
        row, cursor=7, state=WAITING, attempts=2, reason="no answer", next_at=time_at(9)
    )
    assert await store.deliveries.update_delivery(further)
    assert await store.deliveries.read_delivery(None, row.id) == further
    await put(store, msgspec.structs.replace(row, body=b"another"))
    assert not await store.deliveries.update_delivery(further)
    assert await store.deliveries.delete_delivery(row.id)
    assert not await store.deliveries.delete_delivery(row.id)
    assert not await store.deliveries.update_delivery(further)
    assert await store.deliveries.read_delivery(None, row.id) is None


async def test_unfinished_deliveries_have_or_may_get_something_to_send(store: Store) -> None:
    ended = await put_finished(store, "ended", at=1)
    behind, level = make_delivery("ended", "behind"), make_delivery("ended", "level")
    level = msgspec.structs.replace(level, cursor=ended.head.sequence)
    tried = msgspec.structs.replace(level, id=DeliveryId("tried"), state=WAITING)
    dead = msgspec.structs.replace(behind, id=DeliveryId("dead"), state=DEAD)
    await store.tasks.submit(Draft("active").submission())
    active = make_delivery("active")
    paused_draft = Draft("paused")
    await store.tasks.submit(paused_draft.submission())
    await store.tasks.commit(paused_draft.paused(b"token"))
    paused = make_delivery("paused", cursor=paused_draft.head.sequence)
    coming = make_delivery("coming")
    await store.tasks.submit(msgspec.structs.replace(direct("coming"), delivery=coming))
    for row in (behind, level, tried, dead, active, paused):
        await put(store, row)
    expected = {behind.id, tried.id, active.id, paused.id, coming.id}
    assert await unfinished(store) == expected


async def test_a_late_event_makes_a_finished_delivery_unfinished(store: Store) -> None:
    draft = await put_finished(store, "t-1", at=1)
    await put(store, make_delivery(cursor=draft.head.sequence))
    assert await unfinished(store) == set()
    late = msgspec.structs.replace(draft.chunk("late"), run_id=None)
    await store.tasks.commit(late)
    assert await unfinished(store) == {make_delivery().id}


async def test_unfinished_and_states_are_read_in_pages(store: Store) -> None:
    await store.tasks.submit(Draft().submission())
    rows = [msgspec.structs.replace(make_delivery(name=str(n)), state=WAITING) for n in range(7)]
    for row in rows:
        await put(store, row)
    names, walked, after = sorted(row.id for row in rows), list[DeliveryId](), START
    while page := await store.deliveries.list_deliveries(WAITING, after=after, limit=3):
        walked += [row.id for row in page]
        after = walked[-1]
    assert walked == names
    walked.clear()
    following: DeliveryId | None = START
    while following is not None:
        found = await store.deliveries.list_unfinished_deliveries(after=following, limit=3)
        assert len(found.deliveries) <= 3
        walked += [row.id for row in found.deliveries]
        following = found.next_after
    assert walked == names
    assert await store.deliveries.list_deliveries(DEAD, after=START, limit=3) == []


async def test_deliveries_go_with_their_task(harness: StoreHarness) -> None:
    store = harness.store
    for name in ("t-1", "t-2", "t-3"):
        ended = await put_finished(store, name, at=1 if name == "t-2" else 100)
        brought_to = ended.head.sequence if name == "t-2" else 0
        await put(store, make_delivery(name, cursor=brought_to))
    assert await store.tasks.delete_task(ALICE, TaskId("t-1"))
    await store.tasks.purge(
        Retention(ended_before=time_at(50), keep_ended=9, messages_before=time_at(-1))
    )
    store = await harness.reopen()
    found = [
        bool(await store.deliveries.list_task_deliveries(None, TaskId(f"t-{n}"))) for n in (1, 2, 3)
    ]
    assert found == [False, False, True]


async def test_deliveries_and_their_progress_survive(durable: StoreHarness) -> None:
    draft = Draft()
    await durable.store.tasks.submit(draft.submission())
    gone, remaining = make_delivery(name="gone"), make_delivery(name="kept")
    await put(durable.store, gone)
    await put(durable.store, remaining)
    remaining = msgspec.structs.replace(
        remaining, cursor=3, state=DEAD, reason="héllo", attempts=12
    )
    await durable.store.deliveries.update_delivery(remaining)
    await durable.store.deliveries.delete_delivery(gone.id)
    store = await durable.reopen()
    assert await store.deliveries.list_task_deliveries(None, TaskId("t-1")) == [remaining]
    store = await durable.reopen()
    assert await store.deliveries.list_deliveries(DEAD, after=START, limit=9) == [remaining]
    await store.tasks.commit(
        msgspec.structs.replace(draft.ended(TaskState.FAILED, at=3), run_id=None)
    )
