"""A gateway that follows a script, for failures that a real OpenClaw does not produce on demand."""

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

Json = Any
TOKEN = "token-of-the-scripted-gateway"

HELLO: Json = {
    "type": "hello-ok",
    "protocol": 4,
    "server": {"version": "2026.9.6", "bootId": "boot-1"},
    "features": {"methods": ["agent"]},
    "auth": {"scopes": ["operator.read"]},
    "policy": {"maxPayload": 100_000, "attachments": {"maxBytes": 1000, "maxImageBytes": 500}},
}


class Refusal(Exception):
    """Raised by a part of the script: the request is answered with this error."""

    def __init__(self, kind: str, message: str = "no", **details: Json) -> None:
        super().__init__(message)
        self.error = {"code": kind, "message": message, "details": details}


class GatewayRequest:
    """One request, and how to answer it."""

    def __init__(self, connection: ServerConnection, frame: Json) -> None:
        self.connection = connection
        self.id: str = frame["id"]
        self.method: str = frame["method"]
        self.params: Json = frame["params"]

    async def answer(self, payload: Json) -> None:
        await self.send({"type": "res", "id": self.id, "ok": True, "payload": payload})

    async def refuse(self, error: Json) -> None:
        await self.send({"type": "res", "id": self.id, "ok": False, "error": error})

    async def event(self, name: str, payload: Json) -> None:
        await self.send({"type": "event", "event": name, "payload": payload})

    async def send(self, frame: Json) -> None:
        await self.connection.send(json.dumps(frame))

    async def agent(self, stream: str, data: Json) -> None:
        """An `agent` event of the run that this request began."""
        run_id, key = self.params["idempotencyKey"], self.params["sessionKey"]
        await self.event("agent", run_event(run_id, key, stream, data))

    async def end(self, text: str) -> None:
        """The second answer to `agent`."""
        meta = {"agentMeta": {"model": "m", "usage": {"total": 3}}}
        result = {"payloads": [{"text": text, "mediaUrl": None}], "meta": meta}
        await self.answer({"status": "ok", "summary": "completed", "result": result})


def run_event(run_id: str, key: str, stream: str, data: Json) -> Json:
    return {"runId": run_id, "sessionKey": key, "stream": stream, "data": data, "seq": 1}


Part = Callable[[GatewayRequest], Awaitable[None]]
_items = itertools.count(1)


class ScriptedGateway:
    """Answers by its script: a function for each method, else with what `answers` holds."""

    def __init__(self) -> None:
        self.url = ""
        self.hello: Json = HELLO
        self.requests: list[GatewayRequest] = []
        self.connections: set[ServerConnection] = set()
        self.entries = 0
        """How many connects were accepted."""
        self.sends_challenge = True
        self.script: dict[str, Part] = {}
        self.answers: dict[str, Json] = {
            "agents.list": {"defaultId": "main", "agents": [{"id": "main", "workspace": "/w"}]},
            "agent.wait": {"status": "timeout"},
            "chat.history": {"messages": []},
            "chat.abort": {"ok": True, "aborted": False},
            "question.list": {"questions": []},
            "exec.approval.list": [],
        }
        self.changed = asyncio.Condition()

    def on(self, method: str) -> Callable[[Part], Part]:
        """Decorates the function that answers a method."""

        def register(part: Part) -> Part:
            self.script[method] = part
            return part

        return register

    def methods(self, name: str = "") -> list[GatewayRequest]:
        """The requests so far (of one method)."""
        return [one for one in self.requests if not name or one.method == name]

    async def wait_for(self, method: str, count: int = 1) -> GatewayRequest:
        """The request of this method, once there are so many."""
        async with asyncio.timeout(240), self.changed:
            await self.changed.wait_for(lambda: len(self.methods(method)) >= count)
        return self.methods(method)[count - 1]

    async def wait_empty(self) -> None:
        """Returns when no connection is left."""
        async with asyncio.timeout(240), self.changed:
            await self.changed.wait_for(lambda: not self.connections)

    async def emit(self, event: str, payload: Json) -> None:
        """Send an event on every connection."""
        await self.send_raw(json.dumps({"type": "event", "event": event, "payload": payload}))

    async def send_raw(self, raw: str | bytes) -> None:
        """Send anything on every connection."""
        for connection in tuple(self.connections):
            await connection.send(raw)

    def drop(self) -> None:
        """Every connection breaks without a close frame."""
        for connection in tuple(self.connections):
            connection.transport.abort()

    def restart(self) -> None:
        """Every connection breaks, and the next hello is of another process."""
        boot = f"boot-{next(_items) + 1}"
        self.hello = {**self.hello, "server": {**self.hello["server"], "bootId": boot}}
        self.drop()

    async def serve(self, connection: ServerConnection) -> None:
        tasks: set[asyncio.Task[None]] = set()
        try:
            if self.sends_challenge:
                await self._send_challenge(connection)
            async for raw in connection:
                task = asyncio.create_task(
                    self._answer(GatewayRequest(connection, json.loads(raw)))
                )
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        except ConnectionClosed:
            pass
        finally:
            for task in tasks:
                task.cancel()
            self.connections.discard(connection)
            async with self.changed:
                self.changed.notify_all()

    async def _send_challenge(self, connection: ServerConnection) -> None:
        payload = {"nonce": "n", "ts": 1794722707873}
        event = {"type": "event", "event": "connect.challenge", "payload": payload}
        await connection.send(json.dumps(event))

    async def _answer(self, request: GatewayRequest) -> None:
        async with self.changed:
            self.requests.append(request)
            self.changed.notify_all()
        try:
            if request.method in self.script:
                await self.script[request.method](request)
            elif request.method == "connect":
                await self._accept(request)
            elif request.method in self.answers:
                await request.answer(self.answers[request.method])
        except Refusal as refusal:
            await request.refuse(refusal.error)
        except ConnectionClosed:
            pass

    async def _accept(self, request: GatewayRequest) -> None:
        if request.params.get("auth", {}).get("token") != TOKEN:
            raise Refusal("INVALID_REQUEST", "unauthorized", code="AUTH_TOKEN_MISMATCH")
        self.entries += 1
        self.connections.add(request.connection)
        await request.answer(self.hello)


@asynccontextmanager
async def scripted_gateway() -> AsyncGenerator[ScriptedGateway]:
    """A gateway that listens on loopback."""
    gateway = ScriptedGateway()
    server: Server
    async with serve(gateway.serve, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        gateway.url = f"ws://127.0.0.1:{port}"
        yield gateway


def user_entry(run_id: str, text: str = "hi") -> Json:
    """The message of a run in a session's history."""
    return {"role": "user", "content": text, "idempotencyKey": f"{run_id}:user"}


def assistant_entry(run_id: str, *blocks: Json) -> Json:
    """A message of a run in a session's history."""
    marks = {"runId": run_id}
    return {"role": "assistant", "content": list(blocks), "stopReason": "stop", "__openclaw": marks}


def text_block(text: str) -> Json:
    return {"type": "text", "text": text}
