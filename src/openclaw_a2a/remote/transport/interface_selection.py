"""Selects the interfaces of a peer's card that are used, in the order of preference."""

import importlib.util
from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from urllib.parse import urlsplit

import msgspec

from openclaw_a2a.remote.config import Transport
from openclaw_a2a.remote.errors import ErrorCode, RemoteFailure
from openclaw_a2a.remote.targets import Target
from openclaw_a2a.remote.transport.agent_card import Interface, PeerCard

_HAS_GRPC = importlib.util.find_spec("grpc") is not None
SUPPORTED_TRANSPORTS = (
    Transport.JSONRPC,
    Transport.HTTP_JSON,
    *((Transport.GRPC,) if _HAS_GRPC else ()),
)
"""The transports this build speaks."""


def check_supported(transports: tuple[Transport, ...]) -> None:
    """Raises RemoteFailure when this build does not speak one of the transports."""
    unsupported = [one.value for one in transports if one not in SUPPORTED_TRANSPORTS]
    if unsupported:
        names = ", ".join(unsupported)
        supported = [one.value for one in SUPPORTED_TRANSPORTS]
        raise RemoteFailure(
            ErrorCode.PEER,
            f"this installation does not speak {names}{_install_hint(unsupported)}",
            {"unsupported": unsupported, "supported": supported},
        )


def _install_hint(transports: Iterable[str]) -> str:
    is_missing = not _HAS_GRPC and Transport.GRPC.value in transports
    return "; install openclaw-a2a[grpc] to have gRPC" if is_missing else ""


def select_interfaces(card: PeerCard, target: Target) -> tuple[Interface, ...]:
    """The interfaces to use: by our preference, then in the card's order. Raises: RemoteFailure.

    Interfaces on other hosts are left out: the author of a card must not decide where our messages
    and credentials go, nor which machines of our network are connected to.
    """
    spoken = _order(card, target.identity.preferred_transports)
    if not spoken:
        raise _no_transport(card)
    allowed = tuple(_secured(one, target) for one in spoken if _is_allowed(one, target))
    if not allowed:
        raise _points_elsewhere(spoken[0], target)
    return allowed


def _order(card: PeerCard, preferred: tuple[Transport, ...]) -> list[Interface]:
    found: dict[tuple[str, str], Interface] = {}
    for one in _by_preference(card, preferred):
        found.setdefault((one.transport.upper(), one.url), one)
    return list(found.values())


def _by_preference(card: PeerCard, preferred: tuple[Transport, ...]) -> Iterator[Interface]:
    spoken = [one for one in card.interfaces if _is_spoken(one)]
    for transport in preferred:
        matching = [one for one in spoken if one.speaks(transport)]
        yield from sorted(matching, key=lambda one: one.version.startswith("0."))
    yield from spoken


def _is_spoken(interface: Interface) -> bool:
    is_known = interface.generation is not None
    return is_known and any(interface.speaks(transport) for transport in SUPPORTED_TRANSPORTS)


def _is_allowed(interface: Interface, target: Target) -> bool:
    base, found = urlsplit(target.base_url), _scheme_and_host(interface.url)
    if found is None:
        return False
    scheme, host = found
    own = base.hostname or ""
    is_own = host == own or (_is_local(own) and _is_local(host))
    is_as_secure = base.scheme != "https" or scheme in ("https", "grpcs", "")
    return (is_own or host in target.allowed_hosts) and is_as_secure


def _secured(interface: Interface, target: Target) -> Interface:
    """An address without a scheme uses TLS when the target's own address does."""
    if "://" in interface.url or not target.base_url.startswith("https:"):
        return interface
    return msgspec.structs.replace(interface, url=f"grpcs://{interface.url}")


def _is_local(host: str) -> bool:
    """True for loopback addresses and the names of this machine."""
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost"
    return address.is_loopback or address.is_unspecified


def _scheme_and_host(url: str) -> tuple[str, str] | None:
    """The scheme and host of an address; addresses of gRPC may have no scheme."""
    try:
        parts = urlsplit(url if "://" in url else f"//{url}")
        host = parts.hostname
    except ValueError:
        return None
    return (parts.scheme.lower(), host.lower()) if host else None


def _no_transport(card: PeerCard) -> RemoteFailure:
    offered = [f"{one.transport} {one.version}".strip() for one in card.interfaces]
    return RemoteFailure(
        ErrorCode.PEER,
        "the peer offers no transport that this build speaks; it offers: "
        + (", ".join(dict.fromkeys(offered)) or "none"),
        {
            "errorName": "NoTransport",
            "available": list(dict.fromkeys(one.transport for one in card.interfaces)),
            "supported": [one.value for one in SUPPORTED_TRANSPORTS],
            "hint": "the peer must offer one of the supported transports in version 0.3 or 1.0"
            + _install_hint(one.transport.upper() for one in card.interfaces),
        },
    )


def _points_elsewhere(interface: Interface, target: Target) -> RemoteFailure:
    found = _scheme_and_host(interface.url)
    host = found[1] if found else interface.url
    return RemoteFailure(
        ErrorCode.PEER,
        f"the card of {target.base_url} points to another host, {interface.url[:200]}, "
        "which is not used",
        {
            "errorName": "CardPointsElsewhere",
            "interfaceUrl": interface.url[:200],
            "hint": "use the address the card names as the target's baseUrl, "
            f'or add "{host[:200]}" to the target\'s allowedHosts (and keep https)',
        },
    )
