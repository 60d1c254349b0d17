"""The operations on tasks, the same for every protocol version and binding."""

from collections.abc import Coroutine
from typing import Any, Protocol

import msgspec

from openclaw_a2a.calls.loop_guard import chain_violation, read_chain
from openclaw_a2a.engine.tasks import queries
from openclaw_a2a.engine.tasks.cancel import cancel_task
from openclaw_a2a.engine.tasks.result import DirectAnswer, DuplicateRun, Rejected, TaskCreated
from openclaw_a2a.engine.tasks.run import ActiveRun
from openclaw_a2a.engine.tasks.submit import (
    SubmitRequest,
    find_duplicate,
    submit,
    wait_created,
    wait_finished,
)
from openclaw_a2a.engine.tasks.turn_builder import NO_USABLE_PART, has_usable_content
from openclaw_a2a.http.sse_stream import EventStream, PendingStream
from openclaw_a2a.model.delivery import Delivery
from openclaw_a2a.model.errors import InvalidParams, Problem, TaskTerminal
from openclaw_a2a.model.ids import ContextId, MessageId, TaskId
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.records import encode_json
from openclaw_a2a.model.task import is_terminal
from openclaw_a2a.model.turn import CHAIN_KEY, Scope
from openclaw_a2a.planning.message_routing import RoutedMessage
from openclaw_a2a.planning.service import PlanningService
from openclaw_a2a.protocol import v1
from openclaw_a2a.protocol.requests import NewPushConfig, SendRequest
from openclaw_a2a.server.account_endpoint import AccountEndpoint


class SendResultCodec(Protocol):
    """Encodes the result of a send: the module of a protocol version."""

    def encode_sent_task(self, task: bytes, history_length: int | None, /) -> bytes:
        """A stored task as the result of a send."""
        ...

    def encode_sent_message(self, message: bytes, /) -> bytes:
        """A stored message as the result of a send."""
        ...


def encode_send_result(
    codec: SendResultCodec, result: bytes | DirectAnswer, history_length: int | None
) -> bytes:
    """The result of `send` in a protocol version."""
    if isinstance(result, DirectAnswer):
        return codec.encode_sent_message(result.message)
    return codec.encode_sent_task(result, history_length)


def check_tenant(tenant: str | None) -> None:
    """Refuse a tenant: no interface on our cards names one. Raises: InvalidParams."""
    if tenant:
        problem = Problem("tenant", "is not known here; this agent has no tenants")
        raise InvalidParams(f"tenant {tenant[:80]!r} {problem.message}", problems=(problem,))


async def send(
    endpoint: AccountEndpoint,
    scope: Scope,
    request: SendRequest,
    *,
    planning: PlanningService | None = None,
) -> bytes | DirectAnswer:
    """Send a message; returns the stored task, or a direct answer.

    With `planning` the message may belong to an objective.
    """
    _check_send(endpoint, request)
    if not (endpoint.rules.accepts_empty or has_usable_content(request.message)):
        return await _answer_empty_message(endpoint, scope, request.message)
    run = await _submit(endpoint, scope, request, planning)
    if not request.is_blocking:
        created = await wait_created(endpoint.engine, run)
        return created if isinstance(created, DirectAnswer) else encode_json(created.task)
    result = await wait_finished(endpoint.engine, run)
    if isinstance(result, DirectAnswer):
        return result
    if result.error is not None:
        raise result.error
    return result.task


async def send_streaming(
    endpoint: AccountEndpoint,
    scope: Scope,
    request: SendRequest,
    *,
    cursor: int | None,
    planning: PlanningService | None = None,
) -> EventStream | PendingStream:
    """Send a message and stream its task. The message is accepted when this returns.

    A client that lost its stream may repeat the request: with a cursor it continues there.
    """
    _check_send(endpoint, request)
    if not (endpoint.rules.accepts_empty or has_usable_content(request.message)):
        return _message_stream(await _answer_empty_message(endpoint, scope, request.message))
    run = await _submit(endpoint, scope, request, planning)

    async def wait_first_event() -> EventStream:
        created = await wait_created(endpoint.engine, run)
        if isinstance(created, DirectAnswer):
            return _message_stream(created)
        is_duplicate = isinstance(run.created.peek(), Rejected)
        if is_duplicate and cursor is not None:
            task_id = created.task.id
            missed = await queries.subscribe(endpoint.engine, scope, task_id, cursor=cursor)
            return EventStream(None, 0, missed.subscription)
        return _task_stream(endpoint, created, request.history_length)

    return wait_first_event()


async def get(endpoint: AccountEndpoint, scope: Scope, task_id: TaskId) -> bytes:
    """The stored task. Raises: TaskNotFound."""
    return queries.task_json(await queries.get_task(endpoint.engine, scope, task_id))


async def cancel(endpoint: AccountEndpoint, scope: Scope, task_id: TaskId) -> bytes:
    """Cancel a task; returns it as stored. Raises: TaskNotFound, TaskNotCancelable."""
    return await cancel_task(endpoint.engine, scope, task_id)


async def subscribe(
    endpoint: AccountEndpoint,
    scope: Scope,
    task_id: TaskId,
    *,
    cursor: int | None,
    allow_finished: bool,
) -> EventStream:
    """Stream a task that exists.

    With a cursor even a finished task streams the missed events; without one it is refused unless
    `allow_finished`. Raises: TaskNotFound, TaskTerminal, InvalidParams (the cursor).
    """
    found = await queries.subscribe(endpoint.engine, scope, task_id, cursor=cursor)
    if found.snapshot is None:
        return EventStream(None, 0, found.subscription)
    if is_terminal(found.head.state) and not allow_finished:
        raise TaskTerminal(f"task {task_id} has ended; get it instead of subscribing to it")
    return EventStream(v1.wrap_task(found.snapshot), found.head.sequence, found.subscription)


async def delete(endpoint: AccountEndpoint, scope: Scope, task_id: TaskId) -> None:
    """Delete a finished task. Raises: TaskNotFound, InvalidParams (it has not ended)."""
    if not await endpoint.engine.store.tasks.delete_task(scope, task_id):
        await queries.get_task(endpoint.engine, scope, task_id)
        problem = Problem("id", "has not ended; cancel it first")
        raise InvalidParams(f"task {task_id} {problem.message}", problems=(problem,))


# ------------------------------------------------------------------------------- checks of a send


def _check_send(endpoint: AccountEndpoint, request: SendRequest) -> None:
    """Raises: InvalidParams (a call loop, a bad webhook URL), PushNotSupported."""
    metadata = request.message.metadata
    if metadata and CHAIN_KEY in metadata:
        limits = endpoint.chain_limits
        chain = read_chain(metadata, limits.own_host)
        reason = chain_violation(chain, endpoint.rules.agent_id, max_depth=limits.max_depth)
        if reason is not None:
            path = f"message.metadata[{CHAIN_KEY!r}]"
            raise InvalidParams(f"{path}: {reason}", problems=(Problem(path, reason),))
    if request.push is not None:
        endpoint.push_configs().check_url(request.push)


async def _answer_empty_message(
    endpoint: AccountEndpoint, scope: Scope, message: Message
) -> DirectAnswer:
    """The answer to a message without usable content. Raises: TaskNotFound."""
    context_id = message.context_id
    if message.task_id is not None:
        stored = await queries.get_task(endpoint.engine, scope, message.task_id)
        context_id = context_id or stored.head.context_id
    context_id = context_id or ContextId(endpoint.new_id())
    parts = (Part(text=NO_USABLE_PART),)
    answer = Message(MessageId(endpoint.new_id()), Role.AGENT, parts, context_id)
    return DirectAnswer(encode_json(answer))


# ------------------------------------------------------------------------- submitting to the engine


def _submit(
    endpoint: AccountEndpoint, scope: Scope, request: SendRequest, planning: PlanningService | None
) -> Coroutine[Any, Any, ActiveRun | DuplicateRun]:
    submission = SubmitRequest(
        scope, request.message, request.is_blocking, request.accepted_output_modes
    )
    if planning is not None:
        return _submit_to_objective(endpoint, submission, request.push, planning)
    if request.push is not None:
        return _submit_with_push(endpoint, submission, request.push)
    return submit(endpoint.engine, submission, endpoint.rules)


async def _submit_to_objective(
    endpoint: AccountEndpoint,
    submission: SubmitRequest,
    push: NewPushConfig | None,
    planning: PlanningService,
) -> ActiveRun | DuplicateRun:
    """Submit a message that may belong to an objective."""
    duplicate = await find_duplicate(endpoint.engine, submission, endpoint.rules)
    if duplicate is None:
        routed = await planning.route_message(submission.message, submission.scope, endpoint.rules)
        if routed is not None:
            submission = _routed_submission(submission, routed)
    if push is not None:
        return await _submit_with_push(endpoint, submission, push)
    return duplicate or await submit(endpoint.engine, submission, endpoint.rules)


def _routed_submission(submission: SubmitRequest, routed: RoutedMessage) -> SubmitRequest:
    return msgspec.structs.replace(
        submission,
        message=routed.message,
        original_message=submission.message,
        internal_origin=routed.origin,
        make_delivery=routed.make_delivery,
    )


async def _submit_with_push(
    endpoint: AccountEndpoint, submission: SubmitRequest, push: NewPushConfig
) -> ActiveRun | DuplicateRun:
    """Submit a message together with a push configuration for its task.

    The configuration is written in the transaction that accepts the message, so a crash in
    between cannot lose it. Two cases remain for afterwards: the objective's delivery has taken
    that place, or the message is a duplicate, perhaps of one without a configuration.
    """
    configs, delivered = endpoint.push_configs(), list[TaskId]()
    if submission.message.task_id is not None:
        await configs.check_count(submission.scope, submission.message.task_id, push)

    def make_delivery(task_id: TaskId, cursor: int) -> Delivery:
        delivered.append(task_id)
        return configs.make_delivery(push, task_id, cursor)

    if submission.make_delivery is None:
        submission = msgspec.structs.replace(submission, make_delivery=make_delivery)
    run = await submit(endpoint.engine, submission, endpoint.rules)
    if not delivered:
        created = await wait_created(endpoint.engine, run)
        if isinstance(created, TaskCreated):
            await configs.create(submission.scope, created.task.id, push)
    return run


# ---------------------------------------------------------------------------------------- streams


def _message_stream(answer: DirectAnswer) -> EventStream:
    return EventStream(v1.wrap_message(answer.message), 0, None)


def _task_stream(
    endpoint: AccountEndpoint, created: TaskCreated, history_length: int | None
) -> EventStream:
    subscription = queries.subscribe_from(endpoint.engine, created.task.id, created.sequence)
    task = v1.trim_task(encode_json(created.task), history_length=history_length)
    return EventStream(v1.wrap_task(task), created.sequence, subscription)
