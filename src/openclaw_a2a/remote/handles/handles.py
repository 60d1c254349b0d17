"""Task handles: short names for remote tasks, in place of a target and a task id."""

from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.remote.config import HandleLimits
from openclaw_a2a.remote.errors import ErrorCode, RemoteFailure
from openclaw_a2a.remote.targets import Target

HANDLE_PREFIX = "rah_"
_RETRY_HINT = "start again with action=send, or use a stored continuation"


class LastKnownState(msgspec.Struct, frozen=True):
    """What the peer last said about a task."""

    state: str | None = None
    text: str | None = None
    streaming_supported: bool | None = None


class TaskHandle(msgspec.Struct, frozen=True):
    """A remote task, its target, and how long the handle is valid."""

    name: str
    target: Target
    task_id: str
    context_id: str | None
    created_at: datetime
    updated_at: datetime
    expires_at: datetime
    last_known: LastKnownState = LastKnownState()


RestoreTarget = Callable[[Target], Target | None]


class HandleStore(Protocol):
    """Keeps handles for the next process."""

    @property
    def is_durable(self) -> bool:
        """True when stored handles survive a restart."""
        ...

    def save(self, handle: TaskHandle) -> None:
        """Store the handle, at once or with the next flush."""
        ...

    def delete(self, name: str) -> None:
        """Delete the handle."""
        ...

    async def flush(self) -> None:
        """Wait until everything is stored, as far as that is possible."""
        ...

    async def load(self, restore: RestoreTarget) -> list[TaskHandle]:
        """The stored handles, least recently used first.

        `restore` gives the target as configured now; None when it may not be used any more.
        """
        ...


class NullHandleStore:
    """Stores nothing: handles end with the process."""

    is_durable = False

    def save(self, handle: TaskHandle) -> None:
        """Does nothing."""

    def delete(self, name: str) -> None:
        """Does nothing."""

    async def flush(self) -> None:
        """Does nothing."""

    async def load(self, restore: RestoreTarget) -> list[TaskHandle]:
        """Nothing was stored."""
        return []


class TaskHandles:
    """The live handles, least recently used first, within the limits of the configuration."""

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
        self._store = store or NullHandleStore()
        self._live: OrderedDict[str, TaskHandle] = OrderedDict()

    def load(self, handles: list[TaskHandle]) -> None:
        """Add stored handles, least recently used first; handles that are here already win."""
        stored = OrderedDict((handle.name, handle) for handle in handles)
        self._live = OrderedDict({**stored, **self._live})
        self._prune()
        self._evict()

    @property
    def all(self) -> tuple[TaskHandle, ...]:
        """The live handles, most recently used first."""
        self._prune()
        return tuple(reversed(self._live.values()))

    def issue(
        self,
        target: Target,
        task_id: str,
        *,
        context_id: str | None = None,
        last_known: LastKnownState | None = None,
        name: str | None = None,
    ) -> TaskHandle:
        """The handle of a task: a new one, or the live one called `name`, refreshed."""
        self._prune()
        known = self._live.get(name) if name else None
        now = self._now()
        handle = TaskHandle(
            name=known.name if known else f"{HANDLE_PREFIX}{self._new_id()}",
            target=target,
            task_id=task_id,
            context_id=context_id or (known.context_id if known else None),
            created_at=known.created_at if known else now,
            updated_at=now,
            expires_at=now + timedelta(milliseconds=self._limits.ttl_ms),
            last_known=last_known or (known.last_known if known else LastKnownState()),
        )
        self._live[handle.name] = handle
        self._live.move_to_end(handle.name)
        self._store.save(handle)
        self._evict()
        return handle

    def find(self, name: str) -> TaskHandle:
        """The live handle. Raises: RemoteFailure (unknown or expired)."""
        handle = self._live.get(name)
        if handle is not None and handle.expires_at <= self._now():
            self._prune()
            raise self._expired(handle)
        self._prune()
        if handle is None:
            raise self._unknown(name)
        self._live.move_to_end(name)
        return handle

    def find_or_none(self, name: str) -> TaskHandle | None:
        """The live handle; None when there is none."""
        try:
            return self.find(name)
        except RemoteFailure:
            return None

    def has_target(self, target: Target) -> bool:
        """True when a live handle was issued for this target."""
        self._prune()
        return any(one.target.identity == target.identity for one in self._live.values())

    def _prune(self) -> None:
        now = self._now()
        for name in [name for name, one in self._live.items() if one.expires_at <= now]:
            self._remove(name)

    def _evict(self) -> None:
        while len(self._live) > self._limits.max_entries:
            self._remove(next(iter(self._live)))

    def _remove(self, name: str) -> None:
        del self._live[name]
        self._store.delete(name)

    def _unknown(self, name: str) -> RemoteFailure:
        details: JsonObject = {
            "taskHandle": name,
            "retryHint": _RETRY_HINT,
            "restartInvalidatesHandles": not self._store.is_durable,
            "suggested_action": "send",
        }
        return RemoteFailure(
            ErrorCode.UNKNOWN_HANDLE, f"the task handle {name} is not known", details
        )

    def _expired(self, handle: TaskHandle) -> RemoteFailure:
        identity = handle.target.identity
        continuation: JsonObject = {
            "target": continuation_target(handle.target),
            "task": {"task_id": handle.task_id},
        }
        details: JsonObject = {
            "taskHandle": handle.name,
            "retryHint": _RETRY_HINT,
            "restartInvalidatesHandles": not self._store.is_durable,
            "expiresAt": round(handle.expires_at.timestamp() * 1000),
            "task_id": handle.task_id,
            "continuation": continuation,
            "suggested_actions": ["status", "send"],
            "hint": f"ask {identity.base_url} with the continuation instead of the handle",
        }
        if handle.context_id:
            details["context_id"] = handle.context_id
            continuation["conversation"] = {"context_id": handle.context_id}
        return RemoteFailure(
            ErrorCode.EXPIRED_HANDLE, f"the task handle {handle.name} has expired", details
        )


def continuation_target(target: Target) -> JsonObject:
    """The `target` member of a continuation."""
    identity = target.identity
    shown: JsonObject = {
        "target_url": identity.base_url,
        "card_path": identity.card_path,
        "preferred_transports": [one.value for one in identity.preferred_transports],
    }
    return {**shown, "target_alias": target.alias} if target.alias else shown
