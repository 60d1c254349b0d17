"""A store that fails at times, and stops with its process."""

import asyncio
from collections.abc import Awaitable
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
            return _refused(name) if name in self.failing else self._answer_of(perform())

        return ask

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


async def _refused(name: str) -> None:
    raise StoreUnavailable(f"the disk is full; {name} was not written")
