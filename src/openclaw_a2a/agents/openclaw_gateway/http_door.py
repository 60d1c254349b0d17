"""OpenClaw's HTTP side: the same port as its WebSocket, opened with the same token."""

from urllib.parse import urlsplit, urlunsplit

import httpx2

from openclaw_a2a.agents.openclaw_gateway.handshake import Address
from openclaw_a2a.settings.paths import is_loopback

_SCHEMES = {"ws": "http", "wss": "https"}


def http_url(url: str) -> str:
    """The address of the HTTP side for a WebSocket address; HTTP addresses stay as they are."""
    parts = urlsplit(url)
    scheme = _SCHEMES.get(parts.scheme, parts.scheme)
    return urlunsplit((scheme, parts.netloc, parts.path.rstrip("/"), "", ""))


def open_door(address: Address, *, timeout_s: float) -> httpx2.AsyncClient:
    """A client for the gateway's HTTP side; use it with `async with`.

    `timeout_s` is for each step (connecting, the next bytes), not for the whole answer.
    """
    url = http_url(address.url)
    headers = {"Authorization": f"Bearer {address.token}"} if address.token else {}
    # A proxy is for gateways elsewhere; asking one for our own loopback only fails.
    is_elsewhere = not is_loopback(urlsplit(url).hostname or "")
    return httpx2.AsyncClient(
        base_url=url, headers=headers, timeout=timeout_s, trust_env=is_elsewhere
    )
