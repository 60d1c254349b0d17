"""The methods for objectives and plans: run a command on an item of the caller and render it."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVarTuple

import msgspec

from openclaw_a2a.engine.audit_log import audit_outcome
from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.model.delivery import Delivery
from openclaw_a2a.model.errors import InvalidParams, Problem, TaskNotFound
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.task import is_terminal
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.planning import commands
from openclaw_a2a.planning import params as requests
from openclaw_a2a.planning.executor import StepExecutor
from openclaw_a2a.planning.listing import parse_page_token
from openclaw_a2a.planning.message_routing import MessageRouter
from openclaw_a2a.planning.model import (
    TASK_FAILED,
    ObjectiveId,
    ObjectiveStatus,
    PlanId,
    PlanStatus,
    PlanTaskStatus,
)
from openclaw_a2a.planning.repository import ObjectiveRepository
from openclaw_a2a.planning.state import Change, not_found
from openclaw_a2a.planning.steps import check_named_agents, find_waiting_step, named_agents
from openclaw_a2a.planning.subscription import OperationSubscription
from openclaw_a2a.planning.task_sync import StepLink
from openclaw_a2a.planning.views import ObjectiveView, read_step

SUBSCRIBE = "objectives/subscribe"
"""The one method that answers with a stream."""


_Args = TypeVarTuple("_Args")


class ObjectiveEvent(msgspec.Struct, frozen=True):
    """An encoded event for a subscriber, and its sequence number."""

    sequence: int
    body: bytes


class ObjectiveSubscription:
    """The events of one subscriber: the objective, unless it has a cursor, then every change."""

    def __init__(
        self, operations: OperationSubscription, view: ObjectiveView, *, with_snapshot: bool
    ) -> None:
        self.stop, self.close = operations.stop, operations.close
        self._operations = operations
        self._view = view
        self._with_snapshot = with_snapshot

    @property
    def is_over(self) -> bool:
        """True when no more events follow."""
        return self._operations.is_over

    async def next_events(self, wait_s: float) -> list[ObjectiveEvent]:
        """The next events; none when none came within `wait_s`, or no more follow.

        Raises: StoreUnavailable.
        """
        if self._with_snapshot:
            self._with_snapshot, state = False, self._operations.state
            return [_event(state.seq, {"objective": self._view.objective(state)})]
        operations = await self._operations.next_operations(wait_s)
        state = self._operations.state
        return [_event(one.seq, self._view.change(one, state)) for one in operations]


def _event(sequence: int, body: JsonObject) -> ObjectiveEvent:
    return ObjectiveEvent(sequence, msgspec.json.encode(body))


class PlanningService:
    """Objectives and plans for callers. What belongs to another caller is not found."""

    METHODS = frozenset(name for name in requests.METHODS if not name.startswith("steps/"))
    """What A2A clients may call. They read and answer steps by their A2A tasks; `steps/` is for
    the tools of agents, which have no other way."""

    def __init__(
        self,
        engine: Engine,
        repository: ObjectiveRepository,
        executor: StepExecutor,
        view: ObjectiveView,
        *,
        add_delivery: Callable[[Delivery], Awaitable[bool]],
    ) -> None:
        """`add_delivery` stores a delivery for the outbox."""
        self._engine = engine
        self._add_delivery = add_delivery
        self._repository = repository
        self._executor = executor
        self._view = view
        self.route_message = MessageRouter(repository, executor.task_sync, engine.store.tasks).route
        self._handlers: dict[str, Callable[[Any, Scope], Awaitable[JsonObject]]] = {
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
            "steps/get": self._get_step,
            "steps/answer": self._answer_step,
        }

    async def call(
        self,
        method: str,
        params: Json,
        scope: Scope,
        *,
        address: str = "",
        is_from_peer: bool = False,
        agents: frozenset[str] | None = None,
    ) -> JsonObject:
        """Call a method. The audit log gets the change, or why it failed, with the address.

        The policy decides about changes that come from a peer, also for each agent that they name;
        `agents` are those that the caller's credentials are limited to.

        Raises: MethodNotFound, InvalidParams, PlanItemNotFound, StatusChangeNotAllowed,
        PlanLimitExceeded, DependencyNotValid, StoreUnavailable, NotAllowed.
        """
        parsed: Any = requests.parse_params(method, params)
        if method.endswith(("/get", "/list")):
            return await self._call(method, parsed, scope)

        audit, policy = self._engine.audit, ""

        def record(made: str, error: BaseException | None = None) -> None:
            write = audit.record if error is None else audit.record_refusal
            write(
                "objective-changed",
                scope.principal,
                action=method,
                target=getattr(parsed, "id", "") or made,
                account=scope.account,
                address=address,
                policy=policy,
                **audit_outcome(error),
            )

        try:
            if is_from_peer:
                await self._check_change(params, scope, address, agents)
                policy = "allow"  # it raises what it does not allow
            result = await self._call(method, parsed, scope)
        except BaseException as error:  # any error: something may have been changed
            record(getattr(parsed, "objective_id", ""), error)
            raise
        record(result.get("objective", result.get("plan", {})).get("id", ""))
        return result

    async def _check_change(
        self, params: Json, scope: Scope, address: str, agents: frozenset[str] | None
    ) -> None:
        engine, named = self._engine, named_agents(params)
        check_named_agents(named, agents)
        if engine.policy is not None:
            rules, now = self._executor.account_rules(scope.account), engine.clock.now()
            await engine.policy.check_change(
                scope, rules, params, address=address, now=now, agents=named
            )

    async def _call(self, method: str, parsed: Any, scope: Scope) -> JsonObject:
        kind, _, action = method.partition("/")
        if (mode := requests.EXECUTION_MODES.get(action)) is None:
            return await self._handlers[method](parsed, scope)
        if kind == "plans":
            set_mode = commands.set_plan_execution
            return await self._change_plan(parsed.id, scope, set_mode, parsed.id, mode)
        return await self._change(parsed.id, scope, commands.set_objective_execution, mode)

    async def subscribe(
        self, params: Json, scope: Scope, cursor: int | None
    ) -> ObjectiveSubscription:
        """Subscribe to an objective: as it is now, then every change; with a cursor, what follows.

        Raises: InvalidParams, PlanItemNotFound.
        """
        parsed = requests.parse_as(requests.GetObjective, params, method=SUBSCRIBE)
        operations = await self._repository.subscribe(scope, parsed.id, cursor)
        # A cursor ahead of the objective belongs to a deleted one that had the same id.
        with_snapshot = cursor is None or cursor > operations.state.seq
        return ObjectiveSubscription(operations, self._view, with_snapshot=with_snapshot)

    # ---------------------------------------------------------------- objectives

    async def _create(self, params: requests.CreateObjective, scope: Scope) -> JsonObject:
        change = commands.create_objective(params, self._repository.creation_context(), owner=scope)
        return {"objective": self._view.objective(await self._repository.create(change))}

    async def _get(self, params: requests.GetObjective, scope: Scope) -> JsonObject:
        state, with_plans = await self._repository.get(scope, params.id), params.include_plans
        shown = self._view.objective(state, with_plans=with_plans, with_tasks=params.include_tasks)
        return {"objective": shown}

    async def _list(self, params: requests.ListObjectives, scope: Scope) -> JsonObject:
        token = params.page_token
        after = None if token is None else parse_page_token(token)
        if token is not None and after is None:
            problem = "is not one of ours; leave it out to start from the beginning"
            raise InvalidParams(
                f"The parameters of objectives/list are not valid: pageToken {problem}.",
                problems=(Problem("pageToken", problem),),
            )
        index = await self._repository.load_index()
        page = index.page(params.page_size, scope=scope, status=params.status, after=after)
        result: JsonObject = {
            "objectives": msgspec.to_builtins(page.objectives),
            "totalSize": page.total,
        }
        if page.next_token is not None:
            result["nextPageToken"] = page.next_token
        return result

    async def _update(self, params: requests.UpdateObjective, scope: Scope) -> JsonObject:
        result = await self._change(params.id, scope, commands.update_objective, params)
        if result["objective"]["status"] != ObjectiveStatus.CANCELED.value:
            return result
        # After the status, so that a step that is being started finds the objective closed and is
        # canceled by its sync. After a crash in between, `StepExecutor.start` does this.
        stopped = await self._executor.stop_steps(scope, params.id)
        return {"objective": self._view.objective(stopped)}

    async def _replan(self, params: requests.Replan, scope: Scope) -> JsonObject:
        return await self._change(params.id, scope, commands.replan)

    async def _delete(self, params: requests.DeleteObjective, scope: Scope) -> JsonObject:
        await self._executor.delete_objective(scope, params)
        return {"deleted": True}

    # ---------------------------------------------------------------- plans

    async def _create_plan(self, params: requests.CreatePlan, scope: Scope) -> JsonObject:
        command = commands.create_plan
        change = await self._repository.change(scope, params.objective_id, command, params)
        return {"plan": self._view.plan(change.state, list(change.state.plans)[-1])}

    async def _get_plan(self, params: requests.GetPlan, scope: Scope) -> JsonObject:
        state = await self._repository.get_by_plan(scope, params.id)
        return {"plan": self._view.plan(state, params.id, with_tasks=params.include_tasks)}

    async def _add_tasks(self, params: requests.AddTasks, scope: Scope) -> JsonObject:
        return await self._change_plan(params.id, scope, commands.add_tasks, params)

    async def _update_plan(self, params: requests.UpdatePlan, scope: Scope) -> JsonObject:
        state = await self._repository.get_by_plan(scope, params.id)
        # A dry run: deliveries must not be stored for an update that is not valid.
        commands.update_plan(Change(state, self._repository.command_context()), params)
        links = [(one, one.a2a_task_id) for one in params.tasks or () if one.a2a_task_id]
        for edit, task_id in links:
            stored = await self._engine.store.tasks.read_task(scope, task_id)
            if stored is None:
                raise not_found("A2A task", task_id)
            if edit.status is PlanTaskStatus.COMPLETED and not is_terminal(stored.head.state):
                raise commands.still_running(state.task(edit.id), task_id)
        if links and params.if_updated_at is not None:
            # The outbox may report the linked tasks before the update below, which changes the
            # plan: so ifUpdatedAt is checked by a change of its own before that.
            check = requests.UpdatePlan(params.id, if_updated_at=params.if_updated_at)
            await self._repository.change(scope, state.id, commands.update_plan, check)
            params = msgspec.structs.replace(params, if_updated_at=None)
        make_delivery = self._executor.task_sync.delivery_factory
        for edit, task_id in links:
            # From now on the outbox reports the task to its step, also if this process dies.
            attempt = state.attempts.get(edit.id, 0) + 1
            link = StepLink(state.id, edit.id, attempt, is_own=False)
            try:
                await self._add_delivery(make_delivery(link)(task_id, -1))
            except TaskNotFound:  # the task was deleted meanwhile
                raise not_found("A2A task", task_id) from None
        result = await self._change_plan(params.id, scope, commands.update_plan, params)
        if any(one.status in TASK_FAILED for one in params.tasks or ()):
            # After the status, so that the executor does not try the step again. After a crash in
            # between, `StepExecutor.start` does this.
            await self._executor.stop_abandoned(scope, state.id, params.id)
        if params.status is not PlanStatus.SKIPPED:
            return result
        # The results and questions of a skipped plan are not needed any more. After a crash in
        # between, `StepExecutor.start` does this.
        stopped = await self._executor.stop_steps(scope, state.id, params.id)
        return {"plan": self._view.plan(stopped, params.id)}

    # ---------------------------------------------------------------- steps

    async def _get_step(self, params: requests.GetStep, scope: Scope) -> JsonObject:
        state = await self._repository.get(scope, params.objective_id)
        step = state.find_step(params.step)
        failed = await self._executor.find_failed_attempts(state)
        return await read_step(self._engine.store.tasks, scope, step, failed.get(step.id))

    async def _answer_step(self, params: requests.AnswerStep, scope: Scope) -> JsonObject:
        state = await self._repository.get(scope, params.objective_id)
        step = find_waiting_step(state, params.step)
        await self._executor.answer_step(state, step, params.text)
        newest = await self._repository.get(scope, params.objective_id)
        return {"step": msgspec.to_builtins(newest.task(step.id))}

    # ---------------------------------------------------------------- both

    async def _change(
        self,
        objective_id: ObjectiveId,
        scope: Scope,
        command: Callable[[Change, *_Args], object],
        *args: *_Args,
    ) -> JsonObject:
        change = await self._repository.change(scope, objective_id, command, *args)
        return {"objective": self._view.objective(change.state)}

    async def _change_plan(
        self,
        plan_id: PlanId,
        scope: Scope,
        command: Callable[[Change, *_Args], object],
        *args: *_Args,
    ) -> JsonObject:
        state = await self._repository.get_by_plan(scope, plan_id)
        change = await self._repository.change(scope, state.id, command, *args)
        return {"plan": self._view.plan(change.state, plan_id)}
