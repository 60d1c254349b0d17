"""Cancelling: the work has stopped when `canceled` is committed, and nobody is left waiting."""

import asyncio

import pytest
from tests.captured_logs import capture_logs
from tests.engine.conftest import OpenHarness
from tests.engine.controlled_agent import ControlledAgent, ScriptedAgent
from tests.engine.event_lines import check_closed_once, check_journal, event_lines
from tests.engine.harness import BOB, Harness, yield_to_others

from openclaw_a2a.model.agent_event import InputRequired, Reply, TextDelta
from openclaw_a2a.model.errors import (
    Draining,
    StoreUnavailable,
    TaskNotCancelable,
    TaskNotFound,
    TaskNotLive,
)
from openclaw_a2a.model.task import TaskState, is_terminal


async def test_running_task_is_canceled_after_its_agent_has_stopped(
    harness: Harness, agent: ControlledAgent
) -> None:
    sent = await harness.send()
    run = await agent.next_run()
    run.tell(TextDelta("half"))
    await harness.reach(run.turn.task_id, lambda seen: len(seen) > 2)
    run.may_stop.clear()
    canceling = asyncio.ensure_future(harness.cancel(run.turn.task_id))
    await run.stopping.wait()
    assert await harness.state(run.turn.task_id) is TaskState.WORKING
    run.may_stop.set()
    task = await canceling
    assert run.stopped.is_set()
    assert task.status.state is TaskState.CANCELED
    assert await harness.ended(sent) == task == await harness.task(task.id)
    entries = await harness.entries(task.id)
    check_journal(entries, task)
    check_closed_once([entry.event for entry in entries])


async def test_second_cancel_does_not_disturb_the_clean_up(
    harness: Harness, agent: ControlledAgent
) -> None:
    await harness.send()
    run = await agent.next_run()
    run.may_stop.clear()
    first = asyncio.ensure_future(harness.cancel(run.turn.task_id))
    await run.stopping.wait()
    second = asyncio.ensure_future(harness.cancel(run.turn.task_id))
    await yield_to_others()
    assert not first.done()
    assert not is_terminal(await harness.state(run.turn.task_id))
    run.may_stop.set()
    assert (await first).status.state is TaskState.CANCELED
    assert await second == await first
    assert run.stopped.is_set()


async def test_waiting_task_is_canceled_without_asking_its_agent(
    harness: Harness, agent: ControlledAgent
) -> None:
    await harness.send("first", context="c")
    run = await agent.next_run()
    waiting = await harness.shown(await harness.send("second", context="c"))
    assert (await harness.cancel(waiting.id)).status.state is TaskState.CANCELED
    third = await harness.send("third", context="c")
    run.end(Reply.of_text("done"))
    (await agent.next_run()).end(Reply.of_text("done"))
    await harness.ended(third)
    assert [turn.body for turn in agent.turns] == ["first", "third"]


async def test_paused_task_is_canceled_at_once(harness: Harness, agent: ControlledAgent) -> None:
    sent = await harness.send()
    (await agent.next_run()).end(InputRequired("which one?"))
    paused = await harness.ended(sent)
    task = await harness.cancel(paused.id)
    assert task.status.state is TaskState.CANCELED
    assert await harness.task(paused.id) == task
    check_journal(await harness.entries(task.id), task)


async def test_task_that_pauses_while_it_is_being_canceled_ends_canceled(
    harness: Harness, agent: ControlledAgent
) -> None:
    sent = await harness.send()
    run = await agent.next_run()
    run.may_stop.clear()
    run.end(InputRequired("which one?"))
    await run.stopping.wait()
    canceling = asyncio.ensure_future(harness.cancel(run.turn.task_id))
    await yield_to_others()
    run.may_stop.set()
    task = await canceling
    assert task.status.state is TaskState.CANCELED
    assert run.stopped.is_set()
    assert (await harness.ended(sent)).status.state in (
        TaskState.CANCELED,
        TaskState.INPUT_REQUIRED,
    )
    check_journal(await harness.entries(task.id), await harness.task(task.id))


async def test_cancel_during_the_commit_of_a_pause_ends_canceled(
    harness: Harness, agent: ControlledAgent
) -> None:
    sent = await harness.send()
    run = await agent.next_run()
    await harness.reach(run.turn.task_id, lambda seen: len(seen) > 1)
    harness.store.hold()
    run.end(InputRequired("which one?"))
    await harness.store.wait_held("commit")
    canceling = asyncio.ensure_future(harness.cancel(run.turn.task_id))
    await yield_to_others()
    harness.store.release()
    assert (await canceling).status.state is TaskState.CANCELED
    await harness.ended(sent)
    check_journal(await harness.entries(run.turn.task_id), await harness.task(run.turn.task_id))


async def test_cancel_during_the_last_commit_comes_too_late(
    harness: Harness, agent: ControlledAgent
) -> None:
    sent = await harness.send()
    run = await agent.next_run()
    await harness.reach(run.turn.task_id, lambda seen: len(seen) > 1)
    harness.store.hold()
    run.end(Reply.of_text("done"))
    await harness.store.wait_held("commit")
    canceling = asyncio.ensure_future(harness.cancel(run.turn.task_id))
    await yield_to_others()
    harness.store.release()
    assert (await canceling).status.state is TaskState.COMPLETED
    assert (await harness.ended(sent)).status.state is TaskState.COMPLETED


async def test_cancel_before_the_answer_to_a_pause_is_stored_ends_canceled(
    harness: Harness, agent: ControlledAgent
) -> None:
    sent = await harness.send()
    (await agent.next_run()).end(InputRequired("which one?"))
    task = await harness.ended(sent)
    harness.store.hold()
    answered = await harness.send("this one", task_id=task.id, waits=False)
    await yield_to_others()
    canceling = asyncio.ensure_future(harness.cancel(task.id))
    await yield_to_others()
    harness.store.release()
    assert (await canceling).status.state is TaskState.CANCELED
    assert (await harness.ended(answered)).status.state is TaskState.CANCELED
    assert agent.is_idle or (await agent.next_run()).stopped.is_set()
    check_journal(await harness.entries(task.id), await harness.task(task.id))


async def test_cancel_ends_waiting_messages_of_the_task_too(
    harness: Harness, agent: ControlledAgent
) -> None:
    first = await harness.send()
    run = await agent.next_run()
    second = await harness.send("more", task_id=run.turn.task_id)
    await harness.first(second)
    task = await harness.cancel(run.turn.task_id)
    assert task.status.state is TaskState.CANCELED
    assert await harness.ended(first) == await harness.ended(second) == task
    assert agent.is_idle
    check_journal(await harness.entries(task.id), task)


async def test_canceled_task_with_several_runs_is_logged_once(
    harness: Harness, agent: ControlledAgent
) -> None:
    await harness.send()
    run = await agent.next_run()
    await harness.first(await harness.send("more", task_id=run.turn.task_id))
    with capture_logs() as logs:
        await harness.cancel(run.turn.task_id)
        await yield_to_others()
    assert [entry["state"] for entry in logs if entry["event"] == "task.ended"] == ["canceled"]


async def test_agent_that_does_not_stop_makes_its_task_not_cancelable(
    open_harness: OpenHarness, agent: ControlledAgent
) -> None:
    harness = await open_harness(agent, cancel_s=0.05)
    sent = await harness.send()
    run = await agent.next_run()
    run.refuses_to_stop = True
    with pytest.raises(TaskNotCancelable):
        await harness.cancel(run.turn.task_id)
    assert await harness.state(run.turn.task_id) is TaskState.WORKING
    run.end(Reply.of_text("told you"))
    assert (await harness.ended(sent)).status.state is TaskState.COMPLETED


async def test_slow_clean_up_makes_a_task_not_cancelable_until_it_is_over(
    open_harness: OpenHarness, agent: ControlledAgent
) -> None:
    harness = await open_harness(agent, cancel_s=0.05)
    sent = await harness.send()
    run = await agent.next_run()
    run.may_stop.clear()
    with pytest.raises(TaskNotCancelable):
        await harness.cancel(run.turn.task_id)
    with pytest.raises(TaskNotCancelable):
        await harness.cancel(run.turn.task_id)
    assert await harness.state(run.turn.task_id) is TaskState.WORKING
    run.may_stop.set()
    assert (await harness.ended(sent)).status.state is TaskState.CANCELED


async def test_run_that_completes_first_has_completed(
    harness: Harness, agent: ControlledAgent
) -> None:
    sent = await harness.send()
    run = await agent.next_run()
    run.refuses_to_stop = True
    canceling = asyncio.ensure_future(harness.cancel(run.turn.task_id))
    await yield_to_others()
    run.end(Reply.of_text("done"))
    task = await canceling
    assert task.status.state is TaskState.COMPLETED
    assert await harness.ended(sent) == task


async def test_no_event_of_the_agent_is_published_after_canceled(
    harness: Harness, agent: ControlledAgent
) -> None:
    await harness.send()
    run = await agent.next_run()
    task = await harness.cancel(run.turn.task_id)
    run.end(Reply.of_text("late"))
    assert event_lines(await harness.entries(task.id)) == [
        "status submitted",
        "status working",
        "status canceled",
    ]
    assert await harness.task(task.id) == task


async def test_session_continues_after_a_cancel(harness: Harness, agent: ControlledAgent) -> None:
    await harness.send("first", context="c")
    run = await agent.next_run()
    second = await harness.send("second", context="c")
    await harness.cancel(run.turn.task_id)
    (await agent.next_run()).end(Reply.of_text("hi"))
    assert (await harness.ended(second)).status.state is TaskState.COMPLETED


async def test_ended_task_cannot_be_canceled(open_harness: OpenHarness) -> None:
    harness = await open_harness(ScriptedAgent(Reply.of_text("hi")))
    task = await harness.ended(await harness.send())
    with pytest.raises(TaskNotCancelable):
        await harness.cancel(task.id)
    assert await harness.task(task.id) == task


async def test_task_of_another_caller_is_not_found(
    harness: Harness, agent: ControlledAgent
) -> None:
    await harness.send()
    run = await agent.next_run()
    with pytest.raises(TaskNotFound):
        await harness.cancel(run.turn.task_id, scope=BOB)
    assert not run.stopping.is_set()


async def test_active_task_that_runs_nowhere_is_not_live(
    harness: Harness, agent: ControlledAgent
) -> None:
    await harness.send()
    run = await agent.next_run()
    await harness.crash()
    await harness.start_without_recovery()
    with pytest.raises(TaskNotLive):
        await harness.cancel(run.turn.task_id)


async def test_who_cancels_a_task_that_is_about_to_be_failed_has_to_ask_again(
    open_harness: OpenHarness,
) -> None:
    """Not `TaskNotLive`, which is for good: it is not stored yet that the task has ended."""
    agent = ControlledAgent()
    harness = await open_harness(agent)
    sent = await harness.send()
    run = await agent.next_run()
    await harness.store_is_quiet()
    harness.store.refuse("commit")
    run.end(Reply.of_text("done"))
    with pytest.raises(StoreUnavailable):
        await harness.outcome(sent)
    with pytest.raises(StoreUnavailable, match="ask again"):
        await harness.cancel(run.turn.task_id)


async def test_task_is_to_be_canceled_again_when_its_run_has_left_a_gateway_that_stops(
    harness: Harness, agent: ControlledAgent
) -> None:
    await harness.send()
    left = await agent.next_run()
    await harness.send()
    slow = await agent.next_run()
    slow.may_stop.clear()
    stopping = asyncio.ensure_future(harness.engine.stop())
    await left.stopped.wait()
    while left.turn.task_id in harness.engine.active_tasks:
        await yield_to_others()
    # Not `TaskNotLive`, which is for good: the run goes on after the restart.
    with pytest.raises(Draining):
        await harness.cancel(left.turn.task_id)
    slow.may_stop.set()
    await stopping


async def test_who_waits_for_a_task_that_goes_on_after_the_restart_is_to_ask_again(
    harness: Harness, agent: ControlledAgent
) -> None:
    """Its last run to leave had nothing to say, and the message behind it has left before."""
    sent = await harness.send()
    run = await agent.next_run()
    await harness.send("more", task_id=run.turn.task_id)
    waiting = asyncio.ensure_future(harness.outcome(sent))
    await harness.store_is_quiet()
    harness.store.hold()
    run.end()
    await harness.store.wait_held("commit")
    stopping = asyncio.ensure_future(harness.engine.stop())
    await yield_to_others(50)
    harness.store.release()
    with pytest.raises(Draining):
        await waiting
    await stopping
