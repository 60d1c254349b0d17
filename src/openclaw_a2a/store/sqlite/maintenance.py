"""The rarer writes of a SQLite store: claims, renewals, deletions. They work on the tables."""

from datetime import datetime
from typing import Any, NamedTuple

from openclaw_a2a.model.ids import OwnerId, TaskId
from openclaw_a2a.model.records import RunRecord
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import PurgeResult, Retention, TaskKey
from openclaw_a2a.store.sqlite.deliveries import has_unfinished
from openclaw_a2a.store.sqlite.row_codec import (
    TERMINAL_CODES,
    decode_input,
    from_microseconds,
    to_microseconds,
)
from openclaw_a2a.store.sqlite.transaction import WriteTransaction

_SELECT_RUNS = """
SELECT ticket, id, task, context, principal, account, session_key, fence, is_started, attempt,
  input, resume
FROM run WHERE owner <> ? AND lease_until < ? ORDER BY ticket"""
_CLAIM_RUN = "UPDATE run SET owner = ?, lease_until = ?, fence = ? WHERE ticket = ?"
_RENEW = "UPDATE run SET lease_until = ? WHERE owner = ?"
_SELECT_TASK = "SELECT number, state FROM task WHERE id = ? AND principal = ? AND account = ?"
_SELECT_FINISHED = """
SELECT principal, account, state, count FROM tally WHERE state IN (3, 4, 5, 7) AND count > 0"""
SELECT_OLDEST = """
SELECT status_at, id, number, principal, account, state FROM task INDEXED BY task_by_status
WHERE principal = ? AND account = ? AND state = ? AND (status_at, id) > (?, ?) AND status_at < ?
ORDER BY status_at, id LIMIT ?"""
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


class Claim(NamedTuple):
    """An owner takes over runs."""

    owner: OwnerId
    lease_until: datetime
    expired_at: datetime | None


class Renewal(NamedTuple):
    """An owner keeps its runs."""

    owner: OwnerId
    lease_until: datetime


class Deletion(NamedTuple):
    """A caller deletes a task."""

    scope: Scope
    task_id: TaskId


def claim_runs(transaction: WriteTransaction, claim: Claim) -> list[RunRecord]:
    """Take over runs of other owners, in order of arrival, each with the next fence."""
    transaction.flush()
    before = _FOREVER if claim.expired_at is None else to_microseconds(claim.expired_at)
    rows = transaction.connection.execute(_SELECT_RUNS, (claim.owner, before)).fetchall()
    claimed = [_claimed(row, claim) for row in rows]
    lease_until = to_microseconds(claim.lease_until)
    transaction.connection.executemany(
        _CLAIM_RUN, [(run.owner, lease_until, run.fence, run.ticket) for run in claimed]
    )
    for run in claimed:
        cached = transaction.cache.runs[run.id]
        cached.owner, cached.fence = run.owner, run.fence
    return claimed


def renew_leases(transaction: WriteTransaction, renewal: Renewal) -> None:
    """Extend the lease of every run of an owner."""
    transaction.flush()
    transaction.connection.execute(_RENEW, (to_microseconds(renewal.lease_until), renewal.owner))


def delete_task(transaction: WriteTransaction, deletion: Deletion) -> bool:
    """Delete a finished task; False if it is missing or unfinished."""
    transaction.flush()
    scope = deletion.scope
    key = (deletion.task_id, scope.principal, scope.account)
    row = transaction.connection.execute(_SELECT_TASK, key).fetchone()
    if row is None or row[1] not in TERMINAL_CODES:
        return False
    _delete(transaction, [(row[0], deletion.task_id, scope.principal, scope.account, row[1])])
    return True


def purge_tasks(transaction: WriteTransaction, retention: Retention) -> PurgeResult:
    """Delete finished tasks that are too old or too many and have nothing left to deliver."""
    transaction.flush()
    purged, next_after = _choose_purgeable(transaction, retention)
    _delete(transaction, [(row[2], row[1], *row[3:]) for row in purged])
    return PurgeResult(len(purged), next_after)


def purge_messages(transaction: WriteTransaction, retention: Retention) -> int:
    """Delete old idempotency records, at most `limit`; how many were deleted."""
    transaction.flush()
    values = (to_microseconds(retention.messages_before), retention.limit)
    return transaction.connection.execute(_DELETE_MESSAGES, values).rowcount


def _choose_purgeable(
    transaction: WriteTransaction, retention: Retention
) -> tuple[list[tuple[Any, ...]], TaskKey | None]:
    groups = transaction.connection.execute(_SELECT_FINISHED).fetchall()
    surplus = sum(group[3] for group in groups) - retention.keep_ended
    old, overdue = to_microseconds(retention.ended_before), retention.undelivered_before
    held_since = _BEFORE_ALL[0] if overdue is None else to_microseconds(overdue)
    examined = _find_finished(
        transaction, retention, groups, before=_FOREVER if surplus > 0 else old
    )
    purged: list[tuple[Any, ...]] = []
    for row in examined:
        if len(purged) >= surplus and row[0] >= old:
            return purged, None
        if row[0] < held_since or not has_unfinished(transaction, row[1], row[2]):
            purged.append(row)
    if len(examined) < retention.limit:
        return purged, None
    return purged, TaskKey(from_microseconds(examined[-1][0]), TaskId(examined[-1][1]))


def _find_finished(
    transaction: WriteTransaction,
    retention: Retention,
    groups: list[tuple[str, str, int, int]],
    *,
    before: int,
) -> list[tuple[Any, ...]]:
    """The finished tasks to examine, oldest first, that ended before a time."""
    key, limit = retention.after, retention.limit
    after = _BEFORE_ALL if key is None else (to_microseconds(key.status_at), key.id)
    found: list[tuple[Any, ...]] = []
    for principal, account, state, _ in groups:
        values = (principal, account, state, *after, before, limit)
        found += transaction.connection.execute(SELECT_OLDEST, values)
    return sorted(found)[:limit]


def _claimed(row: tuple[Any, ...], claim: Claim) -> RunRecord:
    run_input = decode_input(row[10])
    return RunRecord(
        id=row[1],
        task_id=row[2],
        context_id=row[3],
        scope=Scope(row[4], row[5]),
        session_key=row[6],
        message=run_input.message,
        binding=run_input.binding,
        options=run_input.options,
        owner=claim.owner,
        lease_until=claim.lease_until,
        is_started=bool(row[8]),
        attempt=row[9],
        fence=row[7] + 1,
        ticket=row[0],
        resume=row[11],
    )


def _delete(transaction: WriteTransaction, rows: list[tuple[Any, ...]]) -> None:
    numbers = [(row[0],) for row in rows]
    for statement in (_DELETE_TASK, _DELETE_SNAPSHOT, _DELETE_EVENTS):
        transaction.connection.executemany(statement, numbers)
    transaction.connection.executemany(_DELETE_DELIVERIES, [(row[1],) for row in rows])
    for _, task_id, principal, account, state in rows:
        transaction.cache.drop_task(task_id)
        transaction.tally[principal, account, state] -= 1
