"""A task handle as it is kept beyond a process: never with the credentials of its target."""

import asyncio
import contextlib
import os
import secrets
from collections.abc import Awaitable
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from openclaw_a2a.log import get_logger
from openclaw_a2a.model.ids import Json
from openclaw_a2a.ports import Record, Store
from openclaw_a2a.remote.config import Transport
from openclaw_a2a.remote.handles.handles import Progression, Revive, TaskHandle
from openclaw_a2a.remote.targets import Target, TargetIdentity


class KeptHandle(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What is written down of a handle."""

    name: str
    base_url: str
    card_path: str
    preferred_transports: tuple[Transport, ...]
    task_id: str
    created_at: datetime
    updated_at: datetime
    expires_at: datetime
    alias: str | None = None
    context_id: str | None = None
    heard: Progression = Progression()


_decoder = msgspec.json.Decoder(KeptHandle)


def encode_handle(handle: TaskHandle) -> bytes:
    """The handle for a file or a record."""
    identity = handle.target.identity
    kept = KeptHandle(
        name=handle.name,
        base_url=identity.base_url,
        card_path=identity.card_path,
        preferred_transports=identity.preferred_transports,
        task_id=handle.task_id,
        created_at=handle.created_at,
        updated_at=handle.updated_at,
        expires_at=handle.expires_at,
        alias=handle.target.alias,
        context_id=handle.context_id,
        heard=handle.heard,
    )
    return msgspec.json.encode(kept)


def decode_handle(body: bytes, revive: Revive) -> TaskHandle | None:
    """The handle with today's credentials; None when its target may not be used any more.

    Raises: msgspec.DecodeError.
    """
    kept = _decoder.decode(body)
    identity = TargetIdentity(kept.base_url, kept.card_path, kept.preferred_transports)
    target = revive(Target(identity, kept.alias))
    if target is None:
        return None
    return TaskHandle(
        name=kept.name,
        target=target,
        task_id=kept.task_id,
        context_id=kept.context_id,
        created_at=kept.created_at,
        updated_at=kept.updated_at,
        expires_at=kept.expires_at,
        heard=kept.heard,
    )


log = get_logger(__name__)

KIND = "remote-task"
QUIET = timedelta(seconds=2)
"""A task that only talks is written down no more often than this."""

SETTLE_S = 10.0


class RecordHandleStore:
    """Handles as records of a store. Writes are in order; `settle` waits for them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: dict[str, TaskHandle] = {}
        self._held: dict[str, TaskHandle] = {}
        self._writing: set[asyncio.Future[Json]] = set()

    @property
    def is_durable(self) -> bool:
        """True when the store survives this process."""
        return self._store.is_durable

    def keep(self, handle: TaskHandle) -> None:
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
        self._follow(self._store.records.delete_record(KIND, name))

    async def settle(self) -> None:
        """Wait until everything said so far is written; what cannot be written is logged."""
        for handle in list(self._held.values()):
            self._write(handle)
        if self._writing:
            await asyncio.wait(set(self._writing), timeout=SETTLE_S)

    async def load(self, revive: Revive) -> list[TaskHandle]:
        """What was kept before, least recently used first.

        Handles whose target may not be used any more are forgotten. Those that cannot be read,
        which another version may have written, are left alone until their time is over.
        """
        handles: list[TaskHandle] = []
        for record in await self._store.records.list_records(KIND):
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

    def _write(self, handle: TaskHandle) -> None:
        self._held.pop(handle.name, None)
        self._kept[handle.name] = handle
        record = Record(KIND, handle.name, encode_handle(handle), handle.expires_at)
        self._follow(self._store.records.put_record(record))

    def _follow(self, write: Awaitable[Json]) -> None:
        written = asyncio.ensure_future(write)
        self._writing.add(written)
        written.add_done_callback(self._written)

    def _written(self, write: "asyncio.Future[Json]") -> None:
        self._writing.discard(write)
        error = None if write.cancelled() else write.exception()
        if error is not None:
            log.warning("remote-task-not-kept", reason=str(error))


def _says_the_same(known: TaskHandle, handle: TaskHandle) -> bool:
    same = (known.target.identity, known.task_id, known.context_id, known.heard.state) == (
        handle.target.identity,
        handle.task_id,
        handle.context_id,
        handle.heard.state,
    )
    return same and handle.updated_at - known.updated_at < QUIET


class FolderHandleStore:
    """One file for each handle, so that two processes never overwrite each other's.

    What cannot be written is not kept, and `is_durable` says so from then on.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._states: dict[str, str | None] = {}
        self._held: dict[str, TaskHandle] = {}
        self.is_durable = True

    def keep(self, handle: TaskHandle) -> None:
        """Write its file; when only its words changed, not before `settle`."""
        is_known = self._states.get(handle.name, "new") == handle.heard.state
        self._held[handle.name] = handle
        if not is_known:
            self._write_held()

    def drop(self, name: str) -> None:
        """Delete its file."""
        self._held.pop(name, None)
        with contextlib.suppress(OSError):
            self._file(name).unlink()

    async def settle(self) -> None:
        """Write what is not written yet."""
        self._write_held()

    def _write_held(self) -> None:
        for name, handle in self._held.items():
            try:
                write_private_file(self._file(name), encode_handle(handle))
            except OSError:
                self.is_durable = False
            self._states[name] = handle.heard.state
        self._held = {}

    async def load(self, revive: Revive) -> list[TaskHandle]:
        """What the folder holds, least recently used first; credentials are those of today."""
        found: list[tuple[float, TaskHandle]] = []
        for path in self._folder.glob("rah_*.json"):
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                handle = decode_handle(path.read_bytes(), revive)
                if handle is not None and handle.name == path.stem:
                    found.append((path.stat().st_mtime, handle))
        return [handle for _, handle in sorted(found, key=lambda one: one[0])]

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.json"


def write_private_file(path: Path, body: bytes) -> None:
    """Replace a file as a whole; nobody but its owner can read it. Raises: OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(body)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
