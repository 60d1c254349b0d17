"""One turn with OpenClaw, from its sending to its end, however often the connection breaks.

Everything about it arrives in one queue: the events of its session, the two answers to `agent`
(or the one to `agent.wait`, once the run is only followed), and news of the connection.
"""

from collections.abc import Sequence
from typing import Final

import anyio

from openclaw_a2a.agents.openclaw_gateway.approvals import (
    ApprovalRequest,
    ApprovalResolved,
    approval_prompt,
    operator_note,
    pending_approvals,
)
from openclaw_a2a.agents.openclaw_gateway.connection import GatewayConnection
from openclaw_a2a.agents.openclaw_gateway.event_translator import EventTranslator
from openclaw_a2a.agents.openclaw_gateway.media import split_media
from openclaw_a2a.agents.openclaw_gateway.protocol import (
    ErrorPayload,
    Frame,
    Lifecycle,
    RunOutcome,
    decode_as,
    request_error,
    run_metadata,
)
from openclaw_a2a.agents.openclaw_gateway.questions import (
    QuestionRequest,
    pending_questions,
    question_prompt,
)
from openclaw_a2a.agents.openclaw_gateway.run_lookup import (
    FoundRun,
    RunHistory,
    RunStatus,
    failure_of,
    find_run,
)
from openclaw_a2a.agents.openclaw_gateway.run_registry import Pause, may_be_recovery
from openclaw_a2a.agents.openclaw_gateway.run_request import (
    CONNECTION_LOST,
    NOT_RECOVERED,
    NOT_STOPPED,
    RESTARTED,
    RUN_UNKNOWN,
    RunRequest,
    Timeouts,
)
from openclaw_a2a.agents.openclaw_gateway.subscription import (
    ConnectionLost,
    EventReceived,
    EventSubscription,
    Reconnected,
    ResponseReceived,
    SubscriptionItem,
)
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.agent_event import (
    AgentEvent,
    Failed,
    InputRequired,
    Note,
    Report,
)
from openclaw_a2a.model.errors import AgentFailed, AgentUnavailable
from openclaw_a2a.model.ids import JsonObject

log = get_logger(__name__)

_ABORT_S, _BREATH_S, _LOOK_AGAIN_S = 10.0, 0.2, 2.0
_AT_WORK: Final = frozenset({RunStatus.LIVE, RunStatus.ELSEWHERE, RunStatus.INTERRUPTED})


class RunFollower:
    """A turn under way: `next` until `is_over`."""

    def __init__(
        self,
        link: GatewayConnection,
        listening: EventSubscription,
        errand: RunRequest,
        patience: Timeouts | None = None,
    ) -> None:
        self._patience = patience or Timeouts()
        self._link = link
        self._listening = listening
        self._errand = errand
        self.run_id = errand.run_id
        self.is_over = False
        """True when there is nothing more to tell: it ended, failed or waits for its caller."""
        self.is_at_work = False
        """True while OpenClaw may be working on it."""
        self.is_gone = False
        """True when OpenClaw does not know the run (any more)."""
        self._sent: str | None = None
        self._waited_for: str | None = None
        self._telling = EventTranslator(link, errand.session, open_calls=errand.open_calls)
        self._noted: set[str] = set()
        self._boot_id: str | None = None
        """The process of the gateway that the run was begun in, when that is known."""
        self._gives_up_at: float | None = None
        self._looks_at: float | None = None
        self._recovers_until: float | None = None

    # ---------------------------------------------------------------- what drives it

    async def begin(self) -> Sequence[AgentEvent]:
        """Send the message. Raises: AgentFailed (it cannot be sent)."""
        self.is_at_work = True
        self._boot_id = self._current_boot
        await self._send(self._errand.params or {})
        return ()

    async def join(self) -> Sequence[AgentEvent]:
        """Find the run that was begun before, and go on with it; begin it when it never was."""
        self.is_at_work = True
        return await self._look()

    def note(self, approval_id: str) -> None:
        """The caller has been told of this approval already."""
        self._noted.add(approval_id)

    async def next(self) -> Sequence[AgentEvent]:
        """What there is to tell next; maybe nothing yet.

        Raises: AgentUnavailable (the connection does not come back), AgentFailed.
        """
        heard = await self._listening.next(self._next_within_s())
        if heard is None:
            return await self._after_silence()
        return await self._take(heard)

    async def _take(self, heard: SubscriptionItem) -> Sequence[AgentEvent]:
        if isinstance(heard, EventReceived):
            return await self._take_event(heard)
        if isinstance(heard, ResponseReceived):
            return await self._take_answer(heard)
        if isinstance(heard, ConnectionLost):
            return self._take_loss()
        self._sent = None  # what was missed is in the history, for whoever only follows
        is_restarted = isinstance(heard, Reconnected) and heard.is_restarted
        return [*(self._note_once(RESTARTED) if is_restarted else ()), *await self._look()]

    # ---------------------------------------------------------------- patience

    def _next_within_s(self) -> float:
        now, quiet_s = anyio.current_time(), self._patience.silence_s
        known = [self._gives_up_at]
        if self._link.hello is not None:  # else there is nothing to do but to wait
            known += [self._looks_at, self._recovers_until]
        return max(0.0, min([quiet_s, *(at - now for at in known if at is not None)]))

    async def _after_silence(self) -> Sequence[AgentEvent]:
        now = anyio.current_time()
        if self._gives_up_at is not None and now >= self._gives_up_at:
            self.is_at_work = False  # nobody is there who could be told to stop
            raise AgentUnavailable(self._link.unavailable_reason() or RUN_UNKNOWN)
        if self._link.hello is None:
            return ()
        return await self._look()

    def _take_loss(self) -> Sequence[AgentEvent]:
        self._sent = self._waited_for = None
        self._looks_at = None
        if self._gives_up_at is not None:
            return ()
        self._gives_up_at = anyio.current_time() + self._patience.reconnect_s
        return (Note(CONNECTION_LOST),)

    # ---------------------------------------------------------------- sending and finding

    async def _send(self, params: JsonObject) -> None:
        try:
            self._sent = await self._link.post("agent", params, self._listening)
        except AgentFailed:
            self.is_at_work = False
            raise
        except AgentUnavailable:  # it broke just now: what became of it is seen when it is back
            self._gives_up_at = (
                self._gives_up_at or anyio.current_time() + self._patience.reconnect_s
            )
            self._looks_at = anyio.current_time() + _LOOK_AGAIN_S

    async def _wait_for_end(self, wait_s: float) -> None:
        params: JsonObject = {"runId": self.run_id, "timeoutMs": int(wait_s * 1000)}
        self._waited_for = await self._link.post("agent.wait", params, self._listening)

    async def _look(self) -> Sequence[AgentEvent]:
        """Find out where the run is, and go on from there."""
        try:
            found = await find_run(self._link, self._errand.session.session_key, self.run_id)
            events = await self._go_on(found)
        except AgentUnavailable:  # the connection broke again, or the gateway is too busy
            now = anyio.current_time()
            self._gives_up_at = self._gives_up_at or now + self._patience.reconnect_s
            self._looks_at = now + _LOOK_AGAIN_S
            return ()
        self._gives_up_at = self._looks_at = None
        return events

    @property
    def _current_boot(self) -> str | None:
        hello = self._link.hello
        return None if hello is None else hello.server.boot_id or None

    @property
    def _may_be_restarted(self) -> bool:
        """False when the gateway is certainly the process that the run was begun in."""
        return self._boot_id is None or self._boot_id != self._current_boot

    async def _go_on(self, found: FoundRun) -> Sequence[AgentEvent]:
        if found.status is RunStatus.ENDED:
            return await self._end_by_history(found)
        if found.status is RunStatus.FAILED:
            return [
                *await self._telling.catch_up(found.history, self.run_id),
                *self._fail(found.reason),
            ]
        if found.status is RunStatus.LIVE:
            return await self._follow(found.history, self._patience.run_poll_s)
        if found.status is RunStatus.ELSEWHERE and self._may_be_restarted:
            return await self._adopt(found.run_id)
        if found.status is not RunStatus.UNKNOWN or self.run_id != self._errand.run_id:
            return await self._await_recovery(found.history)
        self._sent = self._waited_for = None
        if self._errand.params is None:
            self.is_over, self.is_at_work, self.is_gone = True, False, True
            return ()
        await self._send(self._errand.params)
        return ()

    async def _follow(self, history: RunHistory, wait_s: float) -> Sequence[AgentEvent]:
        """The run is under way: tell what was missed, and listen on."""
        if self._sent is not None:  # both answers to `agent` will still come here
            return ()
        if self._recovers_until is None:  # else events of the recovery may be among them
            self._listening.drop_events()
        events = await self._telling.catch_up(history, self.run_id)
        await self._wait_for_end(wait_s)
        return [*events, *await self._pending_asks()]

    async def _adopt(self, run_id: str) -> Sequence[AgentEvent]:
        """OpenClaw goes on under another run id."""
        self._link.runs.adopt(run_id)
        said = await self._telling.end_message()
        self.run_id, self._recovers_until = run_id, None
        self._telling = EventTranslator(self._link, self._errand.session)
        return [*said, *self._note_once(RESTARTED), *await self._look()]

    async def _await_recovery(self, history: RunHistory) -> Sequence[AgentEvent]:
        """The run is not to be seen. After a restart OpenClaw goes on with it under another id;
        else it only does not show, as between two of its steps, and is heard of again soon.
        """
        other = history.recovery_of(self._errand.run_id)
        if other not in (None, self.run_id) and self._may_be_restarted:
            return await self._adopt(other)
        now = anyio.current_time()
        if self._recovers_until is None or history.is_vague:  # it, or its recovery, is at work
            self._recovers_until = now + self._patience.recovery_s
        elif now >= self._recovers_until:
            return self._fail(NOT_RECOVERED)
        return await self._follow(history, self._patience.lookup_poll_s)

    async def _pending_asks(self) -> Sequence[AgentEvent]:
        """What the run waits for; events of that are not told again."""
        try:
            for request in await pending_questions(self._link, self.run_id):
                return await self._pause("question", request.id, question_prompt(request))
            for waiting in await pending_approvals(self._link):
                if waiting.request.run_id == self.run_id:
                    return await self._take_approval(waiting)
        except AgentFailed as error:  # whoever may not see them is not asked either
            log.info("openclaw-asks-unread", run=self.run_id, reason=error.message)
        return ()

    # ---------------------------------------------------------------- events

    async def _take_event(self, heard: EventReceived) -> Sequence[AgentEvent]:
        run_id = heard.origin.run
        if run_id != self.run_id:
            return await self._take_foreign(run_id or "")
        self._recovers_until = None  # it lives
        if heard.event == "agent":
            return await self._telling.translate(heard.origin, is_begun_here=self._sent is not None)
        if heard.event == "question.requested":
            request = decode_as(QuestionRequest, heard.payload)
            if request is None or not request.questions:
                return ()
            return await self._pause("question", request.id, question_prompt(request))
        if heard.event == "exec.approval.requested":
            waiting = decode_as(ApprovalRequest, heard.payload)
            return () if waiting is None else await self._take_approval(waiting)
        return self._take_decision(decode_as(ApprovalResolved, heard.payload))

    async def _take_foreign(self, run_id: str) -> Sequence[AgentEvent]:
        """An event of another run in this session: the recovery of ours, when that is awaited."""
        if self._recovers_until is None or not self._may_be_restarted:
            return ()
        if not may_be_recovery(run_id):
            return ()
        return await self._adopt(run_id)

    async def _take_approval(self, waiting: ApprovalRequest) -> Sequence[AgentEvent]:
        if waiting.id in self._noted:
            return ()
        if self._errand.may_approve:
            return await self._pause("approval", waiting.id, approval_prompt(waiting))
        self._noted.add(waiting.id)
        return (Note(operator_note(waiting)),)

    def _take_decision(self, decided: ApprovalResolved | None) -> Sequence[AgentEvent]:
        if decided is None or decided.id not in self._noted or decided.resolved_by is None:
            return ()
        how = "allowed" if decided.decision.startswith("allow") else "denied"
        return (Note(f"The command was {how} by the operator."),)

    async def _pause(self, kind: str, ask_id: str, prompt: str) -> Sequence[AgentEvent]:
        """The run waits inside OpenClaw; the task waits for its caller."""
        events = await self._telling.end_message()
        pause = Pause("question" if kind == "question" else "approval", ask_id, self.run_id)
        resume: JsonObject = {**pause.resume, "openCalls": self._telling.open_calls}
        self._link.runs.add_pause(self._errand.task_id, resume)
        self.is_over, self.is_at_work = True, False
        return [*events, InputRequired(prompt, resume)]

    # ---------------------------------------------------------------- stopping

    async def stop(self) -> None:
        """End the run inside OpenClaw; it has ended when this returns.

        Raises: AgentUnavailable, AgentFailed when that cannot be had.
        """
        give_up_at = anyio.current_time() + self._patience.stop_s
        while self.is_at_work:
            try:
                await self._link.wait_connected(max(0.0, give_up_at - anyio.current_time()))
                await self._tell_to_stop()
            except AgentUnavailable:
                if anyio.current_time() >= give_up_at:
                    raise
                await anyio.sleep(_BREATH_S)
            if self.is_at_work and anyio.current_time() >= give_up_at:
                raise AgentFailed(NOT_STOPPED)

    async def _tell_to_stop(self) -> None:
        """Tell it once, and wait until it has ended, or so long that it should be told again."""
        params: JsonObject = {"sessionKey": self._errand.session.session_key, "runId": self.run_id}
        await self._link.call("chat.abort", params, timeout_s=_ABORT_S)
        stop_at = anyio.current_time() + self._patience.abort_retry_s
        while self.is_at_work and (left := stop_at - anyio.current_time()) > 0:
            heard = await self._listening.next(left)
            if isinstance(heard, ConnectionLost):
                self._sent = None
            elif heard is not None and self._is_end(heard):
                self.is_at_work = False
        if self.is_at_work:
            found = await find_run(self._link, self._errand.session.session_key, self.run_id)
            # A message that was sent over this very connection is answered here when it is over.
            is_on_its_way = found.status is RunStatus.UNKNOWN and self._sent is not None
            self.is_at_work = is_on_its_way or found.status in _AT_WORK
            if self._may_be_restarted:
                self.run_id = found.run_id or self.run_id

    def _is_end(self, heard: SubscriptionItem) -> bool:
        if isinstance(heard, ResponseReceived) and heard.request_id == self._sent:
            outcome = decode_as(RunOutcome, heard.frame.payload)
            return not heard.frame.ok or (outcome is not None and outcome.status != "accepted")
        if isinstance(heard, EventReceived) and heard.origin.run == self.run_id:
            lifecycle = decode_as(Lifecycle, heard.origin.data)
            is_lifecycle = heard.event == "agent" and heard.origin.stream == "lifecycle"
            return is_lifecycle and lifecycle is not None and lifecycle.execution_settled
        return False

    # ---------------------------------------------------------------- answers and the end

    async def _take_answer(self, answered: ResponseReceived) -> Sequence[AgentEvent]:
        frame = answered.frame
        if answered.request_id == self._sent:
            return await self._take_run_answer(frame)
        if answered.request_id != self._waited_for:
            return ()
        self._waited_for = None
        return await self._look()

    async def _take_run_answer(self, frame: Frame) -> Sequence[AgentEvent]:
        outcome = decode_as(RunOutcome, frame.payload) if frame.ok else RunOutcome()
        if not frame.ok or outcome is None:
            self.is_at_work = False
            raise _not_run(self._errand, frame.error)
        if outcome.status == "accepted":
            return ()
        if outcome.status == "in_flight":  # it was begun before, and answers only there
            self._sent = None
            return await self._look()
        if outcome.status != "ok":
            return self._fail(failure_of(outcome))
        return await self._end_by_result(outcome)

    async def _end_by_result(self, outcome: RunOutcome) -> Sequence[AgentEvent]:
        payloads = outcome.result.payloads
        good = [one for one in payloads if not one.is_error]
        facts = Report(run_metadata(self.run_id, outcome.result.meta))
        if payloads and not good:
            return [facts, *self._fail("\n\n".join(one.text for one in payloads if one.text))]
        text = "\n\n".join(one.text for one in good if one.text)
        references = tuple(reference for one in good for reference in one.references)
        said = await self._telling.finish(text, references)
        self.is_over, self.is_at_work = True, False
        return [*said, facts]

    async def _end_by_history(self, found: FoundRun) -> Sequence[AgentEvent]:
        """The run ended while it was only followed: `agent.wait` knows its last message only."""
        events = await self._telling.catch_up(found.history, self.run_id)
        if not found.history.has_answer(self.run_id):  # of a long one it knows the beginning only
            last = split_media(found.outcome.terminal_reply.text)
            events += await self._telling.finish(*last)
        self.is_over, self.is_at_work = True, False
        return [*events, Report({"openclaw": {"runId": self.run_id}})]

    def _fail(self, reason: str) -> Sequence[AgentEvent]:
        self.is_over, self.is_at_work = True, False
        return (Failed(reason or "OpenClaw ended the run and gave no reason."),)

    def _note_once(self, text: str) -> Sequence[AgentEvent]:
        if text in self._noted:
            return ()
        self._noted.add(text)
        return (Note(text),)


def _not_run(errand: RunRequest, refusal: ErrorPayload | None) -> AgentFailed | AgentUnavailable:
    """Why a message was not taken, or its run failed."""
    said = refusal or ErrorPayload()
    if "unknown agent id" in said.message:
        return AgentUnavailable(
            f"OpenClaw has no agent {errand.session.agent_id};"
            " set the agent's option agentId to one that openclaw agents list shows."
        )
    if said.code == "UNAVAILABLE" and said.message:
        return AgentFailed(said.message)
    return request_error("the message", said)
