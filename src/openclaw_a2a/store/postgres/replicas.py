"""Replica membership, session ownership, take-over and hand-off in PostgreSQL.

Every gateway has a row in `writer` with a lease by the clock of the database (`link.py`). Whatever
a gateway works on names it as its owner: runs, deliveries, open logs, sessions, requests. There is
no lease for each of them: they expire with the lease of their owner.

A session has one owner at a time, which decides about its runs. It is held by a row in `session`,
or by unfinished runs: those of a new conversation have no row, because nobody else can know a
session before its first answer. A replica that gets a message for a session of another one hands
it off.
"""

import asyncio
from collections.abc import Collection, Iterable
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.delivery import DeliveryId
from openclaw_a2a.model.errors import GatewayError, StoreUnavailable
from openclaw_a2a.model.ids import AgentId, OwnerId, RunId, SessionKey, TaskId
from openclaw_a2a.model.records import RunRecord
from openclaw_a2a.model.replica import ReplicaStatus
from openclaw_a2a.ports import (
    NOBODY,
    Handoff,
    HeldSession,
    LogLine,
    ReplicaCounts,
    ReplicaListener,
    SharedLog,
)
from openclaw_a2a.store.columns import CLAIMED_COLUMNS, decode_claimed_run
from openclaw_a2a.store.contents import MARK, list_references, restore
from openclaw_a2a.store.postgres.address import DatabaseRow, Fetch, Session
from openclaw_a2a.store.postgres.change_feed import ChangeFeed
from openclaw_a2a.store.postgres.link import EXPIRE
from openclaw_a2a.store.postgres.request_rates import PostgresRates
from openclaw_a2a.store.postgres.stored_text import shown_id, stored_id
from openclaw_a2a.store.rules import UNREADABLE, report_damage

if TYPE_CHECKING:
    from openclaw_a2a.store.postgres.database import PostgresDatabase

log = get_logger(__name__)

_POLL_S = 5.0
_SHORT_POLL_S = 0.5
_WATCH_S = 1.0

IS_LIVE = "EXISTS (SELECT FROM writer w WHERE w.name = {owner} AND NOT w.is_gone)"

# After a restart of the server a full lease must pass before a replica is declared dead.
_IS_EXPIRED = """(NOT is_gone AND lease_until < now()
  AND (lease_until < since OR now() - pg_postmaster_start_time() > lease))"""

# One row, unless another replica is just about to add the session: then it is asked again. No owner
# when the replica that asks is gone and does not know it yet.
_HOLD = f"""
WITH other AS (
  SELECT owner FROM run WHERE session_key = $1 AND owner <> $2 ORDER BY ticket LIMIT 1
), held AS (
  INSERT INTO session AS s (key, owner, number)
  SELECT $1, $2, nextval('session_number')
  WHERE NOT EXISTS (SELECT FROM other) AND {IS_LIVE.format(owner="$2")}
  ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, number = excluded.number
  WHERE s.owner = excluded.owner OR NOT {IS_LIVE.format(owner="s.owner")}
  RETURNING owner, number
)
SELECT owner, number FROM held
UNION ALL SELECT owner, -1 FROM other
UNION ALL SELECT owner, -1 FROM session WHERE key = $1 AND owner <> $2
UNION ALL SELECT '', -1 WHERE NOT {IS_LIVE.format(owner="$2")}
LIMIT 1"""
_RELEASE = """
DELETE FROM session s USING unnest($1::text[], $2::bigint[]) AS x(key, number)
WHERE s.key = x.key AND s.number = x.number AND s.owner = $3"""
_FIND_OWNER = "SELECT owner FROM run WHERE task = $1 ORDER BY ticket LIMIT 1"
_FIND_REPLICA = """
SELECT name FROM writer
WHERE $1 = ANY (agents) AND name <> $2 AND NOT is_gone AND ($3 OR NOT is_draining)
  AND lease_until > now()
ORDER BY runs, random() LIMIT 1"""
_GIVE_UP = f"""
UPDATE run SET owner = '{NOBODY}', fence = fence + 1
WHERE id = ANY ($1::text[]) AND owner = $2 AND NOT is_started"""
_GIVE_UP_SESSIONS = f"""
DELETE FROM session s
WHERE owner = $2 AND key IN (
  SELECT session_key FROM run WHERE id = ANY ($1::text[]) AND owner = '{NOBODY}')
AND NOT EXISTS (SELECT FROM run WHERE session_key = s.key AND owner = $2)"""
_LIST_OWN = "SELECT id FROM run WHERE id = ANY ($1::text[]) AND owner = $2"
_IS_LEFT = f"SELECT FROM run WHERE owner = '{NOBODY}' LIMIT 1"
_SEQUENCES = "SELECT id, sequence FROM task WHERE id = ANY ($1::text[])"
# Of another log with the same id, made after the known one was deleted, all lines.
_LOG_TAIL = """
SELECT l.number, l.sequence, l.is_closed, l.owner,
  (SELECT array_agg(s.sequence ORDER BY s.sequence) FROM log_line s
   WHERE s.log = l.number AND s.sequence > x.after),
  (SELECT array_agg(s.body ORDER BY s.sequence) FROM log_line s
   WHERE s.log = l.number AND s.sequence > x.after)
FROM log l
CROSS JOIN LATERAL (
  SELECT CASE WHEN l.sequence >= $3 AND $4::bigint IN (0, l.number) THEN $3 ELSE 0 END AS after
) x
WHERE l.kind = $1 AND l.id = $2"""
_OPEN_LOGS = "SELECT id, number, sequence, owner FROM log WHERE kind = $1 AND NOT is_closed"
_NEXT_REQUEST = "SELECT nextval(pg_get_serial_sequence('handoff', 'number'))"
# With its number, so that it is one request if the statement is repeated.
_HAND_OFF = """
INSERT INTO handoff (number, sender, receiver, body) VALUES ($1, $2, $3, $4)
ON CONFLICT (number) DO NOTHING"""
_TAKE_HANDOFFS = """
SELECT number, body FROM handoff WHERE receiver = $1 AND answer IS NULL AND number > $2
ORDER BY number LIMIT 100"""
# Not when it is another replica's by now: that one knows what came of it. The first answer counts.
_ANSWER = """
UPDATE handoff SET answer = $2
WHERE number = $1 AND receiver = $3 AND answer IS NULL RETURNING sender"""
_READ_ANSWER = "SELECT answer FROM handoff WHERE number = $1"
_FORGET = "DELETE FROM handoff WHERE number = $1"
_WITHDRAW = "DELETE FROM handoff WHERE number = $1 AND answer IS NULL"
_FORGET_OLD = "DELETE FROM handoff WHERE created_at < now() - interval '1 day'"
_OTHERS = f"""
SELECT name, {_IS_EXPIRED}, is_draining FROM writer WHERE NOT is_gone ORDER BY since"""
_SET_STATUS = "UPDATE writer SET runs = $2, streams = $3, lag_ms = $4 WHERE name = $1"
_SET_AGENTS = "UPDATE writer SET agents = $2::text[] WHERE name = $1"
_LIST = """
SELECT name, label, host, pid, version, agents, since,
  extract(epoch FROM lease_until - now()), is_draining, runs, streams, lag_ms
FROM writer WHERE NOT is_gone AND lease_until > now() ORDER BY since"""
_DRAIN = "UPDATE writer SET is_draining = true WHERE name = $1 AND NOT is_gone RETURNING name"

_MARK_GONE = f"""
UPDATE writer SET is_gone = true
WHERE name IN (
  SELECT name FROM writer WHERE {_IS_EXPIRED} AND name <> $1
  ORDER BY name FOR UPDATE SKIP LOCKED)
RETURNING name, label"""
_FREE_SESSIONS = "DELETE FROM session WHERE owner = ANY ($1::text[])"
# Includes rows that were stored after their owner was marked as gone.
_TAKE_REQUESTS = f"""
UPDATE handoff h SET receiver = $1
WHERE answer IS NULL AND receiver <> $1 AND NOT {IS_LIVE.format(owner="h.receiver")}"""
# Owner by owner through the index: there are few of them, and many deliveries.
_TAKE_DELIVERIES = f"""
WITH RECURSIVE known(owner) AS (
  (SELECT owner FROM delivery ORDER BY owner LIMIT 1)
  UNION ALL
  SELECT (SELECT d.owner FROM delivery d WHERE d.owner > k.owner ORDER BY d.owner LIMIT 1)
  FROM known k WHERE k.owner IS NOT NULL
)
UPDATE delivery d SET owner = $1 FROM known k
WHERE d.owner = k.owner AND k.owner <> $1 AND NOT {IS_LIVE.format(owner="k.owner")}
RETURNING d.kind, d.id"""
# The session hosts of a replica are among its agents, with a prefix that no agent id can have.
_HOST_PREFIX = "host:"
# Also of replicas that are gone: they may come back, and until then nobody has their sessions.
_LIST_AGENTS = "SELECT agents FROM writer"
_GIVE_DELIVERY = """
UPDATE delivery d SET owner = w.name
FROM (
  SELECT name FROM writer
  WHERE name <> $2 AND NOT is_gone AND lease_until > now() AND agents @> $3::text[]
  ORDER BY random() LIMIT 1
) w
WHERE d.id = $1 AND d.owner = $2
RETURNING d.owner"""
_IS_GIVEN = "SELECT owner FROM delivery WHERE id = $1 AND owner <> $2"
_TAKE_DELIVERY = "UPDATE delivery SET owner = $2 WHERE id = $1"
_FIND_RUN = f"""
SELECT {CLAIMED_COLUMNS} FROM run
WHERE session_key = ANY ($1::text[]) AND owner <> $2 AND is_started ORDER BY ticket LIMIT 1"""
# Also of one that is draining, which starts nothing any more.
_TAKE_LOGS = """
UPDATE log l SET owner = $1
WHERE NOT is_closed AND owner <> $1 AND NOT EXISTS (
  SELECT FROM writer w WHERE w.name = l.owner AND NOT w.is_gone
  AND (NOT w.is_draining OR (SELECT is_draining FROM writer WHERE name = $1)))"""
_FORGET_GONE = "DELETE FROM writer WHERE is_gone AND lease_until < now() - interval '1 hour'"
_TELL_OTHERS = """
SELECT pg_notify('openclaw_a2a_' || name, 'j') FROM writer WHERE NOT is_gone AND name <> $1"""
_READ_RUN_CONTENTS = """
SELECT c.hash, c.body FROM task t JOIN content c ON c.task = t.number
WHERE t.id = $1 AND c.hash = ANY ($2)"""


class TakenWork(msgspec.Struct):
    """What a claim has taken over besides runs. It counts when the claim is committed."""

    replicas: list[tuple[str, str]] = []
    """Their ids and names."""
    deliveries: list[tuple[str, DeliveryId]] = []
    """Their kinds and ids."""
    has_logs: bool = False
    claim_s: float = 0.0


async def take_over_rest(
    connection: Session, owner: OwnerId, taken: TakenWork, *, takes_logs: bool
) -> None:
    """Mark replicas whose lease is over as gone and take what is not a run.

    In the transaction that takes their runs. A batch of such a replica holds its row until it is
    committed, so it is either seen by the statements after this one, or refused.
    """
    gone = await connection.fetch(_MARK_GONE, owner)
    names = [row[0] for row in gone]
    await connection.execute(_FREE_SESSIONS, names)
    await connection.execute(_TAKE_REQUESTS, owner)
    rows = await connection.fetch(_TAKE_DELIVERIES, owner)
    logs = await connection.execute(_TAKE_LOGS, owner) if takes_logs else "UPDATE 0"
    await connection.execute(_FORGET_GONE)
    # Set, not added: the transaction may be repeated.
    taken.replicas = [(row[0], row[1]) for row in gone]
    taken.deliveries = [(row[0], DeliveryId(row[1])) for row in rows]
    taken.has_logs = logs != "UPDATE 0"


async def read_run(fetch: Fetch, row: DatabaseRow, owner: OwnerId) -> RunRecord:
    """The run of a row with CLAIMED_COLUMNS. Raises: what `UNREADABLE` lists."""
    run_input = row[-1]
    if run_input[0] == MARK:
        rows = await fetch(_READ_RUN_CONTENTS, row[2], list_references(run_input))
        run_input = restore(run_input, {found[0]: found[1] for found in rows}.get)
    return decode_claimed_run(row, run_input, owner)


class PostgresReplicas:
    """The part of the store that replicas share."""

    def __init__(self, database: "PostgresDatabase", *, lease_s: float) -> None:
        self._database = database
        self.lease_s = lease_s
        self._look = asyncio.Event()
        self.feed = ChangeFeed(database.address, self._look.set, self._on_work_left)
        self.rates = PostgresRates(database)
        self._counts = ReplicaCounts()
        self._listener: ReplicaListener | None = None
        self._agents: list[str] = []
        self._released: list[tuple[SessionKey, int]] = []
        self._unreleased: list[tuple[SessionKey, int]] = []
        """Sessions whose release has failed; it is tried again."""
        self._supervisor = Supervisor("replicas")
        self._has_expired = False
        self._is_work_left = False
        self._has_taken = False
        self.is_draining = False
        self.takes_logs = False
        self._taken: dict[str, set[DeliveryId]] = {}

    @property
    def id(self) -> OwnerId:
        return OwnerId(self._database.link.name)

    @property
    def counts(self) -> ReplicaCounts:
        self._counts.stale_writes = self._database.link.stale_writes
        return self._counts

    @property
    def lag_ms(self) -> float | None:
        return self.feed.lag_ms

    @property
    def are_notifications_missing(self) -> bool:
        return self.feed.is_deaf

    def pop_has_taken(self) -> bool:
        has_taken, self._has_taken = self._has_taken, False
        return has_taken

    @property
    def poll_s(self) -> float:
        return _SHORT_POLL_S if self.feed.lag_ms is None else _POLL_S

    async def start(
        self, listener: ReplicaListener, agents: Iterable[AgentId], hosts: Iterable[str]
    ) -> None:
        self._listener, self._agents = listener, [*sorted(agents), *_mark_hosts(hosts)]
        await self._database.fetch(_SET_AGENTS, self.id, self._agents)
        self.feed.listen(self.id, listener)
        self._supervisor.run_loop("replica-feed", self.feed.run())
        self._supervisor.run_loop("replica-watch", self._watch())

    async def stop(self) -> None:
        """Stop the background tasks."""
        await self._supervisor.stop()

    def check(self) -> None:
        """Raises StoreUnavailable when a loop of the replication has ended."""
        for name, reason in self._supervisor.dead_loops.items():
            raise StoreUnavailable(f"{name} has ended: {reason}; restart the gateway")

    def on_renamed(self) -> None:
        """Another replica has taken the work of this one, which goes on under a new name."""
        self._counts.lost += 1
        if self._listener is None:
            return
        self.feed.listen(self.id, self._listener)
        self._look.set()
        self._taken = {}
        self._listener.on_lost()

    # ---------------------------------------------------------------- the others

    async def _watch(self) -> None:
        """Poll the list of live replicas."""
        announced = OwnerId("")
        started_at = reached_at = monotonic()
        while True:
            self._look.clear()  # before the read: what comes while it lasts is not lost
            try:
                rows = await self._database.fetch(_OTHERS)
                name = self.id
                reached_at = reached_at or monotonic()
                self.feed.set_others(OwnerId(row[0]) for row in rows if row[0] != name)
                # One that could not reach the database itself gives the others time to come back.
                is_sure = reached_at == started_at or monotonic() - reached_at > self.lease_s
                self._has_expired = is_sure and any(row[1] for row in rows if row[0] != name)
                self.is_draining = any(row[2] for row in rows if row[0] == name)
                if announced != name:
                    await self._database.fetch(_SET_AGENTS, name, self._agents)
                    announced = name
                    for row in rows:
                        self.feed.send(OwnerId(row[0]), "j")
            except GatewayError as error:
                log.warning("replica.watch_failed", reason=error.message)
                reached_at = 0.0
            unreleased, self._unreleased = self._unreleased, []
            await self._delete_sessions(unreleased)
            try:
                async with asyncio.timeout(min(_WATCH_S, self.lease_s / 5)):
                    await self._look.wait()
            except TimeoutError:
                pass

    async def find_expired(self) -> bool:
        is_left, self._is_work_left = self._is_work_left, False
        return self._has_expired or is_left

    def _on_work_left(self) -> None:
        self._is_work_left = True

    async def renew(self, *, runs: int, streams: int) -> None:
        await self._database.writer.write(_renew_lease)  # every write renews the lease
        values = (self.id, runs, streams, self.feed.lag_ms)
        await self._database.fetch(_SET_STATUS, *values)

    async def leave(self) -> None:
        """Give everything to the others, at once."""
        name = self.id

        async def expire(connection: Session) -> None:
            await connection.execute(_FREE_SESSIONS, [name])

        try:
            await self._database.writer.write(expire)
            # Not by the writer, whose batches renew the lease.
            await self._database.fetch(EXPIRE, name)
            await self._database.fetch(_TELL_OTHERS, name)
        except GatewayError as error:  # then the others wait for the end of the lease
            log.warning("replica.not_left", reason=error.message)

    async def list_replicas(self) -> list[ReplicaStatus]:
        return [
            ReplicaStatus(
                OwnerId(row[0]),
                row[1],
                row[2],
                row[3],
                row[4],
                tuple(AgentId(one) for one in row[5] if not one.startswith(_HOST_PREFIX)),
                row[6],
                round(float(row[7]), 3),
                row[8],
                row[0] == self.id,
                *row[9:],
            )
            for row in await self._database.fetch(_LIST)
        ]

    async def drain(self, replica: OwnerId) -> bool:
        return bool(await self._database.fetch(_DRAIN, replica))

    # ---------------------------------------------------------------- sessions

    async def hold_session(self, session_key: SessionKey) -> HeldSession:
        while True:
            name = self.id
            row = await self._database.fetch_one(_HOLD, session_key, name)
            if row is not None and row[0]:
                return HeldSession(OwnerId(row[0]), row[1])
            if row is not None:
                await self._find_name(name)

    async def _find_name(self, gone: OwnerId) -> None:
        """Have the writer notice that this replica was taken for dead; it has a new name then."""
        try:
            await self._database.writer.write(_renew_lease)
        except StoreUnavailable:
            if self.id == gone:
                raise

    def release_session(self, session_key: SessionKey, number: int) -> None:
        self._released.append((session_key, number))
        if len(self._released) == 1:
            self._supervisor.spawn("release-sessions", self._release())

    async def _release(self) -> None:
        await asyncio.sleep(0)  # those that end in the same turn go together
        released, self._released = self._released, []
        await self._delete_sessions(released)

    async def _delete_sessions(self, released: list[tuple[SessionKey, int]]) -> None:
        if not released:
            return
        keys, numbers = zip(*released, strict=True)
        try:
            await self._database.fetch(_RELEASE, list(keys), list(numbers), self.id)
        except GatewayError as error:
            # Until `_watch` has tried again, messages for them are handed to this replica.
            self._unreleased += released
            log.warning("replica.sessions_not_released", reason=error.message)

    async def find_owner(self, task_id: TaskId) -> OwnerId | None:
        row = await self._database.fetch_one(_FIND_OWNER, task_id)
        return None if row is None else OwnerId(row[0])

    async def find_replica(self, agent_id: AgentId, *, may_drain: bool = False) -> OwnerId | None:
        row = await self._database.fetch_one(_FIND_REPLICA, agent_id, self.id, may_drain)
        return None if row is None else OwnerId(row[0])

    async def find_run(self, session_keys: Iterable[SessionKey]) -> RunRecord | None:
        row = await self._database.fetch_one(_FIND_RUN, list(session_keys), self.id)
        if row is None:
            return None
        try:
            # Of another replica: its name does not matter to who asks.
            return await read_run(self._database.fetch, row, OwnerId(""))
        except UNREADABLE as error:
            report_damage(self._database.name, "run", row[1], str(error))
            return None

    async def give_up_runs(self, run_ids: Collection[RunId]) -> set[RunId]:
        async def give_up(connection: Session) -> set[RunId]:
            values = (list(run_ids), self.id)
            await connection.execute(_GIVE_UP, *values)
            await connection.execute(_GIVE_UP_SESSIONS, *values)
            # Read, not returned by the update: it may be repeated after it was made.
            return {RunId(row[0]) for row in await connection.fetch(_LIST_OWN, *values)}

        return await self._database.writer.write(give_up)

    async def notify_takers(self) -> bool:
        is_left = bool(await self._database.fetch(_IS_LEFT))
        if is_left:
            self.feed.send_to_others("w")
        return is_left

    # ---------------------------------------------------------------- deliveries

    def note_taken(self, taken: TakenWork) -> None:
        """Count and announce what a claim has taken over; call after the commit."""
        self._counts.taken_over += len(taken.replicas)
        for name, label in taken.replicas:
            log.warning("replica.taken_over", replica=name, label=label, by=self.id)
        if taken.deliveries or taken.has_logs:
            self._has_taken = True
        if taken.replicas:
            # Runs of agents that only others have, and objectives, are left to those.
            self.feed.send_to_others("w")
        self._counts.claims += 1
        self._counts.claim_s += taken.claim_s
        for kind, delivery_id in taken.deliveries:
            self._taken.setdefault(kind, set()).add(delivery_id)

    def pop_taken(self, kind: str) -> set[DeliveryId]:
        return self._taken.pop(kind, set())

    async def list_hosts(self, agent_id: AgentId) -> set[str]:
        found = [row[0] for row in await self._database.fetch(_LIST_AGENTS)]
        replicas = [one for one in found if any(name.startswith(_HOST_PREFIX) for name in one)]
        chosen = [one for one in replicas if agent_id in one] or replicas
        names = (name for one in chosen for name in one if name.startswith(_HOST_PREFIX))
        return {name.removeprefix(_HOST_PREFIX) for name in names}

    async def pass_on(self, delivery_id: DeliveryId, hosts: Iterable[str]) -> bool:
        values = (delivery_id, self.id, _mark_hosts(hosts))
        row = await self._database.fetch_one(_GIVE_DELIVERY, *values)
        if row is None:  # or it was given, and the answer to that was lost
            row = await self._database.fetch_one(_IS_GIVEN, *values[:2])
        if row is not None:
            self.feed.send(OwnerId(row[0]), "d")
        return row is not None

    async def take_delivery(self, delivery_id: DeliveryId) -> None:
        await self._database.fetch(_TAKE_DELIVERY, delivery_id, self.id)

    # ---------------------------------------------------------------- changes and requests

    async def read_sequences(self, task_ids: Iterable[TaskId]) -> dict[TaskId, int]:
        rows = await self._database.fetch(_SEQUENCES, list(task_ids))
        return {TaskId(row[0]): row[1] for row in rows}

    def publish(self, task_ids: Iterable[TaskId]) -> None:
        self.feed.publish(task_ids)

    async def list_shared_logs(self, kind: str) -> list[SharedLog]:
        rows = await self._database.fetch(_OPEN_LOGS, kind)
        return [
            SharedLog(shown_id(row[0]), row[1], row[2], is_closed=False, owner=OwnerId(row[3]))
            for row in rows
        ]

    async def read_shared_log(
        self, kind: str, log_id: str, *, number: int, after: int
    ) -> SharedLog | None:
        values = (kind, stored_id(log_id), after, number)
        row = await self._database.fetch_one(_LOG_TAIL, *values)
        if row is None:
            return None
        lines = zip(row[4] or (), row[5] or (), strict=True)
        return SharedLog(
            log_id,
            row[0],
            row[1],
            is_closed=row[2],
            owner=OwnerId(row[3]),
            lines=tuple([LogLine(*line) for line in lines]),
        )

    async def hand_off(self, receiver: OwnerId, body: bytes) -> int:
        [row] = await self._database.fetch(_NEXT_REQUEST)
        number: int = row[0]
        await self._database.fetch(_HAND_OFF, number, self.id, receiver, body)
        self.feed.send(receiver, "h")
        return number

    async def take_handoffs(self, after: int) -> list[Handoff]:
        rows = await self._database.fetch(_TAKE_HANDOFFS, self.id, after)
        return [Handoff(row[0], row[1]) for row in rows]

    async def answer_handoff(self, number: int, answer: bytes) -> None:
        row = await self._database.fetch_one(_ANSWER, number, answer, self.id)
        if row is not None:
            self.feed.send(OwnerId(row[0]), f"a {number}")

    async def withdraw(self, number: int) -> None:
        await self._database.fetch(_WITHDRAW, number)

    async def take_answer(self, number: int) -> bytes | None:
        row = await self._database.fetch_one(_READ_ANSWER, number)
        if row is None or row[0] is None:
            return None
        await self._database.fetch(_FORGET, number)
        return row[0]


def _mark_hosts(hosts: Iterable[str]) -> list[str]:
    return sorted(f"{_HOST_PREFIX}{one}" for one in hosts)


async def _renew_lease(connection: Session) -> None:
    """Delete requests older than a day; the writer renews the lease with every transaction."""
    await connection.execute(_FORGET_OLD)
