"""After a crash: unfinished runs are gone on with, repeated or failed; none stays as it was."""

import asyncio

import pytest
from tests.engine.conftest import OpenRoom
from tests.engine.controlled_agent import ControlledAgent
from tests.engine.event_lines import (
    artifact_texts,
    check_closed_once,
    check_journal,
    outline,
    words_of,
)
from tests.engine.harness import ALICE, HYBRID, EngineHarness, others_move, read_all

from openclaw_a2a.engine.recovery import fail_orphaned_tasks, recover_runs
from openclaw_a2a.engine.tasks import queries
from openclaw_a2a.engine.tasks.journal import Journal
from openclaw_a2a.model.agent_event import (
    InputRequired,
    MessageEnd,
    Reply,
    TextDelta,
    ToolPhase,
    ToolProgress,
    ToolReply,
)
from openclaw_a2a.model.ids import OwnerId, TaskId
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.ports import Recovery

HI = Reply.of_text("hi")


@pytest.fixture
def repeatable() -> ControlledAgent:
    return ControlledAgent(Recovery.REPEAT)


@pytest.fixture
def careful() -> ControlledAgent:
    return ControlledAgent(Recovery.FAIL)


async def no_run_is_left(room: EngineHarness) -> bool:
    """True when another engine would find nothing to take over."""
    other = OwnerId("somebody-else")
    return (
        await room.store.tasks.claim_runs(other, lease_until=room.clock.now(), expired_at=None)
        == []
    )


async def test_interrupted_run_of_a_repeatable_agent_is_run_again(
    open_room: OpenRoom, repeatable: ControlledAgent
) -> None:
    room = await open_room(repeatable)
    await room.send("hello")
    run = await repeatable.next_run()
    run.tell(TextDelta("half a"))
    before = await room.reach(run.turn.task_id, lambda seen: len(seen) == 3)
    assert await room.restart() == 1
    again = await repeatable.next_run()
    assert (again.turn.attempt, again.turn.run_id) == (2, run.turn.run_id)
    assert again.turn.message == run.turn.message
    follower = await room.follow(run.turn.task_id, cursor=3)
    again.end(TextDelta("whole answer"))
    await read_all(follower)
    task = await room.task(run.turn.task_id)
    assert task.status.state is TaskState.COMPLETED
    assert artifact_texts(task) == {"assistant-output-0001": "whole answer"}
    entries = await room.entries(task.id)
    assert entries[:3] == before
    check_journal(entries, task)
    assert await no_run_is_left(room)


async def test_interrupted_run_that_cannot_be_repeated_fails_with_a_reason(
    open_room: OpenRoom, careful: ControlledAgent
) -> None:
    room = await open_room(careful)
    await room.send()
    run = await careful.next_run()
    run.tell(TextDelta("half a"), ToolProgress(ToolPhase.START, "lookup", "1"))
    before = await room.reach(run.turn.task_id, lambda seen: len(seen) == 4)
    assert await room.restart() == 1
    task = await room.task(run.turn.task_id)
    assert task.status.state is TaskState.FAILED
    assert task.status.message is not None
    assert "cannot be repeated" in task.status.message.text
    entries = await room.entries(task.id)
    assert entries[:4] == before
    assert outline(entries[4:]) == [
        "artifact +assistant-output-0001.",
        "artifact +tool-progress-1.",
        "status failed",
    ]
    check_journal(entries, task)
    assert careful.is_idle
    assert await no_run_is_left(room)


async def test_run_that_can_be_found_again_goes_on_with_its_own_id(open_room: OpenRoom) -> None:
    agent = ControlledAgent(Recovery.REATTACH)
    room = await open_room(agent, attempts=1)
    await room.send()
    run = await agent.next_run()
    for attempt in range(2, 5):
        assert await room.restart() == 1
        before, run = run, await agent.next_run()
        assert (run.turn.run_id, run.turn.attempt) == (before.turn.run_id, attempt)
    run.end(HI)
    await read_all(await room.follow(run.turn.task_id))
    assert await room.state(run.turn.task_id) is TaskState.COMPLETED


async def test_run_is_repeated_so_often_and_not_more(
    open_room: OpenRoom, repeatable: ControlledAgent
) -> None:
    room = await open_room(repeatable, attempts=3)
    await room.send()
    run = await repeatable.next_run()
    for _ in range(2):
        await room.restart()
        await repeatable.next_run()
    await room.restart()
    assert repeatable.is_idle
    task = await room.task(run.turn.task_id)
    assert task.status.state is TaskState.FAILED
    assert "3 times" in words_of((await room.entries(task.id))[-1].event)
    assert await no_run_is_left(room)


async def test_run_of_an_agent_that_is_gone_fails_by_its_name(
    open_room: OpenRoom, repeatable: ControlledAgent
) -> None:
    room = await open_room(repeatable)
    await room.send()
    run = await repeatable.next_run()
    await room.crash()
    room.cast.agents.clear()
    await room.start()
    task = await room.task(run.turn.task_id)
    assert task.status.state is TaskState.FAILED
    assert "main" in words_of((await room.entries(task.id))[-1].event)


async def test_message_that_waited_is_answered_after_the_crash_whatever_its_agent(
    open_room: OpenRoom, careful: ControlledAgent
) -> None:
    room = await open_room(careful)
    await room.send("one", context="c")
    await careful.next_run()
    waiting = await room.shown(await room.send("two", context="c"))
    assert await room.restart() == 2
    run = await careful.next_run()
    assert (run.turn.body, run.turn.attempt) == ("two", 1)
    run.end(HI)
    await read_all(await room.follow(waiting.id))
    assert await room.state(waiting.id) is TaskState.COMPLETED


async def test_waiting_messages_keep_their_order(
    open_room: OpenRoom, repeatable: ControlledAgent
) -> None:
    room = await open_room(repeatable)
    for number in range(4):
        await room.send(str(number), context="c")
    await repeatable.next_run()
    assert await room.restart() == 4
    late = await room.send("late", context="c")
    for body in ("0", "1", "2", "3", "late"):
        run = await repeatable.next_run()
        assert run.turn.body == body
        run.end(HI)
    assert (await room.ended(late)).status.state is TaskState.COMPLETED


async def test_sender_that_repeats_its_message_after_the_crash_gets_the_same_task(
    open_room: OpenRoom, repeatable: ControlledAgent
) -> None:
    room = await open_room(repeatable)
    task = await room.shown(await room.send(message_id="m"))
    await repeatable.next_run()
    await room.restart()
    again = await room.send(message_id="m")
    ending = asyncio.ensure_future(room.ended(again))
    (await repeatable.next_run()).end(HI)
    assert (await ending).id == task.id
    assert repeatable.is_idle


async def test_direct_run_is_repeated_and_answers_who_asks_again(
    open_room: OpenRoom, repeatable: ControlledAgent
) -> None:
    room = await open_room(repeatable)
    room.rules = HYBRID
    await room.send(message_id="m")
    await room.store_is_quiet()
    await repeatable.next_run()
    assert await room.restart() == 1
    again = await room.send(message_id="m")
    asking = asyncio.ensure_future(room.outcome(again))
    (await repeatable.next_run()).end(HI)
    answer = await asking
    assert await room.outcome(await room.send(message_id="m")) == answer


async def test_direct_run_that_cannot_be_repeated_becomes_a_failed_task(
    open_room: OpenRoom, careful: ControlledAgent
) -> None:
    room = await open_room(careful)
    room.rules = HYBRID
    await room.send("hello", message_id="m")
    await careful.next_run()
    assert await room.restart() == 1
    task = await room.ended(await room.send("hello", message_id="m"))
    assert task.status.state is TaskState.FAILED
    assert task.history[0].text == "hello"
    check_journal(await room.entries(task.id), task)
    assert await no_run_is_left(room)


async def test_finished_and_paused_tasks_are_left_alone(
    open_room: OpenRoom, careful: ControlledAgent
) -> None:
    room = await open_room(careful)
    done, waits = await room.send("a"), await room.send("b")
    (await careful.next_run("a")).end(HI)
    (await careful.next_run("b")).end(InputRequired("?", resume="token"))
    ended, paused = await room.ended(done), await room.ended(waits)
    assert await room.restart() == 0
    assert await room.task(ended.id) == ended
    assert await room.task(paused.id) == paused
    await room.send("answer", task_id=paused.id)
    assert (await careful.next_run()).turn.resume == "token"


async def test_token_survives_a_crash_of_the_run_that_used_it(
    open_room: OpenRoom, repeatable: ControlledAgent
) -> None:
    room = await open_room(repeatable)
    sent = await room.send()
    (await repeatable.next_run()).end(InputRequired("?", resume={"at": 3}))
    task = await room.ended(sent)
    await room.send("answer", task_id=task.id)
    await repeatable.next_run()
    await room.restart()
    run = await repeatable.next_run()
    assert (run.turn.body, run.turn.resume) == ("answer", {"at": 3})


async def test_token_of_a_pause_that_a_waiting_message_answers_survives_too(
    open_room: OpenRoom, repeatable: ControlledAgent
) -> None:
    room = await open_room(repeatable)
    await room.send("one")
    run = await repeatable.next_run()
    await room.send("two", task_id=run.turn.task_id)
    run.end(InputRequired("?", resume="token"))
    again = await repeatable.next_run()
    assert again.turn.resume == "token"
    await room.reach(run.turn.task_id, lambda seen: outline(seen)[-1:] == ["status working"])
    await room.restart()
    third = await repeatable.next_run()
    assert (third.turn.body, third.turn.resume) == ("two", "token")


async def test_message_behind_a_run_that_failed_in_the_crash_is_still_answered(
    open_room: OpenRoom, careful: ControlledAgent
) -> None:
    room = await open_room(careful)
    await room.send("one")
    run = await careful.next_run()
    await room.send("two", task_id=run.turn.task_id, message_id="m")
    assert await room.restart() == 2
    second = await careful.next_run()
    assert second.turn.body == "two"
    second.end(Reply.of_text("answer two"))
    await read_all(await room.follow(run.turn.task_id))
    task = await room.task(run.turn.task_id)
    assert task.status.state is TaskState.COMPLETED
    said = [message.text for message in task.history]
    assert (said[0], said[2:]) == ("one", ["two", "answer two"])
    assert "stopped" in said[1]
    assert await no_run_is_left(room)
    assert await room.ended(await room.send("two", task_id=task.id, message_id="m")) == task


async def test_message_on_a_task_that_is_repeated_waits_for_its_turn_again(
    open_room: OpenRoom, repeatable: ControlledAgent
) -> None:
    room = await open_room(repeatable)
    await room.send("one")
    run = await repeatable.next_run()
    await room.send("two", task_id=run.turn.task_id)
    assert await room.restart() == 2
    (await repeatable.next_run()).end(Reply.of_text("answer one"))
    again = await repeatable.next_run()
    assert again.turn.body == "two"
    again.end(Reply.of_text("answer two"))
    await read_all(await room.follow(run.turn.task_id))
    task = await room.task(run.turn.task_id)
    assert task.status.state is TaskState.COMPLETED
    assert [message.text for message in task.history] == [
        "one",
        "answer one",
        "two",
        "answer two",
    ]
    check_journal(await room.entries(task.id), task)


async def test_repeated_run_writes_over_its_own_outputs_only(
    open_room: OpenRoom, repeatable: ControlledAgent
) -> None:
    room = await open_room(repeatable)
    sent = await room.send("one")
    found = ToolReply((Part.of_text("found"),))
    (await repeatable.next_run()).end(found, Reply.of_text("first"), InputRequired("?"))
    task = await room.ended(sent)
    await room.send("two", task_id=task.id)
    run = await repeatable.next_run()
    run.tell(found, Reply.of_text("draft"))
    await room.reach(
        task.id, lambda seen: outline(seen)[-1:] == ["artifact assistant-output-0002."]
    )
    await room.restart()
    (await repeatable.next_run()).end(found, Reply.of_text("second"))
    await read_all(await room.follow(task.id))
    assert artifact_texts(await room.task(task.id)) == {
        "tool-result-0001": "found",
        "assistant-output-0001": "first",
        "tool-result-0002": "found",
        "assistant-output-0002": "second",
    }


async def test_run_that_began_but_wrote_nothing_does_not_write_over_earlier_outputs(
    open_room: OpenRoom, repeatable: ControlledAgent
) -> None:
    room = await open_room(repeatable)
    await room.send("one")
    run = await repeatable.next_run()
    await room.send("two", task_id=run.turn.task_id)
    room.store.hold()
    run.end(Reply.of_text("answer one"))
    await room.store.let_through_until("start_run")
    await repeatable.next_run()
    await room.restart()
    (await repeatable.next_run("two")).end(Reply.of_text("answer two"))
    await read_all(await room.follow(run.turn.task_id))
    task = await room.task(run.turn.task_id)
    assert artifact_texts(task) == {
        "assistant-output-0001": "answer one",
        "assistant-output-0002": "answer two",
    }
    assert [message.text for message in task.history].count("two") == 1
    check_journal(await room.entries(task.id), task)


async def test_output_that_a_repeated_run_does_not_make_again_is_closed(
    open_room: OpenRoom, repeatable: ControlledAgent
) -> None:
    room = await open_room(repeatable)
    await room.send("one")
    run = await repeatable.next_run()
    run.tell(TextDelta("a"), MessageEnd(), TextDelta("b"))
    await room.reach(
        run.turn.task_id, lambda seen: outline(seen)[-1:] == ["artifact assistant-output-0002"]
    )
    await room.restart()
    (await repeatable.next_run()).end(Reply.of_text("only one"))
    await read_all(await room.follow(run.turn.task_id))
    lines = outline(await room.entries(run.turn.task_id))
    second = [line for line in lines if line.endswith(("output-0002", "output-0002."))]
    assert second == ["artifact assistant-output-0002", "artifact +assistant-output-0002."]


async def test_engine_takes_over_runs_whose_lease_is_over(
    open_room: OpenRoom, repeatable: ControlledAgent
) -> None:
    room = await open_room(repeatable, lease_s=30)
    await room.send()
    await repeatable.next_run()
    await room.crash()
    await room.start_without_recovery()
    assert await recover_runs(room.engine, expired_at=room.clock.now()) == 0
    room.clock.advance(31)
    assert await recover_runs(room.engine, expired_at=room.clock.now()) == 1
    (await repeatable.next_run()).end(HI)
    await others_move()


async def test_old_engine_that_lives_on_can_write_nothing_any_more(
    open_room: OpenRoom, repeatable: ControlledAgent
) -> None:
    room = await open_room(repeatable)
    await room.send()
    old = await repeatable.next_run()
    await room.reach(old.turn.task_id, lambda seen: len(seen) == 2)
    old_engine = room.engine
    room.engine = room.another_engine()
    assert await recover_runs(room.engine, expired_at=None) == 1
    new = await repeatable.next_run()
    old.tell(TextDelta("from the dead"))
    old.end()
    await others_move()
    new.end(HI)
    await read_all(await room.follow(old.turn.task_id))
    await old_engine.stop()
    task = await room.task(TaskId(old.turn.task_id))
    assert artifact_texts(task) == {"assistant-output-0001": "hi"}
    check_journal(await room.entries(task.id), task)


async def test_nothing_happens_to_an_empty_store(room: EngineHarness) -> None:
    assert await recover_runs(room.engine, expired_at=None) == 0


async def test_closed_artifacts_stay_closed_when_a_run_fails(
    open_room: OpenRoom, careful: ControlledAgent
) -> None:
    room = await open_room(careful)
    await room.send()
    run = await careful.next_run()
    run.tell(Reply.of_text("one"), TextDelta("two"))
    await room.reach(run.turn.task_id, lambda seen: len(seen) == 4)
    await room.restart()
    check_closed_once([entry.event for entry in await room.entries(run.turn.task_id)])


async def test_active_task_that_has_no_run_is_failed(
    open_room: OpenRoom, careful: ControlledAgent
) -> None:
    room = await open_room(careful)
    await room.send()
    run = await careful.next_run()
    await room.store_is_quiet()
    await room.crash()
    await room.start_without_recovery()
    owner, until = room.engine.owner, room.clock.now()
    (record,) = await room.store.tasks.claim_runs(owner, lease_until=until, expired_at=None)
    stored = await queries.get_task(room.engine, ALICE, run.turn.task_id)
    await Journal.of_stored(room.store.tasks, stored).end([], run=record)
    assert await fail_orphaned_tasks(room.engine) == 1
    assert await room.state(run.turn.task_id) is TaskState.FAILED
    assert await fail_orphaned_tasks(room.engine) == 0
