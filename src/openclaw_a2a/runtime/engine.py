"""The engine: takes messages in, runs agents, and tells what happened. The room's front desk."""

import asyncio
import hashlib
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import msgspec
import structlog

from openclaw_a2a.model.errors import (
    ContextMismatch,
    Draining,
    GatewayError,
    InvalidParams,
    PartNotAccepted,
    Problem,
    TaskNotFound,
    TaskTerminal,
    TaskUnbound,
)
from openclaw_a2a.model.ids import AccountId, ContextId, OwnerId, RunId, TaskId
from openclaw_a2a.model.links import why_not_public
from openclaw_a2a.model.message import Message
from openclaw_a2a.model.states import is_paused, is_terminal
from openclaw_a2a.model.stored import RunOptions, RunRecord, StoredTask, TaskHead, encode_record
from openclaw_a2a.model.task import Task, TaskState, TaskStatus
from openclaw_a2a.model.turn import Binding, Scope
from openclaw_a2a.ports import Agents, Clock, Store, Submission
from openclaw_a2a.runtime.journal import Journal
from openclaw_a2a.runtime.lane import Lanes
from openclaw_a2a.runtime.live import KnownRun, LiveTask
from openclaw_a2a.runtime.output import OutputModes, output_modes
from openclaw_a2a.runtime.run import LiveRun
from openclaw_a2a.runtime.turn import AccountRules, bind
from openclaw_a2a.runtime.view import TaskView

log = structlog.get_logger(__name__)


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
    event_bytes: int = 8 * 1024 * 1024
    run_bytes: int = 64 * 1024 * 1024


class Send(msgspec.Struct, frozen=True):
    """A message at the door."""

    scope: Scope
    message: Message
    is_blocking: bool = True
    accepted_output_modes: tuple[str, ...] = ()


class Engine:
    """Everything that happens to the tasks of one store."""

    def __init__(
        self,
        store: Store,
        agents: Agents,
        *,
        lanes: Lanes,
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
        self.is_draining = False
        self.live: dict[TaskId, LiveTask] = {}
        self.runs: dict[RunId, LiveRun] = {}
        self.abandoned: list[RunRecord] = []
        self.loop = asyncio.get_running_loop()
        self._lanes = lanes
        self._jobs: set[asyncio.Task[None]] = set()

    # ---------------------------------------------------------------- taking messages in

    async def submit(self, send: Send, rules: AccountRules) -> LiveRun | KnownRun:
        """Take a message in. The run tells what comes of it through `first` and `outcome`.

        Raises: Draining, Overloaded, PartNotAccepted, InvalidParams, TaskNotFound,
        ContextMismatch, TaskTerminal, TaskUnbound.
        """
        if self.is_draining:
            raise Draining("the gateway is stopping; try again when it is back", retry_after_s=5)
        check_parts(send.message, rules)
        if send.message.task_id is None:
            return self._submit_new(send, rules)
        return await self._submit_to_task(send, rules, send.message.task_id)

    def _submit_new(self, send: Send, rules: AccountRules) -> LiveRun:
        now = self.clock.now()
        task_id = TaskId(self.new_id())
        context_id = send.message.context_id or ContextId(self.new_id())
        message = msgspec.structs.replace(send.message, context_id=context_id, task_id=task_id)
        binding = bind(rules, send.scope, message, now=now)
        is_task = rules.is_task_generating or not send.is_blocking
        run = self._new_run(send, message, binding, rules=rules, is_task=is_task)
        commit = None
        if is_task:
            live = run.live = self.open_task(run)
            commit = live.opening = live.journal.open([live.initial_status()])
        return self._launch(run, Submission(run.record, body_hash(send.message), now, commit))

    async def _submit_to_task(
        self, send: Send, rules: AccountRules, task_id: TaskId
    ) -> LiveRun | KnownRun:
        stored = await self.store.read_task(send.scope, task_id)
        if stored is None:
            raise TaskNotFound(f"there is no task {task_id}")
        digest = body_hash(send.message)
        known = await self.store.read_known(send.scope, send.message.message_id, body_hash=digest)
        if known is not None:
            return KnownRun(known)
        binding = check_continuation(self._newest_head(stored), send.message)
        self._check_history(stored)
        resume = await self.store.read_resume(task_id)
        message = msgspec.structs.replace(send.message, context_id=stored.head.context_id)
        run = self._new_run(send, message, binding, rules=rules, is_task=True, resume=resume)
        live = run.live = self.live.get(task_id)
        commit = None
        if live is None:
            live = run.live = self._revive(stored)
            if is_paused(stored.head.state):
                live.open_again(message, self.clock.now())
                commit = live.opening = live.journal.open([live.initial_status()], message)
        live.runs.append(run)
        return self._launch(run, Submission(run.record, digest, self.clock.now(), commit))

    def _check_history(self, stored: StoredTask) -> None:
        most = self.limits.history_messages
        if stored.head.sequence >= most and TaskView.of_stored(stored).message_count >= most:
            problem = Problem("message.taskId", f"names a task with {most} messages, the most kept")
            raise InvalidParams(f"message.taskId {problem.message}", problems=(problem,))

    def _newest_head(self, stored: StoredTask) -> TaskHead:
        """A task whose end is being committed right now takes no message any more."""
        live = self.live.get(stored.head.id)
        return stored.head if live is None else live.journal.head

    def _new_run(
        self,
        send: Send,
        message: Message,
        binding: Binding,
        *,
        rules: AccountRules,
        is_task: bool,
        resume: bytes | None = None,
    ) -> LiveRun:
        place = self._lanes.join(binding.session_key, send.scope.principal)
        record = RunRecord(
            id=RunId(self.new_id()),
            task_id=message.task_id or TaskId(""),
            context_id=message.context_id or ContextId(""),
            scope=send.scope,
            session_key=binding.session_key,
            message=message,
            binding=binding,
            options=RunOptions(send.accepted_output_modes, is_task),
            owner=self.owner,
            lease_until=self.lease_end(),
            is_started=place.has_turn,
            resume=resume,
        )
        return LiveRun(self, record, rules=rules, place=place)

    def _launch(self, run: LiveRun, submission: Submission) -> LiveRun:
        self.runs[run.record.id] = run
        run.task = self.spawn(run.live_through(self.store.submit(submission)))
        return run

    def relaunch(self, record: RunRecord, rules: AccountRules, live: LiveTask | None) -> None:
        """Go on with a run that was claimed after a crash."""
        place = self._lanes.join_again(record.session_key, record.scope.principal)
        run = LiveRun(self, record, rules=rules, place=place)
        run.live = live
        if live is not None:
            live.runs.append(run)
        self.runs[record.id] = run
        run.task = self.spawn(run.live_through(None))

    # ---------------------------------------------------------------- live tasks

    def open_task(self, run: LiveRun) -> LiveTask:
        """Bring the task of a run to life; its first change creates it."""
        record, now = run.record, self.clock.now()
        status = TaskStatus(TaskState.SUBMITTED, timestamp=now)
        task = Task(record.task_id, record.context_id, status, history=(record.message,))
        journal = Journal.of_new(
            self.store, task, scope=record.scope, binding=record.binding, now=now
        )
        live = self._live_task(journal)
        live.open_with(task, 0)
        live.runs.append(run)
        self.live[record.task_id] = live
        return live

    def _revive(self, stored: StoredTask) -> LiveTask:
        live = self._live_task(Journal.of_stored(self.store, stored))
        self.live[stored.head.id] = live
        return live

    def _live_task(self, journal: Journal) -> LiveTask:
        journal.event_bytes, journal.run_bytes = self.limits.event_bytes, self.limits.run_bytes
        return LiveTask(journal)

    def revive(self, stored: StoredTask) -> LiveTask:
        """The live task of a stored one, made when it is not there."""
        return self.live.get(stored.head.id) or self._revive(stored)

    def forget_run(self, run: LiveRun) -> None:
        """The run is over."""
        self.runs.pop(run.record.id, None)
        live = self.live.get(run.record.task_id)
        if live is not None and not live.runs:
            del self.live[run.record.task_id]

    def note_abandoned(self, record: RunRecord, error: GatewayError) -> None:
        """A run the store would not let us finish; upkeep looks after it."""
        self.abandoned.append(record)

    async def reference_tasks(self, record: RunRecord) -> tuple[Task, ...]:
        """The tasks the message refers to, as far as the caller may see them."""
        found: list[Task] = []
        for task_id in record.message.reference_task_ids:
            stored = await self.store.read_task(record.scope, task_id)
            if stored is not None:
                found.append(TaskView.of_stored(stored).task())
        return tuple(found)

    # ---------------------------------------------------------------- time and jobs

    def lease_end(self) -> Any:
        """Until when this engine owns what it takes now."""
        return self.clock.now() + timedelta(seconds=self.limits.lease_s)

    def spawn(self, job: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a job of this engine; `stop` waits for it."""
        task = self.loop.create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)
        return task

    async def drain(self, seconds: float) -> int:
        """Take nothing more in and let runs end; how many are left when the time is over."""
        self.is_draining = True
        tasks = [run.task for run in self.runs.values() if run.task is not None]
        if tasks and seconds > 0:
            await asyncio.wait(tasks, timeout=seconds)
        return len(self.runs)

    async def stop(self) -> None:
        """End everything here. Unfinished runs stay in the store, to be found at the next start."""
        self.is_draining = True
        jobs = list(self._jobs)
        for job in jobs:
            job.cancel()
        if jobs:
            await asyncio.wait(jobs, timeout=self.limits.cancel_s)
        for live in list(self.live.values()):
            live.journal.feed.close()


def body_hash(message: Message) -> bytes:
    """A digest of what the caller said; the same message id must come with the same one."""
    return hashlib.blake2b(encode_record(message), digest_size=16).digest()


def check_parts(message: Message, rules: AccountRules) -> None:
    """Refuse what the agent does not take, before anything is stored or run."""
    if len(message.parts) > rules.max_parts:
        problem = Problem(
            "message.parts", f"has {len(message.parts)} parts; the limit is {rules.max_parts}"
        )
        raise InvalidParams(f"message.parts {problem.message}", problems=(problem,))
    modes: OutputModes | None = None
    for index, part in enumerate(message.parts):
        if part.is_file:
            modes = modes or output_modes(rules.input_modes)
            media_type = part.media_type or "application/octet-stream"
            if not modes.takes(media_type):
                raise PartNotAccepted(
                    f"message.parts[{index}] is a file of type {media_type}; "
                    f"this agent takes {', '.join(rules.input_modes)}"
                )
            reason = why_not_public(part.url) if part.url is not None else None
            if reason is not None:
                raise PartNotAccepted(f"message.parts[{index}] is a link to a file that {reason}")


def check_continuation(head: TaskHead, message: Message) -> Binding:
    """The binding of the task a message goes on with.

    Raises: ContextMismatch, TaskUnbound, TaskTerminal.
    """
    if message.context_id is not None and message.context_id != head.context_id:
        raise ContextMismatch(
            f"task {head.id} belongs to context {head.context_id}, not to {message.context_id}"
        )
    if head.binding is None:
        raise TaskUnbound(f"task {head.id} has no stored binding to an agent; start a new task")
    if is_terminal(head.state):
        state = head.state.value.removeprefix("TASK_STATE_").lower()
        raise TaskTerminal(f"task {head.id} is {state}; start a new task in the same context")
    return head.binding
