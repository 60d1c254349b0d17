"""Whom a request is for, and which page it comes from: one clear answer each, or none."""

import re

import pytest
from tests.conftest import GatewayProcess
from tests.hostile.raw_client import RawClient

pytestmark = [pytest.mark.slow, pytest.mark.requirement("door.one-host")]

OWN = b"host: 127.0.0.1"
FOREIGN = b"host: evil.example"
PAGE, OWN_PAGE = b"origin: http://evil.example", b"origin: http://127.0.0.1:%d"
TARGET = b"/a2a/rest/tasks"


def get(*lines: bytes, target: bytes = TARGET, version: bytes = b"1.1") -> bytes:
    """A request with these headers."""
    first = b"GET %b HTTP/%b" % (target, version)
    return b"\r\n".join([first, b"a2a-version: 1.0", b"connection: close", *lines, b"", b""])


async def ask(gateway: GatewayProcess, data: bytes) -> RawClient:
    """What is heard until the connection is closed."""
    data = data.replace(b"%d", b"%d" % gateway.port)
    async with RawClient(gateway.port) as client:
        await client.send(data)
        await client.response()
        return client


REFUSED = {
    "foreign host first": get(FOREIGN, OWN),
    "foreign host last": get(OWN, FOREIGN),
    "host twice": get(OWN, OWN),
    "host twice, in HTTP/1.0": get(OWN, FOREIGN, version=b"1.0"),
    "no host": get(),
    "empty host": get(b"host:"),
    "empty host before": get(b"host:", OWN),
    "listed hosts": get(b"host: evil.example, 127.0.0.1:%d"),
    "user": get(b"host: evil@127.0.0.1:%d"),
    "path": get(b"host: 127.0.0.1:%d/evil"),
    "scheme": get(b"host: http://127.0.0.1:%d"),
    "space": get(b"host: 127.0.0.1 :%d"),
    "two ports": get(b"host: 127.0.0.1:%d:80"),
    "no port": get(b"host: 127.0.0.1:"),
    "port of letters": get(b"host: 127.0.0.1:http"),
    "port past the last": get(b"host: 127.0.0.1:65536"),
    "escaped": get(b"host: 127.0.0.1%2e:%d"),
    "other scripts": get("host: b\u00fccher.example".encode()),
    "not closed": get(b"host: [::1"),
    "no address": get(b"host: [::g]:%d"),
    "foreign page first": get(OWN, PAGE, OWN_PAGE),
    "foreign page last": get(OWN, OWN_PAGE, PAGE),
    "page twice": get(OWN, OWN_PAGE, OWN_PAGE),
    "empty page last": get(OWN, PAGE, b"origin:"),
    "target of a user": get(OWN, target=b"http://me@127.0.0.1:%d" + TARGET),
    "target of another scheme": get(OWN, target=b"ftp://127.0.0.1:%d" + TARGET),
    "target without host": get(OWN, target=b"http://" + TARGET),
    "target of two hosts": get(OWN, target=b"http://evil.example,127.0.0.1:%d" + TARGET),
    "target and no host header": get(target=b"http://127.0.0.1:%d" + TARGET),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_request_without_one_clear_host_and_origin_is_refused(
    standing_gateway: GatewayProcess, case: str
) -> None:
    client = await ask(standing_gateway, REFUSED[case])
    assert client.status == 400, client.heard
    assert client.header(b"connection") == b"close"
    assert client.json["error"]["code"] == "invalid-request"


@pytest.mark.parametrize("path", [b"/healthz", b"/.well-known/agent-card.json", b"/operator/tasks"])
async def test_every_address_refuses_a_second_host(
    standing_gateway: GatewayProcess, path: bytes
) -> None:
    assert (await ask(standing_gateway, get(FOREIGN, OWN, target=path))).status == 400


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        (b"http://evil.example" + TARGET, OWN, 403),
        (b"https://evil.example:%d" + TARGET, OWN, 403),
        (b"http://127.0.0.1:%d" + TARGET, FOREIGN, 200),
        (b"HTTP://LOCALHOST:%d" + TARGET + b"?pageSize=1", OWN, 200),
        (b"http://127.0.0.1:%d", OWN, 404),
        (b"http://127.0.0.1:%d?x=/healthz", OWN, 404),
        (b"http://evil.example/healthz", FOREIGN, 200),
    ],
)
async def test_the_host_of_an_absolute_target_is_checked_in_place_of_the_header(
    standing_gateway: GatewayProcess, target: bytes, host: bytes, status: int
) -> None:
    """RFC 9112, 3.2.2: the header is ignored then."""
    client = await ask(standing_gateway, get(host, target=target))
    assert client.status == status, client.heard


async def test_http_1_0_needs_no_host(standing_gateway: GatewayProcess) -> None:
    client = await ask(standing_gateway, get(target=b"/healthz", version=b"1.0"))
    assert client.status == 200


async def test_a_second_host_behind_another_request_is_refused_after_its_response(
    standing_gateway: GatewayProcess,
) -> None:
    first = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    client = await ask(standing_gateway, first + get(FOREIGN, OWN) + first)
    assert re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", client.heard) == [b"200", b"400"]
