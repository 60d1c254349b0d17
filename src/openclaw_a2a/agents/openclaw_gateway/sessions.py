"""The names of our sessions inside OpenClaw, and what OpenClaw says of a session."""

from contextlib import suppress
from typing import Final

from msgspec import Raw

from openclaw_a2a.agents.openclaw_gateway.connection import GatewayConnection
from openclaw_a2a.agents.openclaw_gateway.protocol import Wire, decode_as
from openclaw_a2a.model.errors import AgentFailed, AgentUnavailable
from openclaw_a2a.model.ids import JsonObject, SessionKey

_ASK_S: Final = 20.0
_MAIN: Final = "main"
_NULL: Final = Raw(b"null")
_NO_CHANNELS: Final = frozenset({"", "webchat", "internal", "none"})
"""Where a session's words are seen without being sent anywhere."""


def openclaw_session_key(session_key: SessionKey, agent_id: str) -> str:
    """The key under which OpenClaw's agent `agent_id` keeps our session.

    OpenClaw refuses a key that begins with another agent's id. Where our agent has another name
    than OpenClaw's, that name stays in the key: two agents of ours never share a session, except
    for the one main session that OpenClaw's agent has.
    """
    _, own_id, rest = session_key.lower().split(":", 2)
    wanted = agent_id.lower()
    if own_id == wanted:
        return session_key.lower()
    if rest == _MAIN:
        return main_session_key(wanted)
    return f"agent:{wanted}:via-{own_id}:{rest}"


def main_session_key(agent_id: str) -> str:
    """The main session of an agent of OpenClaw. It is there even before anybody used it."""
    return f"agent:{agent_id}:{_MAIN}"


def session_agent_id(session_key: str) -> str:
    """The agent of OpenClaw that a session's key names; empty when it names none."""
    kind, _, rest = session_key.lower().partition(":")
    return rest.partition(":")[0] if kind == "agent" else ""


class ReplyRoute(Wire, frozen=True):
    """The conversation elsewhere, such as a chat, in which a session's replies are read."""

    channel: str = ""
    to: str = ""
    account_id: str | None = None
    thread_id: str | int | None = None

    @property
    def is_outside(self) -> bool:
        """True when replies have to be sent there to be read."""
        return bool(self.to) and self.channel not in _NO_CHANNELS

    @property
    def params(self) -> JsonObject:
        """The parameters of `agent` that have the turn's reply sent there, if that is possible."""
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
        """Where its replies are read, when that is elsewhere."""
        route = decode_as(ReplyRoute, self.delivery_context)
        return route if route is not None and route.is_outside else None


class _Described(Wire, frozen=True):
    session: SessionInfo | None


async def find_session(link: GatewayConnection, session_key: str) -> SessionInfo | None:
    """The session; None when OpenClaw has none under this key.

    Where OpenClaw does not describe sessions, every session is there and nothing is known of it.
    Raises: AgentUnavailable.
    """
    params: JsonObject = {"key": session_key}
    try:
        answer = await link.read(_Described, "sessions.describe", params, timeout_s=_ASK_S)
    except AgentFailed:
        return SessionInfo()
    if answer.session is None and session_key == main_session_key(session_agent_id(session_key)):
        return SessionInfo()
    return answer.session


async def announce_params(link: GatewayConnection, session_key: str) -> JsonObject:
    """The parameters of `agent` that also send its reply to the agent's own channel.

    That is where the session's replies are read, else those of the agent's main session, else
    what OpenClaw takes by default.
    """
    for key in dict.fromkeys((session_key, main_session_key(session_agent_id(session_key)))):
        with suppress(AgentUnavailable):
            found = await find_session(link, key)
            if found is not None and found.route is not None:
                return found.route.params
    return {"deliver": True, "bestEffortDeliver": True}
