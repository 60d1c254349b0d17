#!/usr/bin/env python3
"""What open dashboards cost on the send path: server CPU per send, with none open and with fifty.

  ./dev bench dashboards                        fifty pages, five rounds
  .venv/bin/python bench/dashboards.py --pages 200 --rounds 5

Half of the pages are the first one, half the list of tasks, all of them live and as HTML, as
browsers have them. They are read by a process of its own on the loader's core. A round is four
phases: without, with, with, without them, so that what becomes slower as the store grows cancels
out. `ratio` is the median of the rounds' ratios.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlencode, urlsplit

from compare import run_load
from servers import LOADER_CORE, started

Json = Any
PAGES = 50
ROUNDS = 5
GOAL = 1.05
ADDRESSES = ("/dashboard", "/dashboard/tasks")
SEND = ["send", "--conns", "16", "--duration", "3"]


async def read_pages(url: str, token: str, count: int) -> None:
    """Hold so many live pages open; says when all of them are, then how many parts came."""
    host, port = urlsplit(url).hostname, urlsplit(url).port
    parts = [0, 0]

    async def read(number: int, is_open: asyncio.Event) -> None:
        query = urlencode({"at": ADDRESSES[number % len(ADDRESSES)]})
        reader, writer = await asyncio.open_connection(host, port, limit=2**24)
        head = f"GET /dashboard/live?{query} HTTP/1.1\r\nHost: {host}:{port}\r\n"
        writer.write(f"{head}Authorization: Bearer {token}\r\n\r\n".encode())
        while chunk := await reader.read(2**18):
            is_open.set()
            parts[0] += chunk.count(b"id: ")
            parts[1] += len(chunk)

    opened = [asyncio.Event() for _ in range(count)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(read(number, one)) for number, one in enumerate(opened)]
        for one in opened:
            await one.wait()
        print("open", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        for task in tasks:
            task.cancel()
    print(json.dumps({"parts": parts[0], "bytes": parts[1]}), flush=True)


class Readers:
    """A process that holds pages open."""

    def __init__(self, url: str, token: str, count: int) -> None:
        command = [sys.executable, __file__, "--read", url, "--token", token]
        if LOADER_CORE:
            command = ["taskset", "-c", LOADER_CORE, *command]
        self._process = subprocess.Popen(
            [*command, "--pages", str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._expect("open")

    def _expect(self, word: str) -> None:
        said = self._process.stdout.readline()
        if said.strip() != word:
            raise SystemExit(f"the pages could not be opened: {said!r}")

    def close(self) -> Json:
        """Close them; what came meanwhile."""
        said, _ = self._process.communicate("\n", timeout=60)
        return json.loads(said)


def measure_dashboards(data: Path, *, pages: int = PAGES, rounds: int = ROUNDS) -> Json:
    """Medians without and with open pages, and their ratio."""
    runs: dict[str, list[Json]] = {"none": [], "open": []}
    came: list[Json] = []
    with started("ours", data) as server:
        token = (data / "ours" / "operator.token").read_text(encoding="ascii").strip()
        base = server.url.partition("/a2a/")[0]
        send = (SEND, server.url)
        run_load(["send", "--duration", "2"], server.url, pid=None, core=LOADER_CORE)
        for name in ("none", "open", "open", "none") * rounds:
            readers = Readers(base, token, pages) if name == "open" else None
            runs[name].append(run_load(*send, pid=str(server.pid), core=LOADER_CORE))
            if readers is not None:
                came.append(readers.close())
    costs = {name: [run["cpu_us_per_op"] for run in one] for name, one in runs.items()}
    ratios = [
        sum(costs["open"][place : place + 2]) / sum(costs["none"][place : place + 2])
        for place in range(0, 2 * rounds, 2)
    ]
    return {
        "pages": pages,
        "rounds": rounds,
        "cpu_us_per_send": {name: round(median(one), 1) for name, one in costs.items()},
        "ratio": round(median(ratios), 3),
        "goal": GOAL,
        "ratios": [round(one, 3) for one in ratios],
        "p50_ms": {name: median(run["p50_ms"] for run in one) for name, one in runs.items()},
        "p99_ms": {name: median(run["p99_ms"] for run in one) for name, one in runs.items()},
        "parts_per_page_and_second": round(
            median(one["parts"] for one in came) / pages / float(SEND[-1]), 2
        ),
        "load_average": round(os.getloadavg()[0], 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=PAGES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--read", help=argparse.SUPPRESS)
    parser.add_argument("--token", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.read:
        asyncio.run(read_pages(args.read, args.token, args.pages))
        return 0
    with tempfile.TemporaryDirectory(prefix="a2a-bench-") as folder:
        result = measure_dashboards(Path(folder), pages=args.pages, rounds=args.rounds)
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
