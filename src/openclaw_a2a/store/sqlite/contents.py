"""Rows that refer to large strings, which the table `content` holds.

A snapshot is replaced, but what it has beside the events, the messages to the task, is in every
later one too. A run refers to the contents of its task, and never has its own: it goes first, and
before there is a task it has no place for them.
"""

import sqlite3
from collections.abc import Iterable

from openclaw_a2a.store.contents import replace_large_strings

_ADD = "INSERT INTO content (task, hash, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_HAS = "SELECT 1 FROM content WHERE task = ? AND hash = ?"


def spill(
    connection: sqlite3.Connection,
    events: list[tuple[int, int, int | None, bytes]],
    snapshots: Iterable[tuple[int, int, bytes]],
) -> tuple[list[tuple[int, int, int | None, bytes]], list[tuple[int, int, bytes]]]:
    """The rows with references in place of large strings; what they refer to is stored."""

    def refer_all(task: int, body: bytes) -> bytes:
        def add(digest: bytes, content: bytes) -> bool:
            connection.execute(_ADD, (task, digest, content))
            return True

        return replace_large_strings(body, add)

    kept = [(*row[:3], refer_all(row[0], row[3])) for row in events]
    return kept, [(*row[:2], refer_all(row[0], row[2])) for row in snapshots]


def refer(connection: sqlite3.Connection, task: int, body: bytes) -> bytes:
    """The body with references to large strings that are stored already."""

    def is_stored(digest: bytes, _content: bytes) -> bool:
        return connection.execute(_HAS, (task, digest)).fetchone() is not None

    return replace_large_strings(body, is_stored)
