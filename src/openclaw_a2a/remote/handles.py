"""Task handles: short names for remote tasks, in place of a target and a task id.

They are stored as records of the gateway's store, or in a folder of small files for commands and
scripts. The credentials of a target are never stored: they are those of the configuration at
loading.

A peer sees all callers of a gateway as one. To separate them, a handle has an owner: for other
callers it does not exist, and they cannot use its task and context.
"""

import asyncio
import contextlib
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Collection
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.ids import Json, JsonObject, PeerName
from openclaw_a2a.model.session_keys import OPERATOR_NAME
from openclaw_a2a.ports import Record, Store
from openclaw_a2a.remote.config import HandleLimits, Transport
from openclaw_a2a.remote.result import TERMINAL_STATES, ErrorCode, RemoteFailure
from openclaw_a2a.remote.targets import Target
from openclaw_a2a.remote.transport.peer_errors import task_not_found
from openclaw_a2a.settings.files import write_private_file

log = get_logger(__name__)

HANDLE_PREFIX = "rah_"
TEXT_INTERVAL = timedelta(seconds=2)
"""The minimum interval between writes of a handle whose text alone changed."""
FLUSH_S = 10.0
"""How long an answer waits for the writes of its handles, in seconds."""
ENDED_S = 0.2
"""How long the handle of a task that has ended may wait for its write, in seconds."""


class LastKnownState(msgspec.Struct, frozen=True):
    """The last known state of a task."""

    state: str | None = None
    text: str | None = None
    streaming_supported: bool | None = None


class TaskHandle(msgspec.Struct, frozen=True):
    """A remote task, its target, and how long the handle is valid.

    Only `owner` and the operator may use it. The owner is empty for handles of a program with one
    user, and for handles of earlier versions: in a gateway those belong to the operator.
    """

    name: str
    target: Target
    task_id: str
    context_id: str | None
    created_at: datetime
    updated_at: datetime
    expires_at: datetime
    last_known: LastKnownState = LastKnownState()
    owner: PeerName = PeerName("")


RestoreTarget = Callable[[Target], Target | None]


class HandleStore:
    """Stores handles for the next process. This base class stores nothing.

    Writes of handles whose text alone changed are delayed: a peer may send many texts a second.
    """

    is_durable = False
    """True when stored handles survive a restart."""

    def __init__(self) -> None:
        self._written: dict[str, TaskHandle] = {}
        self._held_back: dict[str, TaskHandle] = {}
        self._writes: set[asyncio.Task[None]] = set()
        """The writes that have not ended, of stores that write in the background."""

    def save(self, handle: TaskHandle) -> None:
        """Store the handle, at once or (when only its text changed) with the next flush."""
        written = self._written.get(handle.name)
        if (
            written is not None
            and handle.updated_at - written.updated_at < TEXT_INTERVAL
            and written.target.identity == handle.target.identity
            and written.task_id == handle.task_id
            and written.context_id == handle.context_id
            and written.last_known.state == handle.last_known.state
        ):
            self._held_back[handle.name] = handle
        else:
            self._held_back.pop(handle.name, None)
            self._written[handle.name] = handle
            self._write(handle)

    def delete(self, name: str) -> None:
        """Delete the handle."""
        self._held_back.pop(name, None)
        self._written.pop(name, None)

    async def flush(self) -> None:
        """Wait until the handles of an answer are written; failures are logged."""
        # Swapped out first: a handle that is saved meanwhile waits for the next flush.
        held_back, self._held_back = self._held_back, {}
        self._written |= held_back
        for handle in held_back.values():
            self._write(handle)
        if self._writes:
            # A copy, because each write removes itself. After the timeout the answer is given
            # anyway: a crash before the write then makes the handle unknown.
            await asyncio.wait(set(self._writes), timeout=FLUSH_S)

    async def close(self) -> None:
        """Write everything that is left."""
        await self.flush()

    async def load(self, restore: RestoreTarget) -> list[TaskHandle]:
        """The stored handles, least recently used first.

        `restore` gives the target as configured now; None when it may not be used any more.
        """
        del restore
        return []

    def _write(self, handle: TaskHandle) -> None:
        """Write one handle, or start to."""


class TaskHandles:
    """The live handles, least recently used first, within the limits of the configuration.

    An owner that is None, and the operator, may use the handles of all.
    """

    def __init__(
        self,
        limits: HandleLimits,
        *,
        now: Callable[[], datetime],
        new_id: Callable[[], str],
        store: HandleStore | None = None,
    ) -> None:
        self._limits = limits
        self._now = now
        self._new_id = new_id
        self._store = store or HandleStore()
        self._live: OrderedDict[str, TaskHandle] = OrderedDict()
        self._owned: Counter[PeerName] = Counter()
        """How many live handles each owner has."""
        self._earliest_expiry: datetime | None = None
        """None of the live handles expires before this."""

    def load(self, handles: list[TaskHandle]) -> None:
        """Add stored handles, least recently used first; handles that are here already win."""
        self._live = OrderedDict({**{handle.name: handle for handle in handles}, **self._live})
        self._owned = Counter(handle.owner for handle in self._live.values())
        self._earliest_expiry = None
        self._trim(self._now())

    @property
    def all(self) -> tuple[TaskHandle, ...]:
        """The live handles, most recently used first."""
        self._trim(self._now())
        return tuple(reversed(self._live.values()))

    def issue(
        self,
        owner: PeerName | None,
        target: Target,
        task_id: str,
        *,
        context_id: str | None = None,
        last_known: LastKnownState | None = None,
        name: str | None = None,
    ) -> TaskHandle:
        """The handle of a task: a new one, or the live one called `name`, refreshed."""
        now = self._now()
        known = self._live.get(name) if name else None
        if known is not None and known.expires_at <= now:
            known = None
        handle = TaskHandle(
            name=known.name if known else f"{HANDLE_PREFIX}{self._new_id()}",
            target=target,
            task_id=task_id,
            context_id=context_id or (known.context_id if known else None),
            created_at=known.created_at if known else now,
            updated_at=now,
            expires_at=now + timedelta(milliseconds=self._limits.ttl_ms),
            last_known=last_known or (known.last_known if known else LastKnownState()),
            # The owner stays the same when the operator reads the task.
            owner=known.owner if known else owner or PeerName(""),
        )
        if handle.name not in self._live:
            self._owned[handle.owner] += 1
        self._live[handle.name] = handle
        self._live.move_to_end(handle.name)
        self._store.save(handle)
        self._trim(now)
        return handle

    def get(self, owner: PeerName | None, name: str) -> TaskHandle:
        """The live handle. Raises: RemoteFailure (unknown, of another owner, or expired)."""
        handle, now = self._live.get(name), self._now()
        self._trim(now)
        if handle is not None and not _may_use(owner, handle):
            handle = None
        if handle is not None and handle.expires_at <= now:
            raise self._expired(handle)
        if handle is None:
            details: JsonObject = {**self._failure_details(name), "suggested_action": "send"}
            message = f"the task handle {name} is not known"
            raise RemoteFailure(ErrorCode.UNKNOWN_HANDLE, message, details)
        self._live.move_to_end(name)
        return handle

    def has_target(self, owner: PeerName | None, target: Target) -> bool:
        """True when a live handle of this owner was issued for this target."""
        self._trim(self._now())
        return any(
            one.target.identity == target.identity and _may_use(owner, one)
            for one in self._live.values()
        )

    def check_owner(
        self,
        owner: PeerName | None,
        target: Target,
        *,
        task_ids: Collection[str],
        context_id: str | None,
    ) -> None:
        """Refuse tasks and contexts of a peer that only handles of other owners refer to.

        Handles without an owner refuse no caller.
        Raises: RemoteFailure, for a task as if the peer did not know it.
        """
        # Most messages name no task or context: skip the search of many handles.
        if not (task_ids or context_id) or _is_operator(owner):
            return
        at_peer = [
            one
            for one in self._live.values()
            if one.owner and one.target.base_url == target.base_url
        ]
        for task_id in task_ids:
            owners = {one.owner for one in at_peer if one.task_id == task_id}
            if owners and owner not in owners:
                raise task_not_found(task_id)
        owners = {one.owner for one in at_peer if context_id and one.context_id == context_id}
        if owners and owner not in owners:
            raise RemoteFailure(
                ErrorCode.VALIDATION,
                f"the context {context_id} is not yours",
                {"context_id": context_id, "hint": "leave context_id out to begin another one"},
            )

    def _trim(self, now: datetime) -> None:
        """Remove what has expired; above the limit, the oldest of the owner with the most.

        The oldest is the one that was not used for the longest time.
        """
        # Only when one may have expired: there are many handles, and this is done for every event.
        if self._earliest_expiry is None or self._earliest_expiry <= now:
            for name in [name for name, one in self._live.items() if one.expires_at <= now]:
                self._remove(name)
            live = self._live.values()
            self._earliest_expiry = min((one.expires_at for one in live), default=None)
        while len(self._live) > self._limits.max_entries:
            # Of the owner with the most handles: no owner loses handles because of another.
            most = max(self._owned.values())
            live = self._live.items()
            self._remove(next(name for name, one in live if self._owned[one.owner] == most))

    def _remove(self, name: str) -> None:
        owner = self._live.pop(name).owner
        self._owned[owner] -= 1
        if not self._owned[owner]:
            del self._owned[owner]
        self._store.delete(name)

    def _expired(self, handle: TaskHandle) -> RemoteFailure:
        continuation: JsonObject = {
            "target": continuation_target(handle.target),
            "task": {"task_id": handle.task_id},
        }
        details: JsonObject = {
            **self._failure_details(handle.name),
            "expiresAt": round(handle.expires_at.timestamp() * 1000),
            "task_id": handle.task_id,
            "continuation": continuation,
            "suggested_actions": ["status", "send"],
            "hint": f"ask {handle.target.base_url} with the continuation instead of the handle",
        }
        if handle.context_id:
            details["context_id"] = handle.context_id
            continuation["conversation"] = {"context_id": handle.context_id}
        return RemoteFailure(
            ErrorCode.EXPIRED_HANDLE, f"the task handle {handle.name} has expired", details
        )

    def _failure_details(self, name: str) -> JsonObject:
        return {
            "taskHandle": name,
            "retryHint": "start again with action=send, or use a stored continuation",
            "restartInvalidatesHandles": not self._store.is_durable,
        }


def _is_operator(owner: PeerName | None) -> bool:
    return owner is None or owner == OPERATOR_NAME


def _may_use(owner: PeerName | None, handle: TaskHandle) -> bool:
    return _is_operator(owner) or handle.owner == owner


def continuation_target(target: Target) -> JsonObject:
    """The `target` member of a continuation."""
    shown: JsonObject = {
        "target_url": target.base_url,
        "card_path": target.card_path,
        "preferred_transports": [one.value for one in target.preferred_transports],
    }
    return {**shown, "target_alias": target.alias} if target.alias else shown


# -------------------------------------------------------------------- stored handles

RECORD_KIND = "remote-task"


class _StoredHandle(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    name: str
    base_url: str
    card_path: str
    preferred_transports: tuple[Transport, ...]
    task_id: str
    created_at: datetime
    updated_at: datetime
    expires_at: datetime
    alias: str = ""
    context_id: str | None = None
    last_known: LastKnownState = msgspec.field(name="heard", default=LastKnownState())
    owner: PeerName = PeerName("")


_STORED_AS_IS = tuple(name for name in TaskHandle.__struct_fields__ if name != "target")
_STORED_OF_TARGET = ("base_url", "card_path", "preferred_transports", "alias")
_decoder = msgspec.json.Decoder(_StoredHandle)


def encode_handle(handle: TaskHandle) -> bytes:
    """The handle for a file or a record."""
    stored = _StoredHandle(
        **{name: getattr(handle.target, name) for name in _STORED_OF_TARGET},
        **{name: getattr(handle, name) for name in _STORED_AS_IS},
    )
    return msgspec.json.encode(stored)


def decode_handle(body: bytes, restore: RestoreTarget) -> TaskHandle | None:
    """The handle; None when its target may not be used any more.

    Raises: ValueError, RecursionError.
    """
    stored = _decoder.decode(body)
    target = restore(Target(**{name: getattr(stored, name) for name in _STORED_OF_TARGET}))
    if target is None:
        return None
    return TaskHandle(target=target, **{name: getattr(stored, name) for name in _STORED_AS_IS})


class RecordHandleStore(HandleStore):
    """Handles as records of a store. Writes are made in the order of the calls.

    No answer waits for the handle of a task that has ended, nor for its earlier states: the result
    is in the answer, and the continuation beside the handle leads to the task and the conversation
    without it. Such handles are written together, `ENDED_S` later at most, and so are deletions; a
    crash until then leaves them unknown, or more of them than there may be, until the next start.
    """

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store
        self.is_durable = store.is_durable
        self._supervisor = Supervisor("remote-handles")
        self._ended: dict[str, TaskHandle] = {}
        self._deleted: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._unawaited: set[asyncio.Task[None]] = set()
        """The writes that no answer waits for."""

    def save(self, handle: TaskHandle) -> None:
        """Store the handle, at once or (when its task has ended) a little later."""
        # A later state replaces an earlier one in the queue: at a peer that violates the protocol
        # a task may continue after its end.
        self._ended.pop(handle.name, None)
        if handle.last_known.state not in TERMINAL_STATES:
            super().save(handle)
            return
        self._held_back.pop(handle.name, None)
        self._ended[handle.name] = handle
        earlier = {one for one in self._writes if one.get_name() == handle.name}
        self._writes -= earlier
        self._unawaited |= earlier
        self._write_soon()

    async def close(self) -> None:
        """Write everything that is left."""
        self._write_ended()
        self._writes |= self._unawaited
        await super().close()

    def _write_soon(self) -> None:
        # Not one by one: each would be a transaction of its own.
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(ENDED_S, self._write_ended)

    def _write_ended(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        ended, self._ended = self._ended, {}
        self._written |= ended
        for handle in ended.values():
            self._unawaited.add(self._start(handle.name, self._put(handle)))
        deleted, self._deleted = self._deleted, []
        for name in deleted:
            deleting = self._store.records.delete_record(RECORD_KIND, name)
            self._unawaited.add(self._start(name, deleting))

    def delete(self, name: str) -> None:
        """Delete the handle, a little later."""
        super().delete(name)
        self._ended.pop(name, None)
        self._deleted.append(name)
        self._write_soon()

    async def load(self, restore: RestoreTarget) -> list[TaskHandle]:
        """The stored handles, least recently used first.

        Handles whose target may not be used any more are deleted. Those that cannot be read, which
        another version may have written, are left alone until they expire.
        """
        handles: list[TaskHandle] = []
        for record in await self._store.records.list_records(RECORD_KIND):
            try:
                handle = decode_handle(record.body, restore)
            except (ValueError, RecursionError) as error:
                log.warning("remote.handle_unreadable", handle=record.id, reason=str(error))
                continue
            if handle is None:
                self.delete(record.id)
            else:
                self._written[handle.name] = handle
                handles.append(handle)
        return handles

    def _write(self, handle: TaskHandle) -> None:
        self._writes.add(self._start(handle.name, self._put(handle)))

    def _put(self, handle: TaskHandle) -> Awaitable[None]:
        body = encode_handle(handle)
        return self._store.records.put_record(
            Record(RECORD_KIND, handle.name, body, handle.expires_at)
        )

    def _start(self, name: str, write: Awaitable[Json]) -> "asyncio.Task[None]":
        # Not awaited: a store that is slow or fails must not hold up the answer of a peer.
        task = self._supervisor.start(name, _logged(write))
        task.add_done_callback(self._forget)
        return task

    def _forget(self, write: "asyncio.Task[None]") -> None:
        self._writes.discard(write)
        self._unawaited.discard(write)


async def _logged(write: Awaitable[Json]) -> None:
    try:
        await write
    except Exception as error:  # the call continues; the handle is lost only by a restart
        log.warning("remote.handle_not_stored", reason=str(error))


class FolderHandleStore(HandleStore):
    """One file for each handle, so that two processes never overwrite each other's.

    A handle that cannot be written is not stored, and `is_durable` is false from then on.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self.is_durable = True

    def delete(self, name: str) -> None:
        """Delete its file."""
        super().delete(name)
        with contextlib.suppress(OSError):
            (self._folder / f"{name}.json").unlink()

    async def load(self, restore: RestoreTarget) -> list[TaskHandle]:
        """The handles in the folder, least recently used first."""
        found: list[tuple[float, TaskHandle]] = []
        for path in self._folder.glob("rah_*.json"):
            with contextlib.suppress(OSError, ValueError, RecursionError):
                handle = decode_handle(path.read_bytes(), restore)
                if handle is not None and handle.name == path.stem:
                    found.append((path.stat().st_mtime, handle))
        return [handle for _, handle in sorted(found, key=lambda one: one[0])]

    def _write(self, handle: TaskHandle) -> None:
        try:
            write_private_file(self._folder / f"{handle.name}.json", encode_handle(handle))
        except OSError:
            self.is_durable = False
