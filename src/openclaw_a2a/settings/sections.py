"""The effective settings as frozen structs: every key with its type, limits and default."""

import hashlib
import hmac
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal, NoReturn, get_args

import msgspec
from msgspec import Meta

from openclaw_a2a.model.card import AgentProfile, AgentSkill
from openclaw_a2a.model.ids import AccountId, AgentId, JsonObject, PeerName
from openclaw_a2a.model.skill import Skill

_HIDDEN = "(hidden)"


class Secret:
    """A token that was given as a reference or a hash; only its SHA-256 digest is kept.

    `source` says where it came from (`env:NAME`, `file:PATH` or `sha256`) and is safe to show.
    Printing, formatting or encoding a secret never shows the digest.
    """

    __slots__ = ("_digest", "source")

    def __init__(self, source: str, digest: bytes) -> None:
        self.source = source
        self._digest = digest

    @classmethod
    def from_text(cls, source: str, text: str) -> "Secret":
        """The secret whose token is `text`."""
        return cls(source, hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest())

    @property
    def digest(self) -> bytes:
        """SHA-256 of the token, for looking a caller up; 32 bytes."""
        return self._digest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._digest, other.digest)

    def __hash__(self) -> int:
        return hash(self._digest)

    def __repr__(self) -> str:
        return f"Secret({self.source}, {_HIDDEN})"

    def __str__(self) -> str:
        return _HIDDEN

    def __reduce__(self) -> NoReturn:
        raise TypeError("A secret is not written anywhere.")


_MOST = 2**31 - 1

Count = Annotated[int, Meta(ge=1, le=_MOST)]
CountOrZero = Annotated[int, Meta(ge=0, le=_MOST)]
Seconds = Annotated[float, Meta(gt=0, le=_MOST)]
Amount = Annotated[float, Meta(ge=0, le=_MOST)]
Text = Annotated[str, Meta(min_length=1)]


def about(description: str) -> Meta:
    """The description of a key, for the JSON Schema and the reference."""
    return Meta(description=description)


class Section(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Root of the parts of the settings: frozen, camelCase in the file, no unknown keys."""


class ServerSettings(Section, frozen=True):
    """Where the gateway listens and how it is reached (`public_base_url` is empty for nowhere)."""

    host: Annotated[Text, about("Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="0 takes any free port.")] = 9900
    public_base_url: Annotated[
        str,
        about(
            "Address that callers use; left out: host and port, or where the host stands for every "
            "address the one by which a card is asked for; empty: none."
        ),
    ] = ""
    trusted_proxies: Annotated[
        tuple[Text, ...],
        about(
            "Addresses and networks of reverse proxies. From them `X-Forwarded-For` and the header "
            "of client certificates are believed, from no other client."
        ),
    ] = ()
    stop_seconds: Annotated[Amount, about("How long runs may continue after a stop.")] = 10.0
    heartbeat_seconds: Annotated[Seconds, about("Pause between stream comments.")] = 15.0
    header_seconds: Annotated[Seconds, about("Time a request's headers have to arrive.")] = 10.0
    body_seconds: Annotated[Seconds, about("Time a request's body has to arrive.")] = 30.0
    idle_seconds: Annotated[Seconds, about("Time a connection stays open without a request.")] = (
        75.0
    )
    send_seconds: Annotated[
        Seconds, about("Time a client may leave what was sent to it unread; then it is cut off.")
    ] = 30.0


class StoreKind(Enum):
    """The kinds of store this version has."""

    MEMORY = "memory"
    JSON_FILE = "json-file"
    SQLITE = "sqlite"
    POSTGRES = "postgres"


class StoreSettings(Section, frozen=True):
    """Where tasks are kept. `path` is a file for sqlite, a folder for json-file.

    A postgres store has a `url`, in which there is no password unless it is a reference itself.
    """

    kind: StoreKind = StoreKind.SQLITE
    path: Path | None = None
    url: str | None = None
    password: str | None = None
    schema: str = "openclaw_a2a"
    connections: int = 8
    replicas: bool = False
    replica_name: str = ""

    @property
    def place(self) -> str:
        """Where it is, for people; empty for one in memory."""
        if self.kind is not StoreKind.POSTGRES:
            return "" if self.path is None else str(self.path)
        name = (self.url or "").partition("?")[0]
        return name if self.schema == "openclaw_a2a" else f"{name} (schema {self.schema})"


class AgentSettings(Section, frozen=True):
    """One agent: its adapter, and the adapter's options as written.

    A token among the options is a reference that the adapter resolves when it needs it, so nothing
    here is secret. `profile` is what OpenClaw's config says about the agent. `is_placeholder` is
    true for the echo agent of settings without agents. `skills` are what other agents may call it
    for; without any they may send anything. `allowed_targets` are patterns of the agents that it
    may call; None: all agents that take part in calls. `folder` is that of the settings file, from
    which functions are imported. `replicas` are the names of the gateways that have the agent, of
    several on one store; empty: all. While none of them runs, messages are refused or wait
    (`when_no_replica`).
    """

    adapter: str
    options: JsonObject = {}
    profile: AgentProfile = AgentProfile()
    is_placeholder: bool = False
    skills: tuple[Skill, ...] = ()
    allowed_targets: tuple[str, ...] | None = None
    folder: Path | None = None
    replicas: tuple[str, ...] = ()
    when_no_replica: Literal["refuse", "queue"] = "refuse"


class Limits(Section, frozen=True):
    """Upper bounds; a request beyond one of them gets an error that names the setting.

    What one peer may have of a total is less than the total, so that another one always finds
    some. `local`, the only caller of a gateway without peers, may have all.
    """

    runs: Annotated[Count, about("Runs at the same time.")] = 64
    queue: Annotated[Count, about("Runs that wait for their turn.")] = 1000
    per_agent_runs: Annotated[
        Count | None, about("Runs of one agent at the same time; left out: as many as runs.")
    ] = None
    per_peer_runs: Annotated[
        Count | None, about("Runs of one peer at the same time; left out: a quarter of runs.")
    ] = None
    per_peer_queue: Annotated[
        Count | None, about("Waiting runs of one peer; left out: a quarter of queue.")
    ] = None
    per_peer_held: Annotated[
        Count, about("Tasks of one peer that wait for the operator's approval.")
    ] = 16
    per_peer_rate: Annotated[Amount, about("Requests of one peer a second; 0: any.")] = 200.0
    per_peer_requests: Annotated[Amount, about("Requests of one peer a minute; 0: any.")] = 6000.0
    session_queue: Annotated[Count, about("Waiting runs of one session.")] = 100
    streams: Annotated[Count, about("Open streams.")] = 5000
    per_peer_streams: Annotated[
        Count | None, about("Open streams of one peer; left out: a quarter of streams.")
    ] = None
    connections: Annotated[Count, about("Open connections.")] = 8192
    per_address_connections: Annotated[
        Count | None,
        about(
            "Open connections of one address (IPv6: of one /64 network); left out: 256, and any "
            "number from this machine, where a proxy may be."
        ),
    ] = None
    per_address_failures: Annotated[
        Count, about("Wrong credentials a minute from one address (IPv6: from one /64 network).")
    ] = 30
    headers: Annotated[Count, about("Headers of one request.")] = 100
    header_bytes: Annotated[
        Annotated[int, Meta(ge=256, le=_MOST)],
        about("Size of the headers of one request, its first line included."),
    ] = 32 * 1024
    bodies_bytes: Annotated[
        Count,
        about("Large request bodies in memory until they are decoded; of one peer a quarter."),
    ] = 256 * 1024 * 1024
    answer_bytes: Annotated[
        Count,
        about(
            "Large answers in memory until they are read; of one peer half of it, or one answer."
            " For events and other answers: past it clients that do not read are cut off."
        ),
    ] = 256 * 1024 * 1024
    unsent_bytes: Annotated[
        Count, about("Bytes that wait for clients that do not read; past it some are cut off.")
    ] = 64 * 1024 * 1024
    connection_unsent_bytes: Annotated[
        Annotated[int, Meta(ge=1024 * 1024, le=_MOST)],
        about("Such bytes of one connection. What is on its way to a client that reads is less."),
    ] = 16 * 1024 * 1024
    parts: Annotated[Count, about("Parts of one message.")] = 1000
    body_values: Annotated[
        Count,
        about("JSON values of one request of more than 64 KiB, numbers and strings included."),
    ] = 25_000
    part_bytes: Annotated[Count, about("Size of one part; of a file, without its encoding.")] = (
        16 * 1024 * 1024
    )
    pending_calls: Annotated[Count, about("Calls between agents that have no outcome yet.")] = 1000
    per_agent_calls: Annotated[
        Count | None, about("Such calls of one agent; left out: a quarter of pendingCalls.")
    ] = None
    reference_tasks: Annotated[Count, about("Tasks that one message refers to.")] = 16
    reference_bytes: Annotated[
        Count, about("Size of the tasks that a message refers to; larger ones are left out.")
    ] = 8 * 1024 * 1024
    history_messages: Annotated[Count, about("Messages of one task.")] = 10_000
    queued_replies: Annotated[Count, about("Queued replies of one task.")] = 1000
    artifact_bytes: Annotated[Count, about("Size of one artifact.")] = 64 * 1024 * 1024
    event_bytes: Annotated[Count, about("Size of one event.")] = 8 * 1024 * 1024
    run_seconds: Annotated[Seconds, about("Deadline of one run.")] = 3600.0
    cancel_seconds: Annotated[Seconds, about("Time a run has to stop.")] = 10.0
    join_deltas: Annotated[bool, about("Join pieces of text that arrive during a write.")] = True
    inflight_events: Annotated[Count, about("Events of one run that wait to be written.")] = 256

    @staticmethod
    def share(of_one: int | None, total: int) -> int:
        """What one peer may have of a total: what is set for it, else a quarter."""
        return of_one or max(1, total // 4)


class RetentionSettings(Section, frozen=True):
    """What is forgotten, and when."""

    ended_seconds: Annotated[Seconds, about("Age at which ended tasks are deleted.")] = 2_592_000
    keep_ended: Annotated[CountOrZero, about("Most ended tasks kept.")] = 1_000_000
    message_seconds: Annotated[
        Amount,
        about("How long message ids are known; 0: not at all, all messages are new (no replicas)."),
    ] = 86_400
    objective_seconds: Annotated[
        Seconds, about("Age since their last change at which ended objectives are deleted.")
    ] = 7_776_000
    held_seconds: Annotated[
        Seconds, about("Age at which tasks that wait for the operator's approval are rejected.")
    ] = 604_800
    sweep_seconds: Annotated[Seconds, about("Pause between two sweeps.")] = 60.0


class LeaseSettings(Section, frozen=True):
    """How long a replica owns what it works on without a sign of life."""

    seconds: Annotated[float, Meta(ge=1, le=86_400)] = 15.0


class PushSettings(Section, frozen=True):
    """How push notifications are delivered to webhooks."""

    allow_private: Annotated[
        bool, about("Webhooks may be at private addresses, such as this machine.")
    ] = False
    timeout_seconds: Annotated[Seconds, about("Time a webhook has to answer.")] = 30.0
    attempts: Annotated[Count, about("Tries before a delivery is given up.")] = 12
    backoff_seconds: Annotated[Seconds, about("Pause before the second try.")] = 1.0
    most_backoff_seconds: Annotated[Seconds, about("Longest pause.")] = 3600.0
    parallel: Annotated[Count, about("Deliveries at the same time.")] = 32
    per_task: Annotated[Count, about("Configurations of one task.")] = 16


class AgentToAgentSettings(Section, frozen=True):
    """Which agents may call each other, and how long chains of calls may be."""

    enabled: Annotated[bool, about("Offer the tools with which agents call others.")] = False
    allow: Annotated[
        tuple[Text, ...], about("Agents that may call and be called: ids, or patterns with *.")
    ] = ()
    max_depth: Annotated[
        int, Meta(ge=1, le=20, description="Longest chain of agents that call each other.")
    ] = 5
    max_ping_pong_turns: Annotated[
        int, Meta(ge=0, le=20, description="How often two sessions may call back and forth.")
    ] = 5


class ToolSettings(Section, frozen=True):
    """How tools are offered to agents, programs and people; each caller needs a tool token."""

    http: Annotated[bool, about("Offer tools at /tools.")] = True
    mcp: Annotated[bool, about("Offer tools over MCP at /mcp.")] = True
    body_bytes: Annotated[Count, about("Largest request body.")] = 4 * 1024 * 1024
    per_token_calls: Annotated[Count, about("Calls with one token at the same time.")] = 32
    sessions: Annotated[Count, about("Open MCP sessions.")] = 256
    per_token_sessions: Annotated[
        Count | None, about("Those of one token; left out: a quarter of sessions.")
    ] = None
    session_idle_seconds: Annotated[
        Seconds, about("Time after which an MCP session without a request or a stream ends.")
    ] = 1800.0
    agent_to_agent: AgentToAgentSettings = AgentToAgentSettings()


class WebhookSettings(Section, frozen=True, omit_defaults=True):
    """Where the answers for one caller are posted; `token` is a reference, read when needed."""

    url: Annotated[Text, about("An http(s) address; answers are posted to it.")]
    token: Annotated[str, about("Bearer token that is shown there: env:NAME or file:PATH.")] = ""


class ResponseRoutingSettings(Section, frozen=True):
    """How the answers of calls come back to their callers."""

    enabled: Annotated[bool, about("Bring answers to the session that called.")] = True
    default_timeout_ms: Annotated[
        Count, about("Time a call has when neither it nor its skill says so.")
    ] = 60_000
    max_timeout_ms: Annotated[Count, about("Most time a call may ask for.")] = 300_000
    dual_delivery: Annotated[
        bool, about("Agents that are called also answer in their own channel.")
    ] = False
    webhooks: dict[str, WebhookSettings] = {}


class PlanningSettings(Section, frozen=True):
    """Whether objectives, plans and their steps are kept, how many, and how they are carried out.

    `directory` is complete in settings that were loaded.
    """

    enabled: Annotated[bool, about("Offer objectives, plans and their steps.")] = False
    require_activation: Annotated[
        bool, about("Only for callers that name the extension with their request.")
    ] = True
    directory: Annotated[str, about("Folder of their files, where the store is json-file.")] = ""
    max_objectives: Annotated[Count, about("Objectives that have not ended.")] = 10_000
    max_objectives_per_peer: Annotated[
        Count | None, about("Those of one peer; left out: a quarter of maxObjectives.")
    ] = None
    max_plans_per_objective: Annotated[Count, about("Plans of one objective.")] = 10
    max_tasks_per_plan: Annotated[Count, about("Steps of one plan.")] = 50
    parallel: Annotated[Count, about("Steps of one objective that run at the same time.")] = 4
    retries: Annotated[
        int, Meta(ge=0, le=100, description="How often a step that failed is tried again.")
    ] = 0
    backoff_seconds: Annotated[
        Amount, about("Pause before the first retry; it doubles with each.")
    ] = 5.0
    tools: Annotated[bool, about("Offer the tools with which agents plan.")] = False
    planner: Annotated[str, about("The agent that makes plans for objectives without any.")] = ""
    agents: Annotated[
        tuple[Text, ...],
        about("Agents that steps of peers may name beside their own: ids, or with *."),
    ] = ()


class PolicyRuleSettings(Section, frozen=True):
    """What becomes of messages that fit every condition; a condition left out fits any."""

    decision: Annotated[
        Literal["allow", "deny", "ask"],
        about("`deny`: refused with an error; `ask`: held until the operator decides."),
    ]
    callers: Annotated[tuple[Text, ...], about("Peers: names, or patterns with *.")] = ()
    accounts: Annotated[tuple[Text, ...], about("Accounts: ids, or patterns with *.")] = ()
    agents: Annotated[tuple[Text, ...], about("Agents: ids, or patterns with *.")] = ()
    skills: Annotated[
        tuple[Text, ...], about("Skills that the message names in its metadata, or patterns.")
    ] = ()
    min_bytes: Annotated[CountOrZero, about("Only messages of at least this size.")] = 0
    hours: Annotated[
        str,
        Meta(pattern=r"^((?:[01]?[0-9]|2[0-3])-(?:[01]?[0-9]|2[0-4]))?$"),
        about('Hours of the day in UTC, such as "22-6"; empty: any.'),
    ] = ""
    days: Annotated[
        tuple[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"], ...],
        about("Days of the week in UTC: mon to sun."),
    ] = ()
    reason: Annotated[str, about("The text that the peer gets.")] = ""


class PolicySettings(Section, frozen=True):
    """Which messages of peers are accepted. The first rule that fits decides."""

    rules: Annotated[
        tuple[PolicyRuleSettings, ...], about("In this order; where none fits, it is allowed.")
    ] = ()
    callable: Annotated[
        str,
        about('A function that decides where no rule does: "module:function".'),
        Meta(pattern=r"^([\w.]+:[\w.]+)?$"),
    ] = ""


class AuditSettings(Section, frozen=True):
    """How much of the audit log is kept."""

    max_bytes: Annotated[
        int, Meta(ge=4096, le=_MOST, description="Size at which a new file is begun.")
    ] = 16 * 1024 * 1024
    keep_files: Annotated[
        int, Meta(ge=1, le=10_000, description="Full files that are kept beside the current one.")
    ] = 10


class EncryptionSettings(Section, frozen=True):
    """Encryption at rest of deliveries (webhooks and their credentials), calls and handles."""

    keys: Annotated[
        tuple[str, ...],
        about(
            "Keys of 32 bytes in base64, each as `env:NAME` or `file:PATH`. The first one writes, "
            "all of them read."
        ),
    ] = ()


class SecuritySettings(Section, frozen=True):
    """What protects stored data."""

    encryption: EncryptionSettings = EncryptionSettings()


class DashboardSettings(Section, frozen=True):
    """The pages for browsers."""

    enabled: Annotated[bool, about("False: there are no pages.")] = True
    read_only: Annotated[bool, about("True: the pages show everything and change nothing.")] = False
    session_seconds: Annotated[
        Seconds, about("How long a browser stays signed in without being used.")
    ] = 12 * 3600.0
    wire_exchanges: Annotated[
        int,
        Meta(
            ge=0,
            le=10_000,
            description="How many of the newest A2A requests are held in memory with their answers,"
            " for the pages of tasks, each with 64 KiB at most. 0: none.",
        ),
    ] = 256


class LogSettings(Section, frozen=True):
    """What is written to the log, and how."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "pretty", "json"] = "auto"


class AgentStyle(Enum):
    """When an answer becomes a task."""

    HYBRID = "hybrid"
    TASK_GENERATING = "task-generating"


class OriginRoutingPolicy(Enum):
    """Whether the prompt of the agent names the origin of the message."""

    SUPPRESS_GENERIC_FOLLOWUP = "suppress-generic-followup"
    LEGACY_ORIGIN_ROUTING = "legacy-origin-routing"


class Account(Section, frozen=True):
    """One account of the channel, with defaults for what was left out.

    `task_store` is None when the account uses the gateway's store. `agent_card_alias` is a second
    address of the card. `not_running_reason` says why the account is off; None: it runs.
    `customized` names those of label, description and skills that were set: for the others the
    card uses what the agent says about itself. `follows_host`: no public address is set and none
    can be known, so the card names the address by which it is asked for.
    """

    id: AccountId
    enabled: bool
    label: str
    description: str
    public_base_url: str | None
    default_agent_id: AgentId
    protocol_version: str
    agent_card_path: str
    json_rpc_path: str
    rest_path: str
    max_body_bytes: int
    default_input_modes: tuple[str, ...]
    default_output_modes: tuple[str, ...]
    push_notifications: bool
    agent_style: AgentStyle
    origin_routing_policy: OriginRoutingPolicy
    skills: tuple[AgentSkill, ...]
    task_store: StoreSettings | None = None
    agent_card_alias: str | None = None
    session_store: str | None = None
    not_running_reason: str | None = None
    strict03: bool = False
    allowed_agents: tuple[str, ...] | None = None
    """Agents that steps of objectives at this account may name; None: any that `opt` allows."""
    allowed_skills: tuple[str, ...] | None = None
    """Skills that messages to this account may name; None: any."""
    customized: tuple[str, ...] = ()
    follows_host: bool = False

    @property
    def is_running(self) -> bool:
        """True when the account's addresses answer."""
        return self.not_running_reason is None


class PeerSettings(Section, frozen=True):
    """A known caller and the tokens it may show; several, so that they can be changed."""

    name: PeerName
    tokens: tuple[Secret, ...]
    may_approve: bool = False
    """True: this peer may allow commands on this machine."""
    certificates: tuple[str, ...] = ()
    """Fingerprints or subjects of its client certificates, as a trusted proxy names them."""


Algorithm = Literal[
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
    "Ed25519",
]
"""The algorithms of tokens: only those with key pairs, so a public key can never make a token."""

ScopeName = Literal["a2a", "tools", "dashboard", "admin"]


class OidcSettings(Section, frozen=True):
    """An issuer of JSON Web Tokens that callers may use. `name` is complete once loaded."""

    issuer: Annotated[Text, about("Its https address, exactly as its tokens have it in iss.")]
    audience: Annotated[
        tuple[Text, ...],
        Meta(min_length=1, description="What tokens for this gateway have in aud; one is enough."),
    ]
    name: Annotated[
        str, about("Stands before the subject in the names of callers; left out: its host.")
    ] = ""
    principal_claim: Annotated[Text, about("The claim that tells callers apart.")] = "sub"
    scope_claim: Annotated[Text, about("The claim with the scopes: a string or a list.")] = "scope"
    scopes: Annotated[
        dict[str, tuple[ScopeName, ...]],
        about("What each value of that claim allows; left out: every valid token allows a2a."),
    ] = {}
    accounts: Annotated[
        tuple[Text, ...] | None, about("Accounts that its callers may use; left out: all.")
    ] = None
    agents: Annotated[
        tuple[Text, ...] | None, about("Agents that its callers may use; left out: all.")
    ] = None
    algorithms: Annotated[
        tuple[Algorithm, ...], Meta(min_length=1, description="Algorithms of its signatures.")
    ] = get_args(Algorithm)
    clock_skew_seconds: Annotated[
        float, Meta(ge=0, le=600, description="How far its clock and ours may be apart.")
    ] = 60.0
    jwks_url: Annotated[
        str, about("Where its keys are; left out: where its discovery document says.")
    ] = ""

    @property
    def discovery_url(self) -> str:
        """Where it publishes its configuration (OpenID Connect Discovery 1.0, section 4)."""
        return self.issuer.rstrip("/") + "/.well-known/openid-configuration"


class Settings(Section, frozen=True):
    """Everything that can be set, complete and checked.

    `accounts` are in order of their ids; `agents` and `peers` are keyed by id and name. `openclaw`
    is that section as it was written; what comes of it is among the agents and accounts. `outbound`
    is as it was written, too: the part that calls remote agents reads it. `has_token_file`: a token
    for peers was made in the data folder.
    """

    data: Path
    server: ServerSettings
    store: StoreSettings
    agents: dict[AgentId, AgentSettings]
    accounts: tuple[Account, ...]
    peers: dict[PeerName, PeerSettings]
    limits: Limits
    retention: RetentionSettings
    lease: LeaseSettings
    log: LogSettings
    push: PushSettings = PushSettings()
    openclaw: JsonObject = {}
    outbound: JsonObject = {}
    tools: ToolSettings = ToolSettings(http=False, mcp=False)
    response_routing: ResponseRoutingSettings = ResponseRoutingSettings()
    opt: PlanningSettings = PlanningSettings()
    oidc: tuple[OidcSettings, ...] = ()
    audit: AuditSettings = AuditSettings()
    dashboard: DashboardSettings = DashboardSettings()
    security: SecuritySettings = SecuritySettings()
    client_certificate_header: str = ""
    has_token_file: bool = False
    policy: PolicySettings = PolicySettings()
    pairing: bool = False
    folder: Path | None = None
    """That of the settings file, from which the function of the policy is imported."""

    @property
    def default_account(self) -> Account:
        """The first account that is enabled, else the first."""
        return next((one for one in self.accounts if one.enabled), self.accounts[0])

    @property
    def is_open(self) -> bool:
        """True when no caller has to show a token."""
        return not self.peers and not self.oidc and not self.has_token_file
