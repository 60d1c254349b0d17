"""What can be done at a door, whatever the wire: send, stream, get, cancel, subscribe, push."""

from collections.abc import Coroutine
from typing import Any

import msgspec

from openclaw_a2a.calls.chain import METADATA_KEY, read_chain, why_not
from openclaw_a2a.inbound.door import Door
from openclaw_a2a.inbound.opt_desk import PlanningDoor, Taken
from openclaw_a2a.inbound.push_configs import PushPage
from openclaw_a2a.inbound.streams import Coming, Stream
from openclaw_a2a.model.delivery import Delivery
from openclaw_a2a.model.errors import InvalidParams, Problem, TaskTerminal
from openclaw_a2a.model.ids import ContextId, MessageId, TaskId
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.push import PushConfig
from openclaw_a2a.model.states import is_terminal
from openclaw_a2a.model.stored import encode_record
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.runtime import read
from openclaw_a2a.runtime.cancel import cancel
from openclaw_a2a.runtime.live import Answer, KnownRun, Refused, Shown
from openclaw_a2a.runtime.run import LiveRun
from openclaw_a2a.runtime.sent import first_of, outcome_of
from openclaw_a2a.runtime.submit import Send, recall, submit
from openclaw_a2a.runtime.turn import NOTHING_USABLE, is_usable
from openclaw_a2a.wire import v1
from openclaw_a2a.wire.requests import (
    GetRequest,
    PushListRequest,
    PushRequest,
    PushWish,
    SendRequest,
    TaskRequest,
)
from openclaw_a2a.wire.versions import Wire

INLINE_PUSH = {
    Wire.V1: "configuration.taskPushNotificationConfig.url",
    Wire.V03: "configuration.pushNotificationConfig.url",
}


def check_request(door: Door, request: SendRequest) -> None:
    """Refuse what this agent does not offer."""
    check_tenant(request.tenant)
    _check_chain(door, request.message)
    if request.push is not None:
        door.push_desk().check(request.push, INLINE_PUSH[request.push.wire])


def _check_chain(door: Door, message: Message) -> None:
    """Refuse a message that went through this agent before, or through too many."""
    if not message.metadata or METADATA_KEY not in message.metadata:
        return
    chain = read_chain(message.metadata, door.guard.own_host)
    reason = why_not(chain, door.rules.agent_id, max_depth=door.guard.max_depth)
    if reason is not None:
        path = f"message.metadata[{METADATA_KEY!r}]"
        raise InvalidParams(f"{path}: {reason}", problems=(Problem(path, reason),))


def check_tenant(tenant: str | None) -> None:
    """No interface of ours names a tenant, so a caller that does means somebody else."""
    if tenant:
        problem = Problem("tenant", "is not known here; this agent has no tenants")
        raise InvalidParams(f"tenant {tenant[:80]!r} {problem.message}", problems=(problem,))


async def send(
    door: Door, scope: Scope, request: SendRequest, *, planning: PlanningDoor | None = None
) -> bytes | Answer:
    """Send a message; the task in its stored spelling, or a direct answer.

    With `planning` the message may belong to an objective.
    """
    check_request(door, request)
    if not (door.rules.takes_empty or is_usable(request.message)):
        return await _nothing_usable(door, scope, request.message)
    run = await _submit(door, scope, request, planning)
    if not request.is_blocking:
        first = await first_of(door.engine, run)
        return first if isinstance(first, Answer) else encode_record(first.task)
    outcome = await outcome_of(door.engine, run)
    if isinstance(outcome, Answer):
        return outcome
    if outcome.error is not None:
        raise outcome.error
    return outcome.task


async def send_streaming(
    door: Door,
    scope: Scope,
    request: SendRequest,
    *,
    cursor: int | None,
    planning: PlanningDoor | None = None,
) -> Stream | Coming:
    """Send a message and follow what comes of it. The message is taken in when this returns.

    A client that lost its stream may simply repeat the request: with a cursor it goes on there.
    """
    check_request(door, request)
    if not (door.rules.takes_empty or is_usable(request.message)):
        return _whole(await _nothing_usable(door, scope, request.message))
    run = await _submit(door, scope, request, planning)

    async def coming() -> Stream:
        first = await first_of(door.engine, run)
        if isinstance(first, Answer):
            return _whole(first)
        is_repeated = isinstance(run.first.peek(), Refused)
        if is_repeated and cursor is not None:
            following = await read.follow(door.engine, scope, first.task.id, cursor=cursor)
            return Stream(None, 0, following.follower)
        return _following(door, first, request.history_length)

    return coming()


async def get(door: Door, scope: Scope, request: GetRequest) -> bytes:
    """A task as it is now, in its stored spelling."""
    check_tenant(request.tenant)
    return read.task_bytes(await read.get_task(door.engine, scope, request.id))


async def cancel_task(door: Door, scope: Scope, request: TaskRequest) -> bytes:
    """Stop a task; how it ended."""
    check_tenant(request.tenant)
    return await cancel(door.engine, scope, request.id)


async def subscribe(
    door: Door, scope: Scope, request: TaskRequest, *, cursor: int | None, allow_ended: bool
) -> Stream:
    """Follow a task that exists.

    With a cursor even an ended task streams what was missed; without one it is refused unless
    the wire wants its snapshot.
    """
    check_tenant(request.tenant)
    following = await read.follow(door.engine, scope, request.id, cursor=cursor)
    if following.snapshot is None:
        return Stream(None, 0, following.follower)
    if is_terminal(following.head.state) and not allow_ended:
        raise TaskTerminal(f"task {request.id} has ended; get it instead of subscribing to it")
    return Stream(v1.wrap_task(following.snapshot), following.head.sequence, following.follower)


async def delete_task(door: Door, scope: Scope, task_id: TaskId) -> None:
    """Forget an ended task. Raises: TaskNotFound, InvalidParams (it has not ended)."""
    if not await door.engine.store.delete_task(scope, task_id):
        await read.get_task(door.engine, scope, task_id)
        problem = Problem("id", "has not ended; cancel it first")
        raise InvalidParams(f"task {task_id} {problem.message}", problems=(problem,))


async def create_push(door: Door, scope: Scope, wish: PushWish, *, path: str = "url") -> PushConfig:
    """Make a push configuration; `path` is where its address stands in the request."""
    desk = door.push_desk()
    check_tenant(wish.tenant)
    desk.check(wish, path)
    return await desk.create(scope, wish.task_id or TaskId(""), wish)


async def find_push(door: Door, scope: Scope, request: PushRequest) -> PushConfig:
    """One push configuration."""
    desk = door.push_desk()
    check_tenant(request.tenant)
    return await desk.find(scope, request)


async def list_push(door: Door, scope: Scope, request: PushListRequest) -> PushPage:
    """A page of a task's push configurations."""
    desk = door.push_desk()
    check_tenant(request.tenant)
    return await desk.page(scope, request)


async def remove_push(door: Door, scope: Scope, request: PushRequest) -> None:
    """Remove a push configuration; one that is not there is removed already."""
    desk = door.push_desk()
    check_tenant(request.tenant)
    await desk.remove(scope, request)


def _submit(
    door: Door, scope: Scope, request: SendRequest, planning: PlanningDoor | None
) -> Coroutine[Any, Any, LiveRun | KnownRun]:
    send = Send(scope, request.message, request.is_blocking, request.accepted_output_modes)
    if planning is not None:
        return _submit_planned(door, send, request.push, planning)
    if request.push is not None:
        return _submit_followed(door, send, request.push)
    return submit(door.engine, send, door.rules)


async def _submit_planned(
    door: Door, send: Send, wish: PushWish | None, planning: PlanningDoor
) -> LiveRun | KnownRun:
    """Take the message in where it belongs: into an objective, or nowhere in particular."""
    known = await recall(door.engine, send, door.rules)
    if known is None:
        taken = await planning.take_message(send.message, send.scope, door.rules)
        if taken is not None:
            send = _inside(send, taken)
    if wish is not None:
        return await _submit_followed(door, send, wish)
    return known or await submit(door.engine, send, door.rules)


def _inside(send: Send, taken: Taken) -> Send:
    message = taken.message
    if taken.answers is not None:
        message = msgspec.structs.replace(message, task_id=taken.answers)
    return msgspec.structs.replace(
        send, message=message, said=send.message, inside=taken.inside, follow=taken.follow
    )


async def _submit_followed(door: Door, send: Send, wish: PushWish) -> LiveRun | KnownRun:
    """Take the message in, together with the wish to be told about its task."""
    desk, followed = door.push_desk(), list[TaskId]()
    if send.message.task_id is not None:
        await desk.check_room(send.scope, send.message.task_id, wish)

    def follow(task_id: TaskId, cursor: int) -> Delivery:
        followed.append(task_id)
        return desk.delivery(wish, task_id, cursor)

    if send.follow is None:  # else somebody else is told with the task, and this one after it
        send = msgspec.structs.replace(send, follow=follow)
    run = await submit(door.engine, send, door.rules)
    if not followed:  # or the message was taken before, perhaps without the wish
        first = await first_of(door.engine, run)
        if isinstance(first, Shown):
            await desk.create(send.scope, first.task.id, wish)
    return run


def _whole(answer: Answer) -> Stream:
    return Stream(v1.wrap_message(answer.message), 0, None)


def _following(door: Door, first: Shown, history_length: int | None) -> Stream:
    follower = read.follow_from(door.engine, first.task.id, first.sequence)
    whole = encode_record(first.task)
    task = v1.trim_task(whole, history_length=history_length, with_artifacts=None)
    return Stream(v1.wrap_task(task), first.sequence, follower)


async def _nothing_usable(door: Door, scope: Scope, message: Message) -> Answer:
    """The answer to a message that says nothing. Raises: TaskNotFound."""
    context_id = message.context_id
    if message.task_id is not None:
        stored = await read.get_task(door.engine, scope, message.task_id)
        context_id = context_id or stored.head.context_id
    context_id = context_id or ContextId(door.new_id())
    parts = (Part(text=NOTHING_USABLE),)
    return Answer(encode_record(Message(MessageId(door.new_id()), Role.AGENT, parts, context_id)))
