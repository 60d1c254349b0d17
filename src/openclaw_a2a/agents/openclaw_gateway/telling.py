"""What a run does, told in the engine's words: its messages with their files, its tool calls."""

from collections.abc import Iterator, Sequence
from itertools import dropwhile

from openclaw_a2a.agents.openclaw_gateway.frames import Origin, read_as
from openclaw_a2a.agents.openclaw_gateway.link import Link
from openclaw_a2a.agents.openclaw_gateway.media import Shelf, cut_media, fetch_media
from openclaw_a2a.agents.openclaw_gateway.run_history import RunHistory
from openclaw_a2a.agents.openclaw_gateway.spoken import Said, Spoken
from openclaw_a2a.agents.openclaw_gateway.tool_calls import ToolCalls
from openclaw_a2a.agents.openclaw_gateway.turn_events import Item, Piece, RunStatus, ToolStep
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.reply import AgentEvent, Note, Reply


class Telling:
    """Tells each thing once, whether it was heard live or found in the history.

    `open_calls` are the tool calls during which the run had paused: what the history has before
    the first of their results was told by an earlier turn. None: the run had not paused.
    """

    def __init__(
        self, link: Link, shelf: Shelf, *, open_calls: tuple[str, ...] | None = None
    ) -> None:
        self._link = link
        self._shelf = shelf
        self._open_before = open_calls
        self._spoken = Spoken()
        self._tools = ToolCalls()

    @property
    def open_calls(self) -> list[str]:
        """The tool calls that have begun and not ended."""
        return self._tools.open_calls

    async def take(self, origin: Origin, *, is_begun_here: bool) -> Sequence[AgentEvent]:
        """What an `agent` event tells. Who began the run on this connection hears more of it."""
        if origin.stream == "assistant":
            return await self._take_text(origin)
        if origin.stream == "tool":
            step = read_as(ToolStep, origin.data)
            return _some(None if step is None else self._tools.take(step))
        if origin.stream == "item":
            item = read_as(Item, origin.data)
            return () if item is None else await self._take_item(item, is_begun_here)
        if origin.stream == "run_status":
            # Such as the next attempt at a provider that fails; phases come without a sentence.
            status = read_as(RunStatus, origin.data)
            return (Note(status.message),) if status is not None and status.message else ()
        return ()

    async def _take_item(self, item: Item, is_begun_here: bool) -> Sequence[AgentEvent]:
        if item.kind == "preamble" and item.phase == "end" and item.progress_text:
            said = self._spoken.end_before_tool(*cut_media(item.progress_text))
            return await self._tell(said)
        return () if is_begun_here else _some(self._tools.take_item(item))

    async def _take_text(self, origin: Origin) -> Sequence[AgentEvent]:
        piece = read_as(Piece, origin.data)
        if piece is None:
            return ()
        if not self._spoken.is_next(piece):
            return _some(self._spoken.take(piece))
        ended = await self.end_message()
        return [*ended, *_some(self._spoken.take(piece))]

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
        self._spoken.fall_out_of_step()
        for step in self._new_steps(history, run_id):
            if isinstance(step, ToolStep):
                events += _some(self._tools.take(step))
                continue
            if not self._spoken.is_told(number):
                events += await self.finish(*cut_media(step))
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

    async def _tell(self, said: Said | None) -> Sequence[AgentEvent]:
        if said is None:
            return ()
        if not said.references:
            return (said.plain_event(),)
        files = await fetch_media(self._link, self._shelf, said.references)
        text = (Part.of_text(said.text),) if said.text else ()
        return (Reply((*text, *files)),)


def _some(event: AgentEvent | None) -> Sequence[AgentEvent]:
    return () if event is None else (event,)
