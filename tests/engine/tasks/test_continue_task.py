"""Messages on a task: queued while it works, answering it while it waits, refused when it ended."""

import asyncio
from typing import Any

import pytest
from tests.captured_logs import capture_logs
from tests.engine.conftest import OpenHarness
from tests.engine.controlled_agent import ControlledAgent, ScriptedAgent, Step
from tests.engine.event_lines import artifact_texts, check_closed_once, check_journal, event_lines
from tests.engine.harness import BOB, Harness, in_time, read_all, yield_to_others

from openclaw_a2a.engine.maintenance import maintain
from openclaw_a2a.engine.tasks.active_task import TaskFinished
from openclaw_a2a.engine.transcript.transcript import NO_REPLY, STOPPED
from openclaw_a2a.model.agent_event import Failed, InputRequired, Reply, Stopped, TextDelta
from openclaw_a2a.model.errors import (
    ContextMismatch,
    Draining,
    MessageIdConflict,
    OutputNotAccepted,
    StoreUnavailable,
    TaskNotFound,
    TaskNotWaiting,
    TaskTerminal,
)
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.message import Role
from openclaw_a2a.model.task import TERMINAL, TaskState, is_terminal


async def test_message_on_a_working_task_waits_and_joins_its_history_once(
    harness: Harness, agent: ControlledAgent
) -> None:
    first = await harness.send("one")
    run = await agent.next_run()
    second = await harness.send("two", task_id=run.turn.task_id)
    await harness.first(second)
    assert agent.is_idle
    run.end(Reply.of_text("answer one"))
    again = await agent.next_run()
    assert again.turn.body == "two"
    assert again.turn.session_key == run.turn.session_key
    again.end(Reply.of_text("answer two"))
    task = await harness.ended(second)
    assert await harness.ended(first) == task
    assert [message.text for message in task.history] == [
        "one",
        "answer one",
        "two",
        "answer two",
    ]
    assert artifact_texts(task) == {
        "assistant-output-0001": "answer one",
        "assistant-output-0002": "answer two",
    }
    entries = await harness.entries(task.id)
    check_journal(entries, task)
    assert event_lines(entries) == [
        "status submitted",
        "status working",
        "artifact assistant-output-0001.",
        "status working",
        "status submitted",
        "status working",
        "artifact assistant-output-0002.",
        "status completed",
    ]


async def test_message_on_a_task_that_ends_while_it_is_read_is_refused(
    harness: Harness, agent: ControlledAgent
) -> None:
    first = await harness.send("one")
    run = await agent.next_run()
    read = harness.store.resting["read_task"] = asyncio.Event()
    second = asyncio.ensure_future(harness.send("two", task_id=run.turn.task_id))
    await yield_to_others()
    run.end(Reply.of_text("answer"))
    await harness.ended(first)
    read.set()
    with pytest.raises(TaskTerminal):
        await harness.first(await second)


async def test_message_on_a_working_task_that_is_read_late_is_not_shown_the_task_as_it_began(
    harness: Harness, agent: ControlledAgent
) -> None:
    await harness.send("one")
    run = await agent.next_run()
    second = await harness.send("two", task_id=run.turn.task_id, waits=False)
    read = harness.store.resting["read_task"] = asyncio.Event()
    run.end(Reply.of_text("answer one"))
    (await agent.next_run("two")).end(Reply.of_text("answer two"))
    shown = await harness.shown(second)
    read.set()
    assert shown.status.state is TaskState.COMPLETED
    assert "two" in [message.text for message in shown.history]


async def test_failed_run_does_not_end_a_task_that_has_another_message(
    harness: Harness, agent: ControlledAgent
) -> None:
    await harness.send("one")
    run = await agent.next_run()
    second = await harness.send("two", task_id=run.turn.task_id)
    await harness.first(second)
    run.end(TextDelta("half"), Failed("no more"))
    (await agent.next_run()).end(Reply.of_text("two is fine"))
    task = await harness.ended(second)
    assert task.status.state is TaskState.COMPLETED
    entries = await harness.entries(task.id)
    check_journal(entries, task)
    check_closed_once([entry.event for entry in entries])


async def test_subscriber_of_a_task_sees_all_its_messages_answered(
    harness: Harness, agent: ControlledAgent
) -> None:
    sent = await harness.send("one")
    run = await agent.next_run()
    follower = await harness.follow(run.turn.task_id)
    reading = asyncio.ensure_future(read_all(follower))
    await harness.first(await harness.send("two", task_id=run.turn.task_id))
    run.end(Reply.of_text("one"))
    (await agent.next_run()).end(Reply.of_text("two"))
    await harness.ended(sent)
    assert await reading == await harness.entries(run.turn.task_id)


async def test_message_to_a_paused_task_answers_it_with_the_agents_token(
    harness: Harness, agent: ControlledAgent
) -> None:
    sent = await harness.send("book it")
    (await agent.next_run()).end(InputRequired("which one?", resume={"step": 3}))
    paused = await harness.ended(sent)
    assert paused.status.state is TaskState.INPUT_REQUIRED
    answered = await harness.send("this one", task_id=paused.id)
    shown = await harness.shown(answered)
    assert shown.status.state is TaskState.SUBMITTED
    assert [message.text for message in shown.history] == ["book it", "which one?", "this one"]
    run = await agent.next_run()
    assert run.turn.resume == {"step": 3}
    assert (run.turn.task_id, run.turn.body) == (paused.id, "this one")
    run.end(Reply.of_text("booked"))
    task = await harness.ended(answered)
    assert task.status.state is TaskState.COMPLETED
    check_journal(await harness.entries(task.id), task)


async def test_token_is_used_once(harness: Harness, agent: ControlledAgent) -> None:
    sent = await harness.send()
    (await agent.next_run()).end(InputRequired("first?", resume="token"))
    task = await harness.ended(sent)
    answered = await harness.send("yes", task_id=task.id)
    (await agent.next_run()).end(InputRequired("second?"))
    await harness.ended(answered)
    await harness.send("yes", task_id=task.id)
    assert (await agent.next_run()).turn.resume is None


async def test_message_that_waited_when_the_task_paused_gets_the_token(
    harness: Harness, agent: ControlledAgent
) -> None:
    await harness.send("one")
    run = await agent.next_run()
    waiting = await harness.send("two", task_id=run.turn.task_id)
    await harness.first(waiting)
    run.end(InputRequired("which one?", resume="token"))
    again = await agent.next_run()
    assert (again.turn.body, again.turn.resume) == ("two", "token")
    again.end(Reply.of_text("done"))
    task = await harness.ended(waiting)
    assert task.status.state is TaskState.COMPLETED
    check_journal(await harness.entries(task.id), task)


async def test_pause_is_shown_when_the_agent_has_stopped(
    harness: Harness, agent: ControlledAgent
) -> None:
    sent = await harness.send()
    run = await agent.next_run()
    run.may_stop.clear()
    run.end(TextDelta("thinking"), InputRequired("which one?"))
    await run.stopping.wait()
    await yield_to_others()
    assert await harness.state(run.turn.task_id) is not TaskState.INPUT_REQUIRED
    run.may_stop.set()
    task = await harness.ended(sent)
    assert task.status.state is TaskState.INPUT_REQUIRED
    check_closed_once([entry.event for entry in await harness.entries(task.id)])


async def test_answer_to_a_pause_waits_for_its_own_end(
    harness: Harness, agent: ControlledAgent
) -> None:
    sent = await harness.send()
    (await agent.next_run()).end(InputRequired("which one?"))
    task = await harness.ended(sent)
    answered = await harness.send("this", task_id=task.id)
    ending = asyncio.ensure_future(harness.ended(answered))
    run = await agent.next_run()
    await yield_to_others()
    assert not ending.done()
    run.end(Reply.of_text("done"))
    assert (await ending).status.state is TaskState.COMPLETED


async def test_of_two_answers_to_one_pause_at_once_the_second_is_refused(
    harness: Harness, agent: ControlledAgent
) -> None:
    sent = await harness.send()
    (await agent.next_run()).end(InputRequired("which one?", resume="token"))
    task = await harness.ended(sent)
    first, second = await asyncio.gather(
        harness.send("this", task_id=task.id, waits=False),
        harness.send("or that", task_id=task.id, waits=False),
        return_exceptions=True,
    )
    assert isinstance(second, TaskNotWaiting)
    assert not isinstance(first, BaseException)
    run = await agent.next_run()
    assert (run.turn.body, run.turn.resume) == ("this", "token")
    run.end(Reply.of_text("done this"))
    ended = await harness.ended(first)
    assert [message.text for message in ended.history if message.role is Role.USER][1:] == ["this"]
    check_journal(await harness.entries(task.id), ended)


async def test_answer_during_the_commit_of_a_pause_waits_for_it_and_is_the_only_one(
    harness: Harness, agent: ControlledAgent
) -> None:
    sent = await harness.send()
    run = await agent.next_run()
    await harness.reach(run.turn.task_id, lambda seen: len(seen) > 1)
    harness.store.hold()
    run.end(InputRequired("which one?", resume="token"))
    await run.stopped.wait()
    await yield_to_others()
    sending = [
        asyncio.ensure_future(harness.send(text, task_id=run.turn.task_id, waits=False))
        for text in ("this", "or that")
    ]
    await yield_to_others()
    harness.store.release()
    assert (await harness.ended(sent)).status.state is TaskState.INPUT_REQUIRED
    results = await asyncio.gather(*sending, return_exceptions=True)
    assert [type(one) for one in results[1:]] == [TaskNotWaiting]
    again = await agent.next_run()
    assert (again.turn.body, again.turn.resume) == ("this", "token")
    again.end(Reply.of_text("done"))


async def test_pause_that_a_waiting_message_answers_takes_no_other_answer(
    harness: Harness, agent: ControlledAgent
) -> None:
    await harness.send("one")
    run = await agent.next_run()
    waiting = await harness.send("two", task_id=run.turn.task_id)
    await harness.first(waiting)
    run.end(InputRequired("which one?", resume="token"))
    again = await agent.next_run()
    with pytest.raises(TaskNotWaiting):
        await harness.send("three", task_id=run.turn.task_id)
    again.end(Reply.of_text("done"))
    await harness.ended(waiting)


async def test_duplicate_answer_and_a_new_one_at_once_are_kept_apart(
    harness: Harness, agent: ControlledAgent
) -> None:
    sent = await harness.send()
    (await agent.next_run()).end(InputRequired("first?"))
    task = await harness.ended(sent)
    old = await harness.send("old", task_id=task.id, message_id="old")
    (await agent.next_run()).end(InputRequired("second?"))
    await harness.ended(old)
    again, new = await asyncio.gather(
        harness.send("old", task_id=task.id, message_id="old", waits=False),
        harness.send("new", task_id=task.id, message_id="new", waits=False),
    )
    run = await agent.next_run()
    assert run.turn.body == "new"
    run.end(Reply.of_text("done"))
    assert (await harness.ended(new)).status.state is TaskState.COMPLETED
    await harness.ended(again)
    entries = await harness.entries(task.id)
    check_journal(entries, await harness.task(task.id))


async def test_rejected_answer_leaves_no_trace_for_the_next_one(
    harness: Harness, agent: ControlledAgent
) -> None:
    sent = await harness.send(message_id="m")
    (await agent.next_run()).end(InputRequired("which one?"))
    task = await harness.ended(sent)
    before = await harness.entries(task.id)
    harness.store.refuse("submit")
    refused = await harness.send("lost", task_id=task.id)
    with pytest.raises(StoreUnavailable):
        await harness.ended(refused)
    harness.store.refuse()
    assert await harness.entries(task.id) == before
    answered = await harness.send("kept", task_id=task.id)
    (await agent.next_run("kept")).end(Reply.of_text("done"))
    ended = await harness.ended(answered)
    assert [message.text for message in ended.history if "lost" in message.text] == []
    check_journal(await harness.entries(task.id), ended)


async def test_rejected_answer_does_not_affect_one_that_came_at_the_same_time(
    harness: Harness, agent: ControlledAgent
) -> None:
    sent = await harness.send(message_id="m")
    (await agent.next_run()).end(InputRequired("which one?"))
    task = await harness.ended(sent)
    harness.store.refuse("submit")
    lost = asyncio.ensure_future(harness.send("lost", task_id=task.id, waits=False))
    kept = asyncio.ensure_future(harness.send("kept", task_id=task.id, waits=False))
    refused = await lost
    harness.store.refuse()
    with pytest.raises(StoreUnavailable):
        await harness.ended(refused)
    (await agent.next_run("kept")).end(Reply.of_text("done"))
    ended = await harness.ended(await kept)
    assert ended.status.state is TaskState.COMPLETED
    check_journal(await harness.entries(task.id), ended)


ENDINGS = [
    ((Reply.of_text("done"),), TaskState.COMPLETED, "done"),
    ((TextDelta("half"), Failed("broken")), TaskState.FAILED, "broken"),
    ((TextDelta("half"), Stopped()), TaskState.CANCELED, STOPPED),
    ((), TaskState.COMPLETED, NO_REPLY),
]


@pytest.mark.parametrize(("steps", "state", "text"), ENDINGS)
async def test_task_whose_last_message_is_refused_ends_as_the_one_before_it(
    harness: Harness, agent: ControlledAgent, steps: tuple[Step, ...], state: TaskState, text: str
) -> None:
    first = await harness.send("one")
    run = await agent.next_run()
    task_id = run.turn.task_id
    follower = await harness.follow(task_id)
    await harness.all_is_quiet()
    harness.store.hold()
    second = asyncio.ensure_future(harness.send("two", task_id=task_id, waits=False))
    await harness.store.wait_held("submit")
    run.end(*steps)
    await harness.store.wait_held("commit")
    harness.store.refuse_held("submit")
    harness.store.release()
    task = await harness.ended(first)
    assert task.status.state is state
    with pytest.raises(StoreUnavailable):
        await harness.outcome(await in_time(second))
    entries = await read_all(follower)
    assert [entry.state for entry in entries if entry.state in TERMINAL] == [state]
    assert task.status.message is not None
    assert [part.text for part in task.status.message.parts] == [text]
    assert await harness.store.list_orphaned_tasks() == []
    assert await harness.state(task_id) is state
    assert not harness.engine.active_tasks
    assert not harness.engine.runs


async def test_task_whose_first_answer_is_too_large_for_a_status_ends_as_its_sender_was_told(
    open_harness: OpenHarness, agent: ControlledAgent
) -> None:
    harness = await open_harness(agent, event_bytes=400)
    first = await harness.send("one")
    run = await agent.next_run()
    await harness.all_is_quiet()
    harness.store.hold()
    second = asyncio.ensure_future(harness.send("two", task_id=run.turn.task_id, waits=False))
    await harness.store.wait_held("submit")
    # Each part is small enough; the status that repeats them all is not.
    run.end(*[TextDelta("x" * 100) for _ in range(5)])
    await harness.store.wait_held("commit")
    harness.store.refuse_held("submit")
    harness.store.release()
    task = await harness.ended(first)
    with pytest.raises(StoreUnavailable):
        await harness.outcome(await in_time(second))
    assert task.status.state is TaskState.FAILED
    assert "limits.eventBytes" in str(task.status.message)


async def test_refused_message_does_not_end_a_task_whose_accepted_message_waits_for_a_restart(
    harness: Harness, agent: ControlledAgent
) -> None:
    await harness.send("one")
    first = await agent.next_run()
    task_id = first.turn.task_id
    await harness.send("two", task_id=task_id)
    first.end(Reply.of_text("answer one"))
    await agent.next_run()
    await harness.all_is_quiet()
    harness.store.hold()
    third = asyncio.ensure_future(harness.send("three", task_id=task_id, waits=False))
    await harness.store.wait_held("submit")
    stopping = asyncio.ensure_future(harness.engine.stop())
    await yield_to_others(30)
    harness.store.refuse_held("submit")
    harness.store.release()
    await in_time(stopping)
    with pytest.raises((StoreUnavailable, Draining)):
        await harness.outcome(await in_time(third))
    assert await harness.state(task_id) is TaskState.WORKING
    assert await harness.store.list_orphaned_tasks() == []


async def test_refused_message_does_not_end_a_task_of_which_another_was_accepted_meanwhile(
    harness: Harness, agent: ControlledAgent
) -> None:
    await harness.send("one")
    first = await agent.next_run()
    task_id = first.turn.task_id
    await harness.all_is_quiet()
    harness.store.hold()
    second, third = (
        asyncio.ensure_future(harness.send(text, task_id=task_id, waits=False))
        for text in ("two", "three")
    )
    await harness.store.wait_held("submit")
    await yield_to_others()
    assert harness.store.held == ["submit", "submit"]
    first.end(Reply.of_text("answer one"))
    await harness.store.wait_held("commit")
    await harness.store.pass_held("commit")
    await harness.store.pass_held("submit")
    await in_time(second)
    stopping = asyncio.ensure_future(harness.engine.stop())
    await yield_to_others(30)
    harness.store.refuse_held("submit")
    harness.store.release()
    await in_time(stopping)
    with pytest.raises((StoreUnavailable, Draining)):
        await harness.outcome(await in_time(third))
    assert await harness.state(task_id) is TaskState.WORKING
    assert await harness.store.list_orphaned_tasks() == []


async def test_refused_message_does_not_end_a_task_whose_accepted_message_cannot_start(
    harness: Harness, agent: ControlledAgent
) -> None:
    await harness.send("one")
    first = await agent.next_run()
    task_id = first.turn.task_id
    second = await harness.send("two", task_id=task_id)
    await harness.all_is_quiet()
    harness.store.hold()
    third = asyncio.ensure_future(harness.send("three", task_id=task_id, waits=False))
    await harness.store.wait_held("submit")
    first.end(Reply.of_text("answer one"))
    await harness.store.wait_held("commit")
    await harness.store.pass_held("commit")
    await harness.store.wait_held("start_run")
    harness.store.refuse_held("start_run")
    harness.store.refuse_held("submit")
    harness.store.release()
    for refused in (second, await in_time(third)):
        with pytest.raises(StoreUnavailable):
            await harness.outcome(refused)
    assert await harness.state(task_id) is TaskState.WORKING
    await maintain(harness.engine)
    assert await harness.state(task_id) is TaskState.FAILED


async def test_task_that_is_canceled_while_its_last_message_is_a_repetition_is_canceled(
    harness: Harness, agent: ControlledAgent
) -> None:
    await harness.send("one")
    run = await agent.next_run()
    task_id = run.turn.task_id
    may_go_on = harness.store.resting["find_duplicate"] = asyncio.Event()
    late = asyncio.ensure_future(
        harness.send("two", message_id="second", task_id=task_id, waits=False)
    )
    await yield_to_others()
    del harness.store.resting["find_duplicate"]
    second = await harness.send("two", message_id="second", task_id=task_id)
    harness.store.hold()
    may_go_on.set()  # it has not seen that the message is stored by now
    await harness.store.wait_held("submit")
    canceled = asyncio.ensure_future(harness.cancel(task_id))
    await run.stopped.wait()
    await yield_to_others(100)
    harness.store.release()
    assert (await in_time(canceled)).status.state is TaskState.CANCELED
    assert (await harness.ended(second)).status.state is TaskState.CANCELED
    assert (await harness.ended(await in_time(late))).status.state is TaskState.CANCELED
    assert await harness.store.list_orphaned_tasks() == []


async def test_task_whose_last_message_and_end_are_refused_is_ended_when_the_store_is_back(
    harness: Harness, agent: ControlledAgent
) -> None:
    first = await harness.send("one")
    run = await agent.next_run()
    task_id = run.turn.task_id
    await harness.all_is_quiet()
    harness.store.hold()
    second = asyncio.ensure_future(harness.send("two", task_id=task_id, waits=False))
    await harness.store.wait_held("submit")
    run.end(Reply.of_text("done"))
    await harness.store.wait_held("commit")
    harness.store.refuse("commit")
    harness.store.refuse_held("submit")
    harness.store.release()
    with pytest.raises(StoreUnavailable):
        await harness.outcome(await in_time(second))
    with pytest.raises(StoreUnavailable):
        await harness.outcome(first)
    assert await harness.state(task_id) is TaskState.WORKING
    harness.store.refuse()
    await maintain(harness.engine)
    assert await harness.state(task_id) is TaskState.FAILED


async def test_sender_gets_the_error_of_its_run_also_when_a_message_behind_it_is_refused(
    harness: Harness, agent: ControlledAgent
) -> None:
    first = await harness.send("one", modes=("image/png",))
    run = await agent.next_run()
    task_id = run.turn.task_id
    await harness.all_is_quiet()
    harness.store.hold()
    second = asyncio.ensure_future(harness.send("two", task_id=task_id, waits=False))
    await harness.store.wait_held("submit")
    with capture_logs() as logs:
        run.end(Reply.of_text("an answer that is no image"))
        await harness.store.wait_held("commit")
        harness.store.refuse_held("submit")
        harness.store.release()
        outcome = await harness.outcome(first)
    assert isinstance(outcome, TaskFinished)
    assert isinstance(outcome.error, OutputNotAccepted)
    assert [one["code"] for one in logs if one["event"] == "task.ended"] == [OutputNotAccepted.code]
    with pytest.raises(StoreUnavailable):
        await harness.outcome(await in_time(second))


async def test_readers_of_a_task_whose_end_is_refused_are_told(
    harness: Harness, agent: ControlledAgent
) -> None:
    task_id, end = await hold_end_of_refused_message(harness, agent, "c")
    end.set_exception(StoreUnavailable("the disk is full"))
    await harness.all_is_quiet()
    with pytest.raises(StoreUnavailable):
        await harness.follow(task_id)
    await maintain(harness.engine)
    entries = await read_all(await harness.follow(task_id, cursor=0))
    assert entries[-1].state is TaskState.FAILED


async def test_a_task_that_goes_on_before_its_refused_end_is_made_up_for_can_be_followed(
    harness: Harness, agent: ControlledAgent
) -> None:
    task_id, end = await hold_end_of_refused_message(harness, agent, "c")
    end.set_exception(StoreUnavailable("the disk is full"))
    await harness.all_is_quiet()
    third = await harness.send("three", task_id=task_id)
    run = await agent.next_run()
    await maintain(harness.engine)
    reading = asyncio.ensure_future(read_all(await harness.follow(task_id, cursor=0)))
    run.end(Reply.of_text("answer three"))
    assert (await harness.ended(third)).status.state is TaskState.COMPLETED
    assert (await in_time(reading))[-1].state is TaskState.COMPLETED


async def test_end_that_is_refused_while_another_is_mended_is_mended_in_the_next_round(
    harness: Harness, agent: ControlledAgent
) -> None:
    ends = [await hold_end_of_refused_message(harness, agent, name) for name in ("a", "b")]
    (first, first_end), (second, second_end) = ends
    first_end.set_exception(StoreUnavailable("the disk is full"))
    await harness.all_is_quiet()
    harness.store.hold()
    first_round = asyncio.ensure_future(maintain(harness.engine))
    await harness.store.wait_held("commit")  # it ends the first one
    second_end.set_exception(StoreUnavailable("the disk is full"))
    await yield_to_others()
    harness.store.release()
    await in_time(first_round)
    await maintain(harness.engine)
    assert [await harness.state(one) for one in (first, second)] == [TaskState.FAILED] * 2


async def hold_end_of_refused_message(
    harness: Harness, agent: ControlledAgent, context: str
) -> tuple[TaskId, "asyncio.Future[Any]"]:
    """A task whose last message was refused, and the commit of its end, which is never made."""
    await harness.send("one", context=context)
    run = await agent.next_run()
    task_id = run.turn.task_id
    await harness.all_is_quiet()
    harness.store.hold()
    sending = asyncio.ensure_future(harness.send("two", task_id=task_id, waits=False))
    await harness.store.wait_held("submit")
    run.end(Reply.of_text("done"))
    await harness.store.wait_held("commit")
    await harness.store.pass_held("commit")
    harness.store.refuse_held("submit")
    await harness.store.wait_held("commit")
    with pytest.raises(StoreUnavailable):
        await harness.first(await in_time(sending))
    taken = harness.store.take_held("commit")
    harness.store.release()
    return task_id, taken


async def test_message_that_the_store_rejects_is_an_error_for_its_sender_only(
    harness: Harness, agent: ControlledAgent
) -> None:
    sent = await harness.send("one")
    run = await agent.next_run()
    await harness.reach(run.turn.task_id, lambda seen: len(seen) > 1)
    harness.store.refuse("submit")
    lost = await harness.send("two", task_id=run.turn.task_id)
    ending = asyncio.ensure_future(harness.ended(lost))
    await yield_to_others()
    harness.store.refuse()
    run.end(Reply.of_text("done"))
    assert (await harness.ended(sent)).status.state is TaskState.COMPLETED
    with pytest.raises(StoreUnavailable):
        await ending


async def test_other_body_under_a_known_message_id_is_rejected_while_the_task_works(
    harness: Harness, agent: ControlledAgent
) -> None:
    await harness.send("one")
    run = await agent.next_run()
    await harness.reach(run.turn.task_id, lambda seen: len(seen) > 1)
    harness.store.hold()
    good = await harness.send("two", task_id=run.turn.task_id, message_id="m", waits=False)
    with pytest.raises(MessageIdConflict):
        await harness.ended(await harness.send("three", task_id=run.turn.task_id, message_id="m"))
    harness.store.release()
    run.end(Reply.of_text("done"))
    (await agent.next_run()).end(Reply.of_text("done"))
    assert (await harness.ended(good)).status.state is TaskState.COMPLETED
    assert [turn.body for turn in agent.turns] == ["one", "two"]


async def test_message_that_was_answered_gives_its_task_even_when_that_has_ended(
    open_harness: OpenHarness,
) -> None:
    agent = ScriptedAgent(InputRequired("?"))
    harness = await open_harness(agent)
    task = await harness.ended(await harness.send())
    agent.steps = (Reply.of_text("done"),)
    answered = await harness.ended(await harness.send("yes", task_id=task.id, message_id="m"))
    assert is_terminal(answered.status.state)
    assert (
        await harness.ended(await harness.send("yes", task_id=task.id, message_id="m")) == answered
    )
    assert len(agent.turns) == 2


@pytest.mark.parametrize("reply", [Reply.of_text("done"), Failed("no")])
async def test_ended_task_accepts_no_message(
    open_harness: OpenHarness, reply: Reply | Failed
) -> None:
    harness = await open_harness(ScriptedAgent(reply))
    task = await harness.ended(await harness.send())
    with pytest.raises(TaskTerminal):
        await harness.send("more", task_id=task.id)
    assert await harness.task(task.id) == task


async def test_task_whose_end_is_being_committed_accepts_no_message(
    harness: Harness, agent: ControlledAgent
) -> None:
    sent = await harness.send()
    run = await agent.next_run()
    await harness.reach(run.turn.task_id, lambda seen: len(seen) > 1)
    harness.store.hold()
    run.end(Reply.of_text("done"))
    await harness.store.wait_held("commit")
    with pytest.raises(TaskTerminal):
        await harness.send("more", task_id=run.turn.task_id)
    harness.store.release()
    assert (await harness.ended(sent)).status.state is TaskState.COMPLETED


async def test_message_in_another_context_than_its_task_is_rejected(
    harness: Harness, agent: ControlledAgent
) -> None:
    await harness.send(context="mine")
    run = await agent.next_run()
    with pytest.raises(ContextMismatch):
        await harness.send("more", task_id=run.turn.task_id, context="other")


async def test_message_without_context_gets_that_of_its_task(
    harness: Harness, agent: ControlledAgent
) -> None:
    await harness.send(context="mine")
    run = await agent.next_run()
    more = await harness.send("more", task_id=run.turn.task_id)
    await harness.first(more)
    run.end(Reply.of_text("x"))
    assert (await agent.next_run()).turn.context_id == "mine"


async def test_message_on_a_task_of_another_caller_is_not_found(
    harness: Harness, agent: ControlledAgent
) -> None:
    await harness.send()
    run = await agent.next_run()
    with pytest.raises(TaskNotFound):
        await harness.send("more", task_id=run.turn.task_id, scope=BOB)
