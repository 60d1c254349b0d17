"""Messages on a task: queued while it works, answering it while it waits, refused when it ended."""

import asyncio

import pytest
from tests.engine.conftest import OpenRoom
from tests.engine.controlled_agent import ControlledAgent, ScriptedAgent
from tests.engine.event_lines import artifact_texts, check_closed_once, check_journal, outline
from tests.engine.harness import BOB, EngineHarness, others_move, read_all

from openclaw_a2a.model.agent_event import Failed, InputRequired, Reply, TextDelta
from openclaw_a2a.model.errors import (
    ContextMismatch,
    MessageIdConflict,
    StoreUnavailable,
    TaskNotFound,
    TaskTerminal,
)
from openclaw_a2a.model.states import is_terminal
from openclaw_a2a.model.task import TaskState


async def test_message_on_a_working_task_waits_and_joins_its_history_once(
    room: EngineHarness, agent: ControlledAgent
) -> None:
    first = await room.send("one")
    run = await agent.next_run()
    second = await room.send("two", task_id=run.turn.task_id)
    await room.first(second)
    assert agent.is_idle
    run.end(Reply.of_text("answer one"))
    again = await agent.next_run()
    assert again.turn.body == "two"
    assert again.turn.session_key == run.turn.session_key
    again.end(Reply.of_text("answer two"))
    task = await room.ended(second)
    assert await room.ended(first) == task
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
    entries = await room.entries(task.id)
    check_journal(entries, task)
    assert outline(entries) == [
        "status submitted",
        "status working",
        "artifact assistant-output-0001.",
        "status working",
        "status submitted",
        "status working",
        "artifact assistant-output-0002.",
        "status completed",
    ]


async def test_failed_run_does_not_end_a_task_that_has_another_message(
    room: EngineHarness, agent: ControlledAgent
) -> None:
    await room.send("one")
    run = await agent.next_run()
    second = await room.send("two", task_id=run.turn.task_id)
    await room.first(second)
    run.end(TextDelta("half"), Failed("no more"))
    (await agent.next_run()).end(Reply.of_text("two is fine"))
    task = await room.ended(second)
    assert task.status.state is TaskState.COMPLETED
    entries = await room.entries(task.id)
    check_journal(entries, task)
    check_closed_once([entry.event for entry in entries])


async def test_follower_of_a_task_sees_all_its_messages_answered(
    room: EngineHarness, agent: ControlledAgent
) -> None:
    sent = await room.send("one")
    run = await agent.next_run()
    follower = await room.follow(run.turn.task_id)
    reading = asyncio.ensure_future(read_all(follower))
    await room.first(await room.send("two", task_id=run.turn.task_id))
    run.end(Reply.of_text("one"))
    (await agent.next_run()).end(Reply.of_text("two"))
    await room.ended(sent)
    assert await reading == await room.entries(run.turn.task_id)


async def test_message_to_a_paused_task_answers_it_with_the_agents_token(
    room: EngineHarness, agent: ControlledAgent
) -> None:
    sent = await room.send("book it")
    (await agent.next_run()).end(InputRequired("which one?", resume={"step": 3}))
    paused = await room.ended(sent)
    assert paused.status.state is TaskState.INPUT_REQUIRED
    answered = await room.send("this one", task_id=paused.id)
    shown = await room.shown(answered)
    assert shown.status.state is TaskState.SUBMITTED
    assert [message.text for message in shown.history] == ["book it", "which one?", "this one"]
    run = await agent.next_run()
    assert run.turn.resume == {"step": 3}
    assert (run.turn.task_id, run.turn.body) == (paused.id, "this one")
    run.end(Reply.of_text("booked"))
    task = await room.ended(answered)
    assert task.status.state is TaskState.COMPLETED
    check_journal(await room.entries(task.id), task)


async def test_token_is_used_once(room: EngineHarness, agent: ControlledAgent) -> None:
    sent = await room.send()
    (await agent.next_run()).end(InputRequired("first?", resume="token"))
    task = await room.ended(sent)
    answered = await room.send("yes", task_id=task.id)
    (await agent.next_run()).end(InputRequired("second?"))
    await room.ended(answered)
    await room.send("yes", task_id=task.id)
    assert (await agent.next_run()).turn.resume is None


async def test_message_that_waited_when_the_task_paused_gets_the_token(
    room: EngineHarness, agent: ControlledAgent
) -> None:
    await room.send("one")
    run = await agent.next_run()
    waiting = await room.send("two", task_id=run.turn.task_id)
    await room.first(waiting)
    run.end(InputRequired("which one?", resume="token"))
    again = await agent.next_run()
    assert (again.turn.body, again.turn.resume) == ("two", "token")
    again.end(Reply.of_text("done"))
    task = await room.ended(waiting)
    assert task.status.state is TaskState.COMPLETED
    check_journal(await room.entries(task.id), task)


async def test_pause_is_shown_when_the_agent_has_stopped(
    room: EngineHarness, agent: ControlledAgent
) -> None:
    sent = await room.send()
    run = await agent.next_run()
    run.may_stop.clear()
    run.end(TextDelta("thinking"), InputRequired("which one?"))
    await run.stopping.wait()
    await others_move()
    assert await room.state(run.turn.task_id) is not TaskState.INPUT_REQUIRED
    run.may_stop.set()
    task = await room.ended(sent)
    assert task.status.state is TaskState.INPUT_REQUIRED
    check_closed_once([entry.event for entry in await room.entries(task.id)])


async def test_answer_to_a_pause_waits_for_its_own_end(
    room: EngineHarness, agent: ControlledAgent
) -> None:
    sent = await room.send()
    (await agent.next_run()).end(InputRequired("which one?"))
    task = await room.ended(sent)
    answered = await room.send("this", task_id=task.id)
    ending = asyncio.ensure_future(room.ended(answered))
    run = await agent.next_run()
    await others_move()
    assert not ending.done()
    run.end(Reply.of_text("done"))
    assert (await ending).status.state is TaskState.COMPLETED


async def test_two_answers_to_one_pause_at_once_are_read_in_order(
    room: EngineHarness, agent: ControlledAgent
) -> None:
    sent = await room.send()
    (await agent.next_run()).end(InputRequired("which one?", resume="token"))
    task = await room.ended(sent)
    first, second = await asyncio.gather(
        room.send("this", task_id=task.id, waits=False),
        room.send("or that", task_id=task.id, waits=False),
    )
    run = await agent.next_run()
    assert (run.turn.body, run.turn.resume) == ("this", "token")
    run.end(Reply.of_text("done this"))
    run = await agent.next_run()
    assert (run.turn.body, run.turn.resume) == ("or that", None)
    run.end(Reply.of_text("done that"))
    assert await room.ended(first) == await room.ended(second)
    check_journal(await room.entries(task.id), await room.task(task.id))


async def test_answer_that_came_before_and_a_new_one_at_once_do_not_get_mixed_up(
    room: EngineHarness, agent: ControlledAgent
) -> None:
    sent = await room.send()
    (await agent.next_run()).end(InputRequired("first?"))
    task = await room.ended(sent)
    old = await room.send("old", task_id=task.id, message_id="old")
    (await agent.next_run()).end(InputRequired("second?"))
    await room.ended(old)
    again, new = await asyncio.gather(
        room.send("old", task_id=task.id, message_id="old", waits=False),
        room.send("new", task_id=task.id, message_id="new", waits=False),
    )
    run = await agent.next_run()
    assert run.turn.body == "new"
    run.end(Reply.of_text("done"))
    assert (await room.ended(new)).status.state is TaskState.COMPLETED
    await room.ended(again)
    entries = await room.entries(task.id)
    check_journal(entries, await room.task(task.id))


async def test_refused_answer_leaves_no_trace_for_the_next_one(
    room: EngineHarness, agent: ControlledAgent
) -> None:
    sent = await room.send(message_id="m")
    (await agent.next_run()).end(InputRequired("which one?"))
    task = await room.ended(sent)
    before = await room.entries(task.id)
    room.store.refuse("submit")
    refused = await room.send("lost", task_id=task.id)
    with pytest.raises(StoreUnavailable):
        await room.ended(refused)
    room.store.refuse()
    assert await room.entries(task.id) == before
    answered = await room.send("kept", task_id=task.id)
    (await agent.next_run("kept")).end(Reply.of_text("done"))
    ended = await room.ended(answered)
    assert [message.text for message in ended.history if "lost" in message.text] == []
    check_journal(await room.entries(task.id), ended)


async def test_refused_answer_does_not_spoil_one_that_came_at_the_same_time(
    room: EngineHarness, agent: ControlledAgent
) -> None:
    sent = await room.send(message_id="m")
    (await agent.next_run()).end(InputRequired("which one?"))
    task = await room.ended(sent)
    room.store.refuse("submit")
    lost = asyncio.ensure_future(room.send("lost", task_id=task.id, waits=False))
    kept = asyncio.ensure_future(room.send("kept", task_id=task.id, waits=False))
    refused = await lost
    room.store.refuse()
    with pytest.raises(StoreUnavailable):
        await room.ended(refused)
    (await agent.next_run("kept")).end(Reply.of_text("done"))
    ended = await room.ended(await kept)
    assert ended.status.state is TaskState.COMPLETED
    check_journal(await room.entries(task.id), ended)


async def test_message_that_the_store_refuses_is_an_error_for_its_sender_only(
    room: EngineHarness, agent: ControlledAgent
) -> None:
    sent = await room.send("one")
    run = await agent.next_run()
    await room.reach(run.turn.task_id, lambda seen: len(seen) > 1)
    room.store.refuse("submit")
    lost = await room.send("two", task_id=run.turn.task_id)
    ending = asyncio.ensure_future(room.ended(lost))
    await others_move()
    room.store.refuse()
    run.end(Reply.of_text("done"))
    assert (await room.ended(sent)).status.state is TaskState.COMPLETED
    with pytest.raises(StoreUnavailable):
        await ending


async def test_other_body_under_a_known_message_id_is_refused_while_the_task_works(
    room: EngineHarness, agent: ControlledAgent
) -> None:
    await room.send("one")
    run = await agent.next_run()
    await room.reach(run.turn.task_id, lambda seen: len(seen) > 1)
    room.store.hold()
    good = await room.send("two", task_id=run.turn.task_id, message_id="m", waits=False)
    with pytest.raises(MessageIdConflict):
        await room.ended(await room.send("three", task_id=run.turn.task_id, message_id="m"))
    room.store.release()
    run.end(Reply.of_text("done"))
    (await agent.next_run()).end(Reply.of_text("done"))
    assert (await room.ended(good)).status.state is TaskState.COMPLETED
    assert [turn.body for turn in agent.turns] == ["one", "two"]


async def test_message_that_was_answered_gives_its_task_even_when_that_has_ended(
    open_room: OpenRoom,
) -> None:
    agent = ScriptedAgent(InputRequired("?"))
    room = await open_room(agent)
    task = await room.ended(await room.send())
    agent.steps = (Reply.of_text("done"),)
    answered = await room.ended(await room.send("yes", task_id=task.id, message_id="m"))
    assert is_terminal(answered.status.state)
    assert await room.ended(await room.send("yes", task_id=task.id, message_id="m")) == answered
    assert len(agent.turns) == 2


@pytest.mark.parametrize("reply", [Reply.of_text("done"), Failed("no")])
async def test_ended_task_takes_no_message(open_room: OpenRoom, reply: Reply | Failed) -> None:
    room = await open_room(ScriptedAgent(reply))
    task = await room.ended(await room.send())
    with pytest.raises(TaskTerminal):
        await room.send("more", task_id=task.id)
    assert await room.task(task.id) == task


async def test_task_whose_end_is_being_written_takes_no_message(
    room: EngineHarness, agent: ControlledAgent
) -> None:
    sent = await room.send()
    run = await agent.next_run()
    await room.reach(run.turn.task_id, lambda seen: len(seen) > 1)
    room.store.hold()
    run.end(Reply.of_text("done"))
    await room.store.wait_held("commit")
    with pytest.raises(TaskTerminal):
        await room.send("more", task_id=run.turn.task_id)
    room.store.release()
    assert (await room.ended(sent)).status.state is TaskState.COMPLETED


async def test_message_in_another_context_than_its_task_is_refused(
    room: EngineHarness, agent: ControlledAgent
) -> None:
    await room.send(context="mine")
    run = await agent.next_run()
    with pytest.raises(ContextMismatch):
        await room.send("more", task_id=run.turn.task_id, context="other")


async def test_message_without_context_gets_that_of_its_task(
    room: EngineHarness, agent: ControlledAgent
) -> None:
    await room.send(context="mine")
    run = await agent.next_run()
    more = await room.send("more", task_id=run.turn.task_id)
    await room.first(more)
    run.end(Reply.of_text("x"))
    assert (await agent.next_run()).turn.context_id == "mine"


async def test_message_on_a_task_of_somebody_else_is_not_found(
    room: EngineHarness, agent: ControlledAgent
) -> None:
    await room.send()
    run = await agent.next_run()
    with pytest.raises(TaskNotFound):
        await room.send("more", task_id=run.turn.task_id, scope=BOB)
