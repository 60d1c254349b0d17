"""What an agent reports outside its runs is applied although the store, or an event, fails."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import cast

import pytest
from tests.engine.background_replies.background_agent import BackgroundAgent
from tests.engine.conftest import OpenHarness
from tests.engine.harness import Harness

from openclaw_a2a.engine.background_replies import BackgroundListener
from openclaw_a2a.model.agent_event import (
    BackgroundEvent,
    BackgroundReply,
    InputRequired,
    RecentTask,
    Reply,
)
from openclaw_a2a.model.ids import AgentId
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.task import TaskState

TOKEN = {"approval": "a-1"}


@pytest.fixture(params=["memory", "sqlite"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def listen(harness: Harness, agent: BackgroundAgent) -> None:
    listener = BackgroundListener([harness.engine], AgentId("main"), agent)
    harness.engine.supervisor.run_loop("background-events", listener.run())


async def pass_minutes(harness: Harness, count: int) -> None:
    """Let so many of the longest delays pass, with an attempt after each."""
    for _ in range(count):
        await harness.all_is_quiet()
        harness.clock.advance(60)
    await harness.all_is_quiet()


async def test_a_resolved_pause_continues_its_task_after_many_refused_writes(
    open_harness: OpenHarness,
) -> None:
    agent = BackgroundAgent()
    harness = await open_harness(agent)
    listen(harness, agent)
    await harness.send(is_blocking=False)
    first = await agent.next_run()
    await first.finish(InputRequired("wait", resume=TOKEN))
    await harness.all_is_quiet()
    task_id = first.turn.task_id
    assert await harness.state(task_id) is TaskState.INPUT_REQUIRED
    harness.store.refuse("submit")
    await agent.end_wait(task_id, resume=TOKEN)
    await pass_minutes(harness, 6)
    assert not agent.has_waiting_run
    harness.store.refuse()
    await pass_minutes(harness, 1)
    assert agent.has_waiting_run
    again = await agent.next_run()
    assert (again.turn.task_id, again.turn.resume) == (task_id, TOKEN)
    await again.finish(Reply.of_text("done"))
    await harness.all_is_quiet()
    assert await harness.state(task_id) is TaskState.COMPLETED


async def test_a_late_reply_that_is_reported_once_is_stored_after_many_refused_writes(
    open_harness: OpenHarness,
) -> None:
    agent = BackgroundAgent(Reply.of_text("hi"))
    harness = await open_harness(agent)
    listen(harness, agent)
    await harness.send()
    await harness.all_is_quiet()
    harness.store.refuse("commit")
    # OpenClaw does not report a reply again once a later message of the session is ours.
    replying = asyncio.create_task(agent.reply("later"))
    await pass_minutes(harness, 6)
    harness.store.refuse()
    await pass_minutes(harness, 1)
    task = await harness.task(agent.turns[0].task_id)
    texts = [one.parts[0].text for one in task.artifacts if one.name == "Queued follow-up reply"]
    assert texts == ["later"]
    await replying
    assert len(agent.listened) == 1


class FailingAgent(BackgroundAgent):
    """Reports an event that cannot be applied each time somebody begins to listen."""

    async def background_events(
        self, recent: Sequence[RecentTask]
    ) -> AsyncGenerator[BackgroundEvent]:
        self.listened.append(recent)
        parts = cast("tuple[Part, ...]", (None,))
        for session in {turn.session_key for turn in self.turns}:
            yield BackgroundReply(session, "r-1", parts)
        await asyncio.Event().wait()


async def test_the_delay_grows_while_the_same_event_fails(open_harness: OpenHarness) -> None:
    agent = FailingAgent(Reply.of_text("hi"))
    harness = await open_harness(agent)
    await harness.send()
    await harness.all_is_quiet()
    listen(harness, agent)
    for _ in range(15):
        await harness.all_is_quiet()
        harness.clock.advance(1)
    await harness.all_is_quiet()
    # At the start and after 1, 3, 7 and 15 seconds; reads of the clock add a few milliseconds.
    assert 3 <= len(agent.listened) <= 5
