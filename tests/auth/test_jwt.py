"""Tokens of issuers: which are accepted, for whom, and how keys are fetched."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.auth.local_issuer import AUDIENCE, LocalIssuer, SigningKey, base64url, encode

from openclaw_a2a.auth.jwt import (
    FetchFailed,
    JwtVerifier,
    fetch_keys,
    read_keys,
    read_keys_url,
)
from openclaw_a2a.auth.principal import Principal, Scope
from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.model.errors import IssuerUnavailable, Unauthenticated
from openclaw_a2a.settings import OidcSettings

Json = Any


class Verifier:
    """A verifier of one issuer, whose documents need no network."""

    def __init__(self, issuer: LocalIssuer, **given: Json) -> None:
        self.issuer = issuer
        self.now = time.time()
        self.is_down = False
        self.supervisor = Supervisor()
        known = {"audience": (AUDIENCE,), "name": "corp", **given}
        self.verifier = JwtVerifier(
            [OidcSettings(issuer.url, **known)],
            fetch=self._fetch,
            supervisor=self.supervisor,
            now=lambda: self.now,
        )

    async def _fetch(self, url: str) -> bytes:
        if self.is_down:
            raise FetchFailed("it is down")
        return self.issuer.document(url.removeprefix(self.issuer.url))

    async def verify(self, token: str) -> Principal | None:
        """Verify as an endpoint does: again after keys were waited for."""
        for _ in range(2):
            try:
                return self.verifier.verify(token.encode())
            except IssuerUnavailable as error:
                if error.wait is None:
                    raise
                await error.wait()
        return self.verifier.verify(token.encode())


@pytest.fixture
async def make() -> AsyncIterator[Any]:
    made: list[Verifier] = []

    async def start(issuer: LocalIssuer | None = None, **given: Json) -> Verifier:
        made.append(Verifier(issuer or LocalIssuer(), **given))
        made[-1].verifier.start()
        return made[-1]

    yield start
    for one in made:
        await one.supervisor.stop()


async def test_a_valid_token_is_its_subject_in_a_namespace_of_the_issuer(make: Any) -> None:
    one = await make()
    principal = await one.verify(one.issuer.token())
    assert principal == Principal("oidc:corp:alice", frozenset({Scope.A2A}), None, None)


@pytest.mark.parametrize("algorithm", ["RS256", "RS512", "PS256", "ES256", "EdDSA", "Ed25519"])
async def test_every_allowed_algorithm_is_verified(make: Any, algorithm: str) -> None:
    issuer = LocalIssuer()
    issuer.key = SigningKey("k", algorithm)
    issuer.keys = [issuer.key.public()]
    one = await make(issuer)
    assert (await one.verify(issuer.token())).name == "oidc:corp:alice"


async def test_algorithms_can_be_limited(make: Any) -> None:
    one = await make(algorithms=("ES256",))
    with pytest.raises(Unauthenticated):
        await one.verify(one.issuer.token())


async def test_a_key_that_is_for_another_algorithm_is_not_used(make: Any) -> None:
    issuer = LocalIssuer()
    issuer.keys = [issuer.key.public(alg="PS256")]
    one = await make(issuer)
    with pytest.raises(Unauthenticated):
        await one.verify(issuer.token())


async def test_scopes_come_from_the_claim_by_the_map_of_the_settings(make: Any) -> None:
    one = await make(scopes={"agents.call": ("a2a",), "agents.all": ("a2a", "tools")})
    token = one.issuer.token
    assert (await one.verify(token(scope="openid agents.call"))).scopes == {Scope.A2A}
    both = await one.verify(token(scope=["agents.all", 5, "admin"]))
    assert both.scopes == {Scope.A2A, Scope.TOOLS}
    for other in ({}, {"scope": "openid admin a2a"}, {"scope": {"agents.call": 1}}):
        assert (await one.verify(token(**other))).scopes == frozenset()


async def test_the_claims_of_subject_and_scopes_can_be_chosen(make: Any) -> None:
    one = await make(
        principal_claim="client_id",
        scope_claim="roles",
        scopes={"Caller": ("a2a",)},
        accounts=("default",),
        agents=("main",),
    )
    principal = await one.verify(one.issuer.token(client_id="robot", roles=["Caller"]))
    assert principal == Principal(
        "oidc:corp:robot", frozenset({Scope.A2A}), frozenset({"default"}), frozenset({"main"})
    )


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": None},
        {"aud": "other"},
        {"aud": [AUDIENCE, 5]},
        {"aud": {AUDIENCE: 1}},
        {"aud": []},
        {"aud": AUDIENCE + "/"},
        {"iss": None},
        {"iss": "https://other.example"},
        {"iss": ["http://127.0.0.1:1"]},
        {"exp": None},
        {"exp": "4102444800"},
        {"exp": True},
        {"exp": 1e300},
        {"exp": [4102444800]},
        {"exp": 1},
        {"nbf": 4102444800},
        {"nbf": "0"},
        {"nbf": False},
        {"iat": 4102444800},
        {"sub": None},
        {"sub": ""},
        {"sub": 5},
        {"sub": ["alice"]},
        {"sub": "a\nb"},
        {"sub": " alice"},
        {"sub": "a\u202eb"},
        {"sub": "x" * 257},
    ],
)
async def test_wrong_claims_are_refused(make: Any, claims: Json) -> None:
    one = await make()
    with pytest.raises(Unauthenticated):
        await one.verify(one.issuer.token(**claims))


async def test_the_signature_must_be_that_of_the_key_over_exactly_this_text(make: Any) -> None:
    one = await make()
    issuer, stranger = one.issuer, SigningKey("first")
    head, _, signature = issuer.token().rpartition(".")
    other, _, _ = issuer.token(sub="bob").rpartition(".")
    text = json.dumps(issuer.claims())
    for token in (
        stranger.sign(issuer.header(), issuer.claims()),
        f"{other}.{signature}",
        f"{head}.",
        f"{head}.{base64url(bytes(256))}",
        issuer.token(more="x" * 16_384),
        issuer.key.sign(issuer.header(), text[:-1] + ', "sub": "bob"}'),
        issuer.key.sign(issuer.header(), text[:-1] + ', "x": NaN}'),
    ):
        with pytest.raises(Unauthenticated):
            await one.verify(token)


async def test_an_audience_among_several_is_accepted(make: Any) -> None:
    one = await make()
    assert await one.verify(one.issuer.token(aud=["other", AUDIENCE])) is not None


async def test_clocks_may_differ_by_the_skew_of_the_settings(make: Any) -> None:
    one = await make(clock_skew_seconds=30.0)
    token = one.issuer.token
    assert await one.verify(token(exp=one.now - 29, nbf=one.now + 29))
    for late in ({"exp": one.now - 31}, {"nbf": one.now + 31}, {"iat": one.now + 31}):
        with pytest.raises(Unauthenticated):
            await one.verify(token(**late))


async def test_a_cached_token_is_refused_once_it_has_expired(make: Any) -> None:
    one = await make()
    token = one.issuer.token()
    assert await one.verify(token) is await one.verify(token)
    one.now += 600 + 60
    with pytest.raises(Unauthenticated):
        await one.verify(token)


async def test_tokens_of_a_new_key_are_accepted_and_of_the_old_one_no_longer(make: Any) -> None:
    one = await make()
    old = one.issuer.token()
    assert await one.verify(old)
    one.issuer.rotate("second")
    assert await one.verify(one.issuer.token())
    with pytest.raises(Unauthenticated):
        await one.verify(old)


async def test_unknown_keys_cause_one_fetch_in_a_while(make: Any) -> None:
    one = await make()
    await one.verify(one.issuer.token())
    before = one.issuer.asked.count("/keys")
    for number in range(20):
        with pytest.raises(Unauthenticated):
            await one.verify(one.issuer.token(header={"kid": f"unknown-{number}"}))
    assert one.issuer.asked.count("/keys") == before + 1


async def test_without_the_keys_of_its_issuer_a_token_is_unavailable_not_wrong(make: Any) -> None:
    issuer = LocalIssuer()
    one = Verifier(issuer)
    one.is_down = True
    one.verifier.start()
    with pytest.raises(IssuerUnavailable) as failed:
        await one.verify(issuer.token())
    assert failed.value.retry_after_s > 0
    one.is_down = False
    async with asyncio.timeout(240):
        while True:  # the loop tries again after a second
            try:
                assert await one.verify(issuer.token())
                break
            except IssuerUnavailable:
                await asyncio.sleep(0.05)
    await one.supervisor.stop()


async def test_keys_stay_in_use_while_the_issuer_is_down(make: Any) -> None:
    one = await make()
    await one.verify(one.issuer.token())
    one.is_down = True
    with pytest.raises(Unauthenticated):
        await one.verify(one.issuer.token(header={"kid": "unknown"}))
    assert await one.verify(one.issuer.token(sub="bob"))


async def test_a_token_without_a_key_id_needs_an_issuer_with_one_key(make: Any) -> None:
    issuer = LocalIssuer()
    other = SigningKey("other")
    one = await make(issuer)
    assert await one.verify(issuer.token(header={"kid": None}))
    issuer.keys = [issuer.key.public(), other.public()]
    with pytest.raises(Unauthenticated):  # an unknown id makes the verifier look again
        await one.verify(issuer.token(header={"kid": "unknown"}))
    with pytest.raises(Unauthenticated):
        await one.verify(issuer.token(header={"kid": None}))


def test_only_keys_that_can_check_signatures_are_read() -> None:
    good = SigningKey("good").public()
    small = {**good, "kid": "small", "n": base64url(b"\xff" * 64)}
    private = SigningKey("private").pair.as_dict(private=True)
    entries: list[Json] = [
        {"kty": "oct", "k": base64url(b"secret"), "kid": "shared"},
        {**good, "kid": "encryption", "use": "enc"},
        {**good, "kid": "signs", "key_ops": ["sign"]},
        small,
        {"kty": "RSA", "n": 5, "e": "AQAB", "kid": "number"},
        {"kty": "EC", "crv": "P-256", "x": "AQ", "y": "AQ", "kid": "no point"},
        {"kty": ["RSA"], "kid": "list"},
        {},
        None,
        "key",
        {**private, "kid": "private"},
        good,
    ]
    keys = read_keys(encode_json({"keys": entries}))
    assert sorted(map(str, keys)) == ["good", "private"]
    assert not keys["private"][0].key.is_private


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b'{"keys": {}}',
        b'{"keys": []}',
        b'{"keys": [], "keys": []}',
        b"{" * 5000,
        b'{"a":' * 5000,
        b"\xff",
        b'{"keys": [' + b"{}," * 200 + b"{}]}",
    ],
)
def test_a_broken_key_set_is_a_failed_fetch(document: bytes) -> None:
    with pytest.raises(FetchFailed):
        read_keys(document)


@pytest.mark.parametrize(
    "configuration",
    [
        {},
        {"issuer": "https://a.example"},
        {"issuer": "https://a.example/", "jwks_uri": "https://a.example/keys"},
        {"issuer": "https://evil.example", "jwks_uri": "https://a.example/keys"},
        {"issuer": "https://a.example", "jwks_uri": "http://a.example/keys"},
        {"issuer": "https://a.example", "jwks_uri": "http://127.0.0.1/keys"},
        {"issuer": "https://a.example", "jwks_uri": "file:///etc/passwd"},
        {"issuer": "https://a.example", "jwks_uri": 5},
        {"issuer": "https://a.example", "jwks_uri": "https://[bad"},
    ],
)
def test_a_configuration_of_another_issuer_or_without_safe_keys_is_refused(
    configuration: Json,
) -> None:
    with pytest.raises(FetchFailed):
        given = OidcSettings("https://a.example", (AUDIENCE,))
        read_keys_url(encode_json(configuration), given)


async def test_the_keys_are_at_the_configured_address_if_there_is_one() -> None:
    issuer, asked = LocalIssuer(), list[str]()

    async def fetch(url: str) -> bytes:
        asked.append(url)
        return issuer.document("/keys")

    given = OidcSettings(issuer.url, (AUDIENCE,), jwks_url="https://keys.example/all")
    assert list(await fetch_keys(given, fetch)) == ["first"]
    assert asked == ["https://keys.example/all"]


_ISSUER = LocalIssuer()


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400) | st.text(max_size=400).map(str.encode), st.data())
async def test_no_changed_token_is_accepted(noise: bytes, data: st.DataObject) -> None:
    one = Verifier(_ISSUER)
    one.verifier.start()
    try:
        token = _ISSUER.token()
        assert await one.verify(token)
        text = token.encode()
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, len(text)))
        changed = text[:start] + noise + text[end:]
        if changed == text:
            return
        with suppress(Unauthenticated, IssuerUnavailable):
            assert one.verifier.verify(changed) is None  # not even the form of a token
    finally:
        await one.supervisor.stop()


def encode_json(value: Json) -> bytes:
    return json.dumps(value).encode()


async def test_a_token_of_another_form_is_left_to_others(make: Any) -> None:
    one = await make()
    for text in ("opaque", "a.b", "a.b.c.d.e", ""):
        assert one.verifier.verify(text.encode()) is None
    with pytest.raises(Unauthenticated):
        await one.verify(f"{encode({})}.{encode({})}.")
