"""How what an agent tells becomes what A2A shows: a direct answer, or the events of a task.

A run starts direct. It is promoted to a task once, by the first thing a single message cannot
hold: a tool, a note, a second assistant message, a pause or an error. Until then content is
staged; on promotion it is published in order. No clock, no store, no network in here.
"""

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, ClassVar, cast

import msgspec

from openclaw_a2a.engine.transcript.content import (
    OUTPUT_PREFIX,
    Output,
    OutputModes,
    has_content,
    json_safe,
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
from openclaw_a2a.model.message import Message, Part, Role
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
    """What every event carries: whose task it is, and where times and ids come from."""

    task_id: TaskId
    context_id: ContextId
    now: Callable[[], datetime]
    new_id: Callable[[], str]


class ArtifactCounters(msgspec.Struct, frozen=True):
    """How many artifacts of each kind the task had before this run."""

    outputs: int = 0
    tool_results: int = 0


NO_ARTIFACTS = ArtifactCounters()
"""A task without artifacts."""


class Transcript:
    """One run, as its readers will see it."""

    def __init__(
        self, stamp: EventContext, *, modes: OutputModes, is_task: bool, numbering: ArtifactCounters
    ) -> None:
        self._stamp = stamp
        self._modes = modes
        self.is_promoted = is_task
        self.is_over = False
        """True after a pause or a failure: nothing the agent says counts any more."""
        self.is_stopped = False
        """True when the work was stopped from elsewhere: the task ends as canceled."""
        self.resume: Json = None
        self.failure: str | None = None
        self._numbering = numbering
        self._closed: list[Output] = []
        self._current: Output | None = None
        self._tool_results = numbering.tool_results
        self._artifact_events = 0
        self._metadata: JsonObject | None = None
        self._had_content = False

    # ---------------------------------------------------------------- what the run asks

    def apply(self, event: AgentEvent) -> list[Event]:
        """What is to be published because of this. Text may be held back until `flush`."""
        if self.is_over:
            return []
        return self._TAKES[type(event)](self, event)

    @property
    def is_paused(self) -> bool:
        """True when the agent waits for its caller."""
        return self.is_over and self.failure is None and not self.is_stopped

    @property
    def pending_size(self) -> int:
        """How many characters of streamed text wait for `flush`."""
        current = self._current
        return current.pending_size if current is not None and self.is_promoted else 0

    @property
    def staged_size(self) -> int:
        """How many characters of streamed text are kept for a direct answer."""
        return self._current.pending_size if self._current is not None else 0

    def flush(self) -> list[Event]:
        """Publish the streamed text that was held back, as one event."""
        current = self._current
        if current is None or not current.pending_size or not self.is_promoted:
            return []
        return [self._grow(current)]

    def answer(self) -> tuple[Part, ...] | None:
        """The parts of the direct answer when the run ended as one; None when it is a task."""
        if self.is_promoted or self.failure is not None:
            return None
        outputs = [output for output in self._all_outputs() if output.has_content]
        return outputs[0].final_parts() if len(outputs) == 1 else None

    @property
    def is_unrepresentable(self) -> bool:
        """True when there was content and none of it may be sent in the accepted modes."""
        if not self._had_content:
            return False
        return not [output for output in self._all_outputs() if output.has_content]

    def promote(self) -> list[Event]:
        """Turn the run into a task and publish what was staged."""
        self.is_promoted = True
        events: list[Event] = []
        for output in self._closed:
            events += self._close(output)
        if self._current is not None and self._current.pending_size:
            events.append(self._grow(self._current))
        return events

    def complete(self) -> list[Event]:
        """The agent ended well (or was stopped): close what is open and say so."""
        if self.is_stopped:
            return self.cancel()
        last = self._last_words()
        return [*self._finish_current(), self._status(TaskState.COMPLETED, last)]

    def fail(self, reason: str) -> list[Event]:
        """The run ended badly: close what is open and say why."""
        return [*self._finish_current(), self.status_text(TaskState.FAILED, reason)]

    def cancel(self) -> list[Event]:
        """The caller stopped the run."""
        words = STOPPED if self.is_stopped else CANCELED
        return [*self._finish_current(), self.status_text(TaskState.CANCELED, words)]

    def hand_over(self) -> list[Event]:
        """This run is over, but another message waits on the task: it goes on working."""
        words = (
            (Part(text=replace_lone_surrogates(self.failure)),)
            if self.failure
            else self._last_words()
        )
        return [*self._finish_current(), self._status(TaskState.WORKING, words)]

    def close(self) -> list[Event]:
        """Close what is open and say nothing."""
        return self._finish_current()

    def close_unfinished(self, artifact_ids: Iterable[ArtifactId]) -> list[Event]:
        """Close assistant messages that were begun and will not be finished."""
        return [
            self._artifact(Artifact(one, (Part(text=""),)), append=True, last_chunk=True)
            for one in artifact_ids
            if one.startswith(OUTPUT_PREFIX)
        ]

    def status_text(self, state: TaskState, text: str) -> StatusUpdate:
        """A status with one sentence of the agent."""
        return self._status(state, (Part(text=replace_lone_surrogates(text)),))

    def working(self) -> StatusUpdate:
        """The bare status `working`."""
        return self._status(TaskState.WORKING, None)

    def submitted(self) -> StatusUpdate:
        """The bare status `submitted`."""
        return self._status(TaskState.SUBMITTED, None)

    # ---------------------------------------------------------------- one method per event

    def _take_nothing(self, _event: Started) -> list[Event]:
        return []

    def _take_delta(self, event: TextDelta) -> list[Event]:
        output = self._current or self._open()
        self._had_content = self._had_content or bool(event.text.strip())
        if self._modes.accepts_text:
            output.add_delta(replace_lone_surrogates(event.text))
        return self._promote_if(self._is_second(output))

    def _take_preview(self, event: TextPreview) -> list[Event]:
        output = self._current or self._open()
        text = replace_lone_surrogates(event.text)
        known = output.streamed_text
        fresh = text[len(known) :] if text.startswith(known) else text
        return self._take_delta(TextDelta(fresh)) if fresh else []

    def _take_block(self, event: Block) -> list[Event]:
        output = self._current or self._open()
        self._had_content = self._had_content or bool(event.text.strip())
        if self._modes.accepts_text:
            output.add_block(replace_lone_surrogates(event.text))
        return self._promote_if(self._is_second(output)) + self.flush()

    def _take_reply(self, event: Reply) -> list[Event]:
        output = self._current or self._open()
        sendable = self._modes.filter(event.parts)
        self._had_content = self._had_content or has_content(event.parts)
        output.set_final(sendable)
        return self._promote_if(self._is_second(output)) + self._finish_current()

    def _take_message_end(self, _event: MessageEnd) -> list[Event]:
        return self._finish_current()

    def _take_part(self, event: PartDelta) -> list[Event]:
        # A part is a message of its own here, and so was the text before it.
        return self._finish_current() + self._take_reply(Reply((event.part,)))

    def _take_tool_reply(self, event: ToolReply) -> list[Event]:
        events = self._promote_if(True) + self.flush()
        sendable = self._modes.filter(event.parts)
        if sendable:
            self._tool_results += 1
            name = f"tool-result-{self._tool_results}"
            artifact = Artifact(
                ArtifactId(f"tool-result-{self._tool_results:04}"),
                sendable,
                name=name,
                metadata=self._artifact_metadata(name),
            )
            events.append(self._artifact(artifact, last_chunk=True))
        return events

    def _take_tool_progress(self, event: ToolProgress) -> list[Event]:
        if not event.tool_name or not event.call_id:
            return []
        events = self._promote_if(True) + self.flush()
        events.append(self._tool_artifact(event))
        prompt = approval_prompt(event)
        if prompt is not None:
            events += self._pause(prompt, None)
        return events

    def _take_note(self, event: Note) -> list[Event]:
        events = self._promote_if(True) + self.flush()
        return [*events, self.status_text(TaskState.WORKING, event.text)]

    def _take_input_required(self, event: InputRequired) -> list[Event]:
        return self._promote_if(True) + self._pause(event.prompt, event.resume)

    def _take_failed(self, event: Failed) -> list[Event]:
        self.failure = event.reason.strip() or "The agent failed without saying why."
        self.is_over = True
        return self._promote_if(True) + self.flush()

    def _take_stopped(self, _event: Stopped) -> list[Event]:
        self.is_over = self.is_stopped = True
        return self._promote_if(True) + self.flush()

    def _take_report(self, event: Report) -> list[Event]:
        facts = {
            replace_lone_surrogates(str(key)): json_safe(value)
            for key, value in event.metadata.items()
        }
        self._metadata = {**(self._metadata or {}), **facts}
        return []

    # ---------------------------------------------------------------- building blocks

    def _open(self) -> Output:
        number = self._numbering.outputs + len(self._closed) + 1
        self._current = Output(number)
        return self._current

    def _is_second(self, output: Output) -> bool:
        return output.has_content and len(self._closed) > 0

    def _all_outputs(self) -> list[Output]:
        return [*self._closed, self._current] if self._current is not None else self._closed

    def _promote_if(self, condition: bool) -> list[Event]:
        return self.promote() if condition and not self.is_promoted else []

    def _finish_current(self) -> list[Event]:
        current, self._current = self._current, None
        if current is None or not (current.has_content or current.is_shown):
            return []
        self._closed.append(current)
        return self._close(current) if self.is_promoted else []

    def _pause(self, prompt: str, resume: Json) -> list[Event]:
        self.is_over, self.resume = True, resume
        sentence = prompt.strip() or APPROVAL_NEEDED
        return [*self._finish_current(), self.status_text(TaskState.INPUT_REQUIRED, sentence)]

    def _last_words(self) -> tuple[Part, ...]:
        for output in reversed(self._all_outputs()):
            if output.has_content:
                return output.final_parts()
        return (Part(text=NO_REPLY),)

    def _grow(self, output: Output) -> ArtifactUpdate:
        is_first = not output.is_shown
        return self._output_artifact(output, output.take_pending(), append=not is_first)

    def _close(self, output: Output) -> list[Event]:
        parts, append = output.take_closing()
        return [self._output_artifact(output, parts, append=append, last_chunk=True)]

    def _output_artifact(
        self, output: Output, parts: tuple[Part, ...], *, append: bool, last_chunk: bool = False
    ) -> ArtifactUpdate:
        artifact = Artifact(
            output.artifact_id,
            parts,
            name=None if append else output.name,
            metadata=self._artifact_metadata(output.name),
        )
        return self._artifact(artifact, append=append, last_chunk=last_chunk)

    def _artifact_metadata(self, source: str) -> JsonObject:
        self._artifact_events += 1
        return {"sequence": self._artifact_events, "source": source}

    def _tool_artifact(self, event: ToolProgress) -> ArtifactUpdate:
        self._artifact_events += 1
        verb = "Failed" if event.is_error else _TOOL_VERBS[event.phase]
        safe: Json = json_safe(event.payload)
        shown = cast("Json", safe if isinstance(safe, dict) else {"value": safe})
        name = replace_lone_surrogates(event.tool_name)
        call_id = replace_lone_surrogates(event.call_id)
        artifact = Artifact(
            ArtifactId("tool-progress-" + re.sub(r"[^A-Za-z0-9_-]", "_", call_id)),
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
        return self._artifact(artifact, last_chunk=event.phase is ToolPhase.RESULT)

    def _artifact(
        self, artifact: Artifact, *, append: bool = False, last_chunk: bool = False
    ) -> ArtifactUpdate:
        stamp = self._stamp
        return ArtifactUpdate(stamp.task_id, stamp.context_id, artifact, append, last_chunk)

    def _status(self, state: TaskState, parts: tuple[Part, ...] | None) -> StatusUpdate:
        stamp = self._stamp
        message = None
        if parts is not None:
            message_id = MessageId(stamp.new_id())
            message = Message(message_id, Role.AGENT, parts, stamp.context_id, stamp.task_id)
        metadata = self._metadata if state is not TaskState.WORKING else None
        status = TaskStatus(state, message, stamp.now())
        return StatusUpdate(stamp.task_id, stamp.context_id, status, metadata)

    _TAKES: ClassVar[dict[type, Callable[["Transcript", Any], list[Event]]]] = {
        Started: _take_nothing,
        TextDelta: _take_delta,
        TextPreview: _take_preview,
        PartDelta: _take_part,
        Block: _take_block,
        Reply: _take_reply,
        MessageEnd: _take_message_end,
        ToolReply: _take_tool_reply,
        ToolProgress: _take_tool_progress,
        Note: _take_note,
        InputRequired: _take_input_required,
        Failed: _take_failed,
        Stopped: _take_stopped,
        Report: _take_report,
    }


def approval_prompt(event: ToolProgress) -> str | None:
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
