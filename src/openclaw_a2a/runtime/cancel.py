"""Cancelling: `canceled` is committed only after the work has really stopped."""

import asyncio

import msgspec
import structlog

from openclaw_a2a.model.errors import (
    AgentUnavailable,
    GatewayError,
    LeaseLost,
    TaskNotCancelable,
    TaskNotLive,
)
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.states import is_paused, is_terminal
from openclaw_a2a.model.stored import StoredTask
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.model.turn import Binding, Scope
from openclaw_a2a.ports import KeepsPaused
from openclaw_a2a.runtime.engine import Engine
from openclaw_a2a.runtime.live import LiveTask, Refused
from openclaw_a2a.runtime.output import OutputModes
from openclaw_a2a.runtime.read import get_task
from openclaw_a2a.runtime.transcript import CANCELED, Numbering, Stamp, Transcript

log = structlog.get_logger(__name__)


async def cancel(engine: Engine, scope: Scope, task_id: TaskId) -> bytes:
    """Stop a task; the task as it ended. A run that completes first has completed.

    Raises: TaskNotFound, TaskNotCancelable (it has ended, or refuses to stop), TaskNotLive,
    AgentUnavailable (what its pause waits for cannot be ended now).
    """
    try:
        async with engine.alone(task_id):
            stored = await get_task(engine, scope, task_id)
            if is_terminal(stored.head.state):
                state = stored.head.state.value.removeprefix("TASK_STATE_").lower()
                raise TaskNotCancelable(f"task {task_id} is {state} already")
            live = engine.live.get(task_id)
            if live is None and is_paused(stored.head.state):
                return await _cancel_paused(engine, stored)
    except LeaseLost:  # somebody was faster: look again at what the task is now
        return await cancel(engine, scope, task_id)
    if live is None:
        raise TaskNotLive(f"task {task_id} is not running anywhere, so there is nothing to stop")
    await _end_awaited_pause(engine, live, task_id)
    ended = await _stop_runs(engine, live, task_id)
    return await cancel(engine, scope, task_id) if is_paused(live.journal.state) else ended


async def _stop_runs(engine: Engine, live: LiveTask, task_id: TaskId) -> bytes:
    for run in list(live.runs):
        run.request_cancel()
    limit = engine.limits.cancel_s
    try:
        outcome = await live.ended.wait(limit)
    except TimeoutError:
        raise TaskNotCancelable(
            f"task {task_id} did not stop within {limit:g} s and is still running; "
            "ask again, or wait for its end"
        ) from None
    if isinstance(outcome, Refused):
        raise outcome.error or TaskNotLive(f"task {task_id} is not running here any more")
    return outcome.task


async def _cancel_paused(engine: Engine, stored: StoredTask) -> bytes:
    if stored.head.binding is not None:
        resume = await engine.store.read_resume(stored.head.id)
        await end_pause(engine, stored.head.id, stored.head.binding, resume)
    journal = engine.journal_of(stored)
    event = closing_words(engine, stored).status_text(TaskState.CANCELED, CANCELED)
    await journal.end([event], run=None)
    return journal.snapshot


async def _end_awaited_pause(engine: Engine, live: LiveTask, task_id: TaskId) -> None:
    """An answer to a pause that still stands in line will never be given: end what waits for it."""
    for record in [run.record for run in live.runs]:
        if record.resume is not None and not record.is_started:
            await end_pause(engine, task_id, record.binding, record.resume)
            return


async def end_pause(
    engine: Engine, task_id: TaskId, binding: Binding, resume: bytes | None
) -> None:
    """Have the agent end what waits on its side; an agent we have no more keeps nothing.

    Raises: TaskNotCancelable, AgentUnavailable.
    """
    try:
        agent = engine.agents.find(binding.agent_id)
    except AgentUnavailable:
        return
    if not isinstance(agent, KeepsPaused):
        return
    limit = engine.limits.cancel_s
    token = None if resume is None else msgspec.json.decode(resume)
    try:
        async with asyncio.timeout(limit):
            await agent.end_pause(binding, token)
    except GatewayError:
        raise
    except TimeoutError:
        reason = f"what task {task_id} waits for did not end within {limit:g} s"
        raise TaskNotCancelable(f"{reason}; ask again, or answer the task") from None
    except Exception as error:  # one broad catch: whatever an agent raises, it has not ended
        log.exception("pause-not-ended", task_id=task_id)
        reason = f"what task {task_id} waits for could not be ended ({type(error).__name__})"
        raise TaskNotCancelable(f"{reason}; ask again, or answer the task") from None


def closing_words(engine: Engine, stored: StoredTask) -> Transcript:
    """A transcript to speak the last status of a task nobody works on."""
    head = stored.head
    stamp = Stamp(head.id, head.context_id, engine.clock.now, engine.new_id)
    return Transcript(stamp, modes=OutputModes(()), is_task=True, numbering=Numbering())
