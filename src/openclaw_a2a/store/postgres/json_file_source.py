"""A json-file store as rows for `transfer.py`: read from its files, which are not changed.

Record files are read one at a time, twice: for the order in which the tasks were made, and for
their rows. In memory is what the write-ahead log holds (runs, message ids, deliveries, records, and
tasks that changed after their file was written), and the key of every task.

A record or a line of the log that cannot be read ends the move: what the gateway would leave out
is not left behind without a word.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from openclaw_a2a.model.errors import StoreLocked, StoreUnavailable
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.records import encode_json
from openclaw_a2a.ports import MessageKey
from openclaw_a2a.store.columns import CODE_OF
from openclaw_a2a.store.commands import ChangeTask, Submit
from openclaw_a2a.store.contents import replace_large_strings
from openclaw_a2a.store.json_file.contents import ContentFolder
from openclaw_a2a.store.json_file.log_files import LOG_FILES, LogFolder, log_file_name
from openclaw_a2a.store.json_file.record_files import (
    LOG_NAME,
    BadRecord,
    RecordFolder,
    record_file_name,
)
from openclaw_a2a.store.json_file.writer import LineReader, read_record
from openclaw_a2a.store.locks import WriterLock
from openclaw_a2a.store.memory.state import MemoryState, MessageRow, Purge, StateCommand, TaskRow
from openclaw_a2a.store.sqlite.transaction import (
    encode_delivery,
    encode_record,
    encode_run,
    to_microseconds,
)

_PAGE_TASKS = 500
_PAGE_BYTES = 4 * 1024 * 1024
_LOG_KIND = "objective"
_PAGE_LOGS = 100

SourceRow = tuple[Any, ...]
SourceRows = tuple[str, Iterable[SourceRow]]
"""The name of a table, and some of its rows, with values as SQLite has them."""
ReportProblem = Callable[[str], None]
"""Called with what an objective file has that the gateway, too, does not read."""


class JsonFileSource:
    """A directory that no gateway uses. Locked from `open` to `close`.

    `logs_path` is the directory of objective files.
    """

    def __init__(self, path: Path, logs_path: Path, on_problem: ReportProblem) -> None:
        self.path = path
        self._folder = RecordFolder(path)
        self._contents = ContentFolder(path)
        self._logs = LogFolder(logs_path)
        self._on_problem = on_problem
        paths = [path, logs_path] if logs_path.is_dir() else [path]
        self._locks = [WriterLock(one) for one in paths]
        self._held: list[WriterLock] = []
        self._state = MemoryState()
        self._in_log: set[TaskId] = set()
        self._keys: list[tuple[int, TaskId]] = []

    def open(self) -> None:
        """Lock the directory, read its log and the keys of its tasks.

        Raises: StoreLocked, StoreUnavailable.
        """
        if not self.path.is_dir():
            raise StoreUnavailable(
                f"there is no json-file store at {self.path}; name its directory with --from"
            )
        for lock in self._locks:
            if not lock.try_acquire():
                raise lock.locked_error()
            self._held.append(lock)
        self._read_log()
        self._read_keys()

    def close(self) -> None:
        """Release the directory."""
        while self._held:
            self._held.pop().release()

    # ---------------------------------------------------------------- what is there

    def _read_log(self) -> None:
        """Replay the log over the records it changes, as a gateway does when it starts."""
        for command in self._commands():
            self._in_log.update(_changed_tasks(command))
        names = {record_file_name(task_id) for task_id in self._in_log}
        for name in sorted(names.intersection(self._folder.names())):
            self._state.put_task(self._read_record(name))
        reader = LineReader(self._contents)
        for command in self._commands(reader):
            self._state.replay(command)
        for task_id in sorted(reader.incomplete & self._state.tasks.keys()):
            raise self._unreadable(record_file_name(task_id), "its large strings are missing")

    def _commands(self, reader: LineReader | None = None) -> Iterator[StateCommand]:
        reader = reader or LineReader(self._contents)
        file = self.path / LOG_NAME
        if not file.exists():
            return
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                # A line without its end was never acknowledged.
                if not line.strip() or not line.endswith(b"\n"):
                    continue
                try:
                    yield reader.read(line)
                except (ValueError, OSError, RecursionError) as error:
                    raise self._unreadable(f"line {number} of {LOG_NAME}", error) from error

    def _read_keys(self) -> None:
        rows = (self._read_record(name) for name in self._folder.names())
        heads = [row.head for row in self._state.tasks.values()]
        self._keys = [(to_microseconds(one.created_at), one.id) for one in heads]
        for row in rows:
            if row.head.id not in self._in_log:  # or it is known, or was deleted
                self._keys.append((to_microseconds(row.head.created_at), row.head.id))
        # In the order in which a json-file store lists them.
        self._keys.sort()

    def _read_record(self, name: str) -> TaskRow:
        try:
            return read_record(self._folder, self._contents, name)
        except (BadRecord, OSError) as error:
            raise self._unreadable(name, error) from error

    def _unreadable(self, name: str, reason: object) -> StoreUnavailable:
        return StoreUnavailable(
            f"{name} in {self.path} cannot be read: {reason}; repair it, or put it elsewhere if it "
            "is not needed; nothing was moved"
        )

    # ---------------------------------------------------------------- rows

    def rows(self) -> Iterator[SourceRows]:
        """All rows; those of each table in the order of its key. Raises: StoreUnavailable."""
        renumbered: dict[TaskId, list[int]] = {}
        yield from self._task_rows(renumbered)
        state = self._state
        yield "run", map(encode_run, sorted(state.runs.values(), key=lambda run: run.ticket))
        yield "message", [_message_row(*one) for one in sorted(state.messages.items())]
        deliveries = [
            msgspec.structs.replace(one, cursor=_renumber(renumbered.get(one.task_id), one.cursor))
            for _, one in sorted(state.deliveries.items())
        ]
        yield "delivery", map(encode_delivery, deliveries)
        numbered = {key: number for number, key in enumerate(state.records, start=1)}
        records = [(encode_record(state.records[key]), numbered[key]) for key in sorted(numbered)]
        yield "record", [(*row[:2], number, *row[2:]) for row, number in records]
        yield from self._log_rows()

    def _task_rows(self, renumbered: dict[TaskId, list[int]]) -> Iterator[SourceRows]:
        with_deliveries = {one.task_id for one in self._state.deliveries.values()}
        page, size = _Page(), 0
        for number, (_, task_id) in enumerate(self._keys, start=1):
            name = record_file_name(task_id)
            row = self._state.tasks.get(task_id) or self._read_record(name)
            sequences = [entry.sequence for entry in row.entries]
            is_whole = sequences == list(range(1, row.head.sequence + 1))
            if not is_whole and task_id in with_deliveries:
                renumbered[task_id] = sequences
            size += page.add(number, row, None if is_whole else sequences)
            if len(page.tasks) == _PAGE_TASKS or size > _PAGE_BYTES:
                self._keep_locks()
                yield from page.rows()
                page, size = _Page(), 0
        yield from page.rows()

    def _keep_locks(self) -> None:
        if not all(lock.keep() for lock in self._held):
            raise StoreLocked(f"another process took {self.path} meanwhile; nothing was moved")

    def _log_rows(self) -> Iterator[SourceRows]:
        number, after, moved = 0, "", set[str]()
        while heads := self._logs.page(after, _PAGE_LOGS):
            after = heads[-1].id
            for head in heads:
                stored = self._logs.read(head.id)
                if stored is None:
                    raise self._unreadable(f"the log {head.id!r}", "it has no lines")
                for problem in stored.problems:
                    self._on_problem(problem)
                number += 1
                moved.add(log_file_name(head.id))
                updated_at = to_microseconds(head.updated_at)
                is_closed, last = stored.is_closed, stored.sequence
                yield "log", [(number, _LOG_KIND, head.id, last, is_closed, updated_at)]
                yield "log_line", [(number, line.sequence, line.body) for line in stored.lines]
        for name in sorted({one.name for one in self._logs.path.glob(LOG_FILES)} - moved):
            self._on_problem(f"{name} has no line that can be read; it was not moved")


class _Page:
    """The rows of some tasks."""

    def __init__(self) -> None:
        self.tasks: list[SourceRow] = []
        self._snapshots: list[SourceRow] = []
        self._events: list[SourceRow] = []
        self._contents: list[SourceRow] = []

    def add(self, number: int, row: TaskRow, sequences: list[int] | None) -> int:
        """Add a task; about how many bytes it has."""
        contents: dict[bytes, bytes] = {}

        def keep(digest: bytes, content: bytes) -> bool:
            contents[digest] = content
            return True

        spill = partial(replace_large_strings, keep=keep)
        head = row.head
        events = [
            (number, _renumber(sequences, one.sequence), CODE_OF[one.state], spill(one.body))
            for one in row.entries
        ]
        names = (number, head.id, head.scope.principal, head.scope.account, head.context_id)
        times = (to_microseconds(head.status_at), to_microseconds(head.created_at))
        binding = None if head.binding is None else encode_json(head.binding)
        sequence = _renumber(sequences, head.sequence)
        self.tasks.append((*names, CODE_OF[head.state], *times, sequence, binding, row.resume))
        snapshot = spill(row.snapshot)
        self._snapshots.append((number, _renumber(sequences, row.snapshot_sequence), snapshot))
        self._events += events
        self._contents += [(number, *one) for one in sorted(contents.items())]
        return len(snapshot) + sum(map(len, contents.values())) + sum(len(one[3]) for one in events)

    def rows(self) -> Iterator[SourceRows]:
        """The rows of each table."""
        yield "task", self.tasks
        yield "snapshot", self._snapshots
        yield "event", self._events
        yield "content", self._contents


def _message_row(key: MessageKey, row: MessageRow) -> SourceRow:
    outcome, created_at = row.duplicate, to_microseconds(row.created_at)
    return *key, row.body_hash, outcome.run_id, outcome.task_id, created_at, outcome.answer


def _renumber(sequences: list[int] | None, sequence: int) -> int:
    """The number of an event among those that can be read.

    Records of other programs have short forms of events, which are left out; databases have none
    of the gaps that this leaves.
    """
    return sequence if sequences is None else bisect_right(sequences, sequence)


def _changed_tasks(command: StateCommand) -> tuple[TaskId, ...]:
    if isinstance(command, Submit):
        return (command.submission.run.task_id,)
    if isinstance(command, ChangeTask):
        return (command.change.head.id,)
    return command.tasks if isinstance(command, Purge) else ()
