#!/usr/bin/env python3
"""a2aload: a small closed-loop load tool for A2A JSON-RPC servers; prints one JSON object.

Standard library only; uses uvloop and orjson when they are importable. README.md says what the
agent behind the server must answer.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable

from measure import cpu_s, ms, percentile, resident_kb, summarize
from wire import TERMINAL, Connection, EventReader, Target

try:
    from orjson import loads
except ImportError:
    from json import loads

now = time.perf_counter


class ClosedLoop:
    """Several connections, each sending the next request when the last one is answered."""

    def __init__(self, target: Target, make: Callable[[], bytes], expected: bytes = b""):
        self.target, self.make, self.expected = target, make, expected
        self.latencies: list[float] = []
        self.errors = self.operations = 0

    async def run(self, *, conns: int, duration: float, warmup: float) -> dict:
        start = now() + warmup
        end = start + duration
        await asyncio.gather(*(self._work(start, end) for _ in range(conns)))
        return {**summarize(self.latencies, self.errors, duration), "all_ops": self.operations}

    async def _work(self, start: float, end: float) -> None:
        connection = await self.target.connect()
        while (asked := now()) < end:
            try:
                status, body = await connection.request(self.make())
            except ConnectionError:
                self.errors += 1
                connection = await self.target.connect()
                continue
            self._note(asked, start <= asked and now() <= end, status, body)
        connection.close()

    def _note(self, asked: float, counts: bool, status: int, body: bytes) -> None:
        self.operations += 1
        if status != 200 or b'"error"' in body[:80] or self.expected not in body:
            self.errors += 1
        elif counts:
            self.latencies.append(now() - asked)


async def closed_loop(target: Target, args, make, expected: bytes = b"") -> dict:
    loop = ClosedLoop(target, make, expected)
    return await loop.run(conns=args.conns, duration=args.duration, warmup=args.warmup)


async def load_send(target: Target, args) -> dict:
    """Send and wait for the completed task."""
    expected = b"" if args.no_check else target.dialect.completed
    return await closed_loop(target, args, lambda: target.dialect.send(args.text), expected)


async def load_get(target: Target, args) -> dict:
    """Read one task."""
    task_id = args.task or await new_task(target, args.text)
    payload = target.dialect.get(task_id, args.history)
    result = await closed_loop(target, args, lambda: payload)
    result["bytes"] = len(json.dumps(await target.call(payload)))
    return result


async def load_list(target: Target, args) -> dict:
    """Read the first page of tasks."""
    return await closed_loop(target, args, lambda: target.dialect.list(args.page))


async def new_task(target: Target, text: str) -> str:
    return target.dialect.task_of(await target.call(target.dialect.send(text)))["id"]


class StreamRun:
    """One streamed answer, watched."""

    def __init__(self, target: Target):
        self.target = target
        self.first: float | None = None
        self.total = 0.0
        self.events = self.size = 0
        self.state: str | None = None

    async def run(self, text: str, timeout_s: float = 120.0) -> "StreamRun":
        self._began = now()
        connection = await self.target.connect()
        reader = EventReader(self._see)
        try:
            request = connection.request(self.target.dialect.stream(text), reader.feed)
            await asyncio.wait_for(request, timeout_s)
        finally:
            connection.close()
        self.total = now() - self._began
        return self

    def has_all(self, size: int) -> bool:
        """Ended, with at least this much text on the way."""
        return self.state in TERMINAL and self.size >= size

    def _see(self, event: bytes) -> None:
        if self.first is None:
            self.first = now() - self._began
        self.events += 1
        self.size += len(event)
        # Only status events are parsed: the loader must stay cheaper than the server.
        if b"tatus" in event and b"rtifactUpdate" not in event[:200]:
            answer = loads(event)
            state = self.target.dialect.state_of(answer.get("result", {}))
            self.state = "error" if "error" in answer else state or self.state


async def load_stream(target: Target, args) -> dict:
    """Many streams of N chunks, some at a time."""
    text = f"chunks:{args.chunks}:{args.bytes}"
    room = asyncio.Semaphore(args.conns)
    done: list[StreamRun] = []

    async def stream_once() -> None:
        async with room:
            done.append(await StreamRun(target).run(text))

    began = now()
    await asyncio.gather(*(stream_once() for _ in range(args.count)))
    wall = now() - began
    good = [run for run in done if run.has_all(args.chunks * args.bytes)]
    events = sum(run.events for run in good)
    firsts = [run.first or 0.0 for run in good]
    return {
        "streams": len(good),
        "bad": len(done) - len(good),
        "chunks": args.chunks,
        "conns": args.conns,
        "wall_s": round(wall, 3),
        "events": events,
        # A server may join chunks that come faster than they are stored: what was asked for
        # stays the measure.
        "asked_events": len(good) * args.chunks,
        "events_per_s": round(events / wall, 1),
        "asked_per_s": round(len(good) * args.chunks / wall, 1),
        "ttfe_p50_ms": ms(percentile(firsts, 0.5)),
        "ttfe_p99_ms": ms(percentile(firsts, 0.99)),
        "total_p50_ms": ms(percentile([run.total for run in good], 0.5)),
        "bytes_per_stream": good[0].size if good else None,
    }


async def load_open(target: Target, args) -> dict:
    """Hold many streams open; memory of the server per stream, and sends meanwhile."""
    before = resident_kb(args.pid)
    held: list[Connection] = []
    seen = 0
    began = now()

    async def hold() -> None:
        nonlocal seen
        connection = await target.connect()
        held.append(connection)
        has_event = asyncio.Event()
        reader = EventReader(lambda _: has_event.set())
        request = connection.request(target.dialect.stream(f"hold:{args.hold}"), reader.feed)
        request.add_done_callback(lambda done: done.cancelled() or done.exception())
        async with asyncio.timeout(args.hold):
            await has_event.wait()
            seen += 1

    for first in range(0, args.count, 50):
        await asyncio.gather(*(hold() for _ in range(min(50, args.count - first))))
    opened = now() - began
    await asyncio.sleep(1)  # let the server settle before its memory is read
    alive = sum(not connection.is_closed for connection in held)
    after = resident_kb(args.pid)
    probe = ClosedLoop(target, lambda: target.dialect.send("echo:probe"))
    meanwhile = await probe.run(conns=1, duration=1.5, warmup=0.3)
    for connection in held:
        connection.close()
    return {
        "asked": args.count,
        "first_event_seen": seen,
        "alive": alive,
        "open_wall_s": round(opened, 3),
        "rss_before_kb": before,
        "rss_after_kb": after,
        "kb_per_stream": round((after - before) / max(1, alive), 1) if after and before else None,
        "send_while_open": meanwhile,
    }


async def load_fill(target: Target, args) -> dict:
    """Make many tasks, to grow a store; one of their ids."""
    left, errors, last = args.count, 0, b""

    async def work() -> None:
        nonlocal left, errors, last
        connection = await target.connect()
        while left > 0:
            left -= 1
            _, last = await connection.request(target.dialect.send(args.text))
            errors += target.dialect.completed not in last
        connection.close()

    began = now()
    await asyncio.gather(*(work() for _ in range(args.conns)))
    return {
        "created": args.count,
        "all_ops": args.count,
        "errors": errors,
        "wall_s": round(now() - began, 2),
        "rss_kb": resident_kb(args.pid),
        "task": target.dialect.task_of(loads(last))["id"],
    }


async def load_chunks(target: Target, args) -> dict:
    """The cost of one streamed run against its number of chunks: does it grow faster?"""
    rows = []
    for size in map(int, args.sizes.split(",")):
        used = cpu_s(args.pid)
        runs = [
            await StreamRun(target).run(f"chunks:{size}:{args.bytes}", 600)
            for _ in range(args.repeat)
        ]
        cpu = cpu_s(args.pid) - used
        totals = [run.total for run in runs]
        rows.append(
            {
                "n": size,
                "bad": sum(not run.has_all(size * args.bytes) for run in runs),
                "events": runs[0].events,
                "total_ms": ms(statistics.median(totals)),
                "us_per_chunk": round(statistics.median(totals) / size * 1e6, 1),
                "cpu_us_per_chunk": round(cpu / size / args.repeat * 1e6, 1) if args.pid else None,
            }
        )
    return {"rows": rows}


async def load_history(target: Target, args) -> dict:
    """The cost of reading a task against the number of messages in its history."""
    rows = []
    args.conns, args.warmup = 1, 0.2
    for size in map(int, args.sizes.split(",")):
        run = await StreamRun(target).run(f"hist:{size}", 600)
        task_id = await new_task(target, f"hist:{size}")
        whole, bare = target.dialect.get(task_id), target.dialect.get(task_id, 0)
        read = await closed_loop(target, args, lambda payload=whole: payload)
        read_bare = await closed_loop(target, args, lambda payload=bare: payload)
        rows.append(
            {
                "n": size,
                "run_ms": ms(run.total),
                "events": run.events,
                "get_rps": read["rps"],
                "get_p50_ms": read["p50_ms"],
                "get_history0_rps": read_bare["rps"],
            }
        )
    return {"rows": rows}


LOADS = {
    "send": load_send,
    "get": load_get,
    "list": load_list,
    "stream": load_stream,
    "open": load_open,
    "fill": load_fill,
    "chunks": load_chunks,
    "history": load_history,
}


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("load", choices=LOADS)
    parser.add_argument("--url", required=True, help="JSON-RPC address")
    parser.add_argument("--version", default="1.0", help="1.0 or 0.3")
    parser.add_argument("--conns", type=int, default=16)
    parser.add_argument("--duration", type=float, default=3)
    parser.add_argument("--warmup", type=float, default=0.5)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--chunks", type=int, default=100)
    parser.add_argument("--bytes", type=int, default=32)
    parser.add_argument("--hold", type=float, default=60)
    parser.add_argument("--sizes", default="10,100,1000")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--page", type=int, default=50)
    parser.add_argument("--history", type=int)
    parser.add_argument("--text", default="echo:hello")
    parser.add_argument("--task")
    parser.add_argument("--pid", type=int, help="the server's process: adds its CPU and memory")
    parser.add_argument("--no-check", action="store_true", help="do not look for `completed`")
    parser.add_argument("--header", action="append", default=[], help="'Name: value'")
    return parser.parse_args(argv)


def loop_runner():
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    target = Target(args.url, args.version, args.header)
    cpu_before, began = cpu_s(args.pid), now()
    result = loop_runner()(LOADS[args.load](target, args))
    if args.pid:
        cpu, wall = cpu_s(args.pid) - cpu_before, now() - began
        result["server_cpu_s"] = round(cpu, 3)
        result["server_cpu_share"] = round(cpu / wall, 2)
        if operations := result.get("all_ops") or result.get("asked_events"):
            result["cpu_us_per_op"] = round(cpu / operations * 1e6, 1)
        if events := result.get("events"):
            result["cpu_us_per_event"] = round(cpu / events * 1e6, 1)
        result["rss_kb_end"] = resident_kb(args.pid)
    json.dump({"load": args.load, "version": args.version, **result}, sys.stdout)
    print()


if __name__ == "__main__":
    main()
