"""When the events of a task are committed, and published."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest
from tests.contracts.store_samples import Draft
from tests.engine.conftest import OpenHarness
from tests.engine.controlled_agent import ControlledAgent, Run
from tests.engine.harness import Harness, in_time

from openclaw_a2a.engine.outbox.wakeups import WakeupRegistry
from openclaw_a2a.engine.tasks.journal import UNLIMITED, Journal
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.model.agent_event import Note, Reply
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
    """A run of a task that nobody follows; its events wait for more, here as long as they can."""
    harness.engine.wakeups.unread.seconds = NEVER_S
    await harness.send()
    return await agent.next_run()


async def test_what_nobody_follows_is_committed_with_the_end(
    harness: Harness, agent: ControlledAgent
) -> None:
    harness.engine.wakeups.unread.seconds = NEVER_S
    sent = await harness.send()
    run = await agent.next_run()
    await harness.all_is_quiet()
    before = len(harness.store.writes)
    run.tell(Note("one"), Note("two"))
    await harness.all_is_quiet()
    assert harness.store.writes[before:] == []
    run.end(Reply.of_text("done"))
    await harness.ended(sent)
    assert harness.store.writes[before:] == ["commit"]


async def test_what_nobody_follows_is_committed_soon_without_an_end(
    harness: Harness, agent: ControlledAgent
) -> None:
    await harness.send()
    run = await agent.next_run()
    for text in ("one", "two"):
        await harness.all_is_quiet()
        harness.store.hold()
        run.tell(Note(text))
        await harness.store.wait_held("commit")
        harness.store.release()


async def test_who_begins_to_follow_gets_at_once_what_was_said(
    harness: Harness, agent: ControlledAgent
) -> None:
    run = await begin(harness, agent)
    run.tell(Note("one"))
    await harness.all_is_quiet()
    follower = await harness.follow(run.turn.task_id)
    seen = [await in_time(follower.next_events(NEVER_S))]
    while seen[-1][-1].sequence < 3:
        seen.append(await in_time(follower.next_events(NEVER_S)))


def push(harness: Harness, task_id: TaskId) -> None:
    harness.engine.wakeups.subscribe(task_id, every_event=True)


def observer(harness: Harness, _task_id: TaskId) -> None:
    harness.engine.wakeups.observers.add(lambda _changed: None)


def reader(harness: Harness, task_id: TaskId) -> None:
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    harness.engine.wakeups.readers[task_id] = {waiter}


@pytest.mark.parametrize("follow", [push, observer, reader])
async def test_what_somebody_follows_is_committed_at_once(
    harness: Harness, agent: ControlledAgent, follow: Callable[[Harness, TaskId], None]
) -> None:
    run = await begin(harness, agent)
    follow(harness, run.turn.task_id)
    # What was recorded before is sent with the first event after it.
    harness.engine.active_tasks[run.turn.task_id].journal.send_unsent()
    await harness.all_is_quiet()
    harness.store.hold()
    run.tell(Note("one"))
    await harness.store.wait_held("commit")


def test_readers_at_other_replicas_are_not_known_so_every_task_counts_as_followed() -> None:
    task_id = TaskId("task")
    assert WakeupRegistry(has_replicas=True).is_followed(task_id)
    assert not WakeupRegistry().is_followed(task_id)


async def test_an_agent_that_waits_for_the_store_does_not_wait_for_followers(
    open_harness: OpenHarness, agent: ControlledAgent
) -> None:
    harness = await open_harness(agent, inflight_events=4)
    harness.engine.wakeups.unread.seconds = NEVER_S
    sent = await harness.send()
    run = await agent.next_run()
    run.end(*(Note(f"step {number}") for number in range(50)))
    await harness.ended(sent)
    assert len(await harness.entries(run.turn.task_id)) == 53


async def test_what_nobody_follows_is_kept_when_the_gateway_stops(
    harness: Harness, agent: ControlledAgent
) -> None:
    run = await begin(harness, agent)
    run.tell(Note("one"))
    await harness.all_is_quiet()
    assert len(await harness.entries(run.turn.task_id)) < 3
    await harness.engine.stop()
    await harness.store_is_quiet()
    assert len(await harness.entries(run.turn.task_id)) == 3
