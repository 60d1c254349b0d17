"""The text that a model gets of a peer's message: no command, and not the gateway's voice."""

import re
from collections.abc import Sequence
from typing import Final

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

# Marks of the block as a reader takes them: any dashes, any case, invisible characters between.
_IGNORED: Final = (
    r"[\s\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff\x00-\x1f"
    r"\x7f-\x9f]*"
)
_DASH: Final = r"[-\u2010-\u2015\u2212\u2e3a\u2e3b\ufe58\ufe63\uff0d_=*#~\u2500\u2501]"


def _letters(words: str) -> str:
    return _IGNORED.join(_either(one) for one in words.replace(" ", ""))


def _either(letter: str) -> str:
    # The full-width forms, which look alike and which models read alike.
    wide = "".join(chr(ord(one) + 0xFEE0) for one in {letter, letter.upper()})
    return f"[{letter}{letter.upper()}{wide}]"


_MARK: Final = re.compile(
    f"({_DASH}{_IGNORED})(?:{_letters('end of notes')}|{_letters('notes from the gateway')})"
)
_NO_MARK: Final = r"\1(removed)"
_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
"""Characters that hide text, or turn it around. Joiners of words and of emoji are none of them."""


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
    # A peer must not be able to open or close the block and continue in the gateway's voice.
    text = escape_command(_MARK.sub(_NO_MARK, turn.body))
    untrusted = () if turn.provenance is not None else (*turn.untrusted, *notes)
    if not untrusted:
        return text
    fenced = "\n\n".join(_HIDDEN.sub(_spell_out, _MARK.sub(_NO_MARK, note)) for note in untrusted)
    return f"{text}\n\n{_NOTES_BEGIN}\n{fenced}\n{_NOTES_END}"


def _spell_out(found: re.Match[str]) -> str:
    """The character as JSON escapes it; most notes are JSON, and stay what they were."""
    code = ord(found[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
