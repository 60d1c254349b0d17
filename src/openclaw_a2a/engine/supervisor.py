"""Owns background work: starts it, reports what fails, ends it together.

Every task of the gateway that outlives the function that starts it belongs to a supervisor. Only
two other modules make such tasks: `http/server_protocol`, one for each request, and
`store/postgres/writer`, one while its store is open. A task that is started elsewhere could be
garbage collected while it runs, and its exception would be lost. Work that is short, frequent and
never waits uses a timer instead of a task.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar

from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import GatewayError

log = get_logger(__name__)

T = TypeVar("T")


class Supervisor:
    """The background tasks of one component, and of the components below it."""

    def __init__(self, name: str = "gateway") -> None:
        self.name = name
        self._tasks: set[asyncio.Task[Any]] = set()
        self._dead_loops: dict[str, str] = {}
        self._children: list[Supervisor] = []
        self._timers: list[LoopTimer] = []
        self._is_stopping = False

    def child(self, name: str) -> "Supervisor":
        """A supervisor for a part; its dead loops are reported here, and it stops with this one."""
        supervisor = Supervisor(name)
        self._children.append(supervisor)
        return supervisor

    def start(self, name: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task whose outcome its owner awaits. Its exception is the owner's to handle."""
        # Not `create_task` of the loop, which first makes up a name.
        task = asyncio.Task(work, loop=asyncio.get_running_loop(), name=name)
        # The event loop holds tasks weakly: without this reference one could vanish while it waits.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def spawn(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a job whose outcome is not awaited. Its exception is logged."""
        task = self.start(name, work)
        task.add_done_callback(self._report_job)
        return task

    def run_loop(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a loop that must run until it is cancelled.

        Once it ends by itself it is listed in `dead_loops`, which makes the gateway not ready.
        """
        self._dead_loops.pop(name, None)
        task = self.start(name, work)
        task.add_done_callback(self._report_loop)
        return task

    def run_every(
        self,
        name: str,
        seconds: float,
        work: Callable[[], Awaitable[object]],
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> asyncio.Task[None]:
        """Start a loop that calls `work` with a pause before each call, also before the first.

        A call that raises is logged, and the next one is made all the same.
        """
        return self.run_loop(name, self._repeat(name, seconds, work, sleep))

    async def _repeat(
        self,
        name: str,
        seconds: float,
        work: Callable[[], Awaitable[object]],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        while True:
            await sleep(seconds)
            try:
                await work()
            except (GatewayError, OSError) as error:  # the store or the disk may be back next time
                reason = str(error) or type(error).__name__
                log.warning(
                    "supervisor.call_failed", supervisor=self.name, loop=name, reason=reason
                )
            except Exception as error:  # one bug or damaged record must not end the loop
                reason = f"{type(error).__name__}: {error}"
                log.exception(
                    "supervisor.call_failed", supervisor=self.name, loop=name, reason=reason
                )

    def timer(
        self, name: str, work: Callable[[], float | None], *, retry_s: float = 1.0
    ) -> "LoopTimer":
        """A timer for short work on the event loop; see `LoopTimer`.

        While its work fails it is listed in `dead_loops`.
        """
        timer = LoopTimer(name, work, retry_s=retry_s)
        self._timers.append(timer)
        return timer

    @property
    def dead_loops(self) -> dict[str, str]:
        """Loops that ended by themselves or fail, here and below, each with the reason."""
        dead = dict(self._dead_loops)
        dead.update({one.name: one.failure for one in self._timers if one.failure})
        for child in self._children:
            dead.update(child.dead_loops)
        return dead

    async def stop(self, timeout_s: float = 10.0) -> list[str]:
        """Cancel every task and wait for them; the names of those that did not end in time."""
        self._is_stopping = True
        for timer in self._timers:
            timer.stop()
        late: list[str] = []
        for child in self._children:
            late += await child.stop(timeout_s)
        # The task that stops the supervisor may be one of its own: it cannot wait for itself.
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            # A task that ignores its cancellation is reported by its name, not awaited for ever.
            _, running = await asyncio.wait(tasks, timeout=timeout_s)
            late += [task.get_name() for task in running]
        if late:
            log.warning("supervisor.tasks_not_ended", supervisor=self.name, tasks=late)
        return late

    def _report_job(self, task: "asyncio.Task[Any]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error(
                "supervisor.job_failed", supervisor=self.name, job=task.get_name(), exc_info=error
            )

    def _report_loop(self, task: "asyncio.Task[Any]") -> None:
        # Cancelled by its owner, or over in the course of a stop: neither counts as dead.
        error = None if task.cancelled() else task.exception()
        if error is None and (task.cancelled() or self._is_stopping):
            return
        reason = "it returned" if error is None else f"{type(error).__name__}: {error}"
        self._dead_loops[task.get_name()] = reason
        log.error(
            "supervisor.loop_died",
            supervisor=self.name,
            loop=task.get_name(),
            reason=reason,
            exc_info=error,
        )


class LoopTimer:
    """Calls `work` on the event loop when it is due.

    `work` returns the time of the event loop at which it is due again, or None: then only the next
    `start` schedules it. Work that raises is due again after `retry_s`, so that one error does not
    end the timer. Of consecutive errors only the first is logged.
    """

    __slots__ = ("_retry_s", "_work", "failure", "handle", "name")

    def __init__(self, name: str, work: Callable[[], float | None], *, retry_s: float) -> None:
        self.name = name
        self.failure = ""
        """Why the last call failed; empty when it did not."""
        self._work = work
        self._retry_s = retry_s
        self.handle: asyncio.TimerHandle | None = None
        """The handle of the scheduled or running call; None without one."""

    def start(self, delay_s: float) -> None:
        """Call the work after a delay, unless a call is due or under way."""
        if self.handle is None:
            self.handle = asyncio.get_running_loop().call_later(delay_s, self._call)

    def stop(self) -> None:
        """Drop the call that is due."""
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None

    def _call(self) -> None:
        loop, due = asyncio.get_running_loop(), None
        try:
            due = self._work()
        except Exception as error:
            due = loop.time() + self._retry_s
            if not self.failure:
                log.exception("supervisor.timer_failed", loop=self.name)
            self.failure = f"{type(error).__name__}: {error}"
        else:
            self.failure = ""
        finally:
            self.handle = None if due is None else loop.call_at(due, self._call)


async def wait_event(event: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, but not longer than this."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class TimeoutQueue(Generic[T]):
    """Calls `expire` with each item that was started and is still pending after so many seconds.

    All have the same time, so they are due in the order in which they were started, and one timer
    is enough: a timer for each would take half a kilobyte, and cancelling a timer takes longer than
    removing an entry from a dictionary.
    """

    __slots__ = ("_expire", "_timer", "pending", "seconds")

    def __init__(
        self, name: str, seconds: float, expire: Callable[[T], None], supervisor: Supervisor
    ) -> None:
        self.seconds = seconds
        self.pending: dict[T, float] = {}
        """When each is due, by the clock of the event loop. Ended items are removed."""
        self._expire = expire
        self._timer = supervisor.timer(name, self._expire_due)

    def start(self, one: T) -> None:
        """Begin, or begin again."""
        pending = self.pending
        if one in pending:
            del pending[one]  # the order is that of the starts
        pending[one] = asyncio.get_running_loop().time() + self.seconds
        # Not reset when an item ends: the timer fires, checks the items left, and restarts.
        if self._timer.handle is None:
            self._timer.start(self.seconds)

    def _expire_due(self) -> float | None:
        now, pending, due = asyncio.get_running_loop().time(), self.pending, list[T]()
        # First all that are due: the first key of a dict, asked for after each deletion, takes time
        # in proportion to the keys deleted before it.
        for one, at in pending.items():
            if at > now:
                break
            due.append(one)
        for one in due:
            # An item before it may have ended it, or begun it again.
            if pending.get(one, math.inf) <= now:
                # Before the call: a failing item is not repeated, and does not block later ones.
                del pending[one]
                self._expire(one)
        return next(iter(pending.values()), None)
