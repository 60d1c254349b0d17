"""Migrations of a PostgreSQL store: numbered, forward only, each in its own transaction.

Several gateways may start at once: an advisory lock lets one of them migrate, and the others find
nothing left to do.

A gateway that is older than the schema may use it while the migrations that it does not know only
add: then a rolling upgrade is possible. The schema says so itself: with each migration the oldest
schema is stored whose gateways may go on. A migration that takes something away names it in a line
`-- compatible-from: N`; N is the schema of the first version that does not use it any more.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from importlib import metadata

from openclaw_a2a.log import get_logger
from openclaw_a2a.model.backoff import Backoff
from openclaw_a2a.model.errors import SchemaTooNew, StoreUnavailable
from openclaw_a2a.store.postgres.address import Address, Session, driver, quote_name, retry_for
from openclaw_a2a.store.sqlite.migrate import Migration, load_migrations

_PACKAGE = "openclaw_a2a.store.postgres"
MIGRATION_LOCK = 0x6F634D
"""The class of the advisory lock; the second number is the schema's."""

_HAS_SCHEMA = "SELECT true FROM pg_namespace WHERE nspname = $1"
_HAS_VERSIONS = "SELECT to_regclass('schema_version') IS NOT NULL"
_HAS_TABLES = "SELECT true FROM pg_tables WHERE schemaname = current_schema() LIMIT 1"
_VERSION = "SELECT version, made_by FROM schema_version ORDER BY version DESC LIMIT 1"
_COMPATIBLE_FROM = "SELECT compatible_from FROM schema_version ORDER BY version DESC LIMIT 1"
_ADD = "INSERT INTO schema_version (version, made_by) VALUES ($1, $2)"
_SET_COMPATIBLE = "UPDATE schema_version SET compatible_from = $2 WHERE version = $1"

_FIRST_COMPATIBLE = 5
"""The schema that has the column; gateways before it refuse every newer one."""
_NAMED_COMPATIBLE = re.compile(r"^-- compatible-from: (\d+)$", re.MULTILINE)

_APPLY_S = 600.0
_RETRY = Backoff(first_s=0.1, max_s=5.0)

log = get_logger(__name__)


def find_compatible_from(migrations: Sequence[Migration]) -> int:
    """The oldest schema whose gateways can use the one after these migrations."""
    named = [_NAMED_COMPATIBLE.findall(migration.sql) for migration in migrations]
    return max([_FIRST_COMPATIBLE, *(int(number) for numbers in named for number in numbers)])


async def pending_database_migrations(
    connection: Session, migrations: Sequence[Migration] | None = None
) -> list[Migration]:
    """The migrations this schema lacks.

    None of a newer schema that this version of the program can use.

    Raises: SchemaTooNew (a newer version of the program has used it, and this one cannot any more),
    StoreUnavailable (it has tables of another program).
    """
    known = load_migrations(_PACKAGE) if migrations is None else migrations
    version, made_by = await _current_version(connection)
    newest = known[-1].version
    if version > newest:
        compatible_from = await connection.fetchval(_COMPATIBLE_FROM)
        if compatible_from is None or compatible_from > newest:
            raise SchemaTooNew(
                f"the store has schema {version}, made by openclaw-a2a {made_by}; this version "
                f"knows schemas up to {newest}. Upgrade openclaw-a2a, or use another database",
                details={"schema": version, "madeBy": made_by},
            )
        log.warning("store.schema_newer", schema=version, known=newest, made_by=made_by)
    return [migration for migration in known if migration.version > version]


async def upgrade(
    connection: Session,
    schema: str,
    *,
    migrations: Sequence[Migration] | None = None,
    on_step: Callable[[Migration], None] = lambda _: None,
) -> list[Migration]:
    """Apply every pending migration, each in its own transaction; those applied."""
    # Waits for another one that migrates: longer than a statement may take.
    await connection.execute("SET statement_timeout TO 0; SET lock_timeout TO 0")
    await connection.execute(
        "SELECT pg_advisory_lock($1, hashtext($2))", MIGRATION_LOCK, schema, timeout=600
    )
    try:
        if await connection.fetchval(_HAS_SCHEMA, schema) is None:
            await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quote_name(schema)}")
        known = load_migrations(_PACKAGE) if migrations is None else migrations
        pending = await pending_database_migrations(connection, known)
        for migration in pending:
            applied = [one for one in known if one.version <= migration.version]
            await _apply_between_others(connection, applied)
            on_step(migration)
    finally:
        if not connection.is_closed():
            await connection.execute(
                "SELECT pg_advisory_unlock($1, hashtext($2))", MIGRATION_LOCK, schema
            )
    return pending


async def _apply_between_others(connection: Session, applied: Sequence[Migration]) -> None:
    """Apply the last one. Other gateways read and write meanwhile.

    A migration locks whole tables. While it waits for one, everybody else waits behind it, and two
    tables in another order than a reader's are a deadlock. So it gives way soon, and tries again.
    """

    def report(attempt: int) -> None:
        log.info("store.migration_waits", migration=applied[-1].name, attempt=attempt)

    errors = (driver.LockNotAvailableError, driver.DeadlockDetectedError)
    work = partial(_apply, connection, applied)
    await retry_for(work, errors, _RETRY, within_s=_APPLY_S, on_wait=report)


async def _apply(connection: Session, applied: Sequence[Migration]) -> None:
    migration = applied[-1]
    async with connection.transaction():
        # Shorter than the time after which the server looks for deadlocks and fails one of them.
        await connection.execute("SET LOCAL lock_timeout TO '500ms'")
        await connection.execute(migration.sql, timeout=_APPLY_S)
        await connection.execute(_ADD, migration.version, metadata.version("openclaw-a2a"))
        if migration.version >= _FIRST_COMPATIBLE:
            compatible_from = find_compatible_from(applied)
            await connection.execute(_SET_COMPATIBLE, migration.version, compatible_from)


async def plan_database_upgrade(address: Address) -> list[str]:
    """What a start would do, one line per migration; nothing is changed.

    Raises: SchemaTooNew, StoreUnavailable.
    """
    connection = await address.connect()
    try:
        return [migration.summary for migration in await pending_database_migrations(connection)]
    except driver.PostgresError as error:
        raise address.explain(error) from error
    finally:
        await connection.close()


async def _current_version(connection: Session) -> tuple[int, str]:
    """The schema version, and the program version that made it; 0 for an empty schema."""
    if await connection.fetchval(_HAS_VERSIONS):
        row = await connection.fetchrow(_VERSION)
        return (0, "nobody") if row is None else (row[0], row[1])
    if await connection.fetchval(_HAS_TABLES):
        raise StoreUnavailable(
            "the schema holds tables of another program; give this gateway another store.schema"
        )
    return 0, "nobody"
