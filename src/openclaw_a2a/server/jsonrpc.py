"""The JSON-RPC binding: both protocol versions at one address, distinguished by the method."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar

from openclaw_a2a.http.asgi import ClientDisconnected, HttpRequest, error_headers
from openclaw_a2a.http.sse_stream import EventStream, PendingStream, StreamEvent, encode_frame
from openclaw_a2a.log import get_logger
from openclaw_a2a.model.errors import GatewayError, GatewayFault, MethodNotFound, PushNotSupported
from openclaw_a2a.model.turn import Scope
from openclaw_a2a.protocol import errors, v03, v1
from openclaw_a2a.protocol.jsonrpc import (
    NO_ID,
    Envelope,
    EnvelopeError,
    around_result,
    decode_envelope,
    encode_error,
    encode_result,
)
from openclaw_a2a.protocol.versions import ProtocolVersion, read_version, version_of_method
from openclaw_a2a.server import operations
from openclaw_a2a.server.account_endpoint import (
    PACED_BODY_BYTES,
    AccountCall,
    AccountEndpoint,
    Codec,
)
from openclaw_a2a.server.large_answers import AnswerChunks, LargeAnswer, TaskFrame
from openclaw_a2a.server.objectives_endpoint import PlanningRpcCall, find_rpc_call

log = get_logger(__name__)

_FRAME = b'id: %d\ndata: {"jsonrpc":"2.0","id":%b,"result":%b}\n\n'


class Method:
    """A method: how its parameters are decoded (None: it has none), and what it does."""

    __slots__ = (
        "codec",
        "decode",
        "is_push",
        "is_stream",
        "operation",
        "sends_message",
        "version",
        "version_header",
    )

    def __init__(
        self,
        codec: Codec,
        decode: Callable[..., Any] | None,
        operation: Callable[..., Coroutine[Any, Any, Any]],
    ) -> None:
        self.codec = codec
        self.decode = decode
        self.operation = operation
        self.version = codec.VERSION
        self.version_header = codec.VERSION.value.encode()
        self.sends_message = operation in (operations.send, operations.send_streaming)
        self.is_stream = operation in (operations.send_streaming, operations.subscribe)
        self.is_push = operation in _PUSH


_PUSH = frozenset(
    {operations.create_push, operations.get_push, operations.list_push, operations.delete_push}
)


class JsonRpcCall(AccountCall, eq=False, kw_only=True):
    """One authenticated call. It encodes the frames of its own stream."""

    EMPTY: ClassVar[bytes] = b"null"

    envelope: Envelope
    method: Method
    version: ProtocolVersion

    async def serve(self) -> None:
        """Respond with a result or a stream. Raises: what the operation raises."""
        method = self.method
        # Capabilities before the params are decoded: A2A 3.3.4 wants these errors, whatever they
        # hold.
        if method.is_stream:
            self.endpoint.check_streaming()
            if self.http.is_silent:
                # Accepted, and its stream not opened: the client does not want to see it.
                stream = await self.open_stream()
                if not isinstance(stream, EventStream):
                    stream.close()
                await self.http.respond(200, b"")
                return
            self.http.rest = await self.endpoint.streams.open(
                self.http, self.open_stream, self, check=self.endpoint.check_caller
            )
            return
        if method.is_push:
            self._check_push()
        result: bytes | LargeAnswer | TaskFrame | AnswerChunks
        result = await method.operation(self, self.decode())
        if isinstance(result, bytes):
            await self.http.respond(200, encode_result(self.envelope.id, result))
            return
        before, after = around_result(self.envelope.id)
        await self.http.respond_chunks((before, *result.chunks, after))

    def decode(self) -> Any:
        """The request. Raises: InvalidParams, ParseFailed."""
        method, params = self.method, self.envelope.params
        if method.decode is None:
            return None
        if not method.sends_message:
            request = method.decode(params)
        else:
            options: dict[str, Any] = {"max_parts": self.endpoint.rules.max_parts}
            if self.planning is not None:
                # Messages to objectives may come without an id.
                options["make_message_id"] = self.endpoint.new_id
            if self.version is ProtocolVersion.V03 and self.is_strict:
                options["is_strict"] = True
            request = method.decode(params, **options)
        if request.tenant:
            self.check_tenant(request.tenant)
        return request

    async def open_stream(self) -> EventStream | PendingStream:
        """Start a streaming method. What decoding raises may have to be a frame, too."""
        request, envelope = self.decode(), self.envelope
        # Its frames need the id alone, and a stream may be open for hours.
        self.envelope = Envelope(envelope.id, envelope.method, b"")
        return await self.method.operation(self, request)

    def _check_push(self) -> None:
        """Raises: PushNotSupported; on 0.3 a method that is not offered does not exist."""
        try:
            self.endpoint.push_configs()
        except PushNotSupported as error:
            kind = MethodNotFound if self.version is ProtocolVersion.V03 else PushNotSupported
            raise kind(f"{self.envelope.method}: {error.message}") from None

    def frames(self, events: Sequence[StreamEvent], last: int | None) -> bytes:
        """Events as frames, in this call's envelope."""
        request_id = self.envelope.id
        if self.version is ProtocolVersion.V1:  # a body is stored as it is sent
            return b"".join([_FRAME % (one.sequence, request_id, one.body) for one in events])
        frames: list[bytes] = []
        for one in events:
            result = self.encode_body(one.body, is_last=one.sequence == last)
            frames.append(encode_frame(encode_result(request_id, result), sequence=one.sequence))
        return b"".join(frames)

    def encode_body(self, body: bytes, *, is_last: bool) -> bytes:
        """A stored body in the version of the call."""
        is_strict_end = is_last and self.is_strict
        return (v03.encode_strict_end if is_strict_end else self.codec.encode_stream_body)(body)

    def around_frame(self, sequence: int) -> tuple[bytes, bytes]:
        """What is around a result that is encoded already."""
        before, after = around_result(self.envelope.id)
        return b"id: %d\ndata: %b" % (sequence, before), after + b"\n\n"

    def error_frame(self, error: GatewayError) -> bytes:
        """The frame that ends a stream with an error."""
        encoded = errors.rpc_error(error, self.version, strict03=self.is_strict)
        return encode_frame(encode_error(self.envelope.id, encoded), event=b"error")

    def streams_early_error(self, error: GatewayError) -> bool:
        """On 0.3 an error before the first event is a frame too, on 1.0 it is a plain response."""
        has_own_status = errors.http_status(error, for_rpc=True) != 200
        return self.codec.STREAMS_EARLY_ERRORS and not has_own_status


async def serve(http: HttpRequest, *, endpoint: AccountEndpoint) -> None:
    """Respond to one JSON-RPC request."""
    request_id, version, method = NO_ID, None, None
    try:
        # Before the body is read: unknown callers cannot make us receive and parse megabytes.
        scope = await endpoint.admit(http)
        if not http.facts.is_json:
            http.require_json()
        body = http.take_body(endpoint.account.max_body_bytes)
        if body is None:
            body = await endpoint.read_body(http)
        if len(body) < PACED_BODY_BYTES:
            envelope = decode_envelope(body)
        else:
            envelope = await endpoint.decode_body(http, decode_envelope, body)
        request_id, method = envelope.id, envelope.method
        http.is_silent = envelope.is_notification
        call = _find_call(http, endpoint, scope, envelope)
        version = call.version
        await call.serve()
    except ClientDisconnected:
        pass
    except EnvelopeError as invalid:
        http.log_refusal(invalid.error, account=endpoint.account.id)
        await _respond_error(http, endpoint, invalid.error, invalid.id, version)
    except GatewayError as error:
        http.log_refusal(
            error,
            rpc=method and method[:100],
            account=endpoint.account.id,
            agent=endpoint.rules.agent_id,
        )
        await _respond_error(http, endpoint, error, request_id, version)
    except Exception:  # the edge of a request: an unexpected error must not reach the peer
        log.exception("jsonrpc.request_crashed", path=http.path)
        fault = GatewayFault("internal error")
        await _respond_error(http, endpoint, fault, request_id, version)


def _find_call(
    http: HttpRequest, endpoint: AccountEndpoint, scope: Scope, envelope: Envelope
) -> JsonRpcCall | PlanningRpcCall:
    """Raises: MethodNotFound, VersionNotSupported."""
    method = _METHODS.get(envelope.method)
    if method is None:
        planning_call = find_rpc_call(http, endpoint, scope, envelope)
        if planning_call is not None:
            return planning_call
    # Fast path: nearly every client sends its version exactly.
    if method is None or http.headers.get(b"a2a-version") != method.version_header:
        version_of_method(envelope.method, http.protocol_version())
    if method is None:
        raise MethodNotFound(f"There is no method {envelope.method[:100]!r}.")
    planning = endpoint.planning_of(http) if http.response_headers else None
    call = JsonRpcCall(
        http,
        endpoint,
        scope,
        method.codec,
        planning,
        envelope=envelope,
        method=method,
        version=method.version,
    )
    if method.sends_message:
        http.on_refused = call.record_refused_message  # until the message is accepted
    return call


async def _respond_error(
    http: HttpRequest,
    endpoint: AccountEndpoint,
    error: GatewayError,
    request_id: bytes,
    version: ProtocolVersion | None,
) -> None:
    if version is None:  # the method is not known yet: the header decides the form of the error
        try:
            version = read_version(http.protocol_version()) or ProtocolVersion.V03
        except GatewayError:
            version = ProtocolVersion.V1
    encoded = errors.rpc_error(error, version, strict03=endpoint.account.strict03)
    body = encode_error(request_id, encoded)
    status = errors.http_status(error, for_rpc=True)
    await http.respond(status, body, headers=error_headers(error))


_METHODS = {
    "SendMessage": Method(v1, v1.decode_send, operations.send),
    "SendStreamingMessage": Method(v1, v1.decode_send, operations.send_streaming),
    "GetTask": Method(v1, v1.decode_get, operations.get),
    "ListTasks": Method(v1, v1.decode_list, operations.list_tasks),
    "CancelTask": Method(v1, v1.decode_task_request, operations.cancel),
    "SubscribeToTask": Method(v1, v1.decode_task_request, operations.subscribe),
    "CreateTaskPushNotificationConfig": Method(v1, v1.decode_push_config, operations.create_push),
    "GetTaskPushNotificationConfig": Method(v1, v1.decode_push_request, operations.get_push),
    "ListTaskPushNotificationConfigs": Method(v1, v1.decode_push_list, operations.list_push),
    "DeleteTaskPushNotificationConfig": Method(v1, v1.decode_push_request, operations.delete_push),
    "GetExtendedAgentCard": Method(v1, None, operations.extended_card),
    "message/send": Method(v03, v03.decode_send, operations.send),
    "message/stream": Method(v03, v03.decode_send, operations.send_streaming),
    "tasks/get": Method(v03, v03.decode_get, operations.get),
    "tasks/cancel": Method(v03, v03.decode_task_request, operations.cancel),
    "tasks/resubscribe": Method(v03, v03.decode_task_request, operations.subscribe),
    "tasks/pushNotificationConfig/set": Method(v03, v03.decode_push_config, operations.create_push),
    "tasks/pushNotificationConfig/get": Method(v03, v03.decode_push_request, operations.get_push),
    "tasks/pushNotificationConfig/list": Method(v03, v03.decode_push_list, operations.list_push),
    "tasks/pushNotificationConfig/delete": Method(
        v03, v03.decode_push_request, operations.delete_push
    ),
    "agent/getAuthenticatedExtendedCard": Method(v03, None, operations.extended_card),
}
