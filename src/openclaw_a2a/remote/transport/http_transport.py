"""Connections to targets: an address that only a caller named is checked, a configured one is not.

The official client takes an `httpx.AsyncClient`. Ours is built on httpx2 (`net/http_client`), so an
httpx transport hands every request over to it: one client bounds and checks everything.
"""

import logging
import ssl
from collections.abc import AsyncIterator
from functools import partial

import httpx
import httpx2
import msgspec

from openclaw_a2a.net.http_client import (
    CONNECT_S,
    MAX_RESPONSE_BYTES,
    HttpClient,
    ResponseEncoded,
    ResponseTooLarge,
)
from openclaw_a2a.net.safe_resolver import (
    AddressNotAllowed,
    FindAddresses,
    HostNotFound,
    HostResolver,
    ResolveHost,
    find_addresses,
)
from openclaw_a2a.remote.config import Policy
from openclaw_a2a.remote.targets import Target, private_address_error

_PARALLEL_LOOKUPS = 8


class AnswerTooLarge(httpx.ReadError):
    """The peer sent more than is read of one answer."""


class AnswerUnreadable(httpx.ReadError):
    """The peer sent an answer in a form that was not asked for."""


class Connector(msgspec.Struct, frozen=True):
    """How to connect to a target: `client` for HTTP, `find` and `tls` for other transports.

    `find` gives the addresses of a host and port. Raises: RemoteFailure, httpx.ConnectError.
    """

    client: httpx.AsyncClient
    find: FindAddresses
    tls: ssl.SSLContext
    max_response_bytes: int


class TargetConnections:
    """The connections of one tool; use it with `async with`, or close it.

    There is no read deadline: each call has a deadline of its own.
    """

    def __init__(
        self, policy: Policy, *, limit: int = MAX_RESPONSE_BYTES, resolve: ResolveHost | None = None
    ) -> None:
        # Its debug lines have the headers of answers, in which a peer may repeat credentials.
        logging.getLogger("httpcore2").setLevel(logging.INFO)
        resolver = resolve or HostResolver(_PARALLEL_LOOKUPS)
        tls = httpx2.create_ssl_context()
        anywhere = partial(_find, resolve=resolver, allow_private=True)
        allowed = partial(_find, resolve=resolver, allow_private=policy.allow_private_targets)
        self._configured = Connector(
            _httpx_client(HttpClient(tls=tls, max_response_bytes=limit)), anywhere, tls, limit
        )
        checked = HttpClient(tls=tls, max_response_bytes=limit, find_addresses=allowed)
        self._named_by_caller = Connector(_httpx_client(checked), allowed, tls, limit)

    def connector_for(self, target: Target) -> Connector:
        """How to connect to this target."""
        return self._named_by_caller if target.is_caller_named else self._configured

    async def close(self) -> None:
        """Close all connections."""
        await self._configured.client.aclose()
        await self._named_by_caller.client.aclose()

    async def __aenter__(self) -> "TargetConnections":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _httpx_client(client: HttpClient) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=_HttpxTransport(client),
        headers={"Accept-Encoding": "identity"},
        timeout=httpx.Timeout(None, connect=CONNECT_S, pool=CONNECT_S),
        follow_redirects=False,
        trust_env=False,
    )


class _HttpxTransport(httpx.AsyncBaseTransport):
    """Sends the requests of an httpx client with our own HTTP client."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request; errors become the httpx errors of the same name."""
        try:
            response = await self._client.send(
                httpx2.Request(
                    request.method,
                    str(request.url),
                    headers=request.headers.raw,
                    content=await request.aread(),
                    extensions=dict(request.extensions),
                ),
                stream=True,
            )
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise _httpx_error(error) from error.__cause__
        return httpx.Response(
            response.status_code,
            headers=response.headers.raw,
            stream=_ResponseStream(response),
            extensions={
                key: value
                for key, value in response.extensions.items()
                if key in ("http_version", "reason_phrase")
            },
        )

    async def aclose(self) -> None:
        """Close the client."""
        await self._client.aclose()


class _ResponseStream(httpx.AsyncByteStream):
    def __init__(self, response: httpx2.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.aiter_raw():
                yield chunk
        except httpx2.HTTPError as error:
            raise _httpx_error(error) from error.__cause__

    async def aclose(self) -> None:
        await self._response.aclose()


def _httpx_error(error: Exception) -> Exception:
    """The httpx error for an httpx2 error: both libraries name their errors alike."""
    if isinstance(error, ResponseTooLarge):
        return AnswerTooLarge(str(error))
    if isinstance(error, ResponseEncoded):
        return AnswerUnreadable(str(error))
    for kind in type(error).__mro__:
        found = getattr(httpx, kind.__name__, None)
        if isinstance(found, type) and issubclass(found, httpx.HTTPError | httpx.InvalidURL):
            return found(str(error))
    return httpx.TransportError(str(error))


async def _find(host: str, port: int, *, resolve: ResolveHost, allow_private: bool) -> list[str]:
    try:
        return await find_addresses(host, port, resolve=resolve, allow_private=allow_private)
    except HostNotFound as error:
        raise httpx.ConnectError(str(error)) from error
    except AddressNotAllowed as error:
        raise private_address_error(host, str(error)) from error
