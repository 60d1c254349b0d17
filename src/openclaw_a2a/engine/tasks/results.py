"""Waits for the result of an accepted message: the first one, and the final one.

A duplicate gets the result of the original message.
"""

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.tasks.active_task import (
    DirectAnswer,
    DuplicateRun,
    Rejected,
    TaskCreated,
    TaskFinished,
    decode_answer,
)
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.engine.tasks.queries import get_task
from openclaw_a2a.engine.tasks.run import ActiveRun
from openclaw_a2a.engine.tasks.submit import already_answered, check_continuation
from openclaw_a2a.model.errors import (
    Conflict,
    GatewayError,
    Overloaded,
    StoreUnavailable,
    TaskNotFound,
)
from openclaw_a2a.model.ids import TaskId
from openclaw_a2a.model.task import PAUSED
from openclaw_a2a.ports import Duplicate, MeasuredTask


async def wait_created(engine: Engine, run: ActiveRun | DuplicateRun) -> TaskCreated | DirectAnswer:
    """The task as soon as it exists, or the direct answer. Raises: why it was rejected."""
    first = await wait_first_result(engine, run)
    if not isinstance(first, MeasuredTask):
        return first
    stored = await get_task(engine, run.scope, first.head.id)
    return TaskCreated(TaskProjection.from_stored(stored).task(), stored.head.sequence)


async def wait_first_result(
    engine: Engine, run: ActiveRun | DuplicateRun
) -> TaskCreated | DirectAnswer | MeasuredTask:
    """As `wait_created`, but the task of a message that was accepted before is not read yet."""
    first = await run.created.wait()
    if not isinstance(first, Rejected):
        return first
    duplicate = first.duplicate or _as_duplicate_elsewhere(engine, run)
    if duplicate is None:
        raise await _rejection_error(engine, run, first)
    # The original may still be running; then both senders wait for that run.
    original = None if duplicate.answer is not None else _find_run(engine, run, duplicate)
    if original is not None:
        tasks = engine.store.tasks
        has_task = await tasks.measure_task(run.scope, duplicate.task_id) is not None
        if not has_task:  # its run has not decided yet between an answer and a task
            return await wait_first_result(engine, original)
    return await _find_result(engine, run, duplicate)


async def wait_final_result(
    engine: Engine, run: ActiveRun | DuplicateRun
) -> TaskFinished | DirectAnswer | MeasuredTask:
    """The task when it ended or paused, or the direct answer.

    The task of a message that was accepted before is not read yet. Raises: why it was rejected.
    """
    result = await run.wait_result()
    if isinstance(result, Rejected):
        return await wait_original_result(engine, run, result)
    return result


async def wait_original_result(
    engine: Engine, run: ActiveRun | DuplicateRun, result: Rejected
) -> TaskFinished | DirectAnswer | MeasuredTask:
    """The final result of the message that this one duplicates.

    Raises: the error with which one of them was rejected.
    """
    duplicate = result.duplicate or _as_duplicate_elsewhere(engine, run)
    if duplicate is None:
        raise await _rejection_error(engine, run, result)
    original = None if duplicate.answer is not None else _find_run(engine, run, duplicate)
    if original is not None:
        return await wait_final_result(engine, original)
    active = engine.active_tasks.get(TaskId(duplicate.task_id))
    if active is not None and active.runs:
        # The run of the original has ended, but a later message on the task is being answered. A
        # blocking caller gets the task when it has ended or paused, so wait for that run.
        return await wait_final_result(engine, active.runs[0])
    return await _find_result(engine, run, duplicate, until_ended_or_paused=True)


def _as_duplicate_elsewhere(engine: Engine, run: ActiveRun | DuplicateRun) -> Duplicate | None:
    """A `Duplicate` for a run that another replica has taken over; otherwise None."""
    if engine.replication is None or not isinstance(run, ActiveRun) or not run.is_lost:
        return None
    return Duplicate(run.record.id, run.record.task_id, None)


def _find_run(
    engine: Engine, sent: ActiveRun | DuplicateRun, duplicate: Duplicate
) -> ActiveRun | None:
    """The run of a message that was accepted before, if it is here."""
    run = engine.runs.get(duplicate.run_id)
    return None if run is sent or (run is not None and run.is_lost) else run


async def _rejection_error(
    engine: Engine, run: ActiveRun | DuplicateRun, rejected: Rejected
) -> GatewayError:
    """The error for the caller; after a conflict, what the task says now."""
    # A conflict is a lost race: the caller gets the reason it would have got a moment later.
    error = rejected.error or StoreUnavailable("the run ended without a result")
    if not isinstance(error, Conflict) or not isinstance(run, ActiveRun):
        return error
    found = await engine.store.tasks.measure_task(run.record.scope, run.record.task_id)
    if found is None:
        return error
    try:
        check_continuation(found.head, run.record.message)
    except GatewayError as reason:
        return reason
    if run.record.options.is_answer and found.head.state not in PAUSED:
        return already_answered(found.head.id)
    return Overloaded(
        f"task {found.head.id} changed while the message was being accepted; send it again"
    )


async def _find_result(
    engine: Engine,
    sent: ActiveRun | DuplicateRun,
    duplicate: Duplicate,
    *,
    until_ended_or_paused: bool = False,
) -> MeasuredTask | DirectAnswer:
    """The result of the original message. Raises: also the error of a direct answer."""
    if duplicate.answer is not None:
        return decode_answer(duplicate.answer)
    if engine.replication is not None:
        found = await engine.replication.follow(
            sent.scope, sent.message_id, duplicate, until_ended_or_paused=until_ended_or_paused
        )
        return decode_answer(found) if isinstance(found, bytes) else found
    measured = await engine.store.tasks.measure_task(sent.scope, duplicate.task_id)
    if measured is not None:
        return measured
    newest = await engine.store.tasks.find_duplicate(sent.scope, sent.message_id)
    if newest is not None and newest.answer is not None:  # answered since the duplicate was read
        return decode_answer(newest.answer)
    run_id = duplicate.run_id
    is_abandoned = any(record.id == run_id for record in engine.abandoned)
    if is_abandoned or run_id in engine.doubtful_runs or run_id in engine.runs:
        raise Overloaded("this message is being answered; ask again shortly", retry_after_s=1)
    raise TaskNotFound(
        f"task {duplicate.task_id} of this message was deleted; use a new message id"
    )
