"""A gateway whose agent does steps of plans, to be killed: python plan_server.py PORT FOLDER KIND.

With URL SCHEMA TRACES behind that it is one of several on a PostgreSQL; they leave their traces in
one file.

What the agent does leaves traces in a file that no crash takes back: a line when it begins a
step, with the name of FOLDER and the time, and one when it has done it. A step whose name ends in
`!` fails the first time.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

from openclaw_a2a.app import Gateway, build_app, serve_gateway
from openclaw_a2a.model.agent_event import AgentEvent, Reply
from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import AgentId
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.ports import Recovery
from openclaw_a2a.settings import Settings, load_settings

SETTINGS = """{
  agents: { main: { adapter: "echo" } },
  channels: { a2a: { accounts: { default: { defaultAgentId: "main" } } } },
  opt: { enabled: true, parallel: 3, backoffSeconds: 0.01, requireActivation: false },
}"""
TRACES = "traces.txt"
_PAUSES_S = (0.0, 0.02, 0.05, 0.15)


class Builder:
    """Does steps, and leaves traces."""

    recovery = Recovery.REPEAT

    def __init__(self, traces: Path, replica: str) -> None:
        self._traces = traces
        self._replica = replica

    async def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        """Do one step."""
        name = turn.body.partition("\n")[0]
        self._note(f"begin {name} {turn.task_id} {self._replica} {time.monotonic()}")
        await asyncio.sleep(_PAUSES_S[sum(map(ord, name)) % len(_PAUSES_S)])  # to be killed in
        if name.endswith("!") and f"failed {name}" not in self._traces.read_text("utf-8"):
            self._note(f"failed {name}")
            raise AgentFailed("not the first time")
        self._note(f"done {name} {turn.task_id}")
        yield Reply.of_text(f"result of {name}")

    async def close(self) -> None:
        """Nothing is held."""

    def _note(self, line: str) -> None:
        with self._traces.open("a", encoding="utf-8") as traces:
            traces.write(line + "\n")
            traces.flush()
            os.fsync(traces.fileno())


def main() -> int:
    """Serve until the process is ended."""
    port, folder, kind = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    config = folder / "openclaw-a2a.json5"
    config.write_text(SETTINGS, encoding="utf-8")
    flags: dict[str, object] = {
        "server.port": port,
        "data": str(folder),
        "store.kind": kind,
        "log.format": "json",
    }
    traces = folder / TRACES
    if len(sys.argv) > 4:
        flags |= {"store.url": sys.argv[4], "store.schema": sys.argv[5], "store.replicas": True}
        flags |= {"lease.seconds": 3, "store.connections": 4, "store.replicaName": folder.name}
        traces = Path(sys.argv[6])
    loaded = load_settings(config, overrides=flags, environ={})

    def build(settings: Settings) -> Gateway:
        return build_app(settings, agents={AgentId("main"): Builder(traces, folder.name)})

    return serve_gateway(loaded, build)


if __name__ == "__main__":
    sys.exit(main())
