"""The keys of the settings file; the JSON Schema is generated from these structs."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.skill import Skill
from openclaw_a2a.model.validation import is_struct
from openclaw_a2a.settings.sections import (
    AgentStyle,
    AuditSettings,
    DashboardSettings,
    LeaseSettings,
    Limits,
    LogSettings,
    OidcSettings,
    OriginRoutingPolicy,
    PlanningSettings,
    PolicySettings,
    PushSettings,
    ResponseRoutingSettings,
    RetentionSettings,
    Section,
    SecuritySettings,
    ServerSettings,
    StoreKind,
    Text,
    ToolSettings,
    about,
)

TEXT_MODES = ("text/plain", "application/json")

AGENT_ID = r"^[a-z0-9_-]{1,64}$"
ACCOUNT_ID = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$"
PEER_NAME = r"^[a-z0-9][a-z0-9_.-]{0,63}$"
SCHEMA_NAME = r"^[a-z_][a-z0-9_]{0,62}$"
TOKEN = r"^(env:.+|file:.+|sha256:[0-9A-Fa-f]{64})$"  # noqa: S105 - a pattern, not a password


class TaskStoreKeys(Section, frozen=True):
    """Where the tasks of an account are kept."""

    kind: StoreKind = StoreKind.SQLITE
    path: Annotated[
        str, about("File (sqlite) or folder (json-file); left out: in the data folder.")
    ] = ""


class StoreKeys(TaskStoreKeys, frozen=True):
    """Where tasks are kept."""

    url: Annotated[
        str, about("Address of a postgres store, without a password; or a reference to it.")
    ] = ""
    password: Annotated[str, about("Password of a postgres store: env:NAME or file:PATH.")] = ""
    schema: Annotated[
        str, Meta(pattern=SCHEMA_NAME), about("Schema of its tables; made if there is none.")
    ] = "openclaw_a2a"
    connections: Annotated[
        int, Meta(ge=2, le=1000), about("Connections to the database, at most.")
    ] = 8
    replicas: Annotated[
        bool, about("Share a postgres store with other gateways that have this set.")
    ] = False
    replica_name: Annotated[
        str, Meta(max_length=64), about("Of this gateway among them; left out: host and port.")
    ] = ""


class ReachKeys(Section, frozen=True):
    """Which agents one agent may call."""

    allow: Annotated[
        tuple[Text, ...] | None,
        about("Agents it may call: ids, or patterns with *; [] is none of them."),
    ] = None


class AgentToolKeys(Section, frozen=True):
    """How one agent may use tools."""

    agent_to_agent: ReachKeys = ReachKeys()


class AgentKeys(msgspec.Struct, frozen=True, rename="camel"):
    """One agent; every other key belongs to its adapter."""

    adapter: Annotated[str, about("Who answers: echo, command, ...")]
    skills: Annotated[tuple[Skill, ...], about("What other agents may call it for.")] = ()
    tools: AgentToolKeys = AgentToolKeys()
    replicas: Annotated[
        tuple[Text, ...],
        about(
            "Of several gateways on one store those that have it, by store.replicaName; []: all."
        ),
    ] = ()
    when_no_replica: Annotated[
        Literal["refuse", "queue"],
        about("While none of those runs: refuse messages for it, or let them wait for one."),
    ] = "refuse"


class OpenClawKeys(Section, frozen=True):
    """The OpenClaw whose agents are offered; left out: the one on this machine, if any."""

    enabled: Annotated[bool, about("Offer OpenClaw's agents.")] = True
    expose: Annotated[
        tuple[str, ...] | Literal["all"], about("Which of its agents: all, or a list of ids.")
    ] = "all"
    config_path: Annotated[
        str, about("OpenClaw's config; left out: where OpenClaw itself looks.")
    ] = ""
    url: Annotated[str, about("Address of its gateway; left out: what its config says.")] = ""
    token: Annotated[str, about("env:NAME or file:PATH; left out: the token of its config.")] = ""


class SkillKeys(Section, frozen=True):
    """A skill of the agent on its card."""

    id: str
    name: str
    description: str = ""
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()


class AccountKeys(Section, frozen=True):
    """One account of the channel: an agent with its own URLs."""

    enabled: bool = True
    label: Annotated[str, about("Name on the card; left out: the account's id.")] = ""
    description: Annotated[str, about("Description on the card.")] = ""
    public_base_url: Annotated[str, about("Address that callers use; left out: the server's.")] = ""
    default_agent_id: Annotated[str, about("The agent that answers.")] = ""
    session_store: Annotated[str, about("Session store named to the agent.")] = ""
    protocol_version: Annotated[str, about("protocolVersion on the 0.3 card.")] = "0.3.0"
    agent_card_path: Annotated[str, about("Path of the card.")] = ""
    json_rpc_path: Annotated[str, about("Path of the JSON-RPC endpoint.")] = ""
    max_body_bytes: Annotated[int, Meta(ge=1, description="Largest request body.")] = 1_048_576
    default_input_modes: Annotated[
        tuple[str, ...], about("Accepted media types; type/* is allowed.")
    ] = TEXT_MODES
    default_output_modes: Annotated[tuple[str, ...], about("Media types given.")] = TEXT_MODES
    push_notifications: Annotated[bool, about("Callers may register webhooks for their tasks.")] = (
        True
    )
    strict03: Annotated[
        bool, about("Answer 0.3 as the protocol says, where the channel's contract differs.")
    ] = False
    agent_style: AgentStyle = AgentStyle.HYBRID
    origin_routing_policy: OriginRoutingPolicy = OriginRoutingPolicy.SUPPRESS_GENERIC_FOLLOWUP
    task_store: Annotated[
        TaskStoreKeys | None, about("A store of its own; left out: the gateway's.")
    ] = None
    skills: tuple[SkillKeys, ...] = ()
    allowed_agents: Annotated[
        tuple[str, ...] | None,
        about("Agents that steps of objectives may name here: ids, or with *; left out: any."),
    ] = None
    allowed_skills: Annotated[
        tuple[str, ...] | None,
        about("Skills that messages may name in their metadata: ids, or with *; left out: any."),
    ] = None


class PeerKeys(Section, frozen=True):
    """A known caller."""

    tokens: Annotated[
        tuple[Annotated[str, Meta(pattern=TOKEN)], ...],
        about("env:NAME, file:PATH or sha256:HEX; several may be valid."),
    ] = ()
    certificates: Annotated[
        tuple[str, ...],
        about("Client certificates that a trusted proxy names: fingerprints, or subjects."),
    ] = ()
    may_approve: Annotated[
        bool, about("May allow commands that agents want to run on this machine.")
    ] = False


class SecurityKeys(Section, frozen=True):
    """Who may call."""

    peers: dict[str, PeerKeys] = msgspec.field(default_factory=dict)
    client_certificate_header: Annotated[
        str,
        about("Header in which trusted proxies name the verified certificate of their client."),
    ] = ""
    oidc: Annotated[
        tuple[OidcSettings, ...], about("Issuers whose tokens (JWT) are accepted besides.")
    ] = ()
    policy: PolicySettings = PolicySettings()
    pairing: Annotated[
        bool, about("The first message of each peer waits until the operator approves the peer.")
    ] = False


class ChannelKeys(Section, frozen=True):
    """The A2A channel."""

    accounts: dict[str, AccountKeys] = msgspec.field(default_factory=dict)
    security: SecurityKeys = SecurityKeys()


class ChannelsKeys(Section, frozen=True):
    """The channels; there is one."""

    a2a: ChannelKeys = ChannelKeys()


class FileKeys(Section, frozen=True):
    """The whole file."""

    schema_address: Annotated[str, about("For editors.")] = msgspec.field(
        name="$schema", default=""
    )
    data: Annotated[str, about("The data folder.")] = "~/.openclaw-a2a"
    server: ServerSettings = ServerSettings()
    store: StoreKeys = StoreKeys()
    agents: dict[str, AgentKeys] = msgspec.field(default_factory=dict)
    openclaw: OpenClawKeys = OpenClawKeys()
    channels: ChannelsKeys = ChannelsKeys()
    limits: Limits = Limits()
    retention: RetentionSettings = RetentionSettings()
    lease: LeaseSettings = LeaseSettings()
    log: LogSettings = LogSettings()
    push: PushSettings = PushSettings()
    outbound: Annotated[JsonObject, about("Remote agents that may be called, and how.")] = (
        msgspec.field(default_factory=dict)
    )
    tools: ToolSettings = ToolSettings()
    response_routing: ResponseRoutingSettings = ResponseRoutingSettings()
    opt: PlanningSettings = PlanningSettings()
    audit: AuditSettings = AuditSettings()
    dashboard: DashboardSettings = DashboardSettings()
    security: SecuritySettings = SecuritySettings()


def names_of(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """The keys of a struct, as the file spells them."""
    return tuple(field.encode_name for field in msgspec.structs.fields(kind))


def member_kind(kind: Json, key: str) -> Json:
    """The type of the member `key` of a value of type `kind`; None when it has any type."""
    origin = getattr(kind, "__origin__", None)
    if origin is dict:
        return kind.__args__[1]
    if is_struct(kind):
        fields = msgspec.structs.fields(kind)
        return next((field.type for field in fields if field.encode_name == key), None)
    return None
