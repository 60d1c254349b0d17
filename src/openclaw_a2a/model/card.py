"""The agent card in the form of A2A 1.0."""

import msgspec
from msgspec import UNSET, UnsetType

from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.message import JsonStruct


class AgentInterface(JsonStruct, frozen=True):
    """An address of the agent, with its binding and protocol version."""

    url: str
    protocol_binding: str
    protocol_version: str
    tenant: str | None = None


class AgentExtension(JsonStruct, frozen=True, omit_defaults=False):
    """A protocol extension the agent offers."""

    uri: str
    description: str | UnsetType = UNSET
    required: bool = False
    params: JsonObject | UnsetType = UNSET


class AgentCapabilities(JsonStruct, frozen=True, omit_defaults=False):
    """The optional parts of the protocol the agent offers."""

    streaming: bool = True
    push_notifications: bool = False
    extensions: tuple[AgentExtension, ...] = ()
    extended_agent_card: bool = False


UNSTATED_CAPABILITIES = AgentCapabilities(streaming=False)
"""The capabilities of a card that lists none."""


class AgentProvider(JsonStruct, frozen=True):
    """Who runs the agent."""

    url: str
    organization: str


class AgentSkill(JsonStruct, frozen=True):
    """Something the agent can do."""

    id: str
    name: str
    description: str
    tags: tuple[str, ...]
    examples: tuple[str, ...] = ()
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()


class AgentCard(JsonStruct, frozen=True):
    """Who an agent is, where it is reached and what it can do.

    `url` is the JSON-RPC address, which 0.3 calls the address of an agent; empty: none. It follows
    from the interfaces. A card that is written with a `url` and without interfaces gets
    them when it is served; capabilities that it leaves out are then those of its agent.
    """

    name: str
    # Factories, because what equals a plain default is left out of the JSON.
    description: str = msgspec.field(default_factory=lambda: "")
    version: str = msgspec.field(default_factory=lambda: "1.0.0")
    supported_interfaces: tuple[AgentInterface, ...] = msgspec.field(default_factory=lambda: ())
    capabilities: AgentCapabilities = msgspec.field(default_factory=lambda: UNSTATED_CAPABILITIES)
    default_input_modes: tuple[str, ...] = msgspec.field(default_factory=lambda: ("text/plain",))
    default_output_modes: tuple[str, ...] = msgspec.field(default_factory=lambda: ("text/plain",))
    skills: tuple[AgentSkill, ...] = msgspec.field(default_factory=lambda: ())
    provider: AgentProvider | None = None
    documentation_url: str | None = None
    icon_url: str | None = None
    security_schemes: dict[str, JsonObject] | None = None
    security_requirements: tuple[JsonObject, ...] = ()
    url: str = ""

    def __post_init__(self) -> None:
        spoken = [one for one in self.supported_interfaces if one.protocol_binding == "JSONRPC"]
        if self.supported_interfaces:
            msgspec.structs.force_setattr(self, "url", spoken[0].url if spoken else "")


class AgentProfile(JsonStruct, frozen=True):
    """The name, description and skills of an agent as it states them; empty where it does not."""

    name: str = ""
    description: str = ""
    skills: tuple[AgentSkill, ...] = ()
