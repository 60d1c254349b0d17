"""A minimal client of OpenClaw's WebSocket, independent of ours, to observe OpenClaw directly."""

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import websockets

Json = Any

TIMEOUT_S = 240.0
SCOPES = ("operator.read", "operator.write")
ALL_SCOPES = (*SCOPES, "operator.approvals", "operator.questions", "operator.admin")
CAPS = ("tool-events", "approvals")


class Refused(Exception):
    """OpenClaw answered a request with an error."""

    def __init__(self, error: Json) -> None:
        super().__init__(f"{error.get('code')}: {error.get('message')}")
        self.error = error


class BareClient:
    """One connection. Every frame that is no answer is kept in `events`, in order of arrival."""

    def __init__(self, socket: websockets.ClientConnection) -> None:
        self._socket = socket
        self._waiting: dict[str, asyncio.Queue[Json]] = {}
        self.events: list[Json] = []
        self.heard = asyncio.Event()

    async def call(self, method: str, params: Json | None = None) -> Json:
        """The payload of the answer. Raises: Refused."""
        async with self._asked(method, params or {}) as answers:
            return await self._next(answers)

    async def agent(self, agent_id: str, session_key: str, text: str, **more: Json) -> Json:
        """The end of a turn: `status`, `result` and so on. Raises: Refused."""
        params = {"agentId": agent_id, "sessionKey": session_key, "message": text}
        async with self._asked("agent", {"idempotencyKey": new_key(), **params, **more}) as answers:
            while (payload := await self._next(answers))["status"] == "accepted":
                pass
            return payload

    async def wait_event(self, name: str, **members: Json) -> Json:
        """The payload of the first event, also an earlier one, with these members."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                for event in self.events:
                    payload: Json = event.get("payload") or {}
                    if event["event"] == name and members.items() <= payload.items():
                        return payload
                self.heard.clear()
                await self.heard.wait()

    async def read(self) -> None:
        """Read until the connection ends, however it does."""
        with suppress(websockets.ConnectionClosed):
            async for raw in self._socket:
                self._take(json.loads(raw))
        gone = {"ok": False, "error": {"code": "CLOSED", "message": "the connection is closed"}}
        for answers in self._waiting.values():
            answers.put_nowait(gone)

    def _take(self, frame: Json) -> None:
        if frame["type"] == "res":
            if answers := self._waiting.get(frame["id"]):
                answers.put_nowait(frame)
        else:
            self.events.append(frame)
            self.heard.set()

    @asynccontextmanager
    async def _asked(self, method: str, params: Json) -> AsyncGenerator[asyncio.Queue[Json]]:
        number = new_key()
        self._waiting[number] = answers = asyncio.Queue()
        request = {"type": "req", "id": number, "method": method, "params": params}
        await self._socket.send(json.dumps(request))
        try:
            yield answers
        finally:
            del self._waiting[number]

    async def _next(self, answers: asyncio.Queue[Json]) -> Json:
        async with asyncio.timeout(TIMEOUT_S):
            frame = await answers.get()
        if not frame["ok"]:
            raise Refused(frame["error"])
        return frame["payload"]


@asynccontextmanager
async def connect(
    url: str, token: str, *, scopes: Sequence[str] = ALL_SCOPES, caps: Sequence[str] = CAPS
) -> AsyncGenerator[BareClient]:
    """A connection that has shown its token."""
    async with websockets.connect(url, max_size=2**25) as socket:
        challenge = json.loads(await socket.recv())
        assert challenge["event"] == "connect.challenge", challenge
        client = BareClient(socket)
        reading = asyncio.create_task(client.read())
        program = {"id": "gateway-client", "mode": "backend", "version": "0", "platform": "linux"}
        hello = {
            "minProtocol": 4,
            "maxProtocol": 4,
            "client": program,
            "role": "operator",
            "scopes": list(scopes),
            "caps": list(caps),
            "auth": {"token": token},
        }
        try:
            await client.call("connect", hello)
            yield client
        finally:
            await socket.close()
            await reading


def new_key() -> str:
    """An id that nobody used before."""
    return str(uuid.uuid4())
