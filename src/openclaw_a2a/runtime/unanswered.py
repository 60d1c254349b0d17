"""Ends tasks that wait for an answer which nobody can give."""

import asyncio
from collections.abc import Callable

import structlog

from openclaw_a2a.model.errors import GatewayError
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.stored import StoredTask
from openclaw_a2a.model.task import TaskState
from openclaw_a2a.runtime.cancel import closing_words, end_pause
from openclaw_a2a.runtime.engine import Engine
from openclaw_a2a.runtime.late import at_work
from openclaw_a2a.runtime.view import TaskView
from openclaw_a2a.runtime.words import status_words

log = structlog.get_logger(__name__)


def is_asking(stored: StoredTask | None) -> bool:
    """True when a task waits for words of who sent it."""
    return stored is not None and stored.head.state is TaskState.INPUT_REQUIRED


async def end_unanswered(engine: Engine, task_id: TaskId, say: Callable[[str], str]) -> None:
    """Fail a task that asks for something; `say` makes the reason from the question.

    What waits on the agent's side is ended, if it can be: a question that stays there is no
    reason to wait here. A task that goes on, or has ended, is left alone.

    Raises: StoreUnavailable, LeaseLost (somebody was faster).
    """
    while working := at_work(engine, task_id):
        await asyncio.wait(working)  # the run that asked is about to end
    async with engine.alone(task_id):
        stored = await engine.store.read_task(None, task_id)
        if stored is None or not is_asking(stored) or task_id in engine.live:
            return
        await _end_pause(engine, stored)
        question = status_words(TaskView.of_stored(stored).task())
        failed = closing_words(engine, stored).status_text(TaskState.FAILED, say(question))
        await engine.journal_of(stored).end([failed], run=None)


async def _end_pause(engine: Engine, stored: StoredTask) -> None:
    head = stored.head
    if head.binding is None:
        return
    resume = await engine.store.read_resume(head.id)
    try:
        await end_pause(engine, head.id, head.binding, resume)
    except GatewayError as error:
        log.warning("question-left", task_id=head.id, reason=error.message)
