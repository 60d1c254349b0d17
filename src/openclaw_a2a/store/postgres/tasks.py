"""The task store over PostgreSQL, with the writes that work on whole tables."""

from collections.abc import Awaitable
from datetime import datetime
from functools import partial
from time import monotonic
from typing import Any

from openclaw_a2a.model.errors import StoreUnavailable
from openclaw_a2a.model.ids import OwnerId, TaskId
from openclaw_a2a.model.records import RunRecord
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.ports import PurgeResult, Retention
from openclaw_a2a.store.columns import CLAIMED_COLUMNS, TERMINAL_CODES
from openclaw_a2a.store.commands import TaskWrites
from openclaw_a2a.store.postgres.address import Session
from openclaw_a2a.store.postgres.replicas import IS_LIVE, TakenWork, read_run, take_over_rest
from openclaw_a2a.store.postgres.task_lists import PostgresTaskLists
from openclaw_a2a.store.rules import (
    PURGE_BATCH,
    UNREADABLE,
    choose_purgeable,
    purge_in_batches,
    report_damage,
)

_CLAIM_RUNS = f"""
UPDATE run SET owner = $1, fence = fence + 1 WHERE owner <> $1 RETURNING {CLAIMED_COLUMNS}"""
# Runs of an agent that another replica has are left to that one.
_TAKE_RUNS = f"""
UPDATE run SET owner = $1, fence = fence + 1
WHERE owner <> $1 AND NOT {IS_LIVE.format(owner="run.owner")}
  AND (agent = '' OR agent = ANY (SELECT unnest(agents) FROM writer WHERE name = $1)
    OR NOT EXISTS (SELECT FROM writer w WHERE agent = ANY (w.agents) AND NOT w.is_gone))
RETURNING {CLAIMED_COLUMNS}"""
_READ_OWN_TASK = """
SELECT status_at, id, number, principal, account, state, sequence FROM task
WHERE id = $1 AND principal = $2 AND account = $3 FOR UPDATE"""
_LOCK_PURGE = "SELECT pg_try_advisory_xact_lock(hashtext(current_schema() || ' purge'))"
_COUNT_FINISHED = "SELECT coalesce(sum(count), 0) FROM tally WHERE state IN (3, 4, 5, 7)"
_OLDEST_OF_GROUP = """
WHERE t.principal = y.principal AND t.account = y.account AND t.state = y.state
  AND (t.status_at, t.id) > (coalesce($1::timestamptz, '-infinity'), $2::text COLLATE "C")
  AND t.status_at < coalesce($3::timestamptz, 'infinity')
ORDER BY t.status_at, t.id"""
# The oldest n tasks are among those of the n groups whose oldest is oldest.
_LIST_OLDEST = f"""
SELECT k.* FROM (
  SELECT y.principal, y.account, y.state FROM (
    SELECT principal, account, state FROM tally WHERE state IN (3, 4, 5, 7)
    GROUP BY principal, account, state HAVING sum(count) > 0
  ) y
  CROSS JOIN LATERAL (SELECT t.status_at, t.id FROM task t {_OLDEST_OF_GROUP} LIMIT 1) oldest
  ORDER BY oldest.status_at, oldest.id LIMIT $4
) y
CROSS JOIN LATERAL (
  SELECT t.status_at, t.id, t.number, t.principal, t.account, t.state, t.sequence FROM task t
  {_OLDEST_OF_GROUP} LIMIT $4
) k
ORDER BY k.status_at, k.id LIMIT $4"""
# The deliveries that `list_unfinished_deliveries` has of finished tasks.
_LIST_HOLDING = """
SELECT DISTINCT d.task FROM unnest($1::text[], $2::bigint[]) AS x(task, sequence)
JOIN delivery d ON d.task = x.task
WHERE d.state <> 2 AND (d.state = 1 OR d.cursor < x.sequence)"""
_DELETE = (
    "DELETE FROM task WHERE number = ANY ($1::bigint[])",
    "DELETE FROM snapshot WHERE task = ANY ($1::bigint[])",
    "DELETE FROM event WHERE task = ANY ($1::bigint[])",
    "DELETE FROM content WHERE task = ANY ($1::bigint[])",
)
_DELETE_DELIVERIES = "DELETE FROM delivery WHERE task = ANY ($1::text[])"
_UNCOUNT = """
INSERT INTO tally AS y (principal, account, state, shard, count)
SELECT x.principal, x.account, x.state, 0, -count(*)
FROM unnest($1::text[], $2::text[], $3::smallint[]) AS x(principal, account, state)
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
ON CONFLICT (principal, account, state, shard) DO UPDATE SET count = y.count + excluded.count"""
_PURGE_MESSAGES = """
DELETE FROM message m USING (
  SELECT principal, account, message_id FROM message WHERE created_at < $1
  ORDER BY created_at LIMIT $2 FOR UPDATE) x
WHERE m.principal = x.principal AND m.account = x.account AND m.message_id = x.message_id"""
_PURGE_RECORDS = """
DELETE FROM record r USING (
  SELECT kind, id FROM record WHERE expires_at < $1 ORDER BY expires_at LIMIT $2 FOR UPDATE) x
WHERE r.kind = x.kind AND r.id = x.id"""


class PostgresTaskStore(PostgresTaskLists, TaskWrites):
    """The task store over a database."""

    async def claim_runs(self, owner: OwnerId) -> list[RunRecord]:
        taken = TakenWork()
        runs = await self._write(partial(self._claim, owner, taken))
        if self._database.replicas is not None:
            self._database.replicas.note_taken(taken)  # not before it is committed
        return runs

    async def _claim(
        self, owner: OwnerId, taken: TakenWork, connection: Session
    ) -> list[RunRecord]:
        replicas = self._database.replicas
        if replicas is not None:
            if owner != replicas.id:  # declared dead since it asked: what it claims has no owner
                raise StoreUnavailable("this replica has another id by now; it claims again")
            began_at = monotonic()
            await take_over_rest(connection, owner, taken, takes_logs=replicas.takes_logs)
            rows = await connection.fetch(_TAKE_RUNS, owner)
            taken.claim_s = monotonic() - began_at
        else:
            rows = await connection.fetch(_CLAIM_RUNS, owner)
        claimed: list[RunRecord] = []
        # RETURNING has no order. The first column is the ticket.
        for row in sorted(rows, key=lambda row: row[0]):
            try:
                claimed.append(await read_run(connection.fetch, row, owner))
            except UNREADABLE as error:
                # What was to be done cannot be read any more. Without its run the task is an
                # orphan, which recovery fails; left alone it would stay `working` for ever.
                reason = f"{type(error).__name__}: {error}; removed"
                report_damage(self._database.name, "run", row[1], reason)
                await connection.execute("DELETE FROM run WHERE id = $1", row[1])
        return claimed

    def delete_task(self, scope: Scope, task_id: TaskId) -> Awaitable[bool]:
        async def work(connection: Session) -> bool:
            key = (task_id, scope.principal, scope.account)
            row = await connection.fetchrow(_READ_OWN_TASK, *key)
            if row is None or row[5] not in TERMINAL_CODES:
                return False
            await _delete(connection, [row])
            return True

        return self._write(work)

    async def purge(self, retention: Retention) -> PurgeResult:
        return await purge_in_batches(
            retention,
            purge_tasks=lambda batch: self._write(partial(_purge_tasks, batch)),
            purge_messages=partial(self._purge_rows, _PURGE_MESSAGES, retention.messages_before),
            purge_records=partial(self._purge_rows, _PURGE_RECORDS, retention.records_before),
        )

    async def _purge_rows(self, statement: str, before: datetime | None) -> int:
        async def work(connection: Session) -> int:
            done: str = await connection.execute(statement, before, PURGE_BATCH)
            return int(done.rpartition(" ")[2])

        return 0 if before is None else await self._write(work)


async def _purge_tasks(retention: Retention, connection: Session) -> PurgeResult:
    """Delete finished tasks that are too old or too many and have nothing left to deliver."""
    # One replica at a time: two would count what they delete twice.
    if not await connection.fetchval(_LOCK_PURGE):
        return PurgeResult(0)
    finished = int(await connection.fetchval(_COUNT_FINISHED))
    key = retention.after
    after = (None, "") if key is None else (key.status_at, key.id)
    # With a surplus every finished task may be due, however young.
    before = None if finished > retention.keep_ended else retention.ended_before
    examined = [
        tuple(row) for row in await connection.fetch(_LIST_OLDEST, *after, before, retention.limit)
    ]
    names, sequences = [row[1] for row in examined], [row[6] for row in examined]
    held = {row[0] for row in await connection.fetch(_LIST_HOLDING, names, sequences)}
    purged, next_after = choose_purgeable(
        examined, retention, finished=finished, is_held=lambda row: row[1] in held
    )
    await _delete(connection, purged)
    return PurgeResult(len(purged), next_after)


async def _delete(connection: Session, rows: list[Any]) -> None:
    # Not the idempotency record: a message that is repeated after its task was deleted must not run
    # again. It has an age limit of its own.
    if not rows:
        return
    numbers = [row[2] for row in rows]
    for statement in _DELETE:
        await connection.execute(statement, numbers)
    await connection.execute(_DELETE_DELIVERIES, [row[1] for row in rows])
    columns = [[row[3] for row in rows], [row[4] for row in rows], [row[5] for row in rows]]
    await connection.execute(_UNCOUNT, *columns)
