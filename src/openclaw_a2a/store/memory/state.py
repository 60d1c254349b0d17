"""A store's whole content in dictionaries: what each command checks and changes.

The memory store is this and nothing else. The json-file store keeps two of them, one with every
accepted write and one with every durable write, and rebuilds them from its files.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any, cast

import msgspec

from openclaw_a2a.model.delivery import Delivery, DeliveryId, DeliveryState
from openclaw_a2a.model.errors import Conflict, TaskNotFound
from openclaw_a2a.model.ids import ContextId, RunId, TaskId
from openclaw_a2a.model.records import Entry, RunRecord, StoredTask, TaskHead
from openclaw_a2a.model.task import TaskState, is_terminal
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import (
    Accepted,
    Commit,
    Duplicate,
    MessageKey,
    Record,
    StatusQuery,
    Submission,
    TaskKey,
    TaskQuery,
)
from openclaw_a2a.store import commands, rules
from openclaw_a2a.store.commands import AnyCommand, Command


class MessageRow(msgspec.Struct, frozen=True):
    """An idempotency record. The json-file store stores it under these field names."""

    body_hash: bytes
    created_at: datetime
    duplicate: Duplicate = msgspec.field(name="known")


class Purge(Command, frozen=True, tag="forget"):
    """Delete tasks, and old messages and records; False if there is nothing to delete."""

    tasks: tuple[TaskId, ...]
    messages_before: datetime | None = None
    records_before: datetime | None = None


class PutRun(Command, frozen=True, tag="run"):
    """Store a live run as it is. Only in a compacted log."""

    run: RunRecord


class PutMessage(Command, frozen=True, tag="message"):
    """Store an idempotency record as it is. Only in a compacted log."""

    key: MessageKey
    row: MessageRow


StateCommand = AnyCommand | Purge | PutRun | PutMessage


class TaskRow(msgspec.Struct):
    """A task with all its entries; none is dropped while the task is stored."""

    head: TaskHead
    snapshot: bytes
    snapshot_sequence: int
    entries: list[Entry] = []
    resume: bytes | None = None

    @property
    def size(self) -> int:
        """The bytes of what a reader gets."""
        entries = self.after(self.snapshot_sequence)
        return len(self.snapshot) + sum([len(entry.body) for entry in entries])

    def stored(self) -> StoredTask:
        """The task for a reader."""
        return StoredTask(self.head, self.snapshot, tuple(self.after(self.snapshot_sequence)))

    def copy(self) -> "TaskRow":
        """An independent row with the same content."""
        return msgspec.structs.replace(self, entries=self.entries.copy())

    def after(self, sequence: int, limit: int | None = None) -> list[Entry]:
        """Entries with a higher sequence, in order."""
        start = bisect_right(self.entries, sequence, key=lambda entry: entry.sequence)
        return self.entries[start : None if limit is None else start + limit]


StatusKey = tuple[datetime, TaskId]
"""When the status was set, and the task."""

_Group = tuple[Scope, ContextId | None, TaskState | None]


class TaskIndex:
    """The tasks of a caller by newest status, for every filter of a query; and the finished ones.

    Each is a sorted list, oldest first: new statuses land at the end, where inserting is cheap.
    """

    def __init__(self) -> None:
        self._groups: dict[_Group, list[StatusKey]] = {}
        self.finished: list[StatusKey] = []
        self.unfinished: set[TaskId] = set()

    def add(self, head: TaskHead) -> None:
        """Insert a task."""
        key: StatusKey = (head.status_at, head.id)
        for group in _groups_of(head):
            insort(self._groups.setdefault(group, []), key)
        if is_terminal(head.state):
            insort(self.finished, key)
        else:
            self.unfinished.add(head.id)

    def copy(self) -> "TaskIndex":
        """An independent index with the same tasks."""
        copy = TaskIndex()
        copy._groups = {group: keys.copy() for group, keys in self._groups.items()}
        copy.finished = self.finished.copy()
        copy.unfinished = self.unfinished.copy()
        return copy

    def remove(self, head: TaskHead) -> None:
        """Remove a task, with the head it was added with."""
        key: StatusKey = (head.status_at, head.id)
        for group in _groups_of(head):
            keys = self._groups[group]
            del keys[bisect_left(keys, key)]
            if not keys:
                del self._groups[group]
        if is_terminal(head.state):
            del self.finished[bisect_left(self.finished, key)]
        else:
            self.unfinished.discard(head.id)

    def page(self, query: TaskQuery) -> tuple[list[TaskId], int]:
        """The tasks of the page, and one more if more follow; the total of all pages."""
        keys = self._groups.get((query.scope, query.context_id, query.state), [])
        after, since = query.after, query.status_since
        start = 0 if since is None else bisect_left(keys, (since, TaskId("")))
        end = len(keys) if after is None else bisect_left(keys, (after.status_at, after.id))
        page = keys[max(start, end - query.limit - 1) : end]
        return [task_id for _, task_id in reversed(page)], len(keys) - start

    def latest(self, query: StatusQuery) -> list[TaskId]:
        """The tasks of all callers with the newest status, after the key of the query."""
        after, newest = query.after, list[StatusKey]()
        for (scope, context_id, state), keys in self._groups.items():
            if (
                context_id is None
                and (state in query.states if query.states else state is None)
                and query.principal in (None, scope.principal)
                and query.account in (None, scope.account)
            ):
                end = len(keys) if after is None else bisect_left(keys, (after.status_at, after.id))
                newest += keys[max(0, end - query.limit) : end]
        newest.sort(reverse=True)
        return [task_id for _, task_id in newest[: query.limit]]

    def oldest_finished(self, after: TaskKey | None, limit: int) -> list[StatusKey]:
        """Finished tasks, oldest first."""
        keys = self.finished
        start = 0 if after is None else bisect_right(keys, (after.status_at, after.id))
        return keys[start : start + limit]


def _groups_of(head: TaskHead) -> list[_Group]:
    contexts, states = (None, head.context_id), (None, head.state)
    return [(head.scope, context, state) for context in contexts for state in states]


class MemoryState:
    """Tasks, runs, messages, deliveries and records.

    Every command first checks everything it may be refused for, then changes everything: a refused
    write leaves no trace.
    """

    def __init__(self) -> None:
        self.tasks: dict[TaskId, TaskRow] = {}
        self.index = TaskIndex()
        self.runs: dict[RunId, RunRecord] = {}
        self.messages: dict[MessageKey, MessageRow] = {}
        self._message_times: list[tuple[datetime, tuple[str, ...]]] = []  # sorted, for `Purge`
        self.deliveries: dict[DeliveryId, Delivery] = {}
        self._task_deliveries: dict[TaskId, set[DeliveryId]] = {}
        self.records: dict[tuple[str, str], Record] = {}  # in the order in which they were put
        self.damaged: dict[TaskId, str] = {}
        """Tasks whose record file cannot be read, and why. They cannot be read or changed."""
        self._last_ticket = 0

    def apply(self, command: StateCommand) -> Any:
        """Check a command and change the state; its result. Raises: GatewayError."""
        return _APPLY[type(command)](self, command)

    # ---------------------------------------------------------------- tasks and runs

    def submit(self, command: commands.Submit) -> Accepted | Duplicate:
        submission = command.submission
        run, change, record = submission.run, submission.commit, submission.record
        row = self.messages.get(rules.message_key(run)) if submission.is_deduplicated else None
        if row is not None:
            rules.check_same_body(row.body_hash, submission.body_hash, run.message.message_id)
            return row.duplicate
        if change is not None:
            self._check(change, new_run=run.id)
        if record is not None and (record.kind, record.id) in self.records:
            raise rules.record_exists(record)
        # Everything is checked; from here on nothing can be refused.
        self._add_run(submission)
        if change is not None:
            self._apply_change(change)
        return Accepted(self._last_ticket)

    def change_task(self, command: commands.ChangeTask) -> None:
        self._check(command.change)
        self._apply_change(command.change)

    def start_run(self, command: commands.StartRun) -> None:
        run = rules.check_fence(self.runs, command.run_id, command.fence)
        self.runs[run.id] = msgspec.structs.replace(run, is_started=True, attempt=command.attempt)

    def finish_run(self, command: commands.FinishRun) -> None:
        key = rules.message_key(rules.check_fence(self.runs, command.run_id, command.fence))
        del self.runs[command.run_id]
        # The idempotency record may have been purged while the run was active, or be that of
        # another run: a message that is not deduplicated has none.
        row = self.messages.get(key)
        if row is not None and row.duplicate.run_id == command.run_id:
            duplicate = msgspec.structs.replace(row.duplicate, answer=command.answer)
            self.messages[key] = msgspec.structs.replace(row, duplicate=duplicate)

    def claim_runs(self, command: commands.ClaimRuns) -> list[RunRecord]:
        claimed = [
            msgspec.structs.replace(run, owner=command.owner, fence=run.fence + 1)
            for run in sorted(self.runs.values(), key=lambda run: run.ticket)
            if run.owner != command.owner
        ]
        self.runs.update((run.id, run) for run in claimed)
        return claimed

    def count_expired(self, command: Purge) -> tuple[int, int]:
        """How many messages and records a purge deletes."""
        before, end = command.messages_before, command.records_before
        messages = 0 if before is None else bisect_left(self._message_times, (before, ()))
        expired = [row for row in self.records.values() if end is not None and row.expires_at < end]
        return messages, len(expired)

    def purge(self, command: Purge) -> bool:
        self.delete_tasks(command.tasks)
        if (before := command.messages_before) is not None:
            end = bisect_left(self._message_times, (before, ()))
            for _, key in self._message_times[:end]:
                del self.messages[cast("MessageKey", key)]
            del self._message_times[:end]
        if (before := command.records_before) is not None:
            for key in [key for key, row in self.records.items() if row.expires_at < before]:
                del self.records[key]
        # False only for `delete_task` without a task to delete: the json-file store then logs
        # nothing.
        return bool(command.tasks) or command.messages_before is not None

    def delete_tasks(self, tasks: Iterable[TaskId]) -> None:
        """Delete these tasks with their deliveries."""
        for task_id in tasks:
            if (task := self.tasks.pop(task_id, None)) is not None:
                self.index.remove(task.head)
            for delivery_id in self._task_deliveries.pop(task_id, ()):
                del self.deliveries[delivery_id]

    # ---------------------------------------------------------------- deliveries and records

    def put_delivery(self, command: commands.PutDelivery) -> bool:
        delivery = command.delivery
        if command.within is not None:
            if delivery.task_id not in self.tasks:
                raise rules.no_task(delivery.task_id)
            known = self.task_deliveries(delivery.task_id)
            others = [row for row in known if row.kind == delivery.kind and row.id != delivery.id]
            if len(others) >= command.within:
                return False
        self._store_delivery(delivery)
        return True

    def update_delivery(self, command: commands.UpdateDelivery) -> bool:
        delivery = command.delivery
        known = self.deliveries.get(delivery.id)
        if known is None or known.body != delivery.body:
            return False
        self.deliveries[delivery.id] = delivery
        return True

    def delete_delivery(self, command: commands.DeleteDelivery) -> bool:
        row = self.deliveries.pop(command.delivery_id, None)
        if row is None:
            return False
        ids = self._task_deliveries[row.task_id]
        ids.remove(row.id)
        if not ids:
            del self._task_deliveries[row.task_id]
        return True

    def find_task(self, scope: Scope | None, task_id: TaskId) -> TaskRow | None:
        """The task, if it is in scope (None: any scope)."""
        task = self.tasks.get(task_id)
        return None if task is None or scope not in (None, task.head.scope) else task

    def task_deliveries(self, task_id: TaskId) -> list[Delivery]:
        """The deliveries of a task, in any order."""
        return [self.deliveries[one] for one in self._task_deliveries.get(task_id, ())]

    def is_unfinished(self, delivery: Delivery) -> bool:
        """True if a delivery has, or may yet get, something to send."""
        task = self.tasks.get(delivery.task_id)
        if delivery.state is DeliveryState.DEAD:
            return False
        # A task that is not stored may be about to be created.
        if delivery.state is DeliveryState.WAITING or task is None:
            return True
        return not is_terminal(task.head.state) or delivery.cursor < task.head.sequence

    def update_record(self, command: commands.UpdateRecord) -> bool:
        record = command.record
        stored = self.records.get((record.kind, record.id))
        expected = None if record.version == 0 else record.version - 1
        if (None if stored is None else stored.version) != expected:
            return False
        self.records[record.kind, record.id] = record
        return True

    def delete_record(self, kind: str, record_id: str) -> bool:
        return self.records.pop((kind, record_id), None) is not None

    # ---------------------------------------------------------------- loading and recovery

    def put_task(self, task: TaskRow) -> None:
        """Store a new task."""
        self.tasks[task.head.id] = task
        self.index.add(task.head)

    def copy(self) -> "MemoryState":
        """An independent state with the same content."""
        copy = MemoryState()
        copy.tasks = {task_id: task.copy() for task_id, task in self.tasks.items()}
        copy.index = self.index.copy()
        # Their values are never changed, only replaced.
        copy.runs, copy.messages = self.runs.copy(), self.messages.copy()
        copy.deliveries, copy.records = self.deliveries.copy(), self.records.copy()
        copy._message_times = self._message_times.copy()
        copy._task_deliveries = {key: ids.copy() for key, ids in self._task_deliveries.items()}
        # Shared: it is filled while loading and does not change afterwards.
        copy.damaged = self.damaged
        # Not the highest of the live runs: the tickets of ended runs are not reused.
        copy._last_ticket = self._last_ticket
        return copy

    def as_commands(self) -> list[StateCommand]:
        """The commands that restore the runs, messages, deliveries and records."""
        return [
            *(PutRun(run) for run in sorted(self.runs.values(), key=lambda run: run.ticket)),
            *(PutMessage(key, row) for key, row in self.messages.items()),
            *(commands.PutDelivery(delivery) for delivery in self.deliveries.values()),
            *(commands.PutRecord(record) for record in self.records.values()),
        ]

    def replay(self, command: StateCommand) -> tuple[TaskId, ...]:
        """Repeat a durable command from before a crash; the tasks it changed.

        Their record files may show it already, or a later one.
        """
        if isinstance(command, commands.Submit):
            # Not `submit`: the record file may be ahead of this command, so its checks would refuse
            # it. The log has the submissions in order of arrival, so the new tickets keep that
            # order.
            self._add_run(command.submission)
            if command.submission.commit is not None:
                self._replay_change(command.submission.commit)
            return (command.submission.run.task_id,)
        if isinstance(command, commands.ChangeTask):
            self._replay_change(command.change)
            return (command.change.head.id,)
        # It was accepted once; if it is refused now, its object was deleted by a later command.
        with suppress(Conflict, TaskNotFound):
            self.apply(command)
        return command.tasks if isinstance(command, Purge) else ()

    def _replay_change(self, change: Commit) -> None:
        task = self.tasks.get(change.head.id)
        # Record files are written after the log, so a file may have this change already, or later
        # ones.
        sequence = -1 if task is None else task.head.sequence
        # A change of a task that is gone is skipped: its file was removed by a later purge.
        if change.head.sequence >= sequence and (task is not None or change.after == -1):
            # The file may have been written from a later change than this one.
            unseen = tuple(entry for entry in change.entries if entry.sequence > sequence)
            self._apply_change(msgspec.structs.replace(change, entries=unseen, ends_run=False))
        # Runs are in the log alone, so this is not seen yet, even if the rest of the change is.
        if change.ends_run:
            # Looked up again: the change may have created it.
            if (task := self.tasks.get(change.head.id)) is not None:
                task.resume = change.resume
            if change.run_id is not None:
                self.runs.pop(change.run_id, None)

    # ---------------------------------------------------------------- checks and changes

    def check_readable(self, task_id: TaskId) -> None:
        """Raises CorruptRecord if the record of the task is damaged."""
        if task_id in self.damaged:
            raise rules.damaged_task("json-file", task_id, self.damaged[task_id])

    def _check(self, change: Commit, *, new_run: RunId | None = None) -> None:
        """`new_run` is the run that is created together with the change."""
        self.check_readable(change.head.id)
        if change.run_id is not None and change.run_id != new_run:
            rules.check_fence(self.runs, change.run_id, change.fence)
        task = self.tasks.get(change.head.id)
        rules.check_sequence(change, -1 if task is None else task.head.sequence)

    def _add_run(self, submission: Submission) -> None:
        """Store the run with the next ticket, and everything that comes with it but the commit."""
        run = submission.run
        self.put_run(msgspec.structs.replace(run, ticket=self._last_ticket + 1))
        if submission.is_deduplicated:
            duplicate = Duplicate(run.id, run.task_id, None)
            row = MessageRow(submission.body_hash, submission.created_at, duplicate)
            self.put_message(rules.message_key(run), row)
        if (task := self.tasks.get(run.task_id)) is not None:
            task.resume = None  # the new run has it
        if submission.delivery is not None:
            self._store_delivery(submission.delivery)
        if submission.record is not None:
            self.put_record(submission.record)

    def _apply_change(self, change: Commit) -> None:
        head = change.head
        task = self.tasks.get(head.id)
        if task is None:
            task = TaskRow(head, b"", head.sequence)
            self.put_task(task)
        else:
            # Most changes are chunks of an artifact, which leave the place in the lists as it is.
            if head.state is not task.head.state or head.status_at != task.head.status_at:
                self.index.remove(task.head)
                self.index.add(head)
            task.head = head
        task.entries.extend(change.entries)
        if change.snapshot is not None:
            task.snapshot, task.snapshot_sequence = change.snapshot, head.sequence
        if change.ends_run:
            task.resume = change.resume
            if change.run_id is not None:
                del self.runs[change.run_id]

    def put_run(self, run: RunRecord) -> None:
        self.runs[run.id] = run
        self._last_ticket = max(self._last_ticket, run.ticket)

    def put_message(self, key: MessageKey, row: MessageRow) -> None:
        self.messages[key] = row
        insort(self._message_times, (row.created_at, key))

    def _store_delivery(self, delivery: Delivery) -> None:
        self.deliveries[delivery.id] = delivery
        self._task_deliveries.setdefault(delivery.task_id, set()).add(delivery.id)

    def put_record(self, record: Record) -> None:
        self.records.pop((record.kind, record.id), None)  # a record that is put again goes last
        self.records[record.kind, record.id] = record


_APPLY: dict[type[Command], Callable[[MemoryState, Any], Any]] = {
    commands.Submit: MemoryState.submit,
    commands.ChangeTask: MemoryState.change_task,
    commands.StartRun: MemoryState.start_run,
    commands.FinishRun: MemoryState.finish_run,
    commands.ClaimRuns: MemoryState.claim_runs,
    commands.RenewLeases: lambda state, command: None,
    commands.PutDelivery: MemoryState.put_delivery,
    commands.UpdateDelivery: MemoryState.update_delivery,
    commands.DeleteDelivery: MemoryState.delete_delivery,
    commands.PutRecord: lambda state, it: state.put_record(it.record),
    commands.UpdateRecord: MemoryState.update_record,
    commands.DeleteRecord: lambda state, it: state.delete_record(it.kind, it.record_id),
    Purge: MemoryState.purge,
    PutRun: lambda state, it: state.put_run(it.run),
    PutMessage: lambda state, it: state.put_message(it.key, it.row),
}
