"""The operator's endpoints for calls between agents."""

from collections.abc import Callable

from openclaw_a2a.calls.service import CallService
from openclaw_a2a.model.call import CallId, CallStatus
from openclaw_a2a.model.errors import CallNotFound, UnsupportedOperation
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.server.admin.endpoint import AdminEndpoint, AdminRequest, read_limit, read_status

_MAX_SEARCHED = 10_000
_ANSWER_FIELDS = ("output", "assumptions", "caveats", "parts", "debate")
"""Left out of lists; the endpoint of one call has them."""


class CallsAdmin:
    """Lists and describes calls. `service` gives None while calls between agents are off."""

    def __init__(self, service: Callable[[], CallService | None]) -> None:
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
        service = self._service()
        if service is None:
            raise UnsupportedOperation(
                "calls between agents are off; set tools.agentToAgent.enabled to true"
            )
        return service
