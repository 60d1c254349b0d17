"""One replica, whose agents write down what they were asked, when they began and when they ended.

Run: python -m tests.replicas.replica_server CONFIG NAME JOURNAL HOST_PORT VARIANTS

All replicas append to one journal. An agent does as the text says: `chunks N MS` says N pieces in
about MS milliseconds, `slow MS` answers after a while, `ask` waits for an answer, `hang` hangs,
`fail` fails; everything else is repeated. Accounts: `default` has an agent that may be repeated,
`fragile` one that may not, `hybrid` one that answers directly. `asker` calls `worker`; the sessions
of both are in the process of the test.
"""

import asyncio
import json
import os
import secrets
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.calls.call_server import Worker
from tests.replicas.variants import apply_variants

from openclaw_a2a.app import Gateway, build_app, serve_gateway
from openclaw_a2a.model.agent_event import AgentEvent, Failed, InputRequired, Reply, TextDelta
from openclaw_a2a.model.errors import GatewayError
from openclaw_a2a.model.ids import AgentId
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.ports import Recovery
from openclaw_a2a.settings import Settings, load_settings

STOP_S = 0.02
"""How long an agent needs to stop: `canceled` must not be seen before."""


@dataclass
class Execution:
    """One run, as it is written down."""

    token: str
    how: str = "stopped"


class AgentJournal:
    """A file to which every line is added in one write, so that no kill leaves half of one."""

    def __init__(self, path: Path, replica: str) -> None:
        self._replica = replica
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    @contextmanager
    def record(self, turn: Turn, *, is_repeatable: bool) -> Iterator[Execution]:
        """Write when the block begins and when it ends."""
        execution = Execution(f"r{secrets.token_hex(4)}")
        began = {
            "token": execution.token,
            "replica": self._replica,
            "pid": os.getpid(),
            "agent": turn.agent_id,
            "is_repeatable": is_repeatable,
            "session": turn.session_key,
            "key": {"caller": turn.principal, "account": turn.account, "id": turn.message_id},
            "task_id": turn.task_id,
            "text": turn.body.partition("\n")[0],
            "began": time.monotonic(),
        }
        self._write(began)
        try:
            yield execution
        finally:
            now = time.monotonic()
            self._write({"token": execution.token, "how": execution.how, "at": now})

    def _write(self, entry: dict[str, object]) -> None:
        os.write(self._file, json.dumps(entry).encode() + b"\n")


class JournalingAgent:
    """Does as the text says."""

    def __init__(self, journal: AgentJournal, recovery: Recovery) -> None:
        self.recovery = recovery
        self._journal = journal

    async def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        is_repeatable = self.recovery is Recovery.REPEAT
        with self._journal.record(turn, is_repeatable=is_repeatable) as execution:
            try:
                async for event in _act(turn, execution):
                    yield event
            except BaseException:
                await asyncio.sleep(STOP_S)
                raise

    async def close(self) -> None:
        """Nothing is held."""


async def _act(turn: Turn, execution: Execution) -> AsyncIterator[AgentEvent]:
    match turn.body.split():
        case ["chunks", count, milliseconds]:
            for number in range(int(count)):
                yield TextDelta(f"{execution.token}.{number} ")
                await asyncio.sleep(int(milliseconds) / 1000 / int(count))
        case ["slow", milliseconds]:
            await asyncio.sleep(int(milliseconds) / 1000)
            yield Reply.of_text(f"{execution.token}.0")
        case ["ask"]:
            execution.how = "asked"
            yield InputRequired("which one?", resume=turn.message_id)
            return
        case ["hang"]:
            yield TextDelta(f"{execution.token}.0 ")
            await asyncio.Event().wait()
        case ["fail"]:
            execution.how = "failed"
            yield Failed("no luck")
            return
        case _:
            await asyncio.sleep(0.01)
            yield Reply.of_text(f"{execution.token}.0")
    execution.how = "done"


class JournalingWorker(Worker):
    """Answers calls, and puts outcomes into the sessions of the host."""

    def __init__(self, name: str, host_port: int, journal: AgentJournal) -> None:
        super().__init__(name, host_port)
        self._journal = journal

    async def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        with self._journal.record(turn, is_repeatable=True) as execution:
            execution.how = "failed"
            async for event in super().run(turn):
                yield event
            execution.how = "done"


def main() -> int:
    config, name, path, host_port, variants = sys.argv[1:6]
    apply_variants(variants)
    journal = AgentJournal(Path(path), name)

    def build(settings: Settings) -> Gateway:
        agents = {
            AgentId("repeatable"): JournalingAgent(journal, Recovery.REPEAT),
            AgentId("fragile"): JournalingAgent(journal, Recovery.FAIL),
            AgentId("hybrid"): JournalingAgent(journal, Recovery.REPEAT),
            AgentId("asker"): JournalingWorker("asker", int(host_port), journal),
            AgentId("worker"): JournalingWorker("worker", int(host_port), journal),
        }
        return build_app(settings, agents=agents)

    try:
        return serve_gateway(load_settings(Path(config), environ={}), build)
    except GatewayError as error:  # said as the command says it: the database is away
        print(error.message)
        return 1


if __name__ == "__main__":
    sys.exit(main())
