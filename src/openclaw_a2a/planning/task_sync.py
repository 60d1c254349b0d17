"""Takes the states of A2A tasks over into the plan tasks they do, by way of the outbox."""

from collections.abc import Callable
from contextlib import suppress

import msgspec

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.tasks.cancel import cancel_task
from openclaw_a2a.model.delivery import Delivery, delivery_id
from openclaw_a2a.model.errors import GatewayError, PlanItemNotFound, StatusChangeNotAllowed
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.records import TaskHead
from openclaw_a2a.model.states import is_terminal
from openclaw_a2a.planning.change_builder import Change, CommandContext
from openclaw_a2a.planning.model import ObjectiveId, PlanTaskId
from openclaw_a2a.planning.repository import ObjectiveRepository
from openclaw_a2a.planning.rollup import link_task, report_task
from openclaw_a2a.planning.state import ObjectiveState
from openclaw_a2a.planning.step_message import ExecutionPolicy, max_retries
from openclaw_a2a.ports import Delivered, DeliveryFailed

DELIVERY_KIND = "plan"
"""The kind of deliveries that tell plans about tasks."""


class StepLink(msgspec.Struct, frozen=True):
    """Whose task it is; without a plan task it is one that makes plans."""

    objective: ObjectiveId
    task: PlanTaskId | None = None
    attempt: int = 1
    """Which of the tasks it is that do the plan task, one after the other."""
    is_own: bool = True
    """False when somebody made the task for himself, and told the plan of it later."""


_decoder = msgspec.json.Decoder(StepLink)


class TaskSync:
    """The courier that brings the state of tasks to their objectives."""

    def __init__(
        self,
        engine: Engine,
        book: ObjectiveRepository,
        rules: ExecutionPolicy,
        *,
        wake: Callable[[ObjectiveId], None],
    ) -> None:
        """`wake` has somebody look whether an objective can go on."""
        self._engine = engine
        self._book = book
        self._rules = rules
        self._wake = wake

    def delivery_factory(self, followed: StepLink) -> Callable[[TaskId, int], Delivery]:
        """What makes the delivery for a task."""

        def make(task_id: TaskId, cursor: int) -> Delivery:
            now = self._engine.clock.now()
            name = delivery_id(DELIVERY_KIND, task_id, followed.objective)
            body = msgspec.json.encode(followed)
            return Delivery(name, DELIVERY_KIND, task_id, body, cursor, now, now, now)

        return make

    async def sync_now(self, state: ObjectiveState, step: PlanTaskId, task_id: TaskId) -> None:
        """Report how the task of a step is now, without waiting for the outbox."""
        followed = StepLink(state.id, step, state.attempts.get(step, 1), is_own=False)
        await self.send(self.delivery_factory(followed)(task_id, -1))

    def receiver(self, delivery: Delivery) -> str:
        """The objective."""
        return _decoder.decode(delivery.body).objective

    async def send(self, delivery: Delivery) -> Delivered | DeliveryFailed | None:
        """Report the state of the task, if it is news."""
        stored = await self._engine.store.tasks.read_task(None, delivery.task_id)
        if stored is None:
            return None
        followed, head = _decoder.decode(delivery.body), stored.head
        try:
            if followed.task is not None:
                await self._report(followed, followed.task, head)
        except (PlanItemNotFound, StatusChangeNotAllowed):  # it was deleted, or is over
            if followed.is_own:
                with suppress(GatewayError):
                    await cancel_task(self._engine, head.scope, head.id)
            return Delivered(head.sequence, is_over=True)
        self._wake(followed.objective)
        return Delivered(
            head.sequence,
            is_sent=head.sequence != delivery.cursor,
            is_over=is_terminal(head.state),
        )

    async def _report(self, followed: StepLink, step: PlanTaskId, head: TaskHead) -> None:
        def report(known: ObjectiveState, occasion: CommandContext) -> Change:
            linked = Change(known)
            if known.attempts.get(step, 0) < followed.attempt:
                # The gateway died after the task began, and before that was written down.
                linked = link_task(known, step, head.id, occasion=occasion)
            tries = linked.state.attempts.get(step, 0)
            # What was never run is not tried again by anybody.
            is_run = bool(known.execution.keys() & {known.id, known.task(step).plan_id})
            is_left = is_run and tries <= max_retries(known.task(step), self._rules)
            told = report_task(
                linked.state,
                head.id,
                head.state,
                occasion=occasion,
                will_retry=is_left,
            )
            return Change(told.state, (*linked.operations, *told.operations))

        await self._book.change(followed.objective, report)
