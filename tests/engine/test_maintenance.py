"""What an engine does by itself: keep its leases, end what broke, forget the old."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from tests.engine.conftest import OpenRoom
from tests.engine.controlled_agent import ControlledAgent, ScriptedAgent
from tests.engine.event_lines import check_closed_once, check_journal, words_of
from tests.engine.harness import HYBRID, EngineHarness, in_time, others_move, read_all

from openclaw_a2a.engine.maintenance import (
    MaintenanceSchedule,
    purge_expired,
    purge_once,
    renew_leases,
)
from openclaw_a2a.engine.recovery import recover_runs
from openclaw_a2a.model.agent_event import InputRequired, Reply, TextDelta
from openclaw_a2a.model.delivery import Delivery, DeliveryId
from openclaw_a2a.model.errors import StoreUnavailable, TaskNotFound
from openclaw_a2a.model.task import TaskState

HI = Reply.of_text("hi")
DAY = 86400.0


@asynccontextmanager
async def upkeep(room: EngineHarness) -> AsyncGenerator[None]:
    """Leases are kept meanwhile."""
    job = room.engine.supervisor.spawn("leases", renew_leases(room.engine))
    await others_move()
    yield
    job.cancel()


async def next_round(room: EngineHarness) -> None:
    """Let the time of one round of upkeep pass."""
    await room.clock.one_round(room.limits.lease_s / 3 + 1)


async def test_leases_of_a_live_engine_do_not_run_out(open_room: OpenRoom) -> None:
    agent = ControlledAgent()
    room = await open_room(agent, lease_s=30)
    await room.send()
    await agent.next_run()
    other = room.another_engine()
    async with upkeep(room):
        for _ in range(5):
            await next_round(room)
            assert await recover_runs(other, expired_at=room.clock.now()) == 0
    room.clock.advance(60)
    assert await recover_runs(other, expired_at=room.clock.now()) == 1


@pytest.mark.parametrize("is_direct", [False, True])
async def test_run_whose_events_the_store_refuses_is_an_error_now_and_a_failed_task_later(
    open_room: OpenRoom, is_direct: bool
) -> None:
    agent = ControlledAgent()
    room = await open_room(agent)
    room.rules = HYBRID if is_direct else room.rules
    sent = await room.send("hello", message_id="m")
    run = await agent.next_run()
    await room.store_is_quiet()
    async with upkeep(room):
        room.store.refuse("commit", "finish_run")
        run.end(HI)
        with pytest.raises(StoreUnavailable):
            await room.outcome(sent)
        room.store.refuse()
        await next_round(room)
        task = await room.ended(await room.send("hello", message_id="m"))
    assert task.status.state is TaskState.FAILED
    check_journal(await room.entries(task.id), task)
    assert await recover_runs(room.another_engine(), expired_at=None) == 0


async def test_run_that_breaks_in_the_middle_stops_its_agent_and_its_readers(
    open_room: OpenRoom,
) -> None:
    agent = ControlledAgent()
    room = await open_room(agent)
    sent = await room.send()
    run = await agent.next_run()
    run.tell(TextDelta("shown"))
    before = await room.reach(run.turn.task_id, lambda seen: len(seen) == 3)
    reading = asyncio.ensure_future(read_all(await room.follow(run.turn.task_id, cursor=3)))
    room.store.refuse("commit")
    run.tell(TextDelta("lost"))
    with pytest.raises(StoreUnavailable):
        await room.outcome(sent)
    assert await in_time(reading) == []
    await in_time(run.stopped.wait())
    room.store.refuse()
    async with upkeep(room):
        await next_round(room)
    task = await room.task(run.turn.task_id)
    assert task.status.state is TaskState.FAILED
    entries = await room.entries(task.id)
    assert entries[:3] == before
    check_journal(entries, task)
    check_closed_once([entry.event for entry in entries])


async def test_what_cannot_be_ended_yet_is_tried_again(open_room: OpenRoom) -> None:
    agent = ControlledAgent()
    room = await open_room(agent)
    sent = await room.send()
    run = await agent.next_run()
    await room.store_is_quiet()
    room.store.refuse("commit")
    run.end(HI)
    with pytest.raises(StoreUnavailable):
        await room.outcome(sent)
    async with upkeep(room):
        for _ in range(3):
            await next_round(room)
            assert await room.state(run.turn.task_id) is not TaskState.FAILED
        room.store.refuse("renew_leases")
        await next_round(room)
        room.store.refuse()
        await next_round(room)
    assert await room.state(run.turn.task_id) is TaskState.FAILED


async def test_session_goes_on_after_a_run_that_broke(open_room: OpenRoom) -> None:
    agent = ControlledAgent()
    room = await open_room(agent)
    sent = await room.send("one", context="c")
    run = await agent.next_run()
    second = await room.send("two", context="c")
    await room.store_is_quiet()
    room.store.refuse("commit")
    run.end(HI)
    with pytest.raises(StoreUnavailable):
        await room.outcome(sent)
    room.store.refuse()
    (await agent.next_run("two")).end(HI)
    assert (await room.ended(second)).status.state is TaskState.COMPLETED


async def test_messages_waiting_on_a_task_that_broke_are_errors_for_their_senders(
    open_room: OpenRoom,
) -> None:
    agent = ControlledAgent()
    room = await open_room(agent)
    first = await room.send("one")
    run = await agent.next_run()
    second = await room.send("two", task_id=run.turn.task_id)
    await room.store_is_quiet()
    room.store.refuse("commit")
    run.end(HI)
    for sent in (first, second):
        with pytest.raises(StoreUnavailable):
            await room.outcome(sent)
    room.store.refuse()
    async with upkeep(room):
        await next_round(room)
    assert await room.state(run.turn.task_id) is TaskState.FAILED
    assert await recover_runs(room.another_engine(), expired_at=None) == 0


async def test_message_the_store_refuses_was_never_sent(open_room: OpenRoom) -> None:
    agent = ControlledAgent()
    room = await open_room(agent)
    room.store.refuse("submit")
    for rules in (room.rules, HYBRID):
        room.rules = rules
        with pytest.raises(StoreUnavailable):
            await room.first(await room.send("hello", message_id="m"))
    room.store.refuse()
    sent = await room.send("hello", message_id="m")
    (await agent.next_run()).end(HI)
    await room.outcome(sent)
    assert len(agent.turns) == 1


async def test_run_that_cannot_be_noted_as_begun_is_not_begun(open_room: OpenRoom) -> None:
    agent = ControlledAgent()
    room = await open_room(agent)
    await room.send("one", context="c")
    run = await agent.next_run()
    second = await room.send("two", context="c")
    room.store.refuse("start_run")
    run.end(HI)
    with pytest.raises(StoreUnavailable):
        await room.outcome(second)
    assert agent.is_idle
    room.store.refuse()
    async with upkeep(room):
        await next_round(room)
    task = await room.task((await room.shown(second)).id)
    assert task.status.state is TaskState.FAILED
    assert words_of((await room.entries(task.id))[-1].event)


# ---------------------------------------------------------------- forgetting


async def test_ended_tasks_are_forgotten_after_their_time(open_room: OpenRoom) -> None:
    room = await open_room(ScriptedAgent(HI))
    old = await room.ended(await room.send(message_id="old"))
    room.clock.advance(29 * DAY)
    new = await room.ended(await room.send(message_id="new"))
    assert await purge_once(room.engine, MaintenanceSchedule()) == 0
    room.clock.advance(2 * DAY)
    assert await purge_once(room.engine, MaintenanceSchedule()) == 1
    with pytest.raises(TaskNotFound):
        await room.task(old.id)
    assert await room.task(new.id) == new


async def test_most_recent_ended_tasks_are_kept(open_room: OpenRoom) -> None:
    room = await open_room(ScriptedAgent(HI))
    tasks = [await room.ended(await room.send()) for _ in range(5)]
    assert await purge_once(room.engine, MaintenanceSchedule(keep_ended=2)) == 3
    for task in tasks[:3]:
        with pytest.raises(TaskNotFound):
            await room.task(task.id)
    assert await room.task(tasks[4].id) == tasks[4]


async def test_tasks_that_have_not_ended_are_never_forgotten(open_room: OpenRoom) -> None:
    agent = ControlledAgent()
    room = await open_room(agent)
    await room.send("works")
    working = await agent.next_run()
    sent = await room.send("waits")
    (await agent.next_run("waits")).end(InputRequired("?"))
    paused = await room.ended(sent)
    room.clock.advance(1000 * DAY)
    assert await purge_once(room.engine, MaintenanceSchedule(keep_ended=0)) == 0
    assert await room.state(working.turn.task_id) is TaskState.WORKING
    assert await room.state(paused.id) is TaskState.INPUT_REQUIRED


async def test_many_tasks_are_forgotten_in_one_sweep(open_room: OpenRoom) -> None:
    room = await open_room(ScriptedAgent(HI))
    for _ in range(600):
        await room.ended(await room.send())
    assert await purge_once(room.engine, MaintenanceSchedule(keep_ended=10)) == 590


async def test_tasks_are_kept_while_somebody_is_to_be_told_but_not_for_ever(
    open_room: OpenRoom,
) -> None:
    room = await open_room(ScriptedAgent(HI))
    task = await room.ended(await room.send())
    now = room.clock.now()
    waiting = Delivery(DeliveryId("d-1"), "push", task.id, b"{}", 0, now, now, now)
    assert await room.store.inner.deliveries.put_delivery(waiting, within=1)
    room.clock.advance(59 * DAY)
    assert await purge_once(room.engine, MaintenanceSchedule(keep_ended=0)) == 0
    assert await room.task(task.id) == task
    room.clock.advance(2 * DAY)
    assert await purge_once(room.engine, MaintenanceSchedule()) == 1
    assert await room.store.inner.deliveries.read_delivery(waiting.id) is None


async def test_message_ids_are_known_for_a_day(open_room: OpenRoom) -> None:
    agent = ScriptedAgent(HI)
    room = await open_room(agent)
    room.rules = HYBRID
    await room.outcome(await room.send(message_id="m"))
    room.clock.advance(DAY / 2)
    await purge_once(room.engine, MaintenanceSchedule())
    await room.outcome(await room.send(message_id="m"))
    assert len(agent.turns) == 1
    room.clock.advance(DAY)
    await purge_once(room.engine, MaintenanceSchedule())
    await room.outcome(await room.send(message_id="m"))
    assert len(agent.turns) == 2


async def test_sweeping_goes_on_by_itself(open_room: OpenRoom) -> None:
    room = await open_room(ScriptedAgent(HI))
    task = await room.ended(await room.send())
    job = room.engine.supervisor.spawn(
        "retention", purge_expired(room.engine, MaintenanceSchedule(sweep_s=60, ended_s=100))
    )
    await others_move()
    assert await room.task(task.id) == task
    for _ in range(2):
        await room.clock.one_round(61)
    with pytest.raises(TaskNotFound):
        await room.task(task.id)
    job.cancel()
