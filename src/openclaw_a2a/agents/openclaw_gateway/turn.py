"""One turn of a peer: starts a run, rejoins one after a restart, or answers a paused one."""

from collections.abc import Awaitable, Sequence
from typing import Final, TypeVar

import anyio
import msgspec

from openclaw_a2a.agents.openclaw_gateway.connection import EventSubscription, GatewayConnection
from openclaw_a2a.agents.openclaw_gateway.history import RunStatus, find_run
from openclaw_a2a.agents.openclaw_gateway.pending_input import (
    approval_question,
    list_pending_approvals,
    list_pending_questions,
    parse_decision,
    question_prompt,
    resolve_approval,
    resolve_question,
)
from openclaw_a2a.agents.openclaw_gateway.run_follower import (
    RUN_UNKNOWN,
    RunFollower,
    RunSignal,
    RunState,
)
from openclaw_a2a.agents.openclaw_gateway.runs import Pause, RunRequest, Timeouts
from openclaw_a2a.model.agent_event import AgentEvent, Failed, InputRequired, Note
from openclaw_a2a.model.errors import AgentFailed, AgentUnavailable, ApprovalNotFound, ApprovalOver
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.turn import Turn

_T = TypeVar("_T")

_RETRY_S: Final = 0.2
_ANSWER_UNUSED: Final = {
    "question": "The agent's question was over before this answer came; it was not used for it.",
    "approval": "The approval was decided before this answer came; it was not used for it.",
}
_NOT_ALLOWED: Final = "This caller may not decide about commands; the operator does."


class GatewayTurn:
    """A turn, which follows up to two runs: the paused one, then one for an unused message."""

    def __init__(
        self,
        connection: GatewayConnection,
        subscription: EventSubscription,
        turn: Turn,
        *,
        request: RunRequest,
        timeouts: Timeouts,
    ) -> None:
        self._connection = connection
        self._subscription = subscription
        self._turn = turn
        self._request = request
        self._timeouts = timeouts
        self._pause = Pause.from_resume(turn.resume)
        self.follower = self._follow(request)
        """Follows the current run; `follower.stop()` ends what OpenClaw still does for the turn."""
        self._has_unsent_message = False
        """True when the message starts a run of its own once the paused run is over."""
        self._may_be_answered = False
        """True when the answer may have been executed although its response was lost."""

    @property
    def task_id(self) -> TaskId:
        """The task of the turn."""
        return self._turn.task_id

    @property
    def is_over(self) -> bool:
        """True when there is nothing more to emit."""
        return self.follower.is_over and not self._has_unsent_message

    async def begin(self) -> Sequence[AgentEvent]:
        """Send the message, rejoin its run, or answer the paused run."""
        if self._pause is not None:
            return await self._resume(self._pause)
        # The attempt before may have sent the message: `join` looks before it sends.
        if self._turn.attempt > 1:
            return await self.follower.join()
        return await self.follower.begin()

    async def next(self) -> Sequence[AgentEvent]:
        """The next events; possibly none."""
        if self.follower.is_over:
            # Only now, after the paused run: one run at a time in a session.
            self._has_unsent_message = False
            self.follower = self._follow(self._request)
            return await self.follower.begin()
        events = await self.follower.next()
        return [*events, *self._failure_if_unknown()]

    def _follow(self, request: RunRequest) -> RunFollower:
        return RunFollower(self._connection, self._subscription, request, self._timeouts)

    def _failure_if_unknown(self) -> Sequence[AgentEvent]:
        return (Failed(RUN_UNKNOWN),) if self.follower.state is RunState.UNKNOWN else ()

    # ---------------------------------------------------------------- after a pause

    async def _resume(self, pause: Pause) -> Sequence[AgentEvent]:
        # Before the answer is sent: otherwise the background watcher could report the pause as
        # resolved elsewhere, and the engine would start a second run for it.
        self._connection.runs.pauses.pop(self._turn.task_id, None)
        paused = msgspec.structs.replace(
            self._request, run_id=pause.run_id, params=None, open_calls=tuple(pause.open_calls)
        )
        self.follower = self._follow(paused)
        self.follower.attach()
        events = await self._answer_with_retry(pause)
        # An answer whose response was lost counts as used: sending it again as a message could
        # make the agent act on it twice.
        is_used = self._may_be_answered or events is not None
        if events and isinstance(events[-1], InputRequired):
            self.follower.apply(RunSignal.PAUSED)
            return events
        # A second attempt repeats a turn that emitted the note already.
        is_noted = is_used or self._turn.attempt > 1 or self._is_from_engine
        if events is None:
            events = () if is_noted else (Note(_ANSWER_UNUSED[pause.kind]),)
        events = [*events, *await self.follower.join()]
        # The paused run may use the answer, end without it, or be unknown after a restart.
        if self.follower.is_over and not is_used:
            return [*events, *await self._continue_with_message()]
        return [*events, *self._failure_if_unknown()]

    async def _answer_with_retry(self, pause: Pause) -> Sequence[AgentEvent] | None:
        """Answer the pending request; None when it is over. Raises: AgentUnavailable."""
        is_question = pause.kind == "question"
        answer = self._answer_question if is_question else self._answer_approval
        # The connection loop reconnects by itself; this only repeats the request until it is back.
        deadline = anyio.current_time() + self._timeouts.reconnect_s
        while True:
            try:
                return await answer(pause)
            except AgentUnavailable:
                if anyio.current_time() >= deadline:
                    # Out of reach, so it cannot be stopped either.
                    self.follower.apply(RunSignal.GAVE_UP)
                    raise
            await anyio.sleep(_RETRY_S)

    @property
    def _is_from_engine(self) -> bool:
        """True when the engine reports that the pause is over; there is no message of a peer."""
        return self._turn.message_id.startswith("pause-over-")

    async def _continue_with_message(self) -> Sequence[AgentEvent]:
        """The paused run is over and did not use the message: the message gets its own run.

        After a restart of ours it is rejoined only if it had been started before.
        """
        if self._is_from_engine:
            return self._failure_if_unknown()
        if self._turn.attempt == 1:
            self._has_unsent_message = True
            return ()
        request = self._request
        # The first attempt may have died before or after it sent the message: look there.
        found = await find_run(self._connection, request.session.session_key, request.run_ids)
        if found.status is RunStatus.NOT_ACCEPTED:
            return self._failure_if_unknown()
        self.follower = self._follow(request)
        return await self.follower.join()

    async def _answer_question(self, pause: Pause) -> Sequence[AgentEvent] | None:
        pending = await list_pending_questions(self._connection, pause.run_id)
        request = next((one for one in pending if one.id == pause.id), None)
        if request is None:
            return None
        if self._is_from_engine:
            return self._ask_again(question_prompt(request))
        answering = resolve_question(self._connection, request, self._turn.body)
        try:
            is_used = await self._record_attempt(answering)
        except AgentFailed as error:
            return self._ask_again(f"{error.message}.\n\n{question_prompt(request)}")
        return () if is_used else None

    async def _answer_approval(self, pause: Pause) -> Sequence[AgentEvent] | None:
        pending = await list_pending_approvals(self._connection)
        approval = next((one for one in pending if one.id == pause.id), None)
        if approval is None:
            return None
        if not self._turn.may_approve:
            return (Note(f"{_NOT_ALLOWED} {self.follower.await_operator(approval).text}"),)
        decision = None if self._is_from_engine else parse_decision(self._turn.body)
        if decision is None:
            return self._ask_again(approval_question(approval))
        deciding = resolve_approval(self._connection, pause.id, allow=decision == "allow")
        try:
            await self._record_attempt(deciding)
        except (ApprovalOver, ApprovalNotFound):
            return None
        return ()

    async def _record_attempt(self, answering: Awaitable[_T]) -> _T:
        """The result; without a response the answer may have been executed nevertheless."""
        try:
            return await answering
        except AgentUnavailable:
            self._may_be_answered = True
            raise

    def _ask_again(self, prompt: str) -> Sequence[AgentEvent]:
        # Watched again, because `_resume` removed it.
        self._connection.runs.pauses[self._turn.task_id] = self._turn.resume
        return (InputRequired(prompt, self._turn.resume),)
