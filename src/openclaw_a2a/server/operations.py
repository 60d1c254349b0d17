"""The A2A operations: what a request asks of an account.

They are the same for every version and binding: an operation gets a call (caller and version) and
the decoded request, and returns the encoded result, or the stream to send.
"""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any
from urllib.parse import urlsplit

import msgspec

from openclaw_a2a.calls.loop_guard import chain_violation, read_chain
from openclaw_a2a.engine.tasks import queries
from openclaw_a2a.engine.tasks.active_task import (
    DirectAnswer,
    DuplicateRun,
    Rejected,
    TaskCreated,
    TaskFinished,
)
from openclaw_a2a.engine.tasks.cancel import cancel_task
from openclaw_a2a.engine.tasks.results import wait_created, wait_first_result, wait_original_result
from openclaw_a2a.engine.tasks.run import ActiveRun
from openclaw_a2a.engine.tasks.submit import (
    SubmitRequest,
    check_parts,
    find_duplicate,
    submit,
)
from openclaw_a2a.engine.transcript.assistant_message import has_content
from openclaw_a2a.http.sse_stream import EventStream, PendingStream, last_event_id
from openclaw_a2a.model.delivery import Delivery
from openclaw_a2a.model.errors import (
    InvalidParams,
    PartNotAccepted,
    Problem,
    TaskNotCancelable,
    TaskTerminal,
    UnsupportedOperation,
)
from openclaw_a2a.model.file_content import clean_filename
from openclaw_a2a.model.ids import ContextId, MessageId, TaskId
from openclaw_a2a.model.message import Message, Part, Role
from openclaw_a2a.model.records import encode_json
from openclaw_a2a.model.task import is_terminal
from openclaw_a2a.model.turn import CHAIN_KEY
from openclaw_a2a.net.safe_resolver import (
    AddressNotAllowed,
    HostNotFound,
    find_addresses,
)
from openclaw_a2a.planning.message_routing import agents_of_message
from openclaw_a2a.planning.service import PlanningService
from openclaw_a2a.planning.steps import check_named_agents
from openclaw_a2a.ports import MeasuredTask
from openclaw_a2a.protocol import v1
from openclaw_a2a.protocol.requests import (
    GetRequest,
    ListRequest,
    NewPushConfig,
    PushConfigRequest,
    PushListRequest,
    SendRequest,
    TaskRequest,
)
from openclaw_a2a.protocol.versions import ProtocolVersion
from openclaw_a2a.server import task_list
from openclaw_a2a.server.account_endpoint import (
    AccountCall,
    AccountEndpoint,
)
from openclaw_a2a.server.large_answers import (
    CLOSING_S,
    AnswerChunks,
    LargeAnswer,
    TaskFrame,
    check_present,
)

NO_USABLE_PART = "No supported text or data part was found in the message."
_MAX_LINK_HOSTS = 16
_LINK_LOOKUP_S = 3.0


# ---------------------------------------------------------------- messages


async def send(call: AccountCall, request: SendRequest) -> bytes | TaskFrame:
    """Send a message; the result is the task, or a direct answer."""
    engine = call.endpoint.engine
    call.continued_task = request.message.task_id
    if not _is_plain(request):
        _check_send(call.endpoint, request)
        if not (call.endpoint.rules.accepts_empty or has_content(request.message.parts)):
            answer = await _answer_empty_message(call, request.message)
            return call.codec.encode_sent_message(answer.message)
        if _has_links(request.message):
            await _check_links(call, request.message)
    run = await _submit(call, request)
    call.http.on_refused = None
    # A2A 3.2.2: a blocking send returns the task at its end (or pause), any other at once.
    if request.is_blocking:
        # The result of the run itself, not the journal: one wake-up instead of one per event.
        result = await run.wait_result()
        if isinstance(result, Rejected):
            result = await wait_original_result(engine, run, result)
    else:
        result = await wait_first_result(engine, run)
    if isinstance(result, TaskFinished) and result.error is not None:
        raise result.error
    if isinstance(result, TaskFinished) and len(result.task) < queries.LARGE_BYTES:
        return call.codec.encode_sent_task(result.task, request.history_length)
    return await _encode_result(call, request, result)


async def _encode_result(
    call: AccountCall,
    request: SendRequest,
    result: DirectAnswer | TaskCreated | TaskFinished | MeasuredTask,
) -> bytes | TaskFrame:
    if isinstance(result, DirectAnswer):
        return call.codec.encode_sent_message(result.message)
    large = await _find_large(call, request, result)
    if large is not None:
        answer = await _read_large(call, large, request.history_length)
        return TaskFrame(answer, call.codec.AROUND_TASK)
    if isinstance(result, TaskFinished):
        task = result.task
    elif isinstance(result, TaskCreated):
        task = encode_json(result.task)
    else:
        engine = call.endpoint.engine
        task = queries.task_json(await queries.get_task(engine, call.scope, result.head.id))
    return call.codec.encode_sent_task(task, request.history_length)


async def _find_large(
    call: AccountCall, request: SendRequest, result: TaskCreated | TaskFinished | MeasuredTask
) -> MeasuredTask | None:
    """The task that a send resulted in, if it is large."""
    engine = call.endpoint.engine
    if isinstance(result, TaskFinished):
        is_large = len(result.task) >= queries.LARGE_BYTES
        return await queries.measure_task(engine, call.scope, result.id) if is_large else None
    if isinstance(result, TaskCreated):
        if request.message.task_id is None:  # new: no larger than the message
            return None
        result = await queries.measure_task(engine, call.scope, result.task.id)
    return result if result.size >= queries.LARGE_BYTES else None


async def send_streaming(call: AccountCall, request: SendRequest) -> EventStream | PendingStream:
    """Send a message and stream its task. The message is accepted when this returns.

    A client that lost its stream may repeat the request: with a cursor it continues there.
    """
    call.continued_task = request.message.task_id
    engine, cursor = call.endpoint.engine, last_event_id(call.http)
    if not _is_plain(request):
        _check_send(call.endpoint, request)
        if not (call.endpoint.rules.accepts_empty or has_content(request.message.parts)):
            answer = await _answer_empty_message(call, request.message)
            return EventStream(v1.wrap_message(answer.message), 0, None)
        if _has_links(request.message):
            await _check_links(call, request.message)
    # Accepted before the stream begins: a refusal can still be a plain response. From here on the
    # client may leave; the run does not depend on the connection.
    run = await _submit(call, request)
    call.http.on_refused = None
    feed = None
    if isinstance(run, ActiveRun) and run.active_task is not None:
        # From here on, so that the reader gets from memory what is committed before it subscribes:
        # an agent that answers at once has ended by then.
        feed = run.active_task.journal.feed

    async def wait_first_event() -> EventStream:
        created = await wait_first_result(engine, run)
        if isinstance(created, DirectAnswer):
            return EventStream(v1.wrap_message(created.message), 0, None)
        task_id = created.task.id if isinstance(created, TaskCreated) else created.head.id
        is_duplicate = isinstance(run.created.peek(), Rejected)
        # A request repeated after a broken stream gets what it missed, not the task again.
        if is_duplicate and cursor is not None:
            missed = await queries.subscribe(engine, call.scope, task_id, cursor=cursor)
            return EventStream(None, 0, missed.subscription)
        # A2A 3.1.2: the stream begins with the task. Its events follow from that very sequence
        # number, so none is missed and none comes twice, however long the task took to encode.
        large, head = await _find_large(call, request, created), None
        if large is not None:
            answer = await _read_large(call, large, request.history_length)
            head, first = answer.head, TaskFrame(answer, call.codec.AROUND_TASK)
            sequence = head.sequence
        else:
            if isinstance(created, TaskCreated):
                task, sequence = encode_json(created.task), created.sequence
            else:
                stored = await queries.get_task(engine, call.scope, task_id)
                task, sequence, head = queries.task_json(stored), stored.head.sequence, stored.head
            first = v1.wrap_task(v1.trim_task(task, history_length=request.history_length))
        own_feed = None if is_duplicate else feed
        subscription = queries.subscribe_from(engine, call.scope, task_id, sequence, head, own_feed)
        return EventStream(first, sequence, subscription)

    return wait_first_event()


def _is_plain(request: SendRequest) -> bool:
    """True for one text and nothing else, as nearly every message is: no check can refuse it."""
    parts, message = request.message.parts, request.message
    if len(parts) != 1 or message.metadata or request.push is not None:
        return False
    text = parts[0].text
    return text is not None and not text.isspace() and text != ""


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


def _has_links(message: Message) -> bool:
    return any(part.url is not None for part in message.parts)


async def _check_links(call: AccountCall, message: Message) -> None:
    """Refuse links to files whose hosts lead into the operator's network. Raises: PartNotAccepted.

    Links are not fetched here, but an agent may fetch them, from this machine. A name that has no
    address leads nowhere now and is accepted. A name may lead elsewhere later: an agent that
    fetches links has to check the address that it connects to.
    """
    endpoint = call.endpoint
    check_parts(message, endpoint.rules)  # what is refused by its text needs no look-up
    linked: dict[str, int] = {}
    for index, part in enumerate(message.parts):
        if part.url is not None:
            linked.setdefault(urlsplit(part.url).hostname or "", index)
    if len(linked) > _MAX_LINK_HOSTS:
        raise PartNotAccepted(
            f"message.parts has links to files on {len(linked)} hosts; at most {_MAX_LINK_HOSTS}"
            " are accepted in one message"
        )

    resolve = endpoint.link_resolver.of_caller(call.scope.principal)

    async def check(host: str, index: int) -> None:
        link = f"message.parts[{index}] is a link to a file on {host[:200]}, which"
        try:
            async with asyncio.timeout(_LINK_LOOKUP_S):
                await find_addresses(host, 0, resolve=resolve, allow_private=False)
        except AddressNotAllowed:
            raise PartNotAccepted(f"{link} leads into a private network") from None
        except TimeoutError:
            # Not accepted: other names without an answer could have taken the time of this one.
            text = f"{link} was not found within {_LINK_LOOKUP_S:g} seconds; send it again later"
            raise PartNotAccepted(text) from None
        except HostNotFound:
            pass

    await asyncio.gather(*(check(host, index) for host, index in linked.items()))


async def _answer_empty_message(call: AccountCall, message: Message) -> DirectAnswer:
    """The answer to a message without usable content. Raises: TaskNotFound."""
    context_id, new_id = message.context_id, call.endpoint.new_id
    if message.task_id is not None:
        found = await queries.measure_task(call.endpoint.engine, call.scope, message.task_id)
        context_id = context_id or found.head.context_id
    parts = (Part(text=NO_USABLE_PART),)
    context_id = context_id or ContextId(new_id())
    return DirectAnswer(encode_json(Message(MessageId(new_id()), Role.AGENT, parts, context_id)))


def _submit(
    call: AccountCall, request: SendRequest
) -> Coroutine[Any, Any, ActiveRun | DuplicateRun]:
    message = request.message
    for part in message.parts:
        if part.filename is not None:
            message = _with_clean_names(message)
            break
    submission = SubmitRequest(
        call.scope,
        message,
        request.is_blocking,
        request.accepted_output_modes,
        address=call.http.client_address,
        is_from_peer=True,
        metadata=request.metadata,
    )
    if call.planning is not None:
        return _submit_to_objective(call, submission, request.push, call.planning)
    if request.push is not None:
        return _submit_with_push(call.endpoint, submission, request.push)
    return submit(call.endpoint.engine, submission, call.endpoint.rules)


def _with_clean_names(message: Message) -> Message:
    """The message with names that agents and programs can write to a disk as they are."""
    replace = msgspec.structs.replace
    parts = (
        part if part.filename is None else replace(part, filename=clean_filename(part.filename))
        for part in message.parts
    )
    return replace(message, parts=tuple(parts))


async def _submit_to_objective(
    call: AccountCall,
    submission: SubmitRequest,
    push: NewPushConfig | None,
    planning: PlanningService,
) -> ActiveRun | DuplicateRun:
    """Submit a message that may belong to an objective."""
    # First: a repeated message must not be routed again, which could create a second objective.
    endpoint, engine = call.endpoint, call.endpoint.engine
    duplicate = await find_duplicate(engine, submission, endpoint.rules)
    agents = agents_of_message(submission.message)
    check_named_agents(agents, call.http.caller_agents)
    if duplicate is None and engine.policy is not None:
        # Before it is routed, which may create an objective and run it. A message that is held
        # is not routed at all: the operator lets it go as a plain one.
        now = engine.clock.now()
        hold = await engine.policy.check(submission, endpoint.rules, now=now, agents=agents)
        submission = msgspec.structs.replace(submission, hold=hold, is_decided=True)
    if duplicate is None and submission.hold is None:
        routed = await planning.route_message(submission.message, submission.scope, endpoint.rules)
        if routed is not None:
            submission = msgspec.structs.replace(
                submission,
                message=routed.message,
                original_message=submission.message,
                internal_origin=routed.origin,
                make_delivery=routed.make_delivery,
                is_answer=routed.is_answer,
            )
    # Also for a duplicate, whose task may not have this push configuration yet: `submit` finds the
    # duplicate again.
    if push is not None:
        return await _submit_with_push(endpoint, submission, push)
    return duplicate or await submit(endpoint.engine, submission, endpoint.rules)


async def _submit_with_push(
    endpoint: AccountEndpoint, submission: SubmitRequest, push: NewPushConfig
) -> ActiveRun | DuplicateRun:
    """Submit a message together with a push configuration for its task.

    The configuration is written in the transaction that accepts the message, so a crash in
    between cannot lose it. A submission carries one delivery: when that is the objective's, or when
    the message is a duplicate (whose first copy may have had no configuration), the configuration
    is created afterwards.
    """
    configs, delivered = endpoint.push_configs(), list[TaskId]()
    if submission.message.task_id is not None:
        # Counted beforehand: the delivery is stored with the submission, which counts nothing.
        await configs.check_count(submission.scope, submission.message.task_id, push)

    def make_delivery(task_id: TaskId, cursor: int) -> Delivery:
        delivered.append(task_id)
        return configs.make_delivery(push, task_id, cursor)

    if submission.make_delivery is None:
        submission = msgspec.structs.replace(submission, make_delivery=make_delivery)
    run = await submit(endpoint.engine, submission, endpoint.rules)
    task_ids = delivered
    if not delivered:
        created = await wait_created(endpoint.engine, run)
        if isinstance(created, TaskCreated):
            await configs.create(submission.scope, created.task.id, push)
            task_ids = [created.task.id]
    for task_id in task_ids:
        endpoint.engine.audit.record(
            "push-set",
            submission.scope.principal,
            target=push.id or task_id,
            task=task_id,
            account=submission.scope.account,
            address=submission.address,
        )
    return run


# ---------------------------------------------------------------- tasks


async def get(call: AccountCall, request: GetRequest) -> bytes | LargeAnswer:
    """A task. Raises: TaskNotFound, and for a large one as `LargeAnswers.read`."""
    engine, most = call.endpoint.engine, queries.LARGE_BYTES
    task = await engine.store.tasks.read_snapshot(call.scope, request.id, most_bytes=most)
    if task is not None:  # nearly always: it has ended, and is not large
        return call.codec.encode_task_result(task, request.history_length)
    measured = await queries.measure_task(engine, call.scope, request.id)
    if measured.size >= most:
        return await _read_large(call, measured, request.history_length)
    stored = await queries.get_task(engine, call.scope, request.id)
    return call.codec.encode_task_result(queries.task_json(stored), request.history_length)


def _read_large(
    call: AccountCall, measured: MeasuredTask, history_length: int | None = None
) -> Coroutine[Any, Any, LargeAnswer]:
    endpoint, codec = call.endpoint, call.codec
    return endpoint.large_answers.read(
        call.http,
        endpoint.engine,
        call.scope.principal,
        measured,
        codec.VERSION,
        codec.encode_task_pieces,
        history_length,
    )


async def list_tasks(call: AccountCall, request: ListRequest) -> bytes | AnswerChunks:
    """A page of the caller's tasks. Raises: InvalidParams (the page token)."""
    endpoint, caller = call.endpoint, call.scope.principal
    pacer = endpoint.list_pacer
    # Pages of large tasks take long: one at a time for each caller, and time for others in between.
    async with pacer.turn(caller) as has_waited:
        if has_waited:
            await check_present(call.http, wait_s=CLOSING_S)
        # The slot is taken after the wait, so that waiting blocks no other caller.
        async with endpoint.large_answers.list_slots.slot(caller, is_retry=False):
            began = time.perf_counter()
            page = await task_list.list_tasks(endpoint.engine.store.tasks, call.scope, request)
            if len(page) == 1:
                return page[0]
            pacer.note(caller, time.perf_counter() - began)
            return AnswerChunks(page)


async def cancel(call: AccountCall, request: TaskRequest) -> bytes | LargeAnswer:
    """Cancel a task; the result is the task. Raises: TaskNotFound, TaskNotCancelable."""
    engine = call.endpoint.engine
    try:
        with call.recording_failure("task-canceled", request.id):
            task = await cancel_task(engine, call.scope, request.id)
        call.record("task-canceled", request.id)
    except TaskNotCancelable:
        # On 0.3 the cancellation of a finished task returns it unchanged.
        measured = await queries.measure_task(engine, call.scope, request.id)
        is_contract = call.codec.VERSION is ProtocolVersion.V03 and not call.is_strict
        if not is_contract or not is_terminal(measured.head.state):
            raise
        return await get(call, GetRequest(id=request.id))
    if len(task) >= queries.LARGE_BYTES:
        return await get(call, GetRequest(id=request.id))
    return call.codec.encode_task_result(task, None)


async def subscribe(call: AccountCall, request: TaskRequest) -> EventStream:
    """Stream a task that exists: on 1.0 until it has ended, on 0.3 until its next pause.

    With a cursor even a finished task streams the missed events; without one it is refused on
    1.0. Raises: TaskNotFound, TaskTerminal, InvalidParams (the cursor).
    """
    engine, codec, cursor = call.endpoint.engine, call.codec, last_event_id(call.http)
    measured = await queries.measure_task(engine, call.scope, request.id)
    # A2A 3.1.6: a task that has ended has no stream. With a cursor, our addition, it has one.
    is_refused = is_terminal(measured.head.state) and not codec.STREAMS_FINISHED_TASKS
    if cursor is None and is_refused:
        raise TaskTerminal(f"task {request.id} has ended; get it instead of subscribing to it")
    large = None
    if cursor is None and measured.size >= queries.LARGE_BYTES:
        large = await _read_large(call, measured)
        cursor = large.head.sequence
    until_terminal = codec.FOLLOWS_PAUSED_TASKS
    found = await queries.subscribe(
        engine, call.scope, request.id, cursor=cursor, until_terminal=until_terminal
    )
    if large is not None:
        return EventStream(TaskFrame(large, codec.AROUND_TASK), cursor or 0, found.subscription)
    if found.snapshot is None:
        return EventStream(None, 0, found.subscription)
    return EventStream(v1.wrap_task(found.snapshot), found.head.sequence, found.subscription)


async def delete(call: AccountCall, request: TaskRequest) -> bytes:
    """Delete a finished task. Raises: TaskNotFound, InvalidParams (it has not ended)."""
    engine = call.endpoint.engine
    # An addition to A2A. The read below distinguishes "not found" from "not ended".
    with call.recording_failure("task-deleted", request.id):
        if not await engine.store.tasks.delete_task(call.scope, request.id):
            # Not deleted: the task does not exist, which `measure_task` raises, or has not ended.
            await queries.measure_task(engine, call.scope, request.id)
            problem = Problem("id", "has not ended; cancel it first")
            raise InvalidParams(f"task {request.id} {problem.message}", problems=(problem,))
    call.record("task-deleted", request.id)
    return call.EMPTY


async def extended_card(_call: AccountCall, _request: None) -> bytes:
    """Refused. Raises: UnsupportedOperation."""
    raise UnsupportedOperation("this agent has no extended card; its public card says everything")


# ---------------------------------------------------------------- push configurations


async def create_push(call: AccountCall, new: NewPushConfig) -> bytes:
    """Create a push configuration. Raises: as `PushConfigService.create`."""
    # Its id and no more: the address and the credentials may be secret.
    with call.recording_failure("push-set", new.task_id, target=new.id or ""):
        config = await call.endpoint.push_configs().create(call.scope, new.task_id, new)
    call.record("push-set", config.task_id, target=config.id)
    return call.codec.encode_push_config(config)


async def get_push(call: AccountCall, request: PushConfigRequest) -> bytes:
    """A push configuration. Raises: TaskNotFound, PushConfigNotFound."""
    config = await call.endpoint.push_configs().get(call.scope, request)
    return call.codec.encode_push_config(config)


async def list_push(call: AccountCall, request: PushListRequest) -> bytes:
    """The push configurations of a task. Raises: TaskNotFound, InvalidParams (the page token)."""
    configs, next_token = await call.endpoint.push_configs().list_page(call.scope, request)
    return call.codec.encode_push_list(configs, next_token)


async def delete_push(call: AccountCall, request: PushConfigRequest) -> bytes:
    """Delete a push configuration, if it exists. Raises: TaskNotFound."""
    with call.recording_failure("push-deleted", request.task_id, target=request.id or ""):
        await call.endpoint.push_configs().delete(call.scope, request)
    call.record("push-deleted", request.task_id, target=request.id or "")
    return call.EMPTY
