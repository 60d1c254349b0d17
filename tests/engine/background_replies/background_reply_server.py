"""A gateway to be killed whose agent sends late replies.

Run: python background_reply_server.py PORT FOLDER KIND

Whatever it is asked it echoes, and then says `later 1`, `later 2` and so on in that session, over
and over again from the beginning whenever somebody begins to listen.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from openclaw_a2a.app import Gateway, build_app, serve_gateway
from openclaw_a2a.model.agent_event import (
    AgentEvent,
    BackgroundEvent,
    BackgroundReply,
    RecentTask,
    Reply,
)
from openclaw_a2a.model.ids import AgentId, SessionKey
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.ports import Recovery
from openclaw_a2a.settings import Settings, load_settings

REPLIES = 30
SETTINGS = """{
  agents: { main: { adapter: "echo" } },
  channels: { a2a: { accounts: {
    default: { defaultAgentId: "main", agentStyle: "task-generating" },
  } } },
}"""


class LateReplyAgent:
    """Echoes, and then goes on talking."""

    recovery = Recovery.REPEAT

    def __init__(self) -> None:
        self._sessions: asyncio.Queue[SessionKey] = asyncio.Queue()

    async def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        yield Reply.of_text(turn.body)
        self._sessions.put_nowait(turn.session_key)

    async def background_events(
        self, recent: Sequence[RecentTask]
    ) -> AsyncIterator[BackgroundEvent]:
        for task in recent:
            self._sessions.put_nowait(task.session_key)
        while True:
            session_key = await self._sessions.get()
            for number in range(1, REPLIES + 1):
                said = Part.of_text(f"later {number}")
                yield BackgroundReply(session_key, str(number), (said,))
                await asyncio.sleep(0.002)  # something to be killed in

    async def close(self) -> None:
        pass


def main() -> int:
    port, folder, kind = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    config = folder / "openclaw-a2a.json5"
    config.write_text(SETTINGS, encoding="utf-8")
    flags = {"server.port": port, "data": str(folder), "store.kind": kind, "log.format": "json"}
    loaded = load_settings(config, overrides=flags, environ={})

    def build(settings: Settings) -> Gateway:
        return build_app(settings, agents={AgentId("main"): LateReplyAgent()})

    return serve_gateway(loaded, build)


if __name__ == "__main__":
    sys.exit(main())
