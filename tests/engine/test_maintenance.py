"""Background loops: leases are renewed, abandoned runs fail, expired data is deleted."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial

import pytest
from tests.engine.conftest import OpenHarness
from tests.engine.controlled_agent import ControlledAgent, ScriptedAgent
from tests.engine.event_lines import check_closed_once, check_journal, event_text
from tests.engine.harness import HYBRID, Harness, in_time, read_all, yield_to_others

from openclaw_a2a.engine.maintenance import (
    MaintenanceSchedule,
    RetentionClock,
    maintain,
    purge_expired,
    purge_once,
)
from openclaw_a2a.engine.recovery import recover_runs
from openclaw_a2a.model.agent_event import InputRequired, Reply, TextDelta
from openclaw_a2a.model.delivery import Delivery, DeliveryId
from openclaw_a2a.model.errors import StoreUnavailable, TaskNotFound
from openclaw_a2a.model.task import TaskState

HI = Reply.of_text("hi")
DAY = 86400.0


@asynccontextmanager
async def maintenance(harness: Harness) -> AsyncGenerator[None]:
    """Its loop runs meanwhile."""
    engine = harness.engine
    seconds = engine.limits.lease_s / 3
    job = engine.supervisor.run_every(
        "lease", seconds, partial(maintain, engine), sleep=harness.clock.sleep
    )
    await yield_to_others()
    yield
    job.cancel()


async def next_round(harness: Harness) -> None:
    """Let the time of one round of maintenance pass."""
    await harness.clock.one_round(harness.limits.lease_s / 3 + 1)


async def test_an_engine_that_has_its_store_for_itself_renews_nothing(
    open_harness: OpenHarness,
) -> None:
    """A hundred thousand pending runs would be a hundred thousand rows, every few seconds."""
    agent = ControlledAgent()
    harness = await open_harness(agent)
    await harness.send()
    await agent.next_run()
    await harness.store_is_quiet()
    async with maintenance(harness):
        before = list(harness.store.writes)
        for _ in range(5):
            await next_round(harness)
        assert harness.store.writes == before


@pytest.mark.parametrize("is_direct", [False, True])
async def test_run_whose_events_the_store_rejects_is_an_error_now_and_a_failed_task_later(
    open_harness: OpenHarness, is_direct: bool
) -> None:
    agent = ControlledAgent()
    harness = await open_harness(agent)
    harness.rules = HYBRID if is_direct else harness.rules
    sent = await harness.send("hello", message_id="m")
    run = await agent.next_run()
    await harness.store_is_quiet()
    async with maintenance(harness):
        harness.store.refuse("commit", "finish_run")
        run.end(HI)
        with pytest.raises(StoreUnavailable):
            await harness.outcome(sent)
        harness.store.refuse()
        await next_round(harness)
        task = await harness.ended(await harness.send("hello", message_id="m"))
    assert task.status.state is TaskState.FAILED
    check_journal(await harness.entries(task.id), task)
    assert await recover_runs(harness.another_engine()) == 0


async def test_run_that_crashes_stops_its_agent_and_its_readers(
    open_harness: OpenHarness,
) -> None:
    agent = ControlledAgent()
    harness = await open_harness(agent)
    sent = await harness.send()
    run = await agent.next_run()
    run.tell(TextDelta("shown"))
    before = await harness.reach(run.turn.task_id, lambda seen: len(seen) == 3)
    reading = asyncio.ensure_future(read_all(await harness.follow(run.turn.task_id, cursor=3)))
    harness.store.refuse("commit")
    run.tell(TextDelta("lost"))
    with pytest.raises(StoreUnavailable):
        await harness.outcome(sent)
    with pytest.raises(StoreUnavailable):  # the reader of a stream is told, too
        await in_time(reading)
    await in_time(run.stopped.wait())
    harness.store.refuse()
    async with maintenance(harness):
        await next_round(harness)
    task = await harness.task(run.turn.task_id)
    assert task.status.state is TaskState.FAILED
    entries = await harness.entries(task.id)
    assert entries[:3] == before
    check_journal(entries, task)
    check_closed_once([entry.event for entry in entries])


async def test_run_that_cannot_be_failed_yet_is_tried_again(open_harness: OpenHarness) -> None:
    agent = ControlledAgent()
    harness = await open_harness(agent)
    sent = await harness.send()
    run = await agent.next_run()
    await harness.store_is_quiet()
    harness.store.refuse("commit")
    run.end(HI)
    with pytest.raises(StoreUnavailable):
        await harness.outcome(sent)
    async with maintenance(harness):
        for _ in range(3):
            await next_round(harness)
            assert await harness.state(run.turn.task_id) is not TaskState.FAILED
        harness.store.refuse()
        await next_round(harness)
    assert await harness.state(run.turn.task_id) is TaskState.FAILED


async def test_session_continues_after_a_run_that_crashed(open_harness: OpenHarness) -> None:
    agent = ControlledAgent()
    harness = await open_harness(agent)
    sent = await harness.send("one", context="c")
    run = await agent.next_run()
    second = await harness.send("two", context="c")
    await harness.store_is_quiet()
    harness.store.refuse("commit")
    run.end(HI)
    with pytest.raises(StoreUnavailable):
        await harness.outcome(sent)
    harness.store.refuse()
    (await agent.next_run("two")).end(HI)
    assert (await harness.ended(second)).status.state is TaskState.COMPLETED


async def test_messages_queued_on_a_task_that_crashed_are_errors_for_their_senders(
    open_harness: OpenHarness,
) -> None:
    agent = ControlledAgent()
    harness = await open_harness(agent)
    first = await harness.send("one")
    run = await agent.next_run()
    second = await harness.send("two", task_id=run.turn.task_id)
    await harness.store_is_quiet()
    harness.store.refuse("commit")
    run.end(HI)
    for sent in (first, second):
        with pytest.raises(StoreUnavailable):
            await harness.outcome(sent)
    harness.store.refuse()
    async with maintenance(harness):
        await next_round(harness)
    assert await harness.state(run.turn.task_id) is TaskState.FAILED
    assert await recover_runs(harness.another_engine()) == 0


async def test_message_that_the_store_rejects_was_never_accepted(open_harness: OpenHarness) -> None:
    agent = ControlledAgent()
    harness = await open_harness(agent)
    harness.store.refuse("submit")
    for rules in (harness.rules, HYBRID):
        harness.rules = rules
        with pytest.raises(StoreUnavailable):
            await harness.first(await harness.send("hello", message_id="m"))
    harness.store.refuse()
    sent = await harness.send("hello", message_id="m")
    (await agent.next_run()).end(HI)
    await harness.outcome(sent)
    assert len(agent.turns) == 1


async def test_run_whose_start_cannot_be_stored_does_not_start(open_harness: OpenHarness) -> None:
    agent = ControlledAgent()
    harness = await open_harness(agent)
    await harness.send("one", context="c")
    run = await agent.next_run()
    second = await harness.send("two", context="c")
    harness.store.refuse("start_run")
    run.end(HI)
    with pytest.raises(StoreUnavailable):
        await harness.outcome(second)
    assert agent.is_idle
    harness.store.refuse()
    async with maintenance(harness):
        await next_round(harness)
    task = await harness.task((await harness.shown(second)).id)
    assert task.status.state is TaskState.FAILED
    assert event_text((await harness.entries(task.id))[-1].event)


# ---------------------------------------------------------------- forgetting


async def test_ended_tasks_are_deleted_after_their_retention(open_harness: OpenHarness) -> None:
    harness = await open_harness(ScriptedAgent(HI))
    old = await harness.ended(await harness.send(message_id="old"))
    harness.clock.advance(29 * DAY)
    new = await harness.ended(await harness.send(message_id="new"))
    assert await purge_once(harness.engine, MaintenanceSchedule()) == 0
    harness.clock.advance(2 * DAY)
    assert await purge_once(harness.engine, MaintenanceSchedule()) == 1
    with pytest.raises(TaskNotFound):
        await harness.task(old.id)
    assert await harness.task(new.id) == new


async def test_most_recent_ended_tasks_are_kept(open_harness: OpenHarness) -> None:
    harness = await open_harness(ScriptedAgent(HI))
    tasks = [await harness.ended(await harness.send()) for _ in range(5)]
    assert await purge_once(harness.engine, MaintenanceSchedule(keep_ended=2)) == 3
    for task in tasks[:3]:
        with pytest.raises(TaskNotFound):
            await harness.task(task.id)
    assert await harness.task(tasks[4].id) == tasks[4]


async def test_tasks_that_have_not_ended_are_never_deleted(open_harness: OpenHarness) -> None:
    agent = ControlledAgent()
    harness = await open_harness(agent)
    await harness.send("works")
    working = await agent.next_run()
    sent = await harness.send("waits")
    (await agent.next_run("waits")).end(InputRequired("?"))
    paused = await harness.ended(sent)
    harness.clock.advance(1000 * DAY)
    assert await purge_once(harness.engine, MaintenanceSchedule(keep_ended=0)) == 0
    assert await harness.state(working.turn.task_id) is TaskState.WORKING
    assert await harness.state(paused.id) is TaskState.INPUT_REQUIRED


async def test_many_tasks_are_deleted_in_one_purge(open_harness: OpenHarness) -> None:
    harness = await open_harness(ScriptedAgent(HI))
    for _ in range(600):
        await harness.ended(await harness.send())
    assert await purge_once(harness.engine, MaintenanceSchedule(keep_ended=10)) == 590


async def test_tasks_with_a_pending_delivery_are_kept_for_a_limited_time(
    open_harness: OpenHarness,
) -> None:
    harness = await open_harness(ScriptedAgent(HI))
    task = await harness.ended(await harness.send())
    now = harness.clock.now()
    waiting = Delivery(DeliveryId("d-1"), "push", task.id, b"{}", 0, now, now, now)
    assert await harness.store.inner.deliveries.put_delivery(waiting, within=1)
    harness.clock.advance(59 * DAY)
    assert await purge_once(harness.engine, MaintenanceSchedule(keep_ended=0)) == 0
    assert await harness.task(task.id) == task
    harness.clock.advance(2 * DAY)
    assert await purge_once(harness.engine, MaintenanceSchedule()) == 1
    assert await harness.store.inner.deliveries.read_delivery(None, waiting.id) is None


async def test_message_ids_are_known_for_a_day(open_harness: OpenHarness) -> None:
    agent = ScriptedAgent(HI)
    harness = await open_harness(agent)
    harness.rules = HYBRID
    await harness.outcome(await harness.send(message_id="m"))
    harness.clock.advance(DAY / 2)
    await purge_once(harness.engine, MaintenanceSchedule())
    await harness.outcome(await harness.send(message_id="m"))
    assert len(agent.turns) == 1
    harness.clock.advance(DAY)
    await purge_once(harness.engine, MaintenanceSchedule())
    await harness.outcome(await harness.send(message_id="m"))
    assert len(agent.turns) == 2


async def test_purge_repeats_by_itself(open_harness: OpenHarness) -> None:
    harness = await open_harness(ScriptedAgent(HI))
    task = await harness.ended(await harness.send())
    clock = RetentionClock(harness.clock, harness.store)
    purge = partial(purge_expired, harness.engine, MaintenanceSchedule(ended_s=100), clock)
    harness.engine.supervisor.run_every("retention", 60, purge, sleep=harness.clock.sleep)
    await yield_to_others()
    assert await harness.task(task.id) == task
    for _ in range(2):
        await harness.clock.one_round(61)
    with pytest.raises(TaskNotFound):
        await harness.task(task.id)


# ---------------------------------------------------------------- a clock that jumps


class Machine:
    """The two clocks of a machine; only one of them can be set."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self._elapsed_s = 0.0

    def start(self) -> RetentionClock:
        """A gateway starts."""
        engine = self._harness.engine
        return RetentionClock(engine.clock, engine.store, lambda: self._elapsed_s)

    def run(self, seconds: float) -> None:
        """Time passes."""
        self._elapsed_s += seconds
        self._harness.clock.advance(seconds)

    def set_clock(self, seconds: float) -> None:
        """Set the clock to another time."""
        self._harness.clock.advance(seconds)


async def test_jump_of_the_clock_deletes_nothing_for_a_day(open_harness: OpenHarness) -> None:
    harness = await open_harness(ScriptedAgent(HI))
    machine, schedule = Machine(harness), MaintenanceSchedule()
    clock = machine.start()
    task = await harness.ended(await harness.send())
    await clock.now()
    machine.set_clock(40 * DAY)
    assert await purge_once(harness.engine, schedule, now=await clock.now()) == 0
    for _ in range(23):
        machine.run(3600)
        assert await purge_once(harness.engine, schedule, now=await clock.now()) == 0
    assert await harness.task(task.id) == task
    machine.run(2 * 3600)
    assert await purge_once(harness.engine, schedule, now=await clock.now()) == 1


async def test_clock_that_is_set_right_again_deletes_nothing(open_harness: OpenHarness) -> None:
    harness = await open_harness(ScriptedAgent(HI))
    machine = Machine(harness)
    clock = machine.start()
    await clock.now()
    machine.set_clock(40 * DAY)
    await clock.now()
    machine.set_clock(-40 * DAY)
    wall = harness.clock.now()
    assert abs(await clock.now() - wall) < timedelta(seconds=5)
    machine.run(2 * DAY)
    wall = harness.clock.now()
    assert abs(await clock.now() - wall) < timedelta(seconds=5)


async def test_jump_is_held_across_restarts_and_counts_the_time_of_all(
    open_harness: OpenHarness,
) -> None:
    harness = await open_harness(ScriptedAgent(HI))
    machine = Machine(harness)
    before = await machine.start().now()
    machine.set_clock(40 * DAY)
    for _ in range(3):
        clock = machine.start()
        for _ in range(7):
            assert await clock.now() < before + timedelta(days=2)
            machine.run(3600)
    clock = machine.start()
    for _ in range(8):
        machine.run(3600)
        now = await clock.now()
    assert now > before + timedelta(days=39)


async def test_second_jump_does_not_shorten_the_hold(open_harness: OpenHarness) -> None:
    harness = await open_harness(ScriptedAgent(HI))
    machine = Machine(harness)
    clock = machine.start()
    before = await clock.now()
    for _ in range(5):
        machine.set_clock(100 * DAY)
        machine.run(60)
        assert await clock.now() < before + timedelta(hours=1)


async def test_time_passes_as_usual_without_a_jump(open_harness: OpenHarness) -> None:
    harness = await open_harness(ScriptedAgent(HI))
    machine = Machine(harness)
    clock = machine.start()
    for _ in range(100):
        machine.run(DAY)
        wall = harness.clock.now()
        assert abs(await clock.now() - wall) < timedelta(seconds=5)
