"""How much of an answer is read, and in which form."""

import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import httpx
import msgspec

from openclaw_a2a.net.safe_resolver import HostResolver, ResolveHost, find_addresses
from openclaw_a2a.ports import DeliveryFailed
from openclaw_a2a.remote.config import Policy
from openclaw_a2a.remote.targets import Target, not_public

CONNECT_S = 10.0
MOST_BYTES = 64 * 1024 * 1024
"""How much of one answer is read, unless said otherwise."""


class AnswerTooLarge(httpx.ReadError):
    """The peer sent more than we read of one answer."""


class AnswerUnreadable(httpx.ReadError):
    """The peer sent an answer in a form that we did not ask for."""


class _BoundedStream(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream, limit: int) -> None:
        self._stream = stream
        self._left = limit
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._left -= len(chunk)
            if self._left < 0:
                raise AnswerTooLarge(f"the answer is larger than {self._limit} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


class BoundedTransport(httpx.AsyncBaseTransport):
    """Another transport whose answers end with an error past a number of bytes."""

    def __init__(self, inner: httpx.AsyncBaseTransport, *, limit: int) -> None:
        self._inner = inner
        self._limit = limit

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request; what comes back is bounded."""
        response = await self._inner.handle_async_request(request)
        try:
            self._check(response)
        except httpx.ReadError:
            await response.aclose()
            raise
        if isinstance(response.stream, httpx.AsyncByteStream):
            response.stream = _BoundedStream(response.stream, self._limit)
        return response

    def _check(self, response: httpx.Response) -> None:
        # Packed answers are not asked for: a few bytes of them can become very many.
        coding = response.headers.get("content-encoding", "identity").strip().lower()
        if coding not in ("", "identity"):
            raise AnswerUnreadable(f"the answer is packed ({coding}), which was not asked for")
        length = response.headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._limit:
            raise AnswerTooLarge(
                f"the answer is larger than {self._limit} bytes: it has {length} bytes"
            )

    async def aclose(self) -> None:
        """Close the transport below."""
        await self._inner.aclose()


Find = Callable[[str, int], Awaitable[list[str]]]
"""The IP addresses to connect to for a host. Raises: RemoteFailure, httpx.ConnectError."""

_LOOK_UPS = 8
_PORTS = {"http": 80, "https": 443}


class Connector(msgspec.Struct, frozen=True):
    """One way to peers: over HTTP with `client`, over anything else to what `find` gives."""

    client: httpx.AsyncClient
    find: Find
    trusted: ssl.SSLContext
    limit: int
    """How much of one answer is read."""


class TargetConnections:
    """What the peers of one tool are reached with; `async with` it, or close it.

    Answers are bounded, redirects are not followed, and proxies of the environment are not used.
    There is no read deadline: the call that it serves has one.
    """

    def __init__(
        self, policy: Policy, *, limit: int = MOST_BYTES, resolve: ResolveHost | None = None
    ) -> None:
        # Its lines for debugging hold the headers of answers, in which a peer may repeat
        # credentials.
        logging.getLogger("httpcore").setLevel(logging.INFO)
        look_up = resolve or HostResolver(_LOOK_UPS)
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
        self._configured = Connector(_client(plain, limit), anywhere, trusted, limit)
        self._named = Connector(_client(checked, limit), allowed, trusted, limit)

    def connector_for(self, target: Target) -> Connector:
        """The way to a target."""
        return self._named if target.is_callers else self._configured

    async def close(self) -> None:
        """Let go of all connections."""
        await self._configured.client.aclose()
        await self._named.client.aclose()

    async def __aenter__(self) -> "TargetConnections":
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


async def _find(host: str, port: int, *, resolve: ResolveHost, allow_private: bool) -> list[str]:
    found = await find_addresses(host, port, resolve=resolve, allow_private=allow_private)
    if not isinstance(found, DeliveryFailed):
        return found
    if found.is_final:
        raise not_public(host, found.reason)
    raise httpx.ConnectError(found.reason)
