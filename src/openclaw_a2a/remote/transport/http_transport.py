"""HTTP to targets: a pool of connections for each configured one, checked addresses for others."""

import logging
import ssl
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx2
import msgspec

from openclaw_a2a.net.http1_transport import Http1Transport
from openclaw_a2a.net.http_client import (
    CONNECT_S,
    MAX_RESPONSE_BYTES,
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
_MAX_CONNECTIONS = 1000
"""For one target: each open watch has one."""

_USER_AGENT = {"user-agent": "openclaw-a2a", "accept-encoding": "identity"}
# No read deadline: each call has a deadline of its own.
_TIMEOUTS = {"connect": CONNECT_S, "pool": CONNECT_S, "read": None, "write": None}


class PeerHttp:
    """Requests to a target. Answers are bounded; redirects, cookies and proxies are not used.

    Every request raises the errors of httpx2, and RemoteFailure for an address that is not allowed.
    """

    def __init__(self, transport: httpx2.AsyncBaseTransport, limit: int) -> None:
        self._transport = transport
        self._limit = limit

    async def request(
        self,
        method: str,
        url: httpx2.URL | str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        limit: int | None = None,
    ) -> tuple[httpx2.Response, bytes]:
        """Make a request; the response and its whole body, which may have a limit of its own."""
        async with self.open(method, url, headers, body, limit=limit) as response:
            return response, b"".join([chunk async for chunk in body_of(response)])

    @asynccontextmanager
    async def open(
        self,
        method: str,
        url: httpx2.URL | str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        limit: int | None = None,
    ) -> AsyncGenerator[httpx2.Response]:
        """Make a request; the response, to be read within the context."""
        extensions: dict[str, Any] = {"timeout": _TIMEOUTS}
        if _connection_log.isEnabledFor(logging.DEBUG):
            extensions["trace"] = _hide_answer
        request = httpx2.Request(
            method, url, headers={**_USER_AGENT, **headers}, content=body, extensions=extensions
        )
        response = await self._transport.handle_async_request(request)
        try:
            response.request = request
            bound_response(response, min(limit or self._limit, self._limit))
            yield response
        finally:
            await response.aclose()

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.aclose()


def body_of(response: httpx2.Response) -> AsyncIterable[bytes]:
    """The body as it comes.

    Not through the response, which would look for encodings that were refused already.
    """
    return cast("AsyncIterable[bytes]", response.stream)


def status_error(response: httpx2.Response, body: bytes) -> httpx2.HTTPStatusError:
    """The error for a response with a status of failure, whose body was read."""
    status = response.status_code
    read = httpx2.Response(status, headers=response.headers, content=body)
    return httpx2.HTTPStatusError(f"HTTP status {status}", request=response.request, response=read)


_connection_log = logging.getLogger("httpcore2.http11")


async def _hide_answer(event: str, fields: dict[str, Any]) -> None:
    """Keep answers out of debug lines: a peer may repeat credentials in its headers.

    httpcore2 calls this before it logs the same fields. A level of its logger would also change the
    log of the program that uses us.
    """
    if event.endswith(".complete"):
        fields.clear()


class Connector(msgspec.Struct, frozen=True):
    """How to connect to a target: `http`, and `find` and `tls` for other transports.

    `find` gives the addresses of a host and port. Raises: RemoteFailure, httpx2.ConnectError.
    """

    http: PeerHttp
    find: FindAddresses
    tls: ssl.SSLContext
    max_response_bytes: int


class TargetConnections:
    """The connections of one tool; use it with `async with`, or close it."""

    def __init__(
        self, policy: Policy, *, limit: int = MAX_RESPONSE_BYTES, resolve: ResolveHost | None = None
    ) -> None:
        self._resolve = resolve or HostResolver(_PARALLEL_LOOKUPS)
        self._tls = httpx2.create_ssl_context()
        self._limit = limit
        self._configured: dict[str, Connector] = {}
        # Without a pool: each connection is checked, and none is kept.
        allowed = self._finder(allow_private=policy.allow_private_targets)
        self._named_by_caller = self._connector(open_transport(self._tls, allowed), allowed)

    def connector_for(self, target: Target) -> Connector:
        """How to connect to this target."""
        if target.is_caller_named:
            return self._named_by_caller
        # A pool for each: the streams of one target must not use up the connections of another.
        url = target.base_url
        if url not in self._configured:
            # HTTP leaves the names of configured targets to the system; gRPC needs addresses.
            self._configured[url] = self._connector(
                Http1Transport(self._tls, max_connections=_MAX_CONNECTIONS),
                self._finder(allow_private=True),
            )
        return self._configured[url]

    async def close(self) -> None:
        """Close all connections."""
        for connector in (*self._configured.values(), self._named_by_caller):
            await connector.http.close()

    async def __aenter__(self) -> "TargetConnections":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _connector(self, transport: httpx2.AsyncBaseTransport, find: FindAddresses) -> Connector:
        return Connector(PeerHttp(transport, self._limit), find, self._tls, self._limit)

    def _finder(self, *, allow_private: bool) -> FindAddresses:
        async def find(host: str, port: int) -> list[str]:
            try:
                return await find_addresses(
                    host, port, resolve=self._resolve, allow_private=allow_private
                )
            except HostNotFound as error:
                raise httpx2.ConnectError(str(error)) from error
            except AddressNotAllowed as error:
                raise private_address_error(host, str(error)) from error

        return find
