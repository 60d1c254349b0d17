"""What an agent reports outside its runs is applied although the store fails for long."""

import asyncio

import pytest
from tests.engine.background_replies.background_agent import BackgroundAgent
from tests.engine.conftest import OpenHarness
from tests.engine.harness import Harness

from openclaw_a2a.engine.background_replies import BackgroundListener
from openclaw_a2a.model.agent_event import InputRequired, Reply
from openclaw_a2a.model.ids import AgentId
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
