"""Small requests that become large: compressed bodies, and JSON that is costly to decode."""

import functools
import gzip
import json
import zlib
from collections.abc import Iterator

import pytest
from tests.conftest import GatewayProcess
from tests.hostile.raw_client import RawClient, healthy, resident_bytes

pytestmark = pytest.mark.slow

MOST_MEMORY = 300_000_000
"""Much less than what a bomb would become."""
RPC, REST = b"/a2a/jsonrpc", b"/a2a/rest/message:send"
TOOL, MCP = b"/tools/agent_call", b"/mcp"
OPERATOR = b"/operator/objectives"
ENDPOINTS = [RPC, REST, TOOL, MCP, OPERATOR, OPERATOR + b"/import"]


@pytest.fixture
def unharmed(standing_gateway: GatewayProcess) -> Iterator[GatewayProcess]:
    """The gateway, whose memory must not have grown when the test ends."""
    before = resident_bytes(standing_gateway.pid, "VmHWM")
    yield standing_gateway
    assert resident_bytes(standing_gateway.pid, "VmHWM") - before < MOST_MEMORY


def post(path: bytes, token: str, body: bytes, *more: bytes) -> bytes:
    """A request of the operator, who may use everything."""
    lines = [
        b"POST %b HTTP/1.1" % path,
        b"host: 127.0.0.1",
        b"connection: close",
        b"content-type: application/json",
        b"accept: application/json" + (b", text/event-stream" if path == MCP else b""),
        b"a2a-version: 1.0",
        b"authorization: Bearer " + token.encode(),
        b"content-length: %d" % len(body),
        *more,
    ]
    return b"\r\n".join([*lines, b"", body])


# ---------------------------------------------------------------- compressed bodies


@functools.cache
def compressed() -> dict[bytes, bytes]:
    """Bodies by their coding; two of them would become 100 MB."""
    spaces = b"[" + b" " * 100_000_000 + b"]"
    bombs = {b"gzip": gzip.compress(spaces), b"deflate": zlib.compress(spaces)}
    return {**bombs, b"identity, gzip": b"{}", b"br": b"{}", b"GZIP": b"{}"}


@pytest.mark.requirement("wire.error.content-coding")
@pytest.mark.parametrize("path", ENDPOINTS)
async def test_a_compressed_body_is_refused_before_it_is_read(
    unharmed: GatewayProcess, operator_token: str, path: bytes
) -> None:
    for coding, body in compressed().items():
        async with RawClient(unharmed.port) as client:
            header = b"content-encoding: " + coding
            await client.send(post(path, operator_token, body, header))
            assert await client.response() == 415, (coding, client.heard)
            assert client.header(b"accept-encoding") == b"identity"
            assert "content-coding-not-supported" in json.dumps(client.json)
            assert "Content-Encoding" in client.json["error"]["message"]


@pytest.mark.requirement("wire.error.content-coding")
async def test_a_compressed_body_is_not_asked_for(
    standing_gateway: GatewayProcess, operator_token: str
) -> None:
    """Its client waits for a 100, and gets the error."""
    request = post(RPC, operator_token, b"{}", b"content-encoding: gzip", b"expect: 100-continue")
    async with RawClient(standing_gateway.port) as client:
        await client.send(request.removesuffix(b"{}"))
        assert await client.response() == 415


@pytest.mark.requirement("wire.error.content-coding")
@pytest.mark.parametrize("coding", [b"identity", b"Identity", b"", b"identity, identity"])
async def test_a_body_that_is_not_encoded_is_read(
    standing_gateway: GatewayProcess, operator_token: str, coding: bytes
) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}).encode()
    async with RawClient(standing_gateway.port) as client:
        header = b"content-encoding: " + coding
        await client.send(post(RPC, operator_token, body, header))
        assert await client.response() == 200


# ---------------------------------------------------------------- JSON

SIZE = 900_000
"""Nearly as large as a body may be."""
BOMBS = {
    "arrays in arrays": b"[" * (SIZE // 2) + b"]" * (SIZE // 2),
    "arrays without end": b"[" * SIZE,
    "objects in objects": b'{"a":' * (SIZE // 6) + b"1" + b"}" * (SIZE // 6),
    "objects without end": b'{"a":' * (SIZE // 5),
    "digits": b"1" * SIZE,
    "digits after the point": b"0." + b"1" * SIZE,
    "negative digits": b"-" + b"9" * SIZE,
    "exponent": b"1e999999999",
    "digits of an exponent": b"1e" + b"9" * SIZE,
    "small exponent": b"1e-" + b"9" * SIZE,
    "keys": b"{" + b",".join(b'"%x":0' % number for number in range(SIZE // 10)) + b"}",
    "the same key": b"{" + b'"a":0,' * (SIZE // 6) + b'"a":0}',
    "one long key": b'{"' + b"k" * SIZE + b'":0}',
    "empty arrays": b"[" + b"[]," * (SIZE // 3) + b"[]]",
    "empty objects": b"[" + b"{}," * (SIZE // 3) + b"{}]",
    "zeros": b"[" + b"0," * (SIZE // 2) + b"0]",
    "empty strings": b"[" + b'"",' * (SIZE // 3) + b'""]',
    "escaped zeros": b'"' + b"\\u0000" * (SIZE // 6) + b'"',
    "half pairs": b'"' + b"\\ud800" * (SIZE // 6) + b'"',
    "escaped backslashes": b'"' + b"\\\\" * (SIZE // 2) + b'"',
    "escapes without end": b'"' + b"\\u00e9" * (SIZE // 6),
    "broken escapes": b'"' + b"\\u00" * (SIZE // 4) + b'"',
    "wrong bytes": b'"' + b"\xff" * SIZE + b'"',
    "spaces": b" " * SIZE,
    "zero bytes": b"\x00" * SIZE,
    "minus signs": b"-" * SIZE,
    "commas": b"[" + b"," * SIZE + b"]",
    "mark of the byte order": b"\xef\xbb\xbf{}",
    "two bytes for each character": '{"jsonrpc":"2.0"}'.encode("utf-16"),
}
CALL = b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":%b}'
MESSAGE = b'{"message":{"messageId":"bomb","role":"ROLE_USER","parts":[%b]}}'
PLACES = {
    "the body of a call": (RPC, b"%b"),
    "the id of a call": (RPC, b'{"jsonrpc":"2.0","id":%b,"method":"GetTask","params":{"id":"x"}}'),
    "the method": (RPC, b'{"jsonrpc":"2.0","id":1,"method":%b,"params":{}}'),
    "params": (RPC, CALL),
    "the id of a task": (RPC, CALL.replace(b"%b", b'{"id":%b}')),
    "a number": (RPC, CALL.replace(b"%b", b'{"id":"x","historyLength":%b}')),
    "the body of a message": (REST, b"%b"),
    "a part": (REST, MESSAGE),
    "metadata": (REST, MESSAGE.replace(b"%b", b'{"text":"x","metadata":{"a":%b}}')),
    "arguments of a tool": (TOOL, b'{"agent":"main","skill":"s","input":%b}'),
    "a call over MCP": (MCP, b"%b"),
    "an objective": (OPERATOR, b'{"title":"x","metadata":%b}'),
    "a log to import": (OPERATOR + b"/import", b"%b"),
}


@pytest.mark.requirement("promise.bounds.hostile")
@pytest.mark.parametrize("place", PLACES)
async def test_costly_json_gets_a_short_answer(
    unharmed: GatewayProcess, operator_token: str, place: str
) -> None:
    path, around = PLACES[place]
    for name, bomb in BOMBS.items():
        async with RawClient(unharmed.port) as client:
            await client.send(post(path, operator_token, around.replace(b"%b", bomb)))
            status = await client.response()
            assert 200 <= status < 500, (name, client.heard[:500])
            assert b"-32603" not in client.heard, (name, client.heard[:500])
            # What is valid may be answered with itself.
            is_accepted = status == 200 and "error" not in client.json
            assert is_accepted or len(client.heard) < 10_000, (name, client.heard[:500])
    await healthy(unharmed.port)
