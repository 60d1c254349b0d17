"""One run: an agent answers one message, and its events go into the journal of a task.

A run in order
  1. The submission (message, run, first event of the task) goes to the store. An agent whose work
     may be repeated starts meanwhile; any other waits until the message is durable.
  2. The run waits for its turn in the session queue. Before the agent is asked, `is_started` is
     committed, so that recovery can tell a run that had no effect from one that may have had some.
  3. The agent's events become A2A events (`transcript`) and are appended to the journal.
  4. The last events and the end of the run are one commit. A crash before it leaves the run to
     recovery, a crash after it leaves nothing to do.

Who may cancel the asyncio task of a run: only `_interrupt`, and only while `_is_interruptible`.
A second cancellation would hit the agent's clean-up, and the commit of the last events must not be
cancelled at all.
"""

import asyncio
import traceback
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from openclaw_a2a.engine.scheduling.session_queue import QueueSlot
from openclaw_a2a.engine.tasks.active_task import ActiveTask
from openclaw_a2a.engine.tasks.journal import UNLIMITED, UNWRITABLE
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.engine.tasks.result import (
    DirectAnswer,
    FinalResult,
    FirstResult,
    Promise,
    Rejected,
    TaskCreated,
    TaskFinished,
    encode_answer,
    encode_rejection,
    output_not_accepted,
)
from openclaw_a2a.engine.tasks.turn_builder import AccountRules, build_turn
from openclaw_a2a.engine.transcript.content import output_modes
from openclaw_a2a.engine.transcript.transcript import NO_ARTIFACTS, EventContext, Transcript
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.agent_event import AgentEvent, TextDelta
from openclaw_a2a.model.errors import (
    AgentFailed,
    AgentUnavailable,
    Conflict,
    Draining,
    GatewayError,
    GatewayFault,
    StoreUnavailable,
)
from openclaw_a2a.model.ids import AgentId, MessageId
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.records import RunRecord, encode_json
from openclaw_a2a.model.task import TERMINAL, ArtifactUpdate, Event, TaskState
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import Accepted, AgentLookup, Duplicate

if TYPE_CHECKING:
    from openclaw_a2a.engine.engine import Engine

log = get_logger(__name__)

_EVENTS_PER_TURN = 256
"""After so many events of one agent the event loop serves everything else once."""


class ActiveRun:
    """A run from its submission to its end."""

    def __init__(
        self, engine: "Engine", record: RunRecord, *, rules: AccountRules, slot: QueueSlot
    ) -> None:
        self._engine = engine
        self.record = record
        self._rules = rules
        self._slot = slot
        self.active_task: ActiveTask | None = None
        self.created: Promise[FirstResult] = Promise()
        """The first result: the task (durable by then), the direct answer, or a rejection."""
        self.body_hash = b""
        self.has_delivery = False
        """True when the message came with a durable subscriber to its task."""
        self.starts_early = False
        """True when the agent may be asked before the message is durable."""
        self.is_cancel_requested = False
        self.task: asyncio.Task[None] | None = None
        self._is_interruptible = False
        """True while the run waits or its agent works."""
        self._is_timed_out = False
        self._is_rejected = False
        self._write_error: str | None = None
        """Why text of the agent could not be written after a commit."""
        self._error: GatewayError | None = None
        """What the caller gets instead of the task."""
        self._event_count = 0
        self._transcript: Transcript | None = None
        self._pause_events: Sequence[Event] = ()
        """The events of a pause, until the agent has really stopped."""
        self._resume: bytes | None = None

    @property
    def scope(self) -> Scope:
        """The caller."""
        return self.record.scope

    @property
    def message_id(self) -> MessageId:
        """The message that the run answers."""
        return self.record.message.message_id

    async def run(self, submission: "asyncio.Future[Accepted | Duplicate] | None") -> None:
        """Run from the submission (None: it was accepted before a crash) to the end."""
        try:
            if submission is None:
                is_accepted = True
            elif self.starts_early:
                # Nothing of the run can be seen before its message is durable: the store takes
                # the events of the run after the submission, in order.
                submission.add_done_callback(self._on_submitted)
                is_accepted = True
            else:
                is_accepted = await self._wait_accepted(submission)
            if is_accepted and await self._wait_turn():
                await self._execute()
        except asyncio.CancelledError:
            self._leave(Rejected(Draining("the gateway is stopping; ask again when it is back")))
            raise
        except (Conflict, StoreUnavailable) as error:
            if not self._is_rejected:
                self._abandon(error)
        except Exception as error:  # one broad catch: no caller may wait for ever because of a bug
            log.exception("run.crashed", run_id=self.record.id)
            self._abandon(GatewayFault(f"the run broke: {type(error).__name__}"))
        finally:
            self._slot.leave()
            self._engine.remove_run(self)

    async def wait_result(self) -> FinalResult:
        """The direct answer, or the task as it was when it ended or paused."""
        if self.active_task is None or self.active_task.opening is None:
            # A message on a running task: its rejection does not end the task.
            first = await self.created.wait()
            if not isinstance(first, TaskCreated):
                return first
        active = self.active_task
        return Rejected(None) if active is None else await active.finished.wait()

    def request_cancel(self) -> None:
        """Stop the run; its task becomes `canceled` once the agent has really stopped."""
        self.is_cancel_requested = True
        self._interrupt()

    def stop(self) -> None:
        """The gateway stops: interrupt, unless the run is being interrupted or ended already."""
        self._interrupt()

    def _interrupt(self) -> None:
        if self._is_interruptible and self.task is not None:
            self._is_interruptible = False
            self.task.cancel()

    # ---------------------------------------------------------------- acceptance

    async def _wait_accepted(self, submission: "asyncio.Future[Accepted | Duplicate]") -> bool:
        try:
            accepted = await submission
        except GatewayError as error:
            self._reject(Rejected(error))
            return False
        finally:
            self._engine.on_submission_stored(self)
        if isinstance(accepted, Duplicate):
            self._reject(Rejected(None, accepted))
            return False
        await self._show_task()
        return True

    def _on_submitted(self, submission: "asyncio.Future[Accepted | Duplicate]") -> None:
        """The store has answered a submission whose run started early."""
        self._engine.on_submission_stored(self)
        error = None if submission.cancelled() else submission.exception()
        accepted = submission.result() if error is None else None
        if error is None and not isinstance(accepted, Duplicate):
            if self.active_task is not None and self.active_task.opening is not None:
                self.active_task.on_accepted(self)
            elif self.active_task is not None:
                self._engine.supervisor.spawn("show-task", self._show_task())
            return
        duplicate = accepted if isinstance(accepted, Duplicate) else None
        self._reject(Rejected(error if isinstance(error, GatewayError) else None, duplicate))
        self._interrupt()

    async def _show_task(self) -> None:
        """The submission is durable: show the task it opened, or the one it was added to."""
        active = self.active_task
        if active is None:
            return
        if active.opening is not None:
            active.on_accepted(self)
            return
        stored = await self._engine.store.tasks.read_task(None, self.record.task_id)
        if stored is not None:
            task = TaskProjection.from_stored(stored).task()
            self.created.set(TaskCreated(task, stored.head.sequence))

    def _reject(self, rejected: Rejected) -> None:
        """The message was not accepted: nothing of the run will ever be seen."""
        self._is_rejected = True
        if self.active_task is not None:
            self.active_task.on_rejected(rejected)
        self._leave(rejected)
        self._engine.remove_run(self)  # at once: a run that started early still has to stop

    def _leave(self, rejected: Rejected) -> None:
        """Release everyone who waits for this run."""
        if self.active_task is not None:
            self.active_task.leave(self, rejected)
        self.created.set(rejected)

    # ---------------------------------------------------------------- before the agent

    async def _wait_turn(self) -> bool:
        """Wait for the run's turn; False when it was cancelled before its agent was asked."""
        self._is_interruptible = True
        try:
            if self.is_cancel_requested or self._engine.is_stopping:
                raise asyncio.CancelledError
            if not self._slot.has_turn:
                await self._slot.wait_turn()
            await self._mark_started()
        except asyncio.CancelledError:
            if not self.is_cancel_requested:
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
            await store.tasks.start_run(record.id, fence=record.fence, attempt=record.attempt)
        active = self.active_task
        if active is None:
            return
        journal = active.journal
        if journal.failure is not None:
            raise journal.failure
        if journal.state in TERMINAL:
            raise Conflict(f"task {record.task_id} ended before its message could be read")
        is_new = not journal.projection.has_message(record.message.message_id)
        if record.resume is None and (is_new or record.attempt > 1):
            # The task may have paused while this message waited.
            resume = await store.tasks.read_resume_token(record.task_id)
            record = self.record = msgspec.structs.replace(record, resume=resume)
        if is_new:
            event = self._new_transcript().submitted()
            journal.append([event], run=record, message=record.message)

    async def _end_before_start(self) -> None:
        self._is_interruptible = False
        if self.active_task is None:
            self.record = msgspec.structs.replace(self.record, is_started=True)
        transcript = self._transcript = self._transcript or self._new_transcript()
        if self.active_task is None:
            await self._promote(transcript)
        await self._end_task(transcript, self._last_events(transcript))

    def _new_transcript(self) -> Transcript:
        record, engine, active = self.record, self._engine, self.active_task
        context = EventContext(record.task_id, record.context_id, engine.clock.now, engine.new_id)
        agent_id = record.binding.agent_id
        kind = self._rules.transcript_type or transcript_type(engine.agents, agent_id)
        return kind(
            context,
            modes=output_modes(record.options.accepted_output_modes or self._rules.output_modes),
            is_task=active is not None,
            counters=NO_ARTIFACTS if active is None else active.artifact_counters(record),
        )

    # ---------------------------------------------------------------- the agent at work

    async def _execute(self) -> None:
        transcript = self._transcript = self._new_transcript()
        if self.active_task is not None:
            journal = self.active_task.journal
            journal.on_committed = self._after_commit
            journal.append([transcript.working()], run=self.record)
        failure = await self._ask_agent(transcript)
        if failure is not None and transcript.failure is None:
            transcript.failure = failure
        if transcript.is_paused and not self.is_cancel_requested:
            await self._end_task(transcript, self._pause_events, self._resume)
        elif not await self._answer_directly(transcript):
            if self.active_task is None:
                await self._promote(transcript)
            await self._end_task(transcript, self._last_events(transcript))

    async def _ask_agent(self, transcript: Transcript) -> str | None:
        """Let the agent answer; the reason when it failed."""
        limit = self._engine.limits.run_s
        self._timer = self._engine.loop.call_later(limit, self._on_timeout)
        try:
            await self._consume_events(transcript)
        except asyncio.CancelledError:
            self._raise_unless_interrupted()
            _uncancel()
            if self._is_timed_out:
                return f"The agent did not finish within {limit:g} seconds."
            return self._write_error
        except (Conflict, StoreUnavailable):
            raise
        except GatewayError as error:
            return error.message
        except Exception as error:  # one broad catch: whatever an agent raises is its failure
            task_id, reason = self.record.task_id, str(error) or type(error).__name__
            log.warning("run.agent_failed", task_id=task_id, reason=reason, at=_raised_at(error))
            return reason
        finally:
            self._timer.cancel()
            self._is_interruptible = False
        self.is_cancel_requested = False  # it completed before the cancellation reached it
        return None

    def _raise_unless_interrupted(self) -> None:
        """Raise again what cancelled the agent, unless we did and the run can still be ended."""
        if self.active_task is not None and self.active_task.journal.failure is not None:
            _uncancel()
            raise self.active_task.journal.failure
        is_ours = self.is_cancel_requested or self._is_timed_out or self._write_error
        if self._engine.is_forcing or not is_ours:
            raise asyncio.CancelledError

    def _on_timeout(self) -> None:
        """Interrupt the agent; one that has not stopped within `cancel_s` is interrupted again."""
        self._is_interruptible = self._is_interruptible or self._is_timed_out
        self._is_timed_out = True
        self._interrupt()
        engine = self._engine
        self._timer = engine.loop.call_later(engine.limits.cancel_s, self._on_timeout)

    async def _consume_events(self, transcript: Transcript) -> None:
        engine, record = self._engine, self.record
        agent = engine.agents.find(record.binding.agent_id)
        has_references = bool(record.message.reference_task_ids)
        turn = build_turn(
            record,
            rules=self._rules,
            reference_tasks=await engine.reference_tasks(record) if has_references else (),
            resume=None if record.resume is None else msgspec.json.decode(record.resume),
        )
        stream = agent.run(turn)
        try:
            async for event in stream:
                self._is_interruptible = True  # it goes on, whatever it did with an interruption
                events = self._translate(transcript, event)
                if self.active_task is None:
                    await self._stage(transcript, events)
                elif self._publish(transcript, event, events):
                    await self._wait_store(transcript)
                if transcript.is_over:
                    break
                self._event_count += 1
                if not self._event_count % _EVENTS_PER_TURN:
                    await asyncio.sleep(0)  # an agent that never waits must not starve the others
        finally:
            self._is_interruptible = False  # the agent's clean-up is not interrupted
            await _close_stream(stream)

    def _translate(self, transcript: Transcript, event: AgentEvent) -> Sequence[Event]:
        try:
            events = transcript.apply(event)
        except KeyError:
            raise AgentFailed(
                f"The agent yielded a {type(event).__name__}, which is no event."
            ) from None
        if transcript.is_over and transcript.is_paused:
            self._pause_events, events = events, ()
            self._encode_resume(transcript)
        return events

    def _encode_resume(self, transcript: Transcript) -> None:
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
            raise AgentFailed(f"The agent's answer is larger than {limit} bytes.")

    def _publish(self, transcript: Transcript, event: AgentEvent, events: Sequence[Event]) -> bool:
        """Append events to the journal; True when the agent is faster than the store."""
        active, limits = self.active_task, self._engine.limits
        assert active is not None  # noqa: S101 - called for tasks only
        journal = active.journal
        if events:
            journal.append(events, run=self.record)
        if type(event) is TextDelta and (not journal.in_flight or not limits.join_deltas):
            self._flush_text()
        if transcript.pending_size > limits.pending_text:
            return True
        return journal.in_flight > limits.inflight_events

    async def _wait_store(self, transcript: Transcript) -> None:
        """Back-pressure: wait until the store has caught up."""
        active, limits = self.active_task, self._engine.limits
        assert active is not None  # noqa: S101 - called for tasks only
        is_text = transcript.pending_size > limits.pending_text
        await active.journal.settle(0 if is_text else limits.inflight_events // 2)

    def _after_commit(self) -> None:
        """The store took a commit, or refused it: then nothing more of the run can be kept."""
        active = self.active_task
        if active is not None and active.journal.failure is not None:
            self._interrupt()
            return
        if self._transcript is None or not self._transcript.pending_size:
            return
        try:
            self._flush_text()
        except AgentFailed as error:
            self._write_error = error.message
            self._interrupt()

    def _flush_text(self) -> None:
        """Append the text that came while a commit was under way, as one event."""
        transcript, active = self._transcript, self.active_task
        if transcript is None or active is None or not transcript.pending_size:
            return
        if active.journal.in_flight == 0 or not self._engine.limits.join_deltas:
            active.journal.append(transcript.flush(), run=self.record)

    async def _become_task(self, transcript: Transcript, events: Sequence[Event]) -> None:
        """Create the task with everything staged so far; it is shown once it is durable."""
        active = self.active_task = self._engine.open_task(self)
        active.journal.on_committed = self._after_commit
        first = [transcript.submitted(), transcript.working(), *events]
        active.journal.append(first, run=self.record)
        await active.journal.settle()
        active.show_created(self)

    # ---------------------------------------------------------------- the end

    async def _answer_directly(self, transcript: Transcript) -> bool:
        """Store a direct answer, or that there is none to send; False when it must be a task."""
        if self.is_cancel_requested and transcript.failure is None:
            return False
        first: FirstResult
        if transcript.failure is None and transcript.is_unrepresentable:
            accepted = self.record.options.accepted_output_modes
            self._error = output_not_accepted(accepted, self._rules)
            transcript.failure = self._error.message
            if transcript.is_promoted:
                return False
            stored, first = encode_rejection(self._error), Rejected(self._error)
        else:
            parts = None if self.active_task is not None else transcript.answer()
            body = None if parts is None else self._encode_answer(parts)
            if body is None:
                return False
            stored, first = encode_answer(body), DirectAnswer(body)
        record = self.record
        await self._engine.store.tasks.finish_run(record.id, fence=record.fence, answer=stored)
        self.created.set(first)
        return True

    def _encode_answer(self, parts: tuple[Part, ...]) -> bytes | None:
        """The message in its stored form; None when the agent gave what JSON cannot hold."""
        message_id = MessageId(self._engine.new_id())
        try:
            return encode_json(Message(message_id, Role.AGENT, parts, self.record.context_id))
        except UNWRITABLE:
            return None

    async def _promote(self, transcript: Transcript) -> None:
        """Become a task only to end as one."""
        try:
            await self._become_task(transcript, transcript.promote())
        except AgentFailed as error:  # what was staged cannot be written
            transcript.failure = error.message

    def _last_events(self, transcript: Transcript) -> Sequence[Event]:
        active = self.active_task
        assert active is not None  # noqa: S101 - called for tasks only
        if active.has_other_runs(self):
            is_canceled = self.is_cancel_requested
            events = transcript.close() if is_canceled else transcript.continue_working()
        elif transcript.failure is not None:
            events = transcript.fail(transcript.failure)
        elif self.is_cancel_requested:
            events = transcript.cancel()
        else:
            events = transcript.complete()
        if not self._pause_events:
            return events
        closing = [event for event in self._pause_events if isinstance(event, ArtifactUpdate)]
        return [*closing, *events]

    async def _end_task(
        self, transcript: Transcript, events: Sequence[Event], resume: bytes | None = None
    ) -> None:
        """Commit the last events together with the end of the run."""
        active = self.active_task
        assert active is not None  # noqa: S101 - called for tasks only
        active.ending.add(self.record.id)
        journal, unclosed = active.journal, active.journal.projection.open_artifacts
        if unclosed:
            closed = {
                event.artifact.artifact_id
                for event in events
                if isinstance(event, ArtifactUpdate) and event.last_chunk
            }
            left_open = [artifact_id for artifact_id in unclosed if artifact_id not in closed]
            events = [*transcript.close_unfinished(left_open), *events]
        try:
            await journal.end(events, run=self.record, resume=resume)
        except AgentFailed as error:  # the agent's last events cannot be written, ours can
            journal.limits = UNLIMITED
            state = TaskState.WORKING if active.has_other_runs(self) else TaskState.FAILED
            status = transcript.status_text(state, error.message)
            await journal.end([*transcript.close_unfinished(unclosed), status], run=self.record)
        if not self.created.is_set:
            active.show_created(self)
        active.leave(self, TaskFinished(journal.snapshot, self._error))

    def _abandon(self, error: GatewayError) -> None:
        """The store refuses the run: maintenance fails it, or its new owner goes on with it."""
        log.warning("run.abandoned", run_id=self.record.id, reason=error.message)
        self._leave(Rejected(error))
        self._engine.abandoned.append(self.record)


def transcript_type(agents: AgentLookup, agent_id: AgentId) -> type[Transcript]:
    """The transcript class for an agent: its own `transcript_type` if it names one."""
    try:
        return getattr(agents.find(agent_id), "transcript_type", None) or Transcript
    except AgentUnavailable:
        return Transcript


async def _close_stream(stream: AsyncIterator[AgentEvent]) -> None:
    """Stop reading; what the agent started has ended when this returns."""
    close = getattr(stream, "aclose", None)
    if close is not None:
        await close()


def _raised_at(error: Exception) -> str:
    """The line that raised, for the author of the agent."""
    frames = traceback.extract_tb(error.__traceback__, limit=-1)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "unknown"


def _uncancel() -> None:
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
