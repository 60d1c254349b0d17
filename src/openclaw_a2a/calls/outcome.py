"""The outcome of a call, read from the callee's task, and the JSON payloads that report it.

`decide_status` is the one place that decides between an answer, a failure and a timeout.
"""

import json
import math
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cached_property

import msgspec

from openclaw_a2a.engine.tasks.active_task import ActiveTask
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.engine.transcript.task_text import (
    find_json_objects,
    last_agent_text,
    parts_text,
    status_text,
)
from openclaw_a2a.model.call import Call, CallStatus, OutcomeRoute
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.message import format_timestamp
from openclaw_a2a.model.records import Entry, StoredTask, TaskHead
from openclaw_a2a.model.session_keys import redact_session_keys
from openclaw_a2a.model.task import TERMINAL, StatusUpdate, Task, TaskState, is_terminal
from openclaw_a2a.model.validation import is_list, is_object

DEFAULT_CONFIDENCE = 0.5
"""The confidence of an answer that states none."""

BROKEN_JSON_CONFIDENCE = 0.3
"""The confidence of an answer whose JSON cannot be parsed."""


class Outcome(msgspec.Struct, frozen=True):
    """How a call ended: with the parsed answer of its callee, with an error, or not in time."""

    status: CallStatus
    output: Json = None
    confidence: float = DEFAULT_CONFIDENCE
    assumptions: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    error: str = ""
    """Why there is no output."""

    @property
    def is_completed(self) -> bool:
        """True when there is an output."""
        return self.status is CallStatus.COMPLETED


def parse_callee_answer(text: str) -> Outcome:
    """The outcome of a task whose agent said this last; an empty text is an error."""
    if not text.strip():
        return Outcome(CallStatus.ERROR, error="the callee ended without an answer")
    found = next(find_json_objects(text), None)
    if found is None:
        confidence = BROKEN_JSON_CONFIDENCE if "{" in text else DEFAULT_CONFIDENCE
        return Outcome(CallStatus.COMPLETED, text, confidence)
    output = next((found[key] for key in ("output", "result") if key in found), found)
    fields = {**output, **found} if is_object(output) else found
    return Outcome(
        CallStatus.COMPLETED,
        output,
        confidence=clamp_confidence(fields.get("confidence")),
        assumptions=_texts(fields.get("assumptions")),
        caveats=_texts(fields.get("caveats")),
    )


def clamp_confidence(value: Json) -> float:
    """The value limited to 0..1; 0.5 when it is no number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or (isinstance(value, float) and not math.isfinite(value)):
        return DEFAULT_CONFIDENCE
    return float(min(1, max(0, value)))


def _texts(value: Json) -> tuple[str, ...]:
    items = value if is_list(value) else [value] if isinstance(value, str) else []
    return tuple(item if isinstance(item, str) else json.dumps(item) for item in items)


class CalleeTask:
    """What is known of the callee's task."""

    def __init__(
        self, head: TaskHead | None, load: Callable[[], Task] | None = None, *, is_running: bool
    ) -> None:
        """`load` gives the content. `is_running`: it works in this process, and was not read."""
        self.head = head
        self._load = load
        is_purged = head is None and not is_running
        self.is_ended = is_purged or (head is not None and head.state in TERMINAL)
        """True when its end is stored, or when it is purged."""
        self.ended_at = head.status_at if head is not None and self.is_ended else None
        """When its end was committed; None when it is not, or the task is purged."""

    @classmethod
    def from_stored(cls, stored: StoredTask | None) -> "CalleeTask":
        """The task as the store has it; None: it is purged."""
        if stored is None:
            return cls(None, is_running=False)
        return cls(stored.head, lambda: TaskProjection.from_stored(stored).task(), is_running=False)

    @classmethod
    def from_active(cls, active: ActiveTask) -> "CalleeTask | None":
        """A task of this process, as far as it is known to run or to have ended."""
        head = active.durable_head
        if head is not None and head.state in TERMINAL:
            return cls(head, active.journal.projection.task, is_running=False)
        return cls(None, is_running=True) if active.is_running else None

    @cached_property
    def outcome(self) -> Outcome:
        """The outcome; only of a task that has ended."""
        return _parse_outcome(None if self._load is None else self._load())


def decide_status(call: Call, task: CalleeTask, now: datetime) -> CallStatus | None:
    """How a pending call is settled now; None when it stays pending.

    The time at which the callee's end was committed counts, not the present: a gateway that was
    down over the deadline does not turn an answer that was in time into a timeout.
    """
    deadline, ended_at = call.deadline, task.ended_at
    if task.is_ended and (ended_at is None or deadline is None or ended_at <= deadline):
        return task.outcome.status
    return CallStatus.TIMEOUT if deadline is not None and now >= deadline else None


def read_outcome(stored: StoredTask | None) -> Outcome:
    """The outcome of a task that has ended or is purged."""
    return CalleeTask.from_stored(stored).outcome


def _parse_outcome(task: Task | None) -> Outcome:
    if task is None:
        return Outcome(CallStatus.ERROR, error="the callee's task is gone")
    if task.status.state is not TaskState.COMPLETED:
        reason = redact_session_keys(status_text(task))
        state = task.status.state.value.removeprefix("TASK_STATE_").lower().replace("_", " ")
        return Outcome(CallStatus.ERROR, error=reason or f"the callee's task was {state}")
    return parse_callee_answer(last_agent_text(task))


def first_text(stored: StoredTask) -> str:
    """The message to the callee."""
    history = TaskProjection.from_stored(stored).task().history
    return "" if not history else parts_text(history[0].parts)


def question_error(question: str) -> str:
    """The error of a call whose callee asks for input."""
    asked = question.rstrip()
    stop = "" if asked.endswith((".", "?", "!", ":")) else "."
    return f"the callee asks: {asked}{stop} A call cannot answer; call again with more input"


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
    if not outcome.is_completed:
        return {"error": outcome.error}
    return {
        "output": outcome.output,
        "confidence": outcome.confidence,
        "assumptions": list(outcome.assumptions),
        "caveats": list(outcome.caveats),
    }


def call_ids(call: Call) -> JsonObject:
    """The ids of a call."""
    return {"taskId": call.task_id, "correlationId": call.id}


def postponed_result(call: Call, reason: str) -> JsonObject:
    """The result for a caller that waited and gets the outcome later, and why."""
    is_sent = call.route is OutcomeRoute.SESSION
    how = "the outcome comes as a message" if is_sent else "poll the outcome with agent_poll"
    return {"status": "pending", "message": f"{reason}; {how} later", **call_ids(call)}


def poll_result(call: Call, outcome: Outcome | None) -> JsonObject:
    """The result of `agent_poll`. An answer that came after the timeout is marked as late."""
    if outcome is None:
        is_late = call.status in (CallStatus.TIMEOUT, CallStatus.DISCARDED)
        return {"status": "timeout"} if is_late else {"status": "working"}
    shown: JsonObject = {"status": outcome.status.value, **outcome_fields(outcome)}
    return {**shown, "late": True} if call.status is CallStatus.TIMEOUT else shown


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
    working = (one.event for one in first_events if one.state is TaskState.WORKING)
    started = (one.status.timestamp for one in working if isinstance(one, StatusUpdate))
    times = {
        "accepted": call.accepted_at,
        "running": next(started, None),
        "answered": stored.head.status_at if stored is not None and is_ended else None,
        "timedOut": call.settled_at if call.status is CallStatus.TIMEOUT else None,
        "delivered": call.delivered_at,
        "seen": call.seen_at,
        "discarded": call.discarded_at,
        "deadline": call.deadline,
    }
    return {name: format_timestamp(time) for name, time in times.items() if time is not None}
