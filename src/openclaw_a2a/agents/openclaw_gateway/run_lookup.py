"""Finds out what became of a run, after a lost connection or a restart of either side.

Asks `agent.wait` first and the session's history second. Nothing is sent again here; the result
only says when sending again is safe.
"""

from enum import Enum, auto
from typing import Final

import msgspec

from openclaw_a2a.agents.openclaw_gateway.connection import GatewayConnection
from openclaw_a2a.agents.openclaw_gateway.history import SessionHistory, read_history
from openclaw_a2a.agents.openclaw_gateway.protocol import RunOutcome
from openclaw_a2a.model.ids import JsonObject

_TIMEOUT_S: Final = 30.0


class RunStatus(Enum):
    """The status of a run inside OpenClaw."""

    LIVE = auto()
    """Active or queued."""
    ENDED = auto()
    FAILED = auto()
    RESUMED = auto()
    """OpenClaw was restarted and resumed it under another run id."""
    HIDDEN = auto()
    """Accepted but not shown as active: OpenClaw was restarted and has not resumed it yet, or the
    run is between two of its steps."""
    NOT_ACCEPTED = auto()
    """OpenClaw never accepted its message: sending it cannot execute anything twice."""


class FoundRun(msgspec.Struct, frozen=True):
    """The status of a run, and what is known of it; `run_id` is the resumed run's, if any."""

    status: RunStatus
    history: SessionHistory
    outcome: RunOutcome = RunOutcome()
    reason: str = ""
    run_id: str = ""


async def find_run(connection: GatewayConnection, session_key: str, run_id: str) -> FoundRun:
    """The run's status now. Raises: AgentUnavailable, AgentFailed."""
    params: JsonObject = {"runId": run_id, "timeoutMs": 1}
    outcome = await connection.read(RunOutcome, "agent.wait", params, timeout_s=_TIMEOUT_S)
    # After the outcome: a run that ends in between is seen as ended, never as not accepted.
    history = await read_history(connection, session_key, full_run=run_id)
    if outcome.status == "ok":
        return FoundRun(RunStatus.ENDED, history, outcome)
    if outcome.status == "error":
        reason = outcome.failure_reason if outcome.is_stopped or outcome.error else ""
        reason = reason or history.failure_reason(run_id) or outcome.failure_reason
        return FoundRun(RunStatus.FAILED, history, outcome, reason)
    # Still running, or forgotten: OpenClaw forgets runs after ten minutes and with a restart.
    return _status_by_history(history, run_id)


def _status_by_history(history: SessionHistory, run_id: str) -> FoundRun:
    if history.is_live(run_id):
        return FoundRun(RunStatus.LIVE, history)
    reason = history.failure_reason(run_id)
    if reason is not None:
        return FoundRun(RunStatus.FAILED, history, reason=reason)
    if history.has_answer(run_id):
        return FoundRun(RunStatus.ENDED, history)
    if not history.is_accepted(run_id):
        return FoundRun(RunStatus.NOT_ACCEPTED, history)
    other = history.find_recovery(run_id)
    if other is not None:
        return FoundRun(RunStatus.RESUMED, history, run_id=other)
    return FoundRun(RunStatus.HIDDEN, history)
