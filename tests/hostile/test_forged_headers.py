"""Headers that only a trusted proxy may send: from others they change nothing.

Neither who the caller is, nor what its rate is counted for, nor the address in the logs.
"""

import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.server.conftest import MakeGateway, make_gateway
from tests.server.gateway_process import GatewayProcess, message

pytestmark = [pytest.mark.slow, pytest.mark.requirement("security.forged-headers")]
__all__ = ["make_gateway"]

Json = Any
CERTIFICATE = b"ab" * 32
ADDRESSES = (b"203.0.113.7", b"127.0.0.1", b"10.0.0.1", b"::1", b"unknown", b"\xff")
NAMES = (b"x-remote-user", b"remote-user", b"x-forwarded-user", b"x-authenticated-user")
FORGED = [
    *(
        b"%b: %b" % (name, address)
        for name in (b"x-forwarded-for", b"x-real-ip", b"x-client-ip", b"true-client-ip")
        for address in ADDRESSES
    ),
    *(b"forwarded: for=%b;proto=https;host=evil.example" % one for one in ADDRESSES[:3]),
    b"x-forwarded-proto: https",
    b"x-forwarded-host: evil.example",
    b"x-forwarded-port: 443",
    b"via: 1.1 proxy.example",
    b"x-client-cert: " + CERTIFICATE,
    b"x-client-cert: SHA256=" + CERTIFICATE,
    *(name + b": alice" for name in NAMES),
    b"x-openclaw-agent-id: main",
    b"x-openclaw-session-key: agent:main:main",
]
EVERY = list({line.partition(b":")[0]: line for line in FORGED}.values())
"""One of each name, in one request."""
RATE = 20


def bearer(name: str) -> bytes:
    return b"authorization: Bearer token-of-" + name.encode()


def _settings() -> Json:
    peers: Json = {
        name: {"tokens": ["sha256:" + hashlib.sha256(f"token-of-{name}".encode()).hexdigest()]}
        for name in ("alice", "bob", "carol")
    }
    peers["alice"]["certificates"] = [CERTIFICATE.decode()]
    security = {"clientCertificateHeader": "X-Client-Cert", "peers": peers}
    accounts = {"default": {"defaultAgentId": "main", "agentStyle": "task-generating"}}
    return {
        "agents": {"main": {"adapter": "echo"}},
        # Of networks from which nobody connects here.
        "server": {"trustedProxies": ["10.0.0.0/8", "203.0.113.0/24", "::1"], "stopSeconds": 0},
        "limits": {"perPeerRequests": RATE, "perAddressFailures": 5},
        "channels": {"a2a": {"accounts": accounts, "security": security}},
    }


@pytest.fixture
async def gateway(make_gateway: MakeGateway) -> AsyncIterator[GatewayProcess]:
    started = make_gateway(_settings())
    await started.start()
    yield started


async def audit(gateway: GatewayProcess, folder: Path) -> list[Json]:
    """All entries of the audit log; the gateway is stopped for it."""
    gateway.terminate()
    await gateway.wait()
    lines = (folder / "audit.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


async def test_forged_headers_make_nobody_a_caller(gateway: GatewayProcess) -> None:
    for headers in (*([line] for line in FORGED), EVERY):
        for path in ("/a2a/rest/tasks", "/tools"):
            refused = await gateway.ask(b"GET", path, headers=headers)
            assert refused.status == 401, headers
        assert (await gateway.ask(b"GET", "/operator/tasks", headers=headers)).status in (401, 403)


async def test_forged_headers_make_nobody_another_caller(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    own = [bearer("bob"), *EVERY, b"x-api-key: token-of-alice"]
    sent = await gateway.call("SendMessage", message("hi", "m-1"), headers=own)
    task = {"id": sent.json["result"]["task"]["id"]}
    seen = await gateway.call("GetTask", task, headers=[bearer("bob")])
    assert seen.json["result"]["id"] == task["id"]
    others = await gateway.call("GetTask", task, headers=[bearer("alice"), *EVERY])
    assert others.json["error"]["code"] == -32001
    await gateway.call("CancelTask", task, headers=own)
    entries = await audit(gateway, tmp_path)
    cancelled = [one for one in entries if one["event"] == "task-canceled"]
    assert [(one["who"], one["from"]) for one in cancelled] == [("bob", "127.0.0.1")]
    assert "203.0.113" not in json.dumps(entries)


async def test_forged_headers_change_nothing_about_a_rate(gateway: GatewayProcess) -> None:
    statuses = [
        (await gateway.call("ListTasks", {}, headers=[bearer("bob"), header])).status
        for header in FORGED
    ]
    assert len(statuses) > RATE
    # A minute refills it slowly: some more may be served on a slow machine.
    assert statuses[:RATE] == [200] * RATE and statuses[-1] == 429
    for name in ("alice", "carol"):
        assert (await gateway.call("ListTasks", {}, headers=[bearer(name)])).status == 200


async def test_forged_headers_choose_no_address_for_wrong_credentials(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    statuses = [
        (await gateway.call("ListTasks", {}, headers=[bearer("nobody"), header])).status
        for header in FORGED
    ]
    assert statuses.count(429) >= len(FORGED) - 15
    addresses = {one["from"] for one in await audit(gateway, tmp_path) if one.get("from")}
    assert addresses == {"127.0.0.1"}
    assert "203.0.113" not in gateway.log() and "evil.example" not in gateway.log()


async def test_credentials_of_two_callers_are_those_of_nobody(gateway: GatewayProcess) -> None:
    for first, second in (("alice", "bob"), ("bob", "alice"), ("bob", "bob")):
        headers = [bearer(first), bearer(second), *EVERY]
        assert (await gateway.call("ListTasks", {}, headers=headers)).status == 401
    listed = [b"authorization: Bearer token-of-alice, Bearer token-of-bob"]
    assert (await gateway.call("ListTasks", {}, headers=listed)).status == 401


async def test_the_hops_of_trusted_proxies_may_come_in_several_lines(
    make_gateway: MakeGateway, tmp_path: Path
) -> None:
    """Each proxy may add a line of its own; only the last one was read."""
    settings = _settings()
    settings["server"]["trustedProxies"] = ["127.0.0.1", "10.0.0.0/8"]
    gateway = make_gateway(settings)
    await gateway.start()
    hops = [b"x-forwarded-for: 192.0.2.1, 198.51.100.9", b"x-forwarded-for: 10.0.0.7"]
    await gateway.call("ListTasks", {}, headers=[bearer("nobody"), *hops])
    entries = await audit(gateway, tmp_path)
    assert {one["from"] for one in entries if one.get("from")} == {"198.51.100.9"}
