"""A value that comes once, for any number of waiters that may go away at any time."""

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from openclaw_a2a.engine.tasks.journal import Journal
from openclaw_a2a.engine.tasks.turn_builder import AccountRules
from openclaw_a2a.engine.transcript.content import OUTPUT_PREFIX
from openclaw_a2a.engine.transcript.transcript import NO_ARTIFACTS, ArtifactCounters
from openclaw_a2a.model.errors import AlreadyExists, GatewayError, OutputNotAccepted
from openclaw_a2a.model.ids import Json, MessageId, RunId
from openclaw_a2a.model.message import Message
from openclaw_a2a.model.records import RunRecord, StreamBody, encode_json
from openclaw_a2a.model.states import is_active
from openclaw_a2a.model.task import (
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
)
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import Commit, Duplicate

Value = TypeVar("Value")


class Promise(Generic[Value]):
    """Set once, read by everybody. A waiter that is cancelled takes nobody along."""

    __slots__ = ("_value", "_waiters", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._value: Value | None = None
        self._waiters: list[asyncio.Future[None]] | None = None

    def set(self, value: Value) -> None:
        """Set the value, unless it is set already."""
        if self.is_set:
            return
        self.is_set, self._value = True, value
        for waiter in self._waiters or ():
            if not waiter.done():
                waiter.set_result(None)
        self._waiters = None

    async def wait(self, seconds: float | None = None) -> Value:
        """The value, when it is there. Raises: TimeoutError."""
        if not self.is_set:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters = [*(self._waiters or ()), waiter]
            if seconds is None:
                await waiter
            else:
                await asyncio.wait_for(waiter, seconds)
        return self.peek()

    def peek(self) -> Value:
        """The value, which must be set."""
        if not self.is_set:
            raise LookupError("the value is not there yet")
        return self._value  # pyright: ignore[reportReturnType] - None only when Value allows it


if TYPE_CHECKING:
    from openclaw_a2a.engine.tasks.run import ActiveRun


class DirectAnswer(msgspec.Struct, frozen=True):
    """A direct answer: the stored bytes of one agent message."""

    message: bytes


class TaskCreated(msgspec.Struct, frozen=True):
    """A task as it is first shown, and the sequence it stands at."""

    task: Task
    sequence: int


class TaskFinished(msgspec.Struct, frozen=True):
    """A task as it was when it ended or paused; with the error the caller is told instead."""

    task: bytes
    error: GatewayError | None = None


class Rejected(msgspec.Struct, frozen=True):
    """Nothing to show: an error, or the message is known from before."""

    error: GatewayError | None
    known: Duplicate | None = None


First = TaskCreated | DirectAnswer | Rejected
Outcome = TaskFinished | DirectAnswer | Rejected


class DuplicateRun:
    """A message that was answered before, in the place of its run."""

    def __init__(self, known: Duplicate, scope: Scope, message_id: MessageId) -> None:
        self.scope = scope
        self.message_id = message_id
        self._refusal = Rejected(None, known=known)
        self.first: Promise[First] = Promise()
        self.first.set(self._refusal)

    async def outcome(self) -> Outcome:
        """What is known of it."""
        return self._refusal


class ActiveTask:
    """A task with runs: its journal, its runs in order, and its end."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.runs: list[ActiveRun] = []
        self.ending: set[RunId] = set()
        """Runs whose last change is on its way: they say nothing more."""
        self.ended: Promise[TaskFinished | Rejected] = Promise()
        self.opening: Commit | None = None
        """The change of the submission that brought the task to life, until it is durable."""
        self._initial: tuple[Task, int] | None = None
        self.restarts_at: ArtifactCounters | None = None
        """After a crash: what the task had before the interrupted run."""

    @property
    def is_running(self) -> bool:
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

    def submitted(self, run: "ActiveRun") -> None:
        """The submission is durable."""
        opening, self.opening = self.opening, None
        if opening is not None:
            self.journal.committed(opening, None)
        self.show_first(run)

    def refused(self, refusal: Rejected) -> None:
        """The store did not take the submission: the task never came to be."""
        opening, self.opening = self.opening, None
        if opening is not None:
            error = refusal.error or AlreadyExists("the message was accepted before")
            self.journal.committed(opening, error)

    def show_first(self, run: "ActiveRun") -> None:
        """Tell who waits that the task exists."""
        task, sequence = self._initial or (self.journal.view.task(), self.journal.sequence)
        run.first.set(TaskCreated(task, sequence))

    def has_others(self, run: "ActiveRun") -> bool:
        """True when another run of this task has something to say yet."""
        others = [one for one in self.runs if one is not run and one.record.id not in self.ending]
        return len(others) > 0

    def numbering(self, record: RunRecord) -> ArtifactCounters:
        """Where the artifact numbers of the next run begin."""
        view = self.journal.view
        if not view.has_artifacts:
            return NO_ARTIFACTS
        if record.attempt > 1 and self.restarts_at is not None:
            return self.restarts_at
        outputs = view.artifact_count(OUTPUT_PREFIX)
        return ArtifactCounters(outputs, view.artifact_count("tool-result-"))

    def has_message(self, record: RunRecord) -> bool:
        """True when the message of the run is in the task's history."""
        return self.journal.view.has_message(record.message.message_id)

    def leave(self, run: "ActiveRun", result: TaskFinished | Rejected) -> None:
        """The run is over; the last one to leave ends the task's live time."""
        if run in self.runs:
            self.runs.remove(run)
        if not self.runs:
            self.journal.on_committed = None  # a way back to the run: garbage would pile up
            self.journal.feed.close()
            self.ended.set(result)


class StoredAnswer(StreamBody, frozen=True):
    """The stored form: a message or an error."""

    error: dict[str, Json] | None = None


def encode_answer(message: bytes) -> bytes:
    """The stored form of a direct answer, from the bytes of its message."""
    return b'{"message":' + message + b"}"


def encode_refusal(error: GatewayError) -> bytes:
    """The stored form of a run that has nothing to show."""
    details = {"code": error.code, "message": error.message, "details": error.details}
    return msgspec.json.encode({"error": details})


def decode_answer(stored: bytes) -> DirectAnswer | Rejected:
    """The first thing to show of a run that ended without a task."""
    document = msgspec.json.decode(stored, type=StoredAnswer)
    if document.message is not None:
        return DirectAnswer(encode_json(document.message))
    fault = document.error or {}
    details = fault.get("details")
    return Rejected(OutputNotAccepted(str(fault.get("message", "")), details=details))


def not_accepted(accepted: tuple[str, ...], rules: AccountRules) -> OutputNotAccepted:
    """Why an answer cannot be sent: the caller takes none of what it holds."""
    modes = list(accepted or rules.output_modes)
    return OutputNotAccepted(
        f"The answer holds nothing in an accepted output mode ({', '.join(modes)}).",
        details={"acceptedOutputModes": modes, "availableOutputModes": list(rules.output_modes)},
    )
