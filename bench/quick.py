"""`./dev bench --quick`: has anything become more expensive? In under two minutes.

Counts of Python calls are the same on every machine. CPU is measured as a ratio to a calibration
loop of the same run, on the same core, so that a slow machine is slow in both. Both are compared
with the figures in `figures.json`, which `--update` writes anew.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from compare import run_load
from count_calls import OPERATIONS, count_operations
from servers import LOADER_CORE, SERVER_CORE, started

FIGURES = Path(__file__).with_name("figures.json")
MORE_CALLS, MORE_CPU = 1.10, 1.20
ROUNDS = 5
LOADS = {
    "send": ["send", "--conns", "16", "--duration", "1.5"],
    "get": ["get", "--conns", "16", "--duration", "1"],
    "stream": ["stream", "--chunks", "100", "--bytes", "32", "--count", "40", "--conns", "8"],
}
_UNIT = 20_000


def calibrate() -> float:
    """CPU microseconds of a fixed piece of Python: objects, calls, dictionaries and JSON."""
    began = time.process_time()
    for number in range(_UNIT):
        value = {"id": number, "parts": [{"text": str(number)}]}
        json.loads(json.dumps(value))
    return (time.process_time() - began) / _UNIT * 1e6


def measure_cpu(data: Path) -> dict[str, float]:
    """Server CPU of each operation, in calibration units; the median of several rounds."""
    ratios: dict[str, list[float]] = {name: [] for name in LOADS}
    with started("ours", data) as server:
        run_load(["send", "--duration", "1"], server.url, pid=None, core=LOADER_CORE)
        for _ in range(ROUNDS):
            for name, load in LOADS.items():
                unit = _calibrated()
                result = run_load(load, server.url, pid=str(server.pid), core=LOADER_CORE)
                if result is not None:
                    ratios[name].append(result["cpu_us_per_op"] / unit)
    return {name: round(median(values), 3) for name, values in ratios.items() if values}


def _calibrated() -> float:
    """On the server's core: the other one may be slower, or have a neighbour."""
    if LOADER_CORE is None:
        return calibrate()
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {int(SERVER_CORE)})
    try:
        return calibrate()
    finally:
        os.sched_setaffinity(0, before)


def compare_figures(now: dict, known: dict) -> list[str]:
    """What costs more than the known figures allow, one sentence each."""
    worse = []
    for kind, most in (("calls", MORE_CALLS), ("cpu", MORE_CPU)):
        for name, value in now[kind].items():
            before = known.get(kind, {}).get(name)
            if before and value > before * most:
                worse.append(f"{name}: {value:g} {kind}, was {before:g} ({value / before:.2f}x)")
    return worse


def measure_quick(*, update: bool) -> int:
    """Measure, print and compare; the exit code."""
    counts = count_operations(OPERATIONS)
    with tempfile.TemporaryDirectory(prefix="a2a-quick-") as folder:
        cpu = measure_cpu(Path(folder))
    now = {"calls": {name: row["calls"] for name, row in counts.items()}, "cpu": cpu}
    known = json.loads(FIGURES.read_text("utf-8")) if FIGURES.exists() else {}
    print(f"{'':14}{'now':>10}{'known':>10}")
    for kind, unit in (("calls", "Python calls"), ("cpu", "calibration units of CPU")):
        print(f"{unit}:")
        for name, value in now[kind].items():
            print(f"  {name:12}{value:10g}{known.get(kind, {}).get(name, float('nan')):10g}")
    if update:
        FIGURES.write_text(json.dumps(now, indent=2) + "\n", encoding="utf-8")
        return 0
    worse = compare_figures(now, known)
    for sentence in worse:
        print(f"worse: {sentence}", file=sys.stderr)
    return 1 if worse else 0
