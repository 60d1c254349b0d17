"""A client that sends bytes, not requests, and measures of the process it sends them to."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

TIMEOUT_S = 240.0


def name_port(data: bytes, port: int) -> bytes:
    """Requests with the port in `Host`, which has to name this gateway."""
    return data.replace(b"host: 127.0.0.1\r\n", b"host: 127.0.0.1:%d\r\n" % port)


class RawClient:
    """One connection; `heard` is all that came back."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.heard = b""

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.writer.transport.abort()

    async def send(self, data: bytes) -> None:
        """Send and wait until the socket has taken it. Raises: ConnectionError, TimeoutError."""
        async with asyncio.timeout(TIMEOUT_S):
            self.writer.write(name_port(data, self._port))
            await self.writer.drain()

    async def wait_readable(self, seconds: float) -> bool:
        """Wait for something to hear; True when there was, or the connection is closed."""
        with suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(seconds):
                self.heard += await self.reader.read(65_536)
                return True
        return self.reader.at_eof()

    async def send_until_closed(self, data: bytes, *, most: int) -> int:
        """Repeat the data until the other side closes; how much was sent. What comes is heard."""
        hearing = asyncio.ensure_future(self.hear())
        sent = 0
        try:
            while sent < most and not hearing.done():
                await self.send(data)
                sent += len(data)
                await asyncio.sleep(0)
        except ConnectionError:
            pass
        async with asyncio.timeout(TIMEOUT_S):
            await hearing
        return sent

    async def response(self, *, whole: bool = True) -> int:
        """The status of the first response; `whole`: read until the connection is closed."""
        async with asyncio.timeout(TIMEOUT_S):
            if whole:
                await self.hear()
            while not whole and b"\r\n\r\n" not in self.heard:
                chunk = await self.reader.read(65_536)
                assert chunk, self.heard
                self.heard += chunk
        return self.status

    async def hear(self) -> None:
        """Read until the connection is closed."""
        with suppress(ConnectionError):
            while chunk := await self.reader.read(65_536):
                self.heard += chunk

    @property
    def status(self) -> int:
        assert self.heard.startswith(b"HTTP/1.1 "), self.heard
        return int(self.heard.split(b" ", 2)[1])

    @property
    def json(self) -> Any:
        return json.loads(self.heard.partition(b"\r\n\r\n")[2])

    def header(self, name: bytes) -> bytes:
        """A header of the response."""
        lines = self.heard.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]
        return {key.lower(): value.strip() for key, _, value in (a.partition(b":") for a in lines)}[
            name
        ]


async def healthy(port: int) -> None:
    """A normal caller is served."""
    async with RawClient(port) as client:
        await client.send(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
        assert await client.response() == 200


def resident_bytes(pid: int, measure: str = "VmRSS") -> int:
    """The memory that a process has in use; `VmHWM`: the most it ever had."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    line = next(one for one in status.splitlines() if one.startswith(f"{measure}:"))
    return int(line.split()[1]) * 1024


def loop_seconds(pid: int) -> float:
    """The CPU time that the event loop of a process has taken so far.

    Ratios of it tell what work costs, however busy the machine is and however fast.
    """
    ran = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text(encoding="ascii").split()[0]
    return int(ran) / 1e9


async def quiet_loop(pid: int) -> float:
    """Wait until the event loop of a process has nothing left to do; `loop_seconds` then."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            before = _busy_seconds(pid)
            await asyncio.sleep(0.5)  # another process works; nothing here can be awaited
            if _busy_seconds(pid) - before < 0.02:
                return loop_seconds(pid)


def _busy_seconds(pid: int) -> float:
    """The time that the event loop of a process has worked, or wanted to and had no processor."""
    ran = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text(encoding="ascii").split()
    return (int(ran[0]) + int(ran[1])) / 1e9


async def cost_of(pid: int, work: Callable[[], Awaitable[object]], times: int = 9) -> float:
    """The CPU time that a process spends on its event loop for this work: the median of some."""
    costs: list[float] = []
    for _ in range(times):
        before = loop_seconds(pid)
        await work()
        costs.append(loop_seconds(pid) - before)
    return median(costs)


def rpc(method: str, params: Any, *more: bytes) -> bytes:
    """A JSON-RPC request."""
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return rpc_body(json.dumps(call).encode(), *more)


def rpc_body(body: bytes, *more: bytes) -> bytes:
    """A JSON-RPC request with this body."""
    lines = [
        b"POST /a2a/jsonrpc HTTP/1.1",
        b"host: 127.0.0.1",
        b"content-type: application/json",
        b"a2a-version: 1.0",
        b"content-length: %d" % len(body),
        *more,
    ]
    return b"\r\n".join([*lines, b"", body])


def message(text: str, **configuration: Any) -> dict[str, Any]:
    """Params of a send."""
    said = {"messageId": uuid4().hex, "role": "ROLE_USER", "parts": [{"text": text}]}
    return {"message": said, "configuration": configuration}


async def call(port: int, method: str, params: Any) -> Any:
    """A JSON-RPC call of a normal caller; its result."""
    async with RawClient(port) as client:
        await client.send(rpc(method, params, b"connection: close"))
        assert await client.response() == 200, client.heard[:500]
        return client.json["result"]
