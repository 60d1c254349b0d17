"""What an agent is asked (a turn) and where the question belongs (a binding)."""

from datetime import datetime

from openclaw_a2a.model.ids import (
    AccountId,
    AgentId,
    ContextId,
    Json,
    MessageId,
    PeerName,
    RunId,
    SessionKey,
    TaskId,
)
from openclaw_a2a.model.message import JsonStruct, Message
from openclaw_a2a.model.task import Task


class Scope(JsonStruct, frozen=True):
    """Who asks, at which account's door. Every look into the store is limited to one."""

    principal: PeerName
    account: AccountId


class Peer(JsonStruct, frozen=True):
    """The other side of the conversation, and how we know who it is."""

    id: str
    source: str
    kind: str = "direct"


class Binding(JsonStruct, frozen=True, omit_defaults=False):
    """The route of a task to its agent, made once and stored with the task."""

    agent_id: AgentId
    account_id: AccountId
    session_key: SessionKey
    main_session_key: SessionKey
    peer: Peer
    created_at: datetime
    updated_at: datetime
    matched_by: str = "default"
    store_path: str = ""
    channel: str = "a2a"
    schema_version: int = 1


class Provenance(JsonStruct, frozen=True):
    """Which agent of ours asks, and through whom it came to that.

    `chain` are the agents from the first caller to the last. `may_announce`: the agent's host
    also sends the answer to the agent's own channel.
    """

    tool: str
    session_key: SessionKey
    skill: str = ""
    mode: str = ""
    correlation_id: str = ""
    chain: tuple[AgentId, ...] = ()
    may_announce: bool = False


class Turn(JsonStruct, frozen=True):
    """One question to an agent, with everything it may want to know.

    `body` is what the agent should answer; `untrusted` holds labelled notes about metadata and
    structured data that came from the peer and must never be read as instructions. `resume` is
    the token the agent itself gave when it paused the task that this message answers.
    `may_approve` is true when this caller may decide what else only the operator decides.
    `provenance` is there when another agent of this gateway asks.
    """

    run_id: RunId
    task_id: TaskId
    context_id: ContextId
    message: Message
    binding: Binding
    principal: PeerName
    body: str
    raw_body: str = ""
    untrusted: tuple[str, ...] = ()
    keeps_origin: bool = False
    reference_tasks: tuple[Task, ...] = ()
    accepted_output_modes: tuple[str, ...] = ()
    attempt: int = 1
    resume: Json = None
    may_approve: bool = False
    provenance: Provenance | None = None

    @property
    def agent_id(self) -> AgentId:
        """The agent this turn is for."""
        return self.binding.agent_id

    @property
    def session_key(self) -> SessionKey:
        """The agent's conversation that this turn continues."""
        return self.binding.session_key

    @property
    def sender(self) -> str:
        """Who asks, as an address of this channel."""
        return f"a2a:{self.binding.peer.id}"

    @property
    def recipient(self) -> str:
        """Who is asked, as an address of this channel."""
        return f"a2a:{self.binding.account_id}"

    @property
    def originating_channel(self) -> str | None:
        """The channel that later replies go back to, when the account routes by origin."""
        return self.binding.channel if self.keeps_origin else None

    @property
    def originating_to(self) -> str | None:
        """Whom later replies go back to, when the account routes by origin."""
        return self.sender if self.keeps_origin else None

    @property
    def message_id(self) -> MessageId:
        """The id the peer gave its message."""
        return self.message.message_id

    @property
    def thread_id(self) -> TaskId:
        """The local task id; later replies of the agent name it."""
        return self.task_id


CHAIN_KEY = "openclaw/v1/chain"
"""Where the chain travels in the metadata of A2A messages: the ids of the agents, first first."""

CHAIN_HOSTS_KEY = "openclaw/v1/chainHosts"
"""Beside it, on which gateway each of them lives: half the world's agents are called `main`."""

BETWEEN_GATEWAYS = frozenset({CHAIN_KEY, CHAIN_HOSTS_KEY})
"""Metadata that gateways tell each other, and that says nothing to an agent."""
