"""Session keys inside OpenClaw, and what OpenClaw says about a session (`sessions.describe`)."""

from contextlib import suppress
from typing import Final

from msgspec import Raw

from openclaw_a2a.agents.openclaw_gateway.agent_directory import list_agents
from openclaw_a2a.agents.openclaw_gateway.connection import GatewayConnection
from openclaw_a2a.agents.openclaw_gateway.history import read_history
from openclaw_a2a.agents.openclaw_gateway.protocol import Wire, decode_as
from openclaw_a2a.model.errors import AgentFailed, AgentUnavailable
from openclaw_a2a.model.ids import AgentId, JsonObject, SessionKey
from openclaw_a2a.model.session_keys import main_session_key
from openclaw_a2a.ports import SessionPresence

_TIMEOUT_S: Final = 20.0
_NULL: Final = Raw(b"null")
_INTERNAL_CHANNELS: Final = frozenset({"", "webchat", "internal", "none"})
"""Channels whose users see the session itself, so that replies need not be sent to them."""


def openclaw_session_key(session_key: SessionKey, agent_id: str) -> str:
    """The key under which OpenClaw's agent `agent_id` keeps our session.

    OpenClaw refuses a key that starts with another agent's id. Where our agent has another name
    than OpenClaw's, that name stays in the key, so two of our agents never share a session, except
    for the one main session of OpenClaw's agent.
    """
    _, own_id, rest = session_key.lower().split(":", 2)
    wanted = agent_id.lower()
    if own_id == wanted:
        return session_key.lower()
    if rest == "main":
        return main_session_key(AgentId(wanted))
    return f"agent:{wanted}:via-{own_id}:{rest}"


def find_our_session(openclaw_key: str, agent_id: str) -> SessionKey | None:
    """The inverse of `openclaw_session_key`; None for a session that is not ours."""
    rest = openclaw_key.removeprefix(f"agent:{agent_id.lower()}:")
    if rest == openclaw_key:
        return None
    if rest.startswith("a2a:"):
        return SessionKey(openclaw_key)
    own_id, _, place = rest.removeprefix("via-").partition(":")
    is_ours = rest.startswith("via-") and place.startswith("a2a:")
    return SessionKey(f"agent:{own_id}:{place}") if is_ours else None


def session_agent_id(session_key: str) -> str:
    """The agent of OpenClaw that a session key names; empty when it names none."""
    kind, _, rest = session_key.lower().partition(":")
    return rest.partition(":")[0] if kind == "agent" else ""


def is_main_session(session_key: str) -> bool:
    """True for an agent's main session, which exists even before it was used."""
    return session_key == main_session_key(AgentId(session_agent_id(session_key)))


class ReplyRoute(Wire, frozen=True):
    """The chat outside OpenClaw in which a session's replies are read."""

    channel: str = ""
    to: str = ""
    account_id: str | None = None
    thread_id: str | int | None = None

    @property
    def is_external(self) -> bool:
        """True when replies have to be sent there to be read."""
        return bool(self.to) and self.channel not in _INTERNAL_CHANNELS

    @property
    def params(self) -> JsonObject:
        """The parameters of `agent` that also send the run's reply there, if possible."""
        named = {
            "channel": self.channel,
            "to": self.to,
            "accountId": self.account_id,
            "threadId": None if self.thread_id is None else str(self.thread_id),
        }
        known = {name: value for name, value in named.items() if value}
        return {"deliver": True, "bestEffortDeliver": True, **known}


class SessionInfo(Wire, frozen=True):
    """A session as OpenClaw describes it."""

    delivery_context: Raw = _NULL

    @property
    def route(self) -> ReplyRoute | None:
        """The external chat of the session; None when it has none."""
        route = decode_as(ReplyRoute, self.delivery_context)
        return route if route is not None and route.is_external else None


class _DescribeResponse(Wire, frozen=True):
    session: SessionInfo | None


async def describe_session(connection: GatewayConnection, session_key: str) -> SessionInfo | None:
    """The session; None when OpenClaw has none under this key. Raises: AgentUnavailable.

    An OpenClaw without `sessions.describe` is assumed to have every session, and every agent to
    have a main session.
    """
    try:
        session = await _describe(connection, session_key)
    except AgentFailed:
        return SessionInfo()
    return SessionInfo() if session is None and is_main_session(session_key) else session


async def locate_session(connection: GatewayConnection, session_key: str) -> SessionPresence:
    """Whether this OpenClaw has the session, and whether a run is active in it.

    A main session exists as soon as its agent does. Raises: AgentUnavailable, AgentFailed.
    """
    with suppress(AgentFailed):  # an OpenClaw without `sessions.describe`
        if await _describe(connection, session_key) is not None:
            # The description only has a stored status, which a crash leaves at `running`.
            history = await read_history(connection, session_key, limit=1)
            return SessionPresence.ACTIVE if history.has_active_run else SessionPresence.IDLE
        if not is_main_session(session_key):
            return SessionPresence.ABSENT
    agents = {agent.id.lower() for agent in await list_agents(connection)}
    is_here = session_agent_id(session_key) in agents
    return SessionPresence.IDLE if is_here else SessionPresence.ABSENT


async def _describe(connection: GatewayConnection, session_key: str) -> SessionInfo | None:
    params: JsonObject = {"key": session_key}
    response = await connection.read(
        _DescribeResponse, "sessions.describe", params, timeout_s=_TIMEOUT_S
    )
    return response.session


async def announce_params(connection: GatewayConnection, session_key: str) -> JsonObject:
    """The parameters of `agent` that also send its reply to a chat of the agent.

    The chat of the session, else that of the agent's main session, else OpenClaw's default.
    """
    main = main_session_key(AgentId(session_agent_id(session_key)))
    for key in dict.fromkeys((session_key, main)):
        with suppress(AgentUnavailable):
            found = await describe_session(connection, key)
            if found is not None and found.route is not None:
                return found.route.params
    return {"deliver": True, "bestEffortDeliver": True}
