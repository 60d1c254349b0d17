"""Every address of a real gateway, with no, wrong, expired, revoked and other people's credentials.

The addresses come from the routers: a new one without an entry in `AREAS` fails.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.server.conftest import MakeGateway, make_gateway
from tests.server.gateway_process import GatewayProcess, RawResponse, message

from openclaw_a2a.app import build_app
from openclaw_a2a.auth.admin_token import read_admin_token
from openclaw_a2a.auth.principal import Scope
from openclaw_a2a.auth.tokens import TokenKind, TokenStore
from openclaw_a2a.dashboard.endpoint import Dashboard
from openclaw_a2a.server import objectives_endpoint, rest
from openclaw_a2a.server.admin.endpoint import AdminEndpoint
from openclaw_a2a.settings import load_settings

Json = Any
pytestmark = pytest.mark.slow
__all__ = ["make_gateway"]

RPC, WORK_RPC = "/a2a/jsonrpc", "/agents/work/a2a/jsonrpc"
PUBLIC = "answers everybody"
DASHBOARD = "signs browsers in"
A2A, TOOLS, ADMIN = Scope.A2A, Scope.TOOLS, Scope.ADMIN
AREAS: dict[str, Scope | str] = {
    "POST /a2a/jsonrpc": A2A,
    "POST /a2a/jsonrpc/": A2A,
    "* /a2a/rest/{*}": A2A,
    "POST /agents/work/a2a/jsonrpc": A2A,
    "POST /agents/work/a2a/jsonrpc/": A2A,
    "* /agents/work/a2a/rest/{*}": A2A,
    "GET /.well-known/agent-card.json": PUBLIC,
    "HEAD /.well-known/agent-card.json": PUBLIC,
    "GET /.well-known/agent.json": PUBLIC,
    "HEAD /.well-known/agent.json": PUBLIC,
    "GET /agents/work/.well-known/agent-card.json": PUBLIC,
    "HEAD /agents/work/.well-known/agent-card.json": PUBLIC,
    "GET /agents/work/.well-known/agent.json": PUBLIC,
    "HEAD /agents/work/.well-known/agent.json": PUBLIC,
    "GET /agents": PUBLIC,
    "GET /healthz": PUBLIC,
    "GET /readyz": PUBLIC,
    "GET /metrics": ADMIN,
    "* /operator/{*}": ADMIN,
    "* /dashboard": DASHBOARD,
    "* /dashboard/{*}": DASHBOARD,
    "GET /tools": TOOLS,
    "* /tools/{*}": TOOLS,
    "* /results/{*}": TOOLS,
    "GET /mcp": TOOLS,
    "POST /mcp": TOOLS,
    "DELETE /mcp": TOOLS,
}
SETTINGS: Json = {
    "agents": {"main": {"adapter": "echo"}, "second": {"adapter": "echo"}},
    "limits": {"perAddressFailures": 1_000_000},
    "opt": {"enabled": True},
    "tools": {"agentToAgent": {"enabled": True, "allow": ["*"]}},
    "channels": {
        "a2a": {
            "accounts": {
                "default": {"defaultAgentId": "main"},
                "work": {"defaultAgentId": "second"},
            }
        }
    },
}


async def _routes(folder: Path) -> tuple[dict[str, Scope | str], list[str], list[str]]:
    """The routes of a gateway with these settings, and all of them one by one."""
    config = folder / "routes.json5"
    config.write_text(json.dumps(SETTINGS), encoding="utf-8")
    settings = load_settings(config, overrides={"data": str(folder / "routes")}, environ={})
    async with build_app(settings.settings) as gateway:
        router = gateway.asgi.router
        found = [f"{method} {pattern}" for method, pattern in router.routes]
        handler, _ = router.find("GET", "/operator/x") or (None, ())
        admin = getattr(handler, "__self__", None)
        assert isinstance(admin, AdminEndpoint)
        operator = [f"{method} {pattern}" for method, pattern in admin.routes]
    assert set(found) == set(AREAS), "a new address needs an entry in AREAS"
    peers = [*rest.ROUTER.routes, *objectives_endpoint.ROUTES.routes]
    below = [
        f"{method} {prefix}/{pattern}"
        for prefix in ("/a2a/rest", "/agents/work/a2a/rest")
        for method, pattern in peers
    ]
    return AREAS, below, operator


def _cases(area: Scope | str, below: list[str], operator: list[str]) -> Iterator[tuple[bytes, str]]:
    expanded = {A2A: below, ADMIN: operator}.get(area, []) if isinstance(area, Scope) else []
    for line in [*(line for line, one in AREAS.items() if one == area), *expanded]:
        method, _, pattern = line.partition(" ")
        path = pattern.replace("{*}", "x").replace("{}", "x")
        methods = ("GET", "POST", "DELETE") if method == "*" else (method,)
        yield from ((one.encode(), path) for one in methods)


class Tokens:
    """Tokens of all kinds, by what they are for."""

    def __init__(self, folder: Path) -> None:
        self.store = TokenStore(folder)
        past = datetime.now(UTC) - timedelta(seconds=1)
        peer = TokenKind.PEER
        self.right = {
            A2A: self.store.create("alice", peer),
            TOOLS: self.store.create("ann", TokenKind.TOOL),
            ADMIN: self.store.create("root", peer, scopes=[ADMIN]),
        }
        self.expired = self.store.create("old", peer, scopes=list(Scope), expires_at=past)
        self.revoked = self.store.create("gone", peer, scopes=list(Scope))
        self.store.revoke("gone")
        self.dashboard = self.store.create("viewer", peer, scopes=[Scope.DASHBOARD])

    def others(self, area: Scope) -> list[str]:
        """Valid tokens that are not for this part."""
        return [self.dashboard, *(text for one, text in self.right.items() if one is not area)]


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    return Tokens(tmp_path)


@pytest.fixture
async def gateway(tokens: Tokens, make_gateway: MakeGateway) -> AsyncIterator[GatewayProcess]:
    started = make_gateway(SETTINGS)
    await started.start()
    yield started


def _bearer(token: str) -> list[bytes]:
    return [b"authorization: Bearer " + token.encode()]


def _api_key(token: str) -> list[bytes]:
    return [b"x-api-key: " + token.encode()]


def _seen(response: RawResponse) -> tuple[int, bytes, Json]:
    headers = {name: value for name, value in response.headers.items() if name != "date"}
    return response.status, response.body, headers


async def test_no_address_is_served_without_the_right_credentials(
    gateway: GatewayProcess, tokens: Tokens, tmp_path: Path
) -> None:
    _, below, operator = await _routes(tmp_path)
    for area in (A2A, TOOLS, ADMIN):
        cases = list(_cases(area, below, operator))
        assert len(cases) > 5
        for method, path in cases:
            where = f"{method.decode()} {path}"
            missing = await gateway.ask(method, path, b"{}")
            assert missing.status == 401, where
            assert missing.headers["www-authenticate"] == 'Bearer realm="openclaw-a2a"', where
            unknown = await gateway.ask(method, path, b"{}", headers=_bearer("oca_wrong"))
            assert unknown.status == 401, where
            challenge = unknown.headers["www-authenticate"]
            assert challenge == 'Bearer realm="openclaw-a2a", error="invalid_token"', where
            for headers in (
                _bearer(tokens.expired),
                _bearer(tokens.revoked),
                _api_key(tokens.revoked),
                _api_key("oca_wrong"),
            ):
                refused = await gateway.ask(method, path, b"{}", headers=headers)
                assert _seen(refused) == _seen(unknown), where
            for other in tokens.others(area):
                refused = await gateway.ask(method, path, b"{}", headers=_bearer(other))
                assert refused.status == 403, where
                challenge = refused.headers["www-authenticate"]
                assert challenge.endswith(f'error="insufficient_scope", scope="{area.value}"')
            for headers in (_bearer(tokens.right[area]), _api_key(tokens.right[area])):
                served = await gateway.ask(method, path, b"{}", headers=headers)
                assert served.status not in (0, 401, 403, 500), (where, served.raw)


async def test_no_page_of_the_dashboard_is_served_without_the_right_credentials(
    gateway: GatewayProcess, tokens: Tokens, tmp_path: Path
) -> None:
    config = tmp_path / "routes.json5"
    config.write_text(json.dumps(SETTINGS), encoding="utf-8")
    settings = load_settings(config, overrides={"data": str(tmp_path / "pages")}, environ={})
    async with build_app(settings.settings) as app:
        handler, _ = app.asgi.router.find("GET", "/dashboard/x") or (None, ())
        dashboard = getattr(handler, "__self__", None)
        assert isinstance(dashboard, Dashboard)
        lines = [*dashboard.routes, ("GET", "/dashboard/live"), ("POST", "/dashboard/logout")]
    assert len(lines) > 20
    wrong = [
        [],
        *map(_bearer, ("oca_wrong", tokens.expired, tokens.revoked)),
        *map(_bearer, (tokens.right[A2A], tokens.right[TOOLS])),
    ]
    for method, pattern in lines:
        path = pattern.replace("{}", "x")
        for headers in wrong:
            refused = await gateway.ask(method.encode(), path, b"{}", headers=headers)
            assert refused.status in (401, 403), (method, path, headers)
        viewer = await gateway.ask(method.encode(), path, b"{}", headers=_bearer(tokens.dashboard))
        assert viewer.status != 401, (method, path)
        # Who may look may not act; signing out is no action.
        may_ask = method in ("GET", "HEAD") or path == "/dashboard/logout"
        assert may_ask or viewer.status == 403, (method, path)


async def test_refusals_that_browsers_get_have_the_challenge_too(
    gateway: GatewayProcess, tokens: Tokens
) -> None:
    accept = b"accept: text/html"
    for headers, status, challenge in (
        ([], 401, 'Bearer realm="openclaw-a2a"'),
        (_bearer("oca_wrong"), 401, 'Bearer realm="openclaw-a2a", error="invalid_token"'),
        (
            _bearer(tokens.right[A2A]),
            403,
            'Bearer realm="openclaw-a2a", error="insufficient_scope", scope="dashboard"',
        ),
    ):
        refused = await gateway.ask(b"GET", "/dashboard", headers=[accept, *headers])
        assert refused.headers["content-type"].startswith("text/html")
        assert (refused.status, refused.headers.get("www-authenticate")) == (status, challenge)


@pytest.mark.parametrize("accept", [b"accept: text/html", b"accept: application/json"])
async def test_who_looks_at_pages_has_the_rate_of_a_caller(
    tmp_path: Path, make_gateway: MakeGateway, accept: bytes
) -> None:
    """Pages had none: a token that may only look could take all of the time."""
    viewer = TokenStore(tmp_path).create("viewer", TokenKind.PEER, scopes=[Scope.DASHBOARD])
    gateway = make_gateway({"limits": {"perPeerRate": 0, "perPeerRequests": 2}})
    await gateway.start()
    headers = [accept, *_bearer(viewer)]
    answers = [await gateway.ask(b"GET", "/dashboard", headers=headers) for _ in range(4)]
    assert [one.status for one in answers[:2]] == [200, 200]
    # A minute refills it slowly: one more may be served on a slow machine.
    refused = [one for one in answers if one.status == 429]
    assert refused
    assert b"limits.perPeerRequests" in refused[0].body
    assert 1 <= int(refused[0].headers["retry-after"]) <= 60
    operator = [accept, *_bearer(read_admin_token(tmp_path))]
    for _ in range(5):
        assert (await gateway.ask(b"GET", "/dashboard", headers=operator)).status == 200


async def test_public_addresses_answer_without_credentials(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    for method, path in _cases(PUBLIC, [], []):
        assert (await gateway.ask(method, path)).status == 200, path


async def test_a_token_is_limited_to_its_accounts_and_agents(
    gateway: GatewayProcess, tokens: Tokens
) -> None:
    peer = TokenKind.PEER
    for limits, allowed in (
        ({"accounts": ["default"]}, RPC),
        ({"accounts": ["work"]}, WORK_RPC),
        ({"agents": ["second"]}, WORK_RPC),
        ({"accounts": ["work"], "agents": ["main"]}, ""),
        ({"accounts": []}, ""),
    ):
        text = tokens.store.create("limited", peer, **limits)
        for path in (RPC, WORK_RPC):
            response = await gateway.call("ListTasks", {}, path=path, headers=_bearer(text))
            assert response.status == (200 if path == allowed else 403), (limits, path)
            if path != allowed:
                assert "insufficient_scope" in response.headers["www-authenticate"]


async def test_tokens_are_made_rotated_and_revoked_while_the_gateway_runs(
    make_gateway: MakeGateway, tmp_path: Path
) -> None:
    gateway = make_gateway({})
    await gateway.start()
    store = TokenStore(tmp_path)
    first = store.create("bob", TokenKind.PEER)
    listed = await gateway.call("ListTasks", {}, headers=_bearer(first))
    assert listed.status == 200
    second = store.rotate("bob", grace=timedelta(hours=1))
    sent = await gateway.call("SendMessage", message("hi", "m-1"), headers=_bearer(first))
    task = sent.json["result"]["task"]["id"]
    found = await gateway.call("GetTask", {"id": task}, headers=_api_key(second))
    assert found.json["result"]["id"] == task  # the same caller
    old, new = store.list_tokens()
    store.revoke(old.id)
    assert (await gateway.call("ListTasks", {}, headers=_bearer(first))).status == 401
    assert (await gateway.call("ListTasks", {}, headers=_bearer(second))).status == 200
    card = (await gateway.ask(b"GET", "/.well-known/agent-card.json")).json
    assert list(card["securitySchemes"]) == ["bearer", "apiKey"]
    store.revoke(new.id)
    # The end of the last token opens nothing.
    assert (await gateway.call("ListTasks", {}, headers=_bearer(second))).status == 401
    assert (await gateway.call("ListTasks", {})).status == 401
    gateway.terminate()
    await gateway.wait()
    await gateway.start()  # which looks at the file anew
    assert (await gateway.call("ListTasks", {})).status == 401
    assert first not in gateway.log() and second not in gateway.log()


async def test_wrong_tokens_are_limited_and_logged_once_and_lock_no_caller_out(
    make_gateway: MakeGateway, tmp_path: Path
) -> None:
    right = TokenStore(tmp_path).create("bob", TokenKind.PEER)
    gateway = make_gateway({"limits": {"perAddressFailures": 5}})
    await gateway.start()
    statuses = [
        (await gateway.call("ListTasks", {}, headers=_bearer(f"guess-{n}"))).status
        for n in range(40)
    ]
    # A minute may end in between, which allows five more.
    assert statuses[:5] == [401] * 5
    assert 30 <= statuses.count(429) <= 35
    refused = await gateway.call("ListTasks", {}, headers=_bearer("guess"))
    if refused.status == 429:
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert "limits.perAddressFailures" in refused.json["error"]["message"]
    assert (await gateway.call("ListTasks", {}, headers=_bearer(right))).status == 200
    assert (await gateway.call("ListTasks", {})).status == 401
    operator = _bearer(read_admin_token(tmp_path))
    assert (await gateway.ask(b"GET", "/operator/tasks", headers=operator)).status == 200
    lines = [line for line in gateway.log().splitlines() if "127.0.0.1" in line]
    told = [line for line in lines if "auth.credentials_refused" in line]
    assert 1 <= len(told) <= 2
    assert not [line for line in gateway.log().splitlines() if "guess-" in line]


async def test_credentials_that_come_twice_are_refused(
    make_gateway: MakeGateway, tmp_path: Path
) -> None:
    """The last one counted: a proxy that looks at the first saw another caller."""
    store = TokenStore(tmp_path)
    right, tool = store.create("bob", TokenKind.PEER), store.create("ann", TokenKind.TOOL)
    gateway = make_gateway(SETTINGS)
    await gateway.start()
    for kind in (_bearer, _api_key):
        for pair in ((right, "wrong"), ("wrong", right), (right, right)):
            twice = [line for one in pair for line in kind(one)]
            assert (await gateway.call("ListTasks", {}, headers=twice)).status == 401
    assert (await gateway.ask(b"GET", "/tools", headers=_bearer(tool) * 2)).status == 401
    operator = _bearer(read_admin_token(tmp_path)) * 2
    for path in ("/operator/tasks", "/tools"):
        assert (await gateway.ask(b"GET", path, headers=operator)).status == 401
    assert (await gateway.call("ListTasks", {}, headers=_bearer(right))).status == 200


async def _status_of(gateway: GatewayProcess, version: str) -> int:
    """The status of a request as nginx forwards it by default: without a word about its client."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}})
    lines = [
        f"POST {RPC} {version}",
        f"Host: 127.0.0.1:{gateway.port}",
        "Connection: close",
        "Content-Type: application/json",
        "A2A-Version: 1.0",
        f"Content-Length: {len(body)}",
    ]
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(("\r\n".join(lines) + "\r\n\r\n" + body).encode())
    answer = await reader.read()
    writer.close()
    return int(answer.split()[1])


async def test_without_tokens_what_a_silent_proxy_forwards_is_refused(
    make_gateway: MakeGateway,
) -> None:
    gateway = make_gateway({})
    await gateway.start()
    assert await _status_of(gateway, "HTTP/1.1") == 200
    assert await _status_of(gateway, "HTTP/1.0") == 403
    gateway.close()
    for settings in (
        {"server": {"publicBaseUrl": "https://agents.example.org"}},
        {"channels": {"a2a": {"accounts": {"default": {"publicBaseUrl": "https://a.example"}}}}},
    ):
        public = make_gateway(settings)
        await public.start()
        assert await _status_of(public, "HTTP/1.1") == 401
        assert (await public.ask(b"GET", "/healthz")).status == 200
        public.close()


CERTIFICATE = "ab" * 32
HEADER = b"x-client-cert: "


def _behind_proxy(*networks: str) -> Json:
    peers = {"alice": {"certificates": [f"SHA256:{CERTIFICATE.upper()}"]}}
    security = {"clientCertificateHeader": "X-Client-Cert", "peers": peers}
    return {
        "server": {"trustedProxies": list(networks)},
        "limits": {"perAddressFailures": 3},
        "channels": {"a2a": {"security": security}},
    }


async def test_a_client_certificate_counts_only_from_a_trusted_proxy(
    make_gateway: MakeGateway,
) -> None:
    colons = ":".join(CERTIFICATE[n : n + 2] for n in range(0, 64, 2)).encode()
    trusted = make_gateway(_behind_proxy("127.0.0.0/8"))
    await trusted.start()
    for said in (CERTIFICATE.encode(), colons, b"sha256=" + CERTIFICATE.encode()):
        response = await trusted.call("ListTasks", {}, headers=[HEADER + said])
        assert response.status == 200, said
    for forged in ([], [HEADER], [HEADER + b"alice"], [HEADER + colons, HEADER + b"other"]):
        assert (await trusted.call("ListTasks", {}, headers=forged)).status == 401, forged
    card = (await trusted.ask(b"GET", "/.well-known/agent-card.json", headers=[])).json
    assert "mtls" in card["securitySchemes"]
    trusted.close()
    other = make_gateway(_behind_proxy("10.0.0.0/8", "::1"))
    await other.start()
    for forged in (
        [HEADER + CERTIFICATE.encode()],
        [HEADER + CERTIFICATE.encode(), b"x-forwarded-for: 10.0.0.1"],
        [HEADER + CERTIFICATE.encode(), b"forwarded: for=10.0.0.1"],
        [HEADER + CERTIFICATE.encode(), b"x-real-ip: 10.0.0.1"],
    ):
        assert (await other.call("ListTasks", {}, headers=forged)).status == 401, forged


BEARER, CERTIFIED = 'Bearer realm="openclaw-a2a"', 'ClientCertificate realm="openclaw-a2a"'


@pytest.mark.requirement("security.challenge")
@pytest.mark.parametrize("has_tokens", [False, True])
async def test_the_challenge_names_what_is_accepted(
    make_gateway: MakeGateway, has_tokens: bool
) -> None:
    settings = _behind_proxy("127.0.0.0/8") | {"limits": {"perAddressFailures": 1000}}
    if has_tokens:
        tokens = ["sha256:" + hashlib.sha256(b"bob").hexdigest()]
        settings["channels"]["a2a"]["security"]["peers"]["bob"] = {"tokens": tokens}
    gateway = make_gateway(settings)
    await gateway.start()
    bearer = [BEARER] if has_tokens else []
    invalid = [f'{BEARER}, error="invalid_token"'] if has_tokens else []
    for headers, first in (
        ([], bearer),
        ([HEADER + b"unknown"], invalid),
        (_bearer("wrong"), invalid),
        (_api_key("wrong"), invalid),
    ):
        for path in (RPC, "/a2a/rest/tasks"):
            refused = await gateway.ask(b"POST", path, b"{}", headers=headers)
            lines = refused.head.decode().split("\r\n")
            said = [line for line in lines if line.startswith("www-authenticate: ")]
            wanted = [f"www-authenticate: {one}" for one in [*first, CERTIFIED]]
            assert (refused.status, said) == (401, wanted), headers


OIDC = {"name": "corp", "issuer": "http://127.0.0.1:9", "audience": ["here"]}
BY_TOKEN = {"bob": {"tokens": ["sha256:" + hashlib.sha256(b"bob").hexdigest()]}}
BY_CERTIFICATE = {"alice": {"certificates": [CERTIFICATE]}}


@pytest.mark.parametrize(
    ("security", "schemes"),
    [
        ({}, []),
        ({"peers": BY_TOKEN}, ["apiKey", "bearer"]),
        ({"peers": BY_CERTIFICATE}, ["mtls"]),
        ({"oidc": [OIDC]}, ["oidc-corp"]),
        (
            {"peers": {**BY_TOKEN, **BY_CERTIFICATE}, "oidc": [OIDC]},
            ["apiKey", "bearer", "mtls", "oidc-corp"],
        ),
    ],
    ids=["open", "tokens", "certificates", "issuer", "all"],
)
async def test_the_cards_of_every_account_name_what_is_accepted_in_both_versions(
    make_gateway: MakeGateway, security: Json, schemes: list[str]
) -> None:
    if "certificates" in json.dumps(security):
        security = {**security, "clientCertificateHeader": "X-Client-Cert"}
    settings = {**SETTINGS, "server": {"trustedProxies": ["127.0.0.1"]}}
    accounts = SETTINGS["channels"]["a2a"]["accounts"]
    settings["channels"] = {"a2a": {"accounts": accounts, "security": security}}
    gateway = make_gateway(settings)
    await gateway.start()
    for prefix in ("", "/agents/work"):
        new, old = [
            (await gateway.ask(b"GET", f"{prefix}/.well-known/agent-card.json", headers=said)).json
            for said in ([b"a2a-version: 1.0"], [b"a2a-version: 0.3"])
        ]
        for card in (new, old):
            assert sorted(card.get("securitySchemes") or {}) == schemes
            named = [one["schemes"] for one in card.get("securityRequirements", ())]
            assert sorted(key for one in named for key in one) == schemes  # any one is enough
        assert sorted(key for one in old.get("security", ()) for key in one) == schemes
        refused = await gateway.call("ListTasks", {}, path=f"{prefix}{RPC}")
        assert refused.status == (401 if schemes else 200)


@pytest.mark.parametrize("shown", [_bearer("not.a.jwt"), _bearer("a") + _bearer("b")])
async def test_the_challenge_for_odd_tokens_names_certificates_too(
    make_gateway: MakeGateway, shown: list[bytes]
) -> None:
    settings = _behind_proxy("127.0.0.0/8")
    issuer = {"name": "corp", "issuer": "http://127.0.0.1:9", "audience": ["here"]}
    settings["channels"]["a2a"]["security"]["oidc"] = [issuer]
    gateway = make_gateway(settings)
    await gateway.start()
    refused = await gateway.ask(b"POST", RPC, b"{}", headers=shown)
    lines = refused.head.decode().split("\r\n")
    said = [line for line in lines if line.startswith("www-authenticate: ")]
    wanted = [f'{BEARER}, error="invalid_token"', CERTIFIED]
    assert (refused.status, said) == (401, [f"www-authenticate: {one}" for one in wanted])


async def test_addresses_that_a_trusted_proxy_forwards_are_limited_apart(
    make_gateway: MakeGateway,
) -> None:
    gateway = make_gateway(_behind_proxy("127.0.0.1", "10.0.0.0/8"))
    await gateway.start()

    async def attempt(forwarded: str) -> int:
        headers = [*_bearer("guess"), b"x-forwarded-for: " + forwarded.encode()]
        return (await gateway.call("ListTasks", {}, headers=headers)).status

    assert [await attempt("192.0.2.1") for _ in range(4)][:3] == [401] * 3
    # What the client wrote before is no address of its own.
    spoofed = [await attempt(f"198.51.100.{n}, 203.0.113.9, 10.0.0.7") for n in range(10)]
    assert spoofed.count(429) >= 4
    assert await attempt("192.0.2.99") == 401
    log = gateway.log()
    assert "203.0.113.9" in log and "198.51.100" not in log


async def test_sign_ins_that_a_trusted_proxy_forwards_are_limited_apart(
    make_gateway: MakeGateway,
) -> None:
    """All counted as those of the proxy: one client used up the attempts of everybody."""
    gateway = make_gateway(_behind_proxy("127.0.0.1"))
    await gateway.start()

    async def attempt(forwarded: str) -> int:
        headers = [b"x-forwarded-for: " + forwarded.encode()]
        body = b'{"token":"guess"}'
        return (await gateway.ask(b"POST", "/dashboard/login", body, headers=headers)).status

    attempts = [await attempt("192.0.2.1") for _ in range(10)]
    assert attempts[:3] == [401] * 3
    assert 429 in attempts
    assert await attempt("192.0.2.99") == 401
    assert "192.0.2.1" in gateway.log()


async def test_headers_of_untrusted_callers_choose_no_address(make_gateway: MakeGateway) -> None:
    tokens = {"alice": {"tokens": ["sha256:" + hashlib.sha256(b"alice").hexdigest()]}}
    gateway = make_gateway(
        {
            "limits": {"perAddressFailures": 3},
            "channels": {"a2a": {"security": {"peers": tokens}}},
        }
    )
    await gateway.start()
    statuses = [
        (
            await gateway.call(
                "ListTasks",
                {},
                headers=[*_bearer("guess"), b"x-forwarded-for: 192.0.2.%d" % number],
            )
        ).status
        for number in range(20)
    ]
    assert statuses.count(429) >= 10
    assert "192.0.2." not in gateway.log()
