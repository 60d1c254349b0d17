"""What every kind of store promises about purging tasks with unfinished deliveries."""

import msgspec
import pytest
from tests.contracts.store_samples import (
    ALICE,
    BOB,
    StoreHarness,
    direct,
    make_delivery,
    purge_all,
    put_finished,
    time_at,
)

from openclaw_a2a.model.delivery import Delivery, DeliveryId, DeliveryState
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import PurgeResult, Retention, Store, TaskKey

IDLE, WAITING, DEAD = DeliveryState.IDLE, DeliveryState.WAITING, DeliveryState.DEAD
ALL_OLD = Retention(ended_before=time_at(1000), keep_ended=1000, messages_before=time_at(-1))


async def put_followed(
    store: Store,
    name: str,
    at: float,
    *,
    state: DeliveryState = IDLE,
    is_level: bool = False,
    scope: Scope = ALICE,
) -> Delivery:
    """A finished task with a delivery; a level one was sent up to the last event."""
    draft = await put_finished(store, name, at=at, scope=scope)
    row = make_delivery(name, cursor=draft.head.sequence if is_level else 0)
    row = msgspec.structs.replace(row, state=state)
    assert await store.deliveries.put_delivery(row, within=16)
    return row


async def remaining_tasks(store: Store, *names: str) -> list[str]:
    """Those of the tasks that are still there."""
    return [name for name in names if await store.tasks.read_task(None, TaskId(name)) is not None]


@pytest.mark.parametrize(
    ("state", "is_level"),
    [(IDLE, False), (WAITING, False), (WAITING, True)],
    ids=["behind", "behind and waiting", "level and waiting"],
)
async def test_a_task_with_an_unfinished_delivery_is_not_purged(
    harness: StoreHarness, state: DeliveryState, is_level: bool
) -> None:
    row = await put_followed(harness.store, "held", at=1, state=state, is_level=is_level)
    await put_finished(harness.store, "free", at=2)
    assert await purge_all(harness.store, ALL_OLD) == 1
    store = await harness.reopen()
    assert await purge_all(store, ALL_OLD) == 0
    assert await remaining_tasks(store, "held", "free") == ["held"]
    assert await store.deliveries.list_task_deliveries(None, TaskId("held")) == [row]
    assert len(await store.tasks.read_events(None, TaskId("held"), after=0, limit=9)) == 3


@pytest.mark.parametrize(("state", "is_level"), [(IDLE, True), (DEAD, False), (DEAD, True)])
async def test_finished_and_dead_deliveries_keep_no_task(
    store: Store, state: DeliveryState, is_level: bool
) -> None:
    row = await put_followed(store, "t-1", at=1, state=state, is_level=is_level)
    assert await purge_all(store, ALL_OLD) == 1
    assert await remaining_tasks(store, "t-1") == []
    assert await store.deliveries.read_delivery(None, row.id) is None
    assert await store.deliveries.list_deliveries(state, after=DeliveryId(""), limit=9) == []


@pytest.mark.parametrize("ending", ["delivered", "dead", "deleted"])
async def test_a_task_is_purged_once_its_deliveries_are_finished(store: Store, ending: str) -> None:
    row = await put_followed(store, "t-1", at=1, state=WAITING)
    assert await purge_all(store, ALL_OLD) == 0
    if ending == "deleted":
        assert await store.deliveries.delete_delivery(row.id)
    else:
        stored = await store.tasks.read_task(None, TaskId("t-1"))
        assert stored is not None
        delivered = msgspec.structs.replace(row, state=IDLE, cursor=stored.head.sequence)
        dead = msgspec.structs.replace(row, state=DEAD)
        assert await store.deliveries.update_delivery(delivered if ending == "delivered" else dead)
    assert await purge_all(store, ALL_OLD) == 1
    assert await remaining_tasks(store, "t-1") == []
    assert await store.deliveries.list_task_deliveries(None, TaskId("t-1")) == []


async def test_one_delivery_that_is_behind_keeps_a_task(store: Store) -> None:
    await put_followed(store, "t-1", at=1, is_level=True)
    dead = msgspec.structs.replace(make_delivery("t-1", "dead"), state=DEAD)
    behind = msgspec.structs.replace(make_delivery("t-1", "behind"), kind="call")
    for row in (dead, behind):
        await store.deliveries.put_delivery(row, within=16)
    assert await purge_all(store, ALL_OLD) == 0
    await store.deliveries.update_delivery(msgspec.structs.replace(behind, state=DEAD))
    assert await purge_all(store, ALL_OLD) == 1


async def test_a_late_event_keeps_a_delivered_task_from_being_purged(store: Store) -> None:
    draft = await put_finished(store, "t-1", at=1)
    await store.deliveries.put_delivery(make_delivery("t-1", cursor=draft.head.sequence), within=16)
    await store.tasks.commit(msgspec.structs.replace(draft.chunk("late"), run_id=None))
    assert await purge_all(store, ALL_OLD) == 0


async def test_surplus_tasks_without_unfinished_deliveries_are_purged_oldest_first(
    store: Store,
) -> None:
    for number in range(8):
        scope = (ALICE, BOB)[number % 2]
        await put_followed(store, f"t-{number}", at=number, is_level=number > 2, scope=scope)
    retention = Retention(time_at(-1), keep_ended=5, messages_before=time_at(-1))
    assert await purge_all(store, retention) == 3
    assert await purge_all(store, retention) == 0
    names = [f"t-{number}" for number in range(8)]
    assert await remaining_tasks(store, *names) == ["t-0", "t-1", "t-2", "t-6", "t-7"]
    nothing = msgspec.structs.replace(retention, keep_ended=0)
    assert await purge_all(store, nothing) == 2
    assert await remaining_tasks(store, *names) == ["t-0", "t-1", "t-2"]


async def test_a_purge_examines_at_most_its_limit(store: Store) -> None:
    for number in range(9):
        await put_followed(store, f"t-{number}", at=number, is_level=number > 4)
    steps: list[tuple[int, str | None]] = []
    after: TaskKey | None = None
    while not steps or after is not None:
        gone = await store.tasks.purge(msgspec.structs.replace(ALL_OLD, limit=2, after=after))
        after = gone.next_after
        steps.append((gone.count, None if after is None else after.id))
    assert steps == [(0, "t-1"), (0, "t-3"), (1, "t-5"), (2, "t-7"), (1, None)]


async def test_a_purge_stops_at_the_first_task_that_is_not_due(store: Store) -> None:
    for number in range(9):
        await put_followed(store, f"t-{number}", at=number, is_level=number != 1)
    retention = Retention(time_at(2), keep_ended=6, messages_before=time_at(-1), limit=5)
    assert await store.tasks.purge(retention) == PurgeResult(3)
    names = [f"t-{number}" for number in range(9)]
    assert await remaining_tasks(store, *names) == ["t-1", "t-4", "t-5", "t-6", "t-7", "t-8"]
    assert await store.tasks.purge(retention) == PurgeResult(0)


async def test_many_held_tasks_hide_no_purgeable_one(store: Store) -> None:
    for number in range(330):
        is_free = number % 110 == 109
        await put_followed(store, f"t-{number}", at=number, is_level=is_free)
    assert await purge_all(store, ALL_OLD) == 3
    assert await purge_all(store, ALL_OLD) == 0


async def test_tasks_that_ended_at_the_same_time_are_each_examined_once(store: Store) -> None:
    for number in range(120):
        scope = (ALICE, BOB)[number % 2]
        await put_followed(store, f"t-{number}", at=1, is_level=number % 3 > 0, scope=scope)
    assert await purge_all(store, ALL_OLD) == 80
    assert await purge_all(store, ALL_OLD) == 0


async def test_waiting_for_a_lock_ends(store: Store) -> None:
    for number in range(4):
        await put_followed(store, f"t-{number}", at=number, state=WAITING)
    retention = msgspec.structs.replace(ALL_OLD, undelivered_before=time_at(2))
    assert await purge_all(store, retention) == 2
    assert await remaining_tasks(store, "t-0", "t-1", "t-2", "t-3") == ["t-2", "t-3"]


async def test_a_task_with_an_unfinished_delivery_can_be_deleted_by_its_caller(
    store: Store,
) -> None:
    row = await put_followed(store, "t-1", at=1, state=WAITING)
    assert await store.tasks.delete_task(ALICE, TaskId("t-1"))
    assert await store.deliveries.read_delivery(None, row.id) is None


async def test_deliveries_without_a_task_keep_nothing(store: Store) -> None:
    later = msgspec.structs.replace(direct("t-1"), delivery=make_delivery("t-1"))
    await store.tasks.submit(later)
    await put_finished(store, "t-2", at=1)
    assert await purge_all(store, ALL_OLD) == 1
    assert await store.deliveries.list_task_deliveries(None, TaskId("t-1")) == [
        make_delivery("t-1")
    ]
