"""The content of one assistant message: what of it is shown, and what a caller accepts of it."""

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from openclaw_a2a.model.file_content import clean_filename
from openclaw_a2a.model.ids import ArtifactId, Json, JsonObject
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.task import Artifact

BLANK_LINE = "\n\n"
OUTPUT_PREFIX = "assistant-output-"
"""The id prefix of artifacts that hold assistant messages."""
TEXT_MODE = "text/plain"


def output_id(number: int) -> ArtifactId:
    """The id of the artifact that holds this assistant message of the task, from 1."""
    return ArtifactId(f"{OUTPUT_PREFIX}{number:04}")


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

    def filter(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """The accepted parts that are not empty, in a form that JSON can hold."""
        text = parts[0].text if len(parts) == 1 else None
        if text and self.accepts_text and text.isascii():
            return parts  # as nearly every answer is
        sendable = [self._sendable(part) for part in parts]
        return tuple([part for part in sendable if part is not None])

    def omitted_text(self, parts: Sequence[Part]) -> str:
        """A sentence about the files that are not accepted; empty when there is none."""
        names = [
            f"{clean_filename(part.filename or '') or 'a file'}"
            f" ({part.media_type or 'application/octet-stream'})"
            for part in parts
            if part.is_file and self._sendable(part) is None
        ]
        if not names:
            return ""
        was = "was" if len(names) == 1 else "were"
        listed = replace_lone_surrogates(", ".join(names)[:500])
        return (
            f"{listed} {was} left out: only {', '.join(self.accepted)} is accepted"
            " here. More types: acceptedOutputModes of the request, or defaultOutputModes of the"
            " account."
        )

    def _sendable(self, part: Part) -> Part | None:
        if part.text is not None:
            if not self.accepts_text or not part.text:
                return None
            if part.text.isascii():
                return part
            return msgspec.structs.replace(part, text=replace_lone_surrogates(part.text))
        if part.is_file:
            return part if self.accepts(part.media_type or "application/octet-stream") else None
        if part.data is msgspec.UNSET or not self.accepts("application/json"):
            return None
        return msgspec.structs.replace(part, data=json_safe(part.data))


def omitted_files(sentences: Sequence[str]) -> JsonObject:
    """The metadata of a message or artifact that names the files which are left out of it."""
    return {"omittedFiles": " ".join(sentences)}


@functools.lru_cache(maxsize=256)
def output_modes(accepted: tuple[str, ...]) -> OutputModes:
    """The modes of a caller, cached: most callers accept the same."""
    return OutputModes(accepted)


class PublishedMessage(msgspec.Struct, frozen=True):
    """What an interrupted attempt published of an assistant message."""

    text: str
    others: tuple[Part, ...] = ()
    """The parts that are no text."""
    is_closed: bool = False


class PublishedOutput(msgspec.Struct, frozen=True):
    """What an interrupted attempt of a run published; the next one publishes only what is missing.

    `tool_steps` are the artifacts of tool calls with their phases.
    """

    messages: Mapping[ArtifactId, PublishedMessage] = {}
    tool_steps: frozenset[tuple[ArtifactId, str]] = frozenset()


class AssistantMessage:
    """One message of the agent: what was streamed, its final form, and what is published already.

    The final reply replaces the streamed text, and that replaces the blocks. While the text repeats
    what an interrupted attempt `published`, nothing is pending; text that differs replaces it.
    """

    def __init__(
        self, number: int, artifact_id: ArtifactId, published: PublishedMessage | None = None
    ) -> None:
        self.artifact_id = artifact_id
        self.name = f"{OUTPUT_PREFIX}{number}"
        self.is_shown = published is not None
        self.has_content = False
        """True when the message is not blank."""
        self.pending_size = 0
        self._pending: list[str] = []
        self._streamed: list[str] = []
        self._blocks: list[str] = []
        self._shown: list[str] = [] if published is None else [published.text]
        self._final: tuple[Part, ...] | None = None
        self._is_final_blank = True
        self._closed: tuple[Part, ...] | None = None
        self._published = published
        self._repeated = 0
        """How many characters of the published text this attempt has repeated."""

    @property
    def is_replaying(self) -> bool:
        """True while this attempt has said nothing that an interrupted one had not published."""
        return self._published is not None

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
            # Not shown any more, so the next event is not an `append` and replaces the blocks.
            self.is_shown, self._shown, self._pending, self.pending_size = False, [], [], 0
            self._published = None
        self._streamed.append(text)
        if self._published is not None:
            self._add_pending(text)
        else:
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
            self._add_pending(separator + text)

    def _add_pending(self, text: str) -> None:
        if self._published is not None:
            text = self._skip_published(self._published, text)
        if text:
            self._pending.append(text)
            self.pending_size += len(text)

    def _skip_published(self, published: PublishedMessage, text: str) -> str:
        """What of the text has to be shown."""
        if published.text.startswith(text, self._repeated):
            self._repeated += len(text)
            return ""
        repeated, self._published = self._repeated, None
        rest = published.text[repeated:]
        if text.startswith(rest) and not published.is_closed:
            return text[len(rest) :]
        # The attempts differ. Not shown any more, so the next event replaces what was published.
        self.is_shown, self._shown = False, []
        return published.text[:repeated] + text

    def set_final(self, parts: tuple[Part, ...]) -> None:
        """The whole message; it replaces whatever was streamed, unless it is blank."""
        self._final = parts
        self._is_final_blank = not has_content(parts)
        self.has_content = self.has_content or not self._is_final_blank

    def set_whole(self, parts: tuple[Part, ...]) -> None:
        """The whole message, with content; it is closed by that."""
        self._closed = parts
        self.has_content = self.is_shown = True

    def take_pending(self) -> tuple[Part, ...]:
        """The text not shown yet, as one part; it counts as shown now."""
        pending = self._pending
        text = pending[0] if len(pending) == 1 else "".join(pending)
        self._pending, self.pending_size = [], 0
        self._shown.append(text)
        self.is_shown = True
        return (Part(text=text),)

    def take_closing(self) -> tuple[tuple[Part, ...], bool] | None:
        """The parts of the event that closes the artifact, and whether it appends.

        It appends what is missing when the final text starts with what was shown (an empty text
        when nothing is missing: a parts list must not be empty), and replaces it otherwise. None
        when an interrupted attempt has published it all.
        """
        parts = self._closed = self.final_parts()
        was_shown, shown = self.is_shown, "".join(self._shown)
        published, self._published = self._published, None
        self.is_shown, self._pending, self.pending_size = True, [], 0
        if published is not None and published.is_closed:
            # Closed before: there is nothing to append any more, only to replace.
            is_same = published == _as_published(parts, is_closed=True)
            return None if is_same else (parts or (Part(text=""),), False)
        if not was_shown:
            return parts or (Part(text=""),), False
        # Only text can be continued: `append` adds parts and cannot change those that were sent.
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
        if self._final and not self._is_final_blank:
            return self._final
        text = self.streamed_text
        if not text.strip():
            text = BLANK_LINE.join(self._blocks) if any(map(str.strip, self._blocks)) else text
        return (Part(text=text),) if text else self._final or ()


def _as_published(parts: Sequence[Part], *, is_closed: bool) -> PublishedMessage:
    text = "".join([part.text for part in parts if part.text is not None])
    others = tuple([part for part in parts if part.text is None])
    return PublishedMessage(text, others, is_closed)


def published_output(
    artifacts: Iterable[Artifact],
    open_ids: Collection[str],
    tool_steps: Iterable[tuple[ArtifactId, str]] = (),
) -> PublishedOutput:
    """What the artifacts of an interrupted attempt are, and which are not closed."""
    messages = {
        one.artifact_id: _as_published(one.parts, is_closed=one.artifact_id not in open_ids)
        for one in artifacts
        if one.artifact_id.startswith(OUTPUT_PREFIX)
    }
    return PublishedOutput(messages, frozenset(tool_steps))


NOTHING_PUBLISHED = PublishedOutput()


def has_content(parts: Sequence[Part]) -> bool:
    """True when a part is not blank text."""
    for part in parts:  # noqa: SIM110 - a loop and no generator: it is part of every send
        if part.text is None or part.text.strip():
            return True
    return False


def modes_of(parts: Sequence[Part]) -> dict[str, None]:
    """The media types of the parts that are not blank text, in order."""
    modes: dict[str, None] = {}
    for part in parts:
        if part.text is not None:
            if part.text.strip():
                modes[TEXT_MODE] = None
        elif part.is_file:
            modes[replace_lone_surrogates(part.media_type or "application/octet-stream")] = None
        else:
            modes["application/json"] = None
    return modes


def replace_lone_surrogates(text: str) -> str:
    """The text without lone surrogates, which no UTF-8 wire can carry."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        # Through UTF-16, which joins the halves of a pair that came as separate characters.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def json_safe(value: Json) -> JsonObject | Json:
    """The value as plain JSON; what JSON cannot hold becomes its text."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value, enc_hook=str))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return replace_lone_surrogates(repr(value)[:1000])
