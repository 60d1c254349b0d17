"""The names of the package a2a-adapter, for programs that were written for it.

Most of them are other names of ours (`openclaw_a2a/__init__.py`); here are those that behave
differently.
"""

import inspect
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import cast

import msgspec

from openclaw_a2a.agents.adapter import AgentAdapter, RequestContext, closing, standalone_turn
from openclaw_a2a.agents.function import CallableAdapter, is_generator
from openclaw_a2a.library.asgi_app import AdapterApp, to_a2a
from openclaw_a2a.library.inputs import read_request, to_json_object
from openclaw_a2a.model.errors import AgentFailed
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.message import Message, Part
from openclaw_a2a.model.task import Task
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.model.validation import is_object
from openclaw_a2a.protocol.requests import SendRequest

_ANSWER_KEYS = ("response", "output", "result", "answer", "text", "message")


def build_agent_app(agent_card: Json, adapter: AgentAdapter) -> AdapterApp:
    """`to_a2a`, with the card first."""
    return to_a2a(adapter, agent_card)


class InputsAdapter(CallableAdapter):
    """`CallableAdapter` of a2a-adapter: a function that is given a dict.

    The dict has `message`, the text, and `context_id`. The function returns a text, a dict with
    the text under one of the usual keys, anything else, or an awaitable of these; a generator of
    either kind streams. `streaming`: it returns a generator although it is no generator function.
    """

    def __init__(
        self,
        func: Callable[..., Json],
        streaming: bool = False,
        name: str = "",
        description: str = "",
    ) -> None:
        self.func = func
        self._streams = streaming or is_generator(func)
        super().__init__(_with_inputs(func), name=name, description=description)

    def supports_streaming(self) -> bool:
        """True when the function streams."""
        return self._streams


def _with_inputs(func: Callable[..., Json]) -> Callable[[Turn], Json]:
    """A function of the turn, whose results are texts."""

    def call(turn: Turn) -> Json:
        return _to_text(func(_inputs(turn)))

    call.__name__ = getattr(func, "__name__", "CallableAdapter")
    call.__doc__ = inspect.getdoc(func)
    return call


def _to_text(result: Json) -> Json:
    """The text of a result; for an awaitable or an iterator, the same kind that gives texts.

    Checked on the result: a plain function may return a coroutine or a generator.
    """

    async def awaited() -> Json:
        return _to_text(await result)

    async def stream() -> AsyncIterator[str]:
        async with closing(cast("AsyncIterator[Json]", result)) as pieces:
            async for piece in pieces:
                yield str(piece)

    def generate() -> Iterator[str]:
        try:
            for piece in cast("Iterator[Json]", result):
                yield str(piece)
        finally:
            if isinstance(result, Generator):
                result.close()

    if inspect.isawaitable(result):
        return awaited()
    if isinstance(result, AsyncIterator):
        return stream()
    return generate() if isinstance(result, Iterator) else _answer_text(result)


def _inputs(turn: Turn) -> JsonObject:
    return {"message": turn.raw_body, "context_id": turn.context_id}


def _answer_text(answer: Json) -> str:
    if not is_object(answer):
        return str(answer)
    known = [key for key in _ANSWER_KEYS if key in answer]
    return str(answer[known[0]]) if known else msgspec.json.encode(answer).decode()


class BaseAgentAdapter(AgentAdapter):
    """The first interface of a2a-adapter: three steps instead of `invoke`.

    `params.message` is the message. `from_framework` returns a Message or a Task, of ours or of
    an a2a-sdk, or a text.
    """

    @abstractmethod
    async def to_framework(self, params: Json) -> Json:
        """The input of the framework."""

    @abstractmethod
    async def call_framework(self, framework_input: Json, params: Json) -> Json:
        """What the framework answers."""

    @abstractmethod
    async def from_framework(self, framework_output: Json, params: Json) -> Json:
        """The answer."""

    async def handle(self, params: Json) -> Json:
        """The three steps, one after the other."""
        output = await self.call_framework(await self.to_framework(params), params)
        return await self.from_framework(output, params)

    async def invoke(
        self, user_input: str, context_id: str | None = None, **kwargs: Json
    ) -> str | list[Part]:
        """The answer of `handle`. Raises: AgentFailed (it is no answer)."""
        context = cast("RequestContext | None", kwargs.get("context"))
        message = standalone_turn(user_input, context_id, context).message
        return _answer_parts(await self.handle(SendRequest(message=message)))


def _answer_parts(answer: Json) -> str | list[Part]:
    if isinstance(answer, str):
        return answer
    if isinstance(answer, Task):
        answer = answer.status.message or Part(text="")
    if isinstance(answer, Part):
        return [answer]
    if isinstance(answer, Message):
        return list(answer.parts)
    members = to_json_object(answer) or {}
    message: Json = members.get("status", members).get("message", members)
    if not is_object(message) or "parts" not in message:
        raise AgentFailed(f"from_framework returned a {type(answer).__name__}; return a Message.")
    role = "ROLE_USER" if str(message.get("role", "")).startswith("ROLE_") else "user"
    # As a request, because its decoder knows the parts of both versions.
    return list(read_request({"message": {**message, "role": role}}).message.parts)
