"""Connections to targets: an address that only a caller named is checked, a configured one is not.

The official client takes an `httpx.AsyncClient`. Ours is built on httpx2 (`net/http_client`), so an
httpx transport hands every request over to its transport: one place bounds and checks everything.
"""

import logging
import ssl
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, cast

import httpx
import httpx2
import msgspec

from openclaw_a2a.net.http_client import (
    CONNECT_S,
    MAX_RESPONSE_BYTES,
    BoundedStream,
    ResponseEncoded,
    ResponseTooLarge,
    bound_response,
    open_transport,
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
        resolver = resolve or HostResolver(_PARALLEL_LOOKUPS)
        tls = httpx2.create_ssl_context()
        anywhere = partial(_find, resolve=resolver, allow_private=True)
        allowed = partial(_find, resolve=resolver, allow_private=policy.allow_private_targets)

        def connector(transport: httpx2.AsyncBaseTransport, find: FindAddresses) -> Connector:
            client = httpx.AsyncClient(
                transport=_HttpxTransport(transport, limit),
                headers={"Accept-Encoding": "identity"},
                timeout=httpx.Timeout(None, connect=CONNECT_S, pool=CONNECT_S),
                follow_redirects=False,
                trust_env=False,
            )
            return Connector(client, find, tls, limit)

        # HTTP leaves the names of configured targets to the system; gRPC always needs addresses.
        self._configured = connector(open_transport(tls), anywhere)
        self._named_by_caller = connector(open_transport(tls, allowed), allowed)

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


class _HttpxTransport(httpx.AsyncBaseTransport):
    """Sends the requests of an httpx client over a transport of httpx2, with bounded answers."""

    def __init__(self, transport: httpx2.AsyncBaseTransport, limit: int) -> None:
        self._transport = transport
        self._limit = limit

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request; errors become the httpx errors of the same name."""
        extensions = dict(request.extensions)
        if _connection_log.isEnabledFor(logging.DEBUG):
            extensions["trace"] = _hide_answer
        sent = httpx2.Request(
            request.method,
            str(request.url),
            headers=request.headers.raw,
            content=await request.aread(),
            extensions=extensions,
        )
        try:
            response = await self._transport.handle_async_request(sent)
            try:
                bound_response(response, self._limit, _ResponseStream)
            except httpx2.ReadError:
                await response.aclose()
                raise
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise _httpx_error(error) from error.__cause__
        return httpx.Response(
            response.status_code,
            headers=response.headers.raw,
            stream=cast("_ResponseStream", response.stream),
            extensions={
                key: value
                for key, value in response.extensions.items()
                if key in ("http_version", "reason_phrase")
            },
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()


_connection_log = logging.getLogger("httpcore2.http11")


async def _hide_answer(event: str, fields: dict[str, Any]) -> None:
    """Keep answers out of debug lines: a peer may repeat credentials in its headers.

    httpcore2 calls this before it logs the same fields. A level of its logger would also change the
    log of the program that uses us.
    """
    if event.endswith(".complete"):
        fields.clear()


class _ResponseStream(BoundedStream, httpx.AsyncByteStream):
    """The body for the httpx client: bounded, and with the errors of httpx."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._inner:
                yield self._count(chunk)
        except httpx2.HTTPError as error:
            raise _httpx_error(error) from error.__cause__


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
