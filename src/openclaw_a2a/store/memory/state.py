"""What a store does, in plain dictionaries: the meaning that every kind of store shares."""

from bisect import bisect_right
from collections.abc import Iterable
from datetime import datetime
from heapq import nlargest
from typing import cast

import msgspec

from openclaw_a2a.model.delivery import Delivery, DeliveryId, DeliveryState
from openclaw_a2a.model.ids import MessageId, OwnerId, RunId, TaskId
from openclaw_a2a.model.records import Entry, RunRecord, StoredTask, TaskHead
from openclaw_a2a.model.states import is_active, is_terminal
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import (
    Accepted,
    Commit,
    DeliveryPage,
    Duplicate,
    RecentHead,
    Record,
    Retention,
    Submission,
    TaskKey,
    TaskPage,
    TaskQuery,
)
from openclaw_a2a.store import errors
from openclaw_a2a.store.memory.sorted_index import OrderedNames, TaskOrder
from openclaw_a2a.store.memory.tables import DeliveryRows, RecordRows

MessageKey = tuple[str, str, str]
"""Principal, account, message id: what an idempotency record is found by."""


class TaskRow:
    """A task as the ledger holds it; entries are never dropped while the task lives."""

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
        """A row of its own with the same content."""
        row = TaskRow(self.head, self.snapshot)
        row.snapshot_sequence, row.resume = self.snapshot_sequence, self.resume
        row.entries = self.entries.copy()
        return row

    def after(self, sequence: int, limit: int | None = None) -> list[Entry]:
        """Entries with a higher sequence, in order."""
        start = bisect_right(self.entries, sequence, key=_sequence_of)
        return self.entries[start : None if limit is None else start + limit]


class MessageRow(msgspec.Struct, frozen=True):
    """What became of a message."""

    body_hash: bytes
    created_at: datetime
    known: Duplicate


class Ledger:
    """Tasks, runs and messages. Every change checks first and then happens as a whole."""

    def __init__(self) -> None:
        self.tasks: dict[TaskId, TaskRow] = {}
        self.runs: dict[RunId, RunRecord] = {}
        self.messages: dict[MessageKey, MessageRow] = {}
        self.deliveries = DeliveryRows()
        self.records = RecordRows()
        self._ticket = 0
        self._order = TaskOrder()
        self._message_times = OrderedNames()

    def submit(self, submission: Submission) -> Accepted | Duplicate:
        """Take a message in, once."""
        run, change = submission.run, submission.commit
        key = message_key(run)
        if (row := self.messages.get(key)) is not None:
            if row.body_hash != submission.body_hash:
                raise errors.message_id_conflict(run.message.message_id)
            return row.known
        if change is not None:
            self._check(change, joining=run.id)
        self._check_record(submission.record)
        self._ticket += 1
        self.put_run(msgspec.structs.replace(run, ticket=self._ticket))
        known = Duplicate(run.id, run.task_id, None)
        self.put_message(key, MessageRow(submission.body_hash, submission.created_at, known))
        if (task := self.tasks.get(run.task_id)) is not None:
            task.resume = None
        if change is not None:
            self._apply(change)
        self._keep_with_run(submission)
        return Accepted(self._ticket)

    def commit(self, change: Commit) -> None:
        """Change a task."""
        self._check(change)
        self._apply(change)

    def start_run(self, run_id: RunId, *, fence: int, attempt: int) -> None:
        """Note that the agent is about to be asked."""
        run = self._fenced(run_id, fence)
        self.runs[run_id] = msgspec.structs.replace(run, is_started=True, attempt=attempt)

    def finish_run(self, run_id: RunId, *, fence: int, answer: bytes) -> None:
        """End a run that made no task; its answer is kept with its message."""
        key = message_key(self._fenced(run_id, fence))
        del self.runs[run_id]
        if (row := self.messages.get(key)) is not None:
            known = msgspec.structs.replace(row.known, answer=answer)
            self.messages[key] = msgspec.structs.replace(row, known=known)

    def claim_runs(
        self, owner: OwnerId, *, lease_until: datetime, expired_at: datetime | None
    ) -> list[RunRecord]:
        """Take over runs of other owners, in order of arrival, each with a higher fence."""
        claimed = [
            msgspec.structs.replace(run, owner=owner, lease_until=lease_until, fence=run.fence + 1)
            for run in sorted(self.runs.values(), key=_ticket_of)
            if run.owner != owner and (expired_at is None or run.lease_until < expired_at)
        ]
        self.runs.update((run.id, run) for run in claimed)
        return claimed

    def renew_leases(self, owner: OwnerId, lease_until: datetime) -> None:
        """Keep all runs of this owner."""
        for run in self.runs.values():
            if run.owner == owner:
                self.runs[run.id] = msgspec.structs.replace(run, lease_until=lease_until)

    def read_task(self, scope: Scope | None, task_id: TaskId) -> StoredTask | None:
        """One task, when it is in scope."""
        task = self.tasks.get(task_id)
        if task is None or (scope is not None and task.head.scope != scope):
            return None
        return task.stored()

    def list_recent_tasks(self, limit: int) -> list[RecentHead]:
        """The newest tasks of all callers, the one made last first."""
        newest = nlargest(limit, self.tasks.values(), key=_made_at)
        return [RecentHead(task.head, task.resume) for task in newest]

    def list_tasks(self, query: TaskQuery) -> TaskPage:
        """Tasks by newest status."""
        ids = self._order.page(query)
        tasks = tuple(self.tasks[task_id].stored() for task_id in ids[: query.limit])
        return TaskPage(tasks, has_more=len(ids) > query.limit, total=self._order.total(query))

    def list_orphaned_tasks(self) -> list[TaskId]:
        """Active tasks that have no run."""
        at_work = {run.task_id for run in self.runs.values()}
        return [
            task_id
            for task_id, task in self.tasks.items()
            if is_active(task.head.state) and task_id not in at_work
        ]

    def find_duplicate(
        self, scope: Scope, message_id: MessageId, *, body_hash: bytes | None = None
    ) -> Duplicate | None:
        """What became of a message. Raises: MessageIdConflict."""
        row = self.messages.get((scope.principal, scope.account, message_id))
        if row is not None and body_hash not in (None, row.body_hash):
            raise errors.message_id_conflict(message_id)
        return None if row is None else row.known

    def delete_task(self, scope: Scope, task_id: TaskId) -> bool:
        """Forget an ended task; False when it is not there or not ended."""
        is_deletable = self.is_deletable(scope, task_id)
        if is_deletable:
            self.forget([task_id], None)
        return is_deletable

    def is_deletable(self, scope: Scope, task_id: TaskId) -> bool:
        """True when the task is there, in scope, and ended."""
        task = self.tasks.get(task_id)
        return task is not None and task.head.scope == scope and is_terminal(task.head.state)

    def forgettable(self, retention: Retention) -> tuple[list[TaskId], TaskKey | None]:
        """The ended tasks that are too old or too many, and of which all is brought.

        With them the one after which there may be others.
        """
        return self._order.forgettable(retention, self._is_held)

    def forget(self, tasks: Iterable[TaskId], messages_before: datetime | None) -> None:
        """Let go of these tasks, and of all older messages."""
        for task_id in tasks:
            if (task := self.tasks.pop(task_id, None)) is not None:
                self._order.remove(task.head)
            self.deliveries.drop_task(task_id)
        if messages_before is not None:
            for key in self._message_times.take_before(messages_before):
                del self.messages[cast("MessageKey", key)]

    def put_delivery(self, delivery: Delivery, within: int) -> bool:
        """Keep a delivery; False when its task has too many. Raises: TaskNotFound."""
        if delivery.task_id not in self.tasks:
            raise errors.no_task(delivery.task_id)
        return self.deliveries.put(delivery, within=within)

    def list_unfinished_deliveries(self, after: DeliveryId, limit: int) -> DeliveryPage:
        """Deliveries that have, or may yet get, something to bring."""
        page = self.deliveries.page(self._is_unfinished, after=after, limit=limit)
        return DeliveryPage(tuple(page), page[-1].id if len(page) == limit else None)

    def _is_held(self, task_id: TaskId) -> bool:
        """True while something of the task is still to be brought."""
        return any(map(self._is_unfinished, self.deliveries.of_task(task_id)))

    def _is_unfinished(self, delivery: Delivery) -> bool:
        task = self.tasks.get(delivery.task_id)
        if delivery.state is DeliveryState.DEAD:
            return False
        if delivery.state is DeliveryState.WAITING or task is None:
            return True
        return not is_terminal(task.head.state) or delivery.cursor < task.head.sequence

    def put_run(self, run: RunRecord) -> None:
        """Keep a run with the ticket it has."""
        self.runs[run.id] = run
        self._ticket = max(self._ticket, run.ticket)

    def put_message(self, key: MessageKey, row: MessageRow) -> None:
        """Keep an idempotency record that is not there yet."""
        self.messages[key] = row
        self._message_times.add(row.created_at, key)

    def put_task(self, task: TaskRow) -> None:
        """Keep a task that is not there yet."""
        self.tasks[task.head.id] = task
        self._order.add(task.head)

    def copy(self) -> "Ledger":
        """A ledger of its own with the same content."""
        copy = Ledger()
        for task in self.tasks.values():
            copy.put_task(task.copy())
        for key, message in self.messages.items():
            copy.put_message(key, message)
        copy.runs.update(self.runs)
        copy.deliveries = DeliveryRows(self.deliveries.all())
        copy.records = RecordRows(self.records.all())
        copy._ticket = self._ticket
        return copy

    def replay_submission(self, submission: Submission) -> None:
        """Take a message in that was taken before a crash; the task may show it already."""
        run = submission.run
        self._ticket += 1
        self.put_run(msgspec.structs.replace(run, ticket=self._ticket))
        known = Duplicate(run.id, run.task_id, None)
        self.put_message(
            message_key(run), MessageRow(submission.body_hash, submission.created_at, known)
        )
        if (task := self.tasks.get(run.task_id)) is not None:
            task.resume = None
        if submission.commit is not None:
            self.replay_commit(submission.commit)
        self._keep_with_run(submission)

    def replay_commit(self, change: Commit) -> None:
        """Make a change that was made before a crash; the task may show it already."""
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

    def _keep_with_run(self, submission: Submission) -> None:
        if submission.delivery is not None:
            self.deliveries.put(submission.delivery)
        if submission.record is not None:
            self.records.put(submission.record)

    def _check_record(self, record: Record | None) -> None:
        if record is not None and self.records.get(record.kind, record.id) is not None:
            raise errors.record_exists(record.kind, record.id)

    def _check(self, change: Commit, *, joining: RunId | None = None) -> None:
        """`joining` is the run that comes into being together with the change."""
        if change.run_id is not None and change.run_id != joining:
            self._fenced(change.run_id, change.fence)
        task = self.tasks.get(change.head.id)
        sequence = -1 if task is None else task.head.sequence
        if sequence != change.after:
            raise errors.task_conflict(change.head.id, found=sequence, expected=change.after)

    def _apply(self, change: Commit) -> None:
        task = self._moved(change.head)
        task.entries.extend(change.entries)
        if change.snapshot is not None:
            task.snapshot, task.snapshot_sequence = change.snapshot, change.head.sequence
        if change.ends_run:
            task.resume = change.resume
            if change.run_id is not None:
                del self.runs[change.run_id]

    def _moved(self, head: TaskHead) -> TaskRow:
        """The task with its new head, at its new place."""
        task = self.tasks.get(head.id)
        if task is None:
            task = TaskRow(head, b"")
            self.put_task(task)
            return task
        self._order.remove(task.head)
        task.head = head
        self._order.add(head)
        return task

    def _fenced(self, run_id: RunId, fence: int) -> RunRecord:
        run = self.runs.get(run_id)
        if run is None or run.fence != fence:
            raise errors.run_lost(run_id, found=None if run is None else run.fence, fence=fence)
        return run


def message_key(run: RunRecord) -> MessageKey:
    """What the idempotency record of this run's message is found by."""
    return run.scope.principal, run.scope.account, run.message.message_id


def _made_at(task: TaskRow) -> tuple[datetime, TaskId]:
    return task.head.created_at, task.head.id


def _sequence_of(entry: Entry) -> int:
    return entry.sequence


def _ticket_of(run: RunRecord) -> int:
    return run.ticket
