"""Moves everything from a store on disk into an empty PostgreSQL store, all of it or nothing.

Both stores are locked meanwhile. The rows are copied in one transaction, then read back in the same
order and compared by their number and their hash; only then is it committed. So a move that was
interrupted left nothing behind and is simply done again. The source is only read, some rows at a
time.
"""

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from openclaw_a2a.model.errors import StoreUnavailable
from openclaw_a2a.store.locks import FileLock
from openclaw_a2a.store.postgres.address import LOST, Address, Session, driver
from openclaw_a2a.store.postgres.json_file_source import JsonFileSource, SourceRow, SourceRows
from openclaw_a2a.store.postgres.link import WriteLink
from openclaw_a2a.store.postgres.stored_text import stored_id, stored_reason
from openclaw_a2a.store.sqlite import migrate
from openclaw_a2a.store.sqlite.transaction import from_microseconds, to_microseconds

_HOURS_S = 24 * 3600.0
_PAGE = 500


class _Table(msgspec.Struct, frozen=True):
    """A table that both stores have."""

    name: str
    key: str
    columns: list[str]

    @property
    def query(self) -> str:
        """All rows, in the order of the key."""
        return f"SELECT {', '.join(self.columns)} FROM {self.name} ORDER BY {self.key}"


_TABLES = {
    name: _Table(name, key, columns.split())
    for name, key, columns in (
        (
            "task",
            "number",
            "number id principal account context state status_at created_at sequence binding "
            "resume",
        ),
        ("snapshot", "task", "task sequence body"),
        ("event", "task, sequence", "task sequence state body"),
        ("content", "task, hash", "task hash body"),
        (
            "run",
            "ticket",
            "ticket id task context principal account session_key message_id owner fence "
            "is_started attempt input resume lease_until",
        ),
        (
            "message",
            "principal, account, message_id",
            "principal account message_id body_hash run task created_at answer",
        ),
        (
            "delivery",
            "id",
            "id kind task body cursor next_at created_at updated_at state attempts reason",
        ),
        ("record", "kind, id", "kind id number body expires_at version"),
        ("log", "number", "number kind id sequence is_closed updated_at"),
        ("log_line", "log, sequence", "log sequence body"),
    )
}
_COUNT_TASKS = """
INSERT INTO tally (principal, account, state, shard, count)
SELECT principal, account, state, 0, count(*) FROM task GROUP BY principal, account, state"""
_NEXT_NUMBERS = (
    "SELECT setval(pg_get_serial_sequence('task', 'number'), max(number)) FROM task",
    "SELECT setval(pg_get_serial_sequence('log', 'number'), max(number)) FROM log",
    "SELECT setval('run_ticket', max(ticket)) FROM run",
    "SELECT setval('record_number', max(number)) FROM record",
)
"""A table without rows leaves its sequence as it is."""

ReportTable = Callable[[str, int], None]
"""Called with the name of a table that was compared, and the number of its rows."""


async def move_sqlite(path: Path, address: Address, on_table: ReportTable) -> dict[str, int]:
    """Copy everything from a SQLite file; how many rows each table has.

    Raises: StoreLocked, SchemaTooNew, StoreUnavailable (the target is not empty, a row cannot be
    stored, or what was read back differs; nothing was changed).
    """
    lock = _lock_file(path)
    try:
        if pending := migrate.plan_upgrade(path):
            raise StoreUnavailable(
                f"{path} has an older schema ({len(pending)} steps behind); bring it up to date "
                "first: openclaw-a2a db upgrade"
            )
        with closing(_open_file(path)) as source:
            rows = ((name, source.execute(table.query)) for name, table in _TABLES.items())
            return await _move(rows, address, on_table)
    except sqlite3.Error as error:
        raise StoreUnavailable(f"{path} cannot be read: {error}; nothing was moved") from error
    finally:
        lock.release()


async def move_json_files(
    source: JsonFileSource, address: Address, on_table: ReportTable
) -> dict[str, int]:
    """Copy everything from the directory of a json-file store. Raises: as `move_sqlite`."""
    try:
        source.open()
        return await _move(source.rows(), address, on_table)
    except OSError as error:
        raise StoreUnavailable(
            f"{source.path} cannot be read: {error}; nothing was moved"
        ) from error
    finally:
        source.close()


async def _move(
    source: Iterator[SourceRows], address: Address, on_table: ReportTable
) -> dict[str, int]:
    link = WriteLink(address)
    try:
        await link.open(lambda _: None)
        try:
            return await _copy(source, link.connection, address, on_table)
        finally:
            await link.close()
    except (driver.PostgresError, *LOST) as error:
        raise address.explain(error) from error


def _lock_file(path: Path) -> FileLock:
    if not path.is_file():
        raise StoreUnavailable(f"there is no SQLite store at {path}; name its file with --from")
    return FileLock.acquire(path)


def _open_file(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)


async def _copy(
    source: Iterator[SourceRows], target: Session, address: Address, on_table: ReportTable
) -> dict[str, int]:
    await _check_empty(target, address)
    sent = {name: _Digest() for name in _TABLES}
    async with target.transaction():
        # As long as it takes: the transaction is the only one here.
        await target.execute("SET LOCAL statement_timeout TO 0")
        for name, rows in source:
            await target.copy_records_to_table(
                name,
                records=sent[name].follow(_decode(_TABLES[name], rows)),
                columns=_TABLES[name].columns,
                schema_name=address.schema,
                timeout=_HOURS_S,
            )
        for name, table in _TABLES.items():
            await _compare(target, table, sent[name], address)
            on_table(name, sent[name].count)
        await target.execute(_COUNT_TASKS)
        for statement in _NEXT_NUMBERS:
            await target.fetch(statement)
    await target.execute("ANALYZE", timeout=_HOURS_S)
    return {name: digest.count for name, digest in sent.items()}


async def _compare(target: Session, table: _Table, sent: "_Digest", address: Address) -> None:
    stored = _Digest()
    async for row in target.cursor(table.query, prefetch=_PAGE, timeout=_HOURS_S):
        stored.add(row)
    if (sent.count, sent.digest()) != (stored.count, stored.digest()):
        raise StoreUnavailable(
            f"the table {table.name} has {stored.count} rows in {address.shown} and {sent.count} "
            "in the source, or their contents differ; nothing was moved"
        )


async def _check_empty(target: Session, address: Address) -> None:
    for name in _TABLES:
        if await target.fetchval(f"SELECT true FROM {name} LIMIT 1"):
            raise StoreUnavailable(
                f"{address.shown} is not empty (it has rows in {name}); move into an empty "
                "database, or into another --schema"
            )


def _decode(table: _Table, rows: Iterable[SourceRow]) -> Iterator[SourceRow]:
    decoders = [_decoder(table.name, column) for column in table.columns]
    for row in rows:
        yield tuple([decode(value) for decode, value in zip(decoders, row, strict=True)])


def _decoder(table: str, column: str) -> Callable[[Any], Any]:
    """What turns a value of the source into one of the database."""
    if column.endswith(("_at", "_until")):
        return from_microseconds
    if column.startswith("is_"):
        return bool
    if (table, column) == ("log", "id"):
        return stored_id
    return stored_reason if column == "reason" else lambda value: value


class _Digest:
    """The number and the hash of rows, in their order."""

    def __init__(self) -> None:
        self.count = 0
        self._hash = hashlib.blake2b()

    def follow(self, rows: Iterable[SourceRow]) -> Iterator[SourceRow]:
        for row in rows:
            self.add(row)
            yield row

    def add(self, row: SourceRow) -> None:
        self.count += 1
        values = [to_microseconds(one) if isinstance(one, datetime) else one for one in row]
        self._hash.update(msgspec.msgpack.encode(values))

    def digest(self) -> bytes:
        return self._hash.digest()
