"""The ways to peers: the operator's are taken as they are, a caller's checked where they lead."""

import logging
import ssl
from collections.abc import Awaitable, Callable
from functools import partial

import httpx
import msgspec

from openclaw_a2a.outbound.bounds import CONNECT_S, MOST_BYTES, BoundedTransport
from openclaw_a2a.outbound.config import Policy
from openclaw_a2a.outbound.targets import Target, not_public
from openclaw_a2a.ports import Missed
from openclaw_a2a.runtime.addresses import Resolve, Resolver, find_addresses

Find = Callable[[str, int], Awaitable[list[str]]]
"""The IP addresses to connect to for a host. Raises: RemoteFailure, httpx.ConnectError."""

_LOOK_UPS = 8
_PORTS = {"http": 80, "https": 443}


class Reach(msgspec.Struct, frozen=True):
    """One way to peers: over HTTP with `client`, over anything else to what `find` gives."""

    client: httpx.AsyncClient
    find: Find
    trusted: ssl.SSLContext
    limit: int
    """How much of one answer is read."""


class Network:
    """What the peers of one tool are reached with; `async with` it, or close it.

    Answers are bounded, redirects are not followed, and proxies of the environment are not used.
    There is no read deadline: the call that it serves has one.
    """

    def __init__(
        self, policy: Policy, *, limit: int = MOST_BYTES, resolve: Resolve | None = None
    ) -> None:
        # Its lines for debugging hold the headers of answers, in which a peer may repeat
        # credentials.
        logging.getLogger("httpcore").setLevel(logging.INFO)
        look_up = resolve or Resolver(_LOOK_UPS)
        trusted = httpx.create_ssl_context()
        plain = httpx.AsyncHTTPTransport(
            verify=trusted, limits=httpx.Limits(max_connections=100), trust_env=False
        )
        # Kept connections would be shared by all names at one address.
        single = httpx.AsyncHTTPTransport(
            verify=trusted,
            limits=httpx.Limits(max_connections=100, max_keepalive_connections=0),
            trust_env=False,
        )
        anywhere = partial(_find, resolve=look_up, allow_private=True)
        allowed = partial(_find, resolve=look_up, allow_private=policy.allow_private_targets)
        checked = _CheckedTransport(single, allowed)
        self._configured = Reach(_client(plain, limit), anywhere, trusted, limit)
        self._named = Reach(_client(checked, limit), allowed, trusted, limit)

    def to(self, target: Target) -> Reach:
        """The way to a target."""
        return self._named if target.is_callers else self._configured

    async def close(self) -> None:
        """Let go of all connections."""
        await self._configured.client.aclose()
        await self._named.client.aclose()

    async def __aenter__(self) -> "Network":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _CheckedTransport(httpx.AsyncBaseTransport):
    """Another transport that connects to nothing but addresses that were found for the name.

    The name stays what the request is for: its Host, and whose certificate is asked for.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport, find: Find) -> None:
        self._inner = inner
        self._find = find

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request to the first of its addresses that can be reached."""
        url = request.url
        host = url.raw_host.decode("ascii")
        addresses = await self._find(host, url.port or _PORTS.get(url.scheme, 0))
        wait = {**request.extensions.get("timeout", {}), "connect": CONNECT_S / len(addresses)}
        extensions = {**request.extensions, "timeout": wait, "sni_hostname": host}
        reason: httpx.TransportError = httpx.ConnectError(f"{host} has no address")
        for address in addresses:
            there = httpx.Request(
                request.method,
                url.copy_with(host=address),
                headers=request.headers,
                stream=request.stream,
                extensions=extensions,
            )
            try:
                return await self._inner.handle_async_request(there)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                reason = error
        raise reason

    async def aclose(self) -> None:
        """Close the transport below."""
        await self._inner.aclose()


def _client(transport: httpx.AsyncBaseTransport, limit: int) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=BoundedTransport(transport, limit=limit),
        headers={"Accept-Encoding": "identity"},
        timeout=httpx.Timeout(None, connect=CONNECT_S, pool=CONNECT_S),
        follow_redirects=False,
        trust_env=False,
    )


async def _find(host: str, port: int, *, resolve: Resolve, allow_private: bool) -> list[str]:
    found = await find_addresses(host, port, resolve=resolve, allow_private=allow_private)
    if not isinstance(found, Missed):
        return found
    if found.is_final:
        raise not_public(host, found.reason)
    raise httpx.ConnectError(found.reason)
