"""Which addresses are public: those of the open internet, none of the operator's own network.

`net/safe_resolver` applies it to every connection.
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
_PROTOCOLS_V4 = ipaddress.ip_network("192.0.0.0/24")


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
    return parsed.is_global and not parsed.is_multicast and parsed not in _PROTOCOLS_V4


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
