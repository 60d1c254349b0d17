"""What the engine needs from agents, and what some of them can do beyond that."""

from collections.abc import AsyncIterator, Sequence
from enum import Enum
from typing import Protocol, runtime_checkable

from openclaw_a2a.model.agent_event import AgentEvent, Approval, BackgroundEvent, RecentTask
from openclaw_a2a.model.card import AgentProfile
from openclaw_a2a.model.ids import AgentId, Json, RunId
from openclaw_a2a.model.turn import Binding, Turn


class Recovery(Enum):
    """What may be done with a run of an agent whose gateway died in the middle of it."""

    FAIL = "fail"
    REPEAT = "repeat"
    REATTACH = "reattach"


class Agent(Protocol):
    """Somebody who can answer a turn."""

    @property
    def recovery(self) -> Recovery:
        """What may be done with an interrupted run."""
        ...

    def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        """Answer the turn.

        The engine stops a run by closing the iterator (or cancelling the await inside it); what
        was started must really have ended when that returns. With `Recovery.REATTACH`,
        `turn.attempt > 1` means: find the run named `turn.run_id` and go on from there.
        """
        ...

    async def close(self) -> None:
        """Release what the agent holds; the gateway stops."""
        ...


@runtime_checkable
class SupportsOrphanCleanup(Protocol):
    """An agent whose work may go on when the gateway is gone, such as a program."""

    async def end_orphans(self, run_id: RunId) -> None:
        """End whatever an earlier life of the gateway left running for this run.

        Recovery asks for it before anything else happens to the run. Whoever is cancelled here is
        out of time, and ends what is left at once.
        """
        ...


@runtime_checkable
class SupportsPauseCancel(Protocol):
    """An agent whose work waits somewhere while its task is paused."""

    async def cancel_pause(self, binding: Binding, resume: Json) -> None:
        """The paused task is cancelled: end what waits, and return when it has ended.

        `resume` is the token of the pause. Raises: TaskNotCancelable (it does not end).
        """
        ...


@runtime_checkable
class SupportsDetach(Protocol):
    """An agent whose runs can go on while the gateway is away."""

    def detach(self) -> None:
        """The gateway stops: runs broken off from now on are left to go on, to be found again."""
        ...


@runtime_checkable
class SupportsBackgroundEvents(Protocol):
    """An agent whose sessions may say something when no run of ours is under way."""

    def background_events(self, recent: Sequence[RecentTask]) -> AsyncIterator[BackgroundEvent]:
        """What happens outside runs, for as long as the gateway lives.

        `recent` are the tasks to look after from before, newest first: what they missed comes
        first. The same event may come again; whoever takes it tells repetitions by their ids.
        """
        ...


@runtime_checkable
class SupportsApprovals(Protocol):
    """An agent that wants a person's word before it runs certain commands."""

    async def approvals(self) -> tuple[Approval, ...]:
        """What waits for a decision. Raises: AgentUnavailable."""
        ...

    async def decide(self, approval_id: str, *, allow: bool) -> None:
        """Decide once. Raises: ApprovalNotFound, ApprovalOver, AgentUnavailable."""
        ...


@runtime_checkable
class SupportsAvailability(Protocol):
    """An agent that can be unable to answer for a while."""

    def unavailable_reason(self) -> str | None:
        """Why it cannot answer now, in one sentence with what to do; None when it can."""
        ...


@runtime_checkable
class SupportsProfile(Protocol):
    """An agent that knows its own name, description and skills."""

    def profile(self) -> AgentProfile | None:
        """What it says of itself, as far as that is known now."""
        ...


class AgentLookup(Protocol):
    """The agents of this gateway by id."""

    def find(self, agent_id: AgentId) -> Agent:
        """The agent. Raises: AgentUnavailable."""
        ...
