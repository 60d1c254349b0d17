"""The operator's endpoints for calls between agents."""

from collections.abc import Callable

from openclaw_a2a.calls.service import CallService
from openclaw_a2a.model.call import CallId, CallStatus
from openclaw_a2a.model.errors import (
    CallNotFound,
    InvalidParams,
    Problem,
    UnsupportedOperation,
)
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.server.admin.endpoint import AdminEndpoint, AdminRequest

DEFAULT_LIMIT = 20
MAX_LIMIT = 1000
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
        service, limit = self._find_service(), _parse_limit(request)
        status, agent = _parse_status(request), request.query.get("agent")
        found = [
            call
            for call in service.list_calls(limit=_MAX_SEARCHED)
            if status in (None, call.status)
            and agent in (None, call.callee_name, call.caller.agent_id)
        ]
        described = [await service.describe(call) for call in found[:limit]]
        return {"calls": [_without_answer(one) for one in described], "totalSize": len(found)}

    async def show(self, request: AdminRequest) -> JsonObject:
        """One call with its answer, and with the steps of a debate.

        Raises: CallNotFound, UnsupportedOperation.
        """
        service, [call_id] = self._find_service(), request.segments
        call = service.find(CallId(call_id))
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


def _without_answer(described: JsonObject) -> JsonObject:
    return {key: value for key, value in described.items() if key not in _ANSWER_FIELDS}


def _parse_limit(request: AdminRequest) -> int:
    text = request.query.get("limit", str(DEFAULT_LIMIT))
    if text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= MAX_LIMIT:
        return int(text)
    raise _invalid("limit", f"must be a whole number from 1 to {MAX_LIMIT}")


def _parse_status(request: AdminRequest) -> CallStatus | None:
    text = request.query.get("status")
    try:
        return None if text is None else CallStatus(text)
    except ValueError:
        known = ", ".join(one.value for one in CallStatus)
        raise _invalid("status", f"must be one of {known}") from None


def _invalid(name: str, reason: str) -> InvalidParams:
    return InvalidParams(f"{name}: {reason}", problems=(Problem(name, reason),))
