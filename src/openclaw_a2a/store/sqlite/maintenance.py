"""The rarer writes of a SQLite store: claims, renewals, deletions. They work on the tables."""

from typing import Any

from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.records import RunRecord
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import PurgeResult, Retention
from openclaw_a2a.store.commands import ClaimRuns, RenewLeases
from openclaw_a2a.store.rules import choose_purgeable
from openclaw_a2a.store.sqlite.row_codec import (
    TERMINAL_CODES,
    decode_run,
    from_microseconds,
    to_microseconds,
)
from openclaw_a2a.store.sqlite.transaction import WriteTransaction

_CLAIM_RUNS = """
UPDATE run SET owner = ?, lease_until = ?, fence = fence + 1
WHERE owner <> ? AND lease_until < ?
RETURNING ticket, id, task, context, principal, account, session_key, message_id, owner, fence,
  lease_until, is_started, attempt, input, resume"""
_RENEW = "UPDATE run SET lease_until = ? WHERE owner = ?"
_SELECT_TASK = """
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
_DELETE_DELIVERIES = "DELETE FROM delivery WHERE task = ?"
_DELETE_MESSAGES = """
DELETE FROM message WHERE number IN (
  SELECT number FROM message WHERE created_at < ? ORDER BY created_at LIMIT ?)"""

_FOREVER = 2**63 - 1

_BEFORE_ALL = (-(2**63), "")
"""Sorts before every task."""


def claim_runs(transaction: WriteTransaction, command: ClaimRuns) -> list[RunRecord]:
    """In order of arrival, each with the next fence."""
    transaction.flush()
    owner, lease_until = command.owner, to_microseconds(command.lease_until)
    before = _FOREVER if command.expired_at is None else to_microseconds(command.expired_at)
    rows = transaction.connection.execute(_CLAIM_RUNS, (owner, lease_until, owner, before))
    claimed = sorted(map(decode_run, rows), key=lambda run: run.ticket)
    for run in claimed:
        # From now on the former owner's writes are refused, those of this group included.
        transaction.cache.runs[run.id].fence = run.fence
    return claimed


def renew_leases(transaction: WriteTransaction, command: RenewLeases) -> None:
    """Extend the lease of every run of an owner."""
    transaction.flush()
    transaction.connection.execute(_RENEW, (to_microseconds(command.lease_until), command.owner))


def delete_task(transaction: WriteTransaction, scope: Scope, task_id: TaskId) -> bool:
    """Delete a finished task; False if it is missing or unfinished."""
    transaction.flush()
    key = (task_id, scope.principal, scope.account)
    row = transaction.connection.execute(_SELECT_TASK, key).fetchone()
    if row is None or row[5] not in TERMINAL_CODES:
        return False
    _delete(transaction, [row])
    return True


def purge_tasks(transaction: WriteTransaction, retention: Retention) -> PurgeResult:
    """Delete finished tasks that are too old or too many and have nothing left to deliver."""
    transaction.flush()
    execute = transaction.connection.execute
    key, limit = retention.after, retention.limit
    after = _BEFORE_ALL if key is None else (to_microseconds(key.status_at), key.id)
    groups = execute(_SELECT_FINISHED).fetchall()
    finished = sum(group[3] for group in groups)
    is_surplus = finished > retention.keep_ended
    before = _FOREVER if is_surplus else to_microseconds(retention.ended_before)
    found: list[tuple[Any, ...]] = []
    for group in groups:
        found += execute(SELECT_OLDEST, (*group[:3], *after, before, limit))
    purged, next_after = choose_purgeable(
        [(from_microseconds(row[0]), *row[1:]) for row in sorted(found)[:limit]],
        retention,
        finished=finished,
        is_held=lambda row: execute(SELECT_HOLDING, row[1:3]).fetchone() is not None,
    )
    _delete(transaction, purged)
    return PurgeResult(len(purged), next_after)


def purge_messages(transaction: WriteTransaction, retention: Retention) -> int:
    """Delete old idempotency records, at most `limit`; how many were deleted."""
    transaction.flush()
    values = (to_microseconds(retention.messages_before), retention.limit)
    return transaction.connection.execute(_DELETE_MESSAGES, values).rowcount


def _delete(transaction: WriteTransaction, rows: list[tuple[Any, ...]]) -> None:
    for statement in (_DELETE_TASK, _DELETE_SNAPSHOT, _DELETE_EVENTS):
        transaction.connection.executemany(statement, [(row[2],) for row in rows])
    transaction.connection.executemany(_DELETE_DELIVERIES, [(row[1],) for row in rows])
    for _, task_id, _, principal, account, state in rows:
        transaction.cache.tasks.pop(task_id, None)
        transaction.tally[principal, account, state] -= 1
