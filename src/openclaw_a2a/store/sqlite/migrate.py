"""Moves the schema of a SQLite store forward, one numbered step after the other."""

import sqlite3
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from importlib import resources
from pathlib import Path

import msgspec

from openclaw_a2a.model.errors import SchemaTooNew, StoreUnavailable
from openclaw_a2a.store.locks import FileLock


class Step(msgspec.Struct, frozen=True):
    """One step: the version it leads to, its name, and the statements."""

    version: int
    name: str
    sql: str

    @property
    def summary(self) -> str:
        """One line for people."""
        return f"{self.name}: {self.sql.splitlines()[0].lstrip('- ')}"


def load_steps() -> list[Step]:
    """Every step this version of the program knows, in order."""
    folder = resources.files("openclaw_a2a.store.sqlite") / "migrations"
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))
    return [
        Step(int(name[:4]), name.removesuffix(".sql"), (folder / name).read_text(encoding="utf-8"))
        for name in names
    ]


def pending(connection: sqlite3.Connection, steps: Sequence[Step] | None = None) -> list[Step]:
    """The steps this database lacks.

    Raises:
        SchemaTooNew: a newer version of the program has used it.
        StoreUnavailable: it is a database of something else.
    """
    known = load_steps() if steps is None else steps
    version, made_by = _current(connection)
    if version > known[-1].version:
        raise SchemaTooNew(
            f"the store has schema {version}, made by openclaw-a2a {made_by}; this version knows "
            f"schemas up to {known[-1].version}. Upgrade openclaw-a2a, or use another store path",
            details={"schema": version, "madeBy": made_by},
        )
    return [step for step in known if step.version > version]


def upgrade(connection: sqlite3.Connection, steps: Sequence[Step] | None = None) -> list[Step]:
    """Take every pending step, each in its own transaction; the steps taken."""
    waiting = pending(connection, steps)
    for step in waiting:
        _take(connection, step)
    return waiting


def back_up(connection: sqlite3.Connection, path: Path) -> Path | None:
    """A copy of a database that is about to be upgraded; None for one that holds nothing yet."""
    version, _ = _current(connection)
    if version == 0:
        return None
    copy = path.with_name(f"{path.name}.backup-v{version}")
    copy.touch(mode=0o600)
    with closing(sqlite3.connect(copy)) as target:
        connection.backup(target)
    return copy


def plan_upgrade(path: str | Path) -> list[str]:
    """What `upgrade_file` would do, one line per step; nothing is changed.

    Raises:
        SchemaTooNew: a newer version of the program has used it.
        StoreUnavailable: it is a database of something else, or none.
    """
    file = Path(path).expanduser()
    if not file.exists():
        return [step.summary for step in load_steps()]
    with _connected(file, f"{file.resolve().as_uri()}?mode=ro", uri=True) as connection:
        return [step.summary for step in pending(connection)]


def upgrade_file(path: str | Path) -> list[str]:
    """Bring a database that nobody uses to the newest schema, after a backup; the steps taken.

    Raises:
        StoreLocked: a gateway uses it.
        SchemaTooNew: a newer version of the program has used it.
        StoreUnavailable: it is a database of something else, or none.
    """
    file = Path(path).expanduser()
    lock = FileLock.acquire(file)
    try:
        with _connected(file, str(file)) as connection:
            return [step.summary for step in upgrade_with_backup(connection, file)]
    finally:
        lock.release()


@contextmanager
def _connected(file: Path, address: str, *, uri: bool = False) -> Generator[sqlite3.Connection]:
    """A connection to the file; what SQLite finds wrong with it is told in our words."""
    try:
        with closing(sqlite3.connect(address, isolation_level=None, uri=uri)) as connection:
            yield connection
    except sqlite3.Error as error:
        raise StoreUnavailable(
            f"{file} cannot be read as a database ({error}); move it away, or use another store"
            " path"
        ) from error


def upgrade_with_backup(
    connection: sqlite3.Connection, path: Path, *, steps: Sequence[Step] | None = None
) -> list[Step]:
    """Take every pending step, after a copy of what is there."""
    if not pending(connection, steps):
        return []
    back_up(connection, path)
    return upgrade(connection, steps)


def _current(connection: sqlite3.Connection) -> tuple[int, str]:
    """The version of the schema and which version of the program made it; 0 for an empty file."""
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    if "schema_version" in tables:
        query = "SELECT version, made_by FROM schema_version ORDER BY version DESC LIMIT 1"
        return connection.execute(query).fetchone() or (0, "nobody")
    if tables:
        raise StoreUnavailable(
            "the store path holds a database of another program; give this gateway another path"
        )
    return 0, "nobody"


def _take(connection: sqlite3.Connection, step: Step) -> None:
    # Imported here because it is slow to import and most starts have nothing to upgrade.
    from importlib import metadata

    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in _statements(step.sql):
            connection.execute(statement)
        connection.execute(
            "INSERT INTO schema_version (version, made_by) VALUES (?, ?)",
            (step.version, metadata.version("openclaw-a2a")),
        )
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _statements(sql: str) -> list[str]:
    statements: list[str] = []
    lines: list[str] = []
    for line in sql.splitlines():
        lines.append(line)
        if sqlite3.complete_statement(text := "\n".join(lines)):
            statements.append(text)
            lines = []
    return statements
