"""The one connection that writes: its lock on the store, and its way back after a loss.

The connection holds an advisory lock for its whole session, and all writes go through it. So who
can write has the lock, and a gateway that lost it cannot write: its connection is gone with it.

Each batch has a number, which it writes into the row of its writer in the same transaction. After
a loss the lock is taken again first: then the old session is over, and the number in the row says
whether the batch that was under way was committed.
"""

import asyncio
import os
import secrets
import socket
from collections.abc import Callable
from enum import Enum
from typing import Any

from openclaw_a2a.log import get_logger
from openclaw_a2a.model.backoff import Backoff
from openclaw_a2a.model.errors import GatewayError, StoreLocked, StoreUnavailable
from openclaw_a2a.store.postgres.address import LOST, Address, Session, driver
from openclaw_a2a.store.postgres.migrate import upgrade
from openclaw_a2a.store.rules import store_closed
from openclaw_a2a.store.sqlite.migrate import Migration

log = get_logger(__name__)

WRITER_LOCK = 0x6F6357
"""The class of the advisory lock; the second number is the schema's."""
WRITER = "gateway"

STORE_WAIT_S = 3.0
"""How long a start waits for a store that another gateway has."""
HOLD_S = 30.0
"""How long writes wait for a lost database before they fail: a restart or a failover takes less."""
_RETRY = Backoff(first_s=0.05, max_s=2.0)

_TRY_LOCK = "SELECT pg_try_advisory_lock($1, hashtext($2))"
_HOLDER = "SELECT host, pid, since FROM writer WHERE name = $1"
_TAKE = """
INSERT INTO writer (name, batch, instance, host, pid) VALUES ($1, 0, $2, $3, $4)
ON CONFLICT (name) DO UPDATE
SET batch = writer.batch + 1, instance = $2, host = $3, pid = $4, since = now(), tickets = '{}'
RETURNING batch"""
# It writes: what the lost session committed may not have reached a synchronous standby yet, and
# this commit waits for everything before it.
_READ = "UPDATE writer SET batch = batch WHERE name = $1 RETURNING batch, tickets, instance"
_BACKEND = "SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
# A session of ours that the server still takes for alive: with its start, because pids come again.
_END_OLD = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND backend_start = $2"""


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

    def __init__(self, address: Address, on_loss: Callable[[], None]) -> None:
        self.address = address
        self.state = LinkState.CLOSED
        self.reason = ""
        self.batch = 0
        self.takeovers = 0
        """How often another gateway had the store while this one had lost it."""
        self.tickets: list[int] = []
        self._on_loss = on_loss
        self._instance = secrets.token_hex(8)
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
            host = socket.gethostname()
            values = (WRITER, self._instance, host, os.getpid())
            self.batch = await connection.fetchval(_TAKE, *values)
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
            row = await connection.fetchrow(_READ, WRITER)
            if row is not None and row[2] == self._instance:
                self.batch, self.tickets = row[0], row[1]
            else:
                # Our runs are its runs now; their fences tell those that still write for them.
                self.takeovers += 1
                values = (WRITER, self._instance, socket.gethostname(), os.getpid())
                self.batch = await connection.fetchval(_TAKE, *values)
            await self._use(connection)
        except (driver.PostgresError, *LOST, GatewayError) as error:
            connection.terminate()
            self.reason = self.address.explain(error).message
            return
        log.info("store.connection_restored", store=self.address.shown, attempts=self._attempt)

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
        give_up_at = asyncio.get_running_loop().time() + STORE_WAIT_S
        attempt = 0
        while True:
            try:
                return await self.lock(connection)
            except StoreLocked:
                attempt += 1
                delay_s = _RETRY.delay_s(attempt)
                if asyncio.get_running_loop().time() + delay_s > give_up_at:
                    raise
            await asyncio.sleep(delay_s)

    async def lock(self, connection: Session) -> None:
        """Raises: StoreLocked."""
        if await connection.fetchval(_TRY_LOCK, WRITER_LOCK, self.address.schema):
            return
        holder = None
        if await connection.fetchval("SELECT to_regclass('writer') IS NOT NULL"):
            holder = await connection.fetchrow(_HOLDER, WRITER)
        host, pid = (
            ("an unknown host", "unknown") if holder is None else (holder[0], str(holder[1]))
        )
        since = "" if holder is None else f" since {holder[2]:%Y-%m-%d %H:%M} UTC"
        raise StoreLocked(
            f"process {pid} on {host} uses {self.address.shown}{since}; stop it, or give this "
            "gateway another database or another store.schema",
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
    link = WriteLink(address, lambda: None)
    await link.open(lambda migration: steps.append(migration.summary))
    await link.close()
    return steps


async def find_holder(address: Address) -> StoreLocked | None:
    """The error that names the gateway that uses the store; None if nobody does."""
    connection = await address.connect()
    try:
        await WriteLink(address, lambda: None).lock(connection)
    except StoreLocked as error:
        return error
    except driver.PostgresError as error:
        raise address.explain(error) from error
    finally:
        await connection.close()  # and the lock with it
    return None
