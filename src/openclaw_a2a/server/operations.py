"""What can be done at a door, whatever the wire: send, stream, get, cancel, subscribe, push."""

from collections.abc import Coroutine
from typing import Any

import msgspec

from openclaw_a2a.calls.loop_guard import METADATA_KEY, chain_violation, read_chain
from openclaw_a2a.engine.tasks import cancel, queries
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
from openclaw_a2a.model.push_config import PushConfig
from openclaw_a2a.model.records import encode_json
from openclaw_a2a.model.states import is_terminal
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.planning.message_routing import RoutedMessage
from openclaw_a2a.planning.service import PlanningService
from openclaw_a2a.protocol import v1
from openclaw_a2a.protocol.requests import (
    GetRequest,
    NewPushConfig,
    PushListRequest,
    PushRequest,
    SendRequest,
    TaskRequest,
)
from openclaw_a2a.protocol.versions import ProtocolVersion
from openclaw_a2a.server.account_endpoint import AccountEndpoint
from openclaw_a2a.server.push.configs import PushPage

INLINE_PUSH = {
    ProtocolVersion.V1: "configuration.taskPushNotificationConfig.url",
    ProtocolVersion.V03: "configuration.pushNotificationConfig.url",
}


def check_request(door: AccountEndpoint, request: SendRequest) -> None:
    """Refuse what this agent does not offer."""
    check_tenant(request.tenant)
    _check_chain(door, request.message)
    if request.push is not None:
        door.push_configs().check(request.push, INLINE_PUSH[request.push.wire])


def _check_chain(door: AccountEndpoint, message: Message) -> None:
    """Refuse a message that went through this agent before, or through too many."""
    if not message.metadata or METADATA_KEY not in message.metadata:
        return
    chain = read_chain(message.metadata, door.chain_limits.own_host)
    reason = chain_violation(chain, door.rules.agent_id, max_depth=door.chain_limits.max_depth)
    if reason is not None:
        path = f"message.metadata[{METADATA_KEY!r}]"
        raise InvalidParams(f"{path}: {reason}", problems=(Problem(path, reason),))


def check_tenant(tenant: str | None) -> None:
    """No interface of ours names a tenant, so a caller that does means somebody else."""
    if tenant:
        problem = Problem("tenant", "is not known here; this agent has no tenants")
        raise InvalidParams(f"tenant {tenant[:80]!r} {problem.message}", problems=(problem,))


async def send(
    door: AccountEndpoint,
    scope: Scope,
    request: SendRequest,
    *,
    planning: PlanningService | None = None,
) -> bytes | DirectAnswer:
    """Send a message; the task in its stored spelling, or a direct answer.

    With `planning` the message may belong to an objective.
    """
    check_request(door, request)
    if not (door.rules.accepts_empty or has_usable_content(request.message)):
        return await _nothing_usable(door, scope, request.message)
    run = await _submit(door, scope, request, planning)
    if not request.is_blocking:
        first = await wait_created(door.engine, run)
        return first if isinstance(first, DirectAnswer) else encode_json(first.task)
    outcome = await wait_finished(door.engine, run)
    if isinstance(outcome, DirectAnswer):
        return outcome
    if outcome.error is not None:
        raise outcome.error
    return outcome.task


async def send_streaming(
    door: AccountEndpoint,
    scope: Scope,
    request: SendRequest,
    *,
    cursor: int | None,
    planning: PlanningService | None = None,
) -> EventStream | PendingStream:
    """Send a message and follow what comes of it. The message is taken in when this returns.

    A client that lost its stream may simply repeat the request: with a cursor it goes on there.
    """
    check_request(door, request)
    if not (door.rules.accepts_empty or has_usable_content(request.message)):
        return _whole(await _nothing_usable(door, scope, request.message))
    run = await _submit(door, scope, request, planning)

    async def coming() -> EventStream:
        first = await wait_created(door.engine, run)
        if isinstance(first, DirectAnswer):
            return _whole(first)
        is_repeated = isinstance(run.created.peek(), Rejected)
        if is_repeated and cursor is not None:
            following = await queries.subscribe(door.engine, scope, first.task.id, cursor=cursor)
            return EventStream(None, 0, following.subscription)
        return _following(door, first, request.history_length)

    return coming()


async def get(door: AccountEndpoint, scope: Scope, request: GetRequest) -> bytes:
    """A task as it is now, in its stored spelling."""
    check_tenant(request.tenant)
    return queries.task_json(await queries.get_task(door.engine, scope, request.id))


async def cancel_task(door: AccountEndpoint, scope: Scope, request: TaskRequest) -> bytes:
    """Stop a task; how it ended."""
    check_tenant(request.tenant)
    return await cancel.cancel_task(door.engine, scope, request.id)


async def subscribe(
    door: AccountEndpoint,
    scope: Scope,
    request: TaskRequest,
    *,
    cursor: int | None,
    allow_ended: bool,
) -> EventStream:
    """Follow a task that exists.

    With a cursor even an ended task streams what was missed; without one it is refused unless
    the wire wants its snapshot.
    """
    check_tenant(request.tenant)
    following = await queries.subscribe(door.engine, scope, request.id, cursor=cursor)
    if following.snapshot is None:
        return EventStream(None, 0, following.subscription)
    if is_terminal(following.head.state) and not allow_ended:
        raise TaskTerminal(f"task {request.id} has ended; get it instead of subscribing to it")
    return EventStream(
        v1.wrap_task(following.snapshot), following.head.sequence, following.subscription
    )


async def delete_task(door: AccountEndpoint, scope: Scope, task_id: TaskId) -> None:
    """Forget an ended task. Raises: TaskNotFound, InvalidParams (it has not ended)."""
    if not await door.engine.store.tasks.delete_task(scope, task_id):
        await queries.get_task(door.engine, scope, task_id)
        problem = Problem("id", "has not ended; cancel it first")
        raise InvalidParams(f"task {task_id} {problem.message}", problems=(problem,))


async def create_push(
    door: AccountEndpoint, scope: Scope, wish: NewPushConfig, *, path: str = "url"
) -> PushConfig:
    """Make a push configuration; `path` is where its address stands in the request."""
    desk = door.push_configs()
    check_tenant(wish.tenant)
    desk.check(wish, path)
    return await desk.create(scope, wish.task_id or TaskId(""), wish)


async def find_push(door: AccountEndpoint, scope: Scope, request: PushRequest) -> PushConfig:
    """One push configuration."""
    desk = door.push_configs()
    check_tenant(request.tenant)
    return await desk.find(scope, request)


async def list_push(door: AccountEndpoint, scope: Scope, request: PushListRequest) -> PushPage:
    """A page of a task's push configurations."""
    desk = door.push_configs()
    check_tenant(request.tenant)
    return await desk.page(scope, request)


async def remove_push(door: AccountEndpoint, scope: Scope, request: PushRequest) -> None:
    """Remove a push configuration; one that is not there is removed already."""
    desk = door.push_configs()
    check_tenant(request.tenant)
    await desk.remove(scope, request)


def _submit(
    door: AccountEndpoint, scope: Scope, request: SendRequest, planning: PlanningService | None
) -> Coroutine[Any, Any, ActiveRun | DuplicateRun]:
    send = SubmitRequest(scope, request.message, request.is_blocking, request.accepted_output_modes)
    if planning is not None:
        return _submit_planned(door, send, request.push, planning)
    if request.push is not None:
        return _submit_followed(door, send, request.push)
    return submit(door.engine, send, door.rules)


async def _submit_planned(
    door: AccountEndpoint,
    send: SubmitRequest,
    wish: NewPushConfig | None,
    planning: PlanningService,
) -> ActiveRun | DuplicateRun:
    """Take the message in where it belongs: into an objective, or nowhere in particular."""
    known = await find_duplicate(door.engine, send, door.rules)
    if known is None:
        routed = await planning.route_message(send.message, send.scope, door.rules)
        if routed is not None:
            send = _inside(send, routed)
    if wish is not None:
        return await _submit_followed(door, send, wish)
    return known or await submit(door.engine, send, door.rules)


def _inside(send: SubmitRequest, routed: RoutedMessage) -> SubmitRequest:
    return msgspec.structs.replace(
        send,
        message=routed.message,
        original_message=send.message,
        internal_origin=routed.origin,
        make_delivery=routed.make_delivery,
    )


async def _submit_followed(
    door: AccountEndpoint, send: SubmitRequest, wish: NewPushConfig
) -> ActiveRun | DuplicateRun:
    """Take the message in, together with the wish to be told about its task."""
    desk, followed = door.push_configs(), list[TaskId]()
    if send.message.task_id is not None:
        await desk.check_room(send.scope, send.message.task_id, wish)

    def follow(task_id: TaskId, cursor: int) -> Delivery:
        followed.append(task_id)
        return desk.delivery(wish, task_id, cursor)

    if (
        send.make_delivery is None
    ):  # else somebody else is told with the task, and this one after it
        send = msgspec.structs.replace(send, make_delivery=follow)
    run = await submit(door.engine, send, door.rules)
    if not followed:  # or the message was taken before, perhaps without the wish
        first = await wait_created(door.engine, run)
        if isinstance(first, TaskCreated):
            await desk.create(send.scope, first.task.id, wish)
    return run


def _whole(answer: DirectAnswer) -> EventStream:
    return EventStream(v1.wrap_message(answer.message), 0, None)


def _following(
    door: AccountEndpoint, first: TaskCreated, history_length: int | None
) -> EventStream:
    follower = queries.subscribe_from(door.engine, first.task.id, first.sequence)
    whole = encode_json(first.task)
    task = v1.trim_task(whole, history_length=history_length, with_artifacts=None)
    return EventStream(v1.wrap_task(task), first.sequence, follower)


async def _nothing_usable(door: AccountEndpoint, scope: Scope, message: Message) -> DirectAnswer:
    """The answer to a message that says nothing. Raises: TaskNotFound."""
    context_id = message.context_id
    if message.task_id is not None:
        stored = await queries.get_task(door.engine, scope, message.task_id)
        context_id = context_id or stored.head.context_id
    context_id = context_id or ContextId(door.new_id())
    parts = (Part(text=NO_USABLE_PART),)
    return DirectAnswer(
        encode_json(Message(MessageId(door.new_id()), Role.AGENT, parts, context_id))
    )
