"""Gateways on one database keep the rate of a caller together, however its requests are spread."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import asyncpg
import pytest
from tests.postgres_server import PostgresServer
from tests.replicas.cluster import repeat_until

from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.http.rate_limit import RateLimit
from openclaw_a2a.http.shared_rate_limit import SharedRateLimit
from openclaw_a2a.model.errors import Overloaded, StoreUnavailable
from openclaw_a2a.model.ids import PeerName
from openclaw_a2a.ports import RateAnswer, RateBucket, RateRequest, Store
from openclaw_a2a.store import create_store
from openclaw_a2a.store.rules import Lease

ALICE, BOB = PeerName("alice"), PeerName("bob")
TIMEOUT_S = 120
_SET_CLOCK = """
CREATE TABLE {0}.test_clock AS SELECT timestamptz '2026-01-01' AS now;
CREATE OR REPLACE FUNCTION {0}.rate_clock() RETURNS timestamptz LANGUAGE sql VOLATILE
  AS 'SELECT now FROM {0}.test_clock'"""
_RESET_CLOCK = """
CREATE OR REPLACE FUNCTION {0}.rate_clock() RETURNS timestamptz LANGUAGE sql VOLATILE
  AS 'SELECT clock_timestamp()';
DROP TABLE {0}.test_clock"""


class Clock:
    """The time of the gateways and of the database, which passes when the test says so."""

    def __init__(self, connection: "asyncpg.Connection", schema: str) -> None:
        self._now = 1000.0
        self._connection = connection
        self._schema = schema

    def __call__(self) -> float:
        return self._now

    async def advance(self, seconds: float) -> None:
        self._now += seconds
        await self._connection.execute(
            f"UPDATE {self._schema}.test_clock SET now = now + make_interval(secs => $1)",
            seconds,
        )


class Cluster:
    """Rate limits of several gateways."""

    def __init__(
        self,
        clock: Clock,
        limits: list[SharedRateLimit],
        connection: "asyncpg.Connection",
        schema: str,
    ) -> None:
        self.clock = clock
        self.limits = limits
        self._connection = connection
        self._schema = schema

    async def read_used(self, peer: PeerName) -> float:
        """What all gateways have taken of a minute."""
        return await self._connection.fetchval(
            f"SELECT minute_used FROM {self._schema}.request_rate WHERE peer = $1", peer
        )

    async def send(self, count: int, gateways: Sequence[int], peer: PeerName = ALICE) -> int:
        """Make requests at once, in turns at these gateways; how many are accepted."""
        chosen = [self.limits[gateways[number % len(gateways)]] for number in range(count)]
        async with asyncio.timeout(TIMEOUT_S):
            return sum(await asyncio.gather(*[ask(one, peer) for one in chosen]))


async def ask(limit: SharedRateLimit, peer: PeerName) -> bool:
    try:
        waiting = limit.count(peer)
        if waiting is not None:
            await waiting
    except Overloaded:
        return False
    return True


StartCluster = Callable[..., Awaitable[Cluster]]


@pytest.fixture
async def start_cluster(postgres: PostgresServer) -> AsyncIterator[StartCluster]:
    """`await start_cluster(3, per_second=50, per_minute=0)`."""
    stores: list[Store] = []
    supervisor = Supervisor()
    async with postgres.borrow_schema() as schema:
        connection = await asyncpg.connect(postgres.url())

        async def start(count: int, *, per_second: float = 0, per_minute: float = 0) -> Cluster:
            for number in range(count):
                store = create_store(
                    "postgres",
                    path=None,
                    url=postgres.url(),
                    schema=schema,
                    connections=2,
                    lease=Lease(60, f"gateway-{number}"),
                )
                await store.open()
                stores.append(store)
            await connection.execute(_SET_CLOCK.format(schema))
            clock = Clock(connection, schema)
            limits: list[SharedRateLimit] = []
            for store in stores:
                local = RateLimit(per_second=per_second, per_minute=per_minute, monotonic=clock)
                limit = SharedRateLimit(local, supervisor, monotonic=clock)
                assert store.replicas is not None
                limit.share(store.replicas.rates)
                limits.append(limit)
            return Cluster(clock, limits, connection, schema)

        yield start
        await supervisor.stop()
        await connection.execute(_RESET_CLOCK.format(schema))
        await connection.close()
        for store in stores:
            await store.close()


def is_within_a_tenth(accepted: int, limit: float) -> bool:
    return 0.9 * limit <= accepted <= 1.1 * limit


SPREADS = {
    "evenly over two": (2, [0, 1]),
    "evenly over three": (3, [0, 1, 2]),
    "all at one of three": (3, [1]),
    "mostly at one of three": (3, [0, 0, 0, 0, 1, 0, 0, 0, 2]),
}


@pytest.mark.parametrize(("count", "spread"), SPREADS.values(), ids=SPREADS)
@pytest.mark.parametrize("rates", [{"per_second": 100}, {"per_minute": 200}])
async def test_a_burst_gets_its_limit_however_it_is_spread(
    start_cluster: StartCluster, count: int, spread: list[int], rates: dict[str, float]
) -> None:
    cluster = await start_cluster(count, **rates)
    assert is_within_a_tenth(await cluster.send(500, spread), 200)
    assert is_within_a_tenth(await cluster.send(500, spread, BOB), 200)


@pytest.mark.parametrize(("count", "spread"), SPREADS.values(), ids=SPREADS)
async def test_steady_requests_past_the_limit_get_it_in_every_minute(
    start_cluster: StartCluster, count: int, spread: list[int]
) -> None:
    cluster = await start_cluster(count, per_second=20, per_minute=300)
    accepted: list[int] = []
    for _ in range(4):
        accepted.append(0)
        for _ in range(60):
            accepted[-1] += await cluster.send(12, spread)
            await cluster.clock.advance(1)
    first, *others = accepted
    assert is_within_a_tenth(first, 600), "the bucket is full at first"
    assert all(is_within_a_tenth(one, 300) for one in others), accepted
    assert is_within_a_tenth(sum(accepted), 300 + 4 * 300)


async def test_requests_below_the_limit_are_all_accepted(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3, per_second=20, per_minute=600)
    for _ in range(120):
        assert await cluster.send(9, [0, 1, 2]) == 9
        await cluster.clock.advance(1)


async def test_what_one_gateway_does_not_use_others_get(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(2, per_minute=100)
    for _ in range(20):  # the first gateway learns to expect requests
        assert await cluster.send(2, [0]) == 2
        await cluster.clock.advance(0.1)
    accepted = 40
    for _ in range(100):
        await cluster.clock.advance(0.01)
        accepted += await cluster.send(5, [1])
    assert is_within_a_tenth(accepted, 100 + 3 / 60 * 100)


async def test_nothing_is_written_while_nobody_asks(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(2, per_second=20, per_minute=600)
    for _ in range(5):
        assert await cluster.send(30, [0, 1]) == 30
        await cluster.clock.advance(2)

    async def are_idle() -> bool:
        return not any(limit._is_exchanging or limit._peers for limit in cluster.limits)

    assert await repeat_until(are_idle, deadline_s=TIMEOUT_S)
    assert await cluster.read_used(ALICE) <= 150, "what was not used is given back"


class LostStore:
    """A database that does not answer until it is back."""

    def __init__(self) -> None:
        self.is_back = False
        self.asked = asyncio.Event()

    async def take(
        self, requests: Sequence[RateRequest], buckets: tuple[RateBucket, RateBucket]
    ) -> dict[PeerName, RateAnswer]:
        self.asked.set()
        if not self.is_back:
            raise StoreUnavailable("the database is away")
        full = (buckets[0].capacity, buckets[1].capacity)
        return {one.peer: RateAnswer(0, full) for one in requests}


async def test_while_the_database_is_away_each_gateway_counts_for_itself() -> None:
    now = 1000.0
    store, supervisor = LostStore(), Supervisor()
    local = RateLimit(per_second=0, per_minute=10, monotonic=lambda: now)
    limit = SharedRateLimit(local, supervisor, monotonic=lambda: now)
    limit.share(store)
    async with asyncio.timeout(TIMEOUT_S):
        assert [await ask(limit, ALICE) for _ in range(12)] == [True] * 10 + [False] * 2
        store.is_back = True
        now += 60
        store.asked.clear()
        assert await ask(limit, ALICE), "it does not wait for the database to be asked again"
        await store.asked.wait()

        async def is_refused() -> bool:
            return not await ask(limit, ALICE)

        assert await repeat_until(is_refused, deadline_s=TIMEOUT_S)
    assert local.usage()[ALICE] < 10, "what the others have used counts again"
    await supervisor.stop()
