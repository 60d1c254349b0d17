"""The options of the `openclaw` command, and the command line for a turn."""

import re
from collections.abc import Iterable
from typing import Annotated, Literal, get_args

import msgspec

from openclaw_a2a.engine.transcript.assistant_message import replace_lone_surrogates
from openclaw_a2a.model.ids import SessionKey
from openclaw_a2a.model.message import Part
from openclaw_a2a.settings.sections import Amount, Count, Seconds, Section, Text, about

Thinking = Literal["off", "minimal", "low", "medium", "high", "xhigh"]
THINKING_LEVELS: tuple[str, ...] = get_args(Thinking)  # the levels that `--thinking` may be given

GatewayMode = bool | Literal["auto"]


class OpenClawCliOptions(Section, frozen=True):
    """How to run the `openclaw` command for a turn."""

    agent_id: Annotated[
        str, about("Which OpenClaw agent answers; left out: the one with this agent's id.")
    ] = ""
    thinking: Annotated[Thinking, about("How hard the model thinks.")] = "low"
    timeout: Annotated[Seconds, about("How many seconds one turn may take.")] = 300.0
    openclaw_path: Annotated[Text, about("The `openclaw` program, by name or path.")] = "openclaw"
    working_directory: Annotated[str, about("Directory to run in; left out: the gateway's.")] = ""
    env: Annotated[dict[str, str], about("Variables added to the gateway's own environment.")] = (
        msgspec.field(default_factory=dict)
    )
    gateway_mode: Annotated[
        GatewayMode,
        about(
            "Ask a running OpenClaw gateway (true), never (false), or only when one holds the state"
            " directory (auto)."
        ),
    ] = "auto"
    max_output_bytes: Annotated[Count, about("Most a turn may write.")] = 64 * 1024 * 1024
    kill_grace_seconds: Annotated[Amount, about("Time between SIGTERM and SIGKILL.")] = 4.0


_UNSAFE = re.compile(r"[^a-z0-9_-]+")
_MAX_NAME = 60
MAX_ARGUMENT_BYTES = 100_000  # a longer message is given in a file


class CliSession(msgspec.Struct, frozen=True):
    """The OpenClaw session that a turn continues: by its id, or by its whole key."""

    id: str = ""
    key: str = ""


class CliRequest(msgspec.Struct, frozen=True):
    """The input of one run of the command. `agent_id` empty: OpenClaw chooses."""

    text: str
    session: CliSession
    agent_id: str = ""
    run_id: str = ""


def build_command(
    options: OpenClawCliOptions, request: CliRequest, *, is_local: bool, message_file: str = ""
) -> tuple[str, ...]:
    """The command line. The message is an argument unless there is a `message_file`."""
    session = request.session
    return (
        options.openclaw_path,
        "agent",
        *(("--local",) if is_local else ()),
        *(("--message-file", message_file) if message_file else ("--message", request.text)),
        "--json",
        *(("--session-key", session.key) if session.key else ("--session-id", session.id)),
        *("--thinking", options.thinking),
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
    """The session with this key under `agent_id`; OpenClaw refuses a key of another agent."""
    rest = session_key.split(":", 2)[2]
    return CliSession(key=f"agent:{agent_id.lower()}:{rest}")


def peer_session(session_key: SessionKey, agent_id: str | None) -> CliSession:
    """The session with this key; without an agent id, under the agent that OpenClaw chooses."""
    if agent_id:
        return agent_session(session_key, agent_id)
    return CliSession(key=session_key.split(":", 2)[2])
