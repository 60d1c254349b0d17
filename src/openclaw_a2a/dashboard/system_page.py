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

from openclaw_a2a.dashboard.agents_page import AgentView
from openclaw_a2a.dashboard.requests import ActionRequest, ActionResult, PageRequest
from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.outbox.delivery_view import IN_TROUBLE, DeliveryReader, DeliveryView
from openclaw_a2a.engine.replica_view import ReplicaReader
from openclaw_a2a.model.delivery import DeliveryId, DeliveryState
from openclaw_a2a.model.errors import GatewayError
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.model.replica import ReplicaStatus
from openclaw_a2a.settings import (
    LoadedSettings,
    Settings,
    StoreKind,
    StoreSettings,
    describe_settings,
)

_LISTED = 500
_LITTLE_SPACE = 100 * 1024 * 1024


class DeliveryGroup(JsonStruct, frozen=True, omit_defaults=False):
    """How many deliveries of a kind a receiver has in trouble."""

    kind: str
    to: str
    count: int


class DeliveriesPage(JsonStruct, frozen=True, omit_defaults=False):
    """Deliveries that wait for another attempt, of which something was skipped, or given up.

    `counts` and `groups` (the largest first) are of all of them; `kind` and `to` choose a group.
    `is_cut`: there are more.
    """

    deliveries: tuple[DeliveryView, ...]
    counts: dict[str, int]
    groups: tuple[DeliveryGroup, ...]
    kind: str = ""
    to: str = ""
    is_cut: bool = False


class Deliveries:
    """Reads deliveries, and has them tried again."""

    def __init__(self, reader: DeliveryReader) -> None:
        self._reader = reader

    async def list(self, request: PageRequest) -> JsonStruct:
        """The page; `kind` and `to` of its query choose some of the deliveries."""
        found = await self._reader.list_in_trouble()
        counts = {
            state.value: sum(one.state is state for one in found.deliveries) for state in IN_TROUBLE
        }
        shown = sorted(found.deliveries, key=lambda one: one.updated_at, reverse=True)
        sizes = Counter((one.kind, one.to) for one in shown)
        groups = [DeliveryGroup(*group, count) for group, count in sizes.most_common()]
        kind, to = request.query.get("kind", ""), request.query.get("to", "")
        chosen = [one for one in shown if kind in ("", one.kind) and to in ("", one.to)]
        return DeliveriesPage(
            deliveries=tuple(chosen[:_LISTED]),
            counts=counts,
            groups=tuple(groups),
            kind=kind,
            to=to,
            is_cut=found.is_cut or len(chosen) > _LISTED,
        )

    async def redeliver(self, request: ActionRequest) -> ActionResult:
        """Try one again now. Raises: DeliveryNotFound."""
        wanted = DeliveryId(request.segments[0])
        with request.audited("operator-action", action="dashboard/redeliver"):
            tried = await self._reader.redeliver(wanted)
        is_tried = tried.state is DeliveryState.WAITING
        done = "It is tried again now." if is_tried else "Nothing of it had failed."
        return ActionResult(done, "/dashboard/deliveries", wanted)


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
    """An effective setting. `origin` is where its value comes from; empty: unknown."""

    path: str
    value: str
    origin: str


class SystemPage(JsonStruct, frozen=True, omit_defaults=False):
    """The gateway itself. `settings` are the effective ones, with secrets hidden.

    `replicas` are the gateways that share the store, this one among them; empty: it is alone.
    """

    version: str
    python: str
    sqlite: str
    platform: str
    started_at: datetime
    settings_file: str
    stores: tuple[StoreView, ...]
    findings: tuple[Finding, ...]
    settings: tuple[SettingView, ...]
    replicas: tuple[ReplicaStatus, ...] = ()


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
        replicas: ReplicaReader,
        version: str,
    ) -> None:
        self._settings = settings
        self._loaded = loaded
        self._stores = stores
        self._agents = agents
        self._find_schema = find_schema
        self._replicas = replicas
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
            replicas=await self._list_replicas(),
        )

    async def _list_replicas(self) -> tuple[ReplicaStatus, ...]:
        if not self._replicas.has_replicas():
            return ()
        try:
            return await self._replicas.list()
        except GatewayError:  # the store does not answer, which is among the findings
            return ()

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
