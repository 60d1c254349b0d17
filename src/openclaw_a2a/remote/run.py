"""A run of a remote agent, over the tool `remote_agent`.

A run sends the message and follows the task until it ends or pauses. A background job makes the
requests, one after the other, and puts agent events into a bounded buffer; `next` takes them out.
The job is a separate task because a cancelled `next` must not end the stream: a peer may refuse to
cancel its task, and then the run continues.

Invariant: a task that the peer has named is in `_continuation`, and the checkpoint that names it is
in the store, before an event of that task is in the buffer. After a crash the run therefore finds
every task whose events were seen.

A message that answers a question of the remote task is sent again, under the same message id, until
the peer responds (`_has_answered`); the checkpoint is written only then. Reading the state of the
task instead would find the question still open, and the accepted answer would be lost. If the
response to one attempt was lost and the peer refuses the next, the state of the task shows whether
the first one arrived.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from enum import Enum, auto
from typing import TYPE_CHECKING

import anyio
import msgspec

from openclaw_a2a.calls.loop_guard import chain_metadata
from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.agent_event import AgentEvent, InputRequired, Note, Reply, Stopped
from openclaw_a2a.model.backoff import Backoff
from openclaw_a2a.model.errors import (
    AgentError,
    AgentFailed,
    AgentUnavailable,
    StoreUnavailable,
)
from openclaw_a2a.model.ids import Json, JsonObject, PeerName
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.model.validation import as_object, is_object, object_at
from openclaw_a2a.planning.steps import EXTENSION_URIS, TASK_KEYS
from openclaw_a2a.ports import Clock, Record, RecordStore
from openclaw_a2a.remote.event_translator import RemoteEventTranslator
from openclaw_a2a.remote.result import (
    CIRCUIT_OPEN,
    PAUSED_STATES,
    TASK_NOT_FOUND_CODE,
    ErrorCode,
    RemoteResult,
    continuation_of_failure,
    is_streaming_refused,
)
from openclaw_a2a.remote.result_builder import StreamUpdate

if TYPE_CHECKING:  # the HTTP client takes long to load
    from openclaw_a2a.remote.tool import RemoteAgentTool

log = get_logger(__name__)

CHECKPOINT_KIND = "target-run"
"""The kind of the records that say which remote task belongs to a run."""

_CANCELED = "canceled"
_CHECKPOINT_TTL = timedelta(days=7)
_MAX_BUFFERED = 64
_INTERNAL_ERROR = -32603
_TRY_LATER = frozenset({408, 425})
_STATUS_S = 30.0
_CANCEL_REQUEST_S = 10.0
_CANCEL_POLL_S = 0.2
_POLL_BACKOFF = Backoff(first_s=0.2, max_s=5.0, jitter=0.0)
_OWNER = PeerName("gateway")
"""The owner of the remote tasks of runs; a reserved name, which no caller has."""


class RemoteTimeouts(msgspec.Struct, frozen=True):
    """Time limits of a run.

    answer_s  one streamed request; after it the state of the task is read again
    lost_s    how long a peer may be unreachable while it works for us, and how long its task may
              not be stored
    stop_s    ending a task that is canceled
    """

    answer_s: float = 600.0
    lost_s: float = 60.0
    stop_s: float = 15.0


class RunContext(msgspec.Struct, frozen=True):
    """What all runs at one target share."""

    alias: str
    remote: "RemoteAgentTool"
    records: RecordStore
    clock: Clock
    timeouts: RemoteTimeouts
    supervisor: Supervisor
    host_id: str


class _Step(Enum):
    """The next request of a run."""

    SEND = auto()
    SEND_WITHOUT_STREAM = auto()
    STATUS = auto()
    WATCH = auto()


_SENDING = frozenset({_Step.SEND, _Step.SEND_WITHOUT_STREAM})
_REQUESTS: dict[_Step, JsonObject] = {
    _Step.SEND: {"action": "send", "follow_updates": True},
    # A blocking send would return the task id only at the end: too late for a restart.
    _Step.SEND_WITHOUT_STREAM: {"action": "send", "blocking": False},
    _Step.STATUS: {"action": "status"},
    _Step.WATCH: {"action": "watch"},
}


class RemoteRun:
    """A run from its first request to its end. `next` may be cancelled and called again."""

    def __init__(self, context: RunContext, turn: Turn) -> None:
        self.is_over = False
        self.is_stopped = False
        """True when the remote task was canceled for us."""
        self.refused_cancels = 0
        self._context = context
        self._turn = turn
        self._translator = RemoteEventTranslator()
        self._continuation = read_resume_token(turn.resume)
        self._is_checkpointed = False
        self._has_answered = False
        """True when the peer has responded since the message was sent."""
        self._unacknowledged_sends = 0
        self._refused: tuple[_Step, RemoteResult] | None = None
        """The refusal of an answer of which an earlier attempt may have arrived."""
        self._job: asyncio.Task[None] | None = None
        # Guards the four below. Notified when there are events, room, a task, or an end.
        self._changed = asyncio.Condition()
        self._buffer: list[AgentEvent] = []
        self._is_finished = False
        self._failure: Exception | None = None
        self._is_stopping = False
        self._can_watch = True
        self._polls = 0
        self._unreachable_since: float | None = None
        """Since when the peer cannot be reached."""
        self._checkpoint_failing_since: float | None = None
        """Since when the checkpoint cannot be stored."""

    # ---------------------------------------------------------------- the reader's side

    async def next(self) -> Sequence[AgentEvent]:
        """The next events; empty at the end. Raises: AgentFailed, AgentUnavailable."""
        self._start()
        async with self._changed:
            await self._changed.wait_for(lambda: self._buffer or self._is_finished)
            events, self._buffer = self._buffer, []
            self._changed.notify_all()
        # Events before a failure are returned before it.
        if not events and self._failure is not None:
            raise self._failure
        self.is_over = self._is_finished and self._failure is None
        return events

    async def stop(self) -> None:
        """Cancel the remote task; `is_stopped` says whether that succeeded.

        Raises: AgentFailed, AgentUnavailable (whether the task has ended is not known).
        """
        async with self._changed:
            self._is_stopping = True  # lifts the bound: while we wait here the buffer is not read
            self._changed.notify_all()
        if self._job is None:
            await self._load_checkpoint()
            if self._turn.attempt == 1 and not self._has_task:
                self.is_stopped = True  # nothing was sent
                return
            if not self._has_task:
                self._start()  # sends the same message again, which returns its task
        # Without the id of its task the peer cannot cancel it.
        try:
            async with asyncio.timeout(self._context.timeouts.stop_s), self._changed:
                await self._changed.wait_for(lambda: self._has_task or self._is_finished)
        except TimeoutError:
            raise AgentFailed(
                f"The remote agent {self._context.alias} did not say which task it works on, "
                "so the task could not be canceled and may go on."
            ) from None
        if not self._is_finished and self._continuation is not None:
            state = await cancel_remote_task(self._context, self._continuation)
            self.is_stopped = state == _CANCELED

    async def close(self) -> None:
        """Stop following; the remote task continues."""
        if self._job is not None:
            self._job.cancel()
            # Waited for, so that no request of this run is on its way when the next one starts.
            await asyncio.wait({self._job})

    @property
    def _has_task(self) -> bool:
        return self._continuation is not None and "task" in self._continuation

    # ---------------------------------------------------------------- the job

    def _start(self) -> None:
        if self._job is None:
            name = f"remote-run {self._turn.run_id}"
            self._job = self._context.supervisor.start(name, self._work())

    async def _work(self) -> None:
        try:
            await self._load_checkpoint()
            step: _Step | None = _Step.STATUS if self._is_checkpointed else _Step.SEND
            while step is not None:
                result = RemoteResult.from_envelope(await self._request(step))
                is_waiting = result.task is not None and result.task.is_waiting
                if self._refused is not None and result.ok and is_waiting:
                    # Nothing has arrived: no response, and no checkpoint.
                    step = await self._after_refusal(*self._refused)
                    continue
                if result.ok and not self._is_finished:
                    self._has_answered, self._unreachable_since, self._refused = True, None, None
                    if "events" not in result.raw:  # streamed events were handled by `_on_update`
                        await self._receive(result.raw, result.continuation)
                if self._is_finished:
                    return
                after = self._after_answer if result.ok else self._after_failure
                step = await after(step, result)
        except Exception as error:  # the reader raises it
            if self._checkpoint_failing_since is not None:
                await self._cancel_unstored()
            await self._finish(failure=error)

    async def _request(self, step: _Step) -> JsonObject:
        timeouts, turn = self._context.timeouts, self._turn
        is_status = step is _Step.STATUS
        limit_s = min(_STATUS_S, timeouts.answer_s) if is_status else timeouts.answer_s
        request: JsonObject = {**_REQUESTS[step], "timeout_ms": round(limit_s * 1000)}
        if step in _SENDING:
            # The run id as message id: sending it again gives the same task, not a second one.
            request["message_id"] = turn.run_id
            request["parts"] = [{"kind": "text", "text": turn.message.text}]
        if self._continuation is not None:
            request["continuation"] = self._continuation
        else:
            request["target_alias"] = self._context.alias
        chain = () if turn.provenance is None else turn.provenance.chain
        metadata = turn.message.metadata or {}
        plan_step = {key: value for key, value in metadata.items() if key in TASK_KEYS}
        return await self._context.remote.execute(
            request,
            self._on_update,
            owner=_OWNER,
            message_metadata=chain_metadata(chain, self._context.host_id),
            extension_metadata=dict.fromkeys(sorted(EXTENSION_URIS), plan_step)
            if plan_step
            else None,
        )

    async def _on_update(self, update: StreamUpdate) -> None:
        self._has_answered = True
        # Chunks of text do not change the state of the task, and there are many of them.
        is_chunk = self._is_checkpointed and update.event["kind"] == "artifact-update"
        await self._receive(update.event, None if is_chunk else update.result.continuation())
        event = update.event
        is_status = event["kind"] == "status-update" and not self._is_finished
        if is_status and event["status"]["state"] in PAUSED_STATES:
            # Now and not at the end of the stream: a peer may keep it open while the task pauses.
            await self._pause(self._translator.status_text or update.result.text)

    async def _receive(self, event: JsonObject, continuation: JsonObject | None) -> None:
        if self._is_finished:
            return
        if continuation is not None and "task" in continuation:
            await self._set_task(continuation)
        events = self._translator.translate(event)
        if not events:
            return
        self._polls = 0
        async with self._changed:
            self._buffer += events
            self._changed.notify_all()
            # The peer's next event is read only when there is room: a slow reader slows the peer.
            await self._changed.wait_for(
                lambda: len(self._buffer) < _MAX_BUFFERED or self._is_stopping
            )

    async def _finish(
        self, events: Sequence[AgentEvent] = (), *, failure: Exception | None = None
    ) -> None:
        async with self._changed:
            # Not limited by the buffer size: these are the last events, and waiting for room could
            # last for ever if the reader is gone.
            self._buffer += events
            self._failure = failure
            self._is_finished = True
            self._changed.notify_all()

    # ---------------------------------------------------------------- the checkpoint

    async def _load_checkpoint(self) -> None:
        """Load the remote task of an earlier attempt of this run."""
        if self._turn.attempt == 1 or self._is_checkpointed:
            return
        record = await self._context.records.read_record(CHECKPOINT_KIND, self._turn.run_id)
        if record is not None:
            try:
                self._continuation = msgspec.json.decode(record.body)
            except ValueError as error:
                # Treated as never stored: the message is sent again under the same id, which the
                # peer deduplicates.
                log.warning("remote.checkpoint_damaged", run_id=record.id, reason=str(error))
                return
            self._is_checkpointed = True

    async def _set_task(self, continuation: JsonObject) -> None:
        self._continuation = continuation
        # Stored before the caller puts events into the buffer: a task whose events were shown can
        # be followed again after a crash. A crash before this sends the same message id again.
        if not self._is_checkpointed:
            await self._store_checkpoint(msgspec.json.encode(continuation))
            self._is_checkpointed, self._checkpoint_failing_since = True, None
        async with self._changed:
            self._changed.notify_all()

    async def _store_checkpoint(self, body: bytes) -> None:
        """Raises: StoreUnavailable (for `lost_s`, or once while the run is stopped)."""
        context, attempt = self._context, 0
        while True:
            expires_at = context.clock.now() + _CHECKPOINT_TTL
            record = Record(CHECKPOINT_KIND, self._turn.run_id, body, expires_at)
            try:
                await context.records.put_record(record)
            except StoreUnavailable as error:
                # Kept between calls: after a failure the same checkpoint is stored again.
                now = anyio.current_time()
                since = self._checkpoint_failing_since = self._checkpoint_failing_since or now
                if self._is_stopping or now >= since + context.timeouts.lost_s:
                    raise
                log.warning("remote.checkpoint_not_stored", run_id=record.id, reason=str(error))
            else:
                return
            attempt += 1
            await context.clock.sleep(_POLL_BACKOFF.delay_s(attempt))

    async def _cancel_unstored(self) -> None:
        """Cancel the remote task of a run that ends because its checkpoint is not stored."""
        if self._continuation is None:
            return
        try:
            state = await cancel_remote_task(self._context, self._continuation)
        except AgentError as error:
            log.warning("remote.task_not_canceled", run_id=self._turn.run_id, reason=error.message)
        else:
            self.is_stopped = state == _CANCELED

    # ---------------------------------------------------------------- what comes next

    async def _after_answer(self, step: _Step, result: RemoteResult) -> _Step | None:
        task = result.task
        if task is None or result.envelope["summary"].get("response_kind") != "task":
            await self._finish_with_result(result, "completed")
        elif task.is_over:
            await self._finish_with_result(result, task.state)
        elif task.is_waiting:
            await self._pause(self._translator.status_text or result.text)
        elif step is _Step.STATUS and self._can_watch:
            return _Step.WATCH
        else:
            return await self._back_off()
        return None

    async def _after_failure(self, step: _Step, result: RemoteResult) -> _Step | None:
        is_refused = is_peer_answer(result)
        is_unacknowledged = step in _SENDING and self._has_task and not self._has_answered
        known = continuation_of_failure(result.details)
        # The failure of an unacknowledged answer names the task of our request: a checkpoint
        # would make the run after a restart ask for its state.
        if known is not None and "task" in known and not is_unacknowledged:
            await self._set_task(known)
        if step is _Step.SEND and is_streaming_refused(result.details):
            return _Step.SEND_WITHOUT_STREAM
        if (
            is_unacknowledged
            and is_refused
            and (self._unacknowledged_sends or self._turn.attempt > 1)
        ):
            # An earlier attempt may have arrived, and its response been lost.
            self._refused = (step, result)
            return _Step.STATUS
        if is_unacknowledged and _is_network_failure(result) and not self._is_stopping:
            return await self._send_again(step)
        cannot_watch = is_refused or result.details.get("suggested_action") == "status"
        if step is _Step.WATCH and cannot_watch:
            self._can_watch = False
            return await self._back_off()
        if self._has_task and self._may_recover(result):
            return await self._back_off()
        await self._fail(result)
        return None

    async def _after_refusal(self, step: _Step, result: RemoteResult) -> _Step | None:
        """After the peer refused an answer, and the question is still open."""
        self._refused = None
        if self._is_stopping:
            return await self._back_off()
        if _is_temporary(result):
            return await self._send_again(step)
        await self._fail(result)
        return None

    async def _fail(self, result: RemoteResult) -> None:
        reasons = "; ".join(result.problems) or str(result.details.get("hint", ""))
        reason = f"{result.message} ({reasons})" if reasons else result.message
        text = f"The remote agent {self._context.alias} did not do it: {reason}"
        kind = AgentFailed if is_peer_answer(result) else AgentUnavailable
        await self._finish(failure=kind(text))

    async def _send_again(self, step: _Step) -> _Step:
        """Wait, and send the answer to a question again; the time of the run bounds it."""
        self._unacknowledged_sends += 1
        if self._unacknowledged_sends == 1:
            alias = self._context.alias
            note = Note(f"The remote agent {alias} did not take the answer; it is sent again.")
            async with self._changed:
                self._buffer.append(note)
                self._changed.notify_all()
        await self._context.clock.sleep(_POLL_BACKOFF.delay_s(self._unacknowledged_sends))
        return step

    async def _back_off(self) -> _Step:
        self._polls += 1
        await self._context.clock.sleep(_POLL_BACKOFF.delay_s(self._polls))
        return _Step.STATUS

    def _may_recover(self, result: RemoteResult) -> bool:
        """True when the connection broke and the peer is not unreachable for too long.

        A request that an open circuit refused was not made: only one that was made and failed
        shows that the peer is still unreachable.
        """
        if "partial_event_count" in result.details:
            return True
        if not _is_network_failure(result):
            return False
        now = anyio.current_time()
        self._unreachable_since = self._unreachable_since or now
        was_not_sent = result.details.get("errorName") == CIRCUIT_OPEN
        return was_not_sent or now < self._unreachable_since + self._context.timeouts.lost_s

    async def _finish_with_result(self, result: RemoteResult, state: str | None) -> None:
        translator = self._translator
        if state == "completed":
            text = result.text or translator.status_text
            is_unpublished = bool(text.strip()) and not translator.has_reply
            await self._finish([Reply.of_text(text)] if is_unpublished else [])
        elif state == _CANCELED and self._is_stopping:
            await self._finish([Stopped()])
        else:
            verb = {"rejected": "rejected the task", _CANCELED: "canceled the task"}
            reason = translator.status_text or "it gave no reason"
            did = verb.get(state or "", "failed")
            await self._finish(
                failure=AgentFailed(f"The remote agent {self._context.alias} {did}: {reason}")
            )

    async def _pause(self, text: str) -> None:
        prompt = text.strip() or f"The remote agent {self._context.alias} waits for an answer."
        await self._finish([InputRequired(prompt, {"continuation": self._continuation})])


async def cancel_remote_task(context: RunContext, continuation: JsonObject) -> str | None:
    """Cancel a task and wait for its end; its terminal state, None when the peer refuses.

    Raises: AgentUnavailable (the peer cannot be reached).
    """
    deadline = anyio.current_time() + context.timeouts.stop_s
    action = "cancel"
    while True:
        left_s = max(1.0, min(_CANCEL_REQUEST_S, deadline - anyio.current_time()))
        request: JsonObject = {"action": action, "continuation": continuation}
        request["timeout_ms"] = round(left_s * 1000)
        envelope = await context.remote.execute(request, owner=_OWNER)
        result = RemoteResult.from_envelope(envelope)
        if result.task is not None and result.task.is_over:
            return result.task.state
        if result.details.get("rpcCode") == TASK_NOT_FOUND_CODE:
            return _CANCELED  # the peer does not know the task, so it does not work on it
        is_refused = is_peer_answer(result)
        if is_refused and action == "status":
            return None
        if anyio.current_time() >= deadline:
            if result.ok:
                return None
            raise AgentUnavailable(
                f"the remote task could not be canceled and may go on: {result.message}"
            )
        if is_refused:
            action = "status"  # it may have ended before it could be canceled
            deadline = anyio.current_time()
            continue
        if result.ok:
            action = "status"  # canceled, but the task has not ended yet
        await context.clock.sleep(_CANCEL_POLL_S)


async def read_remote_task_id(records: RecordStore, run_id: str) -> str:
    """The id of the remote task of a run; empty when none is known."""
    record = await records.read_record(CHECKPOINT_KIND, run_id)
    try:
        known = {} if record is None else object_at(msgspec.json.decode(record.body), "task")
    except ValueError:
        return ""  # damaged; the run sends its message again and stores it anew
    return str(known.get("task_id", ""))


def is_peer_answer(result: RemoteResult) -> bool:
    """True when a request failed because the peer refused it, not on the way there."""
    status = result.details.get("httpStatus", 0)
    return "rpcCode" in result.details or (400 <= status < 500 and status != 429)


def _is_network_failure(result: RemoteResult) -> bool:
    return result.code == ErrorCode.PEER.value and not is_peer_answer(result)


def _is_temporary(result: RemoteResult) -> bool:
    """True when the peer may accept later what it has refused."""
    details = result.details
    return details.get("rpcCode") == _INTERNAL_ERROR or details.get("httpStatus") in _TRY_LATER


def read_resume_token(resume: Json) -> JsonObject | None:
    """The continuation of the remote task that waits; None when the token has none."""
    continuation = as_object(resume).get("continuation")
    return continuation if is_object(continuation) else None
