"""Any Python function as an agent: plain, async, or a generator of either kind."""

import contextlib
import functools
import importlib
import inspect
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from typing import ClassVar, TypeVar, cast

import anyio
import anyio.to_thread
import msgspec

from openclaw_a2a.agents.adapter import AdapterMetadata, AgentAdapter, EventAgent, closing
from openclaw_a2a.agents.concurrency import await_shielded
from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.engine.transcript.transcript import Transcript
from openclaw_a2a.model.agent_event import (
    AgentEvent,
    Block,
    MessageEnd,
    Reply,
    Started,
    TextDelta,
    TextPreview,
)
from openclaw_a2a.model.card import AgentProfile
from openclaw_a2a.model.errors import AgentFailed, GatewayError, SettingsInvalid
from openclaw_a2a.model.ids import Json
from openclaw_a2a.model.message import Part
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.ports import Recovery

_Result = TypeVar("_Result")

# Calls of one agent at a time; a slow function must not make threads without bound.
_MAX_THREADS = 64
_MAX_ERROR_CHARACTERS = 2000
_END = object()


class CallableAgent(EventAgent):
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
    with the message of the exception.

    A plain function or generator runs in a worker thread. A thread cannot be stopped: stopping
    the turn waits until the function returns (or the generator yields). An async function is
    cancelled at once.
    """

    def __init__(
        self, function: Callable[..., Json], *, recovery: Recovery = Recovery.FAIL
    ) -> None:
        self._recovery = recovery
        self._function = function
        self._arguments = inspect_arguments(function)
        # Calling it only makes a coroutine or an async generator.
        is_async = (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
        self._is_async = _is_any(function, is_async)
        self._threads = anyio.CapacityLimiter(_MAX_THREADS)

    @property
    def recovery(self) -> Recovery:
        """What happens to a run that a crash interrupted."""
        return self._recovery

    async def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        """Call the function and yield its answer. Raises: AgentFailed."""
        call = self._arguments.bind(self._function, turn)
        with _reporting_errors():
            result: Json = call() if self._is_async else await self._in_thread(call)
            if inspect.isawaitable(result):
                result = await result
        if not isinstance(result, AsyncIterator | Iterator):
            for event in _result_events(result):
                yield event
            return
        items = cast("AsyncIterator[Json] | Iterator[Json]", result)
        if isinstance(items, Iterator):
            items = self._items_from_thread(items)
        has_open_message = False
        with _reporting_errors():
            async with closing(items):
                async for item in items:
                    for event in _item_events(item, has_open_message=has_open_message):
                        if isinstance(event, TextDelta | TextPreview | Block):
                            has_open_message = True
                        elif isinstance(event, Reply | MessageEnd):
                            has_open_message = False
                        yield event

    def supports_streaming(self) -> bool:
        """True when the function is a generator."""
        return is_generator(self._function)

    def get_metadata(self) -> AdapterMetadata:
        """The name and the first line of the docstring of the function."""
        function = self._function
        name = getattr(function, "__name__", type(function).__name__)
        description = (inspect.getdoc(function) or "").partition("\n")[0]
        return AdapterMetadata(name=name, description=description)

    async def _items_from_thread(self, iterator: Iterator[Json]) -> AsyncIterator[Json]:
        try:
            while (item := await self._in_thread(lambda: next(iterator, _END))) is not _END:
                yield item
        finally:
            close = getattr(iterator, "close", None)
            if close is not None:
                # Without the limiter: closing must not wait behind new calls, and runs even when
                # cancelled.
                await _run_in_thread(close)

    async def _in_thread(self, call: Callable[[], _Result]) -> _Result:
        # Waiting for a free thread can be cancelled; the call itself cannot.
        async with self._threads:
            return await _run_in_thread(call)


class CallableAdapter(CallableAgent):
    """`adapter: "callable"`: a function as an adapter, shown as a task with one artifact.

    `function` is a function, or where to import one from (`"package.module:name"`; for an agent of
    the settings also from the folder of their file). See `CallableAgent` for what it may be given
    and may return.
    """

    transcript_type: ClassVar[type[Transcript] | None] = AgentAdapter.transcript_type

    def __init__(
        self, function: Callable[..., Json] | str, name: str = "", description: str = ""
    ) -> None:
        super().__init__(import_function(function) if isinstance(function, str) else function)
        self._name = name
        self._description = description

    async def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        """Show the task at once, then answer."""
        yield Started()
        async with closing(super().run(turn)) as events:
            async for event in events:
                yield event

    def profile(self) -> AgentProfile:
        """The name and the description of the function."""
        metadata = self.get_metadata()
        return AgentProfile(metadata.name, metadata.description)

    def get_metadata(self) -> AdapterMetadata:
        """The name and description of the settings, else those of the function."""
        known = super().get_metadata()
        return AdapterMetadata(
            name=self._name or known.name, description=self._description or known.description
        )


def import_function(place: str) -> Callable[..., Json]:
    """The function at a place, `module:function`. Raises: ValueError, and what the import does."""
    module_name, _, name = place.partition(":")
    if not module_name or not name:
        raise ValueError(f'function {place!r} is no place; write "module:function"')
    module = importlib.import_module(module_name)
    found: Json = module
    for step in name.split("."):
        found = getattr(found, step, None)
    if callable(found):
        return found
    # The file, because another module of the same name may have been found first.
    where = getattr(module, "__file__", None) or module_name
    reason = f"{where} has no {name}" if found is None else f"{name} cannot be called"
    raise ValueError(f"function {place!r} is not there: {reason}")


async def _run_in_thread(call: Callable[[], _Result]) -> _Result:
    def work() -> _Result:
        with _reporting_errors():  # here: a StopIteration could not be raised out of the thread
            return call()

    # A limiter of its own, so that it never waits for a thread.
    thread = anyio.to_thread.run_sync(work, limiter=anyio.CapacityLimiter(1))
    return await await_shielded(Supervisor("agents").start("function", thread))


@contextlib.contextmanager
def _reporting_errors() -> Generator[None]:
    """Raise AgentFailed for whatever the function raises; the engine logs the cause."""
    try:
        yield
    except GatewayError:
        raise
    except Exception as error:
        message = str(error).strip()[:_MAX_ERROR_CHARACTERS]
        # The message of a LookupError alone is only a value.
        if not message or isinstance(error, LookupError):
            message = f"{type(error).__name__}: {message}".removesuffix(": ")
        raise AgentFailed(message) from error


def is_generator(function: Callable[..., Json]) -> bool:
    """True for a function, or an object that is called like one, that yields: plain or async."""
    return _is_any(function, (inspect.isasyncgenfunction, inspect.isgeneratorfunction))


def _is_any(function: Callable[..., Json], tests: Iterable[Callable[[Json], bool]]) -> bool:
    """True when one of the tests holds for a function, or for how an object is called."""
    called = type(function).__call__
    return any(test(function) or test(called) for test in tests)


# -------------------------------------------------------------------- the function's arguments


class FunctionArguments(msgspec.Struct, frozen=True):
    """What to call a function with: for each argument, True for the turn, False for the text."""

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
    required one. A parameter with a default keeps it, unless it is such a parameter.

    Raises: SettingsInvalid when the function requires anything else.
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
        name = getattr(function, "__name__", type(function).__name__)
        raise SettingsInvalid(
            f"The function {name} needs {', '.join(wants)}; an agent's function is given the text,"
            " the turn, or both, so give every other parameter a default."
        )
    by_position = [one.name for one in required if one.kind is not one.KEYWORD_ONLY]
    keywords = {name: is_turn for name, is_turn in wants.items() if name not in by_position}
    if True not in wants.values():
        by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        optional = [one for one in parameters if one.kind in by_name and one not in required]
        keywords |= {one.name: True for one in optional if _wants_turn(one)}
    return FunctionArguments(tuple(wants[name] for name in by_position), keywords)


def _is_required(parameter: inspect.Parameter) -> bool:
    is_many = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not is_many


def _wants_turn(parameter: inspect.Parameter) -> bool:
    return parameter.name == "turn" or parameter.annotation in (Turn, "Turn")


# -------------------------------------------------------------------- the function's answer


def _result_events(result: Json) -> list[AgentEvent]:
    """The events of a function's result. Raises: AgentFailed (no valid answer)."""
    if isinstance(result, AgentEvent):
        return [result]
    if _is_list_of(result, AgentEvent):
        return list(result)
    if result is None or result == "":
        return []
    if isinstance(result, str | Part):
        result = [result]
    if _is_list_of(result, str | Part):
        return [Reply(tuple(Part(text=one) if isinstance(one, str) else one for one in result))]
    if isinstance(result, dict | list | tuple):
        return [Reply((Part.of_data(result),))]
    raise AgentFailed(
        f"The function answered with {type(result).__name__}; it must answer with str, Part, dict,"
        " list, AgentEvent or None."
    )


def _item_events(item: Json, *, has_open_message: bool) -> list[AgentEvent]:
    """The events of an item that a generator yields. Raises: AgentFailed (no valid answer)."""
    if isinstance(item, str):
        return [TextDelta(item)] if item else []
    events = _result_events(item)
    holds_events = isinstance(item, AgentEvent) or (item and _is_list_of(item, AgentEvent))
    if has_open_message and not holds_events and item is not None:
        # A part or data is a message of its own, so the text before it was one too.
        return [MessageEnd(), *events]
    return events


def _is_list_of(value: Json, kind: Json) -> bool:
    if not isinstance(value, list | tuple):
        return False
    return all(isinstance(item, kind) for item in cast("list[Json]", value))
