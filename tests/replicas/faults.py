"""What fails in a cluster, at random moments: replicas, their links to the database, the database.

Every fault ends by itself, so the cluster is whole again when the last one is over. Faults of
different replicas may overlap; one replica has one at a time.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from tests.replicas.clients import Progress
from tests.replicas.cluster import Cluster, Replica
from tests.replicas.history import Fault, FaultKind, History
from tests.replicas.proxies import Link

now = time.monotonic
INJECTED = tuple(kind for kind in FaultKind if kind is not FaultKind.LOST)


class FaultInjector:
    """Injects a number of faults, evenly over the tasks that clients begin."""

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        seed: str,
        kinds: Sequence[FaultKind] = INJECTED,
    ) -> None:
        self._kinds = kinds
        self._cluster = cluster
        self._history = history
        self._chance = random.Random(f"{seed} faults")
        self._whole = list(cluster.replicas)
        self._is_whole = asyncio.Semaphore(len(self._whole))
        self._has_database = asyncio.Lock()

    @property
    def counts(self) -> Counter[str]:
        return Counter(fault.kind.value for fault in self._history.faults)

    async def inject(self, count: int, progress: Progress) -> None:
        """Return when the last fault is over."""
        kinds = self._plan(count)
        async with asyncio.TaskGroup() as faults:
            for number, kind in enumerate(kinds):
                await progress.wait(progress.goal * number // count)
                await asyncio.sleep(self._chance.uniform(0, 0.2))  # a random moment is the point
                if kind is FaultKind.DATABASE:
                    faults.create_task(self._restart_database())
                else:
                    await self._is_whole.acquire()
                    replica = self._whole.pop(self._chance.randrange(len(self._whole)))
                    faults.create_task(self._fail(kind, replica))

    def _plan(self, count: int) -> list[FaultKind]:
        """Half of them of the first kind; the others in equal parts, in random order."""
        first, *others = self._kinds
        kinds = [
            first if number % 2 == 0 or not others else others[number // 2 % len(others)]
            for number in range(count)
        ]
        self._chance.shuffle(kinds)
        return kinds

    async def _fail(self, kind: FaultKind, replica: Replica) -> None:
        actions: dict[FaultKind, Callable[[Replica, Fault], Awaitable[None]]] = {
            FaultKind.KILL: self._kill,
            FaultKind.STOP: self._stop,
            FaultKind.PAUSE: self._pause,
            FaultKind.REFUSE: lambda one, _: self._cut(one, Link.REFUSED),
            FaultKind.DROP: lambda one, _: self._cut(one, Link.DROPPED),
        }
        fault = self._begin(kind, replica)
        try:
            await actions[kind](replica, fault)
        finally:
            fault.ended = now()
            self._whole.append(replica)
            self._is_whole.release()

    def _begin(self, kind: FaultKind, replica: Replica) -> Fault:
        fault = Fault(kind, replica.name, replica.pid, now(), float("inf"))
        self._history.faults.append(fault)
        return fault

    async def _kill(self, replica: Replica, fault: Fault) -> None:
        replica.kill()
        fault.gone = now()
        await asyncio.sleep(self._chance.choice([0, 0.5, 1.5 * self._cluster.lease_s]))
        if self._chance.random() < 0.2:
            replica.spawn()
            again = self._begin(FaultKind.KILL, replica)
            await asyncio.sleep(self._chance.uniform(0.3, 1.2))  # somewhere in its start
            replica.kill()
            again.gone = again.ended = now()
        await replica.start()

    async def _stop(self, replica: Replica, fault: Fault) -> None:
        await asyncio.to_thread(replica.stop)
        fault.gone = now()
        await replica.start()

    async def _pause(self, replica: Replica, _: Fault) -> None:
        """Mostly for longer than a lease: others take its runs over while it knows nothing."""
        replica.pause()
        await asyncio.sleep(self._cluster.lease_s * self._chance.choice([0.3, 1.3, 2.0]))
        replica.resume()

    async def _cut(self, replica: Replica, link: Link) -> None:
        assert replica.database is not None
        replica.database.set_link(link)
        await asyncio.sleep(self._cluster.lease_s * self._chance.choice([0.2, 1.3, 2.0]))
        replica.database.set_link(Link.UP)

    async def _restart_database(self) -> None:
        database = self._cluster.database
        async with self._has_database:
            fault = Fault(FaultKind.DATABASE, "", 0, now(), float("inf"))
            self._history.faults.append(fault)
            await asyncio.to_thread(self._chance.choice([database.stop, database.kill]))
            await asyncio.to_thread(database.start)
            fault.ended = now()
