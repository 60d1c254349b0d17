"""Where a request comes from: from this machine or not, through which proxy, from which web page.

A web page can make the user's browser send requests to loopback. So without credentials the address
of the client is not enough: the Host and Origin headers must name this gateway, and no proxy may be
in between.
"""

import functools
import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Protocol
from urllib.parse import urlsplit

from openclaw_a2a.model.errors import NotAllowed
from openclaw_a2a.model.url_policy import NO_PORT, Authority, normal_host, parse_authority
from openclaw_a2a.settings import is_loopback

# One is enough, and each proxy sends others.
PROXY_HEADERS = frozenset(
    {
        b"forwarded",
        b"via",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-proto",
        b"x-real-ip",
    }
)
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_PORTS = {"http": 80, "https": 443}
_MAX_KNOWN = 64
_ORIGIN = re.compile(r"(https?)://([^/?#@\\]+)", re.IGNORECASE)

# Cached: it is called for each request, with the same few addresses.
_is_loopback = functools.lru_cache(maxsize=1024)(is_loopback)

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class CredentialFacts(Protocol):
    """What authentication derived from the head of a request alone.

    Requests with an equal head on one connection share it. Nothing in it depends on which
    credentials are valid: that is looked up for each request.
    """

    token_digest: bytes | None
    """The digest of the token in the head, once it is known that there is exactly one."""
    origin_accepted_by: object
    """The authenticator that has accepted the origin of the head. For peers that is this machine's
    own user; for tools any origin but a web page or the operator.
    """


class ClientRequest(Protocol):
    """What authentication needs of a request."""

    @property
    def facts(self) -> CredentialFacts:
        """What is known about its head."""
        ...

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        """The headers, by their lower-case names."""
        ...

    def header_items(self, name: bytes) -> list[str]:
        """The items of a comma-separated header, which may come in several lines."""
        ...

    @property
    def client_host(self) -> str | None:
        """The address of the client; None when the server does not know it."""
        ...

    @property
    def server_port(self) -> int | None:
        """The port at which the request came in; None when the server does not know it."""
        ...

    def has_repeated(self, *names: bytes) -> bool:
        """True when one of these headers comes in several lines."""
        ...

    @property
    def http_version(self) -> str:
        """The version of HTTP, such as 1.1."""
        ...


def is_loopback_client(request: ClientRequest) -> bool:
    """True when the client is known to be on this machine.

    A client without an address (a socket file, an embedding application, a test client) may act
    for any caller, so it counts as remote.
    """
    client = request.client_host
    return client is not None and _is_loopback(client)


def is_proxied(request: ClientRequest) -> bool:
    """True when headers say that a proxy forwards the request."""
    # Behind a proxy on this machine every caller has a loopback address.
    return not PROXY_HEADERS.isdisjoint(request.headers)


def parse_ip_address(text: str | None) -> IpAddress | None:
    """The IP address; None for anything else. IPv4 in IPv6 (dual-stack servers) becomes IPv4."""
    try:
        address = ipaddress.ip_address(text or "")
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


class TrustedProxies:
    """The proxies whose headers are trusted, by their addresses and networks."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        self._networks = tuple(ipaddress.ip_network(one, strict=False) for one in networks)
        self.are_configured = bool(self._networks)

    def is_trusted(self, address: str | None) -> bool:
        """True for the address of one of the proxies."""
        if not self._networks:
            return False
        parsed = parse_ip_address(address)
        return parsed is not None and any(parsed in network for network in self._networks)

    def client_address(self, request: ClientRequest) -> str | None:
        """The address of the client: that of the connection, or what trusted proxies say it is.

        Each proxy appends the address that it was called from to `X-Forwarded-For`. The last one
        that is not a trusted proxy is the client's; the client wrote what precedes it.
        """
        client = request.client_host
        if not self.is_trusted(client):
            return client
        for hop in reversed(request.header_items(b"x-forwarded-for")):
            if parse_ip_address(hop) is None:
                break
            client = hop
            if not self.is_trusted(hop):
                break
        return client


class OwnAddresses:
    """The names and ports by which this gateway is reached.

    `host` is where it listens: that name and those of loopback count with the port at which a
    request came in. `urls` are its public addresses.
    """

    def __init__(self, host: str = "", urls: Iterable[str] = ()) -> None:
        self._names = _LOOPBACK_NAMES | {normal_host(host)}
        public = [_url_address(url) for url in urls]
        self._public = {address for address in public if address is not None}
        self.public_name = next(
            (name for name, _ in sorted(self._public) if not _is_loopback(name)), None
        )
        """A name by which other machines reach this gateway, if the settings have one."""
        self._known: set[tuple[bytes | None, bytes | None, int | None, bool]] = set()
        """Headers and ports that have passed; nearly all requests have the same."""

    def check(self, request: ClientRequest, *, shows_token: bool = False) -> None:
        """Refuse requests of web pages, by their Host and Origin headers. Raises: NotAllowed.

        A request with a token may name another port as Host: a tunnel or a mapped port does not
        change the header, and a page has no token.
        """
        # A page can make its own name point to 127.0.0.1 (DNS rebinding); the browser then sends
        # that name as Host. Programs that send neither header are not browsers.
        host, origin = request.headers.get(b"host"), request.headers.get(b"origin")
        # Our own server refuses these. Other servers pass them on, and the last would count here.
        if request.has_repeated(b"host", b"origin"):
            raise NotAllowed("the header host or origin comes twice; send each once")
        port = request.server_port
        known = (host, origin, port, shows_token)
        if known in self._known:
            return
        if host and not self._names_us(_host_address(host), None if shows_token else port):
            raise NotAllowed(
                f"the Host header says {_shown(host)}, which is not this gateway; if it is reached"
                " by that name and port, set server.publicBaseUrl"
            )
        # "null" is the origin of sandboxed frames and local files.
        if origin and not self._names_us(_origin_address(origin), port):
            raise NotAllowed(f"pages of {_shown(origin)} may not call this gateway")
        if len(self._known) < _MAX_KNOWN:
            self._known.add(known)

    def _names_us(self, address: Authority | None, port: int | None) -> bool:
        if address is None:
            return False
        name, given = address
        if given == NO_PORT:
            return name in self._names or any(name == public for public, _ in self._public)
        return (name in self._names and (given == port or port is None)) or address in self._public


def _shown(header: bytes) -> str:
    return repr(header.decode("latin-1")[:80])


def _host_address(header: bytes) -> Authority | None:
    # Browsers name the port, unless it is the usual one. Simple programs leave it out.
    return parse_authority(header.decode("latin-1"))


def _origin_address(header: bytes) -> Authority | None:
    found = _ORIGIN.fullmatch(header.decode("latin-1"))
    return None if found is None else parse_authority(found[2], _PORTS[found[1].lower()])


def _url_address(url: str) -> Authority | None:
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return parse_authority(parts.netloc, _PORTS.get(parts.scheme, 0))
