"""Which links of a peer an agent may be handed: public web addresses only."""

import ipaddress
import re
from urllib.parse import urlsplit

_NUMERIC = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+))*\.?", re.IGNORECASE)
_LOCAL_NAMES = (".localhost", ".local", ".internal", ".home.arpa")


def why_not_public(url: str) -> str | None:
    """Why a link must not be followed; None when its address looks public.

    Names are not looked up here: whoever fetches must check the address it connects to.
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


def _why_not_public_host(host: str) -> str | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        is_local = host == "localhost" or host.endswith(_LOCAL_NAMES) or "." not in host
        # Browsers and resolvers read odd spellings of numbers as IPv4 addresses.
        return (
            "points into this machine's network" if is_local or _NUMERIC.fullmatch(host) else None
        )
    mapped = getattr(address, "ipv4_mapped", None) or address
    return None if mapped.is_global else "points into a private network"
