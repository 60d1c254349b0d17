"""The operator's view of replicas, for pages and commands: list them, and drain one."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from openclaw_a2a.model.errors import RouteNotFound, UnsupportedOperation
from openclaw_a2a.model.replica import ReplicaStatus

if TYPE_CHECKING:
    from openclaw_a2a.engine.engine import Engine
    from openclaw_a2a.ports import ReplicaStore


class ReplicaReader:
    """Lists the gateways that share the store of this one, and drains one of them."""

    def __init__(self, engines: "Collection[Engine]") -> None:
        self._engines = engines

    def has_replicas(self) -> bool:
        """False while no other gateway shares the store."""
        return self._find_store() is not None

    async def list(self) -> tuple[ReplicaStatus, ...]:
        """Every replica that is alive, the oldest first. Raises: UnsupportedOperation."""
        return tuple(await self._store().list_replicas())

    async def drain(self, wanted: str) -> ReplicaStatus:
        """Drain a replica, by its id or name: it accepts nothing new.

        Raises: RouteNotFound, UnsupportedOperation.
        """
        store = self._store()
        for one in await store.list_replicas():
            if wanted in (one.id, one.name) and await store.drain(one.id):
                found = [now for now in await store.list_replicas() if now.id == one.id]
                return found[0] if found else one
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
