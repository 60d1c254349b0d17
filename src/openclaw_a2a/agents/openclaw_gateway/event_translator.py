"""Translates a run's events and history into agent events: messages, files, tool calls, notices.

Everything is emitted exactly once, whether it arrives live or is found in the history. A run can be
joined in the middle: its chunks carry the message so far, and the session's history has the
messages that ended while the connection was away. `engine/transcript` turns the agent events into
A2A events.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from openclaw_a2a.agents.openclaw_gateway.connection import GatewayConnection
from openclaw_a2a.agents.openclaw_gateway.history import SessionHistory
from openclaw_a2a.agents.openclaw_gateway.media import fetch_media, split_media
from openclaw_a2a.agents.openclaw_gateway.protocol import (
    Item,
    Origin,
    StatusNotice,
    TextChunk,
    ToolStep,
    decode_as,
)
from openclaw_a2a.agents.openclaw_gateway.runs import SessionRef
from openclaw_a2a.model.agent_event import (
    AgentEvent,
    MessageEnd,
    Note,
    Reply,
    TextDelta,
    ToolPhase,
    ToolProgress,
)
from openclaw_a2a.model.message import Part


class FinishedMessage(msgspec.Struct, frozen=True):
    """A finished message: its text, whether all of it was emitted as deltas, and its files."""

    text: str
    is_streamed: bool
    references: tuple[str, ...] = ()


class MessageAssembler:
    """Tracks how much of a run's messages was emitted.

    The current message is `_emitted` while the emitted deltas are a prefix of it, else
    `_replacement`, which is emitted as a whole when the message ends.
    """

    def __init__(self) -> None:
        # All of them: `catch_up` skips as many messages of the history.
        self._finished: list[str] = []
        self._finished_items: set[str] = set()
        self._item = ""
        self._emitted: list[str] = []
        self._replacement: str | None = None
        self._references: dict[str, None] = {}
        self._is_in_sync = False  # true while every delta continues the emitted text
        self._from_history = ""
        """The last message taken from the history: its live chunks may still arrive."""

    @property
    def is_open(self) -> bool:
        """True while a message is in progress."""
        return bool(self._emitted or self._replacement or self._references)

    @property
    def last(self) -> str:
        """The last finished message; empty when there is none."""
        return self._finished[-1] if self._finished else ""

    def starts_new_message(self, chunk: TextChunk) -> bool:
        """True when the chunk belongs to another message than the current one."""
        is_other = chunk.item_id != self._item and chunk.item_id not in self._finished_items
        return self.is_open and is_other

    def add_chunk(self, chunk: TextChunk) -> TextDelta | None:
        """The new text in the chunk."""
        # `full_text` grows with the message: it is decoded only where deltas are not enough.
        is_known = chunk.item_id in self._finished_items
        if not is_known and self._from_history and not self.is_open:
            # A late chunk of a message that was already emitted from the history.
            full = chunk.full_text or ""
            is_known = bool(full) and self._from_history.startswith(full)
        if is_known:
            return None
        # If the delta is not the whole text, the run was joined in the middle of a message.
        if chunk.item_id != self._item:
            self._item, self._is_in_sync = chunk.item_id, chunk.delta == chunk.full_text
        self._references.update(dict.fromkeys(chunk.media_urls))
        if self._is_in_sync and not chunk.replace:
            if not chunk.delta:
                return None
            self._emitted.append(chunk.delta)
            return TextDelta(chunk.delta)
        full = chunk.full_text
        text = full if full is not None else self._text() + chunk.delta
        self._replacement = None
        emitted = self._text()
        self._is_in_sync = text.startswith(emitted)
        # What was emitted cannot be taken back: the whole text follows as one message at the end.
        if not self._is_in_sync:
            self._replacement = text
            return None
        rest = text[len(emitted) :]
        if not rest:
            return None
        self._emitted.append(rest)
        return TextDelta(rest)

    def mark_out_of_sync(self) -> None:
        """Chunks may have been missed: the next one counts by its full text."""
        self._is_in_sync = False

    def end(self) -> FinishedMessage | None:
        """End the current message."""
        if not self.is_open:
            return None
        message = FinishedMessage(self._text(), self._replacement is None, tuple(self._references))
        self._emitted, self._replacement, self._references = [], None, {}
        self._finished_items.add(self._item)
        self._item, self._is_in_sync = "", False
        self._finished.append(message.text)
        return message

    def finish(self, text: str, references: tuple[str, ...] = ()) -> FinishedMessage | None:
        """End the current message with this full text; the result is what is not emitted yet."""
        if self.is_open:
            if text.strip() and text.strip() != self._text().strip():
                self._replacement = text
            self._references.update(dict.fromkeys(references))
            return self.end()
        # The result of a run repeats its last message, which was streamed already.
        is_repeated = text.strip() == self.last.strip()
        if not references and (not text.strip() or is_repeated):
            return None
        self._from_history = text
        self._finished.append(text)
        new_text = "" if is_repeated else text
        return FinishedMessage(new_text, is_streamed=False, references=references)

    def end_before_tool(self, text: str, references: tuple[str, ...]) -> FinishedMessage | None:
        """End the message before a tool call; `text` may be a shortened form of a long one."""
        emitted = self._text()
        if not self.is_open or (len(text) > len(emitted) and text.startswith(emitted)):
            return self.finish(text, references)
        return self.end()

    def is_sent(self, index: int) -> bool:
        """True when the run's message with this index (from 0) was emitted to its end."""
        return index < len(self._finished)

    def _text(self) -> str:
        if self._replacement is not None:
            return self._replacement
        # Joined in place: a message of n chunks costs O(n), however often its text is needed.
        if len(self._emitted) > 1:
            self._emitted = ["".join(self._emitted)]
        return self._emitted[0] if self._emitted else ""


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
        phase = self._new_phase(step.tool_call_id, step.phase)
        if phase is None:
            return None
        content = {
            ToolPhase.START: step.args,
            ToolPhase.UPDATE: step.partial_result,
            ToolPhase.RESULT: step.result,
        }[phase]
        size = len(memoryview(content))
        if size <= _MAX_TOOL_BYTES:
            payload = decode_as(object, content)
        else:  # the event would exceed the limits of a task
            limit = _MAX_TOOL_BYTES
            payload = {"leftOut": f"{size} bytes; a tool's content is shown up to {limit}"}
        return ToolProgress(
            phase, step.name, step.tool_call_id, payload=payload, is_error=step.is_error
        )

    def apply_item(self, item: Item) -> ToolProgress | None:
        """The event for a step without its content; None when it was emitted before."""
        if item.kind != "tool" or item.phase == "update":
            return None
        phase = self._new_phase(item.tool_call_id, item.phase)
        if phase is None:
            return None
        is_error = phase is ToolPhase.RESULT and item.status not in {"completed", ""}
        known = {"title": item.title, "status": item.status, "error": item.error}
        payload = {name: value for name, value in known.items() if value}
        return ToolProgress(phase, item.name, item.tool_call_id, payload=payload, is_error=is_error)

    def _new_phase(self, call_id: str, name: str) -> ToolPhase | None:
        """The phase of this name, and it counts as emitted; None when it was before."""
        phase = _PHASES.get(name)
        is_repeated = phase is ToolPhase.START and call_id in self._started
        if phase is None or not call_id or call_id in self._ended or is_repeated:
            return None
        if phase is ToolPhase.START:
            self._started.add(call_id)
        elif phase is ToolPhase.RESULT:
            self._ended.add(call_id)
        return phase


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
        self.tools = ToolCallTracker()

    async def translate(self, origin: Origin, *, is_starter: bool) -> Sequence[AgentEvent]:
        """The agent events for an `agent` event.

        `is_starter`: this connection started the run, so tool steps arrive with their content and
        the `item` events that repeat them are skipped.
        """
        if origin.stream == "assistant":
            chunk = decode_as(TextChunk, origin.data)
            if chunk is None:
                return ()
            starts_new = self._messages.starts_new_message(chunk)
            ended = await self.end_message() if starts_new else ()
            return [*ended, *_as_list(self._messages.add_chunk(chunk))]
        if origin.stream == "tool":
            step = decode_as(ToolStep, origin.data)
            return _as_list(None if step is None else self.tools.apply_step(step))
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
        return () if is_starter else _as_list(self.tools.apply_item(item))

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
        # Chunks of the time without a connection are lost; the next one is taken by its full text.
        self._messages.mark_out_of_sync()
        paused_calls = self._paused_calls
        has_resumed = paused_calls is None
        for step in history.list_steps(run_id):
            if isinstance(step, ToolStep):
                is_result = step.phase == "result" and step.tool_call_id in (paused_calls or ())
                has_resumed = has_resumed or is_result
            if not has_resumed:  # the turn before the pause emitted it
                continue
            if isinstance(step, ToolStep):
                events += _as_list(self.tools.apply_step(step))
                continue
            if not self._messages.is_sent(index):
                events += await self.finish(*split_media(step))
            index += 1
        return events

    async def _emit(self, message: FinishedMessage | None) -> Sequence[AgentEvent]:
        if message is None:
            return ()
        if not message.references:
            return (MessageEnd() if message.is_streamed else Reply.of_text(message.text),)
        # Raises nothing for a file that cannot be fetched: the message counts as emitted.
        files = await fetch_media(self._connection, self._session, message.references)
        text = (Part.of_text(message.text),) if message.text else ()
        return (Reply((*text, *files)),)


def _as_list(event: AgentEvent | None) -> Sequence[AgentEvent]:
    return () if event is None else (event,)
