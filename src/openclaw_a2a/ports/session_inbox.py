"""The port to a host (an OpenClaw) whose sessions can receive messages."""

from enum import Enum
from typing import Protocol, runtime_checkable

import msgspec

from openclaw_a2a.model.ids import SessionKey
from openclaw_a2a.ports.sender import DeliveryFailed


class SessionMessage(msgspec.Struct, frozen=True):
    """A message for an agent's own session.

    `id` is the same in every attempt. `is_first_attempt`: no earlier attempt, of this process or
    a previous one, can have delivered it.
    """

    id: str
    session_key: SessionKey
    text: str
    source_tool: str
    source_session: SessionKey
    is_first_attempt: bool


class MessageAccepted(msgspec.Struct, frozen=True):
    """The host has the message and will process it in the session."""


class SessionGone(msgspec.Struct, frozen=True):
    """The host has no such session (any more)."""

    reason: str


class SessionPresence(Enum):
    """What a host knows of a session: nothing, that it exists, or that a run is active in it."""

    ABSENT = "absent"
    IDLE = "idle"
    ACTIVE = "active"


@runtime_checkable
class SessionInbox(Protocol):
    """An agent in a host whose sessions can receive messages."""

    @property
    def host(self) -> str:
        """The identity of the host, the same for all agents in it."""
        ...

    def owns_session(self, session_key: SessionKey) -> bool:
        """True when the session's key names this agent in its host."""
        ...

    def host_session_key(self, session_key: SessionKey) -> SessionKey | None:
        """The host's key for a session of ours with this agent; None before that is known."""
        ...

    async def locate_session(self, session_key: SessionKey) -> SessionPresence:
        """Whether this host has the session. Raises: AgentUnavailable."""
        ...

    async def deliver(
        self, message: SessionMessage
    ) -> "MessageAccepted | SessionGone | DeliveryFailed":
        """Put a message into a session, once: a repeated attempt changes nothing.

        Returns when the host has the message; a busy session processes it after its turn.
        """
        ...

    async def wait_processed(self, message: SessionMessage) -> bool:
        """Wait until the session's agent has processed a message; False: the host lost it."""
        ...
