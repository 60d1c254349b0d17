"""What is known of a target, and the check of one: its card, its interface, does it accept us."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.validation import object_at
from openclaw_a2a.remote.result import TASK_NOT_FOUND_CODE, RemoteFailure
from openclaw_a2a.remote.target_secrets import redact
from openclaw_a2a.remote.targets import Target
from openclaw_a2a.remote.transport.agent_card import (
    EMPTY_CARD,
    Interface,
    PeerCard,
    object_list,
    parse_peer_card,
    select_interfaces,
)
from openclaw_a2a.remote.transport.circuit_breaker import Circuit
from openclaw_a2a.remote.transport.client_pool import CardRecord, fetch_card
from openclaw_a2a.remote.transport.http_transport import PeerHttp


class TargetStatus(msgspec.Struct, frozen=True):
    """A configured target.

    `checked_at` is when its card was last requested (None: never), `error` why that failed (empty:
    it succeeded). The card is the last one received. `interfaces` are all that it offers;
    `transport`, `protocol_version` and `address` describe the interface in use.
    """

    alias: str
    url: str
    circuit: Circuit
    name: str
    description: str
    is_default: bool
    auth: str
    checked_at: datetime | None
    error: str
    fetch_s: float | None
    transport: str
    protocol_version: str
    address: str
    interfaces: tuple[str, ...]
    is_streaming: bool | None
    skills: tuple[str, ...]
    has_card: bool
    card_problems: tuple[tuple[str, str], ...]
    """Members of the card, and what is wrong with each."""


def describe_target(
    target: Target, record: CardRecord, circuit: Circuit, secrets: tuple[str, ...]
) -> TargetStatus:
    """The status of a configured target from its last card."""

    def hide(text: str | None) -> str:
        # Texts of the peer may repeat what it was sent.
        return redact(text or "", secrets)

    card, error = record.card, record.error
    has_card = record.refreshed_at is not None and (error is None or card is not EMPTY_CARD)
    used, problems = _NO_INTERFACE, find_card_problems(card) if has_card else ()
    if has_card:
        try:
            used = select_interfaces(card, target)[0]
        except RemoteFailure as failure:
            problems = (*problems, ("interfaces", hide(failure.message)))
    offered = dict.fromkeys(f"{one.transport} {one.version}".strip() for one in card.interfaces)
    return TargetStatus(
        alias=target.alias,
        url=target.base_url,
        circuit=circuit,
        name=hide(card.name),
        description=hide(target.description or card.description),
        is_default=target.is_default,
        auth="" if target.auth is None else target.auth.kind,
        checked_at=record.refreshed_at,
        error="" if error is None else hide(str(error.get("message", ""))),
        fetch_s=record.fetch_s,
        transport=hide(used.transport),
        protocol_version=hide(used.version),
        address=hide(used.url),
        interfaces=tuple(map(hide, offered)),
        is_streaming=card.streaming_supported,
        skills=tuple(hide(one.name) for one in card.skills),
        has_card=has_card,
        card_problems=problems,
    )


_NO_INTERFACE = Interface("", "")


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


# -------------------------------------------------------------------- checking a target


class TargetCheck(msgspec.Struct, frozen=True):
    """The result of a check.

    `auth_wanted` is what the card requires of callers, `auth_given` the kind that is configured.
    `is_let_in` is None when that could not be found out; `trouble` then says why.
    """

    url: str
    card_url: str
    name: str
    transport: str
    protocol_version: str
    address: str
    alias: str | None = None
    is_streaming: bool | None = None
    skills: tuple[str, ...] = ()
    auth_wanted: tuple[str, ...] = ()
    auth_given: str | None = None
    is_let_in: bool | None = None
    trouble: str = ""


async def check_target(target: Target, http: PeerHttp, headers: Mapping[str, str]) -> TargetCheck:
    """The check as far as the card goes. Raises: RemoteFailure."""
    members = await fetch_card(http, target.card_url, headers)
    card = parse_peer_card(members)
    interface = select_interfaces(card, target)[0]
    return TargetCheck(
        url=target.base_url,
        card_url=target.card_url,
        name=card.name or "",
        transport=interface.transport,
        protocol_version=interface.version,
        address=interface.url,
        alias=target.alias or None,
        is_streaming=card.streaming_supported,
        skills=tuple(skill.name for skill in card.skills),
        auth_wanted=auth_wanted(members),
        auth_given=target.auth.kind if target.auth else None,
    )


def with_access(check: TargetCheck, envelope: JsonObject) -> TargetCheck:
    """The check with the answer to a request for a task that does not exist."""
    error, details = object_at(envelope, "error"), object_at(envelope, "error", "details")
    if envelope.get("ok") is True or details.get("rpcCode") == TASK_NOT_FOUND_CODE:
        return msgspec.structs.replace(check, is_let_in=True)
    is_refused = not _REFUSED.isdisjoint({details.get("httpStatus"), details.get("grpcStatus")})
    trouble = str(error.get("message", ""))
    return msgspec.structs.replace(check, is_let_in=False if is_refused else None, trouble=trouble)


_REFUSED = frozenset({401, 403, "UNAUTHENTICATED", "PERMISSION_DENIED"})


def auth_wanted(card: JsonObject) -> tuple[str, ...]:
    """What a card of either protocol version requires of callers, in a few words each."""
    schemes = object_at(card, "securitySchemes")
    wanted: dict[str, None] = {}
    for requirement in [
        *object_list(card.get("securityRequirements")),
        *object_list(card.get("security")),
    ]:
        names = object_at(requirement, "schemes") or requirement
        words = [_describe(name, object_at(schemes, name)) for name in names if name != "schemes"]
        if words:
            wanted[" and ".join(words)] = None
    return tuple(wanted)


def _describe(name: str, scheme: JsonObject) -> str:
    """A scheme of 0.3 has a type; a scheme of 1.0 is the only member of its object."""
    if "type" in scheme:
        kind, inner = str(scheme["type"]), scheme
    else:
        key = next(iter(scheme), name)
        kind, inner = key.removesuffix("SecurityScheme"), object_at(scheme, key)
    if kind in ("http", "httpAuth"):
        return f"{str(inner.get('scheme', 'http')).lower()} token"
    if kind == "apiKey":
        return f"API key ({inner.get('name', name)})"
    return {"oauth2": "OAuth 2", "openIdConnect": "OpenID Connect"}.get(kind, kind)
