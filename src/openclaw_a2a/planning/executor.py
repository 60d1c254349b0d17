"""Starts ready steps within limits and policy.

A step is ready when its dependencies are done (`ObjectiveState.unblocked_tasks`), its plan is not
held and waits for no other plan (`steps.ready_tasks`), and the limits allow it (here). Whether a
failed step is tried again is decided in `task_sync`, and when in `steps`.

The executor keeps no state of its own besides the work queue: what to start is computed from the
objective, and each attempt has a fixed message id. So an objective may be processed at any time and
any number of times, and after a crash the state in the operation logs is enough to continue.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from enum import Enum
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from openclaw_a2a.engine.engine import AccountRules, Engine
from openclaw_a2a.engine.tasks.active_task import TaskCreated
from openclaw_a2a.engine.tasks.cancel import cancel_task
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.engine.tasks.results import wait_created
from openclaw_a2a.engine.tasks.submit import InternalOrigin, SubmitRequest, submit
from openclaw_a2a.engine.transcript.task_text import last_agent_text
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.agent_event import AgentEvent, Note
from openclaw_a2a.model.errors import (
    AgentFailed,
    GatewayError,
    NotAllowed,
    PlanItemNotFound,
    StatusChangeNotAllowed,
    TaskNotFound,
)
from openclaw_a2a.model.ids import AccountId, AgentId, MessageId, TaskId
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.task import is_terminal
from openclaw_a2a.model.turn import Scope, Turn
from openclaw_a2a.planning.commands import check_delete, set_objective_execution
from openclaw_a2a.planning.model import (
    PAUSED,
    PLANNING,
    TASK_ACTIVE,
    ObjectiveId,
    ObjectiveStatus,
    PlanId,
    PlanStatus,
    PlanTask,
    PlanTaskId,
    transition_error,
)
from openclaw_a2a.planning.params import DeleteObjective
from openclaw_a2a.planning.planner import Planner
from openclaw_a2a.planning.repository import ObjectiveRepository
from openclaw_a2a.planning.rollup import abandoned_tasks, running_tasks
from openclaw_a2a.planning.state import ObjectiveState
from openclaw_a2a.planning.steps import (
    ExecutionPolicy,
    attempt_message_id,
    dependency_steps,
    earliest_start,
    pending_retries,
    ready_tasks,
    select_agent,
    step_message,
    step_session,
    task_metadata,
)
from openclaw_a2a.planning.task_sync import StepLink, TaskSync
from openclaw_a2a.ports import Recovery

log = get_logger(__name__)

# Callers cannot name it: `is_agent_allowed` refuses every id with this prefix.
DENIED_AGENT = AgentId("gateway:refused")
_RETRY_S = 5.0  # after an error or while the gateway is overloaded
_MAX_PARALLEL = 32  # objectives; their writes share the commits of the store


class WorkState(Enum):
    """What the queue knows of an objective; idle ones are not in it."""

    QUEUED = "queued"
    PROCESSING = "processing"
    CHANGED = "changed while processing"


class WorkEvent(Enum):
    """What happens to an objective in the queue."""

    ADD = "add"
    GET = "get"
    DONE = "done"


TRANSITIONS: dict[tuple[WorkState | None, WorkEvent], WorkState | None] = {
    (None, WorkEvent.ADD): WorkState.QUEUED,
    (WorkState.QUEUED, WorkEvent.ADD): WorkState.QUEUED,
    (WorkState.PROCESSING, WorkEvent.ADD): WorkState.CHANGED,
    (WorkState.CHANGED, WorkEvent.ADD): WorkState.CHANGED,
    (WorkState.QUEUED, WorkEvent.GET): WorkState.PROCESSING,
    (WorkState.PROCESSING, WorkEvent.DONE): None,
    (WorkState.CHANGED, WorkEvent.DONE): WorkState.QUEUED,
}
"""From state and event to the next state (None: idle). Other pairs cannot happen."""


class WorkQueue:
    """Objectives to process, first come first served, now or after a delay.

    An objective that is not in the queue is idle. It is in the queue at most once, and it is never
    processed twice at the same time. An `add` during processing is not lost: the worker may have
    read the state before the change, so the objective is queued again when the worker is done.
    Invariant: `_queue` holds exactly the objectives whose state is QUEUED, each once.

    Nothing here is durable. After a crash every open objective is added again, and what was
    started before is found by its message id.
    """

    def __init__(self) -> None:
        self.states: dict[ObjectiveId, WorkState] = {}
        self._queue: deque[ObjectiveId] = deque()
        self._is_filled = asyncio.Event()
        # Each with its due time: for a delay that is over uvloop returns a handle without `when`.
        self._timers: dict[ObjectiveId, tuple[float, asyncio.Handle]] = {}

    def add(self, objective_id: ObjectiveId) -> None:
        """Queue an objective, also while it is being processed."""
        self._move(objective_id, WorkEvent.ADD)

    def add_later(self, objective_id: ObjectiveId, delay_s: float) -> None:
        """Add an objective after a delay; of several delays the shortest counts."""
        loop = asyncio.get_running_loop()
        due = loop.time() + max(0.0, delay_s)
        # One timer per objective, however many of its steps wait.
        earlier = self._timers.pop(objective_id, None)
        if earlier is not None:
            earlier[1].cancel()
            due = min(due, earlier[0])

        def add_due() -> None:
            del self._timers[objective_id]
            self.add(objective_id)

        self._timers[objective_id] = due, loop.call_at(due, add_due)

    async def get(self) -> ObjectiveId:
        """The next objective; the caller must call `done` with it."""
        # Cleared only while the queue is empty, and nothing is awaited between the two lines: an
        # `add` cannot be missed.
        while not self._queue:
            self._is_filled.clear()
            await self._is_filled.wait()
        objective_id = self._queue.popleft()
        self._move(objective_id, WorkEvent.GET)
        return objective_id

    def done(self, objective_id: ObjectiveId) -> None:
        """The processing of an objective has ended."""
        self._move(objective_id, WorkEvent.DONE)

    def close(self) -> None:
        """Cancel the delayed additions."""
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _move(self, objective_id: ObjectiveId, event: WorkEvent) -> None:
        old = self.states.get(objective_id)
        new = TRANSITIONS[old, event]
        if new is None:
            del self.states[objective_id]
            return
        self.states[objective_id] = new
        if new is WorkState.QUEUED and old is not WorkState.QUEUED:
            self._queue.append(objective_id)
            self._is_filled.set()  # wakes the dispatcher in `get`


class DeniedAgent:
    """Fails every step: stands in for an agent that the owner of a step may not use."""

    recovery: Recovery = Recovery.REPEAT

    async def run(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
        """Raises: AgentFailed."""
        yield Note("not begun")  # a `yield` makes this an async generator, as the port requires
        raise AgentFailed(
            "This step names an agent that its owner may not ask. The setting opt.agents, the "
            "policy of the gateway and the limits of the owner's credentials say which."
        )

    async def close(self) -> None:
        """Nothing is held."""


class StepExecutor:
    """Executes the plans of objectives that are set to run."""

    def __init__(
        self,
        engine: Engine,
        repository: ObjectiveRepository,
        policy: ExecutionPolicy,
        *,
        default_agent: Callable[[AccountId], AgentId],
    ) -> None:
        self._engine = engine
        self._repository = repository
        self._policy = policy
        self._default_agent = default_agent
        self._queue = WorkQueue()
        self._slots = asyncio.Semaphore(_MAX_PARALLEL)
        # Weak: a lock lives as long as something holds it or waits for it.
        self._locks: WeakValueDictionary[ObjectiveId, asyncio.Lock] = WeakValueDictionary()
        self.task_sync = TaskSync(engine, repository, policy, wake=self._queue.add)
        self._planner = Planner(engine, repository, self.task_sync)
        # Called after the append, so the worker that this wakes finds the change in memory.
        repository.add_listener(lambda change: self._queue.add(change.state.id))
        repository.when_adopted(self._continue)
        # The replica that changed it may have died before it stopped what was to be stopped, and
        # could not know of a step that was being started here.
        repository.when_changed_elsewhere(self._continue)

    @property
    def has_planner(self) -> bool:
        """True when an agent makes the plans of objectives that have none."""
        return self._policy.planner is not None

    def start(self) -> None:
        """Continue what the last process was executing."""
        for state in self._repository.list_open():
            if self._repository.is_own(state.id):
                self._continue(state)
        self._engine.supervisor.run_loop("planning.executor", self._dispatch())

    def _continue(self, state: ObjectiveState) -> None:
        """Continue an objective that another replica owned or changed."""
        self._queue.add(state.id)
        for work in self._unfinished_stops(state):
            self._engine.supervisor.spawn("planning.cancel", work)

    def _unfinished_stops(self, state: ObjectiveState) -> Iterator[Coroutine[Any, Any, object]]:
        """Repeat cancellations and skips whose effect a crash may have prevented."""
        if state.objective.status is ObjectiveStatus.CANCELED:
            yield self.stop_steps(state.owner, state.id)
            return
        for plan in state.plans.values():
            if plan.status is PlanStatus.SKIPPED and running_tasks(state, plan.id):
                yield self.stop_steps(state.owner, state.id, plan.id)
        if abandoned_tasks(state):
            yield self.stop_abandoned(state.owner, state.id)

    def stop(self) -> None:
        """Start no more steps."""
        # The dispatcher itself is a loop of the engine's supervisor, which cancels it.
        self._queue.close()

    async def _dispatch(self) -> None:
        while True:
            # The slot first: an objective leaves the queue only when it is processed at once, so
            # that changes until then do not have it processed a second time.
            await self._slots.acquire()
            objective_id = await self._queue.get()
            self._engine.supervisor.spawn("planning.advance", self._process(objective_id))

    async def _process(self, objective_id: ObjectiveId) -> None:
        try:
            async with self._lock(objective_id):
                await self._advance(objective_id)
        except PlanItemNotFound:
            pass  # it was deleted meanwhile
        except GatewayError as error:  # the store is away, or the work is another replica's by now
            log.warning("planning.advance_failed", objective_id=objective_id, reason=error.message)
            self._queue.add_later(objective_id, _RETRY_S)
        except Exception:  # an error in one objective must not stop the others
            log.exception("planning.advance_failed", objective_id=objective_id)
            self._queue.add_later(objective_id, _RETRY_S)
        finally:
            # Also after cancellation: an objective that stays PROCESSING is never queued again.
            self._slots.release()
            self._queue.done(objective_id)

    async def _advance(self, objective_id: ObjectiveId) -> None:
        """Start what can start in an objective now."""
        if not self._repository.is_own(objective_id):
            return
        # An archived objective has nothing to start.
        state = await self._repository.find_newest(objective_id)
        if state is None or not state.execution or not self._repository.is_own(objective_id):
            return
        # The planner's answer is the end of a task: the outbox wakes this objective then.
        is_planned = state.is_running(state.id) or state.execution.get(state.id) == PLANNING
        if not state.plans and is_planned and self._policy.planner is not None:
            if not await self._planner.advance(state, self._policy.planner):
                self._queue.add_later(objective_id, _RETRY_S)
            return
        # Each step is tried once per round: a step that cannot start now waits for the timer and
        # does not delay the others.
        tried: set[PlanTaskId] = set()
        while state is not None and self._repository.is_own(objective_id):
            if (task := self._next_step(state, tried)) is None:
                break
            tried.add(task.id)
            if not await self._start_step(state, task):
                self._queue.add_later(objective_id, _RETRY_S)
            state = await self._repository.find_newest(objective_id)

    def _next_step(self, state: ObjectiveState, tried: set[PlanTaskId]) -> PlanTask | None:
        """A step to start now, besides those that were tried already."""
        active = {one.id for one in state.tasks.values() if one.status in TASK_ACTIVE}
        if len(active | tried) >= self._policy.parallel:
            return None
        now = self._engine.clock.now()
        for task in ready_tasks(state):
            if task.id in tried or not state.is_running(task.plan_id):
                continue
            start = earliest_start(state, task, self._policy)
            if start is None or start <= now:
                return task
            # Nothing changes when a back-off or grace time ends, so a timer wakes the executor.
            self._queue.add_later(state.id, (start - now).total_seconds())
        return None

    async def _start_step(self, state: ObjectiveState, task: PlanTask) -> bool:
        """Start an attempt at a step; False when the gateway cannot take it now."""
        owner = state.owner
        account = self.account_rules(owner.account)
        agent_id = select_agent(state, task, account.agent_id)
        is_allowed = self._policy.is_agent_allowed(owner, agent_id, account.agent_id)
        if not (is_allowed and await self._is_step_permitted(state, task, agent_id, account)):
            # A task that fails instead of an error here: its owner can read the reason.
            agent_id = DENIED_AGENT
        # The number of the attempt is in the delivery, too: a report that arrives before the link
        # is in the log creates it, one of an older attempt changes nothing.
        link = StepLink(state.id, task.id, state.attempts.get(task.id, 0) + 1)
        results: list[tuple[str, str]] = []  # names and last texts of the steps it depends on
        for step in dependency_steps(state, task):
            if step.a2a_task_id is None:
                continue
            stored = await self._engine.store.tasks.read_task(owner, step.a2a_task_id)
            if stored is not None:
                results.append(
                    (step.name, last_agent_text(TaskProjection.from_stored(stored).task()))
                )
        request = SubmitRequest(
            scope=owner,
            # The message id is that of the attempt: if an earlier process started it, the submit
            # finds that task instead of starting another.
            message=step_message(state, task, results, agent_id=agent_id),
            is_blocking=False,
            # Stored together with the task: from then on the outbox reports its state, whatever
            # happens to this process.
            make_delivery=self.task_sync.delivery_factory(link),
            internal_origin=InternalOrigin(
                step_session(agent_id, task), metadata=task_metadata(task)
            ),
        )
        rules = msgspec.structs.replace(account, agent_id=agent_id)
        try:
            created = await wait_created(self._engine, await submit(self._engine, request, rules))
        # Overload, or a store that cannot write. The message id makes the retry safe, whether or
        # not the task was stored.
        except GatewayError as error:
            log.warning("planning.step_not_started", task_id=task.id, reason=error.message)
            return False
        if isinstance(created, TaskCreated):
            # Synced here, too: the next round must see that the step has started, and the attempt
            # of an earlier process may have no delivery left that reports it.
            await self.task_sync.sync(link, created.task.id)
        return True

    async def _is_step_permitted(
        self, state: ObjectiveState, task: PlanTask, agent_id: AgentId, account: AccountRules
    ) -> bool:
        """False when the policy forbids the owner, a peer, to use the agent of this step."""
        # The account's own agent was checked when the plan was made. Other agents are checked now:
        # the policy may have changed, and the planner names agents, too.
        engine, owner = self._engine, state.owner
        if engine.policy is None or agent_id == account.agent_id:
            return True
        if not self._policy.is_peer(owner.principal):
            return True
        # Without the results of other steps, which the peer did not write.
        request = SubmitRequest(owner, step_message(state, task, [], agent_id=agent_id))
        rules = msgspec.structs.replace(account, agent_id=agent_id)
        try:
            return await engine.policy.check(request, rules, now=engine.clock.now()) is None
        except NotAllowed:
            return False

    # ------------------------------------------------------------- tasks of an objective

    async def answer_step(self, state: ObjectiveState, waiting: PlanTask, text: str) -> None:
        """Answer a step that waits for input. Raises: TaskNotFound, GatewayError."""
        task_id = waiting.a2a_task_id
        tasks = self._engine.store.tasks
        stored = None if task_id is None else await tasks.read_task(state.owner, task_id)
        if task_id is None or stored is None:
            raise TaskNotFound(f"task not found: there is no task {task_id}")
        message = Message(
            MessageId(self._engine.new_id()), Role.USER, (Part(text=text),), task_id=task_id
        )
        request = SubmitRequest(
            scope=stored.head.scope, message=message, is_blocking=False, is_answer=True
        )
        rules = self.account_rules(state.owner.account)
        await wait_created(self._engine, await submit(self._engine, request, rules))
        # Sync now: the caller must see the step after the answer, without waiting for the outbox.
        await self._sync_step(state, waiting.id, task_id)

    async def stop_steps(
        self, scope: Scope | None, objective_id: ObjectiveId, plan_id: PlanId | None = None
    ) -> ObjectiveState:
        """Cancel every running A2A task of an objective, or of a plan; the state afterwards.

        Nothing may start there any more: it was canceled, paused or skipped.

        Returns when all have stopped. A task that does not stop in its time is still active in the
        state, and the outbox reports its end.
        """
        # A step that is being started is not linked yet. When the executor is done with it, it is
        # linked, or its sync has found the objective closed and canceled it.
        async with self._lock(objective_id):
            state = await self._repository.get(scope, objective_id)
        running = running_tasks(state, plan_id)
        to_stop = running if plan_id else await self.find_running_tasks(state)
        await asyncio.gather(*(self._cancel_task(state, task_id) for task_id in to_stop))
        # The caller that canceled the objective sees the steps as they are now, not as the outbox
        # will report them.
        for task_id in running:
            for step in state.linked_to(task_id):
                await self._sync_step(state, step.id, task_id)
        return await self._repository.get(scope, objective_id)

    async def _sync_step(self, state: ObjectiveState, step: PlanTaskId, task_id: TaskId) -> None:
        # `is_own=False`: `sync` must not cancel a task that was just answered or canceled.
        link = StepLink(state.id, step, state.attempts.get(step, 1), is_own=False)
        await self.task_sync.sync(link, task_id)

    async def stop_abandoned(
        self, scope: Scope | None, objective_id: ObjectiveId, plan_id: PlanId | None = None
    ) -> None:
        """Cancel the A2A tasks that still work on failed or canceled steps, and wait for them."""
        state = await self._repository.get(scope, objective_id)
        running = await self._select_running(state.owner, abandoned_tasks(state, plan_id))
        await asyncio.gather(*(self._cancel_task(state, task_id) for task_id in running))

    async def _cancel_task(self, state: ObjectiveState, task_id: TaskId) -> None:
        # It has ended already, or its agent does not stop: the outbox reports its end either way.
        with suppress(GatewayError):
            await cancel_task(self._engine, state.owner, task_id)

    def _lock(self, objective_id: ObjectiveId) -> asyncio.Lock:
        """Held while steps of an objective are being started."""
        return self._locks.setdefault(objective_id, asyncio.Lock())

    async def delete_objective(self, scope: Scope | None, params: DeleteObjective) -> None:
        """Delete an objective. Raises: PlanItemNotFound, StatusChangeNotAllowed (a task runs)."""
        check_delete(await self._repository.get(scope, params.id), params)
        if params.cancel:
            # Paused first: the executor starts nothing behind the cancellation. A crash from here
            # on leaves a paused objective that can be deleted again.
            with suppress(StatusChangeNotAllowed):  # nothing starts in a closed objective anyway
                await self._repository.change(scope, params.id, set_objective_execution, PAUSED)
            await self.stop_steps(scope, params.id)
        # `check_idle` looks at the tasks once more, under the lock: one that refused to stop keeps
        # the objective.
        await self._repository.delete(scope, params.id, self.check_idle)

    async def find_running_tasks(self, state: ObjectiveState) -> list[TaskId]:
        """The A2A tasks of an objective that have not ended according to the store."""
        # The store decides, not the objective: a step's status lags behind its task until the
        # outbox has reported it.
        planners = await self._planner.find_planner_tasks(state)
        known = (*running_tasks(state), *abandoned_tasks(state), *planners)
        return await self._select_running(state.owner, known)

    async def _select_running(self, owner: Scope, known: Iterable[TaskId]) -> list[TaskId]:
        found = [await self._engine.store.tasks.read_task(owner, task_id) for task_id in known]
        heads = [stored.head for stored in found if stored is not None]
        return [head.id for head in heads if not is_terminal(head.state)]

    async def check_idle(self, state: ObjectiveState) -> None:
        """Check that no A2A task of an objective is running. Raises: StatusChangeNotAllowed."""
        if await self.find_running_tasks(state):
            why = "a task of it is running; wait, or delete it with `cancel`"
            change = (state.objective.status.value, "deleted")
            raise transition_error(("objective", state.id), change, why)

    async def find_failed_attempts(self, state: ObjectiveState) -> dict[str, TaskId]:
        """The A2A tasks of the last, failed attempts at steps that will be retried."""
        found: dict[str, TaskId] = {}
        for retry in pending_retries(state, self._policy):
            message_id = attempt_message_id(state.tasks[retry.task_id], retry.attempts)
            attempt = await self._engine.store.tasks.find_duplicate(state.owner, message_id)
            if attempt is not None:
                found[retry.task_id] = attempt.task_id
        return found

    def account_rules(self, account: AccountId) -> AccountRules:
        """The rules of an account; those of one that is no longer configured are the defaults."""
        known = self._engine.accounts.get(account)
        return known or AccountRules(account, self._default_agent(account))
