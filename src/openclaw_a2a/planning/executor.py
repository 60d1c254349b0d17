"""Stands in for agents that the owner of a step may not ask: the step fails and says why."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress

import msgspec

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.tasks.cancel import cancel_task
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.engine.tasks.result import DuplicateRun, TaskCreated
from openclaw_a2a.engine.tasks.submit import InternalOrigin, SubmitRequest, submit, wait_created
from openclaw_a2a.engine.tasks.turn_builder import AccountRules
from openclaw_a2a.engine.transcript.task_text import last_agent_text
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.agent_event import AgentEvent, Note
from openclaw_a2a.model.errors import (
    AgentFailed,
    GatewayError,
    PlanItemNotFound,
    StatusChangeNotAllowed,
)
from openclaw_a2a.model.ids import AccountId, AgentId, TaskId
from openclaw_a2a.model.states import is_terminal
from openclaw_a2a.model.turn import Scope, Turn
from openclaw_a2a.planning.change_builder import Change, CommandContext
from openclaw_a2a.planning.model import (
    TASK_ACTIVE,
    ObjectiveId,
    ObjectiveStatus,
    PlanTask,
    PlanTaskId,
)
from openclaw_a2a.planning.planner import Planner
from openclaw_a2a.planning.repository import ObjectiveRepository
from openclaw_a2a.planning.rollup import link_task, running_tasks
from openclaw_a2a.planning.state import ObjectiveState
from openclaw_a2a.planning.step_message import (
    ExecutionPolicy,
    attempt_message_id,
    dependency_steps,
    earliest_start,
    effective_owner,
    pending_retries,
    select_agent,
    step_message,
    step_session,
    task_metadata,
)
from openclaw_a2a.planning.task_sync import StepLink, TaskSync
from openclaw_a2a.planning.views import ready_tasks
from openclaw_a2a.ports import Recovery

DENIED_AGENT = AgentId("gateway:refused")
"""Under what name it is known."""

_WHY = "This step names an agent that its owner may not ask. The setting opt.agents says which."


class DeniedAgent:
    """Refuses."""

    recovery: Recovery = Recovery.REPEAT

    async def run(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
        """Fail. Raises: AgentFailed."""
        yield Note("not begun")
        raise AgentFailed(_WHY)

    async def close(self) -> None:
        """Nothing is held."""


log = get_logger(__name__)

_AGAIN_S = 5.0
"""When the gateway has too much to do, a step is begun after so long."""

_AT_ONCE = 32
"""So many objectives are looked after at once: their writes share the commits of the store."""

DefaultAgent = Callable[[AccountId], AgentId]


class StepExecutor:
    """Begins the steps of objectives that are run. It knows nothing that journals do not say."""

    def __init__(
        self,
        engine: Engine,
        book: ObjectiveRepository,
        rules: ExecutionPolicy,
        *,
        default_agent: DefaultAgent,
    ) -> None:
        self._engine = engine
        self._book = book
        self._rules = rules
        self._default_agent = default_agent
        self.task_sync = TaskSync(engine, book, rules, wake=self.wake)
        self._planner = Planner(engine, book, self.task_sync)
        self._woken: set[ObjectiveId] = set()
        self._attended: set[ObjectiveId] = set()
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._signal = asyncio.Event()
        self._timers: dict[ObjectiveId, asyncio.TimerHandle] = {}
        book.add_listener(self._heard)

    def start(self) -> None:
        """Go on with what an earlier life was running."""
        for state in self._book.open_objectives():
            self.wake(state.id)
            if state.objective.status is ObjectiveStatus.CANCELED:
                self._engine.supervisor.spawn(
                    "plan-cancel", self.cancel_running_tasks(state)
                )  # if the gateway died before that was done
        self._engine.supervisor.run_loop("plan-executor", self._work())

    def wake(self, objective_id: ObjectiveId) -> None:
        """Look whether something can begin in an objective."""
        self._woken.add(objective_id)
        self._signal.set()

    def _heard(self, change: Change) -> None:
        self.wake(change.state.id)

    async def _work(self) -> None:
        while True:
            await self._signal.wait()
            self._signal.clear()
            for objective_id in self._woken - self._attended:
                await self._places.acquire()
                self._woken.discard(objective_id)
                self._attended.add(objective_id)
                self._engine.supervisor.spawn("plan-objective", self._attend(objective_id))

    async def _attend(self, objective_id: ObjectiveId) -> None:
        """Look after an objective; nobody else does at the same time."""
        try:
            await self._advance(objective_id)
        except PlanItemNotFound:
            pass  # it was deleted
        except Exception:  # the edge of the runner, which must live on
            log.exception("objective-not-advanced", objective_id=objective_id)
            self._wake_in(objective_id, _AGAIN_S)
        finally:
            self._places.release()
            self._attended.discard(objective_id)
            if objective_id in self._woken:
                self._signal.set()

    async def _advance(self, objective_id: ObjectiveId) -> None:
        state = await self._book.find(objective_id)
        if state.is_archived or not state.execution:
            return
        if not state.plans and state.is_running(state.id) and self._rules.planner is not None:
            account = self.account_rules(state)
            if not await self._planner.advance(state, self._rules.planner, account):
                self._wake_in(objective_id, _AGAIN_S)
            return
        tried: set[PlanTaskId] = set()
        while (task := self._next(state, tried)) is not None:
            tried.add(task.id)
            if not await self._begin(state, task):
                self._wake_in(objective_id, _AGAIN_S)
            state = await self._book.find(objective_id)

    def _next(self, state: ObjectiveState, tried: set[PlanTaskId]) -> PlanTask | None:
        """The step that is to begin now, besides those that were tried."""
        busy = {one.id for one in state.tasks.values() if one.status in TASK_ACTIVE}
        if len(busy | tried) >= self._rules.parallel:
            return None
        now = self._engine.clock.now()
        for task in ready_tasks(state):
            if task.id in tried or not state.is_running(task.plan_id):
                continue
            due = earliest_start(state, task, self._rules)
            if due is None or due <= now:
                return task
            self._wake_in(state.id, (due - now).total_seconds())
        return None

    async def _begin(self, state: ObjectiveState, task: PlanTask) -> bool:
        """Begin a step; False when that is not possible now."""
        account, attempt = self.account_rules(state), state.attempts.get(task.id, 0) + 1
        agent_id = select_agent(state, task, account.agent_id)
        if not self._rules.is_agent_allowed(state.owner, agent_id, account.agent_id):
            agent_id = DENIED_AGENT
        message = step_message(state, task, await self._results(state, task), agent_id=agent_id)
        send = SubmitRequest(
            scope=effective_owner(state, account.account),
            message=message,
            is_blocking=False,
            make_delivery=self.task_sync.delivery_factory(StepLink(state.id, task.id, attempt)),
            internal_origin=InternalOrigin(
                step_session(agent_id, task), metadata=task_metadata(task)
            ),
        )
        rules = msgspec.structs.replace(account, agent_id=agent_id)
        try:
            run = await submit(self._engine, send, rules)
            shown = await wait_created(self._engine, run)
        except GatewayError as error:
            log.warning("step-not-begun", task_id=task.id, reason=error.message)
            return False
        followed = StepLink(state.id, task.id, attempt)
        if isinstance(shown, TaskCreated) and not await self._link(
            followed, task.id, shown.task.id
        ):
            await self._stop(send.scope, shown.task.id)
        elif isinstance(shown, TaskCreated) and isinstance(run, DuplicateRun):
            # It was begun before: by an earlier life, or before its objective came back from a
            # file. Whoever followed it then may be gone.
            await self.task_sync.send(self.task_sync.delivery_factory(followed)(shown.task.id, -1))
        return True

    async def _link(self, followed: StepLink, step: PlanTaskId, task_id: TaskId) -> bool:
        """Note which task does a step; False when it should not, after all."""

        def link(known: ObjectiveState, occasion: CommandContext) -> Change:
            if known.attempts.get(step, 0) >= followed.attempt:
                return Change(known)  # the mirror was faster; by now it may be over
            return link_task(known, step, task_id, occasion=occasion)

        try:
            change = await self._book.change(followed.objective, link)
        except (StatusChangeNotAllowed, PlanItemNotFound):
            return False  # the objective was canceled or deleted while it began
        return change.state.task(step).a2a_task_id == task_id

    async def cancel_running_tasks(self, state: ObjectiveState) -> None:
        """Have all stopped that is done for an objective; what refuses tells by its own state."""
        scope = effective_owner(state, self.account_rules(state).account)
        working = await self.find_running_tasks(state)
        await asyncio.gather(*[self._stop(scope, task_id) for task_id in working])

    async def find_running_tasks(self, state: ObjectiveState) -> list[TaskId]:
        """The A2A tasks that are done for an objective and have not ended, whatever is noted."""
        scope = effective_owner(state, self.account_rules(state).account)
        known = [*running_tasks(state), *await self._planner.find_planner_tasks(state, scope)]
        found = [await self._engine.store.tasks.read_task(None, task_id) for task_id in known]
        heads = [stored.head for stored in found if stored is not None]
        return [head.id for head in heads if not is_terminal(head.state)]

    async def find_failed_attempts(self, state: ObjectiveState) -> dict[str, TaskId]:
        """The A2A tasks that failed to do the steps that are to be tried again."""
        scope = effective_owner(state, self.account_rules(state).account)
        found: dict[str, TaskId] = {}
        for retry in pending_retries(state, self._rules):
            name = attempt_message_id(state.tasks[retry.task_id], retry.attempts)
            known = await self._engine.store.tasks.find_duplicate(scope, name)
            if known is not None:
                found[retry.task_id] = known.task_id
        return found

    async def _stop(self, scope: Scope, task_id: TaskId) -> None:
        with suppress(GatewayError):
            await cancel_task(self._engine, scope, task_id)

    async def _results(self, state: ObjectiveState, task: PlanTask) -> list[tuple[str, str]]:
        """What the steps said that this one depends on, by itself or by its plan."""
        found: list[tuple[str, str]] = []
        for before in dependency_steps(state, task):
            if before.a2a_task_id is None:
                continue
            stored = await self._engine.store.tasks.read_task(None, before.a2a_task_id)
            if stored is not None:
                found.append(
                    (before.name, last_agent_text(TaskProjection.from_stored(stored).task()))
                )
        return found

    def account_rules(self, state: ObjectiveState) -> AccountRules:
        """The rules of the account that an objective belongs to."""
        account = state.owner.account if state.owner is not None else AccountId("default")
        known = self._engine.accounts.get(account)
        if known is not None:
            return known
        return AccountRules(account, self._default_agent(account))

    def _wake_in(self, objective_id: ObjectiveId, seconds: float) -> None:
        timer = self._timers.pop(objective_id, None)
        moment = self._engine.loop.time() + max(0.0, seconds)
        if timer is not None:
            timer.cancel()
            moment = min(moment, timer.when())
        self._timers[objective_id] = self._engine.loop.call_at(moment, self._ring, objective_id)

    def _ring(self, objective_id: ObjectiveId) -> None:
        self._timers.pop(objective_id, None)
        self.wake(objective_id)

    def stop(self) -> None:
        """Begin nothing more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
