"""What an agent answered to a call: output, confidence, assumptions and caveats."""

import json
import math
from datetime import datetime
from functools import cached_property
from typing import cast

import msgspec

from openclaw_a2a.calls.identifiers import without_sessions
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.engine.transcript.task_text import find_json_objects, last_agent_text, status_text
from openclaw_a2a.model.call import Call, CallStatus
from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.model.records import StoredTask
from openclaw_a2a.model.states import is_terminal
from openclaw_a2a.model.task import TaskState

PLAIN = 0.5
"""The confidence of an answer that tells none."""

BROKEN = 0.3
"""The confidence of an answer that looks like JSON and is none."""


class Answer(msgspec.Struct, frozen=True):
    """An answer, taken apart."""

    output: Json
    confidence: float = PLAIN
    assumptions: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()


def read_answer(text: str) -> Answer | None:
    """The answer in an agent's last text; None when there is none."""
    if not text.strip():
        return None
    found = next(find_json_objects(text), None)
    if found is None:
        return Answer(text, BROKEN if "{" in text else PLAIN)
    output = _output(found)
    return Answer(
        output=output,
        confidence=clamp_confidence(_fact(found, output, "confidence")),
        assumptions=_texts(_fact(found, output, "assumptions")),
        caveats=_texts(_fact(found, output, "caveats")),
    )


def clamp_confidence(value: Json) -> float:
    """The value within 0 and 1; what is no number is undecided."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or (isinstance(value, float) and not math.isfinite(value)):
        return PLAIN
    return float(min(1, max(0, value)))


def _output(found: JsonObject) -> Json:
    for key in ("output", "result"):
        if key in found:
            return found[key]
    return found


def _fact(found: JsonObject, output: Json, key: str) -> Json:
    if key in found:
        return found[key]
    return cast("JsonObject", output).get(key) if isinstance(output, dict) else None


def _texts(value: Json) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    items = cast("list[Json]", value) if isinstance(value, list) else []
    return tuple(item if isinstance(item, str) else json.dumps(item) for item in items)


NOTHING_SAID = "the callee ended without an answer"
NO_TASK = "the callee's task is gone"


class Outcome(msgspec.Struct, frozen=True):
    """How the callee's task ended: an answer, or the reason why there is none."""

    answer: Answer | None = None
    error: str = ""

    @property
    def status(self) -> CallStatus:
        """The status of a call that is settled by it."""
        return CallStatus.ERROR if self.answer is None else CallStatus.COMPLETED


class Work:
    """The callee's task, as far as it is known."""

    def __init__(self, stored: StoredTask | None, *, is_running: bool = False) -> None:
        """`is_running`: it is at work here and now, so nobody needs to look how it is stored."""
        self.stored = stored
        self._is_running = is_running

    @property
    def is_ended(self) -> bool:
        """True when its end is stored, or when it is gone."""
        if self._is_running:
            return False
        return self.stored is None or is_terminal(self.stored.head.state)

    @property
    def ended_at(self) -> datetime | None:
        """When its end was committed; None when it was not, or is not known any more."""
        return self.stored.head.status_at if self.stored is not None and self.is_ended else None

    @cached_property
    def outcome(self) -> Outcome:
        """How it ended, once it has."""
        return outcome_of(self.stored)


def decide(call: Call, work: Work, now: datetime) -> CallStatus | None:
    """How a pending call is settled by what is known now; None when it stays pending.

    What counts is when the callee's end was committed, not when somebody looks: the answer wins
    when it was there by the deadline, whoever was away meanwhile.
    """
    deadline, ended_at = call.deadline, work.ended_at
    if work.is_ended and (ended_at is None or deadline is None or ended_at <= deadline):
        return work.outcome.status
    return CallStatus.TIMEOUT if deadline is not None and now >= deadline else None


def outcome_of(stored: StoredTask | None) -> Outcome:
    """How a task that has ended ended."""
    if stored is None:
        return Outcome(error=NO_TASK)
    task = TaskProjection.from_stored(stored).task()
    if task.status.state is not TaskState.COMPLETED:
        words = without_sessions(status_text(task))
        return Outcome(error=words or _plain(task.status.state))
    answer = read_answer(last_agent_text(task))
    return Outcome(error=NOTHING_SAID) if answer is None else Outcome(answer)


def why_unanswered(question: str) -> str:
    """What a caller is told whose callee asks back."""
    asked = question.rstrip()
    stop = "" if asked.endswith((".", "?", "!", ":")) else "."
    return f"the callee asks: {asked}{stop} A call cannot answer; call again with more input"


def _plain(state: TaskState) -> str:
    word = state.value.removeprefix("TASK_STATE_").lower().replace("_", " ")
    return f"the callee's task was {word}"
