"""What every kind of store promises about ended tasks of which something is still to be brought."""

import msgspec
import pytest
from tests.contracts.store_samples import (
    ALICE,
    BOB,
    Shelf,
    direct,
    forget,
    make_delivery,
    moment,
    put_ended,
)

from openclaw_a2a.model.delivery import Delivery, DeliveryId, DeliveryState
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import PurgeResult, Retention, Store, TaskKey

IDLE, WAITING, DEAD = DeliveryState.IDLE, DeliveryState.WAITING, DeliveryState.DEAD
ALL_OLD = Retention(ended_before=moment(1000), keep_ended=1000, messages_before=moment(-1))


async def put_followed(
    store: Store,
    name: str,
    at: float,
    *,
    state: DeliveryState = IDLE,
    is_level: bool = False,
    scope: Scope = ALICE,
) -> Delivery:
    """An ended task with a delivery; a level one is brought to the last event."""
    draft = await put_ended(store, name, at=at, scope=scope)
    row = make_delivery(name, cursor=draft.head.sequence if is_level else 0)
    row = msgspec.structs.replace(row, state=state)
    assert await store.deliveries.put_delivery(row, within=16)
    return row


async def kept(store: Store, *names: str) -> list[str]:
    """Those of the tasks that are still there."""
    return [name for name in names if await store.tasks.read_task(None, TaskId(name)) is not None]


@pytest.mark.parametrize(
    ("state", "is_level"),
    [(IDLE, False), (WAITING, False), (WAITING, True)],
    ids=["behind", "behind and waiting", "level and waiting"],
)
async def test_a_task_is_kept_while_something_of_it_is_to_be_brought(
    shelf: Shelf, state: DeliveryState, is_level: bool
) -> None:
    row = await put_followed(shelf.store, "held", at=1, state=state, is_level=is_level)
    await put_ended(shelf.store, "free", at=2)
    assert await forget(shelf.store, ALL_OLD) == 1
    store = await shelf.reopen()
    assert await forget(store, ALL_OLD) == 0
    assert await kept(store, "held", "free") == ["held"]
    assert await store.deliveries.list_task_deliveries(TaskId("held")) == [row]
    assert len(await store.tasks.read_events(TaskId("held"), after=0, limit=9)) == 3


@pytest.mark.parametrize(("state", "is_level"), [(IDLE, True), (DEAD, False), (DEAD, True)])
async def test_what_is_brought_or_given_up_keeps_no_task(
    store: Store, state: DeliveryState, is_level: bool
) -> None:
    row = await put_followed(store, "t-1", at=1, state=state, is_level=is_level)
    assert await forget(store, ALL_OLD) == 1
    assert await kept(store, "t-1") == []
    assert await store.deliveries.read_delivery(row.id) is None
    assert await store.deliveries.list_deliveries(state, after=DeliveryId(""), limit=9) == []


@pytest.mark.parametrize("ending", ["brought", "given up", "dropped"])
async def test_a_task_goes_once_nothing_of_it_is_to_be_brought(store: Store, ending: str) -> None:
    row = await put_followed(store, "t-1", at=1, state=WAITING)
    assert await forget(store, ALL_OLD) == 0
    if ending == "dropped":
        assert await store.deliveries.delete_delivery(row.id)
    else:
        stored = await store.tasks.read_task(None, TaskId("t-1"))
        assert stored is not None
        brought = msgspec.structs.replace(row, state=IDLE, cursor=stored.head.sequence)
        given_up = msgspec.structs.replace(row, state=DEAD)
        assert await store.deliveries.update_delivery(brought if ending == "brought" else given_up)
    assert await forget(store, ALL_OLD) == 1
    assert await kept(store, "t-1") == []
    assert await store.deliveries.list_task_deliveries(TaskId("t-1")) == []


async def test_one_receiver_who_is_behind_is_enough_to_keep_a_task(store: Store) -> None:
    await put_followed(store, "t-1", at=1, is_level=True)
    dead = msgspec.structs.replace(make_delivery("t-1", "dead"), state=DEAD)
    behind = msgspec.structs.replace(make_delivery("t-1", "behind"), kind="call")
    for row in (dead, behind):
        await store.deliveries.put_delivery(row, within=16)
    assert await forget(store, ALL_OLD) == 0
    await store.deliveries.update_delivery(msgspec.structs.replace(behind, state=DEAD))
    assert await forget(store, ALL_OLD) == 1


async def test_a_late_event_keeps_a_task_that_was_brought(store: Store) -> None:
    draft = await put_ended(store, "t-1", at=1)
    await store.deliveries.put_delivery(make_delivery("t-1", cursor=draft.head.sequence), within=16)
    await store.tasks.commit(msgspec.structs.replace(draft.chunk("late"), run_id=None))
    assert await forget(store, ALL_OLD) == 0


async def test_past_the_count_the_oldest_go_of_which_all_is_brought(store: Store) -> None:
    for number in range(8):
        scope = (ALICE, BOB)[number % 2]
        await put_followed(store, f"t-{number}", at=number, is_level=number > 2, scope=scope)
    retention = Retention(moment(-1), keep_ended=5, messages_before=moment(-1))
    assert await forget(store, retention) == 3
    assert await forget(store, retention) == 0
    names = [f"t-{number}" for number in range(8)]
    assert await kept(store, *names) == ["t-0", "t-1", "t-2", "t-6", "t-7"]
    nothing = msgspec.structs.replace(retention, keep_ended=0)
    assert await forget(store, nothing) == 2
    assert await kept(store, *names) == ["t-0", "t-1", "t-2"]


async def test_only_so_many_tasks_are_looked_at_at_once(store: Store) -> None:
    for number in range(9):
        await put_followed(store, f"t-{number}", at=number, is_level=number > 4)
    steps: list[tuple[int, str | None]] = []
    after: TaskKey | None = None
    while not steps or after is not None:
        gone = await store.tasks.purge(msgspec.structs.replace(ALL_OLD, limit=2, after=after))
        after = gone.next_after
        steps.append((gone.count, None if after is None else after.id))
    assert steps == [(0, "t-1"), (0, "t-3"), (1, "t-5"), (2, "t-7"), (1, None)]


async def test_looking_ends_where_the_first_task_is_that_is_not_due(store: Store) -> None:
    for number in range(9):
        await put_followed(store, f"t-{number}", at=number, is_level=number != 1)
    retention = Retention(moment(2), keep_ended=6, messages_before=moment(-1), limit=5)
    assert await store.tasks.purge(retention) == PurgeResult(3)
    names = [f"t-{number}" for number in range(9)]
    assert await kept(store, *names) == ["t-1", "t-4", "t-5", "t-6", "t-7", "t-8"]
    assert await store.tasks.purge(retention) == PurgeResult(0)


async def test_many_tasks_that_are_kept_hide_none_that_may_go(store: Store) -> None:
    for number in range(330):
        is_free = number % 110 == 109
        await put_followed(store, f"t-{number}", at=number, is_level=is_free)
    assert await forget(store, ALL_OLD) == 3
    assert await forget(store, ALL_OLD) == 0


async def test_tasks_that_ended_together_are_each_looked_at_once(store: Store) -> None:
    for number in range(120):
        scope = (ALICE, BOB)[number % 2]
        await put_followed(store, f"t-{number}", at=1, is_level=number % 3 > 0, scope=scope)
    assert await forget(store, ALL_OLD) == 80
    assert await forget(store, ALL_OLD) == 0


async def test_nobody_is_waited_for_for_ever(store: Store) -> None:
    for number in range(4):
        await put_followed(store, f"t-{number}", at=number, state=WAITING)
    retention = msgspec.structs.replace(ALL_OLD, undelivered_before=moment(2))
    assert await forget(store, retention) == 2
    assert await kept(store, "t-0", "t-1", "t-2", "t-3") == ["t-2", "t-3"]


async def test_a_task_that_is_kept_may_be_deleted_by_its_caller(store: Store) -> None:
    row = await put_followed(store, "t-1", at=1, state=WAITING)
    assert await store.tasks.delete_task(ALICE, TaskId("t-1"))
    assert await store.deliveries.read_delivery(row.id) is None


async def test_what_is_to_be_brought_of_no_task_keeps_nothing(store: Store) -> None:
    later = msgspec.structs.replace(direct("t-1"), delivery=make_delivery("t-1"))
    await store.tasks.submit(later)
    await put_ended(store, "t-2", at=1)
    assert await forget(store, ALL_OLD) == 1
    assert await store.deliveries.list_task_deliveries(TaskId("t-1")) == [make_delivery("t-1")]
