"""Group commit: one writer thread, one transaction for all writes that are waiting.

`write_group` of `sqlite/database` and `json_file/writer` is the transaction.

The event loop collects writes and passes them to the thread as a list; the thread joins the lists
that wait into one group, makes it durable, and sends all results back in one call. So writes reach
the disk in call order, each future resolves after its write is durable, and a busy store makes
larger groups instead of a longer queue.

Invariant: every future that `write` returned is resolved. A group that fails fails its own writes
only, and the thread goes on. If the thread itself dies, what is queued fails, later writes are
refused, and `check` reports it.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import GatewayError, StoreUnavailable
from openclaw_a2a.store.rules import store_closed, write_failed

log = get_logger(__name__)

Command = TypeVar("Command")

MAX_GROUP = 512
"""A group of this size is written at once: bounds how long its first write waits."""

_QUIET_TURNS = 2
"""Writes are collected until so many turns of the event loop in a row add none. Fewer and larger
groups cost less: each one is a sync of the disk and two switches of threads."""
_MAX_COLLECT_TURNS = 5
"""The turns after which a group is written in any case."""


class Write(msgspec.Struct, Generic[Command], gc=False):
    """A pending write: what to do, and the future of its result."""

    command: Command
    future: "asyncio.Future[Any]"
    renames: int = 0
    """How many new names the gateway had got when the write was queued.

    For `postgres/writer`, which refuses writes that were queued under an earlier name.
    """


WriteOutcome = tuple[Write[Any], object, GatewayError | None]
"""A write, and its result or error."""


class GroupWriter(Generic[Command]):
    """Runs `write_group` in a thread of its own, for groups of writes in call order.

    `write_group` returns one outcome per write, once all of them are durable. `on_written` is
    called in the event loop for each of them, with its error, before its caller continues.
    """

    def __init__(
        self,
        name: str,
        write_group: Callable[[Sequence[Write[Command]]], list[WriteOutcome]],
        on_written: Callable[[Command, GatewayError | None], None] | None = None,
    ) -> None:
        self._name = name
        self._write_group = write_group
        self._on_written = on_written
        self._queue: queue.SimpleQueue[list[Write[Command]] | None] = queue.SimpleQueue()
        self._collected: list[Write[Command]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_dead = False  # set by the thread, read by the event loop

    def start(self) -> None:
        """Start the thread, for the running event loop."""
        self._loop = loop = asyncio.get_running_loop()
        # A daemon: a process that exits without `stop` must not hang on a thread that waits for
        # work. What it was writing then is what a crash would leave: a group that is durable as a
        # whole or not at all, and not acknowledged to its callers.
        self._thread = threading.Thread(
            target=self._run, args=(loop,), name="store-writer", daemon=True
        )
        self._thread.start()

    async def stop(self) -> None:
        """Finish the accepted writes and end the thread; later writes are refused."""
        # Refuse first, then send: nothing can be queued behind the None that ends the thread.
        thread, self._loop, self._thread = self._thread, None, None
        if thread is not None:
            self._send_collected()
            self._queue.put(None)
            await asyncio.to_thread(thread.join)

    @property
    def is_running(self) -> bool:
        """True between `start` and `stop`."""
        return self._loop is not None

    def check(self) -> None:
        """Raises StoreUnavailable if the writer is not running or its thread is dead."""
        if self._loop is None or self._is_dead:
            raise self._unavailable()

    def write(self, command: Command) -> "asyncio.Future[Any]":
        """Queue a write; the future has its result once it is durable."""
        loop = self._loop
        if loop is None or self._is_dead:
            return failed(self._unavailable())
        future: asyncio.Future[Any] = loop.create_future()
        # The first write of a batch schedules its hand-over; those that follow before it join the
        # batch.
        if not self._collected:
            loop.call_soon(self._send_when_quiet, loop, 1, 0, _MAX_COLLECT_TURNS)
        self._collected.append(Write(command, future))
        return future

    def _send_when_quiet(
        self, loop: asyncio.AbstractEventLoop, known: int, quiet: int, turns: int
    ) -> None:
        """Send the collected writes after `_QUIET_TURNS` turns without a new one, or no turns left.

        Writes of one cause arrive a turn or two apart: the messages of several connections, a
        message and the first events of its task. They share a transaction, and wake the thread
        once.
        """
        count = len(self._collected)
        quiet = quiet + 1 if count <= known else 0
        if quiet < _QUIET_TURNS and turns:
            loop.call_soon(self._send_when_quiet, loop, count, quiet, turns - 1)
        else:
            self._send_collected()

    def _send_collected(self) -> None:
        # Empty when `stop` sent the batch before the scheduled callback ran.
        collected, self._collected = self._collected, []
        if collected:
            self._queue.put(collected)
            # After the put: if the thread died before it, nothing else would fail these writes;
            # if it dies after it, failing the queue a second time finds it empty.
            if self._is_dead:
                self._fail_queued()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        group: list[Write[Command]] = []
        try:
            is_running = True
            while is_running:
                group = []
                # Filled in place, so that the handler below still has the writes if this thread
                # dies half-way. After the None of `stop` the last group is still written.
                is_running = self._gather(group)
                # One call for the whole group: each one wakes the loop through a socket.
                loop.call_soon_threadsafe(self._resolve, self._perform(group) if group else [])
        # Only `call_soon_threadsafe` can raise it here: `_perform` lets no Exception out.
        except RuntimeError:
            return  # the event loop is closed: no result is awaited
        except BaseException:
            # `_perform` has handled the errors of a group, so this is SystemExit, MemoryError or a
            # fault of this class, and the thread ends.
            log.error("store.writer_died", store=self._name, exc_info=True)
            # The group goes back into the queue, to be failed with what is there. The flag is set
            # before the loop is called: `_send_collected` then sees what comes in between.
            self._queue.put(group)
            self._is_dead = True
            loop.call_soon_threadsafe(self._fail_queued)

    def _perform(self, group: Sequence[Write[Command]]) -> list[WriteOutcome]:
        try:
            return self._write_group(group)
        except Exception as error:  # the edge of the thread: one bad group must not end it
            log.exception("store.group_failed", store=self._name, writes=len(group))
            return [(write, None, write_failed(self._name, error)) for write in group]

    def _gather(self, group: list[Write[Command]]) -> bool:
        """Fill the group with what waits; False if the writer is to stop after it."""
        # Blocks until `_send_collected` puts a batch or `stop` puts None; `get_nowait` then takes
        # what else arrived while the last group was being synced. This is what makes groups grow
        # under load.
        writes = self._queue.get()
        try:
            while writes is not None:
                group += writes
                if len(group) >= MAX_GROUP:
                    return True
                writes = self._queue.get_nowait()
        except queue.Empty:
            return True
        return False

    def _resolve(self, outcomes: list[WriteOutcome]) -> None:
        for write, result, error in outcomes:
            if self._on_written is not None:
                try:
                    self._on_written(write.command, error)
                except Exception as failure:  # the others of the group are still to be resolved
                    log.exception("store.group_failed", store=self._name, writes=1)
                    error = write_failed(self._name, failure)
            if write.future.done():
                # Its caller was cancelled. The write was made, or failed, all the same.
                continue
            if error is None:
                write.future.set_result(result)
            else:
                write.future.set_exception(error)

    def _fail_queued(self) -> None:
        """Fail every queued write, in the event loop: no thread is left to do them."""
        # The thread is dead and put its group back before it set the flag, so only the event loop
        # uses the queue now and `empty` cannot race.
        while not self._queue.empty():
            writes = self._queue.get_nowait() or ()
            self._resolve([(write, None, self._unavailable()) for write in writes])

    def _unavailable(self) -> StoreUnavailable:
        if not self._is_dead:
            return store_closed(self._name)
        return StoreUnavailable(
            f"the writer of the store {self._name} has died; restart the gateway"
        )


def failed(error: GatewayError) -> "asyncio.Future[Any]":
    """The future of a write that was refused before it was queued."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future
