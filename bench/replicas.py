#!/usr/bin/env python3
"""What several gateways over one PostgreSQL cost, beside one over SQLite.

  ./dev bench replicas                                     all figures, about five minutes
  .venv/bin/python bench/replicas.py cpu takeover          only these
  .venv/bin/python bench/replicas.py --gateways 5 idle

PostgreSQL is a server of the bench's own that syncs to the disk. Where only one gateway may use a
database, figures that need several are those of one, and `gateways` says so. See README.md.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from compare import run_load
from measure import cpu_s, ms, percentile, resident_kb
from served import serve_measured
from servers import LOADER_CORE, SERVER_CORE, free_port, program_environment, wait_for_port
from wire import EventReader, Target

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
# What these need of the repository is not on the path of a script in this folder.
from tests.postgres_server import PostgresServer, server_folder  # noqa: E402

Json = Any
GATEWAYS = 3
LEASE_S = 3.0
ROUNDS = 5
IDLE_S = 30.0
STREAMS, STAMPS, STAMP_MS = 4, 150, 20
TAKEOVERS = 5
CONNECTIONS = 24
SENDS = 3000
FOLLOWED, PIECES, PIECE_MS = 16, 200, 5
HELD = 500
SETTLE_S, REST_S = 3.0, 20.0
DEADLINE_S = 60.0
DURABLE = {"fsync": "on", "full_page_writes": "on", "autovacuum": "on", "shared_buffers": "128MB"}
RPC = "/a2a/jsonrpc"

now = time.monotonic


# ------------------------------------------------------------------ the gateways


class StampingAgent:
    """`stamps:N:MS` says the time N times; `hold` holds until it is repeated; else it echoes."""

    def __init__(self) -> None:
        from openclaw_a2a.ports import Recovery

        self.recovery = Recovery.REPEAT

    async def run(self, turn: Json) -> AsyncIterator[Json]:
        from openclaw_a2a.model.agent_event import Reply, TextDelta

        match turn.body.split(":"):
            case ["stamps", count, milliseconds]:
                for _ in range(int(count)):
                    yield TextDelta(f"{now():.6f} ")
                    await asyncio.sleep(int(milliseconds) / 1000)
            case ["hold"] if turn.attempt == 1:
                yield TextDelta("holding")
                await asyncio.get_running_loop().create_future()
            case _:
                yield Reply.of_text(turn.body)

    async def close(self) -> None:
        """Nothing is held."""


def serve(port: int, data: Path, store: Json) -> None:
    """Serve until a signal comes."""
    serve_measured(data, port, agents={"bench": StampingAgent()}, settings=store, profile=None)


def several_possible() -> bool:
    """Whether the settings know clusters."""
    from openclaw_a2a.model.errors import GatewayError
    from openclaw_a2a.settings import load_settings

    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "gateway.json5"
        store = {"kind": "postgres", "url": "postgres://x@127.0.0.1/x", "replicas": True}
        config.write_text(json.dumps({"store": store}), encoding="utf-8")
        try:
            load_settings(config, environ={})
        except GatewayError:
            return False
    return True


class Gateway:
    """A gateway process on a port of its own."""

    def __init__(self, name: str, data: Path, store: Json, *, core: str | None = None) -> None:
        self.name, self.port, self._data = name, free_port(), data
        self.url = f"http://127.0.0.1:{self.port}{RPC}"
        self._command = [sys.executable, __file__, "serve", str(self.port), str(data)]
        self._command.append(json.dumps(store))
        if core is not None and LOADER_CORE:
            self._command = ["taskset", "-c", core, *self._command]
        data.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        with (self._data / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self._command, cwd=self._data, env=program_environment(), stdout=log, stderr=log
            )
        wait_for_port(self.port, self.process, self._data / "log")

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(DEADLINE_S)


class Bench:
    """The database and the folders of one measurement."""

    def __init__(self, folder: Path, *, gateways: int) -> None:
        self.folder = folder
        self.gateways = gateways if several_possible() else 1
        self._schemas = 0
        self.schema = ""  # of the newest cluster
        self.database = PostgresServer(server_folder(f"bench-{os.getpid()}"), settings=DURABLE)

    @contextmanager
    def opened(self) -> Iterator["Bench"]:
        try:
            self.database.create()
            self.database.start()
            yield self
        finally:
            self.database.remove()

    @contextmanager
    def cluster(self, count: int, *, core: str | None = None) -> Iterator[list[Gateway]]:
        """Gateways over a schema of their own."""
        self._schemas += 1
        schema = self.schema = f"bench_{self._schemas}"
        gateways = [
            Gateway(f"g{number}", self.folder / f"{schema}-{number}", store, core=core)
            for number in range(count)
            for store in [self._store(schema, number)]
        ]
        with _running(gateways):
            yield gateways

    @contextmanager
    def sqlite(self, *, core: str | None = None) -> Iterator[Gateway]:
        self._schemas += 1
        data = self.folder / f"sqlite-{self._schemas}"
        gateway = Gateway("sqlite", data, {"store.kind": "sqlite"}, core=core)
        with _running([gateway]):
            yield gateway

    def _store(self, schema: str, number: int) -> Json:
        store = {
            "store.kind": "postgres",
            "store.url": self.database.url(),
            "store.schema": schema,
        }
        if several_possible():
            store |= {
                "store.replicas": True,
                "store.replicaName": f"g{number}",
                "lease.seconds": LEASE_S,
            }
        return store

    def database_cpu_s(self) -> float:
        """CPU of all processes of the database so far."""
        status = (self.database.data / "postmaster.pid").read_text(encoding="utf-8")
        return cpu_s(int(status.splitlines()[0]))


@contextmanager
def _running(gateways: Sequence[Gateway]) -> Iterator[None]:
    with ExitStack() as stack:
        for gateway in gateways:
            gateway.start()
            stack.callback(gateway.kill)
        yield


# ------------------------------------------------------------------ the figures


def measure_events(bench: Bench) -> Json:
    """Milliseconds from when an agent says a piece to when a reader of each replica has it."""
    with bench.sqlite() as gateway:
        [alone] = asyncio.run(_watch_stamps(gateway, [gateway]))
    with bench.cluster(bench.gateways) as gateways:
        own, *others = asyncio.run(_watch_stamps(gateways[0], gateways))
    found = {"sqlite": _spread(alone), "own": _spread(own)}
    if others:
        found["other"] = _spread([one for each in others for one in each])
    return found


async def _watch_stamps(owner: Gateway, readers: Sequence[Gateway]) -> list[list[float]]:
    """Latencies of each reader, over several streams at once."""
    found: list[list[float]] = [[] for _ in readers]

    async def watch() -> None:
        target = Target(owner.url, "1.0", [])
        text = f"stamps:{STAMPS}:{STAMP_MS}"
        task = target.dialect.task_of(await target.call(target.dialect.send(text, waits=False)))
        await asyncio.gather(
            *(
                _read_stamps(reader, task["id"], latencies)
                for reader, latencies in zip(readers, found, strict=True)
            )
        )

    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*(watch() for _ in range(STREAMS)))
    return found


async def _read_stamps(gateway: Gateway, task_id: str, latencies: list[float]) -> None:
    def take(data: bytes) -> None:
        at, event = now(), json.loads(data)["result"]
        parts = event.get("artifactUpdate", {}).get("artifact", {}).get("parts", ())
        stamps = [float(one) for part in parts for one in part.get("text", "").split()]
        latencies.extend(at - stamp for stamp in stamps)

    target = Target(gateway.url, "1.0", [])
    connection = await target.connect()
    call = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task_id}}
    try:
        await connection.request(json.dumps(call).encode(), EventReader(take).feed)
    finally:
        connection.close()


def _spread(latencies: Sequence[float]) -> Json:
    return {
        "count": len(latencies),
        "p50_ms": ms(percentile(latencies, 0.5)),
        "p99_ms": ms(percentile(latencies, 0.99)),
    }


def measure_cpu(bench: Bench) -> Json:
    """CPU of the gateway for a durable send, over PostgreSQL and over SQLite in turn."""
    load = ["send", "--conns", "16", "--duration", "2"]
    costs: dict[str, list[float]] = {"sqlite": [], "postgres": []}
    ratios, database = list[float](), list[float]()
    with bench.sqlite(core=SERVER_CORE) as sqlite, bench.cluster(1, core=SERVER_CORE) as [one]:
        for gateway in (sqlite, one):
            run_load(["send", "--duration", "1"], gateway.url, pid=None, core=LOADER_CORE)
        for _ in range(ROUNDS):
            for name, gateway in (("sqlite", sqlite), ("postgres", one)):
                used = bench.database_cpu_s()
                result = run_load(load, gateway.url, pid=str(gateway.pid), core=LOADER_CORE)
                if result is None or result["errors"]:
                    raise SystemExit(f"the load failed: {result}")
                costs[name].append(result["cpu_us_per_op"])
                if name == "postgres":
                    spent = bench.database_cpu_s() - used
                    database.append(spent / result["all_ops"] * 1e6)
            ratios.append(costs["postgres"][-1] / costs["sqlite"][-1])
    return {
        **{f"{name}_us_per_send": round(median(values), 1) for name, values in costs.items()},
        "database_us_per_send": round(median(database), 1),
        "ratio": round(median(ratios), 2),
        "goal": 1.5,
    }


def measure_rate(bench: Bench) -> Json:
    """Sends a second of one gateway and of several, by as many connections in all."""
    rates: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for count in dict.fromkeys((1, bench.gateways)):
            with bench.cluster(count) as gateways:
                rates.setdefault(str(count), []).append(_load_all(gateways))
    medians = {count: round(median(values), 1) for count, values in rates.items()}
    first, last = medians["1"], medians[str(bench.gateways)]
    found: Json = {"cores": os.cpu_count(), "sends_per_s": medians}
    return found if bench.gateways == 1 else {**found, "ratio": round(last / first, 2)}


def _load_all(gateways: Sequence[Gateway]) -> float:
    """Every gateway has a loader of its own, all at once."""
    conns = str(CONNECTIONS // len(gateways))
    load = ["send", "--conns", conns, "--duration", "3", "--warmup", "1"]
    with ThreadPoolExecutor() as pool:
        results = list(pool.map(lambda one: run_load(load, one.url, pid=None, core=None), gateways))
    if any(one is None or one["errors"] for one in results):
        raise SystemExit(f"the load failed: {results}")
    return sum(one["rps"] for one in results if one is not None)


def measure_takeover(bench: Bench) -> Json:
    """Seconds from the kill of a run's owner to the end of the run elsewhere."""
    times: list[float] = []
    for _ in range(TAKEOVERS):
        with bench.cluster(bench.gateways) as gateways:
            times.append(asyncio.run(_take_over(gateways)))
    found = {"lease_s": LEASE_S, "median_s": round(median(times), 2), "max_s": round(max(times), 2)}
    if bench.gateways == 1:
        return {**found, "note": "with the start of the only gateway, which took the run up again"}
    return {**found, "goal_s": LEASE_S + 1}


async def _take_over(gateways: Sequence[Gateway]) -> float:
    owner, other = gateways[0], gateways[-1]
    target = Target(owner.url, "1.0", [])
    task = target.dialect.task_of(await target.call(target.dialect.send("hold", waits=False)))
    get = target.dialect.get(task["id"])
    async with asyncio.timeout(DEADLINE_S):
        while not target.dialect.task_of(await target.call(get)).get("artifacts"):
            await asyncio.sleep(0.01)
        owner.kill()
        began = now()
        if owner is other:
            await asyncio.to_thread(owner.start)
        target = Target(other.url, "1.0", [])
        while not _is_completed(target, await target.call(get)):
            await asyncio.sleep(0.01)
    return now() - began


def _is_completed(target: Target, answer: Json) -> bool:
    return target.dialect.task_of(answer)["status"]["state"] == "TASK_STATE_COMPLETED"


def measure_idle(bench: Bench) -> Json:
    """Percent of a core that the database and the gateways need while nobody asks anything."""
    with bench.cluster(bench.gateways) as gateways:
        time.sleep(3)  # what a start leaves to do is done
        database, own = bench.database_cpu_s(), sum(cpu_s(one.pid) for one in gateways)
        time.sleep(IDLE_S)
        database = bench.database_cpu_s() - database
        own = sum(cpu_s(one.pid) for one in gateways) - own
    return {
        "seconds": IDLE_S,
        "database_percent": round(100 * database / IDLE_S, 2),
        "goal_percent": 1.0,
        "gateways_percent": round(100 * own / IDLE_S, 2),
    }


# ------------------------------------------------------------------ what a capacity model needs


class Meter:
    """What two gateways and their database have used so far; differences are the cost of work."""

    def __init__(self, bench: Bench, schema: str, gateways: Sequence[Gateway]) -> None:
        self._bench, self._schema, self._gateways = bench, schema, gateways
        self._before: Json = None
        self._idle: list[float] = [0.0] * (len(gateways) + 1)  # CPU seconds in a second, at rest

    def start(self) -> None:
        self._before = self._read()

    def rest(self) -> Json:
        """Percent of a core of each process at rest; it is not counted from now on."""
        self.start()
        time.sleep(REST_S)
        used, seconds = self._used()
        self._idle = [one / seconds for one in used]
        *gateways, database = (round(100 * one, 2) for one in self._idle)
        return {"gateway_percent": gateways, "database_percent": database}

    def _used(self) -> tuple[list[float], float]:
        after, before = self._read(), self._before
        seconds = after["at"] - before["at"]
        pairs = zip(
            [*after["gateways"], after["database"]],
            [*before["gateways"], before["database"]],
            self._idle,
            strict=True,
        )
        return [new - old - idle * seconds for new, old, idle in pairs], seconds

    def cost_us(self, count: int) -> Json:
        """CPU of each process and what the database wrote, for each of so many."""
        time.sleep(SETTLE_S)  # the server tells its numbers a second late
        used, seconds = self._used()
        after, before = self._read(), self._before
        *gateways, database = (round(one / count * 1e6, 1) for one in used)
        return {
            "seconds": round(seconds, 1),
            "gateway_us": gateways,
            "database_us": database,
            "transactions": round((after["commits"] - before["commits"]) / count, 3),
            "wal_bytes": round((after["wal"] - before["wal"]) / count),
            "stored_bytes": {
                name: round((size - before["sizes"].get(name, 0)) / count)
                for name, size in after["sizes"].items()
                if size - before["sizes"].get(name, 0) >= count
            },
        }

    def _read(self) -> Json:
        sizes, commits, wal = asyncio.run(self._ask())
        return {
            "at": now(),
            "gateways": [cpu_s(one.pid) for one in self._gateways],
            "database": self._bench.database_cpu_s(),
            "sizes": sizes,
            "commits": commits,
            "wal": wal,
        }

    async def _ask(self) -> tuple[dict[str, int], int, int]:
        import asyncpg

        connection = await asyncpg.connect(self._bench.database.url())
        try:
            rows = await connection.fetch(
                "SELECT relname, pg_total_relation_size(oid) FROM pg_class "
                "WHERE relkind = 'r' AND relnamespace = $1::regnamespace",
                self._schema,
            )
            commits = await connection.fetchval(
                "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
            )
            wal = await connection.fetchval("SELECT pg_current_wal_lsn() - '0/0'")
        finally:
            await connection.close()
        return {row[0]: row[1] for row in rows}, commits, int(wal)

    def count_connections(self) -> float:
        """Connections of one gateway."""

        async def count() -> int:
            import asyncpg

            connection = await asyncpg.connect(self._bench.database.url())
            try:
                return await connection.fetchval(
                    "SELECT count(*) - 1 FROM pg_stat_activity "
                    "WHERE backend_type = 'client backend'"
                )
            finally:
                await connection.close()

        return asyncio.run(count()) / len(self._gateways)


def measure_capacity(bench: Bench) -> Json:
    """What a send, an event, a reader elsewhere and an idle stream cost every process."""
    with bench.cluster(min(2, bench.gateways)) as gateways:
        meter = Meter(bench, bench.schema, gateways)
        owner, other = gateways[0], gateways[-1]
        asyncio.run(_send_many(owner, SENDS // 10))
        found: Json = {"rest": meter.rest()}
        meter.start()
        asyncio.run(_send_many(owner, SENDS))
        found |= {"sends": SENDS, "send": meter.cost_us(SENDS)}
        for name, readers in (("event", [owner]), ("event_read_elsewhere", [owner, other])):
            meter.start()
            counts = asyncio.run(_stream_many(owner, readers))
            events = counts // len(readers)
            found[name] = {"events": events, **meter.cost_us(events)}
        found["connections_per_gateway"] = meter.count_connections()
        found["stream_bytes"] = asyncio.run(_hold_streams(owner, other))
    return found


async def _send_many(gateway: Gateway, count: int) -> None:
    """Blocking sends that each end as a completed task, on several connections."""
    left = iter(range(count))
    target = Target(gateway.url, "1.0", [])

    async def send() -> None:
        connection = await target.connect()
        for _ in left:
            status, body = await connection.request(target.dialect.send("hello"))
            if status != 200 or b"COMPLETED" not in body:
                raise SystemExit(f"a send failed: {status} {body[:300]!r}")
        connection.close()

    await asyncio.gather(*(send() for _ in range(CONNECTIONS)))


async def _stream_many(owner: Gateway, readers: Sequence[Gateway]) -> int:
    """How many pieces of text the readers have got in all."""
    found: list[float] = []

    async def follow() -> None:
        target = Target(owner.url, "1.0", [])
        text = f"stamps:{PIECES}:{PIECE_MS}"
        task = target.dialect.task_of(await target.call(target.dialect.send(text, waits=False)))
        await asyncio.gather(*(_read_stamps(one, task["id"], found) for one in readers))

    await asyncio.gather(*(follow() for _ in range(FOLLOWED)))
    return len(found)


async def _hold_streams(owner: Gateway, reader: Gateway) -> int:
    """Memory of an open stream to a task of another gateway, at which nothing happens."""
    target = Target(owner.url, "1.0", [])
    task = target.dialect.task_of(await target.call(target.dialect.send("hold", waits=False)))
    target = Target(reader.url, "1.0", [])
    before = resident_kb(reader.pid) or 0
    call = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task["id"]}}
    open_streams = []
    for _ in range(HELD):
        connection, begun = await target.connect(), asyncio.Event()

        def note(_: bytes, begun: asyncio.Event = begun) -> None:
            begun.set()

        waiting = asyncio.ensure_future(connection.request(json.dumps(call).encode(), note))
        open_streams.append((connection, waiting))
        await begun.wait()
    used = (resident_kb(reader.pid) or 0) - before
    for connection, waiting in open_streams:
        waiting.cancel()
        connection.close()
    return round(used * 1024 / HELD)


FIGURES: dict[str, Callable[[Bench], Json]] = {
    "events": measure_events,
    "cpu": measure_cpu,
    "rate": measure_rate,
    "takeover": measure_takeover,
    "idle": measure_idle,
    "capacity": measure_capacity,
}


def measure_replicas(
    folder: Path, *, figures: Sequence[str] = tuple(FIGURES), gateways: int = GATEWAYS
) -> Json:
    """Every figure, one after the other."""
    with Bench(folder, gateways=gateways).opened() as bench:
        found: Json = {"gateways": bench.gateways, "load_before": os.getloadavg()[0]}
        if bench.gateways != gateways:
            found["note"] = "only one gateway may use a database: all figures are of one"
        for name in figures:
            found[name] = FIGURES[name](bench)
            print(f"{name}: {json.dumps(found[name])}", file=sys.stderr)
    return found


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        port, data, store = sys.argv[2:]
        serve(int(port), Path(data), json.loads(store))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=", ".join(FIGURES))
    parser.add_argument("--gateways", type=int, default=GATEWAYS)
    args = parser.parse_args()
    if unknown := [one for one in args.figures if one not in FIGURES]:
        parser.error(f"no such figure: {', '.join(unknown)}; there are {', '.join(FIGURES)}")
    with tempfile.TemporaryDirectory(prefix="a2a-replicas-") as folder:
        figures = args.figures or tuple(FIGURES)
        found = measure_replicas(Path(folder), figures=figures, gateways=args.gateways)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
