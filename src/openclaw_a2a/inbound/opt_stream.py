"""The changes of an objective as a stream of events."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import cast

import msgspec
import structlog

from openclaw_a2a.inbound.door import Door
from openclaw_a2a.inbound.http import Exchange
from openclaw_a2a.inbound.opt_desk import Change, PlanningDoor
from openclaw_a2a.inbound.streams import Spelling, Stream, last_event_id
from openclaw_a2a.model.errors import GatewayError, GatewayFault
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.turn import Scope

log = structlog.get_logger(__name__)


class PlanVisit(msgspec.Struct, frozen=True):
    """A request about objectives: who asks whom, at which door."""

    exchange: Exchange
    door: Door
    scope: Scope
    planning: PlanningDoor

    async def stream(self, params: JsonObject, spelling: Spelling) -> None:
        """Answer with the changes of an objective, as long as the reader stays.

        Raises: InvalidParams, Overloaded, and what planning refuses.
        """
        following: list[ChangeFollower] = []

        async def opening() -> Stream:
            cursor = last_event_id(self.exchange)
            changes = await self.planning.follow(params, self.scope, cursor)
            following.append(ChangeFollower(changes))
            return Stream(None, 0, following[0])

        try:
            await self.door.streams.serve(self.exchange, opening, spelling)
        finally:
            for follower in following:
                await follower.close()


class ToldChange(msgspec.Struct, frozen=True):
    """A change in the bytes that a stream shows."""

    sequence: int
    body: bytes


class ChangeFollower:
    """One reader of an objective's changes: it asks for the next when it has shown the last."""

    def __init__(self, changes: AsyncIterator[Change]) -> None:
        self._changes = changes
        self._next: asyncio.Task[ToldChange | None] | None = None
        self.is_over = False

    def stop(self) -> None:
        """The reader is gone: whoever waits in `take` gets an answer at once."""
        self.is_over = True
        if self._next is not None:
            self._next.cancel()

    async def take(self, wait_s: float) -> Sequence[ToldChange]:
        """The next change; nothing when none came in time or no more are to come."""
        coming = self._next or asyncio.get_running_loop().create_task(self._fetch())
        self._next = coming
        await asyncio.wait({coming}, timeout=wait_s)
        if self.is_over or not coming.done():
            return ()
        self._next = None
        change = coming.result()
        self.is_over = change is None
        return () if change is None else (change,)

    async def close(self) -> None:
        """Let go of the changes."""
        if self._next is not None:
            self._next.cancel()
            await asyncio.wait({self._next})
            if not self._next.cancelled():
                self._next.exception()
        if isinstance(self._changes, AsyncGenerator):
            await cast(AsyncGenerator[Change], self._changes).aclose()

    async def _fetch(self) -> ToldChange | None:
        try:
            change = await anext(self._changes, None)
            if change is None:
                return None
            return ToldChange(change.sequence, msgspec.json.encode(change.body))
        except GatewayError:
            raise
        except Exception as error:  # the answer has begun: all that can be told is its end
            log.exception("changes-broken")
            raise GatewayFault("internal error") from error
