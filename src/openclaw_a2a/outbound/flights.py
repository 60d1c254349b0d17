"""Work that several callers want at the same time and that is done once."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class _Flight(Generic[Result]):
    def __init__(self, task: "asyncio.Task[Result]") -> None:
        self.task = task
        self.waiters = 0


class Flights(Generic[Result]):
    """What is under way, by what it is about.

    Whoever goes away leaves the others their result; when the last one goes, the work ends.
    """

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight[Result]] = {}

    async def join(self, key: Hashable, start: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """The result of the work under this key, which is started when it is not under way."""
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight(asyncio.ensure_future(start()))
        flight.waiters += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiters -= 1
            if flight.waiters == 0:
                await self._end(key, flight)

    async def _end(self, key: Hashable, flight: _Flight[Result]) -> None:
        # Gone before it has ended, so that nobody joins what is being ended.
        if self._flights.get(key) is flight:
            del self._flights[key]
        if not flight.task.done():
            flight.task.cancel()
            await asyncio.wait({flight.task})
