"""Tasks that are being worked on here, and what those who wait for them get."""

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from openclaw_a2a.model.errors import GatewayError, LeaseLost
from openclaw_a2a.model.ids import MessageId, RunId
from openclaw_a2a.model.message import Message
from openclaw_a2a.model.states import is_active
from openclaw_a2a.model.stored import RunRecord
from openclaw_a2a.model.task import (
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
)
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import Commit, Known
from openclaw_a2a.runtime.journal import Journal
from openclaw_a2a.runtime.once import Once
from openclaw_a2a.runtime.output import OUTPUT_PREFIX
from openclaw_a2a.runtime.transcript import NO_NUMBERS, Numbering

if TYPE_CHECKING:
    from openclaw_a2a.runtime.run import LiveRun


class Answer(msgspec.Struct, frozen=True):
    """A direct answer: the stored bytes of one agent message."""

    message: bytes


class Shown(msgspec.Struct, frozen=True):
    """A task as it is first shown, and the sequence it stands at."""

    task: Task
    sequence: int


class Ended(msgspec.Struct, frozen=True):
    """A task as it was when it ended or paused; with the error the caller is told instead."""

    task: bytes
    error: GatewayError | None = None


class Refused(msgspec.Struct, frozen=True):
    """Nothing to show: an error, or the message is known from before."""

    error: GatewayError | None
    known: Known | None = None


First = Shown | Answer | Refused
Outcome = Ended | Answer | Refused


class KnownRun:
    """A message that was answered before, in the place of its run."""

    def __init__(self, known: Known, scope: Scope, message_id: MessageId) -> None:
        self.scope = scope
        self.message_id = message_id
        self._refusal = Refused(None, known=known)
        self.first: Once[First] = Once()
        self.first.set(self._refusal)

    async def outcome(self) -> Outcome:
        """What is known of it."""
        return self._refusal


class LiveTask:
    """A task with runs: its journal, its runs in order, and its end."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.runs: list[LiveRun] = []
        self.ending: set[RunId] = set()
        """Runs whose last change is on its way: they say nothing more."""
        self.ended: Once[Ended | Refused] = Once()
        self.opening: Commit | None = None
        """The change of the submission that brought the task to life, until it is durable."""
        self._initial: tuple[Task, int] | None = None
        self.restarts_at: Numbering | None = None
        """After a crash: what the task had before the interrupted run."""

    @property
    def is_at_work(self) -> bool:
        """True when it is certain that the stored task has neither ended nor paused."""
        journal = self.journal
        return self.opening is None and journal.failure is None and is_active(journal.state)

    def open_with(self, task: Task, sequence: int) -> None:
        """What a stream of the coming run shows first."""
        self._initial = (task, sequence)

    def open_again(self, message: Message, now: datetime) -> None:
        """A paused task goes on with a message: it will be shown as submitted, message included."""
        task = self.journal.view.task()
        status = TaskStatus(TaskState.SUBMITTED, timestamp=now)
        task = msgspec.structs.replace(task, status=status, history=(*task.history, message))
        self.open_with(task, self.journal.sequence)

    def initial_status(self) -> StatusUpdate:
        """The first event of the task: the status it is first shown with."""
        task, _ = self._initial or (self.journal.view.task(), 0)
        return StatusUpdate(task.id, task.context_id, task.status)

    def submitted(self, run: "LiveRun") -> None:
        """The submission is durable."""
        opening, self.opening = self.opening, None
        if opening is not None:
            self.journal.committed(opening, None)
        self.show_first(run)

    def refused(self, refusal: Refused) -> None:
        """The store did not take the submission: the task never came to be."""
        opening, self.opening = self.opening, None
        if opening is not None:
            error = refusal.error or LeaseLost("the message was taken before")
            self.journal.committed(opening, error)

    def show_first(self, run: "LiveRun") -> None:
        """Tell who waits that the task exists."""
        task, sequence = self._initial or (self.journal.view.task(), self.journal.sequence)
        run.first.set(Shown(task, sequence))

    def has_others(self, run: "LiveRun") -> bool:
        """True when another run of this task has something to say yet."""
        others = [one for one in self.runs if one is not run and one.record.id not in self.ending]
        return len(others) > 0

    def numbering(self, record: RunRecord) -> Numbering:
        """Where the artifact numbers of the next run begin."""
        view = self.journal.view
        if not view.has_artifacts:
            return NO_NUMBERS
        if record.attempt > 1 and self.restarts_at is not None:
            return self.restarts_at
        outputs = view.artifact_count(OUTPUT_PREFIX)
        return Numbering(outputs, view.artifact_count("tool-result-"))

    def has_message(self, record: RunRecord) -> bool:
        """True when the message of the run is in the task's history."""
        return self.journal.view.has_message(record.message.message_id)

    def leave(self, run: "LiveRun", result: Ended | Refused) -> None:
        """The run is over; the last one to leave ends the task's live time."""
        if run in self.runs:
            self.runs.remove(run)
        if not self.runs:
            self.journal.on_committed = None  # a way back to the run: garbage would pile up
            self.journal.feed.close()
            self.ended.set(result)
