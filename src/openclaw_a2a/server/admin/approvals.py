"""Admin routes for approvals, and for the peers that the operator has approved."""

from openclaw_a2a.engine.approvals import ApprovalList, ApprovalService
from openclaw_a2a.engine.tasks.submit_policy import PairedPeer, PairedPeers
from openclaw_a2a.model.errors import (
    ApprovalNotFound,
    InvalidParams,
    Problem,
    UnsupportedOperation,
)
from openclaw_a2a.model.ids import JsonObject, PeerName
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.server.admin.endpoint import AdminEndpoint, AdminRequest


class PairedPeerList(JsonStruct, frozen=True, omit_defaults=False):
    """The peers that the operator has approved, oldest first."""

    peers: tuple[PairedPeer, ...]


class PairingAdmin:
    """Lists approved peers and takes approvals back. `paired` is None while pairing is off."""

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
        """Take an approval back. Raises: ApprovalNotFound, UnsupportedOperation."""
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
        """All approvals that wait."""
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
