"""The two generations of the JSON-RPC wire: how each reads requests and spells answers."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Protocol

from openclaw_a2a.engine.tasks import queries
from openclaw_a2a.engine.tasks.result import DirectAnswer
from openclaw_a2a.http.asgi import HttpRequest, error_headers
from openclaw_a2a.http.sse_stream import EventStream, PendingStream, last_event_id
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import (
    GatewayError,
    GatewayFault,
    MethodNotFound,
    PushNotSupported,
    TaskNotCancelable,
    UnsupportedOperation,
)
from openclaw_a2a.model.push_config import PushConfig
from openclaw_a2a.model.states import is_terminal
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.protocol import errors, sse, v03, v1
from openclaw_a2a.protocol.jsonrpc import (
    Envelope,
    EnvelopeError,
    decode_envelope,
    encode_error,
    encode_result,
)
from openclaw_a2a.protocol.requests import (
    GetRequest,
    NewPushConfig,
    PushListRequest,
    PushRequest,
    SendRequest,
    TaskRequest,
)
from openclaw_a2a.protocol.versions import ProtocolVersion, pick_wire, read_version
from openclaw_a2a.server import objectives_endpoint, operations, task_list
from openclaw_a2a.server.account_endpoint import AccountEndpoint
from openclaw_a2a.server.push.configs import PushPage

KEPT_BYTES = 8 * 1024 * 1024
"""How much of what was transcoded is kept for the next reader."""

_ENTRY_BYTES = 256
"""What keeping a result costs besides its bytes."""

MakeId = Callable[[], str]

_ALL = 2**31 - 1
"""0.3 has no pages of push configurations."""


class Dialect(Protocol):
    """How one protocol generation is spoken. Answers come in their stored (1.0) spelling."""

    wire: ProtocolVersion
    subscribes_to_ended: bool
    streams_early_errors: bool
    push_path: str
    """Where the address of a new push configuration stands."""

    def decode_send(self, params: bytes, *, make_message_id: MakeId | None = None) -> SendRequest:
        """The parameters of a send. A missing message id is made, or refused without a maker."""
        ...

    def decode_get(self, params: bytes) -> GetRequest:
        """The parameters of a get."""
        ...

    def decode_task(self, params: bytes) -> TaskRequest:
        """The parameters of a cancel or subscribe."""
        ...

    def decode_push_wish(self, params: bytes) -> NewPushConfig:
        """The parameters of a new push configuration."""
        ...

    def decode_push(self, params: bytes) -> PushRequest:
        """The parameters that name a push configuration."""
        ...

    def decode_push_list(self, params: bytes) -> PushListRequest:
        """The parameters of a list of push configurations."""
        ...

    def push(self, config: PushConfig) -> bytes:
        """A push configuration."""
        ...

    def push_list(self, page: PushPage) -> bytes:
        """Some push configurations."""
        ...

    def task(self, body: bytes, history_length: int | None) -> bytes:
        """A task as a result by itself."""
        ...

    def sent(self, result: bytes | DirectAnswer, history_length: int | None) -> bytes:
        """What a send results in."""
        ...

    def stream_body(self, body: bytes) -> bytes:
        """A stored stream body as one event."""
        ...


class DialectV1:
    """A2A 1.0: the stored spelling is the wire's."""

    wire = ProtocolVersion.V1
    subscribes_to_ended = False
    streams_early_errors = False
    push_path = "url"

    def decode_send(self, params: bytes, *, make_message_id: MakeId | None = None) -> SendRequest:
        """The parameters of SendMessage."""
        return v1.decode_send(params, make_message_id=make_message_id)

    def decode_get(self, params: bytes) -> GetRequest:
        """The parameters of GetTask."""
        return v1.decode_get(params)

    def decode_task(self, params: bytes) -> TaskRequest:
        """The parameters of CancelTask and SubscribeToTask."""
        return v1.decode_task_request(params)

    def decode_push_wish(self, params: bytes) -> NewPushConfig:
        """The parameters of CreateTaskPushNotificationConfig."""
        return v1.decode_push_config(params)

    def decode_push(self, params: bytes) -> PushRequest:
        """The parameters of GetTaskPushNotificationConfig and its deletion."""
        return v1.decode_push_request(params)

    def decode_push_list(self, params: bytes) -> PushListRequest:
        """The parameters of ListTaskPushNotificationConfigs."""
        return v1.decode_push_list(params)

    def push(self, config: PushConfig) -> bytes:
        """The configuration, flat."""
        return v1.encode_push_config(config)

    def push_list(self, page: PushPage) -> bytes:
        """The configurations, and where to go on."""
        return v1.encode_push_list(page.configs, page.next_page_token)

    def task(self, body: bytes, history_length: int | None) -> bytes:
        """A bare task; as stored unless its history is to be cut."""
        if history_length is None:
            return body
        return v1.trim_task(body, history_length=history_length, with_artifacts=None)

    def sent(self, result: bytes | DirectAnswer, history_length: int | None) -> bytes:
        """The task or the message, under the member that names it."""
        if isinstance(result, DirectAnswer):
            return v1.wrap_message(result.message)
        return v1.wrap_task(self.task(result, history_length))

    def stream_body(self, body: bytes) -> bytes:
        """The body as it is stored."""
        return body


class DialectV03:
    """A2A 0.3: everything is transcoded, each event once however many follow it."""

    wire = ProtocolVersion.V03
    subscribes_to_ended = True
    streams_early_errors = True
    push_path = "pushNotificationConfig.url"

    def __init__(self) -> None:
        self._transcode = remember(v03.transcode, most_bytes=KEPT_BYTES)

    def decode_send(self, params: bytes, *, make_message_id: MakeId | None = None) -> SendRequest:
        """The parameters of message/send and message/stream."""
        return v03.decode_send(params, make_message_id=make_message_id)

    def decode_get(self, params: bytes) -> GetRequest:
        """The parameters of tasks/get."""
        return v03.decode_get(params)

    def decode_task(self, params: bytes) -> TaskRequest:
        """The parameters of tasks/cancel and tasks/resubscribe."""
        return v03.decode_task_request(params)

    def decode_push_wish(self, params: bytes) -> NewPushConfig:
        """The parameters of tasks/pushNotificationConfig/set."""
        return v03.decode_push_config(params)

    def decode_push(self, params: bytes) -> PushRequest:
        """The parameters of tasks/pushNotificationConfig/get and /delete."""
        return v03.decode_push_request(params)

    def decode_push_list(self, params: bytes) -> PushListRequest:
        """The parameters of tasks/pushNotificationConfig/list: all there are."""
        request = v03.decode_push_list(params)
        return PushListRequest(task_id=request.task_id, page_size=_ALL)

    def push(self, config: PushConfig) -> bytes:
        """The configuration, beside the id of its task."""
        return v03.encode_push_config(config)

    def push_list(self, page: PushPage) -> bytes:
        """The configurations and nothing else."""
        return v03.encode_push_list(page.configs)

    def task(self, body: bytes, history_length: int | None) -> bytes:
        """A task of kind `task`."""
        return v03.trim_task(body, history_length)

    def sent(self, result: bytes | DirectAnswer, history_length: int | None) -> bytes:
        """The task or the message; its kind tells which."""
        if isinstance(result, DirectAnswer):
            return v03.transcode(v1.wrap_message(result.message))
        return self.task(result, history_length)

    def stream_body(self, body: bytes) -> bytes:
        """The body as an event of 0.3."""
        return self._transcode(body)


def remember(function: Callable[[bytes], bytes], *, most_bytes: int) -> Callable[[bytes], bytes]:
    """The function with its latest results kept, by the identity of their (immutable) input.

    Followers of one task share the bytes of an event, so identity is all that has to be compared.
    Inputs and results together stay within the bound; what would take much of it is not kept.
    """
    known: OrderedDict[int, tuple[bytes, bytes]] = OrderedDict()
    size = 0

    def recall(body: bytes) -> bytes:
        nonlocal size
        hit = known.get(id(body))
        if hit is not None and hit[0] is body:
            return hit[1]
        result = function(body)
        cost = len(body) + len(result) + _ENTRY_BYTES
        if cost * 16 <= most_bytes:
            known[id(body)] = (body, result)
            size += cost
            while size > most_bytes:
                _, (old, old_result) = known.popitem(last=False)
                size -= len(old) + len(old_result) + _ENTRY_BYTES
        return result

    return recall


log = get_logger(__name__)

DIALECTS: dict[ProtocolVersion, Dialect] = {
    ProtocolVersion.V1: DialectV1(),
    ProtocolVersion.V03: DialectV03(),
}


class JsonRpcCall:
    """One decoded JSON-RPC request: who asks what, where, in which dialect."""

    __slots__ = ("dialect", "door", "envelope", "exchange", "scope")

    def __init__(
        self, exchange: HttpRequest, door: AccountEndpoint, scope: Scope, envelope: Envelope
    ) -> None:
        self.exchange = exchange
        self.door = door
        self.scope = scope
        self.envelope = envelope
        self.dialect = DIALECTS[pick_wire(envelope.method, exchange.protocol_version())]

    def frame(self, sequence: int, body: bytes) -> bytes:
        """One event of a stream, in this call's envelope."""
        result = self.dialect.stream_body(body)
        return sse.frame(encode_result(self.envelope.id, result), sequence=sequence)

    def error_frame(self, error: GatewayError) -> bytes:
        """The error that ends a stream, in this call's envelope."""
        body = encode_error(self.envelope.id, errors.rpc_error(error, self.dialect.wire))
        return sse.frame(body, event=b"error")

    def streams_early_error(self, error: GatewayError) -> bool:
        """On 0.3 an error before the first event is an event too, on 1.0 it is plain JSON."""
        is_plain = errors.http_status(error, for_rpc=True) != 200
        return self.dialect.streams_early_errors and not is_plain


async def serve(exchange: HttpRequest, *, endpoint: AccountEndpoint) -> None:
    """Answer one JSON-RPC request."""
    request_id, wire = b"null", None
    try:
        scope = endpoint.admit(exchange)
        exchange.require_json()
        envelope = decode_envelope(await endpoint.read_body(exchange))
        request_id = envelope.id
        planned = objectives_endpoint.find_rpc_call(exchange, endpoint, scope, envelope)
        if planned is not None:
            wire = planned.wire
            await planned.serve()
            return
        call = JsonRpcCall(exchange, endpoint, scope, envelope)
        wire = call.dialect.wire
        await _METHODS[envelope.method](call)
    except EnvelopeError as problem:
        wire = _claimed_wire(exchange)
        await answer_error(exchange, problem.error, request_id=problem.id, wire=wire)
    except GatewayError as error:
        wire = wire or _claimed_wire(exchange)
        await answer_error(exchange, error, request_id=request_id, wire=wire)
    except Exception:  # the edge of a request: whatever broke is ours, and told in one sentence
        log.exception("request-broken", path=exchange.path)
        fault, wire = GatewayFault("internal error"), wire or _claimed_wire(exchange)
        await answer_error(exchange, fault, request_id=request_id, wire=wire)


async def answer_error(
    exchange: HttpRequest, error: GatewayError, *, request_id: bytes, wire: ProtocolVersion
) -> None:
    """Answer with a JSON-RPC error."""
    if isinstance(error, GatewayFault) and error.message != "internal error":
        log.warning("request-failed", code=error.code, reason=error.message)
    body = encode_error(request_id, errors.rpc_error(error, wire))
    status = errors.http_status(error, for_rpc=True)
    await exchange.respond(status, body, headers=error_headers(error))


# ------------------------------------------------------------------------------- methods


async def _send(call: JsonRpcCall) -> None:
    request = _read_send(call)
    planning = call.door.planning_of(call.exchange)
    result = await operations.send(call.door, call.scope, request, planning=planning)
    await _answer(call, call.dialect.sent(result, request.history_length))


async def _send_streaming(call: JsonRpcCall) -> None:
    async def opening() -> EventStream | PendingStream:
        request, cursor = _read_send(call), last_event_id(call.exchange)
        planning = call.door.planning_of(call.exchange)
        send = operations.send_streaming
        return await send(call.door, call.scope, request, cursor=cursor, planning=planning)

    await call.door.streams.serve(call.exchange, opening, call)


def _read_send(call: JsonRpcCall) -> SendRequest:
    make_id = call.door.message_id_maker(call.exchange)
    return call.dialect.decode_send(call.envelope.params, make_message_id=make_id)


async def _subscribe(call: JsonRpcCall) -> None:
    async def opening() -> EventStream:
        request = call.dialect.decode_task(call.envelope.params)
        return await operations.subscribe(
            call.door,
            call.scope,
            request,
            cursor=last_event_id(call.exchange),
            allow_ended=call.dialect.subscribes_to_ended,
        )

    await call.door.streams.serve(call.exchange, opening, call)


async def _get(call: JsonRpcCall) -> None:
    request = call.dialect.decode_get(call.envelope.params)
    body = await operations.get(call.door, call.scope, request)
    await _answer(call, call.dialect.task(body, request.history_length))


async def _list(call: JsonRpcCall) -> None:
    request = v1.decode_list(call.envelope.params)
    await _answer(call, await task_list.list_tasks(call.door, call.scope, request))


async def _cancel(call: JsonRpcCall) -> None:
    request = call.dialect.decode_task(call.envelope.params)
    body = await operations.cancel_task(call.door, call.scope, request)
    await _answer(call, call.dialect.task(body, None))


async def _cancel_v03(call: JsonRpcCall) -> None:
    """On 0.3 the cancellation of an ended task returns it unchanged."""
    try:
        await _cancel(call)
    except TaskNotCancelable:
        request = call.dialect.decode_task(call.envelope.params)
        stored = await queries.get_task(call.door.engine, call.scope, request.id)
        if not is_terminal(stored.head.state):
            raise
        await _answer(call, call.dialect.task(queries.task_json(stored), None))


async def _create_push(call: JsonRpcCall) -> None:
    _check_push(call)
    wish = call.dialect.decode_push_wish(call.envelope.params)
    path = call.dialect.push_path
    config = await operations.create_push(call.door, call.scope, wish, path=path)
    await _answer(call, call.dialect.push(config))


async def _get_push(call: JsonRpcCall) -> None:
    _check_push(call)
    request = call.dialect.decode_push(call.envelope.params)
    config = await operations.find_push(call.door, call.scope, request)
    await _answer(call, call.dialect.push(config))


async def _list_push(call: JsonRpcCall) -> None:
    _check_push(call)
    request = call.dialect.decode_push_list(call.envelope.params)
    page = await operations.list_push(call.door, call.scope, request)
    await _answer(call, call.dialect.push_list(page))


async def _delete_push(call: JsonRpcCall) -> None:
    _check_push(call)
    request = call.dialect.decode_push(call.envelope.params)
    await operations.remove_push(call.door, call.scope, request)
    await _answer(call, b"null")


def _check_push(call: JsonRpcCall) -> None:
    """On 0.3 a method that is not offered does not exist. Raises: PushNotSupported."""
    try:
        call.door.push_configs()
    except PushNotSupported as error:
        text = f"{call.envelope.method}: {error.message}"
        kind = MethodNotFound if call.dialect.wire is ProtocolVersion.V03 else PushNotSupported
        raise kind(text) from None


async def _extended_card(_call: JsonRpcCall) -> None:
    raise UnsupportedOperation("this agent has no extended card; its public card says everything")


async def _answer(call: JsonRpcCall, result: bytes) -> None:
    await call.exchange.respond(200, encode_result(call.envelope.id, result))


_METHODS: dict[str, Callable[[JsonRpcCall], Awaitable[None]]] = {
    "SendMessage": _send,
    "SendStreamingMessage": _send_streaming,
    "GetTask": _get,
    "ListTasks": _list,
    "CancelTask": _cancel,
    "SubscribeToTask": _subscribe,
    "CreateTaskPushNotificationConfig": _create_push,
    "GetTaskPushNotificationConfig": _get_push,
    "ListTaskPushNotificationConfigs": _list_push,
    "DeleteTaskPushNotificationConfig": _delete_push,
    "GetExtendedAgentCard": _extended_card,
    "message/send": _send,
    "message/stream": _send_streaming,
    "tasks/get": _get,
    "tasks/cancel": _cancel_v03,
    "tasks/resubscribe": _subscribe,
    "tasks/pushNotificationConfig/set": _create_push,
    "tasks/pushNotificationConfig/get": _get_push,
    "tasks/pushNotificationConfig/list": _list_push,
    "tasks/pushNotificationConfig/delete": _delete_push,
    "agent/getAuthenticatedExtendedCard": _extended_card,
}


def _claimed_wire(exchange: HttpRequest) -> ProtocolVersion:
    """The generation to spell an error in when the method is not known yet."""
    try:
        return read_version(exchange.protocol_version()) or ProtocolVersion.V03
    except GatewayError:
        return ProtocolVersion.V1
