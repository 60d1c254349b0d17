"""Readers of large tasks that leave at once, or never read."""

import asyncio
import json
import os
import signal
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.conftest import GatewayProcess, StartGateway
from tests.hostile.raw_client import loop_seconds, quiet_loop

pytestmark = pytest.mark.slow

WAIT_S = 120.0
TASK_BYTES = 20_000_000
MOST_MEMORY = 400_000_000
"""More than the process takes, and much less than an answer for each reader."""


@pytest.fixture
def gateway(start_gateway: StartGateway, slow_agent: dict[str, object]) -> GatewayProcess:
    agent = {**slow_agent, "maxOutputBytes": 2 * TASK_BYTES}
    accounts = {"default": {"defaultAgentId": "main", "agentStyle": "task-generating"}}
    return start_gateway({"agents": {"main": agent}, "channels": {"a2a": {"accounts": accounts}}})


async def call(client: httpx.AsyncClient, method: str, params: Any) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return (await client.post("/a2a/jsonrpc", json=body)).json()["result"]


TEXT = f"chunks:{TASK_BYTES // 1_000_000}:1000000"
MESSAGE = {"messageId": "m-large", "role": "ROLE_USER", "parts": [{"text": TEXT}]}
MESSAGE_V03 = {"messageId": "m-large", "role": "user", "parts": [{"kind": "text", "text": TEXT}]}


async def make_large_task(client: httpx.AsyncClient) -> str:
    return (await call(client, "SendMessage", {"message": MESSAGE}))["task"]["id"]


def ask(gateway: GatewayProcess, method: str, task_id: str) -> socket.socket:
    """A connection on which the task was asked for, with a small buffer, and nothing read."""
    return request(gateway, method, {"id": task_id})


def request(gateway: GatewayProcess, method: str, params: object, *headers: bytes) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", gateway.port))
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    head = b"POST /a2a/jsonrpc HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    connection.sendall(head + b"content-length: %d\r\n\r\n" % len(body) + body)
    return connection


def peak_memory(gateway: GatewayProcess) -> int:
    """The most memory that the process has had, in bytes."""
    status = Path(f"/proc/{gateway.pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


@pytest.mark.parametrize("method", ["GetTask", "tasks/get", "tasks/resubscribe"])
async def test_readers_that_never_read_share_the_answer(
    gateway: GatewayProcess, method: str
) -> None:
    async with httpx.AsyncClient(base_url=gateway.url, timeout=WAIT_S) as client:
        task_id = await make_large_task(client)
        await check_readers_share(gateway, client, method, {"id": task_id}, task_id)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("SendMessage", {"message": MESSAGE}),
        ("SendMessage", {"message": MESSAGE, "configuration": {"returnImmediately": True}}),
        ("SendStreamingMessage", {"message": MESSAGE}),
        ("message/send", {"message": MESSAGE_V03}),
        ("message/stream", {"message": MESSAGE_V03}),
        ("tasks/cancel", None),
    ],
)
async def test_repeated_requests_that_never_read_share_the_task(
    gateway: GatewayProcess, method: str, params: object
) -> None:
    async with httpx.AsyncClient(base_url=gateway.url, timeout=WAIT_S) as client:
        task_id = await make_large_task(client)
        await check_readers_share(gateway, client, method, params or {"id": task_id}, task_id)


async def test_a_repeated_message_gets_the_whole_large_task(gateway: GatewayProcess) -> None:
    async with httpx.AsyncClient(base_url=gateway.url, timeout=WAIT_S) as client:
        first = await call(client, "SendMessage", {"message": MESSAGE})
        assert await call(client, "SendMessage", {"message": MESSAGE}) == first
        configuration = {"returnImmediately": True, "historyLength": 0}
        params = {"message": MESSAGE, "configuration": configuration}
        immediate = await call(client, "SendMessage", params)
        assert first["task"].pop("history")
        assert immediate == first
        body = {"message": MESSAGE}
        assert (
            (await client.post("/a2a/rest/message:send", json=body)).json()["task"].pop("history")
        )


async def check_readers_share(
    gateway: GatewayProcess, client: httpx.AsyncClient, method: str, params: object, task_id: str
) -> None:
    before = peak_memory(gateway)
    with ExitStack() as readers:
        connections = [readers.enter_context(request(gateway, method, params)) for _ in range(20)]
        # Each has its first bytes: by then its whole answer has been made.
        for connection in connections:
            connection.setblocking(False)
            async with asyncio.timeout(WAIT_S):
                assert await asyncio.get_running_loop().sock_recv(connection, 1)
        assert (await client.get("/healthz")).status_code == 200
        assert len(json.dumps(await call(client, "GetTask", {"id": task_id}))) > TASK_BYTES
        assert peak_memory(gateway) - before < MOST_MEMORY


FLOODING_AGENT = '''
"""Asks, or answers at length."""

from openclaw_a2a import InputRequired


async def flood(text: str):
    """`chunks:N:B` answers with N pieces of B bytes, anything else with a question."""
    kind, *numbers = text.split(":")
    if kind != "chunks":
        yield InputRequired("How much?")
        return
    for _ in range(int(numbers[0])):
        yield "x" * int(numbers[1])
'''
STREAMS = 200
HELD_BYTES = 64_000_000


@pytest.fixture
def flooding(start_gateway: StartGateway, tmp_path: Path) -> GatewayProcess:
    """A gateway whose agent answers as the text says, in the process of the gateway."""
    (tmp_path / "flooding.py").write_text(FLOODING_AGENT, encoding="utf-8")
    accounts = {"default": {"defaultAgentId": "main", "agentStyle": "task-generating"}}
    config: dict[str, object] = {
        "agents": {"main": {"adapter": "callable", "function": "flooding:flood"}},
        "channels": {"a2a": {"accounts": accounts}},
        # Few runs: what they hold is not what is measured. Nobody is cut off for being slow alone.
        "limits": {"runs": 4, "answerBytes": HELD_BYTES},
        "server": {"sendSeconds": 600},
    }
    return start_gateway(config, env={"PYTHONPATH": str(tmp_path)})


def said(text: str, message_id: str, **members: str) -> dict[str, object]:
    parts = [{"text": text}]
    return {"message": {"messageId": message_id, "role": "ROLE_USER", "parts": parts, **members}}


async def has_begun(connection: socket.socket) -> None:
    """The response to a request has begun."""
    connection.setblocking(False)
    async with asyncio.timeout(WAIT_S):
        assert await asyncio.get_running_loop().sock_recv(connection, 1)


@pytest.mark.requirement("promise.bounds.unread")
async def test_subscribers_that_never_read_share_what_they_wait_for(
    flooding: GatewayProcess,
) -> None:
    async with httpx.AsyncClient(base_url=flooding.url, timeout=WAIT_S) as client:
        task = (await call(client, "SendMessage", said("ask", "m-ask")))["task"]
        before = peak_memory(flooding)
        with ExitStack() as streams:
            for _ in range(STREAMS):
                stream = streams.enter_context(ask(flooding, "SubscribeToTask", task["id"]))
                await has_begun(stream)
            answer = await call(client, "SendMessage", said(TEXT, "m-large", taskId=task["id"]))
            assert len(json.dumps(answer)) > TASK_BYTES
            assert (await client.get("/healthz")).status_code == 200
            assert peak_memory(flooding) - before < MOST_MEMORY


@pytest.mark.requirement("promise.bounds.unread")
async def test_streams_of_one_message_that_never_read_hold_little_memory(
    flooding: GatewayProcess,
) -> None:
    """The message is sent again and again while it is answered."""
    async with httpx.AsyncClient(base_url=flooding.url, timeout=WAIT_S) as client:
        before = peak_memory(flooding)
        with ExitStack() as streams:
            params = {"message": MESSAGE}
            opened = [
                streams.enter_context(request(flooding, "SendStreamingMessage", params))
                for _ in range(STREAMS)
            ]
            for stream in opened:
                await has_begun(stream)
            answer = await call(client, "SendMessage", params)
            assert len(json.dumps(answer)) > TASK_BYTES
            assert (await client.get("/healthz")).status_code == 200
            assert peak_memory(flooding) - before < MOST_MEMORY


@pytest.mark.requirement("promise.bounds.unread")
async def test_streams_of_many_messages_that_never_read_are_cut_off(
    flooding: GatewayProcess,
) -> None:
    """Each has a task of its own, with events of two megabytes and an artifact as large."""
    async with httpx.AsyncClient(base_url=flooding.url, timeout=WAIT_S) as client:
        before = peak_memory(flooding)
        with ExitStack() as streams:
            for number in range(STREAMS):
                params = said("chunks:10:200000", f"m-{number}")
                stream = streams.enter_context(request(flooding, "SendStreamingMessage", params))
                await has_begun(stream)
            await wait_completed(client, STREAMS)
            assert (await client.get("/healthz")).status_code == 200
            assert peak_memory(flooding) - before < MOST_MEMORY
    assert "http.client_not_reading" in flooding.output()
    assert "limits.answerBytes" in flooding.output()


async def wait_completed(client: httpx.AsyncClient, count: int) -> None:
    """Wait until so many tasks are completed; each question takes a moment."""
    params = {"status": "TASK_STATE_COMPLETED", "pageSize": 1}
    async with asyncio.timeout(WAIT_S):
        while (await call(client, "ListTasks", params))["totalSize"] < count:
            pass


READERS = 40
MOST_ROUNDS = 10
MOST_READS = 3
"""Readers that left at once may cost as much as so many that stay; they had cost one each."""


@pytest.mark.parametrize("method", ["GetTask", "tasks/get", "ListTasks"])
async def test_readers_that_leave_at_once_cost_little(gateway: GatewayProcess, method: str) -> None:
    async with httpx.AsyncClient(base_url=gateway.url, timeout=WAIT_S) as client:
        task_id = await make_large_task(client)
        params = {"includeArtifacts": True} if method == "ListTasks" else {"id": task_id}
        before, start = peak_memory(gateway), await quiet_loop(gateway.pid)
        assert len(json.dumps(await call(client, method, params))) > TASK_BYTES
        one = await quiet_loop(gateway.pid) - start
        start = loop_seconds(gateway.pid)
        for _ in range(4):
            # It sees each request together with its end, however busy the machine is.
            os.kill(gateway.pid, signal.SIGSTOP)
            try:
                for _ in range(READERS // 4):
                    request(gateway, method, params).close()
            finally:
                os.kill(gateway.pid, signal.SIGCONT)
            assert (await client.get("/healthz")).status_code == 200
        # All that is done for them, also after they have left.
        assert await quiet_loop(gateway.pid) - start < MOST_READS * one
        assert len(json.dumps(await call(client, "GetTask", {"id": task_id}))) > TASK_BYTES
        assert peak_memory(gateway) - before < MOST_MEMORY


@pytest.mark.parametrize("method", ["GetTask", "tasks/get", "ListTasks"])
async def test_others_are_answered_while_a_large_answer_is_made(
    gateway: GatewayProcess, method: str
) -> None:
    """It is cut into small steps: in each pause others have their turn."""
    async with httpx.AsyncClient(base_url=gateway.url, timeout=WAIT_S) as client:
        task_id = await make_large_task(client)
        params = {"includeArtifacts": True} if method == "ListTasks" else {"id": task_id}
        # Whoever asks may get no processor in a pause: the best of some rounds counts. An answer
        # that is made in one piece leaves no pause in any of them.
        answered = 0
        for _ in range(MOST_ROUNDS):
            answered = max(
                answered, await count_answered_meanwhile(gateway, client, method, params)
            )
            if answered >= TASK_BYTES // 1_000_000:
                break
        assert answered >= TASK_BYTES // 1_000_000


async def count_answered_meanwhile(
    gateway: GatewayProcess, client: httpx.AsyncClient, method: str, params: object
) -> int:
    """How many requests are answered, one after another, until a large answer begins."""
    with request(gateway, method, params) as reader:
        reader.setblocking(False)
        begun = asyncio.ensure_future(asyncio.get_running_loop().sock_recv(reader, 1))
        answered = 0
        while not begun.done():
            answered += (await client.get("/healthz")).status_code == 200
        assert await begun
    return answered
