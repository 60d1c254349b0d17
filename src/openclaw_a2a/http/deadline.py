"""Deadlines for reads and writes on client connections, without a timer for each of them."""

import asyncio
from collections.abc import Callable

from openclaw_a2a.model.errors import BodyTooSlow

WRITE_TIMEOUT_S = 30.0


class Deadline:
    """One deadline for every operation of a kind that is under way.

    Nearly every body has arrived when it is read, and nearly every chunk fits the send buffer.
    So there is no timer per operation, only one that looks at those still under way.
    """

    def __init__(self, seconds: float, make_error: Callable[[float], Exception]) -> None:
        self._seconds = seconds
        self._make_error = make_error
        self._deadlines: dict[asyncio.Task[object], float] = {}
        # Insertion order is deadline order: every operation gets the same time.
        self._expired: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> "asyncio.Task[object] | None":
        """The current task begins an operation."""
        task = asyncio.current_task()
        if task is not None:
            loop = task.get_loop()
            self._deadlines[task] = loop.time() + self._seconds
            if self._timer is None:
                self._timer = loop.call_later(self._seconds, self._cancel_expired)
        return task

    def stop(self, task: "asyncio.Task[object] | None") -> None:
        """The operation ended, in whatever way. Raises: the deadline's error, when it expired."""
        if task is None:
            return
        self._deadlines.pop(task, None)
        if task in self._expired:
            self._expired.discard(task)
            # Another cancellation may have come on top of ours; then that one wins.
            if task.uncancel() == 0:
                raise self._make_error(self._seconds)

    def _cancel_expired(self) -> None:
        self._timer = None
        if not self._deadlines:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        for task in [one for one, deadline in self._deadlines.items() if deadline <= now]:
            del self._deadlines[task]
            self._expired.add(task)
            task.cancel()
        if self._deadlines:
            earliest = next(iter(self._deadlines.values()))
            self._timer = loop.call_at(earliest, self._cancel_expired)


class ClientTooSlow(Exception):
    """A client stopped reading its response."""


def body_deadline(seconds: float) -> Deadline:
    """How long the body of a request may take to arrive; past it: BodyTooSlow."""
    return Deadline(
        seconds,
        lambda limit: BodyTooSlow(
            f"the request body did not arrive within {limit:g} seconds; send it again",
            details={"seconds": limit},
        ),
    )


def write_deadline(seconds: float = WRITE_TIMEOUT_S) -> Deadline:
    """How long a client may leave a chunk of a stream unread; past it: ClientTooSlow."""
    return Deadline(
        seconds, lambda limit: ClientTooSlow(f"the client read nothing for {limit:g} s")
    )
