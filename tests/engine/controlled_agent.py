"""An agent that a test controls: every run waits for the events that the test gives it."""

import asyncio
from collections.abc import AsyncGenerator

from openclaw_a2a.model.agent_event import AgentEvent
from openclaw_a2a.model.errors import AgentUnavailable
from openclaw_a2a.model.ids import AgentId
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.ports import Agent, Recovery

TIMEOUT_S = 240.0
"""How long a test waits before it fails."""

Step = AgentEvent | Exception


class Run:
    """One run of the staged agent, from the turn it was given to its end."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.begun = asyncio.Event()
        self.stopping = asyncio.Event()
        self.stopped = asyncio.Event()
        self.may_stop = asyncio.Event()
        self.may_stop.set()
        self.refuses_to_stop = False
        self.refused_to_stop = asyncio.Event()
        """Set when it went on although it was cancelled."""
        self._steps: asyncio.Queue[Step | None] = asyncio.Queue()

    def tell(self, *steps: Step) -> None:
        """Let the agent say these, or fail."""
        for step in steps:
            self._steps.put_nowait(step)

    def end(self, *steps: Step) -> None:
        """Let the agent say these and finish."""
        self.tell(*steps)
        self._steps.put_nowait(None)

    async def play(self) -> AsyncGenerator[AgentEvent]:
        """What the test tells, in order."""
        self.begun.set()
        try:
            while (step := await self._next()) is not None:
                if isinstance(step, Exception):
                    raise step
                yield step
        finally:
            self.stopping.set()
            await self.may_stop.wait()
            self.stopped.set()

    async def _next(self) -> Step | None:
        while True:
            try:
                return await self._steps.get()
            except asyncio.CancelledError:
                if not self.refuses_to_stop:
                    raise
                self.refused_to_stop.set()


class ControlledAgent:
    """Its runs are picked up by the test, in the order in which they began."""

    def __init__(self, recovery: Recovery = Recovery.FAIL) -> None:
        self.recovery = recovery
        self.turns: list[Turn] = []
        self.refuses_to_stop = False
        """So begin its runs."""
        self._runs: asyncio.Queue[Run] = asyncio.Queue()

    async def run(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
        """Answer the turn as the test conducts it."""
        self.turns.append(turn)
        run = Run(turn)
        run.refuses_to_stop = self.refuses_to_stop
        self._runs.put_nowait(run)
        events = run.play()
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()

    async def next_run(self, body: str | None = None) -> Run:
        """The next run that began (to answer this body)."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                run = await self._runs.get()
                await run.begun.wait()
                if body in (None, run.turn.body):
                    return run

    def forget_runs(self) -> None:
        """Pick up no run that began before now."""
        self._runs = asyncio.Queue()

    @property
    def is_idle(self) -> bool:
        """True when no run began that the test did not pick up."""
        return self._runs.empty()

    async def close(self) -> None:
        """Nothing is held."""


class ScriptedAgent:
    """Says the same in every run."""

    def __init__(self, *steps: Step, recovery: Recovery = Recovery.FAIL) -> None:
        self.recovery = recovery
        self.steps = steps
        self.turns: list[Turn] = []

    async def run(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
        """Play the script."""
        self.turns.append(turn)
        for step in self.steps:
            if isinstance(step, Exception):
                raise step
            yield step

    async def close(self) -> None:
        """Nothing is held."""


class AgentTable(dict[AgentId, Agent]):
    """The agents of a test by id."""

    def __init__(self, **agents: Agent) -> None:
        super().__init__({AgentId(name): agent for name, agent in agents.items()})

    def __missing__(self, agent_id: AgentId) -> Agent:
        raise AgentUnavailable(f"there is no agent {agent_id}")
