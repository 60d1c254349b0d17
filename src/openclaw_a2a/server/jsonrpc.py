"""The JSON-RPC binding: both protocol versions at one address, told apart by the method."""

from collections.abc import Awaitable, Callable

from openclaw_a2a.engine.tasks import queries
from openclaw_a2a.http.asgi import HttpRequest, error_headers
from openclaw_a2a.http.sse_stream import EventStream, PendingStream, encode_frame, last_event_id
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import (
    GatewayError,
    GatewayFault,
    MethodNotFound,
    PushNotSupported,
    TaskNotCancelable,
    UnsupportedOperation,
)
from openclaw_a2a.model.task import is_terminal
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.protocol import errors, v03, v1
from openclaw_a2a.protocol.jsonrpc import (
    NO_ID,
    Envelope,
    EnvelopeError,
    decode_envelope,
    encode_error,
    encode_result,
)
from openclaw_a2a.protocol.requests import SendRequest
from openclaw_a2a.protocol.versions import ProtocolVersion, read_version, version_of_method
from openclaw_a2a.server import objectives_endpoint, operations
from openclaw_a2a.server.account_endpoint import AccountEndpoint
from openclaw_a2a.server.operations import check_tenant, encode_send_result
from openclaw_a2a.server.push.configs import PushConfigService
from openclaw_a2a.server.task_list import list_tasks

log = get_logger(__name__)


class JsonRpcCall:
    """One authenticated call at an account. It encodes the frames of its own stream."""

    __slots__ = ("codec", "endpoint", "envelope", "http", "scope", "version")

    def __init__(
        self, http: HttpRequest, endpoint: AccountEndpoint, scope: Scope, envelope: Envelope
    ) -> None:
        self.http = http
        self.endpoint = endpoint
        self.scope = scope
        self.envelope = envelope
        self.version = version_of_method(envelope.method, http.protocol_version())
        self.codec = v1 if self.version is ProtocolVersion.V1 else v03

    async def respond(self, result: bytes) -> None:
        """Send a result."""
        await self.http.respond(200, encode_result(self.envelope.id, result))

    def frame(self, sequence: int, body: bytes) -> bytes:
        """A stored body as one frame."""
        result = self.codec.encode_stream_body(body)
        return encode_frame(encode_result(self.envelope.id, result), sequence=sequence)

    def error_frame(self, error: GatewayError) -> bytes:
        """The frame that ends a stream with an error."""
        body = encode_error(self.envelope.id, errors.rpc_error(error, self.version))
        return encode_frame(body, event=b"error")

    def streams_early_error(self, error: GatewayError) -> bool:
        """On 0.3 an error before the first event is a frame too, on 1.0 it is a plain response."""
        has_own_status = errors.http_status(error, for_rpc=True) != 200
        return self.codec.STREAMS_EARLY_ERRORS and not has_own_status


async def serve(http: HttpRequest, *, endpoint: AccountEndpoint) -> None:
    """Respond to one JSON-RPC request."""
    request_id, version = NO_ID, None
    try:
        scope = endpoint.admit(http)
        http.require_json()
        envelope = decode_envelope(await endpoint.read_body(http))
        request_id = envelope.id
        if envelope.method not in _METHODS and endpoint.planning is not None:
            planning_call = objectives_endpoint.find_rpc_call(http, endpoint, scope, envelope)
            if planning_call is not None:
                version = planning_call.version
                await planning_call.serve()
                return
        call = JsonRpcCall(http, endpoint, scope, envelope)
        version = call.version
        await _METHODS[envelope.method](call)
    except EnvelopeError as invalid:
        await _respond_error(http, invalid.error, request_id=invalid.id, version=version)
    except GatewayError as error:
        if isinstance(error, GatewayFault):
            log.warning("jsonrpc.request_failed", code=error.code, reason=error.message)
        await _respond_error(http, error, request_id=request_id, version=version)
    except Exception:  # the edge of a request: an unexpected error must not reach the peer
        log.exception("jsonrpc.request_crashed", path=http.path)
        fault = GatewayFault("internal error")
        await _respond_error(http, fault, request_id=request_id, version=version)


async def _respond_error(
    http: HttpRequest, error: GatewayError, *, request_id: bytes, version: ProtocolVersion | None
) -> None:
    if version is None:
        version = _claimed_version(http)
    body = encode_error(request_id, errors.rpc_error(error, version))
    status = errors.http_status(error, for_rpc=True)
    await http.respond(status, body, headers=error_headers(error))


def _claimed_version(http: HttpRequest) -> ProtocolVersion:
    """The version in which to report an error when the method is not known yet."""
    try:
        return read_version(http.protocol_version()) or ProtocolVersion.V03
    except GatewayError:
        return ProtocolVersion.V1


# ---------------------------------------------------------------------------- messages and tasks


async def _send(call: JsonRpcCall) -> None:
    request = _decode_send(call)
    planning = call.endpoint.planning_of(call.http)
    result = await operations.send(call.endpoint, call.scope, request, planning=planning)
    await call.respond(encode_send_result(call.codec, result, request.history_length))


async def _send_streaming(call: JsonRpcCall) -> None:
    async def open_stream() -> EventStream | PendingStream:
        return await operations.send_streaming(
            call.endpoint,
            call.scope,
            _decode_send(call),
            cursor=last_event_id(call.http),
            planning=call.endpoint.planning_of(call.http),
        )

    await call.endpoint.streams.serve(call.http, open_stream, call)


def _decode_send(call: JsonRpcCall) -> SendRequest:
    make_id = call.endpoint.message_id_maker(call.http)
    request = call.codec.decode_send(call.envelope.params, make_message_id=make_id)
    check_tenant(request.tenant)
    return request


async def _subscribe(call: JsonRpcCall) -> None:
    async def open_stream() -> EventStream:
        request = call.codec.decode_task_request(call.envelope.params)
        check_tenant(request.tenant)
        return await operations.subscribe(
            call.endpoint,
            call.scope,
            request.id,
            cursor=last_event_id(call.http),
            allow_finished=call.codec.STREAMS_FINISHED_TASKS,
        )

    await call.endpoint.streams.serve(call.http, open_stream, call)


async def _get(call: JsonRpcCall) -> None:
    request = call.codec.decode_get(call.envelope.params)
    check_tenant(request.tenant)
    task = await operations.get(call.endpoint, call.scope, request.id)
    await call.respond(call.codec.encode_task_result(task, request.history_length))


async def _list(call: JsonRpcCall) -> None:
    request = v1.decode_list(call.envelope.params)
    check_tenant(request.tenant)
    await call.respond(await list_tasks(call.endpoint.engine.store.tasks, call.scope, request))


async def _cancel(call: JsonRpcCall) -> None:
    request = call.codec.decode_task_request(call.envelope.params)
    check_tenant(request.tenant)
    try:
        task = await operations.cancel(call.endpoint, call.scope, request.id)
    except TaskNotCancelable:
        # On 0.3 the cancellation of a finished task returns it unchanged.
        stored = await queries.get_task(call.endpoint.engine, call.scope, request.id)
        if call.version is not ProtocolVersion.V03 or not is_terminal(stored.head.state):
            raise
        task = queries.task_json(stored)
    await call.respond(call.codec.encode_task_result(task))


# --------------------------------------------------------------------------- push configurations


async def _create_push(call: JsonRpcCall) -> None:
    configs = _push_configs(call)
    new = call.codec.decode_push_config(call.envelope.params)
    check_tenant(new.tenant)
    config = await configs.create(call.scope, new.task_id, new)
    await call.respond(call.codec.encode_push_config(config))


async def _get_push(call: JsonRpcCall) -> None:
    configs = _push_configs(call)
    request = call.codec.decode_push_request(call.envelope.params)
    check_tenant(request.tenant)
    config = await configs.find(call.scope, request)
    await call.respond(call.codec.encode_push_config(config))


async def _list_push(call: JsonRpcCall) -> None:
    configs = _push_configs(call)
    request = call.codec.decode_push_list(call.envelope.params)
    check_tenant(request.tenant)
    page = await configs.list_page(call.scope, request)
    await call.respond(call.codec.encode_push_list(page.configs, page.next_page_token))


async def _delete_push(call: JsonRpcCall) -> None:
    configs = _push_configs(call)
    request = call.codec.decode_push_request(call.envelope.params)
    check_tenant(request.tenant)
    await configs.delete(call.scope, request)
    await call.respond(b"null")


def _push_configs(call: JsonRpcCall) -> PushConfigService:
    """Raises: PushNotSupported; on 0.3 a method that is not offered does not exist."""
    try:
        return call.endpoint.push_configs()
    except PushNotSupported as error:
        text = f"{call.envelope.method}: {error.message}"
        kind = MethodNotFound if call.version is ProtocolVersion.V03 else PushNotSupported
        raise kind(text) from None


async def _extended_card(_: JsonRpcCall) -> None:
    raise UnsupportedOperation("this agent has no extended card; its public card says everything")


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
    "tasks/cancel": _cancel,
    "tasks/resubscribe": _subscribe,
    "tasks/pushNotificationConfig/set": _create_push,
    "tasks/pushNotificationConfig/get": _get_push,
    "tasks/pushNotificationConfig/list": _list_push,
    "tasks/pushNotificationConfig/delete": _delete_push,
    "agent/getAuthenticatedExtendedCard": _extended_card,
}
