"""Many writes in one SQLite transaction: each is checked by itself, each row is written once.

Writes on the send path change the cache and collect rows; `flush` writes the rows. A write that
reads or changes tables itself calls `flush` first, so that it sees the earlier ones.

The cache holds the live rows, so that most checks need no query. One process has the database to
itself, so nothing changes a row behind it. A failed transaction leaves it wrong: then it is thrown
away, and loaded again with the next one.

The first part of the module converts times, runs, deliveries and records to column values and
back; the cache and `WriteTransaction` follow.
"""

import sqlite3
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from openclaw_a2a.model.delivery import Delivery
from openclaw_a2a.model.ids import RunId, TaskId
from openclaw_a2a.model.records import RunRecord, TaskHead, encode_json
from openclaw_a2a.model.turn import Binding, Scope
from openclaw_a2a.ports import (
    Accepted,
    Commit,
    Duplicate,
    MessageKey,
    Record,
    Submission,
)
from openclaw_a2a.store import rules
from openclaw_a2a.store.columns import (
    CODE_OF,
    DELIVERY_CODE_OF,
    DELIVERY_STATE_OF,
    TERMINAL_CODES,
    RunInput,
)
from openclaw_a2a.store.commands import ChangeTask, FinishRun, StartRun, Submit
from openclaw_a2a.store.contents import LARGE_BYTES
from openclaw_a2a.store.sqlite.contents import refer, spill

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_microseconds(time: datetime) -> int:
    """The column value of a time."""
    # Written out in the encoders of rows below: a call for each time of each row costs too much.
    return (time - _EPOCH) // _MICROSECOND


def from_microseconds(count: int) -> datetime:
    """The time of a column value."""
    # In two parts, which is faster: one large number is split by slow arithmetic.
    return _EPOCH + timedelta(0, count // 1_000_000, count % 1_000_000)


# The time of the lease is of earlier versions: runs belong to their owner as long as it lives.
_NO_LEASE = 0


def encode_run(run: RunRecord) -> tuple[Any, ...]:
    """The row of a run."""
    content = encode_json(RunInput(run.message, run.binding, run.options))
    names = (run.ticket, run.id, run.task_id, run.context_id, run.scope.principal)
    session = (run.scope.account, run.session_key, run.message.message_id)
    state = (run.owner, run.fence, run.is_started, run.attempt)
    return (*names, *session, *state, content, run.resume, _NO_LEASE)


def encode_delivery(delivery: Delivery) -> tuple[object, ...]:
    """The row of a delivery: its fields in their order.

    Fields 5 to 7 are `next_at`, `created_at` and `updated_at`, field 8 is `state`.
    """
    row = list(msgspec.structs.astuple(delivery))
    times = [(time - _EPOCH) // _MICROSECOND for time in row[5:8]]
    row[5:9] = *times, DELIVERY_CODE_OF[delivery.state]
    return tuple(row)


def decode_delivery(row: tuple[Any, ...]) -> Delivery:
    """The delivery of a row."""
    fields = list(row)
    fields[5:9] = *map(from_microseconds, row[5:8]), DELIVERY_STATE_OF[row[8]]
    return Delivery(*fields)


def encode_record(record: Record) -> tuple[object, ...]:
    """The row of a record."""
    until = (record.expires_at - _EPOCH) // _MICROSECOND
    return record.kind, record.id, record.body, until, record.version


def decode_record(row: tuple[Any, ...]) -> Record:
    """The record of a row."""
    return Record(row[0], row[1], row[2], from_microseconds(row[3]), row[4])


MAX_TASKS = 10_000
"""How many unfinished tasks are cached; beyond that the cache is emptied."""

MAX_ENDED_BYTES = 4 * 1024 * 1024
"""How much memory ended tasks may take that are kept for their readers."""

_ENTRY_BYTES = 500
"""About what an entry takes beside the snapshot."""
_FILTER_BITS = 24
_FILTER_MASK = (1 << _FILTER_BITS) - 1

_SELECT_RUNS = "SELECT id, ticket, fence, principal, account, message_id FROM run"
_SELECT_TASK = "SELECT number, sequence, state, resume FROM task WHERE id = ?"
_SELECT_LAST_TASK = "SELECT coalesce(max(number), 0) FROM task"
_SELECT_MESSAGE = """
SELECT body_hash, run, task, answer FROM message
WHERE principal = ? AND account = ? AND message_id = ?"""
_INSERT_MESSAGE = """
INSERT INTO message (principal, account, message_id, body_hash, run, task, created_at, answer)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
_ANSWER_MESSAGE = """
UPDATE message SET answer = ?
WHERE principal = ? AND account = ? AND message_id = ? AND run = ?"""
_INSERT_RUN = """
INSERT INTO run (ticket, id, task, context, principal, account, session_key, message_id, owner,
  fence, is_started, attempt, input, resume, lease_until)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_START_RUN = "UPDATE run SET is_started = 1, attempt = ? WHERE ticket = ?"
_DELETE_RUN = "DELETE FROM run WHERE ticket = ?"
_INSERT_TASK = """
INSERT INTO task (number, id, principal, account, context, state, status_at, created_at, sequence,
  binding, resume)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_UPDATE_TASK = """
UPDATE task SET state = ?, status_at = ?, sequence = ?, binding = coalesce(?, binding), resume = ?
WHERE number = ?"""
_CLEAR_RESUME = "UPDATE task SET resume = NULL WHERE number = ?"
_INSERT_EVENT = "INSERT INTO event (task, sequence, state, body) VALUES (?, ?, ?, ?)"
_PUT_SNAPSHOT = "INSERT OR REPLACE INTO snapshot (task, sequence, body) VALUES (?, ?, ?)"
_PUT_DELIVERY = """
INSERT OR REPLACE INTO delivery (id, kind, task, body, cursor, next_at, created_at, updated_at,
  state, attempts, reason)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_ADD_RECORD = """
INSERT INTO record (kind, id, body, expires_at, version) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (kind, id) DO NOTHING"""
_COUNT = """
INSERT INTO tally (principal, account, state, count) VALUES (?, ?, ?, ?)
ON CONFLICT (principal, account, state) DO UPDATE SET count = count + excluded.count"""


class BloomFilter:
    """A set of message keys that saves a query for every new message.

    "Not in it" is certain, "in it" must be looked up. Two bits per key in two megabytes: with a
    million messages about one new message in eighty is looked up in vain. It lives as long as the
    store is open, so Python's own hash will do.

    Only the writer thread adds keys. The event loop reads without a lock and may miss a key that is
    being added. That is harmless: the message is not committed yet, and `WriteTransaction.submit`
    checks again in the writer thread.
    """

    def __init__(self, keys: Iterable[MessageKey] = ()) -> None:
        # Keys are never removed: the key of a purged message costs a query in vain, not an error.
        self._bits = bits = bytearray(1 << (_FILTER_BITS - 3))
        # As `add` does it, without a call for each: a start waits for this.
        for key in keys:
            code = hash(key)
            first, second = code & _FILTER_MASK, code >> _FILTER_BITS & _FILTER_MASK
            bits[first >> 3] |= 1 << (first & 7)
            bits[second >> 3] |= 1 << (second & 7)

    def add(self, key: MessageKey) -> bool:
        """Add a key; False if it was certainly never added before."""
        code, bits = hash(key), self._bits
        first, second = code & _FILTER_MASK, code >> _FILTER_BITS & _FILTER_MASK
        first_bit, second_bit = 1 << (first & 7), 1 << (second & 7)
        is_known = bool(bits[first >> 3] & first_bit and bits[second >> 3] & second_bit)
        bits[first >> 3] |= first_bit
        bits[second >> 3] |= second_bit
        return is_known

    def may_contain(self, key: MessageKey) -> bool:
        """False if the key was certainly never added."""
        code, bits = hash(key), self._bits
        first, second = code & _FILTER_MASK, code >> _FILTER_BITS & _FILTER_MASK
        return bool(bits[first >> 3] & 1 << (first & 7) and bits[second >> 3] & 1 << (second & 7))


class EndedTasks:
    """The snapshots of the tasks that ended last: a client that reads its answer needs no query.

    The writer thread adds a task after the commit of its end, and removes it before a later change
    (a late reply of its agent) or its deletion is committed. The event loop reads without a lock:
    `get` with a text as key is one step under the interpreter lock.
    """

    def __init__(self) -> None:
        # The first key of a plain dict takes time in proportion to the keys deleted before it.
        self._entries: OrderedDict[TaskId, tuple[Scope, bytes]] = OrderedDict()
        self.ids = self._entries.keys()
        """The ids of the tasks: a view, not a copy."""
        self._bytes = 0

    def find(self, scope: Scope, task_id: TaskId) -> bytes | None:
        """The snapshot of a task in this scope, if it is here."""
        scope_of, body = self._entries.get(task_id, (None, None))
        return body if scope_of == scope else None

    def add(self, tasks: Mapping[TaskId, tuple[Scope, bytes]]) -> None:
        """Add tasks whose end is committed; the oldest ones make room."""
        for task_id, entry in tasks.items():
            if task_id in self._entries:
                self.remove(task_id)
            self._entries[task_id] = entry
            self._bytes += _ENTRY_BYTES + len(entry[1])
        while self._bytes > MAX_ENDED_BYTES:
            _, (_, body) = self._entries.popitem(last=False)
            self._bytes -= _ENTRY_BYTES + len(body)

    def remove(self, task_id: TaskId) -> None:
        """Remove a task, if it is here."""
        entry = self._entries.pop(task_id, None)
        if entry is not None:
            self._bytes -= _ENTRY_BYTES + len(entry[1])


class CachedRun(msgspec.Struct, gc=False):
    """A run that has a row, or gets one with this transaction."""

    ticket: int
    fence: int
    message: MessageKey


# The first four fields are the columns of `_SELECT_TASK`, in its order.
class CachedTask(msgspec.Struct):
    """A task that has a row, or gets one with this transaction.

    `head` is the newest one committed through the cache (None: only the row has it), `counted`
    the state under which the task is counted in the tally (None: not yet).
    """

    number: int
    sequence: int = -1
    counted: int | None = None
    resume: bytes | None = None
    binding: Binding | None = None
    head: TaskHead | None = None


class WriteCache:
    """All live runs, and the unfinished tasks that were changed last."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.tasks: dict[TaskId, CachedTask] = {}
        self.last_task: int = connection.execute(_SELECT_LAST_TASK).fetchone()[0]
        self.runs: dict[RunId, CachedRun] = {
            row[0]: CachedRun(row[1], row[2], row[3:]) for row in connection.execute(_SELECT_RUNS)
        }
        # Tickets order the live runs only, so those of ended runs may be given again after a
        # restart.
        self.last_ticket = max((run.ticket for run in self.runs.values()), default=0)

    def find_task(self, task_id: TaskId) -> CachedTask | None:
        """The task, if it is stored."""
        task = self.tasks.get(task_id)
        if task is None:
            row = self._connection.execute(_SELECT_TASK, (task_id,)).fetchone()
            if row is not None:
                task = self.tasks[task_id] = CachedTask(*row)
        return task


class WriteTransaction:
    """The writes of one group; `flush` puts their joint effect into the database.

    Rows that several writes of the group touch are collected by key and written once. After `flush`
    it is as new, for the next group.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        cache: WriteCache,
        known_messages: BloomFilter,
        ended_tasks: EndedTasks,
    ) -> None:
        self.connection = connection
        self.cache = cache
        self._ended_tasks = ended_tasks
        self._ending: dict[TaskId, tuple[Scope, bytes]] = {}
        self.is_careful = False
        """True when ids that are said to be new are looked for."""
        self._known_messages = known_messages
        self._clear()

    def _clear(self) -> None:
        self.tally: dict[tuple[str, str, int], int] = defaultdict(int)
        self._messages: dict[MessageKey, tuple[Submission, bytes | None]] = {}  # with the answer
        self._answers: list[tuple[bytes, str, str, str, RunId]] = []
        self._new_runs: dict[RunId, RunRecord] = {}
        self._started: dict[RunId, tuple[int, int]] = {}
        self._ended: list[tuple[int]] = []
        self._tasks: dict[TaskId, CachedTask] = {}
        self._events: list[tuple[int, int, int | None, bytes]] = []
        self._snapshots: dict[int, tuple[int, int, bytes]] = {}
        self._is_large = False

    def submit(self, command: Submit) -> Accepted | Duplicate:
        submission = command.submission
        run, change, record = submission.run, submission.commit, submission.record
        key = (run.scope.principal, run.scope.account, run.message.message_id)
        # Added before it is stored: a second submission in the same group must look it up.
        # If the submission is refused below, the key stays: one lookup in vain.
        if submission.is_deduplicated and self._known_messages.add(key):
            duplicate = self._find_duplicate(key, submission)
            if duplicate is not None:
                return duplicate
        if change is not None:
            task = self._check(change, new_run=run.id)
        else:
            task = self.cache.find_task(run.task_id)
        # The last check, because it writes: what is refused must leave nothing behind.
        if record is not None and not self.add_record(record):
            raise rules.record_exists(record)
        self.cache.last_ticket = ticket = self.cache.last_ticket + 1
        if change is None or not change.ends_run:  # else it is over, and never gets a row
            self.cache.runs[run.id] = CachedRun(ticket, run.fence, key)
            self._new_runs[run.id] = msgspec.structs.replace(run, ticket=ticket)
        if submission.is_deduplicated:
            self._messages[key] = submission, None
        # The new run holds the resume token (`run.resume`), so the task must not give it to another
        # one. Written directly: `flush` writes the task's row only for a submission with a change.
        if task is not None and task.resume is not None:
            task.resume = None
            self.connection.execute(_CLEAR_RESUME, (task.number,))
        if change is not None:
            self._apply(change, task)
        if submission.delivery is not None:
            self.put_delivery(submission.delivery)
        return Accepted(ticket)

    def change_task(self, command: ChangeTask) -> None:
        self._apply(command.change, self._check(command.change))

    def start_run(self, command: StartRun) -> None:
        run_id, attempt = command.run_id, command.attempt
        ticket = rules.check_fence(self.cache.runs, run_id, command.fence).ticket
        # A run that was submitted in this group has no row to update: its insert carries the start.
        if (new := self._new_runs.get(run_id)) is None:
            self._started[run_id] = attempt, ticket
        else:
            self._new_runs[run_id] = msgspec.structs.replace(new, is_started=True, attempt=attempt)

    def finish_run(self, command: FinishRun) -> None:
        message = rules.check_fence(self.cache.runs, command.run_id, command.fence).message
        self._end_run(command.run_id)
        # Likewise: a message of this group has no row yet, so the answer goes into its insert.
        # A message that is not deduplicated has none at all, and leaves that of another run alone.
        row = self._messages.get(message)
        if row is not None and row[0].run.id == command.run_id:
            self._messages[message] = row[0], command.answer
        else:
            self._answers.append((command.answer, *message, command.run_id))

    def put_delivery(self, delivery: Delivery) -> None:
        """Store a delivery, replacing one with the same id."""
        # Written at once, not collected: other delivery writes of the group query the table.
        self.connection.execute(_PUT_DELIVERY, encode_delivery(delivery))

    def add_record(self, record: Record) -> bool:
        """Store a new record; False if there is one."""
        return self.connection.execute(_ADD_RECORD, encode_record(record)).rowcount > 0

    def flush(self) -> None:
        """Write everything collected so far; the transaction stays open."""
        inserts: list[tuple[object, ...]] = []
        updates: list[tuple[object, ...]] = []
        for task_id, task in self._tasks.items():
            self._add_row(task, inserts, updates)
            # A finished task hardly changes any more and needs no cache.
            # `_tasks` still holds it until the rows below are written.
            if task.counted in TERMINAL_CODES:
                self.cache.tasks.pop(task_id, None)
                if task_id in self._ending or task_id in self._ended_tasks.ids:
                    # A late reply was added to a task that had ended before.
                    self.forget_task(task_id)
                _, sequence, body = self._snapshots.get(task.number, (0, -1, b""))
                is_small = len(body) < LARGE_BYTES
                if task.head is not None and sequence == task.sequence and is_small:
                    self._ending[task_id] = task.head.scope, body
        events, snapshots = self._events, self._snapshots.values()
        runs = [encode_run(run) for run in self._new_runs.values()]
        if self._is_large:
            events, snapshots = spill(self.connection, events, snapshots)
            # Runs after the snapshots, which hold the messages of the runs.
            runs = [self._refer_run(row) for row in runs]
        messages = [
            (
                *key,
                one.body_hash,
                one.run.id,
                one.run.task_id,
                (one.created_at - _EPOCH) // _MICROSECOND,
                answer,
            )
            for key, (one, answer) in self._messages.items()
        ]
        # One statement for all its rows: most of the cost of a row is the call.
        for statement, rows in (
            (_INSERT_TASK, inserts),
            (_UPDATE_TASK, updates),
            (_INSERT_EVENT, events),
            (_PUT_SNAPSHOT, snapshots),
            (_INSERT_RUN, runs),
            (_START_RUN, self._started.values()),
            (_DELETE_RUN, self._ended),
            (_INSERT_MESSAGE, messages),
            (_ANSWER_MESSAGE, self._answers),
            (_COUNT, [(*key, count) for key, count in self.tally.items() if count]),
        ):
            if rows:
                self.connection.executemany(statement, rows)
        self._clear()
        if len(self.cache.tasks) > MAX_TASKS:
            # Only after the rows are written: until then the cache is the only place that has them.
            self.cache.tasks.clear()

    def on_committed(self) -> None:
        """The transaction is committed: its ended tasks may be read."""
        # Not earlier: what a crash could take back is not shown.
        if self._ending:
            self._ended_tasks.add(self._ending)
            self._ending.clear()

    def forget_task(self, task_id: TaskId) -> None:
        """Drop what is cached of a task that is deleted, or was ended and changes all the same."""
        self.cache.tasks.pop(task_id, None)
        self._ending.pop(task_id, None)
        self._ended_tasks.remove(task_id)

    def _refer_run(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        task = self._tasks.get(row[2])
        if task is None:
            return row
        *names, content, resume, lease = row
        return (*names, refer(self.connection, task.number, content), resume, lease)

    def _find_duplicate(self, key: MessageKey, submission: Submission) -> Duplicate | None:
        # The earlier submission may be in this very group and have no row yet.
        if (row := self._messages.get(key)) is not None:
            run, body_hash = row[0].run, row[0].body_hash
            known = Duplicate(run.id, run.task_id, row[1])
        else:
            found = self.connection.execute(_SELECT_MESSAGE, key).fetchone()
            if found is None:
                return None
            body_hash, known = found[0], Duplicate(*found[1:])
        rules.check_same_body(body_hash, submission.body_hash, submission.run.message.message_id)
        return known

    def _check(self, change: Commit, *, new_run: RunId | None = None) -> CachedTask | None:
        """The task to change, if it is as expected (None: to be created).

        `new_run` is the run that is created together with the change.
        """
        # The run of a submission is not in the cache yet; it has no fence that could be stale.
        if change.run_id is not None and change.run_id != new_run:
            rules.check_fence(self.cache.runs, change.run_id, change.fence)
        task = self.cache.tasks.get(change.head.id)
        # A new id is not looked for: the table refuses one that is there, and then it is.
        if task is None and (change.after >= 0 or self.is_careful):
            task = self.cache.find_task(change.head.id)
        sequence = -1 if task is None else task.sequence
        if sequence != change.after:
            rules.check_sequence(change, sequence)
        return task

    def _apply(self, change: Commit, task: CachedTask | None) -> None:
        head = change.head
        if task is None:
            self.cache.last_task = number = self.cache.last_task + 1
            task = self.cache.tasks[head.id] = CachedTask(number)
        task.head, task.sequence = head, head.sequence
        number = task.number
        self._tasks[head.id] = task
        for entry in change.entries:
            self._events.append((number, entry.sequence, CODE_OF[entry.state], entry.body))
            self._is_large = self._is_large or len(entry.body) >= LARGE_BYTES
        if change.snapshot is not None:
            self._snapshots[number] = (number, head.sequence, change.snapshot)
            self._is_large = self._is_large or len(change.snapshot) >= LARGE_BYTES
        if change.ends_run:
            task.resume = change.resume
            if change.run_id is not None and change.run_id in self.cache.runs:
                self._end_run(change.run_id)

    def _end_run(self, run_id: RunId) -> None:
        run = self.cache.runs.pop(run_id, None)
        # A run that began and ended within the group never gets a row.
        if run is not None and self._new_runs.pop(run_id, None) is None:
            # The row is deleted by this flush, so an update that waits for it is pointless.
            self._started.pop(run_id, None)
            self._ended.append((run.ticket,))

    def _add_row(
        self,
        task: CachedTask,
        inserts: list[tuple[object, ...]],
        updates: list[tuple[object, ...]],
    ) -> None:
        head = task.head
        assert head is not None  # noqa: S101 - only tasks that were given a head are flushed
        scope, state = head.scope, CODE_OF[head.state] or 0
        binding = None  # the row keeps what it has
        if head.binding is not None and head.binding is not task.binding:
            task.binding, binding = head.binding, encode_json(head.binding)
        status_at = (head.status_at - _EPOCH) // _MICROSECOND
        if task.counted is None:
            created_at = (head.created_at - _EPOCH) // _MICROSECOND
            names = (task.number, head.id, scope.principal, scope.account, head.context_id)
            inserts.append(
                (*names, state, status_at, created_at, head.sequence, binding, task.resume)
            )
        else:
            # The tally moves with the state in the same transaction, so it is always exact.
            updates.append((state, status_at, head.sequence, binding, task.resume, task.number))
            self.tally[scope.principal, scope.account, task.counted] -= 1
        self.tally[scope.principal, scope.account, state] += 1
        task.counted = state
