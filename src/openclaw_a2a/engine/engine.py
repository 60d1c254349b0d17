"""Public API of the engine: the state that the operations on tasks share.

`tasks/submit`, `tasks/cancel`, `tasks/queries`, `recovery` and `maintenance` are functions over an
`Engine`; it owns the runs, the active tasks, and everything that runs in the background.
"""

import asyncio
import os
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from itertools import chain, repeat
from typing import TYPE_CHECKING

import msgspec

from openclaw_a2a.engine.audit_log import AuditLog
from openclaw_a2a.engine.engine_state import TRANSITIONS, EngineSignal, EngineState
from openclaw_a2a.engine.outbox.wakeups import WakeupRegistry
from openclaw_a2a.engine.scheduling.fair_queue import FairSemaphore
from openclaw_a2a.engine.scheduling.session_queue import SessionQueues
from openclaw_a2a.engine.sessions import SessionRecoveries, SessionTasks
from openclaw_a2a.engine.supervisor import Supervisor, TimeoutQueue
from openclaw_a2a.engine.tasks.active_task import ActiveTask
from openclaw_a2a.engine.tasks.journal import UNLIMITED, Journal, JournalLimits
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.engine.tasks.run import ActiveRun
from openclaw_a2a.engine.tasks.run_state import RunSignal
from openclaw_a2a.engine.transcript.assistant_message import OutputModes
from openclaw_a2a.engine.transcript.transcript import NO_ARTIFACTS, EventContext, Transcript
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.ids import (
    AccountId,
    AgentId,
    ContextId,
    JsonObject,
    MessageId,
    OwnerId,
    PeerName,
    RunId,
    TaskId,
)
from openclaw_a2a.model.message import Message
from openclaw_a2a.model.records import RunOptions, RunRecord, StoredTask, TaskHead
from openclaw_a2a.model.task import StatusUpdate, Task, TaskState, TaskStatus
from openclaw_a2a.model.turn import Binding, Scope, Turn
from openclaw_a2a.ports import AgentLookup, Clock, Recovery, Store, Submission, SupportsDetach

if TYPE_CHECKING:
    from openclaw_a2a.engine.replication import Replication
    from openclaw_a2a.engine.tasks.submit_policy import SubmitPolicy

log = get_logger(__name__)

_REFERENCES_AT_ONCE = 2
"""How many tasks that messages refer to are read at once; one of each caller."""
_MAX_DOUBTFUL = 10_000


_IDS_AT_ONCE = 256
_ALIKE = 3


def _make_ids(count: int) -> list[str]:
    text = os.urandom(16 * count).hex()
    # The ids of a batch begin alike. So they are neighbours in the indexes of a store, and a commit
    # of several tasks changes a few pages instead of some for each. Few enough digits that short
    # forms of ids are nearly always unique.
    start = text[:_ALIKE]
    digits = [start + text[end - 32 + _ALIKE : end] for end in range(32, len(text) + 1, 32)]
    return [f"{one[:8]}-{one[8:12]}-{one[12:16]}-{one[16:20]}-{one[20:]}" for one in digits]


new_id: Callable[[], str] = chain.from_iterable(map(_make_ids, repeat(_IDS_AT_ONCE))).__next__
"""A random id in the form of a UUID.

Randomness is taken from the system for many ids at once: a system call for each would cost more
than everything else that happens to a short message.
"""


class SystemClock:
    """The machine's clock."""

    now = staticmethod(partial(datetime.now, UTC))
    """The time of day, UTC."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class AccountRules(msgspec.Struct, frozen=True):
    """How an account treats messages."""

    account: AccountId
    agent_id: AgentId
    is_task_generating: bool = True
    input_modes: tuple[str, ...] = ("text/plain", "application/json")
    output_modes: tuple[str, ...] = ("text/plain", "application/json")
    keeps_origin: bool = False
    store_path: str = ""
    max_parts: int = 1000
    max_values: int = 25_000
    max_part_bytes: int = 16 * 1024 * 1024
    approvers: frozenset[PeerName] = frozenset()
    """Peers that may decide approvals, which otherwise only the operator may."""
    accepts_empty: bool = False
    """True when the agent also gets messages without content."""
    transcript_type: type[Transcript] | None = None
    """The transcript of runs, for every agent; None: the choice of the agent."""


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
    reference_tasks: int = 16
    peer_held: int = 16
    held_s: float = 7 * 86400.0
    reference_bytes: int = 8 * 1024 * 1024
    event_bytes: int = 8 * 1024 * 1024
    run_bytes: int = 64 * 1024 * 1024
    deduplicates: bool = True
    """False: messages of callers are never duplicates. Messages of the gateway itself (calls,
    plan steps) are always deduplicated: they are sent again after a crash."""


class Engine:
    """The tasks of one store and everything that works on them."""

    def __init__(
        self,
        store: Store,
        agents: AgentLookup,
        *,
        queues: SessionQueues,
        clock: Clock,
        limits: EngineLimits,
        new_id: Callable[[], str],
        audit: AuditLog | None = None,
    ) -> None:
        self.policy: SubmitPolicy | None = None
        """Decides about messages of peers; None: every message is accepted."""
        self.audit = audit or AuditLog(None, clock.now)
        self.store = store
        self.agents = agents
        self.clock = clock
        self.limits = limits
        self.new_id = new_id
        self.accounts: dict[AccountId, AccountRules] = {}
        self.replication: Replication | None = None
        """The other engines of the store; None: this one has it for itself."""
        # New for each process: the runs of any other owner were left by one that is gone.
        self._owner = OwnerId(new_id())
        self.state = EngineState.SERVING
        self.active_tasks: dict[TaskId, ActiveTask] = {}
        # A run is in `runs` from `start_run` to `remove_run`, also while it waits in its queue; a
        # task is in `active_tasks` while one of its runs is.
        self.runs: dict[RunId, ActiveRun] = {}
        self.pending_submissions: dict[tuple[Scope, MessageId], ActiveRun] = {}
        """Runs whose message the store has not answered yet, by that message."""
        self._deferred: deque[Journal] = deque()
        """The journals of tasks whose submission is sent after the first step of their run."""
        self.abandoned: list[RunRecord] = []
        """Runs whose end the store refused; maintenance fails them."""
        self.detached: dict[RunId, Turn] = {}
        """The turns of those whose agents still work: maintenance ends that work."""
        self.orphans: set[TaskId] = set()
        """Tasks that no run works on and whose end could not be stored; maintenance fails them."""
        self.session_tasks = SessionTasks()
        self.recoveries = SessionRecoveries()
        self._doubtful: dict[RunId, TaskId] = {}
        """Runs whose senders got an error because the store became unavailable: it may have stored
        them, and then maintenance takes them up."""
        self.on_recovered: list[Callable[[], None]] = []
        """Called when runs were recovered while the engine serves: their deliveries are stored."""
        self.loop = asyncio.get_running_loop()
        self.supervisor = Supervisor("engine")
        """The jobs and loops of this engine. Runs are not among them: they are not just cancelled
        when the engine stops."""
        # Not a child of `supervisor`: `stop` gives runs time to end between the two stops.
        self._run_supervisor = Supervisor("runs")
        self.wakeups = WakeupRegistry(
            self.supervisor, self._run_supervisor, has_replicas=store.replicas is not None
        )
        self.run_timeouts: TimeoutQueue[ActiveRun] = TimeoutQueue(
            "run timeouts", limits.run_s, ActiveRun.on_timeout, self._run_supervisor
        )
        """The runs whose agents work."""
        self.queues = queues
        self._reference_slots = FairSemaphore(_REFERENCES_AT_ONCE)
        self._journal_limits = JournalLimits(
            limits.event_bytes, limits.run_bytes, limits.history_messages
        )
        # Weak: a lock lives as long as it is held or waited for, and no longer.
        self._task_locks: weakref.WeakValueDictionary[TaskId, asyncio.Lock] = (
            weakref.WeakValueDictionary()
        )

    # ---------------------------------------------------------------- runs

    @property
    def owner(self) -> OwnerId:
        """The name of this engine in the store."""
        return self._owner if self.replication is None else self.replication.id

    def rules_of(self, account: AccountId, agent_id: AgentId) -> AccountRules:
        """The rules of an account; the usual ones, with this agent, if it is not configured now."""
        return self.accounts.get(account) or AccountRules(account, agent_id)

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
        """A run with its position in the session queue. Raises: Overloaded."""
        # The position is taken before anything is awaited: messages of a session run in the order
        # in which they came. `is_started` follows from it, which saves a commit for each run that
        # does not have to wait.
        is_elsewhere = False
        if self.replication is not None and options.hold is None:  # a held message asks no agent
            is_elsewhere = self.waits_elsewhere(binding.agent_id)
        slot = self.queues.join(
            binding.session_key,
            scope.principal,
            binding.agent_id,
            is_coordinator=getattr(self.agents.get(binding.agent_id), "is_coordinator", False),
            is_elsewhere=is_elsewhere,
        )
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
            is_started=slot.has_turn,
            resume=resume,
        )
        return ActiveRun(self, record, rules=rules, slot=slot)

    def waits_elsewhere(self, agent_id: AgentId) -> bool:
        """True when runs of the agent wait here until another replica has it, and takes them."""
        return self.replication is not None and self.replication.waits_elsewhere(agent_id)

    def start_run(self, run: ActiveRun, submission: Submission) -> ActiveRun:
        """Start a new run and hand its submission to the store."""
        record, active = run.record, run.active_task
        run.submission = submission
        self.runs[record.id] = run
        # The same message may come again before the store knows it: it finds this run here.
        self.pending_submissions[record.scope, record.message.message_id] = run
        # An agent whose work may be repeated is asked at once: if the message is refused, nothing
        # of its work is shown.
        starts_early = (
            record.is_started and run.agent is not None and run.agent.recovery is Recovery.REPEAT
        )
        opening = None if active is None or not active.is_opening else active.journal
        if opening is None or not starts_early:
            # Submissions reach the store in the order of arrival: after a crash the runs of a
            # session are in that order again.
            for journal in self._deferred:
                journal.send_opening()
            (run.submit if opening is None else opening.send_opening)()
        run.task = self._run_supervisor.start("run", run.run(is_early=starts_early))
        if opening is not None and starts_early:
            # After the first step of the run, which is due before this: the submission takes
            # along what the agent says without waiting, and nearly always that is everything.
            self._deferred.append(opening)
            self.loop.call_soon(self._send_deferred)
        return run

    def _send_deferred(self) -> None:
        """Send the oldest submission that waited for the first step of its run."""
        journal = self._deferred.popleft()
        if journal.submit is not None:  # the end of the run has not taken it along
            journal.send_opening()

    def restart_run(self, record: RunRecord, active: ActiveTask | None) -> None:
        """Continue a run that was claimed after a crash."""
        # Claimed runs are restarted in the order of their tickets, which gives each session its
        # order of arrival back.
        agent_id = record.binding.agent_id
        slot = self.queues.join(
            record.session_key,
            record.scope.principal,
            agent_id,
            is_coordinator=getattr(self.agents.get(agent_id), "is_coordinator", False),
            is_elsewhere=self.waits_elsewhere(agent_id) and record.options.hold is None,
            is_accepted=True,
        )
        rules = self.rules_of(record.scope.account, agent_id)
        run = ActiveRun(self, record, rules=rules, slot=slot)
        run.active_task = active
        if active is not None:
            active.runs.append(run)
            self.session_tasks.add_newest(record.session_key, record.task_id)
            status = active.journal.projection.task().status
            if slot.is_elsewhere and status.state is TaskState.SUBMITTED and not status.message:
                active.journal.append([self.waiting_status(record)], run=record)
        self.runs[record.id] = run
        # No submission to wait for: the store holds the message since the first attempt.
        run.task = self._run_supervisor.start("run", run.run(is_early=True))

    def note_doubtful(self, record: RunRecord) -> None:
        """The store became unavailable while it was given this run."""
        # The first ones matter: what comes later is not even sent to a store that is away.
        if len(self._doubtful) < _MAX_DOUBTFUL:
            self._doubtful[record.id] = record.task_id

    @property
    def doubtful_runs(self) -> Mapping[RunId, TaskId]:
        """Runs that the store may have although their senders got an error, with their tasks."""
        return self._doubtful

    def clear_doubtful(self, runs: Iterable[RunId]) -> None:
        """What became of these runs is known."""
        for run_id in runs:
            del self._doubtful[run_id]

    def remove_run(self, run: ActiveRun) -> None:
        """The run is over."""
        task_id = run.record.task_id
        # A run that was lost and came back is here twice until its first copy has stopped.
        if self.runs.get(run.record.id) is run:
            del self.runs[run.record.id]
        if run.session_hold is not None:
            run.session_hold.release()
        # The next run of the same task may have joined already: then the task stays active.
        active = self.active_tasks.get(task_id)
        if active is not None and active is run.active_task and not active.runs:
            del self.active_tasks[task_id]
            if task_id in self.wakeups.subscribed:
                self.wakeups.keep_ended(task_id, active)
        if run.active_task is None and task_id in self.wakeups.subscribed:
            self.wakeups.notify(task_id)  # it ended without a task: its deliveries are removed

    def forget_task(self, run: ActiveRun) -> None:
        """The task of a run goes on at another replica: what is known of it here is out of date.

        The run itself is here until its agent has stopped.
        """
        task_id = run.record.task_id
        if self.active_tasks.get(task_id) is run.active_task:
            self.active_tasks.pop(task_id, None)

    def has_run(self, task_id: TaskId) -> bool:
        """True when a run for this task is waiting, active, or still to be failed."""
        # Abandoned runs count: the outbox must not drop deliveries of a task that is yet to fail.
        records = [run.record for run in self.runs.values()] + self.abandoned
        return any(record.task_id == task_id for record in records)

    def running_tasks(self, task_id: TaskId) -> "list[asyncio.Task[None]]":
        """The asyncio tasks of the runs for a task; each ends within its own deadline."""
        runs = [run for run in self.runs.values() if run.record.task_id == task_id]
        return [run.task for run in runs if run.task is not None and not run.task.done()]

    # ---------------------------------------------------------------- active tasks

    def open_task(
        self, run: ActiveRun, now: datetime, metadata: JsonObject | None = None
    ) -> ActiveTask:
        """The active task of a new run; its first commit creates it in the store."""
        record = run.record
        reason = self.waiting_status(record).status.message if run.slot.is_elsewhere else None
        task, journal = self.new_journal(record, now, metadata, reason)
        active = ActiveTask(journal, task)
        active.runs.append(run)
        self.active_tasks[record.task_id] = active
        self.session_tasks.add_newest(record.session_key, record.task_id)
        return active

    def find_active(self, task_id: TaskId) -> ActiveTask | None:
        """An active task, or one that has just ended and still has subscribers."""
        return self.active_tasks.get(task_id) or self.wakeups.ended.get(task_id)

    def activate(self, stored: StoredTask) -> ActiveTask:
        """The active task of a stored one."""
        active = self.active_tasks.get(stored.head.id)
        if active is None:
            active = self.active_tasks[stored.head.id] = ActiveTask(self.journal_of(stored))
        return active

    def new_journal(
        self,
        record: RunRecord,
        now: datetime,
        metadata: JsonObject | None = None,
        message: Message | None = None,
    ) -> tuple[Task, Journal]:
        """The task of a run that has none yet, and the journal whose first commit creates it.

        `message` is that of its first status.
        """
        status = TaskStatus(TaskState.SUBMITTED, message, timestamp=now)
        history = (record.message,)
        task = Task(record.task_id, record.context_id, status, history=history, metadata=metadata)
        head = TaskHead(
            task.id, record.scope, task.context_id, status.state, now, now, 0, record.binding
        )
        return task, Journal(
            self.store.tasks,
            head,
            TaskProjection(task),
            exists=False,
            wakeups=self.wakeups,
            limits=self._journal_limits,
        )

    def journal_of(self, stored: StoredTask, *, is_limited: bool = True) -> Journal:
        """A journal for a stored task; not `is_limited` for the gateway's own status messages.

        Only for a task that no run works on: two journals would give its events two orders.
        """
        return Journal(
            self.store.tasks,
            stored.head,
            TaskProjection.from_stored(stored),
            exists=True,
            wakeups=self.wakeups,
            limits=self._journal_limits if is_limited else UNLIMITED,
        )

    def waiting_status(self, record: RunRecord) -> StatusUpdate:
        """The status of a task whose run waits for another replica."""
        agent_id = record.binding.agent_id
        text = (
            f"This message waits: no gateway that has the agent {agent_id} is running. It will be "
            "worked on when one runs again."
        )
        transcript = self.own_transcript(record.task_id, record.context_id)
        return transcript.status_text(TaskState.SUBMITTED, text)

    def own_transcript(self, task_id: TaskId, context_id: ContextId) -> Transcript:
        """For status messages of the gateway itself on a task that no run works on."""
        context = EventContext(task_id, context_id, self.clock.now, self.new_id)
        return Transcript(context, modes=OutputModes(()), is_task=True, counters=NO_ARTIFACTS)

    async def end_stored_task(self, stored: StoredTask, state: TaskState, text: str) -> bytes:
        """End a task that no run works on, with a status message; returns the task as stored.

        The caller holds the task's lock. Raises: StoreUnavailable, Conflict.
        """
        transcript = self.own_transcript(stored.head.id, stored.head.context_id)
        journal = self.journal_of(stored, is_limited=False)
        await journal.end([transcript.status_text(state, text)], run=None)
        return journal.snapshot

    def task_lock(self, task_id: TaskId) -> asyncio.Lock:
        """Held while code outside the runs of a task reads and then changes it.

        Without it a message and a cancellation could both see a paused task and both write.
        """
        # Two callers get the same lock: nothing is awaited between lookup and insertion.
        lock = self._task_locks.get(task_id)
        if lock is None:
            lock = self._task_locks[task_id] = asyncio.Lock()
        return lock

    async def reference_tasks(self, record: RunRecord) -> tuple[tuple[Task, ...], tuple[str, ...]]:
        """The tasks the message refers to, as far as the caller may see them; what is left out.

        Each once, and together within `reference_bytes`: a short message can refer to much.
        """
        found, left_out, room = list[Task](), list[str](), self.limits.reference_bytes
        wanted = tuple(dict.fromkeys(record.message.reference_task_ids))
        # `submit` refuses more; a message that was accepted by an earlier version may have them.
        for task_id in wanted[: self.limits.reference_tasks]:
            measured = await self.store.tasks.measure_task(record.scope, task_id)
            if measured is None:
                continue
            size = measured.size
            if size > room:
                left_out.append(
                    f"Task {task_id}, to which the message refers, is left out: it has {size}"
                    f" bytes, and {room} of limits.referenceBytes are left."
                )
                log.info("run.reference_left_out", task_id=record.task_id, reference=task_id)
                continue
            # One at a time for each caller, in small steps: a short message can ask for megabytes.
            async with self._reference_slots.slot(record.scope.principal, is_retry=False):
                stored = await self.store.tasks.read_task(record.scope, task_id)
                if stored is not None:
                    room -= size
                    found.append((await TaskProjection.from_large(stored)).task())
        return tuple(found), tuple(left_out)

    # ---------------------------------------------------------------- the end

    def apply(self, signal: EngineSignal) -> None:
        """Move the engine towards its end, by the table of its states.

        Raises: KeyError (the table does not allow it).
        """
        self.state = TRANSITIONS[self.state][signal]

    async def drain(self, timeout_s: float) -> int:
        """Accept nothing more and let runs end; the number of runs left after the timeout."""
        # `submit` refuses from here on; runs that are queued already still get their turn.
        self.apply(EngineSignal.FINISH)
        runs = [run for run in self.runs.values() if not run.slot.is_elsewhere]
        tasks = [run.task for run in runs if run.task is not None]
        if tasks and timeout_s > 0:
            await asyncio.wait(tasks, timeout=timeout_s)
        return len(self.runs)

    async def stop(self) -> None:
        """End everything here. Unfinished runs stay in the store for the next start to find."""
        # The state first: a run that is submitted or gets its turn from now on stops by itself.
        self.apply(EngineSignal.STOP)
        for run in list(self.runs.values()):
            if isinstance(run.agent, SupportsDetach):
                run.agent.detach()  # its work is found again at the next start: do not end it
            run.apply(RunSignal.INTERRUPT)
        # Loops and jobs end before the runs are awaited, the outbox among them: none of them may
        # start work for a task whose run is being interrupted.
        await self.supervisor.stop(self.limits.cancel_s)
        tasks = [run.task for run in self.runs.values() if run.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=self.limits.cancel_s)
        # What has not ended by now is cancelled in its clean-up, too.
        self.apply(EngineSignal.FORCE)
        await self._run_supervisor.stop(self.limits.cancel_s)
        # Their runs were left in the store; no further event can come, so open streams end now.
        for active in list(self.active_tasks.values()):
            active.journal.close_feed()
        for task_id in self.wakeups.readers:
            self.wakeups.wake_readers(task_id)
