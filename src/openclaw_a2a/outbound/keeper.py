"""Keeps task handles in the store, so that a restart of ours ends no work with remote agents."""

import asyncio
from collections.abc import Awaitable
from datetime import datetime, timedelta

import msgspec
import structlog

from openclaw_a2a.model.ids import Json
from openclaw_a2a.outbound.config import Transport
from openclaw_a2a.outbound.handles import Handle, Progression, Revive
from openclaw_a2a.outbound.targets import Identity, Target
from openclaw_a2a.ports import KeptRecord, Store

log = structlog.get_logger(__name__)

KIND = "remote-task"
QUIET = timedelta(seconds=2)
"""A task that only talks is written down no more often than this."""

SETTLE_S = 10.0


class _Kept(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A handle as its record holds it: never with credentials."""

    base_url: str
    card_path: str
    preferred_transports: tuple[str, ...]
    task_id: str
    created_at: datetime
    updated_at: datetime
    alias: str | None = None
    context_id: str | None = None
    heard: Progression = Progression()


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

        Handles whose target may not be used any more, or that cannot be read, are forgotten.
        """
        handles: list[Handle] = []
        for record in await self._store.read_records(KIND):
            handle = _read(record, revive)
            if handle is None:
                self.drop(record.id)
            else:
                self._kept[handle.name] = handle
                handles.append(handle)
        return handles

    def _write(self, handle: Handle) -> None:
        self._held.pop(handle.name, None)
        self._kept[handle.name] = handle
        record = KeptRecord(KIND, handle.name, _body(handle), handle.expires_at)
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


def _body(handle: Handle) -> bytes:
    identity = handle.target.identity
    return msgspec.json.encode(
        _Kept(
            base_url=identity.base_url,
            card_path=identity.card_path,
            preferred_transports=tuple(one.value for one in identity.preferred_transports),
            task_id=handle.task_id,
            created_at=handle.created_at,
            updated_at=handle.updated_at,
            alias=handle.target.alias,
            context_id=handle.context_id,
            heard=handle.heard,
        )
    )


def _read(record: KeptRecord, revive: Revive) -> Handle | None:
    try:
        kept = msgspec.json.decode(record.body, type=_Kept)
        transports = tuple(Transport(one) for one in kept.preferred_transports)
    except (msgspec.DecodeError, ValueError) as error:
        log.warning("remote-task-unreadable", handle=record.id, reason=str(error))
        return None
    target = revive(Target(Identity(kept.base_url, kept.card_path, transports), kept.alias))
    if target is None:
        return None
    return Handle(
        name=record.id,
        target=target,
        task_id=kept.task_id,
        context_id=kept.context_id,
        created_at=kept.created_at,
        updated_at=kept.updated_at,
        expires_at=record.expires_at,
        heard=kept.heard,
    )
