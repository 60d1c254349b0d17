"""The base class of agents written in Python: text in, text or parts out.

Developers subclass `AgentAdapter`, which implements the engine's `Agent`:
`run` turns the answer of `invoke` or `stream` into agent events. `EventAgent` is for agents that
yield agent events themselves: they implement `run` and can still be invoked.
"""

import asyncio
import inspect
import itertools
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import cached_property
from typing import ClassVar, Self, TypeVar, cast

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectSendStream

from openclaw_a2a.engine.engine import new_id
from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.engine.transcript.assistant_message import OutputModes
from openclaw_a2a.engine.transcript.single_artifact import SingleArtifactTranscript
from openclaw_a2a.engine.transcript.transcript import NO_ARTIFACTS, EventContext, Transcript
from openclaw_a2a.log import get_logger
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
from openclaw_a2a.ports import Recovery

log = get_logger(__name__)

_QUEUE_SIZE = 8
"""How many events an adapter may be ahead of the journal."""

_MAX_CHUNK_CHARACTERS = 1024 * 1024
"""A longer text is cut into several chunks, each of which fits into one stored event."""

_OPTIONAL_KEYWORDS = ("context_id", "context")
_POSITIONAL_ARGUMENTS = {"invoke": 2, "stream": 2, "cancel": 0}
"""How many arguments the methods of an adapter get by position."""

_CANCEL_TIMEOUT_S = 5.0
_STANDALONE_AGENT = AgentId("main")
_Item = TypeVar("_Item")
_SelectKeywords = Callable[[str, JsonObject], JsonObject]


class CancelledByAdapter(Exception):
    """Raised by an adapter whose work was cancelled already: the task ends as canceled."""


class AdapterMetadata(msgspec.Struct, frozen=True):
    """The description of an adapter, for its agent card.

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

    `turn` is the whole turn when the engine calls. Two callers may use the same `context_id`;
    `session_key` is different for each.
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
    """Answers text with text or parts; tasks, streams, push and storage are not its concern.

    Raising any exception means that the request failed; raising `CancelledByAdapter` means that
    it was cancelled already. `kwargs["context"]` is the `RequestContext`; a method that takes
    neither `context` nor `**kwargs` is called without it. Of a decorated method
    (`functools.wraps`) with `**kwargs` the function inside decides, too: a decorator that
    needs the context names it.

    The engine calls `run`, `recovery`, `profile` and `close`; subclasses need not know them.
    """

    is_repeatable: bool = False
    """True when a request that a crash interrupted may be repeated."""

    transcript_type: ClassVar[type[Transcript] | None] = SingleArtifactTranscript
    """How its runs are shown: as a task with one artifact."""

    @abstractmethod
    async def invoke(
        self, user_input: str, context_id: str | None = None, **kwargs: Json
    ) -> str | list[Part]:
        """The whole answer."""

    async def stream(
        self, user_input: str, context_id: str | None = None, **kwargs: Json
    ) -> AsyncIterator[str | Part]:
        """The answer piece by piece; the default yields what `invoke` returns."""
        keywords = self._accepted_keywords("invoke", kwargs)
        answer = await self.invoke(user_input, context_id, **keywords)
        for piece in [answer] if isinstance(answer, str) else answer:
            yield piece

    def supports_streaming(self) -> bool:
        """True when requests are answered with `stream`: when that was overridden."""
        return type(self).stream is not AgentAdapter.stream

    async def cancel(self, context_id: str | None = None, **kwargs: Json) -> None:
        """Stop working on the request of `kwargs["context"]`; the default has nothing to stop."""
        del context_id, kwargs

    async def close(self) -> None:
        """Release what the adapter holds; the default holds nothing."""
        return

    def get_metadata(self) -> AdapterMetadata:
        """The content of the agent card."""
        return AdapterMetadata()

    async def __aenter__(self) -> Self:
        """The adapter itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the adapter."""
        await self.close()

    # ---------------------------------------------------------------- what the engine calls

    @property
    def recovery(self) -> Recovery:
        """What happens to a run that a crash interrupted."""
        return Recovery.REPEAT if self.is_repeatable else Recovery.FAIL

    def profile(self) -> AgentProfile | None:
        """The agent card in a gateway, unless its settings describe the agent."""
        metadata = self.get_metadata()
        return AgentProfile(metadata.name, metadata.description, adapter_skills(metadata))

    @cached_property
    def _rejected_keywords(self) -> dict[str, frozenset[str]]:
        """The optional keywords that each method of this adapter does not take."""
        # At the first call and not in a constructor: that of a subclass may not call this one.
        return {
            method: _find_rejected(getattr(self, method), positional)
            for method, positional in _POSITIONAL_ARGUMENTS.items()
        }

    def _accepted_keywords(self, method: str, keywords: JsonObject) -> JsonObject:
        """The keywords without those that a method does not take."""
        rejected = self._rejected_keywords[method]
        return {name: value for name, value in keywords.items() if name not in rejected}

    async def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        """Answer a turn with `stream` or `invoke`.

        When the run is stopped, `cancel` is called first, then the task that works on it is
        cancelled; nothing of it runs when this generator is closed.
        """
        yield Started()
        if not turn.raw_body:
            log.info("adapter.message_without_text", task_id=turn.task_id)
        context = RequestContext(turn.task_id, turn.context_id, turn.message, turn)
        send, receive = anyio.create_memory_object_stream[AgentEvent](_QUEUE_SIZE)
        # A task of its own, because `cancel` must be called while the adapter still works: if this
        # generator awaited the adapter, closing it would cancel the adapter first.
        answering = _answer(self, turn.raw_body, context, send, self._accepted_keywords)
        work = Supervisor("adapter").start("run", answering)
        try:
            async with receive:
                async for event in receive:
                    yield event
            # The stream has ended, so the work is over or about to be; this raises what it raised.
            await work
        except CancelledByAdapter:
            yield Stopped()
        finally:
            await _stop(work, self, context, self._accepted_keywords)


@asynccontextmanager
async def closing(iterator: AsyncIterator[_Item]) -> AsyncGenerator[AsyncIterator[_Item]]:
    """The iterator; it is closed afterwards if it can be closed."""
    try:
        yield iterator
    finally:
        close = getattr(iterator, "aclose", None)
        if close is not None:
            await close()


def adapter_skills(metadata: AdapterMetadata) -> tuple[AgentSkill, ...]:
    """The skills in an adapter's metadata; those without an id are called `skill-<i>`."""
    skills: list[AgentSkill] = []
    for i, skill in enumerate(metadata.skills):
        skill_id = str(skill.get("id") or f"skill-{i}")
        name = str(skill.get("name") or skill_id)
        description = str(skill.get("description") or name)
        lists = ("tags", "examples", "input_modes", "output_modes")
        members = {key: tuple(skill.get(key) or ()) for key in lists}
        skills.append(AgentSkill(skill_id, name, description, **members))
    return tuple(skills)


# -------------------------------------------------------------------- from answers to events


async def _answer(
    adapter: AgentAdapter,
    text: str,
    context: RequestContext,
    out: MemoryObjectSendStream[AgentEvent],
    accepted_keywords: _SelectKeywords,
) -> None:
    async with out:  # closed also when the adapter raises: that ends the reader
        method = "stream" if adapter.supports_streaming() else "invoke"
        keywords = accepted_keywords(method, {"context": context})
        if method == "invoke":
            answer: Json = await adapter.invoke(text, context.context_id, **keywords)
            for event in _answer_events(answer):
                await out.send(event)
            return
        stream: Json = adapter.stream(text, context.context_id, **keywords)
        if inspect.isawaitable(stream):
            stream = await stream
        async with closing(stream):
            async for piece in stream:
                for event in _piece_events(piece):
                    await out.send(event)


async def _stop(
    work: asyncio.Task[None],
    adapter: AgentAdapter,
    context: RequestContext,
    accepted_keywords: _SelectKeywords,
) -> None:
    try:
        if not work.done():
            # Limited: the engine waits until this generator is closed.
            async with asyncio.timeout(_CANCEL_TIMEOUT_S):
                given = {"context_id": context.context_id, "context": context}
                await adapter.cancel(**accepted_keywords("cancel", given))
    except Exception:
        log.warning("adapter.cancel_failed", task_id=context.task_id, exc_info=True)
    finally:
        # Also after a `cancel` that returned: the default does nothing.
        work.cancel()
        await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # retrieved: the reader had it or is gone, asyncio need not log it


def _find_rejected(method: Callable[..., Json], positional: int) -> frozenset[str]:
    """The optional keywords that a method does not take besides its positional arguments."""
    try:
        outermost = inspect.signature(method, follow_wrapped=False)
        innermost = inspect.signature(method)
    except Exception:  # built in, without a signature, or with one that cannot be evaluated
        return frozenset()
    accepted = {
        name
        for name in _OPTIONAL_KEYWORDS
        if _takes_keyword(outermost, positional, name)
        # A decorator passes on what its `**kwargs` get; a keyword that it names is for itself.
        and (name in outermost.parameters or _takes_keyword(innermost, positional, name))
    }
    return frozenset(_OPTIONAL_KEYWORDS) - accepted


def _takes_keyword(signature: inspect.Signature, positional: int, name: str) -> bool:
    try:
        signature.bind_partial(*(None,) * positional, **{name: None})
    except TypeError:
        return False
    return True


def _answer_events(answer: Json) -> list[AgentEvent]:
    """The events of a whole answer. Raises: AgentFailed."""
    if isinstance(answer, str):
        is_one_event = len(answer) <= _MAX_CHUNK_CHARACTERS
        return [Reply.of_text(answer)] if is_one_event else _piece_events(answer)
    if not isinstance(answer, list):
        raise AgentFailed(
            f"The adapter answered with {type(answer).__name__}; it must answer with a str or a"
            " list of Part."
        )
    return [Reply(tuple(_to_part(piece) for piece in cast("list[Json]", answer)))]


def _piece_events(piece: Json) -> list[AgentEvent]:
    """The events of a piece of a streamed answer. Raises: AgentFailed."""
    if not isinstance(piece, str):
        return [PartDelta(_to_part(piece))]
    starts = range(0, len(piece), _MAX_CHUNK_CHARACTERS)
    return [TextDelta(piece[start : start + _MAX_CHUNK_CHARACTERS]) for start in starts]


def _to_part(piece: Json) -> Part:
    if isinstance(piece, Part | str):
        return piece if isinstance(piece, Part) else Part(text=piece)
    raise AgentFailed(
        f"The adapter answered with a {type(piece).__name__}; it must answer with str and Part."
    )


# -------------------------------------------------------------------- from events to answers


class EventAgent(AgentAdapter):
    """An adapter that yields agent events itself: tool calls, notes, questions, failures.

    A subclass implements `run`; `invoke` and `stream` run a turn of their own and return its
    content.
    """

    transcript_type: ClassVar[type[Transcript] | None] = None
    """How its runs are shown is left to the account."""

    @abstractmethod
    def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        """Answer the turn."""

    async def invoke(
        self, user_input: str, context_id: str | None = None, **kwargs: Json
    ) -> list[Part]:
        """The whole answer; consecutive texts are one part. Raises: AgentFailed."""
        parts: list[Part] = []
        pieces = [piece async for piece in self.stream(user_input, context_id, **kwargs)]
        for is_text, group in itertools.groupby(pieces, lambda piece: isinstance(piece, str)):
            if is_text:
                parts.append(Part(text="".join(cast("Iterator[str]", group))))
            else:
                parts += cast("Iterator[Part]", group)
        return parts

    async def stream(
        self, user_input: str, context_id: str | None = None, **kwargs: Json
    ) -> AsyncIterator[str | Part]:
        """The answer piece by piece. A question of the agent ends it. Raises: AgentFailed."""
        turn = standalone_turn(user_input, context_id, kwargs.get("context"))
        context = EventContext(turn.task_id, turn.context_id, _now, new_id)
        transcript = SingleArtifactTranscript(
            context, modes=OutputModes(("*/*",)), is_task=True, counters=NO_ARTIFACTS
        )
        async with closing(self.run(turn)) as events:
            async for event in events:
                for piece in _pieces(transcript.apply(event), with_status=transcript.is_paused):
                    yield piece
                if transcript.is_over:
                    break
        for piece in _pieces(transcript.close()):
            yield piece
        if transcript.failure is not None:
            raise AgentFailed(transcript.failure)

    def supports_streaming(self) -> bool:
        """True: events are yielded as they happen."""
        return True

    def profile(self) -> AgentProfile | None:
        """None: the settings of the gateway describe the agent."""
        return None

    def get_metadata(self) -> AdapterMetadata:
        """The content of the agent card."""
        return agent_metadata(self)


def agent_metadata(agent: object) -> AdapterMetadata:
    """The metadata of an agent that has a profile, or nothing but its class."""
    describe = getattr(agent, "profile", None)
    profile: AgentProfile | None = None if describe is None else describe()
    if profile is None:
        return AdapterMetadata(name=type(agent).__name__)
    skills = [msgspec.structs.asdict(skill) for skill in profile.skills]
    return AdapterMetadata(name=profile.name, description=profile.description, skills=skills)


def _pieces(events: list[Event], *, with_status: bool = False) -> Iterator[str | Part]:
    for event in events:
        if isinstance(event, ArtifactUpdate):
            for part in event.artifact.parts:
                yield part if part.text is None or part.metadata else part.text
        elif with_status and event.status.message is not None:
            yield event.status.message.text


def standalone_turn(text: str, context_id: str | None, context: RequestContext | None) -> Turn:
    """The engine's turn; for a direct call a new turn made from the arguments."""
    if context is not None and context.turn is not None:
        return context.turn
    conversation = ContextId(context_id or new_id())
    if context is None:
        message = Message(MessageId(new_id()), Role.USER, (Part(text=text),), conversation)
        context = RequestContext(TaskId(new_id()), conversation, message)
    now = _now()
    return Turn(
        run_id=RunId(new_id()),
        task_id=context.task_id,
        context_id=conversation,
        message=context.message,
        binding=Binding(
            agent_id=_STANDALONE_AGENT,
            account_id=AccountId("default"),
            session_key=session_key(_STANDALONE_AGENT, LOCAL_PEER, conversation),
            main_session_key=main_session_key(_STANDALONE_AGENT),
            peer=Peer(id=conversation, source="context-id"),
            created_at=now,
            updated_at=now,
        ),
        principal=LOCAL_PEER,
        body=text,
        raw_body=text,
    )


def _now() -> datetime:
    return datetime.now(UTC)
