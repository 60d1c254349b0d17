"""How the load tool speaks to a server: both JSON-RPC dialects over bare HTTP/1.1.

Only the standard library, because every microsecond here is taken from the core of the loader.
"""

import asyncio
import json
import uuid
from collections.abc import Callable
from urllib.parse import urlsplit

TERMINAL = {
    *(f"TASK_STATE_{name}" for name in ("COMPLETED", "FAILED", "CANCELED", "REJECTED")),
    *("completed", "failed", "canceled", "rejected"),
}


class Dialect:
    """Builds requests and reads answers of protocol 1.0 or 0.3."""

    def __init__(self, version: str):
        self.version = version
        self.is_new = version.startswith("1")
        self.completed = b"COMPLETED" if self.is_new else b"completed"

    def send(self, text: str, *, waits: bool = True) -> bytes:
        params: dict = {"message": self._message(text)}
        if self.is_new:
            if not waits:
                params["configuration"] = {"returnImmediately": True}
            return self._call("SendMessage", params)
        return self._call("message/send", {**params, "configuration": {"blocking": waits}})

    def stream(self, text: str) -> bytes:
        method = "SendStreamingMessage" if self.is_new else "message/stream"
        return self._call(method, {"message": self._message(text)})

    def get(self, task_id: str, history: int | None = None) -> bytes:
        params: dict = {"id": task_id}
        if history is not None:
            params["historyLength"] = history
        return self._call("GetTask" if self.is_new else "tasks/get", params)

    def list(self, page_size: int) -> bytes:
        return self._call("ListTasks", {"pageSize": page_size})

    @staticmethod
    def task_of(answer: dict) -> dict:
        if "error" in answer:
            raise RuntimeError(f"the server answered with an error: {answer['error']}")
        return answer["result"].get("task", answer["result"])

    @staticmethod
    def state_of(result: dict) -> str | None:
        for member in ("statusUpdate", "task"):
            if member in result:
                return result[member].get("status", {}).get("state")
        return (result.get("status") or {}).get("state")

    def _message(self, text: str) -> dict:
        message_id = uuid.uuid4().hex
        if self.is_new:
            return {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}]}
        parts = [{"kind": "text", "text": text}]
        return {"kind": "message", "messageId": message_id, "role": "user", "parts": parts}

    @staticmethod
    def _call(method: str, params: dict) -> bytes:
        call = {"jsonrpc": "2.0", "id": uuid.uuid4().hex, "method": method, "params": params}
        return json.dumps(call, separators=(",", ":")).encode()


Consumer = Callable[[bytes], None]


class Connection(asyncio.Protocol):
    """One keep-alive HTTP/1.1 connection with one request in flight."""

    def __init__(self, head: bytes):
        self.is_closed = False
        self._head = head
        self._unread = bytearray()
        self._answer: asyncio.Future | None = None
        self._begin(None)

    def _begin(self, consumer: Consumer | None) -> None:
        self._mode, self._left, self._status = "head", 0, 0
        self._body: list[bytes] = []
        self._consumer = consumer

    def request(self, payload: bytes, consumer: Consumer | None = None) -> asyncio.Future:
        """Resolves to (status, body); with a consumer the body goes there piece by piece."""
        self._begin(consumer)
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(self._head + b"%d\r\n\r\n" % len(payload) + payload)
        return self._answer

    def close(self) -> None:
        self._transport.close()

    def connection_made(self, transport) -> None:
        self._transport = transport

    def connection_lost(self, exc) -> None:
        self.is_closed = True
        if self._answer and not self._answer.done():
            if self._mode == "close":
                self._finish()
            else:
                self._answer.set_exception(ConnectionError("closed by the server"))

    def data_received(self, data: bytes) -> None:
        self._unread += data
        readers = {
            "head": self._read_head,
            "length": self._read_length,
            "chunked": self._read_chunk,
            "close": self._read_rest,
        }
        while self._mode in readers and readers[self._mode]():
            pass

    def _read_head(self) -> bool:
        end = self._unread.find(b"\r\n\r\n")
        if end < 0:
            return False
        lines = bytes(self._unread[:end]).split(b"\r\n")
        del self._unread[: end + 4]
        self._status = int(lines[0].split(b" ", 2)[1])
        self._mode = "close"
        for line in lines[1:]:
            name, _, value = line.lower().partition(b":")
            if name == b"content-length":
                self._mode, self._left = "length", int(value)
            elif name == b"transfer-encoding" and b"chunked" in value:
                self._mode = "chunked"
        return True

    def _read_length(self) -> bool:
        if len(self._unread) < self._left and not self._consumer:
            return False
        piece = bytes(self._unread[: self._left])
        del self._unread[: len(piece)]
        self._left -= len(piece)
        self._emit(piece)
        if self._left == 0:
            self._finish()
        return False

    def _read_chunk(self) -> bool:
        end = self._unread.find(b"\r\n")
        if end < 0:
            return False
        size = int(bytes(self._unread[:end]).split(b";")[0], 16)
        if len(self._unread) < end + 2 + size + 2:
            return False
        piece = bytes(self._unread[end + 2 : end + 2 + size])
        del self._unread[: end + 2 + size + 2]
        self._emit(piece)
        if size == 0:
            self._finish()
        return size > 0

    def _read_rest(self) -> bool:
        self._emit(bytes(self._unread))
        self._unread.clear()
        return False

    def _emit(self, piece: bytes) -> None:
        if piece and self._consumer:
            self._consumer(piece)
        elif piece:
            self._body.append(piece)

    def _finish(self) -> None:
        self._mode = "idle"
        if self._answer and not self._answer.done():
            self._answer.set_result((self._status, b"".join(self._body)))


class EventReader:
    """Cuts a stream of server-sent events; hands the data of each to a consumer."""

    def __init__(self, consumer: Consumer):
        self._consumer, self._unread = consumer, b""

    def feed(self, piece: bytes) -> None:
        self._unread += piece
        if b"\r\n" in self._unread:
            self._unread = self._unread.replace(b"\r\n", b"\n")
        *events, self._unread = self._unread.split(b"\n\n")
        for event in events:
            lines = [ln[5:].lstrip() for ln in event.split(b"\n") if ln.startswith(b"data:")]
            if lines:
                self._consumer(b"\n".join(lines))


class Target:
    """A server under load."""

    def __init__(
        self,
        url: str,
        version: str,
        headers: list[str],
        accept: str = "application/json, text/event-stream",
    ):
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "127.0.0.1", parts.port or 80
        self.dialect = Dialect(version)
        lines = [
            f"POST {parts.path or '/'} HTTP/1.1",
            f"Host: {self.host}:{self.port}",
            "Content-Type: application/json",
            f"Accept: {accept}",
            f"A2A-Version: {version}",
            *headers,
            "Content-Length: ",
        ]
        self._head = "\r\n".join(lines).encode()

    async def connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: Connection(self._head), self.host, self.port
        )
        return connection

    async def call(self, payload: bytes) -> dict:
        connection = await self.connect()
        try:
            status, body = await connection.request(payload)
        finally:
            connection.close()
        if status != 200:
            raise RuntimeError(f"status {status}: {body[:300]!r}")
        return json.loads(body)
