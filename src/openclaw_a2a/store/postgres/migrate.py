"""Migrations of a PostgreSQL store: numbered, forward only, each in its own transaction.

Several gateways may start at once: an advisory lock lets one of them migrate, and the others find
nothing left to do.
"""

from collections.abc import Callable, Sequence
from importlib import metadata

from openclaw_a2a.model.errors import SchemaTooNew, StoreUnavailable
from openclaw_a2a.store.postgres.address import Address, Session, driver, quote_name
from openclaw_a2a.store.sqlite.migrate import Migration, load_migrations

_PACKAGE = "openclaw_a2a.store.postgres"
MIGRATION_LOCK = 0x6F634D
"""The class of the advisory lock; the second number is the schema's."""

_HAS_SCHEMA = "SELECT true FROM pg_namespace WHERE nspname = $1"
_HAS_VERSIONS = "SELECT to_regclass('schema_version') IS NOT NULL"
_HAS_TABLES = "SELECT true FROM pg_tables WHERE schemaname = current_schema() LIMIT 1"
_VERSION = "SELECT version, made_by FROM schema_version ORDER BY version DESC LIMIT 1"


async def pending_database_migrations(
    connection: Session, migrations: Sequence[Migration] | None = None
) -> list[Migration]:
    """The migrations this schema lacks.

    Raises: SchemaTooNew (a newer version of the program has used it), StoreUnavailable (it has
    tables of another program).
    """
    known = load_migrations(_PACKAGE) if migrations is None else migrations
    version, made_by = await _current_version(connection)
    if version > known[-1].version:
        raise SchemaTooNew(
            f"the store has schema {version}, made by openclaw-a2a {made_by}; this version knows "
            f"schemas up to {known[-1].version}. Upgrade openclaw-a2a, or use another database",
            details={"schema": version, "madeBy": made_by},
        )
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
        pending = await pending_database_migrations(connection, migrations)
        for migration in pending:
            async with connection.transaction():
                await connection.execute(migration.sql, timeout=600)
                await connection.execute(
                    "INSERT INTO schema_version (version, made_by) VALUES ($1, $2)",
                    migration.version,
                    metadata.version("openclaw-a2a"),
                )
            on_step(migration)
    finally:
        if not connection.is_closed():
            await connection.execute(
                "SELECT pg_advisory_unlock($1, hashtext($2))", MIGRATION_LOCK, schema
            )
    return pending


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
