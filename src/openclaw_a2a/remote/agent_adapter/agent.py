"""A remote agent that answers as one of ours, over the tool `remote_agent`."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import anyio

from openclaw_a2a.model.agent_event import AgentEvent
from openclaw_a2a.model.errors import AgentError, AgentFailed, TaskNotCancelable
from openclaw_a2a.model.ids import Json
from openclaw_a2a.model.turn import Binding, Turn
from openclaw_a2a.ports import Clock, RecordStore, Recovery
from openclaw_a2a.remote.agent_adapter.run import (
    RemoteRun,
    RemoteTimeouts,
    Road,
    ToolExecutor,
    continuation_of,
    end_task,
)

_PATIENCE = RemoteTimeouts()
_MOST_REFUSALS = 2
"""So often a peer may refuse to cancel before its task is given up here."""


class RemoteTargetAgent:
    """The remote agent behind an alias of `outbound.targets`.

    The message goes out under our run's id, so that sending it again is the same message. Which
    task came of it is kept in the store: after a restart that task is followed further. A task
    that asks for something pauses ours; the answer goes to it.
    """

    recovery: Recovery = Recovery.REATTACH

    def __init__(
        self,
        alias: str,
        remote: ToolExecutor,
        *,
        store: RecordStore,
        clock: Clock,
        host_id: str = "",
        patience: RemoteTimeouts = _PATIENCE,
    ) -> None:
        """`host_id` is how chains of calls name this gateway."""
        self._road = Road(alias, remote, store, clock, patience, host_id)
        self._is_leaving = False

    async def run(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
        """Have the remote agent answer the turn. Closing the iterator cancels its task.

        Raises: AgentUnavailable (it is out of reach), AgentFailed (it refused or failed).
        """
        run = RemoteRun(self._road, turn)
        try:
            while not run.is_over:
                for event in await self._next(run):
                    yield event
        except GeneratorExit:
            if not run.is_over and not self._is_leaving:
                await self._end(run)
            raise
        finally:
            await run.close()

    async def _next(self, run: RemoteRun) -> Sequence[AgentEvent]:
        try:
            return await run.next()
        except asyncio.CancelledError:
            if self._is_leaving:
                raise
            with anyio.CancelScope(shield=True):
                await run.stop()
            if run.is_stopped:
                raise
            run.refusals += 1
            if run.refusals > _MOST_REFUSALS:
                raise self._unstopped() from None
            # It goes on, or had ended: then that is what happens here as well. Who wanted it to
            # stop is told by the engine that it did not.
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
            return ()

    async def _end(self, run: RemoteRun) -> None:
        with anyio.CancelScope(shield=True):
            await run.stop()
        if not run.is_stopped:
            raise self._unstopped()

    def _unstopped(self) -> AgentFailed:
        return AgentFailed(
            f"The remote agent {self._road.alias} did not cancel its task, which may go on."
        )

    async def cancel_pause(self, binding: Binding, resume: Json) -> None:
        """Cancel the remote task that waits. Raises: TaskNotCancelable."""
        del binding
        continuation, road = continuation_of(resume), self._road
        if continuation is None:
            return
        try:
            state = await end_task(
                road.remote, continuation, within_s=road.patience.stop_s, sleep=road.clock.sleep
            )
        except AgentError as error:
            raise TaskNotCancelable(error.message) from error
        if state is None:
            raise TaskNotCancelable(
                f"the remote agent {road.alias} does not cancel the task that waits there; "
                "answer it, or ask again"
            )

    def detach(self) -> None:
        """The gateway stops: remote tasks go on, to be found again."""
        self._is_leaving = True

    async def close(self) -> None:
        """Nothing is held; the tool is closed by who opened it."""
