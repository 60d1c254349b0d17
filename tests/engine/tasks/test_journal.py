"""When the events of a task are committed, and published."""

import asyncio
from collections.abc import Callable
from typing import cast

import msgspec
import pytest
from tests.contracts.store_samples import Draft
from tests.engine.conftest import OpenHarness
from tests.engine.controlled_agent import ControlledAgent, Run
from tests.engine.harness import Harness, in_time

from openclaw_a2a.engine.maintenance import maintain
from openclaw_a2a.engine.outbox.wakeups import UNREAD_S, WakeupRegistry
from openclaw_a2a.engine.tasks.journal import UNLIMITED, Journal
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.model.agent_event import Note, TextDelta
from openclaw_a2a.model.errors import StoreUnavailable
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.task import (
    StatusUpdate,
    TaskState,
    TaskStatus,
)
from openclaw_a2a.ports import Commit, TaskStore


class CancellingStore:
    """Cancels the future of every commit."""

    def commit(self, _commit: Commit) -> "asyncio.Future[None]":
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        answer.cancel()
        return answer


async def test_events_of_a_cancelled_commit_are_not_published() -> None:
    draft = Draft()
    journal = Journal(
        cast("TaskStore", CancellingStore()),
        draft.head,
        TaskProjection(draft.task),
        exists=True,
        wakeups=WakeupRegistry(),
        limits=UNLIMITED,
    )
    working = StatusUpdate(draft.task.id, draft.task.context_id, TaskStatus(TaskState.WORKING))
    with pytest.raises(StoreUnavailable):
        await journal.end([working], run=draft.run)
    assert journal.feed.since(0) == []
    assert isinstance(journal.failure, StoreUnavailable)


NEVER_S = 3600.0


async def begin(harness: Harness, agent: ControlledAgent) -> Run:
    """A run of a task that nobody follows; its text waits for more, here as long as it can."""
    harness.engine.wakeups.unread.seconds = NEVER_S
    await harness.send()
    run = await agent.next_run()
    await harness.all_is_quiet()
    return run


async def stored_text(harness: Harness, run: Run) -> str:
    """The text of the task as it would be read after a crash."""
    await harness.store_is_quiet()
    artifacts = (await harness.task(run.turn.task_id)).artifacts
    return "".join(part.text or "" for artifact in artifacts for part in artifact.parts)


async def test_text_that_nobody_follows_is_committed_with_the_end(
    harness: Harness, agent: ControlledAgent
) -> None:
    harness.engine.wakeups.unread.seconds = NEVER_S
    sent = await harness.send()
    run = await agent.next_run()
    await harness.all_is_quiet()
    before = len(harness.store.writes)
    run.tell(TextDelta("one "), TextDelta("two "))
    await harness.all_is_quiet()
    assert harness.store.writes[before:] == []
    run.end(TextDelta("three"))
    await harness.ended(sent)
    assert harness.store.writes[before:] == ["commit"]
    assert await stored_text(harness, run) == "one two three"


async def test_all_text_that_nobody_follows_is_committed_when_the_first_has_waited(
    harness: Harness, agent: ControlledAgent
) -> None:
    await harness.send()
    run = await agent.next_run()
    await harness.all_is_quiet()
    for text in ("one", "two"):
        harness.engine.wakeups.unread.seconds = UNREAD_S
        harness.store.hold()
        run.tell(TextDelta(f"{text} "), TextDelta("more "))
        await harness.store.wait_held("commit")
        harness.engine.wakeups.unread.seconds = NEVER_S  # what is left out now is never sent
        harness.store.release()
    assert await stored_text(harness, run) == "one more two more "


async def test_a_status_that_nobody_follows_is_committed_at_once_with_the_text_before_it(
    harness: Harness, agent: ControlledAgent
) -> None:
    run = await begin(harness, agent)
    run.tell(TextDelta("one "), TextDelta("two"), Note("next"))
    await harness.all_is_quiet()
    assert await stored_text(harness, run) == "one two"


async def test_who_begins_to_follow_gets_at_once_what_was_said(
    harness: Harness, agent: ControlledAgent
) -> None:
    run = await begin(harness, agent)
    run.tell(TextDelta("one "), TextDelta("two"))
    await harness.all_is_quiet()
    assert await stored_text(harness, run) == ""
    await harness.follow(run.turn.task_id)
    await harness.all_is_quiet()
    assert await stored_text(harness, run) == "one two"


def push(harness: Harness, task_id: TaskId) -> None:
    harness.engine.wakeups.subscribe(task_id, every_event=True)


def observer(harness: Harness, _task_id: TaskId) -> None:
    harness.engine.wakeups.observers.add(lambda _changed: None)


def reader(harness: Harness, task_id: TaskId) -> None:
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    harness.engine.wakeups.readers[task_id] = {waiter}


@pytest.mark.parametrize("follow", [push, observer, reader])
async def test_text_that_somebody_follows_is_committed_at_once(
    harness: Harness, agent: ControlledAgent, follow: Callable[[Harness, TaskId], None]
) -> None:
    run = await begin(harness, agent)
    follow(harness, run.turn.task_id)
    run.tell(TextDelta("one"))
    await harness.all_is_quiet()
    assert await stored_text(harness, run) == "one"


def test_readers_at_other_replicas_are_not_known_so_every_task_counts_as_followed() -> None:
    task_id = TaskId("task")
    assert WakeupRegistry(has_replicas=True).is_followed(task_id)
    assert not WakeupRegistry().is_followed(task_id)


async def test_an_agent_that_waits_for_the_store_does_not_wait_for_followers(
    open_harness: OpenHarness, agent: ControlledAgent
) -> None:
    harness = await open_harness(agent, inflight_events=4, join_deltas=False)
    harness.engine.wakeups.unread.seconds = NEVER_S
    sent = await harness.send()
    run = await agent.next_run()
    run.end(*(TextDelta("x") for _ in range(50)))
    await harness.ended(sent)
    assert await stored_text(harness, run) == "x" * 50


async def test_text_that_nobody_follows_is_kept_when_the_gateway_stops(
    harness: Harness, agent: ControlledAgent
) -> None:
    run = await begin(harness, agent)
    run.tell(TextDelta("one "), TextDelta("two "), TextDelta("three"))
    await harness.all_is_quiet()
    assert await stored_text(harness, run) == ""
    await harness.engine.stop()
    assert await stored_text(harness, run) == "one two three"


async def test_text_that_came_during_a_commit_is_kept_when_the_gateway_stops(
    harness: Harness, agent: ControlledAgent
) -> None:
    run = await begin(harness, agent)
    push(harness, run.turn.task_id)
    harness.store.hold()
    run.tell(TextDelta("one "))
    await harness.store.wait_held("commit")
    run.tell(TextDelta("two"))
    await harness.all_is_quiet()
    await harness.engine.stop()
    # No turn of the event loop between the answer of the store and its end.
    assert harness.store.held == ["commit", "commit"]
    harness.store.release()
    assert await stored_text(harness, run) == "one two"


async def test_text_of_an_agent_that_goes_on_in_a_stop_is_committed(
    open_harness: OpenHarness, agent: ControlledAgent
) -> None:
    agent.refuses_to_stop = True
    harness = await open_harness(agent)
    await harness.send()
    run = await agent.next_run()
    await harness.all_is_quiet()
    harness.engine.wakeups.unread.seconds = 1.0
    run.tell(TextDelta("one "))
    await harness.all_is_quiet()
    harness.store.hold()
    harness.engine.limits = msgspec.structs.replace(harness.engine.limits, cancel_s=NEVER_S)
    stopping = asyncio.ensure_future(harness.engine.stop())
    await in_time(run.refused_to_stop.wait())
    run.tell(TextDelta("two"))
    await harness.store.wait_held("commit")
    harness.store.release()
    run.end()
    await in_time(stopping)
    assert await stored_text(harness, run) == "one two"


async def test_text_that_nobody_follows_is_kept_when_the_run_breaks(
    harness: Harness, agent: ControlledAgent
) -> None:
    run = await begin(harness, agent)
    run.tell(TextDelta("one "))
    await harness.all_is_quiet()
    run.tell(TextDelta("two "))
    await harness.all_is_quiet()
    run.tell(StoreUnavailable("a record could not be written"))
    await harness.all_is_quiet()
    assert await stored_text(harness, run) == "one two "


async def test_a_broken_run_is_failed_although_its_last_text_is_committed_after_the_task_was_read(
    harness: Harness, agent: ControlledAgent
) -> None:
    run = await begin(harness, agent)
    run.tell(TextDelta("one "))
    await harness.all_is_quiet()
    harness.store.hold()
    run.tell(StoreUnavailable("a record could not be written"))
    await harness.store.wait_held("commit")
    failing = asyncio.ensure_future(maintain(harness.engine))
    await harness.all_is_quiet()
    assert harness.store.held == ["commit", "commit"]  # the text, and an end that is behind it
    harness.store.release()
    await in_time(failing)
    assert await harness.state(run.turn.task_id) is TaskState.WORKING
    await maintain(harness.engine)
    assert await harness.state(run.turn.task_id) is TaskState.FAILED
    assert await stored_text(harness, run) == "one "
