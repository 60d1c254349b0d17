"""How an adapter's answer is shown: always a task, with one artifact `response` that grows.

The profile of `Transcript` tells assistant messages, tools and notes apart, as a channel does.
This one is for whoever only answers: all content of a run is one artifact. One chunk is held
back, so that the last one can be marked as the last.
"""

from collections.abc import Callable
from typing import Any, ClassVar

from openclaw_a2a.engine.transcript.content import (
    BLANK_LINE,
    OUTPUT_PREFIX,
    OutputModes,
    has_content,
    replace_lone_surrogates,
)
from openclaw_a2a.engine.transcript.transcript import (
    ArtifactCounters,
    EventContext,
    Transcript,
    approval_prompt,
)
from openclaw_a2a.model.agent_event import (
    Block,
    MessageEnd,
    PartDelta,
    Reply,
    Started,
    TextDelta,
    TextPreview,
    ToolProgress,
    ToolReply,
)
from openclaw_a2a.model.errors import AgentUnavailable
from openclaw_a2a.model.ids import AgentId, ArtifactId
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.task import Artifact, ArtifactUpdate, Event
from openclaw_a2a.ports import AgentLookup

RESPONSE = "response"
"""What the artifact is called."""

FAILED = "The agent failed: "
"""How the status message of a failed run begins."""

NO_TEXT = "The agent answered without text."


def transcript_of(agents: AgentLookup, agent_id: AgentId) -> type[Transcript]:
    """How the runs of an agent are shown: as its `transcript_type` says, else like a channel."""
    try:
        return getattr(agents.find(agent_id), "transcript_type", Transcript)
    except AgentUnavailable:
        return Transcript


class SingleArtifactTranscript(Transcript):
    """One run as one artifact."""

    def __init__(
        self, stamp: EventContext, *, modes: OutputModes, is_task: bool, numbering: ArtifactCounters
    ) -> None:
        super().__init__(stamp, modes=modes, is_task=is_task, numbering=numbering)
        self._artifact_id = ArtifactId(f"{OUTPUT_PREFIX}{numbering.outputs + 1:04}")
        self._held: tuple[Part, ...] = ()
        """The newest chunk; whether it is the last is not known yet."""
        self._is_begun = False
        self._texts: list[str] = []
        """What the artifact says, for the last status."""
        self._pieces: list[str] = []
        """The text of the current assistant message so far."""
        self._is_parted = False
        """True when an assistant message is over, and the next one begins with a blank line."""

    @property
    def is_unrepresentable(self) -> bool:
        """True when there was content and none of it may be sent in the accepted modes."""
        return self._had_content and not self._has_chunks

    def answer(self) -> None:
        """A run is never a direct answer here."""

    def promote(self) -> list[Event]:
        """Turn the run into a task."""
        self.is_promoted = True
        return []

    def fail(self, reason: str) -> list[Event]:
        """The run ended badly: close what is open and say why."""
        return super().fail(FAILED + reason)

    # ---------------------------------------------------------------- one method per event

    def _take_started(self, _event: Started) -> list[Event]:
        return self._promote_if(True)

    def _take_text(self, event: TextDelta) -> list[Event]:
        events = self._promote_if(True)
        if not event.text:
            return events
        self._had_content = self._had_content or bool(event.text.strip())
        if not self._modes.accepts_text:
            return events
        text = replace_lone_surrogates(event.text)
        self._pieces.append(text)
        if self._is_parted:
            text, self._is_parted = BLANK_LINE + text, False
        self._texts.append(text)
        return events + self._chunk((Part(text=text),))

    def _take_preview(self, event: TextPreview) -> list[Event]:
        text = replace_lone_surrogates(event.text)
        return self._take_text(TextDelta(text.removeprefix(self._message)))

    def _take_block(self, event: Block) -> list[Event]:
        return self._take_text(TextDelta("" if self._pieces else event.text))

    def _take_reply(self, event: Reply) -> list[Event]:
        """The whole message: what of it was not streamed yet."""
        self._had_content = self._had_content or has_content(event.parts)
        parts = self._modes.filter(event.parts)
        events = self._promote_if(True)
        if self._pieces:
            events += self._rest_of_message(parts)
        elif parts:
            self._texts.append(self._separator() + _joined(parts))
            events += self._chunk(parts)
        return events + self._take_message_end(MessageEnd())

    def _rest_of_message(self, parts: tuple[Part, ...]) -> list[Event]:
        text = _joined(parts)
        rest = text.removeprefix(self._message) if text.startswith(self._message) else ""
        events = self._take_text(TextDelta(rest))
        others = tuple(part for part in parts if part.text is None)
        return events + (self._chunk(others) if others else [])

    def _take_message_end(self, _event: MessageEnd) -> list[Event]:
        self._pieces, self._is_parted = [], bool(self._texts)
        return []

    def _take_part(self, event: PartDelta) -> list[Event]:
        if event.part.text is not None and not event.part.metadata:
            return self._take_text(TextDelta(event.part.text))
        return self._take_parts((event.part,))

    def _take_tool_reply(self, event: ToolReply) -> list[Event]:
        return self._take_parts(event.parts)

    def _take_parts(self, given: tuple[Part, ...]) -> list[Event]:
        self._had_content = self._had_content or has_content(given)
        parts = self._modes.filter(given)
        self._texts += [part.text for part in parts if part.text]
        return self._promote_if(True) + (self._chunk(parts) if parts else [])

    def _take_tool_progress(self, event: ToolProgress) -> list[Event]:
        prompt = approval_prompt(event)
        return self._promote_if(True) + ([] if prompt is None else self._pause(prompt, None))

    # ---------------------------------------------------------------- building blocks

    @property
    def _has_chunks(self) -> bool:
        return self._is_begun or bool(self._held)

    @property
    def _message(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def _separator(self) -> str:
        separator, self._is_parted = BLANK_LINE if self._is_parted else "", False
        return separator

    def _chunk(self, parts: tuple[Part, ...]) -> list[Event]:
        """Hold the chunk back, and let go of the one before it."""
        before, self._held = self._held, parts
        return [self._show(before, last_chunk=False)] if before else []

    def _finish_current(self) -> list[Event]:
        last, self._held = self._held, ()
        return [self._show(last, last_chunk=True)] if last else []

    def _show(self, parts: tuple[Part, ...], *, last_chunk: bool) -> ArtifactUpdate:
        append, self._is_begun = self._is_begun, True
        name = None if append else RESPONSE
        artifact = Artifact(self._artifact_id, parts, name=name)
        return self._artifact(artifact, append=append, last_chunk=last_chunk)

    def _last_words(self) -> tuple[Part, ...]:
        text = "".join(self._texts)
        if text.strip():
            return (Part(text=text),)
        return (Part(text=NO_TEXT),) if self._has_chunks else super()._last_words()

    _TAKES: ClassVar[dict[type, Callable[[Any, Any], list[Event]]]] = {
        **Transcript._TAKES,
        Started: _take_started,
        TextDelta: _take_text,
        TextPreview: _take_preview,
        PartDelta: _take_part,
        Block: _take_block,
        Reply: _take_reply,
        MessageEnd: _take_message_end,
        ToolReply: _take_tool_reply,
        ToolProgress: _take_tool_progress,
    }


def _joined(parts: tuple[Part, ...]) -> str:
    return " ".join(part.text for part in parts if part.text)
