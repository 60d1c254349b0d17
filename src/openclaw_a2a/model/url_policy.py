"""Rules for addresses: unambiguous spellings of hosts, and which hosts are public.

Public are those of the open internet, none of the operator's own network; `net/safe_resolver`
applies it to every connection.
"""

import ipaddress
import re
from urllib.parse import urlsplit

_NUMERIC = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+))*\.?", re.IGNORECASE)
_LOCAL_NAMES = (".localhost", ".local", ".internal", ".home.arpa")
_EMBEDDED_V4 = (
    ipaddress.ip_network("64:ff9b::/96"),  # NAT64
    ipaddress.ip_network("::/96"),
)
_OPEN_V6 = ipaddress.ip_network("2000::/3")
"""The only IPv6 range of the open internet; all others are local."""
_LOCAL_V4 = (
    ipaddress.ip_network("192.0.0.0/24"),  # protocol assignments, and a cloud's metadata
    ipaddress.ip_network("192.88.99.0/24"),  # the nearest 6to4 relay
    ipaddress.ip_network("168.63.129.16/32"),  # a cloud's metadata, on an address of the internet
)
_HOST = re.compile(r"[a-z0-9_.-]+|\[[0-9a-f:.]+\]", re.IGNORECASE)
"""A host in the only spelling that all programs read alike."""
# A name, an IPv4 or an IPv6 address, and a port. Nothing else: what is read in two ways by two
# programs (user@host, several ports) names one host for one of them only.
_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9_.-]+))(?::([0-9]{1,5}))?")
_MAX_PORT = 65535
NO_PORT = 0

Authority = tuple[str, int]
"""The name and the port of a server, in their usual spelling; `NO_PORT` when it names none."""


def parse_authority(text: str, default_port: int = NO_PORT) -> Authority | None:
    """The name and port in a text; None when its spelling is ambiguous."""
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        return None
    port = int(found[3]) if found[3] else default_port
    try:
        name = str(ipaddress.IPv6Address(found[1])) if found[1] else normal_host(found[2])
    except ValueError:
        return None
    # A second dot at the end is left: for some programs it is the same name, for others no name.
    is_clear = bool(name) and not name.endswith(".") and (port or not found[3])
    return (name, port) if is_clear and port <= _MAX_PORT else None


def normal_host(name: str) -> str:
    """The name in lower case and without the dot at its end, or an address as it is usual."""
    name = name.lower().removesuffix(".")
    try:
        return str(ipaddress.ip_address(name.strip("[]")))
    except ValueError:
        return name


def url_rejection_reason(url: str) -> str | None:
    """Why a URL must not be fetched; None when its address looks public.

    Names are not resolved here: the client that fetches checks the address it connects to.
    """
    try:
        parts = urlsplit(url)
        host, _port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return "is not an address"
    if parts.scheme not in ("http", "https"):
        return "is not an http or https address"
    if not host or any(character.isspace() for character in url):
        return "is not an address"
    # Programs read a backslash, escapes, other scripts or a second @ in different ways: the host
    # that is checked here would not be the host that a client connects to.
    spelled, _, _ = parts.netloc.rpartition("@")[2].partition("]")
    spelled = f"{spelled}]" if spelled.startswith("[") else spelled.partition(":")[0]
    if "\\" in url or parts.netloc.count("@") > 1 or not _HOST.fullmatch(spelled):
        return "does not spell its host in plain ASCII letters, digits, hyphens and dots"
    return _why_not_public_host(host.lower())


def is_public_address(address: str) -> bool:
    """True when an IP address belongs to the open internet."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    embedded = _embedded(parsed)
    if embedded is not None:
        return is_public_address(str(embedded))
    if isinstance(parsed, ipaddress.IPv6Address):
        return parsed in _OPEN_V6 and parsed.is_global
    is_local = any(parsed in network for network in _LOCAL_V4)
    return parsed.is_global and not parsed.is_multicast and not is_local


def client_network(host: str) -> tuple[str, bool]:
    """The network of a client, whose addresses are counted as one, and whether it is this machine.

    It is the address itself; of IPv6 the /64 network, of which one client has all addresses.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:  # a socket in the file system, a test client
        return host[:80], True
    address = getattr(address, "ipv4_mapped", None) or address
    if isinstance(address, ipaddress.IPv6Address) and not address.is_loopback:
        return str(ipaddress.IPv6Network((address, 64), strict=False)), False
    return str(address), address.is_loopback


def _embedded(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 address maps or tunnels to."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    tunnel = address.teredo[1] if address.teredo else None
    known = address.ipv4_mapped or address.sixtofour or tunnel
    if known is None and any(address in network for network in _EMBEDDED_V4):
        known = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return known


def _why_not_public_host(host: str) -> str | None:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        is_local = host == "localhost" or host.endswith(_LOCAL_NAMES) or "." not in host
        # Browsers and resolvers read odd spellings of numbers as IPv4 addresses.
        return (
            "points into this machine's network" if is_local or _NUMERIC.fullmatch(host) else None
        )
    return None if is_public_address(host) else "points into a private network"
