"""The gateway is killed at random moments of calls; each has one outcome in the caller's session.

`--rounds 400` is the long form: ten thousand calls.
"""

import asyncio
import json
import os
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.calls.session_host import SessionHost
from tests.crash import gateway_process as crash
from tests.crash.gateway_process import DEADLINE_S, GatewayProcess, Json

from openclaw_a2a.auth.tokens import TokenKind, TokenStore
from openclaw_a2a.store import create_store

CALLS = 25
ASKER = "agent:asker:main"
NEVER_MS = 60_000


@pytest.fixture
async def host() -> AsyncIterator[SessionHost]:
    """The host of the sessions, which is never killed."""
    one = SessionHost()
    yield one
    await one.close()


@pytest.fixture
async def killable(
    tmp_path: Path,
    host: SessionHost,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[GatewayProcess]:
    """A gateway process whose agents' sessions are in the host."""
    monkeypatch.setattr(crash, "SERVER", Path(__file__).with_name("call_server.py"))
    (tmp_path / "host-port").write_text(str(await host.open()), encoding="utf-8")
    gateway = GatewayProcess(tmp_path, request.param)
    yield gateway
    gateway.close()


class Asker:
    """Makes calls, each again until one was accepted."""

    def __init__(self, gateway: GatewayProcess, folder: Path, host: SessionHost) -> None:
        self._gateway = gateway
        self._token = TokenStore(folder).create("host", TokenKind.HOST)
        self._host = host
        self._chance = random.Random(os.environ.get("CRASH_SEED", "calls"))
        self._number = 0
        self.accepted: set[str] = set()

    async def call(self) -> None:
        self._number += 1
        request = self._request(self._number)
        await asyncio.sleep(self._chance.uniform(0, 0.3))  # calls come one after the other
        while True:
            if await self._try(request):
                return
            await asyncio.sleep(0.05)  # the gateway is away, and tells nobody when it is back

    def _request(self, number: int) -> Json:
        kind = self._chance.choices(["answer", "fail", "never"], [8, 1, 1])[0]
        milliseconds = NEVER_MS if kind == "never" else self._chance.choice([0, 0, 20, 150])
        given = {"ms": milliseconds, "how": kind, "number": number}
        timeout = self._chance.choice([50, 300]) if kind == "never" else 60_000
        waits = self._chance.random() < 0.3
        request = {"agent": "worker", "skill": "work", "input": given}
        return {**request, "timeout": timeout, "wait": waits}

    async def _try(self, request: Json) -> bool:
        try:
            answer = json.loads(await self._post("/tools/agent_call", json.dumps(request).encode()))
        except (OSError, ValueError):
            return False
        if "correlationId" not in answer:
            return False  # it is stopping, or too busy
        self.accepted.add(answer["correlationId"])
        if answer["status"] != "pending":
            self._host.put(answer)
        return True

    async def _post(self, path: str, body: bytes) -> bytes:
        head = [
            f"POST {path} HTTP/1.1",
            "Host: 127.0.0.1",
            "Connection: close",
            "Content-Type: application/json",
            f"Authorization: Bearer {self._token}",
            "X-OpenClaw-Agent-Id: asker",
            f"X-OpenClaw-Session-Key: {ASKER}",
            f"Content-Length: {len(body)}",
        ]
        async with asyncio.timeout(DEADLINE_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._gateway.port)
            try:
                writer.write("\r\n".join([*head, "", ""]).encode() + body)
                _, _, content = (await reader.read()).partition(b"\r\n\r\n")
                return content
            finally:
                writer.close()


async def kept_calls(folder: Path, kind: str) -> set[str]:
    """The calls that a dead gateway had accepted, also those that no caller knows of."""
    paths = {"sqlite": "state.db", "json-file": "tasks"}
    store = create_store(kind, path=str(folder / paths[kind]))
    await store.open()
    try:
        return {record.id for record in await store.records.list_records("call")}
    finally:
        await store.close()


@pytest.mark.requirement("promise.calls.one-outcome", "promise.calls.restart", "calls.routing.once")
@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("killable", "kind", "usual"),
    [("sqlite", "sqlite", 12), ("json-file", "json-file", 4)],
    indirect=["killable"],
)
async def test_every_call_has_one_outcome_however_often_the_gateway_is_killed(
    killable: GatewayProcess,
    host: SessionHost,
    tmp_path: Path,
    kind: str,
    usual: int,
    rounds: int | None,
) -> None:
    chance = random.Random(os.environ.get("CRASH_SEED", "kills"))
    asker = Asker(killable, tmp_path, host)
    await killable.start()
    for _ in range(rounds or usual):
        calls = [asyncio.ensure_future(asker.call()) for _ in range(CALLS)]
        await asyncio.sleep(chance.uniform(0.02, 0.6))  # a random moment is the point here
        killable.kill()
        asker.accepted |= await kept_calls(tmp_path, kind)
        if chance.random() < 0.3:
            killable.spawn()
            await asyncio.sleep(chance.uniform(0.3, 1.2))  # somewhere in its start
            killable.kill()
        await killable.start()
        await asyncio.wait(calls, timeout=DEADLINE_S)
        assert all(call.done() for call in calls), killable.output()[-4000:]
    await host.until_told(asker.accepted)
    assert len(asker.accepted) >= CALLS * (rounds or usual)
    assert set(host.counts.values()) == {1}
    assert host.counts.keys() == asker.accepted
    assert all(len(texts) == 1 for texts in host.texts.values())
    outcomes = Counter(message["status"] for message in host.history)
    print(f"{len(asker.accepted)} calls: {dict(outcomes)}")  # for who runs the long form
