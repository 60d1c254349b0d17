"""The transcript of adapters: always a task, with one artifact `response` that grows.

`Transcript` makes an artifact of each assistant message and each tool call. Here all content of a
run is one artifact. One chunk is held back, so that the last one can be marked as the last. While
an attempt repeats what an interrupted one published, nothing is shown; then only what is missing.
"""

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, ClassVar

import msgspec

from openclaw_a2a.engine.transcript.assistant_message import (
    BLANK_LINE,
    TEXT_MODE,
    OutputModes,
    PublishedMessage,
    modes_of,
    output_id,
    replace_lone_surrogates,
)
from openclaw_a2a.engine.transcript.transcript import (
    ArtifactCounters,
    EventContext,
    Transcript,
    tool_approval_prompt,
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
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.task import Artifact, ArtifactUpdate, Event

RESPONSE = "response"
"""The name of the artifact."""

FAILED = "The agent failed: "
"""The beginning of the status message of a failed run."""

NO_TEXT = "The agent answered without text."


class SingleArtifactTranscript(Transcript):
    """All content of a run as one artifact."""

    def __init__(
        self,
        context: EventContext,
        *,
        modes: OutputModes,
        is_task: bool,
        counters: ArtifactCounters,
    ) -> None:
        super().__init__(context, modes=modes, is_task=is_task, counters=counters)
        self._artifact_id = output_id(counters.outputs + 1)
        self._held: tuple[Part, ...] = ()
        """The newest chunk: it may be the last."""
        self._is_begun = False
        self._texts: list[str] = []
        """The text of the artifact, for the last status."""
        self._pieces: list[str] = []
        """The text of the current assistant message so far."""
        self._is_parted = False
        """True when a message has ended: the next one begins with a blank line."""
        self._repeated: list[Part] | None = []
        """What this attempt has repeated of the published content; None when it says more."""
        self._repeated_chars = self._repeated_others = 0

    @property
    def is_unrepresentable(self) -> bool:
        """True when there was content and none of it is in an accepted output mode."""
        return bool(self.content_modes) and not self._has_chunks

    def answer(self) -> None:
        """A run is never a direct answer here."""

    def promote(self) -> list[Event]:
        """Turn the run into a task."""
        self.is_promoted = True
        return []

    def fail(self, reason: str) -> list[Event]:
        """The last events of a run that failed."""
        return super().fail(FAILED + reason)

    # ---------------------------------------------------------------- one method per event

    def _on_started(self, _event: Started) -> list[Event]:
        return self._promote()

    def _on_text(self, event: TextDelta) -> list[Event]:
        events = self._promote()
        if not event.text:
            return events
        if event.text.strip():
            self.content_modes[TEXT_MODE] = None
        if not self._modes.accepts_text:
            return events
        text = replace_lone_surrogates(event.text)
        self._pieces.append(text)
        if self._is_parted:
            text, self._is_parted = BLANK_LINE + text, False
        self._texts.append(text)
        return events + self._chunk((Part(text=text),))

    def _on_preview(self, event: TextPreview) -> list[Event]:
        text = replace_lone_surrogates(event.text)
        return self._on_text(TextDelta(text.removeprefix(self._message)))

    def _on_block(self, event: Block) -> list[Event]:
        return self._on_text(TextDelta("" if self._pieces else event.text))

    def _on_reply(self, event: Reply) -> list[Event]:
        """The whole message: what of it was not streamed yet."""
        self.content_modes.update(modes_of(event.parts))
        events = self._promote()
        parts, notes = self._accepted_parts(event.parts)
        events += notes
        if self._pieces:
            events += self._rest_of_message(parts)
        elif parts:
            self._texts.append(self._separator() + _joined(parts))
            events += self._chunk(parts)
        return events + self._on_message_end(MessageEnd())

    def _rest_of_message(self, parts: tuple[Part, ...]) -> list[Event]:
        text = _joined(parts)
        # A final text that differs from the streamed one is not shown: sent parts stay.
        rest = text.removeprefix(self._message) if text.startswith(self._message) else ""
        events = self._on_text(TextDelta(rest))
        others = tuple(part for part in parts if part.text is None)
        return events + (self._chunk(others) if others else [])

    def _on_message_end(self, _event: MessageEnd) -> list[Event]:
        self._pieces, self._is_parted = [], bool(self._texts)
        return []

    def _on_part(self, event: PartDelta) -> list[Event]:
        if event.part.text is not None and not event.part.metadata:
            return self._on_text(TextDelta(event.part.text))
        return self._add_parts((event.part,))

    def _on_tool_reply(self, event: ToolReply) -> list[Event]:
        return self._add_parts(event.parts)

    def _add_parts(self, given: tuple[Part, ...]) -> list[Event]:
        self.content_modes.update(modes_of(given))
        events = self._promote()
        parts, notes = self._accepted_parts(given)
        self._texts += [part.text for part in parts if part.text]
        return events + notes + (self._chunk(parts) if parts else [])

    def _on_tool_progress(self, event: ToolProgress) -> list[Event]:
        prompt = tool_approval_prompt(event)
        return self._promote() + ([] if prompt is None else self._pause(prompt, None))

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
        """Hold the chunk back and publish the one before it."""
        parts = self._skip_published(parts)
        if not parts:
            return []
        # One behind the agent: only the next chunk, or the end, tells whether this is the last.
        before, self._held = self._held, parts
        return [self._show(before, last_chunk=False)] if before else []

    def close(self) -> list[Event]:
        """Publish the chunk that was held back, as the last one."""
        last, self._held = self._held, ()
        published = self._published
        if published is not None and self._repeated:
            repeated, self._repeated = self._repeated, None
            is_whole = self._repeated_chars == len(published.text)
            if not is_whole or self._repeated_others < len(published.others):
                # This attempt says less, so it replaces what was published.
                last, self._is_begun = _merged(repeated), False
            elif not published.is_closed:
                last = (Part(text=""),)
        return [self._show(last, last_chunk=True)] if last else []

    @property
    def _published(self) -> PublishedMessage | None:
        return self.published.messages.get(self._artifact_id)

    def _skip_published(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """What of the parts has to be shown."""
        published = self._published
        if published is None or self._repeated is None:
            return parts
        self._is_begun = True
        for index, part in enumerate(parts):
            if part.text is None:
                count = self._repeated_others
                if published.others[count : count + 1] != (part,):
                    return self._first_missing(published, self._repeated, parts[index:])
                self._repeated_others += 1
            else:
                if not published.text.startswith(part.text, self._repeated_chars):
                    return self._first_missing(published, self._repeated, parts[index:])
                self._repeated_chars += len(part.text)
            self._repeated.append(part)
        return ()

    def _first_missing(
        self, published: PublishedMessage, repeated: list[Part], parts: tuple[Part, ...]
    ) -> tuple[Part, ...]:
        """What to show when the first of these parts is not, or not wholly, published."""
        self._repeated = None
        first, rest = parts[0], published.text[self._repeated_chars :]
        is_continued = (first.text or "").startswith(rest)
        if published.is_closed or not is_continued or self._repeated_others < len(published.others):
            # The attempts differ. Not begun, so the next event replaces what was published.
            self._is_begun = False
            return _merged([*repeated, *parts])
        if first.text is not None:
            first = msgspec.structs.replace(first, text=first.text[len(rest) :])
        return (first, *parts[1:])

    def _show(self, parts: tuple[Part, ...], *, last_chunk: bool) -> ArtifactUpdate:
        append, self._is_begun = self._is_begun, True
        name = None if append else RESPONSE
        artifact = Artifact(self._artifact_id, parts, name=name)
        return self._artifact(artifact, append=append, last_chunk=last_chunk)

    def _last_parts(self) -> tuple[Part, ...]:
        text = "".join(self._texts)
        if text.strip():
            return (Part(text=text),)
        return (Part(text=NO_TEXT),) if self._has_chunks else super()._last_parts()

    _HANDLERS: ClassVar[dict[type, Callable[[Any, Any], list[Event]]]] = {
        **Transcript._HANDLERS,
        Started: _on_started,
        TextDelta: _on_text,
        TextPreview: _on_preview,
        PartDelta: _on_part,
        Block: _on_block,
        Reply: _on_reply,
        MessageEnd: _on_message_end,
        ToolReply: _on_tool_reply,
        ToolProgress: _on_tool_progress,
    }


def _merged(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The parts, with plain texts that follow each other as one."""
    merged: list[Part] = []
    for is_plain, group in groupby(parts, lambda one: one.text is not None and not one.metadata):
        run = list(group)
        merged += [Part(text="".join([one.text or "" for one in run]))] if is_plain else run
    return tuple(merged)


def _joined(parts: tuple[Part, ...]) -> str:
    return " ".join(part.text for part in parts if part.text)
