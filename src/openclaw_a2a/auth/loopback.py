"""Access without a token, from this machine only.

A web page can make the user's browser send requests to loopback. So the address of the client is
not enough: the Host and Origin headers must name this gateway, and no proxy may be in between.
"""

import functools
import ipaddress
from collections.abc import Iterable, Mapping
from typing import Protocol
from urllib.parse import urlsplit

from openclaw_a2a.model.errors import NotAllowed

_PROXY_HEADERS = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host"})
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class ClientRequest(Protocol):
    """What authentication needs of a request."""

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        """The headers, by their lower-case names."""
        ...

    def client_host(self) -> str | None:
        """The address of the client; None when the server does not know it."""
        ...


def allowed_hosts(own_hosts: Iterable[str]) -> frozenset[str]:
    """The names that a Host or Origin header may have at this gateway."""
    return _LOOPBACK_NAMES | {host.lower() for host in own_hosts if host}


def is_loopback_client(request: ClientRequest) -> bool:
    """True when the client is known to be on this machine.

    A client without an address (a socket file, an embedding application, a test client) may speak
    for anybody, so it counts as remote.
    """
    client = request.client_host()
    return client is not None and _is_loopback(client)


def is_proxied(request: ClientRequest) -> bool:
    """True when a proxy says that it forwards the request of somebody else."""
    return not _PROXY_HEADERS.isdisjoint(request.headers)


def check_host_and_origin(request: ClientRequest, allowed: frozenset[str]) -> None:
    """Refuse requests of web pages, by their Host and Origin headers. Raises: NotAllowed."""
    host = _host_name(request.headers.get(b"host", b""))
    if host and host not in allowed:
        raise NotAllowed(f"the Host header says {host[:80]!r}, which is not this gateway")
    origin = request.headers.get(b"origin", b"").decode("latin-1")
    if not origin:
        return
    if origin == "null" or _origin_host(origin) not in allowed:
        raise NotAllowed(f"pages of {origin[:80]!r} may not call this gateway")


@functools.lru_cache(maxsize=1024)
def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


@functools.lru_cache(maxsize=1024)
def _host_name(header: bytes) -> str:
    authority = header.decode("latin-1")
    if authority.startswith("["):
        return authority[1:].partition("]")[0].lower()
    return authority.rpartition(":")[0].lower() if ":" in authority else authority.lower()


def _origin_host(origin: str) -> str:
    try:
        return (urlsplit(origin).hostname or "").lower()
    except ValueError:
        return ""
