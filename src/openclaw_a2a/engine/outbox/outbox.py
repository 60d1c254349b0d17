"""Brings deliveries to their receivers: in order, and again after a failure, up to a point.

A delivery is a reader of its task's journal with a cursor in the store. Nothing is written when
the task moves on; a commit only wakes the outbox, and after a restart whatever is behind its task
is found by its cursor.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from heapq import heappop, heappush
from itertools import islice
from typing import NamedTuple

import msgspec

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.outbox.delivery_channel import DeliveryChannel, DeliveryPolicy, pause_s
from openclaw_a2a.engine.scheduling.fair_queue import FairQueue
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.delivery import Delivery, DeliveryId, DeliveryState
from openclaw_a2a.model.errors import DeliveryNotFound, GatewayError
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.ports import Delivered, DeliveryFailed

log = get_logger(__name__)


class Way(NamedTuple):
    """How a delivery goes: with which others, and to whom."""

    round: DeliveryChannel
    lane: str


_PAGE = 512
_AT_ONCE = 32
_RUNG_AT_ONCE = 256
"""Between so many, whatever else goes on in the gateway has its turn."""
_LULL_S = 0.1
"""Pieces of artifacts come in bursts; one look after so long serves them all."""
_LONGEST_WAIT_S = 60.0
STOP_GRACE_S = 1.0
"""How long deliveries under way may usually go on after a stop; the next start repeats the rest."""


class Outbox:
    """The deliveries of one store. One try at a time for each, few for each receiver."""

    def __init__(
        self,
        engine: Engine,
        rounds: Mapping[str, DeliveryChannel],
        *,
        roll: Callable[[], float],
        last_tries_s: float = STOP_GRACE_S,
    ) -> None:
        """`rounds` are those of the kinds that are brought here."""
        self._engine = engine
        self._store = engine.store
        self._rounds = rounds
        self._unknown = DeliveryChannel(None, DeliveryPolicy())
        self._roll = roll
        self._last_tries_s = last_tries_s
        self._timers: list[tuple[datetime, DeliveryId]] = []
        self._timed: dict[DeliveryId, tuple[datetime, Way]] = {}
        """When each delivery is tried again that failed or waits for its time, and its way."""
        self._flights: dict[DeliveryId, asyncio.Task[None]] = {}
        self._missed_calls: set[DeliveryId] = set()
        """Deliveries under way that were asked for again."""
        self._changed: dict[TaskId, None] = {}
        """Tasks to look at, in the order of their changes."""
        self._soon: set[TaskId] = set()
        self._task_of: dict[DeliveryId, TaskId] = {}
        self._known: dict[DeliveryId, Delivery] = {}
        """Deliveries that nobody else changes, as they were last read or kept."""
        self._open: Counter[TaskId] = Counter()
        """How many deliveries of a watched task expect more."""
        self._seen: dict[DeliveryId, tuple[bytes, int]] = {}
        """The body of a delivery, and how far it has looked without a need to note it."""
        self._unnoted: dict[DeliveryId, tuple[bytes, Delivered | DeliveryFailed | None]] = {}
        """The body of a delivery, and what its last try came to, until that is noted."""
        self._signal = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        engine.wakeups.set_listener(self._note)

    # ---------------------------------------------------------------- life

    def start(self) -> None:
        """Begin to bring; what an earlier life left behind comes too."""
        self._worker = asyncio.get_running_loop().create_task(self._work())

    async def stop(self) -> None:
        """Begin nothing more, let what is under way end, and break off what takes too long."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.wait({self._worker})
            self._worker = None
        flights = set(self._flights.values())
        if flights:
            _, slow = await asyncio.wait(flights, timeout=self._last_tries_s)
            for flight in slow:
                flight.cancel()
            await asyncio.wait(flights)

    async def _work(self) -> None:
        after: DeliveryId | None = DeliveryId("")
        while True:
            self._signal.clear()
            try:
                after = await self._find_unfinished(after)
                await self._look_at_changed()
                has_more = after is not None or bool(self._changed)
                wait_s = 0.0 if has_more else _LONGEST_WAIT_S
            except Exception:  # the edge of the worker, which must live on
                log.exception("outbox-cannot-look")
                wait_s = self._unknown.rules.first_delay_s
            self._ring_timers()
            self._launch()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(wait_s, self._until_timer_s())):
                    await self._signal.wait()

    # ---------------------------------------------------------------- what others ask for

    async def add_delivery(self, delivery: Delivery, *, within: int) -> bool:
        """Keep a delivery and begin to bring it; False when its task has `within` others.

        Raises: LeaseLost (there is no such task).
        """
        is_kept = await self._store.put_delivery(delivery, within=within)
        if is_kept:
            self._timed.pop(delivery.id, None)
            self._note(delivery.task_id, True)
        return is_kept

    async def remove_delivery(self, delivery: Delivery) -> None:
        """Bring nothing more; what is under way may still arrive."""
        await self._store.drop_delivery(delivery.id)
        self._let_go(delivery.id)

    async def redeliver(self, delivery_id: DeliveryId) -> Delivery:
        """Try a delivery again now that failed before. Raises: DeliveryNotFound."""
        delivery = await self._store.read_delivery(delivery_id)
        if delivery is None:
            raise _not_found(delivery_id)
        if delivery.state is DeliveryState.IDLE:
            return delivery
        now = self._engine.clock.now()
        fresh = msgspec.structs.replace(
            delivery, state=DeliveryState.WAITING, attempts=0, next_at=now, updated_at=now
        )
        if not await self._save(fresh):
            raise _not_found(delivery_id)
        self._timed.pop(delivery_id, None)
        self._note(delivery.task_id, True)
        return fresh

    def check_task(self, task_id: TaskId) -> None:
        """Look now whether there is something to bring to those who follow a task."""
        self._note(task_id, True)

    # ---------------------------------------------------------------- what is there to do

    def _note(self, task_id: TaskId, is_urgent: bool) -> None:
        """A task with deliveries may have changed."""
        if is_urgent:
            self._changed[task_id] = None
            self._signal.set()
        elif task_id not in self._soon:
            self._soon.add(task_id)
            self._engine.loop.call_later(_LULL_S, self._note_late, task_id)

    def _note_late(self, task_id: TaskId) -> None:
        self._soon.discard(task_id)
        self._note(task_id, True)

    async def _find_unfinished(self, after: DeliveryId | None) -> DeliveryId | None:
        """Take up a page of what was unfinished at the start; where to go on, None at the end."""
        if after is None:
            return None
        page = await self._store.read_unfinished(after=after, limit=_PAGE)
        for delivery in page.deliveries:
            self._want(delivery)
        return page.next_after

    async def _look_at_changed(self) -> None:
        """Look at some; the first are on their way before the last are looked at."""
        for task_id in list(islice(self._changed, _AT_ONCE)):
            deliveries = await self._store.read_deliveries(task_id)
            self._changed.pop(task_id, None)
            wanted = [one for one in deliveries if one.state is not DeliveryState.DEAD]
            for delivery in wanted:
                self._want(delivery)
            if not wanted and task_id not in self._open:
                self._engine.wakeups.unsubscribe(task_id)

    def _want(self, delivery: Delivery) -> None:
        """Have a delivery tried, now or when its time comes."""
        delivery_id, task_id = delivery.id, delivery.task_id
        own = self._round(delivery)
        self._engine.wakeups.subscribed.add(task_id)
        if not own.only_ends:
            self._engine.wakeups.wants_every_event.add(task_id)
        if delivery_id not in self._task_of:
            self._task_of[delivery_id] = task_id
            self._open[task_id] += 1
        if delivery_id in self._flights:
            self._missed_calls.add(delivery_id)
            return
        if own.is_steady:
            self._known[delivery_id] = delivery
        if delivery.state is DeliveryState.IDLE:
            own.fresh.add(delivery_id, own.receiver(delivery))
        elif delivery_id not in self._timed and delivery_id not in own.again:
            self._set_timer(delivery_id, delivery.next_at, Way(own, own.receiver(delivery)))

    def _round(self, delivery: Delivery) -> DeliveryChannel:
        return self._rounds.get(delivery.kind, self._unknown)

    def _set_timer(self, delivery_id: DeliveryId, moment: datetime, way: "Way") -> None:
        known, _ = self._timed.get(delivery_id, (None, way))
        self._timed[delivery_id] = (moment, way)
        if known != moment:  # whoever only waits for its time is asked for often
            heappush(self._timers, (moment, delivery_id))
            self._signal.set()

    def _ring_timers(self) -> None:
        """Let those go whose time has come; the first are on their way before the last are."""
        now, left = self._engine.clock.now(), _RUNG_AT_ONCE
        while left and self._timers and self._timers[0][0] <= now:
            left -= 1
            moment, delivery_id = heappop(self._timers)
            timed = self._timed.get(delivery_id)
            if timed is not None and timed[0] == moment:  # otherwise set anew, or not needed
                del self._timed[delivery_id]
                timed[1].round.again.add(delivery_id, timed[1].lane)

    def _until_timer_s(self) -> float:
        if not self._timers:
            return _LONGEST_WAIT_S
        return max(0.0, (self._timers[0][0] - self._engine.clock.now()).total_seconds())

    # ---------------------------------------------------------------- bringing

    def _launch(self) -> None:
        for own in (*self._rounds.values(), self._unknown):
            for queue, delivery_id, lane in own.take():
                self._fly(queue, delivery_id, Way(own, lane))

    def _fly(self, queue: FairQueue[DeliveryId], delivery_id: DeliveryId, way: Way) -> None:
        if delivery_id in self._flights:
            way.round.leave(queue, way.lane)
            self._missed_calls.add(delivery_id)
            return
        flight = self._engine.loop.create_task(self._try(delivery_id, way))
        self._flights[delivery_id] = flight
        flight.add_done_callback(lambda _: self._land(queue, delivery_id, way))

    def _land(self, queue: FairQueue[DeliveryId], delivery_id: DeliveryId, way: Way) -> None:
        del self._flights[delivery_id]
        way.round.leave(queue, way.lane)
        task_id = self._task_of.get(delivery_id)
        if delivery_id in self._missed_calls and task_id is not None:
            self._changed[task_id] = None
        self._missed_calls.discard(delivery_id)
        self._signal.set()

    async def _try(self, delivery_id: DeliveryId, way: Way) -> None:
        self._missed_calls.discard(delivery_id)
        try:
            delivery = self._known.get(delivery_id)
            if delivery is None:
                delivery = await self._store.read_delivery(delivery_id)
            if delivery is None or delivery.state is DeliveryState.DEAD:
                self._let_go(delivery_id)
                return
            body, result = self._unnoted.get(delivery_id, (b"", None))
            if body == delivery.body:  # noted only now, and whoever asked for a look has none yet
                self._missed_calls.add(delivery_id)
            else:
                result = await self._bring(delivery)
            self._unnoted[delivery_id] = (delivery.body, result)
            await self._settle(delivery, result, way)
            self._unnoted.pop(delivery_id, None)
        except Exception as error:  # the edge of a try: a store that fails is asked again later
            log.warning("delivery-not-noted", delivery_id=delivery_id, reason=str(error))
            pause = timedelta(seconds=way.round.rules.first_delay_s)
            self._set_timer(delivery_id, self._engine.clock.now() + pause, way)

    async def _bring(self, delivery: Delivery) -> Delivered | DeliveryFailed | None:
        own = self._round(delivery)
        if own.sender is None:
            return DeliveryFailed(
                f"this gateway brings nothing of kind {delivery.kind!r}", is_final=True
            )
        body, seen = self._seen.get(delivery.id, (b"", -1))
        cursor = max(delivery.cursor, seen) if body == delivery.body else delivery.cursor
        limit = own.rules.attempt_timeout_s
        try:
            async with asyncio.timeout(limit):
                return await own.sender.send(msgspec.structs.replace(delivery, cursor=cursor))
        except TimeoutError:
            return DeliveryFailed(
                "it took too long" if limit is None else f"it took longer than {limit:g} s"
            )
        except GatewayError:
            raise
        except Exception as error:  # one broad catch: a courier that breaks must not stop others
            log.exception("courier-broken", delivery_id=delivery.id, kind=delivery.kind)
            return DeliveryFailed(f"the gateway failed to bring it: {type(error).__name__}")

    async def _settle(
        self, delivery: Delivery, result: Delivered | DeliveryFailed | None, way: Way
    ) -> None:
        if result is None:
            await self._settle_homeless(delivery)
        elif isinstance(result, DeliveryFailed):
            await self._settle_missed(delivery, result, way)
        else:
            await self._settle_brought(delivery, result, way)

    async def _settle_homeless(self, delivery: Delivery) -> None:
        """Its task is not there: about to come to be, or gone, or it never was one."""
        records = [run.record for run in self._engine.runs.values()] + self._engine.abandoned
        if not any(record.task_id == delivery.task_id for record in records):
            await self.remove_delivery(delivery)

    async def _settle_brought(self, delivery: Delivery, result: Delivered, way: Way) -> None:
        if result.is_sent or delivery.state is DeliveryState.WAITING:
            now = self._engine.clock.now()
            saved = msgspec.structs.replace(
                delivery,
                cursor=result.cursor,
                state=DeliveryState.IDLE,
                attempts=0,
                next_at=now,
                updated_at=now,
                reason=None,
            )
            if not await self._save(saved):
                return  # it is gone, or another one has its name and its own cursor
        self._seen[delivery.id] = (delivery.body, result.cursor)
        if result.has_more:
            self._missed_calls.add(delivery.id)
        elif result.is_over and delivery.id not in self._missed_calls:
            self._let_go(delivery.id)
        elif result.next_check_at is not None:
            self._set_timer(delivery.id, result.next_check_at, way)

    async def _settle_missed(self, delivery: Delivery, missed: DeliveryFailed, way: Way) -> None:
        attempts, now = delivery.attempts + 1, self._engine.clock.now()
        rules = way.round.rules
        is_dead = missed.is_final or attempts >= rules.max_attempts
        pause = pause_s(attempts, rules, roll=self._roll(), retry_after_s=missed.retry_after_s)
        noted = msgspec.structs.replace(
            delivery,
            state=DeliveryState.DEAD if is_dead else DeliveryState.WAITING,
            attempts=attempts,
            next_at=now + timedelta(seconds=pause),
            updated_at=now,
            reason=missed.reason,
        )
        if not await self._save(noted):
            return
        if is_dead:
            log.warning(
                "delivery-given-up",
                delivery_id=delivery.id,
                task_id=delivery.task_id,
                to=way.lane,
                attempts=attempts,
                reason=missed.reason,
            )
            self._let_go(delivery.id)
        else:
            self._missed_calls.discard(delivery.id)
            self._set_timer(delivery.id, noted.next_at, way)

    async def _save(self, delivery: Delivery) -> bool:
        is_kept = await self._store.save_delivery(delivery)
        if is_kept and delivery.id in self._known:
            self._known[delivery.id] = delivery
        elif not is_kept:
            self._known.pop(delivery.id, None)
        return is_kept

    def _let_go(self, delivery_id: DeliveryId) -> None:
        """Nothing more is expected for this delivery."""
        self._known.pop(delivery_id, None)
        self._seen.pop(delivery_id, None)
        self._unnoted.pop(delivery_id, None)
        self._timed.pop(delivery_id, None)
        task_id = self._task_of.pop(delivery_id, None)
        if task_id is None:
            return
        self._open[task_id] -= 1
        if not self._open[task_id]:
            del self._open[task_id]
            self._engine.wakeups.unsubscribe(task_id)


def _not_found(delivery_id: DeliveryId) -> DeliveryNotFound:
    return DeliveryNotFound(
        f"there is no delivery {delivery_id[:80]!r}; `openclaw-a2a deliveries list` shows those "
        "that are in trouble"
    )
