"""Turns the events of an agent into A2A: a direct answer, or the events of a task.

A run starts direct. It is promoted to a task once, by the first thing that a single message cannot
hold: a tool, a note, a second assistant message, a pause or an error. Until then its content is
staged; on promotion it is published in order. No I/O: the clock and the ids are passed in.
"""

import functools
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, cast

import msgspec

from openclaw_a2a.model.agent_event import (
    AgentEvent,
    Block,
    Failed,
    InputRequired,
    MessageEnd,
    Note,
    PartDelta,
    Reply,
    Report,
    Started,
    Stopped,
    TextDelta,
    TextPreview,
    ToolPhase,
    ToolProgress,
    ToolReply,
)
from openclaw_a2a.model.file_content import clean_filename
from openclaw_a2a.model.ids import ArtifactId, ContextId, Json, JsonObject, MessageId, TaskId
from openclaw_a2a.model.message import Message, Part, Role, format_timestamp
from openclaw_a2a.model.task import (
    Artifact,
    ArtifactUpdate,
    Event,
    StatusUpdate,
    TaskState,
    TaskStatus,
)

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


NO_REPLY = "The agent finished without a visible reply."
CANCELED = "The task was canceled by the client."
STOPPED = "The work on this task was stopped."
APPROVAL_NEEDED = "The agent needs an approval before it can go on."

_TOOL_VERBS = {
    ToolPhase.START: "Started",
    ToolPhase.UPDATE: "Updated",
    ToolPhase.RESULT: "Completed",
}


class EventContext(msgspec.Struct, frozen=True):
    """What every event needs: the ids of its task, the clock, and new message ids."""

    task_id: TaskId
    context_id: ContextId
    now: Callable[[], datetime]
    new_id: Callable[[], str]


class ArtifactCounters(msgspec.Struct, frozen=True):
    """The number of artifacts of each kind that the task had before this run."""

    outputs: int = 0
    tool_results: int = 0

    @classmethod
    def count(cls, artifact_ids: Collection[str]) -> "ArtifactCounters":
        """The counters of a task with these artifacts."""
        return cls(
            sum(one.startswith(OUTPUT_PREFIX) for one in artifact_ids),
            sum(one.startswith("tool-result-") for one in artifact_ids),
        )


NO_ARTIFACTS = ArtifactCounters()
"""A task without artifacts."""


class Transcript:
    """The A2A form of one run."""

    def __init__(
        self,
        context: EventContext,
        *,
        modes: OutputModes,
        is_task: bool,
        counters: ArtifactCounters,
    ) -> None:
        self._context = context
        self._modes = modes
        self.is_promoted = is_task
        self.is_over = False
        """True after a pause or a failure: later events of the agent are ignored."""
        self.is_stopped = False
        """True when the work was stopped outside this gateway: the task ends as canceled."""
        self.resume: Json = None
        self.failure: str | None = None
        self._counters = counters
        self._closed: list[AssistantMessage] = []
        self._current: AssistantMessage | None = None
        self._tool_results = counters.tool_results
        self._artifact_events = 0
        self._metadata: JsonObject | None = None
        self.content_modes: dict[str, None] = {}
        """The media types of all content so far, accepted or not, in order."""
        self.omitted: list[str] = []
        """Sentences about the files that the caller does not get."""
        self.published = NOTHING_PUBLISHED
        """What an interrupted attempt of this run has published."""

    # ---------------------------------------------------------------- the interface of a run

    def apply(self, event: AgentEvent) -> list[Event]:
        """The A2A events to publish now. Streamed text may be held back until `flush`."""
        if self.is_over:
            return []
        # By exact type. An unknown one is a KeyError, for which the run fails the agent.
        return self._HANDLERS[type(event)](self, event)

    @property
    def is_paused(self) -> bool:
        """True when the agent waits for its caller."""
        return self.is_over and self.failure is None and not self.is_stopped

    @property
    def pending_size(self) -> int:
        """The number of characters of streamed text that wait for `flush`."""
        current = self._current
        return current.pending_size if current is not None and self.is_promoted else 0

    @property
    def staged_size(self) -> int:
        """The number of characters of streamed text that are staged for a direct answer."""
        return self._current.pending_size if self._current is not None else 0

    def flush(self) -> list[Event]:
        """The streamed text that was held back, as one event."""
        current = self._current
        if current is None or not current.pending_size or not self.is_promoted:
            return []
        # Whether it was shown is asked before it counts as shown.
        append = current.is_shown
        return [self._message_artifact(current, current.take_pending(), append=append)]

    def answer(self) -> tuple[Part, ...] | None:
        """The parts of the direct answer when the run ended as one; None when it is a task."""
        if self.is_promoted or self.failure is not None:
            return None
        messages = [one for one in self._messages() if one.has_content]
        return messages[0].final_parts() if len(messages) == 1 else None

    @property
    def is_unrepresentable(self) -> bool:
        """True when there was content and none of it is in an accepted message mode."""
        if not self.content_modes:
            return False
        for message in self._messages() if self._current is not None else self._closed:
            if message.has_content:
                return False
        return True

    def promote(self) -> list[Event]:
        """Turn the run into a task and publish what was staged."""
        self.is_promoted = True
        events: list[Event] = [self.status_text(TaskState.WORKING, text) for text in self.omitted]
        for message in self._closed:
            events += self._close(message)
        if self._current is not None and self._current.pending_size:
            events.append(self._grow(self._current))
        return events

    def complete(self) -> list[Event]:
        """The last events of a run that ended well (or was stopped)."""
        if self.is_stopped:
            return self.cancel()
        events = self.close()
        events.append(self._status(TaskState.COMPLETED, self._last_parts()))
        return events

    def fail(self, reason: str) -> list[Event]:
        """The last events of a run that failed."""
        return [*self.close(), self.status_text(TaskState.FAILED, reason)]

    def cancel(self) -> list[Event]:
        """The last events of a run that was canceled."""
        text = STOPPED if self.is_stopped else CANCELED
        return [*self.close(), self.status_text(TaskState.CANCELED, text)]

    def continue_working(self) -> list[Event]:
        """The last events of a run whose task goes on with the next message."""
        failure = self.failure
        parts = (Part(text=replace_lone_surrogates(failure)),) if failure else self._last_parts()
        return [*self.close(), self._status(TaskState.WORKING, parts)]

    def close_unfinished(self, artifact_ids: Iterable[ArtifactId]) -> list[Event]:
        """Events that close assistant messages which will not be finished."""
        return [
            self._artifact(Artifact(one, (Part(text=""),)), append=True, last_chunk=True)
            for one in artifact_ids
            if one.startswith(OUTPUT_PREFIX)
        ]

    def status_text(self, state: TaskState, text: str) -> StatusUpdate:
        """A status with one text as its message."""
        return self._status(state, (Part(text=replace_lone_surrogates(text)),))

    def working(self) -> StatusUpdate:
        """The bare status `working`."""
        context = self._context
        status = TaskStatus(TaskState.WORKING, timestamp=context.now())
        return StatusUpdate(context.task_id, context.context_id, status)

    def submitted(self) -> StatusUpdate:
        """The bare status `submitted`."""
        return self._status(TaskState.SUBMITTED, None)

    # ---------------------------------------------------------------- one method per event

    def _on_delta(self, event: TextDelta) -> list[Event]:
        message, text = self._current or self._open(), event.text
        if TEXT_MODE not in self.content_modes and text.strip():
            self.content_modes[TEXT_MODE] = None
        if self._modes.accepts_text:
            message.add_delta(text if text.isascii() else replace_lone_surrogates(text))
        # The usual case by far, so it makes no further call.
        return [] if self.is_promoted or not self._closed else self._promote_second(message)

    def _on_preview(self, event: TextPreview) -> list[Event]:
        message = self._current or self._open()
        text = replace_lone_surrogates(event.text)
        known = message.streamed_text
        fresh = text[len(known) :] if text.startswith(known) else text
        return self._on_delta(TextDelta(fresh)) if fresh else []

    def _on_block(self, event: Block) -> list[Event]:
        message = self._current or self._open()
        if event.text.strip():
            self.content_modes[TEXT_MODE] = None
        if self._modes.accepts_text:
            message.add_block(replace_lone_surrogates(event.text))
        return self._promote_second(message) + self.flush()

    def _on_reply(self, event: Reply) -> list[Event]:
        sendable, notes = self._accepted_parts(event.parts)
        self.content_modes.update(modes_of(event.parts))
        if self._current is None and self.is_promoted and not self.published.messages:
            return notes + self._add_whole(sendable)
        message = self._current or self._open()
        message.set_final(sendable)
        if self._closed:
            notes += self._promote_second(message)
        return notes + self.close() if notes else self.close()

    def _accepted_parts(self, parts: tuple[Part, ...]) -> tuple[tuple[Part, ...], list[Event]]:
        """The parts that the caller accepts, and a status that names the files among the others.

        Every part of an agent that is no text of its own goes through here. Before the promotion
        there is no status: `promote` makes it then, and a direct answer names them by itself.
        """
        sendable = self._modes.filter(parts)
        # Nearly always nothing is left out, and then there is nothing to name.
        text = self._modes.omitted_text(parts) if len(sendable) < len(parts) else ""
        if not text:
            return sendable, []
        self.omitted.append(text)
        notes = [self.status_text(TaskState.WORKING, text)] if self.is_promoted else []
        return sendable, list[Event](notes)

    def _on_message_end(self, _event: MessageEnd) -> list[Event]:
        return self.close()

    def _on_part(self, event: PartDelta) -> list[Event]:
        # A part is a message of its own here, and so was the text before it.
        return self.close() + self._on_reply(Reply((event.part,)))

    def _on_tool_reply(self, event: ToolReply) -> list[Event]:
        # Text before the tool's result: readers see both in the order in which the agent made them.
        events = self._promote() + self.flush()
        sendable, notes = self._accepted_parts(event.parts)
        events += notes
        if sendable:
            self._tool_results += 1
            self._artifact_events += 1
            name = f"tool-result-{self._tool_results}"
            artifact = Artifact(
                ArtifactId(f"tool-result-{self._tool_results:04}"),
                sendable,
                name=name,
                metadata={"sequence": self._artifact_events, "source": name},
            )
            events.append(self._artifact(artifact, last_chunk=True))
        return events

    def _on_tool_progress(self, event: ToolProgress) -> list[Event]:
        if not event.tool_name or not event.call_id:
            return []
        events = self._promote() + self.flush()
        artifact_id = _tool_artifact_id(event.call_id)
        if (artifact_id, event.phase.value) not in self.published.tool_steps:
            events.append(self._tool_artifact(event, artifact_id))
        prompt = tool_approval_prompt(event)
        if prompt is not None:
            events += self._pause(prompt, None)
        return events

    def _on_note(self, event: Note) -> list[Event]:
        events = self._promote() + self.flush()
        return [*events, self.status_text(TaskState.WORKING, event.text)]

    def _on_input_required(self, event: InputRequired) -> list[Event]:
        return self._promote() + self._pause(event.prompt, event.resume)

    def _on_failed(self, event: Failed) -> list[Event]:
        self.failure = event.reason.strip() or "The agent failed without saying why."
        self.is_over = True
        return self._promote() + self.flush()

    def _on_stopped(self, _event: Stopped) -> list[Event]:
        self.is_over = self.is_stopped = True
        return self._promote() + self.flush()

    def _on_report(self, event: Report) -> list[Event]:
        facts = {
            replace_lone_surrogates(str(key)): json_safe(value)
            for key, value in event.metadata.items()
        }
        self._metadata = {**(self._metadata or {}), **facts}
        return []

    # ---------------------------------------------------------------- building blocks

    def _open(self) -> AssistantMessage:
        # A message that stays empty is dropped by `close`, and the next one gets its number.
        number = self._counters.outputs + len(self._closed) + 1
        artifact_id = output_id(number)
        published = self.published.messages.get(artifact_id)
        self._current = message = AssistantMessage(number, artifact_id, published)
        return message

    def _add_whole(self, parts: tuple[Part, ...]) -> list[Event]:
        """The event of a message that comes whole: nothing of it was streamed before."""
        if not has_content(parts):
            return []
        number = self._counters.outputs + len(self._closed) + 1
        message = AssistantMessage(number, output_id(number))
        message.set_whole(parts)
        self._closed.append(message)
        return [self._message_artifact(message, parts, append=False, last_chunk=True)]

    def _promote_second(self, message: AssistantMessage) -> list[Event]:
        """Promote when this is a second message with content: a direct answer holds only one."""
        return self._promote() if self._closed and message.has_content else []

    def _messages(self) -> list[AssistantMessage]:
        return [*self._closed, self._current] if self._current is not None else self._closed

    def _promote(self) -> list[Event]:
        return [] if self.is_promoted else self.promote()

    def close(self) -> list[Event]:
        """The event that closes the current assistant message, if one is open."""
        current, self._current = self._current, None
        if current is None:
            return []
        if not (current.has_content or (current.is_shown and not current.is_replaying)):
            return []
        self._closed.append(current)
        return self._close(current) if self.is_promoted else []

    def _pause(self, prompt: str, resume: Json) -> list[Event]:
        # The agent has said that it waits; whatever it yields after that belongs to no turn.
        self.is_over, self.resume = True, resume
        sentence = prompt.strip() or APPROVAL_NEEDED
        return [*self.close(), self.status_text(TaskState.INPUT_REQUIRED, sentence)]

    def _last_parts(self) -> tuple[Part, ...]:
        if self._current is not None and self._current.has_content:
            return self._current.final_parts()
        for message in reversed(self._closed):
            if message.has_content:
                return message.final_parts()
        return (Part(text=NO_REPLY),)

    def _grow(self, message: AssistantMessage) -> ArtifactUpdate:
        is_first = not message.is_shown
        return self._message_artifact(message, message.take_pending(), append=not is_first)

    def _close(self, message: AssistantMessage) -> list[Event]:
        closing = message.take_closing()
        if closing is None:
            return []
        parts, append = closing
        return [self._message_artifact(message, parts, append=append, last_chunk=True)]

    def _message_artifact(
        self,
        message: AssistantMessage,
        parts: tuple[Part, ...],
        *,
        append: bool,
        last_chunk: bool = False,
    ) -> ArtifactUpdate:
        self._artifact_events += 1
        # Counts the artifact events of this run; not the sequence number of the journal.
        metadata = {"sequence": self._artifact_events, "source": message.name}
        name = None if append else message.name
        artifact = Artifact(message.artifact_id, parts, name=name, metadata=metadata)
        context = self._context
        return ArtifactUpdate(context.task_id, context.context_id, artifact, append, last_chunk)

    def _tool_artifact(self, event: ToolProgress, artifact_id: ArtifactId) -> ArtifactUpdate:
        self._artifact_events += 1
        verb = "Failed" if event.is_error else _TOOL_VERBS[event.phase]
        safe: Json = json_safe(event.payload)
        shown = cast("Json", safe if isinstance(safe, dict) else {"value": safe})
        name = replace_lone_surrogates(event.tool_name)
        call_id = replace_lone_surrogates(event.call_id)
        artifact = Artifact(
            artifact_id,
            (Part(text=f"{verb}: {name}"), Part(data=shown)),
            name=f"{name} progress",
            metadata={
                "source": "tool",
                "phase": event.phase.value,
                "toolName": name,
                "toolCallId": call_id,
                "sequence": self._artifact_events,
            },
        )
        # Of the event, not of the artifact, which the next phase replaces.
        metadata: JsonObject = {"timestamp": format_timestamp(self._context.now())}
        update = self._artifact(artifact, last_chunk=event.phase is ToolPhase.RESULT)
        return msgspec.structs.replace(update, metadata=metadata)

    def _artifact(
        self, artifact: Artifact, *, append: bool = False, last_chunk: bool = False
    ) -> ArtifactUpdate:
        context = self._context
        return ArtifactUpdate(context.task_id, context.context_id, artifact, append, last_chunk)

    def _status(self, state: TaskState, parts: tuple[Part, ...] | None) -> StatusUpdate:
        context = self._context
        message = None
        if parts is not None:
            message_id = MessageId(context.new_id())
            message = Message(message_id, Role.AGENT, parts, context.context_id, context.task_id)
        # Reports (model, usage, costs) are complete only when the run ends or pauses.
        metadata = self._metadata if state is not TaskState.WORKING else None
        status = TaskStatus(state, message, context.now())
        return StatusUpdate(context.task_id, context.context_id, status, metadata)

    _HANDLERS: ClassVar[dict[type, Callable[["Transcript", Any], list[Event]]]] = {
        Started: lambda _self, _event: [],
        TextDelta: _on_delta,
        TextPreview: _on_preview,
        PartDelta: _on_part,
        Block: _on_block,
        Reply: _on_reply,
        MessageEnd: _on_message_end,
        ToolReply: _on_tool_reply,
        ToolProgress: _on_tool_progress,
        Note: _on_note,
        InputRequired: _on_input_required,
        Failed: _on_failed,
        Stopped: _on_stopped,
        Report: _on_report,
    }


def _tool_artifact_id(call_id: str) -> ArtifactId:
    safe = re.sub(r"[^A-Za-z0-9_-]", "_", replace_lone_surrogates(call_id))
    return ArtifactId(f"tool-progress-{safe}")


def tool_approval_prompt(event: ToolProgress) -> str | None:
    """What to ask the caller when a tool's result says that it waits for an approval."""
    if event.phase is not ToolPhase.RESULT or event.is_error or not isinstance(event.payload, dict):
        return None
    payload = cast("JsonObject", event.payload)
    requires: Json = payload.get("requiresApproval")
    request = cast("JsonObject", requires) if isinstance(requires, dict) else {}
    is_pending = payload.get("status") in ("approval-pending", "needs_approval")
    if not is_pending and request.get("type") != "approval_request":
        return None
    prompt: Json = request.get("prompt")
    return (prompt.strip() if isinstance(prompt, str) else "") or APPROVAL_NEEDED
