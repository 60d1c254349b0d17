"""Record files: one JSON file per task, in a format that other programs share.

Written as schema 2; schema 1 is read too.

    {"schemaVersion": 2, "task": .., "binding": .., "currentSequence": n,
     "journal": [{"sequence": 1, "event": ..}, ..], "gateway": {..}}

Task and events are in the 0.3 format. The member `gateway` is written by this gateway: the owner
of the task, exact times, and the agent's resume token. A record without it belongs to the local
caller.

A record with large strings is written as schema 3: references stand in their places, and
`contentMark` is how they begin (`contents.py`).
"""

import base64
import errno
import hashlib
import os
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from openclaw_a2a.model.ids import LOCAL_PEER, AccountId, JsonObject, PeerName, TaskId
from openclaw_a2a.model.message import JsonStruct
from openclaw_a2a.model.records import Entry, TaskHead, decode_task, encode_event, encode_json
from openclaw_a2a.model.task import Event, StatusUpdate, Task, apply_event
from openclaw_a2a.model.turn import Binding, Scope
from openclaw_a2a.ports import Commit
from openclaw_a2a.protocol import v03
from openclaw_a2a.store.memory.state import TaskRow

LOG_NAME = ".gateway.jsonl"
# One name is enough: only the writer thread writes. A crash leaves at most this file, which is no
# record by its name, and which the next `put` empties.
_TEMPORARY = ".writing"
# Not through a link: what it leads to would be overwritten.
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
# File systems allow 255 bytes, the suffix included.
_MAX_NAME = 250
_EVENT_KINDS = ("status-update", "artifact-update")
_DEFAULT_ACCOUNT = AccountId("default")

Members = dict[str, Raw]
Restore = Callable[[bytes, str], bytes]
"""Takes JSON and the name of its mark. Raises: KeyError (a string is missing)."""
T = TypeVar("T")


class BadRecord(Exception):
    """The file is not a valid record; the text says why."""


class OpenRecord:
    """The record of a task that changes.

    The encoded journal only grows at its end; the rest is encoded again for every write. Rows and
    changes come with references in place of their large strings, so all of this is small.
    """

    def __init__(self, row: TaskRow) -> None:
        self.head = row.head
        self.resume = row.resume
        self._task = decode_task(row.snapshot)
        self._journal = bytearray()
        for entry in row.entries:
            self._add(entry.sequence, entry.event)
            if entry.sequence > row.snapshot_sequence:
                self._task = apply_event(self._task, entry.event)

    def apply(self, change: Commit) -> None:
        """Apply a change."""
        for entry in change.entries:
            event = entry.event
            self._add(entry.sequence, event)
            if change.snapshot is None:
                self._task = apply_event(self._task, event)
        if change.snapshot is not None:
            self._task = decode_task(change.snapshot)
        self.head = change.head
        # A pause leaves a token, any other end removes it.
        if change.ends_run:
            self.resume = change.resume

    def content(self, mark_name: str) -> bytes:
        """The content of the file; references in it begin with the mark."""
        head, scope = self.head, self.head.scope
        part = _GatewayPart(
            scope.principal, scope.account, head.status_at, head.created_at, self.resume
        )
        binding = b"" if head.binding is None else b',"binding":' + encode_json(head.binding)
        task = v03.encode_task(self._task)
        # Another version, so that no other program takes a reference for the text.
        mark = mark_name.encode()
        has_references = mark in self._journal or mark in task
        schema = b'3,"contentMark":"%b"' % mark if has_references else b"2"
        return b"".join(
            (
                b'{"schemaVersion":%b,"task":' % schema,
                task,
                binding,
                b',"currentSequence":%d,"journal":[' % head.sequence,
                self._journal,
                b'],"gateway":',
                encode_json(part),
                b"}\n",
            )
        )

    def _add(self, sequence: int, event: Event) -> None:
        if self._journal:
            self._journal += b","
        self._journal += b'{"sequence":%d,"event":%b}' % (sequence, v03.encode_event(event))


class _GatewayPart(JsonStruct, frozen=True):
    """What only this gateway stores of a task."""

    principal: PeerName
    account: AccountId
    status_at: datetime
    created_at: datetime
    resume: bytes | None = None


class _JournalEntry(msgspec.Struct, frozen=True):
    sequence: int
    event: Raw


class _Kind(msgspec.Struct, frozen=True):
    kind: str


def record_file_name(task_id: TaskId) -> str:
    """The file name of a task; an id that is too long is replaced by its hash."""
    encoded = task_id.encode("utf-8")
    name = base64.urlsafe_b64encode(encoded).rstrip(b"=").decode("ascii")
    if len(name) > _MAX_NAME:
        name = "~" + hashlib.sha256(encoded).hexdigest()
    return f"{name}.json"


def task_id_of(name: str) -> TaskId | None:
    """The task id of a file name; None if it cannot be derived."""
    stem = name.removesuffix(".json")
    try:
        encoded = base64.b64decode(stem + "=" * (-len(stem) % 4), altchars=b"-_", validate=True)
        return TaskId(encoded.decode("utf-8"))
    except ValueError:
        return None


def parse_record(content: bytes, modified_at: datetime, restore: Restore) -> TaskRow:
    """Parse a record file. `modified_at` replaces a time that the file does not have; `restore`
    puts the large strings in their places.

    Raises:
        BadRecord: with the reason.
    """
    members = _read("the record", content, dict[str, Raw])
    version = _member(members, "schemaVersion", int)
    if version == 3 and "contentMark" in members:
        try:
            content = restore(content, _member(members, "contentMark", str))
        except KeyError as error:
            raise BadRecord(f"its content {error} is missing") from None
        members = _read("the record", content, dict[str, Raw])
    elif version not in (1, 2):
        raise BadRecord(
            f"schemaVersion is {version}; this gateway reads 1, 2, and 3 with contentMark"
        )
    if _member(members, "task", _Kind).kind != "task":
        raise BadRecord('task.kind is not "task"')
    task = _decoded("task", v03.decode_task, bytes(members["task"]))
    sequence, journal = _journal(members) if version >= 2 else (0, [])
    part = _gateway_part(members, task, modified_at)
    head = TaskHead(
        id=task.id,
        scope=Scope(part.principal, part.account),
        context_id=task.context_id,
        state=task.status.state,
        status_at=part.status_at,
        created_at=part.created_at,
        sequence=sequence,
        binding=_binding(members, part.status_at),
    )
    row = TaskRow(head, encode_json(task), sequence)
    row.resume = part.resume
    row.entries = [entry for entry in map(_entry, journal) if entry is not None]
    return row


def _journal(members: Members) -> tuple[int, list[_JournalEntry]]:
    """The sequence of the task, and its journal."""
    journal = _member(members, "journal", list[_JournalEntry])
    last = 0
    for entry in journal:
        if entry.sequence <= last:
            raise BadRecord(f"journal sequence {entry.sequence} follows {last}; it must rise")
        last = entry.sequence
    sequence = _member(members, "currentSequence", int)
    if sequence < last:
        raise BadRecord(f"currentSequence is {sequence}, behind its journal at {last}")
    return sequence, journal


def _entry(entry: _JournalEntry) -> Entry | None:
    """The event; None for the short forms of events that other programs write."""
    try:
        event = v03.decode_event(bytes(entry.event))
    except msgspec.MsgspecError:
        kind = _read("journal event", entry.event, _Kind).kind
        if kind not in _EVENT_KINDS:
            raise BadRecord(f"journal event {entry.sequence} is of kind {kind!r}") from None
        return None
    state = event.status.state if isinstance(event, StatusUpdate) else None
    return Entry(entry.sequence, encode_event(event), state)


def _gateway_part(members: Members, task: Task, modified_at: datetime) -> _GatewayPart:
    if "gateway" in members:
        return _member(members, "gateway", _GatewayPart)
    status_at = task.status.timestamp or modified_at
    binding = _binding(members, status_at)
    account = _DEFAULT_ACCOUNT if binding is None else binding.account_id
    created_at = status_at if binding is None else binding.created_at
    return _GatewayPart(LOCAL_PEER, account, status_at, created_at)


def _binding(members: Members, status_at: datetime) -> Binding | None:
    if "binding" not in members:
        return None
    try:
        return _decoder(Binding).decode(members["binding"])
    except msgspec.MsgspecError:
        pass  # other programs write times that are missing or of another form
    content = _member(members, "binding", JsonObject)
    for name in ("createdAt", "updatedAt"):
        content[name] = _parse_time(content.get(name)) or status_at
    return _decoded("binding", _decoder(Binding).decode, msgspec.json.encode(content))


def _parse_time(value: object) -> datetime | None:
    """The time another program wrote; None if it is none."""
    try:
        time = msgspec.convert(value, datetime, strict=True)
    except msgspec.ValidationError:
        return None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _member(members: Members, name: str, kind: type[T]) -> T:
    if name not in members:
        raise BadRecord(f"{name} is missing")
    return _read(name, members[name], kind)


def _read(name: str, content: bytes | Raw, kind: type[T]) -> T:
    return _decoded(name, _decoder(kind).decode, bytes(content))


@cache
def _decoder(kind: type[Any]) -> msgspec.json.Decoder[Any]:
    """One for each type: making a decoder takes longer than decoding a record."""
    return msgspec.json.Decoder(kind)


def _decoded(name: str, decode: Callable[[bytes], T], content: bytes) -> T:
    try:
        return decode(content)
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"{name} cannot be read: {error}") from None


class RecordFolder:
    """The files of the directory.

    What has returned survives a power cut, except `put`, which needs a `sync_folder`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._log: int | None = None
        self.log_size = 0

    def names(self) -> list[str]:
        """The names of the record files, in order."""
        with os.scandir(self.path) as found:
            names = [one.name for one in found]
        return sorted(one for one in names if one[0] != "." and one.endswith(".json"))

    def read(self, name: str) -> tuple[bytes, datetime]:
        """The content of a file, and when it was written. Raises: OSError."""
        # Plain calls of the system, not `pathlib`: a start reads every record.
        descriptor = os.open(f"{self.path}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            content = os.read(descriptor, status.st_size)
            while len(content) < status.st_size and (more := os.read(descriptor, status.st_size)):
                content += more
        finally:
            os.close(descriptor)
        return content, datetime.fromtimestamp(status.st_mtime, UTC)

    def put(self, file: Path, content: bytes) -> None:
        """Replace a file atomically: a crash leaves the old or the new content."""
        # Synced before it gets its name: a name never leads to content that is not on disk.
        temporary = self.path / _TEMPORARY
        try:
            descriptor = os.open(temporary, _CREATE, 0o600)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            temporary.unlink()  # a link in its place, which nobody needs
            descriptor = os.open(temporary, _CREATE, 0o600)
        try:
            append_synced(descriptor, 0, content)
        finally:
            os.close(descriptor)
        temporary.replace(file)

    def rewrite_log(self, content: bytes) -> None:
        """Replace the log."""
        self.close_log()  # its descriptor leads to the file that is replaced
        self.put(self.path / LOG_NAME, content)
        sync_folder(self.path)
        self.log_size = len(content)

    def append_to_log(self, content: bytes) -> None:
        """Append to the log and sync it; if that fails, the log is as before."""
        if self._log is None:
            self._log = os.open(self.path / LOG_NAME, _CREATE, 0o600)
        # `log_size` grows only after the sync: what a failed append left is cut off by the next
        # one.
        append_synced(self._log, self.log_size, content)
        self.log_size += len(content)

    def close_log(self) -> None:
        """Close the log."""
        if self._log is not None:
            os.close(self._log)
            self._log = None


def sync_folder(path: Path) -> None:
    """Sync a directory: makes new and removed files durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def append_synced(descriptor: int, size: int, content: bytes) -> None:
    """Put the content after the first `size` bytes of a file, and sync it."""
    # Cut off what a crash or a failed attempt left behind: it was never acknowledged.
    os.ftruncate(descriptor, size)
    os.lseek(descriptor, size, os.SEEK_SET)
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    os.fsync(descriptor)
