"""Keeps task handles in the store, so that a restart of ours ends no work with remote agents."""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta

import msgspec
import structlog

from openclaw_a2a.model.ids import Json
from openclaw_a2a.outbound.handles import Handle, Revive
from openclaw_a2a.outbound.kept_handle import decode_handle, encode_handle
from openclaw_a2a.ports import KeptRecord, Store

log = structlog.get_logger(__name__)

KIND = "remote-task"
QUIET = timedelta(seconds=2)
"""A task that only talks is written down no more often than this."""

SETTLE_S = 10.0


class RecordKeeper:
    """Handles as records of a store. Writes are in order; `settle` waits for them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: dict[str, Handle] = {}
        self._held: dict[str, Handle] = {}
        self._writing: set[asyncio.Future[Json]] = set()

    @property
    def is_durable(self) -> bool:
        """True when the store survives this process."""
        return self._store.is_durable

    def keep(self, handle: Handle) -> None:
        """Have the handle written down; soon, or (when only its words changed) a little later."""
        known = self._kept.get(handle.name)
        if known is not None and _says_the_same(known, handle):
            self._held[handle.name] = handle
        else:
            self._write(handle)

    def drop(self, name: str) -> None:
        """Have the handle forgotten."""
        self._held.pop(name, None)
        self._kept.pop(name, None)
        self._follow(self._store.drop_record(KIND, name))

    async def settle(self) -> None:
        """Wait until everything said so far is written; what cannot be written is logged."""
        for handle in list(self._held.values()):
            self._write(handle)
        if self._writing:
            await asyncio.wait(set(self._writing), timeout=SETTLE_S)

    async def load(self, revive: Revive) -> list[Handle]:
        """What was kept before, least recently used first.

        Handles whose target may not be used any more are forgotten. Those that cannot be read,
        which another version may have written, are left alone until their time is over.
        """
        handles: list[Handle] = []
        for record in await self._store.read_records(KIND):
            try:
                handle = decode_handle(record.body, revive)
            except msgspec.DecodeError as error:
                log.warning("remote-task-unreadable", handle=record.id, reason=str(error))
                continue
            if handle is None:
                self.drop(record.id)
            else:
                self._kept[handle.name] = handle
                handles.append(handle)
        return handles

    def _write(self, handle: Handle) -> None:
        self._held.pop(handle.name, None)
        self._kept[handle.name] = handle
        record = KeptRecord(KIND, handle.name, encode_handle(handle), handle.expires_at)
        self._follow(self._store.put_record(record))

    def _follow(self, write: Awaitable[Json]) -> None:
        written = asyncio.ensure_future(write)
        self._writing.add(written)
        written.add_done_callback(self._written)

    def _written(self, write: "asyncio.Future[Json]") -> None:
        self._writing.discard(write)
        error = None if write.cancelled() else write.exception()
        if error is not None:
            log.warning("remote-task-not-kept", reason=str(error))


def _says_the_same(known: Handle, handle: Handle) -> bool:
    same = (known.target.identity, known.task_id, known.context_id, known.heard.state) == (
        handle.target.identity,
        handle.task_id,
        handle.context_id,
        handle.heard.state,
    )
    return same and handle.updated_at - known.updated_at < QUIET
