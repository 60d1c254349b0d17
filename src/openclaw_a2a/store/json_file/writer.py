"""What the writer thread of a json-file store does: first the log, then the record files."""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple, cast

import msgspec

from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import GatewayError, StoreUnavailable
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.states import is_active
from openclaw_a2a.ports import Commit
from openclaw_a2a.store.group_writer import Outcome, Write
from openclaw_a2a.store.json_file.record_files import (
    LOG_NAME,
    BadRecord,
    OpenRecord,
    RecordsFolder,
    file_name,
    parse_record,
    task_id_of,
)
from openclaw_a2a.store.json_file.wal import (
    AnyLine,
    CommitLine,
    ForgetLine,
    SubmitLine,
    decode_line,
    encode_line,
    replay,
    standing_lines,
)
from openclaw_a2a.store.locks import WriterLock
from openclaw_a2a.store.memory.state import Ledger, TaskRow


class Change(NamedTuple):
    """A write for the disk.

    A failure spoils every change made on top of it: all those of the same `epoch`. `standing` is
    no change at all, but a new log that holds what the changes before it amount to.
    """

    epoch: int
    line: AnyLine | None = None
    standing: bytes | None = None


class JsonFiles:
    """Where groups of writes end. Used by one thread at a time.

    A write is durable when its line is in the log and synced; the record files follow at once.
    When one of them cannot be written now, it is tried again with every later group, and the log
    keeps its lines until then.
    """

    def __init__(self, folder: RecordsFolder, lock: WriterLock) -> None:
        self._folder = folder
        self._lock = lock
        self._records: dict[TaskId, OpenRecord] = {}
        self._unsaved: set[TaskId] = set()
        self._spoiled_epoch = -1
        self.failure: str | None = None
        """Why something could not be written last time; None when all is well."""

    def write_group(self, group: Sequence[Write["JsonFiles"]]) -> list[Outcome]:
        """Make the group durable; one outcome per write."""
        outcomes: list[Outcome] = []
        for take, some in groupby(group, key=_taken_by):
            outcomes += take(self, list(some))
        return outcomes

    def compact(self, standing: bytes) -> None:
        """Begin a new log, when the record files hold what the old one says of them."""
        try:
            if not self._unsaved:
                self._folder.rewrite_log(standing)
        except OSError as error:
            self.failure = str(error)

    def save(self) -> None:
        """Write every record that changed, remove every one that went."""
        try:
            for task_id in list(self._unsaved):
                self._save_record(task_id)
                self._unsaved.discard(task_id)
            self._folder.sync()
        except OSError as error:
            self.failure = str(error)
        else:
            self.failure = None

    def put_row(self, task_id: TaskId, row: TaskRow | None) -> None:
        """Have the task's record written as the row is, or removed."""
        if row is not None:
            self._records[task_id] = OpenRecord(row)
        self._unsaved.add(task_id)

    def begin_anew(self, writes: list[Write["JsonFiles"]]) -> list[Outcome]:
        """Begin the log that the last of them holds."""
        change = _change(writes[-1])
        if change.epoch > self._spoiled_epoch:
            self.compact(change.standing or b"")
        return [(write.future, None, None) for write in writes]

    def write_elsewhere(self, writes: list[Write["JsonFiles"]]) -> list[Outcome]:
        """Let writes happen that have files of their own."""
        return [self._perform(write) for write in writes]

    def write_lines(self, writes: list[Write["JsonFiles"]]) -> list[Outcome]:
        """Put lines into the log, and what they say into the record files."""
        changes = [_change(write) for write in writes]
        lines = [
            change.line
            for change in changes
            if change.line is not None and change.epoch > self._spoiled_epoch
        ]
        try:
            self._log(lines)
        except OSError as error:
            self.failure = str(error)
            self._spoiled_epoch = max(change.epoch for change in changes)
        else:
            for line in lines:
                self._absorb(line)
            self.save()
        return [(write.future, None, self._refusal(_change(write))) for write in writes]

    def _perform(self, write: Write["JsonFiles"]) -> Outcome:
        try:
            return write.future, write.perform(self, write.order), None
        except GatewayError as refusal:
            return write.future, None, refusal
        except Exception as error:  # the edge of the writer thread, which must live on
            self.failure = str(error)
            return write.future, None, self._unavailable()

    def _log(self, lines: list[AnyLine]) -> None:
        if not self._lock.keep():
            raise OSError(f"another process took the lock {self._lock.path}")
        content = b"".join(map(encode_line, lines))
        if not content and self.failure is not None:
            content = b"\n"  # says nothing, and shows whether writing works again
        if content:
            self._folder.append_to_log(content)

    def _absorb(self, line: AnyLine) -> None:
        if isinstance(line, ForgetLine):
            for task_id in line.tasks:
                self._records.pop(task_id, None)
            self._unsaved.update(line.tasks)
        elif isinstance(line, CommitLine):
            self._apply(line.change)
        elif isinstance(line, SubmitLine):
            if line.clears_resume:
                self._open(line.submission.run.task_id).resume = None
            if line.submission.commit is not None:
                self._apply(line.submission.commit)

    def _apply(self, change: Commit) -> None:
        task_id = change.head.id
        if change.after < 0:
            self._records[task_id] = OpenRecord(TaskRow(change.head, change.snapshot or b""))
        self._open(task_id).apply(change)

    def _open(self, task_id: TaskId) -> OpenRecord:
        self._unsaved.add(task_id)
        record = self._records.get(task_id)
        if record is None:
            content, modified_at = self._folder.read(self._folder.file_of(task_id))
            record = OpenRecord(parse_record(content, modified_at=modified_at))
            self._records[task_id] = record
        return record

    def _save_record(self, task_id: TaskId) -> None:
        file = self._folder.file_of(task_id)
        record = self._records.get(task_id)
        if record is None:
            file.unlink(missing_ok=True)
            return
        self._folder.put(file, record.content())
        if not is_active(record.head.state):
            del self._records[task_id]

    def _refusal(self, change: Change) -> StoreUnavailable | None:
        return None if change.epoch > self._spoiled_epoch else self._unavailable()

    def _unavailable(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"the store {self._folder.path} did not take the write: {self.failure}; "
            "check the disk (space, permissions) and try again"
        )


def _change(write: Write[JsonFiles]) -> Change:
    return cast("Change", write.order)


def _taken_by(
    write: Write[JsonFiles],
) -> Callable[[JsonFiles, list[Write[JsonFiles]]], list[Outcome]]:
    if not isinstance(write.order, Change):
        return JsonFiles.write_elsewhere
    return JsonFiles.write_lines if write.order.standing is None else JsonFiles.begin_anew


log = get_logger(__name__)


class Loaded(msgspec.Struct, frozen=True):
    """What the directory holds; `broken` says for a task why its record cannot be read."""

    ledger: Ledger
    broken: dict[TaskId, str]


def load_folder(folder: RecordsFolder, files: JsonFiles) -> Loaded:
    """Everything in the directory; what the last process had not finished is finished now."""
    loaded = Loaded(Ledger(), {})
    _load_records(folder, loaded)
    touched = _replay_log(folder, loaded.ledger)
    # A broken record stays as it is, for its owner to look at.
    loaded.ledger.forget(loaded.broken, None)
    for task_id in touched - loaded.broken.keys():
        files.put_row(task_id, loaded.ledger.tasks.get(task_id))
    files.save()
    files.compact(standing_lines(loaded.ledger))
    return loaded


def _load_records(folder: RecordsFolder, loaded: Loaded) -> None:
    for file in folder.record_files():
        try:
            content, modified_at = folder.read(file)
            row = parse_record(content, modified_at=modified_at)
            if file_name(row.head.id) != file.name:
                raise BadRecord(f"the file is not named for its task {row.head.id!r}")
        except (BadRecord, OSError) as error:
            log.warning("record-broken", file=str(file), reason=str(error))
            if (task_id := task_id_of(file.name)) is not None:
                loaded.broken[task_id] = f"{file}: {error}"
        else:
            loaded.ledger.put_task(row)


def _replay_log(folder: RecordsFolder, ledger: Ledger) -> set[TaskId]:
    """Let everything in the log happen again; the tasks it is about."""
    touched: set[TaskId] = set()
    for number, text in enumerate(folder.read_log().split(b"\n"), start=1):
        if not text:
            continue
        try:
            line = decode_line(text)
        except msgspec.DecodeError as error:
            # The last line of a process that died while writing it; it was never acknowledged.
            log.warning("log-line-ignored", file=LOG_NAME, line=number, reason=str(error))
            continue
        touched.update(replay(ledger, line))
    return touched
