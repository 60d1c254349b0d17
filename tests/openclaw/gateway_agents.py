"""Agents of a real OpenClaw, run without the engine."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
import msgspec
from tests.openclaw.openclaw_process import OpenClaw
from tests.openclaw.turns import turn_of

from openclaw_a2a.agents.openclaw_gateway import OpenClawGatewayAgent, OpenClawGatewayOptions
from openclaw_a2a.model.agent_event import AgentEvent, InputRequired, Reply, TextDelta
from openclaw_a2a.model.ids import RunId
from openclaw_a2a.model.turn import Turn

Json = Any
TIMEOUT_S = 200.0


@asynccontextmanager
async def gateway_agent(
    openclaw: OpenClaw, **options: Json
) -> AsyncGenerator[OpenClawGatewayAgent]:
    """The agent `main` over its WebSocket; at the end, OpenClaw's runs are left as they are."""
    given = {"url": openclaw.ws_url, "token": "env:IT", "agent_id": "main", "road": "websocket"}
    chosen = OpenClawGatewayOptions(**cast("Json", {**given, "connect_seconds": 60, **options}))
    agent = OpenClawGatewayAgent(chosen, environ={"IT": openclaw.token})
    try:
        yield agent
    finally:
        await agent.close()


def make_turn(text: str, context: str, *, run: str = "", **more: Json) -> Turn:
    """A turn in a context; `run` tells the turns of a context apart."""
    turn = turn_of(text, context=context)
    return msgspec.structs.replace(turn, run_id=RunId(f"run-{context}{run}"), **more)


async def run_turn(agent: OpenClawGatewayAgent, turn: Turn) -> list[AgentEvent]:
    """All that the agent tells in a turn."""
    with anyio.fail_after(TIMEOUT_S):
        return [event async for event in agent.run(turn)]


def texts(events: list[AgentEvent]) -> list[str]:
    """The assistant messages, each whole."""
    found: list[str] = []
    streamed = ""
    for event in events:
        if isinstance(event, TextDelta):
            streamed += event.text
        elif isinstance(event, Reply):
            found.append("".join(part.text or "" for part in event.parts))
            streamed = ""
        elif type(event).__name__ == "MessageEnd":
            found.append(streamed)
            streamed = ""
    return [*found, streamed] if streamed else found


def find_pause(events: list[AgentEvent]) -> InputRequired:
    """The pause that a turn ended with."""
    assert isinstance(events[-1], InputRequired), events
    return events[-1]
