"""Bounds: past each of them there is a clear end, and nobody waits for ever."""

from collections.abc import AsyncGenerator

import pytest
from tests.engine.conftest import OpenHarness
from tests.engine.controlled_agent import ControlledAgent, ScriptedAgent
from tests.engine.event_lines import artifact_texts, check_closed_once, check_journal, event_text
from tests.engine.harness import HYBRID, RULES, Harness, in_time, yield_to_others

from openclaw_a2a.engine.engine import AccountRules
from openclaw_a2a.engine.scheduling.session_queue import QueueLimits, SessionQueues
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


async def failed_task(harness: Harness) -> str:
    """Send a message whose task must fail; the reason."""
    task = await harness.ended(await harness.send())
    assert task.status.state is TaskState.FAILED
    entries = await harness.entries(task.id)
    check_journal(entries, task)
    check_closed_once([entry.event for entry in entries])
    return event_text(entries[-1].event)


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
async def test_event_over_the_limit_fails_the_task_with_a_reason(
    open_harness: OpenHarness, steps: tuple[AgentEvent, ...], rules: AccountRules
) -> None:
    harness = await open_harness(ScriptedAgent(*steps), event_bytes=2000)
    harness.rules = rules
    assert "2000" in await failed_task(harness)


async def test_failure_after_text_past_the_limit_is_a_failed_task_too(
    open_harness: OpenHarness,
) -> None:
    harness = await open_harness(
        ScriptedAgent(TextDelta(LARGE), RuntimeError("no")), event_bytes=2000
    )
    harness.rules = HYBRID
    assert "2000" in await failed_task(harness)


async def test_direct_answer_has_a_limit_too(open_harness: OpenHarness) -> None:
    steps = [TextDelta("x" * 100) for _ in range(101)]
    harness = await open_harness(ScriptedAgent(*steps), run_bytes=10_000)
    harness.rules = HYBRID
    assert "10000" in await failed_task(harness)


async def test_text_that_was_joined_past_the_limit_fails_the_task(
    open_harness: OpenHarness,
) -> None:
    agent = ControlledAgent()
    harness = await open_harness(agent, event_bytes=2000)
    sent = await harness.send()
    run = await agent.next_run()
    await harness.reach(run.turn.task_id, lambda seen: len(seen) == 2)
    harness.store.hold()
    run.tell(TextDelta("first"))
    await harness.store.wait_held("commit")
    run.tell(*[TextDelta("x" * 100) for _ in range(30)])
    await yield_to_others()
    harness.store.release()
    task = await harness.ended(sent)
    assert task.status.state is TaskState.FAILED
    assert run.stopped.is_set()
    entries = await harness.entries(task.id)
    check_journal(entries, task)
    check_closed_once([entry.event for entry in entries])


async def test_answer_past_the_limit_of_a_run_fails_the_task(open_harness: OpenHarness) -> None:
    steps = [Note("wait") if number % 2 else TextDelta("x" * 100) for number in range(200)]
    harness = await open_harness(ScriptedAgent(*steps), run_bytes=10_000)
    assert "10000" in await failed_task(harness)


async def test_run_past_its_deadline_is_stopped_and_failed(open_harness: OpenHarness) -> None:
    agent = ControlledAgent()
    harness = await open_harness(agent, run_s=0.05)
    sent = await harness.send()
    run = await agent.next_run()
    run.tell(TextDelta("half"))
    task = await harness.ended(sent)
    assert task.status.state is TaskState.FAILED
    assert "0.05" in event_text((await harness.entries(task.id))[-1].event)
    assert run.stopped.is_set()
    check_closed_once([entry.event for entry in await harness.entries(task.id)])


async def test_direct_run_past_its_deadline_is_a_failed_task(open_harness: OpenHarness) -> None:
    agent = ControlledAgent()
    harness = await open_harness(agent, run_s=0.05)
    harness.rules = HYBRID
    task = await harness.ended(await harness.send())
    assert task.status.state is TaskState.FAILED


async def test_waiting_does_not_count_as_running(open_harness: OpenHarness) -> None:
    agent = ControlledAgent()
    harness = await open_harness(agent, run_s=10)
    await harness.send("one", context="c")
    second = await harness.send("two", context="c")
    (await agent.next_run("two")).end(Reply.of_text("hi"))
    assert (await harness.ended(second)).status.state is TaskState.COMPLETED


async def test_full_queue_rejects_new_work_and_loses_none(open_harness: OpenHarness) -> None:
    agent = ControlledAgent()
    harness = await open_harness(agent)
    harness.use_queues(SessionQueues(QueueLimits(runs=1, queue=2)))
    sent = [await harness.send(str(number)) for number in range(3)]
    with pytest.raises(Overloaded):
        await harness.send("too many")
    for number in range(3):
        (await agent.next_run()).end(Reply.of_text("hi"))
        assert (await harness.ended(sent[number])).status.state is TaskState.COMPLETED
    await harness.send("again")
    assert (await agent.next_run()).turn.body == "again"


async def test_rejected_work_can_be_sent_again_under_the_same_id(open_harness: OpenHarness) -> None:
    agent = ControlledAgent()
    harness = await open_harness(agent)
    harness.use_queues(SessionQueues(QueueLimits(runs=1, queue=1)))
    first = await harness.send("one")
    await harness.send("two")
    with pytest.raises(Overloaded):
        await harness.send("three", message_id="m")
    (await agent.next_run()).end(Reply.of_text("hi"))
    await harness.ended(first)
    await harness.send("three", message_id="m")


async def test_task_has_a_limit_of_messages(open_harness: OpenHarness) -> None:
    harness = await open_harness(ScriptedAgent(InputRequired("?")), history_messages=6)
    task = await harness.ended(await harness.send())
    for _ in range(2):
        task = await harness.ended(await harness.send("more", task_id=task.id))
    assert len(task.history) == 6
    with pytest.raises(InvalidParams):
        await harness.send("more", task_id=task.id)


async def test_agent_that_writes_faster_than_the_disk_is_slowed_down(
    open_harness: OpenHarness,
) -> None:
    said: list[int] = []

    class Chatty(ScriptedAgent):
        async def run(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
            for number in range(1000):
                said.append(number)
                yield Note(str(number))

    harness = await open_harness(Chatty(), inflight_events=20)
    harness.store.hold()
    sent = await harness.send(waits=False)
    await harness.store.let_through()
    await yield_to_others()
    await yield_to_others()
    assert len(said) < 50
    harness.store.release()
    task = await harness.ended(sent)
    assert len(said) == 1000
    assert len(await harness.entries(task.id)) == 1003


async def test_text_that_waits_for_the_disk_is_joined(open_harness: OpenHarness) -> None:
    agent = ControlledAgent()
    harness = await open_harness(agent)
    sent = await harness.send()
    run = await agent.next_run()
    await harness.reach(run.turn.task_id, lambda seen: len(seen) == 2)
    harness.store.hold()
    run.end(*[TextDelta(f"{number} ") for number in range(200)])
    await harness.store.wait_held("commit")
    await yield_to_others()
    harness.store.release()
    task = await harness.ended(sent)
    assert len(await harness.entries(task.id)) < 10
    assert artifact_texts(task) == {
        "assistant-output-0001": "".join(f"{number} " for number in range(200))
    }


async def test_text_is_not_joined_when_that_is_not_wanted(open_harness: OpenHarness) -> None:
    pieces = [TextDelta(str(number)) for number in range(50)]
    harness = await open_harness(ScriptedAgent(*pieces), join_deltas=False)
    task = await harness.ended(await harness.send())
    assert len(await harness.entries(task.id)) >= 50


async def test_run_that_does_not_stop_at_its_deadline_may_still_complete(
    open_harness: OpenHarness,
) -> None:
    agent = ControlledAgent()
    agent.refuses_to_stop = True
    harness = await open_harness(agent, run_s=0.05)
    sent = await harness.send()
    run = await agent.next_run()
    await in_time(run.refused_to_stop.wait())
    run.end(Reply.of_text("late"))
    assert (await in_time(harness.ended(sent))).status.state is TaskState.COMPLETED
