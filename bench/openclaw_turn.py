"""What our gateway adds to a turn of a real OpenClaw, beside a bare WebSocket client.

  ./dev bench openclaw                        the usual number of turns
  .venv/bin/python bench/openclaw_turn.py --turns 200 --streams 20

A real OpenClaw answers from the deterministic model of tests/openclaw. One turn of the bare client
and one of ours follow each other, each in one long session of its own. Our process is the usual
one with a clock at its edges (`serve` below): when a request's bytes arrive and an answer's bytes
leave, when a frame goes to OpenClaw and when one comes from it.
"""

import argparse
import asyncio
import json
import os
import pickle
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import httpx2  # noqa: E402  the checkout must be importable first
from tests.openclaw.bare_client import BareClient, connect  # noqa: E402
from tests.openclaw.openclaw_process import FakeModel, OpenClaw  # noqa: E402

Json = Any
Stamp = tuple[float, str, bytes]
"""When, at which edge, and the bytes that passed it."""

TOKEN_NAME = "TOKEN_OF_THE_REAL_OPENCLAW"
TURNS, STREAMS, WORDS = 100, 10, 30
WORD = re.compile(rb"\bw(\d+)\b")
RPC = "/a2a/jsonrpc"


# ------------------------------------------------------------------ our process, with a clock


def serve(config: Path, port: int, stamps: Path) -> None:
    """Serve as `openclaw-a2a up` does until a signal comes, then write down what was seen when."""
    from openclaw_a2a.app.lifecycle import serve_gateway
    from openclaw_a2a.settings import load_settings

    seen = clock_edges()
    clock_commits(seen)
    overrides = {"server.port": port, "data": str(stamps.parent), "log.level": "error"}
    serve_gateway(load_settings(config, overrides=overrides, environ=dict(os.environ)))
    stamps.write_bytes(pickle.dumps(seen))


def clock_edges() -> list[Stamp]:
    """Put a clock at the edges of this process; the list fills as bytes pass."""
    from websockets.asyncio.client import ClientConnection

    from openclaw_a2a.http.server_protocol import ServerProtocol

    seen: list[Stamp] = []
    now = time.perf_counter
    take, connected = ServerProtocol.data_received, ServerProtocol.connection_made
    send, process = ClientConnection.send, ClientConnection.process_event

    class Clocked:
        """A transport that notes what is written."""

        def __init__(self, transport: Json) -> None:
            self._transport = transport

        def write(self, data: bytes) -> None:
            self._transport.write(data)
            seen.append((now(), "http-out", bytes(data)))

        def __getattr__(self, name: str) -> Json:
            return getattr(self._transport, name)

    def connection_made(self: Json, transport: Json) -> None:
        connected(self, Clocked(transport))  # pyright: ignore[reportArgumentType]  a stand-in

    def data_received(self: Json, data: bytes) -> None:
        seen.append((now(), "http-in", bytes(data)))
        take(self, data)

    async def clocked_send(self: Json, message: Json, *, text: bool | None = None) -> None:
        await send(self, message, text=text)
        sent = message.encode() if isinstance(message, str) else bytes(message)
        seen.append((now(), "frame-out", sent))

    def process_event(self: Json, event: Json) -> None:
        seen.append((now(), "frame-in", bytes(getattr(event, "data", b""))))
        process(self, event)

    ServerProtocol.connection_made = connection_made
    ServerProtocol.data_received = data_received
    ClientConnection.send = clocked_send
    ClientConnection.process_event = process_event
    return seen


def clock_commits(seen: list[Stamp]) -> None:
    """Put a clock around the steps of a commit of the SQLite store."""
    from openclaw_a2a.store.group_writer import GroupWriter

    now = time.perf_counter
    connect, write, perform = sqlite3.connect, GroupWriter.write, GroupWriter._perform
    resolve = GroupWriter._resolve

    class Clocked(sqlite3.Connection):
        """A connection that notes when a transaction ends."""

        def execute(self, statement: str, *values: Json) -> sqlite3.Cursor:
            if statement != "COMMIT":
                return super().execute(statement, *values)
            seen.append((now(), "commit-sync", b""))
            try:
                return super().execute(statement)
            finally:
                seen.append((now(), "commit-synced", b""))

    def clocked_write(self: Json, command: Json) -> Json:
        if not self._collected:
            seen.append((now(), "commit-asked", b""))
        return write(self, command)

    def clocked_perform(self: Json, group: Json) -> Json:
        seen.append((now(), "commit-begun", b""))
        return perform(self, group)

    def clocked_resolve(self: Json, outcomes: Json) -> None:
        seen.append((now(), "commit-resolved", b""))
        resolve(self, outcomes)

    sqlite3.connect = lambda *args, **named: connect(*args, **{"factory": Clocked, **named})
    GroupWriter.write, GroupWriter._perform = clocked_write, clocked_perform
    GroupWriter._resolve = clocked_resolve


# ------------------------------------------------------------------ the loads


async def one_bare_turn(client: BareClient, text: str) -> float:
    began = time.perf_counter()
    ended = await client.agent("main", "agent:main:bench-bare", text)
    assert ended["status"] == "ok", ended
    return time.perf_counter() - began


async def one_turn_of_ours(http: httpx2.AsyncClient, text: str, number: int) -> float:
    began = time.perf_counter()
    answer = (await http.post(RPC, json=_call("SendMessage", text, number))).json()
    seconds = time.perf_counter() - began
    assert answer["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED", answer
    return seconds


async def one_stream_of_ours(http: httpx2.AsyncClient, text: str, number: int) -> None:
    call = _call("SendStreamingMessage", text, number)
    async with http.stream("POST", RPC, json=call) as answer:
        async for _ in answer.aiter_raw():
            pass


def _call(method: str, text: str, number: int) -> Json:
    message = {"messageId": f"bench-{number}", "role": "ROLE_USER", "parts": [{"text": text}]}
    params = {"message": {**message, "contextId": "bench"}}
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


async def load(openclaw: OpenClaw, url: str, turns: int, streams: int) -> Json:
    """Seconds of whole turns, ours and bare in turn; then streams of ours."""
    ours, bare = list[float](), list[float]()
    headers = {"a2a-version": "1.0"}
    async with (
        connect(openclaw.ws_url, openclaw.token) as client,
        httpx2.AsyncClient(base_url=url, headers=headers, timeout=120) as http,
    ):
        for number in range(-5, turns):  # the first five warm both sessions up
            seconds = await one_bare_turn(client, f"turn {number}")
            mine = await one_turn_of_ours(http, f"turn {number}", 1000 + number)
            if number >= 0:
                bare.append(seconds)
                ours.append(mine)
        for number in range(streams):
            await one_stream_of_ours(http, f"long:{WORDS}@40", 100_000 + number)
    return {"bare": bare, "ours": ours}


# ------------------------------------------------------------------ what the clock saw


def overheads(seen: Sequence[Stamp]) -> dict[str, list[float]]:
    """Seconds our process kept a message on its way in, an answer and a piece on their way out."""
    inward, outward, pieces = list[float](), list[float](), list[float]()
    for turn in _turns(seen):
        arrived = turn[0][0]
        number = int(_number(turn[0][2]))
        sent = [at for at, edge, data in turn if edge == "frame-out" and b'"agent"' in data]
        if 1000 <= number < 100_000 and sent:
            inward.append(sent[0] - arrived)
            outward += _outward(turn)
        elif number >= 100_000:
            pieces += _pieces(turn)
    return {"request_to_frame": inward, "last_frame_to_answer": outward, "piece_to_wire": pieces}


def _turns(seen: Sequence[Stamp]) -> Iterator[list[Stamp]]:
    """The stamps from one request with a message to the next."""
    turn: list[Stamp] = []
    for stamp in seen:
        if stamp[1] == "http-in" and _number(stamp[2]):
            if turn:
                yield turn
            turn = []
        if turn or _number(stamp[2]):
            turn.append(stamp)
    if turn:
        yield turn


def _number(data: bytes) -> bytes:
    found = re.search(rb'"messageId":\s*"bench-(\d+)"', data)
    return found.group(1) if found and b'"method"' in data else b""


def _outward(turn: Sequence[Stamp]) -> list[float]:
    """From the last frame about the turn to the bytes of its answer."""
    answered = next(at for at, edge, data in turn if edge == "http-out" and b"COMPLETED" in data)
    ends = [
        at
        for at, edge, data in turn
        if edge == "frame-in" and at < answered and b'"type":"res"' in data and b"payloads" in data
    ]
    return [answered - ends[-1]] if ends else []


def _pieces(turn: Sequence[Stamp]) -> list[float]:
    """For each piece of a stream: from the first frame with its last word to its way out."""
    arrived: dict[bytes, float] = {}
    left: set[bytes] = set()
    waits: list[float] = []
    for at, edge, data in turn:
        last = (WORD.findall(data) or [b""])[-1]
        if edge == "frame-in" and last:
            arrived.setdefault(last, at)
        elif edge == "http-out" and last in arrived and last not in left:
            left.add(last)  # the end tells the whole text again
            waits.append(at - arrived[last])
    return waits


COMMIT_STEPS = {
    ("commit-asked", "commit-begun"): "until_the_writer_begins",
    ("commit-begun", "commit-sync"): "statements",
    ("commit-sync", "commit-synced"): "log_and_sync",
    ("commit-synced", "commit-resolved"): "until_the_loop_knows",
}


def commit_steps(seen: Sequence[Stamp]) -> dict[str, list[float]]:
    """Seconds that each step of a commit took, of those that no other one ran into."""
    steps: dict[str, list[float]] = {}
    commits = [(at, edge) for at, edge, _ in seen if edge.startswith("commit-")]
    for (before, first), (at, second) in pairwise(commits):
        name = COMMIT_STEPS.get((first, second))
        if name is not None:
            steps.setdefault(f"commit_{name}", []).append(at - before)
    return steps


# ------------------------------------------------------------------ all of it


@contextmanager
def our_gateway(openclaw: OpenClaw, folder: Path, store: str) -> Iterator[tuple[str, Path]]:
    """Our process with its clock: its address, and the file it writes at its end."""
    agent = {"adapter": "openclaw-gateway", "url": openclaw.ws_url, "token": f"env:{TOKEN_NAME}"}
    account = {"defaultAgentId": "main", "agentStyle": "task-generating"}
    settings = {
        "store": {"kind": store},
        "agents": {"main": {**agent, "agentId": "main"}},
        "channels": {"a2a": {"accounts": {"default": account}}},
    }
    config, stamps = folder / "bench.json5", folder / "stamps"
    config.write_text(json.dumps(settings), encoding="utf-8")
    port = openclaw.port + 1
    command = [sys.executable, __file__, "serve", str(config), str(port), str(stamps)]
    env = {**os.environ, TOKEN_NAME: openclaw.token, "HOME": str(folder)}
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd=folder, env=env) as process:
        url = f"http://127.0.0.1:{port}"
        _wait_ready(url, process)
        try:
            yield url, stamps
        finally:
            process.terminate()


def _wait_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError):
            urllib.request.urlopen(f"{url}/readyz", timeout=2).close()
            return
        time.sleep(0.05)
    raise SystemExit("our gateway did not start")


def measure_openclaw(
    data: Path, *, turns: int = TURNS, streams: int = STREAMS, store: str = "sqlite"
) -> Json:
    """Milliseconds: whole turns of both, and what our process adds at its edges."""
    model = FakeModel()
    openclaw = OpenClaw(data / "openclaw", model)
    try:
        openclaw.start()
        openclaw.warm_up()
        with our_gateway(openclaw, data, store) as (url, stamps):
            whole = asyncio.run(load(openclaw, url, turns, streams))
        seen: list[Stamp] = pickle.loads(stamps.read_bytes())
    finally:
        openclaw.stop()
        model.close()
    return {
        name: _figures(values)
        for name, values in {**whole, **overheads(seen), **commit_steps(seen)}.items()
    }


def _figures(seconds: Sequence[float]) -> Json:
    ordered = sorted(seconds)
    if not ordered:
        return {"count": 0}
    last = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    middle = statistics.median(ordered)
    return {"count": len(ordered), "p50": round(middle * 1000, 2), "p99": round(last * 1000, 2)}


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        serve(Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
        return
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--turns", type=int, default=TURNS)
    options.add_argument("--streams", type=int, default=STREAMS)
    options.add_argument("--store", default="sqlite", help="memory shows what durability costs")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="a2a-bench-") as folder:
        figures = measure_openclaw(Path(folder), **vars(chosen))
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
