"""One message to an agent (a turn), and the route of a task to its agent (a binding)."""

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
    """A caller of an account. Every read of the store on behalf of a caller is limited to one."""

    principal: PeerName
    account: AccountId


class Peer(JsonStruct, frozen=True):
    """The caller of a session, and how it was identified."""

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
    """The call of another agent of this gateway that made the turn.

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
    """One message to an agent, with its context.

    `body` is the text to answer; `untrusted` holds metadata and structured data of the peer as
    labelled notes, which are no instructions. `resume` is the token with which the agent paused
    the task that this message answers. `may_approve`: the caller may decide approvals.
    `provenance` is set when another agent of this gateway is the caller.
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
    def account(self) -> AccountId:
        """The account that the caller sent its message to."""
        return self.binding.account_id

    @property
    def session_key(self) -> SessionKey:
        """The agent's conversation that this turn continues."""
        return self.binding.session_key

    @property
    def sender(self) -> str:
        """The caller, as an address of this channel."""
        return f"a2a:{self.binding.peer.id}"

    @property
    def recipient(self) -> str:
        """The account, as an address of this channel."""
        return f"a2a:{self.binding.account_id}"

    @property
    def originating_channel(self) -> str | None:
        """The channel that later replies go back to, when the account routes by origin."""
        return self.binding.channel if self.keeps_origin else None

    @property
    def originating_to(self) -> str | None:
        """The receiver of later replies, when the account routes by origin."""
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
"""Metadata key of the call chain: the ids of the agents, from the first caller on."""

CHAIN_HOSTS_KEY = "openclaw/v1/chainHosts"
"""Metadata key of the gateway of each agent in the chain: agent ids are not globally unique."""

BETWEEN_GATEWAYS = frozenset({CHAIN_KEY, CHAIN_HOSTS_KEY})
"""Metadata between gateways, which agents do not get."""
