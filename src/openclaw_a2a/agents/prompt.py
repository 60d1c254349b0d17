"""Renders a peer's message for a model, so that it is no command and no text of the gateway."""

import json
import re
from collections.abc import Sequence
from typing import Final

from openclaw_a2a.model.ids import LOCAL_PEER
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
_SENDER: Final = "Sender known to the gateway"
_MAX_NAME: Final = 300

# The marks of the block in every form that a model may read as one: any dashes, any case,
# invisible characters in between.
_IGNORED: Final = (
    r"[\s\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff\x00-\x1f"
    r"\x7f-\x9f]*"
)
_DASH: Final = r"[-\u2010-\u2015\u2212\u2e3a\u2e3b\ufe58\ufe63\uff0d_=*#~\u2500\u2501]"


def _phrase(words: str) -> str:
    return _IGNORED.join(_both_cases(one) for one in words.replace(" ", ""))


def _both_cases(letter: str) -> str:
    # The full-width forms, which look alike and which models read alike.
    wide = "".join(chr(ord(one) + 0xFEE0) for one in {letter, letter.upper()})
    return f"[{letter}{letter.upper()}{wide}]"


_MARK: Final = re.compile(
    f"({_DASH}{_IGNORED})(?:{_phrase('end of notes')}|{_phrase('notes from the gateway')})"
    # Without dashes, too: no line of a peer may look like ours and name another sender.
    f"|{_phrase(_SENDER.lower())}"
)
_NO_MARK: Final = r"\1(removed)"
_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
"""Characters that hide or reverse text, without the joiners of words and emoji."""


def escape_command(text: str) -> str:
    """The text in a form that OpenClaw does not execute as a command.

    OpenClaw runs `/new` and `/reset` as host commands, for every sender. A text that starts with
    a slash therefore gets an invisible first character.
    """
    if not text.strip(_WHITESPACE):
        return "(no text)"
    return _WORD_JOINER + text if text.lstrip(_WHITESPACE).startswith("/") else text


def build_prompt(turn: Turn, notes: Sequence[str] = ()) -> str:
    """The message text, then a fenced block: which peer sent it, and the peer's other content.

    A message from another agent of this gateway has no such block: it is no untrusted peer, and
    OpenClaw gets its origin in another way. A caller without a name is not named either.
    """
    # A peer must not open or close the block and continue as if it were the gateway.
    text = escape_command(_MARK.sub(_NO_MARK, turn.body))
    if turn.provenance is not None:
        return text
    untrusted = (*turn.untrusted, *notes)
    fenced = [_HIDDEN.sub(_spell_out, _MARK.sub(_NO_MARK, note)) for note in untrusted]
    if turn.principal != LOCAL_PEER:
        # Here, because OpenClaw's own provenance of a message has no member for it.
        peer, account = _quote_name(turn.principal), _quote_name(turn.account)
        fenced.insert(0, f"{_SENDER}: peer {peer}, account {account}")
    if not fenced:
        return text
    return "\n\n".join((text, "\n".join((_NOTES_BEGIN, "\n\n".join(fenced), _NOTES_END))))


def _quote_name(name: str) -> str:
    """The name on one line, without marks: names may come from an issuer of tokens."""
    return json.dumps(_MARK.sub(_NO_MARK, name)[:_MAX_NAME])


def _spell_out(found: re.Match[str]) -> str:
    """The character as a JSON escape; most notes are JSON and keep their value."""
    code = ord(found[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
