"""Where a run of ours is, asked of OpenClaw: after a lost connection, or a restart of either side.

Nothing here sends a message again; it only says when that is safe.
"""

from enum import Enum, auto
from typing import Final

import msgspec

from openclaw_a2a.agents.openclaw_gateway.link import Link
from openclaw_a2a.agents.openclaw_gateway.run_history import RunHistory, read_run_history
from openclaw_a2a.agents.openclaw_gateway.turn_events import Outcome
from openclaw_a2a.model.ids import JsonObject

_ASK_S: Final = 30.0


class Where(Enum):
    """How a run stands."""

    LIVE = auto()
    """Under way, or waiting for its turn."""
    ENDED = auto()
    FAILED = auto()
    ELSEWHERE = auto()
    """OpenClaw was restarted and goes on with it under another run id."""
    INTERRUPTED = auto()
    """Not to be seen: OpenClaw was restarted and has not gone on with it yet, or it is between
    two of its steps."""
    UNKNOWN = auto()
    """Its message was never taken: sending it does nothing twice."""


class Whereabouts(msgspec.Struct, frozen=True):
    """How a run stands, and what is known of it."""

    where: Where
    history: RunHistory
    outcome: Outcome = Outcome()
    reason: str = ""
    run_id: str = ""


async def find_run(link: Link, session_key: str, run_id: str) -> Whereabouts:
    """How the run stands now. Raises: AgentUnavailable, AgentFailed."""
    params: JsonObject = {"runId": run_id, "timeoutMs": 1}
    outcome = await link.read(Outcome, "agent.wait", params, timeout_s=_ASK_S)
    history = await read_run_history(link, session_key, run_id)
    if outcome.status == "ok":
        return Whereabouts(Where.ENDED, history, outcome)
    if outcome.status == "error":
        reason = failure_of(outcome) if outcome.is_stopped or outcome.error else ""
        reason = reason or history.failure_of(run_id) or failure_of(outcome)
        return Whereabouts(Where.FAILED, history, outcome, reason)
    # From here on it runs, or OpenClaw has forgotten it: after ten minutes, or a restart.
    return _by_history(history, run_id)


def _by_history(history: RunHistory, run_id: str) -> Whereabouts:
    if history.is_live(run_id):
        return Whereabouts(Where.LIVE, history)
    reason = history.failure_of(run_id)
    if reason is not None:
        return Whereabouts(Where.FAILED, history, reason=reason)
    if history.has_answer(run_id):
        return Whereabouts(Where.ENDED, history)
    if not history.is_taken(run_id):
        return Whereabouts(Where.UNKNOWN, history)
    other = history.recovery_of(run_id)
    if other is not None:
        return Whereabouts(Where.ELSEWHERE, history, run_id=other)
    return Whereabouts(Where.INTERRUPTED, history)


def failure_of(outcome: Outcome) -> str:
    """Why a run did not end well, in words."""
    if outcome.is_stopped:
        return "The run was stopped inside OpenClaw; send the message again to have it done."
    if outcome.timeout_phase or outcome.status == "timeout":
        said = " ".join(one.text for one in outcome.result.payloads if one.text)
        return said or "OpenClaw gave the run up because it took too long; ask for less at once."
    return outcome.error or outcome.summary or "OpenClaw ended the run and gave no reason."
