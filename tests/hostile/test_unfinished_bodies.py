"""Large bodies that never end: what they may hold together, and that it is given back."""

import asyncio
from contextlib import AsyncExitStack, suppress

import pytest
from tests.conftest import GatewayProcess, StartGateway
from tests.hostile.limited_gateway import digest
from tests.hostile.raw_client import TIMEOUT_S, RawClient, healthy, resident_bytes

pytestmark = [pytest.mark.slow, pytest.mark.requirement("promise.bounds.connections")]

MB = 1024 * 1024
BODY = 20 * MB
COUNT = 15
RPC, REST = b"/a2a/jsonrpc", b"/a2a/rest/message:send"
VALID = b'{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"filler":"%b"}}'


@pytest.fixture
def gateway(start_gateway: StartGateway) -> GatewayProcess:
    peers = {name: {"tokens": [digest(f"token-of-{name}")]} for name in ("mallory", "alice")}
    account = {"defaultAgentId": "main", "maxBodyBytes": BODY}
    return start_gateway(
        {
            "agents": {"main": {"adapter": "echo"}},
            "channels": {"a2a": {"accounts": {"default": account}, "security": {"peers": peers}}},
            "limits": {"bodiesBytes": 64 * MB},
            "server": {"bodySeconds": 300},
        }
    )


def head(path: bytes, length: int, *, caller: bytes = b"mallory") -> bytes:
    lines = [
        b"POST %b HTTP/1.1" % path,
        b"host: 127.0.0.1",
        b"a2a-version: 1.0",
        b"content-type: application/json",
        b"authorization: Bearer token-of-%b" % caller,
        b"content-length: %d" % length,
    ]
    return b"\r\n".join([*lines, b"", b""])


async def post(gateway: GatewayProcess, size: int, *, caller: bytes = b"mallory") -> int:
    """The status of a whole request with a body of this size."""
    body = VALID % (b"x" * size)
    async with RawClient(gateway.port) as client:
        with suppress(ConnectionError):
            await client.send(head(RPC, len(body), caller=caller) + body)
        return await client.response(whole=False)


async def test_unfinished_bodies_of_one_caller_hold_no_more_than_its_share(
    gateway: GatewayProcess,
) -> None:
    assert await post(gateway, 100) == 200
    before = resident_bytes(gateway.pid)
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(RawClient(gateway.port)) for _ in range(COUNT)]

        async def fill(client: RawClient) -> None:
            with suppress(ConnectionError):
                await client.send(head(RPC, BODY) + b" " * (BODY - 1))

        async def hear(client: RawClient) -> None:
            with suppress(ConnectionError):
                while chunk := await client.reader.read(65_536):
                    client.heard += chunk
                    if b"limits.bodiesBytes" in client.heard:
                        is_refused.set()

        is_refused = asyncio.Event()
        # Of a refused body the gateway takes 16 MB, for a short time; a client that sends more, or
        # more slowly, is reset and loses what it has not read. So all of them read from the start.
        for client in clients:
            stack.callback(asyncio.ensure_future(hear(client)).cancel)
        async with asyncio.timeout(TIMEOUT_S):
            await asyncio.gather(*(fill(client) for client in clients))
            await is_refused.wait()
        for client in clients:
            if b"\r\n\r\n" in client.heard:
                assert client.status == 429
                assert int(client.header(b"retry-after")) >= 1
        # A quarter of 64 MB, or one whole body: all of them would be 300 MB.
        assert resident_bytes(gateway.pid) - before < 100 * MB
        await healthy(gateway.port)
        assert await post(gateway, 1000) == 200  # small bodies do not count
        assert await post(gateway, 5 * MB, caller=b"alice") == 200


@pytest.mark.parametrize("path", [RPC, REST])
@pytest.mark.parametrize("end", ["closed", "invalid", "too long"])
async def test_a_large_body_counts_until_its_request_has_ended(
    gateway: GatewayProcess, path: bytes, end: str
) -> None:
    for _ in range(6):  # what was not given back would add up to more than a share
        async with RawClient(gateway.port) as client:
            if end == "closed":
                await client.send(head(path, BODY) + b"x" * (10 * MB))
            elif end == "invalid":
                await client.send(head(path, 10 * MB) + b"x" * (10 * MB))
                assert await client.response(whole=False) in (200, 400)
            else:
                chunked = head(path, 0).replace(b"content-length: 0", b"transfer-encoding: chunked")
                chunk = b"%x\r\n%b\r\n" % (MB, b"x" * MB)
                with suppress(ConnectionError):
                    await client.send(chunked + chunk * 21)
                assert await client.response(whole=False) == 413
    async with asyncio.timeout(TIMEOUT_S):
        while await post(gateway, 15 * MB) == 429:  # the last one may not be known to be gone
            pass
    # Both at once are within the share only when nothing else counts.
    statuses = await asyncio.gather(post(gateway, 7 * MB), post(gateway, 7 * MB))
    assert statuses == [200, 200]
