"""Group commit over PostgreSQL: all writes that wait at a moment share a transaction.

While a batch is committed, the writes that arrive are collected for the next one. So writes take
effect in call order, each future resolves after its write is durable, and a busy store makes larger
batches instead of a longer queue.

A batch is first tried as one statement (`statement.py`); if what it assumes is not so, it is
decided over the stored rows, in a transaction. When the connection is lost on the way, the batch is
neither repeated nor given up blindly: the link finds out whether it was committed.

Invariant: every future that `write` returned is resolved.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Any, TypeVar

from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import GatewayError, StoreUnavailable
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.ports import Accepted
from openclaw_a2a.store.commands import Command
from openclaw_a2a.store.group_writer import MAX_GROUP, Write, WriteOutcome, failed
from openclaw_a2a.store.postgres.address import LOST, DatabaseRow, Session, driver
from openclaw_a2a.store.postgres.batch import (
    Batch,
    BatchEnds,
    LogKey,
    NeededRows,
    NeedsRows,
    PendingTicket,
    StoredMessage,
    StoredRows,
)
from openclaw_a2a.store.postgres.link import LinkState, WriteLink, WriterReplaced
from openclaw_a2a.store.postgres.statement import build_statement
from openclaw_a2a.store.rules import store_closed, write_failed

log = get_logger(__name__)

_MAX_COLLECT_TURNS = 4
"""Writes are collected until a turn of the event loop adds none, for at most this many turns."""
_MAX_LOSSES = 5
"""How often a batch is sent again after its connection was lost: it may be what ends the session,
and a database that it brings down must not be brought down for ever."""
_MAX_DECISIONS = 8
"""How often a batch is decided again because another writer was faster."""

_DEADLOCKED: tuple[type[BaseException], ...] = (
    driver.DeadlockDetectedError,
    driver.SerializationError,
)
_BUSY: tuple[type[BaseException], ...] = (driver.UniqueViolationError, *_DEADLOCKED)
"""Another writer changed the same rows: decided again, the batch finds them."""
_UNFIT: tuple[type[BaseException], ...] = (
    driver.DataError,
    driver.IntegrityConstraintViolationError,
    driver.ProgramLimitExceededError,  # such as a text that is too long for an index
    ValueError,  # a text that UTF-8 cannot hold
    TypeError,
    OverflowError,
)
"""A row cannot be stored at all, whatever the state of the database."""
_MARK = """
UPDATE writer SET batch = $1, tickets = '{}', lease_until = now() + $2::interval WHERE name = $3"""

Result = TypeVar("Result")
TransactionWork = Callable[[Session], Awaitable[Any]]
"""A write that works on whole tables, in a transaction of its own: claims, deletions."""


class PostgresWriter:
    """Writes batches, one after the other, over the link."""

    def __init__(self, link: WriteLink) -> None:
        self._link = link
        self.on_committed: Callable[[Iterable[TaskId], Iterable[LogKey]], None] | None = None
        """Called with the tasks and logs that a batch has changed."""
        self._collected: list[Write[Any]] = []
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._renames = 0  # of the writes that are being made
        self.failure: str | None = None  # of the last batch that the server refused

    def start(self) -> None:
        """Start to write, in the running event loop."""
        self._is_stopping = False
        # Not in a task group: the store outlives the caller that opened it, until `stop`.
        self._task = asyncio.get_running_loop().create_task(self._run(), name="store-writer")

    async def stop(self) -> None:
        """Finish the accepted writes; later ones are refused."""
        task, self._task = self._task, None
        if task is not None:
            self._is_stopping = True
            self._wake.set()
            await asyncio.wait([task])  # one that died has said so; the rest is still to be closed

    def wake(self) -> None:
        """Look at the link, which was lost."""
        self._wake.set()

    def check(self) -> None:
        """Raises StoreUnavailable if nothing can be written now."""
        if self._task is None:
            raise store_closed(self._link.address.shown)
        if self._task.done():
            raise self._died()
        if self._link.state is not LinkState.CONNECTED:
            raise self._link.unavailable()

    def _died(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"the writer of the store {self._link.address.shown} has died; restart the gateway"
        )

    def write(self, command: object) -> "asyncio.Future[Any]":
        """Queue a command or a `TransactionWork`; the future has its result once it is durable."""
        task = self._task
        if task is None or task.done() or self._link.state is LinkState.DOWN:
            try:
                self.check()
            except StoreUnavailable as error:
                return failed(error)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._collected.append(Write(command, future, self._link.renames))
        self._wake.set()
        return future

    async def _run(self) -> None:
        try:
            while not (self._is_stopping and not self._collected):
                await self._step()
        finally:
            # A fault of this class, or the loop is closing: nobody is left to do them.
            left, self._collected = self._collected, []
            _resolve([(write, None, self._died()) for write in left])

    async def _step(self) -> None:
        if self._link.state is LinkState.RECOVERING:
            await self._link.recover()
        if self._link.state is LinkState.DOWN:
            _resolve([(write, None, self._link.unavailable()) for write in self._take()])
            if not self._is_stopping:
                await self._link.try_recover()
            return
        if not self._collected:
            if self._is_stopping:
                return  # it came while the link was made again; the wake-up is used up then
            self._wake.clear()
            await self._wake.wait()
            await self._collect()
            return
        await self._write_group(self._take())

    async def _collect(self) -> None:
        """Wait for a turn of the loop that adds no write: those that belong together come close."""
        for _ in range(_MAX_COLLECT_TURNS):
            count = len(self._collected)
            await asyncio.sleep(0)
            if len(self._collected) == count:
                return

    def _take(self) -> list[Write[Any]]:
        taken, self._collected = self._collected[:MAX_GROUP], self._collected[MAX_GROUP:]
        return taken

    # ---------------------------------------------------------------- groups

    async def _write_group(self, group: list[Write[Any]]) -> None:
        while group:
            self._renames = group[0].renames
            together = list(takewhile(lambda one: one.renames == self._renames, group))
            try:
                outcomes = await self._write_first(together)
            except Exception as error:  # the edge of the writer: one bad group must not end it
                outcomes = [self._fail(write, error) for write in together]
                if not isinstance(error, GatewayError | driver.PostgresError):
                    log.exception("store.group_failed", writes=len(together))
            _resolve(outcomes)
            group = group[len(outcomes) :]

    async def _write_first(self, group: list[Write[Any]]) -> list[WriteOutcome]:
        """Write as many of the group as fit into one batch; their outcomes."""
        work: Any = group[0].command
        if not isinstance(work, Command):
            return [await self._write_alone(group[0], work)]
        try:
            outcomes = await self._write_batch(group)
        except _UNFIT as error:
            # One of them cannot be written at all. The others do not fail with it: the first half
            # is tried alone, and its outcomes are reported before the rest is tried.
            count = len(_commands(group))
            if count == 1:
                return [self._fail(group[0], error)]
            return await self._write_first(group[: count // 2])
        self.failure = None
        return outcomes

    def _fail(self, write: Write[Any], error: BaseException) -> WriteOutcome:
        if isinstance(error, GatewayError):
            return write, None, error
        if not isinstance(error, _UNFIT):
            self.failure = str(error)
        return write, None, write_failed(self._link.address.shown, error)

    async def _write_alone(self, write: Write[Any], work: TransactionWork) -> WriteOutcome:
        async def attempt(connection: Session, number: int) -> object:
            nonlocal result
            async with connection.transaction():
                await self._link.check_name(connection)
                result = await work(connection)
                await connection.execute(_MARK, number, self._link.lease_time, self._link.name)
            return result

        result: object = None
        try:
            # What it read is known before the commit; only that itself can be in doubt. In a
            # deadlock the other side went on; a newer gateway that migrates gives way soon.
            return write, await self._perform_again(attempt, lambda _: result, _DEADLOCKED), None
        except Exception as error:  # whatever it was, it is not the fault of the others
            if not isinstance(error, GatewayError | driver.PostgresError):
                log.exception("store.group_failed", writes=1)
            return self._fail(write, error)

    async def _write_batch(self, group: list[Write[Any]]) -> list[WriteOutcome]:
        outcomes = await self._perform_assumed(group)
        return await self._perform_decided(group) if outcomes is None else outcomes

    async def _perform_assumed(self, group: list[Write[Any]]) -> list[WriteOutcome] | None:
        """Write the batch as one statement; None if an assumption was wrong: nothing is written."""
        batch = Batch()
        try:
            decided = _decide(batch, group)
        except NeedsRows:
            return None

        async def attempt(connection: Session, number: int) -> list[WriteOutcome]:
            return _with_tickets(decided, await self._send(connection, batch, number))

        try:
            outcomes = await self._perform(attempt, lambda tickets: _with_tickets(decided, tickets))
        except (_WrongAssumption, *_BUSY):
            return None
        self._report(batch)
        return outcomes

    async def _perform_decided(self, group: list[Write[Any]]) -> list[WriteOutcome]:
        """Decide the batch over the stored rows, which are locked, and write it."""

        async def attempt(connection: Session, number: int) -> list[WriteOutcome]:
            nonlocal outcomes, batch
            async with connection.transaction():
                await self._link.check_name(connection)
                stored = await load_rows(connection, NeededRows(_commands(group)))
                batch = Batch(stored)
                decided = _decide(batch, group)
                outcomes = _with_tickets(decided, await self._send(connection, batch, number))
            return outcomes

        outcomes: list[WriteOutcome] = []
        batch = Batch()
        # Where another writer added a row after it was looked for, the next attempt finds it. A row
        # that cannot be added at all, as a run with the id of another, fails the last one, too.
        done = await self._perform_again(attempt, lambda _: outcomes, (_WrongAssumption, *_BUSY))
        self._report(batch)
        return done

    async def _send(self, connection: Session, batch: Batch, number: int) -> list[int]:
        """Write the batch; its tickets. Raises: _WrongAssumption."""
        statement = build_statement(batch, writer=self._link, number=number)
        ok, tickets = await connection.fetchrow(statement.text, *statement.values)
        if not ok:
            raise _WrongAssumption
        return tickets

    def _report(self, batch: Batch) -> None:
        """A batch is committed."""
        if self.on_committed is not None and (batch.tasks or batch.cleared or batch.logs):
            # Those that are only cleared lost their resume token to a new run.
            self.on_committed({*batch.tasks, *batch.cleared}, batch.logs)

    async def _perform_again(
        self,
        attempt: Callable[[Session, int], Awaitable[Result]],
        on_committed: Callable[[list[int]], Result],
        errors: tuple[type[BaseException], ...],
    ) -> Result:
        """Make attempts until one does not fail with one of these errors; the last may."""
        for _ in range(_MAX_DECISIONS - 1):
            with suppress(*errors):
                return await self._perform(attempt, on_committed)
        return await self._perform(attempt, on_committed)

    async def _perform(
        self,
        attempt: Callable[[Session, int], Awaitable[Result]],
        on_committed: Callable[[list[int]], Result],
    ) -> Result:
        """Make one attempt, and find out what became of it when the connection is lost.

        Raises: StoreUnavailable (the database did not come back, or another gateway has the work
        of this one), and what the attempt raises.
        """
        link = self._link
        for _ in range(_MAX_LOSSES):
            await link.recover()  # it may have been lost since the batch before
            if link.renames != self._renames:
                # Asked for under the old name: by what is another gateway's now, or for a session
                # that is.
                raise _replaced(link)
            number, takeovers = link.batch + 1, link.takeovers
            try:
                result = await attempt(link.connection, number)
            except WriterReplaced:
                await link.replace_name()
                raise _replaced(link) from None
            except LOST as error:
                link.note_loss(error)
            else:
                link.batch = number
                return result
            await link.recover()
            if link.state is not LinkState.CONNECTED:
                link.given_up = number
                raise link.unavailable()
            if link.takeovers != takeovers:
                raise StoreUnavailable(
                    f"another gateway used {link.address.shown} while this one had lost it; "
                    "whether the write was made is not known"
                )
            if link.batch == number:
                return on_committed(link.tickets)
            # It left nothing behind: the old session is over, and the number is not there.
        raise StoreUnavailable(
            f"{link.address.shown} ended the connection {_MAX_LOSSES} times while it was given the "
            "same writes; they were not made. Look at the log of the database"
        )


def _replaced(link: WriteLink) -> StoreUnavailable:
    return StoreUnavailable(
        f"another gateway took over the work of this one in {link.address.shown}, which had not "
        "written for too long; the write was not made"
    )


class _WrongAssumption(Exception):
    """Something that a batch assumed is not so; nothing was written."""


def _commands(group: Sequence[Write[Any]]) -> list[Any]:
    """The commands before the first `TransactionWork`."""
    return list(takewhile(lambda one: isinstance(one, Command), [one.command for one in group]))


def _decide(batch: Batch, group: Sequence[Write[Any]]) -> list[WriteOutcome]:
    """Add as many commands to the batch as fit; their outcomes, if it is committed."""
    outcomes: list[WriteOutcome] = []
    for write, command in zip(group, _commands(group), strict=False):
        try:
            outcomes.append((write, batch.add(command), None))
        except BatchEnds:
            break
        except GatewayError as error:
            outcomes.append((write, None, error))
    return outcomes


def _with_tickets(decided: list[WriteOutcome], tickets: list[int]) -> list[WriteOutcome]:
    return [
        (
            write,
            Accepted(tickets[result.index]) if isinstance(result, PendingTicket) else result,
            error,
        )
        for write, result, error in decided
    ]


def _resolve(outcomes: list[WriteOutcome]) -> None:
    for write, result, error in outcomes:
        if write.future.done():
            continue  # its caller was cancelled; the write was made, or failed, all the same
        if error is None:
            write.future.set_result(result)
        else:
            write.future.set_exception(error)


_LOAD_TASKS = "SELECT id, sequence FROM task WHERE id = ANY ($1) ORDER BY id FOR UPDATE"
_LOAD_RUNS = "SELECT id, fence FROM run WHERE id = ANY ($1) ORDER BY id FOR UPDATE"
_LOAD_MESSAGES = """
SELECT m.principal, m.account, m.message_id, m.body_hash, m.run, m.task, m.answer
FROM unnest($1::text[], $2::text[], $3::text[]) AS x(principal, account, message_id)
JOIN message m USING (principal, account, message_id)"""
_LOAD_DELIVERIES = """
SELECT id, kind, task, body FROM delivery WHERE id = ANY ($1) OR task = ANY ($2)
ORDER BY id FOR UPDATE"""
_LOAD_RECORDS = """
SELECT r.kind, r.id, r.version FROM unnest($1::text[], $2::text[]) AS x(kind, id)
JOIN record r USING (kind, id) ORDER BY 1, 2 FOR UPDATE OF r"""
_LOAD_LOGS = """
SELECT l.kind, l.id, l.sequence FROM unnest($1::text[], $2::text[]) AS x(kind, id)
JOIN log l USING (kind, id) ORDER BY 1, 2 FOR UPDATE OF l"""


async def load_rows(connection: Session, needed: NeededRows) -> StoredRows:
    """Read and lock the rows that a group names, always in the same order."""

    async def load(statement: str, *columns: list[str]) -> list[DatabaseRow]:
        return await connection.fetch(statement, *columns) if any(columns) else []

    tasks = await load(_LOAD_TASKS, sorted(needed.tasks))
    runs = await load(_LOAD_RUNS, sorted(needed.runs))
    messages = await load(_LOAD_MESSAGES, *_columns(needed.messages))
    names = sorted(needed.deliveries), sorted(needed.delivery_tasks)
    deliveries = await load(_LOAD_DELIVERIES, *names)
    records = await load(_LOAD_RECORDS, *_columns(needed.records))
    logs = await load(_LOAD_LOGS, *_columns(needed.logs))
    return StoredRows(
        tasks={row[0]: row[1] for row in tasks},
        runs={row[0]: row[1] for row in runs},
        messages={(row[0], row[1], row[2]): StoredMessage(*row[3:]) for row in messages},
        deliveries={row[0]: (row[1], row[2], row[3]) for row in deliveries},
        records={(row[0], row[1]): row[2] for row in records},
        logs={(row[0], row[1]): row[2] for row in logs},
    )


def _columns(keys: set[Any]) -> list[list[str]]:
    return [list(column) for column in zip(*sorted(keys), strict=True)]
