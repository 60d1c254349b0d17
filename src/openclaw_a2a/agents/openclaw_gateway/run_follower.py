"""Follows one run inside OpenClaw from its start to its end, however often the connection breaks.

`RunFollower` is the only owner of the run's state; `TRANSITIONS` is the whole state machine:

    NEW -> RUNNING <-> DETACHED <-> RECOVERING -> (terminal)

Invariant:

- At most one of `_run_request` and `_wait_request` is set: the request on the current connection
  whose response tells the end of the run. A lost connection and a terminal state clear both,
  because a response arrives only on the connection of its request.
- `_reconnect_deadline` is set exactly in DETACHED.
- `_recovery_deadline` is set in RECOVERING, is kept in DETACHED, and is None in all other states.
- The message is sent again only after a lookup said NOT_ACCEPTED, so no run is executed twice. One
  that OpenClaw had accepted and lost with a restart gets the next id of `RunRequest.run_ids`,
  because OpenClaw refuses its first one.

Everything about a run arrives in one queue (its subscription): events of the session, the two
responses to `agent` or the one to `agent.wait`, and changes of the connection. A crash of this
process loses nothing but this object: the next attempt calls `join` with the same run id.
"""

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Final, Literal

import anyio

from openclaw_a2a.agents.openclaw_gateway.connection import (
    ConnectionLost,
    EventReceived,
    EventSubscription,
    GatewayConnection,
    Reconnected,
    ResponseReceived,
    SubscriptionItem,
)
from openclaw_a2a.agents.openclaw_gateway.event_translator import EventTranslator
from openclaw_a2a.agents.openclaw_gateway.history import (
    FoundRun,
    RunStatus,
    SessionHistory,
    find_run,
    read_history,
)
from openclaw_a2a.agents.openclaw_gateway.media import split_media
from openclaw_a2a.agents.openclaw_gateway.pending_input import (
    ApprovalRequest,
    ApprovalResolved,
    QuestionRequest,
    approval_question,
    list_pending_approvals,
    list_pending_questions,
    operator_note,
    question_prompt,
)
from openclaw_a2a.agents.openclaw_gateway.protocol import (
    ErrorPayload,
    Lifecycle,
    RunOutcome,
    decode_as,
    request_error,
    run_metadata,
)
from openclaw_a2a.agents.openclaw_gateway.runs import Pause, RunRequest, Timeouts, may_be_recovery
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.agent_event import AgentEvent, Failed, InputRequired, Note, Report
from openclaw_a2a.model.errors import AgentFailed, AgentUnavailable
from openclaw_a2a.model.ids import JsonObject

log = get_logger(__name__)

_ABORT_TIMEOUT_S: Final = 10.0
# After an abort that could not be sent; short, because a canceled task waits for it.
_STOP_RETRY_S: Final = 0.2
_LOOKUP_RETRY_S: Final = 2.0

CONNECTION_LOST: Final = (
    "The connection to OpenClaw was lost in the middle of the turn; it is being made again."
)
RESTARTED: Final = (
    "OpenClaw was restarted in the middle of this turn; waiting for it to resume the turn."
)
NOT_RECOVERED: Final = (
    "OpenClaw was restarted in the middle of this turn and did not resume it; work done before the"
    " restart is not undone. Send the message again to have it done anew."
)
NO_STATUS: Final = (
    "OpenClaw is connected, but did not say in time what became of the run of this task; the run"
    " may still be active there. Look at the session in OpenClaw before you send the message again."
)
RUN_UNKNOWN: Final = "OpenClaw does not know the run of this task any more; send the message again."


class RunState(Enum):
    """The state of a run, as far as this follower knows."""

    NEW = auto()
    RUNNING = auto()  # OpenClaw works on it, or has it queued
    DETACHED = auto()  # the connection is lost, or a lookup failed: unknown until the next lookup
    RECOVERING = auto()
    """Accepted, but not shown as active: OpenClaw may resume it under another run id."""
    PAUSED = auto()  # it waits for an answer of the caller; another turn continues it
    COMPLETED = auto()
    FAILED = auto()
    UNKNOWN = auto()  # OpenClaw does not know it, and there is no message to send
    STOPPED = auto()  # it was aborted by us, and has ended
    ABANDONED = auto()  # OpenClaw stayed out of reach; the run may still be active there


class RunSignal(Enum):
    """What changes the state of a run."""

    STARTED = auto()  # `begin`, `join` or `attach` was called
    SENT = auto()  # the `agent` request is on its way
    EVENT = auto()  # an event of the run arrived
    FOUND_LIVE = auto()  # a lookup shows the run as active
    FOUND_HIDDEN = auto()  # the run was accepted, but a lookup does not show it as active
    ADOPTED = auto()  # OpenClaw resumed the run under another run id, which is followed now
    DISCONNECTED = auto()  # the connection is lost, or a request or lookup failed
    PAUSED = auto()
    SUCCEEDED = auto()
    FAILED = auto()
    NOT_FOUND = auto()  # never accepted, and there is no message to send
    STOPPED = auto()  # an abort was confirmed
    GAVE_UP = auto()  # no lookup succeeded within `reconnect_s`


_FROM_ACTIVE: Final[Mapping[RunSignal, RunState]] = {
    RunSignal.SENT: RunState.RUNNING,
    RunSignal.FOUND_LIVE: RunState.RUNNING,
    RunSignal.ADOPTED: RunState.RUNNING,
    RunSignal.FOUND_HIDDEN: RunState.RECOVERING,
    RunSignal.DISCONNECTED: RunState.DETACHED,
    RunSignal.PAUSED: RunState.PAUSED,
    RunSignal.SUCCEEDED: RunState.COMPLETED,
    RunSignal.FAILED: RunState.FAILED,
    RunSignal.NOT_FOUND: RunState.UNKNOWN,
    RunSignal.STOPPED: RunState.STOPPED,
    RunSignal.GAVE_UP: RunState.ABANDONED,
}

TRANSITIONS: Final[Mapping[RunState, Mapping[RunSignal, RunState]]] = {
    RunState.NEW: {RunSignal.STARTED: RunState.RUNNING},
    RunState.RUNNING: {**_FROM_ACTIVE, RunSignal.EVENT: RunState.RUNNING},
    # An event proves that the run lives, not that none was missed: only a lookup leaves DETACHED.
    RunState.DETACHED: {**_FROM_ACTIVE, RunSignal.EVENT: RunState.DETACHED},
    RunState.RECOVERING: {**_FROM_ACTIVE, RunSignal.EVENT: RunState.RUNNING},
}

ACTIVE: Final = frozenset({RunState.RUNNING, RunState.DETACHED, RunState.RECOVERING})
"""The states in which OpenClaw may be working on the run."""


def next_state(state: RunState, signal: RunSignal) -> RunState:
    """The state after the signal. Raises: RuntimeError when the table has no such transition."""
    following = TRANSITIONS.get(state, {}).get(signal)
    if following is None:
        raise RuntimeError(f"A run in state {state.name} cannot take {signal.name}.")
    return following


class RunFollower:
    """A run in progress: `begin` or `join` it, then `next` until `is_over`; or `stop` it."""

    def __init__(
        self,
        connection: GatewayConnection,
        subscription: EventSubscription,
        request: RunRequest,
        timeouts: Timeouts,
    ) -> None:
        self.state = RunState.NEW
        self.run_id = request.run_id
        """The run's id; another one once a restarted OpenClaw has resumed or lost it."""
        self._sent_id = request.run_id
        """The id under which the message is in OpenClaw; `run_id` differs for a resumed run."""
        self._connection = connection
        self._subscription = subscription
        self._request = request
        self._timeouts = timeouts
        self._translator = EventTranslator(
            connection, request.session, open_calls=request.open_calls
        )
        self._run_request: str | None = None
        self._wait_request: str | None = None
        self._reconnect_deadline: float | None = None
        self._lookup_at: float | None = None
        self._recovery_deadline: float | None = None
        # Set by `begin` only: a run that is joined was started by an earlier attempt or process, so
        # a restart of OpenClaw in between cannot be ruled out.
        self._boot_id: str | None = None
        """The gateway process in which the run was started; None when that is unknown."""
        self._is_restart_noted = False
        self._operator_approvals: set[str] = set()
        """The approvals that the operator decides; the caller knows that it waits for them."""

    @property
    def is_active(self) -> bool:
        """True while OpenClaw may be working on the run."""
        return self.state in ACTIVE

    @property
    def is_over(self) -> bool:
        """True when there is nothing more to emit: the run ended, failed or waits."""
        return self.state not in ACTIVE and self.state is not RunState.NEW

    def apply(self, signal: RunSignal) -> None:
        """Change the state, and with it everything the invariant ties to the state."""
        before, self.state = self.state, next_state(self.state, signal)
        if self.state is not before:
            log.debug("openclaw.run_state_changed", run=self.run_id, state=self.state.name)
        if self.state is not RunState.DETACHED:
            self._reconnect_deadline = self._lookup_at = None
        elif self._reconnect_deadline is None:
            self._reconnect_deadline = anyio.current_time() + self._timeouts.reconnect_s
        if self.state not in {RunState.DETACHED, RunState.RECOVERING} or signal is RunSignal.EVENT:
            self._recovery_deadline = None
        # A response that still arrives for these ids has no receiver, and is ignored.
        if not self.is_active:
            self._run_request = self._wait_request = None

    def _detach(self, *, lookup_in_s: float | None) -> None:
        """The run's state is unknown; look it up later, or as soon as the connection is back."""
        self.apply(RunSignal.DISCONNECTED)
        self._lookup_at = None if lookup_in_s is None else anyio.current_time() + lookup_in_s

    # ---------------------------------------------------------------- driving it

    async def begin(self) -> Sequence[AgentEvent]:
        """Send the message. Raises: AgentFailed (it cannot be sent)."""
        self.apply(RunSignal.STARTED)
        # Read before the message is sent: a restart in between must count as a restart.
        self._boot_id = self._current_boot
        # After a crash here the engine repeats the turn with `attempt` 2, which calls `join`.
        await self._send(self._request.params or {})
        return ()

    async def join(self) -> Sequence[AgentEvent]:
        """Continue a run that was started before; send its message if it was never accepted."""
        self.attach()
        return await self._look_up()

    def attach(self) -> None:
        """Assume that the run is active, without a lookup: to stop it, or to answer its pause."""
        if self.state is RunState.NEW:
            self.apply(RunSignal.STARTED)

    async def next(self) -> Sequence[AgentEvent]:
        """The next events, if any. Raises: AgentUnavailable (long out of reach), AgentFailed."""
        # The queue wakes this wait: the connection loop puts events, responses and connection
        # changes into it. The timeout is only for what never arrives.
        deadlines = [self._reconnect_deadline]
        if self._connection.hello is not None:  # without a connection there is nothing to ask
            deadlines += [self._lookup_at, self._recovery_deadline]
        now = anyio.current_time()
        left = [at - now for at in deadlines if at is not None]
        item = await self._subscription.next(max(0.0, min([self._timeouts.silence_s, *left])))
        if item is None:
            return await self._handle_timeout()
        if isinstance(item, EventReceived):
            return await self._handle_event(item)
        if isinstance(item, ResponseReceived):
            return await self._handle_response(item)
        if isinstance(item, ConnectionLost):
            return self._handle_connection_lost()
        # Reconnected, or events were dropped: the history has what was missed. From here on the run
        # is followed by `agent.wait`. After a reconnect the second response to `agent` never
        # arrives; after dropped events `_follow` would not read the history while `_run_request` is
        # set.
        self._run_request = None
        is_restarted = isinstance(item, Reconnected) and item.is_restarted
        return [*(self._note_restart() if is_restarted else ()), *await self._look_up()]

    async def _handle_timeout(self) -> Sequence[AgentEvent]:
        # In RUNNING this is a long silence. The run may have ended while its event was lost on the
        # way, so it is looked up; in DETACHED and RECOVERING a deadline or a retry is due.
        deadline = self._reconnect_deadline
        if deadline is not None and anyio.current_time() >= deadline:
            self.apply(RunSignal.GAVE_UP)
            # The task fails; the run may still be active in OpenClaw, and is not followed.
            raise AgentUnavailable(self._connection.unavailable_reason() or NO_STATUS)
        return () if self._connection.hello is None else await self._look_up()

    def _handle_connection_lost(self) -> Sequence[AgentEvent]:
        # Events that arrived before the loss were read before this. The run goes on inside
        # OpenClaw. The connection loop reconnects by itself; `Reconnected` in the queue triggers
        # the lookup. A gateway that drops every connection is reported once.
        is_new = self._reconnect_deadline is None
        self._run_request = self._wait_request = None
        self._detach(lookup_in_s=None)
        return (Note(CONNECTION_LOST),) if is_new else ()

    # ---------------------------------------------------------------- sending and looking up

    async def _send(self, params: JsonObject) -> None:
        try:
            if self._request.method == "chat.send":
                await self._wait_idle()
            self._run_request = await self._connection.post(
                self._request.method, params, self._subscription
            )
        except AgentFailed:
            self.apply(RunSignal.FAILED)
            raise
        except AgentUnavailable:  # lost just now: whether it was accepted is looked up later
            self._detach(lookup_in_s=_LOOKUP_RETRY_S)
        else:
            self.apply(RunSignal.SENT)

    async def _wait_idle(self) -> None:
        """Wait until no run is active in the session. Raises: AgentUnavailable, AgentFailed.

        `agent` queues a message; `chat.send` would add it to the active run, which then answers for
        both. Our own turns never overlap here: this is for runs that OpenClaw started.
        """
        session_key, wait_s = self._request.session.session_key, self._timeouts.lookup_poll_s
        while True:
            history = await read_history(self._connection, session_key, limit=1)
            if not history.has_active_run:
                return
            if not history.active_run:
                await anyio.sleep(_LOOKUP_RETRY_S)
                continue
            params: JsonObject = {"runId": history.active_run, "timeoutMs": int(wait_s * 1000)}
            await self._connection.call("agent.wait", params, timeout_s=2 * wait_s)

    async def _await_end(self, wait_s: float) -> None:
        """Have OpenClaw say when the run has ended. Raises: AgentUnavailable, AgentFailed."""
        params: JsonObject = {"runId": self.run_id, "timeoutMs": int(wait_s * 1000)}
        # Not `agent` again: OpenClaw would answer `in_flight` and never send the second response.
        self._wait_request = await self._connection.post("agent.wait", params, self._subscription)

    async def _look_up(self) -> Sequence[AgentEvent]:
        """Find out what became of the run, and continue from there."""
        try:
            found = await self._find()
            # Inside the `try`: this sends requests, too, which can lose the connection.
            return await self._continue_from(found)
        except AgentUnavailable:  # the connection broke again, or the gateway is too busy
            self._detach(lookup_in_s=_LOOKUP_RETRY_S)
            return ()

    async def _find(self) -> FoundRun:
        """What became of the run; follow the id under which it was found, or is to be sent."""
        session_key = self._request.session.session_key
        if self.run_id != self._sent_id:  # resumed: there is only that one
            return await find_run(self._connection, session_key, (self.run_id,))
        run_ids = self._request.run_ids
        known = run_ids.index(self._sent_id)
        found = await find_run(self._connection, session_key, run_ids[known:])
        if found.status is not RunStatus.RESUMED and found.run_id != self.run_id:
            log.info("openclaw.run_id_changed", run=self.run_id, to=found.run_id)
            self.run_id = self._sent_id = found.run_id
        return found

    async def _continue_from(self, found: FoundRun) -> Sequence[AgentEvent]:
        history = found.history
        if found.status in {RunStatus.ENDED, RunStatus.FAILED}:
            events = await self._translator.catch_up(history, self.run_id)
            if found.status is RunStatus.FAILED:
                return [*events, *self._fail(found.reason)]
            if not history.has_answer(self.run_id):
                # The history does not show it; `agent.wait` shortens long messages.
                reply = found.outcome.terminal_reply
                events += await self._translator.finish(*split_media(reply.text))
            self.apply(RunSignal.SUCCEEDED)
            return [*events, Report({"openclaw": {"runId": self.run_id}})]
        if found.status is RunStatus.LIVE:
            return await self._follow(history, RunSignal.FOUND_LIVE)
        if found.status is RunStatus.RESUMED and self._may_be_restarted:
            return await self._adopt(found.run_id, history)
        # An adopted run has an id of OpenClaw's own. If that one is unknown, its work may be done
        # in part, so the message is not sent: another recovery is awaited.
        is_adopted = self.run_id != self._sent_id
        if found.status is not RunStatus.NOT_ACCEPTED or is_adopted:
            return await self._await_recovery(history)
        # NOT_ACCEPTED, and the run was never adopted: sending the message cannot repeat any work.
        # The run id is the idempotency key, so even a lost race is one run inside OpenClaw.
        self._run_request = self._wait_request = None
        if self._request.params is None:
            self.apply(RunSignal.NOT_FOUND)
        else:
            # A message that is sent to this gateway process can be lost by the next one only.
            self._boot_id = self._current_boot
            await self._send({**self._request.params, "idempotencyKey": self.run_id})
        return ()

    @property
    def _current_boot(self) -> str | None:
        hello = self._connection.hello
        return None if hello is None else hello.server.boot_id or None

    @property
    def _may_be_restarted(self) -> bool:
        """False when the gateway is certainly the process in which the run was started."""
        return self._boot_id is None or self._boot_id != self._current_boot

    async def _follow(self, history: SessionHistory, found: RunSignal) -> Sequence[AgentEvent]:
        """Emit what was missed, then wait for events and for the end of the run."""
        # Read before `apply`, which clears the deadline in RUNNING.
        was_recovering = self._recovery_deadline is not None
        self.apply(found)
        if self._run_request is not None:  # both responses to `agent` still arrive here
            return ()
        # The queued events are dropped: the history contains them already. A dropped text chunk is
        # not lost either, because every chunk event carries the full text so far. While a recovery
        # is awaited they are kept: the first events of the resumed run, which reveal its run id,
        # may be among them.
        if not was_recovering:
            self._subscription.drop_events()
        is_live = found is RunSignal.FOUND_LIVE
        wait_s = self._timeouts.run_poll_s if is_live else self._timeouts.lookup_poll_s
        await self._await_end(wait_s)
        # From here on nothing may raise: the translator counts these events as emitted.
        events = await self._translator.catch_up(history, self.run_id)
        try:
            # OpenClaw does not repeat question and approval events on a new connection.
            return [*events, *await self._pending_input()]
        except AgentUnavailable:
            self._detach(lookup_in_s=_LOOKUP_RETRY_S)
            return events

    async def _adopt(
        self, run_id: str, history: SessionHistory | None = None
    ) -> Sequence[AgentEvent]:
        """OpenClaw resumed the run under another run id: follow that one.

        The history has what the run said before; without it, that was emitted before.
        """
        # Registered first: the background watcher must not report this run's replies as foreign.
        self._connection.runs.adopt(run_id)
        said = [] if history is None else await self._translator.catch_up(history, self.run_id)
        ended = [*said, *await self._translator.end_message()]
        self.run_id = run_id
        self.apply(RunSignal.ADOPTED)
        # A fresh one: the resumed run counts its messages and tool calls from the start.
        self._translator = EventTranslator(self._connection, self._request.session)
        return [*ended, *self._note_restart(), *await self._look_up()]

    async def _await_recovery(self, history: SessionHistory) -> Sequence[AgentEvent]:
        """Wait for a run that was accepted but is not shown as active; fail it after `recovery_s`.

        After a restart OpenClaw resumes the run under another run id. Without a restart the run is
        between two of its steps, and its next event arrives soon.
        """
        other = history.find_recovery(self._sent_id)
        if other not in (None, self.run_id) and self._may_be_restarted:
            return await self._adopt(other, history)
        now, deadline = anyio.current_time(), self._recovery_deadline
        # An unnamed active run may be this one or its recovery: keep waiting.
        if deadline is None or history.has_unnamed_run:
            deadline = now + self._timeouts.recovery_s
        if now >= deadline:
            return self._fail(NOT_RECOVERED)
        self._recovery_deadline = deadline
        return await self._follow(history, RunSignal.FOUND_HIDDEN)

    async def _pending_input(self) -> Sequence[AgentEvent]:
        """The question or approval that the run waits for: its event may have been missed."""
        try:
            for request in await list_pending_questions(self._connection, self.run_id):
                return await self._pause("question", request.id, question_prompt(request))
            for approval in await list_pending_approvals(self._connection):
                if approval.request.run_id == self.run_id:
                    return await self._handle_approval(approval)
        except AgentFailed as error:  # without the scope to see them the run is still followed
            log.info("openclaw.approval_unreadable", run=self.run_id, reason=error.message)
        return ()

    # ---------------------------------------------------------------- events

    async def _handle_event(self, item: EventReceived) -> Sequence[AgentEvent]:
        # The subscription is for the session: other runs, such as a cron job's, may be active.
        run_id = item.origin.run or ""
        if run_id != self.run_id:
            # Another run in this session: our resumed run, if one is awaited.
            is_awaited = self._recovery_deadline is not None and self._may_be_restarted
            return await self._adopt(run_id) if is_awaited and may_be_recovery(run_id) else ()
        self.apply(RunSignal.EVENT)
        if item.event == "agent":
            is_starter = self._run_request is not None
            return await self._translator.translate(item.origin, is_starter=is_starter)
        if item.event == "question.requested":
            request = decode_as(QuestionRequest, item.payload)
            if request is None or not request.questions:
                return ()
            return await self._pause("question", request.id, question_prompt(request))
        if item.event == "exec.approval.requested":
            approval = decode_as(ApprovalRequest, item.payload)
            return () if approval is None else await self._handle_approval(approval)
        decision = decode_as(ApprovalResolved, item.payload)
        is_known = decision is not None and decision.id in self._operator_approvals
        if decision is None or not is_known or decision.resolved_by is None:
            return ()
        how = "allowed" if decision.decision.startswith("allow") else "denied"
        return (Note(f"The command was {how} by the operator."),)

    async def _handle_approval(self, approval: ApprovalRequest) -> Sequence[AgentEvent]:
        # It arrives as an event and again from `_pending_input` after each reconnect.
        if approval.id in self._operator_approvals:
            return ()
        if self._request.may_approve:
            return await self._pause("approval", approval.id, approval_question(approval))
        return (self.await_operator(approval),)

    def await_operator(self, approval: ApprovalRequest) -> Note:
        """The run waits for the operator: the note for the caller, which may not approve."""
        self._operator_approvals.add(approval.id)
        wanted = approval.request
        self._connection.runs.record_approval(approval.id, wanted.cwd or "")
        log.info(
            "approvals.requested",
            approval=approval.id,
            task=self._request.task_id,
            command=wanted.command,
            cwd=wanted.cwd,
        )
        return Note(operator_note(approval))

    async def _pause(
        self, kind: Literal["question", "approval"], request_id: str, prompt: str
    ) -> Sequence[AgentEvent]:
        """The run waits inside OpenClaw; the task waits for its caller."""
        events = await self._translator.end_message()
        # A crash from here to the commit of the pause loses nothing: the next attempt joins the
        # run, finds the request still pending and pauses again.
        open_calls = self._translator.tools.open_calls
        resume = Pause(kind, request_id, self.run_id, open_calls).resume
        # Before `InputRequired` is emitted: from then on a person may answer inside OpenClaw, and
        # the watcher must know the pause to notice.
        self._connection.runs.pauses[self._request.task_id] = resume
        self.apply(RunSignal.PAUSED)
        return [*events, InputRequired(prompt, resume)]

    # ---------------------------------------------------------------- responses and the end

    async def _handle_response(self, item: ResponseReceived) -> Sequence[AgentEvent]:
        if item.request_id == self._wait_request:
            # `agent.wait` ended or timed out; only the history has everything the run said.
            self._wait_request = None
            return await self._look_up()
        if item.request_id != self._run_request:
            return ()  # of an earlier `agent.wait`, which a later lookup replaced
        frame = item.frame
        outcome = decode_as(RunOutcome, frame.payload) if frame.ok else None
        if outcome is None:
            self.apply(RunSignal.FAILED)
            raise _start_error(self._request, frame.error or ErrorPayload())
        # The first of the two responses to `agent`; the second has the result.
        if outcome.status == "accepted":
            return ()
        if outcome.status == "started":  # the only response to `chat.send`
            self._run_request = None
            try:
                await self._await_end(self._timeouts.run_poll_s)
            except AgentUnavailable:
                self._detach(lookup_in_s=_LOOKUP_RETRY_S)
            return ()
        # Started before: the result goes to that request, and that of `chat.send` to no one.
        if outcome.status == "in_flight" or self._request.method == "chat.send":
            self._run_request = None
            return await self._look_up()
        if outcome.status != "ok":
            return self._fail(outcome.failure_reason)
        return await self._finish_with_outcome(outcome)

    async def _finish_with_outcome(self, outcome: RunOutcome) -> Sequence[AgentEvent]:
        payloads = outcome.result.payloads
        usable = [one for one in payloads if not one.is_error]
        report = Report(run_metadata(self.run_id, outcome.result.meta))
        text = "\n\n".join(one.text for one in usable or payloads if one.text)
        # Nothing but error texts: OpenClaw reports some failures this way, with the status `ok`.
        if payloads and not usable:
            return [report, *self._fail(text)]
        references = tuple(reference for one in usable for reference in one.references)
        last = await self._translator.finish(text, references)
        self.apply(RunSignal.SUCCEEDED)
        return [*last, report]

    def _fail(self, reason: str) -> Sequence[AgentEvent]:
        self.apply(RunSignal.FAILED)
        return (Failed(reason or "OpenClaw ended the run and gave no reason."),)

    def _note_restart(self) -> Sequence[AgentEvent]:
        is_new, self._is_restart_noted = not self._is_restart_noted, True
        return (Note(RESTARTED),) if is_new else ()

    # ---------------------------------------------------------------- stopping

    async def stop(self) -> None:
        """Abort the run; on return it has ended. Raises: AgentUnavailable, AgentFailed (unsure)."""
        # An abort can be lost with the connection, or arrive before a queued run has started: it is
        # repeated until the end of the run is confirmed.
        # Events that arrive meanwhile are not emitted: the turn is over for its caller.
        deadline = anyio.current_time() + self._timeouts.stop_s
        while self.is_active:
            try:
                # Closing the socket does not end a run, so there is no way around a connection.
                await self._connection.wait_connected(max(0.0, deadline - anyio.current_time()))
                await self._abort()
            except AgentUnavailable:
                if anyio.current_time() >= deadline:
                    raise
                await anyio.sleep(_STOP_RETRY_S)
            if self.is_active and anyio.current_time() >= deadline:
                raise AgentFailed(
                    "OpenClaw was told to stop the run and did not confirm it; the run may go on"
                    " there. Look at the session in OpenClaw."
                )

    async def _abort(self) -> None:
        """Send one abort, and wait until the run has ended or it is time for another abort."""
        session_key = self._request.session.session_key
        params: JsonObject = {"sessionKey": session_key, "runId": self.run_id}
        await self._connection.call("chat.abort", params, timeout_s=_ABORT_TIMEOUT_S)
        retry_at = anyio.current_time() + self._timeouts.abort_retry_s
        while (left := retry_at - anyio.current_time()) > 0:
            item = await self._subscription.next(left)
            if isinstance(item, ConnectionLost):
                self._handle_connection_lost()
            elif item is not None and self._is_end(item):
                self.apply(RunSignal.STOPPED)
                return
        # A run that was aborted while it was queued leaves no event and no history: NOT_ACCEPTED is
        # then the proof that it will not start.
        found = await self._find()
        # NOT_ACCEPTED is not final while the `agent` request is unanswered: it may be accepted
        # after this lookup. Then its response confirms the end, or the next abort finds the run.
        is_in_transit = self._run_request is not None
        is_over = found.status in {RunStatus.ENDED, RunStatus.FAILED}
        if is_over or (found.status is RunStatus.NOT_ACCEPTED and not is_in_transit):
            self.apply(RunSignal.STOPPED)
        elif self._may_be_restarted:
            # A restarted gateway resumed it under another id: the next abort has to name that one.
            self.run_id = found.run_id or self.run_id

    def _is_end(self, item: SubscriptionItem) -> bool:
        if isinstance(item, ResponseReceived) and item.request_id == self._run_request:
            outcome = decode_as(RunOutcome, item.frame.payload)
            return not item.frame.ok or (outcome is not None and outcome.status != "accepted")
        if isinstance(item, EventReceived) and item.origin.run == self.run_id:
            lifecycle = decode_as(Lifecycle, item.origin.data)
            is_lifecycle = item.event == "agent" and item.origin.stream == "lifecycle"
            return is_lifecycle and lifecycle is not None and lifecycle.execution_settled
        return False


def _start_error(request: RunRequest, payload: ErrorPayload) -> AgentFailed | AgentUnavailable:
    """The error for a message that was not accepted, or whose run failed."""
    if "unknown agent id" in payload.message:
        return AgentUnavailable(
            f"OpenClaw has no agent {request.session.agent_id};"
            " set the agent's option agentId to one that openclaw agents list shows."
        )
    if payload.code == "UNAVAILABLE" and payload.message:
        return AgentFailed(payload.message)
    return request_error("the message", payload)
