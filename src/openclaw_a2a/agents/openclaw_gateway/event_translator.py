"""The tool calls of a run as they are told on: each step once."""

from collections.abc import Iterator, Sequence
from itertools import dropwhile
from typing import Final

from msgspec import Raw

from openclaw_a2a.agents.openclaw_gateway.connection import GatewayConnection
from openclaw_a2a.agents.openclaw_gateway.media import SessionRef, fetch_media, split_media
from openclaw_a2a.agents.openclaw_gateway.message_assembler import FinishedMessage, MessageAssembler
from openclaw_a2a.agents.openclaw_gateway.protocol import (
    Item,
    Origin,
    StatusNotice,
    TextChunk,
    ToolStep,
    decode_as,
)
from openclaw_a2a.agents.openclaw_gateway.run_lookup import RunHistory
from openclaw_a2a.model.agent_event import AgentEvent, Note, Reply, ToolPhase, ToolProgress
from openclaw_a2a.model.ids import Json
from openclaw_a2a.model.message import Part

_MOST_BYTES: Final = 256 * 1024
_PHASES: Final = {
    "start": ToolPhase.START,
    "update": ToolPhase.UPDATE,
    "result": ToolPhase.RESULT,
    "end": ToolPhase.RESULT,
}


class ToolCallTracker:
    """Which steps of which calls have been told."""

    def __init__(self) -> None:
        self._begun: set[str] = set()
        self._ended: set[str] = set()

    @property
    def open_calls(self) -> list[str]:
        """The calls that have begun and not ended."""
        return sorted(self._begun - self._ended)

    def apply_step(self, step: ToolStep) -> ToolProgress | None:
        """A step with its content."""
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
        """A step as those hear it who did not begin the run: without its content."""
        phase = _PHASES.get(item.phase)
        if item.kind != "tool" or phase is None or phase is ToolPhase.UPDATE:
            return None
        if not self._is_new(item.tool_call_id, phase):
            return None
        is_error = phase is ToolPhase.RESULT and item.status not in {"completed", ""}
        shown = {"title": item.title, "status": item.status, "error": item.error}
        payload = {name: value for name, value in shown.items() if value}
        return ToolProgress(phase, item.name, item.tool_call_id, payload=payload, is_error=is_error)

    def _is_new(self, call_id: str, phase: ToolPhase) -> bool:
        if not call_id or call_id in self._ended:
            return False
        if phase is ToolPhase.RESULT:
            self._ended.add(call_id)
        elif phase is ToolPhase.START:
            if call_id in self._begun:
                return False
            self._begun.add(call_id)
        return True


def _bounded(content: Raw) -> Json:
    """The content, unless it is so large that showing it would end the task."""
    size = len(memoryview(content))
    if size > _MOST_BYTES:
        return {"leftOut": f"{size} bytes; a tool's content is shown up to {_MOST_BYTES}"}
    return decode_as(object, content)


class EventTranslator:
    """Tells each thing once, whether it was heard live or found in the history.

    `open_calls` are the tool calls during which the run had paused: what the history has before
    the first of their results was told by an earlier turn. None: the run had not paused.
    """

    def __init__(
        self,
        link: GatewayConnection,
        shelf: SessionRef,
        *,
        open_calls: tuple[str, ...] | None = None,
    ) -> None:
        self._link = link
        self._shelf = shelf
        self._open_before = open_calls
        self._spoken = MessageAssembler()
        self._tools = ToolCallTracker()

    @property
    def open_calls(self) -> list[str]:
        """The tool calls that have begun and not ended."""
        return self._tools.open_calls

    async def translate(self, origin: Origin, *, is_begun_here: bool) -> Sequence[AgentEvent]:
        """What an `agent` event tells. Who began the run on this connection hears more of it."""
        if origin.stream == "assistant":
            return await self._take_text(origin)
        if origin.stream == "tool":
            step = decode_as(ToolStep, origin.data)
            return _some(None if step is None else self._tools.apply_step(step))
        if origin.stream == "item":
            item = decode_as(Item, origin.data)
            return () if item is None else await self._take_item(item, is_begun_here)
        if origin.stream == "run_status":
            # Such as the next attempt at a provider that fails; phases come without a sentence.
            status = decode_as(StatusNotice, origin.data)
            return (Note(status.message),) if status is not None and status.message else ()
        return ()

    async def _take_item(self, item: Item, is_begun_here: bool) -> Sequence[AgentEvent]:
        if item.kind == "preamble" and item.phase == "end" and item.progress_text:
            said = self._spoken.end_before_tool(*split_media(item.progress_text))
            return await self._tell(said)
        return () if is_begun_here else _some(self._tools.apply_item(item))

    async def _take_text(self, origin: Origin) -> Sequence[AgentEvent]:
        piece = decode_as(TextChunk, origin.data)
        if piece is None:
            return ()
        if not self._spoken.starts_new_message(piece):
            return _some(self._spoken.add_chunk(piece))
        ended = await self.end_message()
        return [*ended, *_some(self._spoken.add_chunk(piece))]

    async def end_message(self) -> Sequence[AgentEvent]:
        """The current message is over as it was told."""
        return await self._tell(self._spoken.end())

    async def finish(self, text: str, references: tuple[str, ...] = ()) -> Sequence[AgentEvent]:
        """The last message of the run, whole."""
        return await self._tell(self._spoken.finish(text, references))

    async def catch_up(self, history: RunHistory, run_id: str) -> list[AgentEvent]:
        """What the history has of the run and was not told yet."""
        events: list[AgentEvent] = []
        number = 0
        self._spoken.mark_out_of_sync()
        for step in self._new_steps(history, run_id):
            if isinstance(step, ToolStep):
                events += _some(self._tools.apply_step(step))
                continue
            if not self._spoken.is_sent(number):
                events += await self.finish(*split_media(step))
            number += 1
        return events

    def _new_steps(self, history: RunHistory, run_id: str) -> Iterator[str | ToolStep]:
        steps = history.steps_of(run_id)
        if self._open_before is None:
            return steps
        return dropwhile(lambda step: not self._ends_pause(step), steps)

    def _ends_pause(self, step: str | ToolStep) -> bool:
        if not isinstance(step, ToolStep) or step.phase != "result":
            return False
        return step.tool_call_id in (self._open_before or ())

    async def _tell(self, said: FinishedMessage | None) -> Sequence[AgentEvent]:
        if said is None:
            return ()
        if not said.references:
            return (said.plain_event(),)
        files = await fetch_media(self._link, self._shelf, said.references)
        text = (Part.of_text(said.text),) if said.text else ()
        return (Reply((*text, *files)),)


def _some(event: AgentEvent | None) -> Sequence[AgentEvent]:
    return () if event is None else (event,)
