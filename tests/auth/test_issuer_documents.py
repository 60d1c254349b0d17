"""Documents of issuers: whatever they hold, they are read, or the fetch has failed."""

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.auth.local_issuer import AUDIENCE, LocalIssuer, SigningKey
from tests.hostile_documents import documents, json_near

from openclaw_a2a.app.wiring.oidc import fetch_document
from openclaw_a2a.auth.jwt import FetchFailed, JwtVerifier, fetch_keys, read_keys, read_keys_url
from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.model.errors import IssuerUnavailable, Unauthenticated
from openclaw_a2a.settings import OidcSettings

Json = Any

ISSUER = LocalIssuer()
SETTINGS = OidcSettings(ISSUER.url, (AUDIENCE,), name="corp")
SETTINGS_ELSEWHERE = OidcSettings("https://issuer.example", (AUDIENCE,), name="other")
KEYS = {name: SigningKey(name, name) for name in ("RS256", "ES256", "EdDSA")}
TOKENS = [ISSUER.token(header={"alg": name, "kid": name}, key=key) for name, key in KEYS.items()]
PUBLISHED: list[dict[str, Json]] = [key.public() for key in KEYS.values()]
VALUES = ["RSA", "EC", "OKP", "oct", "sig", "verify", "RS256", "P-256", "Ed25519", "AQAB"]
VALUES += [key[name] for key in PUBLISHED for name in ("n", "x", "y") if name in key]
MEMBERS = ["kty", "kid", "use", "key_ops", "alg", "n", "e", "crv", "x", "y", "d", "k"]
KEY = st.builds(
    lambda known, changed: {**known, **changed},
    st.sampled_from([{}, *PUBLISHED]),
    st.dictionaries(
        st.sampled_from(MEMBERS), json_near(MEMBERS, VALUES) | st.sampled_from(VALUES), max_size=4
    ),
)
KEY_SET = st.fixed_dictionaries({"keys": st.lists(KEY, max_size=4)}) | json_near(["keys", *MEMBERS])
URLS = [ISSUER.url, f"{ISSUER.url}/keys", "https://keys.example/a", "https://[", "https://\u2100"]
CONFIGURATION = st.fixed_dictionaries(
    {"issuer": st.just(ISSUER.url)}, optional={"jwks_uri": st.sampled_from(URLS) | st.text()}
) | json_near(["issuer", "jwks_uri"], URLS)


@given(documents(CONFIGURATION))
def test_any_configuration_names_an_address_of_keys_or_is_refused(document: bytes) -> None:
    with suppress(FetchFailed):
        url = read_keys_url(document, SETTINGS)
        assert url.startswith(("https://", ISSUER.url))


@given(documents(KEY_SET))
def test_any_key_set_has_keys_or_is_refused(document: bytes) -> None:
    with suppress(FetchFailed):
        for group in read_keys(document).values():
            assert all(isinstance(one.fits(name), bool) for one in group for name in KEYS)


@pytest.mark.parametrize(
    "unknown",
    [
        {"kty": "OKP", "crv": "X448"},
        {"kty": "EC", "crv": "brainpoolP256r1"},
        {"kty": "EC", "crv": "Ed25519"},
        {"kty": "EC", "crv": ["P-256"]},
    ],
)
def test_a_key_on_an_unknown_curve_does_not_hide_the_others(unknown: Json) -> None:
    point = {name: PUBLISHED[1][name] for name in ("x", "y")}
    keys = [{**point, **unknown, "kid": "unknown"}, *PUBLISHED]
    assert read_keys(json.dumps({"keys": keys}).encode()).keys() == KEYS.keys()


@given(
    st.text(st.characters(), max_size=20), st.sampled_from(["", ":1", ":99999", ":x", "@[", "]"])
)
@example(path="\ud800", more="")
async def test_any_address_of_keys_in_our_network_is_refused(path: str, more: str) -> None:
    async def fetch(url: str) -> bytes:
        if url == SETTINGS_ELSEWHERE.discovery_url:
            keys_url = f"https://127.0.0.1{more}/{path}"
            document = {"issuer": SETTINGS_ELSEWHERE.issuer, "jwks_uri": keys_url}
            return json.dumps(document).encode()
        return await fetch_document(url, issuers=(SETTINGS_ELSEWHERE,))

    # Nothing is connected to: the document of an issuer must not lead into our own network.
    with pytest.raises(FetchFailed):
        await fetch_keys(SETTINGS_ELSEWHERE, fetch)


async def test_a_document_that_drips_in_is_given_up_at_its_deadline() -> None:
    """Each byte came in time, so the whole never had to."""

    ended = asyncio.Event()

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
            while not writer.is_closing():
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.01)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        ended.set()

    async with await asyncio.start_server(drip, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        named = OidcSettings(url, (AUDIENCE,), name="slow")
        async with asyncio.timeout(240):
            with pytest.raises(FetchFailed, match="within"):
                await fetch_document(f"{url}/keys", issuers=(named,), timeout_s=2)
            await ended.wait()


@given(documents(KEY_SET), documents(CONFIGURATION))
async def test_no_document_of_an_issuer_breaks_the_check_of_a_token(
    keys: bytes, configuration: bytes
) -> None:
    async def fetch(url: str) -> bytes:
        return configuration if url.endswith("configuration") else keys

    supervisor = Supervisor()
    verifier = JwtVerifier([SETTINGS], fetch=fetch, supervisor=supervisor)
    verifier.start()
    try:
        for token in TOKENS:
            with suppress(Unauthenticated):
                try:
                    verifier.verify(token.encode())
                except IssuerUnavailable as error:
                    assert error.wait is not None or error.retry_after_s
                    if error.wait is not None:
                        await error.wait()
                    with suppress(IssuerUnavailable):
                        assert verifier.verify(token.encode()) is not None
    finally:
        await supervisor.stop()
