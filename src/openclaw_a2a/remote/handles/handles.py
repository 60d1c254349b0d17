"""Task handles: short names for remote tasks, so that a caller need not carry target and id."""

from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.time_format import format_timestamp
from openclaw_a2a.remote.config import HandleLimits
from openclaw_a2a.remote.errors import ErrorCode, RemoteFailure
from openclaw_a2a.remote.targets import Target

HANDLE_PREFIX = "rah_"
_RETRY = "start again with action=send, or use a stored continuation"


class Progression(msgspec.Struct, frozen=True):
    """What was last heard of a remote task."""

    state: str | None = None
    text: str | None = None
    streaming_supported: bool | None = None


class TaskHandle(msgspec.Struct, frozen=True):
    """A remote task under its handle: whose it is, until when it is known, how far it is."""

    name: str
    target: Target
    task_id: str
    context_id: str | None
    created_at: datetime
    updated_at: datetime
    expires_at: datetime
    heard: Progression = Progression()

    def as_object(self) -> JsonObject:
        """For people who look at what is being followed."""
        shown: JsonObject = {
            "task_handle": self.name,
            "target_alias": self.target.alias,
            "target_url": self.target.base_url,
            "task_id": self.task_id,
            "context_id": self.context_id,
            "status": self.heard.state,
            "message_text": self.heard.text,
            "created_at": format_timestamp(self.created_at),
            "updated_at": format_timestamp(self.updated_at),
            "expires_at": format_timestamp(self.expires_at),
        }
        return {key: value for key, value in shown.items() if value is not None}


Revive = Callable[[Target], Target | None]


class HandleStore(Protocol):
    """Where handles live beyond this object; `is_durable` is false when they die with us."""

    @property
    def is_durable(self) -> bool:
        """True when kept handles survive a restart."""
        ...

    def keep(self, handle: TaskHandle) -> None:
        """Remember it, soon."""
        ...

    def drop(self, name: str) -> None:
        """Forget it, soon."""
        ...

    async def settle(self) -> None:
        """Wait until everything said so far is kept, as far as that is possible."""
        ...

    async def load(self, revive: Revive) -> list[TaskHandle]:
        """What was kept before, least recently used first.

        `revive` finds the target as it is configured now; None when it may not be used any more.
        """
        ...


class NullHandleStore:
    """Keeps nothing."""

    is_durable = False

    def keep(self, handle: TaskHandle) -> None:
        """Nothing is kept."""

    def drop(self, name: str) -> None:
        """Nothing was kept."""

    async def settle(self) -> None:
        """Nothing is under way."""

    async def load(self, revive: Revive) -> list[TaskHandle]:
        """Nothing was kept."""
        return []


class TaskHandles:
    """The handles that are alive, least recently used first."""

    def __init__(
        self,
        limits: HandleLimits,
        *,
        now: Callable[[], datetime],
        new_id: Callable[[], str],
        keeper: HandleStore | None = None,
    ) -> None:
        self._limits = limits
        self._now = now
        self._new_id = new_id
        self._keeper = keeper or NullHandleStore()
        self._live: OrderedDict[str, TaskHandle] = OrderedDict()

    def load(self, handles: list[TaskHandle]) -> None:
        """Take over what was kept before, least recently used first; what is newer here stays."""
        kept = OrderedDict((handle.name, handle) for handle in handles)
        self._live = OrderedDict({**kept, **self._live})
        self._prune()
        self._make_room()

    @property
    def all(self) -> tuple[TaskHandle, ...]:
        """The handles that are alive, most recently used first."""
        self._prune()
        return tuple(reversed(self._live.values()))

    def issue(
        self,
        target: Target,
        task_id: str,
        *,
        context_id: str | None = None,
        heard: Progression | None = None,
        name: str | None = None,
    ) -> TaskHandle:
        """The handle of a task: a new one, or the one under `name` brought up to date."""
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
            heard=heard or (known.heard if known else Progression()),
        )
        self._live[handle.name] = handle
        self._live.move_to_end(handle.name)
        self._keeper.keep(handle)
        self._make_room()
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

    def peek(self, name: str) -> TaskHandle | None:
        """The live handle, when there is one."""
        try:
            return self.find(name)
        except RemoteFailure:
            return None

    def names_target(self, target: Target) -> bool:
        """True when a live handle was given out for this very target."""
        self._prune()
        return any(one.target.identity == target.identity for one in self._live.values())

    def _prune(self) -> None:
        now = self._now()
        for name in [name for name, one in self._live.items() if one.expires_at <= now]:
            self._forget(name)

    def _make_room(self) -> None:
        while len(self._live) > self._limits.max_entries:
            self._forget(next(iter(self._live)))

    def _forget(self, name: str) -> None:
        del self._live[name]
        self._keeper.drop(name)

    def _unknown(self, name: str) -> RemoteFailure:
        details: JsonObject = {
            "taskHandle": name,
            "retryHint": _RETRY,
            "restartInvalidatesHandles": not self._keeper.is_durable,
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
            "retryHint": _RETRY,
            "restartInvalidatesHandles": not self._keeper.is_durable,
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
