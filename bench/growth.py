#!/usr/bin/env python3
"""How the cost of an operation grows with what there is already; figures and plots.

  ./dev bench plots                                   everything, about a quarter of an hour
  .venv/bin/python bench/growth.py calls objectives   only these; the plots of the others stay
  .venv/bin/python bench/growth.py --draw             the plots again from the figures of last time

Server CPU per operation, each kind of growth in a gateway process of its own on durable SQLite. The
figures go to docs/images/performance/figures.json, the plots beside it.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import calls
import planning
from fill_store import clone_tasks, fill
from measure import cpu_s, resident_kb
from openclaw_a2a.store import create_store
from plot import write_plot
from servers import Running, started
from wire import Connection, Target

Json = Any
Points = list[tuple[float, float]]

FOLDER = Path(__file__).parent.parent / "docs" / "images" / "performance"
FIGURES = FOLDER / "figures.json"
CONNECTIONS = 16
SECONDS = 2.0
CHUNKS = (10, 100, 1_000, 10_000, 100_000)
HISTORY = (10, 100, 1_000, 9_990)
"""The limit is 10,000 with the message that asks."""
STORED = (1_000, 10_000, 100_000, 1_000_000)
STREAMS = (10, 100, 1_000, 5_000)
PENDING = (10, 100, 1_000, 10_000, 100_000)
OBJECTIVES = (10, 100, 1_000, 10_000, 100_000)
_EVENTS = 20_000
"""About so many chunks or messages are sent for each point."""
_LONG_MS = 3_600_000


async def cost(pid: int, work: Callable[[], Awaitable[int]], settle_s: float = 0.3) -> float:
    """CPU microseconds of the server for one of the operations that `work` does and counts."""
    spent = cpu_s(pid)
    count = await work()
    await asyncio.sleep(settle_s)
    return round((cpu_s(pid) - spent) / count * 1e6, 1)


async def ask_for(target: Target, make: Callable[[], bytes], seconds: float = SECONDS) -> int:
    """Requests on all connections for a while; how many."""
    end = time.monotonic() + seconds

    async def work() -> int:
        connection, count = await target.connect(), 0
        while time.monotonic() < end:
            status, body = await connection.request(make())
            assert status == 200 and b'"error"' not in body[:80], body[:300]
            count += 1
        connection.close()
        return count

    return sum(await asyncio.gather(*(work() for _ in range(CONNECTIONS))))


def target_of(server: Running) -> Target:
    return Target(server.url, "1.0", [])


async def stream_runs(target: Target, text: str, count: int) -> None:
    """Stream so many runs to their ends, one after the other."""
    for _ in range(count):
        connection, seen = await target.connect(), list[bytes]()
        await connection.request(target.dialect.stream(text), seen.append)
        assert b"COMPLETED" in b"".join(seen), seen[-1:]
        connection.close()


# ------------------------------------------------------------------ what grows


async def measure_chunks(data: Path) -> Json:
    """CPU per chunk of a streamed answer, each an event of its own."""
    points: Points = []
    with started("ours-each", data) as server:
        await stream_runs(target_of(server), "chunks:100:32", 20)
        for size in CHUNKS:
            runs = max(1, _EVENTS // size)

            async def stream(size: int = size, runs: int = runs) -> int:
                await stream_runs(target_of(server), f"chunks:{size}:32", runs)
                return size * runs

            points.append((size, await cost(server.pid, stream)))
    return {"lines": {"chunk": points}}


async def measure_history(data: Path) -> Json:
    """CPU per message that a task gets, and of reading it with its last messages only."""
    lines: dict[str, Points] = {"new message": [], "get, last 10": []}
    with started("ours", data) as server:
        target = target_of(server)
        await stream_runs(target, "hist:10", 20)
        for size in HISTORY:
            runs = max(1, _EVENTS // 2 // size)

            async def stream(size: int = size, runs: int = runs) -> int:
                await stream_runs(target, f"hist:{size}", runs)
                return size * runs

            lines["new message"].append((size, await cost(server.pid, stream)))
            answer = await target.call(target.dialect.send(f"hist:{size}"))
            read = partial(target.dialect.get, target.dialect.task_of(answer)["id"], 10)
            lines["get, last 10"].append(
                (size, await cost(server.pid, partial(ask_for, target, read)))
            )
    return {"lines": lines}


async def measure_tasks(data: Path) -> Json:
    """CPU of a send, a get and a page of a list, with many tasks in the store."""
    lines: dict[str, Points] = {"send": [], "get": [], "list of 50": []}
    file = data / "ours" / "state.db"
    file.parent.mkdir(parents=True)
    await fill(create_store("sqlite", path=str(file)), STORED[0])
    for size in STORED:
        clone_tasks(file, size)
        with started("ours", data, "--keep-ended", "10000000") as server:
            for name, spent in (await measure_store(server, size)).items():
                lines[name].append((size, spent))
    return {"lines": lines}


async def measure_store(server: Running, size: int) -> dict[str, float]:
    """CPU of each operation with a store of this size."""
    target, number = target_of(server), iter(range(10**9))
    requests: dict[str, Callable[[], bytes]] = {
        "send": lambda: target.dialect.send("echo:x"),
        "get": lambda: target.dialect.get(f"task-{next(number) * 7919 % size + 1:032}"),
        "list of 50": lambda: target.dialect.list(50),
    }
    await ask_for(target, requests["send"], 1.0)
    return {
        name: await cost(server.pid, partial(ask_for, target, make))
        for name, make in requests.items()
    }


async def measure_streams(data: Path) -> Json:
    """CPU of a send while streams are open whose tasks are worked on, and what each holds."""
    points: Points = []
    held: list[Connection] = []
    with started("ours", data) as server:
        target = target_of(server)
        await ask_for(target, lambda: target.dialect.send("echo:x"), 1.0)
        before = resident_kb(server.pid) or 0
        for size in STREAMS:
            while len(held) < size:
                held += await asyncio.gather(
                    *(open_stream(target) for _ in range(min(50, size - len(held))))
                )
            await asyncio.sleep(1)
            grown = (resident_kb(server.pid) or 0) - before
            send = partial(ask_for, target, lambda: target.dialect.send("echo:x"))
            points.append((size, await cost(server.pid, send)))
        alive = sum(not one.is_closed for one in held)
        for one in held:
            one.close()
    assert alive == STREAMS[-1], f"{alive} of {STREAMS[-1]} streams are open"
    return {"lines": {"send": points}, "kb_each": round(grown / STREAMS[-1], 1)}


async def open_stream(target: Target) -> Connection:
    """A stream whose task is worked on; open once its first event is here."""
    connection = await target.connect()
    first: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def see(piece: bytes) -> None:
        if not first.done():
            first.set_result(piece)

    request = asyncio.ensure_future(connection.request(target.dialect.stream("hold:3600"), see))
    request.add_done_callback(lambda done: done.cancelled() or done.exception())
    await first
    return connection


async def measure_pending(data: Path) -> Json:
    """CPU of a call, accepted to seen, while others are pending; what a pending one holds."""
    points: Points = []
    options = calls.parse_options([])
    with calls.started(data / "pending", options) as bed, calls.cores_apart(bed.pid):
        callers = calls.Callers(bed)
        await calls.call_until(callers, time.time() + 1.0)
        before = resident_kb(bed.pid) or 0
        pending = 0
        for size in PENDING:
            await callers.many([_call_without_answer] * (size - pending))
            pending = size
            await asyncio.sleep(1)
            grown = (resident_kb(bed.pid) or 0) - before
            points.append((size, await cost(bed.pid, partial(_call, callers), settle_s=1.0)))
        assert not callers.refused, callers.refused[:1]
    return {"lines": {"call": points}, "kb_each": round(grown / PENDING[-1], 1)}


async def _call(callers: calls.Callers) -> int:
    return await calls.call_until(callers, time.time() + SECONDS)


def _call_without_answer() -> Json:
    return {"input": {"never": True}, "timeout": _LONG_MS}


async def measure_running(data: Path) -> Json:
    """What a running task holds, beside nothing that follows it."""
    count = 2_000
    with started("ours", data) as server:
        target = target_of(server)
        await ask_for(target, lambda: target.dialect.send("echo:x"), 1.0)
        before = resident_kb(server.pid) or 0
        left = iter(range(count))

        async def work() -> None:
            connection = await target.connect()
            for _ in left:
                await connection.request(target.dialect.send("hold:3600", waits=False))
            connection.close()

        await asyncio.gather(*(work() for _ in range(CONNECTIONS)))
        await asyncio.sleep(1)
        grown = (resident_kb(server.pid) or 0) - before
    return {"lines": {}, "kb_each": round(grown / count, 1)}


async def measure_objectives(data: Path) -> Json:
    """CPU of requests about objectives, with many of them open."""
    chosen = ("update", "get", "list")
    lines: dict[str, Points] = {name: [] for name in (*chosen, "create")}
    with planning.started(data / "objectives", planning.parse_options([])) as bed:
        await bed.open()
        made: list[Json] = []
        for size in OBJECTIVES:

            async def create(place: int, number: int) -> None:
                one = await bed.ask(place, "objectives/create", name=f"objective {number}")
                made.append({"objectiveId": one["objective"]["id"]})

            left = size - len(made)

            async def fill(left: int = left) -> int:
                await bed.each(left, create)
                return left

            created = await cost(bed.pid, fill)
            if left * created > 100_000:  # microseconds: fewer are a few ticks of the clock
                lines["create"].append((size, created))
            for name in chosen:
                spent = await planning.spend(bed, made, planning.REQUESTS[name])
                lines[name].append((size, round(spent["cpu_us"], 1)))
    return {"lines": lines}


# ------------------------------------------------------------------ all of it

GROWTHS: dict[str, tuple[Callable[[Path], Awaitable[Json]], str, str, str]] = {
    "chunks": (measure_chunks, "A streamed answer", "chunks of the answer", "chunk"),
    "history": (measure_history, "A task with many messages", "messages of the task", "operation"),
    "tasks": (measure_tasks, "Many tasks in the store", "tasks in the store", "operation"),
    "streams": (measure_streams, "Many open streams", "open streams", "send"),
    "pending": (measure_pending, "Many pending calls", "calls without an outcome", "call"),
    "running": (measure_running, "", "", ""),
    "objectives": (measure_objectives, "Many objectives", "open objectives", "operation"),
}


def draw(figures: Json) -> None:
    """The plots of everything that was measured."""
    for name, (_, title, x_label, operation) in GROWTHS.items():
        found = figures.get(name, {}).get("lines")
        if found:
            y_label = f"server CPU for each {operation}, microseconds"
            write_plot(FOLDER / f"{name}.svg", title, x_label, y_label, found)


def measure_growth(data: Path, names: Iterable[str] = ()) -> Json:
    """Measure, and draw the plots; the figures, with those of last time for the others."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    figures: Json = json.loads(FIGURES.read_text("utf-8")) if FIGURES.exists() else {}
    for name in names or GROWTHS:
        began, load = time.monotonic(), os.getloadavg()[0]
        (data / name).mkdir()
        figures[name] = asyncio.run(GROWTHS[name][0](data / name))
        figures[name]["load_average"] = [round(load, 1), round(os.getloadavg()[0], 1)]
        print(f"{name}: {time.monotonic() - began:.0f} s, {json.dumps(figures[name])}", flush=True)
        FIGURES.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    draw(figures)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("growths", nargs="*", metavar="GROWTH", help=", ".join(GROWTHS))
    parser.add_argument("--draw", action="store_true", help="measure nothing")
    args = parser.parse_args()
    if unknown := [name for name in args.growths if name not in GROWTHS]:
        parser.error(f"no such growth: {', '.join(unknown)}; there are {', '.join(GROWTHS)}")
    if args.draw:
        draw(json.loads(FIGURES.read_text("utf-8")))
        return
    with tempfile.TemporaryDirectory(prefix="a2a-growth-") as folder:
        measure_growth(Path(folder), args.growths)


if __name__ == "__main__":
    sys.exit(main())
