"""What a Python developer writes to make something an A2A agent: text in, text or parts out."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

import msgspec

from openclaw_a2a.model.ids import ContextId, Json, JsonObject, SessionKey, TaskId
from openclaw_a2a.model.message import Message, Part
from openclaw_a2a.model.turn import Turn


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
