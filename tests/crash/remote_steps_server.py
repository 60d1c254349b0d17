"""A gateway with objectives, or the peer that does its steps, to be killed.

Run: python remote_steps_server.py PORT FOLDER STORE_KIND [PEER_URL]

With a peer it is the target `far`. The own agent asks a question about each step; to everything
else it says what it took, and leaves a line in a file that no crash takes back.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from openclaw_a2a.app import Gateway, build_app, serve_gateway
from openclaw_a2a.model.agent_event import AgentEvent, InputRequired, Reply
from openclaw_a2a.model.ids import AgentId
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.ports import Recovery
from openclaw_a2a.settings import Settings, load_settings

TRACES = "traces.txt"


class AskingAgent:
    """Asks once about each step."""

    recovery = Recovery.REPEAT

    def __init__(self, traces: Path) -> None:
        self._traces = traces

    async def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        """Ask, or take the answer."""
        if "This is a step of" in turn.body:
            yield InputRequired("which one?")
            return
        with self._traces.open("a", encoding="utf-8") as traces:
            traces.write(f"{turn.body}\n")
            traces.flush()
            os.fsync(traces.fileno())
        await asyncio.sleep(0.05)  # to be killed in
        yield Reply.of_text(f"took {turn.body}")

    async def close(self) -> None:
        """Nothing is held."""


def main() -> int:
    """Serve until the process is ended."""
    port, folder, kind = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    targets = [{"alias": "far", "baseUrl": url} for url in sys.argv[4:]]
    account = {"defaultAgentId": "main", "agentStyle": "task-generating"}
    settings = {
        "agents": {"main": {"adapter": "echo"}},
        "channels": {"a2a": {"accounts": {"default": account}}},
        "opt": {"enabled": True, "requireActivation": False},
        "outbound": {"enabled": bool(targets), "targets": targets},
    }
    config = folder / "openclaw-a2a.json5"
    config.write_text(json.dumps(settings), encoding="utf-8")
    flags = {"server.port": port, "data": str(folder), "store.kind": kind, "log.format": "json"}
    loaded = load_settings(config, overrides=flags, environ={})

    def build(settings: Settings) -> Gateway:
        return build_app(settings, agents={AgentId("main"): AskingAgent(folder / TRACES)})

    return serve_gateway(loaded, build)


if __name__ == "__main__":
    sys.exit(main())
