"""How long a request's body may take."""

import asyncio

from openclaw_a2a.model.errors import BodyTooSlow


class BodyDeadline:
    """A deadline for all bodies that are being read.

    Nearly every body is there when it is asked for. So there is no timer for each of them, only
    one look now and then at those that are not.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._deadlines: dict[asyncio.Task[object], float] = {}
        self._late: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> "asyncio.Task[object] | None":
        """The current task begins to read."""
        task = asyncio.current_task()
        if task is not None:
            loop = task.get_loop()
            self._deadlines[task] = loop.time() + self._seconds
            if self._timer is None:
                self._timer = loop.call_later(self._seconds, self._look)
        return task

    def end(self, task: "asyncio.Task[object] | None") -> None:
        """The task has read, or gives up. Raises: BodyTooSlow, when it was told to give up."""
        if task is None:
            return
        self._deadlines.pop(task, None)
        if task in self._late:
            self._late.discard(task)
            if task.uncancel() == 0:
                raise BodyTooSlow(
                    f"the request body did not arrive within {self._seconds:g} seconds; "
                    "send it again",
                    details={"seconds": self._seconds},
                )

    def _look(self) -> None:
        self._timer = None
        if not self._deadlines:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        for task in [one for one, deadline in self._deadlines.items() if deadline <= now]:
            del self._deadlines[task]
            self._late.add(task)
            task.cancel()
        if self._deadlines:
            earliest = next(iter(self._deadlines.values()))
            self._timer = loop.call_at(earliest, self._look)
