"""JSON payloads of calls: messages to callers, tool results and what the operator sees."""

from collections.abc import Sequence
from datetime import datetime

from openclaw_a2a.calls.debate.agent import StepResult
from openclaw_a2a.calls.outcome import CalleeTask, Outcome
from openclaw_a2a.model.call import Call, CallStatus
from openclaw_a2a.model.delivery import Delivery, DeliveryState
from openclaw_a2a.model.ids import JsonObject
from openclaw_a2a.model.records import Entry, StoredTask
from openclaw_a2a.model.states import is_terminal
from openclaw_a2a.model.task import StatusUpdate, TaskState
from openclaw_a2a.model.time_format import format_timestamp


def outcome_message(call: Call, task: CalleeTask) -> JsonObject:
    """The message to the caller's session or webhook: a response, an error or a timeout."""
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
        "status": task.outcome.status.value,
    }
    return {**head, **outcome_fields(task.outcome)}


def outcome_fields(outcome: Outcome) -> JsonObject:
    """The fields of the answer, or the error."""
    answer = outcome.answer
    if answer is None:
        return {"error": outcome.error}
    return {
        "output": answer.output,
        "confidence": answer.confidence,
        "assumptions": list(answer.assumptions),
        "caveats": list(answer.caveats),
    }


def call_ids(call: Call) -> JsonObject:
    """The ids of a call."""
    return {"taskId": call.task_id, "correlationId": call.id}


def poll_result(call: Call, outcome: Outcome | None) -> JsonObject:
    """The result of `agent_poll`. An answer that came after the timeout is marked as late."""
    if outcome is None:
        is_late = call.status in (CallStatus.TIMEOUT, CallStatus.DISCARDED)
        return {"status": "timeout"} if is_late else {"status": "working"}
    shown: JsonObject = {"status": outcome.status.value, **outcome_fields(outcome)}
    return {**shown, "late": True} if call.status is CallStatus.TIMEOUT else shown


def step_result(call: Call, outcome: Outcome) -> StepResult:
    """The result of a debate's step, from its call."""
    if call.status is CallStatus.TIMEOUT:
        return StepResult("timeout", error=f"no answer within {call.timeout_ms} ms")
    answer = outcome.answer
    if answer is None:
        return StepResult("error", error=outcome.error)
    return StepResult(
        "completed",
        output=answer.output,
        confidence=answer.confidence,
        assumptions=answer.assumptions,
        caveats=answer.caveats,
    )


def batch_result(results: Sequence[JsonObject]) -> JsonObject:
    """The result of `agent_call_batch`."""
    completed = [one for one in results if one["status"] == "completed"]
    confidences: list[float] = [one["confidence"] for one in completed]
    return {
        "results": list(results),
        "aggregateConfidence": sum(confidences) / len(completed) if completed else 0,
        "completedCount": len(completed),
        "errorCount": len(results) - len(completed),
        "totalCount": len(results),
    }


def call_timestamps(
    call: Call, stored: StoredTask | None, first_events: Sequence[Entry]
) -> JsonObject:
    """When a call reached each state. `first_events` are those of the callee's task."""
    is_ended = stored is not None and is_terminal(stored.head.state)
    times = {
        "accepted": call.accepted_at,
        "running": _running_at(first_events),
        "answered": stored.head.status_at if stored is not None and is_ended else None,
        "timedOut": call.settled_at if call.status is CallStatus.TIMEOUT else None,
        "delivered": call.delivered_at,
        "seen": call.seen_at,
        "discarded": call.discarded_at,
        "deadline": call.deadline,
    }
    return {name: format_timestamp(time) for name, time in times.items() if time is not None}


def delivery_problem(delivery: Delivery) -> JsonObject:
    """Why an outcome is not delivered after several attempts, and when the next one is."""
    is_waiting = delivery.state is DeliveryState.WAITING
    return {
        "attempts": delivery.attempts,
        "reason": delivery.reason,
        "nextAt": format_timestamp(delivery.next_at) if is_waiting else None,
    }


def _running_at(first_events: Sequence[Entry]) -> datetime | None:
    for entry in first_events:
        event = entry.event
        if entry.state is TaskState.WORKING and isinstance(event, StatusUpdate):
            return event.status.timestamp
    return None
