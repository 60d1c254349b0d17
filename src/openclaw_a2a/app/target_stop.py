"""Ending a task at a remote agent: it has ended when the remote agent says so."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import anyio

from openclaw_a2a.app.remote_results import RemoteResult
from openclaw_a2a.model.errors import AgentUnavailable
from openclaw_a2a.model.ids import Json, JsonObject

CANCELED = "canceled"
_TASK_NOT_FOUND = -32001
_REQUEST_S = 10.0
_BREATH_S = 0.2


class Executes(Protocol):
    """The tool `remote_agent`, as far as it is needed here."""

    async def execute(
        self,
        request: Json,
        on_update: Callable[[JsonObject], None] | None = None,
        *,
        said_with: JsonObject | None = None,
        by_extension: Mapping[str, JsonObject] | None = None,
    ) -> JsonObject:
        """Do what a request asks; the envelope of its result."""
        ...


async def end_task(
    remote: Executes,
    continuation: JsonObject,
    *,
    within_s: float,
    sleep: Callable[[float], Awaitable[None]],
) -> str | None:
    """Have a task canceled; the state it ended in, or None when its agent lets it go on.

    Raises: AgentUnavailable (nobody can be told).
    """
    give_up_at = anyio.current_time() + within_s
    action = "cancel"
    while True:
        left = max(1.0, min(_REQUEST_S, give_up_at - anyio.current_time()))
        request: JsonObject = {"action": action, "continuation": continuation}
        envelope = await remote.execute({**request, "timeout_ms": round(left * 1000)})
        result = RemoteResult.of(envelope)
        if result.task is not None and result.task.is_over:
            return result.task.state
        if result.details.get("rpcCode") == _TASK_NOT_FOUND:
            return CANCELED  # nobody works on what nobody knows
        is_refused = is_answered(result)
        if is_refused and action == "status":
            return None
        if anyio.current_time() >= give_up_at:
            return _not_ended(result)
        if is_refused:
            action = "status"  # it may have ended before it could be canceled
            give_up_at = anyio.current_time()
            continue
        if result.ok:
            action = "status"  # it was told, and takes its time
        await sleep(_BREATH_S)


def is_answered(result: RemoteResult) -> bool:
    """True when a request failed because the peer said no, and not on the way."""
    status = result.details.get("httpStatus", 0)
    return "rpcCode" in result.details or (400 <= status < 500 and status != 429)


def _not_ended(result: RemoteResult) -> None:
    """It goes on, as far as is known. Raises: AgentUnavailable when that is not known."""
    if not result.ok:
        raise AgentUnavailable(
            f"the remote task could not be canceled and may go on: {result.message}"
        )
