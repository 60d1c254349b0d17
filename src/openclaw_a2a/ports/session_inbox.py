"""What is needed from a host whose sessions can be spoken to."""

from typing import Protocol, runtime_checkable

import msgspec

from openclaw_a2a.model.ids import SessionKey
from openclaw_a2a.ports.sender import DeliveryFailed


class SessionMessage(msgspec.Struct, frozen=True):
    """A message for somebody's own session, from another agent by way of the gateway.

    `id` is the same in every try. `is_fresh`: no earlier try, of this life or another, can have
    brought it.
    """

    id: str
    session_key: SessionKey
    text: str
    source_tool: str
    source_session: SessionKey
    is_first_attempt: bool


class MessageAccepted(msgspec.Struct, frozen=True):
    """The host has the note and will bring it up in the session."""


class SessionGone(msgspec.Struct, frozen=True):
    """There is no such session any more, and why we think so."""

    reason: str


@runtime_checkable
class SessionInbox(Protocol):
    """An agent in a host whose sessions can be spoken to."""

    def owns_session(self, session_key: SessionKey) -> bool:
        """True when the session is one of this agent's in its host, as its key tells."""
        ...

    def host_session_key(self, session_key: SessionKey) -> SessionKey | None:
        """How the host calls a session of ours with this agent; None before that is known."""
        ...

    async def deliver(
        self, note: SessionMessage
    ) -> "MessageAccepted | SessionGone | DeliveryFailed":
        """Put a note into a session, once: a repeated try changes nothing.

        A busy session gets it when its turn ends. It comes back as soon as the host has the note.
        """
        ...

    async def wait_processed(self, note: SessionMessage) -> bool:
        """Wait until the session's agent has dealt with a note; False: the host lost it."""
        ...
