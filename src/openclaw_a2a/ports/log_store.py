"""The log store: append-only logs with optimistic locking (one per objective)."""

from collections.abc import Awaitable, Sequence
from datetime import datetime
from typing import Protocol

import msgspec


class LogLine(msgspec.Struct, frozen=True, gc=False):
    """One line of a log, without its line end, and its sequence number."""

    sequence: int
    body: bytes


class StoredLog(msgspec.Struct, frozen=True, gc=False):
    """A log with all its lines in order; there is at least one.

    `problems` are sentences for people about lines that could not be read and were skipped.
    """

    id: str
    lines: tuple[LogLine, ...]
    is_closed: bool
    problems: tuple[str, ...] = ()

    @property
    def sequence(self) -> int:
        """The sequence of its last line: what the next append comes after."""
        return self.lines[-1].sequence


class LogHead(msgspec.Struct, frozen=True, gc=False):
    """A log without its lines; `updated_at` by the clock of the store."""

    id: str
    sequence: int
    is_closed: bool
    updated_at: datetime


class LogAppend(msgspec.Struct, frozen=True, gc=False):
    """Lines for the end of a log; the first gets the sequence `after` + 1.

    `closes` takes the log out of `list_open_logs` until an append `reopens` it. The last line of
    a closed log has the op `archive`: the json-file store recognises a closed log by nothing else.
    """

    kind: str
    log_id: str
    bodies: Sequence[bytes]
    after: int
    closes: bool = False
    reopens: bool = False

    @property
    def last(self) -> int:
        """The sequence of the log afterwards."""
        return self.after + len(self.bodies)

    def lines(self) -> list[LogLine]:
        """The new lines with their sequences."""
        return [LogLine(number, body) for number, body in enumerate(self.bodies, self.after + 1)]

    def leaves_closed(self, was_closed: bool) -> bool:
        """True if the log is closed afterwards."""
        return self.closes or (was_closed and not self.reopens)


class LogStore(Protocol):
    """Logs by kind and id. Appends take effect in call order and are durable when they return."""

    def append_log(self, change: LogAppend) -> Awaitable[bool]:
        """Append lines, all or none.

        False, and nothing changes, if the log is not at `after` (0: it must not exist) or there
        are no lines. Raises: CorruptRecord (a line that a file cannot hold: it must be one JSON
        object, whose `seq`, if present, is its sequence).
        """
        ...

    async def read_log(self, kind: str, log_id: str) -> StoredLog | None:
        """One log, open or closed."""
        ...

    async def list_open_logs(self, kind: str, *, after: str, limit: int) -> list[StoredLog]:
        """Logs that are not closed, by id, starting after `after`.

        Fewer than `limit` only at the end.
        """
        ...

    async def list_log_heads(self, kind: str, *, after: str, limit: int) -> list[LogHead]:
        """All logs, open or closed, by id, starting after `after`."""
        ...

    def delete_log(self, kind: str, log_id: str) -> Awaitable[bool]:
        """Delete a log; False if there was none."""
        ...
