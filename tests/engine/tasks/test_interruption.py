"""Whatever breaks a run off does so once; a clean-up ends, and a flood of text starves nobody."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from tests.engine.conftest import OpenHarness
from tests.engine.controlled_agent import ControlledAgent, ScriptedAgent
from tests.engine.event_lines import event_text
from tests.engine.harness import Harness, in_time

from openclaw_a2a.model.agent_event import AgentEvent, InputRequired, Note, TextDelta
from openclaw_a2a.model.errors import Conflict, Overloaded, TaskNotCancelable, TaskTerminal
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.ports import Recovery


async def test_stop_during_a_cancel_lets_the_clean_up_end(
    harness: Harness, agent: ControlledAgent
) -> None:
    await harness.send()
    run = await agent.next_run()
    run.may_stop.clear()
    canceling = asyncio.ensure_future(harness.cancel(run.turn.task_id))
    await run.stopping.wait()
    stopping = asyncio.ensure_future(harness.engine.stop())
    await asyncio.sleep(0)
    run.may_stop.set()
    await in_time(stopping)
    assert run.stopped.is_set()
    assert (await canceling).status.state is TaskState.CANCELED


async def test_cleanup_that_a_stop_cancels_is_never_reported_as_canceled(
    open_harness: OpenHarness, agent: ControlledAgent
) -> None:
    harness = await open_harness(agent, cancel_s=0.05)
    await harness.send()
    run = await agent.next_run()
    run.may_stop.clear()
    with pytest.raises(TaskNotCancelable):
        await harness.cancel(run.turn.task_id)
    await in_time(harness.engine.stop())
    assert not run.stopped.is_set()
    assert await harness.state(run.turn.task_id) is TaskState.WORKING


async def test_agent_that_ignores_its_deadline_is_interrupted_again(
    open_harness: OpenHarness,
) -> None:
    agent = ControlledAgent()
    agent.refuses_to_stop = True
    harness = await open_harness(agent, run_s=0.02, cancel_s=0.02)
    sent = await harness.send()
    run = await agent.next_run()
    await in_time(run.refused_to_stop.wait())
    run.refuses_to_stop = False
    assert (await harness.ended(sent)).status.state is TaskState.FAILED


async def test_two_cancels_of_a_paused_task_at_once_end_it_once(open_harness: OpenHarness) -> None:
    harness = await open_harness(ScriptedAgent(InputRequired("which?")))
    task = await harness.ended(await harness.send())
    both = [harness.cancel(task.id), harness.cancel(task.id)]
    outcomes = await asyncio.gather(*both, return_exceptions=True)
    assert sum(isinstance(one, TaskNotCancelable) for one in outcomes) <= 1
    assert not any(isinstance(one, Conflict) for one in outcomes)
    assert await harness.state(task.id) is TaskState.CANCELED


async def test_message_during_a_cancel_gets_the_state_of_the_task(
    open_harness: OpenHarness,
) -> None:
    harness = await open_harness(ScriptedAgent(InputRequired("which?")))
    task = await harness.ended(await harness.send())

    async def answer() -> TaskState:
        return (await harness.ended(await harness.send("blue", task_id=task.id))).status.state

    sent, canceled = await asyncio.gather(answer(), harness.cancel(task.id), return_exceptions=True)
    assert isinstance(sent, TaskState | TaskTerminal | Overloaded)
    assert not isinstance(canceled, Conflict)


class _Flood:
    """Writes without ever waiting for anybody."""

    recovery = Recovery.FAIL

    def __init__(self, piece: str, count: int) -> None:
        self._piece = piece
        self._count = count

    async def run(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
        for _ in range(self._count):
            yield TextDelta(self._piece)

    async def close(self) -> None:
        """Nothing is held."""


async def test_flood_of_text_is_cut_into_events_within_the_limit(
    open_harness: OpenHarness,
) -> None:
    harness = await open_harness(_Flood("x" * 65_000, 140))
    task = await harness.ended(await harness.send())
    assert task.status.state is TaskState.COMPLETED
    assert max(len(entry.body) for entry in (await harness.entries(task.id))[:-1]) < 200_000


async def test_endless_flood_can_be_canceled(open_harness: OpenHarness) -> None:
    harness = await open_harness(_Flood("x", 10**9))
    sent = await harness.send()
    task = await harness.cancel((await harness.shown(sent)).id)
    assert task.status.state is TaskState.CANCELED


async def test_notes_count_as_messages_of_their_task(open_harness: OpenHarness) -> None:
    notes = [Note(f"step {number}") for number in range(30)]
    harness = await open_harness(ScriptedAgent(*notes), history_messages=10)
    task = await harness.ended(await harness.send())
    assert task.status.state is TaskState.FAILED
    assert "10 messages" in event_text((await harness.entries(task.id))[-1].event)
