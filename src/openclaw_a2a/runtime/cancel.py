"""Cancelling: `canceled` is committed only after the work has really stopped."""

from openclaw_a2a.model.errors import LeaseLost, TaskNotCancelable, TaskNotLive
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.states import is_paused, is_terminal
from openclaw_a2a.model.stored import StoredTask
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.runtime.engine import Engine
from openclaw_a2a.runtime.journal import Journal
from openclaw_a2a.runtime.live import LiveTask, Refused
from openclaw_a2a.runtime.output import OutputModes
from openclaw_a2a.runtime.read import get_task
from openclaw_a2a.runtime.transcript import CANCELED, Numbering, Stamp, Transcript


async def cancel(engine: Engine, scope: Scope, task_id: TaskId) -> bytes:
    """Stop a task; the task as it ended. A run that completes first has completed.

    Raises: TaskNotFound, TaskNotCancelable (it has ended, or refuses to stop), TaskNotLive.
    """
    stored = await get_task(engine, scope, task_id)
    if is_terminal(stored.head.state):
        state = stored.head.state.value.removeprefix("TASK_STATE_").lower()
        raise TaskNotCancelable(f"task {task_id} is {state} already")
    live = engine.live.get(task_id)
    if live is not None:
        ended = await _stop_runs(engine, live, task_id)
        return await cancel(engine, scope, task_id) if is_paused(live.journal.state) else ended
    if is_paused(stored.head.state):
        try:
            return await _cancel_paused(engine, stored)
        except LeaseLost:  # somebody was faster: look again at what the task is now
            return await cancel(engine, scope, task_id)
    raise TaskNotLive(f"task {task_id} is not running anywhere, so there is nothing to stop")


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
    journal = Journal.of_stored(engine.store, stored)
    event = closing_words(engine, stored).status_text(TaskState.CANCELED, CANCELED)
    await journal.end([event], run=None)
    return journal.snapshot


def closing_words(engine: Engine, stored: StoredTask) -> Transcript:
    """A transcript to speak the last status of a task nobody works on."""
    head = stored.head
    stamp = Stamp(head.id, head.context_id, engine.clock.now, engine.new_id)
    return Transcript(stamp, modes=OutputModes(()), is_task=True, numbering=Numbering())
