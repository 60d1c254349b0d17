"""After a crash: unfinished runs are gone on with, repeated or failed; none stays as it was."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from tests.engine.conftest import OpenHarness
from tests.engine.controlled_agent import ControlledAgent
from tests.engine.event_lines import (
    artifact_texts,
    check_closed_once,
    check_journal,
    event_lines,
    event_text,
)
from tests.engine.harness import ALICE, HYBRID, Harness, read_all, yield_to_others

from openclaw_a2a.engine.recovery import fail_orphaned_tasks, recover_runs
from openclaw_a2a.engine.tasks import queries
from openclaw_a2a.model.agent_event import (
    AgentEvent,
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
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.ports import Recovery

HI = Reply.of_text("hi")


@pytest.fixture
def repeatable() -> ControlledAgent:
    return ControlledAgent(Recovery.REPEAT)


@pytest.fixture
def careful() -> ControlledAgent:
    return ControlledAgent(Recovery.FAIL)


async def no_run_is_left(harness: Harness) -> bool:
    """True when another engine would find nothing to take over."""
    other = OwnerId("somebody-else")
    return await harness.store.tasks.claim_runs(other) == []


async def test_interrupted_run_of_a_repeatable_agent_is_run_again(
    open_harness: OpenHarness, repeatable: ControlledAgent
) -> None:
    harness = await open_harness(repeatable)
    await harness.send("hello")
    run = await repeatable.next_run()
    run.tell(TextDelta("half a"))
    before = await harness.reach(run.turn.task_id, lambda seen: len(seen) == 3)
    assert await harness.restart() == 1
    again = await repeatable.next_run()
    assert (again.turn.attempt, again.turn.run_id) == (2, run.turn.run_id)
    assert again.turn.message == run.turn.message
    follower = await harness.follow(run.turn.task_id, cursor=3)
    again.end(TextDelta("whole answer"))
    await read_all(follower)
    task = await harness.task(run.turn.task_id)
    assert task.status.state is TaskState.COMPLETED
    assert artifact_texts(task) == {"assistant-output-0001": "whole answer"}
    entries = await harness.entries(task.id)
    assert entries[:3] == before
    check_journal(entries, task)
    assert await no_run_is_left(harness)


async def test_interrupted_run_that_cannot_be_repeated_fails_with_a_reason(
    open_harness: OpenHarness, careful: ControlledAgent
) -> None:
    harness = await open_harness(careful)
    await harness.send()
    run = await careful.next_run()
    run.tell(TextDelta("half a"), ToolProgress(ToolPhase.START, "lookup", "1"))
    before = await harness.reach(run.turn.task_id, lambda seen: len(seen) == 4)
    assert await harness.restart() == 1
    task = await harness.task(run.turn.task_id)
    assert task.status.state is TaskState.FAILED
    assert task.status.message is not None
    assert "cannot be repeated" in task.status.message.text
    entries = await harness.entries(task.id)
    assert entries[:4] == before
    assert event_lines(entries[4:]) == [
        "artifact +assistant-output-0001.",
        "artifact +tool-progress-1.",
        "status failed",
    ]
    check_journal(entries, task)
    assert careful.is_idle
    assert await no_run_is_left(harness)


async def test_reattachable_run_continues_with_its_own_id(
    open_harness: OpenHarness,
) -> None:
    agent = ControlledAgent(Recovery.REATTACH)
    harness = await open_harness(agent, attempts=1)
    await harness.send()
    run = await agent.next_run()
    for attempt in range(2, 5):
        assert await harness.restart() == 1
        before, run = run, await agent.next_run()
        assert (run.turn.run_id, run.turn.attempt) == (before.turn.run_id, attempt)
    run.end(HI)
    await read_all(await harness.follow(run.turn.task_id))
    assert await harness.state(run.turn.task_id) is TaskState.COMPLETED


@pytest.mark.parametrize("recovery", [Recovery.REATTACH, Recovery.REPEAT])
@pytest.mark.parametrize("is_whole", [False, True])
async def test_attempt_after_a_crash_adds_only_what_its_readers_have_not_seen(
    open_harness: OpenHarness, recovery: Recovery, is_whole: bool
) -> None:
    agent = ControlledAgent(recovery)
    harness = await open_harness(agent)
    await harness.send("hello")
    run = await agent.next_run()
    run.tell(TextDelta("First."))
    run.tell(MessageEnd())
    run.tell(TextDelta("half a"))
    before = await harness.reach(
        run.turn.task_id, lambda seen: "half a" in map(event_text, [one.event for one in seen])
    )
    assert await harness.restart() == 1
    again = await agent.next_run()
    follower = await harness.follow(run.turn.task_id, cursor=before[-1].sequence)
    if is_whole:
        again.end(Reply.of_text("First."), Reply.of_text("half a loaf"))
    else:
        again.end(TextDelta("Fir"), TextDelta("st."), MessageEnd(), TextDelta("half a loaf"))
    after = [entry.event for entry in await read_all(follower)]
    shown = [event for event in after if event_lines([event])[0].startswith("artifact")]
    assert set(event_lines(shown)) <= {
        "artifact +assistant-output-0002",
        "artifact +assistant-output-0002.",
    }
    assert "".join(map(event_text, shown)) == " loaf"
    task = await harness.task(run.turn.task_id)
    assert list(artifact_texts(task).values()) == ["First.", "half a loaf"]
    check_journal(await harness.entries(task.id), task)


async def test_run_is_repeated_up_to_the_limit_of_attempts(
    open_harness: OpenHarness, repeatable: ControlledAgent
) -> None:
    harness = await open_harness(repeatable, attempts=3)
    await harness.send()
    run = await repeatable.next_run()
    for _ in range(2):
        await harness.restart()
        await repeatable.next_run()
    await harness.restart()
    assert repeatable.is_idle
    task = await harness.task(run.turn.task_id)
    assert task.status.state is TaskState.FAILED
    assert "3 times" in event_text((await harness.entries(task.id))[-1].event)
    assert await no_run_is_left(harness)


async def test_crash_in_the_middle_of_recovery_counts_as_no_attempt_of_runs_that_were_not_asked(
    open_harness: OpenHarness, repeatable: ControlledAgent
) -> None:
    harness = await open_harness(repeatable, attempts=2)
    for _ in range(2):
        await harness.send()
        await repeatable.next_run()
    await harness.crash()
    for _ in range(3):
        await harness.start_without_recovery()
        # It reads the events of one run after the other, and is not let to read all of them.
        harness.store.resting["read_events"] = asyncio.Event()
        recovering = asyncio.ensure_future(recover_runs(harness.engine))
        await yield_to_others(50)
        await harness.store_is_quiet()
        await yield_to_others(50)
        recovering.cancel()
        await asyncio.wait([recovering])
        await harness.crash()
    assert repeatable.is_idle
    assert await harness.start() == 2
    runs = [await repeatable.next_run() for _ in range(2)]
    assert [run.turn.attempt for run in runs] == [2, 2]


async def test_run_of_an_agent_that_was_removed_fails_with_its_name(
    open_harness: OpenHarness, repeatable: ControlledAgent
) -> None:
    harness = await open_harness(repeatable)
    await harness.send()
    run = await repeatable.next_run()
    await harness.crash()
    harness.agents.clear()
    await harness.start()
    task = await harness.task(run.turn.task_id)
    assert task.status.state is TaskState.FAILED
    assert "main" in event_text((await harness.entries(task.id))[-1].event)


async def test_message_that_waited_is_answered_after_the_crash_whatever_its_agent(
    open_harness: OpenHarness, careful: ControlledAgent
) -> None:
    harness = await open_harness(careful)
    await harness.send("one", context="c")
    await careful.next_run()
    waiting = await harness.shown(await harness.send("two", context="c"))
    assert await harness.restart() == 2
    run = await careful.next_run()
    assert (run.turn.body, run.turn.attempt) == ("two", 1)
    run.end(HI)
    await read_all(await harness.follow(waiting.id))
    assert await harness.state(waiting.id) is TaskState.COMPLETED


async def test_waiting_messages_keep_their_order(
    open_harness: OpenHarness, repeatable: ControlledAgent
) -> None:
    harness = await open_harness(repeatable)
    for number in range(4):
        await harness.send(str(number), context="c")
    await repeatable.next_run()
    assert await harness.restart() == 4
    late = await harness.send("late", context="c")
    for body in ("0", "1", "2", "3", "late"):
        run = await repeatable.next_run()
        assert run.turn.body == body
        run.end(HI)
    assert (await harness.ended(late)).status.state is TaskState.COMPLETED


async def test_sender_that_repeats_its_message_after_the_crash_gets_the_same_task(
    open_harness: OpenHarness, repeatable: ControlledAgent
) -> None:
    harness = await open_harness(repeatable)
    task = await harness.shown(await harness.send(message_id="m"))
    await repeatable.next_run()
    await harness.restart()
    again = await harness.send(message_id="m")
    ending = asyncio.ensure_future(harness.ended(again))
    (await repeatable.next_run()).end(HI)
    assert (await ending).id == task.id
    assert repeatable.is_idle


async def test_direct_run_is_repeated_and_answers_the_repeated_message(
    open_harness: OpenHarness, repeatable: ControlledAgent
) -> None:
    harness = await open_harness(repeatable)
    harness.rules = HYBRID
    await harness.send(message_id="m")
    await harness.store_is_quiet()
    await repeatable.next_run()
    assert await harness.restart() == 1
    again = await harness.send(message_id="m")
    asking = asyncio.ensure_future(harness.outcome(again))
    (await repeatable.next_run()).end(HI)
    answer = await asking
    assert await harness.outcome(await harness.send(message_id="m")) == answer


async def test_direct_run_that_cannot_be_repeated_becomes_a_failed_task(
    open_harness: OpenHarness, careful: ControlledAgent
) -> None:
    harness = await open_harness(careful)
    harness.rules = HYBRID
    await harness.send("hello", message_id="m")
    await careful.next_run()
    assert await harness.restart() == 1
    task = await harness.ended(await harness.send("hello", message_id="m"))
    assert task.status.state is TaskState.FAILED
    assert task.history[0].text == "hello"
    check_journal(await harness.entries(task.id), task)
    assert await no_run_is_left(harness)


async def test_finished_and_paused_tasks_are_left_alone(
    open_harness: OpenHarness, careful: ControlledAgent
) -> None:
    harness = await open_harness(careful)
    done, waits = await harness.send("a"), await harness.send("b")
    (await careful.next_run("a")).end(HI)
    (await careful.next_run("b")).end(InputRequired("?", resume="token"))
    ended, paused = await harness.ended(done), await harness.ended(waits)
    assert await harness.restart() == 0
    assert await harness.task(ended.id) == ended
    assert await harness.task(paused.id) == paused
    await harness.send("answer", task_id=paused.id)
    assert (await careful.next_run()).turn.resume == "token"


async def test_token_survives_a_crash_of_the_run_that_used_it(
    open_harness: OpenHarness, repeatable: ControlledAgent
) -> None:
    harness = await open_harness(repeatable)
    sent = await harness.send()
    (await repeatable.next_run()).end(InputRequired("?", resume={"at": 3}))
    task = await harness.ended(sent)
    await harness.send("answer", task_id=task.id)
    await repeatable.next_run()
    await harness.restart()
    run = await repeatable.next_run()
    assert (run.turn.body, run.turn.resume) == ("answer", {"at": 3})


async def test_token_of_a_pause_that_a_waiting_message_answers_survives_too(
    open_harness: OpenHarness, repeatable: ControlledAgent
) -> None:
    harness = await open_harness(repeatable)
    await harness.send("one")
    run = await repeatable.next_run()
    await harness.send("two", task_id=run.turn.task_id)
    run.end(InputRequired("?", resume="token"))
    again = await repeatable.next_run()
    assert again.turn.resume == "token"
    await harness.reach(run.turn.task_id, lambda seen: event_lines(seen)[-1:] == ["status working"])
    await harness.restart()
    third = await repeatable.next_run()
    assert (third.turn.body, third.turn.resume) == ("two", "token")


async def test_message_behind_a_run_that_failed_in_the_crash_is_still_answered(
    open_harness: OpenHarness, careful: ControlledAgent
) -> None:
    harness = await open_harness(careful)
    await harness.send("one")
    run = await careful.next_run()
    await harness.send("two", task_id=run.turn.task_id, message_id="m")
    assert await harness.restart() == 2
    second = await careful.next_run()
    assert second.turn.body == "two"
    second.end(Reply.of_text("answer two"))
    await read_all(await harness.follow(run.turn.task_id))
    task = await harness.task(run.turn.task_id)
    assert task.status.state is TaskState.COMPLETED
    said = [message.text for message in task.history]
    assert (said[0], said[2:]) == ("one", ["two", "answer two"])
    assert "stopped" in said[1]
    assert await no_run_is_left(harness)
    assert await harness.ended(await harness.send("two", task_id=task.id, message_id="m")) == task


class AnsweringAgent(ControlledAgent):
    """Answers by itself from some moment on."""

    answers = False

    async def run(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
        if self.answers:
            yield Reply.of_text(f"answer {turn.body}")
            return
        async for event in super().run(turn):
            yield event


async def test_message_is_answered_although_the_run_before_it_ends_at_once(
    open_harness: OpenHarness,
) -> None:
    """Other runs to recover lie between the two: time enough for the first one to end its task."""
    agent = AnsweringAgent(Recovery.REPEAT)
    harness = await open_harness(agent)
    await harness.send("one")
    task_id = (await agent.next_run()).turn.task_id
    for number in range(3):
        await harness.send(f"other {number}")
        await agent.next_run()
    await harness.send("two", task_id=task_id)
    agent.answers = True
    assert await harness.restart() == 5
    await harness.all_is_quiet()
    task = await harness.task(task_id)
    assert task.status.state is TaskState.COMPLETED
    assert [one.text for one in task.history] == ["one", "answer one", "two", "answer two"]


async def test_message_on_a_task_that_is_repeated_waits_for_its_turn_again(
    open_harness: OpenHarness, repeatable: ControlledAgent
) -> None:
    harness = await open_harness(repeatable)
    await harness.send("one")
    run = await repeatable.next_run()
    await harness.send("two", task_id=run.turn.task_id)
    assert await harness.restart() == 2
    (await repeatable.next_run()).end(Reply.of_text("answer one"))
    again = await repeatable.next_run()
    assert again.turn.body == "two"
    again.end(Reply.of_text("answer two"))
    await read_all(await harness.follow(run.turn.task_id))
    task = await harness.task(run.turn.task_id)
    assert task.status.state is TaskState.COMPLETED
    assert [message.text for message in task.history] == [
        "one",
        "answer one",
        "two",
        "answer two",
    ]
    check_journal(await harness.entries(task.id), task)


async def test_repeated_run_replaces_only_its_own_outputs(
    open_harness: OpenHarness, repeatable: ControlledAgent
) -> None:
    harness = await open_harness(repeatable)
    sent = await harness.send("one")
    found = ToolReply((Part.of_text("found"),))
    (await repeatable.next_run()).end(found, Reply.of_text("first"), InputRequired("?"))
    task = await harness.ended(sent)
    await harness.send("two", task_id=task.id)
    run = await repeatable.next_run()
    run.tell(found, Reply.of_text("draft"))
    await harness.reach(
        task.id, lambda seen: event_lines(seen)[-1:] == ["artifact assistant-output-0002."]
    )
    await harness.restart()
    (await repeatable.next_run()).end(found, Reply.of_text("second"))
    await read_all(await harness.follow(task.id))
    assert artifact_texts(await harness.task(task.id)) == {
        "tool-result-0001": "found",
        "assistant-output-0001": "first",
        "tool-result-0002": "found",
        "assistant-output-0002": "second",
    }


async def test_run_that_started_but_wrote_nothing_does_not_replace_earlier_outputs(
    open_harness: OpenHarness, repeatable: ControlledAgent
) -> None:
    harness = await open_harness(repeatable)
    await harness.send("one")
    run = await repeatable.next_run()
    await harness.send("two", task_id=run.turn.task_id)
    harness.store.hold()
    run.end(Reply.of_text("answer one"))
    await harness.store.let_through_until("start_run")
    await repeatable.next_run()
    await harness.restart()
    (await repeatable.next_run("two")).end(Reply.of_text("answer two"))
    await read_all(await harness.follow(run.turn.task_id))
    task = await harness.task(run.turn.task_id)
    assert artifact_texts(task) == {
        "assistant-output-0001": "answer one",
        "assistant-output-0002": "answer two",
    }
    assert [message.text for message in task.history].count("two") == 1
    check_journal(await harness.entries(task.id), task)


async def test_output_that_a_repeated_run_does_not_make_again_is_closed(
    open_harness: OpenHarness, repeatable: ControlledAgent
) -> None:
    harness = await open_harness(repeatable)
    await harness.send("one")
    run = await repeatable.next_run()
    run.tell(TextDelta("a"), MessageEnd(), TextDelta("b"))
    await harness.reach(
        run.turn.task_id, lambda seen: event_lines(seen)[-1:] == ["artifact assistant-output-0002"]
    )
    await harness.restart()
    (await repeatable.next_run()).end(Reply.of_text("only one"))
    await read_all(await harness.follow(run.turn.task_id))
    lines = event_lines(await harness.entries(run.turn.task_id))
    second = [line for line in lines if line.endswith(("output-0002", "output-0002."))]
    assert second == ["artifact assistant-output-0002", "artifact +assistant-output-0002."]


async def test_an_engine_claims_what_another_one_left_at_once(
    open_harness: OpenHarness, repeatable: ControlledAgent
) -> None:
    harness = await open_harness(repeatable)
    await harness.send()
    await repeatable.next_run()
    await harness.crash()
    await harness.start_without_recovery()
    assert await recover_runs(harness.engine) == 1
    assert await recover_runs(harness.engine) == 0
    (await repeatable.next_run()).end(HI)
    await yield_to_others()


async def test_old_engine_cannot_write_after_its_runs_were_claimed(
    open_harness: OpenHarness, repeatable: ControlledAgent
) -> None:
    harness = await open_harness(repeatable)
    await harness.send()
    old = await repeatable.next_run()
    await harness.reach(old.turn.task_id, lambda seen: len(seen) == 2)
    old_engine = harness.engine
    harness.engine = harness.another_engine()
    assert await recover_runs(harness.engine) == 1
    new = await repeatable.next_run()
    old.tell(TextDelta("from the dead"))
    old.end()
    await yield_to_others()
    new.end(HI)
    await read_all(await harness.follow(old.turn.task_id))
    await old_engine.stop()
    task = await harness.task(TaskId(old.turn.task_id))
    assert artifact_texts(task) == {"assistant-output-0001": "hi"}
    check_journal(await harness.entries(task.id), task)


async def test_nothing_happens_to_an_empty_store(harness: Harness) -> None:
    assert await recover_runs(harness.engine) == 0


async def test_closed_artifacts_stay_closed_when_a_run_fails(
    open_harness: OpenHarness, careful: ControlledAgent
) -> None:
    harness = await open_harness(careful)
    await harness.send()
    run = await careful.next_run()
    run.tell(Reply.of_text("one"), TextDelta("two"))
    await harness.reach(run.turn.task_id, lambda seen: len(seen) == 4)
    await harness.restart()
    check_closed_once([entry.event for entry in await harness.entries(run.turn.task_id)])


async def leave_orphan(harness: Harness, agent: ControlledAgent) -> TaskId:
    """A task that is `working` in the store although it has no run."""
    await harness.send()
    run = await agent.next_run()
    await harness.store_is_quiet()
    await harness.crash()
    await harness.start_without_recovery()
    (record,) = await harness.store.tasks.claim_runs(harness.engine.owner)
    stored = await queries.get_task(harness.engine, ALICE, run.turn.task_id)
    await harness.engine.journal_of(stored).end([], run=record)
    return run.turn.task_id


async def test_active_task_that_has_no_run_is_failed(
    open_harness: OpenHarness, careful: ControlledAgent
) -> None:
    harness = await open_harness(careful)
    task_id = await leave_orphan(harness, careful)
    assert await fail_orphaned_tasks(harness.engine) == 1
    assert await harness.state(task_id) is TaskState.FAILED
    assert await fail_orphaned_tasks(harness.engine) == 0


async def test_active_task_without_a_run_is_not_failed_while_another_caller_ends_it(
    open_harness: OpenHarness, careful: ControlledAgent
) -> None:
    harness = await open_harness(careful)
    task_id = await leave_orphan(harness, careful)
    engine = harness.engine
    async with engine.task_lock(task_id):
        failing = asyncio.ensure_future(fail_orphaned_tasks(engine))
        await yield_to_others()
        stored = await queries.get_task(engine, ALICE, task_id)
        await engine.end_stored_task(stored, TaskState.CANCELED, "canceled")
    await failing
    assert await harness.state(task_id) is TaskState.CANCELED
