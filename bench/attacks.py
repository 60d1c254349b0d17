#!/usr/bin/env python3
"""How a normal caller fares while another client attacks: its p50 and p99, idle and under attack.

  ./dev bench attacks                        every attack; status 1 when one is over the bar
  ./dev bench attacks --connections 10000    with ten times as many idle connections
  bench/attacks.py --rounds 5 unread list    only these, with more rounds

Each attack runs in a process of its own, bounded in connections and time, on loopback. The server
has one core; the normal caller and the attacker share the other, the attacker with the lowest
priority. The normal caller sends and reads at a modest rate, and its latencies count from when a
request was due, so that a server that stands still is not measured less often.

Phases without and with the attack follow each other several times, and the medians of their p99
are compared, so that a neighbour who is busy for a moment changes little. A neighbour who is busy
all the time makes both of them slow and the ratio small: `own` is the p99 of the CPU time that the
gateway itself spent between a request and its answer, and `waited` is how much of the time it was
ready to run and had no core.
"""

import argparse
import asyncio
import hashlib
import json
import os
import random
import resource
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

from measure import cpu_s, ms, percentile, resident_kb
from servers import LOADER_CORE, SERVER_CORE, free_port, stop, wait_for_port

NORMAL, ATTACKER = "token-of-the-normal-caller", "token-of-the-attacker"
RPC = "/a2a/jsonrpc"
YS = b"y" * 1000
RATE = 50.0
SECONDS = 5.0
ROUNDS = 3
CONNECTIONS = 1000
WARM_UP_S, MOST_SETTLE_S = 3.0, 30.0
BAR = 3.0
BUSY = 0.1
"""Above this share of the time without a core the latencies are those of the neighbours."""
LARGE_TASKS = {"read-and-close": 24, "unread": 60, "references": 5, "list": 24}
"""The megabytes of the task that an attack needs."""


# ------------------------------------------------------------------ the server


def serve(port: int, data: Path) -> None:
    """A gateway with two peers and its default limits, on durable SQLite."""
    from agent import BenchAgent
    from openclaw_a2a.app import build_app, serve_gateway
    from openclaw_a2a.model.ids import AgentId
    from openclaw_a2a.settings import load_settings

    peers = {
        name: {"tokens": ["sha256:" + hashlib.sha256(token.encode()).hexdigest()]}
        for name, token in (("normal", NORMAL), ("attacker", ATTACKER))
    }
    accounts = {"default": {"defaultAgentId": "bench", "agentStyle": "task-generating"}}
    settings = {
        "agents": {"bench": {"adapter": "echo"}},
        "channels": {"a2a": {"security": {"peers": peers}, "accounts": accounts}},
    }
    config = data / "bench.json5"
    config.write_text(json.dumps(settings), encoding="utf-8")
    overrides = {"server.port": port, "data": str(data), "log.level": "error"}
    loaded = load_settings(config, overrides=overrides, environ={})
    agents = {AgentId("bench"): BenchAgent()}
    serve_gateway(loaded, lambda found: build_app(found, agents=agents))


# ------------------------------------------------------------------ requests


def request(method: str, params: object, token: str = ATTACKER) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    return post(body, token)


def post(body: bytes, token: str = ATTACKER) -> bytes:
    head = (
        f"POST {RPC} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {token}\r\na2a-version: 1.0\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def message(text: str, message_id: str, **members: object) -> dict:
    said = {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}], **members}
    return {"message": said}


async def answer(reader: asyncio.StreamReader) -> bytes:
    """The body of one answer with a length."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
    return await reader.readexactly(length)


@asynccontextmanager
async def connection(
    port: int,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def call(port: int, method: str, params: object, token: str = ATTACKER) -> dict:
    async with connection(port) as (reader, writer):
        writer.write(request(method, params, token))
        return json.loads(await answer(reader))


# ------------------------------------------------------------------ the normal caller


class NormalCaller:
    """Sends and reads by turns at a fixed rate, on a few kept connections."""

    def __init__(self, port: int, pid: int) -> None:
        self._port, self._pid = port, pid
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.latencies: list[float] = []
        self.own: list[float] = []
        self.errors = 0

    async def run(self, seconds: float) -> None:
        params = message("echo:x", uuid.uuid4().hex)
        task_id = (await call(self._port, "SendMessage", params, NORMAL))["result"]["task"]["id"]
        start = time.perf_counter()
        due, pending = start, []
        while due < start + seconds:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            if len(pending) % 2:
                made = request("GetTask", {"id": task_id}, NORMAL)
            else:
                made = request("SendMessage", message("echo:hi", uuid.uuid4().hex), NORMAL)
            pending.append(asyncio.create_task(self._one(due, made)))
            due += 1 / RATE
        await asyncio.wait(pending, timeout=60)
        for one in pending:
            if not one.done():
                one.cancel()
                self.errors += 1

    async def _one(self, due: float, made: bytes) -> None:
        try:
            if self._free:
                reader, writer = self._free.pop()
            else:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            own = thread_s(self._pid)[0]
            writer.write(made)
            body = await answer(reader)
            self._free.append((reader, writer))
        except (OSError, asyncio.IncompleteReadError, ValueError):
            self.errors += 1
            return
        self.errors += b'"error"' in body[:80]
        self.latencies.append(time.perf_counter() - due)
        self.own.append(thread_s(self._pid)[0] - own)


def thread_s(pid: int) -> tuple[float, float]:
    """Seconds that the main thread of a process ran, and that it wanted a core and had none."""
    ran, waited, _ = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()
    return int(ran) / 1e9, int(waited) / 1e9


# ------------------------------------------------------------------ attacks


class Target(NamedTuple):
    """The gateway that is attacked, a task of the attacker there, and how hard to try."""

    port: int
    task: str
    connections: int


Attack = Callable[[Target], Awaitable[None]]


async def repeat(count: int, once: Callable[[int], Awaitable[None]], pause_s: float = 0.01) -> None:
    """So many clients that do the same again and again, whatever comes of it.

    They begin one after the other, and do not become one wave.
    """

    async def client(number: int) -> None:
        await asyncio.sleep(number / count * WARM_UP_S * 0.8)
        while True:
            with suppress(OSError, asyncio.IncompleteReadError, ValueError):
                await once(number)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))

    await asyncio.gather(*(client(number) for number in range(count)))


async def endless_heads(target: Target) -> None:
    """H1: request lines, headers and trailers without an end, before any token."""
    line, header = b"GET /", b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    trailer = b"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"

    async def once(number: int) -> None:
        async with connection(target.port) as (_, writer):
            writer.write((line, header, trailer)[number % 3])
            for count in range(2000):
                writer.write(b"y" * 1000 if number % 3 == 0 else b"x-%d: %b\r\n" % (count, YS))
                await writer.drain()

    await repeat(20, once)


async def idle_connections(target: Target) -> None:
    """H2: connections that send nothing, or a byte of a head or of a body now and then."""
    starts = (b"", b"GET / HTTP/1.1\r\nx-slow: ", post(b"x" * 1000)[:-900])

    async def once(number: int) -> None:
        async with connection(target.port) as (reader, writer):
            start = starts[number % 3]
            writer.write(start)
            while start and not reader.at_eof():
                writer.write(b"y")
                await writer.drain()
                await asyncio.sleep(1)
            await reader.read()

    await repeat(target.connections, once)


async def unread(target: Target) -> None:
    """H3: readers of a large task that do not read."""

    async def once(number: int) -> None:
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_connect(plain, ("127.0.0.1", target.port))
            method = "SubscribeToTask" if number % 4 == 0 else "GetTask"
            await loop.sock_sendall(plain, request(method, {"id": target.task}))
            await asyncio.sleep(SECONDS)
        finally:
            plain.close()

    await repeat(max(20, target.connections // 5), once)


async def references(target: Target) -> None:
    """H4: short messages that refer to one task 400 times."""
    count = 0

    async def once(_number: int) -> None:
        nonlocal count
        count += 1
        given = [target.task] * 400 if count % 2 else [target.task]
        params = message("echo:x", f"r-{os.getpid()}-{count}", referenceTaskIds=given)
        async with connection(target.port) as (reader, writer):
            writer.write(request("SendMessage", params))
            await answer(reader)

    await repeat(4, once)


async def wrong_parts(target: Target) -> None:
    """H5: a megabyte of wrong parts, of which some are few enough to be decoded."""
    many, some, few = 900_000, 130_000, 60_000  # few are not counted
    lists = [(b"1", many), (b"{}", many), (b'{"text":1}', many), (b'{"raw":"!"}', many)]
    lists += [(b'{"text":1}', some), (b'{"raw":"!"}', some), (b'{"text":1}', few), (b"1", few)]
    start = b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"w",'
    start += b'"role":"ROLE_USER",'
    bodies = [
        start + b'"parts":[' + b",".join([item] * (size // (len(item) + 1))) + b"]}}}"
        for item, size in lists
    ]
    keys = b",".join(b'"%d":1' % number for number in range(24_000))
    bodies.append(start + b'"parts":[{"data":{' + keys + b',"0":2}}]}}}')

    async def once(number: int) -> None:
        async with connection(target.port) as (reader, writer):
            writer.write(post(bodies[number % len(bodies)]))
            await answer(reader)

    await repeat(len(bodies), once)


async def flood_runs(target: Target) -> None:
    """H6: one caller wants all run places and all places in the queue."""
    count = 0

    async def once(_number: int) -> None:
        nonlocal count
        count += 1
        params = message("hold:2", f"f-{os.getpid()}-{count}")
        params["configuration"] = {"returnImmediately": True}
        async with connection(target.port) as (reader, writer):
            writer.write(request("SendMessage", params))
            await answer(reader)

    await repeat(100, once)


async def flood_streams(target: Target) -> None:
    """H6: one caller wants all streams; half of them are dropped as soon as they are open."""

    async def once(number: int) -> None:
        async with connection(target.port) as (reader, writer):
            writer.write(request("SubscribeToTask", {"id": target.task}))
            await reader.read(1000)
            if number % 2:
                await reader.read()

    await repeat(target.connections, once, pause_s=2)


async def read_and_close(target: Target) -> None:
    """M1: reads of a large task by clients that leave at once."""

    async def once(_number: int) -> None:
        async with connection(target.port) as (_, writer):
            writer.write(request("GetTask", {"id": target.task}))
            await writer.drain()

    await repeat(40, once, pause_s=0.25)


async def large_lists(target: Target) -> None:
    """Lists of large tasks."""

    async def once(_number: int) -> None:
        async with connection(target.port) as (reader, writer):
            writer.write(request("ListTasks", {"pageSize": 50}))
            await answer(reader)

    await repeat(4, once)


ATTACKS: dict[str, Attack] = {
    "endless-heads": endless_heads,
    "idle-connections": idle_connections,
    "unread": unread,
    "references": references,
    "wrong-parts": wrong_parts,
    "flood-runs": flood_runs,
    "flood-streams": flood_streams,
    "read-and-close": read_and_close,
    "list": large_lists,
}


async def attack(name: str, target: Target) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(WARM_UP_S + MOST_SETTLE_S + 10 * SECONDS):
            await ATTACKS[name](target)


# ------------------------------------------------------------------ measuring


def on_core(core: str, *command: str) -> list[str]:
    return ["taskset", "-c", core, *command] if LOADER_CORE else list(command)


def measure(port: int, pid: int, seconds: float) -> dict:
    """The normal caller for a while, and what the gateway spent meanwhile."""
    caller, began, (_, waited) = NormalCaller(port, pid), cpu_s(pid), thread_s(pid)
    started = time.perf_counter()
    asyncio.run(caller.run(seconds))
    took = time.perf_counter() - started
    return {
        "p50_ms": ms(percentile(caller.latencies, 0.5)),
        "p99_ms": ms(percentile(caller.latencies, 0.99)),
        "own_p99_ms": ms(percentile(caller.own, 0.99)),
        "answers": len(caller.latencies),
        "errors": caller.errors,
        "cpu_s": round(cpu_s(pid) - began, 2),
        "waited": round((thread_s(pid)[1] - waited) / took, 3),
        "memory_mb": (resident_kb(pid) or 0) // 1024,
    }


def settle(pid: int) -> None:
    """Wait until the gateway has done with what an attack left."""
    deadline = time.monotonic() + MOST_SETTLE_S
    while time.monotonic() < deadline:
        before = cpu_s(pid)
        time.sleep(0.5)
        if cpu_s(pid) - before < 0.05:
            return


def make_task(name: str, port: int) -> str:
    """The task of the attacker that an attack needs."""
    if name == "flood-streams":
        params = message("hold:600", "held")
        params["configuration"] = {"returnImmediately": True}
    elif megabytes := LARGE_TASKS.get(name):
        params = message(f"chunks:{megabytes}:1000000", "large")
    else:
        return ""
    return asyncio.run(call(port, "SendMessage", params))["result"]["task"]["id"]


def measure_one(name: str, folder: Path, *, seconds: float, rounds: int, connections: int) -> dict:
    """A new gateway; its normal caller alone, and while it is attacked, by turns."""
    folder.mkdir()
    port = free_port()
    script = [sys.executable, __file__]
    phases: dict[str, list[dict]] = {"idle": [], "attacked": []}
    with (folder / "log").open("wb") as log:
        command = on_core(SERVER_CORE, *script, "--serve", str(port), "--data", str(folder))
        server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_for_port(port, server, folder / "log")
            options = ["--attack", name, "--port", str(port), "--task", make_task(name, port)]
            options += ["--connections", str(connections)]
            nice = ["nice", "-n", "19", *on_core(LOADER_CORE or "0", *script, *options)]
            measure(port, server.pid, 2)
            for _ in range(rounds):
                phases["idle"].append(measure(port, server.pid, seconds))
                attacker = subprocess.Popen(nice, stdout=log, stderr=log)
                try:
                    time.sleep(WARM_UP_S)
                    phases["attacked"].append(measure(port, server.pid, seconds))
                finally:
                    attacker.kill()
                    attacker.wait()
                settle(server.pid)
        finally:
            stop(server)
    return summarize_phases(phases)


def summarize_phases(phases: dict[str, list[dict]]) -> dict:
    """The medians of either kind of phase, and how the p99 have changed."""
    idle, attacked = (
        {key: median(one[key] or 0 for one in found) for key in found[0]}
        for found in (phases["idle"], phases["attacked"])
    )
    attacked["errors"] = sum(one["errors"] for one in phases["attacked"])
    ratio = round(attacked["p99_ms"] / idle["p99_ms"], 2)
    is_over = ratio > BAR or attacked["errors"] > 0
    return {
        "idle": idle,
        "attacked": attacked,
        "p99_ratio": ratio,
        "is_over": is_over,
        "phases": phases,
    }


def describe(result: dict) -> str:
    """The figures of one attack in a line."""
    idle, attacked = result["idle"], result["attacked"]
    busy = max(idle["waited"], attacked["waited"])
    changes = [
        f"{name} {idle[key]:6.1f} -> {attacked[key]:6.1f} ms"
        for name, key in (("p50", "p50_ms"), ("p99", "p99_ms"), ("own", "own_p99_ms"))
    ]
    cells = [
        f"x{result['p99_ratio']:<5}",
        *changes,
        f"cpu {idle['cpu_s']:.2f} -> {attacked['cpu_s']:.2f} s",
        f"{attacked['memory_mb']:.0f} MB",
        f"errors {attacked['errors']}",
        f"waited {busy:.0%}{' (a busy machine)' if busy > BUSY else ''}",
        "OVER" if result["is_over"] else "ok",
    ]
    return "  ".join(cells)


def measure_attacks(
    folder: Path,
    names: tuple[str, ...] = (),
    *,
    seconds: float = SECONDS,
    rounds: int = ROUNDS,
    connections: int = CONNECTIONS,
) -> dict:
    """Every attack, each on a gateway of its own; the p99 of the normal caller may grow 3 times.

    `over` names the attacks under which it grew more, or under which a normal caller was refused.
    """
    if LOADER_CORE:
        os.sched_setaffinity(0, {int(LOADER_CORE)})
    print(f"load average {os.getloadavg()[0]:.1f}; the bar for the ratio of p99 is {BAR:g}")
    results = {}
    for name in names or tuple(ATTACKS):
        result = results[name] = measure_one(
            name, folder / name, seconds=seconds, rounds=rounds, connections=connections
        )
        print(f"{name:17} {describe(result)}", flush=True)
    over = [name for name, result in results.items() if result["is_over"]]
    return {"load_average": os.getloadavg()[0], "bar": BAR, "over": over, **results}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help=f"of {', '.join(ATTACKS)}; all by default")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each phase")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--attack", choices=tuple(ATTACKS), help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--task", default="", help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve, args.data)
        return 0
    if args.attack:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        asyncio.run(attack(args.attack, Target(args.port, args.task, args.connections)))
        return 0
    if unknown := [name for name in args.names if name not in ATTACKS]:
        parser.error(f"there is no attack {', '.join(unknown)}")
    with tempfile.TemporaryDirectory(prefix="a2a-attacks-") as folder:
        result = measure_attacks(
            Path(folder),
            tuple(args.names),
            seconds=args.seconds,
            rounds=args.rounds,
            connections=args.connections,
        )
    return 1 if result["over"] else 0


if __name__ == "__main__":
    sys.exit(main())
