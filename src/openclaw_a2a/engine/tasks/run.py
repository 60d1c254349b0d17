"""How an agent's stream of events is left: closed, and where it raised."""

import asyncio
import traceback
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import TYPE_CHECKING, TypeGuard

import msgspec

from openclaw_a2a.engine.scheduling.session_queue import QueueSlot
from openclaw_a2a.engine.tasks.journal import UNWRITABLE
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.engine.tasks.result import (
    ActiveTask,
    DirectAnswer,
    First,
    Outcome,
    Promise,
    Rejected,
    TaskCreated,
    TaskFinished,
    encode_answer,
    encode_refusal,
    not_accepted,
)
from openclaw_a2a.engine.tasks.turn_builder import AccountRules, build_turn
from openclaw_a2a.engine.transcript.content import output_modes
from openclaw_a2a.engine.transcript.single_artifact import transcript_of
from openclaw_a2a.engine.transcript.transcript import NO_ARTIFACTS, EventContext, Transcript
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.agent_event import AgentEvent, TextDelta
from openclaw_a2a.model.errors import (
    AgentFailed,
    Conflict,
    Draining,
    GatewayError,
    GatewayFault,
    StoreUnavailable,
)
from openclaw_a2a.model.ids import Json, MessageId
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.records import RunRecord, encode_json
from openclaw_a2a.model.states import is_terminal
from openclaw_a2a.model.task import ArtifactUpdate, Event, TaskState
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import Accepted, Duplicate


async def close_stream(stream: AsyncIterator[AgentEvent]) -> None:
    """Stop reading; what the agent started has ended when this returns."""
    close = getattr(stream, "aclose", None)
    if close is not None:
        await close()


def raised_at(error: Exception) -> str:
    """The line that raised, for whoever wrote the agent."""
    frames = traceback.extract_tb(error.__traceback__, limit=-1)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "unknown"


if TYPE_CHECKING:
    from openclaw_a2a.engine.engine import Engine

log = get_logger(__name__)

_BREATH = 256
"""After so many events of one agent everybody else gets a turn."""


class ActiveRun:
    """A run from its acceptance to its end."""

    def __init__(
        self, engine: "Engine", record: RunRecord, *, rules: AccountRules, place: QueueSlot
    ) -> None:
        self._engine = engine
        self.record = record
        self._rules = rules
        self._place = place
        self.active_task: ActiveTask | None = None
        self.first: Promise[First] = Promise()
        """The first thing to show: the task (durable by then), the direct answer, or a refusal."""
        self.is_cancel_requested = False
        self.error: GatewayError | None = None
        self.task: asyncio.Task[None] | None = None
        self._is_interruptible = False
        """True while the run may be broken off: it waits, or its agent is at work."""
        self._is_timed_out = False
        self._events = 0
        self._overflow: str | None = None
        """Why what the agent said could not be written."""
        self._is_refused = False
        self.digest = b""
        self.is_followed = False
        """True when somebody who is not connected is to be told about its task."""
        self.begins_early = False
        """True when the agent may be asked before the message is durable."""
        self._held_back: Sequence[Event] = ()
        """The events of a pause, until the agent has really stopped."""
        self._resume: bytes | None = None
        self._transcript: Transcript | None = None

    @property
    def scope(self) -> Scope:
        """Who asked."""
        return self.record.scope

    @property
    def message_id(self) -> MessageId:
        """The message that the run answers."""
        return self.record.message.message_id

    # ---------------------------------------------------------------- life

    async def run(self, submission: Awaitable[Accepted | Duplicate] | None) -> None:
        """From the store's word on the submission to the end of the run.

        An agent whose work may be repeated begins while its message is being committed. Nothing
        of it is seen before: the store takes the run's events after the submission, in order.
        """
        try:
            if submission is None or await self._may_begin(submission):
                await self._run_or_drop()
        except asyncio.CancelledError:
            self._let_go(Rejected(Draining("the gateway is stopping; ask again when it is back")))
            raise
        except (Conflict, StoreUnavailable) as error:
            if not self._is_refused:
                self._abandon(error)
        except Exception as error:  # one broad catch: nobody may wait for ever because of our bug
            log.exception("run-broken", run_id=self.record.id)
            self._abandon(GatewayFault(f"the run broke: {type(error).__name__}"))
        finally:
            self._place.leave()
            self._engine.forget_run(self)

    async def _run_or_drop(self) -> None:
        """Ask the agent when it is this run's turn, unless the run is cancelled before."""
        self._is_interruptible = True
        try:
            if self.is_cancel_requested or self._engine.is_stopping:
                raise asyncio.CancelledError
            await self._place.wait_turn()
            await self._begin()
        except asyncio.CancelledError:
            if not self.is_cancel_requested:
                raise
            _uncancel()
            await self._drop_canceled()
        else:
            await self._execute()

    async def outcome(self) -> Outcome:
        """How it ended: the direct answer, or the task as it was when it ended or paused."""
        if (
            self.active_task is None or self.active_task.opening is None
        ):  # its refusal would not end the task
            first = await self.first.wait()
            if not isinstance(first, TaskCreated):
                return first
        live = self.active_task
        return Rejected(None) if live is None else await live.ended.wait()

    def request_cancel(self) -> None:
        """Stop the run; its task says `canceled` once the agent has really stopped."""
        self.is_cancel_requested = True
        self._interrupt()

    def _interrupt(self) -> None:
        """Break off once; a second time would break off the agent's clean-up."""
        if self._is_interruptible and self.task is not None:
            self._is_interruptible = False
            self.task.cancel()

    # ---------------------------------------------------------------- before the agent

    async def _may_begin(self, submission: Awaitable[Accepted | Duplicate]) -> bool:
        if self.begins_early:
            future = asyncio.ensure_future(submission)
            future.add_done_callback(self._take_word)
            return True
        try:
            taken = await submission
        except GatewayError as error:
            self._refuse(Rejected(error))
            return False
        finally:
            self._engine.arrived(self)
        if isinstance(taken, Duplicate):
            self._refuse(Rejected(None, known=taken))
            return False
        await self._show_task()
        return True

    def _take_word(self, submission: "asyncio.Future[Accepted | Duplicate]") -> None:
        """The store's word on a submission whose run began early."""
        self._engine.arrived(self)
        error = None if submission.cancelled() else submission.exception()
        if error is None and not isinstance(submission.result(), Duplicate):
            if self.active_task is not None and self.active_task.opening is not None:
                self.active_task.submitted(self)
            elif self.active_task is not None:
                self._engine.supervisor.spawn("show-task", self._show_task())
            return
        if isinstance(error, GatewayError):
            self._refuse(Rejected(error))
        else:
            known = submission.result() if error is None else None
            self._refuse(Rejected(None, known=known if isinstance(known, Duplicate) else None))
        self._interrupt()

    async def _show_task(self) -> None:
        """The submission is durable: show the task it opened, or the one it was added to."""
        live = self.active_task
        if live is None:
            return
        if live.opening is not None:
            live.submitted(self)
            return
        stored = await self._engine.store.tasks.read_task(None, self.record.task_id)
        if stored is not None:
            self.first.set(
                TaskCreated(TaskProjection.from_stored(stored).task(), stored.head.sequence)
            )

    def _refuse(self, refusal: Rejected) -> None:
        """The message was not taken: nothing of the run will ever be seen."""
        self._is_refused = True
        if self.active_task is not None:
            self.active_task.refused(refusal)
        self._let_go(refusal)
        self._engine.forget_run(self)  # a run that began early still has to stop

    def _let_go(self, refusal: Rejected) -> None:
        """Whoever waits for this run waits no longer."""
        if self.active_task is not None:
            self.active_task.leave(self, refusal)
        self.first.set(refusal)

    async def _begin(self) -> None:
        """Note durably that the agent is about to be asked; bring the message into the history."""
        if not self.record.is_started:
            self.record = msgspec.structs.replace(self.record, is_started=True)
            record = self.record
            await self._engine.store.tasks.start_run(
                record.id, fence=record.fence, attempt=record.attempt
            )
        live = self.active_task
        if live is None:
            return
        if live.journal.failure is not None:
            raise live.journal.failure
        if is_terminal(live.journal.state):
            raise Conflict(f"task {self.record.task_id} ended before its message could be read")
        is_new = not live.has_message(self.record)
        if self.record.resume is None and (is_new or self.record.attempt > 1):
            # The task may have paused while this message waited.
            resume = await self._engine.store.tasks.read_resume_token(self.record.task_id)
            self.record = msgspec.structs.replace(self.record, resume=resume)
        if is_new:
            event = self._new_transcript().submitted()
            live.journal.append([event], run=self.record, message=self.record.message)

    def _new_transcript(self) -> Transcript:
        record, engine, live = self.record, self._engine, self.active_task
        stamp = EventContext(record.task_id, record.context_id, engine.clock.now, engine.new_id)
        modes = output_modes(record.options.accepted_output_modes or self._rules.output_modes)
        numbering = live.numbering(record) if live is not None else NO_ARTIFACTS
        kind = transcript_of(engine.agents, record.binding.agent_id)
        return kind(stamp, modes=modes, is_task=live is not None, numbering=numbering)

    # ---------------------------------------------------------------- the agent at work

    async def _execute(self) -> None:
        transcript = self._transcript = self._new_transcript()
        if self.active_task is not None:
            self.active_task.journal.on_committed = self._after_commit
            self.active_task.journal.append([transcript.working()], run=self.record)
        failure = await self._ask_agent(transcript)
        if failure is not None and transcript.failure is None:
            transcript.failure = failure
        if transcript.is_paused and not self.is_cancel_requested:
            await self._end_with(transcript, self._held_back, self._resume)
        else:
            await self._finish(transcript)

    async def _ask_agent(self, transcript: Transcript) -> str | None:
        """Let the agent answer; why it failed, when it did."""
        limit = self._engine.limits.run_s
        self._timer = self._engine.loop.call_later(limit, self._time_out)
        try:
            await self._drive(transcript)
        except asyncio.CancelledError:
            self._raise_unless_ours()
            _uncancel()
            if self._is_timed_out:
                return f"The agent did not finish within {limit:g} seconds."
            return self._overflow
        except (Conflict, StoreUnavailable):
            raise
        except GatewayError as error:
            return error.message
        except Exception as error:  # one broad catch: whatever an agent raises is its failure
            task_id, reason = self.record.task_id, str(error) or type(error).__name__
            log.warning("agent-failed", task_id=task_id, reason=reason, at=raised_at(error))
            return reason
        finally:
            self._timer.cancel()
            self._is_interruptible = False
        self.is_cancel_requested = False  # it managed to complete first
        return None

    def _raise_unless_ours(self) -> None:
        """Raise again what broke the agent off, unless it was us and the run can still be ended."""
        if self.active_task is not None and self.active_task.journal.failure is not None:
            _uncancel()
            raise self.active_task.journal.failure
        is_ours = self.is_cancel_requested or self._is_timed_out or self._overflow
        if self._engine.is_forcing or not is_ours:
            raise asyncio.CancelledError

    def _time_out(self) -> None:
        """Break the agent off; one that has not stopped in its time is broken off again."""
        self._is_interruptible = self._is_interruptible or self._is_timed_out
        self._is_timed_out = True
        self._interrupt()
        engine = self._engine
        self._timer = engine.loop.call_later(engine.limits.cancel_s, self._time_out)

    def stop(self) -> None:
        """The gateway stops: break off, unless the run is being broken off or ended already."""
        self._interrupt()

    async def _drive(self, transcript: Transcript) -> None:
        agent = self._engine.agents.find(self.record.binding.agent_id)
        turn = build_turn(
            self.record,
            rules=self._rules,
            reference_tasks=await self._engine.reference_tasks(self.record),
            resume=_decode(self.record.resume),
        )
        stream = agent.run(turn)
        try:
            async for event in stream:
                self._is_interruptible = True  # it goes on, whatever it did with an interruption
                await self._take(transcript, event)
                if transcript.is_over:
                    break
                self._events += 1
                if not self._events % _BREATH:
                    await asyncio.sleep(0)  # an agent that never waits must not starve the others
        finally:
            self._is_interruptible = False  # clean-up is left to end
            await close_stream(stream)

    async def _take(self, transcript: Transcript, event: AgentEvent) -> None:
        try:
            events = transcript.apply(event)
        except KeyError:
            raise AgentFailed(
                f"The agent yielded a {type(event).__name__}, which is no event."
            ) from None
        if transcript.is_paused:
            self._held_back, events = events, ()
            self._keep_token(transcript)
        if self.active_task is None:
            if transcript.is_promoted:
                await self._become_task(events)
            elif transcript.staged_size > self._engine.limits.run_bytes:
                limit = self._engine.limits.run_bytes
                raise AgentFailed(f"The agent's answer is larger than {limit} bytes.")
            return
        journal = self.active_task.journal
        journal.append(events, run=self.record)
        if type(event) is TextDelta:
            self._flush_text()
        limits = self._engine.limits
        if transcript.pending_size > limits.pending_text:
            await journal.settle()
        elif journal.in_flight > limits.inflight_events:
            await journal.settle(limits.inflight_events // 2)

    def _keep_token(self, transcript: Transcript) -> None:
        if transcript.resume is not None:
            try:
                self._resume = msgspec.json.encode(transcript.resume)
            except UNWRITABLE as error:
                transcript.failure = f"The agent paused with a token that is no JSON: {error}."

    def _after_commit(self) -> None:
        """The store took a change, or refused it: then nothing more of the run can be kept."""
        if self.active_task is not None and self.active_task.journal.failure is not None:
            self._interrupt()
            return
        try:
            self._flush_text()
        except AgentFailed as error:
            self._overflow = error.message
            self._interrupt()

    def _flush_text(self) -> None:
        """Text that came while a commit was under way goes out as one event afterwards."""
        transcript, live = self._transcript, self.active_task
        if transcript is None or live is None or not transcript.pending_size:
            return
        if live.journal.in_flight == 0 or not self._engine.limits.join_deltas:
            live.journal.append(transcript.flush(), run=self.record)

    async def _become_task(self, events: Sequence[Event]) -> None:
        """Promotion: the task is created with everything staged so far, and shown once durable."""
        transcript = self._transcript
        assert transcript is not None  # noqa: S101 - promotion happens inside _execute only
        live = self.active_task = self._engine.open_task(self)
        live.journal.on_committed = self._after_commit
        first = [transcript.submitted(), transcript.working(), *events]
        live.journal.append(first, run=self.record)
        await live.journal.settle()
        live.show_first(self)

    # ---------------------------------------------------------------- the end

    async def _finish(self, transcript: Transcript) -> None:
        if self.is_cancel_requested and transcript.failure is None:
            await self._end_as_task(transcript)
            return
        if transcript.is_unrepresentable and transcript.failure is None:
            self.error = not_accepted(self.record.options.accepted_output_modes, self._rules)
            transcript.failure = self.error.message
            if not transcript.is_promoted:
                await self._answer(encode_refusal(self.error), Rejected(self.error))
                return
        parts = transcript.answer()
        body = None if parts is None else self._direct_answer(parts)
        if body is None:
            await self._end_as_task(transcript)
        else:
            await self._answer(encode_answer(body), DirectAnswer(body))

    def _direct_answer(self, parts: tuple[Part, ...]) -> bytes | None:
        """The message as it is stored; None when the agent gave us what cannot be written."""
        message_id = MessageId(self._engine.new_id())
        try:
            return encode_json(Message(message_id, Role.AGENT, parts, self.record.context_id))
        except UNWRITABLE:
            return None

    async def _answer(self, stored: bytes, first: First) -> None:
        record = self.record
        await self._engine.store.tasks.finish_run(record.id, fence=record.fence, answer=stored)
        self.first.set(first)

    async def _end_as_task(self, transcript: Transcript) -> None:
        if self.active_task is None:
            try:
                await self._become_task(transcript.promote())
            except AgentFailed as error:  # what was staged cannot be written
                transcript.failure = error.message
        live = self.active_task
        assert live is not None  # noqa: S101 - made just above
        if live.has_others(self):
            events = transcript.close() if self.is_cancel_requested else transcript.hand_over()
        elif transcript.failure is not None:
            events = transcript.fail(transcript.failure)
        elif self.is_cancel_requested:
            events = transcript.cancel()
        else:
            events = transcript.complete()
        closings = [event for event in self._held_back if isinstance(event, ArtifactUpdate)]
        await self._end_with(transcript, [*closings, *events])

    async def _end_with(
        self, transcript: Transcript, events: Sequence[Event], resume: bytes | None = None
    ) -> None:
        live = self.active_task
        assert live is not None  # noqa: S101 - only tasks end with events
        live.ending.add(self.record.id)
        journal, is_open = live.journal, live.journal.view.open_artifacts
        if is_open:
            closed = {one.artifact.artifact_id for one in events if _is_closing(one)}
            unfinished = [one for one in is_open if one not in closed]
            events = [*transcript.close_unfinished(unfinished), *events]
        try:
            await journal.end(events, run=self.record, resume=resume)
        except AgentFailed as error:  # what it still had to say cannot be written
            journal.lift_limits()
            state = TaskState.WORKING if live.has_others(self) else TaskState.FAILED
            words = transcript.status_text(state, error.message)
            await journal.end([*transcript.close_unfinished(is_open), words], run=self.record)
        if not self.first.is_set:
            live.show_first(self)
        live.leave(self, TaskFinished(live.journal.snapshot, self.error))

    async def _drop_canceled(self) -> None:
        """The run was cancelled before its agent was asked."""
        self._is_interruptible = False
        if self.active_task is None:
            self.record = msgspec.structs.replace(self.record, is_started=True)
        self._transcript = self._transcript or self._new_transcript()
        await self._end_as_task(self._transcript)

    def _abandon(self, error: GatewayError) -> None:
        """The store refuses us: whoever owns the run now goes on with it."""
        log.warning("run-abandoned", run_id=self.record.id, reason=error.message)
        self._let_go(Rejected(error))
        self._engine.note_abandoned(self.record, error)


def _is_closing(event: Event) -> TypeGuard[ArtifactUpdate]:
    return isinstance(event, ArtifactUpdate) and event.last_chunk


def _uncancel() -> None:
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()


def _decode(resume: bytes | None) -> Json:
    return None if resume is None else msgspec.json.decode(resume)
