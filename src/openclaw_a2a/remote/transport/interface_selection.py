"""Which of the addresses on a peer's card are used, and in which order."""

from collections.abc import Iterator
from ipaddress import ip_address
from urllib.parse import urlsplit

import msgspec

from openclaw_a2a.remote.config import Transport
from openclaw_a2a.remote.errors import ErrorCode, RemoteFailure
from openclaw_a2a.remote.targets import Target
from openclaw_a2a.remote.transport.agent_card import Interface, PeerCard
from openclaw_a2a.remote.transport.client import SUPPORTED, how_to_add


def usable_interfaces(card: PeerCard, target: Target) -> tuple[Interface, ...]:
    """The interfaces to use: by our preference, then in the card's order. Raises: RemoteFailure.

    Addresses on other hosts are left out: who writes a card decides neither where our requests
    and credentials go, nor which machines of our network are asked.
    """
    spoken = _in_order(card, target.identity.preferred_transports)
    if not spoken:
        raise _no_transport(card)
    near = tuple(_as_safe(one, target) for one in spoken if _is_near(one, target))
    if not near:
        raise _elsewhere(spoken[0], target)
    return near


def _in_order(card: PeerCard, preferred: tuple[Transport, ...]) -> list[Interface]:
    found: dict[tuple[str, str], Interface] = {}
    for one in _walk(card, preferred):
        found.setdefault((one.transport.upper(), one.url), one)
    return list(found.values())


def _walk(card: PeerCard, preferred: tuple[Transport, ...]) -> Iterator[Interface]:
    spoken = [one for one in card.interfaces if _is_spoken(one)]
    for transport in preferred:
        matching = [one for one in spoken if one.speaks(transport)]
        yield from sorted(matching, key=lambda one: one.version.startswith("0."))
    yield from spoken


def _is_spoken(interface: Interface) -> bool:
    is_known = interface.generation is not None
    return is_known and any(interface.speaks(transport) for transport in SUPPORTED)


def _is_near(interface: Interface, target: Target) -> bool:
    here, there = urlsplit(target.base_url), _place(interface.url)
    if there is None:
        return False
    scheme, host = there
    own = here.hostname or ""
    is_own = host == own or (_is_this_machine(own) and _is_this_machine(host))
    is_known = is_own or host in target.allowed_hosts
    is_as_safe = here.scheme != "https" or scheme in ("https", "grpcs", "")
    return is_known and is_as_safe


def _as_safe(interface: Interface, target: Target) -> Interface:
    """An address without a scheme is spoken to as safely as the target's own."""
    if "://" in interface.url or not target.base_url.startswith("https:"):
        return interface
    return msgspec.structs.replace(interface, url=f"grpcs://{interface.url}")


def _is_this_machine(host: str) -> bool:
    """True for the names under which programs on this machine speak of themselves."""
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost"
    return address.is_loopback or address.is_unspecified


def _place(url: str) -> tuple[str, str] | None:
    """Scheme and host of an address; gRPC has addresses without a scheme."""
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
            "supported": [one.value for one in SUPPORTED],
            "hint": "the peer must offer one of the supported transports in version 0.3 or 1.0"
            + how_to_add(one.transport.upper() for one in card.interfaces),
        },
    )


def _elsewhere(interface: Interface, target: Target) -> RemoteFailure:
    place = _place(interface.url)
    host = place[1] if place else interface.url
    return RemoteFailure(
        ErrorCode.PEER,
        f"the card of {target.base_url} sends us elsewhere, to {interface.url[:200]}, "
        "which is not followed",
        {
            "errorName": "CardPointsElsewhere",
            "interfaceUrl": interface.url[:200],
            "hint": "use the address the card names as the target's baseUrl, "
            f'or add "{host[:200]}" to the target\'s allowedHosts (and keep https)',
        },
    )
