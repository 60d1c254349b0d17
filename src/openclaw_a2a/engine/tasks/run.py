"""One run: an agent answers one message, and its events go into the journal of a task.

A run in order
  1. The submission (message, run, first event of the task) goes to the store. An agent whose work
     may be repeated is asked before the store has answered, and what it yields at once is part of
     the same transaction; nothing is shown before it is durable. Any other agent is asked later.
  2. The run waits for its turn in the session queue. Before the agent is asked, `is_started` is
     committed, so that recovery can tell a run that had no effect from one that may have had some.
  3. The agent's events become A2A events (`transcript`) and are appended to the journal.
  4. The last events and the end of the run are one commit. A crash before it leaves the run to
     recovery, a crash after it leaves nothing to do.

Where a run stands, and who may cancel its asyncio task when, is the table in `run_state`.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from openclaw_a2a.engine.audit_log import About, audit_outcome
from openclaw_a2a.engine.engine_state import INTERRUPTING, EngineState
from openclaw_a2a.engine.scheduling.session_queue import QueueSlot
from openclaw_a2a.engine.tasks.active_task import (
    ActiveTask,
    DirectAnswer,
    FinalResult,
    FirstResult,
    PostponedEnd,
    Promise,
    Rejected,
    TaskCreated,
    TaskFinished,
    encode_answer,
    encode_rejection,
    work_stopped,
)
from openclaw_a2a.engine.tasks.journal import UNLIMITED, UNWRITABLE
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.engine.tasks.run_state import (
    CANCELLING,
    INTERRUPTIBLE,
    TRANSITIONS,
    RunSignal,
    RunState,
)
from openclaw_a2a.engine.tasks.turn_builder import build_turn
from openclaw_a2a.engine.transcript.assistant_message import omitted_files, output_modes
from openclaw_a2a.engine.transcript.transcript import NO_ARTIFACTS, EventContext, Transcript
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.agent_event import AgentEvent
from openclaw_a2a.model.delivery import Delivery
from openclaw_a2a.model.errors import (
    AgentFailed,
    AlreadyExists,
    Conflict,
    Draining,
    GatewayError,
    GatewayFault,
    LeaseLost,
    OutputNotAccepted,
    StoreUnavailable,
)
from openclaw_a2a.model.ids import MessageId
from openclaw_a2a.model.message import Message, Role
from openclaw_a2a.model.records import (
    HeldMessage,
    Hold,
    RunRecord,
    decode_resume,
    encode_json,
)
from openclaw_a2a.model.task import (
    ACTIVE,
    PAUSED,
    TERMINAL,
    ArtifactUpdate,
    Event,
    Task,
    TaskState,
)
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import Accepted, Commit, Duplicate, Submission, SupportsRunDetach

if TYPE_CHECKING:
    from openclaw_a2a.engine.engine import AccountRules, Engine
    from openclaw_a2a.engine.sessions import SessionHold

log = get_logger(__name__)

_NO_REFERENCES: tuple[tuple[Task, ...], tuple[str, ...]] = ((), ())
_EVENTS_PER_TURN = 256
"""After so many events of one agent the event loop serves everything else once."""


class ActiveRun:
    """A run from its submission to its end."""

    # Without slots, attributes that are set after `__init__` can make an instance lose the
    # key-sharing dictionary of its class; it then has a dictionary of its own, of 800 bytes.
    __slots__ = (
        "_ends_for_others",
        "_ends_task",
        "_engine",
        "_error",
        "_event_count",
        "_failure_code",
        "_force_timer",
        "_is_detached",
        "_is_end_sent",
        "_omitted_count",
        "_pause_events",
        "_resume",
        "_rules",
        "_stop_reason",
        "_stored",
        "_submitted_at",
        "_transcript",
        "active_task",
        "address",
        "agent",
        "created",
        "is_cancel_requested",
        "is_from_peer",
        "is_lost",
        "is_released",
        "record",
        "session_hold",
        "slot",
        "state",
        "submission",
        "task",
    )

    def __init__(
        self, engine: "Engine", record: RunRecord, *, rules: "AccountRules", slot: QueueSlot
    ) -> None:
        self._engine = engine
        self.record = record
        self._rules = rules
        self.slot = slot
        self.agent = engine.agents.get(record.binding.agent_id)
        self.created: Promise[FirstResult] = Promise()
        """The first result: the task (durable by then), the direct answer, or a rejection."""
        self._submitted_at = engine.loop.time()
        self.state = RunState.SUBMITTING
        self.submission: Submission | None = None
        """What the store is given, until it has answered."""
        self._stored: asyncio.Future[Accepted | Duplicate] | None = None
        """The answer of the store to the submission."""
        self.active_task: ActiveTask | None = None
        self.address = ""
        """The network address of the sender, for the audit log."""
        self.is_from_peer = False
        """True when the message is a peer's: then the policy decided about it."""
        self.is_released = False
        """True when the operator has allowed the message, which was held."""
        self.is_cancel_requested = False
        self.is_lost = False
        """True when another replica has taken the run."""
        self.session_hold: SessionHold | None = None
        """Keeps other replicas from the session as long as the run is here."""
        self.task: asyncio.Task[None] | None = None
        self._is_end_sent = False
        """True when the last commit of the run is with the store."""
        self._ends_task = False
        """True when the last commit of this run ended the task: then this run logs the end."""
        self._ends_for_others = False
        """True when this run, whose message was refused, commits the postponed end of others."""
        self._stop_reason: str | None = None
        """Why the run fails after an interruption: its time, or text that is too large or not
        valid."""
        self._error: GatewayError | None = None
        """What the caller gets instead of the task."""
        self._failure_code = AgentFailed.code
        self._event_count = 0
        self._transcript: Transcript | None = None
        self._omitted_count = 0  # of the sentences that are logged
        self._pause_events: Sequence[Event] = ()
        """The events of a pause, until the agent has really stopped."""
        self._resume: bytes | None = None
        self._force_timer: asyncio.TimerHandle | None = None
        self._is_detached = False
        """True when the work of the agent goes on although the run is stopped."""

    @property
    def scope(self) -> Scope:
        """The caller."""
        return self.record.scope

    @property
    def message_id(self) -> MessageId:
        """The message that the run answers."""
        return self.record.message.message_id

    def apply(self, signal: RunSignal) -> RunState:
        """Change the state by the table, and cancel the asyncio task when the signal says so.

        For signals from outside of the run; its own steps cancel nothing, and only look at the
        table. Raises: KeyError (the table does not allow it).
        """
        before = self.state
        self.state = TRANSITIONS[before][signal]
        # Only what waits or works is cancelled: see the invariant of `run_state`.
        may_cancel = before in INTERRUPTIBLE or signal is RunSignal.FORCE
        if signal in CANCELLING and may_cancel and self.task is not None:
            self.task.cancel()
        return self.state

    def submit(self, commit: Commit | None = None) -> None:
        """Hand the submission to the store, with the commit of the task that it opens."""
        submission = self.submission
        if submission is None:
            return  # it was claimed after a crash: the store has it
        if commit is not None:
            submission = self.submission = msgspec.structs.replace(submission, commit=commit)
        self._stored = self._engine.store.tasks.submit(submission)
        # Before the run awaits it: callbacks are called in order, so the run finds the answer of
        # the store dealt with when it goes on.
        self._stored.add_done_callback(partial(self.on_submitted, submission))

    async def run(self, *, is_early: bool) -> None:
        """Run to the end; first wait for the submission, unless the agent may be asked already."""
        try:
            if not is_early and self._stored is not None:
                # Not shielded: a gateway that stops by force does not wait for the store. Whether
                # the message was stored is found out by the next start.
                with suppress(Exception):  # `on_submitted` was called before this wakes up
                    await self._stored
            # A run that starts early is here before the store has answered; see `_reject`.
            if self.state is not RunState.REJECTED:
                self.state = TRANSITIONS[self.state][RunSignal.ACCEPT]
                # A run that opens a task and has its turn was stored as started, together with its
                # message: there is no turn to wait for and nothing to write.
                active, is_started = self.active_task, self.record.is_started
                is_opening = active is not None and active.is_opening and is_started
                is_ending = self._engine.state in INTERRUPTING
                is_stopped = self.is_cancel_requested or is_ending or self.is_lost
                if (is_opening and not is_stopped) or await self._wait_turn():
                    self.state = TRANSITIONS[self.state][RunSignal.START]
                    # Inline, not in a coroutine of its own: every streamed event resumes the
                    # whole chain of coroutines.
                    if (transcript := self._start_work()) is not None:
                        # When this returns the agent has stopped: only then may `canceled` be
                        # committed.
                        failure = await self._ask_agent(transcript)
                        await self._conclude(transcript, failure)
            # Also for a rejected run that committed a postponed end (`_end_postponed`).
            if self._is_end_sent and self.active_task is not None:
                await self.active_task.journal.settle()
                self._finish_task(self.active_task)
        except asyncio.CancelledError:
            # No end is committed: the run stays in the store, and the next start recovers it. What
            # its agent has said is kept.
            if self.active_task is not None and not self.is_lost:
                self.active_task.journal.send_rest()
            self._leave(Rejected(_taken_over() if self.is_lost else _stopping()))
            raise
        except Exception as error:  # one broad catch: no caller may wait for ever because of a bug
            self._abandon(error)
        finally:
            # Last of all, when the end is durable or given up: leaving the slot lets the next run
            # of the session start, and `remove_run` takes the task out of the active ones.
            self.state = TRANSITIONS[self.state][RunSignal.LEAVE]
            self._engine.queues.leave(self.slot)
            self._engine.remove_run(self)

    def wait_result(self) -> Awaitable[FinalResult]:
        """The direct answer, or the task as it was when it ended or paused."""
        # While the task is opening this run opens it, and its rejection finishes the task as
        # well: one wait is enough. A direct run learns from `created` whether there is a task.
        active = self.active_task
        if active is not None and active.is_opening:
            return active.finished.wait()
        return self._wait_created_result()

    async def _wait_created_result(self) -> FinalResult:
        # A message on a running task: its rejection does not end the task.
        first = await self.created.wait()
        if not isinstance(first, TaskCreated):
            return first
        active = self.active_task
        return Rejected(None) if active is None else await active.finished.wait()

    @property
    def is_waiting(self) -> bool:
        """True when it is stored and has not begun to start."""
        return self.submission is None and not self.slot.has_turn and not self.is_cancel_requested

    def request_cancel(self) -> None:
        """Stop the run; its task becomes `canceled` once the agent has really stopped."""
        # The flag first: it tells the run that the CancelledError is a cancellation by a caller.
        self.is_cancel_requested = True
        self.apply(RunSignal.INTERRUPT)

    def lose(self) -> None:
        """Stop the run and commit nothing: another replica owns it now."""
        if self.submission is not None:
            return  # not known to be stored; `on_submitted` looks whose it is
        self.is_lost = True
        self._engine.forget_task(self)
        self._detach()
        self.apply(RunSignal.INTERRUPT)

    def _detach(self) -> None:
        """Leave the work of the agent running: another replica may follow it by now."""
        if isinstance(self.agent, SupportsRunDetach) and self.agent.detach_run(self.record.id):
            self._is_detached = True

    async def wait_stored(self) -> Duplicate:
        """The run and the task of the message, once it is stored. Raises: why it was refused."""
        active = self.active_task
        if self._stored is not None and not (active is not None and active.is_opening):
            await asyncio.wait({self._stored})
        else:
            await self.created.wait()
        found = self.created.peek() if self.created.is_set else None
        if isinstance(found, Rejected):
            if found.duplicate is not None:
                return found.duplicate
            if found.error is not None and not self.is_lost:
                raise found.error
        return Duplicate(self.record.id, self.record.task_id, None)

    # ---------------------------------------------------------------- acceptance

    def on_submitted(
        self, submission: Submission, answer: "asyncio.Future[Accepted | Duplicate]"
    ) -> None:
        """The store has answered the submission.

        The agent may have said much by now if it was asked early. None of it is visible yet: the
        store applies the events of a run after its submission.
        """
        self._stored = self.submission = None
        # In any case, also after an error: a message that was not stored may be sent again.
        self._engine.pending_submissions.pop(
            (self.record.scope, self.record.message.message_id), None
        )
        if answer.cancelled():
            return  # the run was cancelled while it waited for the answer
        error = answer.exception()
        if error is not None:
            known = error if isinstance(error, GatewayError) else None
            if known is None:
                log.error("run.crashed", run_id=self.record.id, exc_info=error)
            self._record_submission(error)
            self._reject(Rejected(known), submission.commit)
            return
        accepted = answer.result()
        if isinstance(accepted, Duplicate):
            self._reject(Rejected(None, accepted), submission.commit)
            return
        self._record_submission()
        commit, active = submission.commit, self.active_task
        if active is not None:
            active.postponed_end = None  # from now on this run ends the task, or recovery does
            if self._engine.orphans:
                self._engine.orphans.discard(self.record.task_id)
        replication = self._engine.replication
        if replication is not None and self.record.owner != replication.id:
            self._lose_stored(commit)
            return
        # Only what this replica delivers itself.
        delivery = submission.delivery if submission.delivery_owner is None else None
        if delivery is not None:
            self._engine.wakeups.add_delivery(delivery)
        if active is not None and active.is_opening:
            # This message opened the task: what its sender sees first is in memory.
            active.on_opened(commit, None)
            active.show_created(self)
        else:
            self._on_joined(delivery)

    def _on_joined(self, delivery: Delivery | None) -> None:
        """The message joined a running task, or may be answered without one."""
        if delivery is not None:
            self._engine.wakeups.notify(self.record.task_id)
        if self.active_task is not None:
            # A job: a callback cannot await. `_finish_task` sets `created` if it is faster.
            self._engine.supervisor.spawn("show-task", self._show_task())

    def _lose_stored(self, commit: Commit | None) -> None:
        """The run was stored under the name that this replica had before."""
        # The commit is made all the same: a run whose end is in it is over, and waits for nothing.
        if self.active_task is not None:
            self.active_task.on_opened(commit, None)
        self.lose()

    def _record_submission(self, error: BaseException | None = None) -> None:
        if not self._engine.audit.is_kept:
            return
        record, active = self.record, self.active_task
        is_new = active is None or active.is_opening
        event = "task-submitted" if is_new else "task-continued"
        if self.is_released:
            event = "task-released"
        elif record.options.is_answer:
            event = "task-answered"
        # The policy's decision has no entry of its own: it is the same for nearly every message.
        decision = "allow" if record.options.hold is None else "ask"
        about = About(
            target=record.binding.agent_id,
            task=record.task_id,
            account=record.scope.account,
            address=self.address,
            policy=decision if self.is_from_peer else "",
        )
        audit, who = self._engine.audit, record.scope.principal
        if error is None:
            audit.record(event, who, **about)
        else:
            found = audit_outcome(error)
            about["outcome"], about["reason"] = found["outcome"], found["reason"]
            audit.record_refusal(event, who, **about)

    async def _show_task(self) -> None:
        """Show the task that the message was added to, as it is stored now."""
        try:
            stored = await self._engine.store.tasks.read_task(None, self.record.task_id)
        except StoreUnavailable as error:  # the end of the run shows it
            log.warning("run.task_not_shown", run_id=self.record.id, reason=error.message)
            return
        if stored is not None:
            task = TaskProjection.from_stored(stored).task()
            self.created.set(TaskCreated(task, stored.head.sequence))

    def _reject(self, rejected: Rejected, commit: Commit | None) -> None:
        """The message was not accepted: nothing of this run will ever be seen."""
        if isinstance(rejected.error, StoreUnavailable):
            self._engine.note_doubtful(self.record)
        if self.active_task is not None:
            error = rejected.error or AlreadyExists("the message was accepted before")
            # If this message opened the task, its journal fails and so interrupts an early agent.
            self.active_task.on_opened(commit, error)
        if self._end_postponed():
            self.created.set(rejected)  # it leaves when that end is durable
        else:
            self.created.set(rejected)
            task_id = self.record.task_id
            is_orphan = task_id in self._engine.orphans
            # Waiters of the task get the reason why it has not ended, not that of this refusal.
            self._leave(Rejected(work_stopped(task_id)) if is_orphan else rejected)
            # Removed at once: a run that started early still has to stop, and the same message may
            # come again before it has.
            self._engine.remove_run(self)
        self.apply(RunSignal.REJECT)

    def _end_postponed(self) -> bool:
        """End the task, if a run before this one has left that to the messages behind it.

        This is the last of them, and it was not accepted. False: there is nothing to end.
        """
        active = self.active_task
        if active is None or active.postponed_end is None or active.journal.failure is not None:
            return False
        if active.journal.state not in ACTIVE or active.has_other_runs(self) or self.is_lost:
            return False
        end, active.postponed_end = active.postponed_end, None
        replication = self._engine.replication
        is_owner = replication is None or self.record.owner == replication.id
        try:
            if is_owner:
                # What ends the task is within the limits: its text is in the commit before.
                active.journal.limits = UNLIMITED
                self._ends_task = active.journal.send_end(end.events(), run=None, code=end.code)
                self._is_end_sent = self._ends_for_others = True
                self._error = end.error
        except Exception:  # one broad catch: the sender of the refused message must not wait
            log.exception("run.crashed", run_id=self.record.id)
        if not self._is_end_sent:
            # Maintenance fails the task if it has no run. As another replica that was taken for
            # dead, this one does not know whether it has.
            self._engine.orphans.add(self.record.task_id)
        return self._is_end_sent

    def _leave(self, rejected: Rejected) -> None:
        """Release everyone who waits for this run."""
        if self.active_task is not None:
            self.active_task.leave(self, rejected)
        self.created.set(rejected)

    def _abandon(self, error: Exception) -> None:
        """Give up after an error: maintenance fails the run, or its new owner continues it."""
        if self.state is RunState.REJECTED:  # everyone who waits for it knows already
            if self._ends_for_others:
                self._engine.orphans.add(self.record.task_id)
                self._leave(Rejected(error if isinstance(error, GatewayError) else None))
            return
        if not isinstance(error, (Conflict, StoreUnavailable)):
            log.exception("run.crashed", run_id=self.record.id)
            error = GatewayFault(f"the run broke: {type(error).__name__}")
        log.warning("run.abandoned", run_id=self.record.id, reason=error.message)
        if isinstance(error, LeaseLost) and self._engine.replication is not None:
            self.is_lost = True
            self._leave(Rejected(_taken_over()))
            return
        if self.active_task is not None:
            # What the agent has said is kept, unless that is what broke the run.
            with suppress(Exception):
                self.active_task.journal.send_rest()
        self._leave(Rejected(error))
        # After everyone is released: from here on the run belongs to maintenance. Its lease is
        # renewed by owner like any other until it has failed, so nobody else claims it meanwhile.
        self._engine.abandoned.append(self.record)
        if self._is_detached:
            record = msgspec.structs.replace(self.record, attempt=self.record.attempt + 1)
            self._engine.detached[record.id] = build_turn(record, self._rules)

    # ---------------------------------------------------------------- before the agent

    async def _wait_turn(self) -> bool:
        """Wait for the run's turn; False when it was cancelled before its agent was asked."""
        try:
            is_ending = self._engine.state in INTERRUPTING
            if self.is_cancel_requested or is_ending or self.is_lost:
                # In SUBMITTING an interruption only sets flags, so what came then is noticed here.
                raise asyncio.CancelledError
            # Woken by whichever run leaves and makes room (`SessionQueues.leave`).
            if not self.slot.has_turn:
                await self.slot.wait_turn()
            await self._mark_started()
        except asyncio.CancelledError:
            # The gateway stops: the run stays in the store as it is.
            if not self.is_cancel_requested or self.is_lost:
                raise
            _uncancel()
            await self._end_before_start()
            return False
        return True

    async def _mark_started(self) -> None:
        """Commit that the agent is about to be asked; add the message to the history."""
        record, store = self.record, self._engine.store
        if not record.is_started:
            record = self.record = msgspec.structs.replace(record, is_started=True)
            # A crash after this line and before the agent is asked counts as started: an agent that
            # must not be repeated is then failed without need, but never asked twice.
            await store.tasks.start_run(record.id, fence=record.fence, attempt=record.attempt)
        if self.active_task is None:
            return
        journal = self.active_task.journal
        # An earlier run of this task broke the journal: nothing can be written for this one.
        if journal.failure is not None:
            raise journal.failure
        if journal.state in TERMINAL:
            raise Conflict(f"task {record.task_id} ended before its message could be read")
        # A message that came while the task was running joins the history in its turn, not on
        # arrival: the history then has the order in which the agent read it.
        is_new = not journal.projection.has_message(record.message.message_id)
        if record.resume is None and (is_new or record.attempt > 1):
            # The task may have paused while this message waited.
            resume = await store.tasks.read_resume_token(record.task_id)
            record = self.record = msgspec.structs.replace(record, resume=resume)
            if journal.state in PAUSED:
                options = msgspec.structs.replace(record.options, is_answer=True)
                record = self.record = msgspec.structs.replace(record, options=options)
        if is_new:
            event = self._new_transcript().submitted()
            journal.append([event], run=record, message=record.message)

    async def _end_before_start(self) -> None:
        self.state = TRANSITIONS[self.state][RunSignal.END]
        # Through the normal end: one commit ends the run and, if it is the last, says `canceled`.
        transcript = self._transcript = self._new_transcript()
        active = self.active_task
        if active is None:  # a direct run has no task to be canceled in: it becomes one
            self.record = msgspec.structs.replace(self.record, is_started=True)
            active = await self._promote(transcript)
        self._end_task(active, transcript, self._last_events(active, transcript))

    def _new_transcript(self) -> Transcript:
        record, engine, active = self.record, self._engine, self.active_task
        # An agent may say how it is shown; one that is not configured any more says nothing.
        own_type: type[Transcript] | None = getattr(self.agent, "transcript_type", None)
        # A new task has none, which its projection says without a call.
        has_artifacts = active is not None and active.journal.projection.artifact_ids
        transcript = (self._rules.transcript_type or own_type or Transcript)(
            EventContext(record.task_id, record.context_id, engine.clock.now, engine.new_id),
            modes=output_modes(record.options.accepted_output_modes or self._rules.output_modes),
            is_task=active is not None,
            counters=active.artifact_counters(record) if active and has_artifacts else NO_ARTIFACTS,
        )
        if active is not None and record.attempt > 1:
            transcript.published = active.published
        return transcript

    # ---------------------------------------------------------------- the agent at work

    def _hold_task(self, active: ActiveTask, hold: Hold) -> None:
        """Pause the task until the operator decides; the agent is not asked."""
        record = self.record
        transcript = self._transcript = self._new_transcript()
        self.state = TRANSITIONS[self.state][RunSignal.CLOSE]
        self.state = TRANSITIONS[self.state][RunSignal.END]
        if self.is_cancel_requested:
            self._end_task(active, transcript, self._last_events(active, transcript))
            return
        text = f"This task waits for the operator of this gateway: {hold.reason}."
        modes, resume = record.options.accepted_output_modes, decode_resume(record.resume)
        held = HeldMessage(record.message.message_id, hold, modes, resume)
        status = transcript.status_text(TaskState.AUTH_REQUIRED, text)
        self._end_task(active, transcript, [status], msgspec.json.encode(held))

    def _start_work(self) -> Transcript | None:
        """Record that the run works; None when its message is held and the agent not asked."""
        hold = self.record.options.hold
        if hold is not None and self.active_task is not None:
            self._hold_task(self.active_task, hold)
            return None
        transcript = self._transcript = self._new_transcript()
        if self.active_task is not None:
            journal = self.active_task.journal
            # Before the first event, so that a refused commit interrupts the agent from the start.
            journal.writer = self
            journal.append([transcript.working()], run=self.record)
        return transcript

    async def _conclude(self, transcript: Transcript, failure: str | None) -> None:
        """The agent has stopped: answer directly, or send the end of the task."""
        self.state = TRANSITIONS[self.state][RunSignal.END]
        if failure is not None and transcript.failure is None:
            transcript.failure = failure
        active = self.active_task
        is_paused = transcript.is_over and transcript.is_paused
        if active is not None and is_paused and not self.is_cancel_requested:
            # A pause ends the run: the session is free for others until the caller answers.
            self._end_task(active, transcript, self._pause_events, self._resume)
            return
        is_stopped = transcript.failure is not None or self.is_cancel_requested
        if not is_stopped and transcript.is_unrepresentable:
            modes = transcript.content_modes
            self._error = _output_not_accepted(self.record, self._rules, modes)
            transcript.failure = self._error.message
        if active is None:
            if await self._answer_directly(transcript):
                return
            active = await self._promote(transcript)
        self._end_task(active, transcript, self._last_events(active, transcript))

    async def _ask_agent(self, transcript: Transcript) -> str | None:
        """Let the agent answer; the reason when it failed."""
        engine = self._engine
        # A signal, not `asyncio.timeout`: its cancellation would not go through the table and
        # could hit the agent in its clean-up.
        engine.run_timeouts.start(self)
        stream = None
        try:
            # All in one coroutine: a run keeps every one of them while its agent works, and each
            # of its events passes through every one.
            try:
                references = _NO_REFERENCES
                if self.record.message.reference_task_ids:
                    references = await engine.reference_tasks(self.record)
                # The second raises AgentUnavailable with the sentence for the caller.
                agent = self.agent or engine.agents[self.record.binding.agent_id]
                stream = agent.run(build_turn(self.record, self._rules, *references))
                async for event in stream:
                    wait = self._take_event(transcript, event)
                    if wait is not None:
                        await wait
                    if transcript.is_over:
                        break
            finally:
                # First of all: the agent's clean-up, which `aclose` waits for, is not interrupted.
                self.state = TRANSITIONS[self.state][RunSignal.CLOSE]
                # Not left to the garbage collector: its processes and connections end here.
                if (close := getattr(stream, "aclose", None)) is not None:
                    await close()
        except (Exception, asyncio.CancelledError) as error:
            return self._failure_of(error)
        finally:
            # Before END: from there on nothing may cancel, and the table has no FORCE.
            engine.run_timeouts.pending.pop(self, None)
            if self._force_timer is not None:
                self._force_timer.cancel()
        self.is_cancel_requested = False  # it completed before the cancellation reached it
        return None

    def _failure_of(self, error: BaseException) -> str | None:
        """Why the agent failed; None when it was stopped without that.

        Raises: what ends the run without an end of its task.
        """
        if isinstance(error, asyncio.CancelledError):
            # Ours, after a cancellation or a timeout: then the run ends its task. Otherwise
            # the gateway stops, and the run is left in the store as it is.
            failure = None if self.active_task is None else self.active_task.journal.failure
            is_ours = self.is_cancel_requested or self._stop_reason is not None
            is_forced = self._engine.state is EngineState.FORCING
            is_stopped = failure is None and (is_forced or not is_ours)
            if self.is_lost or is_stopped:
                raise error
            _uncancel()
            if failure is not None:
                raise failure from None
            return self._stop_reason
        if isinstance(error, Conflict | StoreUnavailable):
            raise error
        if not isinstance(error, GatewayError):  # whatever an agent raises is its failure
            self._log_exception(error)
            return str(error) or type(error).__name__
        self._failure_code = error.code
        if isinstance(error, AgentFailed) and error.__cause__ is not None:
            self._log_exception(error.__cause__)
        return error.message

    def _log_exception(self, error: BaseException) -> None:
        """Log what the code of an agent raised: its author sees it nowhere else."""
        task_id, agent_id = self.record.task_id, self.record.binding.agent_id
        reason = type(error).__name__
        log.warning(
            "run.agent_raised", task_id=task_id, agent=agent_id, reason=reason, exc_info=error
        )

    def _log_omitted(self, omitted: list[str]) -> None:
        """Log which files of the agent the caller does not get."""
        record = self.record
        for text in omitted[self._omitted_count :]:
            log.warning(
                "task.files_omitted",
                task_id=record.task_id,
                caller=record.scope.principal,
                account=record.scope.account,
                agent=record.binding.agent_id,
                reason=text,
            )
        self._omitted_count = len(omitted)

    def on_timeout(self, signal: RunSignal = RunSignal.INTERRUPT) -> None:
        """Interrupt the agent; one that has not stopped within `cancel_s` is forced."""
        engine = self._engine
        limit = engine.limits.run_s
        self._stop_reason = (
            f"The agent did not finish within {limit:g} seconds (limits.runSeconds)."
        )
        self.apply(signal)
        # Again until the agent is gone: its clean-up may swallow more than one cancellation.
        self._force_timer = engine.loop.call_later(
            engine.limits.cancel_s, self.on_timeout, RunSignal.FORCE
        )

    def _take_event(self, transcript: Transcript, event: AgentEvent) -> Awaitable[None] | None:
        """Publish an event of the agent; returns what to await before the next one is read."""
        if self.state is not RunState.WORKING:
            self._continue_interrupted()
        try:
            events = transcript.apply(event)
        except KeyError:
            name = type(event).__name__
            raise AgentFailed(f"The agent yielded a {name}, which is no event.") from None
        if len(transcript.omitted) > self._omitted_count:
            self._log_omitted(transcript.omitted)
        if transcript.is_over and transcript.is_paused:
            self._keep_pause(transcript, events)
            events = ()
        active = self.active_task
        if active is None:
            return self._stage(transcript, events)
        limit = self._publish(active, transcript, events)
        if limit is not None:  # back-pressure: wait until the store has caught up
            return active.journal.settle(limit)
        self._event_count += 1
        # An agent that never waits must not starve the others.
        return None if self._event_count % _EVENTS_PER_TURN else asyncio.sleep(0)

    def _continue_interrupted(self) -> None:
        """The agent yielded an event after an interruption: the run works again."""
        if self.apply(RunSignal.EVENT) is RunState.REJECTED:
            raise Conflict("the message of this run was not accepted")

    def _keep_pause(self, transcript: Transcript, events: Sequence[Event]) -> None:
        # Not published yet: they go into the commit that ends the run, so a pause is never shown
        # while its run still works, and a cancellation until then wins.
        self._pause_events = events
        if transcript.resume is not None:
            try:
                self._resume = msgspec.json.encode(transcript.resume)
            except UNWRITABLE as error:
                transcript.failure = f"The agent paused with a token that is no JSON: {error}."

    async def _stage(self, transcript: Transcript, events: Sequence[Event]) -> None:
        """No task yet: keep the content for a direct answer, or become a task."""
        if transcript.is_promoted:
            await self._become_task(transcript, events)
        elif transcript.staged_size > (limit := self._engine.limits.run_bytes):
            raise AgentFailed(
                f"The agent's answer is larger than {limit} bytes (limits.artifactBytes)."
            )

    def _publish(
        self,
        active: ActiveTask,
        transcript: Transcript,
        events: Sequence[Event],
    ) -> int | None:
        """Append events to the journal, and the text that is not to be joined with later text.

        Returns down to how many events in flight to wait, or None to go on at once.
        """
        journal, limits = active.journal, self._engine.limits
        if events:
            journal.append(events, run=self.record)
        if not journal.in_flight or not limits.join_deltas:
            if grown := transcript.flush():
                journal.append(grown, run=self.record)
        # While commits are under way text is collected; `on_committed` appends it as one event.
        elif transcript.pending_size > limits.pending_text:
            return 0
        # Down to a half, not to just below the limit: the agent resumes once per batch.
        return limits.inflight_events // 2 if journal.in_flight > limits.inflight_events else None

    def on_committed(self) -> None:
        """The store took a commit, or refused it: then nothing more of the run can be kept."""
        active, transcript = self.active_task, self._transcript
        if active is None or transcript is None:
            return
        journal = active.journal
        if journal.failure is not None:
            # A store that cannot be reached from here may have given the run to another replica.
            may_be_lost = isinstance(journal.failure, LeaseLost | StoreUnavailable)
            if may_be_lost and self._engine.replication is not None:
                self._detach()
            self.apply(RunSignal.INTERRUPT)
            return
        # The text that came while the commit was under way, as one event.
        if not (journal.in_flight and self._engine.limits.join_deltas):
            self.add_text()

    def add_text(self) -> None:
        """Append the text that was held back."""
        active, transcript = self.active_task, self._transcript
        if active is None or transcript is None or not transcript.pending_size:
            return
        try:
            active.journal.append(transcript.flush(), run=self.record)
        except AgentFailed as error:
            # A callback of the journal: an exception would reach nobody but the event loop.
            self._stop_reason = self._stop_reason or error.message
            self.apply(RunSignal.INTERRUPT)

    async def _become_task(self, transcript: Transcript, events: Sequence[Event]) -> None:
        """Create the task with everything staged so far; it is shown once it is durable."""
        active = self.active_task = self._engine.open_task(self, self._engine.clock.now())
        active.journal.writer = self
        # All in one commit: a crash leaves the direct run, to be repeated, or the whole task.
        first = [transcript.submitted(), transcript.working(), *events]
        active.journal.append(first, run=self.record)
        # Nothing of the agent is read meanwhile; a refused commit is raised here.
        await active.journal.settle()
        active.show_created(self)

    # ---------------------------------------------------------------- the end

    async def _answer_directly(self, transcript: Transcript) -> bool:
        """Store a direct answer, or that there is none to send; False when it must be a task."""
        record = self.record
        first: FirstResult
        if self._error is not None:
            if transcript.is_promoted:
                return False
            stored, first = encode_rejection(self._error), Rejected(self._error)
        else:
            parts = None if self.is_cancel_requested else transcript.answer()
            if parts is None:
                return False
            message_id = MessageId(self._engine.new_id())
            try:
                message = Message(message_id, Role.AGENT, parts, record.context_id)
                if transcript.omitted:
                    metadata = omitted_files(transcript.omitted)
                    message = msgspec.structs.replace(message, metadata=metadata)
                body = encode_json(message)
            except UNWRITABLE:  # what JSON cannot hold is reported by a task that fails
                return False
            stored, first = encode_answer(body), DirectAnswer(body)
        # Durable before it is shown: the same message again gets the same answer, also after a
        # crash right here.
        await self._engine.store.tasks.finish_run(record.id, fence=record.fence, answer=stored)
        if self._engine.store.replicas is not None:
            # No task changed, so no commit notifies the replicas that wait for this answer.
            self._engine.store.replicas.publish([record.task_id])
        self.created.set(first)
        if isinstance(first, DirectAnswer):  # an error is logged where the request is refused
            log.info(
                "message.answered",
                caller=record.scope.principal,
                account=record.scope.account,
                agent=record.binding.agent_id,
                milliseconds=round((self._engine.loop.time() - self._submitted_at) * 1000),
            )
        return True

    async def _promote(self, transcript: Transcript) -> ActiveTask:
        """Create the task in which a direct run fails or is canceled."""
        try:
            await self._become_task(transcript, transcript.promote())
        except AgentFailed as error:  # what was staged cannot be written
            transcript.failure = error.message
        assert self.active_task is not None  # noqa: S101 - `_become_task` opens it first of all
        return self.active_task

    def _last_events(self, active: ActiveTask, transcript: Transcript) -> Sequence[Event]:
        # The task goes on with the next message, so this run may not end it: A2A allows no message
        # after a terminal state.
        if len(active.runs) > 1 and active.has_other_runs(self):
            # If the other messages may still be refused, this end is postponed until one is
            # accepted (then its run ends the task) or all are refused (`_end_postponed`).
            is_doubtful = active.has_only_doubtful_runs(self)
            code = self._error.code if self._error is not None else self._failure_code
            end = PostponedEnd(partial(self._final_events, transcript), self._error, code)
            active.postponed_end = end if is_doubtful else None
            is_canceled = self.is_cancel_requested
            events = transcript.close() if is_canceled else transcript.continue_working()
        else:
            events = self._final_events(transcript)
        if not self._pause_events:
            return events
        # The pause is not shown any more, but the artifacts that it closed must be closed.
        closing = [event for event in self._pause_events if isinstance(event, ArtifactUpdate)]
        return [*closing, *events]

    def _final_events(self, transcript: Transcript) -> Sequence[Event]:
        """The events with which the task ends."""
        if transcript.failure is not None:
            return transcript.fail(transcript.failure)
        return transcript.cancel() if self.is_cancel_requested else transcript.complete()

    def _end_task(
        self,
        active: ActiveTask,
        transcript: Transcript,
        events: Sequence[Event],
        resume: bytes | None = None,
    ) -> None:
        """Send the last events together with the end of the run; `_finish_task` follows."""
        journal, unclosed = active.journal, active.journal.projection.open_artifacts
        # There is no text left to append, and no agent to interrupt. Another run of the task may
        # be at work, when this one was canceled in the queue.
        if journal.writer is self:
            journal.writer = None
        # Clients wait for `lastChunk` of each artifact, also of a message that was cut off.
        if unclosed:
            closed = {
                event.artifact.artifact_id
                for event in events
                if isinstance(event, ArtifactUpdate) and event.last_chunk
            }
            left_open = [artifact_id for artifact_id in unclosed if artifact_id not in closed]
            events = [*transcript.close_unfinished(left_open), *events]
        try:
            code = self._error.code if self._error is not None else self._failure_code
            is_over = journal.send_end(events, run=self.record, resume=resume, code=code)
        except AgentFailed as error:  # the agent's last events cannot be written, ours can
            # What of the events was recorded before the error goes along with this commit.
            journal.limits = UNLIMITED
            state = TaskState.WORKING if active.has_other_runs(self) else TaskState.FAILED
            transcript.failure = error.message  # for an end that is postponed
            status = transcript.status_text(state, error.message)
            closing = transcript.close_unfinished(unclosed)
            is_over = journal.send_end([*closing, status], run=self.record)
        self._is_end_sent, self._ends_task = True, is_over

    def _finish_task(self, active: ActiveTask) -> None:
        """The end of the run is durable: everyone who waits for it may see it."""
        journal = active.journal
        if self._ends_task:
            journal.log_end()
        if not self.created.is_set:  # a message on a task that was running: see `_show_task`
            active.show_created(self)
        result: TaskFinished | Rejected
        if journal.state not in ACTIVE:
            result = TaskFinished(self.record.task_id, journal.snapshot, self._error)
        elif self.record.task_id in self._engine.orphans:
            result = Rejected(work_stopped(self.record.task_id))
        else:
            # The task continues with another message, whose run leaves later. Waiters get this only
            # if that run has left already because the gateway stops: they do not see the end.
            result = Rejected(_stopping())
        # After the commit: this releases blocking senders, streams and cancellations.
        active.leave(self, result)


def _output_not_accepted(
    record: RunRecord, rules: "AccountRules", available: Iterable[str]
) -> OutputNotAccepted:
    """The error for an answer of which nothing is in an output mode the caller accepts."""
    modes = list(record.options.accepted_output_modes or rules.output_modes)
    return OutputNotAccepted(
        f"The answer holds nothing in an accepted output mode ({', '.join(modes)}).",
        details={"acceptedOutputModes": modes, "availableOutputModes": list(available)},
    )


def _taken_over() -> LeaseLost:
    return LeaseLost("another replica of this gateway has taken over the work; ask again")


def _stopping() -> Draining:
    return Draining("the gateway is stopping; ask again when it is back")


def _uncancel() -> None:
    """The cancellation is dealt with: the clean-up that follows may use timeouts again."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
