"""The joint effect of a group of commands, decided before the database is asked.

Every command says what it expects of the stored rows: a task at a sequence, a run with a fence, a
message id that is new. A batch first assumes that all of them are right and works out the rows to
write; `statement.py` turns it into one SQL statement that locks the rows, checks every assumption
and writes, or writes nothing. So the usual group costs one round trip, whatever its size.

When an assumption was wrong, the same commands are decided again over `StoredRows`: the rows that
they name, read and locked in a transaction. There a command that does not fit is refused by the
rules that all kinds of store share, and the others of its group go on.

Later commands of a group see the earlier ones, in both cases.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from openclaw_a2a.model.delivery import Delivery, DeliveryId
from openclaw_a2a.model.ids import OwnerId, RunId, TaskId
from openclaw_a2a.model.message import Message
from openclaw_a2a.model.records import Entry, RunRecord, TaskHead
from openclaw_a2a.ports import (
    Commit,
    Duplicate,
    LogAppend,
    MessageKey,
    Record,
    Submission,
)
from openclaw_a2a.store import commands, rules
from openclaw_a2a.store.contents import LARGE_BYTES, replace_large_strings

ANY = -2
"""Instead of a stored version: whatever is stored is replaced."""
PRESENT = -3
"""Instead of a stored version: there must be a row, in any version."""
ABSENT = -1
"""Instead of a stored version: there must be no row."""

MAX_BYTES = 8 * 1024 * 1024
"""A batch that holds so much takes no further command. It is in memory several times while it is
sent: as rows, as parameters, and in the server, which takes no statement of a gigabyte."""

RecordKey = tuple[str, str]
LogKey = tuple[str, str]


class AppendLog(commands.Command, frozen=True, tag="append-log"):
    """`LogStore.append_log`."""

    change: LogAppend


class DeleteLog(commands.Command, frozen=True, tag="delete-log"):
    """`LogStore.delete_log`."""

    kind: str
    log_id: str


class NeedsRows(Exception):
    """The command can be decided only over the stored rows."""


class BatchEnds(Exception):
    """The command does not fit behind the others; it begins the next batch."""


class PendingTicket(msgspec.Struct, frozen=True):
    """Stands for `Accepted` until the statement has given out the tickets."""

    index: int


class StoredMessage(msgspec.Struct, frozen=True):
    """An idempotency record."""

    body_hash: bytes
    run_id: RunId
    task_id: TaskId
    answer: bytes | None


class StoredRows(msgspec.Struct):
    """The stored rows that a group names, locked by its transaction; what is not here is absent.

    Tasks by their sequence, runs by their fence, records by their version, logs by their sequence.
    """

    tasks: dict[str, int] = {}
    runs: dict[str, int] = {}
    messages: dict[MessageKey, StoredMessage] = {}
    deliveries: dict[str, tuple[str, str, bytes]] = {}  # kind, task, body
    records: dict[RecordKey, int] = {}
    logs: dict[LogKey, int] = {}


class TaskChange(msgspec.Struct):
    """A task that is created or changed; `found` is the sequence that it must have (or ABSENT)."""

    found: int
    sequence: int
    head: TaskHead | None = None
    sets_resume: bool = False
    resume: bytes | None = None
    snapshot: tuple[int, bytes] | None = None


class RunChange(msgspec.Struct):
    """A run; `found` is the fence that it must have. `new` is a run that this batch adds."""

    found: int | None
    fence: int
    new: RunRecord | None = None
    attempt: int | None = None
    is_ended: bool = False


class DeliveryChange(msgspec.Struct):
    """A delivery; with `body` it must have that one. `is_put`: it may be new.

    `owner` is the replica that sends it; None: the one that writes.
    """

    found: int
    row: Delivery | None
    body: bytes | None = None
    is_put: bool = False
    owner: OwnerId | None = None


class RecordChange(msgspec.Struct):
    """A record; `is_put`: it goes to the end of its list."""

    found: int
    row: Record | None
    is_put: bool = False


class LogChange(msgspec.Struct):
    """A log; `found` is the sequence that it must have (0: there must be none)."""

    found: int
    sequence: int
    lines: list[tuple[int, bytes]]
    closes: bool = False
    reopens: bool = False
    is_deleted: bool = False


class Batch:
    """Applies commands in memory, in order; its attributes are then the rows to write."""

    def __init__(self, stored: StoredRows | None = None) -> None:
        self._stored = stored
        self.size = 0  # bytes of content, roughly
        self.tasks: dict[TaskId, TaskChange] = {}
        self.runs: dict[RunId, RunChange] = {}
        self.accepted: list[RunId] = []  # in order of arrival: they get the tickets
        self.new_messages: dict[MessageKey, tuple[Submission, bytes | None]] = {}  # with the answer
        self.answers: dict[RunId, bytes] = {}  # of runs whose message is stored
        self.cleared: set[TaskId] = set()  # tasks that lose their resume token, if they exist
        self.events: list[tuple[TaskId, Entry]] = []
        self.contents: dict[tuple[TaskId, bytes], bytes] = {}
        self.deliveries: dict[DeliveryId, DeliveryChange] = {}
        self.records: dict[RecordKey, RecordChange] = {}  # in the order of puts
        self.logs: dict[LogKey, LogChange] = {}

    def add(self, command: commands.Command) -> object:
        """Decide a command; its result once the batch is committed.

        Raises: the errors of the port (nothing of the command is written), NeedsRows, BatchEnds.
        """
        if self.size >= MAX_BYTES:
            raise BatchEnds
        return _HANDLERS[type(command)](self, command)

    # ---------------------------------------------------------------- messages and runs

    def submit(self, command: commands.Submit) -> object:
        submission = command.submission
        run, change, record = submission.run, submission.commit, submission.record
        key = rules.message_key(run)
        if submission.is_deduplicated:
            duplicate = self._find_duplicate(key, submission)
            if duplicate is not None:
                return duplicate
        if change is not None:
            self._check(change, new_run=run.id)
        # The last check: what is refused must leave nothing behind.
        if record is not None and not self._replace_record(record, expected=ABSENT):
            raise rules.record_exists(record)
        self.runs[run.id] = RunChange(None, run.fence, new=run)
        self.accepted.append(run.id)
        self.size += _size_of(run.message)
        if submission.is_deduplicated:
            self.new_messages[key] = submission, None
        # The new run holds the resume token, so the task must not give it to another one.
        self._clear_resume(run.task_id)
        if change is not None:
            self._apply(change)
        if submission.delivery is not None:
            self._put_delivery(submission.delivery, submission.delivery_owner)
        return PendingTicket(len(self.accepted) - 1)

    def _find_duplicate(self, key: MessageKey, submission: Submission) -> Duplicate | None:
        message_id = submission.run.message.message_id
        if (row := self.new_messages.get(key)) is not None:
            first, answer = row
            rules.check_same_body(first.body_hash, submission.body_hash, message_id)
            return Duplicate(first.run.id, first.run.task_id, answer)
        # Optimistic: without the stored rows the message is assumed to be new, and the SQL
        # statement verifies it.
        stored = None if self._stored is None else self._stored.messages.get(key)
        if stored is None:
            return None
        rules.check_same_body(stored.body_hash, submission.body_hash, message_id)
        answer = self.answers.get(stored.run_id, stored.answer)
        return Duplicate(stored.run_id, stored.task_id, answer)

    def start_run(self, command: commands.StartRun) -> None:
        self._check_fence(command.run_id, command.fence).attempt = command.attempt

    def finish_run(self, command: commands.FinishRun) -> None:
        run = self._check_fence(command.run_id, command.fence)
        run.is_ended = True
        self.size += len(command.answer)
        # A message of this batch has no row yet, so the answer goes into its insert. A message that
        # is not deduplicated has none at all, and leaves that of another run alone.
        if run.new is None:
            self.answers[command.run_id] = command.answer
            return
        key = rules.message_key(run.new)
        row = self.new_messages.get(key)
        if row is not None and row[0].run.id == command.run_id:
            self.new_messages[key] = row[0], command.answer

    def _check_fence(self, run_id: RunId, fence: int) -> RunChange:
        run = self.runs.get(run_id)
        if run is None:
            found = fence if self._stored is None else self._stored.runs.get(run_id)
            if found is not None:
                run = self.runs[run_id] = RunChange(found, found)
        live = {} if run is None or run.is_ended else {run_id: run}
        return rules.check_fence(live, run_id, fence)

    # ---------------------------------------------------------------- tasks

    def change_task(self, command: commands.ChangeTask) -> None:
        self._check(command.change)
        self._apply(command.change)

    def _check(self, change: Commit, *, new_run: RunId | None = None) -> None:
        """Check that the task is as expected. `new_run` is created together with the change."""
        if change.run_id is not None and change.run_id != new_run:
            self._check_fence(change.run_id, change.fence)
        task = self._find_task(change.head.id, expected=change.after)
        sequence = ABSENT if task is None else task.sequence
        if sequence != change.after:
            rules.check_sequence(change, sequence)

    def _find_task(self, task_id: TaskId, *, expected: int) -> TaskChange | None:
        """The task as it is after the commands so far; None if it is to be created."""
        task = self.tasks.get(task_id)
        if task is None:
            found = expected if self._stored is None else self._stored.tasks.get(task_id, ABSENT)
            if found >= 0:
                task = TaskChange(found, found)
                if expected == found:  # on a mismatch the command fails, so nothing is recorded
                    self.tasks[task_id] = task
        return task

    def _apply(self, change: Commit) -> None:
        head = change.head
        task = self.tasks.get(head.id)
        if task is None:
            task = self.tasks[head.id] = TaskChange(ABSENT, ABSENT)
        if head.id in self.cleared:
            self.cleared.discard(head.id)
            task.sets_resume, task.resume = True, None
        task.head, task.sequence = head, head.sequence
        for entry in change.entries:
            self.size += len(entry.body)
            if len(entry.body) >= LARGE_BYTES:
                body = self._keep_contents(head.id, entry.body)
                entry = msgspec.structs.replace(entry, body=body)
            self.events.append((head.id, entry))
        if change.snapshot is not None:
            self.size += len(change.snapshot)
            task.snapshot = head.sequence, self._keep_contents(head.id, change.snapshot)
        if change.ends_run:
            task.sets_resume, task.resume = True, change.resume
            run = None if change.run_id is None else self.runs.get(change.run_id)
            if run is not None:
                run.is_ended = True

    def _keep_contents(self, task_id: TaskId, body: bytes) -> bytes:
        def keep(digest: bytes, content: bytes) -> bool:
            self.contents[task_id, digest] = content
            return True

        return replace_large_strings(body, keep)

    def refer_to_contents(self, task_id: TaskId, body: bytes) -> bytes:
        """A run with references to contents that this batch stores for its task.

        Other large strings stay in the row of the run, which is deleted when the run ends: contents
        are deleted only with their task.
        """
        if not self.contents:
            return body
        return replace_large_strings(body, lambda digest, _: (task_id, digest) in self.contents)

    def _clear_resume(self, task_id: TaskId) -> None:
        task = self.tasks.get(task_id)
        # Without a head the task was only checked so far, and `_apply` may follow.
        if task is None or task.head is None:
            self.cleared.add(task_id)
        else:
            task.sets_resume, task.resume = True, None

    # ---------------------------------------------------------------- deliveries

    def put_delivery(self, command: commands.PutDelivery) -> bool:
        delivery, stored = command.delivery, self._stored
        if stored is None:
            raise NeedsRows  # how many deliveries a task has cannot be assumed
        task = self.tasks.get(delivery.task_id)
        is_new = task is not None and task.sequence >= 0
        if not is_new and delivery.task_id not in stored.tasks:
            raise rules.no_task(delivery.task_id)
        if command.within is not None and self._count_others(stored, delivery) >= command.within:
            return False
        self._put_delivery(delivery)
        return True

    def _count_others(self, stored: StoredRows, delivery: Delivery) -> int:
        rows = {name: (row[0], row[1]) for name, row in stored.deliveries.items()}
        for name, change in self.deliveries.items():
            rows.pop(name, None)
            if change.row is not None:
                rows[name] = change.row.kind, change.row.task_id
        rows.pop(delivery.id, None)
        return sum(1 for row in rows.values() if row == (delivery.kind, delivery.task_id))

    def _put_delivery(self, delivery: Delivery, owner: OwnerId | None = None) -> None:
        self.size += len(delivery.body)
        change = self.deliveries.get(delivery.id)
        if change is None:
            self.deliveries[delivery.id] = DeliveryChange(ANY, delivery, is_put=True, owner=owner)
        else:
            change.row, change.is_put, change.owner = delivery, True, owner

    def update_delivery(self, command: commands.UpdateDelivery) -> bool:
        # The body works as a version: an attempt that began before the subscription was replaced
        # must not move the cursor of the new one.
        delivery = command.delivery
        self.size += len(delivery.body)
        change = self.deliveries.get(delivery.id)
        if change is not None:
            if change.row is None or change.row.body != delivery.body:
                return False
            change.row = msgspec.structs.replace(
                delivery, kind=change.row.kind, task_id=change.row.task_id
            )
            return True
        stored = self._stored
        if stored is not None:
            row = stored.deliveries.get(delivery.id)
            if row is None or row[2] != delivery.body:
                return False
        self.deliveries[delivery.id] = DeliveryChange(PRESENT, delivery, delivery.body)
        return True

    def delete_delivery(self, command: commands.DeleteDelivery) -> bool:
        change = self.deliveries.get(command.delivery_id)
        if change is not None:
            was_there, change.row = change.row is not None, None
            return was_there
        if self._stored is not None and command.delivery_id not in self._stored.deliveries:
            return False
        self.deliveries[command.delivery_id] = DeliveryChange(PRESENT, None)
        return True

    # ---------------------------------------------------------------- records

    def _find_record(self, key: RecordKey, assumed: int) -> tuple[RecordChange | None, int]:
        """What this batch has of a record, and the version that is there now (or ABSENT)."""
        change = self.records.get(key)
        if change is not None:
            return change, ABSENT if change.row is None else change.row.version
        return None, assumed if self._stored is None else self._stored.records.get(key, ABSENT)

    def put_record(self, command: commands.PutRecord) -> None:
        record = command.record
        key = record.kind, record.id
        self.size += len(record.body)
        change = self.records.pop(key, None)  # it goes to the end of the list
        found = ANY if change is None else change.found
        self.records[key] = RecordChange(found, record, is_put=True)

    def update_record(self, command: commands.UpdateRecord) -> bool:
        version = command.record.version
        return self._replace_record(command.record, expected=version - 1 if version else ABSENT)

    def _replace_record(self, record: Record, *, expected: int) -> bool:
        key = record.kind, record.id
        change, version = self._find_record(key, expected)
        if version != expected:
            return False
        self.size += len(record.body)
        if change is None:
            self.records[key] = RecordChange(expected, record, is_put=expected == ABSENT)
        elif expected == ABSENT:  # deleted, and new again: it goes to the end of the list
            del self.records[key]
            self.records[key] = RecordChange(change.found, record, is_put=True)
        else:
            change.row = record
        return True

    def delete_record(self, command: commands.DeleteRecord) -> bool:
        key = command.kind, command.record_id
        change, version = self._find_record(key, PRESENT)
        if version == ABSENT:
            return False
        if change is not None:
            change.row = None
        else:
            self.records[key] = RecordChange(PRESENT, None)
        return True

    # ---------------------------------------------------------------- logs

    def append_log(self, command: AppendLog) -> bool:
        change = command.change
        if not change.bodies or change.after < 0:
            return False
        key = change.kind, change.log_id
        log = self.logs.get(key)
        if log is not None and log.is_deleted:
            raise BatchEnds  # one statement cannot delete a log and make it again
        if log is None:
            found = change.after if self._stored is None else self._stored.logs.get(key, 0)
            if found != change.after:
                return False
            log = self.logs[key] = LogChange(found, found, [])
        if log.sequence != change.after:
            return False
        self.size += sum(map(len, change.bodies))
        log.lines += [(line.sequence, line.body) for line in change.lines()]
        log.sequence = change.last
        # Both changes as one: see `LogAppend.leaves_closed`.
        log.closes = change.closes or (log.closes and not change.reopens)
        log.reopens = log.reopens or change.reopens
        return True

    def delete_log(self, command: DeleteLog) -> bool:
        key = command.kind, command.log_id
        log = self.logs.get(key)
        if log is not None:
            if log.is_deleted:
                return False
            raise BatchEnds
        if self._stored is not None and key not in self._stored.logs:
            return False
        self.logs[key] = LogChange(PRESENT, 0, [], is_deleted=True)
        return True


_HANDLERS: dict[type[Any], Any] = {
    commands.Submit: Batch.submit,
    commands.ChangeTask: Batch.change_task,
    commands.StartRun: Batch.start_run,
    commands.FinishRun: Batch.finish_run,
    commands.PutDelivery: Batch.put_delivery,
    commands.UpdateDelivery: Batch.update_delivery,
    commands.DeleteDelivery: Batch.delete_delivery,
    commands.PutRecord: Batch.put_record,
    commands.UpdateRecord: Batch.update_record,
    commands.DeleteRecord: Batch.delete_record,
    AppendLog: Batch.append_log,
    DeleteLog: Batch.delete_log,
}


def _size_of(message: Message) -> int:
    size = 0
    for part in message.parts:
        size += len(part.text or part.raw or "")
        if part.data is not msgspec.UNSET:
            size += len(msgspec.json.encode(part.data))
    return size


class NeededRows:
    """The keys of the stored rows that commands depend on, to be read into `StoredRows`."""

    def __init__(self, group: Iterable[commands.Command]) -> None:
        self.tasks: set[str] = set()
        self.runs: set[str] = set()
        self.messages: set[MessageKey] = set()
        self.deliveries: set[str] = set()
        self.delivery_tasks: set[str] = set()
        self.records: set[RecordKey] = set()
        self.logs: set[LogKey] = set()
        for command in group:
            if isinstance(command, commands.Submit):
                self._name_submission(command.submission)
            elif isinstance(command, commands.ChangeTask):
                self._name_change(command.change)
            elif isinstance(command, commands.StartRun | commands.FinishRun):
                self.runs.add(command.run_id)
            elif isinstance(command, AppendLog):
                self.logs.add((command.change.kind, command.change.log_id))
            elif isinstance(command, DeleteLog):
                self.logs.add((command.kind, command.log_id))
            else:
                self._name_delivery_or_record(command)

    def _name_submission(self, submission: Submission) -> None:
        self.messages.add(rules.message_key(submission.run))
        if submission.commit is not None:
            self._name_change(submission.commit)
        if submission.record is not None:
            self.records.add((submission.record.kind, submission.record.id))

    def _name_change(self, change: Commit) -> None:
        self.tasks.add(change.head.id)
        if change.run_id is not None:
            self.runs.add(change.run_id)

    def _name_delivery_or_record(self, command: commands.Command) -> None:
        """Add the keys that a delivery or record command needs."""
        if isinstance(command, commands.PutDelivery):
            self.tasks.add(command.delivery.task_id)
            self.delivery_tasks.add(command.delivery.task_id)
        elif isinstance(command, commands.UpdateDelivery):
            self.deliveries.add(command.delivery.id)
        elif isinstance(command, commands.DeleteDelivery):
            self.deliveries.add(command.delivery_id)
        elif isinstance(command, commands.UpdateRecord):
            self.records.add((command.record.kind, command.record.id))
        elif isinstance(command, commands.DeleteRecord):
            self.records.add((command.kind, command.record_id))
