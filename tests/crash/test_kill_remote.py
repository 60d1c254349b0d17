"""The gateway is killed at random moments of calls to remote agents that do not stream."""

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.crash import gateway_process as crash
from tests.crash.gateway_process import DEADLINE_S, GatewayProcess, Json

from openclaw_a2a.auth.tokens import TokenKind, TokenStore

CALLS = 8


class NoStreams:
    """A remote agent without streams, which is never killed.

    It does each message once. A send that may wait is answered when the work is done: a caller that
    dies meanwhile never learns the id of its task, and can only send its message again. Many agents
    would then do the work again. A sender that has asked for the task knows it: messages that are
    sent again afterwards are in `repeated`, and sends that may wait in `waiting`.
    """

    def __init__(self) -> None:
        self.tasks: dict[str, Json] = {}
        self.repeated: list[str] = []
        self.waiting: list[str] = []
        self._known: set[str] = set()
        self._by_message: dict[str, str] = {}
        self._working: dict[str, asyncio.Future[None]] = {}
        self._chance = random.Random("peer")
        self._server: asyncio.Server | None = None

    async def open(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/"
        return self.url

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._working.values():
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = int(head.partition("content-length:")[2].partition("\r\n")[0] or "0")
            body = await reader.readexactly(length)
            answer = await self._answer(json.loads(body)) if body else self._card()
            content = json.dumps(answer).encode()
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
                b"Content-Length: %d\r\n\r\n" % len(content) + content
            )
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the gateway was killed meanwhile
        finally:
            writer.close()

    def _card(self) -> Json:
        interface = {"url": self.url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        return {
            "name": "No streams",
            "capabilities": {"streaming": False},
            "supportedInterfaces": [interface],
        }

    async def _answer(self, request: Json) -> Json:
        params = request["params"]
        head = {"jsonrpc": "2.0", "id": request["id"]}
        if request["method"] == "GetTask":
            self._known.add(params["id"])
            return {**head, "result": self.tasks[params["id"]]}
        assert request["method"] == "SendMessage", request
        message = params["message"]
        task_id = self._by_message.setdefault(message["messageId"], f"t-{len(self.tasks)}")
        if task_id in self._known:
            self.repeated.append(message["messageId"])
        if task_id not in self.tasks:
            self.tasks[task_id] = self._task(task_id, "WORKING", "")
            working = asyncio.ensure_future(self._work(task_id, message["parts"][0]["text"]))
            self._working[task_id] = working
        if not params["configuration"].get("returnImmediately"):
            self.waiting.append(message["messageId"])
            await asyncio.wait({self._working[task_id]})
        return {**head, "result": {"task": self.tasks[task_id]}}

    async def _work(self, task_id: str, text: str) -> None:
        number = json.loads(text)["input"]["number"]
        await asyncio.sleep(self._chance.uniform(0.0, 5.0))  # something to be killed in
        self.tasks[task_id] = self._task(task_id, "COMPLETED", json.dumps({"output": number}))

    def _task(self, task_id: str, state: str, text: str) -> Json:
        artifacts = [{"artifactId": "a", "parts": [{"text": text}]}] if text else []
        status = {"state": f"TASK_STATE_{state}"}
        return {"id": task_id, "contextId": "c", "status": status, "artifacts": artifacts}


@pytest.fixture
async def peer() -> AsyncIterator[NoStreams]:
    one = NoStreams()
    await one.open()
    yield one
    await one.close()


@pytest.fixture
async def killable(
    tmp_path: Path,
    peer: NoStreams,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[GatewayProcess]:
    """A gateway process that knows the peer."""
    monkeypatch.setattr(crash, "SERVER", Path(__file__).with_name("remote_server.py"))
    (tmp_path / "peer-url").write_text(peer.url, encoding="utf-8")
    gateway = GatewayProcess(tmp_path, request.param)
    yield gateway
    gateway.close()


class Caller:
    """Calls the peer through the gateway, and asks for the outcomes."""

    def __init__(self, gateway: GatewayProcess, folder: Path) -> None:
        self._gateway = gateway
        self._token = TokenStore(folder).create("caller", TokenKind.TOOL)
        self._number = 0

    async def call(self, chance: random.Random) -> tuple[int, str]:
        """The number in a call, and its id once it was accepted."""
        self._number += 1
        number = self._number
        await asyncio.sleep(chance.uniform(0, 0.4))  # calls come one after the other
        request = {
            "agent": "target:peer",
            "skill": "work",
            "input": {"number": number},
            "timeout": round(DEADLINE_S * 1000),
        }
        while True:
            answer = await self._ask("agent_call", request)
            if "correlationId" in answer:
                return number, answer["correlationId"]
            await asyncio.sleep(0.05)  # the gateway is away, and tells nobody when it is back

    async def outcome(self, call_id: str) -> Json:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                answer = await self._ask("agent_poll", {"correlationId": call_id})
                if answer.get("status") in ("completed", "failed", "error", "timeout"):
                    return answer
                await asyncio.sleep(0.1)  # another process works, and tells nobody when it is done

    async def _ask(self, tool: str, request: Json) -> Json:
        body = json.dumps(request).encode()
        head = [
            f"POST /tools/{tool} HTTP/1.1",
            "Host: 127.0.0.1",
            "Connection: close",
            "Content-Type: application/json",
            f"Authorization: Bearer {self._token}",
            f"Content-Length: {len(body)}",
        ]
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._gateway.port)
            try:
                writer.write("\r\n".join([*head, "", ""]).encode() + body)
                _, _, content = (await reader.read()).partition(b"\r\n\r\n")
                return json.loads(content)
            finally:
                writer.close()
        except (OSError, ValueError):
            return {}


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.requirement("promise.calls.restart", "promise.recovery.no-zombie")
@pytest.mark.parametrize(
    ("killable", "usual"), [("sqlite", 5), ("json-file", 2)], indirect=["killable"]
)
async def test_a_call_to_an_agent_without_streams_is_found_again_after_a_kill(
    killable: GatewayProcess, peer: NoStreams, tmp_path: Path, usual: int, rounds: int | None
) -> None:
    chance = random.Random(os.environ.get("CRASH_SEED", "remote"))
    caller = Caller(killable, tmp_path)
    await killable.start()
    for _ in range(rounds or usual):
        calls = [asyncio.ensure_future(caller.call(chance)) for _ in range(CALLS)]
        await asyncio.sleep(chance.uniform(0.05, 5.0))  # a random moment is the point here
        killable.kill()
        if chance.random() < 0.3:
            killable.spawn()
            await asyncio.sleep(chance.uniform(0.3, 1.2))  # somewhere in its start
            killable.kill()
        await killable.start()
        for number, call_id in await asyncio.gather(*calls):
            outcome = await caller.outcome(call_id)
            assert (outcome["status"], outcome.get("output")) == ("completed", number), outcome
    assert peer.repeated == []
    assert peer.waiting == []
