"""Which tasks a session had lately: where its agent's later words belong."""

import asyncio
import weakref
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec

from openclaw_a2a.engine.outbox.wakeups import WakeupRegistry
from openclaw_a2a.engine.scheduling.session_queue import SessionQueues
from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.engine.tasks.journal import Journal
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.engine.tasks.result import ActiveTask
from openclaw_a2a.engine.tasks.run import ActiveRun
from openclaw_a2a.engine.tasks.turn_builder import AccountRules
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import AgentUnavailable, GatewayError
from openclaw_a2a.model.ids import (
    AccountId,
    ContextId,
    JsonObject,
    MessageId,
    OwnerId,
    RunId,
    SessionKey,
    TaskId,
)
from openclaw_a2a.model.message import Message
from openclaw_a2a.model.records import RunOptions, RunRecord, StoredTask
from openclaw_a2a.model.task import Task, TaskState, TaskStatus
from openclaw_a2a.model.turn import Binding, Scope
from openclaw_a2a.ports import AgentLookup, Clock, Recovery, Store, Submission, SupportsDetach

_MOST_SESSIONS = 10_000
_MOST_TASKS = 32


class SessionTasks:
    """The newest tasks of the sessions that were used last."""

    def __init__(self) -> None:
        self._tasks: dict[SessionKey, tuple[TaskId, ...]] = {}

    def note(self, session_key: SessionKey, task_id: TaskId) -> None:
        """The session has begun to work on this task now."""
        known = self._tasks.pop(session_key, ())
        others = tuple(one for one in known if one != task_id)
        self._tasks[session_key] = (task_id, *others)[:_MOST_TASKS]
        self._trim()

    def learn(self, session_key: SessionKey, task_id: TaskId) -> None:
        """The session had this task before; what it has begun since is newer."""
        if task_id not in self.tasks_of(session_key):
            begun = self._tasks.pop(session_key, ())
            self._tasks[session_key] = (*begun, task_id)[:_MOST_TASKS]
            self._trim()

    def tasks_of(self, session_key: SessionKey) -> tuple[TaskId, ...]:
        """The tasks of a session, the newest first; empty when it is not known."""
        return self._tasks.get(session_key, ())

    def _trim(self) -> None:
        if len(self._tasks) > _MOST_SESSIONS:
            del self._tasks[next(iter(self._tasks))]


log = get_logger(__name__)


class EngineLimits(msgspec.Struct, frozen=True):
    """Bounds of one engine."""

    run_s: float = 3600.0
    cancel_s: float = 10.0
    lease_s: float = 30.0
    attempts: int = 3
    join_deltas: bool = True
    inflight_events: int = 256
    pending_text: int = 65536
    history_messages: int = 10_000
    queued_replies: int = 1000
    event_bytes: int = 8 * 1024 * 1024
    run_bytes: int = 64 * 1024 * 1024


class Engine:
    """Everything that happens to the tasks of one store."""

    def __init__(
        self,
        store: Store,
        agents: AgentLookup,
        *,
        queues: SessionQueues,
        clock: Clock,
        limits: EngineLimits,
        new_id: Callable[[], str],
    ) -> None:
        self.store = store
        self.agents = agents
        self.clock = clock
        self.limits = limits
        self.new_id = new_id
        self.accounts: dict[AccountId, AccountRules] = {}
        self.owner = OwnerId(new_id())
        self._lease = timedelta(seconds=limits.lease_s)
        self.is_draining = False
        self.is_stopping = False
        self.is_forcing = False
        """True when what still runs is broken off even in its clean-up; it ends as nothing."""
        self.active_tasks: dict[TaskId, ActiveTask] = {}
        self.runs: dict[RunId, ActiveRun] = {}
        self.pending_submissions: dict[tuple[Scope, MessageId], ActiveRun] = {}
        """Runs whose message is on its way into the store, by that message."""
        self.abandoned: list[RunRecord] = []
        self.wakeups = WakeupRegistry()
        self.session_tasks = SessionTasks()
        self.loop = asyncio.get_running_loop()
        self._queues = queues
        self.supervisor = Supervisor("engine")
        """The jobs and loops of this engine. Runs are not among them: they end in their own way."""
        self._run_supervisor = Supervisor("runs")
        self._alone: weakref.WeakValueDictionary[TaskId, asyncio.Lock] = (
            weakref.WeakValueDictionary()
        )

    # ---------------------------------------------------------------- runs

    def new_run(
        self,
        scope: Scope,
        message: Message,
        binding: Binding,
        *,
        rules: AccountRules,
        options: RunOptions,
        resume: bytes | None = None,
    ) -> ActiveRun:
        """A run in its place of the session's order. Raises: Overloaded."""
        place = self._queues.join(binding.session_key, scope.principal)
        record = RunRecord(
            id=RunId(self.new_id()),
            task_id=message.task_id or TaskId(""),
            context_id=message.context_id or ContextId(""),
            scope=scope,
            session_key=binding.session_key,
            message=message,
            binding=binding,
            options=options,
            owner=self.owner,
            lease_until=self.lease_end(),
            is_started=place.has_turn,
            resume=resume,
        )
        return ActiveRun(self, record, rules=rules, place=place)

    def launch(self, run: ActiveRun, submission: Submission) -> ActiveRun:
        """Hand a new run to the store and let it live."""
        record = run.record
        run.digest = submission.body_hash
        run.is_followed = submission.delivery is not None
        run.begins_early = record.is_started and self._is_repeatable(record)
        self.runs[record.id] = run
        if run.active_task is not None:
            self.session_tasks.note(record.session_key, record.task_id)
        self.pending_submissions[record.scope, record.message.message_id] = run
        run.task = self._run_supervisor.start("run", run.run(self.store.tasks.submit(submission)))
        return run

    def arrived(self, run: ActiveRun) -> None:
        """The store has said its word on the run's message."""
        self.pending_submissions.pop((run.record.scope, run.record.message.message_id), None)
        if run.is_followed:  # not before: who looked in between would have found nobody
            self.wakeups.subscribed.add(run.record.task_id)
            self.wakeups.notify(run.record.task_id)

    def _is_repeatable(self, record: RunRecord) -> bool:
        try:
            return self.agents.find(record.binding.agent_id).recovery is Recovery.REPEAT
        except AgentUnavailable:
            return False

    def relaunch(self, record: RunRecord, live: ActiveTask | None) -> None:
        """Go on with a run that was claimed after a crash."""
        place = self._queues.join(record.session_key, record.scope.principal, is_accepted=True)
        account = record.scope.account
        bare = AccountRules(account, record.binding.agent_id)
        run = ActiveRun(self, record, rules=self.accounts.get(account, bare), place=place)
        run.active_task = live
        if live is not None:
            live.runs.append(run)
            self.session_tasks.note(record.session_key, record.task_id)
        self.runs[record.id] = run
        run.task = self._run_supervisor.start("run", run.run(None))

    # ---------------------------------------------------------------- live tasks

    def open_task(self, run: ActiveRun, metadata: JsonObject | None = None) -> ActiveTask:
        """Bring the task of a run to life; its first change creates it."""
        record, now = run.record, self.clock.now()
        status = TaskStatus(TaskState.SUBMITTED, timestamp=now)
        task = Task(
            record.task_id,
            record.context_id,
            status,
            history=(record.message,),
            metadata=metadata,
        )
        journal = Journal.of_new(
            self.store.tasks, task, scope=record.scope, binding=record.binding, now=now
        )
        live = self._live_task(journal)
        live.open_with(task, 0)
        live.runs.append(run)
        self.active_tasks[record.task_id] = live
        self.session_tasks.note(record.session_key, record.task_id)
        return live

    def _live_task(self, journal: Journal) -> ActiveTask:
        return ActiveTask(self.bounded(journal))

    def bounded(self, journal: Journal) -> Journal:
        """The journal, with the limits and the watch of this engine."""
        limits = self.limits
        journal.event_bytes, journal.run_bytes = limits.event_bytes, limits.run_bytes
        journal.messages = limits.history_messages
        journal.watch = self.wakeups
        return journal

    def journal_of(self, stored: StoredTask) -> Journal:
        """The journal of a stored task that no run works on, for a few words of ours."""
        journal = Journal.of_stored(self.store.tasks, stored)
        journal.watch = self.wakeups
        return journal

    def task_lock(self, task_id: TaskId) -> asyncio.Lock:
        """To be held by who looks at a task and then changes it from outside its runs."""
        lock = self._alone.get(task_id)
        if lock is None:
            lock = self._alone[task_id] = asyncio.Lock()
        return lock

    def revive(self, stored: StoredTask) -> ActiveTask:
        """The live task of a stored one, made when it is not there."""
        live = self.active_tasks.get(stored.head.id)
        if live is None:
            live = self.active_tasks[stored.head.id] = self._live_task(
                Journal.of_stored(self.store.tasks, stored)
            )
        return live

    def forget_run(self, run: ActiveRun) -> None:
        """The run is over."""
        self.runs.pop(run.record.id, None)
        live = self.active_tasks.get(run.record.task_id)
        if live is not None and not live.runs:
            del self.active_tasks[run.record.task_id]
        if run.active_task is None and run.record.task_id in self.wakeups.subscribed:
            self.wakeups.notify(run.record.task_id)  # it ended without a task

    def note_abandoned(self, record: RunRecord, error: GatewayError) -> None:
        """A run the store would not let us finish; upkeep looks after it."""
        self.abandoned.append(record)

    def has_run(self, task_id: TaskId) -> bool:
        """True when a run for this task is waiting, active, or still to be failed."""
        records = [run.record for run in self.runs.values()] + self.abandoned
        return any(record.task_id == task_id for record in records)

    async def reference_tasks(self, record: RunRecord) -> tuple[Task, ...]:
        """The tasks the message refers to, as far as the caller may see them."""
        found: list[Task] = []
        for task_id in record.message.reference_task_ids:
            stored = await self.store.tasks.read_task(record.scope, task_id)
            if stored is not None:
                found.append(TaskProjection.from_stored(stored).task())
        return tuple(found)

    # ---------------------------------------------------------------- time and jobs

    def lease_end(self) -> Any:
        """Until when this engine owns what it takes now."""
        return self.clock.now() + self._lease

    async def drain(self, seconds: float) -> int:
        """Take nothing more in and let runs end; how many are left when the time is over."""
        self.is_draining = True
        tasks = self._run_tasks()
        if tasks and seconds > 0:
            await asyncio.wait(tasks, timeout=seconds)
        return len(self.runs)

    def _run_tasks(self) -> list[asyncio.Task[None]]:
        return [run.task for run in self.runs.values() if run.task is not None]

    async def stop(self) -> None:
        """End everything here. Unfinished runs stay in the store for the next start to find."""
        self.is_draining = self.is_stopping = True
        for run in list(self.runs.values()):
            self._let_go(run)
            run.stop()
        await self.supervisor.stop(self.limits.cancel_s)
        if tasks := self._run_tasks():
            await asyncio.wait(tasks, timeout=self.limits.cancel_s)
        self.is_forcing = True
        await self._run_supervisor.stop(self.limits.cancel_s)
        for live in list(self.active_tasks.values()):
            live.journal.feed.close()

    def _let_go(self, run: ActiveRun) -> None:
        """Work that can be found again at the next start is not ended by a stop."""
        with suppress(AgentUnavailable):
            agent = self.agents.find(run.record.binding.agent_id)
            if isinstance(agent, SupportsDetach):
                agent.detach()
