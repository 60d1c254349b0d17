"""A damaged task does not keep the late replies of other tasks from being stored."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Sequence
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from tests.captured_logs import capture_logs
from tests.conformance.asgi_client import TIMEOUT_S
from tests.engine.background_replies.background_agent import BackgroundAgent
from tests.engine.background_replies.conftest import FastClock, GatewayHarness
from tests.engine.background_replies.test_background_replies import texts_of

from openclaw_a2a.model.agent_event import BackgroundEvent, BackgroundReply, RecentTask, Reply
from openclaw_a2a.model.ids import SessionKey
from openclaw_a2a.model.message import Part


class RepeatingAgent(BackgroundAgent):
    """Reports the same replies, in one order, each time somebody begins to listen."""

    def __init__(self, *sessions: SessionKey) -> None:
        super().__init__(Reply.of_text("hi"))
        self.is_done = asyncio.Event()
        """Set when all replies were taken, or the stream was opened three times."""
        self._replies = [BackgroundReply(one, "r-1", (Part.of_text("later"),)) for one in sessions]

    async def background_events(
        self, recent: Sequence[RecentTask]
    ) -> AsyncGenerator[BackgroundEvent]:
        self.listened.append(recent)
        if len(self.listened) < 3:
            for reply in self._replies:
                yield reply
        self.is_done.set()
        await asyncio.Event().wait()


def damage(folder: Path, task_id: str, body: str = "x") -> None:
    [path] = folder.rglob("*.db")
    with closing(sqlite3.connect(path)) as connection:
        which = "task = (SELECT number FROM task WHERE id = ?)"
        update = f"UPDATE snapshot SET body = ? WHERE {which}"
        changed = connection.execute(update, [body.encode(), task_id])
        assert changed.rowcount == 1
        connection.commit()


@pytest.mark.parametrize("kind", ["sqlite"])
@pytest.mark.parametrize("body", ["x", "{}"])
async def test_replies_behind_that_of_a_damaged_task_are_stored(
    gateways: GatewayHarness, tmp_path: Path, body: str
) -> None:
    first = BackgroundAgent(Reply.of_text("hi"))
    v1 = await gateways.client(first)
    damaged = (await v1.send(contextId="damaged"))["task"]
    good = (await v1.send(contextId="good"))["task"]
    await gateways.close()
    damage(tmp_path, damaged["id"], body)
    agent = RepeatingAgent(first.session(0), first.session(1))
    with capture_logs() as logged:
        v1 = await gateways.client(agent, clock=FastClock())
        with anyio.fail_after(TIMEOUT_S):
            await agent.is_done.wait()
    assert texts_of(await v1.get(good["id"])) == ["later"]
    assert len(agent.listened) == 1
    assert damaged["id"] in [
        line["task_id"] for line in logged if line["event"] == "background.task_skipped"
    ]


@pytest.mark.parametrize("kind", ["sqlite"])
async def test_an_older_task_gets_the_reply_of_a_session_whose_newest_task_is_damaged(
    gateways: GatewayHarness, tmp_path: Path
) -> None:
    first = BackgroundAgent(Reply.of_text("hi"))
    v1 = await gateways.client(first)
    older = (await v1.send(contextId="c"))["task"]
    newest = (await v1.send(contextId="c"))["task"]
    await gateways.close()
    damage(tmp_path, newest["id"])
    agent = RepeatingAgent(first.session())
    v1 = await gateways.client(agent, clock=FastClock())
    with anyio.fail_after(TIMEOUT_S):
        await agent.is_done.wait()
    assert texts_of(await v1.get(older["id"])) == ["later"]
    assert len(agent.listened) == 1
