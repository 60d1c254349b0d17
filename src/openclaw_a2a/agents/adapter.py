"""What a Python developer writes to make something an A2A agent: text in, text or parts out."""

import asyncio
import inspect
import itertools
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import Self, TypeVar, cast

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectSendStream

from openclaw_a2a.engine.id_generator import new_id
from openclaw_a2a.engine.transcript.content import OutputModes
from openclaw_a2a.engine.transcript.single_artifact import SingleArtifactTranscript
from openclaw_a2a.engine.transcript.transcript import NO_ARTIFACTS, EventContext, Transcript
from openclaw_a2a.model.agent_event import AgentEvent, PartDelta, Reply, Started, Stopped, TextDelta
from openclaw_a2a.model.card import AgentProfile, AgentSkill
from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import (
    LOCAL_PEER,
    AccountId,
    AgentId,
    ContextId,
    Json,
    JsonObject,
    MessageId,
    RunId,
    SessionKey,
    TaskId,
)
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.session_keys import main_session_key, session_key
from openclaw_a2a.model.task import ArtifactUpdate, Event
from openclaw_a2a.model.turn import Binding, Peer, Turn
from openclaw_a2a.ports import (
    Agent,
    Recovery,
    SupportsOrphanCleanup,
    SupportsPauseCancel,
    SupportsProfile,
)


class CancelledByAdapter(Exception):
    """Raised by an adapter whose work was cancelled already: nothing more is said."""


class AdapterMetadata(msgspec.Struct, frozen=True):
    """What an adapter says about itself, for its agent card.

    `skills` are dicts with any of id, name, description, tags, examples, input_modes and
    output_modes; `provider` is a dict with organization and url.
    """

    name: str = ""
    description: str = ""
    version: str = "1.0.0"
    skills: list[JsonObject] = []
    input_modes: list[str] = msgspec.field(default_factory=lambda: ["text"])
    output_modes: list[str] = msgspec.field(default_factory=lambda: ["text"])
    streaming: bool = False
    provider: dict[str, str] | None = None
    documentation_url: str | None = None
    icon_url: str | None = None


class RequestContext(msgspec.Struct, frozen=True):
    """The request that an adapter answers: `kwargs["context"]` of every call.

    `turn` is there when the engine asks, with everything else that is known. Two callers may use
    the same `context_id`; `session_key` tells their conversations apart.
    """

    task_id: TaskId
    context_id: ContextId
    message: Message
    turn: Turn | None = None

    @property
    def session_key(self) -> SessionKey:
        """The conversation that the request belongs to, of this caller alone."""
        return SessionKey(self.context_id) if self.turn is None else self.turn.session_key


class AgentAdapter(ABC):
    """Answers text with text or parts; tasks, streams, push and storage are not its business.

    Raising any exception means that the request failed; raising `CancelledByAdapter` means that
    it was cancelled already. `kwargs["context"]` is the `RequestContext`.
    """

    is_repeatable: bool = False
    """True when a request may simply be asked again after a crash in the middle of it."""

    @abstractmethod
    async def invoke(
        self, user_input: str, context_id: str | None = None, **kwargs: Json
    ) -> str | list[Part]:
        """The answer, whole."""

    async def stream(
        self, user_input: str, context_id: str | None = None, **kwargs: Json
    ) -> AsyncIterator[str | Part]:
        """The answer piece by piece; an adapter that does not override it says it in one go."""
        answer = await self.invoke(user_input, context_id, **kwargs)
        for piece in [answer] if isinstance(answer, str) else answer:
            yield piece

    def supports_streaming(self) -> bool:
        """True when requests are to be answered with `stream`: when that was overridden."""
        return type(self).stream is not AgentAdapter.stream

    async def cancel(self, context_id: str | None = None, **kwargs: Json) -> None:
        """Stop working on the request of `kwargs["context"]`; the default has nothing to stop."""
        del context_id, kwargs

    async def close(self) -> None:
        """Release what the adapter holds; the default holds nothing."""
        return

    def get_metadata(self) -> AdapterMetadata:
        """What the agent card says."""
        return AdapterMetadata()

    async def __aenter__(self) -> Self:
        """The adapter itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the adapter."""
        await self.close()


_Item = TypeVar("_Item")


@asynccontextmanager
async def closing(steps: AsyncIterator[_Item]) -> AsyncGenerator[AsyncIterator[_Item]]:
    """The iterator; it is closed afterwards, when that is possible."""
    try:
        yield steps
    finally:
        close = getattr(steps, "aclose", None)
        if close is not None:
            await close()


def adapter_skills(metadata: AdapterMetadata) -> tuple[AgentSkill, ...]:
    """The skills; those without an id are called `skill-<i>`."""
    return tuple(_skill(skill, f"skill-{i}") for i, skill in enumerate(metadata.skills))


def _skill(skill: JsonObject, default_id: str) -> AgentSkill:
    skill_id = str(skill.get("id") or default_id)
    name = str(skill.get("name") or skill_id)
    return AgentSkill(
        id=skill_id,
        name=name,
        description=str(skill.get("description") or name),
        tags=tuple(skill.get("tags") or ()),
        examples=tuple(skill.get("examples") or ()),
        input_modes=tuple(skill.get("input_modes") or ()),
        output_modes=tuple(skill.get("output_modes") or ()),
    )


_AGENT = AgentId("main")
_EVERYTHING = OutputModes(("*/*",))


class AgentView(AgentAdapter):
    """An adapter that lets an agent answer; the engine talks to the agent itself."""

    def __init__(self, agent: Agent, metadata: AdapterMetadata | None = None) -> None:
        self.agent = agent
        self._metadata = metadata

    async def invoke(
        self, user_input: str, context_id: str | None = None, **kwargs: Json
    ) -> list[Part]:
        """The answer, whole. Raises: AgentFailed."""
        pieces = [piece async for piece in self.stream(user_input, context_id, **kwargs)]
        runs = itertools.groupby(pieces, lambda piece: isinstance(piece, str))
        return [part for is_text, run in runs for part in _parts(list(run), is_text=is_text)]

    async def stream(
        self, user_input: str, context_id: str | None = None, **kwargs: Json
    ) -> AsyncIterator[str | Part]:
        """The answer piece by piece. A question of the agent ends it. Raises: AgentFailed."""
        turn = _turn(user_input, context_id, kwargs.get("context"))
        stamp = EventContext(turn.task_id, turn.context_id, _now, new_id)
        told = SingleArtifactTranscript(
            stamp, modes=_EVERYTHING, is_task=True, counters=NO_ARTIFACTS
        )
        async with closing(self.agent.run(turn)) as events:
            async for event in events:
                for piece in _pieces(told.apply(event), with_status=told.is_paused):
                    yield piece
                if told.is_over:
                    break
        for piece in _pieces(told.close()):
            yield piece
        if told.failure is not None:
            raise AgentFailed(told.failure)

    def supports_streaming(self) -> bool:
        """True: every agent tells what it says as it says it."""
        return True

    async def close(self) -> None:
        """Close the agent."""
        await self.agent.close()

    def get_metadata(self) -> AdapterMetadata:
        """What the agent says of itself."""
        if self._metadata is not None:
            return self._metadata
        said = self.agent.profile() if isinstance(self.agent, SupportsProfile) else None
        if said is None:
            return AdapterMetadata(name=type(self.agent).__name__)
        skills = [{name: getattr(skill, name) for name in _SKILL} for skill in said.skills]
        return AdapterMetadata(name=said.name, description=said.description, skills=skills)


_SKILL = ("id", "name", "description", "tags", "examples", "input_modes", "output_modes")


def _pieces(events: list[Event], *, with_status: bool = False) -> list[str | Part]:
    pieces: list[str | Part] = []
    for event in events:
        if isinstance(event, ArtifactUpdate):
            pieces += [_bare(part) for part in event.artifact.parts]
        elif with_status and event.status.message is not None:
            pieces.append(event.status.message.text)
    return pieces


def _parts(pieces: list[str | Part], *, is_text: bool) -> list[Part]:
    """Pieces of one kind as parts; text that belongs together is one."""
    if is_text:
        return [Part(text="".join(cast("list[str]", pieces)))]
    return cast("list[Part]", pieces)


def _bare(part: Part) -> str | Part:
    return part if part.text is None or part.metadata else part.text


def _turn(text: str, context_id: str | None, context: RequestContext | None) -> Turn:
    """The turn of the engine; outside it, one of our own."""
    if context is not None and context.turn is not None:
        return context.turn
    conversation = ContextId(context_id or new_id())
    message = Message(MessageId(new_id()), Role.USER, (Part(text=text),), conversation)
    if context is not None:
        message = context.message
    return Turn(
        run_id=RunId(new_id()),
        task_id=context.task_id if context is not None else TaskId(new_id()),
        context_id=conversation,
        message=message,
        binding=_binding(conversation),
        principal=LOCAL_PEER,
        body=text,
        raw_body=text,
    )


def _binding(conversation: ContextId) -> Binding:
    now = _now()
    return Binding(
        agent_id=_AGENT,
        account_id=AccountId("default"),
        session_key=session_key(_AGENT, LOCAL_PEER, conversation),
        main_session_key=main_session_key(_AGENT),
        peer=Peer(id=conversation, source="context-id"),
        created_at=now,
        updated_at=now,
    )


def _now() -> datetime:
    return datetime.now(UTC)


_AHEAD = 8
"""How many pieces an adapter may be ahead of those who write them down."""

_MOST_CHARACTERS = 1024 * 1024
"""A longer text is shown in several chunks, each of which is an event of a size that is allowed."""

_OF_AGENTS = ("detach", "unavailable_reason", "background_events", "approvals", "decide")
"""What the engine looks for in agents, and adapters of the library have not."""

_CANCEL_S = 5.0
_log = logging.getLogger(__name__)


class AdapterAgent:
    """Lets an adapter answer turns.

    A run that is broken off is told to the adapter (`cancel`), then what still works on it is
    cancelled; when `run` is closed, nothing of it is left.
    """

    transcript_type: type[Transcript] = SingleArtifactTranscript

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

    async def end_orphans(self, run_id: RunId) -> None:
        """End what an earlier life of the gateway left running for this run."""
        adapter = self._within()
        if isinstance(adapter, SupportsOrphanCleanup):
            await adapter.end_orphans(run_id)

    async def cancel_pause(self, binding: Binding, resume: Json) -> None:
        """End what waits for the answer to a question, where the adapter asks any."""
        adapter = self._within()
        if isinstance(adapter, SupportsPauseCancel):
            await adapter.cancel_pause(binding, resume)

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
