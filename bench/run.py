#!/usr/bin/env python3
"""Start our gateway and its peers, load them in turn, print one table per load.

  ./dev bench                       every load against every server
  ./dev bench --quick               what became more expensive than figures.json says (2 minutes)
  ./dev bench send stream           only these loads
  ./dev bench --servers ours,sdk --rounds 5 send
  ./dev bench grown startup         reading with 1,000 and 100,000 tasks; how fast it is there
  ./dev bench openclaw              what we add to a turn of a real OpenClaw
  ./dev bench calls                 what calls between agents cost, and when their answers come
  ./dev bench planning              what objectives cost: loading, changing, going from step to step
  ./dev bench dashboards            what fifty open pages cost on the send path
  ./dev bench attacks               how a normal caller fares while another client attacks; status 1
                                    when its p99 is more than 3 times that without
  ./dev bench http                  what HTTP costs, for one application behind several servers
  ./dev bench remote                what a send to a remote agent costs beside a bare client call
  ./dev bench replicas              several gateways over one PostgreSQL, beside one over SQLite
  ./dev bench profile               where the CPU of a send, a get, a streamed event and a call goes
                                    by thread, library, function, beside the ceiling (6 minutes)
  ./dev bench plots                 how costs grow with chunks, history, tasks, streams, calls and
                                    objectives; draws docs/images/performance (15 minutes)

Servers share one core and the loader has another, so CPU per operation is what to compare;
the medians and the ratio to the first server are printed. See README.md.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from attacks import CONNECTIONS, measure_attacks
from calls import measure_calls
from compare import compare, run_load
from dashboards import measure_dashboards
from grown import measure_grown
from growth import measure_growth
from http_servers import measure_http
from openclaw_turn import measure_openclaw
from planning import measure_planning
from profile_servers import measure_profiles
from quick import measure_quick
from remote import measure_remote
from replicas import measure_replicas
from servers import LOADER_CORE, SERVERS, started
from startup import measure_startup

LOADS = {
    "send": "send --conns 16 --duration 2",
    "stream": "stream --chunks 100 --bytes 32 --count 200 --conns 8",
    "get": "get --conns 16 --duration 2",
    "list": "list --page 50 --conns 8 --duration 2",
    "open": "open --count 1000 --hold 120",
    "chunks": "chunks --sizes 100,1000,3000 --repeat 3",
}
LONG = ("open", "chunks")
UNKNOWN = {("list", "ceiling")}
"""Loads that a server cannot serve."""
ALONE = {
    "grown": measure_grown,
    "startup": measure_startup,
    "openclaw": measure_openclaw,
    "calls": measure_calls,
    "planning": measure_planning,
    "remote": measure_remote,
    "replicas": measure_replicas,
    "attacks": measure_attacks,
    "plots": measure_growth,
    "dashboards": measure_dashboards,
    "http": measure_http,
    "profile": measure_profiles,
}


def print_table(name: str, result: dict) -> None:
    print(f"\n{name}: {' '.join(result['load'])}, {result['rounds']} rounds")
    for target, row in result["targets"].items():
        cells = [
            f"{column} {value['median']:g}"
            + (f" ({value['ratio_to_first']:g}x)" if "ratio_to_first" in value else "")
            for column, value in row.items()
        ]
        print(f"  {target:9} {SERVERS[target].durability:12} {'  '.join(cells)}")
        for series in result["runs"][target][-1].get("rows", ()):
            print(f"            {json.dumps(series)}")


def run_loads(loads: Iterable[str], names: list[str], *, rounds: int, data: Path) -> dict:
    """All servers at once, loaded one after the other."""
    results = {}
    with ExitStack() as stack:
        running = {name: stack.enter_context(started(name, data)) for name in names}
        targets = {name: server.url for name, server in running.items()}
        pids = {name: str(server.pid) for name, server in running.items()}
        for url in targets.values():
            run_load(["send", "--duration", "1"], url, pid=None, core=LOADER_CORE)
        for load in loads:
            known = {name: url for name, url in targets.items() if (load, name) not in UNKNOWN}
            results[load] = compare(
                LOADS[load].split(),
                known,
                pids=pids,
                rounds=1 if load in LONG else rounds,
                core=LOADER_CORE,
            )
            print_table(load, results[load])
    return results


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = [*LOADS, *ALONE]
    parser.add_argument("loads", nargs="*", metavar="LOAD", help=", ".join(known))
    parser.add_argument("--servers", default=",".join(SERVERS), help="the first is the base")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--connections", type=int, default=CONNECTIONS, help="how many an attacker opens"
    )
    parser.add_argument("--json", type=Path, help="also write everything measured here")
    parser.add_argument("--quick", action="store_true", help="compare with figures.json")
    parser.add_argument("--update", action="store_true", help="with --quick: write figures.json")
    args = parser.parse_args()
    if args.quick:
        return measure_quick(update=args.update)
    chosen = args.loads or list(LOADS)
    if unknown := [load for load in chosen if load not in known]:
        parser.error(f"no such load: {', '.join(unknown)}; there are {', '.join(known)}")
    alone = {**ALONE}
    alone["attacks"] = partial(measure_attacks, rounds=args.rounds, connections=args.connections)
    results: dict[str, dict] = {}
    with tempfile.TemporaryDirectory(prefix="a2a-bench-") as folder:
        data = Path(folder)
        if loads := [load for load in chosen if load in LOADS]:
            results |= run_loads(loads, args.servers.split(","), rounds=args.rounds, data=data)
        for name in (load for load in chosen if load in ALONE):
            (data / name).mkdir()
            results[name] = alone[name](data / name)
            print(f"\n{name}: {json.dumps(results[name], indent=1)}")
    if args.json:
        args.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    if over := results.get("attacks", {}).get("over"):
        print(f"over the bar: {', '.join(over)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
