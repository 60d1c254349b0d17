"""A peer's turn as the text that OpenClaw's agent reads."""

from collections.abc import Sequence
from typing import Final

from openclaw_a2a.model.turn import Turn

_BLANKS: Final = (
    "\ufeff \t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u00a0\u1680\u2028\u2029\u202f\u205f\u3000"
    + "".join(map(chr, range(0x2000, 0x200B)))
)
"""What OpenClaw cuts off before it looks for a command, and what else says nothing."""

_GUARD: Final = "\u2060"
"""A character that nobody sees and OpenClaw does not cut off: what follows is no command."""

_BEGIN: Final = "--- Notes from the gateway about the peer's message ---"
_END: Final = "--- End of notes ---"


def no_command(text: str) -> str:
    """The text as one that OpenClaw does not run.

    OpenClaw runs `/new` and `/reset` as commands of its host, wherever they come from; a text that
    begins with a slash is therefore begun with an invisible character.
    """
    if not text.strip(_BLANKS):
        return "(no text)"
    return _GUARD + text if text.lstrip(_BLANKS).startswith("/") else text


def message_of(turn: Turn, notes: Sequence[str] = ()) -> str:
    """The message, with what else the peer sent in a fenced block after it.

    What another agent of this gateway asks is told as it is: there is no peer to be wary of.
    """
    text = no_command(turn.body)
    every = () if turn.provenance is not None else (*turn.untrusted, *notes)
    if not every:
        return text
    fenced = "\n\n".join(note.replace(_END, "--- end of notes ---") for note in every)
    return f"{text}\n\n{_BEGIN}\n{fenced}\n{_END}"
