"""Migrations of a SQLite store: numbered, forward only, each in its own transaction."""

import os
import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from importlib import resources
from pathlib import Path

import msgspec

from openclaw_a2a.model.errors import SchemaTooNew, StoreUnavailable
from openclaw_a2a.store.locks import FileLock


class Migration(msgspec.Struct, frozen=True):
    """One step: the schema version it leads to, its name and its statements."""

    version: int
    name: str
    sql: str

    @property
    def summary(self) -> str:
        """One line for the upgrade plan."""
        return f"{self.name}: {self.sql.splitlines()[0].lstrip('- ')}"


def load_migrations(package: str = "openclaw_a2a.store.sqlite") -> list[Migration]:
    """Every migration of this version of the program, in order."""
    folder = resources.files(package) / "migrations"
    files = sorted(folder.iterdir(), key=lambda file: file.name)
    return [
        Migration(int(file.name[:4]), file.name[:-4], file.read_text(encoding="utf-8"))
        for file in files
        if file.name.endswith(".sql")
    ]


def pending_migrations(
    connection: sqlite3.Connection, migrations: Sequence[Migration] | None = None
) -> list[Migration]:
    """The migrations this database lacks.

    Raises: SchemaTooNew (a newer version of the program has used it), StoreUnavailable (it is a
    database of another program).
    """
    known = load_migrations() if migrations is None else migrations
    version, made_by = _current_version(connection)
    if version > known[-1].version:
        raise SchemaTooNew(
            f"the store has schema {version}, made by openclaw-a2a {made_by}; this version knows "
            f"schemas up to {known[-1].version}. Upgrade openclaw-a2a, or use another store path",
            details={"schema": version, "madeBy": made_by},
        )
    return [migration for migration in known if migration.version > version]


def upgrade(
    connection: sqlite3.Connection,
    migrations: Sequence[Migration] | None = None,
    *,
    backup_of: Path | None = None,
    on_step: Callable[[Migration], None] = lambda _: None,
) -> list[Migration]:
    """Apply every pending migration, each in its own transaction; those applied.

    `backup_of` is the file of the database, which is copied first if anything is to be applied.
    `on_step` is called after each, also when a later one fails.
    """
    pending = pending_migrations(connection, migrations)
    if pending and backup_of is not None:
        _back_up(connection, backup_of)
    for migration in pending:
        _apply(connection, migration)
        on_step(migration)
    return pending


def plan_upgrade(path: str | Path) -> list[str]:
    """What `upgrade_file` would do, one line per migration; nothing is changed.

    Raises: SchemaTooNew, StoreUnavailable (it is a database of another program, or none).
    """
    file = Path(path).expanduser()
    if not file.exists():
        return [migration.summary for migration in load_migrations()]
    with _connected(file, f"{file.resolve().as_uri()}?mode=ro", uri=True) as connection:
        return [migration.summary for migration in pending_migrations(connection)]


def upgrade_file(path: str | Path) -> list[str]:
    """Upgrade a database that no gateway uses, after a backup; one line per applied migration.

    Raises: StoreLocked (a gateway uses it), SchemaTooNew, StoreUnavailable.
    """
    file = Path(path).expanduser()
    lock = FileLock.acquire(file)
    try:
        with _connected(file, str(file)) as connection:
            return [migration.summary for migration in upgrade(connection, backup_of=file)]
    finally:
        lock.release()


@contextmanager
def _connected(file: Path, address: str, *, uri: bool = False) -> Generator[sqlite3.Connection]:
    """A connection to the file. Raises: StoreUnavailable for whatever SQLite finds wrong."""
    try:
        with closing(sqlite3.connect(address, isolation_level=None, uri=uri)) as connection:
            yield connection
    except sqlite3.Error as error:
        raise StoreUnavailable(
            f"{file} cannot be read as a database ({error}); move it away, or use another store"
            " path"
        ) from error


def _back_up(connection: sqlite3.Connection, path: Path) -> None:
    """Copy a database that is about to be upgraded; a new one has nothing to copy."""
    version, _ = _current_version(connection)
    if version == 0:
        return
    # A crash during the copy leaves a partial file under this name; nothing was migrated, so the
    # next start makes the copy again over it.
    copy = path.with_name(f"{path.name}.backup-v{version}")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(copy, flags, 0o600), "wb") as file:
            os.fchmod(file.fileno(), 0o600)  # one that is there may be readable by others
    except OSError as error:
        raise StoreUnavailable(
            f"the backup {copy} cannot be written: {error.strerror}; remove what has its name, or "
            "see who may write in its folder"
        ) from error
    with closing(sqlite3.connect(copy)) as target:
        # Not a copy of the file: the last commits may be in the write-ahead log only.
        connection.backup(target)


def _current_version(connection: sqlite3.Connection) -> tuple[int, str]:
    """The schema version, and the program version that made it; 0 for an empty file."""
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    if "schema_version" in tables:
        query = "SELECT version, made_by FROM schema_version ORDER BY version DESC LIMIT 1"
        return connection.execute(query).fetchone() or (0, "nobody")
    if tables:
        raise StoreUnavailable(
            "the store path holds a database of another program; give this gateway another path"
        )
    return 0, "nobody"


def _apply(connection: sqlite3.Connection, migration: Migration) -> None:
    # Imported here because it is slow to import and most starts have nothing to upgrade.
    from importlib import metadata

    try:
        # The script leaves its transaction open: the new version is committed together with the
        # schema.
        connection.executescript(f"BEGIN IMMEDIATE;\n{migration.sql}")
        connection.execute(
            "INSERT INTO schema_version (version, made_by) VALUES (?, ?)",
            (migration.version, metadata.version("openclaw-a2a")),
        )
        connection.execute("COMMIT")
    except BaseException:
        # A crash here does the same: the next start finds the version before, and repeats.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
