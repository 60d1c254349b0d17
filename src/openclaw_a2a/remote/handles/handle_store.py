"""Stores task handles, so that remote tasks are found again after a restart.

In the records of the gateway's store, or in a folder of small files for commands and scripts. The
credentials of a target are never stored: they are those of the configuration at loading.
"""

import asyncio
import contextlib
import os
import secrets
from collections.abc import Awaitable
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.ids import Json
from openclaw_a2a.ports import Record, Store
from openclaw_a2a.remote.config import Transport
from openclaw_a2a.remote.handles.handles import LastKnownState, RestoreTarget, TaskHandle
from openclaw_a2a.remote.targets import Target, TargetIdentity

log = get_logger(__name__)

RECORD_KIND = "remote-task"
TEXT_INTERVAL = timedelta(seconds=2)
"""A handle of which only the text changed is written no more often than this."""

_FLUSH_S = 10.0


class _StoredHandle(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
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
    last_known: LastKnownState = msgspec.field(name="heard", default=LastKnownState())


_decoder = msgspec.json.Decoder(_StoredHandle)


def encode_handle(handle: TaskHandle) -> bytes:
    """The handle for a file or a record."""
    identity = handle.target.identity
    stored = _StoredHandle(
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
        last_known=handle.last_known,
    )
    return msgspec.json.encode(stored)


def decode_handle(body: bytes, restore: RestoreTarget) -> TaskHandle | None:
    """The handle; None when its target may not be used any more. Raises: msgspec.DecodeError."""
    stored = _decoder.decode(body)
    identity = TargetIdentity(stored.base_url, stored.card_path, stored.preferred_transports)
    target = restore(Target(identity, stored.alias))
    if target is None:
        return None
    return TaskHandle(
        name=stored.name,
        target=target,
        task_id=stored.task_id,
        context_id=stored.context_id,
        created_at=stored.created_at,
        updated_at=stored.updated_at,
        expires_at=stored.expires_at,
        last_known=stored.last_known,
    )


class RecordHandleStore:
    """Handles as records of a store. Writes are made in the order of the calls."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._written: dict[str, TaskHandle] = {}
        self._held_back: dict[str, TaskHandle] = {}
        self._writes: set[asyncio.Task[None]] = set()
        self._supervisor = Supervisor("remote-handles")

    @property
    def is_durable(self) -> bool:
        """True when the store survives this process."""
        return self._store.is_durable

    def save(self, handle: TaskHandle) -> None:
        """Write the handle, at once or (when only its text changed) with the next flush."""
        written = self._written.get(handle.name)
        if written is not None and _only_text_changed(written, handle):
            self._held_back[handle.name] = handle
        else:
            self._write(handle)

    def delete(self, name: str) -> None:
        """Delete the handle."""
        self._held_back.pop(name, None)
        self._written.pop(name, None)
        self._start(self._store.records.delete_record(RECORD_KIND, name))

    async def flush(self) -> None:
        """Wait until everything is written; what cannot be written is logged."""
        for handle in list(self._held_back.values()):
            self._write(handle)
        if self._writes:
            await asyncio.wait(set(self._writes), timeout=_FLUSH_S)

    async def load(self, restore: RestoreTarget) -> list[TaskHandle]:
        """The stored handles, least recently used first.

        Handles whose target may not be used any more are deleted. Those that cannot be read, which
        another version may have written, are left alone until they expire.
        """
        handles: list[TaskHandle] = []
        for record in await self._store.records.list_records(RECORD_KIND):
            try:
                handle = decode_handle(record.body, restore)
            except msgspec.DecodeError as error:
                log.warning("remote.handle_unreadable", handle=record.id, reason=str(error))
                continue
            if handle is None:
                self.delete(record.id)
            else:
                self._written[handle.name] = handle
                handles.append(handle)
        return handles

    def _write(self, handle: TaskHandle) -> None:
        self._held_back.pop(handle.name, None)
        self._written[handle.name] = handle
        body = encode_handle(handle)
        record = Record(RECORD_KIND, handle.name, body, handle.expires_at)
        self._start(self._store.records.put_record(record))

    def _start(self, write: Awaitable[Json]) -> None:
        # Not awaited: a store that is slow or fails must not hold up the answer of a peer.
        task = self._supervisor.start("store-handle", _logged(write))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)


async def _logged(write: Awaitable[Json]) -> None:
    try:
        await write
    except Exception as error:  # the call goes on; only a restart would lose this handle
        log.warning("remote.handle_not_stored", reason=str(error))


def _only_text_changed(written: TaskHandle, handle: TaskHandle) -> bool:
    same = (
        written.target.identity == handle.target.identity
        and written.task_id == handle.task_id
        and written.context_id == handle.context_id
        and written.last_known.state == handle.last_known.state
    )
    return same and handle.updated_at - written.updated_at < TEXT_INTERVAL


class FolderHandleStore:
    """One file for each handle, so that two processes never overwrite each other's.

    A handle that cannot be written is not stored, and `is_durable` is false from then on.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written_states: dict[str, str | None] = {}
        self._held_back: dict[str, TaskHandle] = {}
        self.is_durable = True

    def save(self, handle: TaskHandle) -> None:
        """Write its file, at once or (when its state is the same) with the next flush."""
        is_known = self._written_states.get(handle.name, "new") == handle.last_known.state
        self._held_back[handle.name] = handle
        if not is_known:
            self._write_all()

    def delete(self, name: str) -> None:
        """Delete its file."""
        self._held_back.pop(name, None)
        with contextlib.suppress(OSError):
            self._path(name).unlink()

    async def flush(self) -> None:
        """Write what is not written yet."""
        self._write_all()

    async def load(self, restore: RestoreTarget) -> list[TaskHandle]:
        """The handles in the folder, least recently used first."""
        found: list[tuple[float, TaskHandle]] = []
        for path in self._folder.glob("rah_*.json"):
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                handle = decode_handle(path.read_bytes(), restore)
                if handle is not None and handle.name == path.stem:
                    found.append((path.stat().st_mtime, handle))
        return [handle for _, handle in sorted(found, key=lambda one: one[0])]

    def _write_all(self) -> None:
        for name, handle in self._held_back.items():
            try:
                write_private_file(self._path(name), encode_handle(handle))
            except OSError:
                self.is_durable = False
            self._written_states[name] = handle.last_known.state
        self._held_back = {}

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"


def write_private_file(path: Path, body: bytes) -> None:
    """Replace a file as a whole; only its owner can read it. Raises: OSError."""
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
