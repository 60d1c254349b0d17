"""A gateway whose agents call each other, to be killed: python call_server.py PORT FOLDER KIND.

The sessions of its agents live in the process of the test, which listens at the port that the
file `host-port` names. An agent answers as the input of its skill says: `ms`, `how`, `number`.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from openclaw_a2a.app import Gateway, build_app, serve_gateway
from openclaw_a2a.model.agent_event import AgentEvent, Reply
from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import AgentId, SessionKey
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.ports import (
    DeliveryFailed,
    MessageAccepted,
    Recovery,
    SessionGone,
    SessionMessage,
    SessionPresence,
)
from openclaw_a2a.settings import Settings, load_settings

SETTINGS = """{
  agents: { asker: { adapter: "echo" }, worker: { adapter: "echo" } },
  channels: { a2a: { accounts: { default: { defaultAgentId: "worker" } } } },
  tools: { agentToAgent: { enabled: true, allow: ["*"] } },
  limits: { perPeerRuns: 1000, perPeerQueue: 10000, pendingCalls: 100000 },
}"""


class Worker:
    """Answers as the test says, and puts messages into sessions of the host."""

    recovery = Recovery.REPEAT

    def __init__(self, name: str, host_port: int) -> None:
        self._name = name
        self._host_port = host_port

    async def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        asked = json.loads(turn.body)["input"]
        await asyncio.sleep(asked["ms"] / 1000)  # something to be killed in
        if asked["how"] == "fail":
            raise AgentFailed("no luck")
        yield Reply.of_text(json.dumps({"output": {"number": asked["number"]}}))

    async def close(self) -> None:
        pass

    def owns_session(self, session_key: SessionKey) -> bool:
        return session_key.startswith(f"agent:{self._name}:")

    def host_session_key(self, session_key: SessionKey) -> SessionKey | None:
        return session_key

    @property
    def host(self) -> str:
        return "host"

    async def locate_session(self, session_key: SessionKey) -> SessionPresence:
        return SessionPresence.IDLE

    async def deliver(
        self, message: SessionMessage
    ) -> MessageAccepted | SessionGone | DeliveryFailed:
        try:
            async with asyncio.timeout(5):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._host_port)
                outcome = {
                    "id": message.id,
                    "text": message.text,
                    "isFresh": message.is_first_attempt,
                }
                writer.write(json.dumps(outcome).encode() + b"\n")
                reply = await reader.readline()
                writer.close()
        except OSError as error:
            return DeliveryFailed(str(error))
        return MessageAccepted() if reply == b"taken\n" else DeliveryFailed("the host said nothing")

    async def wait_processed(self, message: SessionMessage) -> bool:
        return True


def main() -> int:
    port, folder, kind = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    host_port = int((folder / "host-port").read_text(encoding="utf-8"))
    config = folder / "openclaw-a2a.json5"
    config.write_text(SETTINGS, encoding="utf-8")
    flags = {"server.port": port, "data": str(folder), "store.kind": kind, "log.format": "json"}
    loaded = load_settings(config, overrides=flags, environ={})

    def build(settings: Settings) -> Gateway:
        agents = {AgentId(name): Worker(name, host_port) for name in ("asker", "worker")}
        return build_app(settings, agents=agents)

    return serve_gateway(loaded, build)


if __name__ == "__main__":
    sys.exit(main())
