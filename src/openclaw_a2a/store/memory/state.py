"""A store's whole content in dictionaries: what each write checks and changes.

The memory store is this and nothing else. The json-file store keeps two of them, one with every
accepted write and one with every durable write, and rebuilds them from its files.
"""

from bisect import bisect_right
from collections.abc import Iterable
from datetime import datetime
from typing import cast

import msgspec

from openclaw_a2a.model.delivery import Delivery, DeliveryState
from openclaw_a2a.model.errors import CorruptRecord
from openclaw_a2a.model.ids import OwnerId, RunId, TaskId
from openclaw_a2a.model.records import Entry, RunRecord, StoredTask, TaskHead
from openclaw_a2a.model.task import is_terminal
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import (
    Accepted,
    Commit,
    Duplicate,
    MessageKey,
    Retention,
    Submission,
    TaskKey,
    message_key,
)
from openclaw_a2a.store import errors
from openclaw_a2a.store.memory.sorted_index import TaskIndex, TimeIndex
from openclaw_a2a.store.memory.tables import DeliveryTable, RecordTable


class TaskRow:
    """A task with all its entries; none is dropped while the task is stored."""

    __slots__ = ("entries", "head", "resume", "snapshot", "snapshot_sequence")

    def __init__(self, head: TaskHead, snapshot: bytes) -> None:
        self.head = head
        self.snapshot = snapshot
        self.snapshot_sequence = head.sequence
        self.entries: list[Entry] = []
        self.resume: bytes | None = None

    def stored(self) -> StoredTask:
        """The task for a reader."""
        return StoredTask(self.head, self.snapshot, tuple(self.after(self.snapshot_sequence)))

    def copy(self) -> "TaskRow":
        """An independent row with the same content."""
        row = TaskRow(self.head, self.snapshot)
        row.snapshot_sequence, row.resume = self.snapshot_sequence, self.resume
        row.entries = self.entries.copy()
        return row

    def after(self, sequence: int, limit: int | None = None) -> list[Entry]:
        """Entries with a higher sequence, in order."""
        start = bisect_right(self.entries, sequence, key=lambda entry: entry.sequence)
        return self.entries[start : None if limit is None else start + limit]


class MessageRow(msgspec.Struct, frozen=True):
    """An idempotency record. The json-file store stores it under these field names."""

    body_hash: bytes
    created_at: datetime
    duplicate: Duplicate = msgspec.field(name="known")


class MemoryState:
    """Tasks, runs, messages, deliveries and records.

    Every write first checks everything it may be refused for, then changes everything: a refused
    write leaves no trace.
    """

    def __init__(self) -> None:
        self.tasks: dict[TaskId, TaskRow] = {}
        self.runs: dict[RunId, RunRecord] = {}
        self.messages: dict[MessageKey, MessageRow] = {}
        self.deliveries = DeliveryTable()
        self.records = RecordTable()
        self.damaged: dict[TaskId, str] = {}
        """Tasks whose record file cannot be read, and why. They cannot be read or changed."""
        self._last_ticket = 0
        self.index = TaskIndex()
        self._message_times = TimeIndex()

    # ---------------------------------------------------------------- writes

    def submit(self, submission: Submission) -> Accepted | Duplicate:
        """Store a message once."""
        run, change = submission.run, submission.commit
        if (row := self.messages.get(message_key(run))) is not None:
            if row.body_hash != submission.body_hash:
                raise errors.message_id_conflict(run.message.message_id)
            return row.duplicate
        if change is not None:
            self._check(change, new_run=run.id)
        record = submission.record
        if record is not None and self.records.get(record.kind, record.id) is not None:
            raise errors.record_exists(record.kind, record.id)
        self._add_run(submission)
        if change is not None:
            self._apply(change)
        return Accepted(self._last_ticket)

    def commit(self, change: Commit) -> None:
        """Change a task."""
        self._check(change)
        self._apply(change)

    def start_run(self, run_id: RunId, *, fence: int, attempt: int) -> None:
        """Record that the agent is about to be called."""
        run = self._check_fence(run_id, fence)
        self.runs[run_id] = msgspec.structs.replace(run, is_started=True, attempt=attempt)

    def finish_run(self, run_id: RunId, *, fence: int, answer: bytes) -> None:
        """End a run that made no task; its answer goes into the idempotency record."""
        key = message_key(self._check_fence(run_id, fence))
        del self.runs[run_id]
        if (row := self.messages.get(key)) is not None:
            duplicate = msgspec.structs.replace(row.duplicate, answer=answer)
            self.messages[key] = msgspec.structs.replace(row, duplicate=duplicate)

    def claim_runs(
        self, owner: OwnerId, *, lease_until: datetime, expired_at: datetime | None
    ) -> list[RunRecord]:
        """Take over runs of other owners, in order of arrival, each with the next fence."""
        claimed = [
            msgspec.structs.replace(run, owner=owner, lease_until=lease_until, fence=run.fence + 1)
            for run in sorted(self.runs.values(), key=lambda run: run.ticket)
            if run.owner != owner and (expired_at is None or run.lease_until < expired_at)
        ]
        self.runs.update((run.id, run) for run in claimed)
        return claimed

    def renew_leases(self, owner: OwnerId, lease_until: datetime) -> None:
        """Extend the lease of every run of this owner."""
        for run in self.runs.values():
            if run.owner == owner:
                self.runs[run.id] = msgspec.structs.replace(run, lease_until=lease_until)

    def delete_tasks(self, tasks: Iterable[TaskId]) -> None:
        """Delete these tasks with their deliveries."""
        for task_id in tasks:
            if (task := self.tasks.pop(task_id, None)) is not None:
                self.index.remove(task.head)
            self.deliveries.delete_of_task(task_id)

    def delete_messages(self, before: datetime | None) -> None:
        """Delete idempotency records that are older."""
        if before is not None:
            for key in self._message_times.pop_before(before):
                del self.messages[cast("MessageKey", key)]

    def put_delivery(self, delivery: Delivery, within: int) -> bool:
        """Store a delivery; False if its task has too many."""
        if delivery.task_id not in self.tasks:
            raise errors.no_task(delivery.task_id)
        return self.deliveries.put(delivery, within=within)

    # ---------------------------------------------------------------- what may be deleted

    def is_deletable(self, scope: Scope, task_id: TaskId) -> bool:
        """True if the task is stored, in scope and finished."""
        task = self.tasks.get(task_id)
        return task is not None and task.head.scope == scope and is_terminal(task.head.state)

    def purgeable_tasks(self, retention: Retention) -> tuple[list[TaskId], TaskKey | None]:
        """Finished tasks to delete, and the key to continue after."""
        return self.index.purgeable(retention, self._has_unfinished_delivery)

    # ---------------------------------------------------------------- loading and recovery

    def put_run(self, run: RunRecord) -> None:
        """Store a run with the ticket it has."""
        self.runs[run.id] = run
        self._last_ticket = max(self._last_ticket, run.ticket)

    def put_message(self, key: MessageKey, row: MessageRow) -> None:
        """Store a new idempotency record."""
        self.messages[key] = row
        self._message_times.add(row.created_at, key)

    def put_task(self, task: TaskRow) -> None:
        """Store a new task."""
        self.tasks[task.head.id] = task
        self.index.add(task.head)

    def copy(self) -> "MemoryState":
        """An independent state with the same content."""
        copy = MemoryState()
        for task in self.tasks.values():
            copy.put_task(task.copy())
        for key, message in self.messages.items():
            copy.put_message(key, message)
        copy.runs.update(self.runs)
        copy.deliveries = DeliveryTable(self.deliveries.all())
        copy.records = RecordTable(self.records.all())
        copy.damaged = self.damaged
        copy._last_ticket = self._last_ticket
        return copy

    def replay_submission(self, submission: Submission) -> None:
        """Repeat a submission from before a crash; the task's file may already show it."""
        self._add_run(submission)
        if submission.commit is not None:
            self.replay_commit(submission.commit)

    def replay_commit(self, change: Commit) -> None:
        """Repeat a change from before a crash; the task's file may already show it."""
        task = self.tasks.get(change.head.id)
        sequence = -1 if task is None else task.head.sequence
        if change.head.sequence >= sequence and (task is not None or change.after == -1):
            unseen = tuple(entry for entry in change.entries if entry.sequence > sequence)
            self._apply(msgspec.structs.replace(change, entries=unseen, ends_run=False))
        if change.ends_run:
            if task is not None:
                task.resume = change.resume
            if change.run_id is not None:
                self.runs.pop(change.run_id, None)

    # ---------------------------------------------------------------- checks

    def _check(self, change: Commit, *, new_run: RunId | None = None) -> None:
        """`new_run` is the run that is created together with the change."""
        self.check_readable(change.head.id)
        if change.run_id is not None and change.run_id != new_run:
            self._check_fence(change.run_id, change.fence)
        task = self.tasks.get(change.head.id)
        sequence = -1 if task is None else task.head.sequence
        if sequence != change.after:
            raise errors.task_conflict(change.head.id, found=sequence, expected=change.after)

    def _check_fence(self, run_id: RunId, fence: int) -> RunRecord:
        run = self.runs.get(run_id)
        if run is None or run.fence != fence:
            raise errors.run_lost(run_id, found=None if run is None else run.fence, fence=fence)
        return run

    def check_readable(self, task_id: TaskId) -> None:
        """Raises CorruptRecord if the record of the task is damaged."""
        if task_id in self.damaged:
            raise CorruptRecord(
                f"the record of task {task_id!r} cannot be read: {self.damaged[task_id]}; "
                "repair or remove the file and start the gateway again"
            )

    def _has_unfinished_delivery(self, task_id: TaskId) -> bool:
        return any(map(self.is_unfinished, self.deliveries.of_task(task_id)))

    def is_unfinished(self, delivery: Delivery) -> bool:
        """True if a delivery has, or may yet get, something to send."""
        task = self.tasks.get(delivery.task_id)
        if delivery.state is DeliveryState.DEAD:
            return False
        if delivery.state is DeliveryState.WAITING or task is None:
            return True
        return not is_terminal(task.head.state) or delivery.cursor < task.head.sequence

    # ---------------------------------------------------------------- changes

    def _add_run(self, submission: Submission) -> None:
        """Store the run with the next ticket, and everything that comes with it but the commit."""
        run = submission.run
        self.put_run(msgspec.structs.replace(run, ticket=self._last_ticket + 1))
        duplicate = Duplicate(run.id, run.task_id, None)
        self.put_message(
            message_key(run), MessageRow(submission.body_hash, submission.created_at, duplicate)
        )
        if (task := self.tasks.get(run.task_id)) is not None:
            task.resume = None  # the new run has it
        if submission.delivery is not None:
            self.deliveries.put(submission.delivery)
        if submission.record is not None:
            self.records.put(submission.record)

    def _apply(self, change: Commit) -> None:
        head = change.head
        task = self.tasks.get(head.id)
        if task is None:
            task = TaskRow(head, b"")
            self.put_task(task)
        else:
            self.index.remove(task.head)
            task.head = head
            self.index.add(head)
        task.entries.extend(change.entries)
        if change.snapshot is not None:
            task.snapshot, task.snapshot_sequence = change.snapshot, head.sequence
        if change.ends_run:
            task.resume = change.resume
            if change.run_id is not None:
                del self.runs[change.run_id]
