"""A remote agent as one of the gateway's own agents, over the tool `remote_agent`."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import anyio

from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.model.agent_event import AgentEvent
from openclaw_a2a.model.errors import AgentError, AgentFailed, TaskNotCancelable
from openclaw_a2a.model.ids import Json
from openclaw_a2a.model.turn import Binding, Turn
from openclaw_a2a.ports import Clock, RecordStore, Recovery
from openclaw_a2a.remote.agent_adapter.run import (
    RemoteRun,
    RemoteTimeouts,
    RunContext,
    ToolExecutor,
    cancel_remote_task,
    read_resume_token,
)

_TIMEOUTS = RemoteTimeouts()
_MAX_REFUSED_CANCELS = 2
"""A peer may refuse this often to cancel before its task is abandoned."""


class RemoteTargetAgent:
    """The remote agent behind an alias of `outbound.targets`.

    The message is sent under the id of our run, so that sending it again is the same message. The
    task that the peer makes of it is kept in the store and followed again after a restart. A task
    that asks for input pauses ours; the answer goes to it.
    """

    recovery: Recovery = Recovery.REATTACH

    def __init__(
        self,
        alias: str,
        remote: ToolExecutor,
        *,
        records: RecordStore,
        clock: Clock,
        host_id: str = "",
        timeouts: RemoteTimeouts = _TIMEOUTS,
    ) -> None:
        """`host_id` names this gateway in chains of calls."""
        supervisor = Supervisor(f"target {alias}")
        self._context = RunContext(alias, remote, records, clock, timeouts, supervisor, host_id)
        self._is_detached = False

    async def run(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
        """Have the remote agent answer the turn. Closing the iterator cancels its task.

        Raises: AgentUnavailable (it cannot be reached), AgentFailed (it refused or failed).
        """
        run = RemoteRun(self._context, turn)
        try:
            while not run.is_over:
                for event in await self._next(run):
                    yield event
        except GeneratorExit:
            if not run.is_over and not self._is_detached:
                await self._cancel(run)
            raise
        finally:
            await run.close()

    async def _next(self, run: RemoteRun) -> Sequence[AgentEvent]:
        try:
            return await run.next()
        except asyncio.CancelledError:
            if self._is_detached:
                raise
            with anyio.CancelScope(shield=True):
                await run.stop()
            if run.is_stopped:
                raise
            run.refused_cancels += 1
            if run.refused_cancels > _MAX_REFUSED_CANCELS:
                raise self._cancel_refused() from None
            # The remote task goes on, or had ended: the run goes on with what it does. The engine
            # reports to the caller that the task was not canceled.
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
            return ()

    async def _cancel(self, run: RemoteRun) -> None:
        with anyio.CancelScope(shield=True):
            await run.stop()
        if not run.is_stopped:
            raise self._cancel_refused()

    def _cancel_refused(self) -> AgentFailed:
        return AgentFailed(
            f"The remote agent {self._context.alias} did not cancel its task, which may go on."
        )

    async def cancel_pause(self, binding: Binding, resume: Json) -> None:
        """Cancel the remote task that waits. Raises: TaskNotCancelable."""
        del binding
        continuation, context = read_resume_token(resume), self._context
        if continuation is None:
            return
        try:
            state = await cancel_remote_task(
                context.remote,
                continuation,
                within_s=context.timeouts.stop_s,
                sleep=context.clock.sleep,
            )
        except AgentError as error:
            raise TaskNotCancelable(error.message) from error
        if state is None:
            raise TaskNotCancelable(
                f"the remote agent {context.alias} does not cancel the task that waits there; "
                "answer it, or try again"
            )

    def detach(self) -> None:
        """The gateway stops: remote tasks go on, and are found again after the restart."""
        self._is_detached = True

    async def close(self) -> None:
        """Stop listening to all runs; the tool is closed by its owner."""
        await self._context.supervisor.stop()
