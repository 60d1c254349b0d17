"""Harnesses with an engine, over every kind of store that an engine must get along with."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.engine.controlled_agent import ControlledAgent
from tests.engine.harness import Harness

from openclaw_a2a.ports import Agent, Recovery

OpenHarness = Callable[..., Awaitable[Harness]]


@pytest.fixture(params=["memory", "sqlite"])
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of store."""
    return request.param


@pytest.fixture
async def open_harness(kind: str, tmp_path: Path) -> AsyncIterator[OpenHarness]:
    """Open harnesses: `await open_harness(agent, cancel_s=0.1)`; all are closed at the end."""
    async with AsyncExitStack() as harnesses:

        async def open_one(agent: Agent, **limits: float) -> Harness:
            harness = Harness(kind, tmp_path, agent, **limits)
            await harness.open()
            harnesses.push_async_callback(harness.close)
            return harness

        yield open_one


@pytest.fixture(params=[Recovery.FAIL, Recovery.REPEAT], ids=["fail", "repeat"])
def agent(request: pytest.FixtureRequest) -> ControlledAgent:
    """An agent that the test conducts; one that may be repeated begins before it is durable."""
    return ControlledAgent(request.param)


@pytest.fixture
async def harness(open_harness: OpenHarness, agent: ControlledAgent) -> Harness:
    """A harness with that agent."""
    return await open_harness(agent)
