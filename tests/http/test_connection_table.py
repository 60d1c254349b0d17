"""The sweep over connections: what is wrong with one of them concerns no other."""

import asyncio
import select
import socket
from typing import Any

import pytest
import uvicorn
from tests.captured_logs import capture_logs
from uvicorn.server import ServerState

from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.http.connection_table import ConnectionTable
from openclaw_a2a.http.server_protocol import ServerProtocol
from openclaw_a2a.settings.sections import Limits, ServerSettings

TIMEOUT_S = 240.0
CONNECTIONS = 8
LARGE = 16 * 1024 * 1024


class ScriptedTransport(asyncio.Transport):
    """A transport of a foreign event loop; a broken one raises at every write."""

    def __init__(self, client: str, *, is_broken: bool = False) -> None:
        super().__init__({"socket": self})
        self.client = client
        self.is_broken = is_broken
        self.written = b""
        self.has_ended = asyncio.Event()

    def fileno(self) -> int:
        return 5

    def setsockopt(self, *_option: Any) -> None:
        """As of a socket."""

    def getpeername(self) -> tuple[str, int]:
        return self.client, 1

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", 2

    def write(self, data: Any) -> None:
        if self.is_broken:
            raise RuntimeError("the transport is broken")
        self.written += bytes(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.has_ended.set()

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.has_ended.is_set()

    def close(self) -> None:
        self.has_ended.set()

    def abort(self) -> None:
        self.has_ended.set()


async def test_a_connection_that_cannot_be_swept_keeps_no_other_one_open() -> None:
    supervisor = Supervisor()
    server = ServerSettings(header_seconds=0.2)
    table = ConnectionTable(Limits(), server, supervisor)
    config = uvicorn.Config(lambda: None, log_config=None, lifespan="off", ws="none")
    config.load()
    loop = asyncio.get_running_loop()
    transports = [
        ScriptedTransport("127.0.0.1", is_broken=number % 2 == 0) for number in range(CONNECTIONS)
    ]
    for transport in transports:
        protocol = ServerProtocol(config, ServerState(), {}, loop, table=table)
        protocol.connection_made(transport)
        protocol.data_received(b"GET / HTTP/1.1\r\n")
    with capture_logs() as logs:
        async with asyncio.timeout(TIMEOUT_S):
            for transport in transports:
                await transport.has_ended.wait()
    assert all(one.written.startswith(b"HTTP/1.1 408") for one in transports if not one.is_broken)
    failed = [one for one in logs if one["event"] == "http.connection_failed"]
    assert len(failed) == CONNECTIONS // 2
    assert supervisor.dead_loops == {}
    await supervisor.stop()


async def test_a_connection_that_was_closed_leaves_its_place_at_once() -> None:
    async def answer(_scope: Any, _receive: Any, send: Any) -> None:
        headers = [(b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    supervisor = Supervisor()
    table = ConnectionTable(Limits(per_address_connections=1), ServerSettings(), supervisor)
    config = uvicorn.Config(answer, interface="asgi3", log_config=None, lifespan="off", ws="none")
    config.load()
    loop = asyncio.get_running_loop()
    for _ in range(3):
        # The event loop accepts the next client before it says that this connection is lost.
        transport = ScriptedTransport("127.0.0.1")
        protocol = ServerProtocol(config, ServerState(), {}, loop, table=table)
        protocol.connection_made(transport)
        protocol.data_received(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        async with asyncio.timeout(TIMEOUT_S):
            await transport.has_ended.wait()
        assert transport.written.startswith(b"HTTP/1.1 200")
    await supervisor.stop()


@pytest.mark.parametrize("setting", ["limits.connectionUnsentBytes", "server.sendSeconds"])
async def test_a_client_that_does_not_take_a_large_answer_is_cut_off(setting: str) -> None:
    """Also one that an application writes at once, and behind which the connection is closed."""

    async def answer(_scope: Any, _receive: Any, send: Any) -> None:
        headers = [(b"content-length", b"%d" % LARGE), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"x" * LARGE})

    supervisor = Supervisor()
    is_limited = setting == "limits.connectionUnsentBytes"
    limits = Limits(connection_unsent_bytes=LARGE // 16 if is_limited else 2 * LARGE)
    server = ServerSettings(send_seconds=3600 if is_limited else 0.2)
    table = ConnectionTable(limits, server, supervisor)
    config = uvicorn.Config(answer, interface="asgi3", log_config=None, lifespan="off", ws="none")
    config.load()
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(
        lambda: ServerProtocol(config, ServerState(), {}, loop, table=table), "127.0.0.1", 0
    )
    with capture_logs() as logs, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(listening.sockets[0].getsockname())
        client.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        poll = select.poll()
        poll.register(client, 0)  # errors and hang-ups are reported always
        assert await asyncio.to_thread(poll.poll, TIMEOUT_S * 1000), "it was not cut off"
    reasons = [one["reason"] for one in logs if one["event"] == "http.client_not_reading"]
    assert reasons == ([f"past {setting}"] if is_limited else [])
    listening.close()
    await supervisor.stop()
