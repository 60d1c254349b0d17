"""A gateway process that is killed and started again, and plain sockets to talk to it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from tests.ports import free_port

from openclaw_a2a.net.sse_reader import SseReader

SERVER = Path(__file__).with_name("agents_server.py")
DEADLINE_S = 240.0
TERMINAL = ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED")
PAUSED = ("TASK_STATE_INPUT_REQUIRED",)

Json = Any


class Endpoint:
    """Where a gateway listens, and plain sockets to it; `headers` go with every request."""

    def __init__(self, port: int, *headers: str) -> None:
        self.port = port
        self._headers = headers

    async def request(self, method: str, path: str, body: bytes) -> bytes:
        """The body of one whole answer. Raises: OSError."""
        async with asyncio.timeout(DEADLINE_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            try:
                writer.write(_head(method, path, body, *self._headers) + body)
                _, _, content = (await reader.read()).partition(b"\r\n\r\n")
                return content
            finally:
                writer.close()

    async def call(self, account: str, method: str, params: Json) -> Json:
        """The whole JSON-RPC answer. Raises: OSError, also when the answer is cut off."""
        content = await self.request("POST", path_of(account), encode_call(method, params))
        try:
            return json.loads(content)
        except ValueError:
            raise ConnectionResetError("the answer was cut off") from None

    async def stream(
        self, account: str, method: str, params: Json, *, last_event_id: int | None = None
    ) -> AsyncGenerator[tuple[int, Json]]:
        """The numbered events of a stream until its end.

        Raises: OSError (it is cut off), NoStream (an error came, also in the place of an event).
        """
        body = encode_call(method, params)
        resume = [] if last_event_id is None else [f"Last-Event-ID: {last_event_id}"]
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        events = SseReader()
        try:
            writer.write(_head("POST", path_of(account), body, *self._headers, *resume) + body)
            head = await reader.readuntil(b"\r\n\r\n")
            if b"text/event-stream" not in head:
                raise NoStream(head, await reader.read())
            async for chunk in _chunks(reader):
                for event in events.feed(chunk):
                    answer = json.loads(event.data)
                    if "error" in answer:
                        raise NoStream(head, event.data.encode())
                    yield int(event.id or "-1"), answer["result"]
        except asyncio.IncompleteReadError:
            raise ConnectionResetError("the stream was cut off") from None
        finally:
            writer.close()


class GatewayProcess(Endpoint):
    """A gateway process on one port and folder, started again and again.

    `server` is its program; `arguments` follow the port, the folder and the kind of store.
    """

    def __init__(
        self, folder: Path, kind: str, *arguments: str, server: Path | None = None
    ) -> None:
        self._server = server
        self._arguments = arguments
        super().__init__(free_port())
        self._folder = folder
        self._kind = kind
        self._process: subprocess.Popen[bytes] | None = None
        self._log = (folder / "log.txt").open("ab")

    def _spawn(self) -> subprocess.Popen[bytes]:
        place = [str(self.port), str(self._folder), self._kind]
        command = [sys.executable, self._server or SERVER, *place, *self._arguments]
        return subprocess.Popen(command, stdout=self._log, stderr=self._log)

    async def start(self) -> None:
        """Start and wait until it is ready to serve."""
        self._process = self._spawn()
        async with asyncio.timeout(DEADLINE_S):
            while not await self._is_ready():
                assert self._process.poll() is None, self.output()
                await asyncio.sleep(0.02)  # the process tells nobody when it is ready

    def spawn(self) -> None:
        """Start, and do not wait."""
        self._process = self._spawn()

    async def _is_ready(self) -> bool:
        try:
            return b'"ready":true' in await self.request("GET", "/readyz", b"")
        except OSError:
            return False

    def kill(self) -> None:
        """End the process without warning."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def pause(self) -> None:
        """Stop the process as a debugger would."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def close(self) -> None:
        """End it for good. A traceback in its log is a failure of the test."""
        if self._process is not None and self._process.poll() is None:
            self.kill()
        self._log.close()
        assert "Traceback (most recent call last)" not in self.output(), self.output()

    def output(self) -> str:
        """Everything it has printed since its first start."""
        return (self._folder / "log.txt").read_text(encoding="utf-8")


class NoStream(Exception):
    """An answer came in the place of a stream or of an event; `code` is 0 for no JSON-RPC error."""

    def __init__(self, head: bytes, content: bytes) -> None:
        super().__init__(head, content)
        answer: Json = json.loads(content) if content.startswith(b"{") else {}
        error: Json = answer.get("error") or {}
        self.code: int = error.get("code", 0)


def path_of(account: str) -> str:
    """Where an account answers."""
    return "/a2a/jsonrpc" if account == "default" else f"/agents/{account}/a2a/jsonrpc"


def encode_call(method: str, params: Json) -> bytes:
    """A JSON-RPC request."""
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


def state_of(event: Json) -> str:
    """The state that an event (or a task in it) tells; empty for none."""
    shown: Json = event.get("statusUpdate") or event.get("task") or {}
    return str(shown.get("status", {}).get("state", ""))


def _head(method: str, path: str, body: bytes, *headers: str) -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Connection: close",
        "Content-Type: application/json",
        "A2A-Version: 1.0",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


async def _chunks(reader: asyncio.StreamReader) -> AsyncGenerator[bytes]:
    """The content of a chunked body, as it comes."""
    while size := int((await reader.readuntil(b"\r\n")).strip() or b"0", 16):
        yield (await reader.readexactly(size + 2))[:-2]
