"""A late reply that comes while its task is still on its way into the store, or just ending."""

from pathlib import Path

import pytest
from tests.engine.controlled_agent import ControlledAgent
from tests.engine.event_lines import event_lines
from tests.engine.harness import Harness, in_time, yield_to_others

from openclaw_a2a.engine.background_replies import append_reply, reply_artifact
from openclaw_a2a.engine.tasks.run import ActiveRun
from openclaw_a2a.model.agent_event import Reply
from openclaw_a2a.model.ids import ArtifactId, TaskId
from openclaw_a2a.model.message import Part
from openclaw_a2a.ports import Recovery

LATE = reply_artifact(ArtifactId("queued-reply-1"), (Part.of_text("late"),))


@pytest.fixture(params=["memory", "sqlite"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def harness(kind: str, tmp_path: Path):
    one = Harness(kind, tmp_path, ControlledAgent(Recovery.REPEAT))
    await one.open()
    yield one
    await one.close()


@pytest.mark.requirement("inbound.queued.live", "promise.commit.before-show")
async def test_a_reply_that_comes_before_its_task_is_durable_waits_for_it(
    harness: Harness,
) -> None:
    harness.store.hold()
    run = await harness.send(waits=False)
    assert isinstance(run, ActiveRun)
    appending = harness.engine.loop.create_task(
        append_reply(harness.engine, run.record.task_id, LATE)
    )
    await yield_to_others()
    assert not appending.done()
    harness.store.release()
    assert await in_time(appending)
    task_id = (await harness.shown(run)).id
    entries = await harness.reach(
        task_id, lambda seen: "artifact queued-reply-1." in event_lines(seen)
    )
    assert event_lines(entries)[0] == "status submitted"


@pytest.mark.requirement("inbound.queued.artifact", "promise.order.one-terminal")
async def test_a_reply_during_the_commit_of_the_end_follows_it(
    harness: Harness,
) -> None:
    agent = harness.agents[next(iter(harness.agents))]
    assert isinstance(agent, ControlledAgent)
    run = await harness.send()
    acting = await agent.next_run()
    await harness.all_is_quiet()
    harness.store.hold()
    acting.end(Reply.of_text("done"))
    await harness.store.wait_held("commit")
    await yield_to_others()
    task_id = TaskId((await harness.shown(run)).id)
    appending = harness.engine.loop.create_task(append_reply(harness.engine, task_id, LATE))
    await yield_to_others()
    harness.store.release()
    assert await in_time(appending)
    ended = await harness.ended(run)
    lines = event_lines(await harness.entries(task_id))
    assert lines[-2:] == ["status completed", "artifact queued-reply-1."]
    assert await harness.task(task_id) == ended


@pytest.mark.requirement("inbound.queued.unknown-task")
async def test_a_reply_to_a_task_that_was_never_created_is_not_stored(harness: Harness) -> None:
    assert not await append_reply(harness.engine, TaskId("no-such-task"), LATE)
