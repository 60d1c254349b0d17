"""Delivers what happens to tasks to durable subscribers: webhooks, callers and plan steps.

A delivery is a reader of its task's journal with a cursor in the store. Nothing is written when a
task changes: a commit only wakes the outbox, and after a restart whatever is behind its task is
found by its cursor. The phases of a delivery and its invariant are in `delivery_tracking`; the
`Outbox` is the one owner of all tracked deliveries.

Invariant of the whole
  1. A stored delivery that is not DEAD and has something to send is tracked, or its task is in
     `_to_check`, or the search in `_scan_page` has not reached it yet.
  2. A task is subscribed to wake-ups as long as a delivery of it is tracked.
"""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import islice

import msgspec

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.outbox.delivery_tracking import (
    ATTEMPTING,
    DeliveryChannel,
    DeliveryPolicy,
    Phase,
    Signal,
    TrackedDelivery,
)
from openclaw_a2a.engine.outbox.wakeups import Urgency
from openclaw_a2a.engine.supervisor import wait_event
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.delivery import Delivery, DeliveryId, DeliveryState, delivered_up_to
from openclaw_a2a.model.errors import CorruptRecord, DeliveryNotFound, GatewayError
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.ports import Delivered, DeliveryFailed

log = get_logger(__name__)

_NOTHING_FAILED = frozenset({DeliveryState.IDLE, DeliveryState.SKIPPED})
_PAGE_SIZE = 512
_TASKS_PER_ROUND = 32
_TIMERS_PER_ROUND = 256  # between rounds the rest of the gateway gets its turn
_BATCH_DELAY_S = 0.1  # artifact chunks come in bursts; one check after the burst serves them all
_MAX_WAIT_S = 60.0
_MIN_STALE_TIMERS = 1024  # fewer are not worth cleaning up
_STORE_RETRY_S = 1.0  # the worker pauses for this long after the store failed
_MISSING_RECHECK = timedelta(seconds=2)
STOP_GRACE_S = 1.0
"""How long attempts may go on after a stop; the next start repeats the ones that were cut off."""


class Outbox:
    """Runs the deliveries of one store.

    A delivery has at most one attempt at a time, and a receiver a bounded number.
    """

    def __init__(
        self,
        engine: Engine,
        channels: Mapping[str, DeliveryChannel],
        *,
        roll: Callable[[], float],
        stop_grace_s: float = STOP_GRACE_S,
    ) -> None:
        """`channels` by delivery kind; more may be added to the mapping before `start`.

        `roll` returns a random number from 0 to 1, for the jitter of retries.
        """
        self._engine = engine
        self._store = engine.store.deliveries
        self._channels = channels
        self._unknown_kind = DeliveryChannel(None, DeliveryPolicy())
        self._roll = roll
        self._stop_grace_s = stop_grace_s
        self._tracked: dict[DeliveryId, TrackedDelivery] = {}
        self._by_task: dict[TaskId, set[DeliveryId]] = {}
        self._to_check: dict[TaskId, None] = {}  # an ordered set: first changed, first checked
        self._delayed_checks: set[TaskId] = set()
        self._timers: list[tuple[datetime, DeliveryId]] = []
        self._seen_at = engine.clock.now()
        self._wake_worker = asyncio.Event()
        self._supervisor = engine.supervisor.child("outbox")
        self._worker: asyncio.Task[None] | None = None
        self._scan_after: DeliveryId | None = None
        """Behind which delivery the search for unfinished ones goes on; None: it is over."""
        self._must_scan = True
        """Search when the search under way is over: what it has passed may be ours since."""
        self._drops = 0
        engine.wakeups.set_listener(self._on_wakeup, partial(self._track, is_new=True))

    # ---------------------------------------------------------------- start and stop

    def start(self) -> None:
        """Start to deliver, beginning with what an earlier process left unfinished."""
        # A loop, not a job: if it ever dies, /readyz says so. Nothing would be delivered any more.
        self._worker = self._supervisor.run_loop("outbox", self._run_due_deliveries())

    async def stop(self) -> None:
        """Start no more attempts; let those under way end, and cancel the slow ones."""
        # The worker first: it would start new attempts in the slots of those that end.
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.cancel()
            await asyncio.wait({worker})
        attempts = {one.attempt for one in self._tracked.values() if one.attempt is not None}
        if attempts:
            await asyncio.wait(attempts, timeout=self._stop_grace_s)
        await self._supervisor.stop()

    async def _run_due_deliveries(self) -> None:
        while True:
            try:
                # First: a page that cannot be read must not keep changed tasks waiting.
                await self._check_tasks()
                if self._is_scanning:
                    await self._scan_page()
                wait_s = 0.0 if self._is_scanning or self._to_check else _MAX_WAIT_S
            except GatewayError as error:  # the store failed: read it again later
                log.warning("outbox.check_failed", reason=error.message)
                wait_s = _STORE_RETRY_S
            except Exception:  # the edge of the worker: it retries later
                log.exception("outbox.check_failed")
                wait_s = _STORE_RETRY_S
            # Nothing is awaited from here to the wait. So every wake-up up to now is served by this
            # round or shows in `wait_s`, and the event can be cleared: what the round itself has
            # queued leads to no further one. A wake-up from now on sets it again.
            if self._timers:
                self._fire_timers()
            self._start_attempts()
            if self._timers:
                until_timer = self._timers[0][0] - self._engine.clock.now()
                wait_s = min(wait_s, max(0.0, until_timer.total_seconds()))
            self._wake_worker.clear()
            await wait_event(self._wake_worker, wait_s)

    @property
    def _is_scanning(self) -> bool:
        return self._must_scan or self._scan_after is not None

    async def _scan_page(self) -> None:
        """Track what others left, a page at a time."""
        if self._scan_after is None:
            self._scan_after, self._must_scan = DeliveryId(""), False
        drops = self._drops
        page = await self._store.list_unfinished_deliveries(
            after=self._scan_after, limit=_PAGE_SIZE
        )
        self._scan_after = page.next_after  # now: a page that could not be read is read again
        if drops != self._drops:
            return  # they were this replica's when they were read
        for delivery in page.deliveries:
            tracked = self._tracked.get(delivery.id)
            # What is tracked already is sent without this; an attempt may just give it up.
            if tracked is None or tracked.phase in ATTEMPTING:
                self._track(delivery)

    def scan(self) -> None:
        """Look for unfinished deliveries: some of another replica may be ours now."""
        self._must_scan = True
        self._wake_worker.set()

    def drop(self) -> None:
        """Stop all deliveries: they are another replica's now."""
        self._drops += 1
        self._to_check.clear()
        for tracked in list(self._tracked.values()):
            attempt = tracked.attempt
            self._apply(tracked, Signal.REMOVE)
            if attempt is not None:
                attempt.cancel()

    # ---------------------------------------------------------------- public operations

    async def add_delivery(self, delivery: Delivery, *, max_per_task: int) -> bool:
        """Store a delivery and start to deliver it.

        False when its task has `max_per_task` others of its kind. Raises: TaskNotFound.
        """
        is_stored = await self._store.put_delivery(delivery, within=max_per_task)
        if is_stored:
            self._replace(delivery)
        return is_stored

    async def remove_delivery(self, delivery: Delivery) -> None:
        """Deliver nothing more; an attempt under way may still arrive."""
        # Stored first. After a crash in between it is removed; the other way round it would be
        # delivered again although its owner has the answer that it is gone.
        await self._store.delete_delivery(delivery.id)
        tracked = self._tracked.get(delivery.id)
        if tracked is not None:
            self._apply(tracked, Signal.REMOVE)

    async def redeliver(self, delivery_id: DeliveryId) -> Delivery:
        """Try a delivery again now that failed before. Raises: DeliveryNotFound."""
        delivery = await self._store.read_delivery(None, delivery_id)
        if delivery is None:
            raise _not_found(delivery_id)
        if delivery.state in _NOTHING_FAILED:
            return delivery
        now = self._engine.clock.now()
        fresh = msgspec.structs.replace(
            delivery, state=DeliveryState.WAITING, attempts=0, next_at=now, updated_at=now
        )
        if self._engine.replication is not None:  # another replica may have given it up
            await self._engine.replication.store.take_delivery(delivery_id)
        if not await self._store.update_delivery(fresh):
            raise _not_found(delivery_id)
        self._replace(fresh)
        return fresh

    def check_task(self, task_id: TaskId) -> None:
        """Check now whether there is something to deliver to the subscribers of a task."""
        self._to_check[task_id] = None
        self._wake_worker.set()

    # ---------------------------------------------------------------- finding work

    def _on_wakeup(self, task_id: TaskId, urgency: Urgency) -> None:
        if urgency is Urgency.HIGH:
            if self._wake_cached(task_id):
                self._start_if_running()
            else:
                self.check_task(task_id)
        elif task_id not in self._delayed_checks:
            # The first chunk of a burst starts the delay, the others find it running.
            self._delayed_checks.add(task_id)
            self._engine.loop.call_later(_BATCH_DELAY_S, self._on_delay_over, task_id)

    def _on_delay_over(self, task_id: TaskId) -> None:
        self._delayed_checks.discard(task_id)
        self.check_task(task_id)

    async def _check_tasks(self) -> None:
        """Check some tasks; the first ones are being sent before the last ones are checked."""
        for task_id in list(islice(self._to_check, _TASKS_PER_ROUND)):
            if self._wake_cached(task_id):
                self._to_check.pop(task_id, None)
                continue
            drops = self._drops
            deliveries = await self._store.list_task_deliveries(None, task_id, only_own=True)
            if drops != self._drops:
                return  # they were this replica's when they were read
            # Removed after the read, and before anything else is awaited: if the store fails the
            # task is checked again, and a wake-up from now on adds it again.
            self._to_check.pop(task_id, None)
            for delivery in deliveries:
                if delivery.state is not DeliveryState.DEAD:
                    self._track(delivery)

    def _wake_cached(self, task_id: TaskId) -> bool:
        """Wake the deliveries of a task without reading them; False when they have to be read."""
        known = self._by_task.get(task_id)
        if known is None:
            return False
        # Rows that only this outbox changes are all tracked: what it does not track is over.
        cached = [self._tracked[delivery_id].cached for delivery_id in known]
        found = [delivery for delivery in cached if delivery is not None]
        if len(found) < len(known):
            return False
        for delivery in found:
            self._track(delivery)
        return True

    def _track(self, delivery: Delivery, *, is_new: bool = False) -> None:
        """Have a delivery sent, now or when its time comes.

        `is_new`: it was stored just now, and what its task has to tell follows.
        """
        tracked = self._tracked.get(delivery.id)
        channel = self._channels.get(delivery.kind, self._unknown_kind)
        if tracked is None:
            tracked = self._tracked[delivery.id] = TrackedDelivery(delivery, channel)
            self._by_task.setdefault(delivery.task_id, set()).add(delivery.id)
            # Before the attempt reads the journal, so that no commit falls between the two.
            wants_all = not channel.final_states_only
            self._engine.wakeups.subscribe(delivery.task_id, every_event=wants_all)
        if channel.is_cacheable and tracked.attempt is None:
            tracked.cached = delivery
        if is_new:
            if delivery.next_at > delivery.created_at:
                self._apply(tracked, Signal.DEFER, due_at=delivery.next_at)
        elif delivery.state in _NOTHING_FAILED:
            self._apply(tracked, Signal.WAKE)
        else:
            # No delay is longer: a later time was stored while the clock was wrong.
            longest = timedelta(seconds=channel.policy.backoff.max_s)
            due_at = min(delivery.next_at, self._engine.clock.now() + longest)
            self._apply(tracked, Signal.DEFER, due_at=due_at)

    def _replace(self, delivery: Delivery) -> None:
        """Go on with a row that was stored just now."""
        self._reset(delivery)
        # Not by its task: that wakes what is tracked already, and may not read this row.
        self._track(delivery)
        self._start_if_running()

    def _reset(self, delivery: Delivery) -> None:
        tracked = self._tracked.get(delivery.id)
        if tracked is not None:
            tracked.cached = None
            tracked.receiver = tracked.channel.receiver(delivery)
            self._apply(tracked, Signal.RESET)

    # ---------------------------------------------------------------- the state machine

    def _apply(
        self, tracked: TrackedDelivery, signal: Signal, *, due_at: datetime | None = None
    ) -> None:
        """Move a delivery by the table, and do what entering its new phase means."""
        before, after = tracked.phase, tracked.next_phase(signal)
        tracked.phase = after
        if after is before:  # its queue entry or its timer exists already
            return
        if before in ATTEMPTING and after not in ATTEMPTING:
            tracked.attempt = None
            if tracked.slot is not None:
                tracked.channel.release(tracked.slot)
                tracked.slot = None
        if after is Phase.QUEUED:
            tracked.channel.enqueue(tracked.id, tracked.receiver, is_retry=signal is Signal.DUE)
        elif after is Phase.SCHEDULED:
            now = self._engine.clock.now()
            self._follow_clock(now)
            tracked.due_at = due_at or now
            if len(self._timers) > 2 * len(self._tracked) + _MIN_STALE_TIMERS:
                self._drop_stale_timers()
            heappush(self._timers, (tracked.due_at, tracked.id))
            if self._timers[0][1] == tracked.id:  # otherwise the worker wakes early enough
                self._wake_worker.set()
        elif after is Phase.GONE:
            del self._tracked[tracked.id]
            others = self._by_task[tracked.task_id]
            others.discard(tracked.id)
            if not others:
                del self._by_task[tracked.task_id]
                self._engine.wakeups.unsubscribe(tracked.task_id)

    def _follow_clock(self, now: datetime) -> None:
        """Move the timers with a clock that was set back: their delays stay what they were."""
        back, self._seen_at = self._seen_at - now, now
        if back > timedelta():
            for tracked in self._tracked.values():
                if tracked.due_at is not None:
                    tracked.due_at -= back
            # In the same order, so still a heap.
            self._timers = [(due_at - back, one) for due_at, one in self._timers]

    def _drop_stale_timers(self) -> None:
        """Most deliveries are sent before their time: their timers would be kept until then."""
        self._timers = [
            (due_at, delivery_id)
            for due_at, delivery_id in self._timers
            if (tracked := self._tracked.get(delivery_id)) is not None
            and (tracked.phase, tracked.due_at) == (Phase.SCHEDULED, due_at)
        ]
        heapify(self._timers)

    def _fire_timers(self) -> None:
        now, left = self._engine.clock.now(), _TIMERS_PER_ROUND
        self._follow_clock(now)
        while left and self._timers and self._timers[0][0] <= now:
            left -= 1
            due_at, delivery_id = heappop(self._timers)
            tracked = self._tracked.get(delivery_id)
            # A timer stays in the heap when its delivery is sent early or rescheduled; such a timer
            # is ignored here.
            is_scheduled = tracked is not None and tracked.phase is Phase.SCHEDULED
            if tracked is not None and is_scheduled and tracked.due_at == due_at:
                self._apply(tracked, Signal.DUE)

    # ---------------------------------------------------------------- attempts

    def _start_if_running(self) -> None:
        """Start attempts now instead of in the next round of the worker."""
        if self._worker is not None:
            self._start_attempts()

    def _start_attempts(self) -> None:
        """Start what waits and finds a slot."""
        for channel in (*self._channels.values(), self._unknown_kind):
            if not channel.has_waiting:
                continue
            for slot in channel.acquire():
                tracked = self._tracked.get(slot.item)
                if tracked is None or tracked.phase is not Phase.QUEUED:
                    channel.release(slot)
                    continue
                self._apply(tracked, Signal.START)
                tracked.slot = slot
                tracked.attempt = self._supervisor.spawn("outbox-attempt", self._attempt(tracked))

    async def _attempt(self, tracked: TrackedDelivery) -> None:
        # Used only when the attempt is cancelled, because the gateway stops. The stored row is
        # unchanged, so the next process makes the attempt again.
        signal, due_at = Signal.SENT, None
        try:
            signal, due_at = await self._send_once(tracked)
        except Exception as error:  # the edge of an attempt: a store that fails is asked later
            log.warning("outbox.result_not_saved", delivery_id=tracked.id, reason=str(error))
            pause = timedelta(seconds=tracked.channel.policy.backoff.first_s)
            signal, due_at = Signal.RETRY, self._engine.clock.now() + pause
        finally:
            self._apply(tracked, signal, due_at=due_at)
            self._start_if_running()  # the next one, in the slot that is free now

    async def _send_once(self, tracked: TrackedDelivery) -> tuple[Signal, datetime | None]:
        delivery = tracked.cached
        if delivery is None:
            delivery = await self._store.read_delivery(None, tracked.id, only_own=True)
        if delivery is None or delivery.state is DeliveryState.DEAD:
            return Signal.DONE, None
        if tracked.unsaved is not None and tracked.unsaved[0] == delivery.body:
            # The receiver has it already; only the cursor is missing. What came since then has
            # not been sent, so this attempt counts as stale.
            result = tracked.unsaved[1]
            self._apply(tracked, Signal.WAKE)
        else:
            result = await self._send(tracked, delivery)
        if result is None:
            return await self._save_missing(tracked, delivery)
        # Kept until it is saved: a result that the store refuses must not be sent again.
        tracked.unsaved, tracked.was_missing = (delivery.body, result), False
        if isinstance(result, Delivered):
            outcome = await self._save_success(tracked, delivery, result)
        else:
            outcome = await self._save_failure(tracked, delivery, result)
        tracked.unsaved = None
        return outcome

    async def _send(
        self, tracked: TrackedDelivery, delivery: Delivery
    ) -> Delivered | DeliveryFailed | None:
        channel = tracked.channel
        if channel.sender is None:
            reason = f"this gateway delivers nothing of kind {delivery.kind!r}"
            return DeliveryFailed(reason, is_final=True)
        body, seen = tracked.seen
        if body == delivery.body and seen > delivery.cursor:
            delivery = msgspec.structs.replace(delivery, cursor=seen)
        limit = channel.policy.attempt_timeout_s
        try:
            if limit is None:
                return await channel.sender.send(delivery)
            async with asyncio.timeout(limit):
                return await channel.sender.send(delivery)
        except TimeoutError:
            took = "too long" if limit is None else f"longer than {limit:g} s"
            return DeliveryFailed(f"it took {took}")
        except CorruptRecord as error:
            # Its task is damaged, now and in an hour: an operator repairs it and redelivers.
            return DeliveryFailed(error.message, is_final=True)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            # Senders decode what is stored, and nothing else: its own body is damaged.
            log.warning("outbox.delivery_damaged", delivery_id=delivery.id, reason=str(error))
            return DeliveryFailed(f"its stored form is damaged: {error}", is_final=True)
        except GatewayError:
            # The gateway's store failed, not the receiver: `_attempt` tries again soon and counts
            # no attempt.
            raise
        except Exception as error:  # one broad catch: a sender that breaks must not stop others
            log.exception("outbox.sender_failed", delivery_id=delivery.id, kind=delivery.kind)
            return DeliveryFailed(f"the gateway failed to deliver it: {type(error).__name__}")

    async def _save_success(
        self, tracked: TrackedDelivery, delivery: Delivery, result: Delivered
    ) -> tuple[Signal, datetime | None]:
        if result.saved is None and (result.is_sent or delivery.state is DeliveryState.WAITING):
            now = self._engine.clock.now()
            skipped, attempts = result.skipped, 0
            if skipped is not None:
                attempts = delivery.attempts + 1
                if attempts >= tracked.channel.policy.max_attempts:
                    return await self._save_failure(tracked, delivery, DeliveryFailed(skipped))
                log.warning(
                    "outbox.notification_skipped",
                    delivery_id=delivery.id,
                    task_id=delivery.task_id,
                    receiver=tracked.receiver,
                    reason=skipped,
                )
            elif delivery.state is DeliveryState.SKIPPED:
                skipped = delivery.reason  # what follows does not make up for it
            saved = delivered_up_to(
                delivery, result.cursor, now=now, skipped=skipped, attempts=attempts
            )
            if not await self._save(tracked, saved):
                return Signal.DONE, None
        if result.saved is not None and tracked.cached is not None:
            tracked.cached = result.saved
        # What was looked at and not worth sending is not saved: after a restart it is looked at
        # again, which is cheaper than a write for each chunk of an artifact.
        tracked.seen = (delivery.body, result.cursor)
        if result.has_more:
            return Signal.MORE, None
        if result.is_over:
            return Signal.DONE, None
        if result.next_check_at is not None:
            return Signal.CHECK_LATER, result.next_check_at
        return Signal.SENT, None

    async def _save_missing(
        self, tracked: TrackedDelivery, delivery: Delivery
    ) -> tuple[Signal, datetime | None]:
        """Its task is not there yet, or never will be: then delete the delivery."""
        if self._engine.has_run(delivery.task_id):
            return Signal.SENT, None  # the end of that run wakes the outbox
        replication = self._engine.replication
        if replication is not None:
            has_run = await replication.store.find_owner(delivery.task_id) is not None
            was_missing, tracked.was_missing = tracked.was_missing, not has_run
            if has_run or not was_missing:  # the run may have ended, with a task, between two reads
                # No notification comes when a run elsewhere ends without a task.
                return Signal.CHECK_LATER, self._engine.clock.now() + _MISSING_RECHECK
        await self._store.delete_delivery(delivery.id)
        return Signal.DONE, None

    async def _save_failure(
        self, tracked: TrackedDelivery, delivery: Delivery, failed: DeliveryFailed
    ) -> tuple[Signal, datetime | None]:
        attempts, policy = delivery.attempts + 1, tracked.channel.policy
        now = self._engine.clock.now()
        is_dead = failed.is_final or attempts >= policy.max_attempts
        delay_s = policy.backoff.delay_s(
            attempts, roll=self._roll(), retry_after_s=failed.retry_after_s
        )
        saved = msgspec.structs.replace(
            delivery,
            state=DeliveryState.DEAD if is_dead else DeliveryState.WAITING,
            attempts=attempts,
            next_at=now + timedelta(seconds=delay_s),
            updated_at=now,
            reason=failed.reason,
        )
        if not await self._save(tracked, saved):
            return Signal.DONE, None
        if not is_dead:
            return Signal.RETRY, saved.next_at
        log.warning(
            "outbox.delivery_given_up",
            delivery_id=delivery.id,
            task_id=delivery.task_id,
            receiver=tracked.receiver,
            attempts=attempts,
            reason=failed.reason,
        )
        return Signal.DONE, None

    async def _save(self, tracked: TrackedDelivery, delivery: Delivery) -> bool:
        """Save the row; False when it is gone, or replaced by one with another body and cursor."""
        is_saved = await self._store.update_delivery(delivery)
        if tracked.cached is not None:
            tracked.cached = delivery if is_saved else None
        return is_saved


def _not_found(delivery_id: DeliveryId) -> DeliveryNotFound:
    return DeliveryNotFound(
        f"there is no delivery {delivery_id[:80]!r}; `openclaw-a2a deliveries list` shows those "
        "that failed"
    )
