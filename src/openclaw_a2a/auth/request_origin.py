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
_MAX_PORT = 65535
_MAX_KNOWN = 64
_NO_PORT = 0
# A name, an IPv4 or an IPv6 address, and a port. Nothing else: what is read in two ways by two
# programs (user@host, several ports) names this gateway for one of them only.
_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9_.-]+))(?::([0-9]{1,5}))?")
_ORIGIN = re.compile(r"(https?)://([^/?#@\\]+)", re.IGNORECASE)

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Address = tuple[str, int]
"""The name and the port of a server, in their usual spelling."""


class ClientRequest(Protocol):
    """What authentication needs of a request."""

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        """The headers, by their lower-case names."""
        ...

    def client_host(self) -> str | None:
        """The address of the client; None when the server does not know it."""
        ...

    def server_port(self) -> int | None:
        """The port at which the request came in; None when the server does not know it."""
        ...

    def has_repeated(self, name: bytes) -> bool:
        """True when a header comes in several lines."""
        ...

    def http_version(self) -> str:
        """The version of HTTP, such as 1.1."""
        ...


def is_loopback_client(request: ClientRequest) -> bool:
    """True when the client is known to be on this machine.

    A client without an address (a socket file, an embedding application, a test client) may speak
    for anybody, so it counts as remote.
    """
    client = request.client_host()
    return client is not None and _is_loopback(client)


def is_proxied(request: ClientRequest) -> bool:
    """True when a proxy says that it forwards the request of somebody else."""
    # Behind a proxy on this machine every caller has a loopback address.
    return not PROXY_HEADERS.isdisjoint(request.headers)


def parse_ip_address(text: str | None) -> IpAddress | None:
    """The IP address; None for anything else. A server of both families names IPv4 in IPv6."""
    try:
        address = ipaddress.ip_address(text or "")
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


class TrustedProxies:
    """The proxies whose headers are believed, by their addresses and networks."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        self._networks = tuple(ipaddress.ip_network(one, strict=False) for one in networks)

    def is_trusted(self, address: str | None) -> bool:
        """True for the address of one of the proxies."""
        if not self._networks:
            return False
        parsed = parse_ip_address(address)
        return parsed is not None and any(parsed in network for network in self._networks)

    def client_address(self, request: ClientRequest) -> str | None:
        """The address of the client: that of the connection, or what trusted proxies say it is.

        Each proxy appends the address that it was called from to `X-Forwarded-For`. The last one
        that is not a trusted proxy is the client's; what stands before it, the client wrote.
        """
        client = request.client_host()
        if not self.is_trusted(client):
            return client
        said = request.headers.get(b"x-forwarded-for", b"").decode("latin-1").split(",")
        for text in reversed(said):
            hop = text.strip()
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
        self._names = _LOOPBACK_NAMES | {_normal_name(host)}
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

        Who shows a token may name another port as Host: a tunnel or a mapped port leaves the header
        as it is, and a page has no token.
        """
        # A page can make its own name point to 127.0.0.1 (DNS rebinding); the browser then sends
        # that name as Host. Programs that send neither header are not browsers.
        host, origin = request.headers.get(b"host"), request.headers.get(b"origin")
        port = request.server_port()
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

    def _names_us(self, address: Address | None, port: int | None) -> bool:
        if address is None:
            return False
        name, given = address
        if given == _NO_PORT:
            return name in self._names or any(name == public for public, _ in self._public)
        return (name in self._names and (given == port or port is None)) or address in self._public


def _shown(header: bytes) -> str:
    return repr(header.decode("latin-1")[:80])


@functools.lru_cache(maxsize=1024)
def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _host_address(header: bytes) -> Address | None:
    # Browsers name the port, unless it is the usual one. Simple programs leave it out.
    return _parse_authority(header.decode("latin-1"), _NO_PORT)


def _origin_address(header: bytes) -> Address | None:
    found = _ORIGIN.fullmatch(header.decode("latin-1"))
    return None if found is None else _parse_authority(found[2], _PORTS[found[1].lower()])


def _url_address(url: str) -> Address | None:
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return _parse_authority(parts.netloc, _PORTS.get(parts.scheme, 0))


def _parse_authority(authority: str, default_port: int) -> Address | None:
    """The name and port that a header says; None when it is no clear spelling of one."""
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        return None
    port = int(found[3]) if found[3] else default_port
    try:
        name = str(ipaddress.IPv6Address(found[1])) if found[1] else _normal_name(found[2])
    except ValueError:
        return None
    return (name, port) if name and (port or not found[3]) and port <= _MAX_PORT else None


def _normal_name(name: str) -> str:
    """The name in lower case and without the dot at its end, or an address as it is usual."""
    name = name.lower().removesuffix(".")
    try:
        return str(ipaddress.ip_address(name.strip("[]")))
    except ValueError:
        return name
