"""What a sender gets: the first thing to show, or how it ended; for a repeated message the same."""

from openclaw_a2a.model.errors import (
    GatewayError,
    LeaseLost,
    Overloaded,
    StoreUnavailable,
    TaskNotFound,
)
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.stored import StoredTask
from openclaw_a2a.ports import Known
from openclaw_a2a.runtime.answer import decode_answer
from openclaw_a2a.runtime.engine import Engine
from openclaw_a2a.runtime.live import Answer, Ended, KnownRun, Refused, Shown
from openclaw_a2a.runtime.read import task_bytes
from openclaw_a2a.runtime.run import LiveRun
from openclaw_a2a.runtime.submit import check_continuation
from openclaw_a2a.runtime.view import TaskView


async def first_of(engine: Engine, run: LiveRun | KnownRun) -> Shown | Answer:
    """The task as soon as it exists, or the direct answer. Raises: why it was refused."""
    first = await run.first.wait()
    if not isinstance(first, Refused):
        return first
    if first.known is None:
        raise await _why_refused(engine, run, first)
    return await _first_known(engine, run, first.known)


async def outcome_of(engine: Engine, run: LiveRun | KnownRun) -> Ended | Answer:
    """How it ended. Raises: why it was refused."""
    outcome = await run.outcome()
    if not isinstance(outcome, Refused):
        return outcome
    if outcome.known is None:
        raise await _why_refused(engine, run, outcome)
    return await _outcome_known(engine, run, outcome.known)


async def _why_refused(engine: Engine, run: LiveRun | KnownRun, refusal: Refused) -> GatewayError:
    """The error to tell; a task that moved on while the message arrived is looked at again."""
    error = refusal.error or StoreUnavailable("the run ended without a word")
    if not isinstance(error, LeaseLost) or not isinstance(run, LiveRun):
        return error
    stored = await engine.store.read_task(run.record.scope, run.record.task_id)
    if stored is None:
        return error
    try:
        check_continuation(stored.head, run.record.message)
    except GatewayError as reason:
        return reason
    return Overloaded(f"task {stored.head.id} moved on meanwhile; send the message again")


async def _first_known(engine: Engine, sent: LiveRun | KnownRun, known: Known) -> Shown | Answer:
    run = engine.runs.get(known.run_id)
    if known.answer is None and run is not None:
        is_shown = await engine.store.read_task(None, known.task_id) is not None
        if not is_shown:  # it is direct as yet, or just becoming a task
            return await first_of(engine, run)
    stored = await _stored_or_answer(engine, sent, known)
    if isinstance(stored, Answer):
        return stored
    return Shown(TaskView.of_stored(stored).task(), stored.head.sequence)


async def _outcome_known(engine: Engine, sent: LiveRun | KnownRun, known: Known) -> Ended | Answer:
    run = engine.runs.get(known.run_id)
    if known.answer is None and run is not None:
        return await outcome_of(engine, run)
    live = engine.live.get(TaskId(known.task_id))
    if live is not None and live.runs:
        return await outcome_of(engine, live.runs[0])
    stored = await _stored_or_answer(engine, sent, known)
    return stored if isinstance(stored, Answer) else Ended(task_bytes(stored))


async def _stored_or_answer(
    engine: Engine, sent: LiveRun | KnownRun, known: Known
) -> StoredTask | Answer:
    if known.answer is not None:
        return _decode(known.answer)
    stored = await engine.store.read_task(None, known.task_id)
    if stored is not None:
        return stored
    newest = await engine.store.read_known(sent.scope, sent.message_id)
    if newest is not None and newest.answer is not None:  # answered since we were told of it
        return _decode(newest.answer)
    is_unfinished = any(record.id == known.run_id for record in engine.abandoned)
    if is_unfinished or known.run_id in engine.runs:
        raise Overloaded("this message is being answered; ask again shortly", retry_after_s=1)
    raise TaskNotFound(f"task {known.task_id} of this message was deleted; use a new message id")


def _decode(answer: bytes) -> Answer:
    first = decode_answer(answer)
    if isinstance(first, Answer):
        return first
    raise first.error or StoreUnavailable("the run ended without a word")
