"""The database file of a SQLite store: its lock, its two connections, and its transactions.

Writes go to one thread, which joins everything that waits into one synced transaction. Reads run
in the event loop: a few rows from the page cache cost less than a switch to a thread.
"""

import sqlite3
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import anyio.to_thread

from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import GatewayError, StoreUnavailable
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.store.commands import AnyCommand
from openclaw_a2a.store.group_writer import GroupWriter, Write, WriteOutcome
from openclaw_a2a.store.locks import FileLock
from openclaw_a2a.store.rules import (
    PROBE_BYTES,
    ReportUpgrade,
    check_folder_rights,
    check_free_space,
    decode_rows,
    make_private_file,
    store_closed,
    write_failed,
)
from openclaw_a2a.store.sqlite.migrate import Migration, upgrade
from openclaw_a2a.store.sqlite.transaction import (
    BloomFilter,
    EndedTasks,
    WriteCache,
    WriteTransaction,
)

log = get_logger(__name__)

_LOOK_AGAIN_S = 30.0
"""How often a database that was found damaged is examined again."""

_SELECT_MESSAGE_KEYS = "SELECT principal, account, message_id FROM message"
_PROBE = tuple(
    f"UPDATE schema_version SET made_by = {text} WHERE version = 1"
    for text in (f"rtrim(made_by) || printf('%{PROBE_BYTES}s', '')", "rtrim(made_by)")
)
"""Writes that change nothing that matters, to see whether the disk has room for a message."""

Values = Sequence[object] | Mapping[str, object]
Row = tuple[Any, ...]
Decoded = TypeVar("Decoded")
_Command = AnyCommand | Callable[[WriteTransaction], Any]
"""A command, or a function for a write that only this kind of store has."""
Handlers = Mapping[type[Any], Callable[[WriteTransaction, Any], Any]]
"""What performs each type of command in the writer thread."""


def bind_scope(scope: Scope | None) -> dict[str, object]:
    """The values of `:principal` and `:account` in a query; None is any scope."""
    if scope is None:
        return {"principal": None, "account": None}
    return {"principal": scope.principal, "account": scope.account}


class SqliteDatabase:
    """One database file that one process uses at a time."""

    is_durable = True

    def __init__(
        self, path: str | Path, handlers: Handlers, on_upgrade: ReportUpgrade | None = None
    ) -> None:
        self.path = Path(path).expanduser()
        self._on_upgrade = on_upgrade
        self._handlers = handlers
        self.writer: GroupWriter[_Command] = GroupWriter(str(self.path), self.write_group)
        self.known_messages = BloomFilter()
        self.ended_tasks = EndedTasks()
        self._lock: FileLock | None = None
        self._reading: sqlite3.Connection | None = None
        self._writing: sqlite3.Connection | None = None  # used by the writer thread alone
        self._transaction: WriteTransaction | None = None  # likewise; with the cache of live rows
        self._failure: str | None = None  # of the last group that failed; `check` clears it
        self._damage: str | None = None  # what SQLite found wrong with the file; likewise
        self._damage_seen_at = 0.0
        self._identity = (0, 0)  # device and inode of the file
        self.is_open = False
        """True while `known_messages` is complete."""

    async def open(self) -> None:
        """Create the file if there is none, upgrade its schema, start to write.

        Raises: StoreLocked, SchemaTooNew, StoreUnavailable.
        """
        steps: list[Migration] = []
        try:
            await anyio.to_thread.run_sync(self._open_file, steps.append)
        finally:
            # Also when a later step failed. A new file begins with the first one.
            if steps and steps[0].version > 1 and self._on_upgrade is not None:
                self._on_upgrade(str(self.path), len(steps))
        self.writer.start()
        self.is_open = True

    async def close(self) -> None:
        """Finish the accepted writes and release the file."""
        self.is_open = False
        # The thread first: it uses a connection that is closed next.
        await self.writer.stop()
        await anyio.to_thread.run_sync(self._close_file)

    async def check(self) -> None:
        self.writer.check()
        try:
            self._check_place()
        except sqlite3.OperationalError as error:
            raise write_failed(str(self.path), error) from error
        check_free_space(self.path.parent)
        await self._check_damage()
        # `_failure` is set by the writer thread. A value that is a moment old costs one probe, no
        # more.
        if self._failure is not None:
            # In two transactions: pages that are freed before the commit would not be written.
            for statement in _PROBE:
                await self.writer.write(
                    lambda transaction, text=statement: transaction.connection.execute(text)
                )
            self._failure = None

    async def _check_damage(self) -> None:
        """Raises StoreUnavailable while the file is damaged; looks again now and then."""
        # Reading a whole database takes long, so not for every probe of a load balancer.
        is_due = time.monotonic() - self._damage_seen_at > _LOOK_AGAIN_S
        if self._damage is not None and is_due:
            self._damage = await anyio.to_thread.run_sync(self._find_damage)
            self._damage_seen_at = time.monotonic()
        if self._damage is not None:
            raise StoreUnavailable(
                f"the database {self.path} is damaged: {self._damage}; stop the gateway and "
                "restore the file from a backup, or rebuild it with sqlite3 .recover"
            )

    def _find_damage(self) -> str | None:
        try:
            with closing(self._connect()) as connection:
                found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        except sqlite3.Error as error:
            return str(error)
        return None if found == "ok" else str(found)

    def _note_damage(self, error: sqlite3.Error) -> None:
        # The low byte is the kind of error, what is above it the detail.
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) and self._damage is None:
            self._damage, self._damage_seen_at = str(error), time.monotonic()
            log.error("store.database_damaged", path=str(self.path), reason=str(error))

    def _check_place(self) -> None:
        """Raises OperationalError when the file was moved away or replaced.

        SQLite would go on writing to the file without a name, and a restart would not find it.
        """
        try:
            status = self.path.stat()
        except OSError as error:
            reason = error.strerror or str(error)
            raise sqlite3.OperationalError(f"its file is gone ({reason}); put it back") from None
        if (status.st_dev, status.st_ino) != self._identity:
            raise sqlite3.OperationalError(
                "its file was replaced while the gateway used it; put the old one back, or "
                "restart the gateway to use the new one"
            )

    # ---------------------------------------------------------------- reads

    def fetch_all(self, statement: str, values: Values = ()) -> list[Row]:
        """The rows of a query on committed data. Raises: StoreUnavailable."""
        connection = self._reading
        if connection is None:
            raise store_closed(str(self.path))
        try:
            try:
                return connection.execute(statement, values).fetchall()
            except sqlite3.OperationalError as error:
                if "UTF-8" not in str(error):
                    raise
                # A damaged text in one row must not hide the others.
                connection.text_factory = _lenient_text
                try:
                    return connection.execute(statement, values).fetchall()
                finally:
                    connection.text_factory = str
        except sqlite3.Error as error:
            self._note_damage(error)
            raise StoreUnavailable(
                f"the store {self.path} cannot be read: {error}; check the file and its disk"
            ) from error

    def fetch_one(self, statement: str, values: Values = ()) -> Row | None:
        """The first row of a query on committed data. Raises: StoreUnavailable."""
        rows = self.fetch_all(statement, values)
        return rows[0] if rows else None

    @contextmanager
    def reading_blob(self, table: str, number: int) -> Generator[Callable[[int], bytes]]:
        """What reads the body of a row, slice after slice; empty without such a row.

        Each slice costs the same. In a blob that is opened anew for each, SQLite would follow all
        pages up to the slice. On a connection of its own: the blob may stay open across an await,
        and the other reads see what is committed meanwhile.

        Raises: StoreUnavailable.
        """
        if self._reading is None:
            raise store_closed(str(self.path))
        with ExitStack() as opened:
            try:
                # Read-only: it makes no new file in place of one that was moved away.
                address = f"{self.path.resolve().as_uri()}?mode=ro"
                connection = opened.enter_context(closing(sqlite3.connect(address, uri=True)))
                blob = opened.enter_context(
                    connection.blobopen(table, "body", number, readonly=True)
                )
            except sqlite3.Error:
                blob = None

            def read(size: int) -> bytes:
                try:
                    return b"" if blob is None else blob.read(size)
                except sqlite3.Error:
                    return b""  # damaged: the reader compares its hash

            yield read

    @contextmanager
    def snapshot(self) -> Generator[None]:
        """Let all reads inside see the same committed state."""
        # Never held across an await: a long reader keeps the write-ahead log from shrinking.
        self.fetch_all("BEGIN")
        try:
            yield
        finally:
            self.fetch_all("COMMIT")

    # ---------------------------------------------------------------- writes

    def write_group(
        self, group: Sequence[Write[_Command]], *, is_careful: bool = False
    ) -> list[WriteOutcome]:
        """Write a group in one transaction, in the writer thread.

        A refusal concerns one write. If the database itself fails, the whole group fails, and the
        next one is tried again. `is_careful`: an id that is said to be new was not.
        """
        try:
            outcomes = self._transact(group, is_careful=is_careful)
        except Exception as error:  # whatever it was, the transaction must not stay open
            self._roll_back()
            if isinstance(error, sqlite3.IntegrityError) and not is_careful:
                return self.write_group(group, is_careful=True)
            if isinstance(error, sqlite3.Error):
                self._note_damage(error)
            # A full disk, a failing device, a damaged file; not an invalid row.
            if isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError:
                self._failure = str(error)
            # A single write is not tried again, so the recursion is one level deep.
            elif len(group) > 1:
                # One of them cannot be written at all: write each in its own transaction, so that
                # the others do not fail with it.
                return [
                    outcome
                    for write in group
                    for outcome in self.write_group([write], is_careful=True)
                ]
            return [(write, None, write_failed(str(self.path), error)) for write in group]
        return outcomes

    def _transact(
        self, group: Iterable[Write[_Command]], *, is_careful: bool
    ) -> list[WriteOutcome]:
        connection = self._writing
        if connection is None:
            connection = self._writing = self._connect()
            connection.text_factory = _lenient_text
        self._check_place()
        # IMMEDIATE takes the write lock now: checks and writes see the same database.
        connection.execute("BEGIN IMMEDIATE")
        transaction = self._transaction
        if transaction is None:
            cache = WriteCache(connection)
            transaction = WriteTransaction(connection, cache, self.known_messages, self.ended_tasks)
            self._transaction = transaction
        transaction.is_careful = is_careful
        outcomes: list[WriteOutcome] = []
        for write in group:
            command: Any = write.command
            handler = self._handlers.get(type(write.command))
            try:
                # Anything but a GatewayError leaves the group half done and goes to `write_group`,
                # which rolls all of it back.
                result = command(transaction) if handler is None else handler(transaction, command)
                outcomes.append((write, result, None))
            except GatewayError as error:
                # Refused before it changed anything; the rest of the group goes on.
                outcomes.append((write, None, error))
        transaction.flush()
        # The sync is in here. A crash before it leaves none of the group, after it all of it;
        # the callers are notified only afterwards.
        connection.execute("COMMIT")
        transaction.on_committed()
        return outcomes

    def _roll_back(self) -> None:
        # The cache may hold rows of the failed transaction: it is loaded again with the next one.
        self._transaction = None
        connection = self._writing
        if connection is None or not connection.in_transaction:
            return
        try:
            connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            # A connection that stays in its transaction refuses every later BEGIN. Closing it
            # rolls back; the next group opens another.
            log.warning("store.rollback_failed", path=str(self.path), reason=str(error))
            self._writing = None
            with suppress(sqlite3.Error):
                connection.close()

    # ---------------------------------------------------------------- file

    def _open_file(self, on_step: Callable[[Migration], None]) -> None:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            check_folder_rights(self.path.parent)
            # Before SQLite creates it with the default mode; its other files get the same.
            make_private_file(self.path)
            status = self.path.stat()
            self._identity = status.st_dev, status.st_ino
        except OSError as error:
            raise self._cannot_open(error.strerror or str(error)) from error
        # The lock before the first look: the write cache holds only without another writer.
        self._lock = FileLock.acquire(self.path)
        try:
            self._writing = self._connect()
            self._writing.text_factory = _lenient_text  # it reads few texts
            upgrade(self._writing, backup_of=self.path, on_step=on_step)
            self._reading = self._connect()
            self._reading.execute("PRAGMA query_only = ON")
            self.known_messages = BloomFilter(self.fetch_all(_SELECT_MESSAGE_KEYS))
        except BaseException as error:
            self._close_file()
            if isinstance(error, sqlite3.Error):
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                    raise StoreUnavailable(
                        f"the store {self.path} is no database or is damaged: {error}; restore it "
                        "from a backup, or move it away and start with an empty one"
                    ) from error
                raise self._cannot_open(str(error)) from error
            raise

    def _close_file(self) -> None:
        # The reading connection first: closing the last one folds the write-ahead log in.
        for connection in (self._reading, self._writing):
            if connection is not None:
                connection.close()
        self._reading = self._writing = self._transaction = None
        self.ended_tasks = EndedTasks()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _connect(self) -> sqlite3.Connection:
        # Opened in one thread and used in another, never in two at once.
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        # For programs that are no gateway, such as a backup or a shell; gateways are kept out by
        # the lock.
        connection.execute("PRAGMA busy_timeout = 5000")
        connection.execute("PRAGMA journal_mode = WAL")
        # FULL syncs the log at every commit; NORMAL would lose the last ones in a power cut.
        connection.execute("PRAGMA synchronous = FULL")
        # Fewer, larger checkpoints: pages that change all the time are copied less often.
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        return connection

    def _cannot_open(self, reason: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"the store {self.path} cannot be opened: {reason}; "
            "check that the file is ours and the directory may be written"
        )


def _lenient_text(stored: bytes) -> str:
    return stored.decode("utf-8", "replace")


class DatabasePart:
    """One of the four stores over a database."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self._write = database.writer.write

    def _decode_rows(
        self, what: str, decode: Callable[[Row], Decoded], rows: Iterable[Row]
    ) -> list[Decoded]:
        """What the rows hold; damaged ones are reported, by their first column, and left out."""
        return decode_rows(str(self._database.path), what, decode, rows)
