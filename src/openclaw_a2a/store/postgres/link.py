"""The one connection that writes: its locks, its row in `writer`, and how it is restored.

The connection holds advisory locks for its whole session, and all writes go through it. A gateway
that has the store for itself holds the lock of the store; replicas share that lock, and each holds
one on its own name. So a gateway that lost its locks cannot write: its connection is gone, too.

Each batch has a number, which it writes into the row of its writer in the same transaction. After
a loss the locks are taken again first: then the old session is over, and the number in the row says
whether the batch that was under way was committed.

The row of a replica has a lease, which every batch renews. When it runs out another replica marks
the row as gone and takes the work (`replicas.py`); batches of the old name are refused from then
on. The replica goes on under a new name, which owns nothing.
"""

import asyncio
import os
import secrets
import socket
from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from importlib import metadata
from typing import Any
from zlib import crc32

from openclaw_a2a.log import get_logger
from openclaw_a2a.model.backoff import Backoff
from openclaw_a2a.model.errors import GatewayError, StoreLocked, StoreUnavailable
from openclaw_a2a.store.postgres.address import LOST, Address, Session, driver, retry_for
from openclaw_a2a.store.postgres.migrate import upgrade
from openclaw_a2a.store.rules import Lease, store_closed
from openclaw_a2a.store.sqlite.migrate import Migration

log = get_logger(__name__)

WRITER_LOCK = 0x6F6357
"""The class of the advisory lock; the second number is the schema's."""
REPLICA_LOCK = 0x6F6352
"""The class of the lock of a replica on its name."""
WRITER = "gateway"
"""The name of a gateway that has the store for itself."""

STORE_WAIT_S = 3.0
"""How long a start waits for a store that another gateway has."""
HOLD_S = 30.0
"""How long writes wait for a lost database before they fail: a restart or a failover takes less."""
_SHARDS = 16
_RETRY = Backoff(first_s=0.05, max_s=2.0)

_TRY_LOCK = "SELECT pg_try_advisory_lock($1, hashtext($2))"
_TRY_SHARED_LOCK = "SELECT pg_try_advisory_lock_shared($1, hashtext($2))"
_HOLDERS = """
SELECT host, pid, since FROM writer WHERE NOT is_gone AND lease_until > now()
ORDER BY (lease_until = 'infinity') = $1, since DESC LIMIT 1"""
_OLD_HOLDER = "SELECT host, pid, since FROM writer LIMIT 1"
_TAKE = """
INSERT INTO writer (name, batch, instance, host, pid, lease, lease_until, label, version)
VALUES ($1, 0, $2, $3, $4, $5::interval, now() + $5::interval, $6, $7)
ON CONFLICT (name) DO UPDATE SET batch = writer.batch + 1, instance = $2, host = $3, pid = $4,
  lease = excluded.lease, lease_until = excluded.lease_until, since = now(), tickets = '{}'
RETURNING batch"""
# It writes: what the lost session committed may not have reached a synchronous standby yet, and
# this commit waits for everything before it.
_READ = """
UPDATE writer SET batch = batch WHERE name = $1 AND instance = $2 AND NOT is_gone
RETURNING batch, tickets"""
# Before `since`: it left by itself, so there is no time to come back.
EXPIRE = "UPDATE writer SET lease_until = since - interval '1 second' WHERE name = $1"
_FORGET_SINGLE = "DELETE FROM writer WHERE name = $1"
_DISOWN = "UPDATE run SET owner = '' WHERE ticket = ANY ($1)"
_LOCK_ROW = """
SELECT batch FROM writer WHERE name = $1 AND instance = $2 AND NOT is_gone FOR UPDATE"""
_BACKEND = "SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
# A session of ours that the server still takes for alive: with its start, because pids come again.
_END_OLD = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND backend_start = $2"""


class WriterReplaced(Exception):
    """Another gateway has taken the work of this one; nothing was written."""


class LinkState(Enum):
    """The state of the link; `_NEXT` is the table of its changes."""

    CLOSED = "closed"
    CONNECTED = "connected"
    RECOVERING = "recovering"
    """Lost a moment ago: writes wait."""
    DOWN = "down"
    """Lost for longer than writes wait: they fail at once."""


_NEXT: dict[LinkState, frozenset[LinkState]] = {
    LinkState.CLOSED: frozenset({LinkState.CONNECTED}),
    LinkState.CONNECTED: frozenset({LinkState.RECOVERING, LinkState.CLOSED}),
    LinkState.RECOVERING: frozenset({LinkState.CONNECTED, LinkState.DOWN, LinkState.CLOSED}),
    LinkState.DOWN: frozenset({LinkState.CONNECTED, LinkState.CLOSED}),
}


class WriteLink:
    """The connection of the writer; used by one task at a time."""

    def __init__(
        self,
        address: Address,
        *,
        lease: Lease | None = None,
        on_loss: Callable[[], None] = lambda: None,
    ) -> None:
        """Without a lease the store is locked for this gateway alone."""
        self.address = address
        self.lease = lease
        self.state = LinkState.CLOSED
        self.reason = ""
        self.batch = 0
        self.takeovers = 0
        """How often another gateway had the store while this one had lost it."""
        self.renames = 0
        """How often this gateway got a new name, because another one has its work."""
        self.tickets: list[int] = []
        self.given_up: int | None = None
        """The batch that was under way when writes were not to wait any longer."""
        self._on_loss = on_loss
        self.on_renamed: Callable[[], None] = lambda: None
        """Called when another gateway took the work of this one."""
        self.stale_writes = 0
        """Batches that were refused because another gateway has our work."""
        self.instance = secrets.token_hex(8)
        self.name = WRITER if lease is None else self.instance
        # Far away, not never: the time is added to that of the database.
        self.lease_time = (
            timedelta(days=365_000) if lease is None else timedelta(seconds=lease.seconds)
        )
        self._connection: Session = None
        self._backend: tuple[int, Any] | None = None
        self._attempt = 0
        self._lost_at = 0.0

    async def open(self, on_step: Callable[[Migration], None]) -> None:
        """Connect, lock the store, bring its schema up to date.

        Raises: StoreLocked, SchemaTooNew, StoreUnavailable.
        """
        connection = await self.address.connect()
        try:
            await self._wait_for_lock(connection)
            await upgrade(connection, self.address.schema, on_step=on_step)
            await self.address.prepare(connection)  # a migration may take its time, writes may not
            if self.lease is not None:
                # The lock says that no gateway has the store for itself, so none is called that
                # any more. With its row, whose lease does not end, its work would stay its own.
                await connection.execute(_FORGET_SINGLE, WRITER)
            self.batch = await self._register(connection, self.name, self.instance)
            await self._use(connection)
        except BaseException as error:
            connection.terminate()
            if isinstance(error, (driver.PostgresError, *LOST)):
                raise self.address.explain(error) from error
            raise

    async def close(self) -> None:
        """Close the connection, and with it release the lock."""
        connection, self._connection = self._connection, None
        self._change(LinkState.CLOSED)
        if connection is not None and not connection.is_closed():
            try:
                await connection.close(timeout=5)
            except (driver.PostgresError, *LOST):
                connection.terminate()

    @property
    def shard(self) -> int:
        """The part of the tally that this writer counts in."""
        return 0 if self.lease is None else 1 + crc32(self.name.encode()) % _SHARDS

    @property
    def connection(self) -> Session:
        """The connection, if there is one. Raises: StoreUnavailable."""
        if self._connection is None:
            raise self.unavailable()
        return self._connection

    def unavailable(self) -> StoreUnavailable:
        """Why nothing can be written now."""
        if self.state is LinkState.CLOSED:
            return store_closed(self.address.shown)
        return StoreUnavailable(self.reason)

    def note_loss(self, error: BaseException) -> None:
        """The connection failed: it is not used any more."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()
        if self.state is LinkState.CONNECTED:
            self.reason = self.address.explain(error).message
            log.warning("store.connection_lost", store=self.address.shown, reason=self.reason)
            self._change(LinkState.RECOVERING)
            self._attempt, self._lost_at = 0, asyncio.get_running_loop().time()

    async def recover(self) -> None:
        """Connect again, as often as it takes, until writes are not to wait any longer.

        Afterwards the link is CONNECTED, and `batch` is the last that was committed, or DOWN.
        """
        while self.state is LinkState.RECOVERING:
            await self.try_recover()
            waited_s = asyncio.get_running_loop().time() - self._lost_at
            if self.state is LinkState.RECOVERING and waited_s >= HOLD_S:
                self._change(LinkState.DOWN)
                log.error("store.unavailable", store=self.address.shown, reason=self.reason)

    async def try_recover(self) -> None:
        """One attempt to connect again, after a pause that grows."""
        self._attempt += 1
        await asyncio.sleep(_RETRY.delay_s(self._attempt))
        try:
            connection = await self.address.connect()
        except GatewayError as error:
            self.reason = error.message
            return
        try:
            if self._backend is not None:
                await connection.execute(_END_OLD, *self._backend)
            await self.lock(connection)
            row = await connection.fetchrow(_READ, self.name, self.instance)
            if row is not None and row[0] == self.given_up:
                # The batch was committed after all, and its callers got an error: no run here
                # belongs to what it stored. A replica leaves it to the one that takes over its
                # name, a gateway that has the store for itself to its next claim.
                if self.lease is None:
                    await connection.execute(_DISOWN, row[1])
                else:
                    await connection.execute(EXPIRE, self.name)
                    row = None
            if row is not None:
                self.batch, self.tickets = row
            else:
                await self._register_again(connection)
            self.given_up = None
            await self._use(connection)
        except (driver.PostgresError, *LOST, GatewayError) as error:
            connection.terminate()
            self.reason = self.address.explain(error).message
            return
        log.info("store.connection_restored", store=self.address.shown, attempts=self._attempt)

    async def check_name(self, connection: Session) -> None:
        """Lock the row of this writer, before anything else. Raises: WriterReplaced."""
        if await connection.fetchval(_LOCK_ROW, self.name, self.instance) is None:
            raise WriterReplaced

    async def replace_name(self) -> None:
        """Go on under a new name, after `WriterReplaced`."""
        self.stale_writes += 1
        if self.lease is None:
            self.note_loss(ConnectionError("another gateway uses the store"))
            return
        try:
            await self._register_again(self.connection)
        except (driver.PostgresError, *LOST, GatewayError) as error:
            self.note_loss(error)

    async def _register(self, connection: Session, name: str, instance: str) -> int:
        """Add the row of a writer; its first batch number."""
        label = "" if self.lease is None else self.lease.label
        about = (socket.gethostname(), os.getpid(), self.lease_time, label)
        values = (name, instance, *about, metadata.version("openclaw-a2a"))
        return await connection.fetchval(_TAKE, *values)

    async def _register_again(self, connection: Session) -> None:
        """Add a new row: another gateway has our work, and fences refuse our former runs."""
        name, instance, renames = self.name, self.instance, self.renames
        if self.lease is not None:
            renames += 1
            log.warning("replica.lost", replica=self.name, store=self.address.shown)
            name = instance = secrets.token_hex(8)
            await self._lock_name(connection, name)
        batch = await self._register(connection, name, instance)
        # Nothing is awaited from here on: a message that came in between would be stored under the
        # new name, with what is known of sessions and tasks from the time of the old one.
        self.name, self.instance, self.batch = name, instance, batch
        self.renames = renames
        self.takeovers += 1
        self.on_renamed()

    async def _use(self, connection: Session) -> None:
        started_at = await connection.fetchval(_BACKEND)
        self._backend = connection.get_server_pid(), started_at
        self._connection = connection
        connection.add_termination_listener(self._terminated)
        self._change(LinkState.CONNECTED)

    def _terminated(self, connection: Session) -> None:
        # Called for our own `terminate`, too; then it is not the current one any more.
        if connection is self._connection:
            self.note_loss(ConnectionResetError("the server closed the connection"))
            self._on_loss()

    async def _wait_for_lock(self, connection: Session) -> None:
        """Raises: StoreLocked."""
        # The server needs a moment to notice that a gateway is gone, which may just have been
        # killed and started again.
        await retry_for(
            lambda: self.lock(connection), (StoreLocked,), _RETRY, within_s=STORE_WAIT_S
        )

    async def lock(self, connection: Session) -> None:
        """Raises: StoreLocked."""
        await self._lock_name(connection, self.name)

    async def _lock_name(self, connection: Session, name: str) -> None:
        statement = _TRY_LOCK if self.lease is None else _TRY_SHARED_LOCK
        if await connection.fetchval(statement, WRITER_LOCK, self.address.schema) and (
            self.lease is None
            # Of its own name: then an earlier session of this replica is over.
            or await connection.fetchval(_TRY_LOCK, REPLICA_LOCK, name)
        ):
            return
        holder = None
        if await connection.fetchval("SELECT to_regclass('writer') IS NOT NULL"):
            try:
                holder = await connection.fetchrow(_HOLDERS, self.lease is None)
            except driver.UndefinedColumnError:  # of an earlier version
                holder = await connection.fetchrow(_OLD_HOLDER)
        host, pid = (
            ("an unknown host", "unknown") if holder is None else (holder[0], str(holder[1]))
        )
        since = "" if holder is None else f" since {holder[2]:%Y-%m-%d %H:%M} UTC"
        raise StoreLocked(
            f"process {pid} on {host} uses {self.address.shown}{since}; stop it, or give this "
            "gateway another database or another store.schema"
            ", or set store.replicas for all gateways that share it",
            details={"pid": pid, "host": host, "store": self.address.shown},
        )

    def _change(self, state: LinkState) -> None:
        if state is self.state:
            return
        if state not in _NEXT[self.state]:
            raise AssertionError(f"a link that is {self.state.value} cannot become {state.value}")
        self.state = state


async def upgrade_database(address: Address) -> list[str]:
    """Upgrade a store that no gateway uses; one line per applied migration.

    Raises: StoreLocked (a gateway uses it), SchemaTooNew, StoreUnavailable.
    """
    steps: list[str] = []
    link = WriteLink(address)
    await link.open(lambda migration: steps.append(migration.summary))
    await link.close()
    return steps


async def find_holder(address: Address, *, shares: bool = False) -> StoreLocked | None:
    """The error that names the gateway that uses the store; None if nobody does.

    One that shares it is kept out only by one that does not.
    """
    link = WriteLink(address, lease=Lease(1.0) if shares else None)
    connection = await address.connect()
    try:
        await link.lock(connection)
    except StoreLocked as error:
        return error
    except driver.PostgresError as error:
        raise address.explain(error) from error
    finally:
        await connection.close()  # and the lock with it
    return None
