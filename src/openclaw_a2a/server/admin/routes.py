"""Admin routes for approvals, paired peers, deliveries, calls, replicas and dashboard links."""

from openclaw_a2a.auth.dashboard_sessions import CODE_SECONDS, DashboardAuthenticator
from openclaw_a2a.calls.service import CallService
from openclaw_a2a.engine.approvals import ApprovalList, ApprovalService
from openclaw_a2a.engine.outbox.delivery_view import DeliveryList, DeliveryReader, DeliveryView
from openclaw_a2a.engine.replica_view import ReplicaReader
from openclaw_a2a.engine.tasks.submit_policy import PairedPeer, PairedPeers
from openclaw_a2a.model.call import CallId, CallStatus
from openclaw_a2a.model.delivery import DeliveryId
from openclaw_a2a.model.errors import (
    ApprovalNotFound,
    CallNotFound,
    InvalidParams,
    Problem,
    UnsupportedOperation,
)
from openclaw_a2a.model.ids import JsonObject, PeerName
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.model.replica import ReplicaStatus
from openclaw_a2a.server.admin.endpoint import AdminEndpoint, AdminRequest, read_limit, read_status

_MAX_SEARCHED = 10_000
_ANSWER_FIELDS = ("output", "assumptions", "caveats", "parts", "debate")
"""Left out of lists; the route of one call returns them."""
LOGIN_PATH = "/dashboard/login"


class PairedPeerList(JsonStruct, frozen=True, omit_defaults=False):
    """The peers that the operator has approved, oldest first."""

    peers: tuple[PairedPeer, ...]


class PairingAdmin:
    """Lists and revokes approved peers. `paired` is None while pairing is off."""

    def __init__(self, paired: PairedPeers | None) -> None:
        self._paired = paired

    def add_to(self, endpoint: AdminEndpoint) -> None:
        """Add the routes."""
        root = "/operator/peers"
        endpoint.add_route("GET", root, self.list)
        endpoint.add_route("POST", f"{root}/{{}}/revoke", self.revoke, event="peer-revoked")

    async def list(self, _: AdminRequest) -> PairedPeerList:
        """The approved peers. Raises: UnsupportedOperation."""
        return PairedPeerList(tuple(await self._open().list_peers()))

    async def revoke(self, request: AdminRequest) -> JsonObject:
        """Revoke an approval. Raises: ApprovalNotFound, UnsupportedOperation."""
        [name] = request.segments
        if not await self._open().remove(PeerName(name)):
            raise ApprovalNotFound(f"no peer {name[:80]} is approved; list those that are")
        return {"name": name, "revoked": True}

    def _open(self) -> PairedPeers:
        if self._paired is None:
            raise UnsupportedOperation(
                "pairing is off; set channels.a2a.security.pairing to true, and start the gateway"
                " again"
            )
        return self._paired


class ApprovalsAdmin:
    """Lists and decides approvals."""

    def __init__(self, service: ApprovalService) -> None:
        self._service = service

    def add_to(self, endpoint: AdminEndpoint) -> None:
        """Add the routes."""
        endpoint.add_route("GET", "/operator/approvals", self.list)
        endpoint.add_route("POST", "/operator/approvals/{}", self.decide, event="approval-decided")

    async def list(self, _: AdminRequest) -> ApprovalList:
        """All pending approvals."""
        return await self._service.list()

    async def decide(self, request: AdminRequest) -> JsonObject:
        """Allow or deny one command, once.

        Raises: InvalidParams, ApprovalNotFound, ApprovalOver, AgentUnavailable.
        """
        [approval_id], allow = request.segments, request.body.get("allow")
        if not isinstance(allow, bool):
            problem = Problem("allow", "must be true or false", "type")
            raise InvalidParams("allow must be true or false", problems=(problem,))
        agent_id = await self._service.decide(approval_id, allow=allow)
        return {"id": approval_id, "agent": agent_id, "allowed": allow}


class DeliveriesAdmin:
    """Lists and retries failed deliveries."""

    def __init__(self, reader: DeliveryReader) -> None:
        self._reader = reader

    def add_to(self, endpoint: AdminEndpoint) -> None:
        """Add the routes."""
        endpoint.add_route("GET", "/operator/deliveries", self.list)
        endpoint.add_route("POST", "/operator/deliveries/{}/redeliver", self.redeliver)

    async def list(self, _: AdminRequest) -> DeliveryList:
        """All deliveries in trouble."""
        return await self._reader.list_in_trouble()

    async def redeliver(self, request: AdminRequest) -> DeliveryView:
        """Retry one now. Raises: DeliveryNotFound."""
        return await self._reader.redeliver(DeliveryId(request.segments[0]))


class CallsAdmin:
    """Lists and describes calls. `service` is None while calls between agents are off."""

    def __init__(self, service: CallService | None) -> None:
        self._service = service

    def add_to(self, endpoint: AdminEndpoint) -> None:
        """Add the routes."""
        endpoint.add_route("GET", "/operator/calls", self.list)
        endpoint.add_route("GET", "/operator/calls/{}", self.show)

    async def list(self, request: AdminRequest) -> JsonObject:
        """The newest calls without their answers, filtered by `limit`, `status` and `agent`.

        Raises: InvalidParams, UnsupportedOperation.
        """
        service, limit = self._find_service(), read_limit(request)
        status, agent = read_status(request, CallStatus), request.query.get("agent")
        found = [
            call
            for call in await service.list_calls(limit=_MAX_SEARCHED)
            if status in (None, call.status)
            and agent in (None, call.callee_name, call.caller.agent_id)
        ]
        described = [await service.describe(call) for call in found[:limit]]
        shown = [
            {key: value for key, value in one.items() if key not in _ANSWER_FIELDS}
            for one in described
        ]
        return {"calls": shown, "totalSize": len(found)}

    async def show(self, request: AdminRequest) -> JsonObject:
        """One call with its answer, and with the steps of a debate.

        Raises: CallNotFound, UnsupportedOperation.
        """
        service, [call_id] = self._find_service(), request.segments
        call = await service.find(CallId(call_id))
        if call is None:
            raise CallNotFound(f"there is no call {call_id[:80]}, or it was purged")
        return await service.describe(call)

    def _find_service(self) -> CallService:
        service = self._service
        if service is None:
            raise UnsupportedOperation(
                "calls between agents are off; set tools.agentToAgent.enabled to true"
            )
        return service


class ReplicaList(JsonStruct, frozen=True, omit_defaults=False):
    """The replicas that are alive, the oldest first."""

    replicas: tuple[ReplicaStatus, ...]


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

    async def drain(self, request: AdminRequest) -> ReplicaStatus:
        """Drain one: it accepts nothing new. Raises: RouteNotFound, UnsupportedOperation."""
        return await self._reader.drain(request.segments[0])


class DashboardAdmin:
    """Makes sign-in links. `authenticator` is None while the dashboard is off."""

    def __init__(self, authenticator: DashboardAuthenticator | None) -> None:
        self._authenticator = authenticator

    def add_to(self, endpoint: AdminEndpoint) -> None:
        """Add the route."""
        endpoint.add_route("POST", "/operator/dashboard/link", self.make_link)

    async def make_link(self, _: AdminRequest) -> JsonObject:
        """A new link, as a path. Raises: UnsupportedOperation."""
        if self._authenticator is None:
            raise UnsupportedOperation(
                "the dashboard is off; set dashboard.enabled to true, and start the gateway again"
            )
        return {"path": login_path(self._authenticator), "expiresInSeconds": CODE_SECONDS}


def login_path(authenticator: DashboardAuthenticator) -> str:
    """The path of a new sign-in link."""
    return f"{LOGIN_PATH}?code={authenticator.new_code()}"
