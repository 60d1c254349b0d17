"""Whatever breaks a run off does so once; a clean-up ends, and a flood of text starves nobody."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from tests.engine.conftest import OpenRoom
from tests.engine.controlled_agent import ControlledAgent, ScriptedAgent
from tests.engine.event_lines import words_of
from tests.engine.harness import EngineHarness, in_time

from openclaw_a2a.model.agent_event import AgentEvent, InputRequired, Note, TextDelta
from openclaw_a2a.model.errors import Conflict, Overloaded, TaskNotCancelable, TaskTerminal
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.ports import Recovery


async def test_stop_during_a_cancel_lets_the_clean_up_end(
    room: EngineHarness, agent: ControlledAgent
) -> None:
    await room.send()
    run = await agent.next_run()
    run.may_stop.clear()
    canceling = asyncio.ensure_future(room.cancel(run.turn.task_id))
    await run.stopping.wait()
    stopping = asyncio.ensure_future(room.engine.stop())
    await asyncio.sleep(0)
    run.may_stop.set()
    await in_time(stopping)
    assert run.stopped.is_set()
    assert (await canceling).status.state is TaskState.CANCELED


async def test_clean_up_that_stop_must_break_off_is_never_called_canceled(
    open_room: OpenRoom, agent: ControlledAgent
) -> None:
    room = await open_room(agent, cancel_s=0.05)
    await room.send()
    run = await agent.next_run()
    run.may_stop.clear()
    with pytest.raises(TaskNotCancelable):
        await room.cancel(run.turn.task_id)
    await in_time(room.engine.stop())
    assert not run.stopped.is_set()
    assert await room.state(run.turn.task_id) is TaskState.WORKING


async def test_agent_that_ignores_its_deadline_is_broken_off_again(open_room: OpenRoom) -> None:
    agent = ControlledAgent()
    room = await open_room(agent, run_s=0.02, cancel_s=0.02)
    sent = await room.send()
    run = await agent.next_run()
    run.refuses_to_stop = True
    await asyncio.sleep(0.05)  # the deadline is the point here
    run.refuses_to_stop = False
    assert (await room.ended(sent)).status.state is TaskState.FAILED


async def test_two_cancels_of_a_paused_task_at_once_end_it_once(open_room: OpenRoom) -> None:
    room = await open_room(ScriptedAgent(InputRequired("which?")))
    task = await room.ended(await room.send())
    both = [room.cancel(task.id), room.cancel(task.id)]
    outcomes = await asyncio.gather(*both, return_exceptions=True)
    assert sum(isinstance(one, TaskNotCancelable) for one in outcomes) <= 1
    assert not any(isinstance(one, Conflict) for one in outcomes)
    assert await room.state(task.id) is TaskState.CANCELED


async def test_message_that_meets_a_cancel_is_told_what_became_of_the_task(
    open_room: OpenRoom,
) -> None:
    room = await open_room(ScriptedAgent(InputRequired("which?")))
    task = await room.ended(await room.send())

    async def answer() -> TaskState:
        return (await room.ended(await room.send("blue", task_id=task.id))).status.state

    sent, canceled = await asyncio.gather(answer(), room.cancel(task.id), return_exceptions=True)
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


async def test_text_that_floods_in_is_cut_into_events_within_the_limit(
    open_room: OpenRoom,
) -> None:
    room = await open_room(_Flood("x" * 65_000, 140))
    task = await room.ended(await room.send())
    assert task.status.state is TaskState.COMPLETED
    assert max(len(entry.body) for entry in (await room.entries(task.id))[:-1]) < 200_000


async def test_endless_flood_can_be_canceled(open_room: OpenRoom) -> None:
    room = await open_room(_Flood("x", 10**9))
    sent = await room.send()
    task = await room.cancel((await room.shown(sent)).id)
    assert task.status.state is TaskState.CANCELED


async def test_notes_count_as_messages_of_their_task(open_room: OpenRoom) -> None:
    notes = [Note(f"step {number}") for number in range(30)]
    room = await open_room(ScriptedAgent(*notes), history_messages=10)
    task = await room.ended(await room.send())
    assert task.status.state is TaskState.FAILED
    assert "10 messages" in words_of((await room.entries(task.id))[-1].event)
