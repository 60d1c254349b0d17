"""Admin routes for the replicas of a gateway: which there are, and one that is to end its work."""

from collections.abc import Collection
from datetime import datetime

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.model.errors import RouteNotFound, UnsupportedOperation
from openclaw_a2a.model.ids import AgentId, OwnerId
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.ports import ReplicaStatus, ReplicaStore
from openclaw_a2a.server.admin.endpoint import AdminEndpoint, AdminRequest


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
    """How long its last notification took; None: it gets none, and asks for changes instead."""


class ReplicaList(JsonStruct, frozen=True, omit_defaults=False):
    """The replicas that are alive, the oldest first."""

    replicas: tuple[ReplicaView, ...]


class ReplicasAdmin:
    """Lists the replicas, and drains one."""

    def __init__(self, engines: Collection[Engine]) -> None:
        self._engines = engines

    def add_to(self, endpoint: AdminEndpoint) -> None:
        """Add the routes."""
        endpoint.add_route("GET", "/operator/replicas", self.list)
        endpoint.add_route("POST", "/operator/replicas/{}/drain", self.drain)

    def _store(self) -> ReplicaStore:
        for engine in self._engines:
            if engine.store.replicas is not None:
                return engine.store.replicas
        raise UnsupportedOperation(
            "this gateway has its store for itself; several share one with store.replicas"
        )

    async def list(self, _: AdminRequest) -> ReplicaList:
        """Every replica that is alive."""
        store = self._store()
        return ReplicaList(tuple(_view(one, store) for one in await store.list_replicas()))

    async def drain(self, request: AdminRequest) -> ReplicaView:
        """Have one accept nothing new. Raises: RouteNotFound."""
        [wanted], store = request.segments, self._store()
        for one in await store.list_replicas():
            if wanted in (one.id, one.name) and await store.drain(OwnerId(one.id)):
                found = [now for now in await store.list_replicas() if now.id == one.id]
                return _view(found[0] if found else one, store)
        raise RouteNotFound(f"there is no replica {wanted[:80]}; list them to see their names")


def _view(one: ReplicaStatus, store: ReplicaStore) -> ReplicaView:
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
