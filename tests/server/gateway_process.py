"""A gateway in a process of its own, over real sockets."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-c", "from openclaw_a2a.cli import main; main()"]
TIMEOUT_S = 240.0
RPC = "/a2a/jsonrpc"


class GatewayProcess:
    """A gateway on one port and data folder; may be started again."""

    def __init__(self, folder: Path, port: int, settings: dict[str, Any]) -> None:
        self.port = port
        self._folder = folder
        self._config = folder / "gateway.json5"
        self._config.write_text(json.dumps(settings), encoding="utf-8")
        self.process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Start it and wait until it answers."""
        self.process = self._spawn()
        async with asyncio.timeout(TIMEOUT_S):
            while not await self._is_ready():
                assert self.process.poll() is None, self.log()
                await asyncio.sleep(0.02)  # the process tells nobody when it is ready

    def _spawn(self) -> subprocess.Popen[bytes]:
        where = ["--port", str(self.port), "--data", str(self._folder)]
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                [*COMMAND, "up", "--config", str(self._config), *where],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env={**os.environ, "HOME": str(self._folder)},
            )

    async def _is_ready(self) -> bool:
        try:
            return (await self.ask(b"GET", "/readyz")).status == 200
        except OSError:
            return False

    def log(self) -> str:
        """All that it printed."""
        return (self._folder / "log").read_text(encoding="utf-8")

    def terminate(self) -> None:
        """Ask it to stop."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    async def wait(self) -> int:
        """Its exit code, when it has left."""
        assert self.process is not None
        async with asyncio.timeout(TIMEOUT_S):
            return await asyncio.to_thread(self.process.wait)

    def close(self) -> None:
        """Leave nothing behind."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    async def ask(
        self, method: bytes, path: str, body: bytes = b"", *, headers: Sequence[bytes] = ()
    ) -> "RawResponse":
        """One whole answer."""
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            try:
                size = b"content-length: %d" % len(body)
                writer.write(head(method, path, size, *headers, port=self.port) + body)
                return RawResponse(await reader.read())
            finally:
                writer.close()

    async def call(
        self, method: str, params: Any, *, path: str = RPC, headers: Sequence[bytes] = ()
    ) -> "RawResponse":
        """One JSON-RPC call."""
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return await self.ask(b"POST", path, json.dumps(call).encode(), headers=headers)


class RawResponse:
    """All bytes of an answer, taken apart."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.head, _, self.body = raw.partition(b"\r\n\r\n")
        self.status = int(raw.split(b" ", 2)[1]) if raw else 0

    @property
    def headers(self) -> dict[str, str]:
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        return {name.lower(): value for name, _, value in (one.partition(": ") for one in lines)}

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def head(method: bytes, path: str, *more: bytes, port: int) -> bytes:
    """The first lines of a request that is the last of its connection."""
    lines = [
        b"%b %b HTTP/1.1" % (method, path.encode()),
        b"host: 127.0.0.1:%d" % port,
        b"connection: close",
        b"content-type: application/json",
        b"a2a-version: 1.0",
        *more,
    ]
    return b"\r\n".join([*lines, b"", b""])


def message(text: str, message_id: str, **configuration: Any) -> dict[str, Any]:
    """Params of a send."""
    said = {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}]}
    return {"message": said, "configuration": configuration}
