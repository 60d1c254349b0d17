#!/usr/bin/env python3
"""How a normal caller fares while another client attacks: its p50 and p99, idle and under attack.

Each attack runs in a process of its own, bounded in connections and time, on loopback. The server
has one core; the normal caller and the attacker share the other, the attacker with the lowest
priority. The normal caller sends and reads at a modest rate, and its latencies count from when a
request was due, so that a server that stands still is not measured less often.
"""

import argparse
import asyncio
import hashlib
import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from measure import cpu_s, ms, percentile, resident_kb
from servers import LOADER_CORE, SERVER_CORE, free_port, stop, wait_for_port

NORMAL, ATTACKER = "token-of-the-normal-caller", "token-of-the-attacker"
RPC = "/a2a/jsonrpc"
RATE = 25.0
SECONDS = 8.0
BAR = 3.0
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

    def __init__(self, port: int) -> None:
        self._port = port
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._count = 0
        self.latencies: list[float] = []
        self.errors = 0

    async def run(self, seconds: float) -> None:
        task = (await call(self._port, "SendMessage", message("echo:x", "first"), NORMAL))["result"]
        task_id = task["task"]["id"]
        start = time.perf_counter()
        due, pending = start, []
        while due < start + seconds:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            pending.append(asyncio.create_task(self._one(due, task_id)))
            due += 1 / RATE
        await asyncio.wait(pending, timeout=60)
        for one in pending:
            if not one.done():
                one.cancel()
                self.errors += 1

    async def _one(self, due: float, task_id: str) -> None:
        self._count += 1
        if self._count % 2:
            made = request("SendMessage", message("echo:hi", f"n-{self._count}"), NORMAL)
        else:
            made = request("GetTask", {"id": task_id}, NORMAL)
        try:
            if self._free:
                reader, writer = self._free.pop()
            else:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            writer.write(made)
            body = await answer(reader)
            self._free.append((reader, writer))
        except (OSError, asyncio.IncompleteReadError):
            self.errors += 1
            return
        self.errors += b'"error"' in body[:80]
        self.latencies.append(time.perf_counter() - due)


# ------------------------------------------------------------------ attacks


Attack = Callable[[int, str], Awaitable[None]]


async def repeat(count: int, once: Callable[[int], Awaitable[None]]) -> None:
    """So many clients that do the same again and again, whatever comes of it."""

    async def client(number: int) -> None:
        while True:
            with suppress(OSError, asyncio.IncompleteReadError, ValueError):
                await once(number)
            await asyncio.sleep(0.01)

    await asyncio.gather(*(client(number) for number in range(count)))


async def endless_headers(port: int, _task: str) -> None:
    """H1: heads without an end, before any token."""

    async def once(_number: int) -> None:
        async with connection(port) as (_, writer):
            writer.write(b"GET / HTTP/1.1\r\n")
            for number in range(2000):
                writer.write(b"x-%d: %b\r\n" % (number, b"y" * 1000))
                await writer.drain()

    await repeat(20, once)


async def idle_connections(port: int, _task: str) -> None:
    """H2: connections that send nothing, or a byte of a head now and then."""

    async def once(number: int) -> None:
        async with connection(port) as (reader, writer):
            if number % 2:
                writer.write(b"GET / HTTP/1.1\r\nx-slow: ")
                while not reader.at_eof():
                    writer.write(b"y")
                    await writer.drain()
                    await asyncio.sleep(1)
            else:
                await reader.read()

    await repeat(700, once)


async def unread(port: int, task: str) -> None:
    """H3: readers of a large task that do not read."""

    async def once(number: int) -> None:
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_connect(plain, ("127.0.0.1", port))
            method = "SubscribeToTask" if number % 4 == 0 else "GetTask"
            await loop.sock_sendall(plain, request(method, {"id": task}))
            await asyncio.sleep(SECONDS)
        finally:
            plain.close()

    await repeat(20, once)


async def references(port: int, task: str) -> None:
    """H4: short messages that refer to one task 400 times."""
    count = 0

    async def once(_number: int) -> None:
        nonlocal count
        count += 1
        params = message("echo:x", f"r-{os.getpid()}-{count}", referenceTaskIds=[task] * 400)
        async with connection(port) as (reader, writer):
            writer.write(request("SendMessage", params))
            await answer(reader)

    await repeat(4, once)


async def wrong_parts(port: int, _task: str) -> None:
    """H5: a megabyte of wrong parts."""
    bodies = [
        b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"w",'
        b'"role":"ROLE_USER","parts":[' + b",".join([item] * (900_000 // (len(item) + 1))) + b"]}}}"
        for item in (b"1", b"{}", b'{"text":1}', b'{"raw":"!"}')
    ]

    async def once(number: int) -> None:
        async with connection(port) as (reader, writer):
            writer.write(post(bodies[number % len(bodies)]))
            await answer(reader)

    await repeat(4, once)


async def flood(port: int, _task: str) -> None:
    """H6: one caller wants all run places, all places in the queue and many streams."""
    count = 0

    async def once(number: int) -> None:
        nonlocal count
        count += 1
        method = "SendStreamingMessage" if number % 2 else "SendMessage"
        async with connection(port) as (reader, writer):
            writer.write(request(method, message("hold:2", f"f-{os.getpid()}-{count}")))
            if method == "SendMessage":
                await answer(reader)
            else:
                await reader.read(1000)
                await asyncio.sleep(2)

    await repeat(300, once)


async def read_and_close(port: int, task: str) -> None:
    """M1: reads of a large task by clients that leave at once."""

    async def once(_number: int) -> None:
        async with connection(port) as (_, writer):
            writer.write(request("GetTask", {"id": task}))
            await writer.drain()
        await asyncio.sleep(0.25)

    await repeat(40, once)


async def large_lists(port: int, _task: str) -> None:
    """Lists of large tasks."""

    async def once(_number: int) -> None:
        async with connection(port) as (reader, writer):
            writer.write(request("ListTasks", {"pageSize": 50}))
            await answer(reader)

    await repeat(4, once)


ATTACKS: dict[str, Attack] = {
    "endless-headers": endless_headers,
    "idle-connections": idle_connections,
    "unread": unread,
    "references": references,
    "wrong-parts": wrong_parts,
    "flood": flood,
    "read-and-close": read_and_close,
    "list": large_lists,
}


async def attack(name: str, port: int, task: str) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(10 * SECONDS):
            await ATTACKS[name](port, task)


# ------------------------------------------------------------------ measuring


def on_core(core: str, *command: str) -> list[str]:
    return ["taskset", "-c", core, *command] if LOADER_CORE else list(command)


def measure(port: int, pid: int, seconds: float) -> dict:
    caller, began = NormalCaller(port), cpu_s(pid)
    asyncio.run(caller.run(seconds))
    return {
        "p50_ms": ms(percentile(caller.latencies, 0.5)),
        "p99_ms": ms(percentile(caller.latencies, 0.99)),
        "answers": len(caller.latencies),
        "errors": caller.errors,
        "cpu_s": round(cpu_s(pid) - began, 2),
        "memory_mb": (resident_kb(pid) or 0) // 1024,
    }


def measure_one(name: str, folder: Path, seconds: float) -> dict:
    """A new gateway, its normal caller alone, then the same while it is attacked."""
    folder.mkdir()
    port = free_port()
    script = [sys.executable, __file__]
    with (folder / "log").open("wb") as log:
        command = on_core(SERVER_CORE, *script, "--serve", str(port), "--data", str(folder))
        server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_for_port(port, server, folder / "log")
            task = ""
            if megabytes := LARGE_TASKS.get(name):
                params = message(f"chunks:{megabytes}:1000000", "large")
                task = asyncio.run(call(port, "SendMessage", params))["result"]["task"]["id"]
            measure(port, server.pid, 2)
            idle = measure(port, server.pid, seconds)
            options = ["--attack", name, "--port", str(port), "--task", task]
            nice = ["nice", "-n", "19", *on_core(LOADER_CORE or "0", *script, *options)]
            attacker = subprocess.Popen(nice, stdout=log, stderr=log)
            try:
                time.sleep(1)
                attacked = measure(port, server.pid, seconds)
            finally:
                attacker.kill()
                attacker.wait()
            after = measure(port, server.pid, 2)
        finally:
            stop(server)
    ratio = round((attacked["p99_ms"] or 0) / idle["p99_ms"], 1)
    return {"idle": idle, "attacked": attacked, "after": after, "p99_ratio": ratio}


def measure_attacks(folder: Path, names: tuple[str, ...] = (), seconds: float = SECONDS) -> dict:
    """Every attack, each on a gateway of its own; the p99 of the normal caller may grow 3 times."""
    if LOADER_CORE:
        os.sched_setaffinity(0, {int(LOADER_CORE)})
    results = {}
    print(f"load average {os.getloadavg()[0]:.1f}; the bar for the ratio of p99 is {BAR:g}")
    for name in names or tuple(ATTACKS):
        result = results[name] = measure_one(name, folder / name, seconds)
        idle, attacked = result["idle"], result["attacked"]
        print(
            f"{name:17} p50 {idle['p50_ms']:7} -> {attacked['p50_ms']:8} ms   "
            f"p99 {idle['p99_ms']:7} -> {attacked['p99_ms']:8} ms   x{result['p99_ratio']:<6} "
            f"errors {attacked['errors']}  cpu {attacked['cpu_s']} s  {attacked['memory_mb']} MB  "
            f"{'ok' if result['p99_ratio'] <= BAR else 'OVER'}",
            flush=True,
        )
    return {"load_average": os.getloadavg()[0], "bar": BAR, **results}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(ATTACKS)}; all by default")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--attack", choices=tuple(ATTACKS), help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--task", default="", help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve, args.data)
        return
    if args.attack:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        asyncio.run(attack(args.attack, args.port, args.task))
        return
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        measure_attacks(Path(folder), tuple(args.names), args.seconds)


if __name__ == "__main__":
    main()
