"""A gateway whose agents count slowly, to be killed in the middle.

Run: python counting_server.py PORT FOLDER STORE_KIND
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from openclaw_a2a.app import Gateway, build_app, serve_gateway
from openclaw_a2a.model.ids import AgentId
from openclaw_a2a.model.reply import AgentEvent, TextDelta, ToolPhase, ToolProgress
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.ports import Recovery
from openclaw_a2a.settings import Settings, load_settings


class CountingAgent:
    """Counts to the number it is told, with a tool call on the way."""

    def __init__(self, recovery: Recovery) -> None:
        self.recovery = recovery

    async def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        for number in range(int(turn.body)):
            if number == 3:
                yield ToolProgress(ToolPhase.START, "abacus", "call-1", {"at": number})
                yield ToolProgress(ToolPhase.RESULT, "abacus", "call-1", {"at": number})
            yield TextDelta(f"{number} ")
            await asyncio.sleep(0.001)

    async def close(self) -> None:
        pass


def main() -> int:
    port, folder, kind = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    config = folder / "openclaw-a2a.json5"
    config.write_text(
        """{
          agents: { repeatable: { adapter: "echo" }, fragile: { adapter: "echo" } },
          channels: { a2a: { accounts: {
            default: { defaultAgentId: "repeatable", agentStyle: "task-generating" },
            fragile: { defaultAgentId: "fragile", agentStyle: "task-generating" },
          } } },
        }""",
        encoding="utf-8",
    )
    flags = {"server.port": port, "data": str(folder), "store.kind": kind, "log.format": "json"}
    loaded = load_settings(config, overrides=flags, environ={})
    agents = {
        AgentId("repeatable"): CountingAgent(Recovery.REPEAT),
        AgentId("fragile"): CountingAgent(Recovery.FAIL),
    }

    def build(settings: Settings) -> Gateway:
        return build_app(settings, agents=agents)

    return serve_gateway(loaded, build)


if __name__ == "__main__":
    sys.exit(main())
