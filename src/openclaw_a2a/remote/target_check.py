"""Checks one target: its card, the interface that is used, and whether it accepts us."""

from collections.abc import Mapping

import httpx
import msgspec

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import is_object
from openclaw_a2a.remote.targets import Target
from openclaw_a2a.remote.transport.agent_card import object_list, parse_peer_card, select_interfaces
from openclaw_a2a.remote.transport.client_pool import fetch_card


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


async def check_target(
    target: Target, client: httpx.AsyncClient, headers: Mapping[str, str]
) -> TargetCheck:
    """The check as far as the card goes. Raises: RemoteFailure."""
    members = await fetch_card(client, target.card_url, headers)
    card = parse_peer_card(members)
    interface = select_interfaces(card, target)[0]
    return TargetCheck(
        url=target.base_url,
        card_url=target.card_url,
        name=card.name or "",
        transport=interface.transport,
        protocol_version=interface.version,
        address=interface.url,
        alias=target.alias,
        is_streaming=card.streaming_supported,
        skills=tuple(skill.name for skill in card.skills),
        auth_wanted=auth_wanted(members),
        auth_given=target.auth.kind if target.auth else None,
    )


def with_access(check: TargetCheck, envelope: JsonObject) -> TargetCheck:
    """The check with the answer to a request for a task that does not exist."""
    error = _object(envelope.get("error"))
    details = _object(error.get("details"))
    if envelope.get("ok") is True or details.get("rpcCode") == _TASK_NOT_FOUND:
        return msgspec.structs.replace(check, is_let_in=True)
    is_refused = not _REFUSED.isdisjoint({details.get("httpStatus"), details.get("grpcStatus")})
    trouble = str(error.get("message", ""))
    return msgspec.structs.replace(check, is_let_in=False if is_refused else None, trouble=trouble)


_TASK_NOT_FOUND = -32001
_REFUSED = frozenset({401, 403, "UNAUTHENTICATED", "PERMISSION_DENIED"})


def auth_wanted(card: JsonObject) -> tuple[str, ...]:
    """What a card of either protocol version requires of callers, in a few words each."""
    schemes = _object(card.get("securitySchemes"))
    wanted: dict[str, None] = {}
    for requirement in [
        *object_list(card.get("securityRequirements")),
        *object_list(card.get("security")),
    ]:
        names = _object(requirement.get("schemes")) or requirement
        words = [_describe(name, _object(schemes.get(name))) for name in names if name != "schemes"]
        if words:
            wanted[" and ".join(words)] = None
    return tuple(wanted)


def _describe(name: str, scheme: JsonObject) -> str:
    """A scheme of 0.3 has a type; a scheme of 1.0 is the only member of its object."""
    if "type" in scheme:
        kind, inner = str(scheme["type"]), scheme
    else:
        key = next(iter(scheme), name)
        kind, inner = key.removesuffix("SecurityScheme"), _object(scheme.get(key))
    if kind in ("http", "httpAuth"):
        return f"{str(inner.get('scheme', 'http')).lower()} token"
    if kind == "apiKey":
        return f"API key ({inner.get('name', name)})"
    return {"oauth2": "OAuth 2", "openIdConnect": "OpenID Connect"}.get(kind, kind)


def _object(value: Json) -> JsonObject:
    return value if is_object(value) else {}
