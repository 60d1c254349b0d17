"""The disk side of a json-file store: the writer thread's work, and loading at start.

A write is durable when its line is in the write-ahead log and synced; the record files follow at
once. A record file that cannot be written stays in `_unsaved` and is tried again with every later
group, and the log is not compacted before: at every moment log and files together hold every
durable write. After a crash, `load_folder` replays the log over the files.

Large strings are in neither: they are written first, to the content file of their task, and log
and record refer to them.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple, cast

import msgspec

from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import GatewayError
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.task import is_active
from openclaw_a2a.ports import Commit
from openclaw_a2a.store import commands
from openclaw_a2a.store.commands import ChangeTask, Submit
from openclaw_a2a.store.contents import LARGE_BYTES
from openclaw_a2a.store.group_writer import Write, WriteOutcome
from openclaw_a2a.store.json_file.contents import MARK_NAME, ContentFolder, restore_strings
from openclaw_a2a.store.json_file.record_files import (
    LOG_NAME,
    BadRecord,
    OpenRecord,
    RecordFolder,
    parse_record,
    record_file_name,
    sync_folder,
    task_id_of,
)
from openclaw_a2a.store.locks import WriterLock
from openclaw_a2a.store.memory.state import (
    MemoryState,
    Purge,
    StateCommand,
    TaskRow,
)
from openclaw_a2a.store.rules import PROBE_BYTES, write_failed

log = get_logger(__name__)


class Referring(commands.Command, frozen=True, tag="referring"):
    """A command with references in place of large strings of its task. Only in the log."""

    task_id: TaskId
    mark: str
    command: msgspec.Raw


_encode_command = msgspec.json.Encoder().encode
_command_decoder = msgspec.json.Decoder(StateCommand)
_line_decoder = msgspec.json.Decoder(StateCommand | Referring)


class DiskChange(NamedTuple):
    """A write for the disk: a command for the log, or nothing but a sync point.

    Every command was checked against a state with all earlier commands of its `epoch`, so when
    one of them cannot be logged, the rest of the epoch fails with it.
    """

    epoch: int
    command: StateCommand | None = None
    result: object = None
    """What the caller gets once the command is durable; an error is raised."""
    row: TaskRow | None = None
    """The task before the command, if its record is not open in the writer."""
    refers_to: TaskId | None = None
    """The task whose large strings the command has references for."""


Command = DiskChange | Callable[[], Any]
"""A change, or a function that writes other files: a log of `LogFolder`, a compacted log."""


def compact_log(state: MemoryState) -> bytes:
    """A log of what the record files do not hold: live runs, messages, deliveries, records."""
    return b"".join([_encode_command(command) + b"\n" for command in state.as_commands()])


class RecordWriter:
    """Writes groups of changes. Used by one thread at a time."""

    def __init__(self, folder: RecordFolder, lock: WriterLock) -> None:
        self._folder = folder
        self._lock = lock
        self.contents = ContentFolder(folder.path)
        self._open: dict[TaskId, OpenRecord] = {}
        """The records of active tasks, and of tasks whose file could not be written yet."""
        self._unsaved: set[TaskId] = set()  # the log has something that their files lack
        self._deleted: set[TaskId] = set()
        self._failed_epoch = -1  # this one and all before it are lost
        self.failure: str | None = None
        """Why the last write to the disk failed; None if it succeeded."""

    def write_group(self, group: Sequence[Write[Command]]) -> list[WriteOutcome]:
        """Make the group durable; one outcome per write."""
        outcomes: list[WriteOutcome] = []
        # In call order: a compacted log replaces the commands before it, none that follow.
        for is_change, writes in groupby(group, key=lambda it: isinstance(it.command, DiskChange)):
            if is_change:
                outcomes += self._write_changes(cast("list[Write[DiskChange]]", list(writes)))
            else:
                outcomes += [self._write_files(write) for write in writes]
        return outcomes

    def _write_changes(self, writes: list[Write[DiskChange]]) -> list[WriteOutcome]:
        """Append commands to the log, then bring the record files up to date."""
        changes = [write.command for write in writes]
        accepted = [
            change
            for change in changes
            if change.command is not None and change.epoch > self._failed_epoch
        ]
        accepted = list(map(self._spill, accepted))
        try:
            self._append(accepted)
        except OSError as error:
            self.failure = str(error)
            # Or the strings of refused messages would fill the memory. Those of open records stay:
            # a record that is written later may refer to them.
            self.contents.release_others(self._open)
            # A later epoch cannot be queued yet: the event loop begins one when it sees these
            # outcomes.
            self._failed_epoch = max(change.epoch for change in changes)
        else:
            # From here on the commands are durable: whatever goes wrong with a record file is
            # mended by a later group, or by the replay at the next start.
            for change in accepted:
                self._update_record(change)
            self.save()
        return [self._outcome(write) for write in writes]

    def _write_files(self, write: Write[Any]) -> WriteOutcome:
        try:
            return write, write.command(), None
        except GatewayError as error:
            return write, None, error
        except OSError as error:
            self.failure = str(error)
            return write, None, write_failed(str(self._folder.path), error)

    def compact(self, compacted: bytes, epoch: int) -> None:
        """Replace the log, unless it holds what this log or a record file lacks."""
        try:
            # A failed epoch: the compacted log was made from commands that were never durable.
            # Unsaved records: the old log is the only place that has their last changes.
            if epoch > self._failed_epoch and not self._unsaved:
                self._folder.rewrite_log(compacted)
        except OSError as error:
            self.failure = str(error)

    def save(self) -> None:
        """Write the file of every record that changed, remove those of deleted tasks."""
        try:
            for task_id in list(self._unsaved):
                self._save_record(task_id)
            # Once for all files: until then a crash may bring back old names, and the log that
            # knows better is not compacted before this returns.
            sync_folder(self._folder.path)
        except OSError as error:
            self.failure = str(error)
        else:
            self.failure = None

    def put_row(self, task_id: TaskId, row: TaskRow | None) -> None:
        """Have the record file written from this row (None: removed) by the next `save`."""
        self._unsaved.add(task_id)
        if row is not None:
            self._open_record(task_id, row)
        else:
            self._deleted.add(task_id)

    def _outcome(self, write: Write[DiskChange]) -> WriteOutcome:
        change = write.command
        if change.epoch <= self._failed_epoch:
            reason = self.failure or "the disk failed"
            return write, None, write_failed(str(self._folder.path), reason)
        if isinstance(change.result, GatewayError):
            return write, None, change.result
        return write, change.result, None

    def _append(self, changes: list[DiskChange]) -> None:
        # Another process may have taken the lock for stale, while this one was suspended. Then
        # the log is not ours any more: writing would mix two histories.
        if not self._lock.keep():
            raise OSError(f"another process took the lock {self._lock.path}")
        self.contents.flush()
        content = b"".join(map(self._encode_line, changes))
        if not content and self.failure is not None:
            content = b" " * PROBE_BYTES + b"\n"  # shows whether writing works again
        if content:
            self._folder.append_to_log(content)

    def _spill(self, change: DiskChange) -> DiskChange:
        """The change with references in place of large strings."""
        commit = _commit_of(change.command)
        if commit is None or not _is_large(commit):
            return change
        small = _map_bodies(commit, partial(self.contents.spill, commit.head.id))
        command = _with_commit(change.command, small)
        return change._replace(command=command, refers_to=commit.head.id)

    def _encode_line(self, change: DiskChange) -> bytes:
        line, task_id = _encode_command(change.command), change.refers_to
        if task_id is not None:
            # The message of a run, too: the snapshot that came with it has the same strings.
            line = self.contents.refer(task_id, line)
            line = _encode_command(Referring(task_id, MARK_NAME, msgspec.Raw(line)))
        return line + b"\n"

    def _update_record(self, change: DiskChange) -> None:
        command = change.command
        try:
            if isinstance(command, Purge):
                for task_id in command.tasks:
                    self._open.pop(task_id, None)
                self._unsaved.update(command.tasks)
                self._deleted.update(command.tasks)
            elif isinstance(command, ChangeTask):
                self._apply(command.change, change.row)
            elif isinstance(command, Submit):
                if change.row is not None and change.row.resume is not None:
                    self._record(command.submission.run.task_id, change.row).resume = None
                if command.submission.commit is not None:
                    self._apply(command.submission.commit, change.row)
        except Exception:
            # The command is durable in the log, so its write succeeded. The task stays in
            # `_unsaved`, which keeps the log: the next start replays it.
            log.exception("store.record_not_updated", folder=str(self._folder.path))

    def _apply(self, change: Commit, row: TaskRow | None) -> None:
        task_id = change.head.id
        if change.after < 0:
            row = TaskRow(change.head, change.snapshot or b"", change.head.sequence)
            self._open_record(task_id, row)
            self._deleted.discard(task_id)
        self._record(task_id, row).apply(change)

    def _record(self, task_id: TaskId, row: TaskRow | None) -> OpenRecord:
        """The open record of a task that is about to change.

        Opened from the row in memory and not from its file: while the task was paused the file
        may have been damaged or deleted, and it is rewritten as a whole.
        """
        self._unsaved.add(task_id)
        record = self._open.get(task_id)
        if record is None:
            if row is None:
                raise LookupError(f"no record of task {task_id!r} is open")
            record = self._open_record(task_id, row)
        return record

    def _open_record(self, task_id: TaskId, row: TaskRow) -> OpenRecord:
        spill = partial(self.contents.spill, task_id)
        entries = [msgspec.structs.replace(one, body=spill(one.body)) for one in row.entries]
        small = msgspec.structs.replace(row, snapshot=spill(row.snapshot), entries=entries)
        record = self._open[task_id] = OpenRecord(small)
        return record

    def _save_record(self, task_id: TaskId) -> None:
        file = self._folder.path / record_file_name(task_id)
        record = self._open.get(task_id)
        if record is not None:
            self.contents.flush()
            self._folder.put(file, record.content(MARK_NAME))
            # A paused or finished task needs no open record: memory stays bounded by what runs.
            if not is_active(record.head.state):
                del self._open[task_id]
                self.contents.release(task_id)
        elif task_id in self._deleted:
            # A crash before the directory is synced may bring the file back; the replayed `Purge`
            # removes it again.
            file.unlink(missing_ok=True)
            self.contents.release(task_id)
            self.contents.delete(file.name)
            self._deleted.discard(task_id)
        else:
            return  # see _update_record
        self._unsaved.discard(task_id)


def load_folder(folder: RecordFolder, writer: RecordWriter) -> MemoryState:
    """The state in the directory; what the last process had not finished is finished now."""
    state = MemoryState()
    _load_records(folder, writer.contents, state)
    changed = _replay_log(folder, writer.contents, state)
    # A damaged record stays as it is, for its owner to repair.
    state.delete_tasks(state.damaged)
    # Files first, then the log: a crash in between finds the old log and replays it once more.
    for task_id in changed - state.damaged.keys():
        writer.put_row(task_id, state.tasks.get(task_id))
    writer.save()
    writer.compact(compact_log(state), epoch=0)
    _delete_orphans(folder, writer.contents, state)
    return state


def _delete_orphans(folder: RecordFolder, contents: ContentFolder, state: MemoryState) -> None:
    """Delete the strings that a crash left: of messages not accepted, and of deleted tasks."""
    with suppress(OSError):
        orphans = contents.names() - set(folder.names())
        if orphans:  # or the tasks that are in the log alone, because the disk is full
            orphans -= {record_file_name(task_id) for task_id in state.tasks}
        for name in orphans:
            contents.delete(name)


def _load_records(folder: RecordFolder, contents: ContentFolder, state: MemoryState) -> None:
    rows: list[TaskRow] = []
    for name in folder.names():
        try:
            row = read_record(folder, contents, name)
        except (BadRecord, OSError) as error:
            file = folder.path / name
            log.warning("store.record_damaged", file=str(file), reason=str(error))
            if (task_id := task_id_of(name)) is not None:
                state.damaged[task_id] = f"{file}: {error}"
        else:
            rows.append(row)
    # In the order of the index, which then only grows at its end; and the same order each time.
    for row in sorted(rows, key=lambda row: (row.head.status_at, row.head.id)):
        state.put_task(row)


def read_record(folder: RecordFolder, contents: ContentFolder, name: str) -> TaskRow:
    """The task of a record file, with its large strings. Raises: BadRecord, OSError."""
    row = parse_record(
        *folder.read(name), lambda body, mark: restore_strings(body, mark, contents.read(name))
    )
    if record_file_name(row.head.id) != name:
        raise BadRecord(f"the file is not named for its task {row.head.id!r}")
    return row


def _replay_log(folder: RecordFolder, contents: ContentFolder, state: MemoryState) -> set[TaskId]:
    """Replay the write-ahead log; the tasks it changed."""
    changed: set[TaskId] = set()
    reader = LineReader(contents)
    file = folder.path / LOG_NAME
    content = file.read_bytes() if file.exists() else b""
    *lines, torn = content.split(b"\n")
    if torn:  # a process died while writing it: a line is acknowledged after its newline
        reason = "it has no end"
        log.warning("store.log_line_ignored", file=LOG_NAME, line=len(lines) + 1, reason=reason)
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue  # a probe, see `_append`
        try:
            command = reader.read(line)
        except (ValueError, OSError, RecursionError) as error:
            log.warning("store.log_line_ignored", file=LOG_NAME, line=number, reason=str(error))
        else:
            changed.update(state.replay(command))
    # The log is compacted next. If that fails (a full disk), it is the only place that holds these
    # commands: appends must follow them, not replace them.
    folder.log_size = len(content) - len(torn)
    for task_id in reader.incomplete & state.tasks.keys():
        reason = "its large strings are missing"
        log.warning("store.record_damaged", file=record_file_name(task_id), reason=reason)
        state.damaged[task_id] = reason
    return changed


class _KnownStrings(dict[bytes, bytes]):
    """The strings of a task; those that are missing are empty."""

    is_complete = True

    def __missing__(self, key: bytes) -> bytes:
        self.is_complete = False
        return b""


class LineReader:
    """Reads the lines of the log in their order."""

    def __init__(self, contents: ContentFolder) -> None:
        self._contents = contents
        self._strings: dict[TaskId, _KnownStrings] = {}

    @property
    def incomplete(self) -> set[TaskId]:
        """Tasks of which strings are missing, and that no line deletes."""
        return {task_id for task_id, known in self._strings.items() if not known.is_complete}

    def read(self, line: bytes) -> StateCommand:
        """The command of a line. Raises: msgspec.DecodeError, OSError."""
        command = _line_decoder.decode(line)
        if isinstance(command, Purge):
            for task_id in command.tasks:
                # Their strings are deleted before the log forgets them: that is no damage.
                self._strings.pop(task_id, None)
        return self._resolve(command) if isinstance(command, Referring) else command

    def _resolve(self, referring: Referring) -> StateCommand:
        task_id, mark = referring.task_id, referring.mark
        if task_id not in self._strings:
            known = self._contents.read(record_file_name(task_id))
            self._strings[task_id] = _KnownStrings(known)
        strings = self._strings[task_id]

        def restore(body: bytes) -> bytes:
            return restore_strings(body, mark, strings)

        command = _command_decoder.decode(restore(bytes(referring.command)))
        commit = _commit_of(command)
        return command if commit is None else _with_commit(command, _map_bodies(commit, restore))


def _commit_of(command: StateCommand | None) -> Commit | None:
    """The change of a task in a command."""
    if isinstance(command, ChangeTask):
        return command.change
    return command.submission.commit if isinstance(command, Submit) else None


def _with_commit(command: StateCommand | None, commit: Commit) -> StateCommand:
    if isinstance(command, Submit):
        return Submit(msgspec.structs.replace(command.submission, commit=commit))
    return ChangeTask(commit)


def _map_bodies(commit: Commit, change: Callable[[bytes], bytes]) -> Commit:
    """The same change with other bytes for its events and its snapshot."""
    snapshot = None if commit.snapshot is None else change(commit.snapshot)
    entries = [msgspec.structs.replace(entry, body=change(entry.body)) for entry in commit.entries]
    return msgspec.structs.replace(commit, entries=tuple(entries), snapshot=snapshot)


def _is_large(commit: Commit) -> bool:
    return any(len(entry.body) >= LARGE_BYTES for entry in commit.entries) or (
        commit.snapshot is not None and len(commit.snapshot) >= LARGE_BYTES
    )
