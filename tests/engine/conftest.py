"""Rooms with an engine, over every kind of store that an engine must get along with."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.engine.controlled_agent import ControlledAgent
from tests.engine.harness import EngineHarness

from openclaw_a2a.ports import Agent, Recovery

OpenRoom = Callable[..., Awaitable[EngineHarness]]


@pytest.fixture(params=["memory", "sqlite"])
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of store."""
    return request.param


@pytest.fixture
async def open_room(kind: str, tmp_path: Path) -> AsyncIterator[OpenRoom]:
    """Open rooms: `await open_room(agent, cancel_s=0.1)`; all are closed at the end."""
    async with AsyncExitStack() as rooms:

        async def open_one(agent: Agent, **limits: float) -> EngineHarness:
            room = EngineHarness(kind, tmp_path, agent, **limits)
            await room.open()
            rooms.push_async_callback(room.close)
            return room

        yield open_one


@pytest.fixture(params=[Recovery.FAIL, Recovery.REPEAT], ids=["fail", "repeat"])
def agent(request: pytest.FixtureRequest) -> ControlledAgent:
    """An agent that the test conducts; one that may be repeated begins before it is durable."""
    return ControlledAgent(request.param)


@pytest.fixture
async def room(open_room: OpenRoom, agent: ControlledAgent) -> EngineHarness:
    """A room with that agent."""
    return await open_room(agent)
