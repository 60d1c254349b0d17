"""Agent cards: built from the metadata of an adapter, or read from a card in any shape."""

from urllib.parse import urlsplit, urlunsplit

import msgspec

from openclaw_a2a.agents.adapter import (
    AdapterMetadata,
    AgentAdapter,
    adapter_skills,
    agent_metadata,
)
from openclaw_a2a.library.inputs import to_json_object
from openclaw_a2a.model.card import (
    UNSTATED_CAPABILITIES,
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentProvider,
    AgentSkill,
)
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.validation import drop_none, is_object
from openclaw_a2a.ports import Agent
from openclaw_a2a.protocol.card import v1_security_requirements, v1_security_schemes
from openclaw_a2a.protocol.versions import ProtocolVersion

_DEFAULT_URL = "http://localhost:9000/"
"""The address on a card without another one."""

OVERRIDES = frozenset({*AdapterMetadata.__struct_fields__, "url"}) - {
    "skills",
    "input_modes",
    "output_modes",
}
"""The fields of a card that arguments can override."""


def build_agent_card(adapter: AgentAdapter | Agent, **overrides: Json) -> AgentCard:
    """The card of an adapter: the overrides, else its metadata, else defaults.

    Overrides are name, description, version, streaming, url, provider, documentation_url and
    icon_url. Raises: TypeError for any other, and for a provider that is no dict.
    """
    unknown = sorted(overrides.keys() - OVERRIDES)
    if unknown:
        known = ", ".join(sorted(OVERRIDES))
        raise TypeError(f"A card has no {', '.join(unknown)} to override; there are: {known}.")
    given = drop_none(overrides)
    if isinstance(adapter, AgentAdapter):
        metadata = adapter.get_metadata()
        streams = metadata.streaming or adapter.supports_streaming()
    else:
        metadata, streams = agent_metadata(adapter), True
    name = given.get("name") or metadata.name or type(adapter).__name__
    description = (
        given.get("description", metadata.description) or f"{name}, an agent that answers over A2A."
    )
    return AgentCard(
        name=name,
        description=description,
        version=given.get("version", metadata.version),
        supported_interfaces=interfaces(with_slash(given.get("url", _DEFAULT_URL))),
        capabilities=AgentCapabilities(
            streaming=given.get("streaming", streams), push_notifications=True
        ),
        default_input_modes=_media_types(metadata.input_modes),
        default_output_modes=_media_types(metadata.output_modes),
        skills=adapter_skills(metadata) or (AgentSkill("chat", name, description, tags=("chat",)),),
        provider=_provider(given.get("provider", metadata.provider)),
        documentation_url=given.get("documentation_url", metadata.documentation_url),
        icon_url=given.get("icon_url", metadata.icon_url),
    )


def interfaces(url: str) -> tuple[AgentInterface, ...]:
    """Both protocol versions at one address."""
    return (
        AgentInterface(url, "JSONRPC", ProtocolVersion.V1.value),
        AgentInterface(url.rstrip("/"), "HTTP+JSON", ProtocolVersion.V1.value),
        AgentInterface(url, "JSONRPC", ProtocolVersion.V03.value),
    )


def with_slash(url: str) -> str:
    """The address with a slash at the end of its path: routers and proxies redirect no request."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/"))


def parse_agent_card(card: Json, adapter: AgentAdapter | Agent) -> AgentCard:
    """A card from our struct, a dict of either protocol version, or an object of an a2a-sdk.

    What it leaves out is filled in from the adapter. Raises: ValueError.
    """
    if isinstance(card, AgentCard):
        return _fill_missing(card, build_agent_card(adapter))
    given = to_json_object(card)
    if given is None:
        raise ValueError(
            f"{type(card).__name__} is no agent card; give an AgentCard, a dict or a card of"
            " a2a-sdk."
        )
    members: JsonObject = msgspec.to_builtins(build_agent_card(adapter)) | given
    if "supportedInterfaces" not in given:
        url = str(given.get("url") or _DEFAULT_URL)
        members["supportedInterfaces"] = msgspec.to_builtins(interfaces(url))
    if "skills" in given:
        skills: list[JsonObject] = given["skills"] or []
        members["skills"] = [
            {"description": skill.get("name", ""), "tags": [], **skill} for skill in skills
        ]
    if given.get("securitySchemes"):
        members["securitySchemes"] = v1_security_schemes(given["securitySchemes"])
    if "security" in given and "securityRequirements" not in given:
        members["securityRequirements"] = v1_security_requirements(given["security"])
    try:
        return msgspec.convert(members, AgentCard)
    except msgspec.ValidationError as error:
        raise ValueError(f"This is no agent card: {error}.") from error


def _fill_missing(card: AgentCard, defaults: AgentCard) -> AgentCard:
    """The card, with what it leaves out."""
    missing: JsonObject = {}
    if not card.supported_interfaces:
        missing["supported_interfaces"] = interfaces(card.url or _DEFAULT_URL)
    if card.capabilities is UNSTATED_CAPABILITIES:
        missing["capabilities"] = defaults.capabilities
    return msgspec.structs.replace(card, **missing)


def _media_types(modes: list[str]) -> tuple[str, ...]:
    """The modes of an adapter; its default, `text`, is no media type, which a card must have."""
    return ("text/plain",) if modes == ["text"] else tuple(modes)


def _provider(provider: Json) -> AgentProvider | None:
    if provider is None or isinstance(provider, AgentProvider):
        return provider
    if not is_object(provider):
        raise TypeError('provider must be a dict: {"organization": "Acme", "url": "https://…"}.')
    return AgentProvider(str(provider.get("url", "")), str(provider.get("organization", "")))
