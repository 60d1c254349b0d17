"""A peer's turn at OpenClaw: a new run, one found again, or one that waits for an answer."""

from collections.abc import Awaitable, Sequence
from typing import Final, TypeVar

import anyio
import msgspec

from openclaw_a2a.agents.openclaw_gateway.approvals import (
    ApprovalRequest,
    approval_prompt,
    operator_note,
    pending_approvals,
    read_decision,
    resolve_approval,
)
from openclaw_a2a.agents.openclaw_gateway.connection import GatewayConnection
from openclaw_a2a.agents.openclaw_gateway.questions import (
    pending_questions,
    question_prompt,
    resolve_question,
)
from openclaw_a2a.agents.openclaw_gateway.run_follower import RunFollower
from openclaw_a2a.agents.openclaw_gateway.run_lookup import RunStatus, find_run
from openclaw_a2a.agents.openclaw_gateway.run_registry import Pause
from openclaw_a2a.agents.openclaw_gateway.run_request import RUN_UNKNOWN, RunRequest, Timeouts
from openclaw_a2a.agents.openclaw_gateway.subscription import EventSubscription
from openclaw_a2a.model.agent_event import AgentEvent, Failed, InputRequired, Note
from openclaw_a2a.model.errors import (
    AgentFailed,
    AgentUnavailable,
    ApprovalNotFound,
    ApprovalOver,
)
from openclaw_a2a.model.ids import Json
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.model.turn import Turn

_Result = TypeVar("_Result")

_NOT_USED: Final = {
    "question": "The agent's question was over before this answer came; it was not used for it.",
    "approval": "The approval was decided before this answer came; it was not used for it.",
}
_BREATH_S: Final = 0.2
_NOT_ALLOWED: Final = "This caller may not decide about commands; the operator does."


class GatewayTurn:
    """One turn, which may have to do with two runs: the one that waited, and a new one."""

    def __init__(
        self,
        link: GatewayConnection,
        listening: EventSubscription,
        turn: Turn,
        *,
        errand: RunRequest,
        patience: Timeouts,
    ) -> None:
        self._link = link
        self._listening = listening
        self._turn = turn
        self._errand = errand
        self._patience = patience
        self._pause = Pause.from_resume(turn.resume)
        self._following = self._follow(errand)
        self._has_more = False
        """True when the peer's words are still to be sent, once the waiting run is over."""
        self._is_given = False
        """True when the peer's answer may have reached who waits for it."""

    @property
    def run_id(self) -> str:
        """The run that the turn begins with."""
        return self._errand.run_id if self._pause is None else self._pause.run_id

    @property
    def is_over(self) -> bool:
        """True when there is nothing more to tell."""
        return self._following.is_over and not self._has_more

    async def begin(self) -> Sequence[AgentEvent]:
        """Send the turn, find it again, or answer what its task waits for."""
        if self._pause is not None:
            return await self._resume(self._pause)
        if self._turn.attempt > 1:
            return await self._following.join()
        return await self._following.begin()

    async def next(self) -> Sequence[AgentEvent]:
        """What there is to tell next; maybe nothing yet."""
        if self._following.is_over:
            self._has_more = False
            self._following = self._follow(self._errand)
            return await self._following.begin()
        events = await self._following.next()
        return [*events, Failed(RUN_UNKNOWN)] if self._following.is_gone else events

    def _follow(self, errand: RunRequest) -> RunFollower:
        return RunFollower(self._link, self._listening, errand, self._patience)

    async def stop(self) -> None:
        """End what OpenClaw still does for this turn."""
        await self._following.stop()

    # ---------------------------------------------------------------- after a pause

    async def _resume(self, pause: Pause) -> Sequence[AgentEvent]:
        self._link.runs.remove_pause(self._turn.task_id)
        waiting = msgspec.structs.replace(
            self._errand,
            run_id=pause.run_id,
            params=None,
            open_calls=_open_calls(self._turn.resume),
        )
        self._following = self._follow(waiting)
        self._following.is_at_work = True
        told = await self._answer(pause)
        is_used = self._is_given or told is not None
        if told and isinstance(told[-1], InputRequired):
            self._following.is_over, self._following.is_at_work = True, False
            return told
        if told is None:
            told = () if is_used else self._not_used(pause)
        events = [*told, *await self._following.join()]
        if self._following.is_over and not is_used:
            return [*events, *await self._go_on_with_words()]
        return [*events, Failed(RUN_UNKNOWN)] if self._following.is_gone else events

    async def _answer(self, pause: Pause) -> Sequence[AgentEvent] | None:
        """Answer what waits, however often the connection breaks; None when nothing waits.

        Raises: AgentUnavailable (it does not come back).
        """
        is_question = pause.kind == "question"
        answer = self._answer_question if is_question else self._answer_approval
        give_up_at = anyio.current_time() + self._patience.reconnect_s
        while True:
            try:
                return await answer(pause)
            except AgentUnavailable:
                if anyio.current_time() >= give_up_at:
                    self._following.is_at_work = False  # nobody is there who could be told to stop
                    raise
            await anyio.sleep(_BREATH_S)

    def _not_used(self, pause: Pause) -> Sequence[AgentEvent]:
        is_news = self._turn.attempt == 1 and not self._is_from_engine
        return (Note(_NOT_USED[pause.kind]),) if is_news else ()

    @property
    def _is_from_engine(self) -> bool:
        """True when nobody said anything: the engine only tells that the pause is over."""
        return self._turn.message_id.startswith("pause-over-")

    async def _go_on_with_words(self) -> Sequence[AgentEvent]:
        """The run is over and the peer's words were not used for it: they are a turn of their own.

        After a restart of ours they are one only when they had become one before.
        """
        if self._is_from_engine:
            return (Failed(RUN_UNKNOWN),) if self._following.is_gone else ()
        if self._turn.attempt == 1:
            self._has_more = True
            return ()
        errand = self._errand
        found = await find_run(self._link, errand.session.session_key, errand.run_id)
        if found.status is RunStatus.UNKNOWN:
            return (Failed(RUN_UNKNOWN),) if self._following.is_gone else ()
        self._following = self._follow(errand)
        return await self._following.join()

    async def _answer_question(self, pause: Pause) -> Sequence[AgentEvent] | None:
        """Give the peer's words as the answer; None when nobody waits for one."""
        pending = await pending_questions(self._link, pause.run_id)
        request = next((one for one in pending if one.id == pause.id), None)
        if request is None:
            return None
        if self._is_from_engine:
            return self._ask_again(question_prompt(request))
        try:
            is_used = await self._resolving(resolve_question(self._link, request, self._turn.body))
        except AgentFailed as error:
            return self._ask_again(f"{error.message}.\n\n{question_prompt(request)}")
        return () if is_used else None

    async def _answer_approval(self, pause: Pause) -> Sequence[AgentEvent] | None:
        """Decide as the peer says, if it may; None when nobody waits for a decision."""
        pending = await pending_approvals(self._link)
        waiting = next((one for one in pending if one.id == pause.id), None)
        if waiting is None:
            return None
        if not self._turn.may_approve:
            return self._leave_to_operator(waiting)
        decision = None if self._is_from_engine else read_decision(self._turn.body)
        if decision is None:
            return self._ask_again(approval_prompt(waiting))
        try:
            await self._resolving(resolve_approval(self._link, pause.id, allow=decision == "allow"))
        except (ApprovalOver, ApprovalNotFound):
            return None
        return ()

    async def _resolving(self, resolved: Awaitable[_Result]) -> _Result:
        """The result; when the connection breaks before it is there, it may have been done."""
        try:
            return await resolved
        except AgentUnavailable:
            self._is_given = True
            raise

    def _leave_to_operator(self, waiting: ApprovalRequest) -> Sequence[AgentEvent]:
        self._following.note(waiting.id)
        return (Note(f"{_NOT_ALLOWED} {operator_note(waiting)}"),)

    def _ask_again(self, prompt: str) -> Sequence[AgentEvent]:
        self._link.runs.add_pause(self._turn.task_id, self._turn.resume)
        return (InputRequired(prompt, self._turn.resume),)


class _Token(JsonStruct, frozen=True):
    open_calls: tuple[str, ...] = ()


def _open_calls(resume: Json) -> tuple[str, ...]:
    """The tool calls during which the run had paused."""
    try:
        return msgspec.convert(resume, _Token).open_calls
    except msgspec.ValidationError:
        return ()
