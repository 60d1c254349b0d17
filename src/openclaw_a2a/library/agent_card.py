"""Agent cards of adapters: built from what an adapter says, or given in any of their shapes."""

from typing import Any, cast

import msgspec

from openclaw_a2a.agents.adapter import AgentAdapter, adapter_skills
from openclaw_a2a.model.card import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentProvider,
)
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.protocol.card import (
    card_json,
    etag,
    hybrid_card_json,
    v1_security_requirements,
    v1_security_schemes,
)
from openclaw_a2a.protocol.versions import ProtocolVersion
from openclaw_a2a.server.cards import LiveCard
from openclaw_a2a.settings import Account

DEFAULT_URL = "http://localhost:9000/"
"""Where an adapter is served when nobody says otherwise."""

OVERRIDES = frozenset(
    {
        "name",
        "description",
        "version",
        "streaming",
        "url",
        "provider",
        "documentation_url",
        "icon_url",
    }
)
"""What of a card can be said instead of the adapter."""


def build_agent_card(adapter: AgentAdapter, **overrides: Json) -> AgentCard:
    """The card of an adapter: the overrides, else its metadata, else what is known of it.

    Overrides are name, description, version, streaming, url, provider, documentation_url and
    icon_url. Raises: TypeError for any other, and for a provider that is no dict.
    """
    unknown = sorted(overrides.keys() - OVERRIDES)
    if unknown:
        known = ", ".join(sorted(OVERRIDES))
        raise TypeError(f"A card has no {', '.join(unknown)} to override; there are: {known}.")
    metadata = adapter.get_metadata()
    said = {key: value for key, value in overrides.items() if value is not None}
    streams = metadata.streaming or adapter.supports_streaming()
    return AgentCard(
        name=said.get("name") or metadata.name or type(adapter).__name__,
        description=said.get("description", metadata.description),
        version=said.get("version", metadata.version),
        supported_interfaces=interfaces(said.get("url", DEFAULT_URL)),
        capabilities=AgentCapabilities(
            streaming=said.get("streaming", streams), push_notifications=True
        ),
        default_input_modes=tuple(metadata.input_modes),
        default_output_modes=tuple(metadata.output_modes),
        skills=adapter_skills(metadata),
        provider=_provider(said.get("provider", metadata.provider)),
        documentation_url=said.get("documentation_url", metadata.documentation_url),
        icon_url=said.get("icon_url", metadata.icon_url),
    )


def interfaces(url: str) -> tuple[AgentInterface, ...]:
    """Both generations at one address."""
    return (
        AgentInterface(url, "JSONRPC", ProtocolVersion.V1.value),
        AgentInterface(url.rstrip("/"), "HTTP+JSON", ProtocolVersion.V1.value),
        AgentInterface(url, "JSONRPC", ProtocolVersion.V03.value),
    )


def read_card(card: Json, adapter: AgentAdapter) -> AgentCard:
    """A card that was given: ours, a dict of either generation, or one of the official SDK.

    What it leaves out is filled in from the adapter. Raises: ValueError when it is none.
    """
    if isinstance(card, AgentCard):
        return card
    given = _members(card)
    members = cast("JsonObject", msgspec.to_builtins(build_agent_card(adapter)))
    members.update(_as_new(given))
    try:
        return msgspec.convert(members, AgentCard)
    except msgspec.ValidationError as error:
        raise ValueError(f"This is no agent card: {error}.") from error


def _provider(provider: Json) -> AgentProvider | None:
    if provider is None or isinstance(provider, AgentProvider):
        return provider
    if not isinstance(provider, dict):
        raise TypeError('provider must be a dict: {"organization": "Acme", "url": "https://…"}.')
    provider = cast("JsonObject", provider)
    return AgentProvider(
        url=str(provider.get("url", "")), organization=str(provider.get("organization", ""))
    )


def _members(card: Any) -> JsonObject:
    """The members of a card as JSON has them."""
    if isinstance(card, dict):
        return cast("JsonObject", card)
    if hasattr(card, "DESCRIPTOR"):  # the SDK of 1.0 has protocol buffers
        from google.protobuf.json_format import MessageToDict

        return MessageToDict(card)
    if hasattr(card, "model_dump"):  # the SDK of 0.3 has pydantic models
        return card.model_dump(mode="json", by_alias=True, exclude_none=True)
    raise ValueError(
        f"{type(card).__name__} is no agent card; give an AgentCard, a dict or a card of a2a-sdk."
    )


def _as_new(given: JsonObject) -> JsonObject:
    """The members of a card in the spelling of 1.0."""
    members = dict(given)
    if "supportedInterfaces" not in members:
        url = str(members.get("url") or DEFAULT_URL)
        members["supportedInterfaces"] = msgspec.to_builtins(interfaces(url))
    skills: list[JsonObject] = members.get("skills") or []
    members["skills"] = [
        {"description": skill.get("name", ""), "tags": [], **skill} for skill in skills
    ]
    if members.get("securitySchemes"):
        members["securitySchemes"] = v1_security_schemes(members["securitySchemes"])
    if "security" in members:
        members.setdefault("securityRequirements", v1_security_requirements(members["security"]))
    return members


class StaticCard(LiveCard):
    """A card that stays as it is; readers of 0.3 are sent where it says that JSON-RPC is spoken."""

    def __init__(self, account: Account, card: AgentCard) -> None:
        super().__init__(account, lambda _profile: card, lambda: None)

    def _encode(self, card: AgentCard) -> dict[bool, tuple[bytes, bytes]]:
        clean, hybrid = card_json(card), hybrid_card_json(card, url=card.url)
        return {True: (clean, etag(clean).encode()), False: (hybrid, etag(hybrid).encode())}
