"""The gateway is killed at random moments; whatever a client saw stays so, and every task ends."""

import asyncio
import os
import random
import secrets
from pathlib import Path

import msgspec
import pytest
from tests.crash.gateway_process import DEADLINE_S, TERMINAL, GatewayProcess, Json, state_of
from tests.postgres_server import PostgresServer, server_folder

from openclaw_a2a.model.records import decode_event, decode_task
from openclaw_a2a.model.task import Task, apply_event

STREAMS = 4

Frames = dict[int, Json]


class Client:
    """One sender that follows its task through every crash."""

    def __init__(self, gateway: GatewayProcess, account: str, number: int) -> None:
        self._gateway = gateway
        self.account = account
        message = {
            "messageId": f"{account}-{number}",
            "role": "ROLE_USER",
            "parts": [{"text": "40"}],
        }
        self._params: Json = {"message": message}
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
        return bool(self.frames) and state_of(self.frames[max(self.frames)]) in TERMINAL

    async def stream(self) -> None:
        """Send, or go on where the last connection broke off; until the end or the next crash."""
        if not self.frames:
            await self._read("SendStreamingMessage", self._params, None)
        elif not self.is_over:
            await self._read("SubscribeToTask", {"id": self.task_id}, max(self.frames))

    async def _read(self, method: str, params: Json, last_event_id: int | None) -> None:
        stream = self._gateway.stream(self.account, method, params, last_event_id=last_event_id)
        try:
            async for number, event in stream:
                self._take(number, event)
        except OSError:
            pass
        finally:
            await stream.aclose()

    def _take(self, number: int, event: Json) -> None:
        last = max(self.frames, default=number - 1)
        assert number == last + 1, f"event {number} came after {last}"
        assert not self.is_over, "an event came after the end"
        self.frames[number] = event
        self.has_news.set()

    async def replay(self) -> Frames:
        """What was seen, read anew after the task as it was first seen."""
        again = Client(self._gateway, self.account, 0)
        again.frames = {self.first: self.frames[self.first]}
        await again._read("SubscribeToTask", {"id": self.task_id}, self.first)
        return again.frames

    async def get(self) -> Json:
        answer = await self._gateway.call(self.account, "GetTask", {"id": self.task_id})
        return answer["result"]

    async def send_again(self) -> Json:
        answer = await self._gateway.call(self.account, "SendMessage", self._params)
        return answer["result"]["task"]


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
    ("gateway_process", "usual"),
    [("sqlite", 100), ("json-file", 12), ("postgres", 8)],
    indirect=["gateway_process"],
)
async def test_nothing_seen_is_lost_and_every_task_ends_whenever_the_gateway_is_killed(
    gateway_process: GatewayProcess, usual: int, rounds: int | None
) -> None:
    chance = random.Random(os.environ.get("CRASH_SEED", "a2a"))
    await gateway_process.start()
    for number in range(rounds or usual):
        clients = [
            Client(gateway_process, account, number * STREAMS + index)
            for index, account in enumerate(["default", "fragile"] * (STREAMS // 2))
        ]
        await _stream_until_killed(gateway_process, clients, chance)
        await gateway_process.start()
        await _stream_to_the_end(clients)
        for client in clients:
            await _check(client)


@pytest.mark.slow
@pytest.mark.timeout(0)
async def test_streams_go_on_and_every_task_ends_while_the_database_is_restarted(
    tmp_path: Path, rounds: int | None
) -> None:
    """Clients notice nothing: no stream breaks, and each has every event once."""
    server = PostgresServer(server_folder(secrets.token_hex(8)))
    server.create()
    server.start()
    gateway = GatewayProcess(tmp_path, "postgres", server.url(), "restarted")
    chance = random.Random(os.environ.get("CRASH_SEED", "a2a"))
    try:
        await gateway.start()
        for number in range(rounds or 4):
            clients = [Client(gateway, "fragile", number * STREAMS + one) for one in range(STREAMS)]
            async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as streams:
                for client in clients:
                    streams.create_task(client.stream())
                await _until_seen(chance.choice(clients), chance.randrange(1, 30))
                end = chance.choice([server.stop, server.kill])
                await asyncio.to_thread(end)
                await asyncio.to_thread(server.start)
            for client in clients:
                assert client.is_over
                await _check(client)
                assert (await client.get())["status"]["state"] == "TASK_STATE_COMPLETED"
    finally:
        gateway.close()
        server.remove()


async def _stream_until_killed(
    gateway: GatewayProcess, clients: list[Client], chance: random.Random
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
    async with asyncio.timeout(DEADLINE_S):
        while len(client.frames) < count and not client.is_over:
            client.has_news.clear()
            await client.has_news.wait()


async def _stream_to_the_end(clients: list[Client]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not all(client.is_over for client in clients):
            await asyncio.gather(*(client.stream() for client in clients))


async def _check(client: Client) -> None:
    frames = client.frames
    assert await client.replay() == frames, "what was seen is not what is stored"
    ends = [number for number, event in frames.items() if state_of(event) in TERMINAL]
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
