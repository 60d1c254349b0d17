"""An agent whose every step the test decides."""

from collections.abc import AsyncIterator, Callable, Iterable

import anyio

from openclaw_a2a.model.reply import AgentEvent
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.ports import Recovery

from .asgi_door import PATIENCE_S

Step = AgentEvent | Exception
Script = Callable[[Turn], Iterable[Step]]


class Performance:
    """One run that the test conducts: it tells events and ends it, or sees it stopped."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self._sending, self._steps = anyio.create_memory_object_stream[Step](0)
        self._stopped = anyio.Event()
        self._may_stop = anyio.Event()
        self._may_stop.set()
        self.is_stopping = anyio.Event()

    async def tell(self, *steps: Step) -> None:
        """Let the agent say these; returns when the engine has taken them."""
        with anyio.fail_after(PATIENCE_S):
            for step in steps:
                await self._sending.send(step)

    async def end(self, *steps: Step) -> None:
        """Let the agent say these and finish; returns when it has."""
        await self.tell(*steps)
        self._sending.close()
        await self.wait_stopped()

    def hold_cleanup(self) -> None:
        """Make the agent need time to stop: until `release_cleanup`."""
        self._may_stop = anyio.Event()

    def release_cleanup(self) -> None:
        """Let the agent finish stopping."""
        self._may_stop.set()

    @property
    def has_stopped(self) -> bool:
        """True when nothing of the run is left."""
        return self._stopped.is_set()

    async def wait_stopped(self) -> None:
        """Wait until the run is over."""
        with anyio.fail_after(PATIENCE_S):
            await self._stopped.wait()

    async def play(self) -> AsyncIterator[AgentEvent]:
        """The events as the test tells them."""
        try:
            async for step in self._steps:
                if isinstance(step, Exception):
                    raise step
                yield step
        finally:
            self.is_stopping.set()
            with anyio.CancelScope(shield=True):
                await self._may_stop.wait()
            self._steps.close()
            self._sending.close()
            self._stopped.set()


class ScriptedAgent:
    """Plays a script for every turn, or (without one) whatever the test conducts."""

    def __init__(self, *steps: Step, script: Script | None = None) -> None:
        self._script = script or ((lambda _: steps) if steps else None)
        self._sending, self._performances = anyio.create_memory_object_stream[Performance](1000)
        self.recovery = Recovery.FAIL
        self.turns: list[Turn] = []

    async def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        """Answer the turn as scripted or conducted."""
        self.turns.append(turn)
        if self._script is not None:
            for step in self._script(turn):
                if isinstance(step, Exception):
                    raise step
                yield step
            return
        performance = Performance(turn)
        self._sending.send_nowait(performance)
        events = performance.play()
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()

    async def next_run(self) -> Performance:
        """The next run that the engine began."""
        with anyio.fail_after(PATIENCE_S):
            return await self._performances.receive()

    @property
    def has_waiting_run(self) -> bool:
        """True when a run began that the test has not picked up."""
        return self._performances.statistics().current_buffer_used > 0

    async def close(self) -> None:
        """Let go of the streams."""
        self._sending.close()
        self._performances.close()
