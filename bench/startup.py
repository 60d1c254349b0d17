"""How fast the command answers, and how soon after `up` the gateway serves."""

import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from fill_store import fill_store
from measure import cpu_s
from servers import program_environment, started

COMMAND = str(Path(sys.executable).with_name("openclaw-a2a"))
INTERPRETER = (sys.executable, "-c", "import asyncio, json, sqlite3")
ROUNDS = 7
STORES = {"sqlite": ("state.db", 100_000), "json-file": ("tasks", 20_000)}
"""The stores that a start is measured with: the name in the data folder, how many tasks it has."""
STORE_ROUNDS = 5


def seconds_of(command: Sequence[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=program_environment())
    return time.perf_counter() - began


def seconds_to_ready(data: Path, *options: str) -> tuple[float, float]:
    """Until the gateway serves: on the clock, and of its CPU."""
    began = time.perf_counter()
    with started("ours", data, *options) as server:
        return time.perf_counter() - began, cpu_s(server.pid)


def measure_stores(data: Path) -> dict:
    """Medians in seconds with stores that have many ended tasks, which a start leaves alone."""
    rows: dict[str, dict[str, float]] = {}
    for kind, (name, count) in STORES.items():
        filled = data / kind
        (filled / "ours").mkdir(parents=True)
        fill_store(kind, str(filled / "ours" / name), count)
        walls, cpus = [], []
        for _ in range(STORE_ROUNDS):
            wall, cpu = seconds_to_ready(filled, "--store", kind)
            walls.append(wall)
            cpus.append(cpu)
        medians = statistics.median(walls), statistics.median(cpus)
        rows[f"{kind}, {count} tasks"] = dict(
            zip(("ready_s", "cpu_s"), (round(one, 3) for one in medians), strict=True)
        )
    return rows


def measure_startup(data: Path) -> dict:
    """Medians in seconds; the interpreter alone is what nobody can be faster than."""
    bare, helped, ready = [], [], []
    for turn in range(ROUNDS):
        folder = data / str(turn)
        folder.mkdir()
        bare.append(seconds_of(INTERPRETER))
        helped.append(seconds_of([COMMAND, "--help"]))
        ready.append(seconds_to_ready(folder)[0])
    medians = {
        "interpreter_s": statistics.median(bare),
        "help_s": statistics.median(helped),
        "ready_s": statistics.median(ready),
    }
    ratio = medians["help_s"] / medians["interpreter_s"]
    rounded = {name: round(value, 3) for name, value in medians.items()}
    return {**rounded, "help": round(ratio, 2), **measure_stores(data / "stores")}
