"""The large strings of a json-file store: one file per task, to which its record and the log refer.

A reference stands in the place of the string: a mark, and the hash of the string. The mark is new
in every process, so it is nothing that a peer can write; what holds references also holds the mark
they were made with. A file only grows, at its end, and holds for every string

    <hash in hex> <length>
    <the string, as it is between its quotes in JSON>

Strings are durable before anything that refers to them: the file is synced before the line of the
log, and before the record file.
"""

import os
import secrets
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.store.contents import digest_of, find_large_strings
from openclaw_a2a.store.json_file.record_files import append_synced, record_file_name, sync_folder

MARK_NAME = f"content-{secrets.token_hex(16)}"
"""What is stored beside the references of this process: the mark without its end, or the place
that names the mark would look like a reference."""

_FOLDER = ".contents"
_SUFFIX = ".json"  # of a record file; the file with its strings has the rest of the name
_KEY_SIZE = 2 * len(digest_of(b""))
_MAX_DIGITS = 12  # of a length
# Not through a link: what it leads to would be overwritten.
_OPEN = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class _ContentFile(msgspec.Struct):
    """What is known of a file while its task changes; `added` are not written yet."""

    size: int
    keys: set[bytes]
    added: dict[bytes, bytes] = {}


class ContentFolder:
    """The files of a store's directory. Used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._parent = path
        self._path = path / _FOLDER
        self._files: dict[TaskId, _ContentFile] = {}

    def spill(self, task_id: TaskId, body: bytes) -> bytes:
        """The JSON with references for its large strings, which the next `flush` writes."""
        return self._refer(task_id, body, adds=True)

    def refer(self, task_id: TaskId, body: bytes) -> bytes:
        """The JSON with references for those large strings that the task has already."""
        return self._refer(task_id, body, adds=False)

    def flush(self) -> None:
        """Make what was added durable. Raises: OSError (it stays added)."""
        for task_id, file in self._files.items():
            if file.added:
                self._append(task_id, file)

    def release(self, task_id: TaskId) -> None:
        """Keep nothing of a task in memory, added strings neither."""
        self._files.pop(task_id, None)

    def release_others(self, kept: Collection[TaskId]) -> None:
        """Keep nothing in memory of any other task."""
        for task_id in self._files.keys() - kept:
            del self._files[task_id]

    def names(self) -> set[str]:
        """The names of the records that have strings here. Raises: OSError."""
        try:
            return {f"{file.name}{_SUFFIX}" for file in self._path.iterdir()}
        except FileNotFoundError:
            return set()

    def read(self, name: str) -> dict[bytes, bytes]:
        """The strings of a record by their hash, as far as they are intact. Raises: OSError."""
        try:
            content = self._file(name).read_bytes()
        except FileNotFoundError:
            return {}
        return _parse(content)[0]

    def delete(self, name: str) -> None:
        """Delete the strings of a record. Raises: OSError."""
        self._file(name).unlink(missing_ok=True)

    def _refer(self, task_id: TaskId, body: bytes, *, adds: bool) -> bytes:
        pieces: list[bytes] = []
        end = 0
        for first, last in find_large_strings(body):
            file = self._files.get(task_id) or self._load(task_id)
            content = body[first:last]
            key = digest_of(content).hex().encode()
            if key not in file.keys and key not in file.added:
                if not adds:
                    continue
                file.added[key] = content
            pieces += body[end:first], _mark(MARK_NAME), key
            end = last
        return b"".join((*pieces, body[end:])) if pieces else body

    def _load(self, task_id: TaskId) -> _ContentFile:
        found, size = {}, 0
        # A file that cannot be read has no strings: they are added again.
        with suppress(OSError):
            found, size = _parse(self._file(record_file_name(task_id)).read_bytes())
        file = self._files[task_id] = _ContentFile(size, set(found))
        return file

    def _append(self, task_id: TaskId, file: _ContentFile) -> None:
        self._ensure_folder()
        content = b"".join(
            [b"%b %d\n%b\n" % (key, len(value), value) for key, value in file.added.items()]
        )
        descriptor = os.open(self._file(record_file_name(task_id)), _OPEN, 0o600)
        try:
            if os.fstat(descriptor).st_size < file.size:  # another program shortened or removed it
                file.size, file.keys = 0, set()
            append_synced(descriptor, file.size, content)
        finally:
            os.close(descriptor)
        if file.size == 0:  # new names, of the file and perhaps of its folder
            sync_folder(self._path)
            sync_folder(self._parent)
        file.size += len(content)
        file.keys.update(file.added)
        file.added = {}

    def _ensure_folder(self) -> None:
        try:
            self._path.mkdir(mode=0o700)
        except FileExistsError:
            if self._path.is_symlink():  # in its place, which is not needed
                self._path.unlink()
                self._path.mkdir(mode=0o700)

    def _file(self, name: str) -> Path:
        return self._path / name.removesuffix(_SUFFIX)


def restore_strings(body: bytes, mark_name: str, contents: Mapping[bytes, bytes]) -> bytes:
    """The JSON as it was. Raises: KeyError (a string is missing)."""
    first, *rest = body.split(_mark(mark_name))
    pieces = [first]
    for piece in rest:
        pieces += contents[piece[:_KEY_SIZE]], piece[_KEY_SIZE:]
    return b"".join(pieces)


def _mark(name: str) -> bytes:
    return f"{name}-".encode()


def _parse(content: bytes) -> tuple[dict[bytes, bytes], int]:
    """The strings, and where the first one that is not intact begins."""
    contents: dict[bytes, bytes] = {}
    end = 0
    while (line := content.find(b"\n", end)) >= 0:
        key, _, length = content[end:line].partition(b" ")
        if not length.isdigit() or len(length) > _MAX_DIGITS:
            break
        last = line + 1 + int(length)
        value = content[line + 1 : last]
        # A crash may leave the beginning of a string at the end of the file.
        if content[last : last + 1] != b"\n" or digest_of(value).hex().encode() != key:
            break
        contents[key] = value
        end = last + 1
    return contents, end
