"""Tokens that were made to confuse: a real gateway, a real issuer on loopback, hostile callers."""

import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from tests.auth.local_issuer import (
    AUDIENCE,
    LocalIssuer,
    SigningKey,
    base64url,
    encode,
    serve_issuer,
)
from tests.server.conftest import MakeGateway, make_gateway
from tests.server.gateway_process import GatewayProcess, RawResponse, message

Json = Any
pytestmark = pytest.mark.slow

__all__ = ["make_gateway"]


@pytest.fixture
def issuer() -> Iterator[LocalIssuer]:
    with serve_issuer() as one:
        yield one


def _settings(*issuers: Json, **security: Json) -> Json:
    return {
        "channels": {"a2a": {"security": {"oidc": list(issuers), **security}}},
        "limits": {"perAddressFailures": 100_000},  # every hostile token comes from one address
    }


@pytest.fixture
async def gateway(issuer: LocalIssuer, make_gateway: MakeGateway) -> AsyncIterator[GatewayProcess]:
    started = make_gateway(_settings(issuer.settings()))
    await started.start()
    yield started


async def _send(
    gateway: GatewayProcess, token: str | bytes | None, text: str = "hi"
) -> RawResponse:
    shown = token.encode() if isinstance(token, str) else token
    header = [] if shown is None else [b"authorization: Bearer " + shown]
    params = message(text, f"m-{hashlib.sha256(shown or b'').hexdigest()}-{text}")
    return await gateway.call("SendMessage", params, headers=header)


async def _is_accepted(gateway: GatewayProcess, token: str) -> bool:
    response = await _send(gateway, token)
    assert response.status in (200, 401), response.raw
    if response.status == 401:
        assert response.headers["www-authenticate"].lower().startswith("bearer")
        assert "first" not in response.body.decode()  # nothing about the keys
    return response.status == 200


async def test_a_caller_with_a_token_of_the_issuer_gets_its_task(
    gateway: GatewayProcess, issuer: LocalIssuer
) -> None:
    response = await _send(gateway, issuer.token())
    assert response.status == 200
    task_id = response.json["result"]["task"]["id"]
    for sub, code in (("alice", None), ("bob", -32001)):
        header = b"authorization: Bearer " + issuer.token(sub=sub).encode()
        found = await gateway.call("GetTask", {"id": task_id}, headers=[header])
        assert found.json.get("error", {}).get("code") == code
    assert (await _send(gateway, None)).status == 401
    card = (await gateway.ask(b"GET", "/.well-known/agent-card.json")).json
    url = f"{issuer.url}/.well-known/openid-configuration"
    scheme = {"openIdConnectSecurityScheme": {"openIdConnectUrl": url}}
    assert card["securitySchemes"] == {"oidc-corp": scheme}
    assert card["securityRequirements"] == [{"schemes": {"oidc-corp": {"list": []}}}]
    asked = len(issuer.asked)
    for number in range(5):
        assert (await _send(gateway, issuer.token(), f"again {number}")).status == 200
    assert len(issuer.asked) == asked  # never for each request


def _public_forms(key: SigningKey) -> list[bytes]:
    """The public key in every form that a careless library might take for a secret."""
    pem = key.pair.as_pem(private=False)
    return [
        pem,
        pem.strip(),
        b"".join(pem.splitlines()[1:-1]),
        base64.b64decode(b"".join(pem.splitlines()[1:-1])),
        key.pair.as_der(private=False),
        json.dumps(key.public()).encode(),
        base64.urlsafe_b64decode(key.public()["n"] + "=="),
        b"",
    ]


async def test_no_confusion_of_algorithms_and_keys_is_accepted(
    gateway: GatewayProcess, issuer: LocalIssuer
) -> None:
    claims, stranger = issuer.claims(), SigningKey("first")
    head = encode(issuer.header()) + "." + encode(claims)
    right = issuer.token()
    hostile: list[str] = []
    # Unsigned, in every spelling.
    for name in ("none", "None", "NONE", "nOnE", "", None, 0, ["none"], {}):
        unsigned = encode(issuer.header(alg=name)) + "." + encode(claims)
        hostile += [f"{unsigned}.", f"{unsigned}.{right.rpartition('.')[2]}"]
    hostile += [f"{head}.", head, f"{head}.{base64url(b'')}", f"{head}.{base64url(b'0' * 256)}"]
    # The public key as the secret of an HMAC.
    for name, digest in (("HS256", "sha256"), ("HS384", "sha384"), ("HS512", "sha512")):
        signed = encode(issuer.header(alg=name)) + "." + encode(claims)
        for secret in _public_forms(issuer.key):
            mac = hmac.new(secret, signed.encode(), digest).digest()
            hostile.append(f"{signed}.{base64url(mac)}")
    # A stranger's key under the right name, and keys that the token brings along or points to.
    own = stranger.public()
    hostile.append(stranger.sign(issuer.header(), claims))
    for extra in (
        {"jwk": own},
        {"jku": f"{issuer.url}/stranger"},
        {"x5u": f"{issuer.url}/stranger"},
        {"x5c": ["MIIB"]},
        {"jwk": own, "kid": None},
    ):
        hostile += [
            stranger.sign(issuer.header(**extra), claims),
            issuer.key.sign(issuer.header(**extra), claims),  # refused even where they are right
        ]
    issuer.keys.append(SigningKey("second", "ES256").public())
    for key_id in (
        "unknown",
        "",
        "../first",
        "./first",
        "/dev/null",
        "../../../../../../dev/null",
        "file:///etc/passwd",
        f"{issuer.url}/keys",
        "first\0",
        "first' OR '1'='1",
        "FIRST",
        "x" * 5000,
        5,
        ["first"],
        {"first": 1},
        True,
    ):
        hostile.append(issuer.token(header={"kid": key_id}))
    # Another algorithm than the signature, or than the key.
    for name in ("RS384", "PS256", "ES256", "EdDSA", "RSA", "rs256", "RS256 "):
        hostile.append(issuer.token(header={"alg": name}))
    hostile.append(issuer.token(header={"kid": "second"}))
    for changed in (
        {"crit": ["exp"]},
        {"crit": []},
        {"b64": False, "crit": ["b64"]},
        {"cty": "JWT"},
        {"typ": "logout+jwt"},
        {"typ": "dpop+jwt"},
        {"typ": 5},
    ):
        hostile.append(issuer.token(header=changed))
    for number, token in enumerate(hostile):
        assert not await _is_accepted(gateway, token), (number, token)
    assert await _is_accepted(gateway, issuer.token())
    assert "Traceback" not in gateway.log()


async def test_no_wrong_claims_or_broken_text_are_accepted(
    gateway: GatewayProcess, issuer: LocalIssuer
) -> None:
    far, right = 4102444800, issuer.token()
    header, claims = json.dumps(issuer.header()), json.dumps(issuer.claims())
    hostile = [
        *(issuer.token(iss=one) for one in ("https://evil.example", issuer.url + "/", None, 5)),
        issuer.token(iss=[issuer.url]),
        *(issuer.token(aud=one) for one in ("other", [], None, {AUDIENCE: 1}, [AUDIENCE, 1])),
        *(issuer.token(exp=one) for one in (1, -1, None, str(far), True, 1e300, [far], {})),
        *(issuer.token(nbf=one) for one in (far, str(far), False, [])),
        issuer.token(iat=far),
        *(issuer.token(sub=one) for one in (None, "", 5, ["alice"], {}, True, "a\0b", "x" * 300)),
        # Members that come twice, of which readers see different ones.
        issuer.key.sign(header[:-1] + ', "alg": "RS256"}', claims),
        issuer.key.sign('{"alg": "none", ' + header[1:], claims),
        issuer.key.sign(header, claims[:-1] + ', "sub": "local"}'),
        issuer.key.sign(header, claims[:-1] + ', "exp": 4102444800}'),
        issuer.key.sign(header, claims[:-1] + ', "\\u0073ub": "local"}'),
        # Not JSON, not an object, not UTF-8, deep, with constants that JSON has not.
        *(issuer.key.sign(header, one) for one in ("", "[]", "null", '"x"', "{", claims + claims)),
        *(issuer.key.sign(one, claims) for one in ("", "[]", "null", '"RS256"', "{}")),
        issuer.key.sign(header, claims.replace(str(issuer.claims()["exp"]), "Infinity")),
        issuer.key.sign(header, claims[:-1] + ', "deep": ' + "[" * 3000 + "]" * 3000 + "}"),
        # A token within a token.
        issuer.key.sign(header, json.dumps(right)),
        issuer.key.sign(issuer.header(cty="JWT"), right),
        # Other spellings of the same bytes.
        right + "=",
        right + "==",
        right.replace(".", ".."),
        right + ".",
        "." + right,
        right + ".x",
        f"{right}.{right}",
        right.replace("-", "+").replace("_", "/") + "A",
        right.upper(),
        right[:-2],
        " ".join(right.split(".")),
        # Large ones.
        issuer.token(more="x" * 20_000),
        issuer.token(header={"more": "x" * 20_000}),
    ]
    for number, token in enumerate(hostile):
        assert not await _is_accepted(gateway, token), (number, token[:200])
    assert await _is_accepted(gateway, right)
    assert "Traceback" not in gateway.log()


async def test_no_subject_can_be_a_configured_peer_or_the_local_user(
    issuer: LocalIssuer, make_gateway: MakeGateway
) -> None:
    digest = hashlib.sha256(b"the token of the peer").hexdigest()
    peers = {"alice": {"tokens": [f"sha256:{digest}"]}}
    gateway = make_gateway(_settings(issuer.settings(), peers=peers))
    await gateway.start()
    task = (await _send(gateway, b"the token of the peer")).json["result"]["task"]
    for sub in ("alice", "local", "anon", "oidc:corp:alice", "../alice", ":alice"):
        header = b"authorization: Bearer " + issuer.token(sub=sub).encode()
        found = await gateway.call("GetTask", {"id": task["id"]}, headers=[header])
        assert found.json["error"]["code"] == -32001
        assert (await _send(gateway, issuer.token(sub=sub))).status == 200
    card = (await gateway.ask(b"GET", "/.well-known/agent-card.json")).json
    assert sorted(card["securitySchemes"]) == ["apiKey", "bearer", "oidc-corp"]


async def test_an_issuer_speaks_only_for_its_own_subjects(
    issuer: LocalIssuer, make_gateway: MakeGateway
) -> None:
    with serve_issuer() as other:
        gateway = make_gateway(_settings(issuer.settings(), other.settings(name="other")))
        await gateway.start()
        task = (await _send(gateway, issuer.token())).json["result"]["task"]
        # With its own name its subjects are others; with the other's name its key is not right.
        header = b"authorization: Bearer " + other.token().encode()
        found = await gateway.call("GetTask", {"id": task["id"]}, headers=[header])
        assert found.json["error"]["code"] == -32001
        assert not await _is_accepted(gateway, other.token(iss=issuer.url))
        # Keys of the other issuer do not help, even under the same id.
        assert not await _is_accepted(gateway, other.key.sign(issuer.header(), issuer.claims()))


async def test_tokens_of_rotated_keys_are_accepted_and_of_withdrawn_ones_refused(
    gateway: GatewayProcess, issuer: LocalIssuer
) -> None:
    old = issuer.token()
    assert await _is_accepted(gateway, old)
    issuer.rotate("second")
    assert await _is_accepted(gateway, issuer.token())
    assert not await _is_accepted(gateway, old)
    # At the tools, too, the first token of a key is waited for, and only its scope is wrong.
    header = b"authorization: Bearer " + issuer.token().encode()
    refused = await gateway.ask(b"GET", "/tools", headers=[header])
    assert (refused.status, refused.json["error"]["code"]) == (403, "insufficient-scope")
    # A flood of unknown keys is no flood of fetches.
    before = issuer.asked.count("/keys")
    for number in range(50):
        assert not await _is_accepted(gateway, issuer.token(header={"kid": f"k{number}"}))
    assert issuer.asked.count("/keys") <= before + 2


async def test_a_gateway_starts_without_its_issuer_and_accepts_tokens_once_it_is_there(
    issuer: LocalIssuer, make_gateway: MakeGateway
) -> None:
    issuer.status = 500
    gateway = make_gateway(_settings(issuer.settings()))
    await gateway.start()
    waiting = await _send(gateway, issuer.token())
    assert waiting.status == 503
    assert int(waiting.headers["retry-after"]) > 0
    assert (await _send(gateway, None)).status == 401
    assert (await _send(gateway, issuer.token(iss="https://evil.example"))).status == 401
    issuer.status = 200
    while (response := await _send(gateway, issuer.token())).status == 503:
        assert "oidc.keys_unavailable" in gateway.log()
    assert response.status == 200


async def test_scopes_accounts_and_agents_limit_what_a_token_may_do(
    issuer: LocalIssuer, make_gateway: MakeGateway
) -> None:
    limited = issuer.settings(scopes={"call": ["a2a"], "use": ["tools"]}, accounts=["default"])
    settings = _settings(limited)
    settings["channels"]["a2a"]["accounts"] = {"default": {}, "second": {}}
    gateway = make_gateway(settings)
    await gateway.start()
    assert (await _send(gateway, issuer.token(scope="call"))).status == 200
    for scopes in ("", "use", "a2a admin"):
        refused = await _send(gateway, issuer.token(scope=scopes))
        assert refused.status == 403
        assert 'error="insufficient_scope"' in refused.headers["www-authenticate"]
    # Tools reach agents of every account: nobody who is limited to one may use them.
    for scopes in ("use", "call", "call use"):
        header = b"authorization: Bearer " + issuer.token(scope=scopes).encode()
        assert (await gateway.ask(b"GET", "/tools", headers=[header])).status == 403
    header = b"authorization: Bearer " + issuer.token(scope="call").encode()
    path = "/agents/second/a2a/jsonrpc"
    elsewhere = await gateway.call("SendMessage", message("hi", "m"), path=path, headers=[header])
    assert elsewhere.status == 403
    gateway.close()
    unlimited = make_gateway(_settings(issuer.settings(scopes={"use": ["tools"]})))
    await unlimited.start()
    for scopes, status in (("use", 200), ("call", 403)):
        header = b"authorization: Bearer " + issuer.token(scope=scopes).encode()
        assert (await unlimited.ask(b"GET", "/tools", headers=[header])).status == status


async def test_past_the_limit_of_failures_no_new_token_is_verified_and_known_ones_get_in(
    issuer: LocalIssuer, make_gateway: MakeGateway
) -> None:
    settings = _settings(issuer.settings())
    settings["limits"]["perAddressFailures"] = 5
    gateway = make_gateway(settings)
    await gateway.start()
    known = issuer.token()
    assert (await _send(gateway, known)).status == 200
    status = 0
    for attempt in range(3):  # a minute may end in between, which allows five more
        for number in range(6):
            wrong = issuer.token(jti=f"{attempt}-{number}")[:-8] + "AAAAAAAA"
            assert (await _send(gateway, wrong)).status in (401, 429)
        status = (await _send(gateway, issuer.token(jti=f"right-{attempt}"))).status
        if status == 429:
            break
    assert status == 429
    assert (await _send(gateway, known, "again")).status == 200
    assert 1 <= gateway.log().count("oidc.token_rejected") <= 3
