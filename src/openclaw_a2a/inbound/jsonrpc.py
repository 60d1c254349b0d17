"""The JSON-RPC door: both protocol generations on one path; the method name decides."""

from collections.abc import Awaitable, Callable

import structlog

from openclaw_a2a.inbound import listing, operations, opt_rpc
from openclaw_a2a.inbound.dialect import Dialect, DialectV03, DialectV1
from openclaw_a2a.inbound.door import Door
from openclaw_a2a.inbound.http import Exchange
from openclaw_a2a.inbound.identity import CHALLENGE
from openclaw_a2a.inbound.streams import Coming, Stream, last_event_id
from openclaw_a2a.model.errors import (
    GatewayError,
    GatewayFault,
    MethodNotFound,
    Overloaded,
    PushNotSupported,
    TaskNotCancelable,
    Unauthenticated,
    UnsupportedOperation,
)
from openclaw_a2a.model.states import is_terminal
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.runtime import read
from openclaw_a2a.wire import errors, sse, v1
from openclaw_a2a.wire.jsonrpc import (
    Envelope,
    EnvelopeError,
    decode_envelope,
    encode_error,
    encode_result,
)
from openclaw_a2a.wire.requests import SendRequest
from openclaw_a2a.wire.versions import Wire, pick_wire, read_version

log = structlog.get_logger(__name__)

DIALECTS: dict[Wire, Dialect] = {Wire.V1: DialectV1(), Wire.V03: DialectV03()}


class Call:
    """One decoded JSON-RPC request: who asks what, where, in which dialect."""

    __slots__ = ("dialect", "door", "envelope", "exchange", "scope")

    def __init__(self, exchange: Exchange, door: Door, scope: Scope, envelope: Envelope) -> None:
        self.exchange = exchange
        self.door = door
        self.scope = scope
        self.envelope = envelope
        self.dialect = DIALECTS[pick_wire(envelope.method, exchange.version())]

    def frame(self, sequence: int, body: bytes) -> bytes:
        """One event of a stream, in this call's envelope."""
        result = self.dialect.stream_body(body)
        return sse.frame(encode_result(self.envelope.id, result), sequence=sequence)

    def fault(self, error: GatewayError) -> bytes:
        """The error that ends a stream, in this call's envelope."""
        body = encode_error(self.envelope.id, errors.rpc_error(error, self.dialect.wire))
        return sse.frame(body, event=b"error")

    def streams_early(self, error: GatewayError) -> bool:
        """On 0.3 an error before the first event is an event too, on 1.0 it is plain JSON."""
        is_plain = errors.http_status(error, for_rpc=True) != 200
        return self.dialect.streams_early_errors and not is_plain


async def serve(exchange: Exchange, door: Door) -> None:
    """Answer one JSON-RPC request."""
    request_id, wire = b"null", None
    try:
        scope = door.admit(exchange)
        exchange.check_json()
        envelope = decode_envelope(await door.read_body(exchange))
        request_id = envelope.id
        planned = opt_rpc.find(exchange, door, scope, envelope)
        if planned is not None:
            wire = planned.wire
            await planned.serve()
            return
        call = Call(exchange, door, scope, envelope)
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
    exchange: Exchange, error: GatewayError, *, request_id: bytes, wire: Wire
) -> None:
    """Answer with a JSON-RPC error."""
    if isinstance(error, GatewayFault) and error.message != "internal error":
        log.warning("request-failed", code=error.code, reason=error.message)
    body = encode_error(request_id, errors.rpc_error(error, wire))
    status = errors.http_status(error, for_rpc=True)
    await exchange.answer(status, body, headers=error_headers(error))


def error_headers(error: GatewayError) -> list[tuple[bytes, bytes]]:
    """The headers an error brings along."""
    if isinstance(error, Unauthenticated):
        return [CHALLENGE]
    if isinstance(error, Overloaded):
        return [(b"retry-after", b"%d" % max(1, round(error.retry_after_s)))]
    return []


# ------------------------------------------------------------------------------- methods


async def _send(call: Call) -> None:
    request = _read_send(call)
    planning = call.door.planning_of(call.exchange)
    result = await operations.send(call.door, call.scope, request, planning=planning)
    await _answer(call, call.dialect.sent(result, request.history_length))


async def _send_streaming(call: Call) -> None:
    async def opening() -> Stream | Coming:
        request, cursor = _read_send(call), last_event_id(call.exchange)
        planning = call.door.planning_of(call.exchange)
        send = operations.send_streaming
        return await send(call.door, call.scope, request, cursor=cursor, planning=planning)

    await call.door.streams.serve(call.exchange, opening, call)


def _read_send(call: Call) -> SendRequest:
    make_id = call.door.message_id_maker(call.exchange)
    return call.dialect.decode_send(call.envelope.params, make_message_id=make_id)


async def _subscribe(call: Call) -> None:
    async def opening() -> Stream:
        request = call.dialect.decode_task(call.envelope.params)
        return await operations.subscribe(
            call.door,
            call.scope,
            request,
            cursor=last_event_id(call.exchange),
            allow_ended=call.dialect.subscribes_to_ended,
        )

    await call.door.streams.serve(call.exchange, opening, call)


async def _get(call: Call) -> None:
    request = call.dialect.decode_get(call.envelope.params)
    body = await operations.get(call.door, call.scope, request)
    await _answer(call, call.dialect.task(body, request.history_length))


async def _list(call: Call) -> None:
    request = v1.decode_list(call.envelope.params)
    await _answer(call, await listing.list_tasks(call.door, call.scope, request))


async def _cancel(call: Call) -> None:
    request = call.dialect.decode_task(call.envelope.params)
    body = await operations.cancel_task(call.door, call.scope, request)
    await _answer(call, call.dialect.task(body, None))


async def _cancel_v03(call: Call) -> None:
    """On 0.3 the cancellation of an ended task returns it unchanged."""
    try:
        await _cancel(call)
    except TaskNotCancelable:
        request = call.dialect.decode_task(call.envelope.params)
        stored = await read.get_task(call.door.engine, call.scope, request.id)
        if not is_terminal(stored.head.state):
            raise
        await _answer(call, call.dialect.task(read.task_bytes(stored), None))


async def _create_push(call: Call) -> None:
    _check_push(call)
    wish = call.dialect.decode_push_wish(call.envelope.params)
    path = call.dialect.push_path
    config = await operations.create_push(call.door, call.scope, wish, path=path)
    await _answer(call, call.dialect.push(config))


async def _get_push(call: Call) -> None:
    _check_push(call)
    request = call.dialect.decode_push(call.envelope.params)
    config = await operations.find_push(call.door, call.scope, request)
    await _answer(call, call.dialect.push(config))


async def _list_push(call: Call) -> None:
    _check_push(call)
    request = call.dialect.decode_push_list(call.envelope.params)
    page = await operations.list_push(call.door, call.scope, request)
    await _answer(call, call.dialect.push_list(page))


async def _delete_push(call: Call) -> None:
    _check_push(call)
    request = call.dialect.decode_push(call.envelope.params)
    await operations.remove_push(call.door, call.scope, request)
    await _answer(call, b"null")


def _check_push(call: Call) -> None:
    """On 0.3 a method that is not offered does not exist. Raises: PushNotSupported."""
    try:
        call.door.push_desk()
    except PushNotSupported as error:
        text = f"{call.envelope.method}: {error.message}"
        kind = MethodNotFound if call.dialect.wire is Wire.V03 else PushNotSupported
        raise kind(text) from None


async def _extended_card(_call: Call) -> None:
    raise UnsupportedOperation("this agent has no extended card; its public card says everything")


async def _answer(call: Call, result: bytes) -> None:
    await call.exchange.answer(200, encode_result(call.envelope.id, result))


_METHODS: dict[str, Callable[[Call], Awaitable[None]]] = {
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


def _claimed_wire(exchange: Exchange) -> Wire:
    """The generation to spell an error in when the method is not known yet."""
    try:
        return read_version(exchange.version()) or Wire.V03
    except GatewayError:
        return Wire.V1
