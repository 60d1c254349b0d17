"""A subscription to the operations of an objective: from memory, or from the log when behind."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from openclaw_a2a.planning.model import ObjectiveId
from openclaw_a2a.planning.operations import Operation
from openclaw_a2a.planning.state import Change, ObjectiveState

MAX_PENDING = 1000

ReadOperations = Callable[[ObjectiveId, int], Awaitable[list[Operation]]]
"""Reads the operations after a sequence number from the log; none of a deleted objective."""


class OperationSubscription:
    """One reader of the operations of an objective, after a sequence number.

    Changes are passed in memory. A reader that falls `MAX_PENDING` operations behind reads them
    from the log instead: it delays no other reader, and its memory is bounded.
    """

    def __init__(
        self,
        state: ObjectiveState,
        after: int,
        *,
        read_operations: ReadOperations,
        unsubscribe: Callable[["OperationSubscription"], None],
    ) -> None:
        self.state = state
        self.is_over = False
        self._read_operations = read_operations
        self._unsubscribe = unsubscribe
        self._last_seq = after
        self._pending: list[Operation] = []
        self._is_behind = after < state.seq
        self._is_deleted = False
        self._wakeup = asyncio.Event()

    def publish(self, change: Change) -> None:
        """Add the operations of a change that is in the log, and wake the reader.

        Never waits: it is called by the writer, under the lock of the objective.
        """
        first = change.state.seq - len(change.operations)
        if first != self.state.seq:  # another replica wrote operations in between
            self._is_behind = True
        # Set also when operations are dropped: every message to a reader has the newest status.
        self.state = change.state
        if len(self._pending) + len(change.operations) > MAX_PENDING:
            self._pending.clear()
            self._is_behind = True
        if not self._is_behind:
            self._pending += change.operations
        self._wakeup.set()

    def end(self) -> None:
        """Called when the objective was deleted: nothing follows the pending operations."""
        self._is_deleted = True
        self._wakeup.set()

    def stop(self) -> None:
        """The reader is gone: a waiting `next_operations` returns at once."""
        self.is_over = True
        self._wakeup.set()

    async def next_operations(self, wait_s: float) -> list[Operation]:
        """The next operations.

        Empty after `wait_s` without operations, and when the subscription is over.

        Raises: StoreUnavailable.
        """
        if not (self._pending or self._is_behind or self._is_deleted or self.is_over):
            # Cleared only when there is nothing to return, and nothing is awaited in between: a
            # change that is published before the wait sets it again.
            self._wakeup.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wakeup.wait()
        if self._is_behind and not (self._is_deleted or self.is_over):
            missed = await self._read_operations(self.state.id, self._last_seq)
            # `_read_operations` awaits nothing after it has released the lock, so no change is
            # published between its read and these lines.

            # Leave out operations after `state.seq`, which another replica has written: they will
            # be published here, and must not be returned twice.
            known = [one for one in missed if one.seq <= self.state.seq]
            # Deleted meanwhile: the log may already be that of a new objective with this id.
            self._pending = [] if self._is_deleted else known
            self._is_behind = False
        if self.is_over:
            return []
        operations, self._pending = self._pending, []
        if operations:
            self._last_seq = operations[-1].seq
        # Only now: the operations before the deletion are still returned.
        self.is_over = self._is_deleted
        return operations

    def close(self) -> None:
        """Unsubscribe."""
        self.stop()
        self._unsubscribe(self)
