"""A remote agent as one of the gateway's own agents."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING

import anyio

from openclaw_a2a.engine.supervisor import Supervisor
from openclaw_a2a.model.agent_event import AgentEvent
from openclaw_a2a.model.errors import AgentError, AgentFailed, TaskNotCancelable
from openclaw_a2a.model.ids import Json, RunId
from openclaw_a2a.model.turn import Binding, Turn
from openclaw_a2a.ports import Clock, RecordStore, Recovery
from openclaw_a2a.remote.run import (
    RemoteRun,
    RemoteTimeouts,
    RunContext,
    cancel_remote_task,
    read_resume_token,
)

if TYPE_CHECKING:  # the HTTP client takes long to load
    from openclaw_a2a.remote.tool import RemoteAgentTool

_TIMEOUTS = RemoteTimeouts()
_MAX_REFUSED_CANCELS = 2
"""A peer may refuse this often to cancel before its task is abandoned."""


class RemoteTargetAgent:
    """The remote agent of an alias in `outbound.targets`.

    The message is sent under the id of our run, so that sending it again is the same message. The
    task that the peer makes of it is kept in the store and followed again after a restart. A task
    that asks for input pauses ours; the answer goes to it.
    """

    recovery: Recovery = Recovery.REATTACH
    is_coordinator = True  # the peer may call an agent of this gateway before it answers

    def __init__(
        self,
        alias: str,
        remote: "RemoteAgentTool",
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
        self._is_left: dict[RunId, bool] = {}
        """The runs that are followed; True: the remote task goes on when one is interrupted."""

    async def run(self, turn: Turn) -> AsyncGenerator[AgentEvent]:
        """Send the turn to the remote agent. Closing the iterator cancels its task.

        Raises: AgentUnavailable (it cannot be reached), AgentFailed (it refused or failed).
        """
        run = RemoteRun(self._context, turn)
        self._is_left[turn.run_id] = False
        try:
            while not run.is_over:
                for event in await self._next(run, turn.run_id):
                    yield event
        except GeneratorExit:
            if not run.is_over and not self._leaves(turn.run_id):
                with anyio.CancelScope(shield=True):
                    await run.stop()
                if not run.is_stopped:
                    raise self._cancel_refused() from None
            raise
        finally:
            self._is_left.pop(turn.run_id, None)
            await run.close()

    def _leaves(self, run_id: RunId) -> bool:
        return self._is_detached or self._is_left.get(run_id, False)

    async def _next(self, run: RemoteRun, run_id: RunId) -> Sequence[AgentEvent]:
        try:
            return await run.next()
        except asyncio.CancelledError:
            if self._leaves(run_id):
                raise
            with anyio.CancelScope(shield=True):
                await run.stop()
            if run.is_stopped:
                raise
            run.refused_cancels += 1
            if run.refused_cancels > _MAX_REFUSED_CANCELS:
                raise self._cancel_refused() from None
            # The remote task continues, or had ended: the run follows it further. The engine
            # reports to the caller that the task was not canceled.
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
            return ()

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
            state = await cancel_remote_task(context, continuation)
        except AgentError as error:
            raise TaskNotCancelable(error.message) from error
        if state is None:
            raise TaskNotCancelable(
                f"the remote agent {context.alias} does not cancel the task that waits there; "
                "answer it, or try again"
            )

    def detach(self) -> None:
        """Detach when the gateway stops: remote tasks continue, and are found after the restart."""
        self._is_detached = True

    def detach_run(self, run_id: RunId) -> bool:
        """Leave one remote task to another replica; False when its run is not followed here."""
        if run_id not in self._is_left:
            return False
        self._is_left[run_id] = True
        return True

    async def end_detached_run(self, turn: Turn) -> None:
        """Cancel the remote task of a run that was left. Raises: AgentFailed, AgentUnavailable."""
        run = RemoteRun(self._context, turn)
        try:
            await run.stop()
        finally:
            await run.close()

    async def close(self) -> None:
        """Stop following all runs; the owner of the tool closes it."""
        await self._context.supervisor.stop()
