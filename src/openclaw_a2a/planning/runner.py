"""Runs objectives: what can begin begins, on the agents that are named, as far as allowed."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec
import structlog

from openclaw_a2a.model.errors import (
    GatewayError,
    PlanItemNotFound,
    StatusChangeNotAllowed,
)
from openclaw_a2a.model.ids import AccountId, AgentId, TaskId
from openclaw_a2a.model.states import is_terminal
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.planning.book import ObjectiveBook
from openclaw_a2a.planning.draft import Change, Occasion
from openclaw_a2a.planning.mirror import Followed, Mirror
from openclaw_a2a.planning.objects import (
    ACTIVE,
    ObjectiveId,
    ObjectiveStatus,
    PlanTask,
    PlanTaskId,
)
from openclaw_a2a.planning.planner import Planner
from openclaw_a2a.planning.progress import ready_tasks
from openclaw_a2a.planning.refused import REFUSED
from openclaw_a2a.planning.rollup import link_task, running_tasks
from openclaw_a2a.planning.state import ObjectiveState
from openclaw_a2a.planning.steps import (
    RunRules,
    agent_for,
    due_at,
    message_id,
    owner_of,
    retries,
    step_message,
    step_session,
    steps_before,
    task_keys,
)
from openclaw_a2a.runtime.cancel import cancel
from openclaw_a2a.runtime.engine import Engine
from openclaw_a2a.runtime.live import KnownRun, Shown
from openclaw_a2a.runtime.sent import first_of
from openclaw_a2a.runtime.submit import FromInside, Send, submit
from openclaw_a2a.runtime.turn import AccountRules
from openclaw_a2a.runtime.view import TaskView
from openclaw_a2a.runtime.words import last_words

log = structlog.get_logger(__name__)

_AGAIN_S = 5.0
"""When the gateway has too much to do, a step is begun after so long."""

_AT_ONCE = 32
"""So many objectives are looked after at once: their writes share the commits of the store."""

DefaultAgent = Callable[[AccountId], AgentId]


class Runner:
    """Begins the steps of objectives that are run. It knows nothing that journals do not say."""

    def __init__(
        self,
        engine: Engine,
        book: ObjectiveBook,
        rules: RunRules,
        *,
        default_agent: DefaultAgent,
    ) -> None:
        self._engine = engine
        self._book = book
        self._rules = rules
        self._default_agent = default_agent
        self.mirror = Mirror(engine, book, rules, wake=self.wake)
        self._planner = Planner(engine, book, self.mirror)
        self._woken: set[ObjectiveId] = set()
        self._attended: set[ObjectiveId] = set()
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._signal = asyncio.Event()
        self._timers: dict[ObjectiveId, asyncio.TimerHandle] = {}
        book.listen(self._heard)

    def start(self) -> None:
        """Go on with what an earlier life was running."""
        for state in self._book.open():
            self.wake(state.id)
            if state.objective.status is ObjectiveStatus.CANCELED:
                self._engine.spawn(self.end(state))  # if the gateway died before that was done
        self._engine.spawn(self._work())

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
                self._engine.spawn(self._attend(objective_id))

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
        if state.is_archived or not state.runs:
            return
        if not state.plans and state.is_running(state.id) and self._rules.planner is not None:
            account = self.account_of(state)
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
        busy = {one.id for one in state.tasks.values() if one.status in ACTIVE}
        if len(busy | tried) >= self._rules.parallel:
            return None
        now = self._engine.clock.now()
        for task in ready_tasks(state):
            if task.id in tried or not state.is_running(task.plan_id):
                continue
            due = due_at(state, task, self._rules)
            if due is None or due <= now:
                return task
            self._wake_in(state.id, (due - now).total_seconds())
        return None

    async def _begin(self, state: ObjectiveState, task: PlanTask) -> bool:
        """Begin a step; False when that is not possible now."""
        account, attempt = self.account_of(state), state.attempts.get(task.id, 0) + 1
        agent_id = agent_for(state, task, account.agent_id)
        if not self._rules.may_ask(state.owner, agent_id, account.agent_id):
            agent_id = REFUSED
        message = step_message(state, task, await self._results(state, task), agent_id=agent_id)
        send = Send(
            scope=owner_of(state, account.account),
            message=message,
            is_blocking=False,
            follow=self.mirror.follow(Followed(state.id, task.id, attempt)),
            inside=FromInside(step_session(agent_id, task), metadata=task_keys(task)),
        )
        rules = msgspec.structs.replace(account, agent_id=agent_id)
        try:
            run = await submit(self._engine, send, rules)
            shown = await first_of(self._engine, run)
        except GatewayError as error:
            log.warning("step-not-begun", task_id=task.id, reason=error.message)
            return False
        followed = Followed(state.id, task.id, attempt)
        if isinstance(shown, Shown) and not await self._link(followed, task.id, shown.task.id):
            await self._stop(send.scope, shown.task.id)
        elif isinstance(shown, Shown) and isinstance(run, KnownRun):
            # It was begun before: by an earlier life, or before its objective came back from a
            # file. Whoever followed it then may be gone.
            await self.mirror.bring(self.mirror.follow(followed)(shown.task.id, -1))
        return True

    async def _link(self, followed: Followed, step: PlanTaskId, task_id: TaskId) -> bool:
        """Note which task does a step; False when it should not, after all."""

        def link(known: ObjectiveState, occasion: Occasion) -> Change:
            if known.attempts.get(step, 0) >= followed.attempt:
                return Change(known)  # the mirror was faster; by now it may be over
            return link_task(known, step, task_id, occasion=occasion)

        try:
            change = await self._book.change(followed.objective, link)
        except (StatusChangeNotAllowed, PlanItemNotFound):
            return False  # the objective was canceled or deleted while it began
        return change.state.task(step).a2a_task_id == task_id

    async def end(self, state: ObjectiveState) -> None:
        """Have all stopped that is done for an objective; what refuses tells by its own state."""
        scope = owner_of(state, self.account_of(state).account)
        working = await self.working(state)
        await asyncio.gather(*[self._stop(scope, task_id) for task_id in working])

    async def working(self, state: ObjectiveState) -> list[TaskId]:
        """The A2A tasks that are done for an objective and have not ended, whatever is noted."""
        scope = owner_of(state, self.account_of(state).account)
        known = [*running_tasks(state), *await self._planner.asked(state, scope)]
        found = [await self._engine.store.read_task(None, task_id) for task_id in known]
        heads = [stored.head for stored in found if stored is not None]
        return [head.id for head in heads if not is_terminal(head.state)]

    async def tried(self, state: ObjectiveState) -> dict[str, TaskId]:
        """The A2A tasks that failed to do the steps that are to be tried again."""
        scope = owner_of(state, self.account_of(state).account)
        found: dict[str, TaskId] = {}
        for retry in retries(state, self._rules):
            name = message_id(state.tasks[retry.task_id], retry.attempts)
            known = await self._engine.store.read_known(scope, name)
            if known is not None:
                found[retry.task_id] = known.task_id
        return found

    async def _stop(self, scope: Scope, task_id: TaskId) -> None:
        with suppress(GatewayError):
            await cancel(self._engine, scope, task_id)

    async def _results(self, state: ObjectiveState, task: PlanTask) -> list[tuple[str, str]]:
        """What the steps said that this one depends on, by itself or by its plan."""
        found: list[tuple[str, str]] = []
        for before in steps_before(state, task):
            if before.a2a_task_id is None:
                continue
            stored = await self._engine.store.read_task(None, before.a2a_task_id)
            if stored is not None:
                found.append((before.name, last_words(TaskView.of_stored(stored).task())))
        return found

    def account_of(self, state: ObjectiveState) -> AccountRules:
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
