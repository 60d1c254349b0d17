"""A task that is worked on in this process, and what the senders of its messages get.

The first result of a message is the task, a direct answer or a rejection (`ActiveRun.created`); the
final one is the task when its last run has left (`ActiveTask.finished`).
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import msgspec

from openclaw_a2a.engine.tasks.journal import Journal
from openclaw_a2a.engine.tasks.run_state import RunState
from openclaw_a2a.engine.transcript.assistant_message import NOTHING_PUBLISHED
from openclaw_a2a.engine.transcript.transcript import NO_ARTIFACTS, ArtifactCounters
from openclaw_a2a.model.errors import (
    CorruptRecord,
    GatewayError,
    OutputNotAccepted,
    StoreUnavailable,
)
from openclaw_a2a.model.ids import Json, MessageId, TaskId
from openclaw_a2a.model.message import Message
from openclaw_a2a.model.records import RunRecord, StreamBody, TaskHead, encode_json
from openclaw_a2a.model.task import (
    ACTIVE,
    PAUSED,
    Event,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
)
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import Commit, Duplicate

if TYPE_CHECKING:
    from openclaw_a2a.engine.tasks.run import ActiveRun

Value = TypeVar("Value")


class Promise(msgspec.Struct, Generic[Value], eq=False):
    """A value that is set once and awaited by any number of waiters.

    Unlike a future that is awaited by several, a waiter that is cancelled cancels only itself.
    """

    # A struct: it takes less memory, and each active task has several.
    is_set: bool = False
    _value: Value | None = None
    _waiters: tuple[asyncio.Future[Value], ...] = ()

    def set(self, value: Value) -> None:
        """Set the value, unless it is set already."""
        if self.is_set:
            return
        self.is_set, self._value = True, value
        # They run later, in the order in which they came; `set` itself runs nothing of theirs.
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(value)
        self._waiters = ()

    def wait(self) -> "asyncio.Future[Value]":
        """The value, once it is set: a future of its own for each waiter."""
        waiter: asyncio.Future[Value] = asyncio.get_running_loop().create_future()
        if self.is_set:
            waiter.set_result(self.peek())
        else:
            self._waiters = (*self._waiters, waiter)
        return waiter

    def peek(self) -> Value:
        """The value, which must be set."""
        if not self.is_set:
            raise LookupError("the value is not set yet")
        return self._value  # pyright: ignore[reportReturnType] - None only when Value allows it


class DirectAnswer(msgspec.Struct, frozen=True):
    """An answer without a task: the stored bytes of one agent message."""

    message: bytes


class TaskCreated(msgspec.Struct, frozen=True):
    """A task as it is first shown, and its sequence number at that moment."""

    task: Task
    sequence: int


class TaskFinished(msgspec.Struct, frozen=True):
    """A task as it was when it ended or paused; `error` is what the caller gets instead."""

    id: TaskId
    task: bytes
    error: GatewayError | None = None


class Rejected(msgspec.Struct, frozen=True):
    """The message was not accepted: an error, or a duplicate of one that was accepted before."""

    error: GatewayError | None
    duplicate: Duplicate | None = None


FirstResult = TaskCreated | DirectAnswer | Rejected
FinalResult = TaskFinished | DirectAnswer | Rejected


class DuplicateRun:
    """Takes the place of a run for a message that was accepted before."""

    def __init__(self, duplicate: Duplicate, scope: Scope, message_id: MessageId) -> None:
        self.scope = scope
        self.message_id = message_id
        self.duplicate = duplicate
        self._rejected = Rejected(None, duplicate)
        # Set from the beginning: `wait_created` goes on to the duplicate at once.
        self.created: Promise[FirstResult] = Promise()
        self.created.set(self._rejected)

    async def wait_result(self) -> FinalResult:
        """The rejection that names the duplicate."""
        return self._rejected


# ---------------------------------------------------------------- stored answers


class StoredAnswer(StreamBody, frozen=True):
    """What is stored of a run that made no task: its message, or the error."""

    error: dict[str, Json] | None = None


def encode_answer(message: bytes) -> bytes:
    """The stored form of a direct answer, from the bytes of its message."""
    return b'{"message":' + message + b"}"


def encode_rejection(error: GatewayError) -> bytes:
    """The stored form of a run that has nothing to show."""
    details = {"code": error.code, "message": error.message, "details": error.details}
    return msgspec.json.encode({"error": details})


def decode_answer(stored: bytes) -> DirectAnswer:
    """The result of a run that ended without a task.

    Raises: OutputNotAccepted, CorruptRecord (it cannot be read).
    """
    try:
        document = msgspec.json.decode(stored, type=StoredAnswer)
    except (ValueError, RecursionError) as error:
        raise CorruptRecord(
            "the stored answer to this message is damaged; send it again under a new message id"
        ) from error
    if document.message is not None:
        return DirectAnswer(encode_json(document.message))
    fault = document.error or {}
    raise OutputNotAccepted(str(fault.get("message", "")), details=fault.get("details"))


def work_stopped(task_id: TaskId) -> StoreUnavailable:
    """The error for those who wait for a task whose end is not stored yet."""
    return StoreUnavailable(
        f"the work on task {task_id} was stopped, and its end is not stored yet; "
        "the task will be failed as soon as it can be; ask again then"
    )


# ---------------------------------------------------------------- the active task


class PostponedEnd(NamedTuple):
    """With what a task ends when no message behind its last run is accepted."""

    events: Callable[[], Sequence[Event]]
    error: GatewayError | None
    """What the sender of the last run gets instead of the task."""
    code: str
    """The error code of a failed task, for the log."""


class ActiveTask:
    """A task with at least one run. Its `finished` promise is set when the last run leaves."""

    is_opening = False
    """True until the store has answered the submission that opens the task."""
    restart_counters: ArtifactCounters | None = None
    """After a crash: the artifacts the task had before the interrupted run."""
    published = NOTHING_PUBLISHED
    """After a crash: what the interrupted run had published."""
    postponed_end: PostponedEnd | None = None
    """The end of a run that did not end the task, because other messages were with the store. It is
    written when the store accepts none of these."""

    def __init__(self, journal: Journal, created: Task | None = None) -> None:
        self.journal = journal
        self.runs: list[ActiveRun] = []
        self.finished: Promise[TaskFinished | Rejected] = Promise()
        self._created = created
        """The task that a stream of the first run shows first."""
        self._created_sequence = journal.sequence

    @property
    def is_running(self) -> bool:
        """True when it is certain that the stored task has neither ended nor paused."""
        # An end that is recorded but not durable counts as ended: the store may have it already.
        journal = self.journal
        return not self.is_opening and journal.failure is None and journal.state in ACTIVE

    @property
    def durable_head(self) -> TaskHead | None:
        """The task as the store has it; None while a commit is under way, or was refused."""
        journal = self.journal
        is_ahead = self.is_opening or journal.in_flight or journal.failure is not None
        return None if is_ahead else journal.head

    @property
    def is_answered(self) -> bool:
        """True when a message has answered the pause, or is queued and will when its turn comes."""
        is_paused = self.journal.state in PAUSED
        return is_paused or any(run.record.options.is_answer for run in self.runs)

    @property
    def pausing_run(self) -> "ActiveRun | None":
        """The run that is committing a pause, which nothing can answer before it is over."""
        if self.journal.state not in PAUSED:
            return None
        return next((run for run in self.runs if run.state is RunState.ENDING), None)

    def open(self, run: "ActiveRun") -> None:
        """Create the task, with the submission of the run."""
        task = self._created or self.journal.projection.task()
        self.is_opening = True
        self.journal.open(StatusUpdate(task.id, task.context_id, task.status), run.submit)

    def reopen(
        self, run: "ActiveRun", message: Message, now: datetime, reason: Message | None = None
    ) -> None:
        """Continue a paused task, with the submission of the run: it is submitted again.

        `reason` is the message of its new status.
        """
        # What a stream of this message shows first: the task as it was, with the message and the
        # new status. The events from this sequence on follow.
        task = self.journal.projection.task()
        since = max(now, self.journal.head.status_at)
        status = TaskStatus(TaskState.SUBMITTED, reason, timestamp=since)
        # The message of a held task is in the history already.
        is_known = any(one.message_id == message.message_id for one in task.history)
        history = task.history if is_known else (*task.history, message)
        self._created = msgspec.structs.replace(task, status=status, history=history)
        self._created_sequence = self.journal.sequence
        self.is_opening = True
        event = StatusUpdate(task.id, task.context_id, status)
        self.journal.open(event, run.submit, message)

    def on_opened(self, commit: Commit | None, error: Exception | None) -> None:
        """The store has answered the submission that opened the task, and the commit with it."""
        # From now on the task takes other messages, which wait until it is not opening any more.
        if self.is_opening and commit is not None:
            self.is_opening = False
            self.journal.committed(commit, error)

    def show_created(self, run: "ActiveRun") -> None:
        """Tell the sender of the run's message that the task exists."""
        # For the message that opened the task only: a later one must not see it as it was before.
        created, self._created = self._created, None
        if created is None:
            run.created.set(TaskCreated(self.journal.projection.task(), self.journal.sequence))
        else:
            run.created.set(TaskCreated(created, self._created_sequence))

    def has_other_runs(self, run: "ActiveRun") -> bool:
        """True when another run of this task is not ending yet.

        Of two runs that end at the same time only one may leave the task `working`: the one that
        asks first. The other sees it ENDING, and so writes the final state.
        """
        return len(self.runs) > 1 and any(
            other is not run and other.state is not RunState.ENDING for other in self.runs
        )

    def has_only_doubtful_runs(self, run: "ActiveRun") -> bool:
        """True when the store has accepted no other message of this task whose run goes on."""
        return all(
            other.submission is not None or other.state is RunState.ENDING
            for other in self.runs
            if other is not run
        )

    def artifact_counters(self, record: RunRecord) -> ArtifactCounters:
        """Where the artifact numbers of a run begin."""
        # A run continues the numbers of the runs before it: an equal id would replace an artifact.
        if not (artifact_ids := self.journal.projection.artifact_ids):
            return NO_ARTIFACTS
        if record.attempt > 1 and self.restart_counters is not None:
            return self.restart_counters
        return ArtifactCounters.count(artifact_ids)

    def leave(self, run: "ActiveRun", result: TaskFinished | Rejected) -> None:
        """The run is over; the last one to leave finishes the task's active time."""
        # A rejected run leaves twice: when the store refuses it, and when its asyncio task ends.
        if run in self.runs:
            self.runs.remove(run)
        if not self.runs:
            self.journal.writer = None  # it refers to the run: a cycle of garbage per task
            # Readers first: a stream ends with the last event, not with a heartbeat later.
            error = result.error if isinstance(result, Rejected) else None
            self.journal.close_feed(error if isinstance(error, StoreUnavailable) else None)
            self.finished.set(result)
