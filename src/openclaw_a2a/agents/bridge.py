"""The bridge: an adapter of the library as an agent of the engine."""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator
from typing import cast

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from openclaw_a2a.agents.adapter import AgentAdapter, CancelledByAdapter, RequestContext
from openclaw_a2a.agents.skills import adapter_skills
from openclaw_a2a.agents.steps import closing
from openclaw_a2a.agents.view import AgentView
from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import Json, RunId
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.profile import AgentProfile
from openclaw_a2a.model.reply import AgentEvent, PartDelta, Reply, Started, Stopped, TextDelta
from openclaw_a2a.model.turn import Binding, Turn
from openclaw_a2a.ports import KeepsPaused, LeavesTraces, Recovery
from openclaw_a2a.runtime.profile import ResponseTranscript
from openclaw_a2a.runtime.transcript import Transcript

_AHEAD = 8
"""How many pieces an adapter may be ahead of those who write them down."""

_MOST_CHARACTERS = 1024 * 1024
"""A longer text is shown in several chunks, each of which is an event of a size that is allowed."""

_OF_AGENTS = ("let_go", "trouble", "later", "approvals", "decide")
"""What the engine looks for in agents, and adapters of the library have not."""

_CANCEL_S = 5.0
_log = logging.getLogger(__name__)


class AdapterAgent:
    """Lets an adapter answer turns.

    A run that is broken off is told to the adapter (`cancel`), then what still works on it is
    cancelled; when `run` is closed, nothing of it is left.
    """

    transcript_type: type[Transcript] = ResponseTranscript

    def __init__(self, adapter: AgentAdapter) -> None:
        self._adapter = adapter
        self.recovery = Recovery.REPEAT if adapter.is_repeatable else Recovery.FAIL
        if isinstance(adapter, AgentView):
            self.recovery = adapter.agent.recovery
            for name in _OF_AGENTS:  # on the bridge itself: only what the agent really can
                if hasattr(adapter.agent, name):
                    setattr(self, name, getattr(adapter.agent, name))

    async def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        """Ask the adapter and tell what it says."""
        yield Started()
        if not turn.raw_body:
            _log.info("The message of task %s has no text.", turn.task_id)
        try:
            async with closing(self._answer(turn)) as events:
                async for event in events:
                    yield event
        except CancelledByAdapter:
            yield Stopped()

    def _answer(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        if isinstance(self._adapter, AgentView):
            return self._adapter.agent.run(turn)
        return _ask(self._adapter, turn)

    async def close(self) -> None:
        """Close the adapter."""
        await self._adapter.close()

    async def end_leftovers(self, run_id: RunId) -> None:
        """End what an earlier life of the gateway left running for this run."""
        adapter = self._within()
        if isinstance(adapter, LeavesTraces):
            await adapter.end_leftovers(run_id)

    async def end_pause(self, binding: Binding, resume: Json) -> None:
        """End what waits for the answer to a question, where the adapter asks any."""
        adapter = self._within()
        if isinstance(adapter, KeepsPaused):
            await adapter.end_pause(binding, resume)

    def profile(self) -> AgentProfile:
        """What the adapter says of itself."""
        metadata = self._adapter.get_metadata()
        return AgentProfile(metadata.name, metadata.description, adapter_skills(metadata))

    def _within(self) -> object:
        return self._adapter.agent if isinstance(self._adapter, AgentView) else self._adapter


async def _ask(adapter: AgentAdapter, turn: Turn) -> AsyncIterator[AgentEvent]:
    """What the adapter says. It works in a task of its own, so that it can be told to stop."""
    context = RequestContext(turn.task_id, turn.context_id, turn.message, turn)
    send, receive = anyio.create_memory_object_stream[AgentEvent](_AHEAD)
    work = asyncio.ensure_future(_work(adapter, context, send))
    try:
        async with receive:
            async for event in receive:
                yield event
        await work
    finally:
        await _end(work, adapter, context)


async def _work(
    adapter: AgentAdapter, context: RequestContext, out: MemoryObjectSendStream[AgentEvent]
) -> None:
    async with out:
        text = cast("Turn", context.turn).raw_body
        if not adapter.supports_streaming():
            answer: Json = await adapter.invoke(text, context.context_id, context=context)
            for event in _whole(answer):
                await out.send(event)
            return
        stream: Json = adapter.stream(text, context.context_id, context=context)
        if inspect.isawaitable(stream):
            stream = await stream
        async with closing(stream):
            async for piece in stream:
                for event in _piece(piece):
                    await out.send(event)


async def _end(
    work: "asyncio.Future[None]", adapter: AgentAdapter, context: RequestContext
) -> None:
    try:
        if not work.done():
            await _tell_to_stop(adapter, context)
    finally:
        work.cancel()
        await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # whoever cared has seen it


async def _tell_to_stop(adapter: AgentAdapter, context: RequestContext) -> None:
    try:
        async with asyncio.timeout(_CANCEL_S):
            await adapter.cancel(context_id=context.context_id, context=context)
    except Exception:
        _log.warning("The adapter failed to cancel task %s.", context.task_id, exc_info=True)


def _whole(answer: Json) -> list[AgentEvent]:
    """The events of a whole answer. Raises: AgentFailed for what is none."""
    if isinstance(answer, str):
        if len(answer) > _MOST_CHARACTERS:
            return _piece(answer)
        return [Reply.of_text(answer)]
    if not isinstance(answer, list):
        raise AgentFailed(
            f"The adapter answered with {type(answer).__name__}; it must answer with a str or a"
            " list of Part."
        )
    pieces = cast("list[Json]", answer)
    return [Reply(tuple(_part(piece) for piece in pieces))]


def _piece(piece: Json) -> list[AgentEvent]:
    """The events of a piece of a streamed answer. Raises: AgentFailed for what is none."""
    if not isinstance(piece, str):
        return [PartDelta(_part(piece))]
    starts = range(0, len(piece), _MOST_CHARACTERS)
    return [TextDelta(piece[start : start + _MOST_CHARACTERS]) for start in starts]


def _part(piece: Json) -> Part:
    if isinstance(piece, Part):
        return piece
    if isinstance(piece, str):
        return Part(text=piece)
    raise AgentFailed(
        f"The adapter answered with a {type(piece).__name__}; it must answer with str and Part."
    )
