"""A PostgreSQL database: the connections that read, the one that writes, and their lifetime."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from openclaw_a2a.model.backoff import Backoff
from openclaw_a2a.model.errors import StoreUnavailable
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.store.postgres.address import (
    CONNECT_WAIT_S,
    LOST,
    Address,
    DatabaseRow,
    Session,
    driver,
    retry_for,
)
from openclaw_a2a.store.postgres.link import WriteLink
from openclaw_a2a.store.postgres.replicas import PostgresReplicas
from openclaw_a2a.store.postgres.writer import PostgresWriter
from openclaw_a2a.store.rules import Lease, ReportUpgrade, decode_rows, store_closed
from openclaw_a2a.store.sqlite.migrate import Migration

_READ_HOLD_S = 10.0
"""How long a read waits for a lost database before it fails."""
_RETRY = Backoff(first_s=0.05, max_s=1.0, jitter=0.0)
_REPEATED: tuple[type[BaseException], ...] = (driver.DeadlockDetectedError, *LOST)
"""A read is in a deadlock only while a newer gateway migrates."""
_PROBE_S = 5.0

Decoded = TypeVar("Decoded")


class PostgresDatabase:
    """One schema of a database that one gateway uses at a time, or several replicas.

    It has at most `connections` connections: one writes, the others read.
    """

    is_durable = True

    def __init__(
        self,
        address: Address,
        *,
        connections: int = 8,
        on_upgrade: ReportUpgrade | None = None,
        lease: Lease | None = None,
    ) -> None:
        """With a lease the store is shared with other gateways that have one."""
        self.address = address
        self.name = address.shown
        self._connections = connections
        self._on_upgrade = on_upgrade
        self._pool: Any = None
        self.replicas = None if lease is None else PostgresReplicas(self, lease_s=lease.seconds)
        self.link = WriteLink(address, lease=lease, on_loss=lambda: self.writer.wake())
        self.writer = PostgresWriter(self.link)
        if self.replicas is not None:
            self.link.on_renamed = self.replicas.on_renamed
            self.writer.on_committed = self.replicas.feed.publish

    async def open(self) -> None:
        """Lock the store, upgrade its schema, start to write.

        Raises: StoreLocked, SchemaTooNew, StoreUnavailable.
        """
        steps: list[Migration] = []
        try:
            await self.link.open(steps.append)
        finally:
            # Also when a later step failed. A new schema begins with the first one.
            if steps and steps[0].version > 1 and self._on_upgrade is not None:
                self._on_upgrade(self.name, len(steps))
        try:
            self._pool = await driver.create_pool(
                **self.address.options(),
                min_size=0,  # it would log every failed attempt to keep some open
                max_size=max(1, self._connections - 1),
                max_inactive_connection_lifetime=300.0,
                init=self.address.prepare,
                reset=_keep_session,
            )
        except (driver.PostgresError, *LOST) as error:
            await self.link.close()
            raise self.address.explain(error) from error
        self.writer.start()

    async def close(self) -> None:
        """Finish the accepted writes and release the store."""
        if self.replicas is not None:
            await self.replicas.leave()
            await self.replicas.stop()
        await self.writer.stop()
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                async with asyncio.timeout(5):
                    await pool.close()
            except (driver.PostgresError, *LOST):
                pool.terminate()
        await self.link.close()

    async def check(self) -> None:
        self.writer.check()
        if self.replicas is not None:
            self.replicas.check()
        try:
            async with asyncio.timeout(_PROBE_S):
                if self.writer.failure is not None:
                    await self.writer.write(_write_nothing)  # a batch: it marks its writer
                await self._fetch_once("SELECT 1", ())
        except (driver.PostgresError, *LOST) as error:
            raise self.address.explain(error) from error
        self.writer.failure = None

    # ---------------------------------------------------------------- reads

    async def fetch(self, statement: str, *values: object) -> list[DatabaseRow]:
        """The rows of a query on committed data. Raises: StoreUnavailable."""
        try:
            # A read changes nothing: it is simply done again, on another connection.
            return await retry_for(
                lambda: self._fetch_once(statement, values),
                _REPEATED,
                _RETRY,
                within_s=_READ_HOLD_S,
            )
        except _REPEATED as error:
            raise self.address.explain(error) from error
        except driver.CharacterNotInRepertoireError:
            return []  # asked for a text with a zero character, which no row has
        except driver.PostgresError as error:
            raise StoreUnavailable(
                f"the store {self.name} cannot be read: {error}; look at the log of the database"
            ) from error

    async def fetch_one(self, statement: str, *values: object) -> DatabaseRow | None:
        """The first row of a query on committed data. Raises: StoreUnavailable."""
        rows = await self.fetch(statement, *values)
        return rows[0] if rows else None

    async def _fetch_once(self, statement: str, values: Iterable[object]) -> list[DatabaseRow]:
        if self._pool is None:
            raise store_closed(self.name)
        async with self._pool.acquire(timeout=CONNECT_WAIT_S) as connection:
            return await connection.fetch(statement, *values)


async def _keep_session(_: Session) -> None:
    """Nothing to reset when a connection goes back to the pool: reads leave nothing behind."""


async def _write_nothing(_: Session) -> None:
    """Work for a transaction that only marks its writer."""


class PostgresPart:
    """One of the four stores over a database."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._write = database.writer.write

    def _decode_rows(
        self, what: str, decode: Callable[[DatabaseRow], Decoded], rows: Iterable[DatabaseRow]
    ) -> list[Decoded]:
        """What the rows hold; damaged ones are reported, by their first column, and left out."""
        return decode_rows(self._database.name, what, decode, rows)


def scope_values(scope: Scope | None) -> tuple[str | None, str | None]:
    """The values of a condition on principal and account; None is any scope."""
    return (None, None) if scope is None else (scope.principal, scope.account)
