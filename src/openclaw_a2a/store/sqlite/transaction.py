"""Many writes in one SQLite transaction: each is checked by itself, each row is written once.

Writes on the send path change the cache and collect rows; `flush` writes the rows. A write that
reads or changes tables itself calls `flush` first, so that it sees the earlier ones.

The cache holds the live rows, so that most checks need no query. One process has the database to
itself, so nothing changes a row behind it. A failed transaction leaves it wrong: then it is thrown
away, and loaded again with the next one.
"""

import sqlite3
from collections import Counter
from typing import NamedTuple, Self

from openclaw_a2a.model.delivery import Delivery
from openclaw_a2a.model.ids import OwnerId, RunId, TaskId
from openclaw_a2a.model.records import RunRecord, TaskHead
from openclaw_a2a.model.turn import Binding
from openclaw_a2a.ports import Accepted, Commit, Duplicate, MessageKey, Record, Submission
from openclaw_a2a.store import errors
from openclaw_a2a.store.sqlite.row_codec import (
    CODE_OF,
    TERMINAL_CODES,
    encode_binding,
    encode_delivery,
    encode_input,
    encode_record,
    to_microseconds,
)

MAX_TASKS = 10_000
"""How many unfinished tasks are cached; beyond that the cache is emptied."""

_SELECT_RUNS = """
SELECT id, ticket, fence, owner, is_started, attempt, principal, account, message_id FROM run"""
_SELECT_TASK = "SELECT number, sequence, state, binding, resume FROM task WHERE id = ?"
_SELECT_LAST_TASK = "SELECT coalesce(max(number), 0) FROM task"
_SELECT_MESSAGE = """
SELECT body_hash, run, task, answer FROM message
WHERE principal = ? AND account = ? AND message_id = ?"""
_INSERT_MESSAGE = """
INSERT INTO message (principal, account, message_id, body_hash, run, task, created_at, answer)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
_ANSWER_MESSAGE = """
UPDATE message SET answer = ? WHERE principal = ? AND account = ? AND message_id = ?"""
_INSERT_RUN = """
INSERT INTO run (ticket, id, task, context, principal, account, session_key, message_id, owner,
  fence, lease_until, is_started, attempt, input, resume)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_START_RUN = "UPDATE run SET is_started = 1, attempt = ? WHERE ticket = ?"
_DELETE_RUN = "DELETE FROM run WHERE ticket = ?"
_INSERT_TASK = """
INSERT INTO task (number, id, principal, account, context, state, status_at, created_at, sequence,
  binding, resume)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_UPDATE_TASK = """
UPDATE task SET state = ?, status_at = ?, sequence = ?, binding = ?, resume = ? WHERE number = ?"""
_CLEAR_RESUME = "UPDATE task SET resume = NULL WHERE number = ?"
_INSERT_EVENT = "INSERT INTO event (task, sequence, state, body) VALUES (?, ?, ?, ?)"
_PUT_SNAPSHOT = "INSERT OR REPLACE INTO snapshot (task, sequence, body) VALUES (?, ?, ?)"
_PUT_DELIVERY = """
INSERT OR REPLACE INTO delivery (id, kind, task, body, cursor, state, attempts, next_at,
  created_at, updated_at, reason)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_ADD_RECORD = """
INSERT INTO record (kind, id, body, expires_at, version) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (kind, id) DO NOTHING"""
_COUNT = """
INSERT INTO tally (principal, account, state, count) VALUES (?, ?, ?, ?)
ON CONFLICT (principal, account, state) DO UPDATE SET count = count + excluded.count"""


class CachedRun:
    """A run that has a row, or gets one with this transaction."""

    __slots__ = ("attempt", "fence", "is_started", "message", "owner", "ticket")

    def __init__(self, ticket: int, fence: int, owner: OwnerId, message: MessageKey) -> None:
        self.ticket = ticket
        self.fence = fence
        self.owner = owner
        self.message = message
        self.is_started = False
        self.attempt = 1


class CachedTask:
    """A task that has a row, or gets one with this transaction.

    `head` is the newest one committed through the cache (None: only the row has it), `counted`
    the state under which the task is counted in the tally (None: not yet).
    """

    __slots__ = ("_binding", "_binding_column", "counted", "head", "number", "resume", "sequence")

    def __init__(self, number: int) -> None:
        self.number = number
        self.sequence = -1
        self.counted: int | None = None
        self.head: TaskHead | None = None
        self.resume: bytes | None = None
        self._binding: Binding | None = None
        self._binding_column: bytes | None = None

    @classmethod
    def load(cls, connection: sqlite3.Connection, task_id: TaskId) -> Self | None:
        """Load a task from the database."""
        row = connection.execute(_SELECT_TASK, (task_id,)).fetchone()
        if row is None:
            return None
        task = cls(row[0])
        _, task.sequence, task.counted, task._binding_column, task.resume = row
        return task

    def binding_column(self, binding: Binding | None) -> bytes | None:
        """The column value of a binding, encoded again only if it is another object."""
        if binding is not self._binding:
            self._binding, self._binding_column = binding, encode_binding(binding)
        return self._binding_column if binding is not None else None


class WriteCache:
    """All live runs, and the unfinished tasks that were changed last."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._tasks: dict[TaskId, CachedTask] = {}
        self.runs: dict[RunId, CachedRun] = {}
        self._last_task: int = connection.execute(_SELECT_LAST_TASK).fetchone()[0]
        for row in connection.execute(_SELECT_RUNS):
            run = CachedRun(row[1], row[2], row[3], (row[6], row[7], row[8]))
            run.is_started, run.attempt = bool(row[4]), row[5]
            self.runs[row[0]] = run
        self._last_ticket = max((run.ticket for run in self.runs.values()), default=0)

    def add_run(self, record: RunRecord, message: MessageKey) -> CachedRun:
        """Add a new run, with the next ticket."""
        self._last_ticket += 1
        run = CachedRun(self._last_ticket, record.fence, record.owner, message)
        run.is_started, run.attempt = record.is_started, record.attempt
        self.runs[record.id] = run
        return run

    def find_task(self, task_id: TaskId) -> CachedTask | None:
        """The task, if it is stored."""
        task = self._tasks.get(task_id)
        if task is None:
            task = CachedTask.load(self._connection, task_id)
            if task is not None:
                self._tasks[task_id] = task
        return task

    def add_task(self, task_id: TaskId) -> CachedTask:
        """Add a new task, with the next number."""
        self._last_task += 1
        task = self._tasks[task_id] = CachedTask(self._last_task)
        return task

    def drop_task(self, task_id: TaskId) -> None:
        """Remove a task from the cache."""
        self._tasks.pop(task_id, None)

    def trim(self) -> None:
        """Bound the memory. Only after a flush: everything cached must be in the database."""
        if len(self._tasks) > MAX_TASKS:
            self._tasks.clear()


class SubmitWrite(NamedTuple):
    """A submission; `may_be_duplicate` is False if its message id is certainly new."""

    submission: Submission
    key: MessageKey
    may_be_duplicate: bool


class StartRunWrite(NamedTuple):
    """The agent is about to be called."""

    run_id: RunId
    fence: int
    attempt: int


class FinishRunWrite(NamedTuple):
    """A run ended without a task."""

    run_id: RunId
    fence: int
    answer: bytes


class _MessageRow:
    """A new idempotency record."""

    __slots__ = ("answer", "submission")

    def __init__(self, submission: Submission) -> None:
        self.submission = submission
        self.answer: bytes | None = None


class WriteTransaction:
    """The writes of one group; `flush` puts their joint effect into the database."""

    def __init__(self, connection: sqlite3.Connection, cache: WriteCache) -> None:
        self.connection = connection
        self.cache = cache
        self.tally: Counter[tuple[str, str, int]] = Counter()
        self._messages: dict[MessageKey, _MessageRow] = {}
        self._answers: list[tuple[bytes, str, str, str]] = []
        self._new_runs: dict[RunId, tuple[RunRecord, CachedRun]] = {}
        self._started: dict[RunId, CachedRun] = {}
        self._ended: list[tuple[int]] = []
        self._tasks: dict[TaskId, CachedTask] = {}
        self._events: list[tuple[int, int, int | None, bytes]] = []
        self._snapshots: dict[int, tuple[int, int, bytes]] = {}

    def submit(self, write: SubmitWrite) -> Accepted | Duplicate:
        """Store an incoming message once."""
        submission, key, may_be_duplicate = write
        run, change = submission.run, submission.commit
        if may_be_duplicate and (known := self._find_duplicate(key, submission)) is not None:
            return known
        if change is not None:
            task = self._check(change, new_run=run.id)
        else:
            task = self.cache.find_task(run.task_id)
        # The last check, because it writes: what is refused must leave nothing behind.
        if submission.record is not None and not self.add_record(submission.record):
            raise errors.record_exists(submission.record.kind, submission.record.id)
        cached = self.cache.add_run(run, key)
        self._new_runs[run.id] = run, cached
        self._messages[key] = _MessageRow(submission)
        if task is not None and task.resume is not None:
            task.resume = None
            self.connection.execute(_CLEAR_RESUME, (task.number,))
        if change is not None:
            self._apply(change, task)
        if submission.delivery is not None:
            self.put_delivery(submission.delivery)
        return Accepted(cached.ticket)

    def commit(self, change: Commit) -> None:
        """Change a task."""
        self._apply(change, self._check(change))

    def start_run(self, start: StartRunWrite) -> None:
        """Record that the agent is about to be called."""
        run = self._check_fence(start.run_id, start.fence)
        run.is_started, run.attempt = True, start.attempt
        if start.run_id not in self._new_runs:
            self._started[start.run_id] = run

    def finish_run(self, finish: FinishRunWrite) -> None:
        """End a run that made no task; its answer goes into the idempotency record."""
        message = self._check_fence(finish.run_id, finish.fence).message
        self._end_run(finish.run_id)
        if (row := self._messages.get(message)) is not None:
            row.answer = finish.answer
        else:
            self._answers.append((finish.answer, *message))

    def put_delivery(self, delivery: Delivery) -> None:
        """Store a delivery, replacing one with the same id."""
        self.connection.execute(_PUT_DELIVERY, encode_delivery(delivery))

    def add_record(self, record: Record) -> bool:
        """Store a new record; False if there is one."""
        return self.connection.execute(_ADD_RECORD, encode_record(record)).rowcount > 0

    def flush(self) -> None:
        """Write everything collected so far; the transaction stays open."""
        self._flush_tasks()
        self._flush_runs()
        self._flush_messages()
        if self.tally:
            rows = [(*key, count) for key, count in self.tally.items() if count]
            self.connection.executemany(_COUNT, rows)
            self.tally.clear()
        self.cache.trim()

    def _find_duplicate(self, key: MessageKey, submission: Submission) -> Duplicate | None:
        if (row := self._messages.get(key)) is not None:
            run = row.submission.run
            body_hash, known = row.submission.body_hash, Duplicate(run.id, run.task_id, row.answer)
        else:
            found = self.connection.execute(_SELECT_MESSAGE, key).fetchone()
            if found is None:
                return None
            body_hash, known = found[0], Duplicate(found[1], found[2], found[3])
        if body_hash != submission.body_hash:
            raise errors.message_id_conflict(submission.run.message.message_id)
        return known

    def _check(self, change: Commit, *, new_run: RunId | None = None) -> CachedTask | None:
        """The task to change, if it is as expected (None: to be created).

        `new_run` is the run that is created together with the change.
        """
        if change.run_id is not None and change.run_id != new_run:
            self._check_fence(change.run_id, change.fence)
        task = self.cache.find_task(change.head.id)
        sequence = -1 if task is None else task.sequence
        if sequence != change.after:
            raise errors.task_conflict(change.head.id, found=sequence, expected=change.after)
        return task

    def _check_fence(self, run_id: RunId, fence: int) -> CachedRun:
        run = self.cache.runs.get(run_id)
        if run is None or run.fence != fence:
            raise errors.run_lost(run_id, found=None if run is None else run.fence, fence=fence)
        return run

    def _apply(self, change: Commit, task: CachedTask | None) -> None:
        head = change.head
        if task is None:
            task = self.cache.add_task(head.id)
        task.head, task.sequence = head, head.sequence
        number = task.number
        self._tasks[head.id] = task
        for entry in change.entries:
            self._events.append((number, entry.sequence, CODE_OF[entry.state], entry.body))
        if change.snapshot is not None:
            self._snapshots[number] = (number, head.sequence, change.snapshot)
        if change.ends_run:
            task.resume = change.resume
            if change.run_id is not None:
                self._end_run(change.run_id)

    def _end_run(self, run_id: RunId) -> None:
        run = self.cache.runs.pop(run_id)
        if self._new_runs.pop(run_id, None) is None:
            self._started.pop(run_id, None)
            self._ended.append((run.ticket,))

    def _flush_tasks(self) -> None:
        if not self._tasks:
            return
        inserts: list[tuple[object, ...]] = []
        updates: list[tuple[object, ...]] = []
        for task_id, task in self._tasks.items():
            self._add_row(task, inserts, updates)
            if task.counted in TERMINAL_CODES:
                self.cache.drop_task(task_id)
        if inserts:
            self.connection.executemany(_INSERT_TASK, inserts)
        if updates:
            self.connection.executemany(_UPDATE_TASK, updates)
        if self._events:
            self.connection.executemany(_INSERT_EVENT, self._events)
        if self._snapshots:
            self.connection.executemany(_PUT_SNAPSHOT, self._snapshots.values())
        self._tasks.clear()
        self._events.clear()
        self._snapshots.clear()

    def _add_row(
        self,
        task: CachedTask,
        inserts: list[tuple[object, ...]],
        updates: list[tuple[object, ...]],
    ) -> None:
        head = task.head
        assert head is not None  # noqa: S101 - only tasks that were given a head are flushed
        scope, state = head.scope, CODE_OF[head.state] or 0
        binding = task.binding_column(head.binding)
        status_at = to_microseconds(head.status_at)
        if task.counted is None:
            created_at = to_microseconds(head.created_at)
            names = (task.number, head.id, scope.principal, scope.account, head.context_id)
            inserts.append(
                (*names, state, status_at, created_at, head.sequence, binding, task.resume)
            )
        else:
            updates.append((state, status_at, head.sequence, binding, task.resume, task.number))
            self.tally[scope.principal, scope.account, task.counted] -= 1
        self.tally[scope.principal, scope.account, state] += 1
        task.counted = state

    def _flush_runs(self) -> None:
        if self._new_runs:
            self.connection.executemany(_INSERT_RUN, map(_run_row, self._new_runs.values()))
            self._new_runs.clear()
        if self._started:
            rows = [(run.attempt, run.ticket) for run in self._started.values()]
            self.connection.executemany(_START_RUN, rows)
            self._started.clear()
        if self._ended:
            self.connection.executemany(_DELETE_RUN, self._ended)
            self._ended.clear()

    def _flush_messages(self) -> None:
        if self._messages:
            rows = [_message_row(*item) for item in self._messages.items()]
            self.connection.executemany(_INSERT_MESSAGE, rows)
            self._messages.clear()
        if self._answers:
            self.connection.executemany(_ANSWER_MESSAGE, self._answers)
            self._answers.clear()


def _run_row(pair: tuple[RunRecord, CachedRun]) -> tuple[object, ...]:
    record, run = pair
    return (
        run.ticket,
        record.id,
        record.task_id,
        record.context_id,
        record.scope.principal,
        record.scope.account,
        record.session_key,
        record.message.message_id,
        run.owner,
        run.fence,
        to_microseconds(record.lease_until),
        run.is_started,
        run.attempt,
        encode_input(record),
        record.resume,
    )


def _message_row(key: MessageKey, row: _MessageRow) -> tuple[object, ...]:
    submission = row.submission
    run = submission.run
    created_at = to_microseconds(submission.created_at)
    return (*key, submission.body_hash, run.id, run.task_id, created_at, row.answer)
