"""Translates a run's events and history into agent events: messages, files, tool calls, notices.

Everything is emitted exactly once, whether it arrives live or is found in the history.
"""

from collections.abc import Iterator, Sequence
from itertools import dropwhile
from typing import Final

from msgspec import Raw

from openclaw_a2a.agents.openclaw_gateway.connection import GatewayConnection
from openclaw_a2a.agents.openclaw_gateway.history import SessionHistory
from openclaw_a2a.agents.openclaw_gateway.media import fetch_media, split_media
from openclaw_a2a.agents.openclaw_gateway.message_assembler import FinishedMessage, MessageAssembler
from openclaw_a2a.agents.openclaw_gateway.protocol import (
    Item,
    Origin,
    StatusNotice,
    TextChunk,
    ToolStep,
    decode_as,
)
from openclaw_a2a.agents.openclaw_gateway.run_request import SessionRef
from openclaw_a2a.model.agent_event import AgentEvent, Note, Reply, ToolPhase, ToolProgress
from openclaw_a2a.model.ids import Json
from openclaw_a2a.model.message import Part

_MAX_TOOL_BYTES: Final = 256 * 1024
_PHASES: Final = {
    "start": ToolPhase.START,
    "update": ToolPhase.UPDATE,
    "result": ToolPhase.RESULT,
    "end": ToolPhase.RESULT,
}


class ToolCallTracker:
    """Emits each step of each tool call once."""

    def __init__(self) -> None:
        self._started: set[str] = set()
        self._ended: set[str] = set()

    @property
    def open_calls(self) -> list[str]:
        """The calls that have started and not ended."""
        return sorted(self._started - self._ended)

    def apply_step(self, step: ToolStep) -> ToolProgress | None:
        """The event for a step with its content; None when it was emitted before."""
        phase = _PHASES.get(step.phase)
        if phase is None or not self._is_new(step.tool_call_id, phase):
            return None
        content = {
            ToolPhase.START: step.args,
            ToolPhase.UPDATE: step.partial_result,
            ToolPhase.RESULT: step.result,
        }[phase]
        return ToolProgress(
            phase, step.name, step.tool_call_id, payload=_bounded(content), is_error=step.is_error
        )

    def apply_item(self, item: Item) -> ToolProgress | None:
        """The event for a step without its content; None when it was emitted before."""
        phase = _PHASES.get(item.phase)
        if item.kind != "tool" or phase is None or phase is ToolPhase.UPDATE:
            return None
        if not self._is_new(item.tool_call_id, phase):
            return None
        is_error = phase is ToolPhase.RESULT and item.status not in {"completed", ""}
        known = {"title": item.title, "status": item.status, "error": item.error}
        payload = {name: value for name, value in known.items() if value}
        return ToolProgress(phase, item.name, item.tool_call_id, payload=payload, is_error=is_error)

    def _is_new(self, call_id: str, phase: ToolPhase) -> bool:
        if not call_id or call_id in self._ended:
            return False
        if phase is ToolPhase.RESULT:
            self._ended.add(call_id)
        elif phase is ToolPhase.START:
            if call_id in self._started:
                return False
            self._started.add(call_id)
        return True


def _bounded(content: Raw) -> Json:
    """The content, unless it is so large that the event would exceed the task's limits."""
    size = len(memoryview(content))
    if size > _MAX_TOOL_BYTES:
        return {"leftOut": f"{size} bytes; a tool's content is shown up to {_MAX_TOOL_BYTES}"}
    return decode_as(object, content)


class EventTranslator:
    """Translates the output of one run.

    `open_calls` are the tool calls that were open when the run paused: history before the first of
    their results was emitted by an earlier turn. None: the run has not paused.
    """

    def __init__(
        self,
        connection: GatewayConnection,
        session: SessionRef,
        *,
        open_calls: tuple[str, ...] | None = None,
    ) -> None:
        self._connection = connection
        self._session = session
        self._paused_calls = open_calls
        self._messages = MessageAssembler()
        self._tools = ToolCallTracker()

    @property
    def open_calls(self) -> list[str]:
        """The tool calls that have started and not ended."""
        return self._tools.open_calls

    async def translate(self, origin: Origin, *, is_starter: bool) -> Sequence[AgentEvent]:
        """The agent events for an `agent` event.

        `is_starter`: this connection started the run, so tool steps arrive with their content and
        the `item` events that repeat them are skipped.
        """
        if origin.stream == "assistant":
            return await self._translate_text(origin)
        if origin.stream == "tool":
            step = decode_as(ToolStep, origin.data)
            return _as_list(None if step is None else self._tools.apply_step(step))
        if origin.stream == "item":
            item = decode_as(Item, origin.data)
            return () if item is None else await self._translate_item(item, is_starter)
        if origin.stream == "run_status":
            status = decode_as(StatusNotice, origin.data)
            return (Note(status.message),) if status is not None and status.message else ()
        return ()

    async def _translate_item(self, item: Item, is_starter: bool) -> Sequence[AgentEvent]:
        if item.kind == "preamble" and item.phase == "end" and item.progress_text:
            message = self._messages.end_before_tool(*split_media(item.progress_text))
            return await self._emit(message)
        return () if is_starter else _as_list(self._tools.apply_item(item))

    async def _translate_text(self, origin: Origin) -> Sequence[AgentEvent]:
        chunk = decode_as(TextChunk, origin.data)
        if chunk is None:
            return ()
        if not self._messages.starts_new_message(chunk):
            return _as_list(self._messages.add_chunk(chunk))
        ended = await self.end_message()
        return [*ended, *_as_list(self._messages.add_chunk(chunk))]

    async def end_message(self) -> Sequence[AgentEvent]:
        """End the current message as it stands."""
        return await self._emit(self._messages.end())

    async def finish(self, text: str, references: tuple[str, ...] = ()) -> Sequence[AgentEvent]:
        """End the current message with this full text."""
        return await self._emit(self._messages.finish(text, references))

    async def catch_up(self, history: SessionHistory, run_id: str) -> list[AgentEvent]:
        """What the history has of the run and was not emitted yet."""
        events: list[AgentEvent] = []
        index = 0
        self._messages.mark_out_of_sync()
        for step in self._new_steps(history, run_id):
            if isinstance(step, ToolStep):
                events += _as_list(self._tools.apply_step(step))
                continue
            if not self._messages.is_sent(index):
                events += await self.finish(*split_media(step))
            index += 1
        return events

    def _new_steps(self, history: SessionHistory, run_id: str) -> Iterator[str | ToolStep]:
        steps = history.list_steps(run_id)
        if self._paused_calls is None:
            return steps
        return dropwhile(lambda step: not self._ends_pause(step), steps)

    def _ends_pause(self, step: str | ToolStep) -> bool:
        if not isinstance(step, ToolStep) or step.phase != "result":
            return False
        return step.tool_call_id in (self._paused_calls or ())

    async def _emit(self, message: FinishedMessage | None) -> Sequence[AgentEvent]:
        if message is None:
            return ()
        if not message.references:
            return (message.plain_event(),)
        files = await fetch_media(self._connection, self._session, message.references)
        text = (Part.of_text(message.text),) if message.text else ()
        return (Reply((*text, *files)),)


def _as_list(event: AgentEvent | None) -> Sequence[AgentEvent]:
    return () if event is None else (event,)
