"""A gateway whose agents take their time, to be killed in the middle.

Run: python agents_server.py PORT FOLDER STORE_KIND

An agent does as the text says: a number counts so far; `ask` waits for an answer; `fail` fails;
`hang` hangs, unless it is asked again after a crash; `note` says what it does; `slow` needs a
while; everything else is repeated. Account `default` has an agent that may be repeated, `fragile`
one that may not, `hybrid` one that may and that answers directly when it can.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from openclaw_a2a.app import Gateway, build_app, serve_gateway
from openclaw_a2a.model.agent_event import (
    AgentEvent,
    Failed,
    InputRequired,
    Note,
    Reply,
    TextDelta,
    ToolPhase,
    ToolProgress,
)
from openclaw_a2a.model.ids import AgentId
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.ports import Recovery
from openclaw_a2a.settings import Settings, load_settings

SETTINGS = """{
  agents: {
    repeatable: { adapter: "echo" }, fragile: { adapter: "echo" }, hybrid: { adapter: "echo" },
  },
  channels: { a2a: { accounts: {
    default: { defaultAgentId: "repeatable", agentStyle: "task-generating" },
    fragile: { defaultAgentId: "fragile", agentStyle: "task-generating" },
    hybrid: { defaultAgentId: "hybrid", agentStyle: "hybrid" },
  } } },
}"""


class ActingAgent:
    """Does as it is told, one run of a session at a time."""

    def __init__(self, recovery: Recovery) -> None:
        self.recovery = recovery
        self._sessions: set[str] = set()

    async def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        if turn.session_key in self._sessions:
            raise AssertionError("two runs of one session at a time")
        self._sessions.add(turn.session_key)
        try:
            async for event in _act(turn):
                yield event
                await asyncio.sleep(0.001)
        finally:
            self._sessions.discard(turn.session_key)

    async def close(self) -> None:
        pass


async def _act(turn: Turn) -> AsyncIterator[AgentEvent]:
    match turn.body:
        case number if number.isdecimal():
            async for event in _count(int(number)):
                yield event
        case "ask":
            yield TextDelta("hm ")
            yield InputRequired("which one?", resume=turn.message_id)
        case "fail":
            yield TextDelta("oh ")
            yield Failed("no luck")
        case "hang" if turn.attempt == 1:
            yield TextDelta("hanging")
            await asyncio.Event().wait()
        case "note":
            yield TextDelta("well ")
            yield Note("looking")
            yield TextDelta("done")
        case "slow":
            await asyncio.sleep(0.05)
            yield Reply.of_text("slow")
        case body:
            yield Reply.of_text(f"{body} {turn.resume}" if turn.resume else body)


async def _count(end: int) -> AsyncIterator[AgentEvent]:
    for number in range(end):
        if number == 3:
            yield ToolProgress(ToolPhase.START, "abacus", "call-1", {"at": number})
            yield ToolProgress(ToolPhase.RESULT, "abacus", "call-1", {"at": number})
        yield TextDelta(f"{number} ")


def main() -> int:
    port, folder, kind = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    config = folder / "openclaw-a2a.json5"
    config.write_text(SETTINGS, encoding="utf-8")
    flags = {"server.port": port, "data": str(folder), "store.kind": kind, "log.format": "json"}
    if kind == "postgres":
        flags["store.url"], flags["store.schema"] = sys.argv[4:6]
    loaded = load_settings(config, overrides=flags, environ={})
    agents = {
        AgentId("repeatable"): ActingAgent(Recovery.REPEAT),
        AgentId("fragile"): ActingAgent(Recovery.FAIL),
        AgentId("hybrid"): ActingAgent(Recovery.REPEAT),
    }

    def build(settings: Settings) -> Gateway:
        return build_app(settings, agents=agents)

    return serve_gateway(loaded, build)


if __name__ == "__main__":
    sys.exit(main())
