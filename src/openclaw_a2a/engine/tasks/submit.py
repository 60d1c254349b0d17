"""Accepts a message, once, into the right task and session.

submit ──> duplicate? no  ──> new task: _start_task    ──> engine.start_run ──> the run
                          └─> on a task: continue_task ──┘

`results` waits for what comes of it.
"""

import asyncio
import hashlib
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from openclaw_a2a.engine.engine import AccountRules, Engine
from openclaw_a2a.engine.engine_state import EngineState
from openclaw_a2a.engine.sessions import SessionHold
from openclaw_a2a.engine.tasks.active_task import (
    ActiveTask,
    DuplicateRun,
)
from openclaw_a2a.engine.tasks.projection import TaskProjection
from openclaw_a2a.engine.tasks.run import ActiveRun
from openclaw_a2a.engine.transcript.assistant_message import output_modes
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.delivery import Delivery
from openclaw_a2a.model.errors import (
    ContextMismatch,
    CorruptRecord,
    Draining,
    MessageIdConflict,
    Overloaded,
    PartNotAccepted,
    QuotaExceeded,
    TaskNotFound,
    TaskNotWaiting,
    TaskTerminal,
    TaskUnbound,
)
from openclaw_a2a.model.file_content import content_mismatch
from openclaw_a2a.model.ids import (
    LOCAL_PEER,
    AgentId,
    ContextId,
    JsonObject,
    OwnerId,
    PeerName,
    SessionKey,
    TaskId,
)
from openclaw_a2a.model.message import Message, Part
from openclaw_a2a.model.records import (
    HeldMessage,
    Hold,
    RunOptions,
    StoredTask,
    TaskHead,
    encode_json,
    read_held_message,
)
from openclaw_a2a.model.session_keys import main_session_key, session_key
from openclaw_a2a.model.task import PAUSED, TERMINAL, TaskState
from openclaw_a2a.model.turn import Binding, Peer, Provenance, Scope
from openclaw_a2a.model.url_policy import url_rejection_reason
from openclaw_a2a.model.validation import check_count, too_large
from openclaw_a2a.ports import (
    RecentHead,
    Record,
    Submission,
    TaskFilter,
)

if TYPE_CHECKING:
    from openclaw_a2a.engine.replication import Replication

log = get_logger(__name__)

_MAX_HELD = 100_000


class InternalOrigin(msgspec.Struct, frozen=True):
    """A message that the gateway itself sends: a call of an agent, a plan step.

    Its session is not the caller's. `make_record` makes a record that is stored in the same
    transaction as the task; `metadata` is the task's own.
    """

    session_key: SessionKey
    provenance: Provenance | None = None
    make_record: Callable[[TaskId], Record] | None = None
    metadata: JsonObject | None = None


class SubmitRequest(msgspec.Struct, frozen=True):
    """A message to accept."""

    scope: Scope
    message: Message
    is_blocking: bool = True
    accepted_output_modes: tuple[str, ...] = ()
    make_delivery: Callable[[TaskId, int], Delivery] | None = None
    """Makes the delivery that subscribes a receiver to the task, from a cursor on."""
    internal_origin: InternalOrigin | None = None
    original_message: Message | None = None
    """What the caller sent, when the message was changed on its way here."""
    is_answer: bool = False
    """True for a message that can only be an answer: refused unless its task waits for one."""
    address: str = ""
    """Where the message came from, for the audit log."""
    is_part_of_run: bool = False
    """True when a run that was accepted before needs it: a replica that drains accepts it."""
    is_from_peer: bool = False
    """True for a message that came to an endpoint: the policy decides about it."""
    is_decided: bool = False
    """True when the policy has decided about it already."""
    is_released: bool = False
    """True for the message of a held task that the operator has allowed."""
    hold: Hold | None = None
    metadata: JsonObject | None = None
    """Metadata of the request, beside those of the message."""
    new_task_id: TaskId | None = None
    """The id of the task that it opens, where that is needed before."""
    held_as: OwnerId | None = None
    """The id of this replica when it held the session, so that no other one starts a run in it."""
    moves: int = 0
    """How often sessions had gone from this replica to others when it held the session."""
    delivery_owner: OwnerId | None = None
    """The replica that sends its delivery, if that is another one."""


class _SessionMoved(Exception):
    """The session went to another replica while the message was being checked."""

    def __init__(self, request: SubmitRequest) -> None:
        super().__init__()
        self.request = request
        """With what was decided about it."""


async def submit(
    engine: Engine, request: SubmitRequest, rules: AccountRules
) -> ActiveRun | DuplicateRun:
    """Accept a message. `results` has what waits for its result.

    The same message again gives the same run, or the result of the first one.

    Raises: Draining, Overloaded, PartNotAccepted, InvalidParams, MessageIdConflict, TaskNotFound,
    ContextMismatch, TaskTerminal, TaskNotWaiting, TaskUnbound, NotAllowed, QuotaExceeded.
    """
    message = request.message
    if engine.replication is not None and request.held_as is None:
        return await _submit_shared(engine, engine.replication, request, rules)
    check_submission(engine, message, rules, is_part_of_run=request.is_part_of_run)
    body_hash = hash_message(request.original_message or message)
    is_deduplicated = _is_deduplicated(engine, request)
    if is_deduplicated:
        known = await engine.store.tasks.find_duplicate(
            request.scope, message.message_id, body_hash=body_hash
        )
        if known is not None:
            return DuplicateRun(known, request.scope, message.message_id)
    # After the duplicates: a message that was accepted once is not decided about again.
    if engine.policy is not None or request.hold is not None:
        request = await _apply_policy(engine, request, rules)
    if message.task_id is None:
        # Nothing is awaited from this check to `start_run`: of two equal messages that arrive
        # together the second finds the first here. The store rejects a copy of a message that was
        # stored since `find_duplicate`; `wait_created` then gives the result of the first one.
        pending = None
        if is_deduplicated and engine.pending_submissions:
            pending = _find_pending(engine, request, body_hash)
        return pending or _start_task(engine, request, rules, body_hash, is_deduplicated)
    return await _submit_to_task(
        engine, request, rules, message.task_id, body_hash, is_deduplicated=is_deduplicated
    )


async def _submit_shared(
    engine: Engine, replication: "Replication", request: SubmitRequest, rules: AccountRules
) -> ActiveRun | DuplicateRun:
    """Submit a message where its session is: here, or at another replica."""
    while True:
        try:
            return await _submit_at_owner(engine, replication, request, rules)
        except _SessionMoved as moved:
            request = msgspec.structs.replace(moved.request, held_as=None, is_decided=True)


async def _submit_at_owner(
    engine: Engine, replication: "Replication", request: SubmitRequest, rules: AccountRules
) -> ActiveRun | DuplicateRun:
    agent_id, shared = await _shared_session(engine, request, rules)
    place = await replication.choose_replica(agent_id, shared)
    if place is not None:
        return await replication.requests.hand_off(place, request, rules)
    hold = None if shared is None else await replication.hold(shared)
    if hold is not None and not isinstance(hold, SessionHold):
        return await replication.requests.hand_off(hold, request, rules)
    owner, moves = replication.id, replication.moves
    try:
        if shared is not None:
            await engine.recoveries.wait(shared)
        held = msgspec.structs.replace(request, held_as=owner, moves=moves)
        run = await submit(engine, held, rules)
        if isinstance(run, ActiveRun) and run.session_hold is None:
            # Held until the run leaves the queue; an existing run of the message has its own hold.
            run.session_hold, hold = hold, None
    finally:
        if hold is not None:
            hold.release()
    return run


def _check_held_as(replication: "Replication", request: SubmitRequest, agent_id: AgentId) -> None:
    """Refuse when this replica was declared dead since it held the session.

    Raises: Overloaded; _SessionMoved (the session may have gone to another one since).
    """
    if request.held_as is None:
        return
    if request.held_as != replication.id:
        raise Overloaded("another replica has the session by now; send the message again")
    if replication.waits_elsewhere(agent_id) and request.moves != replication.moves:
        raise _SessionMoved(request)


async def hold_session(engine: Engine, session_key: SessionKey) -> SessionHold | None:
    """The right to start a run in a session; None where there are no other replicas.

    Raises: Overloaded (another replica has it).
    """
    if engine.replication is None:
        return None
    hold = await engine.replication.hold(session_key)
    if not isinstance(hold, SessionHold):
        raise Overloaded("the session is in use on another replica; try again shortly")
    # Not waited for: the caller holds the lock of a task, which recovery may need.
    if engine.recoveries.may_include(session_key):
        hold.release()
        raise Overloaded("the session is being recovered; try again shortly")
    return hold


async def _shared_session(
    engine: Engine, request: SubmitRequest, rules: AccountRules
) -> tuple[AgentId, SessionKey | None]:
    """The agent of a message, and its session, if another replica may know it."""
    message, origin, agent_id = request.message, request.internal_origin, rules.agent_id
    if message.task_id is not None:
        found = await engine.store.tasks.measure_task(request.scope, message.task_id)
        binding = None if found is None else found.head.binding
        return (agent_id, None) if binding is None else (binding.agent_id, binding.session_key)
    if origin is not None:
        return agent_id, origin.session_key
    # No other replica can have a session for a context that does not exist yet.
    if message.context_id is None:
        return agent_id, None
    return agent_id, session_key(agent_id, request.scope.principal, message.context_id)


async def _submit_to_task(
    engine: Engine,
    request: SubmitRequest,
    rules: AccountRules,
    task_id: TaskId,
    body_hash: bytes,
    *,
    is_deduplicated: bool,
) -> ActiveRun:
    # Two messages on a paused task must not both reopen it; a cancellation takes the same lock.
    async with engine.task_lock(task_id):
        while True:
            active = await _wait_joinable(engine, task_id)
            # Read under the lock, and used before it is released: no cancellation and no other
            # message can have changed the task in between.
            stored = await engine.store.tasks.read_task(request.scope, task_id)
            resume = await engine.store.tasks.read_resume_token(task_id)
            # The store may pause while it reads. A run that has ended meanwhile has changed the
            # task; one that goes on knows in its journal what came after the read.
            if engine.active_tasks.get(task_id) is active:
                break
        # Checked last, because everything above awaits: the same message may have come meanwhile.
        # From here to `start_run` nothing is awaited.
        pending = _find_pending(engine, request, body_hash) if is_deduplicated else None
        if pending is not None:
            return pending
        if stored is None:
            raise TaskNotFound(f"task not found: there is no task {task_id}")
        return continue_task(engine, request, rules, stored, resume=resume, body_hash=body_hash)


async def _wait_joinable(engine: Engine, task_id: TaskId) -> ActiveTask | None:
    """The active task, once it is neither being opened nor paused; None when it is not active."""
    while (active := engine.active_tasks.get(task_id)) is not None:
        pausing = active.pausing_run
        if active.is_opening:
            # The submission that opens the task is not stored yet, and the store may still reject
            # it. `on_submitted` sets `created` when the store has answered.
            await active.runs[0].created.wait()
        elif pausing is not None and pausing.task is not None:
            # An answer to this pause opens the task anew, in the transaction that stores it.
            await asyncio.wait({pausing.task})
        else:
            break
    return active


async def _apply_policy(
    engine: Engine, request: SubmitRequest, rules: AccountRules
) -> SubmitRequest:
    """The request, with the reason if it is held. Raises: NotAllowed, QuotaExceeded."""
    if engine.policy is not None and request.is_from_peer and not request.is_decided:
        if request.message.task_id is None:  # the audit log names the task of a decision
            request = msgspec.structs.replace(request, new_task_id=TaskId(engine.new_id()))
        hold = await engine.policy.check(request, rules, now=engine.clock.now())
        request = msgspec.structs.replace(request, hold=hold)
    if request.hold is not None:
        await _check_held(engine, request.scope.principal)
    return request


async def list_held(
    engine: Engine, caller: PeerName | None = None
) -> list[tuple[TaskHead, HeldMessage]]:
    """The stored tasks that wait for the operator, of one caller or all, the oldest first."""
    chosen = TaskFilter(principal=caller, state=TaskState.AUTH_REQUIRED)
    found = [
        (one.head, held)
        for one in await engine.store.tasks.list_recent_tasks(_MAX_HELD, chosen)
        if (held := _read_held(one)) is not None
    ]
    return sorted(found, key=lambda one: (one[0].status_at, one[0].id))


def _read_held(task: RecentHead) -> HeldMessage | None:
    try:
        return read_held_message(task.resume)
    except CorruptRecord as error:  # the others are listed all the same
        log.warning("task.held_message_unreadable", task_id=task.head.id, reason=error.message)
        return None


async def _check_held(engine: Engine, caller: PeerName) -> None:
    # Held tasks may wait for days, and no limit of a queue counts them.
    held = {head.id for head, _ in await list_held(engine, caller)}
    # After the await: those on their way to the store count, too, and nothing is awaited from here
    # until a new task is one of them.
    held |= {
        run.record.task_id
        for run in engine.runs.values()
        if run.record.options.hold is not None and run.record.scope.principal == caller
    }
    if len(held) >= engine.limits.peer_held:
        text = f"{len(held)} tasks of {caller} wait for the operator's approval, the most there may"
        raise QuotaExceeded(
            f"{text} be; wait for a decision, or cancel one", setting="limits.perPeerHeld"
        )


async def find_duplicate(
    engine: Engine, request: SubmitRequest, rules: AccountRules
) -> DuplicateRun | None:
    """The result of the same message if it was accepted before; None when it can be accepted now.

    Raises: Draining, PartNotAccepted, InvalidParams, MessageIdConflict.
    """
    message_id = request.message.message_id
    check_submission(engine, request.message, rules)
    if not _is_deduplicated(engine, request):
        return None
    body_hash = hash_message(request.original_message or request.message)
    known = await engine.store.tasks.find_duplicate(request.scope, message_id, body_hash=body_hash)
    return None if known is None else DuplicateRun(known, request.scope, message_id)


def check_submission(
    engine: Engine, message: Message, rules: AccountRules, *, is_part_of_run: bool = False
) -> None:
    """Refuse what cannot be accepted, whoever sends it. Raises: as `submit`."""
    # A gateway that stops refuses also parts of runs: what it begins now would be interrupted.
    is_for_own_run = is_part_of_run and engine.state is EngineState.DRAINING
    if engine.state is not EngineState.SERVING and not is_for_own_run:
        raise Draining("the gateway is stopping; try again when it is back", retry_after_s=5)
    if references := message.reference_task_ids:
        most, setting = engine.limits.reference_tasks, "limits.referenceTasks"
        check_count("message.referenceTaskIds", len(set(references)), most, setting=setting)
    parts = message.parts
    # A character has at most four bytes: nearly every message is one text that is known to fit.
    text = parts[0].text if len(parts) == 1 else None
    if text is None or len(text) * 4 > rules.max_part_bytes:
        check_parts(message, rules)


def _is_deduplicated(engine: Engine, request: SubmitRequest) -> bool:
    # The message of a held task is in the store: it came once, and is let go once.
    if request.is_released:
        return False
    return engine.limits.deduplicates or request.internal_origin is not None


def _find_pending(engine: Engine, request: SubmitRequest, body_hash: bytes) -> ActiveRun | None:
    """The run of the same message, when the store has not answered its submission yet."""
    # The store compares the hash of a stored message; of one on its way it is compared here.
    run = engine.pending_submissions.get((request.scope, request.message.message_id))
    submission = None if run is None else run.submission
    if submission is not None and submission.body_hash != body_hash:
        raise MessageIdConflict(
            f"message id {request.message.message_id} was used for another message; use a new one"
        )
    return run


def _start_task(
    engine: Engine,
    request: SubmitRequest,
    rules: AccountRules,
    body_hash: bytes,
    is_deduplicated: bool,
) -> ActiveRun:
    now, origin = engine.clock.now(), request.internal_origin
    task_id = request.new_task_id or TaskId(engine.new_id())
    # A2A 3.4.1: a message without a context gets a new one, and one that it names is used.
    context_id = request.message.context_id or ContextId(engine.new_id())
    message = msgspec.structs.replace(request.message, context_id=context_id, task_id=task_id)
    session = None if origin is None else origin.session_key
    binding = create_binding(rules, request.scope, context_id, now=now, session=session)
    # A caller that does not wait can get its answer only from a task; so can a call or a plan step.
    is_task = rules.is_task_generating or not request.is_blocking or origin is not None
    is_task = is_task or request.hold is not None or engine.waits_elsewhere(rules.agent_id)
    options = RunOptions(request.accepted_output_modes, is_task, hold=request.hold)
    # What belongs to the task (a call, a plan step) is stored with it: after a crash there is both
    # or neither.
    record = metadata = None
    if origin is not None:
        options = msgspec.structs.replace(options, provenance=origin.provenance)
        record = None if origin.make_record is None else origin.make_record(task_id)
        metadata = origin.metadata
    if engine.replication is not None:
        _check_held_as(engine.replication, request, binding.agent_id)
    # May refuse with Overloaded, and so comes before anything is registered.
    run = engine.new_run(request.scope, message, binding, rules=rules, options=options)
    run.address, run.is_from_peer = request.address, request.is_from_peer
    if is_task:
        run.active_task = engine.open_task(run, now, metadata)
        run.active_task.open(run)
    # A subscriber that comes with the task gets everything from its first event on.
    delivery = None if request.make_delivery is None else request.make_delivery(task_id, 0)
    return engine.start_run(
        run,
        Submission(
            run.record,
            body_hash,
            now,
            delivery=delivery,
            record=record,
            is_deduplicated=is_deduplicated,
            delivery_owner=request.delivery_owner,
        ),
    )


def create_binding(
    rules: AccountRules,
    scope: Scope,
    context_id: ContextId,
    *,
    now: datetime,
    session: SessionKey | None = None,
) -> Binding:
    """The route of a new task: which agent, which peer, which session (None: of the context)."""
    if scope.principal == LOCAL_PEER:  # a caller without a name of its own: known by its context
        peer = Peer(id=context_id, source="context-id")
    else:
        peer = Peer(id=scope.principal, source="server-user-name")
    return Binding(
        agent_id=rules.agent_id,
        account_id=rules.account,
        session_key=session or session_key(rules.agent_id, scope.principal, context_id),
        main_session_key=main_session_key(rules.agent_id),
        peer=peer,
        created_at=now,
        updated_at=now,
        store_path=rules.store_path,
    )


def continue_task(
    engine: Engine,
    request: SubmitRequest,
    rules: AccountRules,
    stored: StoredTask,
    *,
    resume: bytes | None,
    body_hash: bytes,
    hold: SessionHold | None = None,
) -> ActiveRun:
    """A run for a message on a task. The caller has held the task's lock since it read the task.

    `hold` is given back when the run has left, or is refused.

    Raises: Overloaded, InvalidParams, ContextMismatch, TaskUnbound, TaskTerminal, TaskNotWaiting.
    """
    if hold is not None:
        try:
            run = continue_task(engine, request, rules, stored, resume=resume, body_hash=body_hash)
        except BaseException:
            hold.release()
            raise
        run.session_hold = hold
        return run
    head, now = stored.head, engine.clock.now()
    active = engine.active_tasks.get(head.id)
    # The journal knows of an end whose commit is still under way: such a task takes no message.
    newest = head if active is None else active.journal.head
    binding = check_continuation(newest, request.message)
    # One answer for each pause. The second of two that come at once would otherwise wait behind the
    # first, and its reply would become the result of the task.
    if active is not None and active.is_answered:
        raise already_answered(head.id)
    is_held = active is not None and any(run.record.options.hold for run in active.runs)
    if is_held or (read_held_message(resume) is not None and newest.state in PAUSED):
        raise TaskNotWaiting(
            f"task {head.id} waits for the operator of this gateway; wait for the decision"
        )
    if request.is_answer and newest.state not in PAUSED:
        state = newest.state.label
        raise TaskNotWaiting(
            f"task {head.id} is {state} and waits for no answer; wait until it asks or ends"
        )
    most = engine.limits.history_messages
    if head.sequence >= most and len(TaskProjection.from_stored(stored).history) >= most:
        text = f"names a task with {most} messages, the most kept; start another task"
        raise too_large("message.taskId", text, "limit", "limits.historyMessages")
    message = msgspec.structs.replace(request.message, context_id=head.context_id)
    options = RunOptions(
        request.accepted_output_modes,
        is_task=True,
        is_answer=newest.state in PAUSED,
        hold=request.hold,
    )
    if engine.replication is not None:
        _check_held_as(engine.replication, request, binding.agent_id)
    run = engine.new_run(
        request.scope, message, binding, rules=rules, options=options, resume=resume
    )
    run.address, run.is_from_peer = request.address, request.is_from_peer
    run.is_released = request.is_released
    # A paused task is submitted again in the transaction that stores the message. A task with runs
    # stays as it is: this message joins its history when its own run starts.
    if active is None:
        active = engine.activate(stored)
        if head.state in PAUSED:
            is_elsewhere = run.slot.is_elsewhere
            reason = engine.waiting_status(run.record).status.message if is_elsewhere else None
            active.reopen(run, message, now, reason)
    run.active_task = active
    active.runs.append(run)
    engine.session_tasks.add_newest(run.record.session_key, head.id)
    # A subscriber that comes later first gets the task as it is (cursor -1).
    delivery = None if request.make_delivery is None else request.make_delivery(head.id, -1)
    is_deduplicated = _is_deduplicated(engine, request)
    return engine.start_run(
        run,
        Submission(
            run.record,
            body_hash,
            now,
            delivery=delivery,
            is_deduplicated=is_deduplicated,
            delivery_owner=request.delivery_owner,
        ),
    )


def already_answered(task_id: TaskId) -> TaskNotWaiting:
    """The error for a second answer to one pause."""
    return TaskNotWaiting(
        f"task {task_id} was answered by another message and works on that; wait until it asks "
        "again or ends, or start a new task in the same context"
    )


def hash_message(message: Message) -> bytes:
    """A digest of what the caller sent; the same message id must come with the same one."""
    # Of the decoded message: white space and the order of its own members do not matter.
    return hashlib.blake2b(encode_json(message), digest_size=16).digest()


def check_parts(message: Message, rules: AccountRules) -> None:
    """Reject what the agent does not accept, before anything is stored or run."""
    if len(message.parts) > rules.max_parts:
        check_count("message.parts", len(message.parts), rules.max_parts, setting="limits.parts")
    for index, part in enumerate(message.parts):
        # A character has at most four bytes: nearly every part is known to fit by its length.
        length = len(part.text or part.raw or "")
        if length * 4 > rules.max_part_bytes or part.data is not UNSET:
            _check_part_size(part, f"message.parts[{index}]", rules.max_part_bytes)
        if part.text is not None or not part.is_file:
            continue
        media_type = part.media_type or "application/octet-stream"
        if not output_modes(rules.input_modes).accepts(media_type):
            raise PartNotAccepted(
                f"message.parts[{index}] is a file of type {media_type}; "
                f"this agent takes {', '.join(rules.input_modes)}; its operator can add types with "
                "defaultInputModes of the account"
            )
        reason = url_rejection_reason(part.url) if part.url is not None else None
        if reason is not None:
            raise PartNotAccepted(f"message.parts[{index}] is a link to a file that {reason}")
        reason = content_mismatch(media_type, part.raw) if part.raw is not None else None
        if reason is not None:
            raise PartNotAccepted(
                f"message.parts[{index}] {reason}; send the file itself, or correct its media type"
            )


def _check_part_size(part: Part, path: str, most: int) -> None:
    if part.raw is not None:
        size = len(part.raw) * 3 // 4
    elif part.data is not UNSET:
        size = len(encode_json(part.data))
    else:
        size = len((part.text or "").encode())
    if size > most:
        text = f"has {size} bytes; the most are {most}"
        raise too_large(path, text, "maxLength", "limits.partBytes")


def check_continuation(head: TaskHead, message: Message) -> Binding:
    """The binding of the task that a message continues.

    Raises: ContextMismatch, TaskUnbound, TaskTerminal.
    """
    # A2A 3.4.2: the context may be left out, but must not contradict the task.
    if message.context_id is not None and message.context_id != head.context_id:
        raise ContextMismatch(
            f"task {head.id} belongs to context {head.context_id}, not to {message.context_id}"
        )
    if head.binding is None:
        raise TaskUnbound(f"task {head.id} has no stored binding to an agent; start a new task")
    if head.state in TERMINAL:
        # A2A 3.1.1: a task that has ended accepts no further message.
        state = head.state.label
        raise TaskTerminal(f"task {head.id} is {state}; start a new task in the same context")
    return head.binding
