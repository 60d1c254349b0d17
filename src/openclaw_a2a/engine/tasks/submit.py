"""Taking a message in: once, into the right task, in its place of the session's order."""

import hashlib
from collections.abc import Callable

import msgspec

from openclaw_a2a.engine.engine import Engine
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.engine.tasks.queries import task_json
from openclaw_a2a.engine.tasks.result import (
    DirectAnswer,
    DuplicateRun,
    Rejected,
    TaskCreated,
    TaskFinished,
    decode_answer,
)
from openclaw_a2a.engine.tasks.run import ActiveRun
from openclaw_a2a.engine.tasks.turn_builder import AccountRules, bind
from openclaw_a2a.engine.transcript.content import OutputModes, output_modes
from openclaw_a2a.model.delivery import Delivery
from openclaw_a2a.model.errors import (
    Conflict,
    ContextMismatch,
    Draining,
    GatewayError,
    InvalidParams,
    MessageIdConflict,
    Overloaded,
    PartNotAccepted,
    Problem,
    StoreUnavailable,
    TaskNotFound,
    TaskTerminal,
    TaskUnbound,
)
from openclaw_a2a.model.ids import ContextId, JsonObject, SessionKey, TaskId
from openclaw_a2a.model.message import Message
from openclaw_a2a.model.records import RunOptions, StoredTask, TaskHead, encode_json
from openclaw_a2a.model.states import is_paused, is_terminal
from openclaw_a2a.model.turn import Binding, Provenance, Scope
from openclaw_a2a.model.url_policy import url_rejection_reason
from openclaw_a2a.ports import Duplicate, Record, Submission


class InternalOrigin(msgspec.Struct, frozen=True):
    """What is particular to a task that the gateway itself has a part in.

    Its session is not the caller's. `keep` makes a record that is kept or not together with the
    task; `metadata` is the task's own.
    """

    session_key: SessionKey
    provenance: Provenance | None = None
    make_record: Callable[[TaskId], Record] | None = None
    metadata: JsonObject | None = None


class SubmitRequest(msgspec.Struct, frozen=True):
    """A message at the door."""

    scope: Scope
    message: Message
    is_blocking: bool = True
    accepted_output_modes: tuple[str, ...] = ()
    make_delivery: Callable[[TaskId, int], Delivery] | None = None
    """Makes the delivery that tells somebody about the task, from a cursor on."""
    internal_origin: "InternalOrigin | None" = None
    original_message: Message | None = None
    """What the caller said, when the message was changed on its way here."""


async def submit(
    engine: Engine, send: SubmitRequest, rules: AccountRules
) -> ActiveRun | DuplicateRun:
    """Take a message in. The run tells what comes of it through `first` and `outcome`.

    The same message again gives the same run, or what is known of it.

    Raises: Draining, Overloaded, PartNotAccepted, InvalidParams, MessageIdConflict, TaskNotFound,
    ContextMismatch, TaskTerminal, TaskUnbound.
    """
    known = await find_duplicate(engine, send, rules)
    if known is not None:
        return known
    message, digest = send.message, _digest(send)
    if message.task_id is None:
        return _arriving(engine, send, digest) or _start_task(engine, send, rules, digest)
    async with engine.task_lock(message.task_id):
        while (
            live := engine.active_tasks.get(message.task_id)
        ) is not None and live.opening is not None:
            await live.runs[0].first.wait()  # only then it is known whether the task is open
        stored = await engine.store.tasks.read_task(send.scope, message.task_id)
        resume = await engine.store.tasks.read_resume_token(message.task_id)
        arriving = _arriving(engine, send, digest)
        if arriving is not None:
            return arriving
        if stored is None:
            raise TaskNotFound(f"there is no task {message.task_id}")
        return continue_task(engine, send, rules, Continuation(stored, resume, digest))


async def find_duplicate(
    engine: Engine, send: SubmitRequest, rules: AccountRules
) -> DuplicateRun | None:
    """What is known of a message that was taken before; None when it may be taken in now.

    Raises: Draining, PartNotAccepted, InvalidParams, MessageIdConflict.
    """
    if engine.is_draining:
        raise Draining("the gateway is stopping; try again when it is back", retry_after_s=5)
    check_parts(send.message, rules)
    message_id = send.message.message_id
    known = await engine.store.tasks.find_duplicate(send.scope, message_id, body_hash=_digest(send))
    return None if known is None else DuplicateRun(known, send.scope, message_id)


def _digest(send: SubmitRequest) -> bytes:
    return body_hash(send.original_message or send.message)


class Continuation(msgspec.Struct, frozen=True):
    """The task that a message goes on with."""

    stored: StoredTask
    resume: bytes | None
    digest: bytes


def _arriving(engine: Engine, send: SubmitRequest, digest: bytes) -> ActiveRun | None:
    """The run of the same message, when it is on its way into the store right now."""
    run = engine.pending_submissions.get((send.scope, send.message.message_id))
    if run is not None and run.digest != digest:
        raise MessageIdConflict(
            f"message id {send.message.message_id} was used for another message; take a new one"
        )
    return run


def _start_task(
    engine: Engine, send: SubmitRequest, rules: AccountRules, digest: bytes
) -> ActiveRun:
    now = engine.clock.now()
    task_id = TaskId(engine.new_id())
    context_id = send.message.context_id or ContextId(engine.new_id())
    message = msgspec.structs.replace(send.message, context_id=context_id, task_id=task_id)
    binding = bind(rules, send.scope, message, now=now)
    is_task = rules.is_task_generating or not send.is_blocking or send.internal_origin is not None
    options = RunOptions(send.accepted_output_modes, is_task)
    record = None
    if send.internal_origin is not None:
        binding = msgspec.structs.replace(binding, session_key=send.internal_origin.session_key)
        options = msgspec.structs.replace(options, provenance=send.internal_origin.provenance)
        record = (
            None
            if send.internal_origin.make_record is None
            else send.internal_origin.make_record(task_id)
        )
    run = engine.new_run(send.scope, message, binding, rules=rules, options=options)
    commit = None
    if is_task:
        metadata = None if send.internal_origin is None else send.internal_origin.metadata
        live = run.active_task = engine.open_task(run, metadata)
        commit = live.opening = live.journal.open([live.initial_status()])
    submission = Submission(run.record, digest, now, commit, record=record)
    return _launch(engine, send, run, submission)


def continue_task(
    engine: Engine, send: SubmitRequest, rules: AccountRules, task: Continuation
) -> ActiveRun:
    """A run for a message on a task; whoever read the task is alone with it until here.

    Raises: Overloaded, InvalidParams, ContextMismatch, TaskUnbound, TaskTerminal.
    """
    stored = task.stored
    binding = check_continuation(_newest_head(engine, stored), send.message)
    _check_history(engine, stored)
    message = msgspec.structs.replace(send.message, context_id=stored.head.context_id)
    options = RunOptions(send.accepted_output_modes, is_task=True)
    run = engine.new_run(
        send.scope, message, binding, rules=rules, options=options, resume=task.resume
    )
    now = engine.clock.now()
    live = run.active_task = engine.active_tasks.get(stored.head.id)
    commit = None
    if live is None:
        live = run.active_task = engine.revive(stored)
        if is_paused(stored.head.state):
            live.open_again(message, now)
            commit = live.opening = live.journal.open([live.initial_status()], message)
    live.runs.append(run)
    return _launch(engine, send, run, Submission(run.record, task.digest, now, commit))


def _launch(
    engine: Engine, send: SubmitRequest, run: ActiveRun, submission: Submission
) -> ActiveRun:
    if send.make_delivery is not None:
        # Who joins later is told of the task as it is; who comes with it, of all that happens.
        cursor = 0 if send.message.task_id is None else -1
        delivery = send.make_delivery(run.record.task_id, cursor)
        submission = msgspec.structs.replace(submission, delivery=delivery)
    return engine.launch(run, submission)


def _check_history(engine: Engine, stored: StoredTask) -> None:
    most = engine.limits.history_messages
    if stored.head.sequence >= most and TaskProjection.from_stored(stored).message_count >= most:
        problem = Problem("message.taskId", f"names a task with {most} messages, the most kept")
        raise InvalidParams(f"message.taskId {problem.message}", problems=(problem,))


def _newest_head(engine: Engine, stored: StoredTask) -> TaskHead:
    """A task whose end is being committed right now takes no message any more."""
    live = engine.active_tasks.get(stored.head.id)
    return stored.head if live is None else live.journal.head


def body_hash(message: Message) -> bytes:
    """A digest of what the caller said; the same message id must come with the same one."""
    return hashlib.blake2b(encode_json(message), digest_size=16).digest()


def check_parts(message: Message, rules: AccountRules) -> None:
    """Refuse what the agent does not take, before anything is stored or run."""
    if len(message.parts) > rules.max_parts:
        problem = Problem(
            "message.parts", f"has {len(message.parts)} parts; the limit is {rules.max_parts}"
        )
        raise InvalidParams(f"message.parts {problem.message}", problems=(problem,))
    modes: OutputModes | None = None
    for index, part in enumerate(message.parts):
        if part.is_file:
            modes = modes or output_modes(rules.input_modes)
            media_type = part.media_type or "application/octet-stream"
            if not modes.accepts(media_type):
                raise PartNotAccepted(
                    f"message.parts[{index}] is a file of type {media_type}; "
                    f"this agent takes {', '.join(rules.input_modes)}"
                )
            reason = url_rejection_reason(part.url) if part.url is not None else None
            if reason is not None:
                raise PartNotAccepted(f"message.parts[{index}] is a link to a file that {reason}")


def check_continuation(head: TaskHead, message: Message) -> Binding:
    """The binding of the task a message goes on with.

    Raises: ContextMismatch, TaskUnbound, TaskTerminal.
    """
    if message.context_id is not None and message.context_id != head.context_id:
        raise ContextMismatch(
            f"task {head.id} belongs to context {head.context_id}, not to {message.context_id}"
        )
    if head.binding is None:
        raise TaskUnbound(f"task {head.id} has no stored binding to an agent; start a new task")
    if is_terminal(head.state):
        state = head.state.value.removeprefix("TASK_STATE_").lower()
        raise TaskTerminal(f"task {head.id} is {state}; start a new task in the same context")
    return head.binding


async def wait_created(engine: Engine, run: ActiveRun | DuplicateRun) -> TaskCreated | DirectAnswer:
    """The task as soon as it exists, or the direct answer. Raises: why it was refused."""
    first = await run.first.wait()
    if not isinstance(first, Rejected):
        return first
    if first.known is None:
        raise await _why_refused(engine, run, first)
    return await _first_known(engine, run, first.known)


async def wait_finished(
    engine: Engine, run: ActiveRun | DuplicateRun
) -> TaskFinished | DirectAnswer:
    """How it ended. Raises: why it was refused."""
    outcome = await run.outcome()
    if not isinstance(outcome, Rejected):
        return outcome
    if outcome.known is None:
        raise await _why_refused(engine, run, outcome)
    return await _outcome_known(engine, run, outcome.known)


async def _why_refused(
    engine: Engine, run: ActiveRun | DuplicateRun, refusal: Rejected
) -> GatewayError:
    """The error to tell; a task that moved on while the message arrived is looked at again."""
    error = refusal.error or StoreUnavailable("the run ended without a word")
    if not isinstance(error, Conflict) or not isinstance(run, ActiveRun):
        return error
    stored = await engine.store.tasks.read_task(run.record.scope, run.record.task_id)
    if stored is None:
        return error
    try:
        check_continuation(stored.head, run.record.message)
    except GatewayError as reason:
        return reason
    return Overloaded(f"task {stored.head.id} moved on meanwhile; send the message again")


async def _first_known(
    engine: Engine, sent: ActiveRun | DuplicateRun, known: Duplicate
) -> TaskCreated | DirectAnswer:
    run = engine.runs.get(known.run_id)
    if known.answer is None and run is not None:
        is_shown = await engine.store.tasks.read_task(None, known.task_id) is not None
        if not is_shown:  # it is direct as yet, or just becoming a task
            return await wait_created(engine, run)
    stored = await _stored_or_answer(engine, sent, known)
    if isinstance(stored, DirectAnswer):
        return stored
    return TaskCreated(TaskProjection.from_stored(stored).task(), stored.head.sequence)


async def _outcome_known(
    engine: Engine, sent: ActiveRun | DuplicateRun, known: Duplicate
) -> TaskFinished | DirectAnswer:
    run = engine.runs.get(known.run_id)
    if known.answer is None and run is not None:
        return await wait_finished(engine, run)
    live = engine.active_tasks.get(TaskId(known.task_id))
    if live is not None and live.runs:
        return await wait_finished(engine, live.runs[0])
    stored = await _stored_or_answer(engine, sent, known)
    return stored if isinstance(stored, DirectAnswer) else TaskFinished(task_json(stored))


async def _stored_or_answer(
    engine: Engine, sent: ActiveRun | DuplicateRun, known: Duplicate
) -> StoredTask | DirectAnswer:
    if known.answer is not None:
        return _decode(known.answer)
    stored = await engine.store.tasks.read_task(None, known.task_id)
    if stored is not None:
        return stored
    newest = await engine.store.tasks.find_duplicate(sent.scope, sent.message_id)
    if newest is not None and newest.answer is not None:  # answered since we were told of it
        return _decode(newest.answer)
    is_unfinished = any(record.id == known.run_id for record in engine.abandoned)
    if is_unfinished or known.run_id in engine.runs:
        raise Overloaded("this message is being answered; ask again shortly", retry_after_s=1)
    raise TaskNotFound(f"task {known.task_id} of this message was deleted; use a new message id")


def _decode(answer: bytes) -> DirectAnswer:
    first = decode_answer(answer)
    if isinstance(first, DirectAnswer):
        return first
    raise first.error or StoreUnavailable("the run ended without a word")
