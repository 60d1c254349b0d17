"""Moves everything from a store on disk into an empty PostgreSQL store, all of it or nothing.

Both stores are locked meanwhile. The rows are copied in one transaction, then read back in the same
order and compared by their number and their hash; only then is it committed. So a move that was
interrupted left nothing behind and is simply done again. The source is only read, some rows at a
time.
"""

import hashlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
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
from openclaw_a2a.store.postgres.log_ids import stored_id
from openclaw_a2a.store.postgres.statement import stored_reason
from openclaw_a2a.store.sqlite import migrate
from openclaw_a2a.store.sqlite.transaction import from_microseconds, to_microseconds

_HOURS_S = 24 * 3600.0
_PAGE = 500


class _Table(msgspec.Struct, frozen=True):
    """A table that both stores have: its columns, its key, and the columns that differ in form."""

    name: str
    columns: tuple[str, ...]
    key: str
    times: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()


def _table(name: str, columns: str, key: str, times: str = "", flags: str = "") -> _Table:
    return _Table(
        name, tuple(columns.split()), key, frozenset(times.split()), frozenset(flags.split())
    )


_TABLES = (
    _table(
        "task",
        "number id principal account context state status_at created_at sequence binding resume",
        "number",
        "status_at created_at",
    ),
    _table("snapshot", "task sequence body", "task"),
    _table("event", "task sequence state body", "task, sequence"),
    _table("content", "task hash body", "task, hash"),
    _table(
        "run",
        "ticket id task context principal account session_key message_id owner fence is_started "
        "attempt input resume lease_until",
        "ticket",
        "lease_until",
        "is_started",
    ),
    _table(
        "message",
        "principal account message_id body_hash run task created_at answer",
        "principal, account, message_id",
        "created_at",
    ),
    _table(
        "delivery",
        "id kind task body cursor next_at created_at updated_at state attempts reason",
        "id",
        "next_at created_at updated_at",
    ),
    _table("record", "kind id number body expires_at version", "kind, id", "expires_at"),
    _table(
        "log", "number kind id sequence is_closed updated_at", "number", "updated_at", "is_closed"
    ),
    _table("log_line", "log sequence body", "log, sequence"),
)
_BY_NAME = {table.name: table for table in _TABLES}
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
"""Is told the name of a table that was compared, and how many rows it has."""


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
            return await _move(_read_file(source), address, on_table)
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
    link = WriteLink(address, lambda: None)
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
    sent = {table.name: _Digest() for table in _TABLES}
    async with target.transaction():
        # As long as it takes: the transaction is the only one here.
        await target.execute("SET LOCAL statement_timeout TO 0")
        for name, rows in source:
            await target.copy_records_to_table(
                name,
                records=sent[name].follow(_decode(_BY_NAME[name], rows)),
                columns=_BY_NAME[name].columns,
                schema_name=address.schema,
                timeout=_HOURS_S,
            )
        for table in _TABLES:
            await _compare(target, table, sent[table.name], address)
            on_table(table.name, sent[table.name].count)
        await target.execute(_COUNT_TASKS)
        for statement in _NEXT_NUMBERS:
            await target.fetch(statement)
    await target.execute("ANALYZE", timeout=_HOURS_S)
    return {name: digest.count for name, digest in sent.items()}


async def _compare(target: Session, table: _Table, sent: "_Digest", address: Address) -> None:
    stored = _Digest()
    async for row in _read_back(target, table):
        stored.add(row)
    if (sent.count, sent.digest()) != (stored.count, stored.digest()):
        raise StoreUnavailable(
            f"the table {table.name} has {stored.count} rows in {address.shown} and {sent.count} "
            "in the source, or their contents differ; nothing was moved"
        )


async def _check_empty(target: Session, address: Address) -> None:
    for table in _TABLES:
        if await target.fetchval(f"SELECT true FROM {table.name} LIMIT 1"):
            raise StoreUnavailable(
                f"{address.shown} is not empty (it has rows in {table.name}); move into an empty "
                "database, or into another --schema"
            )


def _read_file(source: sqlite3.Connection) -> Iterator[SourceRows]:
    for table in _TABLES:
        columns = ", ".join(table.columns)
        query = f"SELECT {columns} FROM {table.name} ORDER BY {table.key}"
        yield table.name, source.execute(query)


def _decode(table: _Table, rows: Iterable[SourceRow]) -> Iterator[SourceRow]:
    decode = _decoder(table)
    for row in rows:
        yield tuple([one(value) for one, value in zip(decode, row, strict=True)])


def _decoder(table: _Table) -> list[Callable[[Any], Any]]:
    """What turns each column of the source into a value of the database."""

    def choose(column: str) -> Callable[[Any], Any]:
        if column in table.times:
            return from_microseconds
        if column in table.flags:
            return bool
        if (table.name, column) == ("log", "id"):
            return stored_id
        if (table.name, column) == ("delivery", "reason"):
            return stored_reason
        return _same

    return [choose(column) for column in table.columns]


def _same(value: Any) -> Any:
    return value


async def _read_back(target: Session, table: _Table) -> AsyncIterator[SourceRow]:
    query = f"SELECT {', '.join(table.columns)} FROM {table.name} ORDER BY {table.key}"
    async for row in target.cursor(query, prefetch=_PAGE, timeout=_HOURS_S):
        yield tuple(row)


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
