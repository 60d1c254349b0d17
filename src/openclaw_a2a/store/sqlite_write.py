"""Runs the grouped writes of a SQLite store, each group in one transaction."""

import sqlite3
from collections.abc import Sequence

from openclaw_a2a.model.errors import GatewayError, StoreUnavailable
from openclaw_a2a.store.group_writer import Outcome, Write
from openclaw_a2a.store.sqlite_batch import SqliteBatch
from openclaw_a2a.store.sqlite_live import LiveRows


class SqliteSink:
    """Where groups of writes end. Used by the writer thread alone."""

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self._connection = connection
        self._name = name
        self._live: LiveRows | None = None
        self.failure: str | None = None
        """Why the last group could not be written; None when it could."""
        self.groups = 0
        """How many transactions were committed."""

    def write_group(self, group: Sequence[Write[SqliteBatch]]) -> list[Outcome]:
        """Write the group in one transaction.

        A refusal is one write's own affair. When the database itself fails, the whole group fails;
        the next one is tried again.
        """
        try:
            outcomes = self._transact(group)
        except Exception as error:  # the edge of the writer thread, which must live on
            self._roll_back()
            if _is_database_failure(error):
                self.failure = str(error)
            elif len(group) > 1:
                # One of them cannot be written at all; the others must not suffer for it.
                return [outcome for write in group for outcome in self.write_group([write])]
            return [(write.future, None, self._unavailable(error)) for write in group]
        self.failure = None
        self.groups += 1
        return outcomes

    def _transact(self, group: Sequence[Write[SqliteBatch]]) -> list[Outcome]:
        self._connection.execute("BEGIN IMMEDIATE")
        if self._live is None:
            self._live = LiveRows(self._connection)
        batch = SqliteBatch(self._connection, self._live)
        outcomes = [_perform(batch, write) for write in group]
        batch.flush()
        self._connection.execute("COMMIT")
        return outcomes

    def _roll_back(self) -> None:
        self._live = None
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _unavailable(self, error: Exception) -> StoreUnavailable:
        unavailable = StoreUnavailable(
            f"the store {self._name} did not take the write: {error}; "
            "check the disk (space, permissions) and try again"
        )
        unavailable.__cause__ = error
        return unavailable


def _perform(batch: SqliteBatch, write: Write[SqliteBatch]) -> Outcome:
    try:
        return write.future, write.perform(batch, write.order), None
    except GatewayError as refusal:
        return write.future, None, refusal


def _is_database_failure(error: Exception) -> bool:
    """True for a full disk, a failing device, a damaged file; false for a row that cannot be."""
    return isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError
