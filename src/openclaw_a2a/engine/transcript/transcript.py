"""Turns the events of an agent into A2A: a direct answer, or the events of a task.

A run starts direct. It is promoted to a task once, by the first thing that a single message cannot
hold: a tool, a note, a second assistant message, a pause or an error. Until then its content is
staged; on promotion it is published in order. No I/O: the clock and the ids are passed in.

Streamed text is held back until `flush`, which makes one event of it; `tasks/run._publish` decides
when, so that text which arrives during a commit becomes one event.
"""

import re
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from typing import Any, ClassVar, cast

import msgspec

from openclaw_a2a.engine.transcript.assistant_message import (
    NOTHING_PUBLISHED,
    OUTPUT_PREFIX,
    TEXT_MODE,
    AssistantMessage,
    OutputModes,
    has_content,
    json_safe,
    modes_of,
    output_id,
    replace_lone_surrogates,
)
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
        return events + self.flush()

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
