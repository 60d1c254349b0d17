"""How callers and people are told what became of a call."""

from collections.abc import Sequence
from datetime import datetime

from openclaw_a2a.calls.debate.agent import StepResult
from openclaw_a2a.calls.outcome import Outcome, Work
from openclaw_a2a.model.call import Call, CallStatus
from openclaw_a2a.model.delivery import Delivery, DeliveryState
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.records import Entry, StoredTask
from openclaw_a2a.model.states import is_terminal
from openclaw_a2a.model.task import StatusUpdate, TaskState
from openclaw_a2a.model.time_format import format_timestamp


def told(call: Call, work: Work) -> JsonObject:
    """The message into the caller's session: a response, an error or the timeout."""
    if call.status is CallStatus.TIMEOUT:
        asked = f"{call.callee_name} to {call.skill}"
        return {
            "kind": "skill_timeout",
            "correlationId": call.id,
            "taskId": call.task_id,
            "status": "timeout",
            "message": f"no answer of {asked} within {call.timeout_ms} ms; "
            "a later one can be had with agent_poll",
        }
    head: JsonObject = {
        "kind": "skill_response",
        "correlationId": call.id,
        "taskId": call.task_id,
        "status": work.outcome.status.value,
    }
    return {**head, **details(work.outcome)}


def details(outcome: Outcome) -> JsonObject:
    """The answer's members, or the error's."""
    answer = outcome.answer
    if answer is None:
        return {"error": outcome.error}
    return {
        "output": answer.output,
        "confidence": answer.confidence,
        "assumptions": list(answer.assumptions),
        "caveats": list(answer.caveats),
    }


def ids(call: Call) -> JsonObject:
    """By what a call is known."""
    return {"taskId": call.task_id, "correlationId": call.id}


def polled(call: Call, outcome: Outcome | None) -> JsonObject:
    """What a caller is told who asks. An answer that came too late is told as one."""
    if outcome is None:
        is_late = call.status in (CallStatus.TIMEOUT, CallStatus.DISCARDED)
        return {"status": "timeout"} if is_late else {"status": "working"}
    shown: JsonObject = {"status": outcome.status.value, **details(outcome)}
    return {**shown, "late": True} if call.status is CallStatus.TIMEOUT else shown


def as_answer(call: Call, outcome: Outcome) -> StepResult:
    """What a debate learns from one of its calls."""
    if call.status is CallStatus.TIMEOUT:
        return StepResult("timeout", error=f"no answer within {call.timeout_ms} ms")
    reading = outcome.answer
    if reading is None:
        return StepResult("error", error=outcome.error)
    return StepResult(
        "completed",
        output=reading.output,
        confidence=reading.confidence,
        assumptions=reading.assumptions,
        caveats=reading.caveats,
    )


def summed_up(results: Sequence[JsonObject]) -> JsonObject:
    """The result of many calls."""
    sure: list[float] = [one["confidence"] for one in results if one["status"] == "completed"]
    return {
        "results": list(results),
        "aggregateConfidence": sum(sure) / len(sure) if sure else 0,
        "completedCount": len(sure),
        "errorCount": len(results) - len(sure),
        "totalCount": len(results),
    }


def times(call: Call, stored: StoredTask | None, begun: Sequence[Entry]) -> JsonObject:
    """When a call came to which state, as far as it did. `begun` are its task's first events."""
    moments = {
        "accepted": call.accepted_at,
        "running": _running_at(begun),
        "answered": _ended_at(stored),
        "timedOut": call.settled_at if call.status is CallStatus.TIMEOUT else None,
        "delivered": call.delivered_at,
        "seen": call.seen_at,
        "discarded": call.discarded_at,
        "deadline": call.deadline,
    }
    return {
        name: format_timestamp(moment) for name, moment in moments.items() if moment is not None
    }


def in_trouble(delivery: Delivery) -> JsonObject:
    """How often an outcome was brought in vain, why, and when it is tried again."""
    is_waiting = delivery.state is DeliveryState.WAITING
    return {
        "attempts": delivery.attempts,
        "reason": delivery.reason,
        "nextAt": format_timestamp(delivery.next_at) if is_waiting else None,
    }


def _running_at(begun: Sequence[Entry]) -> datetime | None:
    for entry in begun:
        event = entry.event
        if entry.state is TaskState.WORKING and isinstance(event, StatusUpdate):
            return event.status.timestamp
    return None


def _ended_at(stored: StoredTask | None) -> datetime | None:
    is_ended = stored is not None and is_terminal(stored.head.state)
    return stored.head.status_at if stored is not None and is_ended else None
