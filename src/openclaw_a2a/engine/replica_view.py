"""The operator's view of replicas, for pages and commands: list them, and drain one."""

from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING

from openclaw_a2a.model.errors import RouteNotFound, UnsupportedOperation
from openclaw_a2a.model.ids import AgentId, OwnerId
from openclaw_a2a.model.message import JsonStruct

if TYPE_CHECKING:
    from openclaw_a2a.engine.engine import Engine
    from openclaw_a2a.ports import ReplicaStatus, ReplicaStore


class ReplicaView(JsonStruct, frozen=True, omit_defaults=False):
    """A replica as the operator sees it."""

    id: str
    name: str
    host: str
    pid: int
    version: str
    agents: tuple[AgentId, ...]
    since: datetime
    lease_left_seconds: float
    is_draining: bool
    is_this: bool
    """True for the one that answers."""
    runs: int
    streams: int
    lag_ms: float | None
    """How long its last notification took; None: it gets none, and polls for changes instead."""


class ReplicaReader:
    """Lists the gateways that share the store of this one, and drains one of them."""

    def __init__(self, engines: "Collection[Engine]") -> None:
        self._engines = engines

    def has_replicas(self) -> bool:
        """False while no other gateway shares the store."""
        return self._find_store() is not None

    async def list(self) -> tuple[ReplicaView, ...]:
        """Every replica that is alive, the oldest first. Raises: UnsupportedOperation."""
        store = self._store()
        return tuple([_view(one, store) for one in await store.list_replicas()])

    async def drain(self, wanted: str) -> ReplicaView:
        """Drain a replica, by its id or name: it accepts nothing new.

        Raises: RouteNotFound, UnsupportedOperation.
        """
        store = self._store()
        for one in await store.list_replicas():
            if wanted in (one.id, one.name) and await store.drain(OwnerId(one.id)):
                found = [now for now in await store.list_replicas() if now.id == one.id]
                return _view(found[0] if found else one, store)
        raise RouteNotFound(f"there is no replica {wanted[:80]}; list them to see their names")

    def _store(self) -> "ReplicaStore":
        store = self._find_store()
        if store is None:
            raise UnsupportedOperation(
                "this gateway has its store for itself; several share one with store.replicas"
            )
        return store

    def _find_store(self) -> "ReplicaStore | None":
        stores = (engine.store.replicas for engine in self._engines)
        return next((one for one in stores if one is not None), None)


def _view(one: "ReplicaStatus", store: "ReplicaStore") -> ReplicaView:
    return ReplicaView(
        id=one.id,
        name=one.name,
        host=one.host,
        pid=one.pid,
        version=one.version,
        agents=one.agents,
        since=one.since,
        lease_left_seconds=round(one.lease_left_s, 3),
        is_draining=one.is_draining,
        is_this=one.id == store.id,
        runs=one.runs,
        streams=one.streams,
        lag_ms=one.lag_ms,
    )
