"""What came of a call, read from the callee's task."""

from datetime import datetime
from functools import cached_property

import msgspec

from openclaw_a2a.calls.names import without_sessions
from openclaw_a2a.calls.reading import Reading, read_answer
from openclaw_a2a.model.call import Call, CallStatus
from openclaw_a2a.model.states import is_terminal
from openclaw_a2a.model.stored import StoredTask
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.runtime.view import TaskView
from openclaw_a2a.runtime.words import last_words, status_words

NOTHING_SAID = "the callee ended without an answer"
NO_TASK = "the callee's task is gone"


class Outcome(msgspec.Struct, frozen=True):
    """How the callee's task ended: an answer, or the reason why there is none."""

    answer: Reading | None = None
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
    task = TaskView.of_stored(stored).task()
    if task.status.state is not TaskState.COMPLETED:
        words = without_sessions(status_words(task))
        return Outcome(error=words or _plain(task.status.state))
    answer = read_answer(last_words(task))
    return Outcome(error=NOTHING_SAID) if answer is None else Outcome(answer)


def why_unanswered(question: str) -> str:
    """What a caller is told whose callee asks back."""
    asked = question.rstrip()
    stop = "" if asked.endswith((".", "?", "!", ":")) else "."
    return f"the callee asks: {asked}{stop} A call cannot answer; call again with more input"


def _plain(state: TaskState) -> str:
    word = state.value.removeprefix("TASK_STATE_").lower().replace("_", " ")
    return f"the callee's task was {word}"
