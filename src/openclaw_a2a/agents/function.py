"""Any Python function as an agent: plain, async, or a generator of either kind."""

import asyncio
import contextlib
import functools
import importlib
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import TypeVar, cast

import anyio
import anyio.to_thread
import msgspec

from openclaw_a2a.agents.adapter import AdapterMetadata, AgentView
from openclaw_a2a.agents.await_shielded import await_shielded
from openclaw_a2a.model.agent_event import (
    AgentEvent,
    Block,
    MessageEnd,
    Reply,
    TextDelta,
    TextPreview,
)
from openclaw_a2a.model.errors import AgentFailed, GatewayError, SettingsInvalid
from openclaw_a2a.model.ids import Json
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.ports import Recovery


class FunctionArguments(msgspec.Struct, frozen=True):
    """What to call a function with; True stands for the turn, False for the text."""

    positional: tuple[bool, ...]
    keywords: dict[str, bool]

    def bind(self, function: Callable[..., Json], turn: Turn) -> Callable[[], Json]:
        """The function, ready to be called for this turn."""
        positional = (turn if is_turn else turn.body for is_turn in self.positional)
        keywords = {name: turn if is_turn else turn.body for name, is_turn in self.keywords.items()}
        return functools.partial(function, *positional, **keywords)


def inspect_arguments(function: Callable[..., Json]) -> FunctionArguments:
    """How to call the function: with the text, with the turn, or with both.

    The turn goes to the parameter that is annotated `Turn` or named `turn`, else to the second
    one. A parameter with a default keeps it, unless it asks for the turn.

    Raises: SettingsInvalid when the function wants something else.
    """
    try:
        parameters = tuple(inspect.signature(function).parameters.values())
    except ValueError:
        return FunctionArguments((False,), {})  # built in, without a signature
    required = [one for one in parameters if _is_required(one)]
    if not required and any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return FunctionArguments((False,), {})
    wants = {one.name: _wants_turn(one) for one in required}
    if len(required) == 2 and not any(wants.values()):
        wants[required[1].name] = True
    if len(set(wants.values())) < len(wants):
        raise _wrong_parameters(function, required)
    by_position = [one.name for one in required if one.kind is not one.KEYWORD_ONLY]
    keywords = {name: is_turn for name, is_turn in wants.items() if name not in by_position}
    if True not in wants.values():
        keywords |= {one.name: True for one in parameters if _offers_turn(one)}
    return FunctionArguments(tuple(wants[name] for name in by_position), keywords)


def _is_required(parameter: inspect.Parameter) -> bool:
    is_many = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not is_many


def _wants_turn(parameter: inspect.Parameter) -> bool:
    return parameter.name == "turn" or parameter.annotation in (Turn, "Turn")


def _offers_turn(parameter: inspect.Parameter) -> bool:
    by_name = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    return by_name and not _is_required(parameter) and _wants_turn(parameter)


def _wrong_parameters(
    function: Callable[..., Json], required: list[inspect.Parameter]
) -> SettingsInvalid:
    name = getattr(function, "__name__", type(function).__name__)
    names = ", ".join(one.name for one in required)
    return SettingsInvalid(
        f"The function {name} needs {names}; an agent's function is given the text, the turn,"
        " or both, so give every other parameter a default."
    )


class FunctionOutput:
    """Turns results and yielded items into events, and knows whether a message is open."""

    def __init__(self) -> None:
        self._is_open = False

    def result_events(self, result: Json) -> Iterator[AgentEvent]:
        """The events of a function's result. Raises: AgentFailed for what is no answer."""
        if isinstance(result, AgentEvent):
            yield result
        elif _is_list_of(result, AgentEvent):
            yield from result
        elif parts := reply_parts(result):
            yield Reply(parts)

    def item_events(self, item: Json) -> Iterator[AgentEvent]:
        """The events of what a generator yields next. Raises: AgentFailed for what is no answer."""
        if isinstance(item, str):
            item = TextDelta(item) if item else None
        elif self._is_open and not _holds_event(item) and item is not None:
            # Content of its own: the text before it was a message of its own, too.
            yield MessageEnd()
        for event in self.result_events(item):
            self._is_open = self._is_open_after(event)
            yield event

    def _is_open_after(self, event: AgentEvent) -> bool:
        if isinstance(event, TextDelta | TextPreview | Block):
            return True
        return self._is_open and not isinstance(event, Reply | MessageEnd)


def reply_parts(value: Json) -> tuple[Part, ...]:
    """The value as the parts of a reply; empty when it says nothing. Raises: AgentFailed."""
    if value is None or value == "":
        return ()
    if isinstance(value, str | Part):
        return (_part(value),)
    if _is_list_of(value, str | Part):
        return tuple(_part(item) for item in value)
    if isinstance(value, dict | list | tuple):
        return (Part.of_data(value),)
    raise AgentFailed(
        f"The function answered with {type(value).__name__}; it must answer with str, Part, dict,"
        " list, AgentEvent or None."
    )


def _part(value: str | Part) -> Part:
    return Part(text=value) if isinstance(value, str) else value


def _holds_event(value: Json) -> bool:
    return isinstance(value, AgentEvent) or (bool(value) and _is_list_of(value, AgentEvent))


def _is_list_of(value: Json, kind: Json) -> bool:
    if not isinstance(value, list | tuple):
        return False
    items = cast("list[Json]", value)
    return all(isinstance(item, kind) for item in items)


_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

_MOST_THREADS = 64
_MOST_CHARACTERS = 2000
_END = object()


class CallableAgent:
    """Answers with what a function returns or yields.

    The function is called with the message's text, with the turn (a parameter that is annotated
    `Turn` or named `turn`), or with both. It may return or yield:

        str                     a reply; yielded: more text of the current message
        Part                    a reply of that part
        list of Part and str    a reply of these parts
        dict, any other list    a reply of that structured data
        AgentEvent, or a list   passed on as it is
        None                    nothing

    A yielded reply closes the message that was streamed before it. An exception fails the turn
    with the exception's own words.

    A plain function or generator runs in a worker thread. A thread cannot be stopped: whoever
    stops the turn waits until the function returns (or the generator yields). An async function
    is cancelled at once.
    """

    def __init__(
        self, function: Callable[..., Json], *, recovery: Recovery = Recovery.FAIL
    ) -> None:
        self.recovery = recovery
        self._function = function
        self._arguments = inspect_arguments(function)
        self._is_async = _is_async(function)
        self._threads = anyio.CapacityLimiter(_MOST_THREADS)

    async def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        """Call the function and tell what it says. Raises: AgentFailed."""
        with _failing_in_words():
            result = await self._call(turn)
        speech = FunctionOutput()
        steps = self._as_steps(result)
        if steps is None:
            for event in speech.result_events(result):
                yield event
            return
        try:
            while (item := await _next(steps)) is not _END:
                for event in speech.item_events(item):
                    yield event
        finally:
            await _close(steps)

    async def close(self) -> None:
        """Nothing is held."""

    async def _call(self, turn: Turn) -> Json:
        call = self._arguments.bind(self._function, turn)
        result = call() if self._is_async else await self._in_thread(call)
        return await result if inspect.isawaitable(result) else result

    def _as_steps(self, result: Json) -> AsyncIterator[Json] | None:
        """What a generator says, step by step; None for every other result."""
        if isinstance(result, AsyncIterator):
            return cast("AsyncIterator[Json]", result)
        if isinstance(result, Iterator):
            return self._steps(cast("Iterator[Json]", result))
        return None

    async def _steps(self, iterator: Iterator[Json]) -> AsyncIterator[Json]:
        step = functools.partial(next, iterator, _END)
        try:
            while (item := await self._in_thread(step)) is not _END:
                yield item
        finally:
            close = getattr(iterator, "close", None)
            if close is not None:
                await _finish_in_thread(close)

    async def _in_thread(self, call: Callable[[], _Result]) -> _Result:
        async with self._threads:  # waiting for a thread can be cancelled, using one cannot
            return await _finish_in_thread(call)


async def _finish_in_thread(call: Callable[[], _Result]) -> _Result:
    work = anyio.to_thread.run_sync(_in_words, call, limiter=anyio.CapacityLimiter(1))
    return await await_shielded(asyncio.ensure_future(work))


def _in_words(call: Callable[[], _Result]) -> _Result:
    with _failing_in_words():
        return call()


@contextlib.contextmanager
def _failing_in_words() -> Generator[None]:
    """Whatever the function raises becomes a failure in its own words for the caller.

    Who wrote the function finds the whole story in the log.
    """
    try:
        yield
    except GatewayError:
        raise
    except Exception as error:
        _log.warning("The function raised %s.", type(error).__name__, exc_info=error)
        raise AgentFailed(_words(error)) from error


def _words(error: Exception) -> str:
    """The error's message; with its type where the message alone is only a value."""
    words = str(error).strip()[:_MOST_CHARACTERS]
    if not words or isinstance(error, LookupError):
        return f"{type(error).__name__}: {words}".removesuffix(": ")
    return words


async def _next(steps: AsyncIterator[Json]) -> Json:
    with _failing_in_words():
        return await anext(steps, _END)


async def _close(steps: AsyncIterator[Json]) -> None:
    close = getattr(steps, "aclose", None)
    if close is not None:
        with _failing_in_words():
            await close()


def _is_async(function: Callable[..., Json]) -> bool:
    """True when calling the function only makes a coroutine or an async generator."""
    called = getattr(function, "__call__", function)  # noqa: B004 - the method itself is looked at
    return any(
        inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one)
        for one in (function, called)
    )


class CallableAdapter(AgentView):
    """Answers with what a function returns or yields; see `CallableAgent` for what that may be.

    `function` is a function, or where to find one (`"package.module:name"`). It may be plain,
    async, or a generator of either kind, which streams.
    """

    def __init__(
        self, function: Callable[..., Json] | str, name: str = "", description: str = ""
    ) -> None:
        found = _find(function) if isinstance(function, str) else function
        self._is_generator = _is_generator(found)
        shown = name or getattr(found, "__name__", type(found).__name__)
        about = description or (inspect.getdoc(found) or "").partition("\n")[0]
        super().__init__(CallableAgent(found), AdapterMetadata(name=shown, description=about))

    def supports_streaming(self) -> bool:
        """True when the function is a generator."""
        return self._is_generator


def _find(place: str) -> Callable[..., Json]:
    module, _, name = place.partition(":")
    if not module or not name:
        raise ValueError(f'function {place!r} is no place; write "package.module:name"')
    found: Json = importlib.import_module(module)
    for step in name.split("."):
        found = getattr(found, step, None)
    if callable(found):
        return found
    raise ValueError(f"function {place!r} is not there, or cannot be called")


def _is_generator(function: Callable[..., Json]) -> bool:
    called = type(function).__call__  # of an object that can be called like a function
    return any(
        inspect.isasyncgenfunction(one) or inspect.isgeneratorfunction(one)
        for one in (function, called)
    )
