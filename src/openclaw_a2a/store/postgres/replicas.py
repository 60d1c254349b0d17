"""Several gateways on one database: who holds a session, who takes over, who carries out what.

Every gateway has a row in `writer` with a lease by the clock of the database (`link.py`). Whatever
a gateway works on names it as its owner: runs, deliveries, sessions, requests. There is no lease
for each of them: they live and die with that of their owner.

A session has one owner at a time, which decides about its runs. It is held by a row in `session`,
or by unfinished runs: those of a new conversation have no row, because nobody else can know a
session before its first answer. A replica that gets a message for a session of another one hands
it off.
"""

import asyncio
from collections.abc import Iterable
from time import monotonic
from typing import TYPE_CHECKING

from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import GatewayError, StoreUnavailable
from openclaw_a2a.model.ids import AgentId, OwnerId, SessionKey, TaskId
from openclaw_a2a.ports import Handoff, HeldSession, ReplicaListener, ReplicaStatus
from openclaw_a2a.store.postgres.address import Session
from openclaw_a2a.store.postgres.change_feed import ChangeFeed

if TYPE_CHECKING:
    from openclaw_a2a.store.postgres.database import PostgresDatabase

log = get_logger(__name__)

_POLL_S = 5.0
_SHORT_POLL_S = 0.5
_WATCH_S = 1.0

IS_LIVE = "EXISTS (SELECT FROM writer w WHERE w.name = {owner} AND NOT w.is_gone)"

# After a restart of the server everybody gets the time to come back that a lease gives.
_IS_EXPIRED = """(NOT is_gone AND lease_until < now()
  AND (lease_until < since OR now() - pg_postmaster_start_time() > lease))"""

# One row, unless another replica is just about to add the session: then it is asked again.
_HOLD = f"""
WITH other AS (
  SELECT owner FROM run WHERE session_key = $1 AND owner <> $2 ORDER BY ticket LIMIT 1
), held AS (
  INSERT INTO session AS s (key, owner, number)
  SELECT $1, $2, nextval('session_number') WHERE NOT EXISTS (SELECT FROM other)
  ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, number = excluded.number
  WHERE s.owner = excluded.owner OR NOT {IS_LIVE.format(owner="s.owner")}
  RETURNING owner, number
)
SELECT owner, number FROM held
UNION ALL SELECT owner, -1 FROM other
UNION ALL SELECT owner, -1 FROM session WHERE key = $1 AND owner <> $2
LIMIT 1"""
_RELEASE = """
DELETE FROM session s USING unnest($1::text[], $2::bigint[]) AS x(key, number)
WHERE s.key = x.key AND s.number = x.number AND s.owner = $3"""
_FIND_OWNER = "SELECT owner FROM run WHERE task = $1 ORDER BY ticket LIMIT 1"
_SEQUENCES = "SELECT id, sequence FROM task WHERE id = ANY ($1::text[])"
_HAND_OFF = "INSERT INTO handoff (sender, receiver, body) VALUES ($1, $2, $3) RETURNING number"
_TAKE_HANDOFFS = """
SELECT number, body FROM handoff WHERE receiver = $1 AND answer IS NULL AND number > $2
ORDER BY number LIMIT 100"""
_ANSWER = "UPDATE handoff SET answer = $2 WHERE number = $1 RETURNING sender"
_READ_ANSWER = "SELECT answer FROM handoff WHERE number = $1"
_FORGET = "DELETE FROM handoff WHERE number = $1"
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
# Also of one that was gone when they were stored: its last runs still named it.
_TAKE_REQUESTS = f"""
UPDATE handoff h SET receiver = $1
WHERE answer IS NULL AND receiver <> $1 AND NOT {IS_LIVE.format(owner="h.receiver")}"""
_TAKE_DELIVERIES = f"""
UPDATE delivery d SET owner = $1
WHERE owner <> $1 AND NOT {IS_LIVE.format(owner="d.owner")}"""
_FORGET_GONE = "DELETE FROM writer WHERE is_gone AND lease_until < now() - interval '1 hour'"
_TELL_OTHERS = """
SELECT pg_notify('openclaw_a2a_' || name, 'j') FROM writer WHERE NOT is_gone AND name <> $1"""
# Before its beginning: it left, and did not only fail to come back.
_EXPIRE = "UPDATE writer SET lease_until = since - interval '1 second' WHERE name = $1"


async def take_over_rest(connection: Session, owner: OwnerId) -> list[str]:
    """Mark replicas whose lease is over as gone and take what is not a run; their names.

    In the transaction that takes their runs. A batch of such a replica holds its row until it is
    committed, so it is either seen by the statements after this one, or refused.
    """
    gone = await connection.fetch(_MARK_GONE, owner)
    names = [row[0] for row in gone]
    for name, label in gone:
        log.warning("replica.taken_over", replica=name, name=label, by=owner)
    await connection.execute(_FREE_SESSIONS, names)
    await connection.execute(_TAKE_REQUESTS, owner)
    await connection.execute(_TAKE_DELIVERIES, owner)
    await connection.execute(_FORGET_GONE)
    return names


class PostgresReplicas:
    """The part of the store that replicas share."""

    def __init__(self, database: "PostgresDatabase", *, lease_s: float) -> None:
        self._database = database
        self.lease_s = lease_s
        self.feed = ChangeFeed(database.address, self._look_again)
        self._listener: ReplicaListener | None = None
        self._agents: list[AgentId] = []
        self._released: list[tuple[SessionKey, int]] = []
        self._supervisor = Supervisor("replicas")
        self._look = asyncio.Event()
        self._has_expired = False
        self.is_draining = False

    @property
    def id(self) -> OwnerId:
        return OwnerId(self._database.link.name)

    @property
    def poll_s(self) -> float:
        return _SHORT_POLL_S if self.feed.lag_ms is None else _POLL_S

    async def start(self, listener: ReplicaListener, agents: Iterable[AgentId]) -> None:
        self._listener, self._agents = listener, sorted(agents)
        await self._database.fetch(_SET_AGENTS, self.id, self._agents)
        self.feed.listen(self.id, listener)
        self._supervisor.run_loop("replica-feed", self.feed.run())
        self._supervisor.run_loop("replica-watch", self._watch())

    async def stop(self) -> None:
        """Stop to listen."""
        await self._supervisor.stop()

    def check(self) -> None:
        """Raises StoreUnavailable when this replica does not hear of the others any more."""
        for name, reason in self._supervisor.dead_loops.items():
            raise StoreUnavailable(f"{name} has ended: {reason}; restart the gateway")

    def on_renamed(self) -> None:
        """This replica was taken for dead."""
        if self._listener is None:
            return
        self.feed.listen(self.id, self._listener)
        self._look.set()
        self._listener.on_lost()

    # ---------------------------------------------------------------- the others

    def _look_again(self) -> None:
        self._look.set()

    async def _watch(self) -> None:
        """Look who is there, all the time."""
        announced = OwnerId("")
        started_at = reached_at = monotonic()
        while True:
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
            self._look.clear()
            try:
                async with asyncio.timeout(min(_WATCH_S, self.lease_s / 5)):
                    await self._look.wait()
            except TimeoutError:
                pass

    async def find_expired(self) -> bool:
        return self._has_expired

    async def renew(self, *, runs: int, streams: int) -> None:
        await self._database.writer.write(_do_nothing)  # every write renews the lease
        values = (self.id, runs, streams, self.feed.lag_ms)
        await self._database.fetch(_SET_STATUS, *values)

    async def leave(self) -> None:
        name = self.id

        async def expire(connection: Session) -> None:
            await connection.execute(_FREE_SESSIONS, [name])

        try:
            await self._database.writer.write(expire)
            # Not by the writer, whose batches renew the lease.
            await self._database.fetch(_EXPIRE, name)
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
                tuple(AgentId(one) for one in row[5]),
                row[6],
                float(row[7]),
                *row[8:],
            )
            for row in await self._database.fetch(_LIST)
        ]

    async def drain(self, replica: OwnerId) -> bool:
        return bool(await self._database.fetch(_DRAIN, replica))

    # ---------------------------------------------------------------- sessions

    async def hold_session(self, session_key: SessionKey) -> HeldSession:
        while True:
            row = await self._database.fetch_one(_HOLD, session_key, self.id)
            if row is not None:
                return HeldSession(OwnerId(row[0]), row[1])

    def release_session(self, session_key: SessionKey, number: int) -> None:
        self._released.append((session_key, number))
        if len(self._released) == 1:
            self._supervisor.spawn("release-sessions", self._release())

    async def _release(self) -> None:
        await asyncio.sleep(0)  # those that end in the same turn go together
        released, self._released = self._released, []
        keys, numbers = zip(*released, strict=True)
        try:
            await self._database.fetch(_RELEASE, list(keys), list(numbers), self.id)
        except GatewayError as error:
            # They stay ours: messages for them are handed to this replica as long as it lives.
            log.warning("replica.sessions_not_released", reason=error.message)

    async def find_owner(self, task_id: TaskId) -> OwnerId | None:
        row = await self._database.fetch_one(_FIND_OWNER, task_id)
        return None if row is None else OwnerId(row[0])

    # ---------------------------------------------------------------- changes and requests

    async def read_sequences(self, task_ids: Iterable[TaskId]) -> dict[TaskId, int]:
        rows = await self._database.fetch(_SEQUENCES, list(task_ids))
        return {TaskId(row[0]): row[1] for row in rows}

    def publish(self, task_ids: Iterable[TaskId]) -> None:
        self.feed.publish(task_ids)

    async def hand_off(self, receiver: OwnerId, body: bytes) -> int:
        row = await self._database.fetch_one(_HAND_OFF, self.id, receiver, body)
        if row is None:
            raise AssertionError("an insert returned nothing")
        self.feed.send(receiver, "h")
        return row[0]

    async def take_handoffs(self, after: int) -> list[Handoff]:
        rows = await self._database.fetch(_TAKE_HANDOFFS, self.id, after)
        return [Handoff(row[0], row[1]) for row in rows]

    async def answer_handoff(self, number: int, answer: bytes) -> None:
        row = await self._database.fetch_one(_ANSWER, number, answer)
        if row is not None:
            self.feed.send(OwnerId(row[0]), f"a {number}")

    async def take_answer(self, number: int) -> bytes | None:
        row = await self._database.fetch_one(_READ_ANSWER, number)
        if row is None or row[0] is None:
            return None
        await self._database.fetch(_FORGET, number)
        return row[0]


async def _do_nothing(connection: Session) -> None:
    """A transaction that only marks its writer; now and then old requests go with it."""
    await connection.execute(_FORGET_OLD)
