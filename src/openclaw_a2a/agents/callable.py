"""Any Python function as an agent: plain, async, or a generator of either kind."""

import asyncio
import contextlib
import functools
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import TypeVar, cast

import anyio
import anyio.to_thread

from openclaw_a2a.agents.arguments import plan_arguments
from openclaw_a2a.agents.finish import finish
from openclaw_a2a.agents.speech import Speech
from openclaw_a2a.model.errors import AgentFailed, GatewayError
from openclaw_a2a.model.ids import Json
from openclaw_a2a.model.reply import AgentEvent
from openclaw_a2a.model.turn import Turn
from openclaw_a2a.ports import Recovery

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
        self._arguments = plan_arguments(function)
        self._is_async = _is_async(function)
        self._threads = anyio.CapacityLimiter(_MOST_THREADS)

    async def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        """Call the function and tell what it says. Raises: AgentFailed."""
        with _failing_in_words():
            result = await self._call(turn)
        speech = Speech()
        steps = self._as_steps(result)
        if steps is None:
            for event in speech.whole(result):
                yield event
            return
        try:
            while (item := await _next(steps)) is not _END:
                for event in speech.next(item):
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
    return await finish(asyncio.ensure_future(work))


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
