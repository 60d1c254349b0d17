"""Clients use a cluster while its parts fail; what they and the agents saw keeps every guarantee.

`./dev chaos --replicas` is the long form. `--seed` repeats the choices of a run, not its timing.
"""

import asyncio
import secrets
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.replicas.checker import check_history
from tests.replicas.clients import Client, Progress
from tests.replicas.cluster import Cluster, nginx_in_front, repeat_until, running_cluster
from tests.replicas.faults import INJECTED, FaultInjector
from tests.replicas.history import (
    Delivered,
    Fault,
    FaultKind,
    History,
    read_losses,
    read_runs,
)

SHORT_FORM = {1: (100, 0), 3: (300, 24)}
"""Tasks and faults for one gateway alone and for several. Half of the faults are kills."""
CLIENTS, MANY_CLIENTS = 16, 32
MANY_TASKS = 1000
"""From so many tasks on there are many clients: the long form is to end within an hour."""
LEASE_S = 3.0
"""Short, so that take-overs are seen. On a busy machine some have no other cause: see `LOST`."""
QUIET_LEASE_S = 30.0
SETTLE_S = 600.0
BROKEN_SETTLE_S = 30.0
"""What a gateway that is broken on purpose has lost never comes: this is waited for in vain."""
LATE_S = 10.0
"""Far longer than a notification takes on a busy machine, far shorter than a rare poll."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "count" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--gateways")
        metafunc.parametrize("count", SHORT_FORM if chosen is None else (chosen,))


class Chaos:
    """One run: clients, faults, and what was seen."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        tasks: int,
        seed: str,
        kinds: Sequence[FaultKind] = INJECTED,
        settle_s: float = SETTLE_S,
    ) -> None:
        self.cluster = cluster
        self.settle_s = settle_s
        self.history = History(lease_s=cluster.lease_s)
        self.progress = Progress(tasks)
        self.faults = FaultInjector(cluster, self.history, seed, kinds)
        clients = CLIENTS if tasks < MANY_TASKS else MANY_CLIENTS
        self.clients = [
            Client(cluster, self.history, self.progress, number, seed) for number in range(clients)
        ]

    async def run(self, faults: int) -> None:
        """Play, fail, let everything end or pause, and read the end of every task."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.faults.inject(faults, self.progress))
            for client in self.clients:
                group.create_task(client.play())
        await self._deliver_calls()
        await self._read_finals()
        self.history.runs = read_runs(self.cluster.journal)
        self.history.faults += self._read_losses()

    def _read_losses(self) -> list[Fault]:
        offset_s = time.time() - time.monotonic()
        return read_losses(self.cluster.outputs(), self.cluster.lease_s, offset_s)

    async def _deliver_calls(self) -> None:
        accepted = {call.id for call in self.history.calls if call.polled is None}

        async def is_delivered() -> bool:
            return self.cluster.host.counts.keys() >= accepted

        await repeat_until(is_delivered, deadline_s=self.settle_s)
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
        """Raise with every violation."""
        violations = check_history(self.history)
        if violations:
            lines = [f"{one.rule}: {one.text[:2000]}" for one in violations[:20]]
            pytest.fail(f"{len(violations)} violations\n" + "\n".join(lines))
        for name, output in self.cluster.outputs().items():
            assert "Traceback (most recent call last)" not in output, f"{name}: {output[-4000:]}"

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


@asynccontextmanager
async def started_chaos(
    folder: Path, config: pytest.Config, *, count: int, **options: Any
) -> AsyncIterator[Chaos]:
    """A cluster with its clients. When the block fails, everything that was seen is written down
    beside the logs of the gateways.

    Options: `tasks`, `kinds` of faults, `settle_s`; of the cluster `variants`, `lease_s` and
    `plans`. An `attempt` after the first one has a seed of its own.
    """
    seed = config.getoption("--seed") or secrets.token_hex(4)
    if attempt := options.pop("attempt", 0):
        seed = f"{seed}-{attempt}"
    variants = options.pop("variants", "")
    lease_s = options.pop("lease_s", LEASE_S)
    print(f"seed {seed}, gateways {count} {variants}")
    plans = options.pop("plans", False)
    async with running_cluster(
        folder, count=count, lease_s=lease_s, variants=variants, plans=plans
    ) as cluster:
        chaos = Chaos(cluster, seed=seed, **options)
        try:
            yield chaos
        except BaseException as error:
            path = folder / "history.json"
            chaos.history.runs = chaos.history.runs or read_runs(cluster.journal)
            chaos.history.write(path)
            error.add_note(f"seed {seed}; see {path} and {folder}/replica-*/log.txt")
            raise


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
    short = SHORT_FORM.get(count, SHORT_FORM[3])
    tasks = pytestconfig.getoption("--tasks") or short[0]
    faults = pytestconfig.getoption("--faults")
    faults = short[1] if faults is None else faults
    lease_s = LEASE_S if faults else QUIET_LEASE_S
    async with started_chaos(
        tmp_path, pytestconfig, count=count, tasks=tasks, lease_s=lease_s, plans=True
    ) as chaos:
        if program := shutil.which("nginx"):
            async with nginx_in_front(chaos.cluster, program) as port:
                for client in chaos.clients[::2]:
                    client.front_port = port
                await chaos.run(faults)
        else:
            await chaos.run(faults)
        print(chaos.summary())
        chaos.check()


# ---------------------------------------------------------------- variants


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("variant", ["lose-notifications", "poll-rarely"])
async def test_clients_notice_neither_lost_notifications_nor_rare_polls(
    tmp_path: Path, pytestconfig: pytest.Config, variant: str
) -> None:
    """Each alone: one repairs what the other misses, and notifications need no polls to be fast."""
    async with started_chaos(
        tmp_path, pytestconfig, count=3, tasks=60, variants=variant, lease_s=QUIET_LEASE_S
    ) as chaos:
        if variant == "poll-rarely":
            chaos.history.most_delay_s = LATE_S
        await chaos.run(0)
        print(chaos.summary())
        chaos.check()


BROKEN = {
    "skip-session-lock": (0, 120, {"sessions", "arrival", "order", "ends", "outcomes"}),
    "notify-before-commit,poll-rarely": (0, 60, {"delays"}),
    "ignore-fences": (6, 80, {"repeats", "sessions", "failures", "texts", "order", "outcomes"}),
}
"""With how many faults and tasks a gateway that is broken on purpose is noticed, by which rules."""
ATTEMPTS = 3
"""What is broken shows only when requests and faults meet: chance may spare a run."""


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("variant", BROKEN)
async def test_the_checker_notices_a_gateway_that_is_broken_on_purpose(
    tmp_path: Path, pytestconfig: pytest.Config, variant: str
) -> None:
    faults, tasks, rules = BROKEN[variant]
    lease_s = LEASE_S if faults else QUIET_LEASE_S
    for attempt in range(ATTEMPTS):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        async with started_chaos(
            folder,
            pytestconfig,
            count=3,
            tasks=tasks,
            variants=variant,
            lease_s=lease_s,
            kinds=(FaultKind.PAUSE,),
            settle_s=BROKEN_SETTLE_S,
            attempt=attempt,
        ) as chaos:
            chaos.history.most_delay_s = LATE_S
            await chaos.run(faults)
            print(chaos.summary())
            found = Counter(one.rule for one in check_history(chaos.history))
            print(dict(found))
            is_noticed = bool(found.keys() & rules)
            assert is_noticed or attempt < ATTEMPTS - 1
        if is_noticed:
            return
