"""Wires the issuers of OpenID Connect: how their documents are fetched, and the verifier."""

import asyncio
from functools import partial
from urllib.parse import urlsplit

import httpx2

from openclaw_a2a.auth.jwt import FetchFailed, JwtVerifier, fetch_keys
from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.net.http_client import HttpClient
from openclaw_a2a.net.safe_resolver import (
    AddressNotAllowed,
    HostNotFound,
    HostResolver,
    find_addresses,
)
from openclaw_a2a.settings import OidcSettings

_TIMEOUT_S = 10.0
_MAX_DOCUMENT_BYTES = 256 * 1024
_PARALLEL_LOOKUPS = 4


def open_verifier(issuers: tuple[OidcSettings, ...], supervisor: Supervisor) -> JwtVerifier:
    """The verifier of all issuers; their keys are fetched from now on."""
    verifier = JwtVerifier(
        issuers, fetch=partial(fetch_document, issuers=issuers), supervisor=supervisor
    )
    verifier.start()
    return verifier


async def probe_issuers(issuers: tuple[OidcSettings, ...]) -> list[str | None]:
    """For each issuer, why its keys cannot be fetched; None when they can."""

    async def check(settings: OidcSettings) -> str | None:
        fetch = partial(fetch_document, issuers=issuers)
        try:
            await fetch_keys(settings, fetch)
        except FetchFailed as error:
            return str(error)
        return None

    return await asyncio.gather(*[check(one) for one in issuers])


async def fetch_document(
    url: str, *, issuers: tuple[OidcSettings, ...], timeout_s: float = _TIMEOUT_S
) -> bytes:
    """The document at an address of an issuer, whole within this time. Raises: FetchFailed."""
    # The operator has named the hosts of issuers. A host that only an issuer's document names must
    # not lead into the operator's network.
    named = {urlsplit(one).hostname for each in issuers for one in (each.issuer, each.jwks_url)}
    find = partial(
        find_addresses,
        resolve=HostResolver(_PARALLEL_LOOKUPS),
        allow_private=urlsplit(url).hostname in named,
    )
    try:
        # For all of it: the client's own timeout is one for each part that arrives.
        async with (
            asyncio.timeout(timeout_s),
            HttpClient(max_response_bytes=_MAX_DOCUMENT_BYTES, find_addresses=find) as client,
        ):
            response = await client.get(url, headers={"Accept": "application/json"})
    except TimeoutError:
        raise FetchFailed(f"{url} was not fetched within {timeout_s:g} seconds") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, HostNotFound, AddressNotAllowed) as error:
        raise FetchFailed(f"{url} cannot be fetched: {error or type(error).__name__}") from error
    if not response.is_success:
        raise FetchFailed(f"{url} answers with HTTP status {response.status_code}")
    return response.content
