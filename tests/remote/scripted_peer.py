"""A scripted HTTP peer: tests decide every byte of its answers."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from openclaw_a2a.model.ids import Json, JsonObject

CARD = "/.well-known/agent-card.json"


@dataclass
class PeerRequest:
    """A request as the peer got it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    reader: asyncio.StreamReader

    @property
    def json(self) -> JsonObject:
        return json.loads(self.body)


PeerWriter = asyncio.StreamWriter
Answer = Callable[["PeerRequest", PeerWriter], Awaitable[None]]


@dataclass
class ScriptedPeer:
    """Serves a card, and one answer for everything else. Its requests are in `requests`."""

    card: Json = None
    answer: Answer | None = None
    card_answer: Answer | None = None
    requests: list[PeerRequest] = field(default_factory=list[PeerRequest])
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0
    scheme: str = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/"

    @property
    def calls(self) -> list[PeerRequest]:
        """What came besides requests for the card."""
        return [one for one in self.requests if one.path != CARD]

    @property
    def card_requests(self) -> int:
        return len(self.requests) - len(self.calls)

    async def serve(self, reader: asyncio.StreamReader, writer: PeerWriter) -> None:
        """One connection, one request."""
        try:
            received = await _read(reader)
            self.requests.append(received)
            await self._answer(received, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.gone.set()
        finally:
            writer.close()
            with suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()

    async def _answer(self, received: PeerRequest, writer: PeerWriter) -> None:
        if received.path == CARD and self.card_answer is None:
            await respond(self.card or card_of(self.url))(received, writer)
            return
        answer = self.card_answer if received.path == CARD else self.answer
        assert answer is not None, f"nobody said how to answer {received.path}"
        await answer(received, writer)


async def _read(reader: asyncio.StreamReader) -> PeerRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    method, path, _ = first.split(" ", 2)
    pairs = [line.split(":", 1) for line in lines]
    headers = {name.lower(): value.strip() for name, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return PeerRequest(method, path, headers, body, reader)


@asynccontextmanager
async def scripted(
    answer: Answer | None = None,
    *,
    card: Json = None,
    card_answer: Answer | None = None,
    tls: ssl.SSLContext | None = None,
) -> AsyncGenerator[ScriptedPeer]:
    """A scripted peer on loopback, as long as the context lasts."""
    peer = ScriptedPeer(card, answer, card_answer, scheme="https" if tls else "http")
    at_work: set[asyncio.Task[None]] = set()

    def take(reader: asyncio.StreamReader, writer: PeerWriter) -> None:
        task = asyncio.get_running_loop().create_task(peer.serve(reader, writer))
        at_work.add(task)
        task.add_done_callback(at_work.discard)

    server = await asyncio.start_server(take, "127.0.0.1", 0, ssl=tls)
    peer.port = server.sockets[0].getsockname()[1]
    try:
        yield peer
    finally:
        server.close()
        for task in list(at_work):
            task.cancel()
        await asyncio.gather(*at_work, return_exceptions=True)


def card_of(
    url: str, *, version: str = "1.0", binding: str = "JSONRPC", **more: Json
) -> JsonObject:
    interface = {"url": f"{url}rpc", "protocolBinding": binding, "protocolVersion": version}
    return {
        "name": "Scripted",
        "description": "Says what it is told to.",
        "version": "1",
        "supportedInterfaces": [interface],
        "capabilities": {"streaming": True},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [],
        **more,
    }


# -------------------------------------------------------------------- answers


def respond(
    body: Json, *, status: str = "200 OK", kind: str = "application/json", **headers: str
) -> Answer:
    """Answer with this; objects become JSON."""
    content = body.encode() if isinstance(body, str) else json.dumps(body).encode()

    async def answer(received: PeerRequest, writer: PeerWriter) -> None:
        extra = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{extra}Connection: close\r\n"
            f"Content-Length: {len(content)}\r\n\r\n".encode()
            + content
        )
        await writer.drain()

    return answer


def result(value: Json) -> Answer:
    """Answer a JSON-RPC call with a result."""

    async def answer(received: PeerRequest, writer: PeerWriter) -> None:
        reply = {"jsonrpc": "2.0", "id": received.json["id"], "result": value}
        await respond(reply)(received, writer)

    return answer


def rpc_error(code: int, message: str, data: Json = None) -> Answer:
    """Answer a JSON-RPC call with an error."""

    async def answer(received: PeerRequest, writer: PeerWriter) -> None:
        error = {"code": code, "message": message, **({} if data is None else {"data": data})}
        await respond({"jsonrpc": "2.0", "id": received.json["id"], "error": error})(
            received, writer
        )

    return answer


def by_method(**answers: Answer) -> Answer:
    """Answer a JSON-RPC call by its method."""

    async def answer(received: PeerRequest, writer: PeerWriter) -> None:
        await answers[received.json["method"]](received, writer)

    return answer


def in_turn(*answers: Answer) -> Answer:
    """The first answer for the first call, and so on; the last one for all others."""
    waiting = list(answers)

    async def answer(received: PeerRequest, writer: PeerWriter) -> None:
        chosen = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        await chosen(received, writer)

    return answer


def stream(*results: Json, after: bytes = b"", stays: bool = False) -> Answer:
    """Answer with a stream of JSON-RPC results, then these bytes, then stay or go."""

    async def answer(received: PeerRequest, writer: PeerWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
        )
        for one in results:
            reply = {"jsonrpc": "2.0", "id": received.json["id"], "result": one}
            writer.write(f"data: {json.dumps(reply)}\n\n".encode())
        writer.write(after)
        await writer.drain()
        if stays:
            await stay_silent(received, writer)

    return answer


async def stay_silent(received: PeerRequest, writer: PeerWriter) -> None:
    """Say nothing until the other side has gone."""
    await received.reader.read()
    raise ConnectionResetError


async def hang_up(received: PeerRequest, writer: PeerWriter) -> None:
    """Take the request and close the connection."""


def endless(prefix: bytes) -> Answer:
    """An answer that never stops coming."""

    async def answer(received: PeerRequest, writer: PeerWriter) -> None:
        writer.write(prefix)
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    return answer


def message(text: str = "hi there", **more: Json) -> JsonObject:
    parts = [{"text": text}]
    return {"message": {"messageId": "m-9", "role": "ROLE_AGENT", "parts": parts, **more}}


def task(state: str = "COMPLETED", *, text: str | None = None, **more: Json) -> JsonObject:
    body: JsonObject = {"id": "t-1", "contextId": "c-1", "status": status_of(state), **more}
    if text is not None:
        body["artifacts"] = [{"artifactId": "a", "parts": [{"text": text}]}]
    return {"task": body}


def status_of(state: str, text: str | None = None) -> JsonObject:
    status: JsonObject = {"state": f"TASK_STATE_{state}"}
    if text is not None:
        status["message"] = message(text)["message"]
    return status


def status_update(state: str, text: str | None = None) -> JsonObject:
    body = {"taskId": "t-1", "contextId": "c-1", "status": status_of(state, text)}
    return {"statusUpdate": body}


def artifact_update(text: str, *, append: bool = False) -> JsonObject:
    artifact = {"artifactId": "a", "parts": [{"text": text}]}
    event = {"taskId": "t-1", "contextId": "c-1", "artifact": artifact, "append": append}
    return {"artifactUpdate": event}
