"""How fast the command answers, and how soon after `up` the gateway serves."""

import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from servers import started

COMMAND = str(Path(sys.executable).with_name("openclaw-a2a"))
INTERPRETER = (sys.executable, "-c", "import asyncio, json, sqlite3")
ROUNDS = 7


def seconds_of(command: Sequence[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - began


def seconds_to_ready(data: Path) -> float:
    began = time.perf_counter()
    with started("ours", data):
        return time.perf_counter() - began


def measure_startup(data: Path) -> dict:
    """Medians in seconds; the interpreter alone is what nobody can be faster than."""
    bare, helped, ready = [], [], []
    for turn in range(ROUNDS):
        folder = data / str(turn)
        folder.mkdir()
        bare.append(seconds_of(INTERPRETER))
        helped.append(seconds_of([COMMAND, "--help"]))
        ready.append(seconds_to_ready(folder))
    medians = {
        "interpreter_s": statistics.median(bare),
        "help_s": statistics.median(helped),
        "ready_s": statistics.median(ready),
    }
    ratio = medians["help_s"] / medians["interpreter_s"]
    return {**{name: round(value, 3) for name, value in medians.items()}, "help": round(ratio, 2)}
