"""A late reply that comes while its task is still on its way into the store, or just ending."""

from pathlib import Path

import pytest
from tests.engine.controlled_agent import ControlledAgent
from tests.engine.event_lines import outline
from tests.engine.harness import EngineHarness, in_time, others_move

from openclaw_a2a.engine.background_replies import append_reply, queued_artifact
from openclaw_a2a.engine.tasks.run import ActiveRun
from openclaw_a2a.model.agent_event import Reply
from openclaw_a2a.model.ids import ArtifactId, TaskId
from openclaw_a2a.model.message import Part
from openclaw_a2a.ports import Recovery

LATE = queued_artifact(ArtifactId("queued-reply-1"), (Part.of_text("late"),))


@pytest.fixture(params=["memory", "sqlite"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def room(kind: str, tmp_path: Path):
    one = EngineHarness(kind, tmp_path, ControlledAgent(Recovery.REPEAT))
    await one.open()
    yield one
    await one.close()


@pytest.mark.requirement("inbound.queued.live", "promise.commit.before-show")
async def test_a_reply_that_comes_before_its_task_is_durable_waits_for_it(
    room: EngineHarness,
) -> None:
    room.store.hold()
    run = await room.send(waits=False)
    assert isinstance(run, ActiveRun)
    appending = room.engine.loop.create_task(append_reply(room.engine, run.record.task_id, LATE))
    await others_move()
    assert not appending.done()
    room.store.release()
    assert await in_time(appending)
    task_id = (await room.shown(run)).id
    entries = await room.reach(task_id, lambda seen: "artifact queued-reply-1." in outline(seen))
    assert outline(entries)[0] == "status submitted"


@pytest.mark.requirement("inbound.queued.artifact", "promise.order.one-terminal")
async def test_a_reply_that_comes_while_the_end_is_written_follows_it(room: EngineHarness) -> None:
    agent = room.cast.agents[next(iter(room.cast.agents))]
    assert isinstance(agent, ControlledAgent)
    run = await room.send()
    acting = await agent.next_run()
    await room.all_is_quiet()
    room.store.hold()
    acting.end(Reply.of_text("done"))
    await room.store.wait_held("commit")
    await others_move()
    task_id = TaskId((await room.shown(run)).id)
    appending = room.engine.loop.create_task(append_reply(room.engine, task_id, LATE))
    await others_move()
    room.store.release()
    assert await in_time(appending)
    ended = await room.ended(run)
    lines = outline(await room.entries(task_id))
    assert lines[-2:] == ["status completed", "artifact queued-reply-1."]
    assert await room.task(task_id) == ended


@pytest.mark.requirement("inbound.queued.unknown-task")
async def test_a_reply_to_a_task_that_never_came_to_be_is_not_kept(room: EngineHarness) -> None:
    assert not await append_reply(room.engine, TaskId("no-such-task"), LATE)
