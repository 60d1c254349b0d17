"""Read models of deliveries in trouble, and of the gateway itself: version, store, settings."""

import platform
import shutil
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import anyio.to_thread
import msgspec

from openclaw_a2a.dashboard.actions import ActionRequest, ActionResult
from openclaw_a2a.dashboard.agents_page import AgentView
from openclaw_a2a.dashboard.endpoint import PageRequest
from openclaw_a2a.dashboard.task_relations import ShownDelivery, show_delivery
from openclaw_a2a.engine.audit_log import AuditLog, audit_outcome
from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.outbox.outbox import Outbox
from openclaw_a2a.model.delivery import Delivery, DeliveryId, DeliveryState
from openclaw_a2a.model.errors import DeliveryNotFound, GatewayError
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.settings import (
    LoadedSettings,
    Settings,
    StoreKind,
    StoreSettings,
    describe_settings,
)

_LISTED = 500
_LITTLE_SPACE = 100 * 1024 * 1024
_IN_TROUBLE = (DeliveryState.WAITING, DeliveryState.SKIPPED, DeliveryState.DEAD)

FindOutboxes = Callable[[], Sequence[tuple[Engine, Outbox]]]
FindReceiver = Callable[[Delivery], str]


class DeliveryGroup(JsonStruct, frozen=True, omit_defaults=False):
    """How many deliveries of a kind a receiver has in trouble."""

    kind: str
    to: str
    count: int


class DeliveriesPage(JsonStruct, frozen=True, omit_defaults=False):
    """Deliveries that wait for another attempt, of which something was skipped, or given up.

    `counts` and `groups` (the largest first) are of all of them; `kind` and `to` choose a group.
    """

    deliveries: tuple[ShownDelivery, ...]
    counts: dict[str, int]
    groups: tuple[DeliveryGroup, ...]
    kind: str = ""
    to: str = ""


class Deliveries:
    """Reads deliveries, and has them tried again. `receiver` names the receiver of one."""

    def __init__(self, outboxes: FindOutboxes, receiver: FindReceiver, audit: AuditLog) -> None:
        self._outboxes = outboxes
        self._receiver = receiver
        self._audit = audit

    async def list(self, request: PageRequest) -> JsonStruct:
        """The page; `kind` and `to` of its query choose some of the deliveries."""
        found = [
            one
            for engine, _ in self._outboxes()
            for state in _IN_TROUBLE
            for one in await engine.store.deliveries.list_deliveries(
                state, after=DeliveryId(""), limit=_LISTED
            )
        ]
        found.sort(key=lambda one: one.updated_at, reverse=True)
        counts = {
            state.name.lower(): sum(one.state is state for one in found) for state in _IN_TROUBLE
        }
        shown = [
            msgspec.structs.replace(show_delivery(one), to=self._receiver(one)) for one in found
        ]
        sizes = Counter((one.kind, one.to) for one in shown)
        groups = [DeliveryGroup(*group, count) for group, count in sizes.most_common()]
        kind, to = request.query.get("kind", ""), request.query.get("to", "")
        chosen = [one for one in shown if kind in ("", one.kind) and to in ("", one.to)]
        return DeliveriesPage(tuple(chosen), counts, tuple(groups), kind, to)

    async def redeliver(self, request: ActionRequest) -> ActionResult:
        """Try one again now. Raises: DeliveryNotFound."""
        wanted = DeliveryId(request.segments[0])
        error: BaseException | None = None
        try:
            for engine, outbox in self._outboxes():
                if await engine.store.deliveries.read_delivery(None, wanted) is not None:
                    tried = await outbox.redeliver(wanted)
                    is_tried = tried.state is DeliveryState.WAITING
                    done = "It is tried again now." if is_tried else "Nothing of it had failed."
                    return ActionResult(done, "/dashboard/deliveries", wanted)
            raise DeliveryNotFound(f"there is no delivery {wanted[:80]} any more")
        except BaseException as raised:  # whatever it is: something may have been changed
            error = raised
            raise
        finally:
            self._audit.record(
                "operator-action",
                request.who,
                action="dashboard/redeliver",
                target=wanted,
                address=request.address,
                **audit_outcome(error),
            )


class StoreView(JsonStruct, frozen=True, omit_defaults=False):
    """A store: where it is, how large, and why it takes no writes; empty: it does.

    `free` is the free space of its disk, `schema` the version of its tables; None: it has none.
    """

    kind: str
    path: str
    size: int
    free: int | None
    schema: int | None
    problem: str


class Finding(JsonStruct, frozen=True, omit_defaults=False):
    """Something that an operator should know. `level`: `broken`, or `note` while it works."""

    what: str
    level: str
    text: str


class SettingView(JsonStruct, frozen=True, omit_defaults=False):
    """An effective setting. `origin` is where its value comes from; empty: nobody knows."""

    path: str
    value: str
    origin: str


class SystemPage(JsonStruct, frozen=True, omit_defaults=False):
    """The gateway itself. `settings` are the effective ones, with secrets hidden."""

    version: str
    python: str
    sqlite: str
    platform: str
    started_at: datetime
    settings_file: str
    stores: tuple[StoreView, ...]
    findings: tuple[Finding, ...]
    settings: tuple[SettingView, ...]


class SystemReader:
    """Makes the page of the gateway itself.

    `loaded` says where the settings come from; None when a program made them. `stores` are those
    in use, and `find_schema` gives the version of the tables of a kind of store.
    """

    def __init__(
        self,
        settings: Settings,
        loaded: LoadedSettings | None,
        *,
        stores: Mapping[StoreSettings, Engine],
        agents: Callable[[], Sequence[AgentView]],
        find_schema: Callable[[StoreKind], int | None],
        version: str,
    ) -> None:
        self._settings = settings
        self._loaded = loaded
        self._stores = stores
        self._agents = agents
        self._find_schema = find_schema
        self._version = version
        self._started_at = datetime.now(UTC)

    async def read(self, _: PageRequest) -> JsonStruct:
        """The page."""
        stores = [await self._view_store(*one) for one in self._stores.items()]
        file = None if self._loaded is None else self._loaded.path
        return SystemPage(
            version=self._version,
            python=platform.python_version(),
            sqlite=sqlite3.sqlite_version,
            platform=f"{platform.platform(terse=True)}, {sys.executable}",
            started_at=self._started_at,
            settings_file="" if file is None else str(file),
            stores=tuple(stores),
            findings=tuple(self._find(stores)),
            settings=tuple(self._list_settings()),
        )

    async def _view_store(self, store: StoreSettings, engine: Engine) -> StoreView:
        problem = ""
        try:
            await engine.store.check()
        except GatewayError as error:
            problem = error.message
        size, free = await anyio.to_thread.run_sync(_measure_store, store.path)
        return StoreView(
            kind=store.kind.value,
            path=store.place,
            size=size,
            free=free,
            schema=self._find_schema(store.kind),
            problem=problem,
        )

    def _find(self, stores: Sequence[StoreView]) -> Iterator[Finding]:
        """What is wrong, as far as it costs nothing to see."""
        for store in stores:
            if store.problem:
                yield Finding("store", "broken", store.problem)
            if store.free is not None and store.free < _LITTLE_SPACE:
                free = store.free // 1024**2
                text = f"only {free} MiB are free for {store.path}; free some before it is full"
                yield Finding("disk", "note", text)
        for engine in self._stores.values():
            for name in engine.supervisor.dead_loops:
                text = f"the background work {name} has stopped; the log says why; start again"
                yield Finding("gateway", "broken", text)
        for agent in self._agents():
            if not agent.is_available:
                yield Finding(f"agent {agent.agent}", "broken", agent.reason)
        for warning in () if self._loaded is None else self._loaded.warnings:
            yield Finding("settings", "note", f"{warning.path}: {warning.message}")

    def _list_settings(self) -> Iterator[SettingView]:
        loaded = self._loaded
        for one in describe_settings(self._settings, {} if loaded is None else loaded.origins):
            is_text = isinstance(one.value, str)
            value = one.value if is_text else msgspec.json.encode(one.value).decode()
            yield SettingView(one.path, value, "" if loaded is None else one.origin)


def _measure_store(path: Path | None) -> tuple[int, int | None]:
    """The bytes that a store takes, and those that are free on its disk."""
    if path is None:
        return 0, None
    # What was written last is in the write-ahead log beside the file.
    files = (path, path.with_name(f"{path.name}-wal"))
    size = sum(one.stat().st_size for one in files if one.is_file())
    try:
        return size, shutil.disk_usage(path.parent).free
    except OSError:
        return size, None
