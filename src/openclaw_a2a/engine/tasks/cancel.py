"""Stops tasks: `canceled` is committed only after the work has really stopped."""

import asyncio
from collections.abc import Callable

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.engine_state import INTERRUPTING
from openclaw_a2a.engine.tasks.active_task import ActiveTask, Rejected
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.engine.tasks.queries import check_not_abandoned, get_task, measure_task, task_json
from openclaw_a2a.engine.transcript.task_text import status_text
from openclaw_a2a.engine.transcript.transcript import CANCELED
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import (
    AgentUnavailable,
    Conflict,
    Draining,
    GatewayError,
    LeaseLost,
    Overloaded,
    TaskNotCancelable,
    TaskNotLive,
)
from openclaw_a2a.model.ids import AgentId, OwnerId, SessionKey, TaskId
from openclaw_a2a.model.records import StoredTask, decode_resume
from openclaw_a2a.model.task import PAUSED, TERMINAL, TaskState
from openclaw_a2a.model.turn import Binding, Scope
from openclaw_a2a.ports import SupportsPauseCancel

log = get_logger(__name__)

_ELSEWHERE_TRIES = 3


async def cancel_task(engine: Engine, scope: Scope | None, task_id: TaskId) -> bytes:
    """Stop a task in scope (None: any); the task as it ended.

    A run that completes first has completed.

    Raises: TaskNotFound, TaskNotCancelable (it has ended, or does not stop), TaskNotLive,
    AgentUnavailable (what its pause waits for cannot be ended now).
    """
    tries = _ELSEWHERE_TRIES
    # Ends: each round either returns, raises, or has seen the task change. A task that pauses
    # instead of stopping is taken up again here as a paused one.
    while True:
        try:
            async with engine.task_lock(task_id):
                # Without the content, which may be large, and is needed for a paused task only.
                head = (await measure_task(engine, scope, task_id)).head
                active = engine.active_tasks.get(task_id)
                if head.state in TERMINAL:
                    state = head.state.label
                    raise TaskNotCancelable(f"task {task_id} is {state} already")
                is_paused = active is None and head.state in PAUSED
                place = await _find_agent(engine, head.binding) if is_paused else None
                if is_paused and place is None:
                    stored = await get_task(engine, scope, task_id)
                    # First what waits on the agent's side, then the commit: after a crash in
                    # between the task is paused still, and can be canceled again.
                    if head.binding is not None:
                        resume = await engine.store.tasks.read_resume_token(task_id)
                        await cancel_pause(engine, task_id, head.binding, resume)
                    return await engine.end_stored_task(stored, TaskState.CANCELED, CANCELED)
        except Conflict:
            continue  # it changed between the read and the commit: look at what it is now
        if place is not None and engine.replication is not None:
            # Without the lock: others must not wait here for an answer of another replica.
            await engine.replication.requests.cancel_at(place, scope, task_id)
            return task_json(await get_task(engine, scope, task_id))
        if active is None:
            tries -= 1
            session_key = None if head.binding is None else head.binding.session_key
            if await _cancel_elsewhere(engine, scope, task_id, session_key, is_last=not tries):
                return task_json(await get_task(engine, scope, task_id))
            continue  # its run ended between the two reads, or is here by now
        # Without the lock from here: the run must be able to end, and others may wait for it too.
        task = await _stop_runs(engine, active, task_id)
        if task is not None and active.journal.state not in PAUSED:
            return task
        # Its run paused instead of stopping: now the pause is to be cancelled. Or another replica
        # has taken it, and is asked.


async def _cancel_elsewhere(
    engine: Engine,
    scope: Scope | None,
    task_id: TaskId,
    session_key: SessionKey | None,
    *,
    is_last: bool,
) -> bool:
    """Have another replica stop a task; False when no other one works on it any more.

    Raises: TaskNotLive (nobody does), Draining, StoreUnavailable (its end is not stored yet), and
    as `cancel_task`.
    """
    if engine.state in INTERRUPTING:  # its run has left, and goes on after the restart
        raise Draining("the gateway is stopping; ask again when it is back")
    if engine.replication is None or is_last:
        check_not_abandoned(engine, task_id)
        if task_id in engine.doubtful_runs.values():
            raise Overloaded(f"task {task_id} is about to be taken up; ask again", retry_after_s=1)
        raise TaskNotLive(f"task {task_id} is not running anywhere; there is nothing to stop")
    return await engine.replication.requests.cancel_elsewhere(scope, task_id, session_key)


async def _find_agent(engine: Engine, binding: Binding | None) -> OwnerId | None:
    """The replica that has the agent of a paused task; None: this one, or no other is needed."""
    if engine.replication is None or binding is None:
        return None
    return await engine.replication.choose_replica(binding.agent_id, for_new_work=False)


async def _stop_runs(engine: Engine, active: ActiveTask, task_id: TaskId) -> bytes | None:
    """The task when its runs have stopped; None when another replica has them by now."""
    # Copied: a run may leave while `cancel_pause` is awaited.
    for record in [run.record for run in active.runs]:
        if record.resume is not None and not record.is_started:
            # An answer to a pause that is still queued will not be given: end what waits for it.
            await _check_agent_here(engine, record.binding.agent_id)
            await cancel_pause(engine, task_id, record.binding, record.resume)
            break
    # All of them: a message that waits behind the running one would start the task again.
    for run in list(active.runs):
        run.request_cancel()
    limit = engine.limits.cancel_s
    try:
        # Set by the last run that leaves, after its end is durable. The runs stop in their own
        # time: a caller that gives up waiting here takes nothing back.
        async with asyncio.timeout(limit):
            result = await active.finished.wait()
    except TimeoutError:
        raise TaskNotCancelable(
            f"task {task_id} did not stop within {limit:g} s and is still running; "
            "ask again, or wait for its end"
        ) from None
    if isinstance(result, Rejected):
        if isinstance(result.error, LeaseLost) and engine.replication is not None:
            return None
        raise result.error or TaskNotLive(f"task {task_id} is not running here any more")
    return result.task


async def _check_agent_here(engine: Engine, agent_id: AgentId) -> None:
    """Raises: AgentUnavailable (only other replicas have the agent)."""
    replication = engine.replication
    if replication is None:
        return
    place = await replication.choose_replica(agent_id, for_new_work=False)
    if place is not None:
        raise AgentUnavailable(
            f"the answer is about to go to replica {place}, which has the agent {agent_id}; "
            "cancel the task again shortly",
            retry_after_s=1.0,
        )


async def cancel_pause(
    engine: Engine, task_id: TaskId, binding: Binding, resume: bytes | None
) -> None:
    """Have the agent end what waits on its side; an agent that is not configured has nothing.

    Raises: TaskNotCancelable, AgentUnavailable.
    """
    agent = engine.agents.get(binding.agent_id)
    if not isinstance(agent, SupportsPauseCancel):
        return
    limit = engine.limits.cancel_s
    token = decode_resume(resume)
    try:
        async with asyncio.timeout(limit):
            await agent.cancel_pause(binding, token)
    except GatewayError:
        raise
    except TimeoutError:
        reason = f"did not end within {limit:g} s"
    except Exception as error:  # one broad catch: whatever an agent raises, it has not ended
        log.exception("task.pause_not_canceled", task_id=task_id)
        reason = f"could not be ended ({type(error).__name__})"
    else:
        return
    raise TaskNotCancelable(
        f"what task {task_id} waits for {reason}; ask again, or answer the task"
    )


def needs_input(stored: StoredTask | None) -> bool:
    """True when a task waits for an answer of its sender."""
    return stored is not None and stored.head.state is TaskState.INPUT_REQUIRED


async def fail_paused_task(
    engine: Engine, task_id: TaskId, make_reason: Callable[[str], str]
) -> None:
    """Fail a task whose question has no one to answer it; `make_reason` gets the question.

    What waits on the agent's side is ended if possible; a question that stays there is only
    logged. A task that runs, or has ended, is left alone.

    Raises: StoreUnavailable, Conflict (the task changed meanwhile).
    """
    while running := engine.running_tasks(task_id):
        await asyncio.wait(running)  # the run that asked is about to end
    async with engine.task_lock(task_id):
        stored = await engine.store.tasks.read_task(None, task_id)
        if stored is None or not needs_input(stored) or task_id in engine.active_tasks:
            return
        if stored.head.binding is not None:
            resume = await engine.store.tasks.read_resume_token(task_id)
            try:
                await cancel_pause(engine, task_id, stored.head.binding, resume)
            except GatewayError as error:
                log.warning("task.question_left_open", task_id=task_id, reason=error.message)
        question = status_text(TaskProjection.from_stored(stored).task())
        await engine.end_stored_task(stored, TaskState.FAILED, make_reason(question))
