"""Cancelling: `canceled` is committed only after the work has really stopped."""

import asyncio
from collections.abc import Callable

import msgspec

from openclaw_a2a.engine.background_replies import at_work
from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.engine.tasks.queries import get_task
from openclaw_a2a.engine.tasks.result import ActiveTask, Rejected
from openclaw_a2a.engine.transcript.content import OutputModes
from openclaw_a2a.engine.transcript.task_text import status_text
from openclaw_a2a.engine.transcript.transcript import (
    CANCELED,
    ArtifactCounters,
    EventContext,
    Transcript,
)
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import (
    AgentUnavailable,
    Conflict,
    GatewayError,
    TaskNotCancelable,
    TaskNotLive,
)
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.records import StoredTask
from openclaw_a2a.model.states import is_paused, is_terminal
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.model.turn import Binding, Scope
from openclaw_a2a.ports import SupportsPauseCancel

log = get_logger(__name__)


async def cancel_task(engine: Engine, scope: Scope, task_id: TaskId) -> bytes:
    """Stop a task; the task as it ended. A run that completes first has completed.

    Raises: TaskNotFound, TaskNotCancelable (it has ended, or refuses to stop), TaskNotLive,
    AgentUnavailable (what its pause waits for cannot be ended now).
    """
    try:
        async with engine.task_lock(task_id):
            stored = await get_task(engine, scope, task_id)
            if is_terminal(stored.head.state):
                state = stored.head.state.value.removeprefix("TASK_STATE_").lower()
                raise TaskNotCancelable(f"task {task_id} is {state} already")
            live = engine.active_tasks.get(task_id)
            if live is None and is_paused(stored.head.state):
                return await _cancel_paused(engine, stored)
    except Conflict:  # somebody was faster: look again at what the task is now
        return await cancel_task(engine, scope, task_id)
    if live is None:
        raise TaskNotLive(f"task {task_id} is not running anywhere, so there is nothing to stop")
    await _end_awaited_pause(engine, live, task_id)
    ended = await _stop_runs(engine, live, task_id)
    return await cancel_task(engine, scope, task_id) if is_paused(live.journal.state) else ended


async def _stop_runs(engine: Engine, live: ActiveTask, task_id: TaskId) -> bytes:
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
    if isinstance(outcome, Rejected):
        raise outcome.error or TaskNotLive(f"task {task_id} is not running here any more")
    return outcome.task


async def _cancel_paused(engine: Engine, stored: StoredTask) -> bytes:
    if stored.head.binding is not None:
        resume = await engine.store.tasks.read_resume_token(stored.head.id)
        await end_pause(engine, stored.head.id, stored.head.binding, resume)
    journal = engine.journal_of(stored)
    event = closing_words(engine, stored).status_text(TaskState.CANCELED, CANCELED)
    await journal.end([event], run=None)
    return journal.snapshot


async def _end_awaited_pause(engine: Engine, live: ActiveTask, task_id: TaskId) -> None:
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
    if not isinstance(agent, SupportsPauseCancel):
        return
    limit = engine.limits.cancel_s
    token = None if resume is None else msgspec.json.decode(resume)
    try:
        async with asyncio.timeout(limit):
            await agent.cancel_pause(binding, token)
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
    stamp = EventContext(head.id, head.context_id, engine.clock.now, engine.new_id)
    return Transcript(stamp, modes=OutputModes(()), is_task=True, numbering=ArtifactCounters())


def needs_input(stored: StoredTask | None) -> bool:
    """True when a task waits for words of who sent it."""
    return stored is not None and stored.head.state is TaskState.INPUT_REQUIRED


async def fail_paused_task(engine: Engine, task_id: TaskId, say: Callable[[str], str]) -> None:
    """Fail a task that asks for something; `say` makes the reason from the question.

    What waits on the agent's side is ended, if it can be: a question that stays there is no
    reason to wait here. A task that goes on, or has ended, is left alone.

    Raises: StoreUnavailable, Conflict (somebody was faster).
    """
    while working := at_work(engine, task_id):
        await asyncio.wait(working)  # the run that asked is about to end
    async with engine.task_lock(task_id):
        stored = await engine.store.tasks.read_task(None, task_id)
        if stored is None or not needs_input(stored) or task_id in engine.active_tasks:
            return
        await _end_pause(engine, stored)
        question = status_text(TaskProjection.from_stored(stored).task())
        failed = closing_words(engine, stored).status_text(TaskState.FAILED, say(question))
        await engine.journal_of(stored).end([failed], run=None)


async def _end_pause(engine: Engine, stored: StoredTask) -> None:
    head = stored.head
    if head.binding is None:
        return
    resume = await engine.store.tasks.read_resume_token(head.id)
    try:
        await end_pause(engine, head.id, head.binding, resume)
    except GatewayError as error:
        log.warning("question-left", task_id=head.id, reason=error.message)
