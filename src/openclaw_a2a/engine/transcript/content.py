"""Content of an agent: assistant messages while they grow, and which parts a caller accepts."""

import functools
from collections.abc import Sequence

import msgspec

from openclaw_a2a.model.ids import ArtifactId, Json, JsonObject
from openclaw_a2a.model.message import Part

BLANK_LINE = "\n\n"
OUTPUT_PREFIX = "assistant-output-"
"""The id prefix of artifacts that hold assistant messages."""


class OutputModes:
    """The media types that a caller accepts."""

    def __init__(self, accepted: Sequence[str]) -> None:
        self.accepted = tuple(accepted)
        self._modes = {mode.strip().lower() for mode in accepted}
        self.accepts_text = self.accepts("text/plain") or "text" in self._modes

    def accepts(self, media_type: str) -> bool:
        """True when a part of this media type may be sent."""
        bare = media_type.partition(";")[0].strip().lower()
        family = bare.partition("/")[0] + "/*"
        return not self._modes.isdisjoint({bare, family, "*/*", "*"})

    def filter(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """The accepted parts that are not empty, in a form that JSON can hold."""
        sendable = [self._sendable(part) for part in parts]
        return tuple([part for part in sendable if part is not None])

    def _sendable(self, part: Part) -> Part | None:
        if part.text is not None:
            if not self.accepts_text or not part.text:
                return None
            return part if part.text.isascii() else _cleaned(part, part.text)
        if part.is_file:
            return part if self.accepts(part.media_type or "application/octet-stream") else None
        if part.data is msgspec.UNSET or not self.accepts("application/json"):
            return None
        return msgspec.structs.replace(part, data=json_safe(part.data))


@functools.lru_cache(maxsize=256)
def output_modes(accepted: tuple[str, ...]) -> OutputModes:
    """The modes of a caller, cached: most callers accept the same."""
    return OutputModes(accepted)


def _cleaned(part: Part, text: str) -> Part:
    return msgspec.structs.replace(part, text=replace_lone_surrogates(text))


class AssistantMessage:
    """One message of the agent: what was streamed, its final form, and what is published already.

    The final reply replaces the streamed text, and that replaces the blocks.
    """

    def __init__(self, number: int) -> None:
        self.artifact_id = ArtifactId(f"{OUTPUT_PREFIX}{number:04}")
        self.name = f"{OUTPUT_PREFIX}{number}"
        self.is_shown = False
        self.has_content = False
        """True when the message is not blank."""
        self.pending_size = 0
        self._pending: list[str] = []
        self._streamed: list[str] = []
        self._blocks: list[str] = []
        self._shown: list[str] = []
        self._final: tuple[Part, ...] | None = None
        self._closed: tuple[Part, ...] | None = None

    @property
    def streamed_text(self) -> str:
        """The streamed text so far."""
        if len(self._streamed) > 1:
            self._streamed = ["".join(self._streamed)]
        return self._streamed[0] if self._streamed else ""

    def add_delta(self, text: str) -> None:
        """More streamed text. It outranks blocks, which are taken back when they were shown."""
        if not text:
            return
        if self._blocks and not self._streamed:
            self.is_shown, self._shown, self._pending, self.pending_size = False, [], [], 0
        self._streamed.append(text)
        self._pending.append(text)
        self.pending_size += len(text)
        self.has_content = self.has_content or not text.isspace()

    def add_block(self, text: str) -> None:
        """A finished block; it is shown only while nothing was streamed."""
        if not text:
            return
        separator = BLANK_LINE if self._blocks else ""
        self._blocks.append(text)
        self.has_content = self.has_content or not text.isspace()
        if not self._streamed:
            self._pending.append(separator + text)
            self.pending_size += len(separator) + len(text)

    def set_final(self, parts: tuple[Part, ...]) -> None:
        """The whole message; it replaces whatever was streamed."""
        self._final = parts
        self.has_content = self.has_content or has_content(parts)

    def take_pending(self) -> tuple[Part, ...]:
        """The text not shown yet, as one part; it counts as shown now."""
        text = "".join(self._pending)
        self._pending, self.pending_size = [], 0
        self._shown.append(text)
        self.is_shown = True
        return (Part(text=text),)

    def take_closing(self) -> tuple[tuple[Part, ...], bool]:
        """The parts of the event that closes the artifact, and whether it appends.

        It appends what is missing when the final text starts with what was shown (an empty text
        when nothing is missing: a parts list must not be empty), and replaces it otherwise.
        """
        parts = self._closed = self.final_parts()
        was_shown, shown = self.is_shown, "".join(self._shown)
        self.is_shown, self._pending, self.pending_size = True, [], 0
        if not was_shown:
            return parts or (Part(text=""),), False
        first = parts[0].text if parts else ""
        if first is None or not first.startswith(shown):
            return parts or (Part(text=""),), False
        rest = first[len(shown) :]
        missing = ((Part(text=rest),) if rest else ()) + parts[1:]
        return missing or (Part(text=""),), True

    def final_parts(self) -> tuple[Part, ...]:
        """The message as it stands: the first of its forms that is not blank."""
        if self._closed is not None:
            return self._closed
        if self._final and has_content(self._final):
            return self._final
        text = self.streamed_text
        if not text.strip():
            text = BLANK_LINE.join(self._blocks) if any(map(str.strip, self._blocks)) else text
        return (Part(text=text),) if text else self._final or ()


def has_content(parts: Sequence[Part]) -> bool:
    """True when a part is not blank text."""
    for part in parts:  # noqa: SIM110 - a loop and no generator: it is part of every send
        if part.text is None or part.text.strip():
            return True
    return False


def replace_lone_surrogates(text: str) -> str:
    """The text without lone surrogates, which no UTF-8 wire can carry."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def json_safe(value: Json) -> JsonObject | Json:
    """The value as plain JSON; what JSON cannot hold becomes its text."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value, enc_hook=str))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return replace_lone_surrogates(repr(value)[:1000])
