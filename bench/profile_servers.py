"""Where the CPU of an operation goes: by thread and library, and by function.

  ./dev bench profile                               send, get, stream and call
  .venv/bin/python bench/profile_servers.py get     only this load

A load runs three times against each server; calls between agents, which only ours has, against
ours. First nothing is sampled, and the CPU of an operation
is taken. Then `perf` (Debian: linux-perf) samples the processor, which tells threads and libraries.
Then py-spy samples the functions written in Python: only threads that hold the interpreter lock, so
that a wait is no work. A sample counts for the innermost of these functions, with the C code that
it calls. The shares are multiplied by the CPU of the first time, because sampling costs CPU too.
"""

import asyncio
import itertools
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import calls
from compare import run_load
from measure import cpu_s
from servers import LOADER_CORE, SIDE, started

SECONDS, RATE = 8, 1000
LOADS = {
    "send": ("ours", f"send --conns 16 --duration {SECONDS}"),
    "get": ("ours", f"get --conns 16 --duration {SECONDS}"),
    "stream": ("ours-each", "stream --chunks 100 --bytes 32 --count 800 --conns 8"),
}
CALL = "call"
RECEIPTS_S = 1.0
"""In which the receipts of the last calls are stored."""
MOST_FUNCTIONS = 16
LOOP = "event loop"
_FRAME = re.compile(r"(.+) \((.+?)(?::\d+)?\)$")
_PACKAGE = re.compile(r"openclaw_a2a/([a-z_]+)(?:/|\.py)")
# A line of `perf script`: the thread, the address, the function, and the file that it is in.
_PERF = re.compile(r"\s*(\d+)\s+[0-9a-f]+ .* \((.+)\)$")
_LIBRARIES = {
    "kernel": "kernel",
    "sqlite": "SQLite",
    "loop.": "uvloop",
    "_core.": "msgspec",
    "parser.": "HTTP parser",
    "httptools": "HTTP parser",
    "python": "Python",
}


def libraries(lines: Iterable[str], pid: int) -> Counter[tuple[str, str]]:
    """The samples of perf by thread (`main` or `others`) and library."""
    found: Counter[tuple[str, str]] = Counter()
    for line in lines:
        if sample := _PERF.match(line):
            thread = "main" if int(sample[1]) == pid else "others"
            known = (shown for key, shown in _LIBRARIES.items() if key in sample[2])
            found[thread, next(known, "C library and others")] += 1
    return found


def functions(lines: Iterable[str]) -> Iterator[tuple[bool, str, str, int]]:
    """The samples of py-spy: whether of the main thread, part of the program, function, how many.

    Each line has a thread and its stack, the outermost frame first.
    """
    for line in lines:
        stack, _, count = line.rpartition(" ")
        thread, *rest = stack.split(";")
        frames = [found.groups() for one in rest if (found := _FRAME.match(one))][::-1]
        if frames:
            name, path = frames[0]
            # What is outside the event loop has started it, and does no work.
            inside = [*itertools.takewhile(lambda one: "asyncio/runners" not in one[1], frames)]
            parts = (_PACKAGE.search(path) for _, path in inside)
            part = next((one[1] for one in parts if one), path if inside else LOOP)
            short = re.sub(r".*(openclaw_a2a|site-packages|python3\.\d+)/", "", path)
            yield "MainThread" in thread, part, f"{short} {name}", int(count)


def profile_load(load: str, folder: Path) -> dict[str, float]:
    """Load our gateway and the ceiling in turn; the CPU of an operation of each."""
    ours, command = LOADS[load]
    field = "cpu_us_per_event" if load == "stream" else "cpu_us_per_op"

    def run(url: str, pid: int) -> float:
        row = run_load(command.split(), url, pid=str(pid), core=LOADER_CORE)
        if row is None:
            raise SystemExit(f"the load failed: {command}")
        return row[field]

    costs: dict[str, float] = {}
    for name in (ours, "ceiling"):
        with started(name, folder) as server:
            run_load(["send", "--duration", "1"], server.url, pid=None, core=LOADER_CORE)
            load_it = partial(run, server.url, server.pid)
            costs[f"{load} {name}"] = profile(f"{load}, {name}", server.pid, load_it, folder)
    return costs


def profile_calls(folder: Path) -> dict[str, float]:
    """Calls between agents, until their outcomes are delivered and the receipts stored."""

    async def call_for(callers: calls.Callers) -> int:
        count = await calls.call_until(callers, time.time() + SECONDS)
        await asyncio.sleep(RECEIPTS_S)
        return count

    options = calls.parse_options([])
    with calls.started(folder / "gateway", options) as bed, calls.cores_apart(bed.pid):

        def run() -> float:
            before = cpu_s(bed.pid)
            # The connections of callers belong to one event loop.
            callers = calls.Callers(bed)
            count = asyncio.run(call_for(callers))
            if callers.refused:
                raise SystemExit(f"a call was refused: {callers.refused[0]}")
            return (cpu_s(bed.pid) - before) / count * 1e6

        run()  # warms up
        return {CALL: profile(CALL, bed.pid, run, folder)}


def profile(title: str, pid: int, run: Callable[[], float], folder: Path) -> float:
    """Run a load three times and print where the CPU of an operation went; that CPU.

    `run` takes `SECONDS` or more and returns the CPU of an operation in microseconds.
    """
    raw = folder / "samples"

    def sample(*command: str) -> None:
        with ThreadPoolExecutor(1) as loader:
            loading = loader.submit(run)
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            loading.result()  # a load that failed leaves nothing to see
        if done.returncode:
            raise SystemExit(f"{command[0]} failed: {done.stderr[-500:]}")

    cost = run()
    print(f"\n{title}: {cost:.1f} us of CPU an operation")
    by_library: Counter[tuple[str, str]] = Counter()
    if shutil.which("perf"):
        record = f"perf record -q -e cpu-clock -F {RATE} -p {pid} -o {raw} -- sleep {SECONDS}"
        sample(*record.split())
        script = f"perf script -i {raw} -F tid,ip,sym,dso"
        shown = subprocess.run(script.split(), capture_output=True, text=True, check=True)
        by_library = libraries(shown.stdout.splitlines(), pid)
        rows = [
            (f"{thread} thread: {shown}", count)
            for (thread, shown), count in by_library.most_common()
        ]
        print_rows("by thread and library", rows, cost)
    spy = f"--pid {pid} --rate {RATE} --duration {SECONDS} --gil --threads --function"
    program = str(SIDE / "bench" / "bin" / "py-spy")
    sample(program, "record", *spy.split(), "--format", "raw", "--output", str(raw))
    taken = [*functions(raw.read_text("utf-8").splitlines())]
    main = sum(count for (thread, _), count in by_library.items() if thread == "main")
    of_main = cost * main / by_library.total() if main else cost
    for shown, key in (("part", 1), ("function", 2)):
        sums: Counter[str] = Counter()
        for one in taken:
            if one[0]:
                sums[one[key]] += one[3]
        print_rows(f"main thread by {shown}", sums.most_common(), of_main)
    return cost


def print_rows(title: str, rows: Sequence[tuple[str, int]], cost: float) -> None:
    """Shares, and what they are in microseconds of an operation."""
    total = sum(count for _, count in rows)
    print(f"  {title} ({total} samples)")
    for shown, count in rows[:MOST_FUNCTIONS]:
        print(f"    {cost * count / total:7.1f}  {count / total:5.1%}  {shown}")


def measure_profiles(folder: Path, loads: Iterable[str] = (*LOADS, CALL)) -> dict[str, float]:
    """Profile loads; the CPU of their operations."""
    costs: dict[str, float] = {}
    for load in loads:
        data = folder / load
        data.mkdir(exist_ok=True)
        costs |= profile_calls(data) if load == CALL else profile_load(load, data)
    return costs


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="a2a-profile-") as made:
        measure_profiles(Path(made), sys.argv[1:] or (*LOADS, CALL))
