"""Connections that cost a client nothing: silent, half-open, dropped, or never read from."""

import asyncio
import resource
import select
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from statistics import median

import pytest
from tests.conftest import GatewayProcess, StartGateway
from tests.hostile.raw_client import (
    TIMEOUT_S,
    RawClient,
    call,
    cost_of,
    healthy,
    message,
    name_port,
    resident_bytes,
    rpc,
)

pytestmark = [pytest.mark.slow, pytest.mark.requirement("promise.bounds.connections")]

MB = 1024 * 1024
ACCOUNTS = {"default": {"defaultAgentId": "main", "agentStyle": "task-generating"}}
GET = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
NORMAL_CALLS = 30


@pytest.fixture(autouse=True)
def many_files() -> Iterator[None]:
    """Let this process open as many sockets as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def with_agent(start_gateway: StartGateway, slow_agent: dict[str, object]):
    """Start a gateway with the slow agent and further settings."""

    def start(**settings: dict[str, object]) -> GatewayProcess:
        config = {"agents": {"main": slow_agent}, "channels": {"a2a": {"accounts": ACCOUNTS}}}
        return start_gateway({**config, **settings})

    return start


@asynccontextmanager
async def open_clients(port: int, count: int) -> AsyncIterator[list[RawClient]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(RawClient(port)) for _ in range(count)]


def log_lines(gateway: GatewayProcess, event: str) -> list[str]:
    return [line for line in gateway.output().splitlines() if event in line]


@pytest.mark.parametrize("sent", [b"", b"GET / HT", GET, GET + b"GET / HT"])
async def test_a_connection_on_which_nothing_more_comes_is_closed(
    start_gateway: StartGateway, sent: bytes
) -> None:
    gateway = start_gateway({"server": {"headerSeconds": 3, "idleSeconds": 3}})
    async with RawClient(gateway.port) as client:
        if sent:
            await client.send(sent)
            await client.response()
            assert client.heard.count(b"HTTP/1.1 200") == sent.count(GET)
        else:
            async with asyncio.timeout(TIMEOUT_S):
                assert await client.reader.read() == b""


async def test_a_used_connection_stays_open(start_gateway: StartGateway) -> None:
    gateway = start_gateway({"server": {"headerSeconds": 3, "idleSeconds": 60}})
    async with RawClient(gateway.port) as client:
        await client.send(GET)
        assert await client.response(whole=False) == 200
        while await client.wait_readable(4):  # longer than a head may take
            assert not client.reader.at_eof()
        client.heard = b""
        await client.send(GET)
        assert await client.response(whole=False) == 200


async def test_the_connections_of_one_address_are_limited(start_gateway: StartGateway) -> None:
    gateway = start_gateway({"limits": {"perAddressConnections": 5}})
    async with open_clients(gateway.port, 5) as clients:
        for client in clients:
            await client.send(GET)
            assert await client.response(whole=False) == 200
        for _ in range(50):
            async with RawClient(gateway.port) as refused:
                await refused.send(GET)
                assert await refused.response() == 503
                assert refused.header(b"retry-after")
                assert refused.json["error"]["code"] == "too-many-connections"
                assert "limits.perAddressConnections" in refused.json["error"]["message"]
                details = refused.json["error"]["details"]
                assert details["setting"] == "limits.perAddressConnections"
        clients[0].writer.close()
        await clients[0].writer.wait_closed()
        await _until_healthy(gateway.port)
        clients[1].heard = b""
        await clients[1].send(GET)
        assert await clients[1].response(whole=False) == 200
    assert 1 <= len(log_lines(gateway, "http.connection_refused")) < 10


async def test_past_the_limit_connections_without_a_request_make_room(
    with_agent, start_gateway: StartGateway
) -> None:
    gateway = with_agent(limits={"connections": 20})
    async with open_clients(gateway.port, 60):
        for _ in range(NORMAL_CALLS):
            await healthy(gateway.port)
    assert 1 <= len(log_lines(gateway, "http.connections_evicted")) < 10
    assert "limits.connections" in gateway.output()


async def test_past_the_limit_of_busy_connections_the_next_is_refused(with_agent) -> None:
    gateway = with_agent(limits={"connections": 6})
    held = await call(gateway.port, "SendMessage", message("hold", returnImmediately=True))
    stream = rpc("SubscribeToTask", {"id": held["task"]["id"]})
    async with open_clients(gateway.port, 6) as clients:
        for client in clients:
            await client.send(stream)
            assert await client.response(whole=False) == 200
        async with RawClient(gateway.port) as refused:
            await refused.send(GET)
            assert await refused.response() == 503
            assert "limits.connections" in refused.json["error"]["message"]
            assert refused.json["error"]["details"]["setting"] == "limits.connections"
    await _until_healthy(gateway.port)
    await call(gateway.port, "CancelTask", {"id": held["task"]["id"]})


async def _until_healthy(port: int) -> None:
    """Served again, as soon as the gateway has seen that clients left."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            async with RawClient(port) as client:
                await client.send(GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
                await client.hear()
                if client.heard.startswith(b"HTTP/1.1 200"):
                    return


MOST_COST = 3
"""A normal call may cost so many times what it costs without all the connections."""


async def test_normal_callers_are_served_beside_slow_and_half_open_connections(
    start_gateway: StartGateway, request: pytest.FixtureRequest
) -> None:
    count: int = request.config.getoption("--connections")
    # With an agent that costs nothing itself.
    gateway = start_gateway(
        {"server": {"headerSeconds": 5}, "channels": {"a2a": {"accounts": ACCOUNTS}}}
    )

    async def call_normally() -> None:
        done = await call(gateway.port, "SendMessage", message("hello"))
        assert done["task"]["status"]["state"] == "TASK_STATE_COMPLETED"

    await call_normally()
    before = resident_bytes(gateway.pid)
    alone = await cost_of(gateway.pid, call_normally, NORMAL_CALLS)
    starts = [b"", b"POST /a2a/js", GET[:-2], rpc("ListTasks", {})[:-20]]
    async with open_clients(gateway.port, count) as clients:
        for number, client in enumerate(clients):
            client.writer.write(starts[number % len(starts)])
        costs: list[float] = []
        for number in range(NORMAL_CALLS):
            for client in clients[number::NORMAL_CALLS]:
                client.writer.write(b"x")
            # The bytes of those that are slow cost something, too: they are no part of it.
            await asyncio.sleep(0)
            await healthy(gateway.port)
            costs.append(await cost_of(gateway.pid, call_normally, 1))
        assert median(costs) < MOST_COST * alone
        assert resident_bytes(gateway.pid) < before + 32 * MB + count * 60_000
        async with asyncio.timeout(TIMEOUT_S):
            await asyncio.gather(*(_drain(client) for client in clients))
    await healthy(gateway.port)
    assert len(log_lines(gateway, "http.")) < 20


async def _drain(client: RawClient) -> None:
    """Read until the other side has closed."""
    try:
        while await client.reader.read(65_536):
            pass
    except ConnectionError:
        pass


@contextmanager
def soft_file_limit(files: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_the_limit_of_open_files_is_raised_at_start(start_gateway: StartGateway) -> None:
    with soft_file_limit(256):
        gateway = start_gateway()
    soft, hard = resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE)
    assert soft == hard
    assert soft > 256


async def test_past_the_limit_of_open_files_others_go_on(with_agent) -> None:
    gateway = with_agent(server={"headerSeconds": 60})
    held = await call(gateway.port, "SendMessage", message("hold", returnImmediately=True))
    resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (200, 200))
    async with RawClient(gateway.port) as stream:
        asked = rpc("SubscribeToTask", {"id": held["task"]["id"]}, b"connection: close")
        await stream.send(asked)
        assert await stream.response(whole=False) == 200
        async with open_clients(gateway.port, 600):
            # Of those that came at once, before room was made, some may have been dropped.
            await _until_healthy(gateway.port)
            for number in range(NORMAL_CALLS):
                done = await call(gateway.port, "SendMessage", message(f"echo:{number}"))
                assert done["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
            await call(gateway.port, "CancelTask", {"id": held["task"]["id"]})
            assert await stream.response() == 200
            assert b"TASK_STATE_CANCELED" in stream.heard
    assert 1 <= len(log_lines(gateway, "http.connections_evicted")) < 10
    assert "200 open files" in gateway.output()


async def test_connections_that_come_one_by_one_never_use_up_the_open_files(
    start_gateway: StartGateway,
) -> None:
    """Room is made with each that comes: the system never refuses to accept one."""
    gateway = start_gateway({"server": {"headerSeconds": 600, "idleSeconds": 600}})
    resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (500, 500))
    async with AsyncExitStack() as stack:
        for _ in range(1500):
            client = await stack.enter_async_context(RawClient(gateway.port))
            await client.send(GET)
            assert await client.response(whole=False) == 200
    assert 1 <= len(log_lines(gateway, "http.connections_evicted")) < 10
    assert "out of system resource" not in gateway.output()


STREAMS = 1000
AT_ONCE = 50


@pytest.mark.parametrize("behind", [b"", GET, GET * 3])
async def test_streams_that_are_opened_and_dropped_leave_no_slots_taken(
    with_agent, behind: bytes
) -> None:
    gateway = with_agent(limits={"streams": AT_ONCE}, server={"heartbeatSeconds": 0.5})
    held = await call(gateway.port, "SendMessage", message("hold", returnImmediately=True))
    stream = rpc("SubscribeToTask", {"id": held["task"]["id"]})
    for _ in range(STREAMS // AT_ONCE):
        async with open_clients(gateway.port, AT_ONCE) as clients:
            for client in clients:
                await client.send(stream + behind)
                await client.wait_readable(TIMEOUT_S)
    async with open_clients(gateway.port, AT_ONCE) as clients:
        for client in clients:
            await _stream_opens(gateway.port, client, stream)
    await call(gateway.port, "CancelTask", {"id": held["task"]["id"]})


async def _stream_opens(port: int, client: RawClient, stream: bytes) -> None:
    """Asked again until the gateway has seen that earlier clients left."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            client.heard = b""
            await client.send(stream)
            if await client.response(whole=False) == 200:
                return
            await client.wait_readable(0.05)


READERS = 200
SIZE = 4 * MB


@pytest.mark.requirement("promise.bounds.unread")
async def test_readers_that_never_read_are_cut_off_and_memory_stays_bounded(with_agent) -> None:
    limits = {"unsentBytes": 32 * MB, "connectionUnsentBytes": 16 * MB}
    gateway = with_agent(limits=limits, server={"sendSeconds": 1})
    pieces = SIZE // 65_536
    done = await call(gateway.port, "SendMessage", message(f"chunks:{pieces}:65536"))
    asked = rpc("GetTask", {"id": done["task"]["id"]})
    before = resident_bytes(gateway.pid, "VmHWM")
    readers = [_silent_reader(gateway.port, asked) for _ in range(READERS)]
    try:
        await healthy(gateway.port)
        await asyncio.gather(*(asyncio.to_thread(_wait_cut, reader) for reader in readers))
        # Whole answers in memory would be 1.6 GB.
        assert resident_bytes(gateway.pid, "VmHWM") < before + 400 * MB
    finally:
        for reader in readers:
            reader.close()
    await call(gateway.port, "SendMessage", message("echo:last"))
    assert 1 <= len(log_lines(gateway, "http.client_not_reading")) < 10


@pytest.mark.requirement("promise.bounds.unread")
async def test_of_many_that_do_not_read_those_that_wait_longest_are_cut_off(with_agent) -> None:
    """Although nobody is too slow alone."""
    gateway = with_agent(limits={"unsentBytes": MB}, server={"sendSeconds": 3600})
    done = await call(gateway.port, "SendMessage", message(f"chunks:{SIZE // 65_536}:65536"))
    asked = rpc("GetTask", {"id": done["task"]["id"]})
    readers = [_silent_reader(gateway.port, asked) for _ in range(40)]
    try:
        await asyncio.to_thread(_wait_cut, readers[0])
    finally:
        for reader in readers:
            reader.close()
    await healthy(gateway.port)
    assert "past limits.unsentBytes" in gateway.output()


@pytest.mark.requirement("promise.bounds.unread")
async def test_a_stream_that_is_never_read_is_cut_off_and_its_slot_given_back(with_agent) -> None:
    gateway = with_agent(limits={"streams": 1}, server={"sendSeconds": 1})
    asked = rpc("SendStreamingMessage", message(f"chunks:{4 * SIZE // 65_536}:65536"))
    reader = _silent_reader(gateway.port, asked)
    with reader:
        await asyncio.to_thread(_wait_cut, reader)
    async with RawClient(gateway.port) as client:
        stream = rpc("SendStreamingMessage", message("echo:again"))
        await _stream_opens(gateway.port, client, stream)


@pytest.mark.requirement("promise.bounds.unread")
async def test_a_slow_reader_gets_everything(with_agent) -> None:
    gateway = with_agent(server={"sendSeconds": 20})
    done = await call(gateway.port, "SendMessage", message(f"chunks:{SIZE // 65_536}:65536"))
    asked = rpc("GetTask", {"id": done["task"]["id"]}, b"connection: close")
    reader = _silent_reader(gateway.port, asked)

    def read() -> int:
        size = 0
        while chunk := reader.recv(16_384):
            size += len(chunk)
        return size

    with reader:
        assert await asyncio.to_thread(read) > SIZE


def _silent_reader(port: int, request: bytes) -> socket.socket:
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader.settimeout(TIMEOUT_S)
    reader.connect(("127.0.0.1", port))
    reader.sendall(name_port(request, port))
    return reader


def _wait_cut(reader: socket.socket) -> None:
    """Wait for the reset without reading anything."""
    poll = select.poll()
    poll.register(reader, 0)  # errors and hang-ups are reported always
    assert poll.poll(TIMEOUT_S * 1000), "the connection was not cut off"
