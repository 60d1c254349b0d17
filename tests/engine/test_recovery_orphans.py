"""Recovery first has agents end what an earlier life of the gateway left running."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest
from tests.engine.conftest import OpenHarness
from tests.engine.controlled_agent import ControlledAgent

from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import RunId
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.ports import Recovery


class CleanupAgent(ControlledAgent):
    """Notes for which runs it was to end leftovers, and how many turns it had then."""

    def __init__(
        self,
        recovery: Recovery,
        ends: Callable[[], Coroutine[None, None, None]] | None = None,
    ) -> None:
        super().__init__(recovery)
        self.ended: list[tuple[RunId, int]] = []
        self._ends = ends

    async def end_orphans(self, run_id: RunId) -> None:
        self.ended.append((run_id, len(self.turns)))
        if self._ends is not None:
            await self._ends()


async def fails() -> None:
    raise AgentFailed("process 7 is still there")


async def hangs() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("recovery", list(Recovery))
async def test_orphans_are_ended_before_anything_happens_to_the_run(
    open_harness: OpenHarness, recovery: Recovery
) -> None:
    agent = CleanupAgent(recovery)
    harness = await open_harness(agent)
    await harness.send()
    run = await agent.next_run()
    assert agent.ended == []
    assert await harness.restart() == 1
    if recovery is not Recovery.FAIL:
        await agent.next_run()
    assert agent.ended == [(run.turn.run_id, 1)]


async def test_run_that_had_not_started_has_no_orphans(open_harness: OpenHarness) -> None:
    agent = CleanupAgent(Recovery.REPEAT)
    harness = await open_harness(agent)
    await harness.send("one", context="c")
    run = await agent.next_run()
    await harness.send("two", context="c")
    assert await harness.restart() == 2
    assert agent.ended == [(run.turn.run_id, 1)]


@pytest.mark.parametrize("ends", [fails, hangs])
async def test_recovery_continues_when_orphans_cannot_be_ended(
    open_harness: OpenHarness, ends: Callable[[], Coroutine[None, None, None]]
) -> None:
    agent = CleanupAgent(Recovery.FAIL, ends)
    harness = await open_harness(agent, cancel_s=0.05)
    await harness.send()
    run = await agent.next_run()
    assert await harness.restart() == 1
    assert await harness.state(run.turn.task_id) is TaskState.FAILED
