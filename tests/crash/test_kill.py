"""The gateway is killed at random moments; whatever a client saw stays so, and every task ends."""

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from openclaw_a2a.model.stored import decode_event, decode_task
from openclaw_a2a.model.task import Task, apply_event
from openclaw_a2a.wire.sse import SseReader

SERVER = Path(__file__).with_name("counting_server.py")
STREAMS = 4
TERMINAL = ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED")
PATIENCE_S = 30.0

Frames = dict[int, Any]


class Killable:
    """A gateway process on one port and folder, started again and again."""

    def __init__(self, folder: Path, kind: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._folder = folder
        self._kind = kind
        self._process: subprocess.Popen[bytes] | None = None
        self._log = (folder / "log.txt").open("ab")

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, SERVER, str(self.port), str(self._folder), self._kind]
        return subprocess.Popen(command, stdout=self._log, stderr=self._log)

    async def start(self) -> None:
        self._process = self._spawn()
        async with asyncio.timeout(PATIENCE_S):
            while not await self._is_ready():
                assert self._process.poll() is None, (self._folder / "log.txt").read_text()
                await asyncio.sleep(0.02)  # the process tells nobody when it is ready

    async def _is_ready(self) -> bool:
        try:
            return b'"ready":true' in await request(self.port, "GET", "/readyz", b"")
        except OSError:
            return False

    def kill(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
        self._log.close()


async def request(port: int, method: str, path: str, body: bytes) -> bytes:
    """The body of one whole answer."""
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(_head(method, path, body) + body)
            _, _, content = (await reader.read()).partition(b"\r\n\r\n")
            return content
        finally:
            writer.close()


def _head(method: str, path: str, body: bytes, last_event_id: int | None = None) -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Connection: close",
        "Content-Type: application/json",
        "A2A-Version: 1.0",
        f"Content-Length: {len(body)}",
    ]
    if last_event_id is not None:
        lines.append(f"Last-Event-ID: {last_event_id}")
    return "\r\n".join([*lines, "", ""]).encode()


class Client:
    """One sender that follows its task through every crash."""

    def __init__(self, gateway: Killable, account: str, number: int) -> None:
        self._gateway = gateway
        self._path = "/a2a/jsonrpc" if account == "default" else f"/agents/{account}/a2a/jsonrpc"
        self.account = account
        message = {
            "messageId": f"{account}-{number}",
            "role": "ROLE_USER",
            "parts": [{"text": "40"}],
        }
        self._send = _call("SendStreamingMessage", {"message": message})
        self._send_blocking = _call("SendMessage", {"message": message})
        self.frames: Frames = {}
        self.has_news = asyncio.Event()

    @property
    def task_id(self) -> str:
        return self.frames[self.first]["task"]["id"]

    @property
    def first(self) -> int:
        """The number of the task as it was first seen: higher when the crash came before."""
        return min(self.frames)

    @property
    def is_over(self) -> bool:
        return bool(self.frames) and _state(self.frames[max(self.frames)]) in TERMINAL

    async def stream(self) -> None:
        """Send, or go on where the last connection broke off; until the end or the next crash."""
        if not self.frames:
            await self._read(self._send, None)
        elif not self.is_over:
            await self._read(_call("SubscribeToTask", {"id": self.task_id}), max(self.frames))

    async def _read(self, body: bytes, last_event_id: int | None) -> None:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._gateway.port)
        except OSError:
            return
        events = SseReader()
        try:
            writer.write(_head("POST", self._path, body, last_event_id) + body)
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"text/event-stream" in head, head + await reader.read()
            async for chunk in _chunks(reader):
                for event in events.feed(chunk):
                    self._take(event.id, event.data)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def _take(self, event_id: str | None, content: str) -> None:
        number = int(event_id or "-1")
        last = max(self.frames, default=number - 1)
        assert number == last + 1, f"event {number} came after {last}"
        assert not self.is_over, "an event came after the end"
        self.frames[number] = json.loads(content)["result"]
        self.has_news.set()

    async def replay(self) -> Frames:
        """What was seen, read anew after the task as it was first seen."""
        again = Client(self._gateway, self.account, 0)
        again.frames = {self.first: self.frames[self.first]}
        await again._read(_call("SubscribeToTask", {"id": self.task_id}), self.first)
        return again.frames

    async def get(self) -> Any:
        content = await request(
            self._gateway.port, "POST", self._path, _call("GetTask", {"id": self.task_id})
        )
        return json.loads(content)["result"]

    async def send_again(self) -> Any:
        content = await request(self._gateway.port, "POST", self._path, self._send_blocking)
        return json.loads(content)["result"]["task"]


async def _chunks(reader: asyncio.StreamReader) -> Any:
    """The content of a chunked body, as it comes."""
    while size := int((await reader.readuntil(b"\r\n")).strip() or b"0", 16):
        yield (await reader.readexactly(size + 2))[:-2]


def _call(method: str, params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


def _state(event: Any) -> str:
    shown = event.get("statusUpdate") or event.get("task") or {}
    return shown.get("status", {}).get("state", "")


@pytest.fixture
def killable(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Killable]:
    gateway = Killable(tmp_path, request.param)
    yield gateway
    gateway.close()


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.requirement(
    "promise.commit.before-show",
    "promise.order.one-order",
    "promise.order.one-terminal",
    "promise.resume.missing-only",
    "promise.recovery.no-zombie",
    "promise.recovery.reason",
    "promise.recovery.repeat",
    "promise.idempotent.task",
)
@pytest.mark.parametrize(
    ("killable", "usual"), [("sqlite", 100), ("json-file", 12)], indirect=["killable"]
)
async def test_nothing_seen_is_lost_and_every_task_ends_whenever_the_gateway_is_killed(
    killable: Killable, usual: int, rounds: int | None
) -> None:
    chance = random.Random(os.environ.get("CRASH_SEED", "a2a"))
    await killable.start()
    for number in range(rounds or usual):
        clients = [
            Client(killable, account, number * STREAMS + index)
            for index, account in enumerate(["default", "fragile"] * (STREAMS // 2))
        ]
        await _stream_until_killed(killable, clients, chance)
        await killable.start()
        await _stream_to_the_end(clients)
        for client in clients:
            await _check(client)


async def _stream_until_killed(
    gateway: Killable, clients: list[Client], chance: random.Random
) -> None:
    """Kill at a random time, or when a random event was seen."""
    async with asyncio.TaskGroup() as streams:
        for client in clients:
            streams.create_task(client.stream())
        if chance.random() < 0.5:
            await asyncio.sleep(chance.uniform(0, 0.12))  # a random moment is the point here
        else:
            await _until_seen(chance.choice(clients), chance.randrange(1, 30))
        gateway.kill()


async def _until_seen(client: Client, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while len(client.frames) < count and not client.is_over:
            client.has_news.clear()
            await client.has_news.wait()


async def _stream_to_the_end(clients: list[Client]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not all(client.is_over for client in clients):
            await asyncio.gather(*(client.stream() for client in clients))


async def _check(client: Client) -> None:
    frames = client.frames
    assert await client.replay() == frames, "what was seen is not what is stored"
    ends = [number for number, event in frames.items() if _state(event) in TERMINAL]
    assert ends == [max(frames)]
    task = await client.get()
    assert _fold(frames) == decode_task(msgspec.json.encode(task))
    state, said = task["status"]["state"], task["status"]["message"]["parts"][0]["text"]
    if client.account == "default" or state == "TASK_STATE_COMPLETED":
        assert said == "".join(f"{number} " for number in range(40))
    else:
        assert "stopped" in said
    assert (await client.send_again())["id"] == client.task_id


def _fold(frames: Frames) -> Task:
    """The task that whoever saw these events holds."""
    (_, first), *events = sorted(frames.items())
    task = decode_task(msgspec.json.encode(first["task"]))
    for _, event in events:
        task = apply_event(task, decode_event(msgspec.json.encode(event)))
    return task
