"""The task store over SQLite, with its rarer writes: claims and deletions.

They work on the tables, so they flush what the transaction has collected first.
"""

from collections.abc import Awaitable
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from typing import Any

import msgspec

from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.records import RunRecord
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import PurgeResult, Retention
from openclaw_a2a.store.columns import CLAIMED_COLUMNS, TERMINAL_CODES, decode_claimed_run
from openclaw_a2a.store.commands import ClaimRuns, TaskWrites
from openclaw_a2a.store.contents import MARK, restore
from openclaw_a2a.store.rules import (
    PURGE_BATCH,
    UNREADABLE,
    choose_purgeable,
    purge_in_batches,
    report_damage,
)
from openclaw_a2a.store.sqlite.records import purge_records
from openclaw_a2a.store.sqlite.task_lists import FIRST_TIME, LAST_TIME, SqliteTaskLists
from openclaw_a2a.store.sqlite.transaction import (
    WriteTransaction,
    from_microseconds,
    to_microseconds,
)

_CLAIM = "UPDATE run SET owner = :owner, fence = fence + 1 WHERE owner <> :owner"
_CLAIM_RUNS = f"{_CLAIM} RETURNING {CLAIMED_COLUMNS}"
_SELECT_RUN_CONTENT = """
SELECT body FROM content WHERE task = (SELECT number FROM task WHERE id = ?) AND hash = ?"""
_DELETE_RUN = "DELETE FROM run WHERE ticket = ?"
_SELECT_OWN_TASK = """
SELECT status_at, id, number, principal, account, state FROM task
WHERE id = ? AND principal = ? AND account = ?"""
_SELECT_FINISHED = """
SELECT principal, account, state, count FROM tally WHERE state IN (3, 4, 5, 7) AND count > 0"""
SELECT_OLDEST = """
SELECT status_at, id, number, principal, account, state FROM task INDEXED BY task_by_status
WHERE principal = ? AND account = ? AND state = ? AND (status_at, id) > (?, ?) AND status_at < ?
ORDER BY status_at, id LIMIT ?"""
# The deliveries that `list_unfinished_deliveries` has of a finished task.
SELECT_HOLDING = """
SELECT 1 FROM delivery d INDEXED BY delivery_by_task
WHERE d.task = ? AND d.state <> 2
  AND (d.state = 1 OR d.cursor < (SELECT t.sequence FROM task t WHERE t.number = ?))
LIMIT 1"""
_DELETE_TASK = "DELETE FROM task WHERE number = ?"
_DELETE_SNAPSHOT = "DELETE FROM snapshot WHERE task = ?"
_DELETE_EVENTS = "DELETE FROM event WHERE task = ?"
_DELETE_CONTENTS = "DELETE FROM content WHERE task = ?"
_DELETE_DELIVERIES = "DELETE FROM delivery WHERE task = ?"
_DELETE_MESSAGES = """
DELETE FROM message WHERE number IN (
  SELECT number FROM message WHERE created_at < ? ORDER BY created_at LIMIT ?)"""


class SqliteTaskStore(SqliteTaskLists, TaskWrites):
    """The task store over a database."""

    def delete_task(self, scope: Scope, task_id: TaskId) -> Awaitable[bool]:
        return self._write(partial(delete_task, scope=scope, task_id=task_id))

    async def purge(self, retention: Retention) -> PurgeResult:
        batch = msgspec.structs.replace(retention, limit=PURGE_BATCH)
        return await purge_in_batches(
            retention,
            purge_tasks=lambda batch: self._write(partial(purge_tasks, retention=batch)),
            purge_messages=lambda: self._write(partial(purge_messages, retention=batch)),
            purge_records=lambda: self._write(partial(purge_records, retention=batch)),
        )


def claim_runs(transaction: WriteTransaction, command: ClaimRuns) -> list[RunRecord]:
    """In order of arrival, each with the next fence."""
    transaction.flush()
    owner = command.owner
    rows = transaction.connection.execute(_CLAIM_RUNS, {"owner": owner}).fetchall()
    claimed: list[RunRecord] = []
    # RETURNING has no order. The first column is the ticket.
    for row in sorted(rows, key=itemgetter(0)):
        try:
            run_input = row[-1]
            if run_input[0] == MARK:
                run_input = restore(run_input, partial(_find_run_content, transaction, row[2]))
            run = decode_claimed_run(row, run_input, owner)
        except UNREADABLE as error:
            # What was to be done cannot be read any more. Without its run the task is an orphan,
            # which recovery fails; left alone it would stay `working` for ever.
            report_damage("sqlite", "run", row[1], f"{type(error).__name__}: {error}; removed")
            transaction.connection.execute(_DELETE_RUN, (row[0],))
            transaction.cache.runs.pop(row[1], None)
            continue
        # From now on the former owner's writes are refused, those of this group included.
        transaction.cache.runs[run.id].fence = run.fence
        claimed.append(run)
    return claimed


def _find_run_content(
    transaction: WriteTransaction, task_id: TaskId, digest: bytes
) -> bytes | None:
    found = transaction.connection.execute(_SELECT_RUN_CONTENT, (task_id, digest)).fetchone()
    return None if found is None else found[0]


def delete_task(transaction: WriteTransaction, scope: Scope, task_id: TaskId) -> bool:
    """Delete a finished task; False if it is missing or unfinished."""
    transaction.flush()
    key = (task_id, scope.principal, scope.account)
    row = transaction.connection.execute(_SELECT_OWN_TASK, key).fetchone()
    if row is None or row[5] not in TERMINAL_CODES:
        return False
    _delete(transaction, [row])
    return True


def purge_tasks(transaction: WriteTransaction, retention: Retention) -> PurgeResult:
    """Delete finished tasks that are too old or too many and have nothing left to deliver."""
    transaction.flush()
    execute = transaction.connection.execute
    key, limit = retention.after, retention.limit
    after = (FIRST_TIME, "") if key is None else (to_microseconds(key.status_at), key.id)
    # One range of the index per caller and state, merged: the oldest of all without a scan.
    groups = execute(_SELECT_FINISHED).fetchall()
    finished = sum(group[3] for group in groups)
    is_surplus = finished > retention.keep_ended
    # With a surplus every finished task may be due, however young.
    before = LAST_TIME if is_surplus else to_microseconds(retention.ended_before)
    found: list[tuple[Any, ...]] = []
    for group in groups:
        found += execute(SELECT_OLDEST, (*group[:3], *after, before, limit))
    purged, next_after = choose_purgeable(
        [(_clamp_time(row[0]), *row[1:]) for row in sorted(found)[:limit]],
        retention,
        finished=finished,
        is_held=lambda row: execute(SELECT_HOLDING, row[1:3]).fetchone() is not None,
    )
    _delete(transaction, purged)
    return PurgeResult(len(purged), next_after)


def _clamp_time(count: int) -> datetime:
    """The time of a column value; of a damaged one the nearest there is."""
    try:
        return from_microseconds(count)
    except OverflowError:
        return (datetime.min if count < 0 else datetime.max).replace(tzinfo=UTC)


def purge_messages(transaction: WriteTransaction, retention: Retention) -> int:
    """Delete old idempotency records, at most `limit`; how many were deleted."""
    transaction.flush()
    values = (to_microseconds(retention.messages_before), retention.limit)
    return transaction.connection.execute(_DELETE_MESSAGES, values).rowcount


def _delete(transaction: WriteTransaction, rows: list[tuple[Any, ...]]) -> None:
    # Not the idempotency record: a message that is repeated after its task was deleted must not run
    # again. It has an age limit of its own, see `purge_messages`.
    for statement in (_DELETE_TASK, _DELETE_SNAPSHOT, _DELETE_EVENTS, _DELETE_CONTENTS):
        transaction.connection.executemany(statement, [(row[2],) for row in rows])
    transaction.connection.executemany(_DELETE_DELIVERIES, [(row[1],) for row in rows])
    for _, task_id, _, principal, account, state in rows:
        transaction.forget_task(task_id)
        transaction.tally[principal, account, state] -= 1
