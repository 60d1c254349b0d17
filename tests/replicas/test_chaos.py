"""Clients use a cluster while its parts fail; what they and the agents saw keeps every guarantee.

`./dev chaos --replicas` is the long form. `--seed` repeats the choices of a run, not its timing.
"""

import asyncio
import secrets
import shutil
from collections import defaultdict
from pathlib import Path

import pytest
from tests.replicas.checker import check_history
from tests.replicas.clients import Client, Progress
from tests.replicas.cluster import Cluster, nginx_in_front, repeat_until, running_cluster
from tests.replicas.faults import FaultInjector
from tests.replicas.history import Delivered, History, read_runs

GATEWAYS = (1, 3)
"""One alone, with calls and plans; and several, which have none of these."""
CLIENTS = 16
LEASE_S = 3.0
"""Short, so that take-overs are seen; a busy machine alone must not lead to one without faults."""
QUIET_LEASE_S = 30.0
SETTLE_S = 120.0


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "count" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--gateways")
        metafunc.parametrize("count", GATEWAYS if chosen is None else (chosen,))


class Chaos:
    """One run: clients, faults, and what was seen."""

    def __init__(self, cluster: Cluster, *, tasks: int, seed: str) -> None:
        self.cluster = cluster
        self.history = History(lease_s=cluster.lease_s)
        self.progress = Progress(tasks)
        self.faults = FaultInjector(cluster, self.history, seed)
        self.clients = [
            Client(cluster, self.history, self.progress, number, seed) for number in range(CLIENTS)
        ]

    async def run(self, faults: int) -> None:
        """Play, fail, let everything come to rest, and read the end of every task."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.faults.inject(faults, self.progress))
            for client in self.clients:
                group.create_task(client.play())
        await self._deliver_calls()
        await self._read_finals()
        self.history.runs = read_runs(self.cluster.journal)

    async def _deliver_calls(self) -> None:
        accepted = {call.id for call in self.history.calls}

        async def is_delivered() -> bool:
            return self.cluster.host.counts.keys() >= accepted

        await repeat_until(is_delivered, deadline_s=SETTLE_S)
        host = self.cluster.host
        for message, at in zip(host.history, host.times, strict=True):
            self.history.delivered.append(Delivered(message["correlationId"], message, at))

    async def _read_finals(self) -> None:
        wanted: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for task_id, sent in self.history.accepted_tasks().items():
            wanted[sent.key.caller].append((sent.key.account, task_id))
        readers = {client.peer: client for client in self.clients}
        async with asyncio.timeout(SETTLE_S + self.progress.goal):
            await asyncio.gather(
                *(readers[peer].read_finals(tasks) for peer, tasks in wanted.items())
            )

    def check(self) -> None:
        """Raise with every violation; the whole history is written beside the logs."""
        violations = check_history(self.history)
        if violations:
            path = self.cluster.folder / "history.json"
            self.history.write(path)
            lines = [f"{one.rule}: {one.text[:2000]}" for one in violations[:20]]
            pytest.fail(f"{len(violations)} violations, see {path}\n" + "\n".join(lines))

    def summary(self) -> str:
        states: dict[str, int] = defaultdict(int)
        for final in self.history.finals.values():
            states[final.state.removeprefix("TASK_STATE_").lower()] += 1
        counts = self.faults.counts
        return (
            f"{len(self.history.finals)} tasks {dict(states)}, "
            f"{len(self.history.runs)} runs, {len(self.history.calls)} calls, "
            f"{len(self.history.objectives)} objectives, {len(self.history.reads)} streams, "
            f"faults {dict(counts)}"
        )


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.requirement(
    "promise.commit.before-show",
    "promise.order.one-order",
    "promise.order.one-terminal",
    "promise.order.timestamps",
    "promise.resume.missing-only",
    "promise.recovery.no-zombie",
    "promise.idempotent.at-once",
    "promise.lane.one-run",
    "promise.calls.one-outcome",
    "promise.walls.not-found",
    "promise.cancel.stopped",
)
async def test_clients_and_agents_see_every_guarantee_kept_while_the_cluster_fails(
    tmp_path: Path, pytestconfig: pytest.Config, count: int
) -> None:
    tasks, faults = pytestconfig.getoption("--tasks"), pytestconfig.getoption("--faults")
    seed = pytestconfig.getoption("--seed") or secrets.token_hex(4)
    print(f"seed {seed}, gateways {count}")
    lease_s = LEASE_S if faults else QUIET_LEASE_S
    async with running_cluster(tmp_path, count=count, lease_s=lease_s) as cluster:
        chaos = Chaos(cluster, tasks=tasks, seed=seed)
        if program := shutil.which("nginx"):
            async with nginx_in_front(cluster, program) as port:
                for client in chaos.clients[::2]:
                    client.front_port = port
                await chaos.run(faults)
        else:
            await chaos.run(faults)
        print(chaos.summary())
        chaos.check()
        for name, output in cluster.outputs().items():
            assert "Traceback (most recent call last)" not in output, f"{name}: {output[-4000:]}"
