"""Copies the state of A2A tasks to the plan tasks they work on.

This is the only way in which task state reaches an objective. The outbox calls `send` whenever a
subscribed task changes, also after a restart; the executor and an operator's answer call `sync`
for the task that they just changed, so that the caller sees the effect at once. Syncing twice, or
with an old state, changes nothing.

The subscription of an objective to a task is stored in the same transaction as the task. So a
crash leaves either no task, and the executor starts the attempt again under the same message id,
or a task whose state the outbox brings here after the restart.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from weakref import WeakValueDictionary

import msgspec

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.tasks.cancel import cancel_task
from openclaw_a2a.model.delivery import Delivery, delivered_up_to, new_delivery
from openclaw_a2a.model.errors import GatewayError, PlanItemNotFound, StatusChangeNotAllowed
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.records import TaskHead
from openclaw_a2a.model.task import is_terminal
from openclaw_a2a.planning.model import ObjectiveId, PlanTask, PlanTaskId
from openclaw_a2a.planning.repository import ObjectiveRepository
from openclaw_a2a.planning.rollup import link_task, report_task
from openclaw_a2a.planning.state import Change
from openclaw_a2a.planning.steps import ExecutionPolicy, max_retries
from openclaw_a2a.ports import Delivered, DeliveryFailed

DELIVERY_KIND = "plan"


class StepLink(msgspec.Struct, frozen=True):
    """Links an A2A task to the step that it executes; `task` is None for a task of the planner.

    Stored as the body of deliveries.
    """

    objective: ObjectiveId
    task: PlanTaskId | None = None
    attempt: int = 1
    """Counts the A2A tasks that work on the plan task, one after the other."""
    is_own: bool = True
    """False when a caller started the task and linked it to the plan afterwards."""


_decoder = msgspec.json.Decoder(StepLink)


class _Synced(msgspec.Struct, frozen=True):
    """A task, and the step it works on.

    `is_rejected`: the objective takes no more changes. `saved` is the delivery, if its progress was
    stored together with the change.
    """

    head: TaskHead
    step: PlanTask | None = None
    is_rejected: bool = False
    saved: Delivery | None = None


class TaskSync:
    """The outbox sender for deliveries to objectives."""

    def __init__(
        self,
        engine: Engine,
        repository: ObjectiveRepository,
        policy: ExecutionPolicy,
        *,
        wake: Callable[[ObjectiveId], None],
    ) -> None:
        """`wake` has the executor look at an objective."""
        self._engine = engine
        self._repository = repository
        self._policy = policy
        self._wake = wake
        # Weak: a lock lives as long as something holds it or waits for it.
        self._locks: WeakValueDictionary[TaskId, asyncio.Lock] = WeakValueDictionary()
        # What `sync` applied, until the delivery that follows: it need not apply that again.
        # Only in memory, so after a crash every delivery is applied.
        self._applied: dict[tuple[ObjectiveId, TaskId], TaskHead] = {}

    def delivery_factory(self, link: StepLink) -> Callable[[TaskId, int], Delivery]:
        """Makes the delivery that subscribes an objective to a task."""

        def make(task_id: TaskId, cursor: int) -> Delivery:
            body, now = msgspec.json.encode(link), self._engine.clock.now()
            return new_delivery(
                DELIVERY_KIND, task_id, link.objective, body, cursor=cursor, now=now
            )

        return make

    def receiver(self, delivery: Delivery) -> str:
        """The objective: its deliveries are sent one after the other."""
        return _decoder.decode(delivery.body).objective

    async def send(self, delivery: Delivery) -> Delivered | DeliveryFailed | None:
        """Sync a task that changed, and wake the executor. None: the task does not exist."""
        link = _decoder.decode(delivery.body)
        synced = await self._sync(link, delivery.task_id, delivery)
        if synced is None:
            return None
        # `is_over` ends the subscription: the objective takes no more states of this task.
        if synced.is_rejected:
            return Delivered(synced.head.sequence, is_over=True)
        # Woken even if the objective did not change: a task of the planner is no step, and only the
        # executor reads its result. After `_sync`, because the executor reads the state at once.
        self._wake(link.objective)
        return Delivered(
            synced.head.sequence,
            is_sent=synced.head.sequence != delivery.cursor,
            is_over=is_terminal(synced.head.state),
            saved=synced.saved,
        )

    async def sync(self, link: StepLink, task_id: TaskId) -> None:
        """Sync a task now, without waiting for the outbox."""
        synced = await self._sync(link, task_id, None)
        if synced is None or synced.step is None or is_terminal(synced.head.state):
            return
        if link.is_own and synced.step.a2a_task_id != task_id:
            await self._cancel(synced.head)  # a caller linked another task while this one started

    async def _sync(
        self, link: StepLink, task_id: TaskId, delivery: Delivery | None
    ) -> _Synced | None:
        is_delivery = delivery is not None
        # The lock covers reading and applying, so that states are applied in the order in which
        # the task had them: of two that sync it at once, the one that read first applies first.
        async with self._locks.setdefault(task_id, asyncio.Lock()):
            # Removed in any case, so the dict holds only tasks whose delivery is still to
            # come.
            applied = self._applied.pop((link.objective, task_id), None)
            if is_delivery and applied is not None and is_terminal(applied.state):
                return _Synced(applied)  # nothing follows the end, so it need not be read again
            if not is_delivery and self._is_linked(link, task_id):
                return None  # the outbox came first, and reports what follows, too
            head = await self._read_head(task_id)
            # A planner's task is no step: there is nothing to copy, only the executor to wake.
            if head is None or link.task is None:
                return None if head is None else _Synced(head)
            if is_delivery and applied is not None and applied.sequence == head.sequence:
                return _Synced(head)
            # With other replicas the append may lose a race, and the other write be made.
            is_alone = self._engine.replication is None
            progress = save = None
            if delivery is not None and is_alone:
                # Stored in the commit that brings the state into the objective. If only this one of
                # the two writes succeeds, the task is synced again at the next start
                # (`AdminService.subscribe_missing`).
                now = self._engine.clock.now()
                progress = delivered_up_to(delivery, head.sequence, now=now)
                save = partial(self._engine.store.deliveries.update_delivery, progress)
            try:
                change = await self._repository.change(
                    None,
                    link.objective,
                    self._report,
                    link.task,
                    link.attempt,
                    head,
                    alongside=save,
                )
                if not is_delivery and is_alone:  # else the delivery may follow elsewhere
                    self._applied[link.objective, task_id] = head
                # A change without operations is not written, and nothing beside it.
                saved = progress if change.operations else None
                return _Synced(head, change.state.tasks[link.task], saved=saved)
            except (PlanItemNotFound, StatusChangeNotAllowed):  # deleted, canceled or completed
                # Started by the executor for an objective that is gone or closed: its result is
                # not used.
                if link.is_own:
                    await self._cancel(head)
                return _Synced(head, is_rejected=True)

    def _is_linked(self, link: StepLink, task_id: TaskId) -> bool:
        """True when the objective knows that this task of our own works on the step."""
        state = self._repository.find_open(link.objective)
        if state is None or link.task is None or not link.is_own:
            return False
        step = state.tasks.get(link.task)
        is_taken = step is not None and step.a2a_task_id == task_id
        return is_taken and state.attempts.get(link.task, 0) >= link.attempt

    async def _read_head(self, task_id: TaskId) -> TaskHead | None:
        """The task as it is stored, without its content; None when there is none."""
        active = self._engine.find_active(task_id)
        head = None if active is None else active.durable_head
        if head is not None:
            return head
        measured = await self._engine.store.tasks.measure_task(None, task_id)
        return None if measured is None else measured.head

    def _report(self, change: Change, step: PlanTaskId, attempt: int, head: TaskHead) -> None:
        state = change.state
        if state.attempts.get(step, 0) < attempt:
            # The link is written here and not before the task is started: the process may die in
            # between, and then the outbox delivers the task here.
            link_task(change, step, head.id)
        plan_task = state.task(step)
        # A step that was never executed by the gateway is not retried by it.
        is_executed = state.id in state.execution or plan_task.plan_id in state.execution
        will_retry = is_executed and state.attempts.get(step, 0) <= max_retries(
            plan_task, self._policy
        )
        report_task(change, head.id, head.state, will_retry=will_retry)

    async def _cancel(self, head: TaskHead) -> None:
        # An error means that the task has ended already or that its agent does not stop. Either way
        # the outbox reports its state later.
        with suppress(GatewayError):
            await cancel_task(self._engine, head.scope, head.id)
