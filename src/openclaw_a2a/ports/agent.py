"""What the engine needs from agents, and the optional capabilities that some of them have."""

from collections.abc import AsyncIterator, Mapping, Sequence
from enum import Enum
from typing import Protocol, runtime_checkable

from openclaw_a2a.model.agent_event import AgentEvent, Approval, BackgroundEvent, RecentTask
from openclaw_a2a.model.card import AgentProfile
from openclaw_a2a.model.ids import AgentId, Json, RunId
from openclaw_a2a.model.turn import Binding, Turn


class Recovery(Enum):
    """What may be done with a run that a crash of the gateway interrupted."""

    FAIL = "fail"
    REPEAT = "repeat"
    REATTACH = "reattach"


class Agent(Protocol):
    """Answers turns.

    An agent with `is_coordinator = True` only waits for other agents: its runs do not count against
    `limits.runs`, which those other agents need.
    """

    @property
    def recovery(self) -> Recovery:
        """What may be done with an interrupted run."""
        ...

    def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        """Answer the turn.

        The engine stops a run by closing the iterator (or cancelling the await inside it); when
        that returns, whatever the run started must have ended. With `Recovery.REATTACH`,
        `turn.attempt > 1` means: find the run named `turn.run_id` and continue it.
        """
        ...

    async def close(self) -> None:
        """Release what the agent holds; the gateway stops."""
        ...


@runtime_checkable
class SupportsOrphanCleanup(Protocol):
    """An agent whose work can outlive a killed gateway, such as a program."""

    async def end_orphans(self, run_id: RunId) -> None:
        """End what a killed gateway left running for this run.

        Called before recovery does anything else with the run. A cancellation means that the time
        is over: end what is left at once.
        """
        ...


@runtime_checkable
class SupportsPauseCancel(Protocol):
    """An agent whose work waits somewhere while its task is paused."""

    async def cancel_pause(self, binding: Binding, resume: Json) -> None:
        """End what waits for the answer to a pause that is cancelled; return when it has ended.

        `resume` is the token of the pause. Raises: TaskNotCancelable (it does not end).
        """
        ...


@runtime_checkable
class SupportsDetach(Protocol):
    """An agent whose runs can continue while the gateway is stopped."""

    def detach(self) -> None:
        """Called when the gateway stops: leave runs that are interrupted from now on running."""
        ...


@runtime_checkable
class SupportsRunDetach(Protocol):
    """An agent whose runs can continue at another replica of the gateway."""

    def detach_run(self, run_id: RunId) -> bool:
        """Leave the run running when it is interrupted; False when it is not followed here.

        It is, or may be, another replica's, which finds it by its id.
        """
        ...

    async def end_detached_run(self, turn: Turn) -> None:
        """End a run that was left running: no other replica has it. Raises: AgentError."""
        ...


@runtime_checkable
class SupportsBackgroundEvents(Protocol):
    """An agent whose sessions can produce messages outside the runs of the engine."""

    def background_events(self, recent: Sequence[RecentTask]) -> AsyncIterator[BackgroundEvent]:
        """Events outside runs, until closed.

        `recent` are the stored tasks, newest first; events that they missed come first. An event
        may be repeated: the engine recognises it by its id.
        """
        ...


@runtime_checkable
class SupportsApprovals(Protocol):
    """An agent that needs the decision of a person before it runs certain commands."""

    async def approvals(self) -> tuple[Approval, ...]:
        """The commands that wait for a decision. Raises: AgentUnavailable."""
        ...

    async def decide(self, approval_id: str, *, allow: bool) -> None:
        """Decide one. Raises: ApprovalNotFound, ApprovalOver, AgentUnavailable."""
        ...


@runtime_checkable
class SupportsAvailability(Protocol):
    """An agent that can be temporarily unable to answer."""

    def unavailable_reason(self) -> str | None:
        """Why it cannot answer now, in one sentence with what to do; None when it can."""
        ...


@runtime_checkable
class SupportsProfile(Protocol):
    """An agent that knows its own name, description and skills."""

    def profile(self) -> AgentProfile | None:
        """Its own description, as far as it is known now."""
        ...


AgentLookup = Mapping[AgentId, Agent]
"""The agents of this gateway by id. An unknown id raises AgentUnavailable; `get` gives None."""
