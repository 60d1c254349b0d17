#!/usr/bin/env python3
"""Run one load against several servers in turn, several rounds; medians, spread and ratios.

  compare.py --rounds 5 --target sdk=http://127.0.0.1:9101/ --target ours=http://127.0.0.1:9000/ \\
             --pid sdk=123 --pid ours=456 -- send --conns 16 --duration 2

Everything after `--` goes to a2aload.py. The first target is the base of the ratios. A target may
have its own protocol version: name=url@0.3
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

FIELDS = (
    "rps,p50_ms,p99_ms,cpu_us_per_op,cpu_us_per_event,server_cpu_share,events_per_s,asked_per_s,"
    "ttfe_p50_ms,ttfe_p99_ms,total_p50_ms,kb_per_stream,errors,bad"
)
RATIOS = ("rps", "events_per_s", "asked_per_s", "cpu_us_per_op", "cpu_us_per_event")
LOADER = Path(__file__).with_name("a2aload.py")

Runs = dict[str, list[dict]]


def run_load(load: Sequence[str], target: str, *, pid: str | None, core: str | None) -> dict | None:
    """One load against one server, on its own core when that is asked for."""
    url, _, version = target.partition("@")
    command = ["taskset", "-c", core] if core else []
    command += [sys.executable, str(LOADER), *load, "--url", url, "--version", version or "1.0"]
    command += ["--pid", pid] if pid else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{target}: {done.stderr[-400:]}", file=sys.stderr)
        return None
    return json.loads(done.stdout)


def summarize(runs: Runs, fields: Sequence[str]) -> dict[str, dict]:
    """Median and spread of every field of every target, and ratios to the first target."""
    rows: dict[str, dict] = {}
    for name, results in runs.items():
        row: dict[str, dict] = {}
        for field in fields:
            values = [r[field] for r in results if isinstance(r.get(field), int | float)]
            if values:
                median = statistics.median(values)
                row[field] = {"median": median, "min": min(values), "max": max(values)}
        rows[name] = row
    first = next(iter(rows.values()), {})
    for row in rows.values():
        for field in RATIOS:
            if field in row and first.get(field, {}).get("median"):
                ratio = row[field]["median"] / first[field]["median"]
                row[field]["ratio_to_first"] = round(ratio, 3)
    return rows


def compare(
    load: Sequence[str],
    targets: dict[str, str],
    *,
    pids: dict[str, str],
    rounds: int,
    core: str | None = None,
    fields: Sequence[str] = FIELDS.split(","),
) -> dict:
    """Interleave the rounds, so that a busy moment of the machine hits every target alike."""
    runs: Runs = {}
    for _ in range(rounds):
        for name, target in targets.items():
            result = run_load(load, target, pid=pids.get(name), core=core)
            if result is not None:
                runs.setdefault(name, []).append(result)
    return {"load": list(load), "rounds": rounds, "targets": summarize(runs, fields), "runs": runs}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", action="append", required=True)
    parser.add_argument("--pid", action="append", default=[])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--core", help="pin the loader to this core (taskset)")
    parser.add_argument("--field", default=FIELDS, help="fields to report, comma separated")
    argv = sys.argv[1:]
    cut = argv.index("--") if "--" in argv else len(argv)
    args = parser.parse_args(argv[:cut])
    result = compare(
        argv[cut + 1 :],
        dict(target.split("=", 1) for target in args.target),
        pids=dict(pid.split("=") for pid in args.pid),
        rounds=args.rounds,
        core=args.core,
        fields=args.field.split(","),
    )
    del result["runs"]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
