"""The known status of a target: its last card, problems of the card, its circuit breaker."""

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from openclaw_a2a.remote.result import RemoteFailure
from openclaw_a2a.remote.targets import Target
from openclaw_a2a.remote.transport.agent_card import EMPTY_CARD, PeerCard, select_interfaces
from openclaw_a2a.remote.transport.circuit_breaker import CircuitStatus

if TYPE_CHECKING:
    from openclaw_a2a.remote.transport.client_pool import CardRecord

PEER_TEXTS = ("name", "description", "error", "transport", "protocol_version", "address")
PEER_LISTS = ("interfaces", "skills")
"""The members of a status that a peer may have written: texts, and lists of texts."""


class TargetStatus(msgspec.Struct, frozen=True):
    """A configured target.

    `checked_at` is when its card was last requested (None: never), `error` why that failed (empty:
    it succeeded). The card is the last one received. `interfaces` are all that it offers;
    `transport`, `protocol_version` and `address` describe the interface in use.
    """

    alias: str
    url: str
    circuit: CircuitStatus
    name: str = ""
    description: str = ""
    is_default: bool = False
    auth: str = ""
    checked_at: datetime | None = None
    error: str = ""
    fetch_s: float | None = None
    transport: str = ""
    protocol_version: str = ""
    address: str = ""
    interfaces: tuple[str, ...] = ()
    is_streaming: bool | None = None
    skills: tuple[str, ...] = ()
    has_card: bool = False
    card_problems: tuple[tuple[str, str], ...] = ()
    """Members of the card, and what is wrong with each."""


def describe_target(target: Target, record: "CardRecord", circuit: CircuitStatus) -> TargetStatus:
    """The status of a target from its last card. Texts of the peer are as it wrote them."""
    card, error = record.card, record.error
    status = TargetStatus(
        alias=target.alias or "",
        url=target.base_url,
        circuit=circuit,
        name=card.name or "",
        description=card.description or "",
        auth="" if target.auth is None else target.auth.kind,
        checked_at=record.refreshed_at,
        error="" if error is None else str(error.get("message", "")),
        fetch_s=record.fetch_s,
        interfaces=tuple(
            dict.fromkeys(f"{one.transport} {one.version}".strip() for one in card.interfaces)
        ),
        is_streaming=card.streaming_supported,
        skills=tuple(one.name for one in card.skills),
    )
    if record.refreshed_at is None or (error is not None and card is EMPTY_CARD):
        return status
    problems = find_card_problems(card)
    try:
        used = select_interfaces(card, target)[0]
    except RemoteFailure as failure:
        problems = (*problems, ("interfaces", failure.message))
        return msgspec.structs.replace(status, has_card=True, card_problems=problems)
    return msgspec.structs.replace(
        status,
        has_card=True,
        card_problems=problems,
        transport=used.transport,
        protocol_version=used.version,
        address=used.url,
    )


def find_card_problems(card: PeerCard) -> tuple[tuple[str, str], ...]:
    """Members that the protocol requires and the card lacks."""
    required = {
        "name": card.name,
        "description": card.description,
        "defaultInputModes": card.input_modes,
        "defaultOutputModes": card.output_modes,
        "skills": card.skills,
    }
    return tuple((name, "is required and empty") for name, value in required.items() if not value)
