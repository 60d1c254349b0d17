"""Sending: what comes back, once per message, in order within a context and side by side beyond."""

import asyncio

import msgspec
import pytest
from inline_snapshot import snapshot
from tests.engine.conftest import OpenHarness
from tests.engine.controlled_agent import ControlledAgent, ScriptedAgent
from tests.engine.event_lines import check_journal, event_lines
from tests.engine.harness import ALICE, BOB, HYBRID, Harness, yield_to_others

from openclaw_a2a.engine.tasks.active_task import DirectAnswer, TaskCreated, TaskFinished
from openclaw_a2a.engine.tasks.submit import SubmitRequest, submit
from openclaw_a2a.model.agent_event import Failed, InputRequired, Note, Reply, TextDelta
from openclaw_a2a.model.errors import (
    Draining,
    InvalidParams,
    MessageIdConflict,
    OutputNotAccepted,
    PartNotAccepted,
    TaskNotFound,
)
from openclaw_a2a.model.ids import MessageId, OwnerId
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.ports import Recovery, TaskQuery

HI = Reply.of_text("hi")


def message_of(answer: DirectAnswer | TaskFinished | TaskCreated) -> Message:
    assert isinstance(answer, DirectAnswer)
    return msgspec.json.decode(answer.message, type=Message)


async def tasks_of(harness: Harness) -> list[str]:
    page = await harness.store.tasks.list_tasks(TaskQuery(ALICE, limit=100))
    return [stored.head.id for stored in page.tasks]


# ---------------------------------------------------------------- what comes back


async def test_task_is_shown_as_submitted_with_the_message_and_ends_completed(
    open_harness: OpenHarness,
) -> None:
    harness = await open_harness(ScriptedAgent(TextDelta("h"), TextDelta("i")))
    sent = await harness.send("hello")
    shown = await harness.shown(sent)
    assert shown.status.state is TaskState.SUBMITTED
    assert [message.text for message in shown.history] == ["hello"]
    task = await harness.ended(sent)
    assert task.status.state is TaskState.COMPLETED
    assert [message.text for message in task.history] == ["hello", "hi"]
    assert await harness.task(task.id) == task
    check_journal(await harness.entries(task.id), task)


async def test_direct_answer_is_one_message_and_no_task(open_harness: OpenHarness) -> None:
    harness = await open_harness(ScriptedAgent(HI))
    harness.rules = HYBRID
    sent = await harness.send(context="mine")
    answer = message_of(await harness.outcome(sent))
    assert (answer.text, answer.context_id, answer.task_id) == ("hi", "mine", None)
    assert await tasks_of(harness) == []
    assert await harness.first(sent) == await harness.outcome(sent)


async def test_run_that_becomes_a_task_is_shown_with_everything_in_order(
    open_harness: OpenHarness,
) -> None:
    harness = await open_harness(
        ScriptedAgent(TextDelta("well, "), Note("looking"), TextDelta("yes"))
    )
    harness.rules = HYBRID
    sent = await harness.send("hello")
    first = await harness.first(sent)
    assert isinstance(first, TaskCreated)
    assert (first.task.status.state, first.sequence) == (TaskState.SUBMITTED, 0)
    task = await harness.ended(sent)
    entries = await harness.entries(task.id)
    check_journal(entries, task)
    assert event_lines(entries[:4]) == snapshot(
        [
            "status submitted",
            "status working",
            "artifact assistant-output-0001",
            "status working",
        ]
    )


async def test_non_blocking_send_is_a_task_even_when_a_message_would_do(
    harness: Harness, agent: ControlledAgent
) -> None:
    harness.rules = HYBRID
    task = await harness.shown(await harness.send(is_blocking=False))
    assert task.status.state is TaskState.SUBMITTED
    (await agent.next_run()).end(HI)
    await harness.reach(task.id, lambda seen: event_lines(seen)[-1:] == ["status completed"])


@pytest.mark.parametrize("step", [Failed("no luck"), RuntimeError("no luck")])
async def test_failure_is_a_failed_task_with_the_reason(
    open_harness: OpenHarness, step: Failed | RuntimeError
) -> None:
    harness = await open_harness(ScriptedAgent(TextDelta("wait"), step))
    harness.rules = HYBRID
    task = await harness.ended(await harness.send())
    assert task.status.state is TaskState.FAILED
    assert task.status.message is not None
    assert task.status.message.text == "no luck"


async def test_exception_without_a_message_is_named(open_harness: OpenHarness) -> None:
    harness = await open_harness(ScriptedAgent(RuntimeError()))
    task = await harness.ended(await harness.send())
    assert task.status.message is not None
    assert task.status.message.text == "RuntimeError"


async def test_object_that_is_no_event_fails_the_run_by_its_type(open_harness: OpenHarness) -> None:
    harness = await open_harness(ScriptedAgent("text"))  # pyright: ignore[reportArgumentType] - the point
    task = await harness.ended(await harness.send())
    assert task.status.state is TaskState.FAILED
    assert task.status.message is not None
    assert "str" in task.status.message.text


async def test_unknown_agent_is_a_failed_task(harness: Harness) -> None:
    harness.agents.clear()
    task = await harness.ended(await harness.send())
    assert task.status.state is TaskState.FAILED


async def test_turn_has_everything_about_the_message(
    harness: Harness, agent: ControlledAgent
) -> None:
    other = await harness.send("before")
    (await agent.next_run()).end(HI)
    before = await harness.ended(other)
    foreign = await harness.send("secret", scope=BOB)
    (await agent.next_run()).end(HI)
    secret = (await harness.ended(foreign)).id
    await harness.send("hello", context="mine", references=(before.id, secret, "unknown"))
    turn = (await agent.next_run()).turn
    assert (turn.body, turn.raw_body, turn.context_id) == ("hello", "hello", "mine")
    assert turn.session_key == "agent:main:a2a:alice:mine"
    assert (turn.sender, turn.recipient) == ("a2a:alice", "a2a:default")
    assert turn.thread_id == turn.task_id
    assert [task.id for task in turn.reference_tasks] == [before.id]
    assert turn.attempt == 1


async def test_task_whose_answer_is_in_no_accepted_mode_fails_with_an_error_for_its_caller(
    open_harness: OpenHarness,
) -> None:
    harness = await open_harness(ScriptedAgent(HI))
    sent = await harness.send(modes=("image/png",))
    outcome = await harness.outcome(sent)
    assert isinstance(outcome, TaskFinished)
    assert isinstance(outcome.error, OutputNotAccepted)
    assert outcome.error.details["acceptedOutputModes"] == ["image/png"]
    assert (await harness.ended(sent)).status.state is TaskState.FAILED


async def test_direct_answer_in_no_accepted_mode_is_an_error_each_time_it_is_asked_for(
    open_harness: OpenHarness,
) -> None:
    agent = ScriptedAgent(HI)
    harness = await open_harness(agent)
    harness.rules = HYBRID
    for _ in range(2):
        with pytest.raises(OutputNotAccepted) as refusal:
            await harness.outcome(await harness.send(message_id="m", modes=("image/png",)))
        assert refusal.value.details["acceptedOutputModes"] == ["image/png"]
    assert len(agent.turns) == 1
    assert await tasks_of(harness) == []


# ---------------------------------------------------------------- once per message


async def test_same_message_again_gives_the_same_task_and_no_second_run(
    open_harness: OpenHarness,
) -> None:
    agent = ScriptedAgent(HI)
    harness = await open_harness(agent)
    task = await harness.ended(await harness.send(message_id="m"))
    assert await harness.ended(await harness.send(message_id="m")) == task
    assert await harness.shown(await harness.send(message_id="m")) == task
    assert len(agent.turns) == 1
    assert await tasks_of(harness) == [task.id]


async def test_same_message_again_gives_the_same_direct_answer(open_harness: OpenHarness) -> None:
    agent = ScriptedAgent(HI)
    harness = await open_harness(agent)
    harness.rules = HYBRID
    answer = await harness.outcome(await harness.send(message_id="m"))
    again = await harness.send(message_id="m")
    assert await harness.outcome(again) == await harness.first(again) == answer
    assert len(agent.turns) == 1


@pytest.mark.parametrize("is_direct", [False, True])
async def test_same_message_many_times_at_once_is_one_run(
    harness: Harness, agent: ControlledAgent, is_direct: bool
) -> None:
    harness.rules = HYBRID if is_direct else harness.rules
    runs = [await harness.send(message_id="m", waits=False) for _ in range(5)]
    outcomes = [asyncio.ensure_future(harness.outcome(run)) for run in runs]
    run = await agent.next_run()
    late = await harness.send(message_id="m", waits=False)
    outcomes.append(asyncio.ensure_future(harness.outcome(late)))
    await yield_to_others()
    run.end(HI)
    results = await asyncio.gather(*outcomes)
    assert [result == results[0] for result in results] == [True] * 6
    assert isinstance(results[0], DirectAnswer) == is_direct
    assert len(agent.turns) == 1
    assert len(await tasks_of(harness)) == (0 if is_direct else 1)


async def test_same_message_during_the_commit_of_its_direct_answer_gets_that_answer(
    harness: Harness, agent: ControlledAgent
) -> None:
    harness.rules = HYBRID
    sent = await harness.send(message_id="m")
    run = await agent.next_run()
    harness.store.hold()
    run.end(HI)
    await harness.store.wait_held("finish_run")
    again = await harness.send(message_id="m")
    asking = asyncio.ensure_future(harness.outcome(again))
    await yield_to_others()
    harness.store.release()
    assert await asking == await harness.outcome(sent)


async def test_same_message_while_its_task_is_active_shows_that_task(
    harness: Harness, agent: ControlledAgent
) -> None:
    sent = await harness.send(message_id="m")
    run = await agent.next_run()
    run.tell(TextDelta("half"))
    await harness.reach(run.turn.task_id, lambda seen: len(seen) == 3)
    first = await harness.first(await harness.send(message_id="m"))
    assert isinstance(first, TaskCreated)
    assert (first.task.id, first.sequence) == (run.turn.task_id, 3)
    run.end()
    await harness.ended(sent)


async def test_other_body_under_the_same_message_id_is_rejected(open_harness: OpenHarness) -> None:
    agent = ScriptedAgent(HI)
    harness = await open_harness(agent)
    task = await harness.ended(await harness.send("one", message_id="m"))
    with pytest.raises(MessageIdConflict):
        await harness.outcome(await harness.send("two", message_id="m"))
    with pytest.raises(MessageIdConflict):
        await harness.first(await harness.send("one", message_id="m", context="elsewhere"))
    assert await harness.ended(await harness.send("one", message_id="m")) == task
    assert len(agent.turns) == 1


async def test_two_bodies_under_one_message_id_at_once_are_one_run_and_one_error(
    harness: Harness, agent: ControlledAgent
) -> None:
    good = await harness.send("one", message_id="m", waits=False)
    with pytest.raises(MessageIdConflict):
        await harness.outcome(await harness.send("two", message_id="m"))
    (await agent.next_run()).end(HI)
    await harness.ended(good)
    assert [turn.body for turn in agent.turns] == ["one"]


async def test_message_ids_of_two_callers_have_nothing_to_do_with_each_other(
    open_harness: OpenHarness,
) -> None:
    harness = await open_harness(ScriptedAgent(HI))
    mine = await harness.ended(await harness.send("one", message_id="m"))
    theirs = await harness.ended(await harness.send("two", message_id="m", scope=BOB))
    assert mine.id != theirs.id
    with pytest.raises(TaskNotFound):
        await harness.task(theirs.id)


async def test_repeated_message_of_a_deleted_task_is_rejected(open_harness: OpenHarness) -> None:
    harness = await open_harness(ScriptedAgent(HI))
    task = await harness.ended(await harness.send(message_id="m"))
    assert await harness.store.tasks.delete_task(ALICE, task.id)
    with pytest.raises(TaskNotFound):
        await harness.outcome(await harness.send(message_id="m"))


# ---------------------------------------------------------------- in order, side by side


async def test_messages_of_one_context_are_answered_one_after_the_other(
    harness: Harness, agent: ControlledAgent
) -> None:
    sent = [await harness.send(str(number), context="c") for number in range(4)]
    for number in range(4):
        run = await agent.next_run()
        await yield_to_others()
        assert agent.is_idle
        assert run.turn.body == str(number)
        run.end(Failed("no") if number == 1 else HI)
    states = [(await harness.ended(one)).status.state for one in sent]
    assert states.count(TaskState.COMPLETED) == 3
    assert states[1] is TaskState.FAILED


async def test_contexts_are_answered_in_parallel(harness: Harness, agent: ControlledAgent) -> None:
    first = await harness.send("one", context="c")
    second = await harness.send("two", context="d")
    third = await harness.send("three", context="c", scope=BOB)
    runs = [await agent.next_run() for _ in range(3)]
    assert sorted(run.turn.body for run in runs) == ["one", "three", "two"]
    for run in reversed(runs):
        run.end(HI)
    for sent in (first, second, third):
        assert (await harness.ended(sent)).status.state is TaskState.COMPLETED


async def test_next_message_waits_until_the_agent_has_cleaned_up(
    harness: Harness, agent: ControlledAgent
) -> None:
    await harness.send("one", context="c")
    run = await agent.next_run()
    await harness.send("two", context="c")
    run.may_stop.clear()
    run.end(InputRequired("?"))
    await run.stopping.wait()
    await yield_to_others()
    assert agent.is_idle
    run.may_stop.set()
    assert (await agent.next_run()).turn.body == "two"


# ---------------------------------------------------------------- refused before anything happens


async def test_file_of_a_type_the_agent_does_not_accept_is_rejected_with_its_index(
    harness: Harness,
) -> None:
    parts = (Part.of_text("look"), Part.of_bytes(b"x", media_type="image/png"))
    message = Message(MessageId("m"), Role.USER, parts)
    with pytest.raises(PartNotAccepted, match=r"message\.parts\[1\].*file"):
        await submit(harness.engine, SubmitRequest(ALICE, message), harness.rules)
    assert await tasks_of(harness) == []


async def test_too_many_parts_are_rejected(harness: Harness) -> None:
    message = Message(MessageId("m"), Role.USER, (Part.of_text("x"),) * 1001)
    with pytest.raises(InvalidParams):
        await submit(harness.engine, SubmitRequest(ALICE, message), harness.rules)


async def test_draining_engine_accepts_nothing_new_and_lets_runs_end(
    harness: Harness, agent: ControlledAgent
) -> None:
    sent = await harness.send()
    run = await agent.next_run()
    draining = asyncio.ensure_future(harness.engine.drain(240))
    await yield_to_others()
    with pytest.raises(Draining):
        await harness.send("late")
    run.end(HI)
    assert await draining == 0
    assert (await harness.ended(sent)).status.state is TaskState.COMPLETED


async def test_stop_releases_waiters_and_leaves_the_run_in_the_store(
    harness: Harness, agent: ControlledAgent
) -> None:
    agent.recovery = Recovery.REPEAT
    sent, other = await harness.send(context="c"), await harness.send(context="c")
    await harness.shown(sent)
    run = await agent.next_run()
    run.tell(TextDelta("half"))
    before = await harness.reach(run.turn.task_id, lambda seen: len(seen) == 3)
    waiting = [asyncio.ensure_future(harness.outcome(one)) for one in (sent, other)]
    await yield_to_others()
    await harness.engine.stop()
    for one in waiting:
        with pytest.raises(Draining):
            await one
    assert run.stopped.is_set()
    assert await harness.entries(run.turn.task_id) == before
    assert await harness.restart() == 2


# ---------------------------------------------------------------- how a message is stored


async def test_message_and_the_answer_given_at_once_are_one_write(
    open_harness: OpenHarness,
) -> None:
    harness = await open_harness(ScriptedAgent(HI, recovery=Recovery.REPEAT))
    task = await harness.ended(await harness.send("hello"))
    assert task.status.state is TaskState.COMPLETED
    assert harness.store.writes == ["submit"]
    check_journal(await harness.entries(task.id), task)


async def test_message_is_stored_before_an_agent_that_must_not_be_repeated_is_asked(
    open_harness: OpenHarness,
) -> None:
    agent = ControlledAgent(Recovery.FAIL)
    harness = await open_harness(agent)
    harness.store.hold()
    sent = await harness.send("hello", waits=False)
    await yield_to_others(50)
    assert agent.is_idle
    harness.store.release()
    run = await agent.next_run()
    run.end(HI)
    assert (await harness.ended(sent)).status.state is TaskState.COMPLETED


async def test_messages_reach_the_store_in_the_order_in_which_they_came(
    open_harness: OpenHarness,
) -> None:
    """The first is asked at once and stored after its first step, the second waits for its turn."""
    harness = await open_harness(ControlledAgent(Recovery.REPEAT))
    await asyncio.gather(
        *[harness.send(text, context="c", waits=False) for text in ("one", "two", "three")]
    )
    await harness.all_is_quiet()
    harness.store.cut()
    claimed = await harness.store.inner.tasks.claim_runs(OwnerId("another"))
    assert [run.message.text for run in claimed] == ["one", "two", "three"]
