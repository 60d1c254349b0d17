"""A store that fails at times, and stops with its process."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tests.store.flat_store import FlatStore

from openclaw_a2a.model.errors import StoreUnavailable
from openclaw_a2a.ports import Store

DELIVERY_WRITES = ("update_record", "update_delivery")
WRITES = (*DELIVERY_WRITES, "submit", "commit", "start_run", "delete_record")


class UnreliableStore(FlatStore):
    """A store that fails at times, and dies with its process: then nothing reaches it any more.

    `left` counts the writes until then; the last one may still land, and nobody hears of it.
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.failing: tuple[str, ...] = ()
        self.refused: set[str] = set()
        """The names of the writes that failed."""
        self.makes_refused = False
        """True: a write that fails was made, as when only the answer to it is lost."""
        self.held: tuple[str, ...] = ()
        self.go = asyncio.Event()
        """Until it is set, the writes in `held` are not made, and get no answer."""
        self.left: int | None = None
        self.last_lands = False
        self.has_died = asyncio.Event()
        self.passing: set[asyncio.Future[Any]] = set()

    def __getattr__(self, name: str) -> Any:
        known: Any = super().__getattr__(name)
        if not callable(known):
            return known

        def ask(*given: Any, **more: Any) -> Awaitable[Any]:
            def perform() -> asyncio.Future[Any]:
                return self._pass(known(*given, **more))  # pyright: ignore[reportArgumentType] - all can be awaited

            if name == "close":
                return perform()
            if self.has_died.is_set() or (name in WRITES and self._is_last()):
                if self.last_lands:
                    self.last_lands = False
                    perform()
                return asyncio.get_running_loop().create_future()
            if name in self.failing:
                self.refused.add(name)
                if self.makes_refused:
                    perform()
                return asyncio.ensure_future(_refuse(name))  # some writes must return a future
            if name in self.held:
                return asyncio.ensure_future(self._hold(perform))
            return self._answer_of(perform())

        return ask

    async def _hold(self, perform: Callable[[], "asyncio.Future[Any]"]) -> Any:
        await self.go.wait()
        return await perform()

    def _is_last(self) -> bool:
        if self.left is None:
            return False
        self.left -= 1
        if self.left < 0:
            self.has_died.set()
        return self.left < 0

    def die(self) -> None:
        self.last_lands = False
        self.has_died.set()

    def _pass(self, asked: Awaitable[Any]) -> "asyncio.Future[Any]":
        future = asyncio.ensure_future(asked)
        self.passing.add(future)
        future.add_done_callback(self.passing.discard)
        return future

    def _answer_of(self, asked: "asyncio.Future[Any]") -> "asyncio.Future[Any]":
        return asyncio.ensure_future(self._answer(asked))

    async def _answer(self, asked: "asyncio.Future[Any]") -> Any:
        result = await asyncio.shield(asked)
        if self.has_died.is_set():
            await asyncio.get_running_loop().create_future()
        return result


async def _refuse(name: str) -> None:
    raise StoreUnavailable(f"the disk is full; {name} was not written")
