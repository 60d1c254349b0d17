"""Admin routes for the replicas of a gateway: which there are, and one that is to end its work."""

from openclaw_a2a.engine.replica_view import ReplicaReader, ReplicaView
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.server.admin.endpoint import AdminEndpoint, AdminRequest


class ReplicaList(JsonStruct, frozen=True, omit_defaults=False):
    """The replicas that are alive, the oldest first."""

    replicas: tuple[ReplicaView, ...]


class ReplicasAdmin:
    """Lists the replicas, and drains one."""

    def __init__(self, reader: ReplicaReader) -> None:
        self._reader = reader

    def add_to(self, endpoint: AdminEndpoint) -> None:
        """Add the routes."""
        endpoint.add_route("GET", "/operator/replicas", self.list)
        endpoint.add_route("POST", "/operator/replicas/{}/drain", self.drain)

    async def list(self, _: AdminRequest) -> ReplicaList:
        """Every replica that is alive. Raises: UnsupportedOperation."""
        return ReplicaList(await self._reader.list())

    async def drain(self, request: AdminRequest) -> ReplicaView:
        """Have one accept nothing new. Raises: RouteNotFound, UnsupportedOperation."""
        return await self._reader.drain(request.segments[0])
