"""The schema of a next version: what a migration of a minor version may add, in every place.

Every table gets columns: one that may be null, one with a default, and one for each name that
columns of other tables have (a statement that names a column without its table would not know which
is meant). There are new tables, sequences and indexes. The present code must not notice.
"""

import asyncpg

from openclaw_a2a.store.postgres.address import quote_name
from openclaw_a2a.store.postgres.migrate import upgrade
from openclaw_a2a.store.sqlite.migrate import Migration, load_migrations

PACKAGE = "openclaw_a2a.store.postgres"
KNOWN = load_migrations(PACKAGE)
NEXT = Migration(
    KNOWN[-1].version + 1,
    "9998_next",
    """-- What the next version adds.
DO $$
DECLARE
  one record;
  name text;
BEGIN
  FOR one IN SELECT tablename FROM pg_tables WHERE schemaname = current_schema() LOOP
    EXECUTE format(
      'ALTER TABLE %I ADD COLUMN next_note text, ADD COLUMN next_count bigint NOT NULL DEFAULT 7',
      one.tablename);
    EXECUTE format('CREATE INDEX ON %I (next_count)', one.tablename);
    FOR name IN
      SELECT DISTINCT attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
      WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND attnum > 0
    LOOP
      EXECUTE format('ALTER TABLE %I ADD COLUMN IF NOT EXISTS %I text', one.tablename, name);
    END LOOP;
  END LOOP;
END $$;
CREATE TABLE next_table (id text PRIMARY KEY, note text NOT NULL);
CREATE SEQUENCE next_number;
""",
)


async def apply_next(url: str, schema: str, *more: Migration) -> None:
    """Migrate as the next version does."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"SET search_path TO {quote_name(schema)}")
        await upgrade(connection, schema, migrations=[*KNOWN, NEXT, *more])
    finally:
        await connection.close()
