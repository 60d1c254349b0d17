"""An agent whose every step the test decides."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable

import anyio
from tests.conformance.asgi_client import TIMEOUT_S

from openclaw_a2a.model.agent_event import AgentEvent
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.ports import Recovery

Step = AgentEvent | Exception
Script = Callable[[Turn], Iterable[Step]]


class ScriptedRun:
    """One run that the test conducts: it tells events and ends it, or sees it stopped."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self._steps: asyncio.Queue[tuple[Step | None, asyncio.Event]] = asyncio.Queue()
        self._stopped = asyncio.Event()
        self._may_stop = asyncio.Event()
        self._may_stop.set()
        self.is_stopping = asyncio.Event()
        self._last_words: list[Step | None] = []
        self._is_completing = False

    async def emit(self, *steps: Step) -> None:
        """Let the agent say these; returns when the engine has taken them."""
        for step in steps:
            taken = asyncio.Event()
            self._steps.put_nowait((step, taken))
            with anyio.fail_after(TIMEOUT_S):
                await taken.wait()

    async def finish(self, *steps: Step) -> None:
        """Let the agent say these and finish; returns when it has."""
        await self.emit(*steps)
        self._steps.put_nowait((None, asyncio.Event()))
        await self.wait_stopped()

    def hold_cleanup(self) -> None:
        """Make the agent need time to stop: until `release_cleanup`."""
        self._may_stop.clear()

    def release_cleanup(self) -> None:
        """Let the agent finish stopping."""
        self._may_stop.set()

    def complete_when_stopped(self, *steps: Step) -> None:
        """Let the agent finish its work with these words when it is told to stop."""
        self._last_words = [*steps, None]

    @property
    def has_stopped(self) -> bool:
        """True when nothing of the run is left."""
        return self._stopped.is_set()

    async def wait_stopping(self) -> None:
        """Wait until the run is ending, whether by itself or because it was stopped."""
        with anyio.fail_after(TIMEOUT_S):
            await self.is_stopping.wait()

    async def wait_stopped(self) -> None:
        """Wait until the run is over."""
        with anyio.fail_after(TIMEOUT_S):
            await self._stopped.wait()

    async def play(self) -> AsyncGenerator[AgentEvent]:
        """The events as the test tells them."""
        try:
            while (step := await self._next()) is not None:
                if isinstance(step, Exception):
                    raise step
                yield step
        finally:
            self.is_stopping.set()
            await self._clean_up()

    async def _next(self) -> Step | None:
        if self._is_completing:
            return self._last_words.pop(0)
        try:
            step, taken = await self._steps.get()
        except asyncio.CancelledError:
            if not self._last_words:
                raise
            self._is_completing = True
            return self._last_words.pop(0)
        taken.set()
        return step

    async def _clean_up(self) -> None:
        """Take the time the test wants, also when somebody is impatient."""
        impatience: asyncio.CancelledError | None = None
        while not self._may_stop.is_set():
            try:
                await self._may_stop.wait()
            except asyncio.CancelledError as cancelled:
                impatience = cancelled
        self._stopped.set()
        if impatience is not None:
            raise impatience


class ScriptedAgent:
    """Plays a script for every turn, or (without one) whatever the test conducts."""

    def __init__(self, *steps: Step, script: Script | None = None) -> None:
        self._script: Script | None = script
        if steps:
            self._script = lambda _turn: steps
        self._performances: asyncio.Queue[ScriptedRun] = asyncio.Queue()
        self.recovery = Recovery.FAIL
        self.turns: list[Turn] = []

    async def run(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
        """Answer the turn as scripted or conducted."""
        self.turns.append(turn)
        if self._script is not None:
            for step in self._script(turn):
                if isinstance(step, Exception):
                    raise step
                yield step
            return
        performance = ScriptedRun(turn)
        self._performances.put_nowait(performance)
        events = performance.play()
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()

    async def next_run(self) -> ScriptedRun:
        """The next run that the engine began."""
        with anyio.fail_after(TIMEOUT_S):
            return await self._performances.get()

    @property
    def has_waiting_run(self) -> bool:
        """True when a run began that the test has not picked up."""
        return not self._performances.empty()

    async def close(self) -> None:
        """Nothing is held."""
