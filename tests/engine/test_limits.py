"""Bounds: past each of them there is a clear end, and nobody waits for ever."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from tests.engine.conftest import OpenRoom
from tests.engine.controlled_agent import ControlledAgent, ScriptedAgent
from tests.engine.event_lines import artifact_texts, check_closed_once, check_journal, words_of
from tests.engine.harness import HYBRID, RULES, EngineHarness, in_time, others_move

from openclaw_a2a.engine.scheduling.session_queue import QueueLimits, SessionQueues
from openclaw_a2a.engine.tasks.turn_builder import AccountRules
from openclaw_a2a.model.agent_event import (
    AgentEvent,
    InputRequired,
    Note,
    Reply,
    TextDelta,
    ToolPhase,
    ToolProgress,
)
from openclaw_a2a.model.errors import InvalidParams, Overloaded
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.model.turn import Turn

LARGE = "x" * 3000


async def failed_task(room: EngineHarness) -> str:
    """Send a message whose task must fail; the reason."""
    task = await room.ended(await room.send())
    assert task.status.state is TaskState.FAILED
    entries = await room.entries(task.id)
    check_journal(entries, task)
    check_closed_once([entry.event for entry in entries])
    return words_of(entries[-1].event)


@pytest.mark.parametrize(
    "steps",
    [
        (TextDelta(LARGE), Note("working")),
        (Reply.of_text(LARGE), Note("working")),
        (TextDelta("small"), Reply.of_text(LARGE), Note("working")),
        (TextDelta("small"), Note("working"), TextDelta(LARGE)),
        (TextDelta("small"), Note("working"), Reply.of_text("small" + LARGE)),
        (TextDelta("small"), Note("working"), Reply.of_text("small" + LARGE), Note("more")),
        (TextDelta("small"), ToolProgress(ToolPhase.RESULT, "lookup", "1", LARGE)),
        (TextDelta("small"), ToolProgress(ToolPhase.START, "lookup", "1", LARGE), TextDelta("x")),
        (TextDelta("small"), Reply((Part.of_text("small"), Part.of_data(LARGE))), Note("x")),
        (TextDelta(LARGE), InputRequired("which?")),
    ],
)
@pytest.mark.parametrize("rules", [RULES, HYBRID], ids=["task", "hybrid"])
async def test_event_past_the_limit_fails_the_task_and_says_so(
    open_room: OpenRoom, steps: tuple[AgentEvent, ...], rules: AccountRules
) -> None:
    room = await open_room(ScriptedAgent(*steps), event_bytes=2000)
    room.rules = rules
    assert "2000" in await failed_task(room)


async def test_failure_after_text_past_the_limit_is_a_failed_task_too(open_room: OpenRoom) -> None:
    room = await open_room(ScriptedAgent(TextDelta(LARGE), RuntimeError("no")), event_bytes=2000)
    room.rules = HYBRID
    assert "2000" in await failed_task(room)


async def test_direct_answer_has_a_limit_too(open_room: OpenRoom) -> None:
    steps = [TextDelta("x" * 100) for _ in range(101)]
    room = await open_room(ScriptedAgent(*steps), run_bytes=10_000)
    room.rules = HYBRID
    assert "10000" in await failed_task(room)


async def test_text_that_was_joined_past_the_limit_fails_the_task(open_room: OpenRoom) -> None:
    agent = ControlledAgent()
    room = await open_room(agent, event_bytes=2000)
    sent = await room.send()
    run = await agent.next_run()
    await room.reach(run.turn.task_id, lambda seen: len(seen) == 2)
    room.store.hold()
    run.tell(TextDelta("first"))
    await room.store.wait_held("commit")
    run.tell(*[TextDelta("x" * 100) for _ in range(30)])
    await others_move()
    room.store.release()
    task = await room.ended(sent)
    assert task.status.state is TaskState.FAILED
    assert run.stopped.is_set()
    entries = await room.entries(task.id)
    check_journal(entries, task)
    check_closed_once([entry.event for entry in entries])


async def test_answer_past_the_limit_of_a_run_fails_the_task(open_room: OpenRoom) -> None:
    steps = [Note("wait") if number % 2 else TextDelta("x" * 100) for number in range(200)]
    room = await open_room(ScriptedAgent(*steps), run_bytes=10_000)
    assert "10000" in await failed_task(room)


async def test_run_past_its_deadline_is_stopped_and_failed(open_room: OpenRoom) -> None:
    agent = ControlledAgent()
    room = await open_room(agent, run_s=0.05)
    sent = await room.send()
    run = await agent.next_run()
    run.tell(TextDelta("half"))
    task = await room.ended(sent)
    assert task.status.state is TaskState.FAILED
    assert "0.05" in words_of((await room.entries(task.id))[-1].event)
    assert run.stopped.is_set()
    check_closed_once([entry.event for entry in await room.entries(task.id)])


async def test_direct_run_past_its_deadline_is_a_failed_task(open_room: OpenRoom) -> None:
    agent = ControlledAgent()
    room = await open_room(agent, run_s=0.05)
    room.rules = HYBRID
    task = await room.ended(await room.send())
    assert task.status.state is TaskState.FAILED


async def test_waiting_does_not_count_as_running(open_room: OpenRoom) -> None:
    agent = ControlledAgent()
    room = await open_room(agent, run_s=0.1)
    await room.send("one", context="c")
    second = await room.send("two", context="c")
    (await agent.next_run("two")).end(Reply.of_text("hi"))
    assert (await room.ended(second)).status.state is TaskState.COMPLETED


async def test_full_queue_refuses_new_work_and_loses_none(open_room: OpenRoom) -> None:
    agent = ControlledAgent()
    room = await open_room(agent)
    room.use_lanes(SessionQueues(QueueLimits(runs=1, queue=2)))
    sent = [await room.send(str(number)) for number in range(3)]
    with pytest.raises(Overloaded):
        await room.send("too many")
    for number in range(3):
        (await agent.next_run()).end(Reply.of_text("hi"))
        assert (await room.ended(sent[number])).status.state is TaskState.COMPLETED
    await room.send("again")
    assert (await agent.next_run()).turn.body == "again"


async def test_refused_work_can_be_sent_again_under_the_same_id(open_room: OpenRoom) -> None:
    agent = ControlledAgent()
    room = await open_room(agent)
    room.use_lanes(SessionQueues(QueueLimits(runs=1, queue=1)))
    first = await room.send("one")
    await room.send("two")
    with pytest.raises(Overloaded):
        await room.send("three", message_id="m")
    (await agent.next_run()).end(Reply.of_text("hi"))
    await room.ended(first)
    await room.send("three", message_id="m")


async def test_task_takes_so_many_messages_and_not_more(open_room: OpenRoom) -> None:
    room = await open_room(ScriptedAgent(InputRequired("?")), history_messages=6)
    task = await room.ended(await room.send())
    for _ in range(2):
        task = await room.ended(await room.send("more", task_id=task.id))
    assert len(task.history) == 6
    with pytest.raises(InvalidParams):
        await room.send("more", task_id=task.id)


async def test_agent_that_writes_faster_than_the_disk_is_slowed_down(open_room: OpenRoom) -> None:
    said: list[int] = []

    class Chatty(ScriptedAgent):
        async def run(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
            for number in range(1000):
                said.append(number)
                yield Note(str(number))

    room = await open_room(Chatty(), inflight_events=20)
    room.store.hold()
    sent = await room.send(waits=False)
    await room.store.let_through()
    await others_move()
    await others_move()
    assert len(said) < 50
    room.store.release()
    task = await room.ended(sent)
    assert len(said) == 1000
    assert len(await room.entries(task.id)) == 1003


async def test_text_that_waits_for_the_disk_is_joined(open_room: OpenRoom) -> None:
    agent = ControlledAgent()
    room = await open_room(agent)
    sent = await room.send()
    run = await agent.next_run()
    await room.reach(run.turn.task_id, lambda seen: len(seen) == 2)
    room.store.hold()
    run.end(*[TextDelta(f"{number} ") for number in range(200)])
    await room.store.wait_held("commit")
    await others_move()
    room.store.release()
    task = await room.ended(sent)
    assert len(await room.entries(task.id)) < 10
    assert artifact_texts(task) == {
        "assistant-output-0001": "".join(f"{number} " for number in range(200))
    }


async def test_text_is_not_joined_when_that_is_not_wanted(open_room: OpenRoom) -> None:
    pieces = [TextDelta(str(number)) for number in range(50)]
    room = await open_room(ScriptedAgent(*pieces), join_deltas=False)
    task = await room.ended(await room.send())
    assert len(await room.entries(task.id)) >= 50


async def test_run_that_refuses_to_stop_at_its_deadline_may_still_complete(
    open_room: OpenRoom,
) -> None:
    agent = ControlledAgent()
    room = await open_room(agent, run_s=0.05)
    sent = await room.send()
    run = await agent.next_run()
    run.refuses_to_stop = True
    await asyncio.sleep(0.1)  # its deadline passes; nothing tells
    run.end(Reply.of_text("late"))
    assert (await in_time(room.ended(sent))).status.state is TaskState.COMPLETED
