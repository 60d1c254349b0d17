"""The operator's pages of calls between agents: which there are, and what became of each."""

from collections.abc import Callable
from typing import Protocol

from openclaw_a2a.model.call import Call, CallId, CallStatus
from openclaw_a2a.model.errors import (
    CallNotFound,
    InvalidParams,
    Problem,
    UnsupportedOperation,
)
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.server.admin.endpoint import AdminEndpoint, AdminRequest

USUAL = 20
MOST = 1000
"""How many calls are listed: unless somebody asks for another number, and at most."""

_KEPT = 10_000
_LONG = ("output", "assumptions", "caveats", "parts", "debate")
"""What a list leaves out: it is shown with the call itself."""


class ShowsCalls(Protocol):
    """Who knows the calls."""

    def list_calls(self, *, limit: int) -> list[Call]:
        """The newest calls, the newest first."""
        ...

    def find(self, call_id: CallId) -> Call | None:
        """The call with this id."""
        ...

    async def describe(self, call: Call) -> JsonObject:
        """Everything that a person may see of a call."""
        ...


class CallsAdmin:
    """Lists and shows calls. `calls` gives None while calls between agents are off."""

    def __init__(self, calls: Callable[[], ShowsCalls | None]) -> None:
        self._calls = calls

    def add_to(self, door: AdminEndpoint) -> None:
        """Open the pages."""
        door.add_route("GET", "/operator/calls", self.list)
        door.add_route("GET", "/operator/calls/{}", self.show)

    async def list(self, request: AdminRequest) -> JsonObject:
        """The newest calls without their answers; `limit`, `status` and `agent` choose among them.

        Raises: InvalidParams, UnsupportedOperation.
        """
        calls, limit = self._open(), _read_limit(request)
        status, agent = _read_status(request), request.query.get("agent")
        found = [
            call
            for call in calls.list_calls(limit=_KEPT)
            if status in (None, call.status)
            and agent in (None, call.callee_name, call.caller.agent_id)
        ]
        shown = [_without_answer(await calls.describe(call)) for call in found[:limit]]
        return {"calls": shown, "totalSize": len(found)}

    async def show(self, request: AdminRequest) -> JsonObject:
        """One call with its answer, and with the calls of a debate.

        Raises: CallNotFound, UnsupportedOperation.
        """
        calls, [wanted] = self._open(), request.segments
        call = calls.find(CallId(wanted))
        if call is None:
            raise CallNotFound(f"there is no call {wanted[:80]}, or it was forgotten with time")
        return await calls.describe(call)

    def _open(self) -> ShowsCalls:
        calls = self._calls()
        if calls is None:
            raise UnsupportedOperation(
                "calls between agents are off; set tools.agentToAgent.enabled to true"
            )
        return calls


def _without_answer(shown: JsonObject) -> JsonObject:
    return {key: value for key, value in shown.items() if key not in _LONG}


def _read_limit(request: AdminRequest) -> int:
    text = request.query.get("limit", str(USUAL))
    if text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= MOST:
        return int(text)
    raise _wrong("limit", f"must be a whole number from 1 to {MOST}")


def _read_status(request: AdminRequest) -> CallStatus | None:
    text = request.query.get("status")
    try:
        return None if text is None else CallStatus(text)
    except ValueError:
        known = ", ".join(one.value for one in CallStatus)
        raise _wrong("status", f"must be one of {known}") from None


def _wrong(name: str, reason: str) -> InvalidParams:
    return InvalidParams(f"{name}: {reason}", problems=(Problem(name, reason),))
