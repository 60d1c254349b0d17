"""The command `openclaw agent --local`, really run: answers, conversations, cancels, and the line.

A run takes some twenty seconds, so each of these five is asked several questions.
"""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

import anyio
import anyio.to_thread
import psutil
import pytest
from tests.openclaw.openclaw_process import FakeModel, OpenClaw

from openclaw_a2a.agents.openclaw_cli import OpenClawCliAgent, OpenClawCliOptions
from openclaw_a2a.library.openclaw_adapter import OpenClawAgentAdapter
from openclaw_a2a.model.agent_event import Reply
from openclaw_a2a.model.ids import (
    AccountId,
    AgentId,
    ContextId,
    MessageId,
    PeerName,
    RunId,
    SessionKey,
    TaskId,
)
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.model.turn import Binding, Peer, Turn

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SESSION = SessionKey("agent:main:a2a:local:c.h-0123456789abcdef")
TURN_S = 200.0


@pytest.fixture(scope="module")
def idle_openclaw(model: FakeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenClaw]:
    """An OpenClaw of which no gateway runs."""
    idle = OpenClaw(tmp_path_factory.mktemp("openclaw-idle"), model)
    yield idle
    assert processes_of(idle) == []


def processes_of(openclaw: OpenClaw) -> list[int]:
    """Every process that uses its state directory."""
    found: list[int] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            folder = process.environ().get("OPENCLAW_STATE_DIR")
            if folder == str(openclaw.folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


def turn_of(text: str) -> Turn:
    peer = Peer("p", "context-id")
    return Turn(
        run_id=RunId("run-1"),
        task_id=TaskId("task-1"),
        context_id=ContextId("c"),
        message=Message(MessageId("message-1"), Role.USER, (Part(text=text),)),
        binding=Binding(AgentId("main"), AccountId("default"), SESSION, SESSION, peer, NOW, NOW),
        principal=PeerName("local"),
        body=text,
    )


async def test_two_contexts_are_queued_and_their_conversations_continue(idle_openclaw, marker):
    options = {"openclaw_path": idle_openclaw.program, "env_vars": idle_openclaw.env}
    async with OpenClawAgentAdapter(agent_id="main", timeout=TURN_S, **options) as adapter:
        tasks = [
            await adapter.handle(said(f"{name} {marker}", context=f"{name}-{marker}"))
            for name in ("one", "two")
        ]
        done = [await ended(adapter, task.id) for task in tasks]
        repeated = await adapter.handle(said("history", context=f"one-{marker}"))
        run_turn = (await ended(adapter, repeated.id)).status.message.text
    assert [task.status.message.text for task in done] == [
        f"echo: one {marker}",
        f"echo: two {marker}",
    ]
    assert [task.status.state for task in done] == [TaskState.COMPLETED] * 2
    assert f"one {marker}" in run_turn
    assert f"two {marker}" not in run_turn


async def test_cancel_leaves_no_process_and_no_lock(idle_openclaw, model, marker):
    options = OpenClawCliOptions(
        openclaw_path=str(idle_openclaw.program), env=idle_openclaw.env, timeout=TURN_S
    )
    agent = OpenClawCliAgent(options)
    async with anyio.create_task_group() as group:
        group.start_soon(answer_of, agent, turn_of(f"hang {marker}"))
        await anyio.to_thread.run_sync(lambda: model.wait_for(marker, within_s=120))
        assert len(processes_of(idle_openclaw)) >= 2
        group.cancel_scope.cancel()
    assert processes_of(idle_openclaw) == []
    model.wait_for(marker, outcome="client-gone")
    assert await answer_of(agent, turn_of(f"parrot:back {marker}")) == f"back {marker}"
    assert SESSION in str(model.requests(f"back {marker}"))


def said(text: str, *, context: str) -> Message:
    parts = (Part(text=text),)
    return Message(MessageId(f"{context} {text}"), Role.USER, parts, ContextId(context))


async def ended(adapter: OpenClawAgentAdapter, task_id: str):
    with anyio.fail_after(TURN_S):
        while True:
            task = await adapter.get_task(task_id)
            if task.status.state is not TaskState.WORKING:
                return task
            await anyio.sleep(0.1)  # that is what a polling client does


async def answer_of(agent: OpenClawCliAgent, turn: Turn) -> str:
    with anyio.fail_after(TURN_S):
        replies = [event async for event in agent.run(turn) if isinstance(event, Reply)]
    return "".join(part.text or "" for reply in replies for part in reply.parts)
