"""A fake `openclaw` command, and turns for it."""

import json
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest
from tests.agents.processes import is_alive

from openclaw_a2a.agents.openclaw_cli import OpenClawCliAgent, OpenClawCliOptions
from openclaw_a2a.model.agent_event import AgentEvent, Reply
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

FAKE = Path(__file__).with_name("fake_openclaw.py")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class FakeOpenClaw:
    """An installed `openclaw` with a state directory, and what it was asked so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.state.mkdir(parents=True)
        self.program = folder / "bin" / "openclaw"
        self.program.parent.mkdir()
        self.write_program(FAKE.read_text(encoding="utf-8"))
        self.variables = {
            "OPENCLAW_STATE_DIR": str(self.state),
            "FAKE_LOG": str(folder / "log.jsonl"),
        }

    def write_program(self, source: str) -> None:
        self.program.write_text(f"#!{sys.executable} -IS\n{source}", encoding="utf-8")
        self.program.chmod(0o755)

    def writes(self, output: bytes, *, errors: bytes = b"", exit_code: int = 0) -> None:
        """From now on the command writes this."""
        for name, content in (("FAKE_OUTPUT", output), ("FAKE_ERRORS", errors)):
            path = self.folder / name
            path.write_bytes(content)
            self.variables[name] = str(path)
        self.variables["FAKE_EXIT"] = str(exit_code)

    def log(self) -> list[dict[str, object]]:
        path = self.folder / "log.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines()]

    def starts(self) -> list[list[str]]:
        """The arguments of every start of the command."""
        return [entry["argv"] for entry in self.log() if "argv" in entry]

    def pids(self) -> list[int]:
        """Every process of every run so far."""
        return [int(entry.get("pid") or entry["child"]) for entry in self.log()]

    async def working(self, count: int = 1) -> None:
        """Wait until so many children are at work."""
        await until(lambda: len([one for one in self.log() if "child" in one]) >= count)

    def count_alive(self) -> int:
        return len([pid for pid in self.pids() if is_alive(pid)])

    def assert_nothing_runs(self) -> None:
        assert self.count_alive() == 0, self.log()

    def gate(self, name: str = "gate") -> Path:
        """A pipe; a run with the message `gate:<path>` ends when it is written to."""
        path = self.folder / name
        os.mkfifo(path)
        return path


async def until(condition: Callable[[], bool], seconds: float = 240.0) -> None:
    """Wait for something another process does, which nothing here can await."""
    with anyio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110 - another process does it
            await anyio.sleep(0.01)


def turn_of(text: str = "hello", *, context: str = "c-1", untrusted: tuple[str, ...] = ()) -> Turn:
    session = SessionKey(f"agent:main:a2a:local:{context}")
    peer = Peer("p", "context-id")
    return Turn(
        run_id=RunId(f"run-{context}"),
        task_id=TaskId("task-1"),
        context_id=ContextId(context),
        message=Message(MessageId("message-1"), Role.USER, (Part(text=text),)),
        binding=Binding(AgentId("main"), AccountId("default"), session, session, peer, NOW, NOW),
        principal=PeerName("local"),
        body=text,
        untrusted=untrusted,
    )


async def events_of(agent: OpenClawCliAgent, turn: Turn) -> list[AgentEvent]:
    with anyio.fail_after(240):
        return [event async for event in agent.run(turn)]


async def text_of(agent: OpenClawCliAgent, turn: Turn) -> str:
    events = await events_of(agent, turn)
    replies = [event for event in events if isinstance(event, Reply)]
    return "".join(part.text or "" for reply in replies for part in reply.parts)


@pytest.fixture
def openclaw(tmp_path: Path) -> FakeOpenClaw:
    return FakeOpenClaw(tmp_path / "openclaw")


@pytest.fixture
def serve(openclaw: FakeOpenClaw) -> Callable[..., OpenClawCliAgent]:
    def build(**options: object) -> OpenClawCliAgent:
        named = {"openclaw_path": str(openclaw.program), "kill_grace_seconds": 1.0, **options}
        env = {**openclaw.variables, **named.pop("env", {})}
        return OpenClawCliAgent(OpenClawCliOptions(env=env, **named))

    return build


@pytest.fixture
def make_turn() -> Callable[..., Turn]:
    return turn_of


@pytest.fixture
def events() -> Callable[..., object]:
    return events_of


@pytest.fixture
def text() -> Callable[..., object]:
    return text_of


@pytest.fixture
def wait_until() -> Callable[..., object]:
    return until
