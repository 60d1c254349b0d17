"""A task that is being worked on in this process: its journal, its runs in order, and its end."""

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from openclaw_a2a.engine.tasks.journal import Journal
from openclaw_a2a.engine.tasks.result import Promise, Rejected, TaskCreated, TaskFinished
from openclaw_a2a.engine.transcript.content import OUTPUT_PREFIX
from openclaw_a2a.engine.transcript.transcript import NO_ARTIFACTS, ArtifactCounters
from openclaw_a2a.model.errors import AlreadyExists
from openclaw_a2a.model.ids import RunId
from openclaw_a2a.model.message import Message
from openclaw_a2a.model.records import RunRecord
from openclaw_a2a.model.task import ACTIVE, StatusUpdate, Task, TaskState, TaskStatus
from openclaw_a2a.ports import Commit

if TYPE_CHECKING:
    from openclaw_a2a.engine.tasks.run import ActiveRun


class ActiveTask:
    """A task with at least one run. Its `finished` promise is set when the last run leaves."""

    def __init__(self, journal: Journal, created: Task | None = None) -> None:
        self.journal = journal
        self.runs: list[ActiveRun] = []
        self.ending: set[RunId] = set()
        """Runs whose last commit is under way: they write nothing more."""
        self.finished: Promise[TaskFinished | Rejected] = Promise()
        self.opening: Commit | None = None
        """The commit of the submission that opened the task, until the store has answered."""
        self._created = created
        """The task that a stream of the first run shows first."""
        self._created_sequence = journal.sequence
        self.restart_counters: ArtifactCounters | None = None
        """After a crash: the artifacts the task had before the interrupted run."""

    @property
    def is_running(self) -> bool:
        """True when it is certain that the stored task has neither ended nor paused."""
        journal = self.journal
        return self.opening is None and journal.failure is None and journal.state in ACTIVE

    def open(self) -> Commit:
        """The commit that creates the task; it goes to the store with the submission."""
        task = self._created or self.journal.projection.task()
        status = StatusUpdate(task.id, task.context_id, task.status)
        self.opening = self.journal.open(status)
        return self.opening

    def reopen(self, message: Message, now: datetime) -> Commit:
        """The commit that continues a paused task with a message: the task is submitted again."""
        task = self.journal.projection.task()
        status = TaskStatus(TaskState.SUBMITTED, timestamp=now)
        history = (*task.history, message)
        self._created = msgspec.structs.replace(task, status=status, history=history)
        self._created_sequence = self.journal.sequence
        update = StatusUpdate(task.id, task.context_id, status)
        self.opening = self.journal.open(update, message)
        return self.opening

    def on_accepted(self, run: "ActiveRun") -> None:
        """The submission that opened the task is durable."""
        opening, self.opening = self.opening, None
        if opening is not None:
            self.journal.committed(opening, None)
        self.show_created(run)

    def on_rejected(self, rejected: Rejected) -> None:
        """The store rejected the submission: the task does not exist."""
        opening, self.opening = self.opening, None
        if opening is not None:
            error = rejected.error or AlreadyExists("the message was accepted before")
            self.journal.committed(opening, error)

    def show_created(self, run: "ActiveRun") -> None:
        """Tell the sender of the run's message that the task exists."""
        if self._created is None:
            run.created.set(TaskCreated(self.journal.projection.task(), self.journal.sequence))
        else:
            run.created.set(TaskCreated(self._created, self._created_sequence))

    def has_other_runs(self, run: "ActiveRun") -> bool:
        """True when another run of this task is not ending yet."""
        return len(self.runs) > 1 and any(
            other is not run and other.record.id not in self.ending for other in self.runs
        )

    def artifact_counters(self, record: RunRecord) -> ArtifactCounters:
        """Where the artifact numbers of a run begin."""
        projection = self.journal.projection
        if not projection.has_artifacts:
            return NO_ARTIFACTS
        if record.attempt > 1 and self.restart_counters is not None:
            return self.restart_counters
        outputs = projection.artifact_count(OUTPUT_PREFIX)
        return ArtifactCounters(outputs, projection.artifact_count("tool-result-"))

    def leave(self, run: "ActiveRun", result: TaskFinished | Rejected) -> None:
        """The run is over; the last one to leave finishes the task's active time."""
        if run in self.runs:
            self.runs.remove(run)
        if not self.runs:
            self.journal.on_committed = None  # it refers to the run: a cycle of garbage per task
            self.journal.feed.close()
            self.finished.set(result)
