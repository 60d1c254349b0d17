"""How fast the command answers, and how soon after `up` the gateway serves."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from fill_store import clone_tasks, fill_store
from measure import cpu_s
from servers import free_port, program_environment, stop, wait_for_port

COMMAND = str(Path(sys.executable).with_name("openclaw-a2a"))
INTERPRETER = (sys.executable, "-c", "import asyncio, json, sqlite3")
ROUNDS = 7
STORES = {"sqlite": ("state.db", 100_000), "json-file": ("tasks", 20_000)}
"""The stores that a start is measured with: the name in the data folder, how many tasks it has."""
STORE_ROUNDS = 5
EVERYTHING = {
    "outbound": {"enabled": True, "targets": [{"alias": "peer", "baseUrl": "http://127.0.0.1:9"}]},
    "tools": {"agentToAgent": {"enabled": True, "allow": ["*"]}},
    "opt": {"enabled": True},
}
"""Whatever is loaded at the start only where it is enabled."""


def seconds_of(command: Sequence[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=program_environment())
    return time.perf_counter() - began


def seconds_to_ready(data: Path, store: str = "sqlite") -> tuple[float, float]:
    """Until `up` serves with all that can be enabled: on the clock, and of its CPU."""
    port = free_port()
    settings = {
        "server": {"port": port, "stopSeconds": 0},
        "data": str(data),
        "store": {"kind": store},
        "agents": {"bench": {"adapter": "echo"}},
        "retention": {"keepEnded": 10_000_000},
        **EVERYTHING,
    }
    config = data / "bench.json5"
    config.write_text(json.dumps(settings), encoding="utf-8")
    command = [COMMAND, "up", "--config", str(config)]
    with (data / "log").open("wb") as log:
        began = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=data, env=program_environment(), stdout=log, stderr=log
        )
        try:
            wait_for_port(port, process, data / "log")
            return time.perf_counter() - began, cpu_s(process.pid)
        finally:
            stop(process)


def measure_stores(data: Path) -> dict:
    """Medians in seconds with stores that have many ended tasks, which a start leaves alone."""
    rows: dict[str, dict[str, float]] = {}
    for kind, (name, count) in STORES.items():
        filled = data / kind
        filled.mkdir(parents=True)
        if kind == "sqlite":
            fill_store(kind, str(filled / name), 1_000)
            clone_tasks(filled / name, count)
        else:
            fill_store(kind, str(filled / name), count)
        walls, cpus = [], []
        for _ in range(STORE_ROUNDS):
            wall, cpu = seconds_to_ready(filled, kind)
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
