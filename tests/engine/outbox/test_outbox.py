"""The outbox over an engine: a wake-up is never lost, and no commit goes unnoticed."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from tests.engine.conftest import OpenHarness
from tests.engine.controlled_agent import ControlledAgent, ScriptedAgent
from tests.engine.harness import ALICE, HYBRID, Harness, in_time
from tests.engine.outbox.outbox_harness import KIND, ControlledSender, OutboxHarness

from openclaw_a2a.engine.maintenance import maintain
from openclaw_a2a.engine.outbox.delivery_tracking import (
    DeliveryChannel,
    DeliveryPolicy,
    Phase,
    Signal,
)
from openclaw_a2a.engine.outbox.outbox import Outbox
from openclaw_a2a.engine.tasks.results import wait_final_result
from openclaw_a2a.engine.tasks.submit import SubmitRequest, submit
from openclaw_a2a.model.agent_event import Reply
from openclaw_a2a.model.delivery import Delivery, DeliveryId, DeliveryState
from openclaw_a2a.model.errors import StoreUnavailable
from openclaw_a2a.model.ids import MessageId, TaskId
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.ports import Delivered, DeliveryFailed, TaskStore

SENT = Delivered(1)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[OutboxHarness]:
    harness = Harness("memory", tmp_path, ScriptedAgent(Reply.of_text("hi")))
    await harness.open()
    task = await harness.ended(await harness.send())
    yield OutboxHarness(harness, task.id)
    await harness.close()


async def test_a_wakeup_during_an_attempt_is_followed_by_another_attempt(
    rig: OutboxHarness,
) -> None:
    await rig.put_row()
    await rig.check()
    await rig.start()
    await rig.check()
    await rig.end(SENT)
    assert rig.phase is Phase.QUEUED
    await rig.start()
    assert len(rig.sender.attempts) == 2


async def test_a_delivery_that_comes_with_its_message_is_not_attempted_before_its_time(
    rig: OutboxHarness,
) -> None:
    due_at = rig.harness.clock.now() + timedelta(seconds=5)
    row = msgspec.structs.replace(rig.row, next_at=due_at)
    rig.harness.engine.wakeups.add_delivery(row)
    assert rig.phase is Phase.SCHEDULED
    rig.outbox._fire_timers()
    assert rig.phase is Phase.SCHEDULED
    rig.harness.clock.advance(5)
    rig.outbox._fire_timers()
    assert rig.phase is Phase.QUEUED
    assert not rig.sender.attempts
    rig.check_invariant()


@pytest.mark.parametrize("operation", ["add", "redeliver"])
async def test_a_delivery_is_sent_whose_task_has_another_one_that_need_not_be_read(
    rig: OutboxHarness, operation: str
) -> None:
    cached = DeliveryChannel(ControlledSender(), DeliveryPolicy(), is_cacheable=True)
    rig.outbox._channels["cached"] = cached  # pyright: ignore[reportIndexIssue] - as wired
    other = msgspec.structs.replace(rig.row, id=DeliveryId("other"), kind="cached")
    assert await rig.outbox.add_delivery(other, max_per_task=9)
    await rig.outbox._check_tasks()
    if operation == "add":
        assert await rig.outbox.add_delivery(rig.row, max_per_task=9)
    else:
        await rig.put_row(DeliveryState.DEAD)
        await rig.outbox.redeliver(rig.row.id)
    await rig.outbox._check_tasks()
    rig.outbox._fire_timers()
    assert rig.phase is Phase.QUEUED


async def test_progress_that_the_sender_has_stored_is_not_stored_again(rig: OutboxHarness) -> None:
    await rig.put_row()
    await rig.check()
    await rig.start()

    def refuse(_delivery: Delivery) -> "asyncio.Future[bool]":
        raise AssertionError("it is stored already")

    rig.outbox._store.update_delivery = refuse  # pyright: ignore[reportAttributeAccessIssue] - a guard
    await rig.end(Delivered(1, is_over=True, saved=rig.row))
    assert rig.phase is Phase.GONE


async def test_timers_of_deliveries_that_are_over_are_dropped(rig: OutboxHarness) -> None:
    due_at = rig.harness.clock.now() + timedelta(hours=1)
    for number in range(5000):
        row = msgspec.structs.replace(rig.row, id=DeliveryId(f"d{number}"), next_at=due_at)
        rig.harness.engine.wakeups.add_delivery(row)
        rig.outbox._apply(rig.outbox._tracked[row.id], Signal.REMOVE)
    assert len(rig.outbox._timers) < 2000
    rig.check_invariant()


async def test_a_result_that_could_not_be_saved_is_saved_later_and_not_sent_again(
    rig: OutboxHarness,
) -> None:
    await rig.put_row()
    await rig.check()
    await rig.start()
    save = rig.outbox._store.update_delivery

    def refuse(_delivery: Delivery) -> "asyncio.Future[bool]":
        raise StoreUnavailable("the disk is full")

    rig.outbox._store.update_delivery = refuse  # pyright: ignore[reportAttributeAccessIssue] - a fault
    await rig.end(SENT)
    assert rig.phase is Phase.SCHEDULED
    rig.outbox._store.update_delivery = save  # pyright: ignore[reportAttributeAccessIssue] - mended
    rig.harness.clock.advance(2)
    rig.outbox._fire_timers()
    rig.outbox._start_attempts()
    assert rig.tracked is not None and rig.tracked.attempt is not None
    await asyncio.wait({rig.tracked.attempt})
    assert len(rig.sender.attempts) == 1, "the receiver has it already"
    row = await rig.harness.store.deliveries.read_delivery(None, rig.row.id)
    assert row.cursor == 1
    assert rig.phase is Phase.QUEUED, "what came since then has not been sent"


async def test_a_retry_keeps_its_delay_when_the_clock_is_set_back(rig: OutboxHarness) -> None:
    await rig.put_row()
    await rig.check()
    await rig.start()
    rig.outbox._fire_timers()
    await rig.end(DeliveryFailed("the receiver is down"))
    assert rig.phase is Phase.SCHEDULED
    rig.harness.clock.advance(-86_400)
    rig.outbox._fire_timers()
    assert rig.phase is Phase.SCHEDULED, "not early"
    rig.harness.clock.advance(3_600)
    rig.outbox._fire_timers()
    assert rig.phase is not Phase.SCHEDULED, "and not a day late"


async def test_a_delivery_that_is_added_again_during_an_attempt_has_no_second_one_beside_it(
    rig: OutboxHarness,
) -> None:
    await rig.put_row()
    await rig.check()
    await rig.start()
    await rig.outbox.remove_delivery(rig.row)
    assert await rig.outbox.add_delivery(rig.row, max_per_task=9)
    await rig.outbox._check_tasks()
    rig.outbox._start_attempts()
    await asyncio.sleep(0)
    assert len(rig.sender.attempts) == 1
    await rig.end(SENT)
    await rig.start()
    assert len(rig.sender.attempts) == 2


class RecordingSender:
    """Records in which state each attempt finds the task."""

    def __init__(self, tasks: TaskStore) -> None:
        self._tasks = tasks
        self.states: list[TaskState | None] = []
        self.has_failed = asyncio.Event()

    def receiver(self, delivery: Delivery) -> str:
        return delivery.kind

    async def send(self, delivery: Delivery) -> Delivered | None:
        stored = await self._tasks.read_task(None, delivery.task_id)
        self.states.append(None if stored is None else stored.head.state)
        if stored is None:
            return None
        if stored.head.state is TaskState.FAILED:
            self.has_failed.set()
        return Delivered(stored.head.sequence, is_over=stored.head.state is TaskState.FAILED)


@pytest.mark.requirement("promise.push.durable")
async def test_recovery_of_a_failed_direct_answer_wakes_its_subscribers(
    open_harness: OpenHarness,
) -> None:
    """The store refuses the end of a direct run; maintenance makes a failed task of it later."""
    agent = ControlledAgent()
    harness = await open_harness(agent)
    engine = harness.engine
    sender = RecordingSender(harness.store.tasks)
    channels = {KIND: DeliveryChannel(sender, DeliveryPolicy())}
    outbox = Outbox(engine, channels, roll=lambda: 0.0)
    outbox.start()
    now = harness.clock.now()

    def make_delivery(task_id: TaskId, cursor: int) -> Delivery:
        return Delivery(DeliveryId("d"), KIND, task_id, b"", cursor, now, now, now)

    message = Message(MessageId("m"), Role.USER, (Part.of_text("hello"),))
    request = SubmitRequest(ALICE, message, make_delivery=make_delivery)
    sent = await submit(engine, request, HYBRID)
    run = await agent.next_run()
    await harness.store_is_quiet()
    harness.store.refuse("finish_run")
    run.end(Reply.of_text("hi"))
    with pytest.raises(StoreUnavailable):
        await in_time(wait_final_result(engine, sent))
    harness.store.refuse()
    await maintain(engine)
    await in_time(sender.has_failed.wait())
    assert sender.states[-1] is TaskState.FAILED
    await outbox.stop()
