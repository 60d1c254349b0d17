"""The repository of objectives: what it reads, and changes whose caller is gone."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import anyio
import msgspec
import pytest
from tests.captured_logs import capture_logs

from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.model.errors import PlanItemNotFound, StatusChangeNotAllowed, StoreUnavailable
from openclaw_a2a.model.ids import AccountId, PeerName
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.planning.commands import create_objective, create_plan, update_objective
from openclaw_a2a.planning.model import LOCAL_OWNER, ObjectiveId, ObjectiveStatus, PlanId
from openclaw_a2a.planning.params import CreateObjective, CreatePlan, UpdateObjective
from openclaw_a2a.planning.repository import LOG_KIND, SUMMARY_KIND, ObjectiveRepository
from openclaw_a2a.planning.state import Change, CommandContext, ObjectiveState
from openclaw_a2a.planning.subscription import MAX_PENDING
from openclaw_a2a.ports import Store
from openclaw_a2a.store import create_store

WAIT_S = 240.0
STATUS = ObjectiveStatus


class ObservedLogs:
    """The logs of a store: counts reads, and can hold an append after it was written."""

    def __init__(self, store: Store) -> None:
        self._inner = store.logs
        self.reads = 0
        self.appended = asyncio.Event()
        self.may_return = asyncio.Event()
        self.may_return.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def read_log(self, kind: str, log_id: str) -> Any:
        self.reads += 1
        return await self._inner.read_log(kind, log_id)

    async def append_log(self, change: Any) -> bool:
        is_appended = await self._inner.append_log(change)
        self.appended.set()
        await self.may_return.wait()
        return is_appended


class Bench:
    """Repositories over one store, one after the other, like processes over one database."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = datetime(2026, 1, 5, 10, tzinfo=UTC)
        self._ids = count(1)
        self.open()

    def open(self) -> None:
        """A new repository, which knows nothing but the store."""
        self.logs = ObservedLogs(self.store)
        self.supervisor = Supervisor("test")
        self.repository = ObjectiveRepository(
            self.logs,  # pyright: ignore[reportArgumentType] - it passes on what it has not itself
            self.store.records,
            self.supervisor,
            lambda: CommandContext(self.now, lambda: f"n{next(self._ids)}"),
        )

    async def create(self) -> ObjectiveId:
        context = self.repository.creation_context()
        change = create_objective(CreateObjective("Party"), context)
        return (await self.repository.create(change)).id

    async def add_plan(self, objective_id: ObjectiveId) -> PlanId:
        params = CreatePlan(objective_id, "Plan")
        change = await self.repository.change(None, objective_id, create_plan, params)
        return list(change.state.plans)[-1]

    async def update(self, objective_id: ObjectiveId, **members: Any) -> Change:
        params = UpdateObjective(objective_id, **members)
        return await self.repository.change(None, objective_id, update_objective, params)

    async def create_archived(self) -> tuple[ObjectiveId, PlanId]:
        objective_id = await self.create()
        plan_id = await self.add_plan(objective_id)
        await self.update(objective_id, status=STATUS.WORKING)
        await self.update(objective_id, status=STATUS.COMPLETED)
        return objective_id, plan_id

    async def close(self) -> None:
        await self.supervisor.stop()


async def no_check(_: ObjectiveState) -> None:
    """Allow any deletion."""


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    store = create_store("memory", path=None)
    await store.open()
    bench = Bench(store)
    yield bench
    await bench.close()
    await store.close()


# ---------------------------------------------------------------- changes whose caller is gone


async def test_change_whose_caller_is_cancelled_after_the_append_reaches_listeners(
    bench: Bench,
) -> None:
    objective_id = await bench.create()
    heard: list[Change] = []
    bench.repository.add_listener(heard.append)
    subscription = await bench.repository.subscribe(None, objective_id, None)
    bench.logs.appended.clear()
    bench.logs.may_return.clear()
    async with anyio.create_task_group() as callers:
        callers.start_soon(lambda: bench.update(objective_id, name="Fete"))
        await bench.logs.appended.wait()
        callers.cancel_scope.cancel()
    assert heard == []
    bench.logs.may_return.set()
    [operation] = await subscription.next_operations(WAIT_S)
    assert [one.operations for one in heard] == [[operation]]
    assert (await bench.repository.get(None, objective_id)).objective.name == "Fete"


async def test_a_stored_change_is_published_although_the_write_beside_it_fails(
    bench: Bench,
) -> None:
    objective_id = await bench.create()
    subscription = await bench.repository.subscribe(None, objective_id, None)
    params = UpdateObjective(objective_id, status=STATUS.WORKING)

    async def fail() -> None:
        raise StoreUnavailable("the disk is full")

    with pytest.raises(StoreUnavailable):
        await bench.repository.change(None, objective_id, update_objective, params, alongside=fail)
    [state] = bench.repository.list_open()
    assert state.objective.status is STATUS.WORKING
    assert await subscription.next_operations(WAIT_S)


async def test_deletion_whose_caller_is_cancelled_is_completed(bench: Bench) -> None:
    objective_id = await bench.create()
    is_checking, may_delete = asyncio.Event(), asyncio.Event()

    async def check(_: ObjectiveState) -> None:
        is_checking.set()
        await may_delete.wait()

    subscription = await bench.repository.subscribe(None, objective_id, None)
    async with anyio.create_task_group() as callers:
        callers.start_soon(bench.repository.delete, None, objective_id, check)
        await is_checking.wait()
        callers.cancel_scope.cancel()
    may_delete.set()
    assert await subscription.next_operations(WAIT_S) == []
    assert subscription.is_over
    with pytest.raises(PlanItemNotFound):
        await bench.repository.get(None, objective_id)


async def test_a_change_that_fails_after_its_caller_has_left_is_a_line_in_the_log(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    objective_id = await bench.create()
    is_checking, may_fail = asyncio.Event(), asyncio.Event()

    async def check(_: ObjectiveState) -> None:
        is_checking.set()
        await may_fail.wait()
        raise StoreUnavailable("the database is away")

    async with anyio.create_task_group() as callers:
        callers.start_soon(bench.repository.delete, None, objective_id, check)
        await is_checking.wait()
        callers.cancel_scope.cancel()
    with capture_logs() as events:
        may_fail.set()
        await bench.update(objective_id, name="Fete")  # behind the change that fails
    gc.collect()
    assert [one["reason"] for one in events] == ["the database is away"]
    assert "never retrieved" not in caplog.text


async def test_change_by_another_process_is_read_before_the_next_change(bench: Bench) -> None:
    objective_id = await bench.create()
    stale = bench.repository
    bench.open()
    await bench.update(objective_id, name="Fete")
    params = UpdateObjective(objective_id, description="in the garden")
    change = await stale.change(None, objective_id, update_objective, params)
    objective = change.state.objective
    assert (objective.name, objective.description) == ("Fete", "in the garden")


async def test_objective_of_another_owner_is_not_found(bench: Bench) -> None:
    objective_id = await bench.create()
    plan_id = await bench.add_plan(objective_id)
    repository, other = bench.repository, Scope(PeerName("other"), AccountId("default"))
    params = UpdateObjective(objective_id, name="mine now")
    before = await repository.get(None, objective_id)
    assert await repository.find(other, objective_id) is None
    assert await repository.find_by_plan(other, plan_id) is None
    for attempt in (
        repository.get(other, objective_id),
        repository.get_by_plan(other, plan_id),
        repository.subscribe(other, objective_id, None),
        repository.change(other, objective_id, update_objective, params),
        repository.delete(other, objective_id, no_check),
    ):
        with pytest.raises(PlanItemNotFound):
            await attempt
    assert await repository.get(before.owner, objective_id) == before
    assert (await repository.get_by_plan(before.owner, plan_id)).id == objective_id


# ---------------------------------------------------------------- subscriptions


async def test_subscribers_do_not_read_the_log_for_each_change(bench: Bench) -> None:
    objective_id = await bench.create()
    subscriptions = [await bench.repository.subscribe(None, objective_id, None) for _ in range(3)]
    before = bench.logs.reads
    for number in range(50):
        change = await bench.update(objective_id, name=f"name {number}")
        for one in subscriptions:
            assert await one.next_operations(WAIT_S) == list(change.operations)
    assert bench.logs.reads == before


async def test_subscriber_with_a_cursor_gets_what_it_missed_and_then_what_follows(
    bench: Bench,
) -> None:
    objective_id = await bench.create()
    for number in range(5):
        await bench.update(objective_id, name=f"name {number}")
    subscription = await bench.repository.subscribe(None, objective_id, 3)
    assert [one.seq for one in await subscription.next_operations(WAIT_S)] == [4, 5, 6]
    await bench.update(objective_id, name="last")
    assert [one.seq for one in await subscription.next_operations(WAIT_S)] == [7]
    assert bench.logs.reads == 1


async def test_subscriber_that_falls_far_behind_reads_the_log_once_and_misses_nothing(
    bench: Bench,
) -> None:
    objective_id = await bench.create()
    subscription = await bench.repository.subscribe(None, objective_id, None)
    for number in range(MAX_PENDING + 10):
        await bench.update(objective_id, name=f"name {number}")
    first = await subscription.next_operations(WAIT_S)
    assert [one.seq for one in first] == list(range(2, MAX_PENDING + 12))
    assert bench.logs.reads == 1
    change = await bench.update(objective_id, name="last")
    assert await subscription.next_operations(WAIT_S) == list(change.operations)


async def test_subscriber_that_fell_behind_sees_nothing_of_a_new_objective_with_the_same_id(
    bench: Bench,
) -> None:
    context = bench.repository.creation_context()
    first = create_objective(
        CreateObjective("first"), context, objective_id=ObjectiveId("obj-same")
    )
    await bench.repository.create(first)
    subscription = await bench.repository.subscribe(None, first.state.id, None)
    for number in range(MAX_PENDING + 1):
        await bench.update(first.state.id, name=f"name {number}")
    await bench.repository.delete(None, first.state.id, no_check)
    context = bench.repository.creation_context()
    second = create_objective(CreateObjective("second"), context, objective_id=first.state.id)
    await bench.repository.create(second)
    assert await subscription.next_operations(WAIT_S) == []
    assert subscription.is_over


async def test_waiting_subscriber_returns_at_once_when_it_is_stopped(bench: Bench) -> None:
    subscription = await bench.repository.subscribe(None, await bench.create(), None)
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(subscription.next_operations, 3600.0)
            await anyio.wait_all_tasks_blocked()
            subscription.stop()
    assert subscription.is_over


# ---------------------------------------------------------------- archived objectives


async def test_unknown_plan_id_reads_no_archived_log(bench: Bench) -> None:
    for _ in range(20):
        await bench.create_archived()
    bench.open()
    await bench.repository.load()
    assert await bench.repository.find_by_plan(None, PlanId("plan-unknown")) is None
    assert bench.logs.reads == 0


async def test_plan_of_an_archived_objective_is_found_after_a_restart(bench: Bench) -> None:
    objective_id, plan_id = await bench.create_archived()
    await bench.create_archived()
    bench.open()
    await bench.repository.load()
    state = await bench.repository.find_by_plan(None, plan_id)
    assert state is not None
    assert state.id == objective_id
    assert bench.logs.reads == 1


async def test_archived_objectives_are_listed_after_a_restart_as_they_were(bench: Bench) -> None:
    archived = [(await bench.create_archived())[0] for _ in range(5)]
    before = (await bench.repository.load_index()).page(10, scope=None)
    bench.open()
    await bench.repository.load()
    page = (await bench.repository.load_index()).page(10, scope=None)
    assert page == before
    assert [one.id for one in page.objectives] == archived[::-1]
    assert bench.logs.reads == 0


async def test_archived_log_without_a_summary_is_read_once_for_all_restarts(bench: Bench) -> None:
    """Data of an earlier version has no summaries."""
    archived = [await bench.create_archived() for _ in range(3)]
    for record in await bench.store.records.list_records(SUMMARY_KIND):
        await bench.store.records.delete_record(SUMMARY_KIND, record.id)
    reads: list[int] = []
    for _ in range(2):
        bench.open()
        await bench.repository.load()
        index = await bench.repository.load_index()
        assert [index.find_plan(plan_id) for _, plan_id in archived] == [one for one, _ in archived]
        reads.append(bench.logs.reads)
    assert reads == [3, 0]


async def test_summary_that_is_older_than_its_log_is_replaced(bench: Bench) -> None:
    """The process died between the append and the summary."""
    objective_id, _ = await bench.create_archived()
    [old] = await bench.store.records.list_records(SUMMARY_KIND)
    await bench.update(objective_id, name="Fete")
    await bench.store.records.put_record(old)
    bench.open()
    [shown] = (await bench.repository.load_index()).page(10, scope=None).objectives
    assert shown.name == "Fete"
    [new] = await bench.store.records.list_records(SUMMARY_KIND)
    assert new.body != old.body


async def test_summary_without_an_owner_is_replaced(bench: Bench) -> None:
    """Earlier versions wrote none for a log that names none."""
    await bench.create_archived()
    [new] = await bench.store.records.list_records(SUMMARY_KIND)
    old = json.dumps(json.loads(new.body) | {"owner": None}).encode()
    await bench.store.records.put_record(msgspec.structs.replace(new, body=old))
    bench.open()
    assert (await bench.repository.load_index()).page(10, scope=LOCAL_OWNER).total == 1
    assert await bench.store.records.list_records(SUMMARY_KIND) == [new]


async def test_deleted_objective_leaves_no_summary(bench: Bench) -> None:
    objective_id, plan_id = await bench.create_archived()
    await bench.repository.delete(None, objective_id, no_check)
    assert await bench.store.records.list_records(SUMMARY_KIND) == []
    assert await bench.repository.find_by_plan(None, plan_id) is None


async def test_summary_without_its_log_is_removed(bench: Bench) -> None:
    """The process died between the two deletions."""
    objective_id, _ = await bench.create_archived()
    await bench.store.logs.delete_log(LOG_KIND, objective_id)
    bench.open()
    assert (await bench.repository.load_index()).page(10, scope=None).total == 0
    assert await bench.store.records.list_records(SUMMARY_KIND) == []


# ---------------------------------------------------------------- ids and age


async def test_id_that_is_taken_is_not_created_again(bench: Bench) -> None:
    context = bench.repository.creation_context()
    change = create_objective(CreateObjective("x"), context, objective_id=ObjectiveId("obj-x"))
    await bench.repository.create(change)
    with pytest.raises(StatusChangeNotAllowed):
        await bench.repository.create(change)


async def test_index_finds_ended_objectives_by_the_time_of_their_last_change(bench: Bench) -> None:
    old, _ = await bench.create_archived()
    changed, _ = await bench.create_archived()
    still_open = await bench.create()
    bench.now += timedelta(days=10)
    recent, _ = await bench.create_archived()
    await bench.update(changed, name="changed")
    index = await bench.repository.load_index()
    before = "2026-01-10T00:00:00.000Z"
    ended = frozenset({STATUS.COMPLETED, STATUS.FAILED, STATUS.CANCELED})
    assert index.unchanged_since(before, ended) == [old]  # pyright: ignore[reportArgumentType]
    assert {changed, still_open, recent}.isdisjoint(index.unchanged_since(before, ended))  # pyright: ignore[reportArgumentType]
