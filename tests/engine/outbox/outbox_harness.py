"""An outbox over a real engine and store, with a sender whose attempts a test ends."""

import asyncio
from datetime import timedelta

import msgspec
from tests.engine.harness import Harness, in_time

from openclaw_a2a.engine.outbox.delivery_tracking import (
    ATTEMPTING,
    DeliveryChannel,
    DeliveryPolicy,
    Phase,
    TrackedDelivery,
)
from openclaw_a2a.engine.outbox.outbox import Outbox
from openclaw_a2a.model.backoff import Backoff
from openclaw_a2a.model.delivery import Delivery, DeliveryId, DeliveryState
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.ports import Delivered, DeliveryFailed

Result = Delivered | DeliveryFailed | Exception | None
KIND = "test"
POLICY = DeliveryPolicy(backoff=Backoff(first_s=1.0, max_s=8.0, jitter=0.0), max_parallel=4)


class ControlledSender:
    """Every attempt waits until the test gives its result."""

    def __init__(self) -> None:
        self.attempts: list[tuple[Delivery, asyncio.Future[Result]]] = []
        self.has_started = asyncio.Event()

    def receiver(self, delivery: Delivery) -> str:
        return delivery.body.decode()

    async def send(self, delivery: Delivery) -> Delivered | DeliveryFailed | None:
        result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.attempts.append((delivery, result))
        self.has_started.set()
        answer = await result
        if isinstance(answer, Exception):
            raise answer
        return answer

    def end(self, result: Result) -> None:
        """End the newest attempt."""
        self.attempts[-1][1].set_result(result)


class OutboxHarness:
    """One delivery, moved by real operations; the outbox's worker does not run by itself."""

    def __init__(self, harness: Harness, task_id: str) -> None:
        self.harness = harness
        self.sender = ControlledSender()
        self.channel = DeliveryChannel(self.sender, POLICY)
        self.outbox = Outbox(harness.engine, {KIND: self.channel}, roll=lambda: 0.0)
        now = harness.clock.now()
        self.row = Delivery(DeliveryId("d"), KIND, TaskId(task_id), b"peer", 0, now, now, now)

    @property
    def tracked(self) -> TrackedDelivery | None:
        return self.outbox._tracked.get(self.row.id)

    @property
    def phase(self) -> Phase:
        return Phase.GONE if self.tracked is None else self.tracked.phase

    async def put_row(self, state: DeliveryState = DeliveryState.IDLE) -> None:
        """Store the row as another process of the outbox would find it."""
        next_at = self.harness.clock.now() + timedelta(seconds=5)
        row = msgspec.structs.replace(self.row, state=state, next_at=next_at)
        assert await self.harness.store.deliveries.put_delivery(row, within=9)

    async def check(self) -> None:
        """Let the outbox check the task."""
        self.outbox.check_task(self.row.task_id)
        await self.outbox._check_tasks()

    async def start(self) -> None:
        """Let the outbox start the attempts it has slots for."""
        self.sender.has_started.clear()
        self.outbox._start_attempts()
        await in_time(self.sender.has_started.wait())

    async def end(self, result: Result) -> None:
        """End the attempt under way."""
        assert self.tracked is not None and self.tracked.attempt is not None
        attempt = self.tracked.attempt
        self.sender.end(result)
        await asyncio.wait({attempt})

    def check_invariant(self) -> None:
        """What `delivery_tracking` and `outbox` promise at the top of their files."""
        outbox, channel = self.outbox, self.channel
        queued = channel._first_tries.waiting | channel._retries.waiting
        for tracked in outbox._tracked.values():
            is_attempting = tracked.phase in ATTEMPTING
            assert (tracked.attempt is not None) == is_attempting
            assert (tracked.slot is not None) == is_attempting
            assert tracked.phase is not Phase.QUEUED or tracked.id in queued
            if tracked.phase is Phase.SCHEDULED:
                assert (tracked.due_at, tracked.id) in outbox._timers
        attempting = [one for one in outbox._tracked.values() if one.attempt is not None]
        assert channel._held == len(attempting)
        assert {one.task_id for one in outbox._tracked.values()} == set(outbox._by_task)
        assert set(outbox._by_task) <= self.harness.engine.wakeups.subscribed
