"""Owns background tasks: starts them, reports the ones that fail, ends them together.

Every task of the gateway that outlives the function that starts it belongs to a supervisor. This
is the only module that calls `create_task`: a task started elsewhere could be garbage collected
while it runs, and its exception would be seen by nobody.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from openclaw_a2a.log import get_logger

log = get_logger(__name__)

T = TypeVar("T")


class Supervisor:
    """The background tasks of one component, and of the components below it."""

    def __init__(self, name: str = "gateway") -> None:
        self.name = name
        self._tasks: set[asyncio.Task[Any]] = set()
        self._dead_loops: dict[str, str] = {}
        self._children: list[Supervisor] = []
        self._is_stopping = False

    def child(self, name: str) -> "Supervisor":
        """A supervisor for a part; its dead loops are reported here, and it stops with this one."""
        supervisor = Supervisor(name)
        self._children.append(supervisor)
        return supervisor

    def start(self, name: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task whose outcome its owner awaits. Its exception is the owner's to handle."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        # The event loop holds tasks weakly: without this reference one could vanish while it waits.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def spawn(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a job that nobody awaits. Its exception is logged."""
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

    @property
    def dead_loops(self) -> dict[str, str]:
        """Loops that ended although nobody stopped them, here and below, each with the reason."""
        dead = dict(self._dead_loops)
        for child in self._children:
            dead.update(child.dead_loops)
        return dead

    async def stop(self, timeout_s: float = 10.0) -> list[str]:
        """Cancel every task and wait for them; the names of those that did not end in time."""
        self._is_stopping = True
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
