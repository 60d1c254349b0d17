"""What a turn is about, how patient it is, and what it says on bad days."""

from collections.abc import Sequence
from typing import Final

import msgspec

from openclaw_a2a.agents.openclaw_gateway.media import SessionRef
from openclaw_a2a.model.ids import JsonObject, TaskId
from openclaw_a2a.model.turn import Turn


class Timeouts(msgspec.Struct, frozen=True):
    """How long things may take, in seconds."""

    reconnect_s: float = 300.0
    """Until a connection that broke is there again, or a gateway answers again."""
    recovery_s: float = 180.0
    """Until a restarted gateway goes on with an interrupted run."""
    silence_s: float = 120.0
    """After so long a silence the run is looked for."""
    run_poll_s: float = 60.0
    """How long one question for a run's end waits."""
    lookup_poll_s: float = 5.0
    """The same for a run that is not to be seen."""
    stop_s: float = 60.0
    """Until a run that is to be stopped has ended."""
    abort_retry_s: float = 5.0
    """After so long it is told to stop once more."""


CONNECTION_LOST: Final = (
    "The connection to OpenClaw was lost in the middle of the turn; it is being made again."
)
RESTARTED: Final = (
    "OpenClaw was restarted in the middle of this turn; what it does with the turn is awaited."
)
NOT_RECOVERED: Final = (
    "OpenClaw was restarted in the middle of this turn and did not go on with it; what it had done"
    " by then is done. Send the message again to have it done anew."
)
NOT_STOPPED: Final = (
    "OpenClaw was told to stop the run and did not confirm that it has; it may go on there."
    " Look at the session in OpenClaw."
)
RUN_UNKNOWN: Final = "OpenClaw does not know the run of this task any more; send the message again."


class RunRequest(msgspec.Struct, frozen=True):
    """What a turn is about: whose it is, where it runs, and how it is asked for.

    `params` are those of `agent`; None for a run that was begun by an earlier turn.
    """

    task_id: TaskId
    run_id: str
    session: SessionRef
    params: JsonObject | None = None
    may_approve: bool = False
    open_calls: tuple[str, ...] | None = None
    """For a run that had paused: the tool calls that waited then; what was before them is told."""


_BLANKS: Final = (
    "\ufeff \t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u00a0\u1680\u2028\u2029\u202f\u205f\u3000"
    + "".join(map(chr, range(0x2000, 0x200B)))
)
"""What OpenClaw cuts off before it looks for a command, and what else says nothing."""

_GUARD: Final = "\u2060"
"""A character that nobody sees and OpenClaw does not cut off: what follows is no command."""

_BEGIN: Final = "--- Notes from the gateway about the peer's message ---"
_END: Final = "--- End of notes ---"


def escape_command(text: str) -> str:
    """The text as one that OpenClaw does not run.

    OpenClaw runs `/new` and `/reset` as commands of its host, wherever they come from; a text that
    begins with a slash is therefore begun with an invisible character.
    """
    if not text.strip(_BLANKS):
        return "(no text)"
    return _GUARD + text if text.lstrip(_BLANKS).startswith("/") else text


def build_prompt(turn: Turn, notes: Sequence[str] = ()) -> str:
    """The message, with what else the peer sent in a fenced block after it.

    What another agent of this gateway asks is told as it is: there is no peer to be wary of.
    """
    text = escape_command(turn.body)
    every = () if turn.provenance is not None else (*turn.untrusted, *notes)
    if not every:
        return text
    fenced = "\n\n".join(note.replace(_END, "--- end of notes ---") for note in every)
    return f"{text}\n\n{_BEGIN}\n{fenced}\n{_END}"
