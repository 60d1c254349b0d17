"""The methods of objectives and plans: who may, what changes, and what is shown."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.tasks.turn_builder import AccountRules
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.delivery import Delivery
from openclaw_a2a.model.errors import (
    InvalidParams,
    LeaseLost,
    PlanItemNotFound,
    Problem,
    StatusChangeNotAllowed,
)
from openclaw_a2a.model.ids import Json, JsonObject, TaskId
from openclaw_a2a.model.message import Message
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.planning import params as asked
from openclaw_a2a.planning.commands.execution import (
    EXECUTION_ACTIONS,
    set_objective_execution,
    set_plan_execution,
)
from openclaw_a2a.planning.commands.objective import (
    check_delete,
    create_objective,
    replan,
    update_objective,
)
from openclaw_a2a.planning.commands.plan import add_tasks, create_plan, update_plan
from openclaw_a2a.planning.executor import StepExecutor
from openclaw_a2a.planning.listing import ListPosition, parse_page_token
from openclaw_a2a.planning.message_routing import MessageRouter, RoutedMessage
from openclaw_a2a.planning.model import PAUSED, ObjectiveId, ObjectiveStatus, PlanId
from openclaw_a2a.planning.repository import ObjectiveRepository
from openclaw_a2a.planning.state import ObjectiveState, not_found
from openclaw_a2a.planning.task_sync import StepLink
from openclaw_a2a.planning.transitions import transition_error
from openclaw_a2a.planning.views import ObjectiveView, to_json

log = get_logger(__name__)

SUBSCRIBE = "objectives/subscribe"


Step = Callable[[Any, Scope], Awaitable[JsonObject]]


class ObjectiveChange(msgspec.Struct, frozen=True):
    """Something that a follower of an objective sees, and its number."""

    sequence: int
    body: JsonObject


class PlanningService:
    """Objectives and plans, for everybody who asks. What is not theirs is not found."""

    METHODS = frozenset(
        {
            *asked.METHODS,
            *(f"{kind}/{mode}" for kind in ("objectives", "plans") for mode in EXECUTION_ACTIONS),
        }
    )

    def __init__(
        self,
        engine: Engine,
        book: ObjectiveRepository,
        runner: StepExecutor,
        showing: ObjectiveView,
        *,
        keep: Callable[[Delivery], Awaitable[bool]],
    ) -> None:
        """`keep` has the outbox bring a delivery."""
        self._engine = engine
        self._keep = keep
        self._book = book
        self._runner = runner
        self._showing = showing
        self._messages = MessageRouter(book, runner.task_sync, engine.store.tasks)
        self._steps: dict[str, Step] = {
            "objectives/create": self._create,
            "objectives/get": self._get,
            "objectives/list": self._list,
            "objectives/update": self._update,
            "objectives/replan": self._replan,
            "objectives/delete": self._delete,
            "plans/create": self._create_plan,
            "plans/get": self._get_plan,
            "plans/update": self._update_plan,
            "plans/addTasks": self._add_tasks,
        }

    async def call(self, method: str, params: Json, scope: Scope) -> JsonObject:
        """Do what a method says; its result.

        Raises: MethodNotFound, InvalidParams, PlanItemNotFound, StatusChangeNotAllowed,
        PlanLimitExceeded, DependencyNotValid, StoreUnavailable.
        """
        kind, _, verb = method.partition("/")
        if method in self.METHODS and verb in EXECUTION_ACTIONS:
            return await self._run(kind, verb, params, scope)
        read = asked.parse_params(method, params)
        return await self._steps[method](read, scope)

    async def subscribe(
        self, params: Json, scope: Scope, cursor: int | None
    ) -> AsyncIterator[ObjectiveChange]:
        """An objective as it is, and then everything that happens to it.

        With a cursor only what happened after it. Raises: InvalidParams, PlanItemNotFound.
        """
        read = asked.parse_as(asked.GetObjective, params, method=SUBSCRIBE)
        return self._follow(await self._own(read.id, scope), cursor)

    async def _follow(
        self, state: ObjectiveState, cursor: int | None
    ) -> AsyncIterator[ObjectiveChange]:
        after = cursor
        if after is None or after > state.seq:  # of an objective that had its id before, maybe
            after = state.seq
            yield ObjectiveChange(state.seq, {"objective": self._showing.objective(state)})
        with suppress(PlanItemNotFound):  # it was deleted
            async for operations in self._book.follow_operations(state.id, after):
                now = await self._book.find(state.id)
                if not _is_same(state, now):
                    return
                for operation in operations:
                    yield ObjectiveChange(operation.seq, self._showing.change(operation, now))

    async def route_message(
        self, message: Message, scope: Scope, rules: AccountRules
    ) -> RoutedMessage | None:
        """Give a message its place in an objective; None when it speaks of none."""
        return await self._messages.route(message, scope, rules)

    # ---------------------------------------------------------------- objectives

    async def _create(self, params: asked.CreateObjective, scope: Scope) -> JsonObject:
        change = create_objective(params, self._book.creation_context(), owner=scope)
        return {"objective": self._showing.objective(await self._book.create(change))}

    async def _get(self, params: asked.GetObjective, scope: Scope) -> JsonObject:
        state = await self._own(params.id, scope)
        with_plans, with_tasks = params.include_plans, params.include_tasks
        return {
            "objective": self._showing.objective(
                state, with_plans=with_plans, with_tasks=with_tasks
            )
        }

    async def _list(self, params: asked.ListObjectives, scope: Scope) -> JsonObject:
        after = _place(params.page_token)
        listing = await self._book.load_index()
        page = listing.page(params.page_size, scope=scope, status=params.status, after=after)
        result: JsonObject = {
            "objectives": [to_json(one) for one in page.objectives],
            "totalSize": page.total,
        }
        if page.next_token is not None:
            result["nextPageToken"] = page.next_token
        return result

    async def _update(self, params: asked.UpdateObjective, scope: Scope) -> JsonObject:
        await self._own(params.id, scope)
        change = await self._book.change(
            params.id, lambda state, occasion: update_objective(state, params, occasion)
        )
        if change.state.objective.status is ObjectiveStatus.CANCELED:
            await self._runner.cancel_running_tasks(change.state)
        return {"objective": self._showing.objective(await self._book.find(params.id))}

    async def _replan(self, params: asked.Replan, scope: Scope) -> JsonObject:
        await self._own(params.id, scope)
        change = await self._book.change(params.id, replan)
        return {"objective": self._showing.objective(change.state)}

    async def _delete(self, params: asked.DeleteObjective, scope: Scope) -> JsonObject:
        check_delete(await self._own(params.id, scope), params)
        if params.cancel:
            with suppress(StatusChangeNotAllowed):  # nothing begins in what is over, anyway
                await self._book.change(
                    params.id,
                    lambda state, occasion: set_objective_execution(state, PAUSED, occasion),
                )
            for _ in range(2):  # what was just about to begin is found the second time
                await self._runner.cancel_running_tasks(await self._own(params.id, scope))
        await self._book.delete(params.id, self._check_stopped)
        return {"deleted": True}

    async def _check_stopped(self, state: ObjectiveState) -> None:
        """Make sure that nothing is done for an objective. Raises: StatusChangeNotAllowed."""
        if await self._runner.find_running_tasks(state):
            why = "a task of it is running; wait, or delete with cancel: true"
            change = (state.objective.status.value, "deleted")
            raise transition_error(("objective", state.id), change, why)

    # ---------------------------------------------------------------- plans

    async def _create_plan(self, params: asked.CreatePlan, scope: Scope) -> JsonObject:
        await self._own(params.objective_id, scope)
        change = await self._book.change(
            params.objective_id, lambda state, occasion: create_plan(state, params, occasion)
        )
        return {"plan": self._showing.plan(change.state, list(change.state.plans)[-1])}

    async def _get_plan(self, params: asked.GetPlan, scope: Scope) -> JsonObject:
        state = await self._own_plan(params.id, scope)
        return {"plan": self._showing.plan(state, params.id, with_tasks=params.include_tasks)}

    async def _update_plan(self, params: asked.UpdatePlan, scope: Scope) -> JsonObject:
        state = await self._own_plan(params.id, scope)
        update_plan(
            state, params, self._book.command_context
        )  # what is wrong is told before any effect
        links = {one.id: one.a2a_task_id for one in params.tasks or () if one.a2a_task_id}
        for task_id in links.values():
            if await self._engine.store.tasks.read_task(scope, task_id) is None:
                raise not_found("A2A task", task_id)
        if links and params.if_updated_at is not None:
            # The links themselves change the plan: whether it is as read is decided before them.
            mine = asked.UpdatePlan(params.id, if_updated_at=params.if_updated_at)
            await self._book.change(
                state.id, lambda known, occasion: update_plan(known, mine, occasion)
            )
            params = msgspec.structs.replace(params, if_updated_at=None)
        for step, task_id in links.items():
            attempt = state.attempts.get(step, 0) + 1
            await self._follow_task(task_id, StepLink(state.id, step, attempt, is_own=False))
        change = await self._book.change(
            state.id, lambda known, occasion: update_plan(known, params, occasion)
        )
        return {"plan": self._showing.plan(change.state, params.id)}

    async def _follow_task(self, task_id: TaskId, followed: StepLink) -> None:
        """Have a step do what its task does, from now on. Raises: PlanItemNotFound."""
        try:
            await self._keep(self._runner.task_sync.delivery_factory(followed)(task_id, -1))
        except LeaseLost:  # it was deleted meanwhile
            raise not_found("A2A task", task_id) from None

    async def _add_tasks(self, params: asked.AddTasks, scope: Scope) -> JsonObject:
        state = await self._own_plan(params.id, scope)
        change = await self._book.change(
            state.id, lambda known, occasion: add_tasks(known, params, occasion)
        )
        return {"plan": self._showing.plan(change.state, params.id)}

    # ---------------------------------------------------------------- running

    async def _run(self, kind: str, verb: str, params: Json, scope: Scope) -> JsonObject:
        method, mode = f"{kind}/{verb}", EXECUTION_ACTIONS[verb]
        if kind == "plans":
            plan_id = PlanId(asked.parse_as(asked.GetPlan, params, method=method).id)
            state = await self._own_plan(plan_id, scope)
            change = await self._book.change(
                state.id, lambda known, occasion: set_plan_execution(known, plan_id, mode, occasion)
            )
            return {"plan": self._showing.plan(change.state, plan_id)}
        objective_id = asked.parse_as(asked.Replan, params, method=method).id
        await self._own(objective_id, scope)
        change = await self._book.change(
            objective_id, lambda known, occasion: set_objective_execution(known, mode, occasion)
        )
        return {"objective": self._showing.objective(change.state)}

    async def _own(self, objective_id: ObjectiveId, scope: Scope) -> ObjectiveState:
        state = await self._book.find(objective_id)
        if state.owner not in (None, scope):
            raise not_found("objective", objective_id)
        return state

    async def _own_plan(self, plan_id: PlanId, scope: Scope) -> ObjectiveState:
        state = await self._book.find_plan(plan_id)
        if state.owner not in (None, scope):
            raise not_found("plan", plan_id)
        return state


def _is_same(known: ObjectiveState, now: ObjectiveState) -> bool:
    """False for an objective that was made after the known one was deleted, with its id."""
    is_as_old = now.objective.created_at == known.objective.created_at
    return is_as_old and now.owner == known.owner


def _place(token: str | None) -> ListPosition | None:
    """Where a page begins. Raises: InvalidParams."""
    place = None if token is None else parse_page_token(token)
    if token is None or place is not None:
        return place
    problem = Problem("pageToken", "is not one of ours; leave it out to begin anew")
    raise InvalidParams(
        f"The parameters of objectives/list are not valid: pageToken {problem.message}.",
        problems=(problem,),
    )
