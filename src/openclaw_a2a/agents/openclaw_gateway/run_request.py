"""What a run is asked: its session, the parameters of `agent`, the prompt text, and timeouts."""

from collections.abc import Sequence
from typing import Final

import msgspec

from openclaw_a2a.model.ids import JsonObject, TaskId
from openclaw_a2a.model.turn import Turn

_WHITESPACE: Final = (
    "\ufeff \t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u00a0\u1680\u2028\u2029\u202f\u205f\u3000"
    + "".join(map(chr, range(0x2000, 0x200B)))
)
"""What OpenClaw strips before it looks for a command, and other characters without content."""
_WORD_JOINER: Final = "\u2060"
"""An invisible character that OpenClaw does not strip: a text that starts with it is no command."""
_NOTES_BEGIN: Final = "--- Notes from the gateway about the peer's message ---"
_NOTES_END: Final = "--- End of notes ---"


class Timeouts(msgspec.Struct, frozen=True):
    """How long a turn waits for things, in seconds."""

    reconnect_s: float = 300.0
    """For a lost connection, or for a gateway that refuses requests as too busy."""
    recovery_s: float = 180.0
    """For a restarted gateway to resume an interrupted run."""
    silence_s: float = 120.0
    """Without any event before the run is looked up."""
    run_poll_s: float = 60.0
    """For one `agent.wait` of a live run."""
    lookup_poll_s: float = 5.0
    """For one `agent.wait` of a run that is not shown as live."""
    stop_s: float = 60.0
    """For an aborted run to end."""
    abort_retry_s: float = 5.0
    """Between two `chat.abort` requests."""


class SessionRef(msgspec.Struct, frozen=True):
    """A session of OpenClaw: its agent, its key, and the agent's workspace folder."""

    agent_id: str
    session_key: str
    workspace: str = ""


class RunRequest(msgspec.Struct, frozen=True):
    """A run: its task, where it runs, and the parameters of `agent`.

    `params` is None for a run that an earlier turn started. `open_calls` is set for a run that
    paused: the tool calls that were open then; earlier output was emitted before the pause.
    """

    task_id: TaskId
    run_id: str
    session: SessionRef
    params: JsonObject | None = None
    may_approve: bool = False
    open_calls: tuple[str, ...] | None = None


def escape_command(text: str) -> str:
    """The text in a form that OpenClaw does not execute as a command.

    OpenClaw runs `/new` and `/reset` as host commands, whoever sends them. A text that starts with
    a slash therefore gets an invisible first character.
    """
    if not text.strip(_WHITESPACE):
        return "(no text)"
    return _WORD_JOINER + text if text.lstrip(_WHITESPACE).startswith("/") else text


def build_prompt(turn: Turn, notes: Sequence[str] = ()) -> str:
    """The message text, with the peer's other content in a fenced block after it.

    A message from another agent of this gateway has no such block: it is not an untrusted peer.
    """
    text = escape_command(turn.body)
    untrusted = () if turn.provenance is not None else (*turn.untrusted, *notes)
    if not untrusted:
        return text
    fenced = "\n\n".join(note.replace(_NOTES_END, "--- end of notes ---") for note in untrusted)
    return f"{text}\n\n{_NOTES_BEGIN}\n{fenced}\n{_NOTES_END}"
