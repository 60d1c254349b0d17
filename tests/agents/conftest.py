"""What the tests of agents share: turns, small programs, and a look at processes."""

import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent

import anyio
import pytest

from openclaw_a2a.agents import CommandAgent, CommandOptions
from openclaw_a2a.agents.process.tree import read_process
from openclaw_a2a.model.agent_event import AgentEvent, TextDelta
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
from openclaw_a2a.model.turn import Binding, Peer, Turn
from openclaw_a2a.ports import Agent

_NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


def turn_of(text: str = "hello", *, parts: tuple[Part, ...] = (), resume: object = None) -> Turn:
    session = SessionKey("agent:main:a2a:local:c-1")
    return Turn(
        run_id=RunId("run-1"),
        task_id=TaskId("task-1"),
        context_id=ContextId("context-1"),
        message=Message(MessageId("message-1"), Role.USER, parts or (Part(text=text),)),
        binding=Binding(
            AgentId("main"),
            AccountId("default"),
            session,
            session,
            Peer("p", "context-id"),
            _NOW,
            _NOW,
        ),
        principal=PeerName("local"),
        body=text,
        resume=resume,
    )


async def answer_of(agent: Agent, turn: Turn) -> list[AgentEvent]:
    with anyio.fail_after(30):
        return [event async for event in agent.run(turn)]


async def text_of(agent: Agent, turn: Turn) -> str:
    events = await answer_of(agent, turn)
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.fixture
def make_turn() -> Callable[..., Turn]:
    return turn_of


@pytest.fixture
def answer() -> Callable[..., object]:
    return answer_of


@pytest.fixture
def text() -> Callable[..., object]:
    return text_of


@pytest.fixture
def serve(tmp_path: Path) -> Callable[..., CommandAgent]:
    """Makes an agent of a Python program; keywords are the agent's options."""

    def make(source: str, *arguments: str, **options: object) -> CommandAgent:
        script = tmp_path / "program.py"
        script.write_text(dedent(source), encoding="utf-8")
        command = (sys.executable, "-S", str(script), *arguments)
        return CommandAgent(CommandOptions(command=command, **options))  # pyright: ignore[reportArgumentType] - options by name

    return make


def process_is_there(pid: int) -> bool:
    """Whether it runs, or is a zombie that we ought to have collected.

    The zombie of an orphan belongs to process 1, which collects it when it likes.
    """
    process = read_process(pid)
    if process is None:
        return False
    return not process.is_zombie or process.parent == os.getpid()


@pytest.fixture
def is_there() -> Callable[[int], bool]:
    return process_is_there
