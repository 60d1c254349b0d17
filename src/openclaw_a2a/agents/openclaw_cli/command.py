"""The command line of a turn: which session it continues, and what it says."""

import re
from collections.abc import Iterable

import msgspec

from openclaw_a2a.engine.transcript.content import replace_lone_surrogates
from openclaw_a2a.model.ids import SessionKey
from openclaw_a2a.model.message import Part

_OUTSIDE = re.compile(r"[^a-z0-9_-]+")
_MOST_KEPT = 60
MAX_ARGUMENT_BYTES = 100_000
"""Bytes of a message that still go on the command line; longer ones go by file."""


class CliSession(msgspec.Struct, frozen=True):
    """Which conversation a turn continues: one with a plain id, or one by its whole key."""

    id: str = ""
    key: str = ""

    @property
    def arguments(self) -> tuple[str, ...]:
        """How the command names it."""
        return ("--session-key", self.key) if self.key else ("--session-id", self.id)


class CliRequest(msgspec.Struct, frozen=True):
    """What one run of the command is asked. `agent_id` empty: OpenClaw chooses."""

    text: str
    session: CliSession
    agent_id: str = ""
    run_id: str = ""


def build_command(
    program: str, question: CliRequest, *, thinking: str, is_local: bool, message_file: str = ""
) -> tuple[str, ...]:
    """The arguments of the command. A message that is in `message_file` is left out."""
    message = ("--message-file", message_file) if message_file else ("--message", question.text)
    return (
        program,
        "agent",
        *(("--local",) if is_local else ()),
        *message,
        "--json",
        *question.session.arguments,
        "--thinking",
        thinking,
        *(("--agent", question.agent_id) if question.agent_id else ()),
    )


def message_text(parts: Iterable[Part]) -> str:
    """The text parts, each stripped, joined by one space."""
    texts = (part.text.strip() for part in parts if part.text is not None)
    return argument_text(" ".join(text for text in texts if text))


def argument_text(text: str) -> str:
    """The text with what no argument can carry (NUL, lone surrogates) marked as lost."""
    return replace_lone_surrogates(text.replace("\0", "\ufffd"))


def context_session_id(context_id: str | None, default: str) -> str:
    """The session id for a context; `default` when the context has no name to speak of."""
    name = _OUTSIDE.sub("-", (context_id or "").lower()).strip("-")
    return f"a2a-{name[:_MOST_KEPT]}" if name else default


def agent_session(session_key: SessionKey, agent_id: str) -> CliSession:
    """The session with this key, as OpenClaw's agent `agent_id` has it.

    OpenClaw refuses a key that names another agent than the one that is asked.
    """
    rest = session_key.split(":", 2)[2]
    return CliSession(key=f"agent:{agent_id.lower()}:{rest}")


def peer_session(session_key: SessionKey, agent_id: str | None) -> CliSession:
    """The session with this key; without an agent's name, of the agent that OpenClaw chooses."""
    if agent_id:
        return agent_session(session_key, agent_id)
    return CliSession(key=session_key.split(":", 2)[2])
