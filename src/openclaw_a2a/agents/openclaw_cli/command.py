"""The command line for a turn: its session and its message."""

import re
from collections.abc import Iterable

import msgspec

from openclaw_a2a.engine.transcript.content import replace_lone_surrogates
from openclaw_a2a.model.ids import SessionKey
from openclaw_a2a.model.message import Part

_UNSAFE = re.compile(r"[^a-z0-9_-]+")
_MAX_NAME = 60
MAX_ARGUMENT_BYTES = 100_000
"""A longer message is given in a file."""


class CliSession(msgspec.Struct, frozen=True):
    """The OpenClaw session that a turn continues: by its id, or by its whole key."""

    id: str = ""
    key: str = ""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments that name it."""
        return ("--session-key", self.key) if self.key else ("--session-id", self.id)


class CliRequest(msgspec.Struct, frozen=True):
    """The input of one run of the command. `agent_id` empty: OpenClaw chooses."""

    text: str
    session: CliSession
    agent_id: str = ""
    run_id: str = ""


def build_command(
    program: str, request: CliRequest, *, thinking: str, is_local: bool, message_file: str = ""
) -> tuple[str, ...]:
    """The command line. The message is an argument unless there is a `message_file`."""
    message = ("--message-file", message_file) if message_file else ("--message", request.text)
    return (
        program,
        "agent",
        *(("--local",) if is_local else ()),
        *message,
        "--json",
        *request.session.arguments,
        "--thinking",
        thinking,
        *(("--agent", request.agent_id) if request.agent_id else ()),
    )


def message_text(parts: Iterable[Part]) -> str:
    """The text parts, each stripped, joined by one space."""
    texts = (part.text.strip() for part in parts if part.text is not None)
    return argument_text(" ".join(text for text in texts if text))


def argument_text(text: str) -> str:
    """The text; characters that no argument can hold (NUL, lone surrogates) are replaced."""
    return replace_lone_surrogates(text.replace("\0", "\ufffd"))


def context_session_id(context_id: str | None, default: str) -> str:
    """The session id for a context; `default` when no usable character of its id is left."""
    name = _UNSAFE.sub("-", (context_id or "").lower()).strip("-")
    return f"a2a-{name[:_MAX_NAME]}" if name else default


def agent_session(session_key: SessionKey, agent_id: str) -> CliSession:
    """The session with this key, under OpenClaw's agent `agent_id`.

    OpenClaw refuses a key that names an agent other than the requested one.
    """
    rest = session_key.split(":", 2)[2]
    return CliSession(key=f"agent:{agent_id.lower()}:{rest}")


def peer_session(session_key: SessionKey, agent_id: str | None) -> CliSession:
    """The session with this key; without an agent id, under the agent that OpenClaw chooses."""
    if agent_id:
        return agent_session(session_key, agent_id)
    return CliSession(key=session_key.split(":", 2)[2])
