"""Request bodies that are not read: the response is sent and the connection closed."""

import asyncio
import hashlib
import socket
import time

import pytest
from tests.server.conftest import MakeGateway
from tests.server.gateway_process import RPC, TIMEOUT_S, GatewayProcess, RawResponse

pytestmark = pytest.mark.slow

TOKEN = "token-of-alice-0123456789"
SETTINGS = {
    "channels": {
        "a2a": {
            "security": {
                "peers": {
                    "alice": {"tokens": ["sha256:" + hashlib.sha256(TOKEN.encode()).hexdigest()]}
                }
            }
        }
    }
}
JSON_TYPE = b"content-type: application/json"
KNOWN = b"authorization: Bearer " + TOKEN.encode()
ASKED = {
    413: (RPC, JSON_TYPE, KNOWN),
    415: (RPC, b"content-type: text/plain", KNOWN),
    401: (RPC, JSON_TYPE),
    404: ("/nowhere", JSON_TYPE, KNOWN),
}


@pytest.mark.requirement("promise.bounds.body")
async def test_an_endless_body_gets_a_response_and_the_connection_is_closed(
    make_gateway: MakeGateway,
) -> None:
    gateway = make_gateway(SETTINGS)
    await gateway.start()
    for status, (path, *headers) in ASKED.items():
        response, sent_afterwards, seconds = await _send_for_ever(gateway, path, headers)
        assert response.status == status
        assert response.headers["connection"] == "close"
        assert response.json["error"]["message"]
        assert sent_afterwards < 500_000
        assert seconds < 3


async def _send_for_ever(
    gateway: GatewayProcess, path: str, headers: list[bytes]
) -> tuple[RawResponse, int, float]:
    """The answer, how much was taken after it, and how long the connection lasted."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(connection, ("127.0.0.1", gateway.port))
        lines = [b"POST " + path.encode() + b" HTTP/1.1", b"host: 127.0.0.1", *headers]
        await loop.sock_sendall(
            connection, b"\r\n".join([*lines, b"transfer-encoding: chunked", b"", b""])
        )
        began, heard, sent = time.monotonic(), b"", 0
        chunk = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
        async with asyncio.timeout(TIMEOUT_S):
            try:
                while time.monotonic() - began < 5:
                    await loop.sock_sendall(connection, chunk)
                    sent += len(chunk) if heard else 0
                    heard += _received(connection)
            except ConnectionError:
                heard += _received(connection)
        return RawResponse(heard), sent, time.monotonic() - began


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except (BlockingIOError, ConnectionError):
        return b""
