"""The rarer writes of a SQLite store: claims, renewals, deletions. Each works on whole tables."""

from datetime import datetime
from typing import Any, NamedTuple

from openclaw_a2a.model.ids import OwnerId, TaskId
from openclaw_a2a.model.records import RunRecord
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import PurgeResult, Retention, TaskKey
from openclaw_a2a.store.sqlite import deliveries
from openclaw_a2a.store.sqlite.row_codec import (
    ENDED_CODES,
    decode_input,
    from_microseconds,
    to_microseconds,
)
from openclaw_a2a.store.sqlite.transaction import SqliteBatch

_SELECT_RUNS = """
SELECT ticket, id, task, context, principal, account, session_key, fence, is_started, attempt,
  input, resume
FROM run WHERE owner <> ? AND lease_until < ? ORDER BY ticket"""
_CLAIM_RUN = "UPDATE run SET owner = ?, lease_until = ?, fence = ? WHERE ticket = ?"
_RENEW = "UPDATE run SET lease_until = ? WHERE owner = ?"
_SELECT_TASK = "SELECT number, state FROM task WHERE id = ? AND principal = ? AND account = ?"
_SELECT_ENDED = """
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
_PROBE = "UPDATE schema_version SET checked = checked + 1"

_FOREVER = 2**63 - 1

_BEGINNING = (-(2**63), "")
"""Comes before every task."""


class Claim(NamedTuple):
    """Somebody takes over runs."""

    owner: OwnerId
    lease_until: datetime
    expired_at: datetime | None


class Renewal(NamedTuple):
    """Somebody keeps its runs."""

    owner: OwnerId
    lease_until: datetime


class Deletion(NamedTuple):
    """Somebody wants a task gone."""

    scope: Scope
    task_id: TaskId


def claim_runs(batch: SqliteBatch, claim: Claim) -> list[RunRecord]:
    """Take over runs of other owners, in order of arrival, each with a higher fence."""
    batch.flush()
    before = _FOREVER if claim.expired_at is None else to_microseconds(claim.expired_at)
    rows = batch.connection.execute(_SELECT_RUNS, (claim.owner, before)).fetchall()
    claimed = [_claimed(row, claim) for row in rows]
    lease_until = to_microseconds(claim.lease_until)
    batch.connection.executemany(
        _CLAIM_RUN, [(run.owner, lease_until, run.fence, run.ticket) for run in claimed]
    )
    for run in claimed:
        live = batch.live.runs[run.id]
        live.owner, live.fence = run.owner, run.fence
    return claimed


def renew_leases(batch: SqliteBatch, renewal: Renewal) -> None:
    """Keep all runs of this owner."""
    batch.flush()
    batch.connection.execute(_RENEW, (to_microseconds(renewal.lease_until), renewal.owner))


def delete_task(batch: SqliteBatch, deletion: Deletion) -> bool:
    """Forget an ended task; False when it is not there or not ended."""
    batch.flush()
    scope = deletion.scope
    key = (deletion.task_id, scope.principal, scope.account)
    row = batch.connection.execute(_SELECT_TASK, key).fetchone()
    if row is None or row[1] not in ENDED_CODES:
        return False
    _delete(batch, [(row[0], deletion.task_id, scope.principal, scope.account, row[1])])
    return True


def forget_tasks(batch: SqliteBatch, retention: Retention) -> PurgeResult:
    """Delete ended tasks that are too old or too many, and of which all is brought."""
    batch.flush()
    gone, next_after = _choose_forgettable(batch, retention)
    _delete(batch, [(row[2], row[1], *row[3:]) for row in gone])
    return PurgeResult(len(gone), next_after)


def forget_messages(batch: SqliteBatch, retention: Retention) -> int:
    """Delete old message records, at most `limit`; how many went."""
    batch.flush()
    moment = to_microseconds(retention.messages_before)
    return batch.connection.execute(_DELETE_MESSAGES, (moment, retention.limit)).rowcount


def probe(batch: SqliteBatch, _: None) -> None:
    """Write something of no meaning, to see whether writing works."""
    batch.connection.execute(_PROBE)


def _choose_forgettable(
    batch: SqliteBatch, retention: Retention
) -> tuple[list[tuple[Any, ...]], TaskKey | None]:
    groups = batch.connection.execute(_SELECT_ENDED).fetchall()
    surplus = sum(group[3] for group in groups) - retention.keep_ended
    old, overdue = to_microseconds(retention.ended_before), retention.undelivered_before
    held_since = _BEGINNING[0] if overdue is None else to_microseconds(overdue)
    looked_at = _find_ended(batch, retention, groups, before=_FOREVER if surplus > 0 else old)
    gone: list[tuple[Any, ...]] = []
    for row in looked_at:
        if len(gone) >= surplus and row[0] >= old:
            return gone, None
        if row[0] < held_since or not deliveries.holds(batch, row[1], row[2]):
            gone.append(row)
    if len(looked_at) < retention.limit:
        return gone, None
    return gone, TaskKey(from_microseconds(looked_at[-1][0]), TaskId(looked_at[-1][1]))


def _find_ended(
    batch: SqliteBatch,
    retention: Retention,
    groups: list[tuple[str, str, int, int]],
    *,
    before: int,
) -> list[tuple[Any, ...]]:
    """The ended tasks to look at, the oldest first, as far as they ended before a moment."""
    key, limit = retention.after, retention.limit
    after = _BEGINNING if key is None else (to_microseconds(key.status_at), key.id)
    found: list[tuple[Any, ...]] = []
    for principal, account, state, _ in groups:
        values = (principal, account, state, *after, before, limit)
        found += batch.connection.execute(SELECT_OLDEST, values)
    return sorted(found)[:limit]


def _claimed(row: tuple[Any, ...], claim: Claim) -> RunRecord:
    asked = decode_input(row[10])
    return RunRecord(
        id=row[1],
        task_id=row[2],
        context_id=row[3],
        scope=Scope(row[4], row[5]),
        session_key=row[6],
        message=asked.message,
        binding=asked.binding,
        options=asked.options,
        owner=claim.owner,
        lease_until=claim.lease_until,
        is_started=bool(row[8]),
        attempt=row[9],
        fence=row[7] + 1,
        ticket=row[0],
        resume=row[11],
    )


def _delete(batch: SqliteBatch, rows: list[tuple[Any, ...]]) -> None:
    numbers = [(row[0],) for row in rows]
    for statement in (_DELETE_TASK, _DELETE_SNAPSHOT, _DELETE_EVENTS):
        batch.connection.executemany(statement, numbers)
    batch.connection.executemany(_DELETE_DELIVERIES, [(row[1],) for row in rows])
    for _, task_id, principal, account, state in rows:
        batch.live.drop_task(task_id)
        batch.tally[principal, account, state] -= 1
