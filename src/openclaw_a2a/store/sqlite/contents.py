"""Rows that refer to large strings, which the table `content` holds.

A snapshot is replaced, but what it has beside the events, the messages to the task, is in every
later one too. A run refers to the contents of its task, and never has its own: it goes first, and
before there is a task it has no place for them.
"""

import sqlite3
from collections.abc import Callable, Iterable

import msgspec

from openclaw_a2a.model.errors import CorruptRecord
from openclaw_a2a.store.contents import digest_of, find_large_strings

MARK = 0
"""The first byte of a row with references. JSON never begins with it."""

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
        digest = digest_of(content)
        connection.execute(_ADD, (task, digest, content))
        return digest

    kept = [(*row[:3], _refer(row[0], row[3], add)) for row in events]
    return kept, [(*row[:2], _refer(row[0], row[2], add)) for row in snapshots]


def refer(connection: sqlite3.Connection, task: int, body: bytes) -> bytes:
    """The body with references to large strings that are stored already."""

    def find(task: int, content: bytes) -> bytes | None:
        digest = digest_of(content)
        return digest if connection.execute(_HAS, (task, digest)).fetchone() else None

    return _refer(task, body, find)


def _refer(task: int, body: bytes, store: Callable[[int, bytes], bytes | None]) -> bytes:
    references: list[Reference] = []
    rest: list[bytes] = []
    end = size = 0
    for first, last in find_large_strings(body):
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


def restore(body: bytes, find: Callable[[bytes], bytes | None]) -> bytes:
    """A row as it was written; `find` gives the content of a hash. Raises: CorruptRecord."""
    try:
        references, rest = _decoder.decode(memoryview(body)[1:])
    except (ValueError, RecursionError) as error:
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
