"""Large strings of events, each stored once per task.

The answer of an agent is an artifact and, as a rule, the text of the last status as well; a
snapshot holds it a third time. A long string of an event goes to the table `content`, under the
hash of its bytes, and the rows that hold it keep a reference. Readers get the bytes as they were
written.

Events are kept as long as their task, so what they refer to is needed as long: contents are deleted
with their task and need no count of references. Snapshots are replaced; a snapshot refers to
contents of events, and never has its own.
"""

import hashlib
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import msgspec

from openclaw_a2a.model.errors import CorruptRecord

LARGE_BYTES = 32 * 1024
"""A string of this size is stored by itself; a row that is smaller is stored as it is."""

MARK = 0
"""The first byte of a row with references. JSON never begins with it."""

_STRING = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL)
_MOST_STRINGS = 10_000
"""How many strings of a row are looked at: beyond that it is no text or file but a structure."""

_ADD = "INSERT INTO content (task, hash, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_HAS = "SELECT 1 FROM content WHERE task = ? AND hash = ?"

Reference = tuple[int, bytes]
"""Where a content belongs in the row without it, and its hash."""
_encode = msgspec.msgpack.encode
_decoder = msgspec.msgpack.Decoder(tuple[list[Reference], bytes])


def spill(
    connection: sqlite3.Connection,
    events: list[tuple[int, int, int | None, bytes]],
    snapshots: Iterable[tuple[int, int, bytes]],
) -> tuple[list[tuple[int, int, int | None, bytes]], list[tuple[int, int, bytes]]]:
    """The rows with references in place of large strings; what they refer to is stored."""

    def add(task: int, content: bytes) -> bytes:
        digest = hashlib.sha256(content).digest()
        connection.execute(_ADD, (task, digest, content))
        return digest

    def find(task: int, content: bytes) -> bytes | None:
        digest = hashlib.sha256(content).digest()
        return digest if connection.execute(_HAS, (task, digest)).fetchone() else None

    # Events first: a snapshot refers to the contents of the events before it.
    kept = [(*row[:3], _refer(row[0], row[3], add)) for row in events]
    return kept, [(*row[:2], _refer(row[0], row[2], find)) for row in snapshots]


def _refer(task: int, body: bytes, store: Callable[[int, bytes], bytes | None]) -> bytes:
    if len(body) < LARGE_BYTES:
        return body
    references: list[Reference] = []
    rest: list[bytes] = []
    end = size = 0
    for first, last in _large_strings(body):
        digest = store(task, body[first:last])
        if digest is not None:
            rest.append(body[end:first])
            size += first - end
            references.append((size, digest))
            end = last
    if not references:
        return body
    rest.append(body[end:])
    return bytes([MARK]) + _encode((references, b"".join(rest)))


def _large_strings(body: bytes) -> Iterator[tuple[int, int]]:
    for match in islice(_STRING.finditer(body), _MOST_STRINGS):
        first, last = match.span(1)
        if last - first >= LARGE_BYTES:
            yield first, last


def restore(body: bytes, find: Callable[[bytes], bytes | None]) -> bytes:
    """A row as it was written; `find` gives the content of a hash. Raises: CorruptRecord."""
    try:
        references, rest = _decoder.decode(memoryview(body)[1:])
    except msgspec.DecodeError as error:
        raise CorruptRecord(
            f"a stored row cannot be read: {error}; restore the database from a backup"
        ) from error
    pieces: list[bytes] = []
    end = 0
    for place, digest in references:
        content = find(digest)
        if content is None:
            raise CorruptRecord(
                f"the stored content {digest.hex()[:16]} is missing; restore the database from a "
                "backup"
            )
        pieces += rest[end:place], content
        end = place
    return b"".join((*pieces, rest[end:]))
