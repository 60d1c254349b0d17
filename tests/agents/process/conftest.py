"""Small programs as agents, on both event loops."""

import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
from tests.agents.processes import is_alive_or_ours

from openclaw_a2a.agents.process.command_agent import CommandAgent, CommandOptions


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


@pytest.fixture
def serve(tmp_path: Path) -> Callable[..., CommandAgent]:
    """Makes an agent of a Python program; keywords are the agent's options."""

    def make(source: str, *arguments: str, **options: object) -> CommandAgent:
        script = tmp_path / "program.py"
        script.write_text(dedent(source), encoding="utf-8")
        command = (sys.executable, "-S", str(script), *arguments)
        return CommandAgent(CommandOptions(command=command, **options))  # pyright: ignore[reportArgumentType] - options by name

    return make


@pytest.fixture
def is_there() -> Callable[[int], bool]:
    return is_alive_or_ours
