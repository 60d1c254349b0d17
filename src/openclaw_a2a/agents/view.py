"""Any agent of the engine as an adapter of the library."""

import itertools
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import cast

from openclaw_a2a.agents.adapter import AdapterMetadata, AgentAdapter, RequestContext
from openclaw_a2a.agents.steps import closing
from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import (
    LOCAL_PEER,
    AccountId,
    AgentId,
    ContextId,
    Json,
    MessageId,
    RunId,
    TaskId,
)
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.session import main_session_key, session_key
from openclaw_a2a.model.task import ArtifactUpdate, Event
from openclaw_a2a.model.turn import Binding, Peer, Turn
from openclaw_a2a.ports import Agent, DescribesItself
from openclaw_a2a.runtime.ids import new_id
from openclaw_a2a.runtime.output import OutputModes
from openclaw_a2a.runtime.profile import ResponseTranscript
from openclaw_a2a.runtime.transcript import NO_NUMBERS, Stamp

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
        stamp = Stamp(turn.task_id, turn.context_id, _now, new_id)
        told = ResponseTranscript(stamp, modes=_EVERYTHING, is_task=True, numbering=NO_NUMBERS)
        async with closing(self.agent.run(turn)) as events:
            async for event in events:
                for piece in _pieces(told.take(event), with_status=told.is_paused):
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
        said = self.agent.profile() if isinstance(self.agent, DescribesItself) else None
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
