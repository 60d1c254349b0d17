"""The outgoing HTTP client: bounded answers, no redirects or proxies unless asked for.

Every HTTP request of the gateway is made with a client or a transport of this package: to
configured remote agents with the transport of `http1_transport`, all others with those of this
module. Importing it loads httpx2, which takes about 150 ms: modules on the way of
`openclaw-a2a up` import it where they first need it.
"""

import errno
import os
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import partial
from typing import Any

import httpx2

from openclaw_a2a.net.safe_resolver import FindAddresses

CONNECT_S = 10.0
MAX_RESPONSE_BYTES = 64 * 1024 * 1024
MAX_CONNECTIONS = 100

DEFAULT_PORTS = {"http": 80, "https": 443}


class ResponseTooLarge(httpx2.ReadError):
    """The body is larger than the client's limit."""


class ResponseEncoded(httpx2.ReadError):
    """The body is compressed, which was not asked for."""


class HttpClient(httpx2.AsyncClient):
    """An `httpx2.AsyncClient` that reads at most `max_response_bytes` of a response.

    With `find_addresses` it connects only to the addresses that this function returns for a host.
    Requests raise `ResponseTooLarge` and `ResponseEncoded` besides the errors of httpx2.
    """

    def __init__(
        self,
        *,
        base_url: str = "",
        headers: Mapping[str, str] | None = None,
        timeout: httpx2.Timeout | float | None = None,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        find_addresses: FindAddresses | None = None,
        use_proxies: bool = False,
    ) -> None:
        """Without `timeout` only connecting is limited, and the caller bounds the rest.

        `use_proxies` takes the proxies of the environment; never together with `find_addresses`,
        because a proxy would resolve the name again, elsewhere.
        """

        async def bound(response: httpx2.Response) -> None:
            bound_response(response, max_response_bytes)

        super().__init__(
            base_url=base_url,
            headers={"Accept-Encoding": "identity", **(headers or {})},
            timeout=httpx2.Timeout(None, connect=CONNECT_S, pool=CONNECT_S)
            if timeout is None
            else timeout,
            transport=None if use_proxies else open_transport(None, find_addresses),
            trust_env=use_proxies,
            follow_redirects=False,
            event_hooks={"response": [bound]},
        )


class SyncHttpClient(httpx2.Client):
    """The same for commands, which have no event loop."""

    def __init__(
        self,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: httpx2.Timeout | float = CONNECT_S,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        use_proxies: bool = False,
        follow_redirects: bool = False,
    ) -> None:
        super().__init__(
            headers={"Accept-Encoding": "identity", **(headers or {})},
            timeout=timeout,
            trust_env=use_proxies,
            follow_redirects=follow_redirects,
            event_hooks={"response": [partial(bound_response, limit=max_response_bytes)]},
        )


class _CheckedTransport(httpx2.AsyncBaseTransport):
    """Connects only to addresses that were found, and checked, for the host of a request.

    The name stays in the request: in its Host header, and as the name in the certificate.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport, find_addresses: FindAddresses) -> None:
        self._inner = inner
        self._find_addresses = find_addresses

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request to the first of the addresses that accepts a connection."""
        url = request.url
        host = url.raw_host.decode("ascii")
        addresses = await self._find_addresses(host, url.port or DEFAULT_PORTS.get(url.scheme, 0))
        timeouts: dict[str, float | None] = dict(request.extensions.get("timeout", {}))
        # One unreachable address must not use up the time of the others.
        timeouts["connect"] = (timeouts.get("connect") or CONNECT_S) / len(addresses)
        extensions = {**request.extensions, "timeout": timeouts, "sni_hostname": host}
        failure: httpx2.TransportError | None = None
        for address in addresses:
            attempt = httpx2.Request(
                request.method,
                url.copy_with(host=address),
                headers=request.headers,
                stream=request.stream,
                extensions=extensions,
            )
            try:
                return await self._inner.handle_async_request(attempt)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure = error
        raise failure or httpx2.ConnectError(f"{host} has no address")

    async def aclose(self) -> None:
        await self._inner.aclose()


def describe_connect_failure(error: BaseException) -> str:
    """Why connecting failed, in words: without error numbers and Python tuples."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLError):  # before the others: it is an OSError, too
            return str(getattr(seen, "verify_message", "") or seen.reason or seen)
        if isinstance(seen, socket.gaierror):
            return (seen.strerror or "the name is not known").lower()
        if isinstance(seen, OSError) and seen.errno is not None:
            # Event loops put the address where the reason should be.
            return os.strerror(seen.errno).lower()
        if isinstance(seen, (TimeoutError, httpx2.ConnectTimeout)):
            return os.strerror(errno.ETIMEDOUT).lower()
        seen = seen.__cause__ or seen.__context__
    return str(error) or type(error).__name__


def open_transport(
    tls: ssl.SSLContext | None, find_addresses: FindAddresses | None
) -> httpx2.AsyncBaseTransport:
    """The transport of a client, for senders that need neither cookies nor redirects.

    With `find_addresses` connections are neither limited nor kept.
    """
    verify = tls or httpx2.create_ssl_context()
    if find_addresses is None:
        limits = httpx2.Limits(max_connections=MAX_CONNECTIONS)
        return httpx2.AsyncHTTPTransport(verify=verify, limits=limits, trust_env=False)
    # Connections are not kept: the pool would share them between all names at one address, and a
    # kept connection would outlive the check of its address.
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    inner = httpx2.AsyncHTTPTransport(verify=verify, limits=limits, trust_env=False)
    return _CheckedTransport(inner, find_addresses)


def bound_response(response: httpx2.Response, limit: int) -> None:
    """Let at most `limit` bytes of the body be read.

    Raises: ResponseEncoded, ResponseTooLarge (by its headers; the response is not closed then).
    """
    # A few compressed bytes can become very many.
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise ResponseEncoded(f"the answer is compressed ({encoding}), which was not asked for")
    length = response.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit:
        raise ResponseTooLarge(f"the answer is larger than {limit} bytes: it has {length} bytes")
    response.stream = BoundedStream(response.stream, limit)


class BoundedStream(httpx2.AsyncByteStream, httpx2.SyncByteStream):
    """Counts what is read of a body, for either kind of client."""

    def __init__(self, inner: Any, limit: int) -> None:
        self._inner = inner
        self._limit = limit
        self._size = 0
        self._chunks: AsyncIterator[bytes]

    def _count(self, chunk: bytes) -> bytes:
        self._size += len(chunk)
        if self._size > self._limit:
            raise ResponseTooLarge(f"the answer is larger than {self._limit} bytes")
        return chunk

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._inner:
            yield self._count(chunk)

    # No generator: one that is left before its end is closed later, in a task of its own.
    def __aiter__(self) -> AsyncIterator[bytes]:
        self._chunks = aiter(self._inner)
        return self

    async def __anext__(self) -> bytes:
        return self._count(await anext(self._chunks))

    def close(self) -> None:
        """Close the body."""
        self._inner.close()

    async def aclose(self) -> None:
        """Close the body."""
        await self._inner.aclose()
